"""The tools that are compared, each with the version it is compared in.

`scripts/truth-peers` installs them into `.venv/truth-peers`; this table is where versions stand.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from thence import __version__
from truth.tool import FIRST, FURTHER, Tool, Total, shown_in

PEERS = Path(__file__).resolve().parent.parent / ".venv" / "truth-peers"
PYPI = {"agentsview": "0.46.1", "claude-code-log": "1.7.0", "claude-code-transcripts": "0.6"}
NPM = {"ccusage": "20.0.11"}


class _Peer(Tool):
    """A tool that `scripts/truth-peers` installs."""

    program = Path()

    @classmethod
    def missing(cls) -> str | None:
        """Whether it was installed."""
        return None if cls.program.exists() else "scripts/truth-peers could not install it"


class Thence(Tool):
    """Our own command, as a user starts it."""

    name = "thence"
    version = __version__

    _entry = (sys.executable, "-c", "from thence.cli import main; main()")

    def _ask(self, *given: str) -> object:
        return self.asked(*self._entry, *given)

    def sync(self) -> None:
        """Sweep."""
        self.run(*self._entry, "sweep", "--json")

    def sessions(self) -> int | None:
        """As `ls` has it."""
        told = self._ask("ls", "-n", "500", "--json")
        return len(told) if isinstance(told, list) else None

    def _spent(self) -> dict[str, object]:
        told = self._ask("cost", "--json")
        total = told["total"] if isinstance(told, dict) else {}
        return total if isinstance(total, dict) else {}

    def tokens(self) -> Total | None:
        """As `cost` has it."""
        told = self._spent()["tokens"]
        return Total(told["output"], sum(told.values())) if isinstance(told, dict) else None

    def cost(self) -> float | None:
        """As `cost` has it."""
        told = self._spent()["usd"]
        return float(told) if isinstance(told, float | int) else None

    def _hits(self, word: str) -> list[dict[str, object]]:
        told = self._ask("search", word, "--json")
        hits = told["hits"] if isinstance(told, dict) else []
        return hits if isinstance(hits, list) else []

    def finds(self, word: str) -> bool | None:
        """As `search` has it."""
        return bool(self._hits(word))

    def dead(self, word: str) -> bool | None:
        """Every hit names its state; the client's own book-keeping is neither dead nor alive."""
        states = {hit["state"] for hit in self._hits(word)} - {"internal"}
        return bool(states) and states <= {"dead", "rolled_back"}


class Agentsview(_Peer):
    """agentsview, asked through its daemon."""

    name = "agentsview"
    reads = (*FIRST, *(name for name in FURTHER if name not in ("continue", "droid", "vibe")))
    """Its sync fails on the logs of Vibe 3, and it knows no folder of the other two."""
    version = PYPI["agentsview"]
    program = PEERS / "bin" / "agentsview"
    _all = ("--include-one-shot", "--include-automated", "--include-children", "--json")

    def _ask(self, *given: str) -> dict[str, object]:
        told = self.asked(self.program, *given, **self._places())
        return told if isinstance(told, dict) else {}

    def _run(self, *given: str) -> None:
        self.run(self.program, *given, **self._places())

    def _places(self) -> dict[str, str]:
        """Return where its store lies, and the chats of aider, which have no usual folder."""
        places = {"AGENTSVIEW_DATA_DIR": self.home / "view", "AIDER_DIR": self.home / ".aider"}
        return {name: str(path) for name, path in places.items()}

    def start(self) -> None:
        """Start its daemon, which listens on loopback."""
        self._run("daemon", "start")

    def stop(self) -> None:
        """Stop the daemon."""
        self._run("daemon", "stop")

    def sync(self) -> None:
        """Read everything."""
        self._run("sync")

    def sessions(self) -> int | None:
        """As `session list` has it, every kind of them but those of subagents."""
        told = self._ask("session", "list", *self._all)["sessions"]
        if not isinstance(told, list):
            return None
        return len([one for one in told if not _is_subagents(one)])

    def _totals(self) -> dict[str, Any]:
        told = self._ask("usage", "daily", "--all", "--json", "--offline")["totals"]
        return told if isinstance(told, dict) else {}

    def tokens(self) -> Total | None:
        """As `usage daily` has it."""
        told = self._totals()
        kinds = ("inputTokens", "outputTokens", "cacheCreationTokens", "cacheReadTokens")
        return Total(int(told["outputTokens"]), int(sum(told[kind] for kind in kinds)))

    def cost(self) -> float | None:
        """As `usage daily` has it."""
        return float(self._totals()["totalCost"]["microdollars"]) / 1e6

    def finds(self, word: str) -> bool | None:
        """As `session search` has it, children as well."""
        return bool(self._ask("session", "search", word, *self._all)["matches"])


