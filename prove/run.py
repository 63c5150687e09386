"""Runs trials: parts in parallel, each recorded when it finishes, and a report at the end."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from pathlib import Path

from prove import fuse, journals, lines, load, power, suites
from prove.report import Report, TrialPlan, TrialResult, describe_machine
from prove.state import State, hash_code
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


def run_part(name: str, part: Part, work_folder: Path) -> tuple[Outcome | str, float]:
    """Run a part in a folder of its own; return its outcome, or why it failed, and the seconds."""
    trial = next(trial for trial in TRIALS if trial.name == name)
    folder = work_folder / "tmp" / f"{name}-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    start = time.monotonic()
    try:
        outcome = trial.run(part, folder)
    except Exception as error:  # noqa: BLE001 - a trial that fails is reported, the others continue
        return f"the trial itself failed: {error!r}"[:800], time.monotonic() - start
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome, time.monotonic() - start


def start_workers(number: int) -> Executor:
    """Return a pool of worker processes, which end with this process."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(
        number, context, initializer=end_with_parent, initargs=(os.getpid(),)
    )


class Run:
    """A run of some trials: which parts there are, which are finished, which failed."""

    def __init__(
        self,
        state: State,
        trials: Sequence[Trial],
        scale: float,
        jobs: int,
        pool: Callable[[int], Executor] = start_workers,
    ) -> None:
        self.state = state
        self.scale = scale
        self.jobs = jobs
        self._pool = pool
        self.plans = [
            TrialPlan(trial, list(trial.parts(scale)), trial.missing()) for trial in trials
        ]
        self.skipped = 0
        self.failed: dict[tuple[str, str], str] = {}
        """Why parts failed; the next run runs them again."""

    def unfinished(self) -> list[tuple[Trial, Part]]:
        """Return all parts that have not finished."""
        return [
            (plan.trial, part)
            for plan in self.plans
            if plan.missing is None
            for part in plan.parts
            if self.state.get(plan.trial.name, part) is None
        ]

    def run(self) -> None:
        """Run the unfinished parts, several at a time, and those of exclusive trials one by one."""
        unfinished = self.unfinished()
        total = sum(len(plan.parts) for plan in self.plans if plan.missing is None)
        self.skipped = total - len(unfinished)
        if self.skipped:
            print(f"continuing: {self.skipped} of {total} parts were finished before")
        for plan in self.plans:
            if plan.missing:
                print(f"{plan.trial.name} cannot run here: {plan.missing}")
        finished = self.skipped
        for jobs, batch in (
            (self.jobs, [entry for entry in unfinished if not entry[0].is_exclusive]),
            (1, [entry for entry in unfinished if entry[0].is_exclusive]),
        ):
            with self._pool(jobs) as pool:
                folder = self.state.path.parent
                futures = {
                    pool.submit(run_part, trial.name, part, folder): (trial, part)
                    for trial, part in batch
                }
                for future in as_completed(futures):
                    trial, part = futures[future]
                    outcome, seconds = future.result()
                    finished += 1
                    if isinstance(outcome, str):
                        self.failed[trial.name, part.key] = outcome
                        outcome = Outcome(violations=[outcome])
                    else:
                        self.state.add(trial.name, part, outcome, seconds)
                    self._print_part(
                        f"[{finished}/{total}] {trial.name:<4} {part.key:<44}", outcome
                    )

    def _print_part(self, what: str, outcome: Outcome) -> None:
        verdict = "ok" if not outcome.violations else "VIOLATED"
        print(f"{what} {outcome.done:>8,} {verdict}", flush=True)
        for violation in outcome.violations[:5]:
            print(f"    {violation}", flush=True)

    def report(self) -> Report:
        """Return the totals of all finished parts, and of those that failed."""
        results = [TrialResult.of(plan, self.state) for plan in self.plans]
        for (name, key), why in self.failed.items():
            next(result for result in results if result.name == name).violations.append(
                f"{key}: {why}"
            )
        return Report(describe_machine(), hash_code(), self.scale, results)


def code_of(name: str) -> str:
    """Return the hash of the code of a trial; that of a trial which is gone is of no code."""
    return next((hash_code(trial.code) for trial in TRIALS if trial.name == name), "")
