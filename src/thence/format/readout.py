"""A session read out of its stored events: records, their graph, calls with results, bills. Pure.

Every reader works on this, whether the events come from a store or were just folded from a file:
what was derived stands in the events and is looked up here, never decided again. Payloads are read
one by one when somebody asks for them. The order of records is the order in which they were
written, as in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from thence.format import repair, spills
from thence.format.derived_events import Call, Spent
from thence.format.fact_assembly import MADE_RESULT
from thence.format.facts import Edge, Fact, full_output
from thence.format.graph import Graph, State
from thence.format.nodes import Is, Node
from thence.format.normal import Session, SessionEvent, event_ids
from thence.format.outcomes import CallOutcome
from thence.format.records import JSON, Usage, word
from thence.format.session_graph import REWRITTEN
from thence.format.stored import RecordLink, StoredEvent
from thence.format.tools import Effect
from thence.format.turn import TurnNow, begins_turn, running_calls, turn_of

if TYPE_CHECKING:
    from thence.format.fold import FoldState

ReadPayload = Callable[[str], JSON]
"""Returns the payload that a ref leads to."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record of a log: its node in the graph, its events, and what was derived of them."""

    node: Node
    rows: tuple[StoredEvent, ...]
    blocks: tuple[SessionEvent, ...]

    @property
    def id(self) -> str:
        """The id that the log gives it."""
        return self.node.id

    @property
    def link(self) -> RecordLink:
        """How it is linked with others."""
        return self.rows[0].link or RecordLink()

    @property
    def state(self) -> State:
        """What became of it."""
        return self.blocks[0].state or State.LIVE

    @property
    def is_prompt(self) -> bool:
        """Whether a human said it, on whatever branch."""
        return bool(self.node.flags & Is.PROMPT)

    @property
    def begins_turn(self) -> bool:
        """Whether a turn of the session begins with it."""
        return begins_turn(self.node, self.state)

    @property
    def type(self) -> str:
        """What its writer calls it."""
        return self.blocks[0].native_type

    @property
    def ts(self) -> str | None:
        """When it was written."""
        return self.blocks[0].ts

    @property
    def channel(self) -> str:
        """The subagent that wrote it, or `main`."""
        return self.blocks[0].channel

    @property
    def model(self) -> str | None:
        """The model that responded."""
        return self.blocks[0].model

    @property
    def usage(self) -> Usage | None:
        """The bill that it carries and that counts."""
        return self.rows[0].usage

    @property
    def ticks(self) -> int:
        """What its bill costs, in units of 1e-10 dollars; 0 where no price is known."""
        return self.rows[0].ticks or 0


class SessionHead(msgspec.Struct, frozen=True):
    """What is known of a session as a whole."""

    session: Session
    title: str | None = None
    torn: bool = False
    edges: tuple[Edge, ...] = ()
    spent: Spent = Spent()
    lower_bound: tuple[str, ...] = ()
    """Why the total is a lower bound."""
    agents: Mapping[str, tuple[str, str]] = {}
    """Of each subagent the call that started it, and its type, as far as the log tells."""
    pull_request: str | None = None
    """The link to the pull request that its client noted for it."""

    @property
    def portable_session(self) -> Session:
        """The session without what only this machine knows of it."""
        return msgspec.structs.replace(self.session, **_LOCAL_FIELDS)


_LOCAL_FIELDS = {
    field.name: field.default
    for field in msgspec.structs.fields(Session)
    if field.name in {"repo", "domain", "outcome", "task_ref"}
    or field.name.startswith("source_")
    or field.name in {"discovered_at", "ingested_at", "analyzed_at", "evicted_at"}
}
"""Fields of a session that no log tells, with their defaults."""


class ReadoutPart(msgspec.Struct, frozen=True):
    """The part of a line that stands in one session of a lineage."""

    session: Readout
    places: list[int]

    @property
    def messages(self) -> int:
        """How many messages it holds: blocks of one side in sequence are one."""
        return count_messages(self.session.records[at] for at in self.places)


