"""A session as a chart: the rows of its line in order, what parted from it, what each part took.

A chart is made of the stored events of a session, without their payloads; whoever draws a row asks
for the payloads of that row alone. Rows are light: where a thing stands, and what kind of thing it
is. Invariants: everything on the live line is in exactly
one row or folded into exactly one boundary; a discarded branch is one row where it parted, a
subagent one row at its call; the kinds say the same as the terminal does. Work is linear in the
events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from thence.format.derived_events import Call
from thence.format.facts import words_of
from thence.format.graph import Branch, State
from thence.format.nodes import Is
from thence.format.readout import Readout, Record
from thence.format.records import JSON, Usage
from thence.format.turn import TurnState
from thence.format.wording import corrects
from thence.memory.prices import prompt_tokens

if TYPE_CHECKING:
    from thence.format.fold import FoldState
    from thence.format.normal import SessionEvent

RowKind = Literal[
    "prompt",
    "correction",
    "answer",
    "thinking",
    "tool",
    "edit",
    "test",
    "error",
    "interrupted",
    "agent",
    "boundary",
    "branch",
    "copied",
    "decision",
    "stop",
    "note",
]

MIN_GAP_S: Final = 30 * 60
"""A pause of at least this many seconds is shown before the next row."""


class ChartRow(msgspec.Struct, frozen=True, gc=False):
    """One row: what kind of thing, and which block of which record it is of."""

    kind: RowKind
    place: int
    block: int = 0
    number: int = -1
    """Of a branch, a boundary or a run of copies: which one."""


class ChartBoundary(msgspec.Struct, frozen=True):
    """A compaction or a cleared context: where it is, and the rows that stand before it."""

    place: int
    rows: list[ChartRow]
    places: list[int]


class Chart:
    """One session, laid out. Everything is worked out once, when first asked for."""

    def __init__(self, session: Readout, sealed: FoldState | None = None) -> None:
        """Lay out a session; `sealed` is what stands before it, where it is only the end of one."""
        self.session = session
        self._sealed = sealed
        self.records = session.records
        self.payload = session.payload
        self.filled = session.with_payload
        self.event_id = session.event_id

    def is_end_known(self) -> bool:
        """Return whether the rows at the end are those of the whole session.

        A subagent that no call on the line tells of stands at the very end. So of each subagent
        of a session that is here in part only, the call must be known.
        """
        if self._sealed is None:
            return True
        started = self.session.started_by()
        calls = self._sealed.agent_calls | self._line_calls
        channels = {*self._sealed.sealed.channels, *self.channels}
        return all(started.get(channel) in calls for channel in channels)

    def is_continued(self, place: int) -> bool:
        """Return whether a record is one that the end of a session begins with.

        Where it hangs and what it is was said before the end: its rows may be in another order.
        """
        anchors = self._sealed.anchors if self._sealed is not None else ()
        return any(fact.node.id == self.records[place].node.id for fact in anchors)

    # -- payloads and names -------------------------------------------------------------

    def size_of(self, event: SessionEvent | None) -> int:
        """Return the bytes of a payload without reading it, where its ref tells them."""
        if event is None:
            return 0
        if event.payload_ref is not None and event.payload_ref.count(",") == 4:
            size = event.payload_ref.split(",")[3]
            return int(size) if size.isdigit() else 0
        return len(words_of(event)) if event.payload is not None else 0

    def find(self, wanted: str) -> tuple[int, int] | None:
        """Find the block that an event's name means: `e` and the beginning of its id.

        A derived event has no row of its own: the block is the one that it comes from.
        """
        digits = wanted.removeprefix("e").lower()
        if not digits or len(digits) > 13 or not all(c in "0123456789abcdef" for c in digits):
            return None
        places = self.session.event_places
        low, high = int(digits.ljust(13, "0"), 16), int(digits.ljust(13, "f"), 16)
        if low == high and low in places:
            return places[low]
        named = (at for event_id, at in places.items() if low <= event_id <= high)
        implied = (
            places.get(event.derived_from or 0)
            for event in self.session.derived()
            if low <= event.event_id <= high
        )
        return next(chain(named, implied), None)

    # -- lines --------------------------------------------------------------------------

    @cached_property
    def line(self) -> list[int]:
        """The whole live line, compacted or not."""
        return self.session.graph.chain(boundaries=False)

    @cached_property
    def order(self) -> dict[int, int]:
        """How far along the line each record stands."""
        return {place: at for at, place in enumerate(self.line)}

    @cached_property
    def turns(self) -> dict[int, int]:
        """The records with which turns begin, numbered."""
        before = self._sealed.sealed.turns if self._sealed else 0
        return {place: number for number, place in enumerate(self.session.turns, before + 1)}

    @cached_property
    def state(self) -> TurnState:
        """Where the last turn stands, as far as the log tells."""
        return self.session.turn().state

    @cached_property
    def open_calls(self) -> frozenset[str]:
        """Calls that may still be at work: of the last turn, with nobody saying anything since."""
        return frozenset(self.session.running_calls)

    # -- rows ---------------------------------------------------------------------------

    @cached_property
    def rows(self) -> list[ChartRow]:
        """The rows of the page: the live line, what was compacted folded into its boundary."""
        return self._main[0]

    @cached_property
    def bounds(self) -> list[ChartBoundary]:
        """The compactions and cleared contexts of the live line, each with what it folds."""
        return self._main[1]

    @cached_property
    def copies(self) -> list[list[int]]:
        """Runs of the line that were copied from the session that owns them."""
        return self._main[2]

    @cached_property
    def every_row(self) -> list[ChartRow]:
        """The rows of the whole line, folded ones in their place."""
        if not self.bounds:
            return self.rows
        out: list[ChartRow] = []
        for row in self.rows:
            if row.kind == "boundary" and row.number >= 0:
                out += self.bounds[row.number].rows
            out.append(row)
        return out

    @cached_property
    def row_order(self) -> dict[int, int]:
        """How far along the line each row stands, by its identity."""
        return {id(row): at for at, row in enumerate(self.every_row)}

    @cached_property
    def by_kind(self) -> dict[RowKind, list[ChartRow]]:
        """The same rows, by what they are."""
        out: dict[RowKind, list[ChartRow]] = {}
        for row in self.every_row:
            out.setdefault(row.kind, []).append(row)
        return out

    @cached_property
    def _main(self) -> tuple[list[ChartRow], list[ChartBoundary], list[list[int]]]:
        copies: list[list[int]] = []
        shown = self.session.graph.chain()
        seen = set(shown)
        sums = [p for p in shown if self.records[p].node.flags & (Is.SUMMARY | Is.CLEARS)]
        if not sums or all(place in seen for place in self.line):
            rows = [*self._parted_rows(-1), *self._line_rows(self.line, copies)]
            return (rows + self._loose()) or self._internal_rows(), [], copies
        bounds: list[ChartBoundary] = []
        out: list[ChartRow] = []
        fold: list[int] = []
        for place in self.line:  # up to what is in force: each folds what led to it
            flags = self.records[place].node.flags
            if flags & (Is.SUMMARY | Is.CLEARS):
                out += self._boundary_rows(place, self._line_rows(fold, copies), fold, bounds)
                fold = []
                if place == sums[0]:
                    break
            if not flags & Is.SUMMARY and place not in seen:
                fold.append(place)
        # What was kept stands after the summary, as the model sees it.
        summary = sums[0] if self.records[sums[0]].node.flags & Is.SUMMARY else -1
        out += self._line_rows((place for place in shown if place != summary), copies)
        return out + self._loose(), bounds, copies

    def _internal_rows(self) -> list[ChartRow]:
        """Return rows of a session in which nobody says anything: what its agent noted."""
        if self._sealed is not None:
            return []
        return [
            ChartRow("note", place, number)
            for place, record in enumerate(self.records)
            for number, block in enumerate(record.blocks)
            if block.summary
        ]

    def _boundary_rows(
        self, place: int, rows: list[ChartRow], fold: list[int], bounds: list[ChartBoundary]
    ) -> list[ChartRow]:
        """Make the row of a boundary; what was asked first of all stays in sight."""
        lead: list[ChartRow] = []
        if not bounds:
            rows = [*self._parted_rows(-1), *rows]
            if rows and rows[0].kind == "prompt":
                lead, rows = rows[:1], rows[1:]
        bounds.append(ChartBoundary(place, rows, fold))
        if self.clears(place):  # a row of its own; the prompt has another one, with its branches
            last = len(self.records[place].blocks) - 1
            return [*lead, ChartRow("boundary", place, last, len(bounds) - 1)]
        after = self._parted_rows(place)
        return [*lead, ChartRow("boundary", place, 0, len(bounds) - 1), *after]

    def clears(self, place: int) -> bool:
        """Return whether the context was cleared at a place of the line."""
        return bool(self.records[place].node.flags & Is.CLEARS)

    def rows_of(self, places: Iterable[int]) -> list[ChartRow]:
        """Return the rows of a run of records, and nothing that parts from it."""
        return [row for place in places for row in self._record_rows(place)]

    def _line_rows(self, places: Iterable[int], copies: list[list[int]]) -> list[ChartRow]:
        """Return the rows of a part of the line with the branches that leave it in their places.

        What was copied is one row up to the next branch; `copies` gets the records of each.
        """
        out: list[ChartRow] = []
        is_open = False
        for place in places:
            is_copy = self.session.states[place] is State.REPLAYED
            if is_copy and is_open:
                copies[-1].append(place)
            elif is_copy:
                out.append(ChartRow("copied", place, 0, len(copies)))
                copies.append([place])
            else:
                out += self._record_rows(place)
            parted = self._parted_rows(place)
            out += parted
            is_open = is_copy and not parted
        return out

    def _record_rows(self, place: int) -> Iterator[ChartRow]:
        record = self.records[place]
        flags = record.node.flags
        if flags & Is.SUMMARY:
            yield ChartRow("boundary", place)
            return
        if flags & Is.PROMPT:
            yield self._prompt(place, record)
        for number, block in enumerate(record.blocks):
            kind = self._kind(record, block, prompt=bool(flags & Is.PROMPT))
            if kind is not None:
                yield ChartRow(kind, place, number)

    def _prompt(self, place: int, record: Record) -> ChartRow:
        """A prompt; one that corrects what was done before says so."""
        at = next((n for n, b in enumerate(record.blocks) if b.kind == "user_msg"), 0)
        text = record.blocks[at].summary
        wrong = self.turns.get(place, 0) > 1 and corrects(text) is not None
        return ChartRow("correction" if wrong else "prompt", place, at)

    def _kind(self, record: Record, block: SessionEvent, *, prompt: bool) -> RowKind | None:
        """Return what kind of row a block is; None when it is part of another row, or internal."""
        kind = block.kind
        if kind == "tool_call":
            return self._call_kind(block)
        if kind == "assistant_msg":
            return "answer" if block.summary or _is_picture(block) else None
        if kind == "thinking":
            return "thinking" if block.summary else None  # most are sealed, and say nothing
        if kind == "error":
            return "error"
        if kind == "decision":
            return "decision"
        if record.node.flags & Is.INTERRUPTS:
            return "stop"
        if block.role == "user" and kind in ("lifecycle", "user_msg"):
            return None if prompt and kind == "user_msg" else "note"
        return None

    def _call_kind(self, block: SessionEvent) -> RowKind:
        """Return what kind of row a call is: by what it did, or that it failed."""
        call = self.calls.get(block.call or "")
        if block.call in self.agents:
            return "agent"
        if call is None or not call.outcome.ended:
            return "tool" if block.call in self.open_calls else "interrupted"
        if call.outcome.is_test_run:
            return "test"
        if call.outcome.failed:
            return "error"
        return "edit" if call.outcome.edited else "tool"

    # -- branches -----------------------------------------------------------------------

    @property
    def branches(self) -> list[Branch]:
        """The discarded branches."""
        return self.session.graph.branches

    @cached_property
    def branch_origins(self) -> list[int]:
        """The record of the live line that each branch parts from; -1 for none."""
        return list(self.session.graph.parting_events(self.branches, self.order))

    @cached_property
    def _branches_by_origin(self) -> dict[int, list[int]]:
        """Numbers of branches by the record that they part from."""
        out: dict[int, list[int]] = {}
        for number, at in enumerate(self.branch_origins):
            out.setdefault(at, []).append(number)
        return out

    def _parted_rows(self, place: int) -> list[ChartRow]:
        branches = self._branches_by_origin.get(place, ())
        return [ChartRow("branch", self.branches[n].start, 0, n) for n in branches]

    @cached_property
    def branch_by_place(self) -> dict[int, int]:
        """The number of the branch that a record is on."""
        return {place: n for n, branch in enumerate(self.branches) for place in branch.events}

    # -- calls --------------------------------------------------------------------------

    @property
    def calls(self) -> dict[str, Call]:
        """All calls by their id; copies of other sessions' calls are among them."""
        return self.session.calls_by_name

    def output_of(self, call: SessionEvent) -> JSON:
        """Return what another record says that a call without a result returned."""
        place, block = self.session.event_places[call.event_id]
        return self.records[place].rows[block].output

    # -- subagents ----------------------------------------------------------------------

    @property
    def channels(self) -> dict[str, list[int]]:
        """The records of each subagent that lies within the session."""
        return self.session.channels

    @cached_property
    def agents(self) -> dict[str, str]:
        """Subagents of the session by the call that started them."""
        started = self.session.started_by()
        return {call: channel for channel in self.channels if (call := started.get(channel, ""))}

    def agent_name(self, channel: str) -> str:
        """Name a subagent: by its type, where the log tells one."""
        return self.session.head.agents.get(channel, ("", ""))[1] or "subagent"

    @cached_property
    def adrift(self) -> list[str]:
        """Subagents of which no call on the line tells."""
        calls = self._line_calls | (self._sealed.agent_calls if self._sealed else frozenset())
        placed = {channel for call, channel in self.agents.items() if call in calls}
        return [channel for channel in self.channels if channel not in placed]

    @cached_property
    def _line_calls(self) -> set[str | None]:
        """The calls that are made on the line."""
        blocks = (block for place in self.line for block in self.records[place].blocks)
        return {block.call for block in blocks if block.kind == "tool_call"}

    def _loose(self) -> list[ChartRow]:
        return [
            ChartRow("agent", self.channels[name][0], 0, at) for at, name in enumerate(self.adrift)
        ]

    def channel_of(self, row: ChartRow) -> str:
        """Return the channel of the subagent that a row shows."""
        if row.number >= 0:
            return self.adrift[row.number]
        return self.agents[self.records[row.place].blocks[row.block].call or ""]

    # -- money --------------------------------------------------------------------------

    @cached_property
    def bills(self) -> dict[int, Usage]:
        """Every bill once, by the record that carries it."""
        records = enumerate(self.records)
        return {at: usage for at, record in records if (usage := record.usage) is not None}

    def ticks(self, places: Iterable[int]) -> int:
        """Return what some records cost; what has no price counts nothing."""
        return sum(self.records[place].ticks for place in places)

    @cached_property
    def weights(self) -> list[tuple[int, int]]:
        """What each bill of the line cost, and how far along it stands."""
        bills = sorted((self.order[place], place) for place in self.bills if place in self.order)
        return [(at, self.records[place].ticks) for at, place in bills]

    @cached_property
    def contexts(self) -> list[tuple[int, int]]:
        """How much the model was given along the line: (how far, tokens)."""
        sizes = (
            (self.order[place], prompt_tokens(usage))
            for place, usage in self.bills.items()
            if place in self.order and not self.records[place].link.has_turn_bill
        )
        return sorted((at, size) for at, size in sizes if size)

    def turn_places(self, place: int) -> list[int]:
        """Return the records of the turn that begins with a prompt of the line."""
        start = self.order.get(place)
        if start is None:
            return [place]
        end = self._next_turn.get(place, len(self.line))
        return self.line[start:end]

    @cached_property
    def _next_turn(self) -> dict[int, int]:
        prompts = list(self.turns)
        return {prompt: self.order[other] for prompt, other in pairwise(prompts)}

    def prompts_in(self, places: Iterable[int]) -> int:
        """Count the prompts of a run, on whatever branch."""
        return sum(self.records[place].is_prompt for place in places)


def _is_picture(block: SessionEvent) -> bool:
    return isinstance(block.payload, dict) and block.payload.get("type") not in (None, "text")
