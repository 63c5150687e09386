"""A stored session and the records that are new: folded in, or the session rebuilt.

A session that grows is continued from the end of it that the store has (`Tail`): cost follows the
new records. Only where they reach further back all of its facts are loaded and it is rebuilt; who
asked learns why. The result is one `Change`: rows that are new, altered or gone, sums, and the
state for the next time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from thence.agents import Cursor
from thence.format import derived_events
from thence.format.fact_assembly import latest_texts
from thence.format.facts import CallStatus, Edge, Fact
from thence.format.fold import Fold, FoldState, Unfoldable, is_resumable
from thence.format.lineage import SHARED
from thence.format.records import JSON, word
from thence.format.session_graph import prompt_title
from thence.format.stored import shorten_output
from thence.memory.derivation import fold_number
from thence.memory.spending import bills_of, merge_spend, spend_of, spent_of, with_price
from thence.memory.store import (
    NothingStored,
    SessionChange,
    SessionRow,
    Spend,
    Store,
    StoredSession,
    Tail,
    call_key,
    pack_facts,
    pack_fold,
    unpack_facts,
)

if TYPE_CHECKING:
    from thence.memory.pricelist import Prices


class Growing:
    """A session that is read further: the end of it, and what was read since it was stored."""

    def __init__(self, tail: Tail, load: Callable[[], StoredSession | None]) -> None:
        """Continue from the end of a stored session; `load` reads all that is stored of it."""
        self.tail = tail
        self._load = load
        self._bodies: list[bytes] = []
        self._events: set[int] = set()
        self._calls: set[int] = set()
        self._bills: set[str] = set()

    def has_event(self, event_id: int) -> bool:
        """Return whether an event has this id."""
        return event_id in self._events or self.tail.index.has_event(event_id)

    def has_call(self, call: str) -> bool:
        """Return whether a call or a result has this id."""
        return call_key(call) in self._calls or self.tail.index.has_call(call)

    def has_bill(self, usage_key: str) -> bool:
        """Return whether a record has this usage key."""
        return usage_key in self._bills or self.tail.index.has_bill(usage_key)

    @property
    def last_facts(self) -> list[Fact]:
        """The last records of each log."""
        state = self.tail.state
        return state.facts if state is not None else self.load().facts

    def load(self) -> StoredSession:
        """Return all of the session: what is stored, and what was read since."""
        stored = self._load()
        tail = self.tail
        facts = [*stored.facts] if stored else []
        for body in self._bodies:
            facts += unpack_facts(body)
        foreign = stored.foreign if stored else frozenset[int]()
        return StoredSession(
            tail.row, tail.cursor, facts, tail.replayed, tail.billed, tail.ties, foreign
        )

    def after(self, tail: Tail, change: SessionChange, facts: Iterable[Fact]) -> Growing:
        """Return the session as it is after a piece that is not stored yet."""
        self.tail = tail
        if change.facts:
            self._bodies.append(change.facts)
        self._events.update(row.event.event_id for row in change.events)
        self._calls.update(change.calls)
        self._bills.update(fact.usage_key for fact in facts if fact.usage_key is not None)
        return self


Shares = tuple[frozenset[str], frozenset[str], tuple[Edge, ...]]
"""Records and bills that other sessions own, and the ties that were found with them."""


class Growth:
    """New records folded into a session, or the session rebuilt where they cannot be."""

    def __init__(
        self,
        uid: str,
        grown: Growing | None,
        new: Sequence[Fact],
        *,
        torn: bool,
        prices: Prices,
        shares: Shares = (frozenset(), frozenset(), ()),
    ) -> None:
        """Fold records into a session; `shares` are those of one that is not `grown`."""
        self.uid = uid
        self._prices = prices
        self.grown = grown
        self.rebuilt: str | None = None
        self._stored: StoredSession | None = None
        tail = grown.tail if grown is not None else None
        self._shares = (tail.replayed, tail.billed, tail.ties) if tail else shares
        replayed, billed, _ = self._shares
        self._sealed: tuple[Spend, ...] = tail.spend if tail else ()
        if (
            grown is not None
            and tail is not None
            and tail.state is not None
            and tail.row.carried_until is None
        ):
            fold = Fold(uid, grown, tail.state, replayed=replayed, billed=billed)
            try:
                self.delta = fold.add(new, torn=torn)
            except Unfoldable as reason:
                self.rebuilt = str(reason)
        elif grown is not None:
            self.rebuilt = "no state is stored"
        if grown is None or self.rebuilt is not None:
            self._stored = grown.load() if grown is not None else None
            fold = Fold(uid, NothingStored(), replayed=replayed, billed=billed)
            before = self._stored.facts if self._stored is not None else ()
            self.delta = fold.add([*before, *new], torn=torn)
            self._sealed = ()
        priced = {
            at: with_price(row, prices) for at, row in self.delta.rows.items() if row.is_billed
        }
        self.delta.rows |= priced
        self._ticks = {at: row.ticks for at, row in priced.items()}
        more = spend_of(self.delta.sealed_bills, prices, self._ticks)
        self._sealed = tuple(merge_spend(self._sealed, more))
        self.state = fold.state

    @property
    def stored_facts(self) -> Sequence[Fact]:
        """All facts that were stored, of a session that was rebuilt; none of one that was not."""
        return self._stored.facts if self._stored is not None else ()

    def change(self, row: SessionRow) -> SessionChange:
        """Return the rows that changed, with the session's own row and the fold's new state."""
        delta, until = self.delta, row.carried_until
        spend = merge_spend(self._sealed, spend_of(delta.window_bills, self._prices, self._ticks))
        if until is not None:  # only a digest remembers its beginning; it is never continued
            later = [event for event in delta.events if (event.ts or "") > until]
            bills = bills_of(later, derived_events.bills(later))
            spend = merge_spend(row.carried, spend_of(bills, self._prices))
        row = _summed_row(
            row,
            fold=fold_number(self._prices),
            title=delta.title,
            prompt=delta.sums.prompt,
            turn=delta.turn,
            edges=distinct_edges((*delta.edges, *self._shares[2])),
            spent=delta.sums.spent if until is None else spent_of(spend),
            spend=spend,
            lower_bound=delta.lower_bound,
            states=delta.sums.states,
            channels=delta.sums.channels,
            agents=subagents_of(delta.about, delta.sums.channels),
        )
        rows = delta.rows
        change = SessionChange(
            row,
            Cursor(),
            events=[rows[event.event_id] for event in delta.events],
            altered=[rows[event.event_id] for event in delta.altered],
            vanished=delta.vanished,
            spend=spend,
            rebuilt=self._stored is not None,
        )
        if self.grown is None or self.rebuilt is not None:
            self.state.since = row.change
        if is_resumable(self.state) and until is None:
            change.fold = pack_fold(_light_state(self.state), self._sealed)
        return change

    def tail(self, change: SessionChange) -> Tail:
        """Return the end of the session as it is after a change."""
        before = self.grown.tail if self.grown is not None else None
        return Tail(
            change.row,
            change.cursor,
            _light_state(self.state) if change.fold else None,
            self._sealed,
            *self._shares,
            before.index if before else NothingStored(),
        )


def _light_state(state: FoldState) -> FoldState:
    """Return a state without payloads."""
    return msgspec.structs.replace(state, facts=[light(fact) for fact in state.facts])


def _summed_row(
    row: SessionRow,
    *,
    fold: int,
    title: str | None,
    prompt: str | None,
    turn: str,
    edges: tuple[Edge, ...],
    spent: derived_events.Spent,
    spend: Sequence[Spend],
    lower_bound: tuple[str, ...],
    states: Mapping[str, int],
    channels: Mapping[str, int],
    agents: dict[str, tuple[str, str]],
) -> SessionRow:
    """Return the row of a session with what its events add up to."""
    ticks: dict[str, int] = {}
    for part in spend:
        ticks[part.where] = ticks.get(part.where, 0) + part.ticks
    return msgspec.structs.replace(
        row,
        title=title,
        is_named=title != prompt_title(prompt),
        turn=turn,
        edges=edges,
        spent=spent,
        ticks=ticks,
        unpriced=sum(part.unpriced for part in spend),
        lower_bound=lower_bound,
        states=dict(states),
        channels=dict(channels),
        agents=agents,
        events=sum(states.values()),
        fold=fold,
    )


def subagents_of(about: Mapping[str, JSON], channels: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return of subagents the call that started them and their type, where a log tells either."""
    agents = {name: (word(about.get(name)), word(about.get(f"{name}:type"))) for name in channels}
    return {name: known for name, known in agents.items() if any(known)}


