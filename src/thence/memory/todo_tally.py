"""To-dos of a session, followed as it grows: lists of its tools, and the words that close turns.

Plain data that goes on where it was: `add` takes the next part of a session. Of a list that is
written anew each time the last one is remembered, with the events that its entries came from.
"""

from __future__ import annotations

from typing import Final

import msgspec

from thence.format.derived_events import Call
from thence.format.todos import (
    ListEntries,
    Step,
    Todo,
    entries_of,
    evidence_of,
    is_list_tool,
    pending_todos,
    todo_steps,
)
from thence.memory.session_timeline import SessionTimeline, call_step, event_text

_CLOSING_TURNS: Final = 3  # turns whose closing words are read for check lists
_CLOSING_CHARS: Final = 2_000  # characters of such words; what is left to do stands at their end
_LATE_CALLS: Final = 64  # calls after the last answer that may fulfil what it says


class NumberedStep(msgspec.Struct, frozen=True):
    """A step and its number among all that were seen."""

    number: int
    turn: int
    step: Step


class TodoTally(msgspec.Struct, omit_defaults=True):
    """What lists hold, and what was said last."""

    steps: int = 0
    turn: int = 0
    lists: list[NumberedStep] = []
    """Calls that lists are made of."""
    opened: dict[str, dict[str, str]] = {}
    """By list where its entries came up first, by their texts."""
    closings: list[NumberedStep] = []
    """Closing words of the last turns; those of the last turn may not be the last ones."""
    late: list[NumberedStep] = []
    """Calls after the last answer of the last turn."""

    def add(self, timeline: SessionTimeline) -> None:
        """Follow the next part of a session."""
        lists: list[NumberedStep] = []
        for turn in timeline.turns:
            if turn.prompt:
                self.turn += 1
                self.late = []
            answers = [event for event in turn.events if event.kind == "assistant_msg"]
            for event in turn.events:
                if answers and event is answers[-1]:
                    text = event_text(event)[-_CLOSING_CHARS:]
                    if self.is_answered:
                        self.closings.pop()
                    step = Step(f"{event.event_id}", "assistant", text)
                    self.closings.append(self._numbered(step))
                    self.late = []
                elif (pair := timeline.pairs.get(event.event_id)) is not None:
                    self._add_call(pair, lists)
        self.closings = [
            words for words in self.closings if words.turn > self.turn - _CLOSING_TURNS
        ]
        if lists:
            by_id = {entry.step.id: entry for entry in (*self.lists, *lists)}
            left = todo_steps(entry.step for entry in by_id.values())
            self.lists = [msgspec.structs.replace(by_id[step.id], step=step) for step in left]

    @property
    def is_answered(self) -> bool:
        """Whether the last turn has an answer."""
        return bool(self.closings) and self.closings[-1].turn == self.turn

    def _numbered(self, step: Step) -> NumberedStep:
        self.steps += 1
        return NumberedStep(self.steps, self.turn, step)

    def _add_call(self, pair: Call, lists: list[NumberedStep]) -> None:
        step = call_step(f"{pair.call.event_id}", pair)
        is_list = is_list_tool(step.tool) and pair.effect.kind == "plan"
        if not is_list and not self.is_answered:
            return
        entry = self._numbered(step)
        if is_list:
            lists.append(entry)
            self._open(entries_of(entry.step), entry.step.id)
        if self.is_answered:
            light = msgspec.structs.replace(entry, step=evidence_of(entry.step))
            self.late = [*self.late, light][-_LATE_CALLS:]

    def _open(self, entries: ListEntries | None, event: str) -> None:
        if entries is not None:
            before = self.opened.get(entries.family, {})
            opened = {text: before.get(text, event) for text in entries.texts}
            self.opened[entries.family] = opened if entries.replaces else {**opened, **before}

    def pending(self, *, ended_well: bool) -> list[Todo]:
        """Return what is open: entries of lists, and what the last answer says is still to do.

        The words of a session that ended well promise nothing; one that runs has not ended.
        """
        ended_well = ended_well or not self.is_answered
        if ended_well and not self.lists and not self.closings:
            return []
        steps = {entry.step.id: entry for entry in (*self.late, *self.lists, *self.closings)}
        ordered = sorted(steps.values(), key=lambda entry: entry.number)
        opened = {text: event for by in self.opened.values() for text, event in by.items()}
        return [
            msgspec.structs.replace(todo, opened_by=opened.get(todo.text, todo.opened_by))
            if todo.origin == "tool"
            else todo
            for todo in pending_todos([entry.step for entry in ordered], ended_well=ended_well)
        ]

    def open_on_lists(self) -> int:
        """Return how many entries of the lists of tools are open."""
        if not self.lists:
            return 0
        return sum(todo.origin == "tool" for todo in self.pending(ended_well=True))
