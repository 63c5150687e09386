"""A case: files as an agent writes them, and the correct answer to every question."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

MODEL = "claude-sonnet-4-20250514"
PRICES_USD_PER_MTOK = {"input": 3.0, "output": 15.0, "write": 3.75, "read": 0.3}
"""List prices of that model."""


def encode_lines(records: Iterable[Mapping[str, Any]]) -> bytes:
    """Return records as the clients write them: compact JSON, one per line."""
    return b"".join(
        json.dumps(record, separators=(",", ":")).encode() + b"\n" for record in records
    )


class Usage(msgspec.Struct, frozen=True):
    """Tokens of responses. Tokens that were read from a cache count only as `read`."""

    input: int = 0
    output: int = 0
    write: int = 0
    read: int = 0
    reasoning: int = 0
    """How many output tokens were reasoning; some tools count them separately."""

    def __add__(self, other: Usage) -> Usage:
        """Return the sum."""
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.write + other.write,
            self.read + other.read,
            self.reasoning + other.reasoning,
        )

    @property
    def total(self) -> int:
        """Return the number of all tokens."""
        return self.input + self.output + self.write + self.read

    @property
    def cost(self) -> float:
        """Return the price in dollars."""
        dollars = (
            self.input * PRICES_USD_PER_MTOK["input"] + self.output * PRICES_USD_PER_MTOK["output"]
        )
        dollars += (
            self.write * PRICES_USD_PER_MTOK["write"] + self.read * PRICES_USD_PER_MTOK["read"]
        )
        return dollars / 1e6


class Answers(msgspec.Struct, frozen=True):
    """The correct answers of a case."""

    sessions: int | None
    """How many are listed; None if a subagent may or may not count as one."""
    usage: Usage
    has_price: bool = False
    """Whether every tool can know the cost, because the model has a public price."""
    live_words: tuple[str, ...] = ()
    """Words of the conversation, which a search must find."""
    discarded_words: tuple[str, ...] = ()
    """Words of a discarded branch, which a search must find and mark as discarded."""
    never_discarded_words: tuple[str, ...] = ()
    """Words that a search must find and must not mark as discarded, though a link is missing."""
    secrets: tuple[str, ...] = ()
    """Texts that no file of a tool may contain."""


class Case(msgspec.Struct, frozen=True):
    """A session of one agent with one peculiarity."""

    agent: str
    name: str
    description: str
    plant: Callable[[Path], None]
    """Writes the files of the agent below a home."""
    answers: Answers
    changes: tuple[Callable[[Path], None], ...] = ()
    """Changes to the files after a tool has read them; the tool reads them again after each."""
