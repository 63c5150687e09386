"""Cases of the agents that came later: small sessions as their clients write them, an oddity each.

Every turn is a prompt and an answer of words that stand nowhere else; `turn` says what it cost.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from truth.case import Answers, Case, Usage, lines_of

Turn = tuple[int, str, str]
"""Its number, which tells time, ids and bill; the prompt; the answer."""

FIRST: Turn = (1, "Where does the anemone sit?", "On the basalt ledge.")
SECOND: Turn = (2, "And the urchin?", "Below the kelp holdfast.")
LEFT: Turn = (3, "Try the quagmire instead", "That led to a vortex.")
OTHER: Turn = (4, "Try the estuary", "The estuary has a sandbar.")
START_MS = 1_794_304_800_000
"""2026-11-10, 10:00 UTC; a turn takes ten seconds."""
CWD = "/home/dev/tidepool"
A, B, C = (f"5eed0000-0000-4000-8000-00000000000{end}" for end in "abc")


def cost(turn: Turn) -> Usage:
    """Give what a turn was billed for."""
    return Usage(400 + 10 * turn[0], 100 + turn[0], 0, 600)


def bill(*turns: Turn) -> Usage:
    """Give what some turns were billed for."""
    return sum((cost(turn) for turn in turns), Usage())


def ms(turn: Turn, answer: int = 0) -> int:
    """Give when a turn was, or its answer, in milliseconds since 1970."""
    return START_MS + 10_000 * turn[0] + 1000 * answer


def at(turn: Turn, answer: int = 0) -> str:
    """Give when a turn was, or its answer."""
    return f"2026-11-10T10:{turn[0]:02}:{10 * answer:02}.000Z"


def write_records(path: Path, records: list[dict[str, Any]]) -> None:
    """Write a log of lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines_of(records))


