"""The days that a page looks at: which can be chosen, and where to look when they hold nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from thence.format.derived_events import time_of
from thence.memory.store import Filter
from thence.serve.context import AppContext

RANGES: Final = (7, 30, 90, 365)
"""So many days can be chosen."""


class EarlierSessions(msgspec.Struct, frozen=True):
    """Where to look when nothing lies in the days that are shown."""

    text: str
    href: str
    label: str


def earlier(
    context: AppContext, days: int, href: Callable[[int], str], all_time: str = ""
) -> EarlierSessions | None:
    """Return when the last session was and the address of its days; None without any session."""
    last = next(iter(context.store.sessions(Filter(limit=1))), None)
    moment = time_of(last.session.ended_at) if last else None
    if moment is None:
        return None
    age = (context.clock() - moment.timestamp()) / 86_400
    text = f"The last session was on {moment.day} {moment:%b %Y}."
    reach = next((n for n in RANGES if n > max(age + 1, days)), None)
    if reach is None:
        label = "Show all time" if all_time else "All sessions"
        return EarlierSessions(text, all_time or "/sessions", label)
    return EarlierSessions(text, href(reach), f"Show {reach} days")
