"""Repair: whatever a log holds, what goes to the API is valid, and says what was changed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.format.histories import History, Script, scripts
from thence.format.records import blocks
from thence.format.repair import (
    INTERRUPTED,
    MISSING_START,
    Orphans,
    is_synthetic,
    mend,
    problems,
    synthetic,
    synthetic_result,
)
from thence.format.transcript import Transcript
from thence.testing import Draft

Message = dict[str, Any]

WAYS: tuple[Orphans, ...] = ("answer", "drop", "mark")

json = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
names = st.sampled_from(["a", "b", "c", ""])
any_block = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, st.sampled_from(["hi", " ", ""])),
    st.builds(
        lambda call, arguments, name: {
            "type": "tool_use",
            "id": call,
            "name": name,
            "input": arguments,
        },
        names | json,
        st.just({}) | json,
        st.just("Bash") | json,
    ),
    st.builds(
        lambda call, content, wrong: {
            "type": "tool_result",
            "tool_use_id": call,
            "content": content,
            "is_error": wrong,
        },
        names | json,
        st.just("out") | json,
        st.sampled_from([True, False, None, 1, "x"]),
    ),
    st.just({"type": "thinking", "thinking": "hm", "signature": "s"}),
    json,
)
any_messages = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["user", "assistant", "system", None]),
        st.text(max_size=4) | st.lists(any_block, max_size=4) | json,
    ),
    max_size=8,
)


def user(*content: Any) -> Message:
    """A message of the user, of these blocks."""
    return {"role": "user", "content": list(content)}


def assistant(*content: Any) -> Message:
    """A message of the model, of these blocks."""
    return {"role": "assistant", "content": list(content)}


def call(name: str) -> dict[str, Any]:
    """A call."""
    return {"type": "tool_use", "id": name, "name": "Bash", "input": {}}


def result(name: str, text: str = "out") -> dict[str, Any]:
    """The result of a call."""
    return {"type": "tool_result", "tool_use_id": name, "content": text}


@given(any_messages, st.sampled_from(WAYS))
def test_anything_becomes_valid_for_the_api(messages: list[Message], way: Orphans) -> None:
    """An independent reading of the API's rules finds nothing to refuse."""
    mended = mend(messages, way)

    assert [] == problems(mended.messages)


@given(any_messages, st.sampled_from(WAYS))
def test_mending_what_is_mended_changes_nothing(messages: list[Message], way: Orphans) -> None:
    """Resume twice, or resume what was resumed: the same bytes go out."""
    once = mend(messages, way).messages

    assert once == mend(once, way).messages


@given(scripts, st.sampled_from(WAYS))
def test_every_history_is_valid_in_all_three_ways(script: Script, way: Orphans) -> None:
    """Random histories with kills in them, read back from their bytes."""
    history = History(script)

    mended = Transcript.read(history.draft.bytes()).messages(way)

    assert [] == problems(mended.messages)
    open_now = {b["id"] for b in mended.open_calls}
    expected = {call for call, event in history.unanswered.items() if event in history.seen}
    assert expected == open_now


@given(any_messages)
def test_no_real_result_of_a_kept_call_is_lost(messages: list[Message]) -> None:
    """What a tool said, wherever it stood, is there when its call is."""
    answered = {
        b["tool_use_id"]
        for m in messages
        if m["role"] == "user"
        for b in blocks(m["content"])
        if b.get("type") == "tool_result" and isinstance(b.get("tool_use_id"), str)
    }

    mended = mend(messages).messages

    for message in mended:
        for block in blocks(message["content"]):
            if block["type"] == "tool_result" and block["tool_use_id"] in answered:
                assert not is_synthetic(block) or any(
                    is_synthetic(b) for m in messages for b in blocks(m["content"])
                )


def test_an_orphan_is_answered_by_default() -> None:
    """The call stays, with an error result that says what is known."""
    mended = mend([user({"type": "text", "text": "go"}), assistant(call("x"))])

    assert [synthetic_result("x")] == mended.messages[2]["content"]
    assert ["x"] == [b["id"] for b in mended.open_calls]


