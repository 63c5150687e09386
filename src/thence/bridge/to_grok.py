"""A session in Grok's own format: a folder with its card, its log and what the model is shown.

The client goes on with a folder that holds `summary.json` and `chat_history.jsonl`; the log is
written as well, for whoever shows the session. The card must name a model: the one of the user's
settings, else none, which the client takes for its own. Tried with version 1.0.41. Nothing here
speaks of permissions.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from thence.bridge.portable import Bound
from thence.format.records import JSON, blocks, word


def files(bound: Bound) -> dict[str, list[JSON]]:
    """Give the files of a session, by their place below the client's folder."""
    # An absolute path begins with %2F: no folder above this one can be meant.
    folder = f"sessions/{quote(bound.cwd, safe='', errors='replace')}/{bound.session}"
    chat = [row for message in bound.messages for row in _rows(message, bound)]
    prompt = 0
    for row in chat:
        if row["type"] == "user":
            row["prompt_index"] = prompt
            prompt += 1
    updates = list(_updates(bound))
    return {
        f"{folder}/summary.json": [_card(bound, len(updates), len(chat))],
        f"{folder}/chat_history.jsonl": chat,
        f"{folder}/updates.jsonl": updates,
    }


def resume(bound: Bound) -> list[str]:
    """Give the command that goes on with it."""
    return ["grok", "-r", bound.session]


def usual_model(root: Path) -> str | None:
    """Give the model that the client's settings name."""
    try:
        told = tomllib.loads((root / "config.toml").read_text())
    except (OSError, ValueError, RecursionError):
        return None
    models = told.get("models")
    named = models.get("default") if isinstance(models, dict) else None
    return named if isinstance(named, str) else None


def _card(bound: Bound, updates: int, rows: int) -> JSON:
    now = bound.time(0)
    return {
        "info": {"id": bound.session, "cwd": bound.cwd},
        "session_summary": bound.title or "",
        "created_at": now,
        "updated_at": now,
        "last_active_at": now,
        "num_messages": updates,
        "num_chat_messages": rows,
        "current_model_id": bound.model or "",
        "chat_format_version": 1,
        "thence_handoff": bound.provenance,
    }


def _rows(message: JSON, bound: Bound) -> Iterator[JSON]:
    """Give what the model is shown."""
    given = blocks(message["content"])
    if message["role"] == "assistant":
        said = "\n\n".join(word(b.get("text")) for b in given if b.get("type") == "text")
        row: JSON = {"type": "assistant", "content": said, "model_id": bound.model or ""}
        calls = [
            {"id": b["id"], "name": b["name"], "arguments": json.dumps(b["input"])}
            for b in given
            if b.get("type") == "tool_use"
        ]
        yield row | ({"tool_calls": calls} if calls else {})
        return
    words = []
    for block in given:
        if block.get("type") == "tool_result":
            content = _flat(block.get("content"))
            yield {"type": "tool_result", "tool_call_id": block["tool_use_id"], "content": content}
        elif block.get("type") == "image":
            words.append({"type": "image", "url": _url(block["source"])})
        else:
            asked = f"<user_query>\n{word(block.get('text'))}\n</user_query>"
            words.append({"type": "text", "text": asked})
    if words:
        yield {"type": "user", "content": words}


def _flat(content: JSON) -> str:
    parts = blocks(content)
    return "\n".join(word(p.get("text")) or f"[{p.get('type')}]" for p in parts)


def _url(source: JSON) -> str:
    if source.get("type") == "url":
        return word(source.get("url"))
    return f"data:{word(source.get('media_type'))};base64,{word(source.get('data'))}"


# -- the log --------------------------------------------------------------------------------


def _updates(bound: Bound) -> Iterator[JSON]:
    """Give what a terminal shows."""
    prompt = 0
    shown = [update for message in bound.messages for update in _shown(message)]
    for number, update in enumerate(shown, 1):
        if update["sessionUpdate"] == "user_message_chunk":
            update["_meta"] = {"promptIndex": prompt}
            prompt += 1
        yield _line(bound, number, "session/update", update)
    if bound.messages[-1]["role"] == "assistant":  # at rest, and not still at it
        ended = {
            "sessionUpdate": "turn_completed",
            "prompt_id": bound.session,
            "stop_reason": "end_turn",
            "usage": {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0, "modelCalls": 0},
        }
        yield _line(bound, len(shown) + 1, "_x.ai/session/update", ended)


def _line(bound: Bound, number: int, method: str, update: JSON) -> JSON:
    moment = bound.at.timestamp()
    # Named by the session it was said in, as the client does with a fork: a copy counts once.
    event = {
        "eventId": f"{bound.provenance['from']}-{number}",
        "agentTimestampMs": int(moment * 1000),
        "thence_handoff": bound.provenance["event"],
    }
    params = {"sessionId": bound.session, "update": update, "_meta": event}
    return {"timestamp": int(moment), "method": method, "params": params}


def _shown(message: JSON) -> Iterator[JSON]:
    """Give a message as its chunks: what is said in one go is one of them."""
    whose = "agent" if message["role"] == "assistant" else "user"
    words: list[str] = []
    for block in blocks(message["content"]):
        kind = block.get("type")
        if kind == "text":
            words.append(word(block.get("text")))
            continue
        yield from _chunk(whose, words)
        words = []
        if kind == "tool_use":
            yield {
                "sessionUpdate": "tool_call",
                "toolCallId": block["id"],
                "title": block["name"],
                "rawInput": block["input"],
                "_meta": {"x.ai/tool": {"name": block["name"]}},
            }
        elif kind == "tool_result":
            text = {"type": "text", "text": _flat(block.get("content"))}
            yield {
                "sessionUpdate": "tool_call_update",
                "toolCallId": block["tool_use_id"],
                "status": "failed" if block.get("is_error") else "completed",
                "content": [{"type": "content", "content": text}],
            }
    yield from _chunk(whose, words)


def _chunk(whose: str, words: list[str]) -> Iterator[JSON]:
    if words:
        content = {"type": "text", "text": "\n\n".join(words)}
        yield {"sessionUpdate": f"{whose}_message_chunk", "content": content}
