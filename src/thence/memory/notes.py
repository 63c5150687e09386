"""What people write down in a home: decisions, notes, and the names and tags of sessions.

Each kind is a file of event lines below `notes/`, beside the store: nothing that happens to a
store, to its rows or to a source touches them. Lines are appended; a line that says `removes`
takes an earlier one back, so that every change can be undone. `forget_notes` overwrites the lines
of a session. A decision or note that belongs to a session is also an event of it (`note_events`);
names and tags are read by `memory.labels`.

A note carries its origin: `cli` was typed on the command line, `viewer` in the viewer, `mcp` was
written by an agent through the MCP server, `thence` tells of a loss, and `unknown` is from before
origins were recorded. What a note says is data, whoever wrote it. A line that says `confirms`
names a decision that the user did not write, or a session that a file brought, which later
sessions may be told of.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

import msgspec
from msgspec.structs import replace

from thence import system
from thence.format import codec
from thence.format.derived_events import time_of
from thence.format.graph import State
from thence.format.normal import SessionEvent, event_id, one_line
from thence.format.records import JSON, Event
from thence.memory.cjk_pairs import index_text
from thence.memory.local_days import millis
from thence.memory.origins import Confirmations, describe_origin

if TYPE_CHECKING:
    from thence.memory.search import Query
    from thence.memory.store import SessionRow

Kind = Literal["decision", "note", "name", "tag"]
Origin = Literal["cli", "viewer", "mcp", "thence", "unknown"]

ALL_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
KINDS: Final[tuple[Kind, ...]] = ("decision", "note")
"""What is a text of its own; the other kinds label a session."""
AUTHORS: Final[dict[Origin, str]] = {
    "cli": "written on the command line",
    "viewer": "written in the viewer",
    "mcp": "by an agent",
    "thence": "written by thence itself",
    "unknown": "author not recorded",
}
OWN: Final[frozenset[Origin]] = frozenset({"cli", "viewer", "thence"})
"""Origins of what the user wrote, or thence for the user: nobody has to confirm it."""
ANNOUNCED_DAYS: Final = 7
"""Days for which it is announced that sessions go by their age, before the first ones go."""
CHANNEL: Final = "notes"
"""The channel of decisions and notes among the events of their session."""
FOLDER: Final = "notes"
"""Where the files lie in a home; they look like sessions of ours and are none."""
_AGE_NOTICE: Final = "removal-by-age"
_WORDS: Final = re.compile(r"[^\W_]+")


class Note(msgspec.Struct, frozen=True):
    """One decision or note."""

    kind: Kind
    ts: str
    uuid: str
    text: str
    origin: Origin = "unknown"
    session_uid: str | None = None
    cwd: str | None = None
    event_id: int | None = None
    """The event of its session that it is; None for labels and for what belongs to no session."""
    machine: str | None = None
    """The other machine that it was written on, as that calls itself."""
    is_confirmed: bool | None = None
    """Whether the user confirmed what somebody else wrote; None for the user's own."""

    @property
    def author(self) -> str:
        """How it came to be written, for people."""
        return describe_origin(
            author=AUTHORS[self.origin],
            machine=self.machine or "",
            is_confirmed=self.is_confirmed,
        )

    @property
    def is_withheld(self) -> bool:
        """Whether hooks leave it out until the user confirms it."""
        return self.is_confirmed is False

    @property
    def foreign_author(self) -> str:
        """Who wrote it, in words, where that was not the user on this machine; else empty."""
        return "" if self.origin in OWN and self.machine is None else self.author

    @property
    def marked_text(self) -> str:
        """Its text; who wrote it comes first, where that was not the user on this machine."""
        return f"({self.foreign_author}) {self.text}" if self.foreign_author else self.text


def note_path(home: Path, kind: Kind) -> Path:
    """Return the file of one kind."""
    return home / FOLDER / f"{kind}s.jsonl"


