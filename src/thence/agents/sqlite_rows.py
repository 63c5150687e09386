"""Reading rows of SQLite files that belong to others: no lock, no write, no file beside them.

SQLite itself reads the file, through a layer that hands it bytes of two files that were opened for
reading: the database and its write-ahead log, each as long as it was then. Locks are granted
without asking the system, and the index of the log is kept in memory, so that neither `-wal` nor
`-shm` is made or changed. As nothing keeps the writer from moving pages meanwhile, `query` compares
both files before and after: an answer that may mix two states is thrown away and asked for again.
Pages are read as they are needed: a large database costs no more than the rows that are asked for.

What a database says of itself is hostile: only tables are read, never a view or a virtual table,
and a question has a limit of time, of the length of a value and of memory (`query`). Pages may lead
to the same rows again and again: a table that gives more than its file holds is damaged. One
question that takes too long is the last for that database, until somebody writes to it. A row
whose text is not UTF-8 costs itself.

`read` is for rows what `files.read` is for lines. A `RowLog` says which rows of a session are new
and what they say; the cursor, the limits and what was rewritten are taken care of here. Nothing in
a database raises: one that cannot be read is a skip with its reason.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol, TypeVar

import apsw
import msgspec

from thence import system
from thence.agents import Batch, Cursor, File, Mark, Source
from thence.agents.files import (
    REWRITTEN,
    SOURCE_GONE,
    Limits,
    open_regular,
    reason_of,
    rewritten_fact,
)
from thence.agents.marks import mark_of
from thence.format.codec import LINE_LIMIT, TOO_LONG, RawRecord
from thence.format.facts import Fact
from thence.format.records import JSON, Notice, Place, Skipped, count

# Each try may meet another write; what cannot be read now, the next sweep reads.
MAX_TRIES: Final = 5
"""How often a database is asked again that was written meanwhile."""
MAX_WAL_BYTES: Final = 1 << 30
"""Longest write-ahead log that is read."""
MAX_QUERY_S: Final = 20.0
"""How long one question may take."""
MAX_HEAP_BYTES: Final = LINE_LIMIT + (16 << 20)
"""What SQLite may take for a question beyond what it had: a value of the longest, and its pages."""
NOT_UTF8: Final = "its text is not UTF-8"
"""Why a row is left out."""
MIN_ROW_BYTES: Final = 6
"""What a row takes at least: its place in a page, two lengths, its number, a type."""
MAX_LETTERS_PER_BYTE: Final = 3
"""How much longer a number may be as text than it is in a row."""
MAX_IDLE_S: Final = 5.0  # a connection keeps files open that the agent may want to replace
"""How long an open database waits for the next question."""

_BUSY_REASON: Final = "it is being written; it is read again later"
_JOURNAL_REASON: Final = "a change of it was not finished; its client mends that"
PASSING: Final = (_BUSY_REASON, _JOURNAL_REASON)
"""Why a database is not read now; for any other reason it is not, until somebody writes to it."""
_SETTLED_NS: Final = 20_000_000  # file times advance in steps: a younger one may hide a write
_STEPS_PER_TIME_CHECK: Final = 100_000  # of SQLite's machine between two looks at the clock
_WAL_HEADER_BYTES: Final = 32  # bytes of a write-ahead log that change when it begins anew
_YOUNG_PREFIX: Final = "young "
_VFS_NAME: Final = "thence-rows"
_Stamp = tuple[int, int, int, int, int]

T = TypeVar("T")


class UnreadableError(Exception):
    """A database that cannot be read, and why."""


class RowLog(Protocol):
    """The rows of one file of a session, in the order in which they are told."""

    version: str
    """What the rows are known by: equal if and only if there is nothing to read."""

    def is_known(self) -> bool:
        """Return whether the rows that the mark tells of are still there."""

    def rows(self) -> Iterator[RawRecord]:
        """Yield the rows after the mark, each with a line number that grows."""

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return the facts of one row."""

    def final_facts(self) -> Iterable[Fact]:
        """Return the facts that only all rows together tell."""

    def carry(self) -> JSON:
        """Return what a later read must know of the rows before it."""


