"""`thence ls`: the sessions that are kept, the newest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

import click
import msgspec

from thence.cli import options, wiring
from thence.cli.columns import (
    DIM,
    MACHINE_COLUMNS,
    NARROW,
    TITLE_COLUMNS,
    WIDE,
    TextCell,
    TextColumn,
    agent_label,
    ago,
    mark_legend,
    money,
    present,
    project,
    row_cost,
    short_ids,
    table,
    title_text,
    when,
)
from thence.cli.terminal import answer, clean, cut, justify, several, style, width
from thence.cli.unread_lines import risk_lines

if TYPE_CHECKING:
    from thence.format.records import JSON
    from thence.memory.labels import Label
    from thence.memory.session_status import Now, Risk, Standing
    from thence.memory.store import Filter, SessionRow, Store, Total

Sort = Literal["recent", "oldest", "cost", "tokens", "size"]
Outcome = Literal["success", "fail", "abandoned", "waiting", "unknown", "running"]
DEFAULT_ROWS = 20


class OutcomeName(click.Choice[str]):
    """An outcome by the name that people read; the stored names are understood as well."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the stored outcome that a word means."""
        from thence.memory.search import OUTCOME_NAMES, OUTCOME_WORDS

        stored = OUTCOME_WORDS.get(str(value).lower(), str(value))
        super().convert(OUTCOME_NAMES.get(stored, stored), param, ctx)
        return stored


_STANDING: dict[Standing, tuple[str, str]] = {
    "waiting": ("◆", "yellow"),
    "running": ("●", "cyan"),
    "idle": ("●", DIM),
}
_OUTCOMES = {"success": ("✓", "green"), "fail": ("✗", "red")}


@click.command(
    "ls",
    epilog="Marks: ✓ done, ✗ failed, ◆ needs you, ● running or unfinished, ○ abandoned or unclear."
    " Costs: $1.20+ at least, ? unknown.",
)
@options.agent
@options.project
@options.model
@options.since
@options.tag
@click.option(
    "--outcome",
    type=OutcomeName(["done", "failed", "abandoned", "waiting", "unclear", "running"]),
    help="Only sessions with this outcome.",
)
@click.option("--running", is_flag=True, help="Only sessions that are running or need you now.")
@click.option(
    "--at-risk",
    is_flag=True,
    help="Only sessions that their agent deletes soon and that are not stored.",
)
@click.option("--tree", is_flag=True, help="Show forks and subagents below their parents.")
@click.option(
    "--sort",
    type=click.Choice(get_args(Sort)),
    default="recent",
    show_default=True,
    help="Sort order.",
)
@options.rows(DEFAULT_ROWS)
@options.view("--todos", "List open to-dos instead.")
@options.utc
@options.as_json
def command(
    *,
    agent: str | None,
    project: str | None,
    model: str | None,
    since: str | None,
    tag: str | None,
    outcome: Outcome | None,
    sort: Sort,
    number: int,
    running: bool,
    at_risk: bool,
    tree: bool,
    utc: bool,
    json: bool,
) -> int:
    """Print the sessions that are wanted."""
    from thence.memory.labels import tagged_uids
    from thence.memory.search import moment
    from thence.memory.store import Filter

    labels = wiring.labels()
    wanted = Filter(
        uids=tuple(tagged_uids(labels, tag)) if tag is not None else None,
        agent=agent,
        project=project,
        model=model,
        outcome=outcome,
        after=moment(since) if since else None,
        order=sort,
        limit=number,
    )
    if outcome == "running":  # never stored: it holds only while somebody looks
        wanted, running = msgspec.structs.replace(wanted, outcome=None), True
    with wiring.store() as store:
        if at_risk:
            return _at_risk(store, wanted, json=json)
        listing = Listing(store, wanted, wiring.status(), present(utc=utc), labels, running=running)
        lines = listing.lines(width(), tree=tree)
        return answer(lambda: [listing.object(row) for row in listing.rows], lines, json=json)


