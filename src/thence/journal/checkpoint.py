"""Contents of files saved before an edit, and the way back to them.

A checkpoint holds, for each path it covers, what stood there: bytes, permission bits, or nothing.
Returning to one gives every path that it or a later one covers the earliest content saved since;
what was absent is removed. Promises, each with a test: files that no checkpoint covers are left
alone; a checkpoint is durable before `save` returns, and a failed one touches nothing; a rewind
first saves what it will change; a kill leaves each file old or new, never half; content that does
not verify is never written; one file that cannot go back does not keep the others.

The workspace is reached through open folders only, one component at a time, and no link is ever
followed. A checkpoint read from a log is as hostile as the log: its paths are checked again.

A file goes back by rename: other hard links keep what they have, and extended attributes, times,
setuid bits and folders' modes are not kept. Folders that a removed file leaves empty stay.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Literal, NoReturn

import msgspec

from thence.errors import ThenceError, remedy
from thence.format.records import JSON
from thence.journal.blobs import FOLDER, READ, Blobs, Moving, Scratch, stamp, steady, tidy
from thence.journal.log import DISK, Disk

READ_ATTEMPTS = 3  # times that a file which changes while it is read is read
MAX_PATH_BYTES = 4096  # bytes of a path; what is longer can only be meant to exhaust something
DIFF_LIMIT_BYTES = 1 << 20
"""Bytes of a file up to which its lines are compared."""

DIFF_PAIRS, DIFF_TWINS = 4_000_000, 100_000
"""Pairs of lines, and of equal ones, up to which the differing middles are compared."""

What = Literal["write", "remove", "mode", "leave", "cannot"]

MAKING: tuple[What, ...] = ("remove", "write", "mode")
"""What a rewind does, in the order it does it."""

_INSIDE = "a checkpoint covers regular files inside the workspace, reached without links"


class SavedFile(msgspec.Struct, frozen=True):
    """One path as it was: relative to the workspace, in POSIX form. FROZEN: it is in the log."""

    path: str
    blob: str | None
    """SHA-256 of the content; None when there was no file."""
    mode: int | None
    size: int
    kind: Literal["file", "absent"]


class Checkpoint(msgspec.Struct, frozen=True):
    """Files as they were at one time. FROZEN: it is the payload of an event."""

    id: str
    """Hash of the files and of the parent's id."""
    files: tuple[SavedFile, ...]
    parent: str | None

    @property
    def payload(self) -> JSON:
        """The same as plain JSON: a list where `msgspec.to_builtins` would leave a tuple."""
        files = [msgspec.structs.asdict(saved) for saved in self.files]
        return {"id": self.id, "files": files, "parent": self.parent}


class FileChange(msgspec.Struct, frozen=True):
    """What a rewind does, or would do, to one path, and why."""

    path: str
    what: What
    diff: str | None = None
    """From what is there now to what will be; a phrase where lines would not help."""
    reason: str = ""


class RewindResult(msgspec.Struct, frozen=True):
    """What a rewind did. Rewinding to `before` takes it back; None when nothing was changed."""

    changes: tuple[FileChange, ...]
    before: Checkpoint | None


class _Step(msgspec.Struct, frozen=True):
    """A change with what is needed to make it."""

    change: FileChange
    saved: SavedFile
    seen: tuple[int, ...] | None = None
    """What stood there when the plan was made; None when nothing did."""


def checkpoint_id(files: Iterable[SavedFile], parent: str | None) -> str:
    """Name a checkpoint after what it holds. ASCII JSON: it has a form for names of any bytes."""
    rows = [msgspec.structs.astuple(saved) for saved in sorted(files, key=lambda f: f.path)]
    return sha256(json.dumps([parent, rows], separators=(",", ":")).encode()).hexdigest()


def files_to_restore(target: Checkpoint, later: Sequence[Checkpoint]) -> dict[str, SavedFile]:
    """For each covered path the earliest content at or after the target, in order of path."""
    first: dict[str, SavedFile] = {}
    for checkpoint in (target, *later):
        for saved in checkpoint.files:
            first.setdefault(saved.path, saved)
    return dict(sorted(first.items()))


