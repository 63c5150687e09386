"""What a store asks of a disk beside reading and writing: that it holds, and that we are alone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

_DATABASE = b"SQLite format 3\0"  # what every SQLite file begins with
_PAUSE_S = 0.05
_LOCKS: set[int] = set()


def _close_locks() -> None:
    """Close the locks in a forked process: it must not hold them when its parent has ended."""
    while _LOCKS:
        os.close(_LOCKS.pop())


os.register_at_fork(after_in_child=_close_locks)


def sync(path: Path) -> None:
    """Make a file, or the entries of a folder, durable."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def locked(handle: int, *, shared: bool = False) -> bool:
    """Whether the lock of an open file is ours now; it is let go when the file is closed.

    A `shared` lock may be held by several at once, but not beside an exclusive one.
    """
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def lock(path: Path, until: float, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock of a file, made when it is not there; TimeoutError when it is not ours by then.

    `until` is a moment of the monotonic clock.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    _LOCKS.add(handle)
    try:
        while not locked(handle, shared=shared):
            if time.monotonic() >= until:
                raise TimeoutError(path)
            time.sleep(_PAUSE_S)
        yield
    finally:
        _LOCKS.discard(handle)
        os.close(handle)


def databases_beside(path: Path) -> bool:
    """Whether the folder of a file holds another SQLite file."""
    try:
        return any(_is_database(other) for other in path.parent.iterdir() if other != path)
    except OSError:
        return False


def _is_database(path: Path) -> bool:
    """Whether a path leads to an SQLite file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(handle, len(_DATABASE)) == _DATABASE
    except OSError:  # a folder
        return False
    finally:
        os.close(handle)
