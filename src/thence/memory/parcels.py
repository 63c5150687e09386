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
import itertools
import multiprocessing
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from thence import system
from thence.errors import DiskFull, ThenceError, is_disk_full

MAX_WAITING_PARCELS = 8
"""Parcels that may lie between reader and writer."""

AHEAD_BYTES = 64 << 20
"""Source bytes that are read ahead of their turn, at most: they wait on the disk."""

_LARGE_SHARE = 4  # what takes more than one part of so many of all the work is begun first
_FIRST_SHARE = 8  # the first parcel is so many times smaller: something is to be seen soon
_PARCELS_BEFORE_TRIM = 4  # what is handed back must be asked for again, so not after each
_PREFIX = "sweep-"
_PAUSE_S = 0.02  # seconds between two looks for a parcel; several may lie ready, so nobody waits
_PARENT_CHECK_S = 1.0  # seconds between two looks at whether the writer is still there

Piece = TypeVar("Piece")

Order = Literal["now", "later", "rest"]
"""When the writer takes a piece: as it comes; only when the rest of it comes; as that rest."""


class SweepBroken(ThenceError):
    """The process that reads for a sweep ended before its time."""


class _Parcel(NamedTuple):
    """A parcel that lies ready."""

    name: str
    order: Order


class ReaderFailure(msgspec.Struct, frozen=True):
    """Why a reading process cannot go on, in words for the user."""

    message: str
    hint: str | None


def may_fork() -> bool:
    """Whether this process has one thread: locks that another one holds stay locked in a child."""
    if system.IS_WINDOWS:
        return False
    try:
        return len(list(Path("/proc/self/task").iterdir())) == 1
    except OSError:  # no /proc: Python at least knows its own threads
        return threading.active_count() == 1


def _runs(number: str) -> bool:
    """Whether a process is there: sweeps into other stores may share a folder with this one."""
    return number.isdecimal() and system.is_running(int(number))


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


def find_large(sizes: Sequence[int]) -> int | None:
    """Return the place of a piece of work that is too large a part of all to be begun late."""
    at = max(range(len(sizes)), key=sizes.__getitem__, default=0)
    return at if at and sizes[at] * _LARGE_SHARE > sum(sizes) else None


def in_turns(
    turns: Turns,
    sizes: Sequence[int],
    read: Callable[[int], Iterator[Piece]],
    size_of: Callable[[Piece], int],
) -> Iterator[tuple[Piece | None, Order]]:
    """Read the sources of these sizes whose turn this process has; a large one is begun first.

    Else one process would be busy with it long after the others are done. It is written in its
    turn, which None tells of, and its end is read meanwhile: so neither waits for the other.
    """
    large = find_large(sizes)
    rest: Iterator[Piece] | None = None
    for turn in turns:
        at = turn - 1
        if at < 0 and large is not None:
            rest, left = read(large), min(sizes[large] // 2, AHEAD_BYTES)
            while left > 0 and (piece := next(rest, None)) is not None:
                left -= size_of(piece)
                yield piece, "later"
        elif at >= 0:
            if large is not None and at >= large and rest is not None:
                yield None, "rest"
                yield from ((piece, "rest") for piece in rest)
                rest = None
            if at >= len(sizes):
                return
            if at != large:
                yield from ((piece, "now") for piece in read(at))


def hand_back_memory() -> None:
    """Hand freed memory back to the system: else a process holds the most it ever used."""
    with contextlib.suppress(AttributeError, OSError):  # another C library has no such call
        ctypes.CDLL(None).malloc_trim(0)


class Parcels(Generic[Piece]):
    """Runs `made` in other processes and gives what they give, each one's pieces in their order.

    `made` is given `Turns` by which the processes share the work, and yields pieces with their
    size and when they are taken: what is read ahead of its turn waits on the disk, and is taken
    from None on. `closed` is called before each parcel leaves, and what it returns is passed to
    `arrived` on this side.
    """

    def __init__(
        self,
        folder: Path,
        kind: type[Piece],
        made: Callable[[Turns], Iterator[tuple[Piece | None, int, Order]]],
        closed: Callable[[], None],
        *,
        size: int,
        readers: int = 1,
    ) -> None:
        self._folder = folder
        self._made = made
        self._closed = closed
        self._size = size
        self._readers = readers
        self._decoder = msgspec.msgpack.Decoder(list[kind])  # type: ignore[valid-type]
        context = multiprocessing.get_context("fork")
        self._context = context
        self._room = context.Semaphore(MAX_WAITING_PARCELS)
        self._ready: Any = context.SimpleQueue()
        self._turns = Turns(context)
        self._untrimmed_bytes = 0
        """Bytes that this process sent since it last handed memory back."""

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
                for number, parcel in enumerate(self._in_order(self._parcels(processes)), start=1):
                    path = Path(place, parcel.name)
                    pieces = self._decoder.decode(path.read_bytes())
                    path.unlink()
                    if parcel.order != "later":
                        self._room.release()
                    yield from pieces
                    del pieces
                    if not number % _PARCELS_BEFORE_TRIM:
                        hand_back_memory()
            finally:
                for process in processes:
                    process.terminate()
                    process.join()

    @staticmethod
    def _in_order(parcels: Iterator[_Parcel]) -> Iterator[_Parcel]:
        """Yield parcels when they are to be taken."""
        later: list[_Parcel] = []
        for parcel in parcels:
            if parcel.order == "later":
                later.append(parcel)
                continue
            if parcel.order == "rest":
                yield from later
                later = []
            yield parcel
        yield from later

    def _parcels(self, processes: Sequence[BaseProcess]) -> Iterator[_Parcel]:
        """Yield parcels as they are ready, until every reader has said that it is done."""
        running = len(processes)
        while running:
            # Asked before the queue is: what a process sent before it ended is there then.
            ended = [process.exitcode for process in processes if process.exitcode]
            if not self._ready.empty():
                parcel: _Parcel | ReaderFailure | None = self._ready.get()
                if isinstance(parcel, ReaderFailure):
                    raise SweepBroken(parcel.message, hint=parcel.hint)
                if parcel is None:
                    running -= 1
                else:
                    yield parcel
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
        names = (f"{reader}-{number}" for number in itertools.count())
        pieces: list[Piece] = []
        size, limit = 0, self._size // _FIRST_SHARE
        last: Order = "now"
        # The writer ended; it tells why.
        with contextlib.suppress(BrokenPipeError), self._sending_failures():
            for piece, weight, order in self._made(self._turns):
                if pieces and order != last:
                    self._send(place, writer, _Parcel(next(names), last), pieces)
                    pieces, size = [], 0
                if piece is not None:
                    pieces.append(piece)
                size, last = size + weight, order
                if size >= limit or piece is None:
                    self._send(place, writer, _Parcel(next(names), last), pieces)
                    pieces, size, limit = [], 0, min(2 * limit, self._size)
            self._send(place, writer, _Parcel(next(names), last), pieces)
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

    def _send(self, place: str, writer: int, parcel: _Parcel, pieces: list[Piece]) -> None:
        self._closed()
        body = msgspec.msgpack.encode(pieces)
        # What is read ahead takes no room from what the writer waits for.
        while parcel.order != "later" and not self._room.acquire(timeout=_PARENT_CHECK_S):
            if os.getppid() != writer:
                os._exit(1)
        Path(place, parcel.name).write_bytes(body)
        self._ready.put(parcel)
        self._untrimmed_bytes += len(body)
        del body
        pieces.clear()
        if self._untrimmed_bytes > self._size:
            hand_back_memory()
            self._untrimmed_bytes = 0
