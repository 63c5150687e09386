"""`thence files`: which sessions touched a file, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from thence.cli import options, wiring
from thence.cli.columns import DIM, TextCell, ago, present, short_ids, title_text, when
from thence.cli.terminal import answer, clean, cut, justify, several, style, width
from thence.memory.recall import event_name
from thence.memory.store import Filter

if TYPE_CHECKING:
    from thence.format.records import JSON

DEFAULT_ROWS = 20
MAX_REASONS = 3
"""Prompts of one session that are shown before the rest is counted."""


@click.command("files")
@click.argument("path")
@click.option("--edited", is_flag=True, help="Only sessions that changed it.")
@options.agent
@options.since
@options.rows(DEFAULT_ROWS)
@options.utc
@options.as_json
def command(
    *,
    path: str,
    edited: bool,
    agent: str | None,
    since: str | None,
    number: int,
    utc: bool,
    json: bool,
) -> int:
    """Print the sessions that touched a file, the newest first."""
    from thence.memory.file_history import reasons, sessions_touching
    from thence.memory.search import moment

    wanted = Filter(agent=agent, after=moment(since) if since else None)
    with wiring.store() as store:
        sessions = sessions_touching(store, wanted, path, wiring.status(), wiring.labels())
        if edited:
            sessions = [
                session for session in sessions if any(file["edits"] for file in session["files"])
            ]
        sums = (
            len(sessions),
            sum(file["edits"] for session in sessions for file in session["files"]),
        )
        for session in sessions[:number]:
            session["why"] = reasons(
                store, session["session_uid"], [f["path"] for f in session["files"]]
            )
    return answer(
        sessions[:number],
        lines(path, sessions[:number], sums, present(utc=utc), width()),
        json=json,
    )


# -- as text --------------------------------------------------------------------------------


def lines(
    path: str,
    sessions: Sequence[Mapping[str, JSON]],
    sums: tuple[int, int],
    at: datetime,
    room: int,
) -> Iterator[str]:
    """Yield the sessions, each with its reasons below."""
    if not sessions:
        yield f"no stored session touched {clean(path)}"
        return
    number, edits = sums
    yield cut(f"{several(number, 'session')} touched {clean(path)}, {several(edits, 'edit')}", room)
    yield ""
    ids = short_ids([session["session_uid"].partition(":")[2] for session in sessions])
    for session in sessions:
        yield from _session(session, ids[session["session_uid"].partition(":")[2]], at, room)
    if number > len(sessions):
        yield style(f"    and {number - len(sessions):,} more: -n {number}", fg=DIM)


def _session(session: Mapping[str, JSON], name: str, at: datetime, room: int) -> Iterator[str]:
    changed = any(file["edits"] for file in session["files"])
    mark = TextCell("■", "yellow") if changed else TextCell("○")
    title = title_text(session["title"])
    right = f"{_counts(session['files'])}  {ago(when(session['ended_at']), at):>6}"
    shown = justify(title, right, room - 6 - len(name))
    yield f"  {mark.paint(mark.text)} {style(name, fg=DIM)}  {shown}"
    why = session.get("why") or []
    reasons = [reason for reason in why if reason["edits"]] or why
    for reason in reasons[:MAX_REASONS]:
        did = _counts([reason])
        event = event_name(reason["event_id"])
        yield style(justify(f"      {event} › {clean(reason['prompt'])}", did, room), fg=DIM)
    if len(reasons) > MAX_REASONS:
        yield style(f"      and {len(reasons) - MAX_REASONS} more prompts", fg=DIM)


def _counts(files: Sequence[Mapping[str, JSON]]) -> str:
    edits, reads = (sum(file[name] for file in files) for name in ("edits", "reads"))
    broke = sum(file.get("broke", 0) for file in files)
    parts = [
        several(edits, "edit") if edits else "",
        several(reads, "read") if reads and not edits else "",
        f"tests failed {broke}×" if broke else "",
    ]
    return ", ".join(filter(None, parts))
