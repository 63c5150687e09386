"""When a session has rested long enough, and when nobody answers a question.

`Idle` is told what happens and tells what is due; it starts no thread and looks at no clock but
the one it is given. Two kinds of timers. The idle timer runs while the session rests: it starts
when a turn ends, stops when a message is queued or a turn starts, and fires once per rest. Each
call that waits for approval has a timer of its own, whatever the turn does, and is answered by
the callback when it fires: the turn then goes on, so that no session waits for ever.

Invariants: the idle timer never fires inside a turn, nor does its callback run into one (calls
are serialised by one lock, held during callbacks); what fired does not fire again; a timeout of 0
means never. A callback that raises counts as fired; the error goes to whoever polled.

`IdleThread` and `watch` poll at the next deadline, for harnesses with threads and with asyncio.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from thence.journal.arguments import Amount, check_call, checked

TIMEOUT_S = 300.0
"""Seconds of rest, and of waiting for an answer, unless another time is given."""

_MAX_WAIT_S = 3600.0  # drivers look again after that; an endless timeout overflows a wait


class IdleDeadline(msgspec.Struct, frozen=True):
    """A timer that fired, and when it was due."""

    kind: Literal["idle", "approval"]
    at: float
    call_id: str | None = None


@checked
class Idle:
    """The timers of one session. Use from any number of threads."""

    def __init__(
        self,
        timeout: Amount = TIMEOUT_S,
        approval_timeout: Amount = TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
        on_idle: Callable[[], object] | None = None,
        on_approval_timeout: Callable[[str], object] | None = None,
    ) -> None:
        self.clock = clock
        self.changed = threading.Condition(threading.RLock())
        """Held during every call, notified after each; a driver waits on it."""
        self.wakers: set[Callable[[], object]] = set()
        """Called after each change, for drivers that cannot wait on a condition."""
        self._timeout = timeout or math.inf
        self._approval_timeout = approval_timeout or math.inf
        self._on_idle = on_idle or _do_nothing
        self._on_approval_timeout = on_approval_timeout or _do_nothing
        self._rests_until = math.inf
        self._waits_until: dict[str, float] = {}
        self._closed = False

    # -- what happens -------------------------------------------------------------------

    def turn_started(self) -> None:
        """The agent works: nothing is idle until the turn ends."""
        with self.changed:
            self._rest(math.inf)

    def turn_ended(self) -> None:
        """The agent rests from now on."""
        with self.changed:
            self._rest(self.clock() + self._timeout)

    def queued(self) -> None:
        """A message waits for the agent, so the rest is over; the next one follows a turn."""
        with self.changed:
            self._rest(math.inf)

    def approval_asked(self, call_id: str) -> None:
        """A call waits for the user. Asking again does not give it more time."""
        with self.changed:
            if not self._closed and call_id not in self._waits_until:
                self._waits_until[call_id] = self.clock() + self._approval_timeout
                self._tell()

    def approval_answered(self, call_id: str) -> bool:
        """The user answered. False when it is too late: the call was answered by the timeout."""
        with self.changed:
            in_time = self._waits_until.pop(call_id, None) is not None
            self._tell()
            return in_time

    def close(self) -> None:
        """Stop all timers for good. Drivers end."""
        with self.changed:
            self._rest(math.inf)
            self._waits_until.clear()
            self._closed = True
            self._tell()

    @property
    def closed(self) -> bool:
        """Whether nothing will fire any more."""
        return self._closed

    # -- what is due --------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """When `poll` will have something to do, by this clock; None when nothing runs."""
        with self.changed:
            deadline = min(self._rests_until, *self._waits_until.values(), math.inf)
        return deadline if deadline < math.inf else None

    def poll(self) -> list[IdleDeadline]:
        """Fire what is due, oldest first, each once, and say what that was."""
        fired: list[IdleDeadline] = []
        with self.changed:
            now = self.clock()
            while (due := self._take(now)) is not None:
                fired.append(due)
                if due.call_id is None:
                    self._on_idle()
                else:
                    self._on_approval_timeout(due.call_id)
        return fired

    def _take(self, now: float) -> IdleDeadline | None:
        """Stop the timer that is due first, before its callback runs: it cannot fire twice."""
        asked = min(self._waits_until, key=self._waits_until.__getitem__, default=None)
        if asked is not None and self._waits_until[asked] <= min(now, self._rests_until):
            return IdleDeadline("approval", self._waits_until.pop(asked), asked)
        if self._rests_until <= now:
            at, self._rests_until = self._rests_until, math.inf
            return IdleDeadline("idle", at)
        return None

    def _rest(self, until: float) -> None:
        if not self._closed:
            self._rests_until = until
            self._tell()

    def _tell(self) -> None:
        self.changed.notify_all()
        for wake in tuple(self.wakers):
            wake()


def _do_nothing(*_: str) -> None:
    """What is called when nobody asked to be."""


def _wait(idle: Idle) -> float:
    """Seconds until a driver should look again."""
    deadline = idle.next_deadline()
    if deadline is None:
        return _MAX_WAIT_S
    return min(max(deadline - idle.clock(), 0.0), _MAX_WAIT_S)


class IdleThread(threading.Thread):
    """Polls at every deadline, in a daemon thread that ends when the timers are closed.

    An error of a callback ends it, by way of `threading.excepthook`.
    """

    @check_call
    def __init__(self, idle: Idle) -> None:
        super().__init__(name="thence-idle", daemon=True)
        self._idle = idle

    def run(self) -> None:
        """Wait, poll, wait."""
        with self._idle.changed:
            while not self._idle.closed:
                if not self._idle.poll():
                    self._idle.changed.wait(_wait(self._idle))


@check_call
async def watch(idle: Idle) -> None:
    """Poll at every deadline, in this event loop, until the timers are closed."""
    import asyncio

    changed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone, and with it who waits
            loop.call_soon_threadsafe(changed.set)

    idle.wakers.add(wake)
    try:
        while not idle.closed:
            changed.clear()
            if not idle.poll():
                # That is what was waited for: nothing changed.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), _wait(idle))
    finally:
        idle.wakers.discard(wake)
