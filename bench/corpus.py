"""Made-up session logs that are like real ones: for benchmarks that need more than fits a fixture.

Sizes of sessions follow what was measured on real machines (median 49 KB, a long tail up to
48 MB). What records there are, and how large, follows published logs of the 2.1 client and those
that the present one was seen to write: lines of 2.5 KB on average, a fifth of them results, which
hold more than half of all bytes, because the client writes them twice and puts the whole file
beside each edit; signatures behind thoughts; progress records from the older client, requests and
attachments from the present one. What is read and edited is the standard library's own source,
what is said is made of its docstrings, so that text compresses and repeats as real text does.
The same seed gives the same bytes.
"""

from __future__ import annotations

import base64
import json
import random
import re
import sysconfig
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from math import exp
from pathlib import Path
from typing import Any

MEDIAN = 49_000
LARGEST = 48_000_000
SPREAD = 1.9

OLDER, NEWER = "2.1.62", "2.1.325"
"""Clients that write progress into the chain, and that write requests and more attachments."""

_TOOLS = {"Bash": 35, "Read": 20, "Edit": 19, "TodoWrite": 9, "Grep": 8, "Glob": 4, "Write": 3}
"""How often which tool is called: as counted in published logs, rare ones left out."""

_COMMANDS = (
    "pytest -q tests/test_{name}.py",
    "git diff --stat",
    "git add -A && git commit -m 'Mend {name}'",
    "grep -rn {word} src | head -20",
    "cd /home/dev/{name} && python -m {name} --help 2>&1 | tail -5",
    "ls -la src/{name}",
    "ruff check src/{name}.py",
)
_EDITED = 16_000
"""Files that are edited are no larger: 10 KB on average, as in published logs."""

_START = ("environment", "model", "agent_listing_delta", "session_context", "date")
"""What the present client attaches to the first prompt."""

Record = dict[str, Any]


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
def small_sources() -> list[tuple[str, list[str]]]:
    """Those of them that are no larger than most files that people edit."""
    return [(name, lines) for name, lines in sources() if len("\n".join(lines)) < _EDITED]


@cache
def sentences() -> list[str]:
    """Prose: the sentences of docstrings and comments."""
    text = " ".join(
        line.strip(" #\"'") for _, lines in sources() for line in lines if line.count(" ") > 6
    )
    plain = re.findall(r"[A-Z][a-z][^.{}()=\[\]]{30,180}\.", text)
    return plain[:20_000]


