"""`thence sweep --watch` beside agents that write: 50 files, 20 lines a second each, for a minute.

Once with files that are new, and once with some that have 72,000 lines already
(`THENCE_WATCH_LONG` of them, each of `THENCE_WATCH_LINES`): a line of a long session must not cost
more. Five are long unless told otherwise: to read fifty of them first takes ten minutes. What is
measured is the same, except that the tables hold fewer rows; the lag of the long ones is told
beside that of all.

Every line must be kept. Told are the share of one core that watching took, also when nothing is
written, its memory, and the lag: how long the oldest line had waited that was not kept yet, over
all files, looked at four times a second. `THENCE_WATCH_SECONDS` makes it shorter.
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

FILES = 50
RATE = 20
SECONDS = float(os.environ.get("THENCE_WATCH_SECONDS", "60"))
LONG = int(os.environ.get("THENCE_WATCH_LONG", "5"))
LINES = int(os.environ.get("THENCE_WATCH_LINES", "72000"))
IDLE = 5.0
"""Seconds of watching before the first line is written."""
LATEST = 120.0
"""Seconds after the last line within which all of them are kept, on however busy a machine."""


class Agent:
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
        """Write what is there before anybody watches."""
        for number in range(lines):
            self.write(number, flush=number == lines - 1)
        self.before = lines

    def lag(self, kept: int, now: float) -> float:
        """How long ago its oldest line was written that is not kept."""
        number = kept - self.before
        return now - self.written[number] if number < len(self.written) else 0.0


class Watched(NamedTuple):
    """What watching took."""

    lines: int
    kept: int
    idle: float
    busy: float
    lags: list[float]
    """The longest of all files, at each look."""
    long_lags: list[float]
    """The longest of those that were long before."""
    memory: int


def kept(store: Sqlite) -> dict[str, int]:
    """Count the events of each session."""
    return {row.session.native_session_id: row.events for row in store.sessions()}


def spent(process: int) -> float:
    """Give the processor seconds of a process and of its children that ended."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def memory(process: int) -> int:
    """Give the most bytes that a process held in memory so far."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def grown(agents: Sequence[Agent], store: Sqlite) -> tuple[list[float], list[float]]:
    """Let the agents write; return the lag at each look, of all files and of the long ones."""
    lags: list[float] = []
    long_lags: list[float] = []
    start = looked = time.monotonic()
    for number in range(round(SECONDS * RATE)):
        for agent in agents:
            agent.write(number)
            agent.written.append(time.monotonic())
        if time.monotonic() - looked >= 0.25:
            events, looked = kept(store), time.monotonic()
            each = {agent: agent.lag(events.get(agent.name, 0), looked) for agent in agents}
            lags.append(max(each.values()))
            long_lags.append(max((each[agent] for agent in agents if agent.before), default=0.0))
        time.sleep(max(start + (number + 1) / RATE - time.monotonic(), 0))
    return lags, long_lags


def _is_digested(store: Sqlite) -> bool:
    return next(store.sessions(Filter(analysed=False, limit=1)), None) is None


def watched(home: Path, long: int) -> Watched:
    """Watch 50 files of which some are long already."""
    folder = home / ".claude" / "projects" / "-home-dev-tidepool"
    folder.mkdir(parents=True)
    agents = [Agent(folder, number) for number in range(FILES)]
    for agent in agents[:long]:
        agent.begin(LINES)
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
        time.sleep(IDLE / 2)
        while not _is_digested(store):
            time.sleep(1.0)
        before = spent(watcher.pid)
        time.sleep(IDLE)
        idle = (spent(watcher.pid) - before) / IDLE
        before = spent(watcher.pid)
        lags, long_lags = grown(agents, store)
        busy = (spent(watcher.pid) - before) / SECONDS
        lines = sum(len(agent.written) for agent in agents)
        until = time.monotonic() + LATEST
        while (held := sum(kept(store).values()) - long * LINES) < lines:
            if time.monotonic() > until:
                break
            time.sleep(0.25)
        store.close()
        most = memory(watcher.pid)
    return Watched(lines, held, idle, busy, lags, long_lags, most)


def _late(lags: Sequence[float]) -> float:
    return sorted(lags)[int(0.99 * len(lags))]


def main() -> int:
    """Measure; 1 for each budget that was missed."""
    missed = 0
    for long in (0, LONG) if LONG else (0,):
        with tempfile.TemporaryDirectory() as name:
            took = watched(Path(name), long)
        late = _late(took.lags)
        which = f"{long} of them with {LINES:,} lines" if long else "all new"
        print(
            f"watch: {FILES} files, {which}, {RATE} lines/s each, {SECONDS:g} s:"
            f" {took.lines:,} lines;"
            f" idle {took.idle:.1%} of a core, busy {took.busy:.0%}, {took.memory / 1e6:.0f} MB;"
            f" lag p50 {statistics.median(took.lags):.2f} s, p99 {late:.2f} s"
            + (f", of the long ones p99 {_late(took.long_lags):.2f} s" if long else "")
        )
        told = f", {long} sessions of {LINES:,} lines" if long else ""
        missed += verdict(f"lines written per line kept{told}", took.lines / max(took.kept, 1), 1)
        missed += verdict(f"p99 of the lag / 1 s{told}", late, 1)
        missed += verdict(f"share of a core while files grow / half{told}", took.busy / 0.5, 1)
    return missed
