"""Stores made by earlier versions: opened, searched, swept on, and then equal to new ones.

`tests/data/stores` holds stores as schemas 4, 6, 8 and 9 wrote them, with sessions that `logs` can
make again. The index of schema 6 knew of derived kinds only what a record says by itself; schema 9
had no state of sessions of Grok, and another fold.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.agents.groks import Folder
from tests.agents.transcripts import Script
from tests.archives import extract
from tests.memory import logs
from tests.memory.stored import dump, opened, sweep
from tests.memory.test_kinds import searched, shown
from thence.memory import index, sqlite, sqlite_file, sqlite_rows
from thence.memory.search import parse
from thence.memory.sqlite_schema import MIGRATIONS, REFS_MIGRATION

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
    extract(STORES / f"{name}.tar.xz", folder)
    return folder / "memory"


def test_an_old_store_is_migrated_when_it_is_opened(old: Path) -> None:
    """Its sessions are listed and searched before anything is swept; it is done once."""
    for _ in range(2):
        store = opened(old)
        hits = store.search(parse(logs.WORDS[0]), 5).matches
        rows = list(store.sessions())
        store.close()

        assert 3 == len(rows)
        assert hits
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
    stored = store.load_session(f"claude:{logs.name(1)}")
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
    expected, results = shown(store), searched(store)
    store.close()

    assert gap
    assert 1 == sum(report.reprocessed.values())
    assert not any(again.reprocessed.values())
    assert expected == results
    assert 1 == len(results["edit"])


def test_an_old_store_has_the_words_and_kinds_of_a_new_one(tmp_path: Path) -> None:
    """After a sweep: no token of an earlier version is left."""
    old, home = extracted("schema-6", tmp_path), tmp_path / "home"
    logs.write(home, logs.trials(7))
    sweep(old, {"claude": [home]})
    sweep(tmp_path / "new", {"claude": [home]})

    assert dump(tmp_path / "new") == dump(old)


def gone_on(home: Path) -> dict[str, list[Path]]:
    """Write the sessions of the store of schema 9 as they are after some more lines."""
    made = scripts()
    made[0].user("and one thing more")
    logs.write(home / ".claude", *made)
    folder = Folder(home / ".grok")
    folder.summary()
    for number in range(5):
        folder.turn(f"mend lantern {number}", number, "it burns")
    return {"claude": [home / ".claude"], "grok": [home / ".grok"]}


def test_sessions_of_another_fold_that_went_on_are_those_of_a_new_store(tmp_path: Path) -> None:
    """Of Claude Code and Grok; they are rebuilt, read again if need be, and then continued.

    One whose records got another owner meanwhile is rebuilt when it goes on for the first time.
    """
    old = extracted("schema-9", tmp_path)
    roots = gone_on(tmp_path / "home")
    report = sweep(old, roots)
    for phase in ("working", "idle"):
        Folder(tmp_path / "home" / ".grok").event("phase", phase=phase)
        again = sweep(old, roots)
    sweep(tmp_path / "new", roots)

    assert 0 < report.rebuilt + sum(report.reprocessed.values()) <= 2 * 4
    new, stored = dump(tmp_path / "new"), dump(old)
    # A document that was written anew is a fact more.
    new.pop("facts")
    stored.pop("facts")

    assert (1, {}) == (again.read, again.rebuilt_because)
    assert new == stored


@pytest.mark.slow
@pytest.mark.parametrize("schema", ["schema-4", "schema-6", "schema-8"])
def test_a_migration_that_is_killed_at_any_step_is_finished_by_the_next_open(
    tmp_path: Path, schema: str
) -> None:
    """Before each step, and inside each one that does more than its statements."""
    calm = extracted(schema, tmp_path / "calm")
    expected = _tables(calm)
    number = int(schema.removeprefix("schema-"))
    for step in range(number, len(MIGRATIONS)):
        for point in ("before", "inside"):
            folder = extracted(schema, tmp_path / f"{step}-{point}")
            child = os.fork()
            if not child:
                _migrate_and_die(folder, step, point)
            _, status = os.waitpid(child, 0)

            assert os.WIFSIGNALED(status)
            assert expected == _tables(folder), (step, point)


def _tables(folder: Path) -> dict[str, list[str]]:
    """Open a store, and return all rows of all of its tables."""
    store = opened(folder)
    assert isinstance(store, sqlite.Sqlite)
    db = store._db
    sql = "SELECT name FROM sqlite_master WHERE type='table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    names = [str(name) for (name,) in db.execute(sql).fetchall()]
    rows = {name: sorted(map(repr, db.execute(f"SELECT * FROM {name}"))) for name in names}
    version = db.execute("PRAGMA user_version").fetchall()
    store.close()
    return {**rows, "version": [repr(version)]}


def _migrate_and_die(folder: Path, step: int, point: str) -> None:
    """Open a store, and be killed before a step or when all of its statements were executed."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    try:
        steps = list(MIGRATIONS)
        if point == "before":
            steps[step] = "SELECT die()"
        elif steps[step] == index.MIGRATION:
            index.note_tokens = die  # type: ignore[assignment]
        elif steps[step] == index.TITLES_MIGRATION:
            index.index_digests_again = die  # type: ignore[assignment]
        elif steps[step] == REFS_MIGRATION:
            sqlite_rows.note_refs = die  # type: ignore[assignment]
        else:
            steps[step] += "; SELECT die()"
        sqlite_file.MIGRATIONS = tuple(steps)  # type: ignore[attr-defined]
        connect = sqlite.Sqlite._connect

        def connected(self: sqlite.Sqlite) -> object:
            db = connect(self)
            db.create_scalar_function("die", die, 0)
            return db

        sqlite.Sqlite._connect = connected  # type: ignore[assignment, method-assign]
        opened(folder)
    finally:
        os._exit(3)  # it was not killed
