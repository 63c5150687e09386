"""Cards of sessions: how busy they were."""

from __future__ import annotations

from tests.serve.conftest import House
from thence.memory.store import Filter
from thence.serve.cards import bars


def test_bars_are_as_high_as_a_session_was_busy(house: House) -> None:
    """Within their frame, the busiest part at the top."""
    for row in house.store.sessions(Filter()):
        drawn = bars(house.context, row)
        assert len(drawn) == 24
        assert max(bar.height for bar in drawn) == 22
