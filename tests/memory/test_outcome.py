"""Outcome and task: what each rule says; how often the rules are right, see test_endings."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.format.derived import judged
from thence.format.facts import Block, fact_of
from thence.format.output import Table
from thence.format.session_graph import SessionGraph
from thence.format.wording import (
    ANNOUNCEMENTS,
    CORRECTIONS,
    FAILURES,
    REPORTS,
    SUCCESS,
    THANKS,
    corrects,
    reports_fault,
    thanks,
)
from thence.memory.outcome import RULES, TASKS, TaskPattern, TaskTally, Verdict, judge, task_of
from thence.memory.readouts import readout_of
from thence.memory.session_timeline import SessionTimeline
from thence.testing import Draft


def timeline(draft: Draft) -> SessionTimeline:
    """The timeline of a made-up session."""
    facts = judged([fact_of(event, line=line) for line, event in enumerate(draft.events)])
    return SessionTimeline(readout_of(SessionGraph(f"thence:{draft.session}", facts)))


def tasks(draft: Draft, patterns: Sequence[TaskPattern] = TASKS) -> TaskTally:
    """The tasks that a made-up session names."""
    tally = TaskTally()
    tally.add(timeline(draft), patterns)
    return tally


def verdict(draft: Draft) -> Verdict:
    """How a made-up session is judged."""
    return judge(timeline(draft))


def asked(text: str = "Fix the clock.") -> Draft:
    """A session that begins with a prompt."""
    draft = Draft()
    draft.header()
    draft.prompt(text)
    return draft


def did(draft: Draft, call: str, text: str, *, failed: bool = False, **arguments: str) -> None:
    """One call and its result."""
    tool = arguments.pop("tool", "Bash")
    draft.reply(draft.call(call, tool, **arguments))
    draft.result(call, text, failed=failed)


# -- the rules ------------------------------------------------------------------------------


def test_an_answered_prompt_is_a_success() -> None:
    """A session that came to rest with an answer went well, as far as it shows."""
    draft = asked("What does the clock do?")
    draft.reply("It counts seconds.")

    assert ("success", "answered") == (verdict(draft).outcome, verdict(draft).basis)


def test_green_tests_a_commit_and_thanks_make_it_surer() -> None:
    """Each proof that the work was good is named; proven work is surer than an answer alone."""
    draft = asked()
    did(draft, "c1", "43 passed in 3.1s", command="pytest")
    did(draft, "c2", "[main 1234567] fix", command="git commit -m fix")
    draft.reply("Fixed and committed.")
    sure = verdict(draft)
    draft = asked("What does the clock do?")
    draft.reply("It counts seconds.")

    assert ("success", "answered, proven") == (sure.outcome, sure.basis)
    assert 3 == len(sure.reasons)
    assert sure.confidence > verdict(draft).confidence


def test_a_session_without_a_prompt_is_unknown() -> None:
    """Where nothing was asked there is nothing to judge."""
    draft = Draft()
    draft.header()

    assert "unknown" == verdict(draft).outcome


def test_an_empty_session_is_judged_as_well() -> None:
    """No session makes the judge raise."""
    assert "unknown" == judge(SessionTimeline(readout_of(SessionGraph("thence:none", [])))).outcome


def test_an_unanswered_prompt_is_unknown() -> None:
    """A log that ends at a prompt does not show what became of it."""
    assert "unknown" == verdict(asked()).outcome


def test_an_open_call_is_unknown() -> None:
    """A log that ends at a call was cut in mid-turn, whatever was said before it."""
    draft = asked()
    draft.reply("Starting.", draft.call("c1", "Bash", command="sleep 300"))

    assert "unknown" == verdict(draft).outcome
    assert "sleep 300" in verdict(draft).reasons[0]


def test_an_interruption_is_abandoned_unless_somebody_went_on() -> None:
    """What a human cut short counts only while nothing was said after it."""
    draft = asked()
    draft.reply("Looking.", draft.call("c1", "Bash", command="ls"))
    draft.result("c1", "a.py")
    draft.add("interrupted", {"by": "user"})

    assert "abandoned" == verdict(draft).outcome

    draft.prompt("Go on.")
    draft.reply("All of it is fixed.")

    assert "success" == verdict(draft).outcome


def test_an_end_without_closing_words_is_unknown() -> None:
    """A log that stops at a result stops in the middle of a turn, whatever the result."""
    green, edited, looked = asked(), asked(), asked()
    did(green, "c1", "43 passed in 3.1s", command="pytest")
    did(edited, "c1", "ok", tool="Edit", file_path="a.py", old_string="a", new_string="b")
    did(looked, "c1", "a.py", command="ls")

    assert ["unknown"] * 3 == [verdict(draft).outcome for draft in (green, edited, looked)]


def test_a_call_that_was_not_allowed_fails_the_session() -> None:
    """What a rule refused was not done, whatever the agent says after it."""
    draft = asked("Push it.")
    did(draft, "c1", "This command requires approval", failed=True, command="git push")
    draft.reply("Pushed.")

    assert "fail" == verdict(draft).outcome


def test_a_refusal_that_was_made_good_is_none() -> None:
    """When a later call of the same tool went well the work was done in another way."""
    draft = asked("Push it.")
    did(draft, "c1", "This command requires approval", failed=True, command="git push -f")
    did(draft, "c2", "main -> main", command="git push")
    draft.reply("Pushed.")

    assert "success" == verdict(draft).outcome


def test_what_a_human_refused_is_unknown() -> None:
    """A refusal is a decision; what came of it the session does not show, unless it asks on."""
    draft = asked("Fix it.")
    no = "The user doesn't want to proceed with this tool use."
    did(draft, "c1", no, failed=True, command="rm -rf build")
    asks = Draft()
    asks.events[:] = draft.events
    asks.tip = draft.tip
    draft.reply("I left the folder alone.")
    asks.reply("There are other ways. Which do you prefer?")

    assert ("unknown", "waiting") == (verdict(draft).outcome, verdict(asks).outcome)


def test_red_tests_at_the_end_fail_the_session() -> None:
    """The last run of the tests is stronger than the closing words."""
    draft = asked()
    did(draft, "c1", "2 failed, 41 passed in 3.1s", failed=True, command="pytest")
    draft.reply("Here is what I found.")

    assert "fail" == verdict(draft).outcome


def test_red_tests_that_were_worked_on_only_cost_confidence() -> None:
    """An edit after the last red run may have mended it; nobody knows."""
    draft = asked()
    did(draft, "c1", "2 failed, 41 passed in 3.1s", failed=True, command="pytest")
    did(draft, "c2", "ok", tool="Edit", file_path="a.py", old_string="a", new_string="b")
    draft.reply("Fixed the clock.")

    assert ("success", "answered, in doubt") == (verdict(draft).outcome, verdict(draft).basis)


def test_tests_that_turned_green_do_not_count_as_red() -> None:
    """Only the last run of each runner counts."""
    draft = asked()
    did(draft, "c1", "2 failed, 41 passed in 3.1s", failed=True, command="pytest")
    did(draft, "c2", "43 passed in 3.1s", command="pytest")
    draft.reply("Here is what I found.")

    assert "success" == verdict(draft).outcome


def test_closing_words_that_tell_of_a_failure_are_believed() -> None:
    """An agent that says it did not get there did not."""
    draft = asked("Run the long job.")
    draft.reply("It was started but I saw no end.")

    assert "fail" == verdict(draft).outcome


def test_a_request_that_died_of_an_error_failed() -> None:
    """An error of the API in the place of an answer is a failure."""
    draft = asked()
    block = Block("error", "system", "API Error: 400", "API Error: 400")
    fact = fact_of(draft.events[-1], line=9)
    changed = type(fact)(node=fact.node, type="error", ts=fact.ts, blocks=(*fact.blocks, block))

    assert "fail" == judge(SessionTimeline(readout_of(SessionGraph("thence:x", [changed])))).outcome


def test_work_that_was_only_announced_is_unknown() -> None:
    """Saying is not doing."""
    draft = asked("Add rate limiting.")
    draft.reply("I'll add rate limiting to the API.")

    assert "unknown" == verdict(draft).outcome


def test_advice_on_an_error_that_nobody_tried_is_unknown() -> None:
    """The human brought an error back, and the session ends with words."""
    draft = asked("How do I install it?")
    draft.reply("Run brew tap.")
    draft.prompt("brew tap local/test\nError: Tap local/test remote mismatch.")
    draft.reply("Then use the path of the file.")

    assert "unknown" == verdict(draft).outcome


def test_what_lies_on_a_dead_branch_does_not_count() -> None:
    """Only the live line is judged."""
    draft = asked()
    reply = draft.reply("It counts seconds.")
    draft.prompt("Push it.")
    did(draft, "c1", "This command requires approval", failed=True, command="git push")
    draft.reply("I could not.")
    draft.rewind(reply)
    draft.prompt("Thanks!")
    draft.reply("You are welcome.")

    assert "success" == verdict(draft).outcome


def test_every_rule_says_what_it_looks_for() -> None:
    """The rules are the documentation: each has a name and a sentence."""
    assert all(rule.__doc__ for rule in RULES)


@pytest.mark.parametrize("table", [FAILURES, ANNOUNCEMENTS, CORRECTIONS, REPORTS, THANKS])
def test_wordings_match_what_they_should_and_nothing_near_it(table: Table) -> None:
    """Every row matches its example and not its near miss."""
    wrong = [
        row.name
        for row, pattern in table.each
        if pattern.match(row.yes) is None or pattern.match(row.no) is not None
    ]

    assert [] == wrong


def test_corrections_are_found_in_any_dress() -> None:
    """Case, quotes and typographic apostrophes do not matter; thanks are no correction."""
    assert "no" == corrects("> No, that\u2019s the other file")
    assert "not" == corrects("That\u2019s not what I asked for.")
    assert "not" == corrects("Hmm, sorry, that isn\u2019t right")
    assert corrects("Great, now the docs") is None
    assert "still" == reports_fault("OK but it still fails")
    assert reports_fault("Add a test that fails") is None
    assert thanks("Perfect! Now commit it.")
    assert not thanks("perfectly normal question")
    assert SUCCESS.search("All 43 tests pass")


# -- tasks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("Do AGENTIC-WP-0002-T01 please", "AGENTIC-WP-0002-T01"),
        ("ENT-109: text output", "ENT-109"),
        ("fix issue-123 now", "#123"),
        ("see https://example.org/a/b/pull/757/changes", "#757"),
        ("closes #42", "#42"),
        ("keep UTF-8 and SHA-256 and [Image #1]", None),
        ("colour #333333", None),
        ("version 1.2-3 of GPT-4", None),
    ],
)
def test_a_task_is_found_by_how_it_is_named(text: str, ref: str | None) -> None:
    """Tickets, work packages and issues are found; standards and pictures are not."""
    task = task_of(tasks(asked(text)), branch=None, cwd=None)

    assert ref == (task.ref if task else None)


def test_the_branch_is_asked_before_the_prompt_and_commits_last() -> None:
    """The place that somebody chose with most care comes first."""
    draft = asked("Work on ABC-2")
    did(draft, "c1", "done", command="git commit -m 'ABC-4 clock'")
    draft.reply("Done.")
    seen = tasks(draft)
    branch = task_of(seen, branch="alex/ent-109-text-output", cwd="/w/ABC-3")
    prompt = task_of(seen, branch="main", cwd="/w/ABC-3")
    plain = asked("Work")
    did(plain, "c1", "done", command="git commit -m 'ABC-4 clock'")
    commit = task_of(tasks(plain), branch="fix-12", cwd="/w/clock")
    folder = task_of(tasks(plain), branch=None, cwd="/w/ABC-3")

    assert [("ENT-109", "branch"), ("ABC-2", "prompt"), ("ABC-4", "commit"), ("ABC-3", "cwd")] == [
        (task.ref, task.found_in) for task in (branch, prompt, commit, folder) if task
    ]


def test_patterns_can_be_replaced() -> None:
    """Who names tasks in another way says so, and only that counts."""
    mine = [TaskPattern("story", r"\bstory (\d+)\b", r"S\1")]
    task = task_of(tasks(asked("ABC-1 is story 7"), mine), branch="ent-9", cwd=None, patterns=mine)

    assert "S7" == (task.ref if task else None)
    assert {"work package", "ticket", "issue", "number"} == {pattern.name for pattern in TASKS}
