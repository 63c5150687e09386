"""The viewer in the background: one per home, found again, stopped, replaced after an upgrade."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.desk import Desk
from thence import __version__
from thence.cli import background

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
    assert f"http://127.0.0.1:{first.port}/" in url
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
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = desk.run("serve", "--background", "--port", port, "--no-open")

    assert 1 == ran.code
    assert f"the server did not start: error: cannot listen on 127.0.0.1 port {port}" in ran.err
