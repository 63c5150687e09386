"""Payloads of sessions as objects: one per batch, written once, never changed, deleted whole.

    Objects(shelf_at("s3://bucket/prefix"))        S3, GCS, Azure, a folder, memory:

An object is what a pack is: a run of independent zstd frames and nothing else. A ref names the
object, a frame in it, a slice of what that decodes to, and the checksum of the slice:
`pack/batch#offset,length,start,size,crc`.

Promises, each with a test. A ref leads to the same bytes until its session is evicted or
repacked, or `read` raises: never to other bytes. Bytes are durable when `append` or `sync` has
returned. No object is ever written over: a batch has a name of its own, drawn by chance, and is
put only where nothing is. A kill leaves at worst objects that no row names; `repack` and `evict`
delete them with the rest of their session. Names are hashes, never text from elsewhere.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from thence import system
from thence.errors import BadConfig, MissingPackage, NotAppendable
from thence.memory.packs import (
    CACHED_BYTES,
    FrameDamaged,
    Frames,
    PackDamaged,
    PackMissing,
    compressor,
    groups,
    pack_name,
    unpack_frame,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore

OBJECT_BYTES: Final = 32 << 20
"""Compressed bytes after which a batch goes on in another object."""

MAX_UPLOADS: Final = 8  # latency is the cost, not bandwidth
"""Objects that are on their way at a time."""

PART_BYTES: Final = 8 << 20
"""Bytes of an object that is sent in parts of as many, each tried again by itself."""

WAITING_BYTES: Final = 16 << 20
"""Bytes that wait to be put together, where that is quicker than one by one."""

_REF = re.compile(
    r"([a-z2-7]{20})/([0-9a-f]{32})#"
    r"([0-9]{1,15}),([0-9]{1,15}),([0-9]{1,10}),([0-9]{1,10}),([0-9a-f]{8})"
)


class BackendError(Exception):
    """What a shelf says when it cannot do as asked; `Objects` turns it into a sentence."""


class ObjectAbsent(BackendError):
    """Nothing has this name."""


class BlobBackend(Protocol):
    """Where objects lie. Errors are `BackendError`."""

    parallel: bool
    """Whether several threads at once are quicker than one; else many objects at once are."""

    def put(self, name: str, body: bytes) -> None:
        """Keep an object under a name that nothing has; durable on return."""

    def put_all(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """Keep several, all or none of them."""

    def get(self, name: str, start: int, length: int) -> bytes:
        """Return a part of an object."""

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the names below a prefix, and their sizes."""

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; those that are gone already do not matter."""


class ObjectRef(NamedTuple):
    """Where a payload lies. Its text is kept in rows, so its form never changes."""

    pack: str
    batch: str
    offset: int
    length: int
    start: int
    size: int
    crc: int

    @classmethod
    def parse(cls, text: str) -> ObjectRef:
        """Read a ref; anything that is not exactly one of ours is refused."""
        match = _REF.fullmatch(text)
        if match is None:
            raise PackDamaged(
                f"not a ref to an object: {text[:80]!r}",
                hint="its row is damaged, or its payload is in another store; import its source"
                " again",
            )
        pack, batch, *numbers, crc = match.groups()
        offset, length, start, size = map(int, numbers)
        return cls(pack, batch, offset, length, start, size, int(crc, 16))

    def __str__(self) -> str:
        return f"{self.name}#{self.offset},{self.length},{self.start},{self.size},{self.crc:08x}"

    @property
    def name(self) -> str:
        """Name of the object."""
        return f"{self.pack}/{self.batch}"


class Objects:
    """Payloads on a shelf. Use from any number of threads and processes.

    Several tenants may share a shelf: the name of a session's objects then holds its tenant too.
    Objects of older programs are named after the session alone; they are read where refs lead to
    them, and deleted by their names (`delete`), never by what their names begin with.
    """

    def __init__(
        self, shelf: BlobBackend, *, tenant: str | None = None, cached: int = CACHED_BYTES
    ) -> None:
        self.shelf = shelf
        self.tenant = tenant
        self._frames = Frames(cached)
        self._pool: ThreadPoolExecutor | None = None
        self._sent: deque[Future[None]] = deque()
        self._waiting: dict[str, bytes] = {}
        self._waits = 0

    # -- writing ----------------------------------------------------------------------------

    def append(
        self, session_uid: str, payloads: Sequence[bytes], *, sync: bool = True
    ) -> list[str]:
        """Keep payloads and give a ref for each; durable on return, or after `sync()`."""
        refs: list[str] = []
        for name, body, named in self._objects(self.pack_of(session_uid), payloads):
            self._send(name, body, wait=sync)
            refs += map(str, named)
        return refs

    def _objects(
        self, pack: str, payloads: Iterable[bytes]
    ) -> Iterator[tuple[str, bytes, list[ObjectRef]]]:
        """Put payloads into frames, and frames into objects of bounded size."""
        batch, body, refs = secrets.token_hex(16), bytearray(), list[ObjectRef]()
        for group in groups(payloads):
            frame = compressor().compress(b"".join(group))
            if body and len(body) + len(frame) > OBJECT_BYTES:
                yield f"{pack}/{batch}", bytes(body), refs
                batch, body, refs = secrets.token_hex(16), bytearray(), []
            start = 0
            for payload in group:
                size, crc = len(payload), zlib.crc32(payload)
                refs.append(ObjectRef(pack, batch, len(body), len(frame), start, size, crc))
                start += size
            body += frame
        if body:
            yield f"{pack}/{batch}", bytes(body), refs

    def _send(self, name: str, body: bytes, *, wait: bool) -> None:
        if wait:
            with _translate_errors():
                self.shelf.put(name, body)
            return
        if not self.shelf.parallel:
            self._waiting[name] = body
            self._waits += len(body)
            if self._waits >= WAITING_BYTES:
                self._put_waiting()
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(MAX_UPLOADS, thread_name_prefix="thence-objects")
        while len(self._sent) >= 2 * MAX_UPLOADS:
            with _translate_errors():
                self._sent[0].result()
                self._sent.popleft()
        self._sent.append(self._pool.submit(self.shelf.put, name, body))

    def _put_waiting(self) -> None:
        with _translate_errors():
            self.shelf.put_all(list(self._waiting.items()))
        self.take_waiting()

    def take_waiting(self) -> list[tuple[str, bytes]]:
        """Return what waits to be put, to whoever does that together with the rows that name it."""
        taken, self._waiting, self._waits = list(self._waiting.items()), {}, 0
        return taken

    def sync(self) -> None:
        """Return when all that was appended is durable. If it raises, commit no row of it."""
        if self._waiting:
            self._put_waiting()
        sent, self._sent = self._sent, deque()
        errors = [error for future in sent if (error := future.exception()) is not None]
        if errors:
            with _translate_errors():
                raise errors[0]

    # -- reading ----------------------------------------------------------------------------

    def read(self, ref: str) -> bytes:
        """Return the payload of a ref, verified; raise when it is gone or damaged."""
        where = ObjectRef.parse(ref)
        key = where.name, 0, where.offset
        frame = self._frames.get(key)
        if frame is None:
            frame = self._decode(where)
            self._frames.put(key, frame)
        payload = frame[where.start : where.start + where.size]
        if len(payload) != where.size or zlib.crc32(payload) != where.crc:
            raise _damage_error(where, "holds other bytes there")
        return payload

    def _data(self, where: ObjectRef) -> bytes:
        """Return a frame's bytes, be they on their way still."""
        if body := self._waiting.get(where.name):
            return body[where.offset : where.offset + where.length]
        try:
            return self.shelf.get(where.name, where.offset, where.length)
        except ObjectAbsent:
            if not self._sent:
                raise
        self.sync()
        return self.shelf.get(where.name, where.offset, where.length)

    def _decode(self, where: ObjectRef) -> bytes:
        try:
            data = self._data(where)
        except ObjectAbsent as error:
            raise PackMissing(
                f"the object {where.name} is gone",
                hint="its transcript was removed or repacked meanwhile; try again",
            ) from error
        except BackendError as error:
            raise _damage_error(where, f"cannot be read: {error}") from error
        if len(data) != where.length:
            raise _damage_error(where, "is shorter than it was")
        try:
            return unpack_frame(data)
        except FrameDamaged as error:
            raise _damage_error(where, str(error)) from error

    # -- keeping ----------------------------------------------------------------------------

    def pack_of(self, session_uid: str) -> str:
        """Return the name that all objects of a session begin with."""
        return object_pack(self.tenant, session_uid)

    def size(self, session_uid: str) -> int:
        """Bytes that a session takes here, objects that no row names included.

        Where there are only objects of older programs, it is their bytes, of all tenants.
        """
        with _translate_errors():
            there = self.shelf.sizes(f"{self.pack_of(session_uid)}/")
            return sum((there or self.shelf.sizes(f"{pack_name(session_uid)}/")).values())

    def has(self, session_uid: str) -> bool:
        """Whether there are objects of a session under the names of this tenant."""
        with _translate_errors():
            return bool(self.shelf.sizes(f"{self.pack_of(session_uid)}/"))

    def evict(self, session_uid: str) -> int:
        """Delete all payloads of a session for good; the bytes that were freed."""
        self.sync()
        pack = self.pack_of(session_uid)
        with _translate_errors():
            there = self.shelf.sizes(f"{pack}/")
            self.shelf.delete(sorted(there))
        self._frames.drop(pack)
        return sum(there.values())

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects by their names; those that are gone already do not matter."""
        with _translate_errors():
            self.shelf.delete(sorted(names))
        for name in names:
            self._frames.drop(name)

    @contextlib.contextmanager
    def repack(self, session_uid: str, refs: Iterable[str]) -> Iterator[dict[str, str]]:
        """Write a session's payloads anew, without those that no row names.

        `refs` are all that rows hold of the session. Yields the new ref of each. Commit the rows
        inside the `with`, durably: when it ends well, the old objects are deleted.
        """
        self.sync()
        pack = self.pack_of(session_uid)
        wanted = sorted({ObjectRef.parse(ref) for ref in refs})
        if any(ref.pack not in (pack, pack_name(session_uid)) for ref in wanted):
            raise ValueError("a ref of another session")
        with _translate_errors():
            old = {*self.shelf.sizes(f"{pack}/"), *(ref.name for ref in wanted)}
        new: list[ObjectRef] = []
        for name, body, named in self._objects(pack, (self.read(str(ref)) for ref in wanted)):
            self._send(name, body, wait=True)
            new += named
        yield {str(before): str(after) for before, after in zip(wanted, new, strict=True)}
        self.delete(sorted(old))

    def close(self) -> None:
        """Wait for what is on its way, and let go of the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def object_pack(tenant: str | None, session_uid: str) -> str:
    """Return the name that the objects of a session of a tenant begin with."""
    return pack_name(session_uid if tenant is None else f"{tenant}\0{session_uid}")


