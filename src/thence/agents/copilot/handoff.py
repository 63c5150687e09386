"""A session of another agent as Copilot CLI writes its own: a folder with its log and its card.

Turns with their messages, each call begun and ended, as the client writes them; no usage, for
nothing was paid here. Each event says whose it is. Tried with version 1.0.102.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from thence.agents.handoffs import HandoffHistory, HandoffWriter, message_runs
from thence.format.records import JSON, text_of, word

WRITTEN_AS_VERSION: Final = "1.0.102"
"""The version whose events these are."""


def files(bound: HandoffHistory) -> dict[str, list[JSON]]:
    """Return the files of a session, by their place below the client's folder."""
    folder = f"session-state/{bound.session}"
    return {
        f"{folder}/events.jsonl": list(_events(bound)),
        f"{folder}/workspace.yaml": [_card(bound)],  # JSON is YAML
    }


def _card(bound: HandoffHistory) -> JSON:
    now = bound.time(0)
    return {
        "id": bound.session,
        "cwd": bound.cwd,
        **({"branch": bound.git_branch} if bound.git_branch else {}),
        "client_name": "github/cli",
        "name": bound.title or "handed over",
        "user_named": False,
        "summary_count": 0,
        "fork_count": 0,
        "created_at": now,
        "updated_at": now,
    }


def _events(bound: HandoffHistory) -> Iterator[JSON]:
    branch = {"branch": bound.git_branch} if bound.git_branch else {}
    start: JSON = {
        "sessionId": bound.session,
        "version": 1,
        "producer": "copilot-agent",
        "copilotVersion": WRITTEN_AS_VERSION,
        "startTime": bound.time(0),
        "context": {"cwd": bound.cwd, **branch},
        "thenceHandoff": bound.provenance,
    }
    events = [event for message in bound.messages for event in _message_events(bound, message)]
    parent: str | None = None
    for number, (kind, data) in enumerate([("session.start", start), *events]):
        name = bound.uuid(f"event {number}")
        yield {
            "type": kind,
            "data": data,
            "id": name,
            "timestamp": bound.time(number),
            "parentId": parent,
            **({"handedFrom": bound.provenance["from"]} if number else {}),
        }
        parent = name


def _message_events(bound: HandoffHistory, message: JSON) -> Iterator[tuple[str, JSON]]:
    """Yield the events of one message: type and data."""
    for kind, run in message_runs(message):
        if kind == "answer":
            yield from _answer(bound, run)
        elif kind == "result":
            yield from (("tool.execution_complete", _result(block)) for block in run)
        else:
            text = "\n\n".join(word(block.get("text")) for block in run)
            source = {"source": "system"} if kind == "recorded" else {}
            yield "user.message", {"content": text, "transformedContent": text, **source}


def _answer(bound: HandoffHistory, content: list[JSON]) -> Iterator[tuple[str, JSON]]:
    text = "\n\n".join(word(b.get("text")) for b in content if b.get("type") == "text")
    calls = [block for block in content if block.get("type") == "tool_use"]
    requests = [
        {
            "toolCallId": call["id"],
            "name": call["name"],
            "arguments": call["input"],
            "type": "function",
        }
        for call in calls
    ]
    name = bound.uuid(f"message {text} {[call['id'] for call in calls]}")
    yield "assistant.message", {"messageId": name, "content": text, "toolRequests": requests}
    for call in calls:
        begun = {"toolCallId": call["id"], "toolName": call["name"], "arguments": call["input"]}
        yield "tool.execution_start", begun


def _result(block: JSON) -> JSON:
    text = text_of(block.get("content"))
    ended = {"toolCallId": block["tool_use_id"], "success": block.get("is_error") is not True}
    if not ended["success"]:
        return {**ended, "error": {"message": text, "code": "failure"}}
    return {**ended, "result": {"content": text}}


WRITER: Final = HandoffWriter(files, is_folder=True, takes=(), takes_failures=True)
