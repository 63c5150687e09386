"""What a trial is: parts that follow from seeds, and what each of them came to.

A part is small, needs no other part, and is the same work whenever it is run: so a run that was
killed goes on with the parts that are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec


class Part(msgspec.Struct, frozen=True):
    """One piece of a trial."""

    what: str
    """Which variant: words the trial understands."""
    seed: int = 0
    size: int = 1
    """How much of it: kills, cuts, examples."""

    @property
    def key(self) -> str:
        """What it is known by in the state of a run."""
        return f"{self.what}/{self.seed}/{self.size}"


class Outcome(msgspec.Struct):
    """What a part came to."""

    done: int = 0
    """How many faults, inputs or files; the same in every run of the part."""
    violations: list[str] = []
    """What broke Invariant I, each with what it takes to see it again."""
    seen: dict[str, int] = {}
    """What else was counted. Where chance decides, two runs may differ."""
    skipped: list[str] = []
    """What could not be run here, and why."""


class Trial(msgspec.Struct, frozen=True):
    """One row of the plan."""

    name: str
    title: str
    unit: str
    wanted: str
    """The number of a release, in words."""
    parts: Callable[[float], Sequence[Part]]
    """All parts, at a scale of 1 those of a release."""
    run: Callable[[Part, Path], Outcome]
    """Run one part in an empty folder."""
    missing: Callable[[], str | None] = lambda: None
    """Why it cannot run on this machine; None when it can."""
    alone: bool = False
    """Whether it needs the machine for itself."""


def some(items: Sequence[Any], scale: float) -> list[Any]:
    """Give a share of the items, spread evenly, at least one; all of them from 1 on."""
    count = min(max(round(len(items) * scale), 1), len(items))
    return [items[i * len(items) // count] for i in range(count)]


def shares(what: str, total: int, each: int, scale: float, *, first: int = 1) -> list[Part]:
    """Cut a number of rounds into parts, a seed for each."""
    left = max(round(total * scale), 1)
    sizes = [each] * (left // each) + ([left % each] if left % each else [])
    return [Part(what, first + turn, size) for turn, size in enumerate(sizes)]
