"""Sessions of the Codex CLI: rollouts, of which one thread may have several.

A session is a thread. Its files are named `rollout-<time>-<thread>[_<segment>].jsonl[.zst]`, below
`sessions/` by day or flat in `archived_sessions/`; a rewind goes on in a new segment. The last
uuid of a name is the file's key: it stays when the file is archived or packed, it sorts by age,
and it is what other rollouts refer to. Of a plain file and a packed one with the same key the
plain one is read.

The SQLite files are caches of the rollouts and are not opened; nor is anything else but the
prompt history and the index of names. Which sessions run now is not told anywhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from thence.agents import AgentPrompt, Batch, Cursor, File, Source, files
from thence.agents.codex.meta import head_of
from thence.agents.codex.records import RolloutReader, is_ours, is_record
from thence.agents.records import QuietAgent, first_records, folder_above, lines_of, moment
from thence.format.facts import Fact
from thence.format.nodes import Node
from thence.format.records import JSON, word

LOGS = ("sessions", "archived_sessions")
"""Folders with rollouts, the one first whose file counts when both hold the same."""

INDEX = "session_index.jsonl"
HISTORY = "history.jsonl"

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_NAME = re.compile(rf"rollout-.*?({_UUID})(?:_({_UUID}))?\.jsonl(?:\.zst)?$")
_PACKED = ".zst"
_HEAD = 256 << 10, 16  # bytes and lines that show whose a log is; the first line is a long one
_MAX_DEPTH = 4  # year, month, day


class Codex(QuietAgent):
    """The reader of Codex's rollouts."""

    name = "codex"
    looks_for = "sessions/**/rollout-*.jsonl"

    def __init__(self) -> None:
        self._titles: dict[str, tuple[tuple[int, ...], dict[str, Fact]]] = {}

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Name the folder in which Codex keeps everything."""
        configured = env.get("CODEX_HOME")
        return [Path(configured) if configured else home / ".codex"]

    def find(self, root: Path) -> Iterator[Source]:
        """Find all threads below Codex's folder, or in a folder of loose rollouts."""
        threads: dict[str, dict[str, File]] = {}
        for path in _rollouts(str(root)):
            thread, key = _identity(path)
            segments = threads.setdefault(thread, {})
            if key not in segments or _rank(path) < _rank(segments[key].path):
                segments[key] = File(path, key)
        for thread, segments in threads.items():
            yield Source(self.name, thread, tuple(segments[k] for k in sorted(segments)), str(root))

    def at(self, path: Path) -> Source | None:
        """Return the thread that a file belongs to, with its other segments."""
        if path.is_symlink() or not path.is_file():
            return None
        named = _NAME.fullmatch(path.name)
        if named is None and not any(map(is_ours, first_records(str(path), *_HEAD))):
            return None
        thread, key = _identity(str(path))
        root = _root(path)
        if named is not None and (source := self.holder(root, path)) is not None:
            return source
        return Source(self.name, thread, (File(str(path), key),), str(root))

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """Read what is new in a thread's files; its name is looked up when there is something."""
        moved = msgspec.structs.replace(source, files=tuple(map(_current_file, source.files)))
        batch = files.read(moved, cursor, RolloutReader, is_record=is_record)
        if batch.events and (title := self._title_fact(source)) is not None:
            batch.events.append(title)
        return batch

    def prompts(self, root: Path) -> Iterator[AgentPrompt]:
        """Yield the prompts typed at the terminal, oldest first; `codex exec` writes none."""
        for value in lines_of(str(root / HISTORY)):
            text, thread = value.get("text"), word(value.get("session_id"))
            if isinstance(text, str):
                yield AgentPrompt(text, moment(value.get("ts")), thread or None)

    def titles(self, root: Path) -> dict[str, str]:
        """Return the names that `/rename` gave to threads; the last one counts."""
        facts = self._index(str(root))
        return {thread: word(fact.about.get("title:custom")) for thread, fact in facts.items()}

    def _title_fact(self, source: Source) -> Fact | None:
        return self._index(source.root).get(source.session) if source.root else None

    def _index(self, root: str) -> dict[str, Fact]:
        """Read the index of names, again only when it has changed."""
        path = Path(root, INDEX)
        try:
            status = path.lstat()
        except (OSError, ValueError):
            return {}
        stamp = status.st_ino, status.st_size, status.st_mtime_ns
        known = self._titles.get(root)
        if known is None or known[0] != stamp:
            known = self._titles[root] = stamp, _names(str(path))
        return known[1]


# -- names ----------------------------------------------------------------------------------


def _identity(path: str) -> tuple[str, str]:
    """Return the thread and the key of a file: by its name, else by its first line.

    Names and first lines agree in every rollout that Codex writes, and a name costs nothing.
    """
    base = Path(path).name
    if named := _NAME.search(base):
        thread, segment = named.groups()
        return thread.lower(), (segment or thread).lower()
    plain = base.removesuffix(_PACKED).removesuffix(".jsonl")
    head = next(filter(None, map(head_of, first_records(path, *_HEAD))), {})
    thread = word(head.get("id")) or plain
    return thread, thread


def _rank(path: str) -> tuple[bool, bool, str]:
    # Plain before packed, current before archived; the path, so that the choice stays.
    return path.endswith(_PACKED), LOGS[1] in Path(path).parts, path


def _current_file(file: File) -> File:
    """Return a file where it lies now: it may have been packed, unpacked or archived meanwhile."""
    path = file.path
    if os.path.lexists(path):
        return file
    plain = path.removesuffix(_PACKED)
    other = plain if path != plain else plain + _PACKED
    archived = _root(Path(path)) / LOGS[1] / Path(plain).name
    for place in (other, str(archived), f"{archived}{_PACKED}"):
        if os.path.lexists(place):
            return msgspec.structs.replace(file, path=place)
    return file


def _root(path: Path) -> Path:
    """Return Codex's folder for one of its files; of a loose file the folder it lies in."""
    return folder_above(path, *LOGS, steps=_MAX_DEPTH + 1) or path.parent


def _rollouts(root: str) -> Iterator[str]:
    """Yield the paths of all rollouts; a folder that is none of Codex's is not searched deeper."""
    folders = [str(made) for name in LOGS if (made := Path(root, name)).is_dir()]
    for folder in folders or [root]:
        for entry in files.walk(folder, _MAX_DEPTH if folders else 0):
            if _NAME.fullmatch(entry.name):
                yield entry.path


# -- contents -------------------------------------------------------------------------------


def _names(path: str) -> dict[str, Fact]:
    """Return what the index says of each thread, as facts: the line that names it last."""
    out: dict[str, Fact] = {}
    for line, value in enumerate(lines_of(path), 1):
        thread, name = word(value.get("id")), value.get("thread_name")
        if thread and isinstance(name, str):
            about: dict[str, JSON] = {"title:custom": name}
            node = Node(f"{INDEX}#{thread}")
            out[thread] = Fact(
                node,
                INDEX,
                word(value.get("updated_at")) or None,
                file=INDEX,
                line=line,
                about=about,
            )
    return out
