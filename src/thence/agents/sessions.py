"""Whole sessions straight from their files, without a store.

`load` reads one session of any agent; what it goes on from by reference is read as well, so that
its messages are complete. Ancestors are looked for in the same root only, each is read once, and
only so many: a log that names itself, or a circle of logs, costs a notice.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from thence.agents import Adapter, Batch, Cursor, Source, SourceReader, adapters
from thence.agents.profiles import toolbox
from thence.agents.row_sources import sources_at
from thence.agents.unread import Notes
from thence.errors import NotReadable, SessionNotFound
from thence.format import codec, lineage
from thence.format.facts import COPIES_OF, Base, Edge, Fact
from thence.format.nodes import PREVIOUS
from thence.format.outcomes import add_effects
from thence.format.records import Notice, Skipped
from thence.format.session_graph import AncestorFacts, SessionGraph

MAX_ANCESTORS = 32  # a chain that is longer is a cycle that somebody forged
"""How many generations of ancestors are followed."""


class LoadedSession(msgspec.Struct):
    """A session and what was found while it was read."""

    source: Source
    graph: SessionGraph
    skipped: list[Skipped]
    """Lines that could not be read; last lines that were cut short among them."""
    notices: list[Notice]
    lines: int = 0
    generations: list[Generation] = []
    """Its records as they were read, and those of the sessions it continues, youngest first."""


def load(
    path: Path,
    known: Mapping[str, Adapter] | None = None,
    uid: str | None = None,
    elsewhere: Find | None = None,
) -> LoadedSession:
    """Read the session that a file or folder belongs to, whoever wrote it.

    A database holds many: `uid` says which; without it that is the one that was written last.
    `elsewhere` returns the sessions that it continues and that do not lie beside it.
    """
    return load_source(*readable_source(path, known, uid), elsewhere)


def readable_source(
    path: Path, known: Mapping[str, Adapter] | None = None, uid: str | None = None
) -> tuple[Adapter, Source]:
    """Return the session of a path and who reads it; an error says why nobody does."""
    known = adapters() if known is None else known
    check_readable(path)
    notes = Notes()
    with notes.taken():
        match = find_source(path, known, uid)
    if match is not None:
        return match
    if notes.unread:
        raise NotReadable(f"{path} is not read: {notes.unread[0].why}", hint="thence doctor")
    if uid is not None and path.is_file():  # nothing of it is left, or of all that were in it
        raise _missing_error(uid, path)
    names = ", ".join(sorted(known)) or "no agent"
    if path.is_dir():
        raise NotReadable(
            f"a folder is not a session: {path}", hint=f"give one session file ({names})"
        )
    raise NotReadable(
        f"not a session of a known agent: {path}", hint=f"thence reads sessions of {names}"
    )


def _missing_error(uid: str, path: Path) -> SessionNotFound:
    return SessionNotFound(
        f"{uid} is no longer in {path}", hint=f"thence show {uid} shows the stored copy"
    )


def find_source(
    path: Path, known: Mapping[str, Adapter], uid: str | None = None
) -> tuple[Adapter, Source] | None:
    """Return the session of a path and who reads it; None when it is nobody's."""
    for adapter in known.values():
        source = adapter.at(path)
        is_row = source is not None and any(file.rows is not None for file in source.files)
        if is_row and uid is not None:
            beside = sources_at(adapter, path)
            source = next((other for other in beside if other.uid == uid), None)
            if source is None:
                raise _missing_error(uid, path)
        if source is not None:
            return adapter, source
    return None


def check_readable(path: Path) -> None:
    """Say why nobody will be able to read a path, where that is so."""
    try:
        status = path.lstat()
    except FileNotFoundError as error:
        raise SessionNotFound(
            f"no such file: {path}", hint="thence show --sample shows a session"
        ) from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "no path"
        raise NotReadable(f"cannot open {path}: {why}", hint="check the name") from error
    if stat.S_ISLNK(status.st_mode):
        target = os.path.realpath(path)
        raise NotReadable(f"symbolic links are not followed: {path}", hint=f"name {target}")
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise NotReadable(f"not a regular file: {path}", hint="give a session file")
    if not os.access(path, os.R_OK):
        raise NotReadable(f"permission denied: {path}", hint="check its permissions")


# -- reading --------------------------------------------------------------------------------


class Generation(msgspec.Struct):
    """One session of a lineage: its facts, and what is known of its records in other sessions."""

    uid: str
    facts: list[Fact]
    torn: bool = False
    replayed: frozenset[str] = frozenset()
    billed: frozenset[str] = frozenset()
    ties: tuple[Edge, ...] = ()
    """Ties to other sessions that no record of this one names."""

    @property
    def link(self) -> Fact | None:
        """The record that names the session this one continues; None when it continues none."""
        if all(fact.base is None for fact in self.facts):
            return None
        own = {fact.file for fact in self.facts if fact.base is None}
        for fact in self.facts:
            if fact.base is not None:
                return None if fact.base.file in own else fact
        return None


