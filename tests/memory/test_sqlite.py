"""The store in one SQLite file tells the story of all stores, and keeps its own promises."""

from __future__ import annotations

import itertools
import stat
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from thence.errors import BadConfig
from thence.memory import index, sqlite_file
from thence.memory.sqlite import Sqlite
from thence.memory.sqlite_schema import MIGRATIONS
from thence.memory.store import Store, open_store
from thence.testing.stores import CHECKS, StoreSuite


@pytest.fixture
def suite(tmp_path: Path) -> StoreSuite:
    """The story, each check in a folder of its own."""
    numbers = itertools.count()

    def files(store: Store) -> list[Path]:
        assert isinstance(store, Sqlite)
        return [path for path in store.path.parent.rglob("*") if path.is_file()]

    return StoreSuite(lambda: open_store(f"sqlite:{tmp_path}/{next(numbers)}/s.db"), files=files)


@pytest.mark.parametrize("check", CHECKS)
def test_story(suite: StoreSuite, check: str) -> None:
    """What every store must do."""
    assert [] == suite.complaints(check)


@pytest.mark.parametrize("check", ["writing_twice", "searching", "evicting", "forgetting"])
def test_story_over_many_tables(
    suite: StoreSuite, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same when every text begins a new table of the index."""
    monkeypatch.setattr(index, "TABLE_BYTES", 4)

    assert [] == suite.complaints(check)


def test_files_are_the_owners_alone(tmp_path: Path) -> None:
    """A store holds what people said to their agents."""
    store = Sqlite(f"{tmp_path}/new/s.db")

    assert 0o700 == stat.S_IMODE((tmp_path / "new").stat().st_mode)
    assert 0o600 == stat.S_IMODE(store.path.stat().st_mode)


def test_opening_a_store_writes_nothing(tmp_path: Path) -> None:
    """Who only looks waits for no disk: file and log are as they were."""
    path = tmp_path / "thence.db"
    Sqlite(str(path)).close()
    before = path.read_bytes()
    store = Sqlite(str(path))
    log = path.with_name(f"{path.name}-wal")
    log_bytes = log.stat().st_size if log.exists() else 0
    store.close()

    assert (0, before) == (log_bytes, path.read_bytes())


def test_store_of_a_newer_thence_is_refused(tmp_path: Path) -> None:
    """An older program would not understand it, and must not write into it."""
    store = Sqlite(f"{tmp_path}/s.db")
    store.close()
    db = apsw.Connection(f"{tmp_path}/s.db")
    db.execute(f"PRAGMA user_version={len(MIGRATIONS) + 1}")
    db.close()

    with pytest.raises(BadConfig, match="newer thence"):
        Sqlite(f"{tmp_path}/s.db")


def test_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    """And left as it is."""
    (tmp_path / "s.db").write_bytes(b"my diary\n" * 1000)

    with pytest.raises(BadConfig, match="cannot open the store"):
        Sqlite(f"{tmp_path}/s.db")
    assert b"my diary\n" * 1000 == (tmp_path / "s.db").read_bytes()


def test_unknown_store_is_refused() -> None:
    """With the ones that there are."""
    with pytest.raises(BadConfig, match="no store type mongo") as caught:
        open_store("mongo:there")

    assert "sqlite" in (caught.value.hint or "")


@pytest.mark.parametrize("room", [True, False], ids=["all at once", "in pieces"])
def test_the_file_shrinks_by_what_was_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, room: bool
) -> None:
    """With room on the disk at once, without it in pieces; and goes on as it was."""
    monkeypatch.setattr(sqlite_file, "_SHRINK_ALL_AT_PAGES", 100)
    monkeypatch.setattr(sqlite_file, "_SHRINK_PAGES", 64)
    monkeypatch.setattr(Sqlite, "_has_room", lambda _self, _pages: room)
    store = Sqlite(f"{tmp_path}/s.db")
    db = apsw.Connection(str(store.path))
    with db:  # one commit, and not a thousand
        db.execute("CREATE TABLE much(body)")
        db.executemany("INSERT INTO much VALUES(?)", ((bytes(4000),) for _ in range(1000)))
    full = int(db.pragma("page_count"))
    db.execute("DELETE FROM much WHERE rowid % 10")
    free = int(db.pragma("freelist_count"))

    asked: list[str] = []

    def trace(_cursor: apsw.Cursor, sql: str, _bindings: object) -> bool:
        asked.append(sql)
        return True

    store._db.exec_trace = trace

    assert free > 800
    assert store.settle()
    assert room == ("PRAGMA auto_vacuum=FULL" in asked)
    assert 0 == db.pragma("freelist_count")
    assert full - free >= db.pragma("page_count")
    assert (2, "ok") == (db.pragma("auto_vacuum"), db.pragma("integrity_check"))
    assert 100 == db.execute("SELECT count(*) FROM much").get
    assert store.path.stat().st_size == db.pragma("page_count") * db.pragma("page_size")


LOCKED = """
import fcntl, os, sys
try:
    fcntl.lockf(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 128)
except BlockingIOError:
    print("held")
"""
"""Says whether another process holds the byte by which SQLite knows that a `-shm` is in use."""


def test_opening_an_empty_store_again_keeps_the_locks_of_the_first(tmp_path: Path) -> None:
    """Otherwise the next process to come cuts the file that both have mapped: SIGBUS."""
    first, second = (Sqlite(str(tmp_path / "s.db")) for _ in range(2))
    try:
        shared = f"{first.path}-shm"
        done = subprocess.run(
            [sys.executable, "-c", LOCKED, shared], capture_output=True, text=True, check=True
        )
    finally:
        first.close()
        second.close()

    assert "held" == done.stdout.strip()


def test_looking_for_other_stores_keeps_the_locks_on_them(tmp_path: Path) -> None:
    """A new store in the folder of one that is open in the same process."""
    first = Sqlite(str(tmp_path / "s.db"))
    second = Sqlite(str(tmp_path / "other.db"))
    try:
        program = LOCKED.replace("1, 128", "510, (1 << 30) + 2")  # the shared lock of a database
        done = subprocess.run(
            [sys.executable, "-c", program, str(first.path)],
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        first.close()
        second.close()

    assert "held" == done.stdout.strip()
    assert (tmp_path / "other.db.packs").is_dir()
