"""The tables of the documentation: made from reports, and nothing else of a page is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import NAMES, Curve, Figure, Results
from prove import budgets, page
from prove.report import Report, TrialResult, describe_result
from prove.trial import Outcome, Part
from tests.conftest import ROOT
from tests.prove.counting import run_trials


def test_only_what_has_a_report_is_made_anew() -> None:
    """Other tables and all text around them stay."""
    text = "a\n<!-- made: one -->\nold\n<!-- end -->\nb\n<!-- made: two -->\nold\n<!-- end -->\n"

    assert text.replace("old", "new", 1) == page.replace_tables(text, {"one": lambda: "new"})
    assert text == page.replace_tables(text.replace("old\n", "", 1), {"one": lambda: "old"})


def test_the_sentence_of_a_release_counts_what_was_done(tmp_path: Path) -> None:
    """Kills, faults, power cuts, each with its number, and what was violated."""
    results = [
        TrialResult(name, "t", "u", "w", 1, 1, done, [], {}, [], "1", 1.0)
        for name, done in (("T1", 700), ("T2", 300), ("T3", 10_000), ("T6", 2000), ("T7", 200))
    ]
    report = Report({"python": "3"}, "abc", 1.0, results)

    assert page.faults(report).startswith(
        "**10,300 kills, 900 faults of calls and disks, 2,000 power cuts: 0 violations"
    )
    assert "Everything was run." == page.left_out(report)
    assert "- T4: no disk" in page.left_out(run_trials(tmp_path).report())


def test_a_trial_that_could_not_run_is_not_listed_as_passed(tmp_path: Path) -> None:
    """It is named as not run and counts nowhere; one that ended before a tool was gone has run."""
    run = run_trials(tmp_path)
    report = run.report()
    row = next(line for line in page.faults(report).splitlines() if line.startswith("| T4 "))
    run.state.add("T4", Part("four"), Outcome(1), 1.0)
    later = run.report()
    results = {t.name: t for t in later.trials}

    assert row.endswith("| not run: no disk |")
    assert "violations" not in row
    assert "T4" in page.not_repeated(report, lambda _: "abc")
    assert "0 violations" == describe_result(results["T4"])
    assert "T4" not in page.left_out(later)


def test_trials_of_other_code_are_said_to_be_so() -> None:
    """Each by its own code; nor does a tenth of a release count as one."""
    results = [
        TrialResult(name, "t", "u", "w", 1, 1, 1, [], {}, [], "1", 1.0, code=code)
        for name, code in (("T1", "abc"), ("T2", "old"))
    ]
    report = Report({}, "abc", 1.0, results)
    sentence = page.not_repeated(report, lambda _: "abc")

    assert "T1," not in sentence
    assert "T2, T3" in sentence
    report.scale = 0.1
    assert "no trial was run" in page.not_repeated(report, lambda _: "abc")


def test_every_budget_stands_on_the_page_and_losses_come_first() -> None:
    """Those without a figure too, before those that held."""
    figures = [
        Figure("cli", "thence --help, 50 ms here", 5.5, 4.4, 4.4, 4.4, 1),
        Figure("redact", "40 MB/s / lines of a log", 1.0, 2.0, 2.0, 2.0, 1),
    ]
    lines = budgets.table(Results({}, figures, [], {})).splitlines()[2:]
    verdicts = [line.rpartition(" | ")[2] for line in lines]

    assert len(budgets.BUDGETS) == len(lines)
    assert ["**missed** 1 of 1 |", "no figure |", "met |"] == list(dict.fromkeys(verdicts))
    assert "thence --help, 50 ms here 0.80" in lines[-1]
    assert lines[0].startswith("| redaction |")


def test_every_budget_has_a_benchmark_or_what_shows_it() -> None:
    """Each names benchmarks that there are, and one of their figures."""
    for budget in budgets.BUDGETS:
        names = budget.bench.split("|") if budget.bench else []

        assert names or budget.evidence
        assert {*names} <= {*NAMES}


def test_figures_stand_beside_their_budgets() -> None:
    """Held or missed, with the spread; and a row for each operation that grows."""
    figures = [Figure("x", "a / b", 1.0, 0.5, 0.4, 0.6, 3), Figure("x", "c", 1.0, 2.0, 2.0, 2.0, 3)]
    results = Results({"cores": "2"}, figures, [Curve("sweep", [10, 100], [0.5, 5.0], 1.0)], {})

    assert "| x: a / b | 0.50 | 0.40 to 0.60 | 1 | met |" in page.speed(results)
    assert "| x: c | 2.00 | 2.00 to 2.00 | 1 | **missed** |" in page.speed(results)
    assert "| sweep | 500.0 ms | 5,000.0 ms | 1.00 |" in page.growth(results)


@pytest.mark.parametrize("path", page.PAGES, ids=lambda path: path.name)
def test_pages_name_only_tables_there_are(path: Path) -> None:
    """A marker with a slip of the pen would never be filled."""
    names = {match[2] for match in page.BLOCK.finditer(path.read_text(encoding="utf-8"))}

    assert (
        set()
        != names
        <= {"faults", "left-out", "not-repeated"}
        | {"truth", "truth-agents", "cases", "speed", "budgets", "growth"}
    )
    assert path.read_text(encoding="utf-8").count("<!-- made:") >= len(names)


def test_without_reports_nothing_is_made(tmp_path: Path) -> None:
    """And the pages are where they should be."""
    assert {} == page.render_tables(tmp_path)
    assert all(path.is_relative_to(ROOT / "docs") for path in page.PAGES)
