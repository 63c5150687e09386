"""A session read back for going on: from its end, no further than the live chain needs.

The last boundary on the chain carries the byte ranges of what it kept and the state as of it, so
that a compacted session of any size is opened by reading its last part. Ranges and state are
caches: each is verified, and one that does not hold sends the reader to the bytes themselves, in
the end to all of them. An adopted or forked session names the event it goes on from; its
ancestor is read the same way, up to that event. Nothing is written here and nothing raises for
what a file holds; what was found is told in `Recovery`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from thence.format import codec, schema
from thence.format.graph import Graph
from thence.format.nodes import Node
from thence.format.records import (
    JSON,
    Boundary,
    Event,
    Header,
    Notice,
    Origin,
    Skipped,
    is_permission,
    typed,
)
from thence.format.transcript import Transcript, node_of
from thence.journal.segments import Segments

_BOUNDARY = b'\n{"type":"boundary",'


class Recovery(msgspec.Struct):
    """What was found when a session was opened, and what was done about it. Only appends mend."""

    skipped: list[Skipped] = msgspec.field(default_factory=list)
    notices: list[Notice] = msgspec.field(default_factory=list)
    open_calls: list[str] = msgspec.field(default_factory=list)
    mended: list[str] = msgspec.field(default_factory=list)
    torn: bool = False
    closed: bool = False
    """The last writer said good-bye."""

    @property
    def clean(self) -> bool:
        """Nothing was lost, cut short or mended."""
        return self.closed and not (self.skipped or self.notices or self.open_calls or self.torn)


class Back(msgspec.Struct):
    """A session as far as it was read: what the model sees, and what state to go on from."""

    header: Header | None
    chain: list[Event]
    """With compactions applied, ancestors' events first, internal ones left out."""
    since: list[Event]
    """Events of the line that `snapshot` does not cover, in order."""
    snapshot: JSON
    totals: JSON
    end: str | None
    """The last event of the line, open calls included; where `orphans="answer"` goes on."""
    tip: str | None
    """The last complete event; where `orphans="drop"` goes on."""
    recovery: Recovery
    moved: bool = False
    """The log holds an event that moved the tip: only moving it again leaves its line."""
    bytes_read: int = 0


def read_back(
    segments: Segments,
    *,
    stop: int | None = None,
    at: str | None = None,
    covers: Callable[[JSON], bool] = lambda _: True,
) -> Back:
    """Read a session from its end, or from the event `at` that ends before byte `stop`.

    `covers` says whether a snapshot holds all that is wanted; if not, the line is read whole.
    """
    stop = segments.size if stop is None else min(stop, segments.size)
    header, version, notices = head(segments)
    upcast = schema.upcaster(version)
    if upcast is None:
        looked = segments.find_back(_BOUNDARY, stop)
        while looked >= 0:
            found = _from(segments, looked + 1, stop, at, header, notices, covers)
            if found is not None:
                return found
            looked = segments.find_back(_BOUNDARY, looked)
    data = segments.read(0, stop)
    decoded = codec.decode(data, upcast=upcast)
    whole = Transcript(decoded, version=version, notices=notices)
    return _from_whole(whole, at, header, len(data))


def head(segments: Segments) -> tuple[Header | None, int, list[Notice]]:
    """Read the first line: the header, the version it states, and what is odd about it."""
    first = segments.read(0, segments.line_end(0))
    found = next(iter(codec.objects(first)), None)
    if not isinstance(found, codec.Found):
        return None, schema.CURRENT, [Notice("no header", "the first line is no header")]
    if found.value.get("type") != "header":
        guessed = schema.guess(found.value)
        return None, guessed, [Notice("no header", "the first line is no header")]
    version = schema.version_of(found.value)
    newer = schema.notice(version)
    upcast = schema.upcaster(version)
    event = codec.event_of(upcast(found.value) if upcast else found.value)
    told = typed(event) if event is not None else None
    header = told if isinstance(told, Header) else None
    return header, version, [newer] if newer else []


