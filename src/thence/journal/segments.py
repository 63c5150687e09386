"""The bytes of one session as one run, whatever files they lie in. Read-only.

A session that grew over its cap goes on in a further segment, and clean-up may have sealed old
ones (compressed, lossless; unpacked only where they are read). Files are opened read-only,
without following links; a segment that is missing or cannot be read is listed and leaves a gap,
never an error for the rest.

Two ways to say where a byte is. In the *run*, all segments one behind the other, it has one
offset as long as nobody writes: a late line in an old segment shifts those behind it. What a log
remembers is therefore an *address*: the segment's number, and base + offset in its file, the
base being what the segment's own header says. It is written once, so that an address leads to
the same bytes for ever. `at` and `address` turn one into the other.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Self

import msgspec

from thence.errors import NotReadable, remedy
from thence.format import codec
from thence.format.layout import Segment, segment_of
from thence.format.records import Header, parse_payload

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_BLOCK_BYTES = 4 << 10
_MAX_BLOCK_BYTES = (
    4 << 20
)  # blocks grow up to this: near the end little is read, further back quickly

HEADER_BYTES = 64 << 10  # a segment's header stands within its first bytes, or counts as lost


class SegmentPart(msgspec.Struct):
    """One segment: its file, and where in the session its bytes stand."""

    segment: Segment
    path: Path
    start: int
    size: int


def parts_of(folder: Path, session: str) -> list[Path]:
    """The files of a session's segments, in order; of a sealed one and its original the latter."""
    return sessions_in(folder, session + ".").get(session, [])


def is_begun(folder: Path, session: str) -> bool:
    """Whether anything of a session is there."""
    with Segments(parts_of(folder, session)) as segments:
        return segments.is_begun


def sessions_in(folder: Path, prefix: str = "") -> dict[str, list[Path]]:
    """The same for all sessions of a folder whose names begin so, by session."""
    sessions: dict[str, dict[int, Path]] = {}
    for name in names_in(folder):
        segment = segment_of(name) if name.startswith(prefix) else None
        if segment is None:
            continue
        files = sessions.setdefault(segment.session, {})
        if segment.number not in files or not segment.sealed:
            files[segment.number] = folder / name
    return {session: [files[n] for n in sorted(files)] for session, files in sessions.items()}


def last_modified(paths: Iterable[Path]) -> float | None:
    """Return when any of these files was last written, in seconds; None when there is none."""
    times = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # sealed or removed just now
            times.append(path.stat().st_mtime)
    return max(times, default=None)


