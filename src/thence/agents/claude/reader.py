"""Sessions of Claude Code, from 1.0 with its inline subagents to the present.

The adapter finds sessions and reads them (`sources`, `records`), and reads what
else the client keeps: who is running (`sessions/`), what was typed (`history.jsonl`), how long
sessions are kept (`settings.json`), and outputs too large for a transcript (`tool-results/`).
Nothing but these is opened; a name from a transcript leads to no other folder.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from thence import system
from thence.agents import AgentPrompt, Batch, Cursor, File, Live, Mark, Source, contents, files
from thence.agents.claude import sources
from thence.agents.records import moment, start_ticks, text
from thence.format.codec import RawRecord, objects
from thence.format.records import JSON, word

if TYPE_CHECKING:
    from thence.agents.claude.documents import ClaudeDocument
    from thence.agents.claude.records import ClaudeLog

DEFAULT_KEPT_DAYS = 30
"""After how many days the client deletes sessions, unless its settings say otherwise."""

MAX_PASTE_BYTES = 1 << 20

_MAX_HISTORY_BYTES = 256 << 20
_HASH = re.compile(r"[0-9a-f]{8,64}")
_PASTED = re.compile(r"\[Pasted text #(\d{1,6})[^\]\n]{0,40}\]")
_DESKTOP = (
    ".config/Claude",
    "Library/Application Support/Claude",
    "AppData/Roaming/Claude",
)


class Claude:
    """The reader of Claude Code's sessions."""

    name = sources.NAME
    looks_for = "projects/*/ID.jsonl"

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Name the client's folders: those of its variable, else the usual; the desktop app's."""
        named = [Path(part.strip()) for part in env.get("CLAUDE_CONFIG_DIR", "").split(",")]
        configured = [path.expanduser() for path in named if path.parts]
        usual = [home / ".claude", home / ".config" / "claude"]
        desktop = [home / place / "local-agent-mode-sessions" for place in _DESKTOP]
        return list(dict.fromkeys([*(configured or usual), *desktop]))

    def find(self, root: Path) -> Iterator[Source]:
        """Find all sessions below a configuration folder, or in a folder of projects itself."""
        units = sources.find_sessions(sources.projects(str(root)))
        for _, unit in sorted(units.items()):
            yield unit.source(str(root))

    def at(self, path: Path) -> Source | None:
        """Return the session that a file or folder belongs to, wherever it lies."""
        unit = sources.session_at(str(path))
        return unit.source(str(_root_of(path))) if unit is not None else None

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """Read what is new since the cursor."""
        from thence.agents.claude.fields import is_record  # most sweeps find nothing to read

        return files.read(source, cursor, _open_records, is_record=is_record)

    def live(self, root: Path) -> Iterator[Live]:
        """Tell which sessions have a process now; what a killed one left behind is passed over."""
        for entry in files.walk(str(root / "sessions"), 0):
            if not entry.name.endswith(".json"):
                continue
            state = files.document(entry.path)
            session, pid = word(state.get("sessionId")), state.get("pid")
            if session and isinstance(pid, int) and _is_running(pid, state.get("procStart")):
                yield Live(
                    session,
                    pid,
                    text(state.get("status")),
                    text(state.get("waitingFor")),
                    text(state.get("cwd")),
                    moment(state.get("startedAt")),
                )

    def prompts(self, root: Path) -> Iterator[AgentPrompt]:
        """Yield the prompts typed in the terminal, oldest first, pasted texts put in."""
        with contextlib.suppress(OSError), files.opened(str(root / "history.jsonl")) as handle:
            if os.fstat(handle).st_size > _MAX_HISTORY_BYTES:
                return
            for entry in objects(contents.Plain(handle).chunks(0)):
                if isinstance(entry, RawRecord) and isinstance(entry.value.get("display"), str):
                    yield _prompt(root, entry.value)

    def keeps_days(self, root: Path) -> int | None:
        """After how many days the client deletes a session that nobody opened again."""
        days = files.document(str(root / "settings.json")).get("cleanupPeriodDays")
        return days if type(days) is int and 0 <= days < 10**6 else DEFAULT_KEPT_DAYS


def _open_records(source: Source, file: File, mark: Mark) -> ClaudeLog | ClaudeDocument:
    from thence.agents.claude.documents import ClaudeDocument
    from thence.agents.claude.records import ClaudeLog

    return ClaudeDocument(source, file, mark) if file.is_document else ClaudeLog(source, file, mark)


def _root_of(path: Path) -> Path:
    """The folder in which the session's relatives may lie."""
    for above in path.parents:
        if above.name == "projects":
            return above.parent
    return path.parent if path.is_dir() else path.parent.parent


def _is_running(pid: int, started: JSON) -> bool:
    """Whether a process is there, and, where that can be told, is still the same one."""
    if pid <= 0 or not system.is_running(pid):
        return False
    ticks = start_ticks(pid)
    if ticks is None or not isinstance(started, str) or not started.isdigit():
        return True
    return ticks == int(started)


def _prompt(root: Path, line: dict[str, JSON]) -> AgentPrompt:
    display = line["display"]
    pasted = line.get("pastedContents")
    if isinstance(pasted, dict) and pasted:
        display = _PASTED.sub(
            lambda match: _read_paste(root, pasted.get(match[1])) or match[0], display
        )
    ts, session, cwd = (line.get(name) for name in ("timestamp", "sessionId", "project"))
    return AgentPrompt(display, moment(ts), text(session), text(cwd))


def _read_paste(root: Path, paste: JSON) -> str | None:
    """Return a pasted text: it stands beside the prompt, or in a file named by its hash."""
    if not isinstance(paste, dict):
        return None
    if isinstance(content := paste.get("content"), str):
        return content
    name = paste.get("contentHash")
    if not isinstance(name, str) or _HASH.fullmatch(name) is None:
        return None
    raw = files.read_small(str(root / "paste-cache" / f"{name}.txt"), MAX_PASTE_BYTES)
    return raw.decode("utf-8", "replace") if raw is not None else None
