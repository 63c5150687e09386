"""A session in Codex's own format: one rollout, below the day it was handed over.

Written in the legacy form, which every version since 0.39 goes on with: the items that the model
sees, and beside each message the event that a terminal shows it by. There is no turn context, so
that nothing says how much was once allowed. The session names the model provider of the user's
settings: the client's database takes it from there, and refuses to resume a session without one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from thence.agents.handoffs import (
    HandoffHistory,
    HandoffSettings,
    HandoffWriter,
    image_url,
    is_recorded,
    read_settings,
)
from thence.agents.records import fields
from thence.format.facts import RECORDED
from thence.format.records import JSON, blocks, word

WRITTEN_AS_VERSION: Final = "0.166.0"
"""The version that these records were tried with."""
_CUSTOM: Final = frozenset({"apply_patch", "exec"})
"""Tools whose input is a text and no JSON."""
DEFAULT_PROVIDER: Final = "openai"
"""The provider that the client uses when its settings name none."""


def files(history: HandoffHistory) -> dict[str, list[JSON]]:
    """Return the file of a session, by its place below the client's folder."""
    here = history.at.astimezone()  # names are in local time, as the client's own
    path = f"sessions/{here:%Y/%m/%d}/rollout-{here:%Y-%m-%dT%H-%M-%S}-{history.session}.jsonl"
    return {path: list(_lines(history))}


def configured_provider(root: Path) -> str:
    """Return the model provider of the client's settings: the active profile's, else the usual."""
    settings = read_settings(root / "config.toml")
    profile = fields(settings.get("profiles")).get(word(settings.get("profile")))
    own = word(fields(profile).get("model_provider"))
    return own or word(settings.get("model_provider")) or DEFAULT_PROVIDER


def _lines(history: HandoffHistory) -> Iterator[JSON]:
    start = history.time(0)
    meta = {
        "id": history.session,
        "timestamp": start,
        "cwd": history.cwd,
        "originator": "thence",
        "cli_version": WRITTEN_AS_VERSION,
        "source": "cli",
        "model_provider": history.provider or DEFAULT_PROVIDER,
    }
    lines = list(_copies(history, start))
    yield {"timestamp": start, "type": "session_meta", "payload": meta}
    # The lines up to this one are copies: they count where they were said.
    provenance = {**history.provenance, "lines": len(lines) + 2}
    yield {"timestamp": start, "type": "thence_handoff", "payload": provenance}
    yield from lines


def _copies(history: HandoffHistory, start: str) -> Iterator[JSON]:
    texts = {
        block["id"]
        for message in history.messages
        for block in blocks(message["content"])
        if block.get("type") == "tool_use" and _takes_text(block)
    }
    for message in history.messages:
        for item in _items(message, texts):
            yield {"timestamp": start, "type": "response_item", "payload": item}
            if (shown := _event_of(item)) is not None:
                yield {"timestamp": start, "type": "event_msg", "payload": shown}


def _items(message: JSON, texts: Collection[str]) -> Iterator[JSON]:
    """Yield the items of a message; `texts` are the calls whose input is a text."""
    role = message["role"]
    words: list[JSON] = []
    for block in blocks(message["content"]):
        kind = block.get("type")
        if kind == "tool_use":
            yield from _message(role, words)
            words = []
            yield _call(block)
        elif kind == "tool_result":
            call = block["tool_use_id"]
            form = "custom_tool_call_output" if call in texts else "function_call_output"
            yield {"type": form, "call_id": call, "output": _output(block.get("content"))}
        elif is_recorded(block):
            yield from _message(role, words)
            words = []
            yield from _message(role, [_part(block, role)])
        else:
            words.append(_part(block, role))
    yield from _message(role, words)


def _message(role: str, words: list[JSON]) -> Iterator[JSON]:
    if words:
        yield {"type": "message", "role": role, "content": words}


def _part(block: JSON, role: str) -> JSON:
    if block.get("type") == "image":
        return {"type": "input_image", "image_url": image_url(block["source"])}
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": kind, "text": word(block.get("text"))}


def _call(block: JSON) -> JSON:
    name, arguments = block["name"], block["input"]
    if _takes_text(block):
        call = {"name": name, "input": arguments["input"]}
        return {"type": "custom_tool_call", "call_id": block["id"], **call}
    out: JSON = {"type": "function_call", "name": name, "call_id": block["id"]}
    prefix, _, rest = name.partition("__")
    server, _, tool = rest.partition("__")
    if prefix == "mcp" and server and tool:
        out |= {"name": tool, "namespace": f"mcp__{server}"}
    return out | {"arguments": json.dumps(arguments, ensure_ascii=False)}


def _takes_text(block: JSON) -> bool:
    arguments = block["input"]
    text = arguments.keys() == {"input"} and isinstance(arguments["input"], str)
    return text and block["name"] in _CUSTOM


def _output(content: JSON) -> JSON:
    parts = blocks(content)
    if all(part.get("type") == "text" for part in parts):
        return "\n".join(word(part.get("text")) for part in parts)
    return [_part(part, "user") for part in parts]


def _event_of(item: JSON) -> JSON | None:
    """Return the event by which a terminal shows a message."""
    if item["type"] != "message":
        return None
    words = "\n".join(word(part.get("text")) for part in item["content"] if part.get("text"))
    if words.startswith(RECORDED):
        return None  # the model sees it; it is no prompt of the user's
    if item["role"] == "assistant":
        return {"type": "agent_message", "message": words}
    return {"type": "user_message", "message": words}


WRITER: Final = HandoffWriter(
    files, settings=lambda root: HandoffSettings(provider=configured_provider(root))
)
