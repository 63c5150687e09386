"""How a file that was read is known again: by its status, and by the bytes at both ends.

A file may be renamed, copied back, touched, rewritten in place or replaced: sizes and times alone
do not tell these apart, so the first and the last bytes that were read are remembered, too.
"""

from __future__ import annotations

import contextlib
import os
from hashlib import blake2b
from zlib import crc32

import msgspec

from thence.agents import File, Mark
from thence.agents.contents import Content
from thence.format.records import JSON

EDGE_BYTES = 4096
"""Bytes by which the start and the read end of a file are known again."""

Edges = tuple[bytes, bytes]
"""The first bytes of a file, and the last ones that were read."""


class JoinedStatus(msgspec.Struct, frozen=True):
    """The status of several files that are read as one."""

    st_dev: int
    st_ino: int
    st_size: int
    st_mtime_ns: int
    st_ctime_ns: int


Status = os.stat_result | JoinedStatus


def status_of(file: File, own: os.stat_result) -> Status:
    """Return the status of a file, together with those that are read with it."""
    if not file.beside:
        return own
    statuses: list[os.stat_result] = [own]
    for path in file.beside:
        with contextlib.suppress(OSError, ValueError):
            statuses.append(os.lstat(path))
    return JoinedStatus(
        own.st_dev,
        crc32(repr([status.st_ino for status in statuses]).encode()),
        sum(status.st_size for status in statuses),
        max(status.st_mtime_ns for status in statuses),
        max(status.st_ctime_ns for status in statuses),
    )


def mark_of(status: Status, path: str, *, size: int | None = None, **known: JSON) -> Mark:
    """Return a mark of a file as it is now, and what else is known of it."""
    return Mark(
        status.st_dev,
        status.st_ino,
        status.st_size if size is None else size,
        status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
        place=_place(path),
        **known,
    )


def is_same_file(mark: Mark, status: Status, path: str) -> bool:
    """Return whether a file is the one that was read, and was not written since."""
    return (
        mark.mtime_ns == status.st_mtime_ns
        and mark.inode == status.st_ino
        and mark.size == status.st_size
        and mark.device == status.st_dev
        and (mark.ctime_ns == status.st_ctime_ns or _has_times(mark, status, path))
    )


def is_touched(mark: Mark, status: Status, path: str) -> bool:
    """Return whether a file was written since without a change of its size."""
    return (mark.inode, mark.size) == (status.st_ino, status.st_size) and not _has_times(
        mark, status, path
    )


def _has_times(mark: Mark, status: Status, path: str) -> bool:
    """Return whether a file was not written since; a writer may set the mtime, never the ctime."""
    if mark.ctime_ns != status.st_ctime_ns and mark.ctime_ns and mark.place == _place(path):
        return False
    return mark.mtime_ns == status.st_mtime_ns


def _place(path: str) -> int:
    return crc32(path.encode("utf-8", "surrogateescape"))


def is_made_at(mark: Mark, path: str) -> bool:
    """Whether a mark was made of a file that lay at a path."""
    return mark.place == _place(path)


def match_edges(mark: Mark, content: Content) -> Edges | None:
    """Return the edges of a file that begins and goes on as it did when it was read, or None."""
    end = mark.offset + mark.tail
    edge = min(end, EDGE_BYTES)
    head = content.piece(0, edge)
    anchor = content.piece(end - edge, edge)
    if len(anchor) != edge or (hash_of(head), hash_of(anchor)) != (mark.head, mark.anchor):
        return None
    if mark.tail:  # the tail is read again: the edges end before it
        least = min(mark.offset, EDGE_BYTES)
        return head[:least], content.piece(mark.offset - least, least)
    return head, anchor


def hash_of(data: bytes) -> str:
    """Return what some bytes of a file are known by; empty for none."""
    return blake2b(data, digest_size=12).hexdigest() if data else ""
