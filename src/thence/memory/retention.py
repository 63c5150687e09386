"""Which raw sessions go, and why. Pure: it plans, and deletes nothing.

Raw transcripts are bulky and can be read again; what was learned from them is small and kept. So
the raw cache is bounded and the distilled memory is not. `plan` takes five steps, in this order:

1. add up what the cache holds;
2. evict what was analysed, is older than the limit of age, and can be read from its source again;
3. over the soft cap: evict the analysed, the oldest analysis first, until under it; what is the
   only copy of its session comes last;
4. over the hard cap, nothing analysed being left: analyse now. Only when that has been tried on
   all and is still not enough, drop the oldest un-analysed, until under the hard cap;
5. over the distilled cap: alert, and drop nothing.

Promises, each a property that is tested: no session goes before a digest covers all of it, but on
the last path of step 4, where each is a data loss that is to be reported; never more goes than is
needed; age never takes the only copy of a session; what the user keeps is never touched; the order
of the inventory does not matter. Every item says why, with the numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from thence.format.figures import size, size_limit

if TYPE_CHECKING:
    from thence.memory import store

GIB: Final = 1 << 30
BY_AGE: Final = 2
"""The step that evicts by age."""
_NEVER = datetime.min.replace(tzinfo=UTC)

Action = Literal["evict", "analyse", "drop_unanalysed", "alert"]


class Policy(msgspec.Struct, frozen=True):
    """How much is kept; the knobs of the configuration, under their names."""

    raw_soft_cap_bytes: int = 4 * GIB
    raw_hard_cap_bytes: int = 6 * GIB
    raw_max_age_days: int = 45
    """Age from which goes what its source can give again, whatever the space; 0 means never."""
    distilled_cap_bytes: int = 1 * GIB
    cadence: Literal["daily", "weekly", "on-hook"] = "daily"


def rule(policy: Policy) -> str:
    """Return in words what goes when; the same wherever it is told."""
    days, soft = policy.raw_max_age_days, size_limit(policy.raw_soft_cap_bytes)
    by_size = f"until all transcripts exceed {soft}"
    if days <= 0:
        return f"Transcripts are stored {by_size}; digests (short summaries) are never removed."
    return (
        f"Transcripts are removed after {days} days if the original log still exists. The only copy"
        f" of a session is stored {by_size}, and is removed last. Digests (short summaries) are"
        " never removed."
    )


def brief_rule(policy: Policy) -> str:
    """Return the rule in one line, for screens that are seen every day."""
    if policy.raw_max_age_days <= 0:
        limit = size_limit(policy.raw_soft_cap_bytes)
        return f"Transcripts stay until they exceed {limit}. Digests (summaries) stay."
    days = f"{policy.raw_max_age_days} days"
    return f"Transcripts stay {days}, longer if their log is gone; digests (summaries) stay."


class RetentionItem(msgspec.Struct, frozen=True):
    """One session in the raw cache. Times are aware; `bytes` is what the cache recorded for it."""

    session_uid: str
    bytes: int
    last_event: datetime | None = None
    ingested_at: datetime | None = None
    analyzed_at: datetime | None = None
    pinned: bool = False
    """`thence store pin`: never touched."""
    running: bool = False
    """Still being written: it would come straight back, so it is the last to go."""
    only_copy: bool = False
    """Its source is gone or holds less: what goes cannot be read again."""
    analysis_failed: bool = False
    """Analyse-now was tried on it as it is, and failed."""

    @property
    def analysed(self) -> bool:
        """Whether a digest tells all there is to tell, so that the raw bytes may go."""
        return self.analyzed_at is not None

    @property
    def age_from(self) -> datetime:
        """The moment its age counts from: the later of its last event and its analysis."""
        return max(self.analyzed_at or _NEVER, self.newest)

    @property
    def newest(self) -> datetime:
        """The time of its last event; of its reading, where no event has a time."""
        return self.last_event or self.ingested_at or _NEVER


class RetentionInventory(msgspec.Struct, frozen=True):
    """What is in the store: the sessions of the raw cache, and the size of the distilled tier."""

    items: tuple[RetentionItem, ...] = ()
    distilled_bytes: int = 0


class PlannedRemoval(msgspec.Struct, frozen=True):
    """One thing to do, by which step, and why. An alert may be about no session."""

    action: Action
    step: int
    reason: str
    session_uid: str | None = None
    bytes: int = 0


class RetentionPlan(msgspec.Struct, frozen=True):
    """What to do, in order, and the sizes it was made from and leads to.

    Where it asks to analyse, plan again afterwards, with `analysis_failed` set on what could not
    be: only such a plan may drop what was not analysed.
    """

    items: tuple[PlannedRemoval, ...]
    usage_before: int
    usage_after: int

    def of(self, action: Action) -> list[PlannedRemoval]:
        """The items with one action, in order."""
        return [item for item in self.items if item.action == action]

    @property
    def by_age(self) -> list[PlannedRemoval]:
        """The items that go because of their age."""
        return [item for item in self.items if item.action == "evict" and item.step == BY_AGE]

    @property
    def again(self) -> bool:
        """Whether to plan again when this is done."""
        return any(item.action == "analyse" for item in self.items)


def inventory(
    known: store.Inventory,
    running: Collection[str] = (),
    failed: Collection[str] = (),
    only_copies: Collection[str] = (),
) -> RetentionInventory:
    """Return what a store holds as the planner wants it; see `session_sources.only_copies`."""
    items = tuple(
        RetentionItem(
            uid,
            entry.bytes,
            last_event=_moment(entry.ended),
            ingested_at=_moment(entry.ingested),
            analyzed_at=_moment(entry.analysed),
            pinned=entry.pinned,
            running=uid in running,
            only_copy=entry.gone or uid in only_copies,
            analysis_failed=uid in failed,
        )
        for uid, entry in known.sessions.items()
        if entry.evicted is None
    )
    return RetentionInventory(items, known.distilled_bytes)


def _moment(millis: int | None) -> datetime | None:
    return None if millis is None else datetime.fromtimestamp(millis / 1000, UTC)


def plan(policy: Policy, inventory: RetentionInventory, now: datetime) -> RetentionPlan:
    """Decide what goes; the same for the same sessions in any order."""
    return _Planner(policy, inventory, now).run()


class _Planner:
    """One run through the five steps: what is left of the inventory, and what was decided."""

    def __init__(self, policy: Policy, inventory: RetentionInventory, now: datetime) -> None:
        self._policy = policy
        # A soft cap above the hard one is no reason to hold more than the hard one.
        self._soft = min(policy.raw_soft_cap_bytes, policy.raw_hard_cap_bytes)
        self._hard = policy.raw_hard_cap_bytes
        self._distilled = inventory.distilled_bytes
        self._now = now
        self._left = {item.session_uid: item for item in inventory.items}
        self._usage = sum(item.bytes for item in self._left.values())
        self._planned: list[PlannedRemoval] = []

    def run(self) -> RetentionPlan:
        before = self._usage
        self._age()
        self._budget()
        self._overflow()
        self._guard()
        return RetentionPlan(tuple(self._planned), before, self._usage)

    def _age(self) -> None:
        days = self._policy.raw_max_age_days
        if days <= 0:
            return
        ages = {
            item.session_uid: (self._now - item.age_from) / timedelta(days=1)
            for item in self._left.values()
        }
        old = [item for item in self._left.values() if ages[item.session_uid] > days]
        for item in _removable(old):
            if not item.running and not item.only_copy:
                age = ages[item.session_uid]
                over = f"over the limit of {days} days"
                why = f"analysed, {age:.1f} days old: {over}; the original log still exists"
                self._remove("evict", BY_AGE, item, why)

    def _budget(self) -> None:
        if self._usage <= self._soft:
            return
        for item in _removable(self._left.values()):
            if self._usage <= self._soft:
                return
            if item.bytes > 0:
                self._remove(
                    "evict", 3, item, f"{self._over('storage limit', self._soft)}; {_since(item)}"
                )

    def _overflow(self) -> None:
        if self._usage <= self._hard:
            return
        raw = sorted(
            (item for item in self._left.values() if not item.pinned and item.bytes > 0),
            key=lambda item: (item.only_copy, item.running, item.newest, item.session_uid),
        )
        untried = [item for item in raw if not item.analysis_failed]
        if untried:
            self._analyse(untried)
            return
        for item in raw:
            if self._usage <= self._hard:
                return
            over = self._over("maximum", self._hard)
            why = f"{over}, and analysis failed; no digest is left: data loss"
            self._remove("drop_unanalysed", 4, item, why)
        if self._usage > self._hard:
            pinned = sum(item.pinned for item in self._left.values())
            self._alert(
                4, f"{self._over('maximum', self._hard)}, all of it in {pinned} pinned sessions"
            )

    def _analyse(self, untried: Iterable[RetentionItem]) -> None:
        """Ask for as much as would bring the cache under the soft cap once it can be evicted."""
        hoped = self._usage
        for item in untried:
            if hoped <= self._soft:
                return
            over = self._over("maximum", self._hard)
            why = f"{over}; analysing {size(item.bytes)} allows removing it"
            self._planned.append(PlannedRemoval("analyse", 4, why, item.session_uid, item.bytes))
            hoped -= item.bytes

    def _guard(self) -> None:
        cap = self._policy.distilled_cap_bytes
        if self._distilled > cap:
            usage = f"digests use {size(self._distilled, cap)}"
            self._alert(
                5,
                f"{usage}, over the limit of {size_limit(cap)}; digests are never removed",
            )

    def _remove(self, action: Action, step: int, item: RetentionItem, why: str) -> None:
        self._planned.append(PlannedRemoval(action, step, why, item.session_uid, item.bytes))
        self._usage -= item.bytes
        del self._left[item.session_uid]

    def _alert(self, step: int, why: str) -> None:
        self._planned.append(PlannedRemoval("alert", step, why))

    def _over(self, name: str, cap: int) -> str:
        usage, by = (size(count, cap) for count in (self._usage, self._usage - cap))
        return f"transcripts use {usage}, {by} over the {name} of {size_limit(cap)}"


def _removable(items: Iterable[RetentionItem]) -> list[RetentionItem]:
    """Return those that may go though they are needed: only copies last, then running ones."""
    return sorted(
        (item for item in items if item.analysed and not item.pinned),
        key=lambda i: (
            *(i.only_copy, i.running),
            *(i.analyzed_at or _NEVER, i.newest, i.session_uid),
        ),
    )


def _since(item: RetentionItem) -> str:
    when = item.analyzed_at or _NEVER
    order = "oldest first" if not item.running else "running, no finished session is left"
    last = "; the only copy, its original log is gone" if item.only_copy else ""
    return f"{order}, analysed {when:%Y-%m-%d}, frees {size(item.bytes)}{last}"
