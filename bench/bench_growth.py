"""How costs grow with the corpus: 10, 30 and 100 MB; with `BENCH_BIG=1` also 300 and 1,000 MB.

Each operation is measured at every size, in CPU seconds of all its processes. The figure is the
slope of its cost over the size, both as logarithms: 1 is linear, 0 is flat. Budgets allow for the
cost of starting, which shows at small sizes, and for caches that are too small for large ones.

One new line is measured apart, in sessions of 9,000 and of 72,000 events: it must cost the same.
Its cost is counted in executed lines of our code, which no other load changes.
"""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.bench_journal import make_session
from bench.bench_sweep import run_sweep
from bench.bench_watch import GrowingSession
from bench.corpus import write_claude
from bench.measure import POINTS, Point, count_executed_lines, slope, verdict
from thence.journal import Journal
from thence.memory.search import hits, parse
from thence.memory.sqlite import Sqlite
from thence.memory.store import Filter

SIZES_MB = (10, 30, 100, 300, 1000) if os.environ.get("BENCH_BIG") else (10, 30, 100)
SLOPE_BUDGETS = {
    "cold sweep": 1.1,
    "sweep, nothing new": 1.0,
    "search, a rare word": 0.6,
    "search, a common word": 0.6,
    "list of 50": 0.4,
    "resume, compacted": 0.4,
}
"""Maximum slopes. A sweep reads every byte; a list and a resume read only what they show."""
SESSION_EVENTS = (9_000, 72_000)
"""Lengths of the sessions that get one new line."""


def main() -> int:
    """Measure and print; return how many budgets were missed."""
    first = len(POINTS)
    for size in SIZES_MB:
        with tempfile.TemporaryDirectory() as name:
            for operation, cpu in _measure(Path(name), size):
                POINTS.append(Point(operation, size, cpu))
    missed = 0
    for operation, budget in SLOPE_BUDGETS.items():
        points = [point for point in POINTS[first:] if point.operation == operation]
        costs = ", ".join(f"{p.megabytes:g} MB {p.seconds * 1e3:,.1f} ms" for p in points)
        print(f"growth: {operation}: {costs}")
        missed += verdict(f"slope of {operation}", slope(points), budget)
    return missed + measure_new_line()


def measure_new_line() -> int:
    """Measure a sweep of one new line in a short and in a long session."""
    executed = []
    for events in SESSION_EVENTS:
        with tempfile.TemporaryDirectory() as name:
            executed.append(_count_new_line(Path(name), events))
    short, long = SESSION_EVENTS
    print(f"growth: one new line: {executed[0]:,} and {executed[1]:,} executed lines")
    return verdict(
        f"one new line at {long:,} events / at {short:,}", executed[1] / executed[0], 1.2
    )


def _count_new_line(folder: Path, events: int) -> int:
    """Return how many lines of our code a sweep of one new line executes."""
    root, store = folder / "corpus", folder / "store"
    project = root / "projects" / "-home-dev-tidepool"
    project.mkdir(parents=True)
    store.mkdir()
    session = GrowingSession(project, 0)
    session.begin(events)
    run_sweep(root, store)
    for number in range(3):  # the last is counted: the first ones import and fill caches
        session.write(events + number)
        executed = count_executed_lines(lambda: run_sweep(root, store))
    return executed


def _measure(folder: Path, size: int) -> list[tuple[str, float]]:
    root, store = folder / "corpus", folder / "store"
    write_claude(root, size)
    store.mkdir()
    sweep = [sys.executable, "-m", "bench.bench_sweep", str(root), str(store)]

    def start_sweep() -> object:
        return subprocess.run(sweep, check=True)

    results = [
        ("cold sweep", cpu_seconds(start_sweep, 1)),
        ("sweep, nothing new", cpu_seconds(start_sweep, 3)),
    ]
    database = Sqlite(str(store / "thence.db"))

    def search(word: str) -> Callable[[], object]:
        query = parse(word)
        return lambda: hits(database.search(query), query, database.blobs)

    operations: dict[str, Callable[[], object]] = {
        "search, a rare word": search("pearson"),
        "search, a common word": search("self"),
        "list of 50": lambda: list(database.sessions(Filter(limit=50))),
        "resume, compacted": _prepare_resume(folder / "home", size),
    }
    for operation, work in operations.items():
        work()
        results.append((operation, cpu_seconds(work, 7)))
    database.close()
    return results


def cpu_seconds(work: Callable[[], object], rounds: int) -> float:
    """Return the CPU seconds of the fastest round, with those of the processes that it starts."""
    times = []
    for _ in range(rounds):
        gc.collect()
        before = _total_cpu_seconds()
        work()
        times.append(_total_cpu_seconds() - before)
    return max(min(times), 1e-6)


def _total_cpu_seconds() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _prepare_resume(home: Path, size: int) -> Callable[[], object]:
    """Create a session of that size, compacted near its end; return a function that resumes it."""
    journal = Journal(home, durability="none")
    session = make_session(journal, size, compacted=True)

    def resume() -> object:
        with journal.resume(session.id) as resumed:
            return resumed.messages

    return resume


if __name__ == "__main__":
    sys.exit(main())
