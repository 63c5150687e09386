"""Getting to the right place: hits are shown where they stand, whatever is folded over them."""

from __future__ import annotations

import gc
import re
from datetime import UTC, datetime, timedelta
from weakref import ref

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.memory.test_highlighting import MARKED_TERMS, MARKED_TEXTS
from tests.pace import by_pace
from tests.serve import browser as browsers
from tests.serve.conftest import House
from tests.serve.test_pages import goes_on, tides, uid_of
from thence.agents.claude.sample import SampleTranscript
from thence.memory.highlighting import marking_of
from thence.memory.open_todos import dismissed_todos, open_promises
from thence.memory.search import parse
from thence.memory.store import Filter
from thence.serve import session_search
from thence.serve.chart import Chart
from thence.serve.chart_cache import charts_of
from thence.serve.clock import DisplayClock
from thence.serve.session_head import address
from thence.serve.session_search import find, paths_of

SHOWN = """() => {
  const row = document.querySelector(".ev.hit"), box = row?.getBoundingClientRect();
  const range = [...(CSS.highlights.get("current") ?? [])][0];
  const mark = range?.getBoundingClientRect();
  if (document.querySelector(".finder[aria-busy=true]")) return false;
  return Boolean(box && box.bottom > 80 && box.top < innerHeight
    && row.contains(range?.startContainer)
    && mark && mark.width && mark.top > 60 && mark.bottom < innerHeight);
}"""
"""Whether the row of a hit is in view, and in it the word that was looked for.

Until the page has what the next match is in, the match before it is marked.
"""

QUERIES = ("clock", "hour", "token", "pytest", "gauge", '"missing hour"', "kind:error failed")


@pytest.mark.slow
def test_every_event_has_a_row_and_the_folds_that_lead_to_it(house: House) -> None:
    """The way to it begins on the page and ends at a row; matches come in reading order."""
    for row in house.store.sessions():
        chart = charts_of(house.context).get(house.context, row)
        paths = paths_of(chart)
        for place, record in enumerate(chart.records):
            for block in range(len(record.blocks)):
                number = paths.row_number(place, block)
                assert number is not None or not chart.rows
                if number is not None:
                    trail = paths.trail(number)
                    assert "" == trail[0].part
                    assert all(step.part for step in trail[1:])
        numbers = [match.row for match in find(chart, "e").matches]
        assert numbers == sorted(numbers)


def test_words_are_found_in_what_is_folded(house: House) -> None:
    """In results, discarded branches, subagents and compacted parts; in any case and order."""
    uid = uid_of(house, "The hourly tide table")
    chart = charts_of(house.context).get(house.context, house.context.row(uid))
    parts = set()
    for word in ("hour", "test", "the"):
        for match in find(chart, word).matches:
            parts |= {step.part[:1] for step in paths_of(chart).trail(match.row)}
            kind = chart.records[match.place].blocks[match.block].kind
            parts |= {kind} if kind == "tool_result" else set()

    assert {"", "b", "k", "s", "tool_result"} <= parts
    assert find(chart, "HOUR missing").matches == find(chart, "missing hour").matches != ()
    assert () == find(chart, "nosuchwordanywhere").matches == find(chart, "").matches


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "text", "marked"),
    [
        ("exit code 2", "exit code 2", ["exit", "code", "2"]),
        ("exit code", "exit code 2", ["exit", "code"]),
        ("ex", "exit", ["ex"]),
        ("rror", "ValueError", ["rror"]),
        ("x", "none", []),
    ],
)
def test_words_of_a_session_are_whole_then_begun_then_anywhere(
    own_house: House, query: str, text: str, marked: list[str]
) -> None:
    """Wider only where nothing narrower matches; a single character is never a part of a word."""
    begun = datetime.now(UTC) - timedelta(minutes=30)
    log = SampleTranscript("marks", own_house.homes.work / "tidepool", begun)
    log.prompt("The gcode job of 23:13 ended, unexiting: exit code 2, then ValueError.")
    log.save(own_house.homes.claude)
    own_house.swept()
    row = own_house.context.row(f"claude:{log.id}")
    result = find(charts_of(own_house.context).get(own_house.context, row), query)

    assert bool(marked) is bool(result.matches)
    assert marked == [text[at:to] for at, to in result.marking.spans(text)]


