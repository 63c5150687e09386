"""The same `Session` and `SessionEvent` for every agent.

One `SessionEvent` is one block of one native record: a text, a thought, a call, a result.
Identity never renumbers: `event_id` is a hash of what the event *is* (session, native id, block),
so that rows, links and pointers hold whatever order files are read in. `seq` and `parent_seq`
are dense ordinals given when a session is read out, parents before children, and are stored in
no pointer.

FROZEN: field names, kinds, and the recipe of `event_id`; stores and other people's tools hold them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Literal, get_args

import msgspec

from thence.format import kinds
from thence.format.codec import encode
from thence.format.graph import State
from thence.format.records import JSON, MESSAGES, Event, Usage, blocks, text_of, usage_of, word

Kind = Literal[
    "user_msg",
    "assistant_msg",
    "thinking",
    "tool_call",
    "tool_result",
    "error",
    "test_run",
    "edit",
    "retry",
    "human_intervention",
    "decision",
    "lifecycle",
    "completion",
]
KINDS: tuple[str, ...] = get_args(Kind)

SUMMARY_LENGTH = 120


class Cost(msgspec.Struct, frozen=True):
    """What a session took. `cache_tokens` are those written to and read from the cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_tokens: int = 0
    wall_clock_s: float = 0.0
    turns: int = 0
    retries: int = 0


class Session(msgspec.Struct, frozen=True):
    """One sitting of one agent on one piece of work."""

    session_uid: str
    flavor: str
    native_session_id: str
    repo: str | None = None
    domain: str | None = None
    cwd: str | None = None
    git_branch: str | None = None
    model: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    outcome: Literal["success", "fail", "abandoned", "unknown"] = "unknown"
    cost: Cost = Cost()
    task_ref: str | None = None
    source_path: str | None = None
    source_bytes: int = 0
    schema_version: int = 1
    discovered_at: str | None = None
    ingested_at: str | None = None
    analyzed_at: str | None = None
    evicted_at: str | None = None


class SessionEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One block of one record, or one fact derived from others (`derived_from`)."""

    session_uid: str
    event_id: int
    kind: Kind
    parent_id: int | None = None
    seq: int | None = None
    parent_seq: int | None = None
    ts: str | None = None
    role: str | None = None
    tool: str | None = None
    summary: str = ""
    payload_ref: str | None = None
    payload: JSON = None
    """The body, until a store puts it behind `payload_ref`."""
    tokens: int = 0
    is_sidechain: bool = False
    channel: str = "main"
    state: State | None = None
    derived_from: int | None = None
    native_id: str = ""
    native_type: str = ""
    """What the source calls it."""
    block: int = 0
    call: str | None = None
    """The id that a call and its result share."""
    failed: bool | None = None
    model: str | None = None
    usage: Usage | None = None
    usage_key: str | None = None
    """Records with the same key repeat one bill."""


def session_uid(flavor: str, native_session_id: str) -> str:
    """Name a session for all agents together."""
    return f"{flavor}:{native_session_id}"


def event_id(session: str, native: str, block: int = 0, occurrence: int = 0) -> int:
    """Give the id of a block of a record: 52 bits, so that JSON numbers hold it everywhere."""
    what = msgspec.json.encode([_utf8(session), _utf8(native), block, occurrence])
    return int.from_bytes(blake2b(what, digest_size=8).digest(), "big") >> 12


def line_id(session: str, line: bytes, occurrence: int = 0) -> int:
    """Give the id of a record without one of its own: of its bytes, and how often they came."""
    return event_id(session, blake2b(line, digest_size=16).hexdigest(), 0, occurrence + 1)


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def one_line(text: str, length: int = SUMMARY_LENGTH) -> str:
    """Give the beginning of a text as one short line."""
    flat = " ".join(text[: 4 * length].split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"


# -- our own events -------------------------------------------------------------------------


def normalise(
    events: Sequence[Event],
    states: Sequence[State],
    uid: str,
    *,
    channel: str = "main",
) -> list[SessionEvent]:
    """Turn our own events into normalised ones, in written order, not yet numbered.

    A record that was written twice is one; one that repeats an id with other content is another
    event, told apart by its occurrence.
    """
    first: dict[str, Event] = {}
    others: dict[str, dict[bytes, int]] = {}  # content of later ones -> which occurrence it is
    last: dict[str, int] = {}  # native id -> the id of its last block, which children hang off
    made: list[tuple[Event, State, int, list[dict[str, JSON]]]] = []
    for event, state in zip(events, states, strict=True):
        times = 0
        if event.uuid in first:
            known = others.setdefault(event.uuid, {encode(first[event.uuid]): 0})
            before = len(known)
            times = known.setdefault(encode(event), before)
            if times < before:
                continue
        first.setdefault(event.uuid, event)
        parts = _parts(event)
        made.append((event, state, times, parts))
        last.setdefault(event.uuid, event_id(uid, event.uuid, len(parts) - 1))
    return with_tools(
        SessionEvent(
            session_uid=uid,
            event_id=event_id(uid, event.uuid, block, times),
            parent_id=(
                event_id(uid, event.uuid, block - 1, times)
                if block
                else last.get(event.prev_uuid)
                if event.prev_uuid is not None
                else None
            ),
            ts=event.ts or None,
            state=state,
            native_id=event.uuid,
            native_type=event.type,
            block=block,
            is_sidechain=channel != "main",
            channel=channel,
            **fields,
        )
        for event, state, times, parts in made
        for block, fields in enumerate(parts)
    )


def with_tools(events: Iterable[SessionEvent]) -> list[SessionEvent]:
    """Give each result the name of the tool that its call named."""
    all_of_them = list(events)
    tools = {e.call: e.tool for e in all_of_them if e.kind == "tool_call" and e.call is not None}
    return [
        msgspec.structs.replace(e, tool=tools[e.call])
        if e.kind == "tool_result" and e.call in tools
        else e
        for e in all_of_them
    ]


def _parts(event: Event) -> list[dict[str, JSON]]:
    """The fields that differ from block to block."""
    if event.type not in MESSAGES:
        return [_single(event)]
    fields = event.fields
    if event.type == "summary":  # nobody's words: it stands for what a compaction left out
        said = one_line(text_of(fields.get("content")))
        return [_single(event) | {"summary": said, "payload": fields.get("content")}]
    role = "assistant" if event.type == "assistant" else "user"
    parts = [_part(block, role) for block in blocks(fields.get("content"))]
    parts = parts or [{"kind": f"{role}_msg", "role": role, "payload": fields.get("content")}]
    usage = usage_of(fields.get("usage")) if event.type == "assistant" else None
    if usage is not None:
        key = fields.get("id") if isinstance(fields.get("id"), str) else event.uuid
        parts[0] |= {"usage": usage, "usage_key": key, "tokens": usage.total}
    model = fields.get("model")
    if isinstance(model, str):
        for part in parts:
            part["model"] = model
    return parts


def _single(event: Event) -> dict[str, JSON]:
    kind: Kind = "decision" if event.type == "decision" else "lifecycle"
    return {"kind": kind, "role": "system", "summary": event.type, "payload": event.payload}


def _part(block: dict[str, JSON], role: str) -> dict[str, JSON]:
    kind = block.get("type")
    if kind == "tool_use":
        tool = word(block.get("name"))
        given = block.get("input")
        return {
            "kind": "tool_call",
            "role": "assistant",
            "tool": tool,
            "call": _text(block.get("id")),
            "summary": kinds.summary(tool, given),
            "payload": given,
        }
    if kind == "tool_result":
        return _result_part(block)
    if kind in ("thinking", "redacted_thinking"):
        said = _text(block.get("thinking")) or ""
        return {"kind": "thinking", "role": role, "summary": one_line(said), "payload": block}
    said = _text(block.get("text")) or ""
    return {"kind": f"{role}_msg", "role": role, "summary": one_line(said), "payload": block}


def _result_part(block: dict[str, JSON]) -> dict[str, JSON]:
    """A result says of itself no more than `is_error`; with its call `joins` tells the rest."""
    content = block.get("content")
    wrong = block.get("is_error")
    return {
        "kind": "tool_result",
        "role": "tool",
        "call": _text(block.get("tool_use_id")),
        "summary": one_line(text_of(content)),
        "payload": content,
        "failed": wrong if isinstance(wrong, bool) else None,
    }


def _text(value: JSON) -> str | None:
    return value if isinstance(value, str) else None


# -- numbers for the eye --------------------------------------------------------------------


def numbered(events: Iterable[SessionEvent]) -> list[SessionEvent]:
    """Number events densely, parents before children, written order wherever that allows.

    A cycle is cut: the event of it that comes first has no `parent_seq`.
    """
    waiting = {event.event_id: event for event in events}
    order: list[SessionEvent] = []
    given: dict[int, int] = {}
    for event in list(waiting.values()):
        line: list[SessionEvent] = []
        above: SessionEvent | None = event
        while above is not None and waiting.pop(above.event_id, None) is not None:
            line.append(above)
            above = waiting.get(above.parent_id) if above.parent_id is not None else None
        for one in reversed(line):
            given[one.event_id] = len(order)
            order.append(one)
    return [
        msgspec.structs.replace(event, seq=seq, parent_seq=_before(given, event.parent_id, seq))
        for seq, event in enumerate(order)
    ]


def _before(given: dict[int, int], parent: int | None, seq: int) -> int | None:
    found = given.get(parent) if parent is not None else None
    return found if found is not None and found < seq else None
