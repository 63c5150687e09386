"""Grok's log: what each record becomes, and what the session is when they stand together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agents.groks import (
    FIRST,
    HISTORY,
    SECOND,
    Folder,
    Growing,
    bill_of,
    child,
    compacted,
    contents_of,
    log_lines,
)
from tests.format.messages_api import PNG
from thence.agents.grok.updates import COMPACTION, INCOMPLETE, KILLED
from thence.format import derived_events
from thence.format.graph import State
from thence.format.records import Usage
from thence.format.repair import problems
from thence.format.session_graph import NEVER_BILLED, REWRITTEN
from thence.format.turn import TurnState
from thence.memory.readouts import readout_of


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty session."""
    return Folder(tmp_path)


def kinds(folder: Folder) -> list[tuple[str, str | None]]:
    """Kind and role of every event of the log."""
    return [(event.kind, event.role) for event in folder.graph.events]


# -- what was said ----------------------------------------------------------------------------


def test_a_turn_is_prompt_thought_answer_and_rest(folder: Folder) -> None:
    """G2: the log alone tells the conversation, in the order of its lines."""
    folder.prompt("Count the tide pools", 0)
    folder.thought("Look first.")
    folder.say("Three.")
    folder.done()

    assert [
        ("user_msg", "user"),
        ("thinking", "assistant"),
        ("assistant_msg", "assistant"),
        ("lifecycle", "system"),
    ] == kinds(folder)
    assert TurnState.DONE == folder.graph.turn().state


def test_time_is_told_in_milliseconds_and_else_in_seconds(folder: Folder) -> None:
    """R16: seconds order nothing; the client's own milliseconds are the time, where it has any."""
    folder.prompt("a", 0)
    bare = folder.record("agent_message_chunk", content={"type": "text", "text": "b"})
    del bare["params"]["_meta"]["agentTimestampMs"]
    folder.line("updates.jsonl", bare)

    assert ["2026-11-15T18:36:05.001Z", "2026-11-15T18:36:05.000Z"] == [
        event.ts for event in folder.graph.events
    ]


def test_event_ids_name_nothing(folder: Folder) -> None:
    """G2: event ids begin again with every process; two records of one id are two events."""
    for text in ("one", "two"):
        meta = {"eventId": f"{FIRST}-1"}
        folder.update("agent_message_chunk", meta, content={"type": "text", "text": text})

    assert 2 == len({event.event_id for event in folder.graph.events})


def test_chunks_of_one_response_are_one_text(folder: Folder) -> None:
    """G5: pieces join by prompt and stream, and only while nothing stands between them."""
    folder.prompt("go", 0)
    folder.thought("Let me ")
    folder.thought("see.")
    folder.say("Hel")
    folder.say("lo")
    folder.call("c1", command="ls")
    folder.say("!")

    texts = [e.payload.get("text", e.payload.get("thinking")) for e in folder.graph.events[1:3]]
    assert ["Let me see.", "Hello"] == texts
    assert "!" == folder.graph.events[5].payload["text"]


def test_pieces_of_a_prompt_are_one_prompt(folder: Folder) -> None:
    """G5: chunks of one prompt index are one prompt, pictures included."""
    meta = {"promptIndex": 0}
    folder.update("user_message_chunk", content={"type": "text", "text": "What "}, _meta=meta)
    folder.update("user_message_chunk", content={"type": "text", "text": "is this?"}, _meta=meta)
    picture = {"type": "image", "data": PNG, "mimeType": "image/png"}
    folder.update("user_message_chunk", content=picture, _meta=meta)
    folder.say("A crab.")

    shown = {"type": "base64", "media_type": "image/png", "data": PNG}
    first = readout_of(folder.graph).messages().messages[0]["content"]
    assert [{"type": "text", "text": "What is this?"}, {"type": "image", "source": shown}] == first
    assert 1 == folder.graph.session().cost.turns


