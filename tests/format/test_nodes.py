"""Logs without links: each event follows the one before, until something is undone."""

from __future__ import annotations

import pytest

from thence.format.graph import Graph
from thence.format.nodes import Is, Node, Undo, in_sequence


def ids(graph: Graph) -> list[str]:
    """Name the events of the live chain."""
    return [graph.nodes[i].id for i in graph.chain()]


def turns(*words: str) -> list[Node]:
    """p* are prompts, u<n> undoes n turns, t<n> goes back to the n-th, the rest are replies."""
    out = []
    for k, word in enumerate(words):
        undo = Undo(turns=int(word[1:])) if word[0] == "u" else None
        undo = Undo(to=int(word[1:])) if word[0] == "t" else undo
        flags = Is.PROMPT if word[0] == "p" else Is.REPLY
        out.append(Node(f"{word}.{k}" if undo else word, None, 0 if undo else flags, undo=undo))
    return out


def test_a_rollback_takes_whole_turns_off_the_end() -> None:
    """What they held is rolled back, still there, and the next prompt goes on from before."""
    graph = Graph(in_sequence(turns("p1", "r1", "p2", "r2", "p3", "r3", "u2", "p4")))

    assert ["p1", "r1", "p4"] == ids(graph)
    states = {n.id: s for n, s in zip(graph.nodes, graph.states, strict=True)}
    assert {"p2", "r2", "p3", "r3"} == {k for k, s in states.items() if s == "rolled_back"}


def test_rewinding_to_a_prompt_reuses_its_number() -> None:
    """Back to prompt 1, twice: the second time it is the new one that goes."""
    graph = Graph(in_sequence(turns("p0", "p1", "r1", "t1", "pa", "ra", "t1", "pb")))

    assert ["p0", "pb"] == ids(graph)


@pytest.mark.parametrize("count", [99, -1, 0, 2**70])
def test_absurd_rollbacks_are_clamped(count: int) -> None:
    """More turns than there are: all. Fewer than none: none."""
    marker = Node("u", None, undo=Undo(turns=count))
    graph = Graph(in_sequence([*turns("p1", "r1"), marker, *turns("p2")]))

    expected = ["p2"] if count > 0 else ["p1", "r1", "p2"]
    assert expected == ids(graph)


def test_each_flag_is_a_bit_of_its_own() -> None:
    """Two that share one would be taken for each other."""
    flags = [value for name, value in vars(Is).items() if name.isupper()]

    assert [1 << bit for bit in range(len(flags))] == sorted(flags)
