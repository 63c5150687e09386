"""A session as a page reads it: rows of a chart with what they say, ready to be drawn.

Pure: a `Drawing` takes a chart, reads the payloads of the rows it is asked for and nothing else,
and gives items that hold text (escaped by the template) and markup (made by `markdown` alone).
Invariants: the window holds about 200 rows around the one that is wanted, the rest are counted;
times are absolute beside relative ones; what is missing is said where it would stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Final, cast

import msgspec
from markupsafe import Markup

from thence.format import joins, output, patches, tools
from thence.format.facts import text_in
from thence.format.figures import clean, clean_text, format_duration, money, several, short, size
from thence.format.graph import State
from thence.format.normal import SessionEvent, one_line
from thence.format.readout import Record
from thence.format.records import text_of
from thence.memory.marking import NOTHING, Marking
from thence.serve import markdown
from thence.serve.chart import MIN_GAP_S, Chart, ChartBoundary, ChartRow, RowKind, context_of
from thence.serve.clock import DisplayClock, DisplayTime, display_time
from thence.serve.finding import paths_of
from thence.serve.items import Body, Diff, FoldedSection, RowView, Side, Window, status_of, tests_of
from thence.serve.markdown import DiffLine
from thence.serve.paths import FOLDED, PathStep, rows_of_part
from thence.serve.texts import (
    all_of,
    answer_line,
    compact_json,
    cut_lines,
    first_line,
    payload_text,
    pretty_json,
    render_input,
    tool_name,
    without_plugin,
)

WINDOW_ROWS: Final = 200
"""Rows that are drawn at a time."""

MAX_INLINE_BYTES: Final = 600
"""Bytes of a thought that come with the page; longer ones are fetched when opened."""

MAX_DRAWN_EDIT_BYTES: Final = 3_000
"""Bytes of an edit that is drawn with the page; of a larger one the lines are counted."""

PREVIEW_LINES: Final = 200
"""Lines of a result that are shown before the rest is asked for."""

CHARS_BEFORE_MATCH: Final = 1_000
"""Characters that are shown before a match that is too far in to be shown from the start."""

_ICONS: Final = {
    "shell": "term",
    "read": "file",
    "write": "edit",
    "edit": "edit",
    "patch": "edit",
    "search": "search",
    "list": "file",
    "fetch": "search",
    "web": "search",
    "agent": "agent",
    "plan": "check",
}
_VERBS: Final = (
    *("ran ", "read ", "edited ", "wrote ", "deleted ", "moved ", "searched for ", "listed "),
    *("fetched ", "searched the web for ", "asked a subagent: "),
)
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
        self._linked = linked

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
        rows = self.chart.rows_of(places, parted=False)
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

    def compare(self, number: int) -> tuple[Side, Side] | None:
        """Draw a discarded branch beside what took its place; None when there is no such branch."""
        chart = self.chart
        if number >= len(chart.branches):
            return None
        start = chart.order.get(chart.branch_origins[number], -1)
        branch = chart.branches[number].events
        left = self._side("Discarded", branch, chart.rows_of(branch, parted=False))
        return left, self.side_from("Replacement", start)

    def side_from(self, name: str, start: int) -> Side:
        """Draw one side of a comparison: all of the line that follows a place of it."""
        chart = self.chart
        rows = [
            row
            for row in chart.every_row
            if chart.order.get(row.place, -1) > start and row.kind != "branch"
        ]
        return self._side(name, chart.line[start + 1 :], rows)

    def _side(self, name: str, places: Sequence[int], rows: Sequence[ChartRow]) -> Side:
        """Draw one side of a comparison, with what it did and took."""
        chart = self.chart
        shown = self._drawn("", rows, 0, min(len(rows), WINDOW_ROWS), None)
        shown = msgspec.structs.replace(shown, total=len(shown.items))
        blocks = [block for place in places for block in chart.records[place].blocks]
        calls = [
            chart.calls[b.call] for b in blocks if b.kind == "tool_call" and b.call in chart.calls
        ]
        files = {
            touch.path
            for block, call in ((b, chart.calls.get(b.call or "")) for b in blocks)
            if call is not None and call.outcome.edited
            for touch in tools.touches(block.tool or "", chart.payload(block))
            if touch.how != "read"
        }
        runs = [call.outcome for call in calls if call.outcome.is_test_run]
        times = [moment for p in places if (moment := joins.time_of(chart.records[p].ts))]
        passed = round(1000 * (max(times) - min(times)).total_seconds()) if times else 0
        ticks = chart.ticks(places)
        last = ("failed" if runs[-1].is_red else "passed") if runs else ""
        facts = [
            ("Turns", f"{chart.prompts_in(places):,}"),
            ("Events", f"{chart.events_in(places):,}"),
            ("Files edited", f"{len(files):,}"),
            ("Failed calls", f"{sum(call.outcome.failed for call in calls):,}"),
            ("Test runs", f"{len(runs):,}, the last {last}" if runs else "none"),
            ("Cost", money(ticks) if ticks else "none"),
            ("From first to last", format_duration(passed) if passed else ""),
        ]
        return Side(name, facts, shown, len(rows) - len(shown.items))

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
        it stands for others.
        """
        position = self.chart.find(name)
        if position is None or not self.chart.is_end_known():
            return None
        rows, place = self.chart.rows, self._home(position)
        at = next((n for n, row in enumerate(rows) if _is_row(row, place, position)), None)
        if at is None or any(row.kind in FOLDED for row in rows[at + 1 :]):
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
        draw = _ROW_FIELDS[row.kind]
        fields: dict[str, object] = draw(self, row, record, block)
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
        old, new = joins.time_of(before.ts), joins.time_of(record.ts)
        passed = (new - old).total_seconds() if old and new else 0.0
        if passed < MIN_GAP_S:
            return ""
        days = round(passed / 86_400)
        text = several(days, "day") if days > 1 else format_duration(round(passed * 1000))
        return f"{text} later, {self.clock.day(record.ts)}"

    def _block_text(self, block: SessionEvent) -> str:
        """Return the text of a block; content that is no text is named."""
        return text_in(self.chart.filled(block))

    # -- words --------------------------------------------------------------------------

    def _prompt(self, row: ChartRow, record: Record, block: SessionEvent) -> dict[str, object]:
        chart = self.chart
        texts = [self._block_text(b) for b in record.blocks if b.kind == "user_msg"] or [
            self._block_text(block)
        ]
        number = chart.turns.get(row.place, 0)
        places = chart.turn_places(row.place) if number else [row.place]
        ticks = chart.ticks(places)
        bills = [chart.bills[p] for p in places if p in chart.bills]
        sizes = [context_of(usage) for usage in bills if context_of(usage)]
        return {
            "turn": number,
            "say": markdown.render_typed(without_plugin("\n\n".join(filter(None, texts)))),
            "cost": money(ticks) if ticks else "",
            "context": short(sizes[-1]) if sizes else "",
            "when": self._prompt_time(record, number),
        }

    def _prompt_time(self, record: Record, number: int) -> DisplayTime:
        """Return the time of a prompt; the first one also has the day."""
        made = display_time(self.clock, record.ts)
        if number != 1 or not made.text:
            return made
        return msgspec.structs.replace(made, text=f"{self.clock.day(record.ts)}, {made.text}")

    def _answer(self, row: ChartRow, record: Record, block: SessionEvent) -> dict[str, object]:
        del row, record
        return {"say": markdown.render(self._block_text(block))}

    def _thinking(self, row: ChartRow, record: Record, block: SessionEvent) -> dict[str, object]:
        del row, record
        much = self.chart.size_of(block)
        filled = self.chart.filled(block) if much <= MAX_INLINE_BYTES else block
        payload = filled.payload
        text = ""
        if isinstance(payload, dict):
            value = payload.get("thinking")
            text = value if isinstance(value, str) else ""
        elif payload is not None:
            text = text_in(filled)
        return {
            "say": markdown.render(text),
            "lazy": much > MAX_INLINE_BYTES,
            "arg": clean(block.summary.replace("**", "")),
            "size": size(much) if much > MAX_INLINE_BYTES else "",
        }

    def _note(self, row: ChartRow, record: Record, block: SessionEvent) -> dict[str, object]:
        del row, record
        much = self.chart.size_of(block)
        return {
            "arg": clean(block.summary or one_line(self._block_text(block))),
            "size": size(much) if much > 200 else "",
            "lazy": True,
        }

    def _stop(self, row: ChartRow, record: Record, block: SessionEvent) -> dict[str, object]:
        del row, record
        return {"arg": clean(one_line(self._block_text(block))) or "interrupted"}

    def _decision(self, row: ChartRow, record: Record, block: SessionEvent) -> dict[str, object]:
        del row, record
        return {"say": markdown.render(self._block_text(block))}

    def _error(self, row: ChartRow, record: Record, block: SessionEvent) -> dict[str, object]:
        if block.kind == "tool_call":
            return self._call(row, record, block)
        text = clean(first_line(self._block_text(block)))
        return {
            "name": "Error",
            "icon": "warn",
            "arg": text or "nothing else is known",
            "bad": True,
            "lazy": True,
            "size": size(self.chart.size_of(block)),
        }

    # -- calls --------------------------------------------------------------------------

    def _call(self, row: ChartRow, record: Record, block: SessionEvent) -> dict[str, object]:
        del row
        chart = self.chart
        call = chart.calls.get(block.call or "")
        took = call.outcome.shown_ms if call is not None else None
        much = chart.size_of(call.result) if call is not None else 0
        status, bad = status_of(call)
        return {
            "name": clean(tool_name(block.tool or "tool")),
            "icon": _ICONS.get(tools.tool_kind(block.tool or ""), "term"),
            "arg": self._arg(block),
            "status": status,
            "bad": bad,
            "took": format_duration(took) if took else "",
            "size": size(much) if much else "",
            "lazy": True,
            "links": self._children(block),
            "when": display_time(self.clock, record.ts),
        }

    def _children(self, block: SessionEvent) -> list[tuple[str, str]]:
        """Return the subagent sessions that a call started, each with its address and name."""
        out = []
        for edge in self.chart.children.get(block.call or "", ()):
            uid = self._linked(edge.session)
            out.append((f"/sessions/{uid}" if uid else "", clean(edge.session)[:40]))
        return out

    def _arg(self, block: SessionEvent) -> str:
        """Return the argument of a call: its short line without the verb."""
        summary = block.summary
        if summary == "updated the plan" and (subject := self._plan_subject(block)):
            return clean(subject)
        rest = next((summary.removeprefix(v) for v in _VERBS if summary.startswith(v)), None)
        if rest is None and summary.startswith("called "):
            payload = self.chart.payload(block)
            rest = one_line(compact_json(payload)) if payload not in (None, {}, "") else ""
        text = summary if rest is None else rest
        return clean(text.replace(self._here, "") if self._here else text)

    def _plan_subject(self, block: SessionEvent) -> str:
        """Return which task a call changes, where it names one; empty otherwise."""
        payload = self.chart.payload(block)
        if not isinstance(payload, dict):
            return ""
        names = ("taskId", "subject", "description", "status")
        words = [f"{payload[name]}" for name in names if isinstance(payload.get(name), (str, int))]
        if isinstance(payload.get("subject"), str):
            return one_line(f"{payload['subject']}", 120)
        return one_line(f"task {' '.join(words)}", 120) if "taskId" in payload else ""

    @cached_property
    def _here(self) -> str:
        """The folder the session works in, as paths begin with it."""
        cwd = (self.chart.session.head.session.cwd or "").rstrip("/")
        return f"{cwd}/" if len(cwd) > 1 else ""

    def _edit(self, row: ChartRow, record: Record, block: SessionEvent) -> dict[str, object]:
        fields = self._call(row, record, block)
        if tools.tool_kind(block.tool or "") == "shell":
            fields["name"] = "Patch"
        if self.chart.size_of(block) <= MAX_DRAWN_EDIT_BYTES:
            return fields | {"diffs": self._diffs(self.chart.filled(block))}
        touches = tools.touches(block.tool or "", self.chart.payload(block))
        edits = [touch for touch in touches if touch.how != "read"]
        paths = list(dict.fromkeys(touch.path for touch in edits))
        if not paths:
            return fields
        plus, minus = sum(t.added or 0 for t in edits), sum(t.removed or 0 for t in edits)
        rest = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        path = clean(f"{self._short(paths[0])}{rest}")
        return fields | {"diffs": [Diff(path, edits[0].how, [], plus, minus, numbered=False)]}

    def _short(self, path: str) -> str:
        return path.replace(self._here, "") if self._here else path

    def _diffs(self, block: SessionEvent) -> list[Diff]:
        """Draw what a call changed, file by file."""
        changes = tools.changes(block.tool or "", block.payload)
        return [self._diff(group) for group in _group_by_file(changes)]

    def _diff(self, changes: Sequence[patches.Change]) -> Diff:
        """Draw what was changed in one file, several edits one after the other."""
        path, how = changes[0].path, changes[0].how
        lines: list[DiffLine] = []
        for change in changes:
            if lines:
                lines.append(DiffLine("@", Markup("")))
            lines += (
                markdown.patch_lines(change.patch, path)
                if change.patch
                else markdown.diff_lines(change.before, change.after, path)
            )
        return Diff(
            clean(self._short(path)),
            how,
            lines,
            sum(line.sign == "+" for line in lines),
            sum(line.sign == "-" for line in lines),
            any(line.new is not None for line in lines) and how == "add",
        )

    def _test(self, row: ChartRow, record: Record, block: SessionEvent) -> dict[str, object]:
        fields = self._call(row, record, block)
        call = self.chart.calls.get(block.call or "")
        payload = self.chart.payload(call.result) if call and call.result else None
        text = text_of(payload) or output.text(payload)
        counts = call.outcome.tests if call is not None else None
        tests = tests_of(counts, text, failed=bool(fields["bad"]))
        return fields | {"tests": tests, "bad": tests.red, "open": bool(tests.red and tests.faults)}

    def _interrupted_call(
        self, row: ChartRow, record: Record, block: SessionEvent
    ) -> dict[str, object]:
        fields = self._call(row, record, block)
        return fields | {"say": Markup(""), "status": "no result"}

    # -- folds --------------------------------------------------------------------------

    def _branch(self, row: ChartRow, record: Record, block: SessionEvent) -> dict[str, object]:
        del block
        places = self.chart.branches[row.number].events
        back = self.chart.session.states[row.place] is State.ROLLED_BACK
        first = next((f for p in places if (f := self._prompt_line(p))), "")
        fold = FoldedSection(
            f"b{row.number}",
            "Rolled back" if back else "Discarded branch",
            self.much(places),
            first,
            self.clock.time(record.ts),
            "rolled_back" if back else "dead",
            count=len(places),
        )
        return {"fold": fold}

    def _prompt_line(self, place: int) -> str:
        """Return the first line of a prompt."""
        record = self.chart.records[place]
        text = next((b.summary for b in record.blocks if b.kind == "user_msg" and b.summary), "")
        return clean(text)

    def much(self, places: Sequence[int], *, turns: bool = True) -> str:
        """Return the size of a run of records: turns, events, money."""
        chart = self.chart
        prompts = chart.prompts_in(places) if turns else 0
        ticks = chart.ticks(places)
        parts = [
            several(prompts, "turn") if prompts else "",
            several(chart.events_in(places), "event"),
            money(ticks) if ticks else "",
        ]
        return ", ".join(filter(None, parts))

    def _boundary(self, row: ChartRow, record: Record, block: SessionEvent) -> dict[str, object]:
        bound = (
            self.chart.bounds[row.number] if row.number >= 0 else ChartBoundary(row.place, [], [])
        )
        if self.chart.clears(row.place):
            return {"fold": self._cleared_fold(row, bound, record)}
        prose = [b for b in record.blocks if not self._block_text(b).startswith("<")]
        gist = self._block_text((prose or [block])[-1])
        places = bound.places
        before, after = self._contexts(row.place)
        sizes = f"{short(before)} → {short(after)} tokens" if before > after > 0 else ""
        fold = FoldedSection(
            f"k{max(row.number, 0)}",
            "Compacted",
            sizes or self._how(row.place),
            self._turns_text(places),
            display_time(self.clock, record.ts).text,
            gist=markdown.render(gist),
            count=len(bound.rows),
        )
        return {"fold": fold}

    def _cleared_fold(self, row: ChartRow, bound: ChartBoundary, record: Record) -> FoldedSection:
        """Return the fold of what stands before a cleared context."""
        return FoldedSection(
            f"k{max(row.number, 0)}",
            "Context cleared",
            self._turns_text(bound.places),
            "before it, no longer seen by the model",
            display_time(self.clock, record.ts).text,
            count=len(bound.rows),
        )

    def _how(self, place: int) -> str:
        """Return what the log says of a compaction on the line before its summary."""
        summary = self.chart.records[place - 1].blocks[0].summary if place else ""
        if not summary.startswith("compacted "):
            return ""
        text = re.sub(
            r"\d{4,12}", lambda digits: short(int(digits[0])), summary[len("compacted ") :]
        )
        return clean(text.replace("(", "").replace(")", ""))

    def _turns_text(self, places: Sequence[int]) -> str:
        numbers = [n for p in places if (n := self.chart.turns.get(p))]
        events = several(self.chart.events_in(places), "event") if places else ""
        if not numbers:
            return events
        first, last = numbers[0], numbers[-1]
        turns = f"turn {first}" if first == last else f"turns {first} to {last}"
        return f"{turns}, {events}"

    def _contexts(self, place: int) -> tuple[int, int]:
        """How large the context was before and after a place of the line."""
        at = self.chart.order.get(place, -1)
        before = [size for n, size in self.chart.contexts if n < at]
        after = [size for n, size in self.chart.contexts if n > at]
        return (before[-1] if before else 0), (after[0] if after else 0)

    def _copied_rows(self, row: ChartRow, record: Record, block: SessionEvent) -> dict[str, object]:
        del record, block
        places = self.chart.copies[row.number]
        origins = (self.chart.records[place].link.origin for place in places)
        owner = next((origin for origin in origins if origin), "")
        uid = self._linked(owner) if owner else None
        fold = FoldedSection(
            f"c{row.number}",
            "Copied",
            several(self.chart.events_in(places), "event"),
            "copied from the original session, not billed again",
            state="replayed",
            alone=f"/sessions/{uid}" if uid else "",
            count=len(places),
        )
        return {"fold": fold}

    def _agent(self, row: ChartRow, record: Record, block: SessionEvent) -> dict[str, object]:
        chart = self.chart
        channel = chart.channel_of(row)
        places = chart.channels[channel]
        first, last = chart.records[places[0]], chart.records[places[-1]]
        start, end = joins.time_of(first.ts), joins.time_of(last.ts)
        passed = round(1000 * (end - start).total_seconds()) if start and end else 0
        much = self.much(places, turns=False)
        call = chart.calls.get(block.call or "") if row.number < 0 else None
        back = ""
        if call is not None and call.result is not None:
            back = clean(answer_line(output.text(chart.payload(call.result))))
        number = list(chart.channels).index(channel)
        fold = FoldedSection(
            f"s{number}",
            clean(chart.agent_name(channel)),
            f"{much}, {format_duration(passed)}" if passed > 0 else much,
            self._arg(block) if row.number < 0 else clean(_summary(first)),
            state="side",
            back=back,
            alone=f"s{number}",
            count=len(places),
        )
        bad = call is not None and call.outcome.failed
        fields: dict[str, object] = {
            "fold": fold,
            "bad": bad,
            "when": display_time(self.clock, record.ts),
        }
        return fields | {"lazy": row.number < 0}

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
        asked = render_input(block)
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
        return Body(asked, shown, rest, note, self._diffs(block))

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


