"""Links: every record has at most one parent, gaps are closed, nothing goes in circles."""

from __future__ import annotations

from thence.format.graph import Graph, State
from thence.format.links import Break, Links
from thence.format.nodes import Is, Node


def test_a_boundary_without_its_record_continues_the_one_before_in_its_channel() -> None:
    """What keeps the books without a link, and what subagents said, is passed over."""
    nodes = [
        Node("u"),
        Node("a", "u"),
        Node("s", None, Is.SIDE),
        Node("note", None, Is.INTERNAL),
        Node("b", None, Is.INTERNAL, logical="never written"),
    ]
    links = Links(nodes)

    assert [-1, 0, -1, -1, -1] == links.parents
    assert [-1, 0, -1, -1, 1] == links.line_parents
    assert [Break(4, "bridged", "never written")] == links.breaks


def test_a_boundary_with_nothing_before_it_is_a_root() -> None:
    """So it is in a fork, which copies the boundary and not what stands before it."""
    links = Links([Node("b", None, Is.INTERNAL, logical="elsewhere"), Node("s", "b")])

    assert [-1, 0] == links.line_parents
    assert [Break(0, "boundary", "elsewhere")] == links.breaks


def test_a_record_that_clears_the_context_is_on_the_line_and_begins_the_chain() -> None:
    """What stands before it is live; the model does not see it."""
    graph = Graph([Node("u"), Node("a", "u"), Node("p", None, Is.PROMPT | Is.CLEARS)])

    assert [2] == graph.chain()
    assert [0, 1, 2] == graph.chain(boundaries=False)
    assert [State.LIVE] * 3 == graph.states


def test_a_tip_moved_by_hand_is_what_a_boundary_continues() -> None:
    """A rewind, then a compaction: what was left stays dead."""
    graph = Graph(
        [
            Node("u"),
            Node("wrong", "u"),
            Node("t", None, Is.INTERNAL, tip="u"),
            Node("b", None, Is.INTERNAL, logical="never written"),
            Node("s", "b", Is.SUMMARY),
            Node("u2", "s", tip=None),
            Node("t2", None, Is.INTERNAL, tip="u2"),
        ]
    )

    assert [State.LIVE, State.DEAD] == graph.states[:2]


def test_many_boundaries_that_lead_nowhere_are_linked_one_to_the_next() -> None:
    """However many there are, and whatever points forward: no cycle, and the work stays linear."""
    size = 20_000
    boundaries = [Node(f"b{n}", None, Is.INTERNAL, logical=f"x{n}") for n in range(size)]
    ahead = [Node("first", "last"), *boundaries, Node("last", None, Is.INTERNAL, logical="x")]

    assert [-1, *range(size - 1)] == Links(boundaries).line_parents
    assert size + 2 == len(Graph(ahead).states)
