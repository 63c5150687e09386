"""A file system that fails as disks do: T7 runs it as a program and mounts it through FUSE.

Everything is in memory, in two states: as it is read, and as it is on the disk; a sync makes both
equal. A failed sync drops what was not yet on the disk, and the next one succeeds, as with ext4,
XFS and Btrfs. The trial sets extended attributes on the top folder: `user.fault` sets one fault
(`sync:N`, `full:BYTES`, `slow:N:MILLISECONDS`, `none`), and `user.lose` is a power cut: what is not
on the disk is lost.
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
    """A file: its content as it is read, and as it is on the disk."""

    def __init__(self, mode: int) -> None:
        self.mode = mode
        self.content = bytearray()
        self.durable = b""
        self.modified = time.time()


class LossyFileSystem(Operations):  # type: ignore[misc]
    """The file system. Names are durable at once; only contents can be lost."""

    def __init__(self) -> None:
        self.nodes: dict[str, Inode] = {"/": Inode(stat.S_IFDIR | 0o700)}
        self.syncs_left = self.writes_left = self.free_bytes = -1
        self.delay_s = 0.0
        self.injected = 0

    # -- faults -------------------------------------------------------------------------

    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
        """Set a fault, or cut the power."""
        del path, options, position
        if name == "user.lose":
            for node in self.nodes.values():
                node.content[:] = node.durable
            return 0
        kind, _, rest = value.decode().partition(":")
        self.syncs_left = self.writes_left = self.free_bytes = -1
        if kind != "none":
            self.injected = 0
        if kind == "sync":
            self.syncs_left = int(rest)
        elif kind == "full":
            self.free_bytes = int(rest)
        elif kind == "slow":
            number, _, milliseconds = rest.partition(":")
            self.writes_left, self.delay_s = int(number), int(milliseconds) / 1000
        return 0

    def getxattr(self, path: str, name: str, position: int = 0) -> bytes:
        """Return how often the fault has struck, as digits."""
        del path, position
        if name != "user.injected":
            raise FuseOSError(errno.ENODATA)
        return b"%d" % self.injected

    def fsync(self, path: str, datasync: int, handle: int) -> int:
        """Make the content durable, or fail and lose it."""
        del datasync, handle
        node = self._node(path)
        self.syncs_left -= self.syncs_left > 0
        if self.syncs_left == 0:
            self.syncs_left = -1
            self.injected += 1
            node.content[:] = node.durable
            raise FuseOSError(errno.EIO)
        node.durable = bytes(node.content)
        return 0

    def write(self, path: str, data: bytes, offset: int, handle: int) -> int:
        """Write bytes, fewer when the disk gets full; return how many."""
        del handle
        node = self._node(path)
        self.writes_left -= self.writes_left > 0
        if self.writes_left == 0:
            self.writes_left = -1
            self.injected += 1
            time.sleep(self.delay_s)
        if self.free_bytes >= 0:
            fits = data[: self.free_bytes]
            self.injected += len(fits) < len(data)
            if data and not fits:
                raise FuseOSError(errno.ENOSPC)
            data = fits
            self.free_bytes -= len(data)
        if len(node.content) < offset:
            node.content.extend(bytes(offset - len(node.content)))
        node.content[offset : offset + len(data)] = data
        node.modified = time.time()
        return len(data)

    # -- the rest -----------------------------------------------------------------------

    def _node(self, path: str) -> Inode:
        if path not in self.nodes:
            raise FuseOSError(errno.ENOENT)
        return self.nodes[path]

    def getattr(self, path: str, handle: int | None = None) -> dict[str, Any]:
        """Return the attributes of a file or folder."""
        del handle
        node = self._node(path)
        times = dict.fromkeys(("st_atime", "st_mtime", "st_ctime"), node.modified)
        owner = {"st_uid": os.getuid(), "st_gid": os.getgid(), "st_nlink": 1}
        return {"st_mode": node.mode, "st_size": len(node.content), **owner, **times}

    def create(self, path: str, mode: int, info: object = None) -> int:
        """Create an empty file."""
        del info
        self.nodes[path] = Inode(stat.S_IFREG | stat.S_IMODE(mode))
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        """Create a folder."""
        self.nodes[path] = Inode(stat.S_IFDIR | stat.S_IMODE(mode))
        return 0

    def open(self, path: str, flags: int) -> int:
        """Open a file, and truncate it if asked."""
        if flags & os.O_TRUNC:
            self._node(path).content.clear()
        self._node(path)
        return 0

    def read(self, path: str, size: int, offset: int, handle: int) -> bytes:
        """Return bytes of a file."""
        del handle
        return bytes(self._node(path).content[offset : offset + size])

    def readdir(self, path: str, handle: int) -> list[str]:
        """Return the names in a folder."""
        del handle
        inside = path.rstrip("/") + "/"
        names = [n[len(inside) :] for n in self.nodes if n.startswith(inside) and n != "/"]
        return [".", "..", *(name for name in names if name and "/" not in name)]

    def rename(self, old: str, new: str) -> int:
        """Move a file, or a folder with its content."""
        self._node(old)
        for name in [n for n in self.nodes if n == old or n.startswith(f"{old}/")]:
            self.nodes[new + name[len(old) :]] = self.nodes.pop(name)
        return 0

    def unlink(self, path: str) -> int:
        """Remove a file."""
        self._node(path)
        del self.nodes[path]
        return 0

    rmdir = unlink

    def truncate(self, path: str, length: int, handle: int | None = None) -> int:
        """Cut a file, or extend it with zeros."""
        del handle
        content = self._node(path).content
        content[:] = content[:length] + bytes(max(length - len(content), 0))
        return 0

    def chmod(self, path: str, mode: int) -> int:
        """Set the mode."""
        node = self._node(path)
        node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(mode)
        return 0

    def utimens(self, path: str, times: tuple[float, float] | None = None) -> int:
        """Set the times."""
        self._node(path).modified = times[1] if times else time.time()
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        """Return the free space: plenty."""
        del path
        return {"f_bsize": 4096, "f_frsize": 4096, "f_blocks": 1 << 20, "f_bavail": 1 << 20}

    def fsyncdir(self, path: str, datasync: int, handle: int) -> int:
        """Do nothing: names are durable at once."""
        del path, datasync, handle
        return 0

    def flush(self, path: str, handle: int) -> int:
        """Do nothing: closing a file makes nothing durable."""
        del path, handle
        return 0


if __name__ == "__main__":
    end_with_parent()
    FUSE(
        LossyFileSystem(),
        sys.argv[1],
        foreground=True,
        nothreads=True,
        direct_io=True,
        attr_timeout=0,
        entry_timeout=0,
    )
