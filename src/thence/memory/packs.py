"""Payloads of sessions: one pack of zstd frames per session, appended to, evicted whole.

A pack is a run of independent zstd frames and nothing else; `zstd -dc` reads one. Small payloads
share a frame, since they compress well only together. A ref names a frame, a slice of what it
decodes to, and the checksum of that slice: `name#offset,length,start,size,crc`.

Promises, each with a test. A ref leads to the same bytes until its session is evicted or
repacked, or `read` raises: never to other bytes. Bytes are on the disk when `append` or `sync` has
returned, so rows that name them may be committed then and not before. A kill at any byte leaves
at worst a tail that no row names; it is never read, the next append goes after it, and `repack`
drops it. Files are named after a hash, never after text from elsewhere; they are regular files of
the owner alone, and no link is followed. One process writes a session at a time; others are told
that it is busy. Reading needs no lock.

What this never does: open a file that a ref does not lead to, read a row, or decide what to evict.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import re
import stat
import threading
import zlib
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import zstandard

from thence import system
from thence.errors import (
    DiskFull,
    NotAppendable,
    SessionBusy,
    ThenceError,
    is_disk_full,
    remedy,
)
from thence.memory import disk

FRAME_BYTES: Final = 64 * 1024
"""Raw bytes that are gathered into one frame; a larger payload has a frame of its own.

Whoever finds fifty events reads fifty frames: four times as large ones took four times as long,
and were 8 % smaller.
"""

MAX_PAYLOAD_BYTES: Final = 1 << 30
"""Raw bytes of the largest payload. A frame that claims more is damaged, and is not inflated."""

COMPRESSION_LEVEL: Final = 1
"""Of compression: a third quicker than the next, and 5 % larger on real sessions."""
CACHED_BYTES: Final = 8 * 1024 * 1024
"""Raw bytes of decoded frames that are kept for the next read."""

MAX_UNSYNCED_PACKS: Final = 64
"""Packs that may wait for one `sync`: each holds a handle."""

_UNPACKED_BYTES: Final = 1 << 20
"""Bytes that are unpacked at a time from a frame that does not say its size."""
_SLOTS: Final = 3
_TRIES: Final = 8
_REF = re.compile(
    r"(?P<frame>([a-z2-7]{20})-([0-2])#([0-9]{1,15}),([0-9]{1,15}))"
    r",(?P<start>[0-9]{1,10}),(?P<size>[0-9]{1,10}),(?P<crc>[0-9a-f]{8})"
)


class PackDamaged(ThenceError):
    """Bytes of a pack are not those that were written. Other frames of it may be whole."""


class FrameDamaged(ValueError):
    """A zstandard frame that does not decode, or that holds too much; the message says which."""


class PackMissing(ThenceError):
    """A ref leads to a pack that is gone: its session was evicted or repacked since."""

    exit_code = 10


class BlobStore(Protocol):
    """Where payloads lie: what a store asks of packs, or of an object store in their place.

    An object store writes one object per batch and never changes it; `sync` does nothing there,
    and `evict` deletes the objects under the session's prefix.
    """

    def append(
        self, session_uid: str, payloads: Sequence[bytes], *, sync: bool = True
    ) -> list[str]:
        """Keep payloads and give a ref for each; durable on return, or after `sync()`."""

    def sync(self) -> None:
        """Return when all that was appended is durable. If it raises, commit no row of it."""

    def read(self, ref: str) -> bytes:
        """Return the payload of a ref, verified."""

    def size(self, session_uid: str) -> int:
        """Bytes that a session takes here."""

    def evict(self, session_uid: str) -> int:
        """Delete all payloads of a session; the bytes that were freed."""

    def repack(
        self, session_uid: str, refs: Iterable[str]
    ) -> AbstractContextManager[dict[str, str]]:
        """Write a session's payloads anew, without those that no row names.

        `refs` are all that rows hold of it; yields the new ref of each. Rows are committed inside,
        durably; what is old is deleted when it ends well, and only then.
        """


class Ref(NamedTuple):
    """Where a payload lies. Its text is kept in rows, so its form never changes."""

    pack: str
    slot: int
    offset: int
    length: int
    start: int
    size: int
    crc: int

    @classmethod
    def parse(cls, text: str) -> Ref:
        """Read a ref; anything that is not exactly one of ours is refused."""
        return cls.of(_match_ref(text))

    @classmethod
    def of(cls, match: re.Match[str]) -> Ref:
        """Return the ref that was matched."""
        _, pack, *numbers, crc = match.groups()
        slot, offset, length, start, size = map(int, numbers)
        return cls(pack, slot, offset, length, start, size, int(crc, 16))

    def __str__(self) -> str:
        return (
            f"{self.pack}-{self.slot}#{self.offset},{self.length},{self.start},{self.size},"
            f"{self.crc:08x}"
        )

    @property
    def file(self) -> str:
        """Name of the file in the folder of packs."""
        return _file(self.pack, self.slot)


def _match_ref(ref: str) -> re.Match[str]:
    match = _REF.fullmatch(ref)
    if match is None:
        raise PackDamaged(
            f"not a payload ref: {ref[:80]!r}",
            hint="its row is damaged; import its source again",
        )
    return match


@lru_cache(maxsize=1024)
def pack_name(session_uid: str) -> str:
    """Name of a session's pack: 100 bits of a hash, so that no id becomes a path."""
    digest = sha256(session_uid.encode("utf-8", "surrogatepass")).digest()
    return base64.b32encode(digest)[:20].decode("ascii").lower()