def read_notes(home: Path, *kinds: Kind) -> list[Note]:
    """Return the notes of a home in the order of their time, without those that were removed.

    These are decisions and notes unless other kinds are asked for. Lines that are none are left
    out.
    """
    notes = [note for kind in kinds or KINDS for note in _read_file(home, kind)]
    return sorted(notes, key=lambda note: note.ts)  # of one moment: as they were written


def note_lines(home: Path) -> Iterator[tuple[Kind, Event]]:
    """Yield all lines of all kinds, also those that remove others, in the order of the files."""
    for kind in ALL_KINDS:
        for event in _events_in(home, kind):
            yield kind, event


def _read_file(home: Path, kind: Kind) -> list[Note]:
    """Return the notes of one kind; lines of other machines may stand in any order."""
    notes: dict[str, Note] = {}
    removed: set[str] = set()
    confirmed: set[str] = set()
    for number, event in enumerate(_events_in(home, kind)):
        payload = event.payload
        if isinstance(payload, dict):
            if isinstance(payload.get("removes"), str):
                removed.add(payload["removes"])
            elif isinstance(payload.get("confirms"), str):
                confirmed.add(payload["confirms"])
            else:
                notes[event.uuid or f"{number}"] = _note_of(kind, event, payload)
    return [
        note if note.origin in OWN else replace(note, is_confirmed=name in confirmed)
        for name, note in notes.items()
        if name not in removed
    ]


def confirmation_of(note: Note) -> dict[str, JSON]:
    """Return the line by which the user confirms a decision that somebody else wrote."""
    of = {} if note.session_uid is None else {"session_uid": note.session_uid}
    return {"confirms": note.uuid, "cwd": note.cwd, "origin": "cli", **of}


def session_confirmation(row: SessionRow) -> dict[str, JSON]:
    """Return the line by which the user confirms what a file says, or what a project keeps."""
    confirms, content_hash = row.confirmation or ("", "")
    fields: dict[str, JSON] = {"confirms": confirms, "content_hash": content_hash}
    uid = row.session.session_uid
    of = {"session_uid": uid} if confirms == uid else {}
    return {**fields, "cwd": row.session.cwd, "origin": "cli", **of}


def read_confirmations(home: Path) -> Confirmations:
    """Return what the user confirmed of files and projects."""
    lines = (event.payload for event in _events_in(home, "decision"))
    return frozenset(
        (f"{line.get('confirms')}", f"{line['content_hash']}")
        for line in lines
        if isinstance(line, dict) and "content_hash" in line
    )


def _events_in(home: Path, kind: Kind) -> list[Event]:
    try:
        body = note_path(home, kind).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [event for event in codec.decode(body).events if isinstance(event, Event)]


def forget_notes(home: Path, session_uid: str) -> int:
    """Overwrite all that was written down about a session with blanks; return how many lines.

    A line is never moved and others only append, so its bytes may be overwritten at any time.
    """
    count = 0
    for kind in ALL_KINDS:
        try:
            handle = system.open_file(note_path(home, kind), os.O_RDWR)
        except (FileNotFoundError, NotADirectoryError):
            continue
        with os.fdopen(handle, "r+b", buffering=0) as file:
            offset = 0
            for line in file.readall().split(b"\n"):
                if _is_of(line, kind, session_uid):
                    system.write_at(handle, b" " * len(line), offset)
                    count += 1
                offset += len(line) + 1
            os.fsync(handle)
    return count


def _is_of(line: bytes, kind: Kind, session_uid: str) -> bool:
    return any(
        isinstance(event, Event)
        and isinstance(event.payload, dict)
        and _note_of(kind, event, event.payload).session_uid == session_uid
        for event in codec.decode(line + b"\n").events
    )


def note_events(notes: Iterable[Note], session_uid: str) -> list[SessionEvent]:
    """Return the decisions and notes of a session as events of it, in a channel of their own."""
    return [
        SessionEvent(
            session_uid,
            note.event_id or event_id(session_uid, note.uuid),
            "decision" if note.kind == "decision" else "lifecycle",
            ts=note.ts or None,
            role="system",
            summary=one_line(note.marked_text),
            payload=note.marked_text,
            channel=CHANNEL,
            state=State.SIDE,
            native_id=note.uuid,
            native_type=note.kind,
        )
        for note in notes
        if note.session_uid == session_uid and note.kind in KINDS
    ]


