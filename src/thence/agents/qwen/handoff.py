"""A session of another agent as Qwen Code writes its own: one log, in the folder of its project.

A linear chain of records, all marked by the client's own word for a copy, so that they count where
they were said. No usage: nothing was paid here. Tried with version 0.24.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from thence.agents.handoffs import HandoffHistory, HandoffWriter, message_runs
from thence.format.records import JSON, text_of, word

WRITTEN_AS_VERSION: Final = "0.24.4"
"""The version whose records these are."""
_PROVENANCE: Final = {"recorded": "system", "words": "real_user"}
"""Where a text comes from, in the client's words."""


def files(bound: HandoffHistory) -> dict[str, list[JSON]]:
    """Return the file of a session, by its place below the client's folder."""
    project = re.sub(r"[^A-Za-z0-9]", "-", bound.cwd)
    return {f"projects/{project}/chats/{bound.session}.jsonl": list(_records(bound))}


def _records(bound: HandoffHistory) -> Iterator[JSON]:
    uid, event = bound.provenance["from"], bound.provenance["event"]
    origin = {"sessionId": uid.partition(":")[2], "from": uid, "event": event}
    tools = bound.tools
    records = [
        record for message in bound.messages for record in _message_records(bound, message, tools)
    ]
    parent: str | None = None
    for number, record in enumerate(records):
        name = bound.uuid(number)
        yield {
            "uuid": name,
            "parentUuid": parent,
            "sessionId": bound.session,
            "timestamp": bound.time(number),
            "cwd": bound.cwd,
            "version": WRITTEN_AS_VERSION,
            **({"gitBranch": bound.git_branch} if bound.git_branch else {}),
            **record,
            "forkedFrom": origin,
        }
        parent = name


def _message_records(bound: HandoffHistory, message: JSON, tools: dict[str, str]) -> Iterator[JSON]:
    """Yield the records of one message, without their frame."""
    for kind, run in message_runs(message):
        if kind == "answer":
            reply = _message("model", [_answer_part(block) for block in run])
            model = {"model": bound.model} if bound.model else {}
            yield {"type": "assistant", "provenance": "assistant_output", **model, **reply}
        elif kind == "result":
            yield from (_result(block, tools) for block in run)
        else:
            yield {"type": "user", "provenance": _PROVENANCE[kind]} | _message("user", _texts(run))


def _message(role: str, parts: list[JSON]) -> JSON:
    return {"message": {"role": role, "parts": parts}}


def _texts(run: Iterable[JSON]) -> list[JSON]:
    return [{"text": word(block.get("text"))} for block in run]


def _answer_part(block: JSON) -> JSON:
    if block.get("type") == "tool_use":
        return {"functionCall": {"id": block["id"], "name": block["name"], "args": block["input"]}}
    return {"text": word(block.get("text"))}


def _result(block: JSON, tools: dict[str, str]) -> JSON:
    call, text = block["tool_use_id"], text_of(block.get("content"))
    is_error = block.get("is_error") is True
    response = {
        "id": call,
        "name": tools.get(call, ""),
        "response": {"error" if is_error else "output": text},
    }
    ended = {"callId": call, "status": "error" if is_error else "success", "resultDisplay": text}
    return {
        "type": "tool_result",
        "provenance": "tool_result",
        **_message("user", [{"functionResponse": response}]),
        "toolCallResult": ended,
    }


WRITER: Final = HandoffWriter(files, needs_uuid4=True, takes=(), takes_failures=True)