def short_ref(ref: str, pack: str) -> str:
    """Return a ref without the name of its pack, for rows that say whose it is.

    Refs into an object store have another form and stay as they are.
    """
    rest = ref.removeprefix(pack)
    return rest if rest.startswith("-") else ref


def full_ref(ref: str, session_uid: str) -> str:
    """Return a ref of a session's row as `read` takes it."""
    return pack_name(session_uid) + ref if ref.startswith("-") else ref


def _file(pack: str, slot: int) -> str:
    return f"{pack}-{slot}.pack"


class Frames:
    """The decoded frames that were read last, by file, inode and offset; at most so many bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._cached_bytes = 0
        self._frames: OrderedDict[tuple[str, int, int], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, int, int]) -> bytes | None:
        """Return a frame that is held."""
        with self._lock:
            frame = self._frames.get(key)
            if frame is not None:
                self._frames.move_to_end(key)
            return frame

    def put(self, key: tuple[str, int, int], frame: bytes) -> None:
        """Hold a frame, in place of those that were asked for longest ago."""
        with self._lock:
            self._forget(key)
            self._frames[key] = frame
            self._cached_bytes += len(frame)
            while self._cached_bytes > self._limit and self._frames:
                self._forget(next(iter(self._frames)))

    def drop(self, pack: str) -> None:
        """Forget a pack: what was evicted is not served from memory either."""
        with self._lock:
            for key in [key for key in self._frames if key[0].startswith(pack)]:
                self._forget(key)

    def _forget(self, key: tuple[str, int, int]) -> None:
        self._cached_bytes -= len(self._frames.pop(key, b""))


class _Writer:
    """One pack file, locked for appending until it is closed."""

    def __init__(self, handle: int, pack: str, slot: int) -> None:
        self.handle = handle
        self.batches = 0
        self.file = _file(pack, slot)
        self._pack = pack
        self._slot = slot
        self._end = os.fstat(handle).st_size

    def write(self, payloads: Iterable[bytes]) -> Iterator[str]:
        """Append frames and give refs; a failed one is cut off again, as no row can name it."""
        self.batches += 1
        for group in groups(payloads):
            frame = compressor().compress(b"".join(group))
            offset, start = self._end, 0
            self._append(frame)
            for payload in group:
                size, crc = len(payload), zlib.crc32(payload)
                yield f"{self._pack}-{self._slot}#{offset},{len(frame)},{start},{size},{crc:08x}"
                start += size

    def _append(self, frame: bytes) -> None:
        view = memoryview(frame)
        try:
            while view:
                written = os.write(self.handle, view)
                if not written:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                view = view[written:]
            if os.fstat(self.handle).st_size != self._end + len(frame):
                raise OSError(errno.EIO, "somebody else wrote to it")
        except OSError:
            # Only to give the space back. Where it fails the tail stays, and nobody reads it.
            with contextlib.suppress(OSError):
                os.ftruncate(self.handle, self._end)
            raise
        self._end += len(frame)

    def close(self) -> None:
        # What counts was synced before; what was not is given up. Closing can harm neither.
        with contextlib.suppress(OSError):
            os.close(self.handle)


def groups(payloads: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Cut payloads into frames of about `FRAME_BYTES` raw bytes, in order."""
    group: list[bytes] = []
    group_bytes = 0
    for payload in payloads:
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise NotAppendable(
                f"a payload of {len(payload):,} bytes is over the limit of {MAX_PAYLOAD_BYTES:,}",
                hint="it is not stored; the original log still has it",
            )
        if group and group_bytes + len(payload) > FRAME_BYTES:
            yield group
            group, group_bytes = [], 0
        group.append(payload)
        group_bytes += len(payload)
    if group:
        yield group


