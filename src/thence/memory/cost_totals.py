"""What sessions took, added up by one thing: money, tokens, and why a sum is a lower bound."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, tzinfo
from pathlib import PurePath
from typing import Final, Literal

import msgspec

from thence.format.figures import TICKS, clean, several
from thence.format.records import JSON
from thence.memory import prices
from thence.memory.labels import Label, add_labels
from thence.memory.local_days import LocalDays, Period, period_start
from thence.memory.pricelist import SHIPPED
from thence.memory.pull_requests import pulls_by_session
from thence.memory.store import Filter, Group, SessionRow, Store, Total

By = Literal["day", "week", "month", "model", "project", "agent", "session", "branch", "pr", "tag"]
"""A week is named by its Monday, a month by its first day. A branch is one of a repository; a
session with several tags or pull requests counts for each of them."""
PERIODS: Final[tuple[Period, ...]] = ("day", "week", "month")


class CostTable:
    """What was spent, by one thing: periods in their order, all else by money."""

    def __init__(
        self,
        store: Store,
        by: By,
        wanted: Filter,
        zone: tzinfo | None = None,
        labels: Mapping[str, Label] | None = None,
    ) -> None:
        """Add up; days are those of a zone, this machine's if it is None.

        Tags are those of the `labels` that sessions have.
        """
        self.by = by
        if by == "day" or by == "week" or by == "month":  # noqa: PLR1714 - so that mypy knows
            totals = totals_by_day(store, wanted, zone, period=by)
        elif by == "branch":
            totals = _totals_by(store, wanted, _branches, store.sessions(wanted))
        elif by == "pr":
            rows = list(store.sessions(wanted))
            pulls = pulls_by_session(rows, store.read_table("digests", wanted))
            totals = _totals_by(store, wanted, pulls, rows)
        elif by == "tag":
            tagged = add_labels(list(store.sessions(wanted)), labels or {})
            totals = _totals_by(store, wanted, _tags, tagged)
        else:
            totals = store.totals([by], wanted)
        self.parts = [total for total in totals if total.responses or total.unpriced]
        self.parts.sort(key=lambda total: total.key[0] or "" if by in PERIODS else -total.ticks)
        self.total = store.totals((), wanted)[0]
        bounded = msgspec.structs.replace(wanted, is_lower_bound=True)
        self.bounds = list(store.sessions(bounded)) if self.total.is_lower_bound else []
        self.unpriced = _unpriced_models(store, wanted) if self.total.unpriced else []

    @property
    def bound_note(self) -> str:
        """In how many sessions usage is missing, and what most of them lack; empty for none."""
        reasons = Counter(why for row in self.bounds for why in row.lower_bound)
        most = "".join(why for why, _ in reasons.most_common(1))
        what = several(len(self.bounds), "session")
        return f"{what} with missing or incomplete usage ({clean(most)})" if most else ""

    def object(self) -> dict[str, JSON]:
        """Return the table as an object, in dollars and tokens."""
        return {
            "by": self.by,
            "parts": [{"key": total.key[0], **sums(total)} for total in self.parts],
            "total": sums(self.total),
            "unpriced": [msgspec.to_builtins(part) for part in self.unpriced],
            "lower_bounds": [
                {"session_uid": row.session.session_uid, "why": list(row.lower_bound)}
                for row in self.bounds
            ],
        }


def totals_by_day(
    store: Store,
    wanted: Filter,
    zone: tzinfo | None,
    *,
    by_agent: bool = False,
    period: Period = "day",
) -> list[Total]:
    """Return what was spent on each day of a zone, or in each period, and by agent if asked.

    Days come first in a key; a period is named by its first day.
    """
    groups: list[Group] = ["slot", "session", *(["agent"] if by_agent else [])]  # type: ignore[list-item] # all are groups
    days = LocalDays(zone)
    periods: dict[str, str] = {}
    parts: dict[tuple[str | None, ...], list[Total]] = {}
    for total in store.totals(groups, wanted):
        day = days.day(total.key[0] or "")
        if day not in periods:
            periods[day] = _period_start(day, period)
        parts.setdefault((periods[day], *total.key[2:]), []).append(total)
    return [
        sum_totals(some, key, sessions=len({total.key[1] for total in some}))
        for key, some in parts.items()
    ]


def _period_start(day: str, period: Period) -> str:
    """Return the first day of the period that a day is in; what is no day stays."""
    with contextlib.suppress(ValueError):
        return period_start(date.fromisoformat(day), period).isoformat()
    return day


def _branches(row: SessionRow) -> Iterable[str | None]:
    """Return the branch of a session, with the repository that it is one of."""
    session = row.session
    place = PurePath(session.cwd).name if session.cwd else ""
    return [f"{place}:{session.git_branch}" if session.git_branch else None]


def _tags(row: SessionRow) -> Iterable[str | None]:
    return row.tags or [None]


def _totals_by(
    store: Store,
    wanted: Filter,
    keys_of: Callable[[SessionRow], Iterable[str | None]],
    rows: Iterable[SessionRow],
) -> list[Total]:
    """Return what was spent, by keys that the rows of sessions have and stores do not group by."""
    totals = {total.key[0]: total for total in store.totals(["session"], wanted)}
    groups: dict[str | None, list[Total]] = {}
    for row in rows:
        if (total := totals.get(row.session.session_uid)) is not None:
            for key in keys_of(row):
                groups.setdefault(key, []).append(total)
    return [sum_totals(some, (key,)) for key, some in groups.items()]


def sum_totals(
    totals: Sequence[Total], key: tuple[str | None, ...] = (), *, sessions: int | None = None
) -> Total:
    """Return totals as one; `sessions` says of how many, where some count in several of them."""
    live = dead = side = unpriced = count = inputs = outputs = cache = responses = 0
    is_bound = False
    for total in totals:  # attribute by attribute: a page of costs adds up tens of thousands
        count += total.sessions
        live += total.live
        dead += total.dead
        side += total.side
        unpriced += total.unpriced
        inputs += total.input
        outputs += total.output
        cache += total.cache
        responses += total.responses
        is_bound = is_bound or total.is_lower_bound
    number = count if sessions is None else sessions
    sums = (live, dead, side, unpriced, inputs, outputs, cache, responses)
    return Total(key, number, *sums, is_bound)


class Unpriced(msgspec.Struct, frozen=True):
    """Tokens of one model that have no known price."""

    model: str
    tokens: int
    why: str

    def __str__(self) -> str:
        return f"{self.tokens:,} tokens of {self.model or 'an unnamed model'} ({self.why})"


def _unpriced_models(store: Store, wanted: Filter) -> list[Unpriced]:
    """Return the models some of whose tokens have no known price, the most tokens first."""
    parts = [total for total in store.totals(["model"], wanted) if total.unpriced]
    parts.sort(key=lambda total: -total.unpriced)
    return [Unpriced(total.key[0] or "", total.unpriced, _why(total)) for total in parts]


def _why(total: Total) -> str:
    """Return why some responses have no price; others of the same model may have one."""
    if total.key[0] and prices.is_listed(SHIPPED, total.key[0]):
        return "price unknown for this tier or prompt length"
    if total.ticks:
        return "their responses have no cost in the log, and the model no list price"
    return "no price known for this model"


def sums(total: Total) -> dict[str, JSON]:
    """Return a total in dollars and tokens; what has no known price is not guessed."""
    return {
        "sessions": total.sessions,
        "responses": total.responses,
        "usd": None if total.unpriced and not total.ticks else total.ticks / TICKS,
        "live_usd": total.live / TICKS,
        "dead_usd": total.dead / TICKS,
        "subagents_usd": total.side / TICKS,
        "unpriced_tokens": total.unpriced,
        "is_lower_bound": total.is_minimum,
        "tokens": {"input": total.input, "output": total.output, "cache": total.cache},
    }


def with_dollars(value: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return a value in which `usd` stands beside all `ticks`, which are 1e-10 dollars each."""
    plain: dict[str, JSON] = msgspec.to_builtins(value)
    todo: list[JSON] = [plain]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            ticks = node.get("ticks")
            if isinstance(ticks, int) and not isinstance(ticks, bool):
                node["usd"] = ticks / TICKS
            todo += node.values()
        elif isinstance(node, list):
            todo += node
    return plain
