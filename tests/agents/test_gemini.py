"""Gemini CLI: logs as its client writes them, against what the API billed, and made-up ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agents.agents import billed, counted, outcomes, sessions_of, write_lines
from tests.pace import SUITE_BYTES, SUITE_ROUNDS
from thence.agents.gemini.messages import COMPACTION
from thence.agents.gemini.reader import Gemini
from thence.agents.profiles import agents
from thence.agents.sessions import load
from thence.memory.readouts import readout_of
from thence.testing import AgentSuite
from thence.testing.readers import CHECKS

SESSION = "33333333-0000-4000-8000-00000000000a"
FORK = "33333333-0000-4000-8000-00000000000b"
CHILD = "33333333-0000-4000-8000-00000000000c"
KNOWN = {"gemini": Gemini()}
CONTEXT = {
    "id": "c0",
    "type": "user",
    "content": [{"text": "<session_context>\n- **Workspace Directories:**\n  - /home/dev/other\n"}],
}


def header(session: str = SESSION, kind: str = "main") -> dict[str, Any]:
    """The line that a process starts with."""
    start = "2026-05-04T10:00:00.000Z"
    return {"sessionId": session, "projectHash": "ab", "startTime": start, "kind": kind}


def asked(number: int, content: Any, **more: Any) -> dict[str, Any]:
    """A message in the user's name."""
    content = [{"text": content}] if isinstance(content, str) else content
    when = f"2026-05-04T10:00:{number:02}.000Z"
    return {"id": f"m{number}", "timestamp": when, "type": "user", "content": content, **more}


