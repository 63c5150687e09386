"""Sessions below those that they come from, for lists of the terminal and of the browser.

Every session of a list is given once. One whose origin is not in the list stands as if it had
none, and sessions that name each other in a circle are given after all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from thence.format.facts import Edge
from thence.memory.store import SessionRow

_WAYS: Final = {
    ("fork", False): "forked from",
    ("fork", True): "forked into",
    ("resume", False): "continued from",
    ("resume", True): "continued in",
    ("adopt", False): "continued from",
    ("adopt", True): "continued in",
    ("subagent", False): "a subagent of",
    ("subagent", True): "subagent",
}


def relation_of(edge: Edge) -> str:
    """Say what another session is to the one that names it."""
    return _WAYS.get((edge.link, edge.child), edge.link)


def nest_by_ancestry(rows: Sequence[SessionRow]) -> list[tuple[SessionRow, int]]:
    """Put sessions that come from another one of a list right below it, each with its depth."""
    known = {row.session.session_uid: row for row in rows}
    above: dict[str, str] = {}
    for name, row in known.items():
        for edge in row.edges:  # either side may be the one that tells of a tie
            other = edge.uid(row.session.flavor)
            origin, child = (name, other) if edge.child else (other, name)
            if origin in known and child in known and origin != child:
                above.setdefault(child, origin)
    below: dict[str, list[str]] = {}
    for name in known:
        if name in above:
            below.setdefault(above[name], []).append(name)
    out: list[tuple[SessionRow, int]] = []
    seen: set[str] = set()
    # Those that come from nothing first; what is left then are circles.
    for start in [*(n for n in known if n not in above), *above]:
        todo = [(start, 0)]
        while todo:
            name, depth = todo.pop()
            if name not in seen:
                seen.add(name)
                out.append((known[name], depth))
                todo += [(child, depth + 1) for child in reversed(below.get(name, ()))]
    return out
