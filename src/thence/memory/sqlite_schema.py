"""The tables of a store in one SQLite file, and the steps by which an older store gets them.

FROZEN: `MIGRATIONS` is only ever appended to. A step runs once, in a transaction; `user_version`
says how many of them ran.
"""

from __future__ import annotations

from thence.memory import index, sqlite_vectors
from thence.memory.rows import BOUND_BYTES

REFS_MIGRATION = "-- where the payloads of events lie stands in their rows, too"
"""FROZEN: changes no table; then `sqlite_rows.note_refs` is due."""

_HAS_BOUND = " OR ".join(f"instr(row, x'{key}')" for key in BOUND_BYTES)

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE sessions(
        id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, agent TEXT NOT NULL, project TEXT,
        model TEXT, started INTEGER, ended INTEGER, outcome TEXT, tokens INTEGER NOT NULL,
        ticks INTEGER NOT NULL, raw_bytes INTEGER NOT NULL, change INTEGER NOT NULL,
        discovered INTEGER, ingested INTEGER, analysed INTEGER, evicted INTEGER,
        pinned INTEGER NOT NULL DEFAULT 0, gone INTEGER NOT NULL DEFAULT 0, path TEXT NOT NULL,
        distilled INTEGER NOT NULL DEFAULT 0,
        redactor INTEGER NOT NULL, reader INTEGER NOT NULL, cursor BLOB NOT NULL, row BLOB NOT NULL
    );
    CREATE INDEX sessions_ended ON sessions(ended);
    CREATE INDEX sessions_evicted ON sessions(evicted) WHERE evicted IS NOT NULL;
    CREATE TABLE events(
        id INTEGER PRIMARY KEY, session INTEGER NOT NULL, event_id INTEGER NOT NULL,
        ts INTEGER NOT NULL, kind INTEGER NOT NULL, state INTEGER NOT NULL, tool TEXT,
        tokens INTEGER NOT NULL, ref TEXT, derived INTEGER NOT NULL DEFAULT 0
    );
    CREATE UNIQUE INDEX events_session ON events(session, event_id);
    CREATE TABLE facts(
        session INTEGER NOT NULL, part INTEGER NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY(session, part)
    ) WITHOUT ROWID;
    CREATE TABLE shares(session INTEGER PRIMARY KEY, body BLOB NOT NULL);
    CREATE TABLE owners(key INTEGER PRIMARY KEY, session INTEGER NOT NULL);
    CREATE INDEX owners_session ON owners(session);
    CREATE TABLE kin(
        session INTEGER NOT NULL, other INTEGER NOT NULL, PRIMARY KEY(session, other)
    ) WITHOUT ROWID;
    CREATE TABLE spend(
        session INTEGER NOT NULL, day TEXT NOT NULL, model TEXT NOT NULL, place TEXT NOT NULL,
        input INTEGER, output INTEGER, cache_creation INTEGER, cache_read INTEGER,
        cache_1h INTEGER, searches INTEGER, responses INTEGER NOT NULL, ticks INTEGER NOT NULL,
        unpriced INTEGER NOT NULL,
        PRIMARY KEY(session, day, model, place)
    ) WITHOUT ROWID;
    CREATE TABLE digests(
        session INTEGER PRIMARY KEY, change INTEGER NOT NULL, at INTEGER NOT NULL,
        body BLOB NOT NULL
    );
    CREATE TABLE signals(
        id INTEGER PRIMARY KEY, session INTEGER NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL
    );
    CREATE INDEX signals_session ON signals(session);
    CREATE INDEX signals_kind ON signals(kind);
    CREATE TABLE tables(name TEXT PRIMARY KEY, bytes INTEGER NOT NULL, first INTEGER NOT NULL);
    CREATE VIRTUAL TABLE digest_words USING fts5(
        body, meta, content='', contentless_delete=1, tokenize='unicode61'
    );
    INSERT INTO digest_words(digest_words, rank) VALUES('secure-delete', 1);
    CREATE TABLE removals(
        id INTEGER PRIMARY KEY, at INTEGER NOT NULL, what TEXT NOT NULL, body TEXT
    );
    CREATE TABLE tombstones(uid_hash BLOB PRIMARY KEY) WITHOUT ROWID;
    CREATE TABLE pending(name TEXT PRIMARY KEY) WITHOUT ROWID;
    """,
    # Rows are fat: lists and sums must not read all of them.
    """
    DROP INDEX sessions_ended;
    CREATE INDEX sessions_thin ON sessions(ended, agent, raw_bytes);
    """,
    # Which rows lay side by side; a later step drops it again.
    """
    CREATE TABLE runs(
        first INTEGER PRIMARY KEY, session INTEGER NOT NULL, count INTEGER NOT NULL,
        seq INTEGER NOT NULL
    );
    CREATE INDEX runs_session ON runs(session);
    """,
    # What digests derive is taken out again whenever a session goes on.
    "CREATE INDEX events_derived ON events(session) WHERE derived",
    # What continues a session: the state of its fold, and the calls it has seen.
    """
    CREATE TABLE folds(session INTEGER PRIMARY KEY, body BLOB NOT NULL);
    CREATE TABLE calls(
        session INTEGER NOT NULL, key INTEGER NOT NULL, PRIMARY KEY(session, key)
    ) WITHOUT ROWID;
    """,
    # By which versions of the fold and of the digest a session was derived.
    """
    ALTER TABLE sessions ADD COLUMN fold INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sessions ADD COLUMN digest INTEGER NOT NULL DEFAULT 0;
    """,
    index.MIGRATION,
    index.TITLES_MIGRATION,
    # Events with all that was derived of them, in pages; the next sweep writes those of sessions
    # that were there before. What digests derived is in the pages as well.
    """
    ALTER TABLE events ADD COLUMN seq INTEGER;
    CREATE TABLE event_pages(
        id INTEGER PRIMARY KEY, session INTEGER NOT NULL, first INTEGER NOT NULL,
        body BLOB NOT NULL
    );
    CREATE UNIQUE INDEX event_pages_session ON event_pages(session, first);
    DELETE FROM events WHERE derived;
    DROP TABLE runs;
    """,
    sqlite_vectors.MIGRATION,
    # Sessions of one folder: a brief must not read the rows of all others.
    "CREATE INDEX sessions_project ON sessions(project, ended)",
    # What the next digest of a session goes on from.
    "CREATE TABLE digest_states(session INTEGER PRIMARY KEY, body BLOB NOT NULL)",
    # Sessions whose cost is a minimum: sums must say so, and must not read all rows for it.
    f"""
    ALTER TABLE sessions ADD COLUMN bound INTEGER NOT NULL DEFAULT 0;
    UPDATE sessions SET bound=1 WHERE {_HAS_BOUND};
    CREATE INDEX sessions_bound ON sessions(ended) WHERE bound;
    """,  # noqa: S608 - of our own constants
    REFS_MIGRATION,
)