def reply(
    number: int, content: str, input_tokens: int = 0, *calls: Any, **more: Any
) -> dict[str, Any]:
    """A message of the model, with its tokens: 10 out, 5 of thought, a tenth from the cache."""
    tokens = {"input": input_tokens, "output": 10, "cached": input_tokens // 10, "thoughts": 5}
    tokens["total"] = input_tokens + 15
    line = {**asked(number, content), "type": "gemini", "content": content, "model": "mock-1"}
    line |= {"tokens": tokens} if input_tokens else {}
    return {**line, "toolCalls": list(calls), **more} if calls else {**line, **more}


def call(name: str, number: str, output: str, status: str = "success", **more: Any) -> Any:
    """A call that has ended."""
    response = {"functionResponse": {"id": number, "name": name, "response": {"output": output}}}
    args = {"command": "make"}
    fields = {"id": number, "name": name, "args": args, "result": [response], "status": status}
    return {**fields, **more}


def listed(*messages: Any) -> dict[str, Any]:
    """A line that replaces the list of messages."""
    return {"$set": {"messages": list(messages)}}


SHELL = call("run_shell_command", "s1", "Output: no rule\nExit Code: 2\nProcess Group PGID: 7")
AGENT = call("invoke_agent", "a1", "Two.", agentId=CHILD)
TALK = [
    header(),
    listed(CONTEXT),
    asked(1, "Mend it"),
    {"$set": {"lastUpdated": "2026-05-04T10:00:01.000Z", "summary": "Mending"}},
    reply(2, "", 1000, thoughts=[{"subject": "Plan", "description": "Hm."}]),
    reply(2, "", 1000, SHELL, thoughts=[{"subject": "Plan", "description": "Hm."}]),
    asked(3, SHELL["result"]),
    reply(4, "Let me ask.", 1100),
    reply(4, "Let me ask.", 1100, AGENT),
    asked(5, AGENT["result"]),
    reply(6, "It has no rule.", 1200),
]
MEMORY = [  # the list as a new process writes it: no tokens, no calls, other times
    CONTEXT,
    asked(1, "Mend it", timestamp="2026-05-05T00:00:00.000Z"),
    {**reply(2, ""), "content": [{"functionCall": {"id": "s1", "name": "run_shell_command"}}]},
    {**asked(2, SHELL["result"]), "id": "m2_response"},
    asked(3, SHELL["result"]),
    reply(4, "Let me ask."),
    asked(5, AGENT["result"]),
    reply(6, "It has no rule."),
]


def path_of(root: Path, minute: int = 0) -> Path:
    """Where a log of the session lies."""
    name = f"session-2026-05-04T10-{minute:02}-{SESSION[:8]}.jsonl"
    return root / "tmp" / "demo" / "chats" / name


def write(root: Path) -> None:
    """Write a session with a subagent, a rewind, a failed prompt, a resume and a compaction."""
    write_lines(
        path_of(root),
        *TALK,
        asked(7, "Try this"),
        reply(8, "No.", 1300),
        {"$rewindTo": "m7"},
        asked(9, "Break it"),
        listed(*MEMORY),
        header(),
        listed(CONTEXT),
        listed(*MEMORY),
        asked(10, "Go on"),
        reply(11, "Yes.", 1400),
        listed(
            CONTEXT,
            asked(12, "<state_snapshot>It was mended.</state_snapshot>"),
            reply(13, "Got it."),
            asked(10, "Go on"),
            reply(11, "Yes."),
        ),
        asked(14, "And now?"),
        reply(15, "Done.", 1500),
        {"id": "m16", "type": "error", "content": "quota"},
    )
    write_lines(
        path_of(root).parent / SESSION / f"{CHILD}.jsonl",
        header(CHILD, "subagent"),
        asked(31, "Count"),
        reply(32, "Two.", 500),
    )
    (root / "tmp" / "demo" / ".project_root").write_text("/home/dev/demo")


SCENARIOS = ["tools", "resume", "resume-twice", "parallel", "subagent", "compact", "error"]


@pytest.mark.parametrize("scenario", [*SCENARIOS, "killed"])
def test_tokens_calls_and_prompts_are_what_the_api_billed(shared: Path, scenario: str) -> None:
    """Every field is exact, but for compactions and a killed call, which no file holds."""
    home = shared / "data" / "agents" / "gemini" / scenario
    sessions = sessions_of(Gemini(), home / "home/.gemini").values()
    truth = billed(home, unlogged=("compaction",), thoughts_beside=True)
    if scenario == "killed":
        del truth.calls["run_shell_command"]

    assert truth == counted(Gemini(), home / "home/.gemini")
    reasons = {notice.detail for session in sessions for notice in session.unbilled}
    assert ({COMPACTION} if scenario == "compact" else set()) == reasons
    assert {"done"} == {str(session.turn().state) for session in sessions}
    assert {"/home/dev/demo"} == {session.session().cwd for session in sessions}


def test_a_real_failed_prompt_is_dead(shared: Path) -> None:
    """The client takes it out of its list; the error is nowhere."""
    home = shared / "data" / "agents" / "gemini" / "error" / "home/.gemini"
    (session,) = sessions_of(Gemini(), home).values()

    dead = [e.summary for e in session.events if e.state == "dead" and e.kind == "user_msg"]
    assert ["Break the API now"] == dead


def test_a_real_subagent_is_linked_to_its_call(shared: Path) -> None:
    """Its log is a channel that names the call."""
    home = shared / "data" / "agents" / "gemini" / "subagent" / "home/.gemini"
    (session,) = sessions_of(Gemini(), home).values()
    (channel,) = {event.channel for event in session.events} - {"main"}

    assert "invoke_agent__call_1_0" == session.about[channel]


def test_real_outcomes(shared: Path) -> None:
    """A failed command is a success for the client; its text has the exit code."""
    home = shared / "data" / "agents" / "gemini" / "tools" / "home/.gemini"
    (session,) = sessions_of(Gemini(), home).values()

    assert [
        ("read_file", True, False, None),
        ("run_shell_command", True, True, 1),
        ("replace", True, False, None),
        ("run_shell_command", True, False, 0),
    ] == outcomes(session)


@pytest.mark.sampled
@pytest.mark.parametrize("check", CHECKS)
def test_the_adapter_suite_passes(check: str) -> None:
    """Growth, damage, rewriting, moving and hostile values change nothing that must stay."""
    assert [] == AgentSuite(
        agents()["gemini"], write, rounds=SUITE_ROUNDS, bytewise=SUITE_BYTES
    ).complaints(check)


def test_made_up_sessions_are_told_in_full(tmp_path: Path) -> None:
    """Messages once, calls with their outcome, dead branches, the title, and bills once."""
    write(tmp_path)
    (session,) = sessions_of(Gemini(), tmp_path).values()

    assert [("run_shell_command", True, True, 2), ("invoke_agent", True, False, None)] == (
        outcomes(session)
    )
    assert ("Mending", "/home/dev/demo") == (session.title, session.session().cwd)
    live = 1015 + 1115 + 1215 + 1415 + 1515
    assert (live, 1315, 515) == tuple(
        part.total for part in (session.spent.live, session.spent.dead, session.spent.side)
    )
    prompts = [e for e in session.events if e.kind == "user_msg" and e.channel == "main"]
    assert [
        ("Mend it", "live"),
        ("Try this", "dead"),
        ("Break it", "dead"),
        ("Go on", "live"),
        ("And now?", "live"),
    ] == [(e.summary, str(e.state)) for e in prompts]
    assert ["Plan: Hm."] == [e.summary for e in session.events if e.kind == "thinking"]
    assert "a1" == session.about[f"agent:{CHILD}"]
    assert ["quota"] == [e.summary for e in session.events if e.kind == "error"]


def test_after_a_compaction_the_model_sees_summary_and_tail(tmp_path: Path) -> None:
    """The summary, the messages that stay in the list, and what follows."""
    write(tmp_path)
    messages = readout_of(load(path_of(tmp_path), KNOWN).graph).messages().messages

    texts = [part["text"] for message in messages for part in message["content"]]
    assert ["Got it.", "Go on", "Yes.", "And now?", "Done."] == texts[1:]
    assert texts[0].startswith("<state_snapshot>")


def test_a_rewind_to_an_unknown_message_clears_all(tmp_path: Path) -> None:
    """So does the client."""
    lines = [*TALK, {"$rewindTo": "nobody"}, asked(7, "Anew")]
    path = write_lines(path_of(tmp_path), *lines)
    messages = readout_of(load(path, KNOWN).graph).messages().messages

    assert [["Anew"]] == [[part["text"] for part in message["content"]] for message in messages]


def test_messages_in_two_logs_of_a_session_are_told_once(tmp_path: Path) -> None:
    """A second log begins with the list of the first, from memory."""
    write_lines(path_of(tmp_path), *TALK)
    second = [header(), listed(CONTEXT), listed(*MEMORY), asked(7, "Go on"), reply(8, "Yes.", 1300)]
    write_lines(path_of(tmp_path, 1), *second)
    (session,) = sessions_of(Gemini(), tmp_path).values()

    assert 1015 + 1115 + 1215 + 1315 == session.spent.own
    assert ["Mend it", "Go on"] == [e.summary for e in session.events if e.kind == "user_msg"]
    assert {"live"} == {str(e.state) for e in session.events if e.kind == "user_msg"}


def test_a_session_made_from_the_log_of_another_one_pays_for_itself_only(tmp_path: Path) -> None:
    """It begins with messages under their ids; those of the client are the same everywhere."""
    names = {f"m{n}": f"55555555-0000-4000-8000-{n:012}" for n in range(1, 10)}

    def named(*lines: Any) -> list[Any]:
        return [{**line, "id": names.get(line["id"], line["id"])} for line in lines]

    talk = named(asked(1, "Mend it"), reply(2, "No rule.", 1000))
    info = {**asked(3, "Imported session"), "id": "import-1", "type": "info"}
    for nth, (session, more) in enumerate(
        {
            SESSION: [*talk, *named(asked(8, "Go on"), reply(9, "Yes.", 1400))],
            FORK: [info, CONTEXT, *talk, *named(asked(4, "Try this"), reply(5, "No.", 1200))],
            CHILD: [info, CONTEXT, *named(asked(6, "Else"), reply(7, "Well.", 1300))],
        }.items()
    ):
        head = {**header(session), "startTime": f"2026-05-04T10:00:{nth:02}.000Z"}
        path = path_of(tmp_path, nth).with_name(f"session-{nth}-{session[-1]}{session[1:8]}.jsonl")
        write_lines(path, head, *more)
    parent, fork, other = (sessions_of(Gemini(), tmp_path)[n] for n in (SESSION, FORK, CHILD))

    assert [1015 + 1415, 1215, 1315] == [s.spent.own for s in (parent, fork, other)]
    assert [("Mend it", "replayed"), ("Try this", "live")] == [
        (e.summary, str(e.state)) for e in fork.events if e.kind == "user_msg"
    ]


def test_roots_and_retention(tmp_path: Path) -> None:
    """The variable names the home; sessions go after 30 days unless the settings differ."""
    env = {"GEMINI_CLI_HOME": "/g"}
    settings = tmp_path / "settings.json"

    assert [Path("/g/.gemini"), Path("/h/.gemini")] == Gemini().roots(Path("/h"), env)
    assert 30 == Gemini().keeps_days(tmp_path)
    for retention, days in (({"maxAge": "2w"}, 14), ({"enabled": False}, None)):
        settings.write_text(json.dumps({"general": {"sessionRetention": retention}}))
        assert days == Gemini().keeps_days(tmp_path)