def count_messages(records: Iterable[Record]) -> int:
    """Return how many messages records hold: blocks of one side in sequence are one."""
    roles = [
        "assistant" if block.role == "assistant" else "user"
        for record in records
        if not record.node.flags & Is.SIDE
        for block in record.blocks
        if block.role != "system"
    ]
    return sum(1 for at, role in enumerate(roles) if not at or role != roles[at - 1])


class Readout:
    """One session, or the end of one. Everything is worked out once, when first asked for."""

    def __init__(
        self,
        uid: str,
        rows: Iterable[StoredEvent],
        head: SessionHead,
        *,
        read: ReadPayload | None = None,
        anchors: Mapping[str, Node] | None = None,
        events: Mapping[int, SessionEvent] | None = None,
        line: Callable[[int | None, bool], list[ReadoutPart] | None] | None = None,
        graph: Graph | None = None,
    ) -> None:
        """Read out a session from its events.

        `read` returns payloads that the events only refer to. Of the end of a session `anchors`
        are the nodes of the records that it begins with. `events` hold payloads, by the ids of
        events, where these are at hand. `line` returns the line to a place with its parts in the
        sessions that this one continues, compactions applied or not; None if it continues none.
        `graph` is one that was made before, of the same records where nothing came in between.
        """
        self.uid = uid
        self.head = head
        self._read = read
        self._line = line
        self._made_graph = graph
        self.rewritten: list[StoredEvent] = []
        """What a log held before it was rewritten, and holds no more."""
        self.records = self._records(rows, anchors or {}, events or {})
        """All other records, in written order."""

    def _records(
        self,
        rows: Iterable[StoredEvent],
        anchors: Mapping[str, Node],
        events: Mapping[int, SessionEvent],
    ) -> list[Record]:
        begun: dict[str, list[StoredEvent]] = {}
        groups: list[list[StoredEvent]] = []
        for row in rows:
            if row.event.why == REWRITTEN:
                self.rewritten.append(row)
            elif row.link is not None:
                begun[row.event.native_id] = group = [row]
                groups.append(group)
            else:
                begun[row.event.native_id].append(row)
        if not _share_lines(groups):
            groups.sort(key=lambda group: (group[0].file, group[0].line))
        return [_record(group, anchors, events) for group in groups]

    @property
    def native(self) -> str:
        """The id the session has in its agent's own world."""
        return self.uid.partition(":")[2]

    @property
    def title(self) -> str | None:
        """The session's name."""
        return self.head.title

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Ties to other sessions."""
        return self.head.edges

    # -- payloads and names -------------------------------------------------------------

    def payload(self, event: SessionEvent) -> JSON:
        """Return what an event holds."""
        if event.payload is not None or event.payload_ref is None or self._read is None:
            return event.payload
        return self._read(event.payload_ref)

    def with_payload(self, event: SessionEvent) -> SessionEvent:
        """Return an event with its payload in its place."""
        if event.payload is not None or event.payload_ref is None:
            return event
        return msgspec.structs.replace(event, payload=self.payload(event))

    def event_id(self, place: int, block: int = 0) -> int:
        """Return the id of an event by its record and its block there."""
        return self.records[place].blocks[block].event_id

    @cached_property
    def event_places(self) -> dict[int, tuple[int, int]]:
        """Record and block of each event, by its id."""
        return {
            event.event_id: (place, number)
            for place, record in enumerate(self.records)
            for number, event in enumerate(record.blocks)
        }

    # -- the graph ----------------------------------------------------------------------

    @cached_property
    def graph(self) -> Graph:
        """All records, linked."""
        nodes, made = [record.node for record in self.records], self._made_graph
        return made if made is not None and made.nodes == nodes else Graph(nodes)

    @cached_property
    def states(self) -> list[State]:
        """One state per record."""
        return [record.state for record in self.records]

    @cached_property
    def turns(self) -> list[int]:
        """The records with which the turns of the session begin, in the order of the live line."""
        records = self.records
        return [at for at in self.graph.chain(boundaries=False) if records[at].begins_turn]

    def turn(self) -> TurnNow:
        """Return where the last turn stands."""
        return self._turn

    @cached_property
    def running_calls(self) -> tuple[str, ...]:
        """The open calls of a turn that goes on, as far as the log tells."""
        return running_calls(self.graph, self.turn())

    @cached_property
    def _turn(self) -> TurnNow:
        return turn_of(self.graph, torn=self.head.torn, records=self.records)

    def line(self, to: int | None = None, *, boundaries: bool = True) -> list[ReadoutPart]:
        """Return the live line, or the line to a place: first what stands in other sessions."""
        parts = self._line(to, boundaries) if self._line is not None else None
        if parts is None:
            return [ReadoutPart(self, self.graph.chain(to, boundaries=boundaries))]
        return parts

    def inherited(self, to: int | None = None, *, boundaries: bool = True) -> list[ReadoutPart]:
        """Return what stands on the line in the sessions that this one continues, oldest first."""
        parts = self._line(to, boundaries) if self._line is not None else None
        return [part for part in parts or () if part.session is not self]

    @cached_property
    def channels(self) -> dict[str, list[int]]:
        """The records of each subagent that lies within the session."""
        out: dict[str, list[int]] = {}
        for place, record in enumerate(self.records):
            if record.channel != "main":
                out.setdefault(record.channel, []).append(place)
        return out

    @cached_property
    def children(self) -> dict[str, list[Edge]]:
        """Subagents that are sessions of their own, by the call that started them."""
        out: dict[str, list[Edge]] = {}
        for edge in self.edges:
            if edge.child and edge.call and edge.session not in self.channels:
                out.setdefault(edge.call, []).append(edge)
        return out

    def count_events(self, places: Iterable[int]) -> int:
        """Count the events of some records, book-keeping left out."""
        records = (self.records[place] for place in places)
        return sum(len(r.blocks) for r in records if r.state is not State.INTERNAL)

    def started_by(self) -> dict[str, str]:
        """Return which call started which subagent, as the logs say it."""
        out = {channel: call for channel, (call, _) in self.head.agents.items()}
        for edge in self.edges:
            if edge.link == "subagent" and edge.child and edge.call:
                out[edge.session] = edge.call
        for record in self.records:
            if record.type == "sidechain":
                payload = self.payload(record.blocks[0])
                if isinstance(payload, dict) and (call := word(payload.get("tool_use_id"))):
                    out[word(payload.get("agent_id"))] = call
        return out

    # -- messages -----------------------------------------------------------------------

    def messages(
        self,
        orphans: repair.Orphans = "answer",
        *,
        to: int | None = None,
        own: bool = False,
        full: bool = False,
    ) -> repair.Mended:
        """Return the live line, or the line to one record, as messages that the API accepts.

        With `own` only what this session says itself, without those that it continues. With
        `full` results hold again what was moved to side files, as far as it is stored.
        """
        parts = [ReadoutPart(self, self.graph.chain(to))] if own else self.line(to)
        out: list[JSON] = []
        for part in parts:
            for record in (part.session.records[at] for at in part.places):
                is_left_out = record.node.flags & (Is.SIDE | Is.REPLAYED if own else Is.SIDE)
                out += [] if is_left_out else part.session.messages_in(record)
        mended = repair.mend(out, orphans, repair.no_result_yet(self.running_calls))
        if full and (texts := self.outputs_by_name()):
            messages = spills.inline_known(mended.messages, texts)
            mended = msgspec.structs.replace(mended, messages=messages)
        return mended

    def messages_in(self, record: Record) -> list[JSON]:
        """Return the messages of a record: blocks of one side together, those of no side not."""
        out: list[JSON] = []
        for row, event in zip(record.rows, record.blocks, strict=True):
            if event.role == "system" or (block := self._api_block(row, event)) is None:
                continue
            role = "assistant" if event.role == "assistant" else "user"
            if out and out[-1]["role"] == role:
                out[-1]["content"].append(block)
            else:
                out.append({"role": role, "content": [block]})
                if role == "assistant" and record.node.response is not None:
                    out[-1]["id"] = record.node.response
        return out

    def _api_block(self, row: StoredEvent, event: SessionEvent) -> JSON:
        """Return an event as the Messages API has it; None when it is nothing the model sees."""
        payload = self.payload(event)
        if event.kind == "tool_call":
            return {"type": "tool_use", "id": event.call, "name": event.tool, "input": payload}
        if event.kind == "tool_result":
            out = {"type": "tool_result", "tool_use_id": event.call, "content": payload}
            is_untold = event.failed is None or row.has_borrowed_status
            return out if is_untold else {**out, "is_error": event.failed}
        if isinstance(payload, dict):
            return payload
        return {"type": "text", "text": payload} if isinstance(payload, str) else None

    def outputs_by_name(self) -> dict[str, str]:
        """Return results that lie in side files of ours, by their names; inherited ones too."""
        sessions = [part.session for part in self.inherited(boundaries=False)]
        return spills.texts(
            note.payload for session in (*sessions, self) for note in session.output_notes()
        )

    def outputs_by_call(self) -> dict[str, str]:
        """Return all that calls gave whose results in the log are a part, by the calls' ids."""
        notes = ((note.call, full_output(note)) for note in self.output_notes())
        return {call: text for call, text in notes if call and text}

    def output_notes(self) -> Iterator[SessionEvent]:
        """Yield the notes that may hold the output of a call, with their payloads."""
        for record in self.records:
            for event in record.blocks:
                if event.kind == "lifecycle" and (event.call or event.summary == spills.NOTE):
                    yield self.with_payload(event)

    # -- events -------------------------------------------------------------------------

    @cached_property
    def rows(self) -> list[StoredEvent]:
        """All events in written order, what was rewritten away last."""
        return [*(row for record in self.records for row in record.rows), *self.rewritten]

    @cached_property
    def events(self) -> list[SessionEvent]:
        """The same without what was derived of them, with payloads where these are at hand."""
        blocks = (block for record in self.records for block in record.blocks)
        return [*blocks, *(row.event for row in self.rewritten)]

    @property
    def numbers(self) -> dict[int, int]:
        """The numbers that events have, by their ids."""
        return {row.event.event_id: row.seq for row in self.rows}

    @cached_property
    def _by_id(self) -> dict[int, SessionEvent]:
        return {event.event_id: event for event in self.events}

    @cached_property
    def calls(self) -> list[Call]:
        """All calls with their results, in written order; copies are not among them."""
        return [call for call in self.every_call if call.call.state is not State.REPLAYED]

    @cached_property
    def every_call(self) -> list[Call]:
        """The same, and the calls of records that are copies of another session's."""
        return [self._call(row) for row in self.rows if row.outcome is not None]

    def _call(self, row: StoredEvent) -> Call:
        return Call(
            self._by_id[row.event.event_id],
            self._by_id.get(row.other) if row.other is not None else None,
            row.effect or Effect(),
            row.outcome or CallOutcome(),
        )

    @cached_property
    def effects(self) -> dict[int, Effect]:
        """What calls do, and what records say was done to files, by the ids of their events."""
        return {row.event.event_id: row.effect for row in self.rows if row.effect is not None}

    def effect(self, event: SessionEvent) -> Effect:
        """Return what a call does."""
        return self.effects.get(event.event_id) or Effect()

    @cached_property
    def calls_by_name(self) -> dict[str, Call]:
        """All calls by their id in the log; of a repeated one the first."""
        out: dict[str, Call] = {}
        for call in self.every_call:
            if call.call.call is not None:
                out.setdefault(call.call.call, call)
        return out

    def derived(self) -> Iterator[SessionEvent]:
        """Yield the events that others imply."""
        for row in self.rows:
            yield from row.derived_events()

    def along(self, places: Iterable[int]) -> list[StoredEvent]:
        """Return the events of some records in their order, without internal ones."""
        return [
            row
            for at in places
            for row in self.records[at].rows
            if row.event.state != State.INTERNAL
        ]

    def events_along(self, places: Iterable[int]) -> Iterator[SessionEvent]:
        """Yield the events of some records with their payloads, without internal ones."""
        for at in places:
            for event in self.records[at].blocks:
                if event.state != State.INTERNAL:
                    yield self.with_payload(event)

    def inherited_events(self, to: int | None = None, *, boundaries: bool) -> list[StoredEvent]:
        """Return the events of a line that stand in the sessions which this one continues."""
        parts = self.inherited(to, boundaries=boundaries)
        return [row for part in parts for row in part.session.along(part.places)]


