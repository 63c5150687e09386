"""The outline of a session: where to jump, and a map of its context and cost along the line.

Made from the rows of a chart, folded ones included, without any payload. Bounded however long the
session: the list shows what stands around the window, the map is drawn from so many points.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from thence.format.figures import clean, money
from thence.format.normal import one_line
from thence.serve.chart import Chart, ChartRow, RowKind
from thence.serve.clock import DisplayClock
from thence.serve.row_fields import Window
from thence.serve.view import Drawing

MAX_ENTRIES: Final = 240
"""Entries of the list."""
MAP_CELLS: Final = 24
MAX_POINTS: Final = 200
MAX_MARKS: Final = 90
MAX_LINKS: Final = 40
MAP_HEIGHT: Final = 600
"""How high the map is drawn, in its own units."""
LEFT, RIGHT = 22, 82

JUMPS: Final[tuple[tuple[RowKind, str], ...]] = (
    ("correction", "Corrections"),
    ("error", "Errors"),
    ("test", "Tests"),
    ("edit", "Edits"),
    ("branch", "Discarded"),
    ("agent", "Agents"),
)
_KINDS: Final[dict[str, str]] = {"interrupted": "error", "stop": "error"}
_ERRORS: Final[tuple[RowKind, ...]] = ("error", "interrupted", "stop")
_RARE: Final[tuple[RowKind, ...]] = ("correction", "error", "test", "agent")
_MINOR: Final[tuple[RowKind, ...]] = ("edit", "test", "error", "interrupted", "agent", "decision")
_MAJOR: Final[tuple[RowKind, ...]] = ("prompt", "correction", "boundary", "branch", "copied")
_MARKED: Final[tuple[RowKind, ...]] = (
    "prompt",
    "correction",
    "error",
    "interrupted",
    "edit",
    "test",
    "agent",
)


class OutlineEntry(msgspec.Struct, frozen=True):
    """One line of the outline."""

    href: str
    kind: str
    text: str
    turn: str = ""
    end: str = ""
    bad: bool = False


class Jump(msgspec.Struct, frozen=True):
    """How often something occurs, and where first."""

    kind: str
    name: str
    count: int
    href: str


class MapCell(msgspec.Struct, frozen=True):
    """A stretch of the map: how much was spent there, in six steps."""

    at: float
    size: float
    heat: int


class MapMark(msgspec.Struct, frozen=True):
    """Something to see on the map."""

    at: float
    kind: str


class MapLink(msgspec.Struct, frozen=True):
    """A stretch of the map that leads somewhere."""

    at: float
    size: float
    href: str
    text: str


class SessionMap(msgspec.Struct, frozen=True):
    """Context size and cost along the line; places go from 0 to `MAP_HEIGHT`."""

    cells: list[MapCell]
    points: list[tuple[float, float]]
    """Where along the line, and how much of the peak."""
    peak: int
    last: int
    dead: list[tuple[float, float]]
    marks: list[MapMark]
    links: list[MapLink]

    @property
    def path(self) -> str:
        """The context as an area, from top to bottom."""
        if not self.points:
            return ""
        line = " ".join(
            f"L{LEFT + share * (RIGHT - LEFT):.1f} {at:.1f}" for at, share in self.points
        )
        return f"M{LEFT} {self.points[0][0]:.1f} {line} L{LEFT} {self.points[-1][0]:.1f}z"

    @property
    def strip(self) -> str:
        """The same from left to right, 1200 wide and 44 high."""
        if not self.points:
            return ""
        line = " ".join(f"L{at * 2:.0f} {44 - share * 40:.1f}" for at, share in self.points)
        first, last = self.points[0][0] * 2, self.points[-1][0] * 2
        return f"M{first:.0f} 44 {line} L{last:.0f} 44z"


class SessionOutline:
    """Where to jump in one session, as seen from one window of it."""

    def __init__(self, drawing: Drawing, window: Window, clock: DisplayClock, base: str) -> None:
        """Make an outline; `base` is the address of the page."""
        self.drawing = drawing
        self.chart: Chart = drawing.chart
        self._clock = clock
        self._base = base
        self._window = window
        self._shown = {item.id for item in window.items}
        self._shown |= {
            inner.id for item in window.items if item.inner for inner in item.inner.items
        }

    def href(self, row: ChartRow) -> str:
        """Return the address of a row: on this page, or of the page around it."""
        name = self.drawing.row_id(row)
        if name in self._shown:
            return f"#{name}"
        return f"{self._base}?at={name.partition('-')[0]}#{name}"

    # -- rows ---------------------------------------------------------------------------

    def _of(self, *kinds: RowKind) -> list[ChartRow]:
        """Return the rows of some kinds, in the order of the line."""
        groups = [self.chart.by_kind.get(kind, []) for kind in kinds]
        if len(groups) == 1:
            return groups[0]
        order = self.chart.row_order
        return sorted((row for some in groups for row in some), key=lambda row: order[id(row)])

    def jumps(self) -> list[Jump]:
        """Count what one jumps to."""
        out = []
        for kind, name in JUMPS:
            rows = self._of(*(_ERRORS if kind == "error" else (kind,)))
            out.append(Jump(kind, name, len(rows), self.href(rows[0]) if rows else ""))
        return out

    def entries(self) -> tuple[list[OutlineEntry], int]:
        """Return the list around the window, and how many entries it leaves out."""
        rows = self._of(*_MAJOR)
        minor = sum(len(self.chart.by_kind.get(kind, ())) for kind in _MINOR)
        if len(rows) + minor <= MAX_ENTRIES:
            rows = self._of(*_MAJOR, *_MINOR)
        left = 0
        if len(rows) > MAX_ENTRIES:
            first = self.chart.rows[self._window.start] if self.chart.rows else None
            order = self.chart.order
            here = order.get(first.place, 0) if first else 0
            at = sum(1 for row in rows if order.get(row.place, 0) < here)
            start = max(0, min(at - MAX_ENTRIES // 3, len(rows) - MAX_ENTRIES))
            left = len(rows) - MAX_ENTRIES
            rows = rows[start : start + MAX_ENTRIES]
        return [self._entry(row) for row in _condense(rows)], left

    def _entry(self, row: ChartRow) -> OutlineEntry:
        chart = self.chart
        record = chart.records[row.place]
        block = record.blocks[row.block]
        text, bad = clean(one_line(block.summary, 80)), False
        turn, end = "", self._clock.time(record.ts)
        if row.kind in ("prompt", "correction"):
            turn = f"{chart.turns.get(row.place, '')}"
            places = chart.turn_places(row.place)
            ticks = chart.ticks(places)
            end = money(ticks) if ticks else end
        elif row.kind == "boundary":
            text = "Context cleared" if chart.clears(row.place) else "Compacted"
        elif row.kind == "branch":
            places = list(chart.branches[row.number].events)
            text = f"Discarded branch, {self.drawing.row_fields.much(places)}"
        elif row.kind == "copied":
            text = "Copied from the original session"
        elif row.kind == "agent":
            name = clean(chart.agent_name(chart.channel_of(row)))
            task = text.removeprefix("asked a subagent: ") if row.number < 0 else ""
            text = f"{name}: {task}" if task and name != "subagent" else task or name
        elif row.kind == "test":
            call = chart.calls.get(block.call or "")
            bad = call is not None and call.outcome.is_red
            text = text.removeprefix("ran ")
        elif row.kind == "interrupted":
            text = f"Interrupted: {text.removeprefix('ran ')}"
        else:
            name = block.summary.rpartition("/")[2] if row.kind == "edit" else block.summary
            text = clean(one_line(name.removeprefix("ran "), 80))
        return OutlineEntry(self.href(row), row.kind, text or row.kind, turn, end, bad)

    # -- the map ------------------------------------------------------------------------

    def map(self) -> SessionMap | None:
        """Draw context and cost along the line; None where no bill tells of them."""
        chart = self.chart
        length = max(len(chart.line), 1)
        contexts = chart.contexts
        if not contexts and not chart.weights:
            return None
        peak = max((size for _, size in contexts), default=0)
        scale = MAP_HEIGHT / length
        points = [(round(at * scale, 1), size / (peak or 1)) for at, size in _thin_out(contexts)]
        return SessionMap(
            list(self._cells(length)),
            points,
            peak,
            contexts[-1][1] if contexts else 0,
            list(self._dead(scale)),
            list(self._marks(scale)),
            list(self._links(scale)),
        )

    def _cells(self, length: int) -> Iterator[MapCell]:
        sums = [0] * MAP_CELLS
        for at, weight in self.chart.weights:
            sums[min(at * MAP_CELLS // length, MAP_CELLS - 1)] += weight
        top = max(sums) or 1
        step = MAP_HEIGHT / MAP_CELLS
        for number, weight in enumerate(sums):
            heat = 0 if weight == 0 else min(1 + weight * 5 // top, 5)
            yield MapCell(round(number * step, 1), round(step - 1, 1), heat)

    def _dead(self, scale: float) -> Iterator[tuple[float, float]]:
        chart = self.chart
        rows = self._of("branch")
        for row in rows[:: len(rows) // MAX_MARKS + 1]:
            branch = chart.branches[row.number]
            at = chart.order.get(chart.branch_origins[row.number], 0)
            size = min(max(len(branch.events) * scale, 6), MAP_HEIGHT / 4)
            yield round(min(at * scale, MAP_HEIGHT - size), 1), round(size, 1)

    def _marks(self, scale: float) -> Iterator[MapMark]:
        number = sum(len(self.chart.by_kind.get(kind, ())) for kind in _MARKED)
        rows = self._of(*(_MARKED if number <= MAX_MARKS else _RARE))
        step = max(len(rows) // MAX_MARKS + 1, 1)
        for row in rows[::step]:
            at = self.chart.order.get(row.place, 0)
            yield MapMark(round(min(at * scale, MAP_HEIGHT - 5), 1), _KINDS.get(row.kind, row.kind))

    def _links(self, scale: float) -> Iterator[MapLink]:
        chart = self.chart
        rows = self._of("prompt", "correction")
        rows = [row for row in rows if row.place in chart.order]
        step = len(rows) // MAX_LINKS + 1
        some = rows[::step]
        starts = [chart.order[row.place] * scale for row in some]
        for row, start, end in zip(some, starts, [*starts[1:], float(MAP_HEIGHT)], strict=False):
            turn = chart.turns.get(row.place, 0)
            text = f"Turn {turn}" + (", correction" if row.kind == "correction" else "")
            yield MapLink(round(start, 1), round(max(end - start, 1), 1), self.href(row), text)


def _condense(rows: Iterable[ChartRow]) -> list[ChartRow]:
    """Leave out the second and further ones of several edits in a row of one record."""
    out: list[ChartRow] = []
    for row in rows:
        same = out and out[-1].kind == row.kind == "edit" and out[-1].place == row.place
        if not same:
            out.append(row)
    return out


def _thin_out(points: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Keep so many points: of each stretch the highest and the last."""
    if len(points) <= MAX_POINTS:
        return list(points)
    step = len(points) // (MAX_POINTS // 2) + 1
    out: list[tuple[int, int]] = []
    for start in range(0, len(points), step):
        some = points[start : start + step]
        top = max(some, key=lambda point: point[1])
        out += [top] if top == some[-1] else [top, some[-1]]
    return out
