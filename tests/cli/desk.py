"""A made-up machine for the commands: homes of agents, our own home, and one way to run things.

Everything happens in this process: the environment is the machine's, the terminal has as many
columns as is said, and what a command prints comes back with its exit code.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.agents import rollouts
from tests.agents.transcripts import Script, usage, write
from thence import cli

WINDOWS = "7f3a91c2-0000-4000-8000-000000000001"
ALERTS = "a41e90bd-0000-4000-8000-000000000002"
DUMP = "01a00000-0000-7000-8000-00000000000a"

TITLE = "Hourly windows lose an hour when the clock changes"


class Ran(NamedTuple):
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """What was printed, line by line."""
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        """What was printed, as the value it is."""
        return json.loads(self.out)


class Terminal(io.TextIOWrapper):
    """A stream that a test can read, and that may say it is a terminal."""

    def __init__(self, *, tty: bool = False, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding, newline="\n")
        self._tty = tty

    def isatty(self) -> bool:
        """What the test wants to be believed."""
        return self._tty

    @property
    def text(self) -> str:
        """All that was written."""
        self.flush()
        raw = self.buffer
        assert isinstance(raw, io.BytesIO)
        return raw.getvalue().decode(self.encoding)


def in_process(
    *arguments: str | Path,
    env: Mapping[str, str],
    tty: bool = False,
    encoding: str = "utf-8",
) -> Ran:
    """Run one command as `thence …` would with this environment, without a process of its own."""
    out, err = Terminal(tty=tty, encoding=encoding), Terminal(tty=tty)
    code = 0
    with pytest.MonkeyPatch.context() as patch, Path(os.devnull).open(encoding="utf-8") as nothing:
        for name in {*os.environ} - {*env}:
            patch.delenv(name)
        for name, value in env.items():
            patch.setenv(name, value)
        time.tzset()
        for name, stream in {"stdin": nothing, "stdout": out, "stderr": err}.items():
            patch.setattr(sys, name, stream)
        patch.setattr(sys, "argv", ["thence", *map(str, arguments)])
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    time.tzset()
    return Ran(code, out.text, err.text)


class Desk:
    """One machine."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.user = folder / "user"
        self.home = folder / "user" / ".thence"
        self.claude = self.user / ".claude"
        self.codex = self.user / ".codex"
        self.user.mkdir(parents=True)
        self._patch = patch
        for name in (*os.environ,):
            if name.startswith(("THENCE_", "CLAUDE", "CODEX", "GROK", "LC_", "NO_COLOR", "LANG")):
                patch.delenv(name)
        patch.setenv("HOME", str(self.user))
        patch.setenv("TZ", "UTC")

    def run(
        self, *arguments: str, columns: int = 80, tty: bool = False, encoding: str = "utf-8"
    ) -> Ran:
        """Run one command as `thence …` would."""
        out, err = Terminal(tty=tty, encoding=encoding), Terminal(tty=tty)
        with self._patch.context() as patch:
            patch.setenv("COLUMNS", str(columns))
            patch.setattr(sys, "argv", ["thence", *arguments])
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = 0
            try:
                cli.main()
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 1
        return Ran(code, out.text, err.text)

    def sweep(self) -> Ran:
        """Keep everything; it must go well."""
        ran = self.run("sweep")

        assert (0, "") == (ran.code, ran.err), ran
        return ran

    # -- sessions -----------------------------------------------------------------------

    def write_claude(self, *scripts: Script, ago: timedelta = timedelta(hours=3)) -> Path:
        """Write sessions of Claude Code that ended so long ago."""
        folder = write(self.claude, *scripts)
        for script in scripts:
            _shift(script, ago)
            path = folder / f"{script.session}.jsonl"
            path.write_bytes(script.data)
            then = (datetime.now(UTC) - ago).timestamp()
            os.utime(path, (then, then))
        return folder

    def write_codex(self, thread: str = DUMP, ago: timedelta = timedelta(days=1, hours=2)) -> Path:
        """Write a session of Codex: it asks for something and gets it."""
        folder = self.codex / "sessions" / "2026" / "01" / "01"
        folder.mkdir(parents=True, exist_ok=True)
        then = datetime.now(UTC) - ago
        lines = [
            rollouts.meta(thread, cwd="/home/dev/harbour-books", git={"branch": "perf/dump"}),
            rollouts.user("Speed up the yearly dump"),
            rollouts.call("shell", "k1", command=["bash", "-lc", "python dump.py"]),
            rollouts.output("k1", "done in 9 s"),
            rollouts.assistant("The dump now takes nine seconds."),
        ]
        for at, line in enumerate(lines):
            line["timestamp"] = _text(then - timedelta(seconds=10 * (len(lines) - at)))
        path = folder / f"rollout-2026-01-01T00-00-00-{thread}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return path


def windows() -> Script:
    """A session with everything: an edit, red and green tests, a branch left behind, a todo."""
    script = Script(WINDOWS, "w", cwd="/home/dev/tidepool", gitBranch="fix/dst-gap")
    script.note("custom-title", customTitle=TITLE)
    script.user("The hourly tide table loses 02:00 to 03:00 on 29 March. Fix it.")
    _call(script, "c1", "Read", file_path="/home/dev/tidepool/windows.py")
    script.result("c1", "def windows(): pass")
    base = _say(script, "Two places walk the hours.", 4000)
    script.user("try it with fold=1 then")
    _say(script, "That patches the gap afterwards, hidden under a lantern.", 9000)
    script.user("Cut the windows in UTC instead.", parentUuid=base)
    _call(
        script,
        "c2",
        "Edit",
        file_path="/home/dev/tidepool/windows.py",
        old_string="pass",
        new_string="return utc()",
    )
    script.result("c2", "The file has been updated.")
    _call(script, "c3", "Bash", command="pytest tests/windows")
    script.result("c3", "2 failed, 41 passed in 3.10s", wrong=True)
    _call(
        script, "c4", "TodoWrite", todos=[_todo("Fix alerts.py too"), _todo("Lisbon", "completed")]
    )
    script.result("c4", "ok")
    _say(script, "Windows are cut in UTC. The lighthouse keeper agrees.", 6000)
    return script


def alerts(session: str = ALERTS, prompt: str = "Alerts fire twice at the clock change") -> Script:
    """A short session that went well."""
    script = Script(session, session[:4], cwd="/home/dev/lumen", gitBranch="main")
    script.user(prompt)
    _say(script, "The dedupe key held the local hour. Fixed.", 1000)
    return script


def _todo(text: str, status: str = "pending") -> dict[str, str]:
    return {"content": text, "status": status, "activeForm": text}


def _call(script: Script, call: str, name: str, **arguments: Any) -> None:
    block = {"type": "tool_use", "id": call, "name": name, "input": arguments}
    script.reply([block], stop="tool_use", usage=usage(500, input_tokens=2000))


def _say(script: Script, text: str, tokens: int) -> str:
    """An answer with a bill that has a price."""
    return script.reply(
        [{"type": "text", "text": text}],
        stop="end_turn",
        usage=usage(tokens, input_tokens=1000),
        model="claude-sonnet-4-5",
    )


def _shift(script: Script, ago: timedelta) -> None:
    """Move a session in time: its last record was written so long ago."""
    then = datetime.now(UTC) - ago
    linked = [record for record in script.records if "timestamp" in record]
    for back, record in enumerate(reversed(linked)):
        record["timestamp"] = _text(then - timedelta(seconds=2 * back))


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
