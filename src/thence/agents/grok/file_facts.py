"""What the readers of Grok's files share: usage, and what it cost."""

from __future__ import annotations

from thence.agents.records import Record, text
from thence.format.records import JSON, Usage, count

TICKS_PER_USD = 10_000_000_000
"""Ticks of `costUsdTicks` to a dollar."""


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


def by_model(value: JSON) -> list[tuple[str | None, Record]]:
    """Part a usage by model, the largest first; as one where its parts do not add up."""
    if not isinstance(value, dict):
        return []
    models = value.get("modelUsage")
    items = models.items() if isinstance(models, dict) else ()
    parts = [(model, part) for model, part in items if isinstance(part, dict)]
    totals = {model: (usage_of(part) or Usage()).total for model, part in parts}
    if not parts or sum(totals.values()) != (usage_of(value) or Usage()).total:
        return [(text(value.get("primaryModelId")), value)]
    if len(parts) == 1:  # what only the whole tells is this one's
        return [(parts[0][0], {**value, **parts[0][1]})]
    return sorted(parts, key=lambda part: (-totals[part[0]], part[0]))
