"""Sessions the way Claude Code writes them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from thence.agents.claude.handoff import folder_name
from thence.agents.samples import Machine, Record, SampleClock, fake_token, made_id, put

VERSION = "2.1.325"
MODEL = "claude-sonnet-4-5"


class SampleTranscript:
    """One session being written: every record follows the one before unless it is told."""

    def __init__(
        self, name: str, cwd: Path, start: datetime, *, branch: str = "main", agent: str = ""
    ) -> None:
        self.id = made_id(name)
        self.records: list[Record] = []
        self.tip: str | None = None
        self._name = name
        self._cwd = str(cwd)
        self._branch = branch
        self._agent = agent
        self.clock = SampleClock(start)
        self._cached = 14_000

    def chain(self, kind: str, *, wait: float = 2.0, **fields: Any) -> str:
        """Write a record that has a place in the chain."""
        self.clock.after(wait)
        uuid = made_id(f"{self._name}/{self._agent}/{len(self.records)}")
        record = {
            "parentUuid": self.tip,
            "isSidechain": bool(self._agent),
            "userType": "external",
            "entrypoint": "cli",
            "cwd": self._cwd,
            "sessionId": self.id,
            "version": VERSION,
            "gitBranch": self._branch,
            "type": kind,
            **({"agentId": self._agent} if self._agent else {}),
            **fields,
            "uuid": uuid,
            "timestamp": self.clock.text,
        }
        self.records.append(record)
        self.tip = uuid
        return uuid

    def prompt(self, text: str, *, wait: float = 45.0, **more: Any) -> str:
        """Let the user say something."""
        message = {"role": "user", "content": text}
        return self.chain("user", wait=wait, message=message, **more)

    def says(self, *blocks: Record, stop: str = "tool_use", out: int = 260) -> None:
        """Let the model answer; each block is a record of its own, the bill is one."""
        name = (
            f"msg_{made_id(f'{self._name}{self._agent}{len(self.records)}').replace('-', '')[:24]}"
        )
        self._cached += 900 + 3 * out
        usage = {
            "input_tokens": 12,
            "cache_creation_input_tokens": 900 + out,
            "cache_read_input_tokens": self._cached,
            "output_tokens": out,
        }
        for block in blocks:
            message = {
                "id": name,
                "type": "message",
                "role": "assistant",
                "model": MODEL,
                "content": [block],
                "stop_reason": stop,
                "usage": usage,
            }
            self.chain("assistant", wait=3.5, requestId=f"req_{name[4:]}", message=message)

    def text(self, text: str, *, out: int = 180) -> None:
        """Let the model end its turn with a text."""
        self.says({"type": "text", "text": text}, stop="end_turn", out=out)

    def call(self, tool: str, arguments: Record, result: str | None, **how: Any) -> str:
        """Let the model use a tool; without a result the session ended before there was one."""
        name = f"toolu_{made_id(f'{self._name}{self._agent}call{len(self.records)}')[:18]}"
        text_blocks = [{"type": "text", "text": how["say"]}] if "say" in how else []
        self.says(*text_blocks, {"type": "tool_use", "id": name, "name": tool, "input": arguments})
        if result is None:
            return name
        source = self.tip
        block: Record = {"type": "tool_result", "tool_use_id": name, "content": result}
        if how.get("failed"):
            block["is_error"] = True
        self.chain(
            "user",
            wait=how.get("took", 1.2),
            message={"role": "user", "content": [block]},
            toolUseResult=how.get("structured", f"Error: {result}" if how.get("failed") else {}),
            sourceToolAssistantUUID=source,
        )
        return name

    def bash(self, command: str, output: str, *, code: int = 0, took: float = 3.1) -> None:
        """Run something."""
        result = f"Exit code {code}\n{output}" if code else output
        structured = {"stdout": output, "stderr": "", "interrupted": False, "isImage": False}
        more: Record = {"failed": True} if code else {"structured": structured}
        self.call("Bash", {"command": command}, result, took=took, **more)

    def edit(self, path: str, old: str, new: str) -> None:
        """Change a file."""
        full = f"{self._cwd}/{path}"
        structured = {"filePath": full, "oldString": old, "newString": new, "structuredPatch": []}
        arguments = {"file_path": full, "old_string": old, "new_string": new}
        self.call("Edit", arguments, f"The file {full} has been updated.", structured=structured)

    def save(self, root: Path, *, torn: bool = False) -> Path:
        """Write the file."""
        path = root / "projects" / folder_name(self._cwd) / f"{self.id}.jsonl"
        put(path, self.records, torn=torn)
        return path


def write(machine: Machine, now: datetime) -> None:
    """Write the sessions of Claude Code, its prompt history and its settings."""
    tidepool, lumen = machine.work / "tidepool", machine.work / "lumen"
    main = _clock_change(machine, tidepool, now - timedelta(hours=5))
    _fork(machine, main, tidepool)
    _secret(machine, tidepool, now - timedelta(days=2, hours=3))
    _question(machine, tidepool, now - timedelta(days=1, hours=2))
    _crash(machine, lumen, now - timedelta(hours=1))
    _old(machine, tidepool, now - timedelta(days=28, hours=4))
    history = [
        {"display": text, "timestamp": int((now - at).timestamp() * 1000), "project": str(tidepool)}
        for text, at in (
            ("What does clock.py do?", timedelta(days=1, hours=2)),
            ("Good, that is the cause. Fix it now, smallest change.", timedelta(hours=4)),
        )
    ]
    put(machine.home / "history.jsonl", history)
    (machine.home / "settings.json").write_text(json.dumps({"cleanupPeriodDays": 30}) + "\n")


def _clock_change(machine: Machine, cwd: Path, start: datetime) -> SampleTranscript:
    """A bug found, mended wrongly, corrected by the user, compacted on the way, with a helper."""
    s = SampleTranscript("clock-change", cwd, start, branch="fix/dst-gap")
    s.prompt(
        "The hourly tide table for Europe/Lisbon loses 02:00 to 03:00 on 29 March. Find out why,"
        " fix it, and keep the shape of the API as it is."
    )
    s.says({"type": "thinking", "thinking": "Look where hours are walked.", "signature": "c2ln"})
    s.call("Grep", {"pattern": "local_hours", "path": "tidepool"}, "tidepool/windows.py\nfeed.py")
    s.call("Read", {"file_path": f"{cwd}/tidepool/windows.py"}, "def local_hours(day, zone): …")
    s.bash("pytest -q tests/windows", "1 failed, 42 passed in 3.02s\n", code=1)
    s.text(
        "local_hours walks local wall-clock time; on the spring change 01:00 is followed by 03:00."
    )
    _compact(s)
    s.prompt("Good, that is the cause. Fix it now, smallest change that works.")
    before = s.tip
    s.edit("tidepool/windows.py", "yield at", "yield at  # and the missing hour")
    s.text("I added the missing hour after the loop when the day has 23 hours.")
    s.tip = before  # rewound: what stands above goes nowhere
    s.prompt(
        "No. Do not patch the gap afterwards. Cut the windows in UTC and use local time only for"
        " the label."
    )
    s.edit("tidepool/windows.py", "tzinfo=zone)", "tzinfo=zone).astimezone(UTC)")
    s.bash("pytest -q tests/windows", "2 failed, 41 passed in 3.10s\n", code=1)
    s.edit("tidepool/feed.py", "key = hour", "key = (hour, fold)")
    s.bash("pytest -q tests/windows", "43 passed in 3.08s\n")
    _helper(machine, s, cwd)
    todos = [
        {"content": "Add a test for Lord Howe", "status": "pending", "activeForm": "Adding"},
        {"content": "Cut windows in UTC", "status": "completed", "activeForm": "Cutting"},
    ]
    s.call("TodoWrite", {"todos": todos}, "Todos have been modified.")
    s.text("Windows are cut in UTC, labels are local. Shall I push the branch fix/dst-gap?")
    s.save(machine.home)
    return s


def _compact(s: SampleTranscript) -> None:
    last = s.tip
    s.tip = None
    metadata = {"trigger": "auto", "preTokens": 148_000, "postTokens": 21_000}
    s.chain(
        "system",
        subtype="compact_boundary",
        content="Conversation compacted",
        logicalParentUuid=last,
        compactMetadata=metadata,
    )
    s.prompt(
        "The walk over local hours skips one on the spring change. windows.py is where to mend it.",
        wait=9,
        isCompactSummary=True,
        isVisibleInTranscriptOnly=True,
    )


def _helper(machine: Machine, s: SampleTranscript, cwd: Path) -> None:
    """A subagent, in a file of its own."""
    agent = made_id("explorer").replace("-", "")[:17]
    side = SampleTranscript("clock-change", cwd, s.clock.now, branch="fix/dst-gap", agent=agent)
    side.prompt("Find callers that use the label as an identifier.")
    side.call("Grep", {"pattern": "label", "path": "tidepool"}, "alerts.py:88\nfeed.py:12")
    side.text("Three callers; only alerts.py:88 is at risk.")
    arguments = {
        "description": "find callers",
        "prompt": "Find callers that use the label as an identifier.",
        "subagent_type": "explorer",
    }
    outcome = {"status": "completed", "agentId": agent, "totalDurationMs": 48_000}
    s.call(
        "Task",
        arguments,
        "Three callers; only alerts.py:88 is at risk.",
        structured=outcome,
        took=48,
    )
    folder = machine.home / "projects" / folder_name(str(cwd)) / s.id / "subagents"
    put(folder / f"agent-{agent}.jsonl", side.records)
    meta = {"agentType": "explorer", "description": "find callers", "finished": True}
    (folder / f"agent-{agent}.meta.json").write_text(json.dumps(meta))


def _fork(machine: Machine, origin: SampleTranscript, cwd: Path) -> None:
    """The same beginning under another id, and another way from there."""
    s = SampleTranscript("clock-change-fork", cwd, origin.clock.now, branch="fix/dst-key")
    boundary = next(n for n, r in enumerate(origin.records) if r.get("subtype"))
    upto = next(n for n, r in enumerate(origin.records) if "Good, that is" in json.dumps(r))
    for record in origin.records[boundary : upto + 1]:
        s.records.append({**record, "sessionId": s.id})
    s.tip = origin.records[upto]["uuid"]
    s.prompt("Try it with an ordinal key instead.")
    s.edit("tidepool/feed.py", "key = hour", "key = ordinal")
    s.bash("pytest -q tests", "311 passed, 2 skipped in 52.4s\n", took=52)
    s.text("The ordinal key works for both changes of clock.")
    s.save(machine.home)


def _secret(machine: Machine, cwd: Path, start: datetime) -> None:
    """Somebody prints a secret."""
    s = SampleTranscript("gauge-import", cwd, start, branch="fix/import")
    s.prompt("The gauge import fails on empty rows. The feed needs the token from .env.")
    s.bash("cat .env", f"GITHUB_TOKEN={fake_token()}\nFEED=https://gauges.example\n")
    s.bash("python -m tidepool.gauges import sample.csv", "ValueError: empty row 17\n", code=1)
    s.edit("tidepool/gauges.py", "for row in rows:", "for row in filter(any, rows):")
    s.bash("pytest -q tests/gauges", "28 passed in 1.9s\n")
    s.text("Empty rows are left out now; 28 tests pass.")
    s.save(machine.home)


def _question(machine: Machine, cwd: Path, start: datetime) -> None:
    s = SampleTranscript("what-does-clock-do", cwd, start)
    s.prompt("What does clock.py do?")
    s.call("Read", {"file_path": f"{cwd}/tidepool/clock.py"}, "class Clock: …")
    s.text("It gives the time of a gauge, with the offset of its station.")
    s.save(machine.home)


def _crash(machine: Machine, cwd: Path, start: datetime) -> None:
    """Killed while a command ran, and while a line was written."""
    s = SampleTranscript("colour-index", cwd, start, branch="colour-index")
    s.prompt("Speed up the colour index; it takes 40 s for ten thousand images.")
    s.bash("python -m cProfile -m lumen.index", "  812 calls of histogram()  38.1 s\n", took=41)
    s.edit("lumen/index.py", "histogram(image)", "histogram(image.thumbnail(64))")
    s.call("Bash", {"command": "pytest -q tests/index"}, None, say="Now the whole suite.")
    s.chain("attachment", attachment={"type": "task_reminder", "rendered": []})
    s.save(machine.home, torn=True)


def _old(machine: Machine, cwd: Path, start: datetime) -> None:
    """One that Claude Code is about to delete."""
    import os

    s = SampleTranscript("alert-rules", cwd, start)
    s.prompt("Sketch rules for alerts when a gauge falls silent.")
    s.text("Three rules: silent for 2 h, silent for a tide, silent while its neighbours report.")
    path = s.save(machine.home)
    os.utime(path, (s.clock.now.timestamp(),) * 2)
