"""One append-only file of lines, and what is promised about it.

Promises, each with a test: one buffer, one write, the LF inside it; no byte that was written is
ever changed or cut off, by anybody; a line is acknowledged by its offset, and is durable when
its durability says so (`event`: when `append` returns; `turn`: when `sync` returns; `none`:
when the operating system gets to it; all three survive a killed process). A missing last LF,
left by a crash, is written first. Several processes and threads may append to one file; lines
never mix.

After a failed write or sync the handle is dead: it is closed, never synced again, and the next
append opens the file anew. What a failed sync may have lost is written again from memory, with
the same ids; readers take the double for one event. A failed write loses nothing that was written
before it, so that nothing is written twice to a disk that is full.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

from thence.errors import NotAppendable, SessionBusy, remedy

Durability = Literal["event", "turn", "none"]

UNSYNCED_LIMIT_BYTES = 16 << 20
"""Bytes kept for writing again, in `turn`; beyond them a sync comes early."""

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
_LOCK_AT = 1 << 62  # a byte no file reaches: the append lock covers it and no data
_OFD_LOCK = getattr(fcntl, "F_OFD_SETLKW", None)
_FULL_SYNC = getattr(fcntl, "F_FULLFSYNC", None)  # macOS; written for it, not tested on it


class SegmentSealed(NotAppendable):
    """The file was compressed and is never written again; its session goes on in another."""


class Disk:
    """The system calls of a log. The one seam for tests that make them fail."""

    open = staticmethod(os.open)
    write = staticmethod(os.write)
    pread = staticmethod(os.pread)
    fsync = staticmethod(os.fsync)
    close = staticmethod(os.close)

    @staticmethod
    def datasync(handle: int) -> None:
        """Bring a file's bytes to the disk itself."""
        if _FULL_SYNC is not None:
            fcntl.fcntl(handle, _FULL_SYNC)
        elif sys.platform == "linux":
            os.fdatasync(handle)
        else:
            os.fsync(handle)


DISK = Disk()


def make_folder(folder: Path, *, durable: bool = True, disk: Disk = DISK) -> None:
    """Make a folder and those above it, for the owner alone; durable before it is used, if asked.

    One that we made and could not make durable goes again, so that the next try does not take it
    for durable. One that another process made a moment ago is that one's, whatever fails here.
    """
    missing: list[Path] = []
    try:
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
    except OSError as error:  # one above it may not be looked into
        raise _refusal(folder.parent, error) from error
    for made in reversed(missing):
        ours = False
        try:
            with contextlib.suppress(FileExistsError):  # another process was as quick
                made.mkdir(mode=0o700)
                ours = True
            if durable:
                sync_folder(made.parent, disk=disk)
        except OSError as error:
            if ours:
                with contextlib.suppress(OSError):  # somebody uses it already
                    made.rmdir()
            raise _refusal(made.parent, error) from error


def _refusal(folder: Path, error: OSError) -> NotAppendable:
    return NotAppendable(
        f"cannot write to {folder}: {error.strerror or error}",
        hint=f"{remedy(error)}, then try again",
    )


def sync_folder(folder: Path, *, disk: Disk = DISK) -> None:
    """Make a folder's entries durable."""
    handle = disk.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        disk.fsync(handle)
    finally:
        disk.close(handle)


