"""A whole session, put together from the facts of its logs. Pure.

Files may come in any order and in any number of pieces, rewritten or read twice: the same facts
give the same session. Every fact ends in exactly one state, and every bill is counted once. What
a rewritten log no longer holds stays, dead, with the reason `rewritten`, unless a copy of the log
in another place still holds it (`copies`). Whoever knows other sessions says with `replayed` which
records are copies of theirs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cached_property

import msgspec

from thence.format import derived_events, fact_assembly
from thence.format.copies import by_place, merge_places, place_of
from thence.format.facts import (
    MIRRORED,
    Base,
    Block,
    CallStatus,
    Edge,
    Fact,
    event_blocks,
    events_of,
    merge_statuses,
    occurrences,
)
from thence.format.graph import Graph, State
from thence.format.nodes import PREVIOUS, Is, Node, in_sequence
from thence.format.normal import Session, SessionEvent
from thence.format.outcomes import CallOutcome
from thence.format.record_order import in_written_order, name_repeats
from thence.format.records import JSON, Notice, Usage
from thence.format.turn import TurnNow, begins_turn, turn_of

REWRITTEN = "rewritten"
"""Why an event is dead that a log once held and holds no more."""

NEVER_BILLED = "the bill of a turn has not been written"
UNDERSTATED = "the log recorded only part of a response's tokens; the real cost is higher"
MINIMUM = "cost is a minimum"
"""What a notice says of usage that a log lacks."""
"""Why the total is a lower bound when a turn was cut off, or goes on."""

TITLES = ("title:custom", "title:ai", "title:summary")
"""Where a title may come from, the best first; the first prompt is the last resort."""

_LAST_WINS = ("title:", "status", "ended")
_HEADLINE = re.compile(r"(?:[^#]{1,60}: )?#{1,6} ([^#]{12,}?)(?: #{1,6} .*)?", re.DOTALL)
_OFF = Is.INTERNAL | Is.SIDE | Is.ROLLED_BACK


class AncestorFacts(msgspec.Struct, frozen=True):
    """What a session goes on from: events of other sessions, linked, and the one it names."""

    facts: list[Fact]
    end: str | None = None
    owners: list[tuple[SessionGraph, int]] = []
    """The session of each of these facts, and its place there."""


class LinePart(msgspec.Struct, frozen=True):
    """The part of a line that stands in one session of a lineage."""

    session: SessionGraph
    places: list[int]


class SessionGraph:
    """One session. Everything is worked out once, when first asked for."""

    def __init__(
        self,
        uid: str,
        facts: Iterable[Fact],
        *,
        replayed: Container[str] = frozenset(),
        billed: Container[str] = frozenset(),
        before: AncestorFacts | None = None,
        origin: tuple[SessionGraph, int | None] | None = None,
        torn: bool = False,
        totals: Mapping[tuple[str, str], Usage] | None = None,
    ) -> None:
        """Put a session together.

        `replayed` holds the copy keys of records that other sessions own, `billed` the usage
        keys that they pay for. What this one goes on from without holding a copy is given as
        `before`, events from `up_to`, or as `origin`: a session, and the last place in it before
        this one. `totals` are the running totals, by channel and file, of records before these
        that are not among them.
        """
        self.uid = uid
        self._totals = totals or {}
        self.torn = torn
        self.before = before or AncestorFacts([])
        self._origin = origin
        self._replayed = replayed
        now, self.gone = _generations(name_repeats(in_written_order(facts)))
        """Facts that a log held before it was rewritten, and no place holds any more."""
        self._places = by_place(now)
        events = [fact for fact in now if fact.blocks]
        self.about_only = [fact for fact in now if not fact.blocks]
        self._traits = _traits(events)
        self._has_copies = (
            replayed != frozenset()
            or bool(self._traits & _Has.COPIES)
            or any(fact.origin is not None for fact in self.about_only)
        )
        if self.is_in_one_place:
            self.facts, self._shared = self._put_right(events, self.about_only, billed)
        else:
            self.facts, self._shared = self._unite(billed)
        """The facts that are events, in written order, linked; those no log holds are not here."""

    def _unite(self, billed: Container[str]) -> tuple[list[Fact], dict[str, int]]:
        """Put right what each place holds by itself, and return the union of it.

        What a log says depends on what stands before it there: totals, the line it continues.
        """
        notes = [[fact for fact in place if not fact.blocks] for place in self._places]
        self.about_only = merge_places(notes)
        places: list[list[Fact]] = []
        shared: dict[str, int] = {}
        for place, about_only in zip(self._places, notes, strict=True):
            events = [fact for fact in place if fact.blocks]
            facts, more = self._put_right(events, about_only, billed)
            places.append(facts)
            shared = more | shared
        facts = merge_places(places)
        has_sides = self._traits & _Has.SIDES
        return _said_once(_without_mirrors(facts)) if has_sides else facts, shared

    def _put_right(
        self, events: list[Fact], about_only: list[Fact], billed: Container[str]
    ) -> tuple[list[Fact], dict[str, int]]:
        """Link and bill facts, where they are not already; most sessions need nothing of it."""
        has = self._traits
        out, shared = fact_assembly.gather_facts(
            events, about_only, in_pieces=bool(has & _Has.PIECES)
        )
        if has & _Has.TOTALS:
            out = _bill_totals(out, self._totals)
        if has & _Has.SIDES:
            out = _said_once(_without_mirrors(out))
        out = _paid_here(out, billed)
        return (_link_parents(out) if has & _Has.UNLINKED else out), shared

    @property
    def is_in_one_place(self) -> bool:
        """Whether no other place holds a copy of the session, as nearly always."""
        return len(self._places) == 1

    @property
    def in_pieces(self) -> bool:
        """Whether texts come in pieces, or bills for whole turns."""
        return bool(self._traits & _Has.PIECES)

    @property
    def is_unlinked(self) -> bool:
        """Whether records name no parent: each follows the one before it."""
        return bool(self._traits & _Has.UNLINKED)

    @property
    def native(self) -> str:
        """The id the session has in its agent's own world."""
        return self.uid.partition(":")[2]

    # -- the graph ----------------------------------------------------------------------

    @cached_property
    def graph(self) -> Graph:
        """All events, linked."""
        if self._replayed == frozenset() and not self._traits & (_Has.SIDES | _Has.COPIES):
            return Graph([fact.node for fact in self.facts])
        return Graph([self._node(fact) for fact in self.facts])

    def _node(self, fact: Fact) -> Node:
        flags = fact.node.flags
        if fact.channel != "main":
            flags |= Is.SIDE
        if self.is_copy(fact):
            flags |= Is.REPLAYED
        if flags == fact.node.flags:
            return fact.node
        return msgspec.structs.replace(fact.node, flags=flags)

    def is_copy(self, fact: Fact) -> bool:
        """Return whether another session owns a record."""
        if fact.origin is not None and fact.origin != self.native:
            return True
        return (fact.copy_key or fact.node.id) in self._replayed

    def own(self, facts: Sequence[Fact]) -> Sequence[Fact]:
        """Return those of some records that no other session owns."""
        if not self._has_copies:
            return facts
        return [fact for fact in facts if not self.is_copy(fact)]

    @property
    def states(self) -> list[State]:
        """One state per fact."""
        return self.graph.states

    def turns_in(self, places: Iterable[int]) -> int:
        """Return how many turns begin with these records."""
        nodes, states = self.graph.nodes, self.states
        return sum(begins_turn(nodes[place], states[place]) for place in places)

    def turn(self, *, alive: bool | None = None) -> TurnNow:
        """Tell where the last turn stands."""
        return turn_of(self.graph, torn=self.torn, alive=alive, records=self.facts)

    # -- events -------------------------------------------------------------------------

    @cached_property
    def occurrences(self) -> list[int | None]:
        """Which version of its id each fact is; see `facts.occurrences`."""
        return occurrences(self.facts)

    @cached_property
    def events(self) -> list[SessionEvent]:
        """All events in written order, what was rewritten away last; not yet numbered."""
        out = events_of(self.facts, self.states, self.uid, self.occurrences)
        if not self.gone:
            return out
        known = {event.event_id for event in out}
        gone = [fact for fact in self.gone if fact.blocks]
        lost = events_of(gone, [State.DEAD] * len(gone), self.uid)
        return out + [
            msgspec.structs.replace(event, why=REWRITTEN)
            for event in lost
            if event.event_id not in known
        ]

    @cached_property
    def call_blocks(self) -> dict[int, Block]:
        """The blocks of calls, results and files by the ids of their events."""
        blocks = event_blocks(self.facts, self.occurrences)
        out = _stored_blocks(zip(self.events, blocks, strict=bool(not self.gone)))
        if self.gone:
            gone = [fact for fact in self.gone if fact.blocks]
            lost = events_of(gone, [State.DEAD] * len(gone), self.uid)
            out = _stored_blocks(zip(lost, event_blocks(gone), strict=True)) | out
        return out

    @cached_property
    def _statuses(self) -> dict[str, CallStatus]:
        return merge_statuses(self.facts)

    @cached_property
    def calls(self) -> list[derived_events.Call]:
        """All calls with their results, in written order; copies are not among them."""
        return derived_events.calls(self.events, self.call_blocks, self._statuses)

    @cached_property
    def copied_calls(self) -> list[derived_events.Call]:
        """The calls of records that are copies of another session's, with their results."""
        if State.REPLAYED not in self.states:
            return []
        pairs = derived_events.calls(self.events, self.call_blocks, self._statuses, copies=True)
        return [pair for pair in pairs if pair.call.state is State.REPLAYED]

    @cached_property
    def outcomes(self) -> dict[int, CallOutcome]:
        """How each call went, by the id of its event."""
        return {pair.call.event_id: pair.outcome for pair in self.calls}

    @cached_property
    def derived(self) -> list[SessionEvent]:
        """The further events that these imply: test runs, edits, errors, retries, rests."""
        return derived_events.derive_events(
            self.events, self.calls, self.call_blocks, stops=self.stops
        )

    @cached_property
    def stops(self) -> frozenset[str]:
        """The ids of records that say that the user cut a turn short."""
        return frozenset(fact.node.id for fact in self.facts if fact.node.flags & Is.BY_USER)

    @cached_property
    def bills(self) -> dict[int, Usage]:
        """Every bill once: the event that carries it, and its usage."""
        return derived_events.bills(self.events)

    @cached_property
    def spent(self) -> derived_events.Spent:
        """What the session took, by what became of it; copies not counted."""
        return derived_events.spent(self.events, self.bills)

    @cached_property
    def unbilled(self) -> list[Notice]:
        """Why the total is a lower bound: bills that should be there and are not.

        Bills that hold what others pay, and nobody can say how much, are told here as well.
        """
        own = self.own((*self.facts, *self.about_only))
        notices = [Notice(MINIMUM, f.unbilled) for f in own if f.unbilled is not None]
        overdue, due = fact_assembly.overdue(own)
        notices += [Notice(MINIMUM, why) for why in (*overdue, *due.values())]
        notices += [Notice(MINIMUM, NEVER_BILLED) for _ in fact_assembly.owed_bills(own)]
        notices += [Notice(MINIMUM, UNDERSTATED) for _ in fact_assembly.understated_bills(own)]
        return notices + self.billed_for_others

    @property
    def billed_for_others(self) -> list[Notice]:
        """Bills that hold requests of other sessions, and nobody can say how much."""
        return self.billed_for_others_in((*self.facts, *self.about_only))

    def billed_for_others_in(self, facts: Iterable[Fact]) -> list[Notice]:
        """Return `billed_for_others` of some records."""
        return [
            Notice("billed for others", f"{number} requests of other sessions are on a bill")
            for fact in (facts if self._shared else ())
            if (number := self._shared.get(fact.node.id)) and fact.usage and not self.is_copy(fact)
        ]

    # -- what it continues --------------------------------------------------------------

    def _lineage_end(self, to: int | None) -> int | None:
        """Return where a line ends among the facts of the whole lineage."""
        graph, older = self._lineage[0], len(self.before.facts)
        end = graph.end if to is None else older + to
        if end is None or (end < older and not self._moved_here):
            return graph.place(self.before.end or "")  # nothing was said here yet
        return end

    def line(self, to: int | None = None, *, boundaries: bool = True) -> list[LinePart]:
        """Return the live line, or the line to a place: first what stands in other sessions.

        With `boundaries` only what no summary stands for.
        """
        if self._origin is not None:
            own = LinePart(self, self.graph.chain(to, boundaries=boundaries))
            is_summed = own.places and self.graph.nodes[own.places[0]].flags & Is.SUMMARY
            return [own] if boundaries and is_summed else [*self._line_above(boundaries), own]
        if not self.before.facts:
            return [LinePart(self, self.graph.chain(to, boundaries=boundaries))]
        end = self._lineage_end(to)
        parts: list[LinePart] = []
        older = len(self.before.facts)
        chain = self._lineage[0].chain(end, boundaries=boundaries) if end is not None else ()
        for place in chain:
            owner, at = self.before.owners[place] if place < older else (self, place - older)
            if not parts or parts[-1].session is not owner:
                parts.append(LinePart(owner, []))
            parts[-1].places.append(at)
        return parts

    def _line_above(self, boundaries: bool) -> list[LinePart]:  # noqa: FBT001 - as asked for
        """Return the line in the session that this one continues, up to where this one begins."""
        if self._origin is None:
            return []
        above, place = self._origin
        if place is None:  # nothing stands before: this one continues what that one continues
            return above._line_above(boundaries)  # noqa: SLF001 - of the same class
        return above.line(place, boundaries=boundaries)

    def place_before(self, base: Base) -> int | None:
        """Return the last place of the line that another session goes on from."""
        log = [fact for fact in self.facts if fact.file == base.file]
        line = _line(log, {fact.node.id: fact for fact in self.facts}, base)
        return self.graph.place(line[-1].node.id) if line else None

    def up_to(self, base: Base) -> AncestorFacts:
        """Return what another session goes on from that names one of our events.

        What was written after that event is left out: it changes nothing for the other one. An
        event that is not there is taken for the last one before its place.
        """
        graph, facts = self._lineage
        named = [i for i, fact in enumerate(facts) if fact.node.id == base.event]
        older = len(self.before.facts)
        cut: Sequence[int] = range(named[-1] + 1 if named else 0)
        if not named:
            own = (older + i for i, fact in enumerate(self.facts) if _stands_before(fact, base))
            cut = [*range(older), *own]
        nodes = [msgspec.structs.replace(graph.nodes[i], tip=None) for i in cut]
        last = None if named else Graph(nodes).end
        return AncestorFacts(
            [msgspec.structs.replace(facts[i], node=n) for i, n in zip(cut, nodes, strict=True)],
            base.event if named else nodes[last].id if last is not None else None,
            [self.before.owners[i] if i < older else (self, i - older) for i in cut],
        )

    @cached_property
    def _lineage(self) -> tuple[Graph, list[Fact]]:
        """All events, behind those of other sessions that this one goes on from.

        Within a session a result may hang beside the line of its call. One that answers a call
        of another session counts on its own line only: its writer saw no call beside it.
        """
        if not self.before.facts:
            return self.graph, self.facts
        nodes = [fact.node for fact in self.before.facts]
        abroad = {call for node in nodes for call in node.calls}
        for fact, node in zip(self.facts, self.graph.nodes, strict=True):
            made = node
            if fact.base is not None and node.parent is None:
                made = msgspec.structs.replace(made, parent=self.before.end)
            if not abroad.isdisjoint(node.answers):
                here = tuple(call for call in node.answers if call not in abroad)
                made = msgspec.structs.replace(made, answers=here)
            nodes.append(made)
        return Graph(nodes), [*self.before.facts, *self.facts]

    @property
    def _moved_here(self) -> bool:
        return any(node.tip is not None for node in self.graph.nodes)

    # -- the session --------------------------------------------------------------------

    @cached_property
    def about(self) -> dict[str, JSON]:
        """What the records say of the session: the first word counts, of titles the last.

        Objects of one name are put together.
        """
        return add_about({}, self.own((*self.about_only, *self.facts)))

    @cached_property
    def title(self) -> str | None:
        """The session's name: given, made up, or the first prompt of all that it continues."""
        graph, above = self.graph, self._above
        title = title_of(self.about, None, lambda name: graph.place(name) is not None)
        title = title or (above.title if above is not None else None)
        return title or prompt_title(self.first_prompt)

    @property
    def _above(self) -> SessionGraph | None:
        """The session that this one continues, if it is known and not held as a copy."""
        if self._origin is not None:
            return self._origin[0]
        return self.before.owners[-1][0] if self.before.owners else None

    @cached_property
    def first_prompt(self) -> str | None:
        """The summary of the first prompt that has one."""
        prompts = (e.summary for e in self.events if e.kind == "user_msg" and not e.is_sidechain)
        return next((prompt for prompt in prompts if prompt), None)

    @cached_property
    def edges(self) -> list[Edge]:
        """Ties to other sessions, each told once."""
        facts = self.own((*self.about_only, *self.facts))
        own = (edge for fact in facts for edge in fact.edges if edge.session != self.native)
        return list({(e.link, e.session, e.child, e.call): e for e in own}.values())

    def session(self, **known: str | int | None) -> Session:
        """Tell what the session is as a whole; `known` is what its source says."""
        fields = {name: _word(self.about.get(name)) for name in ("cwd", "git_branch", "model")}
        return derived_events.session_of(
            self.events,
            uid=self.uid,
            took=self.spent,
            turns=self.turns_in(range(len(self.facts))),
            retries=derived_events.count_retries(self.calls),
            **{**fields, **known},
        )


