"""A session as a fold: a new record changes a few rows and a small state. Pure.

A log grows at its end, and nearly every new record refers to one of the last few. So a session is
two parts: the *window* holds the last records of each log, and of all *sealed* records before it
only sums are left (`Sums`). `add` evaluates the window together with the new records, exactly as a
whole session is evaluated (`Whole`), and returns what changed; then records at the start of the
window are sealed where nothing that may still come can reach them. A rebuild is the same fold with
everything in the window.

Invariants: `add(a)` and then `add(b)` gives the rows and sums of `add(a + b)`; work follows the
window and the new records, never the session. What refers to sealed records (a branch that starts
there, a repeated id, a late result) or came in another order raises `Unfoldable`, and the caller
rebuilds from all facts. The state is plain data; a store keeps it beside the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from thence.format.copies import place_of
from thence.format.derived_events import Ongoing, derive_events, go_on, is_at_rest, time_of
from thence.format.fact_assembly import is_image_alone, pending_shares, settled_shares, text_place
from thence.format.facts import Block, Edge, Fact, Share, is_line_name
from thence.format.nodes import PREVIOUS, Is, Node, Undo
from thence.format.normal import Session, SessionEvent, event_ids, in_order
from thence.format.outcomes import call_effect
from thence.format.record_order import in_written_order, last_of_runs, name_repeats, named_repeat
from thence.format.records import JSON, Usage
from thence.format.sealing import (
    OFF_LINE,
    Cut,
    Logs,
    View,
    calls_in,
    cuts_of,
    find_logs,
    is_said,
    may_seal,
    named_by,
    order_of,
    sealed_notes,
    spoken_files,
)
from thence.format.session_graph import SessionGraph, title_of
from thence.format.stored import StoredEvent, fingerprint, gone_places, stored_events
from thence.format.sums import Sums, about_of, add_sums, edge_key, lower_bound, session_of

VERSION = 9
"""Version of the fold: raised when the same facts give other rows, sums or states."""

MAX_WINDOW_RECORDS, MAX_SIDE_LOGS = 4096, 64
"""A session whose window grows beyond these is rebuilt each time instead."""


class Unfoldable(Exception):
    """New records cannot be folded in; the session must be rebuilt from all of its facts."""


class Index(Protocol):
    """What is known of all records of a session, sealed ones included."""

    def has_event(self, event_id: int) -> bool:
        """Return whether an event has this id."""

    def has_call(self, call: str) -> bool:
        """Return whether a call or a result has this id."""

    def has_bill(self, usage_key: str) -> bool:
        """Return whether a record has this usage key."""


class FoldState(msgspec.Struct, omit_defaults=True):
    """All that a fold needs to go on; plain data of bounded size."""

    version: int = VERSION
    since: int = 0
    """The change of the store in which the session was last rebuilt."""
    facts: list[Fact] = []
    """The window, as the readers give facts, without payloads."""
    anchors: list[Fact] = []
    """Per log the sealed record that the window continues."""
    rows: dict[int, int] = {}
    """Fingerprints of the events of the window as last returned, by their ids."""
    sealed: Sums = Sums()
    ongoing: Ongoing = Ongoing()
    """What the sealed part leaves for derived events of the window."""
    undoable: int = 0
    """Sealed prompts that a rollback could count, on whatever line they stand."""
    totals: dict[str, Usage] = {}
    """Last running total of each log whose bills are told so."""
    spoken: frozenset[str] = frozenset()
    """Files of the main channel that hold the conversation; beside them the others are ledgers."""
    noted: frozenset[str] = frozenset()
    """Ledgers of which notes are sealed."""
    billed_until: str = ""
    """The time of the last sealed bill of a turn: what others were billed until then is settled."""
    wasted: int = 0
    """Bytes that beginnings of texts take in a store, of which more was read later."""
    unanswered: frozenset[str] = frozenset()
    """Sealed calls whose result, or its text, another record could still tell."""
    lines: dict[str, tuple[int, int]] = {}
    """Generation and last line of each log."""
    repeats: dict[str, int] = {}
    """How often records without an id came that came more than once."""
    billed: frozenset[str] = frozenset()
    """Channels of the sealed part that tell single bills."""
    agent_calls: frozenset[str] = frozenset()
    """Calls on the sealed part of the live line that asked a subagent."""


class Bill(msgspec.Struct, frozen=True):
    """One bill and the event that carries it."""

    event: SessionEvent
    usage: Usage


class Delta(msgspec.Struct):
    """What new records changed, and what the session adds up to now."""

    events: list[SessionEvent]
    """New ones, in reading order."""
    altered: list[SessionEvent]
    vanished: list[int]
    rows: dict[int, StoredEvent]
    """All events of the window with what was derived of them, by their ids."""
    sums: Sums
    session: Session
    title: str | None
    turn: str
    edges: list[Edge]
    about: dict[str, JSON]
    """What records say of the session."""
    lower_bound: tuple[str, ...]
    window_bills: list[Bill]
    """Bills of the window as it is after sealing."""
    sealed_bills: list[Bill]
    """Bills that were sealed by this step: they do not change any more."""
    window: SessionGraph
    """The evaluated window, sealed records of this step included."""


class Fold:
    """One session that grows."""

    def __init__(
        self,
        uid: str,
        index: Index,
        state: FoldState | None = None,
        *,
        replayed: Container[str] = frozenset(),
        billed: Container[str] = frozenset(),
    ) -> None:
        """Continue from a state, or begin with nothing.

        `replayed` and `billed` hold the keys of records and bills that other sessions own.
        """
        self.uid = uid
        self.state = state or FoldState()
        self._index = index
        self._replayed = replayed
        self._billed = billed
        self._name = event_ids(uid)

    def add(self, facts: Sequence[Fact], *, torn: bool = False) -> Delta:
        """Add records that follow those added before, and return what they change.

        Raises `Unfoldable`, leaving the state as it is, when they reach into the sealed part.
        """
        state = self.state
        window, repeats = self._take(facts)
        spoken = state.spoken | spoken_files(window)
        logs = find_logs(window, spoken)
        session = SessionGraph(
            self.uid,
            [*state.anchors, *_without_settled_shares(window, state)],
            replayed=self._replayed,
            billed=self._billed,
            torn=torn,
            totals=_totals_without_anchor(state),
        )
        view = View(session, {fact.node.id for fact in state.anchors}, logs)
        rows = self._rows(view)
        after, sealed = self._seal(view, window, rows)
        after.repeats, after.since, after.spoken = repeats, state.since, spoken
        delta = self._delta(view, after, sealed, rows)
        self.state = after
        return delta

    def _take(self, facts: Sequence[Fact]) -> tuple[list[Fact], dict[str, int]]:
        """Return the window with new records, and how often those without an id were repeated.

        Raises `Unfoldable` where they reach into the sealed part.
        """
        state = self.state
        if not state.lines:
            facts = name_repeats(in_written_order(facts))
            return list(facts), _repeats(facts)
        repeats = dict(state.repeats)
        window, more = _with_longer_texts(state.facts, facts)
        more = [self._with_unique_name(fact, repeats) for fact in more]
        self._check(more)
        window = _without_rewritten(window, more)
        return [*window, *(_less_prompts(fact, state.undoable) for fact in more)], repeats

    def _rows(self, view: View) -> dict[int, StoredEvent]:
        """Return the events of the window with what is derived of them."""
        session = view.session
        places = [(session.facts[place], view.events[place]) for place in view.own]
        places += gone_places(session, view.rewritten)
        return stored_events(
            places, (*session.copied_calls, *session.calls), session.bills, self._derive(view)
        )

    def _derive(self, view: View) -> list[SessionEvent]:
        """Return the events that are derived from those of the window.

        Raises `Unfoldable` when the window does not continue the sealed part any more.
        """
        state, session = self.state, view.session
        if not state.sealed.events:
            return session.derived
        _check_line(view, state.anchors)
        events = [event for place in view.own for event in view.events[place]]
        rests = state.ongoing.rests
        if rests is not None and rests != is_at_rest(events):
            raise Unfoldable("the sealed part ends otherwise")
        events += view.rewritten
        blocks = session.call_blocks
        return derive_events(events, session.calls, blocks, state.ongoing, session.stops)

    def _with_unique_name(self, fact: Fact, repeats: dict[str, int]) -> Fact:
        """Return a record without an id under a name that no record before it has."""
        name = fact.node.id
        if not fact.blocks or not is_line_name(name):
            return fact
        before = repeats.get(name, 0)
        if not before and self._index.has_event(self._name(name, 0, 0)):
            before = 1
        repeats[name] = before + 1
        return named_repeat(fact, before) if before else fact

    # -- what can be folded -------------------------------------------------------------

    def _check(self, facts: Sequence[Fact]) -> None:
        """Raise Unfoldable when new records refer to what is sealed, or come out of order."""
        state = self.state
        logs = find_logs((*state.facts, *facts), state.spoken | spoken_files(facts))
        known = _Known(state, facts, logs)
        _check_order(facts, state, logs)
        _check_shares(facts, state)
        for fact in facts:
            if fact.base is not None:
                raise Unfoldable("a log that continues an ancestor")
            self._check_names(fact, known)
            log = logs.of(fact)
            if fact.file not in state.lines and fact.channel in known.channels:
                raise Unfoldable("a further log of a subagent")
            if any(known.log_of(other) != log for other in _links(fact.node)):
                raise Unfoldable("a link to a sealed or missing record")
            if fact.node.undo is not None:
                known.undo(fact, state.undoable)
            elif fact.node.flags & Is.PROMPT and not fact.node.flags & OFF_LINE:
                known.prompts += 1

    def _check_names(self, fact: Fact, known: _Known) -> None:
        """Raise Unfoldable when a sealed record has the same id, call or bill."""
        name, key, log = fact.node.id, fact.usage_key, known.logs.of(fact)
        if name in known.anchors or known.ids.get(name, log) != log:
            raise Unfoldable("a repeated id")
        if fact.blocks and name not in known.ids:
            if self._index.has_event(self._name(name, 0, 0)):
                raise Unfoldable("a repeated id")
            known.ids[name] = log
        calls = calls_in(fact)
        # What a note tells of a sealed call matters only where its result says too little.
        asked = calls if fact.blocks else calls & self.state.unanswered
        if any(call not in known.calls and self._index.has_call(call) for call in asked):
            raise Unfoldable("a sealed call")
        known.calls |= calls
        if key is not None and key not in known.bills:
            if self._index.has_bill(key):
                raise Unfoldable("a sealed bill")
            known.bills.add(key)

    # -- what changed -------------------------------------------------------------------

    def _delta(
        self,
        view: View,
        after: FoldState,
        sealed: Collection[int],
        rows: dict[int, StoredEvent],
    ) -> Delta:
        """Return what changed; `sealed` are the places that this step has sealed."""
        session = view.session
        events = {event.event_id: event for place in view.own for event in view.events[place]}
        events |= {event.event_id: event for event in view.rewritten}
        sums = self._sum_up(view, after, sealed, rows)
        gone = [event for place in sorted(sealed) for event in view.events[place]]
        gone += view.rewritten if sealed else ()
        before = self.state.rows
        return Delta(
            [event for event in in_order(events.values()) if event.event_id not in before],
            self._altered(events, after, rows),
            [at for at in before if at not in events],
            rows,
            sums,
            session_of(self.uid, sums),
            self._title(sums, view),
            session.turn().state.value,
            list({edge_key(edge): edge for edge in (*sums.edges_only, *sums.edges)}.values()),
            about_of(sums),
            lower_bound(sums),
            _bills_on(session, (event for at in after.rows if (event := events.get(at)))),
            _bills_on(session, gone),
            session,
        )

    def _altered(
        self, events: Mapping[int, SessionEvent], after: FoldState, rows: Mapping[int, StoredEvent]
    ) -> list[SessionEvent]:
        """Return the events that were there before and say something else now."""
        before, now = self.state.rows, after.rows
        known = ((at, event) for at, event in events.items() if at in before)
        return [
            event
            for at, event in known
            if before[at] != (now[at] if at in now else fingerprint(rows[at]))
        ]

    @staticmethod
    def _sum_up(
        view: View, after: FoldState, sealed: Collection[int], rows: Mapping[int, StoredEvent]
    ) -> Sums:
        """Return what the sealed part and the window that is left add up to."""
        left = [place for place in view.own if place not in sealed]
        rewritten = () if sealed else view.rewritten
        in_window = {order_of(fact) for fact in after.facts if not fact.blocks}
        notes = [note for note in view.notes if order_of(note) in in_window]
        return add_sums(after.sealed, view, left, notes, rewritten, rows)

    def _title(self, sums: Sums, view: View) -> str | None:
        """Return the session's name: given, made up, or its first prompt."""

        def is_known(native: str) -> bool:
            if view.session.graph.place(native) is not None:
                return True
            return self._index.has_event(self._name(native, 0, 0))

        return title_of(about_of(sums), sums.prompt, is_known)

    # -- sealing ------------------------------------------------------------------------

    def _seal(
        self, view: View, window: list[Fact], rows: Mapping[int, StoredEvent]
    ) -> tuple[FoldState, set[int]]:
        """Seal what nothing can reach any more; return the new state and the places sealed."""
        state = self.state
        cuts = cuts_of(view) if may_seal(view) else {}
        sealed = {place for cut in cuts.values() for place in cut.sealed}
        out = FoldState(
            facts=window,
            sealed=state.sealed,
            ongoing=state.ongoing,
            undoable=state.undoable,
            lines=dict(state.lines),
            totals=dict(state.totals),
            billed=state.billed,
            agent_calls=state.agent_calls,
            noted=state.noted,
            billed_until=state.billed_until,
            unanswered=state.unanswered,
            wasted=state.wasted,
        )
        for fact in last_of_runs(window):
            before = out.lines.get(fact.file, (0, 0))
            out.lines[fact.file] = max(before, (fact.generation, fact.line))
        if cuts:
            notes = sealed_notes(view, cuts)
            out.facts = _left_in_window(view, window, cuts, notes)
            # What was rewritten away never comes back but by a rebuild.
            out.sealed = add_sums(state.sealed, view, sorted(sealed), notes, view.rewritten, rows)
            out.ongoing = _go_on(state.ongoing, view, sealed)
            out.noted |= {note.file for note in notes if note.file in view.logs.ledgers}
            _keep_bills(out, view, sealed)
            _keep_calls(out, view, sealed)
            out.undoable += sum(view.is_standing_prompt(place) for place in sealed)
            _keep_line(out, view.session, sealed)
            out.facts = [_less_prompts(f, out.undoable - state.undoable) for f in out.facts]
        of = view.logs.of
        made = {log: cut.anchor for log, cut in cuts.items() if cut.anchor is not None}
        out.anchors = [made.pop(of(anchor), anchor) for anchor in state.anchors]
        out.anchors = [_carry(anchor, out) for anchor in (*out.anchors, *made.values())]
        left = [event for place in view.own if place not in sealed for event in view.events[place]]
        left += () if cuts else view.rewritten
        out.rows = {event.event_id: fingerprint(rows[event.event_id]) for event in left}
        return out, sealed


