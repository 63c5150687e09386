"""A year of work: every day once, tools as often as they were called."""

from __future__ import annotations

from datetime import UTC

import pytest
from playwright.sync_api import Browser, expect

from tests.serve import browser as browsers
from tests.serve.conftest import House
from thence.serve.clock import DisplayClock
from thence.serve.year import year


def test_every_day_of_a_year_is_one_square(house: House) -> None:
    """The last is today; those with sessions lead to them."""
    made = year(house.context, DisplayClock(UTC))
    places = [(square.x, square.y) for square in made.squares]

    assert 52 * 7 < len(places) == len(set(places)) <= 53 * 7
    assert made.squares[-1].href
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
