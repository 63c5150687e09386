"""Signals: what was recorded is on the disk before the previous handler runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from thence.errors import ThenceError
from thence.journal import Journal, Session
from thence.journal.log import Disk
from thence.journal.signals import flush_on_signals

ROOT = Path(__file__).resolve().parent.parent.parent


class Watched(Disk):
    """A disk that notes what was synced, by inode."""

    def __init__(self, fails: bool = False) -> None:
        self.synced: list[int] = []
        self.fails = fails

    def datasync(self, handle: int) -> None:  # type: ignore[override]
        """Note it, then do it or fail."""
        if self.fails:
            raise OSError(5, "the disk is gone")
        self.synced.append(os.fstat(handle).st_ino)
        Disk.datasync(handle)


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """Signals that reached the handler which was there first."""
    out: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: out.append(number))
    yield out
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A session with something said in it."""
    with Journal(tmp_path).create() as made:
        made.record("user", {"role": "user", "content": "hello"})
        yield made


def inode(path: Path | None) -> int:
    """What a name leads to."""
    assert path is not None
    return path.stat().st_ino


def lines(path: Path | None) -> list[dict[str, Any]]:
    """The events of a file."""
    assert path is not None
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_sessions_and_sidechains_are_synced_before_the_handler_that_was_there(
    session: Session, heard: list[int]
) -> None:
    """The previous handler finds everything on the disk, the child's file first."""
    disk = Watched()
    synced: list[list[int]] = []

    def first(number: int, _: object) -> None:
        synced.append(list(disk.synced))
        heard.append(number)

    signal.signal(signal.SIGTERM, first)
    side = session.sidechain("reviewer")
    undo = flush_on_signals(session, disk=disk)
    signal.raise_signal(signal.SIGTERM)
    undo()
    side.finish("done")

    assert [[inode(side.path), inode(session.transcript_path)]] == synced
    assert [signal.SIGTERM] == heard


def test_the_turn_is_ended_as_interrupted(session: Session, heard: list[int]) -> None:
    """A list of sessions can tell from the last bytes how far this one came."""
    undo = flush_on_signals([session])
    signal.raise_signal(signal.SIGTERM)
    undo()
    last = lines(session.transcript_path)[-1]

    assert ("turn", "interrupted") == (last["type"], last["payload"]["state"])
    assert session.transcript_flushed


def test_a_journal_is_watched_as_it_is_when_the_signal_comes(
    tmp_path: Path, heard: list[int]
) -> None:
    """Sessions opened later count, closed ones do not."""
    journal, disk = Journal(tmp_path), Watched()
    undo = flush_on_signals(journal, disk=disk)
    early, late = journal.create(), journal.create()
    early.close()
    signal.raise_signal(signal.SIGTERM)
    undo()
    late.close()

    assert [inode(late.transcript_path)] == disk.synced


def test_undo_puts_the_handlers_back(session: Session, heard: list[int]) -> None:
    """Afterwards nothing of ours runs."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    disk = Watched()
    flush_on_signals(session, disk=disk)()
    signal.raise_signal(signal.SIGTERM)

    assert before == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    assert ([signal.SIGTERM], []) == (heard, disk.synced)


def test_undo_leaves_a_handler_that_came_later(session: Session, heard: list[int]) -> None:
    """Somebody who chained to us still reaches who was there before us."""
    disk = Watched()
    undo = flush_on_signals(session, signals=[signal.SIGTERM], disk=disk)
    ours = signal.getsignal(signal.SIGTERM)
    assert callable(ours)

    def later(number: int, frame: Any) -> None:
        ours(number, frame)

    signal.signal(signal.SIGTERM, later)
    undo()
    signal.raise_signal(signal.SIGTERM)

    assert later == signal.getsignal(signal.SIGTERM)
    assert ([signal.SIGTERM], []) == (heard, disk.synced)


def test_an_interrupt_is_still_a_keyboard_interrupt(session: Session) -> None:
    """Python's own handler for SIGINT is chained like any other."""
    undo = flush_on_signals(session)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        undo()

    assert session.transcript_flushed


def test_an_ignored_signal_stays_ignored(session: Session, heard: list[int]) -> None:
    """A program that was told to ignore a signal goes on doing so."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    undo = flush_on_signals(session, signals=[signal.SIGTERM])

    assert signal.SIG_IGN == signal.getsignal(signal.SIGTERM)

    undo()


def test_a_signal_that_cannot_be_handled_leaves_the_others_as_they_were(
    session: Session, heard: list[int]
) -> None:
    """All of them or none."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(OSError, match="Invalid argument"):
        flush_on_signals(session, signals=[signal.SIGTERM, signal.SIGKILL])

    assert before == signal.getsignal(signal.SIGTERM)


