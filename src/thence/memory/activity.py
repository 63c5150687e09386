"""How busy sessions were: their events over their time, counted in equal parts.

A store that can count them itself does so (`Paced`); for any other they are counted from what it
holds. Evicted sessions have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, Protocol, runtime_checkable

import msgspec

from thence.format.normal import KINDS
from thence.memory.store import Store

PARTS: Final = 24
"""Equal parts of a session's time."""

PAUSE_MS: Final = 30 * 60_000
"""A longer time without an event is no work."""

ERROR: Final = KINDS.index("error")
"""How rows of events spell an error."""


class Pulse(msgspec.Struct, frozen=True):
    """What a session did, part by part: how many events, and how many of them errors."""

    events: tuple[int, ...]
    errors: tuple[int, ...]
    working_ms: int = 0
    """Time in which something went on: pauses of more than `PAUSE_MS` are left out."""


@runtime_checkable
class Paced(Protocol):
    """A store that counts the events of a session by itself."""

    def paces(self, uid: str) -> Sequence[tuple[int, int]]:
        """Give time in milliseconds and kind of every event of a session, in any order."""
        ...


def pulse(store: Store, uid: str, parts: int = PARTS) -> Pulse | None:
    """Count the events of a session; None when nothing is held of it."""
    if isinstance(store, Paced):
        paces = store.paces(uid)
    else:
        held = store.held(uid)
        paces = [(seen.ts, seen.kind) for seen in held.events.values()] if held else []
    timed = [(ts, kind) for ts, kind in paces if ts > 0]
    if not timed:
        return None
    first, last = min(timed)[0], max(timed)[0]
    room = last - first + 1
    events, errors = [0] * parts, [0] * parts
    for ts, kind in timed:
        at = (ts - first) * parts // room
        if kind == ERROR:
            errors[at] += 1
        else:
            events[at] += 1
    times = sorted(ts for ts, _ in timed)
    working = sum(gap for a, b in pairwise(times) if (gap := b - a) <= PAUSE_MS)
    return Pulse(tuple(events), tuple(errors), working)