class Packs:
    """The packs of one folder. Use from any number of threads; one process writes a session.

    A session's pack lies in one of three slots. Appends go to the highest that exists; `repack`
    writes into one that no row names, if there is one. So no byte is ever written over, and a
    kill between writing a slot and committing its refs leaves every row readable.
    """

    def __init__(self, folder: Path, *, cached: int = CACHED_BYTES) -> None:
        self.folder = folder
        self._frames = Frames(cached)
        self._lock = threading.RLock()
        self._unsynced: dict[str, _Writer] = {}
        self._entered: set[str] = set()  # files whose entry in the folder is known to be durable
        self._lost: OSError | None = None  # a sync that failed, until `sync` has told of it

    # -- writing ----------------------------------------------------------------------------

    def append(
        self, session_uid: str, payloads: Sequence[bytes], *, sync: bool = True
    ) -> list[str]:
        """Keep payloads and give a ref for each; durable on return, or after `sync()`.

        With `sync=False` the session stays locked until then, and many sessions share the wait
        for the disk. If this raises, nothing of the batch counts.
        """
        if not payloads:
            return []
        pack = pack_name(session_uid)
        with self._lock, self._translate_errors(session_uid):
            writer = self._unsynced.get(pack)
            if writer is None:
                if len(self._unsynced) >= MAX_UNSYNCED_PACKS:
                    self._sync()
                writer = self._unsynced[pack] = self._open_last(pack)
            try:
                refs = list(writer.write(payloads))
            except BaseException as error:
                self._give_up(pack, error)
                raise
            if sync:
                self._sync(session_uid=pack)
            return refs

    def sync(self) -> None:
        """Return when everything appended so far is on the disk, and unlock its sessions.

        If this raises, what was appended since the last sync must not be named by any row.
        """
        with self._lock, self._translate_errors():
            self._sync()
            if self._lost is not None:
                lost, self._lost = self._lost, None
                raise lost

    def _sync(self, session_uid: str | None = None) -> None:
        """Sync all that waits. A failure is kept for `sync` unless it is news to `told` alone."""
        waiting = list(self._unsynced.values())
        try:
            if len(waiting) > 1:
                # The kernel starts to write all of them before we wait for the first.
                for writer in waiting:
                    system.start_writing(writer.handle)
            disk.sync_data([writer.handle for writer in waiting])
            self._enter({writer.file for writer in waiting})
        except OSError as error:
            if list(self._unsynced) != [session_uid] or waiting[0].batches > 1:
                self._lost = error
            raise
        finally:
            # After a failed sync the kernel calls lost pages clean; asking again proves nothing.
            for writer in waiting:
                writer.close()
            self._unsynced.clear()

    def _give_up(self, pack: str, error: BaseException) -> None:
        """Close a pack whose write failed; earlier batches in it can no longer be vouched for."""
        writer = self._unsynced.pop(pack)
        writer.close()
        if writer.batches > 1:
            self._lost = error if isinstance(error, OSError) else OSError(errno.EIO, str(error))

    def _enter(self, files: set[str]) -> None:
        """Make sure that the folder's entries of these files are durable."""
        if not files <= self._entered:
            system.sync_folder(self.folder)
            self._entered |= files

    def _open_last(self, pack: str) -> _Writer:
        """Lock the highest slot there is, or make the first."""
        for _ in range(_TRIES):
            for slot in reversed(range(_SLOTS)):
                writer = self._lock_slot(pack, slot, make=slot == 0)
                if writer is not None:
                    return writer
        raise BlockingIOError(errno.EAGAIN, "it is evicted again and again")

    def _lock_slot(self, pack: str, slot: int, *, make: bool = False) -> _Writer | None:
        """Open and lock a slot; None when there is none, or when it went while we locked it."""
        if make:
            _make_folder(self.folder)
        try:
            path = self.folder / _file(pack, slot)
            handle = system.open_file(path, os.O_WRONLY | os.O_APPEND | (os.O_CREAT if make else 0))
        except FileNotFoundError:
            return None
        try:
            if not system.try_lock(handle):
                raise BlockingIOError(errno.EAGAIN, "another process writes it")
            here = os.fstat(handle)
            if not stat.S_ISREG(here.st_mode):
                raise OSError(errno.EINVAL, "is not a regular file")
            if here.st_nlink:
                system.make_private(handle)
                return _Writer(handle, pack, slot)
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        return None

    # -- reading ----------------------------------------------------------------------------

    def read(self, ref: str) -> bytes:
        """Return the payload of a ref, verified; raise when it is gone or damaged."""
        [payload] = self.read_all([ref])
        return payload

    def read_all(self, refs: Iterable[str]) -> Iterator[bytes]:
        """Yield the payloads of refs, one by one; those that lie together are read together."""
        file, handle, last, frame = "", -1, "", b""
        try:
            for ref in refs:
                match = _match_ref(ref)
                if match["frame"] != last:
                    where = Ref.of(match)
                    if where.file != file:
                        if handle >= 0:
                            os.close(handle)
                        # Opened even when a frame is held: the evicted is not served from memory.
                        file, handle = where.file, -1
                        handle = self._open_pack(where)
                    last, frame = match["frame"], self._frame(handle, where)
                start, size = int(match["start"]), int(match["size"])
                payload = frame[start : start + size]
                # A frame has a checksum of its own; this covers the ref, and a name used again.
                if len(payload) != size or zlib.crc32(payload) != int(match["crc"], 16):
                    raise self._damage_error(Ref.parse(ref), "holds other bytes there")
                yield payload
        finally:
            if handle >= 0:
                os.close(handle)

    def _open_pack(self, where: Ref) -> int:
        try:
            return system.open_file(f"{self.folder}/{where.file}", os.O_RDONLY)
        except FileNotFoundError as error:
            raise PackMissing(
                f"the pack {where.file} is gone",
                hint="it was removed or repacked meanwhile; try again, or run thence doctor",
            ) from error
        except OSError as error:
            raise self._damage_error(where, f"cannot be read: {error.strerror or error}") from error

    def _frame(self, handle: int, where: Ref) -> bytes:
        try:
            here = os.fstat(handle)
            if not stat.S_ISREG(here.st_mode):
                raise self._damage_error(where, "is not a regular file")
            key = where.file, here.st_ino, where.offset
            frame = self._frames.get(key)
            if frame is None:
                if where.offset + where.length > here.st_size:
                    raise self._damage_error(where, "is shorter than it was")
                frame = self._decode(handle, where)
                self._frames.put(key, frame)
        except OSError as error:
            raise self._damage_error(where, f"cannot be read: {error.strerror or error}") from error
        return frame

    def _decode(self, handle: int, where: Ref) -> bytes:
        try:
            return unpack_frame(_pread(handle, where.length, where.offset))
        except FrameDamaged as error:
            raise self._damage_error(where, str(error)) from error

    def _damage_error(self, where: Ref, why: str) -> PackDamaged:
        return PackDamaged(
            f"the pack {where.file} is damaged at byte {where.offset:,}: it {why}",
            hint="thence doctor --deep --mend restores it from its source; other sessions are not"
            " affected",
        )

    # -- keeping ----------------------------------------------------------------------------

    def size(self, session_uid: str) -> int:
        """Bytes that a session takes here, tails that no row names included."""
        pack = pack_name(session_uid)
        return sum(self._size(_file(pack, slot)) for slot in range(_SLOTS))

    def _size(self, name: str) -> int:
        try:
            return (self.folder / name).lstat().st_size
        except FileNotFoundError:  # nothing of it was written yet
            return 0

    def evict(self, session_uid: str) -> int:
        """Delete all payloads of a session for good; the bytes that were freed.

        Rows and index entries that name them go first: they would lead nowhere.
        """
        pack = pack_name(session_uid)
        with self._lock, self._translate_errors(session_uid):
            self._sync()
            with self._all_slots(pack) as slots:
                freed = self._unlink(pack, slots.keys())
            self._frames.drop(pack)
            return freed

    @contextlib.contextmanager
    def repack(self, session_uid: str, refs: Iterable[str]) -> Iterator[dict[str, str]]:
        """Write a session's payloads anew, in full frames and without tails that nobody names.

        `refs` are all that rows hold of the session. Yields the new ref of each. Commit the rows
        inside the `with`, durably: when it ends well, the old bytes are deleted. When it raises
        nothing is, since the rows may be committed or not; the next repack is told which. The
        session is locked meanwhile; both sets can be read.
        """
        pack = pack_name(session_uid)
        wanted = sorted({Ref.parse(ref) for ref in refs})
        if any(ref.pack != pack for ref in wanted):
            raise ValueError("a ref of another session")
        named = {ref.slot for ref in wanted}
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._lock)
            with self._translate_errors(session_uid):
                self._sync()
                slots = stack.enter_context(self._all_slots(pack))
                # What a repack that was cut short left behind: no row names it.
                self._unlink(pack, slots.keys() - named)
                # Where kills have left rows in every slot, all of them gather in the last.
                target = next((n for n in range(_SLOTS) if n not in named), _SLOTS - 1)
                renamed = self._gather(pack, target, wanted, slots)
            yield renamed
            with self._translate_errors(session_uid):
                self._unlink(pack, named - {target})
            self._frames.drop(pack)

    def _gather(
        self, pack: str, target: int, wanted: Sequence[Ref], slots: Mapping[int, _Writer]
    ) -> dict[str, str]:
        """Write what lies in other slots into this one; the new ref of each, old ones included."""
        renamed = {str(ref): str(ref) for ref in wanted}
        moving = [ref for ref in wanted if ref.slot != target]
        if not moving:
            return renamed
        target_slot = slots.get(target) if len(moving) < len(wanted) else None
        writer = target_slot or self._lock_slot(pack, target, make=True)
        if writer is None:
            raise BlockingIOError(errno.EAGAIN, "its new slot was taken")
        try:
            payloads = self.read_all(map(str, moving))
            written = writer.write(payloads)
            renamed |= {str(old): new for old, new in zip(moving, written, strict=True)}
            system.sync_data(writer.handle)
            self._enter({writer.file})
        except BaseException:
            if target_slot is None:
                self._unlink(pack, {target})
            raise
        finally:
            if target_slot is None:
                writer.close()
        return renamed

    @contextlib.contextmanager
    def _all_slots(self, pack: str) -> Iterator[dict[int, _Writer]]:
        """Lock every slot that a session has."""
        with contextlib.ExitStack() as stack:
            slots = {}
            for slot in range(_SLOTS):
                writer = self._lock_slot(pack, slot)
                if writer is not None:
                    stack.callback(writer.close)
                    slots[slot] = writer
            yield slots

    def _unlink(self, pack: str, slots: Collection[int]) -> int:
        freed = 0
        for name in [_file(pack, slot) for slot in slots]:
            freed += self._size(name)
            (self.folder / name).unlink(missing_ok=True)
            self._entered.discard(name)
        if slots:
            system.sync_folder(self.folder)
        return freed

    @contextlib.contextmanager
    def _translate_errors(self, session_uid: str | None = None) -> Iterator[None]:
        """Turn what the system says into what the user can do."""
        what = "the packs" if session_uid is None else f"the pack of {session_uid!r:.80}"
        try:
            yield
        except BlockingIOError as error:
            raise SessionBusy(
                f"{what} cannot be written: another process is writing it",
                hint="wait for the other sweep to end, then try again",
            ) from error
        except OSError as error:
            if is_disk_full(error):
                raise DiskFull(f"{what} cannot be written") from error
            raise NotAppendable(
                f"{what} cannot be written: {error.strerror or error}",
                hint=f"no stored data was changed; {remedy(error)}, then run thence sweep",
            ) from error


