"""What Codex's records say: who spoke, what it cost, where turns end, what was undone."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.rollouts import (
    SEGMENT,
    A,
    B,
    C,
    Home,
    Line,
    assistant,
    billed,
    bytes_of,
    call,
    completed,
    counted,
    envelope,
    event,
    finished,
    item,
    meta,
    numbered,
    output,
    started,
    tokens,
    user,
)
from tests.format.messages_api import PNG
from thence.agents import File, Mark, Source
from thence.agents.codex.records import CUT_OFF, NO_USAGE, RolloutReader
from thence.format import derived_events, lineage
from thence.format.codec import RawRecord
from thence.format.graph import State
from thence.format.records import Place, Usage
from thence.format.repair import problems
from thence.format.session_graph import SessionGraph
from thence.format.turn import TurnState
from thence.memory.readouts import readout_of


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty home of Codex."""
    return Home(tmp_path)


def texts(session: SessionGraph, *states: State) -> list[str]:
    """What was said, of events in these states, or in any."""
    kinds = ("user_msg", "assistant_msg")
    return [
        e.summary for e in session.events if e.kind in kinds and (not states or e.state in states)
    ]


def own(session: SessionGraph) -> int:
    """All tokens of the session itself."""
    return session.spent.own


def ties(session: SessionGraph) -> list[tuple[str, str, bool]]:
    """Ties to other sessions."""
    return [(edge.link, edge.session, edge.child) for edge in session.edges]


def turn(name: str, prompt: str, answer: str) -> list[Line]:
    """A whole turn of the legacy form."""
    return [started(name), user(prompt), assistant(answer), completed(name)]


# -- forms ----------------------------------------------------------------------------------


def test_bare_form_of_2025(home: Home) -> None:
    """X3, R10: no envelope, no times, no usage; the head is known without its type."""
    bare = [
        {"instructions": None, "timestamp": "2026-01-01T00:00:00.000Z", "id": A, "git": {}},
        {"record_type": "state"},
        user("Old style")["payload"],
        item("reasoning", summary=[], encrypted_content="E")["payload"],
        call("shell", "c", command=["bash", "-lc", "exit 7"])["payload"],
        output("c", json.dumps({"output": "", "metadata": {"exit_code": 7}}))["payload"],
        assistant("done")["payload"],
    ]
    session = home.load(bare).graph
    (pair,) = derived_events.calls(session.events)

    assert ["Old style", "done"] == texts(session, State.LIVE)
    assert pair.ending is not None
    assert (True, 7) == (pair.ending.failed, pair.ending.exit_code)
    assert (0, [NO_USAGE]) == (own(session), [notice.detail for notice in session.unbilled])
    assert TurnState.DONE == session.turn().state


def test_bare_and_wrapped_lines_in_one_file(home: Home) -> None:
    """X3, R8: an upgrade in mid-session; what the later head adds is known too."""
    head = {"id": A, "timestamp": "2026-01-01T00:00:00.000Z", "instructions": None}
    session = home.load([head, user("hi")["payload"], meta(), assistant("yo")]).graph

    assert ["hi", "yo"] == texts(session, State.LIVE)
    assert "/p" == session.about["cwd"]


def test_unknown_types_are_kept(home: Home) -> None:
    """R7: records of a later version are events, not part of what was said."""
    odd = [envelope("future_thing", {"x": 1}), item("hologram", y=2), event("zorp")]
    session = home.load([meta(), *odd, user("hi"), envelope("world_state", {"full": True})]).graph

    assert ["future_thing", "hologram", "zorp", "world_state"] == [
        e.summary for e in session.events if e.kind == "lifecycle" and e.summary != "session_meta"
    ]
    assert {State.INTERNAL} == {e.state for e in session.events if e.kind == "lifecycle"}


@pytest.mark.parametrize(
    "payload", [None, 3, [], "x", {"type": []}, {"content": 5, "role": "user"}]
)
def test_no_content_raises(home: Home, payload: object) -> None:
    """Whatever stands where, an event comes of it."""
    kinds = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
    lines: list[Any] = [envelope(kind, payload) for kind in kinds]  # type: ignore[arg-type]
    lines += [{"type": kind, "payload": payload} for kind in kinds]
    session = home.load([*lines, user("still here")]).graph

    assert ["still here"] == texts(session)[-1:]
    assert len(lines) + 1 == len(session.facts)


JUNK: list[Any] = [
    *(None, True, -1, 3.5, 10**30, "", "x", "{", [], {}, [None], [[]], {"a": 1}, "\ud800"),
    {"subagent": {"thread_spawn": 5}},
]


