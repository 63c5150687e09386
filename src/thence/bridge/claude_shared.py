"""`SessionStore` of the Claude Agent SDK for many machines: in Postgres, or in an object store.

    options = ClaudeAgentOptions(session_store=SharedSessionStore("postgresql://user@host/db"))
    options = ClaudeAgentOptions(session_store=SharedSessionStore("s3://bucket/prefix"))

The address is that of a store of `thence`, and the transcripts lie where its payloads lie. Each
batch of entries is one object, numbered; a shelf puts an object only where nothing is, so that of
two writers who take the same number one looks again and takes the next. Invariants are those of
`JournalSessionStore`: an entry's uuid counts once, whoever appended it; a batch counts whole or
not at all, and is durable when `append` returns; `delete` is a tombstone; a damaged object costs
itself; names are hashes and numbers, never text from elsewhere.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
import zstandard

from thence.bridge.claude_agent_sdk import BRIDGE, OPEN, Front, TranscriptKey, fold_summary, uuid_of
from thence.bridge.sdk_records import read
from thence.errors import NotAppendable, ThenceError
from thence.format import codec
from thence.format.records import JSON
from thence.memory.packs import MAX_PAYLOAD_BYTES, pack_name, unpack_frame
from thence.team.objects import MAX_UPLOADS, BackendError, BlobBackend, ObjectAbsent, shelf_at

if TYPE_CHECKING:
    from thence.team.postgres import Postgres

LAST = 1 << 64
"""No transcript has so many batches; what is named as if it had is not ours."""

TRIES = 1000
"""How often a batch may find its number taken before it is called a failure."""


class SharedSessionStore(Front):
    """Transcripts in a store that several machines share."""

    def __init__(self, url: str) -> None:
        """Keep transcripts at an address: `postgresql://…`, `s3://…`, `gs://…`, `file:///…`."""
        super().__init__(_OpenTranscripts(url))


class _OpenTranscripts:
    """The transcripts at hand, for one thread. Nothing is opened before the first call."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened: tuple[_Values, Postgres | None] | None = None
        self._open: OrderedDict[TranscriptKey, _Transcript] = OrderedDict()
        self._listed: dict[str, TranscriptKey] = {}
        self._now = 0

    @property
    def _values(self) -> _Values:
        if self._opened is None:
            self._opened = _open_store(self._url)
        return self._opened[0]

    def _transcript(self, key: TranscriptKey) -> _Transcript:
        transcript = self._open.get(key) or _Transcript(key, self._values)
        self._open[key] = transcript
        self._open.move_to_end(key)
        while len(self._open) > OPEN:
            self._open.popitem(last=False)
        return transcript

    def append(self, key: TranscriptKey, entries: list[JSON]) -> None:
        transcript = self._transcript(key)
        if not transcript.number:
            self._list(key)
        transcript.append(entries, self._time())

    def _time(self) -> int:
        """Return the time in milliseconds: no two writes of ours are as old as each other."""
        self._now = max(self._now + 1, time.time_ns() // 1_000_000)
        return self._now

    def _list(self, key: TranscriptKey) -> None:
        """Say that a transcript is there, before it is: nothing that is kept goes unlisted."""
        named = blake2b(f"{key.session}\0{key.subpath}".encode("utf-8", "surrogatepass"))
        names = {"project": key.project, "session": key.session, "subpath": key.subpath}
        self._values.put(f"{_project(key.project)}/{named.hexdigest()[:32]}", names)

    def _keys(self, project: str) -> list[TranscriptKey]:
        """All transcripts of a project."""
        sizes = self._values.sizes(_project(project))
        new = [name for name in sizes if name not in self._listed]
        for name, value in zip(new, self._values.read(new, sizes), strict=True):
            # Written by another version: not listed, not lost.
            with contextlib.suppress(msgspec.ValidationError):
                self._listed[name] = msgspec.convert(value, TranscriptKey)
        return [self._listed[name] for name in sizes if name in self._listed]

    def _stored_transcripts(self, project: str) -> Iterator[_Transcript]:
        for key in self._keys(project):
            transcript = self._transcript(key)
            transcript.look()
            if transcript.batches:
                yield transcript

    def load(self, key: TranscriptKey) -> list[JSON] | None:
        transcript = self._transcript(key)
        transcript.look()
        return transcript.entries() or None

    def sessions(self, project: str) -> list[dict[str, JSON]]:
        return [
            {"session_id": transcript.key.session, "mtime": transcript.written}
            for transcript in self._stored_transcripts(project)
            if transcript.key.subpath is None
        ]

    def summaries(self, project: str) -> list[dict[str, JSON]]:
        return [
            transcript.summary()
            for transcript in self._stored_transcripts(project)
            if transcript.key.subpath is None
        ]

    def delete(self, key: TranscriptKey) -> None:
        for subpath in self.subkeys(key) if key.subpath is None else ():
            self.delete(TranscriptKey(key.project, key.session, subpath))
        self._transcript(key).delete(self._time())

    def subkeys(self, key: TranscriptKey) -> list[str]:
        mine = (
            transcript.key
            for transcript in self._stored_transcripts(key.project)
            if transcript.key.owner == key.owner
        )
        return [subkey.subpath for subkey in mine if subkey.subpath is not None]

    def close(self) -> None:
        self._open.clear()
        opened, self._opened = self._opened, None
        if opened is not None:
            shelf, database = opened
            shelf.close()
            if database is not None:
                database.close()


def _open_store(url: str) -> tuple[_Values, Postgres | None]:
    if not url.startswith(("postgres://", "postgresql://")):
        return _Values(shelf_at(url)), None
    from thence.team.postgres import Postgres
    from thence.team.postgres_blobs import PostgresBlobs

    database = Postgres(url)
    return _Values(PostgresBlobs(database)), database


class _Batch(msgspec.Struct, frozen=True):
    """What one object holds. Without entries it is a tombstone."""

    by: str
    """Drawn by chance: no two writers write the same."""
    at: int
    entries: list[Any] | None

    @staticmethod
    def of(value: JSON) -> _Batch | None:
        try:
            return msgspec.convert(value, _Batch)
        except msgspec.ValidationError:
            return None


class _Transcript:
    """One transcript: which batches count, and what is in them."""

    def __init__(self, key: TranscriptKey, shelf: _Values) -> None:
        self.key = key
        self.number = 0
        """That of the next object."""
        self.batches: list[str] = []
        """Those that count, oldest first."""
        self.written = 0
        """When it was last written, in milliseconds."""
        self._values = shelf
        self._pack = pack_name(f"{BRIDGE}\0{key.project}\0{key.session}\0{key.subpath}")
        self._sizes: dict[str, int] = {}
        self._seen: set[str] = set()
        self._summary: dict[str, JSON] | None = None
        self._folded = 0

    def _name(self, number: int) -> str:
        return f"{self._pack}/{number:032x}"

    def look(self) -> None:
        """Take in what others wrote."""
        there = self._values.sizes(self._pack)
        new = sorted(name for name in there if self._name(self.number) <= name < self._name(LAST))
        for name, value in zip(new, self._values.read(new, there), strict=True):
            self._take(name, there[name], _Batch.of(value))

    def _take(self, name: str, size: int, batch: _Batch | None) -> None:
        self.number = int(name.rpartition("/")[2], 16) + 1
        if batch is None:
            return  # damaged: it costs itself
        self.written = max(self.written, batch.at)
        if batch.entries is None:
            self.batches, self._seen = [], set()
            self._summary, self._folded = None, 0
            return
        self.batches.append(name)
        self._sizes[name] = size
        self._seen.update(uuid for entry in batch.entries if (uuid := uuid_of(entry)))

    def append(self, entries: list[JSON], now: int) -> None:
        if not self.number:
            self.look()
        for _ in range(TRIES):
            new = self._new(entries)
            if not new or self._put(new, now):
                return
            self.look()
        raise NotAppendable(
            f"another writer was first {TRIES:,} times", hint="nothing was appended; try again"
        )

    def _new(self, entries: list[JSON]) -> list[JSON]:
        """Return the entries that are not there yet."""
        seen, new = set[str](), list[JSON]()
        for entry in entries:
            uuid = uuid_of(entry)
            if uuid is None:
                new.append(entry)
            elif uuid not in self._seen and uuid not in seen:
                seen.add(uuid)
                new.append(entry)
        return new

    def _put(self, entries: list[JSON] | None, now: int) -> bool:
        """Write the next object; False when somebody else has written it."""
        batch, name = _Batch(secrets.token_hex(8), now, entries), self._name(self.number)
        size = self._values.put(name, {"by": batch.by, "at": batch.at, "entries": batch.entries})
        if size is not None:
            self._take(name, size, batch)
        return size is not None

    def delete(self, now: int) -> None:
        for _ in range(TRIES):
            self.look()
            if not self.batches or self._put(None, now):
                return

    def entries(self, first: int = 0) -> list[JSON]:
        """Return the entries of the batches that count."""
        batches = map(_Batch.of, self._values.read(self.batches[first:], self._sizes))
        return [entry for batch in batches if batch is not None for entry in batch.entries or ()]

    def summary(self) -> dict[str, JSON]:
        """The SDK's own fold over the entries, those that came since the last time added."""
        if self._folded < len(self.batches):
            self._summary = fold_summary(self.key, self._summary, self.entries(self._folded))
            self._folded = len(self.batches)
        return {**(self._summary or {}), "mtime": self.written}


class _Values:
    """A shelf of JSON values."""

    def __init__(self, shelf: BlobBackend) -> None:
        self._values = shelf
        self._pool = ThreadPoolExecutor(MAX_UPLOADS, "thence-shared") if shelf.parallel else None

    def put(self, name: str, value: JSON) -> int | None:
        """Keep a value and give its size; None when something else has its name."""
        written = codec.dump(value)
        if len(written) > MAX_PAYLOAD_BYTES:
            raise NotAppendable(
                f"a batch of {len(written):,} bytes is too large",
                hint=f"append less than {MAX_PAYLOAD_BYTES >> 20} MB at a time",
            )
        body = zstandard.compress(written, 3)
        try:
            self._values.put(name, body)
        except BackendError as error:
            size = self.sizes(name.partition("/")[0]).get(name)
            if size is None:
                raise _store_error(error) from error
            # It is there, and the answer to an earlier try may have been lost.
            return size if self._get(name, size) == body else None
        return len(body)

    def sizes(self, pack: str) -> dict[str, int]:
        """Return the names in a pack, and their sizes."""
        try:
            return self._values.sizes(f"{pack}/")
        except BackendError as error:
            raise _store_error(error) from error

    def _get(self, name: str, size: int) -> bytes:
        try:
            return self._values.get(name, 0, size)
        except ObjectAbsent:  # removed by another machine since it was listed
            return b""
        except BackendError as error:
            raise _store_error(error) from error

    def read(self, names: Sequence[str], sizes: Mapping[str, int]) -> list[JSON]:
        """Read values; None for one that is damaged or gone."""

        def read_value(name: str) -> JSON:
            data = self._get(name, sizes[name])
            try:
                return read(unpack_frame(data))
            except (ValueError, StopIteration):
                # Torn or foreign: as if it had not been written.
                return None

        if self._pool is None or len(names) < 2:
            return [read_value(name) for name in names]
        return list(self._pool.map(read_value, names))

    def close(self) -> None:
        """Let go of the threads."""
        if self._pool is not None:
            self._pool.shutdown()


def _project(project: str) -> str:
    return pack_name(f"{BRIDGE}\0{project}")


def _store_error(error: BackendError) -> ThenceError:
    return NotAppendable(
        f"the shared store failed: {error}", hint="earlier data is safe; try again when it is back"
    )
