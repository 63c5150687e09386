"""Getting to the right place and trusting it, in a browser: links, controls, lists, numbers."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Browser, Page, Response, Route, expect

from tests.serve import browser as browsers
from tests.serve.conftest import House
from tests.serve.test_pages import tides, uid_of
from tests.serve.test_session_search import SHOWN
from thence.agents.claude.sample import SampleTranscript
from thence.memory import recall
from thence.serve.questions import Questions

pytestmark = pytest.mark.slow

ROW_IN_VIEW = """() => {
  const box = document.querySelector(".ev.hit")?.getBoundingClientRect();
  return Boolean(box && box.bottom > 80 && box.top < innerHeight);
}"""
"""Whether the row that a link leads to is in view and marked."""

CURRENT = """() => {
  const box = [...CSS.highlights.get("current")][0].getBoundingClientRect();
  return [Math.round(box.left), Math.round(box.top)];
}"""
"""Where the match that is shown stands."""

LATE = re.compile("/event/|whole=1")
"""Requests for what a match is in, where the page does not have it."""

RENEWED = re.compile("/tail[?]")
"""Requests for the rows at the end."""


# -- links ----------------------------------------------------------------------------------


def test_a_to_do_leads_to_the_row_that_it_comes_from(browser: Browser, house: House) -> None:
    """On the first page and on that of its project."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/")
        todo = page.locator(".side-list li:has([data-act=dismiss]) a").first
        text = todo.inner_text()
        todo.click()
        page.wait_for_function(ROW_IN_VIEW)
        page.locator(".crumbs a").first.click()
        page.get_by_role("link", name=text).click()
        page.wait_for_function(ROW_IN_VIEW)

        assert [] == tab.errors


@pytest.mark.parametrize("query", ["kind:tool_result", "hour", "kind:error"])
def test_the_event_that_an_agent_is_told_leads_to_the_row(
    browser: Browser, house: House, query: str
) -> None:
    """It names the event in short, as `thence open` does; results and folded parts too.

    So does the name of every match, that of a derived event among them.
    """
    questions = Questions(house.store, lambda *_: {})
    answer = questions.answer("search", {"query": query})
    link = re.search(r"thence open (\S+) --at (e\w{6})$", answer, re.MULTILINE)
    assert link is not None
    uid = recall.session(house.store, link[1]).session.session_uid
    with browsers.tab(browser, house) as tab:
        page = tab.go(f"/sessions/{uid}?at={link[2]}")
        page.wait_for_function(ROW_IN_VIEW)
        event, session = answer.split("\n")[1].split()[:2]
        uid = recall.session(house.store, session).session.session_uid
        page = tab.go(f"/sessions/{uid}?at={event}")
        page.wait_for_function(ROW_IN_VIEW)

        assert [] == tab.errors


