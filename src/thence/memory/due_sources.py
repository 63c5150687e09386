"""Which sources of the agents a sweep has to read, in which order, and what is digested after.

A source that has not changed since it was read is not opened. One that other rules read is read
again from the start only while it still has all that was read of it: what is gone from it, the
store alone has.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from thence.agents import Adapter, Source, SourceReader
from thence.agents.files import REWRITTEN, SOURCE_GONE, is_unchanged, measure_source, start_of
from thence.agents.looks import Look
from thence.agents.row_sources import database_stamp
from thence.agents.unread import Unread
from thence.format.derived_events import time_of
from thence.memory.derivation import Fingerprint
from thence.memory.exclusion import PEEK_BYTES, Exclusion, project_in_head
from thence.memory.gate import Gate
from thence.memory.reports import Progress, SweepReport
from thence.memory.session_sources import (
    are_known,
    arrange,
    modified_ns,
    reader_of,
    unite,
)
from thence.memory.store import Filter, Inventory, SessionRow, Store, SweepEntry
from thence.memory.stored_paths import locate, printable, printable_source

REST_S: Final = 60.0
"""Seconds without a new line after which a session that grew is digested again."""


class SourceJob(msgspec.Struct):
    """One source that is to be read."""

    adapter: str
    source: Source
    places: tuple[Source, ...]
    """Where the session lies; `source` is all of them."""
    size: int
    modified: float
    older: bool = False
    """Older than all sessions that were stored when the sweep began."""


class DueSources:
    """The sources of one sweep that are due."""

    def __init__(
        self,
        adapters: Mapping[str, Adapter],
        gate: Gate,
        fingerprint: Fingerprint,
        report: SweepReport,
        *,
        progress: Callable[[Progress], None],
        exclude: Iterable[str] = (),
        anew: Collection[str] = (),
        unread: Iterable[Unread] = (),
    ) -> None:
        """Get ready; the sessions in `anew` are due from the start, changed or not.

        `unread` is what an earlier sweep could not read.
        """
        self._adapters = adapters
        self._gate = gate
        self._fingerprint = fingerprint
        self.report = report
        self.exclude = Exclusion(exclude)
        self._anew = frozenset(anew)
        self._progress = progress
        self.look = Look(unread)
        self.altered: set[str] = set()
        """Sessions whose source lacks some of what was read: never read from the start."""
        self.empty_roots: list[tuple[str, Path]] = []
        """Agents and folders of theirs that hold no session."""
        self.moved: dict[str, str] = {}
        """Where the sources of sessions are now that came back or moved; empty: nowhere."""

    def known_of_found(self, store: Store, roots: Mapping[str, Sequence[Path]]) -> Inventory:
        """Return what a store knows of the sessions that the readers find."""
        sources = [
            printable_source(source)
            for name, places in roots.items()
            for place in places
            for source in self._adapters[name].find(place)
        ]
        known = store.known({source.uid for source in sources})
        unknown = [source for source in sources if source.uid not in known.sessions]
        if unknown:  # new, or stored under a name without a secret
            uids = {self._gate.source(source).uid for source in unknown}
            known.sessions |= store.known(uids).sessions
        return known

    def find_jobs(self, roots: Mapping[str, Sequence[Path]], known: Inventory) -> list[SourceJob]:
        """Return the sources that have to be read, in the order in which they are read.

        First those that are new since the last sweep, the oldest first, as they were written;
        then those that are older than all that is stored, the newest first. A first sweep has
        nothing but these: the sessions of the last days are there within its first seconds.
        Where some sessions are swept again and again, the one that waits the longest comes first:
        none is early in one sweep and late in the next.
        """
        sources: dict[str, tuple[str, list[Source]]] = {}
        for name, places in roots.items():
            for place in places:
                before = self.report.sources
                for candidate in self.look.find(self._adapters[name], place):
                    uid, source = self._clean_source(candidate, known)
                    self.report.sources += 1
                    sources.setdefault(uid, (name, []))[1].append(source)
                if self.report.sources == before:
                    self.empty_roots.append((name, place))
                self._progress(Progress("find", all_sources=self.report.sources))
        self.report.failed += sum(item.kind in ("database", "folder") for item in self.look.unread)
        by_uid = {
            uid: (name, arrange(copies, known.sessions.get(uid)))
            for uid, (name, copies) in sources.items()
        }
        self.moved = self._moved_sources(by_uid, roots, known)
        each = (self._job(name, uid, copies, known) for uid, (name, copies) in by_uid.items())
        jobs = list(filter(None, each))
        read = sum(len(sources[job.source.uid][1]) for job in jobs)
        self.report.unchanged = self.report.sources - read - self.report.excluded
        if jobs and known.takes_older:
            stored = map(modified_ns, known.sessions.values())
            oldest = min(stored, default=math.inf)
            for job in jobs:
                job.older = job.source.uid not in known.sessions and job.modified * 1e9 < oldest

        def waits_since(job: SourceJob) -> float:
            before = None if known.takes_older else known.sessions.get(job.source.uid)
            return (before.ingested or 0) / 1000 if before is not None else job.modified

        jobs.sort(key=lambda job: (waits_since(job), job.modified, job.source.uid))
        older = [job for job in jobs if job.older]
        return [job for job in jobs if not job.older] + older[::-1]

    def _clean_source(self, source: Source, known: Inventory) -> tuple[str, Source]:
        """Return a source whose names can be stored, as text and without secrets, and its uid.

        Names that are stored already are not looked at again, unless by other rules.
        """
        source = printable_source(source)
        uid = source.uid
        before = known.sessions.get(uid)
        if (
            before is not None
            and before.redactor == self._fingerprint.redaction
            and are_known(source, before.cursor)
        ):
            return uid, source
        source = self._gate.source(source)
        return source.uid, source

    def _job(
        self, name: str, uid: str, copies: tuple[Source, ...], known: Inventory
    ) -> SourceJob | None:
        source = unite(copies)
        if known.forgotten and known.is_forgotten(uid):
            return None
        before = known.sessions.get(uid)
        is_stale = False
        if before is not None:
            is_stale = self.is_stale(uid, before)
            reader = reader_of(self._adapters[name], copies) if is_stale else None
            if reader and uid not in self._anew and not self._is_intact(reader, source, before):
                self.altered.add(uid)
                is_stale = False
            is_due = is_stale and before.evicted is None
            if not is_due and is_unchanged(source, before.cursor):
                return None
        if self.exclude and any(map(self._is_excluded, copies)):
            self.report.excluded += len(copies)
            return None
        if source.files and source.files[0].rows is not None:
            failed = self.look.known(database_stamp(source.path), "session")
            if failed is not None:  # nobody wrote to the database since
                self.look.add([msgspec.structs.replace(failed, count=1)])
                self.report.failed += 1
                return None
        done = 0
        if before is not None and not before.evicted and not is_stale:
            done = sum(mark.offset for mark in before.cursor.marks.values())
        size, modified = measure_source(source)
        return SourceJob(name, source, copies, max(size - done, 0), modified)

    def is_stale(self, uid: str, before: SweepEntry) -> bool:
        """Whether a session is read again from the start."""
        return uid in self._anew or (
            uid not in self.altered and self._fingerprint.needs_source(before)
        )

    def _is_intact(self, adapter: SourceReader, source: Source, before: SweepEntry) -> bool:
        """Return whether a source still has all that was read of it.

        If not, reading it from the start would lose what only the store has.
        """
        paths = {file.key: file.path for file in source.files}
        for key, mark in before.cursor.marks.items():
            if mark.size > 0 and not (key in paths and os.access(paths[key], os.R_OK)):
                return False
        if is_unchanged(source, before.cursor):
            return True
        batch = adapter.read(source, before.cursor)
        notices = list(batch.notices)
        while not batch.done:
            batch = adapter.read(source, batch.cursor)
            notices += batch.notices
        return all(notice.what not in (REWRITTEN, SOURCE_GONE) for notice in notices)

    def _is_excluded(self, source: Source) -> bool:
        if self.exclude.means_source(source):
            return True
        start = start_of(source.path, PEEK_BYTES)
        return self.exclude.means(project_in_head(start or b""))

    def _moved_sources(
        self,
        sources: Mapping[str, tuple[str, tuple[Source, ...]]],
        roots: Mapping[str, Sequence[Path]],
        known: Inventory,
    ) -> dict[str, str]:
        """Return where the sources of sessions are now that came back, moved, or are gone: ""."""
        starts = {
            name: tuple(f"{printable(str(place))}/" for place in places)
            for name, places in roots.items()
        }
        changed: dict[str, str] = {}
        read = {
            file.path
            for _, copies in sources.values()
            for file in copies[0].files
            if file.rows is not None
        }
        for uid, entry in known.sessions.items():
            if uid in sources:
                if not entry.gone and entry.path == sources[uid][1][0].path:
                    continue
                path, place = printable(sources[uid][1][0].path), locate(entry.path)
                if entry.gone or (path != place and not os.path.lexists(place)):
                    changed[uid] = path
            elif (
                not entry.gone
                and self._gate.is_below(entry.path, starts.get(uid.partition(":")[0], ()))
                # A database that others were found in no longer holds this one.
                and ((place := locate(entry.path)) in read or not os.path.lexists(place))
            ):
                changed[uid] = ""
        return changed


def with_changes(known: Inventory, changed: Inventory) -> Inventory:
    """Return what is known of all sessions once some of them were written and no other was."""
    return msgspec.structs.replace(
        changed,
        sessions=known.sessions | changed.sessions,
        distilled_bytes=known.distilled_bytes,
        takes_older=known.takes_older,
    )


# -- digests --------------------------------------------------------------------------------


def due_digests(store: Store, *, all_due: bool) -> list[SessionRow]:
    """Return sessions whose digest is missing or stale, unless they are being written.

    The next line makes a digest stale, and each is written to the disk before work goes on: so
    a session that has one waits until it rests, unless `all_due`.
    """
    rows = list(store.sessions(Filter(analysed=False, evicted=False)))
    if all_due or not rows:
        return rows
    since = datetime.now(UTC) - timedelta(seconds=REST_S)
    moments = {row.session.session_uid: time_of(row.session.ended_at) for row in rows}
    busy = [uid for uid, moment in moments.items() if moment is not None and moment > since]
    if not busy:
        return rows
    digested = {row["uid"] for row in store.read_table("digests", Filter(uids=tuple(busy)))}
    return [row for row in rows if row.session.session_uid not in digested]
