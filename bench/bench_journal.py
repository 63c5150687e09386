"""The journal, compared with a bare loop of its four steps, with its peers, and with its own size.

Peers (openai-agents' SQLiteSession, LangGraph's AsyncSqliteSaver) are measured in the same run
when they are installed, which `make bench` does: the extra `bench`.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median

import msgspec

from bench.measure import medians, seconds, verdict
from thence.format import codec
from thence.journal import Journal, Session
from thence.journal.log import Log
from thence.journal.segments import Segments, parts_of

MESSAGE = {"role": "user", "content": "x" * 850}  # a line of about 1 KB
EVENT_COUNT = 5_000
LIVE_EXCHANGES = 60  # exchanges after the last compaction: a context of some 120,000 tokens


def time_bare_loop(folder: Path) -> float:
    """Return the seconds of the minimum that a journal does: an id, a time, JSON and a write."""
    handle = os.open(folder / f"{uuid.uuid4()}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    start = time.perf_counter()
    for _ in range(EVENT_COUNT):
        line = msgspec.json.encode(
            {
                "type": "user",
                "ts": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "uuid": str(uuid.uuid4()),
                "prev_uuid": None,
                "payload": MESSAGE,
            }
        )
        os.write(handle, line + b"\n")
    elapsed = time.perf_counter() - start
    os.close(handle)
    return elapsed


def time_journal(journal: Journal) -> float:
    """Return the seconds of recording the same events through `record`."""
    session = journal.create(cwd="/bench")
    start = time.perf_counter()
    for _ in range(EVENT_COUNT):
        session.record("user", MESSAGE)
    elapsed = time.perf_counter() - start
    session.close()
    return elapsed


def measure_recording(folder: Path) -> int:
    """Compare `record` with the bare loop, and the peers with `record`."""
    journal = Journal(folder / "home", durability="turn")
    loops = [(time_bare_loop(folder), time_journal(journal)) for _ in range(11)]
    floor, ours = (median(times) for times in zip(*loops, strict=True))
    print(
        f"journal: record {ours / EVENT_COUNT * 1e6:.1f} µs,"
        f" bare loop {floor / EVENT_COUNT * 1e6:.1f} µs"
    )
    missed = verdict("record one 1 KB event / bare loop", ours / floor, 1.3)
    for name, peer in (("openai-agents", time_openai_agents), ("langgraph", time_langgraph)):
        try:
            per_event = peer(folder)
        except ImportError:
            print(f"     {name}: not installed, not measured")
            continue
        times = per_event / (ours / EVENT_COUNT)
        print(f"     {name:<15} {per_event * 1e6:8.0f} µs per event, {times:6.1f}x ours")
    return missed


def time_openai_agents(folder: Path) -> float:
    """Return the seconds per item with the SQLiteSession of openai-agents."""
    from agents import SQLiteSession

    async def run() -> float:
        session = SQLiteSession("bench", folder / "agents.db")
        start = time.perf_counter()
        for _ in range(300):
            await session.add_items([dict(MESSAGE)])
        return (time.perf_counter() - start) / 300

    return asyncio.run(run())


def time_langgraph(folder: Path) -> float:
    """Return the seconds per growing checkpoint with the AsyncSqliteSaver of LangGraph."""
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async def run() -> float:
        async with AsyncSqliteSaver.from_conn_string(str(folder / "graph.db")) as saver:
            config = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
            messages: list[object] = []
            start = time.perf_counter()
            for _ in range(200):
                messages.append(MESSAGE)
                checkpoint = empty_checkpoint()
                checkpoint["channel_values"] = {"messages": list(messages)}
                await saver.aput(config, checkpoint, {}, {})
            return (time.perf_counter() - start) / 200

    return asyncio.run(run())


def measure_group_commit(folder: Path) -> int:
    """Compare durable appends from many threads with those from one."""

    def rate(threads: int) -> float:
        log = Log(folder / f"{uuid.uuid4()}.jsonl", durability="event")
        appends = 640 // threads
        ready = threading.Barrier(threads + 1)

        def work() -> None:
            ready.wait()
            for _ in range(appends):
                log.append(b"x" * 1000 + b"\n")

        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        ready.wait()
        start = time.perf_counter()
        for worker in workers:
            worker.join()
        elapsed = time.perf_counter() - start
        log.close()
        return appends * threads / elapsed

    rounds = [[rate(threads) for threads in (1, 8, 32)] for _ in range(7)]
    single_rate, *rates_of_many = (median(rates) for rates in zip(*rounds, strict=True))
    missed = 0
    for threads, target, speedup in (
        (8, 1.4, rates_of_many[0] / single_rate),
        (32, 2.0, rates_of_many[1] / single_rate),
    ):
        print(f"     group commit, {threads} threads: {speedup:.1f}x one thread's rate")
        missed += verdict(f"one thread's rate / {threads} threads' rate", 1 / speedup, 1 / target)
    return missed


def make_session(journal: Journal, megabytes: float, *, compacted: bool) -> Session:
    """Return a session of so many megabytes; half a megabyte of a compacted one is live."""
    session = journal.create(cwd="/bench")
    body = {"role": "user", "content": "y" * 4000}
    answer = {"role": "assistant", "content": "z" * 4000}
    for _ in range(int(megabytes * 1e6 / 8400)):
        session.record("user", body)
        session.record("assistant", answer)
    if compacted:
        keep = session.record("user", body).uuid
        session.record("assistant", answer)
        session.compact("what was said", keep_from=keep)
    for _ in range(LIVE_EXCHANGES if compacted else 0):
        session.record("user", body)
        session.record("assistant", answer)
    session.close()
    return session


def measure_resume(folder: Path, sizes: tuple[float, ...]) -> int:
    """Compare reading back compacted sessions of growing size with parsing their live lines.

    The budget is for reading back the messages and the state. The time of `resume`, which also
    finds the session, opens it for writing and adds up its cost, is printed.
    """
    missed = 0
    operations: dict[str, Callable[[], object]] = {}
    for size in sizes:
        journal = Journal(folder / f"resume-{size}", durability="none")
        session = make_session(journal, size, compacted=True)
        operations[f"parse {size:g}"] = partial(codec.decode, _live_bytes(session))
        operations[f"read {size:g}"] = partial(_read, journal, session)
        operations[f"resume {size:g}"] = partial(journal.resume, session.id, mode="continue")
    times = medians(operations, rounds=31)
    for size in sizes:
        floor, read, resume = (times[f"{what} {size:g}"] for what in ("parse", "read", "resume"))
        summary = f"read back {read * 1e3:.2f} ms, resume {resume * 1e3:.2f} ms"
        print(
            f"     {size:g} MB compacted: {summary} ({resume / floor:.2f}x parsing the live lines)"
        )
        missed += verdict(f"read back {size:g} MB / parsing the live lines", read / floor, 2.0)
    last = max(sizes)
    flat = times[f"read {last:g}"] / times["read 5"]
    return missed + verdict(f"read back {last:g} MB / read back 5 MB", flat, 1.5)


def _read(journal: Journal, session: Session) -> object:
    """Return a session that is read back."""
    assert session.transcript_path is not None
    return journal._load(session.transcript_path.parent, session.id)  # noqa: SLF001


def _live_bytes(session: Session) -> bytes:
    """Return the live bytes: from the last boundary's line on, across segments."""
    assert session.transcript_path is not None
    with Segments(parts_of(session.transcript_path.parent, session.id)) as segments:
        data = segments.read(max(0, segments.size - (4 << 20)), segments.size)
    return data[data.rindex(b'{"type":"boundary"') :]


