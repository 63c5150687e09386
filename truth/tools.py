"""The tools that are compared, and their versions.

`scripts/truth-peers` installs them into `.venv/truth-peers` and takes the versions from here.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from thence import __version__
from truth.tool import FURTHER_AGENTS, MAIN_AGENTS, TokenCount, Tool, is_shown

PEERS_FOLDER = Path(__file__).resolve().parent.parent / ".venv" / "truth-peers"
PYPI_VERSIONS = {
    "agentsview": "0.46.1",
    "claude-code-log": "1.7.0",
    "claude-code-transcripts": "0.6",
}
NPM_VERSIONS = {"ccusage": "20.0.11"}


class _Peer(Tool):
    """A tool that `scripts/truth-peers` installs."""

    program = Path()

    @classmethod
    def missing(cls) -> str | None:
        """Return why it is not installed, or None."""
        return None if cls.program.exists() else "not installed by scripts/truth-peers"


class Thence(Tool):
    """Our own command, as users run it."""

    name = "thence"
    version = __version__

    _entry = (sys.executable, "-c", "from thence.cli import main; main()")

    def _ask(self, *arguments: str) -> object:
        return self.query_json(*self._entry, *arguments)

    def sync(self) -> None:
        """Run `thence sweep`."""
        self.run(*self._entry, "sweep", "--json")

    def sessions(self) -> int | None:
        """Return the number of rows of `thence ls`."""
        rows = self._ask("ls", "-n", "500", "--json")
        return len(rows) if isinstance(rows, list) else None

    def _total(self) -> dict[str, object]:
        report = self._ask("cost", "--json")
        total = report["total"] if isinstance(report, dict) else {}
        return total if isinstance(total, dict) else {}

    def tokens(self) -> TokenCount | None:
        """Return the total of `thence cost`."""
        tokens = self._total()["tokens"]
        return (
            TokenCount(tokens["output"], sum(tokens.values())) if isinstance(tokens, dict) else None
        )

    def cost(self) -> float | None:
        """Return the total of `thence cost`."""
        dollars = self._total()["usd"]
        return float(dollars) if isinstance(dollars, float | int) else None

    def _hits(self, word: str) -> list[dict[str, object]]:
        report = self._ask("search", word, "--json")
        hits = report["hits"] if isinstance(report, dict) else []
        return hits if isinstance(hits, list) else []

    def finds(self, word: str) -> bool | None:
        """Return whether `thence search` has hits."""
        return bool(self._hits(word))

    def is_discarded(self, word: str) -> bool | None:
        """Return whether all hits are discarded; records about the session itself do not count."""
        states = {hit["state"] for hit in self._hits(word)} - {"internal"}
        return bool(states) and states <= {"dead", "rolled_back"}


class Agentsview(_Peer):
    """agentsview, through its daemon."""

    name = "agentsview"
    reads = (
        *MAIN_AGENTS,
        *(name for name in FURTHER_AGENTS if name not in ("continue", "droid", "vibe")),
    )
    """Its sync fails on the logs of Vibe 3, and it does not know the folders of the other two."""
    version = PYPI_VERSIONS["agentsview"]
    program = PEERS_FOLDER / "bin" / "agentsview"
    _all = ("--include-one-shot", "--include-automated", "--include-children", "--json")

    def _ask(self, *arguments: str) -> dict[str, object]:
        response = self.query_json(self.program, *arguments, **self._environment())
        return response if isinstance(response, dict) else {}

    def _run(self, *arguments: str) -> None:
        self.run(self.program, *arguments, **self._environment())

    def _environment(self) -> dict[str, str]:
        """Return the paths of its store and of aider's chats, which have no default folder."""
        paths = {"AGENTSVIEW_DATA_DIR": self.home / "view", "AIDER_DIR": self.home / ".aider"}
        return {name: str(path) for name, path in paths.items()}

    def start(self) -> None:
        """Start its daemon, which listens on loopback."""
        self._run("daemon", "start")

    def stop(self) -> None:
        """Stop the daemon."""
        self._run("daemon", "stop")

    def sync(self) -> None:
        """Run `agentsview sync`."""
        self._run("sync")

    def sessions(self) -> int | None:
        """Return the number of rows of `session list`, without subagents."""
        rows = self._ask("session", "list", *self._all)["sessions"]
        if not isinstance(rows, list):
            return None
        return len([row for row in rows if not _is_subagent(row)])

    def _totals(self) -> dict[str, Any]:
        totals = self._ask("usage", "daily", "--all", "--json", "--offline")["totals"]
        return totals if isinstance(totals, dict) else {}

    def tokens(self) -> TokenCount | None:
        """Return the total of `usage daily`."""
        totals = self._totals()
        kinds = ("inputTokens", "outputTokens", "cacheCreationTokens", "cacheReadTokens")
        return TokenCount(int(totals["outputTokens"]), int(sum(totals[kind] for kind in kinds)))

    def cost(self) -> float | None:
        """Return the total of `usage daily`."""
        return float(self._totals()["totalCost"]["microdollars"]) / 1e6

    def finds(self, word: str) -> bool | None:
        """Return whether `session search` has matches, in subagents as well."""
        return bool(self._ask("session", "search", word, *self._all)["matches"])


