"""Exports to Parquet, and SQL queries over a million events.

The lower bound of an export is DuckDB writing the same rows from its memory into the same number of
files. The rest is reading the store, assembling sessions and passing rows on. The million events
are a synthetic export, multiplied with other names and days, so that it compresses better than a
real one. The queries are the ten of docs/analytics.md; their lower bound is reading every value of
the events once.

`python -m bench.bench_analytics sizes [MEGABYTES]` measures what docs/scale.md calculates with: the
bytes per event of each part of a SQLite store, of a Postgres store, and of its export.
"""

from __future__ import annotations

import importlib.util
import math
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bench.corpus import write_claude
from bench.measure import verdict
from tests.rules import rules
from thence.agents import adapters
from thence.memory.gate import Gate
from thence.memory.sqlite import Sqlite
from thence.memory.store import Store
from thence.memory.sweep import Sweep

MEGABYTES = 40
MILLION = 1_000_000
DAY_COUNT = 30
ROUNDS = 3
KEY = b"a key for the benchmark, 32 byte"
PAGE = Path(__file__).resolve().parent.parent / "docs" / "analytics.md"


def main() -> int:
    """Measure and print; return how many budgets were missed."""
    if importlib.util.find_spec("duckdb") is None:
        print("analytics: duckdb is not installed: pip install 'thence[analytics]'")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_claude(work / "claude", MEGABYTES)
        size = sum(path.stat().st_size for path in work.rglob("*.jsonl"))
        store = Sqlite(str(work / "store" / "thence.db"))
        try:
            _fill(store, str(store.path), work)
            missed = measure_exports(store, work, size)
        finally:
            store.close()
        return missed + measure_queries(work / "first", work)


def _cpu_seconds(work: Callable[[], Any]) -> float:
    """Return the CPU seconds of some work; waiting for the disk and other load do not count."""
    start = time.process_time()
    work()
    return time.process_time() - start


def measure_exports(store: Sqlite, work: Path, size: int) -> int:
    """Compare a first export with its lower bound, and an export without changes with the first."""
    from thence.analytics.exports import FolderTarget
    from thence.analytics.parquet import export

    report = export(store, FolderTarget(work / "first"))
    export_times, floor_times = [], []
    for number in range(ROUNDS):
        target = FolderTarget(work / f"again-{number}")
        export_times.append(_cpu_seconds(partial(export, store, target)))
        floor_times.append(_write_floor(work / "first", work / f"floor-{number}"))
    export_s, floor_s = statistics.median(export_times), statistics.median(floor_times)
    idle_s = _cpu_seconds(lambda: export(store, FolderTarget(work / "first")))
    events = report.rows["events"]
    print(
        f"analytics: {size / 1e6:.0f} MB of logs, {events:,} events, {report.files} files;"
        f" exported {size / export_s / 1e6:.1f} MB/s,"
        f" {events / export_s:,.0f} events/s of one core;"
        f" floor {events / floor_s:,.0f} events/s; no changes {idle_s * 1e3:.0f} ms"
    )
    print(
        f"analytics: Parquet {report.all_bytes / events:.0f} bytes per event,"
        f" {report.all_bytes / size:.3f} bytes per source byte"
    )
    return verdict(
        "export / DuckDB writing the same rows from memory", export_s / floor_s, 6
    ) + verdict("export without changes / first export", idle_s / export_s, 0.05)


def _write_floor(source: Path, target: Path) -> float:
    """Return the CPU seconds of writing the rows of an export from memory to as many files."""
    import duckdb

    from thence.analytics.exports import MANIFEST, Manifest
    from thence.analytics.parquet import GROUP_ROWS

    manifest = msgspec.json.decode((source / MANIFEST).read_bytes(), type=Manifest)
    with duckdb.connect(config={"threads": 1}) as db:
        for name, part in manifest.tables.items():
            paths = [str(source / file.path) for file in part.files]
            db.execute(
                f"CREATE TABLE {name} AS SELECT * FROM read_parquet({paths}, hive_partitioning=true)"  # noqa: S608, E501 - ours
            )
        target.mkdir()

        def write() -> None:
            for name, part in manifest.tables.items():
                for number, file in enumerate(part.files):
                    condition = _day_condition(file.day)
                    db.execute(
                        f"COPY (SELECT * EXCLUDE (day) FROM {name} WHERE {condition})"  # noqa: S608 - ours
                        f" TO '{target}/{name}-{number}.parquet'"
                        f" (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {GROUP_ROWS})"
                    )

        return _cpu_seconds(write)


def _day_condition(day: str | None) -> str:
    return "day IS NULL" if day is None else f"day = '{day}'"


def measure_queries(source: Path, work: Path) -> int:
    """Compare the ten queries over a million events with reading every value."""
    from thence.analytics.views import ask

    events = multiply_export(source, work / "million")
    text = PAGE.read_text(encoding="utf-8")
    section = text[text.index("## Ten example queries") : text.index("## Other readers")]
    queries = re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
    assert len(queries) == 10

    def time_query(query: str) -> float:
        times = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            ask(work / "million", query)
            times.append(time.perf_counter() - start)
        return min(times)

    scan_s = time_query("SELECT max(COLUMNS(*)) FROM events")
    times = sorted(time_query(query) for query in queries)
    size = sum(path.stat().st_size for path in (work / "million").rglob("*.parquet"))
    print(
        f"analytics: {events:,} events in {size / 1e6:.0f} MB, {size / events:.0f} bytes per event;"
        f" ten queries {times[0] * 1e3:.0f} to {times[-1] * 1e3:.0f} ms, median"
        f" {statistics.median(times) * 1e3:.0f} ms; reading every value {scan_s * 1e3:.0f} ms"
    )
    return verdict("slowest of ten queries / reading every value", times[-1] / scan_s, 1)


