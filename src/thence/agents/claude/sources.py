"""Which files make up a session of Claude Code.

A session is `<id>.jsonl` in a project's folder, with what belongs to it: transcripts of its
subagents (`<id>/subagents/`, in older versions `agent-*.jsonl` beside the sessions), those of its
workflows, and small documents. The name of the file is the session's id; records may name
another. Subagents of the older kind are known by the session that their first record names. A
subagent whose session's own file is gone still belongs to that session.

Folders are listed, files are looked into no further than their head, links are not followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from thence.agents import File, Source
from thence.agents.files import entries_in, is_regular, note_link, start_of, walk
from thence.format.codec import RawRecord, objects
from thence.format.records import JSON

NAME = "claude"
HEAD_BYTES = 64 << 10
"""How many bytes of a file are looked at to know whose it is."""

MAX_DEPTH = 8
"""How deep the folders of the desktop app are looked through for its projects."""

_LOG = ".jsonl"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_NAMED = re.compile(rb'"sessionId"\s*:\s*"([^"\\]{1,128})"')
_RECORD_TYPES = frozenset(
    {
        *("user", "assistant", "system", "attachment", "progress", "summary", "queue-operation"),
        *("file-history-snapshot", "file-history-delta", "last-prompt", "custom-title"),
        *("ai-title", "agent-name", "mode", "permission-mode", "atis-latch", "cost-state"),
        *("tools-used", "api-request", "api-request-shape", "api-request-blob", "pr-link"),
    }
)
_FRAME = frozenset({"uuid", "parentUuid", "sessionId", "leafUuid", "messageId"})
_FOREIGN_KEYS = frozenset({"payload", "prev_uuid", "params", "method", "systemPayload"})


# -- whose file it is -----------------------------------------------------------------------


def head(path: str) -> bytes | None:
    """Read the beginning of a file; None when it is no regular file that can be read."""
    return start_of(path, HEAD_BYTES)


def is_claudes(start: bytes) -> bool:
    """Whether a file that begins so is a transcript: its first telling record decides."""
    for record in _records(start):
        if (verdict := _is_ours(record)) is not None:
            return verdict
    # A first line longer than the head.
    return len(start) >= HEAD_BYTES and b"\n" not in start and b'"parentUuid"' in start


def _is_ours(record: dict[str, JSON]) -> bool | None:
    """Whether a record is Claude Code's; None when it could be anybody's."""
    message = record.get("message")
    if not _FOREIGN_KEYS.isdisjoint(record) or (isinstance(message, dict) and "parts" in message):
        return False
    kind = record.get("type")
    linked = "parentUuid" in record or ("sessionId" in record and "uuid" in record)
    known = isinstance(kind, str) and kind in _RECORD_TYPES
    if linked or (known and (isinstance(message, dict) or not _FRAME.isdisjoint(record))):
        return True
    return None


def session_named(start: bytes) -> str | None:
    """Return the session that the first record to name one belongs to."""
    for record in _records(start):
        named = record.get("sessionId")
        if isinstance(named, str) and named:
            return named
    match = _NAMED.search(start)
    return match[1].decode("utf-8", "replace") if match else None


def _records(start: bytes) -> Iterator[dict[str, JSON]]:
    complete_lines = start if len(start) < HEAD_BYTES else start[: start.rfind(b"\n") + 1]
    # The first record usually names the session; the other lines are split only if it does not.
    first_end = complete_lines.find(b"\n") + 1
    for entry in objects((complete_lines[:first_end], complete_lines[first_end:])):
        if isinstance(entry, RawRecord):
            yield entry.value


# -- one session ----------------------------------------------------------------------------


class ClaudeFiles:
    """The files of one session, as they are found."""

    def __init__(self, session: str) -> None:
        self.session = session
        self._files: dict[str, File] = {}
        self._paths: set[str] = set()

    def add(self, path: str, key: str, channel: str = "main", *, is_document: bool = False) -> None:
        """Add a file; a second one of the same name, in another project, stands beside it."""
        if path in self._paths:
            return
        self._paths.add(path)
        if key in self._files:
            key = f"{key}@{os.path.basename(os.path.dirname(path))}"  # noqa: PTH119, PTH120
        while key in self._files:
            key += "~"
        self._files[key] = File(path, key, channel, is_document)

    def add_log(self, path: str) -> None:
        """Add the session's own transcript."""
        self.add(path, "main")

    def add_agent(self, path: str, run: str = "") -> None:
        """Add the transcript of a subagent."""
        agent = _stem(path).removeprefix("agent-")
        self.add(path, f"side/{run}{agent}", f"agent:{agent}")

    def add_folder(self, folder: str) -> None:
        """Add what lies in the session's own folder."""
        names = {entry.name for entry in entries_in(folder)}
        for entry in walk(f"{folder}/subagents", 3) if "subagents" in names else ():
            run = entry.path[len(folder) + len("/subagents/") : -len(entry.name)]
            self._add_side(entry, run.replace(os.sep, "/").removeprefix("workflows/"))
        for entry in walk(f"{folder}/workflows", 0) if "workflows" in names else ():
            if entry.name.endswith(".json"):
                self.add(entry.path, f"workflow/{entry.name}", is_document=True)
        title = f"{folder}/custom-title.json"
        if "custom-title.json" in names and is_regular(title):
            self.add(title, "title", is_document=True)

    def _add_side(self, entry: os.DirEntry[str], run: str) -> None:
        if entry.name.startswith("agent-") and entry.name.endswith(_LOG):
            self.add_agent(entry.path, run)
        elif entry.name.endswith(".meta.json"):
            agent = entry.name.removeprefix("agent-").removesuffix(".meta.json")
            self.add(entry.path, f"side/{run}{agent}.meta", is_document=True)
        elif entry.name.endswith(_LOG):
            name = f"{run}{_stem(entry.name)}"
            self.add(entry.path, f"workflow/{name}", f"workflow:{run.strip('/')}")

    def source(self, root: str) -> Source:
        """Return the session; its own transcript first."""
        files = sorted(self._files.values(), key=lambda file: file.key)
        return Source(NAME, self.session, tuple(files), root)


