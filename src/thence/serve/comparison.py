"""Two ways that part, side by side: a discarded branch and its replacement, or two sessions.

Sessions that were forked share a beginning: copied into the log of the fork, or only named there.
Where they part is read from what was said and called, so it does not matter how an agent writes a
fork down. Each side begins right after that place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from thence.format.figures import clean, money, several
from thence.format.normal import one_line
from thence.serve.chart import Chart
from thence.serve.row_fields import Side
from thence.serve.view import Drawing

COMPARED_KINDS: Final = frozenset({"user_msg", "assistant_msg", "tool_call"})
"""What two sessions must have in common to share it; results and notes may be written anew."""
MAX_STARTS: Final = 50
"""Places at which a shared beginning is looked for, at most."""

Step = tuple[Chart, int]
"""A place of a chart that somebody said something at."""


class Comparison(msgspec.Struct, frozen=True):
    """Two ways, and what they share."""

    columns: tuple[Side, Side]
    shared: str
    """How much both have in common, and how that ends."""


def compare_branch(drawing: Drawing, number: int, page: str, outcome: str) -> Comparison | None:
    """Return a discarded branch beside what took its place; None when there is no such branch."""
    chart = drawing.chart
    if number >= len(chart.branches):
        return None
    start = chart.order.get(chart.branch_origins[number], -1)
    steps = [(chart, place) for place in chart.line[: start + 1] if _step_content(chart, place)]
    branch = chart.branches[number].events
    rows = chart.rows_of(branch)
    discarded = drawing.side("Discarded", page, "discarded", branch, rows, cls="b-dead")
    replacement = drawing.side_from("Replacement", page, outcome, start)
    return Comparison((discarded, replacement), _describe_shared(steps))


def compare_sessions(
    drawings: tuple[Drawing, Drawing],
    names: tuple[str, str],
    pages: tuple[str, str],
    outcomes: tuple[str, str],
) -> Comparison:
    """Return two sessions side by side, from where they part."""
    lines = [_line(drawing.chart) for drawing in drawings]
    ends = _find_fork(lines[0], lines[1])
    columns = []
    for drawing, line, end, name, page, outcome in zip(
        drawings, lines, ends, names, pages, outcomes, strict=True
    ):
        chart = drawing.chart
        own = [place for owner, place in line[:end] if owner is chart]
        start = max((chart.order.get(place, -1) for place in own), default=-1)
        column = drawing.side_from(name, page, outcome, start)
        dead = chart.ticks(place for branch in chart.branches for place in branch.events)
        facts = [*column.facts, ("Discarded", money(dead) if dead else "none")]
        columns.append(msgspec.structs.replace(column, facts=facts))
    return Comparison(
        (columns[0], columns[1]),
        _describe_shared(max((lines[n][: ends[n]] for n in (0, 1)), key=len)),
    )


def _find_fork(left: Sequence[Step], right: Sequence[Step]) -> tuple[int, int]:
    """Return how many steps of each line come before the place where they part.

    A fork may hold only the end of what it shares: then the beginning of one line is looked for in
    the other, and the longest run of equal steps counts.
    """
    a, b = [_step_content(*step) for step in left], [_step_content(*step) for step in right]
    if not a or not b:
        return 0, 0
    starts = [(0, 0)]
    starts += [(at, 0) for at, content in enumerate(a) if content == b[0]][:MAX_STARTS]
    starts += [(0, at) for at, content in enumerate(b) if content == a[0]][:MAX_STARTS]
    best = (0, 0, 0)
    for i, j in starts:
        run = 0
        while i + run < len(a) and j + run < len(b) and a[i + run] == b[j + run]:
            run += 1
        best = max(best, (run, -i, -j))
    run, i, j = best[0], -best[1], -best[2]
    return (i + run, j + run) if run else (0, 0)


def _line(chart: Chart) -> list[Step]:
    """Return what was said on the line of a session, with what it continues."""
    above = [(Chart(part.session), part.places) for part in chart.session.inherited()]
    parts = [*above, (chart, chart.line)]
    return [
        (owner, place) for owner, places in parts for place in places if _step_content(owner, place)
    ]


def _step_content(chart: Chart, place: int) -> tuple[tuple[str, str, str], ...]:
    """Return what was said or called at a place; empty when nothing was."""
    blocks = chart.records[place].blocks
    return tuple((b.kind, b.tool or "", b.summary) for b in blocks if b.kind in COMPARED_KINDS)


def _describe_shared(steps: Sequence[Step]) -> str:
    """Return a sentence about what both sides share."""
    if not steps:
        return "No shared messages."
    texts = [text for _, _, text in _step_content(*steps[-1]) if text]
    last = clean(one_line(texts[-1], 160)) if texts else ""
    shared = several(len(steps), "event")
    return f"Both share {shared}, up to: {last}" if last else f"Both share {shared}."
