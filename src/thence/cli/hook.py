"""`thence hook`: let agents say when a session went on."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from thence import config
from thence.cli import config as own_settings
from thence.cli import hooking, options, wiring
from thence.cli.columns import DIM, Cell, Column, ago, present, table, tell, tilde
from thence.cli.screen import say, width
from thence.cli.terminal import as_json, clean
from thence.errors import ThenceError

if TYPE_CHECKING:
    from datetime import datetime

    from thence.format.records import JSON

OWN = "thence"
"""Whose file of settings our own is, where agents are named."""
SOON = 3.0
"""Seconds between the first nudge and the sweep that it starts: more of them come together."""
LATE_S = 120.0
"""Seconds after which a nudge that no sweep has taken shows that none was started."""

_NAMES = options.AgentName("hooks")
_agents = click.argument("agents", nargs=-1, type=_NAMES)
_via = click.option(
    "--via",
    type=click.Choice(["notify", "hooks"]),
    help="For agents with two mechanisms: the notify program (default), or hooks, which the agent"
    " asks you to trust.",
)


class NotAnswered(ThenceError):
    """There is nobody to say yes."""

    exit_code = 2


@click.group("hook", help="Install hooks: agents report new activity. It is imported at once.")
def command() -> None:
    """Group what is done about hooks."""


def names() -> list[str]:
    """Return the agents that can be told to call us."""
    return _NAMES.names()


def places_of(name: str) -> list[hooking.Place]:
    """Return where an agent of this machine is told whom to call, the usual place first."""
    agent = wiring.agents()[name]
    root = wiring.root_of(agent)
    return [hooking.place_in(root, name, file) for file in agent.profile.hooks]


def _chosen(name: str, via: str | None) -> hooking.Place:
    """Return the place for a form, else the usual one."""
    places = places_of(name)
    return next((place for place in places if place.file.form == via), places[0])


def _wanted(agents: Sequence[str]) -> list[str]:
    """Give the agents that are asked for, else those that are on this machine."""
    return list(agents or wiring.agents_here("hooks"))


# -- changing -------------------------------------------------------------------------------


@command.command(
    "install",
    help="Add our hooks to the agents' settings, so that new activity is imported at once."
    " Shows the change and asks.",
)
@_agents
@_via
@click.option("-n", "--dry-run", is_flag=True, help="Show the change; write nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@options.as_json
def install(
    agents: tuple[str, ...], via: str | None, *, dry_run: bool, yes: bool, json: bool
) -> int:
    """Install the hooks of agents."""
    names = _wanted(agents)
    if not names:
        tell(["no agent found on this machine", "  thence hook install AGENT creates its settings"])
        return 0
    home = wiring.home()
    edits = [(agent, hooking.install(_chosen(agent, via), home)) for agent in names]
    own, missing = _sweeps_on_hook(home)
    if own is not None:
        edits.append((OWN, own))
    code = _change(edits, dry_run=dry_run, yes=yes, json=json, keep=True)
    if missing and not json:
        tell([missing])
    elif not json and not dry_run:
        tell(["new activity is imported a few seconds after the agent reports it"])
    return code


def _sweeps_on_hook(home: Path) -> tuple[hooking.Edit | None, str | None]:
    """Plan that hooks start sweeps; where the user's settings say otherwise, what is missing."""
    path = home / config.FILE
    cadence, origin = wiring.settings().values[own_settings.CADENCE]
    if cadence == "on-hook":
        return None, None
    line = f'cadence = "on-hook" in [session_memory.retention] of {tilde(str(path))}'
    if origin != "default":
        return None, (
            f'your settings say cadence = "{cadence}": hooks do not start an import.'
            f" To change that, write {line}"
        )
    try:
        return own_settings.with_sweeps_on_hook(path, hooking.body_of(path)), None
    except hooking.Refused:
        return None, f"hooks do not start an import. To change that: {line}"


