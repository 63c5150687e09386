"""Which records of a session can be sealed: nothing that may still come can reach them. Pure.

A log is cut where all later records continue one record before the cut, and where no call, bill,
response, boundary, rollback or move of the tip stands on both sides. That record stays as an
*anchor*, the root of what follows. What is open in the last turn is never sealed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from thence.format.facts import Block, Fact, occurrences
from thence.format.graph import State
from thence.format.nodes import PREVIOUS, Is, Node
from thence.format.normal import SessionEvent
from thence.format.whole import Whole

WINDOW_RECORDS, SIDE_RECORDS = 24, 6
"""Records that stay in the window: of the main channel, and of each sidechain."""

OFF_LINE = Is.INTERNAL | Is.SIDE | Is.ROLLED_BACK
"""Flags of records that no line of conversation ends in."""

_SAID = Is.PROMPT | Is.REPLY | Is.INTERRUPTS
_RESTS = Is.ENDS | Is.INTERRUPTS
_LIVE = (State.LIVE, State.ORPHANED)


class View:
    """An evaluated window: which places and events are its own, and not an anchor's."""

    def __init__(self, whole: Whole, anchors: Collection[str]) -> None:
        self.whole = whole
        facts = whole.facts
        self.own = [at for at, fact in enumerate(facts) if fact.node.id not in anchors]
        self.notes = whole.about_only
        self.events: list[list[SessionEvent]] = []
        start, events = 0, whole.events
        for fact, nth in zip(facts, occurrences(facts), strict=True):
            end = start if nth is None else start + len(fact.blocks)
            self.events.append(events[start:end])
            start = end
        self.rewritten = events[start:]
        """Events that no log holds any more."""
        self.gone = whole.gone

    def is_standing_prompt(self, place: int) -> bool:
        """Return whether a rollback would count this record as a prompt."""
        flags = self.whole.graph.nodes[place].flags
        return bool(flags & Is.PROMPT) and not flags & OFF_LINE


def all_calls(facts: Iterable[Fact]) -> set[str]:
    """Return the ids of all calls that records make, answer or tell of."""
    out: set[str] = set()
    for fact in facts:
        node = fact.node
        for block in fact.blocks:
            if block.call is not None:
                out.add(block.call)
        if node.calls or node.answers or fact.told:
            out.update(node.calls, node.answers, [told.call for told in fact.told])
    return out


def calls_in(fact: Fact) -> set[str]:
    """Return the ids of all calls that a record makes, answers or tells of."""
    return all_calls((fact,))


def is_said(node: Node) -> bool:
    """Return whether a record is part of a turn."""
    return bool(node.flags & _SAID or node.calls or node.answers)


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


def is_before(fact: Fact, starts: Mapping[str, tuple[str, int, int]]) -> bool:
    """Return whether a record stands before the start of its log's window."""
    start = starts.get(log_of(fact))
    return start is not None and order_of(fact) < start


class Cut(msgspec.Struct):
    """What of one log is sealed: its places, what the window begins with, and the anchor."""

    sealed: list[int]
    start: tuple[str, int, int]
    anchor: Fact


def order_of(fact: Fact) -> tuple[str, int, int]:
    """Return where a record stands in written order."""
    return fact.file, fact.generation, fact.line


def log_of(fact: Fact) -> str:
    """Return the name of the log a record is in: the main channel, or one sidechain's file."""
    return fact.channel if fact.channel == "main" else f"{fact.channel}\n{fact.file}"


def may_seal(view: View) -> bool:
    """Return whether the records are of a kind whose order and links a window can hold."""
    whole = view.whole
    if not whole.is_in_one_place or whole.in_pieces:
        return False
    if whole.is_unlinked and any(f.base is not None for f in whole.facts):
        return False
    logs = [log_of(fact) for fact in whole.facts]
    if len(set(logs)) == 1:
        return True
    # Links between logs, or ids that two of them share, need both logs at hand.
    places = enumerate(whole.graph.line_parents)
    linked = any(parent >= 0 and logs[parent] != logs[place] for place, parent in places)
    return not linked and len(set(zip(_ids(whole), logs, strict=True))) == len(set(_ids(whole)))


def _ids(whole: Whole) -> list[str]:
    return [fact.node.id for fact in whole.facts]


def cuts_of(view: View) -> dict[str, Cut]:
    """Choose, for each log whose window is long enough, how much of it is sealed."""
    logs: dict[str, list[int]] = {}
    facts = view.whole.facts
    for place in view.own:
        logs.setdefault(log_of(facts[place]), []).append(place)
    long = {
        log: least
        for log, places in logs.items()
        if len(places) > 2 * (least := WINDOW_RECORDS if log == "main" else SIDE_RECORDS)
    }
    across = _cross_links(view, logs) if long and len(logs) > 1 else {}
    out: dict[str, Cut] = {}
    for log, least in long.items():
        places = logs[log]
        cut = _cut(view, places, least, across.get(log, len(places)), main=log == "main")
        if cut is not None:
            out[log] = cut
    return out


