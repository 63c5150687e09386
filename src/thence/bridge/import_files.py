"""Files that `thence import` reads, and how their sessions come into the store.

What a file is, its content says: ATIF, a share file, plain or encrypted, JSON lines of an export,
or the log of any agent that thence reads. A session is stored as it would be after a sweep:
redacted, indexed, digested. It keeps its id, so that a second import changes nothing; and a log of
this machine is never replaced by a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from thence.agents import Source
from thence.bridge import event_import, share, trajectories
from thence.bridge.record_json import Parcel, parcel_of
from thence.errors import NotReadable
from thence.format import layout
from thence.format.records import JSON, parse_json
from thence.memory.exclusion import Exclusion
from thence.memory.ingest import Ingester
from thence.memory.placeholders import count_by_rule, has_more
from thence.memory.store import SYNCED, Filter, ImportedFrom, Inventory, SessionRow, Store

if TYPE_CHECKING:
    from thence.memory.gate import Gate
    from thence.memory.rulebook import Rulebook

MAX_BYTES: Final = 2 << 30
"""Larger files are refused: all of a file is in memory while it is read."""

Status = Literal[
    "new", "updated", "unchanged", "older", "has its own log", "forgotten", "excluded", "bad id"
]


class Incoming(msgspec.Struct):
    """What a file holds."""

    form: str
    parcels: list[Parcel]
    by: str = ""


class Arrival(msgspec.Struct):
    """What became of one session of a file."""

    session_uid: str
    status: Status
    events: int = 0
    title: str | None = None
    redacted: dict[str, int] = {}
    more_redacted: bool = False
    """There may be more: of one session at most 1,000 are told apart."""


def read_file(path: Path, identities: Sequence[Path] = ()) -> Incoming:
    """Return the sessions of a file, whatever kind of file it is."""
    from thence.agents.sessions import check_readable

    check_readable(path)
    if path.is_file() and path.stat().st_size > MAX_BYTES:
        raise NotReadable(f"larger than {MAX_BYTES >> 30} GiB: {path}", hint="share it in parts")
    if path.is_file():
        body = path.read_bytes()
        if body.startswith(share.AGE):
            body = share.decrypt_file(body, identities)
            return _read_body(body, path) or _unknown(path)
        if (made := _read_body(body, path)) is not None:
            return made
    return _read_log(path)


def _unknown(path: Path) -> Incoming:
    raise NotReadable(
        f"no sessions in {path}",
        hint="thence reads ATIF, share files, its own JSON lines, and logs of agents",
    )


def _read_body(body: bytes, path: Path) -> Incoming | None:
    """Return the sessions of a file of a format of exchange; None if it is something else."""
    head = body[:4096].lstrip()
    if not head.startswith(b"{"):
        return None
    first, _, rest = body.partition(b"\n")
    document = parse_json(first)
    if share.is_share(document):
        lines = [document, *_lines(rest, path)]
        return Incoming("share", list(share.parcels_in(lines)), str(document.get("by") or ""))
    if event_import.is_export(document):
        return Incoming("jsonl", [event_import.parcel_in([document, *_lines(rest, path)])])
    if not trajectories.is_trajectory(document):
        if b'"ATIF-' not in body:
            return None
        document = parse_json(body)
    if not trajectories.is_trajectory(document):
        return None
    parcels = list(trajectories.parcels_in(document, name=path.stem))
    return Incoming("atif", parcels, trajectories.written_by(document))


def _lines(body: bytes, path: Path) -> list[JSON]:
    out = []
    for number, line in enumerate(body.split(b"\n"), start=2):
        if line.strip():
            value = parse_json(line)
            if value is None:
                raise NotReadable(f"line {number} of {path} is damaged", hint="ask for it again")
            out.append(value)
    return out


def _read_log(path: Path) -> Incoming:
    from thence.agents.sessions import load

    loaded = load(path)
    parcels = [parcel_of(generation) for generation in reversed(loaded.generations)]
    return Incoming(loaded.source.adapter, parcels)


# -- into the store -------------------------------------------------------------------------


class Importer:
    """Brings sessions into a store, which should be held (`store.sweeping()`) meanwhile."""

    def __init__(
        self,
        store: Store,
        gate: Gate,
        rules: Rulebook,
        *,
        exclude: Sequence[str] = (),
        is_dry: bool = False,
    ) -> None:
        """Get ready; one that `is_dry` writes nothing."""
        self._store = store
        self._gate = gate
        self._ingester = Ingester(store.blobs, gate, rules)
        self._exclude = Exclusion(exclude)
        self._is_dry = is_dry
        self._known: Inventory = store.known()

    def bring_in(self, parcel: Parcel, form: str, *, name: str, by: str) -> Arrival:
        """Store one session, unless it is there already or must not be."""
        uid = parcel.uid
        if not layout.is_uid(uid):
            return Arrival(uid, "bad id", sum(len(fact.blocks) for fact in parcel.facts))
        row = next(iter(self._store.sessions(Filter(uids=(uid,)))), None)
        content_hash = parcel.content_hash
        status = self._status(parcel, row, content_hash)
        facts = [fact for fact in parcel.facts if fact.blocks]
        arrival = Arrival(uid, status, sum(len(fact.blocks) for fact in facts))
        if row is not None:
            arrival.title = row.title
        if status not in ("new", "updated") or self._is_dry:
            return arrival
        clean = self._gate.text
        # What a file says of its origin is anybody's word; what a machine of the user says is not.
        first = parcel.imported if form == SYNCED else None
        origin = ImportedFrom(form, clean(name), clean(by), content_hash, first)
        agent, _, native = uid.partition(":")
        change = self._ingester.import_facts(
            Source(agent, native, ()),
            parcel.facts,
            self._known.sessions.get(uid),
            origin,
            torn=parcel.torn,
            shares=(parcel.replayed, parcel.billed, parcel.ties),
        )
        self._ingester.sync()
        self._store.write([change])
        arrival.title, arrival.redacted = change.row.title, count_by_rule(change.row.secrets)
        arrival.more_redacted = has_more(change.row.secrets)
        arrival.events = change.row.events
        return arrival

    def _status(self, parcel: Parcel, row: SessionRow | None, content_hash: str) -> Status:
        if self._known.is_forgotten(parcel.uid):
            return "forgotten"
        cwds = (fact.about.get("cwd") for fact in parcel.facts)
        if any(self._exclude.means(cwd) for cwd in cwds if isinstance(cwd, str)):
            return "excluded"
        if row is None:
            return "new"
        if row.imported is None:
            return "has its own log"
        if row.imported.content_hash == content_hash and row.session.evicted_at is None:
            return "unchanged"
        events = sum(len(fact.blocks) for fact in parcel.facts)
        return "updated" if events >= row.events or row.session.evicted_at else "older"
