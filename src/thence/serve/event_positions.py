"""Where each event of a session is drawn: the folds on the way to its row, and the reading order.

Pure. A page is a list of rows; some of them fold other rows (a compaction, a discarded branch, a
subagent, copies), and those may fold rows again. `Paths` walks all of them once, in reading order.
Invariants: every event of a session that has any row has a path; a path leads through each fold
once; work is linear in the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from thence.serve.chart import Chart, ChartRow

FOLDED: Final = ("branch", "boundary", "agent", "copied")
"""Kinds of rows that fold other rows."""


class PathStep(NamedTuple):
    """One row on the way to an event: the part of the session it is in, and its place there."""

    part: str
    row: int


class Paths:
    """The rows of one session in reading order, each with the folds that lead to it."""

    def __init__(self, chart: Chart) -> None:
        """Walk all rows of a chart."""
        self._records = chart.records  # not the chart: it is let go while its paths are cached
        self._parents: list[int] = []
        self._steps: list[PathStep] = []
        self._rows: list[ChartRow] = []
        self._by_block: dict[tuple[int, int], int] = {}
        self._by_place: dict[int, int] = {}
        self._callers: dict[str, tuple[int, int]] = {}
        self._walk(chart)
        for place, record in enumerate(chart.records):
            for number, block in enumerate(record.blocks):
                if block.kind == "tool_call" and block.call is not None:
                    self._callers.setdefault(block.call, (place, number))

    def _walk(self, chart: Chart) -> None:
        seen = {""}
        channels = {channel: number for number, channel in enumerate(chart.channels)}
        todo = [(-1, "", at, row) for at, row in reversed(list(enumerate(chart.rows)))]
        while todo:
            parent, part, at, row = todo.pop()
            number = len(self._rows)
            self._parents.append(parent)
            self._steps.append(PathStep(part, at))
            self._rows.append(row)
            self._register(row, number)
            inner = _part_name(chart, row, channels)
            if inner and inner not in seen:
                seen.add(inner)
                rows = rows_of_part(chart, inner) or []
                todo += (
                    (number, inner, n, inner_row)
                    for n, inner_row in reversed(list(enumerate(rows)))
                )

    def _register(self, row: ChartRow, number: int) -> None:
        """Note which events a row shows; rows that only stand for others show none."""
        if row.kind in ("branch", "copied") or (row.kind == "agent" and row.number >= 0):
            return
        if row.kind == "boundary" and row.block:  # a cleared context: the prompt has its own row
            return
        self._by_block.setdefault((row.place, row.block), number)
        self._by_place.setdefault(row.place, number)

    def home(self, place: int, block: int) -> tuple[int, int]:
        """Return the event that has a row: of a result its call, else the event itself."""
        event = self._records[place].blocks[block]
        if event.kind == "tool_result" and event.call is not None:
            return self._callers.get(event.call, (place, block))
        return place, block

    def row_number(self, place: int, block: int) -> int | None:
        """Return the number of the row that shows an event, or the nearest one before it."""
        records = self._records
        place, block = self.home(place, block)
        if (exact := self._by_block.get((place, block))) is not None:
            return exact
        channel = records[place].channel
        for other in range(place, -1, -1):
            if other in self._by_place and records[other].channel == channel:
                return self._by_place[other]
        return 0 if self._rows else None

    def shows(self, place: int, block: int) -> bool:
        """Return whether some row shows an event itself, or the result of its call."""
        event = self._records[place].blocks[block]
        if event.kind == "tool_result" and event.call in self._callers:
            place, block = self._callers[event.call or ""]
        number = self._by_block.get((place, block), self._by_place.get(place))
        if number is None:
            return False
        row = self._rows[number]
        return row.block == block or row.kind in ("prompt", "correction", "boundary")

    def row(self, number: int) -> ChartRow:
        """Return a row by its number in reading order."""
        return self._rows[number]

    def trail(self, number: int) -> list[PathStep]:
        """Return the steps that lead to a row: the row of the page first, the row itself last."""
        steps: list[PathStep] = []
        while number >= 0:
            steps.append(self._steps[number])
            number = self._parents[number]
        return steps[::-1]


# -- parts ----------------------------------------------------------------------------------


def _part_name(chart: Chart, row: ChartRow, channels: Mapping[str, int]) -> str:
    """Return the name of the part that a row folds; empty when it folds nothing."""
    if row.kind == "agent":
        return f"s{channels[chart.channel_of(row)]}"
    if row.kind not in FOLDED or row.number < 0:
        return ""
    return {"branch": "b", "boundary": "k", "copied": "c"}[row.kind] + f"{row.number}"


def rows_of_part(chart: Chart, name: str) -> list[ChartRow] | None:
    """Return the rows of a part: the page itself, a branch, a compaction, copies, a subagent."""
    if name == "":
        return chart.rows
    kind, number = name[0], name[1:]
    if not number.isdigit() or len(number) > 9:
        return None
    at = int(number)
    if kind == "b" and at < len(chart.branches):
        return chart.rows_of(chart.branches[at].events)
    if kind == "k" and at < len(chart.bounds):
        return chart.bounds[at].rows
    if kind == "c" and at < len(chart.copies):
        return chart.rows_of(chart.copies[at])
    if kind == "s" and at < len(chart.channels):
        return chart.rows_of(list(chart.channels.values())[at])
    return None
