"""A whole store into another one, either way, and proof that it arrived.

Sessions go one by one, the oldest first, each in transactions of its own; what is there already
as it is here is left alone, so that a copy that was cut short goes on where it was, and a second
one brings what changed since. Payloads, facts, events, spend, digests and signals arrive as they
are; words are cut anew for the other index. Evicted sessions arrive evicted, and what was
forgotten stays forgotten. The list of removals and the key of the redactor stay behind.

Afterwards both sides are read back and compared, session by session, by hashes of all of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from thence.agents import Cursor
from thence.format.stored import fingerprint
from thence.memory.gate import Gate
from thence.memory.ingest import Ingester
from thence.memory.payloads import with_payloads
from thence.memory.rows import digests_of
from thence.memory.rulebook import Rulebook
from thence.memory.spending import spend_from_row
from thence.memory.store import (
    Filter,
    SessionChange,
    SessionRow,
    Spend,
    Store,
    StoredSession,
    SweepEntry,
)


class CopyReport(msgspec.Struct):
    """What a copy did. The names are those of `thence store copy --json`."""

    sessions: int = 0
    copied: int = 0
    unchanged: int = 0
    evicted: int = 0
    events: int = 0
    payloads: int = 0
    bytes: int = 0
    """Of payloads, as they are read."""
    digests: int = 0
    forgotten: int = 0
    different: list[str] = []
    """Sessions that are not the same on both sides; none, or something went wrong."""


def copy(
    source: Store,
    target: Store,
    rules: Rulebook,
    progress: Callable[[CopyReport], None] = lambda _: None,
) -> CopyReport:
    """Copy everything, then compare; both stores should be held (`sweeping()`)."""
    report = CopyReport()
    known, there = source.known(), target.known()
    if new := known.forgotten - there.forgotten:
        target.remove((), why={}, buried=new)
    report.forgotten = len(known.forgotten)
    copier = _Copier(source, target, known.sessions, rules)
    for row in list(source.sessions(Filter(order="oldest"))):
        uid = row.session.session_uid
        report.sessions += 1
        ours = hash_of(source, row, report)
        if ours == _hash_there(target, uid):
            report.unchanged += 1
        else:
            copier.copy(row)
            report.copied += 1
            if ours != _hash_there(target, uid):
                report.different.append(uid)
        progress(report)
    return report


class _Copier:
    def __init__(
        self, source: Store, target: Store, known: Mapping[str, SweepEntry], rules: Rulebook
    ) -> None:
        self._source = source
        self._target = target
        self._known = known
        # What is in a store has passed the gate, and its copy is to be the same: no rules.
        self._ingester = Ingester(target.blobs, Gate((), key=bytes(32)), rules)

    def copy(self, row: SessionRow) -> None:
        """Copy one session, in place of what is there of it."""
        uid = row.session.session_uid
        session = self._source.load_session(uid)
        if session is None:
            cursor = self._known[uid].cursor if uid in self._known else Cursor()
            change = SessionChange(
                plain(row), cursor, spend=list(spend_of(self._source, uid)), fresh=True
            )
        else:
            change = self._change(uid, session)
        change.row = msgspec.structs.replace(change.row, pinned=row.pinned, gone=row.gone)
        if any(there.change == row.change for there in self._target.sessions(only(uid))):
            # The same number would mean that nothing else changed.
            self._write(msgspec.structs.replace(change.row, change=row.change + 1), change)
        self._write(change.row, change)
        for made in digests_of(self._source, row):
            self._target.write(digests=[made])
        if row.pinned:
            self._target.write([SessionChange(change.row, change.cursor)])
        if session is None:
            self._target.remove([uid], why={uid: "removed before it was copied"})

    def _write(self, row: SessionRow, change: SessionChange) -> None:
        self._target.write([msgspec.structs.replace(change, row=row)])

    def _change(self, uid: str, session: StoredSession) -> SessionChange:
        """Put a session together for the other store: its payloads there, its words cut anew."""
        facts = with_payloads(session.facts, self._source.blobs)
        change = self._ingester.reingest(uid, session, facts)
        self._ingester.sync()
        sizes = {name: getattr(change.row, name) for name in _SIZES}
        change.row = msgspec.structs.replace(plain(session.row), fold=change.row.fold, **sizes)
        return change


def spend_of(store: Store, uid: str) -> Iterator[Spend]:
    """Return what a session took, as a store keeps it."""
    return map(spend_from_row, store.read_table("spend", only(uid)))


_SIZES = ("raw_bytes", "text_bytes", "pack_bytes")
_TIMES = ("discovered_at", "ingested_at", "analyzed_at", "evicted_at")


def only(uid: str) -> Filter:
    """Ask for one session."""
    return Filter(uids=(uid,))


def plain(row: SessionRow) -> SessionRow:
    """Return a row without what the store it came from noted of it."""
    session = msgspec.structs.replace(row.session, **dict.fromkeys(_TIMES))
    return msgspec.structs.replace(row, session=session)


# -- proof ----------------------------------------------------------------------------------


def _hash_there(store: Store, uid: str) -> str | None:
    for row in store.sessions(only(uid)):
        return hash_of(store, row)
    return None


def hash_of(store: Store, row: SessionRow, report: CopyReport | None = None) -> str:
    """Hash all that a store holds of a session, but for when and where it was written."""
    uid = row.session.session_uid
    digester = blake2b(digest_size=16)
    # What depends on how it was written: sizes, and the program that put it together.
    of_itself = dict.fromkeys((*_SIZES, "fold"), 0)
    digester.update(_bytes(msgspec.structs.replace(plain(row), **of_itself)))
    digester.update(_bytes([row.session.analyzed_at is None, row.session.evicted_at is None]))
    wanted = only(uid)
    digests = list(store.read_table("digests", wanted))
    for digest in digests:
        digester.update(_bytes({name: value for name, value in digest.items() if name != "at"}))
    for what in ("signals", "spend"):
        digester.update(_bytes(sorted(_bytes(digest) for digest in store.read_table(what, wanted))))
    session = store.load_session(uid)
    if report is not None:
        report.digests += len(digests)
        report.evicted += session is None
    if session is not None:
        _add_session(store, session, digester.update, report)
    return digester.hexdigest()


def _add_session(
    store: Store, session: StoredSession, add: Callable[[bytes], None], report: CopyReport | None
) -> None:
    uid = session.row.session.session_uid
    rows = store.events(uid)
    prints = sorted((row.event.event_id, fingerprint(row, with_ref=False)) for row in rows)
    add(_bytes(prints))
    add(_bytes([sorted(session.replayed), sorted(session.billed), session.ties]))
    for fact in session.facts:
        refs = [block.ref for block in fact.blocks if block.ref is not None]
        blocks = tuple(msgspec.structs.replace(block, ref=None) for block in fact.blocks)
        add(_bytes(msgspec.structs.replace(fact, blocks=blocks)))
        for ref in refs:
            body = store.blobs.read(ref)
            add(blake2b(body, digest_size=16).digest())
            if report is not None:
                report.payloads += 1
                report.bytes += len(body)
    if report is not None:
        report.events += len(prints)


def _bytes(value: Any) -> bytes:
    return msgspec.msgpack.encode(value, order="sorted")
