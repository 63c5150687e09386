"""A store as Parquet files, one a table and day: made anew only where something changed.

A session is read again when its row is not what it was at the last export. Of the days that it
stands under, before or now, the files are written anew: the rows of other sessions come from the
file that is there, its own from the store. Sessions that were forgotten, and events of those that
were evicted, are left out then. Equal rows give equal files, so that an export that was killed
and made again comes to the same names.

Memory is bounded: rows wait in a passing database of DuckDB beside the export, which writes the
files, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from thence.analytics.exports import (
    FORMAT,
    NO_DAY,
    ExportEntry,
    ExportFile,
    ExportPart,
    Manifest,
    State,
    Target,
    hash_file,
    hash_of,
    last,
    pack_manifest,
    pack_state,
    part_of,
)
from thence.analytics.tables import SCHEMA_VERSION, TABLES, Day, TableRow, accounts
from thence.errors import MissingPackage
from thence.memory.notes import Note
from thence.memory.rows import clean
from thence.memory.store import Filter, SessionRow, Store

if TYPE_CHECKING:
    from types import ModuleType

    import duckdb

BATCH_SESSIONS: Final = 32  # their payloads are in memory together
"""Sessions that are asked for together."""

STAGED_ROWS: Final = 8_192
"""Rows of a table that wait in Python."""

GROUP_ROWS: Final = 122_880
"""Rows of a row group: what a reader takes at a time, and what it can skip."""

MEMORY_LIMIT: Final = "256MB"
"""What DuckDB may take; it puts the rest into the folder of what is under way."""


class ExportReport(msgspec.Struct):
    """What an export did. The names are those of `thence export parquet --json`."""

    target: str
    schema: int = SCHEMA_VERSION
    dry_run: bool = False
    is_complete: bool = msgspec.field(default=False, name="whole")
    """Made from nothing: the first one, one of another schema, or files were damaged."""
    sessions: int = 0
    read: int = 0
    """Sessions that are new or changed."""
    unchanged: int = 0
    removed: int = 0
    """Sessions of the last export that the store has no more."""
    days: int = 0
    """Days of which files were written or removed."""
    files: int = 0
    """Files that were written."""
    bytes: int = 0
    """Bytes of these."""
    rows: dict[str, int] = {}
    """Rows of each table, of the whole export."""
    all_bytes: int = 0
    seconds: float = 0.0


Progress = Callable[[str, int, int], None]
"""Told what is done, how much of it, and how much there is."""


def export(
    store: Store,
    target: Target,
    *,
    dry_run: bool = False,
    notes: Sequence[Note] = (),
    progress: Progress = lambda _what, _done, _all: None,
) -> ExportReport:
    """Bring an export up to what the store holds now.

    The `notes` of the home, redacted, name and tag its sessions; decisions are events of them.
    """
    start = time.monotonic()
    engine = load_duckdb()
    report = ExportReport(target.address, dry_run=dry_run)
    if dry_run:
        now = _Export(
            engine, store, target, notes, staging=Path(), report=report, progress=progress
        )
        now.plan(*last(target))
        return report
    with target.lock() as staging:
        before, state = last(target)
        report.is_complete = before is None
        try:
            now = _Export(
                *(engine, store, target, notes), staging=staging, report=report, progress=progress
            )
            manifest = now.run(before, state)
        except _Damaged:
            report = ExportReport(target.address, is_complete=True)
            now = _Export(
                *(engine, store, target, notes), staging=staging, report=report, progress=progress
            )
            manifest = now.run(None, {})
        target.delete(target.names() - manifest.names())
    report.seconds = round(time.monotonic() - start, 3)
    return report


def load_duckdb() -> ModuleType:
    """Return the module of DuckDB, or an error that says how to get it."""
    try:
        import duckdb
    except ImportError as error:
        raise MissingPackage("the export of tables", error.name, extra="analytics") from error
    return duckdb


class _Plan(NamedTuple):
    """What an export has to do."""

    stamps: dict[str, str]
    """Of every session of the store."""
    changed: list[str]
    touched: list[str]
    """Those that changed and those that are gone."""
    days: set[Day]
    """Days that these stood under."""


class _Damaged(Exception):
    """A file of the last export is not what its manifest says: all is made anew."""


class _Export:
    """One export, under way."""

    def __init__(
        self,
        engine: ModuleType,
        store: Store,
        target: Target,
        notes: Sequence[Note],
        *,
        staging: Path,
        report: ExportReport,
        progress: Progress,
    ) -> None:
        self._engine = engine
        self._store = store
        self._target = target
        self._notes = notes
        self._staging = staging
        self._report = report
        self._progress = progress

    def plan(self, before: Manifest | None, state: State) -> _Plan:
        """Compare the store with the last export, session by session."""
        report = self._report
        stamps = _stamps(self._store.sessions(Filter(order="oldest")), self._notes)
        changed = [
            uid for uid, stamp in stamps.items() if uid not in state or state[uid].stamp != stamp
        ]
        vanished = [uid for uid in state if uid not in stamps]
        report.is_complete = before is None
        report.sessions, report.read, report.removed = len(stamps), len(changed), len(vanished)
        report.unchanged = len(stamps) - len(changed)
        touched = [*changed, *vanished]
        days = {day for uid in touched if uid in state for day in state[uid].days}
        report.days = len(days)
        _add_totals(report, before)
        return _Plan(stamps, changed, touched, days)

    def run(self, before: Manifest | None, state: State) -> Manifest:
        """Export what changed; the manifest that stands then."""
        report = self._report
        stamps, changed, touched, dirty = self.plan(before, state)
        if before is not None and not touched:
            return before
        scratch = _Scratch(self._engine, self._staging)
        try:
            fresh = self._stage(scratch, changed, stamps)
            scratch.touch(touched)
            dirty.update(day for entry in fresh.values() for day in entry.days)
            remaining = {uid: entry for uid, entry in state.items() if uid in stamps}
            manifest = self._write(scratch, before, dirty, {**remaining, **fresh})
        finally:
            scratch.close()
        self._target.swap(pack_manifest(manifest))
        _add_totals(report, manifest)
        return manifest

    def _stage(self, scratch: _Scratch, uids: Sequence[str], stamps: dict[str, str]) -> State:
        """Read sessions into the passing database; what is to be remembered of each."""
        state: State = {}
        done = 0
        for some in _batches(uids):
            for account in accounts(self._store, some, self._notes):
                scratch.add(account.rows)
                days = dict.fromkeys(row.day for row in account.rows)
                state[account.uid] = ExportEntry(stamps[account.uid], tuple(days), account.is_held)
            done += len(some)
            self._progress("sessions", done, len(uids))
        scratch.flush()
        return state

    def _write(
        self, scratch: _Scratch, before: Manifest | None, dirty: set[Day], state: State
    ) -> Manifest:
        """Write the files of days anew, and the state; both are there when this returns."""
        parts: dict[str, ExportPart] = {}
        old = {
            name: {file.day: file for file in (before.tables[name].files if before else ())}
            for name in TABLES
        }
        due = {name: dirty & (scratch.days[name] | old[name].keys()) for name in TABLES}
        done, of = 0, sum(map(len, due.values()))
        for name, table in TABLES.items():
            files = {day: file for day, file in old[name].items() if day not in dirty}
            for day in sorted(due[name], key=_in_time):
                if (file := self._file(scratch, name, day, old[name].get(day))) is not None:
                    files[day] = file
                done += 1
                self._progress("files", done, of)
            columns = {column.name: column.type for column in table.columns}
            parts[name] = part_of(columns, [files[day] for day in sorted(files, key=_in_time)])
        self._report.days = len(dirty)
        name, body = pack_state(state)
        passing = self._staging / "state"
        passing.write_bytes(body)
        self._target.put(passing, name)
        at_last = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return Manifest(FORMAT, SCHEMA_VERSION, at_last, parts, name)

    def _file(
        self, scratch: _Scratch, table: str, day: Day, old: ExportFile | None
    ) -> ExportFile | None:
        """Write the rows of a day; None when there are none."""
        before = None
        if old is not None:
            before = self._target.local(old.path)
            if before is None or hash_file(before) != old.hash:
                raise _Damaged
        passing = self._staging / "passing.parquet"
        rows = scratch.write(table, day, before, passing)
        if not rows:
            return None
        made = hash_file(passing)
        if old is not None and made == old.hash:
            return old
        name = f"{table}/day={day or NO_DAY}/{made}.parquet"
        size = passing.stat().st_size
        self._target.put(passing, name)
        self._report.files += 1
        self._report.bytes += size
        return ExportFile(name, day, rows, size, made)


class _Scratch:
    """Rows that wait to be written, in a database that goes with the export."""

    def __init__(self, engine: ModuleType, folder: Path) -> None:
        path = folder / "rows.duckdb"
        for leftover in folder.glob("rows.duckdb*"):
            leftover.unlink(missing_ok=True)
        settings = {
            "memory_limit": MEMORY_LIMIT,
            "threads": 1,  # so that equal rows give equal bytes
            "temp_directory": str(folder / "spill"),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
        }
        self._db: duckdb.DuckDBPyConnection = engine.connect(str(path), config=settings)
        self._waiting: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES}
        self.days: dict[str, set[Day]] = {name: set() for name in TABLES}
        for name, table in TABLES.items():
            columns = ", ".join(f'"{column.name}" {column.staged}' for column in table.columns)
            self._db.execute(f"CREATE TABLE {name}(day VARCHAR, {columns})")
        self._db.execute("CREATE TABLE touched(uid VARCHAR PRIMARY KEY)")

    def add(self, rows: Iterable[TableRow]) -> None:
        """Let rows wait."""
        for table, day, values in rows:
            self.days[table].add(day)
            waiting = self._waiting[table]
            waiting.append((day, *values))
            if len(waiting) >= STAGED_ROWS:
                self._append(table)

    def flush(self) -> None:
        """Put all that waits into the database."""
        for table in TABLES:
            self._append(table)

    def touch(self, uids: Iterable[str]) -> None:
        """Name the sessions whose old rows do not count any more."""
        appender = self._db.appender("touched")
        appender.append_rows([(clean(uid),) for uid in uids])
        appender.flush()

    def _append(self, table: str) -> None:
        waiting = self._waiting[table]
        if waiting:
            appender = self._db.appender(table)
            appender.append_rows(waiting)
            appender.flush()
            waiting.clear()

    def write(self, name: str, day: Day, old: Path | None, path: Path) -> int:
        """Write the rows of one table and day, those of others from the old file; how many."""
        table = TABLES[name]
        made = ", ".join(column.made for column in table.columns)
        today = "IS NULL" if day is None else f"= {_quote(day)}"  # so that runs of rows are skipped
        rows = f"SELECT {made} FROM {name} WHERE day {today}"  # noqa: S608 - ours
        if old is not None:
            columns = ", ".join(f'"{column.name}"' for column in table.columns)
            rows += (
                f" UNION ALL SELECT {columns} FROM read_parquet({_quote(str(old))},"  # noqa: S608 - ours
                " hive_partitioning=false) WHERE session_uid NOT IN (SELECT uid FROM touched)"
            )
        order = ", ".join(f'"{name}" NULLS FIRST' for name in table.order)
        # In a table of their own first: how rows lie elsewhere would show in the bytes.
        self._db.execute(
            f"CREATE OR REPLACE TEMP TABLE today AS SELECT * FROM ({rows}) ORDER BY {order}"  # noqa: S608 - ours
        )
        [(count,)] = self._db.execute(
            f"COPY today TO {_quote(str(path))}"
            f" (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {GROUP_ROWS},"
            f" KV_METADATA {{thence_schema: '{SCHEMA_VERSION}', thence_table: '{name}'}})"
        ).fetchall()
        return int(count)

    def close(self) -> None:
        """Let go of the database."""
        self._db.close()


def _add_totals(report: ExportReport, manifest: Manifest | None) -> None:
    parts = {name: manifest.tables[name] if manifest else ExportPart({}) for name in TABLES}
    report.rows = {name: part.rows for name, part in parts.items()}
    report.all_bytes = sum(part.bytes for part in parts.values())


def _stamps(rows: Iterable[SessionRow], notes: Sequence[Note]) -> dict[str, str]:
    """Hash all that rows and notes say, by uid: where that is the same, nothing changed."""
    written: dict[str | None, list[Note]] = {}
    for note in notes:
        written.setdefault(note.session_uid, []).append(note)
    encode = partial(msgspec.msgpack.encode, order="sorted")
    return {
        uid: hash_of(encode(row) + (encode(written[uid]) if uid in written else b""))
        for row in rows
        if (uid := row.session.session_uid)
    }


def _in_time(day: Day) -> str:
    return day or ""


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _batches(uids: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(uids), BATCH_SESSIONS):
        yield uids[at : at + BATCH_SESSIONS]
