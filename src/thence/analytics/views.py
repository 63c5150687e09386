"""Questions in SQL about an export: DuckDB over its files, and nothing else within its reach.

The tables are views of the files that one manifest names. Whoever asks is trusted, what the files
hold is not, and neither needs more than to read them: before the first question is run, all other
files, the network, extensions and the settings themselves are out of reach, and only statements
that read are let through.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from thence import system
from thence.analytics.exports import MANIFEST, FolderTarget, Manifest, own_folder, read_manifest
from thence.analytics.parquet import load_duckdb
from thence.analytics.tables import TABLES
from thence.errors import NotReadable, ThenceError

_READS: Final = frozenset({"SELECT", "MULTI"})  # several: what a PIVOT is made of
_EXPLAIN = re.compile(r"\s*explain\s+(?:analyze\s+)?", re.IGNORECASE)
_REST = re.compile(r"\n\s*\n|\s*Candidate functions:")  # where an error goes on for experts
_MAX_TRIES: Final = 3
_SCRATCH: Final = "thence-sql-"
LEFTOVER_AGE_S: Final = 60.0
"""Age after which a folder that nobody holds is a leftover, in seconds."""


class BadSql(ThenceError):
    """The SQL is not understood, or asks for more than reading."""

    exit_code = 2


class QueryResult(NamedTuple):
    """What a question gave."""

    columns: list[str]
    types: list[str]
    rows: list[tuple[Any, ...]]
    cut: bool
    """There are more rows than were asked for."""


Open = Mapping[str, str]
"""What sessions that are open now do, `running` or `waiting`, by their uids."""


def ask(
    folder: Path, question: str, *, limit: int | None = None, open_now: Open | None = None
) -> QueryResult:
    """Ask an export something; of the answer no more than `limit` rows.

    Sessions that are open now have no outcome but that.
    """
    engine = load_duckdb()
    source = own_folder(folder)
    for _ in range(_MAX_TRIES):
        manifest = read_manifest(source.get(MANIFEST))
        if manifest is None:
            break
        try:
            with _open_engine(engine, source, manifest, open_now) as db:
                return _run_query(engine, db, question, limit)
        except engine.IOException as error:
            # The files of this manifest may be gone: another export came meanwhile.
            if read_manifest(source.get(MANIFEST)) == manifest:
                raise _unread(folder, error) from error
    raise NotReadable(f"the export in {folder} changes all the time", hint="try again")


def _run_query(engine: Any, db: Any, question: str, limit: int | None) -> QueryResult:
    try:
        _check(db, question)
        result = db.execute(question)
        columns = [(f"{column[0]}", f"{column[1]}") for column in result.description or ()]
        rows = result.fetchall() if limit is None else result.fetchmany(limit + 1)
    except (engine.IOException, BadSql):
        raise
    except (engine.Error, RuntimeError, ValueError, OverflowError) as error:
        raise BadSql(_first_lines(error), hint=_hint(error)) from error
    cut = limit is not None and len(rows) > limit
    return QueryResult(
        [name for name, _ in columns],
        [type_name for _, type_name in columns],
        rows[:limit] if limit is not None else rows,
        cut,
    )


def _check(db: Any, question: str) -> None:
    """Let one statement through, and only one that reads."""
    statements = db.extract_statements(question)
    if len(statements) == 1 and statements[0].type.name == "EXPLAIN":
        statements = db.extract_statements(_EXPLAIN.sub("", question, count=1))
    if not statements:
        raise BadSql("no query given", hint="thence sql lists example queries")
    if len(statements) > 1:
        raise BadSql("one query at a time", hint="run them one at a time")
    if statements[0].type.name not in _READS:
        what = statements[0].type.name.lower().replace("_", " ")
        raise BadSql(
            f"queries are read-only; not allowed: {what}",
            hint="begin with SELECT, FROM, WITH, DESCRIBE, SUMMARIZE, PIVOT or EXPLAIN",
        )


@contextlib.contextmanager
def _scratch() -> Iterator[str]:
    """Make a folder for what does not fit into memory; those of killed processes are removed.

    Its owner holds a lock on it, which the system takes back when the owner ends in whatever way.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError):  # another user's, or gone by now
            if left.lstat().st_mtime < time.time() - LEFTOVER_AGE_S:
                with _lock(left):
                    shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=_SCRATCH) as passing, _lock(Path(passing)):
        yield passing


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of ours; OSError when somebody else does."""
    system.refuse_windows("SQL")
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(handle).st_uid != system.owner_id() or not system.try_lock(handle):
            raise BlockingIOError(f"{folder} is in use")
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _open_engine(
    engine: Any, source: FolderTarget, manifest: Manifest, open_now: Open | None = None
) -> Iterator[Any]:
    """Open the views of an export; nothing else can be read, and nothing written."""
    with _scratch() as passing:
        db = engine.connect(
            ":memory:",
            config={
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "allow_community_extensions": False,
                "python_enable_replacements": False,  # no variable of this program is a table
                "temp_directory": passing,
            },
        )
        try:
            db.execute("SET TimeZone='UTC'")
            files = {
                name: [str(source.path / file.path) for file in part.files]
                for name, part in manifest.tables.items()
            }
            every = [path for some in files.values() for path in some]
            db.execute(f"SET allowed_paths={_list_literal(every)}")
            for name, paths in files.items():
                db.execute(f"CREATE VIEW {name} AS {_view(name, paths, open_now or {})}")
            db.execute("SET enable_external_access=false")
            db.execute("SET lock_configuration=true")
            yield db
        finally:
            db.close()


def _view(name: str, paths: Sequence[str], open_now: Open) -> str:
    """Return the select of a table; one without files has its columns all the same."""
    columns = TABLES[name].columns
    if not paths:
        empty = ", ".join(f'NULL::{column.type} AS "{column.name}"' for column in columns)
        return f"SELECT NULL::DATE AS day, {empty} WHERE false"
    named = ", ".join(
        _value_now(column.name, open_now)
        if column.name in ("outcome", "turn") and open_now
        else f'"{column.name}"'
        for column in columns
    )
    return (
        f"SELECT day, {named} FROM read_parquet({_list_literal(paths)},"  # noqa: S608 - ours
        " hive_partitioning=true, hive_types={day: DATE})"
    )


def _value_now(column: str, open_now: Open) -> str:
    """Return the column that says of open sessions what they do."""
    cases = " ".join(
        f"WHEN list_contains({_list_literal([u for u, how in open_now.items() if how == word])},"
        f" session_uid) THEN '{word}'"
        for word in sorted({*open_now.values()} & {"running", "waiting"})
    )
    return f'CASE {cases} ELSE "{column}" END AS "{column}"' if cases else f'"{column}"'


def _list_literal(paths: Sequence[str]) -> str:
    return "[" + ", ".join("'" + path.replace("'", "''") + "'" for path in paths) + "]"


def _unread(folder: Path, error: Exception) -> NotReadable:
    return NotReadable(
        f"the export in {folder} cannot be read: {_first_lines(error)}",
        hint=f"remove the folder, then: thence export parquet {folder}",
    )


def _first_lines(error: Exception) -> str:
    return " ".join(_REST.split(f"{error}", maxsplit=1)[0].split())[:500]


def _hint(error: Exception) -> str:
    """Name the columns of the tables that the question is about, or all tables."""
    message = f"{error}".lower()
    named = [name for name in TABLES if re.search(rf"\b{name}\b", message)]
    if not named:
        return f"tables: {', '.join(TABLES)}; thence sql shows their columns"
    return "; ".join(
        f"{name}: day, {', '.join(column.name for column in TABLES[name].columns)}"
        for name in named
    )
