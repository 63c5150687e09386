"""SIGKILL at moments of chance, on lines of 100 bytes to 8 MiB: Invariant I holds after each.

What was acknowledged is read back once, what was not is there whole or not at all, and the next
append can be read. THENCE_KILLS says how many kills; a release runs thousands.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.crowd import MEMORY_FOLDER, WarmSuite
from tests.faults.warm import Warm
from tests.pace import by_pace
from thence.journal.log import Durability
from thence.testing import CrashSuite, JournalSubject

KILL_COUNT = int(os.environ.get("THENCE_KILLS") or by_pace(everyday=12, full=20, prove=200))
MAX_LINE_BYTES = by_pace(everyday=1, full=2, prove=8) << 20


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("durability", "share", "largest"),
    [
        ("turn", 0.4, MAX_LINE_BYTES),
        pytest.param("none", 0.3, MAX_LINE_BYTES, marks=pytest.mark.slow),
        pytest.param("event", 0.3, 1 << 18, marks=pytest.mark.slow),
    ],
)
def test_a_killed_writer_loses_nothing_it_acknowledged(
    durability: Durability,
    share: float,
    largest: int,
    *,
    tmp_path: Path,
    warm: Warm,
    record_property: Callable[[str, object], None],
) -> None:
    """Whatever the durability: a killed process is survived by all three."""
    subject = JournalSubject(largest=largest, durability=durability)
    # What a kill leaves is in memory. Only what is synced has to go to the disk.
    memory = None if durability == "event" or not MEMORY_FOLDER.is_dir() else MEMORY_FOLDER
    suite = WarmSuite(warm, subject, memory or tmp_path, seed=KILL_COUNT)
    report = suite.kills(round(KILL_COUNT * share))
    record_property("figures", str(report))

    assert 0 == report.violations
    assert round(KILL_COUNT * share) == report.rounds <= report.acknowledged


@pytest.mark.slow
def test_our_journal_passes_the_suite_we_ship(tmp_path: Path) -> None:
    """As somebody else's store would be run through it: as a program, not forked."""
    subject = JournalSubject()
    report = CrashSuite(subject, folder=tmp_path, torn=subject.torn).kills(4)

    assert 0 == report.violations
    assert 4 == report.rounds <= report.acknowledged
