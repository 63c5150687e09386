"""What a case is: files as an agent writes them, and the one right answer to every question."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

OUR_MODEL = "claude-sonnet-4-20250514"
PRICES = {"input": 3.0, "output": 15.0, "write": 3.75, "read": 0.3}
"""Dollars per million tokens of that model, as its maker lists them."""


def lines_of(records: Iterable[Mapping[str, Any]]) -> bytes:
    """Records as the clients write them: no space between, an LF behind each."""
    return b"".join(json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in records)


class Usage(msgspec.Struct, frozen=True):
    """Tokens of some responses. What was read from a cache is in no other figure."""

    input: int = 0
    output: int = 0
    write: int = 0
    read: int = 0
    thought: int = 0
    """How many of the output were thoughts; some tools tell them apart from it."""

    def __add__(self, other: Usage) -> Usage:
        """Add up."""
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.write + other.write,
            self.read + other.read,
            self.thought + other.thought,
        )

    @property
    def total(self) -> int:
        """All of them."""
        return self.input + self.output + self.write + self.read

    @property
    def cost(self) -> float:
        """What they cost, in dollars."""
        dollars = self.input * PRICES["input"] + self.output * PRICES["output"]
        dollars += self.write * PRICES["write"] + self.read * PRICES["read"]
        return dollars / 1e6


class Answers(msgspec.Struct, frozen=True):
    """What is true of a case."""

    sessions: int | None
    """How many are listed; None where a subagent may be called one or not."""
    usage: Usage
    priced: bool = False
    """Whether the cost can be told by everybody: a model with a public price."""
    live: tuple[str, ...] = ()
    """Words that are in the conversation and must be found."""
    dead: tuple[str, ...] = ()
    """Words of a branch that was left: to be found, and told as such."""
    not_dead: tuple[str, ...] = ()
    """Words that nobody left, though a link is missing: to be found, and not told as dead."""
    secrets: tuple[str, ...] = ()
    """What must be in no file that a tool writes."""


class Case(msgspec.Struct, frozen=True):
    """One oddity of one agent."""

    agent: str
    name: str
    about: str
    plant: Callable[[Path], None]
    """Write the files of the agent below a home."""
    answers: Answers
    later: tuple[Callable[[Path], None], ...] = ()
    """What happens to the files after a tool has read them; it reads them again after each."""
