"""The brief and a planted question in further real clients: told once, framed, not when off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agents import thence
from tests.e2e.cell import HOME
from tests.e2e.clients import Client, get_client, order

pytestmark = pytest.mark.e2e

FIRST = "Which lamp marks the harbour mole?"
SECOND = "What did we say about the lamp?"
PLANTED = "The lamp of the mole burns whale oil, by the order of the pilot."
DONE = "Whale oil."
OFF = f'session_memory.brief.skip = ["{HOME}/project"]\n'
HEAD = "data: thence brief, project"
RECALL = {"qwen": "mcp__thence__recall", "gemini": "mcp_thence_recall"}
"""What each client calls that tool of our server."""


def second_session(name: str, home: Path, *, off: bool = False) -> tuple[Client, dict[str, Any]]:
    """Run two sessions, the second with the brief and MCP; return what happened in that one."""
    client = get_client(name)
    client.settle(home)
    (home / client.folder).mkdir(parents=True, exist_ok=True)
    if off:
        (home / ".thence" / "config.toml").write_text(OFF)
    ran = order(client, home, {FIRST: [PLANTED]}, client.ask(FIRST))["ran"]
    assert 0 == ran[0]["code"], ran
    recall = (RECALL[name], {"question": "what does the lamp of the mole burn"})
    done = order(
        client,
        home,
        {SECOND: [recall, DONE]},
        thence("sweep", "--json"),
        thence("hook", "install", name, "--brief", "--yes"),
        thence("mcp", "install", name, "--yes"),
        client.ask(SECOND),
        thence("mcp", "uninstall", name, "--yes"),
        thence("hook", "uninstall", name, "--yes"),
    )
    assert [0] * 6 == [command["code"] for command in done["ran"]], done["ran"]
    return client, done


@pytest.mark.parametrize("name", RECALL)
def test_a_new_session_is_told_the_brief_and_asks_its_past(name: str, tmp_path: Path) -> None:
    """The brief stands once in the first request, framed; the second holds the answer to recall."""
    _, done = second_session(name, tmp_path / "home")
    requests = [json.dumps(body, ensure_ascii=False) for body in done["asked"]]
    first, last = requests[0], requests[-1]

    assert 1 == first.count(HEAD), first[:4000]
    assert f"It ended with: {PLANTED}" in first
    assert 1 == first.count("end of data]")
    assert "data: thence recall, " in last
    assert 2 <= last.count(PLANTED)


@pytest.mark.parametrize("name", RECALL)
def test_a_project_that_is_switched_off_is_told_nothing(name: str, tmp_path: Path) -> None:
    """The hook runs, and prints nothing."""
    _, done = second_session(name, tmp_path / "home", off=True)
    first = json.dumps(done["asked"][0], ensure_ascii=False)

    assert 0 == first.count(HEAD)
    assert PLANTED not in first
