"""Which records of a session can be sealed: nothing that may still come can reach them. Pure.

A log is cut where all later records continue one record before the cut, and where no call, bill,
response, boundary, rollback or move of the tip stands on both sides. That record stays as an
*anchor*, the root of what follows. What is open in the last turn is never sealed. A *ledger* is a
file of the main channel that only keeps the books, beside those that hold the conversation: it is
cut by itself, without an anchor, and together with the calls that it tells of.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from thence.format.facts import Block, Fact
from thence.format.graph import State
from thence.format.nodes import PREVIOUS, Is, Node
from thence.format.normal import SessionEvent
from thence.format.session_graph import SessionGraph

WINDOW_RECORDS, SIDE_RECORDS = 24, 6
"""Records that stay in the window: of the main channel, and of each sidechain or ledger."""

LEDGER_NOTES = 8
"""Notes of a ledger that stay in the window; a document that is rewritten whole has fewer."""

_MAX_TRIES = 16
"""How often cuts of several logs are made smaller until no call stands on both sides."""

OFF_LINE = Is.INTERNAL | Is.SIDE | Is.ROLLED_BACK
"""Flags of records that no line of conversation ends in."""

_TURN_FLAGS = Is.PROMPT | Is.REPLY | Is.INTERRUPTS
_RESTS = Is.ENDS | Is.INTERRUPTS
_LIVE = (State.LIVE, State.ORPHANED)


class Logs(msgspec.Struct, frozen=True):
    """Which log a record is in: the main channel, one sidechain's file, or a ledger."""

    ledgers: frozenset[str] = frozenset()

    def of(self, fact: Fact) -> str:
        """Return the name of the log of a record."""
        if fact.channel == "main" and fact.file not in self.ledgers:
            return "main"
        return f"{fact.channel}\n{fact.file}"


def spoken_files(facts: Iterable[Fact]) -> frozenset[str]:
    """Return the files of the main channel that hold records of the conversation."""
    spoken: set[str] = set()
    for fact in facts:
        if fact.channel == "main" and fact.file not in spoken and _is_of_conversation(fact):
            spoken.add(fact.file)
    return frozenset(spoken)


def _is_of_conversation(fact: Fact) -> bool:
    if not fact.blocks:
        return False
    return not fact.node.flags & Is.INTERNAL or any(b.kind != "lifecycle" for b in fact.blocks)


def find_logs(facts: Iterable[Fact], spoken: Collection[str]) -> Logs:
    """Return the logs of records; `spoken` are the files that hold the conversation."""
    if not spoken:
        return Logs()
    return Logs(frozenset({f.file for f in facts if f.channel == "main"}.difference(spoken)))


class View:
    """An evaluated window: which places and events are its own, and not an anchor's."""

    def __init__(
        self,
        session: SessionGraph,
        anchors: Collection[str],
        logs: Logs = Logs(),  # noqa: B008 - frozen
    ) -> None:
        self.session = session
        self.logs = logs
        facts = session.facts
        self.own = [at for at, fact in enumerate(facts) if fact.node.id not in anchors]
        self.log_names = [logs.of(fact) for fact in facts]
        """The log of each record."""
        self.notes = session.about_only
        self.events: list[list[SessionEvent]] = []
        start, events = 0, session.events
        for fact, nth in zip(facts, session.occurrences, strict=True):
            end = start if nth is None else start + len(fact.blocks)
            self.events.append(events[start:end])
            start = end
        self.rewritten = events[start:]
        """Events that no log holds any more."""
        self.gone = session.gone

    def is_standing_prompt(self, place: int) -> bool:
        """Return whether a rollback would count this record as a prompt."""
        flags = self.session.graph.nodes[place].flags
        return bool(flags & Is.PROMPT) and not flags & OFF_LINE


def all_calls(facts: Iterable[Fact]) -> set[str]:
    """Return the ids of all calls that records make, answer or tell of."""
    out: set[str] = set()
    for fact in facts:
        out.update(_call_names(fact))
    return out


def _call_names(fact: Fact) -> list[str]:
    names = [block.call for block in fact.blocks if block.call is not None]
    if fact.node.calls:
        names += fact.node.calls
    if fact.node.answers:
        names += fact.node.answers
    if fact.told:
        names += [status.call for status in fact.told]
    return names


def calls_in(fact: Fact) -> set[str]:
    """Return the ids of all calls that a record makes, answers or tells of."""
    return set(_call_names(fact))


def is_said(node: Node) -> bool:
    """Return whether a record is part of a turn."""
    return bool(node.flags & _TURN_FLAGS or node.calls or node.answers)


