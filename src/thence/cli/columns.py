"""Lists on a terminal: columns without frames, ages, money, marks.

Two spaces between columns, numbers to the right, one column takes the slack; what is cut ends in
`…`. All cells were cleaned by who made them.
"""

# ruff: noqa: PLC0414 - callers ask here for figures and the screen, too

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from thence.cli.screen import tell as tell
from thence.cli.terminal import clean, columns, cut, style
from thence.format.derived_events import time_of
from thence.format.figures import TICKS as TICKS
from thence.format.figures import ago as ago
from thence.format.figures import money as money
from thence.format.figures import project as project
from thence.format.figures import short_id as short_id
from thence.format.figures import since as since

if TYPE_CHECKING:
    from thence.memory.store import SessionRow

DIM: Final = "bright_black"
NARROW: Final = 60
"""Under so many columns a row takes two lines."""
MAX_ID_COLUMNS: Final = 13
TITLE_COLUMNS: Final = 30
MACHINE_COLUMNS: Final = 16
"""Columns that a title keeps before others are left out."""
WIDE: Final = 100
"""From so many columns on there are further columns, and a head line names them."""


class TextCell(NamedTuple):
    """One text of a row, and how it is coloured."""

    text: str
    colour: str | None = None
    bold: bool = False

    def paint(self, text: str) -> str:
        """Return a text in this cell's colour."""
        if self.bold:
            return style(text, fg=self.colour, bold=True) if self.colour else style(text, bold=True)
        return style(text, fg=self.colour) if self.colour else text


class TextColumn(NamedTuple):
    """How a column is set. One of a table is `slack`: it takes what room the others leave."""

    head: str = ""
    right: bool = False
    slack: bool = False
    least: int = 1
    """Width that the slack column gets before others are left out or cut."""
    drop: int = 0
    """Above 0, the column is left out if the slack column lacks room; the highest goes first."""


_SIGNS: Final = {"<": TextColumn(), ">": TextColumn(right=True), "~": TextColumn(slack=True)}

Row = Sequence[TextCell]


def table(
    columns_of: Sequence[TextColumn] | str, rows: Sequence[Row], room: int, *, head: bool = False
) -> Iterator[str]:
    """Set rows whose first cell is a mark under one another, within so many columns.

    Columns without heads are written as signs: `<` left, `>` right, `~` the one with the slack.
    """
    if isinstance(columns_of, str):
        columns_of = [_SIGNS[sign] for sign in columns_of]
    heads = [TextCell(column.head, DIM) for column in columns_of]
    every = [heads, *rows] if head else list(rows)
    widths = [
        max((columns(row[at].text) for row in every), default=0) for at in range(len(columns_of))
    ]
    shown = _choose_columns(columns_of, widths, room - 2)
    columns_of, widths = [columns_of[at] for at in shown], [widths[at] for at in shown]
    _fit(columns_of, widths, room - 2)
    for row in every:
        yield _row(columns_of, [row[at] for at in shown], widths).rstrip()


def _choose_columns(
    columns_of: Sequence[TextColumn], widths: Sequence[int], room: int
) -> list[int]:
    """Return the columns that leave the slack column its least, in order."""
    shown = list(range(len(columns_of)))
    slack = _slack(columns_of)
    for _, at in sorted(((c.drop, at) for at, c in enumerate(columns_of) if c.drop), reverse=True):
        others = sum(widths[place] for place in shown if place != slack)
        needed = 0 if slack is None else min(columns_of[slack].least, widths[slack])
        if room - _gaps(len(shown)) - others >= needed:
            break
        shown.remove(at)
    return shown


def _slack(columns_of: Sequence[TextColumn]) -> int | None:
    return next((at for at, column in enumerate(columns_of) if column.slack), None)


def _gaps(number: int) -> int:
    """Return the width of the gaps between so many columns: one space only behind the mark."""
    return max(2 * (number - 1) - 1, 0)


