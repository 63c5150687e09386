"""Cases of agents that write running totals: Copilot CLI, goose, Hermes, Mistral Vibe."""

from __future__ import annotations

import json
import sqlite3
from hashlib import sha256
from pathlib import Path
from typing import Any

from truth.case import Answers, Case, Usage
from truth.further import (
    CWD,
    DISCARDED,
    DISCARDED_TURN,
    FIRST,
    OTHER,
    SECOND,
    A,
    Turn,
    time_ms,
    time_text,
    total_usage,
    turn_usage,
    write_document,
    write_records,
)

# -- Copilot CLI: `.copilot/session-state/<id>/events.jsonl` --------------------------------


def _copilot_counts(usage: Usage) -> dict[str, int]:
    counts = {"inputTokens": usage.input + usage.read, "outputTokens": usage.output}
    return {**counts, "cacheReadTokens": usage.read, "cacheWriteTokens": 0, "reasoningTokens": 0}


def copilot_resumed(home: Path) -> None:
    """Write a session of two processes; each ends with the total of the session so far."""
    events: list[dict[str, Any]] = []

    def put(kind: str, time: str, **data: Any) -> None:
        parent = events[-1]["id"] if events else None
        event_id = f"5eed0000-0000-4000-9000-{len(events):012}"
        events.append(
            {"type": kind, "data": data, "id": event_id, "timestamp": time, "parentId": parent}
        )

    total = Usage()
    context = {"cwd": CWD, "gitRoot": CWD, "branch": "main"}
    start = {"sessionId": A, "version": 1, "producer": "copilot-agent", "copilotVersion": "1.0.102"}
    start |= {"startTime": time_text(FIRST), "selectedModel": "gpt-5"}
    for number, turn in enumerate((FIRST, SECOND), 1):
        if number == 1:
            put("session.start", time_text(turn), **start, context=context)
        else:
            put("session.resume", time_text(turn), resumeTime=time_text(turn), context=context)
        total += turn_usage(turn)
        put("user.message", time_text(turn), content=turn[1], transformedContent=turn[1])
        accounting = {"sourceSessionId": A, "sequence": number, "usageId": f"chat-{number}"}
        usage = {
            "model": "gpt-5",
            **_copilot_counts(turn_usage(turn)),
            "apiCallId": f"chat-{number}",
        }
        put("session.usage_record", time_text(turn, 1), usage={**usage, "accounting": accounting})
        message = {"messageId": f"m{number}", "content": turn[2], "model": "gpt-5"}
        put("assistant.message", time_text(turn, 1), **message, toolRequests=[])
        usage = {"requests": {"count": number, "cost": 0}, "usage": _copilot_counts(total)}
        end = {"shutdownType": "routine", "modelMetrics": {"gpt-5": usage}}
        put("session.shutdown", time_text(turn, 2), **end, currentModel="gpt-5")
    folder = home / ".copilot/session-state" / A
    write_records(folder / "events.jsonl", events)
    (folder / "workspace.yaml").write_text(f"id: {A}\ncwd: {CWD}\nname: Tidepool\n")


# -- goose: `.local/share/goose/sessions/sessions.db` ---------------------------------------

_GOOSE = """
CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at TIMESTAMP);
INSERT INTO schema_version VALUES (13, '2026-11-10 10:00:00');
CREATE TABLE sessions (id TEXT PRIMARY KEY, name TEXT NOT NULL DEFAULT '',
  description TEXT NOT NULL DEFAULT '', user_set_name BOOLEAN DEFAULT FALSE,
  session_type TEXT NOT NULL DEFAULT 'user', working_dir TEXT NOT NULL, created_at TIMESTAMP,
  updated_at TIMESTAMP, extension_data TEXT DEFAULT '{}', total_tokens INTEGER,
  input_tokens INTEGER, output_tokens INTEGER, accumulated_total_tokens INTEGER,
  accumulated_input_tokens INTEGER, accumulated_output_tokens INTEGER, accumulated_cost REAL,
  schedule_id TEXT, recipe_json TEXT, user_recipe_values_json TEXT, provider_name TEXT,
  model_config_json TEXT, goose_mode TEXT NOT NULL DEFAULT 'auto', archived_at TIMESTAMP,
  project_id TEXT);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT,
  session_id TEXT NOT NULL, role TEXT NOT NULL, content_json TEXT NOT NULL,
  created_timestamp INTEGER NOT NULL, timestamp TIMESTAMP, tokens INTEGER, metadata_json TEXT);
CREATE INDEX idx_messages_session ON messages(session_id);
"""
_GOOSE_ID = "20261110_1"


