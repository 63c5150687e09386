"""What the viewer promises, in a browser, at every width, on made-up, real and very many sessions.

Each test is a sentence of `docs/viewer.md`. On real sessions and on ten thousand made-up ones
nothing may stick out, keep somebody out, or fail.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect
from playwright.sync_api import Error as PlaywrightError

from tests.conftest import MakeFolder
from tests.pace import PROVING, by_pace
from tests.serve import browser as browsers
from tests.serve import laid
from tests.serve.conftest import House, built
from tests.serve.looks import Look, looks_from
from tests.serve.test_pages import tides
from tests.serve.test_session_search import SHOWN
from thence.agents.claude.sample import SampleTranscript
from thence.memory.store import Filter
from thence.serve import list_page, pattern_page, projects, year
from thence.serve.clock import DisplayClock

pytestmark = [pytest.mark.slow, pytest.mark.sampled]

PAGES = (
    *("/", "/sessions", "/sessions?q=error", "/projects", "/costs?days=0", "/costs?by=time&days=0"),
    *("/patterns?days=365", "/store", "/year"),
)
ROW_SHOWN = """() => {
  const box = document.querySelector(".ev.hit")?.getBoundingClientRect();
  return Boolean(box && box.bottom > 80 && box.top < innerHeight);
}"""
"""Whether the row of a hit without words is in view."""
MANY = int(os.environ.get("THENCE_VIEWER_SESSIONS") or by_pace(everyday=200, full=200, prove=1500))
"""Sessions of the large machine; 10000 in the run that the notes of a release quote."""
LARGE_BYTES = 40_000_000 if MANY >= 10_000 else 2_500 * MANY


@pytest.fixture(scope="module")
def real_house(shared: Path, made_once: Callable[[str, MakeFolder], Path]) -> Iterator[House]:
    """The real sessions of all clients, laid out as the clients lay them, and served."""
    each = by_pace(everyday=60, full=60, prove=1)
    yield from _served(made_once("real-house", lambda to: _keep(laid.real(shared, to, each))))


@pytest.fixture(scope="module")
def large_house(made_once: Callable[[str, MakeFolder], Path]) -> Iterator[House]:
    """Very many small sessions and a large one, served."""
    yield from _served(made_once("large-house", lambda to: _keep(laid.many(to, MANY, LARGE_BYTES))))


def _keep(house: House) -> None:
    """Import all that is there, once for all processes that run tests."""
    house.swept()
    house.close()


def _served(folder: Path) -> Iterator[House]:
    """Serve a machine that was swept; others may do so at the same time."""
    house = House(folder)
    with house.serving():
        yield house
    house.close()


def is_sound(tab: browsers.Tab, path: str, look: Look) -> None:
    """Check that a page fits, keeps nobody out, and that nothing went wrong on it."""
    tab.set_look(look)
    tab.go(path)
    assert tab.fits(), (path, look)
    assert [] == tab.complaints(), (path, look)
    assert [] == tab.violations(), path
    assert [] == tab.errors, path
    assert [] == tab.strangers, path


def forks(house: House) -> list[tuple[str, str]]:
    """Return the forks of which the origin is stored too, each with it."""
    rows = {row.session.session_uid: row for row in house.store.sessions()}
    return [
        (uid, origin)
        for uid, row in rows.items()
        for edge in row.edges
        if edge.link == "fork" and not edge.child
        if (origin := edge.uid(row.session.flavor)) in rows
    ]


# -- everything, everywhere -----------------------------------------------------------------


def test_pages_are_sound_on_real_sessions(browser: Browser, real_house: House, look: Look) -> None:
    """Every page, some sessions of every agent, and forks beside their origins."""
    agents: dict[str, list[str]] = {}
    for row in real_house.store.sessions():
        agents.setdefault(row.session.flavor, []).append(row.session.session_uid)
    pairs = forks(real_house)
    assert len(pairs) > 5
    paths = [f"/sessions/{uids[0]}" for uids in agents.values()]
    paths += [f"/sessions/{fork}/beside/{origin}" for fork, origin in pairs[:6]]
    paths += [f"/projects/one?path={projects.projects(real_house.context, DisplayClock())[0].path}"]
    some = [*PAGES, *paths][:: by_pace(everyday=6, full=6, prove=1)]
    with browsers.tab(browser, real_house) as tab:
        for path, other in zip(some, looks_from(look), strict=False):
            is_sound(tab, path, other)


def test_pages_are_sound_on_very_many_sessions(
    browser: Browser, large_house: House, look: Look
) -> None:
    """The list has a position, an end and a way back; the large session opens and is searched."""
    total = large_house.store.totals()[0].sessions
    assert MANY + 1 == total
    with browsers.tab(browser, large_house) as tab:
        some = PAGES[:: by_pace(everyday=4, full=4, prove=1)]
        for path, other in zip(some, looks_from(look), strict=False):
            is_sound(tab, path, other)
        tab.set_look(look)
        page = tab.go("/sessions")
        expect(page.locator(".pager")).to_contain_text(f"1 to 50 of {total:,}")
        page.get_by_role("link", name="Last").click()
        expect(page.locator(".pager")).to_contain_text(f"to {total:,} of {total:,}")
        page.get_by_role("link", name="First").click()
        expect(page.locator(".pager")).to_contain_text("1 to 50 of")
        largest = next(iter(large_house.store.sessions(Filter(order="tokens", limit=1))))
        page = tab.go(f"/sessions/{largest.session.session_uid}")
        page.locator("#thread > .ev").first.wait_for()
        assert 0 == page.evaluate("scrollY")
        page.locator("#find").fill("self")
        page.locator("#find").press("Enter")
        expect(page.locator("#n-of")).to_have_text(re.compile(r"^\d+ of \d+$"))
        page.wait_for_function("() => Boolean([...(CSS.highlights.get('current') ?? [])][0])")
        assert [] == tab.errors


QUERIES = (
    *("error", "test", "fix", "file", "README", "calc.py", "import", "commit", "branch", "config"),
    *("pytest", "failed", "traceback", "git status", "npm", "docker", "schema", "token", "plan"),
    *("subagent", "todo", "missing", "version", "server", "timeout", "cache", "parser", "session"),
    *('"return a"', '"not found"', "kind:error", "kind:edit test", "kind:test_run", "function add"),
    *("permission", "release", "migrate", "refactor", "hook", "warning"),
)
"""Forty questions that real sessions answer: words, phrases, kinds of events."""
HITS = int(os.environ.get("THENCE_VIEWER_HITS", "200" if PROVING else "8"))
"""Hits that are opened; 200 in the run that the notes of a release quote."""


def test_hits_of_forty_queries_are_seen_and_marked(browser: Browser, real_house: House) -> None:
    """Each leads to its row, in view, in whatever fold it stands; its words are marked."""
    assert 40 == len(QUERIES)
    queries = QUERIES[:: by_pace(everyday=2, full=2, prove=1)]
    addresses = [hit_addresses(real_house, query) for query in queries]
    assert [] == [query for query, hits in zip(queries, addresses, strict=True) if not hits]
    rounds = [hit for some in zip_longest(*addresses) for hit in some if hit is not None]
    step = max(len(rounds) // HITS, 1)
    missed = []
    with browsers.tab(browser, real_house) as tab:
        for path, words in rounds[: HITS * step : step]:
            page = tab.go(path)
            try:
                page.wait_for_function(SHOWN if words else ROW_SHOWN, timeout=20_000)
            except PlaywrightError:
                missed.append(path)
        assert [] == tab.errors

    assert [] == missed
    assert len(rounds) >= HITS


def hit_addresses(house: House, query: str) -> list[tuple[str, bool]]:
    """Return the addresses of the hits of a query in the list, and whether it has words."""
    body = house.ask(f"/sessions?{urlencode({'q': query})}").body.decode()
    paths = re.findall(r'<li><a class="cut" dir="auto" href="([^"]+)"', body)
    has_words = any(":" not in word for word in query.split())
    return [(html.unescape(path), has_words) for path in dict.fromkeys(paths)]


def test_day_headings_of_a_long_list_count_days(large_house: House) -> None:
    """However many pages a day has, and whatever page is shown."""
    made = list_page.page(large_house.context, list_page.ListQuery(), DisplayClock(UTC))
    stored = list_page._sums_by_day(
        large_house.context,
        Filter(),
        datetime.now(UTC).date(),
        DisplayClock(UTC),
        with_earlier=True,
    )
    for day, back in (("Today", 0), ("Yesterday", 1)):
        headings = [heading.sums for heading in made.days if heading.name == day]
        assert not headings or headings == [stored[back]]


# -- seeing more ----------------------------------------------------------------------------


def test_costs_are_seen_by_day_week_month_and_all_time(browser: Browser, house: House) -> None:
    """A bar leads to its period; the table can be had as CSV; all of it is in the address."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/costs")
        page.get_by_role("link", name="All time").click()
        page.get_by_role("group", name="One bar for each").get_by_text("Month").click()
        expect(page.locator("#h-day")).to_have_text("By month")
        page.get_by_role("group", name="Grouped by").get_by_text("Time").click()
        expect(page.locator("#h-by")).to_have_text("By month")
        assert "days=0" in page.url
        assert "per=month" in page.url
        with page.expect_download() as download:
            page.get_by_role("link", name="CSV").click()
        assert "costs-by-month.csv" == download.value.suggested_filename
        rows = download.value.path().read_text().splitlines()
        assert rows[0].startswith("month,sessions,")
        assert len(rows) - 1 == page.locator("tbody").first.locator("tr").count()
        page.locator("svg .bar").last.click()
        expect(page.locator("h1")).to_contain_text("in the")
        assert tab.fits()
        assert [] == tab.complaints()


