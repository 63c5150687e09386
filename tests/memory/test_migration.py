"""Stores made by earlier versions: opened, searched, swept on, and then equal to new ones.

`tests/data/stores` holds stores as schemas 4, 6 and 8 wrote them, with sessions that `logs` can
make again. The index of schema 6 knew of derived kinds only what a record says by itself.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.agents.transcripts import Script
from tests.memory import logs
from tests.memory.stored import dump, opened, sweep
from tests.memory.test_kinds import searched, shown
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
    return extracted("schema-4", tmp_path)


def extracted(name: str, folder: Path) -> Path:
    """Return the folder of an old store that was put into another folder."""
    with tarfile.open(STORES / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "memory"


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


@pytest.mark.parametrize("left", [False, True])
def test_derived_kinds_of_an_old_store_are_found_after_the_next_sweep(
    tmp_path: Path, *, left: bool
) -> None:
    """Whether the logs are left or not: the session is derived again once, and found as shown."""
    old, home = extracted("schema-6", tmp_path), tmp_path / "home"
    logs.write(home, logs.trials(7) if left else logs.script(9, 2))
    before = opened(old)
    gap = shown(before) != searched(before)
    before.close()
    report = sweep(old, {"claude": [home]})
    again = sweep(old, {"claude": [home]})
    store = opened(old)
    expected, found = shown(store), searched(store)
    store.close()

    assert gap
    assert 1 == sum(report.reprocessed.values())
    assert not any(again.reprocessed.values())
    assert expected == found
    assert 1 == len(found["edit"])


def test_an_old_store_has_the_words_and_kinds_of_a_new_one(tmp_path: Path) -> None:
    """After a sweep: no token of an earlier version is left."""
    old, home = extracted("schema-6", tmp_path), tmp_path / "home"
    logs.write(home, logs.trials(7))
    sweep(old, {"claude": [home]})
    sweep(tmp_path / "new", {"claude": [home]})

    assert dump(tmp_path / "new") == dump(old)
