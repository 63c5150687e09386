"""Qwen Code: its logs as its client writes them, against what the API billed, and made-up ones."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.agents.agents import billed, counted, outcomes, sessions_of, write_lines
from tests.pace import SUITE_BYTES, SUITE_ROUNDS
from thence.agents.profiles import agents
from thence.agents.qwen.reader import Qwen
from thence.agents.sessions import load
from thence.memory.readouts import readout_of
from thence.testing import AgentSuite
from thence.testing.readers import CHECKS

PARENT = "11111111-0000-4000-8000-00000000000a"
FORK = "11111111-0000-4000-8000-00000000000b"
KNOWN = {"qwen": Qwen()}


def record(number: int, above: int | None, kind: str, **more: Any) -> dict[str, Any]:
    """A record with an id made of its number."""
    return {
        "uuid": f"u{number}",
        "parentUuid": None if above is None else f"u{above}",
        "sessionId": PARENT,
        "timestamp": f"2026-05-04T10:00:{number:02}.000Z",
        "type": kind,
        "cwd": "/home/dev/demo",
        "version": "0.24.4",
        "gitBranch": "main",
        **more,
    }


def asked(number: int, above: int | None, line: str, **more: Any) -> dict[str, Any]:
    """A prompt."""
    message = {"role": "user", "parts": [{"text": line}]}
    return record(number, above, "user", message=message, **more)


def usage(input_tokens: int, output: int) -> dict[str, Any]:
    """The bill of an answer: a tenth of it from the cache."""
    counts = {"promptTokenCount": input_tokens, "candidatesTokenCount": output}
    return {"usageMetadata": {**counts, "cachedContentTokenCount": input_tokens // 10}}


def answered(number: int, above: int, *parts: Any, **more: Any) -> dict[str, Any]:
    """An answer."""
    message = {"role": "model", "parts": list(parts)}
    return record(number, above, "assistant", message=message, model="mock-1", **more)


def telemetry(
    number: int, above: int, input_tokens: int, output: int, **more: Any
) -> dict[str, Any]:
    """The telemetry of a request."""
    event = {
        "event.name": "qwen-code.api_response",
        "response_id": f"r{number}",
        "model": "mock-1",
        "input_token_count": input_tokens,
        "output_token_count": output,
        "cached_content_token_count": input_tokens // 10,
        **more,
    }
    return system(number, above, "ui_telemetry", uiEvent=event)


def system(number: int, above: int | None, subtype: str, **payload: Any) -> dict[str, Any]:
    """A book-keeping record."""
    return record(number, above, "system", subtype=subtype, systemPayload=payload)


def tool(name: str, call: str, /, **arguments: Any) -> dict[str, Any]:
    """A call."""
    return {"functionCall": {"id": call, "name": name, "args": arguments}}


def gave(number: int, above: int, call: str, **result: Any) -> dict[str, Any]:
    """The result of a call."""
    part = {"functionResponse": {"id": call, "name": "x", "response": result}}
    result_fields = {"callId": call, "status": "error" if "error" in result else "success"}
    if "error" in result:
        result_fields["resultDisplay"] = {"type": "shell_result", "exitCode": 2}  # type: ignore[assignment]
    message = {"role": "user", "parts": [part]}
    return record(number, above, "tool_result", message=message, toolCallResult=result_fields)


TALK = [
    asked(1, None, "Mend it"),
    telemetry(2, 1, 1000, 30),
    answered(3, 2, {"text": "Hm.", "thought": True}, tool("tool_call", "c1", name="web_fetch",
             arguments={"url": "https://example.org"}), **usage(1000, 30)),
    gave(4, 3, "c1", output="no rule"),
    telemetry(5, 4, 1100, 20),
    answered(6, 5, tool("run_shell_command", "c2", command="make"), **usage(1100, 20)),
    gave(7, 6, "c2", error="Output: no rule\nExit Code: 2"),
    answered(8, 7, {"text": "It has no rule."}, **usage(1200, 10)),
]  # fmt: skip


def copied(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records as a fork has them."""
    return [
        {
            **line,
            "sessionId": FORK,
            "forkedFrom": {"sessionId": PARENT, "messageUuid": line["uuid"]},
        }
        for line in lines
    ]


