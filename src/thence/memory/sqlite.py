"""The store in one SQLite file: write-ahead log, thin rows, words in FTS5 tables of bounded size.

Sweeps commit with `synchronous=NORMAL`, digests and evictions with FULL, so that nothing is evicted
on the strength of a digest a power cut could take away.
Secure delete is on from the first page: what is deleted is overwritten.

The file and its connections: sqlite_file; its tables: sqlite_schema; its rows: sqlite_rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from thence.errors import (
    SessionNotFound,
)
from thence.format.facts import Fact
from thence.format.stored import StoredEvent
from thence.memory import backup, disk, pages
from thence.memory.derivation import is_of_this_fold
from thence.memory.index import SqliteWords, WordIndex, every, first
from thence.memory.packs import BlobStore, Packs
from thence.memory.rows import (
    CURSOR,
    FOR_LATER,
    PACK,
    ROW,
    SETTLE,
    WITHOUT_OWN,
    clean,
    inventory,
    now,
    removal_body,
)
from thence.memory.search import as_asked
from thence.memory.sqlite_file import SqliteFile, translate_errors
from thence.memory.sqlite_rows import (
    DIGESTS,
    TITLES,
    SessionIndex,
    blank_traces,
    claim,
    empty_session,
    foreign_claims,
    is_copied,
    kin_of,
    note_removal,
    put_digest,
    put_events,
    put_session,
    rename_refs,
)
from thence.memory.sqlite_vectors import SqliteVectors
from thence.memory.statements import INVENTORY, Dialect, SqlReads, shared
from thence.memory.store import (
    DATA_LOSS,
    DigestRecord,
    EventIds,
    Inventory,
    Position,
    SessionChange,
    StoreDamaged,
    StoredSession,
    Tail,
    facts_behind,
    uid_hash,
    unpack_facts,
    unpack_fold,
)

if TYPE_CHECKING:
    from thence.memory.encoder import Encoder
    from thence.memory.search import Query, SearchAnswer
    from thence.memory.vectors import Vectors

BATCH_SESSIONS = 250
"""Sessions that are removed at once, at most: what they leave must fit into the log."""


_DIALECT: Final = Dialect(
    mark="?",
    of_session="sessions.id={table}.session",
    # Sessions first: the order of a plain join would be SQLite's to choose, which takes signals.
    signals="sessions CROSS JOIN signals",
    minute_of_end="strftime('%Y-%m-%dT%H:%M', ended/1000, 'unixepoch')",
    # By its number a session is met in the order of the table, by its uid all over it.
    session_key="sessions.id",
    machine="NULL",
    # The column lies behind the bytes of the row; the index of these few sessions does not.
    is_bound="max(sessions.id IN (SELECT id FROM sessions WHERE bound))=1",
    orders={"digests": "ended, uid", "signals": "ended, uid, signals.id", "spend": "day, uid"},
)


class Sqlite(SqlReads, SqliteFile):
    """A store in one file, with its packs beside it."""

    dialect = _DIALECT

    def __init__(self, path: str, *, must_exist: bool = False) -> None:
        """Open the store, making it when there is none; with `must_exist` SessionNotFound then."""
        super().__init__(path, must_exist=must_exist)
        self.vectors: Vectors | None = None
        """What finds by meaning, once an encoder is in use."""
        try:
            with translate_errors(self.path):
                self.blobs: BlobStore = Packs(self._packs_folder())
        except StoreDamaged:
            self.close()
            raise

    def _packs_folder(self) -> Path:
        """Return the folder of this store's packs, and make it if the folder has two stores.

        Packs are named after sessions alone: in one folder, two stores would delete each other's.
        A store that is alone has `packs`; one that was begun beside another has one of its own.
        """
        own = self.path.with_name(f"{self.path.name}.packs")
        if own.is_dir():
            return own
        has_sessions = first(self._db, "SELECT count(*) FROM (SELECT 1 FROM sessions LIMIT 1)")
        if has_sessions or not disk.databases_beside(self.path):
            return self.path.with_name("packs")
        with contextlib.suppress(OSError):  # a read-only disk: there is nothing to write there
            own.mkdir(mode=0o700, exist_ok=True)
        return own

    # -- sweeping -----------------------------------------------------------------------

    def known(self, uids: Collection[str] | None = None) -> Inventory:
        """Return the cursors of all sessions, or of some, and which ones must not come back."""
        db = self._db
        if uids is None:
            rows = every(db, INVENTORY)
            distilled = first(db, "SELECT sum(distilled) FROM sessions") or 0
        else:
            some = msgspec.json.encode([clean(uid) for uid in uids]).decode()
            rows = every(db, _SOME, some)
            distilled = 0
        return inventory(
            rows,
            (tombstone for (tombstone,) in every(db, "SELECT uid_hash FROM tombstones")),
            distilled,
            (name for (name,) in every(db, "SELECT name FROM pending")),
            self._kin_of,
            takes_older=uids is None,
        )

    def _kin_of(self, uid: str) -> set[str]:
        session = first(self._db, "SELECT id FROM sessions WHERE uid=?", uid)
        return set() if session is None else kin_of(self._db, session)

    def write(
        self, changes: Sequence[SessionChange] = (), digests: Sequence[DigestRecord] = ()
    ) -> dict[str, set[str]]:
        """Write what reads found and what was learned: all of it or nothing."""
        conflicts: dict[str, set[str]] = {}
        full = bool(digests) or any(change.renamed for change in changes)
        with self._transaction(full=full) as db:
            words = WordIndex(db)
            for change, start in words.arrange(changes):
                session, restated = put_session(db, change)
                uid = change.row.session.session_uid
                if change.renamed:
                    rename_refs(db, session, change)
                elif not restated:
                    put_events(db, words, self.blobs, session, change, start)
                    is_shared = (
                        claim(db, session, change)
                        or is_copied(db, session, change)
                        or first(db, "SELECT 1 FROM pending WHERE name=?", WITHOUT_OWN + uid)
                    )
                    # Growth that shares nothing new leaves the family as it was compared last.
                    if (is_shared or change.fresh) and (others := kin_of(db, session)):
                        conflicts[uid] = others
                        db.execute("INSERT OR IGNORE INTO pending VALUES(?)", (SETTLE + uid,))
                if change.settled:
                    names = (SETTLE + uid, WITHOUT_OWN + uid)
                    db.execute("DELETE FROM pending WHERE name IN (?, ?)", names)
                if change.without_own:
                    db.execute("INSERT OR IGNORE INTO pending VALUES(?)", (WITHOUT_OWN + uid,))
            at = now()
            for digest in digests:
                there = first(db, "SELECT id FROM sessions WHERE uid=?", digest.uid)
                if there is not None:
                    put_digest(db, there, digest, at)
        return conflicts

    def load_session(self, uid: str) -> StoredSession | None:
        """Return what tier 1 holds of a session; None when nothing is."""
        db = self._db
        with db:  # one moment, though another process may write meanwhile
            rows = db.execute("SELECT id, row, cursor, evicted FROM sessions WHERE uid=?", (uid,))
            there = rows.fetchone()
            if there is None or there[3] is not None:
                return None
            session, row, cursor, _ = there
            parts = db.execute("SELECT body FROM facts WHERE session=? ORDER BY part", (session,))
            facts = [fact for (body,) in parts for fact in unpack_facts(body)]
            shares = first(db, "SELECT body FROM shares WHERE session=?", session)
            foreign = foreign_claims(db, session, facts)
        parts_of_others = shared(shares)
        return StoredSession(
            ROW.decode(row), CURSOR.decode(cursor), facts, *parts_of_others, foreign
        )

    def events(
        self, uid: str, *, after: int = -1, limit: int | None = None, ids: EventIds | None = None
    ) -> list[StoredEvent]:
        """Return the events of a session after a number, in the order of their numbers."""
        db = self._db
        sql = "SELECT id, fold FROM sessions WHERE uid=? AND evicted IS NULL"
        row = db.execute(sql, (uid,)).fetchone()
        if row is None:
            return []
        session, version = row
        if not is_of_this_fold(version):
            stored = self.load_session(uid)
            return pages.derive_events(uid, stored, after=after, limit=limit, ids=ids)
        if ids is not None:
            bodies = self._pages_with(session, ids)
        else:
            start = f"ifnull((SELECT max(first) {_PAGE_OF}), 0)"
            sql = f"SELECT body FROM event_pages WHERE session=? AND first>={start} ORDER BY first"  # noqa: S608
            bodies = (body for (body,) in db.execute(sql, (session, session, max(after, 0))))
        return pages.select_events(uid, bodies, after=after, limit=limit, ids=ids)

    def _pages_with(self, session: int, ids: EventIds) -> Iterator[bytes]:
        """Yield the pages that hold events with ids in a range."""
        sql = "SELECT seq FROM events WHERE session=? AND event_id BETWEEN ? AND ? AND seq NOTNULL"
        numbers = every(self._db, sql, session, *ids)
        starts = {
            first(self._db, f"SELECT max(first) {_PAGE_OF}", session, at) for (at,) in numbers
        }
        for start in sorted(starts):
            page_sql = "SELECT body FROM event_pages WHERE session=? AND first=?"
            yield first(self._db, page_sql, session, start)

    def tail(self, uid: str) -> Tail | None:
        """Return the end of a session, to continue it; None when tier 1 holds nothing of it."""
        db = self._db
        with db:  # one moment, though another process may write meanwhile
            row = db.execute(
                "SELECT id, row, cursor, folds.body, shares.body FROM sessions"
                " LEFT JOIN folds ON folds.session=id LEFT JOIN shares ON shares.session=id"
                " WHERE uid=? AND evicted IS NULL",
                (uid,),
            ).fetchone()
            last = every(db, f"{_PARTS} ORDER BY part DESC LIMIT 1", row[0]) if row else []
        if row is None:
            return None
        session, body, cursor, fold, shares = row
        state, spend = unpack_fold(fold) if fold else (None, ())
        index = SessionIndex(lambda: self._db, session)
        position = last[0] if last else (0, 0)
        return Tail(
            *(ROW.decode(body), CURSOR.decode(cursor), state, spend, *shared(shares)),
            *(index, position),
        )

    def digest_state(self, uid: str) -> bytes | None:
        """Return what the next digest of a session goes on from; None when there is nothing."""
        sql = "SELECT body FROM digest_states JOIN sessions ON id=session WHERE uid=?"
        body: bytes | None = first(self._db, sql, uid)
        return body

    def facts_after(
        self, uid: str, position: Position, lines: Mapping[str, tuple[int, int]]
    ) -> list[Fact]:
        """Return the facts of a session after a position, those up to `lines` left out."""
        db = self._db
        out: list[Fact] = []
        with db:  # one moment, though another process may write meanwhile
            session = first(db, "SELECT id FROM sessions WHERE uid=?", uid)
            parts = every(db, f"{_PARTS} ORDER BY part DESC", session)
            sql = "SELECT body FROM facts WHERE session=? AND part=?"
            out += facts_behind(parts, lambda part: first(db, sql, session, part), position, lines)
        return out

    # -- reading ------------------------------------------------------------------------

    def _every(self, statement: str, *values: Any) -> list[Any]:
        return every(self._db, statement, *values)

    def _sums(self, keys: str, order: str, where: str) -> str:
        """Ask for the sums of sessions; those of all of them need no look at each."""
        if keys or where != "1=1":
            return super()._sums(keys, order, where)
        sums = {
            **self._figures(),
            "sessions": "(SELECT count(*) FROM sessions)",
            "is_lower_bound": "EXISTS(SELECT 1 FROM sessions WHERE bound)",
            "ended": "(SELECT max(ended) FROM sessions)",
        }
        return f"SELECT {', '.join(sums.values())} FROM spend"  # noqa: S608

    def search(self, query: Query, limit: int = 20, offset: int = 0) -> SearchAnswer:
        """Find events by their words, the best first, within a budget of time."""
        from thence.memory import vectors

        source = SqliteWords(self._db, query)
        answer = vectors.search((source, self.sessions), query, limit, offset, self.vectors)
        return msgspec.structs.replace(answer, matches=as_asked(answer.matches, query))

    def paces(self, uid: str) -> Sequence[tuple[int, int, int]]:
        """Return time in milliseconds, kind and derived kinds of every event, in any order."""
        session = first(self._db, "SELECT id FROM sessions WHERE uid=?", uid)
        return every(self._db, "SELECT ts, kind, implied FROM events WHERE session=?", session)

    def use_encoder(self, encoder: Encoder) -> None:
        """Let searches find by meaning as well."""
        from thence.memory.vectors import Vectors

        self.vectors = Vectors(SqliteVectors(lambda: self._db, self._transaction), encoder)

    # -- removing -----------------------------------------------------------------------

    def remove(
        self,
        uids: Collection[str],
        *,
        why: Mapping[str, str],
        forget: bool = False,
        lost: bool = False,
        buried: Collection[bytes] = (),
    ) -> list[str]:
        """Evict sessions from tier 1, or forget them altogether; the uids still pending.

        One that is not there is said before any goes; of one that is forgotten already what is
        left of it goes. Many go some at a time, each time with what is left to be done for them.
        """
        going = {uid: self._number(uid, forget=forget) for uid in uids}
        what = "forget" if forget else DATA_LOSS if lost else "evict"
        if forget:
            backup.drop_upgrade_copies(self.path, days=0)
        if buried:
            with self._transaction(full=True) as db:
                graves = [(value,) for value in sorted(buried)]
                db.executemany("INSERT OR IGNORE INTO tombstones VALUES(?)", graves)
        with self._transaction(full=True) as db:
            for uid in (uid for uid, session in going.items() if session is None):
                blank_traces(db, uid, forget=True)
        there = [(session, uid) for uid, session in going.items() if session is not None]
        for at in range(0, len(there), BATCH_SESSIONS):
            some = dict(there[at : at + BATCH_SESSIONS])
            with self._transaction(full=True) as db:
                pending = {PACK + uid for uid in some.values()} | WordIndex(db).delete(some)
                for session, uid in some.items():
                    size = first(db, "SELECT raw_bytes FROM sessions WHERE id=?", session)
                    empty_session(db, session, forget=forget, uid=uid)
                    reason = why.get(uid, "asked for")
                    note_removal(db, what, removal_body(uid, size, reason, forget=forget))
                db.executemany(
                    "INSERT OR IGNORE INTO pending VALUES(?)", [(value,) for value in pending]
                )
        return [] if self.settle() else list(uids)

    def _number(self, uid: str, *, forget: bool) -> int | None:
        """Return the number that a session has in this store; None for one that it forgot."""
        number: int | None = first(self._db, "SELECT id FROM sessions WHERE uid=?", uid)
        sql = "SELECT 1 FROM tombstones WHERE uid_hash=?"
        if number is None and not (forget and first(self._db, sql, uid_hash(uid))):
            raise SessionNotFound(f"no session {uid} in the store")
        return number

    def settle(self) -> bool:
        """Make sure that what was deleted is in no page of the file; False when that must wait.

        What is to be done is written down with the deletion itself, so that it is done at last
        however often it is cut short.
        """
        db = self._db
        pending = [name for (name,) in every(db, "SELECT name FROM pending")]
        for name in pending:
            if name.startswith(PACK):
                self.blobs.evict(name.removeprefix(PACK))
        for name in pending:
            if name in (DIGESTS, TITLES) or first(db, "SELECT 1 FROM tables WHERE name=?", name):
                with self._transaction(full=True):
                    db.execute(f"INSERT INTO {name}({name}) VALUES('optimize')")
                    db.execute("DELETE FROM pending WHERE name=?", (name,))
        with self._transaction(full=True):
            done = [(name,) for name in pending if not name.startswith(FOR_LATER)]
            db.executemany("DELETE FROM pending WHERE name=?", done)
        if busy := self._shrink():
            with self._transaction():
                db.execute("INSERT OR IGNORE INTO pending VALUES('(log)')")
        return not busy


# -- rows -----------------------------------------------------------------------------------

_SOME = f"{INVENTORY} WHERE uid IN (SELECT value FROM json_each(?))"  # noqa: S608 - written above
_PAGE_OF = "FROM event_pages WHERE session=? AND first<=?"
_PARTS = "SELECT part, length(body) FROM facts WHERE session=?"
