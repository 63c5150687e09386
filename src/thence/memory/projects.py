"""Which repository a folder belongs to, by looking at names alone: git is never run.

A repository may hold settings that run programs when git is asked about it, so nothing here asks
git. Files are opened read-only and only a line of each is read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

MAX_LEVELS: Final = 64
"""How many folders above a folder are looked at."""
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
    try:
        with pointer.open("rb") as file:
            line = file.read(MAX_POINTER_BYTES).decode("utf-8", "replace").split("\n")[0]
    except OSError:
        return None
    key, _, target = line.partition(":")
    if key != "gitdir":
        return None
    parts = Path(os.path.normpath(pointer.parent / target.strip())).parts
    if len(parts) < 4 or parts[-2] != "worktrees" or parts[-3] != ".git":
        return None
    return Path(*parts[:-3])
