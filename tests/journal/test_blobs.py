"""Blobs: named by what they hold, whole or not there, verified whenever they are read."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.handles import open_below
from thence.errors import ThenceError
from thence.journal.blobs import BLOCK_BYTES, LEFTOVER_AGE_S, Blob, Blobs
from thence.journal.log import Disk

SHORT = -1
"""A fault that is no error: a write takes only some of the bytes."""

FAULTS = [errno.ENOSPC, errno.EIO, SHORT]


def wrapped(call: Callable[..., Any]) -> Disk:
    """A disk whose calls go through another: its name, the real one, and the arguments."""
    disk = Disk()
    for name in ("open", "write", "pread", "fsync", "close"):
        setattr(disk, name, partial(call, name, getattr(Disk, name)))
    return disk


def watched(before: Callable[..., None]) -> Disk:
    """A disk that tells of each call before making it: name and arguments."""

    def call(name: str, real: Callable[..., Any], *args: Any, **options: Any) -> Any:
        before(name, *args)
        return real(*args, **options)

    return wrapped(call)


def broken(nth: int, fault: int) -> tuple[Disk, list[str]]:
    """A disk whose n-th call fails, once, and a list that will then name this call."""
    calls = itertools.count(1)
    failed: list[str] = []

    def call(name: str, real: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if name == "fsync":
            real = os.fstat  # whether it fails is the question here, and it takes a hundred times
        if next(calls) != nth:
            return real(*args, **options)
        failed.append(name)
        match (fault, name):
            case (-1, "write"):
                return real(args[0], args[1][: len(args[1]) // 2 or 1])
            case (-1, "pread"):
                return real(args[0], args[1] // 2, args[2])
            case (-1, _):
                return real(*args, **options)
            case (_, "close"):
                real(*args)  # the system lets go of a handle even when closing it fails
        raise OSError(fault, os.strerror(fault))

    return wrapped(call), failed


def faults(run: Callable[[Disk], None]) -> Iterator[tuple[int, ThenceError | None]]:
    """Run with the first call failing, the second, and so on to the last; tell how each ended."""
    for fault in FAULTS:
        for nth in itertools.count(1):
            disk, failed = broken(nth, fault)
            raised = None
            try:
                run(disk)
            except ThenceError as error:
                raised = error
            if not failed:
                assert raised is None
                break
            yield fault, raised


def order_of(monkeypatch: pytest.MonkeyPatch) -> tuple[Disk, list[str]]:
    """A disk, and a list that fills with the syncs made through it and all renames and removals.

    Each is told with the name of what it was done to, scratch names apart.
    """
    order: list[str] = []

    def sync(name: str, *args: Any) -> None:
        if name == "fsync":
            synced = Path(f"/proc/self/fd/{args[0]}").readlink().name
            order.append(f"sync {'scratch' if synced.startswith('.thence-') else synced}")

    def note(name: str, real: Callable[..., None], *args: Any, **options: Any) -> None:
        order.append(f"{name} {args[-1]}")
        real(*args, **options)

    for name in ("rename", "unlink"):
        monkeypatch.setattr(os, name, partial(note, name, getattr(os, name)))
    return watched(sync), order


def assert_whole(folder: Path) -> None:
    """Every file that has a name to go by holds what the name says."""
    for path in folder.iterdir():
        if not path.name.startswith(".thence-"):
            assert path.name.partition(".")[0] == sha256(path.read_bytes()).hexdigest()


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(path.name for path in folder.iterdir())


def stored(folder: Path, data: bytes = b"some bytes") -> tuple[Blobs, Blob, Path]:
    """A folder with one blob in it, and the file that holds it."""
    blobs = Blobs(folder / "blobs")
    blob = blobs.add([data])
    return blobs, blob, folder / "blobs" / blob.hash


@given(st.lists(st.binary(max_size=200), max_size=8))
def test_any_bytes_come_back(blocks: list[bytes]) -> None:
    """However the bytes were cut, they are kept under their hash and read back the same."""
    data = b"".join(blocks)
    with TemporaryDirectory() as folder:
        blobs = Blobs(Path(folder) / "blobs")
        blob = blobs.add(blocks)

        assert Blob(sha256(data).hexdigest(), len(data)) == blob
        assert data == blobs.load(blob.hash, blob.size)


def test_bytes_of_many_blocks_come_back(tmp_path: Path) -> None:
    """What is longer than a block is read in blocks."""
    data = os.urandom(2 * BLOCK_BYTES + 17)
    blobs, blob, _ = stored(tmp_path, data)

    assert data == blobs.load(blob.hash)
    assert [BLOCK_BYTES, BLOCK_BYTES, 17] == [len(block) for block in blobs.read(blob.hash)]


def test_the_same_bytes_are_kept_once(tmp_path: Path) -> None:
    """A second copy leaves the first one in place, untouched."""
    blobs, blob, path = stored(tmp_path)
    first = path.stat()

    again = blobs.add([b"some ", b"bytes"])

    assert blob == again
    assert [blob.hash] == names(blobs.folder)
    assert (first.st_ino, first.st_mtime_ns) == (path.stat().st_ino, path.stat().st_mtime_ns)


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o377])
def test_blobs_are_for_the_owner_alone(tmp_path: Path, umask: int) -> None:
    """Files are 0600, whatever the umask would have made of them."""
    old = os.umask(umask)
    try:
        (tmp_path / "blobs").mkdir(mode=0o700)
        (tmp_path / "blobs").chmod(0o700)
        _, _, path = stored(tmp_path)
    finally:
        os.umask(old)

    assert 0o600 == stat.S_IMODE(path.stat().st_mode)


def test_a_folder_that_has_to_be_made_is_for_the_owner_alone(tmp_path: Path) -> None:
    """The folder is made when the first blob comes, 0700."""
    blobs = Blobs(tmp_path / "a" / "b")
    before = names(tmp_path)
    blobs.add([b""])

    assert [] == before
    assert 0o700 == stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode)


@pytest.mark.parametrize(
    "harm", ["flip", "cut", "grow", "empty", "missing", "link", "pipe", "folder"]
)
def test_what_does_not_verify_is_never_read(tmp_path: Path, harm: str) -> None:
    """Damage of any kind is an error with a hint, and no pipe keeps a reader waiting."""
    blobs, blob, path = stored(tmp_path)
    damage(path, harm)

    with pytest.raises(ThenceError, match=r"is missing|damaged|regular|cannot be read") as caught:
        blobs.load(blob.hash, blob.size)

    assert "backup" in str(caught.value.hint)
    assert caught.value.message == blobs.check(blob.hash, blob.size)


def damage(path: Path, harm: str) -> None:
    """Do something to a file, or put something else in its place."""
    data = path.read_bytes()
    path.unlink()
    match harm:
        case "flip":
            path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        case "cut":
            path.write_bytes(data[:-1])
        case "grow":
            path.write_bytes(data + b"!")
        case "empty":
            path.touch()
        case "link":
            (path.parent / "elsewhere").write_bytes(data)
            path.symlink_to(path.parent / "elsewhere")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()


@pytest.mark.parametrize("harm", ["flip", "cut", "grow", "empty", "missing", "link", "pipe"])
def test_a_damaged_copy_is_replaced_by_a_whole_one(tmp_path: Path, harm: str) -> None:
    """Adding the bytes again heals the blob, and nothing is written through a link."""
    blobs, blob, path = stored(tmp_path)
    damage(path, harm)

    blobs.add([b"some bytes"])

    assert b"some bytes" == blobs.load(blob.hash, blob.size)
    assert path.is_file()
    assert not path.is_symlink()


def test_a_file_that_was_blown_up_is_not_read(tmp_path: Path) -> None:
    """The size is asked for before the first byte."""
    _, blob, path = stored(tmp_path)
    os.truncate(path, 1 << 40)
    calls: list[str] = []
    blobs = Blobs(path.parent, disk=watched(lambda name, *_: calls.append(name)))

    why = blobs.check(blob.hash, blob.size)

    assert f"{1 << 40} bytes instead of 10" in str(why)
    assert "pread" not in calls


@pytest.mark.parametrize(
    "key", ["", "..", "../secret", "a" * 63, "A" * 64, "a" * 64 + "\n", "/etc/passwd", "é" * 64]
)
def test_only_a_hash_is_a_name(tmp_path: Path, key: str) -> None:
    """Whatever else is asked for is refused before anything is opened."""
    (tmp_path / "secret").write_text("x")
    calls: list[str] = []
    blobs = Blobs(tmp_path / "blobs", disk=watched(lambda name, *_: calls.append(name)))

    with pytest.raises(ThenceError, match="no hash"):
        blobs.load(key)

    assert [] == calls


def test_a_name_is_given_after_the_bytes_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sync, rename, sync of the folder: in this order."""
    disk, order = order_of(monkeypatch)
    blobs = Blobs(tmp_path, disk=disk)
    blob = blobs.add([b"x"])
    blobs.sync()

    assert ["sync scratch", f"rename {blob.hash}", f"sync {tmp_path.name}"] == order