def names_others(node: Node) -> bool:
    """Return whether `named_by` may have anything to yield."""
    return node.tip is not None or node.span is not None or bool(node.flags & Is.SUMMARY)


def named_by(node: Node) -> Iterator[str]:
    """Yield the records that a boundary, a summary or a move of the tip names."""
    if node.tip is not None:
        yield node.tip
    if node.span is not None:
        yield node.span.anchor
        yield from filter(None, (node.span.head, node.span.tail))
    if node.flags & Is.SUMMARY and node.logical is not None:
        yield node.logical


class Cut(msgspec.Struct):
    """What of one log is sealed: its places, what the window begins with, and the anchor."""

    sealed: list[int]
    start: tuple[str, int, int]
    anchor: Fact | None
    """None for a ledger: nothing continues it."""


def order_of(fact: Fact) -> tuple[str, int, int]:
    """Return where a record stands in written order."""
    return fact.file, fact.generation, fact.line


def may_seal(view: View) -> bool:
    """Return whether the records are of a kind whose order and links a window can hold."""
    session = view.session
    if not session.is_in_one_place:
        return False
    if session.is_unlinked and any(f.base is not None for f in session.facts):
        return False
    logs = view.log_names
    if len(set(logs)) == 1:
        return True
    # Links between logs, or ids that two of them share, need both logs at hand.
    places = enumerate(session.graph.line_parents)
    linked = any(parent >= 0 and logs[parent] != logs[place] for place, parent in places)
    return not linked and len(set(zip(_ids(session), logs, strict=True))) == len(set(_ids(session)))


def _ids(session: SessionGraph) -> list[str]:
    return [fact.node.id for fact in session.facts]


def cuts_of(view: View) -> dict[str, Cut]:
    """Choose, for each log whose window is long enough, how much of it is sealed."""
    logs: dict[str, list[int]] = {}
    for place in view.own:
        logs.setdefault(view.log_names[place], []).append(place)
    long = {
        log: least
        for log, places in logs.items()
        if len(places) > 2 * (least := WINDOW_RECORDS if log == "main" else SIDE_RECORDS)
    }
    if not long:
        return {}
    limits = {log: len(places) for log, places in logs.items()}
    shared: list[list[tuple[str, int]]] = []
    if len(logs) > 1:
        homes = {at: (log, nth) for log, places in logs.items() for nth, at in enumerate(places)}
        shared = _shared_calls(view, homes)
        _limit_links(view, homes, limits)
    searches = {log: _Search(view, log, logs[log], least) for log, least in long.items()}
    for _ in range(_MAX_TRIES):
        cuts = {log: cut for log, search in searches.items() if (cut := search.cut(limits[log]))}
        sizes = {log: len(cut.sealed) for log, cut in cuts.items()}
        if not _lower_limits(shared, sizes, limits):
            return cuts
    return {}


def _shared_calls(view: View, homes: Mapping[int, tuple[str, int]]) -> list[list[tuple[str, int]]]:
    """Return where records of calls stand that several logs tell of."""
    calls: dict[str, list[tuple[str, int]]] = {}
    for place in view.own:
        for call in calls_in(view.session.facts[place]):
            calls.setdefault(call, []).append(homes[place])
    return [uses for uses in calls.values() if len({log for log, _ in uses}) > 1]


def _limit_links(view: View, homes: Mapping[int, tuple[str, int]], limits: dict[str, int]) -> None:
    """Let no record be sealed that a record of another log continues."""
    parents = view.session.graph.parents
    for place in view.own:
        parent = parents[place]
        if parent in homes and homes[parent][0] != homes[place][0]:
            log, nth = homes[parent]
            limits[log] = min(limits[log], nth)


def _lower_limits(
    shared: Iterable[Sequence[tuple[str, int]]],
    sizes: Mapping[str, int],
    limits: dict[str, int],
) -> bool:
    """Lower limits so far that no call is sealed in one log and not in another; whether any is."""
    lowered = False
    for places in shared:
        sealed = [(log, nth) for log, nth in places if nth < sizes.get(log, 0)]
        if sealed and len(sealed) < len(places):
            lowered = True
            for log, nth in sealed:
                limits[log] = min(limits[log], nth)
    return lowered


