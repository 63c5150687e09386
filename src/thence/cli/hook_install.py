"""Our hooks in the agents of this machine: where they go, how they stand, how they come and go."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from thence import config
from thence.cli import hook_settings, launcher, options, settings_file, wiring
from thence.cli.columns import since, tilde, when
from thence.cli.file_changes import Edit, EditRefused, body_of, carry_out
from thence.errors import ThenceError

if TYPE_CHECKING:
    from thence.format.records import JSON

OWN = "thence"
"""Whose file of settings our own is, where agents are named."""
LATE_S = 120.0
"""Seconds after which a nudge that no sweep has taken shows that none was started."""
NAMES = options.AgentName("hooks")


def places_of(name: str) -> list[hook_settings.HookPlace]:
    """Return where an agent of this machine is told whom to call, the usual place first."""
    agent = wiring.agents()[name]
    return [
        hook_settings.place_in(wiring.settings_folder(agent, file), name, file)
        for file in agent.profile.hooks
    ]


def brief_place(name: str) -> hook_settings.HookPlace | None:
    """Return where an agent is told to ask for the brief; None for one that cannot be."""
    places = [place for place in places_of(name) if place.file.brief is not None]
    return places[0]._replace(roles=hook_settings.BRIEF) if places else None


def without_brief(names: Sequence[str]) -> list[str]:
    """Say in words which agents get no brief, and which get none after a compaction."""
    lines = []
    for name in names:
        place = brief_place(name)
        label = wiring.agents()[name].label
        if place is None or place.file.brief is None:
            lines.append(f"{label} passes nothing that a hook prints to the model: no brief there")
        elif not place.file.brief.after_compaction:
            lines.append(f"{label} gets the brief at the start, but not after a compaction")
        elif place.file.form == "hooks" and len(places_of(name)) > 1:
            lines.append(f"{label} asks you to trust the hook before it runs")
    return lines


def consents(names: Sequence[str]) -> list[str]:
    """Return what the user has to do before agents run our command."""
    files = (place.file for name in names for place in places_of(name))
    return [file.needs_consent for file in files if file.needs_consent]


# -- changing -------------------------------------------------------------------------------


def installs(
    agents: Sequence[str], via: str | None = None, *, capture: bool = True, brief: bool = False
) -> list[tuple[str, Edit]]:
    """Plan how our lines come into the settings of agents; one change per file."""
    home = wiring.home()
    out: list[tuple[str, Edit]] = []
    for agent in agents:
        wanted = _choose_places(agent, via) if capture else []
        asks = brief_place(agent) if brief else None
        if asks is not None:
            if wanted and wanted[0].path == asks.path:
                wanted = [asks._replace(roles=hook_settings.CAPTURE | hook_settings.BRIEF)]
            else:
                wanted.append(asks)
        out += [(agent, hook_settings.install(place, home)) for place in wanted]
    return out


def _choose_places(name: str, via: str | None) -> list[hook_settings.HookPlace]:
    """Return the places of a form, else of the usual one."""
    places = places_of(name)
    usual = places[0].file.form
    chosen = [place for place in places if place.file.form == via]
    return chosen or [place for place in places if place.file.form == usual]


def sweeps_on_hook(home: Path) -> tuple[Edit | None, str | None]:
    """Plan that hooks start sweeps; where the user's settings say otherwise, what is missing."""
    path = home / config.FILE
    cadence, origin = wiring.settings().values[settings_file.CADENCE]
    if cadence == "on-hook":
        return None, None
    line = f'cadence = "on-hook" in [session_memory.retention] of {tilde(str(path))}'
    if origin != "default":
        return None, (
            f'your settings say cadence = "{cadence}": hooks do not start an import.'
            f" To change that, write {line}"
        )
    try:
        return settings_file.with_sweeps_on_hook(path, body_of(path)), None
    except EditRefused:
        return None, f"hooks do not start an import. To change that: {line}"


def removals(
    agents: Sequence[str], roles: Collection[hook_settings.Role] = hook_settings.ROLES
) -> list[tuple[str, Edit]]:
    """Plan to take our lines out, wherever they are."""
    home = wiring.home()
    out = []
    for agent in agents:
        places = [place._replace(roles=frozenset(roles)) for place in places_of(agent)]
        usable = [place for place in places if not place.is_notify or "capture" in roles]
        edits = [hook_settings.uninstall(place, home) for place in usable]
        out += [(agent, edit) for edit in edits if edit.changes] or [(agent, edits[0])]
    is_last = not any(_calls_us(agent) for agent in NAMES.names() if agent not in agents)
    if "capture" in roles and is_last:
        path = home / config.FILE
        own = settings_file.without_sweeps_on_hook(path, body_of(path))
        out += [(OWN, own)] if own.changes else []
    return out


def _calls_us(agent: str) -> bool:
    """Whether an agent has our hook, or settings of which nobody can say."""
    try:
        return status_of(agent)["installed"] is True
    except EditRefused:
        # Unreadable: better to say yes than to take out what others rely on.
        return True


