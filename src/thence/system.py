"""What systems do differently: opening files, locking them, making them durable, processes.

On Linux and macOS these are calls of `os` and `fcntl`. The branches for Windows were run under Wine
(`make windows`), never on Windows itself: untested there. They are for reading logs and for the
store. The journal needs appends and folders as only the others have them; it refuses Windows.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from thence.errors import NotSupported

IS_WINDOWS = sys.platform == "win32"


def refuse_windows(what: str) -> None:
    """Raise on Windows, for what is not made for it."""
    if IS_WINDOWS:
        raise NotSupported(
            f"{what} does not work on Windows itself",
            hint="use thence in WSL (wsl --install), beside agents that run there",
        )


if sys.platform == "win32":
    import ctypes
    import threading
    from ctypes import wintypes

    class _Place(ctypes.Structure):
        """Where in a file a lock lies: the system's OVERLAPPED."""

        _fields_ = (
            ("internal", ctypes.c_void_p * 2),
            ("low", wintypes.DWORD),
            ("high", wintypes.DWORD),
            ("event", wintypes.HANDLE),
        )

    _KERNEL = ctypes.WinDLL("kernel32", use_last_error=True)
    _KERNEL.LockFileEx.argtypes = (
        wintypes.HANDLE,
        *[wintypes.DWORD] * 4,
        ctypes.POINTER(_Place),
    )
    _KERNEL.OpenProcess.restype = wintypes.HANDLE
    _LOCK_HIGH = 1 << 30  # of an offset: a lock keeps others from reading what it covers
    _FAIL_AT_ONCE, _EXCLUSIVE = 1, 2
    _QUERY_PROCESS, _STILL_ACTIVE, _ACCESS_DENIED = 0x1000, 259, 5
    _SEEKING = threading.Lock()

    def open_file(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
        """Return a handle of a file; a link is not followed."""
        if os.path.islink(path):  # noqa: PTH114 - paths of both kinds
            raise OSError(0, "is a link", os.fspath(path))
        return os.open(path, flags | os.O_BINARY | os.O_NOINHERIT, mode)

    def open_linked(path: str | os.PathLike[str], flags: int) -> int:
        """Return a handle of a file, of one that a link leads to as well."""
        return os.open(path, flags | os.O_BINARY | os.O_NOINHERIT)

    def read_at(handle: int, length: int, offset: int) -> bytes:
        """Return up to so many bytes of an open file from an offset on."""
        with _SEEKING:
            os.lseek(handle, offset, os.SEEK_SET)
            return os.read(handle, length)

    def write_at(handle: int, body: bytes, offset: int) -> int:
        """Write bytes into an open file from an offset on; return how many."""
        with _SEEKING:
            os.lseek(handle, offset, os.SEEK_SET)
            return os.write(handle, body)

    def try_lock(handle: int, *, shared: bool = False) -> bool:
        """Whether the lock of an open file is ours now; it is released when the file is closed."""
        import msvcrt

        place = _Place(high=_LOCK_HIGH)
        how = _FAIL_AT_ONCE | (0 if shared else _EXCLUSIVE)
        file = msvcrt.get_osfhandle(handle)
        return bool(_KERNEL.LockFileEx(file, how, 0, 1, 0, ctypes.byref(place)))

    def is_running(pid: int) -> bool:
        """Whether a process runs. `os.kill` with 0 would interrupt it here."""
        process = _KERNEL.OpenProcess(_QUERY_PROCESS, False, pid)  # noqa: FBT003 - the system's
        if not process:
            return ctypes.get_last_error() == _ACCESS_DENIED
        code = wintypes.DWORD()
        is_known = _KERNEL.GetExitCodeProcess(process, ctypes.byref(code))
        _KERNEL.CloseHandle(process)
        return bool(is_known) and code.value == _STILL_ACTIVE

    def sync_file(path: Path) -> None:
        """Make what a file holds durable."""
        handle = open_file(path, os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def sync_folder(path: Path) -> None:
        """Make the entries of a folder durable: its file system does so by itself."""
        del path

    def make_private(handle: int) -> None:
        """Let nobody else read an open file: folders of a user keep others out."""
        del handle

    def owner_id() -> int:
        """Return who owns the files of this user, as `stat` says."""
        return 0

    def at_fork(child: Callable[[], None]) -> None:
        """Call a function in each forked process: there are none."""
        del child

    def start_writing(handle: int) -> None:
        """Let the system begin to write what an open file holds: it does so by itself."""
        del handle

    @contextlib.contextmanager
    def deferring_signals() -> Iterator[None]:
        """Let Ctrl-C wait: it cannot."""
        yield

    def limit_memory(size: int) -> None:
        """Let this process have no more memory than so many bytes: there is no such call."""
        del size

    sync_data = os.fsync

else:
    import fcntl

    _OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

    def open_file(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
        """Return a handle of a file; no link is followed, and a pipe keeps nobody waiting."""
        return os.open(path, flags | _OPEN, mode)

    def open_linked(path: str | os.PathLike[str], flags: int) -> int:
        """Return a handle of a file, of one that a link leads to as well; a pipe does not wait."""
        return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)

    def try_lock(handle: int, *, shared: bool = False) -> bool:
        """Whether the lock of an open file is ours now; it is released when the file is closed.

        A `shared` lock may be held by several at once, but not beside an exclusive one.
        """
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_running(pid: int) -> bool:
        """Whether a process runs, whoever started it."""
        try:
            os.kill(pid, 0)
        except PermissionError:
            return True
        except (OSError, OverflowError):
            return False
        return True

    def sync_file(path: Path) -> None:
        """Make what a file holds durable, or the entries of a folder."""
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    sync_folder = sync_file

    def make_private(handle: int) -> None:
        """Let nobody else read an open file."""
        os.fchmod(handle, 0o600)

    def owner_id() -> int:
        """Return who owns the files of this user, as `stat` says."""
        return os.getuid()

    def at_fork(child: Callable[[], None]) -> None:
        """Call a function in each process that is forked from now on."""
        os.register_at_fork(after_in_child=child)

    def start_writing(handle: int) -> None:
        """Let the system begin to write what an open file holds, without waiting for it."""
        if sys.platform == "linux":  # macOS has no such call
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)

    @contextlib.contextmanager
    def deferring_signals() -> Iterator[None]:
        """Let SIGINT and SIGTERM wait until this is done."""
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def limit_memory(size: int) -> None:
        """Let this process have no more memory than so many bytes, nor more than it may have."""
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        soft = size if hard == resource.RLIM_INFINITY else min(size, hard)
        with contextlib.suppress(OSError, ValueError):  # macOS may refuse it
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

    read_at, write_at = os.pread, os.pwrite
    sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has only the other


def lock_holders(path: Path) -> list[int]:
    """Return the processes that hold a lock of a file, as far as the system tells."""
    try:
        number, locks = str(path.stat().st_ino), Path("/proc/locks").read_text()
    except OSError:  # gone, or not Linux
        return []
    fields = [line.split() for line in locks.splitlines()]
    # Some file systems give another device here than to `stat`, so that the inode has to do.
    holders = {int(row[4]) for row in fields if len(row) > 5 and row[5].split(":")[-1] == number}
    return sorted(pid for pid in holders if pid > 0)
