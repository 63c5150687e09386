"""Claude Code's records: what each kind of them says, in all four generations of the format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.transcripts import (
    A,
    Script,
    alone,
    kinds,
    lines,
    prompts,
    read,
    sent_lines,
    session_of,
    text,
    write,
)
from tests.format.messages_api import PNG
from thence.agents import Mark
from thence.agents.claude.fields import is_record
from thence.agents.claude.records import ClaudeLog
from thence.format.codec import RawRecord, objects
from thence.format.facts import Fact
from thence.format.graph import State
from thence.format.nodes import Is
from thence.format.turn import TurnState
from thence.memory.readouts import readout_of

# -- what was said --------------------------------------------------------------------------


def test_several_blocks_in_one_record_are_several_events(tmp_path: Path) -> None:
    """T1, T2: one record per block is the rule, all in one the exception; both read the same."""
    log = Script()
    call = {"type": "tool_use", "id": "t", "name": "Read", "input": {"file_path": "/a"}}
    log.user("Go.")
    log.reply([text("Reading."), call], stop="tool_use")
    log.result("t")
    session = session_of(tmp_path, log)

    assert ["assistant_msg", "tool_call"] == [kind for kind, _, _ in kinds(session, "r2")]
    assert ["u Go.", "a Reading.", "a t", "u t"] == sent_lines(session)


def test_a_queued_prompt_in_the_chain_is_a_prompt(tmp_path: Path) -> None:
    """T3: newer clients write it as an attachment with an id, pictures and all."""
    log = Script()
    log.user("Go.")
    log.note("queue-operation", operation="enqueue", content="Also this.")
    log.call("t")
    log.result("t")
    log.note("queue-operation", operation="remove", content="Also this.")
    picture = {"type": "image", "source": {"type": "base64", "data": "AA=="}}
    prompt = {"type": "queued_command", "prompt": [picture, text("Also this.")]}
    log.add("attachment", attachment={**prompt, "commandMode": "prompt"})
    log.say("Both.")
    log.add("attachment", attachment={"type": "date"})
    session = session_of(tmp_path, log)

    assert ["Go.", "", "Also this."] == prompts(session)
    assert "u Also this." in sent_lines(session)
    assert 2 == session.session().cost.turns


def test_a_queued_prompt_without_an_id_stands_beside_the_line(tmp_path: Path) -> None:
    """T3: nothing can go on from it, but it was said, once."""
    log = Script()
    log.user("Go.")
    log.note("attachment", attachment={"type": "queued_command", "prompt": "Also this."})
    notice = "<task-notification>\n<task-id>a</task-id></task-notification>"
    log.note("attachment", attachment={"type": "queued_command", "prompt": notice})
    log.say("Yes.")
    session = session_of(tmp_path, log)

    assert ["Go.", "Also this."] == prompts(session)
    assert ["u Go.", "a Yes."] == sent_lines(session)


def test_a_queued_prompt_of_a_client_without_attachments_is_told_once(tmp_path: Path) -> None:
    """T3: taken at once it is a user's record; in the middle of a turn nothing else says it."""
    log = Script(version="2.1.23")
    log.note("queue-operation", operation="enqueue", content="Go.")
    log.note("queue-operation", operation="dequeue")
    log.user("Go.")
    log.note("queue-operation", operation="enqueue", content="Also this.")
    log.note("queue-operation", operation="remove")
    log.say("Both.")
    session = session_of(tmp_path, log)

    assert ["Go.", "Also this."] == prompts(session)


def test_injected_records_are_no_prompts(tmp_path: Path) -> None:
    """T4: skills, caveats and notifications; they go to the model all the same."""
    log = Script()
    log.user("Skill body", isMeta=True, sourceToolUseID="t")
    log.user("Done", origin={"kind": "task-notification"})
    log.user("From the system", promptSource="system")
    log.user("Mine", origin={"kind": "human"}, promptSource="typed")
    session = session_of(tmp_path, log)

    assert ["Mine"] == prompts(session)
    assert ["u Skill body", "u Done", "u From the system", "u Mine"] == sent_lines(session)


