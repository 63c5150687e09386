"""The budgets of the design, each with the figures that a run of the benchmarks gave for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from bench.__main__ import Figure, Results


class Budget(NamedTuple):
    """One row of the plan, and which figures show it."""

    operation: str
    wanted: str
    bench: str
    """Benchmarks that measure it; empty where none does."""
    pattern: str
    """Which of their figures, as a regular expression."""
    shown_by: str = ""
    """What shows it where no benchmark does."""


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
        "",
        "",
        "tests that count executed lines: test_a_line_more_costs_the_same_at_288_000_events",
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
        "agentsview|sweep|great",
        r"^first reading|^memory of all",
    ),
    Budget(
        "first sessions of a first sweep of 1 GB",
        "below 3 s",
        "sweep|great",
        r"first session",
        "tests of the order: tests/cli/test_first_sweep.py; no time yet",
    ),
    Budget(
        "nothing new; one line more in ten files",
        "at most agentsview's time",
        "agentsview",
        r"^nothing new|^a line more",
    ),
    Budget(
        "search at 1 GB",
        "p95 below 20 ms in process, 40 ms over HTTP",
        "sweep|great|serve",
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
        "",
        "",
        "the last line that each of them prints",
    ),
)


def figures_of(budget: Budget, results: Results) -> list[Figure]:
    """Return the figures that show a budget."""
    if not budget.bench:
        return []
    return [
        one
        for one in results.figures
        if re.fullmatch(budget.bench, one.bench) and re.search(budget.pattern, one.what)
    ]


def table(results: Results) -> str:
    """Return every budget with its figures, as shares of what is allowed; losses first."""
    rows = sorted(_rows(results), key=lambda row: row[0])
    head = ["| operation | budget | figures, as shares of the budget | |", "| --- |" + " --- |" * 3]
    return "\n".join([*head, *(line for _, line in rows)])


def _rows(results: Results) -> Iterator[tuple[int, str]]:
    for budget in BUDGETS:
        figures = figures_of(budget, results)
        missed = [one for one in figures if not one.held]
        if missed:
            rank, verdict = 0, f"**missed** {len(missed)} of {len(figures)}"
        elif figures:
            rank, verdict = 2, "held"
        else:
            rank, verdict = 1, "no figure"
        shares = "; ".join(
            f"{one.what} {_share(one)}" for one in sorted(figures, key=lambda one: one.held)
        )
        cells = (budget.operation, budget.wanted, shares or budget.shown_by, verdict)
        yield rank, "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _share(figure: Figure) -> str:
    """Return how much of its budget a figure takes."""
    return f"{figure.median / figure.budget:.2f}" if figure.budget else f"{figure.median:g}"
