"""The durable account of a session: small, deterministic, made without asking any model.

`digest` puts together what the digesters tell of a session and what hangs on it: signals, and rows
of derived events. Those installed are found through the entry point group `thence.digesters`; the
built-in one, which gives the `Digest` of `account`, comes through the same door. Another one adds
its part under `more`. One that fails costs its own part, told with the reason, never the digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Final, Protocol, runtime_checkable

import msgspec

from thence.errors import BadConfig
from thence.format.records import JSON
from thence.format.whole import Whole
from thence.memory.account import account
from thence.memory.course import Course, short
from thence.memory.keep import event_row
from thence.memory.outcome import TASKS, TaskPattern
from thence.memory.signals import Signal, signals
from thence.memory.store import Digested, SessionRow

GROUP: Final = "thence.digesters"


class Part(msgspec.Struct):
    """What a digester has to say about one session."""

    digest: dict[str, JSON]
    signals: list[Signal] = []


@runtime_checkable
class Digester(Protocol):
    """Tells something of a session that is worth keeping; pure, and quick."""

    name: str

    def digest(self, course: Course, row: SessionRow) -> Part:
        """Tell it. What comes back is kept as it is: quote only what the course holds."""
        ...


class BuiltIn:
    """The digester that makes the digest itself."""

    name = "thence"

    def __init__(self, tasks: Iterable[TaskPattern] = TASKS) -> None:
        self._tasks = tuple(tasks)

    def digest(self, course: Course, row: SessionRow) -> Part:
        """Tell all that `Digest` has room for, and the signals."""
        told: dict[str, JSON] = msgspec.to_builtins(account(course, row, tasks=self._tasks))
        return Part(told, signals(course))


@cache
def digesters() -> Mapping[str, Digester]:
    """Find all digesters that are installed, by name."""
    out: dict[str, Digester] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda p: (p.name, p.value)):
        try:
            made = point.load()()
        except (ImportError, AttributeError) as error:
            message = f"the digester {point.name} ({point.value}) cannot be loaded: {error}"
            raise BadConfig(message, hint="install its package anew, or uninstall it") from error
        if not isinstance(made, Digester):
            message = f"the digester {point.name} ({point.value}) lacks a method of the protocol"
            raise BadConfig(message, hint="it needs a name and digest(course, row)")
        out[made.name] = made
    return out


def digest(
    whole: Whole,
    row: SessionRow,
    *,
    tasks: Iterable[TaskPattern] = TASKS,
    others: Mapping[str, Digester] | None = None,
) -> Digested:
    """Give the digest of a session, its payloads at hand."""
    course = Course(whole)
    known = digesters() if others is None else others
    tasks = tuple(tasks)
    own = known.get(BuiltIn.name) if tasks == TASKS else None
    part = (own or BuiltIn(tasks)).digest(course, row)
    told, found = part.digest, list(part.signals)
    for name, other in known.items():
        if name != BuiltIn.name:
            more = _asked(other, course, row)
            told.setdefault("more", {})[name] = more.digest
            found += more.signals
    return Digested(
        whole.uid,
        row.change,
        told,
        [msgspec.to_builtins(signal) for signal in found],
        [event_row(event) for event in whole.derived],
        outcome=told.get("outcome", "unknown"),
        task_ref=told.get("task_ref"),
        title=told.get("title"),
    )


def _asked(other: Digester, course: Course, row: SessionRow) -> Part:
    try:
        return other.digest(course, row)
    except Exception as error:  # noqa: BLE001 - somebody else's code must not cost the digest
        return Part({"failed": short(repr(error), 300)})
