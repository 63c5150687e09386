"""Our stores for other SDKs, compared with the SDKs' own: append, load, a growing list.

The SDKs' stores differ in what they guarantee when an append returns, so that ours is measured
twice: with the default (a batch survives a killed process) and with `durability="event"` (every
batch survives a power cut, as with the SQLite stores). Requires what `make conformance` installs;
what is missing is named and skipped.
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

APPEND_COUNT, LOAD_COUNT, STEP_COUNT = 1000, 10_000, 500
ROUNDS = 3
"""How often each store is measured, alternating with the others; the best round counts."""
TEXT = "The build is red because a test fails; I look at it now. " * 17  # about 1 KB
KEY = {"project_key": "p", "session_id": "7f3a91c2-55d0-4c1e-9a53-0d6c1f2b7e10"}

Add = Callable[[int, int], Awaitable[object]]
Load = Callable[[], Awaitable[int]]


def main() -> int:
    """Measure the stores of the installed SDKs; return how many budgets were missed."""
    if SDKS.is_dir():
        sys.path.append(str(SDKS))
    missed = 0
    for needed, measure in (
        ("agents", measure_openai),
        ("claude_agent_sdk", measure_claude),
        ("langgraph", measure_langgraph),
    ):
        if needed != "langgraph" and find_spec(needed) is None:
            print(f"     bridges: {needed} is not installed (make conformance installs it)")
            continue
        try:
            missed += measure()
        except ModuleNotFoundError as error:
            print(f"     bridges: {error} (make conformance installs it)")
    return missed


def time_store(make_store: Callable[[], tuple[Add, Load]]) -> tuple[float, float]:
    """Return the seconds for a thousand appends, and for loading ten thousand items."""

    async def run() -> tuple[float, float]:
        add, load = make_store()
        start = time.perf_counter()
        for number in range(APPEND_COUNT):
            await add(number, 1)
        append_s = time.perf_counter() - start
        await add(APPEND_COUNT, LOAD_COUNT - APPEND_COUNT)
        start = time.perf_counter()
        item_count = await load()
        load_s = time.perf_counter() - start
        assert item_count == LOAD_COUNT
        return append_s, load_s

    return asyncio.run(run())


def time_alternately(
    home: str, **stores: Callable[[Path], tuple[Add, Load]]
) -> list[tuple[float, float]]:
    """Measure stores in new folders, round by round; return the best times of each."""
    rounds = [
        [
            time_store(partial(make_store, _folder(home, f"{name}-{number}")))
            for name, make_store in stores.items()
        ]
        for number in range(ROUNDS)
    ]
    return [
        (min(pair[0] for pair in times), min(pair[1] for pair in times))
        for times in zip(*rounds, strict=True)
    ]


def _folder(home: str, name: str) -> Path:
    folder = Path(home, name)
    folder.mkdir()
    return folder


def print_times(name: str, times: tuple[float, float]) -> None:
    """Print the times of a store."""
    append_us, load_ms = times[0] / APPEND_COUNT * 1e6, times[1] * 1e3
    print(
        f"     {name:<44} {append_us:7.0f} µs per append  {load_ms:6.0f} ms to load {LOAD_COUNT:,}"
    )


def measure_openai() -> int:
    """Compare `JournalSession` with `SQLiteSession`."""
    from agents import SQLiteSession

    from thence.bridge.openai_agents import JournalSession

    def session(sdk_session: Any) -> tuple[Add, Load]:
        async def add(first: int, count: int) -> None:
            numbers = range(first, first + count)
            await sdk_session.add_items(
                [{"role": "user", "content": f"{n} {TEXT}"} for n in numbers]
            )

        async def load() -> int:
            return len(await sdk_session.get_items())

        return add, load

    with tempfile.TemporaryDirectory() as home:
        theirs, ours, synced = time_alternately(
            home,
            own=lambda folder: session(SQLiteSession("s", folder / "own.db")),
            turn=lambda folder: session(JournalSession("s", Journal(folder))),
            event=lambda folder: session(JournalSession("s", Journal(folder, durability="event"))),
        )
    print_times("openai-agents SQLiteSession", theirs)
    print_times("openai-agents JournalSession", ours)
    print_times("openai-agents JournalSession, event", synced)
    missed = verdict("openai-agents: append / SQLiteSession's", ours[0] / theirs[0], 1)
    # Both wait for the disk once per append, and that is most of the time: disks differ.
    missed += verdict("openai-agents: append, event / SQLiteSession's", synced[0] / theirs[0], 3)
    return missed + verdict("openai-agents: load / SQLiteSession's", ours[1] / theirs[1], 3)


def measure_claude() -> int:
    """Print the times of `JournalSessionStore` and of `InMemorySessionStore`."""
    from claude_agent_sdk import InMemorySessionStore

    from thence.bridge.claude_agent_sdk import JournalSessionStore

    def store(sdk_store: Any) -> tuple[Add, Load]:
        async def add(first: int, count: int) -> None:
            await sdk_store.append(KEY, [_entry(number) for number in range(first, first + count)])

        async def load() -> int:
            return len(await sdk_store.load(KEY))

        return add, load

    with tempfile.TemporaryDirectory() as home:
        theirs, ours, synced = time_alternately(
            home,
            own=lambda _: store(InMemorySessionStore()),
            turn=lambda folder: store(JournalSessionStore(Journal(folder))),
            event=lambda folder: store(JournalSessionStore(Journal(folder, durability="event"))),
        )
    print_times("claude-agent-sdk InMemorySessionStore", theirs)
    print_times("claude-agent-sdk JournalSessionStore", ours)
    print_times("claude-agent-sdk JournalSessionStore, event", synced)
    return 0


def _entry(number: int) -> dict[str, Any]:
    message = {"role": "user", "content": f"{number} {TEXT}"}
    links = {"uuid": f"u-{number}", "parentUuid": f"u-{number - 1}" if number else None}
    return {"type": "user", **links, "isSidechain": False, "message": message}


def measure_langgraph() -> int:
    """Compare `JournalSaver` with `SqliteSaver` on a list that grows by two messages per step."""
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
        for step in range(STEP_COUNT):
            messages.append(HumanMessage(f"{step} {TEXT}", id=f"h{step}"))
            messages.append(AIMessage(f"{step} {TEXT}", id=f"a{step}"))
            version = saver.get_next_version(version, None)
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"] = {"messages": list(messages)}
            checkpoint["channel_versions"] = {"messages": version}
            config = saver.put(config, checkpoint, {"step": step}, {"messages": version})
        elapsed = time.perf_counter() - start
        stored = saver.get_tuple(config).checkpoint["channel_values"]["messages"]
        assert stored == messages
        return elapsed

    with tempfile.TemporaryDirectory() as home:
        theirs = ours = float("inf")
        for _ in range(ROUNDS):
            shutil.rmtree(Path(home, "own"), ignore_errors=True)
            path = _folder(home, "own") / "own.db"
            with contextlib.closing(sqlite3.connect(path, check_same_thread=False)) as database:
                theirs = min(theirs, grow(SqliteSaver(database)))
            shutil.rmtree(Path(home, "ours"), ignore_errors=True)
            ours = min(ours, grow(JournalSaver(Journal(Path(home, "ours")))))
        start = time.perf_counter()
        saver = JournalSaver(Journal(Path(home, "ours")))
        saver.get_tuple({"configurable": {"thread_id": "t"}})
        cold = time.perf_counter() - start
        sizes = {name: _folder_bytes(Path(home, name)) for name in ("own", "ours")}
    message_bytes = 2 * STEP_COUNT * len(TEXT)
    megabytes = message_bytes / 1e6
    for name, elapsed, size in (
        ("SqliteSaver", theirs, sizes["own"]),
        ("JournalSaver", ours, sizes["ours"]),
    ):
        step_ms = elapsed / STEP_COUNT * 1e3
        print(
            f"     langgraph {name:<34} {step_ms:7.2f} ms per step"
            f"  {size / 1e6:7.1f} MB for {megabytes:.2f} MB of messages"
        )
    print(f"     langgraph JournalSaver, first read of the thread {cold * 1e3:10.0f} ms")
    missed = verdict("langgraph: bytes / bytes of the messages", sizes["ours"] / message_bytes, 6)
    missed += verdict("langgraph: bytes / SqliteSaver's", sizes["ours"] / sizes["own"], 0.05)
    return missed + verdict("langgraph: a step / SqliteSaver's", ours / theirs, 1)


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
