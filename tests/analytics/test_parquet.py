"""Exports: they hold what the store holds, change where it changed, and are whole at any time."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from tests import bucket as buckets
from tests.agents.transcripts import Script, usage
from tests.faults.warm import Warm
from tests.memory import exported as module
from tests.memory import logs
from tests.memory.exported import exported, manifest, tables
from tests.memory.stored import opened, sweep, use
from tests.memory.test_redact_recall import planted
from tests.postgres import Cluster
from tests.restored import restore
from thence.analytics import tables as analytics
from thence.analytics.exports import MANIFEST, NO_DAY, FolderTarget, RemoteTarget, target_at
from thence.analytics.parquet import export
from thence.analytics.tables import SCHEMA_VERSION, TABLES
from thence.analytics.views import ask
from thence.errors import BadConfig, NotAppendable
from thence.memory.store import Filter, StoreLocked
from thence.team.objects import Bucket, shelf_at

DAYS = 5


@pytest.fixture(scope="module")
def as_built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Four sessions, one of them a fork, with their store and its export; and a copy of all."""
    folder = tmp_path_factory.mktemp("exports")
    machine, copy = folder / "machine", folder / "copy"
    first = logs.script(1, 4)
    sessions = (first, logs.script(2), logs.script(3), logs.fork(4, first, 3))
    logs.write(machine / "home", *sessions)
    sweep(machine / "store", {"claude": [machine / "home"]})
    exported(machine / "store", machine / "out")
    shutil.copytree(machine, copy)
    return machine, copy


@pytest.fixture
def machine(as_built: tuple[Path, Path]) -> Path:
    """The same for a test to write on; the next one finds it as it was built."""
    restore(*as_built)
    return as_built[0]


@pytest.fixture
def home(machine: Path) -> Path:
    """Four sessions of Claude Code, one of them a fork."""
    return machine / "home"


@pytest.fixture
def store_home(machine: Path) -> Path:
    """Their store."""
    return machine / "store"


@pytest.fixture
def out(machine: Path) -> Path:
    """The export of that store, for tests of what comes after the first one."""
    return machine / "out"


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    """A parent of exports to kill."""
    with Warm("tests.memory.exported") as warm:
        yield warm


@pytest.mark.slow
def test_an_export_holds_what_the_store_holds(store_home: Path, tmp_path: Path) -> None:
    """Sessions, money to the last digit, digests, signals; every event but copies, once."""
    report = exported(store_home, tmp_path / "out")
    rows = tables(tmp_path / "out")
    store = opened(store_home)
    sessions = list(store.sessions())
    ticks = sum(row["ticks"] for row in store.read_table("spend"))
    digests, signals = (len(list(store.read_table(what))) for what in ("digests", "signals"))
    own = sum(row.events - row.states.get("replayed", 0) for row in sessions)
    store.close()
    out = tmp_path / "out"
    dollars = ask(out, "SELECT sum(cost_usd) FROM usage").rows
    billed = ask(out, "SELECT sum(cost_usd) FROM events").rows
    counts = "SELECT count(*), count(DISTINCT event_id) FROM events WHERE derived_from IS NULL"
    events = ask(out, counts).rows

    assert {row.session.session_uid for row in sessions} == {row[1] for row in rows["sessions"]}
    assert [(Decimal(ticks) / 10**10,)] == dollars == billed
    assert ticks > 0
    assert (digests, signals) == (len(rows["digests"]), len(rows["signals"]))
    assert [(own, own)] == events
    assert {name: len(table_rows) for name, table_rows in rows.items()} == report.rows


@pytest.mark.slow
def test_calls_tell_how_they_ended(out: Path) -> None:
    """A failed call is a failed row, its result's time is its own; derived rows point at it."""
    rows = ask(
        out,
        "SELECT count(*) FILTER (failed), count(*) FILTER (NOT failed), count(took_ms)"
        " FROM events WHERE kind = 'tool_call'",
    ).rows
    [(failed, well, timed)] = rows
    runs = ask(
        out,
        "SELECT count(*) FROM events r JOIN events c ON c.event_id = r.derived_from"
        " WHERE r.kind = 'test_run' AND c.kind = 'tool_call' AND r.failed = c.failed",
    ).rows

    assert failed > 0
    assert well > 0
    assert failed + well == timed
    assert [(timed,)] == runs


