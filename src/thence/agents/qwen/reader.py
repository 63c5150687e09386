"""Sessions of Qwen Code: a tree of records per session, and a log per subagent.

Logs lie in `projects/<project>/chats/<session>.jsonl`, archived ones in `chats/archive/`, those of
subagents in `projects/<project>/subagents/<session>/`. Nothing else is opened: settings, accounts
and the ledger `usage/` are not (each call of the ledger stands in a log, too). Qwen Code deletes
logs of subagents after a while, and sessions never.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from thence.agents import Batch, Cursor, File, Source, files
from thence.agents.records import QuietAgent, Record, first_records, roots_of, subfolders

_CHATS, _SIDES, _ARCHIVE = "chats", "subagents", "archive"
_LOG, _META = ".jsonl", ".meta.json"


class Qwen(QuietAgent):
    """The reader of Qwen Code's sessions."""

    name = "qwen"
    looks_for = "projects/*/chats/ID.jsonl"

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Return the folders that variables name, and the usual one."""
        runtime = env.get("QWEN_RUNTIME_DIR")
        named = [Path(runtime).expanduser()] if runtime else []
        return list(dict.fromkeys([*named, *roots_of(home, env, "QWEN_HOME", ".qwen")]))

    def find(self, root: Path) -> Iterator[Source]:
        """Yield all sessions, project by project."""
        sessions: dict[str, list[Path]] = {}
        for project in subfolders(root / "projects"):
            for log in _logs(project / _CHATS):
                sessions.setdefault(log.name.removesuffix(_LOG), []).append(log)
        for session, logs in sorted(sessions.items()):
            yield _source(session, logs, str(root))

    def at(self, path: Path) -> Source | None:
        """Return the session that a log belongs to: its own, or that of a subagent."""
        path = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links
        if path.is_symlink() or not path.is_file() or path.suffix not in (".jsonl", ".json"):
            return None
        if path.parent.parent.name == _SIDES:
            return self._of_side(path)
        if path.suffix != _LOG or not any(map(is_ours, first_records(str(path)))):
            return None
        root = _root_of(path)
        session = path.name.removesuffix(_LOG)
        known = self.find(root) if root is not None else iter(())
        for source in known:
            if source.session == session and any(f.path == str(path) for f in source.files):
                return source
        return _source(session, [path], str(root or path.parent))

    def _of_side(self, path: Path) -> Source | None:
        root, session = _root_of(path), path.parent.name
        for source in self.find(root) if root is not None else ():
            if source.session == session and any(f.path == str(path) for f in source.files):
                return source
        return None

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """Read what is new since the cursor."""
        from thence.agents.qwen.chat import is_record, open_records

        return files.read(source, cursor, open_records, is_record=is_record)


def is_ours(value: Record) -> bool:
    """Return whether a record shows that its log is one of Qwen Code's."""
    if not isinstance(value.get("sessionId"), str) or not isinstance(value.get("uuid"), str):
        return False
    message = value.get("message")
    has_parts = isinstance(message, dict) and isinstance(message.get("parts"), list)
    return has_parts or "systemPayload" in value


def _logs(folder: Path) -> Iterator[Path]:
    for place in (folder, folder / _ARCHIVE):
        for entry in files.walk(str(place), 0):
            if entry.name.endswith(_LOG):
                yield Path(entry.path)


def _source(session: str, logs: list[Path], root: str) -> Source:
    """Return a session: its logs, and those of its subagents in the same projects."""
    own: dict[str, File] = {}
    for log in logs:
        _add(own, File(str(log), "main"), _project_of(log).name)
    for project in dict.fromkeys(map(_project_of, logs)):
        for entry in files.walk(str(project / _SIDES / session), 0):
            if entry.name.endswith(_META):
                agent = entry.name.removeprefix("agent-").removesuffix(_META)
                _add(own, File(entry.path, f"side/{agent}.meta", is_document=True), project.name)
            elif entry.name.endswith(_LOG):
                agent = entry.name.removeprefix("agent-").removesuffix(_LOG)
                _add(own, File(entry.path, f"side/{agent}", f"agent:{agent}"), project.name)
    return Source(Qwen.name, session, tuple(own[key] for key in sorted(own)), root)


def _add(own: dict[str, File], file: File, place: str) -> None:
    key = file.key
    while key in own:
        key = f"{key}@{place}"
    own[key] = File(file.path, key, file.channel, file.is_document)


def _project_of(log: Path) -> Path:
    return log.parent.parent.parent if log.parent.name == _ARCHIVE else log.parent.parent


def _root_of(path: Path) -> Path | None:
    """Return Qwen Code's folder for one of its logs; None for a log that lies elsewhere."""
    for above in path.parents[:5]:
        if above.name == "projects":
            return above.parent
    return None
