"""What several tests derive in one step, where the program takes two at different times."""

from __future__ import annotations

from collections.abc import Sequence

from thence.format.errors import Ending, evidence_of, judge
from thence.format.facts import events_of, fact_of
from thence.format.graph import State
from thence.format.normal import SessionEvent
from thence.format.records import Event


def find_ending(
    tool: str, result: object, *, is_error: bool | None = None, exit_code: int | None = None
) -> Ending:
    """Return how a call ended, by the best evidence there is."""
    return judge(evidence_of(tool, result), is_error=is_error, exit_code=exit_code)


def normalise(
    events: Sequence[Event], states: Sequence[State], uid: str, *, channel: str = "main"
) -> list[SessionEvent]:
    """Turn our own events into normalised ones, in written order, not yet numbered."""
    return events_of([fact_of(event, channel=channel) for event in events], states, uid)
