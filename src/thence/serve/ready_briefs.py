"""Briefs that are ready before an agent asks for them: its user waits for the hook.

Making a brief loads most of the program, which takes longer than all else that a hook does. So the
lines of a brief are written beside the store when a hook has made one, and after that by each sweep
that digests a session of the repository. A hook that finds them reads one small file and asks the
store one question.

Lines are used only if nothing has changed that they were made from: the digests, the decisions, the
settings, this version, and the age of to-dos. They are redacted before they are written, and framed
anew for every session. Forgetting a session and redacting anew remove all of them (`remove_all`).

Nothing here may import msgspec, click or the store: that is what takes long.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from thence import __version__, config
from thence.memory.exclusion import Exclusion
from thence.memory.folder_lookup import digest_stamps, has_sessions
from thence.memory.projects import repository_of
from thence.serve.untrusted_text import flatten, frame_answer

FOLDER: Final = "briefs"
MAX_SESSIONS: Final = 60
"""How many of the newest sessions of a repository are looked at."""
CHARS_PER_TOKEN: Final = 4
"""A cautious average of English text and code."""
MAX_HOOK_INPUT_CHARS: Final = 1 << 20
MAX_HOOK_SECONDS: Final = 5
"""After so long a hook ends without a brief; agents are told to wait for twice as long."""
_DECISIONS: Final = "notes/decisions.jsonl"
_BUDGETS: Final = ("session_memory.budget.daily_usd", "session_memory.budget.projects")


class BriefOrigin:
    """What the brief of a repository is made from, as far as that can be seen at a glance."""

    def __init__(self, home: Path, project: str) -> None:
        self.home = home
        self.project = project
        self._settings = config.settings(home)
        url: str = self._settings["session_memory.store"]
        is_file = url.startswith("sqlite:")
        self.store = Path(url.removeprefix("sqlite:")).expanduser().absolute() if is_file else None

    @property
    def is_excluded(self) -> bool:
        """Whether the settings want no brief here."""
        names = ("session_memory.exclude", "session_memory.brief.skip")
        return Exclusion([p for name in names for p in self._settings[name]]).means(self.project)

    @property
    def max_tokens(self) -> int:
        """The length of a brief."""
        tokens: int = self._settings["session_memory.brief.tokens"]
        return tokens

    @property
    def has_budgets(self) -> bool:
        """Whether money is counted: what was spent changes with every line of any session."""
        return any(self._settings[name] for name in _BUDGETS)

    def is_empty(self) -> bool:
        """Return whether it is clear that there is nothing to say."""
        if self.has_budgets or (self.home / _DECISIONS).exists() or self.store is None:
            return False
        return not has_sessions(self.store, self.project)

    def stamp(self) -> tuple[str, list[str]]:
        """Return what changes with all that a brief is made from, and the newest sessions."""
        assert self.store is not None  # noqa: S101 - callers look
        stamps = digest_stamps(self.store, self.project, MAX_SESSIONS + 1)
        files = [_file_stamp(self.home / name) for name in (config.FILE, _DECISIONS)]
        parts = [__version__, str(self.store), *files, *(f"{uid} {at}" for uid, at in stamps)]
        return "\n".join(parts), [uid for uid, _ in stamps]


def answer_quickly(agent: str) -> bool:
    """Print what a hook asks for on stdin, if it is ready; else leave that to be read again."""
    signal.signal(signal.SIGALRM, end_silently)
    signal.alarm(MAX_HOOK_SECONDS)
    request = sys.stdin.read(MAX_HOOK_INPUT_CHARS)
    answer = answer_hook(agent, request)
    if answer is None:
        sys.stdin = io.StringIO(request)
        return False
    if answer:
        sys.stdout.write(f"{answer}\n")
    return True


def end_silently(_signal: int, _frame: object) -> None:
    """End at once and without a word: the agent goes on without a brief."""
    os._exit(0)


def answer_hook(agent: str, request: str) -> str | None:
    """Return what a hook prints, empty for nothing; None if a brief has to be made."""
    try:
        fields = json.loads(request)
        project = str(repository_of(Path(fields["cwd"])))
        origin = BriefOrigin(config.home(), project)
        if origin.is_excluded or origin.is_empty():
            return ""
        lines = ready_lines(origin, f"{agent}:{fields.get('session_id')}")
        if lines is None:
            return None
        return hook_json(fields, frame_lines(project, lines, origin.max_tokens))
    except Exception:  # noqa: BLE001 - whatever it is, the long way looks again
        return None


def hook_json(fields: dict[str, object], text: str) -> str:
    """Return the answer that agents expect of a hook; nothing for no text."""
    event = fields.get("hook_event_name", "SessionStart")
    answer = {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}
    return json.dumps(answer) if text else ""


def frame_lines(project: str, lines: Sequence[str], max_tokens: int) -> str:
    """Return the lines of a brief as framed text of at most so many tokens; empty for none."""
    if not lines:
        return ""
    origin = f"thence brief, {flatten(os.path.basename(project) or project, 60)}"  # noqa: PTH119
    return frame_answer(origin, lines, limit=max_tokens * CHARS_PER_TOKEN)


def ready_lines(origin: BriefOrigin, without: str) -> list[str] | None:
    """Return the lines that are ready for a session that starts; None if there are none."""
    if origin.has_budgets or origin.store is None:
        return None
    page = _read(origin)
    stamp, uids = origin.stamp()
    if page.get("stamp") != stamp or page["until"] < time.time():
        return None
    lines: list[str] | None = page["lines"].get(without if without in uids else "")
    return lines


def save_lines(
    origin: BriefOrigin,
    stamp: tuple[str, list[str]],
    without: str | None,
    lines: list[str],
    until: float,
) -> None:
    """Keep lines for the next hook; `stamp` was taken before they were made."""
    if origin.has_budgets or origin.store is None:
        return
    text, uids = stamp
    page = _read(origin)
    if page.get("stamp") != text:
        page = {"project": origin.project, "stamp": text, "until": until, "lines": {}}
    page["until"] = min(page["until"], until)
    page["lines"][without if without in uids else ""] = lines
    path = _path(origin)
    # A full disk, a home that is read-only: the next hook takes the long way.
    with contextlib.suppress(OSError):
        config.make_private(path.parent)
        with config.replacing(path, sync=False) as file:
            file.write(json.dumps(page).encode())


def remove_all(home: Path) -> None:
    """Remove everything that is ready; the folder stays, so that sweeps go on with it."""
    if (home / FOLDER).is_dir():
        for path in (home / FOLDER).iterdir():
            path.unlink(missing_ok=True)


def _path(origin: BriefOrigin) -> Path:
    """Return the file of a repository; others may share it, so it says whose it is."""
    name = zlib.crc32(origin.project.encode("utf-8", "surrogateescape"))
    return origin.home / FOLDER / f"{name:08x}.json"


def _read(origin: BriefOrigin) -> dict[str, Any]:
    """Return what is ready for a repository; empty if nothing is, or another program wrote it."""
    try:
        page = json.loads(_path(origin).read_bytes())
        if page["project"] == origin.project and {"stamp", "until", "lines"} <= page.keys():
            return dict(page)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # A cache of another version or home: made anew.
        pass
    return {}


def _file_stamp(path: Path) -> str:
    try:
        there = path.stat()
    except OSError:  # absent is a state like others: making the file changes it
        return "-"
    return f"{there.st_mtime_ns} {there.st_size}"
