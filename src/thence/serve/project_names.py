"""Names of projects: the shortest end of a path that no other project has.

Logs are hostile: which folder is a work tree is told by its path alone, and no folder that a log
names is looked at.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

from thence.format.figures import clean
from thence.serve.context import AppContext

MAX_AGE_S: Final = 10.0
"""Seconds for which labels are used again."""

_WORKTREE: Final = re.compile(
    r"[\\/](?:\.claude[\\/]worktrees|\.worktrees|\.git[\\/]worktrees)[\\/].*"
)
_LABELS: WeakKeyDictionary[AppContext, tuple[float, dict[str, str]]] = WeakKeyDictionary()


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
    now = time.monotonic()
    known = _LABELS.get(context)
    if known is None or now - known[0] > MAX_AGE_S:
        folders = {project_root(total.key[0] or "") for total in context.store.totals(["project"])}
        known = now, unique_labels(sorted(folders - {""}))
        _LABELS[context] = known
    root = project_root(folder or "")
    return known[1].get(root) or (unique_labels([root])[root] if root else "")
