"""T7: a disk that fails a sync and loses its data, runs full, or blocks for five seconds.

`prove.lossy` is that disk. A writer records numbers on it, each with a sync of its own, and
retries a failed record once under the same id, as a harness does. Then the power is cut. Every
acknowledged number must be there exactly once, and the next event must be readable.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import importlib.util
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import msgspec

from prove.power import private_mounts
from prove.state import ROOT
from prove.trial import JOURNAL_CODE, Outcome, Part, Trial, split_rounds
from tests.faults.warm import end_with_parent
from thence.errors import ThenceError
from thence.journal import Journal
from thence.testing.crashes import SAMPLE_SESSION, JournalSubject

EVENT_COUNT = 30
MAX_PAYLOAD_BYTES = 3000
MOUNT_TIMEOUT_S = 120.0


class RetryingSubject(JournalSubject):
    """Our journal, used by a harness that retries a failed record once."""

    def write_with_retry(self, path: Path, heal: Path) -> Iterator[int]:
        """Record numbers, and yield each once it is acknowledged; the retry has the same id."""
        session = Journal(path, durability="event").create(session=SAMPLE_SESSION)
        for number in range(1, EVENT_COUNT + 1):
            uuid = str(uuid5(NAMESPACE_URL, f"{path}/{number}"))
            try:
                session.record("user", self._payload(number), uuid=uuid)
            except ThenceError:
                os.setxattr(heal, "user.fault", b"none")
                session.record("user", self._payload(number), uuid=uuid)
            yield number


def _choose_fault(kind: str, rng: random.Random) -> bytes:
    """Return the fault to set, at a random place."""
    if kind == "sync":
        return b"sync:%d" % rng.randint(1, EVENT_COUNT)
    if kind == "full":
        return b"full:%d" % rng.randint(300, EVENT_COUNT * 300)
    if kind == "slow":
        return b"slow:%d:%d" % (rng.randint(1, EVENT_COUNT), rng.choice((200, 1000, 5000)))
    return b"none"


@contextlib.contextmanager
def _mount_disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    disk = subprocess.Popen([sys.executable, "-m", "prove.lossy", str(folder)], cwd=ROOT)
    try:
        deadline = time.monotonic() + MOUNT_TIMEOUT_S
        while not folder.is_mount():
            if disk.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the disk could not be mounted")
            time.sleep(0.01)
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)
        disk.kill()
        disk.wait()


def _run_story(disk: Path, store: Path, fault: bytes, cut: int) -> tuple[list[str], int, int]:
    """Write with one fault, then cut the power.

    Returns the violations, how many events were acknowledged, and how often the fault struck.
    """
    subject = RetryingSubject(largest=MAX_PAYLOAD_BYTES, durability="event")
    os.setxattr(disk, "user.fault", fault)
    acknowledged: list[int] = []
    problems: list[str] = []
    try:
        for number in subject.write_with_retry(store, disk):
            acknowledged.append(number)
            if number == cut:
                break
    except ThenceError as error:
        problems += [f"a record fails twice: {error.message}"] if acknowledged else []
    struck = int(os.getxattr(disk, "user.injected"))
    os.setxattr(disk, "user.fault", b"none")
    os.setxattr(disk, "user.lose", b"")
    numbers = subject.read(store) if subject.file(store).exists() else []
    if missing := set(acknowledged) - set(numbers):
        problems.append(f"{len(missing)} of {len(acknowledged)} acknowledged are lost")
    if len(numbers) != len(set(numbers)):
        problems.append("an event is there twice")
    subject.append_one(store, 0)
    if subject.read(store) != [*numbers, 0]:
        problems.append("the next event cannot be read, or others no longer")
    return problems, len(acknowledged), struck


def run_stories(folder: Path, kind: str, seed: int, rounds: int) -> Outcome:
    """Mount the disk, run stories on it, and return what they came to."""
    outcome = Outcome(counts={"acknowledged": 0, "struck": 0})
    rng = random.Random(seed)
    with _mount_disk(folder / "disk") as disk:
        for number in range(rounds):
            fault = _choose_fault(kind, rng)
            cut = rng.randint(1, EVENT_COUNT) if kind == "lost" else EVENT_COUNT
            problems, acknowledged, struck = _run_story(disk, disk / f"store-{number}", fault, cut)
            outcome.done += 1
            outcome.counts["acknowledged"] += acknowledged
            outcome.counts["struck"] += struck > 0
            outcome.violations += [
                f"{kind}, seed {seed}, story {number}: {problem}" for problem in problems
            ]
    return outcome


def _run(part: Part, folder: Path) -> Outcome:
    command = [sys.executable, "-m", "prove.fuse", str(folder), part.what]
    process = subprocess.run(
        [*command, str(part.seed), str(part.size)], cwd=ROOT, capture_output=True, check=False
    )
    if process.returncode:
        raise RuntimeError(process.stderr.decode(errors="replace")[-600:])
    return msgspec.json.decode(process.stdout, type=Outcome)


def _why_unavailable() -> str | None:
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        return "needs root and /dev/fuse"
    if importlib.util.find_spec("fuse") is None:
        return "needs fusepy (scripts/provers)"
    return None if ctypes.util.find_library("fuse") else "needs libfuse2"


def _parts(scale: float) -> list[Part]:
    return [
        part
        for what in ("sync", "lost", "full", "slow")
        for part in split_rounds(what, 50, 25, scale)
    ]


TRIALS = (
    Trial(
        "T7",
        "disks that lie, lose, fill up and stall",
        "stories",
        "200",
        _parts,
        _run,
        _why_unavailable,
        code=JOURNAL_CODE,
    ),
)

if __name__ == "__main__":
    end_with_parent()
    where, kind, first, count = sys.argv[1:]
    private_mounts()
    print(msgspec.json.encode(run_stories(Path(where), kind, int(first), int(count))).decode())
