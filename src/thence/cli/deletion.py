"""Deletion of a session for good: what is ours of it, in the store and in the home."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from thence import system
from thence.cli import wiring
from thence.cli.push_marks import forget_marks
from thence.errors import SessionBusy

if TYPE_CHECKING:
    from thence.journal.cleanup import SessionFiles
    from thence.memory.store import Store

OURS = "thence"
"""The agent whose sessions lie in the home."""


def forget(store: Store, uid: str, why: str) -> list[str]:
    """Delete a session for good; returns it if some of its pages are still in use.

    The store comes last: until then a session that a kill left half deleted is found by its id.
    One that the store has forgotten is deleted as far as it is still there.
    """
    from thence.memory.notes import forget_notes
    from thence.memory.unread import forget_unread

    home, (agent, _, name) = wiring.home(), uid.partition(":")
    own = _files_of(store, uid)  # while the store still knows the projects
    forget_notes(home, uid)
    forget_marks(home, uid)
    forget_unread(home, name)
    for path in _nudges(home, agent, name):
        path.unlink(missing_ok=True)
    if agent == OURS:
        _remove_own(home, name, own)
    wiring.purge_exports(store, {uid})
    pending = store.remove([uid], why={uid: why}, forget=True)
    wiring.purge_exports(store)  # one that was written meanwhile
    return pending


def own_names(store: Store) -> Iterator[tuple[str, Path]]:
    """Yield the sessions of our own that home and projects name, each with the file or folder."""
    if system.IS_WINDOWS:  # nothing is recorded there
        return
    from thence.format.layout import HISTORY
    from thence.journal import cleanup, history, permissions

    home = wiring.home()
    for name, path in cleanup.named_sessions(home, wiring.local_journals(store)):
        yield f"{OURS}:{name}", path
    for name in permissions.noted_sessions(home):
        yield f"{OURS}:{name}", home
    for prompt in history.History(home).read(sys.maxsize):
        yield f"{OURS}:{prompt['session_id']}", home / HISTORY


def own_files(store: Store, uid: str) -> Iterator[Path]:
    """Yield the files that are ours to remove."""
    for files in _files_of(store, uid):
        if files.running:
            raise SessionBusy(f"{files.session} is being written", hint="end it first")
        yield from (file.path for file in files.segments)
        yield from files.beside


def _files_of(store: Store, uid: str) -> list[SessionFiles]:
    """Return what lies of a session of our own in the home, and in a project that keeps its own."""
    agent, _, name = uid.partition(":")
    if agent != OURS:
        return []
    from thence.journal import cleanup

    home = wiring.home()
    projects = (None, *wiring.local_journals(store))
    return [
        files
        for project in projects
        for files in cleanup.inventory(home, local=project)
        if files.session == name
    ]


def _remove_own(home: Path, name: str, own: Iterable[SessionFiles]) -> None:
    """Remove the files of a session of our own."""
    from thence.journal import cleanup, history, permissions

    for files in own:
        cleanup.remove(files)
    cleanup.remove_side_files(home, name)
    permissions.remove_notes(home, name)
    history.History(home).forget(name)


def _nudges(home: Path, agent: str, name: str) -> Iterator[Path]:
    from thence.memory import nudges

    if not {"/", "\\", "\0"}.isdisjoint(f"{agent}{name}"):  # no hook writes a file of such a name
        return
    file = f"{agent}-{name}.json"
    yield from (home / nudges.FOLDER / start for start in (file, nudges.TAKEN_PREFIX + file))
    last = home / nudges.LAST_NUDGES_FOLDER / agent
    with contextlib.suppress(OSError):
        if name.encode() in last.read_bytes():
            last.write_bytes(b"{}")  # that the hook was heard may be known, of what not
