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

from thence.format.kinds import Effect
from thence.format.normal import (
    DERIVED,
    Kind,
    SessionEvent,
    derived_id,
    in_order,
    kind_bit,
)
from thence.format.outcomes import CallOutcome
from thence.format.records import Usage

if TYPE_CHECKING:
    from thence.format.facts import Fact
    from thence.format.joins import Call
    from thence.format.whole import Whole

SEQ_STEP = 16
"""Between the numbers of two events that were read; more than an event can imply others."""


class DerivedEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One event that another one implies."""

    kind: Kind
    summary: str
    failed: bool | None = None


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
        for one in self.derived:
            bits |= kind_bit(one.kind)
        return bits

    def derived_events(self) -> Iterator[SessionEvent]:
        """Yield the events that this one implies, numbered after it."""
        base = self.event
        for one in self.derived:
            seq = None if base.seq is None else base.seq + 1 + DERIVED.index(one.kind)
            yield SessionEvent(
                base.session_uid,
                derived_id(base.session_uid, one.kind, base.event_id),
                one.kind,
                base.event_id,
                seq,
                base.seq,
                base.ts,
                base.role,
                base.tool,
                one.summary,
                is_sidechain=base.is_sidechain,
                channel=base.channel,
                state=base.state,
                derived_from=base.event_id,
                native_id=base.native_id,
                call=base.call,
                failed=one.failed,
            )


def stored_events(
    places: Iterable[tuple[Fact, Iterable[SessionEvent]]],
    calls: Iterable[Call],
    bills: Mapping[int, Usage],
    derived: Iterable[SessionEvent],
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
    for fact, events in places:
        for event in events:
            at = event.event_id
            pair = pairs.get(at)
            more = implied.get(at)
            out[at] = StoredEvent(
                event if event.payload is None else msgspec.structs.replace(event, payload=None),
                fact.file,
                fact.line,
                (pair.result.event_id if pair.result else None) if pair else asked.get(at),
                pair.effect if pair else _file_effect(fact, event),
                pair.outcome if pair else None,
                at in bills,
                None,
                tuple(sorted(more, key=_slot)) if more else (),
            )
    return out


def _slot(one: DerivedEvent) -> int:
    return DERIVED.index(one.kind)


def _file_effect(fact: Fact, event: SessionEvent) -> Effect | None:
    """Return what a record of a file says was done."""
    return fact.blocks[event.block].effect if fact.type == "file" else None


def events_of_session(whole: Whole) -> list[StoredEvent]:
    """Return all events of a session in the order in which they are read, not yet numbered."""
    from thence.format.sealing import View

    view = View(whole, ())
    places = [(whole.facts[at], view.events[at]) for at in view.own]
    made = stored_events(
        [*places, *gone_places(whole, view.rewritten)], whole.calls, whole.bills, whole.derived
    )
    return [made[event.event_id] for event in in_order(whole.events)]


def gone_places(
    whole: Whole, rewritten: Iterable[SessionEvent]
) -> Iterator[tuple[Fact, list[SessionEvent]]]:
    """Yield the records that a rewritten log no longer holds, with their events."""
    facts = {fact.node.id: fact for fact in whole.gone}
    for event in rewritten:
        yield facts[event.native_id], [event]


def number_events(rows: Iterable[StoredEvent], last: int) -> list[StoredEvent]:
    """Return new events with the numbers that follow the last one; -1: there is none."""
    start = (last // SEQ_STEP + 1) * SEQ_STEP
    return [numbered_row(row, start + SEQ_STEP * at) for at, row in enumerate(rows)]


def numbered_row(row: StoredEvent, seq: int) -> StoredEvent:
    """Return an event under a number."""
    return msgspec.structs.replace(row, event=msgspec.structs.replace(row.event, seq=seq))


# -- as bytes -------------------------------------------------------------------------------

_FIELDS = msgspec.structs.fields(SessionEvent)[1:]
_SEQ = [field.name for field in _FIELDS].index("seq")
_Values = tuple[tuple(field.type for field in _FIELDS)]  # type: ignore[misc]
_REST = msgspec.structs.fields(StoredEvent)[1:]
_Stored = tuple[_Values, tuple[tuple(field.type for field in _REST)]]  # type: ignore[valid-type,misc]
_ENCODER = msgspec.msgpack.Encoder()
_PAGE = msgspec.msgpack.Decoder(list[_Stored])


def encode_events(rows: Iterable[StoredEvent]) -> bytes:
    """Return events of one session as bytes."""
    return _ENCODER.encode([_values(row) for row in rows])


def decode_events(uid: str, body: bytes) -> list[StoredEvent]:
    """Return the events of a session that `encode_events` was given."""
    return [StoredEvent(SessionEvent(uid, *event), *rest) for event, rest in _PAGE.decode(body)]


def fingerprint(row: StoredEvent) -> int:
    """Return a hash over all that an event says, its number and its price left out: 63 bits."""
    event, rest = _values(row)
    body = _ENCODER.encode(((*event[:_SEQ], None, *event[_SEQ + 1 :]), rest[:6], rest[7:]))
    return int.from_bytes(blake2b(body, digest_size=8).digest(), "big") >> 1


def _values(row: StoredEvent) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    values = msgspec.structs.astuple(row)
    return msgspec.structs.astuple(row.event)[1:], values[1:]
