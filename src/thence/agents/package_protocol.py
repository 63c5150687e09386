"""What `guard` and the process of a package say to each other: JSON, which runs nothing when read.

A question names the types of its arguments; an answer is plain values, which `guard` checks.
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from thence.agents import Cursor, Machine, Source
from thence.agents.handoffs import HandoffHistory
from thence.format.facts import Block

Question = tuple[str, bool, tuple[Any, ...]]
"""What is asked, whether the answer is a list that may end early, and the arguments."""

_OBJECTS: Final = (Path, Source, Cursor, Block, HandoffHistory, Machine, datetime)
"""What arguments are made of, besides plain values."""


def plain(value: Any) -> Any:
    """Return a value as builtins; the other side makes objects of them."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_path_text)


def _path_text(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} is no plain value")


def _path(kind: type, value: Any) -> Any:
    return kind(value)


def encode_question(question: Question) -> bytes:
    """Return a question as bytes; each argument has the place of its type beside it."""
    what, is_many, arguments = question
    kinds = [next((n for n, k in enumerate(_OBJECTS) if isinstance(a, k)), None) for a in arguments]
    return encode((what, is_many, kinds, plain(arguments)))


def decode_question(body: bytes) -> Question:
    """Return a question with its arguments made again."""
    what, is_many, kinds, values = json.loads(body)
    arguments = (
        value if kind is None else msgspec.convert(value, _OBJECTS[kind], dec_hook=_path)
        for kind, value in zip(kinds, values, strict=True)
    )
    return what, is_many, tuple(arguments)


def encode(value: Any) -> bytes:
    """Return plain values as JSON. Names of files may hold half characters, as `os` gives them."""
    return json.dumps(value, separators=(",", ":")).encode()
