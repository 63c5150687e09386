"""Rows of a session's page: what they hold, and what each kind of row says.

Pure: it reads the payloads of the row that it is asked for and nothing else. Texts are escaped by
the template; markup is made by `markdown` alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Final

import msgspec
from markupsafe import Markup

from thence.format import derived_events, output, patches, testruns, tools
from thence.format.derived_events import Call
from thence.format.facts import text_in
from thence.format.figures import clean, format_duration, money, several, short, size
from thence.format.graph import State
from thence.format.normal import SessionEvent, one_line
from thence.format.readout import Record
from thence.format.records import text_of
from thence.memory.prices import prompt_tokens
from thence.serve import markdown
from thence.serve.block_texts import (
    answer_line,
    compact_json,
    first_line,
    tool_name,
    without_plugin,
)
from thence.serve.chart import Chart, ChartBoundary, ChartRow, RowKind
from thence.serve.clock import DisplayClock, DisplayTime, display_time
from thence.serve.markdown import DiffLine

MAX_OPEN_DIFF_LINES: Final = 14
"""Lines up to which a diff stands open."""

MAX_TICKS: Final = 80
"""Tests that are drawn one by one; of more, a tick stands for several."""

_CUT_SHORT: Final = ("denied", "interrupted", "timeout")

MAX_INLINE_BYTES: Final = 600
"""Bytes of a thought that come with the page; longer ones are fetched when opened."""

MAX_DRAWN_EDIT_BYTES: Final = 3_000
"""Bytes of an edit that is drawn with the page; of a larger one the lines are counted."""

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


class Diff(msgspec.Struct, frozen=True):
    """What a call changes in one file."""

    path: str
    how: str
    lines: list[DiffLine]
    plus: int
    minus: int
    numbered: bool

    @property
    def open(self) -> bool:
        """Whether it is short enough to stand open."""
        return 0 < len(self.lines) <= MAX_OPEN_DIFF_LINES


class Tick(msgspec.Struct, frozen=True):
    """One mark of a row of tests."""

    x: float
    width: float
    red: bool


class TestTicks(msgspec.Struct, frozen=True):
    """One run of tests."""

    verdict: str
    rest: str
    red: bool
    ticks: list[Tick]
    faults: list[str]


class FoldedSection(msgspec.Struct, frozen=True):
    """Something that opens in place: a branch, a compaction, a subagent, copies."""

    part: str
    """Its name in the address of its rows."""
    head: str
    much: str
    text: str = ""
    end: str = ""
    state: str = "dead"
    gist: Markup = Markup("")
    back: str = ""
    """What a subagent returned."""
    alone: str = ""
    """Where it can be opened alone."""
    count: int = 0


class RowView(msgspec.Struct, frozen=True):
    """One row, ready to be drawn."""

    id: str
    kind: RowKind
    state: str
    lane: str
    when: DisplayTime
    turn: int = 0
    origin: str = ""
    """Name of the session that counts this turn, where it is not that of the page."""
    cost: str = ""
    context: str = ""
    say: Markup = Markup("")
    name: str = ""
    icon: str = ""
    arg: str = ""
    status: str = ""
    bad: bool = False
    took: str = ""
    size: str = ""
    lazy: bool = False
    open: bool = False
    gap: str = ""
    """How long nothing was written before it."""
    diffs: list[Diff] = []
    tests: TestTicks | None = None
    fold: FoldedSection | None = None
    links: list[tuple[str, str]] = []
    """Sessions that it leads to: (address, name)."""
    inner: Window | None = None
    is_hit: bool = False
    """The page was opened at this row."""
    anchor: str = ""
    """The event that the page was opened at, where its row is named after another one."""
    body: Body | None = None
    """What it holds, where that comes with the page."""
    aside: str = ""
    """The body is that of an event without a row of its own; this says what it is."""

    @property
    def opens(self) -> bool:
        """Whether its own fold stands open, since the page was opened at what it holds."""
        return self.is_hit and not self.aside


class Window(msgspec.Struct, frozen=True):
    """Some rows of a run, and how many stand before and after them."""

    part: str
    items: list[RowView]
    start: int
    end: int
    total: int
    before_at: str = ""
    after_at: str = ""
    """Events to go to where there is no script."""


class Side(msgspec.Struct, frozen=True):
    """One side of a comparison: what it did and took, and its rows."""

    name: str
    page: str
    """The address of its session."""
    facts: list[tuple[str, str]]
    window: Window
    left_out: int
    """Rows that are not drawn."""
    cls: str = ""


class Body(msgspec.Struct, frozen=True):
    """What a folded row holds: what was given, and what came back."""

    input: Markup = Markup("")
    got: str = ""
    rest: str = ""
    """What is not shown of it."""
    note: str = ""
    diffs: list[Diff] = []


# -- how calls and tests went ---------------------------------------------------------------


def status_of(call: Call | None) -> tuple[str, bool]:
    """Return the status of a call, and whether it is bad."""
    if call is None:
        return "no result", True
    outcome = call.outcome
    if not outcome.ended:
        return "open", False  # whether anybody is at it, the end of the page says
    if outcome.reason in _CUT_SHORT:
        return outcome.reason, True
    code = outcome.exit_code
    if outcome.failed:
        return (f"exit {code}" if code else "failed"), True
    return (f"exit {code}" if code is not None else "ok"), False


def tests_of(counts: testruns.Tests | None, text: str, *, failed: bool) -> TestTicks:
    """Return the result of a test run, with a tick for each test where possible."""
    if counts is None:
        return TestTicks("failed" if failed else "passed", "", failed, [], [])
    bad, good, left = counts.failed or 0, counts.passed or 0, counts.skipped or 0
    red = bad > 0 or failed
    parts = [
        f"{bad:,} failed" if bad else "",
        f"{good:,} passed" if good else "",
        f"{left:,} skipped" if left else "",
    ]
    shown = [part for part in parts if part] or ["failed" if failed else "passed"]
    return TestTicks(
        shown[0], ", ".join(shown[1:]), red, _ticks(bad, good), _faults(text) if bad else []
    )


def _ticks(bad: int, good: int) -> list[Tick]:
    total = bad + good
    drawn = min(total, MAX_TICKS)
    if drawn == 0:
        return []
    reds = max(round(bad * drawn / total), 1 if bad else 0)
    step = min(220 / drawn, 6.0)
    return [Tick(round(n * step, 1), round(step * 0.72, 1), n < reds) for n in range(drawn)]


def _faults(text: str) -> list[str]:
    """Return the first lines that name failed tests."""
    marks = ("FAILED ", "--- FAIL: ", "not ok ", "FAIL ", "✗ ", "✕ ", "× ")
    lines = (line.strip() for line in output.lines(text))
    named = [clean(line)[:240] for line in lines if line.startswith(marks)]
    return list(dict.fromkeys(named))[:6]


# -- what each kind of row says -------------------------------------------------------------


class RowFields:
    """The fields of the rows of one chart."""

    def __init__(
        self, chart: Chart, clock: DisplayClock, linked: Callable[[str], str | None]
    ) -> None:
        """Write times by a clock; `linked` returns the uid of a stored session."""
        self.chart = chart
        self.clock = clock
        self._linked = linked

    def fields(self, row: ChartRow, record: Record, block: SessionEvent) -> dict[str, object]:
        """Return the fields of a `RowView` that a row fills, besides those that all have."""
        made: dict[str, object] = getattr(self, f"_{row.kind}")(row, record, block)
        return made

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
        sizes = [prompt_tokens(usage) for usage in bills if prompt_tokens(usage)]
        return {
            "turn": number,
            "say": markdown.render_typed(without_plugin("\n\n".join(filter(None, texts)))),
            "cost": money(ticks) if ticks else "",
            "context": short(sizes[-1]) if sizes else "",
            "when": self._prompt_time(record, number),
        }

    _correction = _prompt

    def _prompt_time(self, record: Record, number: int) -> DisplayTime:
        """Return the time of a prompt; the first one also has the day."""
        made = display_time(self.clock, record.ts)
        if number != 1 or not made.text:
            return made
        return msgspec.structs.replace(made, text=f"{self.clock.day(record.ts)}, {made.text}")

    def _answer(self, row: ChartRow, record: Record, block: SessionEvent) -> dict[str, object]:
        del row, record
        return {"say": markdown.render(self._block_text(block))}

    _decision = _answer

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

    def _error(self, row: ChartRow, record: Record, block: SessionEvent) -> dict[str, object]:
        if block.kind == "tool_call":
            return self._tool(row, record, block)
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

    def _tool(self, row: ChartRow, record: Record, block: SessionEvent) -> dict[str, object]:
        del row
        chart = self.chart
        call = chart.calls.get(block.call or "")
        took = call.outcome.shown_ms if call is not None else None
        much = chart.size_of(call.result) if call is not None else 0
        status, bad = status_of(call)
        return {
            "name": clean(tool_name(block.tool or "tool")),
            "icon": _ICONS.get(chart.session.effect(block).kind, "term"),
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
        for edge in self.chart.session.children.get(block.call or "", ()):
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
        fields = self._tool(row, record, block)
        effect = self.chart.session.effect(block)
        if effect.kind == "shell":
            fields["name"] = "Patch"
        if self.chart.size_of(block) <= MAX_DRAWN_EDIT_BYTES:
            return fields | {"diffs": self.diffs(self.chart.filled(block))}
        touches = tools.touches(effect, block.tool or "", self.chart.payload(block))
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

    def diffs(self, block: SessionEvent) -> list[Diff]:
        """Draw what a call changed, file by file."""
        effect = self.chart.session.effect(block)
        changes = tools.changes(effect, block.tool or "", block.payload)
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
        fields = self._tool(row, record, block)
        call = self.chart.calls.get(block.call or "")
        payload = self.chart.payload(call.result) if call and call.result else None
        text = text_of(payload) or output.text(payload)
        counts = call.outcome.tests if call is not None else None
        tests = tests_of(counts, text, failed=bool(fields["bad"]))
        return fields | {"tests": tests, "bad": tests.red, "open": bool(tests.red and tests.faults)}

    def _interrupted(self, row: ChartRow, record: Record, block: SessionEvent) -> dict[str, object]:
        fields = self._tool(row, record, block)
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

    def much(self, places: Sequence[int]) -> str:
        """Return the size of a run of records: prompts, events, money."""
        chart = self.chart
        prompts = chart.prompts_in(places)
        ticks = chart.ticks(places)
        parts = [
            several(prompts, "prompt") if prompts else "",
            several(chart.session.count_events(places), "event"),
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
        events = several(self.chart.session.count_events(places), "event") if places else ""
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

    def _copied(self, row: ChartRow, record: Record, block: SessionEvent) -> dict[str, object]:
        del record, block
        places = self.chart.copies[row.number]
        origins = (self.chart.records[place].link.origin for place in places)
        owner = next((origin for origin in origins if origin), "")
        uid = self._linked(owner) if owner else None
        fold = FoldedSection(
            f"c{row.number}",
            "Copied",
            several(self.chart.session.count_events(places), "event"),
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
        start, end = derived_events.time_of(first.ts), derived_events.time_of(last.ts)
        passed = round(1000 * (end - start).total_seconds()) if start and end else 0
        much = self.much(places)
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
