"""Costs: how much, how much of it for nothing, by what."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from datetime import date, timedelta, tzinfo
from typing import Final, Literal
from urllib.parse import urlencode

import msgspec

from thence.format.figures import TICKS, clean, money, short, short_id
from thence.format.normal import one_line
from thence.memory.cost_totals import PERIODS, By, CostTable, totals_by_day
from thence.memory.local_days import Period, local_date, midnight, millis, zone_label, zone_named
from thence.memory.store import Filter, Total
from thence.serve.agents import agent_label
from thence.serve.cards import RANGES, EarlierSessions, earlier
from thence.serve.context import AppContext
from thence.serve.cost_bars import DateRange, PeriodBar, draw_bars, span_of
from thence.serve.project_names import unique_labels
from thence.serve.session_head import address, title_of

Grouping = Literal["time", "model", "project", "agent", "session", "branch", "pr", "tag"]
BYS: Final[dict[Grouping, str]] = {
    "time": "Time",
    "model": "Model",
    "project": "Project",
    "agent": "Agent",
    "session": "Session",
    "branch": "Branch",
    "pr": "Pull request",
    "tag": "Tag",
}
ALL_TIME: Final = 0
"""The number of days that stands for all time."""
MAX_ROWS: Final = 40
MAX_PERIODS_SHOWN: Final = 120
MAX_BRANCHES: Final = 12
COSTLY_SESSIONS: Final = 200
"""Sessions whose discarded branches are looked at, the most expensive."""


class CostQuery(msgspec.Struct, frozen=True):
    """What the address of the costs asks for."""

    by: Grouping = "model"
    days: int = 30
    """How far back; `ALL_TIME` for everything."""
    per: str = ""
    """What a bar stands for: a day, week or month; empty: what suits the range."""
    agent: str = ""
    project: str = ""
    model: str = ""
    day: str = ""
    """A day of the only bar that is looked at."""
    tz: str = ""
    """The zone of days; this machine's if none is named."""

    @property
    def zone(self) -> tzinfo | None:
        """The zone of days."""
        return zone_named(self.tz)

    def href(self, **changed: object) -> str:
        """Return the address with something changed."""
        fields = {**msgspec.structs.asdict(self), **changed}
        usual = {"by": "model", "days": 30}
        unusual = {n: v for n, v in fields.items() if v != usual.get(n, "")}
        return f"/costs?{urlencode(unusual)}" if unusual else "/costs"


class CostRow(msgspec.Struct, frozen=True):
    """One row of the table."""

    name: str
    href: str
    flavor: str
    sessions: str
    input: str
    output: str
    cache: str
    total: str
    dead: str
    side: str
    share: float
    percent: str
    unknown: bool = False


class DiscardedBranch(msgspec.Struct, frozen=True):
    """A discarded branch that cost something."""

    href: str
    title: str
    text: str
    events: int
    cost: str


class CostPage(msgspec.Struct, frozen=True):
    """What answers: how much, and how much for nothing."""

    wanted: CostQuery
    heading: str
    dead_said: str
    live: str
    dead: str
    side: str
    share: float
    ratio: str
    ranges: list[tuple[str, str, bool]]
    period: Period
    periods: list[tuple[str, str, bool]]
    heads: str
    """What the first column of the table is called."""
    bys: list[tuple[str, str, bool]]
    filters: list[tuple[str, str]]
    axis: list[tuple[float, str]]
    bars: list[PeriodBar]
    agents: list[str]
    lines: list[CostRow]
    all: CostRow
    left: int
    branches: list[DiscardedBranch]
    notes: list[str]
    zone: str
    responses: str
    earlier: EarlierSessions | None
    """Given when no bill lies in these days."""


