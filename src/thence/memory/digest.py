"""The durable account of a session: small, deterministic, made without asking any model.

`digest` puts together what the digesters tell of a session and what hangs on it: signals, and rows
of derived events. A session that grew is digested from where its last digest was
(`digest_stored`): what it counts of records that nothing can change any more is stored. Those
installed are found through the entry point group `thence.digesters`; the
built-in one, which gives the `Digest` of `account`, comes through the same door. Another one adds
its part under `more`. One that fails, or says what no store can hold, costs its own part, told with
the reason, never the digest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import msgspec
import zstandard

from thence.agents.packages import (
    ForeignFailure,
    entry_points,
    foreign,
    is_ours,
    note_problem,
    others_offer,
)
from thence.errors import BadConfig
from thence.format.facts import Fact
from thence.format.readout import Readout, anchor_events
from thence.format.records import JSON
from thence.format.session_graph import SessionGraph
from thence.memory import derivation
from thence.memory.account import DigestTally, account
from thence.memory.outcome import TASKS, TaskPattern
from thence.memory.readouts import (
    just_read,
    read_for_digest,
    read_piece,
    read_since_digest,
    readout_of,
)
from thence.memory.session_timeline import SessionTimeline
from thence.memory.signals import Signal, signals
from thence.memory.store import DigestRecord, SessionRow

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from thence.format.fold import Delta, FoldState
    from thence.format.stored import StoredEvent
    from thence.memory.packs import BlobStore
    from thence.memory.store import SessionChange, Store

GROUP: Final = "thence.digesters"
FAILED: Final = "failed"
"""The only key of the part of a digester that failed; its value is the reason."""


class DigestPart(msgspec.Struct):
    """What a digester has to say about one session."""

    digest: dict[str, JSON]
    signals: list[Signal] = []


@runtime_checkable
class Digester(Protocol):
    """Tells something of a session that is worth keeping; pure, and quick."""

    name: str

    def digest(self, timeline: SessionTimeline, row: SessionRow) -> DigestPart:
        """Tell it. What comes back is kept as it is: quote only what the timeline holds."""


class BuiltIn:
    """The digester that makes the digest itself."""

    name = "thence"

    def __init__(self, tasks: Iterable[TaskPattern] = TASKS) -> None:
        self._tasks = tuple(tasks)

    def digest(self, timeline: SessionTimeline, row: SessionRow) -> DigestPart:
        """Return all that `Digest` has room for, and the signals."""
        tally = DigestTally()
        tally.add(timeline, self._tasks)
        return self.digest_tally(tally, timeline, row)

    def digest_tally(
        self, tally: DigestTally, timeline: SessionTimeline, row: SessionRow
    ) -> DigestPart:
        """Return the same of a session that was counted; `timeline` is its end."""
        made = account(timeline, row, tasks=self._tasks, tally=tally)
        return DigestPart(msgspec.to_builtins(made), signals(timeline, tally.signals))


@cache
def digesters(wanted: tuple[str, ...] | None = None) -> Mapping[str, Digester]:
    """Return all digesters that are installed, by name; or ours and those that are `wanted`.

    A wanted one is named as its package names it, or by where it is: `package.module:Class`. One
    that cannot be loaded or has the name of another is left out and noted (`packages.problems`).
    """
    if not wanted and not others_offer(GROUP):
        return {BuiltIn.name: BuiltIn()}
    points = entry_points(GROUP)
    if wanted is not None:
        points = [point for point in points if point.name == BuiltIn.name] + [
            _point(name, points) for name in wanted if name != BuiltIn.name
        ]
    out: dict[str, Digester] = {}
    for point in sorted(points, key=lambda point: not is_ours(point)):
        try:
            with foreign():
                if not is_ours(point):
                    from thence.agents.guard import try_import

                    try_import(point)  # in this process it could not be stopped
                made = point.load()()
                if not isinstance(made, Digester) or not isinstance(made.name, str):
                    raise TypeError("it lacks a name or digest(timeline, row)")
                if made.name in out:
                    raise TypeError(f"another digester is called {made.name}")
                out[made.name] = made
        except ForeignFailure as error:
            note_problem(point, str(error))
    return out


def _point(name: str, installed: Iterable[EntryPoint]) -> EntryPoint:
    if ":" in name:
        from importlib.metadata import EntryPoint

        return EntryPoint(name, name, GROUP)
    for point in installed:
        if point.name == name:
            return point
    known = ", ".join(point.name for point in installed)
    message = f"session_memory.digesters: no digester {name!r} is installed"
    raise BadConfig(message, hint=f"installed: {known}; or write package.module:Class")


class DigestState(msgspec.Struct, omit_defaults=True):
    """What the digest of a session goes on from: all that is counted of its sealed records.

    Of the others it has the ids only; they are read again.
    """

    version: int
    tasks: tuple[TaskPattern, ...]
    since: int
    """The change in which the session was last rebuilt; after another one this is of no use."""
    window: list[int]
    """Events that were not sealed."""
    anchors: list[Fact]
    """Per log the sealed record that these continue."""
    tally: DigestTally


class StateMissing(Exception):
    """The end of a session does not show how it ended; its digest needs all of it."""


_STATE = msgspec.msgpack.Decoder(DigestState)


def pack_state(state: DigestState) -> bytes:
    """Return a state as a store keeps it."""
    return zstandard.ZstdCompressor(level=1).compress(msgspec.msgpack.encode(state))


def unpack_state(body: bytes, since: int, tasks: Iterable[TaskPattern]) -> DigestState | None:
    """Return a state that was packed; None if the session's digest cannot go on from it."""
    try:
        state = _STATE.decode(zstandard.ZstdDecompressor().decompress(body))
    except (msgspec.DecodeError, zstandard.ZstdError):  # of another version
        return None
    known = (derivation.DIGEST_VERSION, since, tuple(tasks))
    return state if (state.version, state.since, state.tasks) == known else None


