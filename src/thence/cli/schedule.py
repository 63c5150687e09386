"""`thence schedule`: sweep every day without thinking of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

import click

from thence.cli import options, scheduling, wiring
from thence.cli.columns import tell, tilde
from thence.cli.file_changes import confirm, show
from thence.cli.terminal import answer, as_json, clean, cut, say, width

if TYPE_CHECKING:
    from thence.format.records import JSON


@click.group("schedule")
def command() -> None:
    """Group what is done about timers."""


_by = click.option(
    "--by",
    type=click.Choice(["systemd", "launchd", "cron"]),
    help="Default: what this machine has.",
)
_yes = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
_dry = click.option("-n", "--dry-run", is_flag=True, help="Show the change; write nothing.")


@command.command("install", help="Install a timer; shows the change and asks.")
@click.option(
    "--every", type=click.Choice(get_args(scheduling.Every)), help="Default: the cadence setting."
)
@_by
@_dry
@_yes
@options.as_json
def install(
    every: scheduling.Every | None, by: str | None, *, dry_run: bool, yes: bool, json: bool
) -> int:
    """Schedule sweeps."""
    cadence = wiring.settings()["session_memory.retention.cadence"]
    # Hooks miss what happens without them: one sweep a day all the same.
    often: scheduling.Every = every or ("weekly" if cadence == "weekly" else "daily")
    way = scheduling.means(by)
    plans = [(way, way.install(often))]
    return _change(plans, "scheduled", dry_run=dry_run, yes=yes, json=json)


@command.command("uninstall", help="Remove the timer; shows the change and asks.")
@_dry
@_yes
@options.as_json
def uninstall(*, dry_run: bool, yes: bool, json: bool) -> int:
    """Take away whatever schedules sweeps."""
    plans = [(way, way.uninstall()) for way in scheduling.active_means()]
    if not plans and not json:
        tell(["no import is scheduled"])
    return _change(plans, "no longer scheduled", dry_run=dry_run, yes=yes, json=json)


@command.command("status", help="Show whether imports are scheduled, and how.")
@options.as_json
def status(*, json: bool) -> int:
    """Print what is scheduled."""
    timers = [(way.name, way.where() or "") for way in scheduling.active_means()]
    lines = [cut(f"  ✓ {name}  {clean(tilde(where))}", width()) for name, where in timers]
    return answer(
        [{"by": name, "where": where} for name, where in timers],
        lines or ["  ○ no import is scheduled", "    thence schedule install"],
        json=json,
    )


def _change(
    plans: Sequence[tuple[scheduling.Means, scheduling.SchedulePlan]],
    word: str,
    *,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> int:
    for way, plan in plans:
        if not json:
            _show(way, plan, word)
        if plan.changes and not dry_run:
            confirm(yes=yes, json=json, what="write this")
            way.carry_out(plan)
            if not json:
                tell([f"{way.name}: {word}"])
    if json:
        say(as_json([_as_object(way, plan, dry_run=dry_run) for way, plan in plans]))
    return 0


def _show(way: scheduling.Means, plan: scheduling.SchedulePlan, word: str) -> None:
    if plan.changes:
        show([(way.name, edit) for edit in plan.edits if edit.changes], word)
    else:
        tell([f"{way.name}: {word} already"])


def _as_object(way: scheduling.Means, plan: scheduling.SchedulePlan, *, dry_run: bool) -> JSON:
    edits = [edit for edit in plan.edits if edit.changes]
    return {
        "by": way.name,
        "changes": plan.changes,
        "done": plan.changes and not dry_run,
        "diff": "\n".join(line for edit in edits for line in edit.diff()),
    }
