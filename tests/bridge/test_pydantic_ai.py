"""The history of Pydantic AI: through its own adapter, mended, nothing lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from thence.bridge.pydantic_ai import JournalHistory, _Messages, entry_of, original, repair_messages
from thence.format import repair
from thence.format.records import Event
from thence.format.transcript import Transcript
from thence.journal import Journal

pytestmark = pytest.mark.filterwarnings("ignore")  # what an SDK says of itself is its business

LONG = "The build is red because a test fails. " * 20


def request(*parts: dict[str, Any]) -> dict[str, Any]:
    """A request as the adapter dumps it."""
    return {"kind": "request", "parts": list(parts), "instructions": None}


def response(*parts: dict[str, Any]) -> dict[str, Any]:
    """A response as the adapter dumps it."""
    used = {"input_tokens": 9, "cache_read_tokens": 4, "output_tokens": 3}
    return {"kind": "response", "parts": list(parts), "model_name": "m-1", "usage": used}


def prompt(text: str) -> dict[str, Any]:
    """What the user says."""
    return {"part_kind": "user-prompt", "content": text}


def call(name: str) -> dict[str, Any]:
    """A call of a tool."""
    return {"part_kind": "tool-call", "tool_name": "run", "args": '{"c": 1}', "tool_call_id": name}


def answer(name: str) -> dict[str, Any]:
    """What a tool said."""
    part = {"part_kind": "tool-return", "tool_name": "run", "tool_call_id": name}
    return {**part, "content": {"ok": True}}


def text(content: str) -> dict[str, Any]:
    """What the model says."""
    return {"part_kind": "text", "content": content}


STORY = [
    request({"part_kind": "system-prompt", "content": "Be kind."}, prompt(LONG)),
    response({"part_kind": "thinking", "content": "hm"}, text("I look."), call("c1"), call("c2")),
    request(answer("c1"), answer("c2")),
    response(text("A test fails.")),
]


def messages_in(journal: Journal, name: str = "s") -> _Messages:
    """A history as plain data."""
    return JournalHistory(name, journal)._messages


def log(journal: Journal) -> Path:
    """The one transcript on the disk."""
    (path,) = (journal.root / "sessions").rglob("*.jsonl")
    return path


def test_a_history_can_be_closed_without_a_loop_and_used_again(journal: Journal) -> None:
    """What was added is there afterwards, and more can be added."""
    history = JournalHistory("s", journal)
    history._messages.add(STORY[:2])
    history.close()
    history._messages.add(STORY[2:])

    assert STORY == history._messages.load()


def test_messages_come_back_equal(journal: Journal) -> None:
    """Each as an event, and through the log by another object."""
    for message in STORY:
        made = entry_of(message)
        assert message == original(Event(made.kind, "", "u", None, made.payload))
    messages_in(journal).add(STORY)

    assert STORY == messages_in(Journal(journal.root)).load()


def test_saving_adds_only_what_is_new(journal: Journal) -> None:
    """The same history again writes nothing; a longer one the rest."""
    history = messages_in(journal)
    history.save(STORY[:2])
    size = log(journal).stat().st_size
    history.save(STORY[:2])

    assert size == log(journal).stat().st_size
    messages_in(Journal(journal.root)).save(STORY)
    assert STORY == history.load()
    assert 1 == log(journal).read_bytes().count(LONG.encode())


def test_an_edited_history_is_a_branch_and_the_old_one_stays(journal: Journal) -> None:
    """Shortened, changed in the middle, emptied."""
    history = messages_in(journal)
    history.save(STORY)
    edited = [*STORY[:1], response(text("Green again.")), *STORY[2:3]]
    for other in (edited, STORY[:2], [], STORY[3:]):
        history.save(other)

        assert other == history.load() == messages_in(Journal(journal.root)).load()
    assert b"Green again." in log(journal).read_bytes()


def test_an_empty_history_makes_no_session(journal: Journal) -> None:
    """Neither loading nor saving nothing does."""
    history = messages_in(journal)
    history.save([])

    assert [] == history.load()
    assert not (journal.root / "sessions").exists()


def test_thence_reads_the_session_like_any_other(journal: Journal) -> None:
    """Prompts, calls, results and bills in our own words."""
    messages_in(journal).add(STORY)
    read = Transcript.read(log(journal).read_bytes())
    messages = read.messages().messages
    bill = next(e.fields["usage"] for e in read.events if e.type == "assistant")

    assert ["user", "assistant", "user", "assistant"] == [m["role"] for m in messages]
    assert [] == repair.problems(messages)
    assert ["text", "tool_use", "tool_use"] == [block["type"] for block in messages[1]["content"]]
    assert (5, 3, 4) == tuple(
        bill[name] for name in ("input_tokens", "output_tokens", "cache_read_input_tokens")
    )


def shown(messages: list[Any]) -> list[Any]:
    """Messages in the words of the Messages API, as they are."""
    made = [entry_of(message).payload for message in messages]
    return [{"role": p["role"], "content": p["content"]} for p in made if "role" in p]


@pytest.mark.parametrize("orphans", ["answer", "drop", "mark"])
@pytest.mark.parametrize("length", [1, 2, 3, 4])
@pytest.mark.parametrize("answered", [[], ["c1"], ["c2"]])
def test_a_call_without_an_answer_is_mended(
    orphans: repair.Orphans, length: int, answered: list[str]
) -> None:
    """Wherever it stands: what comes out pairs every call; what was whole is untouched."""
    cut = [*STORY[:2], request(*map(answer, answered), prompt("And?")), *STORY[3:]][:length]
    out = repair_messages(cut, orphans)

    assert [] == repair.problems(shown(out))
    assert out == repair_messages(out, orphans)
    assert STORY == repair_messages(STORY, orphans)


def test_an_answer_without_its_call_is_left_out() -> None:
    """So that no API refuses what follows."""
    out = repair_messages(
        [request(answer("gone"), prompt("And?")), request(answer("gone"))], "answer"
    )

    assert [request(prompt("And?"))] == out


@pytest.mark.slow
def test_the_sdk_takes_what_comes_out(journal: Journal, sdk: Callable[[str], ModuleType]) -> None:
    """Its adapter reads it, and an agent goes on after a crash in a tool."""
    parts = sdk("pydantic_ai.messages")
    pydantic_ai = sdk("pydantic_ai")
    model = sdk("pydantic_ai.models.test").TestModel()
    messages_in(journal).add(STORY[:2])

    async def main() -> Any:
        history = JournalHistory("s", journal)
        agent = pydantic_ai.Agent(model)
        first = await history.load()
        result = await agent.run("Go on.", message_history=first)
        await history.save(result.all_messages())
        await history.flush()
        return first, result.all_messages(), await history.load()

    first, all_of_it, again = asyncio.run(main())

    assert [repair.INTERRUPTED] * 2 == [part.content for part in first[-1].parts]
    assert all(isinstance(part, parts.ToolReturnPart) for part in first[-1].parts)
    assert len(all_of_it) == len(again)
    assert [m.kind for m in all_of_it] == [m.kind for m in again]


@pytest.mark.slow
def test_a_message_the_sdk_does_not_know_costs_itself(
    journal: Journal, sdk: Callable[[str], ModuleType]
) -> None:
    """The others are given."""
    sdk("pydantic_ai.messages")
    messages_in(journal).add([STORY[0], {"kind": "dream", "parts": []}, STORY[3]])

    assert ["request", "response"] == [m.kind for m in JournalHistory("s", journal).load_now()]
