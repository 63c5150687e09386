"""The live line of a session, continued as it grows.

A timeline that was made once takes in new records by the end of the session alone, as long as the
session is not rebuilt. Its lists are copied, never changed: who has one keeps what it saw.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from thence.memory.readouts import read_end
from thence.serve.cache import SessionKey, session_key
from thence.serve.chart_cache import charts_of
from thence.serve.event_lines import last_place

if TYPE_CHECKING:
    from thence.format.fold import FoldState
    from thence.format.readout import Readout
    from thence.format.stored import StoredEvent
    from thence.memory.store import SessionRow, Store
    from thence.serve.context import AppContext

MAX_EVENTS: Final = 400_000
"""Events of all timelines at hand together."""

Events = Sequence["StoredEvent"]
Lines = tuple[Events, Events]


class Timeline:
    """The live line of one session at one change of it."""

    def __init__(self, line: Events, seen: Events, *, inherited: Lines = ((), ())) -> None:
        self.line = line
        """All of it, compacted or not."""
        self.seen = seen
        """The part of it that the model sees."""
        self.inherited = inherited
        """What stands before both in the sessions that this one continues."""

    def extend(self, window: Readout, state: FoldState) -> Timeline | None:
        """Return the timeline after new records, by the end of the session alone.

        None when this one does not reach the window.
        """
        anchors = {fact.node.id for fact in state.anchors}
        if self.inherited[0] and not anchors:
            return None  # a compaction may stand for what was inherited
        lines = []
        for before, boundaries in ((self.line, False), (self.seen, True)):
            places = window.graph.chain(boundaries=boundaries)
            later = [row for row in window.along(places) if row.event.native_id not in anchors]
            joined = _join(before, later) if anchors else later
            if joined is None:
                return None
            lines.append(joined)
        return Timeline(lines[0], lines[1], inherited=self.inherited)


def timeline_of(session: Readout) -> Timeline:
    """Return the timeline of a session."""
    line = session.along(session.graph.chain(boundaries=False))
    seen = session.along(session.graph.chain(boundaries=True))
    inherited = (
        session.inherited_events(boundaries=False),
        session.inherited_events(boundaries=True),
    )
    return Timeline(line, seen, inherited=inherited)


def _join(before: Events, after: Events) -> Events | None:
    """Return a list whose end is replaced by a newer one; None when they do not meet."""
    start = last_place(before, after[0].event.event_id) if after else None
    return None if start is None else [*before[:start], *after]


class Timelines:
    """The timelines of one context that are at hand: those used last, up to so many events."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._mutex = threading.Lock()
        self._at_hand: OrderedDict[str, tuple[SessionKey, Timeline]] = OrderedDict()

    def get(self, context: AppContext, row: SessionRow) -> tuple[SessionRow, Timeline]:
        """Return the timeline of a session, and the row that it is of: as new or newer."""
        uid = row.session.session_uid
        with self._mutex:
            known = self._at_hand.get(uid)
            if known is not None:
                self._at_hand.move_to_end(uid)
        if known is not None and known[0] == session_key(row, self._store):
            return row, known[1]
        grown = self._extend(uid, *known) if known is not None else None
        row, made = grown or (row, timeline_of(charts_of(context).get(context, row).session))
        key = session_key(row, self._store)
        with self._mutex:
            self._at_hand[uid] = key, made
            self._at_hand.move_to_end(uid)
            room = MAX_EVENTS - sum(len(timeline.line) for _, timeline in self._at_hand.values())
            while room < 0 and len(self._at_hand) > 1:
                room += len(self._at_hand.popitem(last=False)[1][1].line)
        return row, made

    def _extend(
        self, uid: str, key: SessionKey, timeline: Timeline
    ) -> tuple[SessionRow, Timeline] | None:
        """Return a timeline after new records; None when it must be made anew."""
        end = read_end(self._store, uid, since=key.change)
        if end is None or session_key(end.row, self._store)._replace(change=key.change) != key:
            return None
        made = timeline.extend(end.readout, end.state)
        return None if made is None else (end.row, made)


def timelines_of(context: AppContext) -> Timelines:
    """Return the timelines of a context."""
    return context.cached(Timelines, lambda: Timelines(context.store))