def test_a_file_that_was_changed_leads_to_its_sessions(browser: Browser, house: House) -> None:
    """From the page of its project; the sessions that are listed changed it."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/projects")
        page.get_by_role("link", name="tidepool", exact=True).click()
        page.locator("section:has(#h-f) a").first.click()
        expect(page.locator("#q")).to_have_value(re.compile("^file:"))
        expect(page.locator(".srow").first).to_be_visible()


def test_enter_before_the_answer_keeps_its_place(browser: Browser, house: House) -> None:
    """The answer to what was typed comes after that to Enter, and does not begin anew."""
    with browsers.tab(browser, house) as tab:
        page = tab.go(tides(house))
        page.locator("#find").fill("missing")
        page.locator("#find").press("Enter")
        expect(page.locator("#n-of")).to_have_text(re.compile(r"^1 of \d+$"))
        page.wait_for_timeout(600)
        expect(page.locator("#n-of")).to_have_text(re.compile(r"^1 of \d+$"))
        page.wait_for_function(SHOWN)


def test_a_match_that_comes_late_does_not_take_back_who_went_on(
    browser: Browser, house: House
) -> None:
    """What is fetched for a match is held back until the next ones are asked for: the last stays.

    So it is the one that is shown to who waits for each.
    """
    with browsers.tab(browser, house) as tab:
        waiting: list[Route] = []

        def hold(route: Route) -> None:
            waiting.append(route)

        def go_on(page: Page) -> None:
            before = page.locator("#n-of").inner_text()
            page.locator("#find").press("Enter")
            expect(page.locator("#n-of")).not_to_have_text(before)

        def find_hours() -> Page:
            page = tab.go(tides(house))
            page.locator("#find").fill("hour")
            expect(page.locator("#n-of")).to_have_text("5")
            return page

        def shown(page: Page) -> tuple[str, str | None]:
            page.wait_for_function(SHOWN)
            return page.locator("#n-of").inner_text(), page.locator(".ev.hit").get_attribute("id")

        page, matches = find_hours(), []
        for _ in range(5):
            go_on(page)
            matches.append(shown(page))
        late_requests = 0
        page.route(LATE, hold)
        for steps in (2, 3, 4):
            page = find_hours()
            for _ in range(steps):
                go_on(page)
            page.wait_for_timeout(100)  # for the last request to be made
            late_requests += len(waiting)
            while waiting:
                with page.expect_response(LATE):
                    waiting.pop().continue_()  # the last one first
            page.wait_for_timeout(200)  # for it to be shown, if it is

            assert shown(page) in matches
        assert late_requests
        assert [] == tab.errors


def test_rows_that_come_late_leave_the_match_in_view(browser: Browser, house: House) -> None:
    """The rows at the end are renewed after a match was shown: its mark stays where it is."""
    with browsers.tab(browser, house) as tab:
        waiting: list[Route] = []

        def hold(route: Route) -> None:
            waiting.append(route)

        tab.page.route(RENEWED, hold)
        for step in (1, 2, 3):
            waiting.clear()
            with tab.page.expect_request(RENEWED):  # once the stream of events is open
                page = tab.go(tides(house))
            page.locator("#find").fill("missing")
            for number in range(step):
                page.locator("#find").press("Enter")
                expect(page.locator("#n-of")).to_have_text(re.compile(rf"^{number + 1} of \d+$"))
            page.wait_for_function(SHOWN)
            place = page.evaluate(CURRENT)
            with page.expect_response(waiting[0].request.url):
                waiting[0].continue_()
            page.wait_for_timeout(300)  # for the rows to be renewed

            assert place == page.evaluate(CURRENT)
            assert page.evaluate(SHOWN)


# -- searching ------------------------------------------------------------------------------


def test_every_control_narrows_the_list_and_stays_in_the_address(
    browser: Browser, house: House
) -> None:
    """Project, agent, model, dates, outcome and cost, all together with the words."""
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    with browsers.tab(browser, house) as tab:
        page = tab.go("/sessions?q=tide")
        controls = page.locator("#controls")
        for name, value in (("agent", "claude"), ("project", None), ("model", None)):
            choice = controls.locator(f"select[name={name}]")
            chosen = value or choice.locator("option").nth(1).get_attribute("value")
            choice.select_option(chosen)
            page.wait_for_url(re.compile(rf"q=tide.*{name}="))
        controls.locator("input[name=after]").fill("2020-01-01")
        page.wait_for_url(re.compile("after=2020-01-01"))
        controls.locator("input[name=until]").fill(today)
        page.wait_for_url(re.compile(f"until={today}"))
        controls.locator("input[name=cost]").fill("0.001")
        controls.locator("input[name=cost]").press("Tab")
        page.wait_for_url(re.compile("cost=0.001"))
        page.get_by_role("link", name="done", exact=True).click()
        page.wait_for_url(re.compile("outcome=success"))
        for name in ("q=tide", "agent=", "project=", "model=", "after=", "until=", "cost="):
            assert name in page.url, name
        rows = page.locator(".srow").all_inner_texts()
        page.reload()
        assert rows == page.locator(".srow").all_inner_texts()
        expect(page.locator("#q")).to_have_value("tide")
        expect(controls.locator("select[name=agent]")).to_have_value("claude")

        assert [] == tab.errors


def test_a_session_has_several_snippets_and_its_number_of_matches(
    browser: Browser, house: House
) -> None:
    """Each leads to its own event; no two say the same."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/sessions?q=clock")
        row = page.locator(".srow:has(.tag:text-matches('matches'))").first
        assert re.search(r"\d+\+? matches", row.inner_text())
        texts = row.locator(".snips a").all_inner_texts()
        links = row.locator(".snips a").evaluate_all("(all) => all.map((a) => a.href)")
        assert 1 < len(texts) == len(set(texts)) == len(set(links))
        row.locator(".snips a").nth(1).click()
        page.wait_for_function(SHOWN)


