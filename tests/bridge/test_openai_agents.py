"""The session of the OpenAI Agents SDK: equal items, whole batches, history that stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thence.bridge.openai_agents import JournalSession, entry_of, original
from thence.bridge.sdk_records import NotPlain
from thence.format.records import Event
from thence.format.repair import problems
from thence.format.transcript import Transcript
from thence.journal import Journal

pytestmark = pytest.mark.slow  # to import the SDK alone takes seconds

LONG = "The build is red because a test fails. " * 20
ITEMS: list[Any] = [
    {"role": "user", "content": "Why is the build red?"},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Look."}]},
    {"type": "function_call", "call_id": "c1", "name": "run", "arguments": '{"cmd": "make"}'},
    {"type": "function_call_output", "call_id": "c1", "output": LONG},
    {
        "type": "message",
        "role": "assistant",
        "id": "msg_1",
        "status": "completed",
        "content": [{"type": "output_text", "text": LONG, "annotations": [], "logprobs": []}],
    },
]


def log(journal: Journal) -> Path:
    """The one transcript on the disk."""
    (path,) = (journal.root / "sessions").rglob("*.jsonl")
    return path


async def added(session: JournalSession, *batches: list[Any]) -> list[Any]:
    """Add batches and get everything."""
    for batch in batches:
        await session.add_items(batch)
    return await session.get_items()


def test_items_come_back_equal_in_their_order(journal: Journal) -> None:
    """In this object and in another process's."""
    items = asyncio.run(added(JournalSession("s", journal), ITEMS[:2], ITEMS[2:]))
    again = asyncio.run(JournalSession("s", Journal(journal.root)).get_items())

    assert ITEMS == items == again


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=60) | st.just("x" * 60),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["=", "bridge", "text", "type", "id"]), inner, max_size=3)
    ),
    max_leaves=8,
)
WORDS = {
    "type": ["message", "function_call", "function_call_output", "x"],
    "role": ["user", "assistant", "system"],
}


@settings(max_examples=60)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            **{name: st.sampled_from(words) | VALUES for name, words in WORDS.items()},
            **dict.fromkeys(
                ("content", "call_id", "name", "arguments", "output", "bridge"), VALUES
            ),
        },
    )
)
def test_any_item_comes_back_equal(item: dict[str, Any]) -> None:
    """Whatever shape a model or a user gave it."""
    made = entry_of(item)

    assert item == original(Event(made.kind, "", "u", None, made.payload))


def test_a_limit_gives_the_latest_in_order(journal: Journal) -> None:
    """The one asked for, else the one of the settings."""
    session = JournalSession("s", journal)
    asyncio.run(added(session, ITEMS))
    limits = {n: asyncio.run(session.get_items(limit=n)) for n in (0, 1, 3, 99)}
    session.session_settings = SimpleNamespace(limit=2)

    assert {0: [], 1: ITEMS[-1:], 3: ITEMS[-3:], 99: ITEMS} == limits
    assert ITEMS[-2:] == asyncio.run(session.get_items())


def test_popping_and_clearing_remove_nothing(journal: Journal) -> None:
    """The session is shorter, the log is not; another object sees the same."""

    async def main() -> Any:
        session, other = JournalSession("s", journal), JournalSession("s", Journal(journal.root))
        await session.add_items(ITEMS)
        popped = [await session.pop_item(), await other.pop_item()]
        left = await session.get_items()
        await other.clear_session()
        empty = [await session.get_items(), await session.pop_item()]
        await session.add_items(ITEMS[:1])
        return popped, left, empty, await other.get_items()

    popped, left, empty, after = asyncio.run(main())

    assert [ITEMS[4], ITEMS[3]] == popped
    assert ITEMS[:3] == left
    assert [[], None] == empty
    assert ITEMS[:1] == after
    assert LONG.encode() in log(journal).read_bytes()


def test_a_batch_counts_whole_or_not_at_all(journal: Journal) -> None:
    """One that cannot be said leaves nothing; one that was cut is not there."""
    session = JournalSession("s", journal)
    asyncio.run(added(session, ITEMS[:1]))
    with pytest.raises(NotPlain):
        asyncio.run(session.add_items([ITEMS[1], {"role": "user", "content": object()}]))
    size = log(journal).stat().st_size
    asyncio.run(session.add_items(ITEMS[1:]))
    data = log(journal).read_bytes()
    for cut in range(size, len(data), 97):
        log(journal).write_bytes(data[:cut])

        assert ITEMS[:1] == asyncio.run(JournalSession("s", Journal(journal.root)).get_items())


