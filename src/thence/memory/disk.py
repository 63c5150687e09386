"""What a store asks of a disk beside reading and writing: that it holds, and that we are alone."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import apsw

from thence import system

_DATABASE = b"SQLite format 3\0"  # what every SQLite file begins with
_BESIDE_DATABASE = ("-wal", "-shm", "-journal")  # how SQLite names what lies beside a file
_PAUSE_S = 0.05
_SYNC_THREADS, _SYNCS_PER_THREAD = 8, 4
_LOCKS: set[int] = set()


def _close_locks() -> None:
    """Close the locks in a forked process: it must not hold them when its parent has ended."""
    while _LOCKS:
        os.close(_LOCKS.pop())


system.at_fork(_close_locks)


def sync_data(handles: Sequence[int]) -> None:
    """Make the contents of open files durable; if it raises, those of none are.

    Side by side: a file system with a journal then writes it once for several of them, and we wait
    for that and not for one after another (50 files: 10 ms instead of 90).
    """
    failed: list[OSError] = []

    def sync_some(some: Sequence[int]) -> None:
        try:
            for handle in some:
                system.sync_data(handle)
        except OSError as error:
            failed.append(error)

    count = min(1 + len(handles) // _SYNCS_PER_THREAD, _SYNC_THREADS)
    threads: list[threading.Thread] = []
    try:
        for at in range(1, count):
            thread = threading.Thread(target=sync_some, args=(handles[at::count],))
            thread.start()
            threads.append(thread)
        sync_some(handles[::count])
    finally:  # nobody syncs a file any more that is closed after this
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]


@contextlib.contextmanager
def lock(path: Path, until: float, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock of a file, made when it is not there; TimeoutError when it is not ours by then.

    `until` is a moment of the monotonic clock.
    """
    handle = system.open_file(path, os.O_RDWR | os.O_CREAT)
    _LOCKS.add(handle)
    try:
        while not system.try_lock(handle, shared=shared):
            if time.monotonic() >= until:
                raise TimeoutError(path)
            time.sleep(_PAUSE_S)
        yield
    finally:
        _LOCKS.discard(handle)
        os.close(handle)


def databases_beside(path: Path) -> bool:
    """Return whether the folder of a database holds another SQLite file."""
    own = {path.name, *(path.name + end for end in _BESIDE_DATABASE)}
    try:
        return any(_is_database(entry) for entry in path.parent.iterdir() if entry.name not in own)
    except OSError:
        return False


def _is_database(path: Path) -> bool:
    """Return whether a path leads to an SQLite file.

    SQLite itself opens it: a process that opens and closes a database in any other way lets go of
    the locks that all its connections hold on it, and other processes then cut files in use.
    """
    flags = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY
    if path.name.endswith(_BESIDE_DATABASE) or not path.is_file():
        return False
    try:
        file = apsw.VFSFile("", str(path), [flags, 0])
    except apsw.Error:
        return False
    try:
        return file.xRead(len(_DATABASE), 0) == _DATABASE
    except apsw.Error:
        return False
    finally:
        file.xClose()


def paths_below(folder: Path) -> Iterator[Path]:
    """Yield all that lies below a folder, in order; links are not followed.

    What is removed meanwhile is left out, as a sweep removes its passing files: `Path.rglob` raises
    there. A folder that cannot be listed raises.
    """

    def check(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    for place, folders, files in os.walk(folder, onerror=check):
        folders.sort()
        yield from (Path(place, name) for name in sorted((*folders, *files)))
