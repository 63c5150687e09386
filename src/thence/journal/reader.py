"""A session read back for going on: from its end, no further than the live chain needs.

The last boundary on the chain carries the byte ranges of what it kept and the state as of it, so
that a compacted session of any size is opened by reading its last part. Ranges and state are
caches: each is verified, and one that does not hold sends the reader to the bytes themselves, in
the end to all of them. An adopted or forked session names the event it goes on from; its
ancestor is read the same way, up to that event. Nothing is written here and nothing raises for
what a file holds; what was found is told in `Recovery`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeGuard

import msgspec

from thence.format import codec, schema
from thence.format.graph import Graph
from thence.format.nodes import Is
from thence.format.records import (
    INTERNAL,
    JSON,
    MESSAGES,
    Boundary,
    Event,
    Header,
    Notice,
    Place,
    Skipped,
    is_permission,
    parse_payload,
    word,
)
from thence.format.transcript import Transcript, node_of
from thence.journal.segments import Segments

if TYPE_CHECKING:
    from thence.format.todos import Todo

_BOUNDARY = b'\n{"type":"boundary",'
_TURN = b'\n{"type":"turn",'
_TURNING = frozenset({"tip", "boundary", "summary"})
_BESIDE = INTERNAL - _TURNING
_PLAIN_MESSAGES = MESSAGES - _TURNING

_decode = msgspec.json.Decoder(Event).decode


class Where(NamedTuple):
    """Where an event's line stands, LF included: whose session, which segment, which bytes."""

    session: str
    segment: int
    offset: int
    length: int


class UnfinishedSubagent(msgspec.Struct, frozen=True):
    """A subagent whose log has no end: who it was, and the last that it recorded."""

    agent_id: str
    name: str
    status: Literal["running", "lost"]
    """Whether somebody still writes its log."""
    last_type: str = ""
    last_ts: str = ""
    last_uuid: str = ""

    def __str__(self) -> str:
        """Say it in words."""
        how = "still running" if self.status == "running" else "lost with its process"
        return f"{self.name} {self.agent_id}: {how}; last event: {self.last_type}, {self.last_ts}"


class Recovery(msgspec.Struct):
    """What was found when a session was opened, and what was done about it. Only appends mend."""

    skipped: list[Skipped] = msgspec.field(default_factory=list)
    notices: list[Notice] = msgspec.field(default_factory=list)
    open_calls: list[str] = msgspec.field(default_factory=list)
    mended: list[str] = msgspec.field(default_factory=list)
    torn: bool = False
    closed: bool = False
    """The last writer said good-bye."""
    writer: str = ""
    """Which other process has the session open, and when it was written; empty when none has."""
    pending: list[Todo] = msgspec.field(default_factory=list)
    """What the agent still had to do, by its lists and its words."""
    subagents: list[UnfinishedSubagent] = msgspec.field(default_factory=list)
    """Subagents whose end was never recorded; each is a notice as well."""

    @property
    def clean(self) -> bool:
        """Nothing was lost, cut short or mended."""
        return self.closed and not (self.skipped or self.notices or self.open_calls or self.torn)


class ReadBack(msgspec.Struct):
    """A session as far as it was read: what the model sees, and what state to go on from."""

    header: Header | None = None
    chain: list[Event] = msgspec.field(default_factory=list)
    """Message events with compactions applied, ancestors' first."""
    where: Callable[[], dict[str, Where]] = dict
    """Where each event of the chain stands; worked out when a compaction asks."""
    root: str | None = None
    """The session's first event, which all others go on from."""
    boundary: tuple[int, int] | None = None
    """Where the line of the last boundary on the chain starts: its address in the session."""
    since: list[Event] = msgspec.field(default_factory=list)
    """Events of the line that `snapshot` does not cover, in order."""
    snapshot: JSON = None
    end: str | None = None
    """The last event of the line, open calls included; where `orphans="answer"` goes on."""
    tip: str | None = None
    """The last complete event; where `orphans="drop"` goes on."""
    recovery: Recovery = msgspec.field(default_factory=Recovery)
    moved: bool = False
    """The log holds an event that moved the tip: only moving it again leaves its line."""
    starts_with_summary: bool = False
    """The chain starts with a summary: no ancestor has more of it."""
    settled: bool = False
    """It is known that every call on the chain was answered; else it takes a look."""
    cost: JSON = None
    """What the session itself took, dead branches included; None when that was not read."""
    inherited_cost: float = 0.0
    stop: tuple[int, int] = (1, 0)
    """Where the session's log ended when it was read: an address."""
    bytes_read: int = 0


