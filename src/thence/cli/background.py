"""The viewer in the background: one per home, started, found again and stopped.

The server holds a lock on a file in the home for as long as it runs, and writes into it who it is.
So a killed server leaves nothing that must be cleaned up, and no process is ever taken for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from thence import __version__, config
from thence.cli import launcher
from thence.errors import ThenceError

LOCK: Final = "serve.lock"
LOG: Final = "serve.log"
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 20.0
LOOK_SECONDS: Final = 0.05


class NotStarted(ThenceError):
    """The server did not come up, or does not go."""

    exit_code = 1


class RunningServer(NamedTuple):
    """A server that runs in the background."""

    pid: int
    port: int
    version: str


def find_running(home: Path) -> RunningServer | None:
    """Return the server of a home; None if none runs in the background."""
    try:
        handle = os.open(home / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # never started in this home
        return None
    with os.fdopen(handle, "rb") as file:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:  # somebody holds it: that is the server
            return _read(file.read(4096))
    return None


def _read(body: bytes) -> RunningServer | None:
    try:
        state = json.loads(body)
        return RunningServer(int(state["pid"]), int(state["port"]), str(state["version"]))
    except (ValueError, TypeError, KeyError):  # it is about to write
        return None


@contextlib.contextmanager
def claim(home: Path, port: int) -> Iterator[None]:
    """Be the server of a home while this lasts; raises if another one is."""
    config.make_private(home)
    handle = os.open(home / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "r+b") as file:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise NotStarted(
                "a server of this home runs already", hint="thence serve --stop stops it"
            ) from error
        file.truncate()
        file.write(json.dumps(RunningServer(os.getpid(), port, __version__)._asdict()).encode())
        file.flush()
        yield
        file.truncate(0)


def start(home: Path, port: int) -> RunningServer:
    """Start the server of a home; one that runs is used, one of another version replaced."""
    there = find_running(home)
    if there is not None and there.version == __version__:
        return there
    if there is not None:
        stop(home)
    launcher.ensure(home)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    config.make_private(home)
    with os.fdopen(os.open(home / LOG, flags, 0o600), "wb") as log:
        child = subprocess.Popen(  # noqa: S603 - our own launcher
            launcher.command(home, "serve", "--service", "--no-open", "--port", str(port)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and child.poll() is None:
        if (there := find_running(home)) is not None:
            child.returncode = 0  # it outlives this process, which does not wait for it
            return there
        time.sleep(LOOK_SECONDS)
    reason = (home / LOG).read_text("utf-8", "replace").strip().partition("\n")[0]
    raise NotStarted(
        f"the server did not start: {reason or 'it said nothing'}", hint=f"look at {home / LOG}"
    )


def stop(home: Path) -> RunningServer | None:
    """Stop the server of a home; return which one that was."""
    there = find_running(home)
    if there is None:
        return None
    with contextlib.suppress(ProcessLookupError):  # it ended by itself meanwhile
        os.kill(there.pid, signal.SIGTERM)
    end = time.monotonic() + STOP_SECONDS
    while find_running(home) is not None:
        if time.monotonic() > end:
            raise NotStarted(f"the server does not stop: process {there.pid}", hint="look at it")
        time.sleep(LOOK_SECONDS)
    return there