def test_a_fork_stands_beside_its_origin_from_where_they_part(
    browser: Browser, house: House
) -> None:
    """With edits, tests, cost and outcome of each; what they share is said and not repeated."""
    pairs = forks(house)
    assert pairs
    fork, _ = pairs[0]
    with browsers.tab(browser, house) as tab:
        page = tab.go(f"/sessions/{fork}")
        page.get_by_role("link", name="compare").first.click()
        expect(page.locator(".compare section")).to_have_count(2)
        expect(page.locator(".parted")).to_contain_text("Both share")
        for name in ("Outcome", "Files edited", "Test runs", "Cost"):
            expect(page.locator("tbody th", has_text=name)).to_have_count(1)
        left, right = (section.inner_text() for section in page.locator(".compare section").all())
        prompts = page.locator(
            ".compare :is([data-kind=prompt], [data-kind=correction]) .say"
        ).all_inner_texts()
        assert left != right
        assert prompts
        assert len(prompts) == len(set(prompts))
        assert tab.fits()
        assert [] == tab.complaints()
        assert [] == tab.errors
    assert 404 == house.ask(f"/sessions/{fork}/beside/{fork}").status


def test_every_fork_of_real_clients_is_aligned(real_house: House) -> None:
    """Whatever an agent writes down of a fork: what is shared stands on neither side."""
    aligned = 0
    for fork, origin in forks(real_house):
        answer = real_house.ask(f"/sessions/{fork}/beside/{origin}")
        assert 200 == answer.status
        aligned += b"Both share" in answer.body
    assert aligned >= 20


