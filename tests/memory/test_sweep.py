"""A sweep comes to the same store in any order, any pieces, however often it is cut short."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agents.transcripts import Script
from tests.faults.warm import Warm
from tests.memory import killed, logs
from tests.memory.stored import KEY, RealStore, dump, opened, spent, sweep
from tests.rules import rules
from thence.agents import Source, adapters, files
from thence.agents.sessions import read_all
from thence.errors import ThenceError
from thence.format import fold, lineage
from thence.format.facts import COPIES_OF
from thence.format.normal import number_events
from thence.format.session_graph import SessionGraph
from thence.memory import derivation, due_sources, ingest
from thence.memory.digest import digest
from thence.memory.gate import Gate
from thence.memory.packs import pack_name
from thence.memory.payloads import with_payloads
from thence.memory.pricelist import Prices
from thence.memory.retention import Policy
from thence.memory.rows import REPACK
from thence.memory.rules import rule_of
from thence.memory.search import parse
from thence.memory.store import (
    DATA_LOSS,
    Filter,
    Inventory,
    SessionChange,
    Store,
    StoreLocked,
)
from thence.memory.sweep import Sweep, SweepReport
from thence.memory.watching import narrow_to

KILLS = int(os.environ.get("THENCE_KILLS", "0")) or settings().max_examples // 5
"""At how many points a sweep is killed; 300 for a release."""

CANARY = "quetzalcoatlus"


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder in memory where there is one: every digest waits for the disk otherwise."""
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    """A parent of processes to kill: the test's own has threads, and must not be forked."""
    with Warm("tests.memory.killed") as parent:
        yield parent


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory."""
    with _folder() as folder:
        yield folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A configuration folder with some sessions, two of them forks."""
    first = logs.script(1)
    logs.write(tmp_path / "home", first, logs.script(2), logs.script(3, turns=6))
    logs.write(tmp_path / "home", logs.fork(4, first, 6), logs.fork(5, first, 9))
    return tmp_path / "home"


def rows(folder: Path) -> dict[str, Any]:
    """The rows of all sessions by native id."""
    store = opened(folder)
    try:
        return {row.session.native_session_id: row for row in store.sessions()}
    finally:
        store.close()


def table_rows(folder: Path, what: Any) -> list[dict[str, Any]]:
    """What tier 2 keeps."""
    store = opened(folder)
    try:
        return list(store.read_table(what))
    finally:
        store.close()


