"""Listening to a team's store: which sessions others write, as soon as they do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import psycopg
from psycopg import sql

from thence.memory.store import uid_hash
from thence.team.postgres_events import TenantConnection
from thence.team.postgres_text import channel_of

_RECENT_SESSIONS: Final = 10_000  # sessions among which one is looked for that was just written


class _Connectable(TenantConnection, Protocol):
    def _connect(self) -> psycopg.Connection[Any]: ...


@contextlib.contextmanager
def listening(store: _Connectable) -> Iterator[Callable[[float | None], Iterator[set[str]]]]:
    """Listen to what is written: gives what waits, for so many seconds, for who changes.

    What arrives names sessions by a hash, as anybody may listen; whom the tenant's rows are
    hidden from learns nothing by it. What is told in one moment comes together.
    """
    names: dict[str, str] = {}

    def heard(db: psycopg.Connection[Any], wait: float | None) -> Iterator[set[str]]:
        notices = list(db.notifies(timeout=wait, stop_after=1))
        notices += db.notifies(timeout=0) if notices else ()
        keys = {notice.payload.partition(":")[0] for notice in notices}
        if not keys <= names.keys():
            names.update(_names(store, is_first=not names))
        if known := {names[key] for key in keys if key in names}:
            yield known

    with store._translate_errors(), contextlib.closing(store._connect()) as db:  # noqa: SLF001
        db.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel_of(store.tenant))))
        yield lambda wait: heard(db, wait)


def _names(store: TenantConnection, *, is_first: bool) -> dict[str, str]:
    """Return the names of sessions by their hashes, the last ones if others are known."""
    db = store._db  # noqa: SLF001
    since = 0
    if not is_first:
        last = db.execute("SELECT last_value FROM session_ids").fetchone()
        since = (last[0] if last else 0) - _RECENT_SESSIONS
    rows = db.execute(
        "SELECT uid FROM sessions WHERE tenant=%s AND id>%s", (store.tenant, since)
    ).fetchall()
    return {uid_hash(uid).hex(): uid for (uid,) in rows}
