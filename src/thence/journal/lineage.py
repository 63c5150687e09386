"""A session read together with those it goes on from.

One `Lineage` serves one operation, such as a resume: each file is opened once, at its size of
then, and all that is asked about is told from there. An ancestor is read up to the reference and
no further, so that what happens to it later changes nothing. Invariants: nothing is written here;
a missing ancestor is a notice, and history starts at the reference; without the last segment
nobody knows where to go on, so that one that cannot be read is an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Self

import msgspec

from thence.errors import NotReadable
from thence.format import codec, layout, schema
from thence.format.records import JSON, MESSAGES, Event, Header, Notice, Origin, word
from thence.format.state import cost_of
from thence.format.transcript import Transcript
from thence.journal.catalog import Catalog
from thence.journal.checkpoint import Checkpoint
from thence.journal.cleanup import writer_of
from thence.journal.reader import ReadBack, SessionSource, Where, find_event, head, read_back
from thence.journal.segments import Segments, parts_of

MAX_ANCESTRY_DEPTH = 8
"""Ancestors a session may have before it writes a boundary of its own, so that opening it stays
bounded."""

_MAX_FAMILY_SIZE = 1000
_BOUNDARY = b'\n{"type":"boundary",'
_CHECKPOINT = b'\n{"type":"checkpoint",'
_TURN = b'\n{"type":"turn",'


class Lineage:
    """Sessions of one home, open for reading until it is closed.

    `project` is what the caller knows of where they work, for one whose header is lost.
    """

    def __init__(
        self, catalog: Catalog, covers: Callable[[JSON], bool], project: str | None = None
    ) -> None:
        self._catalog = catalog
        self._project = project
        self._covers = covers
        self._opened: dict[str, Segments] = {}
        self._headers: dict[str, Header | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for segments in self._opened.values():
            segments.close()

    def open(self, name: str, folder: Path | None = None) -> Segments | None:
        """Return the bytes of a session, sought if no folder is named; None if not there."""
        if name not in self._opened:
            if folder is None:
                path = self._catalog.path_of(name)
                folder = path.parent if path is not None else None
            if folder is None:
                return None
            self._opened[name] = Segments(parts_of(folder, name))
        return self._opened[name]

    @contextlib.contextmanager
    def _look(self, name: str) -> Iterator[Segments]:
        """Look into a session for a moment: a lineage may have more files than can be open."""
        if name in self._opened:
            yield self._opened[name]
            return
        path = self._catalog.path_of(name)
        with Segments(parts_of(path.parent, name) if path is not None else []) as segments:
            yield segments

    def header(self, name: str) -> Header | None:
        """Read the header of a session; None when it has none, or is not there."""
        if name not in self._headers:
            with self._look(name) as segments:
                self._headers[name] = head(segments).header
        return self._headers[name]

    def cwd(self, header: Header | None) -> str | None:
        """Return where a session works."""
        return (header.cwd if header is not None else None) or self._project

    # -- reading back -------------------------------------------------------------------

    def load(self, name: str, *, at: str | None = None, where: Where | None = None) -> ReadBack:
        """Read a session and, as far as its chain needs them, those it goes on from.

        Up to its end, or to one event; `where` that one stands spares what was written after it.
        """
        segments = self._opened[name]
        stop = _after(segments, *where[1:]) if where is not None else None
        back = self._read(name, segments, at=at, stop=stop)
        self._headers[name] = back.header
        _note_unreadable_segments(segments, back, at)
        if at is None or back.end is not None:
            self._complete(back, back, {name})
        return back

    def ancestor(self, origin: Origin) -> ReadBack:
        """Read what a new session goes on from."""
        back = self._read_ancestor(origin)
        if back is None:
            return _note_missing_ancestor(origin, ReadBack())
        _note_unreadable_segments(self._opened[origin.session], back, origin.event)
        self._complete(back, back, {origin.session})
        back.recovery.writer = self.writer(origin.session)
        return back

    def end(self, name: str) -> tuple[int, int]:
        """Return the address where a session ended when it was opened.

        A part of a line is left out, as it may be in the middle of a write.
        """
        segments = self._opened[name]
        if not segments.parts:
            return 1, 0
        stop = segments.line_start(segments.size)
        if codec.decode(segments.read(stop, segments.size)).events:  # only its LF is missing
            stop = segments.size
        part = segments.parts[-1]
        base = segments.base_of(part.segment.number) or 0
        return part.segment.number, base + max(stop - part.start, 0)

    def writer(self, name: str) -> str:
        """Say which other process has a session open for writing; empty when none has."""
        parts = self._opened[name].parts
        return writer_of(parts[-1].path) if parts else ""

    def _complete(self, back: ReadBack, oldest: ReadBack, seen: set[str]) -> None:
        """Put in front what only ancestors have, of the chain and of the line."""
        while (origin := _next_ancestor(back, oldest)) and origin.session not in seen:
            seen.add(origin.session)
            above = self._read_ancestor(origin)
            if above is None:
                _note_missing_ancestor(origin, back)
                break
            _join(back, above)
            oldest = above
        back.inherited_cost = back.header.inherited_cost if back.header else 0.0

    def _read(
        self, name: str, segments: Segments, *, at: str | None = None, stop: int | None = None
    ) -> ReadBack:
        source = SessionSource(name, segments, self.open)
        return read_back(source, at=at, stop=stop, covers=self._covers)

    def _read_ancestor(self, origin: Origin) -> ReadBack | None:
        segments = self.open(origin.session)
        if segments is None:
            return None
        stop = _stop(segments, origin)
        back = self._read(origin.session, segments, at=origin.event, stop=stop)
        if back.end is None and stop is not None:  # moved: look for the event itself
            back = self._read(origin.session, segments, at=origin.event)
        if (back.end is None and origin.event is not None) or _is_lost(origin, stop):
            if back.end is None:
                back = self._read(origin.session, segments, stop=stop)
            what = f"event {origin.event}" if origin.event is not None else "the place named"
            text = f"{what} of session {origin.session}; history goes on before it"
            back.recovery.notices.append(Notice("ancestor damaged", text))
        return back

    # -- references ---------------------------------------------------------------------

    def holder(self, name: str, event: str) -> Origin | None:
        """Find an event in a session or in those it goes on from: the reference to it.

        Read backwards, so that an event near the end is found at once in a session of any size.
        """
        for each in self.family(name):
            with self._look(each) as segments:
                place = find_event(segments, event)
                if place is not None:
                    return _reference(segments, each, event, *place)
        return None

    def reference(self, name: str, event: str | None) -> Origin:
        """Return the reference to an event of a session, or to the session alone."""
        place = find_event(self._opened[name], event) if event is not None else None
        if place is None:
            return Origin(session=name, event=event)
        return _reference(self._opened[name], name, event, *place)

    def last_line(self, name: str) -> Origin | None:
        """Return the reference to all that stands in a session now, by the place of its last line.

        What its live end is, a reader tells when it reads up to there. None when the place could
        come to mean something else: the last line may still be written, or is the last segment's
        only one, so that late lines before it would count.
        """
        segments = self._opened[name]
        start = segments.line_start(max(segments.size - 1, 0))
        is_complete = segments.size and segments.read(segments.size - 1, segments.size) == b"\n"
        if not is_complete or segments.unreadable or start == segments.parts[-1].start:
            return None
        return _reference(segments, name, None, start, segments.size - 1 - start)

    # -- what is told of a session ------------------------------------------------------

    def spent(self, name: str) -> dict[str, JSON]:
        """What a session itself took, dead branches included: its last word, and what followed."""
        with self._look(name) as segments:
            at = segments.find_any_back((_TURN, _BOUNDARY), segments.size)[0]
            events = codec.decode(segments.read(max(at, 0), segments.size)).events
            totals = _amounts(events[0].fields.get("totals")) if events and at >= 0 else None
            if totals is None and at >= 0:
                events = codec.decode(segments.read(0, segments.size)).events
        return cost_of(events, totals)

    def turn(self, name: str, before: Origin | None = None) -> dict[str, JSON]:
        """What the last ended turn of a session says of it, or the last one before a reference."""
        with self._look(name) as segments:
            stop = _stop(segments, before) if before is not None else None
            at = segments.find_back(_TURN, segments.size if stop is None else stop)
            line = segments.read(at + 1, segments.line_end(at + 1)) if at >= 0 else b""
            return next((event.fields for event in codec.decode(line).events), {})

    def title(self, family: list[str], before: Origin | None = None) -> str | None:
        """Return the title of a session, or else of the nearest one that it continues.

        The title at the event where the next session begins counts, or else the last one: a turn
        is written after its events.
        """
        for name in family[:MAX_ANCESTRY_DEPTH]:
            for turn in (self.turn(name, before), self.turn(name) if before else {}):
                if title := word(turn.get("title")):
                    return title
            header = self.header(name)
            before = header.resumed_from if header is not None else None
        return None

    def line(self, name: str, event: str) -> list[tuple[Event, Where]]:
        """Messages that lead to an event as they were written: no summary stands for any.

        Those of ancestors come first. All of the logs is read.
        """
        out: list[tuple[Event, Where]] = []
        origin: Origin | None = Origin(name, event)
        for _ in self.family(name):
            segments = self.open(origin.session) if origin is not None else None
            if origin is None or segments is None:
                break
            line = _line_to(segments, origin)
            out = [*line, *out]
            header = self.header(origin.session)
            origin = header.resumed_from if header is not None else None
        return out

    def family(self, name: str) -> list[str]:
        """A session and those it goes on from, youngest first; side files are the oldest's.

        So a spilled result and a saved file are found from every session of a lineage, and go
        when it goes.
        """
        out = [name]
        while len(out) < _MAX_FAMILY_SIZE and (header := self.header(out[-1])) is not None:
            origin = header.resumed_from
            if origin is None or not layout.is_id(origin.session) or origin.session in out:
                break
            out.append(origin.session)
        return out

    def depth(self, family: list[str]) -> int:
        """How many ancestors a session has, up to the one that need not be read further."""
        for depth, name in enumerate(family[:MAX_ANCESTRY_DEPTH]):
            if depth == len(family) - 1:
                return depth
            with self._look(name) as segments:
                if segments.find_back(_BOUNDARY, segments.size) >= 0:
                    return depth
        return MAX_ANCESTRY_DEPTH

    def checkpoints(self, family: list[str]) -> list[Checkpoint]:
        """Read the checkpoints that the logs of a lineage name, oldest first."""
        out: list[Checkpoint] = []
        for name in reversed(family):
            with self._look(name) as segments:
                out += _checkpoints_in(segments)
        return out


def last_model(back: ReadBack) -> str | None:
    """The model that a session used last, as far as it was read."""
    for event in reversed(back.since):
        model = word(event.fields.get("model"))
        if model and event.type in ("model", "assistant", "header"):
            return model
    snapshot = back.snapshot
    try:
        return word(snapshot["domains"]["model"]["value"]["model"]) or None
    except (TypeError, KeyError):  # a snapshot of another version names no model
        return None


def _line_to(segments: Segments, origin: Origin) -> list[tuple[Event, Where]]:
    """Messages of one log that lead to an event, or to the end of what a reference covers."""
    stop = _stop(segments, origin)
    version = head(segments).version
    data = segments.read(0, segments.size if stop is None else stop)
    transcript = Transcript(codec.decode(data, upcast=schema.upcaster(version)), version=version)
    graph = transcript.graph
    to = graph.place(origin.event) if origin.event is not None else graph.end
    line = graph.chain(to, boundaries=False) if to is not None else []
    return [
        (event, Where(origin.session, *segments.address(place.offset), place.length + 1))
        for event, place in ((transcript.events[i], transcript.places[i]) for i in line)
        if event.type in MESSAGES and event.type != "summary"
    ]


def _reference(segments: Segments, name: str, event: str | None, start: int, length: int) -> Origin:
    digest = _digest(segments.read(start, start + length))
    return Origin(name, event, *segments.address(start), length, digest)


def _digest(line: bytes) -> str:
    return sha256(line).hexdigest()[:32]


def _after(segments: Segments, number: int, offset: int, length: int) -> int | None:
    """Where in the run an address ends; None when it leads nowhere."""
    at = segments.at(number, offset, length)
    return None if at is None else at + length


def _stop(segments: Segments, origin: Origin) -> int | None:
    """Where in the run the line a session goes on from ends; None when that is not known.

    Of a line that stands for all before it the bytes must be those it was told by.
    """
    if origin.offset is None or origin.length is None:
        return None
    end = _after(segments, origin.segment or 1, origin.offset, origin.length)
    if end is not None and origin.event is None and origin.prefix_hash is not None:
        line = segments.read(end - origin.length, end)
        end = end if _digest(line) == origin.prefix_hash else None
    return None if end is None else end + 1


def _is_lost(origin: Origin, stop: int | None) -> bool:
    """Whether a reference by place alone leads nowhere any more."""
    return origin.event is None and origin.offset is not None and stop is None


def _note_missing_ancestor(origin: Origin, back: ReadBack) -> ReadBack:
    text = f"session {origin.session} is not there; history starts here"
    back.recovery.notices.append(Notice("ancestor missing", text))
    return back


def _note_unreadable_segments(segments: Segments, back: ReadBack, at: str | None) -> None:
    """Tell which segments could not be read.

    Without the last one, or one after the end that was found, nobody knows where to go on.
    """
    last = segments.parts[-1].segment.number if segments.parts else 0
    if segments.unreadable and at is None and back.end is not None:
        place = find_event(segments, back.end)
        last = segments.address(place[0])[0] if place is not None else last
    for path, why in segments.unreadable:
        segment = layout.segment_of(path.name)
        if segment is None or segment.number > last:
            raise NotReadable(
                f"cannot read {path.name}: {why}",
                hint="nothing was changed; check the disk and the file's mode, then try again",
            )
        back.recovery.notices.append(Notice("segment unreadable", f"{path.name}: {why}"))


def _join(back: ReadBack, above: ReadBack) -> None:
    """Put an ancestor's part in front: what the model saw, unless a summary stands for it."""
    if not back.starts_with_summary:
        back.chain = [*above.chain, *back.chain]
        own, older = back.where, above.where
        back.where = lambda: {**older(), **own()}
        back.starts_with_summary = above.starts_with_summary
        back.settled = back.settled and above.settled
    later = [event for event in back.since if event.type != "header"]  # as it began is not as it is
    back.since = [*above.since, *later]
    back.snapshot = above.snapshot
    back.end, back.tip = back.end or above.end, back.tip or above.tip
    back.recovery.notices += above.recovery.notices


