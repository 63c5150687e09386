"""A story told with system calls that fail or kill, and what is left of it.

strace makes the N-th call of a story fail (once, or from then on), lie about its length, or kill
the process at its entry. `complaint` says what was wrong about how that went.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import msgspec

from tests.faults.story import check, tell
from tests.faults.warm import Warm
from thence.journal.log import Durability

STRACE = shutil.which("strace")
MADE = {"write": 48, "fdatasync": 14, "fsync": 19, "openat": 62, "rename": 3, "mkdir": 7}
"""About how often the story makes each call: where a sample is taken from."""

CALLS = tuple(MADE)
REAL = {"rename": "/^rename", "mkdir": "/^mkdir"}
ERRORS = {
    "write": ("ENOSPC", "EIO", "EDQUOT"),
    "fdatasync": ("EIO", "ENOSPC"),
    "fsync": ("EIO",),
    "openat": ("EIO", "EMFILE"),
    "rename": ("EIO", "ENOSPC"),
    "mkdir": ("ENOSPC", "EROFS"),
}
LAST = 400
KILLED = -9


class Untraceable(Exception):
    """strace may not look into other processes here."""


class Fault(msgspec.Struct, frozen=True):
    """What is done to which call."""

    call: str
    how: str
    ever: bool = False

    def at(self, place: int) -> str:
        """Tell it to strace."""
        when = f"{place}+" if self.ever else f"{place}"
        return f"inject={REAL.get(self.call, self.call)}:{self.how}:when={when}"


def faults() -> list[Fault]:
    """Every fault there is; EINTR is tried again by Python, so that it cannot last for ever."""
    out = [Fault(call, "signal=KILL") for call in CALLS]
    for call in CALLS:
        out += [Fault(call, f"error={e}", ever) for e in ERRORS[call] for ever in (False, True)]
    out += [Fault("write", "error=EINTR"), Fault("openat", "error=EINTR")]
    return [*out, Fault("write", "retval=10"), Fault("write", "retval=10", ever=True)]


class Ran(msgspec.Struct):
    """How a story went."""

    injected: bool
    ended: int
    receipts: list[list[str]]
    broken: list[str]


class Theatre:
    """Stories, each in a home of its own, with strace at the exit."""

    def __init__(self, warm: Warm, folder: Path) -> None:
        self._warm = warm
        self._folder = folder
        self._runs = 0

    def run(self, inject: str, durability: Durability) -> Ran:
        """Tell the story with one fault, then look at what is left."""
        self._runs += 1
        root = self._folder / str(self._runs)
        (root / "work").mkdir(parents=True)
        (root / "work" / "file.txt").write_text("as it was")
        receipts, go, trace = root / "told", root / "go", root / "trace"
        receipts.touch()
        child = self._warm.start(tell, str(root), str(receipts), str(go), durability)
        while not receipts.stat().st_size and child.poll() is None:
            time.sleep(0.001)
        only = "trace=" + inject.removeprefix("inject=").partition(":")[0]
        options = ["-o", str(trace), "-e", only, "-e", inject, "-p", str(child.pid)]
        tracer = subprocess.Popen([STRACE or "", *options], stderr=subprocess.PIPE, text=True)
        if tracer.stderr is None or "attached" not in (line := tracer.stderr.readline()):
            child.kill()
            child.wait()
            tracer.wait()
            raise Untraceable(line.strip())
        go.touch()
        ended = child.wait()
        tracer.wait()
        tracer.stderr.close()
        lines = [msgspec.json.decode(line) for line in receipts.read_bytes().splitlines() if line]
        text = trace.read_text()
        ran = Ran("INJECTED" in text or "SIGKILL" in text, ended, lines, check(root, lines))
        shutil.rmtree(root)
        return ran


def complaint(fault: Fault, ran: Ran) -> str | None:
    """Say what was wrong about a run; None when nothing was."""
    failed = any(line[0] == "error" for line in ran.receipts)
    if "KILL" in fault.how:
        clear = ran.ended in (KILLED, 0)
    else:
        clear = ran.ended == (1 if failed else 0) or (failed and ran.ended in (10, 11))
    problems = [*ran.broken, *([] if clear else [f"ended with {ran.ended}"])]
    return "; ".join(problems) or None
