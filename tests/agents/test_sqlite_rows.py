"""Rows of databases that others write: one state of them, no trace, and no error for anything."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import apsw
import pytest

from tests.agents import test_hermes, test_opencode
from tests.agents.databases import OPENCODE, Step, insert, only, run, state
from tests.agents.test_opencode import steps
from tests.pace import one_quick
from thence.agents import sqlite_rows
from thence.agents.guard import GuardedAdapter
from thence.agents.looks import Look
from thence.agents.opencode.reader import OpenCode
from thence.agents.row_sources import sources_at
from thence.agents.sqlite_rows import (
    MAX_HEAP_BYTES,
    MIN_ROW_BYTES,
    Database,
    UnreadableError,
    query,
)

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


@pytest.mark.parametrize("mode", one_quick(["wal", "delete"]))
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


@pytest.mark.slow
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
    """Neither is a write-ahead log that is a link; all are named."""
    real = run(tmp_path / "elsewhere" / "opencode.db", OPENCODE, steps())
    root = tmp_path / "root"
    (root / "opencode-x.db").mkdir(parents=True)
    (root / "opencode.db").symlink_to(real)
    look = Look()
    assert [] == look.find(OpenCode(), root)
    assert ["database", "link"] == sorted(item.kind for item in look.unread)

    (root / "opencode.db").unlink()
    shutil.copy(real, root / "opencode.db")
    (root / "opencode.db-wal").symlink_to("/dev/zero")
    look = Look()
    assert [] == look.find(OpenCode(), root)
    assert 2 == len(look.unread)


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


COUNTING = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) "
ENDLESS = f"{COUNTING} SELECT 's' || n AS id, n AS time_updated FROM c"
EVENTS = "'e' || n AS id, 's' AS aggregate_id, n AS seq, 'message.updated' AS type"
HUGE = f"{COUNTING} SELECT {EVENTS}, hex(zeroblob(450000000)) AS data FROM c"
CROSSED = f"{COUNTING} SELECT {EVENTS}, '{{}}' AS data FROM c CROSS JOIN session"
SESSION = "CREATE TABLE session (id text, time_updated); INSERT INTO session VALUES ('s', 1);"


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (f"CREATE VIEW session AS {ENDLESS};", "session is a view, not a table"),
        (f"{SESSION} CREATE VIEW event AS {HUGE};", "event is a view, not a table"),
        (f"{SESSION} CREATE VIEW event AS {CROSSED};", "event is a view, not a table"),
        (f"{SESSION} CREATE VIEW Message AS {ENDLESS};", "message is a view, not a table"),
        ("CREATE VIRTUAL TABLE session USING fts5(id);", "session is a virtual, not a table"),
        ("CREATE TABLE other (id);", "has no table session that is known"),
    ],
)
def test_what_only_looks_like_a_table_is_named_and_costs_nothing(
    tmp_path: Path, schema: str, why: str
) -> None:
    """The schema is the file's own: a view may count for ever or fill the memory."""
    path = run(tmp_path / "opencode.db", schema, ())
    look, adapter = Look(), OpenCode()
    apsw.memory_high_water(True)
    skipped = [skip for s in look.find(adapter, tmp_path) for skip in adapter.read(s).skipped]
    noted = [(item.path, item.why) for item in look.unread]

    assert [(str(path), why)] == noted + [(skip.source, skip.why) for skip in skipped]
    assert apsw.memory_high_water() < 8 << 20


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ("MAX_QUERY_S", "a question took more than 0 s"),
        ("MAX_HEAP_BYTES", "a question took more than 2 MiB of memory"),
    ],
)
def test_a_question_has_a_limit_of_time_and_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, why: str
) -> None:
    """Of real tables too: what is sorted lies in memory. The limits end with the question."""
    monkeypatch.setattr(sqlite_rows, limit, {"MAX_QUERY_S": 0, "MAX_HEAP_BYTES": 2 << 20}[limit])
    monkeypatch.setattr(sqlite_rows, "_STEPS_PER_TIME_CHECK", 100)
    rows = [insert("message", id=f"m{n}", session_id="s", data="x" * 90_000) for n in range(100)]
    schema = f"{SESSION} CREATE TABLE message (id, session_id, time_created, data);"
    path = run(tmp_path / "opencode.db", schema, rows)

    def ask(database: Database) -> int:
        rows = database.select("message", ("id", "data"), "ORDER BY time_created")
        return sum(1 for _ in rows)

    with pytest.raises(UnreadableError, match=why):
        query(str(path), ask)
    monkeypatch.undo()
    os.utime(path)  # as a write: else it is not asked again, once it is a moment old

    assert 100 == query(str(path), ask)
    assert 0 == apsw.hard_heap_limit(-1)


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("SELECT id FROM seen", "its tables are not those of a known version"),
        (f"SELECT length(zeroblob({MAX_HEAP_BYTES} + 1))", "more than 80 MiB of memory"),
    ],
)
def test_no_question_reaches_a_view_or_gets_a_value_without_end(
    tmp_path: Path, question: str, why: str
) -> None:
    """Whatever is asked: a view beside the tables that were looked at, a value of zeros."""
    schema = f"{SESSION} CREATE VIEW seen AS SELECT id FROM session;"
    path = run(tmp_path / "opencode.db", schema, ())

    with pytest.raises(UnreadableError, match=why):
        query(str(path), lambda database: list(database.ask(question)))


