"""Names that Continue gives to its files and lists."""

from __future__ import annotations

LIST = "sessions.json"
