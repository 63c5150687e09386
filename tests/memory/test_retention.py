"""Retention: the plan drops what it may, only as much as it must, and says why."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.agents import Cursor
from thence.memory import store
from thence.memory.retention import (
    GIB,
    Policy,
    RetentionInventory,
    RetentionItem,
    RetentionPlan,
    inventory,
    plan,
    rule,
)

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
CAPS = Policy(raw_soft_cap_bytes=100, raw_hard_cap_bytes=150, raw_max_age_days=45)

# Few of them, so that ties are common.
ages = st.sampled_from([0, 1, 44, 46, 90]).map(lambda days: NOW - timedelta(days=days, hours=1))
policies = st.builds(
    Policy,
    raw_soft_cap_bytes=st.integers(0, 300),
    raw_hard_cap_bytes=st.integers(0, 400),
    raw_max_age_days=st.sampled_from([0, 1, 45, 10**9]),
    distilled_cap_bytes=st.integers(0, 100),
)
stocks = st.builds(
    RetentionInventory,
    st.lists(
        st.builds(
            RetentionItem,
            st.uuids().map(str),
            st.integers(0, 100),
            last_event=st.none() | ages,
            ingested_at=st.none() | ages,
            analyzed_at=st.none() | ages,
            pinned=st.booleans(),
            running=st.booleans(),
            only_copy=st.booleans(),
            analysis_failed=st.booleans(),
        ),
        max_size=12,
        unique_by=lambda item: item.session_uid,
    ).map(tuple),
    distilled_bytes=st.integers(0, 200),
)


def days(number: float) -> datetime:
    """So many days ago."""
    return NOW - timedelta(days=number)


def item(uid: str, size: int, *, analysed: float | None = 1, last: float = 50) -> RetentionItem:
    """A session whose analysis and last event are so many days old."""
    at = None if analysed is None else days(analysed)
    return RetentionItem(uid, size, last_event=days(last), analyzed_at=at)


def decide(*items: RetentionItem, policy: Policy = CAPS, distilled: int = 0) -> RetentionPlan:
    """A plan for these sessions."""
    return plan(policy, RetentionInventory(items, distilled), NOW)


def actions(planned: RetentionPlan) -> list[tuple[str, str | None]]:
    """What is to be done with whom, in order."""
    return [(entry.action, entry.session_uid) for entry in planned.items]


def test_the_defaults_are_those_of_the_design() -> None:
    """Four and six gibibytes raw, one distilled, 45 days, daily."""
    assert Policy(4 * GIB, 6 * GIB, 45, GIB, "daily") == Policy()


def test_under_the_caps_nothing_goes() -> None:
    """Room is there to be used."""
    planned = decide(item("a", 60), item("b", 40), distilled=10)

    assert ((), 100, 100) == (planned.items, planned.usage_before, planned.usage_after)


def test_the_analysed_go_when_they_are_old() -> None:
    """Over the limit of age, whatever the space; the un-analysed stay at any age."""
    planned = decide(item("old", 1, analysed=46), item("new", 1), item("raw", 1, analysed=None))

    assert [("evict", "old")] == actions(planned)
    why = "analysed, 46.0 days old: over the limit of 45 days; the original log still exists"

    assert why == planned.items[0].reason


def test_age_never_takes_the_only_copy() -> None:
    """What its source cannot give again stays at any age as long as there is room."""
    last = msgspec.structs.replace(item("last", 1, analysed=9000, last=9000), only_copy=True)

    assert [("evict", "old")] == actions(decide(item("old", 1, analysed=46), last))


def test_only_copies_go_after_all_that_has_a_source() -> None:
    """Over the soft cap the younger go first that can be read again; the reason says so."""
    last = msgspec.structs.replace(item("last", 60, analysed=40), only_copy=True)
    planned = decide(item("a", 60, analysed=2), item("b", 60, analysed=1), last)
    forced = decide(msgspec.structs.replace(last, bytes=120))

    assert [("evict", "a"), ("evict", "b")] == actions(planned)
    assert [("evict", "last")] == actions(forced)
    assert forced.items[0].reason.endswith("the only copy, its original log is gone")


def test_a_session_whose_source_is_gone_is_an_only_copy() -> None:
    """The store knows that an agent deleted a session; the plan takes it from there."""
    known = store.SweepEntry(Cursor(), 1, 1, 1, gone=True, bytes=9, analysed=1, ended=1)
    stock = inventory(store.Inventory({"a:b": known}, frozenset()))

    assert [True] == [entry.only_copy for entry in stock.items]
    assert () == plan(CAPS, stock, NOW).items


def test_the_rule_is_one_sentence_for_all_places() -> None:
    """It names the days, the limit and what stays."""
    text = rule(Policy())

    assert "after 45 days if the original log still exists" in text
    assert "The only copy of a session is stored until all transcripts exceed 4 GiB" in text
    assert "after" not in rule(Policy(raw_max_age_days=0))


def test_age_counts_from_the_later_of_analysis_and_last_event() -> None:
    """A session that was analysed long ago and spoke yesterday is young; so is the reverse."""
    assert () == decide(item("a", 1, analysed=90, last=1), item("b", 1, analysed=1, last=90)).items


def test_no_limit_of_age_means_never() -> None:
    """Zero days switches the backstop off."""
    off = Policy(raw_soft_cap_bytes=100, raw_max_age_days=0)

    assert () == decide(item("a", 1, analysed=9000, last=9000), policy=off).items


def test_over_the_soft_cap_the_oldest_analysis_goes_first() -> None:
    """And only until the cache is under the cap again."""
    planned = decide(
        item("c", 50, analysed=3), item("b", 50, analysed=2), item("a", 50, analysed=4)
    )

    assert [("evict", "a")] == actions(planned)
    assert (150, 100) == (planned.usage_before, planned.usage_after)
    assert (
        "transcripts use 150 bytes, 50 bytes over the storage limit of 100 bytes; "
        "oldest first, analysed 2026-11-11, frees 50 bytes" == planned.items[0].reason
    )


@pytest.mark.parametrize("failed", [False, True])
def test_ties_are_broken_by_the_id(failed: bool) -> None:
    """Sessions of the same times go in the order of their ids, however they were listed."""
    same = [RetentionItem(uid, 80, days(9), analysis_failed=failed) for uid in "ab"]
    digested = [item(uid, 80) for uid in "ab"]
    word = "drop_unanalysed" if failed else "analyse"

    assert (word, "a") == actions(decide(*same))[0] == actions(decide(*reversed(same)))[0]
    assert [("evict", "a")] == actions(decide(*digested)) == actions(decide(*reversed(digested)))


def test_what_frees_nothing_does_not_go_for_space() -> None:
    """A session without raw bytes is no help over a cap."""
    assert [("evict", "b")] == actions(decide(item("a", 0, analysed=9), item("b", 101)))


def test_between_the_caps_what_was_not_analysed_stays() -> None:
    """Space alone is no reason to lose what nobody has looked at."""
    assert () == decide(item("a", 140, analysed=None)).items


def test_over_the_hard_cap_the_rest_is_analysed_first() -> None:
    """As many of the oldest as would bring the cache under the soft cap; nothing is dropped."""
    planned = decide(
        item("a", 60, analysed=None, last=2),
        item("b", 60, analysed=None, last=3),
        item("c", 60, analysed=None, last=1),
        item("d", 20, analysed=1),
    )

    assert [("evict", "d"), ("analyse", "b"), ("analyse", "a")] == actions(planned)
    assert planned.again
    assert 180 == planned.usage_after


def test_what_could_not_be_analysed_goes_last_and_is_reported() -> None:
    """Oldest first, only until under the hard cap, and each says that it is a loss."""
    failed = [
        msgspec.structs.replace(item(uid, 60, analysed=None, last=age), analysis_failed=True)
        for uid, age in (("a", 2), ("b", 3), ("c", 1))
    ]
    planned = decide(*failed)

    assert [("drop_unanalysed", "b")] == actions(planned)
    assert not planned.again
    assert (
        "transcripts use 180 bytes, 30 bytes over the maximum of 150 bytes, and analysis "
        "failed; no digest is left: data loss" == planned.items[0].reason
    )


def test_nothing_is_dropped_while_something_can_still_be_analysed() -> None:
    """A failure on one session does not cost it while another may make room."""
    failed = RetentionItem("a", 100, last_event=days(9), analysis_failed=True)

    assert [("analyse", "b")] == actions(decide(failed, item("b", 100, analysed=None)))


def test_running_sessions_go_last() -> None:
    """They would come straight back; at rest, they are like the others."""
    running = RetentionItem("a", 60, analyzed_at=days(80), last_event=days(80), running=True)

    assert [("evict", "b")] == actions(decide(running, item("b", 60, analysed=1)))
    assert [("evict", "a")] == actions(decide(msgspec.structs.replace(running, running=False)))
    assert [("evict", "a")] == actions(decide(msgspec.structs.replace(running, bytes=101)))


def test_kept_sessions_over_the_hard_cap_are_an_alert() -> None:
    """The user asked for them; the user is told what they cost."""
    planned = decide(RetentionItem("a", 200, analyzed_at=days(90), pinned=True))

    assert [("alert", None)] == actions(planned)
    assert "all of it in 1 pinned sessions" in planned.items[0].reason


def test_the_distilled_cap_alerts_only() -> None:
    """Digests are what this is all for: no step drops one."""
    planned = decide(item("a", 1), policy=Policy(distilled_cap_bytes=3 * GIB), distilled=4 * GIB)

    assert [("alert", None)] == actions(planned)
    assert (
        "digests use 4 GiB, over the limit of 3 GiB; digests are never removed"
        == planned.items[0].reason
    )


@given(policies, stocks, st.randoms(use_true_random=False))
def test_the_order_of_the_inventory_does_not_matter(
    policy: Policy, stock: RetentionInventory, dice: random.Random
) -> None:
    """The same sessions give the same plan, however they were listed."""
    mixed = list(stock.items)
    dice.shuffle(mixed)

    assert plan(policy, stock, NOW) == plan(
        policy, RetentionInventory(tuple(mixed), stock.distilled_bytes), NOW
    )


@given(policies, stocks)
def test_only_the_digested_is_evicted_and_only_the_tried_is_dropped(
    policy: Policy, stock: RetentionInventory
) -> None:
    """No digest, no eviction; the reported path takes what analysis has failed on, and no other."""
    by_uid = {item.session_uid: item for item in stock.items}
    planned = plan(policy, stock, NOW)

    assert all(by_uid[entry.session_uid or ""].analysed for entry in planned.of("evict"))
    for entry in planned.of("drop_unanalysed"):
        dropped = by_uid[entry.session_uid or ""]

        assert not dropped.analysed
        assert dropped.analysis_failed
        assert not planned.again
        assert "data loss" in entry.reason


@given(policies, stocks)
def test_what_the_user_keeps_is_never_touched(policy: Policy, stock: RetentionInventory) -> None:
    """Neither evicted nor dropped, nor analysed to make room."""
    pinned = {item.session_uid for item in stock.items if item.pinned}

    assert not pinned & {entry.session_uid for entry in plan(policy, stock, NOW).items}


@given(policies, stocks)
def test_never_more_goes_than_is_needed(policy: Policy, stock: RetentionInventory) -> None:
    """Without the last eviction for space, or the last drop, the cache would be over its cap."""
    planned = plan(policy, stock, NOW)
    usage = planned.usage_before
    soft = min(policy.raw_soft_cap_bytes, policy.raw_hard_cap_bytes)
    for entry in planned.items:
        if entry.action == "evict" and entry.step == 3:
            assert usage > soft
            assert entry.bytes > 0
        if entry.action == "drop_unanalysed":
            assert usage > policy.raw_hard_cap_bytes
        if entry.action in {"evict", "drop_unanalysed"}:
            usage -= entry.bytes

    assert usage == planned.usage_after


@given(policies, stocks)
def test_no_more_stays_than_may(policy: Policy, stock: RetentionInventory) -> None:
    """What is left over the soft cap has no digest or is kept; over the hard cap, it is said."""
    planned = plan(policy, stock, NOW)
    gone = {entry.session_uid for entry in planned.items if entry.action != "analyse"}
    left = [item for item in stock.items if item.session_uid not in gone]
    if planned.usage_after > min(policy.raw_soft_cap_bytes, policy.raw_hard_cap_bytes):
        assert all(item.pinned or not item.analysed or not item.bytes for item in left)
    if planned.usage_after > policy.raw_hard_cap_bytes:
        assert planned.again or any(entry.step == 4 for entry in planned.of("alert"))


@given(policies, stocks)
def test_digests_cost_no_session(policy: Policy, stock: RetentionInventory) -> None:
    """The size of the distilled memory adds an alert to a plan, and changes nothing else."""
    planned = plan(policy, stock, NOW)
    without = plan(policy, RetentionInventory(stock.items), NOW)
    more = [entry for entry in planned.items if entry not in without.items]

    assert without.items == planned.items[: len(without.items)]
    assert (stock.distilled_bytes > policy.distilled_cap_bytes) == bool(more)
    assert all((entry.action, entry.step) == ("alert", 5) for entry in more)


@given(policies, stocks)
def test_every_item_says_why(policy: Policy, stock: RetentionInventory) -> None:
    """A reason in words, with a number in it; and a plan goes through JSON."""
    planned = plan(policy, stock, NOW)

    assert all(any(map(str.isdigit, entry.reason)) for entry in planned.items)
    assert planned == msgspec.json.decode(msgspec.json.encode(planned), type=RetentionPlan)


def carry_out(policy: Policy, items: dict[str, RetentionItem], *, fails: set[str]) -> list[str]:
    """Do what plans say until one asks for nothing more; the sessions that were lost."""
    lost: list[str] = []
    while True:
        planned = plan(policy, RetentionInventory(tuple(items.values())), NOW)
        for entry in planned.items:
            uid = entry.session_uid or ""
            if entry.action == "analyse":
                failed = uid in fails
                items[uid] = msgspec.structs.replace(
                    items[uid],
                    analysis_failed=failed,
                    analyzed_at=None if failed else NOW,
                )
            elif entry.action in {"evict", "drop_unanalysed"}:
                del items[uid]
                lost += [uid] * (entry.action == "drop_unanalysed")
        if not planned.again:
            return lost


@pytest.mark.parametrize("seed", range(50))
def test_under_pressure_only_what_cannot_be_analysed_is_lost(seed: int) -> None:
    """Over the hard cap while analysis fails: planning ends, with the fewest of the oldest lost."""
    dice = random.Random(seed)
    sizes = {str(n): dice.randint(1, 60) for n in range(20)}
    ages = {uid: dice.uniform(0, 30) for uid in sizes}
    fails = {uid for uid in sizes if dice.random() < dice.choice((0.2, 0.8, 1))}
    items = {uid: item(uid, sizes[uid], analysed=None, last=ages[uid]) for uid in sizes}
    lost = carry_out(CAPS, items, fails=fails)
    left = sum(entry.bytes for entry in items.values())

    assert left <= CAPS.raw_hard_cap_bytes
    assert set(lost) <= fails
    assert sorted(lost, key=lambda uid: -ages[uid]) == lost
    if lost:
        assert left + sizes[lost[-1]] > CAPS.raw_hard_cap_bytes
        assert all(ages[uid] <= ages[lost[-1]] for uid in items)


def test_inventory_is_what_the_store_holds_and_no_more() -> None:
    """Times are told as times, and what was evicted is not there to be evicted again."""
    known = {
        "a": store.SweepEntry(Cursor(), 1, 1, 1, bytes=7, pinned=True, ended=1000, ingested=2000),
        "b": store.SweepEntry(Cursor(), 1, 1, 1, bytes=8, analysed=3000),
        "c": store.SweepEntry(Cursor(), 1, 1, 1, bytes=9, evicted=4000),
    }

    def at(second: int) -> datetime:
        return datetime.fromtimestamp(second, UTC)

    first = RetentionItem("a", 7, last_event=at(1), ingested_at=at(2), pinned=True, running=True)
    other = RetentionItem("b", 8, analyzed_at=at(3), analysis_failed=True)
    made = inventory(store.Inventory(known, frozenset(), 5), running={"a"}, failed={"b"})

    assert RetentionInventory((first, other), 5) == made
