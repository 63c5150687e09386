"""One pass of the adapters into the store: discover, read what grew, keep, digest, evict.

Invariants: a session's rows and its cursor move in one transaction, so that a sweep may be killed
anywhere and the next one comes to the same rows; what fails is one source, told with its reason,
never the sweep; a source that has not changed is not opened; the second sweep over the same files
parses no line. A large sweep uses a second process: it reads, redacts, packs and digests, and
this one owns the database. Their batches lie in a few files of bounded size and number, so that
neither can run away from the other.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from thence.adapters import Adapter, Source
from thence.adapters.files import unchanged
from thence.errors import ThenceError
from thence.format import lineage
from thence.format.facts import Edge, Fact
from thence.format.records import Skipped
from thence.format.whole import Whole
from thence.memory.digest import digest
from thence.memory.keep import READER, Keeper, restated
from thence.memory.packs import Blobs
from thence.memory.redact import VERSION, Redactor
from thence.memory.store import (
    Change,
    Digested,
    Filter,
    Held,
    Inventory,
    Known,
    Store,
    open_store,
)


class SweepBroken(ThenceError):
    """The process that reads for a sweep ended before its time."""


ALONE = 8 << 20
"""Bytes up to which one process does everything: starting another would take longer."""

BATCH = 2 << 20
"""Source bytes that go into one transaction."""

WAITING = 8
"""Batches that may lie between reader and writer."""


Stage = Literal["find", "read", "digest", "evict", "done"]


class Progress(msgspec.Struct, frozen=True):
    """How far a sweep is."""

    stage: Stage
    bytes: int = 0
    all_bytes: int = 0
    sources: int = 0
    all_sources: int = 0
    sessions: int = 0


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one source that is worth telling."""

    uid: str
    path: str
    what: Literal["new", "changed", "failed", "gone"]
    events: int = 0
    skipped: tuple[Skipped, ...] = ()
    why: str | None = None


class Report(msgspec.Struct):
    """What a sweep did. The names are those of `thence sweep --json`."""

    sources: int = 0
    read: int = 0
    unchanged: int = 0
    sessions_new: int = 0
    sessions_changed: int = 0
    events: int = 0
    lines: int = 0
    bytes: int = 0
    skipped: int = 0
    failed: int = 0
    redactions: dict[str, int] = {}
    digested: int = 0
    evicted: int = 0
    seconds: float = 0.0
    outcomes: list[Outcome] = []


class Piece(msgspec.Struct):
    """What the reader hands to the writer about one source."""

    outcome: Outcome
    change: Change | None = None
    digested: Digested | None = None
    lines: int = 0
    bytes: int = 0
    more: bool = False
    """Not the last piece of its source."""


class Job(msgspec.Struct):
    """One source that is to be read."""

    adapter: str
    source: Source
    size: int
    modified: float


Told = Callable[[Progress], None]


def _quiet(_progress: Progress) -> None:
    """Tell nobody."""


