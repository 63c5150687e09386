"""Folders that were moved: which of those that sessions name are the same repository.

A home notes which repository it saw in which folder (`folders.json`). When a folder is gone, and
another one here has the same git remote, or the same first commit where one of them has no remote,
the sessions of the old one count as the new one's. What git cannot tell, the user can:
`thence project merge`. A session keeps the folder its log names; only what it counts as changes,
so that nothing is lost and all of it can be taken back.

Logs name folders, and logs are hostile: only folders of this user are looked into, read-only, a
bounded part of a few files. The first commit is asked of the system's git with nothing of the
repository that could run a program; without git it is left out.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from thence import config, system
from thence.agents import Cursor
from thence.bridge import git
from thence.bridge.sync_bundles import FolderSeen
from thence.errors import ThenceError
from thence.memory.projects import git_folder, remote_of, repository_of
from thence.memory.store import Filter, SessionChange, Store

FILE: Final = "folders.json"
GIT_TIMEOUT_S: Final = 2.0
"""How long the first commit is waited for; of a larger history it is left out."""
LOOK_LIMIT_S: Final = 5.0
"""How long folders are looked at together, at one time."""


class Repository(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a repository is known by, and where it was."""

    top: str
    """Its main work tree."""
    remote: str = ""
    root: str = ""
    """Its first commit."""

    def is_same(self, other: Repository | FolderSeen) -> bool:
        """Whether two are clones of one another, or the same one in two places."""
        if self.remote and other.remote:
            return self.remote == other.remote
        return bool(self.root) and self.root == other.root


class FolderBook(msgspec.Struct):
    """What a home knows of folders."""

    seen: dict[str, Repository] = {}
    """The repository of each folder in which there was one."""
    merged: dict[str, str] = {}
    """Folders that the user merged into others."""
    applied: dict[str, str] = {}
    """What folders counted as when that was looked at last."""

    def sightings(self) -> list[FolderSeen]:
        """Return what other machines are told of folders of this one."""
        return [FolderSeen(path, *_fields(repository)) for path, repository in self.seen.items()]


def _fields(repository: Repository) -> tuple[str, str, str]:
    return repository.top, repository.remote, repository.root


def read_book(home: Path) -> FolderBook:
    """Return what a home knows of folders; nothing where that is lost."""
    try:
        return msgspec.json.decode((home / FILE).read_bytes(), type=FolderBook)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        # What it says is found again; a broken one must not stop a sync.
        return FolderBook()


def save_book(home: Path, book: FolderBook) -> None:
    """Write what a home knows of folders, durable on return."""
    config.make_private(home)
    with config.replacing(home / FILE) as file:
        file.write(msgspec.json.encode(book))


def look(folder: str, known: Repository | None = None) -> Repository | None:
    """Return the repository of a folder of this user; None where there is none."""
    path = Path(folder)
    if not path.is_absolute() or not is_own_folder(path):
        return None
    top = repository_of(path)
    repository = git_folder(top)
    if repository is None or not is_own_folder(repository):
        return None
    remote = remote_of(repository)
    is_known = known is not None and (known.top, known.remote) == (str(top), remote)
    if is_known and known is not None and (known.root or remote):
        return known  # the first commit of a repository stays
    return Repository(str(top), remote, _root_commit(repository))


