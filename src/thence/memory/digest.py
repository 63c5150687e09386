"""The durable account of a session."""

from __future__ import annotations

from thence.format.whole import Whole
from thence.memory.store import Digested, SessionRow


def digest(whole: Whole, row: SessionRow) -> Digested:
    """Give the digest of a session, its payloads at hand."""
    return Digested(whole.uid, row.change, {"title": row.title}, [], [])