class SessionSource(msgspec.Struct):
    """A session to read: its bytes, its id, and how to come by another one's bytes."""

    session: str
    segments: Segments
    other: Callable[[str], Segments | None]


def read_back(
    source: SessionSource,
    *,
    stop: int | None = None,
    at: str | None = None,
    covers: Callable[[JSON], bool],
) -> ReadBack:
    """Read a session from its end, or from the event `at` that ends before byte `stop`.

    `covers` says whether a snapshot holds all that is wanted; if not, the line is read whole.
    """
    segments = source.segments
    stop = segments.size if stop is None else min(stop, segments.size)
    header, version, notices, root = head(segments)
    upcast = schema.upcaster(version)
    looked = _boundary_before(segments, stop) if upcast is None else -1
    if looked >= 0:
        partial = _from_boundary(source, looked, stop, at, covers)
        if partial is not None:
            partial.header, partial.root = header, root
            partial.recovery.notices[:0] = notices
            return partial
    data = segments.read(0, stop)
    plain = _from_header(source, data) if looked < 0 and at is None and upcast is None else None
    if plain is not None:
        plain.header, plain.root = header, root
        plain.recovery.notices[:0] = notices
        return plain
    transcript = Transcript(codec.decode(data, upcast=upcast), version=version, notices=notices)
    back = _from_all(source, transcript, at, header, len(data))
    back.root = root
    last = _last_boundary(transcript, back) if upcast is None else None
    if last is None:
        return back
    partial = _from_boundary(source, transcript.places[last].offset, stop, back.end, covers)
    if partial is None:
        return back
    after = {event.uuid for event in partial.since}
    partial.tip = back.tip if back.tip in after else transcript.events[last].uuid
    fields = {name: getattr(back, name) for name in ("header", "root", "recovery", "moved")}
    return msgspec.structs.replace(
        partial, **fields, bytes_read=back.bytes_read + partial.bytes_read
    )


def _last_boundary(transcript: Transcript, back: ReadBack) -> int | None:
    """The place of the last boundary on the line, which was not the last that was written.

    It knows more than its log: what it kept may stand in an ancestor, and its ranges lead there.
    """
    to = transcript.graph.place(back.end) if back.end is not None else None
    if to is None or all(event.type != "boundary" for event in back.since):
        return None
    line = transcript.graph.chain(to, boundaries=False)
    return next((i for i in reversed(line) if transcript.events[i].type == "boundary"), None)


def _boundary_before(segments: Segments, stop: int) -> int:
    """Where the line of the last boundary starts; -1 when there is none, or none is known.

    A turn's end says where the last one stands, so that a session without any is not searched
    from end to end. Either way it is a guess: the chain tells whether it passes through there.
    """
    at, which = segments.find_any_back((_BOUNDARY, _TURN), stop)
    if which != _TURN:
        return at + 1 if at >= 0 else -1
    line = segments.read(at + 1, segments.line_end(at + 1))
    turn = next(iter(codec.decode(line).events), None)
    hint = turn.fields.get("boundary") if turn is not None else None
    start = segments.anywhere(hint) if type(hint) is int else None
    return start if start is not None and start < at else -1


class LogHead(NamedTuple):
    """The first line of a session: the header, its version and id, and what is odd about it."""

    header: Header | None
    version: int
    notices: list[Notice]
    uuid: str | None = None


def head(segments: Segments) -> LogHead:
    """Read the first line."""
    first = segments.read(0, segments.line_end(0))
    record = next(iter(codec.objects(first)), None)
    if not isinstance(record, codec.RawRecord):
        return LogHead(None, schema.CURRENT, [Notice("no header", "the first line is no header")])
    if record.value.get("type") != "header":
        guessed = schema.guess(record.value)
        return LogHead(None, guessed, [Notice("no header", "the first line is no header")])
    version = schema.version_of(record.value)
    newer = schema.notice(version)
    upcast = schema.upcaster(version)
    event = codec.event_of(upcast(record.value) if upcast else record.value)
    payload = parse_payload(event) if event is not None else None
    header = payload if isinstance(payload, Header) else None
    return LogHead(header, version, [newer] if newer else [], event.uuid if event else None)


