"""What only a whole session tells: pairs, bills counted once, and what events imply."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.format.derived import normalise
from thence.format.derived_events import (
    Spent,
    add_usage,
    bills,
    calls,
    derive_events,
    session_of,
    spent,
    time_of,
)
from thence.format.graph import State
from thence.format.normal import KINDS, Cost, Session, SessionEvent, event_id, number_events
from thence.format.records import Usage
from thence.format.repair import INTERRUPTED
from thence.format.transcript import Transcript
from thence.testing import Draft, sample

UID = "thence:s"
Line = dict[str, Any]


def log(*lines: Line) -> list[SessionEvent]:
    """A session of events as they were said, named e0, e1 and so on."""
    return [
        SessionEvent(UID, event_id(UID, f"e{at}"), native_id=f"e{at}", **fields)
        for at, fields in enumerate(lines)
    ]


def prompt(text: str = "go", **more: Any) -> Line:
    """A human speaks."""
    return {"kind": "user_msg", "role": "user", "summary": text, **more}


def reply(text: str = "so", **more: Any) -> Line:
    """The model speaks."""
    return {"kind": "assistant_msg", "role": "assistant", "summary": text, **more}


def call(name: str | None, tool: str, arguments: Any = None, **more: Any) -> Line:
    """The model calls."""
    fields = {"call": name, "tool": tool, "payload": arguments, "summary": f"used {tool}"}
    return {"kind": "tool_call", "role": "assistant", **fields, **more}


def bash(name: str, command: str, **more: Any) -> Line:
    """The model runs a command."""
    return call(name, "Bash", {"command": command}, **more)


def edit(name: str, path: str = "a.py") -> Line:
    """The model edits a file."""
    return call(name, "Edit", {"file_path": path, "old_string": "a", "new_string": "b"})


def result(name: str | None, text: str = "ok", *, failed: bool | None = None, **more: Any) -> Line:
    """A tool answers."""
    return {
        "kind": "tool_result",
        "role": "tool",
        "call": name,
        "payload": text,
        "failed": failed,
        **more,
    }


def bill(key: str | None, output: int, **more: Any) -> Line:
    """The model speaks and is paid for it."""
    return reply(usage=Usage(100, output), usage_key=key, **more)


def names(events: list[SessionEvent]) -> list[tuple[str, str]]:
    """What was derived, and from which event."""
    known = {event_id(UID, f"e{at}"): f"e{at}" for at in range(20)}
    return [(event.kind, known[event.derived_from or 0]) for event in events]


def of(kind: str, *lines: Line) -> list[str]:
    """The events that something of this kind was derived from."""
    return [base for what, base in names(derive_events(log(*lines))) if what == kind]


def paired(*lines: Line) -> list[str | None]:
    """For each call the name of the event that is its result."""
    return [pair.result.native_id if pair.result else None for pair in calls(log(*lines))]


# -- calls ------------------------------------------------------------------------------------


def test_result_is_paired_by_id_not_by_place() -> None:
    """Results of parallel calls come in any order."""
    lines = [call("a", "X"), call("b", "X"), result("b"), prompt(), result("a")]

    assert ["e4", "e2"] == paired(*lines)


def test_result_before_its_call_is_paired() -> None:
    """Some logs write them so."""
    assert ["e0"] == paired(result("a"), call("a", "X"))


def test_orphan_has_no_result_and_no_ending() -> None:
    """A call that nobody answered stays open; a result that nobody asked for is nobody's."""
    (pair,) = calls(log(call("a", "X"), result("b")))

    assert (None, None) == (pair.result, pair.ending)


def test_first_result_after_the_call_is_taken() -> None:
    """Of doubles one is the answer, and one before the call only when there is no other."""
    assert ["e2"] == paired(result("a"), call("a", "X"), result("a"), result("a"))
    assert ["e0"] == paired(result("a"), result("a"), call("a", "X"))


