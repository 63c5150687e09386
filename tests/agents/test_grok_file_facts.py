"""Grok's files together: what those beside the log tell, and reading them in any pieces."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.groks import SECOND, Folder, Growing, child, compacted, contents_of
from thence.format import derived_events
from thence.format.graph import State
from thence.format.repair import problems
from thence.format.turn import TurnState
from thence.memory.readouts import readout_of


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty session."""
    return Folder(tmp_path)


# -- the files beside -------------------------------------------------------------------------


def test_results_of_a_crash_are_found_in_the_chat_history(folder: Folder) -> None:
    """G2: a call that ended before the kill, and was not logged, has its result all the same."""
    folder.prompt("go", 0)
    folder.call("c1", command="sleep 99")
    folder.call("c2", command="echo second")
    folder.chat(type="tool_result", tool_call_id="c2", content="exit: 0\nsecond\n")
    folder.chat(
        type="tool_result",
        tool_call_id="c1",
        content="Tool execution was cancelled by the user (tool `x` was not executed).",
    )

    session = folder.graph
    pairs = {
        pair.call.call: pair.result and pair.result.payload
        for pair in derived_events.calls(session.events)
    }
    assert {"c1": None, "c2": "exit: 0\nsecond\n"} == pairs
    assert ("c1",) == session.turn().open_calls


def test_a_result_in_the_log_is_not_told_twice(folder: Folder) -> None:
    """G2: the chat history is a mirror and gives no events."""
    folder.prompt("go", 0)
    folder.call("c1", command="ls")
    folder.result("c1", "a\n")
    folder.chat(type="user", content="go")
    folder.chat(type="tool_result", tool_call_id="c1", content="exit: 0\na\n")

    assert 1 == sum(event.kind == "tool_result" for event in folder.graph.events)
    assert 1 == sum(event.kind == "user_msg" for event in folder.graph.events)


def test_an_approval_that_is_waited_for_shows(folder: Folder) -> None:
    """A1: only the telemetry knows that a human is asked; an answer ends the waiting."""
    folder.prompt("push", 0)
    folder.call("c1", command="git push")
    folder.event("turn_started", model_id="grok-x")
    folder.event("permission_requested", tool_name="run_terminal_command")
    waiting = folder.graph
    folder.event("permission_resolved", decision="allow", wait_ms=900)
    running = folder.graph

    assert (TurnState.WAITING, TurnState.RUNNING) == (waiting.turn().state, running.turn().state)
    assert TurnState.INTERRUPTED == waiting.turn(alive=False).state
    assert ("waiting", "run_terminal_command") == (
        waiting.about["status"],
        waiting.about["status:waiting_for"],
    )
    assert "running" == running.about["status"]


def test_durations_come_from_the_telemetry(folder: Folder) -> None:
    """A1: how long a call took, and how it went where its result does not say."""
    folder.prompt("go", 0)
    folder.call("c1", command="ls")
    folder.result("c1", "a\n")
    folder.event("tool_completed", tool_call_id="c1", outcome="success", duration_ms=31)

    result = next(event for event in folder.graph.events if event.kind == "tool_result")
    assert 31 == result.took_ms


def test_telemetry_stands_on_no_line(folder: Folder) -> None:
    """G2: records of another file change nothing of the conversation."""
    folder.turn("one", 0)
    before = folder.graph
    folder.event("turn_started")
    folder.event("phase_changed", phase="streaming_text")
    folder.line("rewind_points.jsonl", {"prompt_index": 0, "file_snapshots": {"a.py": "x" * 99}})
    after = folder.graph

    assert readout_of(before).messages() == readout_of(after).messages()
    assert [State.INTERNAL] * 3 == after.states[3:]
    assert ["a.py"] == after.events[-1].payload["file_snapshots"]


# -- reading ----------------------------------------------------------------------------------


def story(folder: Folder) -> None:
    """A session with a bit of everything."""
    folder.summary(generated_title="Pools")
    folder.prompt("zero", 0)
    folder.say("on ")
    folder.say("it")
    folder.call("c1", command="ls")
    folder.result("c1", "é\n", code=1)
    folder.done(100, calls=3, turns=1)
    child(folder, SECOND, 50, "2026-11-15T18:36:05.001000Z")
    folder.turn("one", 1)
    folder.update("rewind_marker", target_prompt_index=1)
    compacted(folder)
    folder.call("c2", command="x")
    folder.chat(type="tool_result", tool_call_id="c2", content="y")
    folder.event("permission_requested", tool_name="t")


