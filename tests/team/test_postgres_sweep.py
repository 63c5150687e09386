"""Sweeps into a Postgres come to the same as into a file, however often something is killed.

The tests of sweeping and of retention run here once more, on the other store.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import settings

from tests.faults.warm import Warm
from tests.memory import (
    killed_postgres,
    logs,
    stored,
    test_digest_grows,
    test_growth_grok,
    test_sweep,
)
from tests.memory.stored import dump, sweep
from tests.memory.test_sweep import CANARY, home, tmp_path
from tests.pace import by_pace
from tests.postgres import Cluster
from tests.rules import rules
from thence.agents import adapters
from thence.memory import sweep as module
from thence.memory.gate import Gate
from thence.memory.search import parse
from thence.memory.store import DigestRecord, SessionChange
from thence.memory.sweep import Progress, Sweep, SweepReport
from thence.team.postgres import Postgres

__all__ = ["home", "tmp_path"]

KILLS = settings().max_examples // 60 + 3
"""How often something is killed."""

SAME = (
    "test_second_sweep_parses_no_line",
    "test_fork_is_counted_once_whoever_comes_first",
    "test_others_read_while_one_sweeps",
    "test_vanished_source_is_marked_once_and_keeps_everything",
    "test_what_was_read_stays_when_the_source_is_rewritten",
    "test_one_bad_source_does_not_end_the_sweep",
    "test_newer_rules_go_over_everything_again",
    "test_newer_readers_read_again",
    "test_another_fold_rebuilds_rows_from_the_store",
    "test_another_digest_version_digests_again_and_reads_nothing",
    "test_evicted_session_is_read_again_only_when_it_grows",
    "test_evicted_session_that_lost_its_beginning_goes_on",
    "test_what_an_evicted_member_owns_is_not_counted_again",
    "test_analysed_sessions_go_when_the_cache_is_full",
    "test_unanalysed_go_only_when_analysis_failed",
    "test_running_and_pinned_sessions_stay_longest",
)
globals().update({name: getattr(test_sweep, name) for name in SAME})
SAME_OF_GROK = (
    "test_a_text_that_goes_on_is_found_whole",
    "test_a_secret_that_was_cut_in_two_is_nowhere",
)
globals().update({name: getattr(test_growth_grok, name) for name in SAME_OF_GROK})
SAME_OF_DIGESTS = (
    "test_no_state_of_a_digest_outlives_what_it_was_made_of",
    "test_session_read_in_pieces_is_digested_as_it_is_read",
)
globals().update({name: getattr(test_digest_grows, name) for name in SAME_OF_DIGESTS})


@pytest.fixture(autouse=True)
def server(postgres: Cluster) -> Iterator[str]:
    """Let all stores lie in a database."""
    stored.use(postgres.url())
    yield postgres.url()
    stored.use(None)


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    """A parent of processes to kill."""
    with Warm("tests.memory.killed_postgres") as parent:
        yield parent


def test_both_stores_hold_the_same(home: Path, tmp_path: Path) -> None:
    """Rows, events, payloads, facts, spend, digests, families, and words in their places."""
    first = sweep(tmp_path / "one", {"claude": [home]})
    database = dump(tmp_path / "one")
    stored.use(None)
    second = sweep(tmp_path / "two", {"claude": [home]})
    file = dump(tmp_path / "two")
    words = [
        [word for word in dumped.pop("words") if word[3] == "body"] for dumped in (file, database)
    ]

    assert _counts(first) == _counts(second)
    assert file == database
    assert words[0] == words[1] != []


def _counts(report: SweepReport) -> tuple[int, ...]:
    return (report.read, report.sessions_new, report.events, report.lines, report.digested)


def test_session_that_grows_is_continued(tmp_path: Path) -> None:
    """Without being rebuilt, and it is the session that is swept at once."""
    agent, long = tmp_path / "agent", logs.script(1, turns=40)
    reports = []
    for text in ("", "one more question", "and another one"):
        if text:
            long.user(text)
        logs.write(agent, long)
        reports.append(sweep(tmp_path / "grown", {"claude": [agent]}))
    sweep(tmp_path / "at once", {"claude": [agent]})

    assert [0, 0, 0] == [report.rebuilt for report in reports]
    assert dump(tmp_path / "at once") == dump(tmp_path / "grown")


def test_three_processes_come_to_the_same_as_one(home: Path, tmp_path: Path, warm: Warm) -> None:
    """Whoever reads, each over a connection of its own."""
    sweep(tmp_path / "one", {"claude": [home]})
    ended = warm.start(killed_postgres.swept, stored.address(tmp_path / "two"), str(home)).wait()

    assert 0 == ended
    assert dump(tmp_path / "one") == dump(tmp_path / "two")


@pytest.mark.slow
def test_sweep_that_is_killed_anywhere_converges(home: Path, tmp_path: Path, warm: Warm) -> None:
    """What is stored is that of a sweep that nobody disturbed; the next one need not wait long."""
    sweep(tmp_path / "calm", {"claude": [home]})
    calm = dump(tmp_path / "calm")
    chance = random.Random(KILLS)
    ends: Counter[int] = Counter()
    for number in range(KILLS):
        place = tmp_path / f"killed-{number}"
        point = chance.randrange(1, 60)
        child = warm.start(killed_postgres.swept, stored.address(place), str(home), point)
        ends[child.wait()] += 1
        test_sweep._gone(child.pid)
        _swept(place, home)

        assert calm == dump(place), point
    assert ends[-signal.SIGKILL]


def _swept(place: Path, home: Path) -> None:
    """Sweep when the server has found out that the other is gone."""
    store = stored.opened(place)
    with store.sweeping(wait=60):
        pass
    store.close()
    sweep(place, {"claude": [home]})


@pytest.mark.slow
def test_sweep_whose_server_is_killed_converges(
    home: Path, tmp_path: Path, postgres: Cluster
) -> None:
    """What waited to be written is written over another connection; the next sweep finds it so."""
    sweep(tmp_path / "calm", {"claude": [home]})
    calm = dump(tmp_path / "calm")
    failed = []
    for number in (1, 3):
        place = tmp_path / f"s{number}"
        left = [number]

        def crash(at: Progress, left: list[int] = left) -> None:
            left[0] -= at.stage == "read"
            if left[0] == 0:
                left[0] = -1
                postgres.stop("immediate")
                postgres.start()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(module, "COMMIT_BYTES", 1)
            patched.setattr(module, "DIGEST_BATCH", 1)
            failed.append(sweep(place, {"claude": [home]}, progress=crash).failed)
        _swept(place, home)

        assert calm == dump(place)
    assert [0, 0] == failed


@pytest.mark.slow
@pytest.mark.sampled
def test_eviction_that_is_killed_is_done_by_the_next_sweep(
    home: Path, tmp_path: Path, warm: Warm, postgres: Cluster
) -> None:
    """Rows, words, payloads and pages of all tables."""
    secret = logs.script(6)
    secret.user(f"the word is {CANARY}")
    secret.say("fine")
    logs.write(home, secret)
    uid = f"claude:{secret.session}"
    database = postgres.database()
    stored.use(postgres.url(database))
    for point in range(1, 14, by_pace(5, 5, 2)):
        place = tmp_path / f"s{point}"
        sweep(place, {"claude": [home]})
        warm.start(killed_postgres.evicted, stored.address(place), uid, point).wait()
        _swept(place, home)
        store = stored.opened(place)
        [row] = [
            stored_row for stored_row in store.sessions() if stored_row.session.session_uid == uid
        ]
        size = store.blobs.size(uid)
        pending = store.known().pending
        kinds = [hit.kind for hit in store.search(parse(CANARY)).matches]
        if not row.session.evicted_at:
            store.remove([uid], why={})
        store.close()

        assert not pending
        if row.session.evicted_at:
            assert (0, []) == (size, [kind for kind in kinds if kind != "digest"])
    postgres.sql("DELETE FROM thence.digests", database)
    postgres.sql("VACUUM FULL", database)
    [(number,)] = postgres.sql(f"SELECT oid FROM pg_database WHERE datname='{database}'")
    files = (postgres.data / "base" / f"{number}").iterdir()
    left = [path.name for path in files if path.is_file() and CANARY.encode() in path.read_bytes()]
    assert {"sessions", "signals", "pg_statistic"} >= {
        str(name)
        for file_name in left
        for (name,) in postgres.sql(
            f"SELECT relname FROM pg_class WHERE relfilenode={file_name.partition('.')[0]}",
            database,
        )
    }


DAYS = 8
"""Sessions of the tests of order, one a day."""


def written(home: Path, days: Sequence[int]) -> None:
    """Write sessions that took place so many days before the newest; the third forks the last."""
    scripts = {day: logs.script(day + 1, turns=3) for day in range(DAYS)}
    scripts[2] = logs.fork(3, scripts[DAYS - 1], at=5)
    for day in days:
        script = scripts[day]
        for record in script.records:
            record["timestamp"] = record["timestamp"].replace("2026-01-0", f"2026-0{9 - day}-0")
        logs.write(home, script)
        moment = datetime(2026, 9 - day, 1, tzinfo=UTC).timestamp()
        os.utime(logs.path(home, script), (moment, moment))


def test_answers_do_not_depend_on_the_order_of_reading(tmp_path: Path) -> None:
    """All that is stored, and the order of hits, whichever sessions are read first."""
    contents, hits = {}, {}
    orders = {
        "oldest first": [[day] for day in reversed(range(DAYS))],
        "newest first": [[day] for day in range(DAYS)],
        "at once": [list(range(DAYS))],
    }
    for name, order in orders.items():
        place = tmp_path / name
        for days in order:
            written(tmp_path / "homes" / name, days)
            sweep(place, {"claude": [tmp_path / "homes" / name]})
        contents[name] = {
            what: _without_paths(content)
            for what, content in dump(place).items()
            if what != "words"
        }
        store = stored.opened(place)
        matches = store.search(parse("harbour"), 100).matches
        hits[name] = [(hit.session_uid, hit.event_id) for hit in matches]
        store.close()

    assert hits["oldest first"] == hits["newest first"] == hits["at once"] != []
    assert contents["oldest first"] == contents["newest first"] == contents["at once"]


def _without_paths(value: object) -> object:
    if isinstance(value, dict):
        passing = ("source_path", "files")
        return {k: _without_paths(v) for k, v in value.items() if k not in passing}
    return value


def test_a_first_sweep_reads_the_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its first transaction holds is found, and the rest follows below it."""
    home, place = tmp_path / "claude", tmp_path / "store"
    written(home, range(DAYS))
    monkeypatch.setattr(module, "FIRST_COMMIT_BYTES", 1)
    monkeypatch.setattr(module, "COMMIT_BYTES", 1)
    store = stored.opened(place)
    assert isinstance(store, Postgres)
    order: list[str] = []
    write = store.write

    def noting(
        changes: Sequence[SessionChange] = (), digests: Sequence[DigestRecord] = ()
    ) -> object:
        order.extend(change.row.session.session_uid for change in changes if change.events)
        return write(changes, digests)

    monkeypatch.setattr(store, "write", noting)
    with store.sweeping():
        Sweep(store, adapters(), Gate(key=stored.KEY), rules(), digests=False).run(
            {"claude": [home]}
        )
    numbers = store._every(
        "SELECT uid, min(id), max(id) FROM events WHERE tenant=%s GROUP BY uid ORDER BY min(id)",
        store.tenant,
    )
    store.close()
    expected = [f"claude:{logs.name(day + 1)}" for day in range(DAYS)]

    assert expected == order[:DAYS]
    assert expected == [uid for uid, _, _ in reversed(numbers)]
    assert all(last < first for (_, _, last), (_, first, _) in itertools.pairwise(numbers))
