"""A disk that is full for real: writes that stop half-way, errors that say so, and room again."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.warm import Warm
from thence.errors import NotAppendable
from thence.format import codec
from thence.journal import Journal, Session
from thence.journal.log import Disk, Log, make_folder
from thence.testing import SAMPLE_SESSION, JournalSubject

LINE_BYTES = 3000


def fill_disk(root: str, log_path: str, limit: int) -> None:
    """Record until no more fits below the limit, make room, go on. Runs in a child."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    session = Journal(root).create(session=SAMPLE_SESSION)
    session.flush()
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    for number in range(1000):
        try:
            uuid = _record(session, number)
        except NotAppendable as error:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            os.write(log, b"full %s\n" % error.message.encode())
            break
        os.write(log, b"%s\n" % uuid.encode())
    os.write(log, b"%s\n" % _record(session, -1).encode())
    session.close()


def _record(session: Session, number: int) -> str:
    message = {"role": "user", "content": f"{number} " + "x" * LINE_BYTES}
    return session.record("user", message).uuid


@pytest.mark.few(4)
@pytest.mark.parametrize("limit", [LINE_BYTES, 10_000, 20_001, 50_000])
def test_a_line_that_fits_half_is_an_error_and_costs_itself_only(
    limit: int, tmp_path: Path, warm: Warm
) -> None:
    """A real short write: the error is clear, and after room was made the same session goes on."""
    log = tmp_path / "told"
    log.touch()
    exit_code = warm.start(fill_disk, str(tmp_path), str(log), limit).wait()
    lines = log.read_text().splitlines()
    full = [line for line in lines if line.startswith("full")]
    promised = [line for line in lines if not line.startswith("full")]
    data = JournalSubject().file(tmp_path).read_bytes()
    decoded = codec.decode(data)
    read = dict.fromkeys(event.uuid for event in decoded.events if event.type == "user")

    assert 0 == exit_code
    assert ["full cannot write to"] == [line[:20] for line in full]
    assert "File too large" in full[0]
    assert promised == list(read)
    assert len(decoded.skipped) == 1
    assert data[:limit].rpartition(b"\n")[2][:20] in data


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB, or skip."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if (
        sys.platform != "linux"
        or subprocess.run(mount, check=False, capture_output=True).returncode
    ):
        pytest.skip("may not mount a small disk here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_is_an_error_until_there_is_room(small: Path) -> None:
    """Nothing is lost, everything can be read while it is full, and then the session goes on."""
    ballast = small / "ballast"
    ballast.write_bytes(b"x" * (64 << 10))
    session = Journal(small).create(session=SAMPLE_SESSION)
    promised: list[str] = []
    with pytest.raises(NotAppendable, match="No space left") as error:
        promised.extend(_record(session, number) for number in range(1000))
    with pytest.raises(NotAppendable):
        _record(session, -1)
    file = JournalSubject().file(small)
    while_full = [e.uuid for e in codec.decode(file.read_bytes()).events if e.type == "user"]
    ballast.unlink()
    promised.append(_record(session, -2))
    session.close()
    after = [e.uuid for e in codec.decode(file.read_bytes()).events if e.type == "user"]
    again = Journal(small).resume(SAMPLE_SESSION, mode="continue")

    assert error.value.hint is not None
    assert promised[:-1] == while_full
    assert promised == after
    assert len(promised) == str(again.messages).count("x" * LINE_BYTES)
    again.close()


def test_a_session_that_a_full_disk_did_not_let_begin_is_not_there(small: Path) -> None:
    """Creating, adopting, forking, starting a subagent: with room again the project goes on."""
    journal = Journal(small)
    session = journal.create(cwd="/w", session=SAMPLE_SESSION)
    promised = [_record(session, number) for number in range(3)]
    session.flush()
    ballast = small / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    before = {path for path in small.rglob("*") if path.is_file()}
    for begin in (
        lambda: journal.create(cwd="/w"),
        lambda: journal.create_or_resume("own", cwd="/w"),
        lambda: journal.resume(project="/w"),
        lambda: journal.fork(SAMPLE_SESSION),
        lambda: session.sidechain("reader"),
    ):
        with pytest.raises(NotAppendable, match="No space left"):
            begin()
    after = {path for path in small.rglob("*") if path.is_file()}
    ballast.unlink()
    session.close()
    with journal.resume(project="/w") as again:
        messages = str(again.messages)

    assert before == after
    assert len(promised) == messages.count("x" * LINE_BYTES)


class FailingDisk(Disk):
    """A disk whose next syncs fail, and which notes the others."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.folders = 0

    def fsync(self, handle: int) -> None:  # type: ignore[override]
        """Count folders."""
        self.folders += stat.S_ISDIR(os.fstat(handle).st_mode)
        self.datasync(handle)

    def datasync(self, handle: int) -> None:  # type: ignore[override]
        """Fail as often as asked."""
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_file_that_its_maker_did_not_make_durable_is_made_so(tmp_path: Path) -> None:
    """The maker was killed, or its sync failed: who comes next does it before the first line."""
    disk = FailingDisk(failures=1)
    with pytest.raises(NotAppendable, match="Input/output error"):
        Log(tmp_path / "log.jsonl", disk=disk)
    before = disk.folders
    Log(tmp_path / "log.jsonl", disk=disk).close()

    assert (0, 1) == (before, disk.folders)


def test_a_folder_that_could_not_be_made_durable_is_made_again(tmp_path: Path) -> None:
    """Otherwise the second try would find it and call it durable."""
    disk = FailingDisk(failures=1)
    with pytest.raises(NotAppendable, match="cannot write to"):
        make_folder(tmp_path / "a" / "b", disk=disk)
    there = (tmp_path / "a").exists()
    make_folder(tmp_path / "a" / "b", disk=disk)

    assert not there
    assert (tmp_path / "a" / "b").is_dir()
    assert 3 == disk.folders


def test_closing_that_failed_can_be_tried_again(tmp_path: Path) -> None:
    """An error of `close` means: not closed, and nothing was given up."""
    disk = FailingDisk()
    log = Log(tmp_path / "log.jsonl", disk=disk)
    log.append(b"{}\n")
    disk.failures = 2
    for _ in range(2):
        with pytest.raises(NotAppendable, match="cannot sync"):
            log.close()
    log.close()

    assert b"{}\n" * 3 == (tmp_path / "log.jsonl").read_bytes()
    with pytest.raises(NotAppendable, match="closed"):
        log.append(b"{}\n")