def test_the_syntax_is_on_a_sheet_and_an_unknown_filter_is_said(
    browser: Browser, house: House
) -> None:
    """Every filter of the sheet is one."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/sessions?q=colour%3Ared")
        expect(page.locator("#found")).to_contain_text("colour: is not a filter")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("?")
        sheet = page.locator("#help")
        expect(sheet).to_contain_text("Search")
        examples = sheet.locator("code, dt").all_inner_texts()
        assert {"agent:codex", "kind:error", "-without", '"a phrase"'} <= set(examples)


# -- texts ----------------------------------------------------------------------------------


def test_scripts_that_run_from_right_to_left_do(browser: Browser, own_house: House) -> None:
    """Titles and prompts take their direction from their letters; joiners between letters stay."""
    persian = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \u062c\u062f\u0648\u0644"
    work = own_house.homes.work / "tidepool"
    made = SampleTranscript("right", work, datetime.now(UTC) - timedelta(hours=1))
    made.prompt(persian)
    made.text("Done.\nSecond line.")
    made.save(own_house.homes.claude)
    own_house.swept()
    with browsers.tab(browser, own_house) as tab:
        page = tab.go("/sessions")
        title = page.locator(".srow .title a", has_text="\u062c\u062f\u0648\u0644").first
        expect(title).to_have_css("direction", "rtl")
        title.click()
        expect(page.locator("h1")).to_have_css("direction", "rtl")
        expect(page.locator(".ev[data-kind=prompt] .typed")).to_have_css("direction", "rtl")
        assert persian == page.locator(".ev[data-kind=prompt] .typed").inner_text()
        answer = page.locator(".ev[data-kind=answer] .say").first
        expect(answer).to_have_css("direction", "ltr")
        assert "Done.\nSecond line." == answer.inner_text().strip()


def _write_session(house: House, name: str, at: datetime) -> None:
    """Write a session, and import it."""
    log = SampleTranscript(name, house.homes.work / "tidepool", at)
    log.prompt(f"Look at {name}")
    log.text("Done.")
    log.save(house.homes.claude)
    house.swept()


def test_a_click_on_a_list_that_is_renewed_meanwhile_counts(
    browser: Browser, own_house: House
) -> None:
    """New rows wait until the button is released; then they are shown."""

    def is_renewal(response: Response) -> bool:
        return response.url.endswith("/sessions") and "hx-request" in response.request.headers

    with browsers.tab(browser, own_house) as tab:
        with tab.page.expect_response(is_renewal) as response:  # comes with every stream
            page = tab.go("/sessions")
        response.value.finished()
        expect(page.locator(".beat")).to_have_attribute("data-state", "live")
        title = page.locator(".srow .title a").first
        href, rows = title.get_attribute("href"), page.locator(".srow").count()
        title.hover()
        page.mouse.down()
        with page.expect_response(is_renewal) as response:
            _write_session(own_house, "meanwhile", datetime.now(UTC))
        response.value.finished()
        page.wait_for_timeout(100)

        assert rows == page.locator(".srow").count()
        page.mouse.up()
        page.wait_for_url(re.compile(re.escape(href or "")))


def test_the_calendar_of_the_first_page_follows_new_sessions(
    browser: Browser, own_house: House
) -> None:
    """It is loaded again when there are more of them; the page is not."""
    with browsers.tab(browser, own_house) as tab:
        page = tab.go("/")
        expect(page.locator(".beat")).to_have_attribute("data-state", "live")
        summary = page.locator("#year header .dim").first
        before = int(summary.inner_text().split()[0])
        _write_session(own_house, "tally", datetime.now(UTC) - timedelta(days=100))

        expect(summary).to_have_text(re.compile(f"^{before + 1} active days"))


# -- numbers --------------------------------------------------------------------------------


def test_the_last_seven_days_are_those_of_costs(browser: Browser, house: House) -> None:
    """Agent by agent, sessions and money."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/")
        rows = page.locator(".side-list.spent li:has(.end)")
        shown = {
            row.locator("a").inner_text(): (
                row.locator(".end").inner_text().split()[0],
                row.locator(".nowrap").inner_text(),
            )
            for row in rows.all()
        }
        page = tab.go("/costs?days=7&by=agent")
        cells = [
            row.locator("td").all_inner_texts()
            for row in page.locator("tbody").first.locator("tr").all()
        ]

        assert shown
        assert shown == {line[0]: (line[1], line[5]) for line in cells if line[0] in shown}