class Session:
    """One session of either client: prompts, thoughts, calls, results, edits, branches."""

    def __init__(self, chance: random.Random, size: int) -> None:
        self._chance = chance
        self._size = size
        self.id = self._uuid()
        self.cwd = f"/home/dev/{chance.choice(sources())[0]}"
        self._tip: str | None = None
        self._clock = 1_767_225_600.0 + chance.random() * 2e7
        self._version = chance.choice((OLDER, NEWER))
        self._written = 0
        self._request = ""
        self._todos: list[Record] = []

    def lines(self) -> Iterator[bytes]:
        """Write records until the session has its size."""
        while self._written < self._size:
            for record in self._turn():
                line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
                self._written += len(line) + 1
                yield line + b"\n"
                if self._written >= self._size:
                    return  # in the middle of a turn, as when the window is closed

    # -- turns --------------------------------------------------------------------------

    def _turn(self) -> Iterator[Record]:
        prompt, back, first = self._uuid(), self._tip, self._tip is None
        yield {
            "type": "file-history-snapshot",
            "messageId": prompt,
            "snapshot": {"messageId": prompt, "trackedFileBackups": {}, "timestamp": self._now()},
            "isSnapshotUpdate": False,
        }
        said = {"role": "user", "content": self._prose(6)}
        yield self._chained("user", promptId=prompt, message=said, permissionMode="acceptEdits")
        if self._version == NEWER:
            for kind in (*(_START if first else ()), "task_reminder"):
                yield self._attached(kind)
        for _ in range(self._chance.randint(3, 16)):
            yield from self._response(prompt)
        yield from self._said([{"type": "text", "text": self._prose(6)}], "end_turn")
        yield from self._rest(prompt)
        if self._chance.random() < 0.03:
            self._tip = back  # the next prompt goes on from before this one: a dead branch

    def _rest(self, prompt: str) -> Iterator[Record]:
        """What the client notes when a turn is over."""
        if self._version == OLDER:
            summary = {"hookCount": 1, "hookInfos": [{"command": "hooks/stop.sh"}]}
            summary |= {"hookErrors": [], "preventedContinuation": False, "stopReason": ""}
            more = {"hasOutput": False, "level": "suggestion", "toolUseID": self._uuid()}
            yield self._chained("system", subtype="stop_hook_summary", **summary, **more)
            yield self._chained("system", subtype="turn_duration", durationMs=51_734, isMeta=False)
            return
        yield {"type": "last-prompt", "lastPrompt": prompt, "leafUuid": self._tip} | self._own
        yield {"type": "mode", "mode": "default"} | self._own
        used: Record = {"inputTokens": 96, "outputTokens": 9_336, "cacheReadInputTokens": 720_000}
        used |= {"cacheCreationInputTokens": 27_200, "webSearchRequests": 0, "costUSD": 0.35}
        totals = {"totalCostUSD": 0.35, "totalAPIDuration": 51_734, "totalToolDuration": 16_900}
        totals |= {"totalLinesAdded": 60, "totalLinesRemoved": 11, "totalDuration": 73_800}
        yield {"type": "cost-state", **totals, "modelUsage": {"claude-opus": used}} | self._own

    def _response(self, prompt: str) -> Iterator[Record]:
        if self._version == NEWER:
            yield self._asked()
        blocks: list[Record] = []
        if self._chance.random() < 0.3:
            seal = base64.b64encode(self._chance.randbytes(self._chance.randint(200, 1000)))
            thought = {"type": "thinking", "thinking": self._prose(6), "signature": seal.decode()}
            blocks.append(thought)
        if self._chance.random() < 0.35:
            blocks.append({"type": "text", "text": self._prose(4)})
        calls = [self._call() for _ in range(1 if self._chance.random() < 0.85 else 2)]
        blocks += [block for block, _, _ in calls]
        yield from self._said(blocks, "tool_use")
        source = self._tip
        for block, content, structured in calls:
            yield from self._progress(block)
            result = {"tool_use_id": block["id"], "type": "tool_result", "content": content}
            if block["name"] == "Bash":
                result["is_error"] = False
            yield self._chained(
                "user",
                promptId=prompt,
                message={"role": "user", "content": [result]},
                toolUseResult=structured,
                sourceToolAssistantUUID=source,
            )

    def _said(self, blocks: list[Record], stop: str) -> Iterator[Record]:
        name, request = f"msg_{self._uuid()[:24]}", f"req_{self._uuid()[:24]}"
        written = self._chance.randint(200, 6000)
        usage: Record = {
            "input_tokens": self._chance.randint(3, 40),
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": self._chance.randint(9_000, 140_000),
            "cache_creation": {
                "ephemeral_5m_input_tokens": written,
                "ephemeral_1h_input_tokens": 0,
            },
            "output_tokens": self._chance.randint(40, 1800),
            "service_tier": "standard",
            "inference_geo": "not_available",
        }
        more: Record = {"requestId": request}
        if self._version == NEWER:
            usage |= {"output_tokens_details": {"thinking_tokens": 0}, "iterations": []}
            usage |= {"server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0}}
            usage |= {"speed": "standard", "fallback_credit": None}
            more |= {"requestRef": self._request, "requestedModel": "claude-sonnet-4-5"}
            more |= {"promptCacheRequested": "5m", "effort": "medium", "madeBy": "model"}
        for block in blocks:
            message: Record = {"model": "claude-sonnet-4-5", "id": name, "type": "message"}
            message |= {"role": "assistant", "content": [block], "stop_reason": stop}
            message |= {"stop_sequence": None, "usage": usage}
            yield self._chained("assistant", message=message, **more)

    # -- what stands beside the talk ----------------------------------------------------

    @property
    def _own(self) -> Record:
        return {"sessionId": self.id}

    def _attached(self, kind: str) -> Record:
        told = f"<system-reminder>\n{self._prose(8)}\n</system-reminder>"
        attachment = {"type": kind, "snapshot": {"workingDirectory": self.cwd, "isGitRepo": True}}
        return self._chained("attachment", attachment=attachment, rendered=[{"content": told}])

    def _asked(self) -> Record:
        """The request itself, as the present client notes it: settings and hashes."""
        before, self._request = self._request, self._uuid()
        hashes = [self._chance.randbytes(32).hex() for _ in range(4)]
        betas = ["claude-code-20250219", "interleaved-thinking-2025-05-14", "effort-2025-11-24"]
        params = {"model": "claude-sonnet-4-5", "betas": betas, "max_tokens": 128_000}
        params |= {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}}
        paths: list[list[str | int]] = [["system", 0], ["system", 1], ["messages", 12, "content"]]
        marks = [{"path": path, "value": {"type": "ephemeral"}} for path in paths]
        return {
            "type": "api-request",
            **self._own,
            "id": self._request,
            "timestamp": self._now(),
            "version": self._version,
            "querySource": "repl",
            "shapeHash": hashes[0],
            "params": params,
            "base": before,
            "keep": 12,
            "tail": hashes[1:3],
            "cacheControl": marks,
            "requestDigest": hashes[3],
        }

    def _progress(self, block: Record) -> Iterator[Record]:
        """What the older client writes while a tool runs: of hooks, and of commands that last."""
        if self._version != OLDER:
            return
        told: list[Record] = []
        if self._chance.random() < 0.5:
            name = f"PostToolUse:{block['name']}"
            told.append({"type": "hook_progress", "hookEvent": "PostToolUse", "hookName": name})
            told[0]["command"] = "hooks/after.sh"
        if block["name"] == "Bash" and self._chance.random() < 0.2:
            for second in range(self._chance.randint(1, 12)):
                text = self._prose(4)
                told.append({"type": "bash_progress", "output": text[:200], "fullOutput": text})
                told[-1] |= {"elapsedTimeSeconds": second, "totalLines": 4, "taskId": "bn1zed6q1"}
        for data in told:
            more = {"toolUseID": "bash-progress-0", "parentToolUseID": block["id"]}
            yield self._chained("progress", data=data, **more)

    # -- calls --------------------------------------------------------------------------

    def _call(self) -> tuple[Record, str, Any]:
        tool = self._chance.choices([*_TOOLS], [*_TOOLS.values()])[0]
        given, text, told = getattr(self, f"_{tool.lower()}")()
        call = {"type": "tool_use", "id": f"toolu_{self._uuid()[:24]}", "name": tool}
        return {**call, "input": given}, text, told

    def _bash(self) -> tuple[Record, str, Any]:
        name, piece, at = self._piece(50)
        command = self._chance.choice(_COMMANDS).format(name=name, word=name[:4])
        text = "\n".join(piece)
        if command.startswith("pytest"):
            text += f"\n{self._chance.randint(1, 90)} passed in 0.{at % 100:02}s"
        told = {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
        return {"command": command, "description": self._prose(1)[:60]}, text, told

    def _read(self) -> tuple[Record, str, Any]:
        name, piece, at = self._piece(320)
        path = f"{self.cwd}/{name}.py"
        form = "{}\t{}" if self._version == NEWER else "{:6}→{}"
        text = "\n".join(form.format(at + n, line) for n, line in enumerate(piece))
        file = {"filePath": path, "content": "\n".join(piece), "numLines": len(piece)}
        told = {"type": "text", "file": {**file, "startLine": at, "totalLines": 2000}}
        return {"file_path": path, "offset": at, "limit": len(piece)}, text, told

    def _edit(self) -> tuple[Record, str, Any]:
        name, lines = self._chance.choice(small_sources())
        at, count = self._chance.randrange(len(lines)), self._chance.randint(2, 24)
        old = lines[at : at + count]
        new = [*old[: count // 2], *self._chance.choice(small_sources())[1][: count // 2]]
        before, after = lines[max(at - 3, 0) : at], lines[at + count : at + count + 3]
        shown = [f" {line}" for line in before] + [f"-{line}" for line in old]
        shown += [f"+{line}" for line in new] + [f" {line}" for line in after]
        hunk = {"oldStart": at, "oldLines": len(old), "newStart": at, "newLines": len(new)}
        path = f"{self.cwd}/{name}.py"
        strings = {"oldString": "\n".join(old), "newString": "\n".join(new)}
        told = {
            "filePath": path,
            **strings,
            "originalFile": "\n".join(lines),
            "structuredPatch": [{**hunk, "lines": shown}],
            "userModified": False,
            "replaceAll": False,
        }
        given = {"file_path": path, "old_string": strings["oldString"], "replace_all": False}
        text = f"The file {path} has been updated successfully."
        return {**given, "new_string": strings["newString"]}, text, told

    def _write(self) -> tuple[Record, str, Any]:
        name, piece, _ = self._piece(160)
        given = {"file_path": f"{self.cwd}/{name}.py", "content": "\n".join(piece)}
        told = {"type": "create", "filePath": given["file_path"], "content": given["content"]}
        text = f"File created successfully at: {given['file_path']}"
        return given, text, {**told, "structuredPatch": [], "originalFile": None}

    def _grep(self) -> tuple[Record, str, Any]:
        name, piece, at = self._piece(50)
        text = "\n".join(f"src/{name}.py:{at + n}:{line}" for n, line in enumerate(piece))
        told = {"mode": "content", "numFiles": 0, "filenames": [], "content": text}
        given = {"pattern": name[:4], "path": f"{self.cwd}/src", "output_mode": "content"}
        return given, text, {**told, "numLines": len(piece)}

    def _glob(self) -> tuple[Record, str, Any]:
        found = self._chance.sample(sources(), 12)
        names = [f"{self.cwd}/src/{name}.py" for name, _ in found]
        told = {"filenames": names, "durationMs": 39, "numFiles": 12, "truncated": False}
        return {"pattern": "**/*.py"}, "\n".join(names), told

    def _todowrite(self) -> tuple[Record, str, Any]:
        before = self._todos
        self._todos = [
            {"content": self._prose(1)[:70], "status": "pending", "activeForm": self._prose(1)[:70]}
            for _ in range(self._chance.randint(2, 6))
        ]
        text = "Todos have been modified successfully. Ensure that you continue to use the list."
        return {"todos": self._todos}, text, {"oldTodos": before, "newTodos": self._todos}

    # -- parts --------------------------------------------------------------------------

    def _chained(self, kind: str, **fields: Any) -> Record:
        self._clock += self._chance.random() * 9
        record = {
            "parentUuid": self._tip,
            "isSidechain": False,
            "userType": "external",
            "entrypoint": "cli",
            "cwd": self.cwd,
            "sessionId": self.id,
            "version": self._version,
            "gitBranch": "main",
            "slug": "fuzzy-brewing-seal",
            "type": kind,
            **fields,
            "uuid": self._uuid(),
            "timestamp": self._now(),
        }
        self._tip = record["uuid"]
        return record

    def _piece(self, most: int) -> tuple[str, list[str], int]:
        """Some lines of a module, and where they stand in it."""
        name, lines = self._chance.choice(sources())
        at = self._chance.randrange(max(len(lines) - most, 1))
        return name, lines[at : at + self._chance.randint(1, most)], at

    def _prose(self, count: int) -> str:
        return " ".join(
            self._chance.choice(sentences()) for _ in range(self._chance.randint(1, count))
        )

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._chance.getrandbits(128), version=4))

    def _now(self) -> str:
        moment = datetime.fromtimestamp(int(self._clock), UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{moment}.{int(self._clock * 1000) % 1000:03}Z"


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


_ID = re.compile(rb"[0-9a-f]{4}(?=[0-9a-f]{4}-[0-9a-f]{4}-4[0-9a-f]{3}-)")


def write_great(root: Path, sessions: int, size: int, bases: int = 200, seed: int = 3) -> int:
    """Fill a config folder with more than could be made up one by one; how many bytes it took.

    Some sessions are made, and each is written many times, under ids of its own throughout: no
    copy shares a record, a response or a name with another.
    """
    chance = random.Random(seed)
    written = 0
    bases = min(bases, sessions)
    for number in range(bases):
        session = Session(chance, size)
        folder = root / "projects" / re.sub(r"[^A-Za-z0-9]", "-", session.cwd)
        folder.mkdir(parents=True, exist_ok=True)
        text = b"".join(session.lines())
        for copy in range(number, sessions, bases):
            own = b"%04x" % (copy // bases)
            path = folder / f"{own.decode()}{session.id[4:]}.jsonl"
            path.write_bytes(_ID.sub(own, text))
            written += path.stat().st_size
    return written
