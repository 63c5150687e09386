"""Running trials: parts side by side, each noted when it ends, and what they come to."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from pathlib import Path

from prove import fuse, journals, lines, load, power, suites
from prove.report import Report, Row, Told, machine
from prove.state import Ended, State
from prove.trial import Outcome, Part, Trial

TRIALS: tuple[Trial, ...] = tuple(
    sorted(
        (
            trial
            for module in (journals, power, fuse, suites, lines, load)
            for trial in module.TRIALS
        ),
        key=lambda trial: int(trial.name[1:]),
    )
)
_PDEATHSIG = 1


def _follow(parent: int) -> None:
    """End with the process that asked for it, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def run_part(name: str, part: Part, where: Path) -> tuple[Outcome, float]:
    """Run one part in a folder of its own. Runs in a worker."""
    trial = next(trial for trial in TRIALS if trial.name == name)
    folder = where / "tmp" / f"{name}-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    start = time.monotonic()
    try:
        outcome = trial.run(part, folder)
    except Exception as error:  # noqa: BLE001 - a trial that breaks is told, the others go on
        outcome = Outcome(violations=[f"the trial itself broke: {error!r}"[:800]])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome, time.monotonic() - start


def processes(number: int) -> Executor:
    """Workers that end with this process."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(number, context, initializer=_follow, initargs=(os.getpid(),))


class Run:
    """One run: what is wanted, what has ended, what is left."""

    def __init__(
        self,
        state: State,
        trials: Sequence[Trial],
        scale: float,
        jobs: int,
        pool: Callable[[int], Executor] = processes,
    ) -> None:
        self.state = state
        self.scale = scale
        self.jobs = jobs
        self._pool = pool
        self.rows = [Row(trial, list(trial.parts(scale)), trial.missing()) for trial in trials]
        self.skipped = 0

    def left(self) -> list[tuple[Trial, Part]]:
        """All parts that have not ended."""
        return [
            (row.trial, part)
            for row in self.rows
            if row.missing is None
            for part in row.parts
            if self.state.get(row.trial.name, part) is None
        ]

    def run(self) -> None:
        """Run what is left, several at once, and those that need it alone."""
        left = self.left()
        total = sum(len(row.parts) for row in self.rows if row.missing is None)
        self.skipped = total - len(left)
        if self.skipped:
            print(f"going on: {self.skipped} of {total} parts have ended before")
        for row in self.rows:
            if row.missing:
                print(f"{row.trial.name} cannot run here: {row.missing}")
        number = self.skipped
        for jobs, some in (
            (self.jobs, [one for one in left if not one[0].alone]),
            (1, [one for one in left if one[0].alone]),
        ):
            with self._pool(jobs) as pool:
                where = self.state.path.parent
                asked = {
                    pool.submit(run_part, trial.name, part, where): (trial, part)
                    for trial, part in some
                }
                for future in as_completed(asked):
                    trial, part = asked[future]
                    outcome, seconds = future.result()
                    number += 1
                    self._tell(self.state.add(trial.name, part, outcome, seconds), number, total)

    def _tell(self, ended: Ended, number: int, total: int) -> None:
        verdict = "ok" if not ended.outcome.violations else "BROKEN"
        print(
            f"[{number}/{total}] {ended.trial:<4} {ended.key:<44} "
            f"{ended.outcome.done:>8,} {verdict} {ended.seconds:.1f} s",
            flush=True,
        )
        for violation in ended.outcome.violations[:5]:
            print(f"    {violation}", flush=True)

    def report(self) -> Report:
        """Add up what has ended."""
        told = [Told.of(row, self.state) for row in self.rows]
        return Report(machine(), self.state.code, self.scale, told)
