"""What sessions took, added up by one thing: money, tokens, and why a sum is a lower bound."""

from __future__ import annotations

from typing import Literal

from thence.format.figures import TICKS
from thence.format.records import JSON
from thence.memory.store import Filter, Store, Total

By = Literal["day", "model", "project", "agent", "session"]


class Bill:
    """What was spent, by one thing: days in their order, all else by money."""

    def __init__(self, store: Store, by: By, wanted: Filter) -> None:
        self.by = by
        self.parts = [one for one in store.totals([by], wanted) if one.responses or one.unpriced]
        self.parts.sort(key=lambda one: one.key[0] or "" if by == "day" else -one.ticks)
        self.total = store.totals((), wanted)[0]
        self.bounds = [row for row in store.sessions(wanted) if row.lower_bound]

    def object(self) -> dict[str, JSON]:
        """Give it all, in dollars and tokens."""
        return {
            "by": self.by,
            "parts": [{"key": one.key[0], **sums(one)} for one in self.parts],
            "total": sums(self.total),
            "lower_bounds": [
                {"session_uid": row.session.session_uid, "why": list(row.lower_bound)}
                for row in self.bounds
            ],
        }


def sums(total: Total) -> dict[str, JSON]:
    """Give a total in dollars and tokens; what has no known price is not guessed."""
    return {
        "sessions": total.sessions,
        "responses": total.responses,
        "usd": None if total.unpriced and not total.ticks else total.ticks / TICKS,
        "live_usd": total.live / TICKS,
        "dead_usd": total.dead / TICKS,
        "subagents_usd": total.side / TICKS,
        "unpriced_tokens": total.unpriced,
        "tokens": {"input": total.input, "output": total.output, "cache": total.cache},
    }
