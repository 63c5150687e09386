"""Where machines meet: a folder here or by ssh, a git remote, an object store.

A place holds bundles by names of 32 hexadecimal digits. A bundle appears whole or not at all, is
never changed, and whatever else lies there is left alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from thence import config
from thence.agents.files import read_small
from thence.bridge import git
from thence.bridge.sync_bundles import BUNDLE_NAME, MAX_BUNDLE_BYTES
from thence.bridge.sync_ssh import SshPlace, is_ssh_folder
from thence.errors import NotReadable

if TYPE_CHECKING:
    from thence.team.objects import Bucket

_BUCKETS: Final = ("s3://", "s3a://", "gs://", "az://", "azure://", "abfs://", "file://")
_GIT: Final = re.compile(r"git\+.+|git://.+|ssh://.+|https?://.+|[\w.-]+@[\w.-]+:.+|.+\.git/?")
_BRANCH: Final = "refs/heads/thence"
_FETCHED: Final = "refs/thence/fetched"
_TRIES: Final = 20  # two machines that push in turn; each try fetches what the other has pushed
GIT_TIMEOUT_S: Final = 300.0


class SyncPlace(Protocol):
    """A shared place."""

    def names(self) -> set[str]:
        """Return the names of all bundles that are there now."""

    def read(self, name: str) -> bytes | None:
        """Return a bundle; None when it is gone, or larger than any bundle."""

    def write(self, name: str, body: bytes) -> None:
        """Add a bundle, durable and visible to others on return; nothing if it is there."""

    def remove(self, names: Sequence[str]) -> None:
        """Remove bundles; those that are gone already do not matter."""


def place_at(target: str, work: Path) -> SyncPlace:
    """Return the place at an address; `work` is a folder of this home for what it needs."""
    if target.startswith(_BUCKETS):
        return BucketPlace(target)
    path = Path(target).expanduser()
    if path.is_dir():
        is_bare = (path / "HEAD").is_file() and (path / "objects").is_dir()
        return GitPlace(str(path.resolve()), work) if is_bare else FolderPlace(path.resolve())
    if is_ssh_folder(target):
        return SshPlace(target)
    if _GIT.fullmatch(target):
        return GitPlace(target.removeprefix("git+"), work)
    return FolderPlace(path.resolve())


def _is_bundle(name: str, size: int) -> bool:
    """Return whether something that lies in a place may be a bundle."""
    return BUNDLE_NAME.fullmatch(name) is not None and size <= MAX_BUNDLE_BYTES


def absolute_target(target: str) -> str:
    """Return an address that means the same in every folder."""
    is_path = not target.startswith(_BUCKETS) and "://" not in target and ":" not in target
    return str(Path(target).expanduser().resolve()) if is_path else target


class FolderPlace:
    """A folder of this machine that some tool synchronises, or a mounted disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        if not folder.is_dir():
            raise NotReadable(
                f"no such folder: {folder}", hint="create it, or mount the disk that holds it"
            )

    def names(self) -> set[str]:
        """Return the names of all bundles that are there now."""
        return {name for name in os.listdir(self._folder) if BUNDLE_NAME.fullmatch(name)}  # noqa: PTH208

    def read(self, name: str) -> bytes | None:
        """Return a bundle; None when it is gone."""
        return read_small(str(self._folder / name), MAX_BUNDLE_BYTES)

    def write(self, name: str, body: bytes) -> None:
        """Add a bundle, durable and visible to others on return; nothing if it is there."""
        path = self._folder / name
        if not path.exists():
            with config.replacing(path) as file:
                file.write(body)

    def remove(self, names: Sequence[str]) -> None:
        """Remove bundles; those that are gone already do not matter."""
        for name in names:
            (self._folder / name).unlink(missing_ok=True)


class BucketPlace:
    """An object store."""

    def __init__(self, url: str) -> None:
        from thence.team.objects import shelf_at

        self._url = url
        self._bucket: Bucket = shelf_at(url)

    def names(self) -> set[str]:
        """Return the names of all bundles that are there now."""
        with self._errors():
            sizes = self._bucket.sizes("")
        return {name for name, size in sizes.items() if _is_bundle(name, size)}

    def read(self, name: str) -> bytes | None:
        """Return a bundle; None when it is gone."""
        from thence.team.objects import ObjectAbsent

        with self._errors():
            try:
                return self._bucket.read_versioned(name)[0]
            except ObjectAbsent:
                return None

    def write(self, name: str, body: bytes) -> None:
        """Add a bundle, durable and visible to others on return; nothing if it is there."""
        from thence.team.objects import ObjectAbsent

        with self._errors():
            try:
                self._bucket.get(name, 0, 1)
            except ObjectAbsent:
                self._bucket.put(name, body)

    def remove(self, names: Sequence[str]) -> None:
        """Remove bundles; those that are gone already do not matter."""
        with self._errors():
            self._bucket.delete(names)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from thence.team.objects import BackendError

        try:
            yield
        except BackendError as error:
            raise NotReadable(f"{self._url}: {error}", hint="is it reachable from here?") from error