def spoiled(value: Any, chance: random.Random) -> Any:
    """The same value with some of it lost or replaced by anything."""
    if chance.random() < 0.05:
        return chance.choice(JUNK)
    if isinstance(value, dict):
        return {k: spoiled(v, chance) for k, v in value.items() if chance.random() > 0.03}
    return [spoiled(v, chance) for v in value] if isinstance(value, list) else value


@pytest.mark.slow
@given(st.randoms(use_true_random=False))
def test_no_spoiled_record_raises_or_vanishes(chance: random.Random) -> None:
    """R6, R9: any field of any record may be lost or be anything; each line stays an event."""
    known = [
        *replayed(PARENT),
        call("spawn_agent", "c", message="x"),
        output("c", [{"type": "input_text", "text": "x"}]),
        finished("CommandExecution", id="c", exit_code=1, duration={"secs": 1, "nanos": 5}),
        finished("CollabAgentToolCall", id="c", tool="spawn_agent", receiver_thread_ids=[B]),
        envelope("compacted", {"message": "s", "replacement_history": [user("x")["payload"]]}),
        billed(A, "r", tokens(1, 1)),
        meta(C, history_base={"thread_id": A}, source={"subagent": {"thread_spawn": {}}}),
    ]
    lines = [spoiled(chance.choice(known), chance) for _ in range(30)]
    rollout = RolloutReader(Source("codex", A, ()), File("x.jsonl", A), Mark(0, 0, 0, 0))
    facts = []
    for number, line in enumerate(lines, 1):
        if isinstance(line, dict):
            raw = json.dumps(line).encode()
            own_facts = list(rollout.facts(RawRecord(line, Place(number, 0, len(raw)), raw)))
            assert own_facts[0].blocks
            facts += own_facts
    session = SessionGraph(f"codex:{A}", facts)

    assert len([fact for fact in facts if fact.blocks]) == len(session.states)
    assert [] == problems(readout_of(session).messages().messages)
    assert session.session() is not None
    assert rollout.carry() == json.loads(json.dumps(rollout.carry()))


# -- who said it ----------------------------------------------------------------------------


def test_mirrors_are_not_said_twice(home: Home) -> None:
    """X6: text stands in response items; what repeats it is book-keeping, in both modes."""
    mirrors = [
        event("user_message", message="hi"),
        event("agent_reasoning", text="hm"),
        event("agent_message", message="yo"),
        finished("UserMessage", content=[{"type": "text", "text": "hi"}]),
        finished("AgentMessage", content=[{"type": "Text", "text": "yo"}]),
        finished("Reasoning", summary_text=["hm"]),
    ]
    session = home.load([meta(), user("hi"), assistant("yo"), *mirrors]).graph

    assert ["hi", "yo"] == texts(session)
    assert [State.INTERNAL] * 6 == session.states[-6:]
    assert 2 == len(readout_of(session).messages().messages)


@pytest.mark.parametrize(
    "text",
    [
        "<environment_context>\n  <cwd>/p</cwd>\n</environment_context>",
        "<turn_aborted>\nThe user interrupted\n</turn_aborted>",
        '<subagent_notification>\n{"a":1}\n</subagent_notification>',
        "# AGENTS.md instructions for /p\n\n<INSTRUCTIONS>\nBe kind.\n</INSTRUCTIONS>",
        "<user_instructions>\nBe kind.\n</user_instructions>",
        "<INSTRUCTIONS>x</INSTRUCTIONS>",
        "<user_action>review</user_action>",
        "<skill>\n<name>x</name>\n</skill>",
        "<goal_context>x</goal_context>",
        '<codex_internal_context source="goal">x</codex_internal_context>',
        "<recommended_plugins>x</recommended_plugins>",
        "Another language model started to solve this problem and produced a summary.",
    ],
)
def test_codex_own_text_in_the_users_mouth_is_no_prompt(home: Home, text: str) -> None:
    """X13, X19: it goes to the model, but no human said it."""
    session = home.load(
        [meta(version="0.130.0"), user(text), user("Fix it"), assistant("ok")]
    ).graph

    assert ["Fix it", "ok"] == texts(session)
    assert 1 == session.session().cost.turns
    assert [text, "Fix it"] == [
        b["text"] for b in readout_of(session).messages().messages[0]["content"]
    ]


@pytest.mark.parametrize(
    "text",
    [
        "<environment_context>\n</environment_context>\n\nFix it",
        "# AGENTS.md instructions for /p\n<INSTRUCTIONS>x</INSTRUCTIONS>\nFix it",
        "# Context from my IDE setup:\n\n## Open tabs:\n- a.py\n\n## My request for Codex:\nFix it",
        "<skill>x</skill>\n<goal_context></goal_context>\n## My request for Codex:\nFix it",
    ],
)
def test_request_behind_codex_own_text_is_a_prompt(home: Home, text: str) -> None:
    """X13: a real prompt may follow in the same block."""
    session = home.load([meta(version="0.130.0"), user(text)]).graph

    assert ["Fix it"] == texts(session)


