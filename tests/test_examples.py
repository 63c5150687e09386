"""The examples run as they are, are killed, and go on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from thence.format.transcript import Transcript
from thence.journal import Journal

ROOT = Path(__file__).resolve().parent.parent
HARNESS = ROOT / "examples" / "tiny_harness.py"
TEMPLATE = ROOT / "examples" / "agent-template"

REPLIES = [
    "agent  It says goodbye now.",
    "agent  The reviewer agrees.",
    "agent  Yes, we are.",
    "agent  Really.",
]


def run_harness(home: Path, *options: str, kill_at: int = 0) -> tuple[int, list[str]]:
    """Run the tiny harness: its exit status and what it printed."""
    done = subprocess.run(
        [sys.executable, HARNESS, home, *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "TINY_KILL_AT": str(kill_at)}
        | {"THENCE_NO_PERSISTENCE": "", "CLAUDE_NO_SESSION_PERSISTENCE": ""},
    )
    assert "" == done.stderr
    return done.returncode, done.stdout.splitlines()


def agent_lines(printed: list[str]) -> list[str]:
    """What the model said in words."""
    return [line for line in printed if line.startswith("agent")]


@pytest.mark.slow
def test_the_tiny_harness_runs_to_its_end(tmp_path: Path) -> None:
    """Turns, tools, a subagent and a compaction, and a clean log at the end."""
    status, printed = run_harness(tmp_path)
    listed = Journal(tmp_path).sessions()
    read = Transcript.read(listed[0].path.read_bytes())

    assert (0, REPLIES) == (status, agent_lines(printed))
    assert "       (compacted)" in printed
    assert "goodbye\n" == (tmp_path / "workspace" / "greeting.txt").read_text()
    assert [True] == [session.closed for session in listed]
    assert ([], []) == (list(read.skipped), list(read.messages().open_calls))
    assert {"boundary", "checkpoint", "sidechain", "summary"} <= {e.type for e in read.events}
    assert 1 == len(list((tmp_path / "sidechains").rglob("*.jsonl")))


@pytest.mark.few(2)
@pytest.mark.parametrize("kill_at", [1, 2])
def test_the_tiny_harness_goes_on_where_it_was_killed(tmp_path: Path, kill_at: int) -> None:
    """Killed in the middle of a tool call: nothing is said twice and nothing is left out."""
    status, before = run_harness(tmp_path, kill_at=kill_at)
    resumed, after = run_harness(tmp_path, "--resume")
    first, second = (list(reversed(Journal(tmp_path).sessions()))[n] for n in (0, 1))

    assert (9, 0) == (status, resumed)
    assert REPLIES == agent_lines(before) + agent_lines(after)
    assert "       (resumed; interrupted tool calls: 1)" == after[0]
    assert after[1].endswith(" (retry)")
    assert "       (done; total cost $0.007)" == after[-1]
    assert (False, True) == (first.closed, second.closed)
    assert first.session_id == second.resumed_from
    assert "goodbye\n" == (tmp_path / "workspace" / "greeting.txt").read_text()


@pytest.mark.slow
def test_the_tiny_harness_survives_being_killed_again_and_again(tmp_path: Path) -> None:
    """Each run does one more tool call than it survives; the story comes out whole."""
    printed = run_harness(tmp_path, kill_at=1)[1]
    for _ in range(3):
        printed += run_harness(tmp_path, "--resume", kill_at=1)[1]
    status, last = run_harness(tmp_path, "--resume")

    assert 0 == status
    assert REPLIES == agent_lines(printed + last)


# -- an adapter by somebody else ------------------------------------------------------------


def unpack_template(target: Path) -> None:
    """Put the template where an installer would: its modules, and what its project file says."""
    project = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())["project"]
    shutil.copytree(TEMPLATE / "src", target, ignore=shutil.ignore_patterns("__pycache__"))
    metadata = target / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    fields = f"Name: {project['name']}\nVersion: {project['version']}\n"
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.4\n{fields}")
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(points))


def install_template(target: Path) -> None:
    """Install the template as a user does, without the network."""
    if find_spec("hatchling") is None or find_spec("pip") is None:
        pytest.skip("no hatchling here to build a package with")
    copy = target.with_name("copy")
    shutil.copytree(TEMPLATE, copy)
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", target)
    subprocess.run([sys.executable, "-m", "pip", "install", *options, copy], check=True)


@pytest.mark.slow
@pytest.mark.sampled(2, 1)
@pytest.mark.parametrize("put", [unpack_template, install_template])
def test_the_adapter_template_installs_and_passes_its_own_tests(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    """A package that knows nothing of this tree, found by its entry point, stands the suite."""
    target, tests = tmp_path / "target", tmp_path / "tests"
    put(target)
    shutil.copytree(TEMPLATE / "tests", tests, ignore=shutil.ignore_patterns("__pycache__"))
    unused = [f"-pno:{name}" for name in ("cacheprovider", "schemathesis", "faker", "anyio")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *unused, "--rootdir", tests, tests],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(target), "PYTHONDONTWRITEBYTECODE": "1"},
    )

    assert 0 == done.returncode, done.stdout
    assert " passed" in done.stdout


@pytest.mark.slow
def test_thence_shows_a_session_of_an_adapter_that_was_installed(tmp_path: Path) -> None:
    """The command line knows it like one of its own."""
    unpack_template(tmp_path / "target")
    log = tmp_path / ".pebble" / "blue.jsonl"
    log.parent.mkdir()
    log.write_text('{"id": "n1", "parent": null, "speaker": "user", "text": "Hello, pebble."}\n')
    done = subprocess.run(
        [sys.executable, "-c", "from thence.cli import main; main()", "show", log],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "target")},
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert "Hello, pebble." in done.stdout
