"""One thread that does one thing after the other, for whoever awaits it.

Invariants: what is asked for happens in the order it was asked for; the event loop waits for a
disk or a lock no longer than the worker's patience, and not at all for a worker that is busy; an
awaited call that is cancelled has ended, one way or the other, when the cancellation goes on, so
that nobody is left to guess whether it took effect. asyncio and trio are both served. The thread
begins with the first call and ends with its owner.

Patience is for calls that are over sooner than a loop goes round: a few lines appended, a page of
the cache read. Whoever awaits those finds them done, and the loop is not woken for each.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

IN_A_ROW = 64  # a loop that only ever runs our calls would starve its other tasks
"""Calls that were done at once before everybody else on the loop gets a turn."""


class Worker:
    """A thread of a store's own."""

    def __init__(self, patience: float = 0.0) -> None:
        """`patience` is how many seconds the loop may wait for a call of an idle worker."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="thence-bridge")
        self._patience = patience
        self._asking = threading.Lock()
        self._last: Future[Any] | None = None
        self._in_a_row = 0

    async def run(self, call: Callable[..., T], *args: Any, **options: Any) -> T:
        """Do a thing in its turn and give what came of it."""
        with self._asking:  # loops of several threads may share a worker
            idle = self._last is None or self._last.done()
            asked: Future[T] = self._pool.submit(partial(call, *args, **options))
            self._last = asked
        if idle and self._is_done(asked):
            return asked.result()
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # no asyncio here, so it is trio
            from anyio import to_thread

            return await to_thread.run_sync(asked.result)
        return await _wait_for(asyncio.wrap_future(asked))

    def _is_done(self, asked: Future[Any]) -> bool:
        """Wait as long as patience lasts, unless it is the others' turn."""
        if not self._patience or self._in_a_row >= IN_A_ROW:
            self._in_a_row = 0
            return False
        self._in_a_row += 1
        try:
            asked.exception(self._patience)
        except TimeoutError:
            self._in_a_row = 0
        return asked.done()


async def _wait_for(doing: asyncio.Future[T]) -> T:
    """Wait for an outcome, through any number of cancellations; then pass the first one on."""
    cancelled: asyncio.CancelledError | None = None
    while not doing.done():
        try:
            await asyncio.wait({doing})
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    if cancelled is not None:
        doing.exception()  # looked at, so that nobody warns of it
        raise cancelled
    return doing.result()
