"""Bringing a database of a team to the schema of this program, while others use it."""

from __future__ import annotations

import time
from typing import Final

import psycopg
from psycopg import errors

from thence.errors import BadConfig
from thence.team import postgres_schema
from thence.team.postgres_schema import SCHEMA, Migration

_MAX_TRIES: Final = 60
_MIGRATING: Final = 0x7468656E6365  # the advisory lock: one process migrates
_LOCK_TIMEOUT: Final = "1s"  # for a lock that a migration waits for, before it lets others go first


def migrate(db: psycopg.Connection[tuple[object, ...]]) -> None:
    """Bring a database to the schema of this program; many may try at once, and others write."""
    if _version(db) >= len(postgres_schema.MIGRATIONS):
        return
    for number, step in enumerate(postgres_schema.MIGRATIONS, start=1):
        for left in reversed(range(_MAX_TRIES)):
            try:
                _make(db, number, step)
                break
            except (errors.DeadlockDetected, errors.LockNotAvailable):
                # Whoever writes goes first: a queue behind a migration would stop them all.
                if not left:
                    raise
                time.sleep(0.2)


def _make(db: psycopg.Connection[tuple[object, ...]], number: int, step: Migration) -> None:
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
        db.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
        if _version(db) >= number:
            return  # another process was first
        if number == 1:
            db.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
            db.execute(
                f"CREATE TABLE IF NOT EXISTS {SCHEMA}.versions"
                "(version integer PRIMARY KEY, oldest integer NOT NULL)"
            )
        db.execute(f"SET LOCAL search_path TO {SCHEMA}, pg_temp")
        db.execute(step.statements)
        db.execute("INSERT INTO versions(version, oldest) VALUES(%s, %s)", (number, step.oldest))


def is_migrated(db: psycopg.Connection[tuple[object, ...]]) -> bool:
    """Whether a database has tables of ours, of whatever schema."""
    return _version(db) > 0


def _version(db: psycopg.Connection[tuple[object, ...]]) -> int:
    """Return the schema of a database, 0 for none; refuse one that has left this program behind."""
    # The catalog itself, not what this session remembers of it: another may just have made them.
    there = db.execute(
        "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname=%s AND tablename='versions'", (SCHEMA,)
    )
    if there.fetchone() is None:
        return 0
    row = db.execute(
        f"SELECT coalesce(max(version), 0), coalesce(max(oldest), 0) FROM {SCHEMA}.versions"  # noqa: S608
    ).fetchone()
    version, oldest = (int(str(number)) for number in row or (0, 0))
    if oldest > len(postgres_schema.MIGRATIONS):
        raise BadConfig(
            f"the store was created by a newer thence (schema {version})",
            hint="upgrade thence; this version cannot read the store",
        )
    return version