def write_document(path: Path, value: Any) -> None:
    """Write a file that is one value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")


# -- Gemini CLI: `.gemini/tmp/<project>/chats/session-*.jsonl` ------------------------------


def _gemini_head(session: str, kind: str = "main") -> dict[str, Any]:
    told = {"sessionId": session, "projectHash": "c0ffee", "startTime": at(FIRST)}
    return {**told, "lastUpdated": at(FIRST), "kind": kind}


def _gemini(turn: Turn) -> list[dict[str, Any]]:
    """A prompt, and an answer that is written twice: the cache is a part of its input."""
    used = cost(turn)
    tokens = {"input": used.input + used.read, "output": used.output, "cached": used.read}
    tokens |= {"thoughts": 0, "tool": 0, "total": used.total}
    prompt = {"id": f"p{turn[0]}", "timestamp": at(turn), "type": "user"}
    answer: dict[str, Any] = {"id": f"a{turn[0]}", "timestamp": at(turn, 1), "type": "gemini"}
    answer |= {"content": turn[2], "thoughts": [], "tokens": tokens, "model": "gemini-2.5-pro"}
    return [{**prompt, "content": [{"text": turn[1]}]}, answer, answer]


def _gemini_path(home: Path) -> Path:
    chats = home / ".gemini/tmp/tidepool/chats"
    chats.mkdir(parents=True, exist_ok=True)
    (chats.parent / ".project_root").write_text(CWD)
    return chats / f"session-2026-11-10T10-01-{A[:8]}.jsonl"


def gemini_rewind(home: Path) -> None:
    """Plant a session of which one turn was taken back."""
    rewind = {"$rewindTo": f"p{LEFT[0]}"}
    talk = [*_gemini(FIRST), *_gemini(LEFT), rewind, *_gemini(OTHER)]
    write_records(_gemini_path(home), [_gemini_head(A), *talk])


def gemini_subagent(home: Path) -> None:
    """Plant a session whose subagent has a log of its own."""
    done = {"functionResponse": {"id": "c1", "name": "invoke_agent", "response": {"output": "x"}}}
    call: dict[str, Any] = {
        "id": "c1",
        "name": "invoke_agent",
        "args": {"prompt": SECOND[1]},
        "agentId": C,
    }
    call |= {"status": "success", "result": [done], "timestamp": at(FIRST, 1)}
    prompt, answer, _ = _gemini(FIRST)
    write_records(
        _gemini_path(home), [_gemini_head(A), prompt, answer, {**answer, "toolCalls": [call]}]
    )
    side = _gemini_path(home).parent / A / f"{C}.jsonl"
    write_records(side, [_gemini_head(C, "subagent"), *_gemini(SECOND)])


# -- Qwen Code: `.qwen/projects/<folder>/chats/<id>.jsonl` ----------------------------------


def _qwen(turn: Turn, above: Turn | None, session: str) -> list[dict[str, Any]]:
    used = cost(turn)
    counts = {"promptTokenCount": used.input + used.read, "candidatesTokenCount": used.output}
    counts |= {"cachedContentTokenCount": used.read, "totalTokenCount": used.total}
    same = {"sessionId": session, "cwd": CWD, "version": "0.24.4", "gitBranch": "main"}
    prompt = {
        "uuid": f"qp{turn[0]}",
        "parentUuid": f"qa{above[0]}" if above else None,
        **same,
        "timestamp": at(turn),
        "type": "user",
        "message": {"role": "user", "parts": [{"text": turn[1]}]},
    }
    answer = {
        "uuid": f"qa{turn[0]}",
        "parentUuid": prompt["uuid"],
        **same,
        "timestamp": at(turn, 1),
        "type": "assistant",
        "model": "qwen3-coder-plus",
        "message": {"role": "model", "parts": [{"text": turn[2]}]},
        "usageMetadata": counts,
    }
    return [prompt, answer]


def qwen_fork(home: Path) -> None:
    """Plant a session and its fork: copies have the ids and the bills of what they copy."""
    talk = [*_qwen(FIRST, None, A), *_qwen(SECOND, FIRST, A)]
    copies = [
        {**one, "sessionId": B, "forkedFrom": {"sessionId": A, "messageUuid": one["uuid"]}}
        for one in talk
    ]
    chats = home / ".qwen/projects/-home-dev-tidepool/chats"
    write_records(chats / f"{A}.jsonl", talk)
    write_records(chats / f"{B}.jsonl", [*copies, *_qwen(OTHER, SECOND, B)])


def qwen_branch(home: Path) -> None:
    """Plant a session in which a prompt was asked anew: the answer before it is left."""
    talk = [*_qwen(FIRST, None, A), *_qwen(LEFT, FIRST, A), *_qwen(OTHER, FIRST, A)]
    write_records(home / f".qwen/projects/-home-dev-tidepool/chats/{A}.jsonl", talk)


# -- pi: `.pi/agent/sessions/--<folder>--/<time>_<id>.jsonl` --------------------------------


def _pi(turn: Turn, above: Turn | None) -> list[dict[str, Any]]:
    used = cost(turn)
    counts = {"input": used.input, "output": used.output, "cacheRead": used.read, "cacheWrite": 0}
    text = [{"type": "text", "text": turn[2]}]
    prompt = {"role": "user", "content": [{"type": "text", "text": turn[1]}]}
    told = {"api": "openai-completions", "provider": "openai", "model": "gpt-5"}
    answer: dict[str, Any] = {"role": "assistant", "content": text, **told, "stopReason": "stop"}
    answer |= {"usage": {**counts, "totalTokens": used.total}, "responseId": f"r{turn[0]}"}
    above_id = f"000000a{above[0]}" if above else None
    return [
        {
            "type": "message",
            "id": f"000000b{turn[0]}",
            "parentId": above_id,
            "timestamp": at(turn),
            "message": {**prompt, "timestamp": ms(turn)},
        },
        {
            "type": "message",
            "id": f"000000a{turn[0]}",
            "parentId": f"000000b{turn[0]}",
            "timestamp": at(turn, 1),
            "message": {**answer, "timestamp": ms(turn, 1)},
        },
    ]


def _pi_write(home: Path, session: str, begun: Turn, talk: list[Any], **more: Any) -> Path:
    name = at(begun).replace(":", "-").replace(".", "-")
    path = home / ".pi/agent/sessions/--home-dev-tidepool--" / f"{name}_{session}.jsonl"
    head = {"type": "session", "version": 3, "id": session, "timestamp": at(begun), "cwd": CWD}
    write_records(path, [{**head, **more}, *talk])
    return path


def pi_fork(home: Path) -> None:
    """Plant a session and its fork: copies have the ids and the bills of what they copy."""
    talk = [*_pi(FIRST, None), *_pi(SECOND, FIRST)]
    parent = _pi_write(home, A, FIRST, talk)
    _pi_write(home, B, OTHER, [*talk, *_pi(OTHER, SECOND)], parentSession=str(parent))


def pi_branch(home: Path) -> None:
    """Plant a session of which one branch was left."""
    talk = [*_pi(FIRST, None), *_pi(LEFT, FIRST), *_pi(OTHER, FIRST)]
    _pi_write(home, A, FIRST, talk)


# -- Kimi Code: `.kimi-code/sessions/wd_<name>/session_<id>/agents/<agent>/wire.jsonl` ------


def _kimi(turn: Turn) -> list[dict[str, Any]]:
    used = cost(turn)
    counts = {"inputOther": used.input, "inputCacheRead": used.read, "inputCacheCreation": 0}
    counts |= {"output": used.output}
    content, name = [{"type": "text", "text": turn[1]}], f"msg_{turn[0]}"
    message = {"role": "user", "content": content, "id": name, "origin": {"kind": "user"}}
    part = {"type": "text", "text": turn[2]}
    step = f"s{turn[0]}"
    inner = {"type": "content.part", "uuid": f"u{turn[0]}", "stepUuid": step, "part": part}
    end = {"type": "step.end", "uuid": step, "finishReason": "end_turn", "usage": counts}
    told: list[tuple[str, dict[str, Any]]] = [
        ("turn.prompt", {"input": content, "origin": {"kind": "user"}, "promptId": name}),
        ("context.append_message", {"message": message}),
        ("llm.request", {"kind": "loop", "model": "kimi-k2", "modelAlias": "k"}),
        ("usage.record", {"model": "k", "usage": counts, "usageScope": "turn"}),
        ("context.append_loop_event", {"event": inner}),
        ("context.append_loop_event", {"event": end}),
        ("turn.ended", {"reason": "completed"}),
    ]
    return [
        {"type": kind, "agentId": "main", **fields, "time": ms(turn) + number}
        for number, (kind, fields) in enumerate(told)
    ]


def _kimi_write(home: Path, session: str, talk: list[Any], **state: Any) -> None:
    folder = home / f".kimi-code/sessions/wd_tidepool_c0ffee/session_{session}"
    head = {"type": "metadata", "protocol_version": "1.5", "created_at": START_MS}
    write_records(folder / "agents/main/wire.jsonl", [head, *talk])
    write_document(folder / "state.json", {"workDir": CWD, "title": "Tidepool", **state})


def kimi_fork(home: Path) -> None:
    """Plant a session and its fork, which begins with a copy of every line."""
    talk = [*_kimi(FIRST), *_kimi(SECOND)]
    _kimi_write(home, A, talk)
    forked = {"type": "forked", "from": f"session_{A}", "time": ms(OTHER) - 1}
    _kimi_write(home, B, [*talk, forked, *_kimi(OTHER)], forkedFrom=f"session_{A}")


# -- Droid: `.factory/sessions/<folder>/<id>.jsonl` and `.settings.json` --------------------


def _droid(turn: Turn, above: Turn | None) -> list[dict[str, Any]]:
    def said(name: str, parent: str | None, role: str, text: str, at: str) -> dict[str, Any]:
        message = {"role": role, "content": [{"type": "text", "text": text}]}
        link = {"parentId": parent} if parent else {}
        return {"type": "message", "id": name, **link, "timestamp": at, "message": message}

    above_id = f"da{above[0]}" if above else None
    return [
        said(f"dp{turn[0]}", above_id, "user", turn[1], at(turn)),
        said(f"da{turn[0]}", f"dp{turn[0]}", "assistant", turn[2], at(turn, 1)),
    ]


def _droid_write(home: Path, session: str, talk: list[Any], used: Usage, **more: Any) -> None:
    path = home / f".factory/sessions/-home-dev-tidepool/{session}.jsonl"
    head = {"type": "session_start", "id": session, "title": "Tidepool", "version": 2, "cwd": CWD}
    write_records(path, [{**head, "owner": "dev", **more}, *talk])
    counts = {"inputTokens": used.input, "outputTokens": used.output, "cacheCreationTokens": 0}
    counts |= {"cacheReadTokens": used.read, "thinkingTokens": 0}
    settings = {"model": "gpt-5", "tokenUsage": counts, "inclusiveTokenUsage": counts}
    settings |= {"providerLock": "openai", "providerLockTimestamp": at(FIRST)}
    write_document(path.with_suffix(".settings.json"), settings)


def droid_fork(home: Path) -> None:
    """Plant a session and its fork; totals of each stand in a file beside its log."""
    talk = [*_droid(FIRST, None), *_droid(SECOND, FIRST)]
    _droid_write(home, A, talk, bill(FIRST, SECOND))
    forked = {"parent": A, "forkedAtMessageId": f"da{SECOND[0]}"}
    _droid_write(home, B, [*talk, *_droid(OTHER, SECOND)], bill(OTHER), **forked)


# -- Cline: `.cline/data/sessions/<id>/<id>.messages.json`, written anew for every message --


def _cline(turn: Turn) -> list[dict[str, Any]]:
    used = cost(turn)
    metrics = {"inputTokens": used.input + used.read, "outputTokens": used.output}
    metrics |= {"cacheReadTokens": used.read, "cacheWriteTokens": 0}
    asked = f'<user_input mode="act">{turn[1]}</user_input>'
    model = {"modelInfo": {"id": "gpt-5", "provider": "openai"}, "metrics": metrics}
    prompt = {"id": f"cp{turn[0]}", "role": "user", "ts": ms(turn)}
    answer = {"id": f"ca{turn[0]}", "role": "assistant", "ts": ms(turn, 1)}
    return [
        {**prompt, "content": [{"type": "text", "text": asked}]},
        {**answer, "content": [{"type": "text", "text": turn[2]}], **model},
    ]


def _cline_write(home: Path, *turns: Turn) -> None:
    session = f"{START_MS}_ab1cd"
    folder = home / f".cline/data/sessions/{session}"
    origin = {"source": "cli", "mode": "user", "sessionId": session, "version": "3.0.65"}
    told = {"version": 1, "updated_at": at(turns[-1], 2), "agent": "lead", "sessionId": session}
    talk = [message for turn in turns for message in _cline(turn)]
    write_document(
        folder / f"{session}.messages.json", {**told, "origin": origin, "messages": talk}
    )
    card = {"session_id": session, "status": "completed", "cwd": CWD, "model": "gpt-5"}
    card |= {"prompt": FIRST[1], "source": "cli", "started_at": at(FIRST)}
    write_document(folder / f"{session}.json", {**card, "metadata": {"title": "Tidepool"}})


# -- Continue: `.continue/sessions/<id>.json`, written anew for every turn ------------------


def _continue(turn: Turn) -> list[dict[str, Any]]:
    used = cost(turn)
    counts: dict[str, Any] = {
        "prompt_tokens": used.input + used.read,
        "completion_tokens": used.output,
    }
    counts |= {"total_tokens": used.total, "prompt_tokens_details": {"cached_tokens": used.read}}
    answer: dict[str, Any] = {
        "role": "assistant",
        "content": turn[2],
        "usage": {**counts, "model": "gpt-5"},
    }
    prompt = {"role": "user", "content": turn[1]}
    return [{"message": prompt, "contextItems": []}, {"message": answer, "contextItems": []}]


def _continue_write(home: Path, session: str, *turns: Turn) -> None:
    history = [item for turn in turns for item in _continue(turn)]
    told = {"sessionId": session, "title": "Tidepool", "workspaceDirectory": CWD}
    write_document(home / f".continue/sessions/{session}.json", {**told, "history": history})


# -- aider: `.aider.chat.history.md`, one file for all chats of a folder --------------------


def _aider_bill(*turns: Turn) -> Usage:
    return Usage(sum(400 + turn[0] for turn in turns), sum(100 + turn[0] for turn in turns))


def aider_restored(home: Path) -> None:
    """Write two chats; the second goes on from the first. Below 1,000 aider rounds no count."""
    chats: list[str] = []
    for turn, restored in ((FIRST, ""), (SECOND, "> Restored previous conversation history.  \n")):
        used = _aider_bill(turn)
        chats.append(
            f"\n# aider chat started at 2026-11-10 10:0{turn[0]}:00\n\n"
            f"> Aider v0.86.2  \n> Main model: openai/gpt-5 with diff edit format  \n{restored}\n"
            f"#### {turn[1]}  \n\n{turn[2]}\n\n"
            f"> Tokens: {used.input} sent, {used.output} received.  \n"
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


class OpenCode:
    """A database of OpenCode in the making."""

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

    def session(self, name: str, begun: Turn) -> None:
        """Begin a session."""
        info = {"id": name, "directory": CWD, "title": "Tidepool", "version": "1.18.33"}
        self._event(name, "session.created", info={**info, "time": {"created": ms(begun)}})
        self._database.execute(
            "INSERT INTO session (id, project_id, slug, directory, title, version, agent,"
            " time_created, time_updated) VALUES (?,'project','tide',?,?,?,'build',?,?)",
            (name, CWD, "Tidepool", "1.18.33", ms(begun), ms(begun, 1)),
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
        made = (part["id"], info["id"], session, created, created, data)
        self._database.execute("INSERT INTO part VALUES (?,?,?,?,?,?)", made)

    def turn(self, session: str, turn: Turn, prefix: str = "1e0") -> None:
        """A prompt and its answer; the cache is beside the input."""
        used = cost(turn)
        cache = {"read": used.read, "write": 0}
        tokens = {"input": used.input, "output": used.output, "reasoning": 0, "cache": cache}
        model = {"providerID": "openai", "modelID": "gpt-5"}
        asked, told = f"msg_{prefix}{turn[0]}p", f"msg_{prefix}{turn[0]}r"
        prompt = {"id": asked, "sessionID": session, "role": "user", "agent": "build"}
        self._message(session, {**prompt, "time": {"created": ms(turn)}, "model": model}, turn[1])
        answer: dict[str, Any] = {
            "id": told,
            "sessionID": session,
            "role": "assistant",
            "parentID": asked,
        }
        answer |= {"mode": "build", "agent": "build", "path": {"cwd": CWD, "root": CWD}}
        times = {"created": ms(turn, 1), "completed": ms(turn, 2)}
        answer |= {"cost": 0, "tokens": tokens, **model, "time": times, "finish": "stop"}
        self._message(session, answer, turn[2])

    def close(self) -> None:
        """Write it."""
        self._database.commit()
        self._database.close()


def _rows_fork(path: str) -> Callable[[Path], None]:
    def plant(home: Path) -> None:
        """Plant a session and its fork: copies have new ids, and nothing names the parent."""
        client = OpenCode(home / path)
        client.session("ses_e1parent", FIRST)
        client.turn("ses_e1parent", FIRST)
        client.turn("ses_e1parent", SECOND)
        client.session("ses_e0fork", OTHER)
        client.turn("ses_e0fork", FIRST, "1f0")
        client.turn("ses_e0fork", SECOND, "1f0")
        client.turn("ses_e0fork", OTHER, "1f0")
        client.close()

    return plant


# -- all of them ----------------------------------------------------------------------------

_WORDS = ("anemone", "basalt", "holdfast", "sandbar")
_FORKED = Answers(2, bill(FIRST, SECOND, OTHER), live=_WORDS)
BRANCHED = Answers(
    1, bill(FIRST, LEFT, OTHER), live=("basalt", "sandbar"), dead=("quagmire", "vortex")
)
_COPY = "a fork holds the turns of its parent again, with their bills"
CASES = (
    Case("gemini", "rewind", "a turn was taken back; answers are written twice",
         gemini_rewind, BRANCHED),
    Case("gemini", "subagent", "a subagent has a log of its own",
         gemini_subagent, Answers(None, bill(FIRST, SECOND), live=("basalt", "holdfast"))),
    Case("qwen", "fork", _COPY, qwen_fork, _FORKED),
    Case("qwen", "branch", "a prompt was asked anew; the cache is inside the input",
         qwen_branch, BRANCHED),
    Case("pi", "fork", _COPY, pi_fork, _FORKED),
    Case("pi", "branch", "a branch was left", pi_branch, BRANCHED),
    Case("kimi", "fork", _COPY, kimi_fork, _FORKED),
    Case("droid", "fork", "a fork holds the turns of its parent; totals stand beside the logs",
         droid_fork, _FORKED),
    Case("opencode", "fork", f"{_COPY}, under new ids and without a link",
         _rows_fork(".local/share/opencode/opencode.db"), _FORKED),
    Case("kilo", "fork", f"{_COPY}, under new ids and without a link",
         _rows_fork(".local/share/kilo/kilo.db"), _FORKED),
    Case("cline", "rewound", "the document is written anew without a turn that was read",
         lambda home: _cline_write(home, FIRST, LEFT), BRANCHED,
         (lambda home: _cline_write(home, FIRST, OTHER),)),
    Case("continue", "rewound", "the document is written anew without a turn that was read",
         lambda home: _continue_write(home, A, FIRST, LEFT), BRANCHED,
         (lambda home: _continue_write(home, A, FIRST, OTHER),)),
    Case("aider", "restored", "two chats in one history, the second goes on from the first",
         aider_restored, Answers(None, _aider_bill(FIRST, SECOND), live=("basalt", "holdfast"))),
)  # fmt: skip
