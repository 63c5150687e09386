"""`thence` alone: where you stand, on one screen; before the first sweep, what it would do.

The screen is made of what is kept and of what the agents say of themselves. It writes nothing and
reads no session.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from thence.agents import packages
from thence.agents.files import measure_source
from thence.agents.looks import Look
from thence.agents.profiles import label_of
from thence.agents.unread import as_objects, total_of
from thence.cli import wiring
from thence.cli.columns import (
    DIM,
    NARROW,
    TICKS,
    WIDE,
    TextCell,
    agent_label,
    ago,
    mark_legend,
    money,
    present,
    project,
    row_cost,
    short_ids,
    since,
    table,
    tilde,
    title_text,
    when,
)
from thence.cli.terminal import (
    answer,
    clean,
    cut,
    justify,
    several,
    size,
    size_limit,
    style,
    width,
    wrap,
)
from thence.cli.unread_lines import describe_problems, describe_unread, risk_lines
from thence.format.figures import argument
from thence.memory import nudges
from thence.memory.budgets import BudgetUse, budget_warnings
from thence.memory.cost_totals import sum_totals, totals_by_day
from thence.memory.local_days import midnight, millis
from thence.memory.notes import age_removal_start
from thence.memory.reports import count_losses, losses_of
from thence.memory.retention import brief_rule, rule
from thence.memory.session_status import (
    Now,
    Risk,
    Standing,
    at_risk,
    now,
    session_object,
    sessions_by_standing,
)
from thence.memory.store import Filter, SessionRow, Store, Total
from thence.memory.unread import read_unread, still_unread

if TYPE_CHECKING:
    from thence.agents import Adapter
    from thence.agents.unread import Unread
    from thence.format.records import JSON
    from thence.memory.retention import Policy

MAX_ROWS: Final = 5
"""Rows of a section that are shown before the rest is counted."""
MAX_RISKS: Final = 2
MAX_COMMANDS: Final = 5
CHART_DAYS: Final = 14
KEPT_SHARE: Final = 0.6
"""Bytes that are kept for a byte that is read, at most."""
SWEEP_BYTES_PER_S: Final = 25_000_000
"""Bytes that a first sweep reads in a second, as a careful guess."""

_LEVELS = "▁▂▃▄▅▆▇█"

Roots = Mapping[str, Sequence[Path]]


def show(*, json: bool, utc: bool) -> None:
    """Print the screen."""
    at = present(utc=utc)
    if not wiring.has_store():
        _show_first(at, json=json)
        return
    known = wiring.tellers()
    roots = wiring.roots(known)
    with wiring.store() as store:
        if wiring.store_file() is not None and not store.totals()[0].sessions:
            _show_first(at, json=json)  # `thence serve` makes a store before the first import
            return
        risks = at_risk(known, roots, store, wiring.clean_text)
        home = Home(store, now(known, roots, wiring.clean_text), risks, at, wiring.policy())
        home.hooks_heard = nudges.last_heard(wiring.home())
        home.announced = age_removal_start(wiring.home())
        home.budgets = wiring.budget_uses(store, at)
        home.not_read = read_unread(wiring.home())
        answer(home.object, home.lines(width()), json=json)


def _show_first(at: datetime, *, json: bool) -> None:
    """Print what is on this machine while nothing is stored."""
    known = wiring.adapters()
    first = FirstScreen(known, wiring.roots(known), at)
    answer(first.object, first.lines(width()), json=json)


class Home:
    """Where things stand."""

    def __init__(
        self, store: Store, now: Now, risks: Sequence[Risk], at: datetime, policy: Policy
    ) -> None:
        self.at = at
        self.now = now
        self.risks = risks
        self.policy = policy
        self.standing = sessions_by_standing(store, now, at.timestamp(), wiring.labels())
        rows = chain.from_iterable(self.standing.values())
        self._ids = short_ids([row.session.native_session_id for row in rows])
        self._today = at.date()
        spent = totals_by_day(
            store, Filter(after=self._back(CHART_DAYS)), self._zone, by_agent=True
        )
        self._days = [msgspec.structs.replace(total, key=total.key[::-1]) for total in spent]
        self._week = {
            total.key[0]: total for total in store.totals(["agent"], Filter(after=self._back(7)))
        }
        self.total = store.totals()[0]
        self.hooks_heard: Mapping[str, datetime] = {}
        self.announced: datetime | None = None
        """From when on sessions go by their age, if that is announced."""
        self.budgets: list[BudgetUse] = []
        self.lost = losses_of(store)
        self.not_read: list[Unread] = []
        """What the last sweep found and did not read."""

    def _back(self, days: int) -> int:
        """Return the start of the day so many days ago, today counted."""
        return millis(midnight(self._today - timedelta(days=days - 1), self._zone))

    @property
    def _zone(self) -> tzinfo | None:
        """The zone of the screen: UTC if asked for, else the machine's."""
        return UTC if self.at.tzinfo is UTC else None

    # -- as an object -------------------------------------------------------------------

    def object(self) -> JSON:
        """Return everything that the screen says."""
        return {
            "sessions": self.total.sessions,
            **{
                how: [session_object(row, how) for row in self.standing[how]]
                for how in ("waiting", "running", "idle")
            },
            "at_risk": [
                {
                    "session_uid": risk.source.uid,
                    "path": risk.source.path,
                    "bytes": risk.size,
                    "deleted_in_days": round(risk.days, 2),
                    "kept": risk.row is not None,
                }
                for risk in self.risks
            ],
            "spent": [
                {
                    "agent": agent,
                    "today": _spent(self._on(agent, self._today.isoformat())),
                    "week": _spent(week),
                    "days": [_usd(self._on(agent, day)) for day in self._dates()],
                }
                for agent, week in sorted(self._week.items(), key=lambda pair: pair[0] or "")
            ],
            "store": {
                "raw_bytes": self.total.raw_bytes,
                "raw_soft_cap_bytes": self.policy.raw_soft_cap_bytes,
                "raw_hard_cap_bytes": self.policy.raw_hard_cap_bytes,
                "rule": rule(self.policy),
            },
            "lost": self.lost,
            "not_read": as_objects(self.not_read),
            "problems": msgspec.to_builtins(packages.problems()),
            "budgets": [msgspec.to_builtins(use) for use in self.budgets],
            "hooks_heard": {agent: seen.isoformat() for agent, seen in self.hooks_heard.items()},
        }

    # -- as text ------------------------------------------------------------------------

    def lines(self, room: int) -> Iterator[str]:
        """Yield the screen, sections without rows left out."""
        waiting = self.standing["waiting"]
        verb = "needs" if len(waiting) == 1 else "need"
        first = "No session waits for you" if self.lost or self.not_read else "Nothing needs you"
        if waiting:
            first = f"{several(len(waiting), 'session')} {verb} you"
        clock = f"{self.at:%a} {self.at.day} {self.at:%b %Y, %H:%M}"
        if self.lost:
            lost = wrap(f"▲ {count_losses(self.lost)}", room)
            yield from (style(line, fg="red") for line in lost)
        yield style(justify(first, clock, room), bold=True)
        yield from describe_unread(self.not_read, room)
        yield from describe_problems(packages.problems(), room)
        yield from self._section("", "waiting", room)
        yield from self._section("running", "running", room)
        yield from self._section("idle, unfinished", "idle", room)
        yield from self._at_risk(room)
        yield from self._spending(room)
        for warning in budget_warnings(self.budgets):
            yield style(cut(f"▲ {warning}", room), fg="yellow")
        yield ""
        yield self._size(room)
        yield style(cut(brief_rule(self.policy), room), fg=DIM)
        if self.announced is not None and self.announced > self.at:
            words = f"The oldest transcripts are removed from {self.announced:%Y-%m-%d} on"
            yield style(cut(f"{words}; thence store gc -n lists them", room), fg="yellow")
        if self.hooks_heard:
            reports = (
                f"{clean(label_of(agent))} {since(seen, self.at)}"
                for agent, seen in self.hooks_heard.items()
            )
            yield cut(f"hooks  active: {', '.join(reports)}", room)
        yield ""
        yield from commands(self._next(), room)

    def _section(self, name: str, how: Standing, room: int) -> Iterator[str]:
        rows = self.standing[how]
        if not rows:
            return
        yield ""
        if name:
            yield name
        wide = room >= WIDE
        cells = [self._open_cells(row, how, wide=wide) for row in rows[:MAX_ROWS]]
        yield from table("<<<<<~>>" if wide else "<<<<~>", cells, room)
        if len(rows) > MAX_ROWS:
            yield style(f"    and {len(rows) - MAX_ROWS} more: thence ls --running", fg=DIM)

    def _open_cells(self, row: SessionRow, how: Standing, *, wide: bool) -> list[TextCell]:
        mark, colour = {"waiting": ("◆", "yellow"), "running": ("●", "cyan")}.get(how, ("●", DIM))
        session = row.session
        live = self.now.live.get(session.session_uid)
        title = title_text(row.title)
        if how == "waiting" and live is not None and live.waiting_for:
            title = f"{clean(live.waiting_for)}: {title}"
        cells = [
            TextCell(mark, colour),
            TextCell(self._ids[session.native_session_id], DIM),
            TextCell(agent_label(session.flavor)),
            TextCell(cut(project(row.folder), 16)),
        ]
        if wide:
            cells.append(TextCell(cut(clean(session.git_branch or ""), 16)))
        cells.append(TextCell(title))
        if wide:
            cells.append(TextCell(row_cost(row)))
        return [*cells, TextCell(ago(when(session.ended_at), self.at))]

    def _at_risk(self, room: int) -> Iterator[str]:
        if not self.risks:
            return
        verb = "deletes" if len({risk.source.adapter for risk in self.risks}) == 1 else "delete"
        yield ""
        yield cut(
            f"at risk: {_whose(self.risks)} {verb} these soon, and thence has not stored them yet",
            room,
        )
        yield from risk_lines(self.risks[:MAX_RISKS], room)
        if len(self.risks) > MAX_RISKS:
            yield style(f"    and {len(self.risks) - MAX_RISKS} more within a week", fg=DIM)

    # -- money --------------------------------------------------------------------------

    def _dates(self, days: int = CHART_DAYS) -> list[str]:
        return [(self._today - timedelta(days=back)).isoformat() for back in range(days)][::-1]

    def _on(self, agent: str | None, day: str) -> Total:
        return next((total for total in self._days if total.key == (agent, day)), Total(()))

    def _spending(self, room: int) -> Iterator[str]:
        if not self._week:
            return
        yield ""
        dates = self._dates(CHART_DAYS if room >= WIDE else 7)
        rows = [*self._spending_by_agent(dates), *self._spending_in_all(dates[-1])]
        daily = "per day" if len(dates) == 7 else f"per day, {len(dates)} days"
        heads = [
            ["", "", "", "today", "", "last 7 days", ""],
            ["", "", "sessions", "cost", "sessions", "cost", daily],
        ]
        head_rows = [[TextCell(head, DIM) for head in row] for row in heads]
        shown = range(7) if room >= NARROW else (0, 1, 3, 5)
        narrowed = [[row[at] for at in shown] for row in (*head_rows, *rows)]
        yield from table("".join("<<>>>><"[at] for at in shown), narrowed, room)
        if legend := mark_legend(cell.text for row in rows for cell in row):
            yield style(cut(f"    {legend}", room), fg=DIM)

    def _spending_by_agent(self, dates: Sequence[str]) -> Iterator[list[TextCell]]:
        """Yield the row of each agent: its last day, its week, and a bar for each day."""
        labels = {agent: agent_label(agent or "") for agent in self._week}
        for agent in sorted(labels, key=lambda agent: labels[agent].casefold()):
            total = self._week[agent]
            yield [
                TextCell(" "),
                TextCell(labels[agent]),
                *_figures(self._on(agent, dates[-1])),
                *_figures(total),
                TextCell(spark([self._on(agent, day).ticks for day in dates]), "cyan"),
            ]

    def _spending_in_all(self, today: str) -> Iterator[list[TextCell]]:
        """Yield the row of all agents, if there are several, and that of discarded branches."""
        day = sum_totals([self._on(agent, today) for agent in self._week])
        week = sum_totals(list(self._week.values()))
        if len(self._week) > 1:
            yield [TextCell(" "), TextCell("all"), *_figures(day), *_figures(week), TextCell("")]
        if week.dead:
            name = TextCell("incl. discarded branches", DIM)
            costs = [TextCell(money(total.dead), DIM) for total in (day, week)]
            nothing = TextCell("")
            yield [TextCell(" "), name, nothing, costs[0], nothing, costs[1], nothing]

    def _size(self, room: int) -> str:
        """Return what the store takes, against its limits."""
        soft, hard = self.policy.raw_soft_cap_bytes, self.policy.raw_hard_cap_bytes
        used = self.total.raw_bytes
        gauge = f"  {_gauge(used, soft, 21)}" if soft and room >= 72 else ""
        over = f", at most {size_limit(hard)}" if used > soft else ""
        sessions = several(self.total.sessions, "session")
        words = f"stored  {sessions}, transcripts {size(used, soft)} of {size_limit(soft)}{over}"
        return cut(f"{words}{gauge}", room)

    def _next(self) -> list[tuple[str, str]]:
        """Return what is worth typing now, the most pressing first."""
        commands: list[tuple[str, str]] = []
        for row in self.standing["waiting"][:1]:
            name = self._ids[row.session.native_session_id]
            commands.append((f"resume {argument(name)}", "resume the waiting session"))
        if self.risks:
            about = _about(sum(risk.size for risk in self.risks))
            commands.append(("sweep", f"store the {len(self.risks)} at risk, {about}"))
        commands += [
            ("ls", "list all sessions, newest first"),
            ("search WORDS", "find what was said or done"),
            ("resume", "choose a session and continue it"),
            ("serve", "read sessions in the browser"),
            ("sweep", "import new log lines; deletes nothing"),
            ("help", "list all commands"),
        ]
        return commands


