"""Faults as a user meets them: damaged stores, folders that go away, clocks, modes, odd files."""

from __future__ import annotations

import json
import os
import random
import stat
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

from tests.cli.desk import ALERTS, WINDOWS, Desk, alerts, windows
from thence.memory.sqlite_schema import MIGRATIONS

READING = (("ls",), ("search", "lighthouse"), ("show", "7f3a91c2"), ("cost",), ("doctor", "--deep"))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine with sessions of two agents, not swept yet."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(windows(), alerts())
    desk.write_codex()
    return desk


def _zero_middle(body: bytearray) -> None:
    middle = len(body) // 2
    body[middle : middle + (64 << 10)] = bytes(min(64 << 10, len(body) - middle))


def _random_pages(body: bytearray) -> None:
    chance = random.Random(7)
    for _ in range(20):
        at = chance.randrange(1, len(body) // 4096) * 4096
        body[at : at + 4096] = chance.randbytes(4096)


DAMAGE: dict[str, Callable[[bytearray], None]] = {
    "64 kB of zeros": _zero_middle,
    "random pages": _random_pages,
    "cut in half": lambda body: body.__delitem__(slice(len(body) // 2, None)),
    "no header": lambda body: body.__setitem__(slice(0, 100), bytes(100)),
    "garbage behind": lambda body: body.extend(b"garbage" * 5000),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_store_is_an_error_with_what_to_do(
    desk: Desk, damage: Callable[[bytearray], None]
) -> None:
    """Each command works or ends with an error and a hint, never with a traceback."""
    desk.sweep()
    path = desk.home / "memory" / "thence.db"
    db = apsw.Connection(str(path))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    body = bytearray(path.read_bytes())
    damage(body)
    path.write_bytes(body)
    runs = {arguments: desk.run(*arguments) for arguments in (*READING, ("sweep",))}

    assert [] == [arguments for arguments, ran in runs.items() if "Traceback" in ran.err]
    failed = {a: ran for a, ran in runs.items() if ran.code not in (0, 3, 10) and a[0] != "doctor"}
    assert [] == [arguments for arguments, ran in failed.items() if "hint:" not in ran.err]
    assert all(ran.out or ran.err for ran in runs.values())


def test_a_folder_that_goes_away_and_comes_back_costs_nothing(desk: Desk) -> None:
    """As when a disk is not mounted: nothing is dropped, nothing is read twice."""
    desk.sweep()
    before = desk.run("ls", "--json").json
    desk.claude.rename(desk.user / "unmounted")
    away = desk.run("sweep", "--json").json
    without = desk.run("ls", "--json").json
    shown = desk.run("show", WINDOWS)
    (desk.user / "unmounted").rename(desk.claude)
    back = desk.run("sweep", "--json").json

    assert (0, 0, 0) == (away["evicted"], away["lost"], away["failed"])
    assert {row["session_uid"] for row in before} == {row["session_uid"] for row in without}
    assert (0, "") == (shown.code, shown.err)
    assert (0, 0) == (back["lines"], back["events"])
    assert before == desk.run("ls", "--json").json


def test_what_is_written_by_a_clock_that_was_set_back_is_read(desk: Desk) -> None:
    """A log grows with times of three days before, on its lines and on the file."""
    desk.sweep()
    [path] = desk.claude.rglob(f"{ALERTS}.jsonl")
    script = alerts()
    script.user("Was it the barometer after all?")
    then = datetime.now(UTC) - timedelta(days=3)
    record = {**script.records[-1], "timestamp": then.isoformat().replace("+00:00", "Z")}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    os.utime(path, (then.timestamp(), then.timestamp()))
    swept = desk.run("sweep", "--json").json
    result = desk.run("search", "barometer", "--json")

    assert (1, 0) == (swept["sessions_changed"], swept["failed"])
    assert (0, True) == (result.code, "barometer" in result.out)


@pytest.mark.parametrize("schema", range(1, len(MIGRATIONS)))
def test_a_store_of_an_older_schema_is_brought_up_to_date(desk: Desk, schema: int) -> None:
    """It is swept into and searched like one that was made today."""
    path = desk.home / "memory" / "thence.db"
    path.parent.mkdir(parents=True)
    db = apsw.Connection(str(path))
    db.execute("PRAGMA auto_vacuum=INCREMENTAL")
    for migration in MIGRATIONS[:schema]:
        db.execute(migration)
    db.execute(f"PRAGMA user_version={schema}")
    db.close()
    swept = desk.run("sweep", "--json").json
    result = desk.run("search", "lighthouse", "--json")
    db = apsw.Connection(str(path))
    [(version,)] = db.execute("PRAGMA user_version").fetchall()
    db.close()

    assert (3, 0) == (swept["sessions_new"], swept["failed"])
    assert "lighthouse" in result.out
    assert len(MIGRATIONS) == version


def test_nothing_that_commands_write_is_for_others(desk: Desk, tmp_path: Path) -> None:
    """Whatever the umask says: folders are 0700 and files 0600."""
    before = os.umask(0)
    try:
        desk.sweep()
        (out := tmp_path / "out").mkdir(mode=0o700)
        for arguments in (
            ("backup", str(out / "saved.db")),
            ("export", WINDOWS, "--as", "jsonl", "-o", str(out / "one.jsonl")),
            ("copy", f"{desk.home}/memory/thence.db", f"{desk.home}/memory/two.db"),
            ("keep", WINDOWS),
            ("forget", ALERTS, "--yes"),
            ("doctor", "--deep", "--mend"),
        ):
            desk.run(*arguments)
    finally:
        os.umask(before)
    written = [path for place in (desk.home, out) for path in place.rglob("*")]
    wrong = [
        (path.name, oct(mode))
        for path in written
        if (mode := stat.S_IMODE(path.lstat().st_mode)) != (0o700 if path.is_dir() else 0o600)
    ]

    assert len(written) > 8
    assert [] == wrong


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes and devices in folders")
def test_odd_files_in_agents_folders_hold_nothing_up(desk: Desk) -> None:
    """Pipes, links to devices, loops and folders named like logs: all others are kept."""
    [project] = (desk.claude / "projects").iterdir()
    day = next(desk.codex.rglob("rollout-*.jsonl")).parent
    thread = "rollout-2026-01-01T00-00-00-01a00000-0000-7000-8000-00000000000{}.jsonl"
    for folder, name in ((project, "0000000{}-0000-4000-8000-000000000009.jsonl"), (day, thread)):
        paths = [folder / name.format(number) for number in range(4)]
        os.mkfifo(paths[0])
        paths[1].symlink_to("/dev/zero")
        paths[2].symlink_to(paths[2])
        paths[3].mkdir()
    swept = desk.run("sweep", "--json")
    listed = desk.run("ls", "--json").json

    assert (0, "") == (swept.code, swept.err)
    assert 3 == swept.json["sessions_new"] == len(listed)
    assert 0 == swept.json["failed"]
