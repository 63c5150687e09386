"""The performance budgets of the design, each with its figures from a run of the benchmarks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from bench.__main__ import Figure, Results


class Budget(NamedTuple):
    """A performance budget, and which figures of the benchmarks belong to it."""

    operation: str
    limit: str
    bench: str
    """Benchmarks that measure it; empty where none does."""
    pattern: str
    """Regular expression that matches the names of its figures."""
    evidence: str = ""
    """What is shown where no benchmark has measured it."""


BUDGETS = (
    Budget("record one 1 KB event", "at most 1.3 times a bare loop", "journal", r"^record one"),
    Budget(
        "group commit", "1.4 times with 8 threads, 2 times with 32", "journal", r"threads' rate$"
    ),
    Budget(
        "resume, compacted file of any size",
        "at most twice parsing the live lines, flat",
        "journal|growth",
        r"^read back \d.*(live lines|read back)|resume, compacted",
    ),
    Budget(
        "one new line in a session of 72,000 events",
        "work within 1.2 times that of a session of 9,000",
        "growth",
        r"^one new line at",
        "python -m bench growth",
    ),
    Budget(
        "watch 50 files, 20 lines a second each",
        "lag p99 below 1 s, below half a core",
        "watch",
        r"lag|core",
    ),
    Budget(
        "cold sweep, 120 MB and 1 GB",
        "at most half of agentsview's time; 250 MB over all processes",
        "agentsview|sweep",
        r"^first import|^memory of all",
    ),
    Budget(
        "first sessions of a first sweep of 1 GB",
        "below 3 s",
        "sweep",
        r"^first sessions",
        "python -m bench sweep, with BENCH_BIG=1 at 1 GB",
    ),
    Budget(
        "nothing new; one line more in ten files",
        "at most agentsview's time",
        "agentsview",
        r"^nothing new|^one new line",
    ),
    Budget(
        "search at 1 GB",
        "p95 below 20 ms in process, 40 ms over HTTP",
        "sweep|serve",
        r"^p95 of (\w+ words|search over HTTP)",
    ),
    Budget("disk", "at most 0.6 bytes for a byte of source", "sweep", r"^disk / source"),
    Budget("redaction", "at least 40 MB/s", "redact", r"^40 MB/s"),
    Budget(
        "start of a command; hook",
        "60 ms; 30 ms more than bare Python's 11",
        "cli",
        r"--help|^hook",
    ),
    Budget("100 clients of the live stream", "p99 below 15 ms", "serve", r"^p99 of publishing"),
    Budget(
        "make test; make quick, on 2 quiet cores",
        "5 min; 45 s",
        "tests",
        r"^make ",
        "python -m bench tests",
    ),
)


def figures_of(budget: Budget, results: Results) -> list[Figure]:
    """Return the figures that belong to a budget."""
    if not budget.bench:
        return []
    return [
        figure
        for figure in results.figures
        if re.fullmatch(budget.bench, figure.bench) and re.search(budget.pattern, figure.what)
    ]


def table(results: Results) -> str:
    """Return a Markdown table of all budgets and their figures as shares; missed ones first."""
    rows = sorted(_rows(results), key=lambda row: row[0])
    head = ["| operation | budget | figures, as shares of the budget | |", "| --- |" + " --- |" * 3]
    return "\n".join([*head, *(line for _, line in rows)])


def _rows(results: Results) -> Iterator[tuple[int, str]]:
    for budget in BUDGETS:
        figures = figures_of(budget, results)
        misses = [figure for figure in figures if not figure.is_met]
        if misses:
            rank, verdict = 0, f"**missed** {len(misses)} of {len(figures)}"
        elif figures:
            rank, verdict = 2, "met"
        else:
            rank, verdict = 1, "no figure"
        shares = "; ".join(
            f"{figure.what} {_share(figure)}"
            for figure in sorted(figures, key=lambda figure: figure.is_met)
        )
        cells = (budget.operation, budget.limit, shares or budget.evidence, verdict)
        yield rank, "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _share(figure: Figure) -> str:
    """Return a figure as a share of its budget."""
    return f"{figure.median / figure.budget:.2f}" if figure.budget else f"{figure.median:g}"
