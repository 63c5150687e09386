"""Write the tables of the documentation from the reports: `python -m prove.page`.

A table stands between `<!-- made: NAME -->` and `<!-- end -->`. What has no report is left as it
is, so that a page can be renewed in parts.
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
from prove.run import TRIALS
from prove.state import ROOT, code_of
from truth import table as truth

PAGES = (ROOT / "docs" / "proof.md", ROOT / "docs" / "why.md")
MADE = re.compile(r"(<!-- made: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def faults(told: proof.Report) -> str:
    """The trials, and the one sentence of a release."""
    done = {trial.name: trial.done for trial in told.trials if not trial.missing}
    kills, broken = done.get("T2", 0) + done.get("T3", 0), done.get("T1", 0) + done.get("T7", 0)
    counts = [
        (kills, "kills"),
        (broken, "faults of calls and disks"),
        (done.get("T6", 0), "power cuts"),
        (done.get("T4", 0), "cuts of a file"),
        (done.get("T5", 0), "damages"),
        (done.get("T12", 0), "random inputs"),
    ]
    said = ", ".join(f"{count:,} {what}" for count, what in counts if count)
    head = f"**{said}: {told.violations} violations of Invariant I.**"
    about = ", ".join(f"{name} {value}" for name, value in told.machine.items())
    scale = f"`make prove SCALE={told.scale:g}`" if told.scale != 1 else "`make prove`"
    return f"{head}\n\n{proof.markdown(told)}\n\nMade by {scale}: {about}, code `{told.code}`."


def left_out(told: proof.Report) -> str:
    """What could not be run, and why."""
    out = [f"- {t.name}: {t.missing}" for t in told.trials if t.missing]
    out += [f"- {t.name}: {why}" for t in told.trials for why in t.skipped]
    out += [f"- {t.name}: {t.ended} of {t.parts} parts" for t in told.trials if t.ended < t.parts]
    return "\n".join(out) or "Everything was run."


def not_repeated(told: proof.Report, code: str) -> str:
    """Which trials have not been run with this code at the numbers of a release."""
    ended = [t.name for t in told.trials if t.ended == t.parts and not t.missing]
    if told.code != code:
        return f"Made with other code (`{told.code}`, this is `{code}`): no trial was repeated."
    if told.scale != 1:
        return f"Made at {told.scale:g} of the numbers of a release: no trial was run at them."
    left = [trial.name for trial in TRIALS if trial.name not in ended]
    if left:
        return f"Not run with this code at the numbers of a release: {', '.join(left)}."
    return "All trials were run with this code, at the numbers of a release."


def speed(results: Results) -> str:
    """Every figure, losses first; then what could not be measured."""
    rows = ["| figure | median | spread | budget | |", "| --- | --- | --- | --- | --- |"]
    for one in sorted(results.figures, key=lambda one: one.held):
        verdict = "held" if one.held else "**missed**"
        what = f"{one.bench}: {one.what}".replace("|", "\\|")
        spread = f"{one.least:.2f} to {one.most:.2f}"
        rows.append(f"| {what} | {one.median:.2f} | {spread} | {one.budget:g} | {verdict} |")
    about = ", ".join(f"{name} {value}" for name, value in results.machine.items())
    failed = [f"Not measured: {name}: {why}." for name, why in results.failed.items()]
    return "\n".join([*rows, "", f"Made by `make bench`: {about}.", *failed])


def growth(results: Results) -> str:
    """How costs grow."""
    sizes = sorted({size for curve in results.curves for size in curve.megabytes})
    heads = ["operation", *(f"{size:g} MB" for size in sizes), "slope"]
    rows = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for curve in results.curves:
        told = dict(zip(curve.megabytes, curve.seconds, strict=True))
        cells = [f"{told[size] * 1e3:,.1f} ms" if size in told else "" for size in sizes]
        rows.append("| " + " | ".join([curve.operation, *cells, f"{curve.slope:.2f}"]) + " |")
    return "\n".join(rows)


def made(folder: Path) -> dict[str, Callable[[], str]]:
    """What can be made of the reports that are there."""
    out: dict[str, Callable[[], str]] = {}
    if (path := folder / ".prove" / "report.json").exists():
        trials = msgspec.json.decode(path.read_bytes(), type=proof.Report)
        out |= {"faults": lambda: faults(trials), "left-out": lambda: left_out(trials)}
        out["not-repeated"] = lambda: not_repeated(trials, code_of())
    if (path := folder / ".truth" / "report.json").exists():
        told = msgspec.json.decode(path.read_bytes(), type=truth.Report)
        out |= {"truth": lambda: truth.summary(told), "cases": lambda: truth.details(told)}
        out["truth-agents"] = lambda: truth.by_agent(told)
    if (path := folder / ".bench" / "results.json").exists():
        results = msgspec.json.decode(path.read_bytes(), type=Results)
        out |= {"speed": lambda: speed(results), "budgets": lambda: budgets.table(results)}
        if results.curves:
            out["growth"] = lambda: growth(results)
    return out


def renewed(text: str, tables: dict[str, Callable[[], str]]) -> str:
    """The text of a page with its tables made anew."""

    def one(match: re.Match[str]) -> str:
        make = tables.get(match[2])
        return match[0] if make is None else f"{match[1]}{make()}\n{match[3]}"

    return MADE.sub(one, text)


def main() -> int:
    """Renew all pages."""
    asked = argparse.ArgumentParser(prog="python -m prove.page", description=__doc__)
    asked.add_argument(
        "--reports", type=Path, default=ROOT, help="where .prove, .truth, .bench lie"
    )
    tables = made(asked.parse_args().reports)
    for page in PAGES:
        page.write_text(renewed(page.read_text(encoding="utf-8"), tables), encoding="utf-8")
    print(f"made: {', '.join(sorted(tables)) or 'nothing, there is no report'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
