"""Sessions of Grok's command line client ("Grok Build").

A session is a folder: `updates.jsonl` is its log, the files beside it say more about it. Other
tools keep their own things in `~/.grok`; what does not have this layout is not claimed. The
client deletes nothing by itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from thence.agents import AgentPrompt, File, Live, Mark, Source, files
from thence.agents.grok.chat import ChatLog, Mirror
from thence.agents.grok.folder import LOG, names, session_in, within
from thence.agents.grok.side_files import (
    DOCUMENTS,
    ChildUsageDocument,
    GrokDocument,
    RewindPoints,
    Telemetry,
)
from thence.agents.grok.updates import Updates
from thence.agents.records import QuietAgent, is_running, lines_of, objects, text
from thence.format.facts import Block
from thence.format.records import JSON, parse_json

MAX_PARENTS = 4
"""How many folders above a file its session is looked for."""

_ROWS = {"system", "user", "assistant", "reasoning", "tool_result", "backend_tool_call", "tool"}
_READERS: dict[str, files.OpenRecords] = {
    "2-events": Telemetry,
    "3-rewind": RewindPoints,
    "4-chat": Mirror,
}


class Grok(QuietAgent):
    """The reader."""

    name = "grok"
    looks_for = "sessions/*/ID"
    opens = "thence.agents.grok.reader:open_records"

    def find(self, root: Path) -> Iterator[Source]:
        """Find all sessions, project by project."""
        base = _sessions(root)
        for group in names(base, may_be_link=True):
            for name in names(base / group):
                if (source := session_in(f"{base}/{group}/{name}", str(root))) is not None:
                    yield source

    def at(self, path: Path) -> Source | None:
        """Return the session of a folder, or of any file in it."""
        folder = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links
        for place in (folder, *folder.parents[: MAX_PARENTS - 1]):
            if place.is_symlink() or not place.is_dir():
                continue
            above = place.parent.parent
            root = str(above.parent) if above.name == "sessions" else ""
            if (source := session_in(str(place), root)) is not None:
                return source
        return None

    def live(self, root: Path) -> Iterator[Live]:
        """Tell which sessions are open: those whose process still runs."""
        listed = files.read_small(str(root / "active_sessions.json"))
        for row in objects(parse_json(listed)):
            session = text(row.get("session_id"))
            since = text(row.get("started_at")) or text(row.get("opened_at"))
            if session is None or not is_running(row.get("pid"), since):
                continue
            yield Live(session, row["pid"], "running", None, text(row.get("cwd")), since)

    def prompts(self, root: Path) -> Iterator[AgentPrompt]:
        """Yield the prompts of all projects; commands to the client are not among them."""
        base = _sessions(root)
        prompts: list[AgentPrompt] = []
        for group in names(base, may_be_link=True):
            path = within(base / group, "prompt_history.jsonl")
            if path is not None:
                prompts += _prompts(path, _cwd(base / group))
        yield from sorted(prompts, key=lambda prompt: prompt.ts or "")


def side_file(source: Source, call: Block, _result: Block) -> str | None:
    """Return the path of the file with the whole output of a call; None when there is none."""
    path = _output_of(source, call.call or "")
    return str(path) if path is not None else None


def _output_of(source: Source, call: str) -> Path | None:
    if not source.files:
        return None
    return within(Path(source.files[0].path).parent, "terminal", f"{call}.log")


def _sessions(root: Path) -> Path:
    return root if root.name == "sessions" else root / "sessions"


def open_records(source: Source, file: File, mark: Mark) -> files.Records:
    """Return the reader of one file of a session."""
    if file.key == "1-log":
        is_log = Path(file.path).name == LOG
        return Updates(source, file, mark) if is_log else ChatLog(source, file, mark)
    if file.key in DOCUMENTS or file.key.startswith("9-child-"):
        return GrokDocument(source, file, mark)
    return _READERS.get(file.key, ChildUsageDocument)(source, file, mark)


def is_record(value: dict[str, JSON]) -> bool:
    """Whether an object found in a damaged line is a record of one of these files."""
    if "method" in value or "prompt_index" in value:
        return "params" in value or "created_at" in value
    if "ts" in value:
        return isinstance(value.get("type"), str)
    kind = value.get("type", value.get("role"))
    return isinstance(kind, str) and kind in _ROWS and ("content" in value or "summary" in value)


def _prompts(path: Path, cwd: str) -> Iterator[AgentPrompt]:
    for value in lines_of(str(path)):
        if prompt := text(value.get("prompt")):
            when, session = text(value.get("timestamp")), text(value.get("session_id"))
            yield AgentPrompt(prompt, when, session, cwd)


def _cwd(group: Path) -> str:
    """The project a folder is for: words for the eye, never a path to go to."""
    path = within(group, ".cwd")
    raw = files.read_small(str(path), 1 << 16) if path else None
    if raw:
        return raw.decode("utf-8", "replace").strip()
    return unquote(group.name, errors="replace")
