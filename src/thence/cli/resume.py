"""`thence resume`: go on with a session, with its own agent, in its own folder."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from thence.cli import options, processes, wiring
from thence.cli.columns import (
    DIM,
    Cell,
    Column,
    ago,
    present,
    project,
    row_cost,
    short_ids,
    table,
    tell,
    tilde,
    titled,
    when,
)
from thence.cli.completion import ids
from thence.cli.ls import TITLE
from thence.cli.terminal import as_json, clean, columns, cut, padded, say, several, width
from thence.errors import NotReadable, SessionNotFound, ThenceError
from thence.format.figures import argument

if TYPE_CHECKING:
    from datetime import datetime

    from thence.agents import Adapter
    from thence.cli.picker import Choice
    from thence.format.records import JSON
    from thence.memory.store import SessionRow, Store

OURS = "thence"
"""The agent whose sessions a program that embeds us resumes."""
LISTED = 20
PICKED_FROM = 500
PLACE = 12
"""Columns of the project in the picker: with them a title has 30 at 80 columns."""


class Way(NamedTuple):
    """How a session is gone on with."""

    row: SessionRow
    argv: list[str]
    env: dict[str, str]
    cwd: str | None
    is_handed: bool = False
    """Another agent goes on with a copy of it."""

    @property
    def line(self) -> str:
        """Give it as something to type."""
        env = "".join(f"{name}={shlex.quote(value)} " for name, value in self.env.items())
        place = f"cd {shlex.quote(self.cwd)} && " if self.cwd else ""
        return f"{place}{env}{shlex.join(self.argv)}"

    def told(self) -> JSON:
        """Give it for programs."""
        session = self.row.session
        return {
            "session_uid": session.session_uid,
            "agent": session.flavor,
            "title": self.row.title,
            "ended_at": session.ended_at,
            "cwd": self.cwd,
            "env": self.env,
            "argv": self.argv,
            "command": self.line,
            "machine": self.row.machine,
            "obstacle": None if self.is_handed else _obstacle(self.row),
            "not_restored": [_not_restored(session.flavor)],
        }


@click.command(
    "resume",
    help="Resume a session in its agent, or in another one. Without ID: choose.",
    epilog="A session that you choose on a terminal is resumed at once. Otherwise the command is"
    " printed, unless --exec runs it.",
)
@click.argument("wanted", metavar="[ID]", required=False, shell_complete=ids)
@click.option("--last", is_flag=True, help="Resume the most recent session.")
@click.option("--exec", "run", is_flag=True, help="Run the command instead of printing it.")
@click.option(
    "--with",
    "other",
    type=options.AgentName("handoff"),
    help="Continue in this agent, with a copy of the history: see thence handoff.",
)
@options.yes
@options.agent
@options.project
@options.as_json
def command(
    wanted: str | None,
    agent: str | None,
    project: str | None,
    other: str | None,
    *,
    last: bool,
    run: bool,
    yes: bool,
    json: bool,
) -> int:
    """Print how a session is gone on with, or do it."""
    if last and wanted is not None:
        raise click.UsageError("give an ID or --last, not both")
    known = wiring.adapters()
    with wiring.store() as store:
        _refresh_folders(store)
        if wanted is None:
            rows = _rows(store, agent, project)
            if json and not last:
                say(as_json([way_of(row, known).told() for row in rows[:LISTED]]))
                return 0
            row = rows[0] if last else _chosen(rows)
            if row is None:
                return 0
            run = run or (not last and sys.stdout.isatty())
        else:
            from thence.memory.recall import with_lineage

            row = with_lineage(store, [wiring.session(store, wanted)], wiring.labels())[0]
    obstacle = _obstacle(row)
    if other is None and obstacle is not None and not json:
        other = _offered(row, obstacle)
        yes = yes or other is not None
    if other is not None and (obstacle is not None or other != row.session.flavor):
        way = _handed(row, other, run=run, yes=yes or json)
    else:
        way = way_of(row, known)
    if json:
        say(as_json(way.told()))
        return 0
    _check(way, run=run)
    for note in _notes(way):
        click.echo(clean(note), err=True)
    if run:
        _become(way)
    click.echo(clean(way.line))
    return 0


def way_of(row: SessionRow, known: dict[str, Adapter]) -> Way:
    """Tell how a session is gone on with."""
    from thence.agents.profiles import agent_of

    session = row.session
    name, agent = session.native_session_id, agent_of(session.flavor)
    if agent is not None and agent.offers("resume"):
        argv = agent.profile.resume_command(name)
    elif session.flavor != OURS:
        raise _no_way(session.flavor)
    else:
        opened = f"import thence; session = thence.Journal().resume({name!r})"
        argv = processes.python("-i", "-c", opened)
    return Way(row, argv, _env(row, known), session.cwd or None)


def _no_way(name: str) -> ThenceError:
    """Return what is said of an agent whose sessions cannot be resumed by a command."""
    from thence.agents.profiles import PARTS, agent_of

    agent = agent_of(name)
    why = f"{agent.label} {PARTS['resume']}" if agent else f"the agent {name} is not installed"
    return NotReadable(why, hint="continue it in another agent: thence resume ID --with AGENT")


def _is_resumed(name: str) -> bool:
    """Return whether a command resumes the sessions of an agent."""
    from thence.agents.profiles import agent_of

    agent = agent_of(name)
    return name == OURS or (agent is not None and agent.offers("resume"))


def _not_restored(agent: str) -> str:
    """Return what a resumed session of an agent does not get back."""
    from thence.agents.profiles import agent_of

    known = agent_of(agent)
    return known.profile.not_restored if known is not None else "Permissions are not restored."


def _handed(row: SessionRow, other: str, *, run: bool, yes: bool) -> Way:
    """Hand a session over; gives how the other agent goes on with it."""
    from thence.agents.profiles import agents
    from thence.cli.handoff import hand_over

    program = agents()[other].profile.program
    if run and shutil.which(program) is None:
        raise NotReadable(f"{program} is not installed", hint="is it on your PATH?")
    here = row.project if row.project and Path(row.project).is_dir() else None
    report = hand_over(row.session.session_uid, other, yes=yes, here=here)
    return Way(row, report.argv, {}, report.cwd, is_handed=True)


def _env(row: SessionRow, known: dict[str, Adapter]) -> dict[str, str]:
    """Give the variable that leads an agent to a folder that is not its usual one."""
    from thence.agents.profiles import agent_of
    from thence.memory.fields import locate

    flavor, path = row.session.flavor, row.session.source_path
    agent, adapter = agent_of(flavor), known.get(flavor)
    if agent is None or adapter is None or not agent.profile.home_variable or not path:
        return {}
    source = adapter.at(Path(locate(path)))
    if source is None or not source.root:
        return {}
    root = Path(source.root)
    usual = adapter.roots(Path.home(), os.environ)
    if root in usual or not root.is_dir():
        return {}
    return {agent.profile.home_variable: agent.profile.home_of(root)}


def _refresh_folders(store: Store) -> None:
    """Look where folders of sessions are now, this one among them, unless a sweep runs."""
    from contextlib import suppress

    from thence.memory.store import StoreLocked

    if not wiring.is_read_only():
        with suppress(StoreLocked), store.sweeping():
            wiring.refresh_folders(store, here=str(Path.cwd()))


def _obstacle(row: SessionRow) -> str | None:
    """Return why its own agent cannot go on with a session on this machine; None if it can."""
    from thence.memory.fields import locate

    session, imported = row.session, row.imported
    name = session.native_session_id[:13]
    path = locate(session.source_path or "")
    if row.machine is not None:
        return f"{name} was recorded on {row.machine}: {session.flavor} does not have it here"
    if imported is not None:
        return f"{name} was imported from {imported.name}: {session.flavor} does not have it here"
    if row.gone or (path and not Path(path).exists()):
        return f"{session.flavor} has deleted {name}, so it cannot resume it"
    if session.cwd and not Path(session.cwd).is_dir():
        moved = f"; it is {row.project} now" if row.project else ""
        return f"the folder of {name} is gone: {session.cwd}{moved}"
    return None


def _offered(row: SessionRow, obstacle: str) -> str | None:
    """Ask whether a copy of a session goes on here; returns the agent, None where nobody can say.

    A session's own agent goes on with the copy if it takes sessions of others.
    """
    from thence.cli import picker

    agent = _copy_agent(row)
    if agent is None or not picker.possible():
        return None
    click.echo(clean(obstacle), err=True)
    here = row.project if row.project and Path(row.project).is_dir() else str(Path.cwd())
    if click.confirm(
        clean(f"Continue a copy in {agent}, in {tilde(here)}?"), default=True, err=True
    ):
        return agent
    raise click.Abort


def _copy_agent(row: SessionRow) -> str | None:
    """Return the agent that goes on with a copy of a session: its own, else one of this machine."""
    from thence.agents.profiles import agent_of

    own = agent_of(row.session.flavor)
    if own is not None and own.offers("handoff"):
        return own.name
    return next(iter(wiring.agents_here("handoff")), None)


def _check(way: Way, *, run: bool) -> None:
    """Refuse what cannot go well."""
    obstacle = _obstacle(way.row)
    if obstacle is not None and not way.is_handed:
        name = argument(way.row.session.native_session_id[:13])
        agent = _copy_agent(way.row) or "AGENT"
        raise SessionNotFound(
            obstacle,
            hint=f"continue a copy here: thence resume {name} --with {agent};"
            f" read it: thence show {name}",
        )
    if not run:
        return
    if shutil.which(way.argv[0]) is None:
        raise NotReadable(f"{way.argv[0]} is not installed", hint="is it on your PATH?")


def _notes(way: Way) -> Iterator[str]:
    row = way.row
    yield f"{cut(titled(row.title), 72)}"
    yield _not_restored(row.session.flavor)
    if row.turn and row.turn != "done":
        yield f"its last turn: {row.turn.replace('_', ' ')}"


def _become(way: Way) -> None:
    """Turn into the agent: the program that PATH names here, not one of the session's folder."""
    program = Path(shutil.which(way.argv[0]) or way.argv[0]).absolute()
    if way.cwd:
        os.chdir(way.cwd)
    os.environ.update(way.env)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, way.argv)  # noqa: S606 - the agent, asked for


