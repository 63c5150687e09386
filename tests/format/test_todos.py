"""Todos are found in the conversation itself, whichever agent wrote it, and never invented.

The intentions are measured on planted conversations (`tests/data/todos/planted.json`), written
before the patterns: patterns may be tuned on the split `tune` only, `held` tells how they fare on
sentences they were not made for.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from thence.format.todos import Step, Todo, known_list, pending_todos, todos
from thence.format.tools import BUILT_IN

PLANTED = Path(__file__).parents[1] / "data" / "todos" / "planted.json"
STATUSES = {"pending", "in_progress", "done", "dropped"}
OPEN = {"pending", "in_progress"}
ORIGINS = {"tool", "checklist", "intention"}

Finder = Callable[[list[Step]], list[Todo]]


def user(text: str) -> dict[str, Any]:
    """Something the user says."""
    return {"role": "user", "text": text}


def says(text: str) -> dict[str, Any]:
    """Something the assistant says."""
    return {"role": "assistant", "text": text}


def call(tool: str, arguments: Any, result: Any = None, *, failed: bool = False) -> dict[str, Any]:
    """Something the assistant does."""
    return {
        "role": "assistant",
        "tool": tool,
        "input": arguments,
        "result": result,
        "failed": failed,
    }


def bash(command: str, *, failed: bool = False) -> dict[str, Any]:
    """A command."""
    return call("Bash", {"command": command}, failed=failed)


def edit(path: str, new: str = "x") -> dict[str, Any]:
    """A change of a file."""
    return call("Edit", {"file_path": path, "old_string": "", "new_string": new})


def chain(*parts: dict[str, Any]) -> list[Step]:
    """Steps with ids s1, s2 and so on."""
    return [Step(id=f"s{n}", **part) for n, part in enumerate(parts, 1)]


def statuses(*parts: dict[str, Any]) -> dict[str, str]:
    """Text and status of every todo of a chain."""
    return {todo.text: todo.status for todo in todos(chain(*parts))}


def open_texts(*parts: dict[str, Any]) -> list[str]:
    """What nothing in a chain has settled, whoever said it and when."""
    return [todo.text for todo in todos(chain(*parts)) if todo.status in OPEN]


def pending_texts(*parts: dict[str, Any], ended_well: bool = False) -> list[str]:
    """What is shown as still to be done in a chain."""
    return [todo.text for todo in pending_todos(chain(*parts), ended_well=ended_well)]


# --- the planted conversations -----------------------------------------------------------------


class Score(NamedTuple):
    """How a finder fares on one split."""

    precision: float
    recall: float
    closed: float


def planted(split: str = "") -> list[dict[str, Any]]:
    """The planted conversations, all or those of a split."""
    cases: list[dict[str, Any]] = json.loads(PLANTED.read_text(encoding="utf-8"))
    return [case for case in cases if split in ("", case["split"])]


def score(split: str, find: Finder) -> Score:
    """Precision and recall of what is pending, and the share of the fulfilled seen as closed.

    Positive is an intention that is not fulfilled. Every other pending todo is a false positive.
    """
    hits = reported = wanted = closed = fulfilled = 0
    for case in planted(split):
        candidates = find([Step(**step) for step in case["steps"]])
        about = [
            todo
            for todo in candidates
            if todo.opened_by == case.get("opened_by") and case["expect"] in todo.text.casefold()
        ]
        reported += sum(todo.status in ("pending", "in_progress") for todo in candidates)
        if case["kind"] == "open":
            wanted += 1
            hits += any(todo.status in ("pending", "in_progress") for todo in about)
        if case["kind"] == "closed":
            fulfilled += 1
            closed += any(
                todo.status == "done" and todo.closed_by in case["closed_by"] for todo in about
            )
    return Score(hits / max(reported, 1), hits / wanted, closed / fulfilled)


@pytest.mark.parametrize(
    ("split", "floor"),
    [("tune", Score(0.9, 0.9, 0.9)), ("held", Score(0.9, 0.8, 0.9))],
)
def test_planted_intentions_are_told_apart(split: str, floor: Score) -> None:
    """Open intentions are reported, fulfilled ones closed by the right step, the rest ignored."""
    got = score(split, todos)
    sys.stdout.write(
        f"\n{split}: precision {got.precision:.2f}, recall {got.recall:.2f},"
        f" fulfilled ones recognised {got.closed:.2f}\n"
    )

    assert [] == [name for name, low in floor._asdict().items() if getattr(got, name) < low]


def test_score_sees_a_finder_that_is_silent_and_one_that_reports_everything() -> None:
    """The measure itself can fail: neither silence nor noise reaches the floors."""

    def noisy(steps: list[Step]) -> list[Todo]:
        return [Todo(s.text.casefold(), "pending", "intention", s.id) for s in steps if s.text]

    silent = score("held", lambda _: [])
    noise = score("held", noisy)

    assert (0.0, 0.0, 0.0) == silent
    assert noise.precision < 0.25
    assert 0.0 == noise.closed


def test_planted_set_is_balanced_and_labelled() -> None:
    """Twenty sentences per split, half of them fulfilled, and as many distractors as promised."""
    counts: dict[tuple[str, str], int] = {}
    for case in planted():
        counts[case["split"], case["kind"]] = counts.get((case["split"], case["kind"]), 0) + 1
        texts = {step["id"]: step.get("text", "") for step in case["steps"]}
        where = case.get("opened_by")

        assert case["sentence"] in (texts[where] if where else "\n".join(texts.values()))

    kinds = {"open": 10, "closed": 10, "distractor": 14}

    assert {(s, k): n for s in ("tune", "held") for k, n in kinds.items()} == counts
    assert len(planted()) == len({case["sentence"] for case in planted()})


# --- the tools of Claude Code ------------------------------------------------------------------


def todo_write(*rows: Any, **more: Any) -> dict[str, Any]:
    """Claude's whole list; a row is (content, status), or given as it is."""
    todos = [
        {"content": row[0], "status": row[1], "activeForm": "..."} if type(row) is tuple else row
        for row in rows
    ]
    return call("TodoWrite", {"todos": todos}, **more)


