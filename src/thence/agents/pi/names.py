"""What pi calls its logs."""

from __future__ import annotations

import re

_NAME = re.compile(r"\d{4}-\d\d-\d\dT[\d-]{6,14}Z_([0-9A-Za-z-]{8,64})\.jsonl")


def session_in(name: str) -> str | None:
    """Return the session id in the name of a log."""
    named = _NAME.fullmatch(name)
    return named[1] if named else None
