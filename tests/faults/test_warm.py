"""The warm parent: nothing that it started outlives it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.faults.warm import Warm

TIMEOUT_S = 60.0


def linger(_unused: str) -> None:
    """Go on for ever. Runs in a child."""
    while True:
        time.sleep(0.05)


def test_a_writer_ends_with_the_test_that_started_it() -> None:
    """A test that is killed leaves no process behind that fills the disk."""
    warm = Warm("tests.faults.test_warm")
    child = warm.start(linger, "")
    os.kill(child.pid, 0)
    warm._process.kill()
    warm.__exit__(None, None, None)
    deadline = time.monotonic() + TIMEOUT_S
    while _is_running(child.pid) and time.monotonic() < deadline:
        time.sleep(0.01)

    assert not _is_running(child.pid)


def _is_running(pid: int) -> bool:
    """Whether it is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
