"""All events of a session in written order, and how its calls went: continued as it grows.

A timeline that was made once takes in new records by the end of the session alone, as long as the
session is not rebuilt. Its lists are copied, never changed: who has one keeps what it saw.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from thence.format.fold import window_of
from thence.format.sealing import View, log_of
from thence.format.whole import events_along, inherited_events
from thence.serve.charts import charts_of
from thence.serve.lines import agents_after, count_agents, last_place
from thence.serve.shelf import Key, key_of

if TYPE_CHECKING:
    from thence.format.fold import FoldState
    from thence.format.normal import SessionEvent
    from thence.format.outcomes import CallOutcome
    from thence.format.whole import Whole
    from thence.memory.store import SessionRow, Store
    from thence.serve.desk import Desk

MAX_EVENTS: Final = 400_000
"""Events of all timelines at hand together."""

Events = Sequence["SessionEvent"]
Lines = tuple[Events, Events]
Outcomes = Mapping[int, "CallOutcome"]


class Timeline:
    """The events of one session at one change of it."""

    def __init__(
        self,
        logs: Mapping[str, Events] | None,
        events: Events,
        lines: Lines,
        outcomes: Outcomes,
        agents: Mapping[str, int],
        *,
        inherited: Lines = ((), ()),
    ) -> None:
        self._logs = logs
        """Events by the file they are in, in written order; None when a file holds several logs."""
        self.events = events
        """All events in written order, what was rewritten away last."""
        self.line, self.seen = lines
        """The whole live line, compacted or not, and the part of it that the model sees."""
        self.outcomes = outcomes
        """How each call went, by the id of its event."""
        self.inherited = inherited
        """What stands before both in the sessions that this one continues."""
        self.agents = agents
        """How many events each subagent has, by its channel."""

    def continued(self, window: Whole, state: FoldState) -> Timeline | None:
        """Return the timeline after new records, by the end of the session alone.

        None when this one does not reach the window, or the session is not of a kind for that.
        """
        anchors = {fact.node.id for fact in state.anchors}
        view = View(window, anchors)
        new = _by_file(view, view.own)
        if self._logs is None or new is None or view.rewritten:
            return None
        if self.inherited[0] and not anchors:
            return None  # a compaction may stand for what was inherited
        logs = dict(self._logs)
        outcomes = dict(self.outcomes)
        for file, later in new.items():
            before = logs.get(file, ())
            joined = _joined(before, later) if before else later
            if joined is None:
                return None
            for event in before[len(joined) - len(later) :]:
                outcomes.pop(event.event_id, None)
            logs[file] = joined
        outcomes |= window.outcomes
        events = list(chain.from_iterable(log for _, log in sorted(logs.items())))
        if len(events) != state.sealed.events + sum(map(len, new.values())):
            return None  # more was written since than the window holds
        lines = []
        for before, boundaries in ((self.line, False), (self.seen, True)):
            places = window.graph.chain(boundaries=boundaries)
            later = [e for e in events_along(window, places) if e.native_id not in anchors]
            joined = _joined(before, later) if anchors else later
            if joined is None:
                return None
            lines.append(joined)
        agents = agents_after(state, window)
        return Timeline(
            logs, events, (lines[0], lines[1]), outcomes, agents, inherited=self.inherited
        )


def timeline_of(whole: Whole) -> Timeline:
    """Return the timeline of a session that was put together."""
    view = View(whole, ())
    logs = None if view.rewritten else _by_file(view, range(len(whole.facts)))
    line, seen = (
        events_along(whole, whole.graph.chain(boundaries=known)) for known in (False, True)
    )
    outcomes = dict(whole.outcomes)
    for part in whole.inherited(boundaries=False):
        outcomes = part.whole.outcomes | outcomes
    inherited = (
        inherited_events(whole, boundaries=False),
        inherited_events(whole, boundaries=True),
    )
    agents = count_agents(whole.events)
    return Timeline(logs, whole.events, (line, seen), outcomes, agents, inherited=inherited)


def _by_file(view: View, places: Sequence[int]) -> dict[str, Events] | None:
    """Return events by the files they are in; None when a file holds more than one log."""
    out: dict[str, list[SessionEvent]] = {}
    logs: dict[str, str] = {}
    for place in places:
        fact = view.whole.facts[place]
        if logs.setdefault(fact.file, log_of(fact)) != log_of(fact):
            return None
        out.setdefault(fact.file, []).extend(view.events[place])
    return dict(out)


def _joined(before: Events, after: Events) -> Events | None:
    """Return a list whose end is replaced by a newer one; None when they do not meet."""
    start = last_place(before, after[0].event_id) if after else None
    return None if start is None else [*before[:start], *after]


class Timelines:
    """The timelines of one desk that are at hand: those used last, up to so many events."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._mutex = threading.Lock()
        self._at_hand: OrderedDict[str, tuple[Key, Timeline]] = OrderedDict()

    def get(self, desk: Desk, row: SessionRow) -> tuple[SessionRow, Timeline]:
        """Return the timeline of a session, and the row that it is of: as new or newer."""
        uid = row.session.session_uid
        with self._mutex:
            known = self._at_hand.get(uid)
            if known is not None:
                self._at_hand.move_to_end(uid)
        if known is not None and known[0] == key_of(row, self._store):
            return row, known[1]
        grown = self._continued(uid, *known) if known is not None else None
        row, made = grown or (row, timeline_of(charts_of(desk).get(desk, row).whole))
        key = key_of(row, self._store)
        with self._mutex:
            self._at_hand[uid] = key, made
            self._at_hand.move_to_end(uid)
            room = MAX_EVENTS - sum(len(one.events) for _, one in self._at_hand.values())
            while room < 0 and len(self._at_hand) > 1:
                room += len(self._at_hand.popitem(last=False)[1][1].events)
        return row, made

    def _continued(
        self, uid: str, key: Key, timeline: Timeline
    ) -> tuple[SessionRow, Timeline] | None:
        """Return a timeline after new records; None when it must be made anew."""
        tail = self._store.tail(uid)
        if tail is None or tail.state is None or tail.state.since > key.change:
            return None
        if key_of(tail.row, self._store)._replace(change=key.change) != key:
            return None
        window = window_of(
            *(uid, tail.state), replayed=tail.replayed, billed=tail.billed, torn=tail.row.torn
        )
        made = timeline.continued(window, tail.state)
        return None if made is None else (tail.row, made)


_ALL: WeakKeyDictionary[Desk, Timelines] = WeakKeyDictionary()
_MUTEX: Final = threading.Lock()


def timelines_of(desk: Desk) -> Timelines:
    """Return the timelines of a desk."""
    with _MUTEX:
        return _ALL.setdefault(desk, Timelines(desk.store))