def _goose_turn(database: sqlite3.Connection, turn: Turn) -> None:
    metadata = '{"userVisible":true,"agentVisible":true}'
    for number, (role, text) in enumerate((("user", turn[1]), ("assistant", turn[2]))):
        content = json.dumps([{"type": "text", "text": text}])
        row = (f"msg_{turn[0]}_{number}", _GOOSE_ID, role, content, time_ms(turn, number) // 1000)
        database.execute(
            "INSERT INTO messages (message_id, session_id, role, content_json,"
            " created_timestamp, timestamp, metadata_json) VALUES (?,?,?,?,?,?,?)",
            (*row, f"2026-11-10 10:0{turn[0]}:00", metadata),
        )


def _goose_total(database: sqlite3.Connection, usage: Usage, last: Usage) -> None:
    """Update the total, which includes cached tokens; `input_tokens` is of the last request."""
    counts = (usage.total, usage.input + usage.read, usage.output)
    database.execute(
        "UPDATE sessions SET accumulated_total_tokens = ?, accumulated_input_tokens = ?,"
        " accumulated_output_tokens = ?, total_tokens = ?, input_tokens = ?, output_tokens = ?",
        (*counts, last.total, last.input + last.read, last.output),
    )


def goose_plain(home: Path) -> None:
    """Write a session of two turns."""
    path = home / ".local/share/goose/sessions/sessions.db"
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as database:
        database.executescript(_GOOSE)
        database.execute(
            "INSERT INTO sessions (id, name, working_dir, created_at, updated_at, provider_name,"
            " model_config_json) VALUES (?, 'Tidepool', ?, '2026-11-10 10:01:00',"
            " '2026-11-10 10:03:00', 'openai', '{\"model_name\":\"gpt-5\"}')",
            (_GOOSE_ID, CWD),
        )
        _goose_turn(database, FIRST)
        _goose_turn(database, DISCARDED)
        _goose_total(database, total_usage(FIRST, DISCARDED), turn_usage(DISCARDED))
    database.close()


def goose_rewound(home: Path) -> None:
    """Delete the rows of the last turn, as an edit does, and write another turn."""
    with sqlite3.connect(home / ".local/share/goose/sessions/sessions.db") as database:
        database.execute(
            "DELETE FROM messages WHERE created_timestamp >= ?", (time_ms(DISCARDED) // 1000,)
        )
        _goose_turn(database, OTHER)
        _goose_total(database, total_usage(FIRST, DISCARDED, OTHER), turn_usage(OTHER))
        database.execute("UPDATE sessions SET updated_at = '2026-11-10 10:04:30'")
    database.close()


# -- Hermes: `.hermes/state.db` -------------------------------------------------------------

_HERMES = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT,
  session_key TEXT, chat_id TEXT, chat_type TEXT, thread_id TEXT, display_name TEXT,
  origin_json TEXT, expiry_finalized INTEGER DEFAULT 0, model TEXT,
  model_config TEXT, system_prompt TEXT, parent_session_id TEXT,
  started_at REAL NOT NULL, ended_at REAL, end_reason TEXT, message_count INTEGER DEFAULT 0,
  tool_call_count INTEGER DEFAULT 0, input_tokens INTEGER DEFAULT 0,
  output_tokens INTEGER DEFAULT 0, cache_read_tokens INTEGER DEFAULT 0,
  cache_write_tokens INTEGER DEFAULT 0, reasoning_tokens INTEGER DEFAULT 0, cwd TEXT,
  git_branch TEXT, git_repo_root TEXT, billing_provider TEXT, billing_base_url TEXT,
  billing_mode TEXT, estimated_cost_usd REAL, actual_cost_usd REAL, cost_status TEXT,
  cost_source TEXT, pricing_version TEXT, title TEXT, api_call_count INTEGER DEFAULT 0,
  handoff_state TEXT, handoff_platform TEXT, handoff_error TEXT, profile_name TEXT,
  compression_failure_cooldown_until REAL, compression_failure_error TEXT,
  compression_fallback_streak INTEGER NOT NULL DEFAULT 0,
  rewind_count INTEGER NOT NULL DEFAULT 0, archived INTEGER NOT NULL DEFAULT 0);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL,
  role TEXT NOT NULL, content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT,
  effect_disposition TEXT, timestamp REAL NOT NULL, token_count INTEGER, finish_reason TEXT,
  reasoning TEXT, reasoning_content TEXT, reasoning_details TEXT, codex_reasoning_items TEXT,
  codex_message_items TEXT, platform_message_id TEXT, observed INTEGER DEFAULT 0,
  active INTEGER NOT NULL DEFAULT 1, compacted INTEGER NOT NULL DEFAULT 0, api_content TEXT);
CREATE TABLE session_model_usage (session_id TEXT NOT NULL, model TEXT NOT NULL,
  billing_provider TEXT NOT NULL DEFAULT '', billing_base_url TEXT NOT NULL DEFAULT '',
  billing_mode TEXT NOT NULL DEFAULT '', task TEXT NOT NULL DEFAULT '',
  api_call_count INTEGER NOT NULL DEFAULT 0, input_tokens INTEGER NOT NULL DEFAULT 0,
  output_tokens INTEGER NOT NULL DEFAULT 0, cache_read_tokens INTEGER NOT NULL DEFAULT 0,
  cache_write_tokens INTEGER NOT NULL DEFAULT 0, reasoning_tokens INTEGER NOT NULL DEFAULT 0,
  estimated_cost_usd REAL NOT NULL DEFAULT 0, actual_cost_usd REAL NOT NULL DEFAULT 0,
  cost_status TEXT, cost_source TEXT, first_seen REAL, last_seen REAL,
  PRIMARY KEY (session_id, model, billing_provider, billing_base_url, billing_mode, task));
