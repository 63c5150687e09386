"""The bytes of an open file, plain or compressed, from any offset on; never all of them at once."""

from __future__ import annotations

import os
from collections.abc import Iterator

from thence import system
from thence.format import codec

MAX_UNPACKED_BYTES = 4 << 30  # a bomb of zeros unpacks to anything; real rollouts are far below
"""Most bytes that are unpacked from one compressed file."""

_CHUNK_BYTES = 1 << 20
_MAX_WINDOW_BYTES = 128 << 20  # what zstd itself allows by default: a frame may ask for gigabytes


class Plain:
    """The bytes of a plain file, as far as it went when it was opened."""

    broken = ""

    def __init__(self, handle: int, size: int | None = None) -> None:
        self._handle = handle
        self._size = os.fstat(handle).st_size if size is None else size

    def piece(self, offset: int, length: int) -> bytes:
        """Return some bytes; fewer where the file ends."""
        return system.read_at(self._handle, min(length, max(self._size - offset, 0)), offset)

    def chunks(self, offset: int) -> Iterator[bytes]:
        """Yield all bytes from an offset on."""
        return chunks_between(self._handle, offset, self._size)


class Zstandard:
    """The bytes of a compressed file, unpacked a chunk at a time, never all of them."""

    def __init__(self, handle: int) -> None:
        import zstandard

        self.broken = ""
        """What is wrong with the file, once that was met."""
        self._handle = handle
        self._error: type[Exception] = zstandard.ZstdError
        self._unpacker = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
        self._stated_bytes = _read_stated_size(system.read_at(handle, 32, 0))
        self._rewind()

    def _rewind(self) -> None:
        os.lseek(self._handle, 0, os.SEEK_SET)
        # Not by name: the path may lead elsewhere by now.
        self._packed = open(self._handle, "rb", closefd=False)  # noqa: SIM115
        self._content = self._unpacker.stream_reader(
            self._packed, read_across_frames=True, closefd=False
        )
        self._at = 0

    def _read(self, length: int) -> bytes:
        """Unpack some bytes more; none where the content ends, is damaged or never ends."""
        if self._at > MAX_UNPACKED_BYTES:
            self.broken = codec.TOO_LONG
            return b""
        try:
            data = self._content.read(length)
        except self._error:
            self.broken = "a damaged compressed file"
            return b""
        if not data and self._at < self._stated_bytes:
            self.broken = "a compressed file that is not whole"
        self._at += len(data)
        return data

    def _go(self, offset: int) -> bool:
        """Unpack up to an offset; whether there is one."""
        if offset < self._at:
            self._rewind()
        while self._at < offset and self._read(min(_CHUNK_BYTES, offset - self._at)):
            pass
        return self._at == offset

    def piece(self, offset: int, length: int) -> bytes:
        """Return some bytes; fewer where the content ends."""
        out = b""
        if self._go(offset):
            while len(out) < length and (data := self._read(length - len(out))):
                out += data
        return out

    def chunks(self, offset: int) -> Iterator[bytes]:
        """Yield all bytes from an offset on. A damaged frame ends them."""
        if self._go(offset):
            while data := self._read(_CHUNK_BYTES):
                yield data


def _read_stated_size(start: bytes) -> int:
    """How much a compressed file says it holds; 0 when it does not say."""
    import zstandard

    try:
        return max(int(zstandard.frame_content_size(start)), 0)
    except zstandard.ZstdError:
        return 0


def chunks_between(handle: int, offset: int, end: int) -> Iterator[bytes]:
    """Yield the bytes of an open file from an offset up to an end, or where the file ends."""
    while offset < end:
        chunk = system.read_at(handle, min(_CHUNK_BYTES, end - offset), offset)
        if not chunk:
            return
        offset += len(chunk)
        yield chunk


Content = Plain | Zstandard