def test_a_fault_leaves_a_blob_whole_or_not_there(tmp_path: Path) -> None:
    """Whichever call fails, the error is clear and no half file, scratch file or handle is left."""
    folders = (tmp_path / str(number) for number in itertools.count())
    used: list[Path] = []

    def run(disk: Disk) -> None:
        used.append(next(folders))
        blobs = Blobs(used[-1], disk=disk)
        blobs.add([b"some ", b"bytes"])
        blobs.sync()

    met = 0
    for fault, error in faults(run):
        met += 1
        if used[-1].is_dir():
            assert_whole(used[-1])
            assert not [name for name in names(used[-1]) if name.startswith(".")]
        assert error is None or (fault != SHORT and "cannot write" in error.message and error.hint)

    assert met > 20
    assert [] == open_below(tmp_path)


def test_a_disk_that_takes_nothing_is_an_error(tmp_path: Path) -> None:
    """A write that takes no byte and says no error ends, and does not go on for ever."""
    disk = Disk()
    setattr(disk, "write", lambda *_: 0)  # noqa: B010 - a type checker knows the real one

    with pytest.raises(ThenceError, match="cannot write"):
        Blobs(tmp_path, disk=disk).add([b"x"])

    assert [] == names(tmp_path)


def test_what_the_bytes_raise_leaves_nothing_behind(tmp_path: Path) -> None:
    """A source that fails half-way fails the blob, with its own error."""

    def blocks() -> Iterator[bytes]:
        yield b"some"
        raise KeyError

    with pytest.raises(KeyError):
        Blobs(tmp_path).add(blocks())

    assert [] == names(tmp_path)


