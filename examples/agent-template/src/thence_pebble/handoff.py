"""A session of another agent, written as Pebble writes its own."""

from __future__ import annotations

from collections.abc import Iterator

from thence.agents.handoffs import HandoffHistory, HandoffWriter
from thence.format.records import JSON, blocks, word


def files(bound: HandoffHistory) -> dict[str, list[JSON]]:
    """Return the one log of a session, by its place below Pebble's folder."""
    return {f"{bound.session}.jsonl": list(_records(bound))}


def _records(bound: HandoffHistory) -> Iterator[JSON]:
    yield {"cwd": bound.cwd, "handed": bound.provenance}
    before: str | None = None
    steps = [(m["role"], block) for m in bound.messages for block in blocks(m["content"])]
    for number, (role, block) in enumerate(steps):
        own = block["id"] if block.get("type") == "tool_use" else f"h{number}"
        yield {"id": own, "after": before, "at": bound.time(number), **_record(role, block)}
        before = own


def _record(role: str, block: JSON) -> JSON:
    if block.get("type") == "tool_use":
        return {"who": "pebble", "tool": block["name"], "given": block["input"]}
    if block.get("type") == "tool_result":
        texts = [word(part.get("text")) for part in blocks(block.get("content"))]
        return {"who": "tool", "of": block["tool_use_id"], "text": "\n".join(texts)}
    return {"who": "you" if role == "user" else "pebble", "text": word(block.get("text"))}


WRITER = HandoffWriter(files, takes=())
