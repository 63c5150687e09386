"""Patterns: each with its evidence."""

from __future__ import annotations

from tests.serve.conftest import House
from thence.serve import pattern_page


def test_a_pattern_has_its_evidence(house: House) -> None:
    """Sessions and events that can be opened, and what helped."""
    made = pattern_page.page(house.context, "", 90)
    assert made.shown
    for card in made.shown:
        assert card.proofs
        for proof in card.proofs:
            assert house.ask(proof.href).status == 200
    errors = pattern_page.page(house.context, "recurring_error", 90)
    assert {card.kind for card in errors.shown} == {"recurring_error"}


def test_a_kind_of_pattern_keeps_the_days_that_are_looked_at(house: House) -> None:
    """And the days keep the kind."""
    made = pattern_page.page(house.context, "recurring_error", 365)

    assert all("days=365" in href for _, href, *_ in made.chips)
    assert all("kind=recurring_error" in href for _, href, _ in made.ranges)
