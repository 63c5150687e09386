"""Store: what is kept, what goes next and why, which secrets were taken out."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from thence.format.figures import clean, several, short_id, size, size_limit
from thence.memory import retention
from thence.memory.notes import ANNOUNCED_DAYS, age_removal_start, announcement
from thence.memory.placeholders import MAX_SECRETS
from thence.memory.reports import count_losses, losses_of
from thence.memory.session_sources import plan_removals
from thence.memory.store import Filter, Inventory
from thence.memory.unread import read_unread, unread_lines
from thence.serve.agents import agent_class
from thence.serve.context import AppContext
from thence.serve.session_head import address, title_of

MAX_ROWS: Final = 40
_ACTIONS: Final = {
    "evict": "remove",
    "drop_unanalysed": "lose",
    "analyse": "analyse first",
    "alert": "alert",
}


class TierBar(msgspec.Struct, frozen=True):
    """One tier against its caps; widths are shares of the scale."""

    text: str
    parts: list[tuple[float, float, str, str, str]]
    """Where it starts, how wide, its class, whose it is, how much."""
    caps: list[tuple[float, str]]


class RemovalRow(msgspec.Struct, frozen=True):
    """A session that is to be removed."""

    href: str
    title: str
    action: str
    why: str
    frees: str


class StoreCheck(msgspec.Struct, frozen=True):
    """One check of the store."""

    ok: bool
    text: str
    end: str = ""
    href: str = ""


class StorePage(msgspec.Struct, frozen=True):
    """What answers: is everything kept, and what goes next."""

    heading: str
    lede: str
    figures: list[tuple[str, str, str]]
    raw: TierBar
    distilled: TierBar
    going: list[RemovalRow]
    more: int
    plan_said: str
    rule: str
    skipped: list[StoreCheck]
    checks: list[StoreCheck]
    redacted: list[tuple[str, int, int]]
    more_redacted: str
    """Why there may be more, if so: the numbers are minimums then."""


def page(context: AppContext) -> StorePage:
    """Return the page about the store: what is stored, what is removed next and why."""
    known = context.store.known()
    running = set(context.now().live)
    now = context.moment()
    plan = plan_removals(context.policy, known, running, now)
    total = context.store.totals()[0]
    odd = list(context.store.read_table("oddities"))
    skips = {entry["uid"]: int(entry["skipped"]) for entry in odd if entry["skipped"]}
    skipped = _skips(context, skips)
    checks = list(_checks(context, known, plan))
    wrong = sum(not check.ok for check in checks) + min(len(skips), MAX_ROWS)
    redacted = _redaction_counts(entry["redacted"] for entry in odd)
    uncounted = sum(entry["more_redacted"] for entry in odd)
    taken_out = several(sum(n for _, n, _ in redacted), "secret", is_bound=uncounted > 0)
    here = sum(1 for entry in known.sessions.values() if entry.gone)
    figures = [
        ("Sessions", f"{len(known.sessions):,}", f"{here:,} whose original log is gone"),
        ("Transcripts", size(total.raw_bytes), "rows, index and packs"),
        ("Never removed", size(known.distilled_bytes), "digests, signals, costs"),
        ("Skipped", several(sum(skips.values()), "line"), "every skipped line is listed"),
        ("Redacted", taken_out, "before anything was stored"),
    ]
    return StorePage(
        "Healthy" if not wrong else f"{several(wrong, 'warning')}",
        f"{size(total.raw_bytes)} of transcripts, {size(known.distilled_bytes)} never removed",
        figures,
        _raw_tier(context),
        _distilled_tier(context, known.distilled_bytes),
        [_planned_removal(context, item) for item in plan.items[:MAX_ROWS]],
        max(len(plan.items) - MAX_ROWS, 0),
        _plan_text(plan, context, now),
        retention.rule(context.policy),
        skipped,
        checks,
        redacted,
        f"minimums: {MAX_SECRETS:,} secrets of a session are told apart at most, and"
        f" {several(uncounted, 'session')} reached that"
        if uncounted
        else "",
    )


def _raw_tier(context: AppContext) -> TierBar:
    soft, hard = context.policy.raw_soft_cap_bytes, context.policy.raw_hard_cap_bytes
    totals = sorted(context.store.totals(["agent"]), key=lambda total: -total.raw_bytes)
    used = sum(total.raw_bytes for total in totals)
    scale = max(hard * 1.05, used * 1.05, 1)
    parts, at = [], 0.0
    for total in totals:
        wide = 100 * total.raw_bytes / scale
        name = f"{total.key[0]}"
        parts.append(
            (round(at, 2), round(wide, 2), f"f-{agent_class(name)}", name, size(total.raw_bytes))
        )
        at += wide
    caps = [(soft, f"limit {size_limit(soft)}"), (hard, f"maximum {size_limit(hard)}")]
    marks = [(round(100 * at_bytes / scale, 2), name) for at_bytes, name in caps]
    return TierBar(f"{size(used, soft)} of {size_limit(soft)}", parts, marks)


def _distilled_tier(context: AppContext, used: int) -> TierBar:
    cap = context.policy.distilled_cap_bytes
    scale = max(cap * 1.05, used * 1.05, 1)
    parts = [(0.0, round(100 * used / scale, 2), "f-live", "", size(used))]
    return TierBar(
        f"{size(used, cap)} of {size_limit(cap)}",
        parts,
        [(round(100 * cap / scale, 2), size_limit(cap))],
    )


def _plan_text(plan: retention.RetentionPlan, context: AppContext, now: datetime) -> str:
    start = age_removal_start(context.home)
    if plan.by_age and (start is None or now < start):
        return f"{announcement(len(plan.by_age), start or now + timedelta(days=ANNOUNCED_DAYS))}."
    cap = context.policy.raw_soft_cap_bytes
    if not plan.items:
        taken = size(plan.usage_before, cap)
        limit = size_limit(cap)
        return f"Nothing will be removed: transcripts use {taken}, below the limit of {limit}."
    after, before = (size(count, cap) for count in (plan.usage_after, plan.usage_before))
    return f"Afterwards transcripts use {after} instead of {before}."


def _planned_removal(context: AppContext, item: retention.PlannedRemoval) -> RemovalRow:
    uid = item.session_uid or ""
    rows = list(context.store.sessions(Filter(uids=(uid,)))) if uid else []
    title = title_of(rows[0]) if rows else clean(uid) or "the store"
    action = _ACTIONS.get(item.action, item.action)
    return RemovalRow(
        address(uid) if uid else "", title, action, clean(item.reason), size(item.bytes)
    )


def _skips(context: AppContext, skips: Mapping[str, int]) -> list[StoreCheck]:
    """Return the latest sessions in which lines were skipped."""
    out = []
    for row in context.store.sessions(Filter(uids=tuple(skips)[:MAX_ROWS])):
        files = several(len(row.files), "file")
        text = f"{title_of(row)} ({short_id(row.session.native_session_id)}, {files})"
        end = several(row.skipped, "line")
        out.append(StoreCheck(ok=False, text=text, end=end, href=address(row.session.session_uid)))
    return out


def _checks(
    context: AppContext, known: Inventory, plan: retention.RetentionPlan
) -> Iterator[StoreCheck]:
    late = sum(
        1 for entry in known.sessions.values() if entry.analysed is None and not entry.evicted
    )
    yield StoreCheck(
        ok=not late,
        text="Every session has its digest" if not late else "Sessions without a digest yet",
        end=f"{late:,}" if late else f"{len(known.sessions):,}",
    )
    behind = len(known.unsettled)
    yield StoreCheck(
        ok=not behind,
        text="Forks are matched to their originals",
        end=f"{behind} to come" if behind else "",
    )
    yield StoreCheck(
        ok=not known.pending,
        text="Removed data is not erased yet" if known.pending else "Removed data is erased",
    )
    losing = len(plan.of("drop_unanalysed"))
    yield StoreCheck(
        ok=not losing,
        text="Sessions that will be lost" if losing else "Nothing unanalysed will be removed",
        end=f"{losing}" if losing else "",
    )
    lost = losses_of(context.store)
    yield StoreCheck(
        ok=not lost, text=count_losses(lost) if lost else "No session was lost to the limits"
    )
    for line in unread_lines(read_unread(context.home)):
        yield StoreCheck(ok=False, text=line)
    risks = len(context.risks())
    yield StoreCheck(
        ok=not risks,
        text="Sessions that agents delete soon and that are not saved"
        if risks
        else "Everything agents will delete soon is saved",
        end=f"{risks}: thence sweep" if risks else "",
    )
    open_to = _open_to_others(context)
    yield StoreCheck(
        ok=not open_to,
        text="Only you can read the store" if not open_to else "Other users can read the store",
        end=open_to,
    )


def _open_to_others(context: AppContext) -> str:
    try:
        mode = stat.S_IMODE(context.home.stat().st_mode)
    except OSError:
        return ""
    return f"chmod 700 {clean(str(context.home))}" if mode & 0o077 else ""


def _redaction_counts(redacted: Iterable[Mapping[str, int]]) -> list[tuple[str, int, int]]:
    """Return rule, secrets and sessions as sweeps counted them; never the secrets."""
    counts: Counter[str] = Counter()
    sessions: Counter[str] = Counter()
    for rules in redacted:
        counts.update(rules)
        sessions.update(rules.keys())
    return [(rule, number, sessions[rule]) for rule, number in counts.most_common()]
