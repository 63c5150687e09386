"""Cline: documents as its client writes them, against what the API billed, and made-up ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.agents import (
    billed,
    counted,
    outcomes,
    prompts_of,
    read_by_steps,
    sessions_of,
    write_all,
    write_document,
)
from tests.pace import SUITE_BYTES, SUITE_ROUNDS
from thence.agents.cline.reader import Cline
from thence.agents.sessions import load
from thence.memory.readouts import readout_of
from thence.testing import AdapterSuite
from thence.testing.readers import CHECKS

SESSION = "1777888800000_abcde"
RESTORED = "1777888900000_fghij"
AGENT = "agent_1777888805000_klmnop"
KNOWN = {"cline": Cline()}


def message(number: int, role: str, *content: Any, **more: Any) -> dict[str, Any]:
    """A message."""
    ts = 1777888800000 + 1000 * number
    return {"id": f"msg_{number:08}", "role": role, "content": list(content), "ts": ts, **more}


def asked(number: int, line: str) -> dict[str, Any]:
    """A prompt."""
    part = {"type": "text", "text": f'<user_input mode="act">{line}</user_input>'}
    return message(number, "user", part)


def replied(number: int, input_tokens: int, output: int, *content: Any) -> dict[str, Any]:
    """An answer and its bill: a hundred of it from the cache."""
    counts = {"inputTokens": input_tokens, "outputTokens": output, "cacheReadTokens": 100}
    model = {"id": "mock-1", "provider": "p"}
    return message(number, "assistant", *content, modelInfo=model, metrics=counts)


def text(line: str) -> dict[str, Any]:
    """A text."""
    return {"type": "text", "text": line}


def call(name: str, tool: str, **arguments: Any) -> dict[str, Any]:
    """A call."""
    return {"type": "tool_use", "id": name, "name": tool, "input": arguments}


def gave(number: int, name: str, tool: str, content: Any) -> dict[str, Any]:
    """The result of a call."""
    part = {"type": "tool_result", "tool_use_id": name, "name": tool, "content": content}
    return message(number, "user", part)


FAILED = [
    {"query": "ls", "result": "calc.py\n", "success": True},
    {
        "query": "make",
        "result": "[Command exited with code 2]\nno rule",
        "error": "Command exited with code 2",
        "success": False,
    },
]
TALK = [
    asked(1, "Mend it"),
    replied(
        2,
        *(1000, 30),
        {"type": "thinking", "thinking": "Hm."},
        call("c1", "run_commands", commands=["ls", "make"]),
    ),
    gave(3, "c1", "run_commands", FAILED),
    replied(4, 1100, 20, call("c2", "spawn_agent", systemPrompt="Count.", task="Count")),
    gave(13, "c2", "spawn_agent", '{"text":"Two.","finishReason":"completed"}'),
    replied(14, 1200, 10, text("It has no rule.")),
]


def path_of(root: Path, session: str, ending: str = ".messages.json") -> Path:
    """Where a document of a session lies."""
    return root / "data" / "sessions" / session / f"{session}{ending}"


def put(root: Path, session: str, status: str, *messages: Any, **more: Any) -> None:
    """Write a session as it stands."""
    origin = {"source": "cli", "sessionId": session, "version": "3.0.65"}
    talk = {"version": 1, "agent": "lead", "origin": origin, "messages": list(messages)}
    write_document(path_of(root, session), talk)
    card = {"session_id": session, "status": status, "cwd": "/home/dev/demo", "model": "mock-1"}
    details = {"git": {"branch": "main"}, "title": "Mending"}
    write_document(
        path_of(root, session, ".json"), {**card, "prompt": "Mend it", "metadata": details, **more}
    )


def write(root: Path) -> Iterator[None]:
    """Write a session with a subagent and a rewind, and one that was restored from it, by steps."""
    put(root, SESSION, "running", *TALK[:2])
    yield
    put(root, SESSION, "running", *TALK[:4])
    child = [message(6, "user", text("Count")), replied(7, 500, 5, text("Two."))]
    side = path_of(root, SESSION).with_name(f"{AGENT}.messages.json")
    for number in (1, 2):
        write_document(side, {"agent": "subagent", "messages": child[:number]})
        yield
    put(root, SESSION, "running", *TALK)
    yield
    put(root, SESSION, "running", *TALK, asked(20, "Try this"), replied(21, 1300, 5, text("No.")))
    yield
    last = [asked(25, "Go on"), replied(26, 1400, 7, text("Yes."))]
    put(root, SESSION, "completed", *TALK, *last, ended_at="2026-05-04T10:01:00Z", exit_code=0)
    yield
    new = [asked(51, "Another way"), replied(52, 2000, 9, text("So be it."))]
    put(root, RESTORED, "running", *TALK, *new)


@pytest.mark.parametrize("scenario", ["tools", "parallel", "subagent", "error", "killed"])
def test_tokens_calls_and_prompts_are_what_the_api_billed(shared: Path, scenario: str) -> None:
    """Every field is exact; nothing is a lower bound."""
    home = shared / "data" / "agents" / "cline" / scenario
    (graph,) = sessions_of(Cline(), home / "home/.cline").values()

    assert billed(home) == counted(Cline(), home / "home/.cline")
    assert [] == graph.unbilled
    session = graph.session()
    assert ("/home/dev/demo", "main", "mock-1") == (session.cwd, session.git_branch, session.model)
    assert "3.0.65" == graph.about["version"]


def test_a_real_subagent_is_linked_to_its_call(shared: Path) -> None:
    """By the task that it was given; its document is a channel."""
    home = shared / "data" / "agents" / "cline" / "subagent" / "home/.cline"
    (session,) = sessions_of(Cline(), home).values()

    (channel,) = {event.channel for event in session.events} - {"main"}
    assert "call_1_0" == session.about[channel]


def test_a_real_kill_is_told_by_the_client_later(shared: Path) -> None:
    """The call is open; the next process of the client says that the session failed."""
    home = shared / "data" / "agents" / "cline" / "killed"
    (killed,) = sessions_of(Cline(), home / "at-kill/.cline").values()
    (session,) = sessions_of(Cline(), home / "home/.cline").values()

    assert [("run_commands", False, False, None)] == outcomes(session)
    assert ("running", "interrupted") == (str(killed.turn().state), str(session.turn().state))


def test_a_failed_command_has_its_exit_code(shared: Path) -> None:
    """It stands in the text of one of several commands."""
    home = shared / "data" / "agents" / "cline" / "tools" / "home/.cline"
    (session,) = sessions_of(Cline(), home).values()

    assert [
        ("read_files", True, False, None),
        ("run_commands", True, True, 1),
        ("editor", True, False, None),
        ("run_commands", True, False, None),
    ] == outcomes(session)


@pytest.mark.sampled
@pytest.mark.parametrize("check", CHECKS)
def test_the_adapter_suite_passes(check: str) -> None:
    """Steps, damage, moving and hostile values change nothing that must stay."""
    assert [] == AdapterSuite(Cline(), write, rounds=SUITE_ROUNDS, bytewise=SUITE_BYTES).complaints(
        check
    )


def test_made_up_sessions_are_told_in_full(tmp_path: Path) -> None:
    """Calls, the title, the rewound turn, a subagent, and bills once over copies."""
    session, restored = read_by_steps(Cline(), tmp_path, write(tmp_path)).values()

    assert [("run_commands", True, True, 2), ("spawn_agent", True, False, None)] == outcomes(
        session
    )
    assert ("Mending", "done") == (session.title, str(session.turn().state))
    assert (1030 + 1120 + 1210 + 1407, 1305, 505) == tuple(
        part.total for part in (session.spent.live, session.spent.dead, session.spent.side)
    )
    assert [("Mend it", "live"), ("Go on", "live"), ("Try this", "dead")] == prompts_of(session)
    assert "c2" == session.about[f"agent:{AGENT}"]
    assert "Two." in [event.summary for event in session.events if event.tool == "spawn_agent"]
    assert 2009 == restored.spent.own
    assert [("Mend it", "replayed"), ("Another way", "live")] == prompts_of(restored)


def test_a_step_is_stored_once(tmp_path: Path) -> None:
    """The document is written anew with all messages; only new ones are facts."""
    cursor, types = None, []
    for number in range(1, len(TALK) + 1):
        put(tmp_path, SESSION, "running", *TALK[:number])
        (source,) = Cline().find(tmp_path)
        batch = Cline().read(source, cursor)
        cursor = batch.cursor
        types.append([fact.type for fact in batch.events if fact.blocks])

    assert [["user"], ["assistant"]] * 3 == types


def test_a_message_that_is_changed_in_place_stays(tmp_path: Path) -> None:
    """As a dead event; its bill is counted once."""
    changed = replied(2, 1000, 30, text("Another text."))

    def steps() -> Iterator[None]:
        for second in (TALK[1], changed):
            put(tmp_path, SESSION, "running", TALK[0], second)
            yield

    (session,) = read_by_steps(Cline(), tmp_path, steps()).values()

    states = {event.kind: (str(event.state), event.why) for event in session.events}
    assert ("dead", "rewritten") == states["tool_call"]
    assert ("live", None) == states["assistant_msg"]
    assert 1030 == session.spent.own


def test_after_a_compaction_the_model_sees_the_summary(tmp_path: Path) -> None:
    """It is in a document of its own; its request is in none, and the total a lower bound."""
    more = [asked(20, "Go on"), replied(21, 1400, 7, text("Yes."))]
    summary = {
        "source_message_count": len(TALK),
        "messages": [message(19, "user", text("Mended."))],
    }

    def steps() -> Iterator[None]:
        put(tmp_path, SESSION, "running", *TALK)
        yield
        write_document(path_of(tmp_path, SESSION, ".compaction.json"), summary)
        yield
        put(tmp_path, SESSION, "running", *TALK, *more)
        yield

    (session,) = read_by_steps(Cline(), tmp_path, steps()).values()
    loaded = load(path_of(tmp_path, SESSION), KNOWN).graph

    texts = [part["text"] for m in readout_of(session).messages().messages for part in m["content"]]
    assert ["Mended.", "Go on", "Yes."] == [
        line.removeprefix('<user_input mode="act">').removesuffix("</user_input>") for line in texts
    ]
    assert 1 == len(session.unbilled)
    assert [e.event_id for e in loaded.events] == [e.event_id for e in session.events]


def test_a_session_runs_while_its_process_does(tmp_path: Path) -> None:
    """The card names it."""
    put(tmp_path, SESSION, "running", *TALK, pid=os.getpid())
    put(tmp_path, RESTORED, "completed", *TALK, pid=os.getpid())
    for session in (SESSION, RESTORED):
        os.utime(path_of(tmp_path, session, ".json"))

    assert [SESSION] == [live.session for live in Cline().live(tmp_path)]


def test_sessions_are_found_from_any_of_their_folders(tmp_path: Path) -> None:
    """Cline's own, its data, its sessions, one session, one document; a stranger's is none."""
    write_all(write(tmp_path))
    folder = path_of(tmp_path, SESSION).parent

    roots = (tmp_path, tmp_path / "data", tmp_path / "data" / "sessions")
    assert [[SESSION, RESTORED]] * 3 == [[s.session for s in Cline().find(r)] for r in roots]
    assert {SESSION} == {
        source.session
        for path in (folder, path_of(tmp_path, SESSION), folder / f"{AGENT}.messages.json")
        if (source := Cline().at(path)) is not None
    }
    other = write_document(folder / "other.json", {})
    assert (None, None) == (Cline().at(other), Cline().at(tmp_path))
