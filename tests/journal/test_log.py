"""The append-only file: what was acknowledged is there, whole, whatever the disk does."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import signal
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from thence.errors import NotAppendable, SessionBusy
from thence.journal.log import (
    UNSYNCED_LIMIT_BYTES,
    Disk,
    Durability,
    Log,
    SegmentSealed,
    _lock_request,
    make_folder,
)

FORK = multiprocessing.get_context("fork")


class Watched(Disk):
    """A disk that counts, and fails when it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.most = 1 << 40
        self.fail: dict[str, list[int]] = {}
        self.closed: list[int] = []
        self.guard = threading.Lock()

    def _note(self, what: str, detail: Any) -> None:
        with self.guard:
            self.calls.append((what, detail))
            due = self.fail.get(what)
            code = due.pop(0) if due else 0
        if code:
            raise OSError(code, os.strerror(code))

    def write(self, handle: int, data: bytes) -> int:  # type: ignore[override]
        """Write at most so many bytes."""
        self._note("write", bytes(data))
        return os.write(handle, data[: self.most])

    def datasync(self, handle: int) -> None:  # type: ignore[override]
        """Note the sync before it begins."""
        self._note("datasync", handle)

    def fsync(self, handle: int) -> None:  # type: ignore[override]
        """Note a sync of a file's or folder's entry."""
        self._note("fsync", handle)

    def close(self, handle: int) -> None:
        """Note which handles were let go."""
        self.closed.append(handle)
        os.close(handle)

    def count(self, what: str) -> int:
        """How often a call was made."""
        return sum(1 for name, _ in self.calls if name == what)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the log of a test is."""
    return tmp_path / "log.jsonl"


def test_a_line_is_one_write_with_its_lf(path: Path) -> None:
    """One buffer, one system call: a kill between two halves cannot be."""
    disk = Watched()
    with_lf = [b'{"n":%d}\n' % n for n in range(20)]
    log = Log(path, disk=disk)
    for line in with_lf:
        log.append(line)
    log.close()

    assert [("write", line) for line in with_lf] == [c for c in disk.calls if c[0] == "write"]
    assert b"".join(with_lf) == path.read_bytes()


def test_an_offset_is_where_the_line_stands(path: Path) -> None:
    """Offsets and line numbers hold, others' lines included."""
    ours, others = Log(path), Log(path)
    lines = [(log.append(b"%d\n" % n), b"%d\n" % n) for n in range(8, 12) for log in (ours, others)]
    data = path.read_bytes()

    assert [line for _, line in lines] == [data[at : at + len(line)] for at, line in lines]
    assert list(range(1, 9)) == [ours.line_at(at) for at, _ in lines]
    assert 1 == ours.line_at(0)


@pytest.mark.parametrize("most", [1, 2, 7, 30])
def test_a_short_write_is_finished(path: Path, most: int) -> None:
    """A disk that takes a few bytes at a time gets all of them, in order."""
    disk = Watched()
    disk.most = most
    log = Log(path, disk=disk)
    offsets = [log.append(b"a line of its own\n"), log.append(b"and one more\n")]
    log.close()

    assert b"a line of its own\nand one more\n" == path.read_bytes()
    assert [0, 18] == offsets


def test_a_short_write_that_another_writer_split_is_said_again(path: Path) -> None:
    """Halves with a stranger's line between them are no line; the whole one follows."""
    disk = Watched()
    log = Log(path, disk=disk)
    other = Log(path)
    plain = disk.write

    def split(handle: int, data: bytes) -> int:
        disk.write = plain  # type: ignore[method-assign]
        done = os.write(handle, data[:4])
        other.append(b"stranger\n")
        return done

    disk.write = split  # type: ignore[method-assign]
    offset = log.append(b"our line\n")

    assert b"our line\n" == path.read_bytes()[offset:]
    assert b"our line" in path.read_bytes().split(b"\n")


