"""The pages as a person sees them: in a real browser, and without its scripts."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, expect

from tests.pace import by_pace
from tests.serve import browser as browsers
from tests.serve.conftest import House, built
from tests.serve.looks import Look, looks_from
from thence.agents.claude.sample import SampleTranscript
from thence.memory.store import Filter

pytestmark = pytest.mark.slow

PAGES = (
    "/",
    "/sessions",
    "/sessions?q=clock",
    "/projects",
    "/costs",
    "/costs?by=session",
    "/patterns",
    "/store",
)


def uid_of(house: House, title: str) -> str:
    """Find a made-up session by the beginning of its title."""
    rows = house.store.sessions(Filter())
    return next(r.session.session_uid for r in rows if (r.title or "").startswith(title))


def tides(house: House) -> str:
    """Return the address of the session with everything in it."""
    return f"/sessions/{uid_of(house, 'The hourly tide table')}"


# -- every page -----------------------------------------------------------------------------


def test_every_page_is_whole_at_every_width_in_light_and_dark(
    browser: Browser, house: House, look: Look
) -> None:
    """No error, nothing sticks out, nothing keeps somebody out, nobody else is asked.

    Each page at another look; all pages at all looks where this runs at all looks.
    """
    with browsers.tab(browser, house) as tab:
        for path, other in zip(PAGES, looks_from(look), strict=False):
            tab.set_look(other)
            page = tab.go(path)
            expect(page.locator("h1")).to_be_visible()

            assert tab.fits(), (path, other)
            assert [] == tab.complaints(contrast=True), (path, other)
            assert [] == tab.violations(), path
        assert [] == tab.errors
        assert [] == tab.strangers


@pytest.mark.sampled
def test_every_session_is_whole_with_all_its_folds_open(
    browser: Browser, house: House, look: Look
) -> None:
    """Of every agent: branches, calls, thoughts, subagents, compactions."""
    step = by_pace(everyday=4, full=4, prove=1)
    rows = list(house.store.sessions(Filter()))[::step]
    with browsers.tab(browser, house) as tab:
        for row, other in zip(rows, looks_from(look), strict=False):
            tab.set_look(other)
            tab.go(f"/sessions/{row.session.session_uid}")
            tab.opened()

            assert tab.fits(), (row.title, other)
            assert [] == tab.complaints(contrast=True), (row.title, other)
            assert [] == tab.violations()
        assert [] == tab.errors
        assert [] == tab.strangers


def test_pages_work_without_script(browser: Browser, house: House) -> None:
    """Search is a form, filters and folds are links, bodies are pages of their own."""
    with browsers.tab(browser, house, script=False) as tab:
        page = tab.go("/sessions")
        page.fill("#q", "clock")
        page.press("#q", "Enter")
        expect(page.locator(".srow mark").first).to_have_text(re.compile("clock", re.IGNORECASE))
        page.locator(".srow a").first.click()
        expect(page.locator(".thread .ev").first).to_be_visible()

        page = tab.go(tides(house))
        page.locator(".branch summary").first.click()
        page.locator(".branch .more a").first.click()
        expect(page.locator(".branch[open] .ev[data-state=dead]").first).to_be_visible()

        page = tab.go(tides(house))
        page.locator(".call summary").first.click()
        page.locator(".call[open] .more a").first.click()
        expect(page.locator(".out").first).to_be_visible()


# -- one session ----------------------------------------------------------------------------


def test_a_dead_branch_opens_in_place(browser: Browser, house: House) -> None:
    """Its events come when it is opened, and stand in the lane beside the line."""
    with browsers.tab(browser, house) as tab:
        page = tab.go(tides(house))
        branch = page.locator(".branch").first
        expect(branch.locator(".ev[data-state=dead]")).to_have_count(0)
        branch.locator("summary").click()
        expect(branch.locator(".ev[data-state=dead]").first).to_be_visible()
        expect(branch).to_contain_text("I added the missing hour")

        assert [] == tab.errors


def test_a_compaction_unfolds_to_the_original_events(browser: Browser, house: House) -> None:
    """What the model was left with first, then what was said before."""
    with browsers.tab(browser, house) as tab:
        page = tab.go(tides(house))
        bound = page.locator(".bound")
        expect(bound).to_contain_text("Compacted")
        expect(bound.locator(".ev .call, .ev .test")).to_have_count(0)
        bound.locator("summary").first.click()
        expect(bound.locator(".gist")).to_be_visible()
        expect(bound.locator(".ev .test").first).to_be_visible()


def test_a_call_gives_its_body_when_it_is_opened(browser: Browser, house: House) -> None:
    """Folded it says what, how it went and how large; the body is fetched once."""
    with browsers.tab(browser, house) as tab:
        page = tab.go(f"/sessions/{uid_of(house, 'The gauge import')}")
        call = page.locator(".call").first
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        call.locator("summary").click()
        expect(call.locator(".out").first).to_be_visible()
        call.locator("summary").click()
        call.locator("summary").click()

        assert 1 == len([url for url in asked if "/event/" in url])


def test_an_edit_is_a_diff_and_a_test_run_its_counts(browser: Browser, house: House) -> None:
    """Lines that went and came; how many tests failed and passed."""
    with browsers.tab(browser, house) as tab:
        page = tab.go(tides(house))
        diff = page.locator(".ev[data-state=live] .diff").first
        expect(diff.locator("tr.del")).to_contain_text("tzinfo=zone)")
        expect(diff.locator("tr.add")).to_contain_text("astimezone(UTC)")
        expect(page.locator(".test .verdict", has_text="2 failed")).to_be_visible()


def test_a_subagent_stands_in_place_and_opens_alone(browser: Browser, house: House) -> None:
    """Closed it says what it returned; alone it is a page."""
    with browsers.tab(browser, house) as tab:
        page = tab.go(tides(house))
        card = page.locator(".agentcard").first
        expect(card).to_contain_text("Returned: Three callers")
        card.locator("summary").first.click()
        expect(card.locator(".ev[data-state=side]").first).to_be_visible()
        card.locator(".task summary").click()
        expect(card.locator(".task .out")).to_contain_text("Three callers")
        card.get_by_role("link", name="Open on its own page").click()
        expect(page.locator(".crumbs")).to_contain_text("explorer")
        expect(page.locator("#thread .ev[data-state=side]").first).to_be_visible()
        expect(page.locator("h1")).to_have_text("Find callers that use the label as an identifier.")
        expect(page.locator("#s-facts")).to_contain_text("4 events, 8.2 s")
        expect(page.locator("#s-facts")).to_contain_text("$0.02")


def test_an_interrupted_call_is_marked(browser: Browser, house: House) -> None:
    """It was started, and no result was ever written."""
    with browsers.tab(browser, house) as tab:
        page = tab.go(f"/sessions/{uid_of(house, 'Speed up the colour index')}")

        expect(page.locator(".inter, .tail code").first).to_be_visible()
        expect(page.locator(".tail")).to_contain_text("Stopped in the middle of a turn")


@pytest.mark.sampled
def test_an_event_that_is_asked_for_is_in_view_wherever_it_is(
    browser: Browser, house: House
) -> None:
    """On a branch, inside a compaction, in a subagent: what holds it is open."""
    uid = uid_of(house, "The hourly tide table")
    with browsers.tab(browser, house) as tab:
        events = [row.event.event_id for row in house.store.events(uid)]
        for event in events[:: by_pace(everyday=9, full=9, prove=1)]:
            page = tab.go(f"/sessions/{uid}?at=e{event:013x}")
            expect(page.locator("#thread .ev").first).to_be_visible()
        dead = house.store.sessions(Filter(uid=uid))
        assert next(dead)
        page = tab.go(tides(house))
        page.locator(".branch summary").first.click()
        name = page.locator(".branch .ev[data-state=dead]").first.get_attribute("id")
        page = tab.go(f"/sessions/{uid}?at={name}")
        expect(page.locator(f"#{name}")).to_be_visible()

        assert [] == tab.errors


@pytest.mark.sampled
def test_the_outline_and_the_map_lead_to_their_events(browser: Browser, house: House) -> None:
    """Every link of both leads to something on the page."""
    with browsers.tab(browser, house) as tab:
        page = tab.go(tides(house))
        links = page.locator(".outline a, .map a")
        hrefs = links.evaluate_all("(all) => all.map((a) => a.getAttribute('href'))")
        assert hrefs
        for href in hrefs[:: by_pace(everyday=9, full=9, prove=1)]:
            page = tab.go(f"{tides(house)}{href}" if href.startswith("#") else href)
            name = href.partition("#")[2]
            expect(page.locator(f"[id='{name}']")).to_be_visible()


@pytest.mark.parametrize("width", [1440, 1100, 800])
def test_the_outline_has_its_room_with_a_map_and_without(
    width: int, browser: Browser, own_house: House
) -> None:
    """A session in which no turn was billed has no map; on a narrow page the outline is above."""
    bare = SampleTranscript("bare", own_house.homes.work / "tidepool", datetime.now(UTC))
    bare.prompt("Is anybody there?", wait=1)
    bare.save(own_house.homes.claude)
    own_house.swept()
    with browsers.tab(browser, own_house, width=width) as tab:
        for path, maps in ((tides(own_house), 1), (f"/sessions/claude:{bare.id}", 0)):
            page = tab.go(path)
            assert maps == page.locator(".map").count()
            outline = page.locator(".outline").bounding_box()
            main = page.locator(".s-main").bounding_box()
            assert outline
            assert main
            assert outline["width"] >= 264
            beside = outline["x"] >= main["x"] + main["width"]
            assert beside if width > 900 else outline["y"] < main["y"]


def test_a_long_session_comes_as_one_reads_on(browser: Browser, own_house: House) -> None:
    """About 200 rows at first; more when their place comes into view; in the end all, once."""
    work = own_house.homes.work / "tidepool"
    long = SampleTranscript("long", work, datetime.now(UTC) - timedelta(days=1))
    for number in range(150):
        long.prompt(f"Question {number}.", wait=1)
        long.text(f"Answer {number}.")
    long.save(own_house.homes.claude)
    own_house.swept()
    with browsers.tab(browser, own_house) as tab:
        page = tab.go(f"/sessions/claude:{long.id}")
        rows = page.locator("#thread > .ev[id]")
        assert 200 == rows.count()
        expect(page.locator("#thread > .more-rows")).to_contain_text("100 events after")
        page.locator("#thread > .more-rows").scroll_into_view_if_needed()
        expect(rows).to_have_count(300)
        expect(page.locator("#thread > .tail-row")).to_have_count(1)
        ids = rows.evaluate_all("(all) => all.map((e) => e.id)")
        assert 300 == len(set(ids))
        page = tab.go(f"/sessions/claude:{long.id}?at={ids[280]}")
        expect(page.locator("#thread > .more-rows")).to_contain_text("100 events before")
        page.locator("#thread > .more-rows a").click()
        expect(page.locator("#thread > .ev[id]")).to_have_count(300)

        assert [] == tab.errors


# -- keys and themes ------------------------------------------------------------------------


def test_keys_move_fold_and_find(browser: Browser, house: House) -> None:
    """`j k` move, `c x e` jump, `b t` open, `/` searches, `?` explains, `g` goes."""
    with browsers.tab(browser, house) as tab:
        page = tab.go(tides(house))
        page.keyboard.press("j")
        expect(page.locator(".cursor")).to_have_count(1)
        first = page.locator(".cursor").get_attribute("id")
        page.keyboard.press("j")
        assert first != page.locator(".cursor").get_attribute("id")
        page.keyboard.press("k")
        assert first == page.locator(".cursor").get_attribute("id")
        page.keyboard.press("c")
        expect(page.locator(".cursor")).to_have_attribute("data-kind", "correction")
        page.keyboard.press("x")
        expect(page.locator(".cursor")).to_have_attribute("data-kind", "test")
        page.keyboard.press("b")
        expect(page.locator(".branch[open] .ev").first).to_be_visible()
        page.keyboard.press("?")
        expect(page.locator("#help")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("#help")).not_to_be_visible()
        page.keyboard.press("/")
        expect(page.locator("#q")).to_be_focused()
        page.keyboard.press("Escape")
        page.keyboard.press("g")
        page.keyboard.press("s")
        expect(page.locator("h1")).to_have_text("Sessions")

        assert [] == tab.errors


def test_the_theme_stays_as_it_was_chosen(browser: Browser, house: House) -> None:
    """Light by the system, dark by choice, on the next page too."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/")
        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.click("[data-act=theme]")
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert light != dark
        page = tab.go("/costs")

        assert dark == page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_the_first_tab_stop_skips_to_the_content(browser: Browser, house: House) -> None:
    """Who walks by keys need not pass the bar."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/sessions")
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        page.keyboard.press("Enter")

        assert page.url.endswith("#main")


# -- search ---------------------------------------------------------------------------------


def test_search_answers_while_it_is_typed_and_stays_in_the_address(
    browser: Browser, house: House
) -> None:
    """The hit stands in its sentence; going back goes back; a reload shows the same."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/sessions")
        before = page.locator(".srow").count()
        page.locator("#q").press_sequentially("harbour dues", delay=20)
        expect(page.locator(".srow mark").first).to_have_text(re.compile("harbour", re.IGNORECASE))
        page.wait_for_url(re.compile(r"q=harbour(?:[+]|%20)dues"))
        assert page.locator(".srow").count() < before
        expect(page.locator("#lede")).to_contain_text("match")
        page.reload()
        expect(page.locator("#q")).to_have_value("harbour dues*")
        expect(page.locator(".srow mark").first).to_be_visible()

        assert [] == tab.errors


