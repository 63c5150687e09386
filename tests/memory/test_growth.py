"""Stored sessions that grow: what is stored equals a fresh read, and the work does not grow."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from bench.measure import count_executed_lines
from tests.agents.transcripts import Script
from tests.memory import logs
from tests.memory.stored import KEY, dump, opened, sweep
from tests.pace import by_pace
from tests.rules import rules
from thence.agents import adapters
from thence.format.readout import Readout
from thence.format.session_graph import SessionGraph
from thence.memory.gate import Gate
from thence.memory.pages import PAGE_EVENTS
from thence.memory.readouts import read_end, readout_of
from thence.memory.sweep import Sweep, SweepReport
from thence.serve.event_lines import EventLine

SIZES = by_pace(everyday=(64, 608), full=(64, 608), prove=(96, 992, 4000))
"""Turns of the sessions that are compared: four events each, so that all end alike in a page."""
assert all(4 * turns % PAGE_EVENTS == 0 for turns in SIZES)


def grow(home: Path, script: Script, text: str = "and one thing more") -> None:
    """Append one prompt to the log of a session."""
    script.user(text)
    with logs.path(home, script).open("ab") as file:
        file.write(json.dumps(script.records[-1]).encode() + b"\n")


def swept(folder: Path, home: Path) -> tuple[int, SweepReport]:
    """Sweep without digests, and count the lines that are executed."""
    store = opened(folder)
    reports: list[SweepReport] = []
    with store.sweeping():
        run = Sweep(store, adapters(), Gate(key=KEY), rules(), digests=False)
        number = count_executed_lines(lambda: reports.append(run.run({"claude": [home]})))
    store.close()
    return number, reports[0]


@pytest.mark.slow
@pytest.mark.sampled
def test_a_line_more_costs_the_same_in_a_session_of_any_length(tmp_path: Path) -> None:
    """For a sweep, counted in executed lines; nothing is rebuilt."""
    work = []
    for turns in SIZES:
        home, folder = tmp_path / f"home{turns}", tmp_path / f"store{turns}"
        script = logs.script(1, turns)
        logs.write(home, script)
        sweep(folder, {"claude": [home]}, digests=False)
        for _ in range(3):
            grow(home, script)
            number, report = swept(folder, home)

            assert (1, 0) == (report.events, report.rebuilt)
        work.append(number)

    assert max(work) <= 1.2 * min(work)


@pytest.mark.slow
@pytest.mark.parametrize("grows", ["original", "fork"])
def test_a_line_more_in_a_family_of_six_costs_what_one_session_costs(
    tmp_path: Path, grows: str
) -> None:
    """Forks are compared with their originals when they share something new, and only then."""
    work = []
    for forks in (0, 5):
        home, folder = tmp_path / f"home{forks}", tmp_path / f"store{forks}"
        first = logs.script(1, 60)
        others = [logs.fork(2 + n, first, 100 + n) for n in range(forks)]
        logs.write(home, first, *others)
        sweep(folder, {"claude": [home]}, digests=False)
        for _ in range(3):
            grow(home, others[2] if others and grows == "fork" else first)
            number, report = swept(folder, home)

            assert (1, {}) == (report.events, report.rebuilt_because)
        work.append(number)

    # Six files instead of one are looked for and found unchanged.
    assert work[1] <= 1.2 * work[0]


@pytest.mark.prove
def test_a_line_more_costs_the_same_at_288_000_events(tmp_path: Path) -> None:
    """As at 9,000, 36,000 and 72,000; counted in executed lines, and nothing is rebuilt."""
    work = []
    for events in (9_000, 36_000, 72_000, 288_000):
        home, folder = tmp_path / f"home{events}", tmp_path / f"store{events}"
        script = logs.script(1, events // 4)
        logs.write(home, script)
        sweep(folder, {"claude": [home]}, digests=False, address=str(folder / "s.db"))
        for _ in range(3):
            grow(home, script)
            number, report = swept(folder, home)

            assert (1, {}) == (report.events, report.rebuilt_because)
        work.append(number)

    assert max(work) <= 1.2 * min(work)


@pytest.mark.slow
@pytest.mark.sampled
def test_a_line_more_on_a_followed_line_costs_the_same(tmp_path: Path) -> None:
    """For the live stream: the line that was sent is continued, and equals one made anew."""
    work = []
    for turns in SIZES:
        home, folder = tmp_path / f"home{turns}", tmp_path / f"store{turns}"
        script = logs.script(1, turns)
        logs.write(home, script)
        sweep(folder, {"claude": [home]}, digests=False)
        grow(home, script)
        sweep(folder, {"claude": [home]}, digests=False)
        uid = f"claude:{script.session}"
        store = opened(folder)
        line = EventLine(anew_of(store, uid))
        grow(home, script, "then this")
        sweep(folder, {"claude": [home]}, digests=False)
        made: list[EventLine | None] = []

        def go_on(
            made: list[EventLine | None] = made,
            line: EventLine = line,
            store: Any = store,
            uid: str = uid,
        ) -> None:
            end = read_end(store, uid)
            assert end is not None
            made.append(line.extend(end.readout, end.state, lambda: end.readout))

        go_on()  # what is compiled and loaded the first time is no work of a line
        work.append(count_executed_lines(go_on))
        again, anew = made[0], EventLine(anew_of(store, uid))
        store.close()

        assert again is not None
        assert (anew.ids, anew.mark()) == (again.ids, again.mark())
        assert len(line.ids) + 1 == len(again.ids)
    assert max(work) <= 1.2 * min(work)


def anew_of(store: Any, uid: str) -> Readout:
    """Put a session together from all facts that are stored of it."""
    stored = store.load_session(uid)
    return readout_of(
        SessionGraph(uid, stored.facts, replayed=stored.replayed, billed=stored.billed)
    )


@pytest.mark.few(24)
@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(24))
def test_a_session_swept_after_random_pieces_is_the_session_swept_once(
    tmp_path: Path, seed: int
) -> None:
    """Rows, states, spend, words and facts; with branches, subagents' bills and forks."""
    chance = random.Random(seed)
    first = logs.script(1, 8, seed)
    scripts = [first, logs.script(2, 5, seed), logs.fork(3, first, 9)]
    home = tmp_path / "home"
    left = {script.session: script.data.splitlines(keepends=True) for script in scripts}
    folder = logs.path(home, first).parent
    folder.mkdir(parents=True)
    while any(left.values()):
        name = chance.choice([name for name, lines in left.items() if lines])
        with (folder / f"{name}.jsonl").open("ab") as file:
            for _ in range(chance.randint(1, 4)):
                file.write(left[name].pop(0) if left[name] else b"")
        sweep(tmp_path / "grown", {"claude": [home]})
    sweep(tmp_path / "once", {"claude": [home]})

    assert dump(tmp_path / "once") == dump(tmp_path / "grown")


