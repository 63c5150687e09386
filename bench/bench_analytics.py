"""Exports to Parquet, and questions to a million events.

The floor of an export is DuckDB writing the same rows, which lie in its memory already, into the
same number of files: what is above it is reading the store, putting sessions together and handing
rows over. The million is an export of a made-up corpus, multiplied: other names, other days, the
same shapes, so that it compresses better than a real one. Its questions are the ten of
docs/analytics.md; the floor is one look at every value of the events.

`python -m bench.bench_analytics sizes [MEGABYTES]` measures what docs/scale.md reckons with: bytes
an event of each part of a SQLite store, of a Postgres one, and of its export.
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
from thence.agents import adapters
from thence.memory.redact import Redactor
from thence.memory.sqlite import Sqlite
from thence.memory.store import Store
from thence.memory.sweep import Sweep

MEGABYTES = 40
MILLION = 1_000_000
DAYS = 30
ROUNDS = 3
KEY = b"a key for the benchmark, 32 byte"
PAGE = Path(__file__).resolve().parent.parent / "docs" / "analytics.md"


def main() -> int:
    """Measure, print, and say how many budgets were missed."""
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
            missed = exports(store, work, size)
        finally:
            store.close()
        return missed + questions(work / "first", work)


def _took(work: Callable[[], Any]) -> float:
    """Processor seconds: the disk, and what else the machine does, are not the program's."""
    start = time.process_time()
    work()
    return time.process_time() - start


def exports(store: Sqlite, work: Path, size: int) -> int:
    """A first export beside its floor; one with nothing to do, and one of a single session."""
    from thence.analytics.exports import FolderTarget
    from thence.analytics.parquet import export

    report = export(store, FolderTarget(work / "first"))
    ours, floors = [], []
    for number in range(ROUNDS):
        target = FolderTarget(work / f"again-{number}")
        ours.append(_took(partial(export, store, target)))
        floors.append(_floor(work / "first", work / f"floor-{number}"))
    took, floor = statistics.median(ours), statistics.median(floors)
    nothing = _took(lambda: export(store, FolderTarget(work / "first")))
    events = report.rows["events"]
    print(
        f"analytics: {size / 1e6:.0f} MB of logs, {events:,} events, {report.files} files;"
        f" exported {size / took / 1e6:.1f} MB/s, {events / took:,.0f} events/s of one core;"
        f" floor {events / floor:,.0f} events/s; nothing new {nothing * 1e3:.0f} ms"
    )
    print(
        f"analytics: Parquet {report.all_bytes / events:.0f} bytes an event,"
        f" {report.all_bytes / size:.3f} of a source byte"
    )
    return verdict("export / DuckDB writing the same rows from memory", took / floor, 6) + verdict(
        "export with nothing new / first export", nothing / took, 0.05
    )


def _floor(source: Path, target: Path) -> float:
    """Write the rows of an export, which are in memory, into as many files again."""
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
                    db.execute(
                        f"COPY (SELECT * EXCLUDE (day) FROM {name} WHERE {_is(file.day)})"  # noqa: S608 - ours
                        f" TO '{target}/{name}-{number}.parquet'"
                        f" (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {GROUP_ROWS})"
                    )

        return _took(write)


def _is(day: str | None) -> str:
    return "day IS NULL" if day is None else f"day = '{day}'"


def questions(source: Path, work: Path) -> int:
    """The ten questions, to a million events."""
    from thence.analytics.views import ask

    events = multiplied(source, work / "million")
    text = PAGE.read_text(encoding="utf-8")
    part = text[text.index("## Ten example queries") : text.index("## Other readers")]
    asked = re.findall(r"```sql\n(.*?)```", part, re.DOTALL)
    assert len(asked) == 10

    def timed(question: str) -> float:
        taken = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            ask(work / "million", question)
            taken.append(time.perf_counter() - start)
        return min(taken)

    scan = timed("SELECT max(COLUMNS(*)) FROM events")
    times = sorted(timed(question) for question in asked)
    size = sum(path.stat().st_size for path in (work / "million").rglob("*.parquet"))
    print(
        f"analytics: {events:,} events in {size / 1e6:.0f} MB, {size / events:.0f} bytes an event;"
        f" ten questions {times[0] * 1e3:.0f} to {times[-1] * 1e3:.0f} ms, median"
        f" {statistics.median(times) * 1e3:.0f} ms; every value of the events {scan * 1e3:.0f} ms"
    )
    return verdict("slowest of ten questions / every value of the events", times[-1] / scan, 1)


