"""A store in Postgres: what loading, searching and many machines at once take.

    python -m bench team              everything, small
    BENCH_BIG=1 python -m bench team  40 machines of 500 sessions each

A server is made for it in a passing folder, as the tests do; where there is none, nothing is
measured. Loading goes from what a reader found to rows that can be searched: it cuts texts into
words, and leaves alone what is there. It is compared with a bare COPY, as text, of the very rows
that came of it into empty tables of the same columns, keys, indexes (that of words too, on both
sides) and settings; there the vectors are ready made, and nothing is looked up. Searching is
compared with the file of one machine that holds the same sessions. Processor seconds are those of
all processes that took part.
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
from thence.agents import adapters
from thence.memory import index
from thence.memory.ingest import Ingester
from thence.memory.redact import Redactor
from thence.memory.search import parse
from thence.memory.sqlite import Sqlite
from thence.memory.store import SessionChange, Store
from thence.memory.sweep import Sweep
from thence.team import postgres_search
from thence.team.postgres import Postgres
from thence.team.pushing import Pusher

BIG = bool(os.environ.get("BENCH_BIG"))
MEGABYTES = 40 if BIG else 12
MACHINES, SESSIONS = (40, 500) if BIG else (8, 50)
KEY = b"a key for the benchmark, 32 byte"
LOADED = ("sessions", "events", "words", "facts", "spend", "owners", "kin", "shares")
BATCH = 4 << 20
QUESTIONS = {
    "rare": ("pearson", "curses", "zipimport"),
    "mid": ("docstring", "iterator", "buffer"),
    "common": ("self", "return", "the"),
    "phrase": ('"return self"', '"if not"', '"the current"'),
    "prefix": ("iter*", "conn*", "pars*"),
    "filtered": ("kind:error the", "tool:Bash test", "agent:claude -self return"),
}
ROUNDS = 5


def main() -> int:
    """Measure everything; 1 for each budget that is missed."""
    if programs() is None:
        print("     no Postgres server here: apt-get install postgresql")
        return 0
    with tempfile.TemporaryDirectory(prefix="bench-team-") as name, cluster() as server:
        folder = Path(name)
        write_claude(folder / "corpus", MEGABYTES)
        return _load(server, folder) + _search(server, folder) + _crowd(server, folder)


# -- loading --------------------------------------------------------------------------------


def _changes(store: Store, root: Path) -> list[SessionChange]:
    """Read a corpus as a sweep does; what is measured is writing it."""
    adapter, keeper = adapters()["claude"], Ingester(store.blobs, Redactor(key=KEY))
    out: list[SessionChange] = []
    for source in adapter.find(root):
        grown, more = None, True
        while more:
            kept = keeper.read(adapter, source, None, grown)
            out += [kept.change] if kept.change is not None else []
            more, grown = kept.has_more, kept.rest
    store.blobs.sync()
    return out


def _batches(changes: Iterable[SessionChange]) -> Iterator[list[SessionChange]]:
    batch: list[SessionChange] = []
    size = 0
    for change in changes:
        batch.append(change)
        size += sum(len(words.body) for words in change.words)
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    yield batch


def _load(server: Cluster, folder: Path) -> int:
    """Write into an empty store, and COPY the same rows into empty tables; in turn."""
    ours, bare, rows = [], [], 0
    for _ in range(ROUNDS):
        database = server.database()
        store = Postgres(server.url(database, machine="m"))
        changes = _changes(store, folder / "corpus")
        start = time.perf_counter()
        for batch in _batches(changes):
            store.write(batch)
        store._take_in(store._db)  # noqa: SLF001 - what a sweep does at its end
        ours.append(time.perf_counter() - start)
        store.close()
        took, rows = _bare(server, database)
        bare.append(took)
        server.sql(f"DROP DATABASE {database}")
    ratio = statistics.median(o / b for o, b in zip(ours, bare, strict=True))
    for name, took in (("store", min(ours)), ("bare COPY", min(bare))):
        print(f"     load, {name}: {rows:,} rows in {took:.2f} s, {rows / took:,.0f} rows/s")
    return verdict("load, seconds over those of a bare COPY (0.6 of its rows/s)", ratio, 1 / 0.6)


def _bare(server: Cluster, database: str) -> tuple[float, int]:
    """COPY what was loaded into new tables of the same kind; seconds, and rows."""
    told: dict[str, list[bytes]] = {}
    rows = 0
    with psycopg.connect(server.url(database), autocommit=True) as db:
        db.execute("CREATE SCHEMA bare; SET synchronous_commit = off")
        db.execute("SET gin_pending_list_limit = '16MB'; SET work_mem = '64MB'")
        for table in LOADED:
            db.execute(f"CREATE TABLE bare.{table} (LIKE thence.{table} INCLUDING ALL)".encode())
            with db.cursor().copy(f"COPY thence.{table} TO STDOUT".encode()) as copy:
                told[table] = [bytes(line) for line in copy]
            rows += len(told[table])
        start = time.perf_counter()
        for table, lines in told.items():
            with db.cursor().copy(f"COPY bare.{table} FROM STDIN".encode()) as copy:
                copy.write(b"".join(lines))
        db.execute("SELECT gin_clean_pending_list('bare.words_body_idx')")
        return time.perf_counter() - start, rows


# -- searching ------------------------------------------------------------------------------


def _search(server: Cluster, folder: Path) -> int:
    """Ask both stores the same, and say where they answer otherwise."""
    file = Sqlite(str(folder / "file" / "s.db"))
    team = Postgres(server.url(server.database(), machine="m"))
    for store in (file, team):
        with store.sweeping():
            Sweep(store, adapters(), Redactor(key=KEY), digests=False).run(
                {"claude": [folder / "corpus"]}
            )
    other = _differing(file, team)
    for kind, asked in QUESTIONS.items():
        times: dict[str, list[float]] = {"file": [], "team": []}
        for text in asked * 20:
            for name, store in (("file", file), ("team", team)):
                start = time.perf_counter()
                store.search(parse(text))
                times[name].append(1000 * (time.perf_counter() - start))
        told = {name: (statistics.median(some), _p95(some)) for name, some in times.items()}
        print(
            f"     search, {kind:<8} file {told['file'][0]:6.2f} ms (p95 {told['file'][1]:6.2f}),"
            f" team {told['team'][0]:6.2f} ms (p95 {told['team'][1]:6.2f})"
        )
    file.close()
    team.close()
    questions = sum(map(len, QUESTIONS.values()))
    if other:
        print(f"     other hits: {', '.join(other)}")
    return verdict(f"search, questions of {questions} with other hits", len(other), 0)


def _differing(*stores: Store) -> list[str]:
    """Name the questions that stores answer otherwise, with as much time as they want."""
    with patch.object(index, "BUDGET_S", 60.0), patch.object(postgres_search, "BUDGET_S", 60.0):
        return [
            text
            for some in QUESTIONS.values()
            for text in some
            if len({_hits(store, text) for store in stores}) > 1
        ]


def _hits(store: Store, text: str) -> tuple[tuple[str, int | None], ...]:
    return tuple((one.session_uid, one.event_id) for one in store.search(parse(text)).matches)


def _p95(times: Sequence[float]) -> float:
    return sorted(times)[int(0.95 * (len(times) - 1))]


# -- many machines --------------------------------------------------------------------------


def _crowd(server: Cluster, folder: Path) -> int:
    """Let many machines push at once, while somebody searches; then count."""
    events = 0
    locals_ = [folder / f"machine-{number}" for number in range(MACHINES)]
    for number, place in enumerate(locals_):
        write_many(place / "home", SESSIONS, 4000, seed=1000 + number)
        store = Sqlite(str(place / "s.db"))
        with store.sweeping():
            report = Sweep(store, adapters(), Redactor(key=KEY), digests=False).run(
                {"claude": [place / "home"]}
            )
        events += report.events
        store.close()
    database = server.database()
    team = Postgres(server.url(database, tenant="crowd", machine="looker"))
    start, cpu = time.perf_counter(), _server_seconds(server)
    pushers = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "bench.bench_team", str(place / "s.db")),
                server.url(database, tenant="crowd", machine=f"m{number}"),
            ]
        )
        for number, place in enumerate(locals_)
    ]
    times = list(_asked_until(team, lambda: all(one.poll() is not None for one in pushers)))
    took = time.perf_counter() - start
    used = _server_seconds(server) - cpu + _children_seconds()
    failed = sum(one.returncode != 0 for one in pushers)
    [(there, sessions)] = team._every(  # noqa: SLF001
        "SELECT (SELECT count(*) FROM events WHERE tenant=%s AND NOT derived),"
        " (SELECT count(*) FROM sessions WHERE tenant=%s)",
        *("crowd", "crowd"),
    )
    [(deadlocks,)] = server.sql(
        f"SELECT deadlocks FROM pg_stat_database WHERE datname='{database}'"  # noqa: S608
    )
    team.close()
    print(
        f"     push, {MACHINES} machines at once: {sessions:,} sessions, {there:,} events in"
        f" {took:.1f} s; {sessions / used:,.0f} sessions and {there / used:,.0f} events a second"
        f" of one core; {deadlocks} deadlocks"
    )
    print(
        f"     search while they push: median {statistics.median(times):.1f} ms,"
        f" p95 {_p95(times):.1f} ms, of {len(times):,}"
    )
    lost = abs(there - events) + abs(sessions - MACHINES * SESSIONS) + failed
    return verdict("push, events and sessions lost or doubled, and failures", lost, 0)


def _asked_until(store: Postgres, over: Callable[[], bool]) -> Iterator[float]:
    chance = random.Random(7)
    words = [word for some in QUESTIONS.values() for word in some]
    while True:
        start = time.perf_counter()
        store.search(parse(chance.choice(words)))
        yield 1000 * (time.perf_counter() - start)
        if over():
            return
        time.sleep(0.05)


def _children_seconds() -> float:
    told = os.times()
    return told.children_user + told.children_system


def _server_seconds(server: Cluster) -> float:
    """Processor seconds of a server: its processes of now, and those that it has waited for."""
    main = int((server.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            told = path.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        if path.parent.name == str(main):
            ticks += sum(map(int, told[11:15]))
        elif told[1] == str(main):
            ticks += int(told[11]) + int(told[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _push(local: str, url: str) -> None:
    """Push one machine's store: what this module does when it is run."""
    source, target = Sqlite(local), Postgres(url)
    with target.sweeping(60):
        Pusher(source, target, Redactor(key=KEY)).run()
    source.close()
    target.close()


if __name__ == "__main__":
    _push(*sys.argv[1:])
