"""The end of a session is drawn from its last records as it is from all of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings

from bench.measure import count_executed_lines
from tests.agents import test_growth
from tests.format.growing import Grown
from tests.format.test_fold import conversation, logs
from tests.memory import logs as logs_of
from tests.memory.test_growth import grow as grow_log
from tests.pace import by_pace
from tests.serve.conftest import empty
from thence.agents import adapters
from thence.agents.sessions import read_all
from thence.format.facts import Fact
from thence.format.readout import Readout, read_window
from thence.format.session_graph import SessionGraph
from thence.format.stored import events_of_session
from thence.memory.readouts import readout_of
from thence.serve.chart import Chart
from thence.serve.clock import DisplayClock
from thence.serve.session_head import tail
from thence.serve.session_page import SessionPage
from thence.serve.view import Drawing

LAST_ROWS = 40
PHASES = [phase for phase in Phase if phase is not Phase.shrink]


def drawn(chart: Chart) -> Drawing:
    """Return what draws a chart."""
    return Drawing(chart, DisplayClock(), lambda _: None)


def charts(grown: Grown) -> tuple[Chart, Chart]:
    """Return the charts of a session and of its end, both of events without their payloads."""
    assert grown.state is not None
    session = SessionGraph(grown.uid, grown.facts)
    head = readout_of(session).head
    end = read_window(grown.uid, grown.state, grown.fetch, head)
    return Chart(Readout(grown.uid, events_of_session(session), head)), Chart(end, grown.state)


def compare(grown: Grown) -> Counter[str]:
    """Draw what follows each of the last rows in both ways, and count how that was done."""
    complete, end = map(drawn, charts(grown))
    out: Counter[str] = Counter()
    for row in complete.chart.rows[-LAST_ROWS:]:
        name = complete.row_id(row).partition("-")[0]
        window = end.after_in_end(name)
        if window is None:
            out["whole"] += 1
            continue
        out["end"] += 1
        assert complete.after(name).items == window.items
    if out["end"]:
        assert tail(complete.chart, None, None) == tail(end.chart, None, None)
    return out


def grow(uid: str, pieces: Iterable[Sequence[Fact]]) -> Counter[str]:
    """Let a session grow, and compare after each piece."""
    grown, out = Grown(uid), Counter[str]()
    for piece in pieces:
        grown.add(piece)
        out += compare(grown)
    return out


@pytest.mark.slow
@settings(max_examples=by_pace(everyday=5, full=10, prove=60), phases=PHASES)
@given(logs())
def test_the_end_of_any_session_is_drawn_from_its_last_records(log: list[Fact]) -> None:
    """Whatever was written before: branches, copies, subagents, repeated ids."""
    grow("claude:one", ([fact] for fact in log))


def test_turns_go_on_counting_and_nothing_but_the_end_is_needed() -> None:
    """Of a long session, whose beginning is in sums only."""
    facts = list(conversation(200))
    grown = Grown("claude:one")
    for start in range(0, len(facts), 50):
        grown.add(facts[start : start + 50])
    end = drawn(charts(grown)[1])
    rows = end.chart.rows
    window = end.after_in_end(end.row_id(rows[-8]))

    assert len(rows) < 100
    assert window is not None
    assert [199, 200] == [item.turn for item in window.items if item.turn]
    assert compare(grown)["end"] >= 12


def text(words: str) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": words}


def test_a_prompt_with_a_note_in_one_record_is_drawn_as_in_the_whole_session(
    tmp_path: Path,
) -> None:
    """The end may begin with this record: what it was said to be is known before the end only."""
    lines: list[dict[str, Any]] = []

    def write(role: str, *blocks: dict[str, Any]) -> None:
        at = len(lines)
        links = {"uuid": f"u{at}", "parentUuid": f"u{at - 1}" if at else None}
        when = {
            "timestamp": f"2026-11-17T10:{at // 60:02}:{at % 60:02}.000Z",
            "sessionId": "s",
            "cwd": "/p",
        }
        message = {"role": role, "content": list(blocks)}
        lines.append({"type": role, "message": message, **links, **when})

    for turn in range(60):
        note = f"<ide_opened_file>The user opened {turn}.py.</ide_opened_file>"
        write("user", text(note), text(f"Look at {turn}.py"))
        write("assistant", text("I look."))
    path = tmp_path / "projects" / "-p" / "s.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    adapter = adapters()["claude"]
    (source,) = adapter.find(tmp_path)

    facts = read_all(adapter, source)[0]
    out = grow(source.uid, (facts[at : at + 20] for at in range(0, len(facts), 20)))
    assert out["end"]


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("part", range(4))
def test_the_end_of_every_real_session_is_drawn_from_its_last_records(
    shared: Path, part: int
) -> None:
    """Session by session in a few pieces."""
    out: Counter[str] = Counter()
    step = by_pace(everyday=24, full=24, prove=4)
    for adapter, source in test_growth.sessions(shared / "data")[part::step]:
        facts = read_all(adapter, source)[0]
        if not facts or len(facts) > 3_000:
            continue
        size = max(len(facts) // 6, 1)
        pieces = [facts[at : at + size] for at in range(0, len(facts), size)]
        out += grow(source.uid, pieces)

    assert out["end"] > out["whole"]


SIZES = (60, 600)
"""Turns of the sessions that are compared; a turn is four events."""


@pytest.mark.slow
def test_the_end_of_a_page_costs_the_same_in_a_session_of_any_length(tmp_path: Path) -> None:
    """Counted in executed lines, for what a page fetches when a line was written."""
    work = []
    for turns in SIZES:
        folder = tmp_path / f"{turns}"
        folder.mkdir()
        house = empty(folder)
        script = logs_of.script(1, turns)
        logs_of.write(house.homes.claude, script)
        house.swept()
        uid = f"claude:{script.session}"
        before = SessionPage(house.context, uid)
        rows = before.chart.rows
        name = before.drawing().row_id(rows[-2])
        grow_log(house.homes.claude, script)
        house.swept()
        after = SessionPage(house.context, uid)
        made: list[list[int]] = []

        def fetch(after: Any = after, name: str = name, made: list[list[int]] = made) -> None:
            made.append([item.turn for item in after.latest(name)[1].items])

        work.append(count_executed_lines(fetch))
        house.close()

        assert [turns + 1] == [turn for turn in made[0] if turn]
    assert max(work) <= 1.2 * min(work)