def test_kinds_that_the_writer_names_decide(home: Home) -> None:
    """A human may quote Codex's texts, and Codex's may look like a human's."""
    lines = [
        user("<environment_context> is what?", "user.text"),
        user("Mind the gap", "environments.environment_context"),
    ]
    session = home.load([meta(), *lines]).graph

    assert ["<environment_context> is what?"] == texts(session)


def test_prompt_said_again_after_an_interruption_is_one(home: Home) -> None:
    """X14: the first prompt, re-emitted before any new turn; said in a new one it is a prompt."""
    begin = [meta(version="0.130.0"), started("t1"), user("Fix it")]
    aborted = [*begin, event("turn_aborted", turn_id="t1", reason="interrupted")]
    again = home.load([*aborted, user("Fix it")]).graph
    anew = home.load([*aborted, started("t2"), user("Fix it")], B).graph

    assert (1, 2) == (again.session().cost.turns, anew.session().cost.turns)


def test_developer_messages_are_never_sent(home: Home) -> None:
    """Instructions of the client are no part of the conversation."""
    line = item("message", role="developer", content=[{"type": "input_text", "text": "be kind"}])
    session = home.load([meta(), line, user("hi")]).graph

    assert ["hi"] == [b["text"] for b in readout_of(session).messages().messages[0]["content"]]
    assert "system" == session.events[1].role


def test_encrypted_content_is_never_shown(home: Home) -> None:
    """X19: thoughts and messages between agents show what is readable, and no more."""
    secret = "gAAAAA-secret"
    cipher = {"type": "encrypted_content", "encrypted_content": secret}
    lines = [
        item(
            "reasoning", summary=[{"type": "summary_text", "text": "hm"}], encrypted_content=secret
        ),
        item("reasoning", summary=[], encrypted_content=secret),
        item("agent_message", author="/root", recipient="/root/a", content=[cipher]),
        item("compaction", encrypted_content=secret),
        envelope(
            "compacted",
            {
                "message": "sum",
                "replacement_history": [
                    user("hi")["payload"],
                    {"type": "compaction", "encrypted_content": secret},
                ],
            },
        ),
    ]
    session = home.load([meta(), user("hi"), *lines]).graph

    assert secret not in repr(session.events)
    assert ["hm", ""] == [e.summary for e in session.events if e.kind == "thinking"]


def test_pictures_have_no_text(home: Home) -> None:
    """T10: an image is kept as an image; its wrapper does not name the session."""
    content = [
        {"type": "input_text", "text": '<image name=[Image #1] path="dot.png">'},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
        {"type": "input_text", "text": "</image>"},
        {"type": "input_text", "text": "What is it?"},
    ]
    session = home.load([meta(), item("message", role="user", content=content)]).graph
    image = readout_of(session).messages().messages[0]["content"][1]

    assert ("What is it?", 1) == (session.title, session.session().cost.turns)
    assert {"type": "base64", "media_type": "image/png", "data": PNG} == image["source"]


def test_model_comes_from_the_last_turn_context(home: Home) -> None:
    """X11, X20: a session may change its model; who started it is free text."""
    models = [envelope("turn_context", {"turn_id": "t", "model": name}) for name in ("m1", "m2")]
    head = meta(originator="anything at all")
    lines = [head, models[0], assistant("a"), models[1], assistant("b")]
    session = home.load(lines).graph

    assert ["m1", "m2"] == [e.model for e in session.events if e.kind == "assistant_msg"]
    assert "m2" == session.session().model


# -- calls ----------------------------------------------------------------------------------


def test_calls_of_all_kinds(home: Home) -> None:
    """X12: arguments as JSON text or not, patches, code, shells, tools of servers."""
    lines = [
        call("exec_command", "c1", cmd="ls"),
        item("function_call", name="exec_command", call_id="c2", arguments="{not json"),
        item("custom_tool_call", name="apply_patch", call_id="c3", input="*** Begin Patch"),
        item("local_shell_call", call_id="c4", action={"type": "exec", "command": ["ls"]}),
        item("function_call", name="echo", namespace="mcp__srv", call_id="c5", arguments="{}"),
        item("tool_search_call", call_id="c6", arguments={"query": "x"}),
        item("web_search_call", id="ws", action={"type": "search", "query": "x"}),
    ]
    session = home.load([meta(), user("go"), *lines]).graph
    calls = derived_events.calls(session.events)

    assert [
        ("exec_command", {"cmd": "ls"}),
        ("exec_command", "{not json"),
        ("apply_patch", "*** Begin Patch"),
        ("local_shell", {"type": "exec", "command": ["ls"]}),
        ("mcp__srv__echo", {}),
        ("tool_search", {"query": "x"}),
        ("web_search", {"type": "search", "query": "x"}),
    ] == [(pair.call.tool, pair.call.payload) for pair in calls]
    assert 6 == len(readout_of(session).messages().open_calls)


