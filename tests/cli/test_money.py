"""What sessions cost, from the user's end: what is unknown is said, what is a lower bound, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agents import rollouts
from tests.agents.transcripts import A, Script, usage
from tests.cli.desk import Desk
from thence.format.session_graph import UNDERSTATED

MODEL = "claude-sonnet-4-0"
WINDOW = 200_000  # of that model, in tokens


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine without sessions."""
    return Desk(tmp_path, monkeypatch)


def answered(bill: dict[str, Any], text: str = "Done.", **more: Any) -> Script:
    """A session with one answer and its bill."""
    script = Script()
    script.user("Go.")
    script.reply([{"type": "text", "text": text}], stop="end_turn", usage=bill, **more)
    return script


def cost(desk: Desk) -> dict[str, Any]:
    """What `cost --json` says."""
    answer = desk.run("cost", "--json").json
    assert isinstance(answer, dict)
    return answer


def bounds(desk: Desk) -> list[str]:
    """Why the sum of the only session is a lower bound."""
    (row,) = desk.run("ls", "--json").json
    assert isinstance(row, dict)
    return list(row["lower_bound"])


# -- tiers ----------------------------------------------------------------------------------


def test_a_tier_without_a_listed_price_is_unknown(desk: Desk) -> None:
    """A known model at `speed: fast` has no price; its tokens are named, and nothing is guessed."""
    bill = usage(40, speed="fast")
    desk.write_claude(answered(bill, model=MODEL))
    desk.sweep()

    assert cost(desk)["total"]["usd"] is None
    assert [(MODEL, 50)] == [(model["model"], model["tokens"]) for model in cost(desk)["unpriced"]]
    text = desk.run("cost").out
    assert f"50 tokens of {MODEL} (price unknown for this tier" in text.replace("\n  ", " ")
    assert "?" in desk.run("ls").out


def test_a_prompt_beyond_the_context_window_has_no_known_price(desk: Desk) -> None:
    """The list has rates for prompts of 200,000 tokens; a longer one was sent at other terms."""
    bill = usage(40, cache_read_input_tokens=WINDOW)
    desk.write_claude(answered(bill, model=MODEL))
    desk.sweep()

    assert cost(desk)["total"]["usd"] is None
    assert [MODEL] == [model["model"] for model in cost(desk)["unpriced"]]


def test_a_prompt_within_the_context_window_has_its_price(desk: Desk) -> None:
    """The near miss: exactly as long as the window."""
    bill = usage(40, cache_read_input_tokens=WINDOW - 10)
    desk.write_claude(answered(bill, model=MODEL))
    desk.sweep()

    assert cost(desk)["total"]["usd"] > 0
    assert [] == cost(desk)["unpriced"]


def test_a_model_that_no_list_has_is_said_to_be_unknown(desk: Desk) -> None:
    """Not the tier is unknown but the model."""
    desk.write_claude(answered(usage(40), model="harbour-9"))
    desk.sweep()

    assert ["no price known for this model"] == [model["why"] for model in cost(desk)["unpriced"]]


def test_a_model_of_which_some_responses_have_a_cost_is_not_said_to_have_none(desk: Desk) -> None:
    """The client states the cost of one response; of the other nobody knows it."""
    script = answered(usage(40), model="harbour-9")
    script.records[-1]["costUSD"] = 0.25
    script.user("And again.")
    script.reply([{"type": "text", "text": "Done."}], usage=usage(50), model="harbour-9")
    desk.write_claude(script)
    desk.sweep()
    answer = cost(desk)
    why = "their responses have no cost in the log, and the model no list price"

    assert 0.25 == answer["total"]["usd"]
    assert [("harbour-9", why)] == [(part["model"], part["why"]) for part in answer["unpriced"]]
    assert f"of harbour-9 ({why})" in " ".join(desk.run("cost").out.split())


# -- lower bounds ---------------------------------------------------------------------------


def test_output_that_is_plainly_too_small_is_a_lower_bound(desk: Desk) -> None:
    """Eight tokens for four thousand characters are the start of a stream, not a bill."""
    desk.write_claude(answered(usage(8), "a word or two " * 300, model=MODEL))
    desk.sweep()

    assert [UNDERSTATED] == bounds(desk)
    assert UNDERSTATED in " ".join(desk.run("cost").out.split())
    assert f"cost is a minimum: {UNDERSTATED}" in " ".join(
        desk.run("show", A, "--stats").out.split()
    )
    line = next(line for line in desk.run("ls").lines if A[:8] in line)
    assert line.rstrip().endswith("+")


def test_a_bill_that_is_completed_later_is_whole(desk: Desk) -> None:
    """Early records of a response hold less; the last one counts."""
    script = Script()
    script.user("Go.")
    text = {"type": "text", "text": "a word or two " * 300}
    script.reply([text], id="m1", usage=usage(8), model=MODEL)
    call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}}
    script.reply([call], id="m1", stop="tool_use", usage=usage(1200), model=MODEL)
    script.result("c1")
    script.reply([{"type": "text", "text": "Done."}], stop="end_turn", usage=usage(3), model=MODEL)
    desk.write_claude(script)
    desk.sweep()

    assert [] == bounds(desk)
    line = next(line for line in desk.run("ls").lines if A[:8] in line)
    assert "+" not in line


def test_a_codex_review_is_not_cut_off(desk: Desk) -> None:
    """The thread that was reviewed has no usage of its own; the reviewer's thread has it."""
    rollouts.Home(desk.codex).write(
        [
            rollouts.meta(),
            rollouts.started("t1"),
            rollouts.user("Review the change."),
            rollouts.finished("EnteredReviewMode", review="x"),
            rollouts.finished("ExitedReviewMode", review_output={}),
            rollouts.assistant("Two findings."),
            rollouts.completed("t1"),
        ]
    )
    desk.sweep()

    assert [] == bounds(desk)


def test_a_migrated_codex_thread_is_not_cut_off(desk: Desk) -> None:
    """A migration keeps the running total, but not behind each reply."""
    reply = rollouts.assistant("Done.")
    reply["payload"]["id"] = "item-2"
    rollouts.Home(desk.codex).write(
        [
            rollouts.meta(version="0.39.0"),
            rollouts.started("t1"),
            rollouts.user("Go."),
            rollouts.counted(rollouts.tokens(900, 30)),
            reply,
            rollouts.completed("t1"),
        ]
    )
    desk.sweep()

    assert [] == bounds(desk)


def test_a_codex_reply_that_was_cut_off_is_still_a_lower_bound(desk: Desk) -> None:
    """The near miss: killed before its usage was written."""
    rollouts.Home(desk.codex).write(
        [
            rollouts.meta(),
            rollouts.started("t1"),
            rollouts.user("Go."),
            rollouts.assistant("I look at it."),
        ]
    )
    desk.sweep()

    assert ["a response was cut off before its usage was written"] == bounds(desk)
