"""One session for a command that shows one: by its file or by its id, all of it or a part."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from thence.agents.sessions import load
from thence.cli import wiring
from thence.errors import NotReadable, SessionNotFound
from thence.format.nodes import Is
from thence.memory.readouts import open_loaded, open_session
from thence.memory.recall import (
    as_read,
    load_session,
    place_of,
    source_of,
)
from thence.memory.stored_paths import locate

if TYPE_CHECKING:
    from thence.agents.sessions import LoadedSession
    from thence.cli.session_text import Page
    from thence.format.readout import Readout, Record
    from thence.memory.readouts import OpenedSession
    from thence.memory.store import SessionRow, Store

RECORDS_BEFORE, RECORDS_AFTER = 6, 10
"""Records that are shown before and after the one that is asked for."""


def load_named(name: str) -> LoadedSession:
    """Return the records of the session that a path or an id means; a file is a path."""
    if is_path(name):
        return load(Path(name))
    with wiring.store() as store:
        return load_session(store, wiring.session(store, name), _clean)


def open_named(name: str) -> OpenedSession:
    """Return the session that a path or an id means, by its stored events."""
    if is_path(name):
        return open_loaded(load_named(name))
    with wiring.store() as store:
        return open_session(store, wiring.session(store, name), _clean)


def load_original(name: str) -> LoadedSession:
    """Return the records of a session as its agent wrote them, or else as they are stored."""
    if is_path(name):
        return load_named(name)
    with wiring.store() as store:
        row = wiring.session(store, name)
        return _load_source(store, row) or load_session(store, row, _clean)


def open_original(name: str) -> tuple[OpenedSession, SessionRow | None]:
    """Return a session as its agent wrote it, or else as it is stored, redacted, with its row."""
    if is_path(name):
        return open_loaded(load_named(name)), None
    with wiring.store() as store:
        row = wiring.session(store, name)
        loaded = _load_source(store, row)
        if loaded is not None:
            return open_loaded(loaded), None
        return open_session(store, row, _clean), row


def _clean(loaded: LoadedSession) -> LoadedSession:
    """Return a removed session, read from its log, as it was stored."""
    return wiring.gate().session(loaded)


def _load_source(store: Store, row: SessionRow) -> LoadedSession | None:
    """Return a session from its log; None when that is gone."""
    with contextlib.suppress(SessionNotFound):  # its agent deleted it from a database
        return None if row.gone else source_of(store, row, as_read)
    return None


def is_path(name: str) -> bool:
    """Whether a name means a file: it has a folder in it, or there is such a file."""
    return "/" in name or os.path.lexists(name)


def file_of(name: str) -> Path:
    """Return the file that a path means, or the one of the session that an id means."""
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
    """Yield the part of a session that stands around one event, on whatever branch that is."""
    from thence.cli.columns import DIM
    from thence.cli.terminal import several, style

    session = page.session
    place = place_of(session, wanted)
    line = page.line if place in page.line else session.graph.chain(place, boundaries=False)
    line = [other for other in line if other == place or _is_shown(session.records[other])]
    at = line.index(place) if place in line else len(line) - 1
    start, end = max(at - RECORDS_BEFORE, 0), at + RECORDS_AFTER + 1
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
    has_own = any(block.kind != "tool_result" for block in record.blocks)
    return has_own and not record.node.flags & Is.INTERNAL