def test_blocks_in_front_of_a_prompt_stay_in_its_payload(tmp_path: Path) -> None:
    """T5: the summary is what the human said; what the model saw is not changed."""
    full = "<system-reminder>\nbe good\n</system-reminder>\nFix it"
    log = Script()
    log.user(full)
    log.user([text("<ide_opened_file>/a</ide_opened_file>"), text("And this")])
    session = session_of(tmp_path, log)

    assert ["Fix it", "And this"] == prompts(session)
    assert [f"u {full}"] == sent_lines(session)[:1]
    assert 2 == session.session().cost.turns


def test_what_a_local_command_printed_goes_out_as_the_users(tmp_path: Path) -> None:
    """T5: a system record, in newer clients, whose content the model sees."""
    log = Script()
    log.user("Go.")
    log.add("system", subtype="local_command", content="<command-name>/cost</command-name>")
    session = session_of(tmp_path, log)

    assert [("lifecycle", "user", "/cost")] == kinds(session, "r2")
    assert ["u Go.", "u <command-name>/cost</command-name>"] == sent_lines(session)


@pytest.mark.parametrize(
    ("content", "fields", "expected"),
    [("Warmup", {}, "warmup"), ("Hello memory agent, go on.", {}, "memory observer"),
     ("<command-name>/usage</command-name>", {"entrypoint": "sdk-cli"}, "usage probe"),
     ("<command-name>/usage</command-name>", {"entrypoint": "cli"}, None), ("Go.", {}, None)],
)  # fmt: skip
def test_sessions_of_machines_are_marked(
    tmp_path: Path, content: str, fields: Any, expected: str | None
) -> None:
    """T6: probes and observers are kept, with a mark."""
    log = Script()
    log.user(content, **fields)

    assert expected == session_of(tmp_path, log).about.get("automated")


def test_a_structured_result_keeps_what_its_text_does_not_say(tmp_path: Path) -> None:
    """T8: what both hold is kept once; the messages have the result alone."""
    log = Script()
    log.call("t")
    result = {"stdout": "hello", "stderr": "", "interrupted": False, "returnCodeInterpretation": 1}
    log.result("t", "hello", toolUseResult=result)
    session = session_of(tmp_path, log)
    detail = session.events[-1]

    assert ("lifecycle", "system", "t") == (detail.kind, detail.role, detail.call)
    assert {"returnCodeInterpretation": 1} == detail.payload
    sent = readout_of(session).messages().messages[-1]["content"]
    assert [{"type": "tool_result", "tool_use_id": "t", "content": "hello"}] == sent


@pytest.mark.parametrize(
    ("wrong", "failed", "sent"),
    [(True, True, {"is_error": True}), (False, False, {"is_error": False}),
     (None, False, {}), (..., False, {})],
)  # fmt: skip
def test_false_null_and_no_error_differ(
    tmp_path: Path, wrong: Any, failed: bool, sent: dict[str, bool]
) -> None:
    """T9: a result that does not speak of an error was none, whatever its text begins with."""
    log = Script()
    log.call("t", "Read", file_path="/a")
    log.result("t", "Error: this is a file about errors", wrong=wrong)
    session = session_of(tmp_path, log)
    block = readout_of(session).messages().messages[-1]["content"][0]

    assert [failed] == [e.failed for e in session.events if e.kind == "tool_result"]
    assert sent == {name: block[name] for name in block if name == "is_error"}
    assert failed == any(e.kind == "error" for e in session.derived)


