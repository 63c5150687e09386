"""Writes a session of another agent as a session of Pebble, for `thence resume --with pebble`."""

from __future__ import annotations

from collections.abc import Iterator

from thence.agents.handoffs import HandoffHistory, HandoffWriter
from thence.format.records import JSON, blocks, word


def session_files(history: HandoffHistory) -> dict[str, list[JSON]]:
    """Return the records of each file, by its path below Pebble's folder: a single log."""
    return {f"{history.session}.jsonl": list(_records(history))}


def _records(history: HandoffHistory) -> Iterator[JSON]:
    """Yield a record about the session, then one per block; each names the one before it."""
    yield {"cwd": history.cwd, "handoff": history.provenance}
    parent: str | None = None
    steps = [(m["role"], block) for m in history.messages for block in blocks(m["content"])]
    for number, (role, block) in enumerate(steps):
        record_id = block["id"] if block.get("type") == "tool_use" else f"h{number}"
        links = {"id": record_id, "parent": parent, "time": history.time(number)}
        yield links | _content(role, block)
        parent = record_id


def _content(role: str, block: JSON) -> dict[str, JSON]:
    """Return the fields of a record that hold a block of a message."""
    if block.get("type") == "tool_use":
        return {"speaker": "pebble", "tool": block["name"], "input": block["input"]}
    if block.get("type") == "tool_result":
        texts = [word(part.get("text")) for part in blocks(block.get("content"))]
        return {"speaker": "tool", "call": block["tool_use_id"], "text": "\n".join(texts)}
    speaker = "user" if role == "user" else "pebble"
    return {"speaker": speaker, "text": word(block.get("text"))}


WRITER = HandoffWriter(session_files, takes=())
