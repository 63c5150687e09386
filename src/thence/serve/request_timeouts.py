"""A web server that does not wait for ever: requests have a time in which they must arrive."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, Final

import uvicorn

# A client that sends a byte a minute would hold a connection for ever.
REQUEST_TIMEOUT_S: Final = 30.0
"""How long a request may take to arrive, headers and body, in seconds."""
MAX_UNFINISHED: Final = 256
"""Connections whose request has not arrived whole, at most: then the oldest is closed."""
TICK_S: Final = 1.0  # uvicorn's tenth of a second keeps a processor from sleeping
UNUSED_TICK_S: Final = 5.0
"""How often the server looks after itself, in seconds; and while nobody is connected."""


class LimitedServer(uvicorn.Server):
    """A server that closes connections whose request does not arrive in time."""

    def __init__(self, config: uvicorn.Config) -> None:
        self._ending = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        super().__init__(config)
        self._waiting: dict[Any, tuple[Any, float]] = {}
        """Connections whose request has not arrived yet: the one before it, and since when."""

    @property
    def should_exit(self) -> bool:
        """Whether the server is to end; any thread and any signal handler may set it."""
        return self._ending.is_set()

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        if not value:
            self._ending.clear()
        elif self._loop is None:
            self._ending.set()
        else:
            self._loop.call_soon_threadsafe(self._ending.set)

    async def main_loop(self) -> None:
        """Look after the server once in a while, and end at once when it is to end.

        Uvicorn looks ten times a second; a server that nobody asks is to use no processor time.
        """
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            tick_s = TICK_S if self.server_state.connections else UNUSED_TICK_S
            with contextlib.suppress(TimeoutError):  # the usual case: it is not ending
                await asyncio.wait_for(self._ending.wait(), tick_s)

    async def on_tick(self, counter: int) -> bool:
        """Look after the connections, beside what every server does."""
        self._close_unfinished(time.monotonic())
        return await super().on_tick(counter)

    def _close_unfinished(self, now: float) -> None:
        """Close connections whose request takes too long to arrive, and the oldest of too many."""
        waiting: dict[Any, tuple[Any, float]] = {}
        for connection in self.server_state.connections:
            request: Any = getattr(connection, "cycle", None)
            if request is None or request.response_complete or request.more_body:
                last, since = self._waiting.get(connection, (request, now))
                waiting[connection] = (request, since if last is request else now)
        oldest = sorted(waiting, key=lambda candidate: waiting[candidate][1])
        for at, connection in enumerate(oldest):
            is_late = waiting[connection][1] < now - REQUEST_TIMEOUT_S
            if is_late or at < len(oldest) - MAX_UNFINISHED:
                connection.transport.close()
        self._waiting = waiting