@pytest.mark.slow
def test_searched_sessions_are_let_go(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts up to a limit stay at hand; a chart that nobody uses any more is not held."""
    charts = [charts_of(house.context).get(house.context, row) for row in house.store.sessions()]
    monkeypatch.setattr(session_search, "MAX_CACHED_CHARACTERS", 5_000)
    for chart in [*charts, min(charts, key=lambda drawn: len(drawn.records))]:
        find(chart, "clock")
    assert sum(index.characters for entry in session_search._USED if (index := entry())) <= 5_000

    alone = Chart(charts[0].session)
    find(alone, "clock")
    gone = ref(alone)
    del alone
    gc.collect()
    assert gone() is None


# -- in a browser ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.sampled
def test_opening_a_hit_shows_the_hit(browser: Browser, house: House) -> None:
    """Every hit of several searches: its folds open, its row in view, the word marked."""
    with browsers.tab(browser, house) as tab:
        opened = 0
        for query in QUERIES:
            hits = house.store.search(parse(query), 40).matches
            for hit in hits[: by_pace(everyday=1, full=1, prove=6)]:
                event = hit.event_id if hit.derived_from is None else hit.derived_from
                if event is None:
                    continue
                page = tab.go(address(hit.session_uid, event, query))
                page.wait_for_function(SHOWN)
                opened += 1
        assert tab.fits()
        assert [] == tab.complaints()
        assert [] == tab.violations()
        assert [] == tab.errors
        assert opened >= len(QUERIES) - 1


@pytest.mark.slow
def test_the_browser_marks_what_snippets_mark(browser: Browser, own_house: House) -> None:
    """The expression that it gets means the same there, and words end where boxes end."""
    log = SampleTranscript("marks", own_house.homes.work / "tidepool", datetime.now(UTC))
    log.prompt("The gcode job of 23:13 ended with exit code 2, not 22 or 2b.")
    log.text("| exit | code |\n| --- | --- |\n| exit | 2 |\n| 2 | gcode |")
    log.save(own_house.homes.claude)
    own_house.swept()
    texts = [*MARKED_TEXTS, "e\u0301xit 2", "\u0130 exit", "x\u00b2 2"]
    with browsers.tab(browser, own_house) as tab:
        page = tab.go(f"/sessions/claude:{log.id}?q=exit+code+2")
        marks = page.wait_for_function(
            """() => { const found = [...(CSS.highlights.get("found") ?? [])].map(String);
                       return found.length ? found : null; }"""
        ).json_value()
        seen = page.evaluate(
            """([sources, texts]) => sources.map((source) => texts.map((text) =>
                 [...text.matchAll(new RegExp(source, "giu"))].map((match) => match[0])))""",
            [[marking_of(terms).script for terms in MARKED_TERMS], texts],
        )

    expected = [
        [[text[at:to] for at, to in marking_of(terms).spans(text)] for text in texts]
        for terms in MARKED_TERMS
    ]
    assert expected == seen
    assert ["exit", "code", "2", "exit", "code", "exit", "2", "2"] == marks


@pytest.mark.slow
def test_keys_step_through_the_matches_of_a_session(browser: Browser, house: House) -> None:
    """`f` finds, Enter and `n` go on, `N` goes back, folds open; it says where one is."""
    with browsers.tab(browser, house) as tab:
        page = tab.go(tides(house))
        page.keyboard.press("f")
        expect(page.locator("#find")).to_be_focused()
        page.locator("#find").press_sequentially("missing", delay=15)
        expect(page.locator("#n-of")).to_have_text(re.compile(r"^\d+$"))
        number = int(page.locator("#n-of").inner_text())
        page.keyboard.press("Enter")
        page.evaluate("document.activeElement.blur()")
        seen = []
        for step in range(number):
            expect(page.locator("#n-of")).to_have_text(f"{step + 1} of {number}")
            page.wait_for_function(SHOWN)
            seen.append(page.url)
            page.keyboard.press("n")
        expect(page.locator("#n-of")).to_have_text(f"1 of {number}")
        page.keyboard.press("N")
        expect(page.locator("#n-of")).to_have_text(f"{number} of {number}")

        assert number == len(set(seen)) > 2
        page.reload()
        page.wait_for_function(SHOWN)
        expect(page.locator("#n-of")).to_have_text(f"{number} of {number}")
        page.locator("#find").press("Escape")
        expect(page.locator("#n-of")).to_have_text("")
        assert [] == tab.errors


@pytest.mark.slow
def test_matches_are_links_without_script(browser: Browser, house: House) -> None:
    """The box is a form, the next match a link, and its row is open."""
    with browsers.tab(browser, house, script=False) as tab:
        page = tab.go(tides(house))
        page.fill("#find", "missing hour")
        page.press("#find", "Enter")
        expect(page.locator("#n-of")).to_contain_text("1 of ")
        expect(page.locator(".ev.hit")).to_be_visible()
        page.get_by_role("link", name="Next match").click()
        expect(page.locator("#n-of")).to_contain_text("2 of ")
        expect(page.locator(".ev.hit")).to_be_visible()


@pytest.mark.slow
def test_a_session_opens_at_its_top_and_follows_only_who_reads_at_its_end(
    browser: Browser, own_house: House
) -> None:
    """Rows that are added scroll the page of who is at the end, and of nobody else."""
    work = own_house.homes.work / "tidepool"
    long = SampleTranscript("grows", work, datetime.now(UTC) - timedelta(minutes=30))
    for number in range(40):
        long.prompt(f"Question {number}.", wait=1)
        long.text(f"Answer {number}.")
    long.save(own_house.homes.claude)
    own_house.swept()
    uid = f"claude:{long.id}"
    with browsers.tab(browser, own_house) as tab:
        page = tab.go(f"/sessions/{uid}")
        expect(page.locator(".beat")).to_have_attribute("data-state", "live")
        goes_on(own_house, uid, "First more.")
        expect(page.locator("#thread .ev", has_text="First more.")).to_have_count(1)
        assert 0 == page.evaluate("scrollY")
        expect(page.locator("#s-facts")).to_contain_text("41 turns")
        expect(page.locator(".outline")).to_contain_text("First more.")
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        goes_on(own_house, uid, "Second more.")
        expect(page.locator("#thread .ev", has_text="Second more.")).to_be_in_viewport()

        assert [] == tab.errors


@pytest.mark.slow
def test_a_prompt_stays_as_typed_and_every_row_can_be_copied_and_seen_raw(
    browser: Browser, own_house: House
) -> None:
    """No character is lost; the raw text of an answer is what was written."""
    work = own_house.homes.work / "tidepool"
    typed = "FAILED opk/cli/__main__.py\n> assert 1\n_ _ _\n8.\n\U0001f469\u200d\U0001f467"
    answer = "# Head\n\n* one\n* **two**"
    made = SampleTranscript("typed", work, datetime.now(UTC) - timedelta(days=1))
    made.prompt(typed)
    made.text(answer)
    made.save(own_house.homes.claude)
    own_house.swept()
    with browsers.tab(browser, own_house) as tab:
        tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = tab.go(f"/sessions/claude:{made.id}")
        shown = page.locator(".ev[data-kind=prompt] .typed").inner_text()
        assert typed == shown
        row = page.locator(".ev[data-kind=answer]").first
        row.hover()
        row.locator("[data-act=copy-row]").click()
        expect(page.locator("#toast")).to_have_text("Copied")
        assert answer == page.evaluate("navigator.clipboard.readText()")
        row.hover()
        row.locator("[data-act=raw]").click()
        expect(row.locator(".raw-text")).to_have_text(answer, use_inner_text=True)
        expect(row.locator(".say")).to_be_hidden()
        row.locator("[data-act=raw]").click()
        expect(row.locator(".say")).to_be_visible()

        assert [] == tab.errors


@pytest.mark.slow
def test_a_discarded_branch_stands_beside_what_took_its_place(
    browser: Browser, house: House
) -> None:
    """With edits, tests and cost of each; neither has rows of the other."""
    with browsers.tab(browser, house) as tab:
        page = tab.go(tides(house))
        page.locator(".branch summary").first.click()
        page.get_by_role("link", name="Compare with its replacement").first.click()
        expect(page.locator(".compare section")).to_have_count(2)
        discarded, live = page.locator(".compare section").all()
        expect(discarded).to_contain_text("I added the missing hour")
        expect(live).to_contain_text("No. Do not patch the gap afterwards.")
        expect(live).not_to_contain_text("I added the missing hour")
        expect(page.locator("tr", has_text="Test runs")).to_contain_text("2, the last passed")
        expect(page.locator("tr", has_text="Cost")).to_contain_text("$0.03")
        assert tab.fits()
        assert [] == tab.complaints()
        assert [] == tab.errors
    assert 404 == house.ask(f"{tides(house)}/compare/99").status


@pytest.mark.slow
def test_a_session_is_pinned_and_unpinned_on_its_page(browser: Browser, own_house: House) -> None:
    """With an undo; and a page of another origin cannot do it."""
    uid = uid_of(own_house, "What does clock.py do?")
    with browsers.tab(browser, own_house) as tab:
        page = tab.go(f"/sessions/{uid}")
        page.get_by_role("button", name="Pin").click()
        expect(page.locator("#toast")).to_contain_text("Pinned")
        assert own_house.context.row(uid).pinned
        page.locator("#toast button").click()
        expect(page.locator("#toast")).to_contain_text("Unpinned")
        assert not own_house.context.row(uid).pinned
        assert [] == tab.errors


@pytest.mark.slow
def test_a_todo_is_dismissed_on_every_list_and_comes_back(
    browser: Browser, own_house: House
) -> None:
    """On the page, after a reload, and for whoever asks the same home."""
    with browsers.tab(browser, own_house) as tab:
        page = tab.go("/")
        todos = page.locator(".side-list li:has([data-act=dismiss])")
        number, text = todos.count(), todos.first.locator("a").inner_text()
        todos.first.locator("[data-act=dismiss]").click()
        expect(todos).to_have_count(number - 1)
        page.locator("#toast button").click()
        expect(page.locator("#toast")).to_contain_text("Shown again")
        expect(todos).to_have_count(number)
        todos.first.locator("[data-act=dismiss]").click()
        expect(page.locator("#toast")).to_contain_text("Dismissed")
        page.reload()
        expect(todos).to_have_count(number - 1)
        asked = open_promises(
            own_house.store, Filter(), {}, dismissed_todos(own_house.homes.thence)
        )
        assert text not in [todo["text"] for todo in asked]
        assert [] == tab.errors


def test_pinning_needs_a_page_of_ours(own_house: House) -> None:
    """A cookie alone is not enough: the origin must be ours, and the body JSON."""
    uid = uid_of(own_house, "What does clock.py do?")
    path = f"/sessions/{uid}/pin"
    foreign = {"Origin": "http://evil.example"}
    assert 403 == own_house.ask(path, method="POST", body={"pinned": True}, headers=foreign).status
    assert 400 == own_house.ask(path, method="POST", body={"pinned": "maybe"}).status
    own_house.context.writes = False
    assert 403 == own_house.ask(path, method="POST", body={"pinned": True}).status

    assert not own_house.context.row(uid).pinned
    own_house.context.writes = True
    assert 200 == own_house.ask(path, method="POST", body={"pinned": True}).status
    assert own_house.context.row(uid).pinned


@pytest.mark.parametrize(
    ("form", "kind", "begins"),
    [
        ("markdown", "text/markdown", "#"),
        ("html", "text/html", "<!doctype html>"),
        ("json", "application/x-ndjson", "{"),
    ],
)
def test_a_session_is_exported_as_a_file(house: House, form: str, kind: str, begins: str) -> None:
    """Never as a page of ours: what a log says would run there."""
    uid = uid_of(house, "The hourly tide table")
    answer = house.ask(f"/sessions/{uid}/export/{form}")

    assert 200 == answer.status
    assert answer.headers["content-type"].startswith(kind)
    assert answer.headers["content-disposition"].startswith("attachment; filename=")
    assert answer.body.decode().startswith(begins)
    assert 404 == house.ask(f"/sessions/{uid}/export/exe").status


def test_dates_carry_their_year_when_it_is_not_this_one() -> None:
    """So that a session of last November is not taken for one of this."""
    now = datetime.now(UTC)

    assert "Sat 1 Nov 2025" == DisplayClock(UTC).day("2025-11-01T17:34:00Z")
    assert f"{now.year}" not in DisplayClock(UTC).day(now.isoformat())


# -- searching everywhere -------------------------------------------------------------------


def entries(page: Page) -> int:
    """Return the number of entries of the browser's history."""
    number: int = page.evaluate("history.length")
    return number


PAUSE_MS = 500
"""What is typed is looked for a moment later: nobody clicks before that."""


@pytest.mark.slow
def test_search_as_you_type_keeps_filters_and_makes_one_entry(
    browser: Browser, house: House
) -> None:
    """Each beginning finds; chips and sort keep the words; Escape clears both; Back leaves."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/sessions")
        every = page.locator(".srow").count()
        before = entries(page)
        for sign in "clock":
            page.locator("#q").press_sequentially(sign)
            expect(page.locator(".srow mark").first).to_be_visible()
        page.wait_for_url(re.compile("q=clock"))
        assert before + 1 == entries(page)
        assert 1 == page.locator("input[type=search]").count()
        page.wait_for_timeout(PAUSE_MS)
        page.locator("#controls select[name=agent]").select_option("codex")
        page.wait_for_url(re.compile(r"q=clock.*agent=codex"))
        expect(page.locator(".srow .agent[data-agent=claude]")).to_have_count(0)
        expect(page.locator(".srow mark").first).to_be_visible()
        page.wait_for_timeout(PAUSE_MS)
        page.get_by_role("link", name="Newest").click()
        page.wait_for_url(re.compile(r"q=clock.*agent=codex.*sort=recent"))
        expect(page.locator("#q")).to_have_value("clock*")
        page.wait_for_timeout(PAUSE_MS)
        page.locator(".chip.on").click()
        page.wait_for_url(re.compile(r"/sessions\?q=clock\*&sort=recent$"))
        page.locator("#q").press("Escape")
        expect(page.locator(".srow")).to_have_count(every)
        expect(page.locator("#q")).to_have_value("")
        page.go_back()
        expect(page.locator("#q")).to_have_value("clock*")
        expect(page.locator(".srow mark").first).to_be_visible()

        assert [] == tab.errors


@pytest.mark.slow
def test_the_box_at_the_top_offers_sessions_and_pages(browser: Browser, house: House) -> None:
    """While one types; the arrow keys choose, Enter opens the list, Escape closes."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/costs")
        page.keyboard.press("Control+k")
        expect(page.locator("#drop")).to_contain_text("Go to Sessions")
        page.locator("#q").press_sequentially("harb", delay=15)
        expect(page.locator("#drop mark").first).to_be_visible()
        assert [] == tab.complaints()
        for _ in range(6):  # projects stand before sessions
            page.keyboard.press("ArrowDown")
            if "/sessions/" in page.evaluate("document.activeElement.href ?? ''"):
                break
        page.keyboard.press("Enter")
        page.wait_for_function(SHOWN)
        page = tab.go("/costs")
        page.keyboard.press("/")
        page.locator("#q").press_sequentially("harb", delay=15)
        expect(page.locator("#drop mark").first).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("#drop")).to_be_hidden()
        expect(page.locator("#q")).to_have_value("")
        page.fill("#q", "harbour")
        page.keyboard.press("Enter")
        expect(page.locator(".srow mark").first).to_be_visible()

        assert [] == tab.errors