def _stored_blocks(pairs: Iterable[tuple[SessionEvent, Block]]) -> dict[int, Block]:
    """Return the blocks by the ids of their events that say something of a call or a file."""
    out: dict[int, Block] = {}
    for event, block in pairs:
        if block.effect is not None or block.evidence is not None or block.tone:
            out.setdefault(event.event_id, block)
    return out


def add_about(about: Mapping[str, JSON], facts: Iterable[Fact]) -> dict[str, JSON]:
    """Return what records say of their session, added to what earlier ones said."""
    out = dict(about)
    for fact in facts:
        if fact.about and fact.channel == "main":
            merge_about(out, fact.about)
    return out


def merge_about(out: dict[str, JSON], more: Mapping[str, JSON]) -> None:
    """Add what a record says of its session: the first word counts, of titles the last."""
    for name, value in more.items():
        known = out.get(name)
        if isinstance(value, dict) and isinstance(known, dict):
            out[name] = {**known, **value}
        elif name.startswith(_LAST_WINS) or known in (None, ""):
            out[name] = value


def title_of(
    about: Mapping[str, JSON], prompt: str | None, is_known: Callable[[str], bool]
) -> str | None:
    """Return a session's title: given, made up, or from its first prompt.

    `is_known` tells which events are the session's own: some logs hold titles of any session.
    """
    for name in TITLES:
        if isinstance(title := about.get(name), str) and title.strip():
            return title
    titles = about.get("titles")
    own = titles.items() if isinstance(titles, dict) else ()
    named = [title for event, title in own if title and is_known(event)]
    if named and (title := _word(named[-1])) is not None:
        return title
    return prompt_title(prompt)


