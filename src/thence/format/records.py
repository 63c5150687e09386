"""The nouns of the format: one event per line, and what its payload holds.

An event line is `{"type","ts","uuid","prev_uuid","payload"}`, in that order: `type` first, so
that a search backwards through bytes finds boundaries. Message payloads have the shape of the
Messages API. Invariants: an event is immutable; what we do not know (types, envelope fields,
payload fields) is kept and written back; `parse_payload` reads a payload, and answers with a
`Malformed` value and never raises.

FROZEN: the names and the order of `Event`'s first five fields, and the names of all payload
fields, are the wire format. A change needs a new schema version and an upcast step in `schema`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeAlias

import msgspec

JSON: TypeAlias = Any
"""A decoded JSON value of foreign origin: any shape, trust nothing."""

EXTRA = "(extra)"
"""Stands for the unknown envelope fields inside `Event`; never written as a key."""


class Event(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """One immutable line: what, when, which, after which event.

    Unknown fields are forbidden only so that the fast decoder notices them and hands the line
    to the careful one, which keeps them in `extra`.
    """

    type: str
    ts: str
    uuid: str
    prev_uuid: str | None
    payload: JSON
    # Never empty on the wire, so that a field of this very name is noticed as unknown, too.
    extra: Annotated[dict[str, JSON], msgspec.Meta(min_length=1)] = msgspec.field(
        name=EXTRA, default_factory=dict
    )

    @property
    def fields(self) -> dict[str, JSON]:
        """The payload as an object, empty when it is anything else."""
        return self.payload if isinstance(self.payload, dict) else {}


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where bytes stand in a file: 1-based line, byte offset, length without the LF."""

    line: int
    offset: int
    length: int


class Skipped(msgspec.Struct, frozen=True):
    """A line that is no event, and why. `salvaged` events were recovered from it all the same."""

    line: int
    offset: int
    length: int
    why: str
    salvaged: int = 0
    source: str = ""


class Notice(msgspec.Struct, frozen=True):
    """Something a reader should be told that cost no line: a newer schema, a bridged gap."""

    what: str
    detail: str = ""


class Malformed(msgspec.Struct, frozen=True):
    """A payload that does not have the shape its type promises."""

    why: str


# -- payloads -------------------------------------------------------------------------------


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The ancestor an adopted or forked session goes on from; nothing of it is copied."""

    session: str
    event: str | None = None
    segment: int | None = None
    offset: int | None = None
    length: int | None = None
    prefix_hash: str | None = None


class Header(msgspec.Struct, frozen=True):
    """First line of a session and of each of its segments."""

    session_id: str
    start_ts: str = ""
    resumed_from: Origin | None = None
    schema_version: int = 1
    cwd: str | None = None
    model: str | None = None
    inherited_cost: float = 0.0
    # Only where they say something: later segments, and the channel of a subagent.
    segment: int = 1
    base_offset: int = 0
    base_line: int = 0
    agent_id: str | None = None


class Terminator(msgspec.Struct, frozen=True):
    """Last line after a clean close. Its absence is a valid state."""

    end_ts: str = ""
    reason: str = "closed"


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens of one API response; `input_tokens` excludes what was read from the cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    # Told apart for their price; in no total.
    cache_1h_input_tokens: int = 0  # of those written to the cache, those kept for an hour
    web_searches: int = 0

    @property
    def total(self) -> int:
        """All tokens that were billed, at whatever rate."""
        return (
            self.input_tokens
            + self.output_tokens
            + self.cache_creation_input_tokens
            + self.cache_read_input_tokens
        )


class Message(msgspec.Struct, frozen=True):
    """Payload of `user`, `assistant` and `summary` events: a Messages API message and its bill."""

    role: str
    content: str | list[JSON]
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    usage: JSON = None
    cost_usd: float | None = None
    synthetic: bool = False


class Boundary(msgspec.Struct, frozen=True):
    """Commit record of a compaction: the summary stands for all before it but head..tail."""

    anchor_uuid: str
    summary_event_uuid: str
    head_uuid: str | None = None
    tail_uuid: str | None = None
    # Caches, of any shape: what they say is checked where it is used, and a bad one costs time.
    kept_ranges: JSON = msgspec.field(default=None, name="kept")
    summary: JSON = None
    state: JSON = None
    totals: JSON = None


class Tip(msgspec.Struct, frozen=True):
    """The tip was moved: the next event goes on from `to`."""

    to: str


class Turn(msgspec.Struct, frozen=True):
    """End of a turn, with running totals for whoever lists sessions from their last bytes."""

    state: str = "done"
    totals: JSON = None
    model: str | None = None
    branch: str | None = None
    title: str | None = None
    boundary: int | None = None
    """Where the last boundary's line starts in this session's file, for who reads backwards."""


class Waiting(msgspec.Struct, frozen=True):
    """The agent asked and waits; `waiting_for` says for what."""

    waiting_for: str = "approval"
    tool_use_id: str | None = None


class Interrupted(msgspec.Struct, frozen=True):
    """The turn was cut short, by whom and why."""

    by: str = "user"
    reason: str | None = None


class Decision(msgspec.Struct, frozen=True):
    """Something was decided, and is worth finding again."""

    text: str
    title: str | None = None


class Todos(msgspec.Struct, frozen=True):
    """The whole todo list as of this event."""

    todos: list[JSON]


class Model(msgspec.Struct, frozen=True):
    """The model, and the overrides that go with it, from here on."""

    model: str
    overrides: dict[str, JSON] = {}


class Cwd(msgspec.Struct, frozen=True):
    """The working directory from here on. Display text, never a path to open."""

    cwd: str


class Worktree(msgspec.Struct, frozen=True):
    """State of the repository from here on."""

    path: str | None = None
    branch: str | None = None
    commit: str | None = None
    dirty: bool | None = None


class FileRecord(msgspec.Struct, frozen=True):
    """One file was added, edited, deleted, moved or read."""

    path: str
    how: str = "edit"
    hash: str | None = None


class SidechainRecord(msgspec.Struct, frozen=True):
    """What the parent knows of a subagent: its id, how it ended and its summary. Nothing else."""

    agent_id: str
    tool_use_id: str | None = None
    completion_status: str = "running"
    summary: str | None = None


Payload: TypeAlias = (
    Header
    | Terminator
    | Message
    | Boundary
    | Tip
    | Turn
    | Waiting
    | Interrupted
    | Decision
    | Todos
    | Model
    | Cwd
    | Worktree
    | FileRecord
    | SidechainRecord
)

PAYLOADS: dict[str, type[Payload]] = {
    "header": Header,
    "terminator": Terminator,
    "user": Message,
    "assistant": Message,
    "summary": Message,
    "boundary": Boundary,
    "tip": Tip,
    "turn": Turn,
    "waiting": Waiting,
    "interrupted": Interrupted,
    "decision": Decision,
    "todos": Todos,
    "model": Model,
    "cwd": Cwd,
    "worktree": Worktree,
    "file": FileRecord,
    "sidechain": SidechainRecord,
}

MESSAGES = frozenset({"user", "assistant", "summary"})
"""Event types whose payload goes to the model."""

INTERNAL = frozenset(
    {"header", "terminator", "boundary", "tip", "turn", "waiting", "sidechain"},
)
"""Event types that keep the books; never shown as conversation, never a tip."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_CAMEL = {
    "headUuid": "head_uuid",
    "anchorUuid": "anchor_uuid",
    "tailUuid": "tail_uuid",
    "summaryEventUuid": "summary_event_uuid",
    "summary_uuid": "summary_event_uuid",
}