def size_in(ref: str) -> int:
    """Return the bytes of the payload that a ref leads to, as the ref itself says."""
    return int(ref.rsplit(",", 2)[1])


def read_all(blobs: BlobStore, refs: Iterable[str]) -> Iterator[bytes]:
    """Return the payloads of refs, wherever they lie, one by one."""
    return blobs.read_all(refs) if isinstance(blobs, Packs) else map(blobs.read, refs)


def read_each(blobs: BlobStore, refs: Iterable[str]) -> Iterator[tuple[str, bytes | ThenceError]]:
    """Yield each ref with its payload, or with why that cannot be read; in any order.

    What lies together is read together, and one payload at a time is held.
    """
    left = sorted(set(refs))
    while left:
        done = 0
        try:
            for payload in read_all(blobs, left):
                done += 1
                yield left[done - 1], payload
        except ThenceError as error:
            yield left[done], error
            done += 1
        left = left[done:]


_LOCAL = threading.local()


def compressor() -> zstandard.ZstdCompressor:
    """Return the compressor of this thread: two threads in one would damage what they write."""
    made: zstandard.ZstdCompressor | None = getattr(_LOCAL, "compressor", None)
    if made is None:
        made = _LOCAL.compressor = zstandard.ZstdCompressor(
            level=COMPRESSION_LEVEL, write_checksum=True
        )
    return made


