"""Sessions of Cline's command line client: a folder each, with a document per agent.

`sessions/<id>/<id>.messages.json` is the conversation and `<id>.json` the card of a session;
`agent_<…>.messages.json` are the conversations of its subagents. All of them are written anew at
every step. Databases, settings and secrets are never opened. Cline deletes nothing by age. What its
extension for VS Code keeps is not read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from thence.agents import File, Live, Source, files
from thence.agents.cline.names import COMPACTION, MESSAGES
from thence.agents.records import QuietAgent, is_running, text

_MAX_IDLE_DAYS = 7  # a session that runs was written to in the last days


class Cline(QuietAgent):
    """The reader of Cline's sessions."""

    name = "cline"
    looks_for = "data/sessions/ID/ID.messages.json"
    opens = "thence.agents.cline.messages:open_records"

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Return the folders that variables name, and the usual one."""
        named = [env.get(name) for name in ("CLINE_SESSION_DATA_DIR", "CLINE_DATA_DIR")]
        own = [Path(folder).expanduser() for folder in named if folder]
        return list(dict.fromkeys([*own, *super().roots(home, env)]))

    def find(self, root: Path) -> Iterator[Source]:
        """Yield all sessions: in Cline's folder, in its folder of data, or in that of sessions."""
        place = str(root)
        for folder in _folders(place):
            if (source := _source(folder.path, folder.name, place)) is not None:
                yield source

    def at(self, path: Path) -> Source | None:
        """Return the session of a folder, or of a file in it."""
        path = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links
        if path.is_symlink():
            return None
        folder = path if path.is_dir() else path.parent
        source = _source(str(folder), folder.name, _root_of(folder))
        if source is None:
            return None
        own = {name for file in source.files for name in (file.path, *file.beside)}
        return source if path == folder or str(path) in own else None

    def live(self, root: Path) -> Iterator[Live]:
        """Yield the sessions whose card names a process that runs."""
        since = time.time() - _MAX_IDLE_DAYS * 86_400
        for folder in _folders(str(root)):
            path = f"{folder.path}/{folder.name}.json"
            try:
                is_old = os.lstat(path).st_mtime < since
            except OSError:
                continue
            card = {} if is_old else files.document(path)
            if card.get("status") == "running" and is_running(pid := card.get("pid")):
                yield Live(folder.name, pid, "running", cwd=text(card.get("cwd")))


def _folders(root: str) -> list[os.DirEntry[str]]:
    for base in (f"{root}/data/sessions", f"{root}/sessions"):
        if os.path.isdir(base):  # noqa: PTH112 - paths are plain strings on this hot way
            return files.folders_in(base)
    return files.folders_in(root)


def _source(folder: str, session: str, root: str) -> Source | None:
    """Return the session in a folder: its conversation, those of its subagents, and its card."""
    own: dict[str, File] = {}
    for entry in files.walk(folder, 0):
        name = entry.name
        if name.endswith(MESSAGES):
            agent = name.removesuffix(MESSAGES)
            if agent == session:
                beside = (f"{folder}/{session}{COMPACTION}",)
                own["main"] = File(entry.path, "main", is_document=True, beside=beside)
            else:
                key = f"side/{agent}"
                own[key] = File(entry.path, key, f"agent:{agent}", is_document=True)
        elif name == f"{session}.json":
            own["state"] = File(entry.path, "state", is_document=True)
    if "main" not in own:
        return None
    return Source(Cline.name, session, tuple([own[key] for key in sorted(own)]), root)


def _root_of(folder: Path) -> str:
    base = folder.parent
    if base.name != "sessions":
        return str(base)
    return str(base.parent.parent if base.parent.name == "data" else base.parent)
