"""Installed as users install it: by uvx, by pipx, and upgraded under the hooks of real clients."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
import venv
from pathlib import Path

import pytest

from tests import wheels
from tests.e2e import cell
from tests.e2e.agents import AGENTS, ANSWER, CLIENTS, ENV, PROMPT
from tests.wheels import ROOT
from thence import __version__

pytestmark = pytest.mark.e2e

TOOLS = ("uv", "pipx")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the package."""
    return wheels.build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of uv and pipx: those of this machine, or fetched."""
    places = {shutil.which(tool) for tool in TOOLS}
    folder = tmp_path_factory.mktemp("tools")
    if None not in places:
        for place in places:
            (folder / Path(f"{place}").name).symlink_to(f"{place}")
        return folder
    venv.create(folder, symlinks=True, with_pip=True)
    pip = [f"{folder}/bin/python", "-m", "pip", "install", "--quiet", *TOOLS]
    fetched = subprocess.run(pip, capture_output=True, text=True, check=False)
    if fetched.returncode:
        pytest.skip(f"uv and pipx cannot be had here: {fetched.stderr.strip()[-200:]}")
    return folder / "bin"


def environment(home: Path) -> dict[str, str]:
    """The variables of a user with an empty home."""
    names = ("PIP_", "UV_", "SSL_", "HTTP_", "HTTPS_", "NO_PROXY")
    env = {name: value for name, value in os.environ.items() if name.upper().startswith(names)}
    env |= {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "NO_COLOR": "1"}
    # The registry may be reached through a mirror of the company.
    return env | {"UV_SYSTEM_CERTS": "1"}


def run(home: Path, *command: str | Path, stdin: str = "") -> str:
    """Run a command in an empty home of a user, away from the checkout; it must go well."""
    done = attempt(home, *command, stdin=stdin)
    assert 0 == done.returncode, done.stderr
    return done.stdout


def attempt(home: Path, *command: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command that may fail."""
    return subprocess.run(
        command,
        cwd=home,
        env=environment(home),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.fixture
def uvx(wheel: Path, tools: Path, tmp_path: Path) -> list[str | Path]:
    """The command that runs the wheel without installing it, as `uvx thence` does."""
    (tmp_path / ".claude").mkdir()
    uv: list[str | Path] = [tools / "uv", "tool", "run", "--quiet", "--python", sys.executable]
    return [*uv, "--from", wheel, "thence"]


def test_uvx_runs_the_wheel(uvx: list[str | Path], tmp_path: Path) -> None:
    """Nothing is installed before: the version, a demo, a dry run of setup, MCP."""
    params = {"protocolVersion": "2025-06-18", "capabilities": {}}
    params["clientInfo"] = {"name": "test", "version": "1"}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    checked = run(tmp_path, *uvx, "self-check")

    assert str(ROOT) not in checked
    assert __version__ in run(tmp_path, *uvx, "--version")
    assert "sessions" in run(tmp_path, *uvx, "demo")
    assert "nudge claude" in run(tmp_path, *uvx, "setup", "--dry-run")
    assert '"serverInfo"' in run(tmp_path, *uvx, "mcp", stdin=json.dumps(request) + "\n")


def test_uvx_serves_the_viewer(uvx: list[str | Path], tmp_path: Path) -> None:
    """The link signs a client in; the server ends when it is told to."""
    server = subprocess.Popen(
        [*uvx, "serve", "--no-open", "--port", "0", "--token", "--json"],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        there = json.loads(server.stdout.readline())
        address = f"http://127.0.0.1:{there['port']}/api/sessions"
        headers = {"Authorization": f"Bearer {there['token']}"}
        request = urllib.request.Request(address, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            listed = json.load(answer)
    finally:
        server.terminate()  # uv hands it on
        server.stdout.close()
        server.wait(60)

    assert "sessions" in listed


def test_uvx_says_how_to_get_what_it_lacks(uvx: list[str | Path], tmp_path: Path) -> None:
    """An extra is named for uvx; hooks need an installed thence, and nothing is set up."""
    lacks = attempt(
        tmp_path, *uvx, "serve", "--no-open", "--port", "0", "--store", "postgresql://db/agents"
    )
    setup = attempt(tmp_path, *uvx, "setup", "--yes")

    assert "needs the package psycopg, which is not installed" in lacks.stderr
    assert "uvx --from 'thence[postgres]' thence …" in lacks.stderr
    assert "thence runs from uv's cache here" in setup.stderr
    assert [] == [*(tmp_path / ".claude").iterdir()]
    assert (2, 2) == (lacks.returncode, setup.returncode)


def test_pipx_installs_the_wheel_and_hooks_name_its_environment(
    wheel: Path, tools: Path, tmp_path: Path
) -> None:
    """The command is in the user's folder of programs; setup puts in what runs from there."""
    (tmp_path / ".claude").mkdir()
    run(tmp_path, tools / "pipx", "install", "--python", sys.executable, str(wheel))
    thence = tmp_path / ".local" / "bin" / "thence"
    run(tmp_path, thence, "setup", "--yes", "--without", "sweep", "--without", "completion")
    launcher = tmp_path / ".thence" / "bin" / "thence"

    assert __version__ in run(tmp_path, launcher, "--version")
    assert "pipx" in launcher.read_text()
    assert "sessions" in run(tmp_path, thence, "demo")


@pytest.mark.parametrize("name", list(AGENTS))
def test_hooks_of_a_real_client_capture_after_an_upgrade(
    name: str, wheel: Path, tmp_path: Path
) -> None:
    """The older version sets up, a higher one is installed over it, the client knows nothing."""
    agent = AGENTS[name]
    if why := cell.missing():
        pytest.skip(why)
    if not (CLIENTS / "bin" / agent.name).exists():
        reason = CLIENTS / f"{agent.name}.reason"
        pytest.skip(reason.read_text() if reason.exists() else "scripts/clients was not run")
    environment, home = tmp_path / "venv", tmp_path / "home"
    wheels.make_environment(environment, wheel)
    thence = str(wheels.install(environment, wheel))
    agent.settle(home)
    (home / ".thence" / "config.toml").write_text('[session_memory.retention]\ncadence = "daily"\n')
    order = {
        "home": str(home),
        "env": ENV | agent.env,
        "prompt": PROMPT,
        "answers": [agent.tool, ANSWER],
    }
    _, *more = agent.install()
    (setup,) = cell.run(order | {"commands": [[thence, *more]]})["ran"]
    wheels.install(environment, wheels.build(tmp_path / "later", wheels.LATER))
    queue = ["find", f"{cell.HOME}/.thence/queue", "-type", "f"]
    commands = [agent.ask(), queue, [thence, "sweep"], [thence, "ls", "--json"]]
    asked, nudges, swept, listed = cell.run(order | {"commands": commands})["ran"]

    assert (0, 0, 0) == (setup["code"], asked["code"], swept["code"]), (setup, asked, swept)
    assert ANSWER in asked["out"]
    assert f"/queue/{agent.name}-" in nudges["out"]
    assert [(agent.name, "done")] == [
        (row["flavor"], row["turn"]) for row in json.loads(listed["out"])
    ]
    assert wheels.LATER in (home / ".thence" / "bin" / "thence").read_text()
