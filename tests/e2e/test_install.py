"""Installed as users install it: by uvx, by pipx, and upgraded under the hooks of real clients."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
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


def run(home: Path, *command: str | Path) -> str:
    """Run a command in an empty home of a user, away from the checkout; it must go well."""
    names = ("PIP_", "UV_", "SSL_", "HTTP_", "HTTPS_", "NO_PROXY")
    env = {name: value for name, value in os.environ.items() if name.upper().startswith(names)}
    env |= {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "NO_COLOR": "1"}
    env |= {"UV_SYSTEM_CERTS": "1"}  # the registry may be reached through a mirror of the company
    done = subprocess.run(
        command, cwd=home, env=env, capture_output=True, text=True, check=False, timeout=600
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


def test_uvx_runs_the_wheel(wheel: Path, tools: Path, tmp_path: Path) -> None:
    """Nothing is installed before: the version, a demo, a dry run of setup, a missing extra."""
    (tmp_path / ".claude").mkdir()
    uv: list[str | Path] = [tools / "uv", "tool", "run", "--quiet", "--python", sys.executable]
    thence = [*uv, "--from", wheel, "thence"]
    folder = run(tmp_path, *uv, "--with", wheel, "python", "-c", "import thence as t; print(t)")

    assert __version__ in run(tmp_path, *thence, "--version")
    assert "sessions" in run(tmp_path, *thence, "demo")
    assert "nudge claude" in run(tmp_path, *thence, "setup", "--dry-run")
    assert str(ROOT) not in folder


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