def test_tools_and_files_of_the_last_weeks_are_counted(house: House) -> None:
    """Files that sessions edited, each with a search that finds those sessions."""
    made = year.year(house.context, DisplayClock(UTC))
    assert made.tools
    assert made.files
    for file in made.files:
        assert file.edits >= file.sessions >= 1
        assert b'class="srow' in house.ask(file.href).body, file.path


# -- numbers, days and zones ----------------------------------------------------------------


def test_days_of_the_list_are_those_of_the_zone(tmp_path: Path) -> None:
    """A day that is chosen is a local one, its last minute included; the zone is shown."""
    house = built(tmp_path)
    log = SampleTranscript("late", house.homes.work, datetime(2026, 3, 3, 23, 30, tzinfo=UTC))
    log.prompt("A late question")
    log.text("A late answer.")
    log.save(house.homes.claude)
    house.swept()
    with house.serving():
        utc = "/sessions?after=2026-03-03&until=2026-03-03&tz=UTC"
        for path, is_listed in (
            (utc, True),
            (utc.replace("UTC", "Asia%2FTokyo"), False),
            ("/sessions?after=2026-03-04&until=2026-03-04&tz=Asia%2FTokyo", True),
        ):
            body = house.ask(path).body
            assert is_listed == (b"A late question" in body), path
        assert b"Asia/Tokyo" in house.ask("/sessions?tz=Asia%2FTokyo").body
        assert b"by day, Asia/Tokyo" in house.ask("/?tz=Asia%2FTokyo").body.replace(
            b"by hour and by day", b"by day"
        )
        asked = "?q=late+after%3A2026-03-04+before%3A2026-03-05&tz="
        for zone, is_found in (("UTC", False), ("Asia%2FTokyo", True)):
            assert is_found == (
                b"late" in house.ask(f"/sessions{asked}{zone}").body.partition(b"srow")[2]
            )
            for path in ("/api/search", "/api/sessions"):
                answer = house.ask(f"{path}{asked}{zone}").json
                assert is_found == bool(answer.get("hits") or answer.get("sessions")), path
        uid = f"claude:{log.id}"
        assert b"Wed 4 Mar, 08:30" in house.ask(f"/sessions/{uid}?tz=Asia%2FTokyo").body
        assert 400 <= house.ask("/sessions?tz=Mars%2FOlympus").status < 500
    house.close()


