"""Who owns what is written in several sessions: forks copied, resumed, read from two homes. Pure.

A record that stands in several sessions belongs to one of them and is *replayed* in the others;
so does a bill. Owner is whom the record itself names; else the session among them whose own
past, the records that it shares with nobody, reaches back furthest, for a copy begins when its
own begin. What cannot be told from the logs goes by name, so that the answer never depends on
the order in which sessions are read. A session that turns up late may take ownership over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from thence.format.facts import Edge, Fact, is_line_name
from thence.format.nodes import Is

Keys = dict[str, frozenset[str]]

SHARED = "records they share"
"""How a fork is known that no record tells of."""


class Shared(msgspec.Struct, frozen=True):
    """What each session repeats of others, and the ties that this shows; sessions by native id."""

    replayed: Keys
    """Copy keys of records that another session owns."""
    billed: Keys
    """Usage keys that another session owns."""
    edges: dict[str, list[Edge]]
    """Forks that are known by their shared records alone."""
    without_own: frozenset[str] = frozenset()
    """Sessions that share all of their records: the first of their own may change who owns what."""


def key_of(fact: Fact) -> str | None:
    """What copies of a record have in common; None when it cannot be told from its like.

    Records without an id are not copied when a session is forked: they are its own.
    """
    if fact.copy_key is not None:
        return fact.copy_key
    return None if is_line_name(fact.node.id) else fact.node.id


def find_shared(sessions: Mapping[str, Iterable[Fact]]) -> Shared:
    """Work out, for all sessions together, which records and bills are whose."""
    facts = {name: list(sessions[name]) for name in sorted(sessions)}
    holders = _holders({name: filter(None, map(key_of, facts[name])) for name in facts})
    age = {name: _own_since(records, holders) for name, records in facts.items()}
    owner = _oldest(_exclude_declared_copies(holders, facts), age) | _named_owners(facts)
    replayed = _others(
        {name: filter(None, map(key_of, records)) for name, records in facts.items()}, owner
    )
    bills = {
        name: [
            fact.usage_key
            for fact in records
            if fact.usage_key is not None
            and fact.usage is not None
            and key_of(fact) not in replayed[name]
        ]
        for name, records in facts.items()
    }
    return Shared(
        replayed,
        _others(bills, _oldest(_holders(bills), age)),
        {name: _forks(records, replayed[name], owner) for name, records in facts.items()},
        frozenset(name for name, (is_unknown, _, _) in age.items() if is_unknown),
    )


def _holders(keys: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Keys that stand in several sessions, with these sessions."""
    out: dict[str, list[str]] = {}
    for name, held_keys in keys.items():
        for key in set(held_keys):
            out.setdefault(key, []).append(name)
    return {key: names for key, names in out.items() if len(names) > 1}


def _own_since(facts: list[Fact], holders: Mapping[str, list[str]]) -> tuple[bool, str, str]:
    """Tell how far back the records reach that a session shares with nobody."""
    own = [fact for fact in facts if key_of(fact) not in holders]
    first = min((fact.ts for fact in own if fact.ts), default="")
    return (not first, first, min((fact.node.id for fact in own), default=""))


def _exclude_declared_copies(
    holders: Mapping[str, list[str]], facts: Mapping[str, list[Fact]]
) -> dict[str, list[str]]:
    """Who may own a record: nobody who says that records of his belong to another holder."""
    above = {name: {fact.origin for fact in records} for name, records in facts.items()}
    return {
        key: [name for name in names if above[name].isdisjoint(set(names) - {name})] or names
        for key, names in holders.items()
    }


def _oldest(
    holders: Mapping[str, list[str]], age: Mapping[str, tuple[bool, str, str]]
) -> dict[str, str]:
    return {key: min(names, key=lambda n: (age[n], n)) for key, names in holders.items()}


def _named_owners(facts: Mapping[str, list[Fact]]) -> dict[str, str]:
    """Return owners that the records themselves name, where that session holds them.

    A copy of a copy names the session it was copied from, which names the one before it.
    """
    origins = {
        (name, key): fact.origin
        for name, own in facts.items()
        for fact in own
        if fact.origin in facts and fact.origin and (key := key_of(fact)) is not None
    }
    named: dict[str, str] = {}
    for (name, key), origin in origins.items():
        seen = {name}
        while (above := origins.get((origin, key))) is not None and origin not in seen:
            seen.add(origin)
            origin = above  # noqa: PLW2901
        named[key] = origin
    keys_of_owner = {name: {key_of(fact) for fact in facts[name]} for name in set(named.values())}
    return {key: name for key, name in named.items() if key in keys_of_owner[name]}


def _others(keys: Mapping[str, Iterable[str]], owner: Mapping[str, str]) -> Keys:
    return {
        name: frozenset(key for key in held_keys if owner.get(key, name) != name)
        for name, held_keys in keys.items()
    }


def _forks(facts: list[Fact], replayed: frozenset[str], owner: Mapping[str, str]) -> list[Edge]:
    """Tie a session to the owners of what it repeats; the last shared record is where it parted."""
    last = {owner[key]: fact.node.id for fact in facts if (key := key_of(fact)) and key in replayed}
    return [Edge("fork", name, SHARED, event) for name, event in last.items()]


# -- copies at the start of a log -----------------------------------------------------------


def claim_copies(facts: Sequence[Fact], owner: str, theirs: Iterable[Fact]) -> list[Fact]:
    """Say whose the records are that a log begins with, where only their owner can tell.

    The log names the owner on one of its first lines and goes on with copies, under new times.
    They reach to the last record that the owner holds as well; without keys to know them by, to
    the first thing said that the owner never did.
    """
    start = next((at for at, fact in enumerate(facts) if fact.origin == owner), None)
    if start is None:
        return list(facts)
    names = Counter(_copy_name(fact) for fact in theirs)
    end = start
    leading = True
    for at in range(start + 1, len(facts)):
        fact = facts[at]
        if not fact.blocks:
            continue  # it tells of this session
        name = _copy_name(fact)
        known = names[name] > 0
        if known and (leading or fact.copy_key is not None):
            names[name] -= 1
            end = at
        elif not fact.node.flags & Is.INTERNAL:
            leading = False
    return [
        msgspec.structs.replace(fact, origin=owner)
        if start < at <= end and fact.origin is None and fact.blocks
        else fact
        for at, fact in enumerate(facts)
    ]


def _copy_name(fact: Fact) -> str:
    """What a copy is known by; of records without a key what their id says of their content."""
    return key_of(fact) or fact.node.id.partition("#")[2]
