"""A session the way goose keeps it: rows of its database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from thence.agents.samples import Machine, Record, SampleHistory, history, put_rows

MODEL = "gpt-5.5"
SCHEMA = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, name TEXT NOT NULL DEFAULT '', user_set_name BOOLEAN,
  session_type TEXT NOT NULL DEFAULT 'user', working_dir TEXT NOT NULL,
  created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
  accumulated_input_tokens INTEGER, accumulated_output_tokens INTEGER, model_config_json TEXT);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT,
  session_id TEXT NOT NULL, role TEXT NOT NULL, content_json TEXT NOT NULL,
  created_timestamp INTEGER NOT NULL, metadata_json TEXT);
"""


def write(machine: Machine, now: datetime) -> None:
    """Write a made-up session below a home."""
    story = history("goose", "umlaut", machine, now - timedelta(hours=100))
    put_rows(machine.home / "sessions" / "sessions.db", SCHEMA, _rows(story))


def _rows(story: SampleHistory) -> Iterator[tuple[str, Record]]:
    session, total = f"{story.start:%Y%m%d}_1", story.total()
    yield (
        "sessions",
        {
            "id": session,
            "name": story.title,
            "working_dir": story.cwd,
            "created_at": f"{story.start:%Y-%m-%d %H:%M:%S}",
            "updated_at": f"{story.messages[-1].at:%Y-%m-%d %H:%M:%S}",
            "accumulated_input_tokens": total.fresh + total.cached,
            "accumulated_output_tokens": total.output,
            "model_config_json": {"model_name": MODEL},
        },
    )
    for number, message in enumerate(story.messages):
        yield (
            "messages",
            {
                "message_id": f"msg_{story.session[:8]}_{number}",
                "session_id": session,
                "role": message.role,
                "content_json": [_block(block, story) for block in message.content],
                "created_timestamp": int(message.at.timestamp()),
                "metadata_json": {"userVisible": True, "agentVisible": True},
            },
        )


def _block(block: Record, story: SampleHistory) -> Record:
    if block["type"] == "tool_use":
        value: Record = {"name": block["name"], "arguments": block["input"]}
        call = {"status": "success", "value": value}
        return {"type": "toolRequest", "id": block["id"], "toolCall": call}
    if block["type"] == "tool_result":
        content = [{"type": "text", "text": block["content"]}]
        code = {"exit_code": story.exit_codes[block["tool_use_id"]]}
        value = {"content": content, "isError": False, "structuredContent": code}
        result = {"status": "success", "value": value}
        return {"type": "toolResponse", "id": block["tool_use_id"], "toolResult": result}
    return block
