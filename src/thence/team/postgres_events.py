"""How events and their words get into a store in Postgres.

Rows come by COPY into tables of this connection alone and go on from there, so that what is there
already is left as it is; words come packed as the database itself sends them, in lots, and it puts
one in while the next is made.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import psycopg

from thence.memory.pages import thin_row
from thence.memory.store import EventRow, SessionChange
from thence.team.postgres_numbers import draw_numbers
from thence.team.postgres_search import mark_again, marks_of, vectors
from thence.team.postgres_text import clean_value, copy_text

Db = psycopg.Connection[Any]


class TenantConnection(Protocol):
    """What the parts of a store in Postgres work with: whose rows, and the thread's connection."""

    tenant: str
    machine: str

    @property
    def _db(self) -> Db: ...

    def _translate_errors(self) -> AbstractContextManager[None]: ...


_BATCH_TEXTS = 500  # texts in one transaction
_CHUNK_CHARS = 256 << 10  # characters that are sent together
_LOT_BYTES = 256 << 10  # bytes of vectors that go together
_PACKED_START, _PACKED_END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
_WORDS_START, _WORDS_ROW = struct.Struct(">hii"), struct.Struct(">iqiiiiiqiqi")

STAGE = """
    CREATE TEMP TABLE IF NOT EXISTS staged_events(
        lot integer, uid text COLLATE "C", event_id bigint, id bigint, ts bigint, kind smallint,
        state smallint, tool text, tokens bigint, ref text, implied smallint, seq bigint
    ) ON COMMIT DELETE ROWS;
    CREATE TEMP TABLE IF NOT EXISTS staged_words(
        lot integer, uid text COLLATE "C", event_id bigint, piece integer, pieces integer,
        id bigint, ts bigint, body tsvector
    ) ON COMMIT DELETE ROWS;
    ALTER TABLE staged_words ALTER body SET STORAGE EXTERNAL
"""
"""Makes the tables that rows go through, of one connection alone, empty after each transaction."""

_PUT_NEW_EVENTS = (
    b"INSERT INTO events(tenant, machine, uid, event_id, id, ts, kind, state, tool, tokens, ref,"
    b" implied, seq) SELECT %(tenant)s, %(machine)s, uid, event_id, id, ts, kind, state, tool,"
    b" tokens, ref, implied, seq FROM staged_events WHERE lot=%(lot)s ORDER BY uid, event_id"
)
_PUT_EVENTS = _PUT_NEW_EVENTS + b" ON CONFLICT (tenant, uid, event_id) DO NOTHING"
_PUT_NEW_WORDS = (
    b"INSERT INTO words(tenant, machine, uid, event_id, piece, pieces, id, ts, body)"
    b" SELECT %(tenant)s, %(machine)s, uid, event_id, piece, pieces, id, ts, body"
    b" FROM staged_words WHERE lot=%(lot)s"
)
# Only of events that are the ones these words came with.
_PUT_WORDS = (
    b"INSERT INTO words(tenant, machine, uid, event_id, piece, pieces, id, ts, body)"
    b" SELECT %(tenant)s, %(machine)s, w.uid, w.event_id, w.piece, w.pieces, w.id, e.ts, w.body"
    b" FROM staged_words AS w JOIN events AS e ON e.tenant=%(tenant)s AND e.uid=w.uid"
    b" AND e.event_id=w.event_id AND e.id=w.id WHERE w.lot=%(lot)s"
    b" ON CONFLICT (tenant, uid, event_id, piece) DO NOTHING"
)


