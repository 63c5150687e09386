"""A quick look into a store in SQLite: whether it has sessions of a folder.

For hooks that an agent waits for: nothing else of the store is loaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import apsw

BUSY_MS: Final = 200

_BELOW = "SELECT 1 FROM sessions WHERE project=? OR (project>? AND project<?) LIMIT 1"


def has_sessions(store: Path, folder: str) -> bool:
    """Return whether a store has sessions of a folder or those below it; True if unclear."""
    if not store.exists():
        return False
    below = folder.rstrip("/")
    try:
        db = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            db.set_busy_timeout(BUSY_MS)
            # 0 comes after / in ASCII
            return any(True for _ in db.execute(_BELOW, (folder, f"{below}/", f"{below}0")))
        finally:
            db.close()
    except apsw.Error:
        return True