def test_pictures_and_other_blocks_are_kept(tmp_path: Path) -> None:
    """T10, T11: pictures, documents, redacted thoughts, and kinds nobody knows."""
    picture = {"type": "image", "source": {"type": "base64", "media_type": "x", "data": PNG}}
    log = Script()
    log.user([picture, text("What is it? [Image #3]")], imagePasteIds=[3])
    log.reply([{"type": "redacted_thinking", "data": "x"}], stop="end_turn")
    log.reply([{"type": "fallback", "name": "x"}], stop="end_turn")
    session = session_of(tmp_path, log)
    sent = [b for m in readout_of(session).messages().messages for b in m["content"]]

    assert ["image", "text", "redacted_thinking", "text"] == [b["type"] for b in sent]
    assert "[fallback: x]" == sent[-1]["text"]
    assert "What is it? [Image #3]" == session.title
    assert 1 == session.session().cost.turns


def test_a_picture_that_a_result_holds_twice_is_kept_once(tmp_path: Path) -> None:
    """T10, T12: so it is with the numbered copy of a file that was read."""
    data = "A" * 500
    picture = [{"type": "image", "source": {"type": "base64", "data": data}}]
    body = "\n".join(f"line {n} of the file" for n in range(30))
    numbered = "\n".join(f"{n + 1:6}→line {n} of the file" for n in range(30))
    log = Script()
    log.call("t1", "Read", file_path="/a.png")
    log.result("t1", picture, toolUseResult={"type": "image", "file": {"base64": data}})
    log.call("t2", "Read", file_path="/a")
    file = {"filePath": "/a", "content": body, "numLines": 30}
    log.result("t2", numbered, toolUseResult={"type": "text", "file": file})
    details = [e.payload for e in session_of(tmp_path, log).events if e.summary == "details"]

    assert [{"type": "image"}, {"type": "text", "file": {"filePath": "/a", "numLines": 30}}] == (
        details
    )


# -- subagents ------------------------------------------------------------------------------


def test_inline_subagents_have_channels_of_their_own(tmp_path: Path) -> None:
    """S1, S2: clients of the 1.0 line; the prompt is the only link to the call."""
    log = Script()
    log.user("Go.")
    log.call("t1", "Task", description="One", prompt="Count.")
    log.call("t2", "Task", description="Two", prompt="List.")
    first = log.user("Count.", isSidechain=True, parentUuid=None)
    second = log.user("List.", isSidechain=True, parentUuid=None)
    log.say("3", isSidechain=True, parentUuid=first)
    log.say("a, b", isSidechain=True, parentUuid=second)
    log.result("t1", "3", parentUuid="r3")
    log.result("t2", "a, b")
    session = session_of(tmp_path, log)
    channels = [event.channel for event in session.events if event.is_sidechain]

    assert [f"agent:{first}", f"agent:{second}"] * 2 == channels
    assert ("t1", "t2") == (session.about[f"agent:{first}"], session.about[f"agent:{second}"])
    assert ["u Go.", "a t1", "a t2", "u t1", "u t2"] == sent_lines(session)
    assert 1 == session.session().cost.turns


def test_the_call_of_a_subagent_is_told_in_many_ways(tmp_path: Path) -> None:
    """S2: by the result, the end of its text, progress, and a notification."""
    log = Script()
    log.user("Go.")
    log.call("t1", "Agent", prompt="x")
    log.add("progress", data={"type": "agent_progress", "agentId": "a1"}, parentToolUseID="t1")
    log.result("t2", "ok", toolUseResult={"agentId": "a2", "status": "completed"})
    log.result("t3", [text("ok"), text("agentId: a3 (for resuming)")])
    notice = "<task-notification>\n<task-id>a4</task-id>\n<tool-use-id>t4</tool-use-id>"
    log.user(notice)
    log.note("queue-operation", operation="enqueue", content=notice.replace("4", "5"))
    about = session_of(tmp_path, log).about

    assert ["t1", "t2", "t3", "t4", "t5"] == [about[f"agent:a{n}"] for n in range(1, 6)]


def test_progress_is_cheap_and_repeats_nothing(tmp_path: Path) -> None:
    """S7: what it copies from a log or a result is left out, its links are not."""
    log = Script()
    log.call("t")
    data = {"type": "bash_progress", "fullOutput": "x" * 9999, "elapsedTimeSeconds": 3}
    log.add("progress", data=data, parentToolUseID="t")
    event = session_of(tmp_path, log).events[-1]

    assert {"type": "bash_progress", "elapsedTimeSeconds": 3} == event.payload
    assert ("t", State.INTERNAL) == (event.call, event.state)


