"""Text on a terminal: made harmless, cut to width, coloured only when that is wanted.

Content of logs is hostile. Control characters (C0, C1), bidirectional marks and invisible tag
characters never reach a terminal: each is shown as a visible mark in its place.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from json import dumps

import click

TEXT_WIDTH = 88
"""Prose stops here however wide the terminal is."""

_HARMFUL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def clean(text: str) -> str:
    """Replace what a terminal would obey, or what would hide text, by a visible mark.

    Line ends are among it: what is printed on one line stays on one line.
    """
    return _HARMFUL.sub("\N{REPLACEMENT CHARACTER}", text.expandtabs(4))


def escape(json: str) -> str:
    """Write the same characters in a line of JSON as its escapes: harmless, nothing is lost."""
    return _HARMFUL.sub(lambda found: dumps(found[0])[1:-1], json)


def width() -> int:
    """Columns to fill."""
    return max(40, shutil.get_terminal_size((80, 24)).columns)


def style(text: str, **how: str | bool) -> str:
    """Colour a text, unless colour is not wanted (`NO_COLOR`) or not shown (no terminal)."""
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return click.style(text, **how)  # type: ignore[arg-type]


def columns(text: str) -> int:
    """How many columns a text takes; wide characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def cut(text: str, room: int) -> str:
    """Cut a text to so many columns; what was cut ends in `…`."""
    if _fits(text, 0, room) == len(text):
        return text
    return text[: _fits(text, 0, room - 1)].rstrip() + "…"


def wrap(text: str, room: int) -> list[str]:
    """Break prose into lines of at most so many columns."""
    out: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        out += _broken(clean(line), min(room, TEXT_WIDTH))
    return out


def _broken(line: str, room: int) -> list[str]:
    """Break one line at its spaces, and inside a word only when that is longer than a line."""
    out: list[str] = []
    at = 0
    while at < len(line):
        end = max(_fits(line, at, room), at + 1)
        space = line.rfind(" ", at, end + 1) if end < len(line) else -1
        if space > at and not line[at:space].isspace():
            end = space
        out.append(line[at:end].rstrip())
        at = end
        while line[at : at + 1] == " ":
            at += 1
    return out or [""]


def _fits(text: str, start: int, room: int) -> int:
    """Where to end so that what begins at `start` takes no more than so many columns."""
    for at in range(start, len(text)):
        room -= columns(text[at])
        if room < 0:
            return at
    return len(text)
