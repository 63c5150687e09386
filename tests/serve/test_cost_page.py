"""Costs: sums that agree."""

from __future__ import annotations

from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.agents.transcripts import Script, usage
from tests.memory import logs
from tests.serve.conftest import House, empty
from thence.format.figures import TICKS, money
from thence.memory.cost_totals import PERIODS
from thence.memory.store import Filter
from thence.serve import cost_page
from thence.serve.cards import RANGES
from thence.serve.cost_bars import MAX_BARS, span_of
from thence.serve.cost_page import ALL_TIME, CostQuery, as_csv


@pytest.mark.parametrize("by", list(cost_page.BYS))
def test_the_parts_add_up_to_the_whole(house: House, by: str) -> None:
    """Whatever they are grouped by, live and dead and subagents."""
    made = cost_page.page(house.context, CostQuery(by, days=365))  # type: ignore[arg-type]
    total = house.store.totals((), Filter())[0]

    assert made.all.dead == money(total.dead)
    assert made.all.total == total.cost_text
    assert made.heading == f"{total.cost_text} in 365 days"


def test_a_day_can_be_looked_at_alone(house: House) -> None:
    """Its bar leads to it, and back."""
    made = cost_page.page(house.context, CostQuery(days=30))
    spent = next(day for day in reversed(made.bars) if day.parts)
    assert "day=" in spent.href
    day = spent.href.partition("day=")[2].partition("&")[0]
    alone = cost_page.page(house.context, CostQuery(days=30, day=day))

    assert day in alone.heading
    assert (f"day: {day}", "/costs") in alone.filters


def test_bars_stay_within_their_frame(house: House) -> None:
    """However much one day cost."""
    for days in RANGES:
        made = cost_page.page(house.context, CostQuery(days=days))
        assert len(made.bars) in {7: {7}, 30: {30}, 90: {90}, 365: {53, 54}}[days]
        for bar in made.bars:
            tops = [part.y for part in bar.parts] + ([bar.dead.y] if bar.dead else [])
            assert all(30 <= y <= 206 for y in tops)


def test_weeks_and_months_and_all_time_sum_up_to_the_same(house: House) -> None:
    """On the page and as a table for a spreadsheet; a bar leads to its period, and back."""
    total = house.store.totals((), Filter())[0]
    dollars = round(total.ticks / TICKS, 4)
    for per in PERIODS:
        wanted = CostQuery("time", ALL_TIME, per)
        made = cost_page.page(house.context, wanted)
        rows = as_csv(house.context, wanted).splitlines()
        assert rows[0].startswith(f"{per},sessions,")
        assert dollars == round(sum(float(row.split(",")[5]) for row in rows[1:]), 4)
        assert f"{total.cost_text} all time" == made.heading
        assert len(rows) - 1 == len(made.lines)
        spent = next(bar for bar in reversed(made.bars) if bar.parts)
        alone = house.ask(f"{spent.href}&form=csv").body.decode().splitlines()
        assert 2 == len(alone)
        assert alone[-1] in rows
    assert CostQuery(days=ALL_TIME).href().endswith("days=0")


def test_periods_are_whole_and_never_too_many() -> None:
    """Weeks begin on Monday; a range gets the bars that suit it; the year is said where needed."""
    first, last = date(2023, 12, 29), date(2026, 3, 1)
    for wanted in ("", "day", "week", "month", "fortnight"):
        span = span_of(first, last, wanted)
        periods = span.periods()
        assert len(periods) <= MAX_BARS
        assert periods[0].first <= first <= last < periods[-1].end
        assert all(a.end == b.first for a, b in pairwise(periods))
    assert "week" == span_of(first, last, "").period
    assert "week" == span_of(first, last, "day").period
    assert "month" == span_of(first - timedelta(days=400), last, "").period
    assert "day" == span_of(last - timedelta(days=29), last, "").period
    assert "week of 23 Feb 2026" == span_of(first, last, "week").period_of(last).name
    assert "March 2026" == span_of(first, last, "month").period_of(last).name


def test_the_costliest_dead_branches_lead_to_their_events(house: House) -> None:
    """Each is an event that is there."""
    made = cost_page.page(house.context, CostQuery(days=90))
    assert made.branches
    for branch in made.branches:
        answer = house.ask(branch.href)

        assert answer.status == 200
        assert b'class="branch"' in answer.body


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0 %"), (0.002, "<1 %"), (0.16, "16 %"), (1.0, "100 %")]
)
def test_a_little_is_not_nothing(share: float, text: str) -> None:
    """Who looks for what was spent on discarded branches must not read that there is none."""
    assert text == cost_page._percent(share)


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
    lines = as_csv(house.context, CostQuery(by="model", days=365)).splitlines()
    dollars = [float(line.split(",")[5]) for line in lines[1:]]

    assert lines[0].startswith("model,sessions,input_tokens")
    assert round(house.store.totals()[0].ticks / TICKS, 4) == round(sum(dollars), 4)
    answer = house.ask("/costs?form=csv&by=agent")
    assert "text/csv" in answer.headers["content-type"]
    assert answer.body.startswith(b"agent,sessions")


def test_what_is_not_counted_is_not_denied_what_was(tmp_path: Path) -> None:
    """A model with money in the table is not called unpriced; a log that is short, not a bill."""
    house = empty(tmp_path)
    log = Script("5c1f0a3e-0000-4000-8000-000000000007", "c")
    log.user("Go.")
    log.say("It is done.", usage=usage(40), model="harbour-9", costUSD=0.3)
    log.user("And again.")
    log.say("a word or two " * 300, usage=usage(8), model="harbour-9")
    logs.write(house.homes.claude, log)
    house.swept()
    made = cost_page.page(house.context, CostQuery(days=ALL_TIME, by="model"))
    with house.serving():
        page = house.ask("/costs?days=0&by=model").body.decode()
        api = house.ask("/api/costs?by=model").json
    house.close()

    assert ["harbour-9", "$0.30+"] == [made.lines[0].name, made.lines[0].total]
    assert (
        "harbour-9 (their responses have no cost in the log, and the model no list price)" in page
    )
    assert "the log recorded only part of a response" in page
    assert not [words for words in ("no price known", "was billed") if words in page]
    assert ["harbour-9"] == [part["model"] for part in api["unpriced"]]
