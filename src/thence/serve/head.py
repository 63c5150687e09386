"""What stands over a session: what it is, where it stands, what it took, what it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

import msgspec

from thence.format.facts import Edge, text_in
from thence.format.figures import argument, clean, lasted, money, project, several, short, short_id
from thence.format.normal import one_line
from thence.format.turn import TurnState
from thence.memory.descent import tie
from thence.memory.notes import Note
from thence.memory.standing import Standing
from thence.memory.store import SessionRow
from thence.serve.chart import Chart
from thence.serve.clock import Clock, When
from thence.serve.items import Window

_OUTCOMES: Final = {
    "success": ("done", "st-ok"),
    "fail": ("failed", "st-fail"),
    "abandoned": ("abandoned", "dim"),
    "waiting": ("asked you, no answer", "dim"),
    "unknown": ("unclear", "dim"),
}
_STANDING: Final[dict[Standing, tuple[str, str]]] = {
    "waiting": ("waits for you", "st-waiting"),
    "running": ("running", "st-running"),
    "idle": ("open, at rest", "mid"),
}
_TIES: Final = 6


class Tie(msgspec.Struct, frozen=True):
    """A session that this one comes from, or that comes from it."""

    said: str
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
    when: When
    project: str = ""
    branch: str = ""
    model: str = ""
    lasted: str = ""
    dead: str = ""
    side: str = ""
    edits: str = ""
    alone: str = ""
    empty: str = ""
    ties: list[Tie] = []
    notes: list[str] = []
    bounds: list[str] = []


class Inherited(msgspec.Struct, frozen=True):
    """What a session has from one that it continues: the rows, and where they come from."""

    name: str
    page: str
    messages: str
    window: Window
    left_out: int = 0
    """Rows before these that its own page shows."""


class Tail(msgspec.Struct, frozen=True):
    """The live end of a session."""

    state: str
    said: str
    cls: str
    what: str = ""
    note: str = ""


class NoteLine(msgspec.Struct, frozen=True):
    """A decision or note: who wrote it when, and what it says."""

    head: str
    text: str


def note_line(note: Note, clock: Clock) -> NoteLine:
    """Return a decision or note as it is shown."""
    head = f"{note.kind.capitalize()}, {note.author}, {clock.day(note.ts)}"
    return NoteLine(head, clean(one_line(note.text, 400)))


def title_of(row: SessionRow) -> str:
    """Name a session, on one line."""
    return clean(" ".join((row.title or "").split())) or "empty session"


def address(uid: str, at: int | None = None) -> str:
    """Give the address of a session's page, and of an event on it."""
    page = f"/sessions/{quote(uid, safe=':')}"
    return page if at is None else f"{page}?at=e{at:013x}"


def stands(row: SessionRow, standing: Standing | None) -> tuple[str, str]:
    """Say where a session stands: what goes on, else how it ended."""
    return _STANDING[standing] if standing else _OUTCOMES[row.session.outcome]


def head(
    row: SessionRow,
    standing: Standing | None,
    clock: Clock,
    kept: dict[str, str],
    *,
    alone: str = "",
) -> Head:
    """Say what a session is; `kept` gives the uids of sessions that are kept, by their ids."""
    session = row.session
    said, cls = stands(row, standing)
    spent, ticks = row.spent, row.ticks
    wall = round(session.cost.wall_clock_s * 1000)
    return Head(
        title=title_of(row),
        id=short_id(session.native_session_id),
        page=address(session.session_uid),
        flavor=session.flavor,
        standing=said,
        standing_class=cls,
        turns=session.cost.turns,
        events=f"{row.events:,}",
        cost=money(sum(ticks.values()), row.unpriced, is_bound=bool(row.lower_bound)).replace(
            "?", "cost unknown"
        ),
        responses=f"{spent.responses:,}",
        tokens=_tokens(row),
        resume=f"thence resume {argument(short_id(session.native_session_id))}",
        when=_began(row, clock),
        project=project(session.cwd),
        branch=clean(session.git_branch or ""),
        model=clean(session.model or ""),
        lasted=lasted(wall) if wall else "",
        dead=money(ticks["dead"]) if ticks.get("dead") else "",
        side=money(ticks["side"]) if ticks.get("side") else "",
        alone=alone,
        empty="Its log holds no message that anybody wrote.",
        ties=list(_ties(row, kept)),
        notes=list(_notes(row)),
        bounds=[clean(why) for why in row.lower_bound[:3]],
    )


