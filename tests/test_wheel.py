"""What is installed: a built wheel in an environment of its own does all that one person needs."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from scripts import sbom
from tests import wheels
from tests.agents.transcripts import write
from tests.cli.desk import ALERTS, alerts
from tests.wheels import ROOT
from thence import __version__
from thence.errors import MissingPackage, install_command

OF_EXTRAS = "agents claude_agent_sdk duckdb langgraph numpy obstore psycopg pydantic_ai pyrage"
"""Modules that the package imports and that an extra brings."""


@pytest.mark.parametrize(
    ("prefix", "command"),
    [
        ("/home/dev/.venv", "pip install 'thence[objects]'"),
        ("/home/dev/.local/share/pipx/venvs/thence", "pipx install --force 'thence[objects]'"),
        ("/home/dev/.local/share/uv/tools/thence", "uv tool install 'thence[objects]'"),
        ("/home/dev/.cache/uv/archive-v0/x1", "uvx --from 'thence[objects]' thence …"),
        (r"C:\Users\dev\pipx\venvs\thence", "pipx install --force 'thence[objects]'"),
    ],
)
def test_a_missing_extra_names_the_command_of_this_installation(prefix: str, command: str) -> None:
    """Who installed with pipx is not sent to pip."""
    assert command == install_command("objects", prefix)


@pytest.mark.parametrize(
    ("prefix", "command"),
    [
        ("/home/dev/.venv", "pip install --force-reinstall 'thence[objects]'"),
        ("/home/dev/.local/share/pipx/venvs/thence", "pipx install --force 'thence[objects]'"),
        ("/home/dev/.local/share/uv/tools/thence", "uv tool install --reinstall 'thence[objects]'"),
        ("/tmp/cache/archive-v0/x1", "uvx --reinstall --from 'thence[objects]' thence …"),
    ],
)
def test_a_damaged_extra_names_options_of_its_installer(prefix: str, command: str) -> None:
    """Only pip has --force-reinstall."""
    assert command == install_command("objects", prefix, reinstall=True)


def test_an_error_about_a_missing_package_says_what_needs_it() -> None:
    """The part, the package, and what to type."""
    error = MissingPackage("the export of tables", "duckdb", extra="analytics")

    assert "the export of tables needs the package duckdb, which is not installed" == str(error)
    assert "thence[analytics]" in (error.hint or "")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the package."""
    return wheels.build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an environment that has the wheel, and no source tree."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    wheels.make_environment(folder, wheel)
    return wheels.install(folder, wheel)


def _environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "NO_COLOR": "1"}


@pytest.mark.slow
def test_wheel_and_sdist_hold_what_they_should_and_nothing_else(wheel: Path) -> None:
    """Templates, styles, samples and licences; the check that `make dist` runs finds a stray."""
    source = wheel.parent / "source"
    wheels.run_hatchling(wheel.parent, "sdist")
    (sdist,) = wheel.parent.glob("*.tar.gz")
    stray = wheel.with_name("stray-1-py3-none-any.whl")
    shutil.copy(wheel, stray)
    with zipfile.ZipFile(stray, "a") as archive:
        archive.writestr("tests/test_stray.py", "")

    def check(*paths: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, f"{ROOT}/scripts/dist_contents.py"]
        command += map(str, (source, *paths))
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert (0, "complete\n") == (check(wheel, sdist).returncode, check(wheel, sdist).stdout)
    assert f"{stray.name}: unexpected: tests/test_stray.py\n" == check(stray).stdout
    assert 1 == check(stray).returncode


@pytest.mark.slow
def test_notices_name_the_owners_of_what_is_shipped(wheel: Path) -> None:
    """Their copyright lines and their licence are in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        name = f"thence-{__version__}.dist-info/licenses/THIRD-PARTY-NOTICES.txt"
        notices = archive.read(name).decode()
    prices = metadata.distribution("genai-prices").read_text("licenses/LICENSE") or ""
    (owner,) = (line for line in prices.splitlines() if line.startswith("Copyright"))

    assert owner in notices
    assert "Copyright (c) 2019 Zachary Rice" in notices
    assert prices.partition("Permission is hereby")[2].strip() in notices


@pytest.mark.slow
def test_the_bill_of_materials_has_packages_and_contained_parts(wheel: Path) -> None:
    """What the base install needs, and what others made that is in the wheel; no tools of ours."""
    bill = sbom.bill_of(wheel)
    names = {component["name"]: component for component in bill["components"]}
    needs = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}

    assert {"msgspec", "litestar", "htmx.org", "genai-prices", "gitleaks"} <= {*names}
    assert not {"pytest", "duckdb", "thence"} & {*names}
    assert metadata.version("genai-prices") == names["genai-prices"]["version"]
    assert names["htmx.org"]["bom-ref"] in needs[f"pkg:pypi/thence@{__version__}"]
    assert bill == sbom.bill_of(wheel)


def _imported_by_us() -> set[str]:
    """Names of other people's modules that the package imports, at its top or in a function."""
    names: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names - {"thence"}


