"""What counts as dead: only what a person left, and each dead line as one branch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agents.transcripts import A, Script, usage
from tests.cli.desk import Desk

PLAN = "Implement the following plan:\n\n# Cut the windows in UTC\n\n1. Change windows.py."


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine without sessions."""
    return Desk(tmp_path, monkeypatch)


def turn(log: Script, prompt: str, answer: str, **first: Any) -> str:
    """Add a turn, billed with many tokens, and the notes that clients with hooks write."""
    log.add("progress", data={"type": "hook_progress"}, parentToolUseID="t", **first)
    log.user(prompt)
    last = log.reply(
        [{"type": "text", "text": answer}],
        stop="end_turn",
        usage=usage(200_000, input_tokens=900_000),
        model="claude-sonnet-4-5",
    )
    log.add("system", subtype="stop_hook_summary", hookCount=1)
    log.add("system", subtype="turn_duration", durationMs=10)
    return last


def summed_up(log: Script, before: str) -> None:
    """Compact; the boundary names a record."""
    log.boundary(logicalParentUuid=before, compactMetadata={"trigger": "manual"})
    log.user("This session is being continued: windows are cut.", isCompactSummary=True)


def report_of(desk: Desk) -> dict[str, Any]:
    """Return what the commands say of the one session: branches, turns, money, signals."""
    desk.sweep()
    tree = desk.run("tree", A, "--json").json
    digest = desk.run("digest", A, "--json").json
    signals = desk.run("signals", "--json").json
    (listed,) = desk.run("ls", "--json").json
    return {
        "branches": [len(branch["events"]) for branch in tree["branches"]],
        "turns": [turn["prompt"] for turn in tree["turns"]],
        "dead": listed["usd"].get("dead", 0),
        "branches in digest": len(digest.get("branches", ())),
        "abandoned": [signal for signal in signals if signal["kind"] == "abandoned_branch"],
    }


def test_a_compaction_that_names_a_lost_record_leaves_nothing_dead(desk: Desk) -> None:
    """Clients name a hook's record that they never write: what was said before stays live."""
    log = Script()
    turn(log, "Fix the hours.", "Done with the brackenloft.")
    turn(log, "And the days.", "Done too.")
    summed_up(log, "0f000000-0000-4000-8000-00000000dead")
    turn(log, "And the weeks.", "Weeks done.")
    summed_up(log, "0f000000-0000-4000-8000-00000000beef")
    turn(log, "And the months.", "Months done.")
    desk.write_claude(log)

    prompts = ["Fix the hours.", "And the days.", "And the weeks.", "And the months."]
    wanted = {
        "branches": [],
        "turns": prompts,
        "dead": 0,
        "branches in digest": 0,
        "abandoned": [],
    }
    assert wanted == report_of(desk)
    assert 2 == len(desk.run("tree", A, "--json").json["boundaries"])
    assert "2 prompts" in next(row for row in desk.run("tree", A).lines if "compacted" in row)


def test_a_cleared_context_leaves_nothing_dead(desk: Desk) -> None:
    """A plan that is carried out with an empty context: what led to it was not left."""
    log = Script()
    turn(log, "Plan how to fix the hours.", "This is the plan.")
    turn(log, "Shorter.", "This is the short plan.")
    log.user(PLAN, parentUuid=None, planContent="# Cut the windows in UTC")
    turn(log, "Go on.", "Carried out.")
    desk.write_claude(log)
    seen = report_of(desk)
    messages = desk.run("show", A, "--as", "messages").json

    assert ([], 0, []) == (seen["branches"], seen["dead"], seen["abandoned"])
    assert 4 == len(seen["turns"])
    assert ["r11"] == desk.run("tree", A, "--json").json["cleared"]
    assert "context cleared" in desk.run("tree", A).out
    assert "context cleared" in (shown := desk.run("show", A).out)
    assert "2 prompts" in next(line for line in shown.splitlines() if "context cleared" in line)
    assert "This is the short plan." not in shown
    assert "This is the short plan." in desk.run("show", A, "--branch", "all").out
    assert PLAN == messages[0]["content"][0]["text"]


def test_a_hook_may_come_first_in_a_cleared_context(desk: Desk) -> None:
    """The record of a hook is then the one that goes on from nothing."""
    log = Script()
    turn(log, "Plan how to fix the hours.", "This is the plan.")
    turn(log, PLAN, "Carried out.", parentUuid=None)
    desk.write_claude(log)
    seen = report_of(desk)

    assert ([], 2, 0) == (seen["branches"], len(seen["turns"]), seen["dead"])


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_first_prompt_that_was_edited_is_left(desk: Desk, by_hand: bool) -> None:
    """A rewind to the start goes on from nothing as well; the client says so, or the words do."""
    log = Script()
    turn(log, "Fix the hours of the tide table.", "Done.")
    if by_hand:
        nowhere = "00000000-0000-0000-0000-000000000000"
        log.note("last-prompt", leafUuid=nowhere, explicit=True)
    second = "Write a poem." if by_hand else "Fix the hours of the tide table, quickly."
    log.user(second, parentUuid=None)
    log.say("Done.")
    desk.write_claude(log)
    seen = report_of(desk)

    assert ([second], 1) == (seen["turns"], len(seen["branches"]))
    assert 0 < seen["dead"]


def test_a_dead_line_of_many_turns_is_one_branch(desk: Desk) -> None:
    """Whatever the client wrote between its turns."""
    log = Script()
    base = turn(log, "Fix the hours.", "Done.")
    for number in range(9):
        turn(log, f"Wrong road {number}.", "Walked.")
        log.add("attachment", attachment={"type": "task_reminder"})
    summed_up(log, "0f000000-0000-4000-8000-00000000dead")
    turn(log, "Still the wrong road.", "Walked.")
    log.user("The other road.", parentUuid=base)
    log.say("Here.")
    desk.write_claude(log)
    seen = report_of(desk)

    assert 1 == len(seen["branches"])
    assert 1 == seen["branches in digest"]
    assert 1 == len(seen["abandoned"])
    assert ["Fix the hours.", "The other road."] == seen["turns"]