def _note_of(kind: Kind, event: Event, payload: dict[str, JSON]) -> Note:
    origin = payload.get("origin")
    session, cwd, machine = (payload.get(name) for name in ("session_uid", "cwd", "machine"))
    uuid = event.uuid or ""
    is_event = isinstance(session, str) and kind in KINDS
    return Note(
        kind,
        event.ts or "",
        uuid,
        str(payload.get("text", "")),
        origin if isinstance(origin, str) and origin in AUTHORS else "unknown",
        session if isinstance(session, str) else None,
        cwd if isinstance(cwd, str) else None,
        event_id(f"{session}", uuid) if is_event else None,
        machine if isinstance(machine, str) else None,
    )


# -- removal by age, announced ---------------------------------------------------------------


def age_removal_start(home: Path) -> datetime | None:
    """Return from when on sessions may go by their age; None when that was not announced yet."""
    try:
        text = (home / FOLDER / _AGE_NOTICE).read_text(encoding="ascii").strip()
        announced = datetime.fromisoformat(text)
    except (OSError, ValueError):
        return None
    return announced + timedelta(days=ANNOUNCED_DAYS) if announced.tzinfo else None


def announce_age_removal(home: Path, now: datetime) -> datetime:
    """Return from when on sessions may go by their age, announcing it the first time."""
    start = age_removal_start(home)
    if start is not None:
        return start
    path = home / FOLDER / _AGE_NOTICE
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(now.isoformat(), encoding="ascii")
    return now + timedelta(days=ANNOUNCED_DAYS)


def announcement(number: int, start: datetime) -> str:
    """Say that sessions will go by their age, and how to keep them."""
    many = f"{number:,} transcript{'' if number == 1 else 's'}"
    return (
        f"{many} will be removed because of their age from {start:%Y-%m-%d} on; the original logs"
        " still exist. thence store pin ID pins one, raw_max_age_days = 0 keeps all"
    )


# -- searching ------------------------------------------------------------------------------


def matching_notes(notes: Iterable[Note], query: Query) -> list[Note]:
    """Return the notes that answer a search, the newest first.

    Filters that only a session can meet (agent, model, tool, outcome, cost) leave notes out.
    """
    of_sessions = (query.agent, query.model, query.outcome, query.ticks_over, query.ticks_under)
    if any(value is not None for value in of_sessions):
        return []
    return [note for note in reversed(list(notes)) if _matches(note, query)]


def _matches(note: Note, query: Query) -> bool:
    if not set(query.marks) <= {f"kind{note.kind}"}:
        return False
    if note.kind not in KINDS and not query.wanted:
        return False  # a label is found by its words; filters list the session itself
    if query.uids is not None and note.session_uid not in query.uids:
        return False
    if query.project is not None and query.project.lower() not in (note.cwd or "").lower():
        return False
    moment = time_of(note.ts)
    when = millis(moment) if moment is not None else None
    if query.after is not None and (when is None or when < query.after):
        return False
    if query.before is not None and (when is None or when >= query.before):
        return False
    words = _words(index_text(note.text))
    if any(_holds(words, term) for term in query.without):
        return False
    return all(any(_holds(words, term) for term in group) for group in query.wanted)


def _holds(words: list[str], term: str) -> bool:
    """Whether words hold a phrase; one that ends in `*` may end with the beginning of a word."""
    phrase = _words(term)
    size, last = len(phrase), phrase[-1] if phrase else ""
    for start in range(len(words) - size + 1):
        part = words[start : start + size]
        if part == phrase or (
            term.endswith("*") and part[:-1] == phrase[:-1] and part[-1].startswith(last)
        ):
            return True
    return False


def _words(text: str) -> list[str]:
    """Return the words of a text as the index knows them: small, without accents."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return _WORDS.findall(unicodedata.normalize("NFC", plain).casefold())
