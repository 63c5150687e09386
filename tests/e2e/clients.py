"""Further real clients: how each is set up for a model on loopback, asked, and asked again.

Programs come by `scripts/clients`; a client that could not be fetched skips its tests.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.e2e import cell
from tests.e2e.agents import ADDRESS, CLIENTS, ENV
from thence.agents.profiles import agents

PROJECT = f"{cell.HOME}/project"
MODEL = "made-up"
OPENAI = f"{ADDRESS}/v1"
EARLIER = {"query": "tide"}


class Client(msgspec.Struct, frozen=True):
    """One client: its program, its settings, and the words that ask it something."""

    name: str
    """The name of the agent."""
    program: str
    folder: str
    """Where it keeps its sessions, below a home."""
    start: Sequence[str]
    """The words after the program that begin a session; `{}` is the prompt."""
    goes_on: Sequence[str]
    """The words after the printed command that ask something without the client's interface."""
    shell: tuple[str, str]
    """The tool that runs a command, and its argument."""
    read: tuple[str, dict[str, Any]]
    """A call that other clients do not know by this name."""
    env: dict[str, str] = {}
    files: dict[str, str] = {}
    """Files of settings by their places below a home."""
    more: dict[str, Any] = {}
    """Further arguments of the shell tool."""
    wraps: bool = False
    """The tool takes a list of commands."""
    headless: Sequence[str] = ()
    """What stands in the place of the printed program where only another command of the client
    takes a prompt; none for a client whose printed command does."""
    logs_side_calls: bool = False
    """Its files have the calls that it makes for itself, for titles and notes."""
    logs: str = "**/*"
    """The files that are its sessions, below its folder; others may have the prompt earlier."""
    needs_terminal: bool = False
    """It takes no prompt with the id of a session but on a terminal."""
    not_resumed: str = ""
    """Why no session can be resumed here."""
    is_copied: bool = False
    """It resumes a copy, a session of its own."""
    hides_failures: bool = False
    """A command that fails and says nothing on stderr is a success in its log."""
    hides_cache: bool = False
    """Its log does not say how much of the input came from the cache."""
    prepare: Sequence[Sequence[str]] = ()
    """Commands that set it up."""
    search: Sequence[tuple[str, dict[str, Any]]] = ()
    """The calls by which a model asks our server for what `EARLIER` says."""

    @property
    def environment(self) -> dict[str, str]:
        """The variables that it runs with."""
        path = f"{CLIENTS}/bin:{CLIENTS}/node/bin:{ENV['PATH']}"
        return {**ENV, **self.env, "PATH": path}

    def settle(self, home: Path) -> None:
        """Set the client up in a home, beside a small project."""
        project = home / "project"
        if not project.exists():
            project.mkdir(parents=True)
            (project / "tide.py").write_text("def low(hours):\n    return max(hours)\n")
            (project / "NOTES.md").write_text("Tides of the harbour.\n")
        (home / ".thence").mkdir(mode=0o700, exist_ok=True)
        for name, body in self.files.items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body)

    def run(self, command: str) -> tuple[str, dict[str, Any]]:
        """Return the call that runs a command."""
        tool, argument = self.shell
        return tool, {argument: [command] if self.wraps else command, **self.more}

    def ask(self, prompt: str) -> list[str]:
        """Return the command that begins a session with a prompt."""
        return [str(CLIENTS / "bin" / self.program), *(w.replace("{}", prompt) for w in self.start)]

    def ask_again(self, argv: Sequence[str], prompt: str) -> list[str]:
        """Return the printed command, with a prompt."""
        words = argv[len(agents()[self.name].profile.start_command) or 1 :]
        program = [str(CLIENTS / "bin" / self.program), *self.headless]
        return [*program, *words, *(w.replace("{}", prompt) for w in self.goes_on)]