# -- the workspace --------------------------------------------------------------------------


class _Workspace:
    """The files below one folder. Paths are relative to it; none is looked up as a whole."""

    def __init__(self, root: Path, closed: Sequence[Path], disk: Disk) -> None:
        self._roots = PurePosixPath(root.absolute()), PurePosixPath(root.resolve())
        self._closed = closed
        self._disk = disk

    def path(self, path: Path | str) -> str:
        """Write a path as we do, or refuse it."""
        text = os.fspath(path)
        try:
            writable = b"\0" not in (raw := os.fsencode(text)) and len(raw) < MAX_PATH_BYTES
        except UnicodeEncodeError:
            writable = False
        if not writable:
            _refuse(text, "is not a valid file name")
        pure = PurePosixPath(text)
        if ".." in pure.parts:
            _refuse(text, "leads upwards")
        if pure.is_absolute():
            root = next((root for root in self._roots if pure.is_relative_to(root)), None)
            if root is None:
                _refuse(text, "is outside the workspace")
            pure = pure.relative_to(root)
        if not pure.parts:
            _refuse(text, "is the workspace itself")
        return pure.as_posix()

    @contextlib.contextmanager
    def folder(
        self, path: str, *, make: bool = False, gone: frozenset[str] = frozenset()
    ) -> Iterator[int | None]:
        """Open the folder a path is in; None when there is none and it is not to be made.

        What stands on the way and is in `gone` counts as no longer there.
        """
        names = path.split("/")[:-1]
        with contextlib.ExitStack() as opened:
            folder = self._disk.open(self._roots[1], FOLDER | os.O_NOFOLLOW)
            opened.callback(self._disk.close, folder)
            self._admit(path, os.fstat(folder))
            for depth, name in enumerate(names, 1):
                lost = "/".join(names[:depth]) in gone
                inner = None if lost else self._enter(path, folder, name, make=make)
                if inner is None:
                    yield None
                    return
                folder = inner
                opened.callback(self._disk.close, folder)
                self._admit(path, os.fstat(folder))
            yield folder

    def _enter(self, path: str, folder: int, name: str, *, make: bool) -> int | None:
        try:
            there = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            if not make:
                return None
            with contextlib.suppress(FileExistsError):  # another process was as quick
                os.mkdir(name, dir_fd=folder)
            self._disk.fsync(folder)
        else:
            if not stat.S_ISDIR(there.st_mode):
                _refuse(path, f"leads through {_kind(there)}: {name}")
        # Looked at first for a good message; that no link is followed is settled here.
        return self._disk.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=folder)

    def look(self, folder: int, path: str) -> os.stat_result | None:
        """Say what stands at a path: a regular file or nothing; anything else is refused."""
        try:
            here = os.stat(path.rpartition("/")[2], dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        self._admit(path, here, file=True)
        return here

    def _admit(self, path: str, here: os.stat_result, *, file: bool = False) -> None:
        if file and not stat.S_ISREG(here.st_mode):
            _refuse(path, f"is {_kind(here)}")
        for closed in self._closed:
            # Not made yet, so nothing can be in it.
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if os.path.samestat(closed.stat(), here):
                    _refuse(path, "belongs to the session's own records")

    @contextlib.contextmanager
    def file(
        self, path: str, *, gone: frozenset[str] = frozenset()
    ) -> Iterator[tuple[int, os.stat_result] | None]:
        """Open a file to read it; None when it is not there."""
        with _name_failing_file(path), self.folder(path, gone=gone) as folder:
            if folder is None or self.look(folder, path) is None:
                yield None
                return
            handle = self._disk.open(path.rpartition("/")[2], READ, dir_fd=folder)
            try:
                here = os.fstat(handle)
                self._admit(path, here, file=True)
                yield handle, here
            finally:
                self._disk.close(handle)

    def blocks(self, path: str, handle: int, here: os.stat_result) -> Iterator[bytes]:
        """Read an open file, and make sure that it stands still meanwhile."""
        with _name_failing_file(path):
            yield from steady(handle, here, disk=self._disk)


def _kind(here: os.stat_result) -> str:
    kinds = {"-": "a file", "l": "a link", "d": "a folder", "p": "a pipe", "s": "a socket"}
    return kinds.get(stat.filemode(here.st_mode)[0], "a device")


def _refuse(path: str, why: str) -> NoReturn:
    raise ThenceError(f"{_shown(path)} {why}", hint=_INSIDE)


def _shown(path: str) -> str:
    return path if path.isprintable() else json.dumps(path)


@contextlib.contextmanager
def _name_failing_file(path: str) -> Iterator[None]:
    """Turn what the system says about a file into an error that names it."""
    try:
        yield
    except OSError as error:
        raise ThenceError(
            f"{_shown(path)}: {error.strerror or error}",
            hint=f"nothing was done to it; {remedy(error)}, then try again",
        ) from error


# -- checkpoints ----------------------------------------------------------------------------


class Checkpoints:
    """The checkpoints of one workspace, their contents kept in one folder.

    `closed` names further files and folders that no checkpoint may cover: the session's logs,
    which are never rewritten, not even by a rewind.
    """

    def __init__(
        self, folder: Path, workspace: Path, *, closed: Iterable[Path] = (), disk: Disk = DISK
    ) -> None:
        self._blobs = Blobs(folder, disk=disk)
        self._workspace = _Workspace(workspace, (folder, *closed), disk)
        self._disk = disk

    def save(self, paths: Iterable[Path | str], *, parent: str | None = None) -> Checkpoint:
        """Save what stands at these paths now. Durable when it returns."""
        return self._save({self._workspace.path(path) for path in paths}, parent, frozenset())

    def _save(self, paths: set[str], parent: str | None, gone: frozenset[str]) -> Checkpoint:
        files = tuple(self._save_one(path, gone) for path in sorted(paths))
        if any(saved.blob for saved in files):
            self._blobs.sync()
        return Checkpoint(checkpoint_id(files, parent), files, parent)

    def _save_one(self, path: str, gone: frozenset[str]) -> SavedFile:
        for _ in range(READ_ATTEMPTS):
            # It was renamed while we looked; read again below.
            with contextlib.suppress(Moving), self._workspace.file(path, gone=gone) as opened:
                if opened is None:
                    return SavedFile(path, None, None, 0, "absent")
                blob = self._blobs.add(self._workspace.blocks(path, *opened))
                return SavedFile(path, blob.hash, opened[1].st_mode & 0o777, blob.size, "file")
        raise ThenceError(
            f"{_shown(path)} changes while it is read",
            hint="nothing was done to it; see what else writes it, then try again",
        )

    # -- the way back -------------------------------------------------------------------

    def plan(self, target: Checkpoint, later: Sequence[Checkpoint]) -> list[FileChange]:
        """Say what returning to a checkpoint would do; `later` are those after it, oldest first."""
        return [step.change for step in self._steps(target, later)]

    def rewind(
        self,
        target: Checkpoint,
        later: Sequence[Checkpoint],
        *,
        dry_run: bool = False,
        record: Callable[[Checkpoint], None] | None = None,
    ) -> RewindResult:
        """Return the files to a checkpoint.

        `record` is given the checkpoint of what is about to be changed, before anything is: an
        event written there lets a rewind be taken back that was killed half-way.
        """
        steps = self._steps(target, later)
        # Removals first: a file may stand where a folder has to come back.
        doing = [step for what in MAKING for step in steps if step.change.what == what]
        if dry_run or not doing:
            return RewindResult(tuple(step.change for step in steps), None)
        paths, parent = {step.saved.path for step in doing}, (target, *later)[-1].id
        before = self._save(paths, parent, _removed_paths(doing))
        if record is not None:
            record(before)
        failed: dict[str, FileChange] = {}
        tidied: set[str] = set()
        for step in doing:
            path = step.saved.path
            try:
                with _name_failing_file(path):
                    self._apply(step, tidied)
            except ThenceError as error:
                failed[path] = FileChange(path, "cannot", reason=error.message)
        return RewindResult(tuple(failed.get(s.saved.path, s.change) for s in steps), before)

    def _steps(self, target: Checkpoint, later: Sequence[Checkpoint]) -> list[_Step]:
        steps: dict[str, _Step] = {}
        saved = files_to_restore(target, later)
        gone: frozenset[str] = frozenset()
        for kind in ("absent", "file"):
            steps |= {
                path: self._step(state, gone) for path, state in saved.items() if state.kind == kind
            }
            gone = _removed_paths(steps.values())
        return [steps[path] for path in saved]

    def _step(self, saved: SavedFile, gone: frozenset[str]) -> _Step:
        try:
            if self._workspace.path(saved.path) != saved.path:
                _refuse(saved.path, "is no path that we write")
            with self._workspace.file(saved.path, gone=gone) as opened:
                change = self._change(saved, opened)
        except ThenceError as error:  # one file that cannot be restored must not hide the others
            return _Step(FileChange(saved.path, "cannot", reason=error.message), saved)
        return _Step(change, saved, stamp(opened[1]) if opened else None)

    def _change(self, saved: SavedFile, opened: tuple[int, os.stat_result] | None) -> FileChange:
        path, here = saved.path, opened[1] if opened else None
        if saved.kind == "absent":
            if opened is None:
                return FileChange(path, "leave", reason="not there, as before")
            return FileChange(path, "remove", self._diff(saved, opened), "was not there")
        mode = _mode(saved, here)
        if opened is not None and self._same(saved, *opened):
            now = opened[1].st_mode & 0o777
            if now == mode:
                return FileChange(path, "leave", reason="unchanged")
            return FileChange(path, "mode", reason=f"mode {now:03o} → {mode:03o}")
        why = self._blobs.check(saved.blob or "", saved.size)
        if why is not None:
            return FileChange(path, "cannot", reason=why)
        return FileChange(path, "write", self._diff(saved, opened), _why_write(mode, here))

    def _same(self, saved: SavedFile, handle: int, here: os.stat_result) -> bool:
        """Whether a file holds what was saved."""
        if here.st_size != saved.size:
            return False
        hashed = sha256()
        for block in self._workspace.blocks(saved.path, handle, here):
            hashed.update(block)
        return hashed.hexdigest() == saved.blob

    def _diff(self, saved: SavedFile, opened: tuple[int, os.stat_result] | None) -> str:
        now, then = opened[1].st_size if opened else 0, saved.size
        if max(now, then) > DIFF_LIMIT_BYTES:
            return f"large, {now} → {then} bytes"
        old = b"".join(self._workspace.blocks(saved.path, *opened)) if opened else None
        new = self._blobs.load(saved.blob or "", then) if saved.kind == "file" else None
        return difference(saved.path, old, new)

    def _apply(self, step: _Step, tidied: set[str]) -> None:
        path, what = step.saved.path, step.change.what
        above, _, name = path.rpartition("/")
        with self._workspace.folder(path, make=what == "write") as folder:
            if folder is None:
                _refuse(path, "is no longer there")
            if what == "write":
                if above not in tidied:
                    tidied.add(above)
                    tidy(folder, disk=self._disk)
                self._put(folder, name, step)
            elif what == "remove":
                self._status_if_unchanged(folder, step)
                os.unlink(name, dir_fd=folder)
            else:
                self._set_mode(folder, name, step)
            self._disk.fsync(folder)

    def _put(self, folder: int, name: str, step: _Step) -> None:
        """Bring a file back under its name, whole or not at all."""
        saved = step.saved
        with Scratch(folder, disk=self._disk) as scratch:
            for block in self._blobs.read(saved.blob or "", saved.size):
                scratch.write(block)
            here = self._status_if_unchanged(folder, step)
            if here is not None:
                with contextlib.suppress(PermissionError):  # the owner is kept where we may
                    os.fchown(scratch.handle, here.st_uid, here.st_gid)
            scratch.settle(name, mode=_mode(saved, here))

    def _set_mode(self, folder: int, name: str, step: _Step) -> None:
        here = self._status_if_unchanged(folder, step)
        handle = self._disk.open(name, READ, dir_fd=folder)
        try:
            os.fchmod(handle, _mode(step.saved, here))
            self._disk.fsync(handle)
        finally:
            self._disk.close(handle)

    def _status_if_unchanged(self, folder: int, step: _Step) -> os.stat_result | None:
        """Make sure that what is about to go is what was planned for, and so was saved."""
        here = self._workspace.look(folder, step.saved.path)
        if (stamp(here) if here else None) != step.seen:
            _refuse(step.saved.path, "changed while the rewind ran")
        return here


def _removed_paths(steps: Iterable[_Step]) -> frozenset[str]:
    return frozenset(step.saved.path for step in steps if step.change.what == "remove")


def _mode(saved: SavedFile, here: os.stat_result | None) -> int:
    """The permission bits a file gets. Never more: what a log says sets no setuid bit."""
    if saved.mode is not None:
        return saved.mode & 0o777
    return here.st_mode & 0o777 if here else 0o644


def _why_write(mode: int, here: os.stat_result | None) -> str:
    if here is None:
        return "was deleted"
    reasons = ["content differs"]
    if here.st_mode & 0o777 != mode:
        reasons.append(f"mode {here.st_mode & 0o777:03o} → {mode:03o}")
    if here.st_nlink > 1:
        reasons.append(
            f"only this name changes, not the file's {here.st_nlink - 1} other hard links"
        )
    return "; ".join(reasons)


# -- differences ----------------------------------------------------------------------------


def difference(path: str, old: bytes | None, new: bytes | None) -> str:
    """Show two contents as a unified diff, or say in a phrase what lines would not show."""
    a, b = _lines(old), _lines(new)
    if a is None or b is None:
        return f"binary, {len(old or b'')} → {len(new or b'')} bytes"
    # Only what lies between the first and the last difference is compared, and the context.
    top = _alike(a, b)
    bottom = max(_alike(a[top:][::-1], b[top:][::-1]) - 3, 0)
    top = max(top - 3, 0)
    a, b = a[top : len(a) - bottom], b[top : len(b) - bottom]
    twins = Counter(b)
    if len(a) * len(b) > DIFF_PAIRS or sum(twins[line] for line in a) > DIFF_TWINS:
        return f"text, {len(a)} → {len(b)} lines from line {top + 1} on"
    names = ["/dev/null" if side is None else _shown(path) for side in (old, new)]
    out = [f"--- {names[0]}", f"+++ {names[1]}"]
    for group in SequenceMatcher(None, a, b).get_grouped_opcodes():
        (_, i, _, j, _), (_, _, i_end, _, j_end) = group[0], group[-1]
        out.append(f"@@ -{_range(top + i, i_end - i)} +{_range(top + j, j_end - j)} @@")
        for what, i, i_end, j, j_end in group:
            mark = " " if what == "equal" else "-"
            out += [mark + line for line in a[i:i_end]]
            out += ["+" + line for line in b[j:j_end] if what != "equal"]
    return "\n".join(out) + "\n"


def _lines(data: bytes | None) -> list[str] | None:
    """Cut text at LF; None when it is no text."""
    try:
        lines = (data or b"").decode().split("\n")
    except UnicodeDecodeError:  # no text: shown as a change of bytes
        return None
    if "\0" in (last := lines.pop()) or any("\0" in line for line in lines):
        return None
    return [*lines, last + "\n\\ No newline at end of file"] if last else lines


def _alike(a: list[str], b: list[str]) -> int:
    """How many lines two lists begin with alike."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (left, right) in pairs if left != right), min(len(a), len(b)))


def _range(start: int, length: int) -> str:
    return f"{start + (length > 0)},{length}"
