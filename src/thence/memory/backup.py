"""A copy of what is kept for good: tier 2 of an SQLite store, taken while others go on writing.

The copy is a store of its own in which every session was evicted: sessions, what they took,
digests, signals and who owns what are there; events, words, packs and the key of the redactor are
not. Put in the place of a lost store, the next sweep reads those sessions again whose logs are
still there and that the lost store held; the others keep their digests.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec
from msgspec.structs import replace

from thence.errors import NotAppendable, NotReadable
from thence.memory import disk
from thence.memory.rows import CURSOR

_TIER1: Final = ("events", "event_pages", "facts", "shares", "pending")
_PAGES: Final = 4096
"""Pages that are copied at a time, so that writers wait for a moment only."""


def save(store: Path, to: Path) -> int:
    """Write the copy, whole or not at all; its size."""
    if not store.is_file():
        raise NotReadable(f"no store at {store}", hint="run thence sweep to create one")
    passing = to.with_name(f".{to.name}.{os.getpid()}.tmp")
    try:
        os.close(os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        _copy(store, passing)
        disk.sync(passing)
        passing.replace(to)
        disk.sync(to.parent)
    except (OSError, apsw.Error) as error:
        raise NotAppendable(f"cannot save to {to}: {error}", hint="check free space") from error
    finally:
        for left in ("", "-wal", "-shm", "-journal"):
            passing.with_name(passing.name + left).unlink(missing_ok=True)
    return to.stat().st_size


def _copy(store: Path, to: Path) -> None:
    source = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)
    copy = apsw.Connection(str(to))
    try:
        source.set_busy_timeout(5_000)
        with copy.backup("main", source, "main") as going:
            while not going.done:
                going.step(_PAGES)
        _reduce(copy)
    finally:
        copy.close()
        source.close()


def _reduce(copy: apsw.Connection) -> None:
    """Take tier 1 out, and let every session say that it was evicted."""
    copy.execute("PRAGMA journal_mode=DELETE")
    copy.execute("PRAGMA secure_delete=ON")
    with copy:
        for (name,) in copy.execute("SELECT name FROM tables").fetchall():
            copy.execute(f"DROP TABLE {name}")
        for table in ("tables", *_TIER1):
            copy.execute(f"DELETE FROM {table}")  # noqa: S608 - names of our own
        now = time.time_ns() // 1_000_000
        held: list[Any] = copy.execute(
            "SELECT uid, cursor FROM sessions WHERE evicted IS NULL"
        ).fetchall()
        copy.executemany(
            "UPDATE sessions SET evicted=?, cursor=? WHERE uid=?",
            [(now, _unread(cursor), uid) for uid, cursor in held],
        )
        copy.execute("UPDATE sessions SET raw_bytes=0")
    copy.execute("VACUUM")


def _unread(cursor: bytes) -> bytes:
    """Let no file look as it did when it was read: a sweep that finds it takes it for changed."""
    told = CURSOR.decode(cursor)
    marks = {key: replace(mark, mtime_ns=-1) for key, mark in told.marks.items()}
    return msgspec.msgpack.encode(replace(told, marks=marks))