def digest_stored(
    store: Store,
    row: SessionRow,
    *,
    tasks: tuple[TaskPattern, ...] | None,
    others: Mapping[str, Digester] | None,
) -> DigestRecord:
    """Return the digest of a stored session, from its last digest on where the store has a state.

    The cost then follows what is new. The digesters of other packages see all of a session.
    """
    uid = row.session.session_uid
    tasks = TASKS if tasks is None else tasks
    tail, known = store.tail(uid), digesters() if others is None else others
    fold = tail.state if tail is not None and not tail.row.carried_change else None
    if fold is not None and known.keys() <= {BuiltIn.name}:
        body = store.digest_state(uid)
        before = unpack_state(body, fold.since, tasks) if body is not None else None
        if before is not None:
            session = read_since_digest(store, row, before.anchors, before.window)
            with contextlib.suppress(StateMissing):
                return digest(session, row, tasks=tasks, others=others, fold=fold, before=before)
    return digest(read_for_digest(store, row), row, tasks=tasks, others=others, fold=fold)


class PieceDigest:
    """Digests a session that is read from its start, piece by piece, each while it is in memory."""

    def __init__(
        self,
        blobs: BlobStore,
        tasks: tuple[TaskPattern, ...] | None,
        others: Mapping[str, Digester] | None,
    ) -> None:
        self._blobs = blobs
        self._tasks = TASKS if tasks is None else tasks
        self._others = digesters() if others is None else others
        self._is_begun = False
        self._state: bytes | None = None
        self._anchors: list[tuple[Fact, StoredEvent]] = []

    def add(
        self, change: SessionChange, delta: Delta, fold: FoldState | None, *, is_last: bool
    ) -> DigestRecord | None:
        """Return the digest of the session up to the end of this piece.

        None where only all of the session shows it: then it is digested once it is stored.
        """
        before, (body, self._state) = None, (self._state, None)
        if not is_last and (fold is None or not self._others.keys() <= {BuiltIn.name}):
            self._is_begun = True
            return None
        if not self._is_begun:
            session = just_read(change, delta)
        elif body is None or fold is None:
            return None
        else:
            before = unpack_state(body, fold.since, self._tasks)
            if before is None:
                return None
            session = read_piece(self._blobs, change.row, delta, self._anchors)
        self._is_begun = True
        tasks, others = self._tasks, self._others
        made = digest(session, change.row, tasks=tasks, others=others, fold=fold, before=before)
        if not is_last and fold is not None:
            self._state = made.state
            rows = {row.event.event_id: row for row in session.rows}
            places = ((f, at) for f in fold.anchors for at in anchor_events(session.uid, [f]))
            self._anchors = [(fact, rows[at]) for fact, at in places if at in rows]
        return made


