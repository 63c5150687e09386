"""Where a text comes from that the user of this home did not write: the words for it.

An agent, a file that was imported or lies in a project, and another machine each have a name here,
and whatever shows such a text shows these words beside it: brief, ask, search, lists, pages, API
and MCP. What the user wrote or had written here has no words.
"""

from __future__ import annotations

from typing import Final

MAX_NAME_CHARS: Final = 40
"""Characters of a file's or a machine's name: others chose it."""

Confirmations = frozenset[tuple[str, str]]
"""What the user confirmed of files and projects: `SessionRow.confirmation` of each."""


def describe_origin(
    *,
    author: str = "",
    file: str = "",
    is_kept: bool = False,
    machine: str = "",
    is_confirmed: bool | None = None,
) -> str:
    """Return where a text comes from, in words; empty for the user's own.

    `is_kept` says that a project keeps the file. `is_confirmed` is None where nobody has to confirm
    anything, or where it does not matter.
    """
    state = {None: "", True: "confirmed by you", False: "unconfirmed"}[is_confirmed]
    parts = (
        author,
        file and f"{'kept in' if is_kept else 'imported from'} {_short(file)}",
        machine and f"from machine {_short(machine)}",
        state,
    )
    return ", ".join(filter(None, parts))


def in_brackets(origin: str) -> str:
    """Return words about an origin as they stand behind a name; empty for the user's own."""
    return f" ({origin})" if origin else ""


def _short(name: str) -> str:
    line = " ".join(name[: 4 * MAX_NAME_CHARS].split())
    return line if len(line) <= MAX_NAME_CHARS else f"{line[: MAX_NAME_CHARS - 1]}…"
