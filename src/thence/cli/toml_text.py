"""Changes of TOML text in which everything else stays byte for byte: comments, order, spaces.

tomlkit knows where a value stands; this module says which one comes or goes. Every change is read
back with the standard library's reader, and refused unless it says what it should and nothing else.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tomlkit.container import Container
    from tomlkit.items import Item, Key

    Body = list[tuple[Key | None, Item]]

BOM = "\ufeff"


class NotEditable(ValueError):
    """The text cannot be changed so that it says what it should and nothing else."""


def parse(text: str) -> dict[str, Any]:
    """Return what a text says. A text that is not TOML raises ValueError or RecursionError."""
    return tomllib.loads(text.removeprefix(BOM))


def with_value(text: str, path: Sequence[str], value: Any, comment: str = "") -> str:
    """Return the text with a value at a path: in its place, first in its table, or in a new one.

    The comment stands behind what is new: the value, and the header of its table.
    """
    import tomlkit

    wanted = _merge(parse(text), path, value)
    *parents, name = path
    document = _read(text)
    item = tomlkit.item(value)
    if comment:
        item.comment(comment)
    place = _find(document.body, path)
    if place is not None:
        body, at = place
        key, old = body[at]
        item.trivia.indent, item.trivia.trail = old.trivia.indent, old.trivia.trail
        if not comment:
            item.trivia.comment_ws, item.trivia.comment = old.trivia.comment_ws, old.trivia.comment
        body[at] = key, item
        return _checked(_write(text, document), wanted)
    for body in _tables(document.body, parents):
        # First, because a comment before the next key or table is about that.
        body.insert(0, (tomlkit.key(name), item))
        after = _write(text, document)
        if _says(after, wanted):
            return after
        del body[0]
    return _checked(_append(text, _header(parents, comment) + _pairs({name: item})), wanted)


def with_table(
    text: str, path: Sequence[str], values: Mapping[str, Any], *, is_list: bool = False
) -> str:
    """Return the text with one more table at its end, or one more element of a list of tables."""
    gap = "\n" if text.strip() else ""
    return _append(text, gap + render(path, values, is_list=is_list))


def render(path: Sequence[str], values: Mapping[str, Any], *, is_list: bool = False) -> str:
    """Return a table as text; tables inside it stand in one line each."""
    header = _header(path)
    return (f"[{header[:-1]}]\n" if is_list else header) + _pairs(values)


def _header(path: Sequence[str], comment: str = "") -> str:
    import tomlkit

    return f"[{tomlkit.key(path).as_string()}]{f'  # {comment}' if comment else ''}\n"


def _pairs(values: Mapping[str, Any]) -> str:
    import tomlkit

    document = tomlkit.document()
    for name, value in values.items():
        table = tomlkit.inline_table()
        document.append(name, table.update(value) or table if isinstance(value, dict) else value)
    return document.as_string()


def _append(text: str, more: str) -> str:
    """Return a text with more lines; one that ends without a newline still does."""
    if not text or text.endswith("\n"):
        return text + more
    return f"{text}\n{more}".removesuffix("\n")


def without(
    text: str,
    path: Sequence[str],
    is_ours: Callable[[Any], bool] = lambda _value: True,
    *,
    keep_comment: bool = True,
) -> str:
    """Return the text without our values at a path: it, or some of a list of tables.

    A comment behind a value stays; the blank line before a table goes with it.
    """
    from tomlkit.items import AoT, Comment, Table, Trivia

    document = _read(text)
    while (place := _find(document.body, path, is_ours)) is not None:
        body, at = place
        _, item = body[at]
        if isinstance(item, AoT):
            item.body[:] = [table for table in item.body if not is_ours(table.unwrap())]
            if item.body:
                continue
        trivia = item.trivia
        if keep_comment and trivia.comment and not isinstance(item, Table | AoT):
            body[at] = None, Comment(Trivia("", "", trivia.comment, trivia.trail))
        else:
            del body[at]
    return _close_gap(text, _write(text, document))


def with_first(text: str, path: Sequence[str], words: Sequence[str]) -> str:
    """Return the text with these words before those of a list, whose own text stays as it is."""
    prefix = "".join(f"{_quote(word)}, " for word in words)
    return _with_list(text, path, lambda old: f"[{prefix}{old[1:]}")


def without_first(text: str, path: Sequence[str], last: str) -> str:
    """Return the text with a list that begins behind this word of it."""
    end = f"{_quote(last)}, "
    return _with_list(text, path, lambda old: f"[{old.partition(end)[2]}")


def _with_list(text: str, path: Sequence[str], change: Callable[[str], str]) -> str:
    """Return the text with the list at a path written otherwise."""
    document = _read(text)
    place = _find(document.body, path)
    if place is None:
        raise NotEditable(f"{path[-1]}: not set")
    body, at = place
    key, old = body[at]
    new = _read(f"x = {change(old.as_string())}").body[0][1]
    new.trivia.__dict__.update(old.trivia.__dict__)
    body[at] = key, new
    return _write(text, document)


def _quote(word: str) -> str:
    import tomlkit

    return tomlkit.string(word).as_string()


def comment_of(text: str, path: Sequence[str]) -> str:
    """Return the comment behind a value, without its sign; empty where there is none."""
    place = _find(_read(text).body, path)
    return place[0][place[1]][1].trivia.comment.removeprefix("#").strip() if place else ""


# -- where things stand ---------------------------------------------------------------------


def _find(
    body: Body, path: Sequence[str], is_ours: Callable[[Any], bool] = lambda _value: True
) -> tuple[Body, int] | None:
    """Return the list in which a value stands, and its index there."""
    from tomlkit.items import AoT

    for parent in _tables(body, path[:-1]):
        for at, (key, item) in enumerate(parent):
            if key is not None and key.key == path[-1]:
                value = item.unwrap()
                if any(map(is_ours, value if isinstance(item, AoT) else [value])):
                    return parent, at
    return None


def _tables(body: Body, path: Sequence[str]) -> Iterator[Body]:
    """Yield the contents of the tables at a path; one may be written in several places."""
    from tomlkit.items import AbstractTable

    if not path:
        yield body
        return
    for key, item in body:
        if key is not None and key.key == path[0] and isinstance(item, AbstractTable):
            yield from _tables(item.value.body, path[1:])


# -- reading and writing --------------------------------------------------------------------


def _read(text: str) -> Container:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    bare = text.removeprefix(BOM)
    try:
        document = tomlkit.parse(bare)
    except TOMLKitError as error:
        raise NotEditable(f"not TOML: {error}") from error
    # tomlkit does not write back every text as it was: such a one is not touched.
    if document.as_string() != bare:
        raise NotEditable("it would be written in another form")
    return document


def _write(text: str, document: Container) -> str:
    return (BOM if text.startswith(BOM) else "") + document.as_string()


def _says(text: str, wanted: dict[str, Any]) -> bool:
    try:
        return parse(text) == wanted
    except ValueError:
        return False


def _checked(text: str, wanted: dict[str, Any]) -> str:
    if not _says(text, wanted):
        raise NotEditable("no safe place to write to")
    return text


def _merge(data: dict[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    name, *rest = path
    if not rest:
        return {**data, name: value}
    inner = data.get(name, {})
    if not isinstance(inner, dict):
        raise NotEditable(f"{name}: not a table")
    return {**data, name: _merge(inner, rest, value)}


def _close_gap(text: str, after: str) -> str:
    """Return the text without the blank line before what was last in it; it ends as it did."""
    if text == after or not text.startswith(after):
        return after
    after = after[:-1] if after.endswith("\n\n") else after
    return after if text.endswith("\n") else after.removesuffix("\n")