def _is_subagents(told: dict[str, Any]) -> bool:
    """Whether a session is a subagent's; one that Codex ran for a script is called so too."""
    return told.get("relationship_type") == "subagent" and bool(told.get("parent_session_id"))


class Ccusage(_Peer):
    """ccusage: tokens and cost, and nothing else. It keeps no store."""

    name = "ccusage"
    version = NPM["ccusage"]
    program = PEERS / "node_modules" / ".bin" / "ccusage"
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
    """Of Copilot it reads what an exporter wrote, of Kimi the client before Kimi Code."""

    def _ask(self) -> dict[str, object]:
        told = self.asked(self.program, "session", "--json", "--offline")
        return told if isinstance(told, dict) else {}

    def sessions(self) -> int | None:
        """As `session` has it."""
        told = self._ask()["session"]
        return len(told) if isinstance(told, list) else None

    def tokens(self) -> Total | None:
        """As its totals have it."""
        told = self._ask()["totals"]
        return Total(told["outputTokens"], told["totalTokens"]) if isinstance(told, dict) else None

    def cost(self) -> float | None:
        """As its totals have it."""
        told = self._ask()["totals"]
        return float(told["totalCost"]) if isinstance(told, dict) else None


class _Pages(_Peer):
    """A tool that makes pages of sessions."""

    reads = ("claude",)

    def pages(self) -> Iterator[Path]:
        """All pages it made of sessions."""
        yield from self.home.rglob("*.html")

    def finds(self, word: str) -> bool | None:
        """Whether a page shows it."""
        return shown_in(self.pages(), word)


class ClaudeCodeLog(_Pages):
    """claude-code-log: pages of all projects, tokens on them."""

    name = "claude-code-log"
    version = PYPI["claude-code-log"]
    program = PEERS / "bin" / "claude-code-log"

    def sync(self) -> None:
        """Make the pages."""
        self.run(self.program, "--all-projects")

    def sessions(self) -> int | None:
        """A page for each session."""
        return len(list(self.home.rglob("session-*.html")))

    def tokens(self) -> Total | None:
        """As the index of all projects has it, at its top; a kind of which there is none is not."""
        page = html.unescape(next(self.home.rglob("projects/index.html")).read_text())
        told = re.search(r"Input: \d+(?: \| [A-Z][A-Za-z ]+: \d+)*", page)
        if told is None:
            return None
        kinds = dict(re.findall(r"([A-Z][A-Za-z ]+): (\d+)", told[0]))
        return Total(int(kinds.get("Output", 0)), sum(map(int, kinds.values())))


class ClaudeCodeTranscripts(_Pages):
    """claude-code-transcripts: pages of all sessions."""

    name = "claude-code-transcripts"
    version = PYPI["claude-code-transcripts"]
    program = PEERS / "bin" / "claude-code-transcripts"

    def sync(self) -> None:
        """Make the pages, those of subagents as well."""
        self.run(self.program, "all", "-q", "-o", self.home / "pages", "--include-agents")

    def sessions(self) -> int | None:
        """A folder for each session; subagents are made into some, too, and not counted."""
        made = {path.parent.name for path in (self.home / "pages").rglob("page-*.html")}
        return len([name for name in made if not name.startswith("agent-")])


TOOLS: tuple[type[Tool], ...] = (
    Thence,
    Agentsview,
    Ccusage,
    ClaudeCodeLog,
    ClaudeCodeTranscripts,
)
