"""Sums say that they are minimums wherever one of their sessions is one, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.serve.conftest import House
from thence.format.figures import TICKS
from thence.memory.cost_totals import totals_by_day
from thence.memory.store import Filter, SessionRow, Total
from thence.serve import cost_page, list_page, now_page, projects, year
from thence.serve.clock import DisplayClock
from thence.serve.cost_page import CostQuery
from thence.serve.list_page import ListQuery

CLOCK = DisplayClock(UTC)


def bounded(house: House, key_of: Callable[[SessionRow], str | None]) -> dict[str, bool]:
    """Return by key whether one of its sessions is a lower bound, as the rows themselves say."""
    out: dict[str, bool] = {}
    for row in house.store.sessions(Filter()):
        key = key_of(row) or ""
        out[key] = out.get(key, False) or bool(row.lower_bound or row.unpriced)
    return out


@pytest.fixture(scope="module")
def agents(house: House) -> dict[str, bool]:
    """Whether the costs of each agent are minimums: one's are, another's are not."""
    made = bounded(house, lambda row: row.session.flavor)
    assert {True, False} == {*made.values()}
    return made


def test_the_parts_of_costs_are_marked(house: House, agents: dict[str, bool]) -> None:
    """By agent on the page, in the API and in the table for a spreadsheet; so is the sum."""
    wanted = CostQuery("agent", days=365)
    page = cost_page.page(house.context, wanted)
    api = house.ask("/api/costs?by=agent&since=365d").json
    rows = cost_page.as_csv(house.context, wanted).splitlines()[1:]
    marks = {line.flavor: line.total.endswith("+") for line in page.lines}

    assert agents == marks
    assert agents == {part["key"]: part["is_lower_bound"] for part in api["parts"]}
    assert agents == {row.split(",")[0]: row.endswith(",yes") for row in rows}
    assert api["total"]["is_lower_bound"]
    assert page.heading.split()[0].endswith("+")
    assert page.all.total.endswith("+")
    assert page.live.endswith("+")
    assert any("+ live" in bar.text for bar in page.bars)


def test_the_list_and_its_days_are_marked(house: House, agents: dict[str, bool]) -> None:
    """The sum of the list, also of one that is narrowed; the head of each day."""
    for agent, is_bound in agents.items():
        made = list_page.page(house.context, ListQuery(agent=agent), CLOCK)
        days = totals_by_day(house.store, Filter(agent=agent), UTC)

        assert is_bound is ("+" in made.lede), agent
        assert is_bound is any("+" in day.sums for day in made.days), agent
        assert is_bound is any(day.is_minimum for day in days), agent
    dear = list_page.page(house.context, ListQuery(q="cost>0.001"), CLOCK)
    assert "+" in dear.lede


def test_projects_are_marked(house: House) -> None:
    """In their list and in the API."""
    folders = bounded(house, lambda row: row.folder)
    api = {
        part["path"]: part["is_lower_bound"] for part in house.ask("/api/projects").json["projects"]
    }
    for project in projects.projects(house.context, CLOCK):
        is_bound = any(folders[folder] for folder in project.folders)

        assert is_bound is project.cost.endswith(("+", "?")), project
        assert is_bound is any(api.get(folder, False) for folder in project.folders)


def test_the_first_page_is_marked(house: House, agents: dict[str, bool]) -> None:
    """Today, the hours, the days, the agents of the week, the squares of the year."""
    now = now_page.page(house.context, CLOCK)
    today = datetime.now(UTC).date().isoformat()
    days = {total.key[0]: total for total in totals_by_day(house.store, Filter(), UTC)}
    squares = [square.text for square in year.year(house.context, CLOCK).squares if square.href]

    assert days.get(today, Total((today,))).cost_text == now.today
    assert sum(day.is_minimum for day in days.values() if day.ticks) == sum(
        "+" in text for text in squares
    )
    assert any("+" in bar.text for bar in (*now.columns, *now.hours))
    for agent, _, cost in now.week:
        assert not cost.endswith("+") or agents[agent]


def test_the_sums_of_a_store_without_bounds_have_no_mark(house: House) -> None:
    """A session that is exact stays so in every sum of its own."""
    exact = [r for r in house.store.sessions(Filter()) if not r.lower_bound and not r.unpriced]
    for row in exact:
        uids = Filter(uids=(row.session.session_uid,))
        (total,) = house.store.totals((), uids)

        assert not total.is_minimum
        assert f"${sum(row.ticks.values()) / TICKS:,.2f}" == total.cost_text
    assert exact
