"""One session in several places: which of its files were read as what, and one read of them all.

A place is one `Source`: the files of a session as one folder of sessions holds them. The first
place keeps the names that the adapter gives to files; in every further place a name has an ending
that says which place it is (`format.copies`), so that one cursor holds the marks of all of them. A
place is known again by the paths its marks were made at. A session whose only file was moved stays
in the first place.

Invariant: a place that has not changed since it was read is not opened.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from thence.agents import Adapter, Batch, Cursor, Mark, Source, SourceReader, adapters
from thence.agents.looks import Look
from thence.agents.marks import is_made_at
from thence.format.copies import name_in, place_of
from thence.format.facts import Fact
from thence.memory import retention
from thence.memory.store import Inventory, SweepEntry
from thence.memory.stored_paths import locate, printable

if TYPE_CHECKING:
    from thence.agents.sessions import Find, LoadedSession

FIRST = ""
"""The ending of names in the first place."""


def arrange(sources: Sequence[Source], before: SweepEntry | None) -> tuple[Source, ...]:
    """Return the places of one session, the first place first, files named as its cursor does."""
    if len(sources) == 1 and (before is None or _is_first(sources[0], before.cursor.marks)):
        return (sources[0],)
    marks = before.cursor.marks if before is not None else {}
    known = sorted(set(map(place_of, marks)))
    taken: dict[str, Source] = {}
    unknown: list[Source] = []
    for source in _distinct(sources):
        place = next((p for p in known if p not in taken and _is_at(source, marks, p)), None)
        if place is None:
            unknown.append(source)
        else:
            taken[place] = source
    for source in unknown:
        may_be_first = FIRST not in taken and (before is None or _was_moved(source, before))
        taken[FIRST if may_be_first else _new_place(source, taken)] = source
    return tuple(_rename_files(taken[place], place) for place in sorted(taken))


def only_copies(inventory: Inventory) -> frozenset[str]:
    """Return the sessions that their sources can no longer give as they are stored."""
    return frozenset(
        uid
        for uid, entry in inventory.sessions.items()
        if entry.evicted is None and not _can_be_read_again(entry)
    )


def plan_removals(
    policy: retention.Policy, known: Inventory, running: Collection[str], now: datetime
) -> retention.RetentionPlan:
    """Return what goes next, and why; the disk is asked only if something has to go."""
    plan = retention.plan(policy, retention.inventory(known, running), now)
    if not plan.items:
        return plan
    inventory = retention.inventory(known, running, only_copies=only_copies(known))
    return retention.plan(policy, inventory, now)


def _can_be_read_again(known: SweepEntry) -> bool:
    """Whether the source of a session is there, and was never rewritten with less in it."""
    if known.gone or not known.path or not os.path.lexists(locate(known.path)):
        return False
    return not any(mark.generation for mark in known.cursor.marks.values())


def find_sessions(
    adapter: Adapter, roots: Iterable[Path], inventory: Inventory | None, look: Look
) -> Iterator[Source]:
    """Yield the sessions of an agent, each once, with its files in all places."""
    by_session: dict[str, list[Source]] = {}
    for root in roots:
        for source in look.find(adapter, root):
            by_session.setdefault(source.uid, []).append(source)
    stored = inventory.sessions if inventory is not None else {}
    for uid, sources in by_session.items():
        yield unite(arrange(sources, stored.get(uid)))


def are_known(source: Source, cursor: Cursor) -> bool:
    """Return whether all names of a source's files are those of files that were read."""
    marks = cursor.marks
    for file in source.files:
        if file.key not in marks:
            break
    else:
        return True
    names = set(map(name_in, marks))
    return all(file.key in names for file in source.files)


def unite(places: Sequence[Source]) -> Source:
    """Return one source with the files of all places; its path is that of the first."""
    if len(places) == 1:
        return places[0]
    files = tuple(file for place in places for file in place.files)
    return msgspec.structs.replace(places[0], files=files)


def reader_of(adapter: Adapter, places: Sequence[Source]) -> SourceReader:
    """Return what reads the one source that `unite` makes of the places."""
    if len(places) == 1 and _place_named(places[0]) == FIRST:
        return adapter
    return _PlacesReader(adapter, places)


def load_places(
    paths: Sequence[Path], uid: str, before: SweepEntry | None, elsewhere: Find | None = None
) -> LoadedSession:
    """Return a session as its logs at some paths have it, in however many places they lie."""
    from thence.agents.sessions import find_source, load_source, readable_source

    matches = (find_source(path, adapters(), uid) for path in paths)
    adapter, source = next(filter(None, matches), None) or readable_source(paths[0], uid=uid)
    sources = [source]
    own = {file.path for file in source.files}
    if others := [path for path in paths if str(path) not in own]:
        beside = (find_source(path, {adapter.name: adapter}) for path in others)
        roots = dict.fromkeys((source.root, *(match[1].root for match in beside if match)))
        places = (place for root in roots for place in adapter.find(Path(root)))
        sources = [place for place in places if place.session == source.session] or sources
    arranged = arrange(sources, before)
    return load_source(adapter, unite(arranged), elsewhere, reader_of(adapter, arranged))


