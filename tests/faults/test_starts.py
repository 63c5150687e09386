"""The sample harness killed at any moment from process start on: its project goes on whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.harness import kill_starts
from tests.pace import by_pace

KILLS = by_pace(everyday=20, full=200, prove=200)


@pytest.mark.slow
@pytest.mark.sampled
def test_a_harness_killed_at_any_moment_goes_on_where_it_was(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """No project is poisoned and nothing that was acknowledged is missing from its messages."""
    report = kill_starts(KILLS, tmp_path, seed=KILLS)
    record_property("figures", str(report))

    assert 0 == report.violations
    assert KILLS == report.kills
    assert report.acknowledged