def _next_ancestor(back: ReadBack, oldest: ReadBack) -> Origin | None:
    """Which ancestor has more of the chain, or of the line that the state is folded from."""
    if back.starts_with_summary and back.snapshot is not None:
        return None
    return oldest.header.resumed_from if oldest.header is not None else None


def _checkpoints_in(segments: Segments) -> list[Checkpoint]:
    """The checkpoints that one session's log names, oldest first; malformed ones left out."""
    out: list[Checkpoint] = []
    at = segments.find_back(_CHECKPOINT, segments.size)
    while at >= 0:
        line = segments.read(at + 1, segments.line_end(at + 1))
        for event in codec.decode(line).events:
            # Of another version: not offered, and not lost.
            with contextlib.suppress(msgspec.ValidationError):
                out.append(msgspec.convert(event.payload, Checkpoint))
        at = segments.find_back(_CHECKPOINT, at)
    return out[::-1]


def _amounts(totals: JSON) -> dict[str, JSON] | None:
    """Running totals of a log, if they are such."""
    start = cost_of(())
    wanted = start.keys() - {"last"}
    if not isinstance(totals, dict) or not wanted <= totals.keys():
        return None
    if not all(type(totals[n]) in (int, float) and 0 <= totals[n] < 2**53 for n in wanted):
        return None
    return start | {name: totals[name] for name in wanted}
