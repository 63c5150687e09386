"""A session's segments as one run, open for appending: always to the last of them.

A segment that passed its cap is left at the end of a turn and the next one is begun. Its header
says how many bytes and lines stood before it; that base is written once, under the lock, and
every offset given out is base + offset in the file (an address, see `segments`). Invariants: no
byte of an old segment is touched; of several writers exactly one begins the next; the others
follow when they next end a turn, move the tip or look before they append, and after a record that
came late, so that only plain records may come late to an old segment, which stays legal; a sealed
segment is never written nor made again: who finds the last one sealed begins the next.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from thence.errors import SessionBusy
from thence.format import codec, schema
from thence.format.layout import Segment, segment_of
from thence.format.records import JSON, Event, Header
from thence.journal.beginnings import begin
from thence.journal.ids import now_text, uuid7
from thence.journal.log import Durability, Log, SegmentSealed
from thence.journal.segments import Segments, parts_of

MAX_SEGMENT_BYTES = 50 << 20
"""Bytes of a segment beyond which a session goes on in the next one."""

_PAUSES_S = (0.001, 0.01, 0.05)


class AppendedBytes(msgspec.Struct, frozen=True):
    """Whole lines that a segment has got."""

    segment: int
    start: int
    """Where they stand in its file."""
    base: int
    data: bytes


class SegmentedLog:
    """All segments of one session, open for appending. Its session keeps threads apart."""

    def __init__(
        self,
        folder: Path,
        session: str,
        *,
        durability: Durability = "turn",
        max_bytes: int = MAX_SEGMENT_BYTES,
        tip: str | None = None,
    ) -> None:
        self.folder = folder
        self.session = session
        self.max_bytes = max_bytes
        self._durability = durability
        self._closed = False
        self.segment = 1
        self.base_offset = 0
        self._base_line = 0
        self.log = self._enter(self._latest(), tip)

    # -- writing ------------------------------------------------------------------------

    def append(self, line: bytes) -> int:
        """Append one whole line and give where it stands: its address in this segment."""
        return self.base_offset + self.log.append(line)

    def sync(self) -> None:
        """Return when every line appended so far is on the disk."""
        self.log.sync()

    def close(self) -> None:
        """Sync and close. A closed run stays closed."""
        self._closed = True
        self.log.close()

    @contextlib.contextmanager
    def exclusive(self, tip: str | None) -> Iterator[None]:
        """Keep other careful writers out, of the last segment: nobody rolls meanwhile."""
        while True:
            self.follow(tip)
            with self.log.exclusive():
                if not self.is_left():
                    yield
                    return

    # -- rolling ------------------------------------------------------------------------

    def roll(self, tip: str | None) -> None:
        """At the end of a turn: go on in the next segment if this one is full."""
        if self.follow(tip) or self.log.end <= self.max_bytes:
            return
        old = self.log
        with old.exclusive():
            if not self.is_left():
                self.log = self._enter(self.segment + 1, tip)
        if self.log is old:  # another was quicker
            self.follow(tip)
        else:
            old.close()

    def follow(self, tip: str | None) -> bool:
        """Go where other writers went: whether a later segment was there."""
        if not self.is_left():
            return False
        old = self.log
        old.sync()
        self.log = self._enter(self._latest(), tip)
        old.close()
        return True

    def is_left(self) -> bool:
        """Whether the session goes on in a later segment."""
        after = self.folder / Segment(self.session, self.segment + 1).name
        return os.path.lexists(after) or os.path.lexists(f"{after}.zst")

    def _latest(self) -> int:
        """The number of the segment to write to: the last one, or the next if that is sealed."""
        parts = parts_of(self.folder, self.session)
        last = segment_of(parts[-1].name) if parts else None
        return 1 if last is None else last.number + last.sealed

    def _enter(self, number: int, tip: str | None) -> Log:
        """Open a segment and learn its base; a later one is begun if it is not there.

        In one whose header is lost nothing more is written: the session goes on in the next.
        """
        while True:
            path = self.folder / Segment(self.session, number).name
            header: Header | None = Header(self.session)
            if number > 1:
                header = _head_of(path, number) or self._begin(path, number, tip)
            try:
                log = self._open(path) if header is not None else None
            except SegmentSealed:  # a moment ago
                log = None
            if header is not None and log is not None:
                self.segment = number
                self.base_offset, self._base_line = header.base_offset, header.base_line
                return log
            number = max(number + 1, self._latest())

    def _open(self, path: Path) -> Log:
        """Open a log. Who only asks whether it is in use holds it for no longer than a moment."""
        for pause in _PAUSES_S:
            with contextlib.suppress(SessionBusy):  # somebody looks whether it is in use
                return Log(path, durability=self._durability, begun=True)
            time.sleep(pause)
        return Log(path, durability=self._durability, begun=True)

    def _begin(self, path: Path, number: int, tip: str | None) -> Header | None:
        """Begin a later segment; its header, or another writer's who was quicker."""
        if os.path.lexists(f"{path}.zst"):  # a new file would hide what was sealed
            return None
        offset, line = self._before(number)
        fields = header_of(self.session, segment=number, base_offset=offset, base_line=line)
        # Beside the line, like the end of a turn: nothing hangs on it.
        event = Event("header", now_text(), uuid7(), tip, fields)
        if begin(path, codec.encode(event), durable=self._durability != "none"):
            return msgspec.convert(fields, Header)
        return _head_of(path, number)

    def _before(self, number: int) -> tuple[int, int]:
        """Bytes and lines before a new segment: those of the one before it and its own base."""
        with Segments(parts_of(self.folder, self.session)) as segments:
            earlier = [part for part in segments.parts if part.segment.number < number]
            if not earlier:
                return 0, 0
            last = earlier[-1]
            base = segments.base_of(last.segment.number)
            offset = (last.start if base is None else base) + last.size
            return offset, _lines(segments, last.segment.number, last.size)

    # -- looking ------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        """The file that is written now."""
        return self.log.path

    def line_at(self, segment: int, offset: int) -> int:
        """The 1-based number of the line at an address. Counted when it is asked for."""
        if segment == self.segment and not self._closed:
            return self._base_line + self.log.line_at(offset - self.base_offset)
        with Segments(parts_of(self.folder, self.session)) as segments:
            return _lines(segments, segment, offset - (segments.base_of(segment) or 0)) + 1

    def seen_before(self, number: int, address: int) -> dict[int, int]:
        """What `grown` is told when everything before an address is to count as seen."""
        with Segments(parts_of(self.folder, self.session)) as segments:
            seen = {p.segment.number: p.size for p in segments.parts if p.segment.number < number}
            return seen | {number: address - (segments.base_of(number) or 0)}

    def grown(self, seen: dict[int, int]) -> Iterator[AppendedBytes]:
        """What all segments got since they were last seen, up to their last LF; notes it."""
        if self.segment > 1:
            with Segments(parts_of(self.folder, self.session)) as segments:
                for part in segments.parts:
                    number = part.segment.number
                    start = seen.get(number, 0)
                    if number < self.segment and part.size > start:
                        base = segments.base_of(number) or 0
                        data = segments.read(part.start + start, part.start + part.size)
                        yield _complete_lines(AppendedBytes(number, start, base, data), seen)
        start, size = seen.get(self.segment, 0), self.log.size()
        if size > start:
            data = self.log.read(start, size)
            yield _complete_lines(AppendedBytes(self.segment, start, self.base_offset, data), seen)


