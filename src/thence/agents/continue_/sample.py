"""A session the way Continue writes it: one document."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from thence.agents.continue_.names import LIST
from thence.agents.samples import (
    Machine,
    Record,
    SampleHistory,
    SampleMessage,
    history,
    put_document,
)

MODEL = "claude-sonnet-4-5"


def write(machine: Machine, now: datetime) -> None:
    """Write a made-up session below a home, and the list that names it."""
    story = history("continue", "lamp", machine, now - timedelta(hours=105))
    folder, last = machine.home / "sessions", story.messages[-1].at
    items = [
        _item(message, story)
        for message in story.messages
        if message.content[0]["type"] != "tool_result"
    ]
    place = {"sessionId": story.session, "title": story.title, "workspaceDirectory": story.cwd}
    put_document(folder / f"{story.session}.json", {**place, "history": items}, last)
    row: Record = {**place, "dateCreated": str(story.messages[0].millis)}
    put_document(folder / LIST, [{**row, "messageCount": len(items)}], last)


def _item(message: SampleMessage, story: SampleHistory) -> Record:
    block = message.content[0]
    inner: Record = {"role": message.role, "content": block.get("text", "")}
    out: Record = {"message": inner, "contextItems": []}
    if (tokens := message.tokens) is not None:
        counts = {"prompt_tokens": tokens.fresh + tokens.cached, "completion_tokens": tokens.output}
        cached = {"prompt_tokens_details": {"cached_tokens": tokens.cached}}
        inner["usage"] = {**counts, **cached, "model": MODEL}
    if block["type"] == "tool_use":
        function = {"name": block["name"], "arguments": json.dumps(block["input"])}
        call = {"id": block["id"], "type": "function", "function": function}
        code = story.exit_codes[block["id"]]
        output = story.results()[block["id"]].content[0]["content"]
        failed = f"Error executing tool {block['name']}: Error (exit code {code}): {output}"
        shown = [{"content": failed if code else output, "name": "Tool Result"}]
        state = {"toolCallId": block["id"], "toolCall": call, "output": shown}
        inner["toolCalls"] = [call]
        out["toolCallStates"] = [{**state, "status": "errored" if code else "done"}]
    return out