_OPENCODE = {
    "$schema": "https://opencode.ai/config.json",  # else the client adds it
    "autoupdate": False,
    "share": "disabled",
    "model": f"made/{MODEL}",
    "small_model": f"made/{MODEL}",
    "permission": "allow",
    "provider": {
        "made": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "made up",
            "options": {"baseURL": OPENAI, "apiKey": "none"},
            "models": {MODEL: {"name": MODEL, "limit": {"context": 128_000, "output": 8192}}},
        }
    },
}
_PI = {
    "providers": {
        "made": {
            "baseUrl": OPENAI,
            "apiKey": "none",
            "api": "openai-completions",
            "models": [
                {
                    "id": MODEL,
                    "name": MODEL,
                    "reasoning": False,
                    "input": ["text"],
                    "contextWindow": 128_000,
                    "maxTokens": 8192,
                    "cost": {"input": 1, "output": 2, "cacheRead": 0.1, "cacheWrite": 1},
                }
            ],
        }
    }
}
_GEMINI = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
}
_KIMI = f"""default_model = "made"
telemetry = false

[providers.made]
type = "openai"
base_url = "{OPENAI}"
api_key = "none"

[models.made]
provider = "made"
model = "{MODEL}"
max_context_size = 128000
capabilities = ["tool_use"]
"""
_DROID = {
    "customModels": [
        {
            "model": MODEL,
            "displayName": "Made",
            "baseUrl": OPENAI,
            "apiKey": "none",
            "provider": "generic-chat-completion-api",
            "maxOutputTokens": 8192,
        }
    ]
}
_HERMES = f"""model:
  provider: custom
  default: {MODEL}
  base_url: {OPENAI}
  api_key: none
  context_length: 128000
max_concurrent_sessions: 8
"""
_CONTINUE = f"""name: made up
version: 1.0.0
schema: v1
models:
  - name: {MODEL}
    provider: openai
    model: {MODEL}
    apiBase: {OPENAI}
    apiKey: none
    roles: [chat, edit, apply]
"""
_VIBE = f"""active_model = "made"
enable_telemetry = false
enable_auto_update = false
enable_update_checks = false

[[providers]]
name = "made"
api_base = "{OPENAI}"
api_key_env_var = "MADE_UP_KEY"
api_style = "openai"
backend = "generic"

[[models]]
name = "{MODEL}"
provider = "made"
alias = "made"
input_price = 1.0
output_price = 2.0
"""
_GOOSE = f"""GOOSE_PROVIDER: openai
GOOSE_MODEL: {MODEL}
GOOSE_TELEMETRY_ENABLED: false
extensions:
  developer:
    type: builtin
    name: developer
    enabled: true
    timeout: 300
    bundled: true
"""
_QWEN = {
    "model": {"name": MODEL, "generationConfig": {"contextWindowSize": 128_000}},
    "$version": 4,  # else the client adds it, and writes the file in its own way
}
_NO_FETCH = {
    **dict.fromkeys(
        ("OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH"),
        "1",
    ),
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "KILO_DISABLE_MODELS_FETCH": "1",
    "KILO_DISABLE_AUTOUPDATE": "1",
    "KILO_TELEMETRY_LEVEL": "off",
}

_PI_MODEL = ("--provider", "made", "--model", MODEL)
_GEMINI_MODEL = ("--yolo", "-m", "gemini-2.5-pro")
_COPILOT_MODEL = ("--allow-all-tools", "--model", MODEL)

