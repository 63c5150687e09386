"""The events of one session's own log, decoded once, for a tip that is moved again and again.

To go on from an earlier event, what the model saw there has to be known. A walk up the links
tells it, from that event to the last boundary above it or to the first line; what stands before
is read once and kept. The log is read on from where the last look ended. Invariants: whatever is
not one plain walk (a copy, a link that does not hold, a result or a block beside the line, half a
compaction, an older schema) is left to the reader, which asks the graph, so that this is quicker
and never something else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from thence.format import codec, schema
from thence.format.nodes import Node
from thence.format.records import MESSAGES, Event
from thence.format.transcript import node_of
from thence.journal.reader import ReadBack, Where
from thence.journal.segmented_log import SegmentedLog


class _Known(NamedTuple):
    """One event of the log: its node, and where its line stands."""

    event: Event
    node: Node
    where: Where


class Branches:
    """What can be gone on from, in the log that a run writes."""

    def __init__(
        self,
        run: SegmentedLog,
        load: Callable[[str, Where | None], ReadBack],
        start: tuple[int, int] | None = None,
    ) -> None:
        """Look from an address on, that of the last boundary; from the first line by default."""
        self._run = run
        self._load = load
        self._bases: dict[str, ReadBack] = {}
        self._forget(start)

    def _forget(self, start: tuple[int, int] | None) -> None:
        self._start = start
        self._seen = {} if start is None else self._run.seen_before(*start)
        self._known: list[_Known] = []
        self._places: dict[str, int] = {}
        self._copied: set[str] = set()
        self._answers: dict[str, list[int]] = {}
        self._responses: dict[str, list[int]] = {}
        self._moved = False

    def back(self, to: str) -> ReadBack:
        """Read up to an event of this log; with no end when it is not there."""
        self._catch_up()
        back = self._walk_to(to)
        if back is None and self._start is not None:
            self._forget(None)
            self._catch_up()
            back = self._walk_to(to)
        return back or self._load(to, None)

    def _catch_up(self) -> None:
        """Take in what was written since the last look, by us and by others."""
        for grown in self._run.grown(self._seen):
            decoded = codec.decode(grown.data, offset=grown.base + grown.start)
            for event, place in zip(decoded.events, decoded.places, strict=True):
                where = Where(self._run.session, grown.segment, place.offset, place.length + 1)
                self._add(_Known(event, node_of(event), where))

    def _add(self, known: _Known) -> None:
        at, node = len(self._known), known.node
        self._known.append(known)
        if self._places.setdefault(node.id, at) != at:
            self._copied.add(node.id)
        for call in node.answers:
            self._answers.setdefault(call, []).append(at)
        if node.response is not None:
            self._responses.setdefault(node.response, []).append(at)
        self._moved = self._moved or node.tip is not None

    def _walk_to(self, to: str) -> ReadBack | None:
        """Put together what a plain walk leads to; None when there is none."""
        path: list[int] = []
        at = self._places.get(to)
        while at is not None and not self._is_base(at):
            event = self._known[at].event
            if event.uuid in self._copied or event.type == "summary":
                return None
            path.append(at)
            above = self._places.get(event.prev_uuid or "")
            at = above if above is not None and above < at else None
        if at is None or not self._is_alone(path):
            return None
        base = self._base(self._known[at])
        if base is None:
            return None
        return self._extend_base(base, [self._known[i] for i in reversed(path)], to)

    def _is_base(self, at: int) -> bool:
        """Whether what stands here is read, not walked: a boundary, or the header."""
        known = self._known[at]
        if known.event.uuid in self._copied:
            return False
        if at == 0 and known.event.type == "header":
            return schema.version_of({"payload": known.event.payload}) == schema.CURRENT
        return known.event.type == "boundary"

    def _is_alone(self, path: list[int]) -> bool:
        """Whether nothing that belongs to a walk hangs beside it."""
        on: set[int] | None = None
        for i in path:
            node = self._known[i].node
            if not node.calls and node.response is None:
                continue
            on = set(path) if on is None else on
            for call in node.calls:
                answers = self._answers.get(call, ())
                if len(answers) > 1 or not on.issuperset(answers):
                    return False
            if node.response is not None and not on.issuperset(self._responses[node.response]):
                return False
        return True

    def _base(self, known: _Known) -> ReadBack | None:
        """Read up to a boundary or the header, once, and no further than its line.

        None when a boundary's own ranges do not tell what it kept: then later lines may.
        """
        uuid = known.event.uuid
        if uuid not in self._bases:
            self._bases[uuid] = self._load(uuid, known.where)
        base = self._bases[uuid]
        is_covered = known.event.type == "header" or base.boundary == known.where[1:3]
        return base if is_covered and base.end == uuid else None

    def _extend_base(self, base: ReadBack, path: list[_Known], to: str) -> ReadBack | None:
        messages = [known for known in path if known.event.type in MESSAGES]
        before = {event.uuid for event in base.chain}
        if any(known.event.uuid in before for known in messages):
            return None

        def where() -> dict[str, Where]:
            return base.where() | {known.event.uuid: known.where for known in messages}

        return msgspec.structs.replace(
            base,
            chain=[*base.chain, *(known.event for known in messages)],
            where=where,
            since=[*base.since, *(known.event for known in path)],
            end=to,
            tip=to,
            moved=base.moved or self._moved,
        )
