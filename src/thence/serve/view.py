"""A session as a page reads it: rows of a chart with what they say, ready to be drawn.

Pure: a `Drawing` takes a chart, reads the payloads of the rows it is asked for and nothing else,
and gives items that hold text (escaped by the template) and markup (made by `markdown` alone).
Invariants: the window holds about 200 rows around the one that is wanted, the rest are counted;
times are absolute beside relative ones; what is missing is said where it would stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, cast

import msgspec

from thence.format import derived_events, output
from thence.format.figures import clean_text, format_duration, money, several
from thence.format.graph import State
from thence.format.normal import SessionEvent
from thence.format.readout import Record
from thence.memory.highlighting import NOTHING, Marking
from thence.serve import markdown
from thence.serve.block_texts import all_of, cut_lines, payload_text, pretty_json, render_input
from thence.serve.chart import MIN_GAP_S, Chart, ChartRow
from thence.serve.clock import DisplayClock, display_time
from thence.serve.event_positions import FOLDED, PathStep, rows_of_part
from thence.serve.row_fields import Body, Diff, FoldedSection, RowFields, RowView, Side, Window
from thence.serve.session_search import paths_of

WINDOW_ROWS: Final = 200
"""Rows that are drawn at a time."""

PREVIEW_LINES: Final = 200
"""Lines of a result that are shown before the rest is asked for."""

CHARS_BEFORE_MATCH: Final = 1_000
"""Characters that are shown before a match that is too far in to be shown from the start."""

_LANES: Final = {
    State.DEAD: "dead",
    State.ROLLED_BACK: "rolled_back",
    State.REPLAYED: "replayed",
    State.SIDE: "side",
}


_TAG: Final = re.compile(r"<[^>]*>")


class PageTarget(msgspec.Struct, frozen=True):
    """An event that a page is opened at, and the rows that lead to it."""

    event: str
    trail: tuple[PathStep, ...]
    position: tuple[int, int]
    """Its record, and its block there."""
    marking: Marking = NOTHING
    """The words that were looked for."""


class Drawing:
    """Draws the rows of one chart."""

    def __init__(
        self, chart: Chart, clock: DisplayClock, linked: Callable[[str], str | None]
    ) -> None:
        """Draw with times of a clock; `linked` returns the uid of a stored session."""
        self.chart = chart
        self.clock = clock
        self.row_fields = RowFields(chart, clock, linked)

    # -- windows ------------------------------------------------------------------------

    def main(
        self, at: str | None = None, *, end: bool = False, marking: Marking = NOTHING
    ) -> Window:
        """Draw the rows of the page around an event, or the first or the last ones.

        Every fold on the way to the event is drawn open, and the row that shows it with all of
        its text; `marking` has the words that were looked for.
        """
        rows = self.chart.rows
        goal = self._goal(at, marking) if at else None
        if goal is None:
            return self._window("", rows, len(rows) if end else 0, None)
        return self._window("", rows, goal.trail[0].row, goal)

    def line(self, places: Sequence[int]) -> Window:
        """Draw the last rows of a part of the line, nothing that parted from it."""
        rows = self.chart.rows_of(places)
        return self._window("", rows, len(rows), None)

    def _goal(self, name: str, marking: Marking) -> PageTarget | None:
        """Return where an event is drawn; None when there is no such event."""
        position = self.chart.find(name)
        paths = paths_of(self.chart)
        number = paths.row_number(*position) if position is not None else None
        if position is None or number is None:
            return None
        event = f"e{self.chart.event_id(*position):013x}"
        return PageTarget(event, tuple(paths.trail(number)), position, marking)

    def _home(self, target: tuple[int, int]) -> int:
        """Return the record whose row shows an event: of a result, that of its call."""
        return paths_of(self.chart).home(*target)[0]

    def part(self, name: str, start: int = 0, end: int | None = None) -> Window | None:
        """Draw a stretch of a part of the session; None when there is no such part."""
        rows = self.rows_of_part(name)
        if rows is None:
            return None
        start = min(max(start, 0), len(rows))
        stop = min(start + WINDOW_ROWS if end is None else max(end, start), start + 2 * WINDOW_ROWS)
        return self._drawn(name, rows, start, min(stop, len(rows)), None)

    def side_from(self, name: str, page: str, outcome: str, start: int) -> Side:
        """Draw one side of a comparison: all of the line that follows a place of it."""
        chart = self.chart
        rows = [
            row
            for row in chart.every_row
            if chart.order.get(row.place, -1) > start and row.kind != "branch"
        ]
        return self.side(name, page, outcome, chart.line[start + 1 :], rows)

    def side(
        self,
        name: str,
        page: str,
        outcome: str,
        places: Sequence[int],
        rows: Sequence[ChartRow],
        *,
        cls: str = "",
    ) -> Side:
        """Draw one side of a comparison, with what it did and took."""
        shown = self._drawn("", rows, 0, min(len(rows), WINDOW_ROWS), None)
        shown = msgspec.structs.replace(shown, total=len(shown.items))
        facts = [("Outcome", outcome), *self._side_facts(places)]
        return Side(name, page, facts, shown, len(rows) - len(shown.items), cls)

    def _side_facts(self, places: Sequence[int]) -> list[tuple[str, str]]:
        """Return what one side did and took, by name."""
        chart = self.chart
        blocks = [block for place in places for block in chart.records[place].blocks]
        called = [(b, chart.calls[b.call]) for b in blocks if b.call in chart.calls]
        calls = [call for block, call in called if block.kind == "tool_call"]
        files = {path for _, call in called for path in call.outcome.edited}
        runs = [call.outcome for call in calls if call.outcome.is_test_run]
        last = ("failed" if runs[-1].is_red else "passed") if runs else ""
        passed = self._duration_ms(places)
        ticks = chart.ticks(places)
        return [
            ("Prompts", f"{chart.prompts_in(places):,}"),
            ("Events", f"{chart.session.count_events(places):,}"),
            ("Files edited", f"{len(files):,}"),
            ("Failed calls", f"{sum(call.outcome.failed for call in calls):,}"),
            ("Test runs", f"{len(runs):,}, the last {last}" if runs else "none"),
            ("Cost", money(ticks) if ticks else "none"),
            ("From first to last", format_duration(passed) if passed else ""),
        ]

    def _duration_ms(self, places: Sequence[int]) -> int:
        """Return the time from the first to the last of some records; 0 where none has a time."""
        moments = (derived_events.time_of(self.chart.records[place].ts) for place in places)
        times = [moment for moment in moments if moment is not None]
        return round(1000 * (max(times) - min(times)).total_seconds()) if times else 0

    def rows_of_part(self, name: str) -> list[ChartRow] | None:
        """Return the rows of a part; None when there is no such part."""
        return rows_of_part(self.chart, name)

    def after(self, name: str) -> Window:
        """Draw all rows of the page that follow an event, the last ones of very many."""
        rows = self.chart.rows
        position = self.chart.find(name)
        start = 0
        if position is not None:
            place = self._home(position)
            at = (n for n, row in enumerate(rows) if _is_row(row, place, position))
            start = next(at, -1) + 1
        start = max(start, len(rows) - 2 * WINDOW_ROWS)
        return self._drawn("", rows, start, len(rows), None)

    def after_in_end(self, name: str) -> Window | None:
        """Draw the rows that follow an event, with the end of a session at hand.

        None when more of the session is needed: the event stands before, or a row that follows
        it stands for others, or is of a record whose rows may be in another order.
        """
        position = self.chart.find(name)
        if position is None or not self.chart.is_end_known():
            return None
        rows, place = self.chart.rows, self._home(position)
        at = next((n for n, row in enumerate(rows) if _is_row(row, place, position)), None)
        if at is None or any(row.kind in FOLDED for row in rows[at + 1 :]):
            return None
        same = [row for row in rows if row.place == rows[at].place]
        if len(same) > 1 and self.chart.is_continued(rows[at].place):
            return None
        start = max(at + 1, len(rows) - 2 * WINDOW_ROWS)
        return self._drawn("", rows, start, len(rows), None)

    def _window(
        self, part: str, rows: Sequence[ChartRow], middle: int, goal: PageTarget | None
    ) -> Window:
        start = max(0, min(middle - WINDOW_ROWS // 4, len(rows) - WINDOW_ROWS))
        return self._drawn(part, rows, start, min(start + WINDOW_ROWS, len(rows)), goal)

    def _drawn(
        self, part: str, rows: Sequence[ChartRow], start: int, end: int, goal: PageTarget | None
    ) -> Window:
        before: Record | None = None
        if start:
            before = self.chart.records[rows[start - 1].place]
        items = []
        for at, row in enumerate(rows[start:end], start):
            on_way = goal is not None and goal.trail[0] == PathStep(part, at)
            items.append(self.item(row, before, goal if on_way else None))
            before = self.chart.records[row.place]
        return Window(
            part,
            items,
            start,
            end,
            len(rows),
            self.row_id(rows[max(start - WINDOW_ROWS // 2, 0)]) if start else "",
            self.row_id(rows[min(end + WINDOW_ROWS // 4, len(rows) - 1)])
            if end < len(rows)
            else "",
        )

    # -- rows ---------------------------------------------------------------------------

    def row_id(self, row: ChartRow) -> str:
        """Name a row: by its event, and by what it is where several stand for one event."""
        name = f"e{self.chart.event_id(row.place, row.block):013x}"
        return f"{name}-{row.kind[0]}" if row.kind in ("branch", "copied") else name

    def item(
        self, row: ChartRow, before: Record | None = None, goal: PageTarget | None = None
    ) -> RowView:
        """Draw one row; with a goal, opened on the way to it."""
        chart = self.chart
        record = chart.records[row.place]
        state = chart.session.states[row.place]
        block = record.blocks[row.block]
        lane = _LANES.get(state, "live")
        if row.kind in ("branch", "copied", "agent"):
            lane = "live"
        base = RowView(
            self.row_id(row),
            row.kind,
            "live" if lane == "live" and state is not State.ORPHANED else state.value,
            lane,
            display_time(self.clock, record.ts),
            gap=self._gap(before, record),
        )
        fields = self.row_fields.fields(row, record, block)
        if goal is not None:
            fields |= self._open_fields(row, base.id, goal, fields)
        return msgspec.structs.replace(base, **fields)

    def _open_fields(
        self, row: ChartRow, name: str, goal: PageTarget, fields: dict[str, object]
    ) -> dict[str, object]:
        """Return what changes in a row that is on the way to an event, or that shows it."""
        if len(goal.trail) > 1:
            step = goal.trail[1]
            rows = self.rows_of_part(step.part) or []
            inner = msgspec.structs.replace(goal, trail=goal.trail[1:])
            return {"inner": self._window(step.part, rows, step.row, inner), "open": True}
        opened: dict[str, object] = {
            "is_hit": True,
            "open": True,
            "anchor": goal.event if goal.event != name else "",
        }
        place, number = goal.position
        if not paths_of(self.chart).shows(place, number):
            kind = self.chart.records[place].blocks[number].kind.replace("_", " ")
            label = f"Not part of the conversation: {kind}"
            return opened | {"aside": label, "body": self._goal_body(goal.event, goal)}
        if row.kind in ("prompt", "correction", "answer", "boundary", "decision", "stop"):
            fold = cast("FoldedSection | None", fields.get("fold"))
            shown = f"{fields.get('say', '')}{fields.get('arg', '')}{fold.gist if fold else ''}"
            if not goal.marking or goal.marking.first(_TAG.sub(" ", shown)) is not None:
                return opened
            return opened | {"aside": "Full text", "body": self._goal_body(name, goal)}
        if row.kind == "thinking" and not fields.get("lazy"):
            return opened
        body = self._goal_body(name, goal)
        if body is not None and fields.get("diffs"):
            diffs = cast("list[Diff]", fields["diffs"])
            if any(diff.lines for diff in diffs):
                body = msgspec.structs.replace(body, diffs=[])
        return opened | {"body": body}

    def _goal_body(self, name: str, goal: PageTarget) -> Body | None:
        """Return what the row of an event holds, cut so that the words looked for are in it."""
        body, marking = self.body(name), goal.marking
        if body is None or not marking:
            return body
        drawn = (f"{body.input}\n{body.got}", *(x.text for diff in body.diffs for x in diff.lines))
        if any(marking.first(f"{text}") is not None for text in drawn):
            return body
        place, number = goal.position
        block = self.chart.filled(self.chart.records[place].blocks[number])
        texts = (clean_text(all_of(block)), clean_text(pretty_json(block.payload)))
        places = ((text, at) for text in texts if (at := marking.first(text)) is not None)
        text, first = next(places, ("", 0))
        if not text:
            return body
        start = max(text.rfind("\n", 0, max(first - CHARS_BEFORE_MATCH, 0)), 0)
        got = text[start : first + 8 * CHARS_BEFORE_MATCH]
        rest = f"characters {start + 1:,} to {start + len(got):,} of {len(text):,}"
        return Body(body.input, got, rest if len(got) < len(text) else "", body.note, body.diffs)

    def _gap(self, before: Record | None, record: Record) -> str:
        """Return how long the pause before a row was, if it was long."""
        if before is None or before.channel != record.channel:
            return ""
        old, new = derived_events.time_of(before.ts), derived_events.time_of(record.ts)
        passed = (new - old).total_seconds() if old and new else 0.0
        if passed < MIN_GAP_S:
            return ""
        days = round(passed / 86_400)
        text = several(days, "day") if days > 1 else format_duration(round(passed * 1000))
        return f"{text} later, {self.clock.day(record.ts)}"

    # -- bodies -------------------------------------------------------------------------

    def body(self, name: str, *, is_complete: bool = False) -> Body | None:
        """Return the content of a folded row; None when there is no such event."""
        position = self.chart.find(name)
        if position is None:
            return None
        place, number = position
        block = self.chart.filled(self.chart.records[place].blocks[number])
        if block.kind == "tool_call":
            return self._call_body(block, is_complete=is_complete)
        text, rest = cut_lines(
            clean_text(all_of(block)), PREVIEW_LINES if not is_complete else None
        )
        if block.kind == "user_msg":
            return Body(markdown.render_typed(all_of(block)))
        if block.kind in ("thinking", "assistant_msg", "decision"):
            return Body(markdown.render(all_of(block)))
        return Body(got=text, rest=rest)

    def _call_body(self, block: SessionEvent, *, is_complete: bool) -> Body:
        call = self.chart.calls.get(block.call or "")
        result = self.chart.filled(call.result) if call and call.result else None
        asked = render_input(block, self.chart.session.effect(block))
        if result is None:
            returned = self.chart.output_of(block)
            if returned is None:
                running = block.call in self.chart.open_calls
                note = "still running" if running else "no result recorded"
                return Body(asked, note=note)
            return Body(asked, clean_text(payload_text(returned)))
        text = clean_text(output.plain(all_of(result)))
        shown, rest = cut_lines(text, None if is_complete else PREVIEW_LINES)
        note = "" if text.strip() else "no output"
        return Body(asked, shown, rest, note, self.row_fields.diffs(block))

    def text(self, name: str) -> str | None:
        """Return the complete text of an event, or of the result of a call, as it was written."""
        position = self.chart.find(name)
        if position is None:
            return None
        blocks = self.chart.records[position[0]].blocks
        block = blocks[position[1]]
        if block.kind == "user_msg":
            prompts = (all_of(self.chart.filled(b)) for b in blocks if b.kind == "user_msg")
            return "\n\n".join(filter(None, prompts))
        if block.kind == "tool_call":
            call = self.chart.calls.get(block.call or "")
            if call is not None and call.result is not None:
                block = call.result
        return all_of(self.chart.filled(block))


# -- parts of rows ---------------------------------------------------------------------------


def _is_row(row: ChartRow, place: int, target: tuple[int, int]) -> bool:
    """Whether a row is the one of an event; a prompt is one row for all its texts."""
    if row.place != place or row.kind in ("branch", "copied"):
        return False
    if place != target[0]:
        return True  # a result's call
    if row.kind == "boundary" and row.block:  # a cleared context; the prompt has its own row
        return row.block == target[1]
    return row.block == target[1] or row.kind in ("prompt", "correction", "boundary")
