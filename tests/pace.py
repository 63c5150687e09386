"""Whether work grows with its input or faster, told on a busy machine as well."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import process_time

ROUNDS = 5
"""A neighbour may slow down one round, even two; what is quadratic is slow in all of them."""


def grows_linearly(work: Callable[[int], object], small: int) -> bool:
    """Say whether eight times the input costs about eight times as much.

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
