"""`thence mcp install|uninstall|status`: what changes is shown first, and only that."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.cli.desk import Desk


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine."""
    return Desk(tmp_path, monkeypatch)


NAMES = ("claude", "codex", "grok")


def states(desk: Desk) -> dict[str, str]:
    """Return how it stands with each agent."""
    return {
        entry["agent"]: entry["state"] for entry in desk.run("mcp", "status", *NAMES, "--json").json
    }


def test_installing_shows_the_change_and_asks(desk: Desk) -> None:
    """Without a yes nothing is written; a dry run never does."""
    asked = desk.run("mcp", "install", "codex")
    dry = desk.run("mcp", "install", "codex", "--dry-run")

    assert 2 == asked.code
    assert "+[mcp_servers.thence]" in asked.lines
    assert (0, True) == (dry.code, "+[mcp_servers.thence]" in dry.lines)
    assert not (desk.codex / "config.toml").exists()


def test_every_agent_is_told_in_its_own_settings(desk: Desk) -> None:
    """Installed, said to be, and taken out again."""
    ran = desk.run("mcp", "install", "claude", "codex", "grok", "--yes")
    claude = json.loads((desk.user / ".claude.json").read_text())
    codex = tomllib.loads((desk.codex / "config.toml").read_text())
    grok = tomllib.loads((desk.user / ".grok" / "config.toml").read_text())

    assert (0, "installed: claude, codex, grok") == (ran.code, ran.lines[-1])
    assert codex["mcp_servers"] == grok["mcp_servers"]
    assert claude["mcpServers"]["thence"].items() <= codex["mcp_servers"]["thence"].items()
    assert {"claude": "installed", "codex": "installed", "grok": "installed"} == states(desk)
    assert desk.run("mcp", "uninstall", "--yes").lines[-1] == "removed: claude, codex, grok"
    assert {"claude": "none", "codex": "none", "grok": "none"} == states(desk)


def test_without_a_name_the_agents_that_are_there_are_told(desk: Desk) -> None:
    """And where nobody is, that is said."""
    assert "no agent found" in desk.run("mcp", "install", "--yes").out
    desk.codex.mkdir()
    (desk.codex / "config.toml").write_text('model = "x"\n')
    changes = desk.run("mcp", "install", "--yes", "--json").json

    assert [("codex", True)] == [(change["agent"], change["done"]) for change in changes]
    assert {"claude": "none", "codex": "installed", "grok": "none"} == states(desk)


def test_uninstall_of_everything_takes_the_server_out(desk: Desk) -> None:
    """`thence uninstall` undoes what any install did."""
    desk.run("mcp", "install", "codex", "--yes")
    answer = desk.run("uninstall", "--yes", "--json").json

    assert [str(desk.codex / "config.toml")] == [change["path"] for change in answer["changes"]]
    assert "none" == states(desk)["codex"]


def test_the_status_is_told_in_words(desk: Desk) -> None:
    """One line for each agent."""
    desk.run("mcp", "install", "grok", "--yes")
    lines = desk.run("mcp", "status", *NAMES).lines

    assert ["Claude", "Codex", "Grok"] == [line.split()[0] for line in lines]
    assert "not installed" in lines[0]
    assert " installed " in lines[2]


def test_status_lists_the_agents_of_this_machine(desk: Desk) -> None:
    """Of agents that were never used here there is nothing to say."""
    (desk.user / ".qwen").mkdir()
    listed = [entry["agent"] for entry in desk.run("mcp", "status", "--json").json]

    assert "qwen" in listed
    assert "kimi" not in listed
