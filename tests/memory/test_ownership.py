"""Who owns what several sessions hold, told by the store's own families."""

from __future__ import annotations

from thence.agents import Cursor
from thence.format.facts import COPIES_OF, Block, Fact
from thence.format.nodes import Is, Node
from thence.format.normal import Session
from thence.format.records import Usage
from thence.memory.ownership import resolve_ownership
from thence.memory.pricelist import SHIPPED
from thence.memory.store import SessionChange, SessionRow, StoredSession, owner_key


def fact(name: str, second: int, parent: str | None = None, **more: object) -> Fact:
    """One answer with a bill of its own."""
    text = f"text of {name}"
    return Fact(
        Node(name, parent, Is.REPLY),
        "assistant",
        f"2026-01-01T00:00:{second:02}.000Z",
        (Block("assistant_msg", "assistant", text, {"type": "text", "text": text}),),
        line=second,
        usage=Usage(10, second),
        usage_key=f"bill-{name}",
        **more,  # type: ignore[arg-type]
    )


def stored(name: str, *facts: Fact, **more: object) -> StoredSession:
    """A session as a store holds it."""
    uid = f"claude:{name}"
    row = SessionRow(Session(uid, "claude", name), change=1)
    return StoredSession(row, Cursor(), list(facts), **more)  # type: ignore[arg-type]


class Holder:
    """As much of a store as a family needs."""

    def __init__(self, *sessions: StoredSession) -> None:
        self._sessions = {session.row.session.session_uid: session for session in sessions}

    def load_session(self, uid: str) -> StoredSession | None:
        """What is held."""
        return self._sessions.get(uid)


def families(holder: Holder, conflicts: dict[str, set[str]]) -> list[list[SessionChange]]:
    """The changes that resolve who owns what, family by family."""
    return list(resolve_ownership(holder, conflicts, SHIPPED))  # type: ignore[arg-type]


def resolved(holder: Holder, conflicts: dict[str, set[str]]) -> list[SessionChange]:
    """The changes of all families."""
    return [change for family in families(holder, conflicts) for change in family]


def ownership(holder: Holder, *names: str) -> dict[str, tuple[int, frozenset[str] | None]]:
    """What each member took, and what it repeats of others, where that was written anew."""
    first, *others = [f"claude:{name}" for name in names]
    changes = resolved(holder, {first: set(others)})
    return {
        c.row.session.native_session_id: (c.row.spent.own, c.replayed)
        for c in changes
        if c.replayed is not None
    }


A, B, C = fact("a", 1), fact("b", 2, "a"), fact("c", 3, "b")
D, E = fact("d", 40, "b"), fact("e", 50, "d")


def test_copies_belong_to_whose_own_past_reaches_back_furthest() -> None:
    """The fork pays for what it added alone."""
    owned = ownership(Holder(stored("old", A, B, C), stored("new", A, B, D, E)), "new", "old")

    assert {"new": (50 + 60, frozenset({"a", "b"}))} == owned


def test_order_of_names_does_not_matter() -> None:
    """A family is what it is, whoever asks first."""
    holder = Holder(stored("old", A, B, C), stored("new", A, B, D, E), stored("other", A, E))

    assert ownership(holder, "new", "old", "other") == ownership(holder, "other", "new", "old")


def test_family_that_was_settled_is_not_written_again() -> None:
    """Only that it is settled is told."""
    new = stored(
        *("new", A, B, D),
        replayed=frozenset({"a", "b"}),
        ties=(),
    )
    holder = Holder(stored("old", A, B, C), new)
    once = resolved(holder, {"claude:new": {"claude:old"}})
    new.ties = once[0].ties
    again = resolved(holder, {"claude:new": {"claude:old"}})

    assert [True, True] == [c.settled for c in again]
    assert [None, None] == [c.replayed for c in again]
    assert [1, 1] == [c.row.change for c in again]


def test_who_owns_a_bill_is_written_down() -> None:
    """So that it is still known when the owner is evicted."""
    holder = Holder(stored("old", A, B, C), stored("new", A, B, D))
    changes = resolved(holder, {"claude:new": {"claude:old"}})

    assert {
        (owner_key("bill", "bill-a"), "claude:old"),
        (owner_key("bill", "bill-b"), "claude:old"),
    } == set(changes[0].owned)


def test_bill_of_an_evicted_member_is_struck() -> None:
    """Its digest counts it; the records themselves stay as they are."""
    foreign = frozenset({owner_key("bill", "bill-a"), owner_key("bill", "bill-b")})
    holder = Holder(stored("new", A, B, D, foreign=foreign))
    owned = ownership(holder, "new", "gone")

    assert {"new": (50, frozenset())} == owned


def test_what_an_evicted_member_was_found_to_own_stays_found() -> None:
    """Nobody can compare with it any more."""
    member = stored("new", A, B, D, replayed=frozenset({"a", "b"}))
    changes = resolved(Holder(member), {"claude:new": {"claude:gone"}})

    assert [None] == [c.replayed for c in changes]


def test_copies_that_only_their_owner_knows_are_claimed() -> None:
    """A log that names its owner and goes on with copies under new times."""
    start = Fact(Node("s#1"), "meta", line=1, origin="old", about={COPIES_OF: "old"})
    copy = fact("a", 30)
    owned = ownership(Holder(stored("old", A, B), stored("new", start, copy, E)), "new", "old")

    assert {"new": (60, frozenset({"a"}))} == owned


def test_sessions_of_other_agents_are_no_family() -> None:
    """Whatever they have in common."""
    holder = Holder(stored("old", A), stored("new", A, D))
    changes = families(holder, {"claude:new": {"codex:old"}})

    assert [["claude:new"]] == [[c.row.session.session_uid for c in some] for some in changes]