def test_output_in_json_is_decoded_under_the_same_id(home: Home) -> None:
    """X12: the text is what later versions would have written; the id stays that of the line."""
    wrapped = {"output": "a\nb", "metadata": {"exit_code": 7, "duration_seconds": 0.5}}
    loaded = home.load(
        [meta(), call("shell", "c", command=["x"]), output("c", json.dumps(wrapped))]
    )
    [result] = [event for event in loaded.graph.events if event.kind == "tool_result"]

    assert "Exit code: 7\nWall time: 0.5 seconds\nOutput:\na\nb" == result.payload
    assert 750245149157891 == result.event_id


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ("Chunk ID: 1\nWall time: 0 seconds\nProcess exited with code 1\nOutput:\nx", "exit code"),
        ("Exit code: 7\nWall time: 0 seconds\nOutput:\n", "exit code"),
        (json.dumps({"output": "x", "metadata": {"exit_code": 2}}), "exit code"),
        ("apply_patch verification failed: no such lines", "text"),
        ("unsupported call: no_such_tool", "text"),
        ("failed to parse function arguments: key must be a string", "text"),
        ([{"type": "input_text", "text": "Script failed\nWall time 0 seconds\nOutput:\n"}], "text"),
        ("Wall time: 1.6 seconds\naborted by user", "interrupted"),
        ({"content": "no", "success": False}, "is_error"),
        ("Chunk ID: 1\nProcess exited with code 0\nOutput:\nok", ""),
        ("Chunk ID: 1\nProcess running with session ID 5\nOutput:\ntick", ""),
    ],
)
def test_results_tell_how_calls_went(home: Home, result: Any, why: str) -> None:
    """X12: outputs are text, JSON text or lists; the status of the item says nothing."""
    session = home.load([meta(), call("exec_command", "c", cmd="x"), output("c", result)]).graph
    (pair,) = derived_events.calls(session.events)

    assert pair.ending is not None
    assert (bool(why), why) == (pair.ending.failed, pair.ending.why)


@pytest.mark.parametrize(
    ("line", "failed", "took"),
    [
        (finished("CommandExecution", id="c", exit_code=1, duration={"secs": 2}), True, 2000),
        (finished("CommandExecution", id="c", exit_code=0, status="completed"), False, None),
        (finished("McpToolCall", id="c", status="failed", duration={"nanos": 3_000_000}), True, 3),
        (finished("McpToolCall", id="c", result={"isError": True}), True, None),
        (finished("FileChange", id="c", status="completed"), False, None),
        (event("exec_command_end", call_id="c", exit_code=3), True, None),
        (event("patch_apply_end", call_id="c", success=False), True, None),
        (event("mcp_tool_call_end", call_id="c", result={"Err": "x"}), True, None),
        (finished("CommandExecution", id="exec-of-code-mode", exit_code=1), None, None),
    ],
)
def test_finished_items_tell_how_calls_went(
    home: Home, line: Line, *, failed: bool | None, took: int | None
) -> None:
    """Exit codes and times stand in events, wherever these come, by the id of the call."""
    session = home.load([meta(), call("x", "c"), output("c", "out"), line]).graph
    result = next(e for e in session.events if e.kind == "tool_result")

    assert (failed, took) == (result.failed, result.took_ms)


def test_orphans_are_never_closed_by_codex(home: Home) -> None:
    """A kill leaves calls open; the next turn shows that the one before was cut off."""
    lines = [
        meta(),
        started("t1"),
        user("run it"),
        call("exec_command", "c1", cmd="sleep 300"),
        call("exec_command", "c2", cmd="ls"),
        billed(A, "r1", tokens(10, 1)),
        finished("CommandExecution", id="c2", exit_code=0),
    ]
    killed = home.load(lines).graph
    resumed = home.load([*lines, started("t2"), user("done?"), assistant("no"), completed("t2")])

    assert (TurnState.RUNNING, ("c1", "c2")) == (
        killed.turn().state,
        killed.turn().open_calls,
    )
    assert TurnState.INTERRUPTED == killed.turn(alive=False).state
    assert ["c1", "c2"] == [e.call for e in resumed.graph.events if e.state == State.ORPHANED]
    assert "task_started: the turn before was cut off" in [
        e.summary for e in resumed.graph.events if e.state == State.LIVE
    ]
    assert (TurnState.DONE, ()) == (
        resumed.graph.turn().state,
        resumed.graph.turn().open_calls,
    )