ALL = (
    Client(
        "pi",
        "pi",
        ".pi",
        ("-p", "{}", *_PI_MODEL),
        ("-p", "{}", *_PI_MODEL),
        ("bash", "command"),
        ("read", {"path": "tide.py"}),
        {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1"},
        {".pi/agent/models.json": json.dumps(_PI)},
    ),
    Client(
        "qwen",
        "qwen",
        ".qwen",
        ("-p", "{}", "--yolo", "--auth-type", "openai"),
        ("-p", "{}", "--yolo", "--auth-type", "openai"),
        ("run_shell_command", "command"),
        ("read_file", {"file_path": f"{PROJECT}/tide.py"}),
        {
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": OPENAI,
            "OPENAI_MODEL": MODEL,
            "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
        },
        {".qwen/settings.json": json.dumps(_QWEN, indent=2)},
        {"is_background": False},
        logs_side_calls=True,
        search=[("tool_call", {"name": "mcp__thence__search", "arguments": EARLIER})],
    ),
    Client(
        "copilot",
        "copilot",
        ".copilot",
        ("-p", "{}", *_COPILOT_MODEL),
        ("-p", "{}", *_COPILOT_MODEL),
        ("bash", "command"),
        ("view", {"path": f"{PROJECT}/tide.py"}),
        {
            "COPILOT_PROVIDER_BASE_URL": OPENAI,
            "COPILOT_PROVIDER_TYPE": "openai",
            "COPILOT_PROVIDER_API_KEY": "none",
            "COPILOT_MODEL": MODEL,
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
        },
        more={"description": "Run it", "initial_wait": 60},
        search=[("thence-search", EARLIER)],
        logs="session-state/*/events.jsonl",
    ),
    Client(
        "gemini",
        "gemini",
        ".gemini",
        ("-p", "{}", *_GEMINI_MODEL),
        ("-p", "{}", *_GEMINI_MODEL),
        ("run_shell_command", "command"),
        ("read_file", {"file_path": "tide.py"}),
        {
            "GEMINI_API_KEY": "none",
            "GOOGLE_GEMINI_BASE_URL": ADDRESS,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
        {".gemini/settings.json": json.dumps(_GEMINI)},
        search=[("mcp_thence_search", EARLIER)],
    ),
    Client(
        "kimi",
        "kimi",
        ".kimi-code",
        ("-p", "{}", "--output-format", "stream-json"),
        ("-m", "made", "-p", "{}", "--output-format", "stream-json"),
        ("Bash", "command"),
        ("Read", {"path": f"{PROJECT}/tide.py"}),
        {"KIMI_DISABLE_TELEMETRY": "1", "KIMI_CODE_NO_AUTO_UPDATE": "1"},
        {".kimi-code/config.toml": _KIMI},
        search=[("mcp__thence__search", EARLIER)],
    ),
    Client(
        "opencode",
        "opencode",
        ".local/share/opencode",
        ("run", "{}"),
        ("{}",),
        ("bash", "command"),
        ("read", {"filePath": f"{PROJECT}/tide.py"}),
        _NO_FETCH,
        {".config/opencode/opencode.json": json.dumps(_OPENCODE)},
        {"description": "Run it"},
        headless=("run",),
        search=[("thence_search", EARLIER)],
    ),
    Client(
        "kilo",
        "kilo",
        ".local/share/kilo",
        ("run", "--auto", "{}"),
        ("{}",),
        ("bash", "command"),
        ("read", {"filePath": f"{PROJECT}/tide.py"}),
        _NO_FETCH,
        {".config/kilo/kilo.json": json.dumps(_OPENCODE)},
        {"description": "Run it"},
        headless=("run",),
        search=[("thence_search", EARLIER)],
    ),
    Client(
        "cline",
        "cline",
        ".cline",
        ("--json", "{}"),
        ("{}",),
        ("run_commands", "commands"),
        ("read_files", {"files": [{"path": f"{PROJECT}/tide.py"}]}),
        {"CLINE_TELEMETRY_DISABLED": "1"},
        wraps=True,
        needs_terminal=True,
        search=[("thence__search", EARLIER)],
        prepare=(("auth", "-p", "openai-compatible", "-k", "none", "-m", MODEL, "-b", OPENAI),),
    ),
    Client(
        "droid",
        "droid",
        ".factory",
        ("exec", "--model", f"custom:{MODEL}", "--skip-permissions-unsafe", "{}"),
        (),
        ("Execute", "command"),
        ("Read", {"file_path": f"{PROJECT}/tide.py"}),
        {"FACTORY_API_KEY": "fk-none"},
        {".factory/settings.json": json.dumps(_DROID)},
        {"summary": "Run it"},
        not_resumed="Droid asks its maker's server about the key before it resumes a session",
        search=[  # it begins before its servers have started, and shows their tools when asked
            ("Execute", {"command": "sleep 8", "summary": "Wait"}),
            ("ToolSearch", {"query": "+thence search"}),
            ("thence___search", EARLIER),
        ],
    ),
    Client(
        "hermes",
        "hermes",
        ".hermes",
        ("chat", "-q", "{}", "-Q", "--yolo"),
        ("-q", "{}", "-Q", "--yolo"),
        ("terminal", "command"),
        ("read_file", {"path": f"{PROJECT}/tide.py"}),
        {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": OPENAI, "HERMES_ACCEPT_HOOKS": "1"},
        {".hermes/config.yaml": _HERMES},
        headless=("chat",),
        logs="state.db*",
        search=[("mcp__thence__search", EARLIER)],
    ),
    Client(
        "continue",
        "cn",
        ".continue",
        ("-p", "{}", "--config", f"{cell.HOME}/.continue/config.yaml", "--auto"),
        ("-p", "{}", "--config", f"{cell.HOME}/.continue/config.yaml", "--auto"),
        ("Bash", "command"),
        ("Read", {"filepath": f"{PROJECT}/tide.py"}),
        {"CONTINUE_TELEMETRY_ENABLED": "0"},
        {".continue/config.yaml": _CONTINUE},
        logs="sessions/*.json",
        is_copied=True,
        hides_failures=True,
        search=[("search", EARLIER)],
    ),
    Client(
        "goose",
        "goose",
        ".local/share/goose",
        ("run", "-t", "{}"),
        ("-t", "{}"),
        ("shell", "command"),
        ("tree", {"path": PROJECT}),
        {
            "OPENAI_API_KEY": "none",
            "OPENAI_HOST": ADDRESS,
            "GOOSE_DISABLE_KEYRING": "1",
            "GOOSE_MODE": "auto",
        },
        {".config/goose/config.yaml": _GOOSE},
        logs="sessions/*",
        headless=("run",),
        hides_cache=True,
        search=[("thence__search", EARLIER)],
    ),
    Client(
        "vibe",
        "vibe",
        ".vibe",
        ("-p", "{}", "--auto-approve", "--trust", "--output", "json"),
        ("-p", "{}", "--auto-approve", "--trust", "--output", "json"),
        ("bash", "command"),
        ("read_file", {"path": f"{PROJECT}/tide.py"}),
        {"MADE_UP_KEY": "none", "MISTRAL_API_KEY": "none"},
        {".vibe/config.toml": _VIBE},
        logs="logs/session/unified/**/*",
        search=[  # it calls tools of servers from a program of the model's
            ("run_typescript", {"code": "return await tools.mcp_thence.search({query: 'tide'})"})
        ],
    ),
)
BY_NAME = {client.name: client for client in ALL}


@functools.cache
def no_cell() -> str:
    """Return why nothing can run here; empty if something can."""
    return cell.missing()


def get_client(name: str) -> Client:
    """Return a client, or skip with the reason why there is none."""
    return fetched(BY_NAME[name])


def fetched(client: Client) -> Client:
    """Return a client if it is there, or skip with the reason why it is not."""
    if why := no_cell():
        pytest.skip(why)
    if not (CLIENTS / "bin" / client.program).exists():
        reason = CLIENTS / f"{client.program}.reason"
        pytest.skip(reason.read_text() if reason.exists() else "scripts/clients was not run")
    return client


def order(
    client: Client, home: Path, script: dict[str, list[Any]], *commands: list[str], **more: Any
) -> dict[str, Any]:
    """Run commands in the home, with a model that answers so to each prompt."""
    prepared = [[str(CLIENTS / "bin" / client.program), *words] for words in client.prepare]
    done = cell.run(
        {
            "home": str(home),
            "commands": [*prepared, *commands],
            "env": client.environment,
            "script": script,
            **more,
        }
    )
    return {**done, "ran": done["ran"][len(prepared) :]}