def test_real_result_wins_over_a_synthetic_one() -> None:
    """The one that stood in for it came first, the tool's own later."""
    stand_in = result("a", INTERRUPTED, failed=True)

    assert ["e2"] == paired(call("a", "X"), stand_in, result("a"))
    assert ["e0"] == paired(result("a"), call("a", "X"), stand_in)
    assert ["e1"] == paired(call("a", "X"), stand_in)


def test_second_call_of_one_id_gets_no_result() -> None:
    """One result is not counted for two calls."""
    assert ["e2", None] == paired(call("a", "X"), call("a", "X"), result("a"), result("a"))


def test_calls_without_an_id_are_paired_with_nothing() -> None:
    """Not with each other's results, nor with one whose id is empty."""
    assert [None, None] == paired(call(None, "X"), result(None), result(""), call(None, "X"))


def test_copies_are_not_paired() -> None:
    """A replayed call was made elsewhere."""
    copy = State.REPLAYED

    assert [] == paired(call("a", "X", state=copy), result("a", state=copy))
    assert ["e2"] == paired(result("a", state=copy), call("a", "X"), result("a"))


def test_ending_is_told_with_the_tool_at_hand() -> None:
    """The same words are a failed command and a file that was read."""
    lines = [bash("a", "false"), result("a", "Exit code 1\n"), call("b", "Read"), result("b")]
    lines[3]["payload"] = lines[1]["payload"]
    endings = [pair.ending for pair in calls(log(*lines))]

    assert [True, False] == [ending.failed for ending in endings if ending]


NAME = st.sampled_from("abc")
SOME_CALLS = st.lists(
    st.builds(call, NAME, st.just("X")) | st.builds(result, NAME), max_size=10
).map(lambda lines: log(*lines))


@pytest.mark.slow
@given(SOME_CALLS)
def test_every_call_is_listed_and_no_result_serves_twice(events: list[SessionEvent]) -> None:
    """In written order, each with a result of its own id or none."""
    pairs = calls(events)
    answers = [pair.result.event_id for pair in pairs if pair.result]

    assert [e for e in events if e.kind == "tool_call"] == [pair.call for pair in pairs]
    assert len(answers) == len(set(answers))
    assert all(pair.result is None or pair.call.call == pair.result.call for pair in pairs)
    answered = {e.call for e in events if e.kind == "tool_result"}
    called = {e.call for e in events if e.kind == "tool_call"}
    assert len(answered & called) == len(answers)


# -- usage ------------------------------------------------------------------------------------


def test_bill_is_counted_once_with_its_highest_output() -> None:
    """Records of one response repeat it, and the early ones hold less."""
    events = log(bill("r", 1), bill("r", 40), bill("r", 7), bill("s", 5))

    assert {events[1].event_id: Usage(100, 40), events[3].event_id: Usage(100, 5)} == bills(events)


def test_bill_counts_whole() -> None:
    """Never field by field: the record with the highest output is the bill."""
    first = reply(usage=Usage(10, 3, 0, 900), usage_key="r")
    second = reply(usage=Usage(20, 4, 50, 800), usage_key="r")

    assert [Usage(20, 4, 50, 800)] == list(bills(log(first, second)).values())


def test_tie_goes_to_the_first_written() -> None:
    """So that two readers agree."""
    events = log(bill("r", 5), bill("r", 5))

    assert [events[0].event_id] == list(bills(events))


@pytest.mark.parametrize("order", [1, -1])
def test_copy_in_a_sidechain_yields(order: int) -> None:
    """Though its output be higher and wherever it stands: the original is the bill."""
    own, copy = bill("r", 5), bill("r", 50, is_sidechain=True)
    events = log(*[own, copy][::order])

    assert [Usage(100, 5)] == list(bills(events).values())


def test_bills_without_a_key_are_counted_each() -> None:
    """Nothing says that they are one."""
    assert 2 == len(bills(log(bill(None, 5), bill(None, 5))))