def write(root: Path) -> None:
    """Write a session with a subagent, a rewind and a compaction, and a fork of it."""
    project = root / "projects" / "-work-demo"
    write_lines(
        project / "chats" / f"{PARENT}.jsonl",
        *TALK,
        asked(9, 8, "Try this"),
        answered(10, 9, {"text": "No."}, **usage(1300, 5)),
        system(11, 8, "rewind", targetUuid="u9"),
        asked(12, 11, "Delegate it"),
        telemetry(13, 12, 1400, 7),
        answered(14, 13, tool("agent", "c3", prompt="Count"), **usage(1400, 7)),
        telemetry(15, 14, 500, 5, subagent_id="helper-c3", prompt_id=f"{PARENT}#helper-c3#0"),
        gave(16, 15, "c3", output="Two."),
        telemetry(17, 16, 3000, 300),
        system(
            18,
            17,
            "chat_compression",
            compressedHistory=[{"role": "user", "parts": [{"text": "It was mended."}]}],
        ),
        system(19, 18, "custom_title", customTitle="Mending", titleSource="manual"),
        asked(20, 19, "Go on", provenance="real_user"),
        asked(21, 20, "<system-reminder>Be brief.</system-reminder>"),
        system(
            22,
            21,
            "ui_telemetry",
            uiEvent={"event.name": "qwen-code.api_error", "error_message": "400 bad request"},
        ),
    )
    side = project / "subagents" / PARENT / "agent-helper-c3.jsonl"
    mark = {"agentId": "helper-c3", "isSidechain": True}
    write_lines(
        side,
        {**asked(31, None, "Count"), **mark},
        {**answered(32, 31, **usage(500, 5)), **mark, "agentRound": 1},
        {**answered(33, 32, {"text": "Two."}), **mark},
    )
    card = {"agentId": "helper-c3", "agentType": "helper", "toolUseId": "c3", "description": "x"}
    side.with_suffix(".meta.json").write_text(json.dumps(card))
    write_lines(
        project / "chats" / "archive" / f"{FORK}.jsonl",
        *copied(TALK),
        {**asked(41, 8, "Another way"), "sessionId": FORK},
        {**answered(42, 41, {"text": "So be it."}, **usage(2000, 9)), "sessionId": FORK},
    )


@pytest.mark.parametrize(
    "scenario",
    ["tools", "resume", "parallel", "subagent", "fork", "compact", "error", "killed"],
)
def test_tokens_calls_and_prompts_are_what_the_api_billed(shared: Path, scenario: str) -> None:
    """Every field is exact, compaction and memory included; nothing is a lower bound."""
    home = shared / "data" / "agents" / "qwen" / scenario
    # The last prompt of `compact` was killed while the history before it was compacted.
    truth = billed(home, side=("subagent", "side"), unasked=int(scenario == "compact"))

    assert truth == counted(Qwen(), home / "home/.qwen")
    sessions = sessions_of(Qwen(), home / "home/.qwen").values()
    assert [] == [notice for session in sessions for notice in session.unbilled]


def test_a_real_fork_is_tied_to_its_parent(shared: Path) -> None:
    """Copies name the session they come from."""
    home = shared / "data" / "agents" / "qwen" / "fork" / "home/.qwen"
    parent, fork = sessions_of(Qwen(), home).values()

    assert [] == parent.edges
    assert [("fork", parent.native)] == [(edge.link, edge.session) for edge in fork.edges]
    assert ("main", "/home/dev/demo") == (fork.session().git_branch, fork.session().cwd)


def test_a_real_subagent_is_linked_to_its_call(shared: Path) -> None:
    """Its channel names the call that started it."""
    home = shared / "data" / "agents" / "qwen" / "subagent" / "home/.qwen"
    (session,) = sessions_of(Qwen(), home).values()

    assert "call_1_0" == session.about["agent:general-purpose-call_1_0"]
    assert {"agent:general-purpose-call_1_0"} == {e.channel for e in session.events} - {"main"}


