"""The state of a session's last turn: running, waiting, interrupted or done.

A log alone cannot tell a running turn from one whose process died: both end in a call without a
result. Whoever knows whether the writer still lives says so with `alive`; without that an open
turn counts as running until the log says otherwise. A torn last line is a second flag beside the
state, never a replacement for it.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from thence.format.graph import Graph
from thence.format.nodes import Is, Node

_RESTS = Is.ENDS | Is.INTERRUPTS


class TurnState(StrEnum):
    """Where a turn stands."""

    RUNNING = "running"
    WAITING = "waiting"
    INTERRUPTED = "interrupted"
    DONE = "done"


class TurnNow(msgspec.Struct, frozen=True):
    """The last turn of a session, as far as its log tells."""

    state: TurnState
    torn: bool = False
    open_calls: tuple[str, ...] = ()
    since: int | None = None
    """Place of the event that decided it; None in an empty session."""


def turn_of(graph: Graph, *, torn: bool = False, alive: bool | None = None) -> TurnNow:
    """Tell the state of the last turn on the live line."""
    end = _last_said(graph)
    if end is None:
        return TurnNow(TurnState.DONE, torn)
    calls = _open_calls(graph, end)
    closed, waits = _after(graph, end)
    state = _state(graph.nodes[end], open_calls=bool(calls), waits=waits)
    if graph.nodes[end].flags & Is.SYNTHETIC and not alive:
        closed = True  # a repair answered for a writer that was gone
    if state in (TurnState.RUNNING, TurnState.WAITING) and (closed or alive is False):
        state = TurnState.INTERRUPTED
    return TurnNow(state, torn, calls, end)


def _last_said(graph: Graph) -> int | None:
    """The last event of the live line that is part of a turn."""
    part = Is.PROMPT | Is.REPLY | Is.INTERRUPTS
    for i in reversed(graph.chain()):
        node = graph.nodes[i]
        if node.flags & part or node.calls or node.answers:
            return i
    return None


def _open_calls(graph: Graph, end: int) -> tuple[str, ...]:
    """Return the open calls of the last turn; those of an earlier turn are history."""
    calls = graph.open_calls
    if not calls:
        return ()
    chain = graph.chain()
    rests = (at for at, i in enumerate(chain) if i != end and graph.nodes[i].flags & _RESTS)
    begin = max(*rests, _answered_prompt(graph, chain), -1, -1) + 1
    turn = frozenset(chain[begin:])
    return tuple(call for i, call in calls if i in turn)


def _answered_prompt(graph: Graph, chain: list[int]) -> int:
    """Return where in a chain the last prompt stands that got a response of its own, or -1.

    Calls before it were given up: no model answers a prompt while it waits for a result. Some
    clients write nothing about a killed call when they are resumed.
    """
    later: set[str | None] = set()
    for at in range(len(chain) - 1, -1, -1):
        node = graph.nodes[chain[at]]
        if node.flags & Is.PROMPT and later:
            earlier = {graph.nodes[i].response for i in chain[:at]} - {None}
            return at if later - earlier else -1
        if node.flags & Is.REPLY:
            later.add(node.response)
    return -1


def _after(graph: Graph, end: int) -> tuple[bool, bool]:
    """Whether, after the last thing said, the writer closed, and whether it said that it waits."""
    closed = waits = False
    for node in graph.nodes[end + 1 :]:
        closed = closed or bool(node.flags & Is.CLOSES)
        waits = (waits or bool(node.flags & Is.WAITS)) and not node.flags & Is.GOES_ON
    return closed, waits


def _state(last: Node, *, open_calls: bool, waits: bool) -> TurnState:
    if last.flags & Is.INTERRUPTS:
        return TurnState.INTERRUPTED
    if waits:
        return TurnState.WAITING
    if last.flags & Is.ENDS and not open_calls:
        return TurnState.DONE
    return TurnState.RUNNING
