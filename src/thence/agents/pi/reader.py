"""Sessions of pi: one log per session, a tree of entries.

Logs lie in `sessions/<folder of the project>/<time>_<uuid>.jsonl`, or flat in a folder of the
user's own. The uuid in the name is the session. A log appears with the first answer of the model:
a prompt that was never answered leaves nothing. `auth.json`, `models.json` and `settings.json`
are never opened. pi deletes nothing by itself and does not list running sessions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from thence.agents import Source, files
from thence.agents.pi.names import session_in
from thence.agents.records import (
    QuietAgent,
    Record,
    first_records,
    folder_above,
    named_sources,
    text,
)

SESSIONS = "sessions"

_LOG = ".jsonl"
_MAX_DEPTH = 2


class Pi(QuietAgent):
    """The reader of pi's sessions."""

    name = "pi"
    looks_for = "sessions/*/TIME_ID.jsonl"
    opens = "thence.agents.pi.entries:PiEntries"

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Return pi's own folder, and the one that its users may have named for sessions."""
        variables = ("PI_CODING_AGENT_DIR", "PI_CODING_AGENT_SESSION_DIR")
        own, logs = ([Path(named).expanduser()] if (named := env.get(v)) else [] for v in variables)
        return list(dict.fromkeys([*own, home / ".pi" / "agent", *logs]))

    def find(self, root: Path) -> Iterator[Source]:
        """Yield all sessions below pi's folder, or in a folder of logs."""
        place = str(root)
        base = f"{place}/{SESSIONS}"
        logs = _logs(base, _MAX_DEPTH) if os.path.isdir(base) else _logs(place, _MAX_DEPTH - 1)  # noqa: PTH112
        return named_sources(self.name, logs, place)

    def at(self, path: Path) -> Source | None:
        """Return the session that a log belongs to, wherever it lies."""
        if path.suffix != ".jsonl" or path.is_symlink() or not path.is_file():
            return None
        if not any(map(_is_header, first_records(str(path))[:1])):
            return None
        # Of a log elsewhere it is the folder that the log lies in.
        root = folder_above(path, SESSIONS, steps=_MAX_DEPTH + 1) or path.parent
        if (source := self.holder(root, path)) is not None:
            return source
        session = _session_of(path.name, str(path))
        return next(named_sources(self.name, [(session, str(path))], str(root)))


def _logs(folder: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield session and path of each log in a folder; names decide, else the first line."""
    for entry in files.walk(folder, depth):
        name = entry.name
        if not name.endswith(_LOG):
            continue
        if session := session_in(name):
            yield session, entry.path
        elif any(map(_is_header, first_records(entry.path)[:1])):
            yield _session_of(name, entry.path), entry.path


def _session_of(name: str, path: str) -> str:
    """Return the session of a log: by its name, else by its first line."""
    if session := session_in(name):
        return session
    header = next(iter(first_records(path)), {})
    return text(header.get("id")) or name.removesuffix(_LOG)


def _is_header(value: Record) -> bool:
    """Return whether a record is the first one of a log of pi's."""
    if value.get("type") != "session" or not isinstance(value.get("timestamp"), str):
        return False
    return isinstance(value.get("cwd"), str) or isinstance(value.get("id"), str)