def test_a_folder_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    """Something else in the folder's place is told and left alone."""
    (tmp_path / "blobs").write_text("mine")

    with pytest.raises(ThenceError, match="cannot write"):
        Blobs(tmp_path / "blobs").add([b"x"])

    assert "mine" == (tmp_path / "blobs").read_text()


def leftover(folder: Path, *, age: float) -> Path:
    """A file as a writer that was killed leaves it."""
    path = folder / f".thence-{os.urandom(16).hex()}.tmp"
    path.write_bytes(b"half")
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def test_only_old_leftovers_that_nobody_holds_are_removed(tmp_path: Path) -> None:
    """A young one may be another writer's, and a locked one is; other files are not ours."""
    old, young, open_file = (leftover(tmp_path, age=age) for age in (2 * LEFTOVER_AGE_S, 0, 2e6))
    other = tmp_path / ".thence-mine.tmp"
    other.touch()
    os.utime(other, (0, 0))
    with open_file.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        blob = Blobs(tmp_path).add([b"x"])

    assert sorted([blob.hash, young.name, open_file.name, other.name]) == names(tmp_path)
    assert not old.exists()


def test_a_writer_holds_its_own_file(tmp_path: Path) -> None:
    """However long a writer takes, no other one removes what it writes."""
    blobs = Blobs(tmp_path)

    def blocks() -> Iterator[bytes]:
        yield b"some"
        (scratch,) = tmp_path.iterdir()
        os.utime(scratch, (0, 0))
        Blobs(tmp_path).add([b"another"])
        yield b"thing"

    blob = blobs.add(blocks())

    assert b"something" == blobs.load(blob.hash)


def test_suffixes_keep_kinds_apart(tmp_path: Path) -> None:
    """A suffix is part of the file's name and of nothing else."""
    blob = Blobs(tmp_path, suffix=".txt").add([b"x"])

    assert [f"{blob.hash}.txt"] == names(tmp_path)
    assert "is missing" in str(Blobs(tmp_path).check(blob.hash))


@pytest.mark.slow
def test_threads_may_add_the_same_bytes_at_once(tmp_path: Path) -> None:
    """Whoever is first, all find the blob whole at every moment."""
    data = os.urandom(3 * BLOCK_BYTES)
    key = sha256(data).hexdigest()
    wrong: list[str] = []

    def work() -> None:
        blobs = Blobs(tmp_path)
        blobs.add([data])
        for _ in range(5):
            with suppress(ThenceError):
                blobs.add([data])
            why = blobs.check(key, len(data))
            if why is not None:
                wrong.append(why)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == wrong
    assert [key] == names(tmp_path)
