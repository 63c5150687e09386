"""`thence todos`: which promises of agents are listed, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agents.transcripts import Script
from tests.cli.desk import Desk

PROMISE = "I still need to translate the error messages."
TEXT = "translate the error messages"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine without sessions."""
    return Desk(tmp_path, monkeypatch)


def listed(desk: Desk, script: Script) -> list[str]:
    """Return the promises that the command lists after a sweep of one session."""
    desk.write_claude(script)
    desk.sweep()
    return [todo["text"] for todo in desk.run("todos", "--json").json]


def open_call(script: Script) -> None:
    """End a session at a call that nobody answered: it runs, or its process died."""
    script.call("c9", command="make all")


def edited(script: Script) -> None:
    """End a session in the middle of a turn, after an edit of another file."""
    script.call("c9", "Edit", file_path="src/a.py", old_string="a", new_string="b")
    script.result("c9", "The file src/a.py has been updated.")


def failed(script: Script) -> None:
    """End a session with a request that failed."""
    script.reply([{"type": "text", "text": "API Error: 500"}], isApiErrorMessage=True)


@pytest.mark.parametrize("end", [open_call, edited, failed])
def test_a_sentence_counts_while_a_session_runs_or_after_it_failed(
    desk: Desk, end: Callable[[Script], None]
) -> None:
    """What the last answer says is still to do is listed, whatever stopped the session."""
    script = Script()
    script.user("Go on.")
    script.reply([{"type": "text", "text": PROMISE}])
    end(script)

    assert [TEXT] == listed(desk, script)


def test_a_sentence_of_a_session_that_ended_well_is_not_listed(desk: Desk) -> None:
    """Closing words of finished work are an outlook, not a promise."""
    script = Script()
    script.user("Go on.")
    script.say(f"All tests pass. {PROMISE}")

    assert [] == listed(desk, script)


def test_a_sentence_of_an_earlier_turn_is_not_listed(desk: Desk) -> None:
    """Only the last answer of the last turn promises."""
    script = Script()
    script.user("Go on.")
    script.say(PROMISE)
    script.user("Then look at the parser.")
    script.say("The parser is in `src/parser.py`.")
    open_call(script)

    assert [] == listed(desk, script)


@pytest.mark.parametrize(
    "sentence", ["I still need to test.", "The error messages.", "Next: ship."]
)
def test_a_sentence_needs_a_verb_and_an_object(desk: Desk, sentence: str) -> None:
    """A verb alone, or a thing alone, says nothing that somebody could do later."""
    script = Script()
    script.user("Go on.")
    script.reply([{"type": "text", "text": sentence}])
    open_call(script)

    assert [] == listed(desk, script)


def test_a_sentence_that_a_later_call_fulfils_is_not_listed(desk: Desk) -> None:
    """The file it names was edited after it was said."""
    script = Script()
    script.user("Go on.")
    script.reply([{"type": "text", "text": "I still need to raise the limit in `limits.yaml`."}])
    script.call("c1", "Edit", file_path="limits.yaml", old_string="limit: 1", new_string="limit: 2")
    script.result("c1", "The file limits.yaml has been updated.")
    open_call(script)

    assert [] == listed(desk, script)


def test_entries_of_lists_come_before_sentences(desk: Desk) -> None:
    """Todo tools and check lists are explicit, so they come first, whatever was said first."""
    script = Script()
    script.user("Go on.")
    script.say("Plan:\n- [x] Read the parser\n- [ ] Write the manual")
    script.user("Go on.")
    script.reply([{"type": "text", "text": PROMISE}])
    script.call("c1", "TodoWrite", todos=[{"content": "Tag the release", "status": "pending"}])
    script.result("c1", "Todos have been modified.")
    open_call(script)

    assert ["Write the manual", "Tag the release", TEXT] == listed(desk, script)


def test_lists_of_a_session_that_ended_well_stay(desk: Desk) -> None:
    """An open entry of a list counts whatever the closing words are."""
    script = Script()
    script.user("Go on.")
    script.call("c1", "TodoWrite", todos=[{"content": "Tag the release", "status": "pending"}])
    script.result("c1", "Todos have been modified.")
    script.say(f"Done. {PROMISE}")

    assert ["Tag the release"] == listed(desk, script)
