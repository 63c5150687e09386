"""What a check of `thence doctor` found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from thence.format.records import JSON

Level = Literal["ok", "note", "warning", "bad"]


class Finding(NamedTuple):
    """One thing that was looked at."""

    topic: str
    level: Level
    words: str
    fix: str | None = None
    """What to type."""
    details: dict[str, JSON] = {}  # noqa: RUF012 - a default of a tuple, never changed
    more: str = ""
    """What a wide screen says besides."""
