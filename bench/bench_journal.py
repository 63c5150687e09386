"""The journal against the bare loop of its four steps, its peers, and its own size.

Peers (openai-agents' SQLiteSession, LangGraph's AsyncSqliteSaver) are measured in the same run
when they are installed: `pip install openai-agents langgraph-checkpoint-sqlite`.
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
from pathlib import Path

import msgspec

from bench.measure import seconds, verdict
from thence.format import codec
from thence.journal import Journal, Session
from thence.journal.log import Log

MESSAGE = {"role": "user", "content": "x" * 850}  # a line of about 1 KB
EVENTS = 5_000
LIVE = 60  # exchanges after the last compaction: a context of some 120,000 tokens


def bare(folder: Path) -> float:
    """An id, a time, JSON, a write: what every journal must do, and nothing else."""
    handle = os.open(folder / f"{uuid.uuid4()}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    start = time.perf_counter()
    for _ in range(EVENTS):
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
    taken = time.perf_counter() - start
    os.close(handle)
    return taken


def ours(journal: Journal) -> float:
    """The same events through `record`."""
    session = journal.create(cwd="/bench")
    start = time.perf_counter()
    for _ in range(EVENTS):
        session.record("user", MESSAGE)
    taken = time.perf_counter() - start
    session.close()
    return taken


def quickest(work: Callable[[], float], rounds: int = 5) -> float:
    """The least disturbed round."""
    return min(work() for _ in range(rounds))


def recording(folder: Path) -> int:
    """Record against the bare loop, and the peers against it."""
    journal = Journal(folder / "home", durability="turn")
    floor = quickest(lambda: bare(folder))
    taken = quickest(lambda: ours(journal))
    print(f"journal: record {taken / EVENTS * 1e6:.1f} µs, bare loop {floor / EVENTS * 1e6:.1f} µs")
    missed = verdict("record one 1 KB event / bare loop", taken / floor, 1.3)
    for name, peer in (("openai-agents", openai_agents), ("langgraph", langgraph)):
        try:
            per_event = peer(folder)
        except ImportError:
            print(f"     {name}: not installed, not measured")
            continue
        print(f"     {name:<45} {per_event / (floor / EVENTS):8.1f}x the bare loop")
    return missed


def openai_agents(folder: Path) -> float:
    """Seconds for one item through openai-agents' SQLiteSession."""
    from agents import SQLiteSession

    async def run() -> float:
        session = SQLiteSession("bench", folder / "agents.db")
        start = time.perf_counter()
        for _ in range(300):
            await session.add_items([dict(MESSAGE)])
        return (time.perf_counter() - start) / 300

    return asyncio.run(run())


def langgraph(folder: Path) -> float:
    """Seconds for one growing checkpoint through LangGraph's AsyncSqliteSaver."""
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async def run() -> float:
        async with AsyncSqliteSaver.from_conn_string(str(folder / "graph.db")) as saver:
            config = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
            said: list[object] = []
            start = time.perf_counter()
            for _ in range(200):
                said.append(MESSAGE)
                checkpoint = empty_checkpoint()
                checkpoint["channel_values"] = {"messages": list(said)}
                await saver.aput(config, checkpoint, {}, {})
            return (time.perf_counter() - start) / 200

    return asyncio.run(run())


def group_commit(folder: Path) -> int:
    """Durable appends of many threads against one thread's."""

    def rate(threads: int) -> float:
        log = Log(folder / f"{uuid.uuid4()}.jsonl", durability="event")
        each = max(1, 320 // threads)

        def work() -> None:
            for _ in range(each):
                log.append(b"x" * 1000 + b"\n")

        workers = [threading.Thread(target=work) for _ in range(threads)]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        taken = time.perf_counter() - start
        log.close()
        return each * threads / taken

    one = max(rate(1) for _ in range(3))
    missed = 0
    for threads, wanted in ((8, 1.4), (32, 2.0)):
        gained = max(rate(threads) for _ in range(3)) / one
        print(f"     group commit, {threads} threads: {gained:.1f}x one thread's rate")
        missed += verdict(f"one thread's rate / {threads} threads' rate", 1 / gained, 1 / wanted)
    return missed


def grown(journal: Journal, megabytes: float, *, compacted: bool) -> Session:
    """A session of so many megabytes; a compacted one ends with half a megabyte that is live."""
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
    for _ in range(LIVE if compacted else 0):
        session.record("user", body)
        session.record("assistant", answer)
    session.close()
    return session


def resuming(folder: Path, sizes: tuple[float, ...]) -> int:
    """Opening compacted sessions of growing size, against parsing their live lines alone."""
    missed = 0
    times: dict[float, float] = {}
    for size in sizes:
        journal = Journal(folder / f"resume-{size}", durability="none")
        session = grown(journal, size, compacted=True)
        path = session.transcript_path
        assert path is not None
        data = path.read_bytes()
        tail = data[data.rindex(b'{"type":"boundary"') :]
        floor = seconds(lambda tail=tail: codec.decode(tail), rounds=7)  # type: ignore[misc]
        load = seconds(
            lambda j=journal, s=session: j._load(j._folder("/bench"), s.id),  # type: ignore[misc]  # noqa: SLF001
            rounds=7,
        )
        times[size] = load
        print(f"     resume of {size:g} MB compacted: {load * 1e3:.2f} ms")
        missed += verdict(f"resume {size:g} MB / parsing the live lines", load / floor, 2.0)
    flat = times[max(sizes)] / times[5]
    return missed + verdict(f"resume {max(sizes):g} MB / resume 5 MB", flat, 1.5)


def uncompacted(folder: Path) -> int:
    """Opening a session that was never compacted, against decoding it once."""
    journal = Journal(folder / "plain", durability="none")
    session = grown(journal, 50, compacted=False)
    path = session.transcript_path
    assert path is not None
    data = path.read_bytes()
    floor = seconds(lambda: codec.decode(data))
    load = seconds(lambda: journal._load(journal._catalog.folder("/bench"), session.id))  # noqa: SLF001
    missed = verdict("resume 50 MB, never compacted / decoding it", load / floor, 1.3)
    fork = seconds(lambda: journal.fork(session.id), rounds=3)
    print(
        f"     fork of the 50 MB session: {fork * 1e3:.1f} ms, of which loading {load * 1e3:.1f} ms"
    )
    return missed


def main() -> int:
    """Measure, print, and say how many budgets were missed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        missed = recording(folder)
        missed += group_commit(folder)
        big = (0.128, 5, 50, 500) if os.environ.get("BENCH_BIG") else (0.128, 5, 50)
        missed += resuming(folder, big)
        return missed + uncompacted(folder)