def test_real_outcomes(shared: Path) -> None:
    """Failed commands have their exit code, refused ones are failures."""
    home = shared / "data" / "agents" / "qwen"
    (tools,) = sessions_of(Qwen(), home / "tools/home/.qwen").values()
    (killed,) = sessions_of(Qwen(), home / "killed/home/.qwen").values()

    assert [
        ("read_file", True, False, None),
        ("run_shell_command", True, True, 1),
        ("edit", True, False, None),
        ("run_shell_command", True, False, 0),
    ] == outcomes(tools)
    assert ("run_shell_command", True, True, None) == outcomes(killed)[0]


@pytest.mark.sampled
@pytest.mark.parametrize("check", CHECKS)
def test_the_adapter_suite_passes(check: str) -> None:
    """Growth, damage, rewriting, moving and hostile values change nothing that must stay."""
    assert [] == AgentSuite(
        agents()["qwen"], write, rounds=SUITE_ROUNDS, bytewise=SUITE_BYTES
    ).complaints(check)


def test_made_up_sessions_are_told_in_full(tmp_path: Path) -> None:
    """Calls by their real name, titles, a rewound branch, errors, and bills counted once."""
    write(tmp_path)
    parent, fork = sessions_of(Qwen(), tmp_path).values()

    assert [
        ("web_fetch", True, False, None),
        ("run_shell_command", True, True, 2),
        ("agent", True, False, None),
    ] == outcomes(parent)
    assert ("Mending", "main", "mock-1") == (
        parent.title,
        parent.session().git_branch,
        parent.session().model,
    )
    live = 1030 + 1120 + 1210 + 1407 + 3300
    assert (live, 1305, 505) == tuple(
        part.total for part in (parent.spent.live, parent.spent.dead, parent.spent.side)
    )
    assert 2009 == fork.spent.own
    dead = [e.summary for e in parent.events if e.state == "dead" and e.kind == "user_msg"]
    assert ["Try this"] == dead
    prompts = [e.summary for e in parent.events if e.kind == "user_msg" and e.channel == "main"]
    assert ["Mend it", "Try this", "Delegate it", "Go on"] == prompts
    assert ["400 bad request"] == [e.summary for e in parent.events if e.kind == "error"]
    assert "c3" == parent.about["agent:helper-c3"]


def test_after_a_compaction_the_model_sees_the_new_history(tmp_path: Path) -> None:
    """What it was replaced by, and what follows."""
    write(tmp_path)
    path = tmp_path / "projects" / "-work-demo" / "chats" / f"{PARENT}.jsonl"
    messages = readout_of(load(path, KNOWN).graph).messages().messages

    texts = [part["text"] for message in messages for part in message["content"]]
    assert ["It was mended.", "Go on", "<system-reminder>Be brief.</system-reminder>"] == texts


def test_a_copy_of_a_copy_is_billed_once(tmp_path: Path) -> None:
    """The fork of a fork names the fork, which names the first session."""
    chats = tmp_path / "projects" / "-work-demo" / "chats"
    names = [f"11111111-0000-4000-8000-00000000000{n}" for n in "abc"]
    write_lines(chats / f"{names[0]}.jsonl", *TALK)
    for above, own in pairwise(names):
        lines = [
            {**line, "sessionId": own, "forkedFrom": {"sessionId": above, "messageUuid": "u"}}
            for line in TALK
        ]
        write_lines(chats / f"{own}.jsonl", *lines)

    spent = [session.spent.own for session in sessions_of(Qwen(), tmp_path).values()]
    assert [1030 + 1120 + 1210, 0, 0] == spent


def test_roots_follow_the_environment() -> None:
    """The folder for run-time files goes first."""
    env = {"QWEN_RUNTIME_DIR": "/r", "QWEN_HOME": "/q"}

    assert [Path("/r"), Path("/q"), Path("/h/.qwen")] == Qwen().roots(Path("/h"), env)