class EventWriter:
    """Writes events and words in one transaction of one machine; what `Writer` is built on."""

    def __init__(self, db: Db, tenant: str, machine: str) -> None:
        self._db = db
        self._tenant = tenant
        self._machine = machine
        self._lot = 0  # rows of this transaction that came together, to tell them from others

    def _stage(
        self,
        changes: dict[str, SessionChange],
        numbers: dict[tuple[str, int], int],
        *,
        new: bool = False,
    ) -> None:
        """Write rows of events in their order, and their words.

        What is there already is left as it is; with `new` there is nothing of these sessions, as
        their rows were not there and are locked by now.
        """
        # Of an event that is told twice the last counts.
        rows = {
            (uid, row.event.event_id): thin_row(row)
            for uid, change in changes.items()
            for row in change.events
        }
        if not rows:
            return
        placed = {
            key: (number, rows[key].ts)
            for key, number in draw_numbers(self._db, self._tenant, changes, rows).items()
        }
        self._lot += 1
        names = {uid: f"{self._lot}\t{copy_text(uid)}\t" for uid in changes}
        self._copy(
            "staged_events",
            (
                f"{names[key[0]]}{row.event_id}\t{placed[key][0]}\t{row.ts}\t{row.kind}\t{row.state}"
                f"\t{copy_text(row.tool)}\t{row.tokens}\t{copy_text(row.ref)}\t{row.implied}"
                f"\t{numbers[key]}\n"
                for key, row in rows.items()
            ),
        )
        if count := sum(len(session_change.words) for session_change in changes.values()):
            # New words wait in a list that every search goes through: long while much is written,
            # since the index takes them in faster together, and short otherwise.
            waiting = "16MB" if count > _BATCH_TEXTS else "512kB"
            self._db.execute(
                f"SET LOCAL gin_pending_list_limit = '{waiting}'; SET LOCAL work_mem = '64MB'"
            )
        lots = self._lots(changes, placed)
        values = {"tenant": self._tenant, "machine": self._machine, "lot": self._lot}
        # Here and below: the server puts in what it has while the next words are spelled.
        with self._db.pipeline():
            self._db.execute(_PUT_NEW_EVENTS if new else _PUT_EVENTS, values)
            lot = next(lots, None)
        while lot is not None:
            self._copy_packed("staged_words", lot)
            with self._db.pipeline():
                self._db.execute(_PUT_NEW_WORDS if new else _PUT_WORDS, values | {"lot": self._lot})
                lot = next(lots, None)

    def _lots(
        self, changes: dict[str, SessionChange], placed: dict[tuple[str, int], tuple[int, int]]
    ) -> Iterator[list[bytes]]:
        """Cut rows of words into lots, as COPY takes them packed; each has its number."""
        lot: list[bytes] = []
        size = 0
        for start, row, body in self._vectors(changes, placed):
            lot += (_WORDS_START.pack(8, 4, self._lot + 1), start, row, body)
            size += len(body)
            if size >= _LOT_BYTES:
                self._lot += 1
                yield lot
                lot, size = [], 0
        if lot:
            self._lot += 1
            yield lot

    def _vectors(
        self, changes: dict[str, SessionChange], placed: dict[tuple[str, int], tuple[int, int]]
    ) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Spell rows of words: the session, the numbers, the vector."""
        for uid, change in changes.items():
            name = uid.encode()
            start = len(name).to_bytes(4, "big") + name
            for words in {words.event_id: words for words in reversed(change.words)}.values():
                number, ts = placed.get((uid, words.event_id), (None, 0))
                if number is None:
                    continue
                pieces = vectors(words.body, marks_of(words.meta, self._tenant, number))
                for at, body in enumerate(pieces):
                    header = (8, words.event_id, 4, at, 4, len(pieces), 8, number, 8, ts, len(body))
                    yield start, _WORDS_ROW.pack(*header), body

    def _retell(self, changes: dict[str, SessionChange]) -> None:
        """Put the words of texts that went on in place of those of their beginnings."""
        placed: dict[tuple[str, int], tuple[int, int]] = {}
        for uid, change in changes.items():
            gone = self._db.execute(
                "DELETE FROM words WHERE tenant=%s AND uid=%s AND event_id=ANY(%s)"
                " RETURNING event_id, id, ts",
                (self._tenant, uid, list(change.retold)),
            )
            placed |= {(uid, event): (number, ts) for event, number, ts in gone.fetchall()}
        for lot in self._lots(changes, placed):
            self._copy_packed("staged_words", lot)
            values = {"tenant": self._tenant, "machine": self._machine, "lot": self._lot}
            self._db.execute(_PUT_WORDS, values)

    def _drop(self, events: Sequence[tuple[str, int]]) -> None:
        """Take out single events, rows and words."""
        if not events:
            return
        uids, ids = zip(*events, strict=True)
        for table in ("events", "words"):
            self._db.execute(
                f"DELETE FROM {table} AS t USING unnest(%s::text[], %s::bigint[])"  # noqa: S608
                " AS v(uid, event_id)"
                " WHERE t.tenant=%s AND t.uid=v.uid AND t.event_id=v.event_id",
                (list(uids), list(ids), self._tenant),
            )

    def _alter(self, events: Sequence[tuple[str, EventRow]], numbers: Sequence[int]) -> None:
        if not events:
            return
        mark_again(self._db, self._tenant, self._machine, events)
        values = (
            [uid for uid, _ in events],
            *(
                [clean_value(getattr(row, name)) for _, row in events]
                for name in ("event_id", "ts", "kind", "state", "tool", "tokens", "implied")
            ),
            list(numbers),
            self._tenant,
        )
        self._db.execute(
            "UPDATE events AS t SET ts=v.ts, kind=v.kind, state=v.state, tool=v.tool,"
            " tokens=v.tokens, implied=v.implied, seq=v.seq FROM unnest(%s::text[], %s::bigint[],"
            " %s::bigint[], %s::smallint[], %s::smallint[], %s::text[], %s::bigint[],"
            " %s::smallint[], %s::bigint[])"
            " AS v(uid, event_id, ts, kind, state, tool, tokens, implied, seq)"
            " WHERE t.tenant=%s AND t.uid=v.uid AND t.event_id=v.event_id",
            values,
        )
        self._db.execute(
            "UPDATE words AS t SET ts=v.ts FROM unnest(%s::text[], %s::bigint[], %s::bigint[])"
            " AS v(uid, event_id, ts) WHERE t.tenant=%s AND t.uid=v.uid"
            " AND t.event_id=v.event_id AND t.ts!=v.ts",
            (*values[:3], self._tenant),
        )

    def _delete(self, table: str, uids: Sequence[str]) -> None:
        if uids:
            self._db.execute(
                f"DELETE FROM {table} WHERE tenant=%s AND uid=ANY(%s)",  # noqa: S608
                (self._tenant, list(uids)),
            )

    def _many(self, statement: str, rows: Sequence[Any]) -> int:
        """Run a statement for each of many; how many rows that met."""
        if not rows:
            return 0
        with self._db.cursor() as cursor:
            cursor.executemany(statement.encode(), rows)
            return cursor.rowcount

    # Into tables of this connection alone: COPY knows no row-level security.
    def _copy(self, table: str, lines: Iterable[str]) -> None:
        with self._db.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN".encode()) as copy:
            some: list[str] = []
            size = 0
            for line in lines:
                some.append(line)
                size += len(line)
                if size > _CHUNK_CHARS:
                    copy.write("".join(some))
                    some, size = [], 0
            copy.write("".join(some))

    def _copy_packed(self, table: str, rows: Iterable[bytes]) -> None:
        with (
            self._db.cursor() as cursor,
            cursor.copy(f"COPY {table} FROM STDIN (FORMAT BINARY)".encode()) as copy,
        ):
            copy.write(b"".join((_PACKED_START, *rows, _PACKED_END)))