def read_window(
    uid: str,
    state: FoldState,
    fetch: Callable[[Sequence[int]], Iterable[StoredEvent]],
    head: SessionHead,
    *,
    read: ReadPayload | None = None,
) -> Readout:
    """Return the end of a session: the events of its fold's window and those that it begins with.

    `fetch` returns the stored events with some ids.
    """
    anchors = {fact.node.id: fact.node for fact in state.anchors}
    ids = [*anchor_events(uid, state.anchors), *state.rows]
    return Readout(uid, fetch(ids), head, read=read, anchors=anchors)


def anchor_events(uid: str, anchors: Iterable[Fact]) -> list[int]:
    """Return the ids of the events of the records that a window continues."""
    name = event_ids(uid)
    return [name(fact.node.id, at, 0) for fact in anchors for at in range(len(fact.blocks))]


def _share_lines(groups: Iterable[Sequence[StoredEvent]]) -> bool:
    """Whether records of different places stand on the same lines.

    Then only the order in which they come, that of their numbers, is the order of the session.
    """
    firsts = [group[0] for group in groups]
    if len({(first.file, first.line) for first in firsts}) == len(firsts):
        return False  # as nearly always
    seen: set[tuple[str, int]] = set()
    before: tuple[str, int] | None = None
    for first in firsts:
        line = first.file, first.line
        if line == before or first.event.native_id.startswith(MADE_RESULT):
            continue  # read from one line
        if line in seen:
            return True
        seen.add(line)
        before = line
    return False


