"""A session as a chart: the rows of its line in order, what parted from it, what each part took.

A chart is made of facts without their payloads, so that a session of 50 MB is laid out as quickly
as it is linked; whoever draws a row asks for the payloads of that row alone. Rows are light: where
a thing stands, and what kind of thing it is. Invariants: everything on the live line is in exactly
one row or folded into exactly one boundary; a discarded branch is one row where it parted, a
subagent one row at its call; the kinds say the same as the terminal does. Work is linear in the
facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, cast

import msgspec

from thence.format import facts as format_facts
from thence.format import joins
from thence.format.facts import Block, CallStatus, Edge, Fact
from thence.format.fold import FoldState, about_of
from thence.format.graph import Branch, State
from thence.format.nodes import Is
from thence.format.normal import event_ids
from thence.format.outcomes import CallOutcome
from thence.format.records import JSON, Usage, word
from thence.format.turn import TurnState
from thence.format.whole import Whole
from thence.format.wording import corrects
from thence.memory.spending import ticks_of

if TYPE_CHECKING:
    from thence.format.normal import SessionEvent

Read = Callable[[str], JSON]
"""Gives the payload that a ref leads to."""

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

GAP: Final = 30 * 60
"""Seconds without an event after which the next row says how long nothing was written."""

_GONE: Final = (State.DEAD, State.ROLLED_BACK)
_BATCH: Final = 4000  # bills that are priced one by one; of more, only those that are shown


class Row(msgspec.Struct, frozen=True, gc=False):
    """One row: what kind of thing, and which block of which fact it is of."""

    kind: RowKind
    place: int
    block: int = 0
    number: int = -1
    """Of a branch, a boundary or a run of copies: which one."""


class Bound(msgspec.Struct, frozen=True):
    """A compaction or a cleared context: where it is, and the rows that stand before it."""

    place: int
    rows: list[Row]
    places: list[int]


class Call(msgspec.Struct, frozen=True):
    """A call's result, what other records tell of it, and how it went."""

    result: Block | None
    told: CallStatus | None
    outcome: CallOutcome


