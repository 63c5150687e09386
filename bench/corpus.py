"""Made-up session logs that are like real ones: for benchmarks that need more than fits a fixture.

Sizes follow what was measured on real machines (median 49 KB, a long tail up to 48 MB). What is
read and edited is the standard library's own source, what is said is made of its docstrings, so
that text compresses and repeats as real text does. Half of the bytes are text that people and
models wrote or read; the rest is the client's own envelope and its second copies of results.
The same seed gives the same bytes.
"""

from __future__ import annotations

import json
import random
import re
import sysconfig
import uuid
from collections.abc import Iterator
from functools import cache
from math import exp
from pathlib import Path
from typing import Any

MEDIAN = 49_000
LARGEST = 48_000_000
SPREAD = 1.9

_TOOLS = ("Read", "Bash", "Edit", "Grep", "Read", "Bash", "Read", "Write")
_COMMANDS = (
    "pytest -q tests/test_{name}.py",
    "git diff --stat",
    "grep -rn {word} src",
    "python -m {name} --help",
    "ls -la src/{name}",
    "ruff check src/{name}.py",
)


@cache
def sources() -> list[tuple[str, list[str]]]:
    """Modules of the standard library, as lines."""
    library = Path(sysconfig.get_paths()["stdlib"])
    found = sorted(path for path in library.glob("*.py") if 4_000 < path.stat().st_size < 200_000)
    return [
        (path.stem, path.read_text(encoding="utf-8", errors="replace").splitlines())
        for path in found
    ]


@cache
def sentences() -> list[str]:
    """Prose: the sentences of docstrings and comments."""
    text = " ".join(
        line.strip(" #\"'") for _, lines in sources() for line in lines if line.count(" ") > 6
    )
    plain = re.findall(r"[A-Z][a-z][^.{}()=\[\]]{30,180}\.", text)
    return plain[:20_000]


