"""The store in one SQLite file: write-ahead log, thin rows, words in FTS5 tables of bounded size.

Sweeps commit with `synchronous=NORMAL`, digests and evictions with FULL, so that nothing is evicted
on the strength of a digest a power cut could take away.
Secure delete is on from the first page: what is deleted is overwritten.

The file and its connections: sqlite_file; its tables: sqlite_schema; its rows: sqlite_rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from thence.errors import (
    SessionNotFound,
)
from thence.format import fold as session_fold
from thence.format.facts import Fact
from thence.format.records import JSON
from thence.format.stored import StoredEvent, StoredRefs
from thence.memory import backup, disk, pages, vectors
from thence.memory.encoder import Encoder
from thence.memory.index import SqliteWords, WordIndex, every, first, time_column
from thence.memory.packs import BlobStore, Packs
from thence.memory.rows import (
    CURSOR,
    FOR_LATER,
    NAMES,
    PACK,
    ROW,
    SETTLE,
    SHARES,
    WITHOUT_OWN,
    inventory,
    now,
    plain_conditions,
    with_marks,
)
from thence.memory.search import Query, SearchAnswer, SearchMatch, as_asked
from thence.memory.sqlite_file import SqliteFile, translate_errors
from thence.memory.sqlite_rows import (
    DIGESTS,
    TITLES,
    SessionIndex,
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
from thence.memory.store import (
    DATA_LOSS,
    DigestRecord,
    EventIds,
    Filter,
    Group,
    Inventory,
    Position,
    SessionChange,
    SessionRow,
    StoreDamaged,
    StoredSession,
    Tail,
    Tier2,
    Total,
    facts_behind,
    unpack_facts,
    unpack_fold,
)

BATCH_SESSIONS = 250
"""Sessions that are removed at once, at most: what they leave must fit into the log."""


class Sqlite(SqliteFile):
    """A store in one file, with its packs beside it."""

    def __init__(self, path: str, *, must_exist: bool = False) -> None:
        """Open the store, making it when there is none; with `must_exist` SessionNotFound then."""
        super().__init__(path, must_exist=must_exist)
        self.vectors: vectors.Vectors | None = None
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

    def known(self) -> Inventory:
        """Return the cursors of all sessions, and which ones must not come back."""
        db = self._db
        rows = every(
            db,
            "SELECT uid, cursor, change, redactor, reader, path, gone, pinned, raw_bytes, ended,"
            " ingested, analysed, evicted, fold, digest FROM sessions",
        )
        return inventory(
            rows,
            (tombstone for (tombstone,) in every(db, "SELECT uid_hash FROM tombstones")),
            first(db, "SELECT sum(distilled) FROM sessions") or 0,
            (name for (name,) in every(db, "SELECT name FROM pending")),
            self._kin_of,
            takes_older=True,
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
        shared = SHARES.decode(shares) if shares else (frozenset(), frozenset(), ())
        return StoredSession(ROW.decode(row), CURSOR.decode(cursor), facts, *shared, foreign)

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
        if version != session_fold.VERSION:
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
        shared = SHARES.decode(shares) if shares else (frozenset(), frozenset(), ())
        index = SessionIndex(lambda: self._db, session)
        position = last[0] if last else (0, 0)
        return Tail(ROW.decode(body), CURSOR.decode(cursor), state, spend, *shared, index, position)

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

    def sessions(self, wanted: Filter = Filter()) -> Iterator[SessionRow]:  # noqa: B008
        """List sessions."""
        where, values = _where(wanted)
        limit = "" if wanted.limit is None else f" LIMIT {wanted.limit} OFFSET {wanted.offset}"
        rows = self._db.execute(
            f"SELECT row, discovered, ingested, analysed, evicted, outcome, pinned, raw_bytes"  # noqa: S608
            f" FROM sessions WHERE {where} ORDER BY {_ORDER[wanted.order]}{limit}",
            values,
        )
        page: list[Any] = rows.fetchall()
        for row, *marks in page:
            yield with_marks(ROW.decode(row), *marks)

    def read_table(self, what: Tier2, wanted: Filter = Filter()) -> Iterator[dict[str, JSON]]:  # noqa: B008
        """Yield what tier 2 keeps of the sessions that are wanted, each with its `uid`."""
        if what == "removals":
            for at, kind, body in every(
                self._db, "SELECT at, what, body FROM removals ORDER BY id"
            ):
                yield {"at": at, "what": kind, **msgspec.json.decode(body)}
            return
        where, values = _where(wanted)
        rows = self._db.execute(_TIER2_SQL[what].format(where=where), values)
        names = NAMES[what]
        all_of_them: list[Any] = rows.fetchall()
        for row in all_of_them:
            entry = dict(zip(names, row, strict=True))
            body = entry.pop("body", None)
            yield {**entry, **(msgspec.msgpack.decode(body) if body is not None else {})}

    def totals(self, by: Sequence[Group] = (), wanted: Filter = Filter()) -> list[Total]:  # noqa: B008
        """Add up what sessions took; of a time that is asked for, what was spent in its days."""
        where, values = _where(wanted)
        days = [where]
        for test, moment in ((">=", wanted.after), ("<", wanted.before)):
            if moment is not None:
                days.append(f"{_GROUPS['slot']}{test}?")
                values = (*values, (time_column(moment) or "")[:16])
        keys = ", ".join(_GROUPS[group] for group in by)
        rows = every(self._db, _sums(keys, " AND ".join(days)), *values)
        has_sizes = {"day", "slot", "model"}.isdisjoint(by)
        sizes = (
            dict(self._sizes(keys, where, values[: len(values) - len(days) + 1]))
            if has_sizes
            else {}
        )
        out: list[Total] = []
        for row in rows:
            key, sums = tuple(row[: len(by)]), (number or 0 for number in row[len(by) :])
            figures: dict[str, Any] = dict(zip(_SUMS, sums, strict=True))
            out.append(Total(key, raw_bytes=sizes.get(key, 0), **figures))
        return out

    def _sizes(
        self, keys: str, where: str, values: tuple[Any, ...]
    ) -> Iterator[tuple[tuple[Any, ...], int]]:
        """Yield what sessions take in tier 1, by the same keys."""
        group = f" GROUP BY {keys}" if keys else ""
        sql = f"SELECT sum(raw_bytes){keys and ', '}{keys} FROM sessions WHERE {where}{group}"  # noqa: S608
        for size, *key in every(self._db, sql, *values):
            yield tuple(key), size or 0

    def search(self, query: Query, limit: int = 20, offset: int = 0) -> SearchAnswer:
        """Find events by their words, the best first, within a budget of time."""
        source = SqliteWords(self._db, query)
        answer = vectors.search((source, self.sessions), query, limit, offset, self.vectors)
        return msgspec.structs.replace(
            answer, matches=as_asked(self._place_matches(answer.matches), query)
        )

    def _place_matches(self, matches: Sequence[SearchMatch]) -> list[SearchMatch]:
        """Return hits with what looks up where the texts of their events lie.

        That reads a page of events for each: who shows a few of many hits reads but theirs.
        """
        read: dict[tuple[int, int], StoredRefs | None] = {}
        return [
            hit
            if hit.seq is None or hit.place is not None
            else msgspec.structs.replace(hit, place=partial(self._find_ref, hit, read))
            for hit in matches
        ]

    def _find_ref(
        self, hit: SearchMatch, read: dict[tuple[int, int], StoredRefs | None]
    ) -> str | None:
        """Return where the text of a hit lies; `read` has the refs of pages that were read."""
        sql = f"SELECT first, body {_PAGE_OF} ORDER BY first DESC LIMIT 1"
        for start, body in self._db.execute(sql, (hit.session, hit.seq)):
            key = hit.session, start
            if key not in read:
                read[key] = pages.unpack_refs(hit.session_uid, body, start)
            refs = read[key]
            return refs.ref(hit.seq or 0, hit.event_id or 0) if refs else None
        return None

    def paces(self, uid: str) -> Sequence[tuple[int, int, int]]:
        """Return time in milliseconds, kind and derived kinds of every event, in any order."""
        session = first(self._db, "SELECT id FROM sessions WHERE uid=?", uid)
        return every(self._db, "SELECT ts, kind, implied FROM events WHERE session=?", session)

    def use_encoder(self, encoder: Encoder) -> None:
        """Let searches find by meaning as well."""
        self.vectors = vectors.Vectors(SqliteVectors(lambda: self._db, self._transaction), encoder)

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

        One that is not there is said before any goes. Many go some at a time, each time with
        what is left to be done for them.
        """
        going = [(self._number(uid), uid) for uid in uids]
        what = "forget" if forget else DATA_LOSS if lost else "evict"
        if forget:
            backup.drop_upgrade_copies(self.path, days=0)
        if buried:
            with self._transaction(full=True) as db:
                graves = [(value,) for value in sorted(buried)]
                db.executemany("INSERT OR IGNORE INTO tombstones VALUES(?)", graves)
        for at in range(0, len(going), BATCH_SESSIONS):
            some = dict(going[at : at + BATCH_SESSIONS])
            with self._transaction(full=True) as db:
                pending = {PACK + uid for uid in some.values()} | WordIndex(db).delete(some)
                for session, uid in some.items():
                    size = first(db, "SELECT raw_bytes FROM sessions WHERE id=?", session)
                    empty_session(db, session, forget=forget, uid=uid)
                    name = "(forgotten)" if forget else uid
                    removal = {"uid": name, "bytes": size, "why": why.get(uid, "asked for")}
                    note_removal(db, what, removal)
                db.executemany(
                    "INSERT OR IGNORE INTO pending VALUES(?)", [(value,) for value in pending]
                )
        return [] if self.settle() else list(uids)

    def _number(self, uid: str) -> int:
        """Return the number that a session has in this store."""
        number: int | None = first(self._db, "SELECT id FROM sessions WHERE uid=?", uid)
        if number is None:
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

