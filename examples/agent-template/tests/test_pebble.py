"""The reader of Pebble passes the suite of thence, and reads a session as it should."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from thence_pebble import PROFILE

from thence.agents.profiles import Agent, agents
from thence.agents.sessions import load
from thence.testing import AgentSuite
from thence.testing.readers import CHECKS

MODEL = "claude-sonnet-4-5"
RECORDS = [
    {"cwd": "/home/dev/tidepool"},
    {
        "id": "n1",
        "parent": None,
        "speaker": "user",
        "text": "What is here?",
        "time": "2026-01-01T00:00:00Z",
    },
    {"id": "n2", "parent": "n1", "speaker": "pebble", "tool": "ls", "input": {"path": "."}},
    {"id": "n3", "parent": "n2", "speaker": "tool", "call": "n2", "text": "a.txt"},
    {
        "id": "n4",
        "parent": "n3",
        "speaker": "pebble",
        "text": "One file.",
        "tokens": [12, 3],
        "model": MODEL,
        "ends_turn": True,
    },
    # The user went back to the first prompt: n2 to n4 are a discarded branch.
    {
        "id": "n5",
        "parent": "n1",
        "speaker": "pebble",
        "text": "Nothing.",
        "tokens": [8, 2],
        "model": MODEL,
    },
]


def write_log(root: Path) -> Path:
    """Write a session as the agent would, and a file that is none; return the session's path."""
    path = root / "blue.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    (root / "notes.txt").write_text("not a session")
    return path


@pytest.mark.parametrize("check", CHECKS)
def test_the_agent_passes_the_suite(tmp_path: Path, check: str) -> None:
    """Checks what thence promises for every agent."""
    suite = AgentSuite(Agent("pebble", PROFILE), write_log, folder=tmp_path)

    assert suite.complaints(check) == []


def test_thence_finds_the_agent_by_its_entry_point() -> None:
    """Installing the package is enough."""
    assert agents()["pebble"].label == "Pebble"


def test_the_last_reply_is_live_and_all_replies_count(tmp_path: Path) -> None:
    """The earlier reply is discarded; its tokens were billed all the same."""
    graph = load(write_log(tmp_path)).graph
    session = graph.session()

    assert [str(s) for s in graph.states] == ["internal", "live", "dead", "dead", "dead", "live"]
    assert session.cwd == "/home/dev/tidepool"
    assert (session.cost.input_tokens, session.cost.output_tokens) == (20, 5)
