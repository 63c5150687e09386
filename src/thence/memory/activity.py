"""How busy sessions were: their events over their time, counted in equal parts.

A store that can list their times alone does so (`TimedStore`). Evicted sessions have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, Protocol, runtime_checkable

import msgspec

from thence.format.normal import KINDS, kind_bit
from thence.memory.pages import thin_row
from thence.memory.store import Store

PULSE_PARTS: Final = 24
"""Equal parts of a session's time."""

MAX_PAUSE_MS: Final = 30 * 60_000
"""A longer time without an event is no work."""

ERROR: Final = KINDS.index("error")
IMPLIES_ERROR: Final = kind_bit("error")
"""How rows of events spell an error, and that one is derived from them."""


class Pulse(msgspec.Struct, frozen=True):
    """What a session did, part by part: how many events, and how many of them errors."""

    events: tuple[int, ...]
    errors: tuple[int, ...]
    working_ms: int = 0
    """Time in which something went on: pauses of more than `MAX_PAUSE_MS` are left out."""


@runtime_checkable
class TimedStore(Protocol):
    """A store that lists the times of events without all else that it knows of them."""

    def paces(self, uid: str) -> Sequence[tuple[int, int, int]]:
        """Return time in milliseconds, kind and derived kinds of every event, in any order."""


def pulse(store: Store, uid: str, parts: int = PULSE_PARTS) -> Pulse | None:
    """Count the events of a session; None when nothing is held of it."""
    if isinstance(store, TimedStore):
        paces = store.paces(uid)
    else:
        rows = map(thin_row, store.events(uid))
        paces = [(row.ts, row.kind, row.implied) for row in rows]
    timed = [pace for pace in paces if pace[0] > 0]
    if not timed:
        return None
    first, last = min(timed)[0], max(timed)[0]
    room = last - first + 1
    events, errors = [0] * parts, [0] * parts
    for ts, kind, implied in timed:
        at = (ts - first) * parts // room
        derived = implied.bit_count()
        wrong = (kind == ERROR) + bool(implied & IMPLIES_ERROR)
        errors[at] += wrong
        events[at] += 1 + derived - wrong
    times = sorted(ts for ts, *_ in timed)
    working = sum(gap for a, b in pairwise(times) if (gap := b - a) <= MAX_PAUSE_MS)
    return Pulse(tuple(events), tuple(errors), working)
