"""Reading files that belong to others: bounded, incremental, and without leaving a trace.

`read` is the loop that every adapter shares. A file that has not changed is not opened; one that
grew is read from where the last read ended, after its first bytes and those before that place
have been recognised; any other is read again from the start, as its next generation. A read ends
when its budget of bytes or time is spent, at a line's end, so that no file can starve the rest.

A last line without its LF is not committed: the mark stays before it. If it is a whole record
its facts are given all the same (they are the same when it is read again); if not, it is torn.

Marks are made of the bytes that were read, not of a second look at them: what is changed behind
the reader's back, even while it reads, is another generation next time.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from operator import attrgetter
from time import monotonic
from typing import Protocol, runtime_checkable

import msgspec

from thence import system
from thence.agents import Batch, Cursor, File, Mark, Source, unread
from thence.agents.contents import Content, Plain, Zstandard, chunks_between
from thence.agents.marks import (
    EDGE_BYTES,
    Edges,
    Status,
    hash_of,
    is_same_file,
    is_touched,
    mark_of,
    match_edges,
    status_of,
)
from thence.agents.unread import Unread
from thence.format import codec
from thence.format.facts import Fact
from thence.format.nodes import Node
from thence.format.records import JSON, Notice, Place, Skipped, parse_json

MAX_DEPTH = 12
"""How many folders deep sessions are looked for."""

_FIRST_LINE_BYTES = 4096
MAX_DOCUMENT_BYTES = 16 << 20
"""Largest document that is read whole, in bytes."""

MAX_LIST_BYTES = 64 << 20
"""Largest document with a whole conversation in it that is read, in bytes."""

REWRITTEN = "rewritten"
SOURCE_GONE = "source gone"


_entry_name = attrgetter("name")

_NO_EDGES = (b"", b"")

_carry_cleaner: ContextVar[Callable[[str], str]] = ContextVar("carry_cleaner", default=str)


@contextlib.contextmanager
def clean_carry_with(clean: Callable[[str], str]) -> Iterator[None]:
    """Let readers clean the texts of their carry with `clean`: a carry is stored, without secrets.

    Outside of this context a carry has texts as they are.
    """
    token = _carry_cleaner.set(clean)
    try:
        yield
    finally:
        _carry_cleaner.reset(token)


def clean_carry(text: str) -> str:
    """Return a text as a carry has it, to store it or to compare it with what is stored."""
    return _carry_cleaner.get()(text)


class Limits(msgspec.Struct, frozen=True):
    """How much one read may take. A single line may go beyond it, up to the codec's limit."""

    bytes: int = 4 << 20
    """A reader holds about five times as much while it makes rows of it."""
    seconds: float = 5.0


class Records(Protocol):
    """Turns the records of one file into facts, and remembers what later ones need."""

    def facts(self, entry: codec.RawRecord) -> Iterable[Fact]:
        """Return the facts of one record, with file, channel, generation, line and offset set."""

    def carry(self) -> JSON:
        """Return what a later read must know of the records before it."""


@runtime_checkable
class ListRecords(Records, Protocol):
    """A reader of a document that holds a list, which usually grows (`documents.ListReader`)."""

    generation: int
    """Which generation its facts are: the next one if the list was changed, not only grown."""


