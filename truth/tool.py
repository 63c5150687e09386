"""What a tool is to the suite: how to start it in a home of its own, and how to read its answers.

A runner asks a tool only what it is made to tell; None means that it does not say. It must not
make a tool look worse than it is: every switch that helps the tool is thrown.
"""

from __future__ import annotations

import html
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

FIRST = ("claude", "codex", "grok")
FURTHER = (
    "aider",
    "cline",
    "continue",
    "copilot",
    "droid",
    "gemini",
    "goose",
    "hermes",
    "kilo",
    "kimi",
    "opencode",
    "pi",
    "qwen",
    "vibe",
)
AGENTS = (".claude", ".codex", ".grok")
"""Folders of the agents below a home; what a tool writes there is the tool's own."""


class Total:
    """Tokens as a tool tells them: output, and all of them together."""

    def __init__(self, output: int, total: int) -> None:
        self.output = output
        self.total = total

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Total) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return f"{self.total:,} ({self.output:,} out)"


class Tool:
    """A tool. What a runner does not override, its tool does not say."""

    name = ""
    version = ""
    reads: Sequence[str] = (*FIRST, *FURTHER)
    """Agents whose logs it reads."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._told: dict[tuple[str | Path, ...], Any] = {}

    @classmethod
    def missing(cls) -> str | None:
        """Why it cannot be run here; None when it can."""
        return None

    def start(self) -> None:
        """Do what has to be done once."""

    def sync(self) -> None:
        """Read what lies there now."""

    def stop(self) -> None:
        """End what was started."""

    def sessions(self) -> int | None:
        """How many sessions it lists."""
        return None

    def tokens(self) -> Total | None:
        """What was used in all."""
        return None

    def cost(self) -> float | None:
        """What that cost, in dollars."""
        return None

    def finds(self, word: str) -> bool | None:
        """Whether it finds a word, or shows it."""
        del word
        return None

    def dead(self, word: str) -> bool | None:
        """Whether it tells that a word stands on a branch that was left."""
        del word
        return None

    def written(self) -> Iterator[Path]:
        """Every file it has written."""
        yield from sorted(path for path in self.home.rglob("*") if path.is_file())

    # -- for runners --------------------------------------------------------------------

    def run(self, *command: str | Path, **env: str) -> str:
        """Run a command in the home of the case; gives what it printed."""
        done = subprocess.run(
            [str(part) for part in command],
            cwd=self.home,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), "NO_COLOR": "1", **env},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=300,
        )
        if done.returncode not in (0, 3):
            raise RuntimeError(f"{self.name} ended with {done.returncode}: {done.stderr[-300:]}")
        return done.stdout

    def asked(self, *command: str | Path, **env: str) -> Any:
        """Run a command that prints JSON, once: nothing changes between two questions."""
        if command not in self._told:
            self._told[command] = json.loads(self.run(*command, **env))
        return self._told[command]


def shown_in(paths: Iterator[Path], word: str) -> bool:
    """Whether a word stands in what a browser would show of some pages."""
    return any(word in html.unescape(path.read_text(errors="replace")) for path in paths)
