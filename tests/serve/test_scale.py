"""Pages of many sessions: work that does not grow with what they do not show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC
from typing import Any

import pytest

from tests.serve import laid
from tests.serve.conftest import House
from thence.memory import patterns, sqlite
from thence.memory.rows import ROW
from thence.memory.store import SessionRow
from thence.serve import cost_page, now_page, pattern_page, projects, store_page
from thence.serve.clock import DisplayClock
from thence.serve.context import AppContext
from thence.serve.cost_page import ALL_TIME, CostQuery

pytestmark = pytest.mark.slow  # two machines are made for these

CLOCK = DisplayClock(UTC)
PAGES: dict[str, Callable[[AppContext], object]] = {
    "now": lambda context: now_page.page(context, CLOCK),
    "costs": lambda context: cost_page.page(context, CostQuery(days=ALL_TIME)),
    "store": store_page.page,
    "patterns": lambda context: pattern_page.page(context, "", 365),
    "projects": lambda context: projects.projects(context, CLOCK),
}
FEW, MANY = 250, 500
"""Sessions: more than any page shows, so that twice as many show no more."""


class CountingDecoder:
    """Decodes rows of sessions, and counts them."""

    def __init__(self) -> None:
        self.rows = 0

    def decode(self, body: bytes) -> SessionRow:
        """Return a row."""
        self.rows += 1
        return ROW.decode(body)


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, House]]:
    """Two machines, one with twice as many sessions."""
    made = {}
    for number in (FEW, MANY):
        house = laid.many(tmp_path_factory.mktemp(f"many{number}"), number, large_bytes=4_000)
        house.close()
        made[number] = House(house.folder)  # its folders are there only now
        made[number].swept()
    yield made
    for house in made.values():
        house.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_reads_the_rows_that_it_shows(
    houses: dict[int, House], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice as many sessions, no row of a session more, and no file is looked at."""
    counts = {}
    for number, house in houses.items():
        counter = CountingDecoder()
        monkeypatch.setattr(sqlite, "ROW", counter)
        monkeypatch.setattr("os.path.lexists", _refuse)
        PAGES[name](house.context)
        counts[number] = counter.rows

    assert counts[FEW] == counts[MANY]
    assert counts[MANY] < FEW


def _refuse(path: object) -> bool:
    raise AssertionError(path)


def test_patterns_read_of_digests_what_they_need(houses: dict[int, House]) -> None:
    """Digests are read in part: what sessions were told and how they went stays unread."""
    (memory, *_) = patterns.memories(houses[FEW].store.read_table("digests"))
    fields: tuple[str, ...] = memory.digest.__struct_fields__
    stored: dict[str, Any] = next(iter(houses[FEW].store.read_table("digests")))

    assert {"errors", "files", "tests"} <= {*fields}
    assert {"states", "cost", "models"} <= {*stored} - {*fields}


def test_one_query_sums_up_a_session_wherever_it_is_in_the_table(houses: dict[int, House]) -> None:
    """By session as by all: nothing is lost by grouping in the order of the table."""
    store = houses[FEW].store
    parts = store.totals(["session"])
    (total,) = store.totals()

    assert total.ticks == sum(part.ticks for part in parts)
    assert total.raw_bytes == sum(part.raw_bytes for part in parts)
    assert total.ended == max(part.ended or 0 for part in parts)
    assert total.first_slot == min(part.first_slot or "9" for part in parts)
