"""Reading files that belong to others: bounded, incremental, and without leaving a trace.

`read` is the loop that every adapter shares. A file that has not changed is not opened; one that
grew is read from where the last read ended, after its first bytes and those before that place
have been recognised; any other is read again from the start, as its next generation. A read ends
when its budget of bytes or time is spent, at a line's end, so that no file can starve the rest.

A last line without its LF is not committed: the mark stays before it. If it is a whole record
its facts are given all the same (they are the same when it is read again); if not, it is torn.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from time import monotonic
from typing import Protocol

import msgspec

from thence.adapters import Batch, Cursor, File, Mark, Source
from thence.format import codec
from thence.format.facts import Fact
from thence.format.records import JSON, Notice, Place, Skipped

DEPTH = 12
"""How many folders deep sessions are looked for."""

DOCUMENT_LIMIT = 16 << 20
"""Largest document that is read whole, in bytes."""

_CHUNK = 1 << 20
_WINDOW = 128 << 20
_EDGE = 4096  # bytes by which the start and the read end of a file are known again


class Limits(msgspec.Struct, frozen=True):
    """How much one read may take. A single line may go beyond it, up to the codec's limit."""

    bytes: int = 16 << 20
    seconds: float = 5.0


class Records(Protocol):
    """Turns the records of one file into facts, and remembers what later ones need."""

    def facts(self, found: codec.Found) -> Iterable[Fact]:
        """Give the facts of one record, with file, channel, generation, line and offset set."""
        ...

    def carry(self) -> JSON:
        """Give what a later read must know of the records before it."""
        ...


Opened = Callable[[Source, File, Mark], Records]
"""Makes the `Records` of a file; the mark tells the generation and holds the last carry."""

IsRecord = Callable[[dict[str, JSON]], bool]


def read(
    source: Source,
    cursor: Cursor | None,
    opened: Opened,
    *,
    is_record: IsRecord = codec.anything,
    limits: Limits | None = None,
) -> Batch:
    """Read what is new in a session's files since the cursor."""
    limits = limits or Limits()
    batch = Batch([], [], Cursor(dict(cursor.marks) if cursor else {}))
    until = monotonic() + limits.seconds
    for file in source.files:
        one = _Reading(source, file, batch, opened, is_record)
        if one.changed():
            if batch.bytes >= limits.bytes or (batch.bytes and monotonic() > until):
                batch.done = False
                break
            one.run(limits.bytes - batch.bytes, until)
            if not batch.done:
                break
    return batch


