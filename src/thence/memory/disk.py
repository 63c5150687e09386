"""What a store asks of a disk beside reading and writing: that it holds, and that we are alone."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def sync(path: Path) -> None:
    """Make a file, or the entries of a folder, durable."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def locked(handle: int) -> bool:
    """Whether the lock of an open file is ours now; it is let go when the file is closed."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
