"""The durable account of a session: small, deterministic, made without asking any model.

`digest` puts together what the digesters tell of a session and what hangs on it: signals, and rows
of derived events. Those installed are found through the entry point group `thence.digesters`; the
built-in one, which gives the `Digest` of `account`, comes through the same door. Another one adds
its part under `more`. One that fails, or says what no store can hold, costs its own part, told with
the reason, never the digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import msgspec

from thence.agents.packages import (
    ForeignFailure,
    entry_points,
    foreign,
    is_ours,
    note_problem,
    others_offer,
)
from thence.errors import BadConfig
from thence.format.readout import Readout
from thence.format.records import JSON
from thence.format.whole import SessionGraph
from thence.memory.account import account
from thence.memory.course import SessionTimeline
from thence.memory.outcome import TASKS, TaskPattern
from thence.memory.readouts import readout_of
from thence.memory.signals import Signal, signals
from thence.memory.store import DigestRecord, SessionRow

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

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
        ...


class BuiltIn:
    """The digester that makes the digest itself."""

    name = "thence"

    def __init__(self, tasks: Iterable[TaskPattern] = TASKS) -> None:
        self._tasks = tuple(tasks)

    def digest(self, timeline: SessionTimeline, row: SessionRow) -> DigestPart:
        """Tell all that `Digest` has room for, and the signals."""
        fields: dict[str, JSON] = msgspec.to_builtins(account(timeline, row, tasks=self._tasks))
        return DigestPart(fields, signals(timeline))


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


def digest(
    session: Readout | SessionGraph,
    row: SessionRow,
    *,
    tasks: Iterable[TaskPattern] | None = None,
    others: Mapping[str, Digester] | None = None,
) -> DigestRecord:
    """Return the digest of a session, its payloads at hand."""
    session = readout_of(session) if isinstance(session, SessionGraph) else session
    timeline = SessionTimeline(session)
    known = digesters() if others is None else others
    tasks = TASKS if tasks is None else tuple(tasks)
    own = known.get(BuiltIn.name) if tasks == TASKS else None
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
    )


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
