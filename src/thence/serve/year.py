"""A year of work: a square for each day, and the tools and files of the last weeks."""

from __future__ import annotations

import time
from collections import Counter
from datetime import date, timedelta
from typing import Final
from urllib.parse import quote, urlencode
from zoneinfo import ZoneInfo

import msgspec

from thence.format.figures import clean, several
from thence.memory.cost_totals import totals_by_day
from thence.memory.local_days import midnight, millis
from thence.memory.store import Filter
from thence.serve.block_texts import tool_name
from thence.serve.clock import DisplayClock
from thence.serve.context import AppContext
from thence.serve.project_names import project_label, project_root
from thence.serve.session_work import work_of

WEEKS: Final = 53
SQUARE_UNITS: Final = 13
"""Units from one square to the next."""
MAX_TOOLS: Final = 10
MAX_FILES: Final = 10
TOOL_DAYS: Final = 30
MAX_AGE_S: Final = 60.0
"""Seconds for which a year is shown again as it was."""


class Square(msgspec.Struct, frozen=True):
    """One day."""

    x: int
    y: int
    heat: int
    """How many sessions were at work, in six steps."""
    text: str
    href: str


class Tool(msgspec.Struct, frozen=True):
    """How often a tool was called."""

    name: str
    calls: int
    failed: int
    share: float
    """Of the tool that was called most."""


class ChangedFile(msgspec.Struct, frozen=True):
    """A file that sessions changed lately."""

    path: str
    href: str
    """Lists the sessions that touched it."""
    project: str
    edits: int
    sessions: int


class Year(msgspec.Struct, frozen=True):
    """The days of a year, and the tools and files of the last ones."""

    squares: list[Square]
    months: list[tuple[int, str]]
    summary: str
    tools: list[Tool]
    files: list[ChangedFile]
    all_tools: int
    all_files: int
    """How many there are, of which these are the first."""


def year(context: AppContext, clock: DisplayClock) -> Year:
    """Return the days of a year; a new session is on it at once, all else within a minute."""
    now = time.monotonic()
    key = str(clock.zone), context.store.totals()[0].sessions
    made: dict[tuple[str, int], tuple[float, Year]] = context.cached(year, dict)
    if key not in made or now - made[key][0] > MAX_AGE_S:
        fresh = _year(context, clock)
        made.clear()
        made[key] = now, fresh
        return fresh
    return made[key][1]


def _year(context: AppContext, clock: DisplayClock) -> Year:
    today = context.moment(clock.zone).date()
    first = today - timedelta(days=today.weekday() + 7 * (WEEKS - 1))
    wanted = Filter(after=millis(midnight(first, clock.zone)))
    totals = {total.key[0]: total for total in totals_by_day(context.store, wanted, clock.zone)}
    most = max((total.sessions for total in totals.values()), default=0) or 1
    zone = f"&tz={quote(clock.zone.key, safe='')}" if isinstance(clock.zone, ZoneInfo) else ""
    squares = []
    for number in range((today - first).days + 1):
        day = first + timedelta(days=number)
        total = totals.get(day.isoformat())
        sessions = total.sessions if total else 0
        spent = f", {total.cost_phrase}" if total and sessions else ""
        heat = 0 if not sessions else min(1 + 4 * sessions // most, 5)
        text = f"{day:%a} {day.day} {day:%b %Y}: {several(sessions, 'session')}{spent}"
        href = f"/sessions?after={day}&until={day}{zone}" if sessions else ""
        squares.append(
            Square(number // 7 * SQUARE_UNITS, number % 7 * SQUARE_UNITS, heat, text, href)
        )
    active = sum(1 for total in totals.values() if total.sessions)
    days = several(active, "active day")
    return Year(squares, _months(first, today), days, *_tools_and_files(context))


def _months(first: date, today: date) -> list[tuple[int, str]]:
    """Return where each month begins, and its name."""
    months = []
    for week in range(WEEKS):
        days = [first + timedelta(days=7 * week + n) for n in range(7)]
        begins = next((day for day in days if day.day == 1 and day <= today), None)
        if begins is not None:
            months.append((week * SQUARE_UNITS, f"{begins:%b}"))
    return months


def _tools_and_files(context: AppContext) -> tuple[list[Tool], list[ChangedFile], int, int]:
    """Return the tools that sessions of the last days called most, and the files they changed.

    Returns also how many tools and files there are in all.
    """
    work = work_of(context, after=int((context.clock() - TOOL_DAYS * 86_400) * 1000))
    most = max(work.calls.values(), default=0) or 1
    tools = [
        Tool(clean(tool_name(name))[:40], number, work.failed[name], number / most)
        for name, number in work.calls.most_common(MAX_TOOLS)
        if number
    ]
    edits: Counter[tuple[str, str]] = Counter()
    sessions: Counter[tuple[str, str]] = Counter()
    for (cwd, path), number in work.edits.items():
        edits[project_root(cwd), path] += number
        sessions[project_root(cwd), path] += work.sessions[cwd, path]
    order = sorted(edits, key=lambda key: (-sessions[key], -edits[key], key))[:MAX_FILES]
    files = [
        ChangedFile(
            clean(path.removeprefix(f"{folder}/"))[-80:],
            f"/sessions?{urlencode({'q': _file_query(path)})}",
            project_label(context, folder),
            edits[folder, path],
            sessions[folder, path],
        )
        for folder, path in order
    ]
    return tools, files, len(+work.calls), len(edits)


def _file_query(path: str) -> str:
    """Return the words that find the sessions of a file."""
    return f'file:"{path}"' if " " in path else f"file:{path}"