class _Reading:
    """One file, this time."""

    def __init__(
        self, source: Source, file: File, batch: Batch, opened: Opened, is_record: IsRecord
    ) -> None:
        self._source = source
        self._file = file
        self._batch = batch
        self._opened = opened
        self._is_record = is_record
        self._before = batch.cursor.marks.get(file.key)

    def changed(self) -> bool:
        """Whether the file has to be opened."""
        try:
            status = os.lstat(self._file.path)
        except OSError as error:
            if self._before is None or not isinstance(error, FileNotFoundError):
                self._skip(error.strerror or "cannot be read")
            else:
                self._batch.notices.append(Notice("source gone", self._file.path))
            return False
        mark = self._before
        known = mark is not None and _is(mark, status)
        if known and mark is not None and not self._file.whole:
            self._batch.torn |= mark.size > mark.offset
        return not known

    def run(self, room: int, until: float) -> None:
        """Read the file as far as there is room."""
        try:
            handle = open_regular(self._file.path)
        except OSError as error:
            self._skip(error.strerror or "cannot be read")
            return
        try:
            if self._file.whole:
                self._document(handle)
            else:
                self._log(handle, room, until)
        except OSError as error:
            self._skip(error.strerror or "cannot be read")
        finally:
            os.close(handle)

    def _skip(self, why: str) -> None:
        self._batch.skipped.append(Skipped(0, 0, 0, why, source=self._file.path))

    # -- documents ----------------------------------------------------------------------

    def _document(self, handle: int) -> None:
        status = os.fstat(handle)
        mark = Mark(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        mark = msgspec.structs.replace(
            mark, generation=self._before.generation + 1 if self._before else 0
        )
        self._batch.cursor.marks[self._file.key] = mark
        if status.st_size > DOCUMENT_LIMIT:
            self._skip(codec.TOO_LONG)
            return
        raw = b"".join(_chunks(handle, 0, status.st_size))
        self._batch.bytes += len(raw)
        try:
            value = msgspec.json.decode(raw)
        except (ValueError, RecursionError):
            self._skip(codec.BAD_JSON)
            return
        if isinstance(value, dict):
            found = codec.Found(value, Place(1, 0, len(raw)), raw)
            records = self._opened(self._source, self._file, mark)
            self._batch.events += records.facts(found)
        else:
            self._skip(codec.NOT_OBJECT)

    # -- logs ---------------------------------------------------------------------------

    def _log(self, handle: int, room: int, until: float) -> None:
        status = os.fstat(handle)
        content = Zstandard(handle) if self._file.path.endswith(".zst") else Plain(handle)
        mark = self._start(status, content)
        records = self._opened(self._source, self._file, mark)
        facts, events = records.facts, self._batch.events
        offset, line, spent = mark.offset, mark.line, 0
        tail: tuple[Place, bytes | None] | None = None
        # A file may grow while it is read: what it has now is read, the rest is for next time.
        lines = codec.split(content.chunks(offset), offset=offset, line=line)
        for place, raw, ended in lines:
            if not ended:
                tail = place, raw
                break
            for found in codec.parse(place, raw, ended=True, is_record=self._is_record):
                if isinstance(found, Skipped):
                    self._skipped(found)
                else:
                    events += facts(found)
            offset, line = place.offset + place.length + 1, place.line + 1
            spent = offset - mark.offset
            if spent >= room or (not line % 256 and monotonic() > until):
                self._batch.done = False
                break
        self._batch.lines += line - mark.line
        self._batch.bytes += offset - mark.offset
        self._commit(status, content, mark, offset, line, records.carry())
        if tail is not None:
            self._tail(tail, records)

    def _tail(self, tail: tuple[Place, bytes | None], records: Records) -> None:
        """Look at a last line without its LF, which the cursor does not pass."""
        place, raw = tail
        self._batch.torn = True
        if raw is None:
            return
        found = list(codec.parse(place, raw, ended=False, is_record=self._is_record))
        if len(found) == 1 and isinstance(found[0], codec.Found):
            self._batch.torn = False
            self._batch.lines += 1
            self._batch.events += records.facts(found[0])

    def _skipped(self, found: Skipped) -> None:
        named = msgspec.structs.replace(found, source=self._file.path)
        self._batch.skipped.append(named)

    def _start(self, status: os.stat_result, content: Plain | Zstandard) -> Mark:
        """Decide where to begin: where the last read ended, or at the start once more."""
        before = self._before
        fresh = Mark(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if before is None:
            return fresh
        touched = (
            before.inode == status.st_ino
            and before.size == status.st_size
            and before.mtime_ns != status.st_mtime_ns
        )
        if not touched and _known(before, content):
            return before
        if before.offset:
            self._batch.notices.append(Notice("rewritten", self._file.path))
        return msgspec.structs.replace(fresh, generation=before.generation + bool(before.offset))

    def _commit(  # noqa: PLR0917 - the fields of a mark
        self,
        status: os.stat_result,
        content: Plain | Zstandard,
        mark: Mark,
        offset: int,
        line: int,
        carry: JSON,
    ) -> None:
        # A read that stopped early must look changed next time.
        size = status.st_size if self._batch.done else -1
        self._batch.cursor.marks[self._file.key] = Mark(
            status.st_dev,
            status.st_ino,
            size,
            status.st_mtime_ns,
            offset,
            line,
            mark.generation,
            _hash(content.piece(0, min(offset, _EDGE))),
            _hash(content.piece(max(offset - _EDGE, 0), min(offset, _EDGE))),
            carry,
        )


def _is(mark: Mark, status: os.stat_result) -> bool:
    return (mark.inode, mark.size, mark.mtime_ns, mark.device) == (
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_dev,
    )


def _known(mark: Mark, content: Plain | Zstandard) -> bool:
    """Whether a file still begins, and goes on up to the mark, as it did when it was read."""
    edge = min(mark.offset, _EDGE)
    head, anchor = content.piece(0, edge), content.piece(mark.offset - edge, edge)
    return len(anchor) == edge and (_hash(head), _hash(anchor)) == (mark.head, mark.anchor)


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=12).hexdigest() if data else ""


# -- contents -------------------------------------------------------------------------------


class Plain:
    """The bytes of a plain file, as far as it went when it was opened."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._size = os.fstat(handle).st_size

    def piece(self, offset: int, length: int) -> bytes:
        """Give some bytes; fewer where the file ends."""
        return os.pread(self._handle, min(length, max(self._size - offset, 0)), offset)

    def chunks(self, offset: int) -> Iterator[bytes]:
        """Give all bytes from an offset on."""
        return _chunks(self._handle, offset, self._size)


class Zstandard:
    """The bytes of a compressed file, unpacked a chunk at a time, never all of them."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def piece(self, offset: int, length: int) -> bytes:
        """Give some bytes; fewer where the content ends."""
        out = b""
        for chunk in self.chunks(offset):
            out += chunk
            if len(out) >= length:
                break
        return out[:length]

    def chunks(self, offset: int) -> Iterator[bytes]:
        """Give all bytes from an offset on. A damaged frame ends them."""
        import zstandard

        unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
        with os.fdopen(os.dup(self._handle), "rb") as packed:
            packed.seek(0)
            at = 0
            with unpacker.stream_reader(packed, read_across_frames=True, closefd=False) as content:
                try:
                    # Never unpacked at once: a few bytes may hold gigabytes.
                    while chunk := content.read(_CHUNK):
                        at += len(chunk)
                        if at > offset:
                            yield chunk[max(len(chunk) - (at - offset), 0) :]
                except zstandard.ZstdError:
                    return


def _chunks(handle: int, offset: int, end: int) -> Iterator[bytes]:
    while offset < end:
        chunk = os.pread(handle, min(_CHUNK, end - offset), offset)
        if not chunk:
            return
        offset += len(chunk)
        yield chunk


# -- opening and finding --------------------------------------------------------------------


def open_regular(path: str) -> int:
    """Open a regular file for reading, following no link and waiting for nobody."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(0, "not a regular file")
    return handle


def read_small(path: str, limit: int = DOCUMENT_LIMIT) -> bytes | None:
    """Read a small file whole; None when it is not there, not regular or too large."""
    try:
        handle = open_regular(path)
    except (OSError, ValueError):
        return None
    try:
        size = os.fstat(handle).st_size
        return b"".join(_chunks(handle, 0, size)) if size <= limit else None
    except OSError:
        return None
    finally:
        os.close(handle)


def document(path: str, limit: int = DOCUMENT_LIMIT) -> dict[str, JSON]:
    """Read a small JSON document; empty when there is none that makes sense."""
    raw = read_small(path, limit)
    try:
        value = msgspec.json.decode(raw) if raw else None
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def walk(root: str, depth: int = DEPTH) -> Iterator[os.DirEntry[str]]:
    """Give the regular files below a folder, sorted by name; links are not followed."""
    try:
        with os.scandir(root) as listing:
            entries = sorted(listing, key=lambda e: e.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_file(follow_symlinks=False):
            yield entry
        elif depth > 0 and entry.is_dir(follow_symlinks=False):
            yield from walk(entry.path, depth - 1)
