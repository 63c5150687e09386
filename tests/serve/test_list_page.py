"""The list of sessions: every one once, filtered, sorted, found."""

from __future__ import annotations

import pytest

from tests.serve.conftest import House
from thence.format.figures import money
from thence.memory.packs import pack_name
from thence.memory.search import _FILTERS, begun, parse
from thence.memory.store import Filter
from thence.serve.clock import DisplayClock
from thence.serve.list_page import (
    SYNTAX,
    ListQuery,
    mark_matches,
    page,
    start_near_match,
)


def test_what_was_found_is_sorted_by_how_well_it_fits_unless_asked(house: House) -> None:
    """The way that is marked is the one that was taken."""
    rows = {f"/sessions/{r.session.session_uid}": r for r in house.store.sessions()}
    lists = {}
    for sort in ("", "recent", "cost", "tokens"):
        made = page(house.context, ListQuery(q="clock", sort=sort), DisplayClock())
        shown = [rows[card.href.partition("?")[0]] for day in made.days for card in day.cards]
        lists[sort] = [choice.text for choice in made.sorts if choice.on], shown

    assert [["Best match"], ["Newest"], ["Cost"], ["Tokens"]] == [on for on, _ in lists.values()]
    ended = [row.session.ended_at or "" for row in lists["recent"][1]]
    ticks = [sum(row.ticks.values()) for row in lists["cost"][1]]
    assert (ended, ticks) == (sorted(ended)[::-1], sorted(ticks)[::-1])
    assert 1 == len({frozenset(r.session.session_uid for r in some) for _, some in lists.values()})
    assert "Best match" not in [
        choice.text for choice in page(house.context, ListQuery(), DisplayClock()).sorts
    ]


def test_the_list_shows_every_session_once(house: House) -> None:
    """Over its pages, in the order that was asked for."""
    for sort in ("", "cost", "tokens"):
        made = page(house.context, ListQuery(sort=sort), DisplayClock())
        hrefs = [card.href for day in made.days for card in day.cards]

        assert len(hrefs) == len(set(hrefs)) == house.store.totals()[0].sessions


def test_costs_of_the_list_are_those_of_the_store(house: House) -> None:
    """Row by row."""
    rows = {f"/sessions/{r.session.session_uid}": r for r in house.store.sessions(Filter())}
    for day in page(house.context, ListQuery(), DisplayClock()).days:
        for card in day.cards:
            row = rows[card.href]
            is_bound = bool(row.lower_bound)
            assert card.cost == money(sum(row.ticks.values()), row.unpriced, is_bound=is_bound)


@pytest.mark.parametrize("kind", ["error", "edit", "retry", "completion"])
def test_a_derived_event_leads_to_the_event_that_it_comes_from(house: House, kind: str) -> None:
    """That has a row on the page of its session; a derived one has none."""
    made = page(house.context, ListQuery(q=f"kind:{kind}"), DisplayClock())
    cards = [card for day in made.days for card in day.cards]
    for card in cards:
        address, _, event = card.href.partition("#")[0].partition("&")[0].partition("?at=")
        events = house.ask(f"/api{address}/events?limit=500").json["events"]

        assert int(event.removeprefix("e"), 16) in {row["event_id"] for row in events}
    assert cards


@pytest.mark.parametrize(
    ("wanted", "least"),
    [
        (ListQuery(agent="grok"), 1),
        (ListQuery(project="harbour"), 1),
        (ListQuery(outcome="success"), 1),
        (ListQuery(q="cost>0.20"), 1),
        (ListQuery(q="clock"), 2),
        (ListQuery(q="clock", agent="codex"), 1),
        (ListQuery(q="nosuchwordanywhere"), 0),
        (ListQuery(project="nowhere"), 0),
    ],
)
def test_filters_leave_what_fits(house: House, wanted: ListQuery, least: int) -> None:
    """Alone and together, typed and chosen."""
    every = house.store.totals()[0].sessions
    cards = [card for day in page(house.context, wanted, DisplayClock()).days for card in day.cards]

    assert least <= len(cards) < every
    if wanted.agent:
        assert {card.flavor for card in cards} <= {wanted.agent}


def test_an_address_holds_what_was_asked_and_nothing_else() -> None:
    """Another filter starts at the first page."""
    wanted = ListQuery(q='a "b" & c', agent="codex", cursor="50")

    assert wanted.href() == "/sessions?q=a+%22b%22+%26+c&agent=codex"
    assert ListQuery().href() == "/sessions"


