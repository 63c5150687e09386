"""pi: its logs as its client writes them, against what the API billed, and made-up ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agents.agents import billed, counted, outcomes, sessions_of, write_lines
from tests.pace import SUITE_BYTES, SUITE_ROUNDS
from thence.agents.pi.entries import COMPACTION, CUT_OFF
from thence.agents.pi.reader import Pi
from thence.agents.profiles import agents
from thence.agents.sessions import load
from thence.format.facts import Edge
from thence.memory.readouts import readout_of
from thence.testing import AgentSuite
from thence.testing.readers import CHECKS

PARENT = "01a1e59e-0000-7000-8000-00000000000a"
FORK = "01a1e59e-0000-7000-8000-00000000000b"
USAGE = {"input": 200, "output": 20, "cacheRead": 1000, "cacheWrite": 30, "totalTokens": 1250}
KNOWN = {"pi": Pi()}


def at(second: int) -> str:
    """A moment of the made-up session."""
    return f"2026-05-04T10:00:{second:02}.000Z"


def entry(number: int, above: int | None, kind: str = "message", **more: Any) -> dict[str, Any]:
    """An entry with an id made of its number."""
    parent = None if above is None else f"{above:08x}"
    return {
        "type": kind,
        "id": f"{number:08x}",
        "parentId": parent,
        "timestamp": at(number),
        **more,
    }


def message_line(
    number: int, above: int | None, role: str, content: Any, **more: Any
) -> dict[str, Any]:
    """A message."""
    message = {"role": role, "content": content, "timestamp": 1777888800000 + number, **more}
    return entry(number, above, message=message)


def reply(
    number: int, above: int, *content: Any, stop: str = "stop", **more: Any
) -> dict[str, Any]:
    """An answer with its bill."""
    fields = {"model": "mock-1", "usage": USAGE, "stopReason": stop, "responseId": f"r{number}"}
    return message_line(number, above, "assistant", list(content), **{**fields, **more})


def text(line: str) -> dict[str, str]:
    """A part that is text."""
    return {"type": "text", "text": line}


def tool(name: str, call: str, **arguments: Any) -> dict[str, Any]:
    """A part that is a call."""
    return {"type": "toolCall", "id": call, "name": name, "arguments": arguments}


def header(session: str, second: int, **more: Any) -> dict[str, Any]:
    """The first line of a log."""
    fields = {"id": session, "timestamp": at(second), "cwd": "/home/dev/demo"}
    return {"type": "session", "version": 3, **fields, **more}


TALK = [
    entry(1, None, "model_change", provider="mock", modelId="mock-1"),
    message_line(2, 1, "user", [text("Mend it")]),
    reply(3, 2, {"type": "thinking", "thinking": "Hm."}, tool("bash", "c1", command="make"),
          stop="toolUse"),
    message_line(4, 3, "toolResult", [text("no rule\n\nCommand exited with code 2")],
                 toolCallId="c1", toolName="bash", isError=True),
    reply(5, 4, text("It has no rule.")),
]  # fmt: skip


def path_of(root: Path, session: str, second: int) -> Path:
    """Where the log of a session lies."""
    name = at(second).replace(":", "-").replace(".", "-")
    return root / "sessions" / "--work-demo--" / f"{name}_{session}.jsonl"


def write(root: Path) -> None:
    """Write a session with two branches and a compaction, and a fork of it."""
    parent = path_of(root, PARENT, 0)
    write_lines(
        parent,
        header(PARENT, 0),
        *TALK,
        message_line(6, 5, "user", "Try this"),
        reply(7, 6, text("No."), stop="aborted", usage={}),
        message_line(8, 5, "user", "Try that"),
        reply(9, 8, text("Yes.")),
        entry(10, 9, "session_info", name="Mending"),
        entry(11, 10, "compaction", summary="It was mended.", firstKeptEntryId=f"{8:08x}",
              tokensBefore=900),
        message_line(12, 11, "bashExecution", None, command="git status", output="clean"),
        message_line(13, 12, "user", "Go on"),
        reply(14, 13, stop="error", usage={}, errorMessage="400 bad request"),
    )  # fmt: skip
    write_lines(
        path_of(root, FORK, 20),
        header(FORK, 20, parentSession=f"/elsewhere/{parent.name}"),
        *TALK,
        message_line(21, 5, "user", "Another way"),
        reply(22, 21, text("So be it.")),
    )


@pytest.mark.parametrize(
    "scenario", ["tools", "resume", "parallel", "fork", "compact", "error", "killed"]
)
def test_tokens_calls_and_prompts_are_what_the_api_billed(shared: Path, scenario: str) -> None:
    """Every field is exact; the request of a compaction is in no file, and that is said."""
    home = shared / "data" / "agents" / "pi" / scenario
    sessions = sessions_of(Pi(), home / "home/.pi/agent")

    assert billed(home, unlogged=("compaction",)) == counted(Pi(), home / "home/.pi/agent")
    reasons = {notice.detail for session in sessions.values() for notice in session.unbilled}
    assert ({COMPACTION} if scenario == "compact" else set()) == reasons
    assert {"done"} == {str(session.turn().state) for session in sessions.values()}


def test_a_real_fork_is_tied_to_its_parent(shared: Path) -> None:
    """The header names the parent's file; its id is in the name."""
    home = shared / "data" / "agents" / "pi" / "fork" / "home/.pi/agent"
    parent, fork = sessions_of(Pi(), home).values()

    assert [] == parent.edges
    assert [Edge("fork", parent.native, "parentSession")] == fork.edges