def test_filters_are_in_the_address_and_come_off_again(browser: Browser, house: House) -> None:
    """A control puts a filter on, its chip takes it off."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/sessions")
        page.locator("#controls select[name=agent]").select_option("grok")
        expect(page.locator(".srow .agent[data-agent=claude]")).to_have_count(0)
        page.wait_for_url(re.compile("agent=grok"))
        page.locator(".chip.on").click()
        expect(page.locator(".srow .agent[data-agent=claude]").first).to_be_visible()


def test_a_query_that_means_nothing_says_what_would(browser: Browser, house: House) -> None:
    """No error page: a sentence, and what to write."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/sessions?q=after:someday")
        expect(page.locator(".notice")).to_contain_text("not a date")
        expect(page.locator(".notice")).to_contain_text("2026-01-31")


# -- costs ----------------------------------------------------------------------------------


def test_every_number_explains_itself(browser: Browser, house: House) -> None:
    """The dead share opens its own explanation, without leaving the page."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/costs")
        page.locator("button.why").first.click()
        expect(page.locator(".pop:popover-open")).to_contain_text("rewound")


def test_costs_drill_down_from_a_model_to_the_session(browser: Browser, house: House) -> None:
    """Model, sessions of it, the session itself."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/costs?days=90")
        page.locator(".tbl td a").first.click()
        expect(page.locator("h2", has_text="By session")).to_be_visible()
        page.locator(".tbl td a").first.click()
        expect(page.locator("#thread .ev").first).to_be_visible()