def measure_uncompacted(folder: Path) -> int:
    """Compare reading back a session that was never compacted with decoding it once."""
    journal = Journal(folder / "plain", durability="none")
    session = make_session(journal, 50, compacted=False)
    assert session.transcript_path is not None
    data = session.transcript_path.read_bytes()
    floor = seconds(lambda: codec.decode(data))
    load = seconds(lambda: _read(journal, session))
    return verdict("read back 50 MB, never compacted / decoding it", load / floor, 1.3)


def measure_forks(folder: Path) -> int:
    """Compare forks of a large session with those of a small one, compacted or not."""
    missed = 0
    for compacted in (True, False):
        operations: dict[str, Callable[[], object]] = {}
        for size in (0.5, 50):
            journal = Journal(folder / f"fork-{size}-{compacted}", durability="none")
            session = make_session(journal, size, compacted=compacted)
            operations[f"{size:g}"] = partial(journal.fork, session.id)
            operations[f"{size:g} at"] = partial(journal.fork, session.id, at=session.tip)
        times = medians(operations, rounds=31)
        kind = "compacted" if compacted else "never compacted"
        print(f"     fork of 50 MB, {kind}: {times['50'] * 1e3:.2f} ms")
        for suffix in ("", " at"):
            name = f"fork{suffix} 50 MB / fork{suffix} 0.5 MB, {kind}"
            missed += verdict(name, times[f"50{suffix}"] / times[f"0.5{suffix}"], 1.5)
    return missed


def main() -> int:
    """Measure and print; return how many budgets were missed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        missed = measure_recording(folder)
        missed += measure_group_commit(folder)
        sizes_mb = (0.128, 5, 50, 500) if os.environ.get("BENCH_BIG") else (0.128, 5, 50)
        missed += measure_resume(folder, sizes_mb)
        return missed + measure_uncompacted(folder) + measure_forks(folder)
