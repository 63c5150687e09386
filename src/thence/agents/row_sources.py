"""Finding sessions that lie in one database, for the agents that keep theirs so.

A database that cannot be read now has no session to give, and is noted (`unread`): what was read of
it stays as it is. It is not asked again until somebody writes to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from thence.agents import Adapter, Batch, Cursor, File, Rows, Source, files, unread
from thence.agents.profiles import object_at
from thence.agents.unread import Unread

if TYPE_CHECKING:
    from thence.agents.sqlite_rows import Database

SIDE_FILE_SUFFIXES = ("-wal", "-shm", "-journal")
"""What SQLite adds to the name of a database for the files beside it."""

_SQLITE_MAGIC = b"SQLite format 3\0"

_Listing = tuple[list[Source], Unread | None]


class RowSources:
    """The parts of an adapter that find sessions and read them."""

    name: str
    opens: str
    """The place of what reads the rows of a session. Beside it stands `versions`."""
    pattern: str
    """Names of the databases, below a folder of the agent."""
    keys: tuple[str, ...]
    """What the rows of a session are called, by what they are for."""

    @cached_property
    def _last_listings(self) -> dict[tuple[str, str], tuple[str, _Listing]]:
        """The sessions of databases by path and root, and the stamp of the files they are from."""
        return {}

    def versions(self, database: Database) -> Iterable[tuple[str, str, float, int]]:
        """Return id, version, time and size of the sessions in a database."""
        listed: Iterable[tuple[str, str, float, int]]
        listed = object_at(f"{self.opens.partition(':')[0]}:versions")(database)
        return listed

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """Read what is new since the cursor."""
        from thence.agents.sqlite_rows import read

        return read(source, cursor, object_at(self.opens))

    def find(self, root: Path) -> Iterator[Source]:
        """Yield all sessions of the databases in a folder."""
        for path in self._databases(root):
            yield from self._sources(path, str(root))

    def _databases(self, root: Path) -> Iterator[str]:
        pattern = Path(self.pattern)
        for entry in files.entries_in(str(root / pattern.parent)):
            if not fnmatchcase(entry.name, pattern.name):
                continue
            if entry.is_symlink():
                unread.note(Unread(self.name, entry.path, unread.NOT_FOLLOWED, "link"))
            elif not entry.is_file(follow_symlinks=False):
                unread.note(Unread(self.name, entry.path, "not a regular file", "database"))
            else:
                yield entry.path

    def _sources(self, path: str, root: str) -> list[Source]:
        """Return the sessions of a database; one that nobody wrote to since is not asked again."""
        # Before it is read: what is written meanwhile is asked for the next time.
        stamp = database_stamp(path)
        last, listing = self._last_listings.get((path, root), ("", ([], None)))
        if last != stamp:
            known = unread.known(stamp, "database")
            listing = self._list_sources(path, root, stamp) if known is None else ([], known)
            if listing[1] is None or listing[1].stamp:
                self._last_listings[path, root] = stamp, listing
        sources, note = listing
        if note is not None:
            unread.note(note)
        return sources

    def _list_sources(self, path: str, root: str, stamp: str) -> _Listing:
        from thence.agents.sqlite_rows import NOT_UTF8, UnreadableError, query

        def ask(database: Database) -> tuple[list[tuple[str, str, float, int]], int]:
            database.take_undecoded()
            return sorted(self.versions(database)), database.take_undecoded()

        try:
            versions, left_out = query(path, ask)
        except UnreadableError as error:
            return [], damaged(self.name, path, str(error), "database", stamp)
        sources: list[Source] = []
        for session, version, modified, size in versions:
            sizes = (size, *(0 for _ in self.keys[1:]))  # the bytes of a session are told once
            own = tuple(
                File(path, key, rows=Rows(version, bytes_, modified, session))
                for key, bytes_ in zip(self.keys, sizes, strict=True)
            )
            sources.append(Source(self.name, session, own, root))
        note = Unread(self.name, path, NOT_UTF8, "row", left_out, stamp) if left_out else None
        return sources, note

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


def damaged(agent: str, path: str, why: str, kind: unread.Kind, stamp: str) -> Unread:
    """Return what is told of a database that cannot be read, or of a session in it."""
    from thence.agents.sqlite_rows import PASSING

    return Unread(agent, path, why, kind, stamp="" if why in PASSING else stamp)


def database_stamp(path: str) -> str:
    """Return what a database is known by, its inode included, which no writer can set back."""
    from thence.agents.sqlite_rows import stamp_of

    try:
        return f"{stamp_of(path)} {os.lstat(path).st_ctime_ns}"
    except OSError:
        return ""


def _modified_key(source: Source) -> tuple[float, str]:
    rows = source.files[0].rows
    return (rows.modified if rows is not None else 0.0, source.session)