@pytest.mark.slow
def test_nothing_new_writes_nothing(store_home: Path, out: Path) -> None:
    """The same files, the same manifest to the byte, and no session is read."""
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.*")}
    report = exported(store_home, out)

    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*.*")}
    assert (0, 4, 0, 0) == (report.read, report.unchanged, report.files, report.removed)


@pytest.mark.slow
def test_only_days_that_changed_are_written(
    home: Path, store_home: Path, out: Path, tmp_path: Path
) -> None:
    """A session of another day is read alone, and comes to what a new export gives."""
    before = manifest(out).names()
    late = logs.script(9)
    for record in late.records:
        record["timestamp"] = record["timestamp"].replace("2026-01-01", "2026-03-05")
    logs.write(home, late)
    sweep(store_home, {"claude": [home]})
    report = exported(store_home, out)
    exported(store_home, tmp_path / "fresh")
    after = manifest(out).names()
    days = {name.split("/")[1] for name in after - before if "/" in name}

    assert (1, 4, 1) == (report.read, report.unchanged, report.days)
    assert {"day=2026-03-05"} == days
    assert manifest(tmp_path / "fresh").names() == after


@pytest.mark.slow
def test_a_session_that_grew_takes_the_place_of_its_old_rows(
    home: Path, store_home: Path, out: Path, tmp_path: Path
) -> None:
    """Beside rows of others that were not read again; equal to an export from nothing."""
    logs.write(home, logs.script(2, 7))
    sweep(store_home, {"claude": [home]})
    report = exported(store_home, out)
    exported(store_home, tmp_path / "fresh")

    assert 1 == report.read
    assert manifest(tmp_path / "fresh").names() == manifest(out).names()
    assert tables(tmp_path / "fresh") == tables(out)


@pytest.mark.slow
def test_what_was_evicted_or_forgotten_vanishes(store_home: Path, out: Path) -> None:
    """Events of the one; of the other everything. No file of before is left."""
    before = manifest(out).names()
    uids = [f"claude:{logs.name(n)}" for n in (2, 3)]
    store = opened(store_home)
    store.remove([uids[0]], why={})
    store.remove([uids[1]], why={}, forget=True)
    store.close()
    report = exported(store_home, out)
    uids_in = {name: {row[1] for row in rows} for name, rows in tables(out).items()}

    assert (1, 1) == (report.read, report.removed)
    assert uids[0] not in uids_in["events"]
    assert {"sessions", "usage", "digests"} <= {name for name in TABLES if uids[0] in uids_in[name]}
    assert [] == [name for name in TABLES if uids[1] in uids_in[name]]
    assert manifest(out).names() == FolderTarget(out).names()
    assert [] == [name for name in before - manifest(out).names() if (out / name).exists()]


@pytest.mark.slow
def test_a_damaged_or_strange_export_is_made_anew(store_home: Path, out: Path) -> None:
    """A file that was changed, a manifest that is none or of another version."""
    complete = manifest(out)
    rows = tables(out)
    for body in (b"", b"[]", (out / MANIFEST).read_bytes().replace(b'"schema": 3', b'"schema": 0')):
        (out / MANIFEST).write_bytes(body)

        assert exported(store_home, out).is_complete
        assert complete.names() == manifest(out).names()
    changed = out / min(name for name in complete.names() if name.startswith("events/"))
    changed.write_bytes(changed.read_bytes()[:-1] + b"?")
    store = opened(store_home)
    store.remove([f"claude:{logs.name(2)}"], why={}, forget=True)
    store.close()
    report = exported(store_home, out)

    assert report.is_complete
    assert 3 == report.read
    assert rows["sessions"] != tables(out)["sessions"]
    assert not changed.exists()


@pytest.mark.slow
def test_a_manifest_cannot_lead_out_of_its_folder(store_home: Path, out: Path) -> None:
    """One that names other files is nobody's: nothing is read or removed by it."""
    (out.parent / "precious.parquet").write_text("mine")
    body = (out / MANIFEST).read_text()
    name = next(iter(manifest(out).tables["events"].files)).path
    (out / MANIFEST).write_text(body.replace(name, "../precious.parquet"))
    with pytest.raises(BadConfig, match="no export"):
        ask(out, "SELECT 1")
    exported(store_home, out)

    assert "mine" == (out.parent / "precious.parquet").read_text()


