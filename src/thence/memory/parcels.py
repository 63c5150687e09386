"""Reading in processes of their own: pieces go to the writer in parcels, of bounded number.

Pipes would block both sides on large pieces, and names alone would let the reader run away from
the writer; so a parcel is a small file, and only so many may lie between the two. What an earlier
sweep left behind when it was killed is removed by the next. A reader whose writer is gone ends by
itself within a second or two, and lets go of its locks.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from thence.errors import DiskFull, ThenceError, is_disk_full

MAX_WAITING_PARCELS = 8
"""Parcels that may lie between reader and writer."""

_FIRST_SHARE = 8  # the first parcel is so many times smaller: something is to be seen soon
_PREFIX = "sweep-"
_PAUSE_S = 0.02  # seconds between two looks for a parcel; several may lie ready, so nobody waits
_PARENT_CHECK_S = 1.0  # seconds between two looks at whether the writer is still there

Piece = TypeVar("Piece")


class SweepBroken(ThenceError):
    """The process that reads for a sweep ended before its time."""


class ReaderFailure(msgspec.Struct, frozen=True):
    """Why a reading process cannot go on, in words for the user."""

    message: str
    hint: str | None


def may_fork() -> bool:
    """Whether this process has one thread: locks that another one holds stay locked in a child."""
    try:
        return len(list(Path("/proc/self/task").iterdir())) == 1
    except OSError:  # no /proc: Python at least knows its own threads
        return threading.active_count() == 1


def _runs(number: str) -> bool:
    """Whether a process is there: sweeps into other stores may share a folder with this one."""
    try:
        os.kill(int(number), 0)
    except PermissionError:  # somebody else's process: it runs
        return True
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    return True


class Turns:
    """Numbers that several processes take turns in: each is given out once."""

    def __init__(self, context: Any) -> None:
        self._next: Any = context.Value("q", 0)

    def __iter__(self) -> Iterator[int]:
        """Yield numbers for ever."""
        while True:
            with self._next.get_lock():
                number = int(self._next.value)
                self._next.value = number + 1
            yield number


def _trim() -> None:
    """Hand freed memory back to the system: else a large session is paid for to the end."""
    with contextlib.suppress(AttributeError, OSError):  # another C library has no such call
        ctypes.CDLL(None).malloc_trim(0)


class Parcels(Generic[Piece]):
    """Runs `made` in other processes and gives what they give, each one's pieces in their order.

    `made` is given `Turns` by which the processes share the work, and yields pieces with their
    size; `closed` is called before each parcel leaves, and what it returns is passed to `arrived`
    on this side.
    """

    def __init__(
        self,
        folder: Path,
        kind: type[Piece],
        made: Callable[[Turns], Iterator[tuple[Piece, int]]],
        closed: Callable[[], dict[str, int]],
        arrived: Callable[[dict[str, int]], None],
        *,
        size: int,
        readers: int = 1,
    ) -> None:
        self._folder = folder
        self._made = made
        self._closed = closed
        self._arrived = arrived
        self._size = size
        self._readers = readers
        self._decoder = msgspec.msgpack.Decoder(tuple[list[kind], dict[str, int]])  # type: ignore[valid-type]
        context = multiprocessing.get_context("fork")
        self._context = context
        self._room = context.Semaphore(MAX_WAITING_PARCELS)
        self._ready: Any = context.SimpleQueue()
        self._turns = Turns(context)

    def __iter__(self) -> Iterator[Piece]:
        """Start the other process, and give what it reads."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in self._folder.glob(f"{_PREFIX}*"):
            if not _runs(left.name.removeprefix(_PREFIX).partition("-")[0]):
                shutil.rmtree(left, ignore_errors=True)
        own = f"{_PREFIX}{os.getpid()}-"
        with tempfile.TemporaryDirectory(prefix=own, dir=self._folder) as place:
            processes = [
                self._context.Process(target=self._work, args=(place, at, os.getpid()), daemon=True)
                for at in range(self._readers)
            ]
            for process in processes:
                process.start()
            try:
                for name in self._names(processes):
                    path = Path(place, name)
                    pieces, figures = self._decoder.decode(path.read_bytes())
                    path.unlink()
                    self._room.release()
                    self._arrived(figures)
                    yield from pieces
            finally:
                for process in processes:
                    process.terminate()
                    process.join()

    def _names(self, processes: Sequence[BaseProcess]) -> Iterator[str]:
        """Yield parcels as they are ready, until every reader has said that it is done."""
        running = len(processes)
        while running:
            # Asked before the queue is: what a process sent before it ended is there then.
            ended = [process.exitcode for process in processes if process.exitcode]
            if not self._ready.empty():
                name: str | ReaderFailure | None = self._ready.get()
                if isinstance(name, ReaderFailure):
                    raise SweepBroken(name.message, hint=name.hint)
                if name is None:
                    running -= 1
                else:
                    yield name
            elif ended:
                raise SweepBroken(
                    f"the reading process ended with {ended[0]}",
                    hint="what was read before is stored; run thence sweep to continue",
                )
            else:
                time.sleep(_PAUSE_S)

    # -- in the other process -----------------------------------------------------------

    def _work(self, place: str, reader: int, writer: int) -> None:
        gc.freeze()  # what was there before is shared with the writer
        parcel: list[Piece] = []
        size = number = 0
        limit = self._size // _FIRST_SHARE
        # The writer ended; it tells why.
        with contextlib.suppress(BrokenPipeError), self._sending_failures():
            for piece, weight in self._made(self._turns):
                parcel.append(piece)
                size += weight
                if size >= limit:
                    self._send(place, writer, f"{reader}-{number}", parcel)
                    parcel, size, number = [], 0, number + 1
                    limit = min(2 * limit, self._size)
            self._send(place, writer, f"{reader}-{number}", parcel)
            self._ready.put(None)

    @contextlib.contextmanager
    def _sending_failures(self) -> Iterator[None]:
        """Send the writer what a user can mend, as a full disk: it says so in one place."""
        try:
            yield
        except ThenceError as error:
            self._ready.put(ReaderFailure(error.message, error.hint))
        except OSError as error:
            if not is_disk_full(error):
                raise
            full = DiskFull(f"{error.filename or 'what was read'} cannot be written")
            self._ready.put(ReaderFailure(full.message, full.hint))

    def _send(self, place: str, writer: int, name: str, pieces: list[Piece]) -> None:
        figures = self._closed()
        body = msgspec.msgpack.encode((pieces, figures))
        while not self._room.acquire(timeout=_PARENT_CHECK_S):
            if os.getppid() != writer:
                os._exit(1)
        Path(place, name).write_bytes(body)
        self._ready.put(name)
        is_large = len(body) > self._size
        del body
        if is_large:  # small ones take again what they gave back
            _trim()
