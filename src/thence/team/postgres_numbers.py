"""Numbers in the store of a team: those of events, and those of changes of other stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from thence.memory.store import DigestRecord, SessionChange, SessionRow, pack_fold, unpack_fold
from thence.team.postgres_search import Db
from thence.team.postgres_text import lock_key


def restate_row(change: SessionChange, there: SessionRow) -> SessionChange:
    """Return a change that says anew of a session what does not come from its events."""
    path = change.row.session.source_path
    fields = {name: getattr(change.row, name) for name in ("pinned", "gone", "redactor")}
    session = msgspec.structs.replace(there.session, source_path=path)
    return msgspec.structs.replace(
        change, row=msgspec.structs.replace(there, session=session, **fields)
    )


def with_number(change: SessionChange, number: int) -> SessionChange:
    """Return a change under the number that it has in this store; so too in its state."""
    row, fold = change.row, change.fold
    if fold and number != row.change:
        state, spend = unpack_fold(fold)
        if state is not None and state.since == row.change:
            fold = pack_fold(msgspec.structs.replace(state, since=number), spend)
    row = msgspec.structs.replace(row, change=number)
    return msgspec.structs.replace(change, row=row, fold=fold)


def with_change_number(made: DigestRecord, change: SessionChange, number: int) -> DigestRecord:
    """Return a digest that covers the change which it covered where it was made."""
    covers = made.change == change.row.change
    return msgspec.structs.replace(made, change=number if covers else number - 1)


Key = tuple[str, int]
"""A session and the id of one of its events."""


def draw_numbers(
    db: Db, tenant: str, changes: Mapping[str, SessionChange], keys: Iterable[Key]
) -> dict[Key, int]:
    """Return numbers for events: they grow with time, over all machines.

    Events of sessions that are older than all others get numbers below theirs.
    """
    by_session: dict[str, list[Key]] = {}
    for key in keys:
        by_session.setdefault(key[0], []).append(key)
    out: dict[Key, int] = {}
    older = [uid for uid in by_session if changes[uid].older]
    if older:
        db.execute("SELECT pg_advisory_xact_lock(%s)", (lock_key("number", tenant),))
    lowest: int | None = None
    for uid in older:
        own = by_session[uid]
        start = _number_after(db, tenant, uid, len(own))
        if start is None:
            lowest = _lowest_number(db, tenant) if lowest is None else lowest
            lowest -= max(len(own), changes[uid].room)
            start = lowest
        if start > 0:
            out.update(zip(own, range(start, start + len(own)), strict=True))
    left = [key for own in by_session.values() for key in own if key not in out]
    if not left:
        return out
    drawn = "SELECT nextval('event_ids') FROM generate_series(1, %s)"
    rows = db.execute(drawn, (len(left),)).fetchall()
    return out | {key: number for key, (number,) in zip(left, rows, strict=True)}


def _number_after(db: Db, tenant: str, uid: str, count: int) -> int | None:
    """Return the number behind the last one of a stored session, if so many are free there."""
    row = db.execute(
        "SELECT m.last + 1, (SELECT min(id) FROM events WHERE tenant=%s AND id>m.last)"
        " FROM (SELECT max(id) AS last FROM events WHERE tenant=%s AND uid=%s) AS m",
        (tenant, tenant, uid),
    ).fetchone()
    start, other = row or (None, None)
    return start if start is not None and other is not None and start + count <= other else None


def _lowest_number(db: Db, tenant: str) -> int:
    """Return the lowest number of an event; where there is none, one that was just drawn."""
    row = db.execute(
        "SELECT coalesce((SELECT min(id) FROM events WHERE tenant=%s), nextval('event_ids'))",
        (tenant,),
    ).fetchone()
    return int(row[0]) if row else 0
