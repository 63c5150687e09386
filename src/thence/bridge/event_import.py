"""The JSON lines of `thence export` read back: events become records again.

A line is one block of a record, with its state. So texts, calls, results, bills, models, times and
states come back; of compactions only that they happened, since events do not say what they
replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from thence.bridge.record_json import Parcel
from thence.errors import NotReadable
from thence.format.facts import Block, CallStatus, Fact, answers_of, calls_of, check_values
from thence.format.graph import State
from thence.format.nodes import Is, Node
from thence.format.normal import DERIVED, SessionEvent
from thence.format.records import JSON, word

_FLAGS: Final = {
    State.INTERNAL: Is.INTERNAL,
    State.ROLLED_BACK: Is.ROLLED_BACK,
    State.REPLAYED: Is.REPLAYED,
}
_MAIN: Final = "main"


def is_export(first: JSON) -> bool:
    """Whether the first line of a file is that of an export."""
    return isinstance(first, dict) and first.get("type") == "session" and "session_uid" in first


def parcel_in(lines: Sequence[JSON]) -> Parcel:
    """Return the session of an export."""
    head = lines[0]
    uid = word(head.get("session_uid"))
    events = [event for line in lines[1:] if (event := _event(line, uid)) is not None]
    facts = [_head_fact(head), *_facts(events)]
    try:
        check_values(facts)
    except (ValueError, OverflowError) as error:
        raise NotReadable(f"not a session of thence: {error}", hint="export it again") from error
    names = {"live", "orphaned"}
    last = next(
        (
            event.native_id
            for event in reversed(events)
            if event.channel == _MAIN and event.state in names and event.role != "system"
        ),
        None,
    )
    if last is not None:
        node = Node("import/tip", flags=Is.INTERNAL, tip=last)
        facts.append(Fact(node, "tip", file=_MAIN, line=len(events) + 2))
    tags = head.get("tags")
    return Parcel(
        uid,
        facts,
        name=word(head.get("name")) or None,
        tags=tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else (),
    )


def _event(line: JSON, uid: str) -> SessionEvent | None:
    if not isinstance(line, dict) or line.get("type") != "event":
        return None
    try:
        event = msgspec.convert({**line, "session_uid": uid}, SessionEvent)
    except (msgspec.ValidationError, TypeError) as error:
        raise NotReadable(f"not an event of thence: {error}", hint="export it again") from error
    is_own = event.derived_from is None and event.kind not in DERIVED and event.native_id
    return event if is_own else None


def _head_fact(head: dict[str, JSON]) -> Fact:
    names = {"cwd": "cwd", "git_branch": "git_branch", "model": "model", "title": "title:custom"}
    about = {ours: head[name] for name, ours in names.items() if word(head.get(name))}
    return Fact(Node("import/head", flags=Is.INTERNAL), "session", file=_MAIN, line=0, about=about)


def _facts(events: Sequence[SessionEvent]) -> Iterator[Fact]:
    records: dict[tuple[str, int], list[SessionEvent]] = {}
    native = {event.event_id: event.native_id for event in events}
    for event in events:
        key = (event.native_id, 0 if event.block else event.event_id)
        if event.block:
            key = next((k for k in reversed(records) if k[0] == event.native_id), key)
        records.setdefault(key, []).append(event)
    for number, blocks in enumerate(records.values(), start=1):
        yield _fact(blocks, native, number)


def _fact(events: list[SessionEvent], native: dict[int, str], line: int) -> Fact:
    first = events[0]
    blocks = tuple(
        Block(e.kind, e.role or "system", e.summary, e.payload, e.tool, e.call, e.failed)
        for e in events
    )
    flags = _FLAGS.get(first.state or State.LIVE, 0)
    if any(event.kind == "user_msg" for event in events):
        flags |= Is.PROMPT
    if any(event.role == "assistant" for event in events):
        flags |= Is.REPLY
    node = Node(
        first.native_id,
        native.get(first.parent_id) if first.parent_id is not None else None,
        flags,
        calls_of(blocks),
        answers_of(blocks),
    )
    statuses = tuple(
        CallStatus(event.call, took_ms=event.took_ms)
        for event in events
        if event.call is not None and event.took_ms is not None
    )
    return Fact(
        node,
        first.native_type,
        first.ts,
        blocks,
        file=first.channel,
        channel=first.channel,
        line=line,
        model=first.model,
        usage=first.usage,
        usage_key=first.usage_key,
        cost_usd=first.cost_usd,
        tier=first.tier,
        told=statuses,
    )
