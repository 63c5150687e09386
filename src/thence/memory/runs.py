"""Runs: which rows of events lie side by side, so that the row of a hit says its number at once.

What a sweep reads of a session is written in the order in which it is shown, as one run of rows.
A run says where it begins and which number its first event has; a search finds the run of a row
by one look, where counting would pass all rows of a session. Rows that digests derive belong to no
run: no word leads to them, and they are shown after all others. A session whose rows do not lie in
the order in which it is shown has no runs; its events are numbered by putting it together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

import apsw

_FOUND: Final = """
    INSERT INTO runs SELECT min(id), session, count(*), min(n) - 1 FROM (
        SELECT id, session, row_number() OVER (PARTITION BY session ORDER BY id) AS n
        FROM events WHERE NOT derived{which}
    ) GROUP BY session, id - n
"""

MIGRATION: Final = """
    CREATE TABLE runs(
        first INTEGER PRIMARY KEY, session INTEGER NOT NULL, count INTEGER NOT NULL,
        seq INTEGER NOT NULL
    );
    CREATE INDEX runs_session ON runs(session);
    {found};
    DELETE FROM runs WHERE session IN (
        SELECT id FROM sessions WHERE instr(row, x'A873687566666C6564C3')
    );
""".format(found=_FOUND.format(which=""))  # noqa: S608 - both are written above
"""FROZEN: makes the table, and finds the runs of what was kept before there was one.

The row of a session whose events were shown in another order says so: `shuffled`, true.
"""


def add(db: apsw.Connection, session: int, start: int, count: int) -> None:
    """Note rows of a session that were written after all others of it."""
    last = db.execute(
        "SELECT first, count, seq FROM runs WHERE session=? ORDER BY first DESC LIMIT 1", (session,)
    ).fetchone()
    begin, held, seq = last or (start, 0, 0)
    if held and begin + held == start:
        db.execute("UPDATE runs SET count=? WHERE first=?", (held + count, begin))
    else:
        db.execute("INSERT INTO runs VALUES(?,?,?,?)", (start, session, count, seq + held))


def forget(db: apsw.Connection, session: int) -> None:
    """Drop the runs of a session: its rows are gone, or lie in another order."""
    db.execute("DELETE FROM runs WHERE session=?", (session,))


def find(db: apsw.Connection, session: int) -> None:
    """Find the runs of a session anew: single rows of it are gone."""
    forget(db, session)
    db.execute(_FOUND.format(which=" AND session=?"), (session,))


def events(db: apsw.Connection, session: int | None, columns: str) -> list[Any]:
    """Read rows of a session's events as they lie, without those that digests derive."""
    sql = (
        f"SELECT {columns} FROM runs CROSS JOIN events ON id>=first AND id<first+count"  # noqa: S608
        " WHERE runs.session=? ORDER BY first, id"
    )
    if rows := db.execute(sql, (session,)).fetchall():
        return rows
    sql = f"SELECT {columns} FROM events WHERE session=? AND NOT derived ORDER BY id"  # noqa: S608
    return db.execute(sql, (session,)).fetchall()


def numbers(db: apsw.Connection, rows: Collection[int]) -> dict[int, int]:
    """Give the number of each row's event in its session; none for a row that is in no run."""
    found: dict[int, int] = {}
    for row in rows:
        for start, count, seq in _run_of(db, row):
            if row < start + count:
                found[row] = seq + row - start
    return found


def _run_of(db: apsw.Connection, row: int) -> Iterable[tuple[int, int, int]]:
    sql = "SELECT first, count, seq FROM runs WHERE first<=? ORDER BY first DESC LIMIT 1"
    return db.execute(sql, (row,))
