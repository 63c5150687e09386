"""Sessions that hold the same records or bills: who owns what is settled, and written down.

A family is all sessions that have claims in common, directly or through others. Its members are
compared as a whole (`format.lineage`), so that what comes out does not depend on the order in
which they were read, and a parent that turns up late takes over what is its. Members that were
evicted cannot be compared any more: what they own stays theirs for ever, since their digests
count it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from thence.format import lineage
from thence.format.facts import COPIES_OF, Edge, Fact
from thence.memory.growth import rebuild
from thence.memory.store import SessionChange, Store, StoredSession, owner_key

if TYPE_CHECKING:
    from thence.agents.sessions import Generation
    from thence.memory.pricelist import Prices

RECLAIMED = "records it shares with other sessions have another owner"
"""Why a session is rebuilt after it was compared with those that hold the same records."""


def resolve_ownership(
    store: Store, conflicts: Mapping[str, set[str]], prices: Prices
) -> Iterator[list[SessionChange]]:
    """Yield, family by family, the changes that resolve who owns which records and bills."""
    for family in _families(conflicts):
        sessions = {
            uid: session for uid in family if (session := store.load_session(uid)) is not None
        }
        yield _resolve_family(sessions, prices, evicted=len(sessions) < len(family))


def _families(conflicts: Mapping[str, set[str]]) -> list[list[str]]:
    """Gather sessions that share something, directly or through others; each agent's apart."""
    group: dict[str, set[str]] = {}
    for uid, others in conflicts.items():
        agent = uid.partition(":")[0] + ":"
        together = {uid, *(other for other in others if other.startswith(agent))}
        for member in list(together):
            together |= group.get(member, set())
        for member in together:
            group[member] = together
    return [list(members) for members in sorted({tuple(sorted(g)) for g in group.values()})]


def _resolve_family(
    sessions: Mapping[str, StoredSession], prices: Prices, *, evicted: bool
) -> list[SessionChange]:
    facts_by_name = {_native(uid): session.facts for uid, session in sessions.items()}
    facts = {
        name: _with_owner(member_facts, facts_by_name)
        for name, member_facts in facts_by_name.items()
    }
    shared = lineage.find_shared(facts)
    changes: list[SessionChange] = []
    for uid, session in sessions.items():
        name = _native(uid)
        replayed = shared.replayed[name] | _copies(facts[name], name)
        billed = shared.billed[name] | _bills(session)
        ties = tuple(shared.edges[name])
        if evicted:
            # What nobody else here holds was found to be another's by those that are gone.
            others = [member_facts for other, member_facts in sessions.items() if other != uid]
            replayed |= session.replayed.difference(*map(_record_keys, others))
            billed |= session.billed.difference(*map(_bill_keys, others))
            here = {_native(other) for other in sessions}
            ties += tuple(tie for tie in session.ties if tie.session not in here)
        if (replayed, billed, ties) != (session.replayed, session.billed, session.ties):
            changes.append(
                _rebuild_with_owners(uid, session, replayed, billed, ties, prices=prices)
            )
    if changes:
        changes[0].owned = list(_bill_owners(sessions, shared))
    changed = {change.row.session.session_uid for change in changes}
    same = (session for uid, session in sessions.items() if uid not in changed)
    changes += [SessionChange(session.row, session.cursor, settled=True) for session in same]
    for change in changes:
        change.without_own = change.row.session.native_session_id in shared.without_own
    return changes


def shares_of(
    session: Generation, owners: Iterable[Generation]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the records and the bills of a session that are those of others.

    Of a removed one no store tells it any more; its ties still tell who they are.
    """
    facts_by_name = {_native(member.uid): member.facts for member in (session, *owners)}
    facts = {
        name: _with_owner(member_facts, facts_by_name)
        for name, member_facts in facts_by_name.items()
    }
    name, shared = _native(session.uid), lineage.find_shared(facts)
    return shared.replayed[name] | _copies(facts[name], name), shared.billed[name]


def _with_owner(facts: Sequence[Fact], facts_by_name: Mapping[str, Sequence[Fact]]) -> list[Fact]:
    """Let the owner of copies at the start of a log say which they are, if it is here."""
    owner = next((fact.about[COPIES_OF] for fact in facts if COPIES_OF in fact.about), None)
    if not isinstance(owner, str) or owner not in facts_by_name:
        return list(facts)
    return lineage.claim_copies(facts, owner, facts_by_name[owner])


def _copies(facts: Iterable[Fact], name: str) -> frozenset[str]:
    """Records that say themselves, or have just been told, that they are another's."""
    return frozenset(
        fact.copy_key or fact.node.id
        for fact in facts
        if fact.origin is not None and fact.origin != name and fact.blocks
    )


def _bills(session: StoredSession) -> frozenset[str]:
    """Bills that evicted sessions pay."""
    if not session.foreign:
        return frozenset()
    return frozenset(
        key for key in _bill_keys(session) if owner_key("bill", key) in session.foreign
    )


def _bill_keys(session: StoredSession) -> set[str]:
    return {fact.usage_key for fact in session.facts if fact.usage_key is not None}


def _record_keys(session: StoredSession) -> set[str]:
    return {fact.copy_key or fact.node.id for fact in session.facts}


def _bill_owners(
    sessions: Mapping[str, StoredSession], shared: lineage.Shared
) -> Iterator[tuple[int, str]]:
    """Say who owns each bill that several members hold."""
    holders: dict[str, list[str]] = {}
    for uid, session in sessions.items():
        copied = {
            fact.usage_key
            for fact in session.facts
            if lineage.key_of(fact) in shared.replayed[_native(uid)]
        }
        for key in _bill_keys(session):
            mine = key not in shared.billed[_native(uid)] and key not in copied
            holders.setdefault(key, []).append(uid if mine else "")
    for key, names in holders.items():
        owner = next((name for name in names if name), None)
        if len(names) > 1 and owner is not None:
            yield owner_key("bill", key), owner


def _rebuild_with_owners(
    uid: str,
    session: StoredSession,
    replayed: frozenset[str],
    billed: frozenset[str],
    ties: tuple[Edge, ...],
    *,
    prices: Prices,
) -> SessionChange:
    known = msgspec.structs.replace(session, replayed=replayed, billed=billed, ties=ties)
    growth, row = rebuild(uid, known, prices)
    change = growth.change(row)
    change.cursor = session.cursor
    change.replayed, change.billed, change.ties = replayed, billed, ties
    change.settled = True
    return change


def _native(uid: str) -> str:
    return uid.partition(":")[2]
