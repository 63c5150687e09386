"""Versions of the session format, and the small steps that read an old one as the present one.

A session says its version in its header. Older lines are *upcast* one by one when they are
read; the file is never touched, and each step knows only its own version and the next. A newer
version is read best-effort, with a `Notice`: fields we know keep their meaning, the rest is kept.

History (each step is a function here and a sample in the tests):
    1   the minimal writer: `ts` as seconds since 1970, `headUuid` spelling in boundaries, which
        may be called `compaction-boundary`, no `schema_version`
    2   `ts` as RFC 3339 text, snake case throughout, `summary_uuid` in boundaries,
        `resumed_from` a session id
    3   `summary_event_uuid`; `resumed_from` an object that names session and event;
        `inherited_cost` in the header; a terminator says its reason
"""

from __future__ import annotations

from collections.abc import Callable

from thence.format.records import JSON, Notice, count, snake, time_text

CURRENT = 3

_BOUNDARY_THEN = "compaction-boundary"

Record = dict[str, JSON]
Step = Callable[[Record], Record]


def version_of(header: Record) -> int:
    """Read the version a header record states; 1 when it states none."""
    payload = header.get("payload")
    stated = payload.get("schema_version", 1) if isinstance(payload, dict) else 1
    return max(1, count(stated))


def guess(record: Record) -> int:
    """Tell the oldest version that a record whose header was lost may have, by its time.

    Reading a younger record as an older one is safe: it is a fixed point of the steps.
    """
    ts = record.get("ts")
    return 1 if isinstance(ts, (int, float)) and not isinstance(ts, bool) else 2


def upcaster(version: int) -> Step | None:
    """Return the composed steps from `version` to the present one; None when there are none."""
    steps = STEPS[version - 1 :]
    if not steps:
        return None

    def upcast(record: Record) -> Record:
        for step in steps:
            record = step(record)
        return record

    return upcast


def notice(version: int) -> Notice | None:
    """Warn that a session was written by a newer thence than this one."""
    if version <= CURRENT:
        return None
    return Notice("newer schema", f"version {version}, this reader knows {CURRENT}")


def _from_1(record: Record) -> Record:
    """Time becomes text; boundaries take the snake spelling; the header states a version."""
    if record.get("type") == _BOUNDARY_THEN:
        record = {**record, "type": "boundary"}
    payload = record.get("payload")
    new = _with_time(record, "ts")
    if not isinstance(payload, dict):
        return new
    if record.get("type") == "header":
        known = {"cwd": None, "model": None, **_with_time(payload, "start_ts")}
        new["payload"] = {**known, "schema_version": 2}
    elif record.get("type") == "boundary":
        renamed = snake(payload)
        if "summary_event_uuid" in renamed:
            renamed = {**renamed, "summary_uuid": renamed["summary_event_uuid"]}
            del renamed["summary_event_uuid"]
        new["payload"] = renamed
    elif record.get("type") == "terminator":
        new["payload"] = _with_time(payload, "end_ts")
    return new


def _from_2(record: Record) -> Record:
    """Origins name their event; the summary's name says that it is an event."""
    payload = record.get("payload")
    if not isinstance(payload, dict):
        return record
    if record.get("type") == "header":
        origin = payload.get("resumed_from")
        if isinstance(origin, str):
            origin = {"session": origin, "event": None}
        return {
            **record,
            "payload": {
                "inherited_cost": 0.0,
                **payload,
                "resumed_from": origin,
                "schema_version": 3,
            },
        }
    if record.get("type") == "boundary" and "summary_uuid" in payload:
        renamed = {k: v for k, v in payload.items() if k != "summary_uuid"}
        return {**record, "payload": {"summary_event_uuid": payload["summary_uuid"], **renamed}}
    if record.get("type") == "terminator" and "reason" not in payload:
        return {**record, "payload": {**payload, "reason": "closed"}}
    return record


STEPS: tuple[Step, ...] = (_from_1, _from_2)
"""`STEPS[n - 1]` reads version n as n + 1."""


def _with_time(fields: Record, name: str) -> Record:
    """Return a copy whose time of that name, if it has one, is text."""
    return {k: time_text(v) if k == name else v for k, v in fields.items()}
