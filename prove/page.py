"""Write the tables of the documentation from the reports: `python -m prove.page`.

A table stands between `<!-- made: NAME -->` and `<!-- end -->`. A table without a report is left
as it is, so that a page can be updated in parts. What trials have finished goes to
`docs/trials.jsonl`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench.__main__ import Results
from prove import budgets
from prove import report as proof
from prove.run import TRIALS, code_of
from prove.state import KEPT_TRIALS, ROOT, State
from truth import table as truth

PAGES = (ROOT / "docs" / "proof.md", ROOT / "docs" / "why.md")
BLOCK = re.compile(r"(<!-- made: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def faults(report: proof.Report) -> str:
    """Return the sentence with the totals, and the table of trials."""
    done = {trial.name: trial.done for trial in report.trials if not trial.missing}
    kills, broken = done.get("T2", 0) + done.get("T3", 0), done.get("T1", 0) + done.get("T7", 0)
    counts = [
        (kills, "kills"),
        (broken, "faults of calls and disks"),
        (done.get("T6", 0), "power cuts"),
        (done.get("T4", 0), "cuts of a file"),
        (done.get("T5", 0), "damages"),
        (done.get("T12", 0), "random inputs"),
    ]
    total = ", ".join(f"{count:,} {what}" for count, what in counts if count)
    head = f"**{total}: {report.violations} violations of Invariant I.**"
    about = ", ".join(f"{name} {value}" for name, value in report.machine.items())
    scale = f"`make prove SCALE={report.scale:g}`" if report.scale != 1 else "`make prove`"
    return f"{head}\n\n{proof.markdown(report)}\n\nMade by {scale}: {about}, code `{report.code}`."


def left_out(report: proof.Report) -> str:
    """Return a list of what was not run, and why."""
    items = [f"- {t.name}: {t.missing}" for t in report.trials if t.missing]
    items += [f"- {t.name}: {why}" for t in report.trials for why in t.skipped]
    items += [
        f"- {t.name}: {t.finished} of {t.parts} parts"
        for t in report.trials
        if t.finished < t.parts
    ]
    return "\n".join(items) or "Everything was run."


def not_repeated(report: proof.Report, code_of: Callable[[str], str]) -> str:
    """Return which trials were not run with this code as often as a release requires."""
    if report.scale != 1:
        return f"Made at {report.scale:g} of the numbers of a release: no trial was run at them."
    repeated = {
        t.name
        for t in report.trials
        if t.finished == t.parts and not t.missing and t.code == code_of(t.name)
    }
    missing = [trial.name for trial in TRIALS if trial.name not in repeated]
    if missing:
        return f"Not run with this code at the numbers of a release: {', '.join(missing)}."
    return "All trials were run with this code, at the numbers of a release."


def speed(results: Results) -> str:
    """Return the table of all figures, missed budgets first, and what could not be measured."""
    rows = ["| figure | median | spread | budget | |", "| --- | --- | --- | --- | --- |"]
    for figure in sorted(results.figures, key=lambda figure: figure.is_met):
        verdict = "met" if figure.is_met else "**missed**"
        what = f"{figure.bench}: {figure.what}".replace("|", "\\|")
        spread = f"{figure.least:.2f} to {figure.most:.2f}"
        rows.append(f"| {what} | {figure.median:.2f} | {spread} | {figure.budget:g} | {verdict} |")
    about = ", ".join(f"{name} {value}" for name, value in results.machine.items())
    failed = [f"Not measured: {name}: {why}." for name, why in results.failed.items()]
    return "\n".join([*rows, "", f"Made by `make bench`: {about}.", *failed])


def growth(results: Results) -> str:
    """Return the table of how costs grow with the size of the corpus."""
    sizes = sorted({size for curve in results.curves for size in curve.megabytes})
    heads = ["operation", *(f"{size:g} MB" for size in sizes), "slope"]
    rows = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for curve in results.curves:
        seconds_at = dict(zip(curve.megabytes, curve.seconds, strict=True))
        cells = [
            f"{seconds_at[size] * 1e3:,.1f} ms" if size in seconds_at else "" for size in sizes
        ]
        rows.append("| " + " | ".join([curve.operation, *cells, f"{curve.slope:.2f}"]) + " |")
    return "\n".join(rows)


def render_tables(folder: Path) -> dict[str, Callable[[], str]]:
    """Return a function for each table that the existing reports allow."""
    tables: dict[str, Callable[[], str]] = {}
    if (path := folder / ".prove" / "report.json").exists():
        trials = msgspec.json.decode(path.read_bytes(), type=proof.Report)
        tables |= {"faults": lambda: faults(trials), "left-out": lambda: left_out(trials)}
        tables["not-repeated"] = lambda: not_repeated(trials, code_of)
    if (path := folder / ".truth" / "report.json").exists():
        answers = msgspec.json.decode(path.read_bytes(), type=truth.Report)
        tables |= {"truth": lambda: truth.summary(answers), "cases": lambda: truth.details(answers)}
        tables["truth-agents"] = lambda: truth.by_agent(answers)
    if (path := folder / ".bench" / "results.json").exists():
        results = msgspec.json.decode(path.read_bytes(), type=Results)
        tables |= {"speed": lambda: speed(results), "budgets": lambda: budgets.table(results)}
        if results.curves:
            tables["growth"] = lambda: growth(results)
    return tables


def replace_tables(text: str, tables: dict[str, Callable[[], str]]) -> str:
    """Return the text of a page with its tables replaced."""

    def replace(match: re.Match[str]) -> str:
        make = tables.get(match[2])
        return match[0] if make is None else f"{match[1]}{make()}\n{match[3]}"

    return BLOCK.sub(replace, text)


def keep_trials(folder: Path, target: Path, code_of: Callable[[str], str]) -> None:
    """Copy the finished parts of trials to where the pages are: they outlive this machine."""
    if (folder / ".prove" / "state.jsonl").exists():
        state = State(folder / ".prove" / "state.jsonl", code_of)
        state.export(target)
        state.close()


def main() -> int:
    """Write the tables of all pages, and keep the finished parts of trials."""
    parser = argparse.ArgumentParser(prog="python -m prove.page", description=__doc__)
    parser.add_argument(
        "--reports", type=Path, default=ROOT, help="folder with .prove, .truth and .bench"
    )
    reports = parser.parse_args().reports
    tables = render_tables(reports)
    keep_trials(reports, KEPT_TRIALS, code_of)
    for page in PAGES:
        page.write_text(replace_tables(page.read_text(encoding="utf-8"), tables), encoding="utf-8")
    print(f"tables written: {', '.join(sorted(tables)) or 'none, there is no report'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
