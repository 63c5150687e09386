"""`thence hook`: let agents say when a session went on, and ask for the brief when one begins."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from thence.cli import hook_install, hook_settings, launcher, options, wiring
from thence.cli.columns import DIM, TextCell, agent_label, present, table, tell, tilde
from thence.cli.file_changes import Edit, EditRefused, change
from thence.cli.screen import say, width
from thence.cli.terminal import as_json, clean

if TYPE_CHECKING:
    from datetime import datetime

    from thence.format.records import JSON

SWEEP_DELAY_S = 3.0
"""Seconds between the first nudge and the sweep that it starts: more of them come together."""

_agents = click.argument("agents", nargs=-1, type=hook_install.NAMES)
_via = click.option(
    "--via",
    type=click.Choice(["notify", "hooks"]),
    help="For agents with two mechanisms: the notify program (default), or hooks, which the agent"
    " asks you to trust.",
)


@click.group("hook", help="Install hooks: agents report new activity. It is imported at once.")
def command() -> None:
    """Group what is done about hooks."""


def _wanted_agents(agents: Sequence[str]) -> list[str]:
    """Return the agents that are asked for, else those that are on this machine."""
    return list(agents or wiring.agents_here("hooks"))


# -- changing -------------------------------------------------------------------------------


@command.command(
    "install",
    help="Add hooks to the agents' settings: new activity is imported at once. Shows the change"
    " and asks.",
    short_help="Add hooks; shows the change and asks.",
)
@_agents
@_via
@click.option(
    "--brief",
    is_flag=True,
    help="Also give each new session the brief of its repository, as thence brief shows it; the"
    " setting session_memory.brief.skip names projects without one.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Show the change; write nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@options.as_json
def install(
    agents: tuple[str, ...], via: str | None, *, brief: bool, dry_run: bool, yes: bool, json: bool
) -> int:
    """Install the hooks of agents."""
    names = _wanted_agents(agents)
    if not names:
        tell(["no agent found on this machine", "  thence hook install AGENT creates its settings"])
        return 0
    edits = hook_install.installs(names, via, brief=brief)
    own, missing = hook_install.sweeps_on_hook(wiring.home())
    if own is not None:
        edits.append((hook_install.OWN, own))
    code = _change(edits, dry_run=dry_run, yes=yes, json=json, keep=True)
    if not json:
        tell(hook_install.consents(names))
    if brief and not json:
        tell(hook_install.without_brief(names))
    if missing and not json:
        tell([missing])
    elif not json and not dry_run:
        tell(["new activity is imported a few seconds after the agent reports it"])
    return code


@command.command("uninstall", help="Remove the hooks; the rest of the file stays unchanged.")
@_agents
@click.option("--brief", is_flag=True, help="Remove only the brief.")
@click.option("-n", "--dry-run", is_flag=True, help="Show the change; write nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@options.as_json
def uninstall(agents: tuple[str, ...], *, brief: bool, dry_run: bool, yes: bool, json: bool) -> int:
    """Take the hooks of agents out."""
    wanted = [
        name
        for name in agents or hook_install.NAMES.names()
        if not brief or hook_install.brief_place(name)
    ]
    edits = hook_install.removals(wanted, hook_settings.BRIEF if brief else hook_settings.ROLES)
    return _change(edits, dry_run=dry_run, yes=yes, json=json, keep=False)


def _change(
    edits: list[tuple[str, Edit]], *, dry_run: bool, yes: bool, json: bool, keep: bool
) -> int:
    done = change(
        edits,
        lambda due: hook_install.apply(due, keep=keep),
        already="installed" if keep else "not installed",
        dry_run=dry_run,
        yes=yes,
        json=json,
    )
    if not done and keep and not dry_run:
        launcher.ensure(wiring.home())
    names = [name for name in done if name != hook_install.OWN]
    if names and not json:
        tell([f"{'installed' if keep else 'removed'}: {', '.join(names)}"])
    return 0


# -- looking --------------------------------------------------------------------------------


@command.command("status", help="Show which agents have hooks, and when they last reported.")
@_agents
@options.as_json
@options.utc
def status(agents: tuple[str, ...], *, json: bool, utc: bool) -> int:
    """Print how hooks stand."""
    statuses = [_status_or_error(agent) for agent in _wanted_agents(agents)]
    if json:
        say(as_json(statuses))
    else:
        now = present(utc=utc)
        rows = [_cells(entry, now) for entry in statuses if "error" not in entry]
        tell(table("<<<~", rows, width()))
        tell(
            [
                clean(f"  ▲ {agent_label(entry['agent'])}  {entry['error']}")
                for entry in statuses
                if "error" in entry
            ]
        )
        if any(not entry.get("installed", True) for entry in statuses):
            tell(["", "  thence hook install    shows each change first, then asks"])
    return 1 if any("error" in entry for entry in statuses) else 0


def _status_or_error(agent: str) -> dict[str, JSON]:
    """Return how an agent's hook stands, or why nobody can say: one does not hide the others."""
    try:
        return hook_install.status_of(agent)
    except EditRefused as error:
        return {"agent": agent, "error": error.message}


def _cells(status: dict[str, JSON], now: datetime) -> list[TextCell]:
    mark, words, colour = hook_install.describe_status(status, now)
    return [
        TextCell(mark, colour),
        TextCell(agent_label(status["agent"])),
        TextCell(words),
        TextCell(tilde(status["path"]), DIM),
    ]


# -- the sweep that a nudge starts ----------------------------------------------------------


def sweep_soon() -> None:
    """Sweep once, a little later; what comes meanwhile is swept with it."""
    from thence.cli import main

    time.sleep(SWEEP_DELAY_S)
    with contextlib.suppress(OSError):  # a lower priority is a courtesy, not a need
        os.nice(10)
    # From here on a nudge starts a new sweep: this one may already have passed its session.
    try:
        (wiring.home() / "sweep.due").unlink()
    except FileNotFoundError:  # somebody has removed the home meanwhile: it is not made again
        return
    sys.argv = ["thence", "sweep", "--json"]
    main()
