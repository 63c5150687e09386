"""The journal as tools that a harness hands to an agent, under the names agents know them by.

    append_transcript({session_id, event: {type, payload, uuid, prev_uuid?}})
        -> {byte_offset, line_number}
    read_history({limit?, reverse?}) -> [{prompt, ts, session_id, offset}]
    read_spill({session_id, name, offset?, limit?}) -> {text, offset, characters, next_offset}

Invariants: the same `event.uuid` in the same session is written once, and every call gives the
place of that first line, across reopening and across processes; a session that is open in this
process is written through, so that what its harness sees stays true; one that is not there is
begun; nothing an agent passes raises anything but a `ThenceError` that says what is wrong with
it. Reading the history touches no transcript, and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Self

import msgspec

from thence.errors import SessionNotFound, ThenceError
from thence.format import layout
from thence.format.records import JSON
from thence.journal.arguments import check_call
from thence.journal.journal import Journal
from thence.journal.session import Session

APPEND = "append_transcript"
READ = "read_history"
SPILL = "read_spill"

MAX_PART_CHARS = 20_000
"""Characters of a spilled result that one call gives: less than what would be spilled again."""


class _Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: str
    payload: JSON
    uuid: str
    prev_uuid: str | None = None


class _Append(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    session_id: str
    event: _Event


class _Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: int = 50
    reverse: bool = True


class _Spill(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    session_id: str
    name: str
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PART_CHARS)] = MAX_PART_CHARS


class Tools:
    """The tools of one journal. `close` ends the sessions that were opened for them."""

    @check_call
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._opened: dict[str, Session] = {}

    def append_transcript(self, opts: Mapping[str, JSON]) -> dict[str, int]:
        """Append one event, once, and tell where it stands."""
        asked = _read(APPEND, opts, _Append)
        _check_names(asked)
        event = asked.event
        session = self._session(asked.session_id)
        receipt = session.record(
            event.type,
            event.payload,
            uuid=event.uuid,
            parent=event.prev_uuid,
            any_parent=True,  # what it names is the caller's to answer for
        )
        return {"byte_offset": receipt.offset, "line_number": receipt.line}

    def read_history(self, opts: Mapping[str, JSON] | None = None) -> list[dict[str, JSON]]:
        """Return the prompts of this machine, newest first unless asked otherwise."""
        asked = _read(READ, {} if opts is None else opts, _Read)
        return self._journal.history.read(asked.limit, reverse=asked.reverse)

    def read_spill(self, opts: Mapping[str, JSON]) -> dict[str, JSON]:
        """Return a part of a result that a placeholder stands for; `next_offset` is the rest's."""
        asked = _read(SPILL, opts, _Spill)
        _check_id(SPILL, asked.session_id)
        if self._journal.has(asked.session_id):
            data = self._journal.read_spill(asked.session_id, asked.name)
        else:
            raise SessionNotFound(
                f"{SPILL}: no session {asked.session_id}", hint="name the one you are in"
            )
        text = data.decode("utf-8", "replace")
        end = asked.offset + asked.limit
        return {
            "text": text[asked.offset : end],
            "offset": asked.offset,
            "characters": len(text),
            "next_offset": end if end < len(text) else None,
        }

    def call(self, name: str, opts: Mapping[str, JSON]) -> JSON:
        """Run a tool by its name, as an agent's tool_use block gives it."""
        tools: dict[str, Callable[[Mapping[str, JSON]], JSON]] = {
            APPEND: self.append_transcript,
            READ: self.read_history,
            SPILL: self.read_spill,
        }
        if not isinstance(name, str) or name not in tools:
            raise ThenceError(f"no tool {str(name)[:80]!r}", hint=f"one of {', '.join(tools)}")
        return tools[name](opts)

    def _session(self, session_id: str) -> Session:
        """The session as its harness holds it, or else opened at its tip, or else begun."""
        for session in self._journal.open_sessions:
            if session.id == session_id:
                return session
        if self._journal.has(session_id):
            # "mark" writes nothing: what is open may be running in another process just now.
            opened = self._journal.resume(session_id, mode="continue", orphans="mark")
        else:
            opened = self._journal.create(session=session_id)
        self._opened[session_id] = opened
        return opened

    def close(self) -> None:
        """End the sessions that were opened here; those of others stay open."""
        opened, self._opened = self._opened, {}
        for session in opened.values():
            session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _read(tool: str, opts: Mapping[str, JSON], shape: type[msgspec.Struct]) -> JSON:
    try:
        return msgspec.convert(opts, shape)
    except (ValueError, TypeError, RecursionError) as error:
        raise ThenceError(f"{tool}: {error}", hint="definitions() has the schema") from error


def _check_names(asked: _Append) -> None:
    _check_id(APPEND, asked.session_id)
    if not asked.event.uuid or not asked.event.type:
        raise ThenceError(
            f"{APPEND}: an event needs a type and a uuid",
            hint="draw a uuid once and give the same one when you try again",
        )


def _check_id(tool: str, session_id: str) -> None:
    if not layout.is_id(session_id):
        raise SessionNotFound(
            f"{tool}: not an id of a session: {session_id[:80]!r}",
            hint="1 to 64 of A-Z a-z 0-9 _ -",
        )


def definitions() -> list[dict[str, JSON]]:
    """Return the tools as the Messages API takes them: name, description, input_schema."""
    event = _object(
        {
            "type": _a("string", "What kind of event: user, assistant or your own word."),
            "payload": {"description": "Any JSON value; messages as the Messages API has them."},
            "uuid": _a("string", "Drawn by you; the same one again writes nothing."),
            "prev_uuid": {
                "type": ["string", "null"],
                "description": "The event this one goes on from; left out: the last one.",
            },
        },
        required=["type", "payload", "uuid"],
    )
    append = _object(
        {"session_id": _a("string", "Which session; a new one is begun."), "event": event},
        required=["session_id", "event"],
    )
    read = _object(
        {
            "limit": {**_a("integer", "How many prompts, at most."), "default": 50, "minimum": 0},
            "reverse": {
                **_a("boolean", "Newest first, or from the very first on."),
                "default": True,
            },
        },
        required=[],
    )
    spill = _object(
        {
            "session_id": _a("string", "The session that the placeholder stands in."),
            "name": _a("string", "The name that the placeholder gives, such as 12ab….txt."),
            "offset": {**_a("integer", "The first character."), "default": 0, "minimum": 0},
            "limit": {
                **_a("integer", "How many characters, at most."),
                "default": MAX_PART_CHARS,
                "minimum": 1,
                "maximum": MAX_PART_CHARS,
            },
        },
        required=["session_id", "name"],
    )
    return [
        {
            "name": APPEND,
            "description": "Append one event to a session's transcript. Nothing is ever changed "
            "or removed. Gives byte_offset and line_number; the same uuid again gives the first.",
            "input_schema": append,
        },
        {
            "name": READ,
            "description": "Read the prompts given on this machine, of all sessions. Read-only.",
            "input_schema": read,
        },
        {
            "name": SPILL,
            "description": "Read a result that was too large for the conversation, part by part. "
            "Gives text, characters and next_offset. Read-only.",
            "input_schema": spill,
        },
    ]


def _a(kind: str, description: str) -> dict[str, JSON]:
    return {"type": kind, "description": description}


def _object(properties: dict[str, JSON], *, required: list[str]) -> dict[str, JSON]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
