"""One stream of server-sent events to one client: its frames, and what waits for it.

What is published to many clients is mostly taken by all of them at once. So it is written where
it is published, without waking a task for each client: the task takes over only when a client is
not ready for more, and waits for it.

Invariant: what waits for a client is bounded, and goes out once and in its order.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from functools import partial
from typing import Any, Final

import msgspec

MAX_PENDING_FRAMES: Final = 1024
MAX_PENDING_BYTES: Final = 4 << 20  # a browser that sleeps must not hold what others get
"""Frames and bytes that may wait for one client."""

Write = Callable[[bytes], Coroutine[Any, Any, None]]
"""Sends bytes; it is done when the client can be sent more."""

_encode = msgspec.json.Encoder().encode


def frame(kind: str, data: object, mark: object = None) -> bytes:
    """Return one server-sent event. JSON has no line break in it."""
    name = b"" if mark is None else b"id: %s\n" % str(mark).encode()
    return b"event: %s\n%sdata: %s\n\n" % (kind.encode(), name, _encode(data))


class Client:
    """One stream to one client, and what waits for it."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        self._write: Write | None = None
        """How to send to it, while its task has nothing to do."""
        self._begun: _StartedCoroutine | None = None
        self._failed: Exception | None = None
        self.lost = False
        """It was too slow: what waited for it is gone, and the stream ends."""
        self.closed = False
        self.known_changes: dict[str, int] = {}
        """Sessions that it heard of while it came in, and their changes."""
        self.sending: float | None = None
        """Since when it has not taken what is sent to it."""
        self.last_sent = time.monotonic()
        """When something was sent to it last."""
        self.task: asyncio.Task[Any] | None = None

    def push(self, frames: Iterable[bytes]) -> None:
        """Queue frames until the client is woken, in the loop; with too many it is dropped."""
        if self.lost or self.closed:
            return
        for piece in frames:
            self._waiting.append(piece)
            self._bytes += len(piece)
        if len(self._waiting) > MAX_PENDING_FRAMES or self._bytes > MAX_PENDING_BYTES:
            self.lost = True
            self._waiting.clear()
            self._bytes = 0

    def wake(self) -> None:
        """Send what waits, in the loop; what cannot be taken at once is left to its task."""
        write = self._write
        if write is None or not self._waiting:
            self._wake.set()  # its task is at it, or is to end
            return
        sending = write(self._take_pending())
        try:
            until = sending.send(None)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - its task's to hear, not the publisher's
            self._failed = error
        else:
            self._begun = _StartedCoroutine(sending, until)
        self._write = None
        self._wake.set()

    def close(self) -> None:
        """End the stream."""
        self.closed = True
        self._wake.set()

    async def send(self, write: Write) -> None:
        """Send all that comes, until the stream is to end."""
        while not self.closed and not self.lost:
            if self._waiting:
                await write(self._take_pending())
                continue
            self._wake.clear()
            self._write = write
            try:
                await self._wake.wait()
            finally:
                self._write = None
            if self._failed is not None:
                raise self._failed
            begun, self._begun = self._begun, None
            if begun is not None:
                await begun

    def _take_pending(self) -> bytes:
        taken = self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting)
        self._waiting.clear()
        self._bytes = 0
        return taken


class _StartedCoroutine:
    """A coroutine that ran until it had to wait, for a task to go on with."""

    def __init__(self, begun: Coroutine[Any, Any, None], until: Any) -> None:
        self._begun = begun
        self._until = until

    def __await__(self) -> Generator[Any, Any, None]:
        until = self._until
        while True:
            try:
                value = yield until
            except BaseException as error:  # noqa: BLE001 - it is its to hear
                go_on = partial(self._begun.throw, error)
            else:
                go_on = partial(self._begun.send, value)
            try:
                until = go_on()
            except StopIteration:
                return