def test_replayed_bill_was_paid_elsewhere() -> None:
    """A fork's copies of its parent cost it nothing."""
    assert {} == bills(log(bill("r", 5, state=State.REPLAYED)))


def test_money_of_the_living_the_dead_and_the_side_is_told_apart() -> None:
    """All of it was billed, and all of it adds up."""
    events = log(
        bill("a", 1, state=State.LIVE),
        bill("b", 2, state=State.ORPHANED),
        bill("c", 4, state=State.DEAD),
        bill("d", 8, state=State.ROLLED_BACK),
        bill("e", 16, state=State.SIDE, is_sidechain=True),
        bill("f", 32, state=State.REPLAYED),
        bill("a", 1, state=State.LIVE),
    )
    total = spent(events)

    assert Spent(Usage(200, 3), Usage(200, 12), Usage(100, 16), responses=5) == total
    assert (415, 531) == (total.own, total.rolled_up)


def test_sample_costs_what_it_cost() -> None:
    """Eleven responses, two of them on a branch that was rewound."""
    transcript = Transcript.read(sample())
    events = normalise(transcript.events, transcript.states, UID)

    assert Spent(Usage(10800, 720), Usage(2400, 160), Usage(), responses=11) == spent(events)


BILLS = st.lists(
    st.builds(
        bill,
        st.none() | NAME,
        st.integers(0, 3),
        is_sidechain=st.booleans(),
        state=st.sampled_from([*State, None]),
    ),
    max_size=10,
).map(lambda lines: log(*lines))


@given(BILLS)
def test_no_bill_is_counted_twice_or_lost(events: list[SessionEvent]) -> None:
    """Each key once, at the price of its dearest original."""
    paid = [e for e in events if e.state is not State.REPLAYED]
    keys = {e.usage_key or e.native_id for e in paid}
    counted = bills(events)
    total = spent(events)

    assert len(keys) == len(counted) == total.responses
    assert sum(usage.total for usage in counted.values()) == total.rolled_up
    for event in paid:
        if event.usage_key is None:
            assert event.usage == counted[event.event_id]
    for key in {e.usage_key for e in paid} - {None}:
        same = [e for e in paid if e.usage_key == key]
        own = [e for e in same if not e.is_sidechain] or same
        (chosen,) = (e for e in same if e.event_id in counted)
        assert chosen in own
        assert max(e.usage.output_tokens for e in own if e.usage) == (
            counted[chosen.event_id].output_tokens
        )


def test_usages_are_added_field_by_field() -> None:
    """Rates differ: tokens of different kinds are never thrown together."""
    assert Usage(11, 22, 33, 44) == add_usage(Usage(1, 2, 3, 4), Usage(10, 20, 30, 40))


# -- derived events ---------------------------------------------------------------------------


def worked() -> list[SessionEvent]:
    """A session from which every kind follows."""
    return log(
        prompt("fix it"),
        edit("a"),
        result("a"),
        bash("b", "pytest -q"),
        result("b", "1 failed, 2 passed in 0.1s", failed=True),
        bash("c", "pytest -q"),
        result("c", "3 passed in 0.1s"),
        prompt("and the docs"),
        reply("done"),
    )


def test_everything_a_session_implies_is_derived_in_written_order() -> None:
    """Each fact once, beside the event that tells it."""
    assert [
        ("lifecycle", "e0"),
        ("edit", "e1"),
        ("test_run", "e3"),
        ("error", "e4"),
        ("retry", "e5"),
        ("test_run", "e5"),
        ("human_intervention", "e7"),
        ("completion", "e8"),
        ("lifecycle", "e8"),
    ] == names(derive_events(worked()))


def test_derived_event_points_at_its_base_and_carries_nothing() -> None:
    """No tokens and no payload, so that nothing is counted or stored twice."""
    events = worked()
    by_id = {event.event_id: event for event in events}

    for event in derive_events(events):
        base = by_id[event.derived_from or 0]

        assert (None, 0, None, None) == (
            event.payload,
            event.tokens,
            event.usage,
            event.payload_ref,
        )
        assert base.event_id == event.parent_id
        assert (base.session_uid, base.ts, base.role, base.tool, base.state, base.channel) == (
            event.session_uid,
            event.ts,
            event.role,
            event.tool,
            event.state,
            event.channel,
        )


