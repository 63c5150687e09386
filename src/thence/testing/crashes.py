"""Crashes for any store of events.

`CrashSuite` kills, cuts and crowds any store, ours (`JournalSubject`) or another's, and counts
what that cost: what was acknowledged is there once, what was not is there whole or not at all,
and the next append can be read.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import exp, log
from pathlib import Path
from typing import Protocol

import msgspec

from thence.errors import SessionNotFound
from thence.format import codec, layout
from thence.format.records import JSON, Event
from thence.journal import Journal, Session
from thence.journal.log import Durability
from thence.journal.segments import parts_of

SAMPLE_SESSION = "7f3a91c2-55d0-4c1e-9a53-0d6c1f2b7e10"

APART = 1_000_000
"""How far apart the first numbers of two writers are; none writes as many."""

TOGETHER = 4
"""Kills that one store has to live through, one after the other."""

WAIT = 0.001, 0.030
"""Seconds between a writer's first acknowledgement and its death: from, to."""

PATIENCE = 60.0
"""Seconds after which a writer that acknowledges nothing is a broken one."""


class Subject(Protocol):
    """A store of numbered events, as the suite sees it."""

    def write_script(self, path: Path) -> Sequence[str]:
        """Return a program that appends to the store at `path`.

        It is run with two more arguments, the first number and how many, appends those numbers
        one after the other, and prints each on a line of its own, flushed, once the store has
        acknowledged it.
        """

    def read(self, path: Path) -> list[int]:
        """Read the numbers back in order, doubles included. A damaged event has no number."""

    def append_one(self, path: Path, number: int) -> None:
        """Open the store, make it if it is not there, append one event and close."""


class WriterProcess(Protocol):
    """A writer that was started."""

    def kill(self) -> None:
        """End it by SIGKILL."""

    def poll(self) -> int | None:
        """Say how it ended; None when it has not."""

    def wait(self) -> int:
        """Wait for its end and say how it ended."""


class CrashReport(msgspec.Struct):
    """What a store was put through, and what that cost. All but the first figures should be 0."""

    rounds: int = 0
    acknowledged: int = 0
    lost: int = 0
    """Acknowledged and not there."""
    doubled: int = 0
    """There more than once."""
    torn_tails: int = 0
    """Rounds that left half an event at the end: harmless, and a sign that kills hit writes."""
    unreadable_next: int = 0
    """Rounds after which the next append could not be read."""
    strange: int = 0
    """There and never written, or not in the order of its writer."""

    @property
    def violations(self) -> int:
        """How often a promise was broken."""
        return self.lost + self.doubled + self.unreadable_next + self.strange


