"""One session recalled: whole, from the store or from its source, and its events by their names.

Events have short names: `e` and the beginning of their id in hexadecimal digits. Ids never change,
so that a name found by a search still means the same event when the session has gone on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from thence.agents import File, Source
from thence.errors import NotReadable, SessionNotFound, ThenceError
from thence.format.figures import argument, project, several, short_id
from thence.format.normal import SessionEvent
from thence.format.records import Notice
from thence.memory.store import Filter

if TYPE_CHECKING:
    from thence.agents.sessions import Find, Generation, LoadedSession
    from thence.format.facts import Base, Fact
    from thence.format.readout import Readout
    from thence.format.records import JSON, Skipped
    from thence.format.session_graph import SessionGraph
    from thence.format.stored import StoredEvent
    from thence.memory.labels import Label
    from thence.memory.packs import BlobStore
    from thence.memory.search import Hits, Query, SearchAnswer
    from thence.memory.store import SessionRow, Store, StoredSession

_DIGITS = 13  # of an id in hexadecimal

SHOWN = 3
"""Sessions that are named when a prefix fits several."""
_CONTINUES = ("adopt", "resume", "fork")
"""Ties to the session that another one continues."""
NEAR = 40
"""Characters of an id that are looked at to find one that is like it."""


def event_name(event: int) -> str:
    """Return the short name of an event."""
    return f"e{event:013x}"[:7]


def stored_event(store: Store, uid: str, wanted: str) -> StoredEvent:
    """Return the event of a stored session that a name means: short, in digits, or the log's own.

    A name in digits is looked up; for others, and those of derived events, all are gone through.
    """
    digits = wanted.removeprefix("e").lower()
    if 0 < len(digits) <= _DIGITS and all(digit in "0123456789abcdef" for digit in digits):
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


def place_of(session: Readout, wanted: str) -> int:
    """Return the place of the record that a name means."""
    row = named_event(session.rows, session.uid, wanted)
    place = session.graph.place(row.event.native_id)
    if place is None:
        raise _no_event(session.uid, wanted)
    return place


def _no_event(uid: str, wanted: str) -> SessionNotFound:
    return SessionNotFound(
        f"no event {wanted[:80]!r} in {uid}", hint="thence search prints event ids"
    )


def notices_of(row: SessionRow) -> Iterator[Notice]:
    """Yield what is known of a session's source: lines that could not be read, its end."""
    if row.skipped:
        yield Notice("skipped", f"{several(row.skipped, 'unreadable line')} (see thence doctor)")
    if row.origin:
        yield Notice("origin", row.origin)
    elif row.gone:
        yield Notice("source gone", "the agent deleted its log; this copy is the only one")


def read_hits(store: Store, answer: SearchAnswer, query: Query) -> Hits:
    """Return what was found with its texts, and where each session comes from."""
    from thence.memory.search import hits

    answers = hits(answer, query, store.blobs)
    origins = origins_of(store, (hit.session_uid for hit in answers.hits))
    marked = [replace(hit, origin=origins.get(hit.session_uid, "")) for hit in answers.hits]
    return replace(answers, hits=marked) if origins else answers


def origins_of(store: Store, uids: Iterable[str]) -> dict[str, str]:
    """Return where sessions come from, in words, by their ids; those of this machine left out."""
    wanted = tuple(dict.fromkeys(uids))
    rows = store.sessions(Filter(uids=wanted)) if wanted else ()
    return {row.session.session_uid: row.origin for row in rows if row.origin}


