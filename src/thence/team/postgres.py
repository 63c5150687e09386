"""The store in Postgres, for a team: the same promises as one file on one machine.

    postgresql://user@host/database?tenant=TEAM&machine=NAME

`tenant` (default: `default`) is whose rows these are; nothing reads or writes another's. `machine`
(default: the name of this host) is who sweeps: a machine sees the cursors of its own sessions, and
one sweep of each machine runs at a time, while those of others go on beside it. `machine=*` means
all of them together: such a store is read, never written, and names no file of any machine.

A write is one transaction. Sweeps do not wait for the server's disk, as a lost end of them is read
again; digests, evictions and renamed refs do. What is deleted is out of reach at once; it is out
of the pages of a table when that has been written anew, which `remove` does for tables of up to
`REWRITE_AT_BYTES` that nobody else is using, and calls pending for others. The server's log and its
backups keep what they keep.

Payloads lie in the database too, unless an object store is named.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec
import psycopg
from psycopg import errors, sql

from thence.errors import BadConfig, SessionNotFound, ThenceError
from thence.format.facts import Fact
from thence.format.stored import StoredEvent
from thence.memory import vectors
from thence.memory.derivation import is_of_this_fold
from thence.memory.encoder import Encoder
from thence.memory.packs import BlobStore
from thence.memory.pages import derive_events, select_events
from thence.memory.rows import (
    BLANK_REMOVALS,
    CURSOR,
    FOR_LATER,
    OBJECT,
    PACK,
    ROW,
    SETTLE,
    blanked,
    clean,
    inventory,
    now,
    removal_body,
)
from thence.memory.search import Query, SearchAnswer, as_asked
from thence.memory.statements import INVENTORY, Dialect, SqlReads, conditions, shared
from thence.memory.store import (
    DATA_LOSS,
    DigestRecord,
    EventIds,
    Filter,
    Inventory,
    Position,
    SessionChange,
    SessionRow,
    StoredSession,
    StoreLocked,
    Tail,
    claims,
    facts_behind,
    uid_hash,
    unpack_facts,
    unpack_fold,
)
from thence.team.objects import Objects
from thence.team.postgres_blobs import CONNECTION_ERRORS, PostgresBlobs
from thence.team.postgres_events import STAGE
from thence.team.postgres_index import PostgresSessionIndex
from thence.team.postgres_listening import listening
from thence.team.postgres_migrations import is_migrated, migrate
from thence.team.postgres_pages import pages_with, read_pages
from thence.team.postgres_schema import FIRST_NUMBER, LEAST_ROOM, SCHEMA, TABLES
from thence.team.postgres_search import PostgresWords, Vector, VectorDumper
from thence.team.postgres_text import clean_value, first_line, lock_key, split_address, text
from thence.team.postgres_vectors import PostgresVectors
from thence.team.postgres_write import REWRITE, PushedSession, Writer

EVERYONE: Final = "*"
"""The machine of who reads what all machines wrote."""

# Nobody can use a table while it is written anew.
REWRITE_AT_BYTES: Final = 256 << 20
"""Bytes of a table that is written anew after an eviction, while others wait for it."""

MAX_TRIES: Final = 8
"""How often a transaction is begun that the database ended in favour of another."""

_PAUSE_S: Final = 0.02  # seconds, before what was ended begins again
_LOCK_TIMEOUT: Final = "2s"  # for the others to leave a table that is to be written anew

Db = psycopg.Connection[Any]
_T = TypeVar("_T")


class Unreachable(BadConfig):
    """No database lets us in at this address, now."""


class StoreLost(ThenceError):
    """The database cannot be reached, or refused what it was asked."""


class NotPermitted(StoreLost):
    """The role may not do this in this tenant; trying again does not help."""

    exit_code = 2


_DIALECT: Final = Dialect(
    mark="%s",
    of_session="sessions.tenant={table}.tenant AND sessions.uid={table}.uid",
    signals="signals JOIN sessions",
    minute_of_end="to_char(to_timestamp(ended/1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI')",
    session_key="sessions.uid",
    machine="machine",
    is_bound="coalesce(bool_or(bound), false)",
    orders={
        "digests": "sessions.id",
        "signals": "signals.id",
        "spend": "day, sessions.uid, spend.model, place",
    },
)
_PARTS: Final = "SELECT part, length(body) AS size FROM facts WHERE tenant=%s AND uid=%s"


class Postgres(SqlReads):
    """A store in a Postgres database: one tenant of it, seen from one machine."""

    dialect = _DIALECT

    def __init__(self, url: str, *, must_exist: bool = False) -> None:
        """Open the store, making its tables when there are none.

        With `must_exist` nothing is made: SessionNotFound where the database has no tables of ours.
        """
        self.address, options = split_address(url)
        self.tenant = options.get("tenant") or "default"
        self.machine = options.get("machine") or text(socket.gethostname()) or "unknown"
        self._own = threading.local()
        self._open: list[Db] = []
        self._lock = threading.Lock()
        self.blobs: BlobStore = Objects(PostgresBlobs(self))
        self.vectors: vectors.Vectors | None = None
        is_there = False
        try:
            with self._translate_errors():
                is_there = is_migrated(self._db)
                if must_exist and not is_there:
                    raise SessionNotFound(
                        f"the database at {self.shown} has no store",
                        hint="check the address; nothing was created",
                    )
                migrate(self._db)
        except ThenceError as error:
            self.close()
            if isinstance(error.__cause__, errors.InsufficientPrivilege):
                if is_there:
                    raise BadConfig(
                        f"the store at {self.shown} is of an earlier thence",
                        hint="ask its owner to upgrade thence and to open it once",
                    ) from error
                why = first_line(error.__cause__)
                raise BadConfig(
                    f"the store at {self.shown} has no tables for you: {why}",
                    hint="its owner opens it first, then admits you; see docs/scale.md",
                ) from error
            raise

    @property
    def shown(self) -> str:
        """The address as it may be shown: no password."""
        parts = urlsplit(self.address)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    # -- connections --------------------------------------------------------------------

    @property
    def _db(self) -> Db:
        """The connection of the thread that asks."""
        db: Db | None = getattr(self._own, "db", None)
        if db is None or db.closed:
            db = self._own.db = self._connect()
        return db

    def _connect(self) -> Db:
        try:
            db: Db = psycopg.connect(
                self.address, autocommit=True, application_name="thence", client_encoding="utf8"
            )
        except psycopg.Error as error:
            raise Unreachable(
                f"cannot open the store at {self.shown}: {first_line(error)}",
                hint="check that the server runs and accepts you; psql takes the same address",
            ) from error
        db.adapters.register_dumper(Vector, VectorDumper)
        db.execute(f"SET search_path TO {SCHEMA}, pg_temp")
        with self._lock:
            self._open = [connection for connection in self._open if not connection.closed]
            self._open.append(db)
        return db

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Turn what the database says into what the user can do."""
        try:
            yield
        except CONNECTION_ERRORS as error:
            raise StoreLost(
                f"lost the store at {self.shown}: {first_line(error)}",
                hint="committed data is safe; try again when the server is back",
            ) from error
        except errors.InsufficientPrivilege as error:
            raise NotPermitted(
                f"permission denied for tenant {self.tenant} at {self.shown}: {first_line(error)}",
                hint="its owner admits you, with writes=True to push; see docs/scale.md",
            ) from error
        except psycopg.Error as error:
            raise StoreLost(
                f"the store at {self.shown} refused the request: {first_line(error)}",
                hint="nothing was written",
            ) from error

    def _write_in_transaction(self, work: Callable[[Writer], _T], *, full: bool = False) -> _T:
        """All or nothing; with `full` on the server's disk when it is over."""
        if self.machine == EVERYONE:
            raise _read_only()
        for left in reversed(range(MAX_TRIES)):
            try:
                with self._translate_errors(), self._stage_connection() as db, db.transaction():
                    # What a crash of the server takes can be read again; digests cannot.
                    if not full:
                        db.execute("SET LOCAL synchronous_commit = off")
                    shared = isinstance(self.blobs, Objects) and self.blobs.tenant is not None
                    return work(Writer(db, self.tenant, self.machine, shared_objects=shared))
            except StoreLost as error:
                if not left or not isinstance(
                    error.__cause__, errors.DeadlockDetected | errors.SerializationFailure
                ):
                    raise
            time.sleep(random.uniform(0.0, _PAUSE_S * (MAX_TRIES - left)))  # noqa: S311 - not at once
        raise AssertionError("no try was left, and none was the last")

    @contextlib.contextmanager
    def _stage_connection(self) -> Iterator[Db]:
        """Return a connection that has the tables through which rows come."""
        db = self._db
        if getattr(self._own, "staged", None) is not db:
            db.execute(STAGE)
            self._own.staged = db
        yield db

    @contextlib.contextmanager
    def sweeping(self, wait: float = 0.0) -> Iterator[None]:
        """Hold the right to sweep for this machine; StoreLocked when somebody else has it.

        The right goes with a connection of its own: it ends when this process does.
        """
        if self.machine == EVERYONE:
            raise _read_only()
        key = lock_key("sweep", self.tenant, self.machine)
        until = time.monotonic() + wait
        lock = self._connect()
        try:
            with self._translate_errors():
                while not _first(lock, "SELECT pg_try_advisory_lock(%s)", key):
                    if time.monotonic() >= until:
                        raise StoreLocked(
                            f"another sweep of {self.machine} into {self.shown} is running",
                            hint="wait until it ends; reading works meanwhile",
                        )
                    time.sleep(0.05)
            yield
            self._take_in(lock)
        finally:
            # Said, not only let go of: the server finds out about a closed connection when it may.
            with contextlib.suppress(psycopg.Error):
                lock.execute("SELECT pg_advisory_unlock_all()")
            lock.close()

    def _take_in(self, db: Db) -> None:
        """Let the index take in the words that wait, where that is ours to say."""
        # Only its owner may: others leave it to autovacuum.
        with contextlib.suppress(psycopg.Error):
            db.execute("SELECT gin_clean_pending_list('words_body')")

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            while self._open:
                self._open.pop().close()
        if isinstance(self.blobs, Objects):
            self.blobs.close()
        self._own = threading.local()

    # -- sweeping -----------------------------------------------------------------------

    def known(self, uids: Collection[str] | None = None) -> Inventory:
        """Return the cursors of this machine's sessions, and which ones must not come back."""
        mine = self.tenant, self.machine, EVERYONE
        of_mine = f"{INVENTORY} WHERE tenant=%s AND %s IN (machine, %s)"
        if uids is None:
            rows = self._every(f"{of_mine} ORDER BY id", *mine)
        else:
            some = [clean(uid) for uid in uids]
            rows = self._every(f"{of_mine} AND uid=ANY(%s) ORDER BY id", *mine, some)
        pending = self._every("SELECT name, machine FROM pending WHERE tenant=%s", self.tenant)
        return inventory(
            rows,
            (
                bytes(tombstone)
                for (tombstone,) in self._every(
                    "SELECT uid_hash FROM tombstones WHERE tenant=%s", self.tenant
                )
            ),
            self._first(
                "SELECT coalesce(sum(distilled), 0)::bigint FROM sessions"
                " WHERE tenant=%s AND %s IN (machine, %s)",
                *mine,
            )
            if uids is None
            else 0,
            # What is to be erased belongs to the tenant; what a sweep compares to its machine.
            (name for name, at in pending if at == self.machine or not name.startswith(FOR_LATER)),
            self._kin_of,
            takes_older=uids is None and self._takes_older(),
        )

    def _takes_older(self) -> bool:
        """Return whether older sessions can be numbered below all others: none is of another."""
        others = "SELECT 1 FROM sessions WHERE tenant=%s AND machine<>%s LIMIT 1"
        if self._first(others, self.tenant, self.machine):
            return False
        lowest = self._first("SELECT min(id) FROM events WHERE tenant=%s", self.tenant)
        return bool((lowest or FIRST_NUMBER) > LEAST_ROOM)

    def _kin_of(self, uid: str) -> set[str]:
        with self._translate_errors():
            return Writer(self._db, self.tenant, self.machine).kin([uid]).get(uid, set())

    def write(
        self, changes: Sequence[SessionChange] = (), digests: Sequence[DigestRecord] = ()
    ) -> dict[str, set[str]]:
        """Write what reads found and what was learned: all of it or nothing."""

        def work(writer: Writer) -> dict[str, set[str]]:
            kin = writer.write(changes) if changes else {}
            if digests:
                writer.write_digests(digests)
            return kin

        full = bool(digests) or any(change.renamed for change in changes)
        return self._write_in_transaction(work, full=full)

    def push_marks(self) -> dict[str, tuple[bytes, bool]]:
        """Tell how far sessions of this tenant were pushed, and whether by this machine."""
        rows = self._every(
            "SELECT uid, pushed, machine=%s FROM sessions WHERE tenant=%s AND pushed IS NOT NULL",
            *(self.machine, self.tenant),
        )
        return {uid: (bytes(mark), mine) for uid, mark, mine in rows}

    def push(self, sent: Sequence[PushedSession]) -> tuple[dict[str, set[str]], set[str]]:
        """Write what a machine sends, payloads, rows and marks together, or nothing of it.

        Gives the kin of sessions that have any, and the sessions that were left out: forgotten
        here, or those of another machine that has more of them. If it raises, nothing is there,
        and what was sent must be made anew.
        """
        packs = self.blobs.take_waiting() if isinstance(self.blobs, Objects) else []
        self.blobs.sync()
        return self._write_in_transaction(lambda writer: writer.push(sent, packs))

    def mark_settled(self, uids: Collection[str]) -> None:
        """Note that sessions were compared with all of their kin."""
        names = [SETTLE + text(uid) for uid in uids]
        if names:
            self._run("DELETE FROM pending WHERE tenant=%s AND name=ANY(%s)", self.tenant, names)

    def load_session(self, uid: str) -> StoredSession | None:
        """Return what tier 1 holds of a session; None when nothing is."""
        who = self.tenant, text(uid)
        with self._translate_errors(), self._db.transaction():
            # One moment, though another process may write meanwhile.
            self._db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            there = self._every(
                "SELECT row, cursor, evicted FROM sessions WHERE tenant=%s AND uid=%s", *who
            )
            if not there or there[0][2] is not None:
                return None
            row, cursor, _ = there[0]
            parts = self._every(
                "SELECT body FROM facts WHERE tenant=%s AND uid=%s ORDER BY part", *who
            )
            facts = [fact for (body,) in parts for fact in unpack_facts(body)]
            shares = self._first("SELECT body FROM shares WHERE tenant=%s AND uid=%s", *who)
            foreign = self._foreign(text(uid), facts)
        parts_of_others = shared(shares)
        return StoredSession(
            ROW.decode(row), CURSOR.decode(cursor), facts, *parts_of_others, foreign
        )

    def events(
        self, uid: str, *, after: int = -1, limit: int | None = None, ids: EventIds | None = None
    ) -> list[StoredEvent]:
        """Return the events of a session after a number, in the order of their numbers."""
        name = text(uid)
        sql = "SELECT fold FROM sessions WHERE tenant=%s AND uid=%s AND evicted IS NULL"
        version = self._first(sql, self.tenant, name)
        if version is None or not is_of_this_fold(version):
            stored = self.load_session(uid) if version is not None else None
            return derive_events(uid, stored, after=after, limit=limit, ids=ids)
        with self._translate_errors():
            if ids is None:
                bodies = read_pages(self._db, self.tenant, name, after)
            else:
                bodies = pages_with(self._db, self.tenant, name, ids)
            return select_events(uid, bodies, after=after, limit=limit, ids=ids)

    def tail(self, uid: str) -> Tail | None:
        """Return the end of a session, to continue it; None when tier 1 holds nothing of it."""
        rows = self._every(
            "SELECT s.row, s.cursor, f.body, h.body, p.part, p.size FROM sessions AS s"
            " LEFT JOIN folds AS f ON f.tenant=s.tenant AND f.uid=s.uid AND f.change=s.change"
            " LEFT JOIN shares AS h ON h.tenant=s.tenant AND h.uid=s.uid"
            " LEFT JOIN LATERAL (SELECT part, length(body) AS size FROM facts"
            " WHERE tenant=%s AND uid=%s ORDER BY part DESC LIMIT 1) AS p ON true"
            " WHERE s.tenant=%s AND s.uid=%s AND s.evicted IS NULL",
            *(self.tenant, text(uid)) * 2,
        )
        if not rows:
            return None
        row, cursor, fold, shares, part, size = rows[0]
        state, spend = unpack_fold(fold) if fold else (None, ())
        index = PostgresSessionIndex(self, uid)
        position = (part, size) if part is not None else (0, 0)
        return Tail(
            *(ROW.decode(row), CURSOR.decode(cursor), state, spend, *shared(shares)),
            *(index, position),
        )

    def digest_state(self, uid: str) -> bytes | None:
        """Return what the next digest of a session goes on from; None when there is nothing."""
        sql = "SELECT state FROM digests WHERE tenant=%s AND uid=%s"
        rows = self._every(sql, self.tenant, text(uid))
        return rows[0][0] if rows else None

    def index_for(self, uid: str, facts: Sequence[Fact]) -> PostgresSessionIndex:
        """Return the index of a session that has looked up all that new records name."""
        index = PostgresSessionIndex(self, uid)
        index.load(facts)
        return index

    def facts_after(
        self, uid: str, position: Position, lines: Mapping[str, tuple[int, int]]
    ) -> list[Fact]:
        """Return the facts of a session after a position, those up to `lines` left out."""
        who = self.tenant, text(uid)
        with self._translate_errors(), self._db.transaction():
            # One moment, though another process may write meanwhile.
            self._db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            parts = self._every(f"{_PARTS} ORDER BY part DESC", *who)
            sql = "SELECT body FROM facts WHERE tenant=%s AND uid=%s AND part=%s"
            return facts_behind(
                parts, lambda part: bytes(self._first(sql, *who, part)), position, lines
            )

    def _foreign(self, uid: str, facts: Sequence[Fact]) -> frozenset[int]:
        """Return the claims of a session that evicted ones own: their digests count these."""
        rows = self._every(
            "SELECT o.key FROM kin AS k"
            " JOIN sessions AS s ON s.tenant=k.tenant AND s.uid=k.other"
            " JOIN owners AS o ON o.tenant=k.tenant AND o.uid=k.other"
            " WHERE k.tenant=%s AND k.uid=%s AND s.evicted IS NOT NULL",
            *(self.tenant, uid),
        )
        return frozenset({key for (key,) in rows}.intersection(claims(facts))) if rows else _NONE

    # -- reading ------------------------------------------------------------------------

    def _where(self, wanted: Filter) -> tuple[str, tuple[Any, ...]]:
        tests, values = conditions(wanted, self.dialect.mark)
        tests.insert(0, f"sessions.tenant={self.dialect.mark}")
        return " AND ".join(tests), (self.tenant, *map(clean_value, values))

    def _listed(self, row: SessionRow, machine: str | None) -> SessionRow:
        if machine == self.machine:
            return row
        row = msgspec.structs.replace(row, member=machine)
        return _without_paths(row) if self.machine == EVERYONE else row

    def _removals(self) -> list[Any]:
        removals = "SELECT at, what, body FROM removals WHERE tenant=%s ORDER BY id"
        return self._every(removals, self.tenant)

    def search(self, query: Query, limit: int = 20, offset: int = 0) -> SearchAnswer:
        """Find events by their words, the best first, within a budget of time."""
        with self._translate_errors():
            source = PostgresWords(self._db, self.tenant)
            answer = vectors.search((source, self.sessions), query, limit, offset, self.vectors)
            return msgspec.structs.replace(answer, matches=as_asked(answer.matches, query))

    def paces(self, uid: str) -> Sequence[tuple[int, int, int]]:
        """Return time in milliseconds, kind and derived kinds of every event, in any order."""
        asked = "SELECT ts, kind, greatest(implied, 0) FROM events WHERE tenant=%s AND uid=%s"
        return self._every(asked, self.tenant, text(uid))

    def use_encoder(self, encoder: Encoder) -> None:
        """Let searches find by meaning as well."""

        def write(statement: str, values: Sequence[Any]) -> None:
            self._write_in_transaction(lambda _: self._db.execute(statement.encode(), values))

        is_read_only = self.machine == EVERYONE
        self.vectors = vectors.Vectors(
            PostgresVectors(self, None if is_read_only else write), encoder
        )

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
        """Evict sessions from tier 1, or forget them altogether; the uids still pending."""
        what = "forget" if forget else DATA_LOSS if lost else "evict"
        wanted = {text(uid): uid for uid in uids}

        def work(writer: Writer) -> None:
            sizes = writer.remove(list(wanted), forget=forget)
            missing = wanted.keys() - sizes.keys()
            if forget:  # of one that is forgotten already what is left of it goes
                missing -= {uid for uid in missing if self._is_forgotten(wanted[uid])}
            if missing:
                raise SessionNotFound(f"no session {min(missing)} in the store")
            writer.pend(PACK + uid for uid in wanted)
            for uid, size in sizes.items():
                reason = why.get(wanted[uid], "asked for")
                body = removal_body(wanted[uid], size, reason, forget=forget)
                self._db.execute(
                    "INSERT INTO removals(tenant, machine, at, what, body)"
                    " VALUES(%s, %s, %s, %s, %s)",
                    (self.tenant, self.machine, now(), what, body),
                )
            for uid in wanted.values() if forget else ():
                blanks = f"{BLANK_REMOVALS.format(mark='%s')} AND tenant=%s"
                self._db.execute(blanks.encode(), (*blanked(uid), self.tenant))
            if buried:
                writer.add_tombstones(sorted(buried))

        self._write_in_transaction(work, full=True)
        return [] if self.settle() else list(uids)

    def _is_forgotten(self, uid: str) -> bool:
        grave = "SELECT 1 FROM tombstones WHERE tenant=%s AND uid_hash=%s"
        return self._first(grave, self.tenant, uid_hash(uid)) is not None

    def traces(self, uid: str) -> list[str]:
        """Return where this tenant still has a session, and which tables have deleted rows."""
        columns = self._every(
            "SELECT table_name, column_name FROM information_schema.columns"
            " WHERE table_schema=%s AND column_name IN ('uid', 'other')",
            SCHEMA,
        )
        out = set()
        for table, column in columns:
            names = sql.Identifier(SCHEMA, table), sql.Identifier(column)
            named = sql.SQL("SELECT 1 FROM {} WHERE tenant=%s AND {}=%s LIMIT 1").format(*names)
            if self._first(named.as_string(), self.tenant, text(uid)):
                out.add(table)
        *_, size, start = blanked(uid)
        listed = "SELECT 1 FROM removals WHERE tenant=%s AND substr(body, 1, %s)=%s LIMIT 1"
        if self._first(listed, self.tenant, size, start):
            out.add("removals")
        pending = self._every("SELECT name FROM pending WHERE tenant=%s", self.tenant)
        names_left = {name for (name,) in pending}
        if any(name.endswith(f":{text(uid)}") for name in names_left):
            out.add("pending")
        if isinstance(self.blobs, Objects) and self.blobs.has(uid):
            out.add("payloads")
        rewritten = {name.removeprefix(REWRITE) for name in names_left if name.startswith(REWRITE)}
        return sorted(out) + [f"{table}, in deleted rows" for table in sorted(rewritten - out)]

    def settle(self) -> bool:
        """Make sure that what was deleted is in no page of a table; False when that must wait.

        What is to be done is written down with the deletion itself, so that it is done at last
        however often it is cut short.
        """
        # Of all machines: what one may not write anew, or left behind, another one can.
        rows = self._every("SELECT name FROM pending WHERE tenant=%s", self.tenant)
        names = [name for (name,) in rows if not name.startswith(FOR_LATER)]
        done = []
        for name in names:
            if name.startswith(PACK):
                self.blobs.evict(name.removeprefix(PACK))
                done.append(name)
        objects = [name for name in names if name.startswith(OBJECT)]
        if objects and isinstance(self.blobs, Objects):
            self.blobs.delete([name.removeprefix(OBJECT) for name in objects])
            done += objects
        tables = [name.removeprefix(REWRITE) for name in names if name.startswith(REWRITE)]
        done += [f"{REWRITE}{table}" for table in tables if self._rewrite(table)]
        self._run("DELETE FROM pending WHERE tenant=%s AND name=ANY(%s)", self.tenant, done)
        if any(name.startswith(PACK) for name in done):
            self._rewrite("pending")  # its deleted rows name sessions
        return len(done) == len(names)

    def _rewrite(self, table: str) -> bool:
        """Write a table anew, without what was deleted from it; False when that must wait.

        VACUUM alone leaves deleted bytes in the holes of pages, and their words in the index.
        """
        if table not in TABLES:
            return True
        named = sql.Identifier(SCHEMA, table)
        [(size, mine)] = self._every(
            "SELECT pg_total_relation_size(oid), pg_has_role(relowner, 'USAGE') FROM pg_class"
            " WHERE oid=%s::regclass",
            f"{SCHEMA}.{table}",
        )
        if not mine or size > REWRITE_AT_BYTES:
            return False
        try:
            self._db.execute(f"SET lock_timeout = '{_LOCK_TIMEOUT}'")
            self._db.execute(sql.SQL("VACUUM (FULL) {}").format(named))
        except errors.LockNotAvailable:  # others use it: stays pending, and is tried again
            return False
        finally:
            if not self._db.closed:
                self._db.execute("RESET lock_timeout")
        return True

    # -- for teams ----------------------------------------------------------------------

    def admit(self, member: str, *, writes: bool = False) -> None:
        """Let a role of the database read this tenant, or sweep into it too."""
        with self._translate_errors():
            _admit(self._db, self.tenant, member, writes=writes)

    def lacks(self) -> list[tuple[str, str]]:
        """Tell what this database does without, and what would help; it only takes longer."""
        if self._first("SELECT to_regclass(%s)", f"{SCHEMA}.sessions_parts") is not None:
            return []
        message = "no index for parts of names (project:, model:): all sessions are gone through"
        return [(message, "CREATE EXTENSION pg_trgm, then the index of docs/scale.md")]

    def listening(
        self,
    ) -> contextlib.AbstractContextManager[Callable[[float | None], Iterator[set[str]]]]:
        """Listen to what is written: gives what waits, for so many seconds, for who changes."""
        return listening(self)

    # -- small things -------------------------------------------------------------------

    def _every(self, statement: str, *values: Any) -> list[Any]:
        with self._translate_errors():
            return self._db.execute(statement.encode(), values).fetchall()

    def _first(self, statement: str, *values: Any) -> Any:
        with self._translate_errors():
            return _first(self._db, statement, *values)

    def _run(self, statement: str, *values: Any) -> None:
        with self._translate_errors():
            self._db.execute(statement.encode(), values)