# -- live -----------------------------------------------------------------------------------


def goes_on(house: House, uid: str, text: str) -> None:
    """Let somebody say one more thing in a session, as its agent writes it."""
    path = Path(next(house.store.sessions(Filter(uid=uid))).files[0])
    last = json.loads(path.read_text("utf-8").splitlines()[-1])
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    record = {
        **last,
        "type": "user",
        "uuid": str(uuid4()),
        "parentUuid": last["uuid"],
        "timestamp": now,
        "message": {"role": "user", "content": text},
    }
    record.pop("requestId", None)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def test_what_is_written_appears_without_a_reload(browser: Browser, own_house: House) -> None:
    """Once, at the end, before the one row that says how it stands."""
    uid = uid_of(own_house, "What does clock.py do?")
    with browsers.tab(browser, own_house) as tab:
        page = tab.go(f"/sessions/{uid}")
        expect(page.locator(".beat")).to_have_attribute("data-state", "live")
        rows = page.locator("#thread > .ev").count()
        for text in ("And what does it not do?", "And why?"):
            goes_on(own_house, uid, text)
            expect(page.locator("#thread .ev", has_text=text)).to_have_count(1)

        assert rows < page.locator("#thread > .ev").count()
        assert 1 == page.locator("#thread .tail-row").count()
        assert "tail" == page.locator("#thread > .ev").last.get_attribute("data-kind")
        assert [] == tab.errors