def test_todo_write_replaces_the_whole_list() -> None:
    """A row follows its text from list to list; an open row that vanishes was given up."""
    got = todos(
        chain(
            todo_write(("Read", "in_progress"), ("Edit", "pending"), ("Ship", "pending")),
            todo_write(("Read", "completed"), ("Edit", "in_progress")),
        )
    )

    assert [
        Todo("Read", "done", "tool", "s1", "s2", "read"),
        Todo("Edit", "in_progress", "tool", "s1", None, "edit"),
        Todo("Ship", "dropped", "tool", "s1", "s2", "ship"),
    ] == got


def test_todo_write_reopens_what_is_listed_as_pending_again() -> None:
    """The todo stays the same one, and is no longer closed by anybody."""
    got = todos(chain(todo_write(("Test", "completed")), todo_write(("Test", "pending"))))

    assert [Todo("Test", "pending", "tool", "s1", None, "test")] == got


def test_namesakes_in_one_list_are_two_todos() -> None:
    """Rows of the same text are told apart by their place."""
    rows = ("Run tests", "completed"), ("Fix", "pending"), ("Run tests", "pending")
    got = todos(chain(todo_write(*rows), todo_write(*rows)))

    assert ["done", "pending", "pending"] == [todo.status for todo in got]
    assert ["run tests", "fix", "run tests#2"] == [todo.key for todo in got]


def test_old_todo_write_keeps_a_reworded_row_by_its_id() -> None:
    """Rows with ids keep their identity through a new wording, but not through a new list."""
    got = statuses(
        todo_write({"id": "1", "content": "Add tests", "status": "pending", "priority": "high"}),
        todo_write({"id": "1", "content": "Add tests for seek", "status": "completed"}),
        todo_write({"id": "1", "content": "Write the docs", "status": "pending"}),
        todo_write({"id": "1", "content": "Cut a release", "status": "pending"}),
    )

    assert {
        "Add tests for seek": "done",
        "Write the docs": "dropped",
        "Cut a release": "pending",
    } == got


