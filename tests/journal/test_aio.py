"""AsyncSession: awaited verbs that keep their order and leave the loop alone."""

from __future__ import annotations

import asyncio
import errno
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from thence.errors import BadArgument, NotAppendable
from thence.journal import Journal, Session
from thence.journal.aio import AsyncSession
from thence.journal.log import Disk


class SlowDisk(Disk):
    """A disk whose syncs take as long as the test wants."""

    def __init__(self) -> None:
        self.syncing = threading.Event()
        self.finish = threading.Event()

    def datasync(self, handle: int) -> None:  # type: ignore[override]
        """Wait to be let go, then sync."""
        self.syncing.set()
        assert self.finish.wait(60)
        Disk.datasync(handle)


def opened(tmp_path: Path, disk: Disk | None = None) -> Session:
    """A session, its disk replaced once it is made."""
    session = Journal(tmp_path).create()
    if disk is not None:
        assert session._log is not None
        session._log._disk = disk
    return session


def prompt(text: str) -> dict[str, Any]:
    """A user's message."""
    return {"role": "user", "content": text}


def texts(session: Session) -> list[str]:
    """What the users' lines of the file say, in order."""
    assert session.transcript_path is not None
    lines = [json.loads(line) for line in session.transcript_path.read_text().splitlines()]
    return [line["payload"]["content"] for line in lines if line["type"] == "user"]


def test_the_loop_keeps_ticking_while_the_disk_syncs(tmp_path: Path) -> None:
    """A sync that hangs stops its own session and nothing else."""
    disk = SlowDisk()

    async def story() -> int:
        session = AsyncSession(opened(tmp_path, disk))
        await session.record("user", prompt("hello"))
        flush = asyncio.create_task(session.flush())
        behind = asyncio.create_task(session.messages())  # waits in line, off the loop
        ticks = 0
        while not disk.syncing.is_set() or ticks < 100:
            await asyncio.sleep(0)
            ticks += disk.syncing.is_set()
        waiting = not flush.done() and not behind.done()
        disk.finish.set()
        await flush
        messages = await behind
        await session.close()
        assert waiting
        assert 1 == len(messages)
        return ticks

    assert 100 == asyncio.run(story())


def test_records_stand_in_the_order_they_were_asked_for(tmp_path: Path) -> None:
    """However many are under way at once."""
    session = opened(tmp_path)
    wanted = [str(number) for number in range(200)]

    async def story() -> None:
        async with AsyncSession(session) as s:
            await asyncio.gather(*(s.record("user", prompt(text)) for text in wanted))

    asyncio.run(story())

    assert wanted == texts(session)


def test_a_cancelled_call_breaks_no_order(tmp_path: Path) -> None:
    """What had begun is done; what had not is left out; what follows keeps its place."""
    disk = SlowDisk()
    session = opened(tmp_path, disk)

    async def story() -> None:
        s = AsyncSession(session)
        await s.record("user", prompt("first"))
        flush = asyncio.create_task(s.flush())
        await asyncio.to_thread(disk.syncing.wait, 60)
        dropped = asyncio.create_task(s.record("user", prompt("dropped")))
        last = asyncio.create_task(s.record("user", prompt("last")))
        await asyncio.sleep(0)
        flush.cancel()
        dropped.cancel()
        await asyncio.sleep(0)  # the loop must have passed it on before the worker looks
        disk.finish.set()
        await last
        await s.close()
        assert flush.cancelled()
        assert dropped.cancelled()

    asyncio.run(story())

    assert ["first", "last"] == texts(session)


def test_every_verb_reaches_the_session(tmp_path: Path) -> None:
    """record, compact, flush, run and close do what the plain session does."""
    session = opened(tmp_path)

    async def story() -> str | None:
        async with AsyncSession(session) as s:
            await s.record("user", prompt("one"))
            receipt = await s.record("user", prompt("two"), uuid="mine")
            await s.compact("one was said", keep_from=receipt.uuid)
            await s.flush()
            assert "mine" == receipt.uuid
            assert session.transcript_flushed
            return await s.run(lambda: session.tip)

    tip = asyncio.run(story())

    assert tip is not None
    assert session.closed
    assert ["one was said", "two"] == [
        block["text"] for message in session.messages for block in message["content"]
    ]


def test_an_error_comes_out_where_it_was_awaited(tmp_path: Path) -> None:
    """A failure belongs to its caller; the session goes on."""

    async def story() -> None:
        async with AsyncSession(opened(tmp_path)) as s:
            with pytest.raises(BadArgument):
                await s.record("user", prompt("x"), no_such_option=True)
            await s.record("user", prompt("y"))

    asyncio.run(story())


def test_a_closed_session_says_so(tmp_path: Path) -> None:
    """Closing twice is fine, recording afterwards is an error with a hint."""

    async def story() -> None:
        s = AsyncSession(opened(tmp_path))
        await s.close()
        await s.close()
        with pytest.raises(NotAppendable, match="closed") as caught:
            await s.record("user", prompt("late"))
        assert caught.value.hint

    asyncio.run(story())


def test_closing_finishes_what_was_asked_before_even_when_cancelled(tmp_path: Path) -> None:
    """The terminator is the last line, whoever stopped waiting for it."""
    disk = SlowDisk()
    others = set(threading.enumerate())  # of servers that tests before this one share
    session = opened(tmp_path, disk)

    async def story() -> None:
        s = AsyncSession(session)
        for text in ("a", "b"):
            asyncio.ensure_future(s.record("user", prompt(text)))  # noqa: RUF006
        closing = asyncio.create_task(s.close())
        await asyncio.to_thread(disk.syncing.wait, 60)
        closing.cancel()
        await asyncio.sleep(0)
        disk.finish.set()

    asyncio.run(story())
    for thread in set(threading.enumerate()) - others:
        if thread.name.startswith("thence-"):
            thread.join(60)

    assert ["a", "b"] == texts(session)
    assert session.closed


def test_closing_that_failed_can_be_tried_again(tmp_path: Path) -> None:
    """The disk was full: the session is still open, and what is asked for next is done."""

    class FullDisk(Disk):
        """A disk that syncs nothing until there is room."""

        is_full = True

        def datasync(self, handle: int) -> None:  # type: ignore[override]
            """Sync if there is room."""
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            Disk.datasync(handle)

    disk = FullDisk()

    async def story() -> bool:
        session = AsyncSession(opened(tmp_path, disk))
        await session.user("one")
        with pytest.raises(NotAppendable, match="No space left"):
            await session.close()
        disk.is_full = False
        await session.user("two")
        await session.close()
        return session.session.closed

    is_closed = asyncio.run(story())
    with Journal(tmp_path).resume(mode="continue") as again:
        seen = [block["text"] for block in again.messages[0]["content"]]

    assert is_closed
    assert ["one", "two"] == seen