def test_base_event_stays_as_it_is() -> None:
    """A test run is still a call, an error still a result."""
    events = worked()
    before = deepcopy(events)
    derive_events(events)

    assert before == events


def test_derived_ids_never_change() -> None:
    """Stores hold them; the recipe is frozen."""
    assert [
        2617728040965593,
        4122000117298532,
        589092260058767,
        2224621751278543,
        905101273794208,
        2804115824936233,
        3035204324132813,
        2924834823411041,
        867851352092277,
    ] == [event.event_id for event in derive_events(worked())]


def test_derived_ids_do_not_depend_on_what_else_was_read() -> None:
    """A fact keeps its id when the log grows."""
    events = worked()
    ids = {(e.kind, e.derived_from, e.summary): e.event_id for e in derive_events(events)}

    for length in range(len(events)):
        for event in derive_events(events[:length]):
            known = ids.get((event.kind, event.derived_from, event.summary), event.event_id)

            assert known == event.event_id


def test_deriving_again_adds_nothing() -> None:
    """Derived events imply no further ones."""
    events = worked()

    assert derive_events(events) == derive_events([*events, *derive_events(events)])


def test_derived_events_are_numbered_after_their_base() -> None:
    """They take their place in the graph like any other."""
    events = worked()
    out = number_events([*events, *derive_events(events)])
    seq = {event.event_id: event.seq or 0 for event in out}

    assert all(seq[e.derived_from] == e.parent_seq for e in out if e.derived_from is not None)


CORRECTED = (
    "No. Do not patch the gap afterwards. Cut the windows in UTC and use local time only for the "
    "label."
)


def test_sample_implies_what_happened_in_it() -> None:
    """Edits, a failed and a passed test run, the call that the crash left open."""
    transcript = Transcript.read(sample())
    derived = derive_events(normalise(transcript.events, transcript.states, UID))

    assert [
        ("completion", "The windows walk local wall-clock time; in spring one hour is skipped."),
        ("edit", "edited tidepool/windows.py"),
        ("human_intervention", CORRECTED),
        ("edit", "edited tidepool/windows.py"),
        ("test_run", "pytest, 41 passed, 2 failed"),
        ("error", "is_error"),
        ("edit", "edited tidepool/feed.py"),
        ("retry", "again: ran pytest tests/windows"),
        ("test_run", "pytest, 43 passed"),
        ("completion", "Windows are cut in UTC now. I still need to add a test for Lord Howe."),
        ("edit", "edited tidepool/alerts.py"),
        ("test_run", "pytest"),
    ] == [(event.kind, event.summary) for event in derived]


# test_run


def test_command_that_runs_tests_is_a_test_run() -> None:
    """With what the tests said of themselves; one without a result is neither passed nor failed."""
    passed, failed, lost = (
        event
        for event in derive_events(
            log(
                bash("a", "cd /w && pytest -q"),
                result("a", "5 passed, 1 skipped in 0.2s"),
                bash("b", "go test ./..."),
                result("b", "--- FAIL: TestA (0.00s)\nFAIL\texample.org/a\t0.3s", failed=True),
                bash("c", "npm test"),
            )
        )
        if event.kind == "test_run"
    )

    assert ("pytest, 5 passed, 1 skipped", False) == (passed.summary, passed.failed)
    assert (True, None) == (failed.failed, lost.failed)
    assert failed.summary.startswith("go test")


def test_tests_that_failed_behind_a_pipe_failed() -> None:
    """What the runner counted stands against the exit code of what came after it."""
    lines = [bash("a", "pytest | tail -1"), result("a", "1 failed, 2 passed in 0.1s", failed=False)]
    (run,) = (event for event in derive_events(log(*lines)) if event.kind == "test_run")

    assert run.failed


