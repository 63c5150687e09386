"""The events of a session in pages, whatever database holds them.

A page has up to `PAGE_EVENTS` stored events in the order of their numbers, compressed, under the
number of its first one. A range of a session is read page by page; new and altered events change
the pages at the end. What another version of the fold wrote is not read: such a session's events
are derived from its facts until the next sweep has written them again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec
import zstandard

from thence.format import derived_events, fold
from thence.format.normal import KINDS, SEQ_STEP
from thence.format.session_graph import SessionGraph
from thence.format.stored import (
    StoredEvent,
    change_encoded,
    decode_events,
    decode_refs,
    encode_events,
    events_of_session,
    fingerprint,
    next_number,
    number_events,
    numbered_row,
)
from thence.memory.store import STATES, EventIds, EventRow, SessionChange, StoredSession

PAGE_EVENTS: Final = 128

_KIND: Final = {kind: at for at, kind in enumerate(KINDS)}
_STATE: Final = {state: at for at, state in enumerate(STATES)}

Numbers = Mapping[int, int | None]
"""The numbers of stored events by their ids; None where an older program gave none."""


class PageChanges(msgspec.Struct):
    """What changes in the pages of a session."""

    pages: dict[int, bytes]
    """Pages to write, by the number of their first event."""
    dropped: list[int]
    """Pages that are there and shall not be; done first."""
    numbers: dict[int, int]
    """The numbers of the events that were written, by their ids."""


# -- a page ---------------------------------------------------------------------------------


def pack_page(uid: str, rows: Iterable[StoredEvent]) -> bytes:
    """Return events as the bytes of a page."""
    return _compress(encode_events(uid, rows))


def _compress(body: bytes) -> bytes:
    # In front of each page, so that one of an older fold is known without decoding it.
    return zstandard.ZstdCompressor(level=3).compress(fold.VERSION.to_bytes(2, "big") + body)


def _decompress(page: bytes) -> bytes | None:
    """Return the encoded events of a page; None when another version of the fold made it."""
    body = zstandard.ZstdDecompressor().decompress(page)
    return body[2:] if int.from_bytes(body[:2], "big") == fold.VERSION else None


def unpack_page(uid: str, page: bytes) -> list[StoredEvent] | None:
    """Return the events of a page; None when another version of the fold made it."""
    body = _decompress(page)
    if body is None:
        return None  # the caller derives these events from the facts instead
    return decode_events(uid, body)


def unpack_refs(page: bytes) -> dict[int, str | None]:
    """Return where payloads of a page lie; none when another version of the fold made it."""
    body = _decompress(page)
    return {} if body is None else decode_refs(body)


def rename_page(uid: str, page: bytes, refs: Mapping[str, str]) -> bytes:
    """Return a page whose payloads lie elsewhere now."""
    rows = unpack_page(uid, page)
    if rows is None:
        return page
    return pack_page(uid, [_move_ref(row, refs) for row in rows])


def _move_ref(row: StoredEvent, refs: Mapping[str, str]) -> StoredEvent:
    ref = row.event.payload_ref
    if ref is None or ref not in refs:
        return row
    event = msgspec.structs.replace(row.event, payload_ref=refs[ref])
    return msgspec.structs.replace(row, event=event)


def thin_row(row: StoredEvent) -> EventRow:
    """Return what of an event is looked for."""
    event = row.event
    moment = derived_events.time_of(event.ts)
    return EventRow(
        event.event_id,
        int(moment.timestamp() * 1000) if moment else 0,
        _KIND[event.kind],
        _STATE[event.state] if event.state else 0,
        event.tool,
        event.tokens,
        event.payload_ref,
        row.implied,
    )


# -- reading --------------------------------------------------------------------------------


def select_events(
    uid: str, pages: Iterable[bytes], *, after: int, limit: int | None, ids: EventIds | None
) -> list[StoredEvent]:
    """Return the events of pages that are wanted; no page is read after the last of them."""
    rows = (row for page in pages for row in unpack_page(uid, page) or ())
    return _select_rows(rows, after, limit, ids)


def derive_events(
    uid: str, stored: StoredSession | None, *, after: int, limit: int | None, ids: EventIds | None
) -> list[StoredEvent]:
    """Return the same of a session that another version of the fold wrote, from its facts."""
    if stored is None:
        return []
    replayed, billed, torn = stored.replayed, stored.billed, stored.row.torn
    session = SessionGraph(uid, stored.facts, replayed=replayed, billed=billed, torn=torn)
    return _select_rows(all_events(session), after, limit, ids)


def all_events(session: SessionGraph, *, payloads: bool = False) -> list[StoredEvent]:
    """Return the events of a session as a store would have them that reads it at once.

    With `payloads` they hold theirs, where the session's facts do.
    """
    # Who lists stored events needs no prices.
    from thence.memory.pricelist import SHIPPED
    from thence.memory.spending import with_price

    rows = events_of_session(session, payloads=payloads)
    return number_events((with_price(row, SHIPPED) for row in rows), -1)


def _select_rows(
    rows: Iterable[StoredEvent], after: int, limit: int | None, ids: EventIds | None
) -> list[StoredEvent]:
    low, high = ids or (0, 1 << 62)  # ids are hashes of 52 bits
    wanted = (row for row in rows if row.seq > after and low <= row.event.event_id <= high)
    return list(islice(wanted, limit))


# -- writing --------------------------------------------------------------------------------


def compare_events(
    change: SessionChange, stored: Iterable[StoredEvent], ids: Collection[int]
) -> SessionChange:
    """Return a change of a session that was rebuilt as what is new, altered or gone in it.

    `ids` are all events that the store has, `stored` those of them that pages of today hold.
    """
    before = {row.event.event_id: fingerprint(row) for row in stored}
    rows = {row.event.event_id: row for row in change.events}
    return msgspec.structs.replace(
        change,
        events=[row for at, row in rows.items() if at not in ids],
        altered=[
            row for at, row in rows.items() if at in ids and before.get(at) != fingerprint(row)
        ],
        vanished=[at for at in ids if at not in rows],
    )


def change_pages(
    uid: str, pages: Mapping[int, bytes], change: SessionChange, numbers: Numbers
) -> PageChanges:
    """Return what a change does to the pages of a session.

    `pages` are those from the first one on that holds an event which is altered or gone, and the
    last one in any case; `numbers` are those of the altered events and of those that are gone.
    """
    if not pages and not numbers:
        first, new = next_number(-1), [*change.altered, *change.events]
        return PageChanges(_new_pages(uid, new, first), [], _number_ids(new, first))
    grown = _grow_pages(uid, pages, change, numbers)
    if grown is not None:
        return grown
    read = {at: unpack_page(uid, body) for at, body in pages.items()}
    rows = {at: page for at, page in read.items() if page is not None}
    last = max((row.seq for page in rows.values() for row in page[-1:]), default=-1)
    last = max([last, *(seq for seq in numbers.values() if seq is not None)])
    changed = _number_changed(change, numbers, last)
    gone = {seq for at in change.vanished if (seq := numbers.get(at)) is not None}
    touched = _touched_pages(rows, changed, gone)
    written = dict(_pack_pages(uid, touched.values()))
    old = {*touched, *(at for at in read if at not in rows)}
    return PageChanges(
        written,
        sorted(at for at in old if at in pages and at not in written),
        {row.event.event_id: row.seq for row in changed},
    )


def _grow_pages(
    uid: str, pages: Mapping[int, bytes], change: SessionChange, numbers: Numbers
) -> PageChanges | None:
    """Return what a change does to pages without decoding the events that stay as they are.

    None when that is not possible: where events are gone, or were never in a page.
    """
    bodies = {at: body for at, page in pages.items() if (body := _decompress(page)) is not None}
    if change.vanished or not bodies or len(bodies) < len(pages):
        return None
    places = {
        at: {seq: place for place, seq in enumerate(decode_refs(body))}
        for at, body in bodies.items()
    }
    starts = sorted(places)
    last = max(places[starts[-1]])
    if max((seq for seq in numbers.values() if seq is not None), default=-1) > last:
        return None
    altered: dict[int, dict[int, StoredEvent]] = {at: {} for at in starts}
    written_numbers: dict[int, int] = {}
    for row in change.altered:
        seq = numbers.get(row.event.event_id)
        if seq is None:
            continue
        start = starts[max(bisect_right(starts, seq) - 1, 0)]
        place = places[start].get(seq)
        if place is None:
            return None
        altered[start][place] = numbered_row(row, seq)
        written_numbers[row.event.event_id] = seq
    new = [row for row in change.altered if numbers.get(row.event.event_id) is None]
    new += change.events
    first = next_number(last)
    room = max(PAGE_EVENTS - len(places[starts[-1]]), 0)
    added = {starts[-1]: new[:room]}
    written = {
        at: _compress(change_encoded(uid, bodies[at], altered[at], added.get(at, ()), first))
        for at in starts
        if altered[at] or added.get(at)
    }
    written |= _new_pages(uid, new[room:], first + SEQ_STEP * room)
    return PageChanges(written, [], written_numbers | _number_ids(new, first))


def _new_pages(uid: str, rows: Sequence[StoredEvent], first: int) -> dict[int, bytes]:
    """Return events as pages of their own, numbered from `first` on."""
    out: dict[int, bytes] = {}
    for at in range(0, len(rows), PAGE_EVENTS):
        start = first + SEQ_STEP * at
        out[start] = _compress(encode_events(uid, rows[at : at + PAGE_EVENTS], start))
    return out


def _number_ids(rows: Iterable[StoredEvent], first: int) -> dict[int, int]:
    """Return the numbers of events from `first` on, by their ids."""
    return {row.event.event_id: first + SEQ_STEP * at for at, row in enumerate(rows)}


def _number_changed(change: SessionChange, numbers: Numbers, last: int) -> list[StoredEvent]:
    """Return the events of a change with their numbers: those they have, or the next ones."""
    new = [row for row in change.altered if numbers.get(row.event.event_id) is None]
    known = [
        numbered_row(row, seq)
        for row in change.altered
        if (seq := numbers.get(row.event.event_id)) is not None
    ]
    return [*known, *number_events([*new, *change.events], last)]


def _pack_pages(
    uid: str, pages: Iterable[Mapping[int, StoredEvent]]
) -> Iterator[tuple[int, bytes]]:
    """Yield pages of at most `PAGE_EVENTS` events, each with its first number."""
    for page in pages:
        ordered = [page[seq] for seq in sorted(page)]
        for at in range(0, len(ordered), PAGE_EVENTS):
            part = ordered[at : at + PAGE_EVENTS]
            yield part[0].seq, pack_page(uid, part)


def _touched_pages(
    pages: Mapping[int, list[StoredEvent]], changed: Iterable[StoredEvent], gone: Iterable[int]
) -> dict[int, dict[int, StoredEvent]]:
    """Return the pages that events change, as they are then, by the numbers of events."""
    starts = sorted(pages)
    out: dict[int, dict[int, StoredEvent]] = {}

    def page(seq: int) -> dict[int, StoredEvent]:
        start = starts[max(bisect_right(starts, seq) - 1, 0)] if starts else -1
        if start not in out:
            out[start] = {row.seq: row for row in pages.get(start, ())}
        return out[start]

    for row in changed:
        page(row.seq)[row.seq] = row
    for seq in gone:
        page(seq).pop(seq, None)
    return out
