"""The crash suite on our own journal, its writers forked from a warm parent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

from tests.faults.warm import Child, Warm
from thence.journal.log import Durability
from thence.testing.crashes import CrashSuite, JournalSubject

MEMORY_FOLDER = Path("/dev/shm")
"""A folder in memory, where there is one: what a kill leaves does not depend on the disk."""

WAIT_S = 0.0005, 0.012
"""Shorter than for a writer that has to be started: what it writes has to be read, too."""


class UncleanSubject(JournalSubject):
    """Our journal without the events of closing, which are not tested here."""

    def append_one(self, path: Path, number: int) -> None:
        """Continue the session, append, and release the file."""
        session = self._open(path)
        session.record("user", self._payload(number))
        if session._run is not None:
            session._run.close()


class WarmSuite(CrashSuite):
    """The suite, with writers that start in a few milliseconds."""

    def __init__(self, warm: Warm, subject: JournalSubject, folder: Path, seed: int) -> None:
        super().__init__(subject, seed=seed, folder=folder, torn=subject.torn, wait=WAIT_S)
        self._journal = subject
        self._warm = warm

    def start(self, path: Path, first: int, count: int, acknowledged: Path) -> Child:
        """Fork a writer."""
        acknowledged.write_bytes(b"")
        subject = self._journal
        files = str(path), str(acknowledged)
        return self._warm.start(write, *files, first, count, subject.largest, subject.durability)


def write(path: str, acknowledged: str, *options: int | str) -> None:
    """Write numbers, and log the acknowledged ones."""
    first, count, largest, durability = options
    subject = JournalSubject(largest=int(largest), durability=cast("Durability", durability))
    descriptor = os.open(acknowledged, os.O_WRONLY | os.O_APPEND)
    for number in subject.write(Path(path), int(first), int(count)):
        os.write(descriptor, b"%d\n" % number)
