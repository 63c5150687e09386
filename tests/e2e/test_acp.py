"""Real agents of the Agent Client Protocol through our proxy: the journal is what the wire says.

An editor talks to `thence acp -- AGENT`. Between the proxy and the agent, `tee` writes down what
passes: that is the wire. What the editor gets is the same to the byte, and what the journal has is
what an independent reading of the wire gives.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import cell
from tests.e2e.agents import thence
from tests.e2e.clients import Client, get_client, order

pytestmark = pytest.mark.e2e

PROMPT = "Which function here finds the low tide? Count the lines too."
ANSWER = "low() does, in tide.py, and it takes the maximum where the minimum is meant."
NEXT = "Say that again in French, please."
DONE = "C'est low(), dans tide.py, qui prend le maximum."
COUNT = "wc -l tide.py && false"
AGENTS = {
    "gemini": ("--acp", "-m", "gemini-2.5-pro"),
    "opencode": ("acp",),
    "qwen": ("--acp", "--auth-type", "openai"),
    "kimi": ("acp",),
}
"""The words after each program that have it speak the protocol."""

Part = tuple[str, ...]


def on_the_wire(out: list[dict[str, Any]], into: list[dict[str, Any]]) -> list[Part]:
    """Return what was said, in order: prompts, thoughts, texts, ids of calls and of results.

    A prompt is answered before the next one is asked, so that each stands before its turn.
    """
    prompts = [message for message in into if message.get("method") == "session/prompt"]
    waiting = [("user", message["params"]["prompt"][0]["text"]) for message in prompts]
    ends = {message["id"] for message in prompts}
    parts: list[Part] = []
    for message in out:
        result = message.get("result") or {}
        if "method" in message:
            parts += _new_parts((message["params"] or {}).get("update") or {}, parts)
        elif waiting and ("sessionId" in result or message["id"] in ends):
            parts.append(waiting.pop(0))
    return parts


def _new_parts(update: dict[str, Any], before: list[Part]) -> Iterator[Part]:
    """Yield what an update says that was not said before."""
    kind, name = update.get("sessionUpdate"), update.get("toolCallId", "")
    if kind in ("agent_message_chunk", "agent_thought_chunk"):
        if update["content"]["text"]:  # some agents say nothing in a chunk of its own
            yield "thought" if "thought" in kind else "agent", update["content"]["text"]
    elif kind in ("tool_call", "tool_call_update"):
        if ("call", name) not in before:
            yield "call", name
        is_new = not any(part[:2] == ("result", name) for part in before)
        if update.get("status") in ("completed", "failed") and is_new:
            yield "result", name, update["status"]


def inputs(out: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the arguments of each call, as the wire has them last."""
    updates = [(message.get("params") or {}).get("update") or {} for message in out]
    return {u["toolCallId"]: u["rawInput"] for u in updates if u.get("rawInput")}


def in_the_journal(lines: list[dict[str, Any]]) -> list[Part]:
    """Return what was said, as the lines of the journal have it."""
    parts: list[Part] = []
    for line in lines:
        if line["type"] not in ("user", "assistant"):
            continue
        payload = line["payload"]
        for block in payload["content"]:
            if block["type"] == "text":
                parts.append(("user" if payload["role"] == "user" else "agent", block["text"]))
            elif block["type"] == "thinking":
                parts.append(("thought", block["thinking"]))
            elif block["type"] == "tool_use":
                parts.append(("call", block["id"]))
            elif block["type"] == "tool_result":
                status = "failed" if block.get("is_error") else "completed"
                parts.append(("result", block["tool_use_id"], status))
    return parts


def joined(parts: list[Part]) -> list[Part]:
    """Return the parts with pieces of one text put together, as both sides may cut them."""
    out: list[Part] = []
    for part in parts:
        if out and part[0] in ("agent", "thought") and out[-1][0] == part[0]:
            out[-1] = (part[0], out[-1][1] + part[1])
        else:
            out.append(part)
    return out


def texts(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file as objects."""
    return [json.loads(line) for line in path.read_bytes().splitlines() if line.strip()]


def spoken(client: Client, home: Path) -> str:
    """Hold a session through the proxy; return what the editor got."""
    program = [f"{cell.ROOT}/.venv/clients/bin/{client.program}", *AGENTS[client.name]]
    tapped = ["/bin/sh", "-c", 'tee ~/into | "$@" | tee ~/out', "sh", *program]
    editor = [sys.executable, "-m", "tests.e2e.editor", PROMPT, NEXT, "--"]
    answers: dict[str, list[Any]] = {PROMPT: [client.read, client.run(COUNT), ANSWER], NEXT: [DONE]}
    command = [f"PYTHONPATH={cell.ROOT}", *editor, *thence("acp", "--", *tapped)]
    (ran,) = order(client, home, answers, command)["ran"]
    assert 0 == ran["code"], ran["err"][-3000:]
    return str(ran["out"])


@pytest.mark.parametrize("name", AGENTS)
def test_the_journal_is_what_the_wire_says(name: str, tmp_path: Path) -> None:
    """Prompts, texts, calls, results and their order; nothing more; and the editor got it all."""
    client = get_client(name)
    home = tmp_path / "home"
    client.settle(home)
    received = spoken(client, home)
    (log,) = (home / ".thence" / "sessions").rglob("*.jsonl")
    out, into = texts(home / "out"), texts(home / "into")
    parts = joined(in_the_journal(texts(log)))

    assert (home / "out").read_text() == received
    assert joined(on_the_wire(out, into)) == parts
    assert [("user", PROMPT), ("user", NEXT)] == [part for part in parts if part[0] == "user"]
    assert 2 == len([part for part in parts if part[0] == "call"])
    assert {ANSWER, DONE} <= {part[1] for part in parts if part[0] == "agent"}
    assert ("agent", DONE) == parts[-1]
    assert inputs(out) == {
        block["id"]: block["input"]
        for line in texts(log)
        if line["type"] == "assistant"
        for block in line["payload"]["content"]
        if block["type"] == "tool_use" and block["id"] in inputs(out)
    }
    assert "optionId" not in log.read_text()
