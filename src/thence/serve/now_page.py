"""Now: what waits, runs or is about to be deleted, what today cost, what was left open."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final

import msgspec

from thence.format.figures import clean, money, project, several, short_id, size
from thence.format.normal import one_line
from thence.format.records import JSON
from thence.memory.bills import totals_by_day
from thence.memory.budgets import budget_warnings
from thence.memory.dismissals import dismissed_todos, todo_key
from thence.memory.promised import open_promises
from thence.memory.standing import Risk, Standing, open_sessions
from thence.memory.store import Filter, SessionRow, Total
from thence.memory.zones import midnight, millis, zone_label
from thence.serve.cards import Card, card
from thence.serve.chart import Chart
from thence.serve.charts import charts_of
from thence.serve.clock import Clock
from thence.serve.desk import Desk
from thence.serve.head import address, doing, last_words, title_of

DAYS: Final = 14
FEW: Final = 6


class Peril(msgspec.Struct, frozen=True):
    """A session that its agent is about to delete."""

    title: str
    href: str
    project: str
    days: str
    near: bool
    size: str


class Column(msgspec.Struct, frozen=True):
    """What was spent on one day, or in one hour."""

    x: float
    live: float
    dead: float
    said: str
    label: str = ""


class Promise(msgspec.Struct, frozen=True):
    """Something an agent said it would do and did not."""

    text: str
    href: str
    project: str
    key: str = ""
    """Its name, to dismiss it by."""


class NowPage(msgspec.Struct, frozen=True):
    """What answers: does anything need me."""

    heading: str
    lede: str
    waiting: list[Card]
    running: list[Card]
    idle: list[Card]
    lately: list[Card]
    perils: list[Peril]
    more_perils: int
    today: str
    today_dead: str
    usual: str
    columns: list[Column]
    hours: list[Column]
    """Of today; none when nothing was spent."""
    week: list[tuple[str, int, str]]
    promises: list[Promise]
    more_promises: int
    sessions: int
    budgets: list[str]
    """Warnings: budgets of today that are used up or nearly so."""
    zone: str
    """What the zone of hours and days is called."""


def page(desk: Desk, clock: Clock) -> NowPage:
    """Say where things stand."""
    at = desk.clock()
    standing: dict[Standing, list[SessionRow]] = {"waiting": [], "running": [], "idle": []}
    for row in open_sessions(desk.store, Filter(), desk.now(), at, desk.labels()):
        if (how := desk.now().of(row, at)) is not None:
            standing[how].append(row)
    waiting = [_waiting(desk, row, clock) for row in standing["waiting"]]
    running = [_running(desk, row, clock) for row in standing["running"]]
    risks = desk.risks()
    days = _days(desk, clock)
    promises, more = _promises(desk)
    return NowPage(
        _heading(len(waiting)),
        _lede(len(running), len(risks)),
        waiting,
        running,
        [card(desk, row, clock, drawn=False) for row in standing["idle"][:FEW]],
        _lately(desk, clock, {r.session.session_uid for some in standing.values() for r in some}),
        [_peril(risk) for risk in risks[:FEW]],
        max(len(risks) - FEW, 0),
        money(days[-1].ticks, days[-1].unpriced),
        money(days[-1].dead) if days[-1].dead else "",
        _usual(days[:-1]),
        _columns(days),
        _hours(desk, clock),
        _week(desk),
        promises,
        more,
        desk.store.totals()[0].sessions,
        budget_warnings(desk.budget_uses(clock.zone)),
        clean(zone_label(clock.zone, datetime.fromtimestamp(at, UTC))),
    )


def _heading(waiting: int) -> str:
    if not waiting:
        return "Nothing needs you"
    return f"{several(waiting, 'session')} {'needs' if waiting == 1 else 'need'} you"


def _lede(running: int, risks: int) -> str:
    parts = [
        f"{running} running" if running else "none running",
        f"{risks} will soon be deleted by their agent" if risks else "",
    ]
    return ", ".join(filter(None, parts))


def _waiting(desk: Desk, row: SessionRow, clock: Clock) -> Card:
    made = card(desk, row, clock, drawn=False)
    chart = _end(desk, row)
    told = desk.now().live.get(row.session.session_uid)
    asks = clean(told.waiting_for or "") if told is not None else ""
    _, what = doing(chart) if chart.open_calls else ("", "")
    quote = "" if what else last_words(chart)
    asks = asks or ("asks for permission" if what else "finished its turn with a question")
    return msgspec.structs.replace(made, what=what, asks=asks, quote=quote)


def _running(desk: Desk, row: SessionRow, clock: Clock) -> Card:
    made = card(desk, row, clock)
    icon, what = doing(_end(desk, row))
    return msgspec.structs.replace(made, what=what, what_icon=icon)


def _end(desk: Desk, row: SessionRow) -> Chart:
    """Return the chart of a session's last records, or of all of it."""
    charts = charts_of(desk)
    return charts.end(row.session.session_uid) or charts.get(desk, row)


