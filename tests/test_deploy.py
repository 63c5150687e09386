"""The image for a team: what its entrypoint runs, and what is copied into it."""

from __future__ import annotations

import os
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
STORE = "postgresql://thence@db/agents"


def enter(folder: Path, *arguments: str, store: str = STORE) -> subprocess.CompletedProcess[str]:
    """Run the entrypoint with a thence that prints what it was started with."""
    program = folder / "bin" / "thence"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho started: "$@"\n')
    program.chmod(0o755)
    env = {"PATH": f"{program.parent}:{os.environ['PATH']}", "THENCE_HOST": "127.0.0.1"}
    env |= {"THENCE_HOME": f"{folder}/home"} | ({"THENCE_STORE": store} if store else {})
    command = [f"{ROOT}/deploy/entrypoint", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_options_go_to_the_server_and_the_token_to_no_log(tmp_path: Path) -> None:
    """What `thence serve` prints is in a file that only its user can read."""
    done = enter(tmp_path, "--port", "8000")
    printed = tmp_path / "home" / "serve.txt"

    assert (0, "") == (done.returncode, done.stdout)
    assert f"links and token: {printed}\n" == done.stderr
    assert (
        f"started: serve --store {STORE} --host 127.0.0.1 --no-open --token --port 8000\n"
        == printed.read_text()
    )
    assert 0o600 == printed.stat().st_mode & 0o777


def test_other_words_are_a_command(tmp_path: Path) -> None:
    """`docker run thence self-check` checks the image; it needs no store."""
    assert (
        "started: self-check --json\n" == enter(tmp_path, "self-check", "--json", store="").stdout
    )


def test_a_server_without_a_store_says_what_to_set(tmp_path: Path) -> None:
    """It does not start on an empty address."""
    done = enter(tmp_path, store="")

    assert 0 != done.returncode
    assert "THENCE_STORE: set it to the address of the store" in done.stderr


@pytest.mark.parametrize("name", ["constraints.txt", "deploy/entrypoint", "src/thence/__main__.py"])
def test_what_the_image_is_built_from_is_not_ignored(name: str) -> None:
    """.dockerignore leaves out environments and caches, not the package and its licences."""
    ignored = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [name, "pyproject.toml", project["readme"], *project["license-files"]]

    assert {".venv", ".git", ".prove", ".bench"} <= {*ignored}
    for path in needed:
        places = [path, *map(str, Path(path).parents)]

        assert (ROOT / path).exists()
        assert not [line for line in ignored for place in places if fnmatch(place, line)], path


def test_services_are_built_from_this_tree() -> None:
    """The compose file names the Dockerfile, and no password."""
    text = (ROOT / "deploy" / "compose.yaml").read_text()
    services = yaml.safe_load(text)["services"]

    assert "deploy/Dockerfile" == services["viewer"]["build"]["dockerfile"]
    assert "${THENCE_DB_PASSWORD:?" in services["db"]["environment"]["POSTGRES_PASSWORD"]