def session(store: Store, wanted: str) -> SessionRow:
    """Find the one session that an id, or the beginning of one, means."""
    start, gap, end = wanted.partition("…")  # as lists shorten ids that begin alike
    limit = None if gap else SHOWN + 1
    candidates = store.sessions(Filter(uid=start, limit=limit))
    rows = [row for row in candidates if row.session.native_session_id.endswith(end)]
    exact = [
        row for row in rows if wanted in (row.session.session_uid, row.session.native_session_id)
    ]
    if len(exact) == 1 or len(rows) == 1:
        return (exact or rows)[0]
    if not rows:
        raise SessionNotFound(f"no session id starts with {wanted!r}", hint=_near(store, wanted))
    names = ", ".join(_describe(row, wanted) for row in rows[:SHOWN])
    more = " and more" if len(rows) > SHOWN else ""
    raise SessionNotFound(
        f"{wanted!r} is ambiguous: {names}{more}", hint="give more characters of the id"
    )


def _near(store: Store, wanted: str) -> str:
    """Say which session may have been meant: the newest that begins most like it."""
    agent = wanted.find(":") + 1
    half = agent + max((len(wanted) - agent) // 2, 2)
    for end in range(min(len(wanted), NEAR) - 1, half - 1, -1):
        for row in store.sessions(Filter(uid=wanted[:end], limit=1)):
            title = " ".join((row.title or "").split())[:60]
            return f"near: {short_id(row.session.native_session_id)}  {title}".rstrip()
    return "thence ls lists them"


def _describe(row: SessionRow, wanted: str) -> str:
    """Name a session so that it can be told from others that begin in the same way."""
    name = row.session.native_session_id
    short = max(len(short_id(name)), len(wanted) + 4)
    folder = project(row.folder)
    return f"{name[:short]} ({folder})" if folder else name[:short]


def body(blobs: BlobStore, ref: str) -> JSON:
    """Return one payload; in place of one that cannot be read, a text that says so."""
    from thence.memory.storable_json import load

    try:
        return load(blobs.read(ref))
    except ThenceError as error:
        return f"(cannot be read: {error.message})"


def with_body(blobs: BlobStore, event: SessionEvent) -> SessionEvent:
    """Return an event with its payload, read where the event only refers to it."""
    if event.payload is not None or event.payload_ref is None:
        return event
    return replace(event, payload=body(blobs, event.payload_ref))


Clean = Callable[["LoadedSession"], "LoadedSession"]
"""Returns a session that was read from a source as it would be stored: `Gate.session`."""


def as_read(loaded: LoadedSession) -> LoadedSession:
    """Return a session as its source has it, for who works on originals."""
    return loaded


def load_session(store: Store, row: SessionRow, clean: Clean) -> LoadedSession:
    """Return a session with those it continues: from the store, or from the source if evicted.

    What comes from a source goes through `clean`.
    """
    from thence.agents.sessions import LoadedSession, join_generations

    session = row.session
    stored = store.load_session(session.session_uid)
    if stored is not None:
        own, broken = _generation(store, stored)
        notices = list(notices_of(row))
        generations = _lineage(store, own, notices, clean=clean)
        if broken:
            notices.append(Notice("text lost", "thence doctor --deep --mend restores it"))
        files = tuple(File(path) for path in row.files)
        source = Source(session.flavor, session.native_session_id, files)
        graph = join_generations(generations)
        return LoadedSession(source, graph, broken, notices, generations=generations)
    from_source = source_of(store, row, clean)
    if from_source is not None:
        return from_source
    name = session.native_session_id
    raise NotReadable(
        f"{name} was removed and its original log is gone: only the digest is left",
        hint=f"thence show {argument(name[:13])} --digest",
    )


def source_of(store: Store, row: SessionRow, clean: Clean) -> LoadedSession | None:
    """Return a session as its source has it; None when that is gone."""
    from thence.agents.sessions import join_generations
    from thence.memory.ownership import shares_of

    loaded = _load_places(store, row, stored_ancestors(store, clean))
    if loaded is None:
        return None
    made = clean(loaded)
    own = made.generations[0]
    own.replayed, own.billed = shares_of(own, _owners(store, row, clean))
    made.graph = join_generations(made.generations)
    return made


def _owners(store: Store, row: SessionRow, clean: Clean) -> Iterator[Generation]:
    """Yield the sessions of which a removed one has copies, as far as they can be read."""
    for edge in row.edges:
        if edge.link in _CONTINUES and not edge.child:
            uid = edge.uid(row.session.flavor)
            stored = store.load_session(uid)
            made = (
                _generation(store, stored, filled=False)[0]
                if stored is not None
                else _from_source(store, uid, clean)
            )
            if made is not None:
                yield made


def stored_ancestors(store: Store, clean: Clean) -> Find:
    """Return what finds the sessions in a store that a session of a file continues."""
    return lambda child, base: _ancestor(store, child, base, clean=clean)


def light(
    store: Store,
    stored: StoredSession,
    clean: Clean | None,
    notices: list[Notice] | None = None,
) -> SessionGraph:
    """Return a stored session with those it continues; payloads stay where they are.

    Ancestors that are not stored are read from their sources, unless `clean` is None. `notices`
    gets what is to be said of those that cannot be read.
    """
    from thence.agents.sessions import join_generations

    own = _generation(store, stored, filled=False)[0]
    problems = [] if notices is None else notices
    return join_generations(_lineage(store, own, problems, filled=False, clean=clean))


def _lineage(
    store: Store,
    own: Generation,
    notices: list[Notice],
    *,
    filled: bool = True,
    clean: Clean | None,
) -> list[Generation]:
    """Return a session and those it continues, youngest first."""
    from thence.agents.sessions import lineage_of

    def find(child: Generation, base: Base) -> Generation | None:
        return _ancestor(store, child, base, filled=filled, clean=clean)

    return lineage_of(own, find, notices)


def stored_generation(store: Store, uid: str) -> Generation | None:
    """Return a session without those it continues; None when tier 1 does not hold it."""
    stored = store.load_session(uid)
    return _generation(store, stored)[0] if stored is not None else None


def _generation(
    store: Store, stored: StoredSession, *, filled: bool = True
) -> tuple[Generation, list[Skipped]]:
    """Return a stored session as one of a lineage, and the records whose text is lost."""
    from thence.agents.sessions import Generation
    from thence.memory.payloads import salvage_payloads

    session = stored.row.session
    facts: list[Fact] = list(stored.facts)
    broken: list[Skipped] = []
    if filled:
        facts, broken = salvage_payloads(stored.facts, store.blobs, session.source_path or "")
    shares = stored.replayed, stored.billed, stored.ties
    made = Generation(session.session_uid, facts, stored.row.torn, *shares)
    return made, broken


def _ancestor(
    store: Store,
    child: Generation,
    base: Base,
    *,
    filled: bool = True,
    clean: Clean | None,
) -> Generation | None:
    """Return the stored session that another one continues; None when it is not stored.

    A log may name a log, not a session: then a tie of the session tells whose it is.
    """
    agent = child.uid.partition(":")[0]
    ties = [e.session for fact in child.facts for e in fact.edges if not e.child and not e.agent]
    for name in dict.fromkeys(filter(None, (base.session, *ties, base.file))):
        uid = f"{agent}:{name}"
        stored = store.load_session(uid)
        made = (
            _generation(store, stored, filled=filled)[0]
            if stored
            else _from_source(store, uid, clean)
        )
        if made is not None and (
            base.session == name or any(fact.file == base.file for fact in made.facts)
        ):
            return made
    return None


def _from_source(store: Store, uid: str, clean: Clean | None) -> Generation | None:
    """Return an evicted session as its source has it; None when that is gone as well."""
    if clean is None:
        return None
    from thence.agents.sessions import Generation

    for row in store.sessions(Filter(uids=(uid,))):
        try:
            loaded = _load_places(store, row)
        except SessionNotFound:  # its agent deleted it from a database
            return None
        if loaded is not None:
            graph = clean(loaded).graph
            return Generation(uid, [*graph.about_only, *graph.facts], graph.torn)
    return None


def _load_places(
    store: Store, row: SessionRow, elsewhere: Find | None = None
) -> LoadedSession | None:
    """Return a session as its logs have it, in all their places; None when it has none."""
    from thence.memory.session_sources import load_places
    from thence.memory.stored_paths import locate

    names = dict.fromkeys((row.session.source_path or "", *row.files))
    paths = [Path(locate(name)) for name in names]
    if not row.session.source_path or not paths[0].exists():
        return None
    there = [path for path in paths if path.exists()]
    uid = row.session.session_uid  # without secrets, as that of its log may be
    loaded = load_places(there, uid, store.known([uid]).sessions.get(uid), elsewhere)
    own = {file.path for file in loaded.source.files}
    if lost := sum(str(path) not in own for path in paths):
        detail = f"{lost} of its {len(paths)} files cannot be read again"
        loaded.notices.append(Notice("log incomplete", detail))
    return loaded


# -- what a session has from those it continues ----------------------------------------------


def with_lineage(
    store: Store, rows: Sequence[SessionRow], labels: Mapping[str, Label] | None = None
) -> list[SessionRow]:
    """Return rows that have the title and the model of the session they continue.

    That is where nobody gave them a title, or their own log names no model. The money and the
    events of a row stay its own. What the user calls a session is its title before all else, and
    its tags come with it. Such rows are for the eye: they are not written back.
    """
    from thence.agents.sessions import MAX_ANCESTORS
    from thence.memory.labels import add_labels

    known = {row.session.session_uid: row for row in rows}
    for _ in range(MAX_ANCESTORS):
        missing = {
            uid
            for row in known.values()
            if not _is_complete(row) and (uid := origin_of(row)) is not None and uid not in known
        }
        added = list(store.sessions(Filter(uids=tuple(missing)))) if missing else []
        if not added:
            break
        known.update((row.session.session_uid, row) for row in added)
    return add_labels([_with_inherited_title(row, known) for row in rows], labels or {})


def shown_rows(
    store: Store, uids: Iterable[str], labels: Mapping[str, Label]
) -> dict[str, SessionRow]:
    """Return the sessions of these uids as every list shows them, by uid."""
    rows = list(store.sessions(Filter(uids=tuple(uids))))
    return {row.session.session_uid: row for row in with_lineage(store, rows, labels)}


def ancestor_states(store: Store, row: SessionRow) -> tuple[tuple[str, str | None, int], ...]:
    """Return the stored sessions that one continues: uid, when evicted, rules of redaction.

    What was put together of a session holds as long as these are the same.
    """
    from thence.agents.sessions import MAX_ANCESTORS

    out: list[tuple[str, str | None, int]] = []
    seen = {row.session.session_uid}
    while (uid := origin_of(row)) is not None and uid not in seen and len(out) < MAX_ANCESTORS:
        seen.add(uid)
        above = next(iter(store.sessions(Filter(uids=(uid,)))), None)
        if above is None:
            break
        row = above
        out.append((uid, row.session.evicted_at, row.redactor))
    return tuple(out)


def origin_of(row: SessionRow) -> str | None:
    """Return the uid of the session that this one continues; None when it continues none."""
    uids = (
        edge.uid(row.session.flavor)
        for edge in row.edges
        if edge.link in _CONTINUES and not edge.child
    )
    return next(uids, None)


def _is_complete(row: SessionRow) -> bool:
    return row.is_named and row.session.model is not None


def _with_inherited_title(row: SessionRow, known: Mapping[str, SessionRow]) -> SessionRow:
    title = row.title if row.is_named else None
    model, seen, above = row.session.model, {row.session.session_uid}, row
    oldest = row.title
    while (uid := origin_of(above)) is not None and uid in known and uid not in seen:
        seen.add(uid)
        above = known[uid]
        title = title or (above.title if above.is_named else None)
        model = model or above.session.model
        oldest = above.title or oldest
    title = title or oldest
    if (title, model) == (row.title, row.session.model):
        return row
    return replace(row, title=title, session=replace(row.session, model=model))
