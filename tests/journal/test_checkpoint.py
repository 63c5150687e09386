"""Checkpoints: what stood there comes back, what nobody saved is left alone."""

from __future__ import annotations

import itertools
import os
import random
import socket
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.handles import open_below
from tests.journal.test_blobs import (
    SHORT,
    assert_whole,
    faults,
    leftover,
    order_of,
    watched,
)
from tests.pace import by_pace
from thence.errors import ThenceError
from thence.format import codec
from thence.format.records import Event
from thence.journal.checkpoint import (
    DIFF_LIMIT_BYTES,
    READ_ATTEMPTS,
    Checkpoint,
    Checkpoints,
    FileChange,
    SavedFile,
    difference,
)
from thence.journal.log import Disk

KILLS = by_pace(everyday=3, full=3, prove=30)
BIG = by_pace(everyday=32, full=32, prove=512) << 20

Tree = dict[str, tuple[bytes, int]]
"""Files of a workspace: content and permission bits by path."""


class Case:
    """A workspace, a folder for checkpoints beside it, and a secret outside both."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "work"
        self.store = folder / "store"
        self.secret = folder / "secret"
        self.root.mkdir()
        self.secret.mkdir()
        (self.secret / "key").write_text("secret")

    def checkpoints(self, **options: Any) -> Checkpoints:
        """The checkpoints of the workspace."""
        return Checkpoints(self.store, self.root, **options)

    def write(self, path: str, content: bytes | str = b"", mode: int = 0o644) -> Path:
        """Write a file, and the folders it is in."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        file.chmod(mode)
        return file

    def tree(self) -> Tree:
        """Every file of the workspace."""
        return {
            path.relative_to(self.root).as_posix(): (path.read_bytes(), path.stat().st_mode & 0o777)
            for path in self.root.rglob("*")
            if path.is_file() and not path.is_symlink()
        }


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """An empty workspace."""
    return Case(tmp_path)


def whats(changes: list[FileChange] | tuple[FileChange, ...]) -> dict[str, str]:
    """What is done to which path."""
    return {change.path: change.what for change in changes}


# -- what comes back ------------------------------------------------------------------------


def test_changed_deleted_and_new_files_go_back(case: Case) -> None:
    """Contents and modes return, deleted files too; what was absent is removed."""
    case.write("changed", "one")
    case.write("deep/er/deleted", "two", 0o755)
    case.write("same", "three")
    case.write("mode", "four", 0o755)
    before = case.tree()
    checkpoints = case.checkpoints()
    point = checkpoints.save(["changed", "deep/er/deleted", "same", "mode", "new"])

    case.write("changed", "ONE!")
    (case.root / "deep/er/deleted").unlink()
    (case.root / "deep/er").rmdir()
    case.write("new", "five")
    (case.root / "mode").chmod(0o600)
    rewound = checkpoints.rewind(point, [])

    assert before == case.tree()
    assert {
        "changed": "write",
        "deep/er/deleted": "write",
        "mode": "mode",
        "new": "remove",
        "same": "leave",
    } == whats(rewound.changes)


def test_the_earliest_content_since_the_target_counts(case: Case) -> None:
    """A path that only later checkpoints cover goes back to the first of them."""
    checkpoints = case.checkpoints()
    case.write("a", "a1")
    case.write("b", "b1")
    first = checkpoints.save(["a"])
    case.write("a", "a2")
    case.write("b", "b2")
    second = checkpoints.save(["a", "b"], parent=first.id)
    case.write("a", "a3")
    case.write("b", "b3")
    third = checkpoints.save(["b"], parent=second.id)
    case.write("b", "b4")

    checkpoints.rewind(first, [second, third])

    assert {"a": (b"a1", 0o644), "b": (b"b2", 0o644)} == case.tree()


def test_what_no_checkpoint_covers_is_left_alone(case: Case) -> None:
    """Files beside the covered ones, and folders that become empty, stay as they are."""
    checkpoints = case.checkpoints()
    point = checkpoints.save(["folder/new"])
    case.write("folder/new", "x")
    case.write("other", "mine")

    checkpoints.rewind(point, [])

    assert {"other": (b"mine", 0o644)} == case.tree()
    assert (case.root / "folder").is_dir()


def test_a_rewind_can_be_taken_back(case: Case) -> None:
    """Rewinding to what a rewind saved first gives the files as they were before it."""
    checkpoints = case.checkpoints()
    case.write("a", "a1")
    case.write("gone", "g")
    point = checkpoints.save(["a", "gone", "new"])
    case.write("a", "a2", 0o600)
    case.write("new", "n")
    (case.root / "gone").unlink()
    changed = case.tree()

    before = checkpoints.rewind(point, []).before
    assert before is not None
    checkpoints.rewind(before, [])

    assert changed == case.tree()
    assert point.id == before.parent


