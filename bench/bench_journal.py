"""The journal against the bare loop of its four steps, its peers, and its own size.

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


def recording(folder: Path) -> int:
    """Record against the bare loop, and the peers against it."""
    journal = Journal(folder / "home", durability="turn")
    loops = [(bare(folder), ours(journal)) for _ in range(11)]
    floor, taken = (median(times) for times in zip(*loops, strict=True))
    print(f"journal: record {taken / EVENTS * 1e6:.1f} µs, bare loop {floor / EVENTS * 1e6:.1f} µs")
    missed = verdict("record one 1 KB event / bare loop", taken / floor, 1.3)
    for name, peer in (("openai-agents", openai_agents), ("langgraph", langgraph)):
        try:
            per_event = peer(folder)
        except ImportError:
            print(f"     {name}: not installed, not measured")
            continue
        times = per_event / (taken / EVENTS)
        print(f"     {name:<15} {per_event * 1e6:8.0f} µs an event, {times:6.1f}x ours")
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
        each = 640 // threads
        ready = threading.Barrier(threads + 1)

        def work() -> None:
            ready.wait()
            for _ in range(each):
                log.append(b"x" * 1000 + b"\n")

        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        ready.wait()
        start = time.perf_counter()
        for worker in workers:
            worker.join()
        taken = time.perf_counter() - start
        log.close()
        return each * threads / taken

    rounds = [[rate(threads) for threads in (1, 8, 32)] for _ in range(7)]
    one, *many = (median(rates) for rates in zip(*rounds, strict=True))
    missed = 0
    for threads, wanted, gained in ((8, 1.4, many[0] / one), (32, 2.0, many[1] / one)):
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
    """Opening compacted sessions of growing size, against parsing their live lines alone.

    The budget is for reading back what the model sees and the state. The whole of `resume`, which
    also finds the session, opens it for writing and looks at what it cost, is told beside it.
    """
    missed = 0
    works: dict[str, Callable[[], object]] = {}
    for size in sizes:
        journal = Journal(folder / f"resume-{size}", durability="none")
        session = grown(journal, size, compacted=True)
        works[f"parse {size:g}"] = partial(codec.decode, _tail(session))
        works[f"read {size:g}"] = partial(_read, journal, session)
        works[f"resume {size:g}"] = partial(journal.resume, session.id, mode="continue")
    took = medians(works, rounds=31)
    for size in sizes:
        floor, read, whole = (took[f"{what} {size:g}"] for what in ("parse", "read", "resume"))
        told = f"read back {read * 1e3:.2f} ms, resume in all {whole * 1e3:.2f} ms"
        print(f"     {size:g} MB compacted: {told} ({whole / floor:.2f}x parsing the live lines)")
        missed += verdict(f"read back {size:g} MB / parsing the live lines", read / floor, 2.0)
    last = max(sizes)
    flat = took[f"read {last:g}"] / took["read 5"]
    return missed + verdict(f"read back {last:g} MB / read back 5 MB", flat, 1.5)


def _read(journal: Journal, session: Session) -> object:
    """Read a session back, and do nothing with it."""
    assert session.transcript_path is not None
    return journal._load(session.transcript_path.parent, session.id)  # noqa: SLF001


def _tail(session: Session) -> bytes:
    """The bytes from the last boundary's line on, whatever segments they lie in: what is live."""
    assert session.transcript_path is not None
    with Segments(parts_of(session.transcript_path.parent, session.id)) as segments:
        data = segments.read(max(0, segments.size - (4 << 20)), segments.size)
    return data[data.rindex(b'{"type":"boundary"') :]


def uncompacted(folder: Path) -> int:
    """Opening a session that was never compacted, against decoding it once."""
    journal = Journal(folder / "plain", durability="none")
    session = grown(journal, 50, compacted=False)
    assert session.transcript_path is not None
    data = session.transcript_path.read_bytes()
    floor = seconds(lambda: codec.decode(data))
    load = seconds(lambda: _read(journal, session))
    return verdict("read back 50 MB, never compacted / decoding it", load / floor, 1.3)


def forking(folder: Path) -> int:
    """Forks of a large session against those of a small one, compacted or not."""
    missed = 0
    for compacted in (True, False):
        works: dict[str, Callable[[], object]] = {}
        for size in (0.5, 50):
            journal = Journal(folder / f"fork-{size}-{compacted}", durability="none")
            session = grown(journal, size, compacted=compacted)
            works[f"{size:g}"] = partial(journal.fork, session.id)
            works[f"{size:g} at"] = partial(journal.fork, session.id, at=session.tip)
        took = medians(works, rounds=31)
        how = "compacted" if compacted else "never compacted"
        print(f"     fork of 50 MB, {how}: {took['50'] * 1e3:.2f} ms")
        for named in ("", " at"):
            what = f"fork{named} 50 MB / fork{named} 0.5 MB, {how}"
            missed += verdict(what, took[f"50{named}"] / took[f"0.5{named}"], 1.5)
    return missed


def main() -> int:
    """Measure, print, and say how many budgets were missed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        missed = recording(folder)
        missed += group_commit(folder)
        big = (0.128, 5, 50, 500) if os.environ.get("BENCH_BIG") else (0.128, 5, 50)
        missed += resuming(folder, big)
        return missed + uncompacted(folder) + forking(folder)
