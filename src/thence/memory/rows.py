"""What the rows of a store say, whatever database holds them.

Columns of a session, bodies as bytes, the times that the store itself notes, names of what is
pending. A store adds its own statements; what they mean is told here once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from thence.agents import Cursor
from thence.format.derived_events import time_of
from thence.format.facts import Edge
from thence.format.normal import Session
from thence.format.records import JSON
from thence.memory.decoders import late_decoder
from thence.memory.index import time_column
from thence.memory.placeholders import count_by_rule, has_more
from thence.memory.store import (
    FORGOTTEN,
    DigestRecord,
    Filter,
    Inventory,
    SessionChange,
    SessionRow,
    Spend,
    Store,
    SweepEntry,
)


class _SessionOddities(msgspec.Struct, gc=False):
    """The fields of a `SessionRow` that are odd; all others are passed over."""

    skipped: int = 0
    secrets: tuple[str, ...] = ()


ROW: Final = late_decoder(SessionRow)
CURSOR: Final = msgspec.msgpack.Decoder(Cursor)
_ODDITIES: Final = late_decoder(_SessionOddities)
SHARES: Final = late_decoder(tuple[frozenset[str], frozenset[str], tuple[Edge, ...]])

PACK, OBJECT, REPACK, SETTLE = "pack:", "object:", "repack:", "settle:"
"""What is pending for a session: payloads to delete, to write anew, kin to compare."""

WITHOUT_OWN = "without own:"
"""Pending for a session that shares all of its records: compare it again when it grows."""

FOR_LATER: Final = (REPACK, SETTLE, WITHOUT_OWN)
"""What of it is not done when pages are given back."""

BLANK_REMOVALS: Final = (
    "UPDATE removals SET body={mark}||substr(body, {mark}) WHERE substr(body, 1, {mark})={mark}"
)
"""Takes an id out of earlier lines of the list of removals; its values are `blanked`."""

SMALL_PARTS, SMALL_PART_BYTES = 64, 64 << 10
"""How many small pieces of a session's facts are put together, and how large one is small."""

PLACES: Final = ("live", "dead", "side")

NAMES: Final[dict[str, tuple[str, ...]]] = {
    "digests": ("uid", "change", "at", "body"),
    "signals": ("uid", "kind", "body"),
    "spend": (
        *("uid", "agent", "project", "day", "model", "place", "input", "output"),
        *("cache_creation", "cache_read", "cache_1h", "searches", "responses", "ticks", "unpriced"),
    ),
}
"""Columns of what tier 2 keeps, as it is told."""


def columns(change: SessionChange) -> dict[str, Any]:
    """Return the columns of a session that a read changes."""
    row, session = change.row, change.row.session
    return {
        "uid": clean(session.session_uid),
        "agent": session.flavor,
        "project": clean(row.folder),
        "model": clean(session.model),
        "started": millis(session.started_at),
        "ended": millis(session.ended_at),
        "outcome": session.outcome,
        "tokens": row.spent.own,
        "ticks": sum(row.ticks.values()),
        "raw_bytes": row.raw_bytes,
        "change": row.change,
        "ingested": now(),
        "analysed": None,
        "evicted": None,
        "gone": row.gone,
        "bound": bool(row.lower_bound),
        "path": session.source_path or "",
        "redactor": row.redactor,
        "reader": row.reader,
        "fold": row.fold,
        "cursor": msgspec.msgpack.encode(change.cursor),
        "row": encode_row(row),
    }


def encode_row(row: SessionRow) -> bytes:
    """Return a row as a store keeps it: which machine wrote it has a column of its own."""
    return msgspec.msgpack.encode(
        row if row.member is None else msgspec.structs.replace(row, member=None)
    )


def plain_conditions(wanted: Filter, mark: str) -> list[tuple[str, Any]]:
    """Return the conditions of a filter that every database writes alike, and their values.

    `mark` stands for a value. A column that is compared with a field of `Filter` is a row here.
    """
    tests = {
        "agent=": wanted.agent,
        "outcome=": wanted.outcome,
        "ended>=": wanted.after,
        "started<": wanted.before,
    }
    return [(f"{test}{mark}", value) for test, value in tests.items() if value is not None]


_BOUND_KEY: Final = "ab6c6f7765725f626f756e64"
"""The name `lower_bound` as the bytes of a row hold it; it is there only if it has reasons."""
BOUND_BYTES: Final = tuple(f"{_BOUND_KEY}{0x90 + number:x}" for number in range(1, 16))
"""What rows hold, in hex, whose cost is a minimum for so many reasons: for stores of before."""