def _bills_on(session: SessionGraph, events: Iterable[SessionEvent]) -> list[Bill]:
    """Return the bills that some events carry."""
    bills = session.bills
    return [Bill(event, bills[event.event_id]) for event in events if event.event_id in bills]


def _repeats(facts: Iterable[Fact]) -> dict[str, int]:
    """Count the records without an id that came more than once, by the name of the first."""
    counts: dict[str, int] = {}
    for fact in facts:
        if "~" not in fact.node.id:
            continue
        name, _, nth = fact.node.id.rpartition("~")
        if is_line_name(name) and nth.isdigit():
            counts[name] = max(counts.get(name, 0), int(nth) + 1)
    return counts


def _without_settled_shares(window: Iterable[Fact], state: FoldState) -> list[Fact]:
    """Return records of a window without the shares of other sessions that are settled."""
    if not state.billed_until:
        return list(window)
    return [pending_shares(fact, state.billed_until) for fact in window]


def _with_longer_texts(
    window: Sequence[Fact], facts: Iterable[Fact]
) -> tuple[list[Fact], list[Fact]]:
    """Put texts that go on in the place of their beginnings; return the window, and the others."""
    out, more = list(window), []
    begun = {text_place(f): at for at, f in enumerate(out) if f.piece is not None}
    for fact in facts:
        at = begun.get(text_place(fact)) if fact.piece is not None and begun else None
        if at is None:
            more.append(fact)
        else:
            out[at] = msgspec.structs.replace(fact, node=out[at].node)
    return out, more