class Session:
    """One session of the current client: prompts, thoughts, calls, results, edits, branches."""

    def __init__(self, chance: random.Random, size: int) -> None:
        self._chance = chance
        self._size = size
        self.id = self._uuid()
        self.cwd = f"/home/dev/{chance.choice(sources())[0]}"
        self._tip: str | None = None
        self._clock = 1_767_225_600.0 + chance.random() * 2e7
        self._version = chance.choice(("2.1.80", "2.1.200", "2.1.325"))
        self._written = 0

    def lines(self) -> Iterator[bytes]:
        """Write records until the session has its size."""
        while self._written < self._size:
            for record in self._turn():
                line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
                self._written += len(line) + 1
                yield line + b"\n"
                if self._written >= self._size:
                    return  # in the middle of a turn, as when the window is closed

    def _turn(self) -> Iterator[dict[str, Any]]:
        prompt = self._uuid()
        back = self._tip
        yield self._chained("user", message={"role": "user", "content": self._prose(2)})
        for kind in ("environment", "task_reminder"):
            yield self._chained("attachment", attachment={"type": kind, "rendered": []})
        for _ in range(self._chance.randint(2, 9)):
            yield from self._response()
        yield from self._said([{"type": "text", "text": self._prose(4)}], "end_turn")
        yield {"type": "last-prompt", "leafUuid": self._tip, "sessionId": self.id}
        yield {"type": "mode", "mode": "default", "sessionId": self.id}
        if self._chance.random() < 0.05:
            self._tip = back  # the next prompt goes on from before this one: a dead branch
        yield {
            "type": "file-history-snapshot",
            "messageId": prompt,
            "snapshot": {"messageId": prompt, "trackedFileBackups": {}},
            "isSnapshotUpdate": False,
        }

    def _response(self) -> Iterator[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        if self._chance.random() < 0.4:
            blocks.append(
                {"type": "thinking", "thinking": self._prose(4), "signature": "c2ln" * 40}
            )
        if self._chance.random() < 0.5:
            blocks.append({"type": "text", "text": self._prose(2)})
        calls = [self._call() for _ in range(1 if self._chance.random() < 0.8 else 2)]
        blocks += [block for block, _, _ in calls]
        yield from self._said(blocks, "tool_use")
        source = self._tip
        for block, content, structured in calls:
            result = {"type": "tool_result", "tool_use_id": block["id"], "content": content}
            yield self._chained(
                "user",
                message={"role": "user", "content": [result]},
                toolUseResult=structured,
                sourceToolAssistantUUID=source,
            )

    def _said(self, blocks: list[dict[str, Any]], stop: str) -> Iterator[dict[str, Any]]:
        name, request = f"msg_{self._uuid()[:24]}", f"req_{self._uuid()[:24]}"
        usage = {
            "input_tokens": self._chance.randint(3, 40),
            "cache_creation_input_tokens": self._chance.randint(200, 6000),
            "cache_read_input_tokens": self._chance.randint(9_000, 140_000),
            "output_tokens": self._chance.randint(40, 1800),
            "service_tier": "standard",
        }
        for block in blocks:
            yield self._chained(
                "assistant",
                requestId=request,
                message={
                    "id": name,
                    "type": "message",
                    "role": "assistant",
                    "model": "claude-sonnet-4-5",
                    "content": [block],
                    "stop_reason": stop,
                    "usage": usage,
                },
            )

    def _call(self) -> tuple[dict[str, Any], str, Any]:
        tool = self._chance.choice(_TOOLS)
        name, lines = self._chance.choice(sources())
        at = self._chance.randrange(max(len(lines) - 160, 1))
        piece = lines[at : at + self._chance.randint(5, 160)]
        path = f"{self.cwd}/{name}.py"
        if tool == "Bash":
            command = self._chance.choice(_COMMANDS).format(name=name, word=name[:4])
            text = "\n".join(piece)
            if command.startswith("pytest"):
                text += f"\n{self._chance.randint(1, 90)} passed in 0.{at % 100:02}s"
            given: dict[str, Any] = {"command": command, "description": self._prose(1)[:60]}
            told: Any = {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
        elif tool == "Edit":
            given = {"file_path": path, "old_string": "\n".join(piece[:4]), "new_string": piece[0]}
            text = f"The file {path} has been updated."
            told = {"filePath": path, "oldString": given["old_string"], "newString": piece[0]}
        else:
            text = "\n".join(f"{at + n:6}\t{line}" for n, line in enumerate(piece))
            given = {"file_path": path, "offset": at, "limit": len(piece)}
            told = {"type": "text", "file": {"filePath": path, "content": "\n".join(piece)}}
        call = {
            "type": "tool_use",
            "id": f"toolu_{self._uuid()[:24]}",
            "name": tool,
            "input": given,
        }
        return call, text, told

    def _chained(self, kind: str, **fields: Any) -> dict[str, Any]:
        self._clock += self._chance.random() * 9
        seconds = int(self._clock)
        record = {
            "parentUuid": self._tip,
            "isSidechain": False,
            "userType": "external",
            "cwd": self.cwd,
            "sessionId": self.id,
            "version": self._version,
            "gitBranch": "main",
            "type": kind,
            **fields,
            "uuid": self._uuid(),
            "timestamp": _moment(seconds, int(self._clock * 1000) % 1000),
        }
        self._tip = record["uuid"]
        return record

    def _prose(self, count: int) -> str:
        return " ".join(
            self._chance.choice(sentences()) for _ in range(self._chance.randint(1, count))
        )

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._chance.getrandbits(128), version=4))


def _moment(seconds: int, millis: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{millis:03}Z"


def write_claude(root: Path, megabytes: float, seed: int = 1) -> int:
    """Fill a config folder with about so many megabytes of sessions; how many files it took."""
    chance = random.Random(seed)
    room = int(megabytes * 1e6)
    files = 0
    while room > 0:
        size = int(min(MEDIAN * exp(chance.gauss(0, SPREAD)), LARGEST, max(room, 2_000)))
        if not files and room > 2 * LARGEST:
            size = LARGEST  # the one that everybody has
        session = Session(chance, size)
        folder = root / "projects" / re.sub(r"[^A-Za-z0-9]", "-", session.cwd)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{session.id}.jsonl").open("wb") as file:
            file.writelines(session.lines())
        room -= size
        files += 1
    return files


def write_many(root: Path, sessions: int, size: int, seed: int = 2) -> int:
    """Fill a config folder with so many sessions of about the same size; how many bytes it took."""
    chance = random.Random(seed)
    written = 0
    for _ in range(sessions):
        session = Session(chance, size)
        folder = root / "projects" / re.sub(r"[^A-Za-z0-9]", "-", session.cwd)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{session.id}.jsonl"
        with path.open("wb") as file:
            file.writelines(session.lines())
        written += path.stat().st_size
    return written