def test_a_failed_write_kills_the_handle_and_the_next_append_works(path: Path) -> None:
    """After ENOSPC in the middle of a line the file is opened anew, an LF comes first."""
    disk = Watched()
    log = Log(path, durability="none", disk=disk)
    log.append(b"first\n")
    disk.most = 3
    disk.fail["write"] = [0, errno.ENOSPC]
    with pytest.raises(NotAppendable) as caught:
        log.append(b"second\n")
    disk.most = 1 << 40
    log.append(b"third\n")

    assert b"first\nsec\nthird\n" == path.read_bytes()
    assert 1 == len(disk.closed)
    assert caught.value.hint


def test_a_failed_sync_is_never_asked_again_of_the_same_handle(path: Path) -> None:
    """The kernel may have dropped the pages: a new handle, the lines again, then a sync."""
    disk = Watched()
    log = Log(path, disk=disk)
    log.append(b"first\n")
    log.sync()
    log.append(b"second\n")
    log.append(b"third\n")
    disk.fail["datasync"] = [errno.EIO]
    bad = log._handle
    with pytest.raises(NotAppendable):
        log.sync()
    dead = disk.closed[-1]
    log.sync()

    assert b"first\n" + 2 * b"second\nthird\n" == path.read_bytes()
    assert bad == dead


def test_closing_after_a_failed_sync_writes_again_what_may_be_lost(path: Path) -> None:
    """A close is a sync: it does not pass over lines that the last one failed for."""
    disk = Watched()
    log = Log(path, disk=disk)
    log.append(b"line\n")
    disk.fail["datasync"] = [errno.EIO]
    with pytest.raises(NotAppendable):
        log.sync()
    log.close()

    assert b"line\nline\n" == path.read_bytes()
    assert "datasync" == disk.calls[-1][0]


def test_each_append_is_durable_when_it_returns(path: Path) -> None:
    """Eight threads: after each one's write a sync began and ended before its append returned."""
    disk = Watched()
    log = Log(path, durability="event", disk=disk)
    missing: list[bytes] = []

    def work(name: int) -> None:
        for n in range(40):
            line = b"%d %d\n" % (name, n)
            log.append(line)
            with disk.guard:
                wrote = disk.calls.index(("write", line))
                if not any(what == "datasync" for what, _ in disk.calls[wrote:]):
                    missing.append(line)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == missing
    assert 320 == len(set(path.read_bytes().splitlines()))
    assert [] == log._unsynced


def test_durability_none_never_syncs(path: Path) -> None:
    """Asked for or not: no file and no folder."""
    disk = Watched()
    log = Log(path, durability="none", disk=disk)
    for _ in range(50):
        log.append(b"x" * 1000 + b"\n")
    log.sync()
    log.close()

    assert 0 == disk.count("datasync") + disk.count("fsync")


def test_a_turn_syncs_when_it_ends(path: Path) -> None:
    """Records of a turn cost no sync; its end costs one, a second end none."""
    disk = Watched()
    log = Log(path, disk=disk)
    for _ in range(50):
        log.append(b"x\n")
    during = disk.count("datasync")
    log.sync()
    log.sync()

    assert (0, 1) == (during, disk.count("datasync"))


