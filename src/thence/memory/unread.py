"""What the last sweep found and did not read, as its home remembers it for whoever tells of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from thence import system
from thence.agents.profiles import label_of
from thence.agents.unread import Unread, grouped, words
from thence.format.figures import clean
from thence.memory.derivation import READER_VERSION
from thence.memory.stored_paths import locate, printable

FILE: Final = "memory/unread.json"


class _Remembered(msgspec.Struct, frozen=True):
    reader: int
    """The version of the readers: another one may read what this one could not."""
    items: tuple[Unread, ...] = ()


def read_unread(home: Path) -> list[Unread]:
    """Return what is remembered; without stamps where another version found it."""
    try:
        there = msgspec.json.decode((home / FILE).read_bytes(), type=_Remembered)
    except (OSError, msgspec.DecodeError):  # nothing was swept, or another version wrote it
        return []
    if there.reader == READER_VERSION:
        return list(there.items)
    return [msgspec.structs.replace(item, stamp="") for item in there.items]


def clean_unread(item: Unread, clean: Callable[[str], str]) -> Unread:
    """Return what is not read with a path and a reason that hold no secret."""
    return msgspec.structs.replace(item, path=clean(printable(item.path)), why=clean(item.why))


def still_unread(home: Path, seen: list[Unread], clean: Callable[[str], str]) -> list[Unread]:
    """Return what a look came upon, and the sessions that the last sweep could not read."""
    failed = [item for item in read_unread(home) if item.kind == "session" and _is_there(item)]
    return sorted({*(clean_unread(item, clean) for item in seen), *failed})


def remember_unread(
    home: Path, not_read: Iterable[Unread], looked: Mapping[str, Sequence[Path]]
) -> None:
    """Remember what a sweep found; what lies where it did not look stays as it was."""
    if not looked:
        return
    before = read_unread(home)
    others = [item for item in before if _is_there(item) and not _was_looked_at(item, looked)]
    _write(home, sorted({*others, *not_read}), before)


def forget_unread(home: Path, session: str) -> None:
    """Let go of what names a session."""
    before = read_unread(home)
    _write(home, [item for item in before if session not in item.path], before)


def _is_there(item: Unread) -> bool:
    return os.path.lexists(locate(item.path))


def _was_looked_at(item: Unread, looked: Mapping[str, Sequence[Path]]) -> bool:
    return any(f"{item.path}/".startswith(f"{root}/") for root in looked.get(item.agent, ()))


def _write(home: Path, items: list[Unread], before: list[Unread]) -> None:
    if items == before:
        return
    path = home / FILE
    passing = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    # On a disk that is full or read-only the sweep itself says so, and the next one tells again.
    with contextlib.suppress(OSError):
        handle = system.open_file(passing, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode(_Remembered(READER_VERSION, tuple(items))))
        passing.replace(path)


def unread_lines(items: Iterable[Unread]) -> Iterator[str]:
    """Yield a line for what one agent has of one kind for one reason."""
    for group in grouped(items):
        yield clean(f"{label_of(group[0].agent)}: {words(group)}")