def _repeat_pages(path: Path, table: str) -> None:
    """Let all that the tree of a table leads to be its first page of rows, many times over."""
    with closing(sqlite3.connect(path)) as database:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (root,) = database.execute(query, (table,)).fetchone()
    data = bytearray(path.read_bytes())
    start, size = (root - 1) * 4096, 4096
    cells = int.from_bytes(data[start + 3 : start + 5], "big")
    pointers = range(start + 12, start + 12 + 2 * cells, 2)
    places = [start + int.from_bytes(data[at : at + 2], "big") for at in pointers]
    leaf = data[places[0] : places[0] + 4]
    assert 5 == data[start]
    # A page between the two: its places are those of the root, whose number it has not.
    between = len(data) // size + 1
    data += data[start : start + size]
    for place in (start + 8, *places):
        data[place : place + 4] = between.to_bytes(4, "big")
        again = place - start + (between - 1) * size
        data[again : again + 4] = leaf
    data[28:32] = between.to_bytes(4, "big")
    path.write_bytes(data)


@pytest.mark.parametrize("is_keyed", [True, False])
def test_a_tree_that_leads_to_the_same_rows_again_and_again_is_damaged(
    tmp_path: Path, *, is_keyed: bool
) -> None:
    """It costs what the file is long: by the second row of a key, or by what a file can hold."""
    key = "printf('s%04d', n)" if is_keyed else "zeroblob(0)"
    schema = f"""CREATE TABLE session (id, time_updated, rest);
        WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 9000)
        INSERT INTO session SELECT {key}, n, zeroblob(90) FROM c;"""
    path = run(tmp_path / "opencode.db", schema, ())
    _repeat_pages(path, "session")
    seen: list[object] = []

    def ask(database: Database) -> None:
        select = database.select_once if is_keyed else database.select
        seen.extend(cells[0] for cells in select("session", ("id", "time_updated")))

    with closing(sqlite3.connect(path)) as database:
        (rows,) = database.execute("SELECT count(*) FROM session").fetchone()
    with pytest.raises(UnreadableError, match="a damaged database"):
        query(str(path), ask)

    assert rows * MIN_ROW_BYTES > path.stat().st_size >= len(seen) * MIN_ROW_BYTES
    assert len(set(seen)) == (len(seen) if is_keyed else 1)
    assert [] == list(OpenCode().find(tmp_path))


def test_a_database_of_which_one_question_takes_too_long_is_asked_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand sessions would take a thousand times as long; who writes to it has it asked."""
    monkeypatch.setattr(sqlite_rows, "MAX_QUERY_S", 0)
    monkeypatch.setattr(sqlite_rows, "_STEPS_PER_TIME_CHECK", 100)
    path = run(tmp_path / "opencode.db", "CREATE TABLE a (n);", [insert("a", n=1)] * 20)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    time.sleep(0.03)  # a time of change that is not a moment old
    asked: list[str] = []

    def ask(database: Database) -> int:
        asked.append(database.path)
        ((number,),) = database.ask("SELECT count(*) FROM a, a AS b, a AS c")
        return int(number)

    for _ in range(3):
        with pytest.raises(UnreadableError, match="a question took more than 0 s"):
            query(str(path), ask)

    first = len(asked)
    monkeypatch.undo()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO a VALUES (2)")

    assert (1, 21**3) == (first, query(str(path), ask))


def test_text_that_is_none_costs_its_row(tmp_path: Path) -> None:
    """An id of a session, and one of an event: counted, and the other rows are read."""
    columns = "project_id, parent_id, directory, title, version, revert, time_created, time_updated"
    copied = f"SELECT CAST(x'ff41' AS TEXT), {columns} FROM session LIMIT 1"
    spoiled: list[Step] = [
        ("UPDATE event SET id = CAST(x'ff41' AS TEXT) WHERE rowid = 9", ()),
        (f"INSERT INTO session {copied}", ()),
    ]
    run(tmp_path / "whole" / "opencode.db", OPENCODE, test_opencode.steps())
    path = run(tmp_path / "opencode.db", OPENCODE, [*test_opencode.steps(), *spoiled])
    look, adapter = Look(), OpenCode()
    sound = [adapter.read(source) for source in adapter.find(tmp_path / "whole")]
    batches = [adapter.read(source) for source in look.find(adapter, tmp_path)]
    (item,) = look.unread
    (skip,) = [skip for batch in batches for skip in batch.skipped]

    assert (str(path), "row", 1) == (item.path, item.kind, item.count)
    assert (str(path), item.why) == (skip.source, skip.why)
    assert sum(b.lines for b in sound) - 1 == sum(b.lines for b in batches)


def test_a_damaged_database_is_not_asked_again_until_somebody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is still named; a look that remembers nothing opens it."""
    path = tmp_path / "opencode.db"
    path.write_bytes(b"no database" * 99)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    asked: list[str] = []
    real = sqlite_rows.query

    def count(path: str, ask: Callable[[Database], object]) -> object:
        asked.append(path)
        return real(path, ask)

    monkeypatch.setattr(sqlite_rows, "query", count)
    time.sleep(0.03)  # a time of change that is not a moment old
    first = Look()
    first.find(OpenCode(), tmp_path)
    again = Look(first.unread)
    again.find(OpenCode(), tmp_path)

    assert (1, first.unread) == (len(asked), again.unread)
    path.write_bytes(b"still no database" * 99)
    changed = Look(first.unread)
    changed.find(OpenCode(), tmp_path)

    assert (2, ["not a database"]) == (len(asked), [item.why for item in changed.unread])


def test_a_session_is_found_by_any_file_of_its_database(tmp_path: Path) -> None:
    """What a watcher tells of is mostly the write-ahead log."""
    path = run(tmp_path / "opencode.db", OPENCODE, steps())
    adapter = OpenCode()
    sources = list(adapter.find(tmp_path))

    assert sources == adapter.sources_at(path)
    assert sources == adapter.sources_at(Path(f"{path}-wal"))
    point = EntryPoint("opencode", "thence.agents.opencode.reader:OpenCode", "thence.agents")
    guarded = GuardedAdapter(point)
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
