"""Rows of the SQLite store: what one change writes, inside the transaction of who calls.

Every function takes the connection. Rows of a session and its cursor move together; what is
replaced is deleted here and overwritten by SQLite (`secure_delete`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

import apsw
import msgspec

from thence.errors import ThenceError
from thence.format.facts import Fact
from thence.format.normal import KINDS, event_id
from thence.memory import pages, sqlite_vectors
from thence.memory.cjk_pairs import index_text
from thence.memory.index import WordIndex, digest_text, every, first
from thence.memory.packs import BlobStore, pack_name, short_ref
from thence.memory.rows import (
    BLANK_REMOVALS,
    FOR_LATER,
    REPACK,
    ROW,
    SMALL_PART_BYTES,
    SMALL_PARTS,
    blanked,
    clean,
    columns,
    digest_version,
    encode_row,
    now,
    searched_title,
    spend_values,
    with_verdict,
)
from thence.memory.search import meta, payload_words, token
from thence.memory.store import (
    DigestRecord,
    SessionChange,
    SessionRow,
    call_key,
    claims,
    owner_key,
    pack_facts,
    uid_hash,
    unpack_facts,
)

DIGESTS = "digest_words"
TITLES = "title_words"
TIER_1 = ("events", "event_pages", "facts", "shares", "folds", "calls", "digest_states")


class SessionIndex:
    """What is stored of one session, looked up by id, call and bill."""

    def __init__(self, connection: Callable[[], apsw.Connection], session: int) -> None:
        self._connection = connection
        self._session = session

    def _has(self, sql: str, *values: int) -> bool:
        return self._connection().execute(sql, values).fetchone() is not None

    def has_event(self, event_id: int) -> bool:
        """Return whether an event has this id."""
        sql = "SELECT 1 FROM events WHERE session=? AND event_id=?"
        return self._has(sql, self._session, event_id)

    def has_call(self, call: str) -> bool:
        """Return whether a call or a result has this id."""
        sql = "SELECT 1 FROM calls WHERE session=? AND key=?"
        return self._has(sql, self._session, call_key(call))

    def has_bill(self, usage_key: str) -> bool:
        """Return whether a record of this session, or of another one, has this usage key."""
        return self._has("SELECT 1 FROM owners WHERE key=?", owner_key("bill", usage_key))


def put_session(db: apsw.Connection, change: SessionChange) -> tuple[int, bool]:
    """Write the row of a session; its number, and whether that was all there is to write."""
    row = change.row
    known = db.execute(
        "SELECT id, change, redactor, row FROM sessions WHERE uid=?",
        (clean(row.session.session_uid),),
    ).fetchone()
    if known is not None and known[1] == row.change and change.settled:
        return known[0], True
    if known is not None:
        _put_title(db, known[0], ROW.decode(known[3]), row)
    if known is not None and known[1] == row.change:
        if known[2] != row.redactor:  # its digest was made anew by newer rules
            db.execute("INSERT OR IGNORE INTO pending VALUES(?)", (DIGESTS,))
        db.execute(
            "UPDATE sessions SET gone=?, pinned=?, redactor=?, path=?, project=?, row=? WHERE id=?",
            (
                *(row.gone, row.pinned, row.redactor, row.session.source_path or ""),
                clean(row.folder),
                *(encode_row(row), known[0]),
            ),
        )
        return known[0], True
    values = columns(change)
    if known is not None:
        sets = ", ".join(f"{name}=?" for name in values)
        db.execute(f"UPDATE sessions SET {sets} WHERE id=?", (*values.values(), known[0]))  # noqa: S608
        return known[0], False
    values["discovered"] = values["ingested"]
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    db.execute(f"INSERT INTO sessions({names}) VALUES({marks})", tuple(values.values()))
    session = db.last_insert_rowid()
    _put_title(db, session, None, row)
    return session, False


def _put_title(
    db: apsw.Connection, session: int, before: SessionRow | None, row: SessionRow
) -> None:
    """Index the title of a session if it is another one than before."""
    old, title = searched_title(before) if before else "", searched_title(row)
    if old == title:
        return
    if old:  # it may have been kept by rules that did not know a secret
        db.execute("DELETE FROM title_words WHERE rowid=?", (session,))
        db.execute("INSERT OR IGNORE INTO pending VALUES(?)", (TITLES,))
    if title:
        db.execute(
            "INSERT INTO title_words(rowid, body, meta) VALUES(?,?,?)",
            (session, index_text(title), f"agent{token(row.session.flavor)}"),
        )


def put_events(  # noqa: PLR0917 - two places, and what goes there
    db: apsw.Connection,
    words: WordIndex,
    blobs: BlobStore,
    session: int,
    change: SessionChange,
    start: int,
) -> None:
    """Write the events, facts, words and sums of a change, from row `start` on if there is one."""
    if change.fresh and first(db, "SELECT 1 FROM facts WHERE session=?", session):
        # What is replaced may have been kept by rules that did not know a secret.
        stale = {REPACK + change.row.session.session_uid, DIGESTS, *words.delete([session])}
        for table in TIER_1:
            db.execute(f"DELETE FROM {table} WHERE session=?", (session,))  # noqa: S608
        sqlite_vectors.drop_vectors(db, session)
        db.executemany("INSERT OR IGNORE INTO pending VALUES(?)", [(name,) for name in stale])
    if change.untidy:
        name = REPACK + change.row.session.session_uid
        db.execute("INSERT OR IGNORE INTO pending VALUES(?)", (name,))
    if change.facts:
        _put_facts(db, session, change.facts)
    _put_fold(db, session, change)
    if change.rebuilt:
        db.execute("DELETE FROM digest_states WHERE session=?", (session,))
        change = _compare_change(db, session, change)
    numbers = _put_pages(db, session, change)
    _alter_events(db, words, blobs, session, change, numbers)  # an index likes rising numbers
    start = start or words.place(session, change)
    ids = _put_rows(db, words, session, change, start, numbers)
    words.add((ids[w.event_id], w.body, w.meta) for w in change.words if w.event_id in ids)
    if change.vanished:
        words.drop(session, change.vanished)
    db.execute("DELETE FROM spend WHERE session=?", (session,))
    db.executemany(
        "INSERT INTO spend VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)",
        [(session, *spend_values(spend)) for spend in change.spend],
    )
    if change.replayed is not None:
        shared = (change.replayed, change.billed or frozenset(), change.ties)
        body = msgspec.msgpack.encode(shared)
        db.execute("INSERT OR REPLACE INTO shares VALUES(?,?)", (session, body))


def _compare_change(db: apsw.Connection, session: int, change: SessionChange) -> SessionChange:
    """Return the change of a session that was rebuilt as what is new, altered or gone."""
    uid = change.row.session.session_uid
    stored = every(db, "SELECT body FROM event_pages WHERE session=?", session)
    rows = (row for (body,) in stored for row in pages.unpack_page(uid, body) or ())
    ids = every(db, "SELECT event_id FROM events WHERE session=? AND NOT derived", session)
    return pages.compare_events(change, rows, {at for (at,) in ids})


def _put_pages(db: apsw.Connection, session: int, change: SessionChange) -> dict[int, int]:
    """Write the events of a change into pages, and return their numbers."""
    sql = "SELECT seq FROM events WHERE session=? AND event_id=?"
    ids = [*(row.event.event_id for row in change.altered), *change.vanished]
    numbers: dict[int, int | None] = {at: first(db, sql, session, at) for at in ids}
    if not ids and not change.events:
        return {}
    lowest = min((seq for seq in numbers.values() if seq is not None), default=1 << 62)
    stored = every(
        db,
        "SELECT first, body FROM event_pages WHERE session=? AND first>="
        " ifnull((SELECT max(first) FROM event_pages WHERE session=? AND first<=?), 0)",
        *(session, session, lowest),
    )
    uid = change.row.session.session_uid
    changed = pages.change_pages(uid, dict(stored), change, numbers)
    db.executemany(
        "DELETE FROM event_pages WHERE session=? AND first=?",
        [(session, at) for at in changed.dropped],
    )
    db.executemany(
        "INSERT INTO event_pages(session, first, body) VALUES(?,?,?)"
        " ON CONFLICT(session, first) DO UPDATE SET body=excluded.body",
        [(session, at, body) for at, body in changed.pages.items()],
    )
    return changed.numbers


def _alter_events(  # noqa: PLR0917 - as `put_events`
    db: apsw.Connection,
    words: WordIndex,
    blobs: BlobStore,
    session: int,
    change: SessionChange,
    numbers: Mapping[int, int],
) -> None:
    """Write what later records say of earlier events; their words get the tokens of today."""
    retold = {w.event_id: w for w in change.words if w.event_id in change.retold}
    stored = "SELECT id, kind, tool, implied FROM events WHERE session=? AND event_id=?"
    values = "ts=?, kind=?, state=?, tool=?, tokens=?, ref=?, implied=?, seq=?"
    pack = _pack_of(change)
    for altered in change.altered:
        event, ref = pages.thin_row(altered), altered.event.payload_ref
        row = db.execute(stored, (session, event.event_id)).fetchone()
        if row is None:
            continue
        number, *before = row
        db.execute(
            f"UPDATE events SET {values} WHERE id=?",  # noqa: S608 - written above
            (
                *(event.ts, event.kind, event.state, event.tool, event.tokens),
                *(ref and short_ref(ref, pack), event.implied, numbers[event.event_id], number),
            ),
        )
        if (longer := retold.get(event.event_id)) is not None:
            words.replace(number, longer.body, longer.meta)
            continue
        if before == [event.kind, event.tool, event.implied]:
            continue
        # Where the text is lost its words stay as they are; doctor tells of it.
        with contextlib.suppress(ThenceError):
            body = "" if ref is None else payload_words(blobs, ref)
            tokens = meta(change.row.session.flavor, KINDS[event.kind], event.tool, event.implied)
            words.replace(number, body, tokens)


def _put_facts(db: apsw.Connection, session: int, body: bytes) -> None:
    """Add a piece of facts; small ones, as a live session makes them, are joined to larger ones."""
    sizes = every(
        db,
        "SELECT part, length(body) FROM facts WHERE session=? ORDER BY part DESC LIMIT ?",
        *(session, SMALL_PARTS),
    )
    part = sizes[0][0] + 1 if sizes else 1
    if len(sizes) == SMALL_PARTS and all(size < SMALL_PART_BYTES for _, size in sizes):
        part = sizes[-1][0]
        small = every(
            db, "SELECT body FROM facts WHERE session=? AND part>=? ORDER BY part", session, part
        )
        facts = [fact for (piece,) in [*small, (body,)] for fact in unpack_facts(piece)]
        body = pack_facts(facts)
        db.execute("DELETE FROM facts WHERE session=? AND part>=?", (session, part))
    db.execute("INSERT INTO facts VALUES(?,?,?)", (session, part, body))


def _put_fold(db: apsw.Connection, session: int, change: SessionChange) -> None:
    """Write the state by which a session is continued, or that there is none."""
    if change.fold:
        db.execute("INSERT OR REPLACE INTO folds VALUES(?,?)", (session, change.fold))
    else:
        db.execute("DELETE FROM folds WHERE session=?", (session,))
    db.executemany(
        "INSERT OR IGNORE INTO calls VALUES(?,?)", [(session, key) for key in change.calls]
    )


def rename_refs(db: apsw.Connection, session: int, change: SessionChange) -> None:
    """Let refs lead to where payloads lie now."""
    db.execute("DELETE FROM facts WHERE session=?", (session,))
    db.execute("DELETE FROM folds WHERE session=?", (session,))
    db.execute("INSERT INTO facts VALUES(?,?,?)", (session, 1, change.facts))
    uid = change.row.session.session_uid
    stored = every(db, "SELECT first, body FROM event_pages WHERE session=?", session)
    db.executemany(
        "UPDATE event_pages SET body=? WHERE session=? AND first=?",
        [(pages.rename_page(uid, body, change.renamed), session, at) for at, body in stored],
    )
    _rename_rows(db, session, change)
    db.execute("DELETE FROM pending WHERE name=?", (REPACK + uid,))


def _pack_of(change: SessionChange) -> str:
    """Return the pack that refs of rows leave out: its name is made of the session's uid."""
    return pack_name(clean(change.row.session.session_uid) or "")


