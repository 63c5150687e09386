"""A year of work: every day once, tools as often as they were called."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.serve import browser as browsers
from tests.serve.conftest import House, empty
from thence.agents.claude.sample import SampleTranscript
from thence.memory.store import Filter
from thence.serve import projects
from thence.serve.clock import DisplayClock
from thence.serve.session_work import work_of
from thence.serve.year import year

SESSIONS = 520
"""More than the sums of a page once were of."""


def test_every_day_of_a_year_is_one_square(house: House) -> None:
    """The last is today; those with sessions lead to them."""
    before = datetime.now(UTC)
    made = year(house.context, DisplayClock(UTC))
    places = [(square.x, square.y) for square in made.squares]
    last_text = made.squares[-1].text

    assert 52 * 7 < len(places) == len(set(places)) <= 53 * 7
    assert any(f"{today:%-d %b %Y}" in last_text for today in (before, datetime.now(UTC)))
    assert any(square.href for square in made.squares[-2:])
    assert all(bool(square.heat) == bool(square.href) for square in made.squares)


def test_tools_are_counted_over_sessions(house: House) -> None:
    """The one that was called most is first."""
    tools = year(house.context, DisplayClock(UTC)).tools

    assert tools[0].calls == max(tool.calls for tool in tools) > 1
    assert 1.0 == tools[0].share
    assert any(tool.failed for tool in tools)


@pytest.mark.slow
def test_the_first_page_shows_the_year(browser: Browser, house: House) -> None:
    """It comes after the rest; a day leads to its sessions; it is a page without script."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/")
        expect(page.locator("#h-year")).to_be_visible()
        assert tab.fits()
        assert [] == tab.complaints()
        assert [] == tab.violations()
        page.locator(".year a").last.click()
        expect(page.locator(".srow").first).to_be_visible()
        assert [] == tab.errors
    with browsers.tab(browser, house, script=False) as tab:
        page = tab.go("/")
        page.get_by_role("link", name="Activity of the last year").click()
        expect(page.locator("#h-year")).to_be_visible()


@pytest.mark.slow
def test_tools_and_files_are_those_of_all_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are; a session that goes on is counted anew, alone; so says the API."""
    monkeypatch.setattr("thence.serve.session_work.BATCH_SESSIONS", 100)
    house = empty(tmp_path)
    began = datetime.now(UTC) - timedelta(days=1)
    for number in range(SESSIONS):
        at = began + timedelta(seconds=number)
        log = SampleTranscript(f"one {number}", tmp_path / "work", at)
        log.prompt("Mend it.")
        log.bash("make", "ok", code=number % 2)
        log.edit(f"file{number % 12}.py", "a", "b")
        log.text("Mended.")
        log.save(house.homes.claude)
    house.close()
    house = House(tmp_path)
    house.swept()
    read: list[int] = []
    read_table = house.store.read_table

    def counted(what: str, wanted: Filter = Filter()) -> Any:  # noqa: B008 - as the store's
        read.extend([1] * len(wanted.uids or ()) if what == "digests" else [])
        return read_table(what, wanted)  # type: ignore[arg-type]

    monkeypatch.setattr(house.store, "read_table", counted)
    done = work_of(house.context)
    first = len(read)
    again = work_of(house.context)
    made = year(house.context, DisplayClock(UTC))
    later = len(read)
    with house.serving():
        api = house.ask("/api/work").json
    project = projects.page(house.context, str(tmp_path / "work"), DisplayClock(UTC))
    house.close()

    assert (SESSIONS, SESSIONS // 2) == (done.calls["Bash"], done.failed["Bash"])
    assert (done, SESSIONS, SESSIONS) == (again, first, later)
    assert {"Bash": SESSIONS, "Edit": SESSIONS} == {tool.name: tool.calls for tool in made.tools}
    assert {"Bash": SESSIONS, "Edit": SESSIONS} == {t["tool"]: t["calls"] for t in api["tools"]}
    assert (10, 12) == (len(made.files), made.all_files)
    assert SESSIONS == sum(file["edits"] for file in api["files"])
    assert project is not None
    assert SESSIONS == sum(file.edits for file in project.files)
