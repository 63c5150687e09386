"""Whole sessions straight from their files, without a store.

`load` reads one session of any agent; what it goes on from by reference is read as well, so that
its messages are complete. Ancestors are looked for in the same root only, and only so far back.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from thence.adapters import Adapter, Batch, Cursor, Source, adapters
from thence.errors import NotReadable, SessionNotFound
from thence.format.facts import Fact
from thence.format.records import Notice, Skipped
from thence.format.whole import Whole

ANCESTORS = 32
"""How many generations of ancestors are followed."""


class Loaded(msgspec.Struct):
    """A session and what was found while it was read."""

    source: Source
    whole: Whole
    skipped: list[Skipped]
    notices: list[Notice]
    lines: int = 0


def load(path: Path, known: Mapping[str, Adapter] | None = None) -> Loaded:
    """Read the session that a file or folder belongs to, whoever wrote it."""
    known = adapters() if known is None else known
    if not path.exists() and not path.is_symlink():
        message = f"no such file: {path}"
        raise SessionNotFound(message, hint="thence show --sample shows a session")
    for adapter in known.values():
        source = adapter.at(path)
        if source is not None:
            return load_source(adapter, source)
    message = f"no agent's session: {path}"
    raise NotReadable(
        message, hint=f"thence reads sessions of {', '.join(sorted(known)) or 'no agent'}"
    )


def load_source(adapter: Adapter, source: Source, depth: int = ANCESTORS) -> Loaded:
    """Read one session, and as many ancestors as its messages need."""
    events, batch = read_all(adapter, source)
    whole = Whole(source.uid, events, torn=batch.torn)
    out = Loaded(source, whole, batch.skipped, list(batch.notices), batch.lines)
    base = next((fact.base for fact in events if fact.base is not None), None)
    if base is None or any(fact.file == base.file and fact.base is None for fact in events):
        return out
    ancestor = _ancestor(adapter, source, base.file) if depth else None
    if ancestor is None:
        out.notices.append(Notice("ancestor missing", f"goes on from {base.file}"))
        return out
    above = load_source(adapter, ancestor, depth - 1)
    out.whole = Whole(source.uid, events, torn=batch.torn, ancestor=above.whole.said_before(base))
    return out


def read_all(adapter: Adapter, source: Source) -> tuple[list[Fact], Batch]:
    """Read all of a session; the batch sums up what was found on the way."""
    events: list[Fact] = []
    total = Batch([], [], Cursor())
    done = False
    while not done:
        batch = adapter.read(source, total.cursor)
        events += batch.events
        total.skipped += batch.skipped
        total.notices = [*total.notices, *batch.notices]
        total.lines += batch.lines
        total.bytes += batch.bytes
        total.torn = batch.torn
        done = batch.done or batch.cursor == total.cursor
        total.cursor = batch.cursor
    return events, total


def _ancestor(adapter: Adapter, source: Source, key: str) -> Source | None:
    """Find the session, in the same root, that holds a log of this name."""
    if not source.root:
        return None
    for other in adapter.find(Path(source.root)):
        if other.session != source.session and any(file.key == key for file in other.files):
            return other
    return None
