"""Exports to Parquet, and questions to a million events.

The floor of an export is DuckDB writing the same rows, which lie in its memory already, into the
same number of files: what is above it is reading the store, putting sessions together and handing
rows over. The million is an export of a made-up corpus, multiplied: other names, other days, the
same shapes. Its questions are the ten of docs/analytics.md; the floor is one look at every value
of the events.
"""

from __future__ import annotations

import importlib.util
import math
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bench.corpus import write_claude
from bench.measure import verdict
from thence.adapters import adapters
from thence.memory.redact import Redactor
from thence.memory.sqlite import Sqlite
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
            with store.sweeping():
                sweep = Sweep(store, adapters(), Redactor(key=KEY), address=str(store.path))
                sweep.run({"claude": [work / "claude"]})
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
    from thence.memory.exports import Folder
    from thence.memory.parquet import export

    report = export(store, Folder(work / "first"))
    ours, floors = [], []
    for number in range(ROUNDS):
        target = Folder(work / f"again-{number}")
        ours.append(_took(partial(export, store, target)))
        floors.append(_floor(work / "first", work / f"floor-{number}"))
    took, floor = statistics.median(ours), statistics.median(floors)
    nothing = _took(lambda: export(store, Folder(work / "first")))
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

    from thence.memory.exports import MANIFEST, Manifest
    from thence.memory.parquet import GROUP

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
                        f" (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {GROUP})"
                    )

        return _took(write)


def _is(day: str | None) -> str:
    return "day IS NULL" if day is None else f"day = '{day}'"


def questions(source: Path, work: Path) -> int:
    """The ten questions, to a million events."""
    from thence.memory.views import ask

    events = multiplied(source, work / "million")
    text = PAGE.read_text(encoding="utf-8")
    part = text[text.index("## Ten questions") : text.index("## Other readers")]
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

    from thence.memory.analytics import TABLES
    from thence.memory.exports import (
        FORMAT,
        MANIFEST,
        File,
        Folder,
        Manifest,
        hash_file,
        pack_manifest,
        pack_state,
        part_of,
    )

    before = msgspec.json.decode((source / MANIFEST).read_bytes(), type=Manifest)
    times = math.ceil(MILLION / before.tables["events"].rows)
    parts = {}
    where = Folder(target)
    with where.held() as staging, duckdb.connect() as db:
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
                files.append(File(path, day, rows, size, made))
            parts[name] = part_of(part.columns, files)
        state, body = pack_state({})
        (staging / "state").write_bytes(body)
        where.put(staging / "state", state)
        now = datetime.now(UTC).isoformat()
        where.swap(pack_manifest(Manifest(FORMAT, before.schema, now, parts, state)))
    return parts["events"].rows
