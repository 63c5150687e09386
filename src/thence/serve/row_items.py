"""What a row of a session's page holds: texts, folds, diffs, runs of tests; windows of rows.

Plain values that a template draws: texts are escaped there, markup was made by `markdown` alone.
"""

from __future__ import annotations

from typing import Final

import msgspec
from markupsafe import Markup

from thence.format import output, testruns
from thence.format.derived_events import Call
from thence.format.figures import clean
from thence.serve.chart import RowKind
from thence.serve.clock import DisplayTime
from thence.serve.markdown import DiffLine

MAX_OPEN_DIFF_LINES: Final = 14
"""Lines up to which a diff stands open."""

MAX_TICKS: Final = 80
"""Tests that are drawn one by one; of more, a tick stands for several."""

_CUT_SHORT: Final = ("denied", "interrupted", "timeout")


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
    facts: list[tuple[str, str]]
    window: Window
    left_out: int
    """Rows that are not drawn."""


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