class Listing:
    """Some sessions, and what is to be said of them together."""

    def __init__(
        self,
        store: Store,
        wanted: Filter,
        now: Now,
        at: datetime,
        labels: Mapping[str, Label],
        *,
        running: bool = False,
    ) -> None:
        self.now = now
        self.at = at
        self._wanted = wanted
        self._running = running
        if running:
            from thence.memory.session_status import open_sessions

            self.rows = open_sessions(store, wanted, now, at.timestamp(), labels)
        else:
            from thence.memory.recall import with_lineage

            self.rows = with_lineage(store, list(store.sessions(wanted)), labels)
        self._ids = short_ids([row.session.native_session_id for row in self.rows])
        self._has_machines = any(row.machine is not None for row in self.rows)
        self.total = _total(store, wanted, self.rows if running else None)

    def object(self, row: SessionRow) -> JSON:
        """Return a session as others read it: its fields, and what a list shows besides."""
        from thence.memory.session_status import session_object

        return session_object(row, self.now.of(row, self.at.timestamp()))

    # -- text ---------------------------------------------------------------------------

    def lines(self, room: int, *, tree: bool = False) -> Iterator[str]:
        """Yield the list as text, the sums last."""
        from thence.memory.ancestry import nest_by_ancestry

        rows = nest_by_ancestry(self.rows) if tree else [(row, 0) for row in self.rows]
        if room < NARROW:
            yield from self._narrow(rows, room)
        else:
            wide = room >= WIDE
            cells = [self._cells(row, depth, wide=wide) for row, depth in rows]
            columns_of: Sequence[TextColumn] = _WIDE if wide else _USUAL
            if self._has_machines:
                columns_of = (*_START, _MACHINE, *columns_of[len(_START) :])
            yield from table(columns_of, cells, room, head=wide and bool(rows))
        yield self._sums(room)
        costs = [row_cost(row) for row in self.rows]
        costs.append(self.total.cost_text)
        if self.rows and (legend := mark_legend(costs)):
            yield style(cut(legend, room), fg=DIM)

    def _cells(self, row: SessionRow, depth: int, *, wide: bool) -> list[TextCell]:
        session = row.session
        step = "  " * (depth - 1) + "└ " if depth else ""
        name = step + self._ids[session.native_session_id]
        first = [
            self._mark(row),
            TextCell(name, DIM),
            TextCell(agent_label(session.flavor)),
            TextCell(ago(when(session.ended_at), self.at), DIM),
        ]
        if self._has_machines:
            first.append(TextCell(cut(clean(row.machine or ""), MACHINE_COLUMNS)))
        title, cost = TextCell(_title(row)), TextCell(row_cost(row))
        if not wide:
            return [*first, title, cost]
        dead = row.ticks.get("dead", 0)
        return [
            *first,
            TextCell(cut(project(row.folder), 16)),
            TextCell(cut(clean(session.git_branch or ""), 16)),
            title,
            TextCell(_graph(row, open_turn=self.now.of(row, self.at.timestamp()) is not None)),
            TextCell(money(dead) if dead else "·", DIM),
            cost,
        ]

    def _mark(self, row: SessionRow) -> TextCell:
        standing = self.now.of(row, self.at.timestamp())
        mark = _STANDING[standing] if standing else _OUTCOMES.get(row.session.outcome)
        return TextCell(*mark) if mark else TextCell("○")

    def _narrow(self, rows: Iterable[tuple[SessionRow, int]], room: int) -> Iterator[str]:
        for row, depth in rows:
            mark, session = self._mark(row), row.session
            yield f"{mark.paint(mark.text)} {cut('  ' * depth + _title(row), room - 2)}"
            details = "  ".join(
                (
                    self._ids[session.native_session_id],
                    agent_label(session.flavor),
                    ago(when(session.ended_at), self.at),
                    *([clean(row.machine)] if row.machine is not None else []),
                )
            )
            cost = row_cost(row)
            yield TextCell("", DIM).paint(f"  {justify(details, cost, room - 2)}")

    def _sums(self, room: int) -> str:
        total = self.total
        if not total.sessions:
            return "no session is running" if self._running else "no matching sessions"
        parts = [several(total.sessions, "session"), total.cost_text]
        if total.dead:
            parts.append(f"{money(total.dead)} on discarded branches")
        words = ", ".join(parts)
        if (more := total.sessions - len(self.rows)) > 0:
            words += f" · {more:,} more: -n {total.sessions}"
        return cut(words, room)


_START = (TextColumn(), TextColumn("id"), TextColumn("agent"), TextColumn("age", right=True))
_MACHINE = TextColumn("machine")
"""Shown when a session of the list was recorded on another machine."""
_USUAL = (
    *_START,
    TextColumn("title", slack=True, least=TITLE_COLUMNS),
    TextColumn("cost", right=True),
)
_WIDE = (
    *_START,
    TextColumn("project", drop=1),
    TextColumn("branch", drop=3),
    TextColumn("title", slack=True, least=TITLE_COLUMNS),
    TextColumn("graph", drop=4),
    TextColumn("discarded", right=True, drop=2),
    TextColumn("cost", right=True),
)


def _title(row: SessionRow) -> str:
    """Return the title of a session, its tags, and where it comes from."""
    is_synced = row.machine is not None and row.file is None  # the list has a column for that
    origin = [f"{clean(row.origin)} ·"] if row.origin and not is_synced else []
    return " ".join([*origin, title_text(row.title), *(f"#{clean(tag)}" for tag in row.tags)])


def _graph(row: SessionRow, *, open_turn: bool) -> str:
    """Draw what became of a session's events: branches left behind, subagents, its end."""
    states = row.states
    drawn = "┬" if states.get("dead") or states.get("rolled_back") else "─"
    agents = any(edge.link == "subagent" and edge.child for edge in row.edges)
    drawn += "◦" if agents or states.get("side") else ""
    return f"╾{drawn}{'╼' if open_turn else '╴'}"


def _total(store: Store, wanted: Filter, rows: Sequence[SessionRow] | None) -> Total:
    if rows is not None:
        uids = tuple(row.session.session_uid for row in rows)
        wanted = msgspec.structs.replace(wanted, uids=uids)
    return store.totals((), wanted)[0]


# -- at risk --------------------------------------------------------------------------------


def _at_risk(store: Store, wanted: Filter, *, json: bool) -> int:
    from thence.memory.session_status import at_risk

    known = wiring.tellers()
    risks = at_risk(known, wiring.roots(known), store, wiring.clean_text)
    risks = [risk for risk in risks if _fits(risk, wanted)]
    shown = risks[: wanted.limit]
    hint = "; thence sweep stores them" if risks else ""
    total = f"{several(len(risks), 'session')} at risk{hint}"
    lines = [*risk_lines(shown, width()), total]
    return answer([_risk_object(risk) for risk in shown], lines, json=json)


def _fits(risk: Risk, wanted: Filter) -> bool:
    if wanted.agent not in (None, risk.source.adapter):
        return False
    return wanted.project is None or wanted.project.lower() in risk.source.path.lower()


def _risk_object(risk: Risk) -> JSON:
    fields: dict[str, JSON] = msgspec.to_builtins(risk.session)
    return {**fields, "deleted_in_days": round(risk.days, 2), "kept": risk.row is not None}