@pytest.mark.slow
def test_live_updates_leave_the_cursor_and_the_focus(browser: Browser, own_house: House) -> None:
    """Keys stay usable while agents work."""
    uid = uid_of(own_house, "What does clock.py do?")
    with browsers.tab(browser, own_house) as tab:
        page = tab.go("/sessions")
        expect(page.locator(".beat")).to_have_attribute("data-state", "live")
        for _ in range(3):
            page.keyboard.press("j")
        chosen = page.locator(".srow.cursor .title a").get_attribute("href")
        turns = page.locator(".srow", has_text="What does clock.py do?").inner_text()
        goes_on(own_house, uid, "Go on.")
        expect(page.locator(".srow", has_text="What does clock.py do?")).not_to_have_text(turns)

        assert chosen == page.locator(".srow.cursor .title a").get_attribute("href")
        assert chosen == page.evaluate("document.activeElement.getAttribute('href')")
        page.keyboard.press("j")
        assert chosen != page.locator(".srow.cursor .title a").get_attribute("href")


@pytest.mark.slow
def test_a_server_that_is_gone_is_said_on_the_page(browser: Browser, own_house: House) -> None:
    """A banner, and actions that fail say so; both go when it is back."""
    with browsers.tab(browser, own_house) as tab:
        page = tab.go(tides(own_house))
        expect(page.locator(".beat")).to_have_attribute("data-state", "live")
        page.route("**/sessions/**", lambda route: route.abort())
        page.locator(".call summary").first.click()
        expect(page.locator("#gone")).to_be_visible()
        expect(page.locator("#toast")).to_have_text("Could not load this")
        assert [] == tab.complaints()