# -- turns ----------------------------------------------------------------------------------


def test_turns_end_where_the_log_says_so(home: Home) -> None:
    """X17: exact rest, also under the newer names; an interruption; an error of the API."""
    begin = [meta(), started("t1"), user("hi"), assistant("yo")]
    newer = [meta(), event("turn_started", turn_id="t"), user("hi"), assistant("yo")]
    error = {"message": "500", "codex_error_info": "x"}
    ends = {
        TurnState.RUNNING: begin,
        TurnState.DONE: [*newer, event("turn_complete", turn_id="t")],
        TurnState.INTERRUPTED: [*begin, event("turn_aborted", turn_id="t1", reason="interrupted")],
    }
    failed = home.load([*begin, event("task_complete", turn_id="t1", error=error)]).graph

    assert list(ends) == [home.load(lines).graph.turn().state for lines in ends.values()]
    assert (TurnState.DONE, "500") == (
        failed.turn().state,
        next(e.summary for e in failed.events if e.kind == "error"),
    )


def test_rolled_back_turns_are_off_the_line_and_paid(home: Home) -> None:
    """X15: the last n prompts and what followed them leave the context, not the bill."""
    lines = [
        meta(version="0.130.0"),
        *turn("t1", "one", "1"),
        counted(tokens(10, 1)),
        *turn("t2", "two", "2"),
        counted(tokens(30, 2), tokens(20, 1)),
        event("thread_rolled_back", num_turns=1),
        *turn("t3", "three", "3"),
        counted(tokens(60, 3), tokens(30, 1)),
    ]
    session = home.load(lines).graph

    assert ["two", "2"] == texts(session, State.ROLLED_BACK)
    assert ["one", "1", "three", "3"] == texts(session, State.LIVE)
    assert (63, 21) == (own(session), session.spent.dead.total)


@pytest.mark.parametrize(("turns", "left"), [(99, 0), (-1, 2), ("1", 1), (None, 2), (10**30, 0)])
def test_rollback_of_any_count_is_clamped(home: Home, turns: object, left: int) -> None:
    """X15, R9: more than there are, negative, text, null, absurd."""
    lines = [meta(), user("a"), user("b"), event("thread_rolled_back", num_turns=turns)]

    assert left == len(texts(home.load(lines).graph, State.LIVE))


def test_compaction_replaces_what_the_model_sees(home: Home) -> None:
    """X16: a boundary; what stood before it stays readable, and nothing is said twice."""
    history = [
        user("one")["payload"],
        call("x", "k", a=1)["payload"],
        output("k", "out")["payload"],
        user("Another language model started to solve this problem: sum")["payload"],
    ]
    sums = envelope(
        "response_item",
        assistant("sum")["payload"],
        metadata={"compaction_output": True},
    )
    lines = [
        meta(),
        *turn("t1", "one", "1"),
        sums,
        envelope("compacted", {"message": "sum", "replacement_history": history}),
        *turn("t2", "two", "2"),
    ]
    session = home.load(lines).graph
    first = readout_of(session).messages().messages[0]["content"]

    assert ["one", "1", "two", "2"] == texts(session, State.LIVE)
    assert [] == derived_events.calls(session.events)
    assert ["one"] == [block["text"] for block in first]
    assert ["user", "assistant", "user", "assistant"] == [
        message["role"] for message in readout_of(session).messages().messages
    ]


@pytest.mark.parametrize(
    "record", [{"message": "sum"}, {"message": "sum", "replacement_history": []}]
)
def test_old_compaction_without_a_history(home: Home, record: Line) -> None:
    """X16: early versions write the summary alone."""
    lines = [meta(), *turn("t1", "one", "1"), envelope("compacted", record), user("two")]
    session = home.load(lines).graph

    assert ["sum", "two"] == [
        b["text"] for b in readout_of(session).messages().messages[0]["content"]
    ]


def test_compaction_that_says_nothing_is_no_boundary(home: Home) -> None:
    """An empty one would hide the conversation."""
    lines = [meta(), user("one"), envelope("compacted", {"message": ""}), user("two")]

    assert 2 == len(readout_of(home.load(lines).graph).messages().messages[0]["content"])


# -- bills ----------------------------------------------------------------------------------


def test_bills_are_counted_once_per_response(home: Home) -> None:
    """X10: input includes the cached part; a repeated bill is one; totals do not add to it."""
    lines = [
        meta(),
        user("hi"),
        billed(A, "r1", tokens(100, 10, 40)),
        counted(tokens(100, 10, 40)),
        billed(A, "r1", tokens(100, 10, 40)),
        billed(A, "r2", {**tokens(50, 5, 20), "cache_write_input_tokens": 10}),
    ]
    session = home.load(lines).graph

    assert Usage(80, 15, 10, 60) == session.spent.live
    assert (165, 2, []) == (own(session), session.spent.responses, session.unbilled)