def prompt_title(prompt: str | None) -> str | None:
    """Return the title of a session that nobody gave one: its first prompt, if there is any."""
    return _headline(prompt) if prompt else None


def _word(value: JSON) -> str | None:
    return value if isinstance(value, str) and value else None


# -- putting it together --------------------------------------------------------------------


class _Has:
    """What few sessions have among their facts. Plain ints, as in `Is`."""

    SIDES = 1  # facts of subagents
    PIECES = 2  # texts in pieces, bills for whole turns
    TOTALS = 4
    UNLINKED = 8
    COPIES = 16  # records that name another session as their own


def _headline(prompt: str) -> str:
    """Name a prompt by its first heading, if it begins with one, or with one after a lead-in.

    Plans are handed over so, and all of them with the same words.
    """
    match = _HEADLINE.fullmatch(prompt)
    return match[1] if match else prompt


def _traits(facts: list[Fact]) -> int:
    """Find out in one pass what of all that has to be put right is there at all."""
    out = 0
    for fact in facts:
        if fact.channel != "main":
            out |= _Has.SIDES
        if fact.piece is not None or fact.turn_bill is not None:
            out |= _Has.PIECES
        if fact.running is not None:
            out |= _Has.TOTALS
        if fact.node.parent == PREVIOUS:
            out |= _Has.UNLINKED
        if fact.origin is not None:
            out |= _Has.COPIES
    return out