def _rename_rows(db: apsw.Connection, session: int, change: SessionChange) -> None:
    """Let the rows of events lead to where payloads lie now."""
    pack = _pack_of(change)
    moved = {
        short_ref(old, pack): short_ref(new, pack)
        for old, new in change.renamed.items()
        if new != old
    }
    rows = every(db, "SELECT id, ref FROM events WHERE session=? AND ref NOTNULL", session)
    db.executemany(
        "UPDATE events SET ref=? WHERE id=?",
        [(moved[ref], number) for number, ref in rows if ref in moved],
    )


def note_refs(db: apsw.Connection) -> None:
    """Note with events where their payloads lie, as their pages say; earlier stores do not."""
    for session, uid in every(db, "SELECT id, uid FROM sessions"):
        pack, refs = pack_name(uid), dict[int, str | None]()
        for (page,) in db.execute("SELECT body FROM event_pages WHERE session=?", (session,)):
            refs |= pages.unpack_refs(page)
        rows = every(db, "SELECT id, seq FROM events WHERE session=? AND seq NOTNULL", session)
        db.executemany(
            "UPDATE events SET ref=? WHERE id=?",
            [(short_ref(ref, pack), number) for number, seq in rows if (ref := refs.get(seq))],
        )


def _put_rows(  # noqa: PLR0917 - as `put_events`
    db: apsw.Connection,
    words: WordIndex,
    session: int,
    change: SessionChange,
    start: int,
    numbers: Mapping[int, int],
) -> dict[int, int]:
    """Write rows of new events in their order from `start` on, and return the row of each."""
    ids: dict[int, int] = {}
    rows: list[tuple[int | str | None, ...]] = []
    pack = _pack_of(change)
    for number, event in enumerate(change.events, start):
        thin = pages.thin_row(event)
        ids[thin.event_id] = number
        values = (thin.event_id, thin.ts, thin.kind, thin.state, thin.tool, thin.tokens)
        ref = thin.ref and short_ref(thin.ref, pack)
        rows.append((number, session, *values, ref, thin.implied, numbers[thin.event_id]))
    db.executemany(
        "INSERT OR IGNORE INTO events(id, session, event_id, ts, kind, state, tool, tokens, ref,"
        " implied, seq) VALUES(?,?,?,?,?,?,?,?,?,?,?)",
        rows,
    )
    words.next_id = max(words.next_id, start + len(change.events))
    return ids


