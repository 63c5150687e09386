"""A session in Grok's own format: a folder with its card, its log and what the model is shown.

The client goes on with a folder that holds `summary.json` and `chat_history.jsonl`; the log is
written as well, for whoever shows the session. The card must name a model: the one of the user's
settings, else none, which the client takes for its own. Tried with version 1.0.41. Nothing here
speaks of permissions.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final
from urllib.parse import quote

from thence.agents.handoffs import (
    HandoffHistory,
    HandoffSettings,
    HandoffWriter,
    image_data,
    image_url,
    read_settings,
    runs,
)
from thence.agents.records import fields, text
from thence.format.records import JSON, blocks, word


def files(history: HandoffHistory) -> dict[str, list[JSON]]:
    """Return the files of a session, by their place below the client's folder."""
    # An absolute path begins with %2F: no folder above this one can be meant.
    folder = f"sessions/{quote(history.cwd, safe='', errors='replace')}/{history.session}"
    chat = [row for message in history.messages for row in _rows(message, history)]
    prompt = 0
    for row in chat:
        if row["type"] == "user" and "synthetic_reason" not in row:
            row["prompt_index"] = prompt
            prompt += 1
    updates = list(_updates(history))
    return {
        f"{folder}/summary.json": [_card(history, len(updates), len(chat))],
        f"{folder}/chat_history.jsonl": chat,
        f"{folder}/updates.jsonl": updates,
    }


def usual_model(root: Path) -> str | None:
    """Return the model that the client's settings name."""
    return text(fields(read_settings(root / "config.toml").get("models")).get("default"))


def _card(history: HandoffHistory, updates: int, rows: int) -> JSON:
    now = history.time(0)
    return {
        "info": {"id": history.session, "cwd": history.cwd},
        "session_summary": history.title or "",
        "created_at": now,
        "updated_at": now,
        "last_active_at": now,
        "num_messages": updates,
        "num_chat_messages": rows,
        "current_model_id": history.model or "",
        "chat_format_version": 1,
        "thence_handoff": history.provenance,
    }


def _rows(message: JSON, history: HandoffHistory) -> Iterator[JSON]:
    """Yield what the model is shown."""
    parts = blocks(message["content"])
    if message["role"] == "assistant":
        words = "\n\n".join(word(b.get("text")) for b in parts if b.get("type") == "text")
        row: JSON = {"type": "assistant", "content": words, "model_id": history.model or ""}
        calls = [
            {"id": b["id"], "name": b["name"], "arguments": json.dumps(b["input"])}
            for b in parts
            if b.get("type") == "tool_use"
        ]
        yield row | ({"tool_calls": calls} if calls else {})
        return
    for kind, run in runs(parts):
        if kind == "words":
            yield {"type": "user", "content": [_user_part(block) for block in run]}
            continue
        for block in run:
            if kind == "result":
                yield _result(block)
            else:  # no prompt: the client's own mark for such texts
                text = {"type": "text", "text": block["text"]}
                yield {"type": "user", "content": [text], "synthetic_reason": "system_reminder"}


def _user_part(block: JSON) -> JSON:
    if block.get("type") == "image":
        return {"type": "image", "url": image_url(block["source"])}
    return {"type": "text", "text": f"<user_query>\n{word(block.get('text'))}\n</user_query>"}


def _result(block: JSON) -> JSON:
    row = {"type": "tool_result", "tool_call_id": block["tool_use_id"]}
    row["content"] = _texts(block.get("content"))
    images = [{"type": "image", "url": image_url(part["source"])} for part in _images(block)]
    return row | ({"images": images} if images else {})


def _texts(content: JSON) -> str:
    return "\n".join(word(p.get("text")) for p in blocks(content) if p.get("type") == "text")


def _images(block: JSON) -> list[JSON]:
    return [part for part in blocks(block.get("content")) if part.get("type") == "image"]


# -- the log --------------------------------------------------------------------------------


def _updates(history: HandoffHistory) -> Iterator[JSON]:
    """Yield what a terminal shows."""
    prompts = itertools.count()
    shown = [
        update for message in history.messages for update in _message_updates(message, prompts)
    ]
    for number, update in enumerate(shown, 1):
        yield _line(history, number, "session/update", update)
    if history.messages[-1]["role"] == "assistant":  # at rest, and not still at it
        ended = {
            "sessionUpdate": "turn_completed",
            "prompt_id": history.session,
            "stop_reason": "end_turn",
            "usage": {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0, "modelCalls": 0},
        }
        yield _line(history, len(shown) + 1, "_x.ai/session/update", ended)


def _line(history: HandoffHistory, number: int, method: str, update: JSON) -> JSON:
    moment = history.at.timestamp()
    # Named by the session it was said in, as the client does with a fork: a copy counts once.
    event = {
        "eventId": f"{history.provenance['from']}-{number}",
        "agentTimestampMs": int(moment * 1000),
        "thence_handoff": history.provenance["event"],
    }
    params = {"sessionId": history.session, "update": update, "_meta": event}
    return {"timestamp": int(moment), "method": method, "params": params}


def _message_updates(message: JSON, prompts: Iterator[int]) -> Iterator[JSON]:
    """Yield a message as its chunks: what is said in one go is one of them."""
    for kind, run in runs(blocks(message["content"])):
        if kind == "result":
            yield from map(_result_update, run)
        elif message["role"] == "assistant":
            yield from _answer(run)
        elif kind == "recorded":
            yield from (_chunk("user", {"type": "text", "text": block["text"]}) for block in run)
        else:
            meta = {"_meta": {"promptIndex": next(prompts)}}
            yield from (_chunk("user", part) | meta for part in _chunk_parts(run))


def _answer(run: Iterable[JSON]) -> Iterator[JSON]:
    for calls, some in groupby(run, key=lambda block: block.get("type") == "tool_use"):
        if calls:
            yield from map(_call_update, some)
        else:
            yield from (_chunk("agent", part) for part in _chunk_parts(some))


def _chunk_parts(run: Iterable[JSON]) -> Iterator[JSON]:
    """Yield texts joined, and images, as the parts of chunks."""
    for is_image, some in groupby(run, key=lambda block: block.get("type") == "image"):
        if is_image:
            yield from (image_data(block["source"]) for block in some)
        else:
            yield {"type": "text", "text": "\n\n".join(word(b.get("text")) for b in some)}


def _call_update(block: JSON) -> JSON:
    return {
        "sessionUpdate": "tool_call",
        "toolCallId": block["id"],
        "title": block["name"],
        "rawInput": block["input"],
        "_meta": {"x.ai/tool": {"name": block["name"]}},
    }


def _result_update(block: JSON) -> JSON:
    text = {"type": "text", "text": _texts(block.get("content"))}
    parts = [text, *(image_data(part["source"]) for part in _images(block))]
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": block["tool_use_id"],
        "status": "failed" if block.get("is_error") else "completed",
        "content": [{"type": "content", "content": part} for part in parts],
    }


def _chunk(whose: str, content: JSON) -> JSON:
    return {"sessionUpdate": f"{whose}_message_chunk", "content": content}


WRITER: Final = HandoffWriter(
    files, settings=lambda root: HandoffSettings(model=usual_model(root)), is_folder=True
)