def test_a_rewind_is_recorded_before_it_begins(case: Case) -> None:
    """Who writes the event sees the files unchanged; when that fails, they stay so."""
    checkpoints = case.checkpoints()
    point = checkpoints.save(["new"])
    case.write("new", "n")
    seen: list[tuple[Checkpoint, Tree]] = []

    def record(before: Checkpoint) -> None:
        seen.append((before, case.tree()))
        raise ThenceError("the log is full")

    with pytest.raises(ThenceError, match="full"):
        checkpoints.rewind(point, [], record=record)

    assert {"new": (b"n", 0o644)} == case.tree() == seen[0][1]
    assert ["new"] == [saved.path for saved in seen[0][0].files]


def test_a_rewind_that_changes_nothing_saves_nothing(case: Case) -> None:
    """No checkpoint is made of nothing."""
    checkpoints = case.checkpoints()
    case.write("a", "a")
    rewound = checkpoints.rewind(checkpoints.save(["a", "b"]), [])

    assert rewound.before is None
    assert {"a": "leave", "b": "leave"} == whats(rewound.changes)


def test_a_dry_run_shows_the_difference_and_changes_nothing(case: Case) -> None:
    """Plan and dry run say the same, and neither writes."""
    checkpoints = case.checkpoints()
    case.write("a", "one\ntwo\nthree\n")
    point = checkpoints.save(["a", "new"])
    case.write("a", "one\n2\nthree\n", 0o755)
    case.write("new", "n")
    before, blobs = case.tree(), len(list(case.store.iterdir()))

    rewound = checkpoints.rewind(point, [], dry_run=True)

    assert [
        FileChange(
            "a",
            "write",
            "--- a\n+++ a\n@@ -1,3 +1,3 @@\n one\n-2\n+two\n three\n",
            "content differs; mode 755 → 644",
        ),
        FileChange(
            "new",
            "remove",
            "--- new\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-n\n\\ No newline at end of file\n",
            "was not there",
        ),
    ] == checkpoints.plan(point, [])
    assert tuple(checkpoints.plan(point, [])) == rewound.changes
    assert (before, blobs) == (case.tree(), len(list(case.store.iterdir())))


def test_a_file_in_place_of_a_folder_gives_way(case: Case) -> None:
    """A file that was absent is removed first, so that the folder can come back."""
    checkpoints = case.checkpoints()
    case.write("a/b", "inner")
    first = checkpoints.save(["a/b"])
    (case.root / "a/b").unlink()
    (case.root / "a").rmdir()
    second = checkpoints.save(["a"])
    case.write("a", "outer")

    before = checkpoints.rewind(first, [second]).before

    assert {"a/b": (b"inner", 0o644)} == case.tree()
    assert before is not None
    assert ["absent", "file"] == sorted(saved.kind for saved in before.files)


def test_a_folder_in_place_of_a_file_is_told(case: Case) -> None:
    """What would have to be removed with it is nobody's guess: the file stays away."""
    checkpoints = case.checkpoints()
    case.write("a", "file")
    point = checkpoints.save(["a"])
    (case.root / "a").unlink()
    case.write("a/b", "mine")

    (change,) = checkpoints.rewind(point, []).changes

    assert ("cannot", "a is a folder") == (change.what, change.reason)
    assert {"a/b": (b"mine", 0o644)} == case.tree()


# -- names and kinds ------------------------------------------------------------------------

NAMES = [
    "with space",
    "new\nline",
    "tab\tand\x1bescape",
    "back\\slash",
    "ünïcödé",
    os.fsdecode(b"not-utf8-\xff\xfe"),
    "-rf",
    "a" * 255,
    "...",
    "~",
    "\u2028",
]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_survives_the_log(case: Case, name: str) -> None:
    """A checkpoint that was written as an event and read back still finds its file."""
    checkpoints = case.checkpoints()
    case.write(f"folder/{name}", "one")
    point = checkpoints.save([case.root / "folder" / name])
    event = Event("checkpoint", "", "u", None, point.payload)
    (read,) = codec.decode(codec.encode(event)).events
    case.write(f"folder/{name}", "two")

    rewound = checkpoints.rewind(msgspec.convert(read.payload, Checkpoint), [])

    assert {f"folder/{name}": (b"one", 0o644)} == case.tree()
    assert str(rewound.changes[0].diff).startswith("--- ")
    assert "\x1b" not in str(rewound.changes[0].diff)