# -- choosing -------------------------------------------------------------------------------


def _rows(store: Store, agent: str | None, project: str | None) -> list[SessionRow]:
    from thence.memory.recall import with_lineage
    from thence.memory.store import Filter

    rows = store.sessions(Filter(agent=agent, project=project, limit=PICKED_FROM))
    resumable = [
        row
        for row in rows
        if row.imported is not None or (not row.gone and _is_resumed(row.session.flavor))
    ]
    found = with_lineage(store, resumable, wiring.labels())
    if not found:
        raise SessionNotFound("no matching sessions", hint="thence ls lists all sessions")
    return found


def _chosen(rows: Sequence[SessionRow]) -> SessionRow | None:
    """Let the user choose; where that cannot be, list them."""
    from thence.cli import picker

    now = present()
    if not picker.possible():
        tell([*_list(rows[:LISTED], now), "thence resume ID prints the command; --exec runs it"])
        return None
    ids = short_ids([row.session.native_session_id for row in rows])
    names = [ids[row.session.native_session_id] for row in rows]
    agents = [clean(row.session.flavor) for row in rows]
    wide, wider = max(map(columns, names), default=0), max(map(columns, agents), default=0)
    heads = [
        f"{padded(name, wide)}  {padded(agent, wider)}"
        for name, agent in zip(names, agents, strict=True)
    ]
    choices = [_choice(row, head, now) for row, head in zip(rows, heads, strict=True)]
    return rows[picker.pick(choices)]


