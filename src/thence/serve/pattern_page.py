"""Patterns: what keeps costing, where it was seen, and what fixed it.

A pattern needs two sessions. Its heading is what all cases share; evidence stands before the fix.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

import msgspec

from thence.format.derived_events import time_of
from thence.format.figures import ago, clean, money, several, short_id
from thence.format.normal import one_line
from thence.memory.patterns import Pattern, PatternEvidence, memories, patterns
from thence.memory.recall import event_name
from thence.memory.store import Filter, SessionRow
from thence.serve.cards import RANGES, EarlierSessions, earlier
from thence.serve.context import AppContext
from thence.serve.session_head import address, title_of

DEFAULT_DAYS: Final = 90
"""What is looked at unless asked: what comes back takes its time."""
KINDS: Final = {
    "recurring_error": ("Repeated errors", "loop", "k-error", "times"),
    "costly_detour": ("Costly detours", "coin", "b-dead", "detours"),
    "breaking_file": ("Breaking files", "file", "k-edit", "failed runs"),
    "flaky_test": ("Flaky tests", "warn", "st-waiting", "flips"),
}


class EvidenceLink(msgspec.Struct, frozen=True):
    """Where a pattern was seen."""

    href: str
    title: str
    event: str
    quote: str
    age: str


class Help(msgspec.Struct, frozen=True):
    """Something that helped."""

    what: str
    sessions: int
    href: str


class PatternCard(msgspec.Struct, frozen=True):
    """One pattern."""

    kind: str
    icon: str
    cls: str
    title: str
    sign: str
    count: int
    unit: str
    sessions: int
    cost: str
    age: str
    cures: list[Help]
    proofs: list[EvidenceLink]


class PatternPage(msgspec.Struct, frozen=True):
    """What answers: what keeps costing me."""

    heading: str
    lede: str
    ranges: list[tuple[str, str, bool]]
    chips: list[tuple[str, str, str, int, bool]]
    shown: list[PatternCard]
    earlier: EarlierSessions | None
    """Given when no session lies in these days."""


def page(context: AppContext, kind: str, days: int) -> PatternPage:
    """Find what comes back in many sessions."""
    after = int((context.clock() - days * 86_400) * 1000)
    wanted = Filter(after=after)
    known = memories(
        context.store.read_table("digests", wanted), context.store.read_table("signals", wanted)
    )
    recurring = patterns(known)
    named = {proof.uid for pattern in recurring for proof in pattern.evidence}
    rows = {r.session.session_uid: r for r in context.store.sessions(Filter(uids=tuple(named)))}
    some = [pattern for pattern in recurring if kind in ("", pattern.kind)]
    ticks = sum(int(pattern.data.get("ticks", 0)) for pattern in recurring)
    lost = f", detours cost {money(ticks)}" if ticks else ""
    heading = several(len(recurring), "pattern") if recurring else "No patterns yet"
    counts: Counter[str] = Counter(pattern.kind for pattern in recurring)

    def href(days: int = days, kind: str = kind) -> str:
        filters = {n: v for n, v in (("kind", kind), ("days", days)) if v not in ("", DEFAULT_DAYS)}
        return f"/patterns?{urlencode(filters)}" if filters else "/patterns"

    chips = [("All", href(kind=""), "", len(recurring), kind == "")]
    chips += [
        (label, href(kind=name), icon, counts[name], kind == name)
        for name, (label, icon, *_) in KINDS.items()
        if counts[name]
    ]
    return PatternPage(
        heading,
        f"last {days} days, {several(len(known), 'session')} analysed{lost}",
        [(f"{n} days", href(days=n), n == days) for n in RANGES],
        chips,
        [_pattern_card(context, pattern, rows) for pattern in some],
        None if known else earlier(context, days, lambda n: href(days=n)),
    )


def _pattern_card(
    context: AppContext, pattern: Pattern, rows: dict[str, SessionRow]
) -> PatternCard:
    _, icon, cls, unit = KINDS[pattern.kind]
    ticks = int(pattern.data.get("ticks", 0))
    now = context.moment()
    proofs = [_proof(seen, rows, now) for seen in pattern.evidence]
    return PatternCard(
        pattern.kind,
        icon,
        cls,
        clean(one_line(_title(pattern), 160)),
        clean(one_line(_sign(pattern), 160)),
        pattern.count,
        unit,
        pattern.sessions,
        money(ticks) if ticks else "",
        proofs[0].age if proofs else "",
        [
            Help(clean(one_line(cure.what, 200)), cure.sessions, _where(cure.evidence[0]))
            for cure in pattern.cures
            if cure.evidence
        ],
        proofs,
    )


def _title(pattern: Pattern) -> str:
    """Return what all cases share: what an error says as it is, ours as a sentence."""
    is_quote = pattern.kind == "recurring_error"
    return pattern.shared if is_quote else pattern.shared[:1].upper() + pattern.shared[1:]


def _sign(pattern: Pattern) -> str:
    """Return the second line of a pattern: what its title does not say."""
    if pattern.kind == "recurring_error":
        kind = pattern.name.partition(": ")[0]
        settled = int(pattern.data.get("settled", 0))
        fixed = f", fixed in {settled} of {several(pattern.sessions, 'session')}" if settled else ""
        return f"{_SOURCES.get(kind, kind)}{fixed}"
    return pattern.name if pattern.kind == "breaking_file" else pattern.text.partition(": ")[0]


_SOURCES: Final = {
    "tool": "from a tool of the agent",
    "shell": "from the shell",
    "exception": "exception",
    "error": "error message",
    "output": "output of a command",
}


def _where(seen: PatternEvidence) -> str:
    return address(seen.uid, seen.events[0] if seen.events else None)


def _proof(seen: PatternEvidence, rows: dict[str, SessionRow], now: datetime) -> EvidenceLink:
    row = rows.get(seen.uid)
    name = event_name(seen.events[0]) if seen.events else ""
    last = time_of(row.session.ended_at) if row else None
    title = title_of(row) if row else short_id(seen.uid.partition(":")[2])
    return EvidenceLink(_where(seen), title, name, clean(one_line(seen.quote, 160)), ago(last, now))
