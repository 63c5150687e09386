"""Checks of `thence doctor` on the agents' logs: what is read, by which client, what is skipped."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from thence.agents.files import bytes_read, size_of
from thence.agents.looks import Look
from thence.agents.unread import total_of
from thence.cli import wiring
from thence.cli.columns import agent_label, tilde
from thence.cli.terminal import clean, cut_start, several, size
from thence.cli.unread_lines import FIXES, unread_lines
from thence.errors import ThenceError
from thence.memory.stored_paths import locate
from thence.memory.unread import read_unread, still_unread

if TYPE_CHECKING:
    from thence.agents import Adapter, File, Source
    from thence.agents.profiles import Agent, Part
    from thence.agents.unread import Unread
    from thence.format.records import JSON
    from thence.memory.store import Inventory, SessionRow, Store, SweepEntry

MAX_DAMAGED_SESSIONS: Final = 20
"""Damaged sessions that are read again to name their lines; `--deep` reads all."""
SESSIONS_PER_AGENT: Final = 2
"""Sessions of each agent, the newest, that are read to see what its client writes today."""
CAN: Final[dict[Part, str]] = {
    "resume": "resume",
    "hooks": "hooks",
    "servers": "MCP",
    "handoff": "handoff",
    "status": "running sessions",
}
"""What a person can do with an agent, in a word."""


Level = Literal["ok", "note", "warning", "bad"]


class Finding(NamedTuple):
    """One thing that was looked at."""

    topic: str
    level: Level
    words: str
    fix: str | None = None
    """What to type."""
    details: dict[str, JSON] = {}  # noqa: RUF012 - a default of a tuple, never changed
    more: str = ""
    """What a wide screen says besides."""
    not_read: tuple[Unread, ...] = ()
    """What was found and is not read, and is told here."""


class SourceCounts:
    """What one agent's sources hold, against what was read of them."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.files = self.bytes = self.stored = self.torn = self.unread = 0
        self.forgotten = self.sessions = self.new = self.skipped = self.removed = 0
        self.not_read: list[Unread] = []
        """What is there and cannot be read."""
        self._databases: set[str] = set()

    def add(self, source: Source, inventory: Inventory | None) -> None:
        """Count a session's files."""
        self.sessions += 1
        before = inventory.sessions.get(source.uid) if inventory is not None else None
        forgotten = inventory is not None and inventory.is_forgotten(source.uid)
        self.new += before is None and not forgotten
        self.removed += before is not None and before.evicted is not None
        for file in source.files:
            try:
                here = os.lstat(file.path)
            except OSError:
                continue
            size = size_of(file, here)[0]
            self.files += file.path not in self._databases
            if file.rows is not None:  # it holds other sessions as well
                self._databases.add(file.path)
            self.bytes += size
            if forgotten:
                self.forgotten += size
            else:
                self._file(file, here, before)

    def _file(self, file: File, here: os.stat_result, before: SweepEntry | None) -> None:
        mark = before.cursor.marks.get(file.key) if before is not None else None
        if file.rows is not None:
            is_read = mark is not None and mark.version == file.rows.version
            self.stored += file.rows.size if is_read else 0
            self.unread += 0 if is_read else file.rows.size
            return
        if mark is None:
            self.unread += here.st_size
            return
        read = bytes_read(mark, file, here)
        self.stored += read
        if mark.torn and (mark.inode, mark.size) == (here.st_ino, here.st_size):
            self.torn += here.st_size - read
        else:
            self.unread += here.st_size - read

    def as_object(self) -> dict[str, JSON]:
        """Return all numbers."""
        return {
            "agent": self.agent,
            "files": self.files,
            "bytes": self.bytes,
            "kept": self.stored,
            "torn": self.torn,
            "unread": self.unread,
            "forgotten": self.forgotten,
            "sessions": self.sessions,
            "new": self.new,
            "removed": self.removed,
        }


def sources(store: Store | None, known: dict[str, Adapter]) -> Iterator[Finding]:
    """Name what is not read; then compare bytes seen with bytes read, agent by agent."""
    from thence.memory.session_sources import find_sessions

    inventory = store.known() if store is not None else None
    roots = wiring.roots(known)
    every = {agent: SourceCounts(agent) for agent in known}
    look = Look(read_unread(wiring.home()))
    for agent, adapter in known.items():
        for source in find_sessions(adapter, roots.get(agent, ()), inventory, look):
            every[agent].add(source, inventory)
    for row in store.sessions() if store is not None else ():
        if row.session.flavor in every:
            every[row.session.flavor].skipped += row.skipped
    not_read = still_unread(wiring.home(), look.unread, wiring.clean_text)
    yield from _unread(not_read)
    for item in not_read:
        if item.agent in every:
            every[item.agent].not_read.append(item)
    wide = max((len(several(seen.files, "file")) for seen in every.values()), default=0)
    longest = max(len(agent_label(agent)) for agent in {*roots, *list(every)[:1]})
    for agent, seen in every.items():
        if agent in roots:
            places = ", ".join(tilde(str(root)) for root in roots[agent])
            details = {**seen.as_object(), "roots": places}
            yield Finding(
                "sources", *_describe_counts(seen, longest, wide), details=details, more=places
            )
    if absent := [agent for agent in every if agent not in roots]:
        yield Finding(
            "sources", "note", f"no sessions found of {', '.join(map(agent_label, absent))}"
        )


def _unread(items: Sequence[Unread]) -> Iterator[Finding]:
    for group, line in unread_lines(items):
        kind = group[0].kind
        level: Level = "note" if kind == "older" else "warning"
        yield Finding("unread", level, line, FIXES.get(kind), not_read=tuple(group))


