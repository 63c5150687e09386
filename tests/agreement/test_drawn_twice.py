"""What is drawn twice from one object is equal: to ask changes no answer.

Mirrors no module: it holds of the page on a terminal, of the viewer's page, and of what both are
made of.
"""

from __future__ import annotations

import re
import time

import pytest

from tests.agreement.conftest import Data, swept
from tests.serve.conftest import House
from thence.cli.session_text import Page
from thence.memory.readouts import open_session, read_session
from thence.memory.recall import as_read
from thence.memory.sqlite import Sqlite
from thence.serve.chart import Chart
from thence.serve.clock import DisplayClock
from thence.serve.view import Drawing


@pytest.mark.parametrize("opened", [False, True], ids=["closed", "opened"])
def test_a_page_on_a_terminal(own_store: Sqlite, opened: bool) -> None:
    """Closed, or with all branches and subagents open."""
    different = []
    for row in own_store.sessions():
        page = Page(open_session(own_store, row, as_read), 100, opened=opened)
        if page.lines() != page.lines():
            different.append(row.session.session_uid)

    assert [] == different


def test_the_rows_of_the_viewer(own_store: Sqlite) -> None:
    """Rows and runs of copies: of a chart that was drawn, they are what they were before."""
    different = []
    for row in own_store.sessions():
        chart = Chart(read_session(own_store, row, as_read))
        drawing = Drawing(chart, DisplayClock(), lambda _: None)
        seen = [
            (drawing.main(), chart.rows_of(chart.line), list(chart.copies), drawing.main(end=True))
            for _ in range(2)
        ]
        if seen[0] != seen[1]:
            different.append(row.session.session_uid)

    assert [] == different


def test_a_page_of_the_viewer(data: Data) -> None:
    """Asked twice of a server, which keeps the chart in between."""
    house = House(swept(data).path.parent)
    now = time.time()
    house.context.clock = lambda: now  # a page says of which minute it is
    different = []
    with house.serving():
        for row in house.store.sessions():
            path = f"/sessions/{row.session.session_uid}"
            first, second = (house.ask(path).body.decode() for _ in range(2))
            if _lasting(first) != _lasting(second):
                different.append(row.session.session_uid)
    house.close()

    assert [] == different


def _lasting(page: str) -> str:
    """Return a page without what is made for one answer."""
    return re.sub(r'nonce="[^"]*"', "", page)