@pytest.mark.slow
def test_files_of_others_are_left_alone(store_home: Path, tmp_path: Path) -> None:
    """What does not have one of our names stays, whatever it is."""
    out = tmp_path / "out"
    others = [out / "notes.txt", out / "events" / "day=2026-01-01" / "mine.parquet"]
    for path in others:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    exported(store_home, out)
    FolderTarget(out).let_go({})

    assert ["mine", "mine"] == [path.read_text() for path in others]
    assert {manifest(out).state} == FolderTarget(out).names()


def test_a_second_export_waits_for_nobody(store_home: Path, tmp_path: Path) -> None:
    """It is told that one is running, and touches nothing."""
    with FolderTarget(tmp_path / "out").lock(), pytest.raises(StoreLocked, match="another export"):
        exported(store_home, tmp_path / "out")


def test_a_dry_run_writes_nothing(store_home: Path, tmp_path: Path) -> None:
    """Not even the folder; it says how much there is to do."""
    store = opened(store_home)
    report = export(store, FolderTarget(tmp_path / "out"), dry_run=True)
    store.close()

    assert (4, True) == (report.read, report.is_complete)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_files_are_for_their_owner_alone(store_home: Path, tmp_path: Path) -> None:
    """No mode lets others in, and nothing that was under way is left."""
    exported(store_home, tmp_path / "out")
    modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "out").rglob("*")}

    assert {0} == modes
    assert not (tmp_path / "out" / "_staging").exists()


def test_a_place_that_cannot_be_written_is_told(store_home: Path, tmp_path: Path) -> None:
    """A file where the folder should be; no address that nobody answers to."""
    (tmp_path / "file").write_text("")
    with pytest.raises(NotAppendable, match="cannot export"):
        exported(store_home, tmp_path / "file")
    with pytest.raises(BadConfig, match="no object store"):
        target_at("nowhere://bucket")


@pytest.mark.slow
def test_an_object_store_holds_the_same_files(home: Path, store_home: Path, tmp_path: Path) -> None:
    """The same names, changed days only; another export that was quicker is noticed."""
    bucket = Bucket(MemoryStore())
    store = opened(store_home)
    export(store, RemoteTarget(bucket, "memory:"))
    store.close()
    logs.write(home, logs.script(2, 7))
    sweep(store_home, {"claude": [home]})
    exported(store_home, tmp_path / "out")
    store = opened(store_home)
    late = RemoteTarget(bucket, "memory:")
    late.get(MANIFEST)
    report = export(store, RemoteTarget(bucket, "memory:"))
    store.close()
    names = {name for name in bucket.sizes("") if name != MANIFEST}

    assert 1 == report.read
    assert manifest(tmp_path / "out").names() == names
    for name in names:
        assert (tmp_path / "out" / name).read_bytes() == bucket.read_versioned(name)[0]
    with pytest.raises(StoreLocked, match="finished first"):
        late.swap(b"{}")