def page(context: AppContext, wanted: CostQuery) -> CostPage:
    """Return the page with what was spent."""
    span = _span(context, wanted)
    base = _within(wanted, span)
    bill = _bill(context, wanted, span, base)
    total = bill.total
    paths = [part.key[0] or "" for part in bill.parts] if wanted.by == "project" else []
    labels = unique_labels(paths)
    most = MAX_PERIODS_SHOWN if wanted.by == "time" else MAX_ROWS
    shown = bill.parts[::-1] if wanted.by == "time" else bill.parts  # the latest comes first
    lines = [_line(context, wanted, part, labels, span) for part in shown[:most]]
    label = zone_label(wanted.zone, context.moment())
    percent = _percent(total.dead / total.ticks if total.ticks else 0)
    ratio = round(100 * (total.ticks - total.dead) / total.ticks) if total.ticks else 100
    everything = _within(msgspec.structs.replace(wanted, day=""), span)
    totals = totals_by_day(
        context.store, everything, wanted.zone, by_agent=True, period=span.period
    )
    bars, agents, axis = draw_bars(
        span, totals, lambda day: wanted.href(day="" if wanted.day == day else day)
    )
    return CostPage(
        wanted,
        f"{total.cost_phrase[:1].upper()}{total.cost_phrase[1:]} {_reach(wanted, span)}",
        f"{money(total.dead)} on discarded branches ({percent})" if total.dead else "",
        money(total.ticks - total.dead, total.unpriced, is_bound=total.is_lower_bound),
        money(total.dead),
        money(total.side) if total.side else "",
        ratio / 100,
        f"{ratio} to {100 - ratio}",
        [
            (
                f"{n} days" if n else "All time",
                wanted.href(days=n, day="", per=""),
                n == wanted.days,
            )
            for n in (*RANGES, ALL_TIME)
        ],
        span.period,
        [
            (name.capitalize(), wanted.href(per=name, day=""), name == span.period)
            for name in PERIODS
        ],
        span.period if wanted.by == "time" else wanted.by,
        [(name, wanted.href(by=by), by == wanted.by) for by, name in BYS.items()],
        [
            (f"{name}: {clean(value)[:40]}", wanted.href(**{name: ""}))
            for name in ("agent", "project", "model", "day")
            if (value := getattr(wanted, name))
        ],
        axis,
        bars,
        agents,
        lines,
        _sum(total),
        max(len(bill.parts) - most, 0),
        _dead_branches(context, base),
        list(_notes(bill, total)),
        clean(label),
        f"{total.responses:,}",
        None if total.responses else _earlier(context, wanted),
    )


def _reach(wanted: CostQuery, span: DateRange) -> str:
    """Return which days the page is about."""
    if not wanted.day:
        return f"in {wanted.days} days" if wanted.days else "all time"
    bar = span.period_of(date.fromisoformat(wanted.day))
    return f"on {wanted.day}" if span.period == "day" else f"in the {bar.name}"


def as_csv(context: AppContext, wanted: CostQuery) -> str:
    """Return the sums of a page as a table for a spreadsheet, money in dollars."""
    span = _span(context, wanted)
    bill = _bill(context, wanted, span, _within(wanted, span))
    out = io.StringIO()
    table = csv.writer(out)
    tokens = ("input_tokens", "output_tokens", "cache_tokens")
    amounts = ("dollars", "of_it_discarded", "of_it_subagents", "tokens_without_price", "minimum")
    table.writerow([bill.by, "sessions", *tokens, *amounts])
    for part in bill.parts:
        name = clean(part.key[0] or "unknown")
        safe = f"'{name}" if name[:1] in "=+-@" else name  # a spreadsheet would run it
        money_columns = [round(ticks / TICKS, 6) for ticks in (part.ticks, part.dead, part.side)]
        counts = [part.sessions, part.input, part.output, part.cache]
        minimum = "yes" if part.is_minimum else "no"
        table.writerow([safe, *counts, *money_columns, part.unpriced, minimum])
    return out.getvalue()


def _bill(context: AppContext, wanted: CostQuery, span: DateRange, base: Filter) -> CostTable:
    by: By = span.period if wanted.by == "time" else wanted.by
    return CostTable(context.store, by, base, wanted.zone, context.labels())


def _earlier(context: AppContext, wanted: CostQuery) -> EarlierSessions | None:
    if not wanted.days:
        return EarlierSessions("No session has cost data yet.", "/sessions", "All sessions")
    return earlier(context, wanted.days, lambda n: wanted.href(days=n), wanted.href(days=ALL_TIME))


