"""A run of the proof: it can be killed, goes on, and comes to the same totals."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import prove.run
from prove import suites
from prove.page import keep_trials
from prove.report import Report, TrialResult, describe_result, markdown, table
from prove.run import code_of
from prove.state import State, find_imported, hash_code, hash_files, start_state
from prove.trial import Outcome, Part, Trial, sample_evenly, split_rounds
from tests.conftest import ROOT
from tests.prove import counting
from tests.prove.counting import run_trials

TIMEOUT_S = 60.0


def totals(report: Report) -> list[tuple[Any, ...]]:
    """What two runs must agree in."""
    return [(t.name, t.parts, t.finished, t.done, t.violations, t.counts) for t in report.trials]


def test_totals_are_those_of_the_parts(tmp_path: Path) -> None:
    """Numbers are added up, what broke is told, and what cannot run says why."""
    report = run_trials(tmp_path).report()
    first, alone, broken, cannot = report.trials

    assert (20, 1000, ["seven"], {"seeds": 210}) == (
        first.finished,
        first.done,
        first.violations,
        first.counts,
    )
    assert "1-20" == first.seeds
    assert 3 == alone.done
    assert ["three/0/1: the trial itself failed: ValueError('no three in T3')"] == broken.violations
    assert "not run: no disk" == describe_result(cannot)
    assert 2 == report.violations
    assert [] == list((tmp_path / "tmp").iterdir())


@pytest.mark.slow
def test_a_killed_run_goes_on_and_comes_to_the_same(tmp_path: Path) -> None:
    """SIGKILL in the middle: finished seeds are not run again, and the totals are the same."""
    expected = totals(run_trials(tmp_path / "whole").report())
    folder = tmp_path / "killed"
    folder.mkdir()
    state = folder / "state.jsonl"
    program = [sys.executable, str(Path(counting.__file__)), str(folder)]
    env = {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(program, env=env, stdout=subprocess.DEVNULL) as running:
        deadline = time.monotonic() + TIMEOUT_S
        while not state.exists() or state.read_bytes().count(b"\n") < 3:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        running.kill()
    before = state.read_bytes()
    done = subprocess.run(program, env=env, capture_output=True, text=True, check=True)
    trials = json.loads((folder / "report.json").read_bytes())["trials"]
    finished = before.count(b"\n")

    assert 3 <= finished < 21
    assert f"continuing: {finished} of 22 parts were finished before" == done.stdout.splitlines()[0]
    assert state.read_bytes().startswith(before)
    assert [list(row) for row in expected] == [
        [t[k] for k in ("name", "parts", "ended", "done", "violations", "seen")] for t in trials
    ]


@pytest.mark.slow
def test_half_a_line_is_run_again(tmp_path: Path) -> None:
    """A part that was killed while it was noted has not ended; what is noted next is whole."""
    expected = totals(run_trials(tmp_path).report())
    path = tmp_path / "state.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    again = run_trials(tmp_path)

    assert 20 == again.skipped
    assert expected == totals(again.report())
    assert 21 == run_trials(tmp_path).skipped


@pytest.mark.slow
def test_a_trial_that_broke_is_run_again(tmp_path: Path) -> None:
    """It has not ended: nothing was looked at."""
    first = run_trials(tmp_path)

    assert ["T3"] == [trial.name for trial, _ in first.unfinished()]


def test_what_other_code_came_to_does_not_count(tmp_path: Path) -> None:
    """A change to the code is a new proof."""
    state = State(tmp_path / "state.jsonl", lambda _: "old")
    state.add("T1", Part("one", 1, 50), Outcome(50), 1.0)
    state.close()

    for code, is_known in (("old", True), ("new", False)):
        again = State(tmp_path / "state.jsonl", {"T1": code}.__getitem__)

        assert is_known == (again.get("T1", Part("one", 1, 50)) is not None)


def test_another_machine_goes_on_from_the_trials_that_are_kept(tmp_path: Path) -> None:
    """What ended with this code is not run again there, unless all is to run anew."""
    first, second, trials = tmp_path / "first", tmp_path / "second", tmp_path / "trials.jsonl"
    done, part = Outcome(50), Part("one", 1, 50)
    for code in ("old", "new"):
        state = State(first / ".prove" / "state.jsonl", {"T1": code, "T2": "same"}.__getitem__)
        state.add("T1", part, done, 1.0)
        state.add("T2", part, done, 1.0)
        state.close()
    keep_trials(first, trials, {"T1": "newest", "T2": "same"}.__getitem__)

    assert 1 == len(trials.read_text().splitlines())

    for fresh in (False, True):
        state = start_state(second, trials, lambda _: "same", fresh=fresh)

        assert (None, fresh) == (state.get("T1", part), state.get("T2", part) is None)
        state.close()


def test_code_is_known_by_its_bytes(tmp_path: Path) -> None:
    """One byte more is other code, and so is another name."""
    path, other = tmp_path / "a.py", tmp_path / "b.py"
    path.write_text("x = 1\n")
    first = hash_files([path], tmp_path)
    path.write_text("x = 2\n")
    second = hash_files([path], tmp_path)
    path.rename(other)

    assert 3 == len({first, second, hash_files([other], tmp_path)})


def test_the_code_of_a_trial_is_what_it_runs() -> None:
    """A change of the viewer is no change of power cuts; one of the writing side is."""
    journal, load = (find_imported(trial(name).code) for name in ("T6", "T13"))

    assert {"thence.journal.log", "thence.format.codec", "thence.errors"} <= journal
    assert {"thence.memory.sweep", "thence.agents.claude.reader", "thence.cli.wiring"} <= load
    assert not any(name.startswith(("thence.serve", "thence.cli")) for name in journal)
    assert "thence.serve.app" not in load
    assert hash_code() == code_of("T15") != code_of("T6") == code_of("T1") != ""


def trial(name: str) -> Trial:
    """One of the trials of the plan."""
    return next(trial for trial in prove.run.TRIALS if trial.name == name)


def test_a_scale_takes_a_share(tmp_path: Path) -> None:
    """A tenth of the rounds, spread over what there is; never nothing."""
    assert [Part("x", 1, 50), Part("x", 2, 50), Part("x", 3, 5)] == split_rounds("x", 1050, 50, 0.1)
    assert [0, 3, 6] == sample_evenly(range(9), 1 / 3)
    assert [0] == sample_evenly(range(9), 0)
    assert 100 == run_trials(tmp_path, scale=0.1).report().trials[0].done


@pytest.mark.slow
def test_tables_say_what_was_done(tmp_path: Path) -> None:
    """For the terminal and for the page, with what broke."""
    report = run_trials(tmp_path).report()

    assert "T1  count   1,000        1,000 numbers  210 seeds" in table(report)
    assert table(report).endswith("2 violations of Invariant I")
    assert "| T1 | count | 1,000 | 1,000 numbers | 210 seeds | 1-20 |" in markdown(report)
    assert "1 violation" in markdown(report)


def test_every_trial_of_the_plan_is_there() -> None:
    """T1 to T16, each with parts that have names of their own."""
    assert [f"T{n}" for n in range(1, 17)] == [trial.name for trial in prove.run.TRIALS]
    for trial in prove.run.TRIALS:
        keys = [part.key for part in trial.parts(1.0)]
        assert len(keys) == len(set(keys)) > 0


def test_a_trial_that_did_nothing_is_not_called_proven() -> None:
    """All of its tests were skipped: it says why."""
    result = TrialResult("T9", "t", "u", "w", 1, 1, 0, [], {}, ["no ../shared"], "0", 0.0)

    assert "not run: no ../shared" == describe_result(result)


def test_every_test_that_a_trial_runs_is_there() -> None:
    """A file or a test that got another name would be missed by a release alone."""
    tests = [test for group in suites._SUITES.values() for suite in group for test in suite.tests]
    names = [test.removeprefix("--ignore=") for test in (*tests, *suites.TREE_TESTS.tests)]
    for name in (name for name in names if name.startswith("tests")):
        path, _, test = name.partition("::")

        assert (ROOT / path).exists(), name
        assert not test or f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), name


@pytest.mark.slow
def test_tests_run_as_a_part_of_a_trial(tmp_path: Path) -> None:
    """In a process of their own, without the plugins that a whole run has."""
    suite = suites.Suite("one file", ("tests/format/test_expressions.py",))
    out = suites.run_suite(suite, Part(suite.what, 0, 1), tmp_path)

    assert [] == out.violations
    assert out.counts["tests"] > 0
