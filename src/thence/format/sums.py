"""What the sealed part of a session adds up to: counts, bills, bounds, names. Pure.

A fold keeps no record of the sealed part, only these; each step adds what it seals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from thence.format import derived_events, fact_assembly
from thence.format.facts import Edge, Fact
from thence.format.graph import State
from thence.format.normal import Session, SessionEvent
from thence.format.records import JSON, Usage
from thence.format.sealing import View
from thence.format.session_graph import (
    NEVER_BILLED,
    UNDERSTATED,
    SessionGraph,
    merge_about,
)
from thence.format.stored import StoredEvent

_GONE = (State.DEAD, State.ROLLED_BACK)

Abouts = Mapping[str, Mapping[str, JSON]]
"""What records say of the session, by their file."""


class Sums(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a part of a session adds up to; `add_sums` continues it with the next part."""

    events: int = 0
    states: dict[str, int] = {}
    first: str | None = None
    last: str | None = None
    """Earliest and latest time of the session's own events."""
    model: str | None = None
    turns: int = 0
    retries: int = 0
    spent: derived_events.Spent = derived_events.Spent()
    prompt: str | None = None
    about: dict[str, dict[str, JSON]] = {}
    about_only: dict[str, dict[str, JSON]] = {}
    """What records with and without events say of the session, by their file."""
    edges: tuple[Edge, ...] = ()
    edges_only: tuple[Edge, ...] = ()
    unbilled: tuple[str, ...] = ()
    owed: tuple[str, ...] = ()
    """Usage keys whose bill has not come yet."""
    due: dict[str, str] = {}
    """Why a bill is missing unless it follows, by log."""
    overdue: tuple[str, ...] = ()
    understated: int = 0
    """Responses that are plainly longer than what was billed for them."""
    for_others: tuple[str, ...] = ()
    """What bills hold of requests of other sessions."""
    channels: dict[str, int] = {}
    """Events of each subagent, book-keeping left out."""


def add_sums(  # noqa: PLR0917 - the window, and what of it
    before: Sums,
    view: View,
    places: Sequence[int],
    notes: Sequence[Fact],
    rewritten: Sequence[SessionEvent],
    rows: Mapping[int, StoredEvent],
) -> Sums:
    """Return the sums of a part of a session and of what follows it in the window.

    `rows` are the events of the window with what was derived of them.
    """
    session = view.session
    facts = [session.facts[place] for place in places]
    events = [event for place in places for event in view.events[place]]
    events += rewritten
    main = [e for e in events if not e.is_sidechain and e.state is not State.REPLAYED]
    on_line = [event for event in main if event.state not in _GONE]
    counts = Counter([event.state for event in events if event.state is not None])
    models = [event.model for event in on_line if event.model is not None]
    first, last = _bounds(before, main)
    own = session.own(facts)
    own_notes = session.own(notes)
    overdue, due = fact_assembly.overdue((*own, *own_notes), before.due)
    return Sums(
        events=before.events + counts.total(),
        states=_add_states(before.states, counts),
        first=first,
        last=last,
        model=models[-1] if models else before.model,
        turns=before.turns + session.turns_in(places),
        retries=before.retries + _retries(events, rows),
        spent=_add_spent(before.spent, derived_events.spent(events, _bills(session, events))),
        prompt=before.prompt or _first_prompt(events),
        about=_abouts(before.about, own),
        about_only=_abouts(before.about_only, own_notes),
        edges=_edges(before.edges, own, session.native),
        edges_only=_edges(before.edges_only, own_notes, session.native),
        unbilled=_distinct(before.unbilled, (f.unbilled for f in (*own, *own_notes))),
        owed=tuple(fact_assembly.owed_bills((*own, *own_notes), before.owed)),
        due=due,
        overdue=_distinct(before.overdue, overdue),
        understated=before.understated + len(fact_assembly.understated_bills((*own, *own_notes))),
        for_others=_distinct(
            before.for_others,
            (notice.detail for notice in session.billed_for_others_in((*facts, *notes))),
        ),
        channels=count_channels(before.channels, events),
    )


def _add_states(before: Mapping[str, int], counts: Mapping[State, int]) -> dict[str, int]:
    out = dict(before)
    for state, number in counts.items():
        out[state.value] = out.get(state.value, 0) + number
    return out