def put_digest(db: apsw.Connection, session: int, digested: DigestRecord, now: int) -> None:
    """Write a digest and its signals, in place of earlier ones."""
    body = msgspec.msgpack.encode(digested.digest)
    db.execute(
        "INSERT OR REPLACE INTO digests VALUES(?,?,?,?)", (session, digested.change, now, body)
    )
    db.execute("DELETE FROM digest_states WHERE session=?", (session,))
    if digested.state is not None:
        db.execute("INSERT INTO digest_states VALUES(?,?)", (session, digested.state))
    sqlite_vectors.drop_digest_vector(db, session)
    db.execute("DELETE FROM digest_words WHERE rowid=?", (session,))
    db.execute(
        "INSERT INTO digest_words(rowid, body, meta) SELECT id, ?, 'agent'||agent FROM sessions"
        " WHERE id=?",
        (index_text(digest_text(body)), session),
    )
    db.execute("DELETE FROM signals WHERE session=?", (session,))
    signals = [(session, s["kind"], msgspec.msgpack.encode(s)) for s in digested.signals]
    db.executemany("INSERT INTO signals(session, kind, body) VALUES(?,?,?)", signals)
    row = ROW.decode(first(db, "SELECT row FROM sessions WHERE id=?", session))
    judged_row = msgspec.structs.replace(row, session=with_verdict(row.session, digested))
    db.execute(
        "UPDATE sessions SET outcome=?, distilled=?, digest=?, row=? WHERE id=?",
        (
            digested.outcome,
            len(body) + sum(len(signal) for *_, signal in signals),
            digest_version(digested),
            encode_row(judged_row),
            session,
        ),
    )
    # A session that went on since it was read stays un-analysed: the digest does not cover it.
    db.execute(
        "UPDATE sessions SET analysed=? WHERE id=? AND change=?", (now, session, digested.change)
    )


