"""What people write down on the page of a session: its name, its tags and notes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import post
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, JSONBody

from thence.format.figures import clean
from thence.format.normal import one_line
from thence.format.records import JSON
from thence.memory.labels import MAX_NAME_CHARS, MAX_NOTE_CHARS, Label, label_changes, tag_of
from thence.memory.notes import Kind, note_path, read_notes
from thence.serve.clock import DisplayClock
from thence.serve.context import AppContext, ContextDependency
from thence.serve.session_head import note_line, title_of

MAX_TAGS = 50
"""Tags that one request may set."""


class LabelIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a session is to be called; what is null stays as it is, an empty name removes it."""

    name: Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARS)] | None = None
    tags: Annotated[list[str], msgspec.Meta(max_length=MAX_TAGS)] | None = None


class LabelOut(msgspec.Struct, frozen=True):
    """What a session is called now, and what its page is headed with."""

    name: str | None
    tags: tuple[str, ...]
    title: str


class NoteIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A note to be added."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NOTE_CHARS)]


class NoteOut(msgspec.Struct, frozen=True):
    """A note as the page shows it, and by what it can be removed."""

    uuid: str
    head: str
    text: str


class RemovalIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A note to be removed."""

    uuid: Annotated[str, msgspec.Meta(max_length=64)]


@post("/sessions/{uid:str}/label", include_in_schema=False, sync_to_thread=True, status_code=200)
def label(context: ContextDependency, uid: FromPath[str], data: JSONBody[LabelIn]) -> LabelOut:
    """Name a session and set its tags."""
    context.check_writable()
    session = context.row(uid).session
    name = None if data.name is None else one_line(context.as_stored(data.name), MAX_NAME_CHARS)
    tags = None if data.tags is None else [tag_of(context.as_stored(tag)) for tag in data.tags]
    notes = read_notes(context.home, "name", "tag")
    for kind, payload in label_changes(notes, session, name=name, tags=tags, origin="viewer"):
        _append(context, kind, payload)
    now = context.labels().get(session.session_uid, Label())
    return LabelOut(now.name, now.tags, title_of(context.display([context.row(uid)])[0]))


@post("/sessions/{uid:str}/notes", include_in_schema=False, sync_to_thread=True, status_code=200)
def add_note(context: ContextDependency, uid: FromPath[str], data: JSONBody[NoteIn]) -> NoteOut:
    """Add a note to a session."""
    context.check_writable()
    session = context.row(uid).session
    payload: dict[str, JSON] = {
        "text": clean(context.as_stored(data.text)),
        "cwd": session.cwd,
        "origin": "viewer",
        "session_uid": session.session_uid,
    }
    uuid = _append(context, "note", payload)
    note = next(note for note in read_notes(context.home, "note") if note.uuid == uuid)
    line = note_line(note, DisplayClock())
    return NoteOut(uuid, line.head, line.text)


@post(
    "/sessions/{uid:str}/notes/removed",
    include_in_schema=False,
    sync_to_thread=True,
    status_code=200,
)
def remove_note(
    context: ContextDependency, uid: FromPath[str], data: JSONBody[RemovalIn]
) -> dict[str, str]:
    """Remove a note of a session."""
    context.check_writable()
    owner = context.row(uid).session.session_uid
    notes = read_notes(context.home, "note")
    if not any(note.uuid == data.uuid and note.session_uid == owner for note in notes):
        raise NotFoundException("no such note")
    _append(context, "note", {"removes": data.uuid, "session_uid": owner})
    return {"removed": data.uuid}


def _append(context: AppContext, kind: Kind, payload: dict[str, JSON]) -> str:
    from thence.journal.notebook import append_note

    return append_note(note_path(context.home, kind), kind, payload).uuid or ""


ROUTES: list[HTTPRouteHandler] = [label, add_note, remove_note]