def load_source(
    adapter: Adapter,
    source: Source,
    elsewhere: Find | None = None,
    reader: SourceReader | None = None,
) -> LoadedSession:
    """Read one session, by its adapter or a `reader`, and as many ancestors as it needs."""
    events, batch = _read(reader or adapter, source)
    notices = list(batch.notices)
    own = Generation(source.uid, _claim_copied(adapter, source, events, notices), batch.torn)
    beside = _finder(adapter, source)

    def find(child: Generation, base: Base) -> Generation | None:
        return beside(child, base) or (elsewhere(child, base) if elsewhere else None)

    generations = lineage_of(own, find, notices)
    skipped = batch.skipped + _torn_lines(source, batch.cursor)
    return LoadedSession(
        source, join_generations(generations), skipped, notices, batch.lines, generations
    )


def _claim_copied(
    adapter: Adapter, source: Source, events: list[Fact], notices: list[Notice]
) -> list[Fact]:
    """Ask the owner of copied records at the start of a log which of them are its own."""
    owner = next((fact.about[COPIES_OF] for fact in events if COPIES_OF in fact.about), None)
    if not isinstance(owner, str):
        return events
    siblings = adapter.find(Path(source.root)) if source.root else iter(())
    parent = next((other for other in siblings if other.session == owner), None)
    if parent is None:
        notices.append(Notice("lineage unresolved", f"starts with copies of {owner}, not found"))
        return events
    return lineage.claim_copies(events, owner, _read(adapter, parent)[0])


Find = Callable[[Generation, Base], Generation | None]
"""Returns the session that another one names; None when it is not there."""


def _finder(adapter: Adapter, source: Source) -> Find:
    """Return what reads the sessions that lie beside one."""
    beside: list[Source] | None = None

    def find(_child: Generation, base: Base) -> Generation | None:
        nonlocal beside
        if beside is None:
            beside = list(adapter.find(Path(source.root))) if source.root else []
        ancestor = _find_ancestor(beside, base)
        if ancestor is None:
            return None
        events, batch = _read(adapter, ancestor)
        return Generation(ancestor.uid, events, batch.torn)

    return find


def lineage_of(own: Generation, find: Find, notices: list[Notice]) -> list[Generation]:
    """Return a session and those it continues, youngest first, as far as they can be read."""
    out = [own]
    while (link := out[-1].link) is not None and (base := link.base) is not None:
        wanted = base.session or base.file
        if len(out) > MAX_ANCESTORS:
            notices.append(Notice("too many ancestors", f"those of {wanted} were left out"))
            break
        ancestor = find(out[-1], base)
        if ancestor is None:
            notices.append(Notice("ancestor missing", f"continues {wanted}"))
            break
        if any(ancestor.uid == younger.uid for younger in out):
            notices.append(Notice("ancestors in a circle", f"continues {wanted}"))
            break
        if base.event is not None and all(f.node.id != base.event for f in ancestor.facts):
            notices.append(Notice("ancestor damaged", f"no event {base.event} in {wanted}"))
        out.append(ancestor)
    return out


def join_generations(generations: Sequence[Generation]) -> SessionGraph:
    """Return the youngest session of a lineage, behind those it continues."""
    above: SessionGraph | None = None
    for generation in reversed(generations):
        link = generation.link
        base = link.base if link is not None else None
        before: AncestorFacts | None = None
        origin: tuple[SessionGraph, int | None] | None = None
        if above is not None and link is not None and base is not None:
            if link.node.parent == PREVIOUS:
                origin = above, above.place_before(base)
            else:
                before = above.up_to(base)
        above = SessionGraph(
            *(generation.uid, generation.facts),
            replayed=generation.replayed,
            billed=generation.billed,
            before=before,
            origin=origin,
            torn=generation.torn,
        )
    assert above is not None  # noqa: S101 - a lineage holds at least the session itself
    return above


def read_all(reader: SourceReader, source: Source) -> tuple[list[Fact], Batch]:
    """Read all of a session as its agent tells it; the batch sums up what was found on the way."""
    events: list[Fact] = []
    total = Batch([], [], Cursor(), notices=[])
    done = False
    while not done:
        batch = reader.read(source, total.cursor)
        events += batch.events
        total.skipped += batch.skipped
        total.notices += batch.notices
        total.lines += batch.lines
        total.bytes += batch.bytes
        total.torn = batch.torn
        done = batch.done or batch.cursor == total.cursor
        total.cursor = batch.cursor
    return events, total


def _read(reader: SourceReader, source: Source) -> tuple[list[Fact], Batch]:
    """Read all of a session, with what its calls do."""
    events, total = read_all(reader, source)
    add_effects(events, toolbox().of(source.adapter))
    return events, total


def _torn_lines(source: Source, cursor: Cursor) -> list[Skipped]:
    """Tell of last lines that were cut short: no cursor passes them, so no batch tells of them."""
    marks = ((file, cursor.marks.get(file.key)) for file in source.files)
    return [
        Skipped(mark.line, mark.offset, max(mark.size - mark.offset, 0), codec.TORN, 0, file.path)
        for file, mark in marks
        if mark is not None and mark.torn
    ]


def _find_ancestor(sources: list[Source], base: Base) -> Source | None:
    """Find the session that holds a log of this name, or else has this id."""
    for source in sources:
        if any(file.key == base.file for file in source.files):
            return source
    return next((source for source in sources if source.session == base.session), None)
