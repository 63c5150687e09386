"""Ids and times for new events, made fast: both are in the path of every record.

Ids are version 7 uuids: they sort by time, and their random part is drawn from the system in
batches. Times are RFC 3339 UTC with milliseconds; the text of the second is kept until it passes.
"""

from __future__ import annotations

import os
import time

from thence.errors import ThenceError
from thence.format import layout

_BATCH = 64
_random: list[str] = []
_second: tuple[int, str] = (-1, "")


def uuid7() -> str:
    """Return a new id."""
    global _random  # noqa: PLW0603 - a pool of chance, refilled in batches
    try:
        tail = _random.pop()  # atomic: two threads never get the same one
    except IndexError:
        _random = drawn = _draw()
        tail = drawn.pop()
    stamp = f"{time.time_ns() // 1_000_000:012x}"
    return f"{stamp[:8]}-{stamp[8:]}-7{tail}"


def _draw() -> list[str]:
    """Draw the random parts of a batch of ids: `xxx-Yxxx-xxxxxxxxxxxx`, Y one of 8, 9, a, b."""
    digits = os.urandom(10 * _BATCH).hex()
    out = []
    for start in range(0, 20 * _BATCH, 20):
        part = digits[start : start + 20]
        variant = "89ab"[int(part[3], 16) & 3]
        out.append(f"{part[:3]}-{variant}{part[4:7]}-{part[7:19]}")
    return out


def checked_id(text: str, error: type[ThenceError] = ThenceError) -> str:
    """Return an id that a caller gives; raise if it is none."""
    if not isinstance(text, str) or not layout.is_id(text):
        raise error(f"not an id: {str(text)[:80]!r}", hint="an id has 1 to 64 of A-Z a-z 0-9 _ -")
    return text


def now_text() -> str:
    """Return the time as events write it."""
    global _second  # noqa: PLW0603 - the text of one second, shared
    milliseconds = time.time_ns() // 1_000_000
    second, rest = divmod(milliseconds, 1000)
    known, text = _second
    if known != second:
        text = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second))
        _second = (second, text)
    return f"{text}{rest:03d}Z"


def _after_fork() -> None:
    """In a child process the pool is the parent's too: draw anew, or both give the same ids."""
    _random.clear()


os.register_at_fork(after_in_child=_after_fork)