def test_memory_of_unsynced_lines_is_bounded(path: Path) -> None:
    """A turn without an end syncs by itself once so much would have to be kept."""
    disk = Watched()
    log = Log(path, disk=disk)
    for _ in range(5):
        log.append(b"x" * (UNSYNCED_LIMIT_BYTES // 4) + b"\n")

    assert 1 == disk.count("datasync")
    assert UNSYNCED_LIMIT_BYTES > log._unsynced_bytes


def test_a_new_file_is_durable_by_its_folder(path: Path) -> None:
    """File and folder are synced when the file is made, and not when it is opened again."""
    disk = Watched()
    log = Log(path, disk=disk)
    made = disk.count("fsync")
    log.append(b"line\n")
    log.close()
    Log(path, disk=disk).close()

    assert (2, 2) == (made, disk.count("fsync"))


def test_files_and_folders_are_the_owners_alone(tmp_path: Path) -> None:
    """Modes 0600 and 0700, made so and never changed to it."""
    folder = tmp_path / "a" / "b"
    make_folder(folder)
    Log(folder / "log.jsonl").close()

    assert 0o700 == stat.S_IMODE(folder.stat().st_mode)
    assert 0o700 == stat.S_IMODE(folder.parent.stat().st_mode)
    assert 0o600 == stat.S_IMODE((folder / "log.jsonl").stat().st_mode)


def test_a_symlink_is_refused(tmp_path: Path, path: Path) -> None:
    """Nobody redirects a log: the link's target keeps its bytes."""
    target = tmp_path / "precious"
    target.write_bytes(b"mine")
    path.symlink_to(target)
    with pytest.raises(NotAppendable):
        Log(path)

    assert b"mine" == target.read_bytes()


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_refused(path: Path, make: Callable[[Path], None]) -> None:
    """A folder or a pipe at the log's name is an error, not a wait."""
    make(path)
    with pytest.raises(NotAppendable):
        Log(path)


@pytest.mark.parametrize("durability", ["event", "turn", "none"])
def test_a_missing_last_lf_is_written_first(path: Path, durability: Durability) -> None:
    """What a crash cut short costs itself only."""
    path.write_bytes(b'{"whole":1}\n{"torn":')
    log = Log(path, durability=durability)
    offset = log.append(b'{"next":1}\n')

    assert b'{"whole":1}\n{"torn":\n{"next":1}\n' == path.read_bytes()
    assert 21 == offset


def test_a_line_glued_to_anothers_torn_one_is_said_again(path: Path) -> None:
    """Another writer dies in the middle of a line while we have the file open."""
    log = Log(path)
    log.append(b"one\n")
    with path.open("ab") as other:
        other.write(b'{"torn')
    offset = log.append(b"two\n")

    assert b'one\n{"torntwo\ntwo\n' == path.read_bytes()
    assert 14 == offset


def test_a_closed_log_stays_closed(path: Path) -> None:
    """Nothing is appended after close; closing twice is fine."""
    log = Log(path)
    log.close()
    log.close()
    with pytest.raises(NotAppendable):
        log.append(b"late\n")

    assert b"" == path.read_bytes()


def test_an_unknown_durability_is_refused(path: Path) -> None:
    """A slip of the pen does not become `none`."""
    with pytest.raises(NotAppendable):
        Log(path, durability="Event")  # type: ignore[arg-type]


def test_a_log_that_is_being_sealed_is_busy(path: Path) -> None:
    """Sealing holds the exclusive lock; writers hear of it at once."""
    path.write_bytes(b"")
    with path.open("ab") as sealing:
        fcntl.flock(sealing, fcntl.LOCK_EX)
        with pytest.raises(SessionBusy) as caught:
            Log(path)

    assert 11 == caught.value.exit_code


def test_a_forked_child_keeps_no_lock_of_its_parent(path: Path) -> None:
    """Once the parent is through, a child that never wrote does not stand in the way of sealing."""
    log = Log(path)
    out, into = os.pipe()
    born, says = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(into)
        os.write(says, b".")
        os.read(out, 1)  # lives on until its parent lets go
        os._exit(0)
    try:
        os.read(born, 1)
        log.close()
        with path.open("ab") as sealing:
            fcntl.flock(sealing, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(into)
        _, status = os.waitpid(child, 0)
        for end in (out, born, says):
            os.close(end)

    assert 0 == status


def test_a_forked_child_writes_through_a_handle_of_its_own(path: Path) -> None:
    """Parent and child go on appending; lines of both are whole."""
    log = Log(path)
    log.append(b"before\n")
    child = os.fork()
    if child == 0:
        for n in range(200):
            log.append(b"child %d\n" % n)
        log.sync()
        os._exit(0)
    for n in range(200):
        log.append(b"parent %d\n" % n)
    os.waitpid(child, 0)
    lines = path.read_bytes().splitlines()

    assert sorted(
        [b"before", *(b"%s %d" % (w, n) for w in (b"child", b"parent") for n in range(200))]
    ) == sorted(lines)


def _count_up(log_path: Path, counter: Path, times: int) -> None:
    log = Log(log_path, durability="none")
    for _ in range(times):
        with log.exclusive():
            counter.write_text(str(int(counter.read_text()) + 1))


@pytest.mark.slow
def test_the_exclusive_lock_keeps_processes_and_threads_apart(tmp_path: Path, path: Path) -> None:
    """Look, then append: nobody comes between, from another thread or another process."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    workers = [FORK.Process(target=_count_up, args=(path, counter, 100)) for _ in range(4)]
    for worker in workers:
        worker.start()
    _count_up(path, counter, 100)
    for worker in workers:
        worker.join()

    assert "500" == counter.read_text()


def _is_locked(path: Path) -> bool:
    """Whether a careful writer of another process would have to wait."""
    with path.open("r+b") as other:
        try:
            fcntl.fcntl(other, fcntl.F_OFD_SETLK, _lock_request(fcntl.F_WRLCK))
        except BlockingIOError:
            return True
    return False


def test_the_exclusive_lock_outlives_a_write_that_fails(path: Path) -> None:
    """The handle dies and is opened anew inside the block; nobody else gets in meanwhile."""
    disk = Watched()
    log = Log(path, disk=disk)
    with log.exclusive():
        disk.fail["write"] = [errno.ENOSPC]
        with pytest.raises(NotAppendable):
            log.append(b"lost\n")
        after_failing = _is_locked(path)
        log.append(b"said\n")
        after_going_on = _is_locked(path)

    assert (True, True, False) == (after_failing, after_going_on, _is_locked(path))
    assert b"said\n" == path.read_bytes()


def test_only_a_segment_minds_a_sealed_neighbour(path: Path) -> None:
    """A compressed copy that somebody put beside another file does not stop that file."""
    Path(f"{path}.zst").write_bytes(b"")
    Log(path).close()
    path.unlink()
    with pytest.raises(SegmentSealed):
        Log(path, begun=True)

    assert not path.exists()


def test_a_folder_of_another_process_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made between our look and our try; that ours cannot be synced is our matter only."""
    disk = Watched()
    disk.fail["fsync"] = [errno.EIO]
    made = tmp_path / "a"
    mkdir = Path.mkdir

    def outrun(self: Path, mode: int = 0o777) -> None:
        mkdir(self, mode)
        mkdir(self, mode)

    monkeypatch.setattr(Path, "mkdir", outrun)
    with pytest.raises(NotAppendable, match="cannot write to"):
        make_folder(made, disk=disk)

    assert made.is_dir()


def test_a_folder_for_what_needs_no_disk_is_not_synced(tmp_path: Path) -> None:
    """Without durability nobody waits for the disk."""
    disk = Watched()
    make_folder(tmp_path / "a" / "b", durable=False, disk=disk)

    assert (tmp_path / "a" / "b").is_dir()
    assert 0 == disk.count("fsync")


class SlowSync(Watched):
    """A disk whose syncs wait until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()

    def datasync(self, handle: int) -> None:  # type: ignore[override]
        """Say that a sync began, and wait."""
        super().datasync(handle)
        self.begun.release()
        self.go.wait()


def test_lines_that_come_during_a_sync_share_the_next(path: Path) -> None:
    """Nine threads, two syncs: the first serves one line, the second all that waited for it."""
    disk = SlowSync()
    log = Log(path, durability="event", disk=disk)
    threads = [threading.Thread(target=log.append, args=(b"%d\n" % n,)) for n in range(9)]
    threads[0].start()
    disk.begun.acquire()
    for thread in threads[1:]:
        thread.start()
    while len(log._waiting) < 8:
        time.sleep(0.001)
    disk.go.set()
    for thread in threads:
        thread.join()

    assert 2 == disk.count("datasync")
    assert 9 == log._durable
    assert ([], [], False) == (log._waiting, log._served, log._syncing)


def test_who_is_interrupted_while_waiting_leaves_the_queue(path: Path) -> None:
    """Ctrl-C in one thread: nobody waits for its turn to sync, which would never come."""
    disk = SlowSync()
    log = Log(path, durability="event", disk=disk)
    first = threading.Thread(target=log.append, args=(b"first\n",))
    first.start()
    disk.begun.acquire()
    main = threading.get_ident()

    def interrupt() -> None:
        while not log._waiting:
            time.sleep(0.001)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        log.append(b"interrupted\n")
    disk.go.set()
    first.join()
    log.append(b"last\n")

    assert b"first\ninterrupted\nlast\n" == path.read_bytes()
    assert 3 == log._durable
