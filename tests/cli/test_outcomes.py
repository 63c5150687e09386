"""How a session went, from the user's end: `ls`, `digest`, whatever the agent and its end."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.agents.transcripts import A, Script
from tests.cli.desk import Desk
from tests.memory import endings

NOW = timedelta(seconds=20)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine without sessions."""
    return Desk(tmp_path, monkeypatch)


def script_of(*story: str) -> Script:
    """A session of Claude Code."""
    return endings.claude([step.partition(" ")[::2] for step in story])


def listed(desk: Desk, *arguments: str) -> list[Any]:
    """What `ls --json` says."""
    rows = desk.run("ls", "--json", *arguments).json
    assert isinstance(rows, list)
    return rows


def digest(desk: Desk) -> dict[str, Any]:
    """What `digest --json` says of the session."""
    answer = desk.run("digest", A[:8], "--json").json
    assert isinstance(answer, dict)
    return answer


@pytest.mark.slow
def test_a_session_that_runs_is_running_and_nothing_else(desk: Desk) -> None:
    """Its open call is twenty seconds old: no list and no digest says how it ended."""
    desk.write_claude(script_of("ask Run the job.", "run sleep 300"), ago=NOW)
    desk.sweep()

    assert ["running"] == [row["outcome"] for row in listed(desk)]
    assert ("running", False) == (digest(desk)["outcome"], "confidence" in digest(desk))
    text = desk.run("digest", A[:8]).out
    assert "running" in text
    assert "abandoned" not in text
    assert "sure" not in text
    for name in ("sessions", "digests"):
        rows = desk.run("sql", f"SELECT outcome FROM {name}", "--json").json
        assert [{"outcome": "running"}] == rows
    assert 1 == len(desk.run("ls", "--outcome", "running", "--json").json)


def test_a_log_cut_in_mid_turn_is_unknown(desk: Desk) -> None:
    """Hours later nobody knows what became of the call, and nobody claims to."""
    desk.write_claude(script_of("ask Run the job.", "run sleep 300"))
    desk.sweep()

    assert ["unknown"] == [row["outcome"] for row in listed(desk)]
    assert "abandoned" not in desk.run("digest", A[:8]).out


def test_a_session_that_ends_in_a_question_waits_for_its_user(desk: Desk) -> None:
    """It is no success, and can be listed as waiting."""
    story = ("ask Fix the clock.", "say There are two clocks. Which one do you mean?")
    desk.write_claude(script_of(*story))
    desk.sweep()

    assert ["waiting"] == [row["outcome"] for row in listed(desk, "--outcome", "waiting")]
    assert [] == listed(desk, "--outcome", "success")


def test_codex_killed_in_mid_stream_is_no_success(desk: Desk) -> None:
    """What it had said so far is not an answer."""
    story = ["ask Fix the parser.", "note The parser has two entries; the first"]
    endings.write("codex", desk.codex, story)
    desk.sweep()

    assert ["unknown"] == [row["outcome"] for row in listed(desk)]


def test_corrections_and_reports_are_counted_as_interventions(desk: Desk) -> None:
    """Each once; a thank-you is none, and neither is the first prompt."""
    story = ["ask There is a bug in the clock.", "edit clock.py", "say Fixed."]
    for prompt in ("No, the other clock.", "I still get the same error", "thanks, commit it"):
        story += [f"ask {prompt}", "edit clock.py", "say Done."]
    desk.write_claude(script_of(*story))
    desk.sweep()
    texts = [intervention["what"] for intervention in digest(desk)["interventions"]]

    assert ["No, the other clock.", "I still get the same error"] == texts


def test_a_rejection_and_the_next_prompt_are_one_intervention(desk: Desk) -> None:
    """The refused call, the stop and the prompt after it are one."""
    story = ("ask Clean up.", "run rm -rf data", "refuse", "stop", "ask No, keep it.", "say Kept.")
    desk.write_claude(script_of(*story))
    desk.sweep()

    assert 1 == len(digest(desk)["interventions"])


def test_a_killed_process_is_no_intervention(desk: Desk) -> None:
    """The result that the client makes up on its next start is nobody's word."""
    story = (
        "ask Run it.",
        "run sleep 300",
        "crash",
        "ask Look what became of it.",
        "say It ended.",
    )
    desk.write_claude(script_of(*story))
    desk.sweep()

    assert [] == digest(desk).get("interventions", [])


@pytest.mark.parametrize(
    "command", ["scripts/test-api.sh", "./run_tests.sh", "bin/test", "make check", "tests/run.sh"]
)
def test_a_project_s_own_test_script_is_a_test_run(desk: Desk, command: str) -> None:
    """It is counted, and its failure fails the session."""
    desk.write_claude(
        script_of(
            "ask Make it pass.", "edit a.py", f"run {command}", "bad 2 failed", "say I changed it."
        )
    )
    desk.sweep()
    answer = digest(desk)

    assert [(1, 1)] == [(run["runs"], run["red"]) for run in answer["tests"]]
    assert "fail" == answer["outcome"]


def test_errors_of_subagents_are_counted_apart(desk: Desk) -> None:
    """The session's own errors are its own; the digest shows both."""
    desk_folder = desk.write_claude(
        script_of("ask Fix it.", "run make", "bad make: *** [all] Error 2", "say It is fixed.")
    )
    side = Script(name="s", isSidechain=True, agentId="h1")
    side.user("Look for uses.")
    for at in range(2):
        side.call(f"k{at}", command="cat gone.py")
        side.result(f"k{at}", "cat: gone.py: No such file or directory", wrong=True)
    side.say("Nothing there.")
    helper = desk_folder / A / "subagents" / "agent-h1.jsonl"
    helper.parent.mkdir(parents=True)
    helper.write_bytes(side.data)
    desk.sweep()
    answer = digest(desk)

    assert [1] == [error["count"] for error in answer["errors"]]
    assert [2] == [subagent_error["count"] for subagent_error in answer["subagent_errors"]]
    assert "in a subagent: " in desk.run("digest", A[:8]).out


def test_the_confidence_is_a_share_that_was_measured(desk: Desk) -> None:
    """What the digest says is what labelled sessions with the same basis gave."""
    desk.write_claude(script_of("ask What does it do?", "say It counts."))
    desk.sweep()
    right, judged = _counts("answered")

    assert round((right + 1) / (judged + 2), 2) == digest(desk)["confidence"]
    assert json.dumps(digest(desk))


def _counts(basis: str) -> tuple[int, int]:
    from thence.memory import outcome

    return next(counts for name, counts in outcome.CALIBRATION.items() if name == basis)
