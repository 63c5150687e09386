"""Our MCP server in the real clients: an agent asks its past, its model gets data in a frame."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import cell
from tests.e2e.agents import AGENTS, ANSWER, CLIENTS, ENV, PROMPT, Agent, thence

pytestmark = pytest.mark.e2e

EARLIER = {"query": "calc.py"}
AT_REST = """for i in $(seq 60); do
p=$(pgrep -f '[t]hence mcp'); a=$(cut -d' ' -f14 /proc/$p/stat); sleep 4
b=$(cut -d' ' -f14 /proc/$p/stat); [ "${a:-0}" -gt 10 ] && [ "$a" = "$b" ] && break
done"""
CONNECTED = """for i in $(seq 600); do
grep -qs mcp_server_connected ~/.grok/sessions/*/*/events.jsonl && break; sleep 0.2
done"""
ASKS: dict[str, list[Any]] = {
    "claude": [("mcp__thence__search", EARLIER)],
    "codex": [
        ("exec_command", {"cmd": AT_REST, "yield_time_ms": 120_000}),
        ("search", EARLIER, "mcp__thence"),
    ],
    "grok": [
        ("run_terminal_command", {"command": CONNECTED, "description": "Wait"}),
        ("use_tool", {"tool_name": "thence__search", "tool_input": EARLIER}),
    ],
}
"""How each client calls a tool of a server; two of them begin before the server has started."""


@functools.cache
def no_cell() -> str:
    """Say why nothing can run here."""
    return cell.missing()


@pytest.fixture(params=["claude", "codex", "grok"])
def agent(request: pytest.FixtureRequest) -> Agent:
    """A client, or the reason why there is none."""
    if why := no_cell():
        pytest.skip(why)
    if not (CLIENTS / "bin" / request.param).exists():
        reason = CLIENTS / f"{request.param}.reason"
        pytest.skip(reason.read_text() if reason.exists() else "scripts/clients was not run")
    return AGENTS["codex notify" if request.param == "codex" else request.param]


def order(agent: Agent, home: Path, answers: list[Any], *commands: list[str]) -> dict[str, Any]:
    """Run commands with a model that answers so."""
    request = {
        "home": str(home),
        "commands": commands,
        "env": ENV | agent.env,
        "prompt": PROMPT,
        "answers": answers,
        "harm": "none",
    }
    return cell.run(request)


def asking(agent: Agent) -> list[str]:
    """Return the command that runs a session in which the server may be asked."""
    program = agent.ask()
    return [*program, "mcp__thence__search"] if agent.name == "claude" else program


def test_an_agent_asks_its_past(agent: Agent, tmp_path: Path) -> None:
    """Installed by our command, called by the client: what comes back is framed and inert."""
    home = tmp_path / "home"
    agent.settle(home)
    order(agent, home, [agent.tool, ANSWER], agent.ask())
    done = order(
        agent,
        home,
        [*ASKS[agent.name], ANSWER],
        thence("sweep", "--json"),
        thence("mcp", "install", agent.name, "--yes"),
        asking(agent),
        thence("mcp", "uninstall", agent.name, "--yes"),
    )
    swept, installed, asked, gone = done["ran"]
    text = json.dumps(done["asked"][-1])

    assert [0, 0, 0, 0] == [command["code"] for command in (swept, installed, asked, gone)], done[
        "ran"
    ]
    assert "data: thence search, " in text, asked
    assert "end of data]" in text
    assert f"{agent.name}:" in text