def test_a_failing_disk_keeps_nobody_from_ending(session: Session, heard: list[int]) -> None:
    """The previous handler runs whatever happens here."""
    undo = flush_on_signals(session, disk=Watched(fails=True))
    signal.raise_signal(signal.SIGTERM)
    undo()

    assert [signal.SIGTERM] == heard


def test_whatever_goes_wrong_here_the_handler_that_was_there_is_called(
    tmp_path: Path, heard: list[int]
) -> None:
    """Even an error that nobody thought of does not keep the process from ending."""

    class Broken(Journal):
        @property
        def open_sessions(self) -> list[Session]:
            raise MemoryError

    undo = flush_on_signals(Broken(tmp_path))
    with pytest.raises(MemoryError):
        signal.raise_signal(signal.SIGTERM)
    undo()

    assert [signal.SIGTERM] == heard


def test_a_session_opened_in_the_same_moment_spoils_nothing(
    tmp_path: Path, heard: list[int]
) -> None:
    """The list of sessions may change while the handler looks at it; it looks again."""
    journal, disk = Journal(tmp_path), Watched()
    session = journal.create()
    looks: list[int] = []

    class Busy(Journal):
        @property
        def open_sessions(self) -> list[Session]:
            looks.append(1)
            if len(looks) < 3:
                raise RuntimeError("Set changed size during iteration")
            return journal.open_sessions

    undo = flush_on_signals(Busy(tmp_path), disk=disk)
    signal.raise_signal(signal.SIGTERM)
    undo()
    session.close()

    assert [inode(session.transcript_path)] == disk.synced


def test_a_lock_that_the_interrupted_code_holds_does_not_hang_it(
    session: Session, heard: list[int]
) -> None:
    """The handler may interrupt a record: the file is synced, the turn ends later."""
    disk = Watched()
    undo = flush_on_signals(session, wait=0.01, disk=disk)
    log = session._log
    assert log is not None
    with session._mutex, log._mutex:
        signal.raise_signal(signal.SIGTERM)
    undo()
    session.flush()

    assert [inode(session.transcript_path)] == disk.synced
    assert [signal.SIGTERM] == heard


def test_a_second_signal_during_the_flush_goes_straight_on(
    session: Session, heard: list[int]
) -> None:
    """Whoever is impatient is not made to wait."""

    class Again(Watched):
        def datasync(self, handle: int) -> None:  # type: ignore[override]
            super().datasync(handle)
            signal.raise_signal(signal.SIGTERM)

    disk = Again()
    undo = flush_on_signals(session, disk=disk)
    signal.raise_signal(signal.SIGTERM)
    undo()

    assert [signal.SIGTERM] * 2 == heard
    assert 1 == len(disk.synced)


@pytest.mark.parametrize("call", [flush_on_signals, lambda _: flush_on_signals([])])
def test_only_the_main_thread_may_ask(session: Session, call: Callable[[Any], object]) -> None:
    """Python allows no other; the error says so in our words."""
    errors: list[ThenceError] = []

    def elsewhere() -> None:
        try:
            call(session)
        except ThenceError as error:
            errors.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()

    assert "main thread" in errors[0].message
    assert errors[0].hint


def test_a_terminated_process_dies_of_the_signal_with_its_turn_written(tmp_path: Path) -> None:
    """The exit status is that of the signal, and the log tells of the interruption."""
    program = """
        import sys, time
        from thence.journal import Journal
        journal = Journal(sys.argv[1])
        session = journal.create()
        journal.flush_on_signals()
        session.record("user", {"role": "user", "content": "hello"})
        print("ready", flush=True)
        while True:
            time.sleep(60)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with child:
        assert child.stdout is not None
        assert "ready\n" == child.stdout.readline()
        child.terminate()
    listed = Journal(tmp_path).sessions()[0]

    assert -signal.SIGTERM == child.returncode
    assert ["header", "user", "turn"] == [line["type"] for line in lines(listed.path)]


def test_a_forked_child_leaves_its_parents_sessions_alone(
    session: Session, heard: list[int]
) -> None:
    """A signal to the child writes nothing into a log of the parent."""
    disk = Watched()
    undo = flush_on_signals(session, disk=disk)
    child = os.fork()
    if child == 0:
        signal.raise_signal(signal.SIGTERM)
        os._exit(10 + len(heard) + len(disk.synced))
    _, status = os.waitpid(child, 0)
    undo()

    assert 11 == os.waitstatus_to_exitcode(status)
    assert "user" == lines(session.transcript_path)[-1]["type"]
