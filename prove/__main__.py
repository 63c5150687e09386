"""Prove: `python -m prove [--only T3,T6] [--scale 0.1] [--jobs N] [--fresh]`.

Every part that ends is noted in `.prove/state.jsonl`. Killed and started again, it goes on with
the parts that are missing and comes to the same totals. The report is `.prove/report.json`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from prove.report import table
from prove.run import TRIALS, Run
from prove.state import ROOT, State, code_of

WHERE = ROOT / ".prove"


def main() -> int:
    """Prove; 1 when Invariant I was broken or a trial could not be run to its end."""
    asked = argparse.ArgumentParser(prog="python -m prove", description=__doc__)
    asked.add_argument("--only", default="", help="names of trials, with commas")
    asked.add_argument("--scale", type=float, default=1.0, help="1: the numbers of a release")
    asked.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 4))
    asked.add_argument("--fresh", action="store_true", help="forget what has ended before")
    asked.add_argument("--report", action="store_true", help="run nothing, add up what has ended")
    asked.add_argument("--where", type=Path, default=WHERE, help="state and report")
    given = asked.parse_args()
    names = [name for name in given.only.upper().split(",") if name]
    if unknown := set(names) - {trial.name for trial in TRIALS}:
        asked.error(f"no such trial: {', '.join(sorted(unknown))}")
    path = given.where / "state.jsonl"
    if given.fresh:
        path.unlink(missing_ok=True)
    state = State(path, code_of())
    run = Run(state, [t for t in TRIALS if not names or t.name in names], given.scale, given.jobs)
    if not given.report:
        run.run()
    report = run.report()
    report.write(given.where / "report.json")
    print(table(report))
    state.close()
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