def rebuild(uid: str, stored: StoredSession, prices: Prices) -> tuple[Growth, SessionRow]:
    """Return a stored session put together anew from its facts, and its next row."""
    tail = Tail(
        *(stored.row, stored.cursor, None, ()),
        *(stored.replayed, stored.billed, stored.ties, NothingStored()),
    )
    growth = Growth(uid, Growing(tail, lambda: stored), [], torn=stored.row.torn, prices=prices)
    known = {name: getattr(stored.row.session, name) for name in _OF_SOURCE}
    session = msgspec.structs.replace(growth.delta.session, **known)
    return growth, msgspec.structs.replace(
        stored.row, session=session, change=stored.row.change + 1
    )


_OF_SOURCE = ("repo", "domain", "source_path", "source_bytes")
"""What a session's source says of it and its facts do not."""


def distinct_edges(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Leave out ties that were found by comparing records where a record tells of them itself."""
    known: dict[tuple[str, str], Edge] = {}
    out: list[Edge] = []
    for edge in edges:
        if edge.how == SHARED and (edge.link, edge.session) in known:
            continue
        known[edge.link, edge.session] = edge
        out.append(edge)
    return tuple(out)


def light(fact: Fact) -> Fact:
    """Return a fact as it is stored: refs in the place of payloads."""
    if not fact.blocks and not fact.told:
        return fact
    replace = msgspec.structs.replace
    blocks = [replace(block, payload=None) for block in fact.blocks]
    statuses = tuple([shorten_status(status) for status in fact.told])
    return replace(fact, blocks=tuple(blocks), told=statuses)


def repack_payloads(store: Store, stored: StoredSession) -> None:
    """Write a session's payloads anew, without those that were replaced."""
    left = latest_texts(stored.facts)
    refs = [block.ref for fact in left for block in fact.blocks if block.ref is not None]
    with store.blobs.repack(stored.row.session.session_uid, refs) as renamed:
        facts = pack_facts([rename_refs(fact, renamed) for fact in left])
        store.write([SessionChange(stored.row, stored.cursor, facts, renamed=renamed)])


def rename_refs(fact: Fact, refs: Mapping[str, str]) -> Fact:
    """Return a fact whose payloads lie at other refs."""
    blocks = tuple(
        msgspec.structs.replace(block, ref=refs.get(block.ref, block.ref)) if block.ref else block
        for block in fact.blocks
    )
    return msgspec.structs.replace(fact, blocks=blocks)


def shorten_status(status: CallStatus) -> CallStatus:
    """Return the status of a call with as much of its output as a list shows."""
    output = shorten_output(status.output)
    return status if output is status.output else msgspec.structs.replace(status, output=output)
