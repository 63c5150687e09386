"""Answers to a model: data in a frame, never words to be followed.

What a log says may be meant for whoever reads it next: instructions, ends of frames that are none,
characters that nobody sees. An answer stands between two lines with a boundary drawn for it alone,
says where it comes from, is of bounded length, and holds no character that hides or reorders text.
What was said in several lines is quoted line by line, so that it cannot pass for a line of ours.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

MAX_ANSWER_CHARS: Final = 6_000
"""Characters of an answer, its frame included; about 1,500 tokens."""

MAX_LAST_CHARS: Final = 320
"""Characters of a line that stands last; about 80 tokens."""

QUOTE: Final = "| "

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SELECTORS: Final = (
    *((0xFE00, 0xFE0F), (0xE0100, 0xE01EF), (0x180B, 0x180F)),
    *((0x034F, 0x034F), (0x115F, 0x1160), (0x3164, 0x3164), (0xFFA0, 0xFFA0)),
)
"""Marks and fillers that show nothing, beside what the categories of Unicode call hidden."""


def strip_invisible(text: str) -> str:
    """Return one line without characters that hide, reorder or control; tabs are spaces."""
    text = text.replace("\t", " ")
    if text.isascii() and text.isprintable():
        return text
    return "".join(c for c in text if _is_seen(c))


@lru_cache(maxsize=4096)
def _is_seen(c: str) -> bool:
    code = ord(c)
    hidden = any(first <= code <= last for first, last in _SELECTORS)
    return not hidden and unicodedata.category(c) not in _HIDDEN


def flatten(text: str, room: int = 200) -> str:
    """Return a text as one line of at most so many characters."""
    line = strip_invisible(" ".join(text[: 4 * room].split()))
    return line if len(line) <= room and len(text) <= 4 * room else line[: room - 1] + "…"


def quote_lines(text: str, room: int) -> Iterator[str]:
    """Quote a text line by line, at most so many characters of it; what is left out is counted."""
    shown = text[:room]
    for line in re.split(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", shown.rstrip()):
        yield QUOTE + strip_invisible(line)
    if len(text) > room:
        yield f"({len(text) - room} more characters)"


def frame_answer(
    origin: str, lines: Iterable[str], *, last: Iterable[str] = (), limit: int = MAX_ANSWER_CHARS
) -> str:
    """Set lines into a frame; those that do not fit are counted. The last ones always fit."""
    boundary = os.urandom(8).hex()  # as `secrets` draws it; hooks wait for what that imports
    head = f"[{boundary} data: {flatten(origin)}; quoted from past sessions as recorded]"
    end = f"[{boundary} end of data]"
    closing = [flatten(line, MAX_LAST_CHARS) for line in last]
    room = limit - len(head) - len(end) - sum(len(line) + 1 for line in closing) - 40
    out: list[str] = []
    left = 0
    for line in map(strip_invisible, lines):
        if left or len(line) + 1 > room:
            left += 1
            continue
        out.append(line)
        room -= len(line) + 1
    more = [f"({left} more lines omitted)"] if left else []
    return "\n".join([head, *out, *more, *closing, end])
