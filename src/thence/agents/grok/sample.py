"""Sessions the way Grok writes them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from thence.agents.samples import Machine, Record, SampleClock, made_id, put, timed_id

MODEL = "grok-4-fast"


class SampleFolder:
    """One session being written."""

    def __init__(self, name: str, cwd: Path, start: datetime, title: str) -> None:
        self.id = timed_id(name, start)
        self.updates: list[Record] = []
        self.events: list[Record] = []
        self.clock = SampleClock(start)
        self._start = self.clock.text
        self._name = name
        self._title = title
        self._cwd = str(cwd)
        self._prompt = ""
        self._stream = 0
        self.index = 0
        self._turns: list[Record] = []

    def _update(self, kind: str, *, ours: bool = False, wait: float = 0.6, **fields: Any) -> None:
        self.clock.after(wait)
        meta = {
            "eventId": f"{self.id}-{len(self.updates) + 1}",
            "agentTimestampMs": self.clock.millis,
        }
        if self._prompt:
            meta |= {"promptId": self._prompt, "streamStartMs": self._stream}
        params = {
            "sessionId": self.id,
            "update": {"sessionUpdate": kind, **fields},
            "_meta": meta,
        }
        method = "_x.ai/session/update" if ours else "session/update"
        line = {"timestamp": self.clock.millis // 1000, "method": method, "params": params}
        self.updates.append(line)

    def _event(self, kind: str, **fields: Any) -> None:
        self.events.append({"ts": self.clock.text, "type": kind, **fields})

    def prompt(self, text: str, *, wait: float = 40.0) -> None:
        """Begin a turn."""
        self._prompt = ""
        about = {"modelId": MODEL, "promptIndex": self.index}
        content = {"type": "text", "text": text}
        self._update("user_message_chunk", wait=wait, content=content, _meta=about)
        self._event("turn_started", session_id=self.id, turn_number=self.index, model_id=MODEL)
        self._prompt = made_id(f"{self._name}{len(self.updates)}")
        self.index += 1

    def says(self, text: str) -> None:
        """Let the model say something."""
        self._stream = self.clock.millis
        self._update("agent_message_chunk", wait=3, content={"type": "text", "text": text})

    def call(
        self, tool: str, arguments: Record, outcome: Record | None, *, took: float = 1.0
    ) -> None:
        """Let the model use a tool; without an outcome it was killed before there was one."""
        name = f"call_{made_id(f'{self._name}{len(self.updates)}')[:12]}"
        about = {"x.ai/tool": {"version": 1, "name": tool, "namespace": "grok_build"}}
        self._stream = self.clock.millis
        self._update("tool_call", toolCallId=name, title=tool, rawInput=arguments, _meta=about)
        self._event("tool_started", tool_name=tool)
        if outcome is None:
            return
        self._update("tool_call_update", wait=took, toolCallId=name, status="completed", **outcome)
        self._event(
            "tool_completed",
            tool_name=tool,
            tool_call_id=name,
            outcome="success",
            duration_ms=int(took * 1000),
        )

    def bash(self, command: str, output: str, *, code: int = 0) -> None:
        """Run something."""
        raw = {
            "type": "Bash",
            "output": list(output.encode()),
            "output_for_prompt": f"exit: {code}\n{output}",
            "exit_code": code,
            "command": command,
        }
        content = [{"type": "content", "content": {"type": "text", "text": output}}]
        outcome = {"rawOutput": raw, "content": content}
        self.call("run_terminal_command", {"command": command}, outcome, took=2.2)

    def edit(self, path: str, old: str, new: str) -> None:
        """Change a file."""
        arguments = {"file_path": path, "old_string": old, "new_string": new}
        diff = {"type": "diff", "path": f"{self._cwd}/{path}", "oldText": old, "newText": new}
        raw = {"type": "SearchReplace", "file_path": path}
        self.call("search_replace", arguments, {"content": [diff], "rawOutput": raw})

    def end(self) -> None:
        """End the turn."""
        usage = {
            "inputTokens": 21_300,
            "outputTokens": 420,
            "totalTokens": 21_720,
            "cachedReadTokens": 18_000,
            "cacheCreationTokens": 0,
            "reasoningTokens": 0,
            "modelCalls": 3,
        }
        bill = {**usage, "modelUsage": {MODEL: usage}}
        self._update(
            "turn_completed",
            ours=True,
            prompt_id=self._prompt,
            stop_reason="end_turn",
            usage=bill,
        )
        self._event("turn_ended", outcome="completed")
        self._turns.append(
            {"turnNumber": len(self._turns) + 1, "endedAt": self.clock.text, **usage}
        )

    def rewind(self, index: int) -> None:
        """Take turns back."""
        self._prompt = ""
        self._update(
            "rewind_marker", ours=True, target_prompt_index=index, created_at=self.clock.text
        )
        self.index = index

    def save(self, root: Path) -> None:
        """Write the folder."""
        folder = root / "sessions" / quote(self._cwd, safe="") / self.id
        put(folder / "updates.jsonl", self.updates)
        put(folder / "events.jsonl", self.events)
        summary = {
            "info": {"id": self.id, "cwd": self._cwd},
            "session_summary": self._title,
            "generated_title": self._title,
            "created_at": self._start,
            "updated_at": self.clock.text,
            "last_active_at": self.clock.text,
            "current_model_id": MODEL,
            "head_branch": "rename-gauge",
            "chat_format_version": 1,
        }
        (folder / "summary.json").write_text(json.dumps(summary, indent=2))
        names = [name for name in self._turns[0] if name.endswith("Tokens")] if self._turns else []
        if names:
            total = {name: sum(turn[name] for turn in self._turns) for name in names}
            total |= {"turnCount": len(self._turns), "primaryModelId": MODEL}
            usage = {"sessionId": self.id, "updatedAt": self.clock.text, "session": total}
            (folder / "usage.json").write_text(json.dumps({**usage, "turns": self._turns}))


def write(machine: Machine, now: datetime) -> None:
    """Write the sessions of Grok."""
    cwd = machine.work / "tidepool"
    s = SampleFolder("rename", cwd, now - timedelta(hours=3), "Rename Station to Gauge everywhere")
    s.prompt("Rename Station to Gauge everywhere.")
    s.bash("grep -rl Station . | wc -l", "58\n")
    s.edit("gauges/api.py", "class Station", "class Gauge")
    s.says("Renamed in the API; 57 files are left.")
    s.end()
    s.prompt("Do the rest with sed.")
    s.bash("sed -i s/Station/Gauge/g $(grep -rl Station .)", "")
    s.says("Done, in the vendored files too.")
    s.end()
    s.rewind(1)
    s.prompt("Do the rest, but leave vendor/ alone.")
    s.bash("git ls-files | grep -v ^vendor/ | xargs sed -i s/Station/Gauge/g", "")
    s.bash("pytest -q", "1 failed, 310 passed in 48.0s\n", code=1)
    s.edit("tests/test_api.py", "Station", "Gauge")
    s.bash("pytest -q", "311 passed in 47.1s\n")
    s.says("Station is Gauge in 57 files; vendor/ is as it was. All tests pass.")
    s.end()
    s.save(machine.home)