def test_a_real_killed_call_has_no_result(shared: Path) -> None:
    """The call that was killed is open; the turn after it is done."""
    home = shared / "data" / "agents" / "pi" / "killed"
    (killed,) = sessions_of(Pi(), home / "at-kill/.pi/agent").values()
    (session,) = sessions_of(Pi(), home / "home/.pi/agent").values()

    assert ("bash", False, False, None) == outcomes(session)[0]
    assert ("running", "done") == (str(killed.turn().state), str(session.turn().state))


def test_public_logs_of_old_versions_are_read(shared: Path) -> None:
    """A real log of the first version: no line is lost, and every bill is counted."""
    path = shared / "data" / "public" / "pi" / "pi-mono" / "large-session.jsonl"
    loaded = load(path, KNOWN)

    assert [] == loaded.skipped
    assert path.read_bytes().count(b"\n") == loaded.lines
    assert loaded.graph.spent.responses > 100


@pytest.mark.sampled
@pytest.mark.parametrize("check", CHECKS)
def test_the_adapter_suite_passes(check: str) -> None:
    """Growth, damage, rewriting, moving and hostile values change nothing that must stay."""
    assert [] == AgentSuite(
        agents()["pi"], write, rounds=SUITE_ROUNDS, bytewise=SUITE_BYTES
    ).complaints(check)


def test_made_up_sessions_are_told_in_full(tmp_path: Path) -> None:
    """Calls with their outcome, titles, branches, errors, and bills counted once over a fork."""
    write(tmp_path)
    parent, fork = sessions_of(Pi(), tmp_path).values()

    assert [("bash", True, True, 2)] == outcomes(parent)
    assert ("Mending", "/home/dev/demo", "mock-1") == (
        parent.title,
        parent.session().cwd,
        parent.session().model,
    )
    assert (3 * 1250, 1250) == (parent.spent.own, fork.spent.own)
    assert {COMPACTION, CUT_OFF} == {notice.detail for notice in parent.unbilled}
    dead = [e.summary for e in parent.events if e.state == "dead" and e.kind == "user_msg"]
    assert ["Try this"] == dead
    assert [("fork", PARENT)] == [(edge.link, edge.session) for edge in fork.edges]
    assert ["400 bad request"] == [e.summary for e in parent.events if e.kind == "error"]


def test_after_a_compaction_the_model_sees_summary_and_tail(tmp_path: Path) -> None:
    """The summary, the entries from the first kept one on, the user's command, what follows."""
    write(tmp_path)
    messages = readout_of(load(path_of(tmp_path, PARENT, 0), KNOWN).graph).messages().messages

    texts = [part["text"] for message in messages for part in message["content"]]
    assert ["It was mended.", "Try that", "Yes.", "$ git status\nclean", "Go on"] == texts


def test_a_migrated_log_is_billed_once(tmp_path: Path) -> None:
    """Opening an old log rewrites it with new ids: what it cost stays the same."""
    path = path_of(tmp_path, PARENT, 0)
    old = [{k: v for k, v in e.items() if k not in ("id", "parentId")} for e in TALK]
    write_lines(path, {**header(PARENT, 0), "version": 1}, *old)
    (source,) = Pi().find(tmp_path)
    first = Pi().read(source)
    write_lines(path, header(PARENT, 0), *TALK)
    second = Pi().read(source, first.cursor)

    from thence.format.session_graph import SessionGraph

    session = SessionGraph(source.uid, [*first.events, *second.events])
    assert 2 * 1250 == session.spent.own


def test_a_handoff_that_copies_nothing_is_no_fork(tmp_path: Path) -> None:
    """A parent is named, but the first entry is younger than the session."""
    parent = f"2026-05-04T09-00-00-000Z_{PARENT}.jsonl"
    path = path_of(tmp_path, FORK, 0)
    write_lines(path, header(FORK, 0, parentSession=f"C:\\pi\\{parent}"), *TALK)

    edges = load(path, KNOWN).graph.edges
    assert [("resume", PARENT)] == [(edge.link, edge.session) for edge in edges]


def test_roots_follow_the_environment(tmp_path: Path) -> None:
    """The variable for all of pi, and the one for sessions that lie flat."""
    env = {"PI_CODING_AGENT_DIR": "/a", "PI_CODING_AGENT_SESSION_DIR": str(tmp_path)}
    name = path_of(tmp_path, PARENT, 0).name
    write_lines(tmp_path / name, header(PARENT, 0), *TALK)

    assert [Path("/a"), Path("/h/.pi/agent"), tmp_path] == Pi().roots(Path("/h"), env)
    assert [PARENT] == [source.session for source in Pi().find(tmp_path)]