@pytest.mark.parametrize(
    "line",
    [
        bash("a", "cat pytest.ini"),
        bash("a", "echo pytest"),
        bash("a", "pip install pytest"),
        call("a", "Grep", {"pattern": "pytest"}),
        call("a", "Write", {"file_path": "run.sh", "content": "pytest"}),
        call("a", "Bash", {"cmd": 5}),
    ],
)
def test_naming_a_runner_is_no_test_run(line: Line) -> None:
    """Only a command that starts one counts."""
    assert [] == of("test_run", line, result("a"))


# edit


@pytest.mark.parametrize(
    "line",
    [
        edit("a"),
        call("a", "Write", {"file_path": "a.py", "content": "x"}),
        call("a", "apply_patch", "*** Begin Patch\n*** Delete File: a.py\n*** End Patch"),
    ],
)
def test_call_that_changes_a_file_is_an_edit(line: Line) -> None:
    """Whatever tool an agent does it with."""
    assert ["e0"] == of("edit", line, result("a"))


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (call("a", "Read", {"file_path": "a.py"}), result("a")),
        (edit("a"), result("a", failed=True)),
        (edit("a"), result("a", "String to replace not found in file.")),
        (edit("a", ""), result("a")),
    ],
    ids=["read", "failed", "not found", "no path"],
)
def test_call_that_changed_nothing_is_no_edit(line: Line, answer: Line) -> None:
    """Reading, and trying in vain."""
    assert [] == of("edit", line, answer)


def test_file_that_a_harness_says_it_changed_is_an_edit() -> None:
    """Our own events tell it themselves; reading is none."""
    changed = {"kind": "lifecycle", "native_type": "file", "payload": {"path": "a.py"}}
    read = {**changed, "payload": {"path": "a.py", "how": "read"}}
    (edit,) = (event for event in derive_events(log(changed, read)) if event.kind == "edit")

    assert ["e0"] == of("edit", changed, read)
    assert "edited a.py" == edit.summary


@pytest.mark.parametrize("payload", [None, 5, [], {"path": ["a"]}, {"how": {}}])
def test_file_event_of_any_shape_does_no_harm(payload: Any) -> None:
    """What was changed is not known; that something was is."""
    assert ["e0"] == of("edit", {"kind": "lifecycle", "native_type": "file", "payload": payload})


# error


def test_failed_result_is_an_error() -> None:
    """Off the result that tells of it, in a shape that is the same wherever it happens again."""
    lines = [bash("a", "x"), result("a", "bash: /tmp/x1: Permission denied", failed=True)]
    (error,) = (event for event in derive_events(log(*lines)) if event.kind == "error")

    assert ["e1"] == of("error", *lines)
    assert error.failed
    assert error.summary
    assert "/tmp/x1" not in error.summary


@pytest.mark.parametrize(
    "lines",
    [
        [bash("a", "x"), result("a", "0 errors", failed=False)],
        [call("a", "Read"), result("a", "Exit code 1\nTraceback")],
        [bash("a", "x")],
        [result("a", "Exit code 1", failed=True)],
        [reply("Error: I cannot")],
    ],
    ids=["passed", "read", "orphan", "result alone", "prose"],
)
def test_talk_of_errors_is_no_error(lines: list[Line]) -> None:
    """Only a call that failed counts."""
    assert [] == of("error", *lines)


# retry


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (bash("a", "make  all"), bash("b", "make all")),
        (bash("a", "pytest -x"), bash("b", "pytest tests/a.py")),
        (edit("a"), call("b", "Edit", {"file_path": "a.py", "old_string": "x"})),
        (call("a", "Fetch", {"url": "u"}), call("b", "Fetch", {"url": "u"})),
    ],
    ids=["command", "tests", "file", "arguments"],
)
def test_same_thing_again_after_a_failure_is_a_retry(first: Line, second: Line) -> None:
    """The same command, the same tests, the same file, the same arguments."""
    assert ["e2"] == of("retry", first, result("a", failed=True), second, result("b"))