def files_with(folder: Path, text: str) -> list[str]:
    """Files below a folder that hold a text."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return [path.name for path in paths if text.encode() in path.read_bytes()]


# -- once, twice, in any order --------------------------------------------------------------


def test_second_sweep_parses_no_line(home: Path, tmp_path: Path) -> None:
    """What has not changed is not opened, and nothing is written."""
    first = sweep(tmp_path, {"claude": [home]})
    before = dump(tmp_path)
    second = sweep(tmp_path, {"claude": [home]})

    assert (5, 5, 5) == (first.sources, first.read, first.sessions_new)
    assert (5, 0, 5, 0, 0) == (
        *(second.sources, second.read, second.unchanged),
        *(second.lines, second.digested),
    )
    assert before == dump(tmp_path)


def test_store_that_was_deleted_is_made_again(home: Path, tmp_path: Path) -> None:
    """Rows, digests and index follow from the logs alone."""
    sweep(tmp_path / "one", {"claude": [home]})
    before = dump(tmp_path / "one")
    shutil.rmtree(tmp_path / "one")
    sweep(tmp_path / "one", {"claude": [home]})

    assert before == dump(tmp_path / "one")


@pytest.mark.slow
def test_three_processes_come_to_the_same_as_one(home: Path, tmp_path: Path, warm: Warm) -> None:
    """Whoever reads, and however small the parcels."""
    sweep(tmp_path / "one", {"claude": [home]})
    ended = warm.start(killed.swept, str(tmp_path / "two"), str(home)).wait()

    assert 0 == ended
    assert dump(tmp_path / "one") == dump(tmp_path / "two")
    assert [] == list((tmp_path / "two" / "tmp").iterdir())


@pytest.mark.slow
@settings(max_examples=max(settings().max_examples // 4, 5))
@given(st.data())
def test_any_order_of_growth_comes_to_the_same(data: st.DataObject) -> None:
    """Sessions of a family that turn up and grow in any order, cut at any byte, swept between."""
    count = data.draw(st.integers(2, 4))
    made = [logs.script(0, turns=2)]
    for number in range(1, count):
        parent = data.draw(st.sampled_from(made))
        made.append(logs.fork(number, parent, data.draw(st.integers(0, 6)), turns=1))
    steps = data.draw(st.lists(st.tuples(st.integers(0, count - 1), st.floats(0, 1)), max_size=5))
    with _folder() as folder:
        home = folder / "home"
        for number, share in steps:
            script = made[number]
            path = logs.path(home, script)
            path.parent.mkdir(parents=True, exist_ok=True)
            size = path.stat().st_size if path.exists() else 0
            with path.open("ab") as file:
                file.write(script.data[size : max(size, int(share * len(script.data)))])
            sweep(folder / "some", {"claude": [home]})
        for script in made:
            path = logs.path(home, script)
            path.parent.mkdir(parents=True, exist_ok=True)
            size = path.stat().st_size if path.exists() else 0
            with path.open("ab") as file:
                file.write(script.data[size:])
        sweep(folder / "some", {"claude": [home]})
        sweep(folder / "once", {"claude": [home]})
        some, once = dump(folder / "some"), dump(folder / "once")

    # That a line was skipped while it was torn is remembered; it changes nothing else.
    for fields in (*some["sessions"].values(), *once["sessions"].values()):
        fields.pop("skipped", None)
    assert once == some


def test_fork_is_counted_once_whoever_comes_first(tmp_path: Path) -> None:
    """A parent that turns up late takes over what is its own."""
    parent = logs.script(1)
    child = logs.fork(2, parent, 8)
    logs.write(tmp_path / "home", child)
    sweep(tmp_path, {"claude": [tmp_path / "home"]})
    alone = spent(tmp_path)
    logs.write(tmp_path / "home", parent)
    sweep(tmp_path, {"claude": [tmp_path / "home"]})
    both = spent(tmp_path)
    own = {name: both[f"claude:{logs.name(name)}"] for name in (1, 2)}
    logs.write(tmp_path / "only", parent)
    sweep(tmp_path / "third", {"claude": [tmp_path / "only"]})

    assert sum(alone[f"claude:{child.session}"]) > sum(own[2])
    assert spent(tmp_path / "third")[f"claude:{parent.session}"] == own[1]
    edges = rows(tmp_path)[child.session].edges
    assert [("fork", parent.session)] == [(edge.link, edge.session) for edge in edges]


# -- killed ---------------------------------------------------------------------------------


def _gone(group: int) -> None:
    """Kill what is left of a group, and wait until nothing of it runs."""
    while any(_run_in(group)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        time.sleep(0.001)


def _run_in(group: int) -> Iterator[str]:
    """Processes of a group that are more than an entry nobody has asked for yet."""
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, member = place.read_text(encoding="latin-1").rpartition(")")[2].split()[:3]
            if int(member) == group and state not in "ZX":
                yield place.parent.name


@pytest.mark.slow
def test_sweep_that_is_killed_anywhere_converges(home: Path, tmp_path: Path, warm: Warm) -> None:
    """Rows, digests and index are those of a sweep that nobody disturbed."""
    sweep(tmp_path / "calm", {"claude": [home]})
    calm = dump(tmp_path / "calm")
    chance = random.Random(KILLS)
    ends: Counter[int] = Counter()
    for number in range(KILLS):
        folder = tmp_path / "killed"
        shutil.rmtree(folder, ignore_errors=True)
        point = number + 1 if KILLS >= 100 else chance.randrange(1, 60)
        child = warm.start(killed.swept, str(folder), str(home), point)
        ends[child.wait()] += 1
        _gone(child.pid)
        sweep(folder, {"claude": [home]})

        assert calm == dump(folder), point
    assert ends[-signal.SIGKILL]
    # A reader that was killed first is told by the writer, if that comes to it.
    assert {0, 1, 70, -signal.SIGKILL} >= set(ends)


@pytest.mark.slow
def test_sweep_that_is_killed_at_any_time_converges(home: Path, tmp_path: Path, warm: Warm) -> None:
    """By the clock, not by what it is doing; and again and again."""
    sweep(tmp_path / "calm", {"claude": [home]})
    calm = dump(tmp_path / "calm")
    folder = tmp_path / "killed"
    chance = random.Random(KILLS)
    for _ in range(KILLS):
        child = warm.start(killed.swept, str(folder), str(home))
        time.sleep(chance.random() * 0.1)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.kill()  # where it did not lead a group yet
        child.wait()
        _gone(child.pid)
        if chance.random() < 0.3:
            sweep(folder, {"claude": [home]})
            assert calm == dump(folder)
            shutil.rmtree(folder)
    sweep(folder, {"claude": [home]})

    assert calm == dump(folder)


@pytest.mark.slow
def test_reader_that_dies_is_told(home: Path, tmp_path: Path, warm: Warm) -> None:
    """And what was read before is kept; the next sweep goes on."""
    ended = warm.start(killed.broken, str(tmp_path / "s"), str(home)).wait()
    sweep(tmp_path / "s", {"claude": [home]})
    sweep(tmp_path / "calm", {"claude": [home]})

    assert killed.BROKEN == ended
    assert dump(tmp_path / "calm") == dump(tmp_path / "s")


def test_others_read_while_one_sweeps(home: Path, tmp_path: Path) -> None:
    """A second sweep says busy; whoever reads sees all of a session or nothing."""
    store = opened(tmp_path)
    other = opened(tmp_path)
    seen: list[int] = []

    def look(_: Any) -> None:
        seen.extend(len(list(other.sessions())) for _ in range(1))
        with pytest.raises(StoreLocked), other.sweeping():
            pass

    with store.sweeping():
        Sweep(store, adapters(), Gate(key=KEY), rules(), progress=look).run({"claude": [home]})
    with other.sweeping():
        pass
    counts = [len(other.search(parse("harbour")).matches) > 0, max(seen)]
    store.close()
    other.close()

    assert [True, 5] == counts


# -- sources that change --------------------------------------------------------------------


def test_vanished_source_is_marked_once_and_keeps_everything(home: Path, tmp_path: Path) -> None:
    """An agent deletes after 30 days; what was read stays."""
    gone = logs.script(2)
    sweep(tmp_path, {"claude": [home]})
    before = dump(tmp_path)
    logs.path(home, gone).unlink()
    reports = [sweep(tmp_path, {"claude": [home]}) for _ in range(2)]
    after = dump(tmp_path)

    assert [1, 0] == [report.gone for report in reports]
    assert [0, 0] == [report.lines + report.digested for report in reports]
    assert rows(tmp_path)[gone.session].gone
    after["sessions"][f"claude:{gone.session}"].pop("gone")
    before["sessions"][f"claude:{gone.session}"].pop("gone", None)
    assert before == after
    logs.write(home, gone)
    sweep(tmp_path, {"claude": [home]})
    assert not rows(tmp_path)[gone.session].gone


def test_root_that_was_not_swept_is_not_gone(home: Path, tmp_path: Path) -> None:
    """Only where somebody looked can something be missing."""
    sweep(tmp_path, {"claude": [home]})
    report = sweep(tmp_path, {"claude": [tmp_path / "elsewhere"]})

    assert 0 == report.gone


@pytest.mark.parametrize("how", ["shortened", "rewritten"])
def test_what_was_read_stays_when_the_source_is_rewritten(
    home: Path, tmp_path: Path, how: str
) -> None:
    """Dead, with the reason; and the same however it was found out."""
    script = logs.script(3, turns=6)
    sweep(tmp_path, {"claude": [home]})
    before = rows(tmp_path)[script.session]
    kept_records = script.records[:5]
    lines = b"".join(json.dumps(record).encode() + b"\n" for record in kept_records)
    new = lines if how == "shortened" else lines + logs.script(9, turns=1).data
    logs.path(home, script).write_bytes(new)
    sweep(tmp_path, {"claude": [home]})
    after = rows(tmp_path)[script.session]
    store = opened(tmp_path)
    stored = store.load_session(f"claude:{script.session}")
    store.close()
    assert stored is not None
    session = SessionGraph(f"claude:{script.session}", stored.facts)

    assert before.events <= after.events
    assert "dead" in after.states
    assert {"rewritten"} == {e.why for e in session.events if e.why}
    assert before.spent.own <= after.spent.own


@pytest.mark.slow
def test_same_session_in_two_places_is_one(home: Path, tmp_path: Path) -> None:
    """Of a backup and the original the one counts that has more; sweeps do not alternate."""
    script = logs.script(2)
    part = b"".join(script.data.splitlines(keepends=True)[:5])
    logs.write(tmp_path / "backup", script)
    logs.path(tmp_path / "backup", script).write_bytes(part)
    roots = {"claude": [tmp_path / "backup", home]}
    sweep(tmp_path / "both", roots)
    again = sweep(tmp_path / "both", roots)
    sweep(tmp_path / "one", {"claude": [tmp_path / "backup"]})
    sweep(tmp_path / "one", {"claude": [home]})
    back = sweep(tmp_path / "one", {"claude": [tmp_path / "backup"]})

    assert (0, 0) == (again.read, back.read)
    assert dump(tmp_path / "both")["events"] == dump(tmp_path / "one")["events"]


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("/home/dev/private", 5),
        ("/home/*/private", 5),
        ("*/private", 5),
        ("/home/dev", 0),
        ("/home/dev/priv", 6),
        ("/other", 6),
    ],
)
def test_excluded_project_is_never_opened(
    home: Path, tmp_path: Path, pattern: str, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder's name tells; nothing of it gets into the store."""
    secret = logs.script(7, cwd="/home/dev/private/deep")
    secret.user(CANARY)
    logs.write(home, secret, project="-home-dev-private-deep")
    opened: list[str] = []

    def start_of(path: str, length: int) -> bytes | None:
        opened.append(path)
        return files.start_of(path, length)

    monkeypatch.setattr(due_sources, "start_of", start_of)
    report = sweep(tmp_path / "s", {"claude": [home]}, exclude=[pattern])

    assert left == report.sessions_new
    assert 6 - left == report.excluded
    assert (left == 6) == bool(rows(tmp_path / "s").get(secret.session))
    if left < 6:
        assert not any(secret.session in path for path in opened)
        assert [] == files_with(tmp_path / "s", CANARY)


