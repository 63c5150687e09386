"""The parts that `thence setup` installs, each with how it comes, goes and stands.

What setup itself has installed is remembered in a file of the home, so that removing it undoes
exactly that: a hook that the user installed before stays.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

from thence import config
from thence.cli import (
    hook_install,
    hook_settings,
    launcher,
    mcp_settings,
    scheduling,
    shells,
    wiring,
)
from thence.cli.file_changes import Edit, EditRefused, body_of, carry_out, write_file
from thence.cli.scheduling import Way
from thence.errors import ThenceError

FILE: Final = "setup.json"
Name = Literal["hooks", "brief", "mcp", "sweep", "service", "completion"]
NAMES: Final[tuple[Name, ...]] = get_args(Name)
NO_HOOKS: Final = "no agent is here whose hooks thence knows"


class PartChange(NamedTuple):
    """Changes of files, by whose they are, and how they are made."""

    changes: list[tuple[str, Edit]]
    carry_out: Callable[[], None]

    @property
    def due(self) -> list[tuple[str, Edit]]:
        """Those that change anything."""
        return [(whose, change) for whose, change in self.changes if change.changes]


class SetupPart(NamedTuple):
    """One part of a setup."""

    name: Name
    purpose: str
    """What it is good for, as a command to thence."""
    whose: Callable[[], list[str]]
    """Names agents, a way to run something, or a shell; refuses where there is none."""
    install: Callable[[Sequence[str]], PartChange]
    remove: Callable[[Sequence[str]], PartChange]
    problem: Callable[[str], str]
    """Says what is wrong with an installed part; empty if nothing is."""


def _some(names: list[str], missing: str) -> list[str]:
    if not names:
        raise EditRefused(missing)
    return names


# -- hooks and brief ------------------------------------------------------------------------


def _hooks(agents: Sequence[str]) -> PartChange:
    edits = hook_install.installs(agents)
    own, _ = hook_install.sweeps_on_hook(wiring.home())
    if own is not None:
        edits.append((hook_install.OWN, own))
    return _plan_edits(edits, lambda due: hook_install.apply(due, keep=True))


def _brief(agents: Sequence[str]) -> PartChange:
    edits = hook_install.installs(agents, capture=False, brief=True)
    return _plan_edits(edits, lambda due: hook_install.apply(due, keep=True))


def _without(role: hook_settings.Role) -> Callable[[Sequence[str]], PartChange]:
    def remove(agents: Sequence[str]) -> PartChange:
        known = [name for name in agents if name in hook_install.NAMES.names()]
        edits = hook_install.removals(known, {role}) if known else []
        return _plan_edits(edits, lambda due: hook_install.apply(due, keep=False))

    return remove


def _plan_edits(
    edits: Sequence[tuple[str, Edit]], write: Callable[[Sequence[tuple[str, Edit]]], None]
) -> PartChange:
    due = [(whose, edit) for whose, edit in edits if edit.changes]
    return PartChange([*edits], lambda: write(due))


def _hook_problem(role: hook_settings.Role) -> Callable[[str], str]:
    def problem(agent: str) -> str:
        if agent not in hook_install.NAMES.names():
            return "is of an agent that is not known"
        usable = [p for p in hook_install.places_of(agent) if not p.is_notify or role == "capture"]
        places = [place._replace(roles=frozenset({role})) for place in usable]
        states = [hook_settings.state(place, wiring.home()) for place in places]
        state = next(
            (state for state in states if state.installed), hook_settings.HookState(installed=False)
        )
        if state.gone:
            return f"starts a program that is gone: {state.gone}"
        return "" if state.installed and not state.elsewhere else "is not there any more"

    return problem


# -- the server, for agents that ask --------------------------------------------------------


def _servers(agents: Sequence[str]) -> PartChange:
    entry = mcp_settings.own_entry()
    places = [(name, mcp_settings.place_of(name)) for name in agents]
    return _plan_servers([(name, mcp_settings.install(place, entry)) for name, place in places])


def _without_servers(agents: Sequence[str]) -> PartChange:
    known = [name for name in agents if name in mcp_settings.NAMES.names()]
    return _plan_servers(mcp_settings.removals(known))


def _plan_servers(edits: Sequence[tuple[str, Edit]]) -> PartChange:
    # A copy of the file beside it is of the hooks in it, if there is one: it stays.
    return _plan_edits(edits, lambda due: _write_edits(due, keep=None))


def _server_problem(agent: str) -> str:
    if agent not in mcp_settings.NAMES.names():
        return "is of an agent that is not known"
    state = mcp_settings.state(mcp_settings.place_of(agent), mcp_settings.own_entry())
    return {"none": "is not there any more", "elsewhere": "starts another program"}.get(state, "")


# -- what runs by itself --------------------------------------------------------------------


def _sweeps(_: Sequence[str]) -> PartChange:
    way = scheduling.means()
    plan = way.install("daily")
    return _plan_way(way, plan)


def _plan_way(way: Way, plan: scheduling.SchedulePlan) -> PartChange:
    return PartChange([(way.name, edit) for edit in plan.edits], lambda: way.carry_out(plan))


def _service(_: Sequence[str]) -> PartChange:
    way = scheduling.service()
    return _plan_way(way, way.start())


def _timers() -> Sequence[scheduling.Means]:
    return scheduling.active_means()


def _viewers() -> Sequence[scheduling.Service]:
    return scheduling.active_services()


def _without_ways(installed: Callable[[], Sequence[Way]]) -> Callable[[Sequence[str]], PartChange]:
    def remove(names: Sequence[str]) -> PartChange:
        ways = [_plan_way(way, way.uninstall()) for way in installed() if way.name in names]

        def carry_out() -> None:
            for way in ways:
                way.carry_out()

        return PartChange([change for way in ways for change in way.changes], carry_out)

    return remove


def _way_problem(installed: Callable[[], Sequence[Way]]) -> Callable[[str], str]:
    def problem(name: str) -> str:
        is_there = any(way.name == name for way in installed())
        return "" if is_there else "is not there any more"

    return problem


# -- completion -----------------------------------------------------------------------------


def _completion(names: Sequence[str]) -> PartChange:
    edits = [(name, edit) for name in names for edit in shells.install(name, wiring.home())]
    return _plan_edits(edits, lambda due: _write_edits(due, keep=True))


def without_completion(names: Sequence[str]) -> PartChange:
    """Plan how completion goes from shells."""
    known = [name for name in names if name in shells.SHELLS]
    edits = [(name, edit) for name in known for edit in shells.uninstall(name, wiring.home())]
    return _plan_edits(edits, lambda due: _write_edits(due, keep=False))


def _write_edits(edits: Iterable[tuple[str, Edit]], *, keep: bool | None) -> None:
    for _, edit in edits:
        carry_out(edit, keep=keep)


def _completion_problem(shell: str) -> str:
    is_there = shell in shells.SHELLS and shells.uninstall(shell, wiring.home())
    return "" if is_there else "is not there any more"


PARTS: Final[tuple[SetupPart, ...]] = (
    SetupPart(
        "hooks",
        "Install hooks, so that sessions are stored as they go on",
        lambda: _some(wiring.agents_here("hooks"), NO_HOOKS),
        _hooks,
        _without("capture"),
        _hook_problem("capture"),
    ),
    SetupPart(
        "brief",
        "Tell each new session what the last one in its repository left (thence brief)",
        lambda: _some(
            [name for name in wiring.agents_here("hooks") if hook_install.brief_place(name)],
            "no agent is here that takes text from a hook",
        ),
        _brief,
        _without("brief"),
        _hook_problem("brief"),
    ),
    SetupPart(
        "mcp",
        "Let agents search past sessions (MCP)",
        lambda: _some(mcp_settings.present(), "no agent is here whose MCP settings thence knows"),
        _servers,
        _without_servers,
        _server_problem,
    ),
    SetupPart(
        "sweep",
        "Import once a day what hooks missed",
        lambda: [scheduling.means().name],
        _sweeps,
        _without_ways(_timers),
        _way_problem(_timers),
    ),
    SetupPart(
        "service",
        "Run the viewer from login on",
        lambda: [scheduling.service().name],
        _service,
        _without_ways(_viewers),
        _way_problem(_viewers),
    ),
    SetupPart(
        "completion",
        "Complete commands and ids in your shell",
        lambda: _some(
            [shell] if (shell := shells.own_shell()) else [], "your shell is none that thence knows"
        ),
        _completion,
        without_completion,
        _completion_problem,
    ),
)


# -- what was installed ---------------------------------------------------------------------


def read_record(home: Path) -> dict[Name, list[str]]:
    """Return what setup has installed: whose, by part. A file that is not ours says nothing."""
    try:
        record = json.loads(body_of(home / FILE) or b"{}")
    except (ValueError, RecursionError, ThenceError):
        # Then nothing counts as installed by us, so nothing is removed.
        return {}
    installed: Any = record.get("installed") if isinstance(record, dict) else None
    if not isinstance(installed, dict):
        return {}
    out: dict[Name, list[str]] = {}
    for name in NAMES:
        whose = installed.get(name)
        if isinstance(whose, list) and whose:
            out[name] = [owner for owner in whose if isinstance(owner, str)]
    return out


def record(home: Path, installed: dict[Name, list[str]]) -> None:
    """Write down what setup has installed; nothing is written down of nothing."""
    path = home / FILE
    if not any(installed.values()):
        path.unlink(missing_ok=True)
        return
    config.make_private(home)
    body = json.dumps({"version": 1, "installed": installed}, indent=2) + "\n"
    write_file(path, body.encode(), 0o600)


def is_launcher_used() -> bool:
    """Return whether anything on this machine names the launcher of this home."""
    start = str(launcher.path_in(wiring.home()))
    hooked = hook_install.NAMES.names()
    paths = [place.path for name in hooked for place in hook_install.places_of(name)]
    paths += [mcp_settings.place_of(name).path for name in mcp_settings.NAMES.names()]
    ways: list[Way] = [*scheduling.active_means(), *scheduling.active_services()]
    bodies = [_body(path) for path in dict.fromkeys(paths)]
    return bool(ways) or any(start in body for body in bodies)


def _body(path: Path) -> str:
    try:
        return (body_of(path) or b"").decode("utf-8", "replace")
    except EditRefused:
        return ""
