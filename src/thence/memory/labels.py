"""What the user says of sessions: names and tags, read from the notes of the home, and pins.

A session has the name that was written last and is not removed. Tags are words: letters, digits,
dashes, dots and underscores, in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from thence.agents import Cursor
from thence.agents.profiles import agent_of, agents, stored_name
from thence.errors import ThenceError
from thence.format.normal import Session
from thence.format.records import JSON
from thence.memory.notes import ALL_KINDS, KINDS, Kind, Note, Origin, read_notes
from thence.memory.ranking import session_filter
from thence.memory.search import MAX_ROWS, Query, SearchAnswer, named
from thence.memory.store import SessionChange, SessionRow, Store

MAX_NAME_CHARS: Final = 200
"""Characters of a name."""
MAX_NOTE_CHARS: Final = 10_000
"""Characters of a note that is written in the viewer."""
_TAG: Final = re.compile(r"[^\W_][\w.-]{0,39}")


class Label(msgspec.Struct, frozen=True):
    """What the user calls a session."""

    name: str | None = None
    tags: tuple[str, ...] = ()


class BadTag(ThenceError):
    """A tag that is none."""

    exit_code = 2


def tag_of(text: str) -> str:
    """Return a tag as it is stored; raises `BadTag` where it is none."""
    tag = text.strip().lower()
    if _TAG.fullmatch(tag) is None:
        hint = "a tag is one word of at most 40 letters, digits, dashes, dots and underscores"
        raise BadTag(f"not a tag: {text[:80]!r}", hint=hint)
    return tag


def labels_of(notes: Iterable[Note]) -> dict[str, Label]:
    """Return the labels of sessions by their uids; later notes win."""
    names: dict[str, str] = {}
    tags: dict[str, set[str]] = {}
    for note in notes:
        if note.session_uid is not None and note.kind == "name":
            names[note.session_uid] = note.text
        elif note.session_uid is not None and note.kind == "tag":
            tags.setdefault(note.session_uid, set()).add(note.text)
    return {
        uid: Label(names.get(uid), tuple(sorted(tags.get(uid, ()))))
        for uid in names.keys() | tags.keys()
    }


def read_labels(home: Path) -> dict[str, Label]:
    """Return the labels of the sessions of a home, by their uids."""
    return labels_of(read_notes(home, "name", "tag"))


def searchable_notes(home: Path) -> list[Note]:
    """Return all that was written down, for a search: of names the present ones only."""
    notes = read_notes(home, *ALL_KINDS)
    present = {note.session_uid: note.uuid for note in notes if note.kind == "name"}
    return [n for n in notes if n.kind != "name" or present[n.session_uid] == n.uuid]


def texts_of(notes: Iterable[Note]) -> list[Note]:
    """Return the decisions and notes, without the labels of sessions."""
    return [note for note in notes if note.kind in KINDS]


def label_changes(
    notes: Iterable[Note],
    session: Session,
    *,
    name: str | None = None,
    tags: Iterable[str] | None = None,
    origin: Origin = "cli",
) -> Iterator[tuple[Kind, dict[str, JSON]]]:
    """Yield the lines to append so that a session has a name and tags; None changes nothing.

    An empty name removes the one it has.
    """
    uid = session.session_uid
    own = [note for note in notes if note.session_uid == uid]
    label = labels_of(own).get(uid, Label())
    wanted = label.tags if tags is None else tuple(tags)
    added: list[tuple[Kind, str]] = [("tag", tag) for tag in wanted if tag not in label.tags]
    added += [("name", name)] if name and name != label.name else []
    removed = [note for note in own if note.kind == "tag" and note.text not in wanted]
    removed += [note for note in own if note.kind == "name" and name == ""]
    for kind, text in dict.fromkeys(added):
        yield kind, {"text": text, "cwd": session.cwd, "origin": origin, "session_uid": uid}
    for note in removed:
        yield note.kind, {"removes": note.uuid, "session_uid": uid}


def add_labels(rows: Sequence[SessionRow], labels: Mapping[str, Label]) -> list[SessionRow]:
    """Return rows with the names and tags that the user gave them, for the eye."""
    out = []
    for row in rows:
        label = labels.get(row.session.session_uid)
        if label is None:
            out.append(row)
        else:
            title = label.name or row.title
            out.append(replace(row, title=title, tags=label.tags))
    return out


def tagged_uids(labels: Mapping[str, Label], tag: str) -> frozenset[str]:
    """Return the uids of the sessions that have a tag; BadQuery where none has it."""
    named("tag", tag.lower(), sorted({tag for label in labels.values() for tag in label.tags}))
    return frozenset(uid for uid, label in labels.items() if tag.lower() in label.tags)


def with_tagged(query: Query, labels: Mapping[str, Label]) -> Query:
    """Return a question that knows which sessions have the tag it asks for."""
    if query.tag is None:
        return query
    return replace(query, uids=tagged_uids(labels, query.tag))


def stored_agent(store: Store, name: str) -> str:
    """Return the stored name of an agent that is installed, or has sessions in a store."""
    stored = stored_name(name)
    if agent_of(stored) is None:
        there = [f"{total.key[0]}" for total in store.totals(["agent"])]
        named("agent", stored, dict.fromkeys((*there, *agents())))
    return stored


def search(store: Store, query: Query, limit: int, offset: int = 0) -> SearchAnswer:
    """Return the best answers of a store, of sessions with a tag where one is asked for.

    With words these are looked for among the best `MAX_ROWS` answers; `capped` says if there are
    more.
    """
    if query.agent is not None:
        stored_agent(store, query.agent)
    if query.lists_sessions and query.ticks_over is None and query.ticks_under is None:
        number = store.totals((), session_filter(query))[0].sessions
        return replace(store.search(query, limit, offset), sessions=number)
    if query.uids is None or query.lists_sessions:
        return store.search(query, limit, offset)
    answer = store.search(query, MAX_ROWS)
    matches = [match for match in answer.matches if match.session_uid in query.uids]
    return replace(
        answer,
        matches=matches[offset : offset + limit],
        total=len(matches),
        sessions=len({match.session_uid for match in matches}),
        capped=answer.capped or answer.total > len(answer.matches),
    )


def set_pinned(store: Store, rows: Sequence[SessionRow], *, is_pinned: bool) -> None:
    """Pin sessions or unpin them; the caller holds the lock of sweeps."""
    known = store.known({row.session.session_uid for row in rows}).sessions
    changes = []
    for row in rows:
        uid = row.session.session_uid
        if row.pinned is not is_pinned:
            # Of another machine's session nobody here knows how far it was read.
            cursor = known[uid].cursor if uid in known else Cursor()
            changes.append(SessionChange(msgspec.structs.replace(row, pinned=is_pinned), cursor))
    store.write(changes)
