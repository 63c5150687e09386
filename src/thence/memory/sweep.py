"""One pass of the adapters into the store: discover, read what grew, keep, digest, evict.

Invariants: a session's rows and its cursor move in one transaction, so that a sweep may be killed
anywhere and the next one comes to the same rows; what fails is one source, told with its reason,
never the sweep; a source that has not changed is not opened; the second sweep over the same files
parses no line; what was read stays when its source is deleted, shortened or rewritten, and is
marked so; nothing is evicted before its digest is on the disk, but where the disk would overflow,
and then it is told. A large sweep uses a second process: it reads, redacts, packs and digests,
and this one owns the database.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from thence import system
from thence.agents import Adapter, Source, SourceReader, packages
from thence.agents.files import REWRITTEN
from thence.agents.row_sources import damaged, database_stamp
from thence.agents.unread import Unread
from thence.errors import DiskFull, ThenceError
from thence.format.records import Skipped
from thence.memory import retention, stored_paths
from thence.memory.derivation import Part, fingerprint
from thence.memory.due_sources import DueSources, SourceJob, due_digests, with_changes
from thence.memory.gate import Gate
from thence.memory.notes import announcement
from thence.memory.packs import PackDamaged, PackMissing
from thence.memory.placeholders import count_by_rule
from thence.memory.reports import Outcome, Progress, SweepPiece, SweepReport
from thence.memory.retention_run import Removed, RetentionRun, running_sessions
from thence.memory.rows import digests_of
from thence.memory.session_sources import is_deleted, reader_of
from thence.memory.store import (
    DATA_LOSS,
    DigestRecord,
    Filter,
    Inventory,
    SessionChange,
    SessionRow,
    Store,
    SweepEntry,
    open_store,
)
from thence.memory.unread import clean_unread

if TYPE_CHECKING:
    from thence.memory.digest import PieceDigest
    from thence.memory.ingest import CarriedSpend, Ingester, IngestResult
    from thence.memory.parcels import Order, Turns
    from thence.memory.rulebook import Rulebook

__all__ = ["Outcome", "Progress", "Sweep", "SweepReport"]

OWN_PARCEL_BYTES = 8 << 20
"""Bytes up to which one process does everything: starting another would take longer."""

PARCEL_BYTES = 1 << 20
"""Source bytes that go to the writer together."""

COMMIT_BYTES = 2 << 20
"""Source bytes that go into one transaction. With 16 MB the writer holds 30 MB more, and neither
the time nor the index gets smaller by more than a hundredth."""

FIRST_COMMIT_BYTES = 1 << 20
"""Source bytes of the first transaction of a sweep: what is in it can be listed and searched."""

COMMIT_SESSIONS = 10
"""Sessions that go into one transaction while they are written: none waits for all the others."""

ROW_SOURCE_BYTES = 64
"""Source bytes of a row of an event, at the least; nearly all take far more."""

MAX_READERS = 2
"""Processes that read; the writer has less to do than either, and memory is bounded."""

COLLECTOR_THRESHOLDS = 100_000, 20, 100
"""How often Python looks for cycles during a sweep: records have none, and they are many."""

DIGEST_BATCH = 256
"""Digests that are written together: each such write waits for the disk."""


ProgressCallback = Callable[[Progress], None]


def _quiet(_progress: Progress) -> None:
    """Tell nobody."""


class Sweep:
    """One sweep. The store must be held (`store.sweeping()`) while it runs."""

    def __init__(
        self,
        store: Store,
        adapters: Mapping[str, Adapter],
        gate: Gate,
        rules: Rulebook,
        *,
        exclude: Iterable[str] = (),
        policy: retention.Policy | None = None,
        progress: ProgressCallback = _quiet,
        address: str | None = None,
        digests: bool = True,
        anew: Collection[str] = (),
        announce: Callable[[datetime], datetime] | None = None,
        running: Callable[[], set[str]] = set,
        unread: Iterable[Unread] = (),
    ) -> None:
        """Get ready; with the store's `address` a large sweep may use a second process.

        The sessions in `anew` are read from the start, changed or not: their packs are broken.
        Without a `policy` nothing is evicted; without `digests` these are left to a later sweep.
        `announce` returns from when on sessions may be evicted by age; without it they are at once.
        `running` returns the sessions that run besides those in the roots that are swept: neither
        are evicted. `unread` is what an earlier sweep could not read.
        """
        self._store = store
        self._adapters = adapters
        self._gate = gate
        self._progress = progress
        self._rules = rules
        self._policy = policy
        self._announce = announce
        self._running = running
        self._digesting = digests
        self._address = address if (os.cpu_count() or 1) > 1 else None
        self._fingerprint = fingerprint(gate.version, rules.toolbox, rules.prices)
        self._in_store: dict[str, Part] = {}  # what is derived again without reading a source
        self._reread: dict[str, Part] = {}  # what is read again because a part changed
        self.redacted_again: set[str] = set()
        """Stored sessions that other redaction rules were applied to."""
        self._only_found = False
        self._has_old_digests = False
        self._digests: list[DigestRecord] = []
        self.digested: list[str] = []
        """Sessions whose digest was written."""
        self.report = SweepReport()
        what = adapters, gate, self._fingerprint, self.report
        self._sources = DueSources(
            *what, progress=progress, exclude=exclude, anew=anew, unread=unread
        )

    def run(
        self,
        roots: Mapping[str, Iterable[Path]],
        digest_limit_s: float | None = None,
        *,
        only_found: bool = False,
    ) -> SweepReport:
        """Sweep the roots of the agents, and return what was done.

        After `digest_limit_s` seconds of digesting what is left waits for the next sweep: lines
        that are being written are read first. With `only_found` stored sessions that the readers
        do not find are not looked at: cost follows those they do, not the store.
        """
        self._only_found = only_found
        often = gc.get_threshold()
        gc.set_threshold(*COLLECTOR_THRESHOLDS)
        try:
            return self._run({name: list(paths) for name, paths in roots.items()}, digest_limit_s)
        finally:
            gc.set_threshold(*often)

    def _run(
        self, places: Mapping[str, Sequence[Path]], digest_limit_s: float | None
    ) -> SweepReport:
        began = time.monotonic()
        store, find_known = self._store, self._sources.known_of_found
        known = find_known(store, places) if self._only_found else store.known()
        jobs = self._sources.find_jobs(places, known)
        self._restate(self._sources.moved, known)
        self._plan_reprocessing(jobs, known)
        self._reprocess(known)
        conflicts = {**known.unsettled, **self._write(self._pieces(jobs, known), jobs)}
        self._check_reread(known)
        if conflicts:
            self._settle_owners(conflicts)
        if self._digesting:
            # Who sweeps no roots asks for digests alone, and has waited for the right moment.
            self._digest_rest(due_digests(self._store, all_due=not places), digest_limit_s)
            self._digest_again()
        if self._only_found:
            known = self._store.known(known.sessions) if jobs else known
        elif self._in_store or conflicts or self.report.gone or self.report.digested:
            known = self._store.known()
        elif jobs:
            known = with_changes(known, self._store.known([job.source.uid for job in jobs]))
        self._evict(places, known)
        self.report.problems = packages.problems()
        look, clean = self._sources.look, self._gate.text
        self.report.not_read = sorted(clean_unread(item, clean) for item in look.unread)
        self.report.outcomes = list(map(self._clean_outcome, self.report.outcomes))
        self.report.seconds = time.monotonic() - began
        self._progress(Progress("done", sessions=self._sessions))
        return self.report

    @cached_property
    def _ingester(self) -> Ingester:
        """What makes changes of the store from sources; most sweeps find nothing to read."""
        from thence.memory.ingest import Ingester

        return Ingester(self._store.blobs, self._gate, self._rules)

    @property
    def empty_roots(self) -> list[tuple[str, Path]]:
        """Agents and folders of theirs in which the sweep found no session."""
        return self._sources.empty_roots

    @property
    def looked(self) -> Mapping[str, Sequence[Path]]:
        """The folders that were looked through for all that is in them, by agent."""
        return self._sources.look.looked

    def _clean_outcome(self, outcome: Outcome) -> Outcome:
        """Return what is told of a source without secrets: its path and what went wrong."""
        path, why = self._gate.path(outcome.path), outcome.why and self._gate.text(outcome.why)
        return msgspec.structs.replace(outcome, path=path, why=why)

    def _settle_owners(self, conflicts: Mapping[str, set[str]]) -> None:
        """Write which of the sessions that share records own them."""
        from thence.memory import ownership

        for changes in ownership.resolve_ownership(self._store, conflicts, self._rules.prices):
            for _ in (change for change in changes if change.rebuilt):
                self.report.note_rebuild(ownership.RECLAIMED)
            self._store.write(changes)

    @property
    def _sessions(self) -> int:
        return self.report.sessions_new + self.report.sessions_changed

    def _restate(self, paths: Mapping[str, str], known: Inventory) -> None:
        """Write where sources lie now; those without a path are gone."""
        if not paths:
            return
        changes = []
        for row in self._store.sessions(Filter(uids=tuple(paths))):
            uid = row.session.session_uid
            path = row.session.source_path or ""
            if paths[uid]:
                path = self._gate.path(paths[uid], row.session.cwd)
            session = msgspec.structs.replace(row.session, source_path=path)
            restated = msgspec.structs.replace(row, session=session, gone=not paths[uid])
            changes.append(SessionChange(restated, known.sessions[uid].cursor))
            if not paths[uid]:
                self.report.gone += 1
                self.report.outcomes.append(Outcome(uid, path, "gone"))
        self._store.write(changes)

    # -- reading ------------------------------------------------------------------------

    def _pieces(self, jobs: Sequence[SourceJob], known: Inventory) -> Iterable[SweepPiece]:
        small = sum(job.size for job in jobs) < OWN_PARCEL_BYTES
        if self._address is None or small:
            return self._read(jobs, known)
        # Most sweeps find little, and need none of what these bring.
        import thence.memory.digest  # noqa: F401 - for the processes that are forked
        from thence.memory.parcels import Parcels, find_large, in_turns, may_fork
        from thence.memory.prices import tariff

        if not may_fork():
            return self._read(jobs, known)
        address, sizes = self._address, [job.size for job in jobs]
        large = find_large(sizes)
        if large is not None and (uid := jobs[large].source.uid) not in known.sessions:
            self._store.blobs.evict(uid)  # what a sweep that was killed had read ahead

        def reading(turns: Turns) -> Iterator[tuple[SweepPiece | None, int, Order]]:
            # A connection does not survive a fork: the other process opens its own.
            self._store = open_store(address)
            self.__dict__.pop("_ingester", None)
            read = in_turns(turns, sizes, lambda at: self._read([jobs[at]], known), _size_of)
            return ((piece, piece.bytes if piece else 0, order) for piece, order in read)

        # What all processes need is made ready once, before the fork: the code that reads and
        # digests, the list of prices, the keywords of secrets.
        self._ingester.sync()
        self._digest_pieces()
        tariff(self._rules.prices, "-")
        self._gate.prepare()
        return Parcels(
            self._scratch(),
            SweepPiece,
            reading,
            self._close_parcel,
            size=PARCEL_BYTES,
            readers=MAX_READERS,
        )

    def _scratch(self) -> Path:
        """Where parcels may lie: beside the store's own files, or else with other passing ones."""
        path = getattr(self._store, "path", None)
        if isinstance(path, Path):
            return path.parent / "tmp"
        import tempfile

        return Path(tempfile.gettempdir())

    def _close_parcel(self) -> None:
        """Make a parcel ready to leave: its payloads are on the disk."""
        self._ingester.sync()

    def _read(self, jobs: Iterable[SourceJob], known: Inventory) -> Iterator[SweepPiece]:
        for job in jobs:
            for piece in self._read_one(job, known.sessions.get(job.source.uid)):
                if job.older and piece.change is not None:
                    piece.change.older = True
                    piece.change.room = job.size // ROW_SOURCE_BYTES if piece.more else 0
                yield piece

    def _read_one(self, job: SourceJob, before: SweepEntry | None) -> Iterator[SweepPiece]:
        from thence.memory.growth import Growing

        source, adapter = job.source, reader_of(self._adapters[job.adapter], job.places)
        path = stored_paths.printable(source.path)  # is shown, and not stored
        try:
            grown, carried = None, None
            if before is not None and before.evicted is not None:
                carried = self._find_carried_spend(adapter, source, before)
            elif before is not None and (tail := self._store.tail(source.uid)) is not None:
                grown = Growing(tail, partial(self._store.load_session, source.uid))
            # A log that turns up here takes the place of what a file had brought.
            is_imported = grown is not None and grown.tail.row.imported is not None
            again = is_imported or (
                before is not None and self._sources.is_stale(source.uid, before)
            )
            what: Literal["new", "changed", "vanished", "failed"] = "changed" if before else "new"
            more, first = True, True
            digesting = self._digest_pieces() if grown is None or again else None
            while more:
                result = self._ingester.read(
                    adapter,
                    source,
                    before,
                    grown,
                    carried=carried,
                    again=again,
                )
                if first and not result.bytes and is_deleted(source):
                    yield SweepPiece(Outcome(source.uid, path, "vanished"))
                    return
                if first and (why := _why_no_row(source, result.skipped)):
                    yield SweepPiece(Outcome(source.uid, path, "failed", why=why))
                    return
                more, carried, again, first = result.has_more, None, False, False
                grown = result.rest
                if result.change is not None and self._sources.exclude.means(
                    result.change.row.session.cwd
                ):
                    self._store.blobs.evict(source.uid)
                    yield SweepPiece(Outcome(source.uid, path, "excluded"))
                    return
                cwd = result.change.row.session.cwd if result.change is not None else None
                skipped = tuple(self._gate.skip(skip, cwd) for skip in result.skipped)
                path = self._gate.path(path, cwd) if skipped else path
                outcome = Outcome(source.uid, path, what, result.new_events, skipped)
                made = self._digest_read(result, digesting) if digesting else None
                yield SweepPiece(
                    outcome,
                    result.change,
                    made,
                    result.lines,
                    result.bytes,
                    more,
                    result.rebuilt,
                    secrets=result.new_secrets,
                    more_secrets=result.more_secrets,
                )
        except DiskFull:
            raise  # all other sources would fail as well
        except Exception as error:  # noqa: BLE001 - one source must not end the sweep
            what = "vanished" if is_deleted(source) else "failed"
            outcome = Outcome(source.uid, path, what, why=_why(error))
            yield SweepPiece(outcome, problems=packages.problems())

    def _find_carried_spend(
        self, adapter: SourceReader, source: Source, before: SweepEntry
    ) -> CarriedSpend | None:
        """Return what an evicted session took, if its source no longer holds all that was read."""
        probe = adapter.read(source, before.cursor)
        if all(notice.what != REWRITTEN for notice in probe.notices):
            return None
        from thence.memory.ingest import carry_spend

        return carry_spend(self._store, source.uid, before.change + 1)

    # -- writing ------------------------------------------------------------------------

    def _write(
        self, pieces: Iterable[SweepPiece], jobs: Sequence[SourceJob]
    ) -> dict[str, set[str]]:
        conflicts: dict[str, set[str]] = {}
        total = sum(job.size for job in jobs)
        batch: list[SweepPiece] = []
        size, limit = 0, min(FIRST_COMMIT_BYTES, COMMIT_BYTES)
        try:
            for piece in pieces:
                batch.append(piece)
                size += piece.bytes
                if size >= limit or (self._only_found and len(batch) >= COMMIT_SESSIONS):
                    self._commit(batch, conflicts)
                    size, limit = 0, min(2 * limit, COMMIT_BYTES)
                packages.note_problems(piece.problems)
                self._count(piece)
                done = self.report
                self._progress(
                    Progress("read", done.bytes, total, done.read, len(jobs), self._sessions)
                )
        finally:  # what was read is kept, whatever stops the sweep
            self._commit(batch, conflicts)
        self._put_digests()
        return conflicts

    def _commit(self, batch: list[SweepPiece], conflicts: dict[str, set[str]]) -> None:
        """Write a batch and empty it, both or neither, though Ctrl-C is pressed meanwhile."""
        if batch:
            with system.deferring_signals():
                self._write_batch(batch, conflicts)
                batch.clear()

    def _write_batch(self, batch: Sequence[SweepPiece], conflicts: dict[str, set[str]]) -> None:
        changes = [piece.change for piece in batch if piece.change is not None]
        self._ingester.sync()
        if changes:
            fresh = [_uid(change) for change in changes if change.fresh]
            again = [uid for uid in fresh if self._reread.get(uid) == "redaction"]
            digests = [digest for uid in again for digest in self._redacted_digests(uid)]
            for uid, others in self._store.write(changes, digests=digests).items():
                conflicts.setdefault(uid, set()).update(others)
        self._digests += [piece.digested for piece in batch if piece.digested is not None]
        if len(self._digests) >= DIGEST_BATCH:
            self._put_digests()

    def _put_digests(self) -> None:
        if self._digests:
            from thence.memory.digest import note_failures

            for made in self._digests:
                note_failures(made)
            self._store.write(digests=self._digests)
            self.report.digested += len(self._digests)
            self.digested += [made.uid for made in self._digests]
            self._digests = []

    def _count(self, piece: SweepPiece) -> None:
        report, outcome = self.report, piece.outcome
        report.lines += piece.lines
        report.bytes += piece.bytes
        report.events += outcome.events
        report.skipped += len(outcome.skipped)
        for rule, number in count_by_rule(piece.secrets).items():
            report.redactions[rule] = report.redactions.get(rule, 0) + number
        report.more_redacted = report.more_redacted or piece.more_secrets
        if piece.rebuilt is not None:
            report.note_rebuild(piece.rebuilt)
        if outcome.what == "excluded":
            report.excluded += 1
        elif not piece.more:
            report.read += 1
            report.failed += outcome.what == "failed"
            report.vanished += outcome.what == "vanished"
            if outcome.what == "failed":
                self._sources.look.add([_unread(outcome)])
            if piece.change is not None:
                report.sessions_new += outcome.what == "new"
                report.sessions_changed += outcome.what == "changed"
        if outcome.skipped or outcome.what == "failed":
            report.outcomes.append(outcome)

    # -- parts that changed -------------------------------------------------------------

    def _plan_reprocessing(self, jobs: Sequence[SourceJob], known: Inventory) -> None:
        """Note which stored sessions other rules derived; what no source is read for is listed."""
        reading = {job.source.uid for job in jobs}
        for uid, stored in known.sessions.items():
            parts = self._fingerprint.changed_parts(uid, stored)
            if not parts:
                continue
            self._has_old_digests |= "digest" in parts
            if parts == ("digest",):
                continue
            is_read = uid in reading and uid not in self._sources.altered
            if is_read and parts[0] not in ("tools", "prices"):
                self._reread[uid] = parts[0]
            elif "redaction" in parts:
                self._in_store[uid] = "redaction"
            elif "reader" in parts and stored.gone:
                self._in_store[uid] = "reader"  # what its facts say may be indexed in another way
            elif "tools" in parts:
                self._in_store[uid] = "tools"  # before more of it is read
            elif "fold" in parts or "prices" in parts:
                self._in_store[uid] = "fold" if "fold" in parts else "prices"

    def _reprocess(self, known: Inventory) -> None:
        """Derive again, from the store alone, what other rules or another fold derived."""
        for number, (uid, part) in enumerate(self._in_store.items()):
            self._progress(
                Progress(
                    "reprocess",
                    sources=number,
                    all_sources=len(self._in_store),
                    sessions=self._sessions,
                )
            )
            self._reprocess_one(uid, part, known.sessions[uid])
            self._count_reprocessed(uid, part)

    def _check_reread(self, known: Inventory) -> None:
        """Count what was read again; where that failed its secrets go from the store all the same.

        So a source that cannot be read today does not keep what the rules of today take out.
        """
        stored = self._store.known().sessions if self._reread else {}
        for uid, part in self._reread.items():
            left = self._fingerprint.changed_parts(uid, stored[uid])
            if "redaction" in left:
                self._in_store[uid] = part
                self._reprocess_one(uid, "redaction", known.sessions[uid])
            if "redaction" in left or part not in left:
                self._count_reprocessed(uid, part)

    def _count_reprocessed(self, uid: str, part: Part) -> None:
        self.report.reprocessed[part] += 1
        if part == "redaction":
            self.redacted_again.add(uid)

    def _reprocess_one(self, uid: str, part: Part, known: SweepEntry) -> None:
        from thence.memory.payloads import salvage_payloads

        stored = self._store.load_session(uid)
        if stored is None:
            self._redact_evicted(uid, known)
            return
        stored.facts, broken = salvage_payloads(stored.facts, self._store.blobs, known.path)
        if broken:
            self.report.skipped += len(broken)
            self.report.outcomes.append(Outcome(uid, known.path, "changed", 0, tuple(broken)))
        if part in ("fold", "prices"):
            change = self._ingester.rebuild(uid, stored)
        else:
            change = self._ingester.reingest(uid, stored, stored.facts)
        if part == "tools":  # its source, if it comes back, is read again by newer readers
            reader = self._fingerprint.reader_of(uid, read_by=stored.row.reader)
            change.row = msgspec.structs.replace(change.row, reader=reader)
        digests = list(self._redacted_digests(uid)) if part == "redaction" else []
        self._ingester.sync()
        self._store.write([change], digests=digests)

    def _redact_evicted(self, uid: str, known: SweepEntry) -> None:
        """Apply the redaction rules to all that is left of an evicted session."""
        row = next(iter(self._store.sessions(Filter(uids=(uid,)))))
        clean = msgspec.structs.replace(self._gate.row(row), redactor=self._fingerprint.redaction)
        cursor = self._gate.cursor(known.cursor)
        self._store.write([SessionChange(clean, cursor)], digests=list(self._redacted_digests(uid)))

    def _redacted_digests(self, uid: str) -> Iterator[DigestRecord]:
        """Yield the stored digest of a session, if any, with the redaction rules applied.

        It is written together with the session's rows, so that no digest made under other rules
        outlasts them, however long the next digest waits.
        """
        for row in self._store.sessions(Filter(uids=(uid,))):
            yield from map(self._gate.digest, digests_of(self._store, row))

    # -- digests ------------------------------------------------------------------------

    def _digest_rest(self, waiting: Sequence[SessionRow], limit_s: float | None) -> None:
        """Digest what was not digested while it was read: what grew, and what was reclaimed."""
        began = time.monotonic()
        for number, row in enumerate(waiting):
            if number and limit_s is not None and time.monotonic() - began > limit_s:
                self.report.undigested = len(waiting) - number
                break
            self._analyse(row.session.session_uid)
            self._show_digesting(number, len(waiting))
        self._put_digests()

    def _digest_again(self) -> None:
        """Digest sessions again whose digest is of another version; no source is read."""
        stored = self._store.known().sessions if self._has_old_digests else {}
        changed_parts = self._fingerprint.changed_parts
        waiting = [uid for uid, entry in stored.items() if "digest" in changed_parts(uid, entry)]
        for number, uid in enumerate(waiting):
            self.report.reprocessed["digest"] += self._analyse(uid)
            self._show_digesting(number, len(waiting))
        self._put_digests()

    def _show_digesting(self, number: int, waiting: int) -> None:
        self._progress(
            Progress("digest", sources=number, all_sources=waiting, sessions=self._sessions)
        )

    def _analyse(self, uid: str) -> bool:
        """Digest a session from the store; whether that went well."""
        row = next(iter(self._store.sessions(Filter(uids=(uid,)))), None)
        if row is None or row.session.evicted_at is not None:
            return False
        try:
            made = self._digest_stored(row)
        except Exception as error:  # noqa: BLE001 - the session is kept, and tried again
            path = row.session.source_path or ""
            outcome = Outcome(uid, path, "undigested", why=_why(error))
            self.report.outcomes = [
                earlier for earlier in self.report.outcomes if earlier != outcome
            ] + [outcome]
            return False
        self._digests.append(made)
        if len(self._digests) >= DIGEST_BATCH:
            self._put_digests()
        return True

    def _digest_read(self, result: IngestResult, digesting: PieceDigest) -> DigestRecord | None:
        """Return the digest of a session that was just read to its end, while it is in memory."""
        change, delta = result.change, result.delta
        result.delta = None  # it is large, and the next piece is as well
        if change is None or delta is None:
            return None
        with contextlib.suppress(Exception):  # kept all the same, and tried again
            is_last = not result.has_more
            made = digesting.add(change, delta, result.fold, is_last=is_last)
            return self._continue(made, change.row) if made is not None and is_last else None
        return None

    def _digest_pieces(self) -> PieceDigest | None:
        if not self._digesting:
            return None
        from thence.memory.digest import PieceDigest

        return PieceDigest(self._store.blobs, self._rules.tasks, self._rules.digesters)

    def _digest_stored(self, row: SessionRow) -> DigestRecord:
        from thence.memory.digest import digest_stored

        tasks, others = self._rules.tasks, self._rules.digesters
        made = digest_stored(self._store, row, tasks=tasks, others=others)
        return self._continue(made, row)

    def _continue(self, made: DigestRecord, row: SessionRow) -> DigestRecord:
        """Put the digest of what the source no longer holds into the one that goes on from it."""
        if not row.carried_change:
            return made
        for row_fields in self._store.read_table("digests", Filter(uids=(made.uid,))):
            is_older = row_fields["change"] < row.carried_change
            old = row_fields if is_older else row_fields.get("continues")
            made.digest = {**made.digest, "continues": old}
        return made

    # -- retention ----------------------------------------------------------------------

    def _evict(self, roots: Mapping[str, Sequence[Path]], known: Inventory) -> None:
        """Repack what was replaced, and keep the policy."""
        for uid in sorted(known.untidy):
            self._repack(uid)
        if known.pending:
            self._store.remove((), why={})
        if self._policy is None:
            return
        run = RetentionRun(
            self._store,
            self._policy,
            running=lambda: self._running() | running_sessions(self._adapters, roots),
            analyse=self._analyse_now,
            may_evict_by_age=self._may_evict_by_age,
        )
        planned = run.plan_finally(known)
        self._note_removed(planned, run.carry_out(planned))

    def _analyse_now(self, uids: Sequence[str]) -> set[str]:
        failed = {uid for uid in uids if not self._analyse(uid)}
        self._put_digests()
        return failed

    def _may_evict_by_age(self, planned: retention.RetentionPlan) -> bool:
        """Whether it was announced for long enough that sessions go by age; if not, say so."""
        if self._announce is None:
            return True
        now = datetime.now(UTC)
        start = self._announce(now)
        if now >= start:
            return True
        self.report.notes.append(announcement(len(planned.by_age), start))
        return False

    def _note_removed(self, planned: retention.RetentionPlan, removed: Removed) -> None:
        report = self.report
        report.notes += [item.reason for item in planned.of("alert")]
        report.notes += [f"{DATA_LOSS}: {uid}: {why}" for uid, why in removed.lost.items()]
        report.pending += len(removed.pending)
        report.evicted += len(removed.evicted) + len(removed.lost)
        report.lost += len(removed.lost)
        report.losses |= removed.lost
        report.only_copies += removed.only_copies
        for gone in (removed.evicted, removed.lost):
            if gone:
                progress = Progress("evict", sources=len(gone), all_sources=len(planned.items))
                self._progress(progress)

    def _repack(self, uid: str) -> None:
        from thence.memory.growth import repack_payloads

        stored = self._store.load_session(uid)
        if stored is None:
            return
        try:
            repack_payloads(self._store, stored)
        except (PackDamaged, PackMissing) as error:  # the others, and the caps, go on
            path = stored.row.session.source_path or ""
            outcome = Outcome(uid, path, "failed", why=_why(error))
            self.report.failed += 1
            self.report.outcomes.append(outcome)
            self._sources.look.add([_unread(outcome)])


def _size_of(piece: SweepPiece) -> int:
    return piece.bytes


def _uid(change: SessionChange) -> str:
    return change.row.session.session_uid


def _why_no_row(source: Source, skipped: Sequence[Skipped]) -> str | None:
    """Return why the database of a session could not be read; None if it could, or is none."""
    is_database = bool(source.files) and source.files[0].rows is not None
    return next((skip.why for skip in skipped if is_database and not skip.line), None)


def _unread(outcome: Outcome) -> Unread:
    """Return what is told of a session that could not be read."""
    agent, why = outcome.uid.partition(":")[0], outcome.why or ""
    return damaged(agent, outcome.path, why, "session", database_stamp(outcome.path))


def _why(error: Exception) -> str:
    why = error.message if isinstance(error, ThenceError) else repr(error)
    return why.encode("utf-8", "backslashreplace").decode()