@pytest.mark.parametrize("mode", [0o400, 0o444, 0o555, 0o600, 0o755, 0o777])
def test_any_mode_comes_back(case: Case, mode: int) -> None:
    """Read-only and executable files are saved, replaced and come back as they were."""
    checkpoints = case.checkpoints()
    case.write("a", "one", mode)
    point = checkpoints.save(["a"])
    (case.root / "a").unlink()
    case.write("a", "two", 0o444)

    checkpoints.rewind(point, [])

    assert {"a": (b"one", mode)} == case.tree()


def test_a_log_sets_no_setuid_bit(case: Case) -> None:
    """Of the mode in a checkpoint only the permission bits are used."""
    checkpoints = case.checkpoints()
    case.write("a", "one")
    (saved,) = checkpoints.save(["a"]).files
    case.write("a", "two")
    forged = Checkpoint("x", (msgspec.structs.replace(saved, mode=0o106755),), None)

    checkpoints.rewind(forged, [])

    assert 0o755 == stat.S_IMODE((case.root / "a").stat().st_mode)


def test_an_empty_file_is_not_an_absent_one(case: Case) -> None:
    """A file without content comes back as such."""
    checkpoints = case.checkpoints()
    case.write("a")
    point = checkpoints.save(["a"])
    (case.root / "a").unlink()

    checkpoints.rewind(point, [])

    assert {"a": (b"", 0o644)} == case.tree()


def test_a_binary_file_is_told_by_its_size(case: Case) -> None:
    """A difference of bytes that are no text is a phrase."""
    checkpoints = case.checkpoints()
    case.write("a", b"\0\1\2")
    point = checkpoints.save(["a"])
    case.write("a", b"\xff\xfe")

    (change,) = checkpoints.rewind(point, []).changes

    assert "binary, 2 → 3 bytes" == change.diff
    assert {"a": (b"\0\1\2", 0o644)} == case.tree()


def test_other_hard_links_keep_what_they_have(case: Case) -> None:
    """A file goes back by rename; the plan says that its other names do not follow."""
    checkpoints = case.checkpoints()
    case.write("a", "one")
    point = checkpoints.save(["a"])
    (case.root / "a").write_text("two")
    os.link(case.root / "a", case.root / "b")

    (change,) = checkpoints.rewind(point, []).changes

    assert {"a": (b"one", 0o644), "b": (b"two", 0o644)} == case.tree()
    assert "only this name changes, not the file's 1 other hard links" in change.reason


def test_two_covered_names_of_one_file_both_go_back(case: Case) -> None:
    """That the first one went back does not make the second one look changed."""
    checkpoints = case.checkpoints()
    case.write("a", "one")
    os.link(case.root / "a", case.root / "b")
    point = checkpoints.save(["a", "b"])
    (case.root / "a").write_text("two")

    changes = checkpoints.rewind(point, []).changes

    assert {"a": "write", "b": "write"} == whats(changes)
    assert {"a": (b"one", 0o644), "b": (b"one", 0o644)} == case.tree()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_owner_of_a_file_is_kept(case: Case) -> None:
    """Who runs as root does not take the user's files from them."""
    checkpoints = case.checkpoints()
    case.write("a", "one")
    point = checkpoints.save(["a"])
    os.chown(case.write("a", "two"), 1234, 1234)

    checkpoints.rewind(point, [])

    assert ((1234, 1234), "one") == (owner(case.root / "a"), (case.root / "a").read_text())


def owner(path: Path) -> tuple[int, int]:
    """User and group of a file."""
    return path.stat().st_uid, path.stat().st_gid


# -- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../secret/key", "upwards"),
        ("a/../../secret/key", "upwards"),
        ("..", "upwards"),
        ("/etc/passwd", "outside"),
        ("//etc/passwd", "outside"),
        ("", "workspace itself"),
        (".", "workspace itself"),
        ("link", "is a link"),
        ("out", "is a link"),
        ("out/key", "leads through a link"),
        ("in/file", "leads through a link"),
        ("nowhere", "is a link"),
        ("folder", "is a folder"),
        ("folder/", "is a folder"),
        ("pipe", "is a pipe"),
        ("socket", "is a socket"),
        ("file/x", "leads through a file"),
        ("nul\0", "not a valid file name"),
        ("\ud800", "not a valid file name"),
        ("b" * 256, "File name too long"),
        ("b/" * 3000 + "b", "not a valid file name"),
    ],
)
def test_only_regular_files_inside_are_saved(case: Case, path: str, why: str) -> None:
    """Whatever leads out, is a link or is no file is refused with a hint, and nothing is saved."""
    case.write("file", "x")
    case.write("folder/file", "x")
    (case.root / "link").symlink_to("file")
    (case.root / "out").symlink_to(case.secret)
    (case.root / "in").symlink_to("folder")
    (case.root / "nowhere").symlink_to("missing")
    os.mkfifo(case.root / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(case.root / "socket"))

        with pytest.raises(ThenceError, match=why) as caught:
            case.checkpoints().save([path])

    assert caught.value.hint
    assert not case.store.exists()