@pytest.mark.slow
def test_the_base_install_lacks_only_what_extras_bring(program: Path, tmp_path: Path) -> None:
    """A package that is imported and not declared would be missing for users as well."""
    names = sorted(_imported_by_us())
    code = "import sys; from importlib.util import find_spec as find; "
    code += "print(*(name for name in sys.argv[1:] if find(name) is None))"
    missing = _run(program.with_name("python"), tmp_path, "-c", code, *names)

    assert set(OF_EXTRAS.split()) == set(missing.split())
    assert {"msgspec", "litestar"} <= {*names}


def _run(program: Path, home: Path, *arguments: str, stdin: str | None = None) -> str:
    """Run a command of an installed thence away from the checkout; it must go well."""
    done = subprocess.run(
        [program, *arguments],
        cwd=home,
        env=_environment(home),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


@pytest.mark.slow
def test_an_installed_wheel_runs_demo_mcp_and_setup(program: Path, tmp_path: Path) -> None:
    """Away from the checkout, in a fresh home; a dry run of setup writes nothing."""
    where = _run(
        program.with_name("python"), tmp_path, "-c", "import thence as t; print(t.__file__)"
    )
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    (tmp_path / ".claude").mkdir()

    assert str(ROOT) not in where
    assert __version__ in _run(program, tmp_path, "--version")
    assert "nudge claude" in _run(program, tmp_path, "setup", "--dry-run")
    assert [".claude"] == [path.name for path in tmp_path.iterdir()]
    assert "sessions" in _run(program, tmp_path, "demo")
    assert '"serverInfo"' in _run(program, tmp_path, "mcp", stdin=json.dumps(request) + "\n")


@pytest.mark.slow
def test_hooks_capture_after_an_upgrade(program: Path, tmp_path: Path) -> None:
    """At once, by the launcher that the older version wrote; the next command writes it anew."""
    environment, home = tmp_path / "venv", tmp_path / "user"
    program = wheels.copy_environment(program, environment)
    write(home / ".claude", alerts())
    _run(program, home, "setup", "--yes", "--without", "sweep", "--without", "completion")
    (home / ".thence" / "config.toml").write_text(
        '[session_memory.retention]\ncadence = "daily"\n', encoding="utf-8"
    )
    wheels.install(environment, wheels.build(tmp_path / "later", wheels.LATER))
    settings = json.loads((home / ".claude" / "settings.json").read_bytes())
    (line,) = (hook["command"] for hook in settings["hooks"]["Stop"][0]["hooks"])
    launcher = home / ".thence" / "bin" / "thence"
    older = launcher.read_text()
    done = subprocess.run(
        ["sh", "-c", line],
        env=_environment(home),
        input=json.dumps({"session_id": ALERTS}).encode(),
        capture_output=True,
        check=True,
    )
    queue = [path.name for path in (home / ".thence" / "queue").iterdir()]
    _run(program, home, "sweep")
    listed = json.loads(_run(launcher, home, "ls", "--json"))
    findings = json.loads(_run(launcher, home, "doctor", "--json"))["findings"]

    assert (b"", b"", [f"claude-{ALERTS}.json"]) == (done.stdout, done.stderr, queue)
    assert [f"claude:{ALERTS}"] == [row["session_uid"] for row in listed]
    assert f"Starts thence {__version__} " in older
    assert f"Starts thence {wheels.LATER} " in launcher.read_text()
    assert wheels.LATER in _run(launcher, home, "--version")
    assert ["ok"] == [finding["level"] for finding in findings if finding["topic"] == "hooks"]


@pytest.mark.slow
def test_an_installed_wheel_serves_the_viewer(program: Path, tmp_path: Path) -> None:
    """Without a cookie it refuses, by its own page: templates and server are there."""
    server = subprocess.Popen(
        [program, "serve", "--no-open", "--port", "0"],
        cwd=tmp_path,
        env=_environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        link = next(word for line in server.stdout for word in line.split() if "http://" in word)
        port = urllib.parse.urlsplit(link).port  # of its name only browsers know where it is
        page_url = f"http://127.0.0.1:{port}/"
        asked = urllib.request.Request(page_url, headers={"Accept": "text/html"})
        with urllib.request.urlopen(asked, timeout=60) as page:
            body = page.read()
    except urllib.error.HTTPError as error:
        body = error.read()
    finally:
        server.terminate()
        server.stdout.close()
        server.wait(60)

    assert b"thence" in body
    assert b"<html" in body
