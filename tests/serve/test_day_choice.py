"""Days that hold nothing lead to those that do."""

from __future__ import annotations

import pytest

from tests.serve.conftest import House
from thence.serve import cost_page, pattern_page
from thence.serve.cost_page import CostQuery


@pytest.mark.parametrize(("late", "label"), [(200, "Show 365 days"), (4000, "All sessions")])
def test_days_without_anything_lead_to_those_that_have_it(
    house: House, monkeypatch: pytest.MonkeyPatch, late: int, label: str
) -> None:
    """Costs and patterns of somebody who comes back after a long time."""
    now = house.context.clock()
    monkeypatch.setattr(house.context, "clock", lambda: now + late * 86_400)
    costs = cost_page.page(house.context, CostQuery())
    patterns = pattern_page.page(house.context, "", pattern_page.DEFAULT_DAYS)

    assert costs.earlier is not None
    assert patterns.earlier is not None
    assert label == patterns.earlier.label
    assert label.replace("All sessions", "Show all time") == costs.earlier.label
    assert cost_page.page(house.context, CostQuery(days=cost_page.ALL_TIME)).earlier is None
    if late < 365:
        assert cost_page.page(house.context, CostQuery(days=365)).earlier is None
        assert pattern_page.page(house.context, "", 365).earlier is None
        assert "days=365" in costs.earlier.href
        assert "days=365" in patterns.earlier.href
