"""Which projects are never captured: patterns of paths, looked at before a file is opened. Pure.

A pattern means a folder and all below it: `~/private`, `/work/*/secret`, `*/clients/*`. Where an
agent spells the project in the name of a folder, that name decides; Claude Code's spelling keeps
letters and digits alone, so that there a pattern may also mean a project whose name differs in
its signs: rather one session too few than one too many.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thence.agents import Source

PEEK_BYTES = 64 << 10
"""Bytes of a log that are looked at for the project, where no name tells it."""

_CWD = rb'"(?:cwd|workingDirectory)"\s*:\s*("(?:[^"\\]|\\.){1,4096}")'


class Exclusion:
    """The patterns of one sweep."""

    def __init__(self, patterns: Iterable[str] = (), home: Path | None = None) -> None:
        start = str(home or Path.home())
        self._patterns = [_expand_home(pattern, start) for pattern in patterns]
        self._spelled = [re.compile(_pattern_of(pattern)) for pattern in self._patterns]

    def __bool__(self) -> bool:
        """Whether there is anything to exclude."""
        return bool(self._patterns)

    def means(self, project: str | None) -> bool:
        """Whether a project is excluded: the folder or one above it fits a pattern."""
        if not project or not self._patterns:
            return False
        path = PurePath(project.replace("\\", "/"))
        folders = [str(path), *map(str, path.parents)]
        return any(fnmatch.fnmatchcase(f, p) for p in self._patterns for f in folders)

    def means_source(self, source: Source) -> bool:
        """Whether the names of folders alone tell that a session is of an excluded project."""
        if not self._patterns:
            return False
        from urllib.parse import unquote  # here: hooks ask about folders alone

        inside = source.path.removeprefix(source.root).replace("\\", "/").split("/")[:-1]
        return any(
            self.means(unquote(name)) or any(p.fullmatch(name) for p in self._spelled)
            for name in inside
            if name
        )


def project_in_head(start: bytes) -> str | None:
    """Return the project that the beginning of a log names first, if it does."""
    match = re.search(_CWD, start)
    if match is None:
        return None
    try:
        return str(json.loads(match[1]))
    except ValueError:
        return None


def _expand_home(pattern: str, home: str) -> str:
    pattern = pattern.replace("\\", "/")
    if pattern == "~" or pattern.startswith("~/"):
        pattern = home + pattern[1:]
    return pattern.rstrip("/") or "/"


def _pattern_of(pattern: str) -> str:
    """Spell a pattern as Claude Code spells projects: what is no letter or digit becomes a dash."""
    parts = [
        ".*" if c == "*" else "." if c == "?" else c if c.isascii() and c.isalnum() else "-"
        for c in pattern
    ]
    return "".join(parts) + "(?:-.*)?"
