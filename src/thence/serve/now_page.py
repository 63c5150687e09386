"""Now: what waits, runs or is about to be deleted, what today cost, what was left open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from thence.format.figures import clean, money, project, several, short_id, size
from thence.memory.budgets import budget_warnings
from thence.memory.cost_totals import sum_totals, totals_by_day
from thence.memory.local_days import midnight, millis, zone_label
from thence.memory.reports import count_losses, losses_of
from thence.memory.session_status import Risk, sessions_by_standing
from thence.memory.store import Filter, SessionRow, Total
from thence.memory.unread import read_unread, unread_lines
from thence.serve.cards import SessionCard, TodoItem, card, todo_items
from thence.serve.chart import Chart
from thence.serve.chart_cache import charts_of
from thence.serve.clock import DisplayClock
from thence.serve.context import AppContext
from thence.serve.session_head import address, current_action, last_words, title_of

SHOWN_DAYS: Final = 14
MAX_ROWS: Final = 6
MAX_TODOS: Final = 50
"""To-dos that can be unfolded."""


class ExpiringSession(msgspec.Struct, frozen=True):
    """A session that its agent is about to delete."""

    title: str
    href: str
    project: str
    days: str
    near: bool
    size: str


class SpendBar(msgspec.Struct, frozen=True):
    """What was spent on one day, or in one hour."""

    x: float
    live: float
    dead: float
    text: str
    label: str = ""


class NowPage(msgspec.Struct, frozen=True):
    """What answers: does anything need me."""

    heading: str
    lede: str
    waiting: list[SessionCard]
    running: list[SessionCard]
    idle: list[SessionCard]
    lately: list[SessionCard]
    perils: list[ExpiringSession]
    more_perils: int
    today: str
    today_dead: str
    usual: str
    columns: list[SpendBar]
    hours: list[SpendBar]
    """Of today; none when nothing was spent."""
    week: list[tuple[str, int, str]]
    promises: list[TodoItem]
    more_promises: list[TodoItem]
    sessions: int
    importing: str
    """How far the first import is; empty while there is none."""
    missing: list[str]
    """What was lost, and what is not read."""
    warnings: list[str]
    """Budgets of today that are used up or nearly so."""
    zone: str
    """What the zone of hours and days is called."""


def page(context: AppContext, clock: DisplayClock) -> NowPage:
    """Return the start page: what waits, runs and will be deleted."""
    at = context.clock()
    standing = sessions_by_standing(context.store, context.now(), at, context.labels())
    waiting = [_waiting_card(context, row, clock) for row in standing["waiting"]]
    running = [_running_card(context, row, clock) for row in standing["running"]]
    risks = context.risks()
    days = _days(context, clock)
    promises, more = _promises(context)
    missing = list(_missing(context))
    return NowPage(
        _heading(len(waiting), is_all=not missing),
        _lede(len(running), len(risks)),
        waiting,
        running,
        [card(context, row, clock, drawn=False) for row in standing["idle"][:MAX_ROWS]],
        _recent_cards(
            context, clock, {r.session.session_uid for some in standing.values() for r in some}
        ),
        [_expiring_session(risk) for risk in risks[:MAX_ROWS]],
        max(len(risks) - MAX_ROWS, 0),
        days[-1].cost_text,
        money(days[-1].dead) if days[-1].dead else "",
        _usual(days[:-1]),
        _columns(days),
        _hours(context, clock),
        _week(context, clock),
        promises,
        more,
        context.store.totals()[0].sessions,
        _importing(context),
        missing,
        budget_warnings(context.budget_uses(clock.zone)),
        clean(zone_label(clock.zone, datetime.fromtimestamp(at, UTC))),
    )


def _heading(waiting: int, *, is_all: bool) -> str:
    if not waiting:
        return "Nothing needs you" if is_all else "No session waits for you"
    return f"{several(waiting, 'session')} {'needs' if waiting == 1 else 'need'} you"


def _missing(context: AppContext) -> Iterator[str]:
    """Yield what was lost, and what the last sweep found and did not read."""
    if lost := losses_of(context.store):
        yield count_losses(lost)
    yield from unread_lines(read_unread(context.home))


def _lede(running: int, risks: int) -> str:
    parts = [
        f"{running} running" if running else "none running",
        f"{risks} will soon be deleted by their agent" if risks else "",
    ]
    return ", ".join(filter(None, parts))


def _importing(context: AppContext) -> str:
    if (progress := context.first_import()) is None:
        return ""
    read, total = progress.sources, several(progress.all_sources, "session")
    share = 100 * progress.bytes // (progress.all_bytes or 1)
    return f"Importing the logs of your agents: {read:,} of {total} read, {share} %"


def _waiting_card(context: AppContext, row: SessionRow, clock: DisplayClock) -> SessionCard:
    made = card(context, row, clock, drawn=False)
    chart = _end(context, row)
    status = context.now().live.get(row.session.session_uid)
    asks = clean(status.waiting_for or "") if status is not None else ""
    _, what = current_action(chart) if chart.open_calls else ("", "")
    quote = "" if what else last_words(chart)
    asks = asks or ("asks for permission" if what else "finished its turn with a question")
    return msgspec.structs.replace(made, what=what, asks=asks, quote=quote)


def _running_card(context: AppContext, row: SessionRow, clock: DisplayClock) -> SessionCard:
    made = card(context, row, clock)
    icon, what = current_action(_end(context, row))
    return msgspec.structs.replace(made, what=what, what_icon=icon)


def _end(context: AppContext, row: SessionRow) -> Chart:
    """Return the chart of a session's last records, or of all of it."""
    charts = charts_of(context)
    return charts.end(row.session.session_uid) or charts.get(context, row)


