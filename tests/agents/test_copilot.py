"""Copilot CLI: logs as its client writes them, against what the API billed, and made-up ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.agents.agents import billed, counted, outcomes, sessions_of, write_lines
from tests.pace import SUITE_BYTES, SUITE_ROUNDS
from thence.agents.copilot.events import COMPACTION
from thence.agents.copilot.reader import Copilot
from thence.agents.profiles import agents
from thence.agents.sessions import load, read_all
from thence.format.session_graph import NEVER_BILLED, SessionGraph
from thence.memory.readouts import readout_of
from thence.testing import AgentSuite
from thence.testing.readers import CHECKS

SESSION = "22222222-0000-4000-8000-00000000000a"
KNOWN = {"copilot": Copilot()}


def event(number: int, kind: str, agent: str = "", /, **data: Any) -> dict[str, Any]:
    """An event with an id made of its number."""
    line = {
        "type": kind,
        "data": data,
        "id": f"e{number}",
        "timestamp": f"2026-05-04T10:00:{number:02}.000Z",
        "parentId": f"e{number - 1}" if number else None,
    }
    return {**line, "agentId": agent} if agent else line


def usage(number: int, agent: str = "", **counts: int) -> dict[str, Any]:
    """The bill of a request."""
    bill: dict[str, Any] = {"model": "mock-1", "apiCallId": f"r{number}", **counts}
    if not agent:
        bill["accounting"] = {"sourceSessionId": SESSION, "sequence": number}
    return event(number, "session.usage_record", agent, usage=bill)


def reply(number: int, content: str = "", *calls: Any, agent: str = "", **more: Any) -> Any:
    """An answer."""
    requests = [{"toolCallId": c, "name": name, "arguments": args} for c, name, args in calls]
    return event(number, "assistant.message", agent, content=content, model="mock-1",
                 toolRequests=requests, **more)  # fmt: skip


def gave(number: int, call: str, content: str, *, agent: str = "", **more: Any) -> Any:
    """The result of a call."""
    result = {"toolCallId": call, "success": True, "result": {"content": content}, **more}
    return event(number, "tool.execution_complete", agent, **result)


START = event(
    0,
    "session.start",
    sessionId=SESSION,
    producer="copilot-agent",
    copilotVersion="1.0.102",
    context={"cwd": "/home/dev/demo", "branch": "main"},
)
TALK = [
    START,
    event(1, "user.message", content="Mend it", transformedContent="<now/>Mend it"),
    event(2, "system.message", role="system", content="You are a client."),
    usage(3, inputTokens=1000, outputTokens=30, cacheReadTokens=100, cacheWriteTokens=50),
    reply(4, "", ("c1", "bash", '{"command": "make"}'), reasoningText="Hm."),
    event(5, "tool.execution_start", toolCallId="c1", toolName="bash"),
    gave(6, "c1", "no rule\n<exited with exit code 2>", shellExecution={"exitCode": 2}),
    usage(7, inputTokens=1100, outputTokens=20),
    reply(8, "", ("c2", "task", {"prompt": "Count"})),
    event(9, "subagent.started", "helper", toolCallId="c2", agentType="counter"),
    event(10, "user.message", "helper", content="Count", source="agent-1"),
    usage(11, "helper", inputTokens=500, outputTokens=5),
    reply(12, "Two.", agent="helper"),
    gave(13, "c2", "Two."),
    usage(14, inputTokens=1200, outputTokens=10),
    reply(15, "There are two."),
    event(16, "session.shutdown", modelMetrics={"mock-1": {"usage": {"inputTokens": 3800}}}),
]
AFTER = [
    event(17, "session.resume", context={"cwd": "/home/dev/demo"}),
    event(18, "user.message", content="Try this"),
    usage(19, inputTokens=1300, outputTokens=5),
    reply(20, "No."),
]


def write(root: Path) -> None:
    """Write a session with a subagent, a compaction and an interrupted call."""
    folder = root / "session-state" / SESSION
    error = {"message": "Tool execution was interrupted before", "code": "interrupted"}
    used = {"requestId": "r22", "inputTokens": 3000, "outputTokens": 300}
    write_lines(
        folder / "events.jsonl",
        *TALK,
        *AFTER,
        event(21, "session.compaction_start"),
        event(22, "session.compaction_complete", summaryContent="It was mended.",
              compactionTokensUsed=used),
        event(23, "user.message", content="Go on"),
        reply(24, "", ("c3", "bash", {"command": "sleep 9"})),
        event(25, "tool.execution_complete", toolCallId="c3", success=False, model="resumed",
              error=error),
        event(26, "session.error", message="400 bad request"),
        event(27, "of.the.future", n=1),
    )  # fmt: skip
    (folder / "workspace.yaml").write_text('name: "Mending: all"\nuser_named: true\n')


@pytest.mark.parametrize(
    "scenario", ["tools", "resume", "parallel", "subagent", "compact", "error", "killed"]
)
def test_tokens_calls_and_prompts_are_what_the_api_billed(shared: Path, scenario: str) -> None:
    """Every field is exact, killed calls and subagents included; nothing is a lower bound."""
    home = shared / "data" / "agents" / "copilot" / scenario
    sessions = sessions_of(Copilot(), home / "home/.copilot").values()

    assert billed(home) == counted(Copilot(), home / "home/.copilot")
    assert [] == [notice for session in sessions for notice in session.unbilled]
    assert {"done"} == {str(session.turn().state) for session in sessions}


def test_a_real_subagent_is_linked_to_its_call(shared: Path) -> None:
    """Its lines stand between the parent's, and are a channel of their own."""
    home = shared / "data" / "agents" / "copilot" / "subagent" / "home/.copilot"
    (session,) = sessions_of(Copilot(), home).values()
    (channel,) = {event.channel for event in session.events} - {"main"}

    assert "call_1_0" == session.about[channel]
    main = [e.summary for e in session.events if e.kind == "assistant_msg" and e.channel == "main"]
    assert ["The helper counted 2 files."] == main