class _Search:
    """Finds the latest place before which one log can be sealed."""

    def __init__(self, view: View, log: str, places: Sequence[int], least: int) -> None:
        self._view = view
        self._places = places
        self._highest = len(places) - least
        self._number = {place: nth for nth, place in enumerate(places)}
        self._is_ledger = log != "main" and log.startswith("main\n")
        blocked = self._blocked = _Blocked(len(places))
        _block_groups(view, log, places, blocked)
        _block_links(view, places, self._number, blocked)
        graph = view.session.graph
        # Later records continue the live line: what is sealed must lead to it.
        self._ahead = set(places)
        if log == "main":
            _block_turn(view, places, self._number, blocked)
            self._ahead = set(graph.chain(boundaries=False, beside=False))
        elif self._is_ledger:
            _block_waits(view, places, blocked)

    def cut(self, limit: int) -> Cut | None:
        """Return the cut with most sealed records, at most `limit`; None when there is none."""
        view, places = self._view, self._places
        facts, graph = view.session.facts, view.session.graph
        lines = graph.line_parents
        crossing: dict[int, int] = {}  # parents outside the kept records, and by how many
        for nth in range(len(places) - 1, 0, -1):
            place = places[nth]
            crossing.pop(place, None)
            parent = lines[place]
            if parent >= 0 or not graph.nodes[place].flags & Is.INTERNAL:
                crossing[parent] = crossing.get(parent, 0) + 1
            if nth > min(self._highest, limit) or not self._blocked.is_free(nth):
                continue
            if order_of(facts[places[nth - 1]]) >= order_of(facts[place]):
                continue
            sealed = list(places[:nth])
            if self._is_ledger and not crossing:
                return Cut(sealed, order_of(facts[place]), None)
            if len(crossing) == 1:
                (anchor,) = crossing
                if anchor in self._number and anchor in self._ahead:
                    return Cut(sealed, order_of(facts[place]), _anchor(view, anchor, sealed))
        return None


class _Blocked:
    """Which records of a log must not be the first of the window."""

    def __init__(self, size: int) -> None:
        self._steps = [0] * (size + 1)
        self._depth: list[int] | None = None

    def span(self, first: int, last: int) -> None:
        """Keep two records, and all between them, on the same side."""
        if first < last:
            self._steps[first + 1] += 1
            self._steps[last + 1] -= 1

    def join(self, firsts: dict[str, int], key: str, nth: int) -> None:
        """Keep a record on one side with all of its group; `firsts` has the first of each."""
        first = firsts.setdefault(key, nth)
        if nth < first:
            firsts[key] = nth
        self.span(min(first, nth), max(first, nth))

    def from_on(self, first: int) -> None:
        """Keep a record and all that follow it in the window."""
        if first + 1 < len(self._steps):
            self._steps[first + 1] += 1

    def until(self, last: int) -> None:
        """Let no window begin with a record or one before it."""
        self._steps[0] += 1
        self._steps[last + 1] -= 1

    def is_free(self, nth: int) -> bool:
        if self._depth is None:
            depth, self._depth = 0, []
            for step in self._steps:
                depth += step
                self._depth.append(depth)
        return not self._depth[nth]


def _block_groups(view: View, log: str, places: Sequence[int], blocked: _Blocked) -> None:
    """Keep records together that share a call, a response, a bill or an id.

    A record that only owes a bill may be parted from it, unless the bill needs what it tells: who
    was asked in the turn.
    """
    facts = view.session.facts
    calls: dict[str, int] = {}  # the first record of each group
    responses: dict[str, int] = {}
    bills: dict[str, int] = {}
    ids: dict[str, int] = {}
    _join_notes(view, log, places, calls, blocked)
    for nth, place in enumerate(places):
        fact = facts[place]
        node, bill = fact.node, fact.usage_key
        response = node.response
        if response is not None and responses.setdefault(response, nth) != nth:
            blocked.join(responses, response, nth)
        has_bill = fact.usage is not None or fact.unbilled is not None
        asks = bool(fact.edges) and bill is not None and any(edge.child for edge in fact.edges)
        if asks and not has_bill:
            blocked.from_on(nth)  # until its bill is there, which joins it below
        if bill is not None and (has_bill or asks) and bills.setdefault(bill, nth) != nth:
            blocked.join(bills, bill, nth)
        if ids.setdefault(node.id, nth) != nth:
            blocked.join(ids, node.id, nth)
        for call in _call_names(fact):
            if calls.setdefault(call, nth) != nth:
                blocked.join(calls, call, nth)


def _join_notes(
    view: View, log: str, places: Sequence[int], calls: dict[str, int], blocked: _Blocked
) -> None:
    """Keep what notes tell of a call together; each stands with the record before it."""
    facts = view.session.facts
    notes = [note for note in view.notes if note.told and view.logs.of(note) == log]
    order = [order_of(facts[place]) for place in places] if notes else []
    for note in notes:
        nth = max(bisect_right(order, order_of(note)) - 1, 0)
        for status in note.told:
            blocked.join(calls, status.call, nth)


