"""Sessions read out of a store: their events by ranges, payloads when they are asked for.

What is not stored, because it was evicted or lies in a file only, is put together from its source
and then read out in the same shape.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from thence.errors import ThenceError
from thence.format.normal import SessionEvent
from thence.format.readout import Part, Readout, SessionHead, read_window
from thence.format.records import JSON, Notice, Skipped, word
from thence.format.whole import Whole
from thence.memory import recall
from thence.memory.growth import subagents_of
from thence.memory.packs import read_all, size_in
from thence.memory.pages import all_events
from thence.memory.recall import Cleaned, body, light, loaded, notices_of, place_of
from thence.memory.spelling import load
from thence.memory.store import Filter

if TYPE_CHECKING:
    from thence.agents.sessions import LoadedSession
    from thence.format.fold import FoldState
    from thence.format.stored import StoredEvent
    from thence.memory.packs import Blobs
    from thence.memory.store import Change, SessionRow, Store


def read_session(store: Store, row: SessionRow, clean: Cleaned | None = list) -> Readout:
    """Return a session as its stored events tell it, or its source if it was evicted.

    Payloads are read when somebody asks for them. Of the sessions that it continues those that
    are not stored are read from their sources, unless `clean` is None.
    """
    uid = row.session.session_uid
    rows = list(store.events(uid))
    if not rows:
        return readout_of(loaded(store, row, clean or list).whole)
    above = _Above(lambda: _lineage(store, uid, clean), lambda part: _stored_part(store, part))
    made = Readout(
        *(uid, rows, head_of(row)),
        read=partial(body, store.blobs),
        above=above,
    )
    above.readout = made
    return made


DIGESTED_BYTES: Final = 64 << 20
"""Bytes of payloads that are held at once for a digest."""
END_CHARS, LEAST_CHARS = 2000, 400
"""Characters of either end of a long result, where there are more."""
NOTE_BYTES: Final = 4096
"""Bytes of a note of the harness that a digest may want."""


class OpenedSession(msgspec.Struct):
    """A session with all payloads, and what was found while it was read."""

    session: Readout
    agent: str
    skipped: list[Skipped]
    notices: list[Notice]


def open_session(store: Store, row: SessionRow) -> OpenedSession:
    """Return a session with its payloads: from the store, or from its source if it was evicted."""
    uid = row.session.session_uid
    rows = list(store.events(uid))
    if not rows:
        return opened(loaded(store, row))
    rows, skipped = fill_rows(rows, store.blobs, row.session.source_path or "")
    notices = list(notices_of(row))
    above = _Above(
        lambda: _lineage(store, uid, list, notices),
        lambda part: _stored_part(store, part, is_filled=True),
    )
    title = recall.with_lineage(store, [row])[0].title
    session = Readout(uid, rows, replace(head_of(row), title=title), above=above)
    above.readout = session
    if recall.origin_of(row) is not None:
        session.inherited(boundaries=False)  # while the store is open
    if skipped:
        notices.append(Notice("text lost", "thence doctor --deep --mend restores it"))
    return OpenedSession(session, row.session.flavor, skipped, notices)


def opened(session: LoadedSession) -> OpenedSession:
    """Return a session that was just put together."""
    agent = session.source.adapter
    return OpenedSession(readout_of(session.whole), agent, session.skipped, session.notices)


def fill_rows(
    rows: Sequence[StoredEvent], blobs: Blobs, path: str
) -> tuple[list[StoredEvent], list[Skipped]]:
    """Return events with all payloads that can be read, and the records of which some cannot."""
    refs = [ref for row in rows if (ref := row.event.payload_ref) is not None]
    with contextlib.suppress(ThenceError):
        bodies = map(load, read_all(blobs, refs))
        return [_filled(row, bodies) for row in rows], []
    out: list[StoredEvent] = []
    skipped: dict[tuple[str, int], Skipped] = {}
    for row in rows:
        try:
            out.append(_filled(row, map(load, map(blobs.read, [row.event.payload_ref or ""]))))
        except ThenceError as error:
            why = f"its text is unavailable: {error.message}"
            skipped[row.file, row.line] = Skipped(row.line, 0, 0, why, source=path)
            out.append(replace(row, event=replace(row.event, payload_ref=None)))
    return out, list(skipped.values())


def read_for_digest(store: Store, row: SessionRow) -> Readout:
    """Return a stored session with the payloads that a digest needs.

    Long notes of the harness, which no model ever saw, stay away. Where there is more than memory
    should hold, long results come by their beginning and end, where outcomes stand.
    """
    uid = row.session.session_uid
    rows = list(store.events(uid))
    wanted = [row.event for row in rows if _is_digested(row.event)]
    refs = [event.payload_ref or "" for event in wanted]
    end = None
    if sum(map(size_in, refs)) > DIGESTED_BYTES:
        end = min(END_CHARS, max(DIGESTED_BYTES // (2 * len(refs)), LEAST_CHARS))
    bodies = map(load, read_all(store.blobs, refs))
    events = {
        event.event_id: replace(event, payload=_ends(payload, end, event.kind))
        for event, payload in zip(wanted, bodies, strict=True)
    }
    return Readout(uid, rows, head_of(row), events=events)


def _is_digested(event: SessionEvent) -> bool:
    ref = event.payload_ref
    return ref is not None and (event.role != "system" or size_in(ref) <= NOTE_BYTES)


def _ends(payload: JSON, end: int | None, kind: str) -> JSON:
    """Return the payload of a result with its long texts cut in their middle."""
    if end is None or kind != "tool_result":
        return payload
    if isinstance(payload, str):
        is_short = len(payload) <= 2 * end
        return payload if is_short else f"{payload[:end]}\n…\n{payload[-end:]}"
    if isinstance(payload, list):
        return [_ends(part, end, kind) for part in payload]
    if isinstance(payload, dict):
        return {name: _ends(value, end, kind) for name, value in payload.items()}
    return payload


def just_read(whole: Whole, change: Change) -> Readout:
    """Return a session that was just read at once, payloads and all, as its rows tell it."""
    events = {event.event_id: event for event in whole.events}
    return Readout(whole.uid, change.events, head_of(change.row), events=events)


def _filled(row: StoredEvent, bodies: Iterator[JSON]) -> StoredEvent:
    if row.event.payload_ref is None:
        return row
    return replace(row, event=replace(row.event, payload=next(bodies)))


class SessionEnd(NamedTuple):
    """The end of a stored session, and what its fold says of the rest."""

    row: SessionRow
    readout: Readout
    state: FoldState


def read_end(store: Store, uid: str, since: int | None = None) -> SessionEnd | None:
    """Return the end of a session, at a cost that does not grow with the session.

    None when nothing of it is stored, when it can only be rebuilt, or was rebuilt after the change
    `since`.
    """
    tail = store.tail(uid)
    if tail is None or tail.state is None:
        return None
    if since is not None and tail.state.since > since:
        return None
    fetch, read = partial(events_with, store, uid), partial(body, store.blobs)
    made = read_window(uid, tail.state, fetch, head_of(tail.row), read=read)
    return SessionEnd(tail.row, made, tail.state)


def events_with(store: Store, uid: str, ids: Sequence[int]) -> list[StoredEvent]:
    """Return the events with these ids in their order; most follow one another."""
    found: dict[int, StoredEvent] = {}
    for at in ids:
        for row in store.events(uid, ids=(at, at)) if at not in found else ():
            near = [row, *store.events(uid, after=row.seq, limit=len(ids))]
            found |= {other.event.event_id: other for other in near}
    return [found[at] for at in ids if at in found]


def readout_of(whole: Whole) -> Readout:
    """Return a session that was just put together as its stored events would tell it."""
    above = _Above(lambda: whole, readout_of)
    head = SessionHead(
        whole.session(),
        whole.title,
        whole.torn,
        tuple(whole.edges),
        whole.spent,
        tuple(sorted({notice.detail for notice in whole.unbilled})),
        subagents_of(whole.about, {fact.channel for fact in whole.facts}),
        word(whole.about.get("pr")) or None,
    )
    made = Readout(whole.uid, all_events(whole, payloads=True), head, above=above)
    above.readout = made
    return made


def place_in(whole: Whole, wanted: str) -> int:
    """Return the place of the record that a name means in a session that was put together."""
    session = readout_of(whole)
    place = whole.graph.place(session.records[place_of(session, wanted)].id)
    return 0 if place is None else place


def head_of(row: SessionRow) -> SessionHead:
    """Return what a session's row tells of it as a whole."""
    return SessionHead(
        row.session,
        row.title,
        row.torn,
        row.edges,
        row.spent,
        row.lower_bound,
        row.agents,
        row.pull_request,
    )


