"""What a store in Postgres has of one session, looked up by key: what a growing session asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from thence.format.facts import Fact
from thence.format.normal import event_ids
from thence.format.sealing import calls_in
from thence.memory.store import call_key, owner_key
from thence.team.postgres_events import TenantConnection
from thence.team.postgres_text import text

_HAS: Final = {
    "events": b"SELECT event_id FROM events"
    b" WHERE tenant=%(tenant)s AND uid=%(uid)s AND event_id=ANY(%(keys)s)",
    "calls": b"SELECT key FROM calls WHERE tenant=%(tenant)s AND uid=%(uid)s AND key=ANY(%(keys)s)",
    "owners": b"SELECT key FROM owners WHERE tenant=%(tenant)s AND key=ANY(%(keys)s)",
}


class PostgresSessionIndex:
    """What is stored of one session, looked up by id, call and bill."""

    def __init__(self, store: TenantConnection, uid: str) -> None:
        self._store = store
        self._uid = uid
        self._known: dict[tuple[str, int], bool] = {}

    def load(self, facts: Sequence[Fact]) -> None:
        """Look up all that new records name, in a few questions: a server may be far away."""
        name = event_ids(self._uid)
        self._look("events", {name(fact.node.id, 0, 0) for fact in facts})
        self._look("calls", {call_key(call) for fact in facts for call in calls_in(fact)})
        bills = {fact.usage_key for fact in facts if fact.usage_key is not None}
        self._look("owners", {owner_key("bill", bill) for bill in bills})

    def _look(self, table: str, keys: set[int]) -> None:
        if not keys:
            return
        store = self._store
        names = {"tenant": store.tenant, "uid": text(self._uid), "keys": list(keys)}
        with store._translate_errors():  # noqa: SLF001 - its own
            rows = store._db.execute(_HAS[table], names)  # noqa: SLF001
            stored = {key for (key,) in rows.fetchall()}
        self._known |= {(table, key): key in stored for key in keys}

    def _has(self, table: str, key: int) -> bool:
        if (table, key) not in self._known:
            self._look(table, {key})
        return self._known[table, key]

    def has_event(self, event_id: int) -> bool:
        """Return whether an event has this id."""
        return self._has("events", event_id)

    def has_call(self, call: str) -> bool:
        """Return whether a call or a result has this id."""
        return self._has("calls", call_key(call))

    def has_bill(self, usage_key: str) -> bool:
        """Return whether a record of this session, or of another one, has this usage key."""
        return self._has("owners", owner_key("bill", usage_key))