OpenRowLog = Callable[["Database", Source, File, Mark], RowLog]
"""Makes the log of a file; the mark tells the generation and holds the last carry."""


# -- the layer below SQLite -----------------------------------------------------------------


class _Bytes:
    """A file that SQLite may read, as long as it was when it was opened."""

    def __init__(self, handle: int | None, size: int) -> None:
        self._handle, self._size = handle, size

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - SQLite's names
        if self._handle is None:
            return b""
        return system.read_at(self._handle, max(min(amount, self._size - offset), 0), offset)

    def xFileSize(self) -> int:  # noqa: N802
        return self._size

    def xLock(self, level: int) -> None:  # noqa: N802
        """Grant it: nothing here writes, and `query` notices who does."""

    xUnlock = xLock  # noqa: N815

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xSectorSize(self) -> int:  # noqa: N802
        return 4096

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return 0

    def xFileControl(self, op: int, pointer: int) -> bool:  # noqa: N802
        del op, pointer
        return False

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        raise apsw.ReadOnlyError(f"{len(data)} bytes at {offset} of a file of others")

    def xTruncate(self, size: int) -> None:  # noqa: N802
        raise apsw.ReadOnlyError(f"a file of others, to {size} bytes")

    def xSync(self, flags: int) -> None:  # noqa: N802
        """Do nothing: nothing was written."""

    def xClose(self) -> None:  # noqa: N802
        """Do nothing: the database closes its files itself."""


