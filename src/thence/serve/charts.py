"""Charts at hand: sessions laid out, the ones used last first, as the store has them now.

A chart is made of stored events without their payloads. One that is not at hand and is large is
made when somebody waits for it; whoever only wants to say what a session is need not.
"""

from __future__ import annotations

import threading
from typing import Final
from weakref import WeakKeyDictionary

from thence.memory.readouts import read_end, read_session
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
            lambda: Chart(read_session(desk.store, row, desk.clean)),
            lambda made: max(len(made.records), 1),
        )

    def end(self, uid: str) -> Chart | None:
        """Return the chart of a session's last records, at a cost that does not grow with it.

        None when a session has to be put together to be shown: nothing of it is stored, or not
        in a way that it could be continued.
        """
        end = read_end(self._store, uid)
        return None if end is None else Chart(end.readout, end.state)


_ALL: WeakKeyDictionary[Desk, Charts] = WeakKeyDictionary()
_MUTEX: Final = threading.Lock()


def charts_of(desk: Desk) -> Charts:
    """Give the charts of a desk."""
    with _MUTEX:
        return _ALL.setdefault(desk, Charts(desk))
