"""Made-up rollouts: a home of Codex, written line by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from thence.agents.codex.reader import Codex
from thence.agents.sessions import LoadedSession, load

A = "01a00000-0000-7000-8000-00000000000a"
B = "01a00000-0000-7000-8000-00000000000b"
C = "01a00000-0000-7000-8000-00000000000c"
SEGMENT = "01a00000-0000-7000-8000-0000000000f1"

Line = dict[str, Any]


def envelope(kind: str, payload: Line, at: int = 0, **more: Any) -> Line:
    """A line of any version since 0.39."""
    return {
        "timestamp": f"2026-01-01T00:{at // 60:02}:{at % 60:02}.000Z",
        "type": kind,
        "payload": payload,
        **more,
    }


def meta(thread: str = A, version: str = "0.166.0", **more: Any) -> Line:
    """A first line."""
    return envelope("session_meta", {"id": thread, "cwd": "/p", "cli_version": version, **more})


def item(kind: str, /, **payload: Any) -> Line:
    """Something that was said, called or answered."""
    return envelope("response_item", {"type": kind, **payload})


def user(text: str, *kinds: str) -> Line:
    """A message of role user; `kinds` as newer versions name them."""
    more = {"internal_chat_message_metadata_passthrough": {"content_item_kinds": list(kinds)}}
    content = [{"type": "input_text", "text": text}]
    return item("message", role="user", content=content, **(more if kinds else {}))


def assistant(text: str) -> Line:
    """An answer."""
    content = [{"type": "output_text", "text": text}]
    return item("message", role="assistant", content=content)


def call(name: str, call_id: str, **arguments: Any) -> Line:
    """A call."""
    encoded = json.dumps(arguments)
    return item("function_call", name=name, call_id=call_id, arguments=encoded)


def output(call_id: str, result: Any) -> Line:
    """A result."""
    return item("function_call_output", call_id=call_id, output=result)


def event(kind: str, /, **payload: Any) -> Line:
    """An event of the client."""
    return envelope("event_msg", {"type": kind, **payload})


def started(turn: str) -> Line:
    """A turn begins."""
    return event("task_started", turn_id=turn)


def completed(turn: str) -> Line:
    """A turn ends."""
    return event("task_complete", turn_id=turn, last_agent_message="x")


def finished(kind: str, /, **fields: Any) -> Line:
    """A finished item."""
    return event("item_completed", item={"type": kind, **fields})


def tokens(input_tokens: int, out: int, cached: int = 0) -> Line:
    """Usage as Codex spells it."""
    return {
        "input_tokens": input_tokens,
        "cached_input_tokens": cached,
        "output_tokens": out,
        "reasoning_output_tokens": 0,
        "total_tokens": input_tokens + out,
    }


def counted(total: Line | None, last: Line | None = None) -> Line:
    """A running total."""
    info = total and {"total_token_usage": total, "last_token_usage": last or total}
    return event("token_count", info=info, rate_limits=None)


def billed(thread: str, response: str, usage: Line) -> Line:
    """A bill."""
    payload = {"thread_id": thread, "turn_id": "t", "response_id": response, "usage": usage}
    return envelope("token_usage_record", payload)


def bytes_of(lines: list[Line]) -> bytes:
    """Lines as they are written."""
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def numbered(lines: list[Line], first: int = 0) -> list[Line]:
    """Lines of the paginated form."""
    return [{**line, "ordinal": first + n} for n, line in enumerate(lines)]


class Home:
    """A folder of Codex's."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.adapter = Codex()

    def path(self, thread: str = A, segment: str | None = None, *, archived: bool = False) -> Path:
        """Where a rollout lies."""
        folder = self.root / ("archived_sessions" if archived else "sessions/2026/01/01")
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{thread}_{segment}" if segment else thread
        return folder / f"rollout-2026-01-01T00-00-00-{name}.jsonl"

    def write(self, lines: list[Line], thread: str = A, segment: str | None = None) -> Path:
        """Write a rollout."""
        path = self.path(thread, segment)
        path.write_bytes(bytes_of(lines))
        return path

    def load(self, lines: list[Line] | None = None, thread: str = A) -> LoadedSession:
        """Load a session, after writing it if need be."""
        path = self.path(thread) if lines is None else self.write(lines, thread)
        return load(path, {"codex": self.adapter})
