"""Sessions of Qwen Code: a tree of records per session, and a log per subagent.

Logs lie in `projects/<project>/chats/<session>.jsonl`, archived ones in `chats/archive/`, those of
subagents in `projects/<project>/subagents/<session>/`. Nothing else is opened: settings, accounts
and the ledger `usage/` are not (each call of the ledger stands in a log, too). Qwen Code deletes
logs of subagents after a while, and sessions never. `chats/<session>.runtime.json` names the
process of a session in its interface, and stays when that ends; sessions with `-p` have none.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from thence.agents import File, Live, Source, files
from thence.agents.records import (
    QuietAgent,
    Record,
    add_log,
    first_records,
    folder_above,
    is_running,
    moment,
    text,
)

_CHATS, _SIDES, _ARCHIVE = "chats", "subagents", "archive"
_MAX_OPEN_DAYS = 30  # the files stay: without an end all of them were read for every list
_LOG, _META, _RUNTIME = ".jsonl", ".meta.json", ".runtime.json"


class Qwen(QuietAgent):
    """The reader of Qwen Code's sessions."""

    name = "qwen"
    looks_for = "projects/*/chats/ID.jsonl"
    opens = "thence.agents.qwen.chat:open_records"

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Return the folders that variables name, and the usual one."""
        runtime = env.get("QWEN_RUNTIME_DIR")
        named = [Path(runtime).expanduser()] if runtime else []
        return list(dict.fromkeys([*named, *super().roots(home, env)]))

    def find(self, root: Path) -> Iterator[Source]:
        """Yield all sessions, project by project."""
        place = str(root)
        sessions: dict[str, dict[str, File]] = {}
        for project in files.folders_in(f"{place}/projects"):
            folder, name = project.path, project.name
            here: set[str] = set()
            for log in _logs(f"{folder}/{_CHATS}"):
                session = log.name.removesuffix(_LOG)
                here.add(session)
                add_log(sessions.setdefault(session, {}), File(log.path, "main"), name)
            for entry in files.folders_in(f"{folder}/{_SIDES}"):
                if entry.name in here:
                    _add_sides(sessions[entry.name], entry.path, name)
        for session, own in sorted(sessions.items()):
            yield Source(self.name, session, tuple([own[key] for key in sorted(own)]), place)

    def at(self, path: Path) -> Source | None:
        """Return the session that a log belongs to: its own, or that of a subagent."""
        path = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links
        if path.is_symlink() or not path.is_file() or path.suffix not in (".jsonl", ".json"):
            return None
        if path.parent.parent.name == _SIDES:
            return self.holder(folder_above(path, "projects"), path)
        if path.suffix != _LOG or not any(map(is_ours, first_records(str(path)))):
            return None
        root = folder_above(path, "projects")
        session = path.name.removesuffix(_LOG)
        return self.holder(root, path) or _source(session, path, str(root or path.parent))

    def live(self, root: Path) -> Iterator[Live]:
        """Yield the sessions of this machine whose process still runs."""
        for project in files.folders_in(f"{root}/projects"):
            for entry in files.walk(f"{project.path}/{_CHATS}", 0):
                if not entry.name.endswith(_RUNTIME) or _is_old(entry):
                    continue
                state = files.document(entry.path)
                session, pid = text(state.get("session_id")), state.get("pid")
                since, cwd = moment(state.get("started_at")), text(state.get("work_dir"))
                is_here = state.get("hostname") in (None, socket.gethostname())
                if session and is_here and is_running(pid, since):
                    yield Live(session, pid, "running", cwd=cwd, since=since)


def _is_old(entry: os.DirEntry[str]) -> bool:
    """Return whether a session was opened so long ago that nobody can be at it."""
    try:
        return entry.stat(follow_symlinks=False).st_mtime < time.time() - _MAX_OPEN_DAYS * 86_400
    except OSError:
        return True


def is_ours(value: Record) -> bool:
    """Return whether a record shows that its log is one of Qwen Code's."""
    if not isinstance(value.get("sessionId"), str) or not isinstance(value.get("uuid"), str):
        return False
    message = value.get("message")
    has_parts = isinstance(message, dict) and isinstance(message.get("parts"), list)
    return has_parts or "systemPayload" in value


def _logs(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield the logs in a folder of chats, and the archived ones."""
    archive = ""
    for entry in files.entries_in(folder):
        if entry.is_file(follow_symlinks=False):
            if entry.name.endswith(_LOG):
                yield entry
        elif entry.name == _ARCHIVE and entry.is_dir(follow_symlinks=False):
            archive = entry.path
        else:
            files.note_link(entry)
    for entry in files.walk(archive, 0) if archive else ():
        if entry.name.endswith(_LOG):
            yield entry


def _source(session: str, log: Path, root: str) -> Source:
    """Return the session of one log: the log, and those of its subagents in the same project."""
    project = log.parent.parent.parent if log.parent.name == _ARCHIVE else log.parent.parent
    own: dict[str, File] = {"main": File(str(log), "main")}
    _add_sides(own, f"{project}/{_SIDES}/{session}", project.name)
    return Source(Qwen.name, session, tuple([own[key] for key in sorted(own)]), root)


def _add_sides(own: dict[str, File], folder: str, project: str) -> None:
    """Add the logs of the subagents in a folder to the files of their session."""
    for entry in files.walk(folder, 0):
        if entry.name.endswith(_META):
            agent = entry.name.removeprefix("agent-").removesuffix(_META)
            add_log(own, File(entry.path, f"side/{agent}.meta", is_document=True), project)
        elif entry.name.endswith(_LOG):
            agent = entry.name.removeprefix("agent-").removesuffix(_LOG)
            add_log(own, File(entry.path, f"side/{agent}", f"agent:{agent}"), project)
