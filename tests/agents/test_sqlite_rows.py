"""Rows of databases that others write: one state of them, no trace, and no error for anything."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from tests.agents import test_hermes, test_opencode
from tests.agents.databases import OPENCODE, insert, only, run, state
from tests.agents.test_opencode import steps
from thence.agents import files, sqlite_rows
from thence.agents.guard import GuardedAdapter
from thence.agents.opencode.reader import OpenCode
from thence.agents.row_sources import sources_at
from thence.agents.sqlite_rows import Database, UnreadableError, query

WRITER = """
import sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA journal_mode=" + sys.argv[2])
database.execute("PRAGMA wal_autocheckpoint=20")
database.execute("CREATE TABLE IF NOT EXISTS a (n INTEGER, t TEXT)")
database.execute("CREATE TABLE IF NOT EXISTS b (n INTEGER, t TEXT)")
print("ready", flush=True)
until, n = time.monotonic() + float(sys.argv[3]), 0
while time.monotonic() < until:
    n += 1
    database.execute("BEGIN IMMEDIATE")
    database.execute("INSERT INTO a VALUES (?, ?)", (n, "x" * 3000))
    if n % 7 == 0:
        database.execute("DELETE FROM a WHERE n < ?", (n - 40,))
        database.execute("DELETE FROM b WHERE n < ?", (n - 40,))
    database.execute("INSERT INTO b VALUES (?, ?)", (n, "y" * 3000))
    database.execute("COMMIT")
    time.sleep(0.004)
print(n, flush=True)
if sys.argv[4] == "die":
    import os
    os._exit(9)