def _generations(facts: list[Fact]) -> tuple[list[Fact], list[Fact]]:
    """Part what the logs hold now from what they held before they were rewritten."""
    if not any(fact.generation for fact in facts):
        return facts, []
    newest: dict[str, int] = {}
    for fact in facts:
        newest[fact.file] = max(newest.get(fact.file, 0), fact.generation)
    now = [fact for fact in facts if fact.generation == newest[fact.file]]
    current = {fact.node.id for fact in now}
    before = [fact for fact in facts if fact.generation != newest[fact.file]]
    gone = [fact for fact in _bill_totals(before, {}) if fact.node.id not in current]
    # A log that was rewritten back and forth held the same records several times: once is enough.
    last = {(fact.file, fact.node.id): fact.generation for fact in gone}
    gone = [f for f in gone if f.generation == last[f.file, f.node.id]]
    places = by_place(gone)
    return now, gone if len(places) == 1 else merge_places(places)


def _bill_totals(facts: list[Fact], totals: Mapping[tuple[str, str], Usage]) -> list[Fact]:
    """Turn running totals into bills: what each adds to the one before it in its log.

    A total that falls has started again. Where a log begins to tell single bills, its totals no
    longer count: they say the same, with errors. `totals` stood before the first of these.
    """
    before: dict[tuple[str, str, int], Usage] = {}
    exact: set[str] = set()
    out: list[Fact] = []
    for fact in facts:
        if fact.usage is not None:
            exact.add(fact.channel)
        total = fact.running
        if total is not None and fact.channel not in exact:
            log = (fact.channel, fact.file, fact.generation)
            last = before.get(log) or totals.get(log[:2], Usage())
            more = (
                derived_events.subtract_usage(total, last) if total.total >= last.total else total
            )
            before[log] = total
            if more.total:
                fact = msgspec.structs.replace(fact, usage=more)  # noqa: PLW2901
        out.append(fact)
    return out


