"""Projects: what was done in each repository.

A project is the folder that sessions work in; the work trees of a repository count as that
repository.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

import msgspec

from thence.format.figures import ago, clean, money, several
from thence.format.normal import one_line
from thence.memory.cost_totals import sum_totals
from thence.memory.patterns import memories, patterns
from thence.memory.store import Filter, Total
from thence.serve.cards import SessionCard, TodoItem, card, todo_items
from thence.serve.clock import DisplayClock
from thence.serve.context import AppContext
from thence.serve.project_names import project_root, unique_labels
from thence.serve.session_head import address
from thence.serve.session_work import work_of

MAX_SESSIONS: Final = 20
"""Sessions of a project that are listed."""
MAX_FILES: Final = 15
MAX_TODOS: Final = 15
MAX_PATTERNS: Final = 8
MAX_SUGGESTIONS: Final = 3
"""Projects that the box at the top offers."""
PATTERN_DAYS: Final = 90
TODO_MAX_AGE_S: Final = 14 * 86_400.0
"""Seconds after which a to-do is no longer shown."""


class ProjectRow(msgspec.Struct, frozen=True):
    """One project of a list."""

    path: str
    label: str
    sessions: int
    cost: str
    dead: str
    age: str
    folders: tuple[str, ...]
    """The folders that count as it: its own, and those of its work trees."""


class ProjectFile(msgspec.Struct, frozen=True):
    """A file that sessions changed."""

    path: str
    sessions: int
    edits: int


class ProjectPattern(msgspec.Struct, frozen=True):
    """A pattern of one project."""

    title: str
    href: str
    """Where it was seen last."""
    count: str


class ProjectPage(msgspec.Struct, frozen=True):
    """What answers: how does this project stand."""

    project: ProjectRow
    lede: str
    cards: list[SessionCard]
    models: list[tuple[str, str, str]]
    """Model, how many sessions, what they cost."""
    files: list[ProjectFile]
    all_files: int
    """How many there are, of which these are the first."""
    todos: list[TodoItem]
    patterns: list[ProjectPattern] = []


def projects(context: AppContext, clock: DisplayClock) -> list[ProjectRow]:
    """Return all projects, the one that was worked on last first."""
    groups: dict[str, list[Total]] = {}
    for total in context.store.totals(["project"]):
        groups.setdefault(project_root(total.key[0] or ""), []).append(total)
    labels = unique_labels(list(groups))
    now = context.moment(clock.zone)
    last = {path: max(total.ended or 0 for total in some) for path, some in groups.items()}
    known = sorted(groups, key=last.__getitem__, reverse=True)
    return [_project(path, labels[path], groups[path], _age(last[path], now)) for path in known]


def _age(ended: int, now: datetime) -> str:
    """Return how long ago a project was worked on, by milliseconds since 1970; 0 is unknown."""
    return ago(datetime.fromtimestamp(ended / 1000, UTC) if ended else None, now)


def places(context: AppContext, text: str) -> list[tuple[str, str]]:
    """Return the addresses and names of the projects whose name has a text in it, a few."""
    if len(text) < 2:
        return []
    roots = {project_root(total.key[0] or "") for total in context.store.totals(["project"])}
    labels = unique_labels(sorted(roots - {""}))
    paths = [path for path, label in labels.items() if text.lower() in label.lower()]
    paths.sort(key=lambda path: (not labels[path].lower().startswith(text.lower()), labels[path]))
    return [
        (f"/projects/one?{urlencode({'path': path})}", f"project {labels[path]}")
        for path in paths[:MAX_SUGGESTIONS]
    ]


def _project(path: str, label: str, totals: Sequence[Total], age: str) -> ProjectRow:
    total = sum_totals(totals)
    return ProjectRow(
        path,
        label or "no folder",
        total.sessions,
        total.cost_text,
        money(total.dead) if total.dead else "",
        age,
        tuple(total.key[0] or "" for total in totals),
    )


def page(context: AppContext, path: str, clock: DisplayClock) -> ProjectPage | None:
    """Return how a project stands; None when no session works there."""
    project = next(
        (candidate for candidate in projects(context, clock) if candidate.path == path), None
    )
    if project is None or not path:
        return None
    rows = [
        row
        for row in context.store.sessions(Filter(project=path))
        if project_root(row.folder or "") == path
    ]
    uids = tuple(row.session.session_uid for row in rows[:10_000])
    wanted = Filter(uids=uids)
    models = sorted(context.store.totals(["model"], wanted), key=lambda total: -total.ticks)
    return ProjectPage(
        project,
        f"{several(project.sessions, 'session')}, {project.cost.replace('?', 'cost unknown')}",
        [card(context, row, clock) for row in rows[:MAX_SESSIONS]],
        [
            (
                clean(total.key[0] or "unknown"),
                several(total.sessions, "session"),
                total.cost_phrase,
            )
            for total in models
            if total.sessions
        ][:8],
        *_files(context, uids, path),
        _todos(context, wanted),
        _patterns(context, wanted),
    )


def _patterns(context: AppContext, wanted: Filter) -> list[ProjectPattern]:
    """Return what comes back in sessions of a project."""
    after = int((context.clock() - PATTERN_DAYS * 86_400) * 1000)
    recent = msgspec.structs.replace(wanted, after=after)
    known = memories(
        context.store.read_table("digests", recent), context.store.read_table("signals", recent)
    )
    shown = []
    for pattern in patterns(known)[:MAX_PATTERNS]:
        seen = pattern.evidence[0]
        href = address(seen.uid, seen.events[0] if seen.events else None)
        shown.append(
            ProjectPattern(
                clean(one_line(pattern.shared, 120)), href, several(pattern.sessions, "session")
            )
        )
    return shown


def _files(context: AppContext, uids: Sequence[str], path: str) -> tuple[list[ProjectFile], int]:
    """Return the files that most sessions changed, and how many files were changed."""
    sessions: Counter[str] = Counter()
    edits: Counter[str] = Counter()
    work = work_of(context, uids=uids)
    for file, number in work.edits.items():
        name = file[1].removeprefix(f"{path}/")
        sessions[name] += work.sessions[file]
        edits[name] += number
    files = [
        ProjectFile(clean(name)[-100:], number, edits[name])
        for name, number in sessions.most_common(MAX_FILES)
    ]
    return files, len(edits)


def _todos(context: AppContext, wanted: Filter) -> list[TodoItem]:
    after = int((context.clock() - TODO_MAX_AGE_S) * 1000)
    recent = msgspec.structs.replace(wanted, after=after)
    return todo_items(context, recent, MAX_TODOS, chars=140)