def _without_rewritten(window: list[Fact], facts: Iterable[Fact]) -> list[Fact]:
    """Return a window without notes of documents that were written anew."""
    newest: dict[str, int] = {}
    for fact in facts:
        newest[fact.file] = max(newest.get(fact.file, 0), fact.generation)
    return [f for f in window if f.blocks or f.generation >= newest.get(f.file, f.generation)]


def _left_in_window(
    view: View, window: Iterable[Fact], cuts: Mapping[str, Cut], notes: Iterable[Fact]
) -> list[Fact]:
    """Return the records of a window that are not sealed by these cuts."""
    gone = {id(fact) for fact in view.gone}
    sealed = {order_of(note) for note in notes}
    starts = {log: cut.start for log, cut in cuts.items()}
    left: list[Fact] = []
    for fact in window:
        if not fact.blocks:
            is_sealed = order_of(fact) in sealed
        else:
            start = starts.get(view.logs.of(fact))
            is_sealed = start is not None and order_of(fact) < start
        if not is_sealed and id(fact) not in gone:
            left.append(fact)
    return left


def is_resumable(state: FoldState) -> bool:
    """Return whether a state is small and can be continued; else the next add is a rebuild."""
    return (
        state.version == VERSION
        and len(state.facts) <= MAX_WINDOW_RECORDS
        and len(state.anchors) <= MAX_SIDE_LOGS
        and not any(map(place_of, state.lines))
    )