def is_permission(event_type: str) -> bool:
    """Whether an event speaks of permissions: internal everywhere, and no fold ever sees it."""
    return event_type.startswith("permission")


def snake(boundary: dict[str, JSON]) -> dict[str, JSON]:
    """Rename the fields of a boundary that other writers, and our own older ones, spell apart."""
    if not any(name in boundary for name in _CAMEL):
        return boundary
    return {_CAMEL.get(name, name): value for name, value in boundary.items()}


def parse_payload(event: Event) -> Payload | Malformed | None:
    """Return the payload as the struct its type promises; None when the type is not ours."""
    shape = PAYLOADS.get(event.type)
    if shape is None:
        return None
    fields = event.payload
    if event.type == "boundary" and isinstance(fields, dict):
        fields = snake(fields)
    try:
        return msgspec.convert(fields, shape)
    except (ValueError, RecursionError) as error:
        # Foreign data never raises: counted and shown as malformed.
        return Malformed(str(error))


def usage_of(value: JSON) -> Usage | None:
    """Read a usage object of any spelling of numbers; what is no count counts as 0."""
    if not isinstance(value, dict):
        return None
    return Usage(*(count(value.get(name)) for name in Usage.__struct_fields__))


MAX_NUMBER = 2**53
"""Numbers from here on are absurd: other programs do not keep them exact, and sums overflow."""


MAX_DOLLARS = 1_000_000
"""No response costs more."""


def count(value: JSON) -> int:
    """Read a foreign number as a count: whole, not negative, not absurd, else 0.

    Some writers spell counts as `12.0` or `"12"`.
    """
    if type(value) is int:
        return value if 0 <= value < MAX_NUMBER else 0
    digits = isinstance(value, str) and len(value) < 17 and value.isascii() and value.isdigit()
    if digits or (isinstance(value, float) and value.is_integer()):
        value = int(value)
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return value if is_integer and 0 <= value < MAX_NUMBER else 0


def dollars(value: JSON) -> float | None:
    """Read a foreign number as what something cost; None for anything else and for the absurd."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= MAX_DOLLARS else None


def word(value: JSON) -> str:
    """Read a foreign value that should be a name or an id; empty when it is no text."""
    return value if isinstance(value, str) else ""


def time_text(number: JSON, *, per_second: int = 1) -> JSON:
    """Write seconds since 1970, or so many parts of them, as RFC 3339 UTC with milliseconds.

    Anything else is left alone; a number that is no time is empty.
    """
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return number
    try:
        moment = _EPOCH + timedelta(milliseconds=round(number * 1000 / per_second))
    except (OverflowError, ValueError):  # a number that is no time of this calendar
        return ""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def blocks(content: JSON) -> list[dict[str, JSON]]:
    """Return message content as a list of block objects, whatever shape it was written in."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return []
    return [
        {"type": "text", "text": part} if isinstance(part, str) else part
        for part in content
        if isinstance(part, (str, dict))
    ]


def parse_json(value: JSON) -> JSON:
    """Return the JSON in a text or in bytes; None if there is none that makes sense."""
    if not isinstance(value, (str, bytes)):
        return None
    try:
        return msgspec.json.decode(value)
    except (ValueError, RecursionError):
        return None


def text_of(content: JSON) -> str:
    """All prose of message content, blocks joined by line feeds; thinking and tools left out."""
    if isinstance(content, str):
        return content
    texts = (b.get("text") for b in blocks(content) if b.get("type") == "text")
    return "\n".join(text for text in texts if isinstance(text, str))