def test_a_row_that_is_a_bare_string_is_pending() -> None:
    """Seen in the wild: a row without its object is kept rather than lost."""
    assert {"broken": "pending", "whole": "done"} == statuses(
        todo_write("broken", ("whole", "completed"), None, 7, [])
    )


def test_a_failed_call_changes_nothing() -> None:
    """Neither a list nor a task nor evidence comes from a call that failed."""
    parts = (todo_write(("Read", "pending")), says("I still need to run the tests."))
    failed = (
        todo_write(failed=True),
        call("TaskCreate", {"subject": "Ship"}, failed=True),
        bash("pytest -q", failed=True),
    )

    assert todos(chain(*parts)) == todos(chain(*parts, *failed))


def test_a_list_that_is_no_list_changes_nothing() -> None:
    """A malformed list does not count as an empty one."""
    first = todo_write(("Read", "pending"))

    assert {"Read": "pending"} == statuses(first, call("TodoWrite", {"todos": "soon"}))
    assert {"Read": "dropped"} == statuses(first, call("TodoWrite", {"todos": []}))


@pytest.mark.parametrize(
    "result",
    [
        {"task": {"id": "7", "subject": "Ship", "description": "it"}},
        "Task #7 created successfully: Ship",
        [{"type": "text", "text": "Task #7 created successfully: Ship"}],
        '{"task": {"id": 7}}',
    ],
)
def test_a_task_gets_its_id_from_the_result(result: Any) -> None:
    """Updates find the task by the id the tool handed out, whatever the shape of the result."""
    got = todos(
        chain(
            call("TaskCreate", {"subject": "Ship", "description": "it"}, result),
            call("TaskUpdate", {"taskId": "7", "status": "completed"}, {"success": True}),
        )
    )

    assert [Todo("Ship", "done", "tool", "s1", "s2", "7")] == got


def test_a_task_whose_result_was_lost_is_counted_up() -> None:
    """Ids are handed out from 1 upwards, so an update still finds its task."""
    assert {"A": "pending", "B": "in_progress"} == statuses(
        call("TaskCreate", {"subject": "A"}),
        call("TaskCreate", {"subject": "B"}),
        call("TaskUpdate", {"taskId": 2, "status": "in_progress"}),
    )


def test_task_update_renames_deletes_and_fails() -> None:
    """A new subject renames, `deleted` drops, a refused or unknown update changes nothing."""
    made = [call("TaskCreate", {"subject": name}, f"Task #{name} created") for name in "ABC"]

    assert {"A, better": "pending", "B": "dropped", "C": "pending"} == statuses(
        *made,
        call("TaskUpdate", {"taskId": "A", "subject": "A, better"}),
        call("TaskUpdate", {"taskId": "B", "status": "deleted"}),
        call("TaskUpdate", {"taskId": "C", "status": "completed"}, {"success": False}),
        call("TaskUpdate", {"taskId": "Z", "status": "in_progress"}),
    )


def test_an_id_used_again_is_a_new_task() -> None:
    """A chain that runs through two sessions numbers its tasks from 1 twice."""
    assert {"of session A": "done", "of session B": "pending"} == statuses(
        call("TaskCreate", {"subject": "of session A"}, "Task #1 created successfully"),
        call("TaskUpdate", {"taskId": "1", "status": "completed"}),
        call("TaskCreate", {"subject": "of session B"}, "Task #1 created successfully"),
    )


@pytest.mark.parametrize(
    "result",
    [
        {"tasks": [{"id": "1", "subject": "Read", "status": "completed"}, {"id": "2"}, None]},
        "#1 [completed] Read\n#2 [whatever]",
        [{"type": "text", "text": "#1 [completed] Read [blocked by #2]"}],
    ],
)
def test_a_task_list_tells_of_tasks_made_before_the_chain(result: Any) -> None:
    """What TaskList shows is known, even if its creation is not part of the chain."""
    got = pending_todos(chain(call("TaskList", {}, result)))
    seen = todos(chain(call("TaskList", {}, result)))

    assert [] == got
    assert ["1"] == [todo.key for todo in seen]


# --- the tools of Codex and Grok ---------------------------------------------------------------


