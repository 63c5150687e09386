"""Synthetic session logs for benchmarks, shaped like real ones.

Sizes of sessions follow measurements on real machines (median 49 KB, a long tail up to 48 MB). The
kinds and sizes of records follow published logs of the 2.1 client and logs of the current one:
lines of 2.5 KB on average; a fifth of them are results, which make up more than half of all bytes,
because the client writes them twice and stores the complete file with each edit; thoughts have
signatures; the older client writes progress records, the current one requests and attachments.
The files that are read and edited are the source of the standard library, and the prose is taken
from its docstrings, so that the text compresses and repeats as real text does. The same seed gives
the same bytes.
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

MEDIAN_BYTES = 49_000
MAX_BYTES = 48_000_000
LOG_SPREAD = 1.9

OLD_VERSION, NEW_VERSION = "2.1.62", "2.1.325"
"""A client that writes progress records, and one that writes requests and more attachments."""

_TOOLS = {"Bash": 35, "Read": 20, "Edit": 19, "TodoWrite": 9, "Grep": 8, "Glob": 4, "Write": 3}
"""How often each tool is called, as counted in published logs; rare tools are left out."""

_COMMANDS = (
    "pytest -q tests/test_{name}.py",
    "git diff --stat",
    "git add -A && git commit -m 'Mend {name}'",
    "grep -rn {word} src | head -20",
    "cd /home/dev/{name} && python -m {name} --help 2>&1 | tail -5",
    "ls -la src/{name}",
    "ruff check src/{name}.py",
)
_MAX_EDITED_BYTES = 16_000
"""Edited files are smaller than this: 10 KB on average, as in published logs."""

_FIRST_ATTACHMENTS = ("environment", "model", "agent_listing_delta", "session_context", "date")
"""What the current client attaches to the first prompt."""

Record = dict[str, Any]


@cache
def sources() -> list[tuple[str, list[str]]]:
    """Return the modules of the standard library: names and lines."""
    library = Path(sysconfig.get_paths()["stdlib"])
    paths = sorted(path for path in library.glob("*.py") if 4_000 < path.stat().st_size < 200_000)
    return [
        (path.stem, path.read_text(encoding="utf-8", errors="replace").splitlines())
        for path in paths
    ]


@cache
def small_sources() -> list[tuple[str, list[str]]]:
    """Return the modules that are as small as most files that people edit."""
    return [(name, lines) for name, lines in sources() if len("\n".join(lines)) < _MAX_EDITED_BYTES]


@cache
def sentences() -> list[str]:
    """Return sentences of docstrings and comments."""
    text = " ".join(
        line.strip(" #\"'") for _, lines in sources() for line in lines if line.count(" ") > 6
    )
    matches = re.findall(r"[A-Z][a-z][^.{}()=\[\]]{30,180}\.", text)
    return matches[:20_000]


class Session:
    """A session of either client: prompts, thoughts, calls, results, edits, branches."""

    def __init__(self, rng: random.Random, size: int) -> None:
        self._rng = rng
        self._size = size
        self.id = self._uuid()
        self.cwd = f"/home/dev/{rng.choice(sources())[0]}"
        self._tip: str | None = None
        self._clock = 1_767_225_600.0 + rng.random() * 2e7
        self._version = rng.choice((OLD_VERSION, NEW_VERSION))
        self._written = 0
        self._request = ""
        self._todos: list[Record] = []

    def lines(self) -> Iterator[bytes]:
        """Yield lines until the session has its size."""
        while self._written < self._size:
            for record in self._turn():
                line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
                self._written += len(line) + 1
                yield line + b"\n"
                if self._written >= self._size:
                    return  # in the middle of a turn, as when the window is closed

    # -- turns --------------------------------------------------------------------------

    def _turn(self) -> Iterator[Record]:
        prompt, previous_tip, is_first = self._uuid(), self._tip, self._tip is None
        yield {
            "type": "file-history-snapshot",
            "messageId": prompt,
            "snapshot": {"messageId": prompt, "trackedFileBackups": {}, "timestamp": self._now()},
            "isSnapshotUpdate": False,
        }
        message = {"role": "user", "content": self._prose(6)}
        yield self._linked_record(
            "user", promptId=prompt, message=message, permissionMode="acceptEdits"
        )
        if self._version == NEW_VERSION:
            for kind in (*(_FIRST_ATTACHMENTS if is_first else ()), "task_reminder"):
                yield self._attachment(kind)
        for _ in range(self._rng.randint(3, 16)):
            yield from self._response(prompt)
        yield from self._reply([{"type": "text", "text": self._prose(6)}], "end_turn")
        yield from self._turn_end(prompt)
        if self._rng.random() < 0.03:
            self._tip = previous_tip  # the user goes back: this turn is a discarded branch

    def _turn_end(self, prompt: str) -> Iterator[Record]:
        """Yield what the client records at the end of a turn."""
        if self._version == OLD_VERSION:
            summary = {"hookCount": 1, "hookInfos": [{"command": "hooks/stop.sh"}]}
            summary |= {"hookErrors": [], "preventedContinuation": False, "stopReason": ""}
            fields = {"hasOutput": False, "level": "suggestion", "toolUseID": self._uuid()}
            yield self._linked_record("system", subtype="stop_hook_summary", **summary, **fields)
            yield self._linked_record(
                "system", subtype="turn_duration", durationMs=51_734, isMeta=False
            )
            return
        yield {
            "type": "last-prompt",
            "lastPrompt": prompt,
            "leafUuid": self._tip,
        } | self._session_field
        yield {"type": "mode", "mode": "default"} | self._session_field
        usage: Record = {"inputTokens": 96, "outputTokens": 9_336, "cacheReadInputTokens": 720_000}
        usage |= {"cacheCreationInputTokens": 27_200, "webSearchRequests": 0, "costUSD": 0.35}
        totals = {"totalCostUSD": 0.35, "totalAPIDuration": 51_734, "totalToolDuration": 16_900}
        totals |= {"totalLinesAdded": 60, "totalLinesRemoved": 11, "totalDuration": 73_800}
        yield {
            "type": "cost-state",
            **totals,
            "modelUsage": {"claude-opus": usage},
        } | self._session_field

    def _response(self, prompt: str) -> Iterator[Record]:
        if self._version == NEW_VERSION:
            yield self._api_request()
        blocks: list[Record] = []
        if self._rng.random() < 0.3:
            signature = base64.b64encode(self._rng.randbytes(self._rng.randint(200, 1000)))
            thought = {
                "type": "thinking",
                "thinking": self._prose(6),
                "signature": signature.decode(),
            }
            blocks.append(thought)
        if self._rng.random() < 0.35:
            blocks.append({"type": "text", "text": self._prose(4)})
        calls = [self._call() for _ in range(1 if self._rng.random() < 0.85 else 2)]
        blocks += [block for block, _, _ in calls]
        yield from self._reply(blocks, "tool_use")
        source = self._tip
        for block, content, structured in calls:
            yield from self._progress(block)
            result = {"tool_use_id": block["id"], "type": "tool_result", "content": content}
            if block["name"] == "Bash":
                result["is_error"] = False
            yield self._linked_record(
                "user",
                promptId=prompt,
                message={"role": "user", "content": [result]},
                toolUseResult=structured,
                sourceToolAssistantUUID=source,
            )

    def _reply(self, blocks: list[Record], stop: str) -> Iterator[Record]:
        message_id, request = f"msg_{self._uuid()[:24]}", f"req_{self._uuid()[:24]}"
        cached = self._rng.randint(200, 6000)
        usage: Record = {
            "input_tokens": self._rng.randint(3, 40),
            "cache_creation_input_tokens": cached,
            "cache_read_input_tokens": self._rng.randint(9_000, 140_000),
            "cache_creation": {
                "ephemeral_5m_input_tokens": cached,
                "ephemeral_1h_input_tokens": 0,
            },
            "output_tokens": self._rng.randint(40, 1800),
            "service_tier": "standard",
            "inference_geo": "not_available",
        }
        fields: Record = {"requestId": request}
        if self._version == NEW_VERSION:
            usage |= {"output_tokens_details": {"thinking_tokens": 0}, "iterations": []}
            usage |= {"server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0}}
            usage |= {"speed": "standard", "fallback_credit": None}
            fields |= {"requestRef": self._request, "requestedModel": "claude-sonnet-4-5"}
            fields |= {"promptCacheRequested": "5m", "effort": "medium", "madeBy": "model"}
        for block in blocks:
            message: Record = {"model": "claude-sonnet-4-5", "id": message_id, "type": "message"}
            message |= {"role": "assistant", "content": [block], "stop_reason": stop}
            message |= {"stop_sequence": None, "usage": usage}
            yield self._linked_record("assistant", message=message, **fields)

    # -- records beside the conversation ------------------------------------------------

    @property
    def _session_field(self) -> Record:
        return {"sessionId": self.id}

    def _attachment(self, kind: str) -> Record:
        text = f"<system-reminder>\n{self._prose(8)}\n</system-reminder>"
        attachment = {"type": kind, "snapshot": {"workingDirectory": self.cwd, "isGitRepo": True}}
        return self._linked_record(
            "attachment", attachment=attachment, rendered=[{"content": text}]
        )

    def _api_request(self) -> Record:
        """Return the record of an API request of the current client: settings and hashes."""
        previous, self._request = self._request, self._uuid()
        hashes = [self._rng.randbytes(32).hex() for _ in range(4)]
        betas = ["claude-code-20250219", "interleaved-thinking-2025-05-14", "effort-2025-11-24"]
        params = {"model": "claude-sonnet-4-5", "betas": betas, "max_tokens": 128_000}
        params |= {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}}
        paths: list[list[str | int]] = [["system", 0], ["system", 1], ["messages", 12, "content"]]
        cache_marks = [{"path": path, "value": {"type": "ephemeral"}} for path in paths]
        return {
            "type": "api-request",
            **self._session_field,
            "id": self._request,
            "timestamp": self._now(),
            "version": self._version,
            "querySource": "repl",
            "shapeHash": hashes[0],
            "params": params,
            "base": previous,
            "keep": 12,
            "tail": hashes[1:3],
            "cacheControl": cache_marks,
            "requestDigest": hashes[3],
        }

    def _progress(self, block: Record) -> Iterator[Record]:
        """Yield what the older client writes while a tool runs: progress of hooks and commands."""
        if self._version != OLD_VERSION:
            return
        updates: list[Record] = []
        if self._rng.random() < 0.5:
            name = f"PostToolUse:{block['name']}"
            updates.append({"type": "hook_progress", "hookEvent": "PostToolUse", "hookName": name})
            updates[0]["command"] = "hooks/after.sh"
        if block["name"] == "Bash" and self._rng.random() < 0.2:
            for second in range(self._rng.randint(1, 12)):
                text = self._prose(4)
                updates.append({"type": "bash_progress", "output": text[:200], "fullOutput": text})
                updates[-1] |= {
                    "elapsedTimeSeconds": second,
                    "totalLines": 4,
                    "taskId": "bn1zed6q1",
                }
        for data in updates:
            ids = {"toolUseID": "bash-progress-0", "parentToolUseID": block["id"]}
            yield self._linked_record("progress", data=data, **ids)

    # -- calls --------------------------------------------------------------------------

    def _call(self) -> tuple[Record, str, Any]:
        tool = self._rng.choices([*_TOOLS], [*_TOOLS.values()])[0]
        arguments, text, result = getattr(self, f"_{tool.lower()}")()
        call = {"type": "tool_use", "id": f"toolu_{self._uuid()[:24]}", "name": tool}
        return {**call, "input": arguments}, text, result

    def _bash(self) -> tuple[Record, str, Any]:
        name, excerpt, start = self._excerpt(50)
        command = self._rng.choice(_COMMANDS).format(name=name, word=name[:4])
        text = "\n".join(excerpt)
        if command.startswith("pytest"):
            text += f"\n{self._rng.randint(1, 90)} passed in 0.{start % 100:02}s"
        result = {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
        return {"command": command, "description": self._prose(1)[:60]}, text, result

    def _read(self) -> tuple[Record, str, Any]:
        name, excerpt, start = self._excerpt(320)
        path = f"{self.cwd}/{name}.py"
        template = "{}\t{}" if self._version == NEW_VERSION else "{:6}→{}"
        text = "\n".join(template.format(start + n, line) for n, line in enumerate(excerpt))
        file = {"filePath": path, "content": "\n".join(excerpt), "numLines": len(excerpt)}
        result = {"type": "text", "file": {**file, "startLine": start, "totalLines": 2000}}
        return {"file_path": path, "offset": start, "limit": len(excerpt)}, text, result

    def _edit(self) -> tuple[Record, str, Any]:
        name, lines = self._rng.choice(small_sources())
        start, count = self._rng.randrange(len(lines)), self._rng.randint(2, 24)
        old = lines[start : start + count]
        new = [*old[: count // 2], *self._rng.choice(small_sources())[1][: count // 2]]
        before, after = lines[max(start - 3, 0) : start], lines[start + count : start + count + 3]
        diff = [f" {line}" for line in before] + [f"-{line}" for line in old]
        diff += [f"+{line}" for line in new] + [f" {line}" for line in after]
        hunk = {"oldStart": start, "oldLines": len(old), "newStart": start, "newLines": len(new)}
        path = f"{self.cwd}/{name}.py"
        strings = {"oldString": "\n".join(old), "newString": "\n".join(new)}
        result = {
            "filePath": path,
            **strings,
            "originalFile": "\n".join(lines),
            "structuredPatch": [{**hunk, "lines": diff}],
            "userModified": False,
            "replaceAll": False,
        }
        arguments = {"file_path": path, "old_string": strings["oldString"], "replace_all": False}
        text = f"The file {path} has been updated successfully."
        return {**arguments, "new_string": strings["newString"]}, text, result

    def _write(self) -> tuple[Record, str, Any]:
        name, excerpt, _ = self._excerpt(160)
        arguments = {"file_path": f"{self.cwd}/{name}.py", "content": "\n".join(excerpt)}
        result = {
            "type": "create",
            "filePath": arguments["file_path"],
            "content": arguments["content"],
        }
        text = f"File created successfully at: {arguments['file_path']}"
        return arguments, text, {**result, "structuredPatch": [], "originalFile": None}

    def _grep(self) -> tuple[Record, str, Any]:
        name, excerpt, start = self._excerpt(50)
        text = "\n".join(f"src/{name}.py:{start + n}:{line}" for n, line in enumerate(excerpt))
        result = {"mode": "content", "numFiles": 0, "filenames": [], "content": text}
        arguments = {"pattern": name[:4], "path": f"{self.cwd}/src", "output_mode": "content"}
        return arguments, text, {**result, "numLines": len(excerpt)}

    def _glob(self) -> tuple[Record, str, Any]:
        modules = self._rng.sample(sources(), 12)
        names = [f"{self.cwd}/src/{name}.py" for name, _ in modules]
        result = {"filenames": names, "durationMs": 39, "numFiles": 12, "truncated": False}
        return {"pattern": "**/*.py"}, "\n".join(names), result

    def _todowrite(self) -> tuple[Record, str, Any]:
        previous = self._todos
        self._todos = [
            {"content": self._prose(1)[:70], "status": "pending", "activeForm": self._prose(1)[:70]}
            for _ in range(self._rng.randint(2, 6))
        ]
        text = "Todos have been modified successfully. Ensure that you continue to use the list."
        return {"todos": self._todos}, text, {"oldTodos": previous, "newTodos": self._todos}

    # -- parts --------------------------------------------------------------------------

    def _linked_record(self, kind: str, **fields: Any) -> Record:
        self._clock += self._rng.random() * 9
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

    def _excerpt(self, max_lines: int) -> tuple[str, list[str], int]:
        """Return the name of a module, some of its lines, and the index of the first."""
        name, lines = self._rng.choice(sources())
        start = self._rng.randrange(max(len(lines) - max_lines, 1))
        return name, lines[start : start + self._rng.randint(1, max_lines)], start

    def _prose(self, count: int) -> str:
        return " ".join(self._rng.choice(sentences()) for _ in range(self._rng.randint(1, count)))

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def _now(self) -> str:
        moment = datetime.fromtimestamp(int(self._clock), UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{moment}.{int(self._clock * 1000) % 1000:03}Z"


def write_claude(root: Path, megabytes: float, seed: int = 1) -> int:
    """Fill a config folder with about so many megabytes of sessions; return the number of files."""
    rng = random.Random(seed)
    bytes_left = int(megabytes * 1e6)
    files = 0
    while bytes_left > 0:
        size = int(
            min(MEDIAN_BYTES * exp(rng.gauss(0, LOG_SPREAD)), MAX_BYTES, max(bytes_left, 2_000))
        )
        if not files and bytes_left > 2 * MAX_BYTES:
            size = MAX_BYTES  # a large corpus has one very long session
        session = Session(rng, size)
        folder = root / "projects" / re.sub(r"[^A-Za-z0-9]", "-", session.cwd)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{session.id}.jsonl").open("wb") as file:
            file.writelines(session.lines())
        bytes_left -= size
        files += 1
    return files


def write_many(root: Path, sessions: int, size: int, seed: int = 2) -> int:
    """Fill a config folder with sessions of about the same size; return their bytes."""
    rng = random.Random(seed)
    written = 0
    for _ in range(sessions):
        session = Session(rng, size)
        folder = root / "projects" / re.sub(r"[^A-Za-z0-9]", "-", session.cwd)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{session.id}.jsonl"
        with path.open("wb") as file:
            file.writelines(session.lines())
        written += path.stat().st_size
    return written


_ID = re.compile(rb"[0-9a-f]{4}(?=[0-9a-f]{4}-[0-9a-f]{4}-4[0-9a-f]{3}-)")


def write_copies(root: Path, sessions: int, size: int, originals: int = 200, seed: int = 3) -> int:
    """Fill a config folder with copies of a few sessions; return their bytes.

    Generating so many sessions would take too long. Each copy has ids of its own: no two copies
    share a record, a response or a name.
    """
    rng = random.Random(seed)
    written = 0
    originals = min(originals, sessions)
    for number in range(originals):
        session = Session(rng, size)
        folder = root / "projects" / re.sub(r"[^A-Za-z0-9]", "-", session.cwd)
        folder.mkdir(parents=True, exist_ok=True)
        text = b"".join(session.lines())
        for copy in range(number, sessions, originals):
            prefix = b"%04x" % (copy // originals)
            path = folder / f"{prefix.decode()}{session.id[4:]}.jsonl"
            path.write_bytes(_ID.sub(prefix, text))
            written += path.stat().st_size
    return written
