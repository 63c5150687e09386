"""Trials of the journal: calls that fail (T1) and kill (T2), kills (T3), cuts (T4), crowds (T8)."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from prove.suites import Suite, played
from prove.trial import Outcome, Part, Trial, shares, some
from tests.faults.crowd import MEMORY, Hasty, WarmSuite
from tests.faults.theatre import LAST, STRACE, Fault, Theatre, Untraceable, complaint, faults
from tests.faults.warm import Warm
from thence.journal.log import Durability
from thence.testing import CrashReport, CrashSuite, JournalSubject

FAILING, KILLING = "failing", "killing"
MODES: tuple[Durability, ...] = ("turn", "event")


@functools.cache
def _warm() -> Warm:
    """One parent of writers for each process that runs trials."""
    return Warm("tests.faults.crowd", "tests.faults.story")


@contextlib.contextmanager
def _memory(folder: Path) -> Iterator[Path]:
    """Where files go that are about kills: what a kill leaves does not depend on the disk.

    It is named after the run. What a run that was killed has left there goes with the next one.
    """
    if not MEMORY.is_dir():
        yield folder
        return
    run = MEMORY / f"thence-prove-{hashlib.sha256(str(folder.parent).encode()).hexdigest()[:12]}"
    own = run / folder.name
    for left in run.iterdir() if run.is_dir() else ():
        if not Path("/proc", left.name.rpartition("-")[2]).exists():
            shutil.rmtree(left, ignore_errors=True)
    own.mkdir(parents=True, exist_ok=True)
    try:
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _outcome(report: CrashReport, part: Part, done: int) -> Outcome:
    figures = {"acknowledged": report.acknowledged, "torn tails": report.torn_tails}
    broken = [f"seed {part.seed}: {report}"] if report.violations else []
    return Outcome(done, broken, figures)


# -- system calls ---------------------------------------------------------------------------


def _named(how: str) -> dict[str, tuple[Fault, Durability]]:
    """Every fault by a name of its own."""
    return {
        f"{mode} {fault.call} {fault.how}{' ever' if fault.ever else ''}": (fault, mode)
        for mode in MODES
        for fault in faults()
        if ("KILL" in fault.how) is (how == KILLING)
    }


def _calls(how: str, scale: float) -> list[Part]:
    return [Part(name) for name in some(list(_named(how)), scale)]


def _call(how: str, part: Part, folder: Path) -> Outcome:
    """One fault at the first call, the second, … until the story runs clean."""
    fault, mode = _named(how)[part.what]
    theatre = Theatre(_warm(), folder)
    out = Outcome()
    for place in range(1, LAST):
        try:
            ran = theatre.run(fault.at(place), mode)
        except Untraceable as error:
            return Outcome(skipped=[f"strace may not look into other processes: {error}"])
        out.done += 1
        if problem := complaint(fault, ran):
            out.violations.append(f"{mode}, {fault.at(place)}: {problem}")
        if not ran.injected:
            return out
    out.violations.append(f"{part.what}: no end after {LAST} places")
    return out


def _no_strace() -> str | None:
    return None if STRACE else "no strace: apt-get install strace"


# -- kills ----------------------------------------------------------------------------------


def _kills(scale: float) -> list[Part]:
    return [
        part
        for what, total in (("turn", 4000), ("none", 3000), ("event", 3000))
        for part in shares(what, total, 250, scale)
    ]


def _kill(part: Part, folder: Path) -> Outcome:
    durability = cast("Durability", part.what)
    largest = 1 << 18 if durability == "event" else 8 << 20
    subject = JournalSubject(largest=largest, durability=durability)
    with contextlib.nullcontext(folder) if durability == "event" else _memory(folder) as where:
        report = WarmSuite(_warm(), subject, where, part.seed).kills(part.size)
    return _outcome(report, part, report.rounds)


# -- cuts -----------------------------------------------------------------------------------


def _cuts(scale: float) -> list[Part]:
    """A size of N means every N-th byte."""
    return [Part("60 events", 0, max(round(1 / scale), 1))]


def _cut(part: Part, folder: Path) -> Outcome:
    subject = Hasty(largest=8, durability="none")
    with _memory(folder) as store:
        list(subject.write(store, 1, 60))
        report = CrashSuite(subject).cuts(store, subject.file(store), every=part.size)
    return _outcome(report, part, report.rounds)


# -- crowds ---------------------------------------------------------------------------------

_STALE = Suite(
    "stale tips",
    (
        "tests/journal/test_session.py",
        "-k",
        "stale_tip or another_process or share_a_session",
    ),
)


def _crowds(scale: float) -> Sequence[Part]:
    return [
        Part("none killed", 1, max(round(5000 * scale), 1)),
        Part("half killed", 2, max(round(1000 * scale), 1)),
        Part(_STALE.what),
    ]


def _crowd(part: Part, folder: Path) -> Outcome:
    if part.what == _STALE.what:
        out = played(_STALE, part, folder)
        return Outcome(0, out.violations, {"stale tips": out.done}, out.skipped)
    killed = 4 if part.what == "half killed" else 0
    report = WarmSuite(_warm(), JournalSubject(), folder, part.seed).writers(8, part.size, killed)
    return _outcome(report, part, 8 * part.size)


TRIALS = (
    Trial(
        "T1",
        "system calls that fail, once and for ever",
        "faults",
        "about 700",
        functools.partial(_calls, FAILING),
        functools.partial(_call, FAILING),
        _no_strace,
    ),
    Trial(
        "T2",
        "SIGKILL at every system call",
        "kills",
        "at least 300",
        functools.partial(_calls, KILLING),
        functools.partial(_call, KILLING),
        _no_strace,
    ),
    Trial("T3", "SIGKILL at random times", "kills", "10,000", _kills, _kill),
    Trial("T4", "a torn tail at every byte", "cuts", "every byte", _cuts, _cut),
    Trial("T8", "many writers of one session", "records", "48,000", _crowds, _crowd),
)