def test_reading_in_any_pieces_gives_the_same(tmp_path: Path) -> None:
    """R1: byte by byte, the incremental reading equals reading at once."""
    complete, part = Folder(tmp_path / "a"), Folder(tmp_path / "b")
    story(complete)
    child(part, SECOND, 50, "2026-11-15T18:36:05.001000Z")
    for name in ("summary.json", "compaction_checkpoints/c.json"):
        part.write(name, (complete.path / name).read_text())
    growing = Growing(part)
    chance = random.Random(7)
    for name in ("updates.jsonl", "events.jsonl", "chat_history.jsonl"):
        data, at = (complete.path / name).read_bytes(), 0
        while at < len(data):
            step = chance.choice((1, 40, 400))
            with (part.path / name).open("ab") as log:
                log.write(data[at : at + step])
            at += step
            got = growing.read()

    assert contents_of(complete.graph) == contents_of(got)


def test_a_second_read_reads_nothing(folder: Folder) -> None:
    """R2: what has not changed is not opened."""
    story(folder)
    growing = Growing(folder)
    growing.read()
    lines = growing.lines
    growing.read()

    assert lines == growing.lines


def test_any_order_of_facts_gives_the_same(folder: Folder) -> None:
    """R2: files may be read in any order."""
    story(folder)
    growing = Growing(folder)
    expected = contents_of(growing.read())
    random.Random(3).shuffle(growing.facts)
    growing.facts.sort(key=lambda fact: fact.file, reverse=True)

    assert expected == contents_of(growing.read())


def test_a_bad_line_costs_itself_only(folder: Folder) -> None:
    """R4: a damaged line is counted, what is whole in it is saved, the rest is read."""
    folder.prompt("zero", 0)
    folder.line("updates.jsonl", '{"timestamp":1,"method":')
    glued = json.dumps(folder.record("agent_message_chunk", content={"type": "text", "text": "a"}))
    folder.line("updates.jsonl", '{"broken' + glued)
    folder.done()

    loaded = folder.load()
    assert ["zero", "a", "turn end_turn"] == [e.summary for e in loaded.graph.events]
    assert [2, 3] == [skipped.line for skipped in loaded.skipped]


def test_a_torn_tail_is_not_read_until_it_is_whole(folder: Folder) -> None:
    """R13: the cursor stays before it."""
    folder.prompt("zero", 0)
    growing = Growing(folder)
    line = json.dumps(folder.record("turn_completed", stop_reason="end_turn")) + "\n"
    with (folder.path / "updates.jsonl").open("a") as log:
        log.write(line[:50])
    torn = growing.read()
    with (folder.path / "updates.jsonl").open("a") as log:
        log.write(line[50:])

    assert (True, 1) == (torn.turn().torn, len(torn.events))
    assert (False, 2) == (growing.read().turn().torn, len(growing.read().events))


def test_neither_key_order_nor_spacing_matter(folder: Folder) -> None:
    """R10: records are read by name."""
    record = folder.record("agent_message_chunk", content={"text": "hi", "type": "text"})
    turned = json.dumps(dict(reversed(record.items())), separators=(" ,  ", " : "))
    folder.line("updates.jsonl", turned)

    assert ["hi"] == [event.summary for event in folder.graph.events]


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["text", "type", "content", "usage", "modelUsage", "x.ai/tool", "_meta"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
NAMES = st.sampled_from(
    [
        "content",
        "_meta",
        "toolCallId",
        "title",
        "rawInput",
        "rawOutput",
        "status",
        "entries",
        "usage",
        "prompt_id",
        "stop_reason",
        "target_prompt_index",
        "checkpoint_file",
        "child_session_id",
        "task_snapshot",
        "tool_call_id",
        "event_name",
        "parent_prompt_id",
        "locations",
    ]
)
KINDS = st.sampled_from(
    [
        "user_message_chunk",
        "agent_message_chunk",
        "agent_thought_chunk",
        "tool_call",
        "tool_call_update",
        "plan",
        "turn_completed",
        "rewind_marker",
        "compaction_checkpoint",
        "auto_compact_failed",
        "subagent_spawned",
        "task_completed",
        "hook_execution",
        "other",
    ]
)
META = st.dictionaries(
    st.sampled_from(["eventId", "agentTimestampMs", "promptId", "streamStartMs", "totalTokens"]),
    JUNK,
    max_size=3,
)


@pytest.mark.slow
@given(st.lists(st.tuples(KINDS, META, st.dictionaries(NAMES, JUNK, max_size=5)), max_size=6))
def test_no_content_raises(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[tuple[str, dict[str, Any], dict[str, Any]]],
) -> None:
    """R6: whatever stands in a record, each line is read, and every event has a state."""
    folder = Folder(tmp_path_factory.mktemp("junk"))
    for kind, meta, update in records:
        folder.update(kind, meta, **update)

    session = folder.graph if records else None
    assert session is None or len(session.facts) == len(session.states)
    assert session is None or [] == problems(readout_of(session).messages().messages)
