"""Sessions that grow through a fold, beside the same sessions evaluated as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from thence.format.facts import Fact
from thence.format.fold import Delta, Fold, FoldState, Unfoldable
from thence.format.records import Usage
from thence.format.sealing import calls_in
from thence.format.session_graph import SessionGraph
from thence.format.stored import StoredEvent, events_of_session

_STATE = msgspec.msgpack.Decoder(FoldState)


class Index:
    """What a store knows of all records of a session."""

    def __init__(self) -> None:
        self.events: set[int] = set()
        self.calls: set[str] = set()
        self.bills: set[str] = set()

    def has_event(self, event_id: int) -> bool:
        """Return whether an event has this id."""
        return event_id in self.events

    def has_call(self, call: str) -> bool:
        """Return whether a call has this id."""
        return call in self.calls

    def has_bill(self, usage_key: str) -> bool:
        """Return whether a bill has this key."""
        return usage_key in self.bills


class Grown:
    """One session: its rows and bills as a store has them after each step."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.index = Index()
        self.state: FoldState | None = None
        self.facts: list[Fact] = []
        self.rows: dict[int, Any] = {}
        self.sealed: dict[int, Usage] = {}
        self.rebuilt: Counter[str] = Counter()
        self.delta: Delta | None = None

    def add(self, facts: Sequence[Fact]) -> Delta:
        """Add records; rebuild where they cannot be folded in. The state goes through bytes."""
        self.facts += facts
        state = self.state and _STATE.decode(msgspec.msgpack.encode(self.state))
        fold = Fold(self.uid, self.index, state)
        try:
            delta = fold.add(facts)
        except Unfoldable as reason:
            self.rebuilt[str(reason)] += 1
            fold = Fold(self.uid, self.index)
            delta = fold.add(self.facts)
            self.rows, self.sealed = {}, {}
        for event in delta.events:
            assert event.event_id not in self.rows
            self.rows[event.event_id] = delta.rows[event.event_id]
        self.rows.update((event.event_id, delta.rows[event.event_id]) for event in delta.altered)
        for gone in delta.vanished:
            del self.rows[gone]
        self.sealed.update((bill.event.event_id, bill.usage) for bill in delta.sealed_bills)
        self.state = fold.state
        self.index.events.update(event.event_id for event in delta.events)
        self.index.calls.update(call for fact in facts for call in calls_in(fact))
        self.index.bills.update(fact.usage_key for fact in facts if fact.usage_key is not None)
        self.delta = delta
        return delta

    def fetch(self, ids: Iterable[int]) -> list[StoredEvent]:
        """Return the events with these ids."""
        return [self.rows[at] for at in ids if at in self.rows]

    def to_dict(self) -> dict[str, Any]:
        """Return all values that the fold has of the session, by name."""
        delta = self.delta
        assert delta is not None
        bills = {bill.event.event_id: bill.usage for bill in delta.window_bills}
        return {
            "rows": self.rows,
            "bills": self.sealed | bills,
            "states": delta.sums.states,
            "spent": delta.sums.spent,
            "title": delta.title,
            "turn": delta.turn,
            "edges": sorted(map(repr, delta.edges)),
            "lower bound": delta.lower_bound,
            "about": delta.about,
            "session": delta.session,
        }


def evaluated(uid: str, facts: Iterable[Fact]) -> dict[str, Any]:
    """Return the same values of a session that is put together from all of its facts."""
    session = SessionGraph(uid, facts)
    return {
        "rows": {row.event.event_id: row for row in events_of_session(session)},
        "bills": session.bills,
        "states": Counter(event.state.value for event in session.events if event.state),
        "spent": session.spent,
        "title": session.title,
        "turn": session.turn().state.value,
        "edges": sorted(map(repr, session.edges)),
        "lower bound": tuple(sorted({notice.detail for notice in session.unbilled})),
        "about": session.about,
        "session": session.session(),
    }


def differences(grown: Grown) -> list[str]:
    """Name what the fold says otherwise than the whole session does."""
    grown_values, wanted = grown.to_dict(), evaluated(grown.uid, grown.facts)
    return [
        f"{name}: {grown_values[name]} instead of {wanted[name]}"
        for name in wanted
        if grown_values[name] != wanted[name]
    ]
