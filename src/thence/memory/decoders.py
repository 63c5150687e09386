"""Decoders that are made when they are first used.

To make one looks at every field of a type and of all types in it. Most commands need few of them,
and a sweep that finds nothing new hardly any. Otherwise they are what msgspec makes.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

import msgspec

T = TypeVar("T")


class _LateDecoder(Generic[T]):
    """Stands for a decoder; asked for anything it becomes one, and is as quick then."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def __getattr__(self, name: str) -> object:
        """Make the decoder, once: its method is found without this the next time."""
        made = getattr(msgspec.msgpack.Decoder(self._kind), name)
        self.__dict__[name] = made
        return made


def late_decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]:
    """Return what `msgspec.msgpack.Decoder` would, later."""
    return cast("msgspec.msgpack.Decoder[T]", _LateDecoder(kind))
