"""Light nodes: as much of an event as the graph needs, whoever wrote the log.

Claude Code's linked records, Codex's and Grok's sequences with their rollbacks and our own events
all become these, so that one graph tells what is live for every agent. A log without links gets
them from `in_sequence`. A node keeps nothing of what was said.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

PREVIOUS = "^"
"""As a parent: the record before in the same log. For logs whose records name none."""


class Is:
    """Flags of a node. Plain ints: an enum here costs more than the whole walk."""

    PROMPT = 1  # a human said it
    REPLY = 2  # the model said it
    ENDS = 4  # the turn came to its rest here
    INTERNAL = 8
    SIDE = 16
    REPLAYED = 32
    ROLLED_BACK = 64
    SUMMARY = 128  # stands for what a compaction left out
    INTERRUPTS = 256  # the human or the process cut the turn short
    WAITS = 512  # the agent asks and waits
    CLOSES = 1024  # the writer said good-bye
    SYNTHETIC = 2048  # written by a repair
    GOES_ON = 4096  # what the agent waited for has come, or it waits no more
    TRAILS = 8192  # its `tip` may lag behind: what goes on from there counts, whenever written
    BY_USER = 16384  # said of an interruption: the user made it
    CLEARS = 32768  # a root that starts with an empty context; what stands before it was not left


class Span(msgspec.Struct, frozen=True, gc=False):
    """What a boundary says: after `anchor` come head..tail, then what follows the boundary.

    One that `relinks` holds for every line written later that leads through head, also for one
    that does not lead through the boundary: so does a client that patches its links on loading.
    """

    anchor: str
    head: str | None = None
    tail: str | None = None
    relinks: bool = False


class Undo(msgspec.Struct, frozen=True, gc=False):
    """What a rollback marker says: the last `turns` prompts, or all from the `to`-th on."""

    turns: int | None = None
    to: int | None = None


class Node(msgspec.Struct, frozen=True, gc=False):
    """As much of an event as the graph needs."""

    id: str
    parent: str | None = None
    flags: int = 0
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    response: str | None = None  # the API response it is a block of
    logical: str | None = None  # what a root goes on from all the same
    span: Span | None = None
    tip: str | None = None  # this event moves the tip there
    undo: Undo | None = None


def in_sequence(nodes: Sequence[Node]) -> list[Node]:
    """Set parents for the nodes of a log that has none: each follows the one before.

    A node with `undo` takes prompts off the end; what they held is marked rolled back and the
    next node goes on from before them. A summary begins a new chain that goes on logically from
    the line before it, one that clears the context begins one that knows nothing of it. Hostile
    counts are clamped.
    """
    out: list[Node] = []
    standing: list[int] = []  # places on the line so far
    prompts: list[int] = []  # how many stood when each prompt came
    for node in nodes:
        flags = node.flags
        if node.undo is not None:
            flags |= Is.INTERNAL
            keep = _left(node.undo, len(prompts))
            if keep < len(prompts):
                for place in standing[prompts[keep] :]:
                    gone = out[place]
                    out[place] = msgspec.structs.replace(gone, flags=gone.flags | Is.ROLLED_BACK)
                del standing[prompts[keep] :], prompts[keep:]
        parent = out[standing[-1]].id if standing else None
        if not flags & (Is.INTERNAL | Is.SIDE):
            if flags & Is.PROMPT:
                prompts.append(len(standing))
            standing.append(len(out))
        logical = node.logical
        if flags & Is.SUMMARY:
            parent, logical = None, parent
        elif flags & Is.CLEARS:
            parent = None
        out.append(msgspec.structs.replace(node, parent=parent, logical=logical, flags=flags))
    return out


def _left(undo: Undo, prompts: int) -> int:
    """How many of so many prompts an undo leaves standing."""
    if undo.turns is not None:
        left = prompts - undo.turns
    else:
        left = prompts if undo.to is None else undo.to
    return min(max(left, 0), prompts)