def _from_header(source: SessionSource, data: bytes) -> ReadBack | None:
    """Read a session that is one line from its header on; None when it takes a graph to tell."""
    part = _straight(data, 0)
    if part is None or part.first.type != "header":
        return None
    return ReadBack(
        chain=[event for event in part.since if event.type in MESSAGES],
        where=lambda: _places(source, zip(part.since, part.spans, strict=True)),
        since=[part.first, *part.since],
        end=part.end,
        tip=part.tip,
        recovery=part.recovery,
        settled=part.settled,
        bytes_read=len(data),
    )


def _from_boundary(
    source: SessionSource, start: int, stop: int, at: str | None, covers: Callable[[JSON], bool]
) -> ReadBack | None:
    """Try to read from a boundary's line on; None when the chain does not pass through it."""
    data = source.segments.read(start, stop)
    part = (_straight(data, start) if at is None else None) or _read_linked(data, start, at)
    boundary = parse_payload(part.first) if part is not None else None
    if part is None or not isinstance(boundary, Boundary) or not covers(boundary.state):
        return None
    visible = _read_visible(source, boundary, start)
    if visible is None:
        return None
    return ReadBack(
        chain=[*(event for event, _ in visible), *(e for e in part.since if e.type in MESSAGES)],
        where=lambda: (
            {event.uuid: where for event, where in visible}
            | _places(source, zip(part.since, part.spans, strict=True))
        ),
        boundary=source.segments.address(start),
        since=part.since,
        snapshot=boundary.state,
        end=part.end,
        tip=part.tip,
        recovery=part.recovery,
        moved=part.moved,
        starts_with_summary=True,
        settled=part.settled and _are_settled(event for event, _ in visible),
        cost=boundary.totals,
        bytes_read=len(data) + sum(where.length for _, where in visible),
    )


class _Part(NamedTuple):
    """A line from a boundary or the header on, and what a reader learns of it."""

    first: Event
    since: list[Event]
    """The events after it."""
    spans: list[tuple[int, int]]
    """Where in the run each of them starts, and how long its line is, LF included."""
    end: str
    tip: str
    recovery: Recovery
    moved: bool = False
    settled: bool = False


def _straight(data: bytes, start: int) -> _Part | None:
    """Read what follows a boundary or the header without a graph, if it is one plain line.

    It is so nearly always. None when there is a branch, a copy, a moved tip, a further boundary,
    an open call or a line that the fast decoder does not take: then the graph tells. Lines are
    decoded where they stand, without a copy of each.
    """
    since: list[Event] = []
    spans: list[tuple[int, int]] = []
    waiting: set[str] = set()
    view, find = memoryview(data), data.find
    at = find(b"\n") + 1
    try:
        first = event = _decode(view[:at])
        last = event.uuid
        while (stop := find(b"\n", at)) >= 0:
            event = _decode(view[at:stop])
            kind = event.type
            if event.extra or stop - at > codec.LINE_LIMIT:
                return None
            if kind not in _BESIDE:
                if event.prev_uuid != last or (
                    kind not in _PLAIN_MESSAGES and not _is_ordinary(kind)
                ):
                    return None
                since.append(event)
                spans.append((start + at, stop + 1 - at))
                last = event.uuid
                _match(event, waiting)
            at = stop + 1
    except (ValueError, RecursionError):  # not plain: the graph decides what it is
        return None
    if at != len(data) or waiting or first.extra:
        return None
    if len({first.uuid, *(event.uuid for event in since)}) <= len(since):  # one id stands twice
        return None
    closed = event.type == "terminator"
    return _Part(first, since, spans, last, last, Recovery(closed=closed), settled=True)


def _is_ordinary(kind: str) -> bool:
    """Whether an event of this type stands on the line and changes nothing about it."""
    return kind not in _TURNING and not is_permission(kind)


def _match(event: Event, waiting: set[str]) -> None:
    """Note the calls of a message and strike out those it answers."""
    content = event.fields.get("content")
    if not isinstance(content, list):
        return
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_use":
            waiting.add(word(block.get("id")))
        elif kind == "tool_result" and event.fields.get("role") == "user":
            waiting.discard(word(block.get("tool_use_id")))