def commands(wanted: Sequence[tuple[str, str]], room: int) -> Iterator[str]:
    """Yield the first commands that there are, each with its reason."""
    from thence.cli import COMMANDS

    shown: dict[str, tuple[str, str]] = {}
    for typed, why in wanted:
        name = typed.split()[0]
        if name in COMMANDS:
            shown.setdefault(name, (typed, why))
    for typed, why in list(shown.values())[:MAX_COMMANDS]:
        left = f"  thence {typed}"
        pad = " " * max(25 - len(left), 2)
        yield style(left, bold=True) + style(cut(f"{pad}{why}", room - len(left)), fg=DIM)


def spark(values: Sequence[int]) -> str:
    """Draw values as a row of bars: the largest is the highest, a little is more than nothing."""
    top = max(values, default=0)
    if top <= 0:
        return _LEVELS[0] * len(values)
    return "".join(_LEVELS[max(value * 7 // top, int(value > 0))] for value in values)


def _gauge(used: int, limit: int, room: int) -> str:
    """Draw how full something is."""
    full = min(round(used / limit * room), room)
    return "█" * full + "░" * (room - full)


def _whose(risks: Iterable[Risk]) -> str:
    """Name the agents that delete sessions, as people call them."""
    names = sorted({risk.source.adapter for risk in risks})
    return " and ".join(map(label_of, names))


def _about(much: int) -> str:
    """Guess how long a sweep of so many bytes takes."""
    return f"about {max(round(much / SWEEP_BYTES_PER_S), 1)} s"


def _figures(total: Total) -> tuple[TextCell, TextCell]:
    if not total.sessions:
        return TextCell("·", DIM), TextCell("·", DIM)
    return TextCell(f"{total.sessions}"), TextCell(total.cost_text)


def _spent(total: Total) -> JSON:
    return {
        "sessions": total.sessions,
        "usd": _usd(total),
        "dead_usd": total.dead / TICKS,
        "unpriced_tokens": total.unpriced,
        "is_lower_bound": total.is_minimum,
    }


def _usd(total: Total) -> float:
    return total.ticks / TICKS


# -- before the first sweep -----------------------------------------------------------------


class FirstScreen:
    """What is on this machine, and what a sweep would do with it."""

    def __init__(self, known: Mapping[str, Adapter], roots: Roots, at: datetime) -> None:
        self._known = known
        self._at = at
        self._look = Look(read_unread(wiring.home()))
        self.agents = [self._find(name, roots.get(name, ())) for name in known]
        self.not_read = still_unread(wiring.home(), self._look.unread, wiring.clean_text)
        self.bytes = sum(agent["bytes"] for agent in self.agents)
        self.sessions = sum(agent["sessions"] for agent in self.agents)
        self.risks = at_risk(known, roots, None, wiring.clean_text, at=at.timestamp())

    def _find(self, name: str, places: Sequence[Path]) -> dict[str, JSON]:
        sessions = much = 0
        oldest = None
        for place in places:
            for source in self._look.find(self._known[name], place):
                bytes_, modified = measure_source(source)
                sessions += 1
                much += bytes_
                oldest = modified if oldest is None else min(oldest, modified)
        days = None if oldest is None else int((self._at.timestamp() - oldest) // 86_400)
        roots = [str(place) for place in places]
        return {
            "agent": name,
            "sessions": sessions,
            "bytes": much,
            "roots": roots,
            "oldest_days": days,
        }

    def object(self) -> JSON:
        """Return the agents of this machine and how many of their sessions are at risk."""
        return {
            "first_run": True,
            "found": self.agents,
            "at_risk": len(self.risks),
            "not_read": as_objects(self.not_read),
            "problems": msgspec.to_builtins(packages.problems()),
        }

    def lines(self, room: int) -> Iterator[str]:
        """Say what was found and what would be done, before anything is."""
        yield style(
            "No sessions stored yet. Found here:" if self.sessions else "No sessions stored yet.",
            bold=True,
        )
        yield from describe_unread(self.not_read, room)
        yield from describe_problems(packages.problems(), room)
        yield ""
        unread = {item.agent for item in self.not_read}
        there = [agent for agent in self.agents if agent["sessions"] or agent["agent"] in unread]
        present = [agent for agent in there if agent["sessions"]]
        yield from table("<<>>~>", [self._cells(agent) for agent in present or self.agents], room)
        if present and len(there) < len(self.agents):
            absent = ", ".join(
                label_of(agent["agent"]) for agent in self.agents if agent not in there
            )
            yield style(cut(f"  not found: {absent}", room), fg=DIM)
        yield ""
        much = f", about {size(int(self.bytes * KEPT_SHARE))}" if self.bytes else ""
        place = clean(tilde(str(wiring.home())))
        promise = (
            "thence reads these files and never changes them. It stores a copy, secrets redacted,"
            f" in {place}{much}. Nothing leaves this machine. {rule(wiring.policy())}"
        )
        yield from wrap(promise, room)
        if self.risks:
            many = several(len(self.risks), "session")
            deleted = f"{many} will be deleted by {_whose(self.risks)} within a week."
            yield style(cut(deleted, room), fg="red")
        yield ""
        if self.sessions:
            next_step = [("sweep", f"import them, {_about(self.bytes)}")]
            yield from commands(next_step, room)
            yield from commands([("sweep -n", "show what it would do")], room)
        else:
            sample, made_up = "read a sample session", "try it on sample sessions"
            yield from commands([("show --sample", sample), ("demo", made_up)], room)

    def _why_none(self, agent: str) -> str:
        """Say where an agent's sessions would be, or that those which are there are not read."""
        if own := [item for item in self.not_read if item.agent == agent]:
            return f"{total_of(own)} not read"
        usual = self._known[agent].roots(Path.home(), os.environ)
        return f"not found (looked in {', '.join(clean(tilde(str(path))) for path in usual)})"

    def _cells(self, agent: dict[str, JSON]) -> list[TextCell]:
        if not agent["sessions"]:
            return [
                TextCell(" "),
                TextCell(label_of(agent["agent"])),
                TextCell("-"),
                TextCell(""),
                TextCell(self._why_none(agent["agent"]), DIM),
                TextCell(""),
            ]
        days = agent["oldest_days"]
        return [
            TextCell(" "),
            TextCell(label_of(agent["agent"])),
            TextCell(several(agent["sessions"], "session")),
            TextCell(size(agent["bytes"])),
            TextCell(clean(", ".join(map(tilde, agent["roots"])))),
            TextCell(f"oldest {several(days, 'day')}" if days else "", DIM),
        ]
