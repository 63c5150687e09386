"""One SQLite file and its connections: opened, upgraded, written, swept and shrunk.

One connection writes at a time, inside this process and between processes; each thread that reads
has a connection of its own. Errors of SQLite leave as errors with a hint. What the tables hold is
the matter of `sqlite`, which is built on this.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import apsw

from thence import system
from thence.errors import (
    BadConfig,
    DiskFull,
    NotAppendable,
    NotReadable,
    SessionNotFound,
    ThenceError,
)
from thence.memory import backup, disk, index, sqlite_rows
from thence.memory.index import every, first
from thence.memory.sqlite_schema import MIGRATIONS, REFS_MIGRATION
from thence.memory.store import StoreDamaged, StoreLocked

BUSY_MS = 5_000
_CACHE_KB, _SWEEP_KB = 32_768, 12_288
"""Of pages: for who searches, and for who sweeps beside processes that read."""
_INCREMENTAL = 2  # how SQLite says that auto_vacuum is INCREMENTAL
_OLD_LOCK = "sweep.lock"
_SHRINK_PAGES = 8192  # pages that are given back at once where there is little room
_SHRINK_ALL_AT_PAGES = 20_000  # free pages from which on they are given back all together

DAMAGE_ERRORS = (apsw.CorruptError, apsw.IOError, apsw.NotADBError)
"""What SQLite raises, anywhere, where its file is damaged."""


RECOVERY_HINT = (
    "move it away, restore a file of thence store backup if you have one, then run thence sweep"
)
"""What can be done about a damaged file."""


def damage_error(path: Path, error: Exception) -> StoreDamaged:
    """Say that a store is damaged, and what can be done."""
    message = f"the store {path} is damaged: {error}"
    return StoreDamaged(message, hint=f"see thence doctor; {RECOVERY_HINT}")


@contextlib.contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Say that a store is damaged where SQLite finds it so, whatever it was asked."""
    try:
        yield
    except DAMAGE_ERRORS as error:
        raise damage_error(path, error) from error


