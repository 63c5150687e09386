"""A session as a list of somebody else's records: appended in batches, each whole or not at all.

What a bridge keeps is an ordinary session: one event per record, messages as messages. Here is
what a list needs beyond a session. Invariants: a batch is one write; its records count from the
moment its last one is in the log, whichever kill or short write came before, so that a reader
sees all of it or nothing; writers look before they append, one at a time, threads and processes
alike, so that an id counts once and nobody goes on from a tip that moved; nothing is removed: a
rewind moves the tip and what was left stays in the log; a damaged line costs itself. What others
write to the same session (a harness its checkpoints, say) is left alone.

A record of a batch that is not its last names the last one, as `payload["bridge"]["batch"]`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from thence.format import codec
from thence.format.records import INTERNAL, JSON, Event, is_permission
from thence.journal.arguments import check_value, line_of
from thence.journal.ids import now_text, uuid7
from thence.journal.segmented_log import AppendedBytes, SegmentedLog
from thence.journal.segments import HEADER_BYTES, Segments, last_modified, parts_of, sessions_in

MARK = "bridge"
"""The one key of a payload that is the bridge's own."""


class BatchEntry(msgspec.Struct, frozen=True):
    """A record to be appended. Without an id it gets one, without a parent it goes on."""

    kind: str
    payload: dict[str, JSON]
    uuid: str | None = None
    parent: str | None = None
    ts: str | None = None


class _Place(msgspec.Struct, frozen=True, gc=False):
    """Where an event stands: its segment, its line in that file."""

    segment: int
    offset: int
    length: int