def test_the_year_is_shown_when_it_is_not_this_one(browser: Browser, tmp_path: Path) -> None:
    """On the page of a session and in lists."""
    house = built(tmp_path)
    start = datetime(2024, 5, 6, 10, 0, tzinfo=UTC)
    log = SampleTranscript("old", house.homes.work, start)
    log.prompt("An old question")
    log.text("An old answer.")
    log.clock.after(40 * 86_400)
    log.prompt("Once more")
    log.text("Still the same.")
    log.save(house.homes.claude)
    house.swept()
    with house.serving(), browsers.tab(browser, house) as tab:
        page = tab.go(f"/sessions/claude:{log.id}")
        facts = page.locator("#s-facts")
        expect(facts).to_contain_text("2024")
        expect(facts).to_contain_text("at work")
        assert "960 h" not in facts.inner_text()
        expect(page.locator("#thread")).to_contain_text("40 days later")
        page = tab.go("/sessions?q=old")
        expect(
            page.locator(".srow", has_text="An old question").locator(".age").last
        ).to_contain_text("2024")
    house.close()


# -- patterns -------------------------------------------------------------------------------


def test_a_pattern_of_the_page_and_of_the_api_needs_two_sessions(house: House) -> None:
    """Both show the same ones; each says what its cases share and has evidence of several."""
    made = pattern_page.page(house.context, "", 3650)
    known = house.ask("/api/patterns").json["patterns"]

    assert known
    assert len(known) == len(made.shown)
    for pattern, shown in zip(known, made.shown, strict=True):
        assert pattern["sessions"] == shown.sessions >= 2
        assert len({proof["uid"] for proof in pattern["evidence"]}) >= 2
        assert pattern["shared"].lower()[:40] == shown.title.lower()[:40] != ""


def test_evidence_stands_before_the_fix(browser: Browser, house: House) -> None:
    """And leads to the event that it is."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/patterns?days=365")
        heads = page.locator(".pat[open] h3").all_inner_texts()
        assert ["Evidence", "Fix"] == heads
        page.locator(".pat[open] .ev-list a").first.click()
        expect(page.locator(".ev.hit")).to_be_in_viewport()


# -- acting ---------------------------------------------------------------------------------


def test_resume_shows_the_command_of_the_agent_and_copies_it(
    browser: Browser, house: House
) -> None:
    """By key, beside its button; a copy says that it was made."""
    with browsers.tab(browser, house) as tab:
        tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = tab.go(tides(house))
        page.keyboard.press("r")
        pop = page.locator("#resume")
        expect(pop).to_be_visible()
        line = pop.locator("code").first.inner_text()
        assert re.fullmatch(r"cd \S+ && claude --resume [0-9a-f-]{36}", line)
        pop.get_by_role("button", name="Copy").first.click()
        expect(page.locator("#toast")).to_have_text("Copied")
        assert line == page.evaluate("navigator.clipboard.readText()")
        button = page.locator("[popovertarget=resume]").bounding_box()
        box = pop.bounding_box()
        assert button is not None
        assert box is not None
        centre = button["x"] + button["width"] / 2
        assert box["x"] <= centre <= box["x"] + box["width"] <= page.evaluate("innerWidth")
        assert 0 <= box["y"] - button["y"] - button["height"] < 60


def test_the_box_at_the_top_finds_projects_too(browser: Browser, house: House) -> None:
    """Ctrl-K, a part of the name, Enter on the entry."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/costs")
        page.keyboard.press("Control+k")
        page.locator("#q").press_sequentially("tidep", delay=15)
        entry = page.locator("#drop a", has_text="project tidepool")
        expect(entry).to_be_visible()
        entry.click()
        expect(page.locator("h1")).to_have_text("tidepool")