class GitPlace:
    """A branch of a git remote, one file for each bundle.

    The clone of this home has no work tree, so no hook, filter or setting of the remote runs here.
    """

    def __init__(self, remote: str, work: Path) -> None:
        self._remote = remote
        self._folder = work / "git"
        if not (self._folder / "HEAD").is_file():
            config.make_private(work)
            self._git("init", "--quiet", "--bare")
        self._is_fresh = False

    def names(self) -> set[str]:
        """Return the names of all bundles that are there now."""
        self._fetch()
        return set(self._tree())

    def read(self, name: str) -> bytes | None:
        """Return a bundle; None when it is gone."""
        if not self._is_fresh:
            self._fetch()
        blob = self._tree().get(name)
        return self._git("cat-file", "blob", blob) if blob else None

    def write(self, name: str, body: bytes) -> None:
        """Add a bundle, durable and visible to others on return; nothing if it is there."""
        blob = self._git("hash-object", "-w", "--stdin", body=body).decode().strip()
        self._publish(lambda tree: tree.setdefault(name, blob))

    def remove(self, names: Sequence[str]) -> None:
        """Remove bundles; those that are gone already do not matter."""

        def drop(tree: dict[str, str]) -> None:
            for name in names:
                tree.pop(name, None)

        self._publish(drop)

    def _publish(self, change: Callable[[dict[str, str]], object]) -> None:
        """Change the branch of the remote; what others wrote meanwhile stays."""
        for _ in range(_TRIES):
            if not self._is_fresh:
                self._fetch()
            before = self._tree()
            tree = dict(before)
            change(tree)
            if tree == before:
                return
            commit = self._commit(tree)
            if self._push(commit):
                self._git("update-ref", _FETCHED, commit)
                return
            self._is_fresh = False
        raise NotReadable(
            f"{self._remote} refuses what is pushed to it",
            hint="may you push there? try again: other machines may be writing now",
        )

    def _commit(self, tree: dict[str, str]) -> str:
        listing = "".join(f"100644 blob {blob}\t{name}\n" for name, blob in sorted(tree.items()))
        made = self._git("mktree", body=listing.encode()).decode().strip()
        parent = self._tip()
        parents = ["-p", parent] if parent else []
        return self._git("commit-tree", made, *parents, "-m", "thence").decode().strip()

    def _push(self, commit: str) -> bool:
        try:
            refs = f"{commit}:{_BRANCH}"
            self._git("push", "--quiet", "--no-verify", self._remote, refs, asks_remote=True)
        except NotReadable:  # another machine was first: fetch, then try again
            return False
        return True

    def _fetch(self) -> None:
        listed = self._git("ls-remote", self._remote, _BRANCH, asks_remote=True)
        if listed.strip():
            words = ("--quiet", "--no-tags", self._remote, f"+{_BRANCH}:{_FETCHED}")
            self._git("fetch", *words, asks_remote=True)
        self._is_fresh = True

    def _tip(self) -> str | None:
        try:
            return self._git("rev-parse", "--verify", "--quiet", _FETCHED).decode().strip()
        except NotReadable:  # nothing was pushed yet
            return None

    def _tree(self) -> dict[str, str]:
        """Return the blobs of the branch by their names."""
        tip = self._tip()
        if tip is None:
            return {}
        out = {}
        for line in self._git("ls-tree", "-l", tip).decode("utf-8", "replace").splitlines():
            about, _, name = line.partition("\t")
            _, kind, blob, size = about.split()
            if kind == "blob" and _is_bundle(name, int(size)):
                out[name] = blob
        return out

    def _git(self, *words: str, body: bytes = b"", asks_remote: bool = False) -> bytes:
        """Run git on our own clone; NotReadable with what it says where it fails."""
        return git.run(
            self._folder, *words, body=body, timeout_s=GIT_TIMEOUT_S, asks_remote=asks_remote
        )
