"""Runs of rows say the number of an event; stores that were made before there were any, too."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from tests.agents.transcripts import Script
from tests.memory import logs
from tests.memory.stored import sweep
from thence.memory import runs
from thence.memory.search import parse
from thence.memory.sqlite import MIGRATIONS, Sqlite

WORD = "saltmarsh"
BEFORE = MIGRATIONS.index(runs.MIGRATION)


@pytest.fixture
def db(tmp_path: Path) -> apsw.Connection:
    """A store without sessions, by its connection."""
    return Sqlite(f"{tmp_path}/s.db")._db


def wrote(db: apsw.Connection, session: int, *rows: int) -> None:
    """Write rows of events, as a sweep would."""
    sql = "INSERT INTO events VALUES(?,?,?,0,0,0,NULL,0,NULL,0,0)"
    db.executemany(sql, [(row, session, row) for row in rows])
    runs.add(db, session, rows[0], len(rows))


def test_rows_are_numbered_on_from_run_to_run(db: apsw.Connection) -> None:
    """Whatever lies between them; rows of no run have no number."""
    wrote(db, 1, 10, 11)
    wrote(db, 2, 12, 13, 14)
    wrote(db, 1, 20)

    assert {10: 0, 11: 1, 14: 2, 20: 2} == runs.numbers(db, [10, 11, 14, 15, 20, 21, 3])


def test_rows_that_follow_lengthen_a_run(db: apsw.Connection) -> None:
    """A session that grows alone stays one run."""
    wrote(db, 1, 10, 11)
    wrote(db, 1, 12)

    assert [(10, 1, 3, 0)] == db.execute("SELECT * FROM runs").fetchall()


def test_runs_are_found_anew_when_rows_are_gone(db: apsw.Connection) -> None:
    """What comes after a gap moves up; other sessions stay as they are."""
    wrote(db, 1, 10, 11, 12)
    wrote(db, 2, 13)
    wrote(db, 1, 14)
    db.execute("DELETE FROM events WHERE id=11")
    runs.find(db, 1)

    assert {10: 0, 12: 1, 13: 0, 14: 2} == runs.numbers(db, [10, 11, 12, 13, 14])


def test_store_without_runs_still_answers(tmp_path: Path) -> None:
    """Its runs are found when it is opened; sessions that grew in the middle are told apart."""
    home, place = tmp_path / "home", tmp_path / "store"
    scripts = [logs.script(number) for number in range(3)]
    side = Script(scripts[0].session, "a-", isSidechain=True)
    below = logs.path(home, scripts[0]).with_suffix("") / "subagents"
    below.mkdir(parents=True)
    for turn in range(3):
        for script in (*scripts, side):
            script.user(f"{WORD} {turn}")
            script.say("done")
        logs.write(home, *scripts)
        (below / "agent-a.jsonl").write_bytes(side.data)
        sweep(place, {"claude": [home]})
    asked = parse(WORD)
    store = Sqlite(str(place / "s.db"))
    new = store.search(asked, 100)
    shuffled = {row.session.session_uid for row in store.sessions() if row.shuffled}
    store._db.execute("DROP TABLE runs; DROP INDEX events_derived; DROP TABLE folds")
    store._db.execute("DROP TABLE calls; ALTER TABLE sessions DROP COLUMN fold")
    store._db.execute("ALTER TABLE sessions DROP COLUMN digest")
    store._db.execute("ALTER TABLE events DROP COLUMN implied; DROP TABLE title_words")
    store._db.execute(f"PRAGMA user_version={BEFORE}")
    store.close()
    store = Sqlite(str(place / "s.db"))

    assert 12 == len(new.found)
    assert None not in [hit.seq for hit in new.found]
    assert new == store.search(asked, 100)
    assert 1 == len(shuffled)
    wanted = "SELECT DISTINCT uid FROM runs JOIN sessions ON sessions.id=session"
    told = {uid for (uid,) in store._db.execute(wanted)}
    assert {row.session.session_uid for row in store.sessions()} - shuffled == told


def test_rows_are_read_in_their_order(db: apsw.Connection) -> None:
    """By runs, or without any; what digests derived is left out either way."""
    wrote(db, 1, 10, 11)
    wrote(db, 2, 12)
    wrote(db, 1, 13)
    db.execute("INSERT INTO events VALUES(14, 1, 14, 0, 0, 0, NULL, 0, NULL, 1, 0)")
    by_runs = runs.events(db, 1, "event_id")
    runs.forget(db, 1)

    assert [(10,), (11,), (13,)] == by_runs
    assert by_runs == runs.events(db, 1, "event_id")
    assert [] == runs.events(db, None, "event_id")