class SqliteFile:
    """A file of tables that many threads and processes read and one writes."""

    def __init__(self, path: str, *, must_exist: bool = False) -> None:
        """Open the file, making it when there is none; with `must_exist` SessionNotFound then."""
        self.path = Path(path).expanduser().absolute()
        if must_exist and not self.path.is_file():
            raise SessionNotFound(
                f"there is no store at {self.path}", hint="check the path; nothing was created"
            )
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._own = threading.local()
        self._writing = threading.RLock()
        self._open: list[apsw.Connection] = []
        try:
            with translate_errors(self.path):
                self._migrate()
        except StoreDamaged:
            self.close()
            raise

    @property
    def _db(self) -> apsw.Connection:
        """The connection of the thread that asks."""
        db: apsw.Connection | None = getattr(self._own, "db", None)
        if db is None:
            db = self._own.db = self._connect()
        return db

    def _connect(self) -> apsw.Connection:
        try:
            if not self.path.exists():
                self._create()
            db = apsw.Connection(str(self.path))
            db.set_busy_timeout(BUSY_MS)
            if first(db, "PRAGMA auto_vacuum") != _INCREMENTAL:  # to set it writes to the file
                db.execute("PRAGMA auto_vacuum=INCREMENTAL")
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.execute("PRAGMA secure_delete=ON")
            db.execute(f"PRAGMA cache_size=-{_CACHE_KB}")
        except apsw.BusyError as error:
            raise self._lock_error() from error
        except (apsw.CantOpenError, apsw.IOError, apsw.ReadOnlyError, apsw.FullError) as error:
            db = self._as_it_lies(error)
        except apsw.CorruptError as error:
            db.close()  # to open it read nothing
            raise damage_error(self.path, error) from error
        except (apsw.Error, OSError) as error:
            raise self._open_error(error) from error
        self._open.append(db)
        return db

    def _create(self) -> None:
        """Make an empty file that only its owner reads, unless another one makes it just now.

        A file that is there must not be opened here: to close it would let go of SQLite's locks.
        """
        with contextlib.suppress(FileExistsError):  # another process made it: open theirs
            os.close(system.open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL))

    def _as_it_lies(self, error: apsw.Error) -> apsw.Connection:
        """Open for reading alone, where nothing can be written: a full disk, a read-only home.

        Only if no log lies beside the file: without looking into that one, rows would be missed.
        """
        log = self.path.with_name(f"{self.path.name}-wal")
        if not self.path.stat().st_size or (log.exists() and log.stat().st_size):
            raise self._open_error(error) from error
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        try:
            return apsw.Connection(f"{self.path.as_uri()}?immutable=1", flags=flags)
        except apsw.Error as again:
            raise self._open_error(again) from error

    def _open_error(self, error: Exception) -> ThenceError:
        """Tell a file that is no store, which somebody named, from a disk that refuses one."""
        kind = BadConfig if isinstance(error, apsw.NotADBError) else NotReadable
        return kind(
            f"cannot open the store {self.path}: {error}",
            hint="check the file, free space and permissions; THENCE_HOME selects another folder",
        )

    def _lock_error(self) -> StoreLocked:
        return StoreLocked(
            f"the store {self.path} is being written by another process",
            hint="try again in a moment",
        )

    def _write_error(self, error: Exception) -> NotAppendable:
        if isinstance(error, apsw.FullError):
            return DiskFull(f"the store {self.path} cannot be written")
        return NotAppendable(
            f"cannot write to the store {self.path}: {error}",
            hint="stored data is safe; check the disk and the mode of the file, then try again",
        )

    def _migrate(self) -> None:
        db = self._db
        version = first(db, "PRAGMA user_version")
        if version > len(MIGRATIONS):
            raise BadConfig(
                f"{self.path} was created by a newer thence (schema {version})",
                hint="upgrade thence; this version cannot read the store",
            )
        if 0 < version < len(MIGRATIONS) and first(db, "SELECT 1 FROM sessions LIMIT 1"):
            backup.save_before_upgrade(self.path, version)
        for number in range(version, len(MIGRATIONS)):
            with self._transaction():
                if first(db, "PRAGMA user_version") > number:
                    continue  # another process was first
                db.execute(MIGRATIONS[number])
                if MIGRATIONS[number] == index.MIGRATION:
                    index.note_tokens(db)
                if MIGRATIONS[number] == index.TITLES_MIGRATION:
                    index.index_digests_again(db)
                if MIGRATIONS[number] == REFS_MIGRATION:
                    sqlite_rows.note_refs(db)
                db.execute(f"PRAGMA user_version={number + 1}")

    @contextlib.contextmanager
    def _transaction(self, *, full: bool = False) -> Iterator[apsw.Connection]:
        """All or nothing; with `full` on the disk when it is over."""
        db = self._db
        with self._writing:
            try:
                db.execute(f"PRAGMA synchronous={'FULL' if full else 'NORMAL'}")
                db.execute("BEGIN IMMEDIATE")
            except apsw.BusyError as error:
                raise self._lock_error() from error
            except (apsw.ReadOnlyError, apsw.FullError, apsw.IOError) as error:
                raise self._write_error(error) from error
            try:
                yield db
                db.execute("COMMIT")
            except BaseException as error:  # let go of the lock, whatever it was, and pass it on
                if db.in_transaction:  # a disk that is full ends it by itself
                    db.execute("ROLLBACK")
                if isinstance(error, (apsw.FullError, apsw.IOError, apsw.ReadOnlyError)):
                    raise self._write_error(error) from error
                raise

    @contextlib.contextmanager
    def sweeping(self, wait: float = 0.0) -> Iterator[None]:
        """Hold the right to sweep; StoreLocked when somebody else has it."""
        until = time.monotonic() + wait
        with contextlib.ExitStack() as locks:
            try:
                # Older programs lock the whole folder, whichever store of it they sweep into.
                locks.enter_context(disk.lock(self.path.with_name(_OLD_LOCK), until, shared=True))
                locks.enter_context(disk.lock(self.path.with_name(f"{self.path.name}.lock"), until))
            except TimeoutError as error:
                raise StoreLocked(
                    f"another sweep into {self.path} is running",
                    hint="wait until it ends; reading works meanwhile",
                ) from error
            self._db.execute(f"PRAGMA cache_size=-{_SWEEP_KB}")
            try:
                yield
            finally:
                self._db.execute(f"PRAGMA cache_size=-{_CACHE_KB}")
                backup.drop_upgrade_copies(self.path)

    def close(self) -> None:
        """Close the connections of all threads."""
        while self._open:
            self._open.pop().close()
        self._own = threading.local()

    def _shrink(self) -> bool:
        """Free unused pages and empty the log; return whether a reader is in the way."""
        db = self._db
        left, before = first(db, "PRAGMA freelist_count"), None
        try:
            if left > _SHRINK_ALL_AT_PAGES and self._has_room(left):
                # All of them, as this commits. Whoever opens the store sets it back after a kill.
                every(db, "PRAGMA auto_vacuum=FULL")
                every(db, "PRAGMA auto_vacuum=INCREMENTAL")
            # For each page the whole list of free ones is looked through: good for a few. A piece
            # at a time, since a log of gigabytes takes longer to look things up in than to write.
            while left and left != before:
                every(db, f"PRAGMA incremental_vacuum({_SHRINK_PAGES})")
                every(db, "PRAGMA wal_checkpoint(PASSIVE)")
                left, before = first(db, "PRAGMA freelist_count"), left
        except apsw.BusyError:  # another process writes
            return True
        return bool(first(db, "PRAGMA wal_checkpoint(TRUNCATE)"))

    def _has_room(self, pages: int) -> bool:
        """Whether the disk has twice the room that a change of so many pages takes in the log."""
        size = int(first(self._db, "PRAGMA page_size"))
        return shutil.disk_usage(self.path).free > 2 * pages * size
