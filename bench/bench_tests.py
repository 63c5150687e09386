"""What the tests cost: `make quick` and `make test`, compared with what a newcomer can afford.

Both are run as they are typed, after everything that they need was installed, and must pass. The
budgets are for two cores with nothing else to do. The line with the number of tests is printed.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

from bench.measure import verdict

ROOT = Path(__file__).resolve().parent.parent
BUDGETS_S = {"quick": 45, "test": 300}
PYTEST_TOTALS = re.compile(r"^=* ?(\d+ passed.*? in [\d.]+s.*?) ?=*$", re.MULTILINE)


def main() -> int:
    """Measure and print; return how many budgets were missed."""
    run_make("ready-dev")
    missed = 0
    for target, budget in BUDGETS_S.items():
        start = time.perf_counter()
        output = run_make(target)
        wall = time.perf_counter() - start
        totals = PYTEST_TOTALS.search(output)
        print(f"tests: make {target}: {wall:.0f} s; {totals[1] if totals else 'no totals'}")
        missed += verdict(f"make {target} / {budget} s", wall / budget, 1)
    return missed


def run_make(target: str) -> str:
    """Run a target of the Makefile; return what it prints, or raise if it fails."""
    # Set by `make bench` for its own process; the tests are to run as they do without it.
    unwanted = ("PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    env = {name: value for name, value in os.environ.items() if name not in unwanted}
    process = subprocess.run(
        ["make", "--no-print-directory", target],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        raise RuntimeError(f"make {target} failed: {(process.stdout + process.stderr)[-2000:]}")
    return process.stdout
