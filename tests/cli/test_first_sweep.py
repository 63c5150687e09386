"""A first sweep: the newest sessions come first, and the order changes no answer."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.agents.transcripts import Script
from tests.cli.desk import Desk
from tests.memory import logs
from tests.memory.stored import everything
from thence.memory import ranking
from thence.memory.sqlite import Sqlite

NEWEST = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAYS = 14
FILLER = "x" * 12_000

STOPPED = """
import os, signal, sys
from thence import cli
from thence.memory.sqlite import Sqlite

write = Sqlite.write

def write_once(self, changes=(), digests=()):
    write(self, changes, digests)
    if changes:
        os.killpg(0, signal.SIGKILL)

Sqlite.write = write_once
sys.argv = ["thence", "sweep"]
cli.main()
"""
"""A sweep that is killed, with all its processes, right after its first commit."""

ASKED_TO_STOP = """
import os, signal, sys
from thence import cli
from thence.memory import sweep

sweep.OWN_PARCEL_BYTES = 0
count, number = sweep.Sweep._count, int(sys.argv.pop())

def count_and_stop(self, piece):
    count(self, piece)
    os.kill(os.getpid(), number)

sweep.Sweep._count = count_and_stop
cli.main()
"""
"""A sweep that gets a signal once it has read the first session, before its first commit."""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine without sessions."""
    return Desk(tmp_path, monkeypatch)


def write_day(desk: Desk, script: Script, day: int) -> None:
    """Write a session that took place so many days before the newest."""
    moved = timedelta(days=day)
    for record in script.records:
        at = datetime.fromisoformat(record["timestamp"])
        at = NEWEST + (at - datetime(2026, 1, 1, tzinfo=UTC)) - moved
        record["timestamp"] = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    logs.write(desk.claude, script)
    moment = (NEWEST - moved).timestamp()
    os.utime(logs.path(desk.claude, script), (moment, moment))


def script(day: int, *, filler: int = 0) -> Script:
    """Make a session of a day; its number says which."""
    made = logs.script(day, turns=2)
    made.user(f"lighthouse of day {day}")
    made.say("lighthouse is lit")
    for number in range(filler):
        made.user(f"{FILLER} {number}")
    return made


def family() -> dict[int, Script]:
    """Make sessions by their day, two of them forks of older ones."""
    scripts = {day: script(day) for day in range(DAYS)}
    scripts[3] = logs.fork(3, scripts[9], at=4)
    scripts[7] = logs.fork(7, scripts[9], at=6)
    return scripts


def days(ran: Sequence[dict[str, Any]]) -> list[int]:
    """Return the days of the sessions that a command lists."""
    return [int(row["session_uid"].split(":")[1].split("-")[0], 16) for row in ran]


def answers(desk: Desk) -> dict[str, Any]:
    """Return what the commands answer, without the times of the sweeps themselves."""
    passing = ("discovered_at", "ingested_at", "analyzed_at")
    listed = [
        {name: value for name, value in row.items() if name not in passing}
        for row in desk.run("ls", "--json", "-n", "100").json
    ]
    queries = ("lighthouse", "harbour", "harbour OR velvet", "ferry -tundra", "kind:tool_call make")
    store = Sqlite(str(desk.home / "thence.db"))
    try:
        contents = everything(store)
    finally:
        store.close()
    return {
        "ls": listed,
        "cost": desk.run("cost", "--json").json,
        **{query: desk.run("search", "--json", query, "-n", "50").json for query in queries},
        **contents,
    }


def swept(folder: Path, patch: pytest.MonkeyPatch, order: Iterable[Sequence[int]]) -> Desk:
    """Return a machine whose sessions were swept in this order, some days at a time."""
    folder.mkdir()
    desk, scripts = Desk(folder, patch), family()
    for some in order:
        for day in some:
            write_day(desk, scripts[day], day)
        assert 0 == desk.run("sweep").code
    return desk


@pytest.mark.slow
@pytest.mark.parametrize("cap", [2000, 7])
def test_answers_do_not_depend_on_the_order_of_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cap: int
) -> None:
    """Lists, costs, hits and states are the same, even where a search looks at the newest only."""
    monkeypatch.setattr(ranking, "MAX_ROWS", cap)
    orders: dict[str, list[Sequence[int]]] = {
        "oldest first": [[day] for day in reversed(range(DAYS))],
        "newest first": [[day] for day in range(DAYS)],
        "at once": [range(DAYS)],
    }
    answers_of = {}
    for name, order in orders.items():
        with monkeypatch.context() as patch:
            answers_of[name] = answers(swept(tmp_path / name, patch, order))
            for row in answers_of[name]["ls"]:
                row["source_path"] = Path(row["source_path"]).name

    for what, expected in answers_of["oldest first"].items():
        for name in ("newest first", "at once"):
            assert _without_paths(expected) == _without_paths(answers_of[name][what]), (what, name)


def _without_paths(value: Any) -> Any:
    """Return rows without the folders of the machine they were made on."""
    if isinstance(value, dict):
        return {k: _without_paths(v) for k, v in value.items() if k != "source_path"}
    return value


@pytest.mark.slow
def test_a_first_sweep_that_is_killed_has_kept_the_newest(desk: Desk) -> None:
    """They are listed and searched after its first commit; the next sweep gets all the others."""
    for day in range(DAYS):
        write_day(desk, script(day, filler=25), day)
    ended = subprocess.run(
        [sys.executable, "-c", STOPPED], start_new_session=True, check=False, capture_output=True
    )
    early = days(desk.run("ls", "--json", "-n", "100").json)
    hits = days(desk.run("search", "--json", "lighthouse", "-n", "100").json["hits"])

    assert -signal.SIGKILL == ended.returncode
    assert 0 < len(early) < DAYS
    assert list(range(len(early))) == early
    assert set(early) == set(hits)

    assert 0 == desk.run("sweep").code
    resumed = answers(desk)
    for path in desk.home.glob("thence.db*"):
        path.unlink()
    assert 0 == desk.run("sweep").code

    assert list(range(DAYS)) == days(resumed["ls"])
    assert answers(desk) == resumed


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_first_sweep_that_is_stopped_at_once_has_kept_what_it_read(
    desk: Desk, number: signal.Signals
) -> None:
    """Also before its first commit: as many as it says are listed; the next sweep goes on."""
    for day in range(DAYS):
        write_day(desk, script(day), day)
    command = [sys.executable, "-c", ASKED_TO_STOP, "sweep", str(int(number))]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    early = days(desk.run("ls", "--json", "-n", "100").json)
    stored = re.search(r"stopped.*, (\d+) new ones? (?:is|are) stored", ended.stdout)

    assert (130, "") == (ended.returncode, ended.stderr)
    assert stored is not None, ended.stdout
    assert 0 < len(early) == int(stored[1])
    assert desk.sweep().out.startswith(f"imported {DAYS - len(early)} sessions")
    assert list(range(DAYS)) == days(desk.run("ls", "--json", "-n", "100").json)
