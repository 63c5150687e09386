"""T7: a disk that fails a sync and loses what it had, is full half-way, or takes five seconds.

`prove.lossy` is that disk. A writer on it records numbers, each with a sync of its own; when a
record fails it tries once more under the same id, as a harness does. Then the power is cut, and
what was acknowledged must be there, once, and the next event must be readable.
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
from prove.trial import Outcome, Part, Trial, shares
from tests.faults.warm import end_with_parent
from thence.errors import ThenceError
from thence.journal import Journal
from thence.testing import SAMPLE_SESSION, JournalSubject

EVENTS = 30
LARGEST = 3000
PATIENCE = 120.0


class Trying(JournalSubject):
    """Our journal, used by a harness that tries a failed record once more."""

    def tried(self, path: Path, heal: Path) -> Iterator[int]:
        """Record numbers, and give each once it is acknowledged."""
        session = Journal(path, durability="event").create(session=SAMPLE_SESSION)
        for number in range(1, EVENTS + 1):
            uuid = str(uuid5(NAMESPACE_URL, f"{path}/{number}"))
            try:
                session.record("user", self._payload(number), uuid=uuid)
            except ThenceError:
                os.setxattr(heal, "user.fault", b"none")
                session.record("user", self._payload(number), uuid=uuid)
            yield number


def _faults(what: str, chance: random.Random) -> bytes:
    """Choose where the fault strikes."""
    if what == "sync":
        return b"sync:%d" % chance.randint(1, EVENTS)
    if what == "full":
        return b"full:%d" % chance.randint(300, EVENTS * 300)
    if what == "slow":
        return b"slow:%d:%d" % (chance.randint(1, EVENTS), chance.choice((200, 1000, 5000)))
    return b"none"


@contextlib.contextmanager
def _mounted(at: Path) -> Iterator[Path]:
    at.mkdir()
    disk = subprocess.Popen([sys.executable, "-m", "prove.lossy", str(at)], cwd=ROOT)
    try:
        stop = time.monotonic() + PATIENCE
        while not at.is_mount():
            if disk.poll() is not None or time.monotonic() > stop:
                raise RuntimeError("the disk could not be mounted")
            time.sleep(0.01)
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=False)
        disk.kill()
        disk.wait()


def _one(disk: Path, store: Path, fault: bytes, cut: int) -> tuple[list[str], int, int]:
    """Write with one fault, cut the power after some events; what broke, what was promised."""
    subject = Trying(largest=LARGEST, durability="event")
    os.setxattr(disk, "user.fault", fault)
    acknowledged: list[int] = []
    problems: list[str] = []
    try:
        for number in subject.tried(store, disk):
            acknowledged.append(number)
            if number == cut:
                break
    except ThenceError as error:
        problems += [f"a record fails twice: {error.message}"] if acknowledged else []
    struck = int(os.getxattr(disk, "user.injected"))
    os.setxattr(disk, "user.fault", b"none")
    os.setxattr(disk, "user.lose", b"")
    found = subject.read(store) if subject.file(store).exists() else []
    if lost := set(acknowledged) - set(found):
        problems.append(f"{len(lost)} of {len(acknowledged)} acknowledged are lost")
    if len(found) != len(set(found)):
        problems.append("an event is there twice")
    subject.append_one(store, 0)
    if subject.read(store) != [*found, 0]:
        problems.append("the next event cannot be read, or others no longer")
    return problems, len(acknowledged), struck


def faulted(folder: Path, what: str, seed: int, rounds: int) -> Outcome:
    """Mount the disk and run many stories on it."""
    out = Outcome(seen={"acknowledged": 0, "struck": 0})
    chance = random.Random(seed)
    with _mounted(folder / "disk") as disk:
        for turn in range(rounds):
            fault = _faults(what, chance)
            cut = chance.randint(1, EVENTS) if what == "lost" else EVENTS
            problems, acknowledged, struck = _one(disk, disk / f"store-{turn}", fault, cut)
            out.done += 1
            out.seen["acknowledged"] += acknowledged
            out.seen["struck"] += struck > 0
            out.violations += [f"{what}, seed {seed}, story {turn}: {one}" for one in problems]
    return out


def _run(part: Part, folder: Path) -> Outcome:
    asked = [sys.executable, "-m", "prove.fuse", str(folder), part.what]
    done = subprocess.run(
        [*asked, str(part.seed), str(part.size)], cwd=ROOT, capture_output=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace")[-600:])
    return msgspec.json.decode(done.stdout, type=Outcome)


def _missing() -> str | None:
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        return "needs root and /dev/fuse"
    if importlib.util.find_spec("fuse") is None:
        return "needs fusepy (scripts/provers)"
    return None if ctypes.util.find_library("fuse") else "needs libfuse2"


def _parts(scale: float) -> list[Part]:
    return [
        part for what in ("sync", "lost", "full", "slow") for part in shares(what, 50, 25, scale)
    ]


TRIALS = (
    Trial(
        "T7", "disks that lie, lose, fill up and stall", "stories", "200", _parts, _run, _missing
    ),
)

if __name__ == "__main__":
    end_with_parent()
    where, kind, first, count = sys.argv[1:]
    private_mounts()
    print(msgspec.json.encode(faulted(Path(where), kind, int(first), int(count))).decode())
