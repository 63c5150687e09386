"""Now and the list of sessions, as they are answered: the same figures as the store's."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from tests.serve.conftest import House
from thence.format.figures import money
from thence.memory.store import Filter
from thence.serve import charts
from thence.serve.board import Wanted, bars, list_page, marked, now_page
from thence.serve.clock import Clock


def test_now_says_who_waits_and_what_today_cost(house: House) -> None:
    """The heading is the answer; spending agrees with the store."""
    made = now_page(house.desk, Clock())
    total = house.store.totals()[0]

    assert made.heading.endswith("for you")
    assert made.sessions == total.sessions
    assert len(made.columns) == 14
    assert made.week
    assert made.promises


def test_hours_add_up_to_what_sessions_cost(house: House) -> None:
    """Dead branches and subagents as well; on a day with spending there are 24 of them."""
    for row in house.store.sessions():
        hours = charts.charts_of(house.desk).hours(house.desk, row)
        dead, total = (sum(column) for column in zip((0, 0), *hours.values(), strict=True))

        assert (row.ticks.get("dead", 0), sum(row.ticks.values())) == (dead, total), row.title
    days = {one.key[0]: one.ticks for one in house.store.totals(["day"])}
    for day in (max(days, key=lambda one: days[one]), "1999-01-01"):
        then = datetime.fromisoformat(f"{day}T12:00:00+00:00").timestamp()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(house.desk, "clock", lambda then=then: then)
            made = now_page(house.desk, Clock())

        assert (24 if day in days else 0) == len(made.hours)


def test_what_was_found_is_sorted_by_how_well_it_fits_unless_asked(house: House) -> None:
    """The way that is marked is the one that was taken."""
    rows = {f"/sessions/{r.session.session_uid}": r for r in house.store.sessions()}
    told = {}
    for sort in ("", "recent", "cost", "tokens"):
        made = list_page(house.desk, Wanted(q="clock", sort=sort), Clock())
        found = [rows[card.href.partition("?")[0]] for day in made.days for card in day.cards]
        told[sort] = [one.said for one in made.sorts if one.on], found

    assert [["Best match"], ["Newest"], ["Cost"], ["Longest"]] == [on for on, _ in told.values()]
    ended = [row.session.ended_at or "" for row in told["recent"][1]]
    ticks = [sum(row.ticks.values()) for row in told["cost"][1]]
    assert (ended, ticks) == (sorted(ended)[::-1], sorted(ticks)[::-1])
    assert 1 == len({frozenset(r.session.session_uid for r in some) for _, some in told.values()})
    assert "Best match" not in [one.said for one in list_page(house.desk, Wanted(), Clock()).sorts]


def test_the_list_shows_every_session_once(house: House) -> None:
    """Over its pages, in the order that was asked for."""
    for sort in ("", "cost", "tokens"):
        made = list_page(house.desk, Wanted(sort=sort), Clock())
        found = [card.href for day in made.days for card in day.cards]

        assert len(found) == len(set(found)) == house.store.totals()[0].sessions


def test_costs_of_the_list_are_those_of_the_store(house: House) -> None:
    """Row by row."""
    rows = {f"/sessions/{r.session.session_uid}": r for r in house.store.sessions(Filter())}
    for day in list_page(house.desk, Wanted(), Clock()).days:
        for card in day.cards:
            row = rows[card.href]
            assert card.cost == money(sum(row.ticks.values()), row.unpriced)


@pytest.mark.parametrize(
    ("wanted", "least"),
    [
        (Wanted(agent="grok"), 1),
        (Wanted(project="harbour"), 1),
        (Wanted(outcome="success"), 1),
        (Wanted(q="cost>0.20"), 1),
        (Wanted(q="clock"), 2),
        (Wanted(q="clock", agent="codex"), 1),
        (Wanted(q="nosuchwordanywhere"), 0),
        (Wanted(project="nowhere"), 0),
    ],
)
def test_filters_leave_what_fits(house: House, wanted: Wanted, least: int) -> None:
    """Alone and together, typed and chosen."""
    every = house.store.totals()[0].sessions
    cards = [card for day in list_page(house.desk, wanted, Clock()).days for card in day.cards]

    assert least <= len(cards) < every
    if wanted.agent:
        assert {card.flavor for card in cards} <= {wanted.agent}


def test_an_address_holds_what_was_asked_and_nothing_else() -> None:
    """Another filter starts at the first page."""
    wanted = Wanted(q='a "b" & c', agent="codex", cursor="50")

    assert wanted.href() == "/sessions?q=a+%22b%22+%26+c&agent=codex"
    assert Wanted().href() == "/sessions"


def test_a_snippet_is_text_with_marks() -> None:
    """What was found is marked, all of it is escaped."""
    shown = marked("a <b> \x02clock\x03 \x1b[2J")

    assert str(shown) == "a &lt;b&gt; <mark>clock</mark> \ufffd[2J"


def test_bars_are_as_high_as_a_session_was_busy(house: House) -> None:
    """Within their frame, the busiest part at the top."""
    for row in house.store.sessions(Filter()):
        drawn = bars(house.desk, row)
        assert len(drawn) == 24
        assert max(bar.height for bar in drawn) == 22


@pytest.mark.parametrize(
    ("path", "status"),
    [
        *((path, 200) for path in ("/", "/sessions", "/costs", "/patterns", "/store")),
        *((f"/costs?by={by}", 200) for by in ("model", "project", "agent", "session", "x")),
        ("/sessions?cursor=999999", 200),
        ("/sessions?cursor=-1", 200),
        ("/sessions?q=%22", 200),
        ("/sessions?q=-x", 200),
        ("/costs?day=2026-02-31", 200),
        ("/costs?days=-5", 200),
        ("/sessions/nobody", 404),
        ("/nothing", 404),
    ],
)
def test_addresses_are_answered_with_pages(house: House, path: str, status: int) -> None:
    """What is not there is a page that says so."""
    answer = house.ask(path, headers={"Accept": "text/html"})

    assert answer.status == status
    assert b"<main" in answer.body
    assert b"style=" not in answer.body
    assert b"<script>" not in answer.body


@pytest.mark.slow
def test_parts_of_sessions_are_answered_or_are_not_there(house: House) -> None:
    """Rows, bodies, branches, subagents; what is none of them is a 404."""
    for row in house.store.sessions(Filter()):
        base = f"/sessions/{row.session.session_uid}"
        held = house.store.held(row.session.session_uid)
        assert held is not None
        event = f"e{next(iter(held.events)):013x}"
        for path in ("", "?end=1", f"?at={event}", "/rows", "/tail", f"/tail?after={event}"):
            assert house.ask(base + path).status == 200, path
        assert house.ask(f"{base}/event/{event}").status == 200
        for path in ("/rows?part=b99", "/rows?part=x", "/event/e0000000000000", "/side/s99"):
            assert house.ask(base + path).status == 404, path


def test_an_evicted_session_shows_its_digest(own_house: House) -> None:
    """When its source is gone too: how it ended, what was asked, that no more is left."""
    row = next(r for r in own_house.store.sessions(Filter()) if (r.title or "").startswith("What"))
    uid = row.session.session_uid
    Path(row.files[0]).unlink()
    own_house.swept()
    own_house.store.remove([uid], why={uid: "to see"})
    answer = own_house.ask(f"/sessions/{uid}")

    assert answer.status == 200
    assert b"Only its digest is left" in answer.body
    assert b"What does clock.py do?" in answer.body


@pytest.mark.slow
def test_a_large_session_shows_its_head_at_once_and_its_rows_after(
    own_house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not laid out yet is asked for by the page itself, with the event that is wanted."""
    monkeypatch.setattr(charts, "LARGE", 1)
    row = next(r for r in own_house.store.sessions(Filter()) if (r.title or "").startswith("What"))
    base = f"/sessions/{row.session.session_uid}"
    held = own_house.store.held(row.session.session_uid)
    assert held is not None
    event = f"e{next(iter(held.events)):013x}"
    first = own_house.ask(f"{base}?at={event}").body.decode()

    assert f'<meta http-equiv="refresh" content="0; url={base}?whole=1&amp;at={event}">' in first
    assert "What does clock.py do?" in first
    assert 'id="thread"' not in first
    assert b'id="thread"' in own_house.ask(f"{base}?whole=1&at={event}").body
    assert b'id="thread"' in own_house.ask(base).body