_NONE: Final[frozenset[int]] = frozenset()


def _without_paths(row: SessionRow) -> SessionRow:
    """Return a row without where its files lay: on this machine that is another place."""
    session = msgspec.structs.replace(row.session, source_path=None)
    return msgspec.structs.replace(row, session=session, files=())


def _read_only() -> BadConfig:
    return BadConfig(
        "a store opened for all machines is read-only",
        hint="name one: ?machine=NAME in its address",
    )


def _first(db: Db, statement: str, *values: Any) -> Any:
    row = db.execute(statement.encode(), values).fetchone()
    return None if row is None else row[0]


def _admit(db: Db, tenant: str, member: str, *, writes: bool) -> None:
    """Let a role read a tenant, or write it too. Only the owner of the tables can."""
    role, schema = sql.Identifier(member), sql.Identifier(SCHEMA)
    rights = "SELECT, INSERT, UPDATE, DELETE" if writes else "SELECT"
    grants = [
        "GRANT USAGE ON SCHEMA {schema} TO {role}",
        "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role}",
        "GRANT SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
        "GRANT SELECT ON {schema}.versions, {schema}.members TO {role}",
    ]
    if writes:
        grants.append("GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}")
    with db.transaction():
        for grant in grants:
            db.execute(sql.SQL(grant).format(role=role, schema=schema))
        for table in TABLES:
            if table != "members":
                grant = f"GRANT {rights} ON {{table}} TO {{role}}"
                named = sql.Identifier(SCHEMA, table)
                db.execute(sql.SQL(grant).format(table=named, role=role))
        db.execute(
            f"INSERT INTO {SCHEMA}.members(tenant, member, writes) VALUES(%s, %s, %s)"
            " ON CONFLICT (tenant, member) DO UPDATE SET writes = excluded.writes",
            (tenant, member, writes),
        )
