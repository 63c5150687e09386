"""One session recalled: whole, from the store or from its source, and its events by their names.

Events have short names: `e` and the beginning of their id in hexadecimal digits. Ids never change,
so that a name found by a search still means the same event when the session has gone on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from thence.errors import NotReadable, SessionNotFound, ThenceError
from thence.format.figures import argument, project, short_id
from thence.format.graph import State
from thence.format.normal import SessionEvent
from thence.format.records import Notice

if TYPE_CHECKING:
    from thence.agents.sessions import Generation, Loaded
    from thence.format.facts import Base
    from thence.format.records import JSON, Skipped
    from thence.format.stored import StoredEvent
    from thence.format.whole import Whole
    from thence.memory.packs import Blobs
    from thence.memory.store import Held, SessionRow, Store

_DIGITS = 13  # of an id in hexadecimal

SHOWN = 3
"""Sessions that are named when a prefix fits several."""
NEAR = 40
"""Characters of an id that are looked at to find one that is like it."""


def event_name(event: int) -> str:
    """Give the short name of an event."""
    return f"e{event:013x}"[:7]


def stored_event(store: Store, uid: str, wanted: str) -> StoredEvent:
    """Return the event of a stored session that a name means: short, in digits, or the log's own.

    A name in digits is looked up; for others, and those of derived events, all are gone through.
    """
    digits = wanted.removeprefix("e").lower()
    if 0 < len(digits) <= _DIGITS and all(one in "0123456789abcdef" for one in digits):
        low, high = (int(digits.ljust(_DIGITS, end), 16) for end in "0f")
        for row in store.events(uid, ids=(low, high)):
            return row
    return named_event(store.events(uid), uid, wanted)


def named_event(rows: Iterable[StoredEvent], uid: str, wanted: str) -> StoredEvent:
    """Return the event that a name means; of a derived one that from which it is derived."""
    rows = list(rows)
    digits = wanted.removeprefix("e").lower()
    for row in rows:
        own = f"{row.event.event_id:013x}".startswith(digits) and digits
        if own or wanted in (f"{row.event.event_id}", row.event.native_id):
            return row
    for row in rows if digits else ():
        for event in row.derived_events():
            if wanted == f"{event.event_id}" or f"{event.event_id:013x}".startswith(digits):
                return row
    raise _no_event(uid, wanted)


def place_of(whole: Whole, wanted: str) -> int:
    """Return the place of the record that a name means."""
    for event in _meant(whole, wanted):
        place = whole.graph.place(event.native_id)
        if place is not None:
            return place
    raise _no_event(whole.uid, wanted)


def _meant(whole: Whole, wanted: str) -> Iterator[SessionEvent]:
    yield from _named(whole.events, wanted)
    digits = wanted.removeprefix("e").lower()
    bases = {event.event_id: event for event in whole.events} if digits else {}
    for event in whole.derived if digits else ():
        if wanted == f"{event.event_id}" or f"{event.event_id:013x}".startswith(digits):
            yield bases[event.derived_from or 0]  # it is shown where it comes from


def _named(events: Iterable[SessionEvent], wanted: str) -> Iterator[SessionEvent]:
    digits = wanted.removeprefix("e").lower()
    for event in events:
        own = f"{event.event_id:013x}".startswith(digits) and digits
        if own or wanted in (f"{event.event_id}", event.native_id):
            yield event


def _no_event(uid: str, wanted: str) -> SessionNotFound:
    return SessionNotFound(
        f"no event {wanted[:80]!r} in {uid}", hint="thence search names the events it finds"
    )


def along(whole: Whole, places: Iterable[int]) -> list[SessionEvent]:
    """Give the events of records in the order of these, books left out."""
    events: dict[str, list[SessionEvent]] = {}
    for event in whole.events:
        if event.state != State.INTERNAL:
            events.setdefault(event.native_id, []).append(event)
    return [event for at in places for event in events.pop(whole.facts[at].node.id, ())]


def notices_of(row: SessionRow) -> Iterator[Notice]:
    """Yield what is known of a session's source: lines that could not be read, its end."""
    if row.skipped:
        told = f"{row.skipped:,} lines could not be read; thence doctor names them"
        yield Notice("skipped", told)
    if row.gone:
        yield Notice("source gone", "its agent has deleted it; this is all there is")


