"""What agents promised and did not do, over all sessions, as the digests tell it."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from thence.format.records import JSON
from thence.memory.dismissals import todo_key
from thence.memory.store import Filter, Store


def open_promises(
    store: Store, wanted: Filter, dismissed: AbstractSet[str] = frozenset()
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
                    "title": digest.get("title"),
                    "ended_at": digest.get("ended_at"),
                }
            )
    if dismissed:
        out = [todo for todo in out if todo_key(todo) not in dismissed]
    out.sort(key=lambda entry: entry["ended_at"] or "", reverse=True)
    return out
