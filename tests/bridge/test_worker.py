"""Worker: in order, off the loop, and settled when a cancellation goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import ModuleType

import pytest

from thence.bridge.worker import Worker


def test_calls_happen_in_the_order_they_were_asked_for() -> None:
    """Without anybody waiting for the first before asking for the second."""
    done: list[int] = []

    async def main() -> None:
        worker = Worker()
        await asyncio.gather(*(worker.run(done.append, number) for number in range(50)))

    asyncio.run(main())

    assert list(range(50)) == done


def test_the_loop_goes_on_while_a_call_waits() -> None:
    """The call ends only because the loop lets it."""
    let_go = threading.Event()

    async def main() -> bool:
        waiting = asyncio.ensure_future(Worker().run(let_go.wait, 60))
        await asyncio.sleep(0)
        let_go.set()
        return await waiting

    assert asyncio.run(main())


def test_a_cancelled_call_has_ended_when_the_cancellation_goes_on() -> None:
    """Cancelled twice; what it did is done, and the caller is told of the cancellation."""
    let_go, begun, done = threading.Event(), threading.Event(), []

    def slow() -> None:
        begun.set()
        assert let_go.wait(60)
        done.append("it")

    async def main() -> list[str]:
        asked = asyncio.ensure_future(Worker().run(slow))
        await asyncio.to_thread(begun.wait, 60)
        for _ in range(2):
            asked.cancel()
            await asyncio.sleep(0.01)
        before = list(done)
        assert not asked.done()
        let_go.set()
        with pytest.raises(asyncio.CancelledError):
            await asked
        return before

    assert [] == asyncio.run(main())
    assert ["it"] == done


def test_what_a_call_raises_is_raised_where_it_is_awaited() -> None:
    """And the worker goes on."""

    async def main() -> int:
        worker = Worker()
        with pytest.raises(ZeroDivisionError):
            await worker.run(lambda: 1 // 0)
        return await worker.run(len, [1, 2])

    assert 2 == asyncio.run(main())


def test_trio_is_served_as_well(sdk: Callable[[str], ModuleType]) -> None:
    """The Claude Agent SDK runs on either."""
    trio = sdk("trio")

    async def main() -> int:
        return await Worker().run(len, [1, 2, 3])

    assert 3 == trio.run(main)
