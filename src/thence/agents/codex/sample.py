"""Sessions the way Codex writes them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from thence.agents.samples import Machine, Record, SampleClock, made_id, put, timed_id

MODEL = "gpt-5.5"
VERSION = "0.130.0"


class SampleRollout:
    """One thread being written."""

    def __init__(self, name: str, cwd: Path, start: datetime, **meta: Any) -> None:
        self.id = timed_id(name, start)
        self.records: list[Record] = []
        self.clock = SampleClock(start)
        self._start = start
        self._name = name
        self._cwd = str(cwd)
        self._turn = ""
        self._total = dict.fromkeys(("input_tokens", "cached_input_tokens", "output_tokens"), 0)
        self._line(
            "session_meta",
            id=self.id,
            timestamp=self.clock.text,
            cwd=self._cwd,
            originator="codex-tui",
            cli_version=VERSION,
            **({"source": "cli"} | meta),
            model_provider="openai",
            git={"branch": "main", "commit_hash": made_id(name).replace("-", "")},
        )

    def _line(self, kind: str, wait: float = 0.4, **payload: Any) -> None:
        self.clock.after(wait)
        self.records.append({"timestamp": self.clock.text, "type": kind, "payload": payload})

    def prompt(self, text: str, *, wait: float = 50.0) -> None:
        """Begin a turn."""
        self._turn = timed_id(f"{self._name}{len(self.records)}", self.clock.now)
        self._line("event_msg", wait, type="task_started", turn_id=self._turn)
        self._line("turn_context", turn_id=self._turn, cwd=self._cwd, model=MODEL)
        content = [{"type": "input_text", "text": text}]
        self._line("response_item", type="message", role="user", content=content)
        self._line("event_msg", type="user_message", message=text, images=[])

    def run(self, command: str, output: str, *, code: int = 0, took: float = 2.0) -> None:
        """Let it run a command."""
        name = f"call_{made_id(f'{self._name}{len(self.records)}')[:12]}"
        arguments = json.dumps({"cmd": command})
        self._line(
            *("response_item", 4.0),
            type="function_call",
            name="exec_command",
            arguments=arguments,
            call_id=name,
        )
        self._bill()
        result = (
            f"Wall time: {took:.4f} seconds\nProcess exited with code {code}\nOutput:\n{output}"
        )
        self._line("response_item", took, type="function_call_output", call_id=name, output=result)

    def patch(self, path: str, old: str, new: str) -> None:
        """Let it change a file."""
        name = f"call_{made_id(f'{self._name}{len(self.records)}')[:12]}"
        body = f"*** Begin Patch\n*** Update File: {path}\n@@\n-{old}\n+{new}\n*** End Patch\n"
        self._line(
            *("response_item", 5.0),
            type="custom_tool_call",
            status="completed",
            name="apply_patch",
            input=body,
            call_id=name,
        )
        self._bill()
        output = {"output": f"Success. Updated the following files:\nM {path}\n"}
        output |= {"metadata": {"exit_code": 0, "duration_seconds": 0.0}}  # type: ignore[dict-item]
        self._line(
            "response_item",
            type="custom_tool_call_output",
            call_id=name,
            output=json.dumps(output),
        )

    def text(self, text: str) -> None:
        """End the turn with a text."""
        self._line("event_msg", 6.0, type="agent_message", message=text)
        content = [{"type": "output_text", "text": text}]
        self._line("response_item", type="message", role="assistant", content=content)
        self._bill()
        self._line("event_msg", type="task_complete", turn_id=self._turn, last_agent_message=text)

    def event(self, kind: str, **fields: Any) -> None:
        """Write an event."""
        self._line("event_msg", type=kind, **fields)

    def _bill(self) -> None:
        last = {"input_tokens": 14_200, "cached_input_tokens": 12_800, "output_tokens": 240}
        for name, number in last.items():
            self._total[name] += number
        usages = [
            usage | {"total_tokens": usage["input_tokens"] + usage["output_tokens"]}
            for usage in (self._total, last)
        ]
        info = {"total_token_usage": usages[0], "last_token_usage": usages[1]}
        self._line("event_msg", 0.1, type="token_count", info=info, rate_limits=None)

    def save(self, root: Path) -> None:
        """Write the file."""
        at = self.records[0]["timestamp"][:19].replace(":", "-")
        day = at[:10].replace("-", "/")
        put(root / "sessions" / day / f"rollout-{at}-{self.id}.jsonl", self.records)


def write(machine: Machine, now: datetime) -> None:
    """Write the threads of Codex."""
    tidepool, books = machine.work / "tidepool", machine.work / "harbour-books"
    _alerts(machine, tidepool, now - timedelta(days=1, hours=5))
    _books(machine, books, now - timedelta(minutes=50))


def _alerts(machine: Machine, cwd: Path, start: datetime) -> None:
    """A turn that was taken back, and a helper with a thread of its own."""
    s = SampleRollout("alerts-twice", cwd, start)
    s.prompt("Alerts fire twice at the clock change.")
    s.run("rg -n 'dedupe' tidepool", "tidepool/alerts.py:41: key = local_hour\n")
    s.patch("tidepool/alerts.py", "key = local_hour", "key = local_hour + 1")
    s.run("pytest -q tests/alerts", "3 failed, 12 passed in 0.8s\n", code=1)
    s.text("The dedupe key holds the local hour; three tests still fail.")
    s.event("thread_rolled_back", num_turns=1)
    s.prompt("Use UTC in the key.")
    s.patch("tidepool/alerts.py", "key = local_hour", "key = utc_hour")
    s.run("pytest -q tests/alerts", "15 passed in 0.8s\n")
    child = _reviewer(machine, s, cwd)
    s.run(f"codex review --thread {child}", "no findings\n", took=9)
    s.text("Each alert fires once now; 15 tests pass.")
    s.save(machine.home)


def _reviewer(machine: Machine, parent: SampleRollout, cwd: Path) -> str:
    spawn = {"parent_thread_id": parent.id, "depth": 1, "agent_role": "reviewer"}
    side = SampleRollout(
        "alerts-review",
        cwd,
        parent.clock.now,
        source={"subagent": {"thread_spawn": spawn}},
        parent_thread_id=parent.id,
    )
    side.prompt("Review the change of the dedupe key.", wait=1)
    side.run("git diff --stat", " tidepool/alerts.py | 2 +-\n")
    side.text("No findings.")
    side.save(machine.home)
    return side.id


def _books(machine: Machine, cwd: Path, start: datetime) -> None:
    """It asks something, and nobody has answered yet."""
    s = SampleRollout("books-export", cwd, start)
    s.prompt("Export the harbour dues as CSV, one file a month.")
    s.run("python -m books export --dry-run", "12 files\n")
    s.patch("books/export.py", "rows", "rows or [blank]")
    s.text("Done. Keep the trailing blank line, or drop it?")
    s.save(machine.home)
