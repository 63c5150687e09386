"""Timing for benchmarks: the least disturbed of several rounds, and budgets as ratios.

What is compared is measured in turn, round by round (`medians`): whatever else the machine does
for a while then hurts both sides.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable


def seconds(work: Callable[[], object], *, rounds: int = 5) -> float:
    """Time of the quickest round of `work`: what else the machine did can only add to it.

    Garbage of earlier rounds is gone before each one starts.
    """
    taken = []
    for _ in range(rounds):
        gc.collect()
        start = time.perf_counter()
        kept = work()
        taken.append(time.perf_counter() - start)
        del kept
    return min(taken)


def medians(works: dict[str, Callable[[], object]], *, rounds: int = 15) -> dict[str, float]:
    """Median time of each of several works, a round of all after a round of all."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            taken[name].append(seconds(work, rounds=1))
    return {name: statistics.median(times) for name, times in taken.items()}


def verdict(what: str, ratio: float, budget: float) -> int:
    """Print one figure against its budget; 1 when it is missed."""
    held = ratio <= budget
    print(f"{'ok  ' if held else 'MISS'} {what:<58} {ratio:6.2f}  budget {budget:g}")
    return 0 if held else 1