class Log:
    """An append-only file, open for writing. Use from any number of threads.

    One that was `begun` has a first line of its own and is never made here (see `beginnings`): if
    it is gone, clean-up has sealed or removed it. Any other is made empty if need be.
    """

    def __init__(
        self,
        path: Path,
        *,
        durability: Durability = "turn",
        begun: bool = False,
        disk: Disk = DISK,
    ) -> None:
        if durability not in get_args(Durability):
            raise NotAppendable(
                f"no such durability: {durability}",
                hint=f"one of {', '.join(get_args(Durability))}",
            )
        self.path = path
        self.durability = durability
        self._begun = begun
        self._disk = disk
        self._mutex = threading.Lock()
        self._queue = threading.Lock()
        self._waiting: list[tuple[int, threading.Lock]] = []  # for which line, at which lock
        self._served: list[threading.Lock] = []
        self._careful = threading.RLock()  # threads share the handle, and with it its file lock
        self._syncing = False
        self._handle = -1
        self._retired: list[int] = []
        self._end = 0  # end of the file as of our last look; bytes from there on are others'
        self._appended = self._durable = 0  # lines since the log was made, and those synced
        self._unsynced: list[bytes] = []
        self._suspect: list[bytes] = []  # of these, what a failed sync may have lost
        self._unsynced_bytes = 0
        self._lines = (0, 0)  # (offset, lines before it): where counting lines goes on
        self._closed = False
        with self._mutex:
            self._open()
        _LOGS.add(self)

    # -- writing ------------------------------------------------------------------------

    def append(self, line: bytes) -> int:
        """Append one whole line, its LF included, and give the offset it stands at."""
        with self._mutex:
            start = self._append(line)
            mine = self._appended
        if self.durability == "event":
            self._commit(mine)
        elif self._unsynced_bytes > UNSYNCED_LIMIT_BYTES:
            # Not what the caller asked for: if it fails, the line is written all the same, and
            # the `sync` that promises more says it again and fails in its turn.
            with contextlib.suppress(NotAppendable):
                self.sync()
        return start

    def _append(self, line: bytes) -> int:
        if self._handle < 0:
            self._open()
        start = self._put(line)
        self._appended += 1
        if self.durability != "none":
            self._unsynced.append(line)
            self._unsynced_bytes += len(line)
        return start

    def _put(self, line: bytes) -> int:
        """Write a line so that it stands alone, and say where."""
        try:
            start = self._write(line)
            while start > 0 and start != self._end:
                if self._disk.pread(self._handle, 1, start - 1) == b"\n":
                    break
                # Somebody died in the middle of a line and ours was glued to it. Ours ends in an
                # LF, so that a second copy stands alone; the first is salvaged or skipped.
                start = self._write(line)
        except OSError as error:
            self._kill()
            raise self._error("write to", error) from error
        self._end = start + len(line)
        return start

    def _write(self, line: bytes) -> int:
        """Write a line whole, in as many writes as it takes, and say where."""
        handle = self._handle
        written = some = self._disk.write(handle, line)
        while written < len(line):
            before = os.lseek(handle, 0, os.SEEK_CUR)
            chunk = line[written - some : written]
            if before < some or self._disk.pread(handle, some, before - some) != chunk:
                raise OSError(errno.EIO, "a short write left other bytes than it said")
            some = self._disk.write(handle, line[written:])
            if not some:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if os.lseek(handle, 0, os.SEEK_CUR) - some != before:
                # Another writer came between the two halves: say the whole line again.
                return self._write(b"\n" + line) + 1
            written += some
        return os.lseek(handle, 0, os.SEEK_CUR) - written

    def sync(self) -> None:
        """Return when every line appended so far is on the disk."""
        if self.durability == "none":
            return
        self._commit(self._appended)

    def _commit(self, wanted: int) -> None:
        """Group commit: one sync serves all lines that were written before it began.

        One thread syncs, the others wait, each at a lock of its own. Whoever is through hands on
        to one that came meanwhile; that one wakes those who were served just before it syncs, so
        that they write their next lines while it waits for the disk, and nobody is woken for
        nothing.
        """
        if not self._leads(wanted):
            return
        done = 0
        try:
            done = self._sync_now()
        finally:
            with self._queue:
                self._durable = max(self._durable, done)
                self._hand_on()

    def _leads(self, wanted: int) -> bool:
        """Wait until a line is durable, or until it is this thread's turn to sync."""
        with self._queue:
            if self._durable >= wanted:
                return False
            if not self._syncing:
                self._syncing = True
                return True
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append((wanted, mine))
        try:
            mine.acquire()
        except BaseException:  # a signal's: let go of the place in the queue, then pass it on
            with self._queue:
                if (wanted, mine) in self._waiting:
                    self._waiting.remove((wanted, mine))
                elif self._durable < wanted:
                    self._hand_on()
            raise
        if self._durable >= wanted:
            return False
        with self._queue:
            self._wake_served()
        return True

    def _hand_on(self) -> None:
        """After a sync, which served nobody if it failed: let one who still waits sync next."""
        while self._retired:
            # Of a log that failed: nothing more is lost with it.
            with contextlib.suppress(OSError):
                self._disk.close(self._retired.pop())
        self._served += [lock for wanted, lock in self._waiting if wanted <= self._durable]
        self._waiting = [pair for pair in self._waiting if pair[0] > self._durable]
        if self._waiting:
            self._waiting.pop(0)[1].release()
        else:
            self._syncing = False
            self._wake_served()

    def _wake_served(self) -> None:
        while self._served:
            self._served.pop().release()

    def _sync_now(self) -> int:
        """Sync what is written now; how many lines that were."""
        with self._mutex:
            if self._handle < 0:
                self._open()
            target, count = self._appended, len(self._unsynced)
            handle = self._handle
        try:
            self._disk.datasync(handle)
        except OSError as error:
            # The kernel may have dropped the pages and would call the next sync a success.
            with self._mutex:
                self._suspect = list(self._unsynced)
                self._kill()
            raise self._error("sync", error) from error
        with self._mutex:
            self._unsynced_bytes -= sum(map(len, self._unsynced[:count]))
            del self._unsynced[:count]
        return target

    # -- the handle ---------------------------------------------------------------------

    def _open(self) -> None:
        """Open the file, end a line that a crash left open, say again what may be lost."""
        if self._closed:
            raise NotAppendable(f"{self.path.name} is closed", hint="resume the session")
        try:
            self._handle = self._open_locked()
            self._end = os.fstat(self._handle).st_size
            if self._end and self._disk.pread(self._handle, 1, self._end - 1) != b"\n":
                self._end = self._write(b"\n") + 1
            while self._suspect:
                self._put(self._suspect[0])
                del self._suspect[0]
        except NotAppendable:
            raise
        except OSError as error:
            self._kill()
            raise self._error("open", error) from error

    def _open_locked(self) -> int:
        """Open or make the file and hold a shared lock on it for as long as it is open.

        Sealing takes the exclusive one and removes the file; who waited for it meanwhile holds
        a file that no name leads to, and looks again.
        """
        while True:
            handle, made = self._open_or_make()
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
                here = os.fstat(handle)
                if not stat.S_ISREG(here.st_mode):
                    raise NotAppendable(f"not a regular file: {self.path}")
                there = self.path.lstat()
            except BlockingIOError:
                self._disk.close(handle)
                raise SessionBusy(
                    f"{self.path.name} is being sealed", hint="try again in a moment"
                ) from None
            except FileNotFoundError:
                self._disk.close(handle)
                continue
            except BaseException:  # whatever it was: let go, then pass it on
                self._disk.close(handle)
                raise
            if (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino):
                # Of one that is empty, or has its scratch name still, the maker may not have come
                # to this.
                young = made or not here.st_size or here.st_nlink > 1
                if young and self.durability != "none":
                    self._make_durable(handle)
                return handle
            self._disk.close(handle)

    def _open_or_make(self) -> tuple[int, bool]:
        make = _FLAGS | os.O_CREAT | os.O_EXCL
        try:
            return self._disk.open(self.path, _FLAGS | os.O_NONBLOCK, 0o600), False
        except FileNotFoundError:
            if self._begun:
                raise self._gone() from None
            # Another process was first: go on in its file.
            with contextlib.suppress(FileExistsError):
                return self._disk.open(self.path, make, 0o600), True
            return self._disk.open(self.path, _FLAGS, 0o600), False

    def _gone(self) -> NotAppendable:
        if os.path.lexists(f"{self.path}.zst"):
            return SegmentSealed(
                f"{self.path.name} was sealed", hint="resume the session: it goes on"
            )
        return NotAppendable(
            f"{self.path.name} is not there any more", hint="it was removed; create another session"
        )

    def _make_durable(self, handle: int) -> None:
        try:
            self._disk.fsync(handle)
            sync_folder(self.path.parent, disk=self._disk)
        except OSError:
            self._disk.close(handle)
            raise

    def _kill(self) -> None:
        """Let go of a handle that failed. Closing may fail as well; nothing hangs on it.

        A thread may be syncing it just now. Its number must not be given to another file
        before that thread is through, or a sync of the wrong file would count.
        """
        handle, self._handle = self._handle, -1
        if handle < 0:
            return
        if self._syncing:
            self._retired.append(handle)
            return
        with contextlib.suppress(OSError):  # the disk has failed already, and that is what is told
            self._disk.close(handle)

    def _error(self, doing: str, error: OSError) -> NotAppendable:
        return NotAppendable(
            f"cannot {doing} {self.path.name}: {error.strerror or error}",
            hint=f"earlier data is safe; {remedy(error)}, then continue",
        )

    def close(self) -> None:
        """Sync and close. A closed log stays closed; one that cannot be synced is not closed."""
        if not self._closed and self._durable < self._appended:
            self.sync()
        with self._mutex:
            self._closed = True
            self._kill()

    def _reset_after_fork(self) -> None:
        """In a child process: the handle and its lock are the parent's; open our own.

        The child's copy of the handle is closed, or it would hold the lock for the child's life.
        """
        for handle in (self._handle, *self._retired):
            if handle >= 0:
                with contextlib.suppress(OSError):  # only our copy: the parent has its own
                    os.close(handle)
        self._retired = []
        self._durable = self._appended  # what is not yet synced is the parent's to sync
        self._mutex = threading.Lock()
        self._queue = threading.Lock()
        self._waiting, self._served = [], []
        self._careful = threading.RLock()
        self._syncing = False
        self._unsynced, self._unsynced_bytes = [], 0
        self._suspect = []
        self._handle = -1

    # -- looking ------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """Where the file ended when we last wrote or looked."""
        return self._end

    def size(self) -> int:
        """How many bytes the file has now, others' included."""
        return os.fstat(self._live()).st_size

    def read(self, start: int, stop: int) -> bytes:
        """Read bytes of the file, others' included."""
        out = bytearray()
        while start < stop and (some := self._disk.pread(self._live(), stop - start, start)):
            out += some
            start += len(some)
        return bytes(out)

    def _live(self) -> int:
        if self._handle < 0:
            with self._mutex:
                if self._handle < 0:
                    self._open()
        return self._handle

    def line_at(self, offset: int) -> int:
        """The 1-based number of the line at an offset. Counted when it is asked for."""
        start, before = self._lines if self._lines[0] <= offset else (0, 0)
        while start < offset:
            some = self.read(start, min(offset, start + (1 << 20)))
            if not some:
                break
            before += some.count(b"\n")
            start += len(some)
        self._lines = (start, before)
        return before + 1

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other careful writers of this file out: those that look before they append.

        The lock outlives a handle that dies meanwhile: it belongs to a duplicate of it, so that
        an append that failed and is tried again inside the block is as careful as the first.
        """
        if _OFD_LOCK is None:  # macOS: written for it, not tested on it
            guard = os.open(
                f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
            try:
                fcntl.flock(guard, fcntl.LOCK_EX)
                yield
            finally:
                os.close(guard)
            return
        with self._careful:
            guard = self._duplicate()
            try:
                fcntl.fcntl(guard, _OFD_LOCK, _lock_request(fcntl.F_WRLCK))
                try:
                    yield
                finally:
                    fcntl.fcntl(guard, _OFD_LOCK, _lock_request(fcntl.F_UNLCK))
            finally:
                os.close(guard)

    def _duplicate(self) -> int:
        """Return a second number for the open file; not while another thread lets go of it."""
        with self._mutex:
            if self._handle < 0:
                self._open()
            return fcntl.fcntl(self._handle, fcntl.F_DUPFD_CLOEXEC, 0)


def _lock_request(how: int) -> bytes:
    """Return the system's words for locking the one byte that stands for the append lock."""
    return struct.pack("hhqqi", how, 0, _LOCK_AT, 1, 0)


_LOGS: weakref.WeakSet[Log] = weakref.WeakSet()


def _after_fork() -> None:
    for log in list(_LOGS):
        log._reset_after_fork()  # noqa: SLF001 - the same module


os.register_at_fork(after_in_child=_after_fork)