def test_absolute_paths_inside_are_the_same_as_relative_ones(case: Case) -> None:
    """Also when the workspace was named through a link."""
    case.write("a/b", "x")
    door = case.root.parent / "door"
    door.symlink_to(case.root)
    checkpoints = Checkpoints(case.store, door)

    point = checkpoints.save(["a/b", "./a//b", case.root / "a/b", door / "a" / "b"])

    assert ["a/b"] == [saved.path for saved in point.files]


def test_our_own_records_are_refused(case: Case) -> None:
    """Neither the checkpoints nor the logs can be covered, by whatever way one comes to them."""
    case.write("own/blob", "x")
    case.write("logs/session.jsonl", "x")
    os.link(case.root / "logs/session.jsonl", case.root / "alias")
    checkpoints = Checkpoints(
        case.root / "own", case.root, closed=[case.root / "logs/session.jsonl", case.root / "no"]
    )

    for path in ("own/blob", "own/deeper/blob", "logs/session.jsonl", "alias"):
        with pytest.raises(ThenceError, match="own records"):
            checkpoints.save([path])

    assert ["absent"] == [saved.kind for saved in checkpoints.save(["no/log"]).files]


@pytest.mark.parametrize(
    ("saved", "why"),
    [
        (SavedFile("../secret/key", None, None, 0, "absent"), "upwards"),
        (SavedFile("out/key", None, None, 0, "absent"), "leads through a link"),
        (SavedFile("a//b", None, None, 0, "absent"), "no path that we write"),
        (SavedFile("./a", None, None, 0, "absent"), "no path that we write"),
        (SavedFile("\0", None, None, 0, "absent"), "not a valid file name"),
        (SavedFile("a", None, 0o644, 9, "file"), "no hash"),
        (SavedFile("a", "../../secret/key", 0o644, 6, "file"), "no hash"),
        (SavedFile("a", "0" * 64, 0o644, 6, "file"), "is missing"),
    ],
)
def test_a_forged_checkpoint_does_nothing(case: Case, saved: SavedFile, why: str) -> None:
    """A log may say anything: its paths and hashes are checked as if they came from outside."""
    checkpoints = case.checkpoints()
    case.write("a", "mine")
    case.write("c", "one")
    (case.root / "out").symlink_to(case.secret)
    point = checkpoints.save(["c"])
    case.write("c", "two")

    rewound = checkpoints.rewind(Checkpoint("x", (saved, *point.files), None), [])
    change = next(change for change in rewound.changes if change.path == saved.path)

    assert "cannot" == change.what
    assert why in change.reason
    assert {"a": (b"mine", 0o644), "c": (b"one", 0o644)} == case.tree()
    assert "secret" == (case.secret / "key").read_text()


def swap_on(case: Case, name: str, nth: int = 1) -> Disk:
    """A disk that puts a link to the secret in a name's place just before it is opened."""
    seen = itertools.count(1)

    def swap(call: str, *args: Any) -> None:
        if call == "open" and args[0] == name and next(seen) == nth:
            (case.root / name).rename(case.root / f"{name}-was")
            (case.root / name).symlink_to(case.secret / "key" if name == "key" else case.secret)

    return watched(swap)


@pytest.mark.parametrize(("name", "path"), [("key", "key"), ("folder", "folder/key")])
def test_a_link_that_comes_while_we_look_is_not_followed(case: Case, name: str, path: str) -> None:
    """Between the look at a name and its opening nothing can be slipped in."""
    case.write(path, "mine")

    with pytest.raises(ThenceError):
        case.checkpoints(disk=swap_on(case, name)).save([path])

    assert not case.store.exists() or [] == list(case.store.iterdir())


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_link_that_comes_while_we_rewind_is_not_followed(case: Case, nth: int) -> None:
    """Whenever a folder is swapped for a link, what lies behind the link is not touched."""
    case.write("folder/key", "one")
    point = case.checkpoints().save(["folder/key"])
    case.write("folder/key", "two")
    checkpoints = case.checkpoints(disk=swap_on(case, "folder", nth))
    try:
        whats_done = set(whats(checkpoints.rewind(point, []).changes).values())
    except ThenceError:
        whats_done = {"cannot"}

    assert {"cannot"} == whats_done
    assert "secret" == (case.secret / "key").read_text()


# -- the store ------------------------------------------------------------------------------