def _cross_links(view: View, logs: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return the first record of each log that another log refers to, by its number there."""
    graph = view.whole.graph
    home = {place: (log, nth) for log, places in logs.items() for nth, place in enumerate(places)}
    out: dict[str, int] = {}

    def link(place: int, other: int) -> None:
        if other in home and place in home and home[other][0] != home[place][0]:
            log, nth = home[other]
            out[log] = min(out.get(log, nth), nth)

    calls: dict[str, list[int]] = {}
    for place in view.own:
        link(place, graph.parents[place])
        for call in calls_in(view.whole.facts[place]):
            calls.setdefault(call, []).append(place)
    for places in calls.values():
        for place in places[1:]:
            link(place, places[0])
            link(places[0], place)
    return out


def _cut(view: View, places: Sequence[int], least: int, limit: int, *, main: bool) -> Cut | None:
    """Find the latest place before which one log can be sealed; None when there is none."""
    whole = view.whole
    facts, graph = whole.facts, whole.graph
    number = {place: nth for nth, place in enumerate(places)}
    blocked = _Blocked(len(places))
    _block_groups(view, places, blocked)
    _block_links(view, places, number, blocked)
    if main:
        _block_turn(view, places, number, blocked)
    lines = graph.line_parents
    # Later records continue the live line: what is sealed must lead to it.
    ahead = set(graph.chain(boundaries=False, beside=False)) if main else set(places)
    crossing: dict[int, int] = {}  # parents outside the kept records, and by how many
    best = None
    highest = min(len(places) - least, limit)
    for nth in range(len(places) - 1, 0, -1):
        place = places[nth]
        crossing.pop(place, None)
        parent = lines[place]
        if parent >= 0 or not graph.nodes[place].flags & Is.INTERNAL:
            crossing[parent] = crossing.get(parent, 0) + 1
        if nth <= highest and len(crossing) == 1 and blocked.is_free(nth):
            (anchor,) = crossing
            if (
                anchor in number
                and anchor in ahead
                and order_of(facts[places[nth - 1]]) < order_of(facts[place])
            ):
                best = nth, anchor
                break
    if best is None:
        return None
    nth, anchor = best
    sealed = list(places[:nth])
    return Cut(sealed, order_of(facts[places[nth]]), _anchor(view, anchor, sealed))


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


def _block_groups(view: View, places: Sequence[int], blocked: _Blocked) -> None:
    """Keep records together that share a call, a response, a bill or an id."""
    facts = view.whole.facts
    calls: dict[str, int] = {}  # the first record of each group
    responses: dict[str, int] = {}
    bills: dict[str, int] = {}
    ids: dict[str, int] = {}
    _join_notes(view, places, calls, blocked)
    for nth, place in enumerate(places):
        fact = facts[place]
        node, bill = fact.node, fact.usage_key
        response = node.response
        if response is not None and responses.setdefault(response, nth) != nth:
            blocked.join(responses, response, nth)
        if bill is not None and bills.setdefault(bill, nth) != nth:
            blocked.join(bills, bill, nth)
        if ids.setdefault(node.id, nth) != nth:
            blocked.join(ids, node.id, nth)
        if fact.told or node.calls or node.answers or any(b.call is not None for b in fact.blocks):
            for call in calls_in(fact):
                blocked.join(calls, call, nth)


def _join_notes(
    view: View, places: Sequence[int], calls: dict[str, int], blocked: _Blocked
) -> None:
    """Keep what notes tell of a call together; each stands with the record before it."""
    facts = view.whole.facts
    log = log_of(facts[places[0]])
    notes = [note for note in view.notes if note.told and log_of(note) == log]
    order = [order_of(facts[place]) for place in places] if notes else []
    for note in notes:
        nth = max(bisect_right(order, order_of(note)) - 1, 0)
        for status in note.told:
            blocked.join(calls, status.call, nth)


def _block_links(
    view: View, places: Sequence[int], number: Mapping[int, int], blocked: _Blocked
) -> None:
    """Keep boundaries, moves of the tip and rollbacks together with what they name."""
    graph = view.whole.graph
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
    graph = view.whole.graph
    chain = graph.chain()
    states = view.whole.states
    said = [place for place in chain if is_said(graph.nodes[place]) and place in number]
    blocked.from_on(number[said[-1]] if said else 0)
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


def _anchor(view: View, place: int, sealed: Sequence[int]) -> Fact:
    """Return a record as the root that a window continues."""
    whole = view.whole
    fact = whole.facts[place]
    moved = whole.graph.moved_at
    tip = None
    # A move of the tip that was sealed goes on deciding: the line is what continues from here.
    if moved is not None and (moved in set(sealed) or moved not in view.own):
        tip = fact.node.id
    parent = PREVIOUS if whole.is_unlinked else None
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
