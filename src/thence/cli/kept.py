"""Sessions as the store keeps them, put together for a command that shows one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from thence.errors import NotReadable

if TYPE_CHECKING:
    from thence.adapters.sessions import Loaded
    from thence.memory.store import SessionRow, Store


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
        return Loaded(source, whole, [], [])
    if session.source_path and Path(session.source_path).exists():
        return load(Path(session.source_path))
    name = session.native_session_id
    raise NotReadable(
        f"{name} was evicted, and its source is gone: only its digest is left",
        hint=f"thence digest {name[:13]}",
    )
