"""Texts for Postgres: cleaned for its columns, escaped for COPY; its addresses and errors."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from thence.memory.store import uid_hash

_SPELLING = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_SPELLED = re.compile(r"[\\\t\n\r]")


def channel_of(tenant: str) -> str:
    """Name the channel on which changes of a tenant are told."""
    return f"thence_{uid_hash(tenant).hex()}"


def text(value: str) -> str:
    """Return a text as the database takes it; rows hold the original as bytes."""
    return value.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def clean_value(value: Any) -> Any:
    """Return a text as the database takes it; other values as they are."""
    return text(value) if isinstance(value, str) else value


def copy_text(value: str | None) -> str:
    """Spell a text for COPY."""
    if value is None:
        return "\\N"
    value = text(value)
    if _SPELLED.search(value) is None:
        return value
    return _SPELLED.sub(lambda match: _SPELLING[match[0]], value)


def split_address(url: str) -> tuple[str, dict[str, str]]:
    """Return the address for the database, and the tenant and machine that it names."""
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    own = {name: text(value) for name, value in pairs if name in ("tenant", "machine")}
    rest = urlencode([(name, value) for name, value in pairs if name not in own])
    return urlunsplit(parts._replace(query=rest)), own


def first_line(error: BaseException) -> str:
    """Return the first line of what the database says."""
    return (str(error).strip() or repr(error)).partition("\n")[0]


def lock_key(*names: str) -> int:
    """Return the number of an advisory lock."""
    digest = blake2b("\0".join(names).encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
