"""One stream: frames that nothing can break, and what waits for a client."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.serve import clients
from thence.serve.clients import Client, frame


class Socket:
    """What a client is sent, over a socket that is full at times."""

    def __init__(self) -> None:
        self.taken = b""
        self.begun = 0
        self.room = asyncio.Event()
        self.room.set()
        self.broken: Exception | None = None

    async def write(self, data: bytes) -> None:
        """Take bytes as soon as there is room."""
        self.begun += 1
        if self.broken is not None:
            raise self.broken
        await _waits_twice(self.room)
        self.taken += data


async def _waits_twice(room: asyncio.Event) -> None:
    """Wait, and look again, as a server does that several write to."""
    while not room.is_set():
        await room.wait()
        await asyncio.sleep(0)


async def _rest() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_what_a_client_can_take_is_sent_where_it_is_published() -> None:
    """No task is woken for it, and it has gone out when `wake` returns."""

    async def story() -> tuple[bytes, bytes, bool]:
        client, socket = Client(), Socket()
        task = asyncio.create_task(client.send(socket.write))
        await _rest()
        client.push([b"one ", b"two "])
        client.wake()
        first = socket.taken
        client.push([b"three"])
        client.wake()
        second = socket.taken
        still = not task.done()
        client.close()
        await task
        return first, second, still

    assert (b"one two ", b"one two three", True) == asyncio.run(story())


def test_a_client_that_is_full_is_waited_for_by_its_task() -> None:
    """Once begun, a write is gone on with, not begun again; what comes meanwhile follows it."""

    async def story() -> tuple[bytes, int, bytes, int]:
        client, socket = Client(), Socket()
        task = asyncio.create_task(client.send(socket.write))
        await _rest()
        socket.room.clear()
        for piece in (b"one ", b"two ", b"three "):
            client.push([piece])
            client.wake()
            await _rest()
        blocked, begun = socket.taken, socket.begun
        socket.room.set()
        await _rest()
        client.push([b"four"])
        client.wake()
        client.close()
        await task
        return blocked, begun, socket.taken, socket.begun

    assert (b"", 1, b"one two three four", 3) == asyncio.run(story())


def test_a_write_that_fails_is_heard_of_by_its_task() -> None:
    """Who publishes goes on with the other clients."""

    async def story() -> str:
        client, socket = Client(), Socket()
        task = asyncio.create_task(client.send(socket.write))
        await _rest()
        socket.broken = RuntimeError("gone")
        client.push([b"x"])
        client.wake()
        with pytest.raises(RuntimeError, match="gone") as caught:
            await task
        return str(caught.value)

    assert "gone" == asyncio.run(story())


def test_a_client_that_takes_nothing_can_be_cut_off() -> None:
    """The write that was begun is told, and the task ends."""

    async def story() -> tuple[bool, bytes]:
        client, socket = Client(), Socket()
        task = asyncio.create_task(client.send(socket.write))
        await _rest()
        socket.room.clear()
        client.push([b"x"])
        client.wake()
        await _rest()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return task.cancelled(), socket.taken

    assert (True, b"") == asyncio.run(story())


@given(st.lists(st.sampled_from(["push", "wake", "full", "room", "rest"]), max_size=40))
def test_all_that_was_pushed_goes_out_once_and_in_its_order(steps: list[str]) -> None:
    """Whatever the socket does meanwhile."""

    async def story() -> tuple[bytes, bytes]:
        client, socket = Client(), Socket()
        task = asyncio.create_task(client.send(socket.write))
        pushed = b""
        for number, step in enumerate(steps):
            if step == "push":
                pushed += b"%d " % number
                client.push([b"%d " % number])
            elif step == "wake":
                client.wake()
            elif step == "rest":
                await _rest()
            else:
                (socket.room.set if step == "room" else socket.room.clear)()
        socket.room.set()
        await _rest()
        client.wake()
        await _rest()
        client.close()
        await task
        return pushed, socket.taken

    pushed, taken = asyncio.run(story())
    assert pushed == taken


def test_what_waits_for_a_client_is_bounded() -> None:
    """By frames and by bytes; too much, and nothing is kept for it."""

    async def pushed(frames: list[bytes], times: int) -> tuple[bool, bytes]:
        client, socket = Client(), Socket()
        for _ in range(times):
            client.push(frames)
        task = asyncio.create_task(client.send(socket.write))
        await _rest()
        client.close()
        await task
        return client.lost, socket.taken

    full = asyncio.run(pushed([b"x"], clients.MAX_PENDING_FRAMES))
    many = asyncio.run(pushed([b"x"], clients.MAX_PENDING_FRAMES + 1))
    large = asyncio.run(pushed([b"x" * (clients.MAX_PENDING_BYTES + 1)], 1))

    assert ((False, b"x" * clients.MAX_PENDING_FRAMES), (True, b""), (True, b"")) == (
        full,
        many,
        large,
    )


def test_a_frame_is_one_event_whatever_it_holds() -> None:
    """No text of a session can end it, or begin another one."""
    made = frame("event", {"text": "a\n\nevent: forged\r\ndata: {}"}, "m")

    assert made.startswith(b"event: event\nid: m\ndata: {")
    assert (3, True) == (len(made.strip().split(b"\n")), made.endswith(b"\n\n"))
    assert b"\r" not in made