def test_same_thing_again_after_a_crash_is_a_retry() -> None:
    """A call that never got its result did not succeed."""
    assert ["e1"] == of("retry", bash("a", "make"), bash("b", "make"), result("b"))


def test_every_failure_can_be_tried_again() -> None:
    """Three attempts are two retries, and success ends it."""
    lines: list[Line] = []
    for name, wrong in (("a", True), ("b", True), ("c", False), ("d", False)):
        lines += [bash(name, "make"), result(name, failed=wrong)]

    assert ["e2", "e4"] == of("retry", *lines)


@pytest.mark.parametrize(
    "second",
    [
        bash("b", "make test"),
        edit("b"),
        call("b", "Fetch", {"url": "v"}),
        bash("b", "make", channel="explorer", is_sidechain=True),
    ],
    ids=["command", "tool", "arguments", "channel"],
)
@pytest.mark.parametrize("failed", [True, False])
def test_something_else_after_a_failure_is_no_retry(second: Line, failed: bool) -> None:
    """Another aim, or another agent."""
    assert [] == of("retry", bash("a", "make"), result("a", failed=failed), second, result("b"))


def test_same_thing_again_after_success_is_no_retry() -> None:
    """Running the tests twice is care, not trouble."""
    lines = [bash("a", "pytest"), result("a", failed=False), bash("b", "pytest"), result("b")]

    assert [] == of("retry", *lines)


# human_intervention


@pytest.mark.parametrize(
    "lines",
    [
        [bash("a", "make"), prompt("stop")],
        [bash("a", "make"), result("a"), prompt("not like that")],
        [bash("a", "make"), result("a"), {"kind": "thinking"}, prompt("wait")],
    ],
    ids=["in a call", "after a result", "in thought"],
)
def test_prompt_while_the_agent_works_is_an_intervention(lines: list[Line]) -> None:
    """The human did not wait for it to finish."""
    assert [f"e{len(lines)}"] == of("human_intervention", prompt(), *lines)


@pytest.mark.parametrize(
    "text",
    [
        "The user doesn't want to proceed with this tool use. The tool use was rejected",
        "[Request interrupted by user for tool use]",
    ],
)
def test_call_refused_or_cut_off_is_an_intervention(text: str) -> None:
    """The result says who stopped it."""
    lines = [prompt(), bash("a", "rm x"), result("a", text, failed=True)]

    assert ["e2"] == of("human_intervention", *lines)


@pytest.mark.parametrize(
    "lines",
    [
        [prompt(), prompt("also")],
        [bash("a", "make"), result("a"), reply("done"), prompt("thanks")],
        [bash("a", "make"), prompt("look around", is_sidechain=True)],
        [bash("a", "make", state=State.DEAD), prompt("instead")],
        [bash("a", "make"), {"kind": "lifecycle", "summary": "compacted"}],
        [bash("a", "make"), result("a", "No such file", failed=True)],
        [bash("a", "make"), result("a", INTERRUPTED, failed=True)],
    ],
    ids=["no work", "at rest", "subagent", "rewound", "compaction", "failure", "crash"],
)
def test_nobody_stepped_in(lines: list[Line]) -> None:
    """Prompts at rest, a compaction in the middle of work, and a crash are no interventions."""
    assert [] == of("human_intervention", *lines)


def test_compaction_in_the_middle_of_work_is_no_intervention() -> None:
    """Its summary has the form of a prompt."""
    draft = Draft()
    draft.prompt("go")
    draft.reply(Draft.call("a", "Bash", command="make"))
    draft.result("a", "ok")
    draft.compact("so far: made it")
    draft.reply("done")
    events = normalise(draft.events, [State.LIVE] * len(draft.events), UID)

    assert ["completion"] == [event.kind for event in derive_events(events)]


