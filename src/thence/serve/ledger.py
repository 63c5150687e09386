"""Costs, patterns, store: what was spent and for nothing, what keeps costing, what is kept."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlencode

import msgspec

from thence.format.figures import ago, clean, money, project, several, short, short_id, size
from thence.format.joins import time_of
from thence.format.normal import one_line
from thence.memory import retention
from thence.memory.bills import Bill, By
from thence.memory.patterns import Pattern, memories, patterns
from thence.memory.store import Filter, SessionRow, Total
from thence.serve.agents import agent_class, agent_label
from thence.serve.desk import Desk
from thence.serve.head import address, title_of

RANGES: Final = (7, 30, 90, 365)
PATTERN_DAYS: Final = 90
"""What the patterns look at unless asked: what comes back takes its time."""
BYS: Final[dict[By, str]] = {
    "model": "Model",
    "project": "Project",
    "agent": "Agent",
    "session": "Session",
}
SHOWN: Final = 40
BRANCHES: Final = 12
HIGH: Final = 173
"""Pixels of the highest bar."""


class Earlier(msgspec.Struct, frozen=True):
    """Where to look when nothing lies in the days that are shown."""

    said: str
    href: str
    label: str


def _earlier(desk: Desk, days: int, href: Callable[[int], str]) -> Earlier | None:
    """Say when the last session was, and lead to the days that hold it; None when there is none."""
    last = next(iter(desk.store.sessions(Filter(limit=1))), None)
    moment = time_of(last.session.ended_at) if last else None
    if moment is None:
        return None
    age = (desk.clock() - moment.timestamp()) / 86_400
    said = f"The last session was on {moment.day} {moment:%b %Y}."
    reach = next((n for n in RANGES if n > max(age + 1, days)), None)
    if reach is None:
        return Earlier(said, "/sessions", "All sessions")
    return Earlier(said, href(reach), f"Look at {reach} days")


# -- costs ----------------------------------------------------------------------------------


class Wanted(msgspec.Struct, frozen=True):
    """What the address of the costs asks for."""

    by: By = "model"
    days: int = 30
    agent: str = ""
    project: str = ""
    model: str = ""
    day: str = ""

    def href(self, **changed: object) -> str:
        """Give the address with something changed."""
        fields = {**msgspec.structs.asdict(self), **changed}
        usual = {"by": "model", "days": 30}
        given = {n: v for n, v in fields.items() if v and v != usual.get(n)}
        return f"/costs?{urlencode(given)}" if given else "/costs"


class Part(msgspec.Struct, frozen=True):
    """A piece of a bar."""

    y: float
    height: float
    cls: str


class DayBar(msgspec.Struct, frozen=True):
    """What was spent on one day, by agent, the dead on top."""

    href: str
    said: str
    x: float
    width: float
    parts: list[Part]
    dead: Part | None
    label: str = ""


class Line(msgspec.Struct, frozen=True):
    """One row of the table."""

    name: str
    href: str
    flavor: str
    sessions: str
    input: str
    output: str
    cache: str
    live: str
    dead: str
    side: str
    share: float
    percent: str
    unknown: bool = False


class Costly(msgspec.Struct, frozen=True):
    """A dead branch that cost something."""

    href: str
    title: str
    said: str
    events: int
    cost: str


class CostPage(msgspec.Struct, frozen=True):
    """What answers: how much, and how much for nothing."""

    wanted: Wanted
    heading: str
    dead_said: str
    live: str
    dead: str
    side: str
    share: float
    ratio: str
    ranges: list[tuple[str, str, bool]]
    bys: list[tuple[str, str, bool]]
    filters: list[tuple[str, str]]
    axis: list[tuple[float, str]]
    days: list[DayBar]
    agents: list[str]
    lines: list[Line]
    all: Line
    left: int
    branches: list[Costly]
    notes: list[str]
    responses: str
    earlier: Earlier | None
    """Given when no bill lies in these days."""


def cost_page(desk: Desk, wanted: Wanted) -> CostPage:
    """Add up what was spent."""
    base = _within(desk, wanted)
    bill = Bill(desk.store, wanted.by, base)
    total = bill.total
    parts = [_line(desk, wanted, one) for one in bill.parts[:SHOWN]]
    span = wanted.day or f"{wanted.days} days"
    percent = _percent(total.dead / total.ticks if total.ticks else 0)
    ratio = round(100 * (total.ticks - total.dead) / total.ticks) if total.ticks else 100
    days, agents, axis = _day_bars(desk, wanted)
    return CostPage(
        wanted,
        f"{money(total.ticks, total.unpriced)} {'on' if wanted.day else 'in'} {span}",
        f"{money(total.dead)} of it on dead branches ({percent})" if total.dead else "",
        money(total.ticks - total.dead, total.unpriced),
        money(total.dead),
        money(total.side) if total.side else "",
        ratio / 100,
        f"{ratio} to {100 - ratio}",
        [(f"{n} days", wanted.href(days=n, day=""), n == wanted.days) for n in RANGES],
        [(said, wanted.href(by=by), by == wanted.by) for by, said in BYS.items()],
        [
            (f"{name}: {clean(value)[:40]}", wanted.href(**{name: ""}))
            for name in ("agent", "project", "model", "day")
            if (value := getattr(wanted, name))
        ],
        axis,
        days,
        agents,
        parts,
        _sum(total),
        max(len(bill.parts) - SHOWN, 0),
        _dead_branches(desk, base),
        list(_notes(bill, total)),
        f"{total.responses:,}",
        None if total.responses else _earlier(desk, wanted.days, lambda n: wanted.href(days=n)),
    )


def _today(desk: Desk) -> datetime:
    now = datetime.fromtimestamp(desk.clock(), UTC)
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


def _within(desk: Desk, wanted: Wanted) -> Filter:
    start = _today(desk) - timedelta(days=wanted.days - 1)
    end = None
    if wanted.day:
        start = datetime.fromisoformat(f"{wanted.day}T00:00:00+00:00")
        end = int((start + timedelta(days=1)).timestamp() * 1000) - 1
    return Filter(
        agent=wanted.agent or None,
        project=wanted.project or None,
        model=wanted.model or None,
        after=int(start.timestamp() * 1000),
        before=end,
    )


def _line(desk: Desk, wanted: Wanted, one: Total) -> Line:
    key = one.key[0] or ""
    name, href, flavor = clean(key) or "unknown", "", ""
    if wanted.by == "session":
        rows = list(desk.store.sessions(Filter(uids=(key,))))
        name = title_of(rows[0]) if rows else short_id(key)
        href, flavor = address(key), key.partition(":")[0]
    elif wanted.by == "agent":
        name, href, flavor = agent_label(key), wanted.href(agent=key, by="model"), key
    elif wanted.by == "project":
        name, href = project(key) or name, wanted.href(project=key, by="session") if key else ""
    elif key:
        href = wanted.href(model=key, by="session")
    return msgspec.structs.replace(_sum(one), name=name, href=href, flavor=flavor)


def _sum(one: Total) -> Line:
    share = one.dead / one.ticks if one.ticks else 0.0
    unknown = bool(one.unpriced and not one.ticks)
    return Line(
        "All",
        "",
        "",
        f"{one.sessions:,}",
        short(one.input),
        short(one.output),
        short(one.cache) if one.cache else "·",
        "unknown" if unknown else money(one.ticks - one.dead - one.side, one.unpriced),
        money(one.dead) if one.dead else "·",
        money(one.side) if one.side else "·",
        round(share, 3),
        _percent(share),
        unknown,
    )


def _percent(share: float) -> str:
    """Say a share; a little is not nothing."""
    return "<1 %" if 0 < share < 0.005 else f"{share:.0%}".replace("%", " %")


def _day_bars(
    desk: Desk, wanted: Wanted
) -> tuple[list[DayBar], list[str], list[tuple[float, str]]]:
    """Draw the days of the range, whatever day is looked at."""
    base = _within(desk, msgspec.structs.replace(wanted, day=""))
    found = desk.store.totals(["day", "agent"], base)
    agents = sorted({f"{one.key[1]}" for one in found if one.ticks})
    first = _today(desk) - timedelta(days=wanted.days - 1)
    dates = [(first + timedelta(days=n)) for n in range(wanted.days)]
    by_day: dict[str, list[Total]] = {}
    for one in found:
        by_day.setdefault(f"{one.key[0]}", []).append(one)
    top = max((sum(t.ticks for t in some) for some in by_day.values()), default=0)
    step = _step(top)
    scale = HIGH / top if top else 0.0
    wide = 100 / max(len(dates), 1)
    out = []
    for at, date in enumerate(dates):
        name = f"{date:%Y-%m-%d}"
        some = by_day.get(name, [])
        x, label = round(at * wide + wide * 0.1, 2), _label(at, date, len(dates))
        out.append(_day_bar(wanted, date, some, agents, scale, (x, round(wide * 0.8, 2)), label))
    axis = [(206 - n * step * scale, money(n * step)) for n in range(int(top // step) + 1)]
    return out, agents, [(round(y, 1), said) for y, said in axis] if top else []


def _day_bar(  # noqa: PLR0917 - one bar has so many sides
    wanted: Wanted,
    date: datetime,
    some: Sequence[Total],
    agents: Sequence[str],
    scale: float,
    place: tuple[float, float],
    label: str,
) -> DayBar:
    ticks, dead = sum(t.ticks for t in some), sum(t.dead for t in some)
    y = 206.0
    parts = []
    for agent in agents:
        live = sum(t.ticks - t.dead for t in some if t.key[1] == agent) * scale
        if live > 0:
            y -= live
            parts.append(Part(round(y, 1), round(live, 1), f"f-{agent_class(agent)}"))
    lost = Part(round(y - dead * scale, 1), round(dead * scale, 1), "") if dead else None
    said = f"{date.day} {date:%b}: {money(ticks - dead)} live, {money(dead)} dead"
    name = f"{date:%Y-%m-%d}"
    href = wanted.href(day="" if wanted.day == name else name)
    return DayBar(href, said, *place, parts, lost, label)


def _label(at: int, date: datetime, number: int) -> str:
    if at == number - 1:
        return "today"
    every = max(number // 5, 1)
    return f"{date.day} {date:%b}" if at % every == 0 and at < number - every else ""


def _step(top: int) -> int:
    """Choose what a line of the grid stands for: one, two or five of something."""
    if top <= 0:
        return 1
    base = int("1".ljust(len(f"{max(top // 4, 1)}"), "0"))
    return next((base * n for n in (1, 2, 5, 10) if top / (base * n) <= 4), base * 10)


def _dead_branches(desk: Desk, base: Filter) -> list[Costly]:
    """Find what cost most and led nowhere."""
    wanted = msgspec.structs.replace(base, order="cost", limit=200)
    found: list[tuple[int, Costly]] = []
    for told in desk.store.kept("digests", wanted):
        for branch in told.get("branches") or ():
            ticks = branch.get("cost", {}).get("ticks", 0)
            if ticks:
                at = branch.get("first", 0)
                href = f"{address(told['uid'])}?at=e{at:013x}"
                said = clean(one_line(branch.get("prompt") or "", 90))
                title = clean(one_line(told.get("title") or "", 80)) or "empty session"
                one = Costly(href, title, said, branch.get("events", 0), money(ticks))
                found.append((ticks, one))
    found.sort(key=lambda one: (-one[0], one[1].href))
    return [one for _, one in found[:BRANCHES]]


def _notes(bill: Bill, total: Total) -> Iterator[str]:
    if total.unpriced:
        tokens = short(total.unpriced)
        yield f"{tokens} tokens are of models without a known price; their money is not counted."
    if bill.bounds:
        reasons = Counter(why for row in bill.bounds for why in row.lower_bound)
        most = clean(reasons.most_common(1)[0][0])
        what = several(len(bill.bounds), "session")
        yield f"Bills that were never written in {what} ({most}): the sums are lower bounds."


# -- patterns -------------------------------------------------------------------------------

KINDS: Final = {
    "recurring_error": ("Repeated errors", "loop", "k-error", "times"),
    "costly_detour": ("Costly detours", "coin", "b-dead", "detour"),
    "breaking_file": ("Breaking files", "file", "k-edit", "red runs"),
    "flaky_test": ("Flaky tests", "warn", "st-waiting", "flips"),
}


class Proof(msgspec.Struct, frozen=True):
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


class Shown(msgspec.Struct, frozen=True):
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
    proofs: list[Proof]


class PatternPage(msgspec.Struct, frozen=True):
    """What answers: what keeps costing me."""

    heading: str
    lede: str
    ranges: list[tuple[str, str, bool]]
    chips: list[tuple[str, str, str, int, bool]]
    shown: list[Shown]
    earlier: Earlier | None
    """Given when no session lies in these days."""


def pattern_page(desk: Desk, kind: str, days: int) -> PatternPage:
    """Find what comes back in many sessions."""
    after = int((desk.clock() - days * 86_400) * 1000)
    wanted = Filter(after=after)
    known = memories(desk.store.kept("digests", wanted), desk.store.kept("signals", wanted))
    found = patterns(known)
    named = {proof.uid for one in found for proof in one.evidence}
    rows = {r.session.session_uid: r for r in desk.store.sessions(Filter(uids=tuple(named)))}
    some = [one for one in found if kind in ("", one.kind)]
    ticks = sum(int(one.data.get("ticks", 0)) for one in found)
    lost = f" cost you {money(ticks)}" if ticks else ""
    heading = f"{several(len(found), 'pattern')}{lost}" if found else "No patterns yet"
    counts: Counter[str] = Counter(one.kind for one in found)

    def href(days: int = days, kind: str = kind) -> str:
        given = {n: v for n, v in (("kind", kind), ("days", days)) if v not in ("", PATTERN_DAYS)}
        return f"/patterns?{urlencode(given)}" if given else "/patterns"

    chips = [("All", href(kind=""), "", len(found), kind == "")]
    chips += [
        (said, href(kind=name), icon, counts[name], kind == name)
        for name, (said, icon, *_) in KINDS.items()
        if counts[name]
    ]
    return PatternPage(
        heading,
        f"last {days} days, {several(len(known), 'session')} looked at",
        [(f"{n} days", href(days=n), n == days) for n in RANGES],
        chips,
        [_shown(desk, one, rows) for one in some],
        None if known else _earlier(desk, days, lambda n: href(days=n)),
    )


def _shown(desk: Desk, one: Pattern, rows: dict[str, SessionRow]) -> Shown:
    _, icon, cls, unit = KINDS[one.kind]
    ticks = int(one.data.get("ticks", 0))
    now = datetime.fromtimestamp(desk.clock(), UTC)
    proofs = [_proof(proof.uid, proof.events, proof.quote, rows, now) for proof in one.evidence]
    title = {
        "recurring_error": one.name.partition(": ")[2] or one.name,
        "costly_detour": one.text[:1].upper() + one.text[1:],
        "breaking_file": f"Tests go red after edits of {one.name.rpartition('/')[2]}",
        "flaky_test": f"Flaky: {one.name}",
    }[one.kind]
    return Shown(
        one.kind,
        icon,
        cls,
        clean(one_line(title, 160)),
        clean(one_line(one.text if one.kind != "costly_detour" else one.evidence[0].quote, 160)),
        one.count,
        unit,
        one.sessions,
        money(ticks) if ticks else "",
        proofs[0].age if proofs else "",
        [
            Help(clean(one_line(cure.what, 200)), cure.sessions, _where(cure.evidence[0]))
            for cure in one.cures
            if cure.evidence
        ],
        proofs,
    )


def _where(proof: object) -> str:
    uid, events = getattr(proof, "uid", ""), getattr(proof, "events", ())
    return f"{address(uid)}?at=e{events[0]:013x}" if events else address(uid)


def _proof(
    uid: str, events: Sequence[int], quote: str, rows: dict[str, SessionRow], now: datetime
) -> Proof:
    row = rows.get(uid)
    at = f"?at=e{events[0]:013x}" if events else ""
    name = f"e{events[0]:013x}"[:7] if events else ""
    last = time_of(row.session.ended_at) if row else None
    title = title_of(row) if row else short_id(uid.partition(":")[2])
    return Proof(f"{address(uid)}{at}", title, name, clean(one_line(quote, 160)), ago(last, now))


# -- store ----------------------------------------------------------------------------------

_ACTIONS: Final = {
    "evict": "goes",
    "drop_unanalysed": "is lost",
    "analyse": "is analysed first",
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
    skipped: list[Check]
    checks: list[Check]
    redacted: list[tuple[str, int, int]]


def store_page(desk: Desk) -> StorePage:
    """Say what is kept, and what goes next and why."""
    known = desk.store.known()
    running = set(desk.now().live)
    now = datetime.fromtimestamp(desk.clock(), UTC)
    plan = retention.plan(desk.policy, retention.inventory(known, running), now)
    total = desk.store.totals()[0]
    rows = list(desk.store.sessions())
    skipped = _skips(rows)
    checks = list(_checks(desk, known, plan))
    wrong = sum(not one.ok for one in checks) + len(skipped)
    redacted = _redacted(rows)
    here = sum(1 for one in known.sessions.values() if one.gone)
    figures = [
        ("Sessions", f"{len(known.sessions):,}", f"{here:,} only here by now"),
        ("Transcripts", size(total.raw_bytes), "rows, index and packs"),
        ("Kept for good", size(known.distilled_bytes), "digests, signals, costs"),
        (
            "Skipped",
            several(sum(row.skipped for row in rows), "line"),
            "nothing is passed over in silence",
        ),
        ("Secrets redacted", f"{sum(n for _, n, _ in redacted):,}", "before anything was stored"),
    ]
    return StorePage(
        "Healthy" if not wrong else f"{several(wrong, 'thing')} to look at",
        f"{size(total.raw_bytes)} of transcripts, {size(known.distilled_bytes)} kept for good",
        figures,
        _raw(desk),
        _distilled(desk, known.distilled_bytes),
        [_going(desk, item) for item in plan.items[:SHOWN]],
        max(len(plan.items) - SHOWN, 0),
        _planned(plan, desk.policy),
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


def _planned(plan: retention.Plan, policy: retention.Policy) -> str:
    if not plan.items:
        cap = size(policy.raw_soft_cap_bytes)
        return f"Nothing goes: transcripts take {size(plan.usage_before)}, under the cap of {cap}."
    return f"After it transcripts take {size(plan.usage_after)} of {size(plan.usage_before)}."


def _going(desk: Desk, item: retention.Planned) -> Going:
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


def _checks(desk: Desk, known: object, plan: retention.Plan) -> Iterator[Check]:
    from thence.memory.store import Inventory

    assert isinstance(known, Inventory)  # noqa: S101 - what a store gives
    late = sum(1 for one in known.sessions.values() if one.analysed is None and not one.evicted)
    yield Check(
        ok=not late,
        said="Every session has its digest" if not late else "Sessions without a digest yet",
        end=f"{late:,}" if late else f"{len(known.sessions):,}",
    )
    behind = len(known.unsettled)
    yield Check(
        ok=not behind,
        said="Sessions were compared with their kin",
        end=f"{behind} to come" if behind else "",
    )
    yield Check(ok=not known.pending, said="Evictions are in every page of the store")
    lost = len(plan.of("drop_unanalysed"))
    yield Check(
        ok=not lost, said="The plan loses nothing that has no digest", end=f"{lost}" if lost else ""
    )
    risks = len(desk.risks())
    yield Check(
        ok=not risks,
        said="Nothing that is about to be deleted is missing here",
        end="thence sweep" if risks else "",
    )
    open_to = _open_to_others(desk)
    yield Check(
        ok=not open_to,
        said="Only you can read what is kept" if not open_to else "Others can read the store",
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
