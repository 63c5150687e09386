"""A session of another agent as pi writes its own: one log, below the folder of its project.

A linear tree of entries. Every answer names an API, a provider and a model, which the client needs
to read it: those of the user's settings. Nothing was paid here, so usage is zero. Each entry says
whose it is; the client passes over what it does not know. Tried with version 0.74.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final

from thence.agents.handoffs import (
    HandoffHistory,
    HandoffSettings,
    HandoffWriter,
    image_data,
    message_runs,
    read_settings,
)
from thence.format.records import JSON, blocks, word

API: Final = "openai-completions"
PROVIDER, MODEL = "thence", "handed-over"
"""What stands for a model that nobody named; the client then takes its usual one."""
_NO_USAGE: Final = {
    **dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "totalTokens"), 0),
    "cost": dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "total"), 0),
}


def folder_name(cwd: str) -> str:
    """Return the name of a project's folder, as the client spells it."""
    return "--" + cwd.removeprefix("/").replace("/", "-").replace(":", "-") + "--"


def files(bound: HandoffHistory) -> dict[str, list[JSON]]:
    """Return the file of a session, by its place below the client's folder."""
    stamp = bound.time(0).replace(":", "-").replace(".", "-")
    return {
        f"sessions/{folder_name(bound.cwd)}/{stamp}_{bound.session}.jsonl": list(_entries(bound))
    }


def settings(root: Path) -> HandoffSettings:
    """Return the provider and the model of the client's settings."""
    named = read_settings(root / "settings.json")
    return HandoffSettings(
        word(named.get("defaultModel")) or None, word(named.get("defaultProvider")) or None
    )


def _entries(bound: HandoffHistory) -> Iterator[JSON]:
    start = bound.time(0)
    header = {"type": "session", "version": 3, "id": bound.session, "timestamp": start}
    yield {**header, "cwd": bound.cwd, "thenceHandoff": bound.provenance}
    parent: str | None = None
    tools = bound.tools
    entries = [
        entry for message in bound.messages for entry in _message_entries(bound, message, tools)
    ]
    if bound.title:
        entries.append({"type": "session_info", "name": bound.title})
    for number, entry in enumerate(entries):
        name = blake2b(f"{bound.session}:{number}".encode(), digest_size=4).hexdigest()
        place = {"id": name, "parentId": parent, "timestamp": bound.time(number)}
        yield {**entry, **place, "handedFrom": bound.provenance["from"]}
        parent = name


def _message_entries(bound: HandoffHistory, message: JSON, tools: dict[str, str]) -> Iterator[JSON]:
    """Yield the entries of one message."""
    for kind, run in message_runs(message):
        if kind == "answer":
            yield _message(bound, _answer(bound, run))
        elif kind == "words":
            yield _message(bound, {"role": "user", "content": _parts(run)})
        elif kind == "result":
            yield from (_message(bound, _result(block, tools)) for block in run)
        else:  # the model sees it; it is no prompt of the user's
            custom = {"type": "custom_message", "customType": "thence", "display": True}
            yield from ({**custom, "content": block["text"]} for block in run)


def _message(bound: HandoffHistory, message: JSON) -> JSON:
    return {"type": "message", "message": {**message, "timestamp": bound.milliseconds}}


def _answer(bound: HandoffHistory, content: list[JSON]) -> JSON:
    is_call = any(block.get("type") == "tool_use" for block in content)
    return {
        "role": "assistant",
        "content": [_answer_part(block) for block in content],
        "api": API,
        "provider": bound.provider or PROVIDER,
        "model": bound.model or MODEL,
        "usage": _NO_USAGE,
        "stopReason": "toolUse" if is_call else "stop",
    }


def _answer_part(block: JSON) -> JSON:
    if block.get("type") == "tool_use":
        arguments = {"name": block["name"], "arguments": block["input"]}
        return {"type": "toolCall", "id": block["id"], **arguments}
    return {"type": "text", "text": word(block.get("text"))}


def _result(block: JSON, tools: dict[str, str]) -> JSON:
    call = block["tool_use_id"]
    named = {"toolCallId": call, "toolName": tools.get(call, "")}
    content = _parts(blocks(block.get("content"))) or [{"type": "text", "text": ""}]
    is_error = block.get("is_error") is True
    return {"role": "toolResult", **named, "content": content, "isError": is_error}


def _parts(content: Iterable[JSON]) -> list[JSON]:
    return [_part(block) for block in content]


def _part(block: JSON) -> JSON:
    source = block.get("source")
    if block.get("type") != "image" or not isinstance(source, dict):
        return {"type": "text", "text": word(block.get("text"))}
    return image_data(source)


WRITER: Final = HandoffWriter(files, settings=settings, takes_failures=True)