def _are_settled(events: Iterable[Event]) -> bool:
    """Whether every call of some messages is answered in them."""
    waiting: set[str] = set()
    for event in events:
        _match(event, waiting)
    return not waiting


def _read_linked(data: bytes, start: int, at: str | None) -> _Part | None:
    """Read what follows a boundary as a graph; None when the chain does not lead through it."""
    decoded = codec.decode(data, offset=start)
    if not decoded.events or decoded.events[0].type != "boundary":
        return None
    graph = Graph([node_of(event) for event in decoded.events], partial=True)
    to = _end(graph) if at is None else graph.place(at)
    if to is None or (at is None and _tip_is_before(graph)):
        return None
    line = graph.chain(to, boundaries=False)
    if line[0] != 0 or any(decoded.events[i].type == "boundary" for i in line[1:]):
        return None
    tip = graph.tip if at is None else to
    return _Part(
        decoded.events[0],
        [decoded.events[i] for i in line[1:]],
        [_span(decoded.places[i]) for i in line[1:]],
        graph.nodes[to].id,
        graph.nodes[tip or 0].id,  # none: all that was said since the boundary is open
        _recovery(decoded, graph, line if at is None else None),
        any(node.tip is not None for node in graph.nodes),
    )


def _end(graph: Graph) -> int:
    """The live end of what follows a boundary; the boundary itself when nothing does."""
    return 0 if graph.end is None else graph.end


def _tip_is_before(graph: Graph) -> bool:
    """Whether the last move of the tip leads to before the part that was read."""
    moves = [node.tip for node in graph.nodes if node.tip is not None]
    return bool(moves) and graph.place(moves[-1]) is None


def _read_visible(
    source: SessionSource, boundary: Boundary, start: int
) -> list[tuple[Event, Where]] | None:
    """Read summary and kept events by their ranges; None unless they are what they should be.

    The summary stands in the same segment as its boundary: sessions roll between turns only.
    """
    segment, _ = source.segments.address(start)
    summary = _read_ranges(
        source, [[segment, *boundary.summary]] if _is_list(boundary.summary) else None
    )
    visible = _read_ranges(source, boundary.kept_ranges)
    if summary is None or visible is None or [boundary.summary_event_uuid] != _ids(summary):
        return None
    ends = (visible[0][0].uuid, visible[-1][0].uuid) if visible else (None, None)
    return [*summary, *visible] if ends == (boundary.head_uuid, boundary.tail_uuid) else None


def _ids(events: Iterable[tuple[Event, Where]]) -> list[str]:
    return [event.uuid for event, _ in events]


def _is_list(value: JSON) -> TypeGuard[list[JSON]]:
    return isinstance(value, list)


def _read_ranges(source: SessionSource, ranges: JSON) -> list[tuple[Event, Where]] | None:
    """Read the events of byte ranges, ours and ancestors'."""
    out: list[tuple[Event, Where]] = []
    for span in ranges if _is_list(ranges) else [None]:
        if not _is_list(span) or len(span) not in (3, 4) or not _are_counts(span[:3]):
            return None
        segment, offset, length = span[:3]
        session = span[3] if len(span) == 4 else source.session
        segments = source.segments if len(span) == 3 else source.other(str(session))
        start = segments.at(segment, offset, length) if segments is not None else None
        if segments is None or start is None:
            return None
        decoded = codec.decode(segments.read(start, start + length), offset=offset)
        out += [
            (event, Where(session, segment, place.offset, place.length + 1))
            for event, place in zip(decoded.events, decoded.places, strict=True)
        ]
    return out


def _are_counts(numbers: list[JSON]) -> bool:
    return all(type(number) is int and 0 <= number < 2**53 for number in numbers)


def _from_all(
    source: SessionSource, transcript: Transcript, at: str | None, header: Header | None, size: int
) -> ReadBack:
    """Read a session that was never compacted, or whose boundaries do not help."""
    graph = transcript.graph
    first = 0 if transcript.events and transcript.events[0].type == "header" else None
    end = _live_end(transcript) if at is None else graph.place(at)
    to = first if end is None and at is None else end  # nothing was said yet: after the header
    live = at is None and end is not None and end == graph.end
    chain = [] if to is None else graph.chain(None if live else to)
    line = _line_to(graph, chain, to, first)
    events = [(transcript.events[i], _span(transcript.places[i])) for i in chain]
    tip = graph.tip if live else to
    tip = first if tip is None and to is not None else tip

    def name_of(place: int | None) -> str | None:
        return None if place is None else graph.nodes[place].id

    return ReadBack(
        header=header,
        chain=[event for event, _ in events if event.type in MESSAGES],
        where=lambda: _places(source, events),
        since=[transcript.events[i] for i in line],
        end=name_of(to),
        tip=name_of(tip),
        recovery=_recovery(transcript, graph, line if at is None else None, transcript.notices),
        moved=any(node.tip is not None for node in graph.nodes),
        starts_with_summary=any(transcript.events[i].type == "summary" for i in chain[:1]),
        bytes_read=size,
    )


