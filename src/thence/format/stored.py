"""Events as they are stored: each with all that was derived of it, once. Pure.

A stored event says what no reader needs to work out again: how a call went and which result it
got, which call a result belongs to, whether it carries a bill that counts, and the further events
that it implies. The fold makes them (`stored_events`), a store keeps them in pages, and readers
take ranges of them. They hold no payload.

`seq` grows in the order in which events were read, and stays. Numbers are `SEQ_STEP` apart, so
that derived events have theirs directly after the event that they come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from thence.format.copies import name_in
from thence.format.fact_assembly import MADE_RESULT
from thence.format.facts import Base, Fact, answers_of, calls_of
from thence.format.nodes import Node, Span
from thence.format.normal import (
    DERIVED,
    SEQ_STEP,
    Kind,
    SessionEvent,
    derive,
    event_ids,
    in_order,
    kind_bit,
)
from thence.format.outcomes import CallOutcome
from thence.format.records import JSON, Usage, text_of
from thence.format.tools import Effect

if TYPE_CHECKING:
    from thence.format.derived_events import Call
    from thence.format.session_graph import SessionGraph


_OF_CALLS = frozenset({"tool_call", "tool_result"})

OUTPUT_CHARS = 2_000
"""Characters of what a call returned that are stored where no result has them."""


class DerivedEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One event that another one implies."""

    kind: Kind
    summary: str
    failed: bool | None = None