def test_a_command_to_the_client_is_no_prompt(folder: Folder) -> None:
    """G5: a host turn was seen by no model."""
    folder.turn("go", 0)
    content = {"type": "text", "text": "/compact"}
    folder.update("user_message_chunk", content=content, _meta={"hostTurn": True})

    assert [("user", "go"), ("assistant", "fine")] == [
        (m["role"], m["content"][0]["text"]) for m in readout_of(folder.graph).messages().messages
    ]
    assert State.INTERNAL is folder.graph.states[-1]


def test_unknown_records_stay(folder: Folder) -> None:
    """R7: what we do not know is an event that keeps the books, payload and all."""
    folder.update("brand_new_thing", value=[1, 2])
    folder.line("updates.jsonl", {"something": "else"})

    assert [("lifecycle", State.INTERNAL)] * 2 == [(e.kind, e.state) for e in folder.graph.events]
    assert [1, 2] == folder.graph.events[0].payload["value"]


# -- calls ------------------------------------------------------------------------------------


def ending(folder: Folder) -> tuple[bool, int | None]:
    """How the only call ended."""
    (pair,) = derived_events.calls(folder.graph.events)
    assert pair.ending is not None
    return pair.ending.failed, pair.ending.exit_code


def test_a_failing_command_failed_though_it_completed(folder: Folder) -> None:
    """G13: the exit code tells, not the word `completed`."""
    folder.prompt("test", 0)
    folder.call("c1", command="pytest")
    folder.result("c1", "1 failed\n", code=1)

    assert (True, 1) == ending(folder)
    assert ["test_run"] == [e.kind for e in folder.graph.derived if e.kind == "test_run"]


@pytest.mark.parametrize(
    ("more", "failed"),
    [({"timed_out": True}, True), ({"signal": 9}, True), ({"exit_code": 0}, False)],
)
def test_a_command_that_was_cut_off_failed(
    folder: Folder, more: dict[str, Any], failed: bool
) -> None:
    """G13: a time-out and a signal are failures whatever the code."""
    folder.prompt("go", 0)
    folder.call("c1", command="sleep 9")
    folder.result("c1", "", **more)

    assert failed == folder.graph.events[-1].failed


def test_a_failed_status_is_a_failure(folder: Folder) -> None:
    """G13: refused edits, unknown tools and denials say so themselves."""
    folder.prompt("go", 0)
    folder.call("c1", "no_such_tool", x=1)
    content = [{"type": "content", "content": {"type": "text", "text": "Tool not found"}}]
    folder.update("tool_call_update", toolCallId="c1", status="failed", content=content)

    assert (True, None) == ending(folder)
    assert "Tool not found" == folder.graph.events[-1].payload


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({"type": "GrepSearch", "stdout": [111, 107], "exit_code": 1}, "ok"),
        ({"type": "ListDir", "Content": {"content": "- a"}}, "- a"),
        ({"type": "MCP", "output": {"OkayOutput": "echo"}}, "echo"),
        ({"type": "TaskOutput", "MultiResult": {"results": [{"output": "A"}, {"output": "B"}]}},
         "A\nB"),
        ({"type": "New", "stdout": [999], "text": "words"}, "words"),
    ],
)  # fmt: skip
def test_what_the_model_got_is_the_result(folder: Folder, raw: dict[str, Any], text: str) -> None:
    """G13: results are text, be they bytes or structures."""
    folder.prompt("go", 0)
    folder.call("c1", "tool")
    folder.update("tool_call_update", toolCallId="c1", status="completed", rawOutput=raw)

    assert (text, False) == (folder.graph.events[-1].payload, folder.graph.events[-1].failed)


def test_a_call_without_json_arguments_is_a_call(folder: Folder) -> None:
    """G13: garbled arguments leave no input."""
    folder.update("tool_call", toolCallId="c1", title="read_file")

    (event,) = folder.graph.events
    assert ("tool_call", "read_file", None, State.ORPHANED) == (
        event.kind,
        event.tool,
        event.payload,
        event.state,
    )


