"""The session as a graph: tips, chains, branches, boundaries, and one state per event.

A log is not a list. Events name their parent; people rewind, fork and compact, processes die,
files are damaged. This module takes *light nodes*, made from any agent's records, and answers
what is live and what is not. Invariants:

- Every node ends in exactly one `State`; nothing is dropped. The first that applies, in the
  order of the enum, wins.
- Nodes are known by their place in the log, since ids may repeat. Order is written order.
- No input raises. Dangling parents are bridged to the record before, cycles are cut, repeated
  ids are copies of the first; each is listed in `breaks`.
- The log is never changed by a compaction: a boundary on the chain is applied when it is read,
  and one whose anchor, head or tail points nowhere is not applied.
- What stands before a compaction or a cleared context is on the line, not on a branch: nobody
  left it.
- Iterative and linear in the number of nodes.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cached_property

import msgspec

from thence.format.links import Break, Links
from thence.format.nodes import Is, Node, Span


class State(StrEnum):
    """What became of an event."""

    REPLAYED = "replayed"  # a copy of an event that stands elsewhere
    INTERNAL = "internal"  # book-keeping
    ROLLED_BACK = "rolled_back"  # undone by a marker later in the log
    SIDE = "side"  # said by a subagent
    DEAD = "dead"  # rewound or abandoned
    ORPHANED = "orphaned"  # on the live line, with a call that never got its result
    LIVE = "live"  # on the line that leads to the tip, also before a compaction or a clear


_OFF_LINE = Is.INTERNAL | Is.SIDE | Is.ROLLED_BACK
"""Flags of what no line ends in. A replayed event is not among them: a fork's line begins with
the copies of what it goes on from."""


_NOT_ON_LINE_FLAGS = _OFF_LINE | Is.REPLAYED
"""Flags that say the state of their node, whatever line it is on."""

_REST = Is.PROMPT | Is.ENDS | Is.SUMMARY
"""Flags of events at which an exchange of calls and results begins or ends."""


class Branch(msgspec.Struct, frozen=True):
    """A discarded branch: where it parted, where it starts, its dead and rolled-back events."""

    at: int | None
    start: int
    events: tuple[int, ...]


def _state_told(flags: int) -> State:
    """The state that flags alone decide, in the order of the enum."""
    if flags & Is.REPLAYED:
        return State.REPLAYED
    if flags & Is.INTERNAL:
        return State.INTERNAL
    return State.ROLLED_BACK if flags & Is.ROLLED_BACK else State.SIDE


class Graph:
    """All nodes of one session, linked. Places are indexes into `nodes`."""

    def __init__(self, nodes: Sequence[Node], *, partial: bool = False) -> None:
        """Link the nodes.

        Of a `partial` log, the end of a longer one, a parent that is not there stands before
        it: nothing is bridged, and the line begins where it is cut.
        """
        self.nodes = nodes
        links = Links(nodes, partial=partial)
        self._breaks = links.breaks
        self._copies = links.copies
        self._is_above, self._is_under = links.is_above, links.is_under
        self._place = links.place
        self._points_back = links.points_back
        self.parents = links.parents
        """Places of parents; -1 is a root."""
        self.line_parents = links.line_parents
        """The same with the gaps at boundaries and cleared contexts closed."""
        self._again: dict[str, list[int]] = {}
        self._views: dict[int, list[int]] = {}
        self._live_chains: dict[tuple[bool, bool], list[int]] = {}

    # -- questions ----------------------------------------------------------------------

    @property
    def breaks(self) -> list[Break]:
        """Where the log's own links did not hold: bridged, cut, doubled, not applied."""
        _ = self._spans, self._last_move  # both note what they could not follow
        return sorted(self._breaks, key=lambda b: b.at)

    def place(self, event: str) -> int | None:
        """Where the event with this id stands."""
        return self._place.get(event)

    @cached_property
    def children(self) -> dict[int, list[int]]:
        """Who goes on from whom, in written order; -1 holds the roots. Copies are left out."""
        out: dict[int, list[int]] = {}
        for i, parent in enumerate(self.parents):
            if i not in self._copies:
                out.setdefault(parent, []).append(i)
        return out

    @property
    def roots(self) -> list[int]:
        """Events that go on from nothing."""
        return self.children.get(-1, [])

    @cached_property
    def _is_parent(self) -> bytearray:
        """1 for every event that another one names as its parent."""
        out = bytearray(len(self.nodes))
        for parent in self.parents:
            if parent >= 0:
                out[parent] = 1
        return out

    @cached_property
    def tips(self) -> list[int]:
        """Events that nobody continues, in written order."""
        return [i for i, more in enumerate(self._is_parent) if not more and i not in self._copies]

    def parting_events(self, branches: Iterable[Branch], home: Container[int]) -> Iterator[int]:
        """Yield, for each branch, the event of a line that it parts from, maybe through others.

        -1 where it parts from none of them.
        """
        known: dict[int, int] = {}
        for branch in branches:
            at, path = -1 if branch.at is None else branch.at, list[int]()
            while at >= 0 and at not in home and at not in known:
                path.append(at)
                at = self.line_parents[at]
            at = known.get(at, at)
            known.update(dict.fromkeys(path, at))
            yield at

    def _is_lone_answer(self, i: int) -> bool:
        """Whether an event answers its own parent's call and nobody goes on from it."""
        answers, parent = self.nodes[i].answers, self.parents[i]
        if not answers or parent < 0 or self._is_parent[i]:
            return False
        return not set(answers).isdisjoint(self.nodes[parent].calls)

    # -- the live line ------------------------------------------------------------------

    @cached_property
    def end(self) -> int | None:
        """The last event of the live line, open calls included.

        The last event that moved the tip decides; what was written after it, going on from
        there, is followed (all that goes on from there, if the writer is known to note its tip
        late). Without one it is the last-written event that can stand on a line.
        """
        if self._last_move is None:
            places = range(len(self.nodes) - 1, -1, -1)
            last = self._pick(i for i in places if self._can_end(i))
            return last if last is None or self._points_back else self._below(last)
        target, when = self._last_move
        reached = sorted(self._descendants_after(target, when), reverse=True)
        last = self._pick(i for i in reached if self._can_end(i))
        return self._nearest(target) if last is None else last

    def _pick(self, candidates: Iterator[int]) -> int | None:
        """Take the last-written candidate, but no result that lags behind its own turn.

        Results of parallel calls hang each off its own call; one that comes in late must not
        pull the end of the line back to it when the conversation has gone on elsewhere.
        """
        last = next(candidates, None)
        if last is None or not self._is_lone_answer(last):
            return last
        call = self.parents[last]
        answers = {call: last}
        for i in candidates:
            if i <= call and self._points_back:
                break  # all that goes on from the call was written after it
            if self._is_lone_answer(i):
                answers.setdefault(self.parents[i], i)
            elif i != call and self._is_above(call, i):
                return answers.get(i, i)
        return last

    def _below(self, i: int) -> int:
        """Go on from an event that was written after what continues it.

        So it is in a log whose lines were shuffled: on to the last-written child, to the end.
        """
        last = i
        while kids := [k for k in self.children.get(i, ()) if self._can_link(k)]:
            i = kids[-1]
            last = i if self._can_end(i) else last
        return last

    def _can_link(self, i: int) -> bool:
        return not self.nodes[i].flags & (Is.SIDE | Is.ROLLED_BACK)

    @cached_property
    def _last_move(self) -> tuple[int, int] | None:
        """The last move of the tip, if it leads somewhere: (target, when)."""
        for i in range(len(self.nodes) - 1, -1, -1):
            tip = self.nodes[i].tip
            if tip is not None:
                target = self._place.get(tip)
                if target is None:
                    self._breaks.append(Break(i, "tip", tip))
                    return None
                return target, -1 if self.nodes[i].flags & Is.TRAILS else i
        return None

    @property
    def moved_at(self) -> int | None:
        """The place of the event that moved the tip last; None when nothing did."""
        if self._last_move is None:
            return None
        last = range(len(self.nodes) - 1, -1, -1)
        return next(i for i in last if self.nodes[i].tip is not None)

    def _descendants_after(self, target: int, after: int) -> list[int]:
        """Events that go on from `target` through nothing but events written after the move."""
        if self._points_back:
            reached = {target}
            for i in range(after + 1, len(self.parents)):
                if self.parents[i] in reached:
                    reached.add(i)
            return list(reached - {target})
        out, stack = [], [target]
        while stack:
            new = [kid for kid in self.children.get(stack.pop(), ()) if kid > after]
            out += new
            stack += new
        return out

    def _can_end(self, i: int) -> bool:
        flags = self.nodes[i].flags
        if i in self._copies or flags & (Is.SIDE | Is.ROLLED_BACK):
            return False
        if flags & Is.INTERNAL:
            return self.nodes[i].span is not None and i in self._applied_boundaries
        return not flags & Is.SUMMARY or self._stands(i)

    def _stands(self, i: int) -> bool:
        """Whether a summary counts: its boundary holds, or the log begins with it."""
        return i in self._committed_summaries or self.nodes[i].parent is None

    def _nearest(self, i: int) -> int | None:
        """The event itself or its nearest ancestor that can end a line."""
        while i >= 0 and not self._can_end(i):
            i = self.line_parents[i]
        return i if i >= 0 else None

    @cached_property
    def tip(self) -> int | None:
        """Where a new message attaches when open calls are left behind: the last complete event.

        An exchange with a call that was never answered is left whole, results of its other
        calls included; orphans of earlier turns stay where they are.
        """
        i = tip = self.end if self.end is not None else -1
        while i >= 0:
            if self._is_open(i):
                tip = self.line_parents[i]
            elif self.nodes[i].flags & _REST or self.nodes[i].span is not None:
                break
            i = self.line_parents[i]
        return self._nearest(tip)

    @cached_property
    def _committed_summaries(self) -> frozenset[int]:
        """Summaries that a boundary stands for: one without is half of a compaction."""
        under = (
            i
            for i, node in enumerate(self.nodes)
            if node.flags & Is.SUMMARY and self._boundary_above(i)
        )
        return frozenset(self._spans) | frozenset(under)

    def _boundary_above(self, i: int) -> bool:
        """Whether a summary was written under its boundary, as Claude Code does."""
        for _ in range(8):
            i = self.parents[i]
            if i < 0:
                return False
            if self.nodes[i].logical is not None:
                return True
        return False

    # -- chains -------------------------------------------------------------------------

    def chain(
        self, to: int | None = None, *, boundaries: bool = True, beside: bool = True
    ) -> list[int]:
        """The path from a root to one event (the live end by default), in order.

        With `boundaries` compactions are applied: it is what the model saw. With `beside`, what
        hangs beside the line but belongs to it (parallel results, blocks of one response) stands
        after the event it belongs to. Internal events are on the path when the links lead
        through them; `states` tells them.
        """
        if to is not None:
            return self._chain_to(to, boundaries, beside)
        known, how = self._live_chains, (boundaries, beside)
        if how not in known:
            known[how] = [] if self.end is None else self._chain_to(self.end, *how)
        return list(known[how])

    def _chain_to(self, last: int, boundaries: bool, beside: bool) -> list[int]:  # noqa: FBT001
        path = self._apply_boundaries(last) if boundaries else self._plain(last)
        path.reverse()
        return self._with_company(path) if beside else path

    def _plain(self, last: int) -> list[int]:
        """Walk up through boundaries as if there were none."""
        path, i, lines = [], last, self.line_parents
        while i >= 0:
            path.append(i)
            i = lines[i]
        return path

    def _apply_boundaries(self, last: int) -> list[int]:
        """Walk up, taking at a boundary the kept events and the summary, and no more."""
        if not self._has_compaction:
            return self._plain(last)
        spans, parents, nodes = self._spans, self.parents, self.nodes
        path: list[int] = []
        seen: set[int] = set()
        summed = False
        i = last
        while i >= 0 and i not in seen:
            path.append(i)
            seen.add(i)
            parent = parents[i]
            if nodes[i].flags & Is.SUMMARY:
                summed = True
            if (over := self._relinked_heads.get(i)) and over[0] < last and over[1] not in seen:
                parent = over[1]
            if (span := spans.get(i)) and span[0] in seen:
                break  # the anchor of a boundary already passed: what is older was summed up
            if (span := spans.get(parent)) and i != span[1]:
                visible = [k for k in self._visible_nodes(span) if k not in seen]
                path += visible
                seen.update(visible)
            elif parent < 0 and nodes[i].logical is not None and not summed:
                parent = self.line_parents[i]  # a boundary without its summary is no boundary
            i = parent
        return [i for i in path if not nodes[i].flags & Is.SUMMARY or i == last or self._stands(i)]

    @cached_property
    def _has_compaction(self) -> bool:
        """Whether there is anything that could change a chain when it is walked."""
        for node in self.nodes:  # a loop: a generator takes four times as long
            if (
                node.span is not None
                or node.logical is not None
                or node.flags & (Is.SUMMARY | Is.CLEARS)
            ):
                return True
        return False

    def boundary(self, to: int | None = None) -> int | None:
        """The boundary that is applied on the chain to an event; None when none is."""
        path = self.chain(to, beside=False)
        return next((i for i in reversed(path) if i in self._applied_boundaries), None)

    def _visible_nodes(self, span: tuple[int, int, int]) -> list[int]:
        """The events a compaction kept, last first: of what was in view then, from head on.

        Older boundaries are worked out before younger ones, so that nesting needs no recursion.
        """
        for older in sorted(self._spans.values()):
            if older[0] < span[0] and older[0] not in self._views:
                self._views[older[0]] = self._view(older)
        if span[0] not in self._views:
            self._views[span[0]] = self._view(span)
        return self._views[span[0]]

    def _view(self, span: tuple[int, int, int]) -> list[int]:
        """What one boundary keeps, those that it builds on being known."""
        _, head, tail = span
        if tail < 0:
            return []
        seen = self._apply_boundaries(tail)
        if head not in seen:  # it had been summed up before: take what was written, not the sums
            plain, summary = self._plain(tail), Is.SUMMARY
            seen = [i for i in plain if i == head or not self.nodes[i].flags & summary]
        if head not in seen and head in self._spans:  # a summary, and what it had kept itself
            inner = self._views.get(self._spans[head][0], [])
            seen = [*inner[inner.index(tail) if tail in inner else len(inner) :], head]
        visible = seen[: seen.index(head) + 1] if head in seen else []
        return [i for i in visible if self.nodes[i].span is None]

    @cached_property
    def _spans(self) -> dict[int, tuple[int, int, int]]:
        """Boundaries that hold, by the place of their anchor: (boundary, head, tail)."""
        out: dict[int, tuple[int, int, int]] = {}
        for i, node in enumerate(self.nodes):
            if node.span is None or i in self._copies:
                continue
            places = self._resolve(i, node.span, out)
            if places is None:
                self._breaks.append(Break(i, "boundary", node.span.anchor))
            else:
                out[places[0]] = (i, places[1], places[2])
        return out

    @cached_property
    def _relinked_heads(self) -> dict[int, tuple[int, int]]:
        """Heads that follow their anchor on every younger line, too: head -> (boundary, anchor)."""
        return {
            head: (boundary, anchor)
            for anchor, (boundary, head, _) in sorted(self._spans.items())
            if head >= 0 and (span := self.nodes[boundary].span) is not None and span.relinks
        }

    @cached_property
    def _applied_boundaries(self) -> frozenset[int]:
        """Places of the boundaries that hold.

        A line may end in one: a compaction was the last thing that happened, and what comes
        next goes on from it.
        """
        return frozenset(boundary for boundary, _, _ in self._spans.values())

    def _resolve(
        self, boundary: int, span: Span, older: dict[int, tuple[int, int, int]]
    ) -> tuple[int, int, int] | None:
        """Find anchor, head and tail of a boundary; None unless all of it holds together."""
        find = self._place.get
        anchor = find(span.anchor, -1)
        if anchor < 0 or anchor == boundary:
            return None
        near = self.parents[boundary] == anchor or self._is_under(anchor, boundary)
        if span.head is None and span.tail is None:
            return (anchor, -1, -1) if near else None
        head, tail = find(span.head or "", -1), find(span.tail or "", -1)
        if not near or head < 0 or tail < 0:
            return None
        if not self._is_above(head, tail) and not self._was_kept(tail, older.get(head), older):
            return None
        baked = (
            self.parents[head] == anchor and head != boundary
        )  # a fork's copy already has its links patched
        before = not self._is_above(anchor, tail) and not self._is_above(boundary, tail)
        return (anchor, head, tail) if baked or before else None

    def _was_kept(
        self,
        i: int,
        span: tuple[int, int, int] | None,
        older: dict[int, tuple[int, int, int]],
    ) -> bool:
        """Whether an event is one of those that an older boundary kept, itself or one below it.

        What a summary stands before was written before it: such a run cannot be told by links.
        """
        for _ in range(1000):
            if span is None or span[1] < 0:
                return False
            if self._is_above(span[1], i) and self._is_above(i, span[2]):
                return True
            span = older.get(span[1])
        return False

    # -- what stands beside the line ----------------------------------------------------

    @cached_property
    def answered(self) -> dict[str, int]:
        """Where each call was first answered, anywhere in the log."""
        out: dict[str, int] = {}
        for i, node in enumerate(self.nodes):
            if node.answers and i not in self._copies:
                for call in node.answers:
                    if out.setdefault(call, i) != i:
                        self._again.setdefault(call, []).append(i)
        return out

    @cached_property
    def _responses(self) -> dict[str, list[int]]:
        """Blocks of one API response, for responses written as several events."""
        first: dict[str, int] = {}
        out: dict[str, list[int]] = {}
        for i, node in enumerate(self.nodes):
            response = node.response
            if response is None or node.flags & _OFF_LINE:
                continue
            leader = first.setdefault(response, i)
            if leader != i:
                out.setdefault(response, [leader]).append(i)
        return out

    def _with_company(self, path: list[int]) -> list[int]:
        """Put what belongs to the line but hangs beside it after the event it belongs to."""
        nodes, split = self.nodes, self._responses
        on = set(path)
        out: list[int] = []
        waiting: list[int] = []  # results wait until the blocks of their response are out
        for k, i in enumerate(path):
            node = nodes[i]
            out.append(i)
            if node.calls:
                self._answers_beside(node, on, waiting)
            response = node.response
            if response is not None and response in split:
                if k + 1 < len(path) and nodes[path[k + 1]].response == response:
                    continue
                for block in self._blocks_beside(path, k, on):
                    out.append(block)
                    self._answers_beside(nodes[block], on, waiting)
            if waiting:
                out += waiting
                waiting = []
        return out

    def _answers_beside(self, node: Node, on: set[int], out: list[int]) -> None:
        """Find results of a node's calls that are not on the line.

        A real one counts even when a synthetic one stands in for it there: it came late, and
        it wins.
        """
        for call in node.calls:
            first = self.answered.get(call, -1)
            if first < 0 or (first in on and call not in self._again):
                continue
            places = [i for i in (first, *self._again.get(call, ())) if not self._off(i)]
            real = [i for i in places if not self.nodes[i].flags & Is.SYNTHETIC] or places
            if real and on.isdisjoint(real):
                on.add(real[0])
                out.append(real[0])

    def _goes_on(self, path: list[int], k: int) -> bool:
        """Whether more was said on a path after the exchange at a place of it."""
        after = (self.nodes[path[j]] for j in range(k + 1, len(path)))
        return any(not node.answers and not node.flags & Is.INTERNAL for node in after)

    def _blocks_beside(self, path: list[int], k: int, on: set[int]) -> list[int]:
        """Blocks of the response at a place of the line that hang off another of its blocks.

        A call that nobody answered is no part of a conversation that went on without it.
        """
        response = self.nodes[path[k]].response
        out: list[int] = []
        for i in self._responses.get(response or "", ()):
            parent = self.parents[i]
            if i in on or i in self._copies or parent not in on:
                continue
            if self.nodes[i].calls and self._is_open(i) and self._goes_on(path, k):
                continue
            if self.nodes[parent].response == response:
                on.add(i)
                out.append(i)
        return out

    def _off(self, i: int) -> bool:
        return i in self._copies or bool(self.nodes[i].flags & _OFF_LINE)

    def _is_open(self, i: int) -> bool:
        """Whether an event holds a call that was answered nowhere."""
        calls, answered = self.nodes[i].calls, self.answered
        if len(calls) == 1:
            return calls[0] not in answered
        return any(call not in answered for call in calls)

    # -- states -------------------------------------------------------------------------

    @cached_property
    def _live(self) -> frozenset[int]:
        """The live line, compacted events included, with its company."""
        if self.end is None:
            return frozenset()
        line = self._plain(self.end)
        line.reverse()
        if not self._has_compaction:
            return frozenset(self._with_company(line))
        on = set(line)
        visible = [i for i in self.chain(beside=False) if i not in on]
        return frozenset(self._with_company(visible + line))

    @cached_property
    def states(self) -> list[State]:
        """The state of each event, by place."""
        nodes, is_open = self.nodes, self._is_open
        out = [State.DEAD] * len(nodes)
        live, alive, orphaned = self._live, State.LIVE, State.ORPHANED
        for i in live:
            out[i] = alive
        for i, node in enumerate(nodes):
            if node.calls and i in live and is_open(i):
                out[i] = orphaned
            if node.flags & _NOT_ON_LINE_FLAGS:
                out[i] = _state_told(node.flags)
        for i in self._copies:
            out[i] = State.REPLAYED
        return out

    @cached_property
    def branches(self) -> list[Branch]:
        """The discarded branches, each with the event it parted from.

        A branch begins where dead or rolled-back events leave the live line and holds all that
        goes on from there. Internal records in between, and compactions, do not cut it.
        """
        states, lines = self.states, self.line_parents
        starts: dict[int, int] = {}  # by event: the first event of the branch it is on
        events: dict[int, list[int]] = {}
        for i in self._parents_first:
            if states[i] in (State.DEAD, State.ROLLED_BACK):
                starts[i] = starts.get(lines[i], i)
                events.setdefault(starts[i], []).append(i)
            elif states[i] is State.INTERNAL and lines[i] in starts:
                starts[i] = starts[lines[i]]
        return [
            Branch(lines[start] if lines[start] >= 0 else None, start, tuple(sorted(run)))
            for start, run in sorted(events.items())
        ]

    def end_from(self, start: int) -> int:
        """Return the last event of the line that leads through an event.

        For an event of the live line that is the live end. On a discarded branch, or in a
        subagent, it is the last-written event that goes on from it, found by the same rules as
        the live end: internal records end no line, and neither does a result that lags behind.
        """
        if start in self._live and self.end is not None:
            return self.end
        if self._is_lone_answer(start):
            start = self.parents[start]
        side = self.nodes[start].flags & Is.SIDE
        below = {start}
        for i in self._parents_first:
            if self.line_parents[i] in below:
                below.add(i)
        ends = (i for i in sorted(below, reverse=True) if i not in self._copies)
        off = Is.INTERNAL | Is.SIDE
        last = self._pick(i for i in ends if self.nodes[i].flags & off == side)
        return start if last is None else last

    @cached_property
    def _parents_first(self) -> list[int]:
        """All places so that parents come before children; written order wherever it can."""
        if self._points_back:
            return list(range(len(self.nodes)))
        kids: dict[int, list[int]] = {}
        for i, parent in enumerate(self.line_parents):
            kids.setdefault(parent, []).append(i)
        order = list(kids.get(-1, ()))
        for i in order:  # grows while it is walked
            order += kids.get(i, ())
        return order

    @property
    def open_calls(self) -> list[tuple[int, str]]:
        """Calls on the live line that were answered nowhere: (place, call)."""
        return [
            (i, call)
            for i in self.chain()
            for call in self.nodes[i].calls
            if call not in self.answered
        ]
