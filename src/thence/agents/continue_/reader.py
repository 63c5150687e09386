"""Sessions of Continue: one document each, written anew at the end of every turn.

They lie in `sessions/<uuid>.json`; `sessions/sessions.json` is a list of them, of which only the
times are used. Settings and credentials are never opened. Continue deletes nothing by itself and
does not list running sessions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from thence.agents import File, Source, files
from thence.agents.continue_.names import LIST
from thence.agents.records import QuietAgent


class Continue(QuietAgent):
    """The reader of Continue's sessions."""

    name = "continue"
    looks_for = "sessions/ID.json"
    opens = "thence.agents.continue_.history:ContinueHistory"

    def find(self, root: Path) -> Iterator[Source]:
        """Yield all sessions."""
        place = str(root)
        for entry in files.walk(f"{place}/sessions", 0):
            if entry.name.endswith(".json") and entry.name != LIST:
                yield _source(entry.path, entry.name, place)

    def at(self, path: Path) -> Source | None:
        """Return the session that a document holds."""
        path = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links
        if path.suffix != ".json" or path.name == LIST or path.is_symlink() or not path.is_file():
            return None
        if path.parent.name == "sessions" and path.parent.parent.name == ".continue":
            return _source(str(path), path.name, str(path.parent.parent))
        document = files.document(str(path), files.MAX_LIST_BYTES)
        if "sessionId" not in document or not isinstance(document.get("history"), list):
            return None
        above = path.parent.parent if path.parent.name == "sessions" else path.parent
        return _source(str(path), path.name, str(above))


def _source(path: str, name: str, root: str) -> Source:
    session = name.removesuffix(".json")
    return Source(Continue.name, session, (File(path, "main", is_document=True),), root)