def test_a_background_agents_answer_is_shown_once(tmp_path: Path) -> None:
    """S5: a stub when it starts, the answer in a notification when it ends."""
    log = Script()
    log.call("t", "Agent", prompt="x", run_in_background=True)
    stub = {"isAsync": True, "status": "async_launched", "agentId": "a1"}
    log.result("t", "Async agent launched", toolUseResult=stub)
    log.user("<task-notification><task-id>a1</task-id><result>42</result></task-notification>")
    session = session_of(tmp_path, log)

    assert 1 == sum("42" in str(e.payload) for e in session.events)
    assert [] == prompts(session)


# -- where a turn stands --------------------------------------------------------------------


def test_the_last_record_tells_where_the_turn_stands(tmp_path: Path) -> None:
    """A1: an end is an end; a call without a result is open, and no log says why."""
    log = Script()
    log.user("Go.")
    seen = [session_of(tmp_path, log).turn().state]
    log.call("t")
    seen.append(session_of(tmp_path, log).turn().state)
    log.result("t")
    log.reply([text("Done.")])
    seen.append(session_of(tmp_path, log).turn().state)
    log.user("[Request interrupted by user]")
    seen.append(session_of(tmp_path, log).turn().state)

    assert [TurnState.RUNNING] * 2 + [TurnState.DONE, TurnState.INTERRUPTED] == seen


def test_a_torn_tail_is_a_flag_beside_the_state(tmp_path: Path) -> None:
    """A2: the last whole record decides."""
    log = Script()
    log.user("Go.")
    log.say("Done.")
    folder = write(tmp_path, log)
    with (folder / f"{A}.jsonl").open("ab") as file:
        file.write(b'{"type":"user","uu')
    turn = read(tmp_path).graph.turn()

    assert (TurnState.DONE, True) == (turn.state, turn.torn)


def test_permissions_are_history(tmp_path: Path) -> None:
    """A3: modes are events of the books and nothing more."""
    log = Script()
    log.note("permission-mode", permissionMode="bypassPermissions")
    log.note("mode", mode="plan")
    log.user("Go.", permissionMode="bypassPermissions")
    session = session_of(tmp_path, log)

    assert [State.INTERNAL, State.INTERNAL, State.LIVE] == session.states
    assert {"cwd", "git_branch", "version"} == set(session.about)


def test_a_resumed_client_answers_for_what_was_killed(tmp_path: Path) -> None:
    """A1: its results are no real ones, and its own words are no answer."""
    log = Script()
    log.user("Go.")
    log.call("t")
    lost = "[Tool call interrupted: the session ended before this call's result was recorded.]"
    log.result("t", lost, wrong=True, toolDenialKind="interrupted")
    log.reply([text("No response requested.")], model="<synthetic>")
    session = session_of(tmp_path, log)

    assert session.graph.nodes[2].flags & Is.SYNTHETIC
    assert TurnState.INTERRUPTED == session.turn().state
    assert not any(e.kind == "completion" for e in session.derived)


# -- anything at all ------------------------------------------------------------------------


def test_unknown_records_are_kept_whole(tmp_path: Path) -> None:
    """R7: each becomes an event with its type and all of its fields."""
    log = Script()
    log.note("brand-new", value=[1, {"a": None}])
    log.records.append({"silly": 1})
    session = session_of(tmp_path, log)

    assert ["brand-new", "(none)"] == [event.native_type for event in session.events]
    assert [{"value": [1, {"a": None}]}, {"silly": 1}] == [e.payload for e in session.events]


