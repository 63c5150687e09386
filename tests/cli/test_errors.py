"""What goes wrong: one line what, one line what to do, the right exit code, nothing lost."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import apsw
import click
import pytest

from tests.cli.desk import ALERTS, WINDOWS, Desk, Ran, alerts, windows
from thence.cli import COMMANDS, thence

ENTRY = [sys.executable, "-c", "from thence.cli import main; main()"]
READING: tuple[list[str], ...] = (
    *([], ["ls"], ["show", "7f3a"], ["tree", "7f3a"], ["search", "clock"], ["cost"], ["todos"]),
    *(["digest", "7f3a"], ["signals"], ["patterns"], ["history"], ["files", "windows.py"]),
    *(["inspect", "7f3a"], ["export", "7f3a"], ["config"]),
)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine with two sessions, swept."""
    desk = Desk(tmp_path, monkeypatch)
    desk.write_claude(windows(), alerts())
    desk.sweep()
    return desk


def is_told(ran: Ran, code: int, *words: str) -> None:
    """An error in two lines and its code."""
    lines = ran.err.splitlines()

    assert code == ran.code, ran
    assert ["error: ", "hint:  "] == [line[:7] for line in lines]
    assert [] == [word for word in words if word not in ran.err]


@pytest.fixture
def unwritable(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A home where SQLite can make none of its files, as on a full or read-only disk."""
    monkeypatch.setattr("thence.memory.sqlite_file.BUSY_MS", 50)
    (desk.home / "memory" / "thence.db-shm").mkdir()
    return desk


@pytest.mark.few(4)
@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_what_is_kept_can_be_read_where_nothing_can_be_written(
    unwritable: Desk, arguments: list[str]
) -> None:
    """A full disk or a read-only home keeps nobody from looking."""
    ran = unwritable.run(*arguments)

    assert (0, "") == (ran.code, ran.err)
    assert ran.out


@pytest.mark.parametrize("arguments", [["keep", "7f3a"], ["evict", "7f3a", "--yes"]], ids=" ".join)
def test_what_cannot_be_written_is_said(unwritable: Desk, arguments: list[str]) -> None:
    """Not a word of SQLite's alone, and what was kept is still there."""
    is_told(unwritable.run(*arguments), 1, "cannot write to the store")
    (unwritable.home / "memory" / "thence.db-shm").rmdir()

    assert 2 == len(unwritable.run("ls", "--json").json)


class SleeplessFiles(apsw.VFS):
    """The files of this machine for SQLite, which does not wait ten seconds for one of them."""

    def __init__(self) -> None:
        super().__init__("sleepless", "", makedefault=True)

    def xSleep(self, microseconds: int) -> int:  # noqa: N802
        """Say that so much time went by."""
        return microseconds


def test_rows_that_only_the_log_holds_are_not_passed_over(unwritable: Desk) -> None:
    """With a log beside the file it is not read without it: that would show less than there is."""
    (unwritable.home / "memory" / "thence.db-wal").write_bytes(b"x" * 4096)
    files = SleeplessFiles()
    ran = unwritable.run("ls")
    files.unregister()

    is_told(ran, 1, "cannot open the store")


def test_what_a_full_disk_refused_is_a_failure_and_no_mistake_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first sweep that found no room leaves an empty file: who looks is told of the disk.

    A file that is no store was named by somebody; that is a usage error.
    """
    desk = Desk(tmp_path, monkeypatch)
    store = desk.home / "memory" / "thence.db"
    store.parent.mkdir(parents=True)
    store.touch()
    refused = [store.with_name(f"thence.db-{name}") for name in ("wal", "shm", "journal")]
    for path in refused:
        path.mkdir()
    for arguments in (["ls"], ["search", "clock"], ["sweep"]):
        is_told(desk.run(*arguments), 1, "cannot open the store", "free space")
    for path in refused:
        path.rmdir()
    store.write_bytes(b"no database, for sure" * 100)

    is_told(desk.run("ls"), 2, "cannot open the store", "check the file")


def test_a_store_that_is_locked_is_busy(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody holds it and does not let go: exit code 11, and to try again."""
    monkeypatch.setattr("thence.memory.sqlite_file.BUSY_MS", 50)
    other = apsw.Connection(str(desk.home / "memory" / "thence.db"))
    list(other.execute("PRAGMA locking_mode=EXCLUSIVE"))
    other.execute("BEGIN EXCLUSIVE")
    is_told(desk.run("ls"), 11, "another process", "try again")
    other.close()


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 20_000, 120_000])
def test_a_disk_that_fills_up_while_sweeping_loses_nothing(desk: Desk, limit: int) -> None:
    """It ends in words at whatever byte; the next sweep keeps everything."""
    desk.write_claude(*(alerts(f"{n:08}-0000-4000-8000-000000000000") for n in range(30)))
    done = subprocess.run(
        [*ENTRY, "sweep"],
        env=os.environ | {"HOME": str(desk.user)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )

    assert "Traceback" not in done.stderr
    assert done.returncode in (1, 3), done
    assert "error: " in done.stderr or "not read" in done.stdout, done
    assert 0 == desk.run("sweep").code
    assert 32 == len(desk.run("ls", "--json", "-n", "99").json)
    assert 0 == desk.run("doctor", "--deep").code


# -- what was typed ---------------------------------------------------------------------------


@pytest.mark.few(3)
@pytest.mark.parametrize("command", ["show", "tree", "digest", "export", "inspect", "keep"])
def test_ids_are_cut_and_must_mean_one(desk: Desk, command: str) -> None:
    """Everywhere alike: what is unknown and what means several is not found."""
    twins = [f"7f3a91c2-0000-4000-8000-00000000000{n}" for n in (7, 8)]
    desk.write_claude(*(alerts(name) for name in twins))
    desk.sweep()

    is_told(desk.run(command, "nobody"), 10, "no session id starts with", "thence ls")
    is_told(
        desk.run(command, "7f3a"),
        10,
        "is ambiguous",
        "7f3a91c2 (lumen)",
        "more characters of the id",
    )
    assert 0 == desk.run(command, ALERTS[:6]).code


def test_an_id_that_was_mistyped_is_guessed(desk: Desk) -> None:
    """The hint names the session that begins most like it; what is like none leads to the list."""
    for wanted in (f"{ALERTS[:6]}x", f"claude:{ALERTS[:6]}x", f"{ALERTS[:-1]}x"):
        is_told(desk.run("show", wanted), 10, "no session id starts", f"near: {ALERTS[:8]}  Alerts")
    for wanted in ("zz", f"{ALERTS[:1]}z", "claude:zzzz", "zzzz" * 30):
        is_told(desk.run("show", wanted), 10, "no session id starts", "thence ls")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_can_be_asked_for_json(command: str) -> None:
    """Those below a command too; what serves agents and editors speaks nothing else."""
    group = thence.get_command(click.Context(thence), command)
    assert group is not None
    below = [*group.commands.values()] if isinstance(group, click.Group) else []
    does = command not in ("acp", "mcp") and (group.params or not below)
    for subcommand in [*([group] if does else []), *below]:
        assert "--json" in [name for option in subcommand.params for name in option.opts], (
            subcommand.name
        )


def test_without_a_store_an_id_leads_to_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new user is told what to do first, not that there is no such file."""
    desk = Desk(tmp_path, monkeypatch)

    is_told(desk.run("show", "7f3a"), 10, "no sessions stored yet", "thence sweep")


def test_an_evicted_files_counts_are_not_there(desk: Desk) -> None:
    """`inspect ID` counts the file; without it, it says what there is instead."""
    for path in desk.claude.rglob(f"{WINDOWS}.jsonl"):
        path.unlink()
    desk.sweep()

    is_told(desk.run("inspect", "7f3a"), 1, "is gone", "thence show 7f3a")


def test_programs_get_errors_as_objects(desk: Desk) -> None:
    """With `--json` what was typed wrong is told like everything else."""
    for arguments in (["show", "nobody", "--json"], ["ls", "--json", "--nonsense"]):
        ran = desk.run(*arguments)
        answer = json.loads(ran.err)

        assert {"error", "hint"} == set(answer)
        assert "" == ran.out
