"""What stands over a session: what it is, where it stands, what it took, what it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import Final
from urllib.parse import quote

import msgspec

from thence.format.derived_events import time_of
from thence.format.facts import Edge, text_in
from thence.format.figures import (
    argument,
    clean,
    format_duration,
    money,
    project,
    several,
    short,
    short_id,
)
from thence.format.normal import SessionEvent, one_line
from thence.format.readout import Record
from thence.format.records import Usage
from thence.memory.activity import MAX_PAUSE_MS
from thence.memory.ancestry import relation_of
from thence.memory.notes import OWN, Note
from thence.memory.search import OUTCOME_NAMES
from thence.memory.session_status import STOPPED, TURN_WORDS, Standing, turn_now
from thence.memory.store import SessionRow
from thence.serve.chart import Chart
from thence.serve.clock import DisplayClock, DisplayTime
from thence.serve.row_fields import Window

_OUTCOME_STYLES: Final = {"success": "st-ok", "fail": "st-fail"}
_STANDING: Final[dict[Standing, tuple[str, str]]] = {
    "waiting": (TURN_WORDS["waiting"], "st-waiting"),
    "running": (TURN_WORDS["running"], "st-running"),
    "idle": ("open, idle", "mid"),
}
_TIES: Final = 6


class LineageLink(msgspec.Struct, frozen=True):
    """A session that this one comes from, or that comes from it."""

    text: str
    name: str
    href: str = ""


class Head(msgspec.Struct, frozen=True):
    """What stands over a session."""

    title: str
    id: str
    page: str
    flavor: str
    standing: str
    standing_class: str
    turns: int
    events: str
    cost: str
    responses: str
    tokens: str
    resume: str
    when: DisplayTime
    project: str = ""
    project_path: str = ""
    branch: str = ""
    model: str = ""
    lasted: str = ""
    wall: str = ""
    """From the first event to the last, pauses included."""
    dead: str = ""
    side: str = ""
    edits: str = ""
    alone: str = ""
    empty: str = ""
    ties: list[LineageLink] = []
    notes: list[str] = []
    bounds: list[str] = []


class InheritedRows(msgspec.Struct, frozen=True):
    """What a session has from one that it continues: the rows, and where they come from."""

    name: str
    page: str
    messages: str
    window: Window
    left_out: int = 0
    """Rows before these that its own page shows."""


class SessionTail(msgspec.Struct, frozen=True):
    """The live end of a session."""

    state: str
    text: str
    cls: str
    what: str = ""
    note: str = ""


class NoteLine(msgspec.Struct, frozen=True):
    """A decision or note: who wrote it when, and what it says."""

    head: str
    text: str
    page: str = ""
    """Address of the session that it belongs to."""
    uuid: str = ""
    icon: str = "person"


def note_line(note: Note, clock: DisplayClock) -> NoteLine:
    """Return a decision or note as it is shown."""
    head = f"{note.kind.capitalize()}, {clean(note.author)}, {clock.day(note.ts)}"
    page = address(note.session_uid) if note.session_uid is not None else ""
    icon = "person" if note.origin in OWN else "warn"
    return NoteLine(head, clean(one_line(note.text, 400)), page, note.uuid, icon)


def title_of(row: SessionRow) -> str:
    """Name a session, on one line."""
    return clean(" ".join((row.title or "").split())) or "untitled"


def address(uid: str, at: int | None = None, query: str = "") -> str:
    """Return the address of a session's page, or of an event on it, with the words to mark."""
    page = f"/sessions/{quote(uid, safe=':')}"
    return page if at is None else event_address(page, f"e{at:013x}", query)


def event_address(page: str, event: str, query: str = "") -> str:
    """Return the address of an event on the page of its session."""
    words = f"&q={quote(query, safe='')}" if query else ""
    return f"{page}?at={event}{words}#{event}"


