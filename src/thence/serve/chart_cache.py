"""Charts at hand: sessions laid out, the ones used last first, as the store has them now.

A chart is made of stored events without their payloads. One that is not at hand and is large is
made when somebody waits for it; whoever only wants to say what a session is need not.
"""

from __future__ import annotations

from typing import Final

from thence.memory.readouts import read_end, read_session
from thence.memory.store import SessionRow
from thence.serve.cache import LruCache, session_key
from thence.serve.chart import Chart
from thence.serve.context import AppContext

MAX_CACHED_EVENTS: Final = 400_000
"""Events of all cached charts together."""

LARGE_SESSION_EVENTS: Final = 4_000
"""A session with at least this many events takes a while to lay out."""


class Charts:
    """The charts of one context."""

    def __init__(self, context: AppContext, room: int = MAX_CACHED_EVENTS) -> None:
        """Cache the charts of sessions of a context."""
        # The context holds on to us, not we to it.
        self._store = context.store
        self._cache: LruCache[Chart] = LruCache(room, largest=True)

    def at_hand(self, row: SessionRow) -> bool:
        """Whether a session can be shown without delay."""
        return row.events < LARGE_SESSION_EVENTS or session_key(row, self._store) in self._cache

    def get(self, context: AppContext, row: SessionRow) -> Chart:
        """Return the chart of a session, from the store or from its source."""
        return self._cache.get(
            session_key(row, self._store),
            lambda: Chart(read_session(context.store, row, context.clean)),
            lambda made: max(len(made.records), 1),
        )

    def end(self, uid: str) -> Chart | None:
        """Return the chart of a session's last records, at a cost that does not grow with it.

        None when a session has to be put together to be shown: nothing of it is stored, or not
        in a way that it could be continued.
        """
        end = read_end(self._store, uid)
        return None if end is None else Chart(end.readout, end.state)


def charts_of(context: AppContext) -> Charts:
    """Return the charts of a context."""
    return context.cached(Charts, lambda: Charts(context))
