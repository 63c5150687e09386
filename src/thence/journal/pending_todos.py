"""What an agent still has to do, as an open session tells it.

The to-dos are those that `format.todos` reads out of a conversation. A compaction takes most of a
conversation away, so that its boundary carries the calls that to-do lists were made of before it;
sentences that stood there are gone with it. Invariants: nothing here raises for what a log holds;
what a boundary carries is a cache, and a bad one costs the to-dos before it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

# Loaded with the journal, not by a compaction: when no file can be opened, no module can either.
from thence.format import todos
from thence.format.records import JSON, Event
from thence.format.todos import Step, Todo
from thence.format.transcript import steps

_CALLS = "todo_calls"
"""Where a snapshot has the calls that to-do lists were made of."""


def pending(chain: Sequence[Event], since: Sequence[Event], snapshot: JSON) -> list[Todo]:
    """Return the open to-dos of what the model sees and of the lists before the last boundary."""
    return todos.pending_todos(_steps(chain, since, snapshot))


def with_calls(
    snapshot: dict[str, JSON],
    chain: Sequence[Event],
    since: Sequence[Event],
    before: JSON,
    visible: Sequence[Event],
) -> dict[str, JSON]:
    """Return a snapshot that carries the calls of the lists, but for those that stay in view.

    `before` is the snapshot that this one takes the place of.
    """
    stay = {event.uuid for event in visible}
    calls = [step for step in _steps(chain, since, before) if step.tool and step.id not in stay]
    return {**snapshot, _CALLS: [msgspec.to_builtins(step) for step in todos.todo_steps(calls)]}


def _steps(chain: Sequence[Event], since: Sequence[Event], snapshot: JSON) -> list[Step]:
    later = {event.uuid for event in since}
    earlier = [event for event in chain if event.uuid not in later]
    return [*_steps_in_snapshot(snapshot), *steps([*earlier, *since])]


def _steps_in_snapshot(snapshot: JSON) -> list[Step]:
    """Read the calls that a snapshot carries; of an older one the list that it holds."""
    if not isinstance(snapshot, dict):
        return []
    try:
        if _CALLS in snapshot:
            return msgspec.convert(snapshot[_CALLS], list[Step])
        listed = snapshot["domains"]["todos"]["value"]
    except (ValueError, KeyError, TypeError, RecursionError):
        # A snapshot of another version: what comes after it is read all the same.
        return []
    return [Step("", "assistant", tool="TodoWrite", input={"todos": listed})]