def test_the_table_of_costs_sums_up_to_its_heading(browser: Browser, house: House) -> None:
    """The total of the last line is that of the page."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/costs?days=365")
        heading = page.locator("h1").inner_text().split()[0]

        assert heading == page.locator("tfoot td").nth(5).inner_text()


def test_the_page_of_a_subagent_has_its_own_facts(browser: Browser, house: House) -> None:
    """Title, events, time and cost are those of the subagent, not of its session."""
    with browsers.tab(browser, house) as tab:
        page = tab.go(tides(house))
        text = page.locator("#s-facts").inner_text()
        card = page.locator(".agentcard").first
        card.locator("summary").first.click()
        card.get_by_role("link", name="Open on its own page").click()
        page.wait_for_url(re.compile(r"/side/s\d+"))
        facts = page.locator("#s-facts").inner_text()
        assert "subagent" in facts
        assert "4 events" in facts
        assert "$0.02" in facts
        assert "37 events" in text
        assert "The hourly tide table" not in page.locator("h1").inner_text()


def test_a_lower_bound_is_marked_on_every_page(browser: Browser, house: House) -> None:
    """Where a bill is missing, the cost of the session ends in a plus, with the reason."""
    with browsers.tab(browser, house) as tab:
        page = tab.go(tides(house))
        cost = page.locator("#s-facts .why").first
        assert cost.inner_text().endswith("+")
        cost.click()
        expect(page.locator("#why-cost")).to_contain_text("not in the log")
        page = tab.go("/sessions?q=hourly+tide+table")
        row = page.locator(f".srow:has(a[href^='/sessions/{uid_of(house, 'The hourly')}'])")
        assert row.first.locator(".money").inner_text().startswith("$0.25+")


# -- lists ----------------------------------------------------------------------------------


def test_rows_on_a_phone_show_what_they_show_elsewhere(browser: Browser, house: House) -> None:
    """Model, turns, duration, cost, age and outcome."""
    with browsers.tab(browser, house, width=390) as tab:
        page = tab.go("/sessions")
        row = page.locator(".srow", has_text="The hourly tide table").first
        text = row.inner_text()
        for part in ("claude-sonnet", "3 turns", "4 min", "done", "$0.25+"):
            assert part in text, part
        expect(row.locator(".age:visible")).to_have_text(re.compile(r"\d+ (?:min|h|d)|now"))


# -- acting ---------------------------------------------------------------------------------


def test_a_session_is_exported_from_its_page(browser: Browser, house: House) -> None:
    """A button, three forms, a file each."""
    with browsers.tab(browser, house) as tab:
        page = tab.go(tides(house))
        page.locator("[popovertarget=export]").click()
        for name, ending in (("Markdown", "md"), ("HTML", "html"), ("JSON", "jsonl")):
            with page.expect_download() as download:
                page.locator("#export").get_by_role("link", name=re.compile(f"^{name}")).click()

            assert download.value.suggested_filename.endswith(f".{ending}")
            assert b"tide table" in download.value.path().read_bytes()


@pytest.mark.slow
def test_an_answer_that_comes_late_undoes_no_later_filter(browser: Browser, house: House) -> None:
    """The list of the first filter is held back until the second one was chosen."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/sessions")
        waiting: list[Route] = []

        def hold_first(route: Route) -> None:
            if "after=" in route.request.url:
                route.continue_()
            else:
                waiting.append(route)

        page.route("**/sessions?*agent=claude*", hold_first)
        page.locator("#controls select[name=agent]").select_option("claude")
        page.wait_for_url(re.compile("agent=claude"))
        with page.expect_response(re.compile("after=2020-01-01")):
            page.locator("#controls input[name=after]").fill("2020-01-01")
        for route in waiting:
            with page.expect_response(route.request.url):
                route.continue_()
        page.wait_for_timeout(200)  # for the late answer to be shown, if it is

        expect(page.locator("#controls input[name=after]")).to_have_value("2020-01-01")
        assert waiting
        assert [] == tab.errors