class Chart:
    """One session, laid out. Everything is worked out once, when first asked for."""

    def __init__(
        self, whole: Whole, read: Read | None = None, sealed: FoldState | None = None
    ) -> None:
        """Lay out a session; `read` gives payloads that its facts do not hold themselves.

        `sealed` is what stands before these facts, where they are the end of a session only.
        """
        self.whole = whole
        self._sealed = sealed
        self.facts = whole.facts
        self._read = read
        self._name = event_ids(whole.uid)

    @cached_property
    def about(self) -> dict[str, JSON]:
        """What the records say of the session."""
        return about_of(self._sealed, self.whole) if self._sealed else self.whole.about

    def is_end_known(self) -> bool:
        """Return whether the rows at the end are those of the whole session.

        A subagent that no call on the line tells of stands at the very end. So of each subagent
        of a session that is here in part only, the call must be known.
        """
        if self._sealed is None:
            return True
        started = dict(self._started())
        calls = self._sealed.agent_calls | self._line_calls
        channels = {*self._sealed.sealed.channels, *self.channels}
        return all(started.get(channel) in calls for channel in channels)

    # -- payloads and names -------------------------------------------------------------

    def payload(self, block: Block) -> JSON:
        """Give what a block holds."""
        if block.payload is not None or block.ref is None or self._read is None:
            return block.payload
        return self._read(block.ref)

    def filled(self, block: Block) -> Block:
        """Give a block with its payload in its place."""
        if block.payload is not None or block.ref is None:
            return block
        return msgspec.structs.replace(block, payload=self.payload(block))

    def size_of(self, block: Block | None) -> int:
        """Give the bytes of a payload without reading it, where its ref tells them."""
        if block is None:
            return 0
        if block.ref is not None and block.ref.count(",") == 4:
            found = block.ref.split(",")[3]
            return int(found) if found.isdigit() else 0
        return len(format_facts.words_of(block)) if block.payload is not None else 0

    def event_id(self, place: int, block: int = 0) -> int:
        """Give the id of a block, as the store and the search know it."""
        return self._name(self.facts[place].node.id, block, 0)

    @cached_property
    def _events(self) -> dict[int, tuple[int, int]]:
        name = self._name
        return {
            name(fact.node.id, number, 0): (place, number)
            for place, fact in enumerate(self.facts)
            for number in range(len(fact.blocks))
        }

    def find(self, wanted: str) -> tuple[int, int] | None:
        """Find the block that an event's name means: `e` and the beginning of its id."""
        digits = wanted.removeprefix("e").lower()
        if not digits or len(digits) > 13 or not all(c in "0123456789abcdef" for c in digits):
            return None
        if len(digits) == 13:
            return self._events.get(int(digits, 16))
        low = int(digits.ljust(13, "0"), 16)
        high = int(digits.ljust(13, "f"), 16)
        return next((at for one, at in self._events.items() if low <= one <= high), None)

    # -- lines --------------------------------------------------------------------------

    @cached_property
    def line(self) -> list[int]:
        """The whole live line, compacted or not."""
        return self.whole.graph.chain(boundaries=False)

    @cached_property
    def order(self) -> dict[int, int]:
        """How far along the line each fact stands."""
        return {place: at for at, place in enumerate(self.line)}

    @cached_property
    def turns(self) -> dict[int, int]:
        """The prompts of the live line, numbered."""
        prompts = (place for place in self.line if self.facts[place].node.flags & Is.PROMPT)
        before = self._sealed.turns if self._sealed else 0
        return {place: number for number, place in enumerate(prompts, before + 1)}

    @cached_property
    def state(self) -> TurnState:
        """Where the last turn stands, as far as the log tells."""
        return self.whole.turn().state

    @cached_property
    def open_calls(self) -> frozenset[str]:
        """Calls that may still be at work: of the last turn, with nobody saying anything since."""
        now = self.whole.turn()
        if now.state not in (TurnState.RUNNING, TurnState.WAITING):
            return frozenset()
        late: set[str] = set()
        for place in reversed(self.line):
            node = self.facts[place].node
            if node.flags & Is.PROMPT:
                break
            late.update(node.calls)
        return frozenset(now.open_calls) & late

    # -- rows ---------------------------------------------------------------------------

    @cached_property
    def rows(self) -> list[Row]:
        """The rows of the page: the live line, what was compacted folded into its boundary."""
        return self._main[0]

    @cached_property
    def bounds(self) -> list[Bound]:
        """The compactions and cleared contexts of the live line, each with what it folds."""
        return self._main[1]

    @cached_property
    def every_row(self) -> list[Row]:
        """The rows of the whole line, folded ones in their place."""
        if not self.bounds:
            return self.rows
        out: list[Row] = []
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
    def by_kind(self) -> dict[RowKind, list[Row]]:
        """The same rows, by what they are."""
        out: dict[RowKind, list[Row]] = {}
        for row in self.every_row:
            out.setdefault(row.kind, []).append(row)
        return out

    @cached_property
    def _main(self) -> tuple[list[Row], list[Bound]]:
        shown = self.whole.graph.chain()
        seen = set(shown)
        sums = [p for p in shown if self.facts[p].node.flags & (Is.SUMMARY | Is.CLEARS)]
        if not sums or all(place in seen for place in self.line):
            rows = [*self._parted_rows(-1), *self.rows_of(self.line)]
            return rows + self._loose(), []
        bounds: list[Bound] = []
        out: list[Row] = []
        fold: list[int] = []
        for place in self.line:  # up to what is in force: each folds what led to it
            flags = self.facts[place].node.flags
            if flags & (Is.SUMMARY | Is.CLEARS):
                out += self._folded(place, fold, bounds)
                fold = []
                if place == sums[0]:
                    break
            if not flags & Is.SUMMARY and place not in seen:
                fold.append(place)
        # What was kept stands after the summary, as the model sees it.
        summary = sums[0] if self.facts[sums[0]].node.flags & Is.SUMMARY else -1
        out += self.rows_of(place for place in shown if place != summary)
        return out + self._loose(), bounds

    def _folded(self, place: int, fold: list[int], bounds: list[Bound]) -> list[Row]:
        """Make the row of a boundary; what was asked first of all stays in sight."""
        rows = self.rows_of(fold)
        lead: list[Row] = []
        if not bounds:
            rows = [*self._parted_rows(-1), *rows]
            if rows and rows[0].kind == "prompt":
                lead, rows = rows[:1], rows[1:]
        bounds.append(Bound(place, rows, fold))
        if self.clears(place):  # a row of its own; the prompt has another one, with its branches
            return [*lead, Row("boundary", place, self._last_block(place), len(bounds) - 1)]
        after = self._parted_rows(place)
        return [*lead, Row("boundary", place, 0, len(bounds) - 1), *after]

    def clears(self, place: int) -> bool:
        """Return whether the context was cleared at a place of the line."""
        return bool(self.facts[place].node.flags & Is.CLEARS)

    def _last_block(self, place: int) -> int:
        return max(len(self.facts[place].blocks) - 1, 0)

    def rows_of(self, places: Iterable[int], *, parted: bool = True) -> list[Row]:
        """Give the rows of a run of facts, and what parted from it where it did."""
        out: list[Row] = []
        states, off = self.whole.states, self._parted if parted else {}
        copies: list[int] = []
        for place in places:
            if states[place] is State.REPLAYED and parted:
                copies.append(place)
                continue
            if copies:
                out.append(self._copied(copies))
                copies = []
            out += self._fact_rows(place)
            if place in off:
                out += self._parted_rows(place)
        if copies:
            out.append(self._copied(copies))
        return out

    @cached_property
    def copies(self) -> list[list[int]]:
        """Runs of the line that were copied from the session that owns them."""
        return []

    def _copied(self, places: list[int]) -> Row:
        self.copies.append(places)
        return Row("copied", places[0], 0, len(self.copies) - 1)

    def _fact_rows(self, place: int) -> Iterator[Row]:
        fact = self.facts[place]
        flags = fact.node.flags
        if flags & Is.SUMMARY:
            yield Row("boundary", place)
            return
        if flags & Is.PROMPT:
            yield self._prompt(place, fact)
        for number, block in enumerate(fact.blocks):
            kind = self._kind(fact, block, prompt=bool(flags & Is.PROMPT))
            if kind is not None:
                yield Row(kind, place, number)

    def _prompt(self, place: int, fact: Fact) -> Row:
        """A prompt; one that corrects what was done before says so."""
        at = next((n for n, b in enumerate(fact.blocks) if b.kind == "user_msg"), 0)
        said = fact.blocks[at].summary if fact.blocks else ""
        wrong = self.turns.get(place, 0) > 1 and corrects(said) is not None
        return Row("correction" if wrong else "prompt", place, at)

    def _kind(self, fact: Fact, block: Block, *, prompt: bool) -> RowKind | None:
        """Say what a block is a row of; None when it is part of another one, or internal."""
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
        if fact.node.flags & Is.INTERRUPTS:
            return "stop"
        if block.role == "user" and kind in ("lifecycle", "user_msg"):
            return None if prompt and kind == "user_msg" else "note"
        return None

    def _call_kind(self, block: Block) -> RowKind:
        """Say what a call is: what it did, and if it went wrong that."""
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

    def row_places(self, row: Row) -> Sequence[int]:
        """Give the facts that a row folds."""
        if row.kind == "branch":
            return self.branches[row.number].events
        if row.kind == "copied":
            return self.copies[row.number]
        if row.kind == "boundary" and row.number >= 0:
            return self.bounds[row.number].places
        if row.kind == "agent":
            return self.channels[self.agents[self.facts[row.place].blocks[row.block].call or ""]]
        return (row.place,)

    # -- branches -----------------------------------------------------------------------

    @property
    def branches(self) -> list[Branch]:
        """The discarded branches."""
        return self.whole.graph.branches

    @cached_property
    def branch_origins(self) -> list[int]:
        """The fact of the live line that each branch parts from; -1 for no fact."""
        return list(self.whole.graph.parting(self.branches, self.order))

    @cached_property
    def _parted(self) -> dict[int, list[int]]:
        """Numbers of branches by the fact that they part from."""
        out: dict[int, list[int]] = {}
        for number, at in enumerate(self.branch_origins):
            out.setdefault(at, []).append(number)
        return out

    def _parted_rows(self, place: int) -> list[Row]:
        branches = self._parted.get(place, ())
        return [Row("branch", self.branches[n].start, 0, n) for n in branches]

    def branch_at(self, place: int) -> int | None:
        """Give the number of the branch that a fact is on."""
        return self._branch_home.get(place)

    @cached_property
    def _branch_home(self) -> dict[int, int]:
        return {place: n for n, one in enumerate(self.branches) for place in one.events}

    # -- calls --------------------------------------------------------------------------

    @cached_property
    def calls(self) -> dict[str, Call]:
        """How each call went, by its id; of a repeated one the first.

        Copies of other sessions' calls are among them.
        """
        told = format_facts.merge_statuses(self.facts)
        pairs = joins.calls(self.whole.events, self.whole.call_blocks, told, copies=True)
        out: dict[str, Call] = {}
        for pair in pairs:
            name, answer = pair.call.call, pair.result
            if name is None or name in out:
                continue
            at = self._events.get(answer.event_id) if answer is not None else None
            result = self.facts[at[0]].blocks[at[1]] if at is not None else None
            out[name] = Call(result, told.get(name), pair.outcome)
        return out

    # -- subagents ----------------------------------------------------------------------

    @cached_property
    def channels(self) -> dict[str, list[int]]:
        """The facts of each subagent that lies within the session."""
        out: dict[str, list[int]] = {}
        for place, fact in enumerate(self.facts):
            if fact.channel != "main":
                out.setdefault(fact.channel, []).append(place)
        return out

    @cached_property
    def agents(self) -> dict[str, str]:
        """Subagents of the session by the call that started them."""
        started = dict(self._started())
        return {call: channel for channel in self.channels if (call := started.get(channel, ""))}

    def _started(self) -> Iterator[tuple[str, str]]:
        for channel in self.channels:
            if call := word(self.about.get(channel)):
                yield channel, call
        for edge in self.whole.edges:
            if edge.link == "subagent" and edge.child and edge.call:
                yield edge.session, edge.call
        for fact in self.facts:
            if fact.type == "sidechain" and fact.blocks:
                told = self.payload(fact.blocks[0])
                if isinstance(told, dict):
                    yield word(told.get("agent_id")), word(told.get("tool_use_id"))

    @cached_property
    def children(self) -> dict[str, list[Edge]]:
        """Subagents that are sessions of their own, by the call that started them."""
        out: dict[str, list[Edge]] = {}
        for edge in self.whole.edges:
            if edge.child and edge.call and edge.session not in self.channels:
                out.setdefault(edge.call, []).append(edge)
        return out

    def agent_name(self, channel: str) -> str:
        """Name a subagent: by its type, where the log tells one."""
        told = word(self.about.get(f"{channel}:type"))
        return told or channel.removeprefix("agent:")

    @cached_property
    def adrift(self) -> list[str]:
        """Subagents of which no call on the line tells."""
        calls = self._line_calls | (self._sealed.agent_calls if self._sealed else frozenset())
        placed = {channel for call, channel in self.agents.items() if call in calls}
        return [channel for channel in self.channels if channel not in placed]

    @cached_property
    def _line_calls(self) -> set[str | None]:
        """The calls that are made on the line."""
        blocks = (block for place in self.line for block in self.facts[place].blocks)
        return {block.call for block in blocks if block.kind == "tool_call"}

    def _loose(self) -> list[Row]:
        return [Row("agent", self.channels[name][0], 0, at) for at, name in enumerate(self.adrift)]

    def channel_of(self, row: Row) -> str:
        """Give the channel of the subagent that a row is of."""
        if row.number >= 0:
            return self.adrift[row.number]
        return self.agents[self.facts[row.place].blocks[row.block].call or ""]

    # -- money --------------------------------------------------------------------------

    @cached_property
    def bills(self) -> dict[int, Usage]:
        """Every bill once, by the fact that carries it: the one with the highest output."""
        bills = self.whole.bills.items()
        return {at[0]: usage for event, usage in bills if (at := self._events.get(event))}

    def ticks(self, places: Iterable[int]) -> int:
        """Say what some facts cost; what has no price counts nothing."""
        bills, known = self.bills, self._ticks
        total = 0
        for place in places:
            if place in bills:
                if place not in known:
                    # A fact names time, model and rate as an event does.
                    event = cast("SessionEvent", self.facts[place])
                    known[place] = ticks_of(event, bills[place]) or 0
                total += known[place]
        return total

    @cached_property
    def _ticks(self) -> dict[int, int]:
        return {}

    @cached_property
    def weights(self) -> list[tuple[int, int]]:
        """What each bill of the line weighs, and how far along it stands.

        In money; where there are too many to be priced at once, in tokens as they are usually
        paid: an answer five times its question.
        """
        bills = sorted((self.order[p], p) for p in self.bills if p in self.order)
        if len(bills) <= _BATCH:
            return [(at, self.ticks((place,))) for at, place in bills]
        return [(at, _weight(self.bills[place])) for at, place in bills]

    @cached_property
    def contexts(self) -> list[tuple[int, int]]:
        """How much the model was given along the line: (how far, tokens)."""
        found = (
            (self.order[place], context_of(usage))
            for place, usage in self.bills.items()
            if place in self.order and self.facts[place].turn_bill is None
        )
        return sorted((at, size) for at, size in found if size)

    def turn_places(self, place: int) -> list[int]:
        """Give the facts of the turn that begins with a prompt of the line."""
        start = self.order.get(place)
        if start is None:
            return [place]
        end = self._next_turn.get(place, len(self.line))
        return self.line[start:end]

    @cached_property
    def _next_turn(self) -> dict[int, int]:
        prompts = list(self.turns)
        return {one: self.order[other] for one, other in pairwise(prompts)}

    def events_in(self, places: Iterable[int]) -> int:
        """Count the events of a run, book-keeping left out."""
        states, facts = self.whole.states, self.facts
        return sum(len(facts[p].blocks) for p in places if states[p] is not State.INTERNAL)

    def prompts_in(self, places: Iterable[int]) -> int:
        """Count the prompts of a run."""
        return sum(1 for place in places if self.facts[place].node.flags & Is.PROMPT)


def context_of(usage: Usage) -> int:
    """How much the model was given to read."""
    return usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens


def _is_picture(block: Block) -> bool:
    return isinstance(block.payload, dict) and block.payload.get("type") not in (None, "text")


def _weight(usage: Usage) -> int:
    read = usage.cache_read_input_tokens // 10
    return usage.input_tokens + usage.cache_creation_input_tokens + read + 5 * usage.output_tokens
