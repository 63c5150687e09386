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

from tests.faults.theatre import LAST, MADE, STRACE, Ran, Theatre, Untraceable, complaint, faults
from tests.faults.warm import Warm
from tests.pace import by_pace
from thence.journal.log import Durability

FAULTS = os.environ.get("THENCE_FAULTS") or by_pace(everyday="12", full="20", prove="80")

pytestmark = pytest.mark.skipif(STRACE is None, reason="no strace: apt-get install strace")


def run_story(theatre: Theatre, inject: str, durability: Durability) -> Ran:
    """Tell the story, or skip."""
    try:
        return theatre.run(inject, durability)
    except Untraceable as error:
        pytest.skip(f"strace may not look into other processes here: {error}")


@pytest.fixture(scope="module")
def theatre(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Theatre:
    """One place for all stories."""
    return Theatre(warm, tmp_path_factory.mktemp("stories"))


def test_story_is_whole_when_nothing_fails(theatre: Theatre) -> None:
    """All steps are taken, so that the faults below have something to hit."""
    ran = run_story(theatre, "inject=ftruncate:error=EIO:when=1", "turn")
    steps = Counter(line[0] for line in ran.receipts)

    assert (0, []) == (ran.ended, ran.broken)
    assert {"event": 25, "spill": 2, "checkpoint": 1, "compacted": 1, "session": 1} == steps


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.sampled
@pytest.mark.parametrize("durability", ["turn", "event"])
def test_a_failing_call_costs_nothing_that_was_promised(
    durability: Durability, theatre: Theatre, record_property: Callable[[str, object], None]
) -> None:
    """Whichever call fails or kills, and however often: Invariant I."""
    wrong, runs = [], 0
    every = FAULTS == "all"
    chance = random.Random(FAULTS)
    tried = faults() if every else chance.choices(faults(), k=int(FAULTS) // 2)
    for fault in tried:
        for place in range(1, LAST) if every else [chance.randint(1, MADE[fault.call])]:
            ran = run_story(theatre, fault.at(place), durability)
            runs += 1
            if problem := complaint(fault, ran):
                wrong.append(f"{fault.at(place)}: {problem}")
            if not ran.injected:
                break
    record_property("figures", f"{runs} runs")

    assert [] == wrong
