"""Machines with real clients: what was begun on one goes on in another agent on another.

A machine is a cell with a home of its own and a cable to one network, in which an sshd serves a
folder: all that the machines share. What the next client sends its model holds the whole live
chain, whatever machines it came from.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import cell, clients
from tests.e2e.agents import AGENTS, ANSWER, CLIENTS, ENV, PROMPT, thence
from tests.e2e.test_handoff import DONE, NEXT, client, going_on, missing, pairs, parts
from tests.sshd import SshServer, missing_sshd

pytestmark = pytest.mark.e2e

LAST = "And which tests are missing?"
NONE = "One for negative numbers."
HUB = "10.77.0.1"


class Network:
    """A network in which a folder is served by ssh, and machines that are plugged into it."""

    def __init__(self, base: Path) -> None:
        self.name = f"thence-{os.getpid()}"
        self._base = base
        _ip("netns", "add", self.name)
        self._within = ("ip", "netns", "exec", self.name)
        for words in (
            ("link", "add", "bridge", "type", "bridge"),
            ("addr", "add", f"{HUB}/24", "dev", "bridge"),
            ("link", "set", "bridge", "up"),
        ):
            _ip("-n", self.name, *words)
        self.server = SshServer(base / "sshd", address=HUB, within=self._within)
        self.folder = base / "shared"
        self.folder.mkdir()
        self.target = self.server.address(self.folder)
        self._machines = 0

    def plug_in(self, name: str) -> Machine:
        """Return a new machine."""
        self._machines += 1
        address = f"10.77.0.{self._machines + 1}/24"
        link = {"network": self.name, "address": address, "port": f"port{self._machines}"}
        path = f"{self.server.bin}:{CLIENTS}/bin:{CLIENTS}/node/bin:{ENV['PATH']}"
        return Machine(name, self._base / name, link, path)

    def close(self) -> None:
        """Stop the server and remove the network."""
        self.server.stop()
        _ip("netns", "del", self.name)


class Machine:
    """A home, and the commands that run there."""

    def __init__(self, name: str, home: Path, link: dict[str, str], path: str) -> None:
        self.name, self.home, self._link, self._path = name, home, link, path
        self.asked: list[dict[str, Any]] = []
        """What clients asked their model in the last run."""
        (home / "project").mkdir(parents=True)
        (home / ".thence").mkdir(mode=0o700)

    def run(
        self, *commands: list[str], env: dict[str, str] | None = None, script: Any = None
    ) -> list[str]:
        """Run commands, which must succeed; return what they print."""
        order: dict[str, Any] = {"home": str(self.home), "commands": commands, "link": self._link}
        order |= {"env": {**ENV, **(env or {}), "PATH": self._path}, "script": script or {}}
        done = cell.run(order)
        self.asked = done["asked"]
        assert [0] * len(commands) == [ran["code"] for ran in done["ran"]], done["ran"]
        return [ran["out"] for ran in done["ran"]]

    def sync(self) -> dict[str, Any]:
        """Send and receive."""
        report: dict[str, Any] = json.loads(self.run(thence("sync", "--json"))[0])
        return report

    def sessions(self) -> list[dict[str, Any]]:
        """Return what it lists."""
        rows: list[dict[str, Any]] = json.loads(self.run(thence("ls", "--json"))[0])
        return rows

    def messages(self, uid: str) -> list[dict[str, Any]]:
        """Return the live chain of a session."""
        chain: list[dict[str, Any]]
        chain = json.loads(self.run(thence("show", uid, "--as", "messages", "--json"))[0])
        return chain


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    """A network of its own, or the reason why there is none."""
    if why := cell.missing() or missing_sshd():
        pytest.skip(why)
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and ip (iproute2), to join networks by a cable")
    made = Network(tmp_path)
    yield made
    made.close()


def _begin(network: Network, machine: Machine) -> str:
    """Write a session in Claude Code, in a folder of its own, and begin a sync; return the phrase.

    The folder is on no other machine.
    """
    agent = client("claude")
    checkout = machine.home / "checkout-of-alpha"
    checkout.mkdir()
    (checkout / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    read = ("Read", {"file_path": f"{cell.HOME}/checkout-of-alpha/calc.py"})
    there = ["/bin/sh", "-c", f'cd {cell.HOME}/{checkout.name} && exec "$@"', "sh"]
    init = thence("sync", "init", network.target, "--name", machine.name, "--json")
    script = {PROMPT: [agent.tool, read, ANSWER]}
    _, begun = machine.run([*there, *agent.ask()], init, env=agent.env, script=script)
    machine.sync()
    return str(json.loads(begun)["phrase"])


def _join(network: Network, machine: Machine, phrase: str) -> None:
    join = thence("sync", "join", network.target, "--name", machine.name)
    machine.run(["/bin/sh", "-c", f'echo "{phrase}" | "$@"', "sh", *join])
    machine.sync()


def _go_on(machine: Machine, uid: str, reader: str, prompt: str, answer: str) -> dict[str, Any]:
    """Resume a session of another machine in a client of this one; return what it is asked then."""
    resume = thence("resume", uid, "--with", reader, "--json")
    if reader == "codex":
        agent = AGENTS["codex notify"]
        folder = machine.home / agent.folder
        folder.mkdir()
        (folder / "config.toml").write_text(agent.settings)
        (plan,) = machine.run(resume)
        session = json.loads(plan)["argv"][-1]
        ask = [prompt if word == NEXT else word for word in going_on("codex", session)]
        machine.run(ask, env=agent.env, script={prompt: [answer]})
    else:
        next_client = clients.BY_NAME[reader]
        next_client.settle(machine.home)
        machine.run(
            next_client.ask("What is a tide?"),
            env=next_client.env,
            script={"What is a tide?": ["."]},
        )
        (plan,) = machine.run(resume)
        ask = next_client.ask_again(json.loads(plan)["argv"], prompt)
        machine.run(ask, env=next_client.env, script={prompt: [answer]})
    return machine.asked[0]


@pytest.mark.parametrize("reader", ["codex", "gemini", "opencode"])
def test_what_was_begun_on_one_machine_goes_on_in_another_agent_on_another(
    network: Network, reader: str
) -> None:
    """By ssh, without the log and the folder: every message and call of the live chain is sent."""
    client("claude")
    client("codex") if reader == "codex" else clients.get_client(reader)
    alpha, beta = network.plug_in("alpha"), network.plug_in("beta")
    phrase = _begin(network, alpha)
    (row,) = alpha.sessions()
    uid = row["session_uid"]
    chain = alpha.messages(uid)
    _join(network, beta, phrase)
    (received,) = beta.sessions()
    asked = _go_on(beta, uid, reader, NEXT, DONE)
    sent = list(parts(asked))
    calls, results = pairs(sent)

    assert (uid, "alpha") == (received["session_uid"], received["machine"])
    assert chain == beta.messages(uid)
    assert [] == missing(chain, sent)
    assert 2 == len({block["id"] for m in chain for block in m["content"] if "input" in block})
    assert set(calls) == set(results)
    assert any(NEXT in part.text for part in sent[-3:])
    assert not list((beta.home / ".claude").rglob("*.jsonl"))


def test_a_session_goes_over_three_machines_and_agents(network: Network) -> None:
    """Begun in Claude Code, continued in Codex, then in Gemini: each sends all that was before."""
    client("claude")
    client("codex")
    clients.get_client("gemini")
    alpha, beta, gamma = (network.plug_in(name) for name in ("alpha", "beta", "gamma"))
    phrase = _begin(network, alpha)
    (first,) = alpha.sessions()
    _join(network, beta, phrase)
    _go_on(beta, first["session_uid"], "codex", NEXT, DONE)
    beta.sync()
    _join(network, gamma, phrase)
    second = next(row for row in gamma.sessions() if row["flavor"] == "codex")
    chain = beta.messages(second["session_uid"])
    asked = _go_on(gamma, second["session_uid"], "gemini", LAST, NONE)
    sent = list(parts(asked))
    for machine in (gamma, alpha, beta):
        machine.sync()
    listed = [
        {row["session_uid"]: row["machine"] or machine.name for row in machine.sessions()}
        for machine in (alpha, beta, gamma)
    ]
    request_text = " ".join(part.text for part in sent)

    assert "beta" == second["machine"]
    assert [] == missing(chain, sent)
    places = [request_text.index(text) for text in (PROMPT, ANSWER, NEXT, DONE)]
    assert places == sorted(places)
    assert request_text.rindex(LAST) > places[-1]
    assert listed[0] == listed[1] == listed[2]
    assert ["alpha", "beta", "gamma"] == sorted(set(listed[0].values()))
