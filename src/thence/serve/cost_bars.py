"""Bars of what was spent: one for each day, week or month, by agent, discarded branches on top."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from typing import Final

import msgspec

from thence.format.figures import money
from thence.memory.cost_totals import PERIODS, sum_totals
from thence.memory.local_days import Period, period_end, period_start
from thence.memory.store import Total
from thence.serve.agents import agent_class

MAX_BAR_PX: Final = 173
"""Pixels of the highest bar."""
BASELINE_PX: Final = 206.0
"""Where bars stand, in pixels from the top."""
MAX_BARS: Final = 400
USUAL_DAYS: Final[tuple[tuple[int, Period], ...]] = ((120, "day"), (800, "week"))
"""A range of up to so many days is drawn by day, or by week; a longer one by month."""


class PeriodBounds(msgspec.Struct, frozen=True):
    """One period: its first day, the first day after it, and what it is called."""

    first: date
    end: date
    name: str


class DateRange(msgspec.Struct, frozen=True):
    """The days that a page shows, and what a bar stands for."""

    first: date
    last: date
    period: Period

    def period_of(self, day: date) -> PeriodBounds:
        """Return the period that a day is in."""
        first = period_start(day, self.period)
        name = f"{first:%B %Y}" if self.period == "month" else f"{first.day} {first:%b %Y}"
        if self.period == "week":
            name = f"week of {name}"
        return PeriodBounds(first, period_end(day, self.period), name)

    def periods(self) -> list[PeriodBounds]:
        """Return all periods of these days, in their order."""
        bounds = [self.period_of(self.first)]
        while bounds[-1].end <= self.last:
            bounds.append(self.period_of(bounds[-1].end))
        return bounds


def span_of(first: date, last: date, wanted: str) -> DateRange:
    """Return a span with the wanted period, or the one that suits: never more than many bars."""
    days = (last - first).days + 1
    usual: Period = next((name for most, name in USUAL_DAYS if days <= most), "month")
    chosen: Period = next((name for name in PERIODS if name == wanted), usual)
    lengths = {"day": 1, "week": 7, "month": 28}
    at = PERIODS.index(chosen)
    period: Period = next((n for n in PERIODS[at:] if days / lengths[n] <= MAX_BARS), "month")
    return DateRange(first, last, period)


class BarPart(msgspec.Struct, frozen=True):
    """A piece of a bar."""

    y: float
    height: float
    cls: str


class PeriodBar(msgspec.Struct, frozen=True):
    """What was spent in one period, by agent, the discarded on top."""

    href: str
    text: str
    x: float
    width: float
    parts: list[BarPart]
    dead: BarPart | None
    label: str = ""
    is_minor: bool = False
    """Whether the label is left out where there is little room."""


def draw_bars(
    span: DateRange, totals: Sequence[Total], href: Callable[[str], str]
) -> tuple[list[PeriodBar], list[str], list[tuple[float, str]]]:
    """Return the bars, the agents they are made of, and the lines of the grid.

    Totals are by period and agent; `href` returns the address of a period by its first day.
    """
    agents = sorted({f"{total.key[1]}" for total in totals if total.ticks})
    groups: dict[str, list[Total]] = {}
    for total in totals:
        groups.setdefault(f"{total.key[0]}", []).append(total)
    top = max((sum(total.ticks for total in group) for group in groups.values()), default=0)
    scale = MAX_BAR_PX / top if top else 0.0
    periods = span.periods()
    wide = 100 / len(periods)
    bars = []
    for at, bounds in enumerate(periods):
        group = groups.get(bounds.first.isoformat(), [])
        parts, dead = _parts(group, agents, scale)
        total = sum_totals(group)
        live = money(total.ticks - total.dead, total.unpriced, is_bound=total.is_lower_bound)
        text = f"{bounds.name}: {live} live, {money(total.dead)} discarded"
        x, width = round(at * wide + wide * 0.1, 2), round(wide * 0.8, 2)
        label = _label(at, bounds.first, len(periods), span)
        is_minor = bool(at // _every(len(periods)) % 2) and at < len(periods) - 1
        bars.append(
            PeriodBar(
                *(href(bounds.first.isoformat()), text, x, width, parts, dead, label, is_minor)
            )
        )
    step = _step(top)
    axis = [(BASELINE_PX - n * step * scale, money(n * step)) for n in range(int(top // step) + 1)]
    return bars, agents, [(round(y, 1), text) for y, text in axis] if top else []


def _parts(
    group: Sequence[Total], agents: Sequence[str], scale: float
) -> tuple[list[BarPart], BarPart | None]:
    """Return the pieces of one bar from the floor up, and what was discarded."""
    y = BASELINE_PX
    parts = []
    for agent in agents:
        live = sum(t.ticks - t.dead for t in group if t.key[1] == agent) * scale
        if live > 0:
            y -= live
            parts.append(BarPart(round(y, 1), round(live, 1), f"f-{agent_class(agent)}"))
    dead = sum(total.dead for total in group) * scale
    return parts, BarPart(round(y - dead, 1), round(dead, 1), "") if dead else None


def _label(at: int, day: date, number: int, span: DateRange) -> str:
    """Return what stands under a bar: some have a date, the last says what it is."""
    if at == number - 1:
        return "today" if span.period == "day" else f"this {span.period}"
    every = _every(number)
    if at % every or at >= number - every:
        return ""
    if span.period == "month":
        return f"{day:%b %Y}"
    year = f" {day.year}" if day.year != span.last.year else ""
    return f"{day.day} {day:%b}{year}"


def _every(number: int) -> int:
    """Return how many bars share a label."""
    return max(number // 5, 1)


def _step(top: int) -> int:
    """Return what a line of the grid stands for: one, two or five of something."""
    if top <= 0:
        return 1
    base = int("1".ljust(len(f"{max(top // 4, 1)}"), "0"))
    return next((base * n for n in (1, 2, 5, 10) if top / (base * n) <= 4), base * 10)
