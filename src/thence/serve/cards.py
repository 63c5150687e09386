"""Cards: one session as lists show it, with how busy it was."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Final

import msgspec
from markupsafe import Markup

from thence.errors import ThenceError
from thence.format.derived_events import time_of
from thence.format.figures import (
    TICKS,
    ago,
    clean,
    format_duration,
    money,
    several,
    short,
    short_id,
)
from thence.memory.session_status import Standing
from thence.memory.store import SessionRow
from thence.serve.chart_cache import charts_of
from thence.serve.clock import DisplayClock
from thence.serve.context import AppContext
from thence.serve.project_names import project_label, project_root
from thence.serve.session_head import address, standing_text, title_of

_LINKS: Final = {"fork": "forked from", "resume": "continued from", "adopt": "continued from"}
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
        title=display_title(context, row),
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
        model=clean(session.model or ""),
        turns=several(session.cost.turns, "turn") if session.cost.turns else "",
        lasted=working_time(context, row) if drawn else "",
        tokens=short(sum(part.total for part in (row.spent.live, row.spent.dead, row.spent.side))),
    )


def display_title(context: AppContext, row: SessionRow) -> str:
    """Return the title of a session; without a name, the first text of its agent."""
    if (row.title or "").strip() or not row.events or row.session.evicted_at is not None:
        return title_of(row)
    charts = charts_of(context)
    if not charts.at_hand(row):
        return title_of(row)
    with contextlib.suppress(ThenceError, OSError):  # a damaged session is listed all the same
        chart = charts.get(context, row)
        blocks = (block for record in chart.records for block in record.blocks)
        texts = (b.summary for b in blocks if b.kind == "assistant_msg" and b.summary)
        return clean(next(texts, "")) or title_of(row)
    return title_of(row)


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
            yield f"{_LINKS[edge.link]} {short_id(edge.session)}", ""
            break
    if row.session.evicted_at is not None:
        yield "digest only", ""
    if row.pinned:
        yield "pinned", ""
    if row.skipped:
        yield several(row.skipped, "skipped line"), "st-waiting"
    if row.imported is not None:
        yield ("imported" if row.machine is None else f"on {row.machine}"), ""
    elif row.gone:
        yield "source gone", ""