def is_own_folder(path: Path) -> bool:
    """Whether a path is a folder of this user."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == system.owner_id()


def _root_commit(folder: Path) -> str:
    """Return the first commit of a repository; empty where that cannot be told."""
    try:
        listed = git.run(folder, "rev-list", "--max-parents=0", "HEAD", timeout_s=GIT_TIMEOUT_S)
    except ThenceError:  # a git that hangs or is missing: the folder has no first commit then
        return ""
    return min(listed.decode("ascii", "replace").split(), default="")


# -- which folder counts as which -------------------------------------------------------------


def remember(book: FolderBook, folders: Iterable[str], clean: Callable[[str], str]) -> None:
    """Note the repositories of folders; those that take too long wait for the next time.

    All of it passes the gate, `clean`; a folder with a secret in its name has none to be found by.
    """
    end = time.monotonic() + LOOK_LIMIT_S
    for folder in folders:
        known = book.seen.get(folder)
        repository = look(folder, known)
        if repository is not None and repository != known:
            paths = folder, repository.top
            if paths == tuple(map(clean, paths)):
                remote = clean(repository.remote)
                book.seen[folder] = msgspec.structs.replace(repository, remote=remote)
        if time.monotonic() > end:
            return


def folder_map(
    book: FolderBook, folders: Iterable[str], elsewhere: Sequence[FolderSeen] = ()
) -> dict[str, str]:
    """Return what folders count as, for those that do not count as themselves.

    `elsewhere` is what other machines say of their folders.
    """
    known = list(folders)
    out = _same_places(known)
    there = {sighting.path: sighting for sighting in elsewhere}
    tops = _present_tops(book)
    for folder in known:
        if folder not in out and folder and not is_folder(folder):
            home = _moved_to(folder, book.seen.get(folder) or there.get(folder), tops)
            if home is not None:
                out[folder] = home
    for folder in known:
        end = _followed(folder, book.merged, out)
        if end != folder:
            out[folder] = end
    return out


def is_folder(folder: str) -> bool:
    """Whether a folder is there."""
    try:
        return Path(folder).is_dir()
    except (OSError, ValueError):
        return False


def _present_tops(book: FolderBook) -> list[Repository]:
    """Return the repositories that are where they were seen, the last seen first."""
    tops = {
        repository.top: repository for repository in book.seen.values() if is_folder(repository.top)
    }
    return list(reversed(tops.values()))


def _moved_to(
    folder: str, was: Repository | FolderSeen | None, tops: Sequence[Repository]
) -> str | None:
    """Return where the repository of a folder that is gone is now."""
    if was is None:
        return None
    for top in tops:
        if top.is_same(was):
            below = os.path.relpath(folder, was.top)
            inside = os.path.normpath(Path(top.top) / below)
            is_inside = not below.startswith("..") and is_folder(inside)
            return inside if is_inside else top.top
    return None


def _same_places(folders: Sequence[str]) -> dict[str, str]:
    """Return the names of folders that are other names of one: links, or another case."""
    groups: dict[tuple[int, int], list[str]] = {}
    for folder in folders:
        with suppress(OSError, ValueError):  # not there any more: it is the same as no other
            status = Path(folder).stat()
            groups.setdefault((status.st_dev, status.st_ino), []).append(folder)
    out: dict[str, str] = {}
    for names in groups.values():
        if len(names) > 1:
            own = max(names, key=_is_own_name)
            out |= {name: own for name in names if name != own}
    return out


def _is_own_name(folder: str) -> tuple[bool, bool, str]:
    """Order names of one folder: that under which its parent lists it, and no link, is the last."""
    path = Path(folder)
    try:
        is_listed = path.name in os.listdir(path.parent)  # noqa: PTH208 - names alone
        return os.path.realpath(path) == folder, is_listed, folder
    except OSError:
        return False, False, folder


def _followed(folder: str, merged: Mapping[str, str], moved: Mapping[str, str]) -> str:
    """Return where merges and moves lead, however many; a circle ends where it began."""
    passed = {folder}
    while True:
        after = merged.get(folder) or moved.get(folder) or folder
        if after in passed:
            return folder
        passed.add(after)
        folder = after


def refresh(
    home: Path,
    store: Store,
    clean: Callable[[str], str],
    *,
    here: str = "",
    elsewhere: Sequence[FolderSeen] = (),
) -> FolderBook:
    """Look where folders are now, and let sessions count as those; returns what is known of them.

    What is noted passes the gate, `clean`. The caller holds the lock of sweeps.
    """
    book = read_book(home)
    before = msgspec.json.encode(book)
    folders = {total.key[0] or "" for total in store.totals(["project"])}
    known = sorted(folders - {""}, key=lambda folder: (folder in book.seen, folder))
    remember(book, [here, *known] if here else known, clean)
    named = folders | book.applied.keys() | book.merged.keys()
    mapping = folder_map(book, sorted(named - {""}), elsewhere)
    _apply(store, mapping, {*mapping, *mapping.values(), *book.applied.values()} & folders)
    book.applied = mapping
    if msgspec.json.encode(book) != before:
        save_book(home, book)
    return book


def _apply(store: Store, mapping: Mapping[str, str], projects: Iterable[str]) -> None:
    """Let the sessions of some projects count as the folders they belong to now."""
    known = None
    changes = []
    for project in sorted(projects):
        for row in store.sessions(Filter(project=project)):
            new = mapping.get(row.session.cwd or "")
            if row.folder == project and row.project != new:
                known = known if known is not None else store.known().sessions
                uid = row.session.session_uid
                cursor = known[uid].cursor if uid in known else Cursor()
                changes.append(SessionChange(msgspec.structs.replace(row, project=new), cursor))
    if changes:
        store.write(changes)
