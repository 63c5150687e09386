"""An agent of another package, used like one of ours: all that it offers, from its entry point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_examples import unpack_template

NOTES = (
    {"id": "n1", "parent": None, "speaker": "user", "text": "Mend the tide table."},
    {
        "id": "n2",
        "parent": "n1",
        "speaker": "pebble",
        "tool": "pebble_run",
        "input": {"script": "ls"},
    },
    {"id": "n3", "parent": "n2", "speaker": "tool", "call": "n2", "text": "tide.py"},
    {"id": "n4", "parent": "n3", "speaker": "pebble", "text": "It is mended.", "ends_turn": True},
)


class Machine:
    """A machine on which the package of Pebble is installed."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.packages = folder / "packages"
        self.pebble = self.home / ".pebble"
        unpack_template(self.packages)
        (self.home / ".claude").mkdir(parents=True)
        self.pebble.mkdir()
        (self.pebble / "settings.json").write_text('{"theme": "dark"}\n')
        lines = [json.dumps(record) + "\n" for record in NOTES]
        (self.pebble / "blue.jsonl").write_text("".join(lines))

    def thence(self, *arguments: str, code: int = 0) -> str:
        """Run a command, and return what it prints."""
        env = {"HOME": str(self.home), "PATH": os.environ["PATH"], "NO_COLOR": "1"}
        done = subprocess.run(
            [sys.executable, "-m", "thence", *arguments],
            env=env | {"PYTHONPATH": str(self.packages), "COLUMNS": "120"},
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
        )
        assert code == done.returncode, done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A machine whose sessions were swept."""
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.thence("sweep")
    return machine


@pytest.mark.slow
def test_its_sessions_are_kept_and_resumed_by_its_command(machine: Machine) -> None:
    """The command line of its profile, and its own tool known for a shell."""
    (row,) = json.loads(machine.thence("ls", "--json"))

    assert ("pebble:blue", "pebble") == (row["session_uid"], row["flavor"])
    assert "pebble --resume blue" in machine.thence("resume", "pebble:blue")
    assert "in Pebble: /back" in machine.thence("rewind", "pebble:blue", code=1)


@pytest.mark.slow
def test_its_settings_hold_our_hook_and_our_server(machine: Machine) -> None:
    """Put in where the profile says, and taken out again."""
    before = (machine.pebble / "settings.json").read_bytes()
    machine.thence("hook", "install", "pebble", "--yes")
    machine.thence("mcp", "install", "pebble", "--yes")
    hooked = json.loads((machine.pebble / "settings.json").read_text())
    served = json.loads((machine.pebble / "servers.json").read_text())
    machine.thence("hook", "uninstall", "pebble", "--yes")

    assert {"SessionStart", "Stop"} == set(hooked["hooks"])
    assert ["thence"] == list(served["mcpServers"])
    assert before == (machine.pebble / "settings.json").read_bytes()


@pytest.mark.slow
def test_a_session_goes_from_it_to_another_agent_and_back(machine: Machine) -> None:
    """Its shell is another's shell, both ways."""
    handed = json.loads(machine.thence("handoff", "pebble:blue", "--to", "claude", "--json"))
    back = json.loads(machine.thence("handoff", handed["files"][0], "--to", "pebble", "--json"))

    assert {"pebble_run → Bash": 1} == handed["mapped"]
    assert {"Bash → pebble_run": 1} == back["mapped"]
    assert ["pebble", "--resume", back["session"]] == back["argv"]
    assert "It is mended." in machine.thence("show", back["files"][0])


@pytest.mark.slow
def test_what_another_agent_lacks_is_said(machine: Machine) -> None:
    """In words, with those that have it."""
    output = machine.thence("hook", "install", "pi", code=2)

    assert "pi has no hooks that thence can use" in output
    assert "pebble" in output
