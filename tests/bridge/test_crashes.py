"""Kills, cuts and crowds: what a bridge acknowledged is there, once, whatever happened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.bridge.crashes import Bridged
from thence.testing import CrashSuite

pytestmark = pytest.mark.filterwarnings("ignore")  # what an SDK says of itself is its business

NEEDS = {
    "claude": "",
    "openai": "",
    "langgraph": "langgraph.checkpoint.base",
    "pydantic": "pydantic_ai",
}


@pytest.fixture(params=NEEDS)
def subject(request: pytest.FixtureRequest, sdk: Callable[[str], ModuleType]) -> Bridged:
    """Each bridge of ours, if what it needs is there."""
    if NEEDS[request.param]:
        sdk(NEEDS[request.param])
    return Bridged(request.param)


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path, subject: Bridged) -> None:
    """Killed at moments of chance, opened again, appended to."""
    report = CrashSuite(subject, folder=tmp_path, wait=(0.001, 0.05)).kills(4)

    assert 0 == report.violations
    assert 0 < report.acknowledged


@pytest.mark.slow
def test_writers_at_once_lose_nothing_when_one_is_killed(tmp_path: Path, subject: Bridged) -> None:
    """Three processes on one session."""
    report = CrashSuite(subject, folder=tmp_path).writers(3, 20, killed=1)

    assert 0 == report.violations
    assert 40 <= report.acknowledged


@pytest.mark.slow
def test_a_session_cut_anywhere_can_be_gone_on_with(tmp_path: Path, subject: Bridged) -> None:
    """Only what was cut is missing, and no byte that was written is changed."""
    path = tmp_path / "store"
    for number in range(3):
        subject.append_one(path, number)
    (file,) = (path / "sessions").rglob("*.jsonl")
    report = CrashSuite(subject).cuts(path, file, every=83)

    assert 0 == report.violations
    assert 3 == report.acknowledged
