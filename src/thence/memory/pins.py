"""Pinned sessions: those that no storage limit removes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from thence.agents import Cursor
from thence.memory.store import SessionChange, SessionRow, Store


def set_pinned(store: Store, rows: Sequence[SessionRow], *, is_pinned: bool) -> None:
    """Pin sessions or unpin them; the caller holds the lock of sweeps."""
    known = store.known().sessions
    changes = []
    for row in rows:
        uid = row.session.session_uid
        if row.pinned is not is_pinned:
            # Of another machine's session nobody here knows how far it was read.
            cursor = known[uid].cursor if uid in known else Cursor()
            changes.append(SessionChange(msgspec.structs.replace(row, pinned=is_pinned), cursor))
    store.write(changes)
