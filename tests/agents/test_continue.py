"""Continue: documents as its client writes them, against what the API billed, and made-up ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.agents import (
    WRITTEN,
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
from thence.agents.continue_.history import NOT_BILLED
from thence.agents.continue_.reader import Continue
from thence.agents.sessions import load
from thence.memory.readouts import readout_of
from thence.testing import AdapterSuite
from thence.testing.readers import CHECKS

SESSION = "66666666-0000-4000-8000-00000000000a"
FORK = "66666666-0000-4000-8000-00000000000b"
KNOWN = {"continue": Continue()}


def asked(line: str, **more: Any) -> dict[str, Any]:
    """A prompt."""
    return {"message": {"role": "user", "content": line}, "contextItems": [], **more}


def replied(input_tokens: int, output: int, line: str, *calls: Any, **more: Any) -> dict[str, Any]:
    """An answer and its bill: a hundred of it from the cache."""
    details = {"cached_tokens": 100}
    usage = {"prompt_tokens": input_tokens, "completion_tokens": output, "model": "mock-1"}
    message: dict[str, Any] = {"role": "assistant", "content": line}
    message["usage"] = {**usage, "prompt_tokens_details": details}
    if calls:
        message["toolCalls"] = [made["toolCall"] for made in calls]
        more["toolCallStates"] = list(calls)
    return {"message": message, "contextItems": [], **more}


def call(name: str, tool: str, status: str, output: str = "", **arguments: Any) -> dict[str, Any]:
    """A call, and where it stands."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    made = {"id": name, "type": "function", "function": function}
    shown = [{"content": output, "name": "Tool Result"}] if output else []
    return {"toolCallId": name, "toolCall": made, "status": status, "output": shown}


ERROR = "Error executing tool Bash: Error (exit code 2): no rule"
BASH = call("c1", "Bash", "errored", ERROR, command="make")
READ = call("c2", "Read", "done", "all:", filepath="/home/dev/demo/Makefile")
TALK = [
    asked("Mend it"),
    replied(1000, 30, "", BASH, READ),
    replied(1200, 10, "It has no rule."),
]


def path_of(root: Path, session: str) -> Path:
    """Where the document of a session lies."""
    return root / "sessions" / f"{session}.json"


def put(root: Path, session: str, *history: Any, title: str = "Untitled Session") -> None:
    """Write a session as it stands."""
    document = {"sessionId": session, "title": title, "workspaceDirectory": "/home/dev/demo"}
    write_document(path_of(root, session), {**document, "history": list(history)})


def write(root: Path) -> Iterator[None]:
    """Write a session with an undone turn and a compaction, and a fork of it, by steps."""
    row = {"sessionId": SESSION, "dateCreated": str(1000 * (WRITTEN - 60)), "messageCount": 2}
    write_document(root / "sessions" / "sessions.json", [row])
    running = call("c1", "Bash", "calling", command="make")
    waiting = call("c2", "Read", "generated", filepath="/home/dev/demo/Makefile")
    put(root, SESSION, TALK[0])
    yield
    put(root, SESSION, TALK[0], replied(1000, 30, "", running, waiting))
    yield
    put(root, SESSION, TALK[0], replied(1000, 30, "", BASH, waiting))
    yield
    put(root, SESSION, *TALK)
    yield
    put(root, SESSION, *TALK, asked("Try this"), replied(1300, 5, "No."))
    yield
    last = [asked("Go on"), replied(1400, 7, "Yes.")]
    put(root, SESSION, *TALK, *last, title="Mending")
    yield
    put(root, FORK, *TALK, asked("Another way"), replied(2000, 9, "So be it."))


@pytest.mark.parametrize("scenario", ["tools", "resume", "parallel", "error", "compact", "killed"])
def test_tokens_calls_and_prompts_are_what_the_api_billed(shared: Path, scenario: str) -> None:
    """Exact, but for turns that failed or were killed: the client never writes them."""
    home = shared / "data" / "agents" / "continue" / scenario
    (session,) = sessions_of(Continue(), home / "home/.continue").values()
    lost = {"error": -1, "killed": -1}.get(scenario, 0)
    expected = billed(home, unasked=lost)
    if scenario == "killed":
        expected = billed(home.parent / "parallel")

    assert expected == counted(Continue(), home / "home/.continue")
    assert ("/home/dev/demo", "mock-1") == (session.session().cwd, session.session().model)
    assert "done" == str(session.turn().state)