database.close()
"""


@contextmanager
def writer(
    path: Path, mode: str, seconds: float, end: str = "close"
) -> Iterator[subprocess.Popen[str]]:
    """Start a process that writes two tables, the same number of rows to both in a transaction."""
    command = [sys.executable, "-c", WRITER, str(path), mode, str(seconds), end]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process


def both(database: Database) -> tuple[object, object]:
    """Ask both tables, one after the other."""
    first = list(database.ask("SELECT count(*), max(n), sum(length(t)) FROM a"))
    second = list(database.ask("SELECT count(*), max(n), sum(length(t)) FROM b"))
    return first, second


def rows_in(path: Path) -> int:
    """Return how many rows the first table has."""

    def ask(database: Database) -> int:
        ((number,),) = database.ask("SELECT count(*) FROM a")
        return int(number)

    return query(str(path), ask)


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_every_answer_is_one_state_while_a_client_writes(tmp_path: Path, mode: str) -> None:
    """With checkpoints every few rows, and with a journal; it may also say that it is busy."""
    path = tmp_path / "live.db"
    good, reasons = 0, set[str]()
    with writer(path, mode, 1.0) as process:
        while process.poll() is None:
            try:
                first, second = query(str(path), both)
            except UnreadableError as error:
                reasons.add(str(error))
                continue
            assert first == second
            good += 1

    assert reasons <= {sqlite_rows._BUSY_REASON, sqlite_rows._JOURNAL_REASON}
    assert good > 0
    assert 0 == process.returncode


def test_a_client_that_writes_finds_its_files_as_it_left_them(tmp_path: Path) -> None:
    """Read all the time, it writes as many rows as it wants, and its database is sound."""
    path = tmp_path / "live.db"
    with writer(path, "wal", 1.0) as process:
        while process.poll() is None:
            with suppress(UnreadableError):
                query(str(path), both)
        written = int((process.stdout.read() if process.stdout else "").split()[-1])
    database = sqlite3.connect(path)
    sound = database.execute("PRAGMA integrity_check").fetchall()
    last = database.execute("SELECT max(n) FROM b").fetchall()
    database.close()

    assert [("ok",)] == sound
    assert [(written,)] == last
    assert ["live.db"] == sorted(p.name for p in tmp_path.iterdir() if "-" not in p.name)


def test_rows_of_a_log_that_a_dead_client_left_are_read_without_a_trace(tmp_path: Path) -> None:
    """Its index is gone, and none is made; bytes and times stay, and no file is added."""
    path = tmp_path / "dead.db"
    with writer(path, "wal", 0.3, "die") as process:
        process.wait()
    (tmp_path / "dead.db-shm").unlink()
    beside = path.with_name("copy.db")
    shutil.copy(path, beside)
    shutil.copy(f"{path}-wal", f"{beside}-wal")
    database = sqlite3.connect(beside)
    truth = database.execute("SELECT count(*) FROM a").fetchone()[0]
    database.close()
    beside.unlink(missing_ok=True)
    before = state(tmp_path)

    assert truth == rows_in(path)
    assert before == state(tmp_path)


def test_sessions_are_read_without_a_trace(tmp_path: Path) -> None:
    """Find, look up and read leave bytes, times and names as they were."""
    path = run(tmp_path / "opencode.db", OPENCODE, steps())
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("UPDATE session SET title = title")
    database.commit()
    before = {
        name: content for name, content in state(tmp_path).items() if not name.endswith("-shm")
    }
    index = (tmp_path / "opencode.db-shm").read_bytes()
    adapter = OpenCode()
    facts = [fact for source in adapter.find(tmp_path) for fact in adapter.read(source).events]
    adapter.at(path)

    assert facts
    after = {
        name: content for name, content in state(tmp_path).items() if not name.endswith("-shm")
    }
    assert before == after
    assert index == (tmp_path / "opencode.db-shm").read_bytes()
    database.close()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a database",
        b"SQLite format 3\0",
        b"SQLite format 3\0" + b"\xff" * 5000,
        b"\0" * 9000,
    ],
)
def test_what_is_no_database_has_no_session_and_raises_nothing(tmp_path: Path, data: bytes) -> None:
    """A session that was known there says why it cannot be read."""
    path = run(tmp_path / "opencode.db", OPENCODE, steps())
    adapter = OpenCode()
    source = next(iter(adapter.find(tmp_path)))
    cursor = adapter.read(source).cursor
    path.write_bytes(data)
    batch = adapter.read(source, cursor)

    assert [] == list(adapter.find(tmp_path))
    assert adapter.at(path) is None
    assert [] == batch.events
    assert data == b"" or 1 == len(batch.skipped)


def test_a_database_that_was_cut_anywhere_raises_nothing(tmp_path: Path) -> None:
    """What its pages still hold is read, and nothing is made up."""
    path = run(tmp_path / "opencode.db", OPENCODE, steps())
    adapter = OpenCode()
    sources = list(adapter.find(tmp_path))
    known = {fact.node.id for source in sources for fact in adapter.read(source).events}
    data = path.read_bytes()
    for cut in range(0, len(data), max(1, len(data) // 23)):
        path.write_bytes(data[:cut])
        list(adapter.find(tmp_path))
        for source in sources:
            batch = adapter.read(source)
            assert {fact.node.id for fact in batch.events} <= known


def test_damaged_pages_raise_nothing(tmp_path: Path) -> None:
    """Every page in turn holds noise."""
    path = run(tmp_path / "opencode.db", OPENCODE, steps())
    adapter = OpenCode()
    (source, *_) = adapter.find(tmp_path)
    data = path.read_bytes()
    for page in range(0, len(data), 4096):
        noise = bytes(reversed(data[page : page + 4096]))
        path.write_bytes(data[:page] + noise + data[page + 4096 :])
        list(adapter.find(tmp_path))
        adapter.read(source)


def test_links_and_folders_are_not_opened(tmp_path: Path) -> None:
    """Neither is a write-ahead log that is a link."""
    real = run(tmp_path / "elsewhere" / "opencode.db", OPENCODE, steps())
    root = tmp_path / "root"
    (root / "opencode-x.db").mkdir(parents=True)
    (root / "opencode.db").symlink_to(real)
    assert [] == list(OpenCode().find(root))

    (root / "opencode.db").unlink()
    shutil.copy(real, root / "opencode.db")
    (root / "opencode.db-wal").symlink_to("/dev/zero")
    assert [] == list(OpenCode().find(root))


def test_an_unfinished_transaction_of_a_dead_client_is_told(tmp_path: Path) -> None:
    """Only its client can mend that: the rows may be half written."""
    path = run(tmp_path / "x.db", "CREATE TABLE a (n INTEGER);", [insert("a", n=1)])
    database = sqlite3.connect(path)
    database.execute("PRAGMA cache_size=1")
    database.execute("BEGIN")
    database.executemany("INSERT INTO a VALUES (?)", ((n,) for n in range(20_000)))
    os.sync()
    for end in ("", "-journal"):
        shutil.copy(f"{path}{end}", f"{tmp_path}/left.db{end}")
    database.rollback()
    database.close()
    before = state(tmp_path)

    with pytest.raises(UnreadableError):
        rows_in(tmp_path / "left.db")
    assert before == state(tmp_path)


def test_a_question_that_never_ends_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schema is the file's own: a table may be a view that counts for ever."""
    monkeypatch.setattr(sqlite_rows, "MAX_QUERY_S", 0.2)
    schema = """CREATE VIEW session AS WITH RECURSIVE c(id) AS
        (SELECT 1 UNION ALL SELECT id + 1 FROM c) SELECT 'x' AS id, 1 AS time_updated FROM c
        WHERE id < 0;"""
    path = run(tmp_path / "opencode.db", schema, ())
    files.UNREADABLE.clear()

    assert [] == list(OpenCode().find(tmp_path))
    assert {str(path): "a question took more than 0 s"} == files.UNREADABLE