def _lately(desk: Desk, clock: Clock, told: set[str]) -> list[Card]:
    """Give the sessions that came to their end last."""
    rows = desk.display(list(desk.store.sessions(Filter(limit=FEW + len(told)))))
    rest = [row for row in rows if row.session.session_uid not in told]
    return [card(desk, row, clock) for row in rest[:FEW]]


def _peril(risk: Risk) -> Peril:
    row = risk.row
    folder = risk.source.path.rpartition("/")[0].rpartition("/")[2]
    title = f"{title_of(row)}, grown since" if row else short_id(risk.source.session)
    days = "today" if risk.days < 1 else several(int(risk.days), "day")
    href = address(row.session.session_uid) if row else ""
    where = project(row.session.cwd) if row else clean(folder)
    return Peril(title, href, where, days, risk.days < 3, size(risk.size))


def _today(desk: Desk, clock: Clock) -> date:
    return datetime.fromtimestamp(desk.clock(), UTC).astimezone(clock.zone).date()


def _days(desk: Desk, clock: Clock) -> list[Total]:
    """What was spent on each of the last days of the clock's zone, today last."""
    today = _today(desk, clock)
    dates = [today - timedelta(days=back) for back in range(DAYS)][::-1]
    wanted = Filter(after=millis(midnight(dates[0], clock.zone)))
    found = {one.key[0]: one for one in totals_by_day(desk.store, wanted, clock.zone)}
    return [found.get(day.isoformat(), Total((day.isoformat(),))) for day in dates]


def _usual(days: Sequence[Total]) -> str:
    spent = sorted(day.ticks for day in days if day.ticks)
    return money(spent[len(spent) // 2]) if spent else ""


def _columns(days: Sequence[Total]) -> list[Column]:
    top = max((day.ticks for day in days), default=0) or 1
    out = []
    for at, day in enumerate(days):
        noon = datetime.fromisoformat(f"{day.key[0]}T12:00:00+00:00")
        live, dead = (day.ticks - day.dead) / top * 64, day.dead / top * 64
        said = f"{noon.day} {noon:%b}: {money(day.ticks, day.unpriced)}"
        said += f", {money(day.dead)} discarded" if day.dead else ""
        label = f"{noon.day} {noon:%b}" if at in (0, DAYS // 2) else ""
        label = "today" if at == len(days) - 1 else label
        out.append(Column(4 + at * 21, round(live, 1), round(dead, 1), said, label))
    return out


def _hours(desk: Desk, clock: Clock) -> list[Column]:
    """What was spent in each hour of today, in the clock's zone."""
    today = _today(desk, clock)
    spent = [(0, 0)] * 24
    for part in desk.store.totals(["slot"], Filter(after=millis(midnight(today, clock.zone)))):
        moment = clock.of(f"{part.key[0]}:00Z")
        if moment is not None and moment.date() == today:
            dead, ticks = spent[moment.hour]
            spent[moment.hour] = dead + part.dead, ticks + part.ticks
    top = max(total for _, total in spent)
    out = []
    for hour, (dead, total) in enumerate(spent if top else ()):
        said = f"{hour:02}:00 to {(hour + 1) % 24:02}:00: {money(total)}"
        said += f", {money(dead)} discarded" if dead else ""
        label = f"{hour:02}:00" if hour % 6 == 0 else ""
        live = round((total - dead) / top * 40, 1)
        out.append(Column(3 + hour * 12.4, live, round(dead / top * 40, 1), said, label))
    return out


def _week(desk: Desk) -> list[tuple[str, int, str]]:
    back = int((desk.clock() - 7 * 86_400) * 1000)
    totals = desk.store.totals(["agent"], Filter(after=back))
    ordered = sorted(totals, key=lambda one: -one.ticks)
    return [
        (f"{total.key[0]}", total.sessions, money(total.ticks, total.unpriced)) for total in ordered
    ]


def _promises(desk: Desk) -> tuple[list[Promise], int]:
    back = int((desk.clock() - DAYS * 86_400) * 1000)
    found = open_promises(desk.store, Filter(after=back, limit=100), dismissed_todos(desk.home))
    return [_promise(one) for one in found[:FEW]], max(len(found) - FEW, 0)


def _promise(told: dict[str, JSON]) -> Promise:
    event, cwd = told["event_id"], told["cwd"]
    href = address(told["session_uid"], event if isinstance(event, int) else None)
    where = project(cwd if isinstance(cwd, str) else None)
    return Promise(clean(one_line(told["text"], 90)), href, where, todo_key(told))
