"""Cases of Codex: `.codex/sessions/<date>/rollout-<time>-<thread>.jsonl`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from truth.case import Answers, Case, Usage, encode_lines

START_S = 1_794_304_800
"""2026-11-10, 10:00 UTC; one line per second from then on."""


def make_id(second: int, number: int) -> str:
    """Return the id of a thread or turn, which encodes its start time, as with Codex."""
    when = f"{(START_S + second) * 1000:012x}"
    return f"{when[:8]}-{when[8:]}-7000-8000-{number:012x}"


A, B = make_id(0, 0xA), make_id(10, 0xB)
FORK_TIME = "2026-11-10T10:00:10.000Z"
"""When B is forked from A; Codex 0.130 gives this time to all lines that it copies."""
FOLDER = ".codex/sessions/2026/11/10"


def turn_usage(number: int) -> Usage:
    """Return the usage of the n-th turn of a session; Codex counts cached tokens as input."""
    return Usage(400 + 10 * number, 100 + number, 0, 600)


FIRST, SECOND, THIRD = turn_usage(1), turn_usage(2), turn_usage(3)


class RolloutBuilder:
    """Builds the lines of a rollout."""

    def __init__(self, thread: str = A, **meta: Any) -> None:
        self.thread = thread
        self.lines: list[dict[str, Any]] = []
        self.total = Usage()
        self.turns = 0
        session = {
            "id": thread,
            "timestamp": "2026-11-10T10:00:00.000Z",
            "cwd": "/home/dev/tidepool",
            "originator": "codex_cli_rs",
            "cli_version": "0.130.0",
            "source": "cli",
            "model_provider": "openai",
        }
        self.put("session_meta", {**session, **meta})

    def put(self, kind: str, payload: dict[str, Any]) -> None:
        """Add a line."""
        at = len(self.lines)
        when = f"2026-11-10T10:{at // 60:02}:{at % 60:02}.000Z"
        self.lines.append({"timestamp": when, "type": kind, "payload": payload})

    def event(self, kind: str, /, **fields: Any) -> None:
        """Add an event of the client."""
        self.put("event_msg", {"type": kind, **fields})

    def message(self, role: str, text: str) -> None:
        """Add a message."""
        kind = "input_text" if role == "user" else "output_text"
        content = [{"type": kind, "text": text}]
        self.put("response_item", {"type": "message", "role": role, "content": content})

    def turn(self, prompt: str, answer: str) -> None:
        """Add a prompt, its answer, and the running total, which the client writes twice."""
        second = len(self.lines)
        turn_id = make_id(second, 0xC)
        self.event(
            "task_started",
            turn_id=turn_id,
            started_at=START_S + second,
            model_context_window=272_000,
        )
        context = {"cwd": "/home/dev/tidepool", "model": "gpt-5", "approval_policy": "never"}
        policy = {"mode": "read-only"}
        message = {"turn_id": turn_id, **context, "sandbox_policy": policy, "summary": "none"}
        self.put("turn_context", message)
        self.message("user", prompt)
        self.event("user_message", message=prompt, kind="plain")
        self.event("agent_message", message=answer)
        self.message("assistant", answer)
        self.turns += 1
        self.total += turn_usage(self.turns)
        self.count()
        self.count()
        self.event("task_complete", turn_id=turn_id, last_agent_message=answer)

    def count(self) -> None:
        """The running total."""
        info = {
            "total_token_usage": _token_counts(self.total),
            "last_token_usage": _token_counts(turn_usage(self.turns)),
            "model_context_window": 272_000,
        }
        self.event("token_count", info=info, rate_limits=None)

    @property
    def data(self) -> bytes:
        """Return the bytes of the file."""
        return encode_lines(self.lines)

    def write(self, home: Path, data: bytes | None = None) -> None:
        """Write it where the client would."""
        path = _path(home, self.thread)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data if data is None else data)


def _path(home: Path, thread: str) -> Path:
    return home / FOLDER / f"rollout-2026-11-10T10-00-00-{thread}.jsonl"


def _token_counts(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.input + usage.read,
        "cached_input_tokens": usage.read,
        "output_tokens": usage.output,
        "reasoning_output_tokens": 0,
        "total_tokens": usage.total,
    }


def _conversation(thread: str = A, **meta: Any) -> RolloutBuilder:
    rollout = RolloutBuilder(thread, **meta)
    rollout.turn("Where is quillfern kept?", "In the brackenloft.")
    return rollout


# -- cases ----------------------------------------------------------------------------------


def _streamed(home: Path) -> None:
    """Write running totals, each of them twice."""
    rollout = _conversation()
    rollout.turn("And then?", "The copperweir.")
    rollout.write(home)


def _rollback(home: Path) -> None:
    """Roll a turn back with a marker after it."""
    rollout = _conversation()
    rollout.turn("Take the thornvault road.", "I took the thornvault road.")
    rollout.event("thread_rolled_back", num_turns=1)
    rollout.turn("Take the other road.", "I took the copperweir road.")
    rollout.write(home)


def _fork(home: Path) -> None:
    """Write a second rollout that starts with the lines and the total of the first."""
    first = _conversation()
    first.write(home)
    other = RolloutBuilder(B, forked_from_id=A, timestamp=FORK_TIME)
    other.lines += first.lines
    other.lines = [{**line, "timestamp": FORK_TIME} for line in other.lines]
    other.total, other.turns = first.total, first.turns
    other.turn("And the fork?", "It leads to the copperweir.")
    other.write(home)


def _compaction(home: Path) -> None:
    """Replace the history by a summary."""
    rollout = _conversation()
    message = {"type": "message", "role": "user"}
    text = [{"type": "input_text", "text": "The talk was about a loft."}]
    history = [{**message, "content": text}]
    rollout.put(
        "compacted", {"message": "The talk was about a loft.", "replacement_history": history}
    )
    rollout.event("context_compacted")
    rollout.turn("And now?", "Now the copperweir.")
    rollout.write(home)


def _subagent(home: Path) -> None:
    """Write a rollout of a subagent, which names its parent."""
    rollout = _conversation()
    rollout.write(home)
    spawn = {"parent_thread_id": A, "depth": 1, "agent_role": "explorer"}
    child = RolloutBuilder(B, source={"subagent": {"thread_spawn": spawn}}, parent_thread_id=A)
    child.turn("Look behind the loft.", "There is the copperweir.")
    child.write(home)


def _torn(home: Path) -> None:
    """Write half a line, then the same line again; another half at the end."""
    rollout = _conversation()
    rollout.turn("And then?", "The copperweir.")
    lines = rollout.data.splitlines(keepends=True)
    half = [lines[11][:60] + b"\n"]
    rollout.write(home, b"".join(lines[:11] + half + lines[11:]) + b'{"timestamp":"2026-11-1')


def _output_in_json(home: Path) -> None:
    """Write the output of a command as JSON inside a text, as early versions did."""
    rollout = _conversation()
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
    """Delete the file."""
    _path(home, A).unlink()


def _plain(home: Path) -> None:
    _conversation().write(home)


_WORDS = ("quillfern", "brackenloft")
_BOTH = (*_WORDS, "copperweir")

CASES = (
    Case(
        "codex",
        "streamed usage",
        "running totals, each written twice; the last one counts",
        _streamed,
        Answers(1, FIRST + SECOND, live_words=_BOTH),
    ),
    Case(
        "codex",
        "rollback",
        "a turn is rolled back: still billed, and discarded",
        _rollback,
        Answers(1, FIRST + SECOND + THIRD, live_words=_BOTH, discarded_words=("thornvault",)),
    ),
    Case(
        "codex",
        "fork",
        "a second rollout starts with the lines and the total of the first",
        _fork,
        Answers(2, FIRST + SECOND, live_words=_BOTH),
    ),
    Case(
        "codex",
        "compaction",
        "what a summary replaced is still found",
        _compaction,
        Answers(1, FIRST + SECOND, live_words=_BOTH),
    ),
    Case(
        "codex",
        "subagent",
        "a rollout that names its parent; both are billed",
        _subagent,
        Answers(None, FIRST + FIRST, live_words=_BOTH),
    ),
    Case(
        "codex",
        "torn lines",
        "half a line before the complete one, another half at the end",
        _torn,
        Answers(1, FIRST + SECOND, live_words=_BOTH),
    ),
    Case(
        "codex",
        "output in JSON",
        "an output is JSON inside a text; a word after a line break in it is found",
        _output_in_json,
        Answers(1, FIRST + SECOND, live_words=("quillfern", "marshlamp", "copperweir")),
    ),
    Case(
        "codex",
        "deleted source",
        "what was read stays when the file is deleted",
        _plain,
        Answers(1, FIRST, live_words=_WORDS),
        (_deleted,),
    ),
)