def test_now_shows_what_begins_to_run(browser: Browser, own_house: House) -> None:
    """The page of what needs me is live as well."""
    uid = uid_of(own_house, "What does clock.py do?")
    with browsers.tab(browser, own_house) as tab:
        page = tab.go("/")
        expect(page.locator(".beat")).to_have_attribute("data-state", "live")
        goes_on(own_house, uid, "Go on.")

        expect(page.locator(".runrow h3").first).to_have_text("What does clock.py do?")


def test_a_page_catches_up_after_a_restart_of_the_server(browser: Browser, tmp_path: Path) -> None:
    """Who signs in again finds what was said meanwhile in the open page: no gap, no double."""
    first = built(tmp_path)
    uid = uid_of(first, "What does clock.py do?")
    with ExitStack() as stack:
        with first.serving():
            tab = stack.enter_context(browsers.tab(browser, first))
            page = tab.go(f"/sessions/{uid}")
            expect(page.locator(".beat")).to_have_attribute("data-state", "live")
            before = page.locator("#thread > .ev[id]").count()
        expect(page.locator(".beat")).to_have_attribute("data-state", "lost")
        goes_on(first, uid, "Were you away?")
        first.close()
        second = House(tmp_path, first.port)
        stack.callback(second.close)
        second.swept()
        with second.serving():
            expect(page.locator(".beat")).to_have_text("signed out: run thence serve")
            page.context.new_page().goto(second.gate.url())
            expect(page.locator("#thread .ev", has_text="Were you away?")).to_have_count(1)
            expect(page.locator(".beat")).to_have_attribute("data-state", "live")
            assert before + 1 == page.locator("#thread > .ev[id]").count()
            ids = page.locator("#thread > .ev[id]").evaluate_all("(all) => all.map((e) => e.id)")
            assert len(ids) == len(set(ids))