def standing_text(row: SessionRow, standing: Standing | None) -> tuple[str, str]:
    """Return the status of a session: what it does, else how it ended."""
    if standing:
        return _STANDING[standing]
    outcome = row.session.outcome
    return OUTCOME_NAMES[outcome], _OUTCOME_STYLES.get(outcome, "dim")


def head(
    row: SessionRow,
    standing: Standing | None,
    clock: DisplayClock,
    stored_uids: dict[str, str],
    *,
    working: str = "",
) -> Head:
    """Return the head of a session; `stored_uids` has the uids of stored sessions by their ids.

    `working` says how long it was at work, where that is known; else its whole time is shown.
    """
    session = row.session
    status, cls = standing_text(row, standing)
    spent, ticks = row.spent, row.ticks
    wall = round(session.cost.wall_clock_s * 1000)
    return Head(
        title=title_of(row),
        id=short_id(session.native_session_id),
        page=address(session.session_uid),
        flavor=session.flavor,
        standing=status,
        standing_class=cls,
        turns=session.cost.turns,
        events=f"{row.events:,}",
        cost=money(sum(ticks.values()), row.unpriced, is_bound=bool(row.lower_bound)).replace(
            "?", "cost unknown"
        ),
        responses=f"{spent.responses:,}",
        tokens=_tokens(row),
        resume=f"thence resume {argument(short_id(session.native_session_id))}",
        when=_moment(row.session.started_at, clock),
        project=project(session.cwd),
        branch=clean(session.git_branch or ""),
        model=clean(session.model or ""),
        lasted=working or (format_duration(wall) if wall else ""),
        wall=format_duration(wall) if wall else "",
        dead=money(ticks["dead"]) if ticks.get("dead") else "",
        side=money(ticks["side"]) if ticks.get("side") else "",
        empty="Its log has no messages.",
        ties=list(_ties(row, stored_uids)),
        notes=list(_notes(row)),
        bounds=[clean(why) for why in row.lower_bound[:3]],
    )


def agent_head(over: Head, chart: Chart, channel: str, clock: DisplayClock) -> Head:
    """Return what stands over a subagent's own page: its task, its counts and its cost."""
    places = chart.channels[channel]
    records = [chart.records[place] for place in places]
    blocks = [block for record in records for block in record.blocks]
    task = next((b.summary for b in blocks if b.kind == "user_msg" and b.summary), "")
    working = _working_s(records)
    ticks = chart.ticks(places)
    bills = [chart.bills[place] for place in places if place in chart.bills]
    name = clean(chart.agent_name(channel))
    answers = [text for record in records if (text := record.model)]
    return msgspec.structs.replace(
        over,
        title=clean(task) or name,
        alone=name,
        turns=0,
        events=f"{chart.session.count_events(places):,}",
        cost=money(ticks) if ticks or not bills else "cost unknown",
        responses=f"{len(bills):,}",
        tokens=_tokens_of(bills),
        lasted=format_duration(round(working * 1000)) if working >= 1 else "",
        wall="",
        when=_moment(next((record.ts for record in records if record.ts), None), clock),
        model=clean(answers[-1]) if answers else over.model,
        standing="subagent",
        standing_class="b-side",
        dead="",
        side="",
        ties=[],
        notes=[],
        bounds=[],
    )


def _working_s(records: Sequence[Record]) -> float:
    """Return how long records were at work: the time between them without long pauses."""
    times = sorted(moment.timestamp() for record in records if (moment := time_of(record.ts)))
    gaps = (after - before for before, after in pairwise(times))
    return sum(gap for gap in gaps if 1000 * gap <= MAX_PAUSE_MS)


def _moment(text: str | None, clock: DisplayClock) -> DisplayTime:
    if not clock.day(text):
        return DisplayTime()
    return DisplayTime(f"{clock.day(text)}, {clock.time(text)}", clock.iso(text), clock.full(text))


