"""Deletion of a session for good: what is ours of it, in the store and in the home."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from thence.cli import wiring
from thence.errors import SessionBusy

if TYPE_CHECKING:
    from thence.memory.store import SessionRow, Store

OURS = "thence"
"""The agent whose sessions lie in the home."""


def forget(store: Store, row: SessionRow, why: str) -> list[str]:
    """Delete a session for good; returns it if some of its pages are still in use."""
    from thence.memory.notes import forget_notes

    uid = row.session.session_uid
    pending = store.remove([uid], why={uid: why}, forget=True)
    home, name = wiring.home(), row.session.native_session_id
    forget_notes(home, uid)
    for path in _nudges(home, row):
        path.unlink(missing_ok=True)
    if row.session.flavor == OURS:
        _remove_own(home, name)
    wiring.purge_exports(store)
    return pending


def own_files(row: SessionRow) -> Iterator[Path]:
    """Yield the files that are ours to remove."""
    if row.session.flavor != OURS:
        return
    from thence.journal import cleanup

    for files in cleanup.inventory(wiring.home()):
        if files.session == row.session.native_session_id:
            if files.running:
                raise SessionBusy(f"{files.session} is being written", hint="end it first")
            yield from (file.path for file in files.segments)
            yield from files.beside


def _remove_own(home: Path, name: str) -> None:
    """Remove the files of a session of our own."""
    from thence.journal import cleanup, history, permissions

    for files in cleanup.inventory(home):
        if files.session == name:
            cleanup.remove(files)
    permissions.remove_notes(home, name)
    history.History(home).forget(name)


def _nudges(home: Path, row: SessionRow) -> Iterator[Path]:
    from thence.memory import nudges

    name = f"{row.session.flavor}-{row.session.native_session_id}.json"
    yield from (home / nudges.FOLDER / start for start in (name, nudges.TAKEN_PREFIX + name))
    last = home / nudges.LAST_NUDGES_FOLDER / row.session.flavor
    with contextlib.suppress(OSError):
        if row.session.native_session_id.encode() in last.read_bytes():
            last.write_bytes(b"{}")  # that the hook was heard may be known, of what not
