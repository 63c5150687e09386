"""Now, as it is answered: the same figures as the store's."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.serve.conftest import House
from thence.serve import charts
from thence.serve.clock import Clock
from thence.serve.now_page import page


def test_now_says_who_waits_and_what_today_cost(house: House) -> None:
    """The heading is the answer; spending agrees with the store."""
    made = page(house.desk, Clock())
    total = house.store.totals()[0]

    assert made.heading.endswith("for you")
    assert made.sessions == total.sessions
    assert len(made.columns) == 14
    assert made.week
    assert made.promises


def test_hours_add_up_to_what_sessions_cost(house: House) -> None:
    """Discarded branches and subagents as well; on a day with spending there are 24 of them."""
    for row in house.store.sessions():
        hours = charts.charts_of(house.desk).hours(house.desk, row)
        dead, total = (sum(column) for column in zip((0, 0), *hours.values(), strict=True))

        assert (row.ticks.get("dead", 0), sum(row.ticks.values())) == (dead, total), row.title
    days = {one.key[0]: one.ticks for one in house.store.totals(["day"])}
    for day in (max(days, key=lambda one: days[one]), "1999-01-01"):
        then = datetime.fromisoformat(f"{day}T12:00:00+00:00").timestamp()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(house.desk, "clock", lambda then=then: then)
            made = page(house.desk, Clock())

        assert (24 if day in days else 0) == len(made.hours)
