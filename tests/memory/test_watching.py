"""Watching: what is written is told, soon, until it is told to stop."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.adapters.transcripts import Script, write
from thence.adapters import adapters
from thence.memory import watching

LONG = 60.0


@pytest.mark.parametrize("told", [True, False])
def test_a_file_that_grows_is_told_until_it_is_stopped(
    told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the system, or by looking where the system does not tell."""
    if not told:
        monkeypatch.setitem(__import__("sys").modules, "watchfiles", None)
        monkeypatch.setattr(watching, "POLL", 0.02)
    folder, queue = tmp_path / "logs", tmp_path / "queue"
    folder.mkdir()
    path, stop = folder / "a.jsonl", threading.Event()
    seen: list[set[Path]] = []

    def watch() -> None:
        for paths in watching.changes([folder], queue, gather_ms=50, step_ms=10, stop=stop):
            seen.append(paths)
            stop.set()

    thread = threading.Thread(target=watch)
    thread.start()
    until = time.monotonic() + LONG
    while not seen and time.monotonic() < until:
        with path.open("a", encoding="utf-8") as file:
            file.write("{}\n")
        (folder / "note.txt").write_text("x", encoding="utf-8")
        time.sleep(0.05)
    thread.join(LONG)

    assert not thread.is_alive()
    assert {path} == seen[0]


def test_only_the_sessions_of_the_files_are_found(tmp_path: Path) -> None:
    """A reader narrowed to what changed finds that and nothing else; all else it does as before."""
    one, two = (Script(f"{n}" * 8 + "-0000-4000-8000-000000000001", n) for n in "ab")
    for script in (one, two):
        script.user("hello")
    folder = write(tmp_path, one, two)
    known = adapters()
    path = folder / f"{one.session}.jsonl"

    readers, roots = watching.narrowed(known, {"claude": [tmp_path]}, [path, tmp_path / "no.txt"])

    assert {"claude": [tmp_path]} == roots
    assert [one.session] == [source.session for source in readers["claude"].find(tmp_path)]
    assert 2 == len(list(known["claude"].find(tmp_path)))
    assert readers["claude"].at(path) == known["claude"].at(path)
    assert readers["codex"] is known["codex"]
