"""Facts with the payloads that lie apart from them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from thence.errors import ThenceError
from thence.format.facts import (
    Block,
    Fact,
)
from thence.format.records import Skipped
from thence.memory import storable_json
from thence.memory.packs import BlobStore, read_all


def with_payloads(facts: Iterable[Fact], blobs: BlobStore) -> list[Fact]:
    """Return facts as they were read: payloads in their place."""
    facts = list(facts)
    bodies = read_all(blobs, [b.ref for f in facts for b in f.blocks if b.ref is not None])
    for at, fact in enumerate(facts):
        blocks = tuple([_with_payload(block, bodies) for block in fact.blocks])
        if blocks != fact.blocks:
            facts[at] = msgspec.structs.replace(fact, blocks=blocks)
    return facts


def salvage_payloads(
    facts: Sequence[Fact], blobs: BlobStore, path: str
) -> tuple[list[Fact], list[Skipped]]:
    """Return facts with all payloads that can be read, and the records that lack some."""
    with contextlib.suppress(ThenceError):  # the common case in one go; record by record below
        return with_payloads(facts, blobs), []
    out: list[Fact] = []
    broken: list[Skipped] = []
    for fact in facts:
        try:
            out += with_payloads([fact], blobs)
        except ThenceError as error:
            why = f"its text is unavailable: {error.message}"
            broken.append(Skipped(fact.line, fact.offset, 0, why, source=path))
            blocks = tuple(msgspec.structs.replace(block, ref=None) for block in fact.blocks)
            out.append(msgspec.structs.replace(fact, blocks=blocks))
    return out, broken


def _with_payload(block: Block, bodies: Iterator[bytes]) -> Block:
    if block.ref is None:
        return block
    return msgspec.structs.replace(
        block, payload=storable_json.load(next(bodies))
    )  # all fields stay
