"""Running trials: parts side by side, each noted when it ends, and what they come to."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from pathlib import Path

from prove import fuse, journals, lines, load, power, suites
from prove.report import Report, Row, Told, machine
from prove.state import State
from prove.trial import Outcome, Part, Trial
from tests.faults.warm import end_with_parent

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


def run_part(name: str, part: Part, where: Path) -> tuple[Outcome | str, float]:
    """Run one part in a folder of its own, in a worker: what it came to, or why it did not."""
    trial = next(trial for trial in TRIALS if trial.name == name)
    folder = where / "tmp" / f"{name}-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    start = time.monotonic()
    try:
        outcome = trial.run(part, folder)
    except Exception as error:  # noqa: BLE001 - a trial that breaks is told, the others go on
        return f"the trial itself broke: {error!r}"[:800], time.monotonic() - start
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome, time.monotonic() - start


def processes(number: int) -> Executor:
    """Workers that end with this process."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(
        number, context, initializer=end_with_parent, initargs=(os.getpid(),)
    )


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
        self.broken: dict[tuple[str, str], str] = {}
        """Parts that came to nothing; they have not ended, and are run again the next time."""

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
                    if isinstance(outcome, str):
                        self.broken[trial.name, part.key] = outcome
                        outcome = Outcome(violations=[outcome])
                    else:
                        self.state.add(trial.name, part, outcome, seconds)
                    self._tell(f"[{number}/{total}] {trial.name:<4} {part.key:<44}", outcome)

    def _tell(self, what: str, outcome: Outcome) -> None:
        verdict = "ok" if not outcome.violations else "BROKEN"
        print(f"{what} {outcome.done:>8,} {verdict}", flush=True)
        for violation in outcome.violations[:5]:
            print(f"    {violation}", flush=True)

    def report(self) -> Report:
        """Add up what has ended."""
        told = [Told.of(row, self.state) for row in self.rows]
        for (name, key), why in self.broken.items():
            next(one for one in told if one.name == name).violations.append(f"{key}: {why}")
        return Report(machine(), self.state.code, self.scale, told)