def test_a_session_is_found_by_any_file_of_its_database(tmp_path: Path) -> None:
    """What a watcher tells of is mostly the write-ahead log."""
    path = run(tmp_path / "opencode.db", OPENCODE, steps())
    adapter = OpenCode()
    sources = list(adapter.find(tmp_path))

    assert sources == adapter.sources_at(path)
    assert sources == adapter.sources_at(Path(f"{path}-wal"))
    guarded = GuardedAdapter(adapter, EntryPoint("opencode", "a.b:C", "thence.agents"))
    assert sources == sources_at(guarded, path)
    assert [] == adapter.sources_at(tmp_path / "kilo.db")
    assert adapter.at(path) in sources


def test_a_long_session_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece ends at a row; together they are the session."""
    from thence.agents.files import Limits
    from thence.agents.opencode.rows import OpenCodeLog

    run(tmp_path / "opencode.db", OPENCODE, steps())
    source = next(iter(OpenCode().find(tmp_path)))
    once = OpenCode().read(source)
    events, cursor, reads = [], None, 0
    while True:
        batch = sqlite_rows.read(source, cursor, OpenCodeLog, Limits(bytes=400))
        events += batch.events
        cursor, reads = batch.cursor, reads + 1
        if batch.done:
            break

    assert once.events == events
    assert reads > 3


@pytest.mark.parametrize(
    ("module", "name"), [(test_opencode, "opencode.db"), (test_hermes, "state.db")]
)
def test_a_row_that_is_too_long_costs_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    """It is told with its size, and is not loaded."""
    module.write(tmp_path)
    adapter = module.ADAPTER
    expected = [fact for source in adapter.find(tmp_path) for fact in adapter.read(source).events]
    table, column = ("event", "data") if name == "opencode.db" else ("messages", "content")
    database = sqlite3.connect(tmp_path / name)
    query = f"UPDATE {table} SET {column} = ? WHERE rowid = 3"
    database.execute(query, ("x" * 20_000,))
    database.commit()
    database.close()
    monkeypatch.setattr(sqlite_rows, "LINE_LIMIT", 10_000)
    batches = [adapter.read(source) for source in adapter.find(tmp_path)]
    (skip,) = (skip for batch in batches for skip in batch.skipped)

    assert skip.length > 20_000
    assert len(expected) - 3 <= sum(len(batch.events) for batch in batches) < len(expected)


def test_a_vacuum_changes_nothing(tmp_path: Path) -> None:
    """Rows are known by what they say they are, not by their place."""
    path = run(tmp_path / "opencode.db", OPENCODE, steps())
    adapter = OpenCode()
    cursors = {s.session: adapter.read(s).cursor for s in adapter.find(tmp_path)}
    database = sqlite3.connect(path)
    database.execute("DELETE FROM event WHERE aggregate_id = 'none'")
    database.commit()
    database.execute("VACUUM")
    database.close()
    again = [adapter.read(s, cursors[s.session]) for s in adapter.find(tmp_path)]

    assert [([], [], [])] * len(again) == [(b.events, b.notices, b.skipped) for b in again]


def test_a_schema_of_another_client_has_no_session(tmp_path: Path) -> None:
    """Missing columns are empty, missing tables have no rows."""
    run(tmp_path / "opencode.db", "CREATE TABLE session (id text); ", [insert("session", id="s")])
    source = only(OpenCode(), tmp_path)
    batch = OpenCode().read(source)

    assert ("s", [], True) == (source.session, batch.skipped, batch.done)
