"""Pages of events in the store of a team: read and written inside the transaction of who calls."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import psycopg

from thence.memory import pages
from thence.memory.store import EventIds, SessionChange

Db = psycopg.Connection[Any]

_START = "SELECT max(first) FROM event_pages WHERE tenant=%s AND uid=%s AND first<="
_FETCHED_PAGES = 8  # pages that are fetched at once
_WRITE = (
    "INSERT INTO event_pages(tenant, machine, uid, first, body)"
    " SELECT %s, %s, uid, first, body FROM unnest(%s::text[], %s::bigint[], %s::bytea[])"
    " AS v(uid, first, body) ON CONFLICT (tenant, uid, first) DO UPDATE"
    " SET machine=excluded.machine, body=excluded.body"
)


def read_pages(db: Db, tenant: str, uid: str, after: int) -> Iterator[bytes]:
    """Yield the pages of a session from the one on that holds a number; a few at a time."""
    who = tenant, uid
    start = db.execute(f"{_START}%s", (*who, max(after, 0))).fetchone()
    at = start[0] if start and start[0] is not None else 0
    while True:
        rows = db.execute(
            "SELECT first, body FROM event_pages WHERE tenant=%s AND uid=%s AND first>=%s"
            " ORDER BY first LIMIT %s",
            (*who, at, _FETCHED_PAGES),
        ).fetchall()
        for _, body in rows:
            yield bytes(body)
        if len(rows) < _FETCHED_PAGES:
            return
        at = rows[-1][0] + 1


def pages_with(db: Db, tenant: str, uid: str, ids: EventIds) -> Iterator[bytes]:
    """Yield the pages of a session that hold events with ids in a range."""
    sql = (
        "SELECT body FROM event_pages WHERE tenant=%s AND uid=%s AND first IN ("  # noqa: S608
        f" SELECT ({_START}e.seq) FROM events AS e"
        " WHERE e.tenant=%s AND e.uid=%s AND e.event_id BETWEEN %s AND %s) ORDER BY first"
    )
    for (body,) in db.execute(sql, (tenant, uid) * 3 + ids):
        yield bytes(body)


def compare_change(db: Db, tenant: str, uid: str, change: SessionChange) -> SessionChange:
    """Return the change of a session that was rebuilt as what is new, altered or gone."""
    rows = (row for body in read_pages(db, tenant, uid, -1) for row in _unpack(uid, body))
    sql = "SELECT event_id FROM events WHERE tenant=%s AND uid=%s"
    ids = {at for (at,) in db.execute(sql, (tenant, uid)).fetchall()}
    return pages.compare_events(change, list(rows), ids)


def _unpack(uid: str, body: bytes) -> list[Any]:
    return pages.unpack_page(uid, body) or []


def put_pages(
    db: Db, tenant: str, machine: str, changes: Mapping[str, SessionChange], stored: Collection[str]
) -> dict[tuple[str, int], int]:
    """Write the events of changes into pages, and return their numbers."""
    numbers: dict[tuple[str, int], int] = {}
    written: list[tuple[str, int, bytes]] = []
    dropped: list[tuple[str, int]] = []
    for uid, change in changes.items():
        if not (change.events or change.altered or change.vanished):
            continue
        known = _numbers(db, tenant, uid, change) if uid in stored else {}
        there = _end(db, tenant, uid, known) if uid in stored else {}
        changed = pages.change_pages(uid, there, change, known)
        numbers |= {(uid, at): seq for at, seq in changed.numbers.items()}
        written += [(uid, at, body) for at, body in changed.pages.items()]
        dropped += [(uid, at) for at in changed.dropped]
    if dropped:
        db.execute(
            "DELETE FROM event_pages AS t USING unnest(%s::text[], %s::bigint[]) AS v(uid, first)"
            " WHERE t.tenant=%s AND t.uid=v.uid AND t.first=v.first",
            ([uid for uid, _ in dropped], [at for _, at in dropped], tenant),
        )
    if written:
        db.execute(_WRITE, (tenant, machine, *map(list, zip(*written, strict=True))))
    return numbers


def _numbers(db: Db, tenant: str, uid: str, change: SessionChange) -> dict[int, int | None]:
    """Return the numbers of the events of a change that are altered or gone."""
    ids = [*(row.event.event_id for row in change.altered), *change.vanished]
    sql = "SELECT event_id, seq FROM events WHERE tenant=%s AND uid=%s AND event_id=ANY(%s)"
    return dict(db.execute(sql, (tenant, uid, ids)).fetchall()) if ids else {}


def _end(db: Db, tenant: str, uid: str, known: Mapping[int, int | None]) -> dict[int, bytes]:
    """Return the pages from the first on that holds one of some numbers, or the last one."""
    lowest = min((seq for seq in known.values() if seq is not None), default=1 << 62)
    sql = (
        "SELECT first, body FROM event_pages WHERE tenant=%s AND uid=%s"  # noqa: S608
        f" AND first>=coalesce(({_START}%s), 0)"
    )
    rows = db.execute(sql, (tenant, uid, tenant, uid, lowest)).fetchall()
    return {at: bytes(body) for at, body in rows}


def rename_pages(db: Db, tenant: str, uid: str, refs: Mapping[str, str]) -> None:
    """Let the events of a session say where their payloads lie now."""
    sql = "SELECT first, body FROM event_pages WHERE tenant=%s AND uid=%s"
    for at, body in db.execute(sql, (tenant, uid)).fetchall():
        db.execute(
            "UPDATE event_pages SET body=%s WHERE tenant=%s AND uid=%s AND first=%s",
            (pages.rename_page(uid, bytes(body), refs), tenant, uid, at),
        )
