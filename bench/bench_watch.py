"""`thence sweep --watch` while 50 sessions grow by 20 lines a second each, for a minute.

Measured once with new sessions, and once with some that have 72,000 lines already
(`THENCE_WATCH_LONG` of them, each of `THENCE_WATCH_LINES`): a line of a long session must not cost
more. Five are long by default, because importing fifty first takes ten minutes. Their lag is
reported beside that of all; only the tables hold fewer rows than with fifty.

Every line must be stored. The figures are the share of one core, also while nothing is written,
peak memory, and the lag: the age of the oldest line that is not stored yet, over all files,
sampled four times a second. `THENCE_WATCH_SECONDS` makes the run shorter.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.measure import verdict
from thence.format.records import time_text
from thence.memory.sqlite import Sqlite
from thence.memory.store import Filter

FILE_COUNT = 50
LINES_PER_S = 20
DURATION_S = float(os.environ.get("THENCE_WATCH_SECONDS", "60"))
LONG_COUNT = int(os.environ.get("THENCE_WATCH_LONG", "5"))
LONG_LINES = int(os.environ.get("THENCE_WATCH_LINES", "72000"))
IDLE_S = 5.0
"""How long it watches before the first line is written."""
MAX_WAIT_S = 120.0
"""How long nothing more may be stored before lines that are missing count as lost."""


class GrowingSession:
    """One session of Claude Code that grows line by line."""

    def __init__(self, folder: Path, number: int) -> None:
        self.name = str(uuid.UUID(int=number + 1, version=4))
        self.before = 0
        """Lines that it had before it is watched."""
        self.written: list[float] = []
        """When each line since then was written."""
        self._file = (folder / f"{self.name}.jsonl").open("a", encoding="utf-8")
        self._last: str | None = None

    def write(self, number: int, *, flush: bool = True) -> None:
        """Append one line."""
        own = str(uuid.uuid4())
        record = {
            "parentUuid": self._last,
            "isSidechain": False,
            "type": "user",
            "message": {"role": "user", "content": f"line {number} of {self.name}"},
            "uuid": own,
            "timestamp": time_text(time.time()),
            "sessionId": self.name,
            "cwd": "/home/dev/tidepool",
            "version": "2.1.0",
        }
        self._file.write(json.dumps(record) + "\n")
        if flush:
            self._file.flush()
        self._last = own

    def begin(self, lines: int) -> None:
        """Write the lines that it has before it is watched."""
        for number in range(lines):
            self.write(number, flush=number == lines - 1)
        self.before = lines

    def lag_s(self, stored: int, now: float) -> float:
        """Return the age of its oldest line that is not stored, in seconds."""
        number = stored - self.before
        return now - self.written[number] if number < len(self.written) else 0.0


class WatchResult(NamedTuple):
    """The figures of one run."""

    lines: int
    stored: int
    idle: float
    busy: float
    lags: list[float]
    """The longest of all files, at each sample."""
    long_lags: list[float]
    """The longest of those that were long before."""
    memory: int
    behind_s: float
    """Seconds from the last line that was written to the last that was stored."""


def count_events(store: Sqlite) -> dict[str, int]:
    """Count the events of each session."""
    return {row.session.native_session_id: row.events for row in store.sessions()}


def cpu_seconds(process: int) -> float:
    """Return the CPU seconds of a process and of its children that ended."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def peak_memory(process: int) -> int:
    """Return the peak memory of a process so far, in bytes."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def write_lines(
    sessions: Sequence[GrowingSession], store: Sqlite
) -> tuple[list[float], list[float]]:
    """Write to all sessions; return the lags sampled, of all files and of the long ones."""
    lags: list[float] = []
    long_lags: list[float] = []
    start = sampled_at = time.monotonic()
    for number in range(round(DURATION_S * LINES_PER_S)):
        for session in sessions:
            session.write(number)
            session.written.append(time.monotonic())
        if time.monotonic() - sampled_at >= 0.25:
            events, sampled_at = count_events(store), time.monotonic()
            each = {
                session: session.lag_s(events.get(session.name, 0), sampled_at)
                for session in sessions
            }
            lags.append(max(each.values()))
            long_lags.append(
                max((each[session] for session in sessions if session.before), default=0.0)
            )
        time.sleep(max(start + (number + 1) / LINES_PER_S - time.monotonic(), 0))
    return lags, long_lags


def _is_digested(store: Sqlite) -> bool:
    return next(store.sessions(Filter(analysed=False, limit=1)), None) is None


def measure_watch(home: Path, long: int) -> WatchResult:
    """Watch 50 sessions of which some are long already, and return the figures."""
    folder = home / ".claude" / "projects" / "-home-dev-tidepool"
    folder.mkdir(parents=True)
    sessions = [GrowingSession(folder, number) for number in range(FILE_COUNT)]
    for session in sessions[:long]:
        session.begin(LONG_LINES)
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}
    entry = "from thence.cli import main; main()"
    if long:  # by a process of its own, whose memory is not that of watching
        subprocess.run(
            [sys.executable, "-c", entry, "sweep"], env=env, check=True, stdout=subprocess.DEVNULL
        )
    command = [sys.executable, "-c", entry, "sweep", "--watch"]
    with (
        subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) as watcher,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(watcher.send_signal, signal.SIGINT)
        path = home / ".thence" / "memory" / "thence.db"
        while not path.exists():
            time.sleep(0.1)
        store = Sqlite(str(path))
        time.sleep(IDLE_S / 2)
        while not _is_digested(store):
            time.sleep(1.0)
        before = cpu_seconds(watcher.pid)
        time.sleep(IDLE_S)
        idle = (cpu_seconds(watcher.pid) - before) / IDLE_S
        before = cpu_seconds(watcher.pid)
        lags, long_lags = write_lines(sessions, store)
        busy = (cpu_seconds(watcher.pid) - before) / DURATION_S
        lines = sum(len(session.written) for session in sessions)
        stored, behind_s = wait_for_lines(store, lines + long * LONG_LINES)
        store.close()
        peak = peak_memory(watcher.pid)
    return WatchResult(
        lines, stored - long * LONG_LINES, idle, busy, lags, long_lags, peak, behind_s
    )


def wait_for_lines(store: Sqlite, lines: int) -> tuple[int, float]:
    """Wait until lines are stored, as long as it goes on; return how many, and the seconds."""
    began = changed_at = time.monotonic()
    stored = -1
    while stored < lines and time.monotonic() - changed_at < MAX_WAIT_S:
        before, stored = stored, sum(count_events(store).values())
        if stored != before:
            changed_at = time.monotonic()
        if stored < lines:
            time.sleep(0.25)
    return stored, changed_at - began


def _p99(lags: Sequence[float]) -> float:
    return sorted(lags)[int(0.99 * len(lags))]


def main() -> int:
    """Measure and print; return how many budgets were missed."""
    missed = 0
    for long in (0, LONG_COUNT) if LONG_COUNT else (0,):
        with tempfile.TemporaryDirectory() as name:
            result = measure_watch(Path(name), long)
        p99 = _p99(result.lags)
        which = f"{long} of them with {LONG_LINES:,} lines" if long else "all new"
        print(
            f"watch: {FILE_COUNT} files, {which}, {LINES_PER_S} lines/s each, {DURATION_S:g} s:"
            f" {result.lines:,} lines;"
            f" idle {result.idle:.1%} of a core, busy {result.busy:.0%},"
            f" {result.memory / 1e6:.0f} MB;"
            f" lag p50 {statistics.median(result.lags):.2f} s, p99 {p99:.2f} s"
            + (f", of the long ones p99 {_p99(result.long_lags):.2f} s" if long else "")
        )
        suffix = f", {long} sessions of {LONG_LINES:,} lines" if long else ""
        missed += verdict(
            f"lines written per line stored{suffix}", result.lines / max(result.stored, 1), 1
        )
        missed += verdict(f"p99 of the lag / 1 s{suffix}", p99, 1)
        missed += verdict(f"share of a core while files grow / half{suffix}", result.busy / 0.5, 1)
    return missed
