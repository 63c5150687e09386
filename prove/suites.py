"""Trials that run tests, with as many cases as a release requires (T5, T9 to T12, T14 to T16)."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec

from prove.state import ROOT
from prove.trial import Outcome, Part, Trial
from tests.faults.warm import end_with_parent

COUNT_PROPERTIES = ("cases", "rounds", "files")
"""Properties in which a test reports how much it did; a test without one counts once."""


class Suite(msgspec.Struct, frozen=True):
    """A selection of tests."""

    what: str
    tests: tuple[str, ...]
    examples: int = 0
    """How many examples hypothesis makes for each test; 0: as many as in `make test`."""


def run_suite(
    suite: Suite, part: Part, folder: Path, env: Mapping[str, str] | None = None
) -> Outcome:
    """Run tests in a process of their own; return what they counted and what failed."""
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += [f"--junitxml={report}", "-o", "junit_family=xunit1"]  # which has properties
    command += [f"--basetemp={folder / 'temp'}", "-m", "not e2e or prove"]
    if suite.examples:
        command += [f"--hypothesis-seed={part.seed}"]
    variables = {
        "THENCE_TEST": "full",
        "THENCE_EXAMPLES": str(part.size) if suite.examples else "",
    }
    variables["THENCE_PROVE"] = "1"
    process = subprocess.run(
        [*command, *suite.tests],
        cwd=ROOT,
        env={**os.environ, **variables, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=end_with_parent,
    )
    if not report.exists():
        return Outcome(
            violations=[f"pytest wrote no report: {(process.stdout + process.stderr)[-400:]}"]
        )
    return _read_report(report, part.size if suite.examples else 1)


def _read_report(report: Path, examples: int) -> Outcome:
    outcome = Outcome()
    tests = 0
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it
        name = f"{case.get('classname')}::{case.get('name')}"
        failures = [*case.iter("failure"), *case.iter("error")]
        skip = case.find("skipped")
        if failures:
            message = f"{failures[0].get('message') or ''} {(failures[0].text or '')[-300:]}"
            outcome.violations.append(f"{name}: {message[:600]}")
        elif skip is not None:
            outcome.skipped.append(f"{case.get('name')}: {skip.get('message')}")
            continue
        tests += 1
        properties = {entry.get("name"): entry.get("value") for entry in case.iter("property")}
        counts = [int(properties[name] or 0) for name in COUNT_PROPERTIES if name in properties]
        outcome.done += counts[0] if counts else examples
    outcome.counts["tests"] = tests
    return outcome


# -- what is run ----------------------------------------------------------------------------

_TREE_TESTS = {
    "tests/format/test_graph.py": (
        "test_live_chain_is_what_the_model_in_memory_saw",
        "test_chain_keeps_the_order_things_were_said_in",
        "test_every_event_ends_in_exactly_the_state_the_model_gives_it",
        "test_shuffling_dead_branches_changes_nothing",
        "test_any_byte_prefix_loses_at_most_its_last_event",
        "test_chain_to_any_event_ends_there",
        "test_a_boundary_holds_back_nothing_from_who_asks",
        "test_no_links_whatever_make_it_raise_or_loop",
    ),
    "tests/format/test_session_graph.py": (
        "test_own_events_are_the_same_session",
        "test_order_and_pieces_do_not_matter",
    ),
    "tests/journal/test_reader.py": (
        "test_reading_from_the_end_is_reading_everything",
        "test_a_boundary_with_bad_caches_costs_time_only",
        "test_any_event_can_be_read_to",
        "test_any_prefix_of_a_file_reads_as_far_as_it_goes",
    ),
    "tests/journal/test_session.py": (
        "test_every_run_gives_back_what_was_there",
        "test_a_run_over_many_segments_is_one_session",
    ),
}
"""Tests with random trees of records, rewinds, compactions and forks, checked against a model."""

TREE_TESTS = Suite(
    "trees",
    tuple(f"{path}::{test}" for path, tests in _TREE_TESTS.items() for test in tests),
    examples=1,
)

_OWN_PARTS = ("agents", "bridge", "cli", "memory", "serve")
"""Folders of tests whose sampled ones are a part of a trial each: all together take too long."""


def _sampled_suites() -> Iterator[Suite]:
    """Yield suites that have all tests of which `make test` runs a sample, but T5's and T11's."""
    others = ("tests/agents/test_growth.py", "tests/format/test_damage.py")
    selected = ("-m", "sampled and not e2e", *(f"--ignore={path}" for path in others))
    for folder in _OWN_PARTS:
        yield Suite(f"sampled by make test, {folder}", (f"tests/{folder}", *selected))
    rest = (f"--ignore=tests/{folder}" for folder in _OWN_PARTS)
    yield Suite("sampled by make test, others", ("tests", *rest, *selected))


_SWEEP = "tests/memory/test_sweep.py"
_SUITES: dict[str, tuple[Suite, ...]] = {
    "T5": (Suite("damage", ("tests/format/test_damage.py",)),),
    "T9": (
        Suite("adapters and commands", ("tests/agents/test_hostile.py",)),
        Suite("lines, counted twice", ("tests/format/test_codec.py", "-k", "hostile")),
        Suite("API and tools", ("tests/serve/test_api.py", "tests/serve/test_mcp.py")),
        Suite(
            "handoff and terminal",
            ("tests/bridge/test_handoff_hostile.py", "tests/cli/test_terminal.py"),
        ),
    ),
    "T10": (
        Suite("as commands count", ("tests/agents/test_truth.py",)),
        Suite("as lines count", ("tests/format/test_codec.py", "-k", "real_logs")),
        Suite("as the API billed", (_SWEEP, "-k", "real_")),
    ),
    "T11": (
        Suite("read as they grow", ("tests/agents/test_growth.py",)),
        Suite("swept again, in any order", (_SWEEP, "-k", "not real_")),
        Suite("cursors", ("tests/agents/test_files.py",)),
        # `make test` runs a sample of these; here all cases run, with many examples.
        *_sampled_suites(),
    ),
    "T14": (
        Suite("what goes", ("tests/memory/test_retention.py",)),
        Suite("what a sweep evicts", (_SWEEP, "-k", "evict or analysed")),
    ),
    "T15": (Suite("browser", ("tests/serve/test_hostile_pages.py",)),),
    "T16": (Suite("requests", ("tests/serve/test_auth.py",)),),
}


def _parts(name: str, _scale: float) -> list[Part]:
    """Return all suites whatever the scale: their number of cases is fixed."""
    return [Part(suite.what) for suite in _SUITES[name]]


def _run(name: str, part: Part, folder: Path) -> Outcome:
    return run_suite(next(s for s in _SUITES[name] if s.what == part.what), part, folder)


def _trial(name: str, title: str, unit: str, required: str) -> Trial:
    parts, run = functools.partial(_parts, name), functools.partial(_run, name)
    return Trial(name, title, unit, required, parts, run)


TRIALS = (
    _trial("T5", "bytes that go bad", "damages", "12,000"),
    _trial("T9", "the hostile corpus", "cases", "113 inputs by every way in"),
    _trial("T10", "real files, counted independently", "files", "211 public files"),
    _trial("T11", "reading again, in any order and any pieces", "tests", "all"),
    _trial("T14", "retention under pressure", "scenarios", "50"),
    _trial("T15", "hostile text in a browser", "tests", "25 payloads in 9 fields"),
    _trial("T16", "hostile requests", "tests", "40"),
)