def claim(db: apsw.Connection, session: int, change: SessionChange) -> bool:
    """Claim what nobody owns yet, and return whether other sessions own some of it: kin."""
    keys = change.claims
    db.executemany("INSERT OR IGNORE INTO owners VALUES(?,?)", [(k, session) for k in keys])
    others: set[int] = set()
    for at in range(0, len(keys), 500):
        some = keys[at : at + 500]
        marks = ",".join("?" * len(some))
        rows = db.execute(
            f"SELECT DISTINCT session FROM owners WHERE key IN ({marks}) AND session!=?",  # noqa: S608
            (*some, session),
        )
        others |= {owner for (owner,) in rows}
    pairs = [pair for other in others for pair in ((session, other), (other, session))]
    db.executemany("INSERT OR IGNORE INTO kin VALUES(?,?)", pairs)
    db.executemany(
        "INSERT OR REPLACE INTO owners SELECT ?, id FROM sessions WHERE uid=?", change.owned
    )
    return bool(others)


def is_copied(db: apsw.Connection, session: int, change: SessionChange) -> bool:
    """Return whether kin hold copies of new records that nobody claims, such as prompts."""
    if not change.records:
        return False
    kin = every(
        db, "SELECT id, uid FROM kin JOIN sessions ON id=other WHERE kin.session=?", session
    )
    return any(
        first(db, "SELECT 1 FROM events WHERE session=? AND event_id=?", other, event_id(uid, name))
        for other, uid in kin
        for name in change.records
    )


