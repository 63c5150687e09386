"""Cases of further agents: small sessions as their clients write them, each with one peculiarity.

Every turn is a prompt and an answer with unique words; `turn_usage` returns its tokens.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from truth.case import Answers, Case, Usage, encode_lines

Turn = tuple[int, str, str]
"""The number, which determines time, ids and usage; the prompt; the answer."""

FIRST: Turn = (1, "Where does the anemone sit?", "On the basalt ledge.")
SECOND: Turn = (2, "And the urchin?", "Below the kelp holdfast.")
DISCARDED: Turn = (3, "Try the quagmire instead", "That led to a vortex.")
OTHER: Turn = (4, "Try the estuary", "The estuary has a sandbar.")
START_MS = 1_794_304_800_000
"""2026-11-10, 10:00 UTC; a turn takes ten seconds."""
CWD = "/home/dev/tidepool"
A, B, C = (f"5eed0000-0000-4000-8000-00000000000{end}" for end in "abc")


def turn_usage(turn: Turn) -> Usage:
    """Return the tokens of a turn."""
    return Usage(400 + 10 * turn[0], 100 + turn[0], 0, 600)


def total_usage(*turns: Turn) -> Usage:
    """Return the tokens of several turns."""
    return sum((turn_usage(turn) for turn in turns), Usage())


def time_ms(turn: Turn, answer: int = 0) -> int:
    """Return the time of a turn, or of its answer, in milliseconds since 1970."""
    return START_MS + 10_000 * turn[0] + 1000 * answer


def time_text(turn: Turn, answer: int = 0) -> str:
    """Return the time of a turn, or of its answer, as a text."""
    return f"2026-11-10T10:{turn[0]:02}:{10 * answer:02}.000Z"


def write_records(path: Path, records: list[dict[str, Any]]) -> None:
    """Write records as lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_lines(records))


