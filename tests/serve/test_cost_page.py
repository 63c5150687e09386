"""Costs: sums that agree."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.serve.conftest import House
from thence.format.figures import TICKS, money
from thence.memory.store import Filter
from thence.serve import cost_page
from thence.serve.cost_page import Wanted, as_csv
from thence.serve.days import RANGES


@pytest.mark.parametrize("by", list(cost_page.BYS))
def test_the_parts_add_up_to_the_whole(house: House, by: str) -> None:
    """Whatever they are grouped by, live and dead and subagents."""
    made = cost_page.page(house.desk, Wanted(by, days=365))  # type: ignore[arg-type]
    total = house.store.totals((), Filter())[0]

    assert made.all.dead == money(total.dead)
    assert made.all.live == money(total.ticks - total.dead - total.side, total.unpriced)
    assert made.heading == f"{money(total.ticks, total.unpriced)} in 365 days"


def test_a_day_can_be_looked_at_alone(house: House) -> None:
    """Its bar leads to it, and back."""
    made = cost_page.page(house.desk, Wanted(days=30))
    spent = next(day for day in reversed(made.days) if day.parts)
    assert "day=" in spent.href
    day = spent.href.partition("day=")[2].partition("&")[0]
    alone = cost_page.page(house.desk, Wanted(days=30, day=day))

    assert day in alone.heading
    assert (f"day: {day}", "/costs") in alone.filters


def test_bars_stay_within_their_frame(house: House) -> None:
    """However much one day cost."""
    for days in RANGES:
        made = cost_page.page(house.desk, Wanted(days=days))
        assert len(made.days) == days
        for bar in made.days:
            tops = [part.y for part in bar.parts] + ([bar.dead.y] if bar.dead else [])
            assert all(30 <= y <= 206 for y in tops)


def test_the_costliest_dead_branches_lead_to_their_events(house: House) -> None:
    """Each is an event that is there."""
    made = cost_page.page(house.desk, Wanted(days=90))
    assert made.branches
    for one in made.branches:
        answer = house.ask(one.href)

        assert answer.status == 200
        assert b'class="branch"' in answer.body


@pytest.mark.parametrize(
    ("share", "said"), [(0.0, "0 %"), (0.002, "<1 %"), (0.16, "16 %"), (1.0, "100 %")]
)
def test_a_little_is_not_nothing(share: float, said: str) -> None:
    """Who looks for what was spent on discarded branches must not read that there is none."""
    assert said == cost_page._percent(share)


def test_days_are_those_of_the_zone_that_is_asked_for(house: House) -> None:
    """`?tz=` moves money between days, names the zone, and changes no sum."""
    zones = ("UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago")
    near, *far = (house.ask(f"/api/costs?by=day&tz={quote(zone, '')}").json for zone in zones)

    assert [*zones] == [near["tz"], *(answer["tz"] for answer in far)]
    assert [near["total"]] * 2 == [answer["total"] for answer in far]
    # One is 14 hours ahead, one 11 behind: whatever the time of day, one of them has another day.
    assert any(near["parts"] != answer["parts"] for answer in far)
    assert (
        b"Days are in Pacific/Kiritimati."
        in house.ask("/costs?tz=Pacific%2FKiritimati&days=365").body
    )
    assert 400 <= house.ask("/api/costs?tz=Mars%2FOlympus").status < 500
    assert 400 <= house.ask("/costs?tz=Mars%2FOlympus").status < 500


def test_the_table_for_a_spreadsheet_sums_up_to_the_page(house: House) -> None:
    """A line for each model; no cell is a formula."""
    lines = as_csv(house.desk, Wanted(by="model", days=365)).splitlines()
    dollars = [float(line.split(",")[5]) for line in lines[1:]]

    assert lines[0].startswith("model,sessions,input_tokens")
    assert round(house.store.totals()[0].ticks / TICKS, 4) == round(sum(dollars), 4)
    answer = house.ask("/costs?form=csv&by=agent")
    assert "text/csv" in answer.headers["content-type"]
    assert answer.body.startswith(b"agent,sessions")