# completion


def test_last_word_before_the_next_prompt_is_a_completion() -> None:
    """And the last word of all."""
    lines = [prompt(), reply("one"), prompt(), bash("a", "x"), result("a"), reply("two")]

    assert ["e1", "e5"] == of("completion", *lines)


@pytest.mark.parametrize(
    "lines",
    [
        [reply("I will look."), bash("a", "ls"), result("a")],
        [reply("I will look."), {"kind": "thinking"}],
        [prompt()],
        [reply("hi", is_sidechain=True)],
        [reply("hi", state=State.DEAD)],
        [reply("hi", state=State.REPLAYED)],
    ],
    ids=["then a call", "then a thought", "prompt", "subagent", "rewound", "copy"],
)
def test_words_in_the_middle_of_work_are_no_completion(lines: list[Line]) -> None:
    """Nor are those of a subagent, of a dead branch, or of another session."""
    assert [] == of("completion", *lines)


def test_books_after_the_last_word_do_not_hide_it() -> None:
    """A terminator or a change of state is not part of the turn."""
    assert ["e0"] == of("completion", reply("done"), {"kind": "lifecycle"}, prompt())


# lifecycle


def test_log_that_does_not_say_when_it_ran_gets_a_start_and_an_end() -> None:
    """From its first and its last event."""
    derived = derive_events(log(prompt(), reply(), prompt("x", is_sidechain=True)))
    cycle = [(e.summary, e.derived_from) for e in derived if e.kind == "lifecycle"]

    assert [("started", event_id(UID, "e0")), ("last seen", event_id(UID, "e1"))] == cycle


def test_single_event_is_start_and_end() -> None:
    """Two facts with two ids."""
    derived = derive_events(log(prompt()))

    assert ["last seen", "started"] == sorted(event.summary for event in derived)
    assert 2 == len({event.event_id for event in derived})


@pytest.mark.parametrize("lines", [[{"kind": "lifecycle"}, prompt()], []], ids=["told", "empty"])
def test_log_that_says_when_it_ran_gets_no_more(lines: list[Line]) -> None:
    """What is told is not derived; nor is anything from nothing."""
    assert [] == of("lifecycle", *lines)


# -- the session ------------------------------------------------------------------------------


def test_sample_as_a_whole() -> None:
    """Its own cost, dead branches included; its time, turns and retries."""
    transcript = Transcript.read(sample())
    events = normalise(transcript.events, transcript.states, "thence:s")

    assert Session(
        "thence:s",
        "thence",
        "s",
        cwd="/w",
        model="claude-opus-5-5",
        started_at="2026-11-15T13:12:00.000Z",
        ended_at="2026-11-15T13:17:34.000Z",
        cost=Cost(13200, 880, 0, 334.0, 3, 1),
        source_bytes=7,
    ) == session_of(events, uid="thence:s", turns=3, cwd="/w", source_bytes=7, git_branch=None)


def test_session_counts_neither_subagents_nor_copies_nor_what_was_derived() -> None:
    """A parent's cost never includes its children's."""
    events = log(
        prompt(ts="2026-11-15T13:00:00Z"),
        bill("a", 5, ts="2026-11-15T13:00:30+00:00", model="opus"),
        bill("b", 7, is_sidechain=True, ts="2027-01-01T00:00:00Z", model="haiku"),
        bill("c", 9, state=State.REPLAYED, ts="2025-01-01T00:00:00Z"),
        prompt(state=State.DEAD),
        bill("d", 1, state=State.DEAD, model="sonnet"),
    )
    session = session_of([*events, *derive_events(events)], uid="claude:x:y", turns=1)

    assert ("claude", "x:y", "opus") == (session.flavor, session.native_session_id, session.model)
    assert Cost(200, 6, 0, 30.0, 1, 0) == session.cost
    assert ("2026-11-15T13:00:00.000Z", "2026-11-15T13:00:30.000Z") == (
        session.started_at,
        session.ended_at,
    )