def test_bills_of_another_thread_are_its_own(home: Home) -> None:
    """A copied bill names the thread that paid."""
    lines = [meta(), billed(B, "r1", tokens(100, 10)), billed(A, "r2", tokens(1, 1))]
    session = home.load(lines).graph

    assert 2 == own(session)
    assert [State.REPLAYED] == [e.state for e in session.events if e.tokens > 2]


def test_running_totals_become_bills(home: Home) -> None:
    """X9, R9: null infos, repeats and estimates add nothing; a fall starts again; odd numbers."""
    odd = {"input_tokens": "30", "output_tokens": 3.0, "cached_input_tokens": None}
    lines = [
        meta(version="0.63.0"),
        counted(None),
        counted(tokens(100, 10)),
        counted(tokens(100, 10)),
        counted(tokens(150, 15), tokens(50, 5)),
        counted(tokens(150, 15), tokens(7, 0)),  # an estimate after a compaction
        counted(tokens(20, 2)),  # resumed: it starts again
        counted(odd, tokens(10, 1)),
    ]
    session = home.load(lines).graph

    assert (165 + 33, 4) == (own(session), session.spent.responses)


def test_total_that_starts_again_higher_is_known_by_its_last_response(home: Home) -> None:
    """X9: the first response after a resume may cost more than all before it."""
    lines = [meta(version="0.63.0"), counted(tokens(100, 10)), counted(tokens(500, 50))]

    assert 660 == own(home.load(lines).graph)


def test_totals_give_way_to_bills(home: Home) -> None:
    """A legacy thread resumed by a version that bills: totals first, then bills."""
    lines = [
        meta(version="0.130.0"),
        *turn("t1", "one", "1"),
        counted(tokens(100, 10)),
        *turn("t2", "two", "2"),
        billed(A, "r1", tokens(200, 20)),
        counted(tokens(300, 30), tokens(200, 20)),
    ]

    assert 330 == own(home.load(lines).graph)


def test_response_cut_off_before_its_bill_makes_a_lower_bound(home: Home) -> None:
    """U10: what was never written is told, at the end of a log as well as in its middle."""
    cut = [
        meta(version="0.152.0"),
        started("t1"),
        user("run it"),
        call("exec_command", "c", cmd="x"),
    ]
    resumed = [*cut, started("t2"), user("go on"), assistant("ok"), counted(tokens(10, 1))]
    session = home.load(resumed).graph

    assert [CUT_OFF] == [notice.detail for notice in home.load(cut, B).graph.unbilled]
    assert ([CUT_OFF], 11) == ([notice.detail for notice in session.unbilled], own(session))


# -- lineage --------------------------------------------------------------------------------


def forked(home: Home) -> tuple[list[Line], int]:
    """A paginated parent of three turns, and where its third begins."""
    two = numbered([meta(), *turn("t1", "one", "1"), *turn("t2", "two", "2")])
    three = numbered(turn("t3", "three", "3"), len(two))
    home.write([*two, *three])
    return two, len(bytes_of(two))


def test_fork_by_reference_holds_no_history(home: Home) -> None:
    """X7: the history is that of the base before its end; the fork's own is what it says."""
    two, end = forked(home)
    base = {"thread_id": A, "end_ordinal_exclusive": len(two), "end_byte_offset": end}
    head = meta(B, forked_from_id=A, history_base=base)
    loaded = home.load(numbered([head, *turn("t4", "four", "4")], len(two)), B)
    prompts = [
        b["text"] for m in readout_of(loaded.graph).messages().messages[::2] for b in m["content"]
    ]

    assert ["one", "two", "four"] == prompts
    assert ["four", "4"] == texts(loaded.graph)
    assert [("fork", A, False)] == ties(loaded.graph)
    assert [] == loaded.notices


def test_fork_whose_base_is_gone_says_so(home: Home) -> None:
    """X7: what it holds itself is there; the rest is told to be missing."""
    loaded = home.load([meta(B, history_base={"thread_id": A}), user("four")], B)

    assert ["ancestor missing"] == [notice.what for notice in loaded.notices]
    assert ["four"] == texts(loaded.graph)
    assert [("fork", A, False)] == ties(loaded.graph)


def test_rewind_goes_on_in_a_new_segment(home: Home) -> None:
    """X7: the tail of the older segment is dead, and still paid; a thread is not its own fork."""
    two, end = forked(home)
    base = {"thread_id": A, "end_ordinal_exclusive": len(two), "end_byte_offset": end}
    segment = [meta(history_base=base), *turn("t4", "four", "4"), billed(A, "r", tokens(5, 1))]
    home.write(numbered(segment, len(two)), A, SEGMENT)
    session = home.load().graph

    assert ["three", "3"] == texts(session, State.DEAD)
    assert ["one", "1", "two", "2", "four", "4"] == texts(session, State.LIVE)
    assert [] == ties(session)


