"""The viewer in the background: one per home, found again, stopped, replaced after an upgrade."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.desk import Desk
from thence import __version__
from thence.cli import background, launcher, scheduling

pytest.importorskip("litestar")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A machine without sessions; what it started is stopped."""
    made = Desk(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    yield made
    background.stop(made.home)


def start(desk: Desk) -> background.RunningServer:
    """Start the server in the background."""
    ran = desk.run("serve", "--background", "--port", "0", "--no-open", "--json")

    assert 0 == ran.code, ran
    there = background.find_running(desk.home)
    assert there is not None
    return there


@pytest.mark.slow
def test_one_server_per_home_runs_until_it_is_stopped_or_replaced(desk: Desk) -> None:
    """A second start and `open` use the first; doctor knows of it; stop ends it.

    After an upgrade another one takes its place; one that was killed leaves nothing in the way.
    """
    first = start(desk)
    url = desk.run("open", "--no-open", "--json").json["url"]

    assert first == start(desk)
    assert f".localhost:{first.port}/enter?" in url
    assert ["ok"] == [level for level, _ in doctor(desk)]
    assert "ticket" not in (desk.home / background.LOG).read_text()

    lock = desk.home / background.LOCK
    lock.write_text(json.dumps(first._replace(version="0.0.1")._asdict()))
    assert [("warning", "thence serve --background")] == doctor(desk)
    second = start(desk)
    assert (__version__, True) == (second.version, second.pid != first.pid)

    os.kill(second.pid, signal.SIGKILL)
    while background.find_running(desk.home) is not None:
        time.sleep(0.01)
    third = start(desk)
    assert third.pid != second.pid
    assert {"stopped": True, "port": third.port} == desk.run("serve", "--stop", "--json").json
    assert background.find_running(desk.home) is None
    assert "no viewer runs in the background" in desk.run("serve", "--stop").out


def doctor(desk: Desk) -> list[tuple[str, str | None]]:
    """Return what doctor says of the viewer: how bad it is, and what to do."""
    findings = desk.run("doctor", "--json").json["findings"]
    return [
        (finding["level"], finding["fix"]) for finding in findings if finding["topic"] == "viewer"
    ]


def test_a_process_that_does_not_hold_the_lock_is_never_ended(desk: Desk) -> None:
    """A file that names this process says nothing: nobody holds it."""
    desk.home.mkdir(mode=0o700)
    server = background.RunningServer(os.getpid(), 1, "0.0.1")
    (desk.home / background.LOCK).write_text(json.dumps(server._asdict()))

    assert background.stop(desk.home) is None


@pytest.mark.slow
def test_a_server_that_cannot_start_says_why(desk: Desk) -> None:
    """The first line of what it said; nothing is left running."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = desk.run("serve", "--background", "--port", port, "--no-open")

    assert 1 == ran.code
    assert f"the server did not start: error: cannot listen on 127.0.0.1 port {port}" in ran.err


# -- beside a viewer in the foreground ------------------------------------------------------


@contextmanager
def serving(desk: Desk, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a server by the launcher; it is ended in any case."""
    words = launcher.command(desk.home, "serve", "--no-open", *arguments)
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


@pytest.fixture
def foreground(desk: Desk) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A viewer in a terminal, and its port."""
    launcher.write(desk.home)
    with serving(desk, "--port", "0", "--json") as process:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())["port"]


@pytest.mark.slow
def test_a_service_beside_a_viewer_in_the_foreground_fails_without_a_link(
    desk: Desk, foreground: tuple[subprocess.Popen[str], int]
) -> None:
    """So that the machine tries again; it takes over once the other one has ended."""
    process, port = foreground
    ran = desk.run("serve", "--service", "--no-open", "--port", str(port))

    assert (1, "") == (ran.code, ran.out)
    assert f"another viewer of this home runs on port {port}" in ran.err
    assert "ticket" not in ran.err

    process.terminate()
    process.wait()
    with serving(desk, "--service", "--port", str(port)):
        wait_for(lambda: background.find_running(desk.home) is not None)


@pytest.mark.slow
def test_a_start_beside_a_viewer_in_the_foreground_gives_its_link(
    desk: Desk, foreground: tuple[subprocess.Popen[str], int]
) -> None:
    """It says that one runs, and starts none."""
    _, port = foreground
    ran = desk.run("serve", "--background", "--no-open", "--port", str(port))

    assert (0, "The viewer is already running") == (ran.code, ran.lines[0])
    assert f".localhost:{port}/enter?ticket=" in ran.out
    assert background.find_running(desk.home) is None


# -- upgrades -------------------------------------------------------------------------------

IMPORT = "from thence.__main__"
"""Where the launcher begins to load thence."""


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + background.START_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.slow
def test_a_server_replaces_itself_after_an_upgrade(desk: Desk) -> None:
    """The process and the port stay, so whoever started it still knows it; the code is new."""
    launcher.write(desk.home)
    path = launcher.path_in(desk.home)
    script = path.read_text()
    hurry = "from thence.cli import background; background.UPGRADE_CHECK_S = 0.1; "
    path.write_text(script.replace(IMPORT, f"{hurry}{IMPORT}"))
    with serving(desk, "--service", "--port", "0") as process:
        wait_for(lambda: background.find_running(desk.home) is not None)
        first = background.find_running(desk.home)
        assert first is not None
        upgraded = first._replace(version="9.9.9")
        path.write_text(
            script.replace(IMPORT, f'import thence; thence.__version__ = "9.9.9"; {IMPORT}')
        )
        wait_for(lambda: background.find_running(desk.home) == upgraded)
        background.stop(desk.home)
        assert process.stderr is not None
        errors = process.stderr.read()

    assert process.pid == first.pid
    assert "thence was upgraded; the viewer starts again\n" == errors


@pytest.mark.parametrize("state", ["same", "changing", "uninstalled", "upgraded"])
def test_an_upgrade_counts_once_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """A half-replaced package is not started, nor one that is gone."""
    package = tmp_path / "__init__.py"
    package.write_text("1")
    monkeypatch.setattr(background, "PACKAGE", package)
    launcher.write(tmp_path)
    watch = background.UpgradeWatch(tmp_path)
    launcher.write(tmp_path)  # the same text: no upgrade
    for size in range(4):
        if state == "changing" or (state == "upgraded" and size == 0):
            package.write_text("1" * (size + 2))
        if state == "uninstalled":
            package.unlink(missing_ok=True)
            launcher.remove(tmp_path)
        watch.check()

    assert (state == "upgraded") == watch.is_upgraded


def test_an_outdated_service_is_restarted_by_systemd(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Doctor names the command, and a start uses it: a service is not replaced by another one."""
    calls = tmp_path / "calls"
    tool = tmp_path / "systemctl"
    tool.write_text(
        f'#!/bin/sh\necho "$*" >> {calls}\ncase "$*" in *show*) echo MainPID={os.getpid()};; esac\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (edit,) = scheduling.SystemdService().start().edits
    edit.path.parent.mkdir(parents=True)
    edit.path.write_bytes(edit.after or b"")
    outdated = background.RunningServer(os.getpid(), 1, "0.0.1")
    renewed = outdated._replace(version=__version__)

    def find_running(_home: Path) -> background.RunningServer:
        return renewed if "restart" in calls.read_text() else outdated

    calls.write_text("")
    with monkeypatch.context() as patch:
        patch.setattr(background, "find_running", find_running)
        assert [("warning", "systemctl --user restart thence-serve")] == doctor(desk)
        assert renewed == background.start(desk.home, 1)
    assert "--user restart thence-serve" in calls.read_text().splitlines()
