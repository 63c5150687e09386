"""Cursors of the API: where the next page of a long answer begins."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from thence.errors import ThenceError

T = TypeVar("T")


class BadCursor(ThenceError):
    """A cursor that no page gave."""


class PagePosition(msgspec.Struct, frozen=True, array_like=True):
    """Where a page ended: so many came before, and the last of them was this one."""

    offset: int
    last: str = ""


_AT = msgspec.msgpack.Decoder(PagePosition)


def cursor_text(at: PagePosition) -> str:
    """Return a cursor as a text."""
    return urlsafe_b64encode(msgspec.msgpack.encode(at)).decode().rstrip("=")


def cursor_at(text: str | None) -> PagePosition:
    """Read a cursor back."""
    if text is None:
        return PagePosition(0)
    try:
        at = _AT.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError):
        at = PagePosition(-1)
    if not 0 <= at.offset < 1 << 40:
        raise BadCursor("invalid cursor", hint="start again without a cursor")
    return at


def paginate(items: Sequence[T], cursor: str | None, limit: int) -> tuple[list[T], str | None]:
    """Cut a page out of what is at hand as a whole."""
    start = cursor_at(cursor).offset
    end = start + limit
    return list(items[start:end]), cursor_text(PagePosition(end)) if end < len(items) else None
