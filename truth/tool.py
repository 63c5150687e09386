"""The interface of a tool: how to start it in a home of its own, and how to read its answers.

A tool is only asked for what it is made to report; None means that it does not report it. No tool
may look worse than it is: every option that helps it is set.
"""

from __future__ import annotations

import html
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

MAIN_AGENTS = ("claude", "codex", "grok")
FURTHER_AGENTS = (
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
AGENT_FOLDERS = (".claude", ".codex", ".grok")
"""Folders of the main agents below a home."""


class TokenCount:
    """Tokens as a tool reports them: output, and the total."""

    def __init__(self, output: int, total: int) -> None:
        self.output = output
        self.total = total

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenCount) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return f"{self.total:,} ({self.output:,} out)"


class Tool:
    """A tool. It does not report what a subclass does not override."""

    name = ""
    version = ""
    reads: Sequence[str] = (*MAIN_AGENTS, *FURTHER_AGENTS)
    """Agents whose logs it reads."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._json_cache: dict[tuple[str | Path, ...], Any] = {}

    @classmethod
    def missing(cls) -> str | None:
        """Return why it cannot run here, or None."""
        return None

    def start(self) -> None:
        """Start what runs in the background."""

    def sync(self) -> None:
        """Read the files as they are now."""

    def stop(self) -> None:
        """Stop what was started."""

    def sessions(self) -> int | None:
        """Return how many sessions it lists."""
        return None

    def tokens(self) -> TokenCount | None:
        """Return the tokens of all sessions."""
        return None

    def cost(self) -> float | None:
        """Return the cost of all sessions in dollars."""
        return None

    def finds(self, word: str) -> bool | None:
        """Return whether it finds a word, or shows it."""
        del word
        return None

    def is_discarded(self, word: str) -> bool | None:
        """Return whether it marks a word as part of a discarded branch."""
        del word
        return None

    def written_files(self) -> Iterator[Path]:
        """Yield every file below its home."""
        yield from sorted(path for path in self.home.rglob("*") if path.is_file())

    # -- for subclasses -----------------------------------------------------------------

    def run(self, *command: str | Path, **env: str) -> str:
        """Run a command in the home of the case, and return what it printed."""
        process = subprocess.run(
            [str(part) for part in command],
            cwd=self.home,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), "NO_COLOR": "1", **env},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=300,
        )
        if process.returncode not in (0, 3):
            raise RuntimeError(
                f"{self.name} ended with {process.returncode}: {process.stderr[-300:]}"
            )
        return process.stdout

    def query_json(self, *command: str | Path, **env: str) -> Any:
        """Return the JSON that a command prints; it runs once, since nothing changes meanwhile."""
        if command not in self._json_cache:
            self._json_cache[command] = json.loads(self.run(*command, **env))
        return self._json_cache[command]


def is_shown(paths: Iterator[Path], word: str) -> bool:
    """Return whether a browser would show a word on one of some pages."""
    return any(word in html.unescape(path.read_text(errors="replace")) for path in paths)
