"""Watching: what is written is told, soon, until it is told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agents.transcripts import Script, write
from thence.agents import adapters
from thence.agents.profiles import file_endings
from thence.memory import watching

LONG = 60.0


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look more often than once in two seconds for what is to be told."""
    monkeypatch.setattr(watching, "LOOK_MS", 50)


@pytest.mark.parametrize("has_events", [True, False])
@pytest.mark.parametrize("name", ["a.jsonl", *file_endings()])
def test_a_file_that_grows_is_told_until_it_is_stopped(
    has_events: bool, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the system, or by looking where the system does not tell; also one named by its agent."""
    if not has_events:
        monkeypatch.setitem(__import__("sys").modules, "watchfiles", None)
        monkeypatch.setattr(watching, "POLL_S", 0.02)
    folder, queue = tmp_path / "logs", tmp_path / "queue"
    folder.mkdir()
    path, stop = folder / name, threading.Event()
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


@pytest.mark.parametrize("has_events", [True, False])
def test_the_store_of_who_sweeps_is_not_told(
    has_events: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lies among the agents' folders, and each sweep would bring the next one about."""
    if not has_events:
        monkeypatch.setitem(__import__("sys").modules, "watchfiles", None)
        monkeypatch.setattr(watching, "POLL_S", 0.02)
    store = tmp_path / "memory" / "thence.db"
    store.parent.mkdir()
    batches = watching.changes([tmp_path], tmp_path / "queue", store=store)
    (tmp_path / "memory" / "thence.db-wal").write_bytes(b"x")
    store.write_bytes(b"x")
    (tmp_path / "a.jsonl").write_text("{}\n", encoding="utf-8")

    assert {tmp_path / "a.jsonl"} == next(batches)


@pytest.mark.parametrize("has_events", [True, False])
def test_what_was_written_before_anybody_listened_is_told(
    has_events: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since it was called, that is: who sweeps in between misses nothing. And what was before, not.

    Nudges are no files of sessions: that there is one is told, by an empty set.
    """
    if not has_events:
        monkeypatch.setitem(__import__("sys").modules, "watchfiles", None)
        monkeypatch.setattr(watching, "POLL_S", 0.02)
    folder, queue = tmp_path / "logs", tmp_path / "queue"
    folder.mkdir()
    (folder / "old.jsonl").write_text("{}\n", encoding="utf-8")
    (folder / "grows.jsonl").write_text("{}\n", encoding="utf-8")
    nudged = watching.changes([folder], queue)
    (queue / "one.json").write_text("{}", encoding="utf-8")

    assert set() == next(nudged)

    batches = watching.changes([folder], queue)
    (folder / "grows.jsonl").write_text("{}\n{}\n", encoding="utf-8")
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "new.jsonl").write_text("{}\n", encoding="utf-8")
    (folder / "note.txt").write_text("x", encoding="utf-8")

    assert {folder / "grows.jsonl", folder / "deep" / "er" / "new.jsonl"} == next(batches)


def _gathered(folder: Path, queue: Path, wanted: set[Path], act: Callable[[], object]) -> set[Path]:
    """What is told once the system is listened to and something was done."""
    stop, begun = threading.Event(), folder / "begun.jsonl"
    batches = watching.changes([folder], queue, gather_ms=50, step_ms=10, stop=stop)
    begun.write_text("{}\n", encoding="utf-8")
    assert {begun} == next(batches)
    act()
    seen: set[Path] = set()
    timer = threading.Timer(LONG, stop.set)
    timer.start()
    while not wanted <= seen and not stop.is_set():
        seen |= next(batches, set())
    timer.cancel()
    return seen


def test_files_of_a_new_folder_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system tells of the folder; what was written there before it listened it does not."""
    monkeypatch.setattr(watching, "RESCAN_S", 10 * LONG)
    folder, queue, aside = tmp_path / "logs", tmp_path / "queue", tmp_path / "aside"
    folder.mkdir()
    (aside / "deep").mkdir(parents=True)
    (aside / "deep" / "a.jsonl").write_text("{}\n", encoding="utf-8")
    moved = folder / "moved" / "deep" / "a.jsonl"

    assert {moved} == _gathered(folder, queue, {moved}, lambda: aside.rename(folder / "moved"))


def test_a_folder_may_be_made_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent used for the first time: its folder is watched like those that were there."""
    monkeypatch.setattr(watching, "RESCAN_S", 10 * LONG)
    here, later, queue = tmp_path / "here", tmp_path / "later", tmp_path / "queue"
    here.mkdir()
    path, stop = later / "a.jsonl", threading.Event()
    batches = watching.changes([here, later], queue, gather_ms=50, step_ms=10, stop=stop)
    (here / "begun.jsonl").write_text("{}\n", encoding="utf-8")
    assert {here / "begun.jsonl"} == next(batches)
    timer = threading.Timer(LONG, stop.set)
    timer.start()
    for text in ("{}\n", "{}\n{}\n"):
        later.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

        assert {path} == next(batches)
    timer.cancel()


def test_what_the_system_did_not_tell_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its queue may be full; every so often files are looked at."""
    watchfiles = pytest.importorskip("watchfiles")
    monkeypatch.setattr(watching, "RESCAN_S", 0.05)

    def deaf(*_folders: object, **_options: object) -> Iterator[set[object]]:
        while True:
            time.sleep(0.01)
            yield set()

    monkeypatch.setattr(watchfiles, "watch", deaf)
    folder, queue = tmp_path / "logs", tmp_path / "queue"
    folder.mkdir()
    path = folder / "a.jsonl"

    def grows() -> None:
        path.write_text("{}\n", encoding="utf-8")

    assert {path} == _gathered(folder, queue, {path}, grows)


def test_only_the_sessions_of_the_files_are_found(tmp_path: Path) -> None:
    """A reader narrowed to what changed finds that and nothing else; all else it does as before."""
    first, second = (Script(f"{n}" * 8 + "-0000-4000-8000-000000000001", n) for n in "ab")
    for script in (first, second):
        script.user("hello")
    folder = write(tmp_path, first, second)
    known = adapters()
    path = folder / f"{first.session}.jsonl"

    readers, roots = watching.narrow_to(known, {"claude": [tmp_path]}, [path, tmp_path / "no.txt"])

    assert {"claude": [tmp_path]} == roots
    assert [first.session] == [source.session for source in readers["claude"].find(tmp_path)]
    assert 2 == len(list(known["claude"].find(tmp_path)))
    assert readers["claude"].at(path) == known["claude"].at(path)
    assert readers["codex"] is known["codex"]


def test_a_write_ahead_log_leads_to_all_sessions_of_its_database(tmp_path: Path) -> None:
    """The client writes there first; which of them changed their versions tell."""
    from tests.agents import test_opencode
    from thence.agents.opencode.reader import OpenCode

    test_opencode.write(tmp_path)
    known = {"opencode": OpenCode()}
    changed = [tmp_path / "opencode.db-wal", tmp_path / "opencode.db"]
    readers, _ = watching.narrow_to(known, {"opencode": [tmp_path]}, changed)

    assert list(known["opencode"].find(tmp_path)) == list(readers["opencode"].find(tmp_path))
    assert all(str(path).endswith(watching.SUFFIXES) for path in changed)


def test_the_owner_of_a_folder_is_asked_first_what_a_file_is(tmp_path: Path) -> None:
    """Other readers may have to look into it, for every line that is written."""
    script = Script("0000000a-0000-4000-8000-000000000000", "w-")
    script.user("hello")
    path = write(tmp_path / "claude", script) / f"{script.session}.jsonl"
    claude = adapters()["claude"]
    asked: list[Path] = []

    class Curious(watching.NarrowedReader):
        def at(self, path: Path) -> None:
            asked.append(path)

    known = {"thence": Curious(claude, ()), "claude": claude}
    roots = {"thence": [tmp_path / "thence"], "claude": [tmp_path / "claude"]}
    readers, _ = watching.narrow_to(known, roots, [path])

    assert [] == asked
    assert ["claude"] == [name for name, reader in readers.items() if reader is not known[name]]
