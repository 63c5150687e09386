"""Cases of Codex: `.codex/sessions/<date>/rollout-<time>-<thread>.jsonl`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from truth.case import Answers, Case, Usage, lines_of

BEGUN = 1_794_304_800
"""2026-11-10, 10:00 UTC: a line a second from then on."""


def name(second: int, number: int) -> str:
    """Give the id of a thread or turn, which says when it was begun, as Codex makes them."""
    when = f"{(BEGUN + second) * 1000:012x}"
    return f"{when[:8]}-{when[8:]}-7000-8000-{number:012x}"


A, B = name(0, 0xA), name(10, 0xB)
FORKED = "2026-11-10T10:00:10.000Z"
"""When B is forked from A; Codex 0.130 writes the lines it copies anew, all at this time."""
FOLDER = ".codex/sessions/2026/11/10"


def turn(number: int) -> Usage:
    """What the n-th turn of a session costs; Codex counts the cached ones among the input."""
    return Usage(400 + 10 * number, 100 + number, 0, 600)


ONE, TWO, THREE = turn(1), turn(2), turn(3)


class Rollout:
    """A rollout in the making."""

    def __init__(self, thread: str = A, **meta: Any) -> None:
        self.thread = thread
        self.lines: list[dict[str, Any]] = []
        self.spent = Usage()
        self.turns = 0
        told = {
            "id": thread,
            "timestamp": "2026-11-10T10:00:00.000Z",
            "cwd": "/home/dev/tidepool",
            "originator": "codex_cli_rs",
            "cli_version": "0.130.0",
            "source": "cli",
            "model_provider": "openai",
        }
        self.put("session_meta", {**told, **meta})

    def put(self, kind: str, payload: dict[str, Any]) -> None:
        """Add a line."""
        at = len(self.lines)
        when = f"2026-11-10T10:{at // 60:02}:{at % 60:02}.000Z"
        self.lines.append({"timestamp": when, "type": kind, "payload": payload})

    def event(self, kind: str, /, **fields: Any) -> None:
        """An event of the client."""
        self.put("event_msg", {"type": kind, **fields})

    def said(self, role: str, text: str) -> None:
        """A message."""
        kind = "input_text" if role == "user" else "output_text"
        content = [{"type": kind, "text": text}]
        self.put("response_item", {"type": "message", "role": role, "content": content})

    def turn(self, prompt: str, answer: str) -> None:
        """A prompt, its answer, and the running total, written twice as the client does."""
        second = len(self.lines)
        own = name(second, 0xC)
        self.event(
            "task_started", turn_id=own, started_at=BEGUN + second, model_context_window=272_000
        )
        context = {"cwd": "/home/dev/tidepool", "model": "gpt-5", "approval_policy": "never"}
        policy = {"mode": "read-only"}
        said = {"turn_id": own, **context, "sandbox_policy": policy, "summary": "none"}
        self.put("turn_context", said)
        self.said("user", prompt)
        self.event("user_message", message=prompt, kind="plain")
        self.event("agent_message", message=answer)
        self.said("assistant", answer)
        self.turns += 1
        self.spent += turn(self.turns)
        self.count()
        self.count()
        self.event("task_complete", turn_id=own, last_agent_message=answer)

    def count(self) -> None:
        """The running total."""
        info = {
            "total_token_usage": _told(self.spent),
            "last_token_usage": _told(turn(self.turns)),
            "model_context_window": 272_000,
        }
        self.event("token_count", info=info, rate_limits=None)

    @property
    def data(self) -> bytes:
        """The bytes of the file."""
        return lines_of(self.lines)

    def write(self, home: Path, data: bytes | None = None) -> None:
        """Write it where the client would."""
        path = _path(home, self.thread)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data if data is None else data)


def _path(home: Path, thread: str) -> Path:
    return home / FOLDER / f"rollout-2026-11-10T10-00-00-{thread}.jsonl"


def _told(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.input + usage.read,
        "cached_input_tokens": usage.read,
        "output_tokens": usage.output,
        "reasoning_output_tokens": 0,
        "total_tokens": usage.total,
    }


def _talk(thread: str = A, **meta: Any) -> Rollout:
    rollout = Rollout(thread, **meta)
    rollout.turn("Where is quillfern kept?", "In the brackenloft.")
    return rollout


# -- cases ----------------------------------------------------------------------------------


def _streamed(home: Path) -> None:
    """Running totals, each written twice."""
    rollout = _talk()
    rollout.turn("And then?", "The copperweir.")
    rollout.write(home)


def _rollback(home: Path) -> None:
    """A turn is rolled back by a marker behind it."""
    rollout = _talk()
    rollout.turn("Take the thornvault road.", "I took the thornvault road.")
    rollout.event("thread_rolled_back", num_turns=1)
    rollout.turn("Take the other road.", "I took the copperweir road.")
    rollout.write(home)


def _fork(home: Path) -> None:
    """A second rollout begins with the first one's lines, at the fork's time, and its total."""
    first = _talk()
    first.write(home)
    other = Rollout(B, forked_from_id=A, timestamp=FORKED)
    other.lines += first.lines
    other.lines = [{**line, "timestamp": FORKED} for line in other.lines]
    other.spent, other.turns = first.spent, first.turns
    other.turn("And the fork?", "It leads to the copperweir.")
    other.write(home)


def _compaction(home: Path) -> None:
    """A summary takes the place of the history."""
    rollout = _talk()
    kept = {"type": "message", "role": "user"}
    text = [{"type": "input_text", "text": "The talk was about a loft."}]
    history = [{**kept, "content": text}]
    rollout.put(
        "compacted", {"message": "The talk was about a loft.", "replacement_history": history}
    )
    rollout.event("context_compacted")
    rollout.turn("And now?", "Now the copperweir.")
    rollout.write(home)


def _subagent(home: Path) -> None:
    """A subagent has a rollout of its own that names its parent."""
    rollout = _talk()
    rollout.write(home)
    spawn = {"parent_thread_id": A, "depth": 1, "agent_role": "explorer"}
    child = Rollout(B, source={"subagent": {"thread_spawn": spawn}}, parent_thread_id=A)
    child.turn("Look behind the loft.", "There is the copperweir.")
    child.write(home)


def _torn(home: Path) -> None:
    """Half a line, then the same line again; another half at the end."""
    rollout = _talk()
    rollout.turn("And then?", "The copperweir.")
    lines = rollout.data.splitlines(keepends=True)
    half = [lines[11][:60] + b"\n"]
    rollout.write(home, b"".join(lines[:11] + half + lines[11:]) + b'{"timestamp":"2026-11-1')


def _output_in_json(home: Path) -> None:
    """Early versions wrote the output of a command as JSON inside a text."""
    rollout = _talk()
    call = {"type": "function_call", "name": "shell", "call_id": "call_1"}
    command = {"command": ["bash", "-lc", "cat notes"]}
    rollout.put("response_item", call | {"arguments": json.dumps(command)})
    output = json.dumps(
        {"output": "first\nmarshlamp\n", "metadata": {"exit_code": 0, "duration_seconds": 0.1}}
    )
    answer = {"type": "function_call_output", "call_id": "call_1", "output": output}
    rollout.put("response_item", answer)
    rollout.turn("And then?", "The copperweir.")
    rollout.write(home)


def _deleted(home: Path) -> None:
    """Somebody cleaned up."""
    _path(home, A).unlink()


def _plain(home: Path) -> None:
    _talk().write(home)


_WORDS = ("quillfern", "brackenloft")
_BOTH = (*_WORDS, "copperweir")

CASES = (
    Case(
        "codex",
        "streamed usage",
        "running totals, each written twice; the last one counts",
        _streamed,
        Answers(1, ONE + TWO, live=_BOTH),
    ),
    Case(
        "codex",
        "rollback",
        "a turn is rolled back: billed all the same, and dead",
        _rollback,
        Answers(1, ONE + TWO + THREE, live=_BOTH, dead=("thornvault",)),
    ),
    Case(
        "codex",
        "fork",
        "a second rollout begins with the first one's lines and total",
        _fork,
        Answers(2, ONE + TWO, live=_BOTH),
    ),
    Case(
        "codex",
        "compaction",
        "what a summary replaced is still there",
        _compaction,
        Answers(1, ONE + TWO, live=_BOTH),
    ),
    Case(
        "codex",
        "subagent",
        "a rollout that names its parent; both bills count",
        _subagent,
        Answers(None, ONE + ONE, live=_BOTH),
    ),
    Case(
        "codex",
        "torn lines",
        "half a line before its whole self, another at the end",
        _torn,
        Answers(1, ONE + TWO, live=_BOTH),
    ),
    Case(
        "codex",
        "output in JSON",
        "a word behind a line break of an output that was written as JSON inside a text is found",
        _output_in_json,
        Answers(1, ONE + TWO, live=("quillfern", "marshlamp", "copperweir")),
    ),
    Case(
        "codex",
        "deleted source",
        "what was read stays when the file is deleted",
        _plain,
        Answers(1, ONE, live=_WORDS),
        (_deleted,),
    ),
)
