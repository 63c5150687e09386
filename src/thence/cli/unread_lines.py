"""What is not read, and what will soon be deleted, in lines for people: alike on every screen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from thence.agents.unread import FAULTS, grouped, total_of, words
from thence.cli.columns import DIM, TextCell, agent_label, short_id, table, tilde
from thence.cli.terminal import clean, cut, size, style, wrap

if TYPE_CHECKING:
    from thence.agents.packages import Problem
    from thence.agents.unread import Kind, Unread
    from thence.memory.session_status import Risk

FIXES: Final[dict[Kind, str]] = {
    "database": "repair it with its client, or restore it from a backup; then thence sweep",
    "session": "thence sweep",
    "folder": "give yourself the right to read it; then thence sweep",
    "link": "move the folder back, or link the agent's entire folder instead",
}


MAX_LINES: Final = 3
"""Lines that are shown before the rest is counted."""


def describe_unread(items: Iterable[Unread], room: int) -> Iterator[str]:
    """Say how many of what were found and are not read, and why."""
    lines = list(unread_lines(items))
    for group, line in lines[:MAX_LINES]:
        colour = "red" if group[0].kind in FAULTS else "yellow"
        first, *rest = wrap(line, room - 2)
        yield from (style(part, fg=colour) for part in (f"▲ {first}", *(f"  {r}" for r in rest)))
    if more := [item for group, _ in lines[MAX_LINES:] for item in group]:
        yield f"  and {total_of(more)} more not read: thence doctor"


def describe_problems(problems: Iterable[Problem], room: int) -> Iterator[str]:
    """Name what of other packages is left out."""
    yield from (style(cut(clean(f"  {item.words}"), room), fg="yellow") for item in problems)


def unread_lines(items: Iterable[Unread]) -> Iterator[tuple[list[Unread], str]]:
    """Yield what one agent has of one kind for one reason, and a line for it."""
    for group in grouped(items):
        more = f" and {len(group) - 1:,} more" if len(group) > 1 else ""
        where = f"{tilde(group[0].path)}{more}"
        yield group, clean(f"{agent_label(group[0].agent)}: {words(group)}, {where}")


def risk_lines(risks: Sequence[Risk], room: int) -> Iterator[str]:
    """Yield the rows of sessions that are about to be deleted."""
    yield from table("<<<~>>", [_risk_cells(risk) for risk in risks], room)


def _risk_cells(risk: Risk) -> list[TextCell]:
    known = clean(" ".join((risk.row.title or "").split())) if risk.row else ""
    days = "today" if risk.days < 1 else f"in {int(risk.days)} d"
    return [
        TextCell("▲", "red"),
        TextCell(short_id(risk.source.session), DIM),
        TextCell(agent_label(risk.source.adapter)),
        TextCell(f"{known}, grown since" if known else clean(_place(risk.source.path))),
        TextCell(size(risk.size)),
        TextCell(days, "red"),
    ]


def _place(path: str) -> str:
    """Name the folder that a session's file lies in."""
    return path.rpartition("/")[0].rpartition("/")[2]