class CrashSuite:
    """Crashes for any store: a subject, and chance that follows from a seed."""

    def __init__(
        self,
        subject: Subject,
        *,
        seed: int = 0,
        folder: Path | None = None,
        torn: Callable[[Path], bool] | None = None,
        wait: tuple[float, float] = WAIT,
    ) -> None:
        self.subject = subject
        self._wait = wait
        self._chance = random.Random(seed)  # noqa: S311 - moments to kill at, not secrets
        self._folder = folder
        self._torn = torn

    def start(self, path: Path, first: int, count: int, acknowledged: Path) -> WriterProcess:
        """Start a writer that puts what it has acknowledged into a file."""
        script = [*self.subject.write_script(path), str(first), str(count)]
        with acknowledged.open("wb") as out:
            return subprocess.Popen(script, stdout=out)  # noqa: S603 - what the subject gave

    # -- kills --------------------------------------------------------------------------

    def kills(self, rounds: int) -> CrashReport:
        """Kill a writer at a moment of chance, open what it left, append, read; many times."""
        report = CrashReport()
        while report.rounds < rounds:
            with self._store() as path:
                written = _Written()
                for turn in range(min(TOGETHER, rounds - report.rounds)):
                    self._kill_one(path, turn, written, report)
                    report.rounds += 1
        return report

    def _kill_one(self, path: Path, turn: int, written: _Written, report: CrashReport) -> None:
        first = (turn + 1) * APART
        acknowledged = path.with_name("acknowledged")
        writer = self.start(path, first, APART - 1, acknowledged)
        self._kill(writer, acknowledged)
        done = _numbers(acknowledged)
        written.add(first, done)
        report.acknowledged += len(done)
        report.torn_tails += bool(self._torn and self._torn(path))
        self._go_on(path, turn, written, report)

    def _kill(self, writer: WriterProcess, acknowledged: Path) -> None:
        with _end_writers(writer):
            _await_first(writer, acknowledged)
            time.sleep(self._chance.uniform(*self._wait))

    def _go_on(self, path: Path, number: int, written: _Written, report: CrashReport) -> None:
        """Append one more event and look at everything."""
        self.subject.append_one(path, number)
        numbers = self.subject.read(path)
        report.unreadable_next += numbers.count(number) != 1
        written.acknowledged.add(number)
        written.judge(numbers, report)

    # -- writers ------------------------------------------------------------------------

    def writers(self, writers: int, each: int, killed: int) -> CrashReport:
        """Let many processes append to one store at once, and kill some of them."""
        report, written = CrashReport(rounds=1), _Written()
        with self._store() as path:
            self.subject.append_one(path, 0)
            written.acknowledged.add(0)
            files = [path.with_name(f"acknowledged-{turn}") for turn in range(writers)]
            running = [
                self.start(path, (turn + 1) * APART, each, file) for turn, file in enumerate(files)
            ]
            with _end_writers(*running):
                for writer, file in list(zip(running, files, strict=True))[:killed]:
                    self._kill(writer, file)
                for turn, (writer, file) in enumerate(zip(running, files, strict=True)):
                    ended = writer.wait()
                    done = _numbers(file)
                    if turn >= killed and (ended, len(done)) != (0, each):
                        raise RuntimeError(f"writer {turn} ended with {ended} after {len(done)}")
                    written.add((turn + 1) * APART, done)
                    report.acknowledged += len(done)
            report.torn_tails += bool(self._torn and self._torn(path))
            self._go_on(path, 1, written, report)
        return report

    # -- cuts ---------------------------------------------------------------------------

    def cuts(self, path: Path, file: Path, *, every: int = 1) -> CrashReport:
        """Cut the one file of a finished store at every byte, append one, read.

        What is there is always a beginning of what was, and one byte more never gives less: so
        nothing but the event that was cut is missing.
        """
        report = CrashReport()
        data, all_of_it = file.read_bytes(), self.subject.read(path)
        extra = max(all_of_it, default=0) + 1
        before = 0
        for cut in [*range(0, len(data), every), len(data)]:
            file.write_bytes(data[:cut])
            self.subject.append_one(path, extra)
            numbers = self.subject.read(path)
            earlier = [number for number in numbers if number != extra]
            report.rounds += 1
            report.torn_tails += data[cut - 1 : cut] not in (b"\n", b"")
            report.unreadable_next += numbers[-1:] != [extra] or numbers.count(extra) != 1
            report.strange += earlier != all_of_it[: len(earlier)]
            # Of a file without a whole event nothing has to stay: it may be begun again.
            report.strange += bool(earlier) and not file.read_bytes().startswith(data[:cut])
            report.lost += max(before - len(earlier), 0)
            before = len(earlier)
        report.acknowledged = len(all_of_it)
        report.lost += len(all_of_it) - before
        file.write_bytes(data)
        return report

    @contextlib.contextmanager
    def _store(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            yield Path(folder, "store")


@contextlib.contextmanager
def _end_writers(*writers: WriterProcess) -> Iterator[None]:
    """End writers in the end, whatever happens: none goes on in a folder that is gone."""
    try:
        yield
    finally:
        for writer in writers:
            writer.kill()
        for writer in writers:
            writer.wait()


class _Written:
    """What writers have acknowledged, and what they may have written besides."""

    def __init__(self) -> None:
        self.acknowledged: set[int] = set()
        self.begun: set[int] = set()

    def add(self, first: int, done: list[int]) -> None:
        """Take what one writer printed; it may have been at the number after the last."""
        self.acknowledged.update(done)
        self.begun.add(first + len(done))

    def judge(self, numbers: list[int], report: CrashReport) -> None:
        counts = Counter(numbers)
        report.lost += sum(number not in counts for number in self.acknowledged)
        report.doubled += sum(times > 1 for times in counts.values())
        report.strange += len(counts.keys() - self.acknowledged - self.begun)
        last: dict[int, int] = {}
        for number in numbers:
            report.strange += number < last.get(number // APART, 0)
            last[number // APART] = number


def _numbers(file: Path) -> list[int]:
    """What a writer has printed; a last line without LF may be half a number."""
    return [int(line) for line in file.read_bytes().split(b"\n")[:-1]]


def _await_first(writer: WriterProcess, acknowledged: Path) -> None:
    stop = time.monotonic() + PATIENCE
    while not acknowledged.stat().st_size:
        if writer.poll() is not None or time.monotonic() > stop:
            raise RuntimeError("a writer acknowledged nothing")
        time.sleep(0.0005)


class JournalSubject:
    """Our own journal as a subject: one session, events of 100 bytes up to `largest`."""

    def __init__(self, *, largest: int = 400, durability: Durability = "turn") -> None:
        self.largest = largest
        self.durability: Durability = durability

    def write_script(self, path: Path) -> list[str]:
        """Return the program that runs `write`."""
        script = (
            "import sys; from pathlib import Path; from thence.testing import JournalSubject\n"
            "path, largest, durability, first, count = sys.argv[1:]\n"
            "subject = JournalSubject(largest=int(largest), durability=durability)\n"
            "for number in subject.write(Path(path), int(first), int(count)):\n"
            "    sys.stdout.write(f'{number}\\n')\n"
            "    sys.stdout.flush()\n"
        )
        arguments = [str(path), str(self.largest), self.durability]
        return [sys.executable, "-P", "-c", script, *arguments]

    def write(self, path: Path, first: int, count: int) -> Iterator[int]:
        """Append numbers, and give each once it is acknowledged."""
        session = self._open(path)
        for number in range(first, first + count):
            session.record("user", self._payload(number))
            yield number
        session.close()

    def append_one(self, path: Path, number: int) -> None:
        """Go on with the session, or begin it."""
        with self._open(path) as session:
            session.record("user", self._payload(number))

    def read(self, path: Path) -> list[int]:
        """Read all events of all segments, dead branches included; an id counts once."""
        first: dict[str, Event] = {}
        for part in parts_of(self.file(path).parent, SAMPLE_SESSION):
            for event in codec.decode(part.read_bytes()).events:
                first.setdefault(event.uuid, event)
        numbers = [self._number(event) for event in first.values()]
        return [number for number in numbers if number is not None]

    def torn(self, path: Path) -> bool:
        """Whether the session's last segment ends in the middle of a line."""
        with parts_of(self.file(path).parent, SAMPLE_SESSION)[-1].open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read() != b"\n"

    def file(self, path: Path) -> Path:
        """The first segment of the session, the only one while it is small."""
        name = layout.Segment(SAMPLE_SESSION).name
        return path / layout.SESSIONS / layout.project_id("") / name

    def _open(self, path: Path) -> Session:
        journal = Journal(path, durability=self.durability)
        try:
            return journal.resume(SAMPLE_SESSION, mode="continue")
        except SessionNotFound:
            return journal.create(session=SAMPLE_SESSION)

    def _payload(self, number: int) -> JSON:
        return {"role": "user", "content": f"{number} {self._filler(number)}"}

    def _filler(self, number: int) -> str:
        """Text whose length follows from the number; most are short, as in a real session."""
        share = random.Random(number).random() ** 3  # noqa: S311 - sizes, not secrets
        least = min(100, self.largest)
        size = least * exp(share * log(self.largest / least))
        return "abcdefghijklmnopqrstuvwxyz"[number % 26] * int(size)

    def _number(self, event: Event) -> int | None:
        """The number of an event; None for one that is not ours or not whole."""
        content = event.fields.get("content") if event.type == "user" else None
        number = content.partition(" ")[0] if isinstance(content, str) else ""
        if not number.isdecimal() or event.payload != self._payload(int(number)):
            return None
        return int(number)
