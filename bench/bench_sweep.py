"""A sweep from nothing to answers, beside the decoding of the same bytes.

It is a process of its own, with everything it imports, into an empty store. How agentsview does on
the same files: `bench_agentsview`. `BENCH_BIG=1` adds a gigabyte and 10,000 sessions,
`BENCH_CORPUS` names a folder of Claude Code's to take instead of a made-up one. The great many
alone: `python -m bench.bench_sweep great`.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
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
from thence.agents import adapters
from thence.memory import retention
from thence.memory.redact import Redactor
from thence.memory.search import hits, parse
from thence.memory.sqlite import Sqlite
from thence.memory.store import Filter
from thence.memory.sweep import Sweep, SweepReport

BIG = bool(os.environ.get("BENCH_BIG"))
ROUNDS = 3
KEY = b"a key for the benchmark, 32 byte"
RARE, MID, COMMON = ("pearson", "curses"), ("docstring", "iterator"), ("self", "return", "the")
PHRASES = ('"return self"', '"if not"', '"the current"')


class Took(NamedTuple):
    """What a run took: wall and processor seconds, and memory of all its processes."""

    wall: float
    cpu: float
    memory: int
    """Of all processes together, at its highest: shared pages counted once."""
    resident: int
    """The same, shared pages counted in each."""


def _sweep(root: Path, store: Path) -> SweepReport:
    opened = Sqlite(str(store / "thence.db"))
    try:
        with opened.sweeping():
            sweep = Sweep(opened, adapters(), Redactor(key=KEY), address=str(opened.path))
            return sweep.run({"claude": [root]})
    finally:
        opened.close()


def ran(command: list[str], env: dict[str, str] | None = None) -> Took:
    """Run a command, and watch what it and its children take."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    most = [0, 0]

    def watch() -> None:
        while process.poll() is None:
            found = list(_memory(process.pid))
            most[0] = max(most[0], sum(shared for shared, _ in found))
            most[1] = max(most[1], sum(resident for _, resident in found))
            time.sleep(0.1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = process.wait()
    wall = time.perf_counter() - start
    watcher.join()
    if code:
        raise RuntimeError(f"{command[0]} ended with {code}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(wall, cpu, *most)


def _memory(pid: int) -> Iterator[tuple[int, int]]:
    """Give, for a process and all below it, its share of memory and what is resident."""
    try:
        told = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        below = " ".join((task / "children").read_text(encoding="ascii") for task in tasks)
    except OSError:
        return
    lines = {line.split(":")[0]: line.split()[1] for line in told.splitlines()[1:]}
    yield int(lines["Pss"]) << 10, int(lines["Rss"]) << 10
    for child in below.split():
        yield from _memory(int(child))


# -- the first sweep ------------------------------------------------------------------------


def _ours(root: Path, store: Path) -> Took:
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir()
    return ran([sys.executable, "-m", "bench.bench_sweep", str(root), str(store)])


def _decoding(root: Path) -> float:
    """Processor seconds to decode all lines, which nobody can do without."""
    start = time.process_time()
    for path in root.rglob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            msgspec.json.decode(line)
    return time.process_time() - start


def cold(root: Path, folder: Path, rounds: int = ROUNDS) -> int:
    """The first sweep of everything."""
    size = sum(path.stat().st_size for path in root.rglob("*.jsonl"))
    ours = [_ours(root, folder / "ours") for _ in range(rounds)]
    took = _median(ours)
    disk = sum(path.stat().st_size for path in (folder / "ours").rglob("*") if path.is_file())
    print(
        f"sweep: {size / 1e6:.0f} MB in {took.wall:.2f} s ({size / took.wall / 1e6:.0f} MB/s), "
        f"{took.cpu:.1f} s of processors, {took.memory / 1e6:.0f} MB of memory "
        f"({took.resident / 1e6:.0f} MB resident), {disk / size:.2f} byte per byte"
    )
    missed = verdict("memory of all processes / 250 MB", took.memory / 250e6, 1)
    missed += verdict("disk / source", disk / size, 0.6)
    decoding = _decoding(root)
    print(f"sweep: decoding alone takes {decoding:.2f} s; all of it {took.cpu / decoding:.0f}x")
    return missed


def _median(runs: list[Took]) -> Took:
    return Took(*(statistics.median(column) for column in zip(*runs, strict=True)))


# -- the next ones --------------------------------------------------------------------------


def again(folder: Path, count: int = 2300) -> int:
    """Nothing new in many files, and a line more in ten of them."""
    root, store = folder / "many", folder / "store"
    write_many(root, count, 4_000)
    store.mkdir()
    _sweep(root, store)
    idle: list[tuple[float, float]] = []
    grown: list[tuple[float, float]] = []
    files = sorted(root.rglob("*.jsonl"))
    lines = 0
    for number in range(5):
        start = time.perf_counter(), time.process_time()
        lines += _sweep(root, store).lines
        idle.append(_since(*start))
        for path in files[number * 10 : number * 10 + 10]:
            last = path.read_bytes().splitlines(keepends=True)[-1]
            with path.open("ab") as file:
                file.write(last.replace(b'"uuid":"', b'"uuid":"f'))
        start = time.perf_counter(), time.process_time()
        _sweep(root, store)
        grown.append(_since(*start))
    print(f"sweep: {count:,} files, nothing new: {lines} lines parsed")
    missed = verdict("lines parsed when nothing is new", lines, 0)
    for name, runs, budget in (
        ("nothing new", idle, 0.15),
        ("a line more in ten files", grown, 0.2),
    ):
        wall, cpu = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"sweep: {name}: {wall * 1e3:.0f} ms, {cpu * 1e3:.0f} ms of processors")
        missed += verdict(f"{name} / {budget} s", wall / budget, 1)
    return missed


def _since(wall: float, cpu: float) -> tuple[float, float]:
    return time.perf_counter() - wall, time.process_time() - cpu


# -- searching ------------------------------------------------------------------------------


def searching(store: Path) -> int:
    """Questions of all kinds, in process, snippets included."""
    opened = Sqlite(str(store / "thence.db"))
    missed = 0
    for name, words in (("rare", RARE), ("mid", MID), ("common", COMMON), ("phrase", PHRASES)):
        walls, cpus = (sorted(column) for column in zip(*_asked(opened, words), strict=True))
        middle, high = walls[len(walls) // 2], walls[int(len(walls) * 0.95)]
        worked = cpus[int(len(cpus) * 0.95)]
        print(
            f"search: {name}: p50 {middle * 1e3:.1f} ms, p95 {high * 1e3:.1f} ms"
            f" ({worked * 1e3:.1f} ms of a processor)"
        )
        missed += verdict(f"p95 of {name} words / 20 ms", high / 0.02, 1)
    opened.close()
    return missed


def _asked(
    store: Sqlite, words: tuple[str, ...], rounds: int = 40
) -> Iterator[tuple[float, float]]:
    chance = random.Random(3)
    for _ in range(rounds):
        text = chance.choice(words)
        start = time.perf_counter(), time.process_time()
        query = parse(text)
        hits(store.search(query), query, store.blobs)
        yield _since(*start)


# -- a great many ---------------------------------------------------------------------------


GREAT = {
    "nothing new": 0.65,
    "list of 50": 0.1,
    "list of all": 1.0,
    "totals by day": 0.5,
    "plan": 1.0,
}
"""Seconds. Looking for what is new goes with the number of files, as that of 2,300 does."""


def great(folder: Path) -> int:
    """10,000 sessions with a million events: sweep, list, search, plan."""
    root, store = folder / "great", folder / "great-store"
    size = write_many(root, 10_000, 215_000)
    took = _ours(root, store)
    opened = Sqlite(str(store / "thence.db"))
    events = sum(row.events for row in opened.sessions())
    print(
        f"great: {events:,} events, {size / 1e6:.0f} MB in {took.wall:.0f} s, "
        f"{took.cpu:.0f} s of processors, {took.memory / 1e6:.0f} MB of memory"
    )
    missed = verdict("a million / events", 1e6 / events, 1)
    missed += verdict("memory of all processes / 250 MB", took.memory / 250e6, 1)
    works: dict[str, Callable[[], object]] = {
        "nothing new": lambda: _sweep(root, store),
        "list of 50": lambda: list(opened.sessions(Filter(limit=50))),
        "list of all": lambda: list(opened.sessions()),
        "totals by day": lambda: opened.totals(["day"]),
        "plan": lambda: _planned(opened),
    }
    for name, work in works.items():
        start = time.perf_counter(), time.process_time()
        work()
        wall, cpu = _since(*start)
        print(f"great: {name}: {wall * 1e3:.0f} ms, {cpu * 1e3:.0f} ms of processors")
        missed += verdict(f"{name} / {GREAT[name]} s", wall / GREAT[name], 1)
    opened.close()
    return missed + searching(store)


def _planned(store: Sqlite) -> retention.RetentionPlan:
    from datetime import UTC, datetime

    items = tuple(
        retention.RetentionItem(uid, one.bytes, analyzed_at=datetime.now(UTC))
        for uid, one in store.known().sessions.items()
    )
    policy = retention.Policy(raw_soft_cap_bytes=sum(item.bytes for item in items) // 2)
    return retention.plan(policy, retention.RetentionInventory(items), datetime.now(UTC))


def main() -> int:
    """Measure, print, and say how many budgets were missed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given = os.environ.get("BENCH_CORPUS")
        root = Path(given) if given else folder / "corpus"
        if not given:
            write_claude(root, 121)
        missed = cold(root, folder) + searching(folder / "ours") + again(folder)
        if BIG:
            write_claude(folder / "big", 1000, seed=4)
            missed += cold(folder / "big", folder, rounds=1) + searching(folder / "ours")
            missed += great(folder)
    return missed


if __name__ == "__main__":
    if sys.argv[1:] == ["great"]:
        with tempfile.TemporaryDirectory() as name:
            sys.exit(great(Path(name)))
    _sweep(Path(sys.argv[1]), Path(sys.argv[2]))
