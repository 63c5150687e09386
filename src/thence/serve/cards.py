"""Parts of several pages: cards of sessions, to-dos, and the days that a page looks at."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from markupsafe import Markup

from thence.format.derived_events import time_of
from thence.format.figures import (
    TICKS,
    ago,
    clean,
    format_duration,
    money,
    project,
    several,
    short,
    short_id,
)
from thence.format.normal import one_line
from thence.memory.ancestry import relation_of
from thence.memory.open_todos import dismissed_todos, open_promises, todo_key
from thence.memory.session_status import Standing
from thence.memory.store import Filter, SessionRow
from thence.serve.clock import DisplayClock
from thence.serve.context import AppContext
from thence.serve.project_names import project_label, project_root
from thence.serve.session_head import address, standing_text, title_of

_OUTCOME_ICONS: Final = {"success": "check", "fail": "cross"}

MIN_SHOWN_TICKS: Final = TICKS // 200
"""Half a cent: what is less would be shown as $0.00."""


class SparkBar(msgspec.Struct, frozen=True):
    """One bar of a sparkline."""

    x: float
    y: float
    height: float
    red: bool = False


class Snippet(msgspec.Struct, frozen=True):
    """A sentence of a session that matches a search, and where it stands."""

    href: str
    text: Markup


class SessionCard(msgspec.Struct, frozen=True):
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
    bars: list[SparkBar]
    graph: list[str]
    depth: int = 0
    tags: list[tuple[str, str]] = []
    origin: str = ""
    """Where it comes from, in words; empty for this machine. Narrow screens show no other tag."""
    snippets: list[Snippet] = []
    project_path: str = ""
    """Names the page of its project."""
    hits: str = ""
    """How many matches a search has in it, where there are several."""
    model: str = ""
    turns: str = ""
    lasted: str = ""
    tokens: str = ""
    what: str = ""
    what_icon: str = ""
    asks: str = ""
    quote: str = ""


def bars(context: AppContext, row: SessionRow) -> list[SparkBar]:
    """Return the bars that show how busy a session was."""
    pulse = context.pulse(row)
    if pulse is None:
        return []
    totals = [a + b for a, b in zip(pulse.events, pulse.errors, strict=True)]
    top = max(totals) or 1
    out = []
    for at, (total, errors) in enumerate(zip(totals, pulse.errors, strict=True)):
        height = round(max(22 * math.sqrt(total / top), 1.5), 1) if total else 1.5
        out.append(SparkBar(at * 5, round(22 - height, 1), height, errors > 0))
    return out


def card(
    context: AppContext, row: SessionRow, clock: DisplayClock, *, drawn: bool = True
) -> SessionCard:
    """Return a session as lists show it."""
    now = context.moment(clock.zone)
    standing = context.now().of(row, context.clock())
    status, cls = standing_text(row, standing)
    session, ticks = row.session, row.ticks
    last = time_of(session.ended_at)
    evicted = session.evicted_at is not None
    return SessionCard(
        href=address(session.session_uid),
        title=title_of(row),
        flavor=session.flavor,
        project=project_label(context, row.folder),
        project_path=project_root(row.folder or ""),
        branch=clean(session.git_branch or ""),
        standing={"open, idle": "idle"}.get(status, status),
        cls=cls,
        icon="" if standing else _OUTCOME_ICONS.get(session.outcome, ""),
        cost=money(sum(ticks.values()), row.unpriced, is_bound=bool(row.lower_bound)),
        dead=money(ticks["dead"]) if ticks.get("dead", 0) >= MIN_SHOWN_TICKS else "",
        age=ago(last, now),
        when=clock.full(session.ended_at),
        dot=_dot(standing, cls),
        bars=bars(context, row) if drawn and not evicted else [],
        graph=_graph(row),
        tags=list(_tags(row)),
        origin=clean(row.origin),
        model=clean(session.model or ""),
        turns=several(session.cost.turns, "turn") if session.cost.turns else "",
        lasted=working_time(context, row) if drawn else "",
        tokens=short(sum(part.total for part in (row.spent.live, row.spent.dead, row.spent.side))),
    )


def working_time(context: AppContext, row: SessionRow) -> str:
    """Return how long a session worked, without pauses; its total time if that is unknown."""
    pulse = context.pulse(row) if row.session.evicted_at is None else None
    milliseconds = (
        pulse.working_ms if pulse is not None else round(row.session.cost.wall_clock_s * 1000)
    )
    return format_duration(milliseconds) if milliseconds >= 1000 else ""


def _dot(standing: Standing | None, cls: str) -> str:
    if standing in ("waiting", "running"):
        return f"dot pulse {cls}"
    return f"dot hollow {cls}" if cls in ("dim", "mid") else f"dot {cls}"


def _graph(row: SessionRow) -> list[str]:
    """Return what to draw of a session's branches, at most six hooks."""
    dead = row.states.get("dead", 0) + row.states.get("rolled_back", 0)
    side = row.states.get("side", 0)
    hooks = ["dead"] * min(1 + dead // 20, 3) if dead else []
    return hooks + (["side"] * min(1 + side // 40, 3) if side else [])


def _tags(row: SessionRow) -> Iterator[tuple[str, str]]:
    for tag in row.tags:
        yield f"#{tag}", ""
    for edge in row.edges:
        if not edge.child and edge.link in ("fork", "resume", "adopt"):
            yield f"{relation_of(edge)} {short_id(edge.session)}", ""
            break
    if row.session.evicted_at is not None:
        yield "digest only", ""
    if row.pinned:
        yield "pinned", ""
    if row.skipped:
        yield several(row.skipped, "skipped line"), "st-waiting"
    if row.origin:
        yield clean(row.origin), ""
    elif row.gone:
        yield "source gone", ""


class TodoItem(msgspec.Struct, frozen=True):
    """Something an agent said it would do and did not."""

    text: str
    href: str
    project: str
    key: str
    """Its name, to dismiss it by."""


def todo_items(context: AppContext, wanted: Filter, most: int, *, chars: int) -> list[TodoItem]:
    """Return what sessions left open and the user did not dismiss, the newest first."""
    items = []
    dismissed = dismissed_todos(context.home)
    for todo in open_promises(context.store, wanted, context.labels(), dismissed)[:most]:
        event, cwd = todo["event_id"], todo["cwd"]
        href = address(f"{todo['session_uid']}", event if isinstance(event, int) else None)
        where = project(cwd if isinstance(cwd, str) else None)
        items.append(TodoItem(clean(one_line(todo["text"], chars)), href, where, todo_key(todo)))
    return items


RANGES: Final = (7, 30, 90, 365)
"""So many days can be chosen."""


class EarlierSessions(msgspec.Struct, frozen=True):
    """Where to look when nothing lies in the days that are shown."""

    text: str
    href: str
    label: str


def earlier(
    context: AppContext, days: int, href: Callable[[int], str], all_time: str = ""
) -> EarlierSessions | None:
    """Return when the last session was and the address of its days; None without any session."""
    last = next(iter(context.store.sessions(Filter(limit=1))), None)
    moment = time_of(last.session.ended_at) if last else None
    if moment is None:
        return None
    age = (context.clock() - moment.timestamp()) / 86_400
    text = f"The last session was on {moment.day} {moment:%b %Y}."
    reach = next((n for n in RANGES if n > max(age + 1, days)), None)
    if reach is None:
        label = "Show all time" if all_time else "All sessions"
        return EarlierSessions(text, all_time or "/sessions", label)
    return EarlierSessions(text, href(reach), f"Show {reach} days")
