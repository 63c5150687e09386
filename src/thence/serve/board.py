"""Now and the list of sessions: what needs somebody, and where that session was."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlencode

import msgspec
from markupsafe import Markup, escape

from thence.format.figures import ago, clean, money, project, several, short_id, size
from thence.format.joins import time_of
from thence.format.normal import one_line
from thence.memory.descent import descent
from thence.memory.search import Answer, BadQuery, Found, Query, hits, moment, parse
from thence.memory.standing import Standing, open_ones
from thence.memory.store import Filter, SessionRow, Total
from thence.serve.charts import charts_of
from thence.serve.clock import Clock
from thence.serve.desk import Desk
from thence.serve.head import address, doing, last_words, stands, title_of

DAYS: Final = 14
PAGE: Final = 50
"""Sessions of one page of the list."""
HITS: Final = 120
FEW: Final = 6
SORTS: Final = {"recent": "Newest", "cost": "Cost", "tokens": "Longest"}

_RANKS: Final[dict[str, Callable[[SessionRow], str]]] = {
    "recent": lambda row: row.session.ended_at or "",
    "cost": lambda row: f"{sum(row.ticks.values()):030}",
    "tokens": lambda row: f"{row.spent.own:030}",
}
_OUTCOME_ICONS: Final = {"success": "check", "fail": "cross"}


class Bar(msgspec.Struct, frozen=True):
    """One bar of a sparkline."""

    x: float
    y: float
    height: float
    red: bool = False


class Card(msgspec.Struct, frozen=True):
    """One session of a list."""

    href: str
    title: str
    flavor: str
    project: str
    branch: str
    standing: str
    cls: str
    icon: str
    cost: str
    dead: str
    age: str
    when: str
    dot: str
    bars: list[Bar]
    graph: list[str]
    depth: int = 0
    tags: list[tuple[str, str]] = []
    snippet: Markup = Markup("")
    what: str = ""
    what_icon: str = ""
    asks: str = ""
    quote: str = ""


class Day(msgspec.Struct, frozen=True):
    """Sessions of one day."""

    name: str
    date: str
    sums: str
    cards: list[Card]


def bars(desk: Desk, row: SessionRow) -> list[Bar]:
    """Draw how busy a session was."""
    found = desk.pulse(row)
    if found is None:
        return []
    totals = [a + b for a, b in zip(found.events, found.errors, strict=True)]
    top = max(totals) or 1
    out = []
    for at, (total, errors) in enumerate(zip(totals, found.errors, strict=True)):
        height = round(max(22 * math.sqrt(total / top), 1.5), 1) if total else 1.5
        out.append(Bar(at * 5, round(22 - height, 1), height, errors > 0))
    return out


def card(desk: Desk, row: SessionRow, clock: Clock, *, drawn: bool = True) -> Card:
    """Tell one session as a list does."""
    now = datetime.fromtimestamp(desk.clock(), UTC).astimezone(clock.zone)
    standing = desk.now().of(row, desk.clock())
    said, cls = stands(row, standing)
    session, ticks = row.session, row.ticks
    last = time_of(session.ended_at)
    evicted = session.evicted_at is not None
    return Card(
        href=address(session.session_uid),
        title=title_of(row),
        flavor=session.flavor,
        project=project(session.cwd),
        branch=clean(session.git_branch or ""),
        standing={"waits for you": "waits", "open, at rest": "at rest"}.get(said, said),
        cls=cls,
        icon="" if standing else _OUTCOME_ICONS.get(session.outcome, ""),
        cost=money(sum(ticks.values()), row.unpriced),
        dead=money(ticks["dead"]) if ticks.get("dead") else "",
        age=ago(last, now),
        when=clock.full(session.ended_at),
        dot=_dot(standing, cls),
        bars=bars(desk, row) if drawn and not evicted else [],
        graph=_graph(row),
        tags=list(_tags(row)),
    )


def _dot(standing: Standing | None, cls: str) -> str:
    if standing in ("waiting", "running"):
        return f"dot pulse {cls}"
    return f"dot hollow {cls}" if cls in ("dim", "mid") else f"dot {cls}"


def _graph(row: SessionRow) -> list[str]:
    """Say what to draw of a session's branches, at most six hooks."""
    dead = row.states.get("dead", 0) + row.states.get("rolled_back", 0)
    side = row.states.get("side", 0)
    hooks = ["dead"] * min(1 + dead // 20, 3) if dead else []
    return hooks + (["side"] * min(1 + side // 40, 3) if side else [])


def _tags(row: SessionRow) -> Iterator[tuple[str, str]]:
    for edge in row.edges:
        if not edge.child and edge.link in ("fork", "resume", "adopt"):
            yield f"{edge.link} of {short_id(edge.session)}", ""
            break
    if row.session.evicted_at is not None:
        yield "digest only", ""
    if row.pinned:
        yield "kept for good", ""
    if row.skipped:
        yield several(row.skipped, "skipped line"), "st-waiting"
    if row.gone:
        yield "source gone", ""


# -- now ------------------------------------------------------------------------------------


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


def now_page(desk: Desk, clock: Clock) -> NowPage:
    """Say where things stand."""
    at = desk.clock()
    standing: dict[Standing, list[SessionRow]] = {"waiting": [], "running": [], "idle": []}
    for row in open_ones(desk.store, Filter(), desk.now(), at):
        if (how := desk.now().of(row, at)) is not None:
            standing[how].append(row)
    waiting = [_waiting(desk, row, clock) for row in standing["waiting"]]
    running = [_running(desk, row, clock) for row in standing["running"]]
    risks = desk.risks()
    days = _days(desk)
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
        _hours(desk),
        _week(desk),
        promises,
        more,
        desk.store.totals()[0].sessions,
    )


def _heading(waiting: int) -> str:
    if not waiting:
        return "Nothing waits for you"
    return f"{several(waiting, 'session')} {'waits' if waiting == 1 else 'wait'} for you"


def _lede(running: int, risks: int) -> str:
    parts = [
        f"{running} {'runs' if running == 1 else 'run'}" if running else "none runs",
        f"{risks} about to be deleted by their agent" if risks else "",
    ]
    return ", ".join(filter(None, parts))


def _waiting(desk: Desk, row: SessionRow, clock: Clock) -> Card:
    made = card(desk, row, clock, drawn=False)
    chart = charts_of(desk).get(desk, row)
    told = desk.now().live.get(row.session.session_uid)
    asks = clean(told.waiting_for or "") if told is not None else ""
    _, what = doing(chart) if chart.open_calls else ("", "")
    quote = "" if what else last_words(chart)
    asks = asks or ("asks for permission" if what else "finished its turn with a question")
    return msgspec.structs.replace(made, what=what, asks=asks, quote=quote)


def _running(desk: Desk, row: SessionRow, clock: Clock) -> Card:
    made = card(desk, row, clock)
    icon, what = doing(charts_of(desk).get(desk, row))
    return msgspec.structs.replace(made, what=what, what_icon=icon)


def _lately(desk: Desk, clock: Clock, told: set[str]) -> list[Card]:
    """Give the sessions that came to their end last."""
    rows = desk.store.sessions(Filter(limit=FEW + len(told)))
    rest = [row for row in rows if row.session.session_uid not in told]
    return [card(desk, row, clock) for row in rest[:FEW]]


def _peril(risk: object) -> Peril:
    from thence.memory.standing import Risk

    assert isinstance(risk, Risk)  # noqa: S101 - what a desk gives
    row = risk.row
    folder = risk.source.path.rpartition("/")[0].rpartition("/")[2]
    title = f"{title_of(row)}, grown since" if row else short_id(risk.source.session)
    days = "today" if risk.days < 1 else several(int(risk.days), "day")
    href = address(row.session.session_uid) if row else ""
    where = project(row.session.cwd) if row else clean(folder)
    return Peril(title, href, where, days, risk.days < 3, size(risk.size))


def _days(desk: Desk) -> list[Total]:
    """What was spent on each of the last days, of UTC as bills are kept, today last."""
    today = datetime.fromtimestamp(desk.clock(), UTC).date()
    dates = [(today - timedelta(days=back)).isoformat() for back in range(DAYS)][::-1]
    start = int(datetime.fromisoformat(f"{dates[0]}T00:00:00+00:00").timestamp() * 1000)
    found = {one.key[0]: one for one in desk.store.totals(["day"], Filter(after=start))}
    return [found.get(date, Total((date,))) for date in dates]


def _usual(days: Sequence[Total]) -> str:
    spent = sorted(day.ticks for day in days if day.ticks)
    return money(spent[len(spent) // 2]) if spent else ""


def _columns(days: Sequence[Total]) -> list[Column]:
    top = max((day.ticks for day in days), default=0) or 1
    out = []
    for at, day in enumerate(days):
        date = datetime.fromisoformat(f"{day.key[0]}T12:00:00+00:00")
        live, dead = (day.ticks - day.dead) / top * 64, day.dead / top * 64
        said = f"{date.day} {date:%b}: {money(day.ticks, day.unpriced)}"
        said += f", {money(day.dead)} of it dead" if day.dead else ""
        label = f"{date.day} {date:%b}" if at in (0, DAYS // 2) else ""
        label = "today" if at == len(days) - 1 else label
        out.append(Column(4 + at * 21, round(live, 1), round(dead, 1), said, label))
    return out


def _hours(desk: Desk) -> list[Column]:
    """What was spent in each hour of today, of UTC as days are."""
    midnight = datetime.fromtimestamp(desk.clock(), UTC).replace(
        hour=0, minute=0, second=0, microsecond=0
    )
    spent = [(0, 0)] * 24
    wanted = Filter(after=int(midnight.timestamp() * 1000), evicted=False)
    for row in desk.store.sessions(wanted):
        if not row.ticks:
            continue
        for began, (dead, total) in charts_of(desk).hours(desk, row).items():
            if began.date() == midnight.date():
                before = spent[began.hour]
                spent[began.hour] = before[0] + dead, before[1] + total
    top = max(total for _, total in spent)
    out = []
    for hour, (dead, total) in enumerate(spent if top else ()):
        said = f"{hour:02}:00 to {(hour + 1) % 24:02}:00: {money(total)}"
        said += f", {money(dead)} of it dead" if dead else ""
        label = f"{hour:02}:00" if hour % 6 == 0 else ""
        live = round((total - dead) / top * 40, 1)
        out.append(Column(3 + hour * 12.4, live, round(dead / top * 40, 1), said, label))
    return out


def _week(desk: Desk) -> list[tuple[str, int, str]]:
    back = int((desk.clock() - 7 * 86_400) * 1000)
    totals = desk.store.totals(["agent"], Filter(after=back))
    ordered = sorted(totals, key=lambda one: -one.ticks)
    return [(f"{one.key[0]}", one.sessions, money(one.ticks, one.unpriced)) for one in ordered]


def _promises(desk: Desk) -> tuple[list[Promise], int]:
    back = int((desk.clock() - DAYS * 86_400) * 1000)
    found: list[Promise] = []
    for told in desk.store.kept("digests", Filter(after=back, limit=100)):
        for todo in told.get("todos") or ():
            if isinstance(todo, dict) and isinstance(text := todo.get("text"), str):
                event = todo.get("event")
                at = f"?at=e{event:013x}" if isinstance(event, int) else ""
                where = project(told.get("cwd") if isinstance(told.get("cwd"), str) else None)
                found.append(
                    Promise(clean(one_line(text, 90)), f"{address(told['uid'])}{at}", where)
                )
    return found[:FEW], max(len(found) - FEW, 0)


# -- the list -------------------------------------------------------------------------------


class Wanted(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the address of the list asks for."""

    q: str = ""
    agent: str = ""
    project: str = ""
    model: str = ""
    outcome: str = ""
    standing: str = ""
    after: str = ""
    before: str = ""
    sort: str = ""
    cursor: str = ""

    def href(self, **changed: str) -> str:
        """Give the address of the list with something changed; another filter starts anew."""
        fields = {**msgspec.structs.asdict(self), "cursor": "", **changed}
        given = {name: value for name, value in fields.items() if value}
        return f"/sessions?{urlencode(given)}" if given else "/sessions"


class Choice(msgspec.Struct, frozen=True):
    """One filter that can be put on or taken off."""

    said: str
    href: str
    on: bool


class ListPage(msgspec.Struct, frozen=True):
    """What answers: where was that session."""

    wanted: Wanted
    lede: str
    days: list[Day]
    choices: list[Choice]
    sorts: list[Choice]
    more: str = ""
    more_said: str = ""
    wrong: str = ""
    hint: str = ""


def list_page(desk: Desk, wanted: Wanted, clock: Clock) -> ListPage:
    """List the sessions that are wanted."""
    began = time.monotonic()
    try:
        query = parse(wanted.q[:400])
        base = _filter(wanted, query)
    except BadQuery as error:
        return _page(desk, wanted, "nothing looked for yet", [], wrong=error)
    if query.match:
        cards, found = _searched(desk, query, base, wanted, clock)
        took = round(1000 * (time.monotonic() - began))
        days = [Day("", "", "", cards)] if cards else []
        return _page(desk, wanted, f"{found}, {took} ms", days, looking=True)
    offset = int(wanted.cursor) if wanted.cursor.isdigit() and len(wanted.cursor) < 9 else 0
    total = desk.store.totals((), base)[0]
    if wanted.standing == "open":
        rows = open_ones(desk.store, base, desk.now(), desk.clock())
        more = ""
    else:
        page = msgspec.structs.replace(base, limit=PAGE + 1, offset=offset)
        rows = [row for row in desk.store.sessions(page) if _priced(row, query)]
        more = f"{offset + PAGE}" if len(rows) > PAGE else ""
        rows = rows[:PAGE]
    lede = _sums(total) if wanted.standing != "open" else several(len(rows), "session")
    days = list(_by_day(desk, rows, clock, wanted))
    left = max(total.sessions - offset - len(rows), 0)
    return _page(desk, wanted, lede, days, more=more, left=left)


def _page(
    desk: Desk,
    wanted: Wanted,
    lede: str,
    days: list[Day],
    *,
    more: str = "",
    left: int = 0,
    wrong: BadQuery | None = None,
    looking: bool = False,
) -> ListPage:
    return ListPage(
        wanted,
        lede,
        days,
        list(_choices(desk, wanted)),
        list(_sorts(wanted, looking=looking)),
        wanted.href(cursor=more) if more else "",
        f"{left:,} more" if left else "More",
        wrong.message if wrong else "",
        (wrong.hint or "") if wrong else "",
    )


def _sorts(wanted: Wanted, *, looking: bool) -> Iterator[Choice]:
    """Give the ways to sort; what was looked for is sorted by how well it fits, unless asked."""
    usual = "best" if looking else "recent"
    asked = wanted.sort if wanted.sort in SORTS else usual
    for name, said in ({"best": "Best match", **SORTS} if looking else SORTS).items():
        yield Choice(said, wanted.href(sort="" if name == usual else name), name == asked)


def _sort(wanted: Wanted) -> str:
    return wanted.sort if wanted.sort in SORTS else "recent"


def _filter(wanted: Wanted, query: Query) -> Filter:
    outcome = (
        wanted.outcome if wanted.outcome in ("success", "fail", "abandoned", "unknown") else ""
    )
    after = moment(wanted.after) if wanted.after else query.after
    before = moment(wanted.before) if wanted.before else query.before
    return Filter(
        agent=wanted.agent or query.agent or None,
        project=wanted.project or query.project or None,
        model=wanted.model or query.model or None,
        outcome=outcome or query.outcome or None,
        after=after,
        before=before,
        order=_sort(wanted),  # type: ignore[arg-type]  # one of its own words
    )


def _priced(row: SessionRow, query: Query) -> bool:
    ticks = sum(row.ticks.values())
    over, under = query.ticks_over, query.ticks_under
    return (over is None or ticks > over) and (under is None or ticks < under)


def _choices(desk: Desk, wanted: Wanted) -> Iterator[Choice]:
    if wanted.project:
        yield Choice(clean(wanted.project)[:40], wanted.href(project=""), on=True)
    if wanted.model:
        yield Choice(clean(wanted.model)[:40], wanted.href(model=""), on=True)
    if wanted.after or wanted.before:
        said = f"{wanted.after or '…'} to {wanted.before or 'now'}"
        yield Choice(clean(said)[:40], wanted.href(after="", before=""), on=True)
    is_open = wanted.standing == "open"
    yield Choice("waits or runs", wanted.href(standing="" if is_open else "open"), on=is_open)
    for name, said in (("success", "done"), ("fail", "failed"), ("abandoned", "abandoned")):
        is_on = wanted.outcome == name
        yield Choice(said, wanted.href(outcome="" if is_on else name), on=is_on)
    agents = sorted(f"{one.key[0]}" for one in desk.store.totals(["agent"]) if one.key[0])
    for name in agents if len(agents) > 1 else ():
        is_on = wanted.agent == name
        from thence.serve.agents import agent_label

        yield Choice(agent_label(name), wanted.href(agent="" if is_on else name), on=is_on)


def _sums(total: Total) -> str:
    parts = [several(total.sessions, "session"), money(total.ticks, total.unpriced)]
    if total.dead:
        parts.append(f"{money(total.dead)} of it dead")
    return ", ".join(parts)


def _by_day(desk: Desk, rows: Sequence[SessionRow], clock: Clock, wanted: Wanted) -> Iterator[Day]:
    """Group a list by days where it is in their order."""
    if _sort(wanted) != "recent":
        if rows:
            yield Day("", "", "", [card(desk, row, clock) for row in rows])
        return
    today = datetime.fromtimestamp(desk.clock(), UTC).astimezone(clock.zone).date()
    groups: dict[str, list[tuple[SessionRow, int]]] = {}
    name = ""
    for row, depth in descent(rows):
        if not depth:  # what comes from a session stands with it
            last = clock.of(row.session.ended_at)
            back = (today - last.date()).days if last else 9
            name = {0: "Today", 1: "Yesterday"}.get(back, "Earlier" if back > 6 else f"{last:%A}")
        groups.setdefault(name, []).append((row, depth))
    for name, some in groups.items():
        ticks = sum(sum(row.ticks.values()) for row, _ in some)
        cards = [msgspec.structs.replace(card(desk, r, clock), depth=d) for r, d in some]
        date = clock.day(some[0][0].session.ended_at) if name != "Earlier" else ""
        yield Day(name, date, f"{several(len(some), 'session')}, {money(ticks)}", cards)


def _searched(
    desk: Desk, query: Query, base: Filter, wanted: Wanted, clock: Clock
) -> tuple[list[Card], str]:
    """List the sessions in which something was found, each with the sentence it is in."""
    narrowed = msgspec.structs.replace(
        query,
        agent=base.agent,
        project=base.project,
        model=base.model,
        outcome=base.outcome,
        after=base.after,
        before=base.before,
    )
    answer = desk.store.search(narrowed, HITS)
    first: dict[str, list[Found]] = {}
    for one in answer.found:
        if base.agent is None or one.session_uid.startswith(f"{base.agent}:"):
            first.setdefault(one.session_uid, []).append(one)
    rows = {row.session.session_uid: row for row in desk.store.sessions(Filter(uids=tuple(first)))}
    order = list(first)
    if wanted.sort in SORTS:
        order.sort(key=lambda uid: _RANKS[wanted.sort](rows[uid]) if uid in rows else "")
        order.reverse()
    shown = {
        uid: first[uid][0]
        for uid in order[:PAGE]
        if uid in rows and (wanted.standing != "open" or desk.now().of(rows[uid]) is not None)
    }
    # Only what is shown is read: texts lie in packs.
    told = hits(Answer(list(shown.values())), narrowed, desk.store.blobs)
    cards = []
    for uid, hit in zip(shown, told.hits, strict=True):
        made = card(desk, rows[uid], clock)
        at = f"?at=e{hit.event_id:013x}" if hit.event_id is not None else ""
        snippet = marked(hit.snippet)
        cards.append(msgspec.structs.replace(made, snippet=snippet, href=f"{made.href}{at}"))
    number = sum(map(len, first.values()))
    least = "at least " if answer.capped or number >= HITS else ""
    said = f"{least}{several(number, 'hit')} in {several(len(first), 'session')}"
    return cards, said if first else "nothing found"


def marked(snippet: str) -> Markup:
    """Show a snippet with what was looked for marked in it."""
    out, on = Markup(""), False
    piece = ""
    for sign in f"{snippet}\x03":
        if sign in ("\x02", "\x03"):
            text = escape(clean(piece))
            out += Markup("<mark>") + text + Markup("</mark>") if on and piece else text
            piece, on = "", sign == "\x02"
        else:
            piece += sign
    return out
