"""`thence store copy` between files: what it refuses, and two stores that share a folder."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from tests.cli.desk import Desk, alerts, windows
from tests.postgres import Cluster
from thence.memory.sqlite import Sqlite


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine with two sessions of Claude Code."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(windows(), alerts())
    return desk


@pytest.mark.parametrize("source", ["sqlite:{}/typo/nosuch.db", "{}/nosuch.db", "sqlite:{}"])
def test_copy_from_a_missing_store_makes_nothing(tmp_path: Path, desk: Desk, source: str) -> None:
    """It ends with 10 and a hint; neither FROM nor TO is there afterwards."""
    ran = desk.run("copy", source.format(tmp_path / "stores"), f"sqlite:{tmp_path}/new/x.db")

    assert (10, "") == (ran.code, ran.out)
    assert "there is no store at" in ran.err
    assert "check the path" in ran.err
    assert ["user"] == [path.name for path in tmp_path.iterdir()]


def test_copy_from_an_empty_database_makes_nothing(
    tmp_path: Path, desk: Desk, postgres: Cluster
) -> None:
    """A database without our tables gets none; a tenant without sessions is told of."""
    database = postgres.database()
    missing = desk.run("copy", postgres.url(database), f"{tmp_path}/new/x.db")
    tables = postgres.sql("SELECT 1 FROM pg_tables WHERE schemaname = 'thence'", database)
    desk.sweep()
    full = postgres.url(tenant=f"full {tmp_path}")
    there = desk.run("copy", f"{desk.home}/memory/thence.db", full)
    mistyped = desk.run("copy", postgres.url(tenant=f"fool {tmp_path}"), f"{tmp_path}/new/x.db")

    assert (10, True) == (missing.code, "has no store" in missing.err)
    assert [] == tables
    assert 0 == there.code, there
    assert (10, True) == (mistyped.code, "has no sessions" in mistyped.err)
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
@pytest.mark.parametrize("left_over", [False, True])
def test_two_stores_of_one_folder_are_copied_and_live_apart(
    tmp_path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch, left_over: bool
) -> None:
    """Forgetting a session in one leaves it whole in the other; an empty TO may be there."""
    first, second = f"sqlite:{tmp_path}/d/a.db", f"sqlite:{tmp_path}/d/b.db"
    monkeypatch.setenv("THENCE_STORE", first)
    desk.sweep()
    if left_over:
        Sqlite(f"{tmp_path}/d/b.db").close()
        (tmp_path / "d" / "b.db.packs").rmdir()
    copied = desk.run("copy", first, second)
    again = desk.run("copy", second, first, "--json")
    forgotten = desk.run("forget", "7f3a91c2", "--yes")
    gone = desk.run("show", "7f3a91c2")
    monkeypatch.setenv("THENCE_STORE", second)
    shown = desk.run("show", "7f3a91c2")
    looked = desk.run("doctor", "--deep", "--json")

    assert (0, "") == (copied.code, copied.err), copied
    assert "both stores are identical, compared session by session" in copied.out
    assert (0, 2) == (again.code, again.json["unchanged"])
    assert (0, 10) == (forgotten.code, gone.code)
    assert (0, "") == (shown.code, shown.err)
    assert "lighthouse keeper" in shown.out
    assert [] == [finding for finding in looked.json["findings"] if finding.get("level") == "bad"]


def test_store_is_not_copied_into_itself(desk: Desk) -> None:
    """However its path is spelled."""
    desk.sweep()
    path = desk.home / "memory" / "thence.db"
    ran = desk.run("copy", f"sqlite:{path}", f"{path.parent}/../memory/thence.db")

    assert 2 == ran.code
    assert "the same store" in ran.err


def test_sweep_waits_for_an_older_program_in_the_folder(desk: Desk) -> None:
    """Older ones lock the folder; beside one of them nothing is swept."""
    desk.sweep()
    with (desk.home / "memory" / "sweep.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ran = desk.run("sweep")

    assert 11 == ran.code
    assert "another sweep" in ran.err