def session(store: Store, wanted: str) -> SessionRow:
    """Find the one session that an id, or the beginning of one, means."""
    from thence.memory.store import Filter

    found = list(store.sessions(Filter(uid=wanted, limit=SHOWN + 1)))
    exact = [
        row for row in found if wanted in (row.session.session_uid, row.session.native_session_id)
    ]
    if len(exact) == 1 or len(found) == 1:
        return (exact or found)[0]
    if not found:
        raise SessionNotFound(f"no session begins with {wanted!r}", hint=_near(store, wanted))
    names = ", ".join(_told(row, wanted) for row in found[:SHOWN])
    more = " and more" if len(found) > SHOWN else ""
    raise SessionNotFound(
        f"{wanted!r} means several sessions: {names}{more}", hint="give more of the id"
    )


def _near(store: Store, wanted: str) -> str:
    """Say which session may have been meant: the newest that begins most like it."""
    from thence.memory.store import Filter

    agent = wanted.find(":") + 1
    half = agent + max((len(wanted) - agent) // 2, 2)
    for end in range(min(len(wanted), NEAR) - 1, half - 1, -1):
        for row in store.sessions(Filter(uid=wanted[:end], limit=1)):
            title = " ".join((row.title or "").split())[:60]
            return f"near: {short_id(row.session.native_session_id)}  {title}".rstrip()
    return "thence ls lists them"


def _told(row: SessionRow, wanted: str) -> str:
    """Name a session so that it can be told from others that begin in the same way."""
    name = row.session.native_session_id
    short = max(len(short_id(name)), len(wanted) + 4)
    folder = project(row.session.cwd)
    return f"{name[:short]} ({folder})" if folder else name[:short]


def body(blobs: Blobs, ref: str) -> JSON:
    """Give one payload; in place of one that cannot be read, a text that says so."""
    from thence.memory.spelling import load

    try:
        return load(blobs.read(ref))
    except ThenceError as error:
        return f"(cannot be read: {error.message})"


def with_body(blobs: Blobs, event: SessionEvent) -> SessionEvent:
    """Return an event with its payload, read where the event only refers to it."""
    if event.payload is not None or event.payload_ref is None:
        return event
    return replace(event, payload=body(blobs, event.payload_ref))


def loaded(store: Store, row: SessionRow) -> Loaded:
    """Give a session whole: from the store, or from its source where it was evicted."""
    from thence.agents import File, Source
    from thence.agents.sessions import Loaded, lineage_of, load, put_together
    from thence.memory.fields import located

    session = row.session
    held = store.held(session.session_uid)
    if held is not None:
        own, broken = _generation(store, held)
        notices = list(notices_of(row))
        whole = put_together(lineage_of(own, lambda *named: _ancestor(store, *named), notices))
        if broken:
            notices.append(Notice("text lost", "thence doctor --deep --mend reads it again"))
        files = tuple(File(path) for path in row.files)
        source = Source(session.flavor, session.native_session_id, files)
        return Loaded(source, whole, broken, notices)
    path = Path(located(session.source_path or ""))
    if session.source_path and path.exists():
        return load(path)
    name = session.native_session_id
    raise NotReadable(
        f"{name} was evicted, and its source is gone: only its digest is left",
        hint=f"thence digest {argument(name[:13])}",
    )


def _generation(store: Store, held: Held) -> tuple[Generation, list[Skipped]]:
    """Return a stored session as one of a lineage, and the records whose text is lost."""
    from thence.agents.sessions import Generation
    from thence.memory.keep import salvaged

    session = held.row.session
    facts, broken = salvaged(held.facts, store.blobs, session.source_path or "")
    one = Generation(session.session_uid, facts, held.row.torn, held.replayed, held.billed)
    return one, broken


def _ancestor(store: Store, child: Generation, base: Base) -> Generation | None:
    """Return the stored session that another one continues; None when it is not stored.

    A log may name a log, not a session: then a tie of the session tells whose it is.
    """
    agent = child.uid.partition(":")[0]
    ties = [e.session for fact in child.facts for e in fact.edges if not e.child and not e.agent]
    for name in dict.fromkeys(filter(None, (base.session, *ties, base.file))):
        held = store.held(f"{agent}:{name}")
        found = _generation(store, held)[0] if held else _from_source(store, f"{agent}:{name}")
        if found is not None and (
            base.session == name or any(fact.file == base.file for fact in found.facts)
        ):
            return found
    return None


def _from_source(store: Store, uid: str) -> Generation | None:
    """Return an evicted session as its source has it; None when that is gone as well."""
    from thence.agents.sessions import Generation, load
    from thence.memory.store import Filter

    for row in store.sessions(Filter(uids=(uid,))):
        path = row.session.source_path
        if path and not row.gone and Path(path).exists():
            whole = load(Path(path)).whole
            return Generation(uid, [*whole.about_only, *whole.facts], whole.torn)
    return None
