"""The rules of the Messages API, read from its reference: why a list of messages is refused.

Written apart from the program, which mends histories by the same rules: it shares no code with it,
so that one checks the other. `refusals` is as strict as the real server or stricter.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGM4IScHAAK2AQU0pnWqAAAAAElFTkSuQmCC"
"""A picture of one pixel, in base64."""

ID = re.compile(r"^[a-zA-Z0-9_-]+\Z")
TOOL = re.compile(r"^[a-zA-Z0-9_-]{1,128}\Z")
IMAGES = {
    "image/png": b"\x89PNG",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}
FIELDS = {
    "text": {"text"},
    "image": {"source"},
    "document": {"source"},
    "tool_use": {"id", "name", "input"},
    "tool_result": {"tool_use_id"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
}
"""What each block must have beside its type."""
OPTIONAL = {"tool_result": {"content", "is_error"}}
SPEAKERS = {
    "user": {"text", "image", "document", "tool_result"},
    "assistant": {"text", "tool_use", "thinking", "redacted_thinking"},
}


def refusals(messages: Any) -> list[str]:
    """Return every reason for which the API would refuse the list."""
    try:
        body = json.dumps(messages, ensure_ascii=False, allow_nan=False).encode()
        if json.loads(body) != messages:
            return ["it is not what JSON gives back"]
    except (ValueError, TypeError, RecursionError) as error:
        return [f"no JSON in UTF-8: {error}"]
    return list(_messages(messages))


def _messages(messages: list[Any]) -> Iterator[str]:
    ids: set[str] = set()
    waiting: list[str] = []
    for at, message in enumerate(messages):
        where = f"messages.{at}"
        if set(message) != {"role", "content"}:
            yield f"{where}: fields {sorted(message)}"
        if message["role"] != ("assistant" if at % 2 else "user"):
            yield f"{where}: roles must alternate, the user first"
        content = message["content"]
        if not isinstance(content, list) or not content:
            yield f"{where}: content must be a list that is not empty"
            continue
        for place, block in enumerate(content):
            for why in _block(block, message["role"]):
                yield f"{where}.content.{place}: {why}"
        yield from (f"{where}: {why}" for why in _pairs(content, waiting))
        waiting = [block["id"] for block in content if block.get("type") == "tool_use"]
        if len(ids | set(waiting)) != len(ids) + len(waiting):
            yield f"{where}: an id twice"
        ids.update(waiting)
        if message["role"] == "assistant" and content[-1].get("type", "").endswith("thinking"):
            yield f"{where}: the last block is a thought"
    if waiting:
        yield f"calls without results at the end: {waiting}"


def _pairs(content: list[Any], waiting: list[str]) -> Iterator[str]:
    """Results of all waiting calls, once each, before anything else."""
    kinds = [block.get("type") for block in content]
    results = [block["tool_use_id"] for block in content if block.get("type") == "tool_result"]
    if sorted(results) != sorted(waiting):
        yield f"calls {waiting} are answered by {results}"
    if "tool_result" in kinds[len(results) :]:
        yield "results stand behind other content"


def _block(block: Any, role: str) -> Iterator[str]:
    kind = block.get("type")
    if kind not in SPEAKERS[role]:
        yield f"{kind!r} in a message of the {role}"
        return
    fields = set(block) - {"type"}
    if not FIELDS[kind] <= fields <= FIELDS[kind] | OPTIONAL.get(kind, set()):
        yield f"fields of {kind}: {sorted(fields)}"
    elif kind == "tool_result":
        yield from _result(block)
    else:
        yield from _plain_block(block, kind)


def _plain_block(block: Any, kind: str) -> Iterator[str]:
    if kind == "text" and not (isinstance(block["text"], str) and block["text"].strip()):
        yield "text without a word"
    if kind == "image":
        yield from _image(block["source"])
    if kind == "document":
        yield from _document(block["source"])
    if kind == "thinking" and not (isinstance(block["thinking"], str) and block["signature"]):
        yield "a thought without signature"
    if kind == "redacted_thinking" and not block["data"]:
        yield "a redacted thought without data"
    if kind == "tool_use":
        if not isinstance(block["id"], str) or not ID.match(block["id"]):
            yield f"id {block['id']!r}"
        if not isinstance(block["name"], str) or not TOOL.match(block["name"]):
            yield f"name {block['name']!r}"
        if not isinstance(block["input"], dict) or _depth(block["input"]) > 120:
            yield "the input is no object, or too deep"


def _depth(value: Any) -> int:
    level, depth = [value], 0
    while level := [
        inner
        for part in level
        if isinstance(part, (dict, list))
        for inner in (part.values() if isinstance(part, dict) else part)
    ]:
        depth += 1
    return depth


def _result(block: Any) -> Iterator[str]:
    wrong, content = block.get("is_error", False), block.get("content", "")
    if not isinstance(wrong, bool):
        yield "is_error is no truth value"
    if not isinstance(block["tool_use_id"], str) or not ID.match(block["tool_use_id"]):
        yield f"id {block['tool_use_id']!r}"
    if wrong and not content:
        yield "a failed result without content"
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        yield "content is neither text nor a list"
        return
    for part in content:
        if part.get("type") not in ({"text"} if wrong else {"text", "image", "document"}):
            yield f"{part.get('type')!r} in a result"
        else:
            yield from _block(part, "user")


def _image(source: Any) -> Iterator[str]:
    if source.get("type") == "url":
        if set(source) != {"type", "url"} or not source["url"].startswith("https://"):
            yield "an image's address must be https"
        return
    if set(source) != {"type", "media_type", "data"} or source["type"] != "base64":
        yield f"source {sorted(source)}"
    elif source["media_type"] not in IMAGES:
        yield f"media type {source['media_type']}"
    elif not _decoded(source["data"]).startswith(IMAGES[source["media_type"]]):
        yield "the image is not what it says"


def _document(source: Any) -> Iterator[str]:
    if source.get("type") == "text":
        if source.get("media_type") != "text/plain" or not source.get("data"):
            yield "a text document without text"
    elif source.get("type") == "url":
        if not source.get("url", "").startswith("https://"):
            yield "a document's address must be https"
    elif source.get("media_type") != "application/pdf" or not _decoded(
        source.get("data", "")
    ).startswith(b"%PDF"):
        yield "a document that is no PDF"


def _decoded(data: Any) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (ValueError, TypeError):
        return b""
