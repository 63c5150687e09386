"""Lines of a notes file: what people write down, durable when the call returns."""

from __future__ import annotations

from pathlib import Path

from thence.format import codec
from thence.format.records import JSON, Event
from thence.journal.ids import now_text, uuid7
from thence.journal.log import Log, make_folder


def append_note(path: Path, kind: str, payload: dict[str, JSON]) -> Event:
    """Append a line to a file of notes, which is made if need be, and return it as an event."""
    return append_event(path, Event(kind, now_text(), uuid7(), None, payload))


def append_event(path: Path, event: Event) -> Event:
    """Append a line that was written on another machine, with the time and id that it has there."""
    make_folder(path.parent)
    log = Log(path, durability="event")
    try:
        log.append(codec.encode(event))
    finally:
        log.close()
    return event
