"""Budgets: what may be spent on a day, in all and in single projects, and how much of it is used.

They are warnings; only a hook that somebody adds stops an agent (`thence cost --check`). Money is
what bills say and price lists know, so that a sum with unpriced tokens is a lower bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path, PurePath
from typing import Final

import msgspec

from thence.format.figures import TICKS, clean, money
from thence.memory.local_days import local_date, midnight, millis
from thence.memory.store import Filter, Store, Total

WARNING_SHARE: Final = 0.8
"""Share of a budget from which on it is worth a warning."""


class Budgets(msgspec.Struct, frozen=True):
    """What may be spent on a day, in dollars."""

    daily_usd: float | None = None
    projects: dict[str, float] = {}
    """By folder; `~` is the home of the user."""


class BudgetUse(msgspec.Struct, frozen=True):
    """One budget, and what was spent of it today."""

    project: str | None
    """The folder that it is for; None for the budget of all."""
    budget_usd: float
    spent_usd: float
    is_lower_bound: bool = False

    @property
    def is_used_up(self) -> bool:
        """Whether nothing of it is left."""
        return self.spent_usd >= self.budget_usd

    @property
    def warning(self) -> str:
        """What is to be said of it; empty while much of it is left."""
        if self.spent_usd < WARNING_SHARE * self.budget_usd:
            return ""
        where = f" for {clean(PurePath(self.project).name)}" if self.project is not None else ""
        spent = money(round(self.spent_usd * TICKS), is_bound=self.is_lower_bound)
        of = f"{spent} of {money(round(self.budget_usd * TICKS))}"
        if self.is_used_up:
            return f"Today's budget{where} is used up: {of}"
        share = f"{self.spent_usd / self.budget_usd:.0%}".replace("%", " %")
        return f"{share} of today's budget{where} is used: {of}"


def budget_uses(store: Store, budgets: Budgets, now: datetime) -> list[BudgetUse]:
    """Return all budgets with what was spent of them on the day of `now`, in its zone.

    A folder has the money of all folders below it.
    """
    if budgets.daily_usd is None and not budgets.projects:
        return []
    zone, today = now.tzinfo, now.date()
    spent: dict[str, list[Total]] = {}
    wanted = Filter(after=millis(midnight(today, zone)))
    for total in store.totals(["slot", "project"], wanted):
        slot, folder = total.key
        if local_date(slot or "", zone) == today.isoformat():
            spent.setdefault(folder or "", []).append(total)
    uses = [] if budgets.daily_usd is None else [_use(None, budgets.daily_usd, spent)]
    for name, usd in sorted(budgets.projects.items()):
        root = str(Path(name).expanduser())
        below = {folder: sums for folder, sums in spent.items() if is_below(folder, root)}
        uses.append(_use(root, usd, below))
    return uses


def is_below(folder: str, root: str) -> bool:
    """Return whether a folder is another one or lies in it."""
    return folder == root or folder.startswith(root.rstrip("/") + "/")


def budget_warnings(uses: list[BudgetUse], project: str | None = None) -> list[str]:
    """Return what is to be said of budgets: of all, or of those that a project counts for."""
    return [
        use.warning
        for use in uses
        if use.warning
        and (project is None or use.project is None or is_below(project, use.project))
    ]


def _use(project: str | None, usd: float, spent: Mapping[str, list[Total]]) -> BudgetUse:
    totals = [total for some in spent.values() for total in some]
    is_bound = any(total.is_minimum for total in totals)
    return BudgetUse(project, usd, sum(total.ticks for total in totals) / TICKS, is_bound)