@pytest.mark.parametrize("form", [lambda plan: plan, json.dumps])
def test_update_plan_replaces_the_plan_in_both_forms(form: Callable[[Any], Any]) -> None:
    """Codex logs the arguments as a JSON string, its app server as an object."""
    first = {"plan": [{"step": "fix", "status": "in_progress"}, {"step": "test", "status": "x"}]}
    last = {"explanation": "done", "plan": [{"step": "fix", "status": "completed"}]}

    assert {"fix": "in_progress", "test": "pending"} == statuses(call("update_plan", form(first)))
    assert {"fix": "done", "test": "dropped"} == statuses(
        call("update_plan", form(first)), call("update_plan", form(last))
    )


def grok(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Grok's list."""
    return call("todo_write", {"todos": list(rows), **more})


def test_grok_merges_unless_told_otherwise() -> None:
    """Rows that are not named stay; a row may be named by its id alone."""
    first = grok(
        {"id": "1", "content": "fix", "status": "in_progress"},
        {"id": "2", "content": "test", "status": "pending"},
    )
    update = {"id": "1", "status": "completed"}

    assert {"fix": "done", "test": "pending"} == statuses(first, grok(update))
    assert {"fix": "done", "test": "pending"} == statuses(first, grok(update, merge=True))
    assert {"fix": "done", "test": "dropped"} == statuses(first, grok(update, merge=False))
    assert {"fix": "pending", "test": "dropped"} == statuses(
        first, grok({"id": "1", "status": "pending"}, {"id": "2", "status": "cancelled"})
    )


def test_groks_plan_repeats_the_list_and_adds_nothing() -> None:
    """The plan update after a todo_write has no ids, but its rows are the same todos."""
    plan = {"entries": [{"content": "fix it all", "priority": "medium", "status": "completed"}]}
    got = todos(
        chain(
            grok({"id": "1", "content": "fix it", "status": "pending"}),
            grok({"id": "1", "content": "fix it all", "status": "completed"}),
            call("plan", plan),
        )
    )

    assert [Todo("fix it all", "done", "tool", "s1", "s2", "1")] == got
    assert {"fix it": "dropped", "fix it all": "done"} == statuses(
        grok({"id": "1", "content": "fix it", "status": "pending"}), call("plan", plan)
    )


def test_a_plan_taken_over_from_another_agent_is_not_doubled() -> None:
    """Codex naming a row of Claude's list means that row; Claude's others stay open."""
    assert {"parse": "done", "Print": "pending"} == statuses(
        todo_write(("Parse", "pending"), ("Print", "pending")),
        call("update_plan", {"plan": [{"step": "parse", "status": "completed"}]}),
    )


# --- check lists -------------------------------------------------------------------------------


def test_the_check_list_of_the_user_is_not_the_agents() -> None:
    """The same list makes todos only where the agent wrote it."""
    text = "Plan:\n\n- [ ] one\n  * [x] two"

    assert {"one": "pending", "two": "done"} == statuses(says(text))
    assert {} == statuses(user(text))


def test_a_ticked_box_closes_and_an_empty_one_reopens() -> None:
    """The same item is the same todo, whatever its emphasis and closing punctuation."""
    first = says("- [ ] Wire `load`.\n- [ ] Ship")
    ticked = says("- [x] **Wire load**\n- [ ] Ship")
    got = todos(chain(first, ticked))

    assert [("done", "s2"), ("pending", None)] == [(t.status, t.closed_by) for t in got]
    assert ["Wire `load`.", "Ship"] == open_texts(first, ticked, says("- [ ] Wire `load`"))


# --- intentions --------------------------------------------------------------------------------


def test_an_edit_of_the_named_file_fulfils() -> None:
    """The right file closes, another does not, and looking at it does not either."""
    announcement = says("I still need to raise the limit in `conf/limits.yaml`.")
    got = todos(chain(announcement, edit("deploy/conf/limits.yaml")))

    assert [("done", "s2")] == [(todo.status, todo.closed_by) for todo in got]
    for other in (edit("limits.py"), call("Read", {"file_path": "conf/limits.yaml"})):
        assert ["raise the limit in `conf/limits.yaml`"] == open_texts(announcement, other)


def test_an_announcement_made_good_in_its_turn_is_no_todo() -> None:
    """What was said and done at once leaves no trace at all."""
    announcement = says("I'll fix the parser now.")

    assert [] == todos(chain(announcement, edit("src/other.py")))
    assert [] == todos(chain(announcement | edit("src/other.py")))


def test_an_announcement_cut_short_is_pending() -> None:
    """Nothing was done, or only looked at, before the user or a crash interrupted."""
    announcement = says("I'll fix the parser now.")
    look = call("Read", {"file_path": "src/parser.py"})
    for cut in ((), (look,), (look, user("[Request interrupted by user]"))):
        assert ["fix the parser"] == open_texts(announcement, *cut)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([user("go"), says("I still need to add a test for `fetch`.")], 1),
        ([says("I still need to add a test for `fetch`."), says("The parser is fast.")], 0),
        ([says("I still need to add a test for `fetch`."), user("and now?")], 0),
        ([says("I'll add a test for `fetch`."), user("[Request interrupted by user]")], 1),
        ([says("I'll add a test for `fetch`."), edit("tests/fetch.py", "test fetch")], 0),
        ([says("I still need to test.")], 0),
    ],
)
def test_only_the_last_answer_of_the_last_turn_promises(
    parts: list[dict[str, Any]], expected: int
) -> None:
    """With a verb and an object, and unless a call after it fulfils it."""
    assert expected == len(pending_texts(*parts))


