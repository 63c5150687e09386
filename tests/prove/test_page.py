"""The tables of the documentation: made from reports, and nothing else of a page is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import Curve, Figure, Results
from prove import page
from prove.report import Report, Told
from tests.conftest import ROOT
from tests.prove.counting import ran


def test_only_what_has_a_report_is_made_anew() -> None:
    """Other tables and all text around them stay."""
    text = "a\n<!-- made: one -->\nold\n<!-- end -->\nb\n<!-- made: two -->\nold\n<!-- end -->\n"

    assert text.replace("old", "new", 1) == page.renewed(text, {"one": lambda: "new"})
    assert text == page.renewed(text.replace("old\n", "", 1), {"one": lambda: "old"})


def test_the_sentence_of_a_release_counts_what_was_done(tmp_path: Path) -> None:
    """Kills, faults, power cuts, each with its number, and what was violated."""
    told = [
        Told(name, "t", "u", "w", 1, 1, done, [], {}, [], "1", 1.0)
        for name, done in (("T1", 700), ("T2", 300), ("T3", 10_000), ("T6", 2000), ("T7", 200))
    ]
    report = Report({"python": "3"}, "abc", 1.0, told)

    assert page.faults(report).startswith(
        "**10,300 kills, 900 faults of calls and disks, 2,000 power cuts: 0 violations"
    )
    assert "Everything was run." == page.left_out(report)
    assert "- T4: no disk" in page.left_out(ran(tmp_path).report())


def test_figures_stand_beside_their_budgets() -> None:
    """Held or missed, with the spread; and a row for each operation that grows."""
    figures = [Figure("x", "a / b", 1.0, 0.5, 0.4, 0.6, 3), Figure("x", "c", 1.0, 2.0, 2.0, 2.0, 3)]
    results = Results({"cores": "2"}, figures, [Curve("sweep", [10, 100], [0.5, 5.0], 1.0)], {})

    assert "| x: a / b | 0.50 | 0.40 to 0.60 | 1 | held |" in page.speed(results)
    assert "| x: c | 2.00 | 2.00 to 2.00 | 1 | **missed** |" in page.speed(results)
    assert "| sweep | 500.0 ms | 5,000.0 ms | 1.00 |" in page.growth(results)


@pytest.mark.parametrize("path", page.PAGES, ids=lambda path: path.name)
def test_pages_name_only_tables_there_are(path: Path) -> None:
    """A marker with a slip of the pen would never be filled."""
    names = {match[2] for match in page.MADE.finditer(path.read_text(encoding="utf-8"))}

    assert (
        set()
        != names
        <= {"faults", "left-out", "truth", "truth-agents", "cases", "speed", "growth"}
    )
    assert path.read_text(encoding="utf-8").count("<!-- made:") >= len(names)


def test_without_reports_nothing_is_made(tmp_path: Path) -> None:
    """And the pages are where they should be."""
    assert {} == page.made(tmp_path)
    assert all(path.is_relative_to(ROOT / "docs") for path in page.PAGES)