_PAGE_OF = "FROM event_pages WHERE session=? AND first<=?"
_PARTS = "SELECT part, length(body) FROM facts WHERE session=?"
_ORDER = {
    "recent": "ended DESC, uid DESC",
    "oldest": "ended, uid",
    "cost": "ticks DESC, uid DESC",
    "tokens": "tokens DESC, uid DESC",
    "size": "raw_bytes DESC, uid DESC",
}
_TIER2_SQL: dict[str, str] = {
    "digests": "SELECT uid, digests.change, digests.at, body FROM digests"
    " JOIN sessions ON sessions.id=session WHERE {where} ORDER BY ended, uid",
    "signals": "SELECT uid, kind, body FROM sessions"
    " CROSS JOIN signals ON sessions.id=session WHERE {where} ORDER BY ended, uid, signals.id",
    "spend": "SELECT uid, agent, project, day, spend.model, place, input, output, cache_creation,"
    " cache_read, cache_1h, searches, responses, spend.ticks, unpriced FROM spend"
    " JOIN sessions ON sessions.id=session WHERE {where} ORDER BY day, uid",
}


_SLOT = (
    "CASE length(day) WHEN 10 THEN day||'T12:00'"
    " ELSE ifnull(day, strftime('%Y-%m-%dT%H:%M', ended/1000, 'unixepoch')) END"
)
"""A slot of time; a day of an older store counts at its noon."""

