"""Kimi Code: logs as its client writes them, against what the API billed, and made-up ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.agents import (
    billed,
    counted,
    outcomes,
    read_by_steps,
    sessions_of,
    write_lines,
)
from tests.pace import SUITE_BYTES, SUITE_ROUNDS
from thence.agents.kimi.reader import Kimi
from thence.agents.profiles import agents
from thence.agents.sessions import load
from thence.memory.readouts import readout_of
from thence.testing import AgentSuite
from thence.testing.readers import CHECKS

PARENT = "44444444-0000-4000-8000-00000000000a"
FORK = "44444444-0000-4000-8000-00000000000b"
KNOWN = {"kimi": Kimi()}


def event(number: int, kind: str, /, **more: Any) -> dict[str, Any]:
    """An event of the wire."""
    return {"type": kind, "agentId": "main", **more, "time": 1777888800000 + 1000 * number}


def asked(number: int, line: str, kind: str = "user") -> list[dict[str, Any]]:
    """A prompt, and the same prompt entering the context."""
    content, name = [{"type": "text", "text": line}], f"msg_{number}"
    message = {"role": "user", "content": content, "id": name, "origin": {"kind": kind}}
    return [
        event(number, "turn.prompt", input=content, origin={"kind": kind}, promptId=name),
        event(number, "context.append_message", message=message),
    ]


def loop(number: int, kind: str, **more: Any) -> dict[str, Any]:
    """An event of a step."""
    inner = {"type": kind, "uuid": f"u{number}", **more}
    return event(number, "context.append_loop_event", event=inner)


def usage(number: int, input_tokens: int, output: int, model: str = "k") -> dict[str, Any]:
    """The bill of a request: a hundred of it from the cache."""
    counts = {"inputOther": input_tokens - 100, "inputCacheRead": 100, "output": output}
    return event(number, "usage.record", model=model, usage=counts)


def text(number: int, line: str, kind: str = "text") -> dict[str, Any]:
    """A part of an answer."""
    name = "text" if kind == "text" else "think"
    return loop(number, "content.part", stepUuid=f"s{number}", part={"type": kind, name: line})


def call(number: int, tool: str, name: str, **args: Any) -> dict[str, Any]:
    """A call."""
    return loop(number, "tool.call", stepUuid="s", toolCallId=name, name=tool, args=args)


def gave(number: int, above: int, name: str, output: str, **more: Any) -> dict[str, Any]:
    """The result of a call."""
    result = {"output": output, "durationMs": 1500, **more}
    inner = {"type": "tool.result", "parentUuid": f"u{above}", "toolCallId": name, "result": result}
    return event(number, "context.append_loop_event", event=inner)


def ended(number: int, reason: str = "end_turn", **more: Any) -> dict[str, Any]:
    """The end of a step."""
    return loop(number, "step.end", finishReason=reason, **more)


HEADER = {"type": "metadata", "protocol_version": "1.5", "created_at": 1777888800000}
TALK = [
    HEADER,
    event(1, "profile.bind", systemPrompt="You are a client."),
    *asked(2, "Mend it"),
    event(3, "llm.request", kind="loop", model="mock-1", modelAlias="k"),
    usage(4, 1000, 30),
    text(5, "Hm.", "think"),
    call(6, "Bash", "c1", command="make"),
    gave(7, 6, "c1", "no rule\nCommand failed with exit code: 2.", isError=True),
    ended(8, "tool_use", usage={"inputOther": 900, "inputCacheRead": 100, "output": 30}),
    usage(9, 1100, 20),
    call(10, "Agent", "c2", prompt="Count"),
    event(11, "subagent.spawned", subagentId="agent-0", parentToolCallId="c2"),
    event(12, "subagent.completed", subagentId="agent-0", usage={"inputOther": 400, "output": 5}),
    gave(13, 10, "c2", "Two."),
    usage(14, 1200, 10),
    text(15, "It has no rule."),
    ended(16),
    event(17, "agent.message.appended", message={"message": {"role": "assistant"}}),
    event(18, "turn.ended", reason="completed"),
]


def path_of(root: Path, session: str, agent: str = "main") -> Path:
    """Where the log of an agent lies."""
    return root / "sessions" / "wd_demo_ab" / f"session_{session}" / "agents" / agent / "wire.jsonl"


def write(root: Path) -> None:
    """Write a session with a subagent, an undo and a compaction, and a fork of it."""
    reminder = [{"type": "text", "text": "<system-reminder>Be brief.</system-reminder>"}]
    injection = {"role": "user", "content": reminder, "origin": {"kind": "injection"}}
    write_lines(
        path_of(root, PARENT),
        *TALK,
        *asked(20, "Try this"),
        usage(21, 1300, 5),
        text(22, "No."),
        ended(23),
        event(24, "context.undo", count=1),
        *asked(25, "Go on"),
        event(26, "context.append_message", message=injection),
        usage(27, 3000, 300),
        event(28, "context.apply_compaction", summary="Mended.", contextSummary="It was mended."),
        usage(29, 1400, 7),
        text(30, "Yes."),
        ended(31),
        event(32, "turn.ended", reason="completed"),
        *asked(33, "Break it"),
        event(34, "turn.step.interrupted", reason="error", message="400 bad request"),
        event(35, "turn.ended", reason="failed"),
    )
    write_lines(
        path_of(root, PARENT, "agent-0"),
        HEADER,
        *asked(41, "Count", "system_trigger"),
        usage(42, 500, 5),
        text(43, "Two."),
        ended(44),
    )
    card = path_of(root, PARENT).parent.parent.parent / "state.json"
    card.write_text(
        json.dumps({"cwd": "/home/dev/demo", "title": "Mending", "isCustomTitle": True})
    )
    write_lines(
        path_of(root, FORK),
        *TALK,
        {"type": "forked"},
        *asked(51, "Another way"),
        usage(52, 2000, 9),
        text(53, "So be it."),
        ended(54),
    )
    card = path_of(root, FORK).parent.parent.parent / "state.json"
    card.write_text(json.dumps({"cwd": "/home/dev/demo", "forkedFrom": f"session_{PARENT}"}))


@pytest.mark.parametrize(
    "scenario",
    ["tools", "resume", "parallel", "subagent", "fork", "compact", "error", "killed"],
)
def test_tokens_calls_and_prompts_are_what_the_api_billed(shared: Path, scenario: str) -> None:
    """Every field is exact, compactions and killed calls included; nothing is a lower bound."""
    home = shared / "data" / "agents" / "kimi" / scenario
    sessions = sessions_of(Kimi(), home / "home/.kimi-code").values()

    assert billed(home) == counted(Kimi(), home / "home/.kimi-code")
    assert [] == [notice for session in sessions for notice in session.unbilled]
    assert {"done"} == {str(session.turn().state) for session in sessions}
    assert {"/home/dev/demo"} == {session.session().cwd for session in sessions}


def test_a_real_fork_is_tied_to_its_parent_and_costs_nothing(shared: Path) -> None:
    """It is a copy of all lines, and nothing was said in it."""
    home = shared / "data" / "agents" / "kimi" / "fork" / "home/.kimi-code"
    parent, fork = sessions_of(Kimi(), home).values()

    assert [("fork", parent.native)] == [(edge.link, edge.session) for edge in fork.edges]
    assert (0, []) == (fork.spent.own, parent.edges)


def test_a_real_subagent_is_linked_to_its_call(shared: Path) -> None:
    """Its log is a channel that names the call."""
    home = shared / "data" / "agents" / "kimi" / "subagent" / "home/.kimi-code"
    (session,) = sessions_of(Kimi(), home).values()

    assert "call_1_0" == session.about["agent:agent-0"]
    assert {"agent:agent-0"} == {event.channel for event in session.events} - {"main"}


def test_a_real_killed_call_has_no_result(shared: Path) -> None:
    """The call that was killed is open; the turn after it is done."""
    home = shared / "data" / "agents" / "kimi" / "killed"
    (killed,) = sessions_of(Kimi(), home / "at-kill/.kimi-code").values()
    (session,) = sessions_of(Kimi(), home / "home/.kimi-code").values()

    assert ("Bash", False, False, None) == outcomes(session)[0]
    assert ("running", "done") == (str(killed.turn().state), str(session.turn().state))


@pytest.mark.sampled
@pytest.mark.parametrize("check", CHECKS)
def test_the_adapter_suite_passes(check: str) -> None:
    """Growth, damage, rewriting, moving and hostile values change nothing that must stay."""
    assert [] == AgentSuite(
        agents()["kimi"], write, rounds=SUITE_ROUNDS, bytewise=SUITE_BYTES
    ).complaints(check)


def test_made_up_sessions_are_told_in_full(tmp_path: Path) -> None:
    """Calls with their outcome and time, the title, undone turns, errors, and bills once."""
    write(tmp_path)
    parent, fork = sessions_of(Kimi(), tmp_path).values()

    assert [("Bash", True, True, 2), ("Agent", True, False, None)] == outcomes(parent)
    assert 1500 == parent.calls[0].outcome.duration_ms
    session = parent.session()
    assert ("Mending", "/home/dev/demo", "mock-1") == (parent.title, session.cwd, session.model)
    live = 1030 + 1120 + 1210 + 3300 + 1407
    assert (live, 1305, 505) == tuple(
        part.total for part in (parent.spent.live, parent.spent.dead, parent.spent.side)
    )
    assert (2009, [PARENT]) == (fork.spent.own, [edge.session for edge in fork.edges])
    prompts = [(e.summary, str(e.state)) for e in parent.events if e.kind == "user_msg"]
    assert [
        ("Mend it", "live"),
        ("Try this", "rolled_back"),
        ("Go on", "live"),
        ("Break it", "live"),
    ] == prompts
    assert ["400 bad request"] == [e.summary for e in parent.events if e.kind == "error"]
    assert "c2" == parent.about["agent:agent-0"]


def test_after_a_compaction_the_model_sees_prompt_and_summary(tmp_path: Path) -> None:
    """The prompt that was being worked on stays in view."""
    write(tmp_path)
    messages = readout_of(load(path_of(tmp_path, PARENT), KNOWN).graph).messages().messages

    texts = [part["text"] for message in messages for part in message["content"]]
    assert ["Go on", "It was mended.", "Yes.", "Break it"] == texts


def test_a_step_without_a_usage_record_is_billed_by_its_end(tmp_path: Path) -> None:
    """One with a record is not billed twice."""
    counts = {"inputOther": 70, "output": 7}
    lines = [
        HEADER,
        *asked(1, "Hi"),
        loop(2, "step.begin"),
        text(3, "Hello."),
        ended(4, usage=counts),
    ]
    path = write_lines(path_of(tmp_path, PARENT), *lines)

    assert 77 == load(path, KNOWN).graph.spent.own


def step(number: int, order: str, input_tokens: int, output: int) -> list[dict[str, Any]]:
    """A step, with its record before its end, behind it, or both its sayings alone."""
    bill = usage(number + 1, input_tokens, output)
    end = ended(number, usage=bill["usage"])
    made = {"first": [bill, end], "last": [end, bill], "end": [end], "record": [bill]}[order]
    return [loop(number, "step.begin"), text(number + 2, "Hm."), *made]


@pytest.mark.parametrize("orders", [["last"] * 4, ["last", "first", "end", "record"]])
def test_a_step_is_billed_once_whoever_tells_its_bill_first(
    tmp_path: Path, orders: list[str]
) -> None:
    """Old clients write the record last, and a resumed log has both orders: line by line, too.

    The same numbers again are another request when they are of the session or of another step.
    """
    settings = event(1, "config.update", modelAlias="k")
    compaction = {**usage(60, 1000, 30), "usageScope": "session"}
    steps = [
        line for nth, order in enumerate(orders) for line in step(10 * nth + 2, order, 1000, 30)
    ]
    lines = [HEADER, settings, *asked(2, "Hi"), *steps, compaction]

    def grow() -> Iterator[None]:
        for length in range(1, len(lines) + 1):
            write_lines(path_of(tmp_path, PARENT), *lines[:length])
            yield

    grown = read_by_steps(Kimi(), tmp_path, grow())[PARENT]
    at_once = load(path_of(tmp_path, PARENT), KNOWN).graph

    assert [1030] * 5 == [bill.total for bill in grown.bills.values()]
    assert (5 * 1030, 5) == (at_once.spent.own, at_once.spent.responses)
    assert {"k"} == {e.model for e in at_once.events if e.event_id in at_once.bills}


@pytest.mark.parametrize("scenario", ["0.20.0-tools", "0.20.0-compact", "0.43.1-from-0.20.0"])
def test_old_clients_bill_what_the_api_billed(shared: Path, scenario: str) -> None:
    """The end of a step and the record behind it are one bill."""
    home = shared / "data" / "versions" / "kimi" / scenario

    assert billed(home).own == counted(Kimi(), home / "home/.kimi-code").own


def test_logs_of_other_people_are_billed_once(shared: Path, tmp_path: Path) -> None:
    """A session, a subagent's log, and one in which no request was answered."""
    spent: dict[str, tuple[int, int]] = {}
    for log in sorted((shared / "data" / "outside" / "kimi").rglob("*.jsonl")):
        path = path_of(tmp_path, PARENT)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(log.read_bytes())
        took = load(path, KNOWN).graph.spent
        spent[log.name.partition("-")[2]] = took.own, took.responses

    assert {
        "assistant_tools.jsonl": (653_885 + 43_308, 23),
        "small.jsonl": (0, 0),
        "subagent_agent-0.jsonl": (41_651, 3),
    } == spent


