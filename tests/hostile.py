"""Made-up logs of three agents in which every text is hostile, for whoever shows what logs say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Final

from thence.cli import sample_machine

Pick = Callable[[str], str]

_STRUCTURE: Final = frozenset(
    {
        *("type", "subtype", "role", "uuid", "parentUuid", "logicalParentUuid", "sessionId", "id"),
        *("timestamp", "ts", "call_id", "tool_use_id", "sessionUpdate", "method", "toolCallId"),
        *("session_id", "turn_id", "promptId", "prompt_id", "parent_thread_id", "created_at"),
        *("updated_at", "last_active_at", "endedAt", "updatedAt", "agentId", "sourceToolUseID"),
        *("requestId", "messageId", "forked_from_id", "snapshot", "leafUuid", "parent_tool_use_id"),
    }
)
"""Fields that link records or say what they are: with other values there is no session."""

_INPUTS: Final = frozenset({"input", "rawInput", "arguments"})
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def picking(payloads: Sequence[str], start: int = 0) -> Pick:
    """Return a function that puts one payload after the other before or behind a text."""
    numbers = count(start)

    def pick(text: str) -> str:
        number = next(numbers)
        payload = payloads[number % len(payloads)]
        return f"{payload} {text}" if number % 2 else f"{text} {payload}"

    return pick


def plant(folder: Path, agents: Sequence[str], payloads: Sequence[str], copies: int) -> None:
    """Write so many copies of the made-up sessions of some agents, every text leaf hostile."""
    clean = folder / "clean"
    homes = sample_machine.write(clean, datetime.now(UTC), ("claude", "codex", "grok"))
    for agent in agents:
        root: Path = getattr(homes, agent)
        for path in sorted(root.rglob("*.json*")):
            for number in range(copies):
                _plant(path, clean, folder, f"-{number}", picking(payloads, 5 * number))


def _plant(path: Path, clean: Path, folder: Path, name: str, pick: Pick) -> None:
    def with_other_ids(text: str) -> str:
        """Return a text with the ids of another copy."""
        return _UUID.sub(lambda match: _other_id(match[0], name), text)

    target = folder / with_other_ids(str(path.relative_to(clean)))
    target.parent.mkdir(parents=True, exist_ok=True)
    text = with_other_ids(path.read_text())
    values = _values(text) if path.suffix == ".jsonl" else iter([json.loads(text)])
    target.write_text("".join(json.dumps(poisoned(value, pick)) + "\n" for value in values))


def _values(text: str) -> Iterator[Any]:
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except ValueError:  # a torn line
            continue


def _other_id(old: str, name: str) -> str:
    """Return an id with the time of another one, if that has a time."""
    made = sample_machine.made_id(f"{old}{name}")
    return old[:18] + made[18:] if old[14] == "7" else made


def poisoned(value: Any, pick: Pick, key: str = "") -> Any:
    """Return a value with a payload in every text, and in the names of what tools are given."""
    if isinstance(value, dict):
        changed = {name: poisoned(inner, pick, name) for name, inner in value.items()}
        return {**changed, pick("x"): pick("y")} if key in _INPUTS else changed
    if isinstance(value, list):
        if key == "output" and value and all(isinstance(item, int) for item in value):
            return list(pick(bytes(value).decode()).encode("utf-8", "replace"))
        return [poisoned(inner, pick, key) for inner in value]
    if not isinstance(value, str) or key in _STRUCTURE:
        return value
    if value.startswith("{"):
        return json.dumps(poisoned(json.loads(value), pick, key))
    return pick(value)
