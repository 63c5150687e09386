"""Sessions that hold the same records or bills: who owns what is settled, and written down.

A family is all sessions that have claims in common, directly or through others. Its members are
compared as a whole (`format.lineage`), so that what comes out does not depend on the order in
which they were read, and a parent that turns up late takes over what is its. Members that were
evicted cannot be compared any more: what they own stays theirs for ever, since their digests
count it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from thence.format import lineage
from thence.format.facts import COPIES_OF, Edge, Fact
from thence.memory.growth import rebuild
from thence.memory.store import SessionChange, Store, StoredSession, owner_key

RECLAIMED = "records it shares with other sessions have another owner"
"""Why a session is rebuilt after it was compared with those that hold the same records."""


def resolve_ownership(
    store: Store, conflicts: Mapping[str, set[str]]
) -> Iterator[list[SessionChange]]:
    """Give, family by family, what is to be written: each member is settled then."""
    for family in _families(conflicts):
        held = {uid: found for uid in family if (found := store.load_session(uid)) is not None}
        yield _resolve_family(held, evicted=len(held) < len(family))


def _families(conflicts: Mapping[str, set[str]]) -> list[list[str]]:
    """Gather sessions that share something, directly or through others; each agent's apart."""
    group: dict[str, set[str]] = {}
    for uid, others in conflicts.items():
        agent = uid.partition(":")[0] + ":"
        together = {uid, *(other for other in others if other.startswith(agent))}
        for one in list(together):
            together |= group.get(one, set())
        for one in together:
            group[one] = together
    return [list(members) for members in sorted({tuple(sorted(g)) for g in group.values()})]


def _resolve_family(held: Mapping[str, StoredSession], *, evicted: bool) -> list[SessionChange]:
    told = {_native(uid): one.facts for uid, one in held.items()}
    facts = {name: _with_owner(found, told) for name, found in told.items()}
    shared = lineage.find_shared(facts)
    changes: list[SessionChange] = []
    for uid, one in held.items():
        name = _native(uid)
        replayed = shared.replayed[name] | _copies(facts[name], name)
        billed = shared.billed[name] | _bills(one)
        ties = tuple(shared.edges[name])
        if evicted:
            # What nobody else here holds was found to be another's by those that are gone.
            others = [found for other, found in held.items() if other != uid]
            replayed |= one.replayed.difference(*map(_record_keys, others))
            billed |= one.billed.difference(*map(_bill_keys, others))
            here = {_native(other) for other in held}
            ties += tuple(tie for tie in one.ties if tie.session not in here)
        if (replayed, billed, ties) != (one.replayed, one.billed, one.ties):
            changes.append(_rebuild_with_owners(uid, one, replayed, billed, ties))
    if changes:
        changes[0].owned = list(_bill_owners(held, shared))
    changed = {change.row.session.session_uid for change in changes}
    same = (one for uid, one in held.items() if uid not in changed)
    changes += [SessionChange(one.row, one.cursor, settled=True) for one in same]
    for change in changes:
        change.without_own = change.row.session.native_session_id in shared.without_own
    return changes


def _with_owner(facts: Sequence[Fact], told: Mapping[str, Sequence[Fact]]) -> list[Fact]:
    """Let the owner of copies at the start of a log say which they are, if it is here."""
    owner = next((fact.about[COPIES_OF] for fact in facts if COPIES_OF in fact.about), None)
    if not isinstance(owner, str) or owner not in told:
        return list(facts)
    return lineage.claim_copies(facts, owner, told[owner])


def _copies(facts: Iterable[Fact], name: str) -> frozenset[str]:
    """Records that say themselves, or have just been told, that they are another's."""
    return frozenset(
        fact.copy_key or fact.node.id
        for fact in facts
        if fact.origin is not None and fact.origin != name and fact.blocks
    )


def _bills(one: StoredSession) -> frozenset[str]:
    """Bills that evicted sessions pay."""
    if not one.foreign:
        return frozenset()
    return frozenset(key for key in _bill_keys(one) if owner_key("bill", key) in one.foreign)


def _bill_keys(one: StoredSession) -> set[str]:
    return {fact.usage_key for fact in one.facts if fact.usage_key is not None}


def _record_keys(one: StoredSession) -> set[str]:
    return {fact.copy_key or fact.node.id for fact in one.facts}


def _bill_owners(
    held: Mapping[str, StoredSession], shared: lineage.Shared
) -> Iterator[tuple[int, str]]:
    """Say who owns each bill that several members hold."""
    holders: dict[str, list[str]] = {}
    for uid, one in held.items():
        copied = {
            fact.usage_key
            for fact in one.facts
            if lineage.key_of(fact) in shared.replayed[_native(uid)]
        }
        for key in _bill_keys(one):
            mine = key not in shared.billed[_native(uid)] and key not in copied
            holders.setdefault(key, []).append(uid if mine else "")
    for key, names in holders.items():
        owner = next((name for name in names if name), None)
        if len(names) > 1 and owner is not None:
            yield owner_key("bill", key), owner


def _rebuild_with_owners(
    uid: str,
    held: StoredSession,
    replayed: frozenset[str],
    billed: frozenset[str],
    ties: tuple[Edge, ...],
) -> SessionChange:
    known = msgspec.structs.replace(held, replayed=replayed, billed=billed, ties=ties)
    growth, row = rebuild(uid, known)
    change = growth.change(row)
    change.cursor = held.cursor
    change.replayed, change.billed, change.ties = replayed, billed, ties
    change.settled = True
    return change


def _native(uid: str) -> str:
    return uid.partition(":")[2]