def test_a_checkpoint_is_durable_before_it_is_handed_out(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes before names, and the folder of the names last."""
    case.store.mkdir()
    case.write("a", "one")
    case.write("b", "two")
    disk, order = order_of(monkeypatch)

    first, second = case.checkpoints(disk=disk).save(["a", "b"]).files

    assert [
        "sync scratch",
        f"rename {first.blob}",
        "sync scratch",
        f"rename {second.blob}",
        "sync store",
    ] == order


def test_each_file_of_a_rewind_is_durable(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it saved first, then bytes before names and folders behind them, new ones included."""
    case.write("folder/deep/a", "one")
    case.write("c", "c", 0o600)
    point = case.checkpoints().save(["folder/deep/a", "b", "c"])
    (case.root / "folder/deep/a").unlink()
    (case.root / "folder/deep").rmdir()
    case.write("b", "two")
    (case.root / "c").chmod(0o644)
    disk, order = order_of(monkeypatch)

    before = case.checkpoints(disk=disk).rewind(point, []).before
    assert before is not None

    assert [
        "sync scratch",
        f"rename {before.files[0].blob}",
        f"unlink {order[2].partition(' ')[2]}",  # c is in the store already
        "sync store",
        "unlink b",
        "sync work",
        "sync folder",
        "sync scratch",
        "rename a",
        "sync deep",
        "sync c",
        "sync work",
    ] == order


def test_identical_content_is_kept_once(case: Case) -> None:
    """Copies, and the same file in many checkpoints, cost one blob."""
    checkpoints = case.checkpoints()
    case.write("a", "same")
    case.write("b", "same")
    points = [checkpoints.save(["a", "b"]) for _ in range(5)]

    assert 1 == len(list(case.store.iterdir()))
    assert 1 == len({point.id for point in points})


def test_the_id_follows_from_files_and_parent(case: Case) -> None:
    """The same files in any order have one id; another content, mode or parent has another."""
    checkpoints = case.checkpoints()
    case.write("a", "one")
    case.write("b", "two")
    first = checkpoints.save(["a", "b"])
    again = checkpoints.save(["b", "a"])
    child = checkpoints.save(["a", "b"], parent=first.id)
    (case.root / "a").chmod(0o600)
    moded = checkpoints.save(["a", "b"])
    case.write("a", "three", 0o600)
    changed = checkpoints.save(["a", "b"])

    assert first == again
    assert 4 == len({point.id for point in (first, child, moded, changed)})


@pytest.mark.parametrize("harm", ["missing", "damaged", "cut"])
def test_a_blob_that_is_lost_keeps_no_other_file(case: Case, harm: str) -> None:
    """The plan names the file that cannot go back; the others do, and nothing wrong is written."""
    checkpoints = case.checkpoints()
    case.write("a", "one")
    case.write("b", "two")
    point = checkpoints.save(["a", "b"])
    blob = case.store / str(point.files[0].blob)
    blob.write_bytes({"missing": b"", "damaged": b"0ne", "cut": b"on"}[harm])
    if harm == "missing":
        blob.unlink()
    case.write("a", "ONE")
    case.write("b", "TWO")
    planned = checkpoints.plan(point, [])

    rewound = checkpoints.rewind(point, [])

    assert {"a": "cannot", "b": "write"} == whats(planned) == whats(rewound.changes)
    assert ("missing" if harm == "missing" else "damaged") in planned[0].reason
    assert {"a": (b"ONE", 0o644), "b": (b"two", 0o644)} == case.tree()


def test_a_damaged_blob_of_a_large_file_is_planned_for(case: Case) -> None:
    """Also where no difference is shown, the plan knows what the rewind will meet."""
    checkpoints = case.checkpoints()
    case.write("a", b"1" * (DIFF_LIMIT_BYTES + 1))
    point = checkpoints.save(["a"])
    case.write("a", "2")
    with (case.store / str(point.files[0].blob)).open("r+b") as blob:
        blob.write(b"?")

    assert {"a": "cannot"} == whats(checkpoints.plan(point, []))


def test_a_blob_that_is_lost_does_not_matter_to_an_unchanged_file(case: Case) -> None:
    """What is still there needs no copy."""
    checkpoints = case.checkpoints()
    case.write("a", "one")
    point = checkpoints.save(["a"])
    (case.store / str(point.files[0].blob)).unlink()

    assert {"a": "leave"} == whats(checkpoints.plan(point, []))


def moving(case: Case, name: str, times: int) -> Disk:
    """A disk that changes a file so many times while it is read."""
    left = itertools.count(1)

    def change(call: str, *_: Any) -> None:
        if call == "pread" and (number := next(left)) <= times:
            (case.root / name).write_text(f"version {number}")

    return watched(change)


def test_a_file_that_changes_while_it_is_read_is_read_again(case: Case) -> None:
    """What is saved is one version of the file, never a mixture."""
    case.write("a", "version 0")
    checkpoints = case.checkpoints(disk=moving(case, "a", 1))

    (saved,) = checkpoints.save(["a"]).files

    assert "version 1" == (case.store / str(saved.blob)).read_text()
    assert 1 == len(list(case.store.iterdir()))


def test_a_file_that_never_stands_still_is_refused(case: Case) -> None:
    """After some tries the error says why, and nothing of it is kept."""
    case.write("a", "version 0")
    checkpoints = case.checkpoints(disk=moving(case, "a", 99))

    with pytest.raises(ThenceError, match="a changes while it is read") as caught:
        checkpoints.save(["a"])

    assert caught.value.hint
    assert READ_ATTEMPTS > 1
    assert [] == list(case.store.iterdir())


def test_a_file_that_grows_for_ever_is_not_read_for_ever(case: Case) -> None:
    """Reading stops once there is more than there was."""
    file = case.write("a", b"x" * 100)
    reads = []

    def grow(call: str, *_: Any) -> None:
        if call == "pread":
            reads.append(call)
            with file.open("ab") as more:
                more.write(b"x" * 100)

    with pytest.raises(ThenceError, match="changes while it is read"):
        case.checkpoints(disk=watched(grow)).save(["a"])

    assert READ_ATTEMPTS * 2 >= len(reads)


def test_what_changes_while_a_rewind_runs_is_not_overwritten(case: Case) -> None:
    """An edit that no checkpoint has saved wins over the rewind."""
    checkpoints = case.checkpoints()
    case.write("a", "one")
    case.write("b", "one")
    point = checkpoints.save(["a", "b", "c", "d"])
    for name in "abcd":
        case.write(name, "two")

    def record(_: Checkpoint) -> None:
        case.write("a", "three")
        case.write("c", "three")
        (case.root / "b").unlink()

    changes = checkpoints.rewind(point, [], record=record).changes

    assert {"a": "cannot", "b": "cannot", "c": "cannot", "d": "remove"} == whats(changes)
    assert "a changed while the rewind ran" == changes[0].reason
    assert {"a": (b"three", 0o644), "c": (b"three", 0o644)} == case.tree()


def test_leftovers_in_the_workspace_are_removed_when_old(case: Case) -> None:
    """What a killed rewind left goes with the next one that writes there."""
    checkpoints = case.checkpoints()
    case.write("a", "one")
    point = checkpoints.save(["a"])
    case.write("a", "two")
    old, young = leftover(case.root, age=1e6), leftover(case.root, age=0)

    checkpoints.rewind(point, [])

    assert (False, True) == (old.exists(), young.exists())


# -- faults ---------------------------------------------------------------------------------


def test_a_save_that_fails_touches_nothing(tmp_path: Path) -> None:
    """Whichever call fails: a clear error, the workspace as it was, a store that verifies."""
    case = Case(tmp_path)
    case.write("a", "one" * 1000)
    case.write("deep/b", "two")
    before = case.tree()
    met = 0
    for fault, error in faults(lambda disk: assert_saved(case, disk)):
        met += 1
        assert error is None or (fault != SHORT and error.hint)
        assert before == case.tree()
        if case.store.exists():
            assert_whole(case.store)
        empty(case.store)

    assert met > 60
    assert [] == open_below(tmp_path)


def assert_saved(case: Case, disk: Disk) -> None:
    """Save two files; when that works, it must have been done."""
    point = case.checkpoints(disk=disk).save(["a", "deep/b", "new"])
    blobs = [case.store / saved.blob for saved in point.files if saved.blob]

    assert [3000, 3] == [blob.stat().st_size for blob in blobs]


def empty(folder: Path) -> None:
    """Remove a folder of files."""
    if folder.exists():
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


@pytest.mark.slow
def test_a_rewind_that_fails_leaves_each_file_old_or_new(tmp_path: Path) -> None:
    """Whichever call fails: an error and nothing changed, or one file that could not go back."""
    case = Case(tmp_path)
    old, new = two_states(case)
    del old["large"], new["large"]  # the disk is the same for one block and for many
    point = case.checkpoints().save(old.keys() | new.keys())
    met = cannot = 0
    rewound = []

    def run(disk: Disk) -> None:
        set_state(case, new)
        rewound.append(case.checkpoints(disk=disk).rewind(point, []))

    for fault, error in faults(run):
        met += 1
        assert_old_or_new(case, old, new)
        assert_whole(case.store)
        assert not list(case.root.rglob(".thence-*"))
        if error is not None:
            assert fault != SHORT
            assert new == case.tree()
        elif "cannot" in whats(rewound[-1].changes).values():
            cannot += 1
        else:
            assert old == case.tree()

    assert met > 150
    assert cannot > 20
    assert [] == open_below(tmp_path)


def two_states(case: Case) -> tuple[Tree, Tree]:
    """Two trees that differ in every way a rewind can mend; the workspace has the first."""
    old: Tree = {
        "changed": (b"old" * 50, 0o644),
        "mode": (b"same", 0o755),
        "deep/deleted": (b"was here", 0o600),
        "large": (b"old" * (1 << 19), 0o644),
    }
    new: Tree = {
        "changed": (b"new!" * 50, 0o755),
        "mode": (b"same", 0o644),
        "added": (b"is new", 0o644),
        "large": (b"new" * (1 << 19), 0o644),
    }
    set_state(case, old)
    return old, new


def set_state(case: Case, tree: Tree) -> None:
    """Make the workspace hold a tree and nothing else."""
    for file in [file for file in case.root.rglob("*") if file.is_file()]:
        file.unlink()
    for path, (content, mode) in tree.items():
        case.write(path, content, mode)


def assert_old_or_new(case: Case, old: Tree, new: Tree) -> None:
    """Every path is as in one of two trees, and there are no others."""
    now = {path: file for path, file in case.tree().items() if ".thence-" not in path}

    assert now.keys() <= old.keys() | new.keys()
    for path in old.keys() | new.keys():
        assert now.get(path) in {old.get(path), new.get(path)}


def killed_at_random(code: str, case: Case, seed: int) -> None:
    """Run code in a process of its own, and kill it a little after it said that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), case.store, case.root],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert "ready\n" == process.stdout.readline()
        time.sleep(random.Random(seed).random() * 0.1)
        process.kill()

    assert -9 == process.returncode


@pytest.mark.few(3)
@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(KILLS))
def test_a_kill_during_a_save_harms_nothing(tmp_path: Path, seed: int) -> None:
    """The workspace is as it was, every blob that has a name is whole, and saving goes on."""
    case = Case(tmp_path)
    old, _ = two_states(case)
    killed_at_random(
        """
        import itertools, pathlib, sys
        from thence.journal.checkpoint import Checkpoints
        store, root = map(pathlib.Path, sys.argv[1:])
        print("ready", flush=True)
        for number in itertools.count():
            Checkpoints(store / str(number), root).save(["changed", "large", "deep/deleted"])
        """,
        case,
        seed,
    )
    stores = sorted(case.store.glob("*"), key=lambda path: int(path.name))
    for store in stores:
        assert_whole(store)
    case.store = (stores or [case.store])[-1]
    point = case.checkpoints().save(old)

    assert old == case.tree()
    assert {"leave"} == set(whats(case.checkpoints().plan(point, [])).values())


@pytest.mark.few(3)
@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(KILLS))
def test_a_kill_during_a_rewind_leaves_each_file_old_or_new(tmp_path: Path, seed: int) -> None:
    """No file is half, the store verifies, and the next rewind gives the whole tree."""
    case = Case(tmp_path)
    old, new = two_states(case)
    paths = sorted(old.keys() | new.keys())
    first = case.checkpoints().save(paths)
    set_state(case, new)
    second = case.checkpoints().save(paths, parent=first.id)
    (tmp_path / "points").write_bytes(msgspec.json.encode([first, second]))
    killed_at_random(
        """
        import msgspec, pathlib, sys
        from thence.journal.checkpoint import Checkpoint, Checkpoints
        store, root = map(pathlib.Path, sys.argv[1:])
        read = (root.parent / "points").read_bytes()
        points = msgspec.json.decode(read, type=list[Checkpoint])
        print("ready", flush=True)
        while True:
            for point in points:
                Checkpoints(store, root).rewind(point, [])
        """,
        case,
        seed,
    )

    assert_old_or_new(case, old, new)
    assert_whole(case.store)
    case.checkpoints().rewind(first, [second])
    assert_old_or_new(case, old, old)


@pytest.mark.slow
@pytest.mark.sampled
def test_a_big_file_is_never_whole_in_memory(tmp_path: Path) -> None:
    """Saving, planning and rewinding hold a few blocks, however long the file is."""
    case = Case(tmp_path)
    with case.write("big").open("wb") as file:
        file.truncate(BIG)
        file.write(os.urandom(1 << 20))
    code = """
        import os, pathlib, sys
        from thence.journal.checkpoint import Checkpoints
        store, root = map(pathlib.Path, sys.argv[1:])
        def most():
            lines = pathlib.Path("/proc/self/status").read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
        checkpoints = Checkpoints(store, root)
        checkpoints.save(["none"])
        before = most()
        point = checkpoints.save(["big"])
        with (root / "big").open("r+b") as file:
            file.write(b"changed")
        rewound = checkpoints.rewind(point, [])
        print(rewound.changes[0].what, rewound.changes[0].diff)
        print(most() - before)
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), case.store, case.root],
        check=True,
        capture_output=True,
        text=True,
    )
    shown, grown = done.stdout.splitlines()

    assert f"write large, {BIG} → {BIG} bytes" == shown
    assert int(grown) < 16 << 10
    assert BIG == (case.root / "big").stat().st_size