def _describe_counts(seen: SourceCounts, longest: int, wide: int) -> tuple[Level, str, str | None]:
    name, files = f"{agent_label(seen.agent):{longest}}", several(seen.files, "file")
    start = f"{name}  {files:>{wide}}  {size(seen.bytes):>7}  "
    parts = []
    if seen.torn:
        parts.append(f"{size(seen.torn)} unfinished")
    if seen.forgotten:
        parts.append(f"{size(seen.forgotten)} deleted on request (thence store forget)")
    if seen.unread:
        new = f", {several(seen.new, 'session')} new" if seen.new else ""
        words = f"{size(seen.unread)} not read yet{new}"
        if seen.not_read:
            parts.append(f"{total_of(seen.not_read)} not read")
        return "note", start + ", ".join([words, *parts]), "thence sweep"
    if seen.not_read:
        return "note", start + ", ".join([f"{total_of(seen.not_read)} not read", *parts]), None
    if seen.removed:
        parts.insert(0, f"{several(seen.removed, 'transcript')} removed")
    if seen.skipped:
        parts.insert(0, f"{several(seen.skipped, 'line')} skipped")
    if not seen.removed + seen.skipped:
        parts.insert(0, "all stored" if seen.sessions else "no sessions")
    elif seen.sessions > seen.removed:
        parts.append("the rest is stored")
    return "ok", start + ", ".join(parts), None


def clients(known: dict[str, Adapter], *, deep: bool) -> Iterator[Finding]:
    """Tell which agents are here, in which versions, and what of them is known."""
    for name, places in wiring.roots(known).items():
        sources = [source for place in places for source in known[name].find(place)]
        if sources:
            latest = sorted(sources, key=_changed_at, reverse=True)
            yield _client(wiring.agents()[name], latest if deep else latest[:SESSIONS_PER_AGENT])


def _changed_at(source: Source) -> float:
    with contextlib.suppress(OSError):  # gone: as old as can be
        return os.lstat(source.path).st_mtime
    return 0.0


def _client(agent: Agent, sources: Sequence[Source]) -> Finding:
    """Read some sessions of an agent, up to a piece of each, and say what was met in them."""
    versions: set[str] = set()
    unknown: Counter[str] = Counter()
    per_session: dict[str, int] = {}
    for source in sources:
        facts = agent.reader.read(source).events
        versions |= {f"{fact.about['version']}" for fact in facts if fact.about.get("version")}
        if types_here := agent.unknown_records(facts):
            unknown += types_here
            per_session[source.uid] = types_here.total()
    newest = max(versions, key=_numbers, default="")
    tried = agent.profile.newest_version
    is_newer = bool(newest and tried) and _numbers(newest)[:2] > _numbers(tried)[:2]
    words = [f"version {newest or 'unknown'}", *([f"tested up to {tried}"] if is_newer else [])]
    words += _describe_agent(agent, unknown)
    details: dict[str, JSON] = {
        "agent": agent.name,
        "versions": sorted(versions, key=_numbers),
        "newest_tried": tried or None,
        "offers": [part for part in CAN if agent.offers(part)],
        "looked_at": len(sources),
        "not_understood": dict(unknown),
        "not_understood_by_session": per_session,
    }
    level: Level = "note" if unknown or is_newer else "ok"
    return Finding("agents", level, clean(f"{agent.label}: {', '.join(words)}"), None, details)


def _describe_agent(agent: Agent, unknown: Counter[str]) -> Iterator[str]:
    """Yield which records of an agent nobody knows, what it can do, and what it cannot."""
    if unknown:
        types = ", ".join(name for name, _ in unknown.most_common(3))
        yield f"{several(unknown.total(), 'record')} of unknown type: {types}"
    yield from (can for part, can in CAN.items() if agent.offers(part))
    if agent.profile.program:  # our own journal has no client that could lack something
        yield from (f"no {can}" for part, can in CAN.items() if not agent.offers(part))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(digits[:9]) for digits in re.findall(r"\d+", version)[:4])


def skips(store: Store, known: dict[str, Adapter], *, deep: bool) -> Iterator[Finding]:
    """Name the lines that could not be read: file, line and why."""
    damaged = [row for row in store.sessions() if row.skipped]
    if not damaged:
        yield Finding("skips", "ok", "no unreadable lines")
        return
    lines: list[dict[str, JSON]] = []
    for row in damaged if deep else damaged[:MAX_DAMAGED_SESSIONS]:
        lines += _list_skipped(row, known)
    total = sum(row.skipped for row in damaged)
    words = f"{several(total, 'line')} in {several(len(damaged), 'session')}; the rest is stored"
    yield Finding("skips", "note", words, None, {"skipped": total, "lines": lines})
    for line in lines[: None if deep else 3]:
        where = f"{cut_start(tilde(str(line['path'])), 44)}:{line['line']}"
        yield Finding("", "note", clean(f"{where}  {line['why']}"))


def _list_skipped(row: SessionRow, known: dict[str, Adapter]) -> list[dict[str, JSON]]:
    from thence.agents.sessions import load

    path = locate(row.session.source_path or "")
    if not path or row.gone:
        return []
    try:
        lines = load(Path(path), known, row.session.session_uid).skipped
    except ThenceError as error:
        return [{"path": path, "line": 0, "why": error.message}]
    return [
        {"path": skip.source or path, "line": skip.line, "bytes": skip.length, "why": skip.why}
        for skip in lines
    ]
