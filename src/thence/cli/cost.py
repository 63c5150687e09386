"""`thence cost`: what sessions took, and what of it discarded branches and subagents took.

A parent's money never holds its children's: subagents stand in a column of their own. What has no
known price is not guessed, and makes a sum a lower bound; so does a bill that was never written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import click

from thence.cli import options, wiring
from thence.cli.columns import (
    DIM,
    NARROW,
    WIDE,
    TextCell,
    money,
    present,
    project,
    short_ids,
    table,
)
from thence.cli.terminal import answer, clean, cut, several, short, width, wrap

if TYPE_CHECKING:
    from thence.memory.cost_totals import CostTable
    from thence.memory.store import SessionRow, Store, Total

By = Literal["day", "week", "month", "model", "project", "agent", "session", "branch", "pr", "tag"]
DEFAULT_ROWS = 30
BUDGET_USED_UP = 2  # agents read it as "stop, and show this to the user"
"""The exit code by which agents take it that a hook stops them."""
_UNPRICED_SHOWN = 3
PERIODS = ("day", "week", "month")
"""Shown in their order, the latest last; all else is sorted by money."""


@click.command("cost")
@click.option("--by", type=click.Choice(get_args(By)), default="day", show_default=True)
@options.agent
@options.project
@options.model
@options.since
@options.tz
@options.rows(DEFAULT_ROWS)
@click.option(
    "--check",
    is_flag=True,
    help="Exit with 2 if today's budget, of all or of this folder, is used up. For a hook that"
    " stops an agent.",
)
@options.as_json
def command(
    *,
    by: By,
    agent: str | None,
    project: str | None,
    model: str | None,
    since: str | None,
    tz: str | None,
    number: int,
    check: bool,
    json: bool,
) -> int:
    """Print what was spent, by days of the terminal's zone."""
    if check:
        return _check_budgets()
    from thence.memory.cost_totals import CostTable
    from thence.memory.local_days import zone_label, zone_named
    from thence.memory.search import moment
    from thence.memory.store import Filter

    zone = zone_named(tz)
    label = zone_label(zone, present())
    wanted = Filter(
        agent=agent, project=project, model=model, after=moment(since, zone) if since else None
    )
    with wiring.store() as store:
        bill = CostTable(store, by, wanted, zone, wiring.labels())
        return answer(
            lambda: {**bill.object(), "tz": label},
            lambda: CostLines(store, bill, label).lines(width(), number),
            json=json,
        )


def _check_budgets() -> int:
    """Say on stderr which budgets are used up, and return 2; 0 and nothing where none is."""
    from thence.memory.budgets import budget_warnings
    from thence.memory.projects import repository_of

    if not wiring.has_budgets() or not wiring.has_store():
        return 0
    with wiring.store() as store:
        uses = [use for use in wiring.budget_uses(store, present()) if use.is_used_up]
    warnings = budget_warnings(uses, str(repository_of(Path.cwd())))
    for warning in warnings:
        click.echo(clean(warning), err=True)
    return BUDGET_USED_UP if warnings else 0


class CostLines:
    """What was spent, by one thing, on a terminal."""

    def __init__(self, store: Store, bill: CostTable, zone: str) -> None:
        from thence.memory.recall import shown_rows

        self.by = bill.by
        self._head = f"{bill.by}, {zone}" if bill.by in PERIODS else bill.by
        self.parts = bill.parts
        self.total = bill.total
        self._bound_note = bill.bound_note
        self.unpriced = bill.unpriced
        self._rows: dict[str, SessionRow] = {}
        self._ids: dict[str, str] = {}
        if self.by == "session":
            uids = tuple(f"{part.key[0]}" for part in self.parts)
            self._rows = shown_rows(store, uids, wiring.labels())
            self._ids = short_ids([uid.partition(":")[2] for uid in uids])

    def lines(self, room: int, number: int) -> Iterator[str]:
        """Yield it as a table, the sum first."""
        total = self.total
        if not self.parts:
            yield "no cost data for these sessions"
            return
        of = f"{total.cost_text} in {several(total.sessions, 'session')}"
        parts = [of]
        if total.dead:
            share = f" ({total.dead / total.ticks:.0%})" if total.ticks else ""
            parts.append(f"{money(total.dead)}{share.replace('%', ' %')} on discarded branches")
        if total.side:
            parts.append(f"{money(total.side)} by subagents")
        yield cut(", ".join(parts), room)
        yield ""
        wide = room >= WIDE
        shown = self.parts[-number:] if self.by in PERIODS else self.parts[:number]
        rows = [self._heads(wide=wide), *(self._cells(total, wide=wide) for total in shown)]
        if room < NARROW:
            yield from table("<~>>>>", [[*row[:2], *row[3:]] for row in rows], room)
        else:
            yield from table("<~>>>>>>>>" if wide else "<~>>>>>", rows, room)
        if len(shown) < len(self.parts):
            yield f"    and {len(self.parts) - len(shown):,} more: -n {len(self.parts)}"
        yield from self._bounds(room)

    def _heads(self, *, wide: bool) -> list[TextCell]:
        heads = ["", clean(self._head), "sessions", "live", "discarded", "subagents", "all"]
        if wide:
            heads[3:3] = ["in", "cached", "out"]
        return [TextCell(head, DIM) for head in heads]

    def _cells(self, total: Total, *, wide: bool) -> list[TextCell]:
        tokens = (
            [TextCell(short(n), DIM) for n in (total.input, total.cache, total.output)]
            if wide
            else []
        )
        unknown = total.unpriced and not total.ticks
        live = money(total.live, total.unpriced, is_bound=total.is_lower_bound)
        return [
            TextCell("▲", "yellow") if total.is_minimum else TextCell(" "),
            TextCell(self._name(total.key[0])),
            TextCell(f"{total.sessions:,}"),
            *tokens,
            TextCell("unknown" if unknown else live),
            TextCell(money(total.dead) if total.dead else "·", DIM),
            TextCell(
                money(total.side) if total.side else "·", "bright_magenta" if total.side else DIM
            ),
            TextCell("unknown" if unknown else total.cost_text),
        ]

    def _name(self, key: str | None) -> str:
        if not key:
            return {"tag": "untagged", "pr": "no pull request"}.get(self.by, "unknown")
        if self.by == "project":
            return project(key) or clean(key)
        if self.by != "session":
            return clean(key)
        row = self._rows.get(key)
        title = clean(" ".join(((row.title if row else None) or "").split()))
        return f"{self._ids[key.partition(':')[2]]}  {title}"

    def _bounds(self, room: int) -> Iterator[str]:
        """Say why the sums are lower bounds, where they are."""
        if self.total.unpriced:
            for part in self.unpriced[:_UNPRICED_SHOWN]:
                yield from _wrap(f"▲ not included: {clean(str(part))}", room)
            if (more := len(self.unpriced) - _UNPRICED_SHOWN) > 0:
                yield from _wrap(f"▲ and {several(more, 'more model')}, see --json", room)
        if self._bound_note:
            yield from _wrap(f"▲ at least: {self._bound_note}", room)


def _wrap(text: str, room: int) -> Iterator[str]:
    """Say a sentence behind its mark, on as many lines as it takes."""
    mark, _, words = text.partition(" ")
    for at, line in enumerate(wrap(words, room - 2)):
        yield f"{' ' if at else mark} {line}"