def test_a_real_killed_call_is_interrupted(shared: Path) -> None:
    """At the kill it is open; on resume the client says that it was interrupted."""
    home = shared / "data" / "agents" / "copilot" / "killed"
    (killed,) = sessions_of(Copilot(), home / "at-kill/.copilot").values()
    (session,) = sessions_of(Copilot(), home / "home/.copilot").values()

    assert ("running", ("bash", False, False, None)) == (killed.turn().state, outcomes(killed)[0])
    assert "interrupted" == session.calls[0].outcome.reason


def test_public_logs_of_old_versions_are_read(shared: Path) -> None:
    """No line of them is lost, and what they cost is the total at their end."""
    folder = shared / "data" / "public" / "copilot" / "agent-sessions"
    loaded = {name: load(folder / f"{name}.jsonl", KNOWN) for name in ("small", "schema_drift")}

    assert [[], []] == [loaded[name].skipped for name in loaded]
    assert (120, 1050) == tuple(loaded[name].graph.spent.own for name in loaded)


@pytest.mark.sampled
@pytest.mark.parametrize("check", CHECKS)
def test_the_adapter_suite_passes(check: str) -> None:
    """Growth, damage, rewriting, moving and hostile values change nothing that must stay."""
    assert [] == AgentSuite(
        agents()["copilot"], write, rounds=SUITE_ROUNDS, bytewise=SUITE_BYTES
    ).complaints(check)


def test_made_up_sessions_are_told_in_full(tmp_path: Path) -> None:
    """Calls with their outcome, the title, the branch, errors, and bills counted once."""
    write(tmp_path)
    (graph,) = sessions_of(Copilot(), tmp_path).values()

    assert [("bash", True, True, 2), ("task", True, False, None), ("bash", True, True, None)] == (
        outcomes(graph)
    )
    session = graph.session()
    assert ("Mending: all", "main", "/home/dev/demo") == (
        graph.title,
        session.git_branch,
        session.cwd,
    )
    assert (1030 + 1120 + 1210 + 1305 + 3300, 505) == (graph.spent.own, graph.spent.side.total)
    assert (850, 50, 100) == (
        (first := next(iter(graph.bills.values()))).input_tokens,
        first.cache_creation_input_tokens,
        first.cache_read_input_tokens,
    )
    prompts = [event.summary for event in graph.events if event.kind == "user_msg"]
    assert ["Mend it", "Try this", "Go on"] == prompts
    assert ["Hm."] == [event.summary for event in graph.events if event.kind == "thinking"]
    assert ["400 bad request"] == [e.summary for e in graph.events if e.kind == "error"]
    texts = [p.get("text") for m in readout_of(graph).messages().messages for p in m["content"]]
    assert ["It was mended.", "Go on"] == texts[:2]


