"""A search finds the same by every door: while it is typed, on its page, in terminal, API, MCP."""

from __future__ import annotations

import json
import re
from urllib.parse import quote, urlencode

import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser, expect

from tests.serve import browser as browsers
from tests.serve.conftest import House
from thence.cli import thence
from thence.memory.search import BadQuery, begun
from thence.serve.questions import Questions

TYPED = [
    *("clock", "harb", "ti", "clock warn", "mend the har", '"make test"', "harbour -clock"),
    *("windows OR clo", "kind:error", "agent:codex cloc", "test ", "saffron tid", "o"),
]
"""What somebody types, word by word and broken off."""
COUNT = re.compile(r"(?:(?:at least )?[\d,]+ match(?:es)? in )?[\d,]+ sessions?|no matches")
"""What every door says of how much was found."""


def count_of(text: str) -> str:
    """Return what a text says of how much was found."""
    listed = COUNT.search(re.sub(r"<[^>]+>|\s+", " ", text))
    assert listed is not None, text[:400]
    return listed[0]


def counts(house: House, query: str) -> dict[str, str]:
    """Return what each door says of how much a query finds."""
    env = house.homes.env | {"HOME": str(house.folder), "THENCE_HOME": str(house.homes.thence)}
    ran, as_json = (
        CliRunner().invoke(thence, ["search", *more, "--", query], env=env)
        for more in ((), ("--json",))
    )
    answers = [json.loads(as_json.output), house.ask(f"/api/search?q={quote(query)}").json]
    page = house.ask(f"/sessions?{urlencode({'q': query})}").body.decode()
    mcp = Questions(house.store, lambda *_: {}).answer("search", {"query": query})
    lede = page.partition('id="lede"')[2]
    objects = [tuple(entry[name] for name in ("total", "sessions", "capped")) for entry in answers]
    assert objects[0] == objects[1]
    number, sessions, capped = objects[0]
    least, many = "at least " * capped, "match" if number == 1 else "matches"
    matches = f"{number:,} {many} in " if answers[0]["how"] != "filters" else ""
    in_json = f"{least}{matches}{sessions:,} session{'s' * (sessions != 1)}"
    return {
        "terminal": count_of(ran.output),
        "json": in_json if sessions else "no matches",
        "page": count_of(lede),
        "mcp": count_of(mcp),
    }


@pytest.mark.parametrize("query", [*TYPED, *map(begun, TYPED)])
def test_every_door_finds_as_much(house: House, query: str) -> None:
    """Matches and sessions, however few of them a door shows."""
    by_door = counts(house, query)

    assert {by_door["page"]} == set(by_door.values()), by_door