def test_words_of_a_session_that_ended_well_promise_nothing() -> None:
    """Its lists still do: of a tool and of boxes in any answer."""
    parts = (
        says("- [x] Add the flag\n- [ ] Write the manual"),
        todo_write(("Translate error messages", "pending")),
        says("Done. I still need to add a test for `fetch`."),
    )

    assert ["Write the manual", "Translate error messages"] == pending_texts(
        *parts, ended_well=True
    )
    assert 3 == len(pending_texts(*parts))


def test_an_account_at_the_end_of_the_turn_settles_its_announcements() -> None:
    """The agent looked, and then said why there was nothing to fix."""
    look = call("Read", {"file_path": "src/parser.py"})
    account = says("The parser is right as it stands.")

    announced = says("I'll fix the parser now."), look, account

    assert [] == todos(chain(*announced))
    assert [] == todos(chain(*announced, user("ok"), says("Ready for the next one."), look))
    assert 1 == len(open_texts(says("I still need to fix the parser."), look, account))


def test_what_comes_next_is_only_the_very_next_call() -> None:
    """With something else said in between, a call has to share words with it."""
    announcement = says("I'll rename the `tmp` module next.")

    assert [] == open_texts(announcement, edit("any.py"))
    assert 1 == len(open_texts(announcement, says("The lock comes first."), edit("any.py")))


def test_a_command_that_was_announced_is_not_settled_by_an_account() -> None:
    """Commands leave a trace; without it, nothing was run."""
    announcement = says("I'm inlining the hash. After that, I'll run the benchmarks.")

    assert ["run the benchmarks"] == open_texts(
        announcement, edit("hash.rs"), says("It is inlined.")
    )


def test_what_comes_second_waits_for_its_own_evidence() -> None:
    """A push that comes second is not fulfilled by the commit that comes first."""
    announcement = says("I'm committing first, then I'll push the branch.")

    assert ["push the branch"] == open_texts(announcement, bash("git commit -am x"))
    assert [] == open_texts(announcement, bash("git commit -am x"), bash("git push"))


@pytest.mark.parametrize(
    "text",
    [
        "Added the retry test for `fetch`.",
        "I've written the retry test for `fetch`.",
        "Done: retry test for `fetch`.",
        "- [x] Add the retry test for `fetch`",
        "The retry test for `fetch` is in place.",
    ],
)
def test_a_statement_of_completion_fulfils(text: str) -> None:
    """In any tense and order, as long as it is about the same thing."""
    announcement = says("We should also add a retry test for `fetch`.")

    assert [] == open_texts(announcement, user("go on"), says(text))
    assert 1 == len(open_texts(announcement, user("go on"), says(text.replace("fetch", "store"))))


