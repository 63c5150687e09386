"""A disk that fails as disks do: run by T7 as a program, mounted through FUSE.

Everything is in memory, in two states: as it reads now, and as it is on the disk, which a sync
makes the same. A sync that fails drops what was not yet on the disk and succeeds the next time,
as ext4, XFS and Btrfs do. Whoever mounted it sets extended attributes on its top folder:
`user.fault` arms one fault (`sync:N`, `full:BYTES`, `slow:N:MILLISECONDS`, `none`), and
`user.lose` is a power cut: what is not on the disk is gone.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from typing import Any

from fuse import FUSE, FuseOSError, Operations

from tests.faults.warm import end_with_parent


class Inode:
    """A file: what is read, and what is on the disk."""

    def __init__(self, mode: int) -> None:
        self.mode = mode
        self.now = bytearray()
        self.kept = b""
        self.changed = time.time()


class Lossy(Operations):  # type: ignore[misc]
    """The file system. Names are durable at once: it is about contents."""

    def __init__(self) -> None:
        self.nodes: dict[str, Inode] = {"/": Inode(stat.S_IFDIR | 0o700)}
        self.syncs_left = self.writes_left = self.room = -1
        self.delay = 0.0
        self.injected = 0

    # -- faults -------------------------------------------------------------------------

    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
        """Arm a fault, or cut the power."""
        del path, options, position
        if name == "user.lose":
            for node in self.nodes.values():
                node.now[:] = node.kept
            return 0
        kind, _, rest = value.decode().partition(":")
        self.syncs_left = self.writes_left = self.room = -1
        if kind != "none":
            self.injected = 0
        if kind == "sync":
            self.syncs_left = int(rest)
        elif kind == "full":
            self.room = int(rest)
        elif kind == "slow":
            number, _, milliseconds = rest.partition(":")
            self.writes_left, self.delay = int(number), int(milliseconds) / 1000
        return 0

    def getxattr(self, path: str, name: str, position: int = 0) -> bytes:
        """Say whether the armed fault has struck."""
        del path, position
        if name != "user.injected":
            raise FuseOSError(errno.ENODATA)
        return b"%d" % self.injected

    def fsync(self, path: str, datasync: int, handle: int) -> int:
        """Bring a file to the disk, or fail and lose it."""
        del datasync, handle
        node = self._node(path)
        self.syncs_left -= self.syncs_left > 0
        if self.syncs_left == 0:
            self.syncs_left = -1
            self.injected += 1
            node.now[:] = node.kept
            raise FuseOSError(errno.EIO)
        node.kept = bytes(node.now)
        return 0

    def write(self, path: str, data: bytes, offset: int, handle: int) -> int:
        """Take bytes, fewer when the disk gets full."""
        del handle
        node = self._node(path)
        self.writes_left -= self.writes_left > 0
        if self.writes_left == 0:
            self.writes_left = -1
            self.injected += 1
            time.sleep(self.delay)
        if self.room >= 0:
            fits = data[: self.room]
            self.injected += len(fits) < len(data)
            if data and not fits:
                raise FuseOSError(errno.ENOSPC)
            data = fits
            self.room -= len(data)
        if len(node.now) < offset:
            node.now.extend(bytes(offset - len(node.now)))
        node.now[offset : offset + len(data)] = data
        node.changed = time.time()
        return len(data)

    # -- the rest -----------------------------------------------------------------------

    def _node(self, path: str) -> Inode:
        if path not in self.nodes:
            raise FuseOSError(errno.ENOENT)
        return self.nodes[path]

    def getattr(self, path: str, handle: int | None = None) -> dict[str, Any]:
        """Describe a file or folder."""
        del handle
        node = self._node(path)
        times = dict.fromkeys(("st_atime", "st_mtime", "st_ctime"), node.changed)
        owner = {"st_uid": os.getuid(), "st_gid": os.getgid(), "st_nlink": 1}
        return {"st_mode": node.mode, "st_size": len(node.now), **owner, **times}

    def create(self, path: str, mode: int, info: object = None) -> int:
        """Make an empty file."""
        del info
        self.nodes[path] = Inode(stat.S_IFREG | stat.S_IMODE(mode))
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        """Make a folder."""
        self.nodes[path] = Inode(stat.S_IFDIR | stat.S_IMODE(mode))
        return 0

    def open(self, path: str, flags: int) -> int:
        """Open."""
        if flags & os.O_TRUNC:
            self._node(path).now.clear()
        self._node(path)
        return 0

    def read(self, path: str, size: int, offset: int, handle: int) -> bytes:
        """Give bytes."""
        del handle
        return bytes(self._node(path).now[offset : offset + size])

    def readdir(self, path: str, handle: int) -> list[str]:
        """List a folder."""
        del handle
        inside = path.rstrip("/") + "/"
        names = [n[len(inside) :] for n in self.nodes if n.startswith(inside) and n != "/"]
        return [".", "..", *(name for name in names if name and "/" not in name)]

    def rename(self, old: str, new: str) -> int:
        """Move a file, or a folder and all in it."""
        self._node(old)
        for name in [n for n in self.nodes if n == old or n.startswith(f"{old}/")]:
            self.nodes[new + name[len(old) :]] = self.nodes.pop(name)
        return 0

    def unlink(self, path: str) -> int:
        """Take a file away."""
        self._node(path)
        del self.nodes[path]
        return 0

    rmdir = unlink

    def truncate(self, path: str, length: int, handle: int | None = None) -> int:
        """Cut or fill up."""
        del handle
        now = self._node(path).now
        now[:] = now[:length] + bytes(max(length - len(now), 0))
        return 0

    def chmod(self, path: str, mode: int) -> int:
        """Set the mode."""
        node = self._node(path)
        node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(mode)
        return 0

    def utimens(self, path: str, times: tuple[float, float] | None = None) -> int:
        """Set the times."""
        self._node(path).changed = times[1] if times else time.time()
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        """Say how much room there is: much."""
        del path
        return {"f_bsize": 4096, "f_frsize": 4096, "f_blocks": 1 << 20, "f_bavail": 1 << 20}

    def fsyncdir(self, path: str, datasync: int, handle: int) -> int:
        """Names are durable at once."""
        del path, datasync, handle
        return 0

    def flush(self, path: str, handle: int) -> int:
        """Nothing to do: closing makes nothing durable."""
        del path, handle
        return 0


if __name__ == "__main__":
    end_with_parent()
    FUSE(
        Lossy(),
        sys.argv[1],
        foreground=True,
        nothreads=True,
        direct_io=True,
        attr_timeout=0,
        entry_timeout=0,
    )
