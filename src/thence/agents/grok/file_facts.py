"""What the readers of Grok's files share: facts with their place filled in, and usage."""

from __future__ import annotations

from typing import Any

from thence.agents import File, Mark, Source
from thence.format.codec import RawRecord
from thence.format.facts import Fact, line_name
from thence.format.nodes import PREVIOUS, Is, Node
from thence.format.records import JSON, Usage, count, word

TICKS_PER_USD = 10_000_000_000
"""Ticks of `costUsdTicks` to a dollar."""


class Reader:
    """One file; each reader adds `facts`."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        """Go on where the mark stands."""
        self._session = source.session
        self._file = file
        self._generation = mark.generation

    def _name(self, entry: RawRecord) -> str:
        return line_name(self._file.key, entry.raw)

    def _books(self, entry: RawRecord, flags: int = 0) -> Node:
        """A node that keeps the books."""
        return Node(self._name(entry), PREVIOUS, Is.INTERNAL | flags)

    def _fact(self, entry: RawRecord, node: Node, type_: str, **more: Any) -> Fact:
        return Fact(
            node,
            type_,
            file=self._file.key,
            channel=self._file.channel,
            generation=self._generation,
            line=entry.place.line,
            offset=entry.place.offset,
            **more,
        )

    def carry(self) -> JSON:
        """Nothing is remembered."""
        return None


def text(value: JSON) -> str | None:
    """Read a text; None when it is none or empty."""
    return value if isinstance(value, str) and value else None


def usage_of(value: JSON) -> Usage | None:
    """Read a usage; its input holds what was read from and written to the cache."""
    if not isinstance(value, dict):
        return None
    read, written = count(value.get("cachedReadTokens")), count(value.get("cacheCreationTokens"))
    fresh = max(count(value.get("inputTokens")) - read - written, 0)
    return Usage(fresh, count(value.get("outputTokens")), written, read)


def cost_of(value: JSON) -> float | None:
    """Read what a usage says it cost, in dollars."""
    ticks = value.get("costUsdTicks") if isinstance(value, dict) else None
    return None if ticks is None else count(ticks) / TICKS_PER_USD


def by_model(value: JSON) -> list[tuple[str | None, dict[str, JSON]]]:
    """Part a usage by model, the largest first; as one where its parts do not add up."""
    if not isinstance(value, dict):
        return []
    models = value.get("modelUsage")
    items = models.items() if isinstance(models, dict) else ()
    parts = [(model, part) for model, part in items if isinstance(part, dict)]
    totals = {model: (usage_of(part) or Usage()).total for model, part in parts}
    if not parts or sum(totals.values()) != (usage_of(value) or Usage()).total:
        return [(word(value.get("primaryModelId")) or None, value)]
    if len(parts) == 1:  # what only the whole tells is this one's
        return [(parts[0][0], {**value, **parts[0][1]})]
    return sorted(parts, key=lambda part: (-totals[part[0]], part[0]))
