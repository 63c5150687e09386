"""A session the way Hermes Agent keeps it: rows of its database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta

from thence.agents.samples import Machine, Record, SampleHistory, SampleMessage, history, put_rows

MODEL = "hermes-4-70b"
SCHEMA = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, model TEXT,
  model_config TEXT, parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL,
  end_reason TEXT, input_tokens INTEGER DEFAULT 0, output_tokens INTEGER DEFAULT 0,
  cache_read_tokens INTEGER DEFAULT 0, cache_write_tokens INTEGER DEFAULT 0, cwd TEXT,
  git_branch TEXT, title TEXT, rewind_count INTEGER NOT NULL DEFAULT 0);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL,
  role TEXT NOT NULL, content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT,
  timestamp REAL NOT NULL, finish_reason TEXT, reasoning TEXT, reasoning_content TEXT,
  observed INTEGER DEFAULT 0, active INTEGER NOT NULL DEFAULT 1,
  compacted INTEGER NOT NULL DEFAULT 0);
CREATE TABLE session_model_usage (session_id TEXT NOT NULL, model TEXT NOT NULL,
  task TEXT NOT NULL DEFAULT '', input_tokens INTEGER NOT NULL DEFAULT 0,
  output_tokens INTEGER NOT NULL DEFAULT 0, cache_read_tokens INTEGER NOT NULL DEFAULT 0,
  cache_write_tokens INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (session_id, model, task));
"""


def write(machine: Machine, now: datetime) -> None:
    """Write a made-up session below a home."""
    story = history("hermes", "lamp", machine, now - timedelta(hours=80))
    put_rows(machine.home / "state.db", SCHEMA, _rows(story))


def _rows(story: SampleHistory) -> Iterator[tuple[str, Record]]:
    session = f"{story.start:%Y%m%d_%H%M%S}_{story.session[:6]}"
    about = {"cwd": story.cwd, "git_branch": "main", "title": story.title, "model": MODEL}
    times = {"started_at": story.start.timestamp(), "ended_at": story.messages[-1].at.timestamp()}
    yield "sessions", {"id": session, "source": "cli", **about, **times}
    for message in story.messages:
        place = {"session_id": session, "timestamp": message.at.timestamp()}
        yield "messages", {**place, **_message(message, story)}
    total = story.total()
    bill = {"input_tokens": total.fresh, "output_tokens": total.output}
    bill["cache_read_tokens"] = total.cached
    yield "session_model_usage", {"session_id": session, "model": MODEL, **bill}


def _message(message: SampleMessage, story: SampleHistory) -> Record:
    block = message.content[0]
    if block["type"] == "text":
        end = {"finish_reason": "stop"} if message.role == "assistant" else {}
        return {"role": message.role, "content": block["text"], **end}
    if block["type"] == "tool_use":
        function = {"name": block["name"], "arguments": json.dumps(block["input"])}
        calls = [{"id": block["id"], "type": "function", "function": function}]
        return {
            "role": "assistant",
            "content": "",
            "tool_calls": calls,
            "finish_reason": "tool_calls",
        }
    call = block["tool_use_id"]
    output = {"output": block["content"], "exit_code": story.exit_codes[call]}
    return {"role": "tool", "content": json.dumps(output), "tool_call_id": call}
