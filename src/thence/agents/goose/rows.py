"""The rows of goose's database that belong to one session, as facts.

One answer of the model is several rows: its text, then each call and each result. Rows are written
when the tools of a step have ended, so that a killed step is on no disk. A compaction replaces all
rows: those the model no longer sees stay, a summary follows them. Tokens are told per session, with
what the cache gave in the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final
from zlib import crc32

from thence.agents import File, Mark, Source
from thence.agents.files import clean_carry
from thence.agents.message_rows import TOTALS, MessageRows, Totals
from thence.agents.records import (
    Record,
    answer,
    call,
    fields,
    image,
    injected_text,
    integer_of,
    moment,
    note,
    objects,
    prompt,
    result,
    text,
    thought,
)
from thence.agents.sqlite_rows import Database, RowLog
from thence.format.codec import RawRecord
from thence.format.facts import Block, CallStatus, Edge, Fact, answers_of, calls_of
from thence.format.nodes import Is, Node
from thence.format.records import JSON, Place, Usage, count, parse_json, word

TITLE: Final = "title requests are not in the log"
KILLED: Final = "the client was ended before it wrote what the model answered"

_DELEGATED: Final = "sub_agent"
_DEFAULT_TITLES: Final = ("", "CLI Session", "New Chat", "New session")
_ESTIMATED_ROW_BYTES: Final = 1024  # a guess: rows are not measured
_PARTS: Final = (
    *("text", "image", "thinking", "redactedThinking", "toolRequest", "frontendToolRequest"),
    *("toolResponse", "toolConfirmationRequest", "actionRequired", "systemNotification"),
)
_MAX_ROW_NAMES: Final = 64  # of the last rows, to tell those apart that share one
_SESSION_COLUMNS: Final = (
    "id",
    "name",
    "user_set_name",
    "session_type",
    "working_dir",
    "created_at",
    "updated_at",
    "accumulated_input_tokens",
    "accumulated_output_tokens",
    "accumulated_cost",
    "model_config_json",
)


# -- finding --------------------------------------------------------------------------------


def versions(database: Database) -> list[tuple[str, str, float, int]]:
    """Return id, version, time and size of all sessions with a message."""
    database.require("sessions", "id")
    rows: dict[JSON, tuple[int, int, int]] = {}
    if database.has_columns("messages", ("id", "session_id")):
        query = "SELECT session_id, count(*), max(id), min(id) FROM messages GROUP BY session_id"
        for name, number, last, first in database.ask(query):
            rows[name] = count(number), count(last), count(first)
    out: list[tuple[str, str, float, int]] = []
    for values in database.select_once("sessions", _SESSION_COLUMNS):
        row = dict(zip(_SESSION_COLUMNS, values, strict=True))
        name = text(row["id"])
        if name is None or name not in rows:
            continue
        version = ".".join(map(str, (*rows[name], crc32(repr(values).encode("utf-8", "replace")))))
        out.append(
            (name, version, _seconds(row["updated_at"]), rows[name][0] * _ESTIMATED_ROW_BYTES)
        )
    return out


def _seconds(value: JSON) -> float:
    """Return a time as SQLite writes it, in seconds since 1970; 0 if it is none."""
    try:
        return datetime.fromisoformat(word(value)).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def open_log(database: Database, source: Source, file: File, mark: Mark) -> RowLog:
    """Return the rows of a session, or its totals."""
    make = GooseTotals if file.key == TOTALS else GooseMessages
    return make(database, source, file, mark)


def _row_of(database: Database, session: str) -> Record:
    rows = list(database.select("sessions", _SESSION_COLUMNS, "WHERE id = ?", session))
    return dict(zip(_SESSION_COLUMNS, rows[0], strict=True)) if rows else {}


def _model(row: Record) -> str | None:
    return text(fields(parse_json(row.get("model_config_json"))).get("model_name"))


class GooseTotals(Totals):
    """What was billed for the session."""

    def totals(self) -> Mapping[str, tuple[str | None, Usage]]:
        """Return the tokens of all requests; the last request's are told elsewhere."""
        row = _row_of(self._database, self._session)
        input_tokens = count(row.get("accumulated_input_tokens"))
        output_tokens = count(row.get("accumulated_output_tokens"))
        return {"requests": (_model(row), Usage(input_tokens, output_tokens))}


# -- rows -----------------------------------------------------------------------------------


