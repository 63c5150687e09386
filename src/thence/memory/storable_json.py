"""What a store can hold of any JSON: Unicode text, numbers of 64 bits, so many levels.

Logs hold more: half of a character (a lone surrogate), numbers of any length, nesting without end.
Such a part is kept in the nearest form that every store can spell and every reader can read, and
costs nothing else: the half becomes U+FFFD, a number its digits, what is nested too deep its JSON
as text. What can be spelled stays what it is; spelling twice is spelling once.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import msgspec

from thence.agents import Cursor
from thence.format import codec
from thence.format.facts import Fact
from thence.format.records import JSON

UNSPELLABLE: Final = (UnicodeEncodeError, OverflowError, RecursionError)
"""What encoders raise where something must be put into another form first."""

MAX_LEVELS: Final = 200
"""So deep may a value be nested; readers recurse."""

encode = msgspec.json.Encoder().encode


def load(body: bytes) -> JSON:
    """Return a payload again."""
    try:
        return msgspec.json.decode(body)
    except RecursionError:  # the stack was deep already: its text is what can be shown
        return body.decode("utf-8", "replace")


def plain(value: JSON) -> JSON:
    """Return a copy of a value that can be spelled."""
    root: list[JSON] = [value]
    todo: list[tuple[Any, int]] = [(root, 0)]
    while todo:
        box, level = todo.pop()
        for at, part in list(box.items() if isinstance(box, dict) else enumerate(box)):
            if not isinstance(part, (dict, list, tuple)):
                box[at] = _scalar(part)
            elif level >= MAX_LEVELS:  # of a log's own value: those hold no tuples
                box[at] = _text(codec.dump(part).decode())
            else:
                box[at] = copy = _shallow_copy(part)
                todo.append((copy, level + 1))
    return root[0]


def plain_fact(fact: Fact) -> Fact:
    """Return a fact that can be spelled; its payloads are taken care of by `dump`."""
    bare = msgspec.structs.replace(
        fact,
        blocks=tuple(msgspec.structs.replace(block, payload=None) for block in fact.blocks),
        told=tuple(
            msgspec.structs.replace(status, output=plain(status.output)) for status in fact.told
        ),
        about=plain(fact.about),
    )
    made: Fact = msgspec.convert(plain(msgspec.to_builtins(bare)), Fact)
    blocks = tuple(
        msgspec.structs.replace(block, payload=old.payload)
        for block, old in zip(made.blocks, fact.blocks, strict=True)
    )
    return msgspec.structs.replace(made, blocks=blocks)


def plain_cursor(cursor: Cursor) -> Cursor:
    """Return a cursor that can be spelled: what an adapter remembers comes from the log."""
    marks = {
        _text(key): msgspec.structs.replace(mark, carry=plain(mark.carry))
        for key, mark in cursor.marks.items()
    }
    return Cursor(marks)


def _shallow_copy(part: JSON) -> dict[str, JSON] | list[JSON]:
    return {_text(key): v for key, v in part.items()} if isinstance(part, dict) else list(part)


def _scalar(part: JSON) -> JSON:
    if isinstance(part, str):
        return _text(part)
    if isinstance(part, Decimal) or (isinstance(part, int) and not -(2**63) <= part < 2**63):
        return str(part)
    return part


def _text(text: str) -> str:
    """Join the halves of characters that stand together, and mark those that stand alone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
