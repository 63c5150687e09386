"""ACP: the owners' own client lists, loads and replays; what passes the proxy is recorded."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from thence.agents.profiles import folder_variables
from thence.agents.sessions import load
from thence.cli.processes import thence
from thence.format.records import JSON
from thence.journal import Journal
from thence.memory.readouts import readout_of

USAGE = {"input_tokens": 10, "output_tokens": 5}


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A machine with one session of ours, swept."""
    env = {k: v for k, v in os.environ.items() if k not in folder_variables()}
    env |= {"HOME": str(tmp_path), "THENCE_HOME": str(tmp_path / "home")}
    return env


@pytest.fixture
def session(tmp_path: Path, env: dict[str, str]) -> str:
    """The id of a session with a thought, a call that failed and an answer."""
    with Journal(tmp_path / "home").create(cwd=str(tmp_path), model="made-up") as made:
        made.record("user", {"role": "user", "content": "Count the files."})
        blocks: list[JSON] = [
            {"type": "thinking", "thinking": "Let me look."},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls /x"}},
        ]
        made.record("assistant", {"role": "assistant", "content": blocks, "usage": USAGE})
        result = {"type": "tool_result", "tool_use_id": "c1", "content": "gone", "is_error": True}
        made.record("user", {"role": "user", "content": [result]})
        text = [{"type": "text", "text": "There is none."}]
        made.record("assistant", {"role": "assistant", "content": text, "usage": USAGE})
        name = made.id
    subprocess.run([*thence(), "sweep"], env=env, check=True, capture_output=True)
    return name


class Editor:
    """What the package of the protocol calls a client: it notes what it is told."""

    def __init__(self) -> None:
        self.updates: list[Any] = []

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """Note an update."""
        self.updates.append(update)

    async def request_permission(self, options: Any, **_: Any) -> Any:
        """Allow whatever is asked for."""
        import acp.schema as s

        chosen = next(o for o in options if o.kind.startswith("allow"))
        outcome = s.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        return s.RequestPermissionResponse(outcome=outcome)

    def on_connect(self, conn: Any) -> None:
        """Do nothing."""

    def __getattr__(self, name: str) -> Any:
        """Refuse files and terminals."""
        if name.startswith("_"):
            raise AttributeError(name)

        async def refuse(*_: Any, **__: Any) -> Any:
            import acp

            raise acp.RequestError.method_not_found(name)

        return refuse


Sdk = Callable[[str], ModuleType]


@pytest.mark.slow
def test_the_owners_client_lists_loads_and_replays(
    session: str, env: dict[str, str], sdk: Sdk, tmp_path: Path
) -> None:
    """All of the live line comes again, in its order; a prompt is answered with the command."""
    acp = sdk("acp")
    editor = Editor()

    async def talk() -> tuple[Any, Any, Any]:
        words = [*thence(), "acp"]
        async with acp.spawn_agent_process(editor, words[0], *words[1:], env=env) as (agent, _):
            begun = await agent.initialize(protocol_version=1)
            listed = await agent.list_sessions(cwd=str(tmp_path))
            uid = listed.sessions[0].session_id
            await agent.load_session(session_id=uid, cwd=str(tmp_path), mcp_servers=[])
            replayed = list(editor.updates)
            prompt = [acp.text_block("Go on.")]
            answer = await agent.prompt(session_id=uid, prompt=prompt)
            return begun, listed, (replayed, answer)

    begun, listed, (replayed, answer) = asyncio.run(talk())
    kinds = [update.session_update for update in replayed]
    texts = [u.content.text for u in replayed if hasattr(u, "message_id")]
    text = editor.updates[-1].content.text

    assert begun.agent_capabilities.load_session
    assert [f"thence:{session}"] == [entry.session_id for entry in listed.sessions]
    assert [
        "user_message_chunk",
        "agent_thought_chunk",
        "agent_message_chunk",
        "tool_call",
        "tool_call_update",
        "agent_message_chunk",
    ] == kinds
    assert ["Count the files.", "Let me look.", "I look.", "There is none."] == texts
    assert ({"command": "ls /x"}, "failed") == (replayed[3].raw_input, replayed[4].status)
    assert "end_turn" == answer.stop_reason
    assert "does not run a model" in text
    assert session in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"fs/none"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"x:y"}}', -32002),
        (b'{"jsonrpc":"2.0","id":1,"method":"session/load","params":[]}', -32602),
    ],
)
def test_bad_requests_get_errors_and_do_not_end_it(
    env: dict[str, str], line: bytes, code: int
) -> None:
    """The next request is answered."""
    good = b'{"jsonrpc":"2.0","id":2,"method":"session/list","params":{}}'
    asked = line + b"\n" + good + b"\n"
    command = [*thence(), "acp"]
    done = subprocess.run(command, input=asked, env=env, capture_output=True, check=True)
    first, second = map(json.loads, done.stdout.splitlines())

    assert code == first["error"]["code"]
    assert {"sessions": []} == second["result"]


# -- the proxy ------------------------------------------------------------------------------

