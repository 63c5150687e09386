"""Store: what is kept, what goes next and why, which secrets were taken out."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from thence.format.figures import clean, several, short_id, size
from thence.memory import retention
from thence.memory.notes import ANNOUNCED_DAYS, age_removal_start, announcement
from thence.memory.places import only_copies
from thence.memory.store import Filter, Inventory, SessionRow
from thence.serve.agents import agent_class
from thence.serve.desk import Desk
from thence.serve.head import address, title_of

SHOWN: Final = 40
_ACTIONS: Final = {
    "evict": "remove",
    "drop_unanalysed": "lose",
    "analyse": "analyse first",
    "alert": "alert",
}


class Tier(msgspec.Struct, frozen=True):
    """One tier against its caps; widths are shares of the scale."""

    said: str
    parts: list[tuple[float, float, str, str, str]]
    """Where it starts, how wide, its class, whose it is, how much."""
    caps: list[tuple[float, str]]


class Going(msgspec.Struct, frozen=True):
    """A session that the plan names."""

    href: str
    title: str
    action: str
    why: str
    frees: str


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    ok: bool
    said: str
    end: str = ""
    href: str = ""


class StorePage(msgspec.Struct, frozen=True):
    """What answers: is everything kept, and what goes next."""

    heading: str
    lede: str
    figures: list[tuple[str, str, str]]
    raw: Tier
    kept: Tier
    going: list[Going]
    more: int
    plan_said: str
    rule: str
    skipped: list[Check]
    checks: list[Check]
    redacted: list[tuple[str, int, int]]


def page(desk: Desk) -> StorePage:
    """Say what is kept, and what goes next and why."""
    known = desk.store.known()
    running = set(desk.now().live)
    now = datetime.fromtimestamp(desk.clock(), UTC)
    held = retention.inventory(known, running, only_copies=only_copies(known))
    plan = retention.plan(desk.policy, held, now)
    total = desk.store.totals()[0]
    rows = list(desk.store.sessions())
    skipped = _skips(rows)
    checks = list(_checks(desk, known, plan))
    wrong = sum(not one.ok for one in checks) + len(skipped)
    redacted = _redacted(rows)
    here = sum(1 for one in known.sessions.values() if one.gone)
    figures = [
        ("Sessions", f"{len(known.sessions):,}", f"{here:,} whose original log is gone"),
        ("Transcripts", size(total.raw_bytes), "rows, index and packs"),
        ("Never removed", size(known.distilled_bytes), "digests, signals, costs"),
        (
            "Skipped",
            several(sum(row.skipped for row in rows), "line"),
            "every skipped line is listed",
        ),
        ("Secrets redacted", f"{sum(n for _, n, _ in redacted):,}", "before anything was stored"),
    ]
    return StorePage(
        "Healthy" if not wrong else f"{several(wrong, 'warning')}",
        f"{size(total.raw_bytes)} of transcripts, {size(known.distilled_bytes)} never removed",
        figures,
        _raw(desk),
        _distilled(desk, known.distilled_bytes),
        [_going(desk, item) for item in plan.items[:SHOWN]],
        max(len(plan.items) - SHOWN, 0),
        _planned(plan, desk, now),
        retention.rule(desk.policy),
        skipped,
        checks,
        redacted,
    )


def _raw(desk: Desk) -> Tier:
    soft, hard = desk.policy.raw_soft_cap_bytes, desk.policy.raw_hard_cap_bytes
    totals = sorted(desk.store.totals(["agent"]), key=lambda one: -one.raw_bytes)
    used = sum(one.raw_bytes for one in totals)
    scale = max(hard * 1.05, used * 1.05, 1)
    parts, at = [], 0.0
    for one in totals:
        wide = 100 * one.raw_bytes / scale
        name = f"{one.key[0]}"
        parts.append(
            (round(at, 2), round(wide, 2), f"f-{agent_class(name)}", name, size(one.raw_bytes))
        )
        at += wide
    caps = [(100 * soft / scale, f"soft {size(soft)}"), (100 * hard / scale, f"hard {size(hard)}")]
    said = f"{size(used)} of {size(soft)}"
    return Tier(said, parts, [(round(x, 2), name) for x, name in caps])


def _distilled(desk: Desk, used: int) -> Tier:
    hard = desk.policy.distilled_cap_bytes
    scale = max(hard * 1.05, used * 1.05, 1)
    parts = [(0.0, round(100 * used / scale, 2), "f-live", "", size(used))]
    return Tier(
        f"{size(used)} of {size(hard)}", parts, [(round(100 * hard / scale, 2), size(hard))]
    )


def _planned(plan: retention.RetentionPlan, desk: Desk, now: datetime) -> str:
    start = age_removal_start(desk.home)
    if plan.by_age and (start is None or now < start):
        return f"{announcement(len(plan.by_age), start or now + timedelta(days=ANNOUNCED_DAYS))}."
    if not plan.items:
        cap = size(desk.policy.raw_soft_cap_bytes)
        taken = size(plan.usage_before)
        return f"Nothing will be removed: transcripts use {taken}, below the limit of {cap}."
    return (
        f"Afterwards transcripts use {size(plan.usage_after)} instead of {size(plan.usage_before)}."
    )


def _going(desk: Desk, item: retention.PlannedRemoval) -> Going:
    uid = item.session_uid or ""
    rows = list(desk.store.sessions(Filter(uids=(uid,)))) if uid else []
    title = title_of(rows[0]) if rows else clean(uid) or "the store"
    action = _ACTIONS.get(item.action, item.action)
    return Going(address(uid) if uid else "", title, action, clean(item.reason), size(item.bytes))


def _skips(rows: Iterable[SessionRow]) -> list[Check]:
    out = []
    for row in [row for row in rows if row.skipped][:SHOWN]:
        files = several(len(row.files), "file")
        said = f"{title_of(row)} ({short_id(row.session.native_session_id)}, {files})"
        end = several(row.skipped, "line")
        out.append(Check(ok=False, said=said, end=end, href=address(row.session.session_uid)))
    return out


def _checks(desk: Desk, known: Inventory, plan: retention.RetentionPlan) -> Iterator[Check]:
    late = sum(1 for one in known.sessions.values() if one.analysed is None and not one.evicted)
    yield Check(
        ok=not late,
        said="Every session has its digest" if not late else "Sessions without a digest yet",
        end=f"{late:,}" if late else f"{len(known.sessions):,}",
    )
    behind = len(known.unsettled)
    yield Check(
        ok=not behind,
        said="Forks are matched to their originals",
        end=f"{behind} to come" if behind else "",
    )
    yield Check(ok=not known.pending, said="Removed data is erased from disk")
    lost = len(plan.of("drop_unanalysed"))
    yield Check(
        ok=not lost, said="Nothing unanalysed will be removed", end=f"{lost}" if lost else ""
    )
    risks = len(desk.risks())
    yield Check(
        ok=not risks,
        said="Everything agents will delete soon is saved",
        end="thence sweep" if risks else "",
    )
    open_to = _open_to_others(desk)
    yield Check(
        ok=not open_to,
        said="Only you can read the store" if not open_to else "Other users can read the store",
        end=open_to,
    )


def _open_to_others(desk: Desk) -> str:
    try:
        mode = stat.S_IMODE(desk.home.stat().st_mode)
    except OSError:
        return ""
    return f"chmod 700 {clean(str(desk.home))}" if mode & 0o077 else ""


def _redacted(rows: Iterable[SessionRow]) -> list[tuple[str, int, int]]:
    """Give rule, secrets and sessions, as sweeps counted them; never what was found."""
    counts: Counter[str] = Counter()
    sessions: Counter[str] = Counter()
    for row in rows:
        counts.update(row.redacted)
        sessions.update(row.redacted.keys())
    return [(rule, number, sessions[rule]) for rule, number in counts.most_common()]
