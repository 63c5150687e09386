"""What several tests derive in one step, where the program takes two at different times."""

from __future__ import annotations

from collections.abc import Sequence

from thence.format.errors import Ending, evidence_of, judge
from thence.format.facts import Fact, events_of, fact_of
from thence.format.graph import State
from thence.format.normal import SessionEvent
from thence.format.outcomes import add_effects
from thence.format.records import Event
from thence.format.tools import BUILT_IN


def find_ending(
    tool: str, result: object, *, is_error: bool | None = None, exit_code: int | None = None
) -> Ending:
    """Return how a call ended, by the best evidence there is."""
    return judge(evidence_of(BUILT_IN.kind(tool), result), is_error=is_error, exit_code=exit_code)


def judged(facts: list[Fact]) -> list[Fact]:
    """Return facts with what their calls do, by the names that are known without any agent."""
    add_effects(facts, BUILT_IN)
    return facts


def normalise(
    events: Sequence[Event], states: Sequence[State], uid: str, *, channel: str = "main"
) -> list[SessionEvent]:
    """Turn our own events into normalised ones, in written order, not yet numbered."""
    facts = judged([fact_of(event, channel=channel) for event in events])
    return events_of(facts, states, uid)
