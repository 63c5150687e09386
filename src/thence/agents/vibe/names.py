"""Names that Mistral Vibe gives to its files and lists."""

from __future__ import annotations

CURRENT, CARD, JOURNAL = "CURRENT", "meta.json", "journal"
