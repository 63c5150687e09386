"""Now, as it is answered: the same figures as the store's."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.serve.conftest import House
from thence.serve.clock import DisplayClock
from thence.serve.now_page import page


def test_now_says_who_waits_and_what_today_cost(house: House) -> None:
    """The heading is the answer; spending agrees with the store."""
    made = page(house.context, DisplayClock())
    total = house.store.totals()[0]

    assert made.heading == "Nothing needs you"
    assert made.sessions == total.sessions
    assert len(made.columns) == 14
    assert made.week
    assert made.promises


def test_hours_add_up_to_what_sessions_cost(house: House) -> None:
    """Discarded branches and subagents as well; on a day with spending there are 24 of them."""
    slots, total = house.store.totals(["slot"]), house.store.totals()[0]

    assert (total.dead, total.ticks) == (
        sum(slot.dead for slot in slots),
        sum(slot.ticks for slot in slots),
    )
    days = {entry.key[0]: entry.ticks for entry in house.store.totals(["day"])}
    for day in (max(days, key=lambda name: days[name]), "1999-01-01"):
        then = datetime.fromisoformat(f"{day}T12:00:00+00:00").timestamp()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(house.context, "clock", lambda then=then: then)
            made = page(house.context, DisplayClock(UTC))

        assert (24 if day in days else 0) == len(made.hours)
