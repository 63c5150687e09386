"""What systems do differently, on this one; `make windows` runs it on the other."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from thence import system
from thence.errors import NotSupported

SOURCE = ROOT / "src" / "thence" / "system.py"


def test_a_lock_is_had_by_one_until_its_file_is_closed(tmp_path: Path) -> None:
    """The second is told no, at once; when the first lets go, it has it."""
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT, 0o600) for _ in range(2))
    try:
        had = (system.try_lock(first), system.try_lock(second))
        os.close(first)

        assert (True, False, True) == (*had, system.try_lock(second))
    finally:
        os.close(second)


def test_files_and_folders_are_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The very file is synced, and what the disk says of it is not kept silent."""
    file, synced = tmp_path / "file", []
    file.write_bytes(b"x")

    def note(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)

    monkeypatch.setattr("os.fsync", note)
    system.sync_file(file)
    system.sync_folder(tmp_path)

    assert [file.stat().st_ino, tmp_path.stat().st_ino] == synced
    with pytest.raises(FileNotFoundError):
        system.sync_file(tmp_path / "gone")


def test_a_file_is_opened_without_following_a_link_or_waiting_for_a_pipe(tmp_path: Path) -> None:
    """Where a link may be followed, it is; a pipe that nobody writes to keeps nobody waiting."""
    (tmp_path / "file").write_bytes(b"there")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    handles = [
        system.open_file(tmp_path / "file", os.O_RDONLY),
        system.open_file(tmp_path / "pipe", os.O_RDONLY),
        system.open_linked(tmp_path / "link", os.O_RDONLY),
    ]
    parts = [system.read_at(handle, 3, 2) for handle in (handles[0], handles[2])]
    for handle in handles:
        os.close(handle)

    assert [b"ere", b"ere"] == parts
    with pytest.raises(OSError, match="link"):
        system.open_file(tmp_path / "link", os.O_RDONLY)


def test_processes_that_run_are_told_from_those_that_ended() -> None:
    """Whoever started them; numbers that no process can have are none."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    assert [True, True, False, False] == [
        system.is_running(pid) for pid in (os.getpid(), 1, ended.pid, 1 << 80)
    ]


def test_what_is_not_made_for_windows_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """In plain words and with a way out; on other systems nothing is refused."""
    system.refuse_windows("the journal")
    monkeypatch.setattr(system, "IS_WINDOWS", True)

    with pytest.raises(NotSupported, match="the journal does not work on Windows") as refused:
        system.refuse_windows("the journal")
    assert "WSL" in (refused.value.hint or "")


def test_both_branches_offer_the_same_names() -> None:
    """A name that one system lacks would be an AttributeError there, in the middle of a sweep."""
    [branches] = [
        node
        for node in ast.parse(SOURCE.read_text()).body
        if isinstance(node, ast.If) and "win32" in ast.unparse(node.test)
    ]
    windows, others = map(_public_names, (branches.body, branches.orelse))

    assert windows == others
    assert {"open_file", "read_at", "try_lock", "sync_data"} <= windows


def _public_names(nodes: list[ast.stmt]) -> set[str]:
    names = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    names |= {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in ast.walk(node.targets[0])
        if isinstance(target, ast.Name)
    }
    return {name for name in names if not name.startswith("_")}


def test_everything_can_be_imported_on_macos() -> None:
    """It lacks two calls that Linux has."""
    code = (
        "import os, sys; del os.fdatasync, os.posix_fadvise; sys.platform = 'darwin'; "
        "import thence; thence.Journal; import thence.memory.sweep, thence.memory.packs"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )

    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_types_hold_on_other_systems_too(platform: str) -> None:
    """What does not run here is checked like the rest: no name is used that is not there."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--platform", platform, "--follow-imports=silent", SOURCE],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )

    assert "Success: no issues found in 1 source file" == done.stdout.strip()