def test_a_statement_that_it_is_not_done_does_not_fulfil() -> None:
    """The same words with a "not" or a "failed" say the opposite."""
    announcement = says("We should also add a retry test for `fetch`.")
    for text in (
        "I tried and failed to add a retry test for `fetch`.",
        "The retry test for `fetch` was dropped from CI and is still not added.",
    ):
        assert 1 == len(open_texts(announcement, says(text)))


def test_a_todo_ticked_off_in_the_tool_fulfils_the_intention() -> None:
    """Said in prose, done on the list: both are closed."""
    announcement = says("I still need to translate the error messages.")
    listed = todo_write(("Translate error messages", "completed"))

    assert [] == open_texts(announcement, listed)


def test_what_is_on_a_list_is_not_reported_again_from_prose() -> None:
    """The row of the tool stands; the prose about it adds nothing."""
    row = todo_write(("Translate the error messages", "pending"))

    assert ["Translate the error messages"] == open_texts(
        row, says("I still need to translate the error messages.")
    )


def test_an_intention_said_twice_is_one_until_it_is_done() -> None:
    """Said again while open, it is the same; said again when done, it is a new one."""
    announcement = says("I still need to tag the release.")
    got = todos(chain(announcement, announcement, bash("git tag v1"), announcement))

    assert [("s1", "done"), ("s4", "pending")] == [(t.opened_by, t.status) for t in got]


def test_an_intention_given_up_is_dropped() -> None:
    """The agent takes back what it said."""
    announcement = says("I still need to rename the `tmp` module.")

    assert {"rename the `tmp` module": "dropped"} == statuses(
        announcement, says("On reflection I won't rename the `tmp` module.")
    )


# --- properties --------------------------------------------------------------------------------

KEYS = "todos plan entries content step subject status id task tasks taskId merge file_path command"
TOOLS = (
    "TodoWrite todo_write plan update_plan TaskCreate TaskUpdate TaskList TaskGet Bash Edit exec"
)
WORDS = (
    "- [ ] a", "- [x] a", "```", "I'll add `x.py` next.", "TODO: b", "Added `x.py`.", "- c",
    "## Remaining", "then I'll run the tests", "\ud800", "“", "`", "I won't add `x.py`", "let me",
    "pending", '{"todos": [{"content": "d"}]}', '{"plan": [1]}', "[" * 2000,
)  # fmt: skip

anything: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=20)
    | st.lists(st.sampled_from(WORDS), max_size=4).map("\n".join),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS.split()) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)
wild_steps = st.lists(
    st.builds(
        Step,
        id=anything,
        role=st.sampled_from(["assistant", "user", "tool"]) | anything,
        text=anything,
        tool=st.sampled_from(["", *TOOLS.split()]) | anything,
        input=anything,
        result=anything,
        failed=st.booleans() | anything,
    ),
    max_size=8,
)


@pytest.mark.slow
@given(wild_steps)
@example([Step("1", "assistant", "", "update_plan", "[" * 100_000)])
def test_nothing_raises_and_pending_is_part_of_todos(steps: list[Step]) -> None:
    """Whatever the data, every answer is well formed and what is pending is open."""
    everything = todos(steps)

    assert OPEN >= {todo.status for todo in pending_todos(steps)}
    for todo in everything:
        assert todo.status in STATUSES
        assert todo.origin in ORIGINS
        assert (todo.closed_by is None) == (todo.status in ("pending", "in_progress"))


def test_a_number_too_long_to_be_written_is_no_id() -> None:
    """Python refuses to turn it into text; the task keeps the id it would have had."""
    got = todos(chain(call("TaskCreate", {"subject": "a"}, {"task": {"id": 10**5000}})))

    assert ["1"] == [todo.key for todo in got]


