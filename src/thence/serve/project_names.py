"""Names of projects: the shortest end of a path that no other project has.

Logs are hostile: which folder is a work tree is told by its path alone, and no folder that a log
names is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from thence.format.figures import clean
from thence.serve.context import AppContext

MAX_AGE_S: Final = 10.0
"""Seconds for which labels are used again."""

_WORKTREE: Final = re.compile(
    r"[\\/](?:\.claude[\\/]worktrees|\.worktrees|\.git[\\/]worktrees)[\\/].*"
)


def project_root(folder: str) -> str:
    """Return the folder of the repository that a folder belongs to, as far as its path tells."""
    root = _WORKTREE.sub("", folder)
    return root.rstrip("/\\") or root


def unique_labels(paths: Sequence[str]) -> dict[str, str]:
    """Return the shortest end of each path that no other path has."""
    parts = {path: [part for part in re.split(r"[\\/]", path) if part] for path in paths}
    depths = dict.fromkeys(paths, 1)
    for _ in range(12):
        groups: dict[str, list[str]] = {}
        for path in paths:
            groups.setdefault("/".join(parts[path][-depths[path] :]), []).append(path)
        alike = [path for group in groups.values() if len(group) > 1 for path in group]
        longer = [path for path in alike if depths[path] < len(parts[path])]
        if not longer:
            break
        for path in longer:
            depths[path] += 1
    return {path: clean("/".join(parts[path][-depths[path] :]) or path)[-60:] for path in paths}


def project_label(context: AppContext, folder: str | None) -> str:
    """Return the name of the project that a folder belongs to; empty when there is no folder."""

    def read() -> dict[str, str]:
        folders = {project_root(total.key[0] or "") for total in context.store.totals(["project"])}
        return unique_labels(sorted(folders - {""}))

    root = project_root(folder or "")
    known = context.cached(project_label, read, seconds=MAX_AGE_S)
    return known.get(root) or (unique_labels([root])[root] if root else "")