"""


def hermes_rewind(home: Path) -> None:
    """Write a session with a rewound turn; its rows stay, and the total includes its usage."""
    path = home / ".hermes/state.db"
    path.parent.mkdir(parents=True)
    session, usage = "20261110_100100_5eed00", total_usage(FIRST, DISCARDED, OTHER)
    counts = (usage.input, usage.output, usage.read)
    with sqlite3.connect(path) as database:
        database.executescript(_HERMES)
        database.execute(
            "INSERT INTO sessions (id, source, model, started_at, message_count, input_tokens,"
            " output_tokens, cache_read_tokens, cwd, title, api_call_count, rewind_count)"
            " VALUES (?, 'cli', 'gpt-5', ?, 6, ?, ?, ?, ?, 'Tidepool', 3, 1)",
            (session, time_ms(FIRST) / 1000, *counts, CWD),
        )
        database.execute(
            "INSERT INTO session_model_usage (session_id, model, api_call_count, input_tokens,"
            " output_tokens, cache_read_tokens, first_seen, last_seen)"
            " VALUES (?, 'gpt-5', 3, ?, ?, ?, ?, ?)",
            (session, *counts, time_ms(FIRST) / 1000, time_ms(OTHER) / 1000),
        )
        for turn in (FIRST, DISCARDED, OTHER):
            for number, role in enumerate(("user", "assistant")):
                database.execute(
                    "INSERT INTO messages (session_id, role, content, timestamp, finish_reason,"
                    " active) VALUES (?, ?, ?, ?, ?, ?)",
                    (
                        *(session, role, turn[1 + number], time_ms(turn, number) / 1000),
                        *("stop" if number else None, int(turn is not DISCARDED)),
                    ),
                )
    database.close()


# -- Mistral Vibe: `.vibe/logs/session/unified/<id>/` ---------------------------------------


def vibe_snapshots(home: Path) -> None:
    """Write a session of two turns: chunks that a generation names, and one total."""
    folder = home / f".vibe/logs/session/unified/{A}"
    metadata = {
        "environment": {"working_directory": CWD},
        "title": "Tidepool",
        "title_source": "auto",
    }
    config = {"active_model": "devstral", "model_name": "devstral-medium"}
    write_document(folder / "meta.json", {**metadata, "config": config})
    chunks = []
    for turn in (FIRST, SECOND):
        entries = []
        for number, role in enumerate(("user", "assistant")):
            created = time_ms(turn, number)
            entry: dict[str, Any] = {
                "id": f"message-{turn[0]}-{number}",
                "type": "message",
                "role": role,
            }
            entry |= {"generationStatus": "completed", "createdAt": created, "updatedAt": created}
            content = [{"type": "text", "text": turn[1 + number]}]
            source = "harness" if number else "turn_start"
            entries.append({**entry, "content": content, "source": source})
        raw = json.dumps(entries)
        name = sha256(raw.encode()).hexdigest()
        (folder / "chunks").mkdir(exist_ok=True)
        (folder / "chunks" / f"{name}.json").write_text(raw)
        chunks.append(name)
    total = total_usage(FIRST, SECOND)
    counts = {"inputTokens": total.input + total.read, "outputTokens": total.output}
    session = {"tokenUsage": {**counts, "cachedInputTokens": total.read}}
    generation = folder / "generations" / f"{9:016}"
    state = {"snapshot": {"session": session, "history": {"entries": []}}}
    write_document(generation / "projection-state.json", state)
    write_document(generation / "manifest.json", {"projection_state": {"chunks": chunks}})
    (folder / "journal").mkdir()
    (folder / "journal" / f"{10:016}.jsonl").touch()
    write_document(folder / "CURRENT", {"generation": f"{9:016}", "snapshot_sequence": 9})


_TWO_TURNS = Answers(1, total_usage(FIRST, SECOND), live_words=("anemone", "basalt", "holdfast"))
CASES = (
    Case("copilot", "resumed", "usage per request, and a running total where a process ended",
         copilot_resumed, _TWO_TURNS),
    Case("goose", "rewound", "rows of a turn that was read are deleted; one running total",
         goose_plain, DISCARDED_TURN, (goose_rewound,)),
    Case("hermes", "rewind", "a turn is rewound; the total of the session includes its usage",
         hermes_rewind, DISCARDED_TURN),
    Case("vibe", "snapshots", "two turns in chunks, one running total for both",
         vibe_snapshots, _TWO_TURNS),
)  # fmt: skip
