"""Finding sessions that lie in one database, for the agents that keep theirs so.

A database that cannot be read now has no session to give, and is noted in `files.UNREADABLE`: what
was read of it stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from thence.agents import Adapter, File, Rows, Source, files

SIDE_FILE_SUFFIXES = ("-wal", "-shm", "-journal")
"""What SQLite adds to the name of a database for the files beside it."""

_SQLITE_MAGIC = b"SQLite format 3\0"

_last_listings: dict[tuple[str, str, str], tuple[str, list[Source]]] = {}
"""The sessions of databases by agent, path and root, and the stamp of the files they are from."""


class RowSources:
    """The parts of an adapter that find sessions; `versions` says what a database holds."""

    name: str
    pattern: str
    """Names of the databases, below a folder of the agent."""
    keys: tuple[str, ...]
    """What the rows of a session are called, by what they are for."""

    def versions(self, path: str) -> Iterator[tuple[str, str, float, int]]:
        """Yield id, version, time and size of the sessions in a database."""
        raise NotImplementedError

    def find(self, root: Path) -> Iterator[Source]:
        """Yield all sessions of the databases in a folder."""
        for path in self._databases(root):
            yield from self._sources(path, str(root))

    def _databases(self, root: Path) -> list[str]:
        try:
            paths = sorted(root.glob(self.pattern))
        except (OSError, ValueError):
            return []
        return [str(path) for path in paths if path.is_file() and not path.is_symlink()]

    def _sources(self, path: str, root: str) -> list[Source]:
        """Return the sessions of a database; one that nobody wrote to since is not asked again."""
        from thence.agents.sqlite_rows import UnreadableError, stamp_of

        try:
            # Before it is read: what is written meanwhile is asked for the next time.
            stamp = f"{stamp_of(path)} {_changed_ns(path)}"
            place = self.name, path, root
            if place not in _last_listings or _last_listings[place][0] != stamp:
                _last_listings[place] = stamp, list(self._list_sources(path, root))
            return _last_listings[place][1]
        except UnreadableError as error:
            files.UNREADABLE[path] = str(error)
            return []

    def _list_sources(self, path: str, root: str) -> Iterator[Source]:
        for session, version, modified, size in sorted(self.versions(path)):
            sizes = (size, *(0 for _ in self.keys[1:]))  # the bytes of a session are told once
            own = tuple(
                File(path, key, rows=Rows(version, bytes_, modified))
                for key, bytes_ in zip(self.keys, sizes, strict=True)
            )
            yield Source(self.name, session, own, root)

    def at(self, path: Path) -> Source | None:
        """Return the session of a database that was written last."""
        sources = self.sources_at(path)
        return max(sources, key=_modified_key) if sources else None

    def sources_at(self, path: Path) -> list[Source]:
        """Return all sessions of a database, named by itself or by a file beside it."""
        path = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links
        for end in SIDE_FILE_SUFFIXES:
            path = path.with_name(path.name.removesuffix(end))
        if not path.match(self.pattern) or path.is_symlink() or not path.is_file():
            return []
        if files.start_of(str(path), len(_SQLITE_MAGIC)) != _SQLITE_MAGIC:
            return []
        above = path.parents[self.pattern.count("/")]
        return self._sources(str(path), str(above))


def sources_at(adapter: Adapter, path: Path) -> list[Source]:
    """Return the sessions that a file belongs to: a database holds many."""
    ask = getattr(adapter, "sources_at", None)
    if ask is not None:
        return list(ask(path))
    source = adapter.at(path)
    return [source] if source is not None else []


def _changed_ns(path: str) -> int:
    """Return when the inode of a file changed last, which no writer can set back."""
    try:
        return os.lstat(path).st_ctime_ns
    except OSError:
        return 0


def _modified_key(source: Source) -> tuple[float, str]:
    rows = source.files[0].rows
    return (rows.modified if rows is not None else 0.0, source.session)
