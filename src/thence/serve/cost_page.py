"""Costs: how much, how much of it for nothing, by what."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final
from urllib.parse import urlencode

import msgspec

from thence.format.figures import TICKS, clean, money, several, short, short_id
from thence.format.normal import one_line
from thence.memory.bills import Bill, By, totals_by_day
from thence.memory.store import Filter, Total
from thence.memory.zones import midnight, millis, zone_label, zone_named
from thence.serve.agents import agent_class, agent_label
from thence.serve.days import RANGES, Earlier, earlier
from thence.serve.desk import Desk
from thence.serve.head import address, title_of
from thence.serve.labels import unique_labels

BYS: Final[dict[By, str]] = {
    "model": "Model",
    "project": "Project",
    "agent": "Agent",
    "session": "Session",
    "branch": "Branch",
    "pr": "Pull request",
    "tag": "Tag",
}
SHOWN: Final = 40
BRANCHES: Final = 12
HIGH: Final = 173
"""Pixels of the highest bar."""


class Wanted(msgspec.Struct, frozen=True):
    """What the address of the costs asks for."""

    by: By = "model"
    days: int = 30
    agent: str = ""
    project: str = ""
    model: str = ""
    day: str = ""
    tz: str = ""
    """The zone of days; this machine's if none is named."""

    @property
    def zone(self) -> tzinfo | None:
        """The zone of days."""
        return zone_named(self.tz)

    def href(self, **changed: object) -> str:
        """Give the address with something changed."""
        fields = {**msgspec.structs.asdict(self), **changed}
        usual = {"by": "model", "days": 30}
        given = {n: v for n, v in fields.items() if v and v != usual.get(n)}
        return f"/costs?{urlencode(given)}" if given else "/costs"


class Part(msgspec.Struct, frozen=True):
    """A piece of a bar."""

    y: float
    height: float
    cls: str


class DayBar(msgspec.Struct, frozen=True):
    """What was spent on one day, by agent, the dead on top."""

    href: str
    said: str
    x: float
    width: float
    parts: list[Part]
    dead: Part | None
    label: str = ""


class Line(msgspec.Struct, frozen=True):
    """One row of the table."""

    name: str
    href: str
    flavor: str
    sessions: str
    input: str
    output: str
    cache: str
    live: str
    dead: str
    side: str
    share: float
    percent: str
    unknown: bool = False


class Costly(msgspec.Struct, frozen=True):
    """A discarded branch that cost something."""

    href: str
    title: str
    said: str
    events: int
    cost: str


class CostPage(msgspec.Struct, frozen=True):
    """What answers: how much, and how much for nothing."""

    wanted: Wanted
    heading: str
    dead_said: str
    live: str
    dead: str
    side: str
    share: float
    ratio: str
    ranges: list[tuple[str, str, bool]]
    bys: list[tuple[str, str, bool]]
    filters: list[tuple[str, str]]
    axis: list[tuple[float, str]]
    days: list[DayBar]
    agents: list[str]
    lines: list[Line]
    all: Line
    left: int
    branches: list[Costly]
    notes: list[str]
    responses: str
    earlier: Earlier | None
    """Given when no bill lies in these days."""


def page(desk: Desk, wanted: Wanted) -> CostPage:
    """Add up what was spent."""
    base = _within(desk, wanted)
    bill = Bill(desk.store, wanted.by, base, wanted.zone, desk.labels())
    total = bill.total
    labels = unique_labels([one.key[0] or "" for one in bill.parts])
    parts = [_line(desk, wanted, one, labels) for one in bill.parts[:SHOWN]]
    label = zone_label(wanted.zone, datetime.fromtimestamp(desk.clock(), UTC))
    span = wanted.day or f"{wanted.days} days"
    percent = _percent(total.dead / total.ticks if total.ticks else 0)
    ratio = round(100 * (total.ticks - total.dead) / total.ticks) if total.ticks else 100
    days, agents, axis = _day_bars(desk, wanted)
    return CostPage(
        wanted,
        f"{money(total.ticks, total.unpriced)} {'on' if wanted.day else 'in'} {span}",
        f"{money(total.dead)} on discarded branches ({percent})" if total.dead else "",
        money(total.ticks - total.dead, total.unpriced),
        money(total.dead),
        money(total.side) if total.side else "",
        ratio / 100,
        f"{ratio} to {100 - ratio}",
        [(f"{n} days", wanted.href(days=n, day=""), n == wanted.days) for n in RANGES],
        [(said, wanted.href(by=by), by == wanted.by) for by, said in BYS.items()],
        [
            (f"{name}: {clean(value)[:40]}", wanted.href(**{name: ""}))
            for name in ("agent", "project", "model", "day")
            if (value := getattr(wanted, name))
        ],
        axis,
        days,
        agents,
        parts,
        _sum(total),
        max(len(bill.parts) - SHOWN, 0),
        _dead_branches(desk, base),
        [*_notes(bill, total), f"Days are in {clean(label)}."],
        f"{total.responses:,}",
        None if total.responses else earlier(desk, wanted.days, lambda n: wanted.href(days=n)),
    )