def names_in(folder: Path) -> list[str]:
    """What a folder holds: nothing when there is none; one that cannot be read is an error."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names are wanted, not paths
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise NotReadable(
            f"cannot look into {folder}: {error.strerror or error}",
            hint=f"nothing was changed; {remedy(error)}, then try again",
        ) from error


def was_begun(data: bytes) -> bool:
    """Whether the first bytes of a log hold its first line or any other.

    A log gets its name with its header in it. Earlier versions gave the name first: a kill left
    files that are empty, or hold a part of one line.
    """
    body = data.strip(b" \t\r\n\0")
    if b"\n" in body:
        return True
    return any(isinstance(each, codec.RawRecord) for each in codec.objects(body))


class Segments:
    """All bytes of one session, open for reading."""

    def __init__(self, paths: list[Path]) -> None:
        self.parts: list[SegmentPart] = []
        self.unreadable: list[tuple[Path, str]] = []
        self._handles: dict[Path, int] = {}
        self._sealed: dict[Path, _Sealed] = {}
        self._heads: dict[int, Header | None] = {}
        end = 0
        for path in paths:
            segment = segment_of(path.name) or Segment("session")
            try:
                part = self._open_or_sealed_copy(segment, path)
            except OSError as error:
                self.unreadable.append((path, error.strerror or str(error)))
                continue
            part.start = end
            self.parts.append(part)
            end += part.size
        self.size = end

    def _open_or_sealed_copy(self, segment: Segment, path: Path) -> SegmentPart:
        """Open a segment that may have been sealed since its folder was listed."""
        try:
            return SegmentPart(segment, path, 0, self._open(path, sealed=segment.sealed))
        except FileNotFoundError:
            if segment.sealed:
                raise
            copy = msgspec.structs.replace(segment, sealed=True)
            path = path.with_name(copy.name)
            return SegmentPart(copy, path, 0, self._open(path, sealed=True))

    def _open(self, path: Path, *, sealed: bool) -> int:
        handle = os.open(path, _READ)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(0, "not a regular file")
            if sealed:
                self._sealed[path] = _Sealed(handle)
                self._handles[path] = handle
                return self._sealed[path].size
        except BaseException:  # whatever it was: let go, then pass it on
            os.close(handle)
            raise
        self._handles[path] = handle
        return status.st_size

    @property
    def is_begun(self) -> bool:
        """Whether anything stands here; of what cannot be read nobody knows, so it counts."""
        if self.unreadable or self.size > HEADER_BYTES or len(self.parts) > 1:
            return True
        return was_begun(self.read(0, self.size))

    def close(self) -> None:
        """Let go of the files. Addresses can be told from then on, too."""
        for part in self.parts[1:] if self._handles else ():
            self.head_of(part.segment.number)
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, start: int, stop: int) -> bytes:
        """Read logical bytes; fewer when the files have fewer."""
        out = [read for part in self.parts if (read := self._read_part(part, start, stop))]
        return out[0] if len(out) == 1 else b"".join(out)

    def _read_part(self, part: SegmentPart, start: int, stop: int) -> bytes:
        low = max(start - part.start, 0)
        high = min(stop - part.start, part.size)
        if low >= high:
            return b""
        if part.path in self._sealed:
            return self._read_sealed(part, low, high)
        handle = self._handles[part.path]
        out = os.pread(handle, high - low, low)
        while low + len(out) < high and (
            some := os.pread(handle, high - low - len(out), low + len(out))
        ):
            out += some
        return out

    def _read_sealed(self, part: SegmentPart, low: int, high: int) -> bytes:
        """Read a sealed segment. A broken one is listed, and blank so that offsets hold."""
        try:
            return self._sealed[part.path].read(low, high)
        except OSError as error:
            problem = (part.path, error.strerror or str(error))
            if problem not in self.unreadable:
                self.unreadable.append(problem)
            return b" " * (high - low - 1) + b"\n"

    # -- addresses ----------------------------------------------------------------------

    def head_of(self, number: int) -> Header | None:
        """The header of a later segment: the first that names it; None when it has none."""
        if number not in self._heads:
            part = self.part(number)
            head = self._read_part(part, part.start, part.start + HEADER_BYTES) if part else b""
            headers = [
                parse_payload(event)
                for event in codec.decode(head).events
                if event.type == "header"
            ]
            own = [h for h in headers if isinstance(h, Header) and h.segment == number]
            self._heads[number] = own[0] if own else None
        return self._heads[number]

    def part(self, number: int) -> SegmentPart | None:
        """The segment of this number, if it is there."""
        return next((part for part in self.parts if part.segment.number == number), None)

    def base_of(self, number: int) -> int | None:
        """How many bytes stood before a segment when it was begun, by its own word."""
        if number == 1:
            return 0
        header = self.head_of(number)
        return None if header is None else header.base_offset

    def at(self, number: int, offset: int, length: int) -> int | None:
        """Where in the run the bytes of an address stand; None when it leads nowhere."""
        part, base = self.part(number), self.base_of(number)
        if part is None or base is None:
            return None
        inside = offset - base
        return part.start + inside if 0 <= inside <= part.size - length else None

    def anywhere(self, offset: int) -> int | None:
        """Where in the run an address whose segment is not told may lead: the last that fits."""
        offsets = (self.at(part.segment.number, offset, 1) for part in reversed(self.parts))
        return next((start for start in offsets if start is not None), None)

    def address(self, start: int) -> tuple[int, int]:
        """The address of a byte of the run: its segment's number, and base + offset in it.

        Without a base there is no address; a segment 0 stands for that and leads nowhere.
        """
        for part in self.parts:
            if part.start <= start < part.start + part.size:
                base = self.base_of(part.segment.number)
                if base is not None:
                    return part.segment.number, base + start - part.start
        return 0, start

    # -- looking ------------------------------------------------------------------------

    def find_back(self, needle: bytes, stop: int) -> int:
        """Where `needle` stands last before `stop`; -1 when it does not."""
        return self.find_any_back((needle,), stop)[0]

    def find_any_back(self, needles: tuple[bytes, ...], stop: int) -> tuple[int, bytes]:
        """Where one of the needles stands last before `stop`, and which; (-1, b"") when none."""
        size, longest = _BLOCK_BYTES, max(map(len, needles))
        while stop > 0:
            start = max(0, stop - size)
            block = self.read(start, stop + longest - 1)
            matches = [
                (block.rfind(needle, 0, stop - start + len(needle) - 1), needle)
                for needle in needles
            ]
            at, which = max(matches)
            if at >= 0:
                return start + at, which
            stop, size = start, min(4 * size, _MAX_BLOCK_BYTES)
        return -1, b""

    def line_start(self, offset: int) -> int:
        """Where the line that holds this byte begins."""
        return self.find_back(b"\n", offset) + 1

    def line_end(self, offset: int) -> int:
        """Where the line that holds this byte ends, before its LF."""
        size = 4 << 10
        while offset < self.size:
            block = self.read(offset, offset + size)
            size = min(4 * size, _MAX_BLOCK_BYTES)
            at = block.find(b"\n")
            if at >= 0:
                return offset + at
            offset += len(block) or self.size
        return self.size


class _Sealed:
    """A compressed segment: its size is told by its frame, its bytes are unpacked when read."""

    def __init__(self, handle: int) -> None:
        import zstandard

        self._handle = handle
        self._unpacked: bytes | None = None
        self._head = b""
        try:
            self.size = zstandard.frame_content_size(os.pread(handle, 32, 0))
        except zstandard.ZstdError as error:
            raise OSError(0, f"not a sealed segment: {error}") from error
        if self.size < 0:  # not by us: ours say how long they are
            self._unpacked = self._unpack(-1)
            self.size = len(self._unpacked)

    def read(self, low: int, high: int) -> bytes:
        """Bytes of the original. The first ones are had without unpacking all."""
        if self._unpacked is None and high <= HEADER_BYTES:
            self._head = self._head or self._unpack(min(HEADER_BYTES, self.size))
            return self._head[low:high]
        if self._unpacked is None:
            self._unpacked = self._unpack(-1)
        if len(self._unpacked) != self.size:
            raise OSError(0, "a sealed segment that is not whole")
        return self._unpacked[low:high]

    def _unpack(self, count: int) -> bytes:
        import zstandard

        os.lseek(self._handle, 0, os.SEEK_SET)
        try:
            with os.fdopen(os.dup(self._handle), "rb") as file:
                return zstandard.ZstdDecompressor().stream_reader(file).read(count)
        except zstandard.ZstdError as error:
            raise OSError(0, f"a sealed segment that is broken: {error}") from error