def test_a_rewind_leaves_what_it_took_out_dead_and_paid(tmp_path: Path) -> None:
    """The client takes events out of the log: they stay, on a discarded branch."""
    path = write_lines(tmp_path / "session-state" / SESSION / "events.jsonl", *TALK, *AFTER)
    (source,) = Copilot().find(tmp_path)
    first = Copilot().read(source)
    write_lines(path, *TALK, event(30, "user.message", content="Try that"))
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 10**9))
    second = Copilot().read(source, first.cursor)

    session = SessionGraph(source.uid, [*first.events, *second.events])
    gone = [e.summary for e in session.events if e.state == "dead" and e.kind == "user_msg"]
    assert ["Try this"] == gone
    assert (1305, 1030 + 1120 + 1210) == (session.spent.dead.total, session.spent.live.total)


def test_old_logs_are_billed_by_their_totals(tmp_path: Path) -> None:
    """Totals grow over all runs; a run that was killed before its total is a lower bound."""

    def ended(number: int, input_tokens: int) -> dict[str, Any]:
        metrics = {"mock-1": {"usage": {"inputTokens": input_tokens, "outputTokens": 10}}}
        return event(number, "session.shutdown", modelMetrics=metrics)

    lines = [START, reply(1, "One."), ended(2, 100), reply(3, "Two."), ended(4, 300)]
    path = write_lines(tmp_path / SESSION / "events.jsonl", *lines)
    assert (310, []) == ((session := load(path, KNOWN).graph).spent.own, session.unbilled)

    write_lines(path, *lines, reply(5, "Three."))
    session = load(path, KNOWN).graph
    assert (310, [NEVER_BILLED]) == (session.spent.own, [n.detail for n in session.unbilled])


def test_a_compaction_without_a_bill_is_told(tmp_path: Path) -> None:
    """Nothing says what it took."""
    lines = [*TALK, event(17, "session.compaction_complete", summaryContent="So far.")]
    path = write_lines(tmp_path / SESSION / "events.jsonl", *lines)

    assert [COMPACTION] == [notice.detail for notice in load(path, KNOWN).graph.unbilled]


def test_a_compaction_that_has_a_usage_record_is_billed_once(tmp_path: Path) -> None:
    """The record may stand before or after it."""
    used = {"requestId": "r17", "inputTokens": 3000, "outputTokens": 300}
    done = event(18, "session.compaction_complete", summaryContent="So far.",
                 compactionTokensUsed=used)  # fmt: skip
    record = usage(17, inputTokens=3000, outputTokens=300)
    for nth, lines in enumerate(([record, done], [done, record])):
        path = write_lines(tmp_path / str(nth) / "events.jsonl", *TALK, *lines)
        events, _ = read_all(Copilot(), load(path, KNOWN).source)

        assert 1030 + 1120 + 1210 + 3300 == SessionGraph("copilot:x", events).spent.own


def test_sessions_whose_process_runs_are_live(tmp_path: Path) -> None:
    """What a killed client left behind names a process that is gone."""
    write(tmp_path)
    folder = tmp_path / "session-state" / SESSION
    (folder / "inuse.4194999.hold").touch()
    assert [] == list(Copilot().live(tmp_path))

    (folder / f"inuse.{os.getpid()}.hold").touch()
    assert [(SESSION, os.getpid())] == [
        (live.session, live.pid) for live in Copilot().live(tmp_path)
    ]
