"""Sessions below those that they come from."""

from __future__ import annotations

from thence.format.facts import Edge
from thence.format.normal import Session
from thence.memory.ancestry import nest_by_ancestry, relation_of
from thence.memory.store import SessionRow


def row(name: str, *edges: Edge) -> SessionRow:
    """A session with its ties."""
    return SessionRow(Session(f"claude:{name}", "claude", name), edges=edges)


def order(*rows: SessionRow) -> list[tuple[str, int]]:
    """Names and depths, as they are listed."""
    return [(row.session.native_session_id, depth) for row, depth in nest_by_ancestry(rows)]


def test_what_comes_from_a_session_stands_below_it() -> None:
    """Whichever side tells of the tie, in the order of the list, to any depth."""
    rows = (
        row("deep", Edge("fork", "second", "header")),
        row("other"),
        row("first", Edge("adopt", "origin", "header")),
        row("origin", Edge("subagent", "second", "its log", child=True)),
        row("second"),
    )

    assert [("other", 0), ("origin", 0), ("first", 1), ("second", 1), ("deep", 2)] == order(*rows)


def test_an_origin_that_is_not_listed_makes_no_child() -> None:
    """Nor does a session that names itself."""
    rows = (row("one", Edge("fork", "gone", "header")), row("two", Edge("resume", "two", "header")))

    assert [("one", 0), ("two", 0)] == order(*rows)


def test_a_circle_is_listed_once_and_last() -> None:
    """Each of it, however they name each other."""
    rows = (
        row("a", Edge("fork", "b", "header")),
        row("b", Edge("fork", "a", "header")),
        row("plain"),
    )

    assert [("plain", 0), ("a", 0), ("b", 1)] == order(*rows)


def test_a_tie_is_told_in_words() -> None:
    """From either side."""
    ties = [Edge("fork", "s", "header"), Edge("fork", "s", "header", child=True)]

    assert ["forked from", "forked into"] == [relation_of(edge) for edge in ties]
