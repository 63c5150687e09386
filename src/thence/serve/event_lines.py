"""The line of a session as a client follows it, and what a client that has some of it needs.

A client sees what stands on the live line: no discarded branch, no books, and no call without its
result as long as that may still come; such calls, and a text that is still being written, are
*pending*, and told apart. Where a client stands is a mark: its last event, how many there were,
and a check over all of them. A mark says by itself whether the client has the beginning of a
line, so that nobody has to remember clients, and a server that was started anew can go on.

Invariant: who follows `StreamUpdate`s from a mark has, after each, exactly the line as it was then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import copy
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from thence.format.turn import TurnState
from thence.memory.recall import place_of

if TYPE_CHECKING:
    from thence.format.fold import FoldState
    from thence.format.readout import Readout
    from thence.format.stored import StoredEvent

_MARK = re.compile(r"([0-9a-f]{13})-([0-9]{1,9})-([0-9a-f]{8})")
_NEAR_END = 1000  # events at the end of a line among which a window begins
_GOES_ON = frozenset({"user_msg", "assistant_msg", "thinking"})


class StreamPosition(NamedTuple):
    """Where a client stands: its last event, how many it has, and a check over all of them."""

    end: int = 0
    number: int = 0
    check: int = 0

    def __str__(self) -> str:
        """Return it as the id of a server-sent event."""
        return f"{self.end:013x}-{self.number}-{self.check:08x}"

    @classmethod
    def read(cls, text: str) -> StreamPosition | None:
        """Read one back; None when it is none."""
        match = _MARK.fullmatch(text)
        if match is None:
            return None
        return cls(int(match[1], 16), int(match[2]), int(match[3], 16))


class StreamUpdate(NamedTuple):
    """What a client must do: go back to so many events, then take these."""

    back_to: int | None
    """None when it has the beginning of the line, and only goes on."""
    start: int
    """The place of the first event that it lacks."""


class EventLine:
    """The line of one session at one moment: the live one, or that of the branch `via` an event."""

    def __init__(self, session: Readout, via: str | None = None, *, own: bool = False) -> None:
        """Lay out a line; with `own` without the sessions that this one continues."""
        self._load: Callable[[], Readout] = lambda: session
        self._own = own
        end = None if via is None else session.graph.end_from(place_of(session, via))
        self._all = self._events_to(session, end)
        self.shared = 0
        """Events that are the same as those of the line which this one continues."""
        self.ids: list[int] = []
        """The ids of the events that a client has when it is up to date."""
        self._checks = [0]
        """A check over the first so many events, for each number of them."""
        self._divide(session, 0)

    def _events_to(self, session: Readout, end: int | None) -> list[StoredEvent]:
        """Return the events of a line; those of the sessions that it continues come first."""
        before = [] if self._own else session.inherited_events(end, boundaries=False)
        return before + session.along(session.graph.chain(end, boundaries=False))

    def extend(
        self, window: Readout, state: FoldState, load: Callable[[], Readout]
    ) -> EventLine | None:
        """Return the live line after new records, by the end of the session alone.

        `window` is the session from the sealed part on, as its fold has it; `load` returns all of
        it, for clients that stand on a branch. None when this line does not reach the window.
        """
        anchors = {fact.node.id for fact in state.anchors}
        chain = window.graph.chain(boundaries=False)
        new = [row for row in window.along(chain) if row.event.native_id not in anchors]
        start = last_place(self._all, new[0].event.event_id) if new else None
        if start is None:
            return None
        line = copy(self)
        line._load, line._all = load, self._all[:start] + new  # noqa: SLF001 - one of us
        line._divide(window, start)  # noqa: SLF001 - one of us
        return line

    def _divide(self, session: Readout, start: int) -> None:
        """Part what stands for good from what may still change, from a place on."""
        cut = self._settled_until(session, start)
        self.events = self._all[:cut]
        """What a client has when it is up to date, in order."""
        self.pending = [row for row in self._all[cut:] if row.event.kind != "tool_result"]
        """What may be on the line soon: open calls, a text that grows."""
        self.shared = shared = min(start, len(self.ids), cut)
        new = [row.event.event_id for row in self.events[shared:]]
        self.ids = self.ids[:shared] + new
        self._checks = self._checks[:shared] + _checks(new, self._checks[shared])

    def mark(self, count: int | None = None) -> StreamPosition:
        """Return the mark of a client that has so many events of this line, or all."""
        count = len(self.ids) if count is None else count
        return (
            StreamPosition(self.ids[count - 1], count, self._checks[count])
            if count
            else StreamPosition()
        )

    def _settled_until(self, session: Readout, start: int) -> int:
        """Return where the part of the line ends in which nothing is open."""
        events = [row.event for row in self._all[start:]]
        last = next(
            (at for at in range(len(events) - 1, -1, -1) if events[at].kind in _GOES_ON), 0
        )  # what was open before it stays so: the conversation went on
        answered = {e.call for e in events[last:] if e.kind == "tool_result"}
        for place in range(last, len(events)):
            event = events[place]
            if event.kind == "tool_call" and event.call not in answered:
                return start + place
            if place == len(events) - 1 and _grows(session, event.native_id):
                return start + place
        return start + len(events)

    # -- clients ------------------------------------------------------------------------

    def start(self, last: int) -> int:
        """Where to begin so that about the last so many events are shown, pairs whole."""
        start = max(len(self.events) - last, 0)
        events = [row.event for row in self.events]
        calls = {e.call: at for at, e in enumerate(events) if e.kind == "tool_call"}
        at = len(self.events) - 1
        while at >= start:
            event = events[at]
            if event.kind == "tool_result":
                start = min(start, calls.get(event.call, start))
            at -= 1
        return start

    def step(self, mark: StreamPosition) -> StreamUpdate | None:
        """Return what a client at a mark needs; None when it is unknown what it has."""
        have = self._of(mark)
        return None if have is None else self.after(have)

    def after(self, have: Sequence[int], shared: int = 0) -> StreamUpdate:
        """Return what a client with these events needs; the first `shared` are the same."""
        common = shared + _common(have[shared:], self.ids[shared:])
        return StreamUpdate(common if common < len(have) else None, common)

    def _of(self, mark: StreamPosition) -> Sequence[int] | None:
        """Return the events that a client at a mark has, on this line or on one that was left."""
        if not mark.number:
            return ()
        if self._fits(mark, self.ids, self._checks):
            return self.ids[: mark.number]
        session = self._load()
        place = session.event_places.get(mark.end)
        if place is None:
            return None
        ids = [row.event.event_id for row in self._events_to(session, place[0])]
        return ids[: mark.number] if self._fits(mark, ids, _checks(ids)) else None

    @staticmethod
    def _fits(mark: StreamPosition, ids: Sequence[int], checks: Sequence[int]) -> bool:
        count = mark.number
        return count <= len(ids) and ids[count - 1] == mark.end and checks[count] == mark.check


def _grows(session: Readout, native_id: str) -> bool:
    """Return whether a record is a text that comes in pieces and is not known to be done."""
    place = session.graph.place(native_id)
    if place is None or not session.records[place].link.is_piece:
        return False
    return session.turn().state in (TurnState.RUNNING, TurnState.ANSWERED)


def last_place(rows: Sequence[StoredEvent], event_id: int) -> int | None:
    """Return where an event stands near the end of a line; None when it is not there."""
    last = range(len(rows) - 1, max(len(rows) - _NEAR_END, 0) - 1, -1)
    return next((at for at in last if rows[at].event.event_id == event_id), None)


def _checks(ids: Sequence[int], start: int = 0) -> list[int]:
    return list(
        accumulate(
            ids, lambda check, event_id: crc32(event_id.to_bytes(8, "big"), check), initial=start
        )
    )


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many at the beginning of two lists are the same."""
    if len(first) <= len(second) and list(first) == list(second[: len(first)]):
        return len(first)
    for at, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return at
    return min(len(first), len(second))