def test_a_long_output_names_its_file_and_no_path(folder: Folder) -> None:
    """R15: of the path in a record only the call's own name is kept."""
    folder.prompt("go", 0)
    folder.call("c1", command="seq 9")
    folder.result("c1", "1", truncated=True, output_file="/etc/passwd", total_bytes=77)

    assert {"file": "c1.log", "bytes": 77} == folder.graph.events[-1].payload


def test_a_background_command_fails_when_it_ends(folder: Folder) -> None:
    """G13: its result only says that it began; how it ended is told later."""
    folder.prompt("go", 0)
    folder.call("c1", command="make")
    raw = {"type": "BackgroundTaskStarted", "text": "started"}
    folder.update("tool_call_update", toolCallId="c1", status="completed", rawOutput=raw)
    folder.update("task_completed", tool_call_id="c1", task_snapshot={"exit_code": 2})

    result = next(e for e in folder.graph.events if e.kind == "tool_result")
    assert result.failed is True


def test_a_plan_holds_todos_and_stands_on_the_line(folder: Folder) -> None:
    """A rewind takes a plan with it."""
    folder.prompt("plan", 0)
    entries = [{"content": "dig", "status": "pending", "priority": "medium"}]
    folder.update("plan", entries=entries)

    plan = folder.graph.events[-1]
    assert ({"todos": entries}, State.LIVE) == (plan.payload, plan.state)


# -- bills ------------------------------------------------------------------------------------


def test_each_turn_has_its_own_bill(folder: Folder) -> None:
    """G6: usage is told per turn and not cumulative; input holds what came from the cache."""
    folder.turn("a", 0, tokens=1000)
    folder.prompt("b", 1)
    folder.say("fine")
    folder.done(500, cachedReadTokens=300, cacheCreationTokens=50)

    assert Usage(900 + 100, 100 + 50, 50, 300) == folder.graph.spent.live
    assert 1500 == folder.graph.spent.own
    assert [] == folder.graph.unbilled


def test_the_last_word_on_a_turn_counts(folder: Folder) -> None:
    """G6: a bill that is written again takes the place of the first, though it be smaller."""
    folder.turn("a", 0, tokens=1000)
    folder.done(400)

    assert 400 == folder.graph.spent.own


def test_cost_is_told_in_ticks(folder: Folder) -> None:
    """G6: ten thousand million ticks are a dollar."""
    folder.prompt("a", 0)
    folder.done(100, costUsdTicks=2_500_000_000)

    assert 0.25 == folder.graph.events[-1].cost_usd


def test_models_are_billed_apart(folder: Folder) -> None:
    """G6: a turn of two models has two bills, if they add up to the whole."""
    models = {"big": bill_of(700), "small": bill_of(300)}
    folder.prompt("a", 0)
    folder.done(1000, modelUsage=models)

    bills = [(e.model, e.tokens) for e in folder.graph.events if e.usage is not None]
    assert [("big", 700), ("small", 300)] == bills
    assert 1000 == folder.graph.spent.own


def test_models_that_do_not_add_up_are_billed_as_one(folder: Folder) -> None:
    """G6: the whole counts."""
    folder.prompt("a", 0)
    folder.done(1000, modelUsage={"big": bill_of(1), "small": bill_of(2)})

    assert 1000 == folder.graph.spent.own


@pytest.mark.parametrize("value", ["90", 90.0])
def test_counts_of_any_spelling(folder: Folder, value: object) -> None:
    """R9: numbers as text count, null counts as nothing."""
    usage = {"inputTokens": value, "outputTokens": None, "cachedReadTokens": None}
    folder.update("turn_completed", prompt_id="p", stop_reason="end_turn", usage=usage)

    assert 90 == folder.graph.spent.own


def test_context_is_no_bill(folder: Folder) -> None:
    """G7: the running context is an estimate, told apart and never added."""
    folder.prompt("a", 0)
    folder.say("b")

    assert 0 == folder.graph.spent.own
    assert {"tokens": 100} == folder.graph.about["status:context"]
    assert [NEVER_BILLED] == [notice.detail for notice in folder.graph.unbilled]