def test_the_sessions_of_a_search_are_all_on_its_pages(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list goes on over pages, each session once, as many as are counted; so does the API."""
    monkeypatch.setattr("thence.serve.list_page.PAGE_SESSIONS", 2)
    uids: list[str] = []
    href = "/sessions?q=clock"
    while href:
        page = house.ask(href).body.decode()
        sessions = re.findall(r'class="title"><a [^>]*href="/sessions/([^"?#]+)', page)
        assert 2 >= len(sessions) > 0
        uids += sessions
        after = re.search(r'rel="next" href="([^"]+)"', page)
        href = after[1].replace("&amp;", "&") if after else ""
    api = house.ask("/api/search?q=clock").json
    listed = house.ask("/api/sessions?q=clock").json

    assert len(uids) == len(set(uids)) == api["sessions"] == listed["total"]


@pytest.mark.slow
def test_enter_finds_what_was_promised(browser: Browser, house: House) -> None:
    """The box counts what the list then lists; the address says what was searched."""
    with browsers.tab(browser, house) as tab:
        for text in TYPED:
            page = tab.go("/costs")
            page.keyboard.press("/")
            page.locator("#q").press_sequentially(text)
            promise = page.locator("#drop li", has_text="Enter")
            expect(promise).to_be_visible()
            href = f"/sessions?{urlencode({'q': begun(text).strip()}, safe='*')}"
            expect(promise.locator("a")).to_have_attribute("href", href)
            promised = promise.inner_text()
            page.keyboard.press("Enter")
            page.wait_for_url(re.compile(r"/sessions\?q="))
            lede = page.locator("#lede").inner_text()
            assert page.url.endswith(href), text
            assert count_of(lede) == count_of(promised.lower()), text
            page.reload()
            assert lede == page.locator("#lede").inner_text(), text

        assert [] == tab.errors


def test_a_list_that_was_typed_stays_as_it_was_shown(browser: Browser, house: House) -> None:
    """On the page of sessions: after Enter, after a filter, after Back and after a reload."""
    with browsers.tab(browser, house) as tab:
        page = tab.go("/sessions")
        page.locator("#q").press_sequentially("clo")
        page.wait_for_url(re.compile(r"/sessions\?q=clo\*$"))
        typed = page.locator("#lede").inner_text()
        page.keyboard.press("Enter")
        expect(page.locator("#q")).to_have_value("clo*")
        expect(page.locator("#lede")).to_have_text(typed)
        page.reload()
        expect(page.locator("#lede")).to_have_text(typed)
        page.locator("#controls select[name=agent]").select_option("codex")
        page.wait_for_url(re.compile(r"/sessions\?q=clo\*&agent=codex$"))
        expect(page.locator("#lede")).not_to_have_text(typed)
        page.go_back()
        expect(page.locator("#lede")).to_have_text(typed)
        expect(page.locator("#toast")).to_be_hidden()
        exact = tab.go("/sessions?q=clock")
        exact.locator("#controls select[name=agent]").select_option("codex")
        exact.wait_for_url(re.compile(r"/sessions\?q=clock&agent=codex$"))

        assert [] == tab.errors


@pytest.mark.parametrize("word", ["done", "success", "succeeded", "failed", "fail", "unclear"])
def test_an_outcome_has_the_same_words_by_every_door(house: House, word: str) -> None:
    """Those that people read and those that are stored."""
    env = house.homes.env | {"HOME": str(house.folder), "THENCE_HOME": str(house.homes.thence)}
    listed = CliRunner().invoke(thence, ["ls", "--outcome", word, "--json", "-n", "99"], env=env)
    uids = {row["session_uid"] for row in json.loads(listed.output)}
    searched = house.ask(f"/api/search?q=outcome:{word}&limit=99").json
    pages = [
        house.ask(f"/sessions?{query}").body.decode()
        for query in (f"outcome={word}", f"q=outcome:{word}")
    ]
    api = house.ask(f"/api/sessions?outcome={word}").json

    assert uids == {hit["session_uid"] for hit in searched["hits"]}
    assert uids == {session["session_uid"] for session in api["sessions"]}
    assert len(uids) == searched["sessions"] == api["total"]
    for page in pages:
        shown = re.findall(r'class="title"><a [^>]*href="/sessions/([^"?#]+)', page)
        assert uids == set(shown)


@pytest.mark.parametrize(
    ("path", "spoken", "hint"),
    [
        ("sessions?agent=cluade", "unknown agent", "did you mean claude?"),
        ("sessions?q=agent:cluade%20clock", "unknown agent", "did you mean claude?"),
        ("sessions?outcome=faild", "unknown outcome", "did you mean failed?"),
        ("sessions?q=outcome:faild", "unknown outcome", "did you mean failed?"),
        ("sessions?tag=relase", "unknown tag", ""),
        ("search?q=agent:cluade%20clock", "unknown agent", "did you mean claude?"),
        ("search?q=kind:eror", "unknown kind", "did you mean error?"),
        ("costs?by=model&agent=cluade", "unknown agent", "did you mean claude?"),
        ("signals?kind=retry_lop", "unknown kind", "did you mean retry_loop?"),
        ("patterns?kind=flaky_tset", "unknown kind", "did you mean flaky_test?"),
        ("digests?agent=cluade", "unknown agent", "did you mean claude?"),
    ],
)
def test_a_value_that_is_none_is_an_error(house: House, path: str, spoken: str, hint: str) -> None:
    """With the nearest that there is; not an empty answer: API, and the page where it has one."""
    answer = house.ask(f"/api/{path}")
    assert 400 == answer.status
    assert answer.json["title"].startswith(spoken)
    assert hint in answer.json["hint"]
    if path.startswith(("sessions?agent", "sessions?outcome", "sessions?q", "costs", "patterns")):
        page = house.ask(f"/{path}").body.decode()
        assert spoken in page
        assert hint in page


@pytest.mark.parametrize(
    ("command", "spoken"),
    [
        (["ls", "--agent", "clod"], "unknown agent 'clod'"),
        (["ls", "--tag", "relase"], "unknown tag 'relase'"),
        (["cost", "--agent", "clod"], "unknown agent 'clod'"),
        (["search", "agent:clod", "clock"], "unknown agent 'clod'"),
        (["search", "outcome:faild"], "unknown outcome 'faild'"),
        (["ask", "agent:clod", "clock"], "unknown agent 'clod'"),
        (["signals", "--kind", "retry_lop"], "unknown kind 'retry_lop'"),
        (["patterns", "--agent", "clod"], "unknown agent 'clod'"),
    ],
)
def test_a_command_refuses_a_value_that_is_none(
    house: House, command: list[str], spoken: str
) -> None:
    """It ends with 2, as for an option that is none."""
    env = house.homes.env | {"HOME": str(house.folder), "THENCE_HOME": str(house.homes.thence)}
    ran = CliRunner().invoke(thence, command, env=env)

    assert isinstance(ran.exception, BadQuery)
    assert (spoken, 2) == (ran.exception.message, ran.exception.exit_code)


def test_a_tool_refuses_a_value_that_is_none(house: House) -> None:
    """An agent that asks is told, too."""
    asked = Questions(house.store, lambda *_: {})
    for tool, name in (("search", "query"), ("recall", "question")):
        with pytest.raises(BadQuery, match="unknown agent 'clod'"):
            asked.answer(tool, {name: "agent:clod clock"})
