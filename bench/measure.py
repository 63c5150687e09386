"""Timing for benchmarks: the fastest of several rounds, and budgets as ratios.

Operations that are compared are measured alternately, round by round (`medians`), so that other
load on the machine affects both. Every verdict is recorded, and so is every point of a growth
curve; `python -m bench` writes the report and the plots from them.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable
from math import log
from types import FrameType
from typing import Any, NamedTuple


class Verdict(NamedTuple):
    """A figure and its budget."""

    what: str
    ratio: float
    budget: float

    @property
    def is_met(self) -> bool:
        """Return whether the figure is within the budget."""
        return self.ratio <= self.budget


class Point(NamedTuple):
    """The cost of an operation at one size."""

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
    """Return the time of the fastest round of `work`: other load can only add to it.

    Garbage of earlier rounds is collected before each one starts. With `time.process_time` as the
    clock, other processes do not count.
    """
    times = []
    for _ in range(rounds):
        gc.collect()
        start = clock()
        result = work()
        times.append(clock() - start)
        del result
    return min(times)


def medians(operations: dict[str, Callable[[], object]], *, rounds: int = 15) -> dict[str, float]:
    """Return the median time of each operation; every round runs all of them once."""
    times: dict[str, list[float]] = {name: [] for name in operations}
    for _ in range(rounds):
        for name, operation in operations.items():
            times[name].append(seconds(operation, rounds=1))
    return {name: statistics.median(durations) for name, durations in times.items()}


def count_executed_lines(work: Callable[[], object]) -> int:
    """Return how many lines of our code a call executes: work that no other load changes."""
    lines = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        if "thence" not in frame.f_code.co_filename:
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


def verdict(what: str, ratio: float, budget: float) -> int:
    """Print and record a figure and its budget; return 1 if the budget is missed, else 0."""
    result = Verdict(what, ratio, budget)
    VERDICTS.append(result)
    print(f"{'ok  ' if result.is_met else 'MISS'} {what:<58} {ratio:6.2f}  budget {budget:g}")
    return 0 if result.is_met else 1


def slope(points: list[Point]) -> float:
    """Return how a cost grows with the size: 0 for not at all, 1 for linearly.

    This is the slope of the line through the logarithms, by least squares.
    """
    x = [log(point.megabytes) for point in points]
    y = [log(point.seconds) for point in points]
    return statistics.linear_regression(x, y).slope