def test_a_killed_turn_says_that_its_bill_is_lost(folder: Folder) -> None:
    """G6: the client that comes after a crash ends the old turn without a bill."""
    folder.prompt("a", 0)
    folder.call("c1", command="sleep 99")
    folder.done(0, "interrupted")
    folder.update("background_tasks", tasks=[])
    folder.turn("b", 1, tokens=70)

    session = folder.graph
    assert 70 == session.spent.own
    assert [KILLED] == [notice.detail for notice in session.unbilled]
    assert (TurnState.DONE, ()) == (session.turn().state, session.turn().open_calls)
    assert State.ORPHANED is session.states[1]


def test_an_incomplete_bill_is_a_lower_bound(folder: Folder) -> None:
    """G6: the client may say itself that it lost count."""
    folder.prompt("a", 0)
    folder.done(100, usageIsIncomplete=True)

    assert (100, [INCOMPLETE]) == (
        folder.graph.spent.own,
        [notice.detail for notice in folder.graph.unbilled],
    )


def test_an_error_ends_a_turn_and_costs_nothing(folder: Folder) -> None:
    """G6: a refused request has no bill, and none is missing."""
    folder.prompt("a", 0)
    folder.update("retry_state", type="failed", message="API error")
    folder.update("turn_completed", prompt_id="p", stop_reason="error", agent_result="API error")

    session = folder.graph
    assert ("error", "system") == (session.events[-1].kind, session.events[-1].role)
    assert (TurnState.DONE, []) == (session.turn().state, session.unbilled)


def test_a_cancelled_turn_is_interrupted_and_billed(folder: Folder) -> None:
    """G6: what was spent before the human cut it short is on the bill."""
    folder.prompt("a", 0)
    folder.call("c1", command="sleep 99")
    folder.done(50, "cancelled")

    turn = folder.graph.turn()
    assert (50, TurnState.INTERRUPTED, ("c1",)) == (
        folder.graph.spent.own,
        turn.state,
        turn.open_calls,
    )


# -- rewinds ----------------------------------------------------------------------------------


def test_a_rewind_takes_the_turns_from_its_prompt_on(folder: Folder) -> None:
    """G9: the marker names a prompt; what it takes back stays, dead, and was paid for."""
    folder.turn("zero", 0, "a0")
    folder.turn("one", 1, "a1", tokens=40)
    folder.update("rewind_marker", target_prompt_index=1)
    folder.turn("uno", 1, "b1")

    assert [
        ("zero", "live"),
        ("a0", "live"),
        ("turn end_turn", "live"),
        ("one", "rolled_back"),
        ("a1", "rolled_back"),
        ("turn end_turn", "rolled_back"),
        ("rewound to prompt 1", "internal"),
        ("uno", "live"),
        ("b1", "live"),
        ("turn end_turn", "live"),
    ] == log_lines(folder.graph)
    assert (40, 240) == (folder.graph.spent.dead.total, folder.graph.spent.own)


def test_a_rewind_counts_prompts_by_their_index(folder: Folder) -> None:
    """G9: commands to the client are no prompts, and used indexes come again."""
    host = {"type": "text", "text": "/rename"}
    folder.turn("zero", 0)
    folder.update("user_message_chunk", content=host, _meta={"hostTurn": True})
    folder.turn("one", 1)
    folder.update("rewind_marker", target_prompt_index=1)
    folder.turn("uno", 1)
    folder.turn("due", 2)
    folder.update("rewind_marker", target_prompt_index=2)

    texts = [m["content"][0]["text"] for m in readout_of(folder.graph).messages().messages]
    assert ["zero", "fine", "uno", "fine"] == texts


@pytest.mark.parametrize("target", [None, "1", -5, 99, True])
def test_a_rewind_to_nowhere_is_harmless(folder: Folder, target: object) -> None:
    """R6: hostile targets take all or nothing, and raise nothing."""
    folder.turn("zero", 0)
    folder.update("rewind_marker", target_prompt_index=target)

    states = {state for summary, state in log_lines(folder.graph) if summary == "zero"}
    assert states == ({"rolled_back"} if target == -5 else {"live"})


