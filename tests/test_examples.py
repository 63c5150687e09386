"""The examples run as they are, are killed, and go on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from thence.format.transcript import Transcript
from thence.journal import Journal

ROOT = Path(__file__).resolve().parent.parent
HARNESS = ROOT / "examples" / "tiny_harness.py"

SAID = [
    "agent  It says goodbye now.",
    "agent  The reviewer agrees.",
    "agent  Yes, we are.",
    "agent  Really.",
]


def harness(home: Path, *options: str, kill_at: int = 0) -> tuple[int, list[str]]:
    """Run the tiny harness: its exit status and what it printed."""
    done = subprocess.run(
        [sys.executable, HARNESS, home, *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "TINY_KILL_AT": str(kill_at)}
        | {"THENCE_NO_PERSISTENCE": "", "CLAUDE_NO_SESSION_PERSISTENCE": ""},
    )
    assert "" == done.stderr
    return done.returncode, done.stdout.splitlines()


def agent(printed: list[str]) -> list[str]:
    """What the model said in words."""
    return [line for line in printed if line.startswith("agent")]


def test_the_tiny_harness_runs_to_its_end(tmp_path: Path) -> None:
    """Turns, tools, a subagent and a compaction, and a clean log at the end."""
    status, printed = harness(tmp_path)
    listed = Journal(tmp_path).sessions()
    read = Transcript.read(listed[0].path.read_bytes())

    assert (0, SAID) == (status, agent(printed))
    assert "       (compacted)" in printed
    assert "goodbye\n" == (tmp_path / "workspace" / "greeting.txt").read_text()
    assert [True] == [session.closed for session in listed]
    assert ([], []) == (list(read.skipped), list(read.messages().open_calls))
    assert {"boundary", "checkpoint", "sidechain", "summary"} <= {e.type for e in read.events}
    assert 1 == len(list((tmp_path / "sidechains").rglob("*.jsonl")))


@pytest.mark.parametrize("kill_at", [1, 2])
def test_the_tiny_harness_goes_on_where_it_was_killed(tmp_path: Path, kill_at: int) -> None:
    """Killed in the middle of a tool call: nothing is said twice and nothing is left out."""
    status, before = harness(tmp_path, kill_at=kill_at)
    resumed, after = harness(tmp_path, "--resume")
    first, second = (list(reversed(Journal(tmp_path).sessions()))[n] for n in (0, 1))

    assert (9, 0) == (status, resumed)
    assert SAID == agent(before) + agent(after)
    assert "       (resumed; 1 call was cut short)" == after[0]
    assert after[1].endswith(" again")
    assert "       (done; 0.007 dollars in all)" == after[-1]
    assert (False, True) == (first.closed, second.closed)
    assert first.session_id == second.resumed_from
    assert "goodbye\n" == (tmp_path / "workspace" / "greeting.txt").read_text()


def test_the_tiny_harness_survives_being_killed_again_and_again(tmp_path: Path) -> None:
    """Each run does one more tool call than it survives; the story comes out whole."""
    printed = harness(tmp_path, kill_at=1)[1]
    for _ in range(3):
        printed += harness(tmp_path, "--resume", kill_at=1)[1]
    status, last = harness(tmp_path, "--resume")

    assert 0 == status
    assert SAID == agent(printed + last)
