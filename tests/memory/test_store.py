"""What all stores share: addresses, keys of ownership, facts as bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.errors import BadConfig
from thence.format.facts import Block, Fact
from thence.format.nodes import Is, Node
from thence.format.records import Usage
from thence.memory.store import (
    STATES,
    Inventory,
    Store,
    claims,
    open_store,
    owner_key,
    pack_facts,
    uid_hash,
    unpack_facts,
)

names = st.text(max_size=30)


@given(st.lists(st.tuples(names, names, st.integers(0, 99)), max_size=8))
def test_facts_come_back_as_they_were(rows: list[tuple[str, str, int]]) -> None:
    """Whatever their ids and summaries hold."""
    facts = [
        Fact(
            Node(name, None, Is.PROMPT),
            "user",
            blocks=(Block("user_msg", "user", text, ref="r"),),
            line=line,
            usage=Usage(line),
            about={"cwd": text},
        )
        for name, text, line in rows
    ]

    assert facts == unpack_facts(pack_facts(facts))


@given(names, names)
def test_keys_of_ownership_fit_every_database(text: str, other: str) -> None:
    """63 bits, different for different things, the same for the same."""
    keys = [owner_key("bill", text), owner_key("copy", text), owner_key("bill", other)]

    assert all(0 <= key < 2**63 for key in keys)
    assert keys[0] != keys[1]
    assert (text == other) == (keys[0] == keys[2])


def test_session_claims_its_bills_and_where_copies_would_begin() -> None:
    """Records in the middle are claimed by the bill or by the start they hang off.

    A record that names the bill of a turn which goes on has none yet.
    """
    bill = Usage(input_tokens=1)
    facts = [
        Fact(Node("root", None), "user", usage_key="later"),
        Fact(Node("next", "root"), "assistant", usage=bill, usage_key="bill"),
        Fact(Node("again", "next"), "assistant", usage=bill, usage_key="bill"),
        Fact(Node("file#0123", None), "note"),
    ]

    assert [owner_key("copy", "root"), owner_key("bill", "bill")] == claims(facts)


def test_forgotten_session_is_known_by_a_hash_alone() -> None:
    """Also one whose name no text can hold."""
    inventory = Inventory({}, frozenset({uid_hash("claude:a"), uid_hash("codex:\udc80")}))

    assert inventory.is_forgotten("claude:a")
    assert inventory.is_forgotten("codex:\udc80")
    assert not inventory.is_forgotten("claude:b")


def test_order_of_states_is_frozen() -> None:
    """Rows hold the place of a state in it."""
    expected = ["replayed", "internal", "rolled_back", "side", "dead", "orphaned", "live"]

    assert expected == [state.value for state in STATES]


def test_address_without_a_store_says_which_there_are() -> None:
    """With the ones that are installed."""
    with pytest.raises(BadConfig, match="no store type nowhere") as caught:
        open_store("nowhere:at/all")

    assert "sqlite" in (caught.value.hint or "")


def test_payloads_lie_where_the_address_says(tmp_path: Path) -> None:
    """Rows in the file, payloads in a folder of objects; both are found again."""
    address = f"sqlite:{tmp_path}/s.db#objects=file://{tmp_path}/objects"
    store = open_store(address)
    refs = store.blobs.append("claude:one", [b"hello"])
    store.close()
    again = open_store(address)

    assert [b"hello"] == [again.blobs.read(ref) for ref in refs]
    assert 1 == sum(path.is_file() for path in (tmp_path / "objects").rglob("*"))
    assert not (tmp_path / "packs").exists()
    again.close()


def test_a_backend_has_fourteen_methods_to_write() -> None:
    """No more, so that somebody else can write one; `blobs` is given."""
    asked = {name for name, member in vars(Store).items() if callable(member) and name[0] != "_"}

    assert 14 == len(asked), sorted(asked)