def kin_of(db: apsw.Connection, session: int) -> set[str]:
    """Return the sessions that have claims in common with this one, directly or not."""
    if first(db, "SELECT 1 FROM kin WHERE session=?", session) is None:
        return set()
    rows = every(
        db,
        "WITH RECURSIVE near(id) AS (VALUES(?) UNION SELECT other FROM kin, near WHERE session=id)"
        " SELECT uid FROM sessions JOIN near USING(id) WHERE id!=?",
        *(session, session),
    )
    return {uid for (uid,) in rows}


def foreign_claims(db: apsw.Connection, session: int, facts: Sequence[Fact]) -> frozenset[int]:
    """Return the claims of a session that evicted ones own: these are counted in their digests."""
    evicted = every(
        db,
        "SELECT other FROM kin JOIN sessions ON id=other WHERE session=? AND evicted IS NOT NULL",
        session,
    )
    if not evicted:
        return frozenset()
    marks = ",".join(str(other) for (other,) in evicted)
    keys = {
        key
        for (key,) in every(db, f"SELECT key FROM owners WHERE session IN ({marks})")  # noqa: S608
    }
    return frozenset(keys.intersection(claims(facts)))


def empty_session(db: apsw.Connection, session: int, *, forget: bool, uid: str) -> None:
    """Delete tier 1 of a session; with `forget` all of it, leaving a tombstone."""
    for table in (*TIER_1, "spend", "digests", "signals") if forget else TIER_1:
        db.execute(f"DELETE FROM {table} WHERE session=?", (session,))  # noqa: S608
    sqlite_vectors.drop_vectors(db, session, keep_digest=not forget)
    blank_traces(db, uid, forget=forget)
    if forget:
        for table in (DIGESTS, TITLES):
            db.execute(f"DELETE FROM {table} WHERE rowid=?", (session,))  # noqa: S608
            db.execute(f"INSERT INTO {table}({table}) VALUES('optimize')")
        db.execute("DELETE FROM owners WHERE session=?", (session,))
        db.execute("DELETE FROM kin WHERE session=? OR other=?", (session, session))
        db.execute("DELETE FROM sessions WHERE id=?", (session,))
        db.execute("INSERT OR IGNORE INTO tombstones VALUES(?)", (uid_hash(uid),))
    else:
        db.execute("UPDATE sessions SET evicted=?, raw_bytes=0 WHERE id=?", (now(), session))


def blank_traces(db: apsw.Connection, uid: str, *, forget: bool) -> None:
    """Delete what waits for a session; with `forget` its id in earlier removals as well."""
    db.executemany("DELETE FROM pending WHERE name=?", [(kind + uid,) for kind in FOR_LATER])
    if forget:
        db.execute(BLANK_REMOVALS.format(mark="?"), blanked(uid))


def note_removal(db: apsw.Connection, what: str, body: str) -> None:
    """Add a line to the list of removals."""
    db.execute("INSERT INTO removals(at, what, body) VALUES(?,?,?)", (now(), what, body))
