"""A growing chain is mended as a whole one is, at the cost of what is new."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.format.histories import History, Script, scripts
from tests.format.test_repair import WAYS, any_messages
from thence.format import repair
from thence.format.incremental_repair import Mending
from thence.format.records import JSON, MESSAGES
from thence.format.transcript import Transcript

Message = dict[str, Any]


def exchange(number: int) -> list[Message]:
    """A turn with one call, as a harness records it."""
    call = {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {}}
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "done"}
    return [
        {"role": "user", "content": f"question {number}"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": "answer"},
    ]


def grown(messages: list[Message], way: repair.Orphans) -> list[repair.Mended]:
    """What is given after each message, asked every time."""
    mending, out = Mending(way), []
    for message in messages:
        mending.add([message])
        out.append(mending.mend())
    return out


@given(any_messages, st.sampled_from(WAYS))
def test_a_growing_chain_is_mended_as_the_whole(
    messages: list[Message], way: repair.Orphans
) -> None:
    """After every message, whatever it is."""
    expected = [repair.mend(messages[: n + 1], way) for n in range(len(messages))]

    for mended, grew in zip(expected, grown(messages, way), strict=True):
        assert mended.messages == grew.messages
        assert (mended.opened, mended.open_calls, mended.answered) == (
            grew.opened,
            grew.open_calls,
            grew.answered,
        )
        assert sorted(map(str, mended.left_out)) == sorted(map(str, grew.left_out))
        assert mended.reworded == grew.reworded


@pytest.mark.parametrize("body", ["", " ", [], [{"type": "tool_result", "tool_use_id": "none"}]])
def test_what_says_nothing_parts_no_two_answers(body: JSON) -> None:
    """A thought stays where an answer follows it with nothing said between."""
    thought = {"type": "thinking", "thinking": "It may be the cache.", "signature": "s"}
    answers = [[thought], [{"type": "text", "text": "It is the cache."}]]
    messages: list[Message] = [
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": answers[0]},
        {"role": "user", "content": body},
        {"role": "assistant", "content": answers[1]},
    ]

    assert repair.mend(messages).messages == grown(messages, "answer")[-1].messages
    assert [thought, *answers[1]] == grown(messages, "answer")[-1].messages[-1]["content"]


@given(scripts, st.sampled_from(WAYS))
def test_a_history_is_mended_as_it_grows(script: Script, way: repair.Orphans) -> None:
    """Of made-up histories with crashes, late results and responses in pieces."""
    chain = Transcript.read(History(script).draft.bytes()).chain()
    messages = [
        {name: event.fields.get(name) for name in ("role", "content", "id")}
        for event in chain
        if event.type in MESSAGES
    ]

    for n, grew in enumerate(grown(messages, way)):
        assert repair.mend(messages[: n + 1], way).messages == grew.messages


@pytest.mark.slow
def test_a_turn_costs_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages that are mended are counted: no more in the last turn than in the second."""
    mending, work = Mending(), list[int]()
    real = repair.mend

    def counted(messages: Any, *rest: Any) -> repair.Mended:
        listed = list(messages)
        work[-1] += len(listed)
        return real(listed, *rest)

    monkeypatch.setattr(repair, "mend", counted)
    for number in range(200):
        work.append(0)
        for message in exchange(number):
            mending.add([message])
            mending.mend()

    assert work[1] == work[-1]
    assert work[-1] <= 12


def test_a_late_result_still_wins() -> None:
    """It speaks of something that was mended long ago."""
    made = repair.synthetic_result("c0")
    messages = [*exchange(0)[:2], {"role": "user", "content": [made]}, *exchange(1), *exchange(2)]
    mending = Mending()
    mending.add(messages)
    mending.mend()
    late = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c0", "content": "!"}],
    }
    mending.add([late])

    assert "!" == mending.mend().messages[2]["content"][0]["content"]


def test_what_the_caller_does_to_messages_is_not_ours() -> None:
    """Marks for a cache are put on the last block of a request, time and again."""
    mending = Mending()
    mending.add([*exchange(0), *exchange(1)])
    first = mending.mend().messages
    before = copy.deepcopy(first)
    first[0]["content"][0]["cache_control"] = {"type": "ephemeral"}
    first[3]["content"].append({"type": "text", "text": "mine"})

    assert before == mending.mend().messages
