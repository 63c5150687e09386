"""Tables for analysts: what the rows of a store say, flat, one meaning a column.

`TABLES` is the schema, `SCHEMA_VERSION` its version: docs/analytics.md has both; a test holds the
page against this. Everything here was redacted when it was stored. No payload, quote or prompt is
among it: texts are the short lines that rows and facts carry, and the columns that hold them are
marked `said`. Copies of other sessions' records are left out, and a bill stands on one event, so
that counts and sums need no care.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from thence.agents.records import fields
from thence.format.derived_events import log_ends, time_of
from thence.format.figures import project
from thence.format.graph import State
from thence.format.normal import SessionEvent
from thence.format.records import JSON
from thence.format.stored import StoredEvent
from thence.memory.labels import labels_of
from thence.memory.notes import Note, note_events
from thence.memory.recall import with_lineage
from thence.memory.rows import clean
from thence.memory.session_status import turn_now
from thence.memory.store import Filter, SessionRow, Store

SCHEMA_VERSION: Final = 3
"""Raise it when a column gets another name, type or meaning; exports are then made anew."""

MAX_DAYS: Final = 400
"""Days that one session may be spread over: a log of made-up times must not make a file a line."""

TEXT, COUNT, NUMBER, FLAG = "VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN"
MOMENT: Final = "TIMESTAMP"
MONEY: Final = "DECIMAL(18,10)"
TOOLS: Final = "STRUCT(tool VARCHAR, calls BIGINT, failed BIGINT, refused BIGINT, took_ms BIGINT)[]"
TESTS: Final = (
    "STRUCT(runner VARCHAR, runs BIGINT, red BIGINT, last_red BOOLEAN, passed BIGINT,"
    " failed BIGINT, skipped BIGINT)[]"
)
FILES: Final = "STRUCT(path VARCHAR, reads BIGINT, edits BIGINT, broke BIGINT)[]"
WORDS: Final = "VARCHAR[]"
ERRORS: Final = "STRUCT(fingerprint VARCHAR, tool VARCHAR, count BIGINT, settled BOOLEAN)[]"


class ExportColumn(NamedTuple):
    """One column, and what it says."""

    name: str
    type: str
    about: str
    is_spoken: bool = False
    """It holds words of people, models or tools, redacted and short."""

    @property
    def staged(self) -> str:
        """The type in which Python hands it over."""
        if self.type in (MOMENT, MONEY):
            return COUNT
        return TEXT if self.type.endswith("[]") else self.type

    @property
    def made(self) -> str:
        """The column, made from what was handed over."""
        if self.type == MOMENT:
            return f'epoch_ms("{self.name}") AS "{self.name}"'
        if self.type == MONEY:
            expression = f'("{self.name}" * 0.0000000001::DECIMAL(11,10))::{MONEY}'
            return f'{expression} AS "{self.name}"'
        if self.type.endswith("[]"):
            return f'"{self.name}"::JSON::{self.type} AS "{self.name}"'
        return f'"{self.name}"'


class ExportTable(NamedTuple):
    """One table: its columns, which of them order its rows, and what its day is."""

    about: str
    day: str
    order: tuple[str, ...]
    columns: tuple[ExportColumn, ...]


_WHOSE = (
    ExportColumn("session_uid", TEXT, "the session: `agent:id`"),
    ExportColumn("agent", TEXT, "whose: the name of the agent"),
    ExportColumn("project", TEXT, "last part of the folder it worked in"),
)
_TOKENS = (
    ExportColumn("input_tokens", COUNT, "tokens read, neither from nor into the cache"),
    ExportColumn("output_tokens", COUNT, "tokens written"),
    ExportColumn("cache_write_tokens", COUNT, "tokens written into the cache"),
    ExportColumn("cache_read_tokens", COUNT, "tokens read from the cache"),
)
_UNPRICED = ExportColumn(
    "unpriced_tokens", COUNT, "tokens without a known price; costs are minimums"
)
_OUTCOME = ExportColumn("outcome", TEXT, "success, fail, abandoned, waiting, unknown")
_TASK = ExportColumn("task", TEXT, "the task it is tied to")
_TURNS = (
    ExportColumn("turns", COUNT, "prompts on its own active branch"),
    ExportColumn("retries", COUNT, "calls made again after they failed"),
)

TABLES: Final[dict[str, ExportTable]] = {
    "sessions": ExportTable(
        "One row per session. Stays when its transcript is removed.",
        "it began",
        ("session_uid",),
        (
            *_WHOSE,
            ExportColumn("folder", TEXT, "the folder it worked in", is_spoken=True),
            ExportColumn("branch", TEXT, "branch of the repository", is_spoken=True),
            ExportColumn("domain", TEXT, "as `session_memory.domains` names the project"),
            _TASK,
            ExportColumn(
                "title",
                TEXT,
                "the name you gave it, its title, else its first prompt in one line",
                is_spoken=True,
            ),
            ExportColumn("model", TEXT, "the last model on its line"),
            ExportColumn("started", MOMENT, "first readable time"),
            ExportColumn("ended", MOMENT, "last readable time"),
            ExportColumn("wall_s", NUMBER, "seconds between the two"),
            _OUTCOME,
            ExportColumn("turn", TEXT, "how its last turn ended: done, interrupted, stopped"),
            *_TURNS,
            ExportColumn("events", COUNT, "events of its own log, copies and books included"),
            ExportColumn("dead_events", COUNT, "of these on discarded or rolled back branches"),
            ExportColumn("responses", COUNT, "billed model responses"),
            *_TOKENS,
            ExportColumn("live_usd", MONEY, "dollars on its active branch"),
            ExportColumn("dead_usd", MONEY, "dollars on discarded branches"),
            ExportColumn("side_usd", MONEY, "dollars of its subagents"),
            ExportColumn("cost_usd", MONEY, "all three"),
            _UNPRICED,
            ExportColumn("lower_bound", FLAG, "some usage is missing"),
            ExportColumn("automated", FLAG, "no human prompt"),
            ExportColumn("analysed", FLAG, "fully analysed"),
            ExportColumn("evicted", FLAG, "transcript removed: no events"),
            ExportColumn("gone", FLAG, "the original log was deleted"),
            ExportColumn("source_bytes", COUNT, "bytes of its log"),
            ExportColumn("tags", WORDS, "what you tagged it with"),
        ),
    ),
    "events": ExportTable(
        "One row per event of a stored transcript. Removed with it, except decisions.",
        "of its time, else of its session",
        ("session_uid", "seq", "event_id"),
        (
            *_WHOSE,
            ExportColumn("seq", COUNT, "the number `thence show` gives it; others are in between"),
            ExportColumn("event_id", COUNT, "never changes"),
            ExportColumn("parent_id", COUNT, "its parent event"),
            ExportColumn(
                "derived_from", COUNT, "the event that implies it: test_run, edit, error, …"
            ),
            ExportColumn("ts", MOMENT, "when"),
            ExportColumn(
                "kind", TEXT, "user_msg, assistant_msg, thinking, tool_call, tool_result, …"
            ),
            ExportColumn("role", TEXT, "user, assistant, tool, system"),
            ExportColumn("tool", TEXT, "of a call and its result"),
            ExportColumn("state", TEXT, "live, dead, rolled_back, side, internal, …"),
            ExportColumn(
                "channel", TEXT, "main, a subagent's, or notes: written by you or for you"
            ),
            ExportColumn("failed", FLAG, "of a call or a test run: it failed; null if unknown"),
            ExportColumn("refused", FLAG, "of a call: a human denied it or cut it off"),
            ExportColumn("took_ms", COUNT, "of a call: time until its result"),
            ExportColumn("model", TEXT, "that wrote it"),
            *(
                ExportColumn(c.name, c.type, f"{c.about}; on one event of each bill, else null")
                for c in _TOKENS
            ),
            ExportColumn("cost_usd", MONEY, "of that response; null if the price is unknown"),
            ExportColumn("summary", TEXT, "its first line, up to 120 characters", is_spoken=True),
        ),
    ),
    "usage": ExportTable(
        "Usage per session, day, model and place (live, discarded, subagent). Never removed.",
        "of the bills",
        ("session_uid", "model", "place"),
        (
            *_WHOSE,
            ExportColumn("model", TEXT, "that was asked"),
            ExportColumn("place", TEXT, "live, dead (discarded branches), side (subagents)"),
            ExportColumn("responses", COUNT, "bills"),
            *_TOKENS,
            ExportColumn("cache_1h_tokens", COUNT, "of the cache writes, those kept for an hour"),
            ExportColumn("web_searches", COUNT, "searches that were billed"),
            ExportColumn("cost_usd", MONEY, "dollars by the price list of that day"),
            _UNPRICED,
        ),
    ),
    "digests": ExportTable(
        "One digest per session. Never removed.",
        "its session began",
        ("session_uid",),
        (
            *_WHOSE,
            ExportColumn("made", MOMENT, "when it was made"),
            _OUTCOME,
            ExportColumn("confidence", NUMBER, "0 to 1"),
            _TASK,
            ExportColumn("seconds", NUMBER, "from first to last time"),
            *_TURNS,
            ExportColumn("interventions", COUNT, "times a human stepped in"),
            ExportColumn("corrections", COUNT, "corrections by a human that it quotes"),
            ExportColumn("context_peak", COUNT, "largest context, in tokens"),
            ExportColumn("compactions", COUNT, "number of compactions"),
            ExportColumn("open_todos", COUNT, "open to-dos"),
            ExportColumn("dead_branches", COUNT, "discarded branches"),
            ExportColumn("subagents", COUNT, "subagents in its log"),
            ExportColumn("tools", TOOLS, "by tool: calls, failed, refused, time together"),
            ExportColumn("tests", TESTS, "by runner: runs, failed runs, counts of the last run"),
            ExportColumn(
                "files",
                FILES,
                "by file: reads, edits, failed test runs after an edit",
                is_spoken=True,
            ),
            ExportColumn(
                "errors",
                ERRORS,
                "by fingerprint: how often, and whether it was fixed",
                is_spoken=True,
            ),
        ),
    ),
    "signals": ExportTable(
        "What went wrong in a session. Never removed.",
        "of its first event, else of its session",
        ("session_uid", "kind", "ts", "text", "data"),
        (
            *_WHOSE,
            ExportColumn("ts", MOMENT, "when it was first seen"),
            ExportColumn("kind", TEXT, "retry_loop, rework, human_correction, slow_tool, …"),
            ExportColumn("severity", TEXT, "low, medium, high"),
            ExportColumn("text", TEXT, "what happened, in one sentence", is_spoken=True),
            ExportColumn("events", COUNT, "events that show it"),
            ExportColumn("data", TEXT, "figures of its kind, as JSON", is_spoken=True),
        ),
    ),
}
"""FROZEN within a version: names, types and their order."""

Day = str | None
"""A date as text; None where no log tells one."""


class TableRow(NamedTuple):
    """One row for a table, and its day."""

    table: str
    day: Day
    values: tuple[Any, ...]


class SessionRows(NamedTuple):
    """All rows of one session."""

    uid: str
    rows: list[TableRow]
    is_held: bool = False
    """The store holds its transcript."""


def accounts(
    store: Store, uids: Sequence[str], notes: Sequence[Note] = ()
) -> Iterator[SessionRows]:
    """Yield the rows of sessions that the store holds; those it holds no more are left out.

    Names, tags, decisions and notes of theirs are among `notes`.
    """
    wanted = Filter(uids=tuple(uids))
    tables: dict[str, dict[str, list[JSON]]] = {uid: {} for uid in uids}
    for what in ("digests", "signals", "spend"):
        for entry in store.read_table(what, wanted):
            tables.setdefault(entry["uid"], {}).setdefault(what, []).append(entry)
    for row in with_lineage(store, list(store.sessions(wanted)), labels_of(notes)):
        yield _account(store, row, tables.get(row.session.session_uid, {}), notes)


def _account(
    store: Store, row: SessionRow, tables: dict[str, list[JSON]], notes: Sequence[Note]
) -> SessionRows:
    uid = row.session.session_uid
    whose = _whose(row)
    day = _day(_millis(row.session.started_at))
    digests = tables.get("digests", [])
    out = [TableRow("sessions", day, whose + _session(row))]
    out += [
        TableRow("usage", _date(entry["day"]), whose + _usage(entry))
        for entry in _by_utc_day(tables.get("spend", []))
    ]
    out += [TableRow("digests", day, whose + _digest(entry)) for entry in digests]
    for entry in tables.get("signals", []):
        moment = _millis(entry.get("ts"))
        out.append(TableRow("signals", _day(moment) or day, whose + _signal(entry, moment)))
    events = _events(store, uid)
    out += [TableRow("events", _day(moment) or day, whose + rest) for moment, rest in events]
    for event in note_events(notes, uid):
        moment, rest = _event(event, (None, None, None), (None,) * 5, event.summary)
        out.append(TableRow("events", _day(moment) or day, whose + rest))
    return SessionRows(uid, _limit_days(out, day), bool(events))


def _limit_days(rows: list[TableRow], day: Day) -> list[TableRow]:
    """Let rows of more days than a session can have stand under the day of their session."""
    days = dict.fromkeys(row.day for row in rows)
    if len(days) <= MAX_DAYS:
        return rows
    first_days = set(list(days)[:MAX_DAYS])
    return [row if row.day in first_days else row._replace(day=day) for row in rows]


# -- rows -----------------------------------------------------------------------------------


def _whose(row: SessionRow) -> tuple[Any, ...]:
    session = row.session
    return clean(session.session_uid), session.flavor, _text(project(session.cwd)) or None


def _session(row: SessionRow) -> tuple[Any, ...]:
    session, cost, spent, ticks = row.session, row.session.cost, row.spent, row.ticks
    usages = (spent.live, spent.dead, spent.side)
    money = [ticks.get(place, 0) for place in ("live", "dead", "side")]
    return (
        *map(_text, (session.cwd, session.git_branch, session.domain, session.task_ref)),
        *map(_text, (row.title, session.model)),
        *(_millis(session.started_at), _millis(session.ended_at), cost.wall_clock_s),
        *(session.outcome, turn_now(row.turn, None), cost.turns, cost.retries, row.events),
        row.states.get("dead", 0) + row.states.get("rolled_back", 0),
        spent.responses,
        sum(usage.input_tokens for usage in usages),
        sum(usage.output_tokens for usage in usages),
        sum(usage.cache_creation_input_tokens for usage in usages),
        sum(usage.cache_read_input_tokens for usage in usages),
        *(*money, sum(money), row.unpriced, bool(row.lower_bound), row.automated),
        *(session.analyzed_at is not None, session.evicted_at is not None, row.gone),
        *(session.source_bytes, _json(row.tags)),
    )


_SPENT = ("input", "output", "cache_creation", "cache_read", "cache_1h", "searches")


def _by_utc_day(spend: Iterable[JSON]) -> list[JSON]:
    """Return what a session took, a row for each day of UTC, model and branch."""
    sums: dict[tuple[str, str, str], dict[str, JSON]] = {}
    for part in spend:
        day = part["day"][:10]
        key = day, part["model"], part["place"]
        row = sums.get(key)
        if row is None:
            sums[key] = {**part, "day": day}
            continue
        for name in (*_SPENT, "responses", "ticks", "unpriced"):
            row[name] = (row.get(name) or 0) + (part.get(name) or 0)
    return list(sums.values())


def _usage(spend: JSON) -> tuple[Any, ...]:
    return (
        *(_text(spend["model"]) or None, spend["place"], spend["responses"]),
        *(spend.get(name) or 0 for name in _SPENT),
        *(spend["ticks"], spend["unpriced"]),
    )


def _digest(digest: JSON) -> tuple[Any, ...]:
    snippets = fields(digest.get("snippets"))
    return (
        *(digest.get("at"), _text(digest.get("outcome")), _number(digest.get("confidence"))),
        *(_text(digest.get("task_ref")), _number(digest.get("seconds"))),
        *(_count(digest.get("turns")), _count(digest.get("retries"))),
        *(_length(digest, "interventions"), len(_list(snippets.get("corrections")))),
        *(_count(digest.get("context_peak")), _count(digest.get("compactions"))),
        *(_length(digest, name) for name in ("todos", "branches", "subagents")),
        _structs(digest.get("tools"), ("tool",), ("calls", "failed", "refused", "took_ms")),
        _tests(digest.get("tests")),
        _structs(digest.get("files"), ("path",), ("reads", "edits", "broke")),
        _errors(digest.get("errors")),
    )


def _length(digest: JSON, name: str) -> int:
    """How many there were, those included that did not fit into the digest."""
    return len(_list(digest.get(name))) + _count(fields(digest.get("left_out")).get(name))


def _structs(entries: JSON, texts: Sequence[str], counts: Sequence[str]) -> str:
    """Return a list of objects of a digest with these fields, each of them there."""
    return _json(
        {name: _text(entry.get(name)) or "" for name in texts}
        | {name: _count(entry.get(name)) for name in counts}
        for entry in map(fields, _list(entries))
    )


def _tests(entries: JSON) -> str:
    return _json(
        {
            "runner": _text(entry.get("runner")) or "",
            "runs": _count(entry.get("runs")),
            "red": _count(entry.get("red")),
            "last_red": bool(entry.get("last_red")),
            **{name: entry.get(name) for name in ("passed", "failed", "skipped")},
        }
        for entry in map(fields, _list(entries))
    )


def _errors(entries: JSON) -> str:
    return _json(
        {
            "fingerprint": _text(entry.get("fingerprint")) or "",
            "tool": _text(entry.get("tool")) or "",
            "count": _count(entry.get("count")),
            "settled": entry.get("settled_by") is not None,
        }
        for entry in map(fields, _list(entries))
    )


def _signal(signal: JSON, moment: int | None) -> tuple[Any, ...]:
    return (
        *(
            moment,
            _text(signal.get("kind")),
            _text(signal.get("severity")),
            _text(signal.get("text")),
        ),
        *(len(_list(signal.get("events"))), _json(fields(signal.get("data")))),
    )


# -- events ---------------------------------------------------------------------------------

_Event = tuple[int | None, tuple[Any, ...]]
_OMITTED_KINDS = frozenset({"error"})
"""Derived events whose line is made from a payload: which error it was, the digest tells."""


def _events(store: Store, uid: str) -> list[_Event]:
    """Return the events of a session, each with those that are derived from it after it."""
    out: list[_Event] = []
    rows = list(store.events(uid))
    for row in rows:
        if row.event.state is State.REPLAYED:
            continue
        out.append(_event(row.event, _outcome_columns(row), _bill(row), row.event.summary))
        for event in row.derived_events():
            line = None if event.kind in _OMITTED_KINDS else event.summary
            out.append(_event(event, (event.failed, None, None), (None,) * 5, line))
    ends = log_ends([row.event for row in rows])
    out += [_event(event, (None, None, None), (None,) * 5, event.summary) for event in ends]
    return out


def _outcome_columns(row: StoredEvent) -> tuple[bool | None, bool | None, int | None]:
    outcome = row.outcome
    if outcome is None or not outcome.ended:
        return row.event.failed, None, None
    is_refused = outcome.is_cut_short
    return outcome.failed and not is_refused, is_refused, outcome.elapsed_ms


def _bill(row: StoredEvent) -> tuple[Any, ...]:
    usage = row.usage
    if usage is None:
        return (None,) * 5
    return (
        *(usage.input_tokens, usage.output_tokens, usage.cache_creation_input_tokens),
        *(usage.cache_read_input_tokens, row.ticks),
    )


def _event(
    event: SessionEvent,
    ended: tuple[bool | None, bool | None, int | None],
    bill: tuple[Any, ...],
    line: str | None,
) -> _Event:
    moment = _millis(event.ts)
    return moment, (
        *(event.seq, event.event_id, event.parent_id, event.derived_from, moment, event.kind),
        *(event.role, _text(event.tool), event.state.value if event.state else None),
        *(_text(event.channel), *ended, _text(event.model), *bill, _text(line)),
    )


# -- values ---------------------------------------------------------------------------------

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_FIRST = date(1970, 1, 1)


@lru_cache(maxsize=4096)
def _on(number: int) -> Day:
    """The date so many days after the first; None before that one and after the year 9999."""
    try:
        return f"{_FIRST + timedelta(days=number)}" if number >= 0 else None
    except OverflowError:  # a clock of a log may name any year
        return None


def _day(moment: int | None) -> Day:
    """The day of a moment, in UTC."""
    return None if moment is None else _on(moment // 86_400_000)


def _date(value: JSON) -> Day:
    """A day as it was kept: from a log, so it may be anything."""
    if not isinstance(value, str) or _DATE.fullmatch(value) is None:
        return None
    try:
        return f"{date.fromisoformat(value)}"
    except ValueError:  # written by a log: no day rather than a wrong one
        return None


def _millis(value: JSON) -> int | None:
    moment = time_of(value) if isinstance(value, str) else None
    return None if moment is None else (moment - _EPOCH) // _MILLISECOND


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def _text(value: JSON) -> str | None:
    if not isinstance(value, str):
        return None
    return value if value.isascii() else clean(value)


def _count(value: JSON) -> int:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return value if is_integer and abs(value) < 1 << 62 else 0


def _number(value: JSON) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _list(value: JSON) -> Sequence[JSON]:
    return value if isinstance(value, (list, tuple)) else ()


def _json(value: Iterable[JSON]) -> str:
    plain = value if isinstance(value, dict) else list(value)
    try:
        return msgspec.json.encode(plain, order="deterministic").decode()
    except (UnicodeEncodeError, ValueError, OverflowError, RecursionError):
        # Lone surrogates, NaN: an empty value keeps the row readable.
        return "{}" if isinstance(plain, dict) else "[]"