AGENT = r"""
import json, sys, time

def send(message):
    # In two pieces, and with white space of its own: bytes must pass as they are.
    text = json.dumps({"jsonrpc": "2.0", **message}, separators=(" , ", " :  ")) + "\n"
    sys.stdout.write(text[:7]); sys.stdout.flush(); sys.stdout.write(text[7:]); sys.stdout.flush()

def update(**told):
    send({"method": "session/update", "params": {"sessionId": "s1", "update": told}})

def chunk(kind, text):
    update(sessionUpdate=kind, content={"type": "text", "text": text})

for line in sys.stdin:
    asked = json.loads(line)
    method, number = asked.get("method"), asked.get("id")
    if method == "initialize":
        info = {"name": "made-up", "version": "1"}
        send({"id": number, "result": {"protocolVersion": 1, "agentInfo": info}})
    elif method == "session/new":
        send({"id": number, "result": {"sessionId": "s1"}})
    elif method == "session/prompt":
        chunk("agent_thought_chunk", "Let me ")
        chunk("agent_thought_chunk", "look.")
        chunk("agent_message_chunk", "I ")
        chunk("agent_message_chunk", "look: \u00fc")
        call = {"toolCallId": "c1", "title": "`ls`", "kind": "execute", "status": "pending"}
        update(sessionUpdate="tool_call", **call)
        send({"id": "p", "method": "session/request_permission", "params": {
            "sessionId": "s1", "toolCall": {"toolCallId": "c1"},
            "options": [{"optionId": "SECRETOPTION", "name": "ok", "kind": "allow_once"}]}})
        sys.stdin.readline()
        update(sessionUpdate="tool_call_update", toolCallId="c1", rawInput={"command": "ls"},
               status="in_progress")
        if "wait" in json.dumps(asked):
            chunk("agent_message_chunk", "half of ")
            time.sleep(60)
        out = [{"type": "content", "content": {"type": "text", "text": "a b"}}]
        update(sessionUpdate="tool_call_update", toolCallId="c1", status="completed", content=out)
        update(sessionUpdate="plan", entries=[
            {"content": "Count", "priority": "high", "status": "completed"}])
        chunk("agent_message_chunk", "Two.")
        usage = {"totalTokens": 30, "inputTokens": 20, "outputTokens": 10}
        send({"id": number, "result": {"stopReason": "end_turn", "usage": usage}})
"""


@pytest.fixture
def agent(tmp_path: Path) -> list[str]:
    """The command of a made-up agent."""
    path = tmp_path / "agent.py"
    path.write_text(AGENT)
    return [sys.executable, str(path)]


def _lines(text: str, tmp_path: Path) -> bytes:
    requests: list[JSON] = [
        {"id": 0, "method": "initialize", "params": {"protocolVersion": 1}},
        {"id": 1, "method": "session/new", "params": {"cwd": str(tmp_path), "mcpServers": []}},
        {
            "id": 2,
            "method": "session/prompt",
            "params": {"sessionId": "s1", "prompt": [{"type": "text", "text": text}]},
        },
        {"id": "p", "result": {"outcome": {"outcome": "selected", "optionId": "SECRETOPTION"}}},
    ]
    return b"".join(
        json.dumps({"jsonrpc": "2.0", **request}).encode() + b"\n" for request in requests
    )


def _journal(tmp_path: Path) -> Path:
    return next((tmp_path / "home" / "sessions").rglob("*.jsonl"))


@pytest.mark.slow
def test_bytes_pass_and_the_journal_says_what_was_said(
    env: dict[str, str], agent: list[str], tmp_path: Path
) -> None:
    """What the editor gets is what the agent wrote, to the byte; no permission is recorded."""
    asked = _lines("Count.", tmp_path)
    plain = subprocess.run(agent, input=asked, capture_output=True, check=True)
    through = subprocess.run(
        [*thence(), "acp", "--", *agent], input=asked, env=env, capture_output=True, check=True
    )
    log = _journal(tmp_path)
    session = load(log).graph

    assert plain.stdout == through.stdout
    assert [
        {"role": "user", "content": [{"type": "text", "text": "Count."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look: ü"},
                {
                    "type": "tool_use",
                    "id": "c1",
                    "name": "execute",
                    "input": {"command": "ls"},
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": "a b"}],
                }
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "Two."}]},
    ] == readout_of(session).messages().messages
    assert ["Let me look."] == [e.summary for e in session.events if e.kind == "thinking"]
    assert not session.bills
    assert "SECRETOPTION" not in log.read_text()


def test_a_kill_costs_nothing_that_was_said(
    env: dict[str, str], agent: list[str], tmp_path: Path
) -> None:
    """Killed in the middle of a message, the journal has all up to it."""
    command = [*thence(), "acp", "--", *agent]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, start_new_session=True
    ) as proxy:
        assert proxy.stdin is not None
        proxy.stdin.write(_lines("Please wait.", tmp_path))
        proxy.stdin.flush()
        for _ in range(300):
            time.sleep(0.1)
            paths = list((tmp_path / "home").rglob("sessions/*/*.jsonl"))
            if paths and "half of" in paths[0].read_text():
                break
        os.killpg(proxy.pid, signal.SIGKILL)
    text = json.dumps([event.payload for event in load(_journal(tmp_path)).graph.events])

    assert all(part in text for part in ("Please wait.", "Let me look.", "half of ", '"ls"'))


@pytest.mark.slow
def test_the_end_of_the_agent_is_our_end(env: dict[str, str], tmp_path: Path) -> None:
    """Its exit code is ours, and a program that is not there is said so."""
    ends = [*thence(), "acp", "--", sys.executable, "-c", "raise SystemExit(7)"]
    code = subprocess.run(ends, env=env, stdin=subprocess.DEVNULL, check=False).returncode
    none = subprocess.run(
        [*thence(), "acp", "--", str(tmp_path / "none")], env=env, capture_output=True, check=False
    )

    assert 7 == code
    assert b"cannot run" in none.stderr