class Sweep:
    """One sweep. The store must be held (`store.sweeping()`) while it runs."""

    def __init__(
        self,
        store: Store,
        adapters: Mapping[str, Adapter],
        redactor: Redactor,
        *,
        domains: Mapping[str, str] | None = None,
        progress: Told = _quiet,
        address: str | None = None,
    ) -> None:
        """Get ready; with the store's `address` a large sweep may use a second process."""
        self._store = store
        self._adapters = adapters
        self._redactor = redactor
        self._keeper = Keeper(store.blobs, redactor, domains=domains)
        self._progress = progress
        self._domains = domains
        self._address = address if (os.cpu_count() or 1) > 1 else None
        self.report = Report()

    def run(self, roots: Mapping[str, Iterable[Path]]) -> Report:
        """Sweep the roots of the agents, and say what was done."""
        began = time.monotonic()
        known = self._store.known()
        jobs = self._jobs(roots, known)
        conflicts = self._write(self._pieces(jobs, known), jobs)
        self._settle(conflicts)
        self._digest_rest()
        self.report.seconds = time.monotonic() - began
        self._progress(Progress("done", sessions=self._sessions))
        return self.report

    @property
    def _sessions(self) -> int:
        return self.report.sessions_new + self.report.sessions_changed

    # -- finding ------------------------------------------------------------------------

    def _jobs(self, roots: Mapping[str, Iterable[Path]], known: Inventory) -> list[Job]:
        """Find the sources that have to be read, the oldest first."""
        jobs: list[Job] = []
        for name, places in roots.items():
            for place in places:
                for source in self._adapters[name].find(place):
                    self.report.sources += 1
                    job = self._job(name, source, known)
                    if job is None:
                        self.report.unchanged += 1
                    else:
                        jobs.append(job)
                self._progress(Progress("find", all_sources=self.report.sources))
        return sorted(jobs, key=lambda job: (job.modified, job.source.uid))

    def _job(self, name: str, source: Source, known: Inventory) -> Job | None:
        if known.is_forgotten(source.uid):
            return None
        before = known.sessions.get(source.uid)
        current = before is not None and not stale(before)
        if current and before is not None and unchanged(source, before.cursor):
            return None
        stats = [found for file in source.files if (found := _stat(file.path)) is not None]
        done = 0
        if before is not None and current and not before.evicted:
            done = sum(mark.offset for mark in before.cursor.marks.values())
        size = max(sum(found.st_size for found in stats) - done, 0)
        return Job(name, source, size, max((found.st_mtime for found in stats), default=0.0))

    # -- reading ------------------------------------------------------------------------

    def _pieces(self, jobs: Sequence[Job], known: Inventory) -> Iterator[Piece]:
        if self._address is None or sum(job.size for job in jobs) < ALONE:
            return self._read(jobs, known)
        address = self._address

        def reading() -> Iterator[Piece]:
            # A connection does not survive a fork: the other process opens its own.
            self._store = open_store(address)
            self._keeper = Keeper(self._store.blobs, self._redactor, domains=self._domains)
            return self._read(jobs, known)

        return _Elsewhere(reading, self._sync, self._redactor).pieces()

    def _sync(self) -> None:
        self._keeper.sync()

    def _read(self, jobs: Sequence[Job], known: Inventory) -> Iterator[Piece]:
        for job in jobs:
            yield from self._read_one(job, known.sessions.get(job.source.uid))

    def _read_one(self, job: Job, before: Known | None) -> Iterator[Piece]:
        source, adapter = job.source, self._adapters[job.adapter]
        try:
            held = None
            if before is not None and not before.evicted and not stale(before):
                held = self._store.held(source.uid)
            new, more = before is None, True
            while more:
                kept = self._keeper.keep(adapter, source, before, held)
                held, more = kept.held, kept.more
                made = None
                if kept.change is not None and kept.facts:
                    row = kept.change.row
                    made = digest(Whole(source.uid, kept.facts, torn=row.torn), row)
                outcome = Outcome(
                    source.uid,
                    source.path,
                    "new" if new else "changed",
                    len(kept.change.events) if kept.change else 0,
                    tuple(kept.skipped),
                )
                yield Piece(outcome, kept.change, made, kept.lines, kept.bytes, more)
        except Exception as error:  # noqa: BLE001 - one source must not end the sweep
            why = error.message if isinstance(error, ThenceError) else repr(error)
            yield Piece(Outcome(source.uid, source.path, "failed", why=why))

    # -- writing ------------------------------------------------------------------------

    def _write(self, pieces: Iterator[Piece], jobs: Sequence[Job]) -> dict[str, set[str]]:
        conflicts: dict[str, set[str]] = {}
        total = sum(job.size for job in jobs)
        batch: list[Piece] = []
        size = 0
        for piece in pieces:
            batch.append(piece)
            size += piece.bytes
            if size >= BATCH:
                _merge(conflicts, self._commit(batch))
                batch, size = [], 0
            self._count(piece)
            done = self.report
            self._progress(
                Progress("read", done.bytes, total, done.read, len(jobs), self._sessions)
            )
        _merge(conflicts, self._commit(batch))
        return conflicts

    def _commit(self, batch: Sequence[Piece]) -> dict[str, set[str]]:
        changes = [piece.change for piece in batch if piece.change is not None]
        self._keeper.sync()
        conflicts = self._store.write(changes) if changes else {}
        digests = [piece.digested for piece in batch if piece.digested is not None]
        if digests:
            self._store.digested(digests)
            self.report.digested += len(digests)
        return conflicts

    def _count(self, piece: Piece) -> None:
        report, outcome = self.report, piece.outcome
        report.lines += piece.lines
        report.bytes += piece.bytes
        report.events += outcome.events
        report.skipped += len(outcome.skipped)
        if not piece.more:
            report.read += 1
            report.failed += outcome.what == "failed"
            if piece.change is not None:
                report.sessions_new += outcome.what == "new"
                report.sessions_changed += outcome.what == "changed"
        if outcome.skipped or outcome.what == "failed":
            report.outcomes.append(outcome)

    # -- lineage ------------------------------------------------------------------------

    def _settle(self, conflicts: Mapping[str, set[str]]) -> None:
        """Decide who owns what several sessions hold, and write those anew that this changes."""
        for group in _groups(conflicts):
            held = {uid: found for uid in group if (found := self._held(uid)) is not None}
            owned = lineage.shared({uid.partition(":")[2]: h.facts for uid, h in held.items()})
            changes = []
            for uid, one in held.items():
                name = uid.partition(":")[2]
                replayed, billed = owned.replayed[name], owned.billed[name]
                if (replayed, billed) == (one.replayed, one.billed):
                    continue
                changes.append(_reclaimed(uid, one, replayed, billed, owned.edges[name]))
            if changes:
                self._store.write(changes)

    def _held(self, uid: str) -> Held | None:
        return self._store.held(uid)

    # -- digests ------------------------------------------------------------------------

    def _digest_rest(self) -> None:
        """Digest what was not digested while it was read: what grew, and what was reclaimed."""
        waiting = list(self._store.sessions(Filter(analysed=False, evicted=False)))
        for number, row in enumerate(waiting):
            uid = row.session.session_uid
            held = self._store.held(uid)
            if held is None:
                continue
            whole = recalled(uid, held, self._store.blobs)
            self._store.digested([digest(whole, held.row)])
            self.report.digested += 1
            self._progress(
                Progress(
                    "digest", sources=number, all_sources=len(waiting), sessions=self._sessions
                )
            )