def _record(
    rows: Sequence[StoredEvent], anchors: Mapping[str, Node], events: Mapping[int, SessionEvent]
) -> Record:
    blocks = tuple([events.get(row.event.event_id) or _event(row) for row in rows])
    first = blocks[0]
    node = anchors.get(first.native_id)
    if node is None:
        link = rows[0].link or RecordLink()
        calls, answers = _calls(blocks, "tool_call"), _calls(blocks, "tool_result")
        node = link.node(first.native_id, calls, answers)
    flags = node.flags | (Is.SIDE if first.channel != "main" else 0)
    flags |= Is.REPLAYED if first.state is State.REPLAYED else 0
    if flags != node.flags:
        node = msgspec.structs.replace(node, flags=flags)
    return Record(node, tuple(rows), blocks)


def _event(row: StoredEvent) -> SessionEvent:
    event = row.event
    if row.output is None or event.kind != "tool_result" or event.payload is not None:
        return event
    return msgspec.structs.replace(event, payload=row.output)


def _calls(blocks: Sequence[SessionEvent], kind: str) -> tuple[str, ...]:
    if len(blocks) == 1 and blocks[0].kind != kind:  # as in nearly every log
        return ()
    return tuple([b.call for b in blocks if b.kind == kind and b.call is not None])