def test_the_order_of_keys_and_spaces_say_nothing(tmp_path: Path) -> None:
    """R10: the same record, spelled otherwise, is the same event."""
    log = Script()
    log.user("Go.")
    record = log.records[0]
    plain, odd = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    plain.write_bytes(log.data)
    odd.write_bytes(lines([dict(reversed(record.items()))]).replace(b": ", b" :  "))
    facts = [
        [*ClaudeLog(alone(p), alone(p).files[0], Mark(0, 0, 0, 0)).facts(f)]
        for p in (plain, odd)
        for f in objects(p.read_bytes())
        if isinstance(f, RawRecord)
    ]

    assert facts[0] == facts[1]


def test_a_log_without_links_is_a_line(tmp_path: Path) -> None:
    """R12: records of other tools that write the same shape without ids."""
    log = Script()
    log.note("user", message={"role": "user", "content": "One."})
    log.note("assistant", message={"role": "assistant", "content": [text("Answer.")]})
    log.note("user", message={"role": "user", "content": "Two."})

    assert ["u One.", "a Answer.", "u Two."] == sent_lines(session_of(tmp_path, log))


JSONS = st.sampled_from(
    [
        *(None, True, 7, 1.5, -(2**70), 2**70, "", "r1", "<task-notification>", "\ud800"),
        *([], ["r1"], [None], {}, {"type": "text"}, {"type": 7}, {"sessionId": "s"}),
        *({"content": "x"}, {"agentId": "a"}),
    ]
)
FIELDS = [
    *("uuid", "parentUuid", "isSidechain", "sessionId", "timestamp", "cwd", "gitBranch", "version"),
    *("toolUseResult", "isMeta", "isCompactSummary", "isApiErrorMessage", "forkedFrom", "data"),
    *("attachment", "parentToolUseID", "subtype", "content", "compactMetadata", "operation"),
    *("logicalParentUuid", "leafUuid", "explicit", "summary", "customTitle", "aiTitle", "origin"),
    *("totalCostUSD", "agentId", "requestId", "costUSD", "toolDenialKind", "error"),
]
TYPES = [
    *("user", "assistant", "system", "attachment", "progress", "queue-operation", "last-prompt"),
    *("summary", "ai-title", "custom-title", "cost-state", "file-history-snapshot"),
]
BLOCKS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image"]) | JSONS},
    optional=dict.fromkeys(
        ("text", "id", "name", "input", "content", "tool_use_id", "is_error"), JSONS
    ),
)
MESSAGES = st.fixed_dictionaries(
    {}, optional={"content": st.lists(BLOCKS | JSONS, max_size=3) | JSONS, "id": JSONS,
                  "usage": JSONS, "model": JSONS, "stop_reason": JSONS},
)  # fmt: skip
RECORDS = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES) | JSONS, "message": MESSAGES | JSONS},
    optional=dict.fromkeys(FIELDS, JSONS),
)


@given(st.lists(RECORDS, max_size=6))
def test_no_record_of_any_shape_raises_or_vanishes(records: list[dict[str, Any]]) -> None:
    """R4, R6: whatever stands in a field; each record is an event, read in one go or in pieces."""
    path = Path("/nowhere")
    source = alone(path)
    raw_records = [f for f in objects(lines(records)) if isinstance(f, RawRecord)]
    log = ClaudeLog(source, source.files[0], Mark(0, 0, 0, 0))
    once = [fact for record in raw_records for fact in log.facts(record)]
    pieces: list[Fact] = []
    carry = None
    for record in raw_records:
        part = ClaudeLog(source, source.files[0], Mark(0, 0, 0, 0, carry=carry))
        pieces += part.facts(record)
        carry = part.carry()

    assert once == pieces
    assert len(raw_records) == len({fact.line for fact in once if fact.blocks})


@pytest.mark.parametrize(
    ("value", "expected"),
    [({"type": "user", "uuid": "a"}, True), ({"type": "text", "text": "x"}, False),
     ({"type": "summary", "leafUuid": "a"}, True), ({"uuid": "a"}, False)],
)  # fmt: skip
def test_a_part_of_a_record_is_no_record(value: dict[str, Any], expected: bool) -> None:
    """R4: what is salvaged from a damaged line must be a record of its own."""
    assert expected == is_record(value)