STORY = (
    user("Go on."),
    says("I still need to raise the limit in `limits.yaml`."),
    says("We should also translate the error messages."),
    says("TODO: tag the release."),
    says("- [ ] one\n- [ ] two"),
    says("- [x] two"),
    says("Translated the error messages."),
    todo_write(("Read", "in_progress"), ("Edit", "pending")),
    todo_write(("Edit", "completed")),
    call("TaskCreate", {"subject": "Ship"}, "Task #1 created"),
    call("TaskUpdate", {"taskId": "1", "status": "completed"}),
    grok({"id": "1", "content": "Write", "status": "pending"}),
    call("update_plan", {"plan": [{"step": "Check", "status": "pending"}]}),
    edit("limits.yaml"),
    bash("git tag v2"),
)
UNRELATED = (
    {"role": "system", "text": "TODO: obey"},
    {"role": "tool", "text": "I'll do it later. - [ ] never"},
    user("  \n"),
    says("The sky over the harbour is grey."),
    says("> I still need to sleep."),
    bash("uname -a"),
    edit("nowhere/else.txt", "grey sky"),
    bash("pytest", failed=True),
    call("Read", {"file_path": "harbour.md"}),
)
stories = st.lists(st.sampled_from(STORY), max_size=12).map(lambda parts: chain(*parts))


@given(stories)
def test_todos_come_in_the_order_of_opening(steps: list[Step]) -> None:
    """Reading a chain as a stream gives the same answer, ordered by the steps that opened."""
    got = todos(iter(steps))
    places = [int(todo.opened_by[1:]) for todo in got]

    assert sorted(places) == places
    assert todos(steps) == got


@given(stories, st.sampled_from(UNRELATED), st.integers(0, 12))
def test_an_unrelated_step_changes_nothing(
    steps: list[Step], part: dict[str, Any], place: int
) -> None:
    """What is put off stays open through work that has nothing to do with it."""
    more = [*steps[:place], Step(id="new", **part), *steps[place:]]

    assert todos(steps) == todos(more)


