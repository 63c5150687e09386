"""The checkpointer of LangGraph: its own suite, and what that does not look at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.bridge.suites import CAPABILITIES
from thence.format.repair import problems
from thence.format.transcript import Transcript
from thence.journal import Journal

pytestmark = pytest.mark.filterwarnings("ignore")  # what an SDK says of itself is its business


@pytest.fixture
def saver(sdk: Callable[[str], ModuleType]) -> Callable[..., Any]:
    """Make a saver in a home, if there is LangGraph."""
    sdk("langgraph.checkpoint.base")
    from thence.bridge.langgraph import JournalSaver

    return lambda home, **options: JournalSaver(Journal(home), **options)


def config(thread: str = "t", checkpoint: str | None = None, ns: str = "") -> dict[str, Any]:
    """What LangGraph names a checkpoint by."""
    named = {"checkpoint_id": checkpoint} if checkpoint is not None else {}
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, **named}}


def put(saver: Any, number: int, values: dict[str, Any], **more: Any) -> Any:
    """Put a checkpoint whose every channel is new."""
    versions = dict.fromkeys(values, f"{number:032}.0")
    checkpoint = {
        "v": 1,
        "id": f"{number:06}",
        "ts": "2026-11-15T13:12:00+00:00",
        "channel_values": values,
        "channel_versions": versions,
        "versions_seen": {},
        "updated_channels": None,
    }
    parent = more.pop("parent", f"{number - 1:06}" if number > 1 else None)
    return saver.put(config(checkpoint=parent), checkpoint, {"step": number, **more}, versions)


def values_of(saver: Any, **where: Any) -> Any:
    """What the newest checkpoint holds."""
    checkpoint = saver.get_tuple(config(**where))
    return None if checkpoint is None else checkpoint.checkpoint["channel_values"]


def log(home: Path) -> Path:
    """The one transcript on the disk."""
    (path,) = (home / "sessions").rglob("*.jsonl")
    return path


@pytest.mark.slow
def test_the_owners_suite_passes_by_counts(
    tmp_path: Path, saver: Callable[..., Any], sdk: Callable[[str], ModuleType]
) -> None:
    """All eight capabilities are there, and all 81 tests pass."""
    suite = sdk("langgraph.checkpoint.conformance")
    made = iter(range(100))

    async def fresh() -> AsyncIterator[Any]:
        yield saver(tmp_path / str(next(made)))

    report = asyncio.run(suite.validate(suite.checkpointer_test(name="ours")(fresh)))
    counts = {name: result.tests_passed for name, result in report.results.items()}

    assert CAPABILITIES == counts
    assert 0 == sum(result.tests_failed for result in report.results.values())


def test_a_new_process_finds_everything(tmp_path: Path, saver: Callable[..., Any]) -> None:
    """Values of any kind the serializer knows, metadata, parents, pending writes."""
    first = saver(tmp_path)
    put(first, 1, {"a": {"x": [1, 2]}, "b": b"bytes"})
    last = put(first, 2, {"a": {"x": {3}}, "b": None}, run_id="r")
    first.put_writes(last, [("a", [1]), ("b", "w")], "task")
    again = saver(tmp_path)
    checkpoint = again.get_tuple(config())

    assert {"a": {"x": {3}}, "b": None} == checkpoint.checkpoint["channel_values"]
    assert {"step": 2, "run_id": "r"} == checkpoint.metadata
    assert config(checkpoint="000001") == checkpoint.parent_config
    assert [("task", "a", [1]), ("task", "b", "w")] == checkpoint.pending_writes
    assert {"a": {"x": [1, 2]}, "b": b"bytes"} == values_of(again, checkpoint="000001")
    assert ["000002", "000001"] == [t.checkpoint["id"] for t in again.list(None)]


def test_messages_are_messages_of_the_session(
    tmp_path: Path, saver: Callable[..., Any], sdk: Callable[[str], ModuleType]
) -> None:
    """Said once each, calls and results paired, tokens counted."""
    sdk_messages = sdk("langchain_core.messages")
    history = [
        sdk_messages.SystemMessage("Be kind.", id="0"),
        sdk_messages.HumanMessage("Why is the build red?", id="1"),
        sdk_messages.AIMessage(
            "I look.",
            id="2",
            tool_calls=[{"id": "c1", "name": "run", "args": {"cmd": "make"}}],
            usage_metadata={"input_tokens": 9, "output_tokens": 3, "total_tokens": 12},
        ),
        sdk_messages.ToolMessage("red", tool_call_id="c1", id="3"),
        sdk_messages.AIMessage([{"type": "text", "text": "A test fails."}], id="4"),
    ]
    checkpointer = saver(tmp_path)
    for number in range(1, len(history) + 1):
        put(checkpointer, number, {"messages": history[:number], "step": number})
    read = Transcript.read(log(tmp_path).read_bytes())
    messages = read.messages().messages

    assert history == values_of(saver(tmp_path))["messages"]
    assert ["user", "assistant", "user", "assistant"] == [m["role"] for m in messages]
    assert [] == problems(messages)
    assert "A test fails." == messages[3]["content"][0]["text"]
    assert 1 == log(tmp_path).read_bytes().count(b"Why is the build red?")


def test_an_encrypted_thread_holds_no_plain_word(
    tmp_path: Path, saver: Callable[..., Any], sdk: Callable[[str], ModuleType]
) -> None:
    """Neither a value nor a message; it comes back all the same."""
    sdk_messages = sdk("langchain_core.messages")
    serde = sdk("langgraph.checkpoint.serde.encrypted")

    class Cipher:
        """Turned around is not safe, and no plain word."""

        def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
            return "turned", bytes(255 - byte for byte in plaintext)

        def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
            return bytes(255 - byte for byte in ciphertext)

    options = {"serde": serde.EncryptedSerializer(Cipher())}
    put(saver(tmp_path, **options), 1, {"messages": [sdk_messages.HumanMessage("the secret word")]})
    values = values_of(saver(tmp_path, **options))

    assert "the secret word" == values["messages"][0].content
    assert b"secret" not in log(tmp_path).read_bytes()


def test_a_pruned_thread_still_knows_its_deltas(tmp_path: Path, saver: Callable[..., Any]) -> None:
    """The writes of checkpoints that are gone lead to the one that is left."""
    checkpointer = saver(tmp_path)
    put(checkpointer, 1, {"seed": ["s"]})
    checkpointer.put_writes(config(checkpoint="000001"), [("d", "w1")], "t1")
    put(checkpointer, 2, {"x": 1})
    checkpointer.put_writes(config(checkpoint="000002"), [("d", "w2")], "t2")
    put(checkpointer, 3, {"x": 2})
    checkpointer.prune(["t"])
    history = checkpointer.get_delta_channel_history(config=config(), channels=["d", "seed"])
    awaited = asyncio.run(checkpointer.aget_delta_channel_history(config=config(), channels=["d"]))

    assert ["000003"] == [t.checkpoint["id"] for t in checkpointer.list(config())]
    assert {"writes": [("t1", "d", "w1"), ("t2", "d", "w2")]} == history["d"] == awaited["d"]
    assert {"writes": [], "seed": ["s"]} == history["seed"]


def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    tmp_path: Path, saver: Callable[..., Any]
) -> None:
    """The newest whole one is offered."""
    checkpointer = saver(tmp_path)
    put(checkpointer, 1, {"a": "first " * 50})
    put(checkpointer, 2, {"a": "second " * 50})
    lines = log(tmp_path).read_bytes().splitlines(keepends=True)
    log(tmp_path).write_bytes(
        b"".join(lines[:-1]) + lines[-1].replace(b'"data":"', b'"data":"AAAA')
    )

    assert {"a": "first " * 50} == values_of(saver(tmp_path))


def test_a_large_value_gets_a_file_of_its_own(
    tmp_path: Path, saver: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line grows beyond what readers follow; a copy of the thread has it, too."""
    monkeypatch.setattr("thence.bridge.threads.LARGE", 1000)
    checkpointer = saver(tmp_path)
    put(checkpointer, 1, {"a": "x" * 5000})
    checkpointer.copy_thread("t", "u")

    assert {"a": "x" * 5000} == values_of(saver(tmp_path)) == values_of(saver(tmp_path), thread="u")
    assert all(p.stat().st_size < 5000 for p in (tmp_path / "sessions").rglob("*.jsonl"))
    assert 2 == len(list((tmp_path / "spill").rglob("*.value")))


def test_two_branches_never_share_a_version(tmp_path: Path, saver: Callable[..., Any]) -> None:
    """Drawn apart, and rising."""
    checkpointer = saver(tmp_path)
    versions = {
        checkpointer.get_next_version("00000000000000000000000000000001.5", None) for _ in range(9)
    }

    assert 9 == len(versions)
    assert all(checkpointer.get_next_version(None, None) < version for version in versions)
    assert checkpointer.get_next_version(7, None).startswith(f"{8:032}.")


def test_many_threads_are_held_a_few_at_a_time(
    tmp_path: Path, saver: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those let go are read again when they are asked for."""
    monkeypatch.setattr("thence.bridge.langgraph.OPEN", 2)
    checkpointer = saver(tmp_path)
    for name in "abcde":
        versions = {"v": "1.0"}
        checkpoint = {"v": 1, "id": "1", "ts": "", "channel_values": {"v": name}}
        checkpointer.put(config(name), {**checkpoint, "channel_versions": versions}, {}, versions)

    assert list("abcde") == [values_of(checkpointer, thread=name)["v"] for name in "abcde"]
    assert 2 == len(checkpointer._open)
    assert 5 == len(list(checkpointer.list(None)))
