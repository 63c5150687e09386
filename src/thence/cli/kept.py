"""One session for a command that shows one: by its file or by its id, all of it or a part."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from thence.errors import NotReadable
from thence.memory.recall import loaded, place_of

if TYPE_CHECKING:
    from thence.agents.sessions import LoadedSession
    from thence.cli.page import Page
    from thence.format.readout import Readout, Record
    from thence.memory.readouts import OpenedSession

BEFORE, AFTER = 6, 10
"""Records that are shown before and after the one that is asked for."""


def named(name: str) -> LoadedSession:
    """Give the session that a path or an id means; what is there as a file is a path."""
    from thence.agents.sessions import load
    from thence.cli import wiring

    if is_path(name):
        return load(Path(name))
    with wiring.store() as store:
        return loaded(store, wiring.session(store, name))


def opened_by(name: str) -> OpenedSession:
    """Return the session that a path or an id means, by its stored events."""
    from thence.cli import wiring
    from thence.memory.readouts import open_session, opened

    if is_path(name):
        return opened(named(name))
    with wiring.store() as store:
        return open_session(store, wiring.session(store, name))


def is_path(name: str) -> bool:
    """Whether a name means a file: it has a folder in it, or there is such a file."""
    return "/" in name or os.path.lexists(name)


def file_of(name: str) -> Path:
    """Give the file that a path means, or the one of the session that an id means."""
    from thence.cli import wiring
    from thence.memory.fields import locate

    if is_path(name):
        return Path(name)
    with wiring.store() as store:
        row = wiring.session(store, name)
    if row.gone or not row.session.source_path:
        raise NotReadable(
            f"the file of {row.session.session_uid} is gone",
            hint=f"thence show {name} shows the stored copy",
        )
    return Path(locate(row.session.source_path))


def end_of(session: Readout, wanted: str) -> int:
    """Return the last record of the branch, or of the subagent, that an event stands on."""
    return session.graph.end_from(place_of(session, wanted))


def around(page: Page, wanted: str) -> Iterator[str]:
    """Give the part of a session that stands around one event, on whatever branch that is."""
    from thence.cli.columns import DIM
    from thence.cli.terminal import several, style

    session = page.session
    place = place_of(session, wanted)
    line = page.line if place in page.line else session.graph.chain(place, boundaries=False)
    line = [one for one in line if one == place or _is_shown(session.records[one])]
    at = line.index(place) if place in line else len(line) - 1
    start, end = max(at - BEFORE, 0), at + AFTER + 1
    page.opened = True  # what was compacted may be what is asked for
    yield from page.head()
    yield ""
    if start:
        yield style(f"┊    {several(start, 'record')} before", fg=DIM)
    yield from page.part(line[start:end])
    if end < len(line):
        yield style(f"┊    {several(len(line) - end, 'record')} after", fg=DIM)


def _is_shown(record: Record) -> bool:
    """Whether a record takes a line: results stand beside their calls, books are not shown."""
    from thence.format.nodes import Is

    has_own = any(block.kind != "tool_result" for block in record.blocks)
    return has_own and not record.node.flags & Is.INTERNAL
