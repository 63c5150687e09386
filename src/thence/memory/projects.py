"""Which repository a folder belongs to, by looking at names alone: git is never run.

A repository may hold settings that run programs when git is asked about it, so nothing here asks
git. Files are opened read-only and a bounded part of each is read.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

MAX_LEVELS: Final = 64
"""How many folders above a folder are looked at."""
MAX_CONFIG_BYTES: Final = 65_536
"""How much is read of the settings of a repository."""
MAX_POINTER_BYTES: Final = 4_096
"""How much is read of a `.git` file; it holds one path."""


def repository_of(folder: Path) -> Path:
    """Return the main work tree of the repository that holds a folder, or the folder itself.

    A linked work tree leads to its main one; a submodule is a repository of its own.
    """
    start = Path(os.path.normpath(folder))
    for place in (start, *list(start.parents)[:MAX_LEVELS]):
        git = place / ".git"
        if git.is_dir():
            return place
        if git.is_file():
            return _main_work_tree(git) or place
    return start


def _main_work_tree(pointer: Path) -> Path | None:
    """Return the main work tree that a `.git` file of a linked work tree points to."""
    target = _pointer_in(pointer)
    parts = target.parts if target is not None else ()
    if len(parts) < 4 or parts[-2] != "worktrees" or parts[-3] != ".git":
        return None
    return Path(*parts[:-3])


def _pointer_in(pointer: Path) -> Path | None:
    """Return the folder that a `.git` file leads to."""
    try:
        with pointer.open("rb") as file:
            line = file.read(MAX_POINTER_BYTES).decode("utf-8", "replace").split("\n")[0]
    except OSError:  # no worktree, or not ours to read
        return None
    key, _, target = line.partition(":")
    return Path(os.path.normpath(pointer.parent / target.strip())) if key == "gitdir" else None


def git_folder(top: Path) -> Path | None:
    """Return the folder in which git keeps a repository, by its main work tree."""
    git = top / ".git"
    if git.is_dir() and not git.is_symlink():
        return git
    target = _pointer_in(git) if git.is_file() else None  # a submodule
    return target if target is not None and target.is_dir() else None


def remote_of(git: Path) -> str:
    """Return where a repository was cloned from, the same for all ways to write that.

    Of several remotes it is origin, else the first by name; empty where there is none.
    """
    try:
        with (git / "config").open("rb") as file:
            text = file.read(MAX_CONFIG_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    remotes: dict[str, str] = {}
    section = ""
    for line in text.splitlines():
        if head := re.fullmatch(_SECTION, line.strip()):
            section = head[1]
        elif section and (entry := re.fullmatch(_URL, line.strip())):
            remotes.setdefault(section, entry[1].strip().strip('"'))
    name = "origin" if "origin" in remotes else min(remotes, default="")
    return plain_remote(remotes.get(name, ""))


def plain_remote(url: str) -> str:
    """Return the address of a remote without scheme, user, password, port and ending.

    `git@host:team/tide.git` and `https://me:secret@HOST/team/tide` are both `host/team/tide`.
    """
    url = url.strip()
    scheme, mark, rest = url.partition("://")
    if not mark:
        if not (short := re.fullmatch(_SCP, url)):
            return os.path.normpath(url) if url else ""
        rest = f"{short[1]}/{short[2].lstrip('/')}"
    elif scheme == "file":
        return os.path.normpath(rest)
    place, _, path = rest.partition("/")
    host = place.rpartition("@")[2].partition(":")[0].lower()
    return f"{host}/{path.strip('/').removesuffix('.git')}"


_SECTION: Final = r'\[remote "([^"\\]{1,200})"\]|\[.*\]'
_URL: Final = r"(?i:url)\s*=\s*(.{1,2000})"
_SCP: Final = r"([^/:]+):(?!\\)(.+)"