def write_document(path: Path, value: Any) -> None:
    """Write a value as a JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")


# -- Gemini CLI: `.gemini/tmp/<project>/chats/session-*.jsonl` ------------------------------


def _gemini_header(session: str, kind: str = "main") -> dict[str, Any]:
    header = {"sessionId": session, "projectHash": "c0ffee", "startTime": time_text(FIRST)}
    return {**header, "lastUpdated": time_text(FIRST), "kind": kind}


def _gemini_records(turn: Turn) -> list[dict[str, Any]]:
    """Return a prompt, and an answer twice; cached tokens are part of the input."""
    usage = turn_usage(turn)
    tokens = {"input": usage.input + usage.read, "output": usage.output, "cached": usage.read}
    tokens |= {"thoughts": 0, "tool": 0, "total": usage.total}
    prompt = {"id": f"p{turn[0]}", "timestamp": time_text(turn), "type": "user"}
    answer: dict[str, Any] = {
        "id": f"a{turn[0]}",
        "timestamp": time_text(turn, 1),
        "type": "gemini",
    }
    answer |= {"content": turn[2], "thoughts": [], "tokens": tokens, "model": "gemini-2.5-pro"}
    return [{**prompt, "content": [{"text": turn[1]}]}, answer, answer]


def _gemini_path(home: Path) -> Path:
    chats = home / ".gemini/tmp/tidepool/chats"
    chats.mkdir(parents=True, exist_ok=True)
    (chats.parent / ".project_root").write_text(CWD)
    return chats / f"session-2026-11-10T10-01-{A[:8]}.jsonl"


def gemini_rewind(home: Path) -> None:
    """Write a session with a rewound turn."""
    rewind = {"$rewindTo": f"p{DISCARDED[0]}"}
    records = [
        *_gemini_records(FIRST),
        *_gemini_records(DISCARDED),
        rewind,
        *_gemini_records(OTHER),
    ]
    write_records(_gemini_path(home), [_gemini_header(A), *records])


def gemini_subagent(home: Path) -> None:
    """Write a session whose subagent has its own log."""
    done = {"functionResponse": {"id": "c1", "name": "invoke_agent", "response": {"output": "x"}}}
    call: dict[str, Any] = {
        "id": "c1",
        "name": "invoke_agent",
        "args": {"prompt": SECOND[1]},
        "agentId": C,
    }
    call |= {"status": "success", "result": [done], "timestamp": time_text(FIRST, 1)}
    prompt, answer, _ = _gemini_records(FIRST)
    write_records(
        _gemini_path(home), [_gemini_header(A), prompt, answer, {**answer, "toolCalls": [call]}]
    )
    side = _gemini_path(home).parent / A / f"{C}.jsonl"
    write_records(side, [_gemini_header(C, "subagent"), *_gemini_records(SECOND)])


# -- Qwen Code: `.qwen/projects/<folder>/chats/<id>.jsonl` ----------------------------------


def _qwen_records(turn: Turn, parent: Turn | None, session: str) -> list[dict[str, Any]]:
    usage = turn_usage(turn)
    counts = {"promptTokenCount": usage.input + usage.read, "candidatesTokenCount": usage.output}
    counts |= {"cachedContentTokenCount": usage.read, "totalTokenCount": usage.total}
    common = {"sessionId": session, "cwd": CWD, "version": "0.24.4", "gitBranch": "main"}
    prompt = {
        "uuid": f"qp{turn[0]}",
        "parentUuid": f"qa{parent[0]}" if parent else None,
        **common,
        "timestamp": time_text(turn),
        "type": "user",
        "message": {"role": "user", "parts": [{"text": turn[1]}]},
    }
    answer = {
        "uuid": f"qa{turn[0]}",
        "parentUuid": prompt["uuid"],
        **common,
        "timestamp": time_text(turn, 1),
        "type": "assistant",
        "model": "qwen3-coder-plus",
        "message": {"role": "model", "parts": [{"text": turn[2]}]},
        "usageMetadata": counts,
    }
    return [prompt, answer]


def qwen_fork(home: Path) -> None:
    """Write a session and its fork; copies have the ids and the usage of the originals."""
    records = [*_qwen_records(FIRST, None, A), *_qwen_records(SECOND, FIRST, A)]
    copies = [
        {**record, "sessionId": B, "forkedFrom": {"sessionId": A, "messageUuid": record["uuid"]}}
        for record in records
    ]
    chats = home / ".qwen/projects/-home-dev-tidepool/chats"
    write_records(chats / f"{A}.jsonl", records)
    write_records(chats / f"{B}.jsonl", [*copies, *_qwen_records(OTHER, SECOND, B)])


def qwen_branch(home: Path) -> None:
    """Write a session in which a prompt was sent again; the earlier answer is discarded."""
    records = [
        *_qwen_records(FIRST, None, A),
        *_qwen_records(DISCARDED, FIRST, A),
        *_qwen_records(OTHER, FIRST, A),
    ]
    write_records(home / f".qwen/projects/-home-dev-tidepool/chats/{A}.jsonl", records)


# -- pi: `.pi/agent/sessions/--<folder>--/<time>_<id>.jsonl` --------------------------------


def _pi_records(turn: Turn, parent: Turn | None) -> list[dict[str, Any]]:
    usage = turn_usage(turn)
    counts = {
        "input": usage.input,
        "output": usage.output,
        "cacheRead": usage.read,
        "cacheWrite": 0,
    }
    text = [{"type": "text", "text": turn[2]}]
    prompt = {"role": "user", "content": [{"type": "text", "text": turn[1]}]}
    model = {"api": "openai-completions", "provider": "openai", "model": "gpt-5"}
    answer: dict[str, Any] = {"role": "assistant", "content": text, **model, "stopReason": "stop"}
    answer |= {"usage": {**counts, "totalTokens": usage.total}, "responseId": f"r{turn[0]}"}
    parent_id = f"000000a{parent[0]}" if parent else None
    return [
        {
            "type": "message",
            "id": f"000000b{turn[0]}",
            "parentId": parent_id,
            "timestamp": time_text(turn),
            "message": {**prompt, "timestamp": time_ms(turn)},
        },
        {
            "type": "message",
            "id": f"000000a{turn[0]}",
            "parentId": f"000000b{turn[0]}",
            "timestamp": time_text(turn, 1),
            "message": {**answer, "timestamp": time_ms(turn, 1)},
        },
    ]


def _write_pi(home: Path, session: str, first: Turn, records: list[Any], **fields: Any) -> Path:
    name = time_text(first).replace(":", "-").replace(".", "-")
    path = home / ".pi/agent/sessions/--home-dev-tidepool--" / f"{name}_{session}.jsonl"
    head = {
        "type": "session",
        "version": 3,
        "id": session,
        "timestamp": time_text(first),
        "cwd": CWD,
    }
    write_records(path, [{**head, **fields}, *records])
    return path


def pi_fork(home: Path) -> None:
    """Write a session and its fork; copies have the ids and the usage of the originals."""
    records = [*_pi_records(FIRST, None), *_pi_records(SECOND, FIRST)]
    parent = _write_pi(home, A, FIRST, records)
    _write_pi(home, B, OTHER, [*records, *_pi_records(OTHER, SECOND)], parentSession=str(parent))


def pi_branch(home: Path) -> None:
    """Write a session with a discarded branch."""
    records = [
        *_pi_records(FIRST, None),
        *_pi_records(DISCARDED, FIRST),
        *_pi_records(OTHER, FIRST),
    ]
    _write_pi(home, A, FIRST, records)


# -- Kimi Code: `.kimi-code/sessions/wd_<name>/session_<id>/agents/<agent>/wire.jsonl` ------


def _kimi_records(turn: Turn) -> list[dict[str, Any]]:
    usage = turn_usage(turn)
    counts = {"inputOther": usage.input, "inputCacheRead": usage.read, "inputCacheCreation": 0}
    counts |= {"output": usage.output}
    content, name = [{"type": "text", "text": turn[1]}], f"msg_{turn[0]}"
    message = {"role": "user", "content": content, "id": name, "origin": {"kind": "user"}}
    part = {"type": "text", "text": turn[2]}
    step = f"s{turn[0]}"
    inner = {"type": "content.part", "uuid": f"u{turn[0]}", "stepUuid": step, "part": part}
    end = {"type": "step.end", "uuid": step, "finishReason": "end_turn", "usage": counts}
    records: list[tuple[str, dict[str, Any]]] = [
        ("turn.prompt", {"input": content, "origin": {"kind": "user"}, "promptId": name}),
        ("context.append_message", {"message": message}),
        ("llm.request", {"kind": "loop", "model": "kimi-k2", "modelAlias": "k"}),
        ("usage.record", {"model": "k", "usage": counts, "usageScope": "turn"}),
        ("context.append_loop_event", {"event": inner}),
        ("context.append_loop_event", {"event": end}),
        ("turn.ended", {"reason": "completed"}),
    ]
    return [
        {"type": kind, "agentId": "main", **fields, "time": time_ms(turn) + number}
        for number, (kind, fields) in enumerate(records)
    ]


def _write_kimi(home: Path, session: str, records: list[Any], **state: Any) -> None:
    folder = home / f".kimi-code/sessions/wd_tidepool_c0ffee/session_{session}"
    head = {"type": "metadata", "protocol_version": "1.5", "created_at": START_MS}
    write_records(folder / "agents/main/wire.jsonl", [head, *records])
    write_document(folder / "state.json", {"workDir": CWD, "title": "Tidepool", **state})


def kimi_fork(home: Path) -> None:
    """Write a session and its fork, which starts with a copy of every line."""
    records = [*_kimi_records(FIRST), *_kimi_records(SECOND)]
    _write_kimi(home, A, records)
    forked = {"type": "forked", "from": f"session_{A}", "time": time_ms(OTHER) - 1}
    _write_kimi(home, B, [*records, forked, *_kimi_records(OTHER)], forkedFrom=f"session_{A}")


# -- Droid: `.factory/sessions/<folder>/<id>.jsonl` and `.settings.json` --------------------


def _droid_records(turn: Turn, parent_turn: Turn | None) -> list[dict[str, Any]]:
    def message_record(
        name: str, parent: str | None, role: str, text: str, time_text: str
    ) -> dict[str, Any]:
        message = {"role": role, "content": [{"type": "text", "text": text}]}
        link = {"parentId": parent} if parent else {}
        return {"type": "message", "id": name, **link, "timestamp": time_text, "message": message}

    parent_id = f"da{parent_turn[0]}" if parent_turn else None
    return [
        message_record(f"dp{turn[0]}", parent_id, "user", turn[1], time_text(turn)),
        message_record(f"da{turn[0]}", f"dp{turn[0]}", "assistant", turn[2], time_text(turn, 1)),
    ]


def _write_droid(home: Path, session: str, records: list[Any], usage: Usage, **fields: Any) -> None:
    path = home / f".factory/sessions/-home-dev-tidepool/{session}.jsonl"
    head = {"type": "session_start", "id": session, "title": "Tidepool", "version": 2, "cwd": CWD}
    write_records(path, [{**head, "owner": "dev", **fields}, *records])
    counts = {"inputTokens": usage.input, "outputTokens": usage.output, "cacheCreationTokens": 0}
    counts |= {"cacheReadTokens": usage.read, "thinkingTokens": 0}
    settings = {"model": "gpt-5", "tokenUsage": counts, "inclusiveTokenUsage": counts}
    settings |= {"providerLock": "openai", "providerLockTimestamp": time_text(FIRST)}
    write_document(path.with_suffix(".settings.json"), settings)


def droid_fork(home: Path) -> None:
    """Write a session and its fork; the total of each is in a file beside its log."""
    records = [*_droid_records(FIRST, None), *_droid_records(SECOND, FIRST)]
    _write_droid(home, A, records, total_usage(FIRST, SECOND))
    forked = {"parent": A, "forkedAtMessageId": f"da{SECOND[0]}"}
    _write_droid(home, B, [*records, *_droid_records(OTHER, SECOND)], total_usage(OTHER), **forked)


# -- Cline: `.cline/data/sessions/<id>/<id>.messages.json`, rewritten for every message -----


def _cline_messages(turn: Turn) -> list[dict[str, Any]]:
    usage = turn_usage(turn)
    metrics = {"inputTokens": usage.input + usage.read, "outputTokens": usage.output}
    metrics |= {"cacheReadTokens": usage.read, "cacheWriteTokens": 0}
    prompt_text = f'<user_input mode="act">{turn[1]}</user_input>'
    model = {"modelInfo": {"id": "gpt-5", "provider": "openai"}, "metrics": metrics}
    prompt = {"id": f"cp{turn[0]}", "role": "user", "ts": time_ms(turn)}
    answer = {"id": f"ca{turn[0]}", "role": "assistant", "ts": time_ms(turn, 1)}
    return [
        {**prompt, "content": [{"type": "text", "text": prompt_text}]},
        {**answer, "content": [{"type": "text", "text": turn[2]}], **model},
    ]


def _write_cline(home: Path, *turns: Turn) -> None:
    session = f"{START_MS}_ab1cd"
    folder = home / f".cline/data/sessions/{session}"
    origin = {"source": "cli", "mode": "user", "sessionId": session, "version": "3.0.65"}
    document = {
        "version": 1,
        "updated_at": time_text(turns[-1], 2),
        "agent": "lead",
        "sessionId": session,
    }
    records = [message for turn in turns for message in _cline_messages(turn)]
    write_document(
        folder / f"{session}.messages.json", {**document, "origin": origin, "messages": records}
    )
    metadata = {"session_id": session, "status": "completed", "cwd": CWD, "model": "gpt-5"}
    metadata |= {"prompt": FIRST[1], "source": "cli", "started_at": time_text(FIRST)}
    write_document(folder / f"{session}.json", {**metadata, "metadata": {"title": "Tidepool"}})


# -- Continue: `.continue/sessions/<id>.json`, rewritten for every turn ---------------------


def _continue_items(turn: Turn) -> list[dict[str, Any]]:
    usage = turn_usage(turn)
    counts: dict[str, Any] = {
        "prompt_tokens": usage.input + usage.read,
        "completion_tokens": usage.output,
    }
    counts |= {"total_tokens": usage.total, "prompt_tokens_details": {"cached_tokens": usage.read}}
    answer: dict[str, Any] = {
        "role": "assistant",
        "content": turn[2],
        "usage": {**counts, "model": "gpt-5"},
    }
    prompt = {"role": "user", "content": turn[1]}
    return [{"message": prompt, "contextItems": []}, {"message": answer, "contextItems": []}]


def _write_continue(home: Path, session: str, *turns: Turn) -> None:
    history = [item for turn in turns for item in _continue_items(turn)]
    document = {"sessionId": session, "title": "Tidepool", "workspaceDirectory": CWD}
    write_document(home / f".continue/sessions/{session}.json", {**document, "history": history})


# -- aider: `.aider.chat.history.md`, one file for all chats of a folder --------------------


def _aider_usage(*turns: Turn) -> Usage:
    return Usage(sum(400 + turn[0] for turn in turns), sum(100 + turn[0] for turn in turns))


def aider_restored(home: Path) -> None:
    """Write two chats; the second continues the first. aider rounds only counts above 1,000."""
    chats: list[str] = []
    for turn, restored in ((FIRST, ""), (SECOND, "> Restored previous conversation history.  \n")):
        usage = _aider_usage(turn)
        chats.append(
            f"\n# aider chat started at 2026-11-10 10:0{turn[0]}:00\n\n"
            f"> Aider v0.86.2  \n> Main model: openai/gpt-5 with diff edit format  \n{restored}\n"
            f"#### {turn[1]}  \n\n{turn[2]}\n\n"
            f"> Tokens: {usage.input} sent, {usage.output} received.  \n"
        )
    path = home / ".aider" / "tidepool" / ".aider.chat.history.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(chats), encoding="utf-8")


# -- OpenCode and Kilo: a database with rows that change, and the events that changed them --

_SCHEMA = """
CREATE TABLE project (id text PRIMARY KEY, worktree text NOT NULL, vcs text, name text,
  time_created integer NOT NULL, time_updated integer NOT NULL, sandboxes text NOT NULL);
CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, parent_id text,
  slug text NOT NULL, directory text NOT NULL, title text NOT NULL, version text NOT NULL,
  revert text, agent text, model text, time_created integer NOT NULL,
  time_updated integer NOT NULL, time_archived integer);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE event_sequence (aggregate_id text PRIMARY KEY, seq integer NOT NULL, owner_id text);
CREATE TABLE event (id text PRIMARY KEY, aggregate_id text NOT NULL, seq integer NOT NULL,
  type text NOT NULL, data text NOT NULL);
CREATE UNIQUE INDEX event_aggregate_seq_idx ON event (aggregate_id, seq);
"""


class OpenCodeDatabase:
    """Builds a database of OpenCode."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(path)
        self._database.executescript(_SCHEMA)
        project = ("project", CWD, "git", None, START_MS, START_MS, "[]")
        self._database.execute("INSERT INTO project VALUES (?,?,?,?,?,?,?)", project)
        self._sequence: dict[str, int] = {}

    def _event(self, session: str, kind: str, **data: Any) -> None:
        number = self._sequence[session] = self._sequence.get(session, -1) + 1
        row = (f"evt_{session}_{number:04}", session, number, f"{kind}.1", json.dumps(data))
        self._database.execute("INSERT INTO event VALUES (?,?,?,?,?)", row)
        self._database.execute(
            "INSERT OR REPLACE INTO event_sequence VALUES (?,?,NULL)", (session, number)
        )

    def session(self, name: str, first: Turn) -> None:
        """Add a session."""
        info = {"id": name, "directory": CWD, "title": "Tidepool", "version": "1.18.33"}
        self._event(name, "session.created", info={**info, "time": {"created": time_ms(first)}})
        self._database.execute(
            "INSERT INTO session (id, project_id, slug, directory, title, version, agent,"
            " time_created, time_updated) VALUES (?,'project','tide',?,?,?,'build',?,?)",
            (name, CWD, "Tidepool", "1.18.33", time_ms(first), time_ms(first, 1)),
        )

    def _message(self, session: str, info: dict[str, Any], text: str) -> None:
        created = info["time"]["created"]
        part = {"id": info["id"].replace("msg", "prt"), "messageID": info["id"], "type": "text"}
        part |= {"sessionID": session, "text": text}
        self._event(session, "message.updated", info=info)
        self._event(session, "message.part.updated", part=part)
        inner = {key: value for key, value in info.items() if key not in ("id", "sessionID")}
        row = (info["id"], session, created, created, json.dumps(inner))
        self._database.execute("INSERT INTO message VALUES (?,?,?,?,?)", row)
        data = json.dumps({"type": "text", "text": text})
        part_row = (part["id"], info["id"], session, created, created, data)
        self._database.execute("INSERT INTO part VALUES (?,?,?,?,?,?)", part_row)

    def turn(self, session: str, turn: Turn, prefix: str = "1e0") -> None:
        """Add a prompt and its answer; cached tokens are not part of the input."""
        usage = turn_usage(turn)
        cache = {"read": usage.read, "write": 0}
        tokens = {"input": usage.input, "output": usage.output, "reasoning": 0, "cache": cache}
        model = {"providerID": "openai", "modelID": "gpt-5"}
        prompt_id, answer_id = f"msg_{prefix}{turn[0]}p", f"msg_{prefix}{turn[0]}r"
        prompt = {"id": prompt_id, "sessionID": session, "role": "user", "agent": "build"}
        self._message(
            session, {**prompt, "time": {"created": time_ms(turn)}, "model": model}, turn[1]
        )
        answer: dict[str, Any] = {
            "id": answer_id,
            "sessionID": session,
            "role": "assistant",
            "parentID": prompt_id,
        }
        answer |= {"mode": "build", "agent": "build", "path": {"cwd": CWD, "root": CWD}}
        times = {"created": time_ms(turn, 1), "completed": time_ms(turn, 2)}
        answer |= {"cost": 0, "tokens": tokens, **model, "time": times, "finish": "stop"}
        self._message(session, answer, turn[2])

    def close(self) -> None:
        """Commit and close."""
        self._database.commit()
        self._database.close()


