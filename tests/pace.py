"""What takes time: whether work grows with its input or faster, and which cases can wait.

There are three paces. `everyday` is `make quick`, `full` is `make test`, and `prove` is what
`make prove` runs of the tests that are marked `sampled`: all of their cases.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable
from time import process_time
from typing import TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")
PROVING = bool(os.environ.get("THENCE_PROVE"))

ROUNDS = 5
"""A neighbour may slow down one round, even two; what is quadratic is slow in all of them."""


def by_pace(everyday: T, full: T, prove: T) -> T:
    """Return the value for the pace of this run; the test that uses it is marked `sampled`."""
    if PROVING:
        return prove
    return full if settings.get_current_profile_name() == "full" else everyday


SUITE_ROUNDS = by_pace(5, 10, 20)
"""How often the suite of all agents tries chance."""
SUITE_BYTES = by_pace(300, 600, 4096)
"""Into how many pieces that suite cuts a log at most."""


def one_quick(cases: Iterable[object]) -> list[object]:
    """Return cases of which the first runs every day, and the others with all tests."""
    first, *rest = cases
    return [first, *(pytest.param(case, marks=pytest.mark.slow) for case in rest)]


def grows_linearly(work: Callable[[int], object], small: int) -> bool:
    """Return whether eight times the input costs about eight times as much.

    Quadratic work costs 64 times as much, so a bound of 24 leaves room on both sides. Times too
    small to be told apart count as linear.
    """
    few = many = float("inf")
    for _ in range(ROUNDS):
        few = min(few, seconds(work, small))
        many = min(many, seconds(work, 8 * small))
        if many < 24 * few + 0.05:
            return True
    return False


def seconds(work: Callable[[int], object], size: int) -> float:
    """Measure the processor time of this process, without the collector's part in it."""
    gc.collect()
    gc.disable()
    try:
        began = process_time()
        work(size)
        return process_time() - began
    finally:
        gc.enable()
