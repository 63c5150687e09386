"""`thence schedule`: sweep every day without thinking of it."""

from __future__ import annotations

from typing import get_args

import click

from thence.cli import options, scheduling, wiring
from thence.cli.columns import tell, tilde
from thence.cli.hook import confirm, show
from thence.cli.terminal import as_json, clean, cut, say, width


@click.group("schedule", help="Sweep every day, by a systemd timer or by cron.")
def command() -> None:
    """Group what is done about timers."""


_by = click.option("--by", type=click.Choice(["systemd", "cron"]), help="Else: what is here.")
_yes = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
_dry = click.option("-n", "--dry-run", is_flag=True, help="Show the change; write nothing.")


@command.command("install", help="Set a timer; shows the change and asks.")
@click.option("--every", type=click.Choice(get_args(scheduling.Every)), help="Else: the cadence.")
@_by
@_dry
@_yes
def install(every: scheduling.Every | None, by: str | None, *, dry_run: bool, yes: bool) -> int:
    """Schedule sweeps."""
    cadence = wiring.settings()["session_memory.retention.cadence"]
    # Hooks miss what happens without them: one sweep a day all the same.
    often: scheduling.Every = every or ("weekly" if cadence == "weekly" else "daily")
    way = scheduling.means(by)
    return _change(way, way.install(often), "scheduled", dry_run=dry_run, yes=yes)


@command.command("uninstall", help="Take the timer away; shows the change and asks.")
@_dry
@_yes
def uninstall(*, dry_run: bool, yes: bool) -> int:
    """Take away whatever schedules sweeps."""
    ways = scheduling.installed()
    if not ways:
        tell(["no sweep is scheduled"])
    for way in ways:
        _change(way, way.uninstall(), "not scheduled any more", dry_run=dry_run, yes=yes)
    return 0


@command.command("status", help="Say whether sweeps are scheduled, and how.")
@options.as_json
def status(*, json: bool) -> int:
    """Print what is scheduled."""
    found = [(way.name, way.where() or "") for way in scheduling.installed()]
    if json:
        say(as_json([{"by": name, "where": where} for name, where in found]))
    elif found:
        tell([cut(f"  ✓ {name}  {clean(tilde(where))}", width()) for name, where in found])
    else:
        tell(["  ○ no sweep is scheduled", "    thence schedule install"])
    return 0


def _change(
    way: scheduling.Means, plan: scheduling.Plan, word: str, *, dry_run: bool, yes: bool
) -> int:
    if not plan.changes:
        tell([f"{way.name}: {word} already"])
        return 0
    show([(way.name, edit) for edit in plan.edits if edit.changes], word)
    if not dry_run:
        confirm(yes=yes, what="write this")
        way.carry_out(plan)
        tell([f"{way.name}: {word}"])
    return 0
