"""Terminal, viewer and digest count a session alike, and draw it alike however often they do."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given

from tests.cli.test_session_text import Facts, text_block
from tests.format.histories import Script, scripts
from tests.format.test_session_graph import own
from tests.pace import by_pace
from tests.serve.test_same_outcomes import sources
from thence.agents.sessions import read_all
from thence.cli.session_text import Page
from thence.cli.tree import Tree
from thence.errors import ThenceError
from thence.format import lineage
from thence.format.facts import Fact
from thence.format.nodes import Is, Undo
from thence.format.records import Usage
from thence.format.session_graph import SessionGraph
from thence.memory.readouts import OpenedSession, readout_of
from thence.memory.session_timeline import SessionTimeline
from thence.serve.chart import Chart
from thence.serve.event_positions import Paths, rows_of_part

AT = datetime(2026, 11, 15, 14, tzinfo=UTC)


@cache
def sessions(data: Path) -> list[SessionGraph]:
    """Return the sessions of real clients; each record belongs to one of them."""
    agents: dict[str, dict[str, list[Fact]]] = {}
    for adapter, source in sources(data):
        known = agents.setdefault(adapter.name, {})
        if source.session in known:  # the same one as it was before a kill
            continue
        try:
            known[source.session], _ = read_all(adapter, source)
        except ThenceError:
            continue
    out: list[SessionGraph] = []
    for name, facts in agents.items():
        shared = lineage.find_shared(facts)
        for session, own_facts in facts.items():
            replayed, billed = shared.replayed[session], shared.billed[session]
            out.append(
                SessionGraph(f"{name}:{session}", own_facts, replayed=replayed, billed=billed)
            )
    return out


def check_turns(session: SessionGraph) -> int:
    """Check that all who count the turns of a session agree; return how many there are."""
    turns = session.session().cost.turns
    readout = readout_of(session)
    page = Page(OpenedSession(readout, "claude", [], []), 100)
    timeline = SessionTimeline(readout)

    assert turns == readout.head.session.cost.turns
    assert list(range(1, turns + 1)) == list(page.turns.values())
    assert page.turns == Chart(readout).turns
    assert turns == sum(bool(turn.prompt) for turn in timeline.turns)
    return turns


def check_drawing(session: SessionGraph) -> int:
    """Check that what is drawn twice is equal, and each discarded branch there once, with its cost.

    Return how many branches there are.
    """
    readout = readout_of(session)
    chart, tree = Chart(readout), Tree(OpenedSession(readout, "claude", [], []), AT)
    branches = sorted(branch.start for branch in readout.graph.branches)
    for opened in (False, True):
        page = Page(OpenedSession(readout, "claude", [], []), 100, opened=opened)
        lines = page.lines()

        assert lines == page.lines()
        assert len(branches) == sum(map(named_branches, lines))
    rows, paths = list(chart.rows), Paths(chart)
    parts = [rows_of_part(chart, f"{kind}{at}") for kind in "bkcs" for at in range(99)]

    assert list(tree.lines(100)) == list(tree.lines(100))
    assert rows == chart.rows == Chart(readout).rows
    assert parts == [rows_of_part(chart, f"{kind}{at}") for kind in "bkcs" for at in range(99)]
    assert branches == sorted(row.place for row in chart.by_kind.get("branch", ()))
    for number, branch in enumerate(chart.branches):
        trails = [paths.trail(paths.row_number(place, 0) or 0) for place in branch.events]

        assert any(step.part == f"b{number}" for trail in trails for step in trail) or not any(
            row.place in branch.events for row in chart.rows_of(branch.events)
        )
    spent = (chart.bills.get(at, Usage()).total for b in chart.branches for at in b.events)

    assert session.spent.dead.total == sum(spent)
    return len(branches)


def named_branches(line: str) -> int:
    """Return of how many discarded branches a line of the terminal tells."""
    plain = line.lstrip("│ ")
    if (more := re.match(r"├─╳  ([\d,]+) more discarded", plain)) is not None:
        return int(more[1].replace(",", ""))
    return bool(re.match("├─[╳╮]  (rolled back|discarded branch),", plain))


@given(scripts)
def test_turns_of_any_session_are_counted_once(script: Script) -> None:
    """Whatever was rewound, forked or summed up."""
    check_turns(SessionGraph("thence:s", own(script)[1]))


@pytest.mark.slow
@pytest.mark.sampled
def test_real_sessions_are_drawn_twice_alike(shared: Path) -> None:
    """And no discarded branch of theirs is left out, nor what it cost."""
    every = sessions(shared / "data")[:: by_pace(everyday=10, full=2, prove=1)]
    branches = sum(map(check_drawing, every))

    assert branches


@given(scripts)
def test_any_session_is_drawn_twice_alike(script: Script) -> None:
    """Whatever its branches hang on."""
    check_drawing(SessionGraph("thence:s", own(script)[1]))


def on_a_copy() -> Facts:
    """A fork whose first prompts are copies, with a branch that hangs on one of them."""
    facts = Facts().prompt("a", "one", parent=None, origin="other")
    facts.reply("b", "yes", parent="a", origin="other")
    facts.prompt("c", "in vain", parent="a").reply("d", "sure", parent="c", tokens=500)
    return facts.prompt("e", "instead", parent="b").reply("f", "fine", parent="e", tokens=10)


def on_a_summary() -> Facts:
    """A compacted session with a branch that hangs on the summary."""
    facts = Facts().prompt("a", "one").reply("b", "yes")
    facts.add("s", text_block("lifecycle", "user", "The story so far."), flags=Is.SUMMARY)
    facts.prompt("c", "in vain").reply("d", "sure", tokens=500)
    facts.add("e", text_block("lifecycle", "system", "undo"), undo=Undo(turns=1))
    return facts.prompt("f", "instead").reply("g", "fine", tokens=10)


def on_nothing() -> Facts:
    """A session with a second root that nobody went on from."""
    facts = Facts().prompt("a", "in vain", parent=None).reply("b", "sure", parent="a", tokens=500)
    return facts.prompt("c", "instead", parent=None).reply("d", "fine", parent="c", tokens=10)


@pytest.mark.parametrize("made", [on_a_copy, on_a_summary, on_nothing])
def test_discarded_branch_has_a_row_whatever_it_hangs_on(made: Callable[[], Facts]) -> None:
    """In the viewer it opens there, and one side of its comparison is what it cost."""
    session = SessionGraph("codex:s", made().all)

    assert 1 == check_drawing(session)
    assert 500 == session.spent.dead.total


def test_branch_on_a_copy_parts_the_copies() -> None:
    """It stands where it parted: what was copied after that follows it."""
    chart = Chart(readout_of(SessionGraph("codex:s", on_a_copy().all)))

    assert ["copied", "branch", "copied", "prompt", "answer"] == [row.kind for row in chart.rows]
    assert [[0], [1]] == chart.copies
