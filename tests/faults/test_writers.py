"""Many processes on one session, some of them killed: nobody's event costs another's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.crowd import WarmSuite
from tests.faults.warm import Warm
from tests.pace import by_pace
from thence.format import codec
from thence.testing import JournalSubject

EVENTS_PER_WRITER = by_pace(everyday=200, full=300, prove=1500)


pytestmark = pytest.mark.sampled


class RememberingSubject(JournalSubject):
    """A subject that remembers the last bytes it read, to be looked at."""

    data = b""

    def read(self, path: Path) -> list[int]:
        """Read, and remember."""
        self.data = self.file(path).read_bytes()
        return super().read(path)


@pytest.mark.slow
def test_writers_lose_nothing_when_half_of_them_are_killed(tmp_path: Path, warm: Warm) -> None:
    """All that the survivors and the killed have acknowledged is read back, once."""
    subject = RememberingSubject()
    report = WarmSuite(warm, subject, tmp_path, seed=8).writers(8, EVENTS_PER_WRITER, killed=4)
    decoded = codec.decode(subject.data)
    ids = [event.uuid for event in decoded.events]

    assert 0 == report.violations
    assert 4 * EVENTS_PER_WRITER < report.acknowledged
    assert len(ids) == len(set(ids))
    assert len(decoded.skipped) <= 4


@pytest.mark.slow
def test_writers_of_long_lines_lose_nothing_either(tmp_path: Path, warm: Warm) -> None:
    """Lines of up to 4 MiB: a kill leaves halves, which others end before they go on."""
    subject = JournalSubject(largest=4 << 20)
    suite = WarmSuite(warm, subject, tmp_path, seed=5)
    reports = [suite.writers(4, 30, killed=2) for _ in range(by_pace(everyday=1, full=1, prove=6))]

    assert [0] * len(reports) == [report.violations for report in reports]
