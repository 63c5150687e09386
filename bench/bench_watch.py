"""`thence sweep --watch` beside agents that write: 50 files, 20 lines a second each, for a minute.

Every line must be kept. Told are the share of one core that watching took, also when nothing is
written, and the lag: how long the oldest line had waited that was not kept yet, looked at four
times a second. `THENCE_WATCH_SECONDS` makes it shorter; `THENCE_WATCH_BEFORE` is how many lines
each file has before it is watched: the cost of a line must not grow with them.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from bench.measure import verdict
from thence.format.records import time_text
from thence.memory.sqlite import Sqlite
from thence.memory.store import Filter

FILES = 50
RATE = 20
SECONDS = float(os.environ.get("THENCE_WATCH_SECONDS", "60"))
BEFORE = int(os.environ.get("THENCE_WATCH_BEFORE", "0"))
IDLE = 5.0
"""Seconds of watching before the first line is written."""
LATEST = 120.0
"""Seconds after the last line within which all of them are kept, on however busy a machine."""


class Agent:
    """One session of Claude Code that grows line by line."""

    def __init__(self, folder: Path, number: int) -> None:
        self.name = str(uuid.UUID(int=number + 1, version=4))
        self._file = (folder / f"{self.name}.jsonl").open("a", encoding="utf-8")
        self._before: str | None = None

    def write(self, number: int, *, flush: bool = True) -> None:
        """Append one line."""
        own = str(uuid.uuid4())
        record = {
            "parentUuid": self._before,
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
        self._before = own


def kept(store: Sqlite) -> int:
    """Count the events of all sessions."""
    return sum(row.events for row in store.sessions())


def spent(process: int) -> float:
    """Give the processor seconds of a process and of its children that ended."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def grown(agents: list[Agent], store: Sqlite) -> tuple[list[float], int]:
    """Let the agents write; return how old the newest kept line was at each look, and the sum."""
    written: list[float] = []
    lags: list[float] = []
    start = looked = time.monotonic()
    for number in range(round(SECONDS * RATE)):
        for agent in agents:
            agent.write(number)
            written.append(time.monotonic())
        if time.monotonic() - looked >= 0.25:
            looked = time.monotonic()
            lags.append(_lag(written, kept(store) - FILES * BEFORE))
        time.sleep(max(start + (number + 1) / RATE - time.monotonic(), 0))
    return lags, len(written)


def _lag(written: list[float], number: int) -> float:
    """How long ago the oldest line was written that is not kept yet."""
    now = time.monotonic()
    return now - written[number] if number < len(written) else 0.0


def _is_digested(store: Sqlite) -> bool:
    return next(store.sessions(Filter(analysed=False, limit=1)), None) is None


def main() -> int:
    """Measure; 1 if a line is missing."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        folder = home / ".claude" / "projects" / "-home-dev-tidepool"
        folder.mkdir(parents=True)
        agents = [Agent(folder, number) for number in range(FILES)]
        for agent in agents:
            for number in range(BEFORE):
                agent.write(number, flush=number == BEFORE - 1)
        env = {"PATH": os.environ["PATH"], "HOME": name}
        entry = "from thence.cli import main; main()"
        command = [sys.executable, "-c", entry, "sweep", "--watch"]
        with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) as watcher:
            path = home / ".thence" / "memory" / "thence.db"
            while not path.exists():
                time.sleep(0.1)
            store = Sqlite(str(path))
            while kept(store) < FILES * BEFORE:
                time.sleep(1.0)
            time.sleep(IDLE / 2)
            while BEFORE and not _is_digested(store):
                time.sleep(1.0)
            before = spent(watcher.pid)
            time.sleep(IDLE)
            idle = (spent(watcher.pid) - before) / IDLE
            before = spent(watcher.pid)
            lags, number = grown(agents, store)
            busy = (spent(watcher.pid) - before) / SECONDS
            until = time.monotonic() + LATEST
            while (held := kept(store) - FILES * BEFORE) < number and time.monotonic() < until:
                time.sleep(0.25)
            store.close()
            watcher.send_signal(signal.SIGINT)
    late = sorted(lags)[int(0.99 * len(lags))]
    print(
        f"watch: {FILES} files of {BEFORE:,} lines, {RATE} lines/s each, {SECONDS:g} s:"
        f" {number:,} lines;"
        f" idle {idle:.1%} of a core, busy {busy:.0%};"
        f" lag p50 {statistics.median(lags):.1f} s, p99 {late:.1f} s"
    )
    missed = verdict("lines written per line kept", number / max(held, 1), 1)
    missed += verdict("p99 of the lag / 1 s", late, 1)
    return missed + verdict("share of a core while files grow / half", busy / 0.5, 1)
