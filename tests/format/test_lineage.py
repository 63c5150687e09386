"""What stands in several sessions belongs to one of them, whoever is read first."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from thence.format.facts import Block, Fact
from thence.format.lineage import claim_copies, find_shared
from thence.format.nodes import Node
from thence.format.records import Usage

BLOCKS = (Block("user_msg", "user"),)


def fact(name: str, at: int = 0, **more: Any) -> Fact:
    """A record with an id of its own, or without one when it is named with `#`."""
    return Fact(Node(name), ts=f"2026-01-01T00:00:{at:02}Z" if at else None, blocks=BLOCKS, **more)


PARENT = [fact("#meta", 1), fact("a", 2), fact("b", 3), fact("later", 30)]
FORK = [fact("#other", 20), fact("a", 2), fact("b", 3), fact("own", 21)]


def test_fork_repeats_its_parent() -> None:
    """F1, F2: nothing names the parent; its own past reaches back further."""
    shared = find_shared({"fork": FORK, "parent": PARENT})

    assert {"fork": {"a", "b"}, "parent": frozenset()} == shared.replayed
    assert [("fork", "parent", "b")] == [(e.link, e.session, e.event) for e in shared.edges["fork"]]
    assert [] == shared.edges["parent"]


def test_copy_without_anything_of_its_own_owns_nothing() -> None:
    """F4: a fork nobody went on with."""
    shared = find_shared({"a-copy": [fact("a", 2), fact("b", 3)], "parent": PARENT})

    assert {"a", "b"} == shared.replayed["a-copy"]


def test_record_that_names_its_owner_decides() -> None:
    """F6: /branch writes where each copied record comes from."""
    branch = [fact("#m", 1), fact("a", 2, origin="parent"), fact("x", 9)]
    shared = find_shared({"branch": branch, "parent": [fact("a", 2), fact("y", 5)]})

    assert {"branch": {"a"}, "parent": frozenset()} == shared.replayed


def test_owner_that_does_not_hold_the_record_is_not_believed() -> None:
    """A name alone would make the record nobody's."""
    shared = find_shared({"one": [fact("a", 1, origin="two")], "two": [fact("b", 2)]})

    assert {"one": frozenset(), "two": frozenset()} == shared.replayed


def test_records_without_an_id_are_never_copies() -> None:
    """F3: the same bytes in two sessions are two records."""
    shared = find_shared({"one": [fact("#x", 1)], "two": [fact("#x", 1)]})

    assert {"one": frozenset(), "two": frozenset()} == shared.replayed


def test_copies_are_known_by_what_they_share() -> None:
    """Records without an id may say what their copies have in common."""
    shared = find_shared(
        {
            "one": [fact("#1", 1, copy_key="k"), fact("#0", 1)],
            "two": [fact("#2", 2, copy_key="k")],
        }
    )

    assert {"k"} == shared.replayed["two"]


def test_bill_is_paid_once_over_all_sessions() -> None:
    """U4: the same response under other ids, in an older and a younger session."""
    paid: dict[str, Any] = {"usage": Usage(1), "usage_key": "k"}
    shared = find_shared({"new": [fact("x", 9, **paid)], "old": [fact("y", 1, **paid)]})

    assert {"new": {"k"}, "old": frozenset()} == shared.billed


def test_bill_of_a_copied_record_is_its_owners() -> None:
    """The copy is not counted at all, so it must not take the bill with it."""
    paid: dict[str, Any] = {"usage": Usage(1), "usage_key": "k"}
    shared = find_shared(
        {"fork": [*FORK, fact("p", 4, **paid)], "parent": [*PARENT, fact("p", 4, **paid)]}
    )

    assert {"fork": frozenset(), "parent": frozenset()} == shared.billed
    assert "p" in shared.replayed["fork"]


def test_heir_does_not_own_what_it_shares_with_whom_it_names() -> None:
    """X8: a log that names its parent, with the parent's times and a past that seems as old."""
    head = fact("#head", 1, origin="parent")
    shared = find_shared({"a-fork": [head, fact("a", 2), fact("own", 3)], "parent": [fact("a", 2)]})

    assert {"a-fork": {"a"}, "parent": frozenset()} == shared.replayed


def test_copies_at_the_start_reach_to_the_last_that_the_owner_holds() -> None:
    """X8: what stands between them is copied too; what follows is the log's own."""
    theirs = [fact("#1", copy_key="t1"), fact("#2", copy_key="t2"), fact("#3", copy_key="later")]
    log = [
        fact("#0"),
        fact("#h", origin="p"),
        fact("#4", copy_key="t1"),
        fact("#5"),
        fact("#6", copy_key="t2"),
        fact("#7", copy_key="own"),
        fact("#8"),
    ]
    owners = [record.origin for record in claim_copies(log, "p", theirs)]

    assert [None, "p", "p", "p", "p", None, None] == owners


def test_copies_without_keys_end_where_the_owner_never_went() -> None:
    """X8: each of the owner's records is copied once; the same words again are the log's own."""
    theirs = [fact("p#a"), fact("p#b")]
    log = [fact("c#h", origin="p"), fact("c#a"), fact("c#b"), fact("c#b"), fact("c#a")]

    assert ["p", "p", "p", None, None] == [
        record.origin for record in claim_copies(log, "p", theirs)
    ]


def test_log_that_names_nobody_is_its_own() -> None:
    """Without a word of the owner nothing is claimed."""
    assert FORK == claim_copies(FORK, "parent", PARENT)


NAMES = st.sampled_from(["one", "two", "three", "four"])
RECORDS = st.lists(st.tuples(st.sampled_from("abcdef#"), st.integers(1, 9)), max_size=6)


@given(st.dictionaries(NAMES, RECORDS, min_size=1), st.randoms(use_true_random=False))
def test_every_record_has_one_owner_in_any_order(
    sessions: dict[str, list[tuple[str, int]]], chance: Any
) -> None:
    """Of all sessions that hold a record, exactly one does not replay it."""
    made = {n: [fact(key, at) for key, at in records] for n, records in sessions.items()}
    order = list(made)
    chance.shuffle(order)
    shared = find_shared(made)

    assert shared == find_shared({name: made[name] for name in order})
    for key in "abcdef":
        holders = [name for name, facts in made.items() if any(f.node.id == key for f in facts)]
        owners = [name for name in holders if key not in shared.replayed[name]]
        assert len(owners) == min(len(holders), 1)