def as_csv(desk: Desk, wanted: Wanted) -> str:
    """Return the sums of a page as a table for a spreadsheet, money in dollars."""
    bill = Bill(desk.store, wanted.by, _within(desk, wanted), wanted.zone, desk.labels())
    out = io.StringIO()
    table = csv.writer(out)
    tokens = ("input_tokens", "output_tokens", "cache_tokens")
    amounts = ("dollars", "of_it_discarded", "of_it_subagents", "tokens_without_price")
    table.writerow([wanted.by, "sessions", *tokens, *amounts])
    for one in bill.parts:
        name = clean(one.key[0] or "unknown")
        safe = f"'{name}" if name[:1] in "=+-@" else name  # a spreadsheet would run it
        money_columns = [round(ticks / TICKS, 6) for ticks in (one.ticks, one.dead, one.side)]
        counts = [one.sessions, one.input, one.output, one.cache]
        table.writerow([safe, *counts, *money_columns, one.unpriced])
    return out.getvalue()


def _today(desk: Desk, wanted: Wanted) -> date:
    return datetime.fromtimestamp(desk.clock(), UTC).astimezone(wanted.zone).date()


def _within(desk: Desk, wanted: Wanted) -> Filter:
    """Return the filter for the days that are shown, from midnight to midnight in their zone."""
    first = _today(desk, wanted) - timedelta(days=wanted.days - 1)
    end = None
    if wanted.day:
        first = date.fromisoformat(wanted.day)
        end = millis(midnight(first + timedelta(days=1), wanted.zone))
    return Filter(
        agent=wanted.agent or None,
        project=wanted.project or None,
        model=wanted.model or None,
        after=millis(midnight(first, wanted.zone)),
        before=end,
    )


def _line(desk: Desk, wanted: Wanted, one: Total, labels: Mapping[str, str]) -> Line:
    key = one.key[0] or ""
    name, href, flavor = clean(key) or "unknown", "", ""
    if wanted.by == "session":
        rows = desk.display(list(desk.store.sessions(Filter(uids=(key,)))))
        name = title_of(rows[0]) if rows else short_id(key)
        href, flavor = address(key), key.partition(":")[0]
    elif wanted.by == "agent":
        name, href, flavor = agent_label(key), wanted.href(agent=key, by="model"), key
    elif wanted.by == "project":
        name, href = labels.get(key) or name, wanted.href(project=key, by="session") if key else ""
    elif wanted.by == "pr":
        name = name if key else "no pull request"
    elif wanted.by == "tag":
        name = f"#{name}" if key else "untagged"
        href = f"/sessions?{urlencode({'q': f'tag:{key}'})}" if key else ""
    elif wanted.by == "model" and key:
        href = wanted.href(model=key, by="session")
    return msgspec.structs.replace(_sum(one), name=name, href=href, flavor=flavor)


def _sum(one: Total) -> Line:
    share = one.dead / one.ticks if one.ticks else 0.0
    unknown = bool(one.unpriced and not one.ticks)
    return Line(
        "All",
        "",
        "",
        f"{one.sessions:,}",
        short(one.input),
        short(one.output),
        short(one.cache) if one.cache else "·",
        "unknown" if unknown else money(one.ticks - one.dead - one.side, one.unpriced),
        money(one.dead) if one.dead else "·",
        money(one.side) if one.side else "·",
        round(share, 3),
        _percent(share),
        unknown,
    )


def _percent(share: float) -> str:
    """Say a share; a little is not nothing."""
    return "<1 %" if 0 < share < 0.005 else f"{share:.0%}".replace("%", " %")


