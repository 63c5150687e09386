"""An agent of another package: one folder of files, found by its entry point, and it can do all.

The package is the template of the examples. Nothing of this tree names it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agreement.homes import unpack_heron
from tests.test_examples import ROOT, unpack_template

SAMPLE = """
from datetime import UTC, datetime
from pathlib import Path
from thence.agents.profiles import agents
from thence.agents.samples import Machine
agents()["pebble"].sample(Machine(Path.home() / ".pebble", Path.home() / "work"), datetime.now(UTC))
"""
WRITE = "heron.write(pathlib.Path(sys.argv[1]))"
COLOUR = "from thence.serve.agents import stylesheet; print(stylesheet().decode())"


class Machine:
    """A home on which the package is installed: the template, or another one."""

    def __init__(self, folder: Path, unpack: Callable[[Path], object] = unpack_template) -> None:
        unpack(folder / "target")
        self.home = folder / "home"
        (self.home / ".pebble").mkdir(parents=True)
        self._env = os.environ | {"PYTHONPATH": str(folder / "target"), "HOME": str(self.home)}
        self._env["THENCE_HOME"] = str(self.home / ".thence")

    def python(self, code: str, *words: str) -> str:
        """Run a program there; return what it prints."""
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            capture_output=True,
            text=True,
            check=False,
            env=self._env,
            cwd=self.home,
        )
        assert 0 == done.returncode, done.stderr
        return done.stdout

    def thence(self, *words: str) -> str:
        """Run a command of ours there; return what it prints."""
        return self.python("from thence.cli import main; main()", *words)


@pytest.mark.slow
def test_a_package_gives_its_agent_every_ability(tmp_path: Path) -> None:
    """Samples are swept, resumed by its command, hooked, registered, handed over, seen to run."""
    machine = Machine(tmp_path)
    machine.python(SAMPLE)
    machine.thence("sweep")
    (row, *_) = json.loads(machine.thence("ls", "--agent", "pebble", "--json"))
    way = json.loads(machine.thence("resume", row["session_uid"], "--json"))
    machine.thence("hook", "install", "pebble", "--yes")
    machine.thence("mcp", "install", "pebble", "--yes")
    handed = json.loads(machine.thence("handoff", row["session_uid"], "--to", "claude", "--json"))
    taken = json.loads(machine.thence("handoff", handed["files"][0], "--to", "pebble", "--json"))

    lease = machine.home / ".pebble" / f"{row['native_session_id']}.running"
    lease.write_text(json.dumps({"pid": os.getpid()}))
    running = json.loads(machine.thence("ls", "--running", "--agent", "pebble", "--json"))
    asked = machine.thence("resume", row["session_uid"], "--prompt", "And now?", "--json")

    assert [row["session_uid"]] == [entry["session_uid"] for entry in running]
    assert "And now?" == json.loads(asked)["argv"][-1]
    assert ".f-pebble" in machine.python(COLOUR)
    assert ["pebble", "--resume"] == way["argv"][:2]
    assert "SessionStart" in (machine.home / ".pebble" / "settings.json").read_text()
    assert "thence" in (machine.home / ".pebble" / "servers.json").read_text()
    assert ("pebble", "claude") == (handed["agent"], handed["to"])
    assert ("claude", "pebble") == (taken["agent"], taken["to"])
    assert Path(taken["files"][0]).is_relative_to(machine.home / ".pebble")


@pytest.mark.slow
def test_a_small_agent_has_a_cost_a_failed_result_and_a_resume_command(tmp_path: Path) -> None:
    """As its author wrote it from the docs; its sessions lie in another folder than usual."""
    machine = Machine(tmp_path, unpack_heron)
    place = tmp_path / "birds"
    machine.python("import pathlib, sys; import heron_thence as heron; " + WRITE, str(place))
    machine.thence("sweep", "--root", f"heron={place}")
    (row,) = json.loads(machine.thence("ls", "--json"))
    shown = machine.thence("show", row["session_uid"]).splitlines()
    resumed = json.loads(machine.thence("resume", row["session_uid"], "--json"))
    spent = json.loads(machine.thence("cost", "--json"))["total"]

    assert ("heron:h-1", "Run the tests.") == (row["session_uid"], row["title"])
    assert ("✗    ran make test", "broken pipe") == (shown[7][:18], shown[8].strip(" │"))
    assert (8100 * 3 + 370 * 15, 0) == (round(spent["usd"] * 1e6), spent["unpriced_tokens"])
    assert {"HERON_HOME": str(place)} == resumed["env"]
    assert ["heron", "--resume", "h-1"] == resumed["argv"]


def test_nothing_in_this_tree_names_the_package() -> None:
    """All of it lies in its own folder: adding it touched no other file."""
    sources = (ROOT / "src").rglob("*.py")

    assert [] == [str(path) for path in sources if "pebble" in path.read_text().lower()]
