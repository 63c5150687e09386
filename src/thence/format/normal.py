"""The same `Session` and `SessionEvent` for every agent.

One `SessionEvent` is one block of one native record: a text, a thought, a call, a result.
Identity never renumbers: `event_id` is a hash of what the event *is* (session, native id, block),
so that rows, links and pointers hold whatever order files are read in. `seq` and `parent_seq`
grow in the order in which a session is read, parents before children; an event keeps the number
that a store gave it. They have gaps, and are stored in no pointer.

FROZEN: field names, kinds, and the recipe of `event_id`; stores and other people's tools hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final, Literal, get_args

import msgspec

from thence.format.graph import State
from thence.format.records import JSON, Usage

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

DERIVED: tuple[Kind, ...] = (
    "error",
    "test_run",
    "edit",
    "retry",
    "human_intervention",
    "completion",
)
"""FROZEN order: kinds that are derived from other events, each a bit of `kind_bit`."""

SUMMARY_LENGTH = 120

SEQ_STEP = 16
"""Between the numbers of two events; more than the events that can be derived from one."""

LAST_SEEN = "last seen"
"""What the event is called that stands for the end of a log which says nothing of it."""

Outcome = Literal["success", "fail", "abandoned", "waiting", "unknown", "running"]
"""How a session went. None that is stored is `running`: that holds only while somebody looks."""

_encode = msgspec.json.Encoder().encode


class Cost(msgspec.Struct, frozen=True, gc=False):
    """What a session took. `cache_tokens` are those written to and read from the cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_tokens: int = 0
    wall_clock_s: float = 0.0
    turns: int = 0
    retries: int = 0


class Session(msgspec.Struct, frozen=True, gc=False):
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
    outcome: Outcome = "unknown"
    cost: Cost = Cost()
    task_ref: str | None = None
    source_path: str | None = None
    source_bytes: int = 0
    schema_version: int = 1
    discovered_at: str | None = None
    ingested_at: str | None = None
    analyzed_at: str | None = None
    evicted_at: str | None = None


_CONTRACT: Final[dict[str, JSON]] = {
    "seq": None,
    "parent_seq": None,
    "ts": None,
    "role": None,
    "tool": None,
    "summary": "",
    "payload_ref": None,
    "tokens": 0,
    "is_sidechain": False,
}
"""Fields of an event that every reader may count on, with the values that are left out."""


class SessionEvent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
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
    cost_usd: float | None = None
    """What the writer itself says it cost."""
    tier: str | None = None
    """The rate it was billed at, where that is not the usual one."""
    took_ms: int | None = None
    why: str | None = None
    """Why it is dead, where that is more than a branch left behind."""

    def to_object(self) -> dict[str, JSON]:
        """Return it under the names of its fields; those of the contract are never left out."""
        return {**_CONTRACT, **msgspec.to_builtins(self)}


def session_uid(flavor: str, native_session_id: str) -> str:
    """Name a session for all agents together."""
    return f"{flavor}:{native_session_id}"


def event_id(session: str, native: str, block: int = 0, occurrence: int = 0) -> int:
    """Return the id of a block of a record: 52 bits, so that JSON numbers hold it everywhere."""
    return event_ids(session)(native, block, occurrence)


def derived_id(session: str, kind: str, base: int, nth: int = 0) -> int:
    """Return the id of an event of some kind that is derived from another one."""
    return event_id(session, f"{kind} of {base}", nth)


def kind_bit(kind: str) -> int:
    """Return the bit of a kind that is derived from other events."""
    return 1 << DERIVED.index(kind)


def implied_kinds(bits: int) -> tuple[Kind, ...]:
    """Return the kinds that bits stand for."""
    return tuple(kind for kind in DERIVED if bits & kind_bit(kind))


@lru_cache(maxsize=16)
def event_ids(session: str) -> Callable[[str, int, int], int]:
    """Return `event_id` for many events of one session, whose name is hashed once."""
    begun = blake2b(msgspec.json.encode([_utf8(session)])[:-1] + b",", digest_size=8).copy

    def made(native: str, block: int = 0, occurrence: int = 0) -> int:
        name = native if native.isascii() else _utf8(native)
        digest = begun()
        digest.update(_encode((name, block, occurrence))[1:])  # the rest of the same array
        return int.from_bytes(digest.digest(), "big") >> 12

    return made