def _tokens(row: SessionRow) -> str:
    """Return which tokens were billed."""
    spent = row.spent
    unknown = f"; {short(row.unpriced)} of them have no known price" if row.unpriced else ""
    return f"{_tokens_of([spent.live, spent.dead, spent.side])}{unknown}"


def _tokens_of(parts: Sequence[Usage]) -> str:
    kinds = (
        ("input", sum(part.input_tokens for part in parts)),
        ("cache read", sum(part.cache_read_input_tokens for part in parts)),
        ("cache write", sum(part.cache_creation_input_tokens for part in parts)),
        ("output", sum(part.output_tokens for part in parts)),
    )
    text = ", ".join(f"{name} {short(number)}" for name, number in kinds if number)
    return f"Tokens: {text or 'none billed'}"


def _ties(row: SessionRow, stored_uids: dict[str, str]) -> Iterator[LineageLink]:
    edges: dict[tuple[str, str], Edge] = {(e.link, e.session): e for e in row.edges}
    for edge in list(edges.values())[:_TIES]:
        uid = stored_uids.get(edge.session)
        yield LineageLink(relation_of(edge), short_id(edge.session), address(uid) if uid else "")
    if len(edges) > _TIES:
        yield LineageLink("and", several(len(edges) - _TIES, "more tie"))


def _notes(row: SessionRow) -> Iterator[str]:
    if row.skipped:
        yield f"{several(row.skipped, 'unreadable line')} (see thence doctor)"
    if row.origin:
        words = clean(row.origin)
        yield f"{words[0].upper()}{words[1:]}; thence resume --with continues it here"
    elif row.gone:
        yield "The agent deleted its log; this copy is the only one"
    if row.torn:
        yield "The last line is cut off: the process was killed while writing"
    if row.session.evicted_at:
        yield "The stored transcript was removed; this comes from the agent's own log"


def tail(chart: Chart, standing: Standing | None, waits_for: str | None) -> SessionTail:
    """Return how the line ends, and what happens there."""
    open_call = _open_call(chart)
    turn = turn_now(chart.state, standing)
    text = TURN_WORDS[turn].capitalize()
    if turn == "waiting":
        what = open_call or clean(waits_for or "")
        return SessionTail(turn, text, "st-waiting", what, "answer in the terminal")
    if turn == "running":
        return SessionTail(turn, text, "st-running", open_call, "new events appear here")
    if turn == "interrupted":
        return SessionTail(turn, text, "b-orphaned", "", "the turn was cut short")
    if turn == "stopped":
        return SessionTail("open", text, "b-orphaned", open_call, STOPPED)
    return SessionTail("done", text, "st-running", "", "no open tool calls")


def _last_blocks(chart: Chart) -> Iterator[SessionEvent]:
    """Yield what stands at the end of the line, the last first."""
    for place in reversed(chart.line[-60:]):
        yield from reversed(chart.records[place].blocks)


def _open_call(chart: Chart) -> str:
    """Return the open call, if there is one."""
    blocks = (block for block in _last_blocks(chart) if block.kind == "tool_call")
    summaries = (block.summary for block in blocks if block.call in chart.open_calls)
    return clean(next(summaries, "").removeprefix("ran "))


def last_words(chart: Chart) -> str:
    """Return the end of the last thing the agent said: where questions stand."""
    answers = (b for b in _last_blocks(chart) if b.kind == "assistant_msg" and b.summary)
    text = "".join(text_in(chart.filled(block)) for block in islice(answers, 1))
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return clean(one_line(lines[-1], 240)) if lines else ""


def current_action(chart: Chart) -> tuple[str, str]:
    """Return an icon and what a running session does: the open call, else the last one."""
    if call := _open_call(chart):
        return "term", call
    for block in _last_blocks(chart):
        if block.kind in ("tool_call", "assistant_msg") and block.summary:
            icon = "term" if block.kind == "tool_call" else "person"
            return icon, clean(block.summary.removeprefix("ran "))
    return "clock", ""
