"""The bytes of one session as one run, whatever files they lie in. Read-only.

A session that grew over its cap goes on in a further segment, and clean-up may have sealed old
ones (compressed, lossless). Offsets are logical: byte n of the session, not of a file. Files are
opened read-only, without following links; a segment that is missing or cannot be read is listed
and leaves a gap, never an error for the rest.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec

from thence.format.layout import Segment, segment_of

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_BLOCK = 64 << 10
_LARGEST = 4 << 20  # blocks double up to this: near the end little is read, further back quickly


class Part(msgspec.Struct):
    """One segment: its file, and where in the session its bytes stand."""

    segment: Segment
    path: Path
    start: int
    size: int


def parts_of(folder: Path, session: str) -> list[Path]:
    """The files of a session's segments, in order; of a sealed one and its original the latter."""
    found: dict[int, Path] = {}
    for name in sorted(_names(folder, session)):
        segment = segment_of(name)
        if segment is not None and (segment.number not in found or not segment.sealed):
            found[segment.number] = folder / name
    return [found[number] for number in sorted(found)]


def _names(folder: Path, session: str) -> list[str]:
    try:
        return [n for n in os.listdir(folder) if n.startswith(session + ".")]
    except (FileNotFoundError, NotADirectoryError):
        return []


class Segments:
    """All bytes of one session, open for reading."""

    def __init__(self, paths: list[Path]) -> None:
        self.parts: list[Part] = []
        self.unreadable: list[tuple[Path, str]] = []
        self._handles: dict[Path, int] = {}
        self._unsealed: dict[Path, bytes] = {}
        end = 0
        for path in paths:
            segment = segment_of(path.name) or Segment("session")
            try:
                size = self._open(path, sealed=segment.sealed)
            except OSError as error:
                self.unreadable.append((path, error.strerror or str(error)))
                continue
            self.parts.append(Part(segment, path, end, size))
            end += size
        self.size = end

    def _open(self, path: Path, *, sealed: bool) -> int:
        handle = os.open(path, _READ)
        try:
            told = os.fstat(handle)
            if not stat.S_ISREG(told.st_mode):
                raise OSError(0, "not a regular file")
            if sealed:
                self._unsealed[path] = _unsealed(handle)
                os.close(handle)
                return len(self._unsealed[path])
        except BaseException:
            os.close(handle)
            raise
        self._handles[path] = handle
        return told.st_size

    def close(self) -> None:
        """Let go of the files."""
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()

    def __enter__(self) -> Segments:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, start: int, stop: int) -> bytes:
        """Read logical bytes; fewer when the files have fewer."""
        out = [read for part in self.parts if (read := self._read_part(part, start, stop))]
        return out[0] if len(out) == 1 else b"".join(out)

    def _read_part(self, part: Part, start: int, stop: int) -> bytes:
        low = max(start - part.start, 0)
        high = min(stop - part.start, part.size)
        if low >= high:
            return b""
        if part.path in self._unsealed:
            return self._unsealed[part.path][low:high]
        handle = self._handles[part.path]
        out = os.pread(handle, high - low, low)
        while low + len(out) < high and (some := os.pread(handle, high - low - len(out), low + len(out))):
            out += some
        return out

    def find_back(self, needle: bytes, stop: int) -> int:
        """Where `needle` stands last before `stop`; -1 when it does not."""
        return self.find_any_back((needle,), stop)[0]

    def find_any_back(self, needles: tuple[bytes, ...], stop: int) -> tuple[int, bytes]:
        """Where one of the needles stands last before `stop`, and which; (-1, b"") when none."""
        size, longest = _BLOCK, max(map(len, needles))
        while stop > 0:
            start = max(0, stop - size)
            block = self.read(start, stop + longest - 1)
            found = [(block.rfind(needle, 0, stop - start + len(needle) - 1), needle) for needle in needles]
            at, which = max(found)
            if at >= 0:
                return start + at, which
            stop, size = start, min(2 * size, _LARGEST)
        return -1, b""

    def line_start(self, offset: int) -> int:
        """Where the line that holds this byte begins."""
        return self.find_back(b"\n", offset) + 1

    def line_end(self, offset: int) -> int:
        """Where the line that holds this byte ends, before its LF."""
        size = 4 << 10
        while offset < self.size:
            block = self.read(offset, offset + size)
            size = min(4 * size, _LARGEST)
            at = block.find(b"\n")
            if at >= 0:
                return offset + at
            offset += len(block) or self.size
        return self.size


def _unsealed(handle: int) -> bytes:
    """The bytes of a sealed segment."""
    import zstandard

    with os.fdopen(os.dup(handle), "rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file).read()