def _utf8(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def one_line(text: str, length: int = SUMMARY_LENGTH) -> str:
    """Return the beginning of a text as one short line."""
    head = text[: length + 1]
    if "  " not in head and head[:1] != " " != head[-1:] and head.isprintable():
        # One line already, as prose is: single spaces, and no other white space is printable.
        return head if len(head) <= length else head[: length - 1] + "…"
    flat = " ".join(text[: 3 * length // 2].split())
    if len(flat) <= length:  # much white space: look further
        flat = " ".join(text[: 2 * length].split())
    if len(flat) <= length and len(text) > 2 * length:
        flat = " ".join(text[: 4 * length].split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"


# -- numbers for the eye --------------------------------------------------------------------


def number_events(
    events: Iterable[SessionEvent], known: Mapping[int, int] | None = None
) -> list[SessionEvent]:
    """Number events in the order of their numbers, derived ones after those they come from.

    `known` are the numbers that a store gave them, by their ids; others follow. A cycle is cut: the
    event of it that comes first has no `parent_seq`.
    """
    own: list[SessionEvent] = []
    derived: list[SessionEvent] = []
    for event in events:
        (own if event.derived_from is None else derived).append(event)
    numbers = dict(known or {})
    start = max(numbers.values(), default=-SEQ_STEP) + SEQ_STEP
    new = (event.event_id for event in in_order(own) if event.event_id not in numbers)
    numbers |= {event: start + SEQ_STEP * at for at, event in enumerate(new)}
    for event in derived:
        seq = derived_seq(numbers.get(event.derived_from or 0, 0), event.kind)
        numbers[event.event_id] = seq + (event.summary == LAST_SEEN)
    made = [
        msgspec.structs.replace(
            event,
            seq=numbers[event.event_id],
            parent_seq=_before(numbers, event.parent_id, numbers[event.event_id]),
        )
        for event in {event.event_id: event for event in (*own, *derived)}.values()
    ]
    return sorted(made, key=lambda event: event.seq or 0)


def derive(
    base: SessionEvent, kind: Kind, summary: str, *, failed: bool | None = None, nth: int = 0
) -> SessionEvent:
    """Return an event that another one implies, numbered after it if that has a number."""
    return SessionEvent(
        base.session_uid,
        derived_id(base.session_uid, kind, base.event_id, nth),
        kind,
        base.event_id,
        None if base.seq is None else derived_seq(base.seq, kind),
        base.seq,
        base.ts,
        base.role,
        base.tool,
        summary,
        is_sidechain=base.is_sidechain,
        channel=base.channel,
        state=base.state,
        derived_from=base.event_id,
        native_id=base.native_id,
        call=base.call,
        failed=failed,
    )


def derived_seq(base: int, kind: str) -> int:
    """Return the number of an event of some kind that is derived from one with a number."""
    return base + 1 + (DERIVED.index(kind) if kind in DERIVED else len(DERIVED))


def in_order(events: Iterable[SessionEvent]) -> list[SessionEvent]:
    """Return each event once: parents before children, written order wherever that allows."""
    waiting = {event.event_id: event for event in events}
    above_all = {event.parent_id for event in waiting.values()}
    passed: set[int] = set()
    for at, event in waiting.items():
        if event.parent_id in waiting and event.parent_id not in passed:
            break
        if at in above_all:
            passed.add(at)
    else:
        return list(waiting.values())  # as nearly always
    order: list[SessionEvent] = []
    for event in list(waiting.values()):
        line: list[SessionEvent] = []
        above: SessionEvent | None = event
        while above is not None and waiting.pop(above.event_id, None) is not None:
            line.append(above)
            above = waiting.get(above.parent_id) if above.parent_id is not None else None
        order += reversed(line)
    return order


def _before(numbers: dict[int, int], parent: int | None, seq: int) -> int | None:
    parent_seq = numbers.get(parent) if parent is not None else None
    return parent_seq if parent_seq is not None and parent_seq < seq else None
