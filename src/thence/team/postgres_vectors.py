"""Vectors of a team's store in Postgres, beside digests, as plain bytes: no extension is needed.

They go with what they were made from, whichever program removes that: triggers see to it. One
machine at a time makes the vectors of a tenant, its own sessions and those of others. A search
reads those that have changed since the last one, and compares them where it runs.

FROZEN: `MIGRATION` is a step of the schema.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from thence.errors import ThenceError
from thence.memory.ranking import DIGEST, Row
from thence.memory.search import Query
from thence.memory.vectors import ANSWER, PROMPT, SpokenRow, StaleSession, StoredVectors
from thence.team.postgres_events import TenantConnection
from thence.team.postgres_search import part_of
from thence.team.postgres_text import lock_key

MIGRATION: Final = """
    CREATE TABLE vectors(
        tenant text COLLATE "C" NOT NULL, uid text COLLATE "C" NOT NULL,
        machine text COLLATE "C" NOT NULL, change bigint NOT NULL, model text COLLATE "C" NOT NULL,
        stamp bigint NOT NULL, digest bytea, events bytea NOT NULL, body bytea NOT NULL,
        PRIMARY KEY(tenant, uid)
    );
    ALTER TABLE vectors ALTER digest SET STORAGE EXTERNAL, ALTER events SET STORAGE EXTERNAL,
        ALTER body SET STORAGE EXTERNAL;
    CREATE INDEX vectors_stamps ON vectors(tenant, stamp);
    -- Whoever has read vectors knows by its stamp which of them are others now.
    CREATE FUNCTION stamped() RETURNS trigger LANGUAGE plpgsql SET search_path = thence, pg_temp
        AS $$
    BEGIN
        NEW.stamp := nextval('row_ids');
        RETURN NEW;
    END $$;
    CREATE TRIGGER stamped BEFORE INSERT OR UPDATE ON vectors
        FOR EACH ROW EXECUTE FUNCTION stamped();
    CREATE FUNCTION vectors_stale() RETURNS trigger
        LANGUAGE plpgsql SET search_path = thence, pg_temp AS $$
    BEGIN
        IF TG_ARGV[0] = 'digest' THEN
            UPDATE vectors AS v SET digest = NULL
                WHERE v.tenant = OLD.tenant AND v.uid = OLD.uid AND v.digest IS NOT NULL;
        ELSIF TG_ARGV[0] = 'events' THEN
            UPDATE vectors AS v SET events = '', body = ''
                WHERE v.tenant = OLD.tenant AND v.uid = OLD.uid;
        ELSE
            DELETE FROM vectors AS v WHERE v.tenant = OLD.tenant AND v.uid = OLD.uid;
        END IF;
        RETURN NULL;
    END $$;
    REVOKE ALL ON FUNCTION stamped, vectors_stale FROM PUBLIC;
    CREATE TRIGGER vectors_evicted AFTER UPDATE OF evicted ON sessions FOR EACH ROW
        WHEN (OLD.evicted IS NULL AND NEW.evicted IS NOT NULL)
        EXECUTE FUNCTION vectors_stale('events');
    CREATE TRIGGER vectors_redacted AFTER UPDATE OF redactor ON sessions FOR EACH ROW
        WHEN (OLD.redactor IS DISTINCT FROM NEW.redactor) EXECUTE FUNCTION vectors_stale('all');
    CREATE TRIGGER vectors_forgotten AFTER DELETE ON sessions FOR EACH ROW
        EXECUTE FUNCTION vectors_stale('all');
    CREATE TRIGGER vectors_digested AFTER UPDATE ON digests FOR EACH ROW
        EXECUTE FUNCTION vectors_stale('digest');
    ALTER TABLE vectors ENABLE ROW LEVEL SECURITY;
    CREATE POLICY reading ON vectors FOR SELECT
        USING (tenant = ANY(ARRAY(SELECT thence.mine(false))));
    CREATE POLICY writing ON vectors
        USING (tenant = ANY(ARRAY(SELECT thence.mine(true))))
        WITH CHECK (tenant = ANY(ARRAY(SELECT thence.mine(true))));
    DO $$
    DECLARE granted record;
    BEGIN
        FOR granted IN SELECT m.member, bool_or(m.writes) AS writes FROM members AS m
            JOIN pg_roles AS r ON r.rolname = m.member GROUP BY m.member
        LOOP
            EXECUTE format('GRANT SELECT ON vectors TO %I', granted.member);
            EXECUTE format('GRANT EXECUTE ON FUNCTION stamped, vectors_stale TO %I',
                granted.member);
            CONTINUE WHEN NOT granted.writes;
            EXECUTE format('GRANT INSERT, UPDATE, DELETE ON vectors TO %I', granted.member);
        END LOOP;
    END $$
