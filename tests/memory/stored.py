"""Everything a store holds, in a form that two stores can be compared by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from tests.rules import rules
from thence.agents import adapters
from thence.format.stored import fingerprint
from thence.memory.gate import Gate
from thence.memory.pages import thin_row
from thence.memory.sqlite import Sqlite
from thence.memory.store import Filter
from thence.memory.sweep import Sweep, SweepReport
from thence.team.postgres import Postgres

KEY = b"a key for tests, 32 bytes long!!"
_PASSING = {"change", "at", "raw_bytes", "pack_bytes", "text_bytes", "carried_change", "ms"}
_PASSING |= {"redacted"}


_SERVER: list[str] = []


class RealStore(NamedTuple):
    """A store of all real sessions, in a file."""

    folder: Path
    roots: dict[str, list[Path]]
    report: SweepReport


def use(server: str | None) -> None:
    """Let the stores of folders lie in a database from now on, each a tenant; or in files again."""
    _SERVER[:] = [] if server is None else [server]


def opened(folder: Path) -> Sqlite | Postgres:
    """Open the store of a folder."""
    return Postgres(address(folder)) if _SERVER else Sqlite(str(folder / "s.db"))


def address(folder: Path) -> str:
    """Where the store of a folder lies, for another process."""
    if _SERVER:
        folder.mkdir(parents=True, exist_ok=True)
        # A folder that was made anew is another tenant: what was in the first is not looked for.
        return f"{_SERVER[0]}&tenant={quote(str(folder))}.{folder.stat().st_ino}&machine=here"
    return str(folder / "s.db")


def sweep(folder: Path, roots: Mapping[str, Iterable[Path]], **more: Any) -> SweepReport:
    """Sweep into the store of a folder, and close it."""
    store = opened(folder)
    try:
        with store.sweeping():
            return Sweep(store, adapters(), Gate(key=KEY), rules(), **more).run(roots)
    finally:
        store.close()


def dump(folder: Path) -> dict[str, Any]:
    """Return all that is told of all sessions: rows, events, facts, words, spend, digests, kin.

    Left out is what depends on when and in how many pieces something was written.
    """
    store = opened(folder)
    try:
        return everything(store)
    finally:
        store.close()


def everything(store: Sqlite | Postgres) -> dict[str, Any]:
    """Return all that a store tells."""
    sessions = {row.session.session_uid: _row(row) for row in store.sessions()}
    return {
        "sessions": sessions,
        "events": sorted(_events(store)),
        "facts": {uid: _facts(store, uid) for uid in sessions},
        "words": sorted(_words(store)),
        "spend": sorted(map(repr, store.read_table("spend"))),
        "digests": {d["uid"]: _lasting(d) for d in store.read_table("digests")},
        "signals": sorted(repr(_lasting(s)) for s in store.read_table("signals")),
        "families": _families(store),
    }


def spent(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Give, of every session, tokens by what became of them."""
    store = opened(folder)
    try:
        return {
            row.session.session_uid: (
                row.spent.live.total,
                row.spent.dead.total,
                row.spent.side.total,
            )
            for row in store.sessions(Filter())
        }
    finally:
        store.close()


def _lasting(fields: Any) -> Any:
    return {name: value for name, value in fields.items() if name not in _PASSING}


def _row(row: Any) -> Any:
    fields = _lasting(msgspec.to_builtins(row))
    passing = ("discovered_at", "ingested_at", "analyzed_at", "evicted_at")
    session = {n: v for n, v in fields.pop("session").items() if n not in passing}
    session["analysed"] = row.session.analyzed_at is not None
    session["evicted"] = row.session.evicted_at is not None
    return {**fields, **session}


def _events(store: Sqlite | Postgres) -> Iterable[tuple[Any, ...]]:
    """Yield all events with what was derived of them, as pages have them; rows say the same."""
    if isinstance(store, Postgres):
        rows = store._every(
            "SELECT uid, event_id, ts, kind, state, tool, tokens, implied, seq FROM events"
            " WHERE tenant=%s",
            store.tenant,
        )
    else:
        rows = _named(
            store,
            "SELECT uid, event_id, ts, kind, state, tool, events.tokens, implied, seq"
            " FROM events JOIN sessions ON sessions.id=session",
        )
    thin = {(uid, at): tuple(rest) for uid, at, *rest in rows}
    for session in store.sessions():
        uid = session.session.session_uid
        for row in store.events(uid):
            thin_event = thin_row(row)
            columns = (
                thin_event.ts,
                thin_event.kind,
                thin_event.state,
                thin_event.tool,
                thin_event.tokens,
                thin_event.implied,
                row.seq,
            )
            assert columns == thin.pop((uid, thin_event.event_id)), "a row and its page differ"
            digest = fingerprint(row, with_ref=False)
            yield (
                uid,
                thin_event.event_id,
                digest,
                store.blobs.read(thin_event.ref) if thin_event.ref else b"",
            )
    assert not thin, "rows without a page"


def _facts(store: Sqlite | Postgres, uid: str) -> list[Any]:
    stored = store.load_session(uid)
    facts = [] if stored is None else stored.facts
    stripped = [
        msgspec.structs.replace(
            fact,
            blocks=tuple(msgspec.structs.replace(block, ref=None) for block in fact.blocks),
        )
        for fact in facts
    ]
    return sorted(map(repr, stripped))


def _words(store: Sqlite | Postgres) -> Iterable[tuple[Any, ...]]:
    if isinstance(store, Postgres):
        yield from store._every(
            "SELECT lexeme, uid, event_id, CASE WHEN place IS NULL THEN 'meta' ELSE 'body' END,"
            " coalesce(place, 1) - 1 FROM words, unnest(body)"
            " LEFT JOIN LATERAL unnest(positions) AS place ON true"
            " WHERE tenant=%s AND lexeme !~ '^[@^#]'",
            store.tenant,
        )
        return
    db = store._db
    for (name,) in db.execute("SELECT name FROM tables").fetchall():
        db.execute(f"CREATE VIRTUAL TABLE temp.seen USING fts5vocab(main, {name}, instance)")
        yield from db.execute(
            "SELECT term, uid, event_id, col, offset FROM temp.seen JOIN events ON events.id=doc"
            " JOIN sessions ON sessions.id=session"
        ).fetchall()
        db.execute("DROP TABLE temp.seen")


def _families(store: Sqlite | Postgres) -> list[list[str]]:
    if isinstance(store, Postgres):
        pairs = store._every("SELECT uid, other FROM kin WHERE tenant=%s", store.tenant)
    else:
        pairs = _named(
            store,
            "SELECT a.uid, b.uid FROM kin JOIN sessions AS a ON a.id=session"
            " JOIN sessions AS b ON b.id=other",
        )
    group: dict[str, set[str]] = {}
    for first, second in pairs:
        together = {first, second} | group.get(first, set()) | group.get(second, set())
        group |= dict.fromkeys(together, together)
    return sorted(sorted(members) for members in {frozenset(g) for g in group.values()})


def _named(store: Sqlite, sql: str) -> list[Any]:
    return store._db.execute(sql).fetchall()
