"""What happens to databases: rows are deleted, and cells hold what nobody expects."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import apsw

from thence.format.records import JSON


@contextlib.contextmanager
def open_for_change(path: Path) -> Iterator[apsw.Connection]:
    """Open a database to change it; nobody can take it for unchanged then."""
    before = path.stat().st_mtime_ns
    database = apsw.Connection(str(path))
    try:
        yield database
    finally:
        database.close()
    later = max(before, path.stat().st_mtime_ns) + 1_000_000
    os.utime(path, ns=(later, later))


def tables(database: apsw.Connection) -> list[str]:
    """Return the names of the tables with rows of their own."""
    query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    return [str(name) for (name,) in database.execute(query)]


def delete_last(database: apsw.Connection) -> None:
    """Delete the last third of the rows of each table; of one row, none."""
    for table in tables(database):
        database.execute(
            f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} ORDER BY rowid DESC"  # noqa: S608 - names of our own samples
            f" LIMIT (SELECT count(*) FROM {table}) / 3)"
        )


def lie(
    database: apsw.Connection,
    chance: random.Random,
    lies: Sequence[JSON],
    lied: Callable[[bytes], bytes],
) -> None:
    """Change one cell: to any value, or if it holds JSON to one with a lie in it."""
    table = chance.choice(tables(database))
    numbers = [number for (number,) in database.execute(f"SELECT rowid FROM {table}")]  # noqa: S608 - see above
    columns = [str(row[1]) for row in database.execute(f"PRAGMA table_info({table})")]
    if not numbers:
        return
    number, column = chance.choice(numbers), chance.choice(columns)
    query = f"SELECT {column} FROM {table} WHERE rowid = ?"  # noqa: S608 - see above
    ((cell,),) = database.execute(query, (number,))
    value: JSON
    if isinstance(cell, str) and cell[:1] in ("{", "[") and chance.random() < 0.7:
        value = lied(cell.encode()).decode("utf-8", "replace")
    else:
        value = _storable(chance.choice(lies))
    with contextlib.suppress(apsw.Error):  # the schema itself refuses some
        database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, number))  # noqa: S608 - see above


def _storable(value: JSON) -> JSON:
    """Return a value as a cell can hold it."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, (list, dict)):
        return repr(value).encode()
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float(value)
    return value