class UnreadableDocument(Exception):
    """A document, or a file that belongs to it, makes no sense now. It may be half written."""

    def __init__(self, why: str, *, is_torn: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.is_torn = is_torn
        """Its end is missing: somebody is writing it, or was stopped while writing."""


OpenRecords = Callable[[Source, File, Mark], Records]
"""Makes the `Records` of a file; the mark tells the generation and holds the last carry."""

IsRecord = Callable[[dict[str, JSON]], bool]


def read(
    source: Source,
    cursor: Cursor | None,
    open_records: OpenRecords,
    *,
    is_record: IsRecord = codec.accept_any,
    limits: Limits | None = None,
) -> Batch:
    """Read what is new in a session's files since the cursor."""
    limits = limits or Limits()
    batch = Batch([], [], Cursor(dict(cursor.marks) if cursor else {}), notices=[])
    until = monotonic() + limits.seconds
    for file in source.files:
        reader = _FileReader(source, file, batch, open_records, is_record)
        if reader.has_changed():
            if batch.bytes >= limits.bytes or (batch.bytes and monotonic() > until):
                batch.done = False
                break
            reader.run(limits.bytes - batch.bytes, until)
            if not batch.done:
                break
    return batch


def is_unchanged(source: Source, cursor: Cursor) -> bool:
    """Whether no file of a session differs from what was read, as far as its inode tells.

    Rows of a database are known by their version: others in the same file may change.
    """
    marks = cursor.marks
    last: tuple[str, tuple[str, ...]] | None = None
    status: Status | None = None
    for file in source.files:
        mark = marks.get(file.key)
        if mark is None:
            return False
        if file.rows is not None:
            if mark.version != file.rows.version:
                return False
            continue
        # A document may be listed twice, for what was said and for its total.
        names = file.path, file.beside
        if status is None or names != last:
            try:
                last, status = names, status_of(file, os.lstat(file.path))
            except OSError:
                return False
        if not is_same_file(mark, status, file.path):
            return False
    return True


def bytes_read(mark: Mark, file: File, status: os.stat_result) -> int:
    """Return how many bytes of a file were read; 0 of one that is another by now.

    A file that differs from its mark is opened, and looked at no further than at its edges.
    """
    path = file.path
    if is_same_file(mark, status_of(file, status), path):
        return status.st_size if not mark.torn else min(mark.offset, status.st_size)
    if is_touched(mark, status, path):
        return 0
    try:
        handle = open_regular(path)
    except (OSError, ValueError):
        return 0
    try:
        content = Zstandard(handle) if path.endswith(".zst") else Plain(handle)
        return mark.offset if match_edges(mark, content) is not None else 0
    except OSError:
        return 0
    finally:
        os.close(handle)


def measure_source(source: Source) -> tuple[int, float]:
    """Return the bytes of a session's files, and when the last of them was written."""
    size, modified = 0, 0.0
    for file in source.files:
        try:
            bytes_, time = size_of(file, os.lstat(file.path))
        except OSError:
            continue
        size += bytes_
        modified = max(modified, time)
    return size, modified


def size_of(file: File, status: os.stat_result) -> tuple[int, float]:
    """Return the bytes of a file, or of a session's rows in it, and when they were written."""
    if file.rows is None:
        return status.st_size, status.st_mtime
    return file.rows.size, file.rows.modified or status.st_mtime


class _FileReader:
    """One file, this time."""

    def __init__(
        self,
        source: Source,
        file: File,
        batch: Batch,
        open_records: OpenRecords,
        is_record: IsRecord,
    ) -> None:
        self._source = source
        self._file = file
        self._batch = batch
        self._open_records = open_records
        self._is_record = is_record
        self._before = batch.cursor.marks.get(file.key)

    def has_changed(self) -> bool:
        """Whether the file has to be opened."""
        mark = self._before
        try:
            status = status_of(self._file, os.lstat(self._file.path))
        except FileNotFoundError:
            if mark is None:
                self._skip("no such file")
            else:
                self._batch.notices.append(Notice(SOURCE_GONE, self._file.path))
            return False
        except (OSError, ValueError) as error:
            self._skip(reason_of(error))
            return False
        if mark is None or not is_same_file(mark, status, self._file.path):
            return True
        self._batch.torn |= mark.torn
        return False

    def run(self, room: int, until: float) -> None:
        """Read the file as far as there is room."""
        try:
            handle = open_regular(self._file.path)
        except OSError as error:
            self._skip(reason_of(error))
            return
        try:
            if self._file.is_document:
                self._read_document(handle)
            else:
                self._read_log(handle, room, until)
        except OSError as error:
            self._skip(reason_of(error))
        finally:
            os.close(handle)

    def _skip(self, why: str, place: Place | None = None) -> None:
        line, offset, length = (place.line, place.offset, place.length) if place else (0, 0, 0)
        self._batch.skipped.append(Skipped(line, offset, length, why, source=self._file.path))

    # -- documents ----------------------------------------------------------------------

    def _read_document(self, handle: int) -> None:
        """Read a document anew. One that makes no sense leaves standing what the last one said."""
        before = self._before
        last = before.generation if before else -1
        carry = before.carry if before else None
        status = status_of(self._file, os.fstat(handle))
        mark = mark_of(status, self._file.path, generation=last + 1, carry=carry)
        records = self._open_records(self._source, self._file, mark)
        is_list = isinstance(records, ListRecords)
        try:
            raw = _content(handle, MAX_LIST_BYTES if is_list else MAX_DOCUMENT_BYTES)
            self._batch.bytes += len(raw)
            entry = codec.RawRecord(_parse_document(raw), Place(1, 0, len(raw)), raw)
            events = list(records.facts(entry))
        except UnreadableDocument as error:
            is_torn = error.is_torn and is_list
            if is_torn:
                self._batch.torn = True
            else:
                self._skip(error.why)
            mark = msgspec.structs.replace(mark, generation=max(last, 0), torn=is_torn)
            self._batch.cursor.marks[self._file.key] = mark
            return
        if isinstance(records, ListRecords):
            self._batch.lines += len({fact.line for fact in events})
            mark = msgspec.structs.replace(mark, generation=records.generation)
            if before is not None and records.generation > last:
                self._note_rewrite(records.generation)
        self._batch.events += events
        self._batch.cursor.marks[self._file.key] = msgspec.structs.replace(
            mark, carry=records.carry()
        )

    # -- logs ---------------------------------------------------------------------------

    def _read_log(self, handle: int, room: int, until: float) -> None:
        status = os.fstat(handle)
        packed = self._file.path.endswith(".zst")
        # A file may grow while it is read: what it has now is read, the rest is for next time.
        content = Zstandard(handle) if packed else Plain(handle, status.st_size)
        mark, edges = self._find_start(status, content)
        records = self._open_records(self._source, self._file, mark)
        facts, events, is_record = records.facts, self._batch.events, self._is_record
        quick, make_entry = codec.quick, codec.RawRecord
        flow = _Flow(content, mark.offset, until, edges)
        offset, line = mark.offset, mark.line
        stop = offset + room
        tail: tuple[Place, bytes | None] | None = None
        for place, raw, ended in codec.split(flow.chunks(), offset=offset, line=line):
            if not ended:
                tail = place, raw
                break
            if raw is not None and (value := quick(raw)) is not None:
                events += facts(make_entry(value, place, raw))
            else:
                for entry in codec.parse(place, raw, ended=True, is_record=is_record):
                    if isinstance(entry, Skipped):
                        self._add_skipped(entry)
                    else:
                        events += facts(entry)
            line += 1
            offset = place.offset + place.length + 1
            if offset >= stop or (not line % 256 and monotonic() > until):
                self._batch.done = False
                break
        flow.committed = offset
        self._batch.lines += line - mark.line
        self._batch.bytes += offset - mark.offset
        carry = records.carry()
        torn, tail_bytes = (
            self._read_tail(tail, records, flow) if tail is not None else (False, b"")
        )
        self._note_damage(content, Place(line, offset, 0))
        self._batch.cursor.marks[self._file.key] = mark_of(
            status,
            self._file.path,
            # A read that stopped early must look changed next time.
            size=status.st_size if self._batch.done else -1,
            offset=offset,
            line=line,
            generation=mark.generation,
            head=hash_of(flow.head[: offset + len(tail_bytes)]),
            anchor=hash_of((flow.last() + tail_bytes)[-EDGE_BYTES:]),
            tail=len(tail_bytes),
            torn=torn,
            carry=carry,
        )

    def _read_tail(
        self, tail: tuple[Place, bytes | None], records: Records, flow: _Flow
    ) -> tuple[bool, bytes]:
        """Look at a last line without its LF, which the cursor does not pass.

        The records that it begins with are given: whatever follows on the line, they stand. Tells
        whether there is more than them, and gives their bytes.
        """
        place, raw = tail
        self._batch.bytes += place.length
        if flow.gave_up:
            self._skip(codec.TOO_LONG, place)
        entries = list(codec.parse(place, raw, ended=False, is_record=self._is_record))
        torn = any(isinstance(entry, Skipped) for entry in entries)
        at = 0
        for entry in entries:
            start = _start_in_line(raw or b"", at, entry)
            if start is None or isinstance(entry, Skipped):
                break
            self._batch.events += records.facts(entry)
            at = start + len(entry.raw)
        self._batch.lines += bool(at)
        self._batch.torn |= torn
        return torn, (raw or b"")[:at]

    def _add_skipped(self, skipped: Skipped) -> None:
        named = msgspec.structs.replace(skipped, source=self._file.path)
        self._batch.skipped.append(named)

    def _note_damage(self, content: Content, place: Place) -> None:
        """Tell what is wrong with the file as a whole."""
        if content.broken and self._batch.done:
            self._skip(content.broken, place)

    def _find_start(self, status: os.stat_result, content: Content) -> tuple[Mark, Edges]:
        """Decide where to begin: where the last read ended, or at the start once more."""
        before = self._before
        if before is None:
            return mark_of(status, self._file.path), _NO_EDGES
        touched = is_touched(before, status, self._file.path)
        if not touched and (edges := match_edges(before, content)) is not None:
            return before, edges
        generation = before.generation
        if before.offset or before.tail:
            generation += 1
            self._note_rewrite(generation)
        return mark_of(status, self._file.path, generation=generation), _NO_EDGES

    def _note_rewrite(self, generation: int) -> None:
        """Say that this log is another one from here on, even if it holds nothing any more."""
        self._batch.notices.append(Notice(REWRITTEN, self._file.path))
        self._batch.events.append(rewritten_fact(self._file, generation))


def rewritten_fact(file: File, generation: int) -> Fact:
    """Return what says that a log is another one from here on."""
    node = Node(f"{file.key}#{REWRITTEN}-{generation}")
    return Fact(node, REWRITTEN, file=file.key, channel=file.channel, generation=generation, line=0)


def _content(handle: int, limit: int) -> bytes:
    """Return all bytes of a document."""
    size = os.fstat(handle).st_size
    if size > limit:
        raise UnreadableDocument(codec.TOO_LONG)
    return b"".join(chunks_between(handle, 0, size))


def _parse_document(raw: bytes) -> dict[str, JSON]:
    """Return a document; odd texts and numbers in it are taken as they are."""
    try:
        value = msgspec.json.decode(raw)
    except (ValueError, RecursionError) as error:
        place = Place(1, 0, len(raw))
        for entry in codec.parse(place, raw, ended=True, is_record=lambda _value: False):
            if isinstance(entry, codec.RawRecord):
                return entry.value
        raise UnreadableDocument(codec.BAD_JSON, is_torn="truncated" in str(error)) from None
    if not isinstance(value, dict):
        raise UnreadableDocument(codec.NOT_OBJECT)
    return value


def _start_in_line(raw: bytes, at: int, entry: codec.RawRecord | Skipped) -> int | None:
    """Where in its line a record starts that stands at a place, white space left out."""
    if isinstance(entry, Skipped):
        return None
    start = raw.find(entry.raw, at)
    return start if start >= 0 and not raw[at:start].strip(codec.WHITE) else None


def reason_of(error: OSError | ValueError) -> str:
    """Return why a file could not be read."""
    return (error.strerror if isinstance(error, OSError) else None) or "cannot be read"


class _Flow:
    """The bytes of a file on their way to be cut into lines, and the edges of what was read.

    A line that is longer than any we take is passed over only as long as there is time: a file
    of nothing but zeros may go on for ever.
    """

    def __init__(self, content: Content, offset: int, until: float, edges: Edges) -> None:
        self._content = content
        self._until = until
        self.committed = offset
        """Offset after the last line that was read; while a chunk is, before its first line."""
        self.gave_up = False
        self.head, self._committed = edges
        self._above = self._committed  # the last bytes before the chunk
        self._chunk = b""
        self._start = offset

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes from the offset on.

        Who asks for the next chunk has read all lines that end in this one.
        """
        at = self.committed
        for chunk in self._content.chunks(at):
            self._take(chunk, at)
            yield chunk
            if (end := chunk.rfind(b"\n")) >= 0:
                self.committed = at + end + 1
            at += len(chunk)
            if at - self.committed > codec.LINE_LIMIT and monotonic() > self._until:
                self.gave_up = True
                return

    def _take(self, chunk: bytes, at: int) -> None:
        """Keep of the chunk before this one as much as an edge may need."""
        self._committed = self.last()
        self._above = (self._above + self._chunk[-EDGE_BYTES:])[-EDGE_BYTES:]
        self._chunk, self._start = chunk, at
        self.head += chunk[: EDGE_BYTES - len(self.head)]

    def last(self) -> bytes:
        """The last bytes before the committed offset."""
        read = self.committed - self._start
        if read <= 0:  # a line that began before this chunk is still to be read
            return self._committed
        return (self._above + self._chunk[max(read - EDGE_BYTES, 0) : read])[-EDGE_BYTES:]


# -- opening and finding --------------------------------------------------------------------


def open_regular(path: str) -> int:
    """Open a regular file for reading, following no link and waiting for nobody."""
    handle = system.open_file(path, os.O_RDONLY)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(0, "not a regular file")
    except OSError:
        os.close(handle)
        raise
    return handle


@contextlib.contextmanager
def opened(path: str) -> Iterator[int]:
    """Open a regular file as `open_regular` does, for as long as it is read."""
    handle = open_regular(path)
    try:
        yield handle
    finally:
        os.close(handle)


def read_small(path: str, limit: int = MAX_DOCUMENT_BYTES) -> bytes | None:
    """Read a small file whole; None when it is not there, not regular or too large."""
    with contextlib.suppress(OSError, ValueError), opened(path) as handle:
        size = os.fstat(handle).st_size
        return b"".join(chunks_between(handle, 0, size)) if size <= limit else None
    return None


def start_of(path: str, length: int) -> bytes | None:
    """Read the first bytes of a log, unpacked; None when it is not there or not regular."""
    with contextlib.suppress(OSError, ValueError), opened(path) as handle:
        if path.endswith(".zst"):
            return Zstandard(handle).piece(0, length)
        return system.read_at(handle, length, 0)
    return None


def chunks_of(path: str) -> Iterator[bytes]:
    """Yield all bytes of a plain file, a chunk at a time; none when it cannot be read."""
    with contextlib.suppress(OSError, ValueError), opened(path) as handle:
        yield from chunks_between(handle, 0, os.fstat(handle).st_size)


def document(path: str, limit: int = MAX_DOCUMENT_BYTES) -> dict[str, JSON]:
    """Read a small JSON document; empty when there is none that makes sense."""
    value = parse_json(read_small(path, limit))
    return value if isinstance(value, dict) else {}


def note_link(entry: os.DirEntry[str]) -> None:
    """Note an entry if it is a link to a folder or to a log: sessions may lie behind it."""
    with contextlib.suppress(OSError):  # a link to itself
        if entry.is_symlink() and (entry.is_dir() or (".jsonl" in entry.name and entry.is_file())):
            unread.note(Unread("", entry.path, unread.NOT_FOLLOWED, "link"))


def note_unknown(path: str) -> None:
    """Note a file that is named as a log and does not begin as one; its first line may yet come."""
    start = start_of(path, _FIRST_LINE_BYTES)
    if start is None and is_regular(path):
        unread.note(Unread("", path, "it cannot be opened", "file"))
    elif b"\n" in (start or b"") or len(start or b"") == _FIRST_LINE_BYTES:
        unread.note(Unread("", path, "it does not begin as a session does", "file"))


def entries_in(folder: str) -> list[os.DirEntry[str]]:
    """Return what lies in a folder, sorted by name; one that cannot be listed is noted."""
    try:
        with os.scandir(folder) as listing:
            return sorted(listing, key=_entry_name)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return []
    except OSError as error:
        if os.path.lexists(folder):
            unread.note(Unread("", folder, reason_of(error), "folder"))
        return []


def folders_in(folder: str) -> list[os.DirEntry[str]]:
    """Return the folders in a folder, sorted by name; links are not followed, and noted."""
    folders: list[os.DirEntry[str]] = []
    for entry in entries_in(folder):
        if entry.is_dir(follow_symlinks=False):
            folders.append(entry)
        else:
            note_link(entry)
    return folders


def is_regular(path: str) -> bool:
    """Return whether a path is a file, and no link to one: one call of the system."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def walk(root: str, depth: int = MAX_DEPTH) -> Iterator[os.DirEntry[str]]:
    """Yield the regular files below a folder, sorted by name; links are not followed."""
    for entry in entries_in(root):
        if entry.is_file(follow_symlinks=False):
            yield entry
        elif depth > 0 and entry.is_dir(follow_symlinks=False):
            yield from walk(entry.path, depth - 1)
        else:
            note_link(entry)