@pytest.mark.slow
def test_a_bucket_holds_the_same_files(
    home: Path, store_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its address, over HTTP: the same names, and nothing besides."""
    with buckets.bucket() as server:
        for name, value in buckets.environment(server.server_port).items():
            monkeypatch.setenv(name, value)
        for turns in (3, 7):
            logs.write(home, logs.script(2, turns))
            sweep(store_home, {"claude": [home]})
            exported(store_home, tmp_path / "out")
            store = opened(store_home)
            report = export(store, target_at("s3://team/analytics"))
            store.close()
        names = shelf_at("s3://team/analytics").sizes("")

    assert 1 == report.read
    assert {*manifest(tmp_path / "out").names(), MANIFEST} == set(names)


@pytest.mark.slow
def test_times_that_are_none_have_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No time, no day; a log of made-up days makes no file for each of them."""
    monkeypatch.setattr(analytics, "MAX_DAYS", DAYS)
    never = Script(logs.name(1), "n-")
    never.user("hello")
    never.reply([{"type": "text", "text": "hi"}], usage=usage(3))
    for record in never.records:
        record["timestamp"] = "soon"
    spread = Script(logs.name(2), "d-")
    for _ in range(DAYS + 30):
        spread.user("again")
    for number, record in enumerate(spread.records):
        record["timestamp"] = f"{date.fromordinal(739_300 + number)}T00:00:00Z"
    logs.write(tmp_path / "home", never, spread)
    sweep(tmp_path / "store", {"claude": [tmp_path / "home"]})
    exported(tmp_path / "store", tmp_path / "out")
    files = manifest(tmp_path / "out").tables["events"].files
    days = ask(tmp_path / "out", "SELECT count(*) FROM sessions WHERE day IS NULL").rows

    assert any(f"day={NO_DAY}/" in file.path for file in files)
    assert len(files) <= DAYS + 1
    assert [(1,)] == days


@pytest.mark.slow
def test_no_planted_secret_is_in_any_file(tmp_path: Path) -> None:
    """Every planted secret that redaction finds, in prompts, calls, results, titles and paths."""
    script = Script(logs.name(1), "p-")
    pieces: list[str] = []
    for number, (_, text, gone) in enumerate(list(planted())[::12]):
        script.user(text)
        call = {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {"command": text}}
        script.reply([call], stop="tool_use", usage=usage(3))
        script.result(f"c{number}", f"Error: {text}", wrong=True)
        pieces += gone
    logs.write(tmp_path / "home", script)
    sweep(tmp_path / "store", {"claude": [tmp_path / "home"]})
    exported(tmp_path / "store", tmp_path / "out")
    contents = "\n".join(
        str(value) for rows in tables(tmp_path / "out").values() for row in rows for value in row
    )
    source = "".join(str(record) for record in script.records)
    seen = [piece for piece in pieces if piece in source]
    leaks = [piece for piece in pieces if piece in contents]

    assert len(seen) > 150
    assert len(leaks) <= 0.01 * len(pieces), leaks
    assert "[REDACTED" in contents or "redacted" in contents.lower()


@pytest.mark.slow
def test_both_stores_give_the_same_tables(
    home: Path, out: Path, tmp_path: Path, postgres: Cluster
) -> None:
    """A database in the place of a file: the same rows, but for the times of the sweep."""
    use(postgres.url())
    try:
        sweep(tmp_path / "team", {"claude": [home]})
        exported(tmp_path / "team", tmp_path / "theirs")
    finally:
        use(None)
    ours, theirs = (
        {
            name: ask(folder, f"SELECT * EXCLUDE ({left_out}) FROM {name} ORDER BY ALL").rows
            for name, left_out in (
                *((name, "agent") for name in ("sessions", "events", "usage", "signals")),
                ("digests", "made"),
            )
        }
        for folder in (out, tmp_path / "theirs")
    )

    assert ours == theirs


def _changed(home: Path, store_home: Path) -> None:
    """One session grows, one is evicted, one is forgotten."""
    logs.write(home, logs.script(2, 7))
    sweep(store_home, {"claude": [home]})
    store = opened(store_home)
    store.remove([f"claude:{logs.name(1)}"], why={})
    store.remove([f"claude:{logs.name(3)}"], why={}, forget=True)
    assert 3 == len(list(store.sessions(Filter())))
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("stride", [24, pytest.param(1, marks=pytest.mark.prove)])
def test_an_export_that_is_killed_is_one_or_the_other(
    stride: int, machine: Path, tmp_path: Path, warm: Warm
) -> None:
    """At any step a reader sees the export before or the one after; the next one converges."""
    store_home, out = machine / "store", machine / "out"
    before = shutil.copytree(out, tmp_path / "before")
    _changed(machine / "home", store_home)
    exported(store_home, tmp_path / "after")
    names = manifest(tmp_path / "after").names()
    sides = [tables(before), tables(tmp_path / "after")]
    seen = set()
    point, ended = 1, -signal.SIGKILL
    while ended == -signal.SIGKILL:
        shutil.rmtree(out)
        shutil.copytree(before, out)
        ended = warm.start(module.killed, str(store_home), str(out), point).wait()
        seen.add(sides.index(tables(out)))
        exported(store_home, out)

        assert names == manifest(out).names() == FolderTarget(out).names()
        assert sides[1] == tables(out)
        point += stride
    assert 0 == ended
    assert {0, 1} == seen
    assert point > 40


@pytest.mark.slow
def test_the_version_is_in_every_file(out: Path) -> None:
    """Who finds a file alone can tell what its columns mean."""
    import duckdb

    with duckdb.connect() as db:
        metadata = [
            dict(db.execute(f"SELECT key, value FROM parquet_kv_metadata('{path}')").fetchall())
            for path in out.rglob("*.parquet")
        ]

    assert {f"{SCHEMA_VERSION}".encode()} == {fields[b"thence_schema"] for fields in metadata}
    assert {name.encode() for name in TABLES} >= {fields[b"thence_table"] for fields in metadata}
