"""Timing for benchmarks: the least disturbed of several rounds, and budgets as ratios."""

from __future__ import annotations

import gc
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


def verdict(what: str, ratio: float, budget: float) -> int:
    """Print one figure against its budget; 1 when it is missed."""
    held = ratio <= budget
    print(f"{'ok  ' if held else 'MISS'} {what:<58} {ratio:6.2f}  budget {budget:g}")
    return 0 if held else 1