def _day_bars(
    desk: Desk, wanted: Wanted
) -> tuple[list[DayBar], list[str], list[tuple[float, str]]]:
    """Draw the days of the range, whatever day is looked at."""
    base = _within(desk, msgspec.structs.replace(wanted, day=""))
    found = totals_by_day(desk.store, base, wanted.zone, by_agent=True)
    agents = sorted({f"{one.key[1]}" for one in found if one.ticks})
    first = _today(desk, wanted) - timedelta(days=wanted.days - 1)
    dates = [(first + timedelta(days=n)) for n in range(wanted.days)]
    by_day: dict[str, list[Total]] = {}
    for one in found:
        by_day.setdefault(f"{one.key[0]}", []).append(one)
    top = max((sum(t.ticks for t in some) for some in by_day.values()), default=0)
    step = _step(top)
    scale = HIGH / top if top else 0.0
    wide = 100 / max(len(dates), 1)
    out = []
    for at, day in enumerate(dates):
        some = by_day.get(day.isoformat(), [])
        x, label = round(at * wide + wide * 0.1, 2), _label(at, day, len(dates))
        out.append(_day_bar(wanted, day, some, agents, scale, (x, round(wide * 0.8, 2)), label))
    axis = [(206 - n * step * scale, money(n * step)) for n in range(int(top // step) + 1)]
    return out, agents, [(round(y, 1), said) for y, said in axis] if top else []


def _day_bar(  # noqa: PLR0917 - one bar has so many sides
    wanted: Wanted,
    day: date,
    some: Sequence[Total],
    agents: Sequence[str],
    scale: float,
    place: tuple[float, float],
    label: str,
) -> DayBar:
    ticks, dead = sum(t.ticks for t in some), sum(t.dead for t in some)
    y = 206.0
    parts = []
    for agent in agents:
        live = sum(t.ticks - t.dead for t in some if t.key[1] == agent) * scale
        if live > 0:
            y -= live
            parts.append(Part(round(y, 1), round(live, 1), f"f-{agent_class(agent)}"))
    lost = Part(round(y - dead * scale, 1), round(dead * scale, 1), "") if dead else None
    said = f"{day.day} {day:%b}: {money(ticks - dead)} live, {money(dead)} discarded"
    name = day.isoformat()
    href = wanted.href(day="" if wanted.day == name else name)
    return DayBar(href, said, *place, parts, lost, label)


def _label(at: int, day: date, number: int) -> str:
    if at == number - 1:
        return "today"
    every = max(number // 5, 1)
    return f"{day.day} {day:%b}" if at % every == 0 and at < number - every else ""


def _step(top: int) -> int:
    """Choose what a line of the grid stands for: one, two or five of something."""
    if top <= 0:
        return 1
    base = int("1".ljust(len(f"{max(top // 4, 1)}"), "0"))
    return next((base * n for n in (1, 2, 5, 10) if top / (base * n) <= 4), base * 10)


def _dead_branches(desk: Desk, base: Filter) -> list[Costly]:
    """Find what cost most and led nowhere."""
    wanted = msgspec.structs.replace(base, order="cost", limit=200)
    found: list[tuple[int, Costly]] = []
    for told in desk.store.kept("digests", wanted):
        for branch in told.get("branches") or ():
            ticks = branch.get("cost", {}).get("ticks", 0)
            if ticks:
                at = branch.get("first", 0)
                href = address(told["uid"], at)
                said = clean(one_line(branch.get("prompt") or "", 90))
                title = clean(one_line(told.get("title") or "", 80)) or "untitled"
                one = Costly(href, title, said, branch.get("events", 0), money(ticks))
                found.append((ticks, one))
    found.sort(key=lambda one: (-one[0], one[1].href))
    return [one for _, one in found[:BRANCHES]]


def _notes(bill: Bill, total: Total) -> Iterator[str]:
    if total.unpriced:
        parts = "; ".join(clean(str(part)) for part in bill.unpriced[:3])
        yield f"Not counted: {parts}."
    if bill.bounds:
        reasons = Counter(why for row in bill.bounds for why in row.lower_bound)
        most = clean(reasons.most_common(1)[0][0])
        what = several(len(bill.bounds), "session")
        yield f"Usage is missing or incomplete in {what} ({most}); totals are minimums."