def _line_to(graph: Graph, chain: list[int], to: int | None, first: int | None) -> list[int]:
    """Return the line that leads to an event, from the header on, whatever compactions left out.

    Without a compaction the chain that the model sees is that line.
    """
    if to is None or all(node.span is None for node in graph.nodes):
        line = chain
    else:
        line = graph.chain(to, boundaries=False)
    return [first, *line] if line and first is not None and line[0] != first else line


def _live_end(transcript: Transcript) -> int | None:
    """The live end of a log; also a boundary that the tip was moved to and the graph cannot apply.

    What that one kept stands in an ancestor. To the graph it is book-keeping, and no line's end.
    """
    graph, end = transcript.graph, transcript.graph.end
    moves = [(i, node.tip) for i, node in enumerate(graph.nodes) if node.tip is not None]
    if not moves or (end is not None and end > moves[-1][0]):
        return end
    at = graph.place(moves[-1][1])
    while at is not None and at >= 0 and at != end:
        if transcript.events[at].type == "boundary":
            return at
        at = graph.parents[at]
    return end


def _span(place: Place) -> tuple[int, int]:
    return place.offset, place.length + 1


def _places(
    source: SessionSource, events: Iterable[tuple[Event, tuple[int, int]]]
) -> dict[str, Where]:
    address = source.segments.address
    return {
        event.uuid: Where(source.session, *address(start), length)
        for event, (start, length) in events
        if event.type in MESSAGES
    }


def _recovery(
    read: codec.Decoded | Transcript,
    graph: Graph,
    line: list[int] | None,
    notices: Sequence[Notice] = (),
) -> Recovery:
    """Tell what the part that was read holds of damage. An ancestor's own tail is not ours."""
    if line is None:
        return Recovery(notices=list(notices))
    answered = graph.answered
    breaks = [
        Notice(f"{b.what} link", read.events[b.at].uuid)
        for b in graph.breaks
        if not (b.at == 0 and b.what == "boundary")  # its anchor stands before what was read
    ]
    committed = {node.span.anchor for node in graph.nodes if node.span}
    half = [
        Notice("half a compaction", f"summary {event.uuid} was not committed; it has no effect")
        for event in read.events
        if event.type == "summary" and event.uuid not in committed
    ]
    return Recovery(
        skipped=list(read.skipped),
        notices=[*notices, *breaks, *half],
        open_calls=[c for i in line for c in graph.nodes[i].calls if c not in answered],
        torn=read.torn,
        closed=bool(graph.nodes) and bool(graph.nodes[-1].flags & Is.CLOSES),
    )


def find_event(segments: Segments, uuid: str) -> tuple[int, int] | None:
    """Find an event's line by its id: (offset, length without LF)."""
    blank = codec.encode(Event("", "", uuid, None, None))
    needle = blank[len(b'{"type":"","ts":"",') : -len(b',"prev_uuid":null,"payload":null}\n')]
    stop = segments.size
    while (at := segments.find_back(needle, stop)) >= 0:
        start, end = segments.line_start(at), segments.line_end(at)
        if any(event.uuid == uuid for event in codec.decode(segments.read(start, end)).events):
            return start, end - start
        stop = at
    return None


def merge_ranges(ranges: list[Where], own: str) -> list[list[JSON]]:
    """Join ranges that follow one another: [segment, offset, length], and whose if not ours."""
    out: list[list[JSON]] = []
    for session, segment, offset, length in ranges:
        whose = [] if session == own else [session]
        last = out[-1] if out else None
        if last and [last[0], *last[3:]] == [segment, *whose] and last[1] + last[2] == offset:
            last[2] += length
        else:
            out.append([segment, offset, length, *whose])
    return out
