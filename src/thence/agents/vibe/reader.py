"""Sessions of Mistral Vibe 3: a folder each, with a snapshot per turn and a journal since.

`logs/session/unified/<uuid>/CURRENT` names the snapshot in `generations/`, whose lists lie in
`chunks/`; `journal/` has what came after it. At the end of a turn the client writes a new snapshot
and drops the journal. `meta.json` has folder and title. Settings and credentials are never opened.
`logs/session/active/<uuid>.lock.json` names the process of a session that runs. Vibe deletes no
session by age. Those of Vibe 1 and 2 are not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from thence.agents import Batch, Cursor, File, Live, Source, files
from thence.agents.records import QuietAgent, is_running, text
from thence.agents.vibe.names import CARD, CURRENT, JOURNAL

SESSIONS = Path("logs", "session", "unified")
ACTIVE = "logs/session/active"

_LEASE = ".lock.json"
_MAX_DEPTH = 3  # folders that a file of a session lies in


class Vibe(QuietAgent):
    """The reader of Mistral Vibe's sessions."""

    name = "vibe"
    looks_for = "logs/session/unified/ID/CURRENT"

    def find(self, root: Path) -> Iterator[Source]:
        """Yield all sessions."""
        place = str(root)
        for folder in files.folders_in(f"{place}/{SESSIONS}"):
            if (source := _source(folder.path, folder.name, place)) is not None:
                yield source

    def at(self, path: Path) -> Source | None:
        """Return the session of a folder, or of a file in it."""
        path = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links
        if path.is_symlink():
            return None
        for folder in (path, *path.parents[:_MAX_DEPTH]):
            above = folder.parents
            is_usual = above[0].parts[-len(SESSIONS.parts) :] == SESSIONS.parts if above else False
            root = above[len(SESSIONS.parts)] if is_usual else folder.parent
            if (source := _source(str(folder), folder.name, str(root))) is not None:
                return source
        return None

    def live(self, root: Path) -> Iterator[Live]:
        """Yield the sessions whose process runs; what a killed one left behind is passed over."""
        for entry in files.walk(f"{root}/{ACTIVE}", 0):
            if not entry.name.endswith(_LEASE):
                continue
            lease = files.document(entry.path)
            session, pid = text(lease.get("session_id")), lease.get("process_id")
            since = text(lease.get("acquired_at"))
            if session and is_running(pid, since):
                yield Live(session, pid, "running", since=since)

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """Read what is new since the cursor."""
        from thence.agents.vibe.entries import opener

        return files.read(source, cursor, opener())


def _source(folder: str, session: str, root: str) -> Source | None:
    """Return the session in a folder: what was said, its card, and its total."""
    current, card = f"{folder}/{CURRENT}", f"{folder}/{CARD}"
    if not files.is_regular(current):
        return None
    journals = tuple([entry.path for entry in files.walk(f"{folder}/{JOURNAL}", 0)])
    own = [File(current, "main", is_document=True, beside=journals)]
    if files.is_regular(card):
        own.append(File(card, "state", is_document=True))
    own.append(File(current, "total", is_document=True, beside=journals))
    return Source(Vibe.name, session, tuple(own), root)