def _is_subagent(row: dict[str, Any]) -> bool:
    """Return whether a session is a subagent's; Codex sessions of scripts have no parent."""
    return row.get("relationship_type") == "subagent" and bool(row.get("parent_session_id"))


class Ccusage(_Peer):
    """ccusage: tokens and cost, nothing else. It has no store."""

    name = "ccusage"
    version = NPM_VERSIONS["ccusage"]
    program = PEERS_FOLDER / "node_modules" / ".bin" / "ccusage"
    reads = (
        "claude",
        "codex",
        "droid",
        "gemini",
        "goose",
        "hermes",
        "kilo",
        "opencode",
        "pi",
        "qwen",
    )
    """For Copilot it reads only exported telemetry, for Kimi only the client before Kimi Code."""

    def _ask(self) -> dict[str, object]:
        report = self.query_json(self.program, "session", "--json", "--offline")
        return report if isinstance(report, dict) else {}

    def sessions(self) -> int | None:
        """Return the number of rows of `ccusage session`."""
        rows = self._ask()["session"]
        return len(rows) if isinstance(rows, list) else None

    def tokens(self) -> TokenCount | None:
        """Return its total."""
        totals = self._ask()["totals"]
        return (
            TokenCount(totals["outputTokens"], totals["totalTokens"])
            if isinstance(totals, dict)
            else None
        )

    def cost(self) -> float | None:
        """Return its total."""
        totals = self._ask()["totals"]
        return float(totals["totalCost"]) if isinstance(totals, dict) else None


class _PageTool(_Peer):
    """A tool that writes HTML pages of sessions."""

    reads = ("claude",)

    def pages(self) -> Iterator[Path]:
        """Yield all pages."""
        yield from self.home.rglob("*.html")

    def finds(self, word: str) -> bool | None:
        """Return whether a page shows a word."""
        return is_shown(self.pages(), word)


class ClaudeCodeLog(_PageTool):
    """claude-code-log: pages of all projects, with tokens."""

    name = "claude-code-log"
    version = PYPI_VERSIONS["claude-code-log"]
    program = PEERS_FOLDER / "bin" / "claude-code-log"

    def sync(self) -> None:
        """Write the pages."""
        self.run(self.program, "--all-projects")

    def sessions(self) -> int | None:
        """Return the number of session pages."""
        return len(list(self.home.rglob("session-*.html")))

    def tokens(self) -> TokenCount | None:
        """Return the total at the top of the index page, which leaves out kinds without tokens."""
        page = html.unescape(next(self.home.rglob("projects/index.html")).read_text())
        match = re.search(r"Input: \d+(?: \| [A-Z][A-Za-z ]+: \d+)*", page)
        if match is None:
            return None
        kinds = dict(re.findall(r"([A-Z][A-Za-z ]+): (\d+)", match[0]))
        return TokenCount(int(kinds.get("Output", 0)), sum(map(int, kinds.values())))


class ClaudeCodeTranscripts(_PageTool):
    """claude-code-transcripts: pages of all sessions."""

    name = "claude-code-transcripts"
    version = PYPI_VERSIONS["claude-code-transcripts"]
    program = PEERS_FOLDER / "bin" / "claude-code-transcripts"

    def sync(self) -> None:
        """Write the pages, also of subagents."""
        self.run(self.program, "all", "-q", "-o", self.home / "pages", "--include-agents")

    def sessions(self) -> int | None:
        """Return the number of session folders, without those of subagents."""
        folders = {path.parent.name for path in (self.home / "pages").rglob("page-*.html")}
        return len([name for name in folders if not name.startswith("agent-")])


TOOLS: tuple[type[Tool], ...] = (
    Thence,
    Agentsview,
    Ccusage,
    ClaudeCodeLog,
    ClaudeCodeTranscripts,
)