def _damage_error(where: ObjectRef, why: str) -> PackDamaged:
    return PackDamaged(
        f"the object {where.name} is damaged at byte {where.offset:,}: it {why}",
        hint="thence doctor --deep --mend restores it from its source; others are not affected",
    )


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    """Turn what a shelf says into what the user can do."""
    try:
        yield
    except (BackendError, OSError) as error:
        raise NotAppendable(
            f"the object store failed: {error}",
            hint="no stored data was changed; check session_memory.objects, then run thence sweep",
        ) from error


# -- shelves --------------------------------------------------------------------------------


class Bucket:
    """A shelf of obstore: S3, GCS, Azure, a folder, or memory."""

    parallel = True

    def __init__(self, store: ObjectStore, folder: Path | None = None) -> None:
        import obstore
        from obstore import exceptions

        self._do: Any = obstore
        self._store = store
        self._folder = folder
        self._errors: tuple[type[Exception], ...] = (exceptions.BaseError, OSError)
        self._there = exceptions.AlreadyExistsError
        self._absent = (exceptions.NotFoundError, FileNotFoundError)

    def put(self, name: str, body: bytes) -> None:
        """Keep an object under a name that nothing has; durable on return."""
        with self._translate_errors():
            try:
                if len(body) > PART_BYTES and self._folder is None:
                    self._put_in_parts(name, body)
                else:
                    self._do.put(self._store, name, body, mode="create")
            except self._there:
                # The answer to an earlier try was lost; nobody else draws this name.
                if self.get(name, 0, len(body) + 1) != body:
                    raise
            if self._folder is not None:
                _settle(self._folder / name)

    def _put_in_parts(self, name: str, body: bytes) -> None:
        """Send a large object; whether its name is taken cannot be asked with the last part."""
        try:
            self._do.head(self._store, name)
        except self._absent:
            self._do.put(self._store, name, body, use_multipart=True, chunk_size=PART_BYTES)
        else:
            raise self._there(name)

    def put_all(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """Keep several; a store of objects knows no more than one at a time."""
        for name, body in objects:
            self.put(name, body)

    def get(self, name: str, start: int, length: int) -> bytes:
        """Return a part of an object."""
        with self._translate_errors():
            return bytes(self._do.get_range(self._store, name, start=start, length=length))

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the names below a prefix, and their sizes."""
        with self._translate_errors():
            return {
                entry["path"]: entry["size"]
                for chunk in self._do.list(self._store, prefix=prefix)
                for entry in chunk
            }

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; those that are gone already do not matter."""
        try:
            with self._translate_errors():
                self._do.delete(self._store, list(names))
        except ObjectAbsent:  # one of them, and nobody says which of the others went
            for name in names:
                # Deleted by another machine: as wanted.
                with contextlib.suppress(ObjectAbsent), self._translate_errors():
                    self._do.delete(self._store, name)

    # -- whole files, for exports -----------------------------------------------------------

    def read_versioned(self, name: str) -> tuple[bytes, str | None]:
        """Return all of an object, and the tag by which to know whether it changed."""
        with self._translate_errors():
            result = self._do.get(self._store, name)
            return bytes(result.bytes()), result.meta.get("e_tag")

    def fetch(self, name: str, path: Path) -> None:
        """Write an object into a file, piece by piece."""
        with self._translate_errors():
            result = self._do.get(self._store, name)
            with path.open("wb") as file:
                for piece in result.stream(min_chunk_size=1 << 20):
                    file.write(piece)

    def send(self, path: Path, name: str) -> None:
        """Keep a file under a name that only its own bytes can have; in parts where it is large."""
        with self._translate_errors():
            self._do.put(self._store, name, path)

    def swap(self, name: str, body: bytes, tag: str | None) -> bool:
        """Replace an object that still has a tag, or is not there if None; else do nothing.

        Where the store cannot compare, it is looked at once more before.
        """
        from obstore import exceptions

        mode: Any = "create" if tag is None else {"e_tag": tag}
        with self._translate_errors():
            try:
                self._do.put(self._store, name, body, mode=mode)
            except (self._there, exceptions.PreconditionError):
                # Somebody else wrote first: read theirs, then decide anew.
                return False
            except (exceptions.NotSupportedError, NotImplementedError):
                try:
                    now = self._do.head(self._store, name).get("e_tag")
                except self._absent:
                    now = None
                if now != tag:
                    return False
                self._do.put(self._store, name, body)
        return True

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except self._absent as error:
            raise ObjectAbsent(str(error)) from error
        except self._errors as error:
            raise BackendError(str(error).partition("\n")[0][:300]) from error


def open_objects(url: str, *, tenant: str | None = None) -> Objects:
    """Return payloads that lie in the object store at an address."""
    return Objects(shelf_at(url), tenant=tenant)


def shelf_at(url: str) -> Bucket:
    """Open the object store at an address; credentials come from where its own tools look."""
    try:
        from obstore import exceptions
        from obstore.store import LocalStore, MemoryStore, from_url
    except ImportError as error:
        raise MissingPackage(url, error.name, extra="objects") from error
    parts = urlsplit(url)
    if parts.scheme == "memory":
        return Bucket(MemoryStore())
    if parts.scheme in ("", "file"):
        folder = Path(unquote(parts.path)).expanduser().absolute()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Bucket(LocalStore(folder), folder)
    # S3 compares what arrives with a hash; the others are sent one by themselves.
    config: Any = {"checksum_algorithm": "sha256"} if parts.scheme in ("s3", "s3a") else None
    try:
        return Bucket(from_url(url, config=config))
    except (exceptions.BaseError, ValueError) as error:
        raise BadConfig(
            f"no object store found at {url}: {error}",
            hint="s3://bucket/prefix, gs://…, az://…, or file:///a/folder",
        ) from error


def _settle(path: Path) -> None:
    """Wait until a file, and its name in the folders above it, are on the disk."""
    system.sync_file(path)
    for folder in (path.parent, path.parent.parent):
        system.sync_folder(folder)
