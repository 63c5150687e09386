"""Changes of YAML text in which everything else stays byte for byte: comments, order, spaces.

Only what settings are made of is understood: a mapping in blocks, whose keys stand at the left
edge. A value is a block, or a flow (`{…}`, `[…]`) on one line. Anything else on the way to the
place of a change is refused. An item of ours is one line of JSON, which is YAML too; after the
agent has written its settings anew it may be a block, and is found again all the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

Path = Sequence[str]
IsOurs = Callable[[str], bool]

_KEY = re.compile(
    r"""( *)("[^"\n]*"|'[^'\n]*'|[^\s#:\-\[\]{}&*!|>'"%@`,][^:#\n]*?) *:(?=\s|$)(.*)"""
)
_BLANK = re.compile(r"\s*(#.*)?$")
_FLOW = re.compile(r"\s*[{\[]")
_decode = json.JSONDecoder().raw_decode


class NotUnderstood(ValueError):
    """The text is more than this module can change."""


class YamlItem(NamedTuple):
    """A member of a mapping or an element of a list, and the lines that it takes."""

    key: str
    """Empty for an element of a list."""
    indent: int
    start: int
    end: int
    """Behind its last line that is not blank."""
    rest: str
    """What stands behind the key in its line."""


def insert(text: str, path: Path, item: Any, name: str = "") -> str:
    """Return the text with one more item in the value at a path: under a name, else in a list."""
    return _end_like(text, _insert(_lines(text), path, item, name))


def _insert(lines: list[str], path: Path, item: Any, name: str) -> str:
    parent: YamlItem | None = None
    for depth, key in enumerate(path):
        block = _children(lines, parent)
        child = next((child for child in block if child.key == key), None)
        if child is None:
            if parent is not None and _FLOW.match(parent.rest):
                return _into_flow(lines, parent, _nested(path[depth:], item, name))
            return _with_new_key(lines, parent, block, path[depth:], _line(item, name))
        parent = child
    if parent is None:
        raise NotUnderstood("no path")
    if _FLOW.match(parent.rest):
        return _into_flow(lines, parent, f'"{name}": {json.dumps(item)}' if name else _dumps(item))
    if not _BLANK.match(parent.rest):
        raise NotUnderstood(f"{parent.key} is no block")
    block = _children(lines, parent)
    if block and bool(block[0].key) != bool(name):
        raise NotUnderstood(f"{parent.key} is {'a mapping' if block[0].key else 'a list'}")
    indent = block[0].indent if block else parent.indent + 2
    lines.insert(parent.start + 1, f"{' ' * indent}{_line(item, name)}\n")
    return "".join(lines)


def remove(text: str, path: Path, is_ours: IsOurs) -> str:
    """Return the text without our items in the value at a path, and without keys left empty."""
    return _end_like(text, _remove(_lines(text), path, is_ours))


def _remove(lines: list[str], path: Path, is_ours: IsOurs) -> str:
    parents = _parents(lines, path)
    if parents is None:
        return "".join(lines)
    last = parents[-1]
    if _FLOW.match(last.rest):
        return _out_of_flow(lines, last, is_ours)
    block = _children(lines, last)
    ours = [child for child in block if is_ours("".join(lines[child.start : child.end]))]
    for child in reversed(ours):
        del lines[child.start : child.end]
    for depth in range(len(path), 0, -1):
        if ours and (going := _parents(lines, path[:depth])) is not None:
            _drop_empty(lines, going[-1])
    return "".join(lines)


def _drop_empty(lines: list[str], item: YamlItem) -> None:
    if not _children(lines, item) and _BLANK.match(item.rest):
        del lines[item.start]


def _end_like(text: str, changed: str) -> str:
    """Return a changed text that ends with a newline only if the text did."""
    return changed if text.endswith("\n") else changed.removesuffix("\n")


def items(text: str, path: Path) -> list[tuple[str, Any]]:
    """Return the names and values of the items at a path; a value that is not plain is a text."""
    lines = _lines(text)
    parents = _parents(lines, path)
    return [] if parents is None else _pairs(lines, parents[-1])


def keys(text: str) -> list[str]:
    """Return the keys at the left edge."""
    return [child.key for child in _children(_lines(text), None)]


# -- lines ----------------------------------------------------------------------------------


def _lines(text: str) -> list[str]:
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    for number, line in enumerate(lines):
        bare = line.rstrip()
        if line.startswith("\t") or bare == "..." or (bare.startswith("---") and number):
            raise NotUnderstood("tabs or several documents")
    return lines


def _parents(lines: list[str], path: Path) -> list[YamlItem] | None:
    """Return the items on the way to a value; None where it is not there."""
    parents: list[YamlItem] = []
    for key in path:
        block = _children(lines, parents[-1] if parents else None)
        child = next((child for child in block if child.key == key), None)
        if child is None:
            return None
        parents.append(child)
    return parents


def _children(lines: list[str], parent: YamlItem | None) -> list[YamlItem]:
    """Return the items of a block; none for a value that is no block."""
    start, end = (0, len(lines)) if parent is None else (parent.start + 1, parent.end)
    least = 0 if parent is None else parent.indent
    content = [n for n in range(start, end) if not _BLANK.match(lines[n]) and lines[n] != "---\n"]
    if not content or (parent is not None and not _BLANK.match(parent.rest)):
        return []
    indent = _indent(lines[content[0]])
    is_list = lines[content[0]][indent:].startswith("-")
    if parent is None and (is_list or indent):
        raise NotUnderstood("no mapping at the left edge")
    if indent < least or (indent == least and parent is not None and not is_list):
        return []
    items = list(_items_of(lines, content, is_list=is_list))
    if any(_indent(lines[n]) < indent for n in content):
        raise NotUnderstood("a value that is neither a mapping nor a list")
    names = [item.key for item in items if item.key]
    if len(names) != len(set(names)):
        raise NotUnderstood("a key occurs twice")
    return items


def _items_of(lines: list[str], content: list[int], *, is_list: bool) -> Iterator[YamlItem]:
    """Yield the items of a block whose lines with content are these."""
    indent = _indent(lines[content[0]])
    starts = [n for n in content if _indent(lines[n]) == indent and _starts(lines[n], is_list)]
    if starts[:1] != content[:1]:
        raise NotUnderstood("a value that is neither a mapping nor a list")
    for start, following in zip(starts, [*starts[1:], content[-1] + 1], strict=True):
        last = max(n for n in content if start <= n < following)
        match = None if is_list else _KEY.match(lines[start])
        key, rest = (match[2].strip("\"'"), match[3]) if match else ("", "")
        yield YamlItem(key, indent, start, last + 1, rest)


def _starts(line: str, is_list: bool) -> bool:  # noqa: FBT001 - two forms
    """Return whether an item begins in a line; at a key's edge its own list may go on."""
    bare = line.lstrip()
    if is_list:
        return bare.startswith(("- ", "-\n"))
    if bare.startswith("- "):
        return False
    if not _KEY.match(line):
        raise NotUnderstood(bare[:40])
    return True


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


# -- putting in and taking out --------------------------------------------------------------


def _dumps(item: Any) -> str:
    return json.dumps(item, ensure_ascii=False)


def _line(item: Any, name: str) -> str:
    return f"{name}: {_dumps(item)}" if name else f"- {_dumps(item)}"


def _nested(path: Path, item: Any, name: str) -> str:
    """Return keys that are not there yet, with the item, as members of a flow."""
    value: Any = {name: item} if name else [item]
    for key in reversed(path[1:]):
        value = {key: value}
    return f'"{path[0]}": {_dumps(value)}'


def _with_new_key(
    lines: list[str], parent: YamlItem | None, block: list[YamlItem], path: Path, line: str
) -> str:
    """Return the text with keys that are not there yet, below those that are."""
    if parent is not None and not _BLANK.match(parent.rest):
        raise NotUnderstood(f"{parent.key} is no block")
    own = parent.indent + 2 if parent is not None else 0
    indent = block[0].indent if block else own
    added = [f"{' ' * (indent + 2 * depth)}{key}:\n" for depth, key in enumerate(path)]
    added.append(f"{' ' * (indent + 2 * len(path))}{line}\n")
    at = parent.start + 1 if parent is not None else len(lines)
    return "".join([*lines[:at], *added, *lines[at:]])


def _into_flow(lines: list[str], parent: YamlItem, item: str) -> str:
    """Return the text with an item before the others of a flow."""
    flow = re.sub(r"\s#.*$", "", parent.rest).strip()
    name = json.loads(item.partition(": ")[0]) if item.startswith('"') else ""
    is_odd = not flow.endswith(("}", "]")) or (name and re.search(rf"\b{re.escape(name)}\b", flow))
    if is_odd or flow.startswith("{") != bool(name):
        raise NotUnderstood(f"{parent.key}: {flow[:40]}")
    line = lines[parent.start]
    at = line.index(flow[0], len(line) - len(parent.rest) - 1) + 1
    gap = "" if line[at:].lstrip().startswith(("}", "]")) else ", "
    lines[parent.start] = f"{line[:at]}{item}{gap}{line[at:]}"
    return "".join(lines)


def _out_of_flow(lines: list[str], parent: YamlItem, is_ours: IsOurs) -> str:
    """Return the text without the items of ours, as we put them into a flow."""
    line = lines[parent.start]
    for match in re.finditer(r'(?:"[^"]*": )?(?=[\[{])', line):
        try:
            _, end = _decode(line, match.end())
        except ValueError:  # not ours: we write JSON, and this is none
            continue
        if match.start() > line.index(parent.key) + len(parent.key) + 2 and is_ours(
            line[match.start() : end]
        ):
            lines[parent.start] = line[: match.start()] + line[end:].removeprefix(", ")
            return _out_of_flow(lines, parent, is_ours)
    return "".join(lines)


# -- reading --------------------------------------------------------------------------------


def _pairs(lines: list[str], parent: YamlItem) -> list[tuple[str, Any]]:
    if _FLOW.match(parent.rest):
        value = _scalar(parent.rest)
        if isinstance(value, dict):
            return list(value.items())
        return [("", element) for element in value] if isinstance(value, list) else []
    return [(child.key, _value(lines, child)) for child in _children(lines, parent)]


def _value(lines: list[str], item: YamlItem) -> Any:
    if not item.key:  # an element: what stands behind its dash is a value of its own
        inner = [lines[item.start].replace("-", " ", 1), *lines[item.start + 1 : item.end]]
        if _KEY.match(inner[0]):
            mapping = YamlItem("", -1, -1, len(inner), "")
            return dict(_pairs(inner, mapping))
        return _scalar("".join(inner))
    if not _BLANK.match(item.rest) or item.end == item.start + 1:
        return _scalar(item.rest)
    pairs = _pairs(lines, item)
    return dict(pairs) if any(key for key, _ in pairs) else [value for _, value in pairs]


def _scalar(text: str) -> Any:
    """Return a value of one line: JSON, a word in quotes, or the text as it stands."""
    text = text.strip()
    try:
        return _decode(text)[0] if text[:1] in '"{[' and text else text.strip("'")
    except ValueError:  # a bare word of YAML, which JSON does not know
        return text
