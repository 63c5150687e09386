"""Run the benchmarks: `python -m bench [--rounds N] [NAME ...]`. Figures are ratios within one run.

All figures go to `.bench/results.json`, with medians and spreads over the rounds, and to two plots
beside it: `budgets.svg`, and `growth.svg` if `growth` was among the benchmarks. Figures of other
benchmarks stay in the report if they were made with the same code.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import statistics
import sys
import traceback
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import msgspec

from bench import measure, plot
from bench.measure import Point, Verdict
from prove.state import hash_code

ROOT = Path(__file__).resolve().parent.parent
NAMES = sorted(
    path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py")
)


class Figure(msgspec.Struct):
    """A figure over all rounds."""

    bench: str
    what: str
    budget: float
    median: float
    least: float
    most: float
    rounds: int

    @property
    def is_met(self) -> bool:
        """Return whether the median is within the budget."""
        return self.median <= self.budget


class Curve(msgspec.Struct):
    """How the cost of an operation grows with the size of the corpus."""

    operation: str
    megabytes: list[float]
    seconds: list[float]
    slope: float


class Results(msgspec.Struct):
    """The results of a run."""

    machine: dict[str, str]
    figures: list[Figure]
    curves: list[Curve]
    failed: dict[str, str]
    """Benchmarks that failed, and why."""
    code: str = ""
    """A hash of the code that was measured."""


def load_others(folder: Path, names: Collection[str], code: str) -> Results:
    """Return what the report holds of benchmarks with other names, if its code is the same."""
    path = folder / "results.json"
    empty = Results({}, [], [], {}, code)
    report = msgspec.json.decode(path.read_bytes(), type=Results) if path.exists() else empty
    if report.code != code:
        return empty
    return Results(
        {},
        [figure for figure in report.figures if figure.bench not in names],
        [] if "growth" in names else report.curves,
        {name: why for name, why in report.failed.items() if name not in names},
        code,
    )


def check_names(verdicts: list[Verdict]) -> None:
    """Raise if one round has two figures of one name: their median would hide a missed budget."""
    counts = Counter((verdict.what, verdict.budget) for verdict in verdicts)
    if repeated := [what for (what, _), count in counts.items() if count > 1]:
        raise ValueError(f"figures with the same name: {', '.join(repeated)}")


def figures_of(bench: str, verdicts: list[Verdict]) -> list[Figure]:
    """Return each figure over its rounds, in the order of their first appearance."""
    ratios: dict[tuple[str, float], list[float]] = {}
    for verdict in verdicts:
        ratios.setdefault((verdict.what, verdict.budget), []).append(verdict.ratio)
    return [
        Figure(
            bench, what, budget, statistics.median(values), min(values), max(values), len(values)
        )
        for (what, budget), values in ratios.items()
    ]


def curves_of(points: list[Point]) -> list[Curve]:
    """Return the curve of each operation; a point is the median of its rounds."""
    times: dict[str, dict[float, list[float]]] = {}
    for point in points:
        times.setdefault(point.operation, {}).setdefault(point.megabytes, []).append(point.seconds)
    curves = []
    for operation, sizes in times.items():
        medians = [
            Point(operation, size, statistics.median(t)) for size, t in sorted(sizes.items())
        ]
        growth = measure.slope(medians) if len(medians) > 1 else 0.0
        curves.append(
            Curve(operation, [p.megabytes for p in medians], [p.seconds for p in medians], growth)
        )
    return curves


def run(names: list[str], rounds: int, where: Path) -> Results:
    """Run benchmarks and return the results; a failing one is reported, the others continue.

    The report is written after each benchmark, so that a run that is stopped loses only one.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    machine = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": str(os.cpu_count()),
        "memory": f"{memory / 2**30:.0f} GiB",
        "load": f"{os.getloadavg()[0]:.1f}",
    }
    results = load_others(where, names, hash_code())
    results.machine = machine
    for name in names:
        measure.VERDICTS.clear()
        for _ in range(rounds):
            earlier = len(measure.VERDICTS)
            try:
                importlib.import_module(f"bench.bench_{name}").main()
                check_names(measure.VERDICTS[earlier:])
            except Exception as error:  # noqa: BLE001 - the report has it, the trace is printed
                traceback.print_exc()
                results.failed[name] = repr(error)[:300]
                break
        results.figures += figures_of(name, measure.VERDICTS)
        results.curves = curves_of(measure.POINTS) or results.curves
        write(results, where)
    return results


def write(results: Results, folder: Path) -> None:
    """Write the report and its plots."""
    folder.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.format(msgspec.json.encode(results), indent=2)
    (folder / "results.json").write_bytes(encoded + b"\n")
    shares = [
        (f"{f.bench}: {f.what}", f.least / f.budget, f.median / f.budget, f.most / f.budget)
        for f in results.figures
        if f.budget > 0
    ]
    (folder / "budgets.svg").write_text(plot.budgets(shares), encoding="utf-8")
    if results.curves:
        curves = {
            c.operation: list(zip(c.megabytes, c.seconds, strict=True)) for c in results.curves
        }
        svg = plot.growth(curves, {c.operation: c.slope for c in results.curves})
        (folder / "growth.svg").write_text(svg, encoding="utf-8")


def main() -> int:
    """Run the named benchmarks, or all; return 1 if a budget was missed or a benchmark failed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--rounds", type=int, default=1, help="how often each benchmark runs")
    parser.add_argument(
        "--where", type=Path, default=ROOT / ".bench", help="folder of report and plots"
    )
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    results = run(options.names, options.rounds, options.where)
    misses = [figure for figure in results.figures if not figure.is_met]
    print(
        f"\n{len(results.figures) - len(misses)} of {len(results.figures)} budgets met, "
        f"rounds: {options.rounds}; report: {options.where / 'results.json'}"
    )
    for figure in misses:
        print(
            f"MISS {figure.bench}: {figure.what}: {figure.median:.2f} "
            f"({figure.least:.2f} to {figure.most:.2f}), budget {figure.budget:g}"
        )
    for name, why in results.failed.items():
        print(f"FAILED {name}: {why}")
    return 1 if misses or results.failed else 0


if __name__ == "__main__":
    sys.exit(main())
