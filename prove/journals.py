"""Trials of the journal: failing calls (T1), kills at calls (T2), at random (T3), cuts (T4), T8."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from prove.suites import Suite, run_suite
from prove.trial import JOURNAL_CODE, Outcome, Part, Trial, sample_evenly, split_rounds
from tests.faults.crowd import MEMORY_FOLDER, UncleanSubject, WarmSuite
from tests.faults.harness import kill_starts
from tests.faults.theatre import (
    MAX_PLACE,
    STRACE,
    Fault,
    StoryRunner,
    TracingRefused,
    describe_problem,
    faults,
)
from tests.faults.warm import Warm
from thence.journal.log import Durability
from thence.testing.crashes import CrashReport, CrashSuite, JournalSubject

FAILING, KILLING = "failing", "killing"
MODES: tuple[Durability, ...] = ("turn", "event")


@functools.cache
def _fork_server() -> Warm:
    """Return the process that forks writers; there is one per worker."""
    return Warm("tests.faults.crowd", "tests.faults.story")


@contextlib.contextmanager
def _memory_folder(folder: Path) -> Iterator[Path]:
    """Provide a folder in memory: what a kill leaves behind does not depend on the disk.

    It is named after the run; the next run removes what a killed one left there.
    """
    if not MEMORY_FOLDER.is_dir():
        yield folder
        return
    run = (
        MEMORY_FOLDER
        / f"thence-prove-{hashlib.sha256(str(folder.parent).encode()).hexdigest()[:12]}"
    )
    part_folder = run / folder.name
    for leftover in run.iterdir() if run.is_dir() else ():
        if not Path("/proc", leftover.name.rpartition("-")[2]).exists():
            shutil.rmtree(leftover, ignore_errors=True)
    part_folder.mkdir(parents=True, exist_ok=True)
    try:
        yield part_folder
    finally:
        shutil.rmtree(part_folder, ignore_errors=True)


def _outcome(report: CrashReport, part: Part, count: int) -> Outcome:
    counts = {"acknowledged": report.acknowledged, "torn tails": report.torn_tails}
    violations = [f"seed {part.seed}: {report}"] if report.violations else []
    return Outcome(count, violations, counts)


# -- system calls ---------------------------------------------------------------------------


def _fault_names(kind: str) -> dict[str, tuple[Fault, Durability]]:
    """Return every fault and durability by a unique name."""
    return {
        f"{mode} {fault.call} {fault.injection}{' ever' if fault.is_permanent else ''}": (
            fault,
            mode,
        )
        for mode in MODES
        for fault in faults()
        if ("KILL" in fault.injection) is (kind == KILLING)
    }


def _call_parts(kind: str, scale: float) -> list[Part]:
    return [Part(name) for name in sample_evenly(list(_fault_names(kind)), scale)]


def _run_calls(kind: str, part: Part, folder: Path) -> Outcome:
    """Inject a fault at the first call, the second, … until the story runs without it."""
    fault, mode = _fault_names(kind)[part.what]
    runner = StoryRunner(_fork_server(), folder)
    outcome = Outcome()
    for place in range(1, MAX_PLACE):
        try:
            result = runner.run(fault.at(place), mode)
        except TracingRefused as error:
            return Outcome(skipped=[f"strace may not look into other processes: {error}"])
        outcome.done += 1
        if problem := describe_problem(fault, result):
            outcome.violations.append(f"{mode}, {fault.at(place)}: {problem}")
        if not result.injected:
            return outcome
    outcome.violations.append(f"{part.what}: no end after {MAX_PLACE} places")
    return outcome


def _why_no_strace() -> str | None:
    return None if STRACE else "no strace: apt-get install strace"


# -- kills ----------------------------------------------------------------------------------


_FROM_START = "from process start"


def _kill_parts(scale: float) -> list[Part]:
    totals = (("turn", 4000), ("none", 3000), ("event", 3000), (_FROM_START, 2000))
    return [part for what, total in totals for part in split_rounds(what, total, 250, scale)]


def _run_kills(part: Part, folder: Path) -> Outcome:
    if part.what == _FROM_START:
        started = kill_starts(part.size, folder, part.seed)
        bad = [f"seed {part.seed}: {started}"] if started.violations else []
        return Outcome(part.size, bad, {"acknowledged": started.acknowledged})
    durability = cast("Durability", part.what)
    largest = 1 << 18 if durability == "event" else 8 << 20
    subject = JournalSubject(largest=largest, durability=durability)
    with (
        contextlib.nullcontext(folder) if durability == "event" else _memory_folder(folder) as where
    ):
        report = WarmSuite(_fork_server(), subject, where, part.seed).kills(part.size)
    return _outcome(report, part, report.rounds)


# -- cuts -----------------------------------------------------------------------------------


def _cut_parts(scale: float) -> list[Part]:
    """Return the one part; its size N means every N-th byte."""
    return [Part("60 events", 0, max(round(1 / scale), 1))]


def _run_cuts(part: Part, folder: Path) -> Outcome:
    subject = UncleanSubject(largest=8, durability="none")
    with _memory_folder(folder) as store:
        list(subject.write(store, 1, 60))
        report = CrashSuite(subject).cuts(store, subject.file(store), every=part.size)
    return _outcome(report, part, report.rounds)


# -- crowds ---------------------------------------------------------------------------------

_STALE_TIPS = Suite(
    "stale tips",
    (
        "tests/journal/test_session.py",
        "-k",
        "stale_tip or another_process or share_a_session",
    ),
)


def _writer_parts(scale: float) -> Sequence[Part]:
    return [
        Part("none killed", 1, max(round(5000 * scale), 1)),
        Part("half killed", 2, max(round(1000 * scale), 1)),
        Part(_STALE_TIPS.what),
    ]


def _run_writers(part: Part, folder: Path) -> Outcome:
    if part.what == _STALE_TIPS.what:
        outcome = run_suite(_STALE_TIPS, part, folder)
        return Outcome(0, outcome.violations, {"stale tips": outcome.done}, outcome.skipped)
    killed = 4 if part.what == "half killed" else 0
    report = WarmSuite(_fork_server(), JournalSubject(), folder, part.seed).writers(
        8, part.size, killed
    )
    return _outcome(report, part, 8 * part.size)


TRIALS = (
    Trial(
        "T1",
        "system calls that fail, once and for ever",
        "faults",
        "about 700",
        functools.partial(_call_parts, FAILING),
        functools.partial(_run_calls, FAILING),
        _why_no_strace,
        code=JOURNAL_CODE,
    ),
    Trial(
        "T2",
        "SIGKILL at every system call",
        "kills",
        "at least 300",
        functools.partial(_call_parts, KILLING),
        functools.partial(_run_calls, KILLING),
        _why_no_strace,
        code=JOURNAL_CODE,
    ),
    Trial(
        "T3",
        "SIGKILL at random times",
        "kills",
        "12,000",
        _kill_parts,
        _run_kills,
        code=JOURNAL_CODE,
    ),
    Trial(
        "T4",
        "a torn tail at every byte",
        "cuts",
        "every byte",
        _cut_parts,
        _run_cuts,
        code=JOURNAL_CODE,
    ),
    Trial(
        "T8",
        "many writers of one session",
        "records",
        "48,000",
        _writer_parts,
        _run_writers,
        code=JOURNAL_CODE,
    ),
)
