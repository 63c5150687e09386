"""Sessions of Gemini CLI: logs of messages, and a folder with the logs of subagents.

Logs lie in `tmp/<project>/chats/session-<time>-<start of the id>.jsonl`, those of subagents in
`tmp/<project>/chats/<session>/`. A session may have several logs. `.project_root` beside them has
the folder of the project. Accounts, tokens and settings are never opened, but for how long the
client keeps sessions. Sessions that versions before 0.40 wrote as one JSON document are not read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from thence.agents import Batch, Cursor, File, Source, files
from thence.agents.records import QuietAgent, Record, add_log, fields, folder_above, text
from thence.format.facts import Fact
from thence.format.nodes import Is, Node
from thence.format.records import parse_json

DEFAULT_KEPT_DAYS = 30
"""After how many days the client deletes sessions, unless its settings say otherwise."""

_NAME = re.compile(r"session-.*-([0-9a-fA-F]{8})\.jsonl")
_ID = re.compile(r"[0-9A-Za-z-]{1,64}")
_PROJECTS, _PROJECT = "tmp", ".project_root"
_LOG = ".jsonl"
_HEAD_BYTES = 4096
_AGE = re.compile(r"(\d{1,6})([hdwm])")
_DAYS_PER_UNIT = {"h": 1 / 24, "d": 1, "w": 7, "m": 30}


class Gemini(QuietAgent):
    """The reader of Gemini CLI's sessions."""

    name = "gemini"
    looks_for = "tmp/*/chats/session-*.jsonl"
    opens = "thence.agents.gemini.messages:GeminiMessages"

    def find(self, root: Path) -> Iterator[Source]:
        """Yield all sessions, project by project."""
        place = str(root)
        sessions: dict[str, dict[str, File]] = {}
        for project in files.folders_in(f"{place}/{_PROJECTS}"):
            sides: dict[str, str] = {}
            here: set[str] = set()
            for entry in files.entries_in(f"{project.path}/chats"):
                if entry.is_dir(follow_symlinks=False):
                    sides[entry.name] = entry.path
                elif not entry.is_file(follow_symlinks=False):
                    files.note_link(entry)
                elif not _NAME.fullmatch(entry.name):
                    continue
                elif (session := _session_of(entry.path)) is None:
                    files.note_unknown(entry.path)
                else:
                    here.add(session)
                    own = sessions.setdefault(session, {})
                    add_log(own, File(entry.path, entry.name.removesuffix(_LOG)), project.name)
            for session in here.intersection(sides):
                _add_sides(sessions[session], session, sides[session])
        for session, own in sorted(sessions.items()):
            yield Source(self.name, session, tuple([own[key] for key in sorted(own)]), place)

    def at(self, path: Path) -> Source | None:
        """Return the session that a log belongs to: its own, or that of a subagent."""
        path = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links
        if path.suffix != _LOG or path.is_symlink() or not path.is_file():
            return None
        session = _session_of(str(path))
        if session is None:
            return None
        root = folder_above(path, _PROJECTS)
        if (source := self.holder(root, path)) is not None:
            return source
        name = path.name.removesuffix(_LOG)
        own = {name: File(str(path), name)}
        _add_sides(own, session, f"{path.parent}/{session}")
        logs = tuple([own[key] for key in sorted(own)])
        return Source(self.name, session, logs, str(root or path.parent))

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """Read what is new since the cursor; the project is looked up when there is something."""
        batch = super().read(source, cursor)
        if batch.events and (project := _project_of(source)) is not None:
            batch.events.append(project)
        return batch

    def keeps_days(self, root: Path) -> int | None:
        """Return after how many days the client deletes a session."""
        general = fields(files.document(str(root / "settings.json")).get("general"))
        retention = fields(general.get("sessionRetention"))
        if retention.get("enabled") is False:
            return None
        age = _AGE.fullmatch(text(retention.get("maxAge")) or "")
        return int(int(age[1]) * _DAYS_PER_UNIT[age[2]]) if age else DEFAULT_KEPT_DAYS


def _session_of(path: str) -> str | None:
    """Return the id in the first line of a log; None if it is none of Gemini CLI's."""
    start = files.start_of(path, _HEAD_BYTES) or b""
    header = parse_json(start.partition(b"\n")[0])
    return text(header.get("sessionId")) if _is_header(header) else None


def _is_header(value: Record) -> bool:
    return isinstance(value, dict) and "projectHash" in value and "startTime" in value


def _add_sides(own: dict[str, File], session: str, folder: str) -> None:
    """Add the logs of a session's subagents, which lie in a folder of its name."""
    if not _ID.fullmatch(session):  # as a name of a folder it is what the log says
        return
    for entry in files.walk(folder, 0):
        if entry.name.endswith(_LOG):
            agent = entry.name.removesuffix(_LOG)
            own.setdefault(f"side/{agent}", File(entry.path, f"side/{agent}", f"agent:{agent}"))


def _project_of(source: Source) -> Fact | None:
    """Return the folder of the project, as the client noted it beside the logs."""
    main = next((file for file in source.files if file.channel == "main"), None)
    if main is None:
        return None
    raw = files.read_small(str(Path(main.path).parent.parent / _PROJECT), _HEAD_BYTES)
    cwd = raw.decode("utf-8", "replace").strip() if raw else ""
    if not cwd:
        return None
    node = Node(f"{_PROJECT}#{source.session}", flags=Is.INTERNAL)
    return Fact(node, _PROJECT, file=_PROJECT, about={"cwd": cwd})
