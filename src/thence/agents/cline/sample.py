"""A session the way Cline writes it: a document of messages, and a card."""

from __future__ import annotations

from datetime import datetime, timedelta

from thence.agents.samples import (
    Machine,
    Record,
    SampleHistory,
    SampleMessage,
    SampleStep,
    history,
    put_document,
)

MODEL = "claude-sonnet-4-5"
VERSION = "3.0.65"


def write(machine: Machine, now: datetime) -> None:
    """Write a made-up session below a home."""
    story = history("cline", "neap", machine, now - timedelta(hours=55), _call)
    session = f"{story.messages[0].millis}_{story.session[:5]}"
    folder, last = machine.home / "data" / "sessions" / session, story.messages[-1].at
    origin = {"source": "cli", "sessionId": session, "version": VERSION}
    messages = [_message(number, message, story) for number, message in enumerate(story.messages)]
    talk: Record = {"version": 1, "agent": "lead", "origin": origin, "messages": messages}
    put_document(folder / f"{session}.messages.json", talk, last)
    card: Record = {
        "session_id": session,
        "status": "completed",
        "cwd": story.cwd,
        "model": MODEL,
        "ended_at": story.messages[-1].iso,
        "exit_code": 0,
        "metadata": {"git": {"branch": "main"}, "title": story.title},
    }
    put_document(folder / f"{session}.json", card, last)


def _call(step: SampleStep) -> tuple[str, Record]:
    values = step.values
    if step.form == "shell":
        return "run_commands", {"commands": [values["command"]]}
    if step.form == "read":
        return "read_files", {"files": [{"path": values["path"]}]}
    if step.form == "search":
        return "search_codebase", {"queries": [values["pattern"]]}
    if step.form == "edit":
        change = {"old_text": values["old"], "new_text": values["new"]}
        return "editor", {"path": values["path"], **change}
    return "editor", {"path": values["path"], "new_text": values["content"]}


def _message(number: int, message: SampleMessage, story: SampleHistory) -> Record:
    out: Record = {"id": f"msg_{number:08}", "role": message.role, "ts": message.millis}
    out["content"] = [_block(block, story) for block in message.content]
    if message.role == "user" and message.content[0]["type"] == "text":
        text = message.content[0]["text"]
        out["content"] = [{"type": "text", "text": f'<user_input mode="act">{text}</user_input>'}]
    if (tokens := message.tokens) is not None:
        counts = {"inputTokens": tokens.fresh + tokens.cached, "outputTokens": tokens.output}
        out["metrics"] = {**counts, "cacheReadTokens": tokens.cached, "cacheWriteTokens": 0}
        out["modelInfo"] = {"id": MODEL, "provider": "anthropic"}
    return out


def _block(block: Record, story: SampleHistory) -> Record:
    if block["type"] != "tool_result":
        return block
    call = block["tool_use_id"]
    code, output = story.exit_codes[call], block["content"]
    item: Record = {"query": "", "result": output, "success": code == 0}
    if code:
        item["error"] = f"Command exited with code {code}"
        item["result"] = f"[Command exited with code {code}]\n{output}"
    part = {"type": "tool_result", "tool_use_id": call, "name": story.tools[call]}
    return {**part, "content": [item]}