_ROW_FIELDS: Final[
    dict[RowKind, Callable[[Drawing, ChartRow, Record, SessionEvent], dict[str, object]]]
] = {
    "prompt": Drawing._prompt,  # noqa: SLF001 - its own table
    "correction": Drawing._prompt,  # noqa: SLF001
    "answer": Drawing._answer,  # noqa: SLF001
    "thinking": Drawing._thinking,  # noqa: SLF001
    "tool": Drawing._call,  # noqa: SLF001
    "edit": Drawing._edit,  # noqa: SLF001
    "test": Drawing._test,  # noqa: SLF001
    "error": Drawing._error,  # noqa: SLF001
    "interrupted": Drawing._interrupted_call,  # noqa: SLF001
    "agent": Drawing._agent,  # noqa: SLF001
    "boundary": Drawing._boundary,  # noqa: SLF001
    "branch": Drawing._branch,  # noqa: SLF001
    "copied": Drawing._copied_rows,  # noqa: SLF001
    "decision": Drawing._decision,  # noqa: SLF001
    "stop": Drawing._stop,  # noqa: SLF001
    "note": Drawing._note,  # noqa: SLF001
}


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


def _group_by_file(changes: Iterable[patches.Change]) -> list[list[patches.Change]]:
    """Gather edits of one file that follow one another."""
    out: list[list[patches.Change]] = []
    for change in changes:
        if out and out[-1][0].path == change.path:
            out[-1].append(change)
        else:
            out.append([change])
    return out


def _summary(record: Record) -> str:
    return next((block.summary for block in record.blocks if block.summary), "")
