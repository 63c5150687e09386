"""Timing for benchmarks: the least disturbed of several rounds, and budgets as ratios.

What is compared is measured in turn, round by round (`medians`): whatever else the machine does
for a while then hurts both sides. Every verdict is noted, and so are points of how a cost grows:
`python -m bench` makes the report and the plots of them.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from math import log
from typing import NamedTuple


class Verdict(NamedTuple):
    """One figure against its budget."""

    what: str
    ratio: float
    budget: float

    @property
    def held(self) -> bool:
        """Whether it is within the budget."""
        return self.ratio <= self.budget


class Point(NamedTuple):
    """What an operation cost at one size."""

    operation: str
    megabytes: float
    seconds: float


VERDICTS: list[Verdict] = []
POINTS: list[Point] = []


def seconds(
    work: Callable[[], object],
    *,
    rounds: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Time of the quickest round of `work`: what else the machine did can only add to it.

    Garbage of earlier rounds is gone before each one starts. With the clock of the processor
    (`time.process_time`) what else runs on the machine does not count.
    """
    taken = []
    for _ in range(rounds):
        gc.collect()
        start = clock()
        kept = work()
        taken.append(clock() - start)
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
    """Print one figure against its budget, and note it; 1 when it is missed."""
    one = Verdict(what, ratio, budget)
    VERDICTS.append(one)
    print(f"{'ok  ' if one.held else 'MISS'} {what:<58} {ratio:6.2f}  budget {budget:g}")
    return 0 if one.held else 1


def slope(points: list[Point]) -> float:
    """How a cost grows: 0 when the size does not matter, 1 when it doubles with it.

    The slope of the straight line through the logarithms, by least squares.
    """
    x = [log(point.megabytes) for point in points]
    y = [log(point.seconds) for point in points]
    return statistics.linear_regression(x, y).slope