_COLUMNS = (
    *(Column(), Column("id"), Column("agent"), Column("age", right=True)),
    *(Column("title", slack=True, least=TITLE), Column("project", right=True, drop=1)),
)


def _list(rows: Sequence[SessionRow], now: datetime) -> Iterator[str]:
    ids = short_ids([row.session.native_session_id for row in rows])
    cells = [
        [
            Cell("○"),
            Cell(ids[row.session.native_session_id], DIM),
            Cell(clean(row.session.flavor)),
            Cell(ago(when(row.session.ended_at), now), DIM),
            Cell(titled(row.title)),
            Cell(cut(project(row.folder), 16)),
        ]
        for row in rows
    ]
    yield from table(_COLUMNS, cells, width())


def _choice(row: SessionRow, head: str, now: datetime) -> Choice:
    from thence.cli import picker

    session = row.session
    title, place = titled(row.title), project(row.folder)
    age = ago(when(session.ended_at), now)
    branch = clean(session.git_branch or "")
    cost = row_cost(row)
    facts = (clean(session.model or ""), several(row.events, "event"), cost, branch)
    left = row.turn.replace("_", " ") if row.turn else ""
    return picker.Choice(
        f"{head}  {age:>6}  {padded(cut(place, PLACE), PLACE)}  {title}",
        f"{session.session_uid} {title} {place} {branch}",
        (
            title,
            clean(tilde(row.folder or "")),
            " · ".join(fact for fact in facts if fact),
            f"last turn: {left}" if left else "",
        ),
    )
