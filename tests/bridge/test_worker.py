"""Worker: in order, off the loop, and settled when a cancellation goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import pytest

from thence.bridge.worker import IN_A_ROW, Worker


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


def test_patience_finds_a_short_call_done_before_the_loop_goes_round() -> None:
    """Nothing else has run when it returns."""
    ran: list[str] = []

    async def main() -> list[str]:
        asyncio.get_running_loop().call_soon(ran.append, "the loop")
        assert 2 == await Worker(patience=60).run(len, [1, 2])
        return list(ran)

    assert [] == asyncio.run(main())


def test_patience_ends_and_the_loop_goes_on() -> None:
    """The call ends only because the loop lets it."""
    let_go = threading.Event()

    async def main() -> bool:
        waiting = asyncio.ensure_future(Worker(patience=0.01).run(let_go.wait, 60))
        await asyncio.sleep(0)
        let_go.set()
        return await waiting

    assert asyncio.run(main())


def test_nobody_waits_patiently_for_a_busy_worker() -> None:
    """Calls behind a slow one do not hold the loop: the slow one ends only because it goes on."""
    begun, let_go = threading.Event(), threading.Event()
    worker = Worker(patience=60)

    def slow() -> bool:
        begun.set()
        return let_go.wait(60)

    async def others() -> list[int]:
        waiting = [asyncio.ensure_future(worker.run(len, "a")) for _ in range(5)]
        await asyncio.sleep(0)
        let_go.set()
        return await asyncio.gather(*waiting)

    with ThreadPoolExecutor(1) as elsewhere:
        first = elsewhere.submit(lambda: asyncio.run(worker.run(slow)))
        assert begun.wait(60)

        assert [1] * 5 == asyncio.run(others())
        assert first.result()


def test_short_calls_in_a_row_let_others_have_a_turn() -> None:
    """However short each is."""

    async def main() -> bool:
        worker, turn = Worker(patience=60), asyncio.Event()
        asyncio.get_running_loop().call_soon(turn.set)
        for _ in range(IN_A_ROW):
            await worker.run(len, "a")
        before = turn.is_set()
        await worker.run(len, "a")
        return not before and turn.is_set()

    assert asyncio.run(main())


def test_what_a_patient_call_raises_is_raised_where_it_is_awaited() -> None:
    """And the next one is done."""

    async def main() -> int:
        worker = Worker(patience=60)
        with pytest.raises(ZeroDivisionError):
            await worker.run(lambda: 1 // 0)
        return await worker.run(len, [1, 2])

    assert 2 == asyncio.run(main())


def test_trio_is_served_as_well(sdk: Callable[[str], ModuleType]) -> None:
    """The Claude Agent SDK runs on either."""
    trio = sdk("trio")

    async def main() -> int:
        return await Worker().run(len, [1, 2, 3]) + await Worker(patience=60).run(len, [1])

    assert 4 == trio.run(main)