def test_rows_have_a_time_a_link_a_copy_button_and_a_raw_view(
    browser: Browser, house: House
) -> None:
    """Every row that holds anything of its own."""
    with browsers.tab(browser, house) as tab:
        page = tab.go(tides(house))
        missing = page.evaluate(
            """() => [...document.querySelectorAll("#thread .ev[id]")]
              .filter((row) => !["branch", "copied"].includes(row.dataset.kind))
              .filter((row) => !row.querySelector("time") || !row.querySelector(".acts a")
                || row.querySelectorAll(":scope > .acts button").length < 2)
              .map((row) => row.dataset.kind)"""
        )
        assert [] == missing


def test_neighbours_lead_through_the_sessions_and_back(browser: Browser, house: House) -> None:
    """`]` to the older one, `[` back to the newer."""
    with browsers.tab(browser, house) as tab:
        page = tab.go(tides(house))
        here = page.url
        page.keyboard.press("]")
        page.wait_for_url(lambda url: url != here)
        page.keyboard.press("[")
        page.wait_for_url(here)


# -- what must not be lost ------------------------------------------------------------------


def test_the_thread_keeps_what_no_other_viewer_has(browser: Browser, house: House) -> None:
    """Branches, compactions and subagents in place, corrections, tests, diffs, map, outline."""
    with browsers.tab(browser, house) as tab:
        page = tab.go(tides(house))
        kinds = set(
            page.evaluate("[...document.querySelectorAll('.ev')].map((el) => el.dataset.kind)")
        )
        assert {"prompt", "correction", "branch", "boundary", "agent", "test", "edit"} <= kinds
        for part in (".map .ctx", ".outline ol", ".jump b", ".test .ticks", ".diff .add"):
            expect(page.locator(part).first).to_be_attached()
        page.get_by_role("button", name="$").first.click()
        expect(page.locator("#why-cost")).to_be_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        expect(page.locator("#help")).to_be_visible()


def test_back_restores_the_place_in_a_list(browser: Browser, large_house: House) -> None:
    """Who opens a session far down and comes back is where he was."""
    with browsers.tab(browser, large_house) as tab:
        page: Page = tab.go("/sessions?cursor=100")
        page.evaluate("scrollTo(0, 900)")
        page.wait_for_function("() => scrollY > 800")
        page.locator(".srow .title a").nth(22).click()
        page.wait_for_url("**/sessions/claude:*")
        page.go_back()
        page.wait_for_function("() => scrollY > 600")
        expect(page.locator(".pager")).to_contain_text("101 to 150")


def test_old_to_dos_are_not_listed(tmp_path: Path) -> None:
    """Of a list that an agent left open, only those of the last 14 days stand on the first page."""
    house = built(tmp_path)
    for name, days in (("fresh list", 2), ("stale list", 20)):
        log = SampleTranscript(name, house.homes.work, datetime.now(UTC) - timedelta(days=days))
        log.prompt(f"Make a {name}")
        todos = [{"content": f"Paint the {name}", "status": "pending", "activeForm": "Painting"}]
        log.call("TodoWrite", {"todos": todos}, "ok")
        log.text("Noted.")
        log.save(house.homes.claude)
    house.swept()
    with house.serving():
        body = house.ask("/").body.decode()
    house.close()

    assert "Paint the fresh list" in body
    assert "Paint the stale list" not in body
