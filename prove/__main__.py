"""Run the trials: `python -m prove [--only T3,T6] [--scale 0.1] [--jobs N] [--fresh]`.

Every finished part is recorded in `.prove/state.jsonl`. A run that was killed continues with the
parts that are missing and reaches the same totals. On a new machine it continues with what
`docs/trials.jsonl` says was finished with this code. The report is `.prove/report.json`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from prove.report import table
from prove.run import TRIALS, Run, code_of
from prove.state import KEPT_TRIALS, ROOT, start_state

DEFAULT_FOLDER = ROOT / ".prove"


def main() -> int:
    """Run the trials and write the report; return 1 on a violation or if a trial failed."""
    parser = argparse.ArgumentParser(prog="python -m prove", description=__doc__)
    parser.add_argument("--only", default="", help="names of trials, separated by commas")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="share of the trials; 1: as for a release"
    )
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 4))
    parser.add_argument(
        "--fresh", action="store_true", help="discard finished parts and start again"
    )
    parser.add_argument(
        "--report", action="store_true", help="run nothing; write the report of finished parts"
    )
    parser.add_argument(
        "--where", type=Path, default=DEFAULT_FOLDER, help="folder of state and report"
    )
    options = parser.parse_args()
    names = [name for name in options.only.upper().split(",") if name]
    if unknown := set(names) - {trial.name for trial in TRIALS}:
        parser.error(f"no such trial: {', '.join(sorted(unknown))}")
    state = start_state(options.where, KEPT_TRIALS, code_of, fresh=options.fresh)
    trial_run = Run(
        state, [t for t in TRIALS if not names or t.name in names], options.scale, options.jobs
    )
    if not options.report:
        trial_run.run()
    report = trial_run.report()
    report.write(options.where / "report.json")
    print(table(report))
    state.close()
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
