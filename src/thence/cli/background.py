"""The viewer in the background: one per home, started, found again and stopped.

The server holds a lock on a file in the home for as long as it runs, and writes into it who it is.
So a killed server leaves nothing that must be cleaned up, and no process is ever taken for it.
After an upgrade the server replaces itself with the new program, under the same process id: so a
service of systemd or launchd stays one, and no program has to know who started the server.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from thence import __version__, config, system
from thence.cli import launcher
from thence.errors import ThenceError

LOCK: Final = "serve.lock"
LOG: Final = "serve.log"
PACKAGE: Final = Path(__file__).parents[1] / "__init__.py"
"""Each upgrade writes this file anew: it holds the version."""
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 20.0
LOOK_SECONDS: Final = 0.05
UPGRADE_CHECK_S: Final = 5.0
"""Seconds between two checks whether thence was upgraded; each reads one small file."""


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
        handle = system.open_file(home / LOCK, os.O_RDWR)
    except OSError:  # never started in this home
        return None
    with os.fdopen(handle, "rb") as file:
        if not system.try_lock(handle, shared=True):  # somebody holds it: that is the server
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
    handle = system.open_file(home / LOCK, os.O_RDWR | os.O_CREAT)
    with os.fdopen(handle, "r+b") as file:
        if not system.try_lock(handle):
            raise NotStarted(
                "a server of this home runs already", hint="thence serve --stop stops it"
            )
        file.truncate()
        file.write(json.dumps(RunningServer(os.getpid(), port, __version__)._asdict()).encode())
        file.flush()
        yield
        file.truncate(0)


def start(home: Path, port: int) -> RunningServer:
    """Start the server of a home; one that runs is used, one of another version replaced."""
    from thence.cli import scheduling

    there = find_running(home)
    if there is not None and there.version == __version__:
        return there
    launcher.ensure(home)
    if there is not None and (restart := scheduling.restart_command(there.pid)):
        scheduling.run_all([restart], must=True)
        return _wait_for_server(home, lambda: True)
    if there is not None:
        stop(home)
    config.make_private(home)
    handle = system.open_file(home / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with os.fdopen(handle, "wb") as log:
        child = subprocess.Popen(  # noqa: S603 - our own launcher
            _command(home, port),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    there = _wait_for_server(home, lambda: child.poll() is None)
    child.returncode = 0  # it outlives this process, which does not wait for it
    return there


def _command(home: Path, port: int) -> list[str]:
    return launcher.command(home, "serve", "--service", "--no-open", "--port", str(port))


def _wait_for_server(home: Path, is_alive: Callable[[], bool]) -> RunningServer:
    """Return the server once it runs; raise with the first line of its log if it does not."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and is_alive():
        if (there := find_running(home)) is not None:
            return there
        time.sleep(LOOK_SECONDS)
    log = home / LOG
    reason = log.read_text("utf-8", "replace").strip().partition("\n")[0] if log.exists() else ""
    raise NotStarted(
        f"the server did not start: {reason or 'it said nothing'}", hint=f"look at {log}"
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


# -- upgrades -------------------------------------------------------------------------------


class UpgradeWatch:
    """Notices that the installed thence is no longer the one that runs."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._started = self._last = self._signature()
        self.is_upgraded = False

    def start(self, on_upgrade: Callable[[], None]) -> None:
        """Check now and then in the event loop that runs; call `on_upgrade` once."""
        import asyncio

        loop = asyncio.get_running_loop()

        def check() -> None:
            self.check()
            if self.is_upgraded:
                on_upgrade()
            else:
                loop.call_later(UPGRADE_CHECK_S, check)

        loop.call_later(UPGRADE_CHECK_S, check)

    def check(self) -> None:
        """Compare the files with those at the start.

        An upgrade counts once two checks saw the same files, so that it is over, and only while
        the launcher starts a program that is there: else the old one goes on.
        """
        before, self._last = self._last, self._signature()
        if before == self._last != self._started:
            self.is_upgraded = launcher.look(self._home).state not in ("none", "dead")

    def _signature(self) -> tuple[object, ...]:
        """Identify the installed package and what the launcher starts."""
        package = launcher_text = None
        with contextlib.suppress(OSError):  # removed, or just being replaced
            stat = PACKAGE.stat()
            package = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        with contextlib.suppress(OSError):
            launcher_text = launcher.path_in(self._home).read_bytes()
        return package, launcher_text


def run_again(home: Path, port: int) -> NoReturn:
    """Replace this process with the server of the thence that is installed now."""
    words = _command(home, port)
    os.execv(words[0], words)  # noqa: S606 - our own launcher