def test_excluded_project_is_known_by_its_log_where_no_folder_tells(tmp_path: Path) -> None:
    """Codex keeps sessions by day: the first lines name the project."""
    folder = tmp_path / "codex" / "sessions" / "2026" / "01" / "01"
    folder.mkdir(parents=True)
    ident = "01a1e075-059c-79d3-8ff1-d502ea3efbf3"
    for number, cwd in enumerate(("/home/dev/private", "/home/dev/open")):
        uid = ident[:-1] + str(number)
        meta = {"id": uid, "timestamp": "2026-01-01T00:00:00.000Z", "cwd": cwd}
        line = {"timestamp": "2026-01-01T00:00:00.000Z", "type": "session_meta", "payload": meta}
        path = folder / f"rollout-2026-01-01T00-00-00-{uid}.jsonl"
        path.write_text(json.dumps(line) + "\n")
    report = sweep(tmp_path / "s", {"codex": [tmp_path / "codex"]}, exclude=["*/private"])

    assert (1, 1) == (report.excluded, report.sessions_new)


def test_one_bad_source_does_not_end_the_sweep(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told with its reason, and read the next time."""
    bad = logs.name(2)
    read = ingest.Ingester.read

    def keeps(self: Any, adapter: Any, source: Any, *args: Any, **more: Any) -> Any:
        if source.session == bad:
            raise RuntimeError("no")
        return read(self, adapter, source, *args, **more)

    monkeypatch.setattr(ingest.Ingester, "read", keeps)
    report = sweep(tmp_path, {"claude": [home]})
    monkeypatch.setattr(ingest.Ingester, "read", read)
    again = sweep(tmp_path, {"claude": [home]})

    assert (1, 4, 1) == (report.failed, report.sessions_new, again.sessions_new)
    assert [("failed", "RuntimeError('no')")] == [(o.what, o.why) for o in report.outcomes]


# -- newer rules ----------------------------------------------------------------------------


def _with_secret(home: Path, number: int = 6) -> str:
    """A session with something that only a newer rule takes for a secret."""
    script = logs.script(number)
    script.user(f"my word is {CANARY}")
    logs.write(home, script)
    return script.session


NEWER = Gate(key=KEY, extra=[rule_of("word", CANARY, keywords=(CANARY,))])


def _sweep_newer(folder: Path, home: Path) -> SweepReport:
    store = opened(folder)
    with store.sweeping():
        report = Sweep(store, adapters(), NEWER, rules()).run({"claude": [home]})
    store.close()
    return report


@pytest.mark.few(3)
@pytest.mark.parametrize("case", ["there", "gone", "evicted"])
def test_newer_rules_go_over_everything_again(home: Path, tmp_path: Path, case: str) -> None:
    """From the source, or in the store where that is all there is; nothing old stays behind."""
    session = _with_secret(home)
    folder = tmp_path / "s"
    sweep(folder, {"claude": [home]})
    before = dump(folder)["spend"]
    if case == "gone":
        (home / "projects" / "-home-dev-project" / f"{session}.jsonl").unlink()
    if case == "evicted":
        store = opened(folder)
        store.remove([f"claude:{session}"], why={})
        store.close()
    _sweep_newer(folder, home)
    store = opened(folder)
    hits = store.search(parse(CANARY)).matches
    known = store.known()
    store.settle()
    store.close()

    assert [] == hits
    assert {NEWER.version} == {entry.redactor for entry in known.sessions.values()}
    assert frozenset() == known.untidy
    assert [] == files_with(folder, CANARY)
    assert before == dump(folder)["spend"]
    assert 0 == _sweep_newer(folder, home).lines


def test_newer_rules_pass_over_what_a_broken_pack_held(home: Path, tmp_path: Path) -> None:
    """Its source is gone, so it is in the store alone; all else is gone over, and it is told."""
    session = _with_secret(home)
    folder = tmp_path / "s"
    sweep(folder, {"claude": [home]})
    logs.path(home, Script(session)).unlink()
    for pack in (folder / "packs").glob(f"{pack_name(f'claude:{session}')}-*"):
        pack.write_bytes(bytes(pack.stat().st_size))
    report = _sweep_newer(folder, home)
    store = opened(folder)
    known = store.known()
    store.close()

    assert {NEWER.version} == {entry.redactor for entry in known.sessions.values()}
    assert [f"claude:{session}"] == [outcome.uid for outcome in report.outcomes if outcome.skipped]
    assert report.skipped > 0
    assert _is_whole(folder, f"claude:{session}")


def test_a_broken_pack_does_not_keep_a_sweep_from_its_end(home: Path, tmp_path: Path) -> None:
    """What cannot be packed anew is told; the caps are kept all the same."""
    folder = tmp_path / "s"
    sweep(folder, {"claude": [home]})
    uid = f"claude:{logs.name(3)}"
    for pack in (folder / "packs").glob(f"{pack_name(uid)}-*"):
        pack.write_bytes(bytes(pack.stat().st_size))
    with apsw.Connection(str(folder / "s.db")) as db:  # as after a kill
        db.execute("INSERT INTO pending VALUES(?)", (f"{REPACK}{uid}",))
    report = sweep(folder, {"claude": [home]}, policy=Policy(raw_soft_cap_bytes=1))

    assert [(uid, "failed")] == [(outcome.uid, outcome.what) for outcome in report.outcomes]
    assert report.evicted > 0


def test_newer_readers_read_again(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the start; and come to the same."""
    sweep(tmp_path, {"claude": [home]})
    before = dump(tmp_path)
    monkeypatch.setattr(derivation, "READER_VERSION", 99)
    report = sweep(tmp_path, {"claude": [home]})
    after = dump(tmp_path)
    for fields in (*before["sessions"].values(), *after["sessions"].values()):
        fields.pop("reader")

    assert 5 == report.read
    assert 5 == report.reprocessed["reader"]
    assert before == after


def test_another_fold_rebuilds_rows_from_the_store(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No source is read, no state of the older fold is continued, and the rows are the same."""
    sweep(tmp_path, {"claude": [home]})
    before = dump(tmp_path)
    monkeypatch.setattr(fold, "VERSION", 99)
    report = sweep(tmp_path, {"claude": [home]})
    after = dump(tmp_path)
    again = sweep(tmp_path, {"claude": [home]})
    for fields in (*before["sessions"].values(), *after["sessions"].values()):
        fields.pop("fold")

    assert (0, 5) == (report.lines, report.reprocessed["fold"])
    assert 0 == sum(again.reprocessed.values())
    assert before == after


def test_a_session_of_an_older_fold_that_grows_is_rebuilt(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stored state means something else today: it is not continued."""
    sweep(tmp_path, {"claude": [home]})
    monkeypatch.setattr(fold, "VERSION", 99)
    script = logs.script(3, turns=7)
    logs.write(home, script)
    report = sweep(tmp_path, {"claude": [home]})

    assert report.rebuilt >= 1
    assert 5 == report.reprocessed["fold"]


@pytest.mark.parametrize("grows", [False, True])
def test_another_price_list_prices_stored_sessions_again(
    grows: bool, home: Path, tmp_path: Path
) -> None:
    """A model that no list knew has a price after an upgrade: of all that it was asked."""
    (tmp_path / "older.json").write_text('{"providers": []}')
    older = rules(prices=Prices(tmp_path / "older.json"))
    store = opened(tmp_path)
    with store.sweeping():
        Sweep(store, adapters(), Gate(key=KEY), older).run({"claude": [home]})
    store.close()
    unknown = dump(tmp_path)
    if grows:
        logs.write(home, logs.script(3, turns=7))
    report = sweep(tmp_path, {"claude": [home]})
    priced = dump(tmp_path)
    again = sweep(tmp_path, {"claude": [home]})
    sweep(tmp_path / "fresh", {"claude": [home]})
    fresh = dump(tmp_path / "fresh")

    assert 5 == report.reprocessed["prices"]
    assert grows == bool(report.lines)
    assert 0 == sum(again.reprocessed.values())
    assert unknown["spend"] != priced["spend"] == fresh["spend"]


def test_another_digest_version_digests_again_and_reads_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every session that is in the store, once; what was evicted keeps the digest it has."""
    sweep(tmp_path, {"claude": [home]})
    _evict(tmp_path, 2)
    before = derivation.DIGEST_VERSION
    monkeypatch.setattr(derivation, "DIGEST_VERSION", 99)
    stages: list[tuple[str, int]] = []
    report = sweep(
        tmp_path, {"claude": [home]}, progress=lambda p: stages.append((p.stage, p.all_sources))
    )
    again = sweep(tmp_path, {"claude": [home]})
    versions = [record["version"] for record in dump(tmp_path)["digests"].values()]

    assert (0, 4, 4) == (report.lines, report.digested, report.reprocessed["digest"])
    assert [before, 99, 99, 99, 99] == sorted(versions)
    assert 4 == stages.count(("digest", 4))
    assert (0, 0) == (again.digested, again.reprocessed["digest"])


# -- evicted --------------------------------------------------------------------------------


def _evict(folder: Path, *numbers: int) -> None:
    store = opened(folder)
    store.remove([f"claude:{logs.name(number)}" for number in numbers], why={})
    store.close()


def test_a_session_read_anew_is_as_if_its_pack_had_never_broken(home: Path, tmp_path: Path) -> None:
    """One pack is gone, another holds other bytes; no row of any session differs afterwards."""
    place = tmp_path / "store"
    sweep(place, {"claude": [home]})
    before = dump(place)
    gone, damaged, *_ = sorted((place / "packs").iterdir())
    gone.unlink()
    damaged.write_bytes(b"\0" * damaged.stat().st_size)
    broken = {uid for uid in before["sessions"] if not _is_whole(place, uid)}
    report = sweep(place, {"claude": [home]}, anew=broken)

    assert 2 == len(broken) == report.read
    assert before == dump(place)
    assert all(_is_whole(place, uid) for uid in before["sessions"])


def _is_whole(place: Path, uid: str) -> bool:
    """Whether every payload of a session can be read."""
    store = opened(place)
    stored = store.load_session(uid)
    assert stored is not None
    try:
        with_payloads(stored.facts, store.blobs)
    except ThenceError:
        return False
    finally:
        store.close()
    return True


def test_texts_that_only_a_broken_pack_held_are_told_and_the_rest_is_kept(
    home: Path, tmp_path: Path
) -> None:
    """The log was rewritten: no source has them. Their events stay, without a text."""
    script = logs.script(3, turns=6)
    uid, path = f"claude:{script.session}", logs.path(home, script)
    sweep(tmp_path, {"claude": [home]})
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:5]))
    sweep(tmp_path, {"claude": [home]})
    before = rows(tmp_path)[script.session]
    for pack in (tmp_path / "packs").glob(f"{pack_name(uid)}-*"):
        pack.unlink()
    report = sweep(tmp_path, {"claude": [home]}, anew=[uid])
    [outcome] = report.outcomes

    assert _is_whole(tmp_path, uid)
    assert before.events == rows(tmp_path)[script.session].events
    assert {True} == {"its text is unavailable" in skip.why for skip in outcome.skipped}
    assert report.skipped == len(outcome.skipped) > 0


@pytest.mark.slow
def test_evicted_session_is_read_again_only_when_it_grows(home: Path, tmp_path: Path) -> None:
    """Then from the start, and as if it had never been away."""
    script = logs.script(2)
    sweep(tmp_path, {"claude": [home]})
    _evict(tmp_path, 2)
    calm = sweep(tmp_path, {"claude": [home]})
    script.user("one thing more")
    logs.write(home, script)
    grown = sweep(tmp_path, {"claude": [home]})
    sweep(tmp_path / "once", {"claude": [home]})

    assert (0, 1) == (calm.read, grown.sessions_changed)
    assert dump(tmp_path / "once") == dump(tmp_path)


def test_evicted_session_that_lost_its_beginning_goes_on(home: Path, tmp_path: Path) -> None:
    """What it took before goes on counting, and its digest stands inside the new one."""
    script = logs.script(2)
    sweep(tmp_path, {"claude": [home]})
    uid = f"claude:{script.session}"
    before = sum(spent(tmp_path)[uid])
    _evict(tmp_path, 2)
    more = logs.script(8, turns=1)
    for record in more.records:
        record["timestamp"] = record["timestamp"].replace("2026-01-01", "2026-02-01")
        record["sessionId"] = script.session
    logs.path(home, script).write_bytes(more.data)
    sweep(tmp_path, {"claude": [home]})
    digest = next(d for d in table_rows(tmp_path, "digests") if d["uid"] == uid)
    logs.write(tmp_path / "new", more)
    sweep(tmp_path / "third", {"claude": [tmp_path / "new"]})
    added = sum(spent(tmp_path / "third")[f"claude:{more.session}"])

    assert before + added == sum(spent(tmp_path)[uid])
    assert uid == digest["continues"]["uid"]
    more.user("and on")
    logs.path(home, script).write_bytes(more.data)
    sweep(tmp_path, {"claude": [home]})
    later = next(d for d in table_rows(tmp_path, "digests") if d["uid"] == uid)
    assert digest["continues"] == later["continues"]
    assert before + added == sum(spent(tmp_path)[uid])


@pytest.mark.parametrize("first", [1, 4])
def test_what_an_evicted_member_owns_is_not_counted_again(
    home: Path, tmp_path: Path, first: int
) -> None:
    """Money is counted once for ever, whichever of a family goes, stays, grows or comes late."""
    sweep(tmp_path, {"claude": [home]})
    total = Counter(kept_spend(tmp_path))
    _evict(tmp_path, first)
    script = logs.fork(5, logs.script(1), 9)
    script.user("and on")
    logs.write(home, script)
    late = logs.fork(9, logs.script(1), 12, turns=0)
    logs.write(home, late)
    sweep(tmp_path, {"claude": [home]})

    assert total == Counter(kept_spend(tmp_path))


def kept_spend(folder: Path) -> dict[str, int]:
    """Tokens by day, over all sessions."""
    out: dict[str, int] = {}
    for row in table_rows(folder, "spend"):
        count = sum(row[name] for name in ("input", "output", "cache_creation", "cache_read"))
        day = row["day"][:10]
        out[day] = out.get(day, 0) + count
    return out


# -- retention ------------------------------------------------------------------------------


def test_analysed_sessions_go_when_the_cache_is_full(home: Path, tmp_path: Path) -> None:
    """The oldest first, only as many as needed, digests and money stay, each with its reason."""
    sweep(tmp_path, {"claude": [home]})
    before = rows(tmp_path)
    cap = sum(row.raw_bytes for row in before.values()) - 1
    report = sweep(tmp_path, {"claude": [home]}, policy=Policy(raw_soft_cap_bytes=cap))
    after = rows(tmp_path)
    gone = [row for row in after.values() if row.session.evicted_at]

    assert (1, 0, []) == (report.evicted, report.lost, report.notes)
    assert [1, 5] == [len(gone), len(table_rows(tmp_path, "digests"))]
    assert ["evict"] == [row["what"] for row in table_rows(tmp_path, "removals")]
    assert "storage limit" in table_rows(tmp_path, "removals")[0]["why"]
    assert {n: row.spent for n, row in before.items()} == {n: r.spent for n, r in after.items()}
    assert 0 == sweep(tmp_path, {"claude": [home]}, policy=Policy(raw_soft_cap_bytes=cap)).evicted


@pytest.mark.parametrize("failing", ["all", "some"])
def test_unanalysed_go_only_when_analysis_failed(
    home: Path, tmp_path: Path, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T14: the oldest first, only until under the hard cap, each reported as a loss."""
    tried: Counter[str] = Counter()
    bad = {f"claude:{logs.name(n)}" for n in ((1, 2, 3, 4, 5) if failing == "all" else (1, 4))}

    def digests(session: SessionGraph, row: Any, **more: Any) -> Any:
        tried[session.uid] += 1
        if session.uid in bad:
            raise RuntimeError("analysis is out of order")
        return digest(session, row, **more)

    monkeypatch.setattr("thence.memory.digest.digest", digests)
    first = sweep(tmp_path, {"claude": [home]})
    before = rows(tmp_path)
    sizes = {f"claude:{name}": row.raw_bytes for name, row in before.items()}
    total = sum(sizes.values())
    cap = total - 1 if failing == "all" else sum(sizes[uid] for uid in bad) - 1
    tried.clear()
    policy = Policy(raw_soft_cap_bytes=cap, raw_hard_cap_bytes=cap)
    report = sweep(tmp_path, {"claude": [home]}, policy=policy)
    after = rows(tmp_path)
    lost = {row["uid"] for row in table_rows(tmp_path, "removals") if row["what"] == DATA_LOSS}
    size = sum(row.raw_bytes for row in after.values() if not row.session.evicted_at)

    assert len(bad) == sum(o.what == "undigested" for o in first.outcomes)
    assert 1 == len(lost) == report.lost
    assert lost <= bad
    assert all(tried[uid] >= 2 for uid in lost)
    assert size <= cap
    assert [f"{DATA_LOSS}: {uid}" for uid in lost] == [
        note.partition(": transcripts")[0] for note in report.notes
    ]
    oldest = min(bad, key=lambda uid: (before[uid[7:]].session.ended_at, uid))
    assert {oldest} == lost
    if failing == "some":
        assert report.evicted == 1 + 3


def test_running_and_pinned_sessions_stay_longest(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the user keeps is not touched, what runs is the last to go."""
    sweep(tmp_path, {"claude": [home]})
    store = opened(tmp_path)
    row = next(iter(store.sessions(Filter(uid=logs.name(2)))))
    cursor = store.known().sessions[row.session.session_uid].cursor
    store.write([SessionChange(msgspec.structs.replace(row, pinned=True), cursor)])
    store.close()
    live = type(adapters()["claude"])
    running = Source("claude", logs.name(3), ())
    monkeypatch.setattr(live, "live", lambda _self, _root: iter([running]))
    sizes = {name: row.raw_bytes for name, row in rows(tmp_path).items()}
    cap = sizes[logs.name(2)] + sizes[logs.name(3)]
    sweep(tmp_path, {"claude": [home]}, policy=Policy(raw_soft_cap_bytes=cap))
    left = {name for name, row in rows(tmp_path).items() if not row.session.evicted_at}

    assert {logs.name(2), logs.name(3)} == left


@pytest.mark.slow
def test_what_was_evicted_is_in_no_file(home: Path, tmp_path: Path, warm: Warm) -> None:
    """Rows, packs, index, log of the database, free pages; also when the eviction was killed."""
    secret = logs.script(6)
    call = {"type": "tool_use", "id": "c", "name": "Bash", "input": {"command": "cat word"}}
    secret.reply([call], stop="tool_use")
    secret.result("c", f"the word is {CANARY}")  # no digest quotes what a command printed
    secret.say("fine")
    logs.write(home, secret)
    point, ended = 0, -signal.SIGKILL
    while ended == -signal.SIGKILL:
        point += 1
        folder = tmp_path / f"s{point}"
        sweep(folder, {"claude": [home]})
        names = files_with(folder, CANARY)
        ended = warm.start(killed.evicted, str(folder), f"claude:{secret.session}", point).wait()
        sweep(folder, {"claude": [home]})
        evicted = rows(folder)[secret.session].session.evicted_at is not None

        assert names
        assert evicted or ended == -signal.SIGKILL
        assert (names if not evicted else []) == files_with(folder, CANARY)
    assert 0 == ended
    assert point > 8


# -- the real clients' files ----------------------------------------------------------------


def real_roots(shared: Path) -> dict[str, list[Path]]:
    """All homes of all agents; snapshots of the same home at another moment left out."""
    data = shared / "data"
    roots = {"claude": [*data.glob("claude-code/v*/*/claude"), *data.glob("public/claude/*")]}
    for agent in ("codex", "grok"):
        paths = [*(data / agent).rglob("sessions"), *(data / "public" / agent).rglob("sessions")]
        roots[agent] = sorted({p.parent for p in paths if p.is_dir() and "at-kill" not in str(p)})
    return roots


@pytest.mark.slow
def test_real_totals_are_those_of_the_adapters(real_store: RealStore) -> None:
    """Per session and per day, forks and subagents once; and what the API itself counted."""
    folder, roots, report = real_store
    stored = spent(folder)
    expected: dict[str, tuple[int, int, int]] = {}
    days: Counter[str] = Counter()
    for agent, places in roots.items():
        for session in _sessions_of(agent, places):
            took = session.spent
            expected[session.uid] = (took.live.total, took.dead.total, took.side.total)
            days.update(_by_day(session))

    assert report.sessions_new > 150
    assert 0 == report.failed
    assert expected == stored
    assert days == Counter({day: n for day, n in kept_spend(folder).items() if n})
    again = sweep(folder, roots)
    assert (0, 0, 0) == (again.read, again.lines, again.digested)


def _sessions_of(agent: str, places: list[Path]) -> Iterator[SessionGraph]:
    """All sessions of an agent, put together without a store."""
    adapter = adapters()[agent]
    facts, torn = {}, {}
    for place in places:
        for source in adapter.find(place):
            facts[source.session], batch = read_all(adapter, source)
            torn[source.session] = batch.torn
    originals = dict(facts)
    for name, own_facts in originals.items():
        owner = next((f.about[COPIES_OF] for f in own_facts if COPIES_OF in f.about), None)
        if owner in originals:
            facts[name] = lineage.claim_copies(own_facts, owner, originals[owner])
    shared = lineage.find_shared(facts)
    for name, own_facts in facts.items():
        yield SessionGraph(
            f"{agent}:{name}",
            own_facts,
            replayed=shared.replayed[name],
            billed=shared.billed[name],
            torn=torn[name],
        )


def _by_day(session: SessionGraph) -> Counter[str]:
    from thence.format import derived_events

    counted = derived_events.bills(session.events)
    times = {event.event_id: (event.ts or "")[:10] for event in session.events}
    out: Counter[str] = Counter()
    for event, usage in counted.items():
        if usage.total:
            out[times[event]] += usage.total
    return out


@pytest.mark.slow
def test_real_totals_are_those_of_the_api(shared: Path, real_store: RealStore) -> None:
    """Of Codex and Grok, thread by thread, where the log tells all of it."""
    stored_rows = rows(real_store.folder)
    checked = 0
    for agent in ("codex", "grok"):
        for path in sorted((shared / "data" / agent).glob("*/truth.json")):
            for thread, truth in json.loads(path.read_bytes())["threads"].items():
                kinds = [truth["by_kind"].get(kind) for kind in ("turn", "compaction")]
                total = sum(kind["total"] for kind in kinds if kind)
                row = stored_rows.get(thread)
                if row is None or row.lower_bound or not total or agent == "grok":
                    continue
                checked += 1

                assert total == row.spent.own, (agent, thread)
    assert checked > 20


@pytest.mark.slow
@pytest.mark.parametrize("series", ["768de5d6", "cc432c40"])
def test_real_sessions_grow_in_the_store(shared: Path, tmp_path: Path, series: str) -> None:
    """Snapshots of growing sessions, in order: the same as the last one at once."""
    folder = shared / "data" / "public" / "claude" / "entireio-cli" / "growth" / series
    for name in ("some", "once"):
        (tmp_path / name / "projects" / "p").mkdir(parents=True)
    snapshots = sorted(folder.glob("*/*.jsonl"))
    for snapshot in snapshots:
        # Written over in place, as its writer goes on with the same file.
        target = tmp_path / "some" / "projects" / "p" / snapshot.name
        with target.open("ab") as file:
            file.write(snapshot.read_bytes()[target.stat().st_size :])
        sweep(tmp_path / "s1", {"claude": [tmp_path / "some"]})
    shutil.copy(snapshots[-1], tmp_path / "once" / "projects" / "p")
    sweep(tmp_path / "s2", {"claude": [tmp_path / "once"]})
    some, once = dump(tmp_path / "s1"), dump(tmp_path / "s2")
    for fields in (*some["sessions"].values(), *once["sessions"].values()):
        for passing in ("source_path", "files", "skipped"):
            fields.pop(passing, None)

    assert once == some


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["codex", "grok"])
def test_real_homes_grow_in_the_store(shared: Path, tmp_path: Path, agent: str) -> None:
    """Logs that get longer, documents that turn up: the same as all of it at once."""
    homes = sorted((shared / "data" / agent).glob(f"*/{agent}_home"))
    chance = random.Random(settings().max_examples)
    for home in chance.sample(homes, min(len(homes), 3 + settings().max_examples // 20)):
        folder = tmp_path / home.parent.name
        for step in (1, 2, 3):
            for path in sorted(path for path in home.rglob("*") if path.is_file()):
                _grow(path, folder / "home" / path.relative_to(home), chance, last=step == 3)
            sweep(folder / "some", {agent: [folder / "home"]})
        sweep(folder / "once", {agent: [folder / "home"]})
        some, once = dump(folder / "some"), dump(folder / "once")
        for dumped in (some, once):
            dumped.pop("facts")  # those of documents that were replaced are still there
            for row in dumped["sessions"].values():
                row.pop("skipped", None)

        assert once == some, home


def _grow(path: Path, to: Path, chance: random.Random, *, last: bool) -> None:
    """Write more of a file: a log further on, a document whole or not yet.

    A checkpoint of a compaction is there from the first: its client writes it before the line
    that names it, and the line is read once.
    """
    to.parent.mkdir(parents=True, exist_ok=True)
    data = path.read_bytes()
    if path.suffix == ".jsonl":
        size = to.stat().st_size if to.exists() else 0
        with to.open("ab") as file:
            file.write(data[size : len(data) if last else chance.randint(size, len(data))])
    elif not to.exists() and (last or _is_named(path) or chance.random() < 0.5):
        to.write_bytes(data)


def _is_named(path: Path) -> bool:
    return path.parent.name == "compaction_checkpoints"


@pytest.mark.slow
@given(st.lists(st.integers(0, 3), max_size=12), st.booleans())
def test_a_hit_has_the_number_it_is_shown_with(grown: list[int], late: bool) -> None:
    """However a session and its subagents grew, in whatever order, digested or not."""
    with tempfile.TemporaryDirectory() as folder:
        home, place = Path(folder, "home"), Path(folder, "store")
        texts = {number: [f"said {CANARY} {number}"] for number in range(4)}
        for number in [None, *grown]:
            if number is not None:
                texts[number].append(f"and {CANARY} again")
            _write_subagents(home, texts, late=late)
            sweep(place, {"claude": [home]})
        store = opened(place)
        hits = store.search(parse(CANARY), 100).matches
        shown = {uid: _shown(store, uid) for uid in {hit.session_uid for hit in hits}}
        store.close()

    assert len(grown) + 4 == len(hits)
    assert [shown[hit.session_uid][hit.event_id or 0] for hit in hits] == [h.seq for h in hits]


def _shown(store: Store, uid: str) -> dict[int, int | None]:
    """The numbers with which `show` gives the events of a session."""
    stored = store.load_session(uid)
    assert stored is not None
    session = SessionGraph(uid, stored.facts, replayed=stored.replayed, billed=stored.billed)
    seqs = {row.event.event_id: row.seq for row in store.events(uid)}
    assert {event.event_id for event in session.events} == seqs.keys()
    return {
        event.event_id: event.seq
        for event in number_events([*session.events, *session.derived], seqs)
    }


def _write_subagents(home: Path, texts: dict[int, list[str]], *, late: bool) -> None:
    """A session and three subagents of it; with `late`, one whose answers stand before prompts."""
    main, folder = logs.script(1, 0), home / "projects" / "-home-dev-project"
    side = folder / main.session / "subagents"
    side.mkdir(parents=True, exist_ok=True)
    for number, lines in texts.items():
        script = main if number == 0 else Script(main.session, f"a{number}-", isSidechain=True)
        for text in lines:
            script.user(text)
            script.say("done")
        records = script.records
        if late and number == 0 and len(records) > 3:
            records[1], records[2] = records[2], records[1]
        path = folder / f"{main.session}.jsonl" if number == 0 else side / f"agent-{number}.jsonl"
        path.write_bytes(script.data)


@pytest.mark.slow
def test_digests_that_take_too_long_are_left_to_the_next_sweep(tmp_path: Path) -> None:
    """New lines are read first; each sweep digests one session at least, until all are."""
    home = tmp_path / "home"
    logs.write(home, *(logs.script(number, 2) for number in range(4)))
    store = opened(tmp_path)
    with store.sweeping():
        Sweep(store, adapters(), Gate(key=KEY), rules(), digests=False).run({"claude": [home]})
        left = [
            Sweep(store, adapters(), Gate(key=KEY), rules()).run({}, digest_limit_s=0.0).undigested
            for _ in range(4)
        ]
    store.close()

    assert [3, 2, 1, 0] == left
    assert 4 == len(table_rows(tmp_path, "digests"))


@pytest.mark.slow
def test_a_sweep_of_what_was_found_asks_the_store_for_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What agents write now is swept again and again: that must not cost more in a large store."""
    home = tmp_path / "home"
    scripts = [logs.script(number, 2) for number in range(25)]
    logs.write(home, *scripts)
    store, known = opened(tmp_path), adapters()
    with store.sweeping():
        Sweep(store, known, Gate(key=KEY), rules(), digests=False).run({"claude": [home]})
        for script in scripts[:12]:
            script.user("one more")
        logs.write(home, *scripts)
        paths = [p for s in scripts[:12] for p in home.rglob(f"{s.session}.jsonl")]
        readers, roots = narrow_to(known, {"claude": [home]}, paths)
        asked: list[set[str] | None] = []
        all_known = store.known

        def noting(uids: Collection[str] | None = None) -> Inventory:
            asked.append(None if uids is None else set(uids))
            return all_known(uids)

        monkeypatch.setattr(store, "known", noting)
        narrow = Sweep(store, readers, Gate(key=KEY), rules(), digests=False)
        report = narrow.run(roots, only_found=True)
    changed = {f"claude:{script.session}" for script in scripts[:12]}
    store.close()
    sweep(tmp_path / "once", {"claude": [home]}, digests=False)

    assert [changed, changed] == asked
    assert (12, 12, 12) == (report.sources, report.sessions_changed, report.events)
    assert dump(tmp_path / "once") == dump(tmp_path)


def test_of_sessions_that_grow_together_the_one_read_longest_ago_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever was written last: none waits for two sweeps because the order changed."""
    home = tmp_path / "home"
    scripts = [logs.script(number, 2) for number in range(3)]
    logs.write(home, *scripts)
    store, known = opened(tmp_path), adapters()
    paths = {s.session: p for s in scripts for p in home.rglob(f"{s.session}.jsonl")}
    names = list(paths)
    written: list[str] = []
    write_all = store.write

    def noting(changes: Sequence[SessionChange] = (), **others: Any) -> dict[str, set[str]]:
        written.extend(change.row.session.native_session_id for change in changes)
        return write_all(changes, **others)

    monkeypatch.setattr(store, "write", noting)
    moments = iter(range(1_000, 100_000, 1_000))
    monkeypatch.setattr("thence.memory.rows.now", lambda: next(moments))
    with store.sweeping():
        for some in ([names[2]], [names[0]], [names[1]], names):
            for name in names:
                times = (names.index(name) + 1_700_000_000,) * 2
                os.utime(paths[name], times)
            readers, roots = narrow_to(known, {"claude": [home]}, [paths[name] for name in some])
            Sweep(store, readers, Gate(key=KEY), rules(), digests=False).run(roots, only_found=True)
            for script in scripts:
                script.user("one more")
            logs.write(home, *scripts)
    store.close()

    assert [names[2], names[0], names[1]] == written[3:]
