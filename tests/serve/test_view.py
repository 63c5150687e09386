"""A session as rows: the chart, its drawing, outline and map, on made-up and real sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.pace import grows_linearly
from tests.serve.conftest import House
from thence.agents.claude.sample import SampleTranscript
from thence.agents.sessions import load
from thence.cli import sample_machine
from thence.format.graph import State
from thence.format.nodes import Is
from thence.format.session_graph import SessionGraph
from thence.memory.readouts import readout_of
from thence.memory.store import Filter
from thence.serve.chart import Chart, ChartRow
from thence.serve.chart_cache import LARGE_SESSION_EVENTS, Charts, charts_of
from thence.serve.clock import DisplayClock
from thence.serve.outline import SessionOutline
from thence.serve.row_fields import Window
from thence.serve.session_head import address, head, tail
from thence.serve.view import WINDOW_ROWS, Drawing

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def nobody(name: str) -> None:
    """Know of no other session."""
    del name


def charts(house: House) -> Iterator[Chart]:
    """Lay out every session of a house, from its thin facts."""
    for row in house.store.sessions(Filter()):
        yield charts_of(house.context).get(house.context, row)


def drawn(chart: Chart) -> Drawing:
    """Draw a chart with times in UTC."""
    return Drawing(chart, DisplayClock(UTC), nobody)


def all_rows(chart: Chart) -> Iterator[ChartRow]:
    """Return the rows of the page, folded ones as well."""
    for row in chart.rows:
        yield row
        if row.kind == "boundary" and row.number >= 0:
            yield from chart.bounds[row.number].rows


def whole_of(folder: Path, script: SampleTranscript) -> Chart:
    """Write a session down and lay it out."""
    return Chart(readout_of(load(script.save(folder)).graph))


# -- rows -----------------------------------------------------------------------------------


def test_everything_said_on_the_line_is_in_exactly_one_row(house: House) -> None:
    """Prompts, answers and calls of the live line, compacted ones included."""
    for chart in charts(house):
        rows = Counter((row.place, row.block) for row in all_rows(chart) if row.kind != "branch")
        for place in chart.line:
            fact = chart.records[place]
            if chart.session.states[place] is State.REPLAYED or fact.node.flags & Is.SUMMARY:
                continue
            for number, block in enumerate(fact.blocks):
                is_reply = block.kind == "assistant_msg" and block.summary
                if is_reply or block.kind == "tool_call":
                    assert rows[place, number] == 1, (chart.session.uid, block)
            if fact.node.flags & Is.PROMPT:
                assert sum(1 for r in all_rows(chart) if r.place == place) >= 1


def test_every_dead_branch_is_one_row(house: House) -> None:
    """Where it parted, and nowhere else."""
    for chart in charts(house):
        numbers = [row.number for row in all_rows(chart) if row.kind == "branch"]

        assert sorted(numbers) == list(range(len(chart.branches)))


def test_thin_facts_are_laid_out_as_whole_ones_are(house: House) -> None:
    """Payloads are for drawing; they change no row."""
    for row in house.store.sessions(Filter()):
        thin = charts_of(house.context).get(house.context, row)
        full = Chart(house.context.open_session(row).session)

        assert thin.rows == full.rows
        assert [bound.rows for bound in thin.bounds] == [bound.rows for bound in full.bounds]


def test_what_was_compacted_folds_into_its_boundary(house: House) -> None:
    """What was asked first of all stays in sight."""
    folded = [chart for chart in charts(house) if chart.bounds]

    for chart in folded:
        assert chart.rows[0].kind == "prompt"
        assert chart.rows[1].kind == "boundary"
    assert any(row.kind == "test" for chart in folded for row in chart.bounds[0].rows)


def test_a_prompt_that_corrects_is_a_correction(house: House) -> None:
    """And the first one never is."""
    kinds = Counter(row.kind for chart in charts(house) for row in all_rows(chart))

    assert kinds["correction"] >= 1
    for chart in charts(house):
        first = [row.kind for row in all_rows(chart) if chart.turns.get(row.place) == 1]
        assert "correction" not in first


def test_a_call_says_how_it_went(tmp_path: Path) -> None:
    """Tests, edits, failures, refusals, calls without a result, each a kind of its own."""
    s = SampleTranscript("kinds", tmp_path, NOON)
    s.prompt("Go.")
    s.bash("pytest -q", "1 failed, 2 passed in 1.0s\n", code=1)
    s.edit("a.py", "x = 1", "x = 2")
    s.bash("ls", "a.py\n")
    s.call("Read", {"file_path": "/x"}, "File does not exist.", failed=True)
    s.call("Bash", {"command": "sleep 9"}, None)
    s.prompt("Stop.")
    s.text("Done.")
    chart = whole_of(tmp_path, s)

    assert [row.kind for row in chart.rows] == [
        *("prompt", "test", "edit", "tool", "error", "interrupted", "correction", "answer")
    ]


def test_nothing_was_said_and_nothing_is_shown() -> None:
    """An empty session has no rows, and no row fails."""
    chart = Chart(readout_of(SessionGraph("claude:x", [])))
    drawing = drawn(chart)
    window = drawing.main()

    assert window == Window("", [], 0, 0, 0)
    assert SessionOutline(drawing, window, DisplayClock(UTC), "/x").map() is None


# -- drawing --------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_event_can_be_found_and_is_drawn(house: House) -> None:
    """By its name, wherever it stands: what holds it is opened."""
    for row in house.store.sessions(Filter()):
        chart = charts_of(house.context).get(house.context, row)
        stored = house.store.load_session(row.session.session_uid)
        assert stored is not None
        drawing = drawn(chart)
        for event in (
            stored_event.event.event_id
            for stored_event in house.store.events(row.session.session_uid)
        ):
            name = f"e{event:013x}"
            place_of = chart.find(name)
            assert place_of is not None
            window = drawing.main(name)
            assert window.items or not chart.rows
            assert drawing.body(name) is not None
            assert drawing.text(name) is not None


def test_a_name_that_is_none_finds_nothing(house: House) -> None:
    """Whatever it looks like."""
    chart = next(charts(house))
    for name in ("", "e", "x", "e" + "f" * 14, "../..", "e\u0661", "e-1"):
        assert chart.find(name) is None
        assert drawn(chart).body(name) is None


def test_no_part_is_not_a_part(house: House) -> None:
    """A number that is too high, a letter that means nothing."""
    drawing = drawn(next(charts(house)))
    for name in ("b999999", "k7777", "s99", "c99", "x1", "b", "bx", "b٣"):
        assert drawing.part(name) is None


def test_every_part_is_drawn(house: House) -> None:
    """Branches, compactions, copies, subagents: with their own rows, in their own lane."""
    lanes: set[str] = set()
    for chart in charts(house):
        drawing = drawn(chart)
        for item in drawing.main().items:
            if item.fold is not None and item.fold.count:
                window = drawing.part(item.fold.part)
                assert window is not None
                assert window.items
                lanes |= {row_view.lane for row_view in window.items}

    assert lanes == {"live", "dead", "rolled_back", "replayed", "side"}


def test_a_long_session_is_drawn_a_window_at_a_time(tmp_path: Path) -> None:
    """Around what is wanted; the rest is counted, and every row comes up somewhere."""
    s = SampleTranscript("long", tmp_path, NOON)
    for number in range(300):
        s.prompt(f"Question {number}")
        s.text(f"Answer {number}")
    chart = whole_of(tmp_path, s)
    drawing = drawn(chart)
    first, last = drawing.main(), drawing.main(end=True)
    name = drawing.row_id(chart.rows[300])
    middle = drawing.main(name)

    assert (first.start, first.end, first.total) == (0, WINDOW_ROWS, 600)
    assert (last.start, last.end) == (600 - WINDOW_ROWS, 600)
    assert name in [item.id for item in middle.items]
    assert len(middle.items) == WINDOW_ROWS
    seen: list[str] = []
    at = 0
    while at < 600:
        window = drawing.part("", at)
        assert window is not None
        seen += [item.id for item in window.items]
        at = window.end
    assert seen == [drawing.row_id(row) for row in chart.rows]


def test_a_pause_says_how_long_it_was(tmp_path: Path) -> None:
    """Where nothing was written for long."""
    s = SampleTranscript("pause", tmp_path, NOON)
    s.prompt("One.")
    s.text("Yes.")
    s.prompt("Two.", wait=3 * 3600)
    items = drawn(whole_of(tmp_path, s)).main().items

    assert [item.gap for item in items] == ["", "", "3 h 00 later, Sun 1 Mar"]


def test_an_open_call_of_a_running_session_is_no_interruption(tmp_path: Path) -> None:
    """It is open; whether anybody is at it, the end of the page says."""
    s = SampleTranscript("open", tmp_path, NOON)
    s.prompt("Go.")
    s.call("Bash", {"command": "make all"}, None)
    chart = whole_of(tmp_path, s)

    assert [row.kind for row in chart.rows] == ["prompt", "tool"]
    assert drawn(chart).main().items[1].status == "open"
    assert tail(chart, "running", None).what == "make all"
    assert tail(chart, None, None).text == "Stopped in the middle of a turn"


# -- around it ------------------------------------------------------------------------------


def test_the_outline_counts_what_the_rows_are(house: House) -> None:
    """Jumps and rows agree, folded ones included."""
    for chart in charts(house):
        drawing = drawn(chart)
        outline = SessionOutline(drawing, drawing.main(), DisplayClock(UTC), "/s")
        kinds = Counter(row.kind for row in all_rows(chart))
        jumps = {jump.kind: jump.count for jump in outline.jumps()}

        assert jumps["edit"] == kinds["edit"]
        assert jumps["test"] == kinds["test"]
        assert jumps["branch"] == kinds["branch"]
        assert jumps["error"] == kinds["error"] + kinds["interrupted"] + kinds["stop"]


def test_the_map_stays_within_its_frame(house: House) -> None:
    """Cells, points, marks and links, whatever the session."""
    for chart in charts(house):
        drawing = drawn(chart)
        session_map = SessionOutline(drawing, drawing.main(), DisplayClock(UTC), "/s").map()
        if session_map is None:
            continue
        assert all(0 <= cell.at < 600 and 0 <= cell.heat <= 5 for cell in session_map.cells)
        assert all(0 <= at <= 600 and 0 <= share <= 1 for at, share in session_map.points)
        assert all(0 <= mark.at <= 600 for mark in session_map.marks)
        assert all(at + size <= 601 for at, size in session_map.dead)


def test_money_over_a_session_is_that_of_the_store(house: House) -> None:
    """All bills of a chart are what the list says."""
    for row in house.store.sessions(Filter()):
        chart = charts_of(house.context).get(house.context, row)

        assert chart.ticks(range(len(chart.records))) == sum(row.ticks.values())


def test_the_head_says_what_the_row_says(house: House) -> None:
    """Without reading the session."""
    row = next(house.store.sessions(Filter()))
    made = head(row, None, DisplayClock(UTC), {})

    assert made.events == f"{row.events:,}"
    assert made.page == address(row.session.session_uid)


def test_charts_are_made_once_and_let_go_when_there_are_too_many(house: House) -> None:
    """The same chart for the same change; a bound on what is held."""
    rows = list(house.store.sessions(Filter()))
    few = Charts(house.context, room=1)
    first = few.get(house.context, rows[0])

    assert few.get(house.context, rows[0]) is first
    few.get(house.context, rows[1])
    assert few.get(house.context, rows[0]) is not first
    assert few.at_hand(rows[0])
    assert rows[0].events < LARGE_SESSION_EVENTS


@pytest.mark.slow
def test_laying_out_takes_time_in_proportion(tmp_path: Path) -> None:
    """Also where every turn left a branch behind."""

    def session_of(size: int) -> SessionGraph:
        s = SampleTranscript(f"size-{size}", tmp_path, NOON - timedelta(days=30))
        for _ in range(size):
            s.prompt("Go on.")
            before = s.tip
            s.text("Dead.")
            s.tip = before
            s.bash("ls", "a\n")
        return load(s.save(tmp_path)).graph

    made = {size: session_of(size) for size in (60, 480)}

    def work(size: int) -> None:
        chart = Chart(readout_of(SessionGraph("claude:x", made[size].facts)))
        drawing = drawn(chart)
        window = drawing.main()
        SessionOutline(drawing, window, DisplayClock(UTC), "/x").map()

    assert grows_linearly(work, 60)


@pytest.mark.slow
def test_every_real_session_is_drawn(shared: Path) -> None:
    """Of all agents and versions: each row, each fold, each body."""
    files = [*shared.glob("data/claude-code/v*/*/claude/projects/*/*.jsonl")]
    files += shared.glob("data/codex/*/codex_home/sessions/**/*.jsonl")
    assert files
    for path in files:
        chart = Chart(readout_of(load(path).graph))
        drawing = drawn(chart)
        window = drawing.main()
        outline = SessionOutline(drawing, window, DisplayClock(UTC), "/s")
        outline.entries()
        outline.map()
        for row in all_rows(chart):
            drawing.item(row)
            drawing.body(f"e{chart.event_id(row.place, row.block):013x}")


def test_made_up_sessions_have_one_of_everything(house: House) -> None:
    """So that the tests above say something."""
    kinds = {row.kind for chart in charts(house) for row in all_rows(chart)}

    assert {"prompt", "correction", "answer", "thinking", "tool", "edit", "test"} <= kinds
    assert {"agent", "boundary", "branch", "copied"} <= kinds
    assert sample_machine.made_id("x")


def test_a_large_edit_is_counted_and_drawn_when_it_is_opened(tmp_path: Path) -> None:
    """The page says how many lines went and came; the body holds them."""
    s = SampleTranscript("large", tmp_path, NOON)
    s.prompt("Go.")
    old = "\n".join(f"line {n} of the old text" for n in range(120))
    s.edit("a.py", old, old.replace("line 7 ", "LINE 7 "))
    s.edit("b.py", "x = 1", "x = 2")
    drawing = drawn(whole_of(tmp_path, s))
    large, little = drawing.main().items[1:]
    body = drawing.body(large.id)

    assert [(diff.path, diff.plus, diff.minus, diff.lines) for diff in large.diffs] == [
        ("a.py", 1, 1, [])
    ]
    assert not large.diffs[0].open
    assert little.diffs[0].open
    assert body is not None
    assert [str(line.text) for line in body.diffs[0].lines if line.sign == "+"] == [
        'LINE <span class="c-n">7</span> of the old text'
    ]
