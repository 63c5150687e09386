"""How costs grow with what is kept: 10, 30 and 100 MB; with `BENCH_BIG=1` 300 and 1,000 as well.

Each operation is measured at every size, in processor seconds of all its processes, and the slope
of its cost over the size, both as logarithms, is told: 1 is linear, 0 is flat. Budgets leave room
for what a start costs at the small end and for a cache that grows too small at the large one.
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

from bench.bench_journal import grown
from bench.corpus import write_claude
from bench.measure import POINTS, Point, slope, verdict
from thence.journal import Journal
from thence.memory.search import hits, parse
from thence.memory.sqlite import Sqlite
from thence.memory.store import Filter

SIZES = (10, 30, 100, 300, 1000) if os.environ.get("BENCH_BIG") else (10, 30, 100)
BUDGETS = {
    "cold sweep": 1.1,
    "sweep, nothing new": 1.0,
    "search, a rare word": 0.6,
    "search, a common word": 0.6,
    "list of 50": 0.4,
    "resume, compacted": 0.4,
}
"""Slopes. A sweep reads every byte; a list and a resume read what they show."""


def main() -> int:
    """Measure, print, and say how many budgets were missed."""
    first = len(POINTS)
    for size in SIZES:
        with tempfile.TemporaryDirectory() as name:
            for operation, taken in _measured(Path(name), size):
                POINTS.append(Point(operation, size, taken))
    missed = 0
    for operation, budget in BUDGETS.items():
        points = [point for point in POINTS[first:] if point.operation == operation]
        told = ", ".join(f"{p.megabytes:g} MB {p.seconds * 1e3:,.1f} ms" for p in points)
        print(f"growth: {operation}: {told}")
        missed += verdict(f"slope of {operation}", slope(points), budget)
    return missed


def _measured(folder: Path, size: int) -> list[tuple[str, float]]:
    root, store = folder / "corpus", folder / "store"
    write_claude(root, size)
    store.mkdir()
    sweep = [sys.executable, "-m", "bench.bench_sweep", str(root), str(store)]

    def swept() -> object:
        return subprocess.run(sweep, check=True)

    out = [("cold sweep", spent(swept, 1)), ("sweep, nothing new", spent(swept, 3))]
    opened = Sqlite(str(store / "thence.db"))

    def search(word: str) -> Callable[[], object]:
        query = parse(word)
        return lambda: hits(opened.search(query), query, opened.blobs)

    works: dict[str, Callable[[], object]] = {
        "search, a rare word": search("pearson"),
        "search, a common word": search("self"),
        "list of 50": lambda: list(opened.sessions(Filter(limit=50))),
        "resume, compacted": _resuming(folder / "home", size),
    }
    for operation, work in works.items():
        work()
        out.append((operation, spent(work, 7)))
    opened.close()
    return out


def spent(work: Callable[[], object], rounds: int) -> float:
    """Processor seconds of the quickest round, those of processes that it started included."""
    taken = []
    for _ in range(rounds):
        gc.collect()
        before = _processor()
        work()
        taken.append(_processor() - before)
    return max(min(taken), 1e-6)


def _processor() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def _resuming(home: Path, size: int) -> Callable[[], object]:
    """Make a session of our own of that size, compacted near its end, and give how to open it."""
    journal = Journal(home, durability="none")
    session = grown(journal, size, compacted=True)

    def resume() -> object:
        with journal.resume(session.id) as going:
            return going.messages

    return resume


if __name__ == "__main__":
    sys.exit(main())