def _stem(path: str) -> str:
    return os.path.basename(path).removesuffix(_LOG)  # noqa: PTH119


def is_uuid(name: str) -> bool:
    """Whether a name is one that the client gives to a session."""
    return _UUID.fullmatch(name) is not None


# -- many sessions --------------------------------------------------------------------------


def projects(root: str) -> Iterator[str]:
    """Find the folders that hold projects: below a configuration folder, or the root itself."""
    below = f"{root}/projects"
    if os.path.isdir(below):  # noqa: PTH112
        yield below
        return
    nested = list(_named_projects(root, MAX_DEPTH))
    yield from nested or [root]


def _named_projects(folder: str, depth: int) -> Iterator[str]:
    for entry in entries_in(folder):
        if entry.is_dir(follow_symlinks=False):
            if entry.name == "projects":
                yield entry.path
            elif depth > 1:
                yield from _named_projects(entry.path, depth - 1)


def find_sessions(folders: Iterable[str]) -> dict[str, ClaudeFiles]:
    """Find all sessions in folders of projects; one that lies in several is one."""
    out: dict[str, ClaudeFiles] = {}
    for folder in folders:
        for entry in entries_in(folder):
            if entry.is_dir(follow_symlinks=False):
                _add_project(out, entry.path)
            else:
                note_link(entry)
    return out


def _add_project(out: dict[str, ClaudeFiles], folder: str) -> None:
    for entry in entries_in(folder):
        if entry.is_dir(follow_symlinks=False):
            if is_uuid(entry.name) or os.path.isdir(f"{entry.path}/subagents"):  # noqa: PTH112
                _session_files(out, entry.name).add_folder(entry.path)
        elif entry.name.endswith(_LOG) and entry.is_file(follow_symlinks=False):
            _add_log(out, entry.path)
        elif entry.name.endswith(_LOG) or is_uuid(entry.name):
            note_link(entry)