def stale(known: Known) -> bool:
    """Whether a session was read by older rules, so that it is read again from the start."""
    return known.reader != READER or known.redactor != VERSION


def recalled(uid: str, held: Held, blobs: Blobs) -> Whole:
    """Put a session together from the store, payloads included."""
    facts = [_with_payloads(fact, blobs) for fact in held.facts]
    return Whole(uid, facts, replayed=held.replayed, billed=held.billed, torn=held.row.torn)


def _with_payloads(fact: Fact, blobs: Blobs) -> Fact:
    blocks = tuple(
        msgspec.structs.replace(block, payload=msgspec.json.decode(blobs.read(block.ref)))
        if block.ref is not None
        else block
        for block in fact.blocks
    )
    return msgspec.structs.replace(fact, blocks=blocks)


def _reclaimed(
    uid: str,
    held: Held,
    replayed: frozenset[str],
    billed: frozenset[str],
    edges: Sequence[Edge],
) -> Change:
    whole = Whole(uid, held.facts, replayed=replayed, billed=billed, torn=held.row.torn)
    row = msgspec.structs.replace(held.row, change=held.row.change + 1)
    change = restated(whole, held, row=row)
    known = {(edge.link, edge.session) for edge in change.row.edges}
    more = tuple(edge for edge in edges if (edge.link, edge.session) not in known)
    change.row = msgspec.structs.replace(change.row, edges=(*change.row.edges, *more))
    change.replayed, change.billed = replayed, billed
    return change


def _groups(conflicts: Mapping[str, set[str]]) -> list[list[str]]:
    """Gather sessions that share something, directly or through others."""
    group: dict[str, set[str]] = {}
    for uid, others in conflicts.items():
        together = {uid, *others}
        for one in list(together):
            together |= group.get(one, set())
        for one in together:
            group[one] = together
    return [list(members) for members in sorted({tuple(sorted(g)) for g in group.values()})]


def _merge(into: dict[str, set[str]], more: Mapping[str, set[str]]) -> None:
    for uid, others in more.items():
        into.setdefault(uid, set()).update(others)


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


# -- a second process -----------------------------------------------------------------------


class Parcel(msgspec.Struct):
    """Some pieces on their way from the reader to the writer."""

    pieces: list[Piece]
    redactions: dict[str, int]


_PARCEL = msgspec.msgpack.Decoder(Parcel)


class _Elsewhere:
    """Runs the reading in a process of its own; at most so many parcels lie between the two."""

    def __init__(
        self,
        pieces: Callable[[], Iterator[Piece]],
        sync: Callable[[], None],
        redactor: Redactor,
    ) -> None:
        self._pieces = pieces
        self._sync = sync
        self._redactor = redactor
        self._context = multiprocessing.get_context("fork")
        self._room = self._context.Semaphore(WAITING)
        self._ready = self._context.SimpleQueue()

    def pieces(self) -> Iterator[Piece]:
        """Give what the other process reads, in its order."""
        with tempfile.TemporaryDirectory(prefix="thence-sweep-") as folder:
            process = self._context.Process(target=self._work, args=(folder,), daemon=True)
            process.start()
            try:
                while (name := self._next(process)) is not None:
                    path = Path(folder, name)
                    parcel = _PARCEL.decode(path.read_bytes())
                    path.unlink()
                    self._room.release()
                    self._redactor.counts.update(parcel.redactions)
                    yield from parcel.pieces
            finally:
                process.terminate()
                process.join()

    def _next(self, process: multiprocessing.process.BaseProcess) -> str | None:
        while not self._ready.empty() or process.is_alive():
            if not self._ready.empty():
                name: str | None = self._ready.get()
                return name
            process.join(0.002)
        raise SweepBroken(
            f"the reading process ended with {process.exitcode}",
            hint="what was read before is kept; sweep again to go on",
        )

    def _work(self, folder: str) -> None:
        """In the other process: read, and put parcels where the writer finds them."""
        parcel: list[Piece] = []
        size = number = 0
        self._redactor.counts.clear()
        for piece in self._pieces():
            parcel.append(piece)
            size += piece.bytes
            if size >= BATCH:
                self._send(folder, number, parcel)
                parcel, size, number = [], 0, number + 1
        self._send(folder, number, parcel)
        self._ready.put(None)

    def _send(self, folder: str, number: int, pieces: list[Piece]) -> None:
        self._sync()
        self._room.acquire()
        body = msgspec.msgpack.encode(Parcel(pieces, dict(self._redactor.counts)))
        self._redactor.counts.clear()
        Path(folder, f"{number}").write_bytes(body)
        self._ready.put(f"{number}")
