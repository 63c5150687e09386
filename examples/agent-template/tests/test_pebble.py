"""Pebble's logs, read by thence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from thence_pebble import PROFILE

from thence.agents.profiles import Agent, agents
from thence.agents.sessions import load
from thence.testing import AgentSuite
from thence.testing.readers import CHECKS

RECORDS = [
    {"cwd": "/home/dev/tidepool"},
    {
        "id": "n1",
        "after": None,
        "who": "you",
        "text": "What is here?",
        "at": "2026-01-01T00:00:00Z",
    },
    {"id": "n2", "after": "n1", "who": "pebble", "tool": "ls", "given": {"path": "."}},
    {"id": "n3", "after": "n2", "who": "tool", "of": "n2", "text": "a.txt"},
    {"id": "n4", "after": "n3", "who": "pebble", "text": "One.", "tokens": [12, 3], "rests": True},
    {"id": "n5", "after": "n1", "who": "pebble", "text": "Nothing.", "tokens": [8, 2]},
]


def write(root: Path) -> Path:
    """Write what the agent would have written."""
    path = root / "blue.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    (root / "notes.txt").write_text("not a session")
    return path


@pytest.mark.parametrize("check", CHECKS)
def test_the_agent_stands_the_suite(tmp_path: Path, check: str) -> None:
    """What every agent of thence promises."""
    suite = AgentSuite(Agent("pebble", PROFILE), write, folder=tmp_path)

    assert suite.complaints(check) == []


def test_thence_finds_it_by_its_entry_point() -> None:
    """Installed is all it has to be."""
    assert agents()["pebble"].label == "Pebble"


def test_a_session_means_what_it_should(tmp_path: Path) -> None:
    """The answer written last is the live one; the first was paid for all the same."""
    whole = load(write(tmp_path)).graph
    cost = whole.session().cost

    assert [str(s) for s in whole.states] == ["internal", "live", "dead", "dead", "dead", "live"]
    assert whole.session().cwd == "/home/dev/tidepool"
    assert (cost.input_tokens, cost.output_tokens) == (20, 5)
