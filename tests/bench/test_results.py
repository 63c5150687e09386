"""The report of the benchmarks: figures are recorded, combined and drawn."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import msgspec
import pytest

from bench import __main__ as runner
from bench import measure, plot
from bench.measure import Point, Verdict


def test_verdicts_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    """As they are printed."""
    measure.VERDICTS.clear()
    missed = measure.verdict("a / b", 1.5, 2) + measure.verdict("c / d", 3, 2)

    assert 1 == missed
    assert [Verdict("a / b", 1.5, 2), Verdict("c / d", 3, 2)] == measure.VERDICTS
    assert ["ok  ", "MISS"] == [line[:4] for line in capsys.readouterr().out.splitlines()]


def test_rounds_give_medians_and_spreads() -> None:
    """Of each figure by itself, in the order it was first given."""
    verdicts = [Verdict("b", 2, 9), Verdict("a", 1, 2), Verdict("a", 5, 2), Verdict("a", 3, 2)]
    first, second = runner.figures_of("x", verdicts)

    assert ("b", 2, 1) == (first.what, first.median, first.rounds)
    assert (3, 1, 5, 3, False) == (
        second.median,
        second.least,
        second.most,
        second.rounds,
        second.is_met,
    )


@pytest.mark.parametrize(("power", "expected"), [(0, 0.0), (1, 1.0), (2, 2.0)])
def test_a_slope_tells_how_a_cost_grows(power: int, expected: float) -> None:
    """Flat, linear, quadratic."""
    points = [Point("x", size, 0.01 * size**power) for size in (10, 30, 100)]

    assert expected == pytest.approx(measure.slope(points), abs=1e-9)


def test_a_benchmark_that_fails_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told; the others' figures, curves and plots are there."""
    good, bad = ModuleType("good"), ModuleType("bad")

    def measured() -> int:
        measure.POINTS.extend(Point("read <all>", size, size / 100) for size in (10, 100))
        return measure.verdict("a & b", 0.5, 1)

    def broken() -> int:
        raise RuntimeError("no peer")

    monkeypatch.setattr(good, "main", measured, raising=False)
    monkeypatch.setattr(bad, "main", broken, raising=False)
    monkeypatch.setitem(sys.modules, "bench.bench_good", good)
    monkeypatch.setitem(sys.modules, "bench.bench_bad", bad)
    monkeypatch.setattr(measure, "POINTS", [])
    runner.run(["good", "bad"], rounds=2, where=tmp_path)
    read = msgspec.json.decode((tmp_path / "results.json").read_bytes(), type=runner.Results)

    assert {"bad": "RuntimeError('no peer')"} == read.failed
    assert [("good", "a & b", 0.5, 2)] == [
        (f.bench, f.what, f.median, f.rounds) for f in read.figures
    ]
    assert [1.0] == [pytest.approx(curve.slope) for curve in read.curves]
    for name in ("budgets.svg", "growth.svg"):
        assert ET.parse(tmp_path / name).getroot().tag.endswith("svg")


def test_two_figures_of_one_name_fail_a_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The median of 122 MB, which is met, and of 1 GB, which is missed, would say met."""
    bench = ModuleType("double")

    def measured() -> int:
        return sum(measure.verdict("memory / 250 MB", ratio, 1) for ratio in (0.7, 0.9, 1.1))

    monkeypatch.setattr(bench, "main", measured, raising=False)
    monkeypatch.setitem(sys.modules, "bench.bench_double", bench)
    results = runner.run(["double"], rounds=2, where=tmp_path)

    assert "memory / 250 MB" in results.failed["double"]


def test_figures_of_other_benchmarks_stay_while_the_code_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a report can be made in parts; figures of other code are dropped."""
    monkeypatch.setattr(measure, "POINTS", [])
    for name, ratio in (("one", 1.0), ("two", 2.0)):
        bench = ModuleType(name)
        verdict = partial(measure.verdict, f"of {name}", ratio, 9)
        monkeypatch.setattr(bench, "main", verdict, raising=False)
        monkeypatch.setitem(sys.modules, f"bench.bench_{name}", bench)

    def run(code: str, name: str) -> list[tuple[str, float]]:
        monkeypatch.setattr(runner, "hash_code", lambda: code)
        runner.run([name], rounds=1, where=tmp_path)
        read = msgspec.json.decode((tmp_path / "results.json").read_bytes(), type=runner.Results)
        return [(figure.bench, figure.median) for figure in read.figures]

    assert [("one", 1.0)] == run("a", "one")
    assert [("one", 1.0), ("two", 2.0)] == run("a", "two")
    assert [("two", 2.0), ("one", 1.0)] == run("a", "one")
    assert [("two", 2.0)] == run("b", "two")


def test_a_plot_shows_what_is_over_its_budget() -> None:
    """In another colour, right of the line."""
    drawn = plot.budgets([("fine", 0.5, 0.6, 0.7), ("over", 1.5, 2.0, 3.0)])

    assert (1, 1) == (
        drawn.count(f'r="4" fill="{plot.MET}"'),
        drawn.count(f'fill="{plot.MISSED}"'),
    )
    assert "over" in drawn