def test_first_total_of_a_fork_is_not_all_its_own(home: Home) -> None:
    """X7, X9: a fork's totals begin with what its base had spent."""
    head = meta(B, "0.152.0", history_base={"thread_id": A}, forked_from_id=A)
    lines = [
        head,
        started("t4"),
        counted(tokens(1000, 100), tokens(900, 90)),  # nothing was answered here yet
        user("four"),
        assistant("4"),
        counted(tokens(1050, 105), tokens(50, 5)),
        counted(tokens(1080, 108), tokens(30, 3)),
    ]
    at_once = [head, user("four"), assistant("4"), counted(tokens(1050, 105), tokens(50, 5))]

    assert 55 + 33 == own(home.load(lines, B).graph)
    assert 55 == own(home.load(at_once, B).graph)


def test_what_a_log_holds_decides_how_it_is_billed_not_its_version(home: Home) -> None:
    """Other makers count versions of their own; a total beside a bill says the same again."""
    lines = [meta(version="0.200.19"), *turn("t1", "one", "1")]
    totals = home.load([*lines, counted(tokens(100, 10))]).graph
    bill = billed(B, "r1", tokens(100, 10))
    both = home.load([meta(B, "0.200.19"), *lines[1:], bill, counted(tokens(100, 10))], B).graph

    assert (110, []) == (own(totals), totals.unbilled)
    assert (110, []) == (own(both), both.unbilled)


def test_totals_of_segments_are_added_not_compared(home: Home) -> None:
    """X9: a rewind takes the dead turns out of the total; they were paid all the same."""
    first = [meta(version="0.152.0"), *turn("t1", "one", "1"), counted(tokens(100, 10))]
    second = [*turn("t2", "two", "2"), counted(tokens(300, 30), tokens(200, 20))]
    home.write([*first, *second])
    base = {"thread_id": A, "end_byte_offset": len(bytes_of(first))}
    head = meta(version="0.152.0", history_base=base)
    third = [*turn("t3", "three", "3"), counted(tokens(500, 50), tokens(400, 40))]
    home.write([head, *third], A, SEGMENT)
    session = home.load().graph

    assert (770, 220) == (own(session), session.spent.dead.total)


PARENT = [
    meta(version="0.130.0"),
    *turn("t1", "one", "1"),
    counted(tokens(100, 10)),
    *turn("t2", "go on", "2"),
    counted(tokens(300, 30), tokens(200, 20)),
]


def replayed(lines: list[Line]) -> list[Line]:
    """A legacy fork: the parent's lines under the time of the fork, then its own."""
    copies = [{**line, "timestamp": "2026-01-02T00:00:00.000Z"} for line in lines]
    own_turn = [*turn("t9", "go on", "own"), counted(tokens(350, 35), tokens(50, 5))]
    return [meta(B, "0.130.0"), *copies, *own_turn]


def test_legacy_fork_is_cut_at_its_lineage(home: Home) -> None:
    """X4, X8: turns that the parent has are copies; the first that it has not is the fork's."""
    home.write(PARENT)
    loaded = home.load(replayed(PARENT), B)
    session = loaded.graph

    assert ["one", "1", "go on", "2"] == texts(session, State.REPLAYED)
    assert ["go on", "own"] == texts(session, State.LIVE)
    assert (55, [], [("fork", A, False)]) == (own(session), loaded.notices, ties(session))
    assert "/p" == session.about["cwd"]


def test_legacy_fork_without_turn_ids_is_cut_where_it_differs(home: Home) -> None:
    """X8: older logs name no turns; the copies end where the parent never went."""
    parent = [meta(version="0.63.0"), user("one"), assistant("1"), counted(tokens(10, 1))]
    home.write(parent)
    own_part = [user("two"), assistant("2"), counted(tokens(30, 3), tokens(20, 2))]
    copies = [{**line, "timestamp": "2026-01-02T00:00:00.000Z"} for line in parent]
    session = home.load([meta(B, "0.63.0"), *copies, *own_part], B).graph

    assert ["one", "1"] == texts(session, State.REPLAYED)
    assert (22, ["two", "2"]) == (own(session), texts(session, State.LIVE))


def test_legacy_fork_without_its_parent_keeps_everything(home: Home) -> None:
    """X8: nothing is guessed; that the lineage is open is told."""
    loaded = home.load(replayed(PARENT), B)

    assert ["lineage unresolved"] == [notice.what for notice in loaded.notices]
    assert 385 == own(loaded.graph)