def _from(
    segments: Segments,
    start: int,
    stop: int,
    at: str | None,
    header: Header | None,
    notices: Sequence[Notice],
    covers: Callable[[JSON], bool],
) -> Back | None:
    """Try to read from a boundary's line on; None when the chain does not pass through it."""
    data = segments.read(start, stop)
    decoded = codec.decode(data, offset=start)
    if not decoded.events or decoded.events[0].type != "boundary":
        return None
    told = typed(decoded.events[0])
    if not isinstance(told, Boundary) or not covers(told.state):
        return None
    graph = Graph([node_of(event) for event in decoded.events], partial=True)
    if _tip_is_before(graph):
        return None
    to = graph.end if at is None else graph.place(at)
    if to is None:
        return None
    line = graph.chain(to, boundaries=False)
    kept = _kept(segments, told) if line and line[0] == 0 else None
    if kept is None:
        return None
    after = [decoded.events[i] for i in line if i]
    return Back(
        header=header,
        chain=_seen([*kept, *after]),
        since=after,
        snapshot=told.state,
        totals=told.totals,
        end=graph.nodes[to].id,
        tip=_id(graph, graph.tip) if at is None else at,
        recovery=_recovery(decoded, graph, notices, at is None),
        moved=any(node.tip is not None for node in graph.nodes),
        bytes_read=len(data) + sum(len(codec.encode(event)) for event in kept),
    )


def _tip_is_before(graph: Graph) -> bool:
    """Whether the last move of the tip leads to before the part that was read."""
    moves = [node.tip for node in graph.nodes if node.tip is not None]
    return bool(moves) and graph.place(moves[-1]) is None


def _kept(segments: Segments, boundary: Boundary) -> list[Event] | None:
    """Read summary and kept events by their ranges; None unless they are what they should be."""
    ranges = [boundary.summary, *(boundary.kept if isinstance(boundary.kept, list) else [])]
    events: list[Event] = []
    for span in ranges:
        if not (isinstance(span, list) and len(span) >= 2 and _counts(span[-2:])):
            return None
        offset, length = span[-2:]
        events += codec.decode(segments.read(offset, offset + length), offset=offset).events
    if not events or events[0].uuid != boundary.summary_event_uuid:
        return None
    wanted = (boundary.head_uuid, boundary.tail_uuid)
    found = (events[1].uuid, events[-1].uuid) if len(events) > 1 else (None, None)
    return events if wanted == found else None


def _counts(numbers: list[JSON]) -> bool:
    return all(type(number) is int and 0 <= number < 2**53 for number in numbers)


def _from_whole(whole: Transcript, at: str | None, header: Header | None, size: int) -> Back:
    graph = whole.graph
    to = graph.end if at is None else graph.place(at)
    line = [] if to is None else graph.chain(to, boundaries=False)
    return Back(
        header=header,
        chain=_seen([] if to is None else whole.chain(to)),
        since=[whole.events[i] for i in line],
        snapshot=None,
        totals=None,
        end=_id(graph, to),
        tip=_id(graph, graph.tip) if at is None else at,
        recovery=_recovery(whole, graph, whole.notices, at is None),
        moved=any(node.tip is not None for node in graph.nodes),
        bytes_read=size,
    )


def _id(graph: Graph, place: int | None) -> str | None:
    return None if place is None else graph.nodes[place].id


def _seen(events: list[Event]) -> list[Event]:
    return [e for e in events if e.type != "boundary" and not is_permission(e.type)]


def _recovery(
    read: codec.Decoded | Transcript, graph: Graph, notices: Sequence[Notice], live: bool
) -> Recovery:
    """Tell what the part that was read holds of damage. An ancestor's own tail is not ours."""
    if not live:
        return Recovery(notices=list(notices))
    breaks = [Notice(f"{b.what} link", read.events[b.at].uuid) for b in graph.breaks]
    return Recovery(
        skipped=list(read.skipped),
        notices=[*notices, *breaks],
        open_calls=[call for _, call in graph.open_calls],
        torn=read.torn,
        closed=_closed(graph.nodes),
    )


def _closed(nodes: Sequence[Node]) -> bool:
    from thence.format.nodes import Is

    return bool(nodes) and bool(nodes[-1].flags & Is.CLOSES)


def find_event(segments: Segments, uuid: str) -> tuple[int, int] | None:
    """Find an event's line by its id: (offset, length without LF)."""
    needle = b'"uuid":' + codec.encode(Event("", "", uuid, None, None))[len(b'{"type":"","ts":"","uuid":') :].partition(b',"prev_uuid"')[0]
    stop = segments.size
    while (at := segments.find_back(needle, stop)) >= 0:
        start = segments.line_start(at)
        end = segments.line_end(at)
        decoded = codec.decode(segments.read(start, end))
        if any(event.uuid == uuid for event in decoded.events):
            return start, end - start
        stop = at
    return None


def origin_of(header: Header | None) -> Origin | None:
    """The ancestor a session goes on from."""
    return header.resumed_from if header is not None else None