def _go_on(before: Ongoing, view: View, sealed: Collection[int]) -> Ongoing:
    """Return what the sealed part leaves for the window when these places are sealed, too."""
    events: list[SessionEvent] = []
    left: list[SessionEvent] = []
    for place in view.own:
        (events if place in sealed else left).extend(view.events[place])
    events += view.rewritten
    ids = {event.event_id for event in events}
    pairs = [pair for pair in view.session.calls if pair.call.event_id in ids]
    session = view.session
    blocks = session.call_blocks
    return go_on(before, events, pairs, left, blocks=blocks, stops=session.stops)


# -- the evaluated window -------------------------------------------------------------------


def _check_line(view: View, anchors: Sequence[Fact]) -> None:
    """Raise Unfoldable unless the live line still continues the sealed part."""
    graph = view.session.graph
    main = [anchor.node.id for anchor in anchors if anchor.channel == "main"]
    if not main:
        return
    if graph.end is None:
        raise Unfoldable("no record ends the line")
    line = graph.chain(boundaries=False, beside=False)
    if graph.nodes[line[0]].id != main[0]:
        raise Unfoldable("the line starts elsewhere")
    chain = graph.chain()
    if not any(is_said(graph.nodes[place]) for place in chain):
        raise Unfoldable("nothing is left of the last turn")


