"""Cases of Grok: `.grok/sessions/<folder>/<session>/updates.jsonl` and what lies beside it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from truth.case import Answers, Case, Usage, encode_lines

A = "01a1c4e6-7500-7000-8000-00000000000a"
B = "01a1c4e6-9c10-7000-8000-00000000000b"
GROUP = ".grok/sessions/%2Fhome%2Fdev%2Ftidepool"
TURN_USAGE = Usage(400, 100, 0, 600)
START_MS = 1_794_304_800_000


class SessionFolderBuilder:
    """Builds the files of a session's folder."""

    def __init__(self, home: Path, session: str = A) -> None:
        self.session = session
        self.path = home / GROUP / session
        self.path.mkdir(parents=True, exist_ok=True)
        self.lines: list[dict[str, Any]] = []
        self.chat: list[dict[str, Any]] = []
        """What the model sees: the client removes rewound turns from it."""
        self.bills: list[tuple[int, Usage]] = []
        """When each turn ended, in seconds from the start, and its usage."""
        self.prompts = 0
        self.index = 0

    def update(self, kind: str, meta: dict[str, Any] | None = None, /, **fields: Any) -> None:
        """Add a line to the log."""
        at = len(self.lines) + 1
        ids = {"eventId": f"{self.session}-{at}", "agentTimestampMs": START_MS + 1000 * at}
        params = {
            "sessionId": self.session,
            "update": {"sessionUpdate": kind, **fields},
            "_meta": ids | (meta or {}),
        }
        method = "session/update" if kind.endswith("_chunk") else "_x.ai/session/update"
        line = {"timestamp": START_MS // 1000 + at, "method": method, "params": params}
        self.lines.append(line)

    def turn(self, prompt: str, answer: str) -> None:
        """Add a prompt, its answer and its usage."""
        self.start_turn(prompt)
        self.end_turn(answer)

    def start_turn(self, prompt: str) -> None:
        """Add the prompt of a turn."""
        self.prompts += 1
        text = {"type": "text", "text": prompt}
        model_text = [{"type": "text", "text": f"<user_query>\n{prompt}\n</user_query>"}]
        self.chat.append({"type": "user", "content": model_text, "prompt_index": self.index})
        meta = {"modelId": "grok-code-fast-1", "promptIndex": self.index}
        self.update("user_message_chunk", {"promptId": self._prompt}, content=text, _meta=meta)

    def end_turn(self, answer: str, children: int = 0) -> None:
        """Add the answer of a turn; its usage includes that of its subagents."""
        meta = {"promptId": self._prompt, "streamStartMs": self.prompts}
        self.chat.append({"type": "assistant", "content": answer, "model_id": "grok-code-fast-1"})
        self.update("agent_message_chunk", meta, content={"type": "text", "text": answer})
        bill = sum([TURN_USAGE] * children, TURN_USAGE)
        self.update(
            "turn_completed",
            prompt_id=self._prompt,
            stop_reason="end_turn",
            usage=_usage_fields(bill),
        )
        self.bills.append((len(self.lines), bill))
        self.index += 1

    @property
    def _prompt(self) -> str:
        return f"prompt-{self.session[-1]}-{self.prompts}"

    def write(self, **summary: Any) -> None:
        """Write all files."""
        (self.path / "updates.jsonl").write_bytes(encode_lines(self.lines))
        system = {"type": "system", "content": "You are Grok."}
        (self.path / "chat_history.jsonl").write_bytes(encode_lines([system, *self.chat]))
        info = {"id": self.session, "cwd": "/home/dev/tidepool"}
        document = {
            "info": info,
            "current_model_id": "grok-code-fast-1",
            "created_at": "2026-11-10T10:00:00Z",
            "updated_at": "2026-11-10T10:05:00Z",
            **summary,
        }
        (self.path / "summary.json").write_text(json.dumps(document), encoding="utf-8")
        turns = [
            {"turnNumber": turn, "endedAt": f"2026-11-10T10:00:{at:02}Z", **_usage_fields(bill)}
            for turn, (at, bill) in enumerate(self.bills, 1)
        ]
        total = sum((bill for _, bill in self.bills), Usage())
        usage = {"sessionId": self.session, "session": _usage_fields(total), "turns": turns}
        (self.path / "usage.json").write_text(json.dumps(usage), encoding="utf-8")


def _usage_fields(usage: Usage) -> dict[str, Any]:
    counts = {
        "inputTokens": usage.input + usage.read,
        "outputTokens": usage.output,
        "totalTokens": usage.total,
        "cachedReadTokens": usage.read,
        "cacheCreationTokens": 0,
        "reasoningTokens": 0,
        "modelCalls": usage.output // TURN_USAGE.output,
    }
    return {**counts, "modelUsage": {"grok-code-fast-1": counts}, "numTurns": 1, "turnCount": 1}


def _conversation(home: Path) -> SessionFolderBuilder:
    folder = SessionFolderBuilder(home)
    folder.turn("Where is quillfern kept?", "In the brackenloft.")
    return folder


# -- cases ----------------------------------------------------------------------------------


def _streamed(home: Path) -> None:
    """Write an answer in several chunks, with one usage record for the turn."""
    folder = SessionFolderBuilder(home)
    folder.turn("Where is quillfern kept?", "In the brackenloft.")
    name = {"promptId": "prompt-a-1", "streamStartMs": 1}
    folder.lines.insert(2, json.loads(json.dumps(folder.lines[1])))
    folder.lines[2]["params"]["update"]["content"]["text"] = " Or in the copperweir."
    folder.lines[2]["params"]["_meta"] |= {"eventId": f"{A}-9", **name}
    folder.chat[-1]["content"] += " Or in the copperweir."
    folder.write()


def _rewind(home: Path) -> None:
    """Rewind a turn with a marker."""
    folder = _conversation(home)
    folder.turn("Take the thornvault road.", "I took the thornvault road.")
    folder.update("rewind_marker", target_prompt_index=1, created_at="2026-11-10T10:03:00Z")
    folder.index = 1
    del folder.chat[2:]
    folder.turn("Take the other road.", "I took the copperweir road.")
    folder.write()


def _fork(home: Path) -> None:
    """Write a second folder that starts with copies of the lines and usage of the first."""
    first = _conversation(home)
    first.write()
    other = SessionFolderBuilder(home, B)
    other.lines = [json.loads(json.dumps(line).replace(f'sessionId": "{A}', f'sessionId": "{B}'))
                   for line in first.lines]  # fmt: skip
    other.chat = list(first.chat)
    other.bills = list(first.bills)
    other.prompts = other.index = 1
    other.turn("And the fork?", "It leads to the copperweir.")
    other.write(session_kind="fork", parent_session_id=A, forked_at="2026-11-10T10:02:00Z")


def _subagent(home: Path) -> None:
    """Write the folder of a subagent; the parent's usage includes that of the child."""
    child = SessionFolderBuilder(home, B)
    child.turn("Look.", "Behind the copperweir.")
    child.write(session_kind="subagent")
    folder = SessionFolderBuilder(home)
    ids = {"subagent_id": B, "child_session_id": B, "attempt_id": "at1.1"}
    folder.start_turn("Where is quillfern kept?")
    folder.update(
        "subagent_spawned",
        **ids,
        parent_session_id=A,
        parent_prompt_id="prompt-a-1",
        subagent_type="explore",
        description="look",
        effective_context_source="new",
        model="grok-code-fast-1",
    )
    folder.update(
        "subagent_finished",
        **ids,
        status="completed",
        tool_calls=0,
        turns=1,
        duration_ms=1000,
        tokens_used=TURN_USAGE.total,
        output="Behind the copperweir.",
        will_wake=True,
    )
    folder.end_turn("In the brackenloft.", children=1)
    side = folder.path / "subagents" / B
    side.mkdir(parents=True)
    (side / "meta.json").write_text(json.dumps(ids), encoding="utf-8")
    folder.write()


def _torn(home: Path) -> None:
    """Write half a line at the end."""
    folder = _conversation(home)
    folder.turn("And then?", "The copperweir.")
    folder.write()
    path = folder.path / "updates.jsonl"
    path.write_bytes(path.read_bytes() + b'{"timestamp":1794304')


def _deleted(home: Path) -> None:
    """Delete the folder."""
    shutil.rmtree(home / GROUP / A)


def _plain(home: Path) -> None:
    _conversation(home).write()


_WORDS = ("quillfern", "brackenloft")
_BOTH = (*_WORDS, "copperweir")

CASES = (
    Case(
        "grok",
        "streamed usage",
        "an answer in chunks, billed once for the turn",
        _streamed,
        Answers(1, TURN_USAGE, live_words=_BOTH),
    ),
    Case(
        "grok",
        "rewind",
        "a turn is rewound: still billed, and discarded",
        _rewind,
        Answers(
            1,
            TURN_USAGE + TURN_USAGE + TURN_USAGE,
            live_words=_BOTH,
            discarded_words=("thornvault",),
        ),
    ),
    Case(
        "grok",
        "fork",
        "a second folder starts with the lines and the usage of the first",
        _fork,
        Answers(2, TURN_USAGE + TURN_USAGE, live_words=_BOTH),
    ),
    Case(
        "grok",
        "subagent",
        "the parent's usage includes the child's, which is also recorded alone",
        _subagent,
        Answers(None, TURN_USAGE + TURN_USAGE, live_words=_BOTH),
    ),
    Case(
        "grok",
        "torn lines",
        "half a line at the end",
        _torn,
        Answers(1, TURN_USAGE + TURN_USAGE, live_words=_BOTH),
    ),
    Case(
        "grok",
        "deleted source",
        "what was read stays when the folder is deleted",
        _plain,
        Answers(1, TURN_USAGE, live_words=_WORDS),
        (_deleted,),
    ),
)
