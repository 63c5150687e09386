"""What agents promised and did not do, over all sessions, and what of it the user dismissed.

To-dos are as the digests tell them. Dismissed ones stand in a file of the home, one line for each
change. A line names a to-do by a hash of its session and text, so the file repeats nothing that a
log says. The last line of a to-do decides. Lines that cannot be read dismiss nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

import msgspec

from thence import system
from thence.format.records import JSON
from thence.memory.labels import Label
from thence.memory.recall import shown_rows
from thence.memory.store import Filter, Store

FILE: Final = "dismissed-todos.jsonl"
MAX_FILE_BYTES: Final = 4 << 20
"""Bytes of the file that are read, the last ones."""


def open_promises(
    store: Store,
    wanted: Filter,
    labels: Mapping[str, Label],
    dismissed: AbstractSet[str] = frozenset(),
) -> list[dict[str, JSON]]:
    """Return what is open, as the digests tell it, the newest first, without what is dismissed."""
    out: list[dict[str, JSON]] = []
    for digest in store.read_table("digests", wanted):
        todos = digest.get("todos")
        for todo in todos if isinstance(todos, list) else ():
            if not isinstance(todo, dict) or not isinstance(todo.get("text"), str):
                continue
            out.append(
                {
                    "session_uid": digest["uid"],
                    "text": todo["text"],
                    "status": todo.get("status"),
                    "origin": todo.get("origin"),
                    "event_id": todo.get("event"),
                    "cwd": digest.get("cwd"),
                    "ended_at": digest.get("ended_at"),
                }
            )
    if dismissed:
        out = [todo for todo in out if todo_key(todo) not in dismissed]
    out.sort(key=lambda entry: entry["ended_at"] or "", reverse=True)
    rows = shown_rows(store, {todo["session_uid"] for todo in out}, labels)
    return [{**todo, "title": rows[todo["session_uid"]].title} for todo in out]


# -- dismissed ------------------------------------------------------------------------------


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