@pytest.mark.sampled
@pytest.mark.parametrize("check", CHECKS)
def test_the_adapter_suite_passes(check: str) -> None:
    """Steps, damage, moving and hostile values change nothing that must stay."""
    assert [] == AdapterSuite(
        Continue(), write, rounds=SUITE_ROUNDS, bytewise=SUITE_BYTES
    ).complaints(check)


def test_made_up_sessions_are_told_in_full(tmp_path: Path) -> None:
    """Calls, the title, the undone turn, times, and bills once over a fork without a link."""
    session, fork = read_by_steps(Continue(), tmp_path, write(tmp_path)).values()

    assert [("Bash", True, True, 2), ("Read", True, False, None)] == outcomes(session)
    assert ("Mending", "mock-1") == (session.title, session.session().model)
    assert (1030 + 1210 + 1407, 1305) == (session.spent.live.total, session.spent.dead.total)
    assert [("Mend it", "live"), ("Go on", "live"), ("Try this", "dead")] == prompts_of(session)
    assert 2009 == fork.spent.own
    assert "live" == dict(prompts_of(fork))["Another way"]
    times = (session.session().started_at, session.session().ended_at)
    assert ("2026-05-04T09:59:00.000Z", "2026-05-04T10:00:00.000Z") == times


def test_two_sessions_that_begin_alike_are_no_fork(tmp_path: Path) -> None:
    """Short texts may be the same by chance: each pays for itself."""
    talk = [asked("Hi"), replied(1000, 5, "Hello.")]
    put(tmp_path, SESSION, *talk)
    put(tmp_path, FORK, *talk)

    assert [1005, 1005] == [
        session.spent.own for session in sessions_of(Continue(), tmp_path).values()
    ]


def test_a_compaction_keeps_what_was_read(tmp_path: Path) -> None:
    """The list is replaced by a summary; messages stay, dead and paid for."""
    summary = {"message": {"role": "assistant", "content": ""}, "conversationSummary": "Mended."}

    def steps() -> Iterator[None]:
        put(tmp_path, SESSION, *TALK)
        yield
        put(tmp_path, SESSION, summary)
        yield
        put(tmp_path, SESSION, summary, asked("Go on"), replied(1400, 7, "Yes."))

    (session,) = read_by_steps(Continue(), tmp_path, steps()).values()

    seen = [part["text"] for m in readout_of(session).messages().messages for part in m["content"]]
    assert ["Mended.", "Go on", "Yes."] == seen
    assert (1407, 1030 + 1210) == (session.spent.live.total, session.spent.dead.total)
    assert [NOT_BILLED] == [notice.detail for notice in session.unbilled]


def test_attached_files_and_images_are_told(tmp_path: Path) -> None:
    """They go to the model, and are no words of the user's."""
    picture = {"type": "imageUrl", "imageUrl": {"url": "data:image/png;base64,aGk="}}
    first = asked("Look", contextItems=[{"name": "calc.py", "content": "def add"}])
    first["message"]["content"] = [{"type": "text", "text": "Look"}, picture]
    put(tmp_path, SESSION, first)
    events = load(path_of(tmp_path, SESSION), KNOWN).graph.events

    assert [("user_msg", "text"), ("user_msg", "image"), ("lifecycle", "text")] == [
        (event.kind, event.payload["type"]) for event in events
    ]


def test_the_list_of_sessions_is_none(tmp_path: Path) -> None:
    """Nor is another document."""
    write_all(write(tmp_path))
    other = write_document(tmp_path / "other.json", {"history": []})

    assert [SESSION, FORK] == [source.session for source in Continue().find(tmp_path)]
    assert (None, None) == (
        Continue().at(tmp_path / "sessions" / "sessions.json"),
        Continue().at(other),
    )
