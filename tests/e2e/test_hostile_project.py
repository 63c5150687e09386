"""The real clients in a project that holds hostile modules: our hook runs none of them."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import cell
from tests.e2e.agents import AGENTS, ANSWER, CLIENTS, ENV, PROMPT, Agent, thence

pytestmark = pytest.mark.e2e

MARK = "LOADED"
"""The file in the user's home that a hostile module writes."""
MODULE = f"open({str(cell.HOME / MARK)!r}, 'a').write(__name__ + chr(10))\n"
MODULES = ("click", "json", "re", "msgspec", "apsw", "sqlite3", "os", "typing", "sitecustomize")
SWEPT = """for i in $(seq 200); do
[ -e ~/.thence/memory/thence.db ] && [ ! -e ~/.thence/sweep.due ] \
&& [ -z "$(ls -A ~/.thence/queue)" ] && exit 0
sleep 0.2
done; exit 1"""
"""Waits until the sweep that our hook started has read what was nudged about."""


@functools.cache
def no_cell() -> str:
    """Say why nothing can run here."""
    return cell.missing()


def client(name: str) -> Agent:
    """A client, or skip with the reason why there is none."""
    agent = AGENTS[name]
    if why := no_cell():
        pytest.skip(why)
    if not (CLIENTS / "bin" / agent.name).exists():
        reason = CLIENTS / f"{agent.name}.reason"
        pytest.skip(reason.read_text() if reason.exists() else "scripts/clients was not run")
    return agent


def order(
    agent: Agent, home: Path, answers: list[Any], *commands: list[str], capable: bool = False
) -> dict[str, Any]:
    """Run commands with a model that answers so."""
    return cell.run(
        {
            "home": str(home),
            "commands": commands,
            "env": ENV | agent.env,
            "prompt": PROMPT,
            "answers": answers,
            "harm": "none",
            "capable": capable,
        }
    )


@pytest.mark.parametrize("name", AGENTS)
def test_a_session_in_a_hostile_project_is_stored_and_nothing_of_the_project_runs(
    name: str, tmp_path: Path
) -> None:
    """Nothing is done but to install the hook: the session is listed.

    The project holds modules of many names, and the sweep that our hook starts loads none.
    """
    agent, home = client(name), tmp_path / "home"
    agent.settle(home)
    for module in MODULES:
        (home / "project" / f"{module}.py").write_text(MODULE)
    (home / "project" / "thence").mkdir()
    (home / "project" / "thence" / "__init__.py").write_text(MODULE)
    done = order(
        agent,
        home,
        [agent.tool, ANSWER],
        agent.install(),
        agent.ask(),
        ["sh", "-c", SWEPT],
        thence("ls", "--json"),
    )
    installed, asked, _, listed = done["ran"]
    loaded = (home / MARK).read_text() if (home / MARK).exists() else ""

    assert "" == loaded
    assert (0, 0) == (installed["code"], asked["code"]), done["ran"]
    assert [agent.name] == [row["flavor"] for row in json.loads(listed["out"])], done["ran"]


@pytest.mark.parametrize("name", ["codex notify", "codex hooks"])
def test_the_sandbox_of_codex_is_not_left_through_our_hook(name: str, tmp_path: Path) -> None:
    """The model may write in the workspace only: what it writes there never runs outside."""
    agent, home = client(name), tmp_path / "home"
    agent.settle(home)
    write = (
        f"touch {cell.HOME}/DIRECT; mkdir thence;"
        f' echo "{MODULE.strip()}" > thence/__init__.py; cp thence/__init__.py click.py; ls'
    )
    asks = [
        *agent.ask()[:-1],
        *("-s", "workspace-write", agent.ask()[-1]),
    ]
    asks.remove("--dangerously-bypass-approvals-and-sandbox")
    done = order(
        agent,
        home,
        [("exec_command", {"cmd": write}), ANSWER],
        agent.install(),
        asks,
        ["sh", "-c", SWEPT],
        capable=True,  # Codex makes its sandbox with namespaces
    )
    if not (home / "project" / "thence" / "__init__.py").exists():
        pytest.skip(f"the sandbox of Codex does not run here: {done['asked'][-1]['input'][-1]}")

    assert not (home / "DIRECT").exists(), "the sandbox is not there"
    assert not (home / MARK).exists(), (home / MARK).read_text()
    assert [0, 0, 0] == [command["code"] for command in done["ran"]], done["ran"]
