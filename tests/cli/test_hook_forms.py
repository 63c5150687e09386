"""Hooks in settings that are no lists in JSON: tables, scripts, YAML, one command per entry."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from thence.agents.profiles import agents
from thence.cli import thence

HOME_FOLDERS = {
    "kimi": ".kimi-code",
    "copilot": ".copilot",
    "cline": ".cline",
    "droid": ".factory",
    "hermes": ".hermes",
    "vibe": ".vibe",
}
BODIES = {
    "kimi": '# mine\ntelemetry = false\n\n[[hooks]] # a bell\nevent = "Stop"\ncommand = "bell"\n',
    "vibe": '[[hooks]]\nname = "bell"\ntype = "post_agent"\ncommand = "bell"',
    "droid": '{\n  "model": "x",\n  "hooks": {"Stop": [{"hooks": [{"command": "bell"}]}]}\n}',
    "hermes": "model: x # mine\nhooks:\n  on_session_end:\n    - command: bell\n\n# the end\n",
}
SESSION = {"kimi": "session_s1"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with these agents."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, folder in HOME_FOLDERS.items():
        (tmp_path / folder).mkdir()
        for variable in agents()[name].profile.variables:
            monkeypatch.delenv(variable, raising=False)
    monkeypatch.delenv("THENCE_HOME", raising=False)
    return tmp_path


def run(*arguments: str) -> Result:
    """Run `thence hook`."""
    return CliRunner().invoke(thence, ["hook", *arguments])


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def settle(home: Path, agent: str) -> Path:
    """Write settings of the user's own for an agent; return their folder."""
    folder = home / HOME_FOLDERS[agent]
    if agent in BODIES:
        (folder / agents()[agent].profile.hooks[0].path).write_text(BODIES[agent])
    return folder


def installed_command(folder: Path, agent: str) -> list[str]:
    """Return the command that the agent runs at the end of a turn, as it runs it."""
    if agent == "cline":
        return [str(folder / "hooks" / "TaskComplete.sh")]
    file = folder / agents()[agent].profile.hooks[0].path
    if agent == "kimi":
        tables = tomllib.loads(file.read_text())["hooks"]
        lines = [table["command"] for table in tables if table["event"] == "Stop"]
    elif agent == "vibe":
        lines = [table["command"] for table in tomllib.loads(file.read_text())["hooks"]]
    elif agent == "hermes":
        yaml = pytest.importorskip("yaml")
        entries = yaml.safe_load(file.read_text())["hooks"]["on_session_end"]
        lines = [entry["command"] for entry in entries]
    elif agent == "copilot":
        lines = [entry["bash"] for entry in json.loads(file.read_text())["hooks"]["agentStop"]]
    else:
        entries = json.loads(file.read_text())["hooks"]["Stop"]
        lines = [hook["command"] for entry in entries for hook in entry["hooks"]]
    (line,) = (line for line in lines if "bin/thence" in line)
    return line.split() if agent == "hermes" else ["sh", "-c", line]


@pytest.mark.parametrize("agent", HOME_FOLDERS)
def test_in_twice_and_out_again_leaves_every_byte(home: Path, agent: str) -> None:
    """Hooks of the user's own stay beside ours; afterwards nothing of ours is there."""
    folder = settle(home, agent)
    before = tree(folder)
    assert 0 == run("install", agent, "--yes").exit_code
    once = tree(folder)
    (status,) = json.loads(run("status", agent, "--json").stdout)
    assert 0 == run("install", agent, "--yes").exit_code

    assert once == tree(folder) != before
    assert (True, [], False) == (status["installed"], status["missing"], status["elsewhere"])
    if agent in BODIES:
        assert b"bell" in b"".join(once.values())
    assert 0 == run("uninstall", agent, "--yes").exit_code
    assert before == tree(folder)


@pytest.mark.parametrize("agent", HOME_FOLDERS)
def test_the_installed_command_names_the_session(home: Path, agent: str) -> None:
    """Run as the agent runs it, with what the agent says: it prints nothing and leaves a nudge."""
    folder = settle(home, agent)
    (home / ".thence").mkdir(mode=0o700)
    (home / ".thence/config.toml").write_text(
        '[session_memory.retention]\ncadence = "daily"\n'  # else it would start a sweep
    )
    run("install", agent, "--yes")
    session = SESSION.get(agent, "s1")
    messages = {
        "cline": {"hookName": "agent_end", "sessionContext": {"rootSessionId": session}},
        "copilot": {"sessionId": session, "cwd": "/w", "stopReason": "end_turn"},
    }
    message = messages.get(agent, {"hook_event_name": "Stop", "session_id": session})
    done = subprocess.run(
        installed_command(folder, agent),
        input=json.dumps(message).encode(),
        capture_output=True,
        check=True,
    )
    (path,) = (home / ".thence/queue").iterdir()
    (status,) = json.loads(run("status", agent, "--json").stdout)

    assert (b"", b"") == (done.stdout, done.stderr)
    assert (agent, session) == tuple(json.loads(path.read_bytes())[n] for n in ("agent", "session"))
    assert status["last_nudge"]


def test_a_hook_that_somebody_took_out_in_part_is_missing(home: Path) -> None:
    """Scripts are one file each; installing again brings back the one that is gone."""
    run("install", "cline", "--yes")
    script = home / ".cline/hooks/TaskError.sh"
    script.unlink()
    (status,) = json.loads(run("status", "cline", "--json").stdout)
    run("install", "cline", "--yes")

    assert ["TaskError"] == status["missing"]
    assert script.stat().st_mode & 0o100


@pytest.mark.parametrize(
    ("agent", "path", "body"),
    [
        ("cline", "hooks/TaskComplete.sh", "#!/bin/sh\nbell\n"),
        ("kimi", "config.toml", 'hooks = [{event = "Stop", command = "bell"}]\n'),
        ("kimi", "config.toml", "hooks = 1\n"),
        ("hermes", "config.yaml", "hooks: &all\n  on_session_end: []\n"),
        ("hermes", "config.yaml", "- a list\n"),
    ],
)
def test_settings_that_cannot_be_changed_safely_are_refused(
    home: Path, agent: str, path: str, body: str
) -> None:
    """With a hint; nothing is written."""
    file = home / HOME_FOLDERS[agent] / path
    file.parent.mkdir(exist_ok=True)
    file.write_text(body)
    before = tree(home / HOME_FOLDERS[agent])
    result = run("install", agent, "--yes")

    assert result.exit_code
    assert path.rpartition("/")[2] in result.output + f"{result.exception}"
    assert before == tree(home / HOME_FOLDERS[agent])


def test_what_the_user_must_allow_is_said(home: Path) -> None:
    """Hermes runs no command that nobody allowed."""
    assert HOME_FOLDERS["hermes"]
    assert (home / ".hermes").is_dir()
    assert "--accept-hooks" in run("install", "hermes", "--yes").output


def test_an_agent_without_hooks_is_named_with_those_that_have_them(home: Path) -> None:
    """Nothing is installed, and nothing is pretended."""
    assert (home / ".kimi-code").is_dir()
    for agent in ("pi", "opencode", "goose", "continue", "aider", "kilo"):
        result = run("install", agent, "--yes")

        assert result.exit_code
        assert "has no hooks that thence can use" in result.output + f"{result.exception}"
