"""Bytes addressed by their hash: one file each, in one folder. Checkpoints and spill use it.

Promises, each with a test: a name is a SHA-256 that we took, never text from elsewhere; a file
has its name only when its bytes are whole and on the disk; the same bytes are kept once, and a
damaged copy is replaced by a whole one; what is read is verified, and what does not verify is
never called whole; files are for the owner alone, whatever the umask. No link is followed,
nothing is inflated, and no more than a block is held.

A killed writer leaves a file with a scratch name. Nobody reads it, and it is removed when it is
old and no process holds it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Self

import msgspec

from thence.errors import ThenceError, remedy
from thence.journal.log import DISK, Disk, make_folder, sync_folder

BLOCK_BYTES = 1 << 20
"""Bytes that are read, hashed and written at a time."""

LEFTOVER_AGE_S = 3600.0
"""Seconds after which a scratch file that no process holds is removed."""

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_NO_LINKS = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}

_KEY = re.compile(r"[0-9a-f]{64}")
_SCRATCH = re.compile(r"\.thence-[0-9a-f]{32}\.tmp")


def is_key(text: str) -> bool:
    """Whether a text has the form of our hashes, the only names that are ever opened."""
    return _KEY.fullmatch(text) is not None


def is_scratch(name: str) -> bool:
    """Whether a name is one that a file has before it is whole."""
    return _SCRATCH.fullmatch(name) is not None


class Blob(msgspec.Struct, frozen=True):
    """Which bytes: their SHA-256 in hex, and how many."""

    hash: str
    size: int


class Scratch:
    """A new file in an open folder that has no name to go by yet; gone unless it is settled."""

    def __init__(self, folder: int, *, disk: Disk = DISK) -> None:
        self._folder = folder
        self._disk = disk
        self._name: str | None = f".thence-{os.urandom(16).hex()}.tmp"
        self._size = 0
        self.handle = disk.open(self._name, _NEW, 0o600, dir_fd=folder)
        with contextlib.suppress(OSError):  # some file systems have no locks; age protects it, too
            fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, block: bytes) -> None:
        """Write a block whole, in as many writes as it takes."""
        view = memoryview(block)
        self._size += len(view)
        while view:
            written = self._disk.write(self.handle, view)
            if not written:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            view = view[written:]

    def settle(self, name: str, *, mode: int = 0o600) -> None:
        """Bring the bytes to the disk and give them their name, in place of what had it.

        The entry in the folder is durable once the folder has been synced.
        """
        self.finish(mode=mode)
        self.rename(name)

    def finish(self, *, mode: int = 0o600, durable: bool = True) -> None:
        """Bring the bytes to the disk, if they are to be durable, before they have a name."""
        if os.fstat(self.handle).st_size != self._size:  # a write said more than it did
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fchmod(self.handle, mode)
        if durable:
            self._disk.fsync(self.handle)

    def rename(self, name: str) -> None:
        """Take a name, in place of what had it."""
        if self._name is not None:
            os.rename(self._name, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._name = None

    def link(self, name: str) -> bool:
        """Take a name if it is free; whether it was. The scratch name goes at the end."""
        with contextlib.suppress(OSError):  # no locks here; whoever opens it must not find it held
            fcntl.flock(self.handle, fcntl.LOCK_UN)
        try:
            os.link(self._name or name, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return self._rename_to_free(name)
        return True

    def _rename_to_free(self, name: str) -> bool:
        """The same where the file system knows no links: one at a time looks, then renames."""
        with locked(self._folder):
            try:
                os.stat(name, dir_fd=self._folder, follow_symlinks=False)
            except FileNotFoundError:
                self.rename(name)
                return True
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # What was settled is synced already, and what was not is thrown away: neither the
        # closing nor the removing can harm anything by failing.
        with contextlib.suppress(OSError):
            self._disk.close(self.handle)
        if self._name is not None:
            with contextlib.suppress(OSError):  # renamed already, or nobody's any more
                os.unlink(self._name, dir_fd=self._folder)


@contextlib.contextmanager
def locked(folder: int) -> Iterator[None]:
    """Hold the lock of an open folder, for which others wait. A process that dies lets go of it."""
    fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # closing the folder lets go of it as well
            fcntl.flock(folder, fcntl.LOCK_UN)


def tidy(folder: int, *, disk: Disk = DISK) -> None:
    """Remove what killed writers left in an open folder. Only space is at stake: never fails."""
    with contextlib.suppress(OSError):  # tidying is a courtesy; the next one tries again
        oldest = time.time() - LEFTOVER_AGE_S
        names = [name for name in os.listdir(folder) if is_scratch(name)]
        for name in names:
            with contextlib.suppress(OSError):  # another process removed it, or writes it
                _remove_leftover(folder, name, oldest, disk)


def _remove_leftover(folder: int, name: str, oldest: float, disk: Disk) -> None:
    handle = disk.open(name, READ, dir_fd=folder)
    try:
        here = os.fstat(handle)
        if stat.S_ISREG(here.st_mode) and here.st_mtime < oldest:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name, dir_fd=folder)
    finally:
        disk.close(handle)


class Moving(ThenceError):
    """A file changed while it was read; what was read of it is of no use."""

    def __init__(self) -> None:
        super().__init__("it changes while it is read", hint="wait for whatever writes it")


def stamp(here: os.stat_result) -> tuple[int, ...]:
    """What tells one state of a file from the next. Not ctime: it moves with other hard links."""
    return here.st_dev, here.st_ino, here.st_size, here.st_mtime_ns


def read_blocks(handle: int, *, disk: Disk = DISK) -> Iterator[bytes]:
    """Read an open file from its start to its end."""
    at = 0
    while block := disk.pread(handle, BLOCK_BYTES, at):
        at += len(block)
        yield block


def steady(handle: int, here: os.stat_result, *, disk: Disk = DISK) -> Iterator[bytes]:
    """Read an open file of others whole, and make sure that it stood still meanwhile."""
    size = 0
    for block in read_blocks(handle, disk=disk):
        size += len(block)
        if size > here.st_size:
            raise Moving
        yield block
    after = os.fstat(handle)
    same = stamp(after) == stamp(here) and after.st_ctime_ns == here.st_ctime_ns
    if size != here.st_size or not same:
        raise Moving


class Blobs:
    """The blobs of one folder. Use from any number of threads and processes."""

    def __init__(self, folder: Path, *, suffix: str = "", disk: Disk = DISK) -> None:
        self.folder = folder
        self._suffix = suffix
        self._disk = disk
        self._tidied = False

    def add(self, blocks: Iterable[bytes]) -> Blob:
        """Keep bytes; they are durable once `sync` has returned.

        What the blocks themselves raise goes through, and leaves nothing behind.
        """
        try:
            make_folder(self.folder, disk=self._disk)
            with self._open_folder() as folder:
                if not self._tidied:
                    tidy(folder, disk=self._disk)
                    self._tidied = True
                return self._add(folder, blocks)
        except OSError as error:
            raise self._cannot_write(error) from error

    def _add(self, folder: int, blocks: Iterable[bytes]) -> Blob:
        hashed, size = sha256(), 0
        with Scratch(folder, disk=self._disk) as scratch:
            for block in blocks:
                hashed.update(block)
                size += len(block)
                scratch.write(block)
            blob = Blob(hashed.hexdigest(), size)
            if self.check(blob.hash, size) is not None:
                scratch.settle(blob.hash + self._suffix)
        return blob

    def sync(self) -> None:
        """Return when everything added so far is on the disk, names included."""
        try:
            sync_folder(self.folder, disk=self._disk)
        except OSError as error:
            raise self._cannot_write(error) from error

    def check(self, key: str, size: int | None = None) -> str | None:
        """Say why a blob cannot be had, or None when it is there and whole."""
        try:
            for _ in self.read(key, size):
                pass
        except ThenceError as error:
            return error.message
        return None

    def load(self, key: str, size: int | None = None) -> bytes:
        """Read a blob whole and verified."""
        return b"".join(self.read(key, size))

    def read(self, key: str, size: int | None = None) -> Iterator[bytes]:
        """Read a blob block by block. Nothing counts before the end is reached without an error."""
        if not is_key(key):
            raise self._cannot_read("has a name that is no hash")
        try:
            yield from self._read(key, size)
        except FileNotFoundError as error:
            raise self._cannot_read("is missing", key) from error
        except OSError as error:
            raise self._cannot_read(f"cannot be read: {error.strerror or error}", key) from error

    def _read(self, key: str, size: int | None) -> Iterator[bytes]:
        hashed = sha256()
        with self._open_folder() as folder:
            handle = self._disk.open(key + self._suffix, READ, dir_fd=folder)
            try:
                here = os.fstat(handle)
                if not stat.S_ISREG(here.st_mode):
                    raise self._cannot_read("is not a regular file", key)
                # Asked before a byte is read: a file that was blown up costs nothing.
                if size is not None and here.st_size != size:
                    raise self._cannot_read(
                        f"is damaged: {here.st_size} bytes instead of {size}", key
                    )
                for block in read_blocks(handle, disk=self._disk):
                    hashed.update(block)
                    yield block
            finally:
                self._disk.close(handle)
        if hashed.hexdigest() != key:
            raise self._cannot_read("is damaged: its bytes have another hash", key)

    @contextlib.contextmanager
    def _open_folder(self) -> Iterator[int]:
        handle = self._disk.open(self.folder, FOLDER)
        try:
            yield handle
        finally:
            self._disk.close(handle)

    def _cannot_write(self, error: OSError) -> ThenceError:
        return ThenceError(
            f"cannot write to {self.folder.name}: {error.strerror or error}",
            hint=f"nothing was changed; {remedy(error)}, then try again",
        )

    def _cannot_read(self, why: str, key: str = "") -> ThenceError:
        return ThenceError(
            f"the saved content {key[:12]}{' ' if key else ''}{why}",
            hint=f"look for it in a backup of {self.folder}; everything else is intact",
        )
