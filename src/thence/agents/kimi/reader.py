"""Sessions of Kimi Code: a folder each, with a log per agent.

`sessions/<workspace>/session_<uuid>/agents/<agent>/wire.jsonl` are the logs; that of `main` is the
session's own. `state.json` has the folder, the title and the session it was forked from.
Credentials and `config.toml` are never opened. Kimi Code deletes nothing by itself and does not
list running sessions. Sessions of its predecessor, kimi-cli, are not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from thence.agents import File, Source, files
from thence.agents.kimi.names import CARD, LOG, MAIN, PREFIX, session_id
from thence.agents.records import QuietAgent, Record, first_records


class Kimi(QuietAgent):
    """The reader of Kimi Code's sessions."""

    name = "kimi"
    looks_for = "sessions/*/session_ID/agents/main/wire.jsonl"
    opens = "thence.agents.kimi.wire:open_records"

    def find(self, root: Path) -> Iterator[Source]:
        """Yield all sessions, workspace by workspace; one that lies in several is one."""
        seen: set[str] = set()
        place = str(root)
        for workspace in files.folders_in(f"{place}/sessions"):
            for folder in files.folders_in(workspace.path):
                name = folder.name
                is_new = name.startswith(PREFIX) and name not in seen
                if is_new and (source := _source(folder.path, name, place)) is not None:
                    seen.add(name)
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
            return _source(str(folder), folder.name, _root_of(folder))
        return None

    def _of_log(self, path: Path) -> Source | None:
        if not any(map(_is_header, first_records(str(path))[:1])):
            return None
        folder = path.parent.parent.parent
        if path.parent.parent.name == "agents":
            return _source(str(folder), folder.name, _root_of(folder))
        file = File(str(path), MAIN)
        return Source(self.name, session_id(path.parent.name), (file,), str(path.parent.parent))


def _is_header(value: Record) -> bool:
    return value.get("type") == "metadata" and "protocol_version" in value


def _source(folder: str, name: str, root: str) -> Source | None:
    """Return the session in a folder: the logs of its agents, and its card."""
    own: dict[str, File] = {}
    for entry in files.folders_in(f"{folder}/agents"):
        agent, log = entry.name, f"{entry.path}/{LOG}"
        if not files.is_regular(log):
            continue
        if agent == MAIN:
            own[MAIN] = File(log, MAIN)
        else:
            own[f"side/{agent}"] = File(log, f"side/{agent}", f"agent:{agent}")
    if not own:
        return None
    card = f"{folder}/{CARD}"
    if files.is_regular(card):
        own["state"] = File(card, "state", is_document=True)
    return Source(Kimi.name, session_id(name), tuple([own[key] for key in sorted(own)]), root)


def _root_of(folder: Path) -> str:
    above = folder.parent.parent
    return str(above.parent if above.name == "sessions" else folder.parent)
