"""Names that Cline gives to its files and lists."""

from __future__ import annotations

MESSAGES, COMPACTION = ".messages.json", ".compaction.json"