class _Layer(apsw.VFS):
    """Hands SQLite the files of open databases by made-up names; no path reaches it."""

    def __init__(self) -> None:
        self.open: dict[str, Database] = {}
        super().__init__(_VFS_NAME, base="")

    def xFullPathname(self, name: str) -> str:  # noqa: N802
        return name

    def xAccess(self, name: str, flags: int) -> bool:  # noqa: N802
        del flags
        stem, _, end = name.rpartition("-")
        database = self.open.get(stem)
        return database is not None and database.has(f"-{end}")

    def xDelete(self, name: str, sync: bool) -> None:  # noqa: FBT001, N802
        raise apsw.ReadOnlyError(f"{name} stays ({sync})")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> _Bytes:  # type: ignore[override]  # noqa: N802
        filename = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        stem, _, end = filename.rpartition("-")
        flags[1] = flags[0] & ~(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        flags[1] |= apsw.SQLITE_OPEN_READONLY
        if filename in self.open:
            return self.open[filename].main
        if end == "wal" and stem in self.open:
            return self.open[stem].wal
        raise apsw.CantOpenError(f"{filename} is not read")


_layer: _Layer | None = None
_numbers = itertools.count()
_lock = threading.Lock()


def _get_layer() -> _Layer:
    global _layer  # noqa: PLW0603 - SQLite knows its layers by name, once per process
    with _lock:
        if _layer is None:
            _layer = _Layer()
        return _layer


class Database:
    """One state of an SQLite file, for a few questions; `is_same` says whether it still stands."""

    def __init__(self, path: str, known_by: str) -> None:
        """Open the files; raises OSError, UnreadableError or an error of SQLite."""
        self.path, self.known_by = path, known_by
        self._handles = [open_regular(path)]
        try:
            self.stamp = _stamp(os.fstat(self._handles[0]))
            self.main = _Bytes(self._handles[0], self.stamp[2])
            self.wal, self._salt = self._open_wal()
            self._journal = _size_of(f"{path}-journal")
            self._name = f"rows{next(_numbers)}"
            layer = _get_layer()
            layer.open[self._name] = self
            try:
                self._sql = apsw.Connection(
                    self._name,
                    flags=apsw.SQLITE_OPEN_READONLY,
                    vfs=_VFS_NAME,
                    statementcachesize=16,
                )
            except BaseException:  # whatever it was: let go of the name, then pass it on
                del layer.open[self._name]
                raise
        except BaseException:  # whatever it was: close the files, then pass it on
            self._close_files()
            raise
        self._until = time.monotonic() + MAX_QUERY_S
        self._sql.set_progress_handler(self._is_late, _STEPS_PER_TIME_CHECK)
        self._sql.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
        self._sql.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_HEAP_BYTES)
        self._sql.authorizer = _authorize
        # Defaults of a strange schema call no function that could do harm.
        self._sql.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        self._sql.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        self._columns: dict[str, frozenset[str]] = {}
        self._has_begun = False
        self._undecoded = 0

    def _open_wal(self) -> tuple[_Bytes, bytes]:
        try:
            handle = open_regular(f"{self.path}-wal")
        except FileNotFoundError:  # in another journal mode, or all of it was checkpointed
            return _Bytes(None, 0), b""
        except OSError as error:
            raise UnreadableError(f"its write-ahead log: {reason_of(error)}") from error
        self._handles.append(handle)
        size = os.fstat(handle).st_size
        if size > MAX_WAL_BYTES:
            raise UnreadableError(f"its write-ahead log has more than {MAX_WAL_BYTES >> 20} MiB")
        return _Bytes(handle, size), system.read_at(handle, _WAL_HEADER_BYTES, 0)

    def has(self, end: str) -> bool:
        """Return whether a file lies beside the database that SQLite asks for."""
        if end == "-journal":
            return self._journal > 0
        return end == "-wal" and self.wal.xFileSize() > 0

    def close(self) -> None:
        """Close it."""
        try:
            self._sql.close(force=True)
        finally:
            _get_layer().open.pop(self._name, None)
            self._close_files()

    def _close_files(self) -> None:
        while self._handles:
            os.close(self._handles.pop())

    def _is_late(self) -> bool:
        return time.monotonic() > self._until

    def columns(self, table: str) -> frozenset[str]:
        """Return the columns of a table; none if there is no such table.

        Those that are computed are left out. Raises UnreadableError for what only looks like one.
        """
        if table not in self._columns:
            for (kind,) in self.ask("SELECT type FROM pragma_table_list(?)", table):
                if kind != "table":
                    raise UnreadableError(f"{table} is a {kind}, not a table")
            rows = self.ask("SELECT name FROM pragma_table_info(?)", table)
            self._columns[table] = frozenset(str(name) for (name,) in rows)
        return self._columns[table]

    def require(self, table: str, *names: str) -> None:
        """Raise UnreadableError if a table is missing without which there can be no session.

        A database without any table is one that its client has only begun.
        """
        if not self.has_columns(table, names) and any(self.ask("SELECT 1 FROM sqlite_schema")):
            raise UnreadableError(f"has no table {table} that is known")

    def take_undecoded(self) -> int:
        """Return how many rows were left out since this was asked, as their text is not UTF-8."""
        number, self._undecoded = self._undecoded, 0
        return number

    def has_columns(self, table: str, names: Iterable[str]) -> bool:
        """Return whether a table is there with these columns."""
        return self.columns(table).issuperset(names)

    def select(
        self, table: str, names: Sequence[str], rest: str = "", *values: str | float | None
    ) -> Iterator[tuple[JSON, ...]]:
        """Yield columns of the rows of a table; columns that it does not have are None.

        So are cells that are too long. A table that is not there has no rows. `rest` is what
        follows the name of the table; the columns that it names must be there.
        """
        return (cells[1:] for cells in self.select_sized(table, names, rest, *values))

    def select_sized(
        self, table: str, names: Sequence[str], rest: str = "", *values: str | float | None
    ) -> Iterator[tuple[JSON, ...]]:
        """Yield the bytes of all cells, and the cells as `select` does."""
        there = self.columns(table)
        if not there:
            return iter(())
        own = [name for name in names if name in there]
        size = " + ".join(f"coalesce(octet_length({name}), 0)" for name in own) or "0"
        # A cell is as long as its writer likes: one that is too long is not loaded.
        most = LINE_LIMIT
        cells = [
            f"CASE WHEN octet_length({name}) <= {most} THEN {name} END" if name in there else "NULL"
            for name in names
        ]
        # Names are ours, and those of the file are only compared with them.
        rows = self.ask(f"SELECT {size}, {', '.join(cells)} FROM {table} {rest}", *values)  # noqa: S608
        return self._limited(rows)

    def select_once(self, table: str, names: Sequence[str]) -> Iterator[tuple[JSON, ...]]:
        """Yield columns of the rows of a table as `select` does, the first of which is its key."""
        seen: set[JSON] = set()
        for cells in self.select(table, names, f"WHERE {names[0]} IS NOT NULL"):
            if cells[0] in seen:
                raise apsw.CorruptError(f"{table} has a key twice")
            if cells[0] is not None:  # it is too long
                seen.add(cells[0])
            yield cells

    def ask(self, sql: str, *values: str | float | None) -> Iterator[tuple[JSON, ...]]:
        """Yield the rows that answer a question."""
        self._until = time.monotonic() + MAX_QUERY_S
        if not self._has_begun:
            # So the index of the write-ahead log stays in memory; it must be the first word.
            for pragma in ("locking_mode=EXCLUSIVE", "temp_store=MEMORY", "cell_size_check=ON"):
                self._sql.execute(f"PRAGMA {pragma}").fetchall()
            self._has_begun = True
        return self._decoded(self._sql.execute(sql, values))

    def _decoded(self, rows: Iterator[tuple[JSON, ...]]) -> Iterator[tuple[JSON, ...]]:
        """Yield rows, without those that are not text where they should be."""
        while True:
            try:
                row = next(rows, None)
            except UnicodeDecodeError:
                self._undecoded += 1
                continue
            if row is None:
                return
            yield row

    def _limited(self, rows: Iterator[tuple[JSON, ...]]) -> Iterator[tuple[JSON, ...]]:
        """Yield rows, the size of each first, as long as the files can hold them."""
        left = self.main.xFileSize() + self.wal.xFileSize()
        for cells in rows:
            left -= MIN_ROW_BYTES + count(cells[0]) // MAX_LETTERS_PER_BYTE
            if left < 0:
                raise apsw.CorruptError("it gives more than it holds")
            yield cells

    def is_same(self) -> bool:
        """Return whether neither file changed so that an answer may mix two states.

        A write-ahead log may have grown: what was added is not looked at.
        """
        try:
            now = _stamp(os.fstat(self._handles[0]))
            there = _stamp(os.lstat(self.path))
        except OSError:  # replaced while we read: what was read may be of two versions
            return False
        if now != self.stamp or there != self.stamp or _size_of(f"{self.path}-journal"):
            return False
        if len(self._handles) == 1:
            return True
        size = os.fstat(self._handles[1]).st_size
        return size >= self.wal.xFileSize() and self._salt == system.read_at(
            self._handles[1], _WAL_HEADER_BYTES, 0
        )