def _span(context: AppContext, wanted: CostQuery) -> DateRange:
    """Return the days that are shown, and what a bar stands for."""
    today = context.moment(wanted.zone).date()
    if wanted.days:
        first = today - timedelta(days=wanted.days - 1)
    else:
        day = local_date(context.store.totals()[0].first_slot or "", wanted.zone)
        first = min(date.fromisoformat(day), today) if is_date(day) else today
    return span_of(first, today, wanted.per)


def is_date(text: str) -> bool:
    """Return whether a text is a date, and written the usual way."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _within(wanted: CostQuery, span: DateRange) -> Filter:
    """Return the filter for the days that are shown, from midnight to midnight in their zone."""
    first, end = span.first if wanted.days else None, None
    if wanted.day:
        bar = span.period_of(date.fromisoformat(wanted.day))
        first, end = bar.first, millis(midnight(bar.end, wanted.zone))
    return Filter(
        agent=wanted.agent or None,
        project=wanted.project or None,
        model=wanted.model or None,
        after=millis(midnight(first, wanted.zone)) if first else None,
        before=end,
    )


def _line(
    context: AppContext, wanted: CostQuery, total: Total, labels: Mapping[str, str], span: DateRange
) -> CostRow:
    key = total.key[0] or ""
    name, href, flavor = clean(key) or "unknown", "", ""
    if wanted.by == "session":
        rows = context.display(list(context.store.sessions(Filter(uids=(key,)))))
        name = title_of(rows[0]) if rows else short_id(key)
        href, flavor = address(key), key.partition(":")[0]
    elif wanted.by == "time":
        if is_date(key):
            name = span.period_of(date.fromisoformat(key)).name
            href = wanted.href(day=key, by="model", per=span.period)
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
    return msgspec.structs.replace(_sum(total), name=name, href=href, flavor=flavor)


def _sum(total: Total) -> CostRow:
    share = total.dead / total.ticks if total.ticks else 0.0
    unknown = bool(total.unpriced and not total.ticks)
    return CostRow(
        "All",
        "",
        "",
        f"{total.sessions:,}",
        short(total.input),
        short(total.output),
        short(total.cache) if total.cache else "·",
        "unknown" if unknown else total.cost_text,
        money(total.dead) if total.dead else "·",
        money(total.side) if total.side else "·",
        round(share, 3),
        _percent(share),
        unknown,
    )


def _percent(share: float) -> str:
    """Return a share in percent; a small share is not shown as zero."""
    return "<1 %" if 0 < share < 0.005 else f"{share:.0%}".replace("%", " %")


def _dead_branches(context: AppContext, base: Filter) -> list[DiscardedBranch]:
    """Return the discarded branches that cost most."""
    costly = msgspec.structs.replace(base, order="cost", limit=COSTLY_SESSIONS)
    rows = context.display(list(context.store.sessions(costly)))
    titles = {row.session.session_uid: title_of(row) for row in rows}
    wanted = Filter(uids=tuple(titles))
    branches: list[tuple[int, DiscardedBranch]] = []
    for digest in context.store.read_table("digests", wanted):
        for branch in digest.get("branches") or ():
            ticks = branch.get("cost", {}).get("ticks", 0)
            if ticks:
                at = branch.get("first", 0)
                href = address(digest["uid"], at)
                prompt = clean(one_line(branch.get("prompt") or "", 90))
                title = one_line(titles[digest["uid"]], 80)
                discarded = DiscardedBranch(
                    href, title, prompt, branch.get("events", 0), money(ticks)
                )
                branches.append((ticks, discarded))
    branches.sort(key=lambda entry: (-entry[0], entry[1].href))
    return [branch for _, branch in branches[:MAX_BRANCHES]]


def _notes(bill: CostTable, total: Total) -> Iterator[str]:
    if total.unpriced:
        parts = "; ".join(clean(str(part)) for part in bill.unpriced[:3])
        yield f"Not counted: {parts}."
    if bill.bound_note:
        yield f"Totals are minimums: {bill.bound_note}."
