"""Run the benchmarks: `python -m bench [--rounds N] [NAME ...]`. Figures are ratios within one run.

All verdicts go to `.bench/results.json` with their medians and spreads over the rounds, and to two
plots beside it: `budgets.svg`, and `growth.svg` where `growth` was among the benchmarks.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import statistics
import sys
import traceback
from pathlib import Path

import msgspec

from bench import measure, plot
from bench.measure import Point, Verdict

ROOT = Path(__file__).resolve().parent.parent
NAMES = sorted(
    path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py")
)


class Figure(msgspec.Struct):
    """One figure over all rounds."""

    bench: str
    what: str
    budget: float
    median: float
    least: float
    most: float
    rounds: int

    @property
    def held(self) -> bool:
        """Whether its median is within the budget."""
        return self.median <= self.budget


class Curve(msgspec.Struct):
    """How an operation's cost grows with what is kept."""

    operation: str
    megabytes: list[float]
    seconds: list[float]
    slope: float


class Results(msgspec.Struct):
    """A whole run."""

    machine: dict[str, str]
    figures: list[Figure]
    curves: list[Curve]
    failed: dict[str, str]
    """Benchmarks that could not be run, and why."""


def figures_of(bench: str, verdicts: list[Verdict]) -> list[Figure]:
    """Put the rounds of each figure together, in the order they were first given."""
    by: dict[tuple[str, float], list[float]] = {}
    for one in verdicts:
        by.setdefault((one.what, one.budget), []).append(one.ratio)
    return [
        Figure(bench, what, budget, statistics.median(all_), min(all_), max(all_), len(all_))
        for (what, budget), all_ in by.items()
    ]


def curves_of(points: list[Point]) -> list[Curve]:
    """Put the points of each operation together; of several rounds the median counts."""
    by: dict[str, dict[float, list[float]]] = {}
    for point in points:
        by.setdefault(point.operation, {}).setdefault(point.megabytes, []).append(point.seconds)
    out = []
    for operation, sizes in by.items():
        middle = [Point(operation, size, statistics.median(t)) for size, t in sorted(sizes.items())]
        grows = measure.slope(middle) if len(middle) > 1 else 0.0
        out.append(
            Curve(operation, [p.megabytes for p in middle], [p.seconds for p in middle], grows)
        )
    return out


def run(names: list[str], rounds: int) -> Results:
    """Run benchmarks; one that fails is told, and the others go on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    machine = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": str(os.cpu_count()),
        "memory": f"{memory / 2**30:.0f} GiB",
        "load": f"{os.getloadavg()[0]:.1f}",
    }
    results = Results(machine, [], [], {})
    for name in names:
        measure.VERDICTS.clear()
        for _ in range(rounds):
            try:
                importlib.import_module(f"bench.bench_{name}").main()
            except Exception as error:  # noqa: BLE001 - told in the report, with its trace here
                traceback.print_exc()
                results.failed[name] = repr(error)[:300]
                break
        results.figures += figures_of(name, measure.VERDICTS)
    results.curves = curves_of(measure.POINTS)
    return results


def write(results: Results, folder: Path) -> None:
    """Write the report and its plots."""
    folder.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.format(msgspec.json.encode(results), indent=2)
    (folder / "results.json").write_bytes(encoded + b"\n")
    rows = [
        (f"{f.bench}: {f.what}", f.least / f.budget, f.median / f.budget, f.most / f.budget)
        for f in results.figures
        if f.budget > 0
    ]
    (folder / "budgets.svg").write_text(plot.budgets(rows), encoding="utf-8")
    if results.curves:
        curves = {
            c.operation: list(zip(c.megabytes, c.seconds, strict=True)) for c in results.curves
        }
        drawn = plot.growth(curves, {c.operation: c.slope for c in results.curves})
        (folder / "growth.svg").write_text(drawn, encoding="utf-8")


def main() -> int:
    """Run the named benchmarks, or all; 1 when a budget was missed or one could not be run."""
    asked = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    asked.add_argument("names", nargs="*", default=NAMES, metavar="NAME", help=", ".join(NAMES))
    asked.add_argument("--rounds", type=int, default=1, help="how often each is run")
    asked.add_argument("--where", type=Path, default=ROOT / ".bench", help="report and plots")
    given = asked.parse_args()
    if unknown := set(given.names) - set(NAMES):
        asked.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    results = run(given.names, given.rounds)
    write(results, given.where)
    missed = [figure for figure in results.figures if not figure.held]
    print(
        f"\n{len(results.figures) - len(missed)} of {len(results.figures)} budgets held, "
        f"{given.rounds} rounds; {given.where / 'results.json'}"
    )
    for figure in missed:
        print(
            f"MISS {figure.bench}: {figure.what}: {figure.median:.2f} "
            f"({figure.least:.2f} to {figure.most:.2f}), budget {figure.budget:g}"
        )
    for name, why in results.failed.items():
        print(f"FAILED {name}: {why}")
    return 1 if missed or results.failed else 0


if __name__ == "__main__":
    sys.exit(main())
