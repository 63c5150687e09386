"""The real clients: how each is set up, asked, and what it leaves behind."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e import cell
from tests.e2e.models import PORT

ADDRESS = f"http://127.0.0.1:{PORT}"
CLIENTS = cell.ROOT / ".venv" / "clients"
PROMPT = "What does calc.py do? Look before you answer."
ANSWER = "It subtracts, though its name says that it adds."
LOOK = "cat calc.py"

ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "SHELL": "/bin/sh",
    "TERM": "xterm",
    "TZ": "UTC",
    "USER": "dev",
}

CODEX = f"""model = "gpt-5.5"
model_provider = "made-up"
check_for_update_on_startup = false

[model_providers.made-up]
name = "made-up"
base_url = "{ADDRESS}/v1"
wire_api = "responses"
env_key = "MADE_UP_KEY"
request_max_retries = 0
stream_max_retries = 0

[projects."{cell.HOME}/project"]
trust_level = "trusted"

[notice.model_migrations]
"gpt-5.5" = "gpt-6-sol"
"""

GROK = f"""[cli]
auto_update = false

[models]
default = "made-up"

[model.made-up]
model = "made-up"
name = "made-up"
base_url = "{ADDRESS}/v1"
api_key = "none"
api_backend = "responses"
context_window = 200000

[telemetry]
enabled = false
"""


class Agent(NamedTuple):
    """One client and one way to be called by it."""

    name: str
    way: str
    """What `thence hook install` is told."""
    program: Sequence[str]
    env: dict[str, str]
    tool: tuple[str, dict[str, Any]]
    folder: str
    """Where it lives in a home."""
    elsewhere: str
    """The variable that has it live elsewhere."""
    marks: tuple[str, ...]
    """How records of its log begin that hold what was said; others keep its own books."""
    settings: str = ""

    def settle(self, home: Path) -> None:
        """Set the client up in a home with a small project."""
        project = home / "project"
        project.mkdir(parents=True)
        (project / "calc.py").write_text("def add(a, b):\n    return a - b\n")
        (home / ".thence").mkdir(mode=0o700)
        (home / self.folder).mkdir()
        if self.settings:
            (home / self.folder / "config.toml").write_text(self.settings)

    def ask(self) -> list[str]:
        """Return the command that runs one session."""
        return [str(CLIENTS / "bin" / self.name), *self.program]

    def install(self) -> list[str]:
        """Return the command that puts our hook in."""
        ways = ["--via", self.way] if self.name == "codex" else []
        return [*thence("hook", "install", self.name, "--yes"), *ways]

    def log(self, home: Path) -> list[str]:
        """Return what was said, as the log in a home holds it, without ids, times and measures."""
        names = sorted((home / self.folder).rglob("*.jsonl"))
        lines = [line for path in names for line in path.read_text().splitlines()]
        return [plain(line) for line in lines if any(mark in line for mark in self.marks)]


def thence(*arguments: str) -> list[str]:
    """Return a command of ours."""
    return [str(cell.ROOT / ".venv" / "bin" / "thence"), *arguments]


AGENTS = {
    "claude": Agent(
        "claude",
        "hooks",
        ("-p", PROMPT, "--allowedTools", "Bash"),
        {
            "ANTHROPIC_BASE_URL": ADDRESS,
            "ANTHROPIC_API_KEY": "none",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        ("Bash", {"command": LOOK, "description": "Look"}),
        ".claude",
        "CLAUDE_CONFIG_DIR",
        ('"type":"user"', '"type":"assistant"'),
    ),
    "grok": Agent(
        "grok",
        "hooks",
        ("-p", PROMPT, "--always-approve", "--system-prompt-override", "You are a coding agent."),
        {
            "XAI_API_KEY": "none",
            "GROK_DISABLE_AUTOUPDATER": "1",
            "GROK_TELEMETRY_ENABLED": "false",
        },
        ("run_terminal_command", {"command": LOOK, "description": "Look"}),
        ".grok",
        "GROK_HOME",
        ('"type":"user"', '"type":"assistant"', '"type":"tool_result"', '"agent_message_chunk"'),
        GROK,
    ),
}
_CODEX = Agent(
    "codex",
    "notify",
    (
        *("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
        *("--dangerously-bypass-hook-trust", PROMPT),
    ),
    {"MADE_UP_KEY": "none"},
    ("exec_command", {"cmd": LOOK}),
    ".codex",
    "CODEX_HOME",
    ('"response_item"',),
    CODEX,
)
AGENTS["codex notify"] = _CODEX
AGENTS["codex hooks"] = _CODEX._replace(way="hooks")


# -- what must not differ -------------------------------------------------------------------

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.-]+(Z|\+00:00)?")
_CHUNK = re.compile(r"Chunk ID: [0-9a-f]+")
_NUMBER = re.compile(r"(?<!\w)\d+(\.\d+)?")


def plain(text: str) -> str:
    """Leave out what differs between any two runs: ids, times, how long things took."""
    for pattern, word in ((_ID, "ID"), (_TIME, "TIME"), (_CHUNK, "CHUNK"), (_NUMBER, "N")):
        text = pattern.sub(word, text)
    return text


def texts_of(asked: list[dict[str, Any]]) -> list[str]:
    """Return every text that the model was told, in all its requests."""
    return [plain(text) for body in asked for text in _texts(body)]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name in ("system", "instructions", "messages", "input", "content", "text", "output"):
            yield from _texts(value.get(name))
        if "arguments" in value or "name" in value:
            yield json.dumps([value.get("name"), value.get("arguments"), value.get("input")])
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
