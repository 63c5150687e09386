"""What a turn is, and the state of a session's last one: running, waiting, interrupted or done.

A turn is a prompt of a human on the session's own live line, with all that follows it up to the
next. What was copied from or stands in other sessions, discarded branches and subagents have none:
the prompts there are called prompts.

A log alone cannot tell a running turn from one whose process died: both end in a call without a
result. Whoever knows whether the writer still lives says so with `alive`; without that an open
turn counts as running until the log says otherwise, and what people read is decided by
`memory.session_status`. A torn last line is a second flag beside the state, never a replacement
for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from thence.format.graph import Graph, State
from thence.format.nodes import Is, Node

_RESTS = Is.ENDS | Is.INTERRUPTS


class BilledRecord(Protocol):
    """What of a record tells whether a reply was billed: of one that is read, or is stored."""

    @property
    def blocks(self) -> Sequence[Any]:
        """What it says, part by part."""

    @property
    def channel(self) -> str:
        """Whose record it is."""

    @property
    def usage(self) -> object:
        """What it says was billed."""


class TurnState(StrEnum):
    """Where a turn stands."""

    RUNNING = "running"
    WAITING = "waiting"
    INTERRUPTED = "interrupted"
    ANSWERED = "answered"
    """The last reply is complete, but nothing says that the turn is over: done if nobody goes on.

    Some clients leave before they write that."""
    DONE = "done"


_GOING_ON = (TurnState.RUNNING, TurnState.WAITING)


class TurnNow(msgspec.Struct, frozen=True):
    """The last turn of a session, as far as its log tells."""

    state: TurnState
    torn: bool = False
    open_calls: tuple[str, ...] = ()
    since: int | None = None
    """Place of the event that decided it; None in an empty session."""


def begins_turn(node: Node, state: State) -> bool:
    """Return whether a turn of the session begins with a record."""
    return bool(node.flags & Is.PROMPT) and state in (State.LIVE, State.ORPHANED)


def turn_of(
    graph: Graph,
    *,
    torn: bool = False,
    alive: bool | None = None,
    records: Sequence[BilledRecord] = (),
) -> TurnNow:
    """Tell the state of the last turn on the live line; `records` are those of the graph."""
    end = _last_said(graph)
    if end is None:
        return TurnNow(TurnState.DONE, torn)
    calls = _open_calls(graph, end)
    closed, waits = _after(graph, end)
    state = _state(graph.nodes[end], open_calls=bool(calls), waits=waits)
    if graph.nodes[end].flags & Is.SYNTHETIC and not alive:
        closed = True  # a repair answered for a writer that was gone
    if state is TurnState.RUNNING and not calls and _is_complete(records[end:]):
        state = TurnState.DONE if closed or alive is False else TurnState.ANSWERED
    if state in _GOING_ON and (closed or alive is False):
        state = TurnState.INTERRUPTED
    return TurnNow(state, torn, calls, end)


def _is_complete(records: Sequence[BilledRecord]) -> bool:
    """Whether the first of these records ends a reply that was billed after it was written."""
    if not records or records[0].blocks[-1].kind != "assistant_msg":
        return False
    return any(r.usage and r.channel == records[0].channel for r in records[1:])


def running_calls(graph: Graph, turn: TurnNow) -> tuple[str, ...]:
    """Return the calls that may still run: open in a turn that goes on, after the last prompt."""
    calls = turn.open_calls if turn.state in _GOING_ON else ()
    late: set[str] = set()
    for place in reversed(graph.chain(boundaries=False)) if calls else ():
        node = graph.nodes[place]
        if node.flags & Is.PROMPT:
            break
        late.update(node.calls)
    return tuple(call for call in calls if call in late)


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
