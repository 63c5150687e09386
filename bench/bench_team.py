"""A store in Postgres: the cost of loading, of searching, and of many machines at once.

    python -m bench team              everything, small
    BENCH_BIG=1 python -m bench team  40 machines of 500 sessions each

A server is started in a temporary folder, as in the tests; without Postgres nothing is measured.
Loading goes from the result of a reader to searchable rows: it splits texts into words, and skips
rows that exist. It is compared with a plain COPY of the same rows, as text, into empty tables with
the same columns, keys, indexes (also that of words) and settings; there the text vectors are
already computed, and nothing is looked up. Searching is compared with the SQLite file of one
machine with the same sessions. CPU seconds are those of all processes involved.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

import psycopg

from bench.corpus import write_claude, write_many
from bench.measure import verdict
from tests.postgres import Cluster, cluster, programs
from tests.rules import rules
from thence.agents import adapters
from thence.memory import index
from thence.memory.gate import Gate
from thence.memory.ingest import Ingester
from thence.memory.search import parse
from thence.memory.sqlite import Sqlite
from thence.memory.store import SessionChange, Store
from thence.memory.sweep import Sweep
from thence.team import postgres_search
from thence.team.postgres import Postgres
from thence.team.pushing import Pusher

BIG = bool(os.environ.get("BENCH_BIG"))
MEGABYTES = 40 if BIG else 12
MACHINE_COUNT, SESSIONS_PER_MACHINE = (40, 500) if BIG else (8, 50)
KEY = b"a key for the benchmark, 32 byte"
LOADED_TABLES = ("sessions", "events", "words", "facts", "spend", "owners", "kin", "shares")
BATCH_BYTES = 4 << 20
QUERIES = {
    "rare": ("pearson", "curses", "zipimport"),
    "medium": ("docstring", "iterator", "buffer"),
    "common": ("self", "return", "the"),
    "phrase": ('"return self"', '"if not"', '"the current"'),
    "prefix": ("iter*", "conn*", "pars*"),
    "filtered": ("kind:error the", "tool:Bash test", "agent:claude -self return"),
}
ROUNDS = 5


def main() -> int:
    """Measure and print; return how many budgets were missed."""
    if programs() is None:
        print("     team: Postgres is not installed (apt-get install postgresql)")
        return 0
    with tempfile.TemporaryDirectory(prefix="bench-team-") as name, cluster() as server:
        folder = Path(name)
        write_claude(folder / "corpus", MEGABYTES)
        return (
            _measure_load(server, folder)
            + _measure_search(server, folder)
            + _measure_pushes(server, folder)
        )


# -- loading --------------------------------------------------------------------------------


def _changes(store: Store, root: Path) -> list[SessionChange]:
    """Return the changes of a corpus, read as in a sweep; only writing them is measured."""
    adapter, ingester = adapters()["claude"], Ingester(store.blobs, Gate(key=KEY), rules())
    changes: list[SessionChange] = []
    for source in adapter.find(root):
        rest, has_more = None, True
        while has_more:
            result = ingester.read(adapter, source, None, rest)
            changes += [result.change] if result.change is not None else []
            has_more, rest = result.has_more, result.rest
    store.blobs.sync()
    return changes


def _batches(changes: Iterable[SessionChange]) -> Iterator[list[SessionChange]]:
    batch: list[SessionChange] = []
    size = 0
    for change in changes:
        batch.append(change)
        size += sum(len(words.body) for words in change.words)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    yield batch


def _measure_load(server: Cluster, folder: Path) -> int:
    """Compare writing to an empty store with a COPY of the same rows to empty tables."""
    store_times, copy_times, rows = [], [], 0
    for _ in range(ROUNDS):
        database = server.database()
        store = Postgres(server.url(database, machine="m"))
        changes = _changes(store, folder / "corpus")
        start = time.perf_counter()
        for batch in _batches(changes):
            store.write(batch)
        store._take_in(store._db)  # noqa: SLF001 - what a sweep does at its end
        store_times.append(time.perf_counter() - start)
        store.close()
        elapsed, rows = _time_copy(server, database)
        copy_times.append(elapsed)
        server.sql(f"DROP DATABASE {database}")
    ratio = statistics.median(
        ours / bare for ours, bare in zip(store_times, copy_times, strict=True)
    )
    for name, elapsed in (("store", min(store_times)), ("bare COPY", min(copy_times))):
        print(f"     load, {name}: {rows:,} rows in {elapsed:.2f} s, {rows / elapsed:,.0f} rows/s")
    return verdict("load / COPY of the same rows", ratio, 1 / 0.6)


def _time_copy(server: Cluster, database: str) -> tuple[float, int]:
    """Return the seconds of a COPY of the loaded rows to equal new tables, and their number."""
    copied: dict[str, list[bytes]] = {}
    rows = 0
    with psycopg.connect(server.url(database), autocommit=True) as db:
        db.execute("CREATE SCHEMA bare; SET synchronous_commit = off")
        db.execute("SET gin_pending_list_limit = '16MB'; SET work_mem = '64MB'")
        for table in LOADED_TABLES:
            db.execute(f"CREATE TABLE bare.{table} (LIKE thence.{table} INCLUDING ALL)".encode())
            with db.cursor().copy(f"COPY thence.{table} TO STDOUT".encode()) as copy:
                copied[table] = [bytes(line) for line in copy]
            rows += len(copied[table])
        start = time.perf_counter()
        for table, lines in copied.items():
            with db.cursor().copy(f"COPY bare.{table} FROM STDIN".encode()) as copy:
                copy.write(b"".join(lines))
        db.execute("SELECT gin_clean_pending_list('bare.words_body_idx')")
        return time.perf_counter() - start, rows


# -- searching ------------------------------------------------------------------------------


def _measure_search(server: Cluster, folder: Path) -> int:
    """Compare the search times of both stores, and check that their hits are the same."""
    file = Sqlite(str(folder / "file" / "s.db"))
    team = Postgres(server.url(server.database(), machine="m"))
    for store in (file, team):
        with store.sweeping():
            Sweep(store, adapters(), Gate(key=KEY), rules(), digests=False).run(
                {"claude": [folder / "corpus"]}
            )
    differing = _differing_queries(file, team)
    for kind, texts in QUERIES.items():
        times: dict[str, list[float]] = {"file": [], "team": []}
        for text in texts * 20:
            for name, store in (("file", file), ("team", team)):
                start = time.perf_counter()
                store.search(parse(text))
                times[name].append(1000 * (time.perf_counter() - start))
        summary = {
            name: (statistics.median(values), _p95(values)) for name, values in times.items()
        }
        print(
            f"     search, {kind:<8}"
            f" file {summary['file'][0]:6.2f} ms (p95 {summary['file'][1]:6.2f}),"
            f" team {summary['team'][0]:6.2f} ms (p95 {summary['team'][1]:6.2f})"
        )
    file.close()
    team.close()
    query_count = sum(map(len, QUERIES.values()))
    if differing:
        print(f"     different hits: {', '.join(differing)}")
    return verdict(f"search, of {query_count} queries those with different hits", len(differing), 0)


def _differing_queries(*stores: Store) -> list[str]:
    """Return the queries for which stores have different hits, without a time limit."""
    with patch.object(index, "BUDGET_S", 60.0), patch.object(postgres_search, "BUDGET_S", 60.0):
        return [
            text
            for texts in QUERIES.values()
            for text in texts
            if len({_hits(store, text) for store in stores}) > 1
        ]


def _hits(store: Store, text: str) -> tuple[tuple[str, int | None], ...]:
    return tuple((match.session_uid, match.event_id) for match in store.search(parse(text)).matches)


def _p95(times: Sequence[float]) -> float:
    return sorted(times)[int(0.95 * (len(times) - 1))]


# -- many machines --------------------------------------------------------------------------


def _measure_pushes(server: Cluster, folder: Path) -> int:
    """Push from many machines at once while searching, and count what arrived."""
    events = 0
    folders = [folder / f"machine-{number}" for number in range(MACHINE_COUNT)]
    for number, machine in enumerate(folders):
        write_many(machine / "home", SESSIONS_PER_MACHINE, 4000, seed=1000 + number)
        store = Sqlite(str(machine / "s.db"))
        with store.sweeping():
            report = Sweep(store, adapters(), Gate(key=KEY), rules(), digests=False).run(
                {"claude": [machine / "home"]}
            )
        events += report.events
        store.close()
    database = server.database()
    team = Postgres(server.url(database, tenant="crowd", machine="looker"))
    start, cpu_before = time.perf_counter(), _server_seconds(server)
    pushers = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "bench.bench_team", str(folder / "s.db")),
                server.url(database, tenant="crowd", machine=f"m{number}"),
            ]
        )
        for number, folder in enumerate(folders)
    ]
    times = list(_search_until(team, lambda: all(pusher.poll() is not None for pusher in pushers)))
    elapsed = time.perf_counter() - start
    cpu_s = _server_seconds(server) - cpu_before + _children_seconds()
    failed = sum(pusher.returncode != 0 for pusher in pushers)
    [(stored_events, sessions)] = team._every(  # noqa: SLF001
        "SELECT (SELECT count(*) FROM events WHERE tenant=%s AND NOT derived),"
        " (SELECT count(*) FROM sessions WHERE tenant=%s)",
        *("crowd", "crowd"),
    )
    [(deadlocks,)] = server.sql(
        f"SELECT deadlocks FROM pg_stat_database WHERE datname='{database}'"  # noqa: S608
    )
    team.close()
    print(
        f"     push, {MACHINE_COUNT} machines at once: {sessions:,} sessions,"
        f" {stored_events:,} events in {elapsed:.1f} s; {sessions / cpu_s:,.0f} sessions and"
        f" {stored_events / cpu_s:,.0f} events per second"
        f" of one core; {deadlocks} deadlocks"
    )
    print(
        f"     search while they push: median {statistics.median(times):.1f} ms,"
        f" p95 {_p95(times):.1f} ms, of {len(times):,}"
    )
    errors = (
        abs(stored_events - events) + abs(sessions - MACHINE_COUNT * SESSIONS_PER_MACHINE) + failed
    )
    return verdict("push, lost or duplicate events and sessions, and failures", errors, 0)


def _search_until(store: Postgres, is_done: Callable[[], bool]) -> Iterator[float]:
    rng = random.Random(7)
    words = [word for texts in QUERIES.values() for word in texts]
    while True:
        start = time.perf_counter()
        store.search(parse(rng.choice(words)))
        yield 1000 * (time.perf_counter() - start)
        if is_done():
            return
        time.sleep(0.05)


def _children_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _server_seconds(server: Cluster) -> float:
    """Return the CPU seconds of a server: of its processes, and of those that have ended."""
    main = int((server.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        if path.parent.name == str(main):
            ticks += sum(map(int, fields[11:15]))
        elif fields[1] == str(main):
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _push(local: str, url: str) -> None:
    """Push the store of one machine; this module does so when it is run as a program."""
    source, target = Sqlite(local), Postgres(url)
    with target.sweeping(60):
        Pusher(source, target, Gate(key=KEY), rules()).run()
    source.close()
    target.close()


if __name__ == "__main__":
    _push(*sys.argv[1:])