def _without_mirrors(facts: list[Fact]) -> list[Fact]:
    """Leave out what a parent's log repeats of a subagent whose own log is there."""
    own = {f.channel for f in facts if f.channel != "main" and not f.type.startswith(MIRRORED)}
    return [f for f in facts if f.channel not in own or not f.type.startswith(MIRRORED)]


def _said_once(facts: list[Fact]) -> list[Fact]:
    """Strike the bills of responses that a sidechain repeats under a request of its own."""
    paid = {f.node.response for f in facts if f.usage is not None and f.channel == "main"} - {None}
    return [
        msgspec.structs.replace(fact, usage=None, usage_key=None, cost_usd=None)
        if fact.channel != "main" and fact.usage is not None and fact.node.response in paid
        else fact
        for fact in facts
    ]


def _paid_here(facts: list[Fact], elsewhere: Container[str]) -> list[Fact]:
    """Strike the bills that another session pays."""
    if elsewhere == frozenset():
        return facts
    return [
        msgspec.structs.replace(fact, usage=None, usage_key=None, cost_usd=None)
        if fact.usage_key is not None and fact.usage_key in elsewhere
        else fact
        for fact in facts
    ]


def _link_parents(facts: list[Fact]) -> list[Fact]:
    """Set the parents of facts from logs that have none."""
    logs: dict[tuple[str, str], list[Fact]] = {}
    for fact in facts:
        logs.setdefault((fact.channel, fact.file), []).append(fact)
    known: dict[str, Fact] = {}
    made: dict[tuple[str, str], list[Fact]] = {}
    for (channel, file), log in logs.items():
        base = next((f.base for f in log if f.base is not None), None)
        log_before = made.get((channel, base.file + place_of(file)), []) if base else []
        before = _line(log_before, known, base) if base else []
        nodes = in_sequence([f.node for f in (*before, *log)])[len(before) :]
        linked = [
            msgspec.structs.replace(fact, node=node) for fact, node in zip(log, nodes, strict=True)
        ]
        made[channel, file] = linked
        known.update((fact.node.id, fact) for fact in linked)
    return [fact for log in made.values() for fact in log]


def _line(log: list[Fact], known: dict[str, Fact], base: Base) -> list[Fact]:
    """The line that a log goes on from: up from the last event before its base."""
    standing = [f for f in log if _precedes(f, base) and not f.node.flags & _OFF]
    out: list[Fact] = []
    at = standing[-1] if standing else None
    while at is not None:
        out.append(at)
        at = known.get(at.node.parent or at.node.logical or "")
    return out[::-1]


def _stands_before(fact: Fact, base: Base) -> bool:
    """Whether a fact stands before a place of the same session, in this log or an older one."""
    return fact.file < base.file or (fact.file == base.file and _precedes(fact, base))


def _precedes(fact: Fact, base: Base) -> bool:
    if base.offset is not None:
        return fact.offset < base.offset
    if base.ordinal is not None:
        return fact.ordinal is not None and fact.ordinal < base.ordinal
    return True
