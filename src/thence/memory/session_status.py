"""Where things stand now: which sessions run, wait for their user, or are about to be deleted.

A log cannot tell a running turn from a dead process, so who says so counts: the agents' own
registries of what is open. For agents that keep none, a turn that is open and was written a short
while ago is taken to be going on; every other open turn has stopped. At risk is what its agent
deletes within a week and thence has not kept as it is now.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from thence.agents import Adapter, Live, Source
from thence.agents.files import measure_source
from thence.format.derived_events import time_of
from thence.format.figures import TICKS
from thence.format.normal import Outcome, Session, session_uid
from thence.format.records import JSON, time_text
from thence.format.turn import TurnNow
from thence.memory.account import row_fields
from thence.memory.labels import Label
from thence.memory.recall import shown_rows, with_lineage
from thence.memory.store import Filter, SessionRow, Store
from thence.memory.stored_paths import printable

RECENT_S = 15 * 60
"""Seconds for which an open turn of an agent that keeps no registry is taken to be going on."""
MAX_WAIT_S = 24 * 3600
"""Seconds for which such an agent's question is shown as waiting."""
SOON_DAYS = 7
"""Days before its deletion from which a session is at risk."""

Standing = Literal["waiting", "running", "idle"]
Turn = Literal["running", "waiting", "interrupted", "stopped", "done"]
TURN_WORDS: Final[dict[Turn, str]] = {
    "running": "running",
    "waiting": "needs you",
    "interrupted": "interrupted",
    "stopped": "stopped in the middle of a turn",
    "done": "done",
}
"""What people read of where a last turn stands."""
STOPPED: Final = "no process is working on it"
"""Why an open turn counts as stopped."""


class Now(msgspec.Struct, frozen=True):
    """What the agents' registries say, by the sessions' uids."""

    live: dict[str, Live]
    telling: frozenset[str]
    """Agents that told of any session: of theirs, what is not told of does not run."""

    def of(self, row: SessionRow, at: float | None = None) -> Standing | None:
        """Tell how a session stands; None when nobody is at it."""
        return self.standing(row.session, row.turn, at)

    def standing(
        self, session: Session, turn: str | None, at: float | None = None
    ) -> Standing | None:
        """Tell how a session stands whose log leaves its last turn so."""
        live = self.live.get(session.session_uid)
        if live is not None:
            return _standing_of(live, turn)
        if session.flavor in self.telling:
            return None
        last = time_of(session.ended_at)
        passed = (at or time.time()) - last.timestamp() if last else float("inf")
        if turn == "waiting" and passed < MAX_WAIT_S:
            return "waiting"
        return "running" if turn in ("running", "answered") and passed < RECENT_S else None


def _standing_of(live: Live, turn: str | None) -> Standing:
    if live.waiting_for or live.status == "waiting" or turn == "waiting":
        return "waiting"
    if live.status == "idle" or (live.status != "busy" and turn in ("done", "interrupted")):
        return "idle"
    return "running"


def turn_now(turn: str | None, standing: Standing | None) -> Turn:
    """Return where a last turn stands: what its log says, unless only a process can keep it open.

    The one rule of what is called running, for all who show or send it.
    """
    if standing in ("running", "waiting"):
        return standing
    if turn in ("running", "waiting"):
        return "stopped"
    return "interrupted" if turn == "interrupted" else "done"


def turn_object(turn: TurnNow, standing: Standing | None) -> dict[str, JSON]:
    """Return a last turn under the names of its fields, its state as it is now."""
    fields: dict[str, JSON] = msgspec.to_builtins(turn)
    return fields | {"state": turn_now(turn.state, standing)}


def now(
    known: Mapping[str, Adapter],
    roots: Mapping[str, Sequence[Path]],
    clean: Callable[[str], str],
) -> Now:
    """Ask all agents which of their sessions are open; what they wait for passes the gate."""
    live: dict[str, Live] = {}
    telling: set[str] = set()
    for name, places in roots.items():
        for place in places:
            for registered in known[name].live(place):
                waits = registered.waiting_for and clean(registered.waiting_for)
                live[session_uid(name, registered.session)] = msgspec.structs.replace(
                    registered, waiting_for=waits
                )
                telling.add(name)
    return Now(live, frozenset(telling))


def open_sessions(
    store: Store,
    wanted: Filter,
    now: Now,
    at: float,
    labels: Mapping[str, Label] | None = None,
) -> list[SessionRow]:
    """Find the sessions that somebody is at: those told of, and those just written."""
    day = int((at - MAX_WAIT_S) * 1000)
    reported = msgspec.structs.replace(wanted, uids=tuple(now.live), limit=None)
    late = msgspec.structs.replace(wanted, after=max(wanted.after or 0, day), limit=None)
    rows = {
        row.session.session_uid: row for query in (reported, late) for row in store.sessions(query)
    }
    open_now = [row for row in rows.values() if now.of(row, at)]
    open_now.sort(key=lambda row: row.session.ended_at or "", reverse=True)
    return with_lineage(store, open_now[: wanted.limit], labels)