def apply(edits: Sequence[tuple[str, Edit]], *, keep: bool) -> None:
    """Write changes of settings, and the launcher that they name."""
    if keep:
        config.make_private(wiring.home() / "queue")
        launcher.write(wiring.home())
    for agent, edit in edits:
        keeps = agent != OWN and (keep or hook_settings.has_ours(edit.after))
        carry_out(edit, keep=keeps, was_ours=hook_settings.has_ours(edit.before))
        if edit.after is None and _is_own_file(agent, edit.path):
            with contextlib.suppress(OSError):
                edit.path.parent.rmdir()  # a folder that held our file only


def _is_own_file(agent: str, path: Path) -> bool:
    """Return whether a file, and perhaps its folder, is there for our lines only."""
    places = places_of(agent) if agent != OWN else []
    return any(place.path == path and place.file.is_own_file for place in places)


# -- looking --------------------------------------------------------------------------------


def status_of(agent: str) -> dict[str, JSON]:
    """Return how an agent's hook stands, and when it was last heard."""
    from thence.memory import nudges

    home = wiring.home()
    states = [(place, hook_settings.state(place, home)) for place in places_of(agent)]
    place, state = next((pair for pair in states if pair[1].installed), states[0])
    same_form = [pair for pair in states if pair[0].file.form == place.file.form]
    absent = [event for at, there in same_form if not there.installed for event in at.events]
    asks = brief_place(agent)
    brief = hook_settings.state(asks, home) if asks is not None else None
    seen = nudges.last_heard(home).get(agent)
    waiting = _waiting_sessions(home, agent)
    return {
        "agent": agent,
        "path": str(place.path),
        "installed": state.installed,
        "missing": [*state.missing, *(absent if state.installed else ())],
        "elsewhere": any(there.elsewhere for _, there in same_form),
        "off": state.off,
        "gone": state.gone or (brief.gone if brief is not None else "") or None,
        "brief": None if brief is None else brief.installed,
        "last_nudge": seen.isoformat() if seen is not None else None,
        "heard": len(waiting),
        "stored": _count_stored(agent, waiting),
        "late": any(time.time() - at > LATE_S for at in waiting.values()),
        "cadence": wiring.settings()[settings_file.CADENCE],
        "cadence_origin": wiring.settings().values[settings_file.CADENCE].origin,
    }


def _waiting_sessions(home: Path, agent: str) -> dict[str, float]:
    """Return the sessions that no sweep has read since they were nudged about, with the times."""
    from thence.memory import nudges

    prefix = wiring.agents()[agent].profile.id_prefix
    waiting = nudges.waiting_nudges(home)
    return {n.session.removeprefix(prefix): at for n, at in waiting if n.agent == agent}


def _count_stored(agent: str, sessions: Collection[str]) -> int | None:
    """Count which of these sessions are stored; None where the store cannot be read."""
    if not sessions or not wiring.has_store():
        return 0
    from thence.memory.store import Filter

    uids = tuple(f"{agent}:{session}" for session in sessions)
    try:
        with wiring.store() as store:
            return sum(1 for _ in store.sessions(Filter(uids=uids)))
    except (ThenceError, OSError):  # no answer is better than none of the status
        return None


def describe_status(status: dict[str, JSON], now: datetime) -> tuple[str, str, str | None]:
    """Say in words how a hook stands: mark, words, colour."""
    seen = when(status["last_nudge"])
    alive = f", last report {since(seen, now)}" if seen is not None else ", no report yet"
    if status["gone"]:
        return "▲", f"the hook starts a program that is gone: {tilde(status['gone'])}", "red"
    if not status["installed"]:
        words = "installed for the brief only" if status["brief"] else "not installed"
        return "○", words, None
    for name, words in (
        ("off", "installed, but hooks are disabled in the agent"),
        ("elsewhere", "installed for another thence: install it again"),
        ("missing", "partly installed: install it again"),
    ):
        if status[name]:
            return "▲", words, "red"
    if not status["heard"]:
        return "✓", f"installed{', brief too' if status['brief'] else ''}{alive}", "green"
    stored = "unknown" if status["stored"] is None else status["stored"]
    words = f"installed; reported {status['heard']}, imported {stored}"
    if status["cadence"] != "on-hook":
        chosen = status["cadence_origin"] != "default"
        words += ": hooks do not start an import"
        return ("✓", words, "green") if chosen else ("▲", words, "red")
    return ("▲", f"{words}: the import is late", "red") if status["late"] else ("✓", words, "green")


def fix_of(status: dict[str, JSON]) -> str:
    """Return the command that mends what `describe_status` says."""
    is_late = status["installed"] and status["late"] and status["cadence"] == "on-hook"
    wrong = any(status[name] for name in ("gone", "off", "elsewhere", "missing"))
    brief = " --brief" if status["brief"] else ""
    return (
        "thence sweep" if is_late and not wrong else f"thence hook install {status['agent']}{brief}"
    )
