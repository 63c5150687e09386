"""System calls that fail or kill, one after the other: Invariant I holds after each.

strace makes the N-th call of a story fail (once, or from then on), lie about its length, or kill
the process at its entry; N = 1, 2, 3 … until the story is through. After each: the error is ours
and clear, nothing promised before it is lost, and every session opens and takes the next event.
THENCE_FAULTS says how many points are tried (`all`: every one).
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable

import pytest

from tests.faults.theatre import (
    CALL_COUNTS,
    MAX_PLACE,
    STRACE,
    StoryResult,
    StoryRunner,
    TracingRefused,
    describe_problem,
    faults,
)
from tests.faults.warm import Warm
from tests.pace import by_pace
from thence.journal.log import Durability

FAULTS = os.environ.get("THENCE_FAULTS") or by_pace(everyday="12", full="20", prove="80")

pytestmark = pytest.mark.skipif(STRACE is None, reason="no strace: apt-get install strace")


def run_or_skip(runner: StoryRunner, inject: str, durability: Durability) -> StoryResult:
    """Tell the story, or skip."""
    try:
        return runner.run(inject, durability)
    except TracingRefused as error:
        pytest.skip(f"strace may not look into other processes here: {error}")


@pytest.fixture(scope="module")
def runner(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> StoryRunner:
    """One place for all stories."""
    return StoryRunner(warm, tmp_path_factory.mktemp("stories"))


def test_story_is_whole_when_nothing_fails(runner: StoryRunner) -> None:
    """All steps are taken, so that the faults below have something to hit."""
    result = run_or_skip(runner, "inject=ftruncate:error=EIO:when=1", "turn")
    steps = Counter(line[0] for line in result.log)

    assert (0, []) == (result.exit_code, result.violations)
    once = ("session", "child", "checkpoint", "compacted")
    assert {"event": 27, "spill": 2} | dict.fromkeys(once, 1) == steps


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.sampled
@pytest.mark.parametrize("durability", ["turn", "event"])
def test_a_failing_call_costs_nothing_that_was_promised(
    durability: Durability, runner: StoryRunner, record_property: Callable[[str, object], None]
) -> None:
    """Whichever call fails or kills, and however often: Invariant I."""
    problems, runs = [], 0
    is_exhaustive = FAULTS == "all"
    rng = random.Random(FAULTS)
    selected = faults() if is_exhaustive else rng.choices(faults(), k=int(FAULTS) // 2)
    for fault in selected:
        for place in (
            range(1, MAX_PLACE) if is_exhaustive else [rng.randint(1, CALL_COUNTS[fault.call])]
        ):
            result = run_or_skip(runner, fault.at(place), durability)
            runs += 1
            if problem := describe_problem(fault, result):
                problems.append(f"{fault.at(place)}: {problem}")
            if not result.injected:
                break
    record_property("figures", f"{runs} runs")

    assert [] == problems
