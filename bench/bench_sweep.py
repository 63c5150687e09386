"""A sweep from an empty store to search results, compared with decoding the same bytes.

The sweep runs in a process of its own, which includes its imports. `bench_agentsview` compares it
with agentsview on the same files. `BENCH_BIG=1` adds a gigabyte and 10,000 sessions,
`BENCH_CORPUS` names a folder of Claude Code to use instead of a synthetic one. Only the 10,000
sessions: `python -m bench.bench_sweep large`.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.corpus import write_claude, write_many
from bench.measure import verdict
from tests.rules import rules
from thence.agents import adapters
from thence.memory import retention
from thence.memory.gate import Gate
from thence.memory.search import hits, parse
from thence.memory.sqlite import Sqlite
from thence.memory.store import Filter
from thence.memory.sweep import Sweep, SweepReport

BIG = bool(os.environ.get("BENCH_BIG"))
ROUNDS = 3
KEY = b"a key for the benchmark, 32 byte"
RARE, MEDIUM, COMMON = ("pearson", "curses"), ("docstring", "iterator"), ("self", "return", "the")
PHRASES = ('"return self"', '"if not"', '"the current"')


class RunCost(NamedTuple):
    """The cost of a run: wall and CPU seconds, and the peak memory of all its processes."""

    wall: float
    cpu: float
    memory: int
    """Bytes at the peak; shared pages count once."""
    resident: int
    """Bytes at the peak; shared pages count in each process."""


def run_sweep(root: Path, store: Path) -> SweepReport:
    """Sweep a folder of Claude Code into the store of a folder, in this process."""
    database = Sqlite(str(store / "thence.db"))
    try:
        with database.sweeping():
            sweep = Sweep(database, adapters(), Gate(key=KEY), rules(), address=str(database.path))
            return sweep.run({"claude": [root]})
    finally:
        database.close()


def measure_command(command: list[str], env: dict[str, str] | None = None) -> RunCost:
    """Run a command, and return its cost, with that of its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    peaks = [0, 0]

    def sample_memory() -> None:
        while process.poll() is None:
            processes = list(_memory(process.pid))
            peaks[0] = max(peaks[0], sum(shared for shared, _ in processes))
            peaks[1] = max(peaks[1], sum(resident for _, resident in processes))
            time.sleep(0.1)

    sampler = threading.Thread(target=sample_memory)
    sampler.start()
    code = process.wait()
    wall = time.perf_counter() - start
    sampler.join()
    if code:
        raise RuntimeError(f"{command[0]} ended with {code}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return RunCost(wall, cpu, *peaks)


def _memory(pid: int) -> Iterator[tuple[int, int]]:
    """Yield the proportional and the resident memory of a process and each of its descendants."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = " ".join((task / "children").read_text(encoding="ascii") for task in tasks)
    except OSError:
        return
    lines = {line.split(":")[0]: line.split()[1] for line in rollup.splitlines()[1:]}
    yield int(lines["Pss"]) << 10, int(lines["Rss"]) << 10
    for child in children.split():
        yield from _memory(int(child))


# -- the first sweep ------------------------------------------------------------------------


def _sweep_cost(root: Path, store: Path) -> RunCost:
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir()
    return measure_command([sys.executable, "-m", "bench.bench_sweep", str(root), str(store)])


def _decoding_seconds(root: Path) -> float:
    """Return the CPU seconds to decode all lines: the lower bound for any reader."""
    start = time.process_time()
    for path in root.rglob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            msgspec.json.decode(line)
    return time.process_time() - start


def measure_first_sweep(root: Path, folder: Path, corpus: str, rounds: int) -> int:
    """Measure the first sweep of everything."""
    size = sum(path.stat().st_size for path in root.rglob("*.jsonl"))
    costs = [_sweep_cost(root, folder / "ours") for _ in range(rounds)]
    cost = _median_cost(costs)
    disk = sum(path.stat().st_size for path in (folder / "ours").rglob("*") if path.is_file())
    print(
        f"sweep: {corpus} in {cost.wall:.2f} s ({size / cost.wall / 1e6:.0f} MB/s), "
        f"{cost.cpu:.1f} s of CPU time, {cost.memory / 1e6:.0f} MB of memory "
        f"({cost.resident / 1e6:.0f} MB resident), {disk / size:.2f} bytes per source byte"
    )
    missed = verdict(f"memory of all processes / 250 MB, {corpus}", cost.memory / 250e6, 1)
    missed += verdict(f"disk / source, {corpus}", disk / size, 0.6)
    decoding = _decoding_seconds(root)
    print(
        f"sweep: decoding alone takes {decoding:.2f} s; the sweep takes {cost.cpu / decoding:.0f}x"
    )
    return missed


def measure_first_session(root: Path, store: Path, corpus: str) -> int:
    """Measure when the first sessions of a first sweep can be listed and searched."""
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir()
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "bench.bench_sweep", str(root), str(store)])
    while process.poll() is None and not _can_find_sessions(store / "thence.db"):
        time.sleep(0.02)
    wall = time.perf_counter() - start
    process.terminate()  # the rest was measured above
    process.wait()
    print(f"sweep: first sessions listed and searchable after {wall:.2f} s")
    return verdict(f"first sessions / 3 s, {corpus}", wall / 3, 1)


def _can_find_sessions(path: Path) -> bool:
    """Return whether a store that is being written lists a session and finds a common word."""
    # Asked without our own code first: it would create the tables that the sweep is about to.
    with contextlib.suppress(sqlite3.Error):
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as reader:
            (rows,) = reader.execute("SELECT count(*) FROM sessions").fetchone()
        if rows:
            with contextlib.closing(Sqlite(str(path))) as store:
                has_row = any(True for _ in store.sessions(Filter(limit=1)))
                return has_row and bool(store.search(parse(COMMON[-1])).matches)
    return False


def _median_cost(runs: list[RunCost]) -> RunCost:
    return RunCost(*(statistics.median(column) for column in zip(*runs, strict=True)))


# -- the next ones --------------------------------------------------------------------------


def measure_later_sweeps(folder: Path, count: int = 2300) -> int:
    """Measure sweeps of many files with nothing new, and with one new line in ten of them."""
    root, store = folder / "many", folder / "store"
    write_many(root, count, 4_000)
    store.mkdir()
    run_sweep(root, store)
    idle: list[tuple[float, float]] = []
    growing: list[tuple[float, float]] = []
    files = sorted(root.rglob("*.jsonl"))
    lines = 0
    for number in range(5):
        start = time.perf_counter(), time.process_time()
        lines += run_sweep(root, store).lines
        idle.append(_elapsed(*start))
        for path in files[number * 10 : number * 10 + 10]:
            last = path.read_bytes().splitlines(keepends=True)[-1]
            with path.open("ab") as file:
                file.write(last.replace(b'"uuid":"', b'"uuid":"f'))
        start = time.perf_counter(), time.process_time()
        run_sweep(root, store)
        growing.append(_elapsed(*start))
    print(f"sweep: {count:,} files, nothing new: {lines} lines parsed")
    missed = verdict("lines parsed when nothing is new", lines, 0)
    for name, runs, budget in (
        ("nothing new", idle, 0.15),
        ("one new line in ten files", growing, 0.2),
    ):
        wall, cpu = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"sweep: {name}: {wall * 1e3:.0f} ms, {cpu * 1e3:.0f} ms of CPU time")
        missed += verdict(f"{name} / {budget} s", wall / budget, 1)
    return missed


def _elapsed(wall: float, cpu: float) -> tuple[float, float]:
    return time.perf_counter() - wall, time.process_time() - cpu


# -- searching ------------------------------------------------------------------------------


def measure_search(store: Path, corpus: str) -> int:
    """Measure searches for words of all kinds in this process, with snippets."""
    database = Sqlite(str(store / "thence.db"))
    missed = 0
    for name, words in (
        ("rare", RARE),
        ("medium", MEDIUM),
        ("common", COMMON),
        ("phrase", PHRASES),
    ):
        walls, cpus = (
            sorted(column) for column in zip(*_time_queries(database, words), strict=True)
        )
        p50, p95 = walls[len(walls) // 2], walls[int(len(walls) * 0.95)]
        cpu_p95 = cpus[int(len(cpus) * 0.95)]
        print(
            f"search: {name}: p50 {p50 * 1e3:.1f} ms, p95 {p95 * 1e3:.1f} ms"
            f" ({cpu_p95 * 1e3:.1f} ms of CPU time)"
        )
        missed += verdict(f"p95 of {name} words / 20 ms, {corpus}", p95 / 0.02, 1)
    database.close()
    return missed


def _time_queries(
    store: Sqlite, words: tuple[str, ...], rounds: int = 40
) -> Iterator[tuple[float, float]]:
    rng = random.Random(3)
    for _ in range(rounds):
        text = rng.choice(words)
        start = time.perf_counter(), time.process_time()
        query = parse(text)
        hits(store.search(query), query, store.blobs)
        yield _elapsed(*start)


# -- a large store ---------------------------------------------------------------------------


LARGE_STORE_BUDGETS_S = {
    "nothing new": 0.65,
    "list of 50": 0.1,
    "list of all": 1.0,
    "totals by day": 0.5,
    "plan": 1.0,
}
"""A sweep with nothing new may take as long per file as with 2,300 files."""


def measure_large_store(folder: Path) -> int:
    """Measure 10,000 sessions with a million events: sweep, list, search, retention plan."""
    root, store = folder / "large", folder / "large-store"
    size = write_many(root, 10_000, 215_000)
    cost = _sweep_cost(root, store)
    database = Sqlite(str(store / "thence.db"))
    events = sum(row.events for row in database.sessions())
    print(
        f"large store: {events:,} events, {size / 1e6:.0f} MB in {cost.wall:.0f} s, "
        f"{cost.cpu:.0f} s of CPU time, {cost.memory / 1e6:.0f} MB of memory"
    )
    missed = verdict("a million / events", 1e6 / events, 1)
    missed += verdict("memory of all processes / 250 MB, 10,000 sessions", cost.memory / 250e6, 1)
    operations: dict[str, Callable[[], object]] = {
        "nothing new": lambda: run_sweep(root, store),
        "list of 50": lambda: list(database.sessions(Filter(limit=50))),
        "list of all": lambda: list(database.sessions()),
        "totals by day": lambda: database.totals(["day"]),
        "plan": lambda: _retention_plan(database),
    }
    for name, work in operations.items():
        start = time.perf_counter(), time.process_time()
        work()
        wall, cpu = _elapsed(*start)
        print(f"large store: {name}: {wall * 1e3:.0f} ms, {cpu * 1e3:.0f} ms of CPU time")
        missed += verdict(
            f"{name} / {LARGE_STORE_BUDGETS_S[name]} s", wall / LARGE_STORE_BUDGETS_S[name], 1
        )
    database.close()
    return missed + measure_search(store, "10,000 sessions")


def _retention_plan(store: Sqlite) -> retention.RetentionPlan:
    from datetime import UTC, datetime

    items = tuple(
        retention.RetentionItem(uid, session.bytes, analyzed_at=datetime.now(UTC))
        for uid, session in store.known().sessions.items()
    )
    policy = retention.Policy(raw_soft_cap_bytes=sum(item.bytes for item in items) // 2)
    return retention.plan(policy, retention.RetentionInventory(items), datetime.now(UTC))


def main() -> int:
    """Measure and print; return how many budgets were missed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = os.environ.get("BENCH_CORPUS")
        root = Path(corpus) if corpus else folder / "corpus"
        if not corpus:
            write_claude(root, 121)
        missed = measure_corpus(root, folder) + measure_later_sweeps(folder)
        if BIG:
            write_claude(folder / "big", 1000, seed=4)
            missed += measure_corpus(folder / "big", folder, rounds=1) + measure_large_store(folder)
    return missed


def measure_corpus(root: Path, folder: Path, rounds: int = ROUNDS) -> int:
    """Measure the first sweep of a corpus, the time to its first session, and searches in it."""
    corpus = f"{sum(path.stat().st_size for path in root.rglob('*.jsonl')) / 1e6:.0f} MB"
    return (
        measure_first_sweep(root, folder, corpus, rounds)
        + measure_search(folder / "ours", corpus)
        + measure_first_session(root, folder / "first", corpus)
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["large"]:
        with tempfile.TemporaryDirectory() as name:
            sys.exit(measure_large_store(Path(name)))
    run_sweep(Path(sys.argv[1]), Path(sys.argv[2]))
