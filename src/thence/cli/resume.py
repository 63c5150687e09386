"""`thence resume`: go on with a session, with its own agent, in its own folder."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from thence.cli import options, wiring
from thence.cli.columns import (
    DIM,
    MACHINE_COLUMNS,
    TITLE_COLUMNS,
    TextCell,
    TextColumn,
    agent_label,
    ago,
    present,
    project,
    row_cost,
    short_ids,
    table,
    tell,
    tilde,
    title_text,
    when,
)
from thence.cli.resume_plans import ResumePlan, is_resumable, not_restored, obstacle_of, plan_resume
from thence.cli.terminal import as_json, clean, columns, cut, pad_to, say, several, width
from thence.errors import NotReadable, SessionNotFound
from thence.format.figures import argument

if TYPE_CHECKING:
    from datetime import datetime

    from thence.cli.picker import PickerChoice
    from thence.memory.session_status import Now
    from thence.memory.store import SessionRow, Store

MAX_LISTED = 20
MAX_CHOICES = 500
MAX_PROJECT_COLUMNS = 12
MARK_COLUMNS = 2
"""Columns before a line of the picker."""
"""Columns of the project in the picker: with them a title has 30 at 80 columns."""


@click.command(
    "resume",
    help="Resume a session in its agent, or in another one. Without ID: choose.",
    epilog="A session that you choose on a terminal is resumed at once. Otherwise the command is"
    " printed, unless --exec runs it.",
)
@click.argument("wanted", metavar="[ID]", required=False, shell_complete=options.complete_ids)
@click.option("--last", is_flag=True, help="Resume the most recent session.")
@click.option("--exec", "run", is_flag=True, help="Run the command instead of printing it.")
@click.option(
    "--prompt",
    metavar="TEXT",
    help="Resume without the agent's interface: it answers this prompt and ends.",
)
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
    prompt: str | None,
    *,
    last: bool,
    run: bool,
    yes: bool,
    json: bool,
) -> int:
    """Print how a session is resumed, or resume it."""
    _check_options(wanted, prompt, last=last)
    known = wiring.adapters()
    with wiring.store() as store:
        _refresh_folders(store)
        if wanted is None:
            rows = _rows(store, agent, project)
            if json and not last:
                say(as_json([plan_resume(row, known).as_object() for row in rows[:MAX_LISTED]]))
                return 0
            row = rows[0] if last else _choose(rows)
            if row is None:
                return 0
            run = run or (not last and sys.stdout.isatty())
        else:
            from thence.memory.recall import with_lineage

            row = with_lineage(store, [wiring.session(store, wanted)], wiring.labels())[0]
    obstacle = obstacle_of(row)
    if other is None and obstacle is not None and not json:
        other = _offer_copy(row, obstacle)
        yes = yes or other is not None
    if other is not None and (obstacle is not None or other != row.session.flavor):
        plan = _hand_over(row, other, prompt, run=run, yes=yes or json)
    else:
        plan = plan_resume(row, known, prompt)
    if json:
        say(as_json(plan.as_object()))
        return 0
    _check(plan, run=run)
    for note in _notes(plan):
        click.echo(clean(note), err=True)
    if run:
        _become(plan)
    click.echo(clean(plan.line))
    return 0


def _check_options(wanted: str | None, prompt: str | None, *, last: bool) -> None:
    if last and wanted is not None:
        raise click.UsageError("give an ID or --last, not both")
    if prompt is not None and wanted is None and not last:
        raise click.UsageError("--prompt: give an ID or --last")


def _hand_over(
    row: SessionRow, other: str, prompt: str | None, *, run: bool, yes: bool
) -> ResumePlan:
    """Hand a session over; return how the other agent resumes the copy."""
    if prompt is not None:
        raise click.UsageError("--prompt: not with a copy; hand it over first, then resume it")
    from thence.agents.profiles import agents
    from thence.cli.handoffs import hand_over

    program = agents()[other].profile.program
    if run and shutil.which(program) is None:
        raise NotReadable(f"{program} is not installed", hint="is it on your PATH?")
    here = row.project if row.project and Path(row.project).is_dir() else None
    report = hand_over(row.session.session_uid, other, yes=yes, here=here)
    return ResumePlan(row, report.argv, {}, report.cwd, copied_to=other)


def _refresh_folders(store: Store) -> None:
    """Look where folders of sessions are now, this one among them, unless a sweep runs."""
    from thence.memory.store import StoreLocked

    if not wiring.is_read_only():
        # Another sweep does it; what is known will do.
        with suppress(StoreLocked), store.sweeping():
            wiring.refresh_folders(store, here=str(Path.cwd()))


def _offer_copy(row: SessionRow, obstacle: str) -> str | None:
    """Ask whether a copy of a session goes on here; return the agent, None where nobody can say.

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


def _check(plan: ResumePlan, *, run: bool) -> None:
    """Refuse what cannot go well."""
    obstacle = obstacle_of(plan.row)
    if obstacle is not None and plan.copied_to is None:
        name = argument(plan.row.session.native_session_id[:13])
        agent = _copy_agent(plan.row) or "AGENT"
        raise SessionNotFound(
            obstacle,
            hint=f"continue a copy here: thence resume {name} --with {agent};"
            f" read it: thence show {name}",
        )
    if run and shutil.which(plan.argv[0]) is None:
        raise NotReadable(f"{plan.argv[0]} is not installed", hint="is it on your PATH?")