class _Above:
    """Finds what stands on the line of a session in those that it continues."""

    def __init__(self, load: Callable[[], Whole | None], read: Callable[[Whole], Readout]) -> None:
        self._load = load
        self._read = read
        self._known: dict[str, Readout] = {}
        self._whole: Whole | None = None
        self.readout: Readout | None = None

    def __call__(self, to: int | None, boundaries: bool) -> list[Part]:  # noqa: FBT001 - a callback
        own = self.readout
        if own is None or all(record.link.base is None for record in own.records):
            return []
        if self._whole is None:
            self._whole = self._load()
        whole = self._whole
        if whole is None:
            return []
        place = None if to is None else whole.graph.place(own.records[to].id)
        out: list[Part] = []
        for part in whole.inherited(place, boundaries=boundaries):
            uid = part.whole.uid
            above = self._known.get(uid) or self._known.setdefault(uid, self._read(part.whole))
            ids = (part.whole.facts[at].node.id for at in part.places)
            places = [at for name in ids if (at := above.graph.place(name)) is not None]
            out.append(Part(above, places))
        return out


def _lineage(
    store: Store, uid: str, clean: Cleaned | None, notices: list[Notice] | None = None
) -> Whole | None:
    held = store.held(uid)
    return None if held is None else light(store, held, clean, notices)


def _stored_part(store: Store, whole: Whole, *, is_filled: bool = False) -> Readout:
    """Return a session that another one continues: as it is stored, else as it was read."""
    for row in store.sessions(Filter(uids=(whole.uid,))):
        if rows := list(store.events(whole.uid)):
            if is_filled:
                rows = fill_rows(rows, store.blobs, "")[0]
            return Readout(whole.uid, rows, head_of(row), read=partial(body, store.blobs))
    return readout_of(whole)