def unpack_frame(data: bytes, limit: int | None = None) -> bytes:
    """Return what a zstandard frame holds, of at most so many bytes; FrameDamaged otherwise.

    One that claims more is not unpacked. One that does not say its size is unpacked in pieces, and
    may be cut short: who reads such ones knows a hash of the content.
    """
    limit = MAX_PAYLOAD_BYTES if limit is None else limit
    try:
        stated = zstandard.get_frame_parameters(data).content_size
        if stated <= limit:
            return _decompressor().decompress(data, allow_extra_data=False)
        if stated != zstandard.CONTENTSIZE_UNKNOWN:
            raise FrameDamaged(f"claims {stated:,} bytes in one frame")
        out = bytearray()
        with _decompressor().stream_reader(data) as reader:
            while piece := reader.read(_UNPACKED_BYTES):
                out += piece
                if len(out) > limit:
                    raise FrameDamaged(f"unpacks to more than {limit:,} bytes")
        return bytes(out)
    except zstandard.ZstdError as error:
        raise FrameDamaged("does not decode") from error


def _decompressor() -> zstandard.ZstdDecompressor:
    """Return the decompressor of this thread: they are dear to make and not to be shared."""
    decompressor: zstandard.ZstdDecompressor | None = getattr(_LOCAL, "decompressor", None)
    if decompressor is None:
        decompressor = _LOCAL.decompressor = zstandard.ZstdDecompressor()
    return decompressor


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    system.sync_folder(folder.parent)


def _pread(handle: int, length: int, offset: int) -> bytes:
    """Read so many bytes, in as many reads as it takes; fewer only at the end of the file."""
    parts = []
    while length and (part := system.read_at(handle, length, offset)):
        parts.append(part)
        length -= len(part)
        offset += len(part)
    return b"".join(parts)
