"""What files and folders of Kimi Code's sessions are called."""

from __future__ import annotations

LOG, CARD, MAIN = "wire.jsonl", "state.json", "main"
PREFIX = "session_"
"""What stands before the id of a session wherever the client names it."""


def session_id(name: str) -> str:
    """Return the id of a session from the name of its folder."""
    return name.removeprefix(PREFIX)
