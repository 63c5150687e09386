"""What a trial is: parts that follow from seeds, and the outcome of each part.

A part is small, independent of other parts, and does the same work whenever it runs. A run that
was killed therefore continues with the parts that are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

ALL_CODE = ("thence.*",)
JOURNAL_CODE = ("thence.journal.*", "thence.testing.crashes")
"""Modules that a trial runs; `a.*` is a package with all that is in it."""


class Part(msgspec.Struct, frozen=True):
    """A part of a trial."""

    what: str
    """The variant, in words that the trial understands."""
    seed: int = 0
    size: int = 1
    """How many kills, cuts or examples."""

    @property
    def key(self) -> str:
        """Return its name in the state of a run."""
        return f"{self.what}/{self.seed}/{self.size}"


class Outcome(msgspec.Struct):
    """What a part did and found."""

    done: int = 0
    """Number of faults, inputs or files; the same in every run of the part."""
    violations: list[str] = []
    """Violations of Invariant I, each with what is needed to reproduce it."""
    counts: dict[str, int] = msgspec.field(default_factory=dict, name="seen")
    """Further counts; where timing decides, two runs may differ."""
    skipped: list[str] = []
    """What could not be run here, and why."""


class Trial(msgspec.Struct, frozen=True):
    """One of the trials T1 to T16."""

    name: str
    title: str
    unit: str
    required: str
    """What a release requires, in words."""
    parts: Callable[[float], Sequence[Part]]
    """Returns the parts for a scale; 1 is that of a release."""
    run: Callable[[Part, Path], Outcome]
    """Runs one part in an empty folder."""
    missing: Callable[[], str | None] = lambda: None
    """Returns what this machine lacks to run it, or None."""
    is_exclusive: bool = False
    """Whether it runs without other trials beside it."""
    code: tuple[str, ...] = ALL_CODE
    """The modules that it runs, without what they import: other code does not change it."""


def sample_evenly(items: Sequence[Any], scale: float) -> list[Any]:
    """Return a share of the items, evenly spread, at least one; all of them at a scale of 1."""
    size = min(max(round(len(items) * scale), 1), len(items))
    return [items[i * len(items) // size] for i in range(size)]


def split_rounds(
    what: str, total: int, part_size: int, scale: float, *, first_seed: int = 1
) -> list[Part]:
    """Return parts that share a number of rounds, each with its own seed."""
    rounds = max(round(total * scale), 1)
    sizes = [part_size] * (rounds // part_size) + (
        [rounds % part_size] if rounds % part_size else []
    )
    return [Part(what, first_seed + number, size) for number, size in enumerate(sizes)]