def test_an_orphan_can_be_left_out() -> None:
    """The text beside it stays; an event that was only the call goes."""
    text = {"type": "text", "text": "on it"}

    mended = mend([user({"type": "text", "text": "go"}), assistant(text, call("x"))], "drop")

    assert [text] == mended.messages[1]["content"]
    assert ["x"] == [b["id"] for b in mended.open_calls]


def test_an_orphan_can_be_shown_as_interrupted() -> None:
    """In words, naming the tool."""
    mended = mend([user({"type": "text", "text": "go"}), assistant(call("x"))], "mark")

    text = mended.messages[1]["content"][0]["text"]
    assert text.startswith(INTERRUPTED[:12])
    assert "Bash" in text


def test_results_are_put_right_after_their_calls() -> None:
    """Late, early, out of order, split over messages: one message, in the order of the calls."""
    messages = [
        user(result("b", "early")),
        user({"type": "text", "text": "go"}),
        assistant(call("a"), call("b")),
        user({"type": "text", "text": "meanwhile"}),
        assistant({"type": "text", "text": "later"}),
        user(result("a", "late")),
    ]

    mended = mend(messages).messages

    expected = [result("a", "late"), result("b", "early"), {"type": "text", "text": "meanwhile"}]
    assert expected == mended[2]["content"]


def test_a_real_result_wins_over_a_synthetic_one() -> None:
    """Two resumers answered, then the tool's own result turned up."""
    messages = [
        user({"type": "text", "text": "go"}),
        assistant(call("a")),
        user(synthetic_result("a")),
        user(result("a", "real")),
    ]

    assert [result("a", "real")] == mend(messages).messages[2]["content"]


def test_what_is_left_out_is_listed() -> None:
    """A result without its call, a call twice, a block in the wrong role."""
    mended = mend(
        [
            user({"type": "text", "text": "go"}, call("z")),
            assistant(call("a"), call("a")),
            user(result("a"), result("none")),
        ]
    )

    expected = {("call out of place or twice", "z"), ("call out of place or twice", "a")}
    assert expected | {("result without call", "none")} == {
        (left.why, left.id) for left in mended.left_out
    }


REUSED = "functions.exec_command:0"


@pytest.mark.parametrize("name", [REUSED, "call_0", ""])
def test_calls_that_share_an_id_stay_with_their_own_results(name: str) -> None:
    """As servers of open models give ids: the same in every turn, or none."""
    messages = [user({"type": "text", "text": "go"})]
    for at in range(3):
        made = {**call(name), "input": {"n": at}}
        messages += [assistant(made), user(result(name, f"out {at}"))]

    mended = mend(messages)
    pairs = [
        (request["content"][0]["input"]["n"], answer["content"][0]["content"])
        for request, answer in zip(mended.messages[1::2], mended.messages[2::2], strict=True)
    ]
    names = [request["content"][0]["id"] for request in mended.messages[1::2]]
    again = [answer["content"][0]["tool_use_id"] for answer in mended.messages[2::2]]

    assert [(0, "out 0"), (1, "out 1"), (2, "out 2")] == pairs
    assert names == again
    assert 3 == len(set(names))
    assert ([], []) == (mended.left_out, mended.open_calls)
    assert mended.messages[:5] == mend(messages[:5]).messages


def test_parallel_calls_without_ids_are_answered_in_order() -> None:
    """Nothing but the order tells which result is whose."""
    first, second = {**call(""), "input": {"n": 1}}, {**call(""), "input": {"n": 2}}
    messages = [user({"type": "text", "text": "go"}), assistant(first, second)]
    mended = mend([*messages, user(result("", "first"), result("", "second"))]).messages

    assert ["first", "second"] == [block["content"] for block in mended[2]["content"]]


def test_a_call_that_was_cut_off_does_not_take_the_result_of_a_later_one() -> None:
    """Same id, later turn: the result is the later call's, the first has none."""
    first, second = {**call(REUSED), "input": {"n": 1}}, {**call(REUSED), "input": {"n": 2}}
    go = user({"type": "text", "text": "go"})
    mended = mend([go, assistant(first), go, assistant(second), user(result(REUSED, "late"))])

    assert is_synthetic(mended.messages[2]["content"][0])
    assert "late" == mended.messages[4]["content"][0]["content"]
    assert [first] == mended.open_calls