def _block_links(
    view: View, places: Sequence[int], number: Mapping[int, int], blocked: _Blocked
) -> None:
    """Keep boundaries, moves of the tip and rollbacks together with what they name."""
    graph = view.session.graph
    nodes, line_parents = graph.nodes, graph.line_parents
    for broken in graph.breaks:
        if broken.at in number:
            blocked.until(number[broken.at])
    rolled_back: int | None = None
    for nth, place in enumerate(places):
        node, ahead = nodes[place], line_parents[place]
        if node.flags & Is.ROLLED_BACK and rolled_back is None:
            rolled_back = nth
        if node.undo is not None and rolled_back is not None:
            blocked.span(rolled_back, nth)
        others = [graph.place(name) for name in named_by(node)] if names_others(node) else []
        for other in [ahead, *others] if ahead > place else others:
            if other is not None and other in number:
                blocked.span(min(nth, number[other]), max(nth, number[other]))


def _block_turn(
    view: View, places: Sequence[int], number: Mapping[int, int], blocked: _Blocked
) -> None:
    """Keep the open calls of the last turn, and what was said last, in the window."""
    graph = view.session.graph
    chain = graph.chain()
    states = view.session.states
    spoken = [place for place in chain if is_said(graph.nodes[place]) and place in number]
    blocked.from_on(number[spoken[-1]] if spoken else 0)
    if graph.end is not None and graph.end in number:
        blocked.from_on(number[graph.end])
    rests = [number[p] for p in chain if graph.nodes[p].flags & _RESTS and p in number]
    for nth, place in enumerate(places):
        node = graph.nodes[place]
        if not node.calls or states[place] not in _LIVE:
            continue
        if all(call in graph.answered for call in node.calls):
            continue
        after = next((rest for rest in rests if rest > nth and places[rest] != graph.end), None)
        if after is None:
            blocked.from_on(nth)
        else:
            blocked.span(nth, after)


def _block_waits(view: View, places: Sequence[int], blocked: _Blocked) -> None:
    """Keep in the window what a ledger says last of waiting, and that its writer has closed."""
    nodes = view.session.graph.nodes
    waits = None
    for nth, place in enumerate(places):
        flags = nodes[place].flags
        if flags & (Is.WAITS | Is.GOES_ON):
            waits = nth if flags & Is.WAITS else None
        if flags & Is.CLOSES:
            blocked.from_on(nth)
    if waits is not None:
        blocked.from_on(waits)


def sealed_notes(view: View, cuts: Mapping[str, Cut]) -> list[Fact]:
    """Return the notes that are sealed with these cuts: those before the start of their log.

    Of a ledger's own notes the last stay, and all from the first on that may still be needed: it
    tells of a call that is not sealed, or what another session was billed.
    """
    starts = {log: cut.start for log, cut in cuts.items()}
    sealed = {place for cut in cuts.values() for place in cut.sealed}
    facts = view.session.facts
    open_calls = all_calls(facts[place] for place in view.own if place not in sealed)
    ledgers: dict[str, list[Fact]] = {}
    out: list[Fact] = []
    for note in view.notes:
        log = view.logs.of(note)
        if log.startswith("main\n"):
            ledgers.setdefault(log, []).append(note)
        elif log in starts and order_of(note) < starts[log]:
            out.append(note)
    for notes in ledgers.values():
        for note in notes[:-LEDGER_NOTES]:
            calls = {status.call for status in note.told}
            if note.shares or not open_calls.isdisjoint(calls):
                break
            out.append(note)
    return out


def _anchor(view: View, place: int, sealed: Sequence[int]) -> Fact:
    """Return a record as the root that a window continues."""
    session = view.session
    fact = session.facts[place]
    moved = session.graph.moved_at
    tip = None
    # A move of the tip that was sealed goes on deciding: the line is what continues from here.
    if moved is not None and (moved in set(sealed) or moved not in view.own):
        tip = fact.node.id
    parent = PREVIOUS if session.is_unlinked else None
    node = Node(fact.node.id, parent, Is.TRAILS if tip else 0, tip=tip)
    blocks = tuple(Block("lifecycle", "system") for _ in fact.blocks)
    return Fact(
        node,
        fact.type,
        fact.ts,
        blocks,
        fact.file,
        fact.channel,
        fact.generation,
        fact.line,
        fact.offset,
        fact.ordinal,
    )
