"""A session for harnesses with an event loop: the same verbs, awaited, never blocking the loop.

Each `AsyncSession` has one thread of its own that does one thing after the other. Invariants:
what one session is asked for happens in the order it was asked for; nothing here waits for a disk
or a lock on the loop's thread; an awaited call that is cancelled either never began or runs to its
end, and what comes after it keeps its place. Reading counts as well: `messages` waits for the same
lock as a record that is being synced, so ask for it here and not of the session itself.

The only module of the journal that imports asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Self, TypeVar

from thence.errors import NotAppendable, ThenceError
from thence.format.records import JSON
from thence.format.repair import ApiMessage
from thence.journal.arguments import Content, checked
from thence.journal.session import Receipt, Session, TurnText

T = TypeVar("T")


@checked
class AsyncSession:
    """A session whose verbs are awaited. Use from one event loop."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._worker: ThreadPoolExecutor | None = ThreadPoolExecutor(
            1, thread_name_prefix=f"thence-{session.id[:8]}"
        )

    async def run(self, call: Callable[..., T], *args: Any, **options: Any) -> T:
        """Do anything in this session's turn: `await s.run(s.session.checkpoint, [path])`."""
        if self._worker is None:
            raise NotAppendable("the session is closed", hint="resume it")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, partial(call, *args, **options))

    async def record(self, kind: str, payload: JSON, **options: Any) -> Receipt:
        """Append one event; `options` are those of `Session.record`."""
        return await self.run(self.session.record, kind, payload, **options)

    async def user(self, content: Content) -> Receipt:
        """Record what the user said."""
        return await self.run(self.session.user, content)

    async def assistant(self, content: Content, **about: Any) -> Receipt:
        """Record what the model said; `about` is that of `Session.assistant`."""
        return await self.run(self.session.assistant, content, **about)

    async def tool_result(self, call_id: str, content: Content, *, failed: bool = False) -> Receipt:
        """Record what a tool returned for a call."""
        return await self.run(self.session.tool_result, call_id, content, failed=failed)

    async def refresh(self) -> bool:
        """Read what other writers appended; whether the tip is another one now."""
        return await self.run(self.session.refresh)

    async def flush(self, *, state: TurnText = "done") -> None:
        """End a turn: everything is on the disk when this returns."""
        await self.run(self.session.flush, state=state)

    async def compact(self, summary: JSON, *, keep_from: str | None = None) -> Receipt:
        """Put a summary in place of what was said, but for what is kept from an event on."""
        return await self.run(self.session.compact, summary, keep_from=keep_from)

    async def messages(self) -> list[ApiMessage]:
        """Return what goes to the model, everything that was asked for before this included."""
        return await self.run(lambda: self.session.messages)

    async def close(self, reason: str = "closed") -> None:
        """End cleanly, after everything that was asked for before."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        closing = asyncio.get_running_loop().run_in_executor(worker, self.session.close, reason)
        try:
            await asyncio.shield(closing)
        except ThenceError:  # closing that failed can be tried again
            self._worker = worker
            raise
        finally:
            if self._worker is None:
                worker.shutdown(wait=False)  # what was asked for is still done

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close("closed" if kind is None else "error")
