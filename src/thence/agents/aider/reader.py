"""Chats of aider: one Markdown file per repository, to which every chat is appended.

`.aider.chat.history.md` lies where aider was started, mostly at the top of a repository; no file
lists these places. So they are named in the settings of thence, or by the variable that moves the
file. aider reads the whole file again with `--restore-chat-history`: it is one session here, and
each start in it begins with an empty context. aider deletes nothing by itself and does not say
which chats run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path

from thence.agents import Batch, Cursor, File, Source, files
from thence.agents.records import QuietAgent

NAME = ".aider.chat.history.md"
VARIABLE = "AIDER_CHAT_HISTORY_FILE"

_START = re.compile(
    rb"\s*# aider chat started at (\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)\s*\n"
    rb"\s*((?:>[^\n]*\n)+)\s*\n"
)
_HEAD_BYTES = 8 << 10


class Aider(QuietAgent):
    """The reader of aider's chats."""

    name = "aider"
    looks_for = f"{NAME}, in the folder or one below it"

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Return the folder that the variable names, or the one of its file, and aider's own.

        The user's home is none: all that lies in it would be watched.
        """
        named = Path(env.get(VARIABLE) or home / ".aider").expanduser()
        folder = named.parent if named.suffix == ".md" else named
        return list(dict.fromkeys([*([folder] if folder != home else []), home / ".aider"]))

    def find(self, root: Path) -> Iterator[Source]:
        """Yield the chats of a repository, or of the repositories in a folder."""
        place = str(root)
        for folder in (place, *[entry.path for entry in files.folders_in(place)]):
            if (source := _source(f"{folder}/{NAME}")) is not None:
                yield source

    def at(self, path: Path) -> Source | None:
        """Return the chats in a file, whatever it is called."""
        path = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links
        return _source(str(path)) if path.suffix == ".md" else None

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """Read what is new since the cursor."""
        from thence.agents.aider.chat import read

        return read(source, cursor)


def _source(path: str) -> Source | None:
    """Return the chats in a file; None for a file that is not there or not aider's.

    They are known by the time of the first one and by what aider said at its start, which stays
    when the file is moved. Before aider has said that, nobody has asked it anything.
    """
    start = files.start_of(path, _HEAD_BYTES) if files.is_regular(path) else None
    if (match := _START.match(start or b"")) is None:
        return None
    time = b"".join(match.groups()[:6]).decode()
    mark = blake2b(match[7], digest_size=4).hexdigest()
    session = f"{time[:8]}-{time[8:]}-{mark}"
    return Source(Aider.name, session, (File(path, "main"),), str(Path(path).parent))
