"""Sessions that their agents are about to delete, as rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from thence.cli.columns import DIM, TextCell, agent_label, short_id, table
from thence.cli.terminal import clean, size

if TYPE_CHECKING:
    from thence.memory.session_status import Risk


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
