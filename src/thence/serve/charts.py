"""Charts at hand: sessions laid out, the ones used last first, as the store has them now.

A chart is made of the facts without their payloads, which takes a fraction of the time and of the
room of the whole session. One that is not at hand and is large is made when somebody waits for
it; whoever only wants to say what a session is need not.
"""

from __future__ import annotations

import threading
from typing import Final
from weakref import WeakKeyDictionary

from thence.format.fold import window_of
from thence.memory.recall import body
from thence.memory.store import SessionRow
from thence.serve.chart import Chart
from thence.serve.desk import Desk
from thence.serve.shelf import Shelf, key_of

ROOM: Final = 400_000
"""Events of all charts at hand together."""

LARGE: Final = 4_000
"""Events from which a session takes a while to be laid out."""


class Charts:
    """The charts of one desk."""

    def __init__(self, desk: Desk, room: int = ROOM) -> None:
        """Lay out sessions of a desk."""
        # The desk holds on to us, not we to it.
        self._store = desk.store
        self._shelf: Shelf[Chart] = Shelf(room, largest=True)

    def at_hand(self, row: SessionRow) -> bool:
        """Whether a session can be shown at once."""
        return row.events < LARGE or key_of(row, self._store) in self._shelf

    def get(self, desk: Desk, row: SessionRow) -> Chart:
        """Give the chart of a session, from the store or from its source."""
        return self._shelf.get(
            key_of(row, self._store),
            lambda: self._made(desk, row),
            lambda made: max(len(made.facts), 1),
        )

    def end(self, uid: str) -> Chart | None:
        """Return the chart of a session's last records, at a cost that does not grow with it.

        None when a session has to be put together to be shown: nothing of it is stored, or not
        in a way that it could be continued.
        """
        tail = self._store.tail(uid)
        if tail is None or tail.state is None:
            return None
        whole = window_of(
            *(uid, tail.state), replayed=tail.replayed, billed=tail.billed, torn=tail.row.torn
        )
        blobs = self._store.blobs
        return Chart(whole, lambda ref: body(blobs, ref), tail.state)

    def inherited(self, chart: Chart) -> list[tuple[Chart, list[int]]]:
        """Return the charts of the sessions that one continues, and the places of its line."""
        blobs = self._store.blobs
        return [
            (Chart(part.whole, lambda ref: body(blobs, ref)), part.places)
            for part in chart.whole.inherited()
        ]

    def _made(self, desk: Desk, row: SessionRow) -> Chart:
        blobs = self._store.blobs
        whole = desk.light(row)
        if whole is None:
            return Chart(desk.whole(row).whole)
        return Chart(whole, lambda ref: body(blobs, ref))


_ALL: WeakKeyDictionary[Desk, Charts] = WeakKeyDictionary()
_MUTEX: Final = threading.Lock()


def charts_of(desk: Desk) -> Charts:
    """Give the charts of a desk."""
    with _MUTEX:
        return _ALL.setdefault(desk, Charts(desk))
