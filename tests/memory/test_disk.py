"""What a store asks of a disk: that it holds, and that we are alone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from thence.memory import disk


def test_many_files_are_synced_each_once_and_one_that_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Side by side; nobody goes on before all of them are done."""
    files = [tmp_path / f"{number}" for number in range(30)]
    handles = [os.open(path, os.O_WRONLY | os.O_CREAT) for path in files]
    synced: list[int] = []

    def sync(handle: int) -> None:
        synced.append(handle)
        if handle == handles[7]:
            raise OSError(5, "the disk refuses")

    try:
        monkeypatch.setattr("thence.system.sync_data", synced.append)
        disk.sync_data([])
        disk.sync_data(handles)

        assert sorted(handles) == sorted(synced)

        monkeypatch.setattr("thence.system.sync_data", sync)
        with pytest.raises(OSError, match="the disk refuses"):
            disk.sync_data(handles)
    finally:
        for handle in handles:
            os.close(handle)


def test_a_folder_that_is_removed_while_it_is_listed_is_left_out(tmp_path: Path) -> None:
    """A sweep removes its passing files while doctor looks: what else is there is listed."""
    for name in ("a/log", "sweep-1/parcel", "z/log"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    listed = []
    for path in disk.paths_below(tmp_path):
        listed.append(path.relative_to(tmp_path).as_posix())
        shutil.rmtree(tmp_path / "sweep-1", ignore_errors=True)

    assert ["a", "sweep-1", "z", "a/log", "z/log"] == listed


def test_a_folder_that_cannot_be_listed_is_no_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a proof that nothing is left would leave it out without a word."""

    def refuse(path: str) -> None:
        raise PermissionError(13, "no", path)

    monkeypatch.setattr("os.scandir", refuse)

    with pytest.raises(PermissionError):
        list(disk.paths_below(tmp_path))
