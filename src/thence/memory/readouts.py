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
from thence.format.fact_assembly import add_text, is_image_alone
from thence.format.facts import merge_statuses
from thence.format.normal import SessionEvent
from thence.format.readout import (
    Readout,
    ReadoutPart,
    SessionHead,
    anchor_events,
    read_window,
)
from thence.format.records import JSON, Notice, Skipped, word
from thence.format.session_graph import SessionGraph
from thence.memory import recall
from thence.memory.growth import subagents_of
from thence.memory.packs import read_all, size_in
from thence.memory.pages import all_events
from thence.memory.recall import Clean, body, light, load_session, notices_of
from thence.memory.storable_json import load
from thence.memory.store import Filter

if TYPE_CHECKING:
    from thence.agents.sessions import LoadedSession
    from thence.format.facts import Fact
    from thence.format.fold import Delta, FoldState
    from thence.format.stored import StoredEvent
    from thence.memory.packs import BlobStore
    from thence.memory.store import SessionChange, SessionRow, Store


def read_session(store: Store, row: SessionRow, clean: Clean | None) -> Readout:
    """Return a session as its stored events tell it, or its source if it was evicted.

    Payloads are read when somebody asks for them. Of the sessions that it continues those that
    are not stored are read from their sources, unless `clean` is None.
    """
    uid = row.session.session_uid
    rows = list(store.events(uid))
    if not rows:
        loaded = load_session(store, row, clean or recall.as_read)
        return readout_of(loaded.graph, _shown_head(store, row))
    line = _LineageParts(
        lambda: _lineage(store, uid, clean), lambda part: _stored_part(store, part)
    )
    line.readout = Readout(*(uid, rows, head_of(row)), read=partial(body, store.blobs), line=line)
    return line.readout


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


def open_session(store: Store, row: SessionRow, clean: Clean) -> OpenedSession:
    """Return a session with its payloads: from the store, or from its source if it was evicted.

    What comes from a source goes through `clean`.
    """
    uid = row.session.session_uid
    rows = list(store.events(uid))
    if not rows:
        return open_loaded(load_session(store, row, clean), _shown_head(store, row))
    rows, skipped = fill_rows(rows, store.blobs, row.session.source_path or "")
    rows = _fill_outputs(store, uid, rows)
    notices = list(notices_of(row))
    line = _LineageParts(
        lambda: _lineage(store, uid, clean, notices),
        lambda part: _stored_part(store, part, is_filled=True),
    )
    session = Readout(uid, rows, _shown_head(store, row), line=line)
    line.readout = session
    if recall.origin_of(row) is not None:
        session.inherited(boundaries=False)  # while the store is open
    if skipped:
        notices.append(Notice("text lost", "thence doctor --deep --mend restores it"))
    return OpenedSession(session, row.session.flavor, skipped, notices)


def open_loaded(session: LoadedSession, head: SessionHead | None = None) -> OpenedSession:
    """Return a session that was just put together; `head` is what a store tells of it."""
    agent, made = session.source.adapter, readout_of(session.graph, head)
    return OpenedSession(made, agent, session.skipped, session.notices)


def fill_rows(
    rows: Sequence[StoredEvent], blobs: BlobStore, path: str
) -> tuple[list[StoredEvent], list[Skipped]]:
    """Return events with all payloads that can be read, and the records of which some cannot."""
    refs = [ref for row in rows if (ref := row.event.payload_ref) is not None]
    with contextlib.suppress(ThenceError):
        bodies = map(load, read_all(blobs, refs))
        return [_fill_payload(row, bodies) for row in rows], []
    out: list[StoredEvent] = []
    skipped: dict[tuple[str, int], Skipped] = {}
    for row in rows:
        try:
            out.append(
                _fill_payload(row, map(load, map(blobs.read, [row.event.payload_ref or ""])))
            )
        except ThenceError as error:
            why = f"its text is unavailable: {error.message}"
            skipped[row.file, row.line] = Skipped(row.line, 0, 0, why, source=path)
            out.append(replace(row, event=replace(row.event, payload_ref=None)))
    return out, list(skipped.values())


def _fill_outputs(store: Store, uid: str, rows: list[StoredEvent]) -> list[StoredEvent]:
    """Return events in which results have what only other records tell of their calls.

    Rows have the beginning of it; all of it stands in the records that tell it.
    """
    if not any(map(_is_told_elsewhere, rows)):
        return rows
    stored = store.load_session(uid)
    statuses = merge_statuses(stored.facts if stored is not None else ())
    outputs = {call: status.output for call, status in statuses.items()}
    return [_fill_output(row, outputs.get(row.event.call or "")) for row in rows]


def _fill_output(row: StoredEvent, output: JSON) -> StoredEvent:
    if output is None or not _is_told_elsewhere(row):
        return row
    is_made = row.output is not None
    payload = output if is_made else add_text(row.event.payload, output)
    return replace(row, event=replace(row.event, payload=payload))


def _is_told_elsewhere(row: StoredEvent) -> bool:
    is_made = row.output is not None and row.event.kind == "tool_result"
    return is_made or is_image_alone(row.event)


def read_for_digest(store: Store, row: SessionRow) -> Readout:
    """Return a stored session with the payloads that a digest needs.

    Long notes of the harness, which no model ever saw, stay away. Where there is more than memory
    should hold, long results come by their beginning and end, where outcomes stand.
    """
    uid = row.session.session_uid
    rows = list(store.events(uid))
    return Readout(uid, rows, head_of(row), events=_digested_events(store.blobs, rows))


