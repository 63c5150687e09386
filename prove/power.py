"""T6: the power goes while a session is written, on ext4 and on XFS, and comes back.

The disk of the writer is an image on Btrfs. A clone of the image, taken while the writer runs, is
the disk as a power cut leaves it: everything the file system has handed to the device is there,
nothing that was in its memory. The clone is mounted (its journal is replayed), and all that was
acknowledged before the clone was begun must be in it; then the session goes on there.

All mounts live in a namespace of this process and go with it, be it killed.
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
from prove.trial import Outcome, Part, Trial, shares
from tests.faults.warm import end_with_parent
from thence.journal.log import Durability
from thence.testing import JournalSubject

FICLONE = 0x40049409
CLONE_NEWNS = 0x00020000
DISKS = {"ext4": ("64M", ["mkfs.ext4", "-q"]), "xfs": ("300M", ["mkfs.xfs", "-q"])}
OUTSIDE = "4G"
CUTS_PER_WRITER = 5
PATIENCE = 60.0


class Turns(JournalSubject):
    """Our journal; with `turn`, what a flush returned for is what counts as acknowledged."""

    def write(self, path: Path, first: int, count: int) -> Iterator[int]:
        """Append numbers, and give each once it is promised to be on the disk."""
        session = self._open(path)
        due: list[int] = []
        for number in range(first, first + count):
            session.record("user", self._payload(number))
            due.append(number)
            if self.durability == "event" or len(due) == 7:
                session.flush()
                yield from due
                due.clear()
        session.close()


def write(path: str, acknowledged: str, durability: str) -> None:
    """Be the writer: until killed."""
    out = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    subject = Turns(largest=4000, durability=cast("Durability", durability))
    for number in subject.write(Path(path), 1, 10**6):
        os.write(out, b"%d\n" % number)


# -- disks ----------------------------------------------------------------------------------


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


@contextlib.contextmanager
def _disk(image: Path, at: Path, *options: str) -> Iterator[Path]:
    at.mkdir(exist_ok=True)
    _run("mount", "-o", ",".join(("loop", *options)), str(image), str(at))
    try:
        yield at
    finally:
        _run("umount", str(at))


def _image(path: Path, size: str, *make: str) -> Path:
    _run("truncate", "-s", size, str(path))
    _run(*make, str(path))
    return path


def _clone(image: Path, to: Path) -> None:
    with image.open("rb") as source, to.open("wb") as target:
        fcntl.ioctl(target.fileno(), FICLONE, source.fileno())


# -- cuts -----------------------------------------------------------------------------------


def _acknowledged(file: Path) -> int:
    """How many were acknowledged: they are numbered from 1."""
    return file.read_bytes().count(b"\n") if file.exists() else 0


def _left(disk: Path, store: str, before: int, after: int, durability: Durability) -> list[str]:
    """Say what of the promises is not kept by the disk of a clone."""
    subject = Turns(largest=4000, durability=durability)
    path = disk / store
    found = subject.read(path) if subject.file(path).exists() else []
    most = after + (1 if durability == "event" else 7)
    problems = []
    if lost := set(range(1, before + 1)) - set(found):
        problems.append(f"{len(lost)} of {before} acknowledged are lost, first {min(lost)}")
    if len(found) != len(set(found)):
        problems.append("an event is there twice")
    if strange := [number for number in found if number > most + 1]:
        problems.append(f"{strange[0]} was never written")
    subject.append_one(path, 0)
    if subject.read(path) != [*found, 0]:
        problems.append("the next event cannot be read, or others no longer")
    return problems


class Cuts(msgspec.Struct):
    """One kind of disk and one promise, cut from the power many times."""

    folder: Path
    kind: str
    durability: Durability
    chance: random.Random

    def run(self, rounds: int) -> Outcome:
        """Make the disks, and cut."""
        out = Outcome(seen={"acknowledged": 0})
        outside = _image(self.folder / "outside", OUTSIDE, "mkfs.btrfs", "-q", "-f")
        with _disk(outside, self.folder / "btrfs") as btrfs:
            size, make = DISKS[self.kind]
            image = _image(btrfs / "disk", size, *make)
            with _disk(image, self.folder / "live") as live:
                while out.done < rounds:
                    self._writer(live, image, min(CUTS_PER_WRITER, rounds - out.done), out)
        return out

    def _writer(self, live: Path, image: Path, cuts: int, out: Outcome) -> None:
        store = f"store-{out.done}"
        acknowledged = self.folder / "acknowledged"
        acknowledged.unlink(missing_ok=True)
        given = [str(live / store), str(acknowledged), self.durability]
        asked = [sys.executable, "-m", "prove.power", "write", *given]
        writer = subprocess.Popen(asked, cwd=ROOT, preexec_fn=end_with_parent)  # noqa: PLW1509 - one thread
        try:
            stop = time.monotonic() + PATIENCE
            while not _acknowledged(acknowledged):
                if writer.poll() is not None or time.monotonic() > stop:
                    raise RuntimeError("the writer acknowledged nothing")
                time.sleep(0.002)
            for _ in range(cuts):
                time.sleep(self.chance.uniform(0.0, 0.25))
                self._cut(image, store, acknowledged, out)
        finally:
            writer.kill()
            writer.wait()
        shutil.rmtree(live / store)

    def _cut(self, image: Path, store: str, acknowledged: Path, out: Outcome) -> None:
        clone = image.with_name("clone")
        before = _acknowledged(acknowledged)
        _clone(image, clone)
        after = _acknowledged(acknowledged)
        options = ("nouuid",) if self.kind == "xfs" else ()
        with _disk(clone, self.folder / "after", *options) as disk:
            problems = _left(disk, store, before, after, self.durability)
        clone.unlink()
        out.done += 1
        out.seen["acknowledged"] += before
        out.violations += [f"cut {out.done}: {problem}" for problem in problems]


def _run_part(part: Part, folder: Path) -> Outcome:
    """Run it in a process of its own, whose mounts nobody else sees."""
    asked = [sys.executable, "-m", "prove.power", "cuts", str(folder), part.what]
    done = subprocess.run(
        [*asked, str(part.seed), str(part.size)],
        cwd=ROOT,
        capture_output=True,
        check=False,
        preexec_fn=end_with_parent,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace")[-600:])
    out = msgspec.json.decode(done.stdout, type=Outcome)
    out.violations = [f"{part.what}, seed {part.seed}, {one}" for one in out.violations]
    return out


def private_mounts() -> None:
    """What is mounted from here on is this process's own, and its children's."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "may not have mounts of its own")
    _run("mount", "--make-rprivate", "/")


def _missing() -> str | None:
    if os.geteuid() != 0 or not Path("/dev/loop-control").exists():
        return "needs root and loop devices"
    absent = [tool for tool in ("mkfs.btrfs", "mkfs.ext4", "mkfs.xfs") if not shutil.which(tool)]
    return f"needs {', '.join(absent)}" if absent else None


def _parts(scale: float) -> list[Part]:
    return [
        part
        for kind in DISKS
        for durability in ("event", "turn")
        for part in shares(f"{kind} {durability}", 500, 50, scale)
    ]


TRIALS = (
    Trial(
        "T6",
        "power cuts, ext4 and XFS",
        "cuts",
        "500 for each disk and promise",
        _parts,
        _run_part,
        _missing,
    ),
)

if __name__ == "__main__":
    verb, *said = sys.argv[1:]
    if verb == "write":
        write(*said)
    else:
        where, what, seed, size = said
        disk, promise = what.split()
        private_mounts()
        cuts_of = Cuts(Path(where), disk, cast("Durability", promise), random.Random(int(seed)))
        print(msgspec.json.encode(cuts_of.run(int(size))).decode())