def digest(
    session: Readout | SessionGraph,
    row: SessionRow,
    *,
    tasks: Iterable[TaskPattern] | None = None,
    others: Mapping[str, Digester] | None = None,
    fold: FoldState | None = None,
    before: DigestState | None = None,
) -> DigestRecord:
    """Return the digest of a session, its payloads at hand.

    With the state of its `fold` the record has the state from which the next digest goes on.
    `before` is such a state: then `session` is the end that it has not counted. Raises
    `StateMissing` when that end does not suffice.
    """
    session = readout_of(session) if isinstance(session, SessionGraph) else session
    timeline = SessionTimeline(session)
    known = digesters() if others is None else others
    tasks = TASKS if tasks is None else tuple(tasks)
    own = known.get(BuiltIn.name) if tasks == TASKS else None
    state = None
    if fold is not None and (own is None or type(own) is BuiltIn):
        state, tally, end = _count_parts(timeline, fold, tasks, before)
        part = BuiltIn(tasks).digest_tally(tally, end, row)
    else:
        part = (own or BuiltIn(tasks)).digest(timeline, row)
    fields, signals = part.digest, list(part.signals)
    for name, other in known.items():
        if name != BuiltIn.name:
            more = _digest_foreign(other, timeline, row)
            fields.setdefault("more", {})[name] = more.digest
            signals += more.signals
    return DigestRecord(
        session.uid,
        row.change,
        fields,
        [msgspec.to_builtins(signal) for signal in signals],
        outcome=fields.get("outcome", "unknown"),
        task_ref=fields.get("task_ref"),
        title=fields.get("title"),
        state=state,
    )


def _count_parts(
    timeline: SessionTimeline,
    fold: FoldState,
    tasks: tuple[TaskPattern, ...],
    before: DigestState | None,
) -> tuple[bytes | None, DigestTally, SessionTimeline]:
    """Count a session: its sealed records, then the rest.

    Returns what is to be stored of the sealed ones, all that was counted, and the rest. What the
    state `before` has counted is not counted again.
    """
    session = timeline.session
    tally = before.tally if before is not None else DigestTally()
    counted = {fact.node.id for fact in before.anchors} if before is not None else set()
    window = fold.rows
    sealed: set[int] = set()
    left: set[int] = set()
    for event in session.events:
        if event.native_id not in counted:
            (left if event.event_id in window else sealed).add(event.event_id)
    if not sealed and before is None:  # as of most sessions
        tally.add(timeline, tasks)
        return None, tally, timeline
    if sealed:
        tally.add(SessionTimeline(session, sealed), tasks)
    known = (derivation.DIGEST_VERSION, tasks, fold.since, list(window), fold.anchors, tally)
    state = pack_state(DigestState(*known))
    end = SessionTimeline(session, left)
    tally.add(end, tasks)
    if not end.spoken:  # how it ended was said before
        if before is not None:
            raise StateMissing
        end = timeline
    return state, tally, end


def _digest_foreign(other: Digester, timeline: SessionTimeline, row: SessionRow) -> DigestPart:
    try:
        with foreign():
            part = msgspec.to_builtins(other.digest(timeline, row))
            msgspec.msgpack.encode(part)
            return msgspec.convert(part, DigestPart)
    except ForeignFailure as error:
        return DigestPart({FAILED: str(error)})


def note_failures(made: DigestRecord) -> None:
    """Note the digesters of other packages that failed at a session."""
    more = made.digest.get("more") or {}
    failed = {name: part[FAILED] for name, part in more.items() if part.keys() == {FAILED}}
    if not failed:
        return
    from importlib.metadata import EntryPoint

    points = {point.name: point for point in entry_points(GROUP)}
    for name, why in failed.items():
        note_problem(points.get(name) or EntryPoint(name, name, GROUP), why)