def _add_log(out: dict[str, ClaudeFiles], path: str) -> None:
    name = _stem(path)
    if is_uuid(name):
        _session_files(out, name).add_log(path)
        return
    start = head(path)
    if start is None or not is_claudes(start):
        return
    if name.startswith("agent-"):
        _session_files(out, session_named(start) or name).add_agent(path)
    else:
        _session_files(out, session_named(start) or name).add_log(path)


def _session_files(out: dict[str, ClaudeFiles], session: str) -> ClaudeFiles:
    return out.setdefault(session, ClaudeFiles(session))


# -- the session of one file ----------------------------------------------------------------


def session_at(path: str) -> ClaudeFiles | None:
    """Find the session that a file or folder belongs to."""
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
        return _of_folder(path.rstrip("/"))
    if "/subagents/" in path:
        return _of_side(path)
    start = head(path) if path.endswith(_LOG) else None
    if start is None:
        return None
    if not is_claudes(start):
        return _of_empty(path) if not start else None
    name = _stem(path)
    if name.startswith("agent-"):
        return _of_agent(path, session_named(start))
    unit = ClaudeFiles(name if is_uuid(name) else session_named(start) or name)
    return _with_agents(unit, path)


def _of_side(path: str) -> ClaudeFiles | None:
    """The session of a file in the folder of its subagents, if that is what it is."""
    folder, _, inside = path.rpartition("/subagents/")
    nested = inside.count("/")
    if nested not in (0, 2) or (nested and not inside.startswith("workflows/")):
        return None
    unit = _of_folder(folder)
    own_files = unit.source("").files if unit is not None else ()
    return unit if any(file.path == path for file in own_files) else None


def _of_empty(path: str) -> ClaudeFiles | None:
    """A file without a byte is a session only where the client puts one."""
    folder = os.path.dirname(path)  # noqa: PTH120
    above = os.path.basename(os.path.dirname(folder))  # noqa: PTH119, PTH120
    ours = above == "projects" or os.path.basename(folder).startswith("-")  # noqa: PTH119
    return _with_agents(ClaudeFiles(_stem(path)), path) if ours and is_uuid(_stem(path)) else None


def _of_folder(folder: str) -> ClaudeFiles | None:
    """The folder of one session: its transcript lies beside it, if it is still there."""
    unit = ClaudeFiles(os.path.basename(folder))  # noqa: PTH119
    unit.add_folder(folder)
    sides = [file for file in unit.source("").files if file.channel.startswith("agent:")]
    start = head(f"{folder}{_LOG}")
    if start is not None and (is_claudes(start) or (not start and sides)):
        return _with_agents(unit, f"{folder}{_LOG}")
    return unit if any(is_claudes(head(file.path) or b"") for file in sides) else None


def _of_agent(path: str, session: str | None) -> ClaudeFiles:
    folder = os.path.dirname(path)  # noqa: PTH120
    log = f"{folder}/{session}{_LOG}"
    safe = session is not None and "/" not in session and "\0" not in session
    if safe and head(log) is not None:
        return _with_agents(ClaudeFiles(session or ""), log)
    unit = ClaudeFiles(session or _stem(path))
    unit.add_agent(path)
    return unit


def _with_agents(unit: ClaudeFiles, log: str) -> ClaudeFiles:
    """Add to a transcript what belongs to it: its own folder, and agents that lie beside it."""
    unit.add_log(log)
    folder = os.path.dirname(log)  # noqa: PTH120
    unit.add_folder(log.removesuffix(_LOG))
    for entry in entries_in(folder):
        named = entry.name.startswith("agent-") and entry.name.endswith(_LOG)
        if named and entry.is_file(follow_symlinks=False):
            start = head(entry.path)
            if start and session_named(start) == unit.session:
                unit.add_agent(entry.path)
    return unit