def test_a_damaged_item_costs_itself(journal: Journal) -> None:
    """It is no item: neither the last to be popped nor one that a limit counts."""
    asyncio.run(added(JournalSession("s", journal), *([item] for item in ITEMS)))
    lines = log(journal).read_bytes().splitlines(keepends=True)
    lines[5] = lines[5].replace(b'"=":0', b'"=":9')
    log(journal).write_bytes(b"".join(lines))
    session = JournalSession("s", Journal(journal.root))

    assert ITEMS[:4] == asyncio.run(session.get_items())
    assert ITEMS[2:4] == asyncio.run(session.get_items(limit=2))
    assert ITEMS[3] == asyncio.run(session.pop_item())
    assert ITEMS[:3] == asyncio.run(session.get_items())


def test_sessions_do_not_see_each_other(journal: Journal) -> None:
    """By id and by project; no id is a path."""
    sessions = [
        JournalSession("s", journal),
        JournalSession("t", journal),
        JournalSession("s", journal, cwd="/work"),
        JournalSession("../../s", journal),
    ]
    for number, session in enumerate(sessions):
        asyncio.run(session.add_items([{"role": "user", "content": str(number)}]))

    assert [["0"], ["1"], ["2"], ["3"]] == [
        [item["content"] for item in asyncio.run(session.get_items())] for session in sessions
    ]
    assert all(journal.root in p.parents for p in journal.root.parent.rglob("*.jsonl"))


def test_thence_reads_the_session_like_any_other(journal: Journal) -> None:
    """Messages, calls and results in the words of the API, valid as they are."""
    asyncio.run(added(JournalSession("s", journal), ITEMS))
    read = Transcript.read(log(journal).read_bytes())
    messages = read.messages().messages

    assert ["user", "assistant", "user", "assistant"] == [m["role"] for m in messages]
    assert [] == problems(messages)
    assert {"cmd": "make"} == messages[1]["content"][0]["input"]
    assert LONG == messages[3]["content"][0]["text"]


def test_long_texts_are_kept_once(journal: Journal) -> None:
    """The item as it was names what is shown of it."""
    asyncio.run(added(JournalSession("s", journal), ITEMS))

    assert 2 == log(journal).read_bytes().count(LONG.encode())


def test_the_compaction_hook_takes_the_place_of_all_items_at_once(journal: Journal) -> None:
    """What it gives is what is left; the log keeps the rest; None leaves everything."""
    calls: list[Any] = []

    async def hook(items: list[Any], args: Mapping[str, Any]) -> list[Any] | None:
        calls.append((len(items), dict(args)))
        return [{"role": "user", "content": "summary"}] if len(items) > 3 else None

    async def main() -> Any:
        session = JournalSession("s", journal, compaction=hook)
        await session.add_items(ITEMS)
        await session.run_compaction({"force": True})
        await session.run_compaction()
        return await session.get_items()

    assert [{"role": "user", "content": "summary"}] == asyncio.run(main())
    assert [(5, {"force": True}), (1, {})] == calls
    assert LONG.encode() in log(journal).read_bytes()


def test_a_compaction_does_not_swallow_what_came_meanwhile(journal: Journal) -> None:
    """Another object went on: nothing is replaced."""

    async def main() -> Any:
        other = JournalSession("s", Journal(journal.root))

        async def hook(_: list[Any], __: Mapping[str, Any]) -> list[Any]:
            await other.add_items(ITEMS[1:2])
            return []

        session = JournalSession("s", journal, compaction=hook)
        await session.add_items(ITEMS[:1])
        await session.run_compaction()
        return await session.get_items()

    assert ITEMS[:2] == asyncio.run(main())


def test_it_is_the_sdks_session_by_its_own_check(
    journal: Journal, sdk: Callable[[str], ModuleType]
) -> None:
    """The protocol, its settings and its compaction; the SDK's runner takes it."""
    memory = sdk("agents.memory")
    session = JournalSession("s", journal, session_settings={"limit": 2})

    async def main() -> Any:
        await session.add_items(ITEMS)
        snapshot = await session._get_compaction_snapshot(3)
        replaced = await snapshot.replace_suffix(1, ITEMS[:1])
        again = await snapshot.replace_suffix(1, ITEMS[:1])
        return snapshot, replaced, again, await session.get_items(limit=99)

    snapshot, replaced, again, items = asyncio.run(main())

    assert isinstance(session, memory.Session)
    assert memory.SessionSettings(limit=2) == session.session_settings
    assert (ITEMS[-3:], False) == (snapshot.items, snapshot.complete)
    assert (True, False) == (replaced, again)
    assert [*ITEMS[:3], ITEMS[0]] == items
