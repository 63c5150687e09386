"""Vectors in a store in SQLite: a row for each session, beside its digest.

FROZEN: `MIGRATION` is a step of the schema.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

import apsw

from thence.memory.index import every, first, narrowed_ids
from thence.memory.ranking import DIGEST

if TYPE_CHECKING:
    from thence.memory.ranking import Row
    from thence.memory.search import Query
    from thence.memory.vectors import SpokenRow, StaleSession, StoredVectors

MIGRATION: Final = """
    CREATE TABLE vectors(
        session INTEGER PRIMARY KEY, change INTEGER NOT NULL, model TEXT NOT NULL,
        digest BLOB, events BLOB NOT NULL, body BLOB NOT NULL
    );
    CREATE TABLE vector_changes(number INTEGER NOT NULL);
    INSERT INTO vector_changes VALUES(0);
    CREATE TRIGGER vectors_added AFTER INSERT ON vectors
        BEGIN UPDATE vector_changes SET number=number+1; END;
    CREATE TRIGGER vectors_changed AFTER UPDATE ON vectors
        BEGIN UPDATE vector_changes SET number=number+1; END;
    CREATE TRIGGER vectors_gone AFTER DELETE ON vectors
        BEGIN UPDATE vector_changes SET number=number+1; END;
"""


def drop_vectors(db: apsw.Connection, session: int, *, keep_digest: bool = False) -> None:
    """Delete the vectors of a session, those of its digest only where that goes as well."""
    if keep_digest:
        db.execute("UPDATE vectors SET events=x'', body=x'' WHERE session=?", (session,))
    else:
        db.execute("DELETE FROM vectors WHERE session=?", (session,))


def drop_digest_vector(db: apsw.Connection, session: int) -> None:
    """Delete the vector of a digest that is written anew."""
    db.execute("UPDATE vectors SET digest=NULL WHERE session=?", (session,))


class SqliteVectors:
    """The vectors of one file."""

    def __init__(
        self,
        db: Callable[[], apsw.Connection],
        transaction: Callable[[], AbstractContextManager[apsw.Connection]],
    ) -> None:
        self._db = db
        self._transaction = transaction

    def claim(self) -> AbstractContextManager[bool]:
        """Return true: whoever else makes the same vectors writes the same."""
        return nullcontext(True)  # noqa: FBT003 - what the context gives

    def stale_sessions(self, model: str) -> list[StaleSession]:
        """Return the sessions whose vectors are missing or old, the newest first."""
        from thence.memory.vectors import StaleSession

        rows = every(
            self._db(),
            "SELECT s.id, s.uid, s.change, s.evicted NOTNULL FROM sessions AS s"
            " LEFT JOIN vectors AS v ON v.session=s.id"
            " WHERE v.session IS NULL OR v.change!=s.change OR v.model!=?"
            " OR (v.digest IS NULL AND EXISTS (SELECT 1 FROM digests AS d WHERE d.session=s.id))"
            " ORDER BY s.ended DESC",
            model,
        )
        return [StaleSession(number, uid, at, bool(gone)) for number, uid, at, gone in rows]

    def digest(self, session: StaleSession) -> bytes | None:
        """Return the digest of a session."""
        body: bytes | None = first(
            self._db(), "SELECT body FROM digests WHERE session=?", session.session
        )
        return body

    def spoken_rows(self, session: StaleSession) -> list[SpokenRow]:
        """Return the prompts and answers of a session in their order."""
        from thence.memory.vectors import ANSWER, PROMPT, SpokenRow

        sql = (
            "SELECT event_id, id, kind, state FROM events"
            " WHERE session=? AND kind IN (?, ?) AND NOT derived ORDER BY seq, id"
        )
        return [SpokenRow(*row) for row in every(self._db(), sql, session.session, PROMPT, ANSWER)]

    def stored_vectors(self, session: StaleSession, model: str) -> StoredVectors | None:
        """Return the vectors of a session that are there."""
        from thence.memory.vectors import StoredVectors

        sql = "SELECT session, digest, events, body FROM vectors WHERE session=? AND model=?"
        for number, digest, events, body in every(self._db(), sql, session.session, model):
            return StoredVectors(number, digest, array("q", events), body)
        return None

    def write(self, session: StaleSession, model: str, vectors: StoredVectors) -> None:
        """Write the vectors of a session, unless it went on or is gone."""
        number, uid, change, is_evicted = session
        with self._transaction() as db:
            state = (
                "SELECT 1 FROM sessions WHERE id=? AND uid=? AND change=? AND (evicted NOTNULL)=?"
            )
            if not first(db, state, number, uid, change, is_evicted):
                return  # the next build looks again
            db.execute(
                "INSERT OR REPLACE INTO vectors VALUES(?,?,?,?,?,?)",
                (number, change, model, vectors.digest, vectors.numbers.tobytes(), vectors.body),
            )

    def version(self) -> object:
        """Return a value that is another one whenever vectors have changed."""
        return first(self._db(), "SELECT number FROM vector_changes")

    def all_vectors(self, model: str) -> Iterator[StoredVectors]:
        """Yield all vectors, of the session that ended first before others."""
        from thence.memory.vectors import StoredVectors

        sql = (
            "SELECT v.session, v.digest, v.events, v.body FROM vectors AS v"
            " JOIN sessions AS s ON s.id=v.session WHERE v.model=? ORDER BY s.ended, s.uid"
        )
        for session, digest, events, body in every(self._db(), sql, model):
            yield StoredVectors(session, digest, array("q", events), body)

    def session_ids(self, query: Query) -> frozenset[int] | None:
        """Return the sessions that the filters of a question leave; None for all."""
        return narrowed_ids(self._db(), query)

    def rows(self, wanted: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Row]:
        """Return the rows of events, by session and number; 0 stands for a digest."""
        rows = ((place, self._row(*place)) for place in wanted)
        return {place: row for place, row in rows if row is not None}

    def _row(self, session: int, number: int) -> Row | None:
        from thence.memory.vectors import PROMPT

        db = self._db()
        if not number:
            evicted = "SELECT ended FROM sessions WHERE id=? AND evicted IS NOT NULL"
            for (ended,) in every(db, evicted, session):
                return (-2 * session - 1, session, ended or 0, DIGEST, 0)
            first_prompt = "SELECT id FROM events WHERE session=? AND kind=? ORDER BY seq LIMIT 1"
            number = first(db, first_prompt, session, PROMPT)
        sql = "SELECT id, session, ts, kind, state FROM events WHERE id=? AND session=?"
        for row in every(db, sql, number, session):
            return row  # type: ignore[no-any-return]
        return None