def test_all_sessions_together_know_whose_records_are_whose(home: Home) -> None:
    """X8: the same cut for whoever has both, whichever is read first, preserved times included."""
    home.write(PARENT)
    home.write([meta(B, "0.130.0"), *PARENT, *replayed(PARENT)[-5:]], B)
    facts = {
        source.session: home.adapter.read(source).events for source in home.adapter.find(home.root)
    }
    owners = lineage.find_shared(facts)
    fork = SessionGraph(f"codex:{B}", facts[B], replayed=owners.replayed[B])

    assert frozenset() == owners.replayed[A]
    assert 55 == own(fork)
    assert ["go on", "own"] == texts(fork, State.LIVE)


def test_child_with_its_parents_context_knows_where_it_begins(home: Home) -> None:
    """X5, X7: `subagent_history_start_ordinal` ends the copies; no parent is needed."""
    head = meta(
        B,
        session_id=A,
        forked_from_id=A,
        source={"subagent": {"thread_spawn": {"parent_thread_id": A, "depth": 1}}},
        thread_source="subagent",
        subagent_history_start_ordinal=4,
    )
    lines = [head, meta(), started("t1"), user("Ask"), started("t9"), user("Count"), assistant("2")]
    loaded = home.load(numbered([*lines, billed(B, "r", tokens(5, 1))]), B)
    session = loaded.graph

    assert ["Ask"] == texts(session, State.REPLAYED)
    assert ["Count", "2"] == texts(session, State.LIVE)
    assert ([("subagent", A, False)], []) == (ties(session), loaded.notices)
    assert ["Ask", "Count"] == [
        b["text"] for b in readout_of(session).messages().messages[0]["content"]
    ]


@pytest.mark.parametrize(
    "head",
    [
        {"source": {"subagent": "review"}, "parent_thread_id": A},
        {"source": {"subagent": {"thread_spawn": {"parent_thread_id": A}}}},
        {"source": {"subagent": {"other": "x"}}, "session_id": A},
        {"thread_source": "subagent", "parent_thread_id": A},
        {"thread_source": "subagent", "session_id": A},
    ],
)
def test_child_names_its_parent(home: Home, head: Line) -> None:
    """X5: reviews and subagents of all versions."""
    assert [("subagent", A, False)] == ties(home.load([meta(B, **head)], B).graph)


@pytest.mark.parametrize("source", ["exec", "cli", None, 5, {"custom": "x"}])
def test_source_of_any_shape_is_no_parent(home: Home, source: object) -> None:
    """X5: a string or an object; a session is not its own parent."""
    assert [] == ties(home.load([meta(source=source, session_id=A, forked_from_id=A)]).graph)


def test_parent_names_its_children_once(home: Home) -> None:
    """X18: results of spawns, finished items, activities, and the events of older versions."""
    lines = [
        call("spawn_agent", "c1", message="x"),
        finished("CollabAgentToolCall", id="c1", tool="spawn_agent", receiver_thread_ids=[B]),
        output("c1", json.dumps({"agent_id": B, "nickname": "Hume"})),
        finished("CollabAgentToolCall", id="c2", tool="wait", receiver_thread_ids=[B]),
        event("collab_agent_spawn_end", call_id="c3", new_thread_id=C),
        finished("SubAgentActivity", kind="started", agent_thread_id=SEGMENT),
        call("exec_command", "c4", cmd="x"),
        output("c4", json.dumps({"agent_id": "not a spawn"})),
    ]

    assert [("subagent", B, True), ("subagent", C, True), ("subagent", SEGMENT, True)] == ties(
        home.load([meta(), *lines]).graph
    )


def test_ties_of_copied_records_are_their_owners(home: Home) -> None:
    """X8: a fork did not spawn what its parent spawned."""
    spawn = [call("spawn_agent", "c1"), output("c1", json.dumps({"agent_id": C}))]
    parent = [meta(version="0.130.0"), started("t1"), user("one"), *spawn, completed("t1")]
    home.write(parent)

    assert [("fork", A, False)] == ties(home.load(replayed(parent), B).graph)


# -- the carry ------------------------------------------------------------------------------


def test_carry_stays_small_and_survives_nonsense() -> None:
    """It travels with every cursor; an old one of another shape starts anew."""
    source, file = Source("codex", A, ()), File("x.jsonl", A)
    rollout = RolloutReader(source, file, Mark(0, 0, 0, 0, carry={"turn": 5}))
    for number in range(1000):
        for line in (meta(f"other {number}"), call("spawn_agent", f"c{number}")):
            raw = bytes_of([line])
            list(rollout.facts(RawRecord(line, Place(number + 2, 0, len(raw)), raw)))

    assert len(json.dumps(rollout.carry())) < 4096
