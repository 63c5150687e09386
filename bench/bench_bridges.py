"""Our stores for other SDKs beside the SDKs' own, in one run: append, load, a list that grows.

Each of the SDKs' stores has its own idea of what an acknowledgement is worth, so that ours is
measured twice: as it comes (a batch survives a killed process), and with `durability="event"`
(every batch survives a power cut, as with the SQLite ones). Needs what `make conformance`
installs; what is missing is named and left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.measure import verdict
from thence.journal import Journal

SDKS = Path(__file__).resolve().parent.parent / ".venv" / "conformance"

APPENDS, LOADS, STEPS = 1000, 10_000, 500
ROUNDS = 3
"""How often each is measured, in turns with the others; the best counts."""
TEXT = "The build is red because a test fails; I look at it now. " * 17  # about 1 KB
KEY = {"project_key": "p", "session_id": "7f3a91c2-55d0-4c1e-9a53-0d6c1f2b7e10"}

Add = Callable[[int, int], Awaitable[object]]
Load = Callable[[], Awaitable[int]]


def main() -> int:
    """Measure what is installed."""
    if SDKS.is_dir():
        sys.path.append(str(SDKS))
    missed = 0
    for needed, measure in (("agents", openai), ("claude_agent_sdk", claude), ("langgraph", graph)):
        if needed != "langgraph" and find_spec(needed) is None:
            print(f"     bridges: no {needed} here (make conformance installs it)")
            continue
        try:
            missed += measure()
        except ModuleNotFoundError as error:
            print(f"     bridges: {error} (make conformance installs it)")
    return missed


def timed(made: Callable[[], tuple[Add, Load]]) -> tuple[float, float]:
    """Seconds for a thousand appends, and for loading ten thousand."""

    async def run() -> tuple[float, float]:
        add, load = made()
        start = time.perf_counter()
        for number in range(APPENDS):
            await add(number, 1)
        appended = time.perf_counter() - start
        await add(APPENDS, LOADS - APPENDS)
        start = time.perf_counter()
        loaded = await load()
        took = time.perf_counter() - start
        assert loaded == LOADS
        return appended, took

    return asyncio.run(run())


def in_turns(home: str, **stores: Callable[[Path], tuple[Add, Load]]) -> list[tuple[float, float]]:
    """Measure several stores, each in a new folder every time, and give the best of each."""
    rounds = [
        [timed(partial(made, _folder(home, f"{name}-{turn}"))) for name, made in stores.items()]
        for turn in range(ROUNDS)
    ]
    return [
        (min(t[0] for t in some), min(t[1] for t in some)) for some in zip(*rounds, strict=True)
    ]


def _folder(home: str, name: str) -> Path:
    folder = Path(home, name)
    folder.mkdir()
    return folder


def told(name: str, took: tuple[float, float]) -> None:
    """Show the figures of one store."""
    each, loaded = took[0] / APPENDS * 1e6, took[1] * 1e3
    print(f"     {name:<44} {each:7.0f} µs an append  {loaded:6.0f} ms to load {LOADS:,}")


def openai() -> int:
    """`JournalSession` beside `SQLiteSession`."""
    from agents import SQLiteSession

    from thence.bridge.openai_agents import JournalSession

    def session(made: Any) -> tuple[Add, Load]:
        async def add(first: int, count: int) -> None:
            numbers = range(first, first + count)
            await made.add_items([{"role": "user", "content": f"{n} {TEXT}"} for n in numbers])

        async def load() -> int:
            return len(await made.get_items())

        return add, load

    with tempfile.TemporaryDirectory() as home:
        theirs, ours, synced = in_turns(
            home,
            own=lambda folder: session(SQLiteSession("s", folder / "own.db")),
            turn=lambda folder: session(JournalSession("s", Journal(folder))),
            event=lambda folder: session(JournalSession("s", Journal(folder, durability="event"))),
        )
    told("openai-agents SQLiteSession", theirs)
    told("openai-agents JournalSession", ours)
    told("openai-agents JournalSession, event", synced)
    missed = verdict("openai-agents: append / SQLiteSession's", ours[0] / theirs[0], 1)
    # Both wait for the disk once an append, which is all there is to it: disks differ.
    missed += verdict("openai-agents: append, event / SQLiteSession's", synced[0] / theirs[0], 3)
    return missed + verdict("openai-agents: load / SQLiteSession's", ours[1] / theirs[1], 3)


def claude() -> int:
    """`JournalSessionStore` beside `InMemorySessionStore`, which keeps nothing."""
    from claude_agent_sdk import InMemorySessionStore

    from thence.bridge.claude_agent_sdk import JournalSessionStore

    def store(made: Any) -> tuple[Add, Load]:
        async def add(first: int, count: int) -> None:
            await made.append(KEY, [_entry(number) for number in range(first, first + count)])

        async def load() -> int:
            return len(await made.load(KEY))

        return add, load

    with tempfile.TemporaryDirectory() as home:
        theirs, ours, synced = in_turns(
            home,
            own=lambda _: store(InMemorySessionStore()),
            turn=lambda folder: store(JournalSessionStore(Journal(folder))),
            event=lambda folder: store(JournalSessionStore(Journal(folder, durability="event"))),
        )
    told("claude-agent-sdk InMemorySessionStore", theirs)
    told("claude-agent-sdk JournalSessionStore", ours)
    told("claude-agent-sdk JournalSessionStore, event", synced)
    return 0


def _entry(number: int) -> dict[str, Any]:
    message = {"role": "user", "content": f"{number} {TEXT}"}
    named = {"uuid": f"u-{number}", "parentUuid": f"u-{number - 1}" if number else None}
    return {"type": "user", **named, "isSidechain": False, "message": message}


def graph() -> int:
    """A list that grows by two messages a step: `JournalSaver` beside `SqliteSaver`."""
    import sqlite3

    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.sqlite import SqliteSaver

    from thence.bridge.langgraph import JournalSaver

    def grow(saver: Any) -> float:
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        messages: list[Any] = []
        version = None
        start = time.perf_counter()
        for step in range(STEPS):
            messages.append(HumanMessage(f"{step} {TEXT}", id=f"h{step}"))
            messages.append(AIMessage(f"{step} {TEXT}", id=f"a{step}"))
            version = saver.get_next_version(version, None)
            made = empty_checkpoint()
            made["channel_values"] = {"messages": list(messages)}
            made["channel_versions"] = {"messages": version}
            config = saver.put(config, made, {"step": step}, {"messages": version})
        took = time.perf_counter() - start
        found = saver.get_tuple(config).checkpoint["channel_values"]["messages"]
        assert found == messages
        return took

    with tempfile.TemporaryDirectory() as home:
        theirs = ours = float("inf")
        for _ in range(ROUNDS):
            shutil.rmtree(Path(home, "own"), ignore_errors=True)
            own = _folder(home, "own") / "own.db"
            with contextlib.closing(sqlite3.connect(own, check_same_thread=False)) as database:
                theirs = min(theirs, grow(SqliteSaver(database)))
            shutil.rmtree(Path(home, "ours"), ignore_errors=True)
            ours = min(ours, grow(JournalSaver(Journal(Path(home, "ours")))))
        start = time.perf_counter()
        again = JournalSaver(Journal(Path(home, "ours")))
        again.get_tuple({"configurable": {"thread_id": "t"}})
        cold = time.perf_counter() - start
        sizes = {name: _size(Path(home, name)) for name in ("own", "ours")}
    said = 2 * STEPS * len(TEXT)
    mega = said / 1e6
    for name, took, size in (
        ("SqliteSaver", theirs, sizes["own"]),
        ("JournalSaver", ours, sizes["ours"]),
    ):
        each = took / STEPS * 1e3
        print(
            f"     langgraph {name:<34} {each:7.2f} ms a step  {size / 1e6:7.1f} MB for {mega:.2f}"
        )
    print(f"     langgraph JournalSaver, first read of the thread {cold * 1e3:10.0f} ms")
    missed = verdict("langgraph: bytes / bytes of the messages", sizes["ours"] / said, 6)
    missed += verdict("langgraph: bytes / SqliteSaver's", sizes["ours"] / sizes["own"], 0.05)
    return missed + verdict("langgraph: a step / SqliteSaver's", ours / theirs, 1)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
