"""A run of made-up trials, to be killed and started again: `counting.py FOLDER`."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import prove.run
from prove.run import Run
from prove.state import State
from prove.trial import Outcome, Part, Trial, split_rounds


def count(part: Part, folder: Path) -> Outcome:
    """Count to the size of the part; the seventh seed is broken."""
    time.sleep(0.02)
    (folder / "left behind").touch()
    broken = ["seven"] if part.seed == 7 else []
    return Outcome(part.size, broken, {"seeds": part.seed})


def fail(part: Part, folder: Path) -> Outcome:
    """Fail before anything is looked at."""
    raise ValueError(f"no {part.what} in {folder.name[:2]}")


TRIALS = (
    Trial(
        "T1", "count", "numbers", "1,000", lambda scale: split_rounds("one", 1000, 50, scale), count
    ),
    Trial("T2", "alone", "numbers", "3", lambda _: [Part("two", 1, 3)], count, is_exclusive=True),
    Trial("T3", "break", "numbers", "1", lambda _: [Part("three")], fail),
    Trial("T4", "cannot", "numbers", "1", lambda _: [Part("four")], count, lambda: "no disk"),
)


def run_trials(folder: Path, scale: float = 1.0) -> Run:
    """Run all trials in this process, and return the run."""
    real, prove.run.TRIALS = prove.run.TRIALS, TRIALS
    try:
        run = Run(
            State(folder / "state.jsonl", lambda _: "abc"), TRIALS, scale, 1, ThreadPoolExecutor
        )
        run.run()
    finally:
        prove.run.TRIALS = real
    return run


if __name__ == "__main__":
    run_trials(Path(sys.argv[1])).report().write(Path(sys.argv[1], "report.json"))