def test_a_rewind_whose_prompt_lacks_an_index_counts_with_the_one_before(folder: Folder) -> None:
    """G9: text without an index belongs to the prompt that it follows."""
    folder.turn("zero", 0)
    folder.prompt("by the way")
    folder.done()
    folder.turn("one", 1)
    folder.update("rewind_marker", target_prompt_index=1)

    texts = [m["content"][0]["text"] for m in readout_of(folder.graph).messages().messages]
    assert ["zero", "fine", "by the way"] == texts


def test_a_log_that_was_cut_and_grew_again_keeps_what_was_read(folder: Folder) -> None:
    """G9: what a rewritten log no longer holds stays, dead, with its reason."""
    growing = Growing(folder)
    folder.turn("zero", 0)
    size = (folder.path / "updates.jsonl").stat().st_size
    folder.turn("one", 1)
    growing.read()
    start = (folder.path / "updates.jsonl").read_bytes()[:size]
    (folder.path / "updates.jsonl").write_bytes(start)
    folder.turn("other", 1)
    session = growing.read()

    gone = [event.summary for event in session.events if event.why == REWRITTEN]
    assert ["one", "fine", "turn end_turn"] == gone
    assert contents_of(folder.graph)["messages"] == readout_of(session).messages().messages


# -- compaction -------------------------------------------------------------------------------


def test_a_compaction_puts_its_history_in_place(folder: Folder) -> None:
    """G11: the checkpoint's own history goes to the model; the log keeps all."""
    compacted(folder)

    session = folder.graph
    contents = [
        part.get("text") or part["type"]
        for m in readout_of(session).messages().messages
        for part in m["content"]
    ]
    assert ["one", "Summary: all is well", "tool_use", "tool_result", "two", "fine"] == contents
    assert [] == problems(readout_of(session).messages().messages)
    assert {State.LIVE} == set(session.states)
    assert [COMPACTION] == [notice.detail for notice in session.unbilled]
    assert 0 == len(derived_events.calls(session.events))


@pytest.mark.parametrize(
    "file", ["", "..", "compaction_checkpoints/none.json", "../../../../../etc/passwd", "a\0b"]
)
def test_a_compaction_whose_history_is_lost_leaves_the_history(folder: Folder, file: str) -> None:
    """R15: only a plain name in the session's own folder is opened."""
    compacted(folder, file=file)

    texts = [m["content"][0]["text"] for m in readout_of(folder.graph).messages().messages]
    assert ["one", "fine", "two", "fine"] == texts


def test_a_linked_checkpoint_is_not_followed(folder: Folder, tmp_path: Path) -> None:
    """R15: neither a link to a file nor a folder that is one."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "c.json").write_text(json.dumps({"compacted_history": HISTORY}))
    (folder.path / "compaction_checkpoints").symlink_to(outside)
    folder.turn("one", 0)
    folder.update("compaction_checkpoint", checkpoint_file="c.json")

    assert "one" == readout_of(folder.graph).messages().messages[0]["content"][0]["text"]


def test_a_failed_compaction_is_unbilled_too(folder: Folder) -> None:
    """G11: its requests were made, and are on no bill."""
    folder.turn("one", 0)
    folder.update("auto_compact_failed", error="degenerate summary")

    assert [COMPACTION] == [notice.detail for notice in folder.graph.unbilled]


# -- subagents and forks ----------------------------------------------------------------------


def test_a_parent_pays_for_itself_only(folder: Folder) -> None:
    """G6: a bill holds its subagents' requests, which their own bills hold as well."""
    folder.prompt("ask two", 0)
    folder.update("subagent_spawned", child_session_id=SECOND, parent_prompt_id=folder.prompt_id)
    child(folder, SECOND, 300, "2026-11-15T18:36:05.001000Z")
    folder.done(1000, calls=5, turns=3)

    assert 700 == folder.graph.spent.own
    assert [] == folder.graph.unbilled
    assert [("subagent", SECOND, True)] == [
        (e.link, e.session, e.child) for e in folder.graph.edges
    ]


