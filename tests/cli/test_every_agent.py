"""Every agent from the command line: its sessions resumed, itself started, with a prompt or not.

The agents are programs that write down how they were called; their sessions are the made-up ones.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from thence.agents.profiles import agents, folder_variables
from thence.agents.samples import Machine
from thence.cli import thence

PROMPT = "Is it the tide?"
DASHED = "--yolo"
AGENTS = [name for name, agent in agents().items() if agent.offers("prompt")]
RESUMED = [name for name in AGENTS if agents()[name].offers("resume")]
ASKED = {
    "aider": "aider --message P",
    "claude": "claude -p P",
    "cline": "cline P",
    "codex": "codex exec P",
    "continue": "cn -p P",
    "copilot": "copilot -p P",
    "droid": "droid exec P",
    "gemini": "gemini -p P",
    "goose": "goose run -t P",
    "grok": "grok -p P",
    "hermes": "hermes chat -q P",
    "kilo": "kilo run P",
    "kimi": "kimi -p P",
    "opencode": "opencode run P",
    "pi": "pi -p P",
    "qwen": "qwen -p P",
    "vibe": "vibe -p P",
}
ASKED_AGAIN = {
    "aider": "aider --restore-chat-history --message P",
    "claude": "claude --resume ID -p P",
    "codex": "codex exec resume ID P",
    "continue": "cn --fork ID -p P",
    "copilot": "copilot --resume=ID -p P",
    "droid": "droid exec --session-id ID P",
    "gemini": "gemini --resume ID -p P",
    "goose": "goose run --resume --session-id ID -t P",
    "grok": "grok -r ID -p P",
    "hermes": "hermes chat --resume ID -q P",
    "kilo": "kilo run --session ID P",
    "kimi": "kimi --session session_ID -p P",
    "opencode": "opencode run --session ID P",
    "pi": "pi --session ID -p P",
    "qwen": "qwen --resume ID -p P",
    "vibe": "vibe --resume ID -p P",
}
RECORDER = """#!/bin/sh
pwd > "$HOME/called"
for word in "$(basename "$0")" "$@"; do printf '%s\\n' "$word" >> "$HOME/called"; done
"""


def run(home: Path, *arguments: str) -> Result:
    """Run a command of ours as a user of this machine would."""
    env: dict[str, str | None] = dict.fromkeys((*folder_variables(), "THENCE_HOME"))
    env |= {"HOME": str(home), "PATH": f"{home}/bin:{os.environ['PATH']}", "COLUMNS": "100"}
    return CliRunner().invoke(thence, arguments, env=env)


def called(home: Path) -> list[str]:
    """Return the folder and the words of the last call of an agent."""
    return (home / "called").read_text().splitlines()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A machine with made-up sessions of all agents, and programs by their names."""
    folder = tmp_path_factory.mktemp("home")
    work = folder / "work"
    (folder / "bin").mkdir()
    for name in AGENTS:
        agent = agents()[name]
        program = folder / "bin" / agent.profile.program
        program.write_text(RECORDER)
        program.chmod(0o755)
        write = agent.sample
        assert write is not None
        write(Machine(agent.reader.roots(folder, {})[0], work), datetime(2026, 5, 4, tzinfo=UTC))
    for project in ("tidepool", "harbour-books", "lumen"):
        (work / project).mkdir(parents=True)
    assert 0 == run(folder, "sweep").exit_code
    return folder


def sessions(home: Path, agent: str) -> list[dict[str, Any]]:
    """Return the sessions of an agent that have a folder."""
    listed = json.loads(run(home, "ls", "--agent", agent, "--json").stdout)
    return [row for row in listed if row["cwd"] and Path(row["cwd"]).is_dir()]


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_is_started_with_and_without_a_prompt(home: Path, agent: str) -> None:
    """`exec` knows its command; the user's own words come before the prompt."""
    prompted = run(home, "exec", "--agent", agent, "--prompt", PROMPT)
    words = " ".join(called(home)[1:]).replace(PROMPT, "P")
    started = run(home, "exec", "--agent", agent, "--", "--model", "x")

    assert [0, 0] == [prompted.exit_code, started.exit_code], (prompted, started)
    assert ASKED[agent] == words
    profile = agents()[agent].profile
    start = profile.start_command or (profile.program,)
    assert [*start, "--model", "x"] == called(home)[1:]


@pytest.mark.parametrize("agent", RESUMED)
def test_a_session_is_resumed_in_its_folder(home: Path, agent: str) -> None:
    """By the agent's own command; with a prompt where it takes one then, else it is said."""
    row = sessions(home, agent)[0]
    session = row["native_session_id"]
    plan = json.loads(run(home, "resume", row["session_uid"], "--json").stdout)

    assert row["cwd"] == plan["cwd"]
    assert None is plan["obstacle"]
    assert agents()[agent].profile.resume_command(session) == plan["argv"]

    prompted = run(home, "resume", row["session_uid"], "--prompt", PROMPT, "--json")
    if agent not in ASKED_AGAIN:
        assert prompted.exit_code
        assert "takes no prompt when it resumes a session" in f"{prompted.exception}"
        return
    again = " ".join(json.loads(prompted.stdout)["argv"])
    assert ASKED_AGAIN[agent] == again.replace(PROMPT, "P").replace(session, "ID")


@pytest.mark.parametrize("agent", AGENTS)
def test_a_prompt_is_never_an_option(agent: str) -> None:
    """Whatever it begins with."""
    profile = agents()[agent].profile
    argv = profile.prompt_argv(DASHED)

    assert DASHED not in argv
    assert any(word.endswith(f" {DASHED}") for word in argv)


def test_what_an_agent_cannot_do_is_said(home: Path) -> None:
    """Each command names those that can."""
    asked = (
        ("hook", "install", "aider"),
        ("mcp", "install", "aider"),
        ("handoff", sessions(home, "pi")[0]["session_uid"], "--to", "aider"),
        ("exec", "--agent", "thence", "--prompt", PROMPT),
    )
    answers = [run(home, *words) for words in asked]

    assert all(answer.exit_code for answer in answers)
    for answer, words in zip(
        answers,
        ("no hooks", "no settings for MCP", "cannot continue", "no prompt"),
        strict=True,
    ):
        assert words in answer.output + f"{answer.exception}"
