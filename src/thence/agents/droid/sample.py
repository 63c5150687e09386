"""A session the way Droid writes it: a log, and a side file with what it took."""

from __future__ import annotations

from datetime import datetime, timedelta

from thence.agents.samples import Machine, Record, history, made_id, put, put_document

MODEL = "claude-sonnet-4-5"


def write(machine: Machine, now: datetime) -> None:
    """Write a made-up session below a home."""
    story = history("droid", "umlaut", machine, now - timedelta(hours=29))
    first = {"type": "session_start", "id": story.session, "title": story.title, "version": 2}
    lines: list[Record] = [{**first, "cwd": story.cwd, "owner": "dev"}]
    parent, asked = "", ""
    for number, message in enumerate(story.messages):
        name = made_id(f"droid/{number}")
        if message.role == "user" and message.content[0]["type"] == "text":
            asked = name
        model = {"modelId": MODEL} if message.role == "assistant" else {}
        inner = {"role": message.role, "content": [_block(b) for b in message.content], **model}
        above = {"parentId": parent} if parent else {}
        frame = {"type": "message", "id": name, **above, "timestamp": message.iso}
        lines.append({**frame, "message": inner})
        parent = name
    lines.append({"type": "agent_turn_outcome", "turnId": asked, "reason": "completed"})
    folder = machine.home / "sessions" / story.cwd.replace("/", "-")
    put(folder / f"{story.session}.jsonl", lines)
    total = story.total()
    counts = {"inputTokens": total.fresh, "outputTokens": total.output}
    usage = {**counts, "cacheReadTokens": total.cached, "cacheCreationTokens": 0}
    settings: Record = {"model": MODEL, "tokenUsage": usage}
    put_document(folder / f"{story.session}.settings.json", settings, story.messages[-1].at)


def _block(block: Record) -> Record:
    if block["type"] != "tool_result":
        return block
    code = int(block["is_error"])
    return {**block, "content": f"{block['content']}\n\n[Process exited with code {code}]"}
