"""A Grok session's folder: which files it has, and the only way into it.

A session is `sessions/<encoded cwd>/<id>/`. Subagents are folders beside it: their `usage.json`
is read as well, since a parent's bills hold what they spent. Names of folders are names, never
paths: links are not followed, and what comes from a log is a plain name inside the folder.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path

from thence.agents import File, Source, files
from thence.format.records import word

LOG, CHAT, SUMMARY = "updates.jsonl", "chat_history.jsonl", "summary.json"
CHILDREN = "subagents"

_PLAIN = re.compile(r"[A-Za-z0-9_.:+@-]{1,200}")
_ID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_BESIDE = (
    ("2-events", "events.jsonl", False),
    ("3-rewind", "rewind_points.jsonl", False),
    ("4-chat", CHAT, False),
    ("5-summary", SUMMARY, True),
    ("6-usage", "usage.json", True),
    ("7-signals", "signals.json", True),
    ("8-context", "prompt_context.json", True),
)
MAX_CHILDREN = 2000  # folders are hostile too: a loop over them is bounded
"""How many subagents of one session are looked at."""


def within(folder: Path, *names: str) -> Path | None:
    """Return the path of a regular file inside a folder; None if a step is a link or no name."""
    path = folder
    for nth, name in enumerate(names):
        if not _PLAIN.fullmatch(name) or name in (".", ".."):
            return None
        path /= name
        wanted = stat.S_ISREG if nth == len(names) - 1 else stat.S_ISDIR
        try:
            if not wanted(path.lstat().st_mode):
                return None
        except (OSError, ValueError):
            return None
    return path


def is_id(name: str) -> bool:
    """Whether a name is a plain id, as sessions have them."""
    return _ID.fullmatch(name) is not None


def session_in(folder: str, root: str = "") -> Source | None:
    """Return the session in a folder; None if it is none.

    A session has a log, or what else the client always makes. One listing tells which files are
    there.
    """
    own_names, has_children = _list_files(folder)
    if LOG not in own_names:
        is_named, has_summary = is_id(Path(folder).name), SUMMARY in own_names
        if CHAT in own_names:
            if not is_named and not has_summary:
                return None
        elif not (is_named and has_summary and "info" in files.document(f"{folder}/{SUMMARY}")):
            return None
    return _source(folder, root, own_names, has_children=has_children)


def source_of(folder: Path, root: str = "") -> Source:
    """List the files of a session."""
    own_names, has_children = _list_files(str(folder))
    return _source(str(folder), root, own_names, has_children=has_children)


def _list_files(folder: str) -> tuple[set[str], bool]:
    """Return the names of the files in a folder, and whether it has subagents."""
    regular: set[str] = set()
    has_children = False
    for entry in files.entries_in(folder):
        if entry.is_file(follow_symlinks=False):
            regular.add(entry.name)
        elif entry.name == CHILDREN:
            has_children = True
    return regular, has_children


def _source(folder: str, root: str, own_names: set[str], *, has_children: bool) -> Source:
    has_log = LOG in own_names
    own: list[File] = []
    # One key for whichever is the log: should a version begin to write the better one, what was
    # read from the other is known to be superseded.
    if has_log or CHAT in own_names:
        own.append(File(f"{folder}/{LOG if has_log else CHAT}", "1-log"))
    for key, name, is_document in _BESIDE:
        if name in own_names and (has_log or name != CHAT):
            own.append(File(f"{folder}/{name}", key, is_document=is_document))
    if has_children:
        own += _child_files(Path(folder))
    return Source("grok", _session(folder, own_names), tuple(own), root)


def _session(folder: str, own_names: set[str]) -> str:
    name = Path(folder).name
    if is_id(name):
        return name
    info = files.document(f"{folder}/{SUMMARY}").get("info") if SUMMARY in own_names else None
    named = word(info.get("id")) if isinstance(info, dict) else ""
    return named if is_id(named) else name


def _child_files(folder: Path) -> list[File]:
    """The subagents that a session started, and what each was billed."""
    out: list[File] = []
    for name in names(folder / CHILDREN, MAX_CHILDREN):
        meta = within(folder, CHILDREN, name, "meta.json")
        if meta is not None:
            out.append(File(str(meta), f"9-child-{name}", is_document=True))
        bill = within(folder.parent, name, "usage.json") if is_id(name) else None
        if bill is not None and name != folder.name:
            out.append(File(str(bill), f"9-usage-{name}", is_document=True))
    return sorted(out, key=lambda file: file.key)


def names(folder: Path, limit: int | None = None, *, may_be_link: bool = False) -> list[str]:
    """Return the names of the folders in a folder, sorted; links are none of them.

    Nothing where the folder itself is a link, unless it `may_be_link`: the user's own may lie on
    another disk.
    """
    try:
        status = folder.stat() if may_be_link else folder.lstat()
    except (OSError, ValueError):
        return []
    if not stat.S_ISDIR(status.st_mode):
        return []
    return [entry.name for entry in files.folders_in(str(folder))][:limit]