def test_a_bill_that_holds_no_others_is_left_alone(folder: Folder) -> None:
    """G6: what a subagent spent between turns stands on no bill of its parent."""
    folder.prompt("ask", 0)
    child(folder, SECOND, 300, "2026-11-15T18:36:05.001000Z")
    folder.done(1000, calls=3, turns=3)
    folder.prompt("again", 1)
    folder.done(500, calls=4, turns=2)

    assert 1500 == folder.graph.spent.own
    assert ["2 requests of other sessions are on a bill"] == [
        notice.detail for notice in folder.graph.unbilled
    ]


def test_a_childs_folder_is_not_reached_through_a_link(folder: Folder, tmp_path: Path) -> None:
    """R15: a subagent's usage is read from a real folder beside the session, or not at all."""
    folder.prompt("ask", 0)
    folder.done(1000, calls=4, turns=2)
    folder.write(f"subagents/{SECOND}/meta.json", {"child_session_id": SECOND})
    away = Folder(tmp_path / "away", SECOND)
    bill = bill_of(300, 2)
    away.write("usage.json", {"sessionId": SECOND, "turns": [{"endedAt": "x", **bill}]})
    (folder.path.parent / SECOND).symlink_to(away.path)

    assert 1000 == folder.graph.spent.own


def forked(folder: Folder, session: str = SECOND) -> Folder:
    """A copy of a session as the client makes it: new session id and seconds, nothing else."""
    fork = Folder(folder.home, session)
    for line in (folder.path / "updates.jsonl").read_text().splitlines():
        value = json.loads(line)
        value["params"]["sessionId"] = session
        value["timestamp"] += 60
        fork.line("updates.jsonl", value)
    fork.summary(parent_session_id=folder.session, forked_at="2026-11-15T19:00:00Z")
    fork._turn = folder._turn
    return fork


def test_a_forks_own_part_begins_with_its_own_records(folder: Folder) -> None:
    """G6: inherited turns are replayed and paid by the parent."""
    folder.turn("one", 0, tokens=1000)
    fork = forked(folder)
    fork.update("background_tasks", tasks=[])
    fork.turn("two", 1, tokens=50)

    session = fork.graph
    assert (50, 1000) == (session.spent.own, folder.graph.spent.own)
    assert ["replayed"] * 3 + ["internal"] + ["live"] * 3 == [s for _, s in log_lines(session)]
    assert [("fork", FIRST, False)] == [(e.link, e.session, e.child) for e in session.edges]
    texts = [m["content"][0]["text"] for m in readout_of(session).messages().messages]
    assert ["one", "fine", "two", "fine"] == texts


def test_copies_are_known_by_what_a_fork_keeps(folder: Folder) -> None:
    """G6: the copy of a record has its key, whatever second it was written in."""
    folder.turn("one", 0)
    keys = [[fact.copy_key for fact in member.graph.facts] for member in (folder, forked(folder))]

    assert None not in keys[0]
    assert keys[0] == keys[1]


def test_a_fork_of_a_fork_is_tied_to_its_parent(folder: Folder) -> None:
    """G8: without a summary the last author before its own records is the parent."""
    folder.turn("one", 0)
    fork = forked(folder)
    fork.turn("two", 1)
    again = forked(fork, "01a1e000-0000-7000-8000-000000000003")
    again.turn("three", 2, tokens=30)
    (again.path / "summary.json").unlink()

    assert 30 == again.graph.spent.own
    assert [("fork", SECOND)] == [(edge.link, edge.session) for edge in again.graph.edges]


def test_a_renamed_folder_is_no_fork(folder: Folder) -> None:
    """R11: records that name their own session are its own, whatever its folder is called."""
    folder.turn("one", 0)
    moved = folder.path.rename(folder.path.with_name("backup of one"))
    folder.path = moved

    assert ("backup of one", 100) == (folder.source.session, folder.graph.spent.own)
