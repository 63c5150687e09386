"""A timeline that takes in new records is the timeline of the session read at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bench.measure import count_executed_lines
from tests.agents import test_growth
from tests.format.growing import Grown
from tests.format.test_fold import interleaved, logs
from tests.memory import logs as logs_of
from tests.memory.test_growth import grow as grow_log
from tests.pace import by_pace
from tests.serve.conftest import empty
from thence.agents.sessions import read_all
from thence.format.facts import Fact
from thence.format.normal import SEQ_STEP
from thence.format.readout import read_window
from thence.format.session_graph import SessionGraph
from thence.format.stored import StoredEvent
from thence.memory.pages import PAGE_EVENTS
from thence.memory.readouts import readout_of
from thence.serve import api
from thence.serve.api import PagePosition, cursor_text
from thence.serve.timeline import Timeline, timeline_of

PHASES = [phase for phase in Phase if phase is not Phase.shrink]


def ids(rows: Iterable[StoredEvent]) -> list[int]:
    """Return the ids of events."""
    return [row.event.event_id for row in rows]


def grow(uid: str, pieces: Iterable[Sequence[Fact]]) -> Counter[str]:
    """Let a session grow; compare what is continued with what is made anew."""
    grown, timeline, out = Grown(uid), None, Counter[str]()
    for piece in pieces:
        rebuilt = grown.rebuilt.total()
        grown.add(piece)
        assert grown.state is not None
        readout = readout_of(SessionGraph(uid, grown.facts))
        anew = timeline_of(readout)
        made: Timeline | None = None
        if timeline is not None and grown.rebuilt.total() == rebuilt:
            window = read_window(uid, grown.state, grown.fetch, readout.head)
            made = timeline.extend(window, grown.state)
        out["continued" if made is not None else "anew"] += 1
        if made is not None:
            assert ids(anew.line) == ids(made.line)
            assert ids(anew.seen) == ids(made.seen)
        timeline = made or anew
    return out


@pytest.mark.slow
@settings(max_examples=by_pace(everyday=5, full=10, prove=60), phases=PHASES)
@given(logs(), st.integers(1, 4))
def test_any_session_is_continued_as_it_is_read_at_once(log: list[Fact], size: int) -> None:
    """With branches, copies, subagents, repeated ids, in pieces of one to four records."""
    grow("claude:one", (log[at : at + size] for at in range(0, len(log), size)))


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("part", range(4))
def test_every_real_session_is_continued_as_it_is_read_at_once(shared: Path, part: int) -> None:
    """Its files in turn and mixed."""
    out: Counter[str] = Counter()
    each = by_pace(everyday=32, full=32, prove=4)
    sessions = test_growth.sessions(shared / "data")[part::each]
    for number, (adapter, source) in enumerate(sessions):
        facts = read_all(adapter, source)[0]
        if not facts or len(facts) > 1_000:
            continue
        step = max(len(facts) // 12, 1)
        for order in (facts, interleaved(facts, number)):
            out += grow(source.uid, (order[at : at + step] for at in range(0, len(order), step)))

    assert out["continued"] > out["anew"]


ask_events: Any = api.events.fn
SIZES = (60, 600)
"""Turns of the sessions that are compared; a turn is four events."""


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("path", ["events", "chain", "event", "session"])
def test_a_page_of_a_session_that_grew_costs_the_same_at_any_length(
    tmp_path: Path, path: str
) -> None:
    """Counted in executed lines; the session was asked for once before it grew."""
    work = []
    for turns in SIZES:
        folder = tmp_path / f"{turns}"
        folder.mkdir()
        house = empty(folder)
        script = logs_of.script(1, turns)
        logs_of.write(house.homes.claude, script)
        house.swept()
        uid = f"claude:{script.session}"
        before = ask_events(house.context, uid=uid, limit=20)
        api.chain.fn(house.context, uid=uid, limit=20)
        name = before.events[0].name
        grow_log(house.homes.claude, script)
        house.swept()
        totals: list[int] = []

        def ask(
            house: Any = house, uid: str = uid, name: str = name, totals: list[int] = totals
        ) -> None:
            if path == "events":
                totals.append(ask_events(house.context, uid=uid, limit=20).total)
            elif path == "chain":
                api.chain.fn(house.context, uid=uid, limit=20)
            elif path == "event":
                api.one_event.fn(house.context, uid, name)
            else:
                api.session.fn(house.context, uid)

        work.append(count_executed_lines(ask))
        house.close()

        assert totals in ([], [before.total + 1])
    assert max(work) <= 1.2 * min(work)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["first", "middle", "event", "session"])
def test_stored_events_are_read_at_the_same_cost_at_any_length(tmp_path: Path, path: str) -> None:
    """Counted in executed lines, of sessions that nobody asked for before."""
    work = []
    for turns in SIZES:
        folder = tmp_path / f"{turns}"
        folder.mkdir()
        house = empty(folder)
        script = logs_of.script(1, turns)
        logs_of.write(house.homes.claude, script)
        house.swept()
        uid = f"claude:{script.session}"
        rows = house.store.events(uid)
        middle = rows[len(rows) // 2 // PAGE_EVENTS * PAGE_EVENTS + PAGE_EVENTS // 2]
        cursor = cursor_text(PagePosition(middle.seq + 1)) if path == "middle" else None
        name = f"e{middle.event.event_id:013x}"
        answers: list[Any] = []

        def ask(
            house: Any = house,
            uid: str = uid,
            name: str = name,
            cursor: str | None = cursor,
            answers: list[Any] = answers,
        ) -> None:
            if path == "event":
                answers.append(api.one_event.fn(house.context, uid, name))
            elif path == "session":
                answers.append(api.session.fn(house.context, uid))
            else:
                answers.append(ask_events(house.context, uid=uid, cursor=cursor, limit=20))

        ask()  # what is imported and compiled for the first time is not counted
        work.append(count_executed_lines(ask))
        house.close()

        if path == "middle":
            assert middle.seq + SEQ_STEP == answers[0].events[0].seq
    assert max(work) <= 1.2 * min(work)