class GooseMessages(MessageRows):
    """The rows of one session."""

    columns = ("message_id", "role", "content_json", "created_timestamp", "metadata_json")

    carries = ("last", "about", "asked", "hidden", "names")
    """What the next row goes on from."""

    def __init__(self, database: Database, source: Source, file: File, mark: Mark) -> None:
        super().__init__(database, source, file, mark)
        self._row = _row_of(database, source.session)
        self._is_side = self._row.get("session_type") == _DELEGATED
        self._last = text(self._carried.get("last"))
        self._about = text(self._carried.get("about"))
        self._asked = self._carried.get("asked") is True
        self._hidden = self._carried.get("hidden") is True
        names = self._carried.get("names")
        self._names: dict[str, int] = dict(names) if isinstance(names, dict) else {}

    def _row_name(self, row: Record) -> str:
        """Return the id of a row: it stays when the client replaces all rows."""
        name = f"{text(row['message_id']) or 'row'}:{row['created_timestamp']}"
        self._names[name] = times = self._names.pop(name, 0) + 1
        while len(self._names) > _MAX_ROW_NAMES:
            del self._names[next(iter(self._names))]
        return name if times == 1 else f"{name}:{times}"

    # -- facts --------------------------------------------------------------------------

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return the fact of one row."""
        row = entry.value
        visibility = fields(parse_json(row["metadata_json"]))
        is_hidden = visibility.get("agentVisible") is False
        is_injected = visibility.get("userVisible") is False or self._is_side
        blocks: list[Block] = []
        statuses: list[CallStatus] = []
        edges: list[Edge] = []
        unknown: list[Record] = []
        for part in objects(parse_json(row["content_json"])):
            if word(part.get("type")) not in _PARTS:
                unknown.append(part)
            elif part.get("type") == "toolResponse":
                _add_response(part, blocks, statuses, edges)
            elif (block := _block(part, row["role"], is_injected=is_injected)) is not None:
                blocks.append(block)
        name = self._row_name(row)
        asks = any(block.kind == "user_msg" for block in blocks)
        flags = Is.PROMPT if asks else 0
        if row["role"] == "assistant":
            ends = any(b.kind == "assistant_msg" for b in blocks) and not calls_of(blocks)
            flags = Is.REPLY | (Is.ENDS if ends else 0)
        lost = KILLED if asks and self._asked else None
        self._asked = asks
        node = Node(name, self._last, flags, calls=calls_of(blocks), answers=answers_of(blocks))
        if self._hidden and not is_hidden and visibility.get("userVisible") is False:
            node = Node(name, None, Is.SUMMARY, logical=self._last)
        self._hidden, self._last = is_hidden, name
        return [
            self._fact(
                entry,
                node,
                word(row["role"]),
                ts=moment(row["created_timestamp"]),
                blocks=tuple(blocks) or (note("empty row", None),),
                told=tuple(statuses),
                edges=tuple(edges),
                unbilled=lost,
                model=_model(self._row) if row["role"] == "assistant" else None,
            ),
            *(self._unknown(entry, f"{name} part {n}", part) for n, part in enumerate(unknown)),
        ]

    def _unknown(self, entry: RawRecord, name: str, part: Record) -> Fact:
        """Return a part of a type that nobody knows, as it is."""
        kind = word(part.get("type")) or "unknown"
        node = Node(name, flags=Is.INTERNAL)
        return self._fact(entry, node, kind, blocks=(note(kind, part),))

    def final_facts(self) -> Iterator[Fact]:
        """Yield what the row of the session says, if it is new."""
        row = self._row
        about: Record = {}
        name = text(row.get("name"))
        is_user_named = bool(row.get("user_set_name"))
        lost = None
        if name is not None and name not in _DEFAULT_TITLES:
            about["title:custom" if is_user_named else "title:ai"] = name
            lost = None if is_user_named or self._is_side else TITLE
        if cwd := text(row.get("working_dir")):
            about["cwd"] = cwd
        if model := _model(row):
            about["model"] = model
        known = f"{crc32(clean_carry(repr(about)).encode('utf-8', 'replace')):08x}"
        if not about or known == self._about:
            return
        self._about = known
        node = Node(f"{self._session} session {known}", flags=Is.INTERNAL)
        entry = RawRecord({}, Place(self._at, self._at, 0), b"")
        when = moment(_seconds(row.get("created_at")) or None)
        yield self._fact(entry, node, "session", ts=when, about=about, unbilled=lost)


def _block(part: Record, role: JSON, *, is_injected: bool) -> Block | None:
    """Return what a part of a row says; None for one that says nothing."""
    kind, content = part.get("type"), text(part.get("text"))
    if kind == "text" and content:
        if role == "assistant":
            return answer(content)
        return injected_text(content) if is_injected else prompt(content)
    if kind == "thinking" and (thinking := text(part.get("thinking"))):
        return thought(thinking)
    if kind in ("toolRequest", "frontendToolRequest"):
        request = fields(part.get("toolCall"))
        value = fields(request.get("value"))
        tool = word(value.get("name")) or "unknown"
        return call(tool, value.get("arguments", request.get("error")), text(part.get("id")))
    if kind == "image":
        return Block("user_msg", "user", "", image(part.get("mimeType"), part.get("data")))
    if kind == "systemNotification":
        return note(word(part.get("msg")) or "notification", part)
    return None


def _add_response(
    part: Record, blocks: list[Block], statuses: list[CallStatus], edges: list[Edge]
) -> None:
    """Add the result of a call, how it went, and the session that it started."""
    name = text(part.get("id"))
    outcome = fields(part.get("toolResult"))
    value = fields(outcome.get("value"))
    output = "\n".join(word(item.get("text")) for item in objects(value.get("content")))
    failed: bool | None = value.get("isError") is True
    if outcome.get("status") == "error":
        output, failed = word(outcome.get("error")), True
    code = integer_of(fields(value.get("structuredContent")).get("exit_code"))
    if code is not None:
        failed = None
    content: JSON = output
    pictures = [
        image(item.get("mimeType"), item.get("data"))
        for item in objects(value.get("content"))
        if item.get("type") == "image"
    ]
    if pictures:
        content = [{"type": "text", "text": output}, *pictures]
    blocks.append(result(content, name, None, failed=failed))
    if name:
        statuses.append(CallStatus(name, failed, code))
    meta = fields(value.get("_meta"))
    if child := text(meta.get("subagent_session_id")):
        how_known = "subagent_session_id of the result"
        edges.append(Edge("subagent", child, how_known, call=name, child=True))