@pytest.mark.sampled(4)
@pytest.mark.few(9)
@pytest.mark.parametrize(
    "unit",
    ["I'll a b. ", "“", "`", '"', " ", "- [ ] x\n", "I left ", "I have not been ", "been ", "? ",
     "TODO: x, then y\n", "Fixed a. ", ". ", " — ", "#", "_ ", "next,", "1. ", ">", "|", "\n"],
)  # fmt: skip
def test_hostile_prose_costs_linear_time(unit: str) -> None:
    """What lies beyond the bound is not read, and no pattern runs away within it."""
    text = unit * (200_000 // len(unit))
    start = time.process_time()
    got = todos([Step("1", "assistant", text), Step("2", "assistant", "", "Bash", {"x": text})])
    spent = time.process_time() - start

    assert spent < 10
    assert got == todos(
        [Step("1", "assistant", text[: 1 << 16]), Step("2", "assistant", "", "Bash", {"x": text})]
    )


# --- the clients' own files --------------------------------------------------------------------


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a log, bad lines left out."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def claude_steps(path: Path) -> list[Step]:
    """The calls and words of a Claude Code session, results attached."""
    steps: list[dict[str, Any]] = []
    calls: dict[str, dict[str, Any]] = {}
    for record in records(path):
        message = record.get("message")
        blocks = message.get("content") if isinstance(message, dict) else None
        for block in blocks if isinstance(blocks, list) else ():
            if not isinstance(block, dict):
                continue
            kind, where = block.get("type"), {"id": str(record.get("uuid"))}
            if kind == "text":
                steps.append(where | {"role": record.get("type"), "text": block.get("text")})
            elif kind == "tool_use":
                steps.append(where | call(str(block.get("name")), block.get("input")))
                calls[str(block.get("id"))] = steps[-1]
            elif kind == "tool_result" and str(block.get("tool_use_id")) in calls:
                made = calls[str(block.get("tool_use_id"))]
                made["result"] = record.get("toolUseResult", block.get("content"))
                made["failed"] = bool(block.get("is_error"))
    return [Step(**step) for step in steps]


def only(paths: Iterable[Path], holding: str = "") -> Path:
    """The one file that holds a text."""
    (path,) = (path for path in paths if holding in path.read_text(encoding="utf-8"))
    return path


def pairs(entries: list[Todo]) -> list[tuple[str, str]]:
    """Text and status of todos."""
    return [(todo.text, todo.status) for todo in entries]


def test_real_tasks_agree_with_claudes_own_task_files(shared: Path) -> None:
    """Claude Code 2.1.325 keeps tasks in side files too: the log alone gives the same."""
    home = shared / "data" / "claude-code" / "v2.1.325" / "todos" / "claude"
    files = sorted((home / "tasks").glob("*/*.json"))
    tasks = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    ours = {"pending": "pending", "in_progress": "in_progress", "completed": "done"}
    got = todos(claude_steps(only(home.glob("projects/*/*.jsonl"))))

    assert [(task["id"], task["subject"], ours[task["status"]]) for task in tasks] == [
        (todo.key, todo.text, todo.status) for todo in got
    ]


@pytest.mark.parametrize("version", ["v2.0.76", "v2.1.80"])
def test_real_todo_write_is_followed_to_its_end(shared: Path, version: str) -> None:
    """The steps of the recorded run are all done, each closed by the call that said so."""
    home = shared / "data" / "claude-code" / version / "todos" / "claude"
    steps = claude_steps(only(home.glob("projects/*/*.jsonl"), '"TodoWrite"'))
    lists = [step for step in steps if step.tool == "TodoWrite"]
    got = todos(steps)

    assert [("Step 1", "done"), ("Step 2", "done"), ("Step 3", "done")] == pairs(got)
    assert {step.id for step in lists} >= {todo.closed_by for todo in got}
    assert [("Step 2", "in_progress"), ("Step 3", "pending")] == pairs(
        pending_todos(steps[: steps.index(lists[1]) + 1])
    )


def test_real_codex_plan_is_read_from_its_json_string(shared: Path) -> None:
    """Codex logs arguments as text."""
    home = shared / "data" / "codex" / "tools" / "codex_home"
    payloads = [r.get("payload", {}) for r in records(only(home.rglob("rollout-*.jsonl")))]
    parts = [
        call(payload["name"], payload["arguments"])
        for payload in payloads
        if payload.get("type") == "function_call"
    ]

    assert {"fix add": "done", "test": "in_progress"} == statuses(*parts)


def test_real_grok_list_and_plan_are_one(shared: Path) -> None:
    """Grok writes the call, the call as its client completed it, and the plan: two todos."""
    home = shared / "data" / "grok" / "tools" / "grok_home"
    updates = [
        record["params"]["update"]
        for record in records(only(home.rglob("updates.jsonl")))
        if "update" in record.get("params", {})
    ]
    parts = [
        call("plan", update)
        if update["sessionUpdate"] == "plan"
        else call("todo_write", update["rawInput"])
        for update in updates
        if update["sessionUpdate"] == "plan"
        or (update.get("rawInput") or {}).get("variant") == "TodoWrite"
        or update.get("title") == "todo_write"
    ]

    assert 3 == len(parts)
    assert {"fix add": "done", "run test": "in_progress"} == statuses(*parts)


@pytest.mark.slow
def test_real_sessions_of_strangers_give_well_formed_todos(shared: Path) -> None:
    """Every todo of the public sessions was opened and closed by steps of its session."""
    sessions = sorted((shared / "data" / "public" / "claude").rglob("*.jsonl"))
    total = 0
    for path in sessions:
        steps = claude_steps(path)
        ids = {step.id for step in steps}
        got = todos(steps)
        total += len(got)

        assert ids >= {todo.opened_by for todo in got}
        assert ids | {None} >= {todo.closed_by for todo in got}

    assert total > 0


def test_a_list_of_a_tool_that_an_agent_names_is_known() -> None:
    """An agent of another package says which tool holds its list, and in which field."""
    more = BUILT_IN.with_names({"plan": ["made_up_list"]}, lists={"made_up_list": "rows"})
    rows = [{"content": "Mend the gauge", "status": "pending"}]
    effect, _ = more.judge("made_up_list", {"rows": rows})
    tool, arguments = known_list("made_up_list", {"rows": rows}, effect)
    step = Step("e1", "assistant", tool=tool, input=arguments)

    assert ["Mend the gauge"] == [todo.text for todo in pending_todos([step])]