def test_a_hit_whose_text_is_lost_says_so(own_house: House) -> None:
    """The others are found as before."""
    wanted = ListQuery(q="clock")
    before = page(own_house.context, wanted, DisplayClock())
    uid = own_house.store.search(parse("clock")).matches[0].session_uid
    for pack in own_house.store.path.with_name("packs").glob(f"{pack_name(uid)}-*"):
        pack.unlink()
    after = page(own_house.context, wanted, DisplayClock())
    snippets = [
        {
            card.href.partition("?")[0]: str(card.snippets[0].text)
            for day in made.days
            for card in day.cards
        }
        for made in (before, after)
    ]
    lost = snippets[1].pop(f"/sessions/{uid}")

    assert lost.startswith("unreadable: the pack ")
    assert snippets[0].pop(f"/sessions/{uid}") != lost
    assert snippets[0] == snippets[1] != {}


@pytest.mark.parametrize(
    ("snippet", "shown"),
    [
        ("close \x02clock\x03 by", "close \x02clock\x03 by"),
        (
            "…" + "word " * 9 + "the \x02clock\x03 by",
            "…" + "word " * 5 + "the \x02clock\x03 by",
        ),
        ("x" * 50 + "\x02clock\x03", "…\x02clock\x03"),
        ("nothing of it " * 9, "nothing of it " * 9),
    ],
)
def test_what_was_looked_for_stands_near_the_beginning(snippet: str, shown: str) -> None:
    """A card has room for one line of it, cut between words."""
    assert shown == start_near_match(snippet)


def test_a_snippet_is_text_with_marks() -> None:
    """What was found is marked, all of it is escaped."""
    shown = mark_matches("a <b> \x02clock\x03 \x1b[2J")

    assert str(shown) == "a &lt;b&gt; <mark>clock</mark> \ufffd[2J"


def test_every_beginning_of_a_word_finds_it(house: House) -> None:
    """While it is typed; and from an address, where the answer says so."""
    for length in range(2, 8):
        word = "harbour"[:length]
        assert page(house.context, ListQuery(q=begun(word)), DisplayClock()).days, word
        assert page(house.context, ListQuery(q=word), DisplayClock()).days, word
    made = page(house.context, ListQuery(q="ha"), DisplayClock())
    assert made.lede.endswith("; searched ha* instead of ha")


def test_a_filter_that_is_none_is_named(house: House) -> None:
    """Addresses and pasted messages are no filters."""
    made = page(house.context, ListQuery(q="foo:bar clock"), DisplayClock())

    assert made.remarks[0].startswith("foo: is not a filter, so it was searched as text;")
    assert ("tool: needs a value; it was searched as text",) == parse("tool: clock").hints
    assert () == parse('see https://example.org "a:b" agent:codex cost>1').hints
    assert _FILTERS == {name for name, _, _ in SYNTAX}


def test_a_heading_sums_up_its_day_and_not_its_page(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few sessions a page shows."""
    sums = {day.name: day.sums for day in page(house.context, ListQuery(), DisplayClock()).days}
    monkeypatch.setattr("thence.serve.list_page.PAGE_SESSIONS", 3)
    made = page(house.context, ListQuery(), DisplayClock())

    assert {day.name: day.sums for day in made.days}.items() <= sums.items()
    total = house.store.totals()[0].sessions
    assert made.pager is not None
    assert f"1 to 3 of {total}" == made.pager.position
    seen, wanted = [], ListQuery()
    while True:
        made = page(house.context, wanted, DisplayClock())
        seen += [card.href for day in made.days for card in day.cards]
        assert made.pager is not None
        if not made.pager.next:
            break
        wanted = ListQuery(cursor=made.pager.next.partition("cursor=")[2])
    assert total == len(seen) == len(set(seen))


def test_the_least_cost_is_a_filter_of_its_own(house: House) -> None:
    """With words and without."""
    for wanted in (ListQuery(cost="0.2"), ListQuery(q="clock", cost="0.2")):
        cards = [
            card for day in page(house.context, wanted, DisplayClock()).days for card in day.cards
        ]
        assert cards
        assert all(float(card.cost.strip("$+")) > 0.2 for card in cards)
