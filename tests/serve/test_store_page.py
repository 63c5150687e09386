"""The page of the store: reasons that are told, secrets that are counted."""

from __future__ import annotations

import msgspec

from tests.serve.conftest import House
from thence.memory.retention import Policy
from thence.serve import store_page


def test_the_store_says_what_goes_next_and_why(house: House) -> None:
    """With no room at all everything goes, each with its reason."""
    roomy = store_page.page(house.context)
    assert roomy.going == []
    assert "Nothing will be removed" in roomy.plan_said
    policy = house.context.policy
    tight = msgspec.structs.replace(Policy(), raw_soft_cap_bytes=1, raw_hard_cap_bytes=2)
    try:
        house.context.policy = tight
        made = store_page.page(house.context)
    finally:
        house.context.policy = policy

    assert made.going
    assert all(row.why for row in made.going)


def test_secrets_are_counted_by_rule_and_never_shown(house: House) -> None:
    """The made-up token is one of them."""
    made = store_page.page(house.context)
    page = house.ask("/store").body

    assert ("github-token", 1, 1) in made.redacted
    assert b"ghp_" not in page