def read_since_digest(
    store: Store, row: SessionRow, anchors: Sequence[Fact], window: Sequence[int]
) -> Readout:
    """Return the end of a stored session with the payloads that a digest needs.

    It begins with some events and has all that came after them; `anchors` are the records that
    these continue.
    """
    uid = row.session.session_uid
    rows = events_with(store, uid, [*anchor_events(uid, anchors), *window])
    known = {row.event.event_id for row in rows}
    last = max((row.seq for row in rows), default=-1)
    rows += [row for row in store.events(uid, after=last) if row.event.event_id not in known]
    nodes = {fact.node.id: fact.node for fact in anchors}
    events = _digested_events(store.blobs, rows)
    return Readout(uid, rows, head_of(row), events=events, anchors=nodes)


def _digested_events(blobs: BlobStore, rows: Sequence[StoredEvent]) -> dict[int, SessionEvent]:
    """Return the events that a digest reads, with their payloads, by their ids."""
    wanted = [row.event for row in rows if _is_digested(row.event)]
    refs = [event.payload_ref or "" for event in wanted]
    end = None
    if sum(map(size_in, refs)) > DIGESTED_BYTES:
        end = min(END_CHARS, max(DIGESTED_BYTES // (2 * len(refs)), LEAST_CHARS))
    bodies = map(load, read_all(blobs, refs))
    return {
        event.event_id: replace(event, payload=_ends(payload, end, event.kind))
        for event, payload in zip(wanted, bodies, strict=True)
    }


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


def just_read(change: SessionChange, delta: Delta) -> Readout:
    """Return a session, or its first piece, that was just read, as its rows tell it."""
    events, window = {event.event_id: event for event in delta.events}, delta.window
    head = head_of(change.row)
    return Readout(window.uid, change.events, head, events=events, graph=window.graph)


def read_piece(
    blobs: BlobStore, row: SessionRow, delta: Delta, anchors: Sequence[tuple[Fact, StoredEvent]]
) -> Readout:
    """Return what was just read of a session together with what the last piece left open.

    `anchors` are the records that this continues, with their events.
    """
    rows = [*(row for _, row in anchors), *delta.rows.values()]
    events = {event.event_id: event for event in delta.events}
    events |= _digested_events(blobs, [row for row in rows if row.event.event_id not in events])
    nodes, window = {fact.node.id: fact.node for fact, _ in anchors}, delta.window
    head, graph = head_of(row), window.graph
    return Readout(window.uid, rows, head, events=events, anchors=nodes, graph=graph)


def _fill_payload(row: StoredEvent, bodies: Iterator[JSON]) -> StoredEvent:
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
    events: dict[int, StoredEvent] = {}
    for at in ids:
        for row in store.events(uid, ids=(at, at)) if at not in events else ():
            near = [row, *store.events(uid, after=row.seq, limit=len(ids))]
            events |= {other.event.event_id: other for other in near}
    return [events[at] for at in ids if at in events]


def readout_of(graph: SessionGraph, head: SessionHead | None = None) -> Readout:
    """Return a session that was just put together as its stored events would tell it.

    Its log alone does not tell what other sessions hold of it, nor how it was judged: of one that
    was removed, the store does.
    """
    line = _LineageParts(lambda: graph, readout_of)
    head = head or SessionHead(
        graph.session(),
        graph.title,
        graph.torn,
        tuple(graph.edges),
        graph.spent,
        tuple(sorted({notice.detail for notice in graph.unbilled})),
        subagents_of(graph.about, {fact.channel for fact in graph.facts}),
        word(graph.about.get("pr")) or None,
    )
    line.readout = Readout(graph.uid, all_events(graph, payloads=True), head, line=line)
    return line.readout


def _shown_head(store: Store, row: SessionRow) -> SessionHead:
    """Return what a session's row tells of it, with the title and model that lists show."""
    return head_of(recall.with_lineage(store, [row])[0])


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


class _LineageParts:
    """Finds the line of a session, and the parts of it in those that it continues."""

    def __init__(
        self, load: Callable[[], SessionGraph | None], read: Callable[[SessionGraph], Readout]
    ) -> None:
        self._load = load
        self._read = read
        self._known: dict[str, Readout] = {}
        self._graph: SessionGraph | None = None
        self.readout: Readout | None = None

    def __call__(self, to: int | None, boundaries: bool) -> list[ReadoutPart] | None:  # noqa: FBT001 - a callback
        own = self.readout
        if own is None or all(record.link.base is None for record in own.records):
            return None
        if self._graph is None:
            self._graph = self._load()
        graph = self._graph
        if graph is None:
            return None
        self._known[own.uid] = own
        place = None if to is None else graph.graph.place(own.records[to].id)
        out: list[ReadoutPart] = []
        for part in graph.line(place, boundaries=boundaries):
            uid = part.session.uid
            above = self._known.get(uid) or self._known.setdefault(uid, self._read(part.session))
            ids = (part.session.facts[at].node.id for at in part.places)
            places = [at for name in ids if (at := above.graph.place(name)) is not None]
            out.append(ReadoutPart(above, places))
        return out


def _lineage(
    store: Store, uid: str, clean: Clean | None, notices: list[Notice] | None = None
) -> SessionGraph | None:
    stored = store.load_session(uid)
    return None if stored is None else light(store, stored, clean, notices)


def _stored_part(store: Store, graph: SessionGraph, *, is_filled: bool = False) -> Readout:
    """Return a session that another one continues: as it is stored, else as it was read."""
    for row in store.sessions(Filter(uids=(graph.uid,))):
        if rows := list(store.events(graph.uid)):
            if is_filled:
                rows = fill_rows(rows, store.blobs, "")[0]
            return Readout(graph.uid, rows, head_of(row), read=partial(body, store.blobs))
    return readout_of(graph)
