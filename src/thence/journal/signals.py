"""Sessions brought to the disk when the process is told to end. Opt-in.

A handler interrupts the main thread wherever it is, perhaps while it holds one of the journal's
locks. So it takes none: it opens each file anew and syncs it, then lets another thread end the
turn, and waits for that no longer than `wait`. Invariants: what was recorded before the signal is
on the disk before the previous handler is called; that handler is always called, whatever fails
here; a signal during the flush goes straight to it, and so does one in a forked child; a signal
that was ignored stays ignored; `undo` puts everything back.

A descriptor of its own also keeps errors apart: one that this sync meets is still reported to the
session's own descriptor at its next sync.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Protocol

from thence.errors import BadArgument, ThenceError
from thence.journal.history import History
from thence.journal.log import DISK, Disk
from thence.journal.session import Session

SIGNALS = (signal.SIGTERM, signal.SIGINT)

WAIT_S = 1.0
"""Seconds the handler gives the other thread, which may need a lock that the main one holds."""

_MAX_ATTEMPTS = 100
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Opener(Protocol):
    """What we need of a journal, which itself offers `flush_on_signals`."""

    history: History

    @property
    def open_sessions(self) -> list[Session]:
        """Sessions that are open now."""


def flush_on_signals(
    watched: Opener | Session | Iterable[Session],
    *,
    signals: Iterable[int] = SIGNALS,
    wait: float = WAIT_S,
    disk: Disk = DISK,
) -> Callable[[], None]:
    """Flush open sessions and their sidechains on these signals, then do what was done before.

    Give a journal to watch whatever is open in it when the signal comes, or sessions. Give back
    the function that undoes it. Call both in the main thread.
    """
    _only_main_thread()
    watch = _Watch(watched, wait, disk)
    try:
        for number in signals:
            watch.install(number)
    except BaseException:  # whatever it was: let go, then pass it on
        watch.undo()
        raise
    return watch.undo


def _only_main_thread() -> None:
    if threading.current_thread() is not threading.main_thread():
        raise ThenceError(
            "signals can be handled in the main thread only",
            hint="call flush_on_signals there, before the other threads start",
        )


class _Watch:
    """What was installed for whom, and what to go back to."""

    def __init__(
        self, watched: Opener | Session | Iterable[Session], wait: float, disk: Disk
    ) -> None:
        self._journal: Opener | None = None
        self._explicit: list[Session] = []
        if isinstance(watched, Session):
            self._explicit = [watched]
        elif isinstance(watched, Iterable):
            self._explicit = list(watched)
        else:
            self._journal = watched
        is_watchable = self._journal is None or hasattr(type(watched), "open_sessions")
        if not (is_watchable and all(isinstance(each, Session) for each in self._explicit)):
            raise BadArgument(
                f"flush_on_signals: {type(watched).__name__} is no journal or session",
                hint="flush_on_signals(journal)",
            )
        self._wait = wait
        self._disk = disk
        self._process = os.getpid()
        self._busy = False
        self._undone = False
        self._before: dict[int, Callable[[int, FrameType | None], object] | int] = {}

    def install(self, number: int) -> None:
        before = signal.getsignal(number)
        if before is signal.SIG_IGN:
            return
        if before is None:
            raise ThenceError(
                f"{signal.Signals(number).name} is handled outside Python and cannot be chained",
                hint="leave it out of signals=…",
            )
        self._before[number] = before
        signal.signal(number, self._handle)

    def undo(self) -> None:
        """Put the handlers back. One that was installed over ours stays; ours then only chains."""
        _only_main_thread()
        self._undone = True
        for number, before in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        try:
            if not (self._busy or self._undone) and os.getpid() == self._process:
                self._busy = True
                try:
                    self._flush()
                finally:
                    self._busy = False
        finally:
            self._chain(number, frame)

    def _chain(self, number: int, frame: FrameType | None) -> None:
        before = self._before[number]
        if callable(before):
            before(number, frame)
        else:
            # The default action, done by the system itself: the exit status tells the signal.
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    def _flush(self) -> None:
        sessions = self._sessions()
        for path in _paths(sessions):
            # A file that is gone or a disk that fails: there is nobody to tell any more, and the
            # other files and the previous handler are still to come.
            with contextlib.suppress(OSError):
                self._sync(path)
        done = _thread.allocate_lock()
        done.acquire()
        # Not threading.Thread: the main thread may be inside its locks, too.
        with contextlib.suppress(RuntimeError):
            _thread.start_new_thread(self._end_turns, (sessions, done))
            done.acquire(timeout=self._wait)

    def _sessions(self) -> list[Session]:
        if self._journal is None:
            return [session for session in self._explicit if not session.closed]
        for _ in range(_MAX_ATTEMPTS):
            with contextlib.suppress(RuntimeError):  # another thread opened one just now
                return self._journal.open_sessions
        return []

    def _sync(self, path: Path) -> None:
        handle = self._disk.open(path, _OPEN)
        try:
            self._disk.datasync(handle)
        finally:
            self._disk.close(handle)

    def _end_turns(self, sessions: list[Session], done: _thread.LockType) -> None:
        """Write how far the turns came. By now that is a courtesy: the events are durable."""
        try:
            for session in sessions:
                # One that cannot be written must not keep the others from it.
                with contextlib.suppress(ThenceError, OSError):
                    if not session.transcript_flushed:
                        session.flush(state="interrupted")
            if self._journal is not None:
                # The process ends; transcripts come first.
                with contextlib.suppress(ThenceError, OSError):
                    self._journal.history.sync()
        finally:
            done.release()


def _paths(sessions: Iterable[Session]) -> list[Path]:
    """The files of open sessions, subagents' first: their parents' speak of them."""
    out: list[Path] = []
    for session in sessions:
        out += [child.path for child in session.open_sidechains]
        if session.transcript_path is not None:
            out.append(session.transcript_path)
    return out
