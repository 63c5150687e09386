"""What is installed: a built wheel in an environment of its own does all that one person needs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.request
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

from thence.errors import MissingPackage, install_command

ROOT = Path(__file__).resolve().parent.parent


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


def test_an_error_about_a_missing_package_says_what_needs_it() -> None:
    """The part, the package, and what to type."""
    error = MissingPackage("the export of tables", "duckdb", extra="analytics")

    assert "the export of tables needs the package duckdb, which is not installed" == str(error)
    assert "thence[analytics]" in (error.hint or "")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the package, built without the network."""
    if find_spec("build") is None or find_spec("hatchling") is None:
        pytest.skip("no build and hatchling here to build a wheel with")
    copy = tmp_path_factory.mktemp("source")
    for name in ("src", "pyproject.toml", "README.md", "LICENSE"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", f"{out}"]
    subprocess.run([*build, f"{copy}"], check=True, capture_output=True)
    [built] = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an environment that has the wheel, and no source tree.

    The packages that thence needs are those of this environment: a line in a .pth file leads to
    them, and leaves out the editable install beside them.
    """
    folder = tmp_path_factory.mktemp("environment") / "venv"
    venv.create(folder, symlinks=True, with_pip=False)
    python = folder / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    asked = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    packages = Path(asked.stdout.strip())
    (packages / "needed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    options = ("--quiet", "--no-deps", "--no-index", "--prefix", f"{folder}", "--ignore-installed")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        *options,
        "--no-warn-script-location",
        f"{wheel}",
    ]
    subprocess.run(pip, check=True, capture_output=True)
    script = folder / "bin" / "thence"
    script.write_text(script.read_text().replace(sys.executable, str(python), 1))
    return script


def _environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "NO_COLOR": "1"}


@pytest.mark.slow
def test_a_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """Templates, styles, samples and the licence are in it; tests are not."""
    check = [sys.executable, f"{ROOT}/scripts/dist_contents.py", f"{wheel}"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stdout


@pytest.mark.slow
def test_an_installed_wheel_runs_demo_and_mcp(program: Path, tmp_path: Path) -> None:
    """Away from the checkout, in a fresh home."""

    def run(*arguments: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            [program, *arguments],
            cwd=tmp_path,
            env=_environment(tmp_path),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert 0 == done.returncode, done.stderr
        return done.stdout

    where = subprocess.run(
        [program.with_name("python"), "-c", "import thence; print(thence.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
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

    assert str(ROOT) not in where.stdout
    assert "thence" in run("--version")
    assert "sessions" in run("demo")
    assert '"serverInfo"' in run("mcp", stdin=json.dumps(request) + "\n")


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
        with urllib.request.urlopen(link, timeout=60) as page:  # the link lets this client in
            body = page.read()
    except urllib.error.HTTPError as error:
        body = error.read()
    finally:
        server.terminate()
        server.stdout.close()
        server.wait(60)

    assert b"thence" in body
    assert b"<html" in body
