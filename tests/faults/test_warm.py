"""The warm parent: nothing that it started outlives it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.faults.warm import Warm

PATIENCE = 60.0


def linger(_argument: str) -> None:
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
    until = time.monotonic() + PATIENCE
    while _runs(child.pid) and time.monotonic() < until:
        time.sleep(0.01)

    assert not _runs(child.pid)


def _runs(pid: int) -> bool:
    """Whether it is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