class _Known:
    """What is in reach of new records: the window, and the new records before them."""

    def __init__(self, state: FoldState, new: Sequence[Fact], logs: Logs) -> None:
        facts = state.facts
        self.logs = logs
        # A record may name one that follows it in the same read, as a boundary its summary.
        self.ahead = {f.node.id: logs.of(f) for f in new} if _points_ahead(new) else {}
        self.ids = {f.node.id: logs.of(f) for f in (*facts, *state.anchors)}
        self.anchors = {fact.node.id for fact in state.anchors}
        channels = {fact.channel for fact in facts} | state.sealed.channels.keys()
        self.channels = channels - {"main"}
        """Subagents of which records came before."""
        self.calls = {call for fact in facts for call in (*fact.node.calls, *fact.node.answers)} | {
            status.call for fact in facts for status in fact.told
        }
        self.bills = {fact.usage_key for fact in facts if fact.usage_key is not None}
        self.bills.update(state.sealed.owed)
        self.prompts = 0
        for fact in facts:
            if fact.node.undo is not None:
                self.undo(fact, 0)
            elif fact.node.flags & Is.PROMPT and not fact.node.flags & OFF_LINE:
                self.prompts += 1

    def log_of(self, name: str) -> str | None:
        """Return the log of a record in reach; None when none has this id."""
        return self.ids.get(name) or self.ahead.get(name)

    def undo(self, fact: Fact, sealed: int) -> None:
        """Take back prompts; raise Unfoldable when sealed ones are among them."""
        undo = fact.node.undo or Undo()
        left = self.prompts
        if undo.turns is not None:
            left = self.prompts - max(undo.turns, 0)
        elif undo.to is not None:
            left = undo.to - sealed
        if left < 0:
            raise Unfoldable("a rollback of sealed turns")
        self.prompts = min(left, self.prompts)