"""

_TESTS: Final = (
    "(%s::text IS NULL OR lower(coalesce(project, '')) LIKE %s ESCAPE '!')",
    "(%s::text IS NULL OR lower(coalesce(model, '')) LIKE %s ESCAPE '!')",
    "(%s::text IS NULL OR outcome=%s)",
    "(%s::bigint IS NULL OR ended>=%s)",
    "(%s::bigint IS NULL OR started<%s)",
    "(%s::bigint IS NULL OR ticks>%s)",
    "(%s::bigint IS NULL OR ticks<%s)",
    "(%s::text IS NULL OR agent=%s)",
)
_READ_AT_ONCE: Final = 500  # sessions whose vectors are read by one statement


class PostgresVectors:
    """The vectors of one tenant."""

    def __init__(
        self, store: TenantConnection, write: Callable[[str, Sequence[Any]], None] | None
    ) -> None:
        """`write` runs a statement in a transaction; without it the store is read only."""
        self._store = store
        self._tenant = store.tenant
        self._write = write
        self._read: dict[int, tuple[int, StoredVectors]] = {}
        """Vectors by session, each with its stamp: as of the last search."""
        self._uids: dict[int, str] = {}

    def _every(self, statement: str, *values: Any) -> list[Any]:
        with self._store._translate_errors():  # noqa: SLF001 - its own
            return self._store._db.execute(statement.encode(), values).fetchall()  # noqa: SLF001

    @contextlib.contextmanager
    def claim(self) -> Iterator[bool]:
        """Hold the right to make vectors; false where another process has it, or nobody may."""
        if self._write is None:
            yield False
            return
        key = lock_key("vectors", self._tenant)
        [(is_mine,)] = self._every("SELECT pg_try_advisory_lock(%s)", key)
        try:
            yield is_mine
        finally:
            if is_mine:  # a connection that is lost has let go of it
                with contextlib.suppress(ThenceError):
                    self._every("SELECT pg_advisory_unlock(%s)", key)

    def stale_sessions(self, model: str) -> list[StaleSession]:
        """Return the sessions whose vectors are missing or old, the newest first."""
        if self._write is None:
            return []
        rows = self._every(
            "SELECT s.id, s.uid, s.change, s.evicted IS NOT NULL FROM sessions AS s"
            " LEFT JOIN vectors AS v ON v.tenant=s.tenant AND v.uid=s.uid"
            " WHERE s.tenant=%s AND (v.uid IS NULL OR v.change<>s.change OR v.model<>%s"
            " OR (v.digest IS NULL AND EXISTS (SELECT 1 FROM digests AS d"
            " WHERE d.tenant=s.tenant AND d.uid=s.uid)))"
            " ORDER BY s.ended DESC NULLS LAST",
            *(self._tenant, model),
        )
        return [StaleSession(*row) for row in rows]

    def digest(self, session: StaleSession) -> bytes | None:
        """Return the digest of a session."""
        sql = "SELECT body FROM digests WHERE tenant=%s AND uid=%s"
        rows = self._every(sql, self._tenant, session.uid)
        return next((bytes(body) for (body,) in rows), None)

    def spoken_rows(self, session: StaleSession) -> list[SpokenRow]:
        """Return the prompts and answers of a session in their order."""
        rows = self._every(
            "SELECT event_id, id, kind, state FROM events WHERE tenant=%s AND uid=%s"
            " AND kind IN (%s, %s) AND NOT derived ORDER BY seq, id",
            *(self._tenant, session.uid, PROMPT, ANSWER),
        )
        return [SpokenRow(*row) for row in rows]

    def stored_vectors(self, session: StaleSession, model: str) -> StoredVectors | None:
        """Return the vectors of a session that are there."""
        rows = self._every(
            "SELECT digest, events, body FROM vectors WHERE tenant=%s AND uid=%s AND model=%s",
            *(self._tenant, session.uid, model),
        )
        return next((_stored(session.session, *row) for row in rows), None)

    def write(self, session: StaleSession, model: str, vectors: StoredVectors) -> None:
        """Write the vectors of a session, unless it went on or is gone."""
        _, uid, change, is_evicted = session
        if self._write is None:
            return
        # Locked as whoever removes or redacts it locks it: no vector outlives its text.
        self._write(
            "INSERT INTO vectors(tenant, uid, machine, change, model, stamp, digest, events,"
            " body) SELECT s.tenant, s.uid, %s, s.change, %s, 0, %s, %s, %s FROM ("
            "SELECT tenant, uid, change FROM sessions WHERE tenant=%s AND uid=%s"
            " AND change=%s AND (evicted IS NOT NULL)=%s FOR UPDATE) AS s"
            " ON CONFLICT (tenant, uid) DO UPDATE SET machine=excluded.machine,"
            " change=excluded.change, model=excluded.model, digest=excluded.digest,"
            " events=excluded.events, body=excluded.body",
            (
                *(self._store.machine, model, vectors.digest, vectors.numbers.tobytes()),
                *(vectors.body, self._tenant, uid, change, is_evicted),
            ),
        )

    def version(self) -> object:
        """Return a value that is another one whenever vectors have changed."""
        stamps = "SELECT count(*), coalesce(sum(stamp), 0) FROM vectors WHERE tenant=%s"
        return self._every(stamps, self._tenant)[0]

    def all_vectors(self, model: str) -> Iterator[StoredVectors]:
        """Yield all vectors, of the session that ended first before others."""
        rows = self._every(
            "SELECT s.id, s.uid, v.stamp FROM vectors AS v"
            " JOIN sessions AS s ON s.tenant=v.tenant AND s.uid=v.uid"
            " WHERE v.tenant=%s AND v.model=%s ORDER BY s.ended NULLS FIRST, s.uid",
            *(self._tenant, model),
        )
        there = {session: (uid, stamp) for session, uid, stamp in rows}
        read = {
            session: self._read[session]
            for session, (_, stamp) in there.items()
            if session in self._read and self._read[session][0] == stamp
        }
        missing = [session for session in there if session not in read]
        for at in range(0, len(missing), _READ_AT_ONCE):
            uids = {there[session][0]: session for session in missing[at : at + _READ_AT_ONCE]}
            rows = self._every(
                "SELECT uid, stamp, digest, events, body FROM vectors"
                " WHERE tenant=%s AND model=%s AND uid=ANY(%s)",
                *(self._tenant, model, list(uids)),
            )
            for uid, stamp, *vectors in rows:
                read[uids[uid]] = (stamp, _stored(uids[uid], *vectors))
        self._read, self._uids = read, {session: uid for session, (uid, _) in there.items()}
        yield from (read[session][1] for session in there if session in read)

    def session_ids(self, query: Query) -> frozenset[int] | None:
        """Return the sessions that the filters of a question leave; None for all."""
        if not query.narrows_sessions and query.agent is None:
            return None
        values = (
            *(part_of(query.project), part_of(query.model), query.outcome, query.after),
            *(query.before, query.ticks_over, query.ticks_under, query.agent),
        )
        rows = self._every(
            f"SELECT id FROM sessions WHERE tenant=%s AND {' AND '.join(_TESTS)}",  # noqa: S608
            *(self._tenant, *(value for value in values for _ in range(2))),
        )
        return frozenset(number for (number,) in rows)

    def rows(self, wanted: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Row]:
        """Return the rows of events, by session and number; 0 stands for a digest."""
        out: dict[tuple[int, int], Row] = {}
        events = {number: session for session, number in wanted if number}
        rows = self._every(
            "SELECT e.id, e.uid, e.ts, e.kind, e.state FROM events AS e"
            " WHERE e.tenant=%s AND e.id=ANY(%s)",
            *(self._tenant, list(events)),
        )
        for row in rows:
            if self._uids.get(events[row[0]]) == row[1]:
                out[events[row[0]], row[0]] = row
        digests = [session for session, number in wanted if not number]
        rows = self._every(
            "SELECT s.id, s.uid, s.ended, s.evicted IS NOT NULL, p.id, p.ts, p.kind, p.state"
            " FROM sessions AS s LEFT JOIN LATERAL ("
            "SELECT e.id, e.ts, e.kind, e.state FROM events AS e WHERE e.tenant=s.tenant"
            " AND e.uid=s.uid AND e.kind=%s ORDER BY e.seq LIMIT 1) AS p ON true"
            " WHERE s.tenant=%s AND s.uid=ANY(%s)",
            *(PROMPT, self._tenant, [self._uids[session] for session in digests]),
        )
        for session, uid, ended, is_evicted, *prompt in rows:
            if is_evicted:
                out[session, 0] = (-2 * session - 1, uid, ended or 0, DIGEST, 0)
            elif prompt[0] is not None:
                number, ts, kind, state = prompt
                out[session, 0] = (number, uid, ts, kind, state)
        return out


def _stored(session: int, digest: bytes | None, events: bytes, body: bytes) -> StoredVectors:
    return StoredVectors(session, digest, array("q", bytes(events)), bytes(body))