_GROUPS: dict[Group, str] = {
    "day": f"substr({_SLOT}, 1, 10)",
    "slot": _SLOT,
    "model": "ifnull(spend.model, sessions.model)",
    "project": "project",
    "agent": "agent",
    "session": "uid",
}
_SUMS = {
    "sessions": "count(DISTINCT sessions.id)",
    **{
        name: f"sum(spend.ticks) FILTER (WHERE place='{name}')" for name in ("live", "dead", "side")
    },
    **{name: f"sum({name})" for name in ("unpriced", "input", "output", "responses")},
    "cache": "sum(cache_creation+cache_read)",
}


def _sums(keys: str, where: str) -> str:
    """Ask for the sums of sessions; those of all of them need no look at each."""
    if not keys and where == "1":
        sums = {**_SUMS, "sessions": "(SELECT count(*) FROM sessions)"}
        return f"SELECT {', '.join(sums.values())} FROM spend"  # noqa: S608
    sql = (
        f"SELECT {keys}{keys and ', '}{', '.join(_SUMS.values())} FROM sessions"  # noqa: S608
        f" LEFT JOIN spend ON spend.session=sessions.id WHERE {where}"
    )
    return f"{sql} GROUP BY {keys}" if keys else sql


def _where(wanted: Filter) -> tuple[str, tuple[Any, ...]]:
    """Turn a filter into conditions on the table of sessions."""
    tests: dict[str, Any] = {
        "instr(lower(ifnull(project, '')), lower(?))>0": wanted.project,
        "instr(lower(ifnull(sessions.model, '')), lower(?))>0": wanted.model,
    }
    conditions = [(test, value) for test, value in tests.items() if value is not None]
    conditions += plain_conditions(wanted, "?")
    plain = [test for test, _ in conditions]
    values = [value for _, value in conditions]
    if wanted.uid is not None:
        start = "".join(f"!{c}" if c in "!%_" else c for c in wanted.uid) + "%"
        plain.append("(uid LIKE ? ESCAPE '!' OR substr(uid, length(agent)+2) LIKE ? ESCAPE '!')")
        values += [start, start]
    if wanted.folder is not None:
        below = wanted.folder.rstrip("/")
        plain.append("(project=? OR (project>? AND project<?))")
        values += [wanted.folder, f"{below}/", f"{below}0"]  # 0 comes after / in ASCII
    if wanted.uids is not None:
        plain.append(f"uid IN ({','.join('?' * len(wanted.uids))})")
        values += wanted.uids
    for column, is_wanted in (("evicted", wanted.evicted), ("analysed", wanted.analysed)):
        if is_wanted is not None:
            plain.append(f"{column} IS {'NOT ' if is_wanted else ''}NULL")
    return " AND ".join(plain) or "1", tuple(values)