def oddities(rows: Iterable[tuple[str, bytes]]) -> Iterator[dict[str, JSON]]:
    """Yield what is odd in sessions, by their uids and the bytes of their rows."""
    for uid, body in rows:
        odd = _ODDITIES.decode(body)
        if odd.skipped or odd.secrets:
            redacted, more = count_by_rule(odd.secrets), has_more(odd.secrets)
            counts = {"redacted": redacted, "more_redacted": more}
            yield {"uid": uid, "skipped": odd.skipped, **counts}


def searched_title(row: SessionRow) -> str:
    """Return the title of a session if it is searched; prompts have words of their own."""
    return (clean(row.title) or "") if row.is_named else ""


def spend_values(spend: Spend) -> tuple[Any, ...]:
    """Return what was spent as it lies in a row, after the session."""
    counts = msgspec.structs.astuple(spend.usage)
    place = (spend.day, clean(spend.model), spend.where)
    return (*place, *counts, spend.responses, spend.ticks, spend.unpriced)


def digests_of(store: Store, row: SessionRow) -> Iterator[DigestRecord]:
    """Yield the digest of a session and its signals, as a store keeps them."""
    uid = row.session.session_uid
    wanted = Filter(uids=(uid,))
    for digest in store.read_table("digests", wanted):
        body = {name: digest[name] for name in digest if name not in ("uid", "change", "at")}
        signals = [
            {name: value for name, value in signal.items() if name != "uid"}
            for signal in store.read_table("signals", wanted)
        ]
        made = DigestRecord(uid, digest["change"], body, signals, row.session.outcome)
        made.task_ref = row.session.task_ref
        yield made


def digest_version(record: DigestRecord) -> int:
    """Return the version of a digest; 0 when it does not say."""
    version = record.digest.get("version")
    return version if isinstance(version, int) else 0


def with_verdict(session: Session, record: DigestRecord) -> Session:
    """What only the digest can tell of a session."""
    return msgspec.structs.replace(session, task_ref=record.task_ref)


def with_marks(row: SessionRow, *marks: Any) -> SessionRow:
    """Put what the store itself notes of a session into its row."""
    discovered, ingested, analysed, evicted, outcome, pinned, raw_bytes = marks
    session = msgspec.structs.replace(
        row.session,
        discovered_at=time_column(discovered),
        ingested_at=time_column(ingested),
        analyzed_at=time_column(analysed),
        evicted_at=time_column(evicted),
        outcome=outcome,
    )
    return msgspec.structs.replace(
        row, session=session, pinned=bool(pinned), raw_bytes=raw_bytes or 0
    )


def removal_body(uid: str, size: int | None, why: str, *, forget: bool) -> str:
    """Return what a line of the list of removals says: of a forgotten session not which it was."""
    line = {"uid": FORGOTTEN if forget else uid, "bytes": size, "why": why}
    return msgspec.json.encode(line).decode()


def blanked(uid: str) -> tuple[str, int, int, str]:
    """Return the values of BLANK_REMOVALS for a session that was forgotten."""
    before, after = (f'{{"uid":{msgspec.json.encode(name).decode()}' for name in (uid, FORGOTTEN))
    return after, len(before) + 1, len(before), before


def inventory(
    rows: Iterable[Any],
    forgotten: Iterable[bytes],
    distilled: int,
    pending: Iterable[str],
    kin_of: Callable[[str], set[str]],
    *,
    takes_older: bool = False,
) -> Inventory:
    """Put together what a sweep must know; rows are the fields of `Known` after the uid."""
    sessions = {
        uid: SweepEntry(
            CURSOR.decode(cursor), change, redactor, reader, path, bool(gone), bool(pin), *more
        )
        for uid, cursor, change, redactor, reader, path, gone, pin, *more in rows
    }
    names = list(pending)
    return Inventory(
        sessions,
        frozenset(forgotten),
        distilled,
        frozenset(n.removeprefix(REPACK) for n in names if n.startswith(REPACK)),
        {
            name.removeprefix(SETTLE): kin_of(name.removeprefix(SETTLE))
            for name in names
            if name.startswith(SETTLE)
        },
        any(not name.startswith(FOR_LATER) for name in names),
        takes_older,
    )


def now() -> int:
    """The time in milliseconds."""
    return time.time_ns() // 1_000_000


def millis(text: str | None) -> int | None:
    """Read a time."""
    moment = time_of(text)
    return None if moment is None else int(moment.timestamp() * 1000)


def clean(text: str | None) -> str | None:
    """Return a text that can be stored: lone surrogates replaced."""
    return None if text is None else text.encode("utf-8", "replace").decode()