def _fit(columns_of: Sequence[TextColumn], widths: list[int], room: int) -> None:
    """Widen the slack column by the room that is left; cut the widest texts where none is."""
    slack = _slack(columns_of)
    floors = [4] * len(widths)
    left = room - _gaps(len(widths)) - sum(widths)
    if slack is not None:
        floors[slack] = max(min(columns_of[slack].least, widths[slack]), 1)
        widths[slack] = max(widths[slack] + left, floors[slack])
        left = room - _gaps(len(widths)) - sum(widths)
    texts = [at for at, column in enumerate(columns_of) if at and not column.right]
    for floor in (floors, [1] * len(widths)):
        while left < 0 and (wider := [at for at in texts if widths[at] > floor[at]]):
            widths[max(wider, key=widths.__getitem__)] -= 1
            left += 1


def _row(columns_of: Sequence[TextColumn], row: Row, widths: Sequence[int]) -> str:
    out = "  "
    for at, (column, cell, width) in enumerate(zip(columns_of, row, widths, strict=True)):
        text = cut(cell.text, width)
        pad = " " * (width - columns(text))
        shown = cell.paint(text) if text else ""
        gap = "" if at == 0 else " " if at == 1 else "  "
        out += gap + (pad + shown if column.right else shown + pad)
    return out


# -- words ----------------------------------------------------------------------------------


def short_ids(names: Sequence[str]) -> dict[str, str]:
    """Shorten the ids of one list, each so far that no other of the list begins with it."""
    out: dict[str, str] = {}
    ordered = sorted(set(names))
    for at, name in enumerate(ordered):
        beside = ordered[max(at - 1, 0) : at] + ordered[at + 1 : at + 2]
        shared = max((_alike(name, other) for other in beside), default=0)
        start = name[: max(len(short_id(name)), shared + 1)]
        out[name] = clean(start if len(start) <= MAX_ID_COLUMNS else _both_ends(name, ordered))
    return out


def _both_ends(name: str, names: Sequence[str]) -> str:
    """Return the start and the end of an id, if no other id has both; else all of it.

    Sessions that one client starts within a millisecond differ at the end of their ids only.
    """
    size = MAX_ID_COLUMNS // 2
    start, end = name[:size], name[-size:]
    alike = sum(other.startswith(start) and other.endswith(end) for other in names)
    return f"{start}…{end}" if alike == 1 and "…" not in name else name


def _alike(first: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    pairs = enumerate(zip(first, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(other)))


def present(*, utc: bool = False) -> datetime:
    """Return the time, in the zone that is asked for."""
    now = datetime.now(UTC)
    return now if utc else now.astimezone()


when: Final = time_of
"""Reads a time of the store."""


def title_text(title: str | None) -> str:
    """Name a session by its title, on one line."""
    return clean(" ".join((title or "").split())) or "untitled"


def tilde(path: str) -> str:
    """Write a path the way people do."""
    home = os.path.expanduser("~")  # noqa: PTH111 - text
    return f"~{path[len(home) :]}" if path.startswith(f"{home}/") else path


def agent_label(name: str) -> str:
    """Return what people call an agent, clean; its id is only for what is typed."""
    from thence.agents.profiles import label_of

    return clean(label_of(name))


def mark_legend(texts: Iterable[str]) -> str:
    """Return what the marks in these amounts mean; nothing if there are none."""
    amounts = [text for text in texts if text == "?" or text.startswith("$")]
    parts = []
    if any(amount.endswith("+") for amount in amounts):
        parts.append("+ at least: some usage or prices are missing")
    if "?" in amounts:
        parts.append("? cost unknown")
    return " · ".join(parts)


def row_cost(row: SessionRow) -> str:
    """Return what a session cost: `$1.20`, `$1.20+` for at least so much, `?` if unknown."""
    return money(sum(row.ticks.values()), row.unpriced, is_bound=bool(row.lower_bound))
