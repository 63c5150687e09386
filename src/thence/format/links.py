"""How the records of one log are linked: parents found, gaps bridged, cycles cut. Pure.

`parents` is what the log itself says, put right where it does not hold: a dangling parent is
bridged to the record before, a cycle is cut, of a repeated id one is the record and the others
are copies. `line_parents` also closes the gaps that clients leave at compactions and cleared
contexts. Each repair is listed in `breaks`. Places are indexes into the nodes, -1 is no record.
Iterative and linear in the number of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import compress, count
from operator import eq, lt

import msgspec

from thence.format.nodes import Is, Node


class Break(msgspec.Struct, frozen=True):
    """A place where the log's own links did not hold, and what was done about it."""

    at: int
    what: str  # "bridged", "cycle", "copy", "boundary", "tip"
    wanted: str | None = None


def _roots(parents: list[int]) -> list[int]:
    """Places without a parent."""
    return list(compress(count(), map((0).__gt__, parents)))


class Links:
    """The links of one log."""

    def __init__(self, nodes: Sequence[Node], *, partial: bool = False) -> None:
        """Link the nodes; see `Graph` for `partial`."""
        self.nodes = nodes
        self._partial = partial
        self.breaks: list[Break] = []
        self.copies: set[int] = set()
        """Places of repeated ids that are not the record."""
        self._steps = 4 * len(nodes) + 1000
        """How many steps may be walked in search of cycles, all searches together."""
        self.place = self._index()
        """Where each id stands."""
        self.parents = self._link()
        self._cut_cycles()
        self.line_parents = self._lines()
        self._walks = 4 * len(nodes) + 1000
        """How many steps may be walked to tell who is above whom, all questions together."""

    def _index(self) -> dict[str, int]:
        """Map ids to places.

        The first of a repeated id is the event, unless only a later one knows its parent: a
        writer once doubled events with their links lost.
        """
        nodes = self.nodes
        place = {node.id: i for i, node in enumerate(nodes)}
        if len(place) == len(nodes):
            return place
        place = {}
        for i, node in enumerate(nodes):
            first = place.setdefault(node.id, i)
            if first == i:
                continue
            copy = i
            if nodes[first].parent is None and node.parent is not None:
                place[node.id], copy = i, first
            self.copies.add(copy)
            self.breaks.append(Break(copy, "copy", node.id))
        return place

    def _link(self) -> list[int]:
        """Resolve parents to places; -1 is a root."""
        nodes, find = self.nodes, self.place.get
        parents = [find(node.parent, -1) for node in nodes]  # type: ignore[arg-type] # None is -1
        if any(map(eq, parents, range(len(parents)))):
            return self._bridge()
        if not self._partial and any(nodes[i].parent is not None for i in _roots(parents)):
            return self._bridge()
        return parents

    def _bridge(self) -> list[int]:
        """Resolve parents of a log with dangling ones.

        These are bridged to the record before them in their channel, as the clients
        themselves do.
        """
        find = self.place.get
        parents: list[int] = []
        main = side = -1
        for i, node in enumerate(self.nodes):
            wanted = node.parent
            if wanted is None:
                parent = -1
            else:
                parent = find(wanted, -1)
                if parent == i or parent < 0:
                    parent = side if node.flags & Is.SIDE else main
                    self.breaks.append(Break(i, "bridged", wanted))
            parents.append(parent)
            if i in self.copies:
                continue
            if node.flags & Is.SIDE:
                side = i
            elif wanted is not None or not node.flags & Is.INTERNAL:
                main = i
        return parents

    @cached_property
    def points_back(self) -> bool:
        """Whether every event was written after its parent, as is usual: no cycle can be."""
        return all(map(lt, self.parents, range(len(self.parents))))

    def _cut_cycles(self) -> None:
        """Bridge the first-written event of each cycle to the record before it.

        The parent that it names was not there yet when it was written. So what was said before a
        cycle stays on its line. Where that leads back into the cycle, it becomes a root.
        """
        parents = self.parents
        if self.points_back:
            return
        walk = [0] * len(parents)
        cut: list[int] = []
        for start in range(len(parents)):
            i = start
            while i >= 0 and not walk[i]:
                walk[i] = start + 1
                i = parents[i]
            if i >= 0 and walk[i] == start + 1:
                first, j = i, parents[i]
                while j != i:
                    first, j = min(first, j), parents[j]
                self.breaks.append(Break(first, "cycle", self.nodes[first].parent))
                parents[first] = -1
                cut.append(first)
        for first, before in self._records_before(sorted(cut)):
            if self._may_follow(parents, first, before):
                parents[first] = before

    def _lines(self) -> list[int]:
        """Parents with the gaps at boundaries and cleared contexts closed.

        A root that names what it continues is linked to it. A boundary that names a record that
        was never written, and a record that clears the context, are linked to the record before
        them. No link makes a cycle.
        """
        lines = list(self.parents)
        cut_off: list[int] = []
        for i in _roots(self.parents):
            node = self.nodes[i]
            target = self.place.get(node.logical, -1) if node.logical is not None else -1
            if self._may_follow(lines, i, target):
                lines[i] = target
            elif node.logical is not None or (node.flags & Is.CLEARS and i not in self.copies):
                cut_off.append(i)
        for i, target in self._records_before(cut_off):
            linked = not self._partial and self._may_follow(lines, i, target)
            if linked:
                lines[i] = target
            if (logical := self.nodes[i].logical) is not None:
                self.breaks.append(Break(i, "bridged" if linked else "boundary", logical))
        return lines

    def _may_follow(self, lines: list[int], i: int, target: int) -> bool:
        """Return whether a root can be linked to another record without making a cycle."""
        if target < 0:
            return False
        return target < i if self.points_back else not self._leads_to(lines, target, i)

    def _records_before(self, roots: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield each of some roots with the last record of its channel before it, or -1.

        A tip that a person moved in between is that record. What keeps the books and names no
        parent is left out.
        """
        wanted = iter(roots)
        root = next(wanted, -1)
        last = {0: -1, Is.SIDE: -1}
        for i, node in enumerate(self.nodes):
            if root < 0:
                return
            side = node.flags & Is.SIDE
            if i == root:
                yield i, last[side]
                root = next(wanted, -1)
            if i in self.copies or node.flags & Is.ROLLED_BACK:
                continue
            if node.tip is not None and not node.flags & Is.TRAILS:
                last[side] = self.place.get(node.tip, last[side])
            elif not node.flags & Is.INTERNAL or self.parents[i] >= 0 or node.logical is not None:
                last[side] = i

    def _leads_to(self, lines: list[int], start: int, goal: int) -> bool:
        """Return whether a walk up from `start` meets `goal`; True where it takes too long.

        Only for logs whose links point forward; the bound keeps one that is made of such links
        linear all the same.
        """
        while start >= 0 and self._steps > 0:
            if start == goal:
                return True
            self._steps -= 1
            start = lines[start]
        return start >= 0

    # -- who is above whom --------------------------------------------------------------

    def is_above(self, head: int, tail: int) -> bool:
        """Whether `head` is on the line that leads to `tail`.

        A short walk tells it nearly always. A log that asks for long ones again and again is
        walked over once, for all further questions.
        """
        lines = self.line_parents
        while self._walks > 0:
            if tail == head:
                return True
            if tail < 0 or (tail < head and self.points_back):
                return False
            self._walks -= 1
            tail = lines[tail]
        enter, leave = self._intervals
        return tail >= 0 and enter[head] <= enter[tail] and leave[tail] <= leave[head]

    @cached_property
    def _intervals(self) -> tuple[list[int], list[int]]:
        """When a walk over all lines enters and leaves each node: ancestry in constant time."""
        size = len(self.nodes)
        first, following = [-1] * (size + 1), [-1] * size  # children of -1 stand last
        for i in range(size - 1, -1, -1):
            parent = self.line_parents[i]
            following[i], first[parent] = first[parent], i
        enter, leave = [-1] * size, [-1] * size
        clock, i = 0, first[-1]
        while i >= 0:
            clock += 1
            enter[i] = clock
            if first[i] >= 0:
                i = first[i]
                continue
            while i >= 0 and following[i] < 0:
                leave[i] = clock
                i = self.line_parents[i]
            if i >= 0:
                leave[i] = clock
                i = following[i]
        return enter, leave

    def is_under(self, anchor: int, boundary: int) -> bool:
        """Whether the anchor was written a few steps under its boundary."""
        for _ in range(8):
            if anchor < 0:
                return False
            if anchor == boundary:
                return True
            anchor = self.parents[anchor]
        return False
