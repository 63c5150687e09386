"""Records of sessions as JSON objects, for files that other machines and programs read.

A *frame* is a record as an object: what it is, where it was, which record it follows, what it
cost. `frame_of` and `fact_in` are exact: a session that comes back is the session that went out. A
`Parcel` is all that a file says of one session.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec

from thence.errors import NotReadable
from thence.format import fact_assembly
from thence.format.facts import Block, Edge, Fact, check_values
from thence.format.record_order import in_written_order, name_repeats
from thence.format.records import JSON
from thence.memory.store import ImportedFrom

if TYPE_CHECKING:
    from thence.agents.sessions import Generation

_DERIVED: Final = ("ref", "effect", "evidence", "tone")
"""Fields of a block that are made of its payload, or that say where this machine keeps it."""


class Parcel(msgspec.Struct, omit_defaults=True):
    """One session as a file brings it."""

    uid: str
    facts: list[Fact]
    torn: bool = False
    replayed: frozenset[str] = frozenset()
    billed: frozenset[str] = frozenset()
    ties: tuple[Edge, ...] = ()
    name: str | None = None
    """What its user calls it."""
    tags: tuple[str, ...] = ()
    imported: ImportedFrom | None = None
    """The file that the machine has it from; told to machines of the same user alone."""

    @property
    def content_hash(self) -> str:
        """A hash over all that the file says of the session."""
        body = msgspec.json.encode([self.uid, self.torn, [frame_of(fact) for fact in self.facts]])
        return blake2b(body, digest_size=16).hexdigest()


def parcel_of(generation: Generation) -> Parcel:
    """Return a session that was read, as it goes into a file."""
    return Parcel(
        generation.uid,
        records_of(generation.facts),
        generation.torn,
        *(generation.replayed, generation.billed, generation.ties),
    )


def records_of(facts: Iterable[Fact]) -> list[Fact]:
    """Return records in written order, texts in pieces joined, each under a name of its own."""
    return name_repeats(in_written_order(fact_assembly.join_pieces(list(facts))))


def frame_of(fact: Fact, blocks: Sequence[JSON] | None = None) -> dict[str, JSON]:
    """Return a record as an object; `blocks` stand for its own where a file has their texts."""
    frame: dict[str, JSON] = msgspec.to_builtins(msgspec.structs.replace(fact, blocks=()))
    if fact.blocks:
        frame["blocks"] = [block_of(b) for b in fact.blocks] if blocks is None else list(blocks)
    return frame


def block_of(block: Block) -> dict[str, JSON]:
    """Return a block as an object, without what is made of its payload."""
    bare = msgspec.structs.replace(block, **dict.fromkeys(_DERIVED[:3]), tone="")
    return msgspec.to_builtins(bare)  # type: ignore[no-any-return]


def fact_in(frame: JSON) -> Fact:
    """Return the record of an object; NotReadable when it is none, or one that nobody can store."""
    try:
        fact = msgspec.convert(frame, Fact)
        check_values(fact)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise NotReadable(f"not a record of thence: {error}", hint="export it again") from error
    return fact


def head_of(parcel: Parcel) -> dict[str, JSON]:
    """Return what a file says of a session beside its records."""
    bare = msgspec.structs.replace(parcel, facts=[], name=parcel.name or None)
    head: dict[str, JSON] = msgspec.to_builtins(bare, order="deterministic")
    del head["facts"]
    return head


def parcel_in(head: JSON, facts: list[Fact]) -> Parcel:
    """Return the session of an object that `head_of` made, and its records."""
    try:
        parcel = msgspec.convert({**head, "facts": []}, Parcel)
    except (msgspec.ValidationError, TypeError) as error:
        raise NotReadable(f"not a session of thence: {error}", hint="export it again") from error
    parcel.facts = facts
    return parcel
