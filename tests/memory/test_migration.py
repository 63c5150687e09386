"""Stores made by earlier versions: opened, searched, swept on, and then equal to new ones.

`tests/data/stores` holds a store as schema 4 wrote it, with sessions that `logs` can make again.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.adapters.transcripts import Script
from tests.memory import logs
from tests.memory.stored import dump, opened, sweep
from thence.memory.search import parse
from thence.memory.sqlite import MIGRATIONS

STORES = Path(__file__).parent.parent / "data" / "stores"


def scripts() -> list[Script]:
    """The sessions that the old store was swept from: two, and a fork of the first."""
    first = logs.script(1, 6)
    return [first, logs.script(2, 3), logs.fork(3, first, 9)]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store of schema 4."""
    with tarfile.open(STORES / "schema-4.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "memory"


def test_an_old_store_is_migrated_when_it_is_opened(old: Path) -> None:
    """Its sessions are listed and searched before anything is swept; it is done once."""
    for _ in range(2):
        store = opened(old)
        found = store.search(parse(logs.WORDS[0]), 5).found
        rows = list(store.sessions())
        store.close()

        assert 3 == len(rows)
        assert found
    with (old / "s.db").open("rb") as file:
        file.seek(60)
        assert len(MIGRATIONS) == int.from_bytes(file.read(4), "big")


@pytest.mark.parametrize("grown", [False, True])
def test_an_old_store_becomes_what_a_new_sweep_gives(
    old: Path, tmp_path: Path, *, grown: bool
) -> None:
    """Whether its sessions went on since or not; the second sweep after it reads nothing."""
    home = tmp_path / "home"
    made = scripts()
    if grown:
        made[0].user("and one thing more")
    logs.write(home, *made)
    sweep(old, {"claude": [home]})
    again = sweep(old, {"claude": [home]})
    sweep(tmp_path / "new", {"claude": [home]})

    assert (0, 0) == (again.read, again.rebuilt)
    assert dump(tmp_path / "new") == dump(old)


def test_sessions_of_an_old_store_whose_logs_are_gone_stay(old: Path, tmp_path: Path) -> None:
    """They can be listed, searched and put together though nothing can be read again."""
    home = tmp_path / "home"
    logs.write(home, logs.script(9, 2))
    sweep(old, {"claude": [home]})
    store = opened(old)
    stored = store.held(f"claude:{logs.name(1)}")
    number = len(list(store.sessions()))
    store.close()

    assert stored is not None
    assert stored.facts
    assert 4 == number
