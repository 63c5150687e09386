"""Changes of YAML text in which everything else stays byte for byte: comments, order, spaces.

PyYAML knows where a value stands; this module says which one comes or goes. Settings are a mapping
in blocks; a value on the way to the place of a change is a block, or a flow (`{…}`, `[…]`) on one
line, and anything else is refused. An item of ours is one line of JSON, which is YAML too; after
the agent has written its settings anew it may be a block, and is found again all the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from yaml.nodes import Node

Path = Sequence[str]
IsOurs = Callable[[str], bool]

_GAP = re.compile(r",?\s*")


class NotUnderstood(ValueError):
    """The text is more than this module can change."""


class YamlItem(NamedTuple):
    """A member of a mapping or an element of a list, and the text that it takes."""

    key: str
    """Empty for an element of a list."""
    node: Node
    column: int
    start: int
    end: int


def insert(text: str, path: Path, item: Any, name: str = "") -> str:
    """Return the text with one more item in the value at a path: under a name, else in a list."""
    line = _dumps(item) if not name else f"{name}: {_dumps(item)}"
    parent: YamlItem | None = None
    for depth, key in enumerate(path):
        block = _block(text, parent)
        child = next((child for child in block if child.key == key), None)
        if child is None:
            value: Any = {name: item} if name else [item]
            for other in reversed(path[depth + 1 :]):
                value = {other: value}
            if parent is not None and parent.node.flow_style:
                return _into_flow(text, parent, key, value)
            return _with_keys(text, parent, block, path[depth:], line if name else f"- {line}")
        parent = child
    if parent is None:
        raise NotUnderstood("no path")
    if not _is_empty(parent.node) and (parent.node.id == "mapping") != bool(name):
        raise NotUnderstood(f"{parent.key} is a {parent.node.id}")
    if not _is_empty(parent.node) and parent.node.flow_style:
        return _into_flow(text, parent, name, item)
    return _with_keys(text, parent, _children(text, parent), (), line if name else f"- {line}")


def remove(text: str, path: Path, is_ours: IsOurs) -> str:
    """Return the text without our items in the value at a path, and without keys left empty."""
    parents = _parents(text, path)
    if not parents:
        return text
    ours = [i for i in _children(text, parents[-1]) if is_ours(text[i.start : i.end])]
    if parents[-1].node.flow_style:
        for item in reversed(ours):
            gap = _GAP.match(text, item.end)
            text = text[: item.start] + text[gap.end() if gap else item.end :]
        return text
    for item in reversed(ours):
        text = _cut_lines(text, item)
    for depth in range(len(path), 0, -1):
        going = _parents(text, path[:depth]) if ours else []
        if going and _is_empty(going[-1].node):
            text = _cut_lines(text, going[-1])
    return text


def items(text: str, path: Path) -> list[tuple[str, Any]]:
    """Return the names and values of the items at a path."""
    parents = _parents(text, path)
    return [(i.key, _value(i.node)) for i in _children(text, parents[-1])] if parents else []


def keys(text: str) -> list[str]:
    """Return the keys at the left edge."""
    return [child.key for child in _children(text, None)]


# -- where things stand ---------------------------------------------------------------------


def _parents(text: str, path: Path) -> list[YamlItem]:
    """Return the items on the way to a value; none where it is not there."""
    parents: list[YamlItem] = []
    for key in path:
        block = _block(text, parents[-1] if parents else None)
        child = next((child for child in block if child.key == key), None)
        if child is None:
            return []
        parents.append(child)
    return parents


def _block(text: str, parent: YamlItem | None) -> list[YamlItem]:
    """Return the items of a block; a flow is changed as one item, whatever is inside it."""
    return [] if parent is not None and parent.node.flow_style else _children(text, parent)


def _children(text: str, parent: YamlItem | None) -> list[YamlItem]:
    """Return the items of a mapping or a list; none for another value, which must be empty."""
    node = _root(text) if parent is None else parent.node
    if node is None or _is_empty(node):
        return []
    if node.id == "scalar" or (parent is None and (node.id != "mapping" or node.flow_style)):
        raise NotUnderstood("no mapping at the left edge" if parent is None else node.value[:40])
    at = node.start_mark.index
    if parent is not None and (at < parent.start or text[at] in "&!"):
        raise NotUnderstood(f"{parent.key} has an anchor, a tag, or stands elsewhere")
    if node.flow_style and "\n" in text[at : node.end_mark.index]:
        raise NotUnderstood("a flow on several lines")
    items_here = [_item(text, node, entry) for entry in node.value]
    names = [item.key for item in items_here if item.key]
    # Readers differ in which of two they take: no change would be sure to count.
    if len(names) != len(set(names)):
        raise NotUnderstood("a key occurs twice")
    return items_here


def _item(text: str, node: Node, entry: Any) -> YamlItem:
    """Return a member of a mapping or an element of a list, with the text that it takes."""
    key, value = entry if node.id == "mapping" else (None, entry)
    first = key or value
    start = first.start_mark.index
    # PyYAML says where an element begins: behind its dash.
    if key is None and not node.flow_style:
        start = text.rindex("-", 0, start)
    column = start - text.rfind("\n", 0, start) - 1
    start -= 0 if node.flow_style else column  # a block takes whole lines
    end = max(_end(text, value), first.end_mark.index)
    return YamlItem(str(key.value) if key else "", value, column, start, end)


@contextmanager
def _refusing() -> Iterator[None]:
    """Refuse what PyYAML does not take: no YAML, tags of other programs, days that are none."""
    import yaml

    try:
        yield
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise NotUnderstood(" ".join(str(error).split())[:80]) from error


def _root(text: str) -> Node | None:
    import yaml

    with _refusing():
        return yaml.compose(text, Loader=yaml.SafeLoader)


def _value(node: Node) -> Any:
    import yaml

    with _refusing():
        return yaml.SafeLoader("").construct_document(node)


def _is_empty(node: Node) -> bool:
    """Return whether nothing stands there, as behind a key whose block is yet to come."""
    return bool(node.id == "scalar" and node.start_mark.index == node.end_mark.index)


def _end(text: str, node: Node) -> int:
    """Return where a value ends; PyYAML says of a block only where the next thing begins."""
    if node.id == "scalar" or node.flow_style or not node.value:
        return len(text[: node.end_mark.index].rstrip())
    last = node.value[-1]
    return max(_end(text, part) for part in (last if isinstance(last, tuple) else (last,)))


# -- putting in and taking out --------------------------------------------------------------


def _dumps(item: Any) -> str:
    return json.dumps(item, ensure_ascii=False)


def _with_keys(
    text: str, parent: YamlItem | None, block: list[YamlItem], path: Path, line: str
) -> str:
    """Return the text with a line in a block, below keys that are not there yet."""
    if text and not text.endswith("\n"):
        return _with_keys(f"{text}\n", parent, block, path, line).removesuffix("\n")
    indent = block[0].column if block else 0 if parent is None else parent.column + 2
    lines = [*(f"{key}:" for key in path), line]
    added = "".join(f"{' ' * (indent + 2 * depth)}{part}\n" for depth, part in enumerate(lines))
    if parent is None:
        return text + added
    # First in its block, because a comment before the next key is about that.
    at = text.index("\n", parent.start) + 1
    return text[:at] + added + text[at:]


def _into_flow(text: str, parent: YamlItem, name: str, item: Any) -> str:
    """Return the text with an item before the others of a flow."""
    if any(child.key == name for child in _children(text, parent) if name):
        raise NotUnderstood(f"{parent.key}: {name} is there")
    at = parent.node.start_mark.index + 1
    gap = ", " if parent.node.value else ""
    added = f'"{name}": {_dumps(item)}' if name else _dumps(item)
    return f"{text[:at]}{added}{gap}{text[at:]}"


def _cut_lines(text: str, item: YamlItem) -> str:
    """Return the text without the lines of an item."""
    rest = text[text.find("\n", item.end) + 1 :] if "\n" in text[item.end :] else ""
    before = text[: item.start]
    return before + rest if rest or text.endswith("\n") else before.removesuffix("\n")
