"""The brief in real clients: it arrives in what the model is told, once, and not when switched off.

A session before leaves something to tell; the second session of the same project is told of it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.agents import ANSWER, Agent, thence
from tests.e2e.cell import HOME
from tests.e2e.test_hostile_project import client, order

pytestmark = pytest.mark.e2e

OFF = f'session_memory.brief.skip = ["{HOME}/project"]\n'


def told_of_the_past(agent: Agent, home: Path, *, off: bool = False) -> int:
    """Return how many times the model is told the brief, in the first request of a session."""
    agent.settle(home)
    if off:
        (home / ".thence" / "config.toml").write_text(OFF)
    order(agent, home, [agent.tool, ANSWER], agent.ask())
    done = order(
        agent,
        home,
        [agent.tool, ANSWER],
        thence("sweep", "--json"),
        thence("hook", "install", agent.name, "--brief", "--yes"),
        thence("hook", "status", agent.name, "--json"),
        agent.ask(),
        thence("hook", "uninstall", agent.name, "--yes"),
    )
    *_, status, asked, gone = done["ran"]
    first = json.dumps(done["asked"][0])

    assert [0, 0] == [asked["code"], gone["code"]], done["ran"]
    assert json.loads(status["out"])[0]["brief"] is True
    assert first.count("data: thence brief, project") == first.count("It ended with: It subtracts")
    return first.count("data: thence brief, project")


@pytest.mark.parametrize("name", ["claude", "codex hooks"])
def test_a_new_session_is_told_the_brief_once(name: str, tmp_path: Path) -> None:
    """What the last session said at its end stands in the first request of the next, framed."""
    assert 1 == told_of_the_past(client(name), tmp_path / "home")


@pytest.mark.parametrize("name", ["claude", "codex hooks"])
def test_a_project_that_is_switched_off_is_told_nothing(name: str, tmp_path: Path) -> None:
    """The hook runs, and prints nothing."""
    assert 0 == told_of_the_past(client(name), tmp_path / "home", off=True)