def _notes(plan: ResumePlan) -> Iterator[str]:
    row = plan.row
    yield f"{cut(title_text(row.title), 72)}"
    yield not_restored(plan.copied_to or row.session.flavor)
    from thence.memory.session_status import TURN_WORDS, turn_now

    if (turn := turn_now(row.turn, wiring.status().of(row))) != "done":
        yield f"its last turn: {TURN_WORDS[turn]}"


def _become(plan: ResumePlan) -> None:
    """Turn into the agent: the program that PATH names here, not one of the session's folder."""
    program = Path(shutil.which(plan.argv[0]) or plan.argv[0]).absolute()
    if plan.cwd:
        os.chdir(plan.cwd)
    os.environ.update(plan.env)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, plan.argv)  # noqa: S606 - the agent, asked for


# -- choosing -------------------------------------------------------------------------------


def _rows(store: Store, agent: str | None, project: str | None) -> list[SessionRow]:
    from thence.memory.recall import with_lineage
    from thence.memory.store import Filter

    rows = store.sessions(Filter(agent=agent, project=project, limit=MAX_CHOICES))
    resumable = [
        row
        for row in rows
        if row.imported is not None or (not row.gone and is_resumable(row.session.flavor))
    ]
    resumable_rows = with_lineage(store, resumable, wiring.labels())
    if not resumable_rows:
        raise SessionNotFound("no matching sessions", hint="thence ls lists all sessions")
    return resumable_rows


def _choose(rows: Sequence[SessionRow]) -> SessionRow | None:
    """Let the user choose; where that cannot be, list them."""
    from thence.cli import picker

    now = present()
    if not picker.possible():
        tell(
            [*_list(rows[:MAX_LISTED], now), "thence resume ID prints the command; --exec runs it"]
        )
        return None
    ids = short_ids([row.session.native_session_id for row in rows])
    names = [ids[row.session.native_session_id] for row in rows]
    agents = [agent_label(row.session.flavor) for row in rows]
    wide, wider = max(map(columns, names), default=0), max(map(columns, agents), default=0)
    heads = [
        f"{pad_to(name, wide)}  {pad_to(agent, wider)}"
        for name, agent in zip(names, agents, strict=True)
    ]
    status = wiring.status()
    choices = [_choice(row, head, now, status) for row, head in zip(rows, heads, strict=True)]
    return rows[picker.pick(choices)]


_WHERE = "where"
_COLUMNS = (
    TextColumn(),
    TextColumn("id"),
    TextColumn("agent"),
    TextColumn("age", right=True),
    TextColumn("title", slack=True, least=TITLE_COLUMNS),
    TextColumn(_WHERE, right=True),
    TextColumn("project", right=True, drop=1),
)


def _list(rows: Sequence[SessionRow], now: datetime) -> Iterator[str]:
    ids = short_ids([row.session.native_session_id for row in rows])
    places = [_elsewhere(row) or _gone_folder(row) for row in rows]
    cells = [
        [
            TextCell("○"),
            TextCell(ids[row.session.native_session_id], DIM),
            TextCell(agent_label(row.session.flavor)),
            TextCell(ago(when(row.session.ended_at), now), DIM),
            TextCell(title_text(row.title)),
            *([TextCell(place, DIM)] if any(places) else []),
            TextCell(cut(project(row.folder), 16)),
        ]
        for row, place in zip(rows, places, strict=True)
    ]
    columns_of = [column for column in _COLUMNS if any(places) or column.head != _WHERE]
    yield from table(columns_of, cells, width())


def _elsewhere(row: SessionRow) -> str:
    """Return where a session was recorded that only a copy continues here; empty if not so."""
    if row.machine is not None:
        return cut(f"on {clean(row.machine)}", MACHINE_COLUMNS + 3)
    return "imported" if row.imported is not None else ""


def _gone_folder(row: SessionRow) -> str:
    folder = row.session.cwd
    return "folder gone" if folder and not Path(folder).is_dir() else ""


def _project_columns(head_columns: int) -> int:
    """Return how many columns a project gets in the picker: the title comes first."""
    left = width() - MARK_COLUMNS - head_columns - len("  2026-01  ") - TITLE_COLUMNS - 2
    return max(min(left, MAX_PROJECT_COLUMNS), 0)


def _choice(row: SessionRow, head: str, now: datetime, status: Now) -> PickerChoice:
    from thence.cli import picker
    from thence.memory.session_status import TURN_WORDS, turn_now

    session = row.session
    title, place = title_text(row.title), project(row.folder)
    age = ago(when(session.ended_at), now)
    room = _project_columns(columns(head))
    branch = clean(session.git_branch or "")
    cost = row_cost(row)
    facts = (clean(session.model or ""), several(row.events, "event"), cost, branch)
    turn = turn_now(row.turn, status.of(row, now.timestamp()))
    return picker.PickerChoice(
        "  ".join(filter(None, (head, f"{age:>7}", pad_to(cut(place, room), room), title))),
        f"{session.session_uid} {title} {place} {branch} {clean(row.machine or '')}",
        (
            title,
            "  ".join(filter(None, (clean(tilde(row.folder or "")), _elsewhere(row)))),
            " · ".join(fact for fact in facts if fact),
            f"last turn: {TURN_WORDS[turn]}",
        ),
    )
