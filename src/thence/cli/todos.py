"""`thence ls --todos`: what agents promised and did not do, over all sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from thence.cli import options, wiring
from thence.cli.columns import DIM, NARROW, TextCell, ago, present, short_ids, table, when
from thence.cli.columns import project as folder
from thence.cli.terminal import answer, clean, cut, several, style, width

if TYPE_CHECKING:
    from thence.format.records import JSON

DEFAULT_ROWS = 30


@click.command("todos")
@options.agent
@options.project
@options.since
@options.rows(DEFAULT_ROWS)
@options.utc
@options.as_json
def command(
    *, agent: str | None, project: str | None, since: str | None, number: int, utc: bool, json: bool
) -> int:
    """Print open promises, those of the newest sessions first."""
    from thence.memory.open_todos import dismissed_todos, open_promises
    from thence.memory.search import moment
    from thence.memory.store import Filter

    wanted = Filter(agent=agent, project=project, after=moment(since) if since else None)
    with wiring.store() as store:
        todos = open_promises(store, wanted, wiring.labels(), dismissed_todos(wiring.home()))
    return answer(todos[:number], lines(todos, number, present(utc=utc), width()), json=json)


def lines(todos: Sequence[dict[str, JSON]], number: int, at: datetime, room: int) -> Iterator[str]:
    """Yield promises as rows; started ones have a mark."""
    if not todos:
        yield "no open to-dos"
        return
    sessions = len({todo["session_uid"] for todo in todos})
    started = any(todo["status"] == "in_progress" for todo in todos[:number])
    legend = " (◆ in progress)" if started else ""
    yield f"{several(len(todos), 'open to-do')} in {several(sessions, 'session')}{legend}"
    yield ""
    shown = todos[:number]
    ids = short_ids([todo["session_uid"].partition(":")[2] for todo in shown])
    rows = [
        [
            TextCell("◆", "yellow") if todo["status"] == "in_progress" else TextCell("○"),
            TextCell(clean(" ".join(todo["text"].split()))),
            *([TextCell(cut(folder(todo["cwd"]), 16))] if room >= NARROW else []),
            TextCell(ids[todo["session_uid"].partition(":")[2]], DIM),
            TextCell(ago(when(todo["ended_at"]), at), DIM),
        ]
        for todo in shown
    ]
    yield from table("<~<<>" if room >= NARROW else "<~<>", rows, room)
    if len(todos) > number:
        yield style(f"    and {len(todos) - number:,} more: -n {len(todos)}", fg=DIM)
