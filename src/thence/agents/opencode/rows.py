"""The rows of OpenCode's database that belong to one session, in the order they were written.

`event` has one row per write and session, numbered from 0 without a gap. Messages that no event
tells of are older than that table, or were imported: they come first, from their own rows, and all
of the session is read again if one of them changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from thence.agents import File, Mark, Source
from thence.agents.opencode.messages import OpenCodeMessages
from thence.agents.records import Record, fields, text
from thence.agents.sqlite_rows import Database, row
from thence.format.codec import RawRecord
from thence.format.facts import Fact
from thence.format.records import JSON, count, parse_json, word

_ESTIMATED_EVENT_BYTES = 1024  # a guess: events are not measured
_PART = "message.part.updated"
_NAMES = ("id", "data")
_SESSION_COLUMNS = (
    "id",
    "parent_id",
    "directory",
    "title",
    "version",
    "revert",
    "time_created",
    "time_updated",
)


def versions(database: Database) -> list[tuple[str, str, float, int]]:
    """Return id, version, time and size of all sessions in a database."""
    database.require("session", "id")
    return list(_versions(database, None))


def _versions(database: Database, session: str | None) -> Iterator[tuple[str, str, float, int]]:
    if not database.has_columns("session", ("id",)):
        return
    parameters = () if session is None else (session,)
    sequence = "WHERE aggregate_id = ?" if parameters else ""
    has_events = database.has_columns("event_sequence", ("aggregate_id", "seq"))
    numbers: dict[str, int] = {}
    if has_events:
        rows = database.select("event_sequence", ("aggregate_id", "seq"), sequence, *parameters)
        numbers = {word(name): count(last) for name, last in rows}
    columns = ("id", "time_updated")
    if session is None:
        times = database.select_once("session", columns)
    else:
        times = database.select("session", columns, "WHERE id = ? LIMIT 1", session)
    for name, updated in list(times):
        if not isinstance(name, str) or not name:
            continue
        when = count(updated) / 1000
        if name in numbers:
            yield name, f"e{numbers[name]}", when, (numbers[name] + 1) * _ESTIMATED_EVENT_BYTES
        elif has_events:
            yield name, f"r{count(updated)}", when, _ESTIMATED_EVENT_BYTES
        else:
            version = f"r{count(updated)}.{_state_of(database, name)}"
            yield name, version, when, _ESTIMATED_EVENT_BYTES


def _state_of(database: Database, session: str) -> str:
    """Return what identifies the rows of a session that have no event."""
    out: list[JSON] = []
    if database.has_columns("part", ("session_id",)):
        query = "SELECT count(*) FROM part WHERE session_id = ?"
        out += [number for (number,) in database.ask(query, session)]
    if database.has_columns("message", ("session_id", "time_created", "id")):
        last = "WHERE session_id = ? ORDER BY time_created DESC, id DESC LIMIT 1"
        out += [when for (when,) in database.select("message", ("time_updated",), last, session)]
    return ".".join(str(count(number)) for number in out)


class OpenCodeLog(OpenCodeMessages):
    """The rows of one session."""

    def __init__(self, database: Database, source: Source, file: File, mark: Mark) -> None:
        super().__init__(source, file, mark)
        self._database = database
        self._mark = mark
        current = next(_versions(database, source.session), None)
        self.version = current[1] if current is not None else ""
        self._has_events = database.has_columns("event", ("aggregate_id", "seq", "type", "data"))
        self._event = text(self._carried.get("event"))
        self._number = self._carried.get("number")
        self._rows = text(self._carried.get("rows"))

    def carry(self) -> JSON:
        """Return where the reading stands, and what the messages need."""
        state = {"event": self._event, "number": self._number, "rows": self._rows}
        more = {name: value for name, value in state.items() if value is not None}
        return {**fields(super().carry()), **more}

    # -- what was read ------------------------------------------------------------------

    def is_known(self) -> bool:
        """Return whether the rows that were read are still there."""
        if not self.version:  # the client deleted the session: what was read of it stands
            return True
        if self._rows is not None and self._rows != self._state():
            return False
        if not isinstance(self._number, int):
            return True
        query = "SELECT id FROM event WHERE aggregate_id = ? AND seq = ?"
        names = [name for (name,) in self._ask(query, self._number)]
        return names == [self._event]

    def _ask(self, query: str, *values: str | float | None) -> Iterator[tuple[JSON, ...]]:
        if not self._has_events:
            return iter(())
        return self._database.ask(query, self._session, *values)

    def _has_all_events(self) -> bool:
        query = "SELECT type FROM event WHERE aggregate_id = ? AND seq = 0"
        return any(word(kind).startswith("session.created") for (kind,) in self._ask(query))

    def _state(self) -> str:
        """Return what identifies the rows that have no event; "" if there are none."""
        return "" if self._has_all_events() else _state_of(self._database, self._session)

    # -- rows ---------------------------------------------------------------------------

    def rows(self) -> Iterator[RawRecord]:
        """Yield the rows that no event tells of, unless they were read; then new events."""
        line = self._mark.line
        if not isinstance(self._number, int):
            if self._rows is None:
                self._rows = self._state()
            at = 0
            for at, (value, size) in enumerate(self._older() if self._rows else (), 1):
                if at >= line:
                    yield row(at, value, size)
            line = at + 1
        last = self._number if isinstance(self._number, int) else -1
        for size, number, name, kind, data in self._events(last):
            if not isinstance(number, int):
                continue
            self._number, self._event = number, text(name)
            event: Record = {"id": name, "type": kind, "data": parse_json(data)}
            yield row(line, event, count(size))
            line += 1

    def _events(self, last: int) -> Iterator[tuple[JSON, ...]]:
        if not self._has_events:
            return iter(())
        after = "WHERE aggregate_id = ? AND seq > ? ORDER BY seq"
        names = ("seq", "id", "type", "data")
        return self._database.select_sized("event", names, after, self._session, last)

    def final_facts(self) -> Iterable[Fact]:
        """Return nothing: every fact has its row."""
        return ()

    def _older(self) -> Iterator[tuple[Record, int]]:
        """Yield the session, its messages and their parts, as far as no event tells of them."""
        for values in self._database.select(
            "session", _SESSION_COLUMNS, "WHERE id = ?", self._session
        ):
            yield _session_event(dict(zip(_SESSION_COLUMNS, values, strict=True))), 0
        if not self._database.has_columns("message", ("id", "session_id", "data", "time_created")):
            return
        known = self._messages_in_events()
        where = "WHERE session_id = ? ORDER BY time_created, id"
        for size, name, data in self._database.select_sized(
            "message", _NAMES, where, self._session
        ):
            if not isinstance(name, str) or name in known:
                continue
            info = {**fields(parse_json(data)), "id": name}
            parts = list(self._parts(name))
            yield _message_event(info), count(size)
            for part, bytes_ in parts:
                yield {"id": part["id"], "type": _PART, "data": {"part": part}}, bytes_
            steps = [part["tokens"] for part, _ in parts if part.get("type") == "step-finish"]
            for tokens in steps[:-1]:  # versions of 2025: the message has those of its last step
                yield _message_event({**info, "tokens": tokens}), 0

    def _parts(self, message: str) -> Iterator[tuple[Record, int]]:
        if not self._database.has_columns("part", ("id", "message_id", "data")):
            return
        where = "WHERE message_id = ? ORDER BY id"
        for size, name, data in self._database.select_sized("part", _NAMES, where, message):
            part = {"tokens": None, **fields(parse_json(data)), "id": name, "messageID": message}
            yield part, count(size)

    def _messages_in_events(self) -> set[str]:
        query = "SELECT data FROM event WHERE aggregate_id = ? AND type LIKE 'message.updated%'"
        return {
            word(fields(fields(parse_json(data)).get("info")).get("id"))
            for (data,) in self._ask(query)
        }


def _message_event(info: Record) -> Record:
    """Return a row of `message` as the event that would have written it."""
    return {"id": info["id"], "type": "message.updated", "data": {"info": info}}


def _session_event(session: Record) -> Record:
    """Return a row of `session` as the event that would have written it."""
    info = {
        "id": session["id"],
        "parentID": session["parent_id"],
        "directory": session["directory"],
        "title": session["title"],
        "version": session["version"],
        "revert": parse_json(session["revert"]),
        "time": {"created": session["time_created"], "updated": session["time_updated"]},
    }
    return {"id": session["id"], "type": "session.updated", "data": {"info": info}}
