"""Text on a terminal: made harmless, measured, cut and wrapped to its width.

Content of logs is hostile. Control characters (C0, C1), bidirectional marks and invisible tag
characters never reach a terminal: each is shown as a visible mark in its place.
"""

# ruff: noqa: PLC0414 - callers ask here for figures and the screen, too

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from json import dumps

import msgspec

from thence.cli.screen import say as say
from thence.cli.screen import style as style
from thence.cli.screen import tell as tell
from thence.cli.screen import width as width
from thence.errors import NotReadable
from thence.format.figures import HARMFUL
from thence.format.figures import clean as clean
from thence.format.figures import format_duration as format_duration
from thence.format.figures import several as several
from thence.format.figures import short as short
from thence.format.figures import size as size
from thence.format.figures import size_limit as size_limit
from thence.format.records import JSON

TEXT_WIDTH = 88
"""Prose stops here however wide the terminal is."""


def escape(json: str) -> str:
    """Write the same characters in a line of JSON as its escapes: harmless, nothing is lost."""
    if json.isascii() and json.isprintable():  # nearly all; the expression takes long to be made
        return json
    return HARMFUL.sub(lambda match: dumps(match[0])[1:-1], json)


class _Widths(dict[str, int]):
    """Columns per character, looked up once each."""

    def __missing__(self, c: str) -> int:
        wide = 2 if unicodedata.east_asian_width(c) in "WF" else 1
        # Not all that stands on the character before has a class: the selectors of emoji do not.
        self[c] = 0 if unicodedata.category(c) in ("Mn", "Me") else wide
        return self[c]


_width_of = _Widths().__getitem__


def columns(text: str) -> int:
    """How many columns a text takes; wide characters take two, combining ones none."""
    return len(text) if text.isascii() else sum(map(_width_of, text))


def pad_to(text: str, room: int) -> str:
    """Cut a text to so many columns, or fill them up."""
    text = cut(text, room)
    return text + " " * (room - columns(text))


def justify(left: str, right: str, room: int) -> str:
    """Put one text to the left and one to the right; the left one is cut where they meet."""
    if not right:
        return cut(left, room)
    left = cut(left, max(room - columns(right) - 2, 1))
    return left + " " * max(room - columns(left) - columns(right), 0) + right


def cut(text: str, room: int) -> str:
    """Cut a text to so many columns; what was cut ends in `…`."""
    if _fits(text, 0, room) == len(text):
        return text
    return text[: _fits(text, 0, room - 1)].rstrip() + "…"


def cut_start(path: str, room: int) -> str:
    """Cut a path at its beginning: the end tells files apart."""
    return path if len(path) <= room else f"…{path[1 - room :]}"


def wrap(text: str, room: int) -> list[str]:
    """Break prose into lines of at most so many columns."""
    out: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        out += _break_line(clean(line), min(room, TEXT_WIDTH))
    return out


def _break_line(line: str, room: int) -> list[str]:
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
    if text.isascii():
        return min(len(text), start + max(room, 0))
    for at in range(start, len(text)):
        room -= _width_of(text[at])
        if room < 0:
            return at
    return len(text)


# -- JSON -----------------------------------------------------------------------------------


def answer(
    value: JSON | Callable[[], JSON],
    lines: Iterable[str] | Callable[[], Iterable[str]],
    *,
    json: bool,
    code: int = 0,
) -> int:
    """Print what a command answers, as JSON or as text, and return its exit code.

    What takes work to make may be a function: only what is printed is made.
    """
    if json:
        say(as_json(value() if callable(value) else value))
    else:
        tell(lines() if callable(lines) else lines)
    return code


def as_json(value: JSON) -> Iterator[str]:
    """Yield a value as lines of JSON: a field or an element on each, so that tools can cut it.

    Not by msgspec: a log may hold lone surrogates and numbers of any size.
    """
    try:
        yield from map(escape, _pieces(value))
    except RecursionError:
        message = "the session has a value nested too deeply to print as JSON"
        raise NotReadable(message, hint="show it as text, without --as and --json") from None


def _pieces(value: JSON) -> Iterator[str]:
    """Cut an object into its fields, and lists of objects into theirs; the rest stays whole."""
    if isinstance(value, list):
        yield from _elements("", value, "")
    elif isinstance(value, dict):
        yield "{"
        left = len(value)
        for name, part in value.items():
            left -= 1
            comma = "," if left else ""
            if isinstance(part, list) and part and not isinstance(part[0], (str, int)):
                yield from _elements(f"  {dumps(name)}: ", part, comma)
            else:
                yield f"  {dumps(name)}: {_compact(part)}{comma}"
        yield "}"
    else:
        yield _compact(value)


def _elements(name: str, values: list[JSON], comma: str) -> Iterator[str]:
    indent = "  " if name else ""
    yield f"{name}["
    for at, value in enumerate(values, 1):
        yield f"{indent}  {_compact(value)}{',' if at < len(values) else ''}"
    yield f"{indent}]{comma}"


def _compact(value: JSON) -> str:
    """Return a value on one line; what knows its own object, as events do, is asked for it."""
    plain = value.to_object() if hasattr(value, "to_object") else msgspec.to_builtins(value)
    return dumps(plain, ensure_ascii=False)
