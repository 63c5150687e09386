"""One thread that does one thing after the other, for whoever awaits it.

Invariants: what is asked for happens in the order it was asked for; the event loop never waits
for a disk or a lock; an awaited call that is cancelled has ended, one way or the other, when the
cancellation goes on, so that nobody is left to guess whether it took effect. asyncio and trio
are both served. The thread begins with the first call and ends with its owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """A thread of a store's own."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="thence-bridge")

    async def run(self, call: Callable[..., T], *args: Any, **options: Any) -> T:
        """Do a thing in its turn and give what came of it."""
        asked: Future[T] = self._pool.submit(partial(call, *args, **options))
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # no asyncio here, so it is trio
            from anyio import to_thread

            return await to_thread.run_sync(asked.result)
        return await _settled(asyncio.wrap_future(asked))


async def _settled(doing: asyncio.Future[T]) -> T:
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