class RecordLink(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How the record of an event is linked with others: all that a graph needs, and no more."""

    parent: str | None = None
    flags: int = 0
    response: str | None = None
    logical: str | None = None
    span: Span | None = None
    tip: str | None = None
    calls: tuple[str, ...] | None = None
    answers: tuple[str, ...] | None = None
    """Calls that the record makes or answers, where its events do not say the same."""
    origin: str | None = None
    """The session that owns the record, where the record itself names another one."""
    base: Base | None = None
    """What its log continues."""
    has_turn_bill: bool = False
    """Its bill is for a turn and says nothing of the size of the context."""
    is_piece: bool = False
    """It is a text that comes in pieces."""

    def node(self, native_id: str, calls: tuple[str, ...], answers: tuple[str, ...]) -> Node:
        """Return the record as a node of a graph; its events make and answer these calls."""
        return Node(
            native_id,
            self.parent,
            self.flags,
            calls if self.calls is None else self.calls,
            answers if self.answers is None else self.answers,
            self.response,
            self.logical,
            self.span,
            self.tip,
        )


class StoredEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event, and all that was derived of it."""

    event: SessionEvent
    """Without its payload; `seq` is None until a store has given it one."""
    file: str = ""
    line: int = 0
    """Where its record stands."""
    other: int | None = None
    """Of a call the event of its result, of a result the event of its call."""
    effect: Effect | None = None
    """What a call does, or a record of a file says was done."""
    outcome: CallOutcome | None = None
    """How a call went."""
    is_billed: bool = False
    """The event's usage counts; other records may repeat the same bill."""
    ticks: int | None = None
    """What that bill costs, in units of 1e-10 dollars; None where no price is known."""
    derived: tuple[DerivedEvent, ...] = ()
    link: RecordLink | None = None
    """Of the first event of a record: how the record is linked."""
    output: JSON = None
    """Of a call without a result, or a result without a record: what another record says."""
    has_borrowed_status: bool = False
    """Of a result: another record says whether the call failed, not the result itself."""

    @property
    def seq(self) -> int:
        """The event's number; -1 while it has none."""
        return -1 if self.event.seq is None else self.event.seq

    @property
    def usage(self) -> Usage | None:
        """The bill that counts, if the event carries one."""
        return self.event.usage if self.is_billed else None

    @property
    def implied(self) -> int:
        """The kinds of what is derived from it, as bits."""
        bits = 0
        for derived in self.derived:
            bits |= kind_bit(derived.kind)
        return bits

    @property
    def is_retry(self) -> bool:
        """Whether it is a call that tries again what had failed."""
        return any(derived.kind == "retry" for derived in self.derived)

    def derived_events(self) -> Iterator[SessionEvent]:
        """Yield the events that this one implies, numbered after it."""
        for derived in self.derived:
            yield derive(self.event, derived.kind, derived.summary, failed=derived.failed)


def stored_events(
    places: Iterable[tuple[Fact, Iterable[SessionEvent]]],
    calls: Iterable[Call],
    bills: Mapping[int, Usage],
    derived: Iterable[SessionEvent],
    *,
    payloads: bool = False,
) -> dict[int, StoredEvent]:
    """Return events with what is known of them, by their ids, in the order of `places`.

    `places` are records with their events; `calls`, `bills` and `derived` are of these events, and
    may be of others as well.
    """
    pairs: dict[int, Call] = {}
    asked: dict[int, int] = {}
    for pair in calls:
        pairs[pair.call.event_id] = pair
        if pair.result is not None:
            asked[pair.result.event_id] = pair.call.event_id
    implied: dict[int, list[DerivedEvent]] = {}
    for event in derived:
        if event.kind in DERIVED and event.derived_from is not None:
            made = DerivedEvent(event.kind, event.summary, event.failed)
            implied.setdefault(event.derived_from, []).append(made)
    out: dict[int, StoredEvent] = {}
    places = list(places)
    outputs = _outputs(fact for fact, _ in places)
    for fact, events in places:
        link: RecordLink | None = _link(fact)
        file = name_in(fact.file)
        for event in events:
            at = event.event_id
            asking = pairs.get(at)
            more = implied.get(at)
            out[at] = StoredEvent(
                event
                if payloads or event.payload is None
                else msgspec.structs.replace(event, payload=None),
                file,
                fact.line,
                _result_id(asking) if asking else asked.get(at),
                asking.effect if asking else _file_effect(fact, event),
                asking.outcome if asking else None,
                at in bills,
                None,
                tuple(sorted(more, key=_slot)) if more else (),
                link,
                _output(event, asking, outputs) if event.kind in _OF_CALLS else None,
                event.failed is not None
                and event.kind == "tool_result"
                and fact.blocks[event.block].failed is None,
            )
            link = None
    return out


def _output(event: SessionEvent, call: Call | None, outputs: Mapping[str, JSON]) -> JSON:
    """Return what a call returned where only another record than its result says so."""
    if call is not None:
        return outputs.get(event.call or "") if call.result is None else None
    is_made = event.kind == "tool_result" and event.native_id.startswith(MADE_RESULT)
    return shorten_output(event.payload) if is_made else None


def _link(fact: Fact) -> RecordLink:
    """Return how a record is linked."""
    node, blocks = fact.node, fact.blocks
    return RecordLink(
        node.parent,
        node.flags,
        node.response,
        node.logical,
        node.span,
        node.tip,
        None if calls_of(blocks) == node.calls else node.calls,
        None if answers_of(blocks) == node.answers else node.answers,
        fact.origin,
        fact.base,
        fact.turn_bill is not None,
        fact.piece is not None,
    )


def _outputs(facts: Iterable[Fact]) -> dict[str, JSON]:
    """Return what records say that calls returned, by the ids of the calls."""
    out: dict[str, JSON] = {}
    for fact in facts:
        for status in fact.told:
            if status.output is not None:
                out.setdefault(status.call, shorten_output(status.output))
    return out


def shorten_output(output: JSON) -> JSON:
    """Return as much of what a call returned as a list shows."""
    text = text_of(output) if isinstance(output, list) else output
    if not isinstance(text, str) or (text is output and len(text) <= OUTPUT_CHARS):
        return output
    return text[:OUTPUT_CHARS]


def _result_id(pair: Call) -> int | None:
    return pair.result.event_id if pair.result is not None else None


def _slot(derived: DerivedEvent) -> int:
    return DERIVED.index(derived.kind)


def _file_effect(fact: Fact, event: SessionEvent) -> Effect | None:
    """Return what a record of a file says was done."""
    return fact.blocks[event.block].effect if fact.type == "file" else None


def events_of_session(session: SessionGraph, *, payloads: bool = False) -> list[StoredEvent]:
    """Return all events of a session in the order in which they are read, not yet numbered.

    With `payloads` they hold theirs, where the facts do.
    """
    from thence.format.sealing import View

    view = View(session, ())
    places = [(session.facts[at], view.events[at]) for at in view.own]
    made = stored_events(
        [*places, *gone_places(session, view.rewritten)],
        (*session.copied_calls, *session.calls),
        session.bills,
        session.derived,
        payloads=payloads,
    )
    return [made[event.event_id] for event in in_order(session.events)]


def gone_places(
    session: SessionGraph, rewritten: Iterable[SessionEvent]
) -> Iterator[tuple[Fact, list[SessionEvent]]]:
    """Yield the records that a rewritten log no longer holds, with their events."""
    facts = {fact.node.id: fact for fact in session.gone}
    for event in rewritten:
        yield facts[event.native_id], [event]


def number_events(rows: Iterable[StoredEvent], last: int) -> list[StoredEvent]:
    """Return new events with the numbers that follow the last one; -1: there is none."""
    start = next_number(last)
    return [numbered_row(row, start + SEQ_STEP * at) for at, row in enumerate(rows)]


def next_number(last: int) -> int:
    """Return the number that follows the last one; -1: there is none."""
    return (last // SEQ_STEP + 1) * SEQ_STEP


def numbered_row(row: StoredEvent, seq: int) -> StoredEvent:
    """Return an event under a number."""
    return msgspec.structs.replace(row, event=msgspec.structs.replace(row.event, seq=seq))


# -- as bytes -------------------------------------------------------------------------------

_FIELDS = msgspec.structs.fields(SessionEvent)[1:]
_NAMES = [field.name for field in _FIELDS]
_ID, _PARENT, _SEQ = (_NAMES.index(name) for name in ("event_id", "parent_id", "seq"))
_NATIVE, _BLOCK, _REF = (_NAMES.index(name) for name in ("native_id", "block", "payload_ref"))
_CHANNEL, _MAIN = _NAMES.index("channel"), SessionEvent("", 0, "user_msg").channel
_REST = msgspec.structs.fields(StoredEvent)[1:]
_TICKS = [field.name for field in _REST].index("ticks")
_AS_BEFORE, _AS_NAMED = -1, -1
"""In the place of a parent or a number: the event before it; of an id: made of the record's."""

_ENCODER = msgspec.msgpack.Encoder()


def _decoder() -> msgspec.msgpack.Decoder[list[tuple[tuple[Any, ...], tuple[Any, ...]]]]:
    """Return what reads rows as `encode_events` writes them: fields in their order."""
    event = tuple.__class_getitem__(tuple(field.type for field in _FIELDS))
    rest = tuple.__class_getitem__(tuple(field.type for field in _REST))
    row: Any = tuple.__class_getitem__((event, rest))
    return msgspec.msgpack.Decoder(list[row])


_DECODER = _decoder()


def _ref_decoder() -> msgspec.msgpack.Decoder[list[Any]]:
    """Return what reads of each row the number and the ref; what follows them costs nothing.

    Numbers are read as such: most are the same one, of which there is but one object.
    """
    fields: list[tuple[str, Any]] = [(f.name, msgspec.Raw) for f in _FIELDS[: _REF + 1]]
    for at in (_ID, _PARENT, _SEQ, _REF):
        fields[at] = (_NAMES[at], _FIELDS[at].type)
    start = msgspec.defstruct("EventStart", fields, array_like=True, gc=False)
    row: Any = msgspec.defstruct("RowStart", [("event", start)], array_like=True, gc=False)
    return msgspec.msgpack.Decoder(list[row])


_REF_DECODER = _ref_decoder()
_RAW_DECODER = msgspec.msgpack.Decoder(list[msgspec.Raw])


def encode_events(uid: str, rows: Iterable[StoredEvent], first: int | None = None) -> bytes:
    """Return events of one session as bytes; what follows from the others is left out.

    With `first` they are numbered from there on, whatever their own numbers are.
    """
    return _ENCODER.encode(_row_values(uid, rows, first))


def change_encoded(
    uid: str,
    body: bytes,
    altered: Mapping[int, StoredEvent],
    new: Iterable[StoredEvent],
    first: int,
) -> bytes:
    """Return encoded events with others in some places, and new ones, numbered, after all.

    Those that stay are neither decoded nor encoded again. An event that takes the place of one has
    its id and its number, so that what the next one leaves out still follows from it.
    """
    rows: list[Any] = _RAW_DECODER.decode(body)
    for place, row in altered.items():
        [rows[place]] = _row_values(uid, [row])
    return _ENCODER.encode([*rows, *_row_values(uid, new, first)])


def _row_values(uid: str, rows: Iterable[StoredEvent], first: int | None = None) -> list[Any]:
    """Return events as they are written, the first one in full."""
    name = event_ids(uid)
    out: list[tuple[list[Any], tuple[Any, ...]]] = []
    before, last = None, None
    for row in rows:
        event, rest = _values(row)
        if first is not None:
            event[_SEQ], first = first, first + SEQ_STEP
        at, seq = event[_ID], event[_SEQ]
        if event[_PARENT] == before and before is not None:
            event[_PARENT] = _AS_BEFORE
        if last is not None and seq == last + SEQ_STEP:
            event[_SEQ] = _AS_BEFORE
        if name(event[_NATIVE], event[_BLOCK], 0) == at:
            event[_ID] = _AS_NAMED
        out.append((event, rest))
        before, last = at, seq
    return out


def decode_events(uid: str, body: bytes) -> list[StoredEvent]:
    """Return the events of a session that `encode_events` was given."""
    name = event_ids(uid)
    out: list[StoredEvent] = []
    before, last = 0, 0
    for values, rest in _DECODER.decode(body):
        event = list(values)
        if event[_ID] == _AS_NAMED:
            event[_ID] = name(event[_NATIVE], event[_BLOCK], 0)
        if event[_PARENT] == _AS_BEFORE:
            event[_PARENT] = before
        if event[_SEQ] == _AS_BEFORE:
            event[_SEQ] = last + SEQ_STEP
        before, last = event[_ID], event[_SEQ]
        if event[_CHANNEL] == "main":  # the default itself, which is left out of JSON
            event[_CHANNEL] = _MAIN
        out.append(StoredEvent(SessionEvent(uid, *event), *rest))
    return out


def decode_refs(body: bytes) -> dict[int, str | None]:
    """Return where payloads lie, by the numbers of their events; a tenth of the work of all."""
    refs: dict[int, str | None] = {}
    last = 0
    for row in _REF_DECODER.decode(body):
        event = row.event
        last = last + SEQ_STEP if event.seq == _AS_BEFORE else event.seq
        refs[last] = event.payload_ref
    return refs


def fingerprint(row: StoredEvent, *, with_ref: bool = True) -> int:
    """Return a hash over all that an event says, its number and its price left out: 63 bits.

    Without `with_ref` it is the same wherever the payload lies.
    """
    event, rest = _values(row)
    event[_SEQ] = None
    if not with_ref:
        event[_REF] = None
    content = (event, rest[:_TICKS], rest[_TICKS + 1 :])
    try:
        body = _ENCODER.encode(content)
    except (UnicodeEncodeError, OverflowError):  # of facts that no store has cleaned
        body = repr(content).encode("utf-8", "backslashreplace")
    return int.from_bytes(blake2b(body, digest_size=8).digest(), "big") >> 1


def _values(row: StoredEvent) -> tuple[list[Any], tuple[Any, ...]]:
    return list(msgspec.structs.astuple(row.event)[1:]), msgspec.structs.astuple(row)[1:]