class _PlacesReader:
    """Reads all places of a session with an adapter that knows of one place only."""

    def __init__(self, adapter: Adapter, places: Sequence[Source]) -> None:
        self._adapter = adapter
        self._places = places

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """Read what is new in all places since the cursor, a bounded piece at a time."""
        del source  # it is all of the places
        marks = dict(cursor.marks) if cursor is not None else {}
        out = Batch([], [], Cursor(marks), notices=[])
        for copy in self._places:
            place = _place_named(copy)
            own = {name_in(key): mark for key, mark in marks.items() if place_of(key) == place}
            batch = self._adapter.read(_rename_files(copy, FIRST), Cursor(own) if own else None)
            marks |= {name + place: mark for name, mark in batch.cursor.marks.items()}
            out.events += _facts_in(batch.events, place)
            out.skipped += batch.skipped
            out.notices += batch.notices
            out.torn |= batch.torn
            out.lines += batch.lines
            out.bytes += batch.bytes
            if not batch.done:
                out.done = False
                break
        return out


def _place_named(source: Source) -> str:
    """Return the place that the names of a source's files tell."""
    return place_of(source.files[0].key) if source.files else FIRST


def size_of_first(marks: Mapping[str, Mark]) -> int:
    """Return the bytes of the files in one place: the first of those that were read."""
    first = min(map(place_of, marks), default=FIRST)
    return sum(max(mark.size, 0) for key, mark in marks.items() if place_of(key) == first)


def _distinct(sources: Sequence[Source]) -> list[Source]:
    """Return sources, the largest first, without those whose files all belong to another one.

    A folder may be named twice, or be reached by a link.
    """
    if len(sources) == 1:
        return list(sources)
    with_stats = [(source, list(_stats(source))) for source in sources]
    with_stats.sort(key=lambda pair: -sum(status.st_size for status in pair[1]))
    known: set[tuple[int, int]] = set()
    out: list[Source] = []
    for source, stats in with_stats:
        inodes = {(status.st_dev, status.st_ino) for status in stats}
        if not out or not inodes <= known:
            out.append(source)
            known |= inodes
    return out


def _stats(source: Source) -> Iterator[os.stat_result]:
    for file in source.files:
        try:
            yield os.lstat(file.path)
        except OSError:  # gone since it was found
            continue


def _is_first(source: Source, marks: Mapping[str, Mark]) -> bool:
    """Return whether a source was read as the first place; decided by its first file."""
    if not source.files:
        return True
    file = source.files[0]
    return (mark := marks.get(file.key)) is not None and is_made_at(mark, file.path)


def _is_at(source: Source, marks: Mapping[str, Mark], place: str) -> bool:
    """Return whether marks of a place were made at the paths of a source."""
    return any(
        (mark := marks.get(file.key + place)) is not None and is_made_at(mark, file.path)
        for file in source.files
    )


def _was_moved(source: Source, before: SweepEntry) -> bool:
    """Return whether a session now lies here that lay elsewhere."""
    path = locate(before.path)
    return path == printable(source.path) or not os.path.lexists(path)


def _new_place(source: Source, taken: Mapping[str, Source]) -> str:
    path = source.path.encode("utf-8", "surrogateescape")
    number = crc32(path)
    while (place := f"//{number:08x}") in taken:
        number = (number + 1) % 2**32
    return place


def _rename_files(source: Source, place: str) -> Source:
    """Return a source whose files have the names that they have in a place."""
    if all(place_of(file.key) == place for file in source.files):
        return source
    files = tuple(
        msgspec.structs.replace(file, key=name_in(file.key) + place) for file in source.files
    )
    return msgspec.structs.replace(source, files=files)


def _facts_in(facts: list[Fact], place: str) -> list[Fact]:
    """Return facts that say which place holds them."""
    if not place:
        return facts
    return [msgspec.structs.replace(fact, file=fact.file + place) for fact in facts]


def is_deleted(source: Source) -> bool:
    """Return whether no file of a session is there any more."""
    return not any(os.path.lexists(file.path) for file in source.files)


def modified_ns(known: SweepEntry) -> int:
    """Return when the files of a stored session were changed last."""
    return max((mark.mtime_ns for mark in known.cursor.marks.values()), default=0)