class Batches:
    """One session, read and appended to as a list. Threads may share it.

    It is made by `Journal.batches`; no file is made or opened for writing before the first
    append. `open_run` is None where nothing is kept but in memory.
    """

    def __init__(
        self,
        folder: Path,
        session: str,
        open_run: Callable[[], SegmentedLog | None],
        header: Callable[[], dict[str, JSON]],
    ) -> None:
        self.session = session
        self.folder = folder
        self.links: dict[str, str | None] = {}
        """What each event that counts goes on from."""
        self.tip: str | None = None
        self.root: str | None = None
        """The header's id: where an emptied list goes on from."""
        self.skipped = 0
        """Lines so far that hold no event."""
        self._open_run = open_run
        self._header = header
        self._run: SegmentedLog | None = None
        self._mutex = threading.RLock()
        self._depth = 0
        self._seen: dict[int, int] = {}
        self._places: dict[str, _Place] = {}
        self._events_in_memory: dict[str, Event] = {}  # only where there is no file
        self._waiting: dict[str, list[tuple[Event, _Place | None]]] = {}
        self._news: list[Event] = []
        self._moved = False
        self._wrote = False

    # -- reading ------------------------------------------------------------------------

    def look(self) -> list[Event]:
        """Return the events that came to count since the last look, in their order.

        Moves of the tip are among them; events of writers that keep other books are, too.
        """
        with self._mutex:
            for grown in self._grown():
                self._take(grown)
            news, self._news = self._news, []
            return news

    def _grown(self) -> Iterator[AppendedBytes]:
        if self._run is not None:
            yield from self._run.grown(self._seen)
            return
        with Segments(parts_of(self.folder, self.session)) as segments:
            for part in segments.parts:
                number, start = part.segment.number, self._seen.get(part.segment.number, 0)
                if part.size > start:
                    data = segments.read(part.start + start, part.start + part.size)
                    data = data[: data.rfind(b"\n") + 1]
                    self._seen[number] = start + len(data)
                    yield AppendedBytes(number, start, 0, data)

    def _take(self, grown: AppendedBytes) -> None:
        decoded = codec.decode(grown.data, offset=grown.start)
        self.skipped += len(decoded.skipped)
        for event, place in zip(decoded.events, decoded.places, strict=True):
            self._arrive(event, _Place(grown.segment, place.offset, place.length))

    def _arrive(self, event: Event, place: _Place | None) -> None:
        """Let an event count, unless it waits for the last one of its batch."""
        mark = event.fields.get(MARK)
        until = mark.get("batch") if isinstance(mark, dict) else None
        if isinstance(until, str) and until != event.uuid and until not in self.links:
            self._waiting.setdefault(until, []).append((event, place))
            return
        for earlier, there in self._waiting.pop(event.uuid, ()):
            self._count(earlier, there)
        self._count(event, place)

    def _count(self, event: Event, place: _Place | None) -> None:
        if event.uuid in self.links:
            return
        if event.type == "header":
            if self.root is None:
                self.root = self.tip = event.uuid
                self.links[event.uuid] = None
            return
        self.links[event.uuid] = event.prev_uuid
        if event.type == "tip":
            to = event.fields.get("to")
            if not isinstance(to, str) or to not in self.links:
                return
            self.tip, self._moved = to, True
        elif event.type in INTERNAL or is_permission(event.type):
            return
        else:
            self.tip = event.uuid
            if place is not None:
                self._places[event.uuid] = place
            else:
                self._events_in_memory[event.uuid] = event
        self._news.append(event)

    def modified(self) -> float | None:
        """Return when it was last written, in seconds; None when there is no file."""
        return last_modified(parts_of(self.folder, self.session))

    def line(self) -> list[str]:
        """Return the ids of the events that lead to the tip, oldest first."""
        out: list[str] = []
        at, seen = self.tip, set[str]()
        while at is not None and at not in seen:
            seen.add(at)
            out.append(at)
            at = self.links.get(at)
        return out[::-1]

    def read(self, wanted: Sequence[str]) -> list[Event]:
        """Read events by their ids, in the order asked for; what cannot be read is left out."""
        with self._mutex:
            if self._events_in_memory:
                return [
                    self._events_in_memory[uuid]
                    for uuid in wanted
                    if uuid in self._events_in_memory
                ]
            places = dict(self._places)
        events: dict[str, Event] = {}
        with Segments(parts_of(self.folder, self.session)) as segments:
            starts = {part.segment.number: part.start for part in segments.parts}
            for number, low, high in _spans(places[uuid] for uuid in wanted if uuid in places):
                if number in starts:
                    data = segments.read(starts[number] + low, starts[number] + high)
                    for event in codec.decode(data).events:
                        events.setdefault(event.uuid, event)
        return [events[uuid] for uuid in wanted if uuid in events]

    # -- writing ------------------------------------------------------------------------

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep every other writer of this list out, having seen all that they wrote."""
        with self._mutex, contextlib.ExitStack() as stack:
            if not self._depth:
                self._run = self._run or self._open_run()
                if self._run is not None:
                    stack.enter_context(self._run.exclusive(self.tip))
                news = self.look()
                self._news = news + self._news
                if self.root is None:
                    self._write([Event("header", now_text(), uuid7(), None, self._header())])
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1

    def append(self, entries: Iterable[BatchEntry]) -> list[str]:
        """Append a batch: all of it counts from now on. Gives the ids of those that are new.

        One whose id counts already is left out.
        """
        with self.exclusive():
            new: dict[str, BatchEntry] = {}
            for entry in entries:
                uuid = entry.uuid or uuid7()
                if uuid not in self.links:
                    check_value(entry.payload)  # the rest is for its program to judge
                    new.setdefault(uuid, entry)
            if new:
                self._write(self._link_events(new))
            return list(new)

    def _link_events(self, new: dict[str, BatchEntry]) -> list[Event]:
        """Return the events of a batch, each with what it goes on from and what commits it."""
        events: list[Event] = []
        tip, last = self.tip, next(reversed(new))
        before = set[str]()
        for uuid, entry in new.items():
            known = entry.parent in self.links or entry.parent in before
            prev = entry.parent if known else tip
            if prev != tip and self._moved and prev is not None:
                move = _with_mark({"to": prev}, last)
                events.append(Event("tip", now_text(), uuid7(), prev, move))
            payload = _with_mark(entry.payload, last) if uuid != last else entry.payload
            events.append(Event(entry.kind, entry.ts or now_text(), uuid, prev, payload))
            tip = uuid
            before.add(uuid)
        return events

    def rewind(self, to: str | None, **more: JSON) -> None:
        """Move the tip back, to before everything if `to` is None; what is left stays."""
        with self.exclusive():
            target = to if to is not None else self.root
            payload = {"to": target, **more}
            self._write([Event("tip", now_text(), uuid7(), target, payload)])

    def _write(self, events: list[Event]) -> None:
        lines = [line_of(event) for event in events]
        run = self._run
        self._wrote = True
        if run is None:
            for event in events:
                self._arrive(event, None)
            return
        at = run.append(b"".join(lines)) - run.base_offset
        if at != self._seen.get(run.segment, 0):  # a writer that does not look was quicker
            for grown in run.grown(self._seen):
                self._take(grown)
        else:
            for event, line in zip(events, lines, strict=True):
                self._arrive(event, _Place(run.segment, at, len(line) - 1))
                at += len(line)
            self._seen[run.segment] = at

    def sync(self) -> None:
        """Return when everything appended so far is on the disk; go on in the next segment."""
        with self._mutex:
            if self._run is not None:
                self._run.sync()
                self._run.roll(self.tip)

    def close(self) -> None:
        """End cleanly: a terminator if anything was written, and the handle let go.

        It can be read and appended to all the same: the next append opens the file anew.
        """
        with self._mutex:
            if self._run is None:
                return
            if self._wrote:
                self._wrote = False
                end = {"end_ts": now_text(), "reason": "closed"}
                event = Event("terminator", now_text(), uuid7(), self.tip, end)
                self._run.append(codec.encode(event))
            run, self._run = self._run, None
            run.close()


def _with_mark(payload: dict[str, JSON], last: str) -> dict[str, JSON]:
    """Say in a payload which event commits it."""
    mark = payload.get(MARK)
    return {**payload, MARK: {**(mark if isinstance(mark, dict) else {}), "batch": last}}


def _spans(places: Iterable[_Place]) -> Iterator[tuple[int, int, int]]:
    """Join lines that stand one behind the other, as nearly all do: (segment, from, to)."""
    number, low, high = 0, 0, 0
    for place in places:
        if place.segment == number and 0 <= place.offset - high < 4096:
            high = place.offset + place.length + 1
            continue
        if high:
            yield number, low, high
        number, low, high = place.segment, place.offset, place.offset + place.length + 1
    if high:
        yield number, low, high


def headers_in(folder: Path, *, whose: str | None = None) -> list[dict[str, JSON]]:
    """Return what the first lines of all lists in a folder say, or of those of one session."""
    out: list[dict[str, JSON]] = []
    for paths in sessions_in(folder).values():
        with Segments(paths[:1]) as file:
            events = codec.decode(file.read(0, HEADER_BYTES)).events
        header = next((event.fields for event in events if event.type == "header"), {})
        if whose is None or header.get("session_id") == whose:
            out.append(header)
    return out
