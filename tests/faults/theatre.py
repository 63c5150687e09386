"""Runs a story with system calls that fail or kill, and checks what is left of it.

strace makes the N-th call of a story fail (once, or from then on), return a wrong length, or kill
the process at its entry. `describe_problem` says what went wrong.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import msgspec

from tests.faults.story import check, run_story
from tests.faults.warm import Warm
from thence.journal.log import Durability

STRACE = shutil.which("strace")
CALL_COUNTS = {
    "write": 62,
    "fdatasync": 16,
    "fsync": 29,
    "openat": 120,
    "rename": 3,
    "mkdir": 10,
    "link": 7,
    "unlink": 7,
    "fchmod": 10,
    "flock": 30,
}
"""About how often the story makes each call; samples are taken from this range."""

CALLS = tuple(CALL_COUNTS)
STRACE_NAMES = {"rename": "/^rename", "mkdir": "/^mkdir", "link": "/^link", "unlink": "/^unlink"}
ERRORS = {
    "write": ("ENOSPC", "EIO", "EDQUOT"),
    "fdatasync": ("EIO", "ENOSPC"),
    "fsync": ("EIO",),
    "openat": ("EIO", "EMFILE"),
    "rename": ("EIO", "ENOSPC"),
    "mkdir": ("ENOSPC", "EROFS"),
    "link": ("ENOSPC", "EPERM"),
    "unlink": ("EIO",),
    "fchmod": ("EIO",),
    "flock": ("ENOLCK",),
}
MAX_PLACE = 400
KILLED_EXIT_CODE = -9


class TracingRefused(Exception):
    """strace may not trace other processes here."""


class Fault(msgspec.Struct, frozen=True):
    """A fault that is injected into a system call."""

    call: str
    injection: str
    is_permanent: bool = False

    def at(self, place: int) -> str:
        """Return the option for strace that injects the fault at a call number."""
        when = f"{place}+" if self.is_permanent else f"{place}"
        return f"inject={STRACE_NAMES.get(self.call, self.call)}:{self.injection}:when={when}"


def faults() -> list[Fault]:
    """Return every fault; EINTR only once, because Python retries such a call."""
    all_faults = [Fault(call, "signal=KILL") for call in CALLS]
    for call in CALLS:
        all_faults += [
            Fault(call, f"error={error}", is_permanent)
            for error in ERRORS[call]
            for is_permanent in (False, True)
        ]
    all_faults += [Fault("write", "error=EINTR"), Fault("openat", "error=EINTR")]
    return [
        *all_faults,
        Fault("write", "retval=10"),
        Fault("write", "retval=10", is_permanent=True),
    ]


class StoryResult(msgspec.Struct):
    """The result of a story: what it logged, its exit code, and broken promises."""

    injected: bool
    exit_code: int
    log: list[list[str]]
    violations: list[str]


class StoryRunner:
    """Runs stories under strace, each in a home of its own."""

    def __init__(self, warm: Warm, folder: Path) -> None:
        self._warm = warm
        self._folder = folder
        self._runs = 0

    def run(self, inject: str, durability: Durability) -> StoryResult:
        """Run the story with one fault, and return what is left of it."""
        self._runs += 1
        root = self._folder / str(self._runs)
        (root / "work").mkdir(parents=True)
        (root / "work" / "file.txt").write_text("as it was")
        log, go, trace = root / "told", root / "go", root / "trace"
        log.touch()
        child = self._warm.start(run_story, str(root), str(log), str(go), durability)
        while not log.stat().st_size and child.poll() is None:
            time.sleep(0.001)
        trace_filter = "trace=" + inject.removeprefix("inject=").partition(":")[0]
        options = ["-o", str(trace), "-e", trace_filter, "-e", inject, "-p", str(child.pid)]
        tracer = subprocess.Popen([STRACE or "", *options], stderr=subprocess.PIPE, text=True)
        if tracer.stderr is None or "attached" not in (first_line := tracer.stderr.readline()):
            child.kill()
            child.wait()
            tracer.wait()
            raise TracingRefused(first_line.strip())
        go.touch()
        exit_code = child.wait()
        tracer.wait()
        tracer.stderr.close()
        lines = [msgspec.json.decode(line) for line in log.read_bytes().splitlines() if line]
        trace_text = trace.read_text()
        result = StoryResult(
            "INJECTED" in trace_text or "SIGKILL" in trace_text,
            exit_code,
            lines,
            check(root, lines),
        )
        shutil.rmtree(root)
        return result


def describe_problem(fault: Fault, result: StoryResult) -> str | None:
    """Return what was wrong about a run, or None."""
    has_error = any(line[0] == "error" for line in result.log)
    if "KILL" in fault.injection:
        is_expected = result.exit_code in (KILLED_EXIT_CODE, 0)
    else:
        is_expected = result.exit_code == (1 if has_error else 0) or (
            has_error and result.exit_code in (10, 11)
        )
    problems = [*result.violations, *([] if is_expected else [f"ended with {result.exit_code}"])]
    return "; ".join(problems) or None
