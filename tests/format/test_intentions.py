"""What an assistant's words promise is told from what they merely mention, and deeds from looks.

How well this goes on whole conversations is measured in test_todos.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.format.intentions import (
    LATER,
    NEXT,
    NOW,
    THEN,
    EvidenceCall,
    Statement,
    Terms,
    aim,
    call_terms,
    statements,
    terms,
)


def due(text: str) -> list[tuple[str, str]]:
    """When something is due and what, as a text says."""
    return [(statement.due, statement.text) for statement in statements(text) if statement.due]


def intended(text: str) -> list[str]:
    """What a text promises."""
    return [what for _, what in due(text)]


def boxes(text: str) -> list[tuple[str, str]]:
    """Text and status of the boxes in a text."""
    return [(statement.text, statement.status) for statement in statements(text) if statement.boxed]


def bash(command: str) -> EvidenceCall:
    """A command as evidence."""
    return call_terms("Bash", command, ())


def edit(path: str, new: str = "x") -> EvidenceCall:
    """A change of a file as evidence."""
    return call_terms("Edit", f"{path}\n{new}", (path,))


def read(path: str) -> EvidenceCall:
    """A look at a file as evidence."""
    return call_terms("Read", path, (path,))


# --- check lists -------------------------------------------------------------------------------


def test_check_lists_of_every_style_are_read() -> None:
    """Dashes, stars, numbers, nesting."""
    text = (
        "Plan:\n\n- [ ] one\n  * [x] two\n    1. [ ] **three**\n2) [X] four\n+ [ ] five\n- [] six"
    )

    assert [
        ("one", "pending"),
        ("two", "done"),
        ("**three**", "pending"),
        ("four", "done"),
        ("five", "pending"),
    ] == boxes(text)


def test_check_lists_in_code_and_quotes_are_ignored() -> None:
    """A fence or a block quote shows a list, it does not make one."""
    text = "```md\n- [ ] a\n```\n~~~\n```\n- [ ] b\n~~~\n> - [ ] c\n\n- [ ] d\n```\n- [ ] e"

    assert [Statement("d", "pending", boxed=True)] == list(statements(text))


# --- intentions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "If you want, I'll publish it later.",
        "I'll add a dark theme next, if you like.",
        "Should I translate the messages later, or will you?",
        "We could also split the module later.",
        "I will never change the lock file later.",
        "I'm not going to touch the tests next.",
        "There is no need to regenerate the client later.",
        "The worker will retry later.",
        "Next.js is slow to start.",
        "The comment says “TODO: retry later”.",
        "TODO: none.",
        "I'll explain the change now.",
        "```\nTODO: in code\n```",
        "> I still need to sleep.",
        "| TODO: | a cell |",
    ],
)
def test_what_promises_nothing_is_no_intention(text: str) -> None:
    """Offers, conditions, questions, negations, descriptions, quotes and mere speech."""
    assert [] == due(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I'll fix the parser now.", [(NOW, "fix the parser")]),
        ("Let me also run the tests.", [(NOW, "run the tests")]),
        ("I'll rename the `tmp` module next.", [(NEXT, "rename the `tmp` module")]),
        ("Next up: the docs.", [(NEXT, "the docs")]),
        ("I still need to tag the release.", [(LATER, "tag the release")]),
        ("TODO: drop `legacy_auth`.", [(LATER, "drop `legacy_auth`")]),
        ("All that's left is to ship it.", [(LATER, "ship it")]),
        ("I'll squash the commits later.", [(LATER, "squash the commits")]),
        ("I haven't run it on Windows yet.", [(LATER, "I haven't run it on Windows yet")]),
        ("I'm leaving the docs for later.", [(LATER, "the docs")]),
        ("I'll fix it, then rerun it.", [(NOW, "fix it"), (THEN, "rerun it")]),
        ("It builds. After that, I'll run it.", [(THEN, "run it")]),
    ],
)
def test_an_intention_tells_what_is_due_and_when(
    text: str, expected: list[tuple[str, str]]
) -> None:
    """The action is bare of adverbs, the time decides how it may be settled."""
    assert expected == due(text)


def test_bullets_below_a_heading_of_remaining_work_are_due() -> None:
    """Each of them, up to the next paragraph; an offer among them is none."""
    text = (
        "## Remaining work\n\n- the Windows paths\n- `README.md`\n- more, if you like\n\n"
        "That is all.\n\n- a bullet of something else\n\nRemaining: none."
    )

    assert ["the Windows paths", "`README.md`"] == intended(text)


def test_apostrophes_of_both_kinds_are_understood() -> None:
    """Codex writes the typographic one."""
    assert ["squash the commits"] == intended("I\u2019ll squash the commits later.")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("Added the retry test.", "done"),
        ("I've written the retry test.", "done"),
        ("Done: retry test.", "done"),
        ("The retry test is in place.", "done"),
        ("✅ retry test", "done"),
        ("I won't add the retry test.", "dropped"),
        ("I decided against the retry test.", "dropped"),
        ("I tried and failed to add the retry test.", ""),
        ("The retry test is still not added.", ""),
        ("The retry test is slow.", ""),
    ],
)
def test_completion_is_told_from_giving_up_and_failure(text: str, status: str) -> None:
    """In any tense and order; a "not" or a "failed" says the opposite."""
    assert ([status] if status else []) == [statement.status for statement in statements(text)]


# --- terms -------------------------------------------------------------------------------------


def test_terms_are_names_stems_and_a_verb() -> None:
    """Names are compared by their last part, words by their stems, one verb for its synonyms."""
    assert Terms(frozenset({"limits.yaml"}), frozenset({"updat", "limit"}), "updat") == terms(
        "raising the limits in `conf/limits.yaml`"
    )
    assert terms("Tidied it") == terms("tidies it")


def test_an_aim_leaves_out_what_is_said_beside_it() -> None:
    """Time, purpose and reason are not the action."""
    assert terms("run the tests") == aim("run the tests once the build is green")


def test_the_same_verb_alone_is_not_enough() -> None:
    """Whoever adds something has not added everything."""
    wanted = aim("add a retry test for `fetch`")

    assert wanted.met(terms("Added the retry test for `fetch`", evidence=True))
    assert not wanted.met(terms("Added the retry test for `store`", evidence=True))
    assert not wanted.met(terms("Added it", evidence=True))
    assert 0.0 == wanted.covered_share(terms("Added it", evidence=True))


# --- calls as evidence -------------------------------------------------------------------------


def test_an_edit_of_the_named_file_fulfils() -> None:
    """The right file does, another does not, and looking at it does not either."""
    wanted = aim("raise the limit in `conf/limits.yaml`")

    assert edit("deploy/conf/limits.yaml").fulfils(wanted)
    assert not edit("limits.py").fulfils(wanted)
    assert not read("conf/limits.yaml").fulfils(wanted)


def test_a_patch_edits_the_files_it_names() -> None:
    """The files stand in the text of the call, not among its arguments."""
    patch = call_terms("apply_patch", "*** Begin Patch\n*** Update File: a/limits.yaml\n+x", ())

    assert patch.fulfils(aim("raise the limit in `limits.yaml`"))


def test_a_file_that_is_edited_for_another_reason_does_not_fulfil() -> None:
    """Where the intention names something in the file, the edit has to name it too."""
    wanted = aim("drop `legacy_auth` from `auth.py`")

    assert edit("auth.py", "- def legacy_auth(): ...").fulfils(wanted)
    assert not edit("auth.py", "def oauth(): ...").fulfils(wanted)


def test_to_edit_a_module_is_not_to_test_it() -> None:
    """A test that is owed is paid in a file of tests."""
    wanted = aim("add a test for `parser.py`")

    assert not edit("parser.py").fulfils(wanted)
    assert edit("tests/test_parser.py", "from parser.py import test").fulfils(wanted)


@pytest.mark.parametrize(
    "command", ["pytest -q", "npm test", "cargo test --all", "cd api && go test ./...", "make test"]
)
def test_a_test_run_fulfils_the_intention_to_run_the_tests(command: str) -> None:
    """Whatever the runner; another command does not."""
    wanted = aim("run the tests")

    assert bash(command).fulfils(wanted)
    assert not bash("ls tests").fulfils(wanted)
    assert not bash("make build").fulfils(wanted)


def test_the_named_command_fulfils() -> None:
    """Commands are compared as wholes."""
    wanted = aim("run `make docs`")

    assert bash("cd site && make docs").fulfils(wanted)
    assert not bash("make doctor").fulfils(wanted)


@pytest.mark.parametrize(
    ("call", "fitting"),
    [
        (edit("a.py"), {"fix the parser"}),
        (read("a.py"), {"check the parser"}),
        (bash("cat a.py"), {"check the parser"}),
        (bash("cargo build"), {"fix the parser", "check the parser", "push the branch"}),
        (call_terms("Task", "go", ()), {"fix the parser", "check the parser", "push the branch"}),
        (call_terms("TodoWrite", "[]", (), plans=True), {"update the task list"}),
    ],
)
def test_a_call_fits_what_its_kind_can_do(call: EvidenceCall, fitting: set[str]) -> None:
    """Looks are paid by looking, commands by commands; a subagent may do anything."""
    aims = {"fix the parser", "check the parser", "push the branch"}
    aims |= {"update the task list"} if "plan" in call.kinds else set()

    assert fitting == {text for text in aims if call.fits(aim(text))}


def test_keeping_a_list_fulfils_nothing() -> None:
    """To write down what is to be done is not to do it."""
    text = "raise the task limit in `limits.yaml`"
    listed = call_terms("TodoWrite", text, ("limits.yaml",), plans=True)

    assert listed.fits(aim(text))
    assert not listed.fulfils(aim(text))


# --- properties --------------------------------------------------------------------------------

WORDS = (
    "- [ ] a", "- [x] a", "```", "I'll add `x.py` next.", "TODO: b", "Added `x.py`.", "- c",
    "## Remaining", "then I'll run the tests", "\ud800", "“", "`", "I won't add `x.py`", "let me",
)  # fmt: skip
texts = st.text(st.characters()) | st.lists(st.sampled_from(WORDS), max_size=6).map("\n".join)


@given(texts, texts)
def test_any_text_gives_well_formed_statements_and_terms(text: str, command: str) -> None:
    """Nothing raises, only intentions and boxes are pending, and what fulfils also fits."""
    for statement in statements(text):
        assert statement.status in {"pending", "done", "dropped"}
        assert statement.due in {"", NOW, THEN, NEXT, LATER}
        assert statement.boxed or (statement.status == "pending") == bool(statement.due)
        call = bash(command)
        assert call.fits(aim(statement.text)) >= call.fulfils(aim(statement.text))
        assert 0.0 <= aim(statement.text).covered_share(terms(text, evidence=True)) <= 1.0


@pytest.mark.few(4)
@pytest.mark.parametrize("unit", ["I'll a b. ", "- [ ] x\n", "TODO: x, then y\n", "Fixed a. "])
def test_what_lies_beyond_the_bounds_is_not_read(unit: str) -> None:
    """Neither the rest of a long text nor that of a long line."""
    text = unit * ((1 << 17) // len(unit))
    line = text.replace("\n", " ")

    assert list(statements(text[: 1 << 16])) == list(statements(text))
    assert list(statements(line[: 1 << 12])) == list(statements(line))
