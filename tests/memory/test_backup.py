"""A store of an earlier schema is saved before it is migrated: nothing depends on the step."""

from __future__ import annotations

import os
import time
from pathlib import Path

import apsw
import pytest

from tests.memory import logs
from tests.memory.stored import opened, sweep
from tests.memory.test_migration import extracted
from thence.errors import NotAppendable
from thence.memory import backup
from thence.memory.search import parse
from thence.memory.sqlite_schema import MIGRATIONS

SCHEMAS = (4, 6, 8)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The folder of a store of schema 4, with three sessions and their digests."""
    return extracted("schema-4", tmp_path)


def _asked(path: Path, sql: str) -> list[tuple[object, ...]]:
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return [tuple(row) for row in db.execute(sql)]
    finally:
        db.close()


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_store_is_saved_before_it_is_migrated(tmp_path: Path, schema: int) -> None:
    """With the schema it had: digests and costs are in the copy, transcripts are not."""
    folder = extracted(f"schema-{schema}", tmp_path)
    digests = _asked(folder / "s.db", "SELECT session, body FROM digests ORDER BY session")
    spend = _asked(folder / "s.db", "SELECT * FROM spend ORDER BY session, day, model, place")
    opened(folder).close()
    [copy] = backup.upgrade_copies(folder / "s.db")

    assert f"s.db.schema-{schema}" == copy.name
    assert 0o600 == copy.stat().st_mode & 0o777
    assert [(schema,)] == _asked(copy, "PRAGMA user_version")
    assert [("ok",)] == _asked(copy, "PRAGMA integrity_check")
    assert digests == _asked(copy, "SELECT session, body FROM digests ORDER BY session")
    assert spend == _asked(copy, "SELECT * FROM spend ORDER BY session, day, model, place")
    for table in ("events", "runs"):  # the second was there up to schema 8
        if _asked(copy, f"SELECT 1 FROM sqlite_master WHERE name='{table}'"):
            assert [(0,)] == _asked(copy, f"SELECT count(*) FROM {table}")
    assert [] == _asked(copy, "SELECT name FROM sqlite_master WHERE name LIKE 'words%'")


def test_the_copy_put_in_the_place_of_the_store_goes_on(old: Path, tmp_path: Path) -> None:
    """Its sessions are listed, digests are searched, and the next sweep reads the logs again."""
    opened(old).close()
    [copy] = backup.upgrade_copies(old / "s.db")
    (tmp_path / "again").mkdir()
    copy.rename(tmp_path / "again" / "s.db")
    store = opened(tmp_path / "again")
    uids = {row.session.session_uid for row in store.sessions()}
    hits = store.search(parse(logs.WORDS[0]), 5).matches
    store.close()
    logs.write(tmp_path / "home", logs.script(1, 6))
    report = sweep(tmp_path / "again", {"claude": [tmp_path / "home"]})

    assert 3 == len(uids)
    assert {"digest"} == {hit.kind for hit in hits}
    assert 1 == report.read


def test_a_store_of_this_schema_is_not_saved(old: Path) -> None:
    """Neither one that is migrated already nor a new one."""
    for _ in range(2):
        opened(old).close()
    [copy] = backup.upgrade_copies(old / "s.db")
    copy.unlink()
    opened(old).close()

    assert [] == backup.upgrade_copies(old / "s.db")


def test_a_store_that_cannot_be_saved_is_not_migrated(old: Path) -> None:
    """It stays as it was, and the error says what to do."""
    (old / backup.FOLDER).write_text("no folder")
    with pytest.raises(NotAppendable, match="before it is upgraded") as raised:
        opened(old)

    assert raised.value.hint
    assert [(4,)] == _asked(old / "s.db", "PRAGMA user_version")


def test_to_forget_a_session_deletes_the_copies(old: Path) -> None:
    """What was said there would still be in them."""
    store = opened(old)
    before = backup.upgrade_copies(old / "s.db")
    uid = f"claude:{logs.name(2)}"
    store.remove([uid], why={uid: "asked for"}, forget=True)
    store.close()

    assert 1 == len(before)
    assert [] == backup.upgrade_copies(old / "s.db")


def test_copies_are_there_for_a_month(old: Path, tmp_path: Path) -> None:
    """The first sweep after that removes them; one of another store beside it stays."""
    opened(old).close()
    [copy] = backup.upgrade_copies(old / "s.db")
    other = copy.with_name("t.db.schema-4")
    other.write_bytes(copy.read_bytes())
    sweep(old, {"claude": [tmp_path / "none"]})
    young = backup.upgrade_copies(old / "s.db")
    past = time.time() - (backup.UPGRADE_COPY_DAYS + 1) * 86_400
    for path in (copy, other):
        os.utime(path, (past, past))
    sweep(old, {"claude": [tmp_path / "none"]})

    assert [copy] == young
    assert [] == backup.upgrade_copies(old / "s.db")
    assert other.exists()


def test_two_copies_are_there_at_most(old: Path) -> None:
    """The latest ones."""
    folder = old / backup.FOLDER
    folder.mkdir()
    for age, schema in enumerate((3, 2, 1), start=1):
        path = folder / f"s.db.schema-{schema}"
        path.write_bytes(b"")
        os.utime(path, (time.time() - age * 1000,) * 2)
    opened(old).close()

    assert ["s.db.schema-4", "s.db.schema-3"] == [
        path.name for path in backup.upgrade_copies(old / "s.db")
    ]
    assert 4 < len(MIGRATIONS)
