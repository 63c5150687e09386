"""Charts at hand: sessions laid out, the ones used last first, as the store has them now.

A chart is made of the facts without their payloads, which takes a fraction of the time and of the
room of the whole session. One that is not at hand and is large is made when somebody waits for
it; whoever only wants to say what a session is need not.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from thence.format.whole import Whole
from thence.memory.spelling import load
from thence.memory.store import SessionRow
from thence.serve.chart import Chart
from thence.serve.desk import Desk

ROOM: Final = 400_000
"""Events of all charts at hand together."""

LARGE: Final = 4_000
"""Events from which a session takes a while to be laid out."""


class _Key(NamedTuple):
    uid: str
    change: int
    evicted: str | None


class Charts:
    """The charts of one desk."""

    def __init__(self, desk: Desk, room: int = ROOM) -> None:
        """Lay out sessions of a desk."""
        # The desk holds on to us, not we to it.
        self._store = desk.store
        self._room = room
        self._mutex = threading.Lock()
        self._held: OrderedDict[_Key, tuple[int, Chart]] = OrderedDict()
        self._used = 0
        self._making: dict[str, threading.Lock] = {}

    def at_hand(self, row: SessionRow) -> bool:
        """Whether a session can be shown at once."""
        if row.events < LARGE:
            return True
        with self._mutex:
            return _key(row) in self._held

    def get(self, desk: Desk, row: SessionRow) -> Chart:
        """Give the chart of a session, from the store or from its source."""
        key = _key(row)
        with self._mutex:
            mutex = self._making.setdefault(key.uid, threading.Lock())
        with mutex:
            found = self._find(key)
            if found is None:
                found = self._made(desk, row)
                self._put(key, max(len(found.facts), 1), found)
        return found

    def _made(self, desk: Desk, row: SessionRow) -> Chart:
        uid, blobs = row.session.session_uid, self._store.blobs
        held = self._store.held(uid) if row.session.evicted_at is None else None
        if held is None:
            return Chart(desk.whole(row).whole)
        whole = Whole(
            uid, held.facts, replayed=held.replayed, billed=held.billed, torn=held.row.torn
        )
        return Chart(whole, lambda ref: load(blobs.read(ref)))

    def _find(self, key: _Key) -> Chart | None:
        with self._mutex:
            found = self._held.get(key)
            if found is None:
                return None
            self._held.move_to_end(key)
            return found[1]

    def _put(self, key: _Key, size: int, made: Chart) -> None:
        with self._mutex:
            for old in [one for one in self._held if one.uid == key.uid]:
                self._used -= self._held.pop(old)[0]
            self._held[key] = size, made
            self._used += size
            while self._used > self._room and len(self._held) > 1:
                gone, (less, _) = self._held.popitem(last=False)
                self._used -= less
                self._making.pop(gone.uid, None)


def _key(row: SessionRow) -> _Key:
    return _Key(row.session.session_uid, row.change, row.session.evicted_at)


_ALL: WeakKeyDictionary[Desk, Charts] = WeakKeyDictionary()
_MUTEX: Final = threading.Lock()


def charts_of(desk: Desk) -> Charts:
    """Give the charts of a desk."""
    with _MUTEX:
        return _ALL.setdefault(desk, Charts(desk))
