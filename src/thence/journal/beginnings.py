"""How a log begins: with its first line in it, or not at all.

It is written under a scratch name, brought to the disk, and gets its own name last, by a link,
which takes nobody's place; where the file system knows no links, by a rename under the lock of
the folder. Invariants: whatever is killed or fails, there is no file without a whole first line
under a name that counts; of several who begin one log exactly one does; only a file that was
never begun (see `segments.was_begun`) and that nobody writes is replaced.

The scratch name goes when the folder is durable. Until then a log has two names, by which who
opens it knows that it has to bring the folder to the disk first.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path

from thence.errors import NotAppendable, remedy
from thence.journal.blobs import FOLDER, READ, Scratch
from thence.journal.log import DISK, Disk
from thence.journal.segments import HEADER_BYTES, was_begun


def begin(path: Path, line: bytes, *, durable: bool = True, disk: Disk = DISK) -> bool:
    """Make a log that holds its first line; False, and nothing is changed, if there is one."""
    try:
        folder = disk.open(path.parent, FOLDER)
        try:
            with Scratch(folder, disk=disk) as scratch:
                scratch.write(line)
                scratch.finish(durable=durable)
                if not (scratch.link(path.name) or _replace(folder, path.name, scratch, disk)):
                    return False
                if durable:
                    _make_durable(folder, path.name, len(line), disk)
        finally:
            disk.close(folder)
    except OSError as error:
        raise NotAppendable(
            f"cannot begin {path.name}: {error.strerror or error}",
            hint=f"earlier data is safe; {remedy(error)}, then try again",
        ) from error
    return True


def _make_durable(folder: int, name: str, size: int, disk: Disk) -> None:
    """Sync the folder. A log that cannot be promised goes again, unless somebody goes on in it."""
    try:
        disk.fsync(folder)
    except OSError:
        with contextlib.suppress(OSError):  # the disk has failed already, and that is what is told
            handle = disk.open(name, READ, dir_fd=folder)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(handle).st_size == size:
                    os.unlink(name, dir_fd=folder)
            finally:
                disk.close(handle)
        raise


def _replace(folder: int, name: str, scratch: Scratch, disk: Disk) -> bool:
    """Put a log in the place of a file that was never begun; whether there was such a one."""
    try:
        handle = disk.open(name, READ, dir_fd=folder)
    except FileNotFoundError:  # removed a moment ago
        return scratch.link(name)
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link has the name
            return False
        raise
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        here = os.fstat(handle)
        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(here.st_mode) or here.st_ino != there.st_ino:
            return False
        if here.st_size > HEADER_BYTES or was_begun(disk.pread(handle, HEADER_BYTES, 0)):
            return False
        scratch.rename(name)
    except (BlockingIOError, FileNotFoundError):  # somebody begins it or removes it now
        return False
    finally:
        disk.close(handle)
    return True