def _recent_cards(context: AppContext, clock: DisplayClock, shown: set[str]) -> list[SessionCard]:
    """Return the sessions that ended last."""
    rows = context.display(list(context.store.sessions(Filter(limit=MAX_ROWS + len(shown)))))
    rest = [row for row in rows if row.session.session_uid not in shown]
    return [card(context, row, clock) for row in rest[:MAX_ROWS]]


def _expiring_session(risk: Risk) -> ExpiringSession:
    row = risk.row
    folder = risk.source.path.rpartition("/")[0].rpartition("/")[2]
    title = f"{title_of(row)}, grown since" if row else short_id(risk.source.session)
    days = "today" if risk.days < 1 else several(int(risk.days), "day")
    href = address(row.session.session_uid) if row else ""
    where = project(row.folder) if row else clean(folder)
    return ExpiringSession(title, href, where, days, risk.days < 3, size(risk.size))


def _days(context: AppContext, clock: DisplayClock) -> list[Total]:
    """What was spent on each of the last days of the clock's zone, today last."""
    today = context.moment(clock.zone).date()
    dates = [today - timedelta(days=back) for back in range(SHOWN_DAYS)][::-1]
    wanted = Filter(after=millis(midnight(dates[0], clock.zone)))
    by_day = {total.key[0]: total for total in totals_by_day(context.store, wanted, clock.zone)}
    return [by_day.get(day.isoformat(), Total((day.isoformat(),))) for day in dates]


def _usual(days: Sequence[Total]) -> str:
    spent = sorted(day.ticks for day in days if day.ticks)
    return money(spent[len(spent) // 2]) if spent else ""


def _columns(days: Sequence[Total]) -> list[SpendBar]:
    top = max((day.ticks for day in days), default=0) or 1
    out = []
    for at, day in enumerate(days):
        noon = datetime.fromisoformat(f"{day.key[0]}T12:00:00+00:00")
        live, dead = (day.ticks - day.dead) / top * 64, day.dead / top * 64
        title = f"{noon.day} {noon:%b}: {day.cost_text}"
        title += f", {money(day.dead)} discarded" if day.dead else ""
        label = f"{noon.day} {noon:%b}" if at in (0, SHOWN_DAYS // 2) else ""
        label = "today" if at == len(days) - 1 else label
        out.append(SpendBar(4 + at * 21, round(live, 1), round(dead, 1), title, label))
    return out


def _hours(context: AppContext, clock: DisplayClock) -> list[SpendBar]:
    """What was spent in each hour of today, in the clock's zone."""
    today = context.moment(clock.zone).date()
    spent = [Total(())] * 24
    for part in context.store.totals(["slot"], Filter(after=millis(midnight(today, clock.zone)))):
        moment = clock.of(f"{part.key[0]}:00Z")
        if moment is not None and moment.date() == today:
            spent[moment.hour] = sum_totals([spent[moment.hour], part])
    top = max(total.ticks for total in spent)
    out = []
    for hour, total in enumerate(spent if top else ()):
        title = f"{hour:02}:00 to {(hour + 1) % 24:02}:00: {total.cost_text}"
        title += f", {money(total.dead)} discarded" if total.dead else ""
        label = f"{hour:02}:00" if hour % 6 == 0 else ""
        live = round((total.ticks - total.dead) / top * 40, 1)
        dead = round(total.dead / top * 40, 1)
        out.append(SpendBar(3 + hour * 12.4, live, dead, title, label))
    return out


def _week(context: AppContext, clock: DisplayClock) -> list[tuple[str, int, str]]:
    """Return what agents did in seven days of the zone, today included: what Costs shows too."""
    today = context.moment(clock.zone).date()
    first = millis(midnight(today - timedelta(days=6), clock.zone))
    totals = context.store.totals(["agent"], Filter(after=first))
    ordered = sorted(totals, key=lambda total: -total.ticks)
    return [(f"{total.key[0]}", total.sessions, total.cost_text) for total in ordered]


def _promises(context: AppContext) -> tuple[list[TodoItem], list[TodoItem]]:
    back = int((context.clock() - SHOWN_DAYS * 86_400) * 1000)
    items = todo_items(context, Filter(after=back, limit=100), MAX_TODOS, chars=90)
    return items[:MAX_ROWS], items[MAX_ROWS:]
