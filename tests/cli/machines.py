"""Machines of one person: a home each, with logs of its own or none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from thence.agents.profiles import folder_variables
from thence.cli import thence
from thence.errors import ThenceError


class Done(NamedTuple):
    """How a command ended."""

    stdout: str
    stderr: str
    returncode: int


class Machine:
    """A home in which commands run as on a machine of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "thence"
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, *words: str, stdin: str = "", here: Path | None = None) -> Done:
        """Run a command; an error is what the user would see of it."""
        unset: dict[str, str | None] = dict.fromkeys(folder_variables())
        env = {**unset, "HOME": str(self.folder), "THENCE_HOME": str(self.home), "COLUMNS": "100"}
        before = Path.cwd()
        os.chdir(here or self.folder)
        try:
            done = CliRunner().invoke(thence, words, env=env, input=stdin, standalone_mode=False)
        finally:
            os.chdir(before)
        if isinstance(done.exception, ThenceError):
            message = f"error: {done.exception.message}\nhint:  {done.exception.hint}\n"
            return Done(done.stdout, done.stderr + message, done.exception.exit_code)
        if done.exception is not None:
            raise done.exception
        return Done(done.stdout, done.stderr, done.return_value or 0)

    def json(self, *words: str) -> Any:
        """Run a command, and return the JSON it prints."""
        done = self.run(*words, "--json")
        assert 0 == done.returncode, done.stderr
        return json.loads(done.stdout)

    def sync(self) -> Any:
        """Send and receive."""
        return self.json("sync")

    def sessions(self) -> dict[str, Any]:
        """Return its sessions by their uids."""
        return {row["session_uid"]: row for row in self.json("ls", "-n", "500")}

    def begin(self, target: str, name: str) -> str:
        """Begin a sync; returns the phrase."""
        done = self.run("sync", "init", target, "--name", name)
        assert 0 == done.returncode, done.stderr
        return next(line.strip() for line in done.stdout.splitlines() if line.startswith("  "))

    def join(self, target: str, phrase: str, name: str) -> Done:
        """Join a sync."""
        return self.run("sync", "join", target, "--name", name, stdin=f"{phrase}\n")

    def write_claude(self, session: str, texts: list[str], cwd: str) -> Path:
        """Write a log of Claude Code: prompts and answers in turn, to be called again with more."""
        slug = "".join(c if c.isalnum() else "-" for c in cwd)
        path = self.folder / ".claude" / "projects" / slug / f"{session}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines, parent = [], None
        for at, text in enumerate(texts):
            uuid = f"{session[:8]}-0000-4000-8000-{at:012d}"
            role = "assistant" if at % 2 else "user"
            message: dict[str, Any] = {"role": role, "content": text}
            if role == "assistant":
                usage = {"input_tokens": 10, "output_tokens": 5}
                blocks = [{"type": "text", "text": text}]
                message |= {"id": f"msg_{session[:8]}_{at}", "model": "claude-sonnet-4-5"}
                message |= {"content": blocks, "usage": usage, "type": "message"}
            lines.append(
                {
                    "parentUuid": parent,
                    "isSidechain": False,
                    "userType": "external",
                    "cwd": cwd,
                    "sessionId": session,
                    "version": "2.0.0",
                    "gitBranch": "main",
                    "type": role,
                    "message": message,
                    "uuid": uuid,
                    "timestamp": f"2026-01-05T10:{at // 60:02d}:{at % 60:02d}.000Z",
                }
            )
            parent = uuid
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path
