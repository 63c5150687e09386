"""T6: power cuts while a session is written, on ext4 and on XFS.

The writer's disk is an image on Btrfs. A clone of the image, taken while the writer runs, is the
disk as a power cut leaves it: it has everything that the file system has passed to the device, and
nothing that was only in memory. The clone is mounted, which replays its journal. Everything that
was acknowledged before the clone was started must be there; then the session continues on it.

All mounts are in a namespace of this process, and disappear with it, also when it is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgspec

from prove.state import ROOT
from prove.trial import JOURNAL_CODE, Outcome, Part, Trial, split_rounds
from tests.faults.warm import end_with_parent
from thence.journal.log import Durability
from thence.testing.crashes import JournalSubject

FICLONE = 0x40049409
CLONE_NEWNS = 0x00020000
DISK_FORMATS = {"ext4": ("64M", ["mkfs.ext4", "-q"]), "xfs": ("300M", ["mkfs.xfs", "-q"])}
HOST_IMAGE_SIZE = "4G"
CUTS_PER_WRITER = 5
WRITER_TIMEOUT_S = 60.0


class FlushingSubject(JournalSubject):
    """Our journal; with `turn` durability an event is acknowledged once a flush has returned."""

    def write(self, path: Path, first: int, count: int) -> Iterator[int]:
        """Append numbers, and yield each once it is guaranteed to be on the disk."""
        session = self._open(path)
        unflushed: list[int] = []
        for number in range(first, first + count):
            session.record("user", self._payload(number))
            unflushed.append(number)
            if self.durability == "event" or len(unflushed) == 7:
                session.flush()
                yield from unflushed
                unflushed.clear()
        session.close()


def write(path: str, acknowledged: str, durability: str) -> None:
    """Write until killed, and log the acknowledged numbers to a file."""
    descriptor = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    subject = FlushingSubject(largest=4000, durability=cast("Durability", durability))
    for number in subject.write(Path(path), 1, 10**6):
        os.write(descriptor, b"%d\n" % number)


# -- disks ----------------------------------------------------------------------------------


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


@contextlib.contextmanager
def _mount_image(image: Path, folder: Path, *options: str) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    _run("mount", "-o", ",".join(("loop", *options)), str(image), str(folder))
    try:
        yield folder
    finally:
        _run("umount", str(folder))


def _make_image(path: Path, size: str, *command: str) -> Path:
    _run("truncate", "-s", size, str(path))
    _run(*command, str(path))
    return path


def _clone_image(image: Path, to: Path) -> None:
    with image.open("rb") as source, to.open("wb") as target:
        fcntl.ioctl(target.fileno(), FICLONE, source.fileno())


# -- cuts -----------------------------------------------------------------------------------


def _count_acknowledged(file: Path) -> int:
    """Return how many were acknowledged; they are numbered from 1."""
    return file.read_bytes().count(b"\n") if file.exists() else 0


def _find_problems(
    disk: Path, store: str, before: int, after: int, durability: Durability
) -> list[str]:
    """Return the promises that the disk of a clone violates."""
    subject = FlushingSubject(largest=4000, durability=durability)
    path = disk / store
    numbers = subject.read(path) if subject.file(path).exists() else []
    last_possible = after + (1 if durability == "event" else 7)
    problems = []
    if missing := set(range(1, before + 1)) - set(numbers):
        problems.append(f"{len(missing)} of {before} acknowledged are lost, first {min(missing)}")
    if len(numbers) != len(set(numbers)):
        problems.append("an event is there twice")
    if unexpected := [number for number in numbers if number > last_possible + 1]:
        problems.append(f"{unexpected[0]} was never written")
    subject.append_one(path, 0)
    if subject.read(path) != [*numbers, 0]:
        problems.append("the next event cannot be read, or others no longer")
    return problems


class PowerCuts(msgspec.Struct):
    """Power cuts for one kind of disk and one durability."""

    folder: Path
    kind: str
    durability: Durability
    rng: random.Random

    def run(self, rounds: int) -> Outcome:
        """Create the disks, cut the power, and return what was found."""
        outcome = Outcome(counts={"acknowledged": 0})
        host = _make_image(self.folder / "outside", HOST_IMAGE_SIZE, "mkfs.btrfs", "-q", "-f")
        with _mount_image(host, self.folder / "btrfs") as btrfs:
            size, command = DISK_FORMATS[self.kind]
            image = _make_image(btrfs / "disk", size, *command)
            with _mount_image(image, self.folder / "live") as live:
                while outcome.done < rounds:
                    self._run_writer(
                        live, image, min(CUTS_PER_WRITER, rounds - outcome.done), outcome
                    )
        return outcome

    def _run_writer(self, live: Path, image: Path, cuts: int, outcome: Outcome) -> None:
        store = f"store-{outcome.done}"
        acknowledged = self.folder / "acknowledged"
        acknowledged.unlink(missing_ok=True)
        arguments = [str(live / store), str(acknowledged), self.durability]
        command = [sys.executable, "-m", "prove.power", "write", *arguments]
        writer = subprocess.Popen(command, cwd=ROOT, preexec_fn=end_with_parent)  # noqa: PLW1509 - one thread
        try:
            deadline = time.monotonic() + WRITER_TIMEOUT_S
            while not _count_acknowledged(acknowledged):
                if writer.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the writer acknowledged nothing")
                time.sleep(0.002)
            for _ in range(cuts):
                time.sleep(self.rng.uniform(0.0, 0.25))
                self._cut(image, store, acknowledged, outcome)
        finally:
            writer.kill()
            writer.wait()
        shutil.rmtree(live / store)

    def _cut(self, image: Path, store: str, acknowledged: Path, outcome: Outcome) -> None:
        clone = image.with_name("clone")
        before = _count_acknowledged(acknowledged)
        _clone_image(image, clone)
        after = _count_acknowledged(acknowledged)
        options = ("nouuid",) if self.kind == "xfs" else ()
        with _mount_image(clone, self.folder / "after", *options) as disk:
            problems = _find_problems(disk, store, before, after, self.durability)
        clone.unlink()
        outcome.done += 1
        outcome.counts["acknowledged"] += before
        outcome.violations += [f"cut {outcome.done}: {problem}" for problem in problems]


def _run_part(part: Part, folder: Path) -> Outcome:
    """Run a part in a process of its own, whose mounts no other process sees."""
    command = [sys.executable, "-m", "prove.power", "cuts", str(folder), part.what]
    process = subprocess.run(
        [*command, str(part.seed), str(part.size)],
        cwd=ROOT,
        capture_output=True,
        check=False,
        preexec_fn=end_with_parent,
    )
    if process.returncode:
        raise RuntimeError(process.stderr.decode(errors="replace")[-600:])
    outcome = msgspec.json.decode(process.stdout, type=Outcome)
    outcome.violations = [
        f"{part.what}, seed {part.seed}, {violation}" for violation in outcome.violations
    ]
    return outcome


def private_mounts() -> None:
    """Move this process to a mount namespace of its own, which its children share."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "cannot create a mount namespace")
    _run("mount", "--make-rprivate", "/")


def _why_unavailable() -> str | None:
    if os.geteuid() != 0 or not Path("/dev/loop-control").exists():
        return "needs root and loop devices"
    absent = [tool for tool in ("mkfs.btrfs", "mkfs.ext4", "mkfs.xfs") if not shutil.which(tool)]
    return f"needs {', '.join(absent)}" if absent else None


def _parts(scale: float) -> list[Part]:
    return [
        part
        for kind in DISK_FORMATS
        for durability in ("event", "turn")
        for part in split_rounds(f"{kind} {durability}", 500, 50, scale)
    ]


TRIALS = (
    Trial(
        "T6",
        "power cuts, ext4 and XFS",
        "cuts",
        "500 for each disk and promise",
        _parts,
        _run_part,
        _why_unavailable,
        code=JOURNAL_CODE,
    ),
)

if __name__ == "__main__":
    verb, *arguments = sys.argv[1:]
    if verb == "write":
        write(*arguments)
    else:
        where, what, seed, size = arguments
        disk, promise = what.split()
        private_mounts()
        cuts = PowerCuts(Path(where), disk, cast("Durability", promise), random.Random(int(seed)))
        print(msgspec.json.encode(cuts.run(int(size))).decode())