def _head_of(path: Path, number: int) -> Header | None:
    """The header of a later segment by its file; None when there is none."""
    with Segments([path]) as file:
        return file.head_of(number)


def _complete_lines(grown: AppendedBytes, seen: dict[int, int]) -> AppendedBytes:
    """Leave out what follows the last LF: it may be in the middle of a write."""
    data = grown.data[: grown.data.rfind(b"\n") + 1]
    seen[grown.segment] = grown.start + len(data)
    return msgspec.structs.replace(grown, data=data)


def _lines(segments: Segments, number: int, stop: int) -> int:
    """Lines before an offset in the file of a segment, those of earlier segments included."""
    part, header = segments.part(number), segments.head_of(number) if number > 1 else None
    before = header.base_line if header is not None else 0
    if part is None:
        return before
    at, end = part.start, part.start + min(stop, part.size)
    while at < end:
        before += segments.read(at, min(end, at + (1 << 20))).count(b"\n")
        at += 1 << 20
    return before


def header_of(session: str, *, cwd: str | None = None, **fields: JSON) -> dict[str, JSON]:
    """Return the payload of the first line of a segment, a sidechain or a list.

    The first line of a session itself says where it comes from as well; see `Journal`.
    """
    return {
        "session_id": session,
        "start_ts": now_text(),
        "resumed_from": None,
        "schema_version": schema.CURRENT,
        "cwd": cwd,
        "model": None,
        "inherited_cost": 0.0,
        **fields,
    }
