"""A session of another agent as Gemini CLI writes its own: one log, in the folder of its project.

A header and messages; results stand with their calls, as the client reads them from there. No
tokens: nothing was paid here. Each message says whose it is; the client passes over what it does
not know. Tried with version 0.61.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

from thence.agents.handoffs import HandoffHistory, HandoffSettings, HandoffWriter, read_settings
from thence.agents.records import fields
from thence.format.records import JSON, blocks, text_of, word

MODEL: Final = "handed-over"
"""What stands for a model that nobody named; the client takes its usual one."""


def files(bound: HandoffHistory) -> dict[str, list[JSON]]:
    """Return the file of a session, by its place below the client's folder.

    A project that the client has no name for lies under the hash of its folder, as older versions
    had it; the client finds it there.
    """
    project = bound.project or _hash(bound.cwd)
    stamp = bound.time(0)[:16].replace(":", "-")
    name = f"session-{stamp}-{bound.session[:8]}.jsonl"
    return {f"tmp/{project}/chats/{name}": list(_lines(bound))}


def settings(root: Path) -> HandoffSettings:
    """Return the names that the client has given to the folders of projects."""
    projects = read_settings(root / "projects.json").get("projects")
    return HandoffSettings(
        projects={
            folder: name
            for folder, name in fields(projects).items()
            if isinstance(name, str) and name not in ("", ".", "..") and name.isprintable()
            if "/" not in name and "\\" not in name
        }
    )


def _hash(cwd: str) -> str:
    return sha256(cwd.encode("utf-8", "surrogatepass")).hexdigest()


def _lines(bound: HandoffHistory) -> Iterator[JSON]:
    start = bound.time(0)
    yield {
        "sessionId": bound.session,
        "projectHash": _hash(bound.cwd),
        "startTime": start,
        "lastUpdated": start,
        "kind": "main",
        "thenceHandoff": {**bound.provenance, "cwd": bound.cwd},
    }
    results = bound.results
    for number, message in enumerate(bound.messages):
        place = {"id": bound.uuid(number), "timestamp": bound.time(number)}
        body = _message_body(bound, message, results, place["timestamp"])
        if body:
            yield {**place, **body, "handedFrom": bound.provenance["from"]}
    if bound.title:
        yield {"$set": {"summary": bound.title}}


def _message_body(bound: HandoffHistory, message: JSON, results: dict[str, JSON], at: str) -> JSON:
    """Return a message without its frame; nothing for one that only has results."""
    content = blocks(message["content"])
    texts = [word(block.get("text")) for block in content if block.get("type") == "text"]
    if message["role"] != "assistant":
        return {"type": "user", "content": [{"text": text} for text in texts]} if texts else {}
    calls = [
        _call(block, results.get(block["id"], {}), at)
        for block in content
        if block.get("type") == "tool_use"
    ]
    reply = {"type": "gemini", "content": "\n\n".join(texts), "thoughts": []}
    return {**reply, "model": bound.model or MODEL, **({"toolCalls": calls} if calls else {})}


def _call(block: JSON, result: JSON, at: str) -> JSON:
    name, tool, text = block["id"], block["name"], text_of(result.get("content"))
    is_error = result.get("is_error") is True
    response = {"id": name, "name": tool, "response": {"error" if is_error else "output": text}}
    return {
        "id": name,
        "name": tool,
        "args": block["input"],
        "result": [{"functionResponse": response}],
        "status": "error" if is_error else "success",
        "timestamp": at,
        "resultDisplay": text,
    }


WRITER: Final = HandoffWriter(
    files, settings=settings, needs_uuid4=True, takes=(), takes_failures=True
)