def test_the_blocks_of_one_response_are_one_message() -> None:
    """Though its client wrote the first result before the second call."""
    go = user({"type": "text", "text": "go"})
    messages = [
        go,
        {**assistant(call("a")), "id": "r1"},
        user(result("a")),
        {**assistant(call("b")), "id": "r1"},
        user(result("b")),
        {**assistant({"type": "text", "text": "done"}), "id": "r2"},
    ]
    mended = mend(messages).messages

    assert [call("a"), call("b")] == mended[1]["content"]
    assert [result("a"), result("b")] == mended[2]["content"]
    assert 4 == len(mended)


def test_a_prompt_that_waited_stands_after_the_response_it_was_written_into() -> None:
    """The model saw it after the results; it does not cut the response in two."""
    messages = [
        user({"type": "text", "text": "go"}),
        {**assistant(call("a")), "id": "r1"},
        user(result("a"), {"type": "text", "text": "and hurry"}),
        {**assistant(call("b")), "id": "r1"},
        user(result("b")),
        {**assistant({"type": "text", "text": "done"}), "id": "r2"},
    ]
    mended = mend(messages).messages

    assert [call("a"), call("b")] == mended[1]["content"]
    assert [result("a"), result("b"), {"type": "text", "text": "and hurry"}] == mended[2]["content"]


def test_answers_of_a_server_that_uses_one_id_are_not_joined() -> None:
    """A prompt that was answered stands between its neighbours."""
    text = {"type": "text", "text": "x"}
    turns = [user(text), {**assistant(text), "id": "same"}] * 3

    assert 6 == len(mend(turns).messages)


def test_a_history_that_begins_with_the_model_gets_an_opening() -> None:
    """The API wants the user first; nothing of the model's is thrown away for it."""
    mended = mend([assistant({"type": "text", "text": "hello"})])

    assert mended.opened
    assert MISSING_START == mended.messages[0]["content"][0]["text"]


def test_two_repairers_make_the_same_event() -> None:
    """The id follows from session and call, so that a second one is a known double."""
    first = synthetic("s", "toolu_1", ts="2026-01-01T00:00:00.000Z", prev_uuid=None)
    second = synthetic("s", "toolu_1", ts="2026-01-02T00:00:00.000Z", prev_uuid="p")

    assert first.uuid == second.uuid
    assert first.uuid != synthetic("s", "toolu_2", ts="", prev_uuid=None).uuid
    assert first.fields["synthetic"] is True


@pytest.mark.slow
@pytest.mark.parametrize("answered", [0, 5_000, 10_000])
def test_ten_thousand_parallel_calls_are_mended_once_each(answered: int) -> None:
    """Half answered, none or all: linear, and idempotent."""
    calls = [call(f"c{k}") for k in range(10_000)]
    log = [
        user({"type": "text", "text": "go"}),
        assistant(*calls),
        user(*(result(f"c{k}") for k in range(answered))),
    ]

    mended = mend(log)

    assert 10_000 - answered == len(mended.open_calls)
    assert [] == problems(mended.messages)


def test_problems_sees_what_the_api_would_refuse() -> None:
    """The checker itself can fail: each rule once."""
    good = [user({"type": "text", "text": "go"}), assistant(call("a")), user(result("a"))]

    assert [] == problems(good)
    assert problems(good[1:])
    assert problems(good[:2])
    assert problems([*good, user({"type": "text", "text": "x"})])
    assert problems([user({"type": "text", "text": " "})])
    assert problems([user()])
    assert problems([user({"type": "text", "text": "x"}), assistant(call("a")), user(result("b"))])
    assert problems([*good, assistant(call("a")), user(result("a"))])
    late = user({"type": "text", "text": "x"}, result("a"))
    assert problems([*good[:2], late])
    assert problems([user(call("a"))])


def test_draft_of_a_crash_is_resumed_with_the_call_answered() -> None:
    """End to end: bytes of a killed session become messages the API takes."""
    draft = Draft()
    draft.header()
    draft.prompt("run the tests")
    draft.reply("Running.", draft.call("c1", "Bash", command="pytest"))

    transcript = Transcript.read(draft.bytes())

    assert [] == problems(transcript.messages().messages)
    assert "orphaned" == transcript.states[2].value
    assert transcript.graph.tip == 1
