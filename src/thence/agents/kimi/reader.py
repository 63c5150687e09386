"""Sessions of Kimi Code: a folder each, with a log per agent.

`sessions/<workspace>/session_<uuid>/agents/<agent>/wire.jsonl` are the logs; that of `main` is the
session's own. `state.json` has the folder, the title and the session it was forked from.
Credentials and `config.toml` are never opened. Kimi Code deletes nothing by itself and does not
list running sessions. Sessions of its predecessor, kimi-cli, are not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from thence.agents import Batch, Cursor, File, Source, files
from thence.agents.kimi.names import CARD, LOG, MAIN, PREFIX, session_id
from thence.agents.records import (
    QuietAgent,
    Record,
    first_records,
    is_regular,
    roots_of,
    subfolders,
)


class Kimi(QuietAgent):
    """The reader of Kimi Code's sessions."""

    name = "kimi"
    looks_for = "sessions/*/session_ID/agents/main/wire.jsonl"

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Return the folder that the variable names, and the usual one."""
        return roots_of(home, env, "KIMI_CODE_HOME", ".kimi-code")

    def find(self, root: Path) -> Iterator[Source]:
        """Yield all sessions, workspace by workspace; one that lies in several is one."""
        seen: set[str] = set()
        for workspace in subfolders(root / "sessions"):
            for folder in subfolders(workspace):
                is_new = folder.name.startswith(PREFIX) and folder.name not in seen
                if is_new and (source := _source(folder, str(root))) is not None:
                    seen.add(folder.name)
                    yield source

    def at(self, path: Path) -> Source | None:
        """Return the session of a folder, of its card, or of a log in it."""
        path = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links
        if path.is_symlink():
            return None
        if path.name == LOG and path.is_file():
            return self._of_log(path)
        folder = path.parent if path.name == CARD else path
        if folder.name.startswith(PREFIX) and folder.is_dir():
            return _source(folder, _root_of(folder))
        return None

    def _of_log(self, path: Path) -> Source | None:
        if not any(map(_is_header, first_records(str(path))[:1])):
            return None
        folder = path.parent.parent.parent
        if path.parent.parent.name == "agents":
            return _source(folder, _root_of(folder))
        file = File(str(path), MAIN)
        return Source(self.name, session_id(path.parent.name), (file,), str(path.parent.parent))

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """Read what is new since the cursor."""
        from thence.agents.kimi.wire import is_record, open_records

        return files.read(source, cursor, open_records, is_record=is_record)


def _is_header(value: Record) -> bool:
    return value.get("type") == "metadata" and "protocol_version" in value


def _source(folder: Path, root: str) -> Source | None:
    """Return the session in a folder: the logs of its agents, and its card."""
    own: list[File] = []
    for agent in subfolders(folder / "agents"):
        log = f"{agent}/{LOG}"
        if not is_regular(log):
            continue
        if agent.name == MAIN:
            own.append(File(log, MAIN))
        else:
            own.append(File(log, f"side/{agent.name}", f"agent:{agent.name}"))
    if not own:
        return None
    card = f"{folder}/{CARD}"
    if is_regular(card):
        own.append(File(card, "state", is_document=True))
    own.sort(key=lambda file: file.key)
    return Source(Kimi.name, session_id(folder.name), tuple(own), root)


def _root_of(folder: Path) -> str:
    above = folder.parent.parent
    return str(above.parent if above.name == "sessions" else folder.parent)