def multiplied(source: Path, target: Path) -> int:
    """Make an export of a million events of a smaller one: other names, spread over some days."""
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

    before = msgspec.json.decode((source / MANIFEST).read_bytes(), type=Manifest)
    times = math.ceil(MILLION / before.tables["events"].rows)
    parts = {}
    where = FolderTarget(target)
    with where.lock() as staging, duckdb.connect() as db:
        for name, part in before.tables.items():
            paths = [str(source / file.path) for file in part.files]
            db.execute(
                f"CREATE TABLE {name} AS SELECT * EXCLUDE (day) REPLACE (session_uid || '-' || n"  # noqa: S608 - ours
                f" AS session_uid), (hash(session_uid, n) % {DAYS})::INTEGER AS day"
                f" FROM read_parquet({paths}), range({times}) AS t(n)"
            )
            files = []
            order = ", ".join(TABLES[name].order)
            for number in range(DAYS):
                day = f"2026-01-{number + 1:02}"
                passing = staging / "passing"
                [(rows,)] = db.execute(
                    f"COPY (SELECT * EXCLUDE (day) FROM {name} WHERE day = {number}"  # noqa: S608 - ours
                    f" ORDER BY {order}) TO '{passing}' (FORMAT parquet, COMPRESSION zstd)"
                ).fetchall()
                made, size = hash_file(passing), passing.stat().st_size
                path = f"{name}/day={day}/{made}.parquet"
                where.put(passing, path)
                files.append(ExportFile(path, day, rows, size, made))
            parts[name] = part_of(part.columns, files)
        state, body = pack_state({})
        (staging / "state").write_bytes(body)
        where.put(staging / "state", state)
        now = datetime.now(UTC).isoformat()
        where.swap(pack_manifest(Manifest(FORMAT, before.schema, now, parts, state)))
    return parts["events"].rows


# -- sizes ----------------------------------------------------------------------------------


def sizes(megabytes: int) -> None:
    """Print bytes an event of everything that is kept of a made-up corpus."""
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
        _print("sqlite", [*_pages(store), ("packs", packs)], events)
        store.close()
        _print("parquet, a file a table", list(_joined(work / "out")), events)
        with cluster() as server:
            address = server.url(tenant="bench", machine="here")
            team = Postgres(address)
            _fill(team, address, work)
            team.close()
            _print("postgres", list(_relations(server.url())), events)


def _fill(store: Store, address: str, work: Path) -> None:
    with store.sweeping():
        sweep = Sweep(store, adapters(), Redactor(key=KEY), address=address)
        sweep.run({"claude": [work / "claude"]})


def _print(what: str, parts: list[tuple[str, int]], events: int) -> None:
    for name, size in sorted(parts, key=lambda one: -one[1]):
        if size / events >= 0.5:
            print(f"  {what}: {name:<24} {size / events:8.1f}")
    print(f"  {what}: {'all':<24} {sum(size for _, size in parts) / events:8.1f}")


def _pages(store: Sqlite) -> list[tuple[str, int]]:
    rows = store._db.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name")  # noqa: SLF001
    return [(f"{name}", int(f"{size}")) for name, size in rows]


def _relations(address: str) -> list[tuple[str, int]]:
    import psycopg

    with psycopg.connect(address) as db:
        found = db.execute(
            "SELECT relname, pg_total_relation_size(c.oid) FROM pg_class c JOIN pg_namespace n"
            " ON n.oid = relnamespace WHERE nspname = 'thence' AND relkind = 'r'"
        )
        return [(f"{name}", int(size)) for name, size in found]


def _joined(out: Path) -> Iterator[tuple[str, int]]:
    """Give the size of each table in one file, as a large day would have it."""
    import duckdb

    from thence.analytics.tables import TABLES

    with duckdb.connect() as db:
        for name, table in TABLES.items():
            one, order = out / "one", ", ".join(table.order)
            db.execute(
                f"COPY (FROM read_parquet('{out}/{name}/*/*.parquet') ORDER BY {order})"
                f" TO '{one}' (FORMAT parquet, COMPRESSION zstd)"
            )
            yield name, one.stat().st_size


if __name__ == "__main__" and sys.argv[1:2] == ["sizes"]:
    sizes(int((sys.argv[2:] or [f"{MEGABYTES}"])[0]))
