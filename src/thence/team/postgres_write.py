"""What one transaction writes into a store in Postgres.

All statements go over many sessions at once, so that their number does not grow with them. Rows
of sessions are locked in the order of their uids, and keys are claimed in theirs, so that sweeps
of many machines wait for each other and do not block each other; where they do all the same, the
database ends one of them, and it begins again. Events and their words: see postgres_events.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import zstandard
from psycopg import errors

from thence.memory.index import digest_text
from thence.memory.packs import pack_name
from thence.memory.pages import thin_row
from thence.memory.rows import (
    OBJECT,
    REPACK,
    ROW,
    SETTLE,
    SMALL_PART_BYTES,
    SMALL_PARTS,
    columns,
    digest_version,
    encode_row,
    now,
    searched_title,
    spend_values,
    with_verdict,
)
from thence.memory.store import (
    DigestRecord,
    SessionChange,
    SessionRow,
    pack_facts,
    uid_hash,
    unpack_facts,
)
from thence.team.objects import object_pack
from thence.team.postgres_events import Db, EventWriter
from thence.team.postgres_numbers import restate_row, with_change_number, with_number
from thence.team.postgres_pages import compare_change, put_pages, rename_pages
from thence.team.postgres_schema import TIER1
from thence.team.postgres_search import Vector, digest_vector
from thence.team.postgres_text import channel_of, clean_value, text

REWRITE = "rewrite:"
"""What is pending for a table: deleted rows are to go from its pages."""


class _SessionVersion(NamedTuple):
    """What is known of a session before it is written."""

    change: int
    redactor: int
    machine: str
    row: SessionRow


class PushedSession(NamedTuple):
    """What a machine sends of one session."""

    change: SessionChange
    mark: bytes
    """How far it has sent it, after this."""
    digested: DigestRecord | None = None
    evicted: bool = False
    """It arrives without tier 1."""
    restates: bool = False
    """Its events are there already: only what is said of the session changes."""


class Writer(EventWriter):
    """One transaction of one machine into one tenant; its connection has made `STAGE`."""

    def __init__(self, db: Db, tenant: str, machine: str, *, shared_objects: bool = False) -> None:
        """With `shared_objects` payloads lie in a place that other tenants may use as well."""
        super().__init__(db, tenant, machine)
        self._shared_objects = shared_objects
        self._pending: set[str] = set()
        self._settled: set[str] = set()
        self._sent: dict[str, dict[str, Any]] = {}  # what goes into the rows of pushed sessions

    # -- sessions -----------------------------------------------------------------------

    def write(self, changes: Sequence[SessionChange]) -> dict[str, set[str]]:
        """Write what reads found; the kin of each session that has any."""
        conflicts: dict[str, set[str]] = {}
        for some in _once_each(changes):
            conflicts.update(self._write(some))
        self._put_pending()
        self._tell({_uid(change): change.row.change for change in changes})
        return conflicts

    def push(
        self, sent: Sequence[PushedSession], packs: Sequence[tuple[str, bytes]]
    ) -> tuple[dict[str, set[str]], set[str]]:
        """Write what a machine sends, and how far that is: kin, and what was left out.

        The numbers of changes are this store's own; they go on from what is there.
        """
        by_uid = {_uid(pushed.change): pushed for pushed in sent}
        there = self._lock_sessions(list(by_uid))
        due = self._due_of(by_uid, there)
        numbers = {uid: _number(by_uid[uid], there.get(uid)) for uid in due}
        changes = [with_number(change, numbers[uid]) for uid, change in due.items()]
        wanted = {pack_name(change.row.session.session_uid) for change in changes}
        self.put_packs([pack for pack in packs if pack[0].partition("/")[0] in wanted])
        self._sent = {
            uid: {"pushed": by_uid[uid].mark, "pinned": pushed.row.pinned}
            for uid, pushed in due.items()
        }
        kin = self.write(changes)
        digests = [
            with_change_number(pushed.digested, pushed.change, numbers[uid])
            for uid, pushed in by_uid.items()
            if uid in due and pushed.digested is not None
        ]
        self.write_digests(digests)
        self._many(
            "UPDATE sessions SET pushed=%(pushed)s, pinned=%(pinned)s"
            " WHERE tenant=%(tenant)s AND uid=%(uid)s",
            [
                {**columns, "tenant": self._tenant, "uid": uid}
                for uid, columns in self._sent.items()
            ],
        )
        if evicted := [uid for uid in due if by_uid[uid].evicted]:
            self._mark_evicted(evicted)
        return kin, by_uid.keys() - due.keys()

    def _due_of(
        self, by_uid: dict[str, PushedSession], there: dict[str, _SessionVersion]
    ) -> dict[str, SessionChange]:
        """Return the changes that are written: not of what was forgotten or removed here."""
        due = dict(self._due({uid: pushed.change for uid, pushed in by_uid.items()}, there))
        for uid in self._find_tombstones(list(due)):
            del due[uid]
        for uid in [uid for uid in due if by_uid[uid].restates]:
            if uid in there:
                due[uid] = restate_row(due[uid], there[uid].row)
            else:
                del due[uid]  # removed meanwhile: the next push sends it whole
        return due

    def _mark_evicted(self, uids: Sequence[str]) -> None:
        self._db.execute(
            "UPDATE sessions SET evicted=%s, raw_bytes=0 WHERE tenant=%s AND uid=ANY(%s)",
            (now(), self._tenant, uids),
        )

    def put_packs(self, packs: Sequence[tuple[str, bytes]]) -> None:
        """Keep payloads under names that were drawn for them: what has one of them is the same."""
        if packs:
            names = [name.partition("/") for name, _ in packs]
            self._db.execute(
                "INSERT INTO packs(tenant, machine, pack, batch, body) SELECT %s, %s, pack, batch,"
                " body FROM unnest(%s::text[], %s::text[], %s::bytea[]) AS v(pack, batch, body)"
                " ON CONFLICT (tenant, pack, batch) DO NOTHING",
                (
                    *(self._tenant, self._machine, [pack for pack, _, _ in names]),
                    *([batch for _, _, batch in names], [body for _, body in packs]),
                ),
            )

    def _find_tombstones(self, uids: list[str]) -> list[str]:
        """Tell which sessions must not come back."""
        hashes = {uid_hash(uid): uid for uid in uids}
        rows = self._db.execute(
            "SELECT uid_hash FROM tombstones WHERE tenant=%s AND uid_hash=ANY(%s)",
            (self._tenant, list(hashes)),
        )
        return [hashes[bytes(tombstone)] for (tombstone,) in rows.fetchall()]

    def _write(self, changes: dict[str, SessionChange]) -> dict[str, set[str]]:
        stored = self._lock_sessions(list(changes))
        changes = dict(self._due(changes, stored))
        renamed = {
            uid: session_change for uid, session_change in changes.items() if session_change.renamed
        }
        self._settled |= {uid for uid, session_change in changes.items() if session_change.settled}
        new = self._put_sessions(changes, stored)
        self._rename(renamed)
        grown = {
            uid: session_change
            for uid, session_change in changes.items()
            if uid in new and uid not in renamed
        }
        self._put_events(grown, stored)
        shared = self._claim(grown)
        # Growth that shares nothing new leaves the family as it was compared last.
        kin = self.kin(
            [
                uid
                for uid, change in grown.items()
                if uid in shared or change.fresh or change.replayed is not None
            ]
        )
        self._pending |= {SETTLE + uid for uid in kin}
        return kin

    def _lock_sessions(self, uids: list[str]) -> dict[str, _SessionVersion]:
        rows = self._db.execute(
            "SELECT uid, change, redactor, machine, row FROM sessions"
            " WHERE tenant=%s AND uid=ANY(%s) ORDER BY uid FOR UPDATE",
            (self._tenant, uids),
        )
        return {
            uid: _SessionVersion(change, redactor, machine, ROW.decode(row))
            for uid, change, redactor, machine, row in rows.fetchall()
        }

    def _due(
        self, changes: dict[str, SessionChange], stored: dict[str, _SessionVersion]
    ) -> Iterator[tuple[str, SessionChange]]:
        """Leave out what another machine has more of; what it has less of is taken over.

        Kin of several machines are settled by whichever finds them so.
        """
        for uid, change in changes.items():
            there = stored.get(uid)
            if (
                there is None
                or there.machine == self._machine
                or _restates(change, there)
                or (change.settled and change.row.change == there.change + 1)
            ):
                yield uid, change
            elif change.fresh and change.row.events >= there.row.events:
                number = max(there.change + 1, change.row.change)
                row = msgspec.structs.replace(change.row, change=number)
                yield uid, msgspec.structs.replace(change, row=row)

    def _put_sessions(
        self, changes: dict[str, SessionChange], stored: dict[str, _SessionVersion]
    ) -> set[str]:
        """Write the rows of sessions; those of which there is more to write."""
        new: set[str] = set()
        restated: list[tuple[Any, ...]] = []
        rows: list[dict[str, Any]] = []
        for uid, change in changes.items():
            row, there = change.row, stored.get(uid)
            if there is None or there.change != row.change:
                new.add(uid)
                values = {name: clean_value(value) for name, value in columns(change).items()}
                machine = there.machine if there and change.settled else self._machine
                sent = self._sent.pop(uid, {})
                own = {"tenant": self._tenant, "machine": machine, "title_words": self._title(row)}
                rows.append({**values, **sent, **own})
            elif not change.settled:
                if there.redactor != row.redactor:  # its digest was made anew by newer rules
                    self._pending |= {f"{REWRITE}{name}" for name in ("digests", "signals")}
                    self._pending.add(f"{REWRITE}sessions")
                body = encode_row(row)
                path = text(row.session.source_path or "")
                restated.append(
                    (
                        *(row.gone, row.pinned, row.redactor, path, body, self._title(row)),
                        *(self._tenant, uid),
                    )
                )
        self._many(
            "UPDATE sessions SET gone=%s, pinned=%s, redactor=%s, path=%s, row=%s, title_words=%s"
            " WHERE tenant=%s AND uid=%s",
            restated,
        )
        self._put_rows(rows, stored.keys())
        return new

    def _title(self, row: SessionRow) -> Vector | None:
        """Return the words of a title that is searched."""
        title = searched_title(row)
        return digest_vector(title, row.session.flavor, self._tenant) if title else None

    def _put_rows(self, rows: Sequence[dict[str, Any]], stored: Collection[str]) -> None:
        """Write the columns of sessions. Those that were not there must not be there now."""
        if not rows:
            return
        names = list(rows[0])
        marks = ", ".join(f"%({name})s" for name in names)
        sets = ", ".join(f"{name}=excluded.{name}" for name in names if name != "uid")
        statement = (
            f"INSERT INTO sessions({', '.join(names)}, discovered) VALUES({marks}, %(ingested)s)"
            " ON CONFLICT (tenant, uid) DO"
        )
        self._many(f"{statement} UPDATE SET {sets}", [row for row in rows if row["uid"] in stored])
        new = [row for row in rows if row["uid"] not in stored]
        if self._many(f"{statement} NOTHING", new) < len(new):
            raise errors.SerializationFailure("another machine was first to write a session")

    # -- events -------------------------------------------------------------------------

    def _put_events(
        self, changes: dict[str, SessionChange], stored: dict[str, _SessionVersion]
    ) -> None:
        if not changes:
            return
        there = [uid for uid in changes if uid in stored]
        self._empty([uid for uid in there if changes[uid].fresh])
        self._put_facts({uid: change.facts for uid, change in changes.items() if change.facts})
        self._put_folds(changes)
        again = [uid for uid in there if changes[uid].rebuilt]
        changes = changes | {
            uid: compare_change(self._db, self._tenant, uid, changes[uid]) for uid in again
        }
        numbers = put_pages(self._db, self._tenant, self._machine, changes, there)
        self._stage(changes, numbers, new=not there)
        self._drop([(uid, at) for uid, change in changes.items() for at in change.vanished])
        altered = [
            (uid, thin_row(row)) for uid, change in changes.items() for row in change.altered
        ]
        self._alter(altered, [numbers[uid, row.event_id] for uid, row in altered])
        self._retell({uid: change for uid, change in changes.items() if change.retold})
        self._pending |= {REPACK + uid for uid, change in changes.items() if change.untidy}
        self._put_spend(changes, there)
        self._put_shares(changes)

    def _put_spend(self, changes: dict[str, SessionChange], there: Sequence[str]) -> None:
        """Write what sessions took, in place of what was written before."""
        self._delete("spend", there)
        self._many(
            "INSERT INTO spend(tenant, machine, uid, day, model, place, input, output,"
            " cache_creation, cache_read, cache_1h, searches, responses, ticks, unpriced)"
            f" VALUES({', '.join(['%s'] * 15)})",
            [
                (self._tenant, self._machine, uid, *map(clean_value, spend_values(spend)))
                for uid, change in changes.items()
                for spend in change.spend
            ],
        )

    def _put_shares(self, changes: dict[str, SessionChange]) -> None:
        """Write which records and bills of sessions others own."""
        shared = [
            (self._tenant, self._machine, uid, msgspec.msgpack.encode(shares))
            for uid, change in changes.items()
            if change.replayed is not None
            for shares in [(change.replayed, change.billed or frozenset(), change.ties)]
        ]
        self._many(
            "INSERT INTO shares(tenant, machine, uid, body) VALUES(%s, %s, %s, %s)"
            " ON CONFLICT (tenant, uid) DO UPDATE SET body=excluded.body",
            shared,
        )

    def _empty(self, uids: Sequence[str]) -> None:
        """Take out what is read anew: it may have been kept by rules that did not know a secret."""
        if not uids:
            return
        rows = self._db.execute(
            "SELECT DISTINCT uid FROM facts WHERE tenant=%s AND uid=ANY(%s)",
            (self._tenant, list(uids)),
        )
        there = [uid for (uid,) in rows.fetchall()]
        self._pending |= self._old_objects(there)
        for table in (*TIER1, "vectors") if there else ():
            self._delete(table, there)
        if there:
            self._drop_states(there)
            self._pending |= {REPACK + uid for uid in there}
            stale = (*TIER1, "sessions", "digests", "signals", "vectors")
            self._pending |= {f"{REWRITE}{table}" for table in stale}

    def _put_facts(self, bodies: dict[str, bytes]) -> None:
        """Add a piece of facts to each; many small ones are put together."""
        if not bodies:
            return
        rows = self._db.execute(
            "SELECT uid, max(part), coalesce(max(part) FILTER (WHERE length(body)>=%s), 0)"
            " FROM facts WHERE tenant=%s AND uid=ANY(%s) GROUP BY uid",
            (SMALL_PART_BYTES, self._tenant, list(bodies)),
        ).fetchall()
        parts = {uid: last for uid, last, _ in rows}
        for uid, last, large in rows:
            if last - large < SMALL_PARTS:
                continue
            small = self._db.execute(
                "DELETE FROM facts WHERE tenant=%s AND uid=%s AND part>%s RETURNING part, body",
                (self._tenant, uid, large),
            ).fetchall()
            every = [*(body for _, body in sorted(small)), bodies[uid]]
            bodies[uid] = pack_facts([fact for body in every for fact in unpack_facts(body)])
            parts[uid] = large
        self._many(
            "INSERT INTO facts(tenant, machine, uid, part, body) VALUES(%s, %s, %s, %s, %s)",
            [
                (self._tenant, self._machine, uid, parts.get(uid, 0) + 1, body)
                for uid, body in bodies.items()
            ],
        )

    def _put_folds(self, changes: dict[str, SessionChange]) -> None:
        """Write the states by which sessions are continued, or that there are none."""
        self._delete("folds", [uid for uid, change in changes.items() if not change.fold])
        self._many(
            "INSERT INTO folds(tenant, machine, uid, change, body) VALUES(%s, %s, %s, %s, %s)"
            " ON CONFLICT (tenant, uid) DO UPDATE SET machine=excluded.machine,"
            " change=excluded.change, body=excluded.body",
            [
                (self._tenant, self._machine, uid, change.row.change, change.fold)
                for uid, change in changes.items()
                if change.fold
            ],
        )
        pairs = [(uid, key) for uid, change in changes.items() for key in change.calls]
        if pairs:
            self._db.execute(
                "INSERT INTO calls(tenant, machine, uid, key) SELECT %s, %s, uid, key"
                " FROM unnest(%s::text[], %s::bigint[]) AS v(uid, key)"
                " ON CONFLICT (tenant, uid, key) DO NOTHING",
                (
                    *(self._tenant, self._machine),
                    *([uid for uid, _ in pairs], [key for _, key in pairs]),
                ),
            )

    def _rename(self, changes: dict[str, SessionChange]) -> None:
        """Let refs lead to where payloads lie now."""
        for uid, change in changes.items():
            self._delete("facts", [uid])
            self._delete("folds", [uid])
            self._db.execute(
                "INSERT INTO facts(tenant, machine, uid, part, body) VALUES(%s, %s, %s, 1, %s)",
                (self._tenant, self._machine, uid, change.facts),
            )
            moved = [(old, new) for old, new in change.renamed.items() if old != new]
            self._db.execute(
                "UPDATE events AS t SET ref=v.new"
                " FROM unnest(%s::text[], %s::text[]) AS v(old, new)"
                " WHERE t.tenant=%s AND t.uid=%s AND t.ref=v.old",
                ([old for old, _ in moved], [new for _, new in moved], self._tenant, uid),
            )
            rename_pages(self._db, self._tenant, uid, change.renamed)
            self._unpend([REPACK + uid])

    # -- owners -------------------------------------------------------------------------

    def _claim(self, changes: dict[str, SessionChange]) -> set[str]:
        """Take what nobody owns yet; return the sessions of which others own something: kin."""
        first: dict[int, str] = {}
        shared: set[str] = set()
        for uid, change in changes.items():
            for key in change.claims:
                first.setdefault(key, uid)
        if first:
            keys = sorted(first)
            self._db.execute(
                "INSERT INTO owners(tenant, machine, key, uid)"
                " SELECT %s, %s, key, uid FROM unnest(%s::bigint[], %s::text[]) AS v(key, uid)"
                " ORDER BY key ON CONFLICT (tenant, key) DO NOTHING",
                (self._tenant, self._machine, keys, [first[key] for key in keys]),
            )
            rows = self._db.execute(
                "SELECT key, uid FROM owners WHERE tenant=%s AND key=ANY(%s)", (self._tenant, keys)
            )
            owners: dict[int, str] = dict(rows.fetchall())
            pairs = {
                pair
                for uid, change in changes.items()
                for key in change.claims
                if owners[key] != uid
                for pair in ((uid, owners[key]), (owners[key], uid))
            }
            shared = {uid for uid, _ in pairs if uid in changes}
            self._many(
                "INSERT INTO kin(tenant, machine, uid, other) VALUES(%s, %s, %s, %s)"
                " ON CONFLICT (tenant, uid, other) DO NOTHING",
                [(self._tenant, self._machine, *pair) for pair in sorted(pairs)],
            )
        owned = dict(pair for change in changes.values() for pair in change.owned)
        self._many(
            "INSERT INTO owners(tenant, machine, key, uid)"
            " SELECT %s, %s, %s, uid FROM sessions WHERE tenant=%s AND uid=%s"
            " ON CONFLICT (tenant, key) DO UPDATE SET uid=excluded.uid",
            [
                (self._tenant, self._machine, key, self._tenant, text(uid))
                for key, uid in sorted(owned.items())
            ],
        )
        return shared

    def kin(self, uids: Sequence[str]) -> dict[str, set[str]]:
        """Give, of those that have any, all that share claims, directly or through others."""
        rows = self._db.execute(
            "WITH RECURSIVE near(root, uid) AS ("
            ' SELECT v.uid, v.uid FROM (SELECT unnest(%s::text[]) COLLATE "C") AS v(uid)'
            " UNION SELECT n.root, k.other FROM near AS n JOIN kin AS k"
            " ON k.tenant=%s AND k.uid=n.uid)"
            " SELECT n.root, n.uid FROM near AS n JOIN sessions AS s ON s.tenant=%s AND s.uid=n.uid"
            " WHERE n.root!=n.uid",
            (list(uids), self._tenant, self._tenant),
        )
        out: dict[str, set[str]] = {}
        for root, other in rows.fetchall():
            out.setdefault(root, set()).add(other)
        return out

    # -- digests ------------------------------------------------------------------------

    def write_digests(self, digests: Sequence[DigestRecord]) -> None:
        """Write digests, what hangs on them, and what they tell of their sessions."""
        for some in _once_each(digests):
            rows = self._db.execute(
                "SELECT uid, agent, row FROM sessions"
                " WHERE tenant=%s AND uid=ANY(%s) ORDER BY uid FOR UPDATE",
                (self._tenant, list(some)),
            ).fetchall()
            if rows:
                self._put_digests(some, {uid: (agent, row) for uid, agent, row in rows})
        self._tell({text(record.uid): record.change for record in digests})

    def _put_digests(
        self, digests: dict[str, DigestRecord], there: dict[str, tuple[str, bytes]]
    ) -> None:
        at = now()
        bodies = {uid: msgspec.msgpack.encode(digests[uid].digest) for uid in there}
        self._many(
            "INSERT INTO digests(tenant, machine, uid, change, at, body, state, words)"
            " VALUES(%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (tenant, uid) DO UPDATE"
            " SET change=excluded.change, at=excluded.at, body=excluded.body,"
            " state=excluded.state, words=excluded.words",
            [
                (
                    *(self._tenant, self._machine, uid, digests[uid].change, at, body),
                    digests[uid].state,
                    digest_vector(digest_text(body), there[uid][0], self._tenant),
                )
                for uid, body in bodies.items()
            ],
        )
        self._delete("signals", list(there))
        signals = [
            (
                self._tenant,
                self._machine,
                uid,
                clean_value(record["kind"]),
                msgspec.msgpack.encode(record),
            )
            for uid in there
            for record in digests[uid].signals
        ]
        self._many(
            "INSERT INTO signals(tenant, machine, uid, kind, body) VALUES(%s, %s, %s, %s, %s)",
            signals,
        )
        sizes = {uid: len(body) for uid, body in bodies.items()}
        for _, _, uid, _, body in signals:
            sizes[uid] += len(body)
        updates = []
        for uid, (_, row) in there.items():
            record, stored = digests[uid], ROW.decode(row)
            body = msgspec.msgpack.encode(
                msgspec.structs.replace(stored, session=with_verdict(stored.session, record))
            )
            made = (record.outcome, sizes[uid], digest_version(record), body)
            updates.append((*made, record.change, at, self._tenant, uid))
        # A session that went on since it was read stays un-analysed: the digest does not cover it.
        self._many(
            "UPDATE sessions SET outcome=%s, distilled=%s, digest=%s, row=%s,"
            " analysed=CASE WHEN change=%s THEN %s::bigint ELSE analysed END"
            " WHERE tenant=%s AND uid=%s",
            updates,
        )

    def _drop_states(self, uids: list[str]) -> None:
        """Take out what digests go on from: it was made of what goes."""
        sql = "UPDATE digests SET state=NULL WHERE tenant=%s AND uid=ANY(%s) AND state NOTNULL"
        self._db.execute(sql, (self._tenant, uids))

    # -- removing -----------------------------------------------------------------------

    def remove(self, uids: Sequence[str], *, forget: bool) -> dict[str, int]:
        """Take sessions out of tier 1, or altogether; what each took."""
        rows = self._db.execute(
            "SELECT uid, raw_bytes FROM sessions WHERE tenant=%s AND uid=ANY(%s)"
            " ORDER BY uid FOR UPDATE",
            (self._tenant, list(uids)),
        )
        sizes: dict[str, int] = dict(rows.fetchall())
        there = list(sizes)
        tables: tuple[str, ...] = TIER1
        if forget:
            tables += ("spend", "digests", "signals", "vectors", "owners", "sessions")
            self._db.execute(
                "DELETE FROM kin WHERE tenant=%s AND (uid=ANY(%s) OR other=ANY(%s))",
                (self._tenant, there, there),
            )
            self.add_tombstones([uid_hash(uid) for uid in there])
        else:
            self._db.execute(
                "UPDATE sessions SET evicted=%s, raw_bytes=0 WHERE tenant=%s AND uid=ANY(%s)",
                (now(), self._tenant, there),
            )
            self._drop_states(there)
        self.pend(self._old_objects(there))
        for table in tables:
            self._delete(table, there)
        self._unpend([kind + uid for uid in there for kind in (REPACK, SETTLE)])
        touched = {*tables, "packs", "vectors", *(("kin", "removals") if forget else ())}
        self.pend({f"{REWRITE}{table}" for table in touched} if there else set())
        self._tell(dict.fromkeys(there, 0))
        return sizes

    def _old_objects(self, uids: Sequence[str]) -> set[str]:
        """Return the deletions due of objects that sessions have under names without a tenant.

        Other tenants may have objects under the same beginning: only those that facts name go.
        """
        if not self._shared_objects or not uids:
            return set()
        rows = self._db.execute(
            "SELECT uid, body FROM facts WHERE tenant=%s AND uid=ANY(%s)",
            (self._tenant, list(uids)),
        )
        names: set[str] = set()
        for uid, body in rows:
            pack = f"{object_pack(self._tenant, uid)}/"
            with contextlib.suppress(zstandard.ZstdError, msgspec.DecodeError):  # damaged facts
                refs = (block.ref for fact in unpack_facts(body) for block in fact.blocks)
                named = {ref.partition("#")[0] for ref in refs if ref is not None}
                names |= {f"{OBJECT}{name}" for name in named if not name.startswith(pack)}
        return names

    def add_tombstones(self, hashes: Sequence[bytes]) -> None:
        """Remember what must not come back."""
        self._many(
            "INSERT INTO tombstones(tenant, machine, uid_hash) VALUES(%s, %s, %s)"
            " ON CONFLICT (tenant, uid_hash) DO NOTHING",
            [(self._tenant, self._machine, uid_hash) for uid_hash in hashes],
        )

    # -- small things -------------------------------------------------------------------

    def pend(self, names: Iterable[str]) -> None:
        """Write down what is still to be done."""
        self._many(
            "INSERT INTO pending(tenant, machine, name) VALUES(%s, %s, %s)"
            " ON CONFLICT (tenant, name) DO NOTHING",
            [(self._tenant, self._machine, name) for name in sorted(names)],
        )

    def _put_pending(self) -> None:
        self.pend(self._pending - {SETTLE + uid for uid in self._settled})
        self._unpend([SETTLE + uid for uid in self._settled])

    def _unpend(self, names: Sequence[str]) -> None:
        if names:
            self._db.execute(
                "DELETE FROM pending WHERE tenant=%s AND name=ANY(%s)", (self._tenant, list(names))
            )

    def _tell(self, changed: dict[str, int]) -> None:
        """Tell who listens which sessions changed: by a hash, since anybody may listen."""
        if changed:
            channel = channel_of(self._tenant)
            self._db.execute(
                "SELECT pg_notify(%s, told) FROM unnest(%s::text[]) AS v(told)",
                (channel, [f"{uid_hash(uid).hex()}:{at}" for uid, at in changed.items()]),
            )


def _restates(change: SessionChange, there: _SessionVersion) -> bool:
    """Whether a change says nothing new but of the row itself, such as that it is pinned."""
    return change.row.change == there.change and not (change.facts or change.events)


def _number(sent: PushedSession, there: _SessionVersion | None) -> int:
    """Number a change that another store has numbered in its own way."""
    if there is None:
        return sent.change.row.change
    return there.change if sent.restates else max(there.change + 1, sent.change.row.change)


def _uid(record: SessionChange | DigestRecord) -> str:
    return text(record.uid if isinstance(record, DigestRecord) else record.row.session.session_uid)


def _once_each(changes: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Cut changes into runs that name no session twice, in their order."""
    run: dict[str, Any] = {}
    for change in changes:
        uid = _uid(change)
        if uid in run:
            yield run
            run = {}
        run[uid] = change
    if run:
        yield run
