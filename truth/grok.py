"""Cases of Grok: `.grok/sessions/<folder>/<session>/updates.jsonl` and what lies beside it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from truth.case import Answers, Case, Usage, lines_of

A = "01a1c4e6-7500-7000-8000-00000000000a"
B = "01a1c4e6-9c10-7000-8000-00000000000b"
GROUP = ".grok/sessions/%2Fhome%2Fdev%2Ftidepool"
EACH = Usage(400, 100, 0, 600)
START_MS = 1_794_304_800_000


class Folder:
    """A session's folder in the making."""

    def __init__(self, home: Path, session: str = A) -> None:
        self.session = session
        self.path = home / GROUP / session
        self.path.mkdir(parents=True, exist_ok=True)
        self.lines: list[dict[str, Any]] = []
        self.chat: list[dict[str, Any]] = []
        """What the model sees: the client takes out what was taken back."""
        self.bills: list[tuple[int, Usage]] = []
        """When each turn ended, in seconds from the start, and what it took."""
        self.prompts = 0
        self.index = 0

    def update(self, kind: str, meta: dict[str, Any] | None = None, /, **fields: Any) -> None:
        """Add a line of the log."""
        at = len(self.lines) + 1
        own = {"eventId": f"{self.session}-{at}", "agentTimestampMs": START_MS + 1000 * at}
        params = {
            "sessionId": self.session,
            "update": {"sessionUpdate": kind, **fields},
            "_meta": own | (meta or {}),
        }
        method = "session/update" if kind.endswith("_chunk") else "_x.ai/session/update"
        line = {"timestamp": START_MS // 1000 + at, "method": method, "params": params}
        self.lines.append(line)

    def turn(self, prompt: str, answer: str) -> None:
        """A prompt, its answer and its bill."""
        self.asked(prompt)
        self.answered(answer)

    def asked(self, prompt: str) -> None:
        """A turn begins."""
        self.prompts += 1
        text = {"type": "text", "text": prompt}
        seen = [{"type": "text", "text": f"<user_query>\n{prompt}\n</user_query>"}]
        self.chat.append({"type": "user", "content": seen, "prompt_index": self.index})
        told = {"modelId": "grok-code-fast-1", "promptIndex": self.index}
        self.update("user_message_chunk", {"promptId": self._prompt}, content=text, _meta=told)

    def answered(self, answer: str, children: int = 0) -> None:
        """A turn ends; its bill holds those of its subagents."""
        meta = {"promptId": self._prompt, "streamStartMs": self.prompts}
        self.chat.append({"type": "assistant", "content": answer, "model_id": "grok-code-fast-1"})
        self.update("agent_message_chunk", meta, content={"type": "text", "text": answer})
        bill = sum([EACH] * children, EACH)
        self.update(
            "turn_completed", prompt_id=self._prompt, stop_reason="end_turn", usage=_told(bill)
        )
        self.bills.append((len(self.lines), bill))
        self.index += 1

    @property
    def _prompt(self) -> str:
        return f"prompt-{self.session[-1]}-{self.prompts}"

    def write(self, **summary: Any) -> None:
        """Write all files."""
        (self.path / "updates.jsonl").write_bytes(lines_of(self.lines))
        begins = {"type": "system", "content": "You are Grok."}
        (self.path / "chat_history.jsonl").write_bytes(lines_of([begins, *self.chat]))
        info = {"id": self.session, "cwd": "/home/dev/tidepool"}
        about = {
            "info": info,
            "current_model_id": "grok-code-fast-1",
            "created_at": "2026-11-10T10:00:00Z",
            "updated_at": "2026-11-10T10:05:00Z",
            **summary,
        }
        (self.path / "summary.json").write_text(json.dumps(about), encoding="utf-8")
        turns = [
            {"turnNumber": turn, "endedAt": f"2026-11-10T10:00:{at:02}Z", **_told(bill)}
            for turn, (at, bill) in enumerate(self.bills, 1)
        ]
        whole = sum((bill for _, bill in self.bills), Usage())
        usage = {"sessionId": self.session, "session": _told(whole), "turns": turns}
        (self.path / "usage.json").write_text(json.dumps(usage), encoding="utf-8")


def _told(usage: Usage) -> dict[str, Any]:
    own = {
        "inputTokens": usage.input + usage.read,
        "outputTokens": usage.output,
        "totalTokens": usage.total,
        "cachedReadTokens": usage.read,
        "cacheCreationTokens": 0,
        "reasoningTokens": 0,
        "modelCalls": usage.output // EACH.output,
    }
    return {**own, "modelUsage": {"grok-code-fast-1": own}, "numTurns": 1, "turnCount": 1}


def _talk(home: Path) -> Folder:
    folder = Folder(home)
    folder.turn("Where is quillfern kept?", "In the brackenloft.")
    return folder


# -- cases ----------------------------------------------------------------------------------


def _streamed(home: Path) -> None:
    """An answer in several chunks, one bill for the turn."""
    folder = Folder(home)
    folder.turn("Where is quillfern kept?", "In the brackenloft.")
    name = {"promptId": "prompt-a-1", "streamStartMs": 1}
    folder.lines.insert(2, json.loads(json.dumps(folder.lines[1])))
    folder.lines[2]["params"]["update"]["content"]["text"] = " Or in the copperweir."
    folder.lines[2]["params"]["_meta"] |= {"eventId": f"{A}-9", **name}
    folder.chat[-1]["content"] += " Or in the copperweir."
    folder.write()


def _rewind(home: Path) -> None:
    """A turn is taken back by a marker."""
    folder = _talk(home)
    folder.turn("Take the thornvault road.", "I took the thornvault road.")
    folder.update("rewind_marker", target_prompt_index=1, created_at="2026-11-10T10:03:00Z")
    folder.index = 1
    del folder.chat[2:]
    folder.turn("Take the other road.", "I took the copperweir road.")
    folder.write()


def _fork(home: Path) -> None:
    """A second folder begins with copies of the first one's lines and bills."""
    first = _talk(home)
    first.write()
    other = Folder(home, B)
    other.lines = [json.loads(json.dumps(line).replace(f'sessionId": "{A}', f'sessionId": "{B}'))
                   for line in first.lines]  # fmt: skip
    other.chat = list(first.chat)
    other.bills = list(first.bills)
    other.prompts = other.index = 1
    other.turn("And the fork?", "It leads to the copperweir.")
    other.write(session_kind="fork", parent_session_id=A, forked_at="2026-11-10T10:02:00Z")


def _subagent(home: Path) -> None:
    """A subagent is a folder beside; the parent's bill holds the child's."""
    child = Folder(home, B)
    child.turn("Look.", "Behind the copperweir.")
    child.write(session_kind="subagent")
    folder = Folder(home)
    told = {"subagent_id": B, "child_session_id": B, "attempt_id": "at1.1"}
    folder.asked("Where is quillfern kept?")
    folder.update(
        "subagent_spawned",
        **told,
        parent_session_id=A,
        parent_prompt_id="prompt-a-1",
        subagent_type="explore",
        description="look",
        effective_context_source="new",
        model="grok-code-fast-1",
    )
    folder.update(
        "subagent_finished",
        **told,
        status="completed",
        tool_calls=0,
        turns=1,
        duration_ms=1000,
        tokens_used=EACH.total,
        output="Behind the copperweir.",
        will_wake=True,
    )
    folder.answered("In the brackenloft.", children=1)
    side = folder.path / "subagents" / B
    side.mkdir(parents=True)
    (side / "meta.json").write_text(json.dumps(told), encoding="utf-8")
    folder.write()


def _torn(home: Path) -> None:
    """Half a line at the end."""
    folder = _talk(home)
    folder.turn("And then?", "The copperweir.")
    folder.write()
    path = folder.path / "updates.jsonl"
    path.write_bytes(path.read_bytes() + b'{"timestamp":1794304')


def _deleted(home: Path) -> None:
    """Somebody cleaned up."""
    shutil.rmtree(home / GROUP / A)


def _plain(home: Path) -> None:
    _talk(home).write()


_WORDS = ("quillfern", "brackenloft")
_BOTH = (*_WORDS, "copperweir")

CASES = (
    Case(
        "grok",
        "streamed usage",
        "an answer in chunks, one bill for the turn",
        _streamed,
        Answers(1, EACH, live=_BOTH),
    ),
    Case(
        "grok",
        "rewind",
        "a turn is taken back: billed all the same, and dead",
        _rewind,
        Answers(1, EACH + EACH + EACH, live=_BOTH, dead=("thornvault",)),
    ),
    Case(
        "grok",
        "fork",
        "a second folder begins with the first one's lines and bills",
        _fork,
        Answers(2, EACH + EACH, live=_BOTH),
    ),
    Case(
        "grok",
        "subagent",
        "the parent's bill holds the child's, and the child has one too",
        _subagent,
        Answers(None, EACH + EACH, live=_BOTH),
    ),
    Case(
        "grok",
        "torn lines",
        "half a line at the end",
        _torn,
        Answers(1, EACH + EACH, live=_BOTH),
    ),
    Case(
        "grok",
        "deleted source",
        "what was read stays when the folder is deleted",
        _plain,
        Answers(1, EACH, live=_WORDS),
        (_deleted,),
    ),
)