def multiply_export(source: Path, target: Path) -> int:
    """Copy an export with new names and days until it has a million events; return their number."""
    import duckdb

    from thence.analytics.exports import (
        FORMAT,
        MANIFEST,
        ExportFile,
        FolderTarget,
        Manifest,
        hash_file,
        pack_manifest,
        pack_state,
        part_of,
    )
    from thence.analytics.tables import TABLES

    source_manifest = msgspec.json.decode((source / MANIFEST).read_bytes(), type=Manifest)
    factor = math.ceil(MILLION / source_manifest.tables["events"].rows)
    parts = {}
    target_folder = FolderTarget(target)
    with target_folder.lock() as staging, duckdb.connect() as db:
        for name, part in source_manifest.tables.items():
            paths = [str(source / file.path) for file in part.files]
            db.execute(
                f"CREATE TABLE {name} AS SELECT * EXCLUDE (day) REPLACE (session_uid || '-' || n"  # noqa: S608 - ours
                f" AS session_uid), (hash(session_uid, n) % {DAY_COUNT})::INTEGER AS day"
                f" FROM read_parquet({paths}), range({factor}) AS t(n)"
            )
            files = []
            order = ", ".join(TABLES[name].order)
            for number in range(DAY_COUNT):
                day = f"2026-01-{number + 1:02}"
                file = staging / "passing"
                [(rows,)] = db.execute(
                    f"COPY (SELECT * EXCLUDE (day) FROM {name} WHERE day = {number}"  # noqa: S608 - ours
                    f" ORDER BY {order}) TO '{file}' (FORMAT parquet, COMPRESSION zstd)"
                ).fetchall()
                digest, size = hash_file(file), file.stat().st_size
                path = f"{name}/day={day}/{digest}.parquet"
                target_folder.put(file, path)
                files.append(ExportFile(path, day, rows, size, digest))
            parts[name] = part_of(part.columns, files)
        state, body = pack_state({})
        (staging / "state").write_bytes(body)
        target_folder.put(staging / "state", state)
        now = datetime.now(UTC).isoformat()
        target_folder.swap(
            pack_manifest(Manifest(FORMAT, source_manifest.schema, now, parts, state))
        )
    return parts["events"].rows


# -- sizes ----------------------------------------------------------------------------------


def print_sizes(megabytes: int) -> None:
    """Print the bytes per event of everything that is stored of a synthetic corpus."""
    from tests.postgres import cluster
    from thence.analytics.exports import FolderTarget
    from thence.analytics.parquet import export
    from thence.team.postgres import Postgres

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_claude(work / "claude", megabytes)
        source = sum(path.stat().st_size for path in work.rglob("*.jsonl"))
        store = Sqlite(str(work / "store" / "thence.db"))
        _fill(store, str(store.path), work)
        events = export(store, FolderTarget(work / "out")).rows["events"]
        print(f"{source / 1e6:.0f} MB, {events:,} events, {source / events:,.0f} bytes each")
        packs = sum(path.stat().st_size for path in (work / "store" / "packs").iterdir())
        _print_sizes("sqlite", [*_sqlite_sizes(store), ("packs", packs)], events)
        store.close()
        _print_sizes("parquet, a file a table", list(_parquet_sizes(work / "out")), events)
        with cluster() as server:
            address = server.url(tenant="bench", machine="here")
            team = Postgres(address)
            _fill(team, address, work)
            team.close()
            _print_sizes("postgres", list(_postgres_sizes(server.url())), events)


def _fill(store: Store, address: str, work: Path) -> None:
    with store.sweeping():
        sweep = Sweep(store, adapters(), Gate(key=KEY), rules(), address=address)
        sweep.run({"claude": [work / "claude"]})


def _print_sizes(what: str, parts: list[tuple[str, int]], events: int) -> None:
    for name, size in sorted(parts, key=lambda part: -part[1]):
        if size / events >= 0.5:
            print(f"  {what}: {name:<24} {size / events:8.1f}")
    print(f"  {what}: {'all':<24} {sum(size for _, size in parts) / events:8.1f}")


def _sqlite_sizes(store: Sqlite) -> list[tuple[str, int]]:
    rows = store._db.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name")  # noqa: SLF001
    return [(f"{name}", int(f"{size}")) for name, size in rows]


def _postgres_sizes(address: str) -> list[tuple[str, int]]:
    import psycopg

    with psycopg.connect(address) as db:
        rows = db.execute(
            "SELECT relname, pg_total_relation_size(c.oid) FROM pg_class c JOIN pg_namespace n"
            " ON n.oid = relnamespace WHERE nspname = 'thence' AND relkind = 'r'"
        )
        return [(f"{name}", int(size)) for name, size in rows]


def _parquet_sizes(out: Path) -> Iterator[tuple[str, int]]:
    """Yield the size of each table as a single file, as for a day with many events."""
    import duckdb

    from thence.analytics.tables import TABLES

    with duckdb.connect() as db:
        for name, table in TABLES.items():
            file, order = out / "one", ", ".join(table.order)
            db.execute(
                f"COPY (FROM read_parquet('{out}/{name}/*/*.parquet') ORDER BY {order})"
                f" TO '{file}' (FORMAT parquet, COMPRESSION zstd)"
            )
            yield name, file.stat().st_size


if __name__ == "__main__" and sys.argv[1:2] == ["sizes"]:
    print_sizes(int((sys.argv[2:] or [f"{MEGABYTES}"])[0]))
