"""A quick look into a store in SQLite: whether it has sessions of a folder, and when digested.

For hooks that an agent waits for: nothing else of the store is loaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import apsw

BUSY_MS: Final = 200

_BELOW = "(project=? OR (project>? AND project<?))"
_HAS_SESSIONS = f"SELECT 1 FROM sessions WHERE {_BELOW} LIMIT 1"  # noqa: S608 - no text of others
_DIGESTED = (
    "SELECT uid, ifnull(digests.at||'/'||digests.change, '') FROM"  # noqa: S608 - no text of others
    f" (SELECT id, uid FROM sessions WHERE {_BELOW} ORDER BY ended DESC, id DESC LIMIT ?) newest"
    " LEFT JOIN digests ON digests.session=newest.id"
)


def has_sessions(store: Path, folder: str) -> bool:
    """Return whether a store has sessions of a folder or those below it; True if unclear."""
    if not store.exists():
        return False
    try:
        return bool(_rows(store, _HAS_SESSIONS, folder))
    except apsw.Error:
        return True


def digest_stamps(store: Path, folder: str, most: int) -> list[tuple[str, str]]:
    """Return the newest sessions of a folder and those below it, each with when it was digested.

    An `apsw.Error` says that the store is not there, busy or of another form.
    """
    return _rows(store, _DIGESTED, folder, most)


def _rows(store: Path, sql: str, folder: str, *more: int) -> list[Any]:
    """Return what a store answers about a folder."""
    below = folder.rstrip("/")
    db = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        db.set_busy_timeout(BUSY_MS)
        # 0 comes after / in ASCII
        return list(db.execute(sql, (folder, f"{below}/", f"{below}0", *more)))
    finally:
        db.close()