def _points_ahead(facts: Sequence[Fact]) -> bool:
    return any(fact.node.span is not None or fact.node.tip is not None for fact in facts)


def _check_order(facts: Sequence[Fact], state: FoldState, logs: Logs) -> None:
    """Raise Unfoldable unless records come after those of their logs, in written order."""
    lines: dict[str, tuple[int, int]] = {}
    events = {fact.file for fact in (*state.facts, *facts) if fact.blocks}
    documents = logs.ledgers - events - state.noted
    for fact in facts:
        now = fact.generation, fact.line
        before = state.lines.get(fact.file)
        if before is None:
            _check_new_log(fact, state, logs)
        elif fact.generation < before[0] or (
            fact.generation > before[0] and fact.file not in documents
        ):
            raise Unfoldable("a rewritten log")
        elif now <= before:
            raise Unfoldable("a record out of order")
        elif logs.of(fact) == "main" and fact.file not in state.spoken and state.sealed.events:
            raise Unfoldable("a ledger that holds the conversation")
        if now < lines.get(fact.file, now):
            raise Unfoldable("records out of order")
        lines[fact.file] = now


def _check_new_log(fact: Fact, state: FoldState, logs: Logs) -> None:
    """Raise Unfoldable unless a log can begin with a record after those that are there."""
    if place_of(fact.file):
        raise Unfoldable("a copy in another place")
    is_before = logs.of(fact) == "main" and fact.file < max(state.spoken, default="")
    if fact.generation or is_before:
        raise Unfoldable("a new log before the others")


