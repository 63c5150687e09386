"""One session for a command that shows one: by its file or by its id, all of it or a part.

Events have short names: `e` and the beginning of their id in hexadecimal digits. Ids never change,
so that a name found by a search still means the same event when the session has gone on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from thence.errors import NotReadable, SessionNotFound
from thence.format.records import Notice

if TYPE_CHECKING:
    from thence.adapters.sessions import Loaded
    from thence.cli.page import Page
    from thence.format.facts import Fact
    from thence.format.whole import Whole
    from thence.memory.store import SessionRow, Store


BEFORE, AFTER = 6, 10
"""Records that are shown before and after the one that is asked for."""


def named(name: str) -> Loaded:
    """Give the session that a path or an id means; what is there as a file is a path."""
    from thence.adapters.sessions import load
    from thence.cli import wiring

    if "/" in name or os.path.lexists(name) or not wiring.has_store():
        return load(Path(name))
    with wiring.store() as store:
        return loaded(store, wiring.session(store, name))


def event_name(event: int) -> str:
    """Give the short name of an event."""
    return f"e{event:013x}"[:7]


def place_of(whole: Whole, wanted: str) -> int:
    """Find the record that a name means: a short one, an id in digits, or the log's own id."""
    digits = wanted.removeprefix("e").lower()
    for event in whole.events:
        own = f"{event.event_id:013x}".startswith(digits) and digits
        if own or wanted in (f"{event.event_id}", event.native_id):
            place = whole.graph.place(event.native_id)
            if place is not None:
                return place
    raise SessionNotFound(
        f"no event {wanted!r} in {whole.uid}", hint="thence search names the events it finds"
    )


def around(page: Page, wanted: str) -> Iterator[str]:
    """Give the part of a session that stands around one event, on whatever branch that is."""
    from thence.cli.columns import DIM
    from thence.cli.terminal import several, style

    whole = page.whole
    place = place_of(whole, wanted)
    line = page.line if place in page.line else whole.graph.chain(place, boundaries=False)
    line = [one for one in line if one == place or _is_shown(whole.facts[one])]
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


def _is_shown(fact: Fact) -> bool:
    """Whether a record takes a line: results stand beside their calls, books are not shown."""
    from thence.format.nodes import Is

    said = any(block.kind != "tool_result" for block in fact.blocks)
    return said and not fact.node.flags & Is.INTERNAL


def _notes(row: SessionRow) -> Iterator[Notice]:
    """Say what was found while the session was read, as far as that is kept."""
    if row.skipped:
        told = f"{row.skipped:,} lines could not be read; thence doctor names them"
        yield Notice("skipped", told)
    if row.gone:
        yield Notice("source gone", "its agent has deleted it; this is all there is")


def loaded(store: Store, row: SessionRow) -> Loaded:
    """Give a session whole: from the store, or from its source where it was evicted."""
    from thence.adapters import File, Source
    from thence.adapters.sessions import Loaded, load
    from thence.memory.sweep import recalled

    session = row.session
    held = store.held(session.session_uid)
    if held is not None:
        whole = recalled(session.session_uid, held, store.blobs)
        files = tuple(File(path) for path in row.files)
        source = Source(session.flavor, session.native_session_id, files)
        return Loaded(source, whole, [], list(_notes(row)))
    if session.source_path and Path(session.source_path).exists():
        return load(Path(session.source_path))
    name = session.native_session_id
    raise NotReadable(
        f"{name} was evicted, and its source is gone: only its digest is left",
        hint=f"thence digest {name[:13]}",
    )