def test_a_switch_of_branches_leaves_the_lines_after_its_base(tmp_path: Path) -> None:
    """A branch is a range of lines; an undo that the switch repeats counts once."""
    lines = [*TALK, *asked(20, "Try this"), text(21, "No."), ended(22)]
    switch = {"branch": "b", "base": {"branch": "a", "line": len(TALK)}}
    undo = event(23, "context.undo", count=1)
    for nth, more in enumerate(
        (
            [event(23, "agent.switched", **switch)],
            [undo, event(24, "agent.switched", legacyUndoLine=len(lines), **switch)],
        )
    ):
        path = path_of(tmp_path / str(nth), PARENT)
        session = load(write_lines(path, *lines, *more, *asked(25, "Go on")), KNOWN).graph

        prompts = [(e.summary, str(e.state)) for e in session.events if e.kind == "user_msg"]
        assert [("Mend it", "live"), ("Try this", "rolled_back"), ("Go on", "live")] == prompts


def test_a_fork_of_a_fork_is_billed_once(tmp_path: Path) -> None:
    """Its log begins with both copied parts."""
    names = [f"44444444-0000-4000-8000-00000000000{n}" for n in "abc"]
    own = [[*asked(50 + n, f"Way {n}"), usage(60 + n, 2000, 9)] for n in range(3)]
    lines: list[Any] = list(TALK)
    for nth, name in enumerate(names):
        lines = lines if not nth else [*lines, {"type": "forked"}]
        lines = [*lines, *own[nth]]
        path = write_lines(path_of(tmp_path, name), *lines)
        card = {"forkedFrom": f"session_{names[nth - 1]}"} if nth else {}
        (path.parent.parent.parent / "state.json").write_text(json.dumps(card))

    spent = [session.spent.own for session in sessions_of(Kimi(), tmp_path).values()]
    assert [1030 + 1120 + 1210 + 2009, 2009, 2009] == spent