def _first_prompt(events: Iterable[SessionEvent]) -> str | None:
    prompts = (e.summary for e in events if e.kind == "user_msg" and not e.is_sidechain)
    return next(filter(None, prompts), None)


def _retries(events: Iterable[SessionEvent], rows: Mapping[int, StoredEvent]) -> int:
    retries = 0
    for event in events:
        row = rows[event.event_id]
        if row.derived and row.is_retry and not event.is_sidechain:
            retries += 1
    return retries


def count_channels(before: Mapping[str, int], events: Iterable[SessionEvent]) -> dict[str, int]:
    """Return how many events each subagent has, those counted before included."""
    out = dict(before)
    for event in events:
        if event.channel != "main" and event.state is not State.INTERNAL:
            out[event.channel] = out.get(event.channel, 0) + 1
    return out


def _bills(session: SessionGraph, events: Iterable[SessionEvent]) -> dict[int, Usage]:
    bills = session.bills
    return {e.event_id: bills[e.event_id] for e in events if e.event_id in bills}


def _add_spent(first: derived_events.Spent, second: derived_events.Spent) -> derived_events.Spent:
    return derived_events.Spent(
        derived_events.add_usage(first.live, second.live),
        derived_events.add_usage(first.dead, second.dead),
        derived_events.add_usage(first.side, second.side),
        first.responses + second.responses,
    )


def _bounds(before: Sums, events: Iterable[SessionEvent]) -> tuple[str | None, str | None]:
    moments = derived_events.bounds({event.ts for event in events if event.ts})
    moments += [datetime.fromisoformat(text) for text in (before.first, before.last) if text]
    if not moments:
        return None, None
    return min(moments).isoformat(), max(moments).isoformat()


def edge_key(edge: Edge) -> tuple[str, str, bool, str | None]:
    """Return what makes two edges the same."""
    return edge.link, edge.session, edge.child, edge.call


def _edges(before: Sequence[Edge], facts: Iterable[Fact], native: str) -> tuple[Edge, ...]:
    out = {edge_key(edge): edge for edge in before}
    for fact in facts:
        if fact.edges:
            out |= {edge_key(edge): edge for edge in fact.edges if edge.session != native}
    return tuple(out.values())


def _distinct(before: Sequence[str], more: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*before, *(text for text in more if text is not None)]))


def lower_bound(sums: Sums) -> tuple[str, ...]:
    """Return why the sum of all bills is a lower bound, each reason once."""
    reasons = [*sums.unbilled, *sums.overdue, *sums.due.values()]
    reasons += [NEVER_BILLED] if sums.owed else []
    reasons += [UNDERSTATED] if sums.understated else []
    reasons += sums.for_others
    return tuple(sorted(set(reasons)))


def _abouts(before: Abouts, facts: Iterable[Fact]) -> dict[str, dict[str, JSON]]:
    """Return what records say of the session by their file, added to what earlier ones said."""
    out = {file: dict(about) for file, about in before.items()}
    for fact in facts:
        if fact.about and fact.channel == "main":
            merge_about(out.setdefault(fact.file, {}), fact.about)
    return out


def _merge_abouts(*parts: Abouts) -> dict[str, JSON]:
    """Return what the records of all files say, in the order of the files' names."""
    out: dict[str, JSON] = {}
    for part in parts:
        for file in sorted(part):
            merge_about(out, part[file])
    return out


def about_of(sums: Sums) -> dict[str, JSON]:
    """Return what records say of the session; those without events are asked first."""
    return _merge_abouts(sums.about_only, sums.about)


def session_of(uid: str, sums: Sums) -> Session:
    """Return a session as its sums tell it."""
    about = about_of(sums)
    first = datetime.fromisoformat(sums.first) if sums.first else None
    last = datetime.fromisoformat(sums.last) if sums.last else None
    named = {name: about.get(name) for name in ("cwd", "git_branch", "model")}
    return derived_events.session_from(
        uid,
        spent=sums.spent,
        first=first,
        last=last,
        turns=sums.turns,
        retries=sums.retries,
        model=sums.model,
        known={name: value for name, value in named.items() if isinstance(value, str) and value},
    )
