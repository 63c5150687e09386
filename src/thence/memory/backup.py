"""A copy of what is kept for good: tier 2 of an SQLite store, taken while others go on writing.

The copy is a store of its own in which every session was evicted: sessions, what they took,
digests, signals and who owns what are there; events, words, packs and the key of the redactor are
not. Put in the place of a lost store, the next sweep reads those sessions again whose logs are
still there and that the lost store held; the others keep their digests.

Before a store is migrated, such a copy of it is saved in the folder `backups` beside it. It has the
schema that the store had, so that an earlier version opens it. The two last ones are there for
30 days; to forget a session deletes them.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec
from msgspec.structs import replace

from thence import system
from thence.errors import NotAppendable, NotReadable, remedy
from thence.memory.rows import CURSOR
from thence.memory.sqlite_rows import TIER_1

FOLDER: Final = "backups"
MAX_UPGRADE_COPIES: Final = 2
"""Copies of earlier schemas that are there at most."""
UPGRADE_COPY_DAYS: Final = 30
"""How long such a copy is there."""

_NOT_COPIED: Final = frozenset({*TIER_1, "pending", "tables", "runs"})
"""Tables that are empty in a copy; schemas before 9 had `runs`, the places of stored events."""


def save(store: Path, to: Path) -> int:
    """Write the copy, whole or not at all; return its size."""
    if not store.is_file():
        raise NotReadable(f"no store at {store}", hint="run thence sweep to create one")
    try:
        _write(store, to)
    except (OSError, apsw.Error) as error:
        raise NotAppendable(f"cannot save to {to}: {error}", hint=remedy(error)) from error
    return to.stat().st_size


def save_before_upgrade(store: Path, schema: int) -> Path:
    """Save a store as it is before it is migrated; return where. A damaged one raises as SQLite."""
    to = store.parent / FOLDER / f"{store.name}.schema-{schema}"
    try:
        to.parent.mkdir(mode=0o700, exist_ok=True)
        _write(store, to)
    except (apsw.CorruptError, apsw.NotADBError):
        raise
    except (OSError, apsw.Error) as error:
        raise NotAppendable(
            f"cannot save {store} before it is upgraded: {error}",
            hint="free some space or make the folder writable; the store is as it was",
        ) from error
    for old in upgrade_copies(store)[MAX_UPGRADE_COPIES:]:
        old.unlink(missing_ok=True)
    return to


def upgrade_copies(store: Path) -> list[Path]:
    """Return the copies of a store that were saved before it was migrated, the latest first."""
    copies: list[tuple[float, Path]] = []
    for path in (store.parent / FOLDER).glob("*.schema-*"):
        if path.name.rpartition(".schema-")[0] == store.name:
            with contextlib.suppress(FileNotFoundError):  # another process removed it just now
                copies.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(copies, reverse=True)]


def drop_upgrade_copies(store: Path, *, days: float = UPGRADE_COPY_DAYS) -> None:
    """Remove the copies of a store that are older than some days; 0 removes all."""
    until = time.time() - days * 86_400
    for path in upgrade_copies(store):
        with contextlib.suppress(OSError):  # a read-only disk: nothing is removed there
            if not days or path.stat().st_mtime < until:
                path.unlink()


def _write(store: Path, to: Path) -> None:
    passing = to.with_name(f".{to.name}.{os.getpid()}.tmp")
    try:
        os.close(system.open_file(passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        _copy(store, passing)
        system.sync_file(passing)
        passing.replace(to)
        system.sync_folder(to.parent)
    finally:
        for left in ("", "-wal", "-shm", "-journal"):
            passing.with_name(passing.name + left).unlink(missing_ok=True)


def _copy(store: Path, to: Path) -> None:
    """Copy tier 2, table by table, as of one moment: no writer waits, and no transcript is read."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
    copy = apsw.Connection(str(to), flags=flags)
    try:
        copy.set_busy_timeout(5_000)
        copy.execute("PRAGMA auto_vacuum=INCREMENTAL")
        copy.execute("ATTACH ? AS store", (f"{store.as_uri()}?mode=ro",))
        with copy:
            _copy_tables(copy)
            _evict(copy)
            (version,) = copy.execute("PRAGMA store.user_version").fetchall()[0]
            copy.execute(f"PRAGMA main.user_version={version}")
    finally:
        copy.close()


def _copy_tables(copy: apsw.Connection) -> None:
    words = [str(name) for (name,) in copy.execute("SELECT name FROM store.tables")]
    made: list[Any] = copy.execute(
        "SELECT type, name, sql FROM store.sqlite_master WHERE sql IS NOT NULL"
        " ORDER BY sql NOT LIKE 'CREATE VIRTUAL%'"
    ).fetchall()
    indexes: list[str] = []
    for kind, name, sql in made:
        if name.startswith("sqlite_") or _is_of(name, words):
            continue
        if kind != "table":
            indexes.append(sql)
            continue
        # A table of words makes those that it is stored in; these are filled like all others.
        if not copy.execute("SELECT 1 FROM main.sqlite_master WHERE name=?", (name,)).fetchall():
            copy.execute(sql)
        if name not in _NOT_COPIED and not sql.startswith("CREATE VIRTUAL"):
            copy.execute(f'DELETE FROM main."{name}"')  # noqa: S608 - a name of our own
            copy.execute(f'INSERT INTO main."{name}" SELECT * FROM store."{name}"')  # noqa: S608
    for sql in indexes:
        copy.execute(sql)


def _is_of(name: str, words: list[str]) -> bool:
    """Return whether a table has the words of transcripts, or is one that they are stored in."""
    return any(name == table or name.startswith(f"{table}_") for table in words)


def _evict(copy: apsw.Connection) -> None:
    """Let every session say that it was evicted."""
    now = time.time_ns() // 1_000_000
    stored: list[Any] = copy.execute(
        "SELECT uid, cursor FROM main.sessions WHERE evicted IS NULL"
    ).fetchall()
    copy.executemany(
        "UPDATE main.sessions SET evicted=?, cursor=? WHERE uid=?",
        [(now, _unread(cursor), uid) for uid, cursor in stored],
    )
    copy.execute("UPDATE main.sessions SET raw_bytes=0")


def _unread(cursor: bytes) -> bytes:
    """Let no file look as it did when it was read: a sweep that finds it takes it for changed."""
    decoded = CURSOR.decode(cursor)
    marks = {key: replace(mark, mtime_ns=-1) for key, mark in decoded.marks.items()}
    return msgspec.msgpack.encode(replace(decoded, marks=marks))
