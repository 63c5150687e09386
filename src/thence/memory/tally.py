"""What a digest counts with, as plain data that can be stored and continued.

The parts of a session are counted in any order of its logs: what is first and last is decided by
where records stand, never by when they were counted.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import msgspec

from thence.format import derived_events
from thence.format.normal import SessionEvent

Place = tuple[str, int, int]
"""Where an event stands: file, line and block."""

MAX_POINTERS: Final = 12
"""Events that are named at most where many show the same."""

_Item = TypeVar("_Item")


class Pointers(msgspec.Struct, omit_defaults=True):
    """Events that show something: how many, the first of them and the last."""

    count: int = 0
    firsts: list[tuple[Place, int, str | None]] = []
    """Place, id and time."""
    last: tuple[Place, int] | None = None

    def add(self, place: Place, event: SessionEvent) -> None:
        """Count one event more."""
        self.count += 1
        if self.last is None or place >= self.last[0]:
            self.last = place, event.event_id
        insort(self.firsts, (place, event.event_id, event.ts), key=lambda first: first[0])
        del self.firsts[MAX_POINTERS:]

    @property
    def first(self) -> tuple[Place, int, str | None]:
        """The first of them."""
        return self.firsts[0]

    @property
    def ids(self) -> tuple[int, ...]:
        """The first ones, and the last in any case."""
        ids = [event for _, event, _ in self.firsts]
        if self.last is not None and self.count > MAX_POINTERS:
            ids[-1] = self.last[1]
        return tuple(ids)

    @property
    def ts(self) -> str | None:
        """When the first was written, if that is a time."""
        ts = self.first[2]
        return ts if derived_events.time_of(ts) is not None else None


def point_at(*events: SessionEvent) -> Pointers:
    """Return pointers to events in the order in which they are named."""
    out = Pointers()
    for at, event in enumerate(events):
        out.add(("", at, 0), event)
    return out


def best(items: Iterable[_Item], most: int, rank: Callable[[_Item], Any]) -> list[_Item]:
    """Return the items that rank first; of equal ones those that come first."""
    return sorted(items, key=rank)[:most]