def test_a_log_rewritten_back_and_forth_stores_its_records_once(tmp_path: Path) -> None:
    """What it held before is there, dead, each event once, however often it changed."""
    home = tmp_path / "home"
    first, second = logs.script(1, 4, seed=1), logs.script(1, 4, seed=2)
    for record in second.records:
        record["uuid"] = f"other-{record['uuid']}"
        record["parentUuid"] = record["parentUuid"] and f"other-{record['parentUuid']}"
    numbers = []
    for script in (first, second, first, second, first, second):
        logs.write(home, script)
        sweep(tmp_path / "store", {"claude": [home]})
        store = opened(tmp_path / "store")
        numbers.append(next(store.sessions()).events)
        store.close()

    assert [len(first.records)] + [len(first.records) + len(second.records)] * 5 == numbers


def test_other_bytes_of_the_same_size_and_time_are_read(tmp_path: Path) -> None:
    """Whoever sets the time of a log back cannot hide what was written into it."""
    home = tmp_path / "home"
    script = logs.script(1, 3)
    logs.write(home, script)
    path = logs.path(home, script)
    sweep(tmp_path / "store", {"claude": [home]})
    before = path.stat()
    path.write_bytes(script.data.replace(b"harbour", b"harvest"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    report = sweep(tmp_path / "store", {"claude": [home]})

    assert b"harbour" in script.data
    assert (before.st_size, before.st_mtime_ns) == (path.stat().st_size, path.stat().st_mtime_ns)
    assert 1 == report.read