def sessions_by_standing(
    store: Store, now: Now, at: float, labels: Mapping[str, Label] | None = None
) -> dict[Standing, list[SessionRow]]:
    """Return the sessions that somebody is at, the last written first, by how they stand."""
    rows: dict[Standing, list[SessionRow]] = {"waiting": [], "running": [], "idle": []}
    for row in open_sessions(store, Filter(), now, at, labels):
        rows[now.of(row, at) or "idle"].append(row)
    return rows


def session_object(row: SessionRow, standing: Standing | None = None) -> dict[str, JSON]:
    """Return a session's fields under their names, and what is known of it besides."""
    fields: dict[str, JSON] = msgspec.to_builtins(row.session)
    fields |= {
        "outcome": outcome_now(row.session.outcome, standing),
        "title": row.title,
        "turn": turn_now(row.turn, standing) if row.turn else None,
        "standing": standing,
        "usd": {name: ticks / TICKS for name, ticks in row.ticks.items()},
        "unpriced_tokens": row.unpriced,
        "lower_bound": list(row.lower_bound),
        "events": row.events,
        "states": row.states,
        "skipped": row.skipped,
        "source_gone": row.gone,
        "imported": msgspec.to_builtins(row.imported),
        "machine": row.machine,
        "origin": row.origin,
        "pinned": row.pinned,
        "tags": list(row.tags),
    }
    return fields


def outcome_now(outcome: Outcome, standing: Standing | None) -> Outcome:
    """Return what to show as the outcome: what goes on now, else how the session was judged."""
    return standing if standing in ("running", "waiting") else outcome


def digest_now(
    digest: Mapping[str, JSON], row: SessionRow, standing: Standing | None
) -> dict[str, JSON]:
    """Return a digest as it is to be read now, under the title of its row.

    A session that grows is digested again when it rests: till then the numbers are those of its
    row. Of one that is open now it says what goes on, not how it ended.
    """
    fields: dict[str, JSON] = msgspec.json.decode(msgspec.json.encode(row_fields(row)))
    now = {name: value for name, value in fields.items() if value or name in digest}
    out = {**digest, **now, "title": row.title}
    if standing not in ("running", "waiting"):
        return out
    out.pop("confidence", None)
    why = "running now" if standing == "running" else "waiting for you"
    return out | {"outcome": standing, "reasons": [why]}


def digests_now(
    store: Store,
    digests: Iterable[dict[str, JSON]],
    now: Now,
    labels: Mapping[str, Label],
    at: float | None = None,
) -> Iterator[dict[str, JSON]]:
    """Yield stored digests, each as it is to be read now."""
    entries = list(digests)
    rows = shown_rows(store, (entry["uid"] for entry in entries), labels)
    for entry in entries:
        row = rows.get(entry["uid"])
        yield entry if row is None else digest_now(entry, row, now.of(row, at))


# -- at risk --------------------------------------------------------------------------------


class Risk(msgspec.Struct, frozen=True):
    """A session that its agent is about to delete, and thence has not kept as it is now."""

    source: Source
    size: int
    modified: float
    days: float
    """Until it is deleted."""
    row: SessionRow | None = None
    """What was kept of it, if anything was."""

    @property
    def session(self) -> Session:
        """Tell what is known of it."""
        if self.row is not None:
            return self.row.session
        source = self.source
        return Session(
            source.uid,
            source.adapter,
            source.session,
            ended_at=time_text(self.modified),
            source_path=source.path,
            source_bytes=self.size,
        )


def at_risk(
    known: Mapping[str, Adapter],
    roots: Mapping[str, Sequence[Path]],
    store: Store | None,
    clean: Callable[[str], str],
    *,
    at: float | None = None,
) -> list[Risk]:
    """Find what will be deleted soon and is not kept, the soonest first; names pass the gate."""
    risks = {risk.source.uid: risk for risk in _deleted_soon(known, roots, at or time.time())}
    if store is not None and risks:
        for row in store.sessions(Filter(uids=tuple(risks))):
            uid = row.session.session_uid
            if row.session.source_bytes == risks[uid].size:
                del risks[uid]
            else:
                risks[uid] = msgspec.structs.replace(risks[uid], row=row)
    shown = (
        msgspec.structs.replace(risk, source=_shown(risk.source, clean)) for risk in risks.values()
    )
    return sorted(shown, key=lambda risk: (risk.days, risk.source.uid))


def _shown(source: Source, clean: Callable[[str], str]) -> Source:
    """Return a source as it is told, its names clean: nothing can be opened by it."""
    session, root = clean(printable(source.session)), clean(printable(source.root))
    files = tuple(
        msgspec.structs.replace(file, path=clean(printable(file.path))) for file in source.files[:1]
    )
    return msgspec.structs.replace(source, session=session, root=root, files=files)


def _deleted_soon(
    known: Mapping[str, Adapter], roots: Mapping[str, Sequence[Path]], at: float
) -> Iterator[Risk]:
    for name, places in roots.items():
        for place in places:
            days = known[name].keeps_days(place)
            if days is None:
                continue
            until = at - (days - SOON_DAYS) * 86_400
            for source in known[name].find(place):
                if _modified_at(source.path) > until:
                    continue  # most are young: one look is enough for them
                size, modified = measure_source(source)
                left = days - (at - modified) / 86_400
                if size and left <= SOON_DAYS:
                    yield Risk(source, size, modified, left)


def _modified_at(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:  # gone: as old as can be
        return 0.0