def _opencode_fork(path: str) -> Callable[[Path], None]:
    def plant(home: Path) -> None:
        """Write a session and its fork; copies have new ids, and nothing names the parent."""
        client = OpenCodeDatabase(home / path)
        client.session("ses_e1parent", FIRST)
        client.turn("ses_e1parent", FIRST)
        client.turn("ses_e1parent", SECOND)
        client.session("ses_e0fork", OTHER)
        client.turn("ses_e0fork", FIRST, "1f0")
        client.turn("ses_e0fork", SECOND, "1f0")
        client.turn("ses_e0fork", OTHER, "1f0")
        client.close()

    return plant


# -- all cases ------------------------------------------------------------------------------

_WORDS = ("anemone", "basalt", "holdfast", "sandbar")
_FORK_ANSWERS = Answers(2, total_usage(FIRST, SECOND, OTHER), live_words=_WORDS)
DISCARDED_TURN = Answers(
    1,
    total_usage(FIRST, DISCARDED, OTHER),
    live_words=("basalt", "sandbar"),
    discarded_words=("quagmire", "vortex"),
)
_SUBAGENT_ANSWERS = Answers(None, total_usage(FIRST, SECOND), live_words=("basalt", "holdfast"))
_AIDER_ANSWERS = Answers(None, _aider_usage(FIRST, SECOND), live_words=("basalt", "holdfast"))
_FORK_DESCRIPTION = "a fork repeats the turns of its parent, with their usage"
CASES = (
    Case("gemini", "rewind", "a turn is rewound; answers are written twice",
         gemini_rewind, DISCARDED_TURN),
    Case("gemini", "subagent", "a subagent has its own log",
         gemini_subagent, _SUBAGENT_ANSWERS),
    Case("qwen", "fork", _FORK_DESCRIPTION, qwen_fork, _FORK_ANSWERS),
    Case("qwen", "branch", "a prompt is sent again; cached tokens are part of the input",
         qwen_branch, DISCARDED_TURN),
    Case("pi", "fork", _FORK_DESCRIPTION, pi_fork, _FORK_ANSWERS),
    Case("pi", "branch", "a branch is discarded", pi_branch, DISCARDED_TURN),
    Case("kimi", "fork", _FORK_DESCRIPTION, kimi_fork, _FORK_ANSWERS),
    Case("droid", "fork", "a fork repeats the turns of its parent; totals are beside the logs",
         droid_fork, _FORK_ANSWERS),
    Case("opencode", "fork", f"{_FORK_DESCRIPTION}, under new ids and without a link",
         _opencode_fork(".local/share/opencode/opencode.db"), _FORK_ANSWERS),
    Case("kilo", "fork", f"{_FORK_DESCRIPTION}, under new ids and without a link",
         _opencode_fork(".local/share/kilo/kilo.db"), _FORK_ANSWERS),
    Case("cline", "rewound", "the document is rewritten without a turn that was read",
         lambda home: _write_cline(home, FIRST, DISCARDED), DISCARDED_TURN,
         (lambda home: _write_cline(home, FIRST, OTHER),)),
    Case("continue", "rewound", "the document is rewritten without a turn that was read",
         lambda home: _write_continue(home, A, FIRST, DISCARDED), DISCARDED_TURN,
         (lambda home: _write_continue(home, A, FIRST, OTHER),)),
    Case("aider", "restored", "two chats in one history; the second continues the first",
         aider_restored, _AIDER_ANSWERS),
)  # fmt: skip