def test_session_of_nothing_is_a_session() -> None:
    """Empty files are sessions too."""
    assert Session("grok:s", "grok", "s") == session_of([], uid="grok:s")


def test_what_the_source_says_wins_but_for_the_model() -> None:
    """It knows its own folder; the model it names is the first one, where no event names one."""
    events = log(reply(model="m", ts="2026-11-15T13:00:00Z"))
    answered = session_of(events, uid="a:b", model="n", cwd="/w")
    silent = session_of(log(reply(ts="2026-11-15T13:00:00Z")), uid="a:b", model="n")

    assert ("m", "/w", "2026-11-15T13:00:00.000Z") == (
        answered.model,
        answered.cwd,
        answered.started_at,
    )
    assert "n" == silent.model


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-15T13:12:00.250Z", "2026-11-15 13:12:00.250000+00:00"),
        ("2026-11-15T14:12:00+01:00", "2026-11-15 13:12:00+00:00"),
        ("2026-11-15T13:12:00", None),
        ("1970-01-01T00:00:00Z", None),
        ("9999-12-31T23:59:59-23:59", None),
        ("0001-01-01T00:00:00+23:59", None),
        ("yesterday", None),
        ("\ud800", None),
        ("", None),
        (None, None),
    ],
)
def test_time_is_read_or_none(text: str | None, expected: str | None) -> None:
    """In UTC; one without a zone, or where no session can lie, is no time."""
    moment = time_of(text)

    assert expected == (str(moment) if moment else None)


# anything


SMALL = st.none() | st.booleans() | st.integers() | st.sampled_from(["a.py", "pytest", "Error: x"])
FIELDS = ["command", "file_path", "content", "type", "text", "exit_code", "status", "edits"]
ANY = st.recursive(
    SMALL,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
    ),
    max_leaves=10,
)
ANYTHING = st.lists(
    st.fixed_dictionaries(
        {"kind": st.sampled_from(KINDS)},
        optional={
            "payload": ANY,
            "tool": st.none() | st.sampled_from(["Bash", "Edit", "Read", "apply_patch", ""]),
            "call": st.none() | NAME,
            "failed": st.none() | st.booleans(),
            "usage": st.none() | st.builds(Usage, st.integers(0, 9), st.integers(0, 9)),
            "usage_key": st.none() | NAME,
            "state": st.none() | st.sampled_from(State),
            "is_sidechain": st.booleans(),
            "channel": st.sampled_from(["main", "side"]),
            "tokens": st.integers(0, 9),
            "derived_from": st.none() | st.integers(0, 3),
            "native_type": st.sampled_from(["", "file"]),
            "ts": st.none() | st.text(max_size=5) | st.just("2026-11-15T13:12:00Z"),
        },
    ),
    max_size=12,
).map(lambda lines: log(*lines))


@given(ANYTHING)
def test_no_session_makes_deriving_raise(events: list[SessionEvent]) -> None:
    """Arbitrary events in, well-formed derived events out, nothing changed on the way."""
    before = deepcopy(events)
    derived = derive_events(events)
    ids = {event.event_id for event in events}

    assert before == events
    assert len(derived) == len({event.event_id for event in derived})
    assert ids.isdisjoint(event.event_id for event in derived)
    assert {event.derived_from for event in derived} <= ids
    assert all(e.payload is None and not e.tokens and e.usage is None for e in derived)
    assert derived == derive_events([*events, *derived])
    assert sum(usage.total for usage in bills(events).values()) == spent(events).rolled_up
    assert UID == session_of(events, uid=UID).session_uid


def test_arguments_nested_beyond_all_sense_do_no_harm() -> None:
    """As deep as the decoder lets through."""
    deep = msgspec.json.decode("[" * 900 + "]" * 900)
    lines = [call("a", "X", deep), result("a", failed=True), call("b", "X", deep)]

    assert len(derive_events(log(*lines))) >= 2