@command.command("uninstall", help="Remove our lines; the file is as it was before.")
@_agents
@click.option("-n", "--dry-run", is_flag=True, help="Show the change; write nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@options.as_json
def uninstall(agents: tuple[str, ...], *, dry_run: bool, yes: bool, json: bool) -> int:
    """Take the hooks of agents out."""
    edits = removals(agents or names())
    return _change(edits, dry_run=dry_run, yes=yes, json=json, keep=False)


def removals(agents: Sequence[str]) -> list[tuple[str, hooking.Edit]]:
    """Plan to take our lines out, wherever they are."""
    home = wiring.home()
    out = []
    for agent in agents:
        edits = [hooking.uninstall(place, home) for place in places_of(agent)]
        out += [(agent, edit) for edit in edits if edit.changes] or [(agent, edits[0])]
    if not any(_calls_us(agent) for agent in names() if agent not in agents):
        path = home / config.FILE
        own = own_settings.without_sweeps_on_hook(path, hooking.body_of(path))
        out += [(OWN, own)] if own.changes else []
    return out


def _calls_us(agent: str) -> bool:
    """Whether an agent has our hook, or settings of which nobody can say."""
    try:
        return status_of(agent)["installed"] is True
    except hooking.Refused:
        return True


def _change(
    edits: list[tuple[str, hooking.Edit]], *, dry_run: bool, yes: bool, json: bool, keep: bool
) -> int:
    due = [(agent, edit) for agent, edit in edits if edit.changes]
    if not json:
        show(edits, "installed" if keep else "not installed")
    if due and not dry_run:
        confirm(yes=yes, json=json, what="write this" if len(due) == 1 else "write these")
        apply(due, keep=keep)
    if json:
        say(
            as_json(
                [_told(agent, edit, done=edit.changes and not dry_run) for agent, edit in edits]
            )
        )
    elif due and not dry_run:
        word = "installed" if keep else "removed"
        if names := [agent for agent, _ in due if agent != OWN]:
            tell([f"{word}: {', '.join(names)}"])
    return 0


def apply(edits: Sequence[tuple[str, hooking.Edit]], *, keep: bool) -> None:
    """Write changes of settings."""
    if keep:
        config.make_private(wiring.home() / "queue")
    for agent, edit in edits:
        hooking.carry_out(edit, keep=keep and agent != OWN)
        if edit.after is None and _is_own_file(agent, edit.path):
            with contextlib.suppress(OSError):
                edit.path.parent.rmdir()  # a folder that held our file only


def _is_own_file(agent: str, path: Path) -> bool:
    """Return whether a file, and perhaps its folder, is there for our lines only."""
    places = places_of(agent) if agent != OWN else []
    return any(place.path == path and place.file.is_own_file for place in places)


def show(edits: Sequence[tuple[str, hooking.Edit]], already: str) -> None:
    """Show what would change, as a diff."""
    for agent, edit in edits:
        if not edit.changes:
            tell([f"{agent}: {already} already, no change in {tilde(str(edit.path))}"])
            continue
        colours = {"+": "green", "-": "red", "@": "cyan"}
        lines = map(clean, edit.diff())
        tell((Cell(line, colours.get(line[:1])).shown(line) for line in lines), pager=False)


def confirm(*, yes: bool, what: str, json: bool = False) -> None:
    """Ask, unless that was answered before; a program is not asked."""
    if yes:
        return
    if json or not sys.stdin.isatty():
        raise NotAnswered(
            "nothing was changed: there is no terminal to ask on", hint="add --yes to confirm"
        )
    click.confirm(f"{what}?", default=True, abort=True)


def _told(agent: str, edit: hooking.Edit, *, done: bool) -> JSON:
    return {
        "agent": agent,
        "path": str(edit.path),
        "changes": edit.changes,
        "done": done,
        "diff": "\n".join(edit.diff()),
    }


# -- looking --------------------------------------------------------------------------------


@command.command("status", help="Show which agents have hooks, and when they last reported.")
@_agents
@options.as_json
@options.utc
def status(agents: tuple[str, ...], *, json: bool, utc: bool) -> int:
    """Print how hooks stand."""
    found = [_status_or_error(agent) for agent in _wanted(agents)]
    if json:
        say(as_json(found))
    else:
        now = present(utc=utc)
        rows = [_cells(one, now) for one in found if "error" not in one]
        tell(table((Column(), Column(), Column(), Column(slack=True)), rows, width()))
        tell([clean(f"  ▲ {one['agent']}  {one['error']}") for one in found if "error" in one])
    return 1 if any("error" in one for one in found) else 0


def _status_or_error(agent: str) -> dict[str, JSON]:
    """Return how an agent's hook stands, or why nobody can say: one does not hide the others."""
    try:
        return status_of(agent)
    except hooking.Refused as error:
        return {"agent": agent, "error": error.message}


def status_of(agent: str) -> dict[str, JSON]:
    """Give how an agent's hook stands, and when it was last heard."""
    home = wiring.home()
    states = [(place, hooking.state(place, home)) for place in places_of(agent)]
    place, state = next((one for one in states if one[1].installed), states[0])
    seen = last_nudge(home, agent)
    waiting = _waiting(home, agent)
    return {
        "agent": agent,
        "path": str(place.path),
        "installed": state.installed,
        "missing": list(state.missing),
        "elsewhere": state.elsewhere,
        "off": state.off,
        "last_nudge": seen.isoformat() if seen is not None else None,
        "heard": len(waiting),
        "stored": _stored(agent, waiting),
        "late": any(time.time() - at > LATE_S for at in waiting.values()),
        "cadence": wiring.settings()[own_settings.CADENCE],
        "cadence_origin": wiring.settings().values[own_settings.CADENCE].origin,
    }


def _waiting(home: Path, agent: str) -> dict[str, float]:
    """Return the sessions that no sweep has read since they were nudged about, with the times."""
    from thence.memory import nudges

    return {nudge.session: at for nudge, at in nudges.waiting(home) if nudge.agent == agent}


def _stored(agent: str, sessions: Collection[str]) -> int | None:
    """Count which of these sessions are stored; None where the store cannot be read."""
    if not sessions or not wiring.has_store():
        return 0
    from thence.memory.store import Filter

    uids = tuple(f"{agent}:{session}" for session in sessions)
    try:
        with wiring.store() as store:
            return sum(1 for _ in store.sessions(Filter(uids=uids)))
    except (ThenceError, OSError):
        return None


def told_of(one: dict[str, JSON], now: datetime) -> tuple[str, str, str | None]:
    """Say in words how a hook stands: mark, words, colour."""
    from thence.cli.columns import when

    seen = when(one["last_nudge"])
    alive = f", last report {_since(seen, now)}" if seen is not None else ", no report yet"
    if not one["installed"]:
        return "○", "not installed", None
    for name, words in (
        ("off", "installed, but hooks are disabled in the agent"),
        ("elsewhere", "installed for another thence: install it again"),
        ("missing", "partly installed: install it again"),
    ):
        if one[name]:
            return "▲", words, "red"
    if not one["heard"]:
        return "✓", f"installed{alive}", "green"
    stored = "unknown" if one["stored"] is None else one["stored"]
    words = f"installed; reported {one['heard']}, imported {stored}"
    if one["cadence"] != "on-hook":
        chosen = one["cadence_origin"] != "default"
        words += ": hooks do not start an import"
        return ("✓", words, "green") if chosen else ("▲", words, "red")
    return ("▲", f"{words}: the import is late", "red") if one["late"] else ("✓", words, "green")


def fix_of(one: dict[str, JSON]) -> str:
    """Return the command that mends what `told_of` says."""
    is_late = one["installed"] and one["late"] and one["cadence"] == "on-hook"
    wrong = any(one[name] for name in ("off", "elsewhere", "missing"))
    return "thence sweep" if is_late and not wrong else f"thence hook install {one['agent']}"


def _since(seen: datetime, now: datetime) -> str:
    told = ago(seen, now)
    return "just now" if told == "now" else f"{told} ago" if told[0].isdigit() else told


def _cells(one: dict[str, JSON], now: datetime) -> list[Cell]:
    mark, words, colour = told_of(one, now)
    return [Cell(mark, colour), Cell(one["agent"]), Cell(words), Cell(tilde(one["path"]), DIM)]


def last_nudge(home: Path, agent: str) -> datetime | None:
    """Give when an agent's hook last left a nudge, taken or not."""
    from datetime import UTC, datetime

    from thence.memory import nudges

    times: list[float] = []
    names = (f"{agent}-", f"{nudges.TAKEN}{agent}-")
    folders = ((home / nudges.FOLDER, name) for name in names)
    for folder, start in (*folders, (home / nudges.HEARD, agent)):
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            times += [one.stat().st_mtime for one in entries if one.name.startswith(start)]
    return datetime.fromtimestamp(max(times), UTC) if times else None


# -- the sweep that a nudge starts ----------------------------------------------------------


def sweep_soon() -> None:
    """Sweep once, a little later; what comes meanwhile is swept with it."""
    from thence.cli import main

    time.sleep(SOON)
    with contextlib.suppress(OSError):
        os.nice(10)
    # From here on a nudge starts a new sweep: this one may already have passed its session.
    try:
        (wiring.home() / "sweep.due").unlink()
    except FileNotFoundError:  # somebody has removed the home meanwhile: it is not made again
        return
    sys.argv = ["thence", "sweep", "--json"]
    main()
