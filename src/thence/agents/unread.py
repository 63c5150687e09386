"""What is found of an agent and not read: one list, which every screen and report reads.

Whoever looks for sessions takes notes (`looks.Look`). The reader of an agent notes what it comes
upon and cannot read (`note`): a damaged database, a locked folder, a link. A damaged database has
a stamp, by which a later look knows it again without opening it.

Nothing here says that all is read: whoever says so has looked, and has an empty list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Literal

import msgspec

from thence.format.figures import several
from thence.format.records import JSON

Kind = Literal["database", "row", "session", "older", "link", "folder", "file"]

NOT_FOLLOWED: Final = "links are not followed"
_NOUNS: Final[dict[Kind, str]] = {"older": "session"}
"""What is counted, where the kind does not say it."""
FAULTS: Final[tuple[Kind, ...]] = ("database", "session", "folder")
"""Kinds that should be read and cannot be: a sweep that meets one has failed at it."""


class Unread(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """Something that was found and is not read."""

    agent: str
    path: str
    """The file, or for several the folder that they lie in."""
    why: str
    """Why not; of older sessions, which versions wrote them."""
    kind: Kind
    count: int = 1
    stamp: str = ""
    """What a damaged database is known by as long as nobody writes to it."""

    @property
    def noun(self) -> str:
        """What is counted."""
        return _NOUNS.get(self.kind, self.kind)


def grouped(items: Iterable[Unread]) -> list[list[Unread]]:
    """Return the same, sorted, by what is told in one line: of one agent, for one reason."""
    groups: dict[tuple[str, str, str], list[Unread]] = {}
    for item in sorted(items):
        groups.setdefault((item.agent, item.kind, item.why), []).append(item)
    return list(groups.values())


def words(group: Sequence[Unread]) -> str:
    """Say how many of what are not read, and why."""
    number, first = sum(item.count for item in group), group[0]
    many, are = several(number, first.noun), "is" if number == 1 else "are"
    if first.kind == "older":
        return f"{many} of {first.why} {are} not read"
    return f"{many} {are} not read: {first.why}"


def total_of(items: Iterable[Unread]) -> str:
    """Say how many of what are not read: "25 sessions and 1 database"."""
    counts: dict[str, int] = {}
    for item in items:
        counts[item.noun] = counts.get(item.noun, 0) + item.count
    parts = [several(number, noun) for noun, number in counts.items()]
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1]))) if parts else ""


def as_objects(items: Iterable[Unread]) -> list[JSON]:
    """Return things under the names of every answer in JSON."""
    return [
        {
            "agent": item.agent,
            "kind": item.kind,
            "count": item.count,
            "why": item.why,
            "path": item.path,
        }
        for item in items
    ]


class Notes:
    """What is noted while somebody looks, and what is remembered of an earlier look."""

    def __init__(self, remembered: Iterable[Unread] = ()) -> None:
        """Begin; what is `remembered` of damaged databases is not looked at again."""
        self.agent = ""
        """Whose sessions are looked for now."""
        self._remembered = {(item.stamp, item.kind): item for item in remembered if item.stamp}
        self._noted: dict[tuple[str, str, str, str], Unread] = {}

    def add(self, items: Iterable[Unread]) -> None:
        """Note things; one that was noted counts once, each session of a database by itself."""
        for item in items:
            named = item if item.agent else msgspec.structs.replace(item, agent=self.agent)
            key = named.agent, named.path, named.kind, named.why
            if named.kind == "session" and key in self._noted:
                more = self._noted[key].count + named.count
                named = msgspec.structs.replace(named, count=more)
            self._noted[key] = named

    def known(self, stamp: str, kind: Kind) -> Unread | None:
        """Return what is remembered of a database that nobody wrote to since; None if nothing."""
        return self._remembered.get((stamp, kind)) if stamp else None

    @property
    def unread(self) -> list[Unread]:
        """What is not read, sorted."""
        return sorted(self._noted.values())

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Let readers note here what they come upon meanwhile."""
        token = _notes.set(self)
        try:
            yield
        finally:
            _notes.reset(token)


_notes: ContextVar[Notes | None] = ContextVar("notes", default=None)


def note(item: Unread) -> None:
    """Tell whoever looks now of something that is not read; without an agent it is the reader's."""
    if (notes := _notes.get()) is not None:
        notes.add([item])


def known(stamp: str, kind: Kind) -> Unread | None:
    """Return what whoever looks now remembers of a database."""
    notes = _notes.get()
    return notes.known(stamp, kind) if notes is not None else None