def _began(row: SessionRow, clock: Clock) -> When:
    text = row.session.started_at
    return When(f"{clock.day(text)}, {clock.time(text)}", clock.iso(text), clock.full(text))


def _tokens(row: SessionRow) -> str:
    """Say which tokens were billed."""
    spent = row.spent
    parts = [spent.live, spent.dead, spent.side]
    kinds = (
        ("input", sum(one.input_tokens for one in parts)),
        ("cache read", sum(one.cache_read_input_tokens for one in parts)),
        ("cache write", sum(one.cache_creation_input_tokens for one in parts)),
        ("output", sum(one.output_tokens for one in parts)),
    )
    said = ", ".join(f"{name} {short(number)}" for name, number in kinds if number)
    unknown = f"; {short(row.unpriced)} of them have no known price" if row.unpriced else ""
    return f"Tokens: {said or 'none were billed'}{unknown}"


def _ties(row: SessionRow, kept: dict[str, str]) -> Iterator[Tie]:
    edges: dict[tuple[str, str], Edge] = {(e.link, e.session): e for e in row.edges}
    for edge in list(edges.values())[:_TIES]:
        uid = kept.get(edge.session)
        yield Tie(tie(edge), short_id(edge.session), address(uid) if uid else "")
    if len(edges) > _TIES:
        yield Tie("and", several(len(edges) - _TIES, "more tie"))


def _notes(row: SessionRow) -> Iterator[str]:
    if row.skipped:
        yield f"{several(row.skipped, 'line')} could not be read; thence doctor names them"
    if row.gone:
        yield "Its agent has deleted it; this is all there is"
    if row.torn:
        yield "Its last line is torn: the process was killed while it wrote"
    if row.session.evicted_at:
        yield "Its transcript was evicted; what is shown is what its source still holds"


def tail(chart: Chart, standing: Standing | None, waits_for: str | None) -> Tail:
    """Say how the line ends, and what goes on there."""
    open_call = _open_call(chart)
    if standing == "waiting":
        what = open_call or clean(waits_for or "")
        note = "answer it in the terminal; this page only reads"
        return Tail("waiting", "Waits for you", "st-waiting", what, note)
    if standing == "running":
        return Tail("running", "Running", "st-running", open_call, "new events appear here")
    state = chart.state
    if state is TurnState.INTERRUPTED:
        return Tail("interrupted", "Interrupted", "b-orphaned", "", "the turn was cut short")
    if state in (TurnState.RUNNING, TurnState.WAITING):
        said = "Left open, nothing came after"
        return Tail("open", said, "b-orphaned", open_call, "no process is at it now")
    return Tail("done", "Came to rest", "st-running", "", "nothing is open")


def _open_call(chart: Chart) -> str:
    """Say which call is open, if one is."""
    for place in reversed(chart.line[-60:]):
        for block in reversed(chart.facts[place].blocks):
            if block.kind == "tool_call" and block.call in chart.open_calls:
                return clean(block.summary.removeprefix("ran "))
    return ""


def last_words(chart: Chart) -> str:
    """Give the end of the last thing the agent said: where questions stand."""
    for place in reversed(chart.line[-60:]):
        for block in reversed(chart.facts[place].blocks):
            if block.kind == "assistant_msg" and block.summary:
                text = text_in(chart.filled(block)).strip()
                lines = [line.strip() for line in text.split("\n") if line.strip()]
                return clean(one_line(lines[-1], 240)) if lines else ""
    return ""


def doing(chart: Chart) -> tuple[str, str]:
    """Say what a running session is at: the open call, else the last one; and what kind it is."""
    if found := _open_call(chart):
        return "term", found
    for place in reversed(chart.line[-60:]):
        for block in reversed(chart.facts[place].blocks):
            if block.kind in ("tool_call", "assistant_msg") and block.summary:
                icon = "term" if block.kind == "tool_call" else "person"
                return icon, clean(block.summary.removeprefix("ran "))
    return "clock", ""
