"""Costs, patterns and the store's page: sums that agree, reasons that are told."""

from __future__ import annotations

import msgspec
import pytest

from tests.serve.conftest import House
from thence.format.figures import money
from thence.memory.retention import Policy
from thence.memory.store import Filter
from thence.serve import ledger
from thence.serve.ledger import Wanted


@pytest.mark.parametrize("by", list(ledger.BYS))
def test_the_parts_add_up_to_the_whole(house: House, by: str) -> None:
    """Whatever they are grouped by, live and dead and subagents."""
    made = ledger.cost_page(house.desk, Wanted(by, days=365))  # type: ignore[arg-type]
    total = house.store.totals((), Filter())[0]

    assert made.all.dead == money(total.dead)
    assert made.all.live == money(total.ticks - total.dead - total.side, total.unpriced)
    assert made.heading == f"{money(total.ticks, total.unpriced)} in 365 days"


def test_a_day_can_be_looked_at_alone(house: House) -> None:
    """Its bar leads to it, and back."""
    made = ledger.cost_page(house.desk, Wanted(days=30))
    spent = next(day for day in reversed(made.days) if day.parts)
    assert "day=" in spent.href
    day = spent.href.partition("day=")[2].partition("&")[0]
    alone = ledger.cost_page(house.desk, Wanted(days=30, day=day))

    assert day in alone.heading
    assert (f"day: {day}", "/costs") in alone.filters


def test_bars_stay_within_their_frame(house: House) -> None:
    """However much one day cost."""
    for days in ledger.RANGES:
        made = ledger.cost_page(house.desk, Wanted(days=days))
        assert len(made.days) == days
        for bar in made.days:
            tops = [part.y for part in bar.parts] + ([bar.dead.y] if bar.dead else [])
            assert all(30 <= y <= 206 for y in tops)


def test_the_costliest_dead_branches_lead_to_their_events(house: House) -> None:
    """Each is an event that is there."""
    made = ledger.cost_page(house.desk, Wanted(days=90))
    assert made.branches
    for one in made.branches:
        answer = house.ask(one.href)

        assert answer.status == 200
        assert b'class="branch"' in answer.body


def test_a_pattern_has_its_evidence(house: House) -> None:
    """Sessions and events that can be opened, and what helped."""
    made = ledger.pattern_page(house.desk, "", 90)
    assert made.shown
    for one in made.shown:
        assert one.proofs
        for proof in one.proofs:
            assert house.ask(proof.href).status == 200
    errors = ledger.pattern_page(house.desk, "recurring_error", 90)
    assert {one.kind for one in errors.shown} == {"recurring_error"}


@pytest.mark.parametrize(("late", "label"), [(200, "Look at 365 days"), (4000, "All sessions")])
def test_days_without_anything_lead_to_those_that_have_it(
    house: House, monkeypatch: pytest.MonkeyPatch, late: int, label: str
) -> None:
    """Costs and patterns of somebody who comes back after a long time."""
    now = house.desk.clock()
    monkeypatch.setattr(house.desk, "clock", lambda: now + late * 86_400)
    costs = ledger.cost_page(house.desk, Wanted())
    patterns = ledger.pattern_page(house.desk, "", ledger.PATTERN_DAYS)

    assert costs.earlier is not None
    assert patterns.earlier is not None
    assert (label, label) == (costs.earlier.label, patterns.earlier.label)
    if late < 365:
        assert ledger.cost_page(house.desk, Wanted(days=365)).earlier is None
        assert ledger.pattern_page(house.desk, "", 365).earlier is None
        assert "days=365" in costs.earlier.href
        assert "days=365" in patterns.earlier.href


def test_a_kind_of_pattern_keeps_the_days_that_are_looked_at(house: House) -> None:
    """And the days keep the kind."""
    made = ledger.pattern_page(house.desk, "recurring_error", 365)

    assert all("days=365" in href for _, href, *_ in made.chips)
    assert all("kind=recurring_error" in href for _, href, _ in made.ranges)


def test_the_store_says_what_goes_next_and_why(house: House) -> None:
    """With no room at all everything goes, each with its reason."""
    roomy = ledger.store_page(house.desk)
    assert roomy.going == []
    assert "Nothing goes" in roomy.plan_said
    policy = house.desk.policy
    tight = msgspec.structs.replace(Policy(), raw_soft_cap_bytes=1, raw_hard_cap_bytes=2)
    try:
        house.desk.policy = tight
        made = ledger.store_page(house.desk)
    finally:
        house.desk.policy = policy

    assert made.going
    assert all(one.why for one in made.going)


def test_secrets_are_counted_by_rule_and_never_shown(house: House) -> None:
    """The made-up token is one of them."""
    made = ledger.store_page(house.desk)
    page = house.ask("/store").body

    assert ("github-token", 1, 1) in made.redacted
    assert b"ghp_" not in page


@pytest.mark.parametrize(
    ("share", "said"), [(0.0, "0 %"), (0.002, "<1 %"), (0.16, "16 %"), (1.0, "100 %")]
)
def test_a_little_is_not_nothing(share: float, said: str) -> None:
    """Who looks for what was spent on dead branches must not read that there is none."""
    assert said == ledger._percent(share)
