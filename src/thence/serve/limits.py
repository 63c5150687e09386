"""A web server that does not wait for ever: requests have a time in which they must arrive."""

from __future__ import annotations

import time
from typing import Any, Final

import uvicorn

REQUEST_TIMEOUT_S: Final = 30.0
"""How long a request may take to arrive, headers and body, in seconds."""
MAX_UNFINISHED: Final = 256
"""Connections whose request has not arrived whole, at most: then the oldest is closed."""
TICKS_PER_S: Final = 10
"""How often the server looks after itself, in a second."""


class LimitedServer(uvicorn.Server):
    """A server that closes connections whose request does not arrive in time."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._waiting: dict[Any, tuple[Any, float]] = {}
        """Connections whose request has not arrived yet: the one before it, and since when."""

    async def on_tick(self, counter: int) -> bool:
        """Look after the connections once a second, beside what every server does."""
        if counter % TICKS_PER_S == 0:
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
        oldest = sorted(waiting, key=lambda one: waiting[one][1])
        for at, connection in enumerate(oldest):
            is_late = waiting[connection][1] < now - REQUEST_TIMEOUT_S
            if is_late or at < len(oldest) - MAX_UNFINISHED:
                connection.transport.close()
        self._waiting = waiting
