"""To-dos that the user dismissed: a file of the home, one line for each change.

A line names a to-do by a hash of its session and text, so the file repeats nothing that a log
says. The last line of a to-do decides. Lines that cannot be read dismiss nothing.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

import msgspec

from thence import system
from thence.format.records import JSON

FILE: Final = "dismissed-todos.jsonl"
MAX_FILE_BYTES: Final = 4 << 20
"""Bytes of the file that are read, the last ones."""


class DismissalLine(msgspec.Struct, frozen=True):
    """One change."""

    todo: str
    dismissed: bool


def todo_key(todo: dict[str, JSON]) -> str:
    """Return the name of a to-do: the same as long as its session and text are the same."""
    text = f"{todo.get('session_uid')}\n{todo.get('text')}"
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:24]


def dismissed_todos(home: Path) -> frozenset[str]:
    """Return the names of the to-dos that were dismissed."""
    try:
        with (home / FILE).open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - MAX_FILE_BYTES, 0))
            lines = file.read().splitlines()
    except OSError:
        return frozenset()
    dismissed: set[str] = set()
    for line in lines:
        try:
            change = msgspec.json.decode(line, type=DismissalLine)
        except msgspec.MsgspecError:
            continue
        (dismissed.add if change.dismissed else dismissed.discard)(change.todo)
    return frozenset(dismissed)


def set_dismissed(home: Path, todo: str, *, is_dismissed: bool) -> None:
    """Dismiss a to-do, or show it again; on the disk on return."""
    descriptor = system.open_file(home / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(descriptor, msgspec.json.encode(DismissalLine(todo, is_dismissed)) + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