def _stamp(status: os.stat_result) -> _Stamp:
    times = status.st_mtime_ns, status.st_ctime_ns
    return (status.st_dev, status.st_ino, status.st_size, *times)


def _size_of(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:  # gone since it was listed: nothing to read
        return 0


def query(path: str, ask: Callable[[Database], T]) -> T:
    """Return what a function reads of a database, from one state of it.

    Raises UnreadableError if there is none: it is no database, it is damaged, or it is written all
    the time.
    """
    why = _BUSY_REASON
    for attempt in range(MAX_TRIES):
        if attempt:
            time.sleep(0.02 * 2**attempt)
        database = _open_database(path)
        is_good = False
        try:
            with _bounded_heap():
                out = ask(database)
            is_good = database.is_same()
            if is_good:
                return out
            why = _BUSY_REASON
        except (apsw.Error, MemoryError) as error:
            if database.is_same():
                if database.has("-journal"):
                    raise UnreadableError(_JOURNAL_REASON) from error
                unreadable = _unreadable(error)
                if isinstance(error, apsw.InterruptError):
                    _last.given_up[path] = database.known_by, str(unreadable)
                raise unreadable from error
            why = _BUSY_REASON
        finally:
            if is_good:
                _last.database, _last.used = database, time.monotonic()
            else:
                database.close()
    raise UnreadableError(why)


_bounded = 0
"""Questions that are asked now, by all threads."""


@contextmanager
def _bounded_heap() -> Iterator[None]:
    """Let SQLite take only so much more memory: it knows one limit for all of the process."""
    global _bounded  # noqa: PLW0603 - as the limit is
    with _lock:
        if not _bounded:
            apsw.hard_heap_limit(apsw.memory_used() + MAX_HEAP_BYTES)
        _bounded += 1
    try:
        yield
    finally:
        with _lock:
            _bounded -= 1
            if not _bounded:
                apsw.hard_heap_limit(0)


class _Last(threading.local):
    """The database that a thread looked at last: a sweep reads its sessions one after the other."""

    database: Database | None = None
    used = 0.0

    def __init__(self) -> None:
        self.given_up: dict[str, tuple[str, str]] = {}
        """Stamp of each database of which a question took too long, and the reason, by path."""


_last = _Last()


def _open_database(path: str) -> Database:
    """Return a database to ask: the last one if it is that and nothing was written since."""
    stamp = stamp_of(path)
    given_up = _last.given_up.get(path)
    if given_up is not None and given_up[0] == stamp:
        raise UnreadableError(given_up[1])
    last, _last.database = _last.database, None
    if last is not None:
        is_young = time.monotonic() - _last.used < MAX_IDLE_S
        if is_young and (last.path, last.known_by) == (path, stamp) and last.is_same():
            return last
        last.close()
    try:
        _wait_for(path)
        database = Database(path, stamp)
    except (OSError, ValueError) as error:
        raise UnreadableError(reason_of(error)) from error
    except (apsw.Error, MemoryError) as error:
        raise _unreadable(error) from error
    return database


def _wait_for(path: str) -> None:
    """Wait until the time of a file is old enough to tell a write from now on."""
    young = os.lstat(path).st_mtime_ns + _SETTLED_NS - time.time_ns()
    if 0 < young <= _SETTLED_NS:
        time.sleep(young / 1e9)


def _unreadable(error: Exception) -> UnreadableError:
    """Return why an unchanged database cannot be read."""
    if isinstance(error, apsw.NotADBError):
        why = "not a database"
    elif isinstance(error, apsw.InterruptError):
        why = f"a question took more than {MAX_QUERY_S:.0f} s"
    elif isinstance(error, (MemoryError, apsw.NoMemError, apsw.TooBigError)):
        why = f"a question took more than {MAX_HEAP_BYTES >> 20} MiB of memory"
    elif isinstance(error, apsw.CorruptError):
        why = "a damaged database"
    elif isinstance(error, (apsw.SQLError, apsw.AuthError)):
        why = "its tables are not those of a known version"
    else:
        why = f"not read by SQLite: {type(error).__name__.removesuffix('Error')}"
    return UnreadableError(why)


def _authorize(
    _action: int, _first: str | None, _second: str | None, _schema: str | None, inside: str | None
) -> int:
    """Refuse what a view asks: what looks like a table of the client's must be one."""
    return apsw.SQLITE_OK if inside is None else apsw.SQLITE_DENY


# -- reading --------------------------------------------------------------------------------


def read(
    source: Source, cursor: Cursor | None, open_log: OpenRowLog, limits: Limits | None = None
) -> Batch:
    """Read the rows of a session that are new since the cursor; its files are one database."""
    batch = Batch([], [], Cursor(dict(cursor.marks) if cursor else {}), notices=[])
    stamp = stamp_of(source.path)
    marks = [batch.cursor.marks.get(file.key) for file in source.files]
    if stamp == "":
        _note_missing(batch, source, is_known=any(marks))
    elif not all(mark is not None and mark.head == stamp and mark.size >= 0 for mark in marks):
        reading = _RowReader(source, batch.cursor.marks, open_log, limits or Limits(), stamp)
        try:
            batch = query(source.path, reading.run)
        except UnreadableError as error:
            batch.skipped.append(Skipped(0, 0, 0, str(error), source=source.path))
    return batch


def _note_missing(batch: Batch, source: Source, *, is_known: bool) -> None:
    if is_known:
        batch.notices.append(Notice(SOURCE_GONE, source.path))
    else:
        batch.skipped.append(Skipped(0, 0, 0, "no such file", source=source.path))


def stamp_of(path: str) -> str:
    """Return what a database and its write-ahead log are known by; "" if there is none.

    It is another one each time as long as a write may have the same time as the one before.
    """
    try:
        main = _stamp(os.lstat(path))
    except (OSError, ValueError):
        # Gone, or not ours to open: there is nothing that could be known by it.
        return ""
    try:
        wal = os.lstat(f"{path}-wal")
        beside: tuple[int, ...] = (wal.st_size, wal.st_mtime_ns)
    except OSError:
        beside = ()
    if any(abs(time.time_ns() - when) < _SETTLED_NS for when in (main[3], *beside[1:])):
        return f"{_YOUNG_PREFIX}{time.time_ns()}"
    # Without its time of change: to move a file changes that, and nothing in it.
    return ".".join(map(str, (*main[:4], *beside)))


class _RowReader:
    """A session, this time; `run` may be called again for another state of its database."""

    def __init__(
        self,
        source: Source,
        marks: dict[str, Mark],
        open_log: OpenRowLog,
        limits: Limits,
        stamp: str,
    ) -> None:
        self._source, self._marks, self._open_log = source, marks, open_log
        self._limits, self._stamp = limits, stamp

    def run(self, database: Database) -> Batch:
        """Return what the rows of all files say that are new."""
        batch = Batch([], [], Cursor(dict(self._marks)), notices=[])
        until = time.monotonic() + self._limits.seconds
        for file in self._source.files:
            if batch.done:
                self._read(database, file, batch, until)
        return batch

    def _read(self, database: Database, file: File, batch: Batch, until: float) -> None:
        status = os.lstat(file.path)
        before = self._marks.get(file.key)
        mark = before or mark_of(status, file.path)
        source = self._source
        if file.rows is not None and file.rows.session:
            source = msgspec.structs.replace(source, session=file.rows.session)
        log = self._open_log(database, source, file, mark)
        if before is not None and not log.is_known():
            mark = mark_of(status, file.path, generation=before.generation + 1)
            batch.notices.append(Notice(REWRITTEN, file.path))
            batch.events.append(rewritten_fact(file, mark.generation))
            log = self._open_log(database, source, file, mark)
        line, offset, rows = mark.line, mark.offset, 0
        for entry in log.rows():
            if entry.place.length <= LINE_LIMIT:
                batch.events += log.facts(entry)
            else:
                place = (entry.place.line, 0, entry.place.length)
                batch.skipped.append(Skipped(*place, TOO_LONG, source=file.path))
            line, rows = entry.place.line + 1, rows + 1
            offset += entry.place.length
            batch.bytes += entry.place.length
            if batch.bytes >= self._limits.bytes or (not rows % 256 and time.monotonic() > until):
                batch.done = False
                break
        batch.lines += rows
        if batch.done:
            batch.events += log.final_facts()
        batch.skipped += [
            Skipped(line, 0, 0, NOT_UTF8, source=file.path)
            for _ in range(database.take_undecoded())
        ]
        made = mark_of(
            status,
            file.path,
            # A read that stopped early must look changed next time.
            size=status.st_size if batch.done else -1,
            offset=offset,
            line=line,
            generation=mark.generation,
            head=self._stamp,
            carry=log.carry(),
            version=log.version if batch.done else "",
        )
        if file.rows is not None and file.rows.modified > 0:
            made = msgspec.structs.replace(made, mtime_ns=int(file.rows.modified * 1e9))
        batch.cursor.marks[file.key] = made


def row(line: int, value: dict[str, JSON], length: int) -> RawRecord:
    """Return a row as records are given to readers."""
    return RawRecord(value, Place(line, line, length), b"")