# -- differences ----------------------------------------------------------------------------


def patched(folder: Path, old: bytes, diff: str) -> bytes:
    """Apply a diff with the system's own tool."""
    (folder / "file").write_bytes(old)
    subprocess.run(
        ["git", "apply", "--unidiff-zero", "-p0", "-"],
        input=diff.encode(),
        cwd=folder,
        check=True,
        env=os.environ | {"GIT_DIR": "/nonexistent"},
    )
    return (folder / "file").read_bytes()


LINES = st.lists(st.sampled_from(["a\n", "b\n", "\n", "c d\n", "é\n"]), min_size=1, max_size=30)


@settings(max_examples=settings().max_examples // 3)
@given(LINES, LINES, st.booleans(), st.booleans())
def test_a_difference_can_be_applied(
    old: list[str], new: list[str], cut_old: bool, cut_new: bool
) -> None:
    """What is shown is exactly what is changed: git makes the one of the other with it."""
    a = "".join(old).encode() + (b"end" if cut_old else b"")
    b = "".join(new).encode() + (b"end" if cut_new else b"")
    with TemporaryDirectory() as folder:
        made = patched(Path(folder), a, difference("file", a, b)) if a != b else b

    assert b == made


def test_only_what_differs_is_compared() -> None:
    """A small edit in a long file is shown as such, with its line number."""
    lines = [f"{number}\n" for number in range(100_000)]
    old = "".join(lines).encode()[: DIFF_LIMIT_BYTES - 1]
    diff = difference("x", old, old.replace(b"\n50000\n", b"\nfifty\n"))

    assert "@@ -49998,7 +49998,7 @@" in diff
    assert 12 > diff.count("\n")


def test_what_would_take_too_long_to_compare_is_a_phrase() -> None:
    """Two files with nothing in common are told by their lines."""
    old = b"".join(b"a%d\n" % (number % 50) for number in range(5000))
    new = b"".join(b"b%d\n" % (number % 50) for number in range(5000))

    assert "text, 5000 → 5000 lines from line 1 on" == difference("x", old, new)
    assert "text, 20000 → 191 lines from line 1 on" == difference(
        "x", b"x\n\n" * 10_000, b"\n" * 190 + b"x"
    )


# -- the model ------------------------------------------------------------------------------

PATHS = ["a", "b", "d/e", "d/f g", "x/y/z\n", os.fsdecode(b"\xff")]

Action = Callable[[Case, Tree], None]


def act(case: Case, model: Tree, path: str, content: bytes | None, mode: int) -> None:
    """Write or delete a file, in the workspace and in the model."""
    if content is None:
        model.pop(path, None)
        (case.root / path).unlink(missing_ok=True)
    else:
        model[path] = content, mode
        case.write(path, content, mode)


EDIT = st.tuples(
    st.sampled_from(PATHS),
    st.one_of(st.none(), st.sampled_from([b"", b"one\n", b"two\n", b"\0\xff"])),
    st.sampled_from([0o644, 0o755, 0o400]),
)
ACTIONS = st.lists(
    st.one_of(EDIT, EDIT, st.sets(st.sampled_from(PATHS)).map(sorted)), min_size=1, max_size=25
)


@given(ACTIONS, st.integers(0, 99))
def test_a_rewind_gives_what_a_model_gives(actions: list[Any], which: int) -> None:
    """After any edits and checkpoints, any of them can be gone back to, and forth again."""
    model: Tree = {}
    points: list[Checkpoint] = []
    trees: list[Tree] = []
    with TemporaryDirectory() as folder:
        case = Case(Path(folder))
        checkpoints = case.checkpoints()
        for action in [*actions, PATHS[:1]]:
            if isinstance(action, list):
                points.append(checkpoints.save(action))
                trees.append(dict(model))
            else:
                act(case, model, *action)
        target = which % len(points)
        expected = dict(model)
        for path in PATHS:
            for point, tree in zip(points[target:], trees[target:], strict=True):
                if path in {saved.path for saved in point.files}:
                    expected.pop(path, None)
                    expected |= {path: tree[path]} if path in tree else {}
                    break

        rewound = checkpoints.rewind(points[target], points[target + 1 :])
        after = case.tree()
        again = checkpoints.rewind(points[target], points[target + 1 :])
        if rewound.before is not None:
            checkpoints.rewind(rewound.before, [])

        assert expected == after
        assert {"leave"} >= set(whats(again.changes).values())
        assert model == case.tree()
