"""Changes of JSON text in which everything else stays byte for byte: spaces, order, numbers.

`edit` compares what a text says with what it should say. A value is named by the keys and indices
that lead to it. The text must be valid JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

Path = Sequence[str | int]

BOM = "\ufeff"

_decode = json.JSONDecoder().raw_decode
_SPACE = re.compile(r"[ \t\n\r]*")
_INDENT = re.compile(r"\{\r?\n([ \t]+)\"")


class JsonItem(NamedTuple):
    """One member of an object or one element of an array: its key or index, and where it lies."""

    name: str | int
    start: int
    value: int
    end: int


def edit(text: str, wanted: dict[str, Any]) -> str:
    """Return the text so that it says what is wanted.

    Items come at the end of their object or list. A value that is neither removed nor added must be
    the same, but for such items inside it; who calls reads the text back.
    """
    bare = text.removeprefix(BOM)
    return text[: len(text) - len(bare)] + _edit(bare, [], json.loads(bare), wanted)


def _edit(text: str, path: list[str | int], old: Any, new: Any) -> str:
    """Return the text with the value at this path changed from what it says now."""
    if isinstance(old, list) and isinstance(new, list):
        return _edit_list(text, path, old, new)
    if not isinstance(old, dict) or not isinstance(new, dict):
        return text
    for name in [name for name in old if name not in new]:
        text = remove(text, [*path, name])
    for name, value in new.items():
        if name not in old and isinstance(value, dict) and not path:
            # An object at the top is opened first, so that its members get lines of their own.
            text = _edit(append(text, path, f"{json.dumps(name)}: {{}}"), [name], {}, value)
        elif name not in old:
            text = append(text, path, f"{json.dumps(name)}: {json.dumps(value)}")
        else:
            text = _edit(text, [*path, name], old[name], value)
    return text


def _edit_list(text: str, path: list[str | int], old: list[Any], new: list[Any]) -> str:
    """Return the text with a list that lost elements, or has new ones, or others in them."""
    at = 0
    for nth, element in enumerate(old):
        if at < len(new) and (element == new[at] or len(old) - nth == len(new) - at):
            text = _edit(text, [*path, at], element, new[at])
            at += 1
        else:
            text = remove(text, [*path, at])
    for element in new[at:]:
        text = append(text, path, json.dumps(element))
    return text


def append(text: str, path: Path, item: str) -> str:
    """Return the text with one more item at the end of the object or array at this path."""
    at = _start_of(text, path)
    items = _items(text, at)
    if items:
        last = items[-1]
        # The white space before the last item stands before the new one, too: so it looks alike.
        bare = text[: last.start].rstrip()
        return f"{text[: last.end]},{text[len(bare) : last.start]}{item}{text[last.end :]}"
    inner = outer = ""
    if step := _INDENT.search(text):
        line = text[text.rfind("\n", 0, at) + 1 : at + 1]
        indent = line[: len(line) - len(line.lstrip())]
        inner, outer = f"\n{indent}{step[1]}", f"\n{indent}"
    close = _skip(text, at + 1)
    return f"{text[: at + 1]}{inner}{item}{outer}{text[close:]}"


def remove(text: str, path: Path) -> str:
    """Return the text without the item at this path."""
    at = _start_of(text, path[:-1])
    items = _items(text, at)
    (number,) = (n for n, item in enumerate(items) if item.name == path[-1])
    # An item goes with the comma before it; the first one with the comma behind it.
    if number:
        return text[: items[number - 1].end] + text[items[number].end :]
    if len(items) > 1:
        return text[: items[0].start] + text[items[1].start :]
    return text[: at + 1] + text[_skip(text, items[0].end) :]


def _start_of(text: str, path: Path) -> int:
    """Return where the value at this path begins."""
    at = _skip(text, 0)
    for name in path:
        (at,) = (item.value for item in _items(text, at) if item.name == name)
    return at


def _items(text: str, at: int) -> list[JsonItem]:
    """Return the items of the object or array that begins there."""
    items: list[JsonItem] = []
    is_object = text[at] == "{"
    position = _skip(text, at + 1)
    while text[position] not in "}]":
        start, name = position, len(items)
        if is_object:
            name, position = _decode(text, position)
            position = _skip(text, _skip(text, position) + 1)  # over the colon
        _, end = _decode(text, position)
        items.append(JsonItem(name, start, position, end))
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)
    return items


def _skip(text: str, at: int) -> int:
    """Return where the white space that begins there ends."""
    match = _SPACE.match(text, at)
    return match.end() if match else at