def _check_shares(facts: Iterable[Fact], state: FoldState) -> None:
    """Raise Unfoldable when other sessions were billed what a sealed bill did not know of."""
    before: dict[str, list[Share]] = {}
    for fact in state.facts:
        before.setdefault(fact.file, []).extend(settled_shares(fact, state.billed_until))
    for fact in facts:
        settled = settled_shares(fact, state.billed_until)
        if settled and settled != before.get(fact.file):
            raise Unfoldable("what another session was billed for a sealed turn")


def _links(node: Node) -> Iterator[str]:
    if node.parent is not None and node.parent != PREVIOUS:
        yield node.parent
    if node.logical is not None:
        yield node.logical
    yield from named_by(node)


# -- what an anchor carries -----------------------------------------------------------------


def _keep_bills(out: FoldState, view: View, sealed: Collection[int]) -> None:
    """Remember what running totals of sealed records were, and where single bills are told."""
    exact = set(out.billed)
    for place in sorted(sealed):
        fact = view.session.facts[place]
        if fact.running is not None:
            out.totals[f"{fact.channel}\n{fact.file}"] = fact.running
        elif fact.usage is not None:
            exact.add(fact.channel)
        if fact.turn_bill is not None and fact.usage is not None:
            moments = (text for text in (out.billed_until, fact.ts or _END_OF_TIME) if text)
            out.billed_until = max(moments, key=_moment_of)
    out.billed = frozenset(exact)


def _moment_of(text: str) -> datetime:
    return time_of(text) or datetime.min.replace(tzinfo=UTC)


_END_OF_TIME = "9999-12-31T00:00:00.000Z"
"""When a bill without a time was made: all that others were billed is before it."""


def _keep_calls(out: FoldState, view: View, sealed: Collection[int]) -> None:
    """Remember sealed calls without a result, or whose result is an image alone."""
    graph, facts = view.session.graph, view.session.facts
    nodes, answered = graph.nodes, graph.answered
    calls = set(out.unanswered)
    for place in sealed:
        if node_calls := nodes[place].calls:
            calls.update(call for call in node_calls if call not in answered)
        for block in facts[place].blocks:
            if block.kind == "tool_result" and block.call and is_image_alone(block):
                calls.add(block.call)
    out.unanswered = frozenset(calls)


def _keep_line(out: FoldState, session: SessionGraph, sealed: Collection[int]) -> None:
    """Remember which calls of the live line that were sealed asked a subagent."""
    calls = set(out.agent_calls)
    for place in session.graph.chain(boundaries=False):
        if place in sealed:
            fact = session.facts[place]
            for block in fact.blocks:
                if block.kind == "tool_call" and block.call and _asks_agent(block):
                    calls.add(block.call)
    out.agent_calls = frozenset(calls)


def _asks_agent(block: Block) -> bool:
    return call_effect(block.tool, block, block.effect).kind == "agent"


def _carry(anchor: Fact, state: FoldState) -> Fact:
    """Let an anchor carry the running total and the way of billing of what is sealed."""
    usage = Usage() if anchor.channel in state.billed else None
    running = state.totals.get(f"{anchor.channel}\n{anchor.file}")
    return msgspec.structs.replace(anchor, usage=usage, running=None if usage else running)


def _totals_without_anchor(state: FoldState) -> dict[tuple[str, str], Usage]:
    """Return the running totals of sealed ledgers: no anchor carries theirs."""
    carried = {f"{anchor.channel}\n{anchor.file}" for anchor in state.anchors}
    out: dict[tuple[str, str], Usage] = {}
    for key, total in state.totals.items():
        if key not in carried:
            channel, _, file = key.partition("\n")
            out[channel, file] = total
    return out


def _less_prompts(fact: Fact, sealed: int) -> Fact:
    """Return a rollback marker whose count starts at the window."""
    undo = fact.node.undo
    if undo is None or undo.to is None or not sealed:
        return fact
    node = msgspec.structs.replace(fact.node, undo=Undo(to=undo.to - sealed))
    return msgspec.structs.replace(fact, node=node)
