"""The retention policy carried out on a store: planned, digested where that saves, removed.

`retention` decides, from an inventory and nothing else; this asks it with what is there now, until
it wants nothing digested first. A sweep and `thence gc` both run it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from thence.agents import Adapter
from thence.memory import retention
from thence.memory.retention import PlannedRemoval, Policy, RetentionPlan
from thence.memory.session_sources import only_copies
from thence.memory.store import Inventory, Store


class Removed(NamedTuple):
    """What went, and why."""

    evicted: dict[str, str]
    lost: dict[str, str]
    """Without a digest."""
    pending: list[str]
    """Sessions of which some page may still hold words."""
    only_copies: int
    """How many of the evicted ones no source holds any more."""


def running_sessions(
    adapters: Mapping[str, Adapter], roots: Mapping[str, Sequence[Path]]
) -> set[str]:
    """Return the sessions that their agents call running."""
    return {
        f"{name}:{live.session}"
        for name, places in roots.items()
        for place in places
        for live in adapters[name].live(place)
    }


class RetentionRun:
    """One run of the policy."""

    def __init__(
        self,
        store: Store,
        policy: Policy,
        *,
        running: Callable[[], set[str]],
        analyse: Callable[[Sequence[str]], set[str]],
        may_evict_by_age: Callable[[RetentionPlan], bool] = lambda _planned: True,
    ) -> None:
        """Get ready; `analyse` digests sessions and returns those for which that failed."""
        self._store = store
        self._policy = policy
        self._ask_running = running
        self._analyse = analyse
        self._may_evict_by_age = may_evict_by_age
        self._running: set[str] | None = None
        self._only_copies: frozenset[str] = frozenset()
        self._failed: set[str] = set()

    def plan(self, known: Inventory | None = None) -> RetentionPlan:
        """Plan for what is there now."""
        known = known or self._store.known()
        planned = self._plan(known)
        if planned.items and self._running is None:
            # Asked only now: it takes a look at every process and file, and most runs remove none.
            self._running = self._ask_running()
            self._only_copies = only_copies(known)
            planned = self._plan(known)
        return planned

    def _plan(self, known: Inventory) -> RetentionPlan:
        stock = retention.inventory(known, self._running or (), self._failed, self._only_copies)
        return retention.plan(self._policy, stock, datetime.now(UTC))

    def plan_finally(self, known: Inventory | None = None) -> RetentionPlan:
        """Digest what the plan wants digested first, and plan again until it wants no more."""
        planned = self.plan(known)
        while planned.by_age or planned.again:
            if planned.by_age and not self._may_evict_by_age(planned):
                self._policy = msgspec.structs.replace(self._policy, raw_max_age_days=0)
            elif planned.again:
                wanted = [item.session_uid or "" for item in planned.of("analyse")]
                self._failed |= self._analyse(wanted)
            else:
                break
            planned = self.plan()
        return planned

    def carry_out(self, planned: RetentionPlan) -> Removed:
        """Remove what a plan names: first what has a digest."""
        evicted, lost = _reasons(planned.of("evict")), _reasons(planned.of("drop_unanalysed"))
        pending: list[str] = []
        for why, is_lost in ((evicted, False), (lost, True)):
            if why:
                pending += self._store.remove(list(why), why=why, lost=is_lost)
        return Removed(evicted, lost, pending, len(self._only_copies & evicted.keys()))


def _reasons(items: Sequence[PlannedRemoval]) -> dict[str, str]:
    return {item.session_uid: item.reason for item in items if item.session_uid}
