"""Work of a session, counted: runs of tests, edits since, files edited again, discarded branches.

All of it is plain data that goes on where it was: `add` takes the next part of a session.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from thence.format import derived_events, output
from thence.format.expressions import expression
from thence.format.normal import SessionEvent
from thence.memory.error_tally import QUOTE_BYTES
from thence.memory.session_timeline import (
    DeadBranch,
    SessionTimeline,
    TestRun,
    cut_short,
    event_text,
    prompt_text,
    short,
)
from thence.memory.tally import MAX_POINTERS, Place, Pointers, best

MIN_REWORK_ROUNDS: Final = 3
"""Times a file was edited again after a command failed or a human corrected; two are a fix."""

MIN_CHURN_EDITS: Final = 7
"""Rounds of editing one file in one turn, with commands in between, though nothing failed."""

_PROSE: Final = (".md", ".rst", ".txt", ".adoc")
"""How files end that no test reads: edits of these alone need no run."""

BRANCH_TOKENS: Final = 1_000
"""Tokens from which a discarded branch is worth telling: less is a prompt that was worded anew."""

MAX_BRANCHES: Final = 12
"""Discarded branches that a digest has room for."""

MAX_PER_KIND: Final = 5
"""Signals of one kind that are kept of a session: the weightiest."""


# -- tests ----------------------------------------------------------------------------------

# fmt: off
_NAMED = expression(r"(?:FAILED|ERROR) (\S+::\S+)|--- FAIL: (\S+)|not ok \d+ -? ?(.+)|"
                    r"test (\S+) \.\.\. FAILED|\u2715 (.+)")
# fmt: on


def failing_tests(run: TestRun) -> list[str]:
    """Name the tests that a run says have failed."""
    text = output.plain(output.text(run.call.result.payload)) if run.call.result else ""
    names = (next(filter(None, match.groups())) for match in _NAMED.finditer(text))
    return [short(name, 120) for name in dict.fromkeys(names)][:5]


class RunSeen(msgspec.Struct, frozen=True):
    """A run of tests that another one may contradict."""

    red: bool
    event: int
    ts: str | None
    runner: str
    quote: str = ""
    tests: tuple[str, ...] = ()


class Flips(msgspec.Struct):
    """A command that gave another result although nothing had been changed."""

    count: int
    runs: tuple[RunSeen, RunSeen]
    """Of the first time."""


class FlakyTally(msgspec.Struct, omit_defaults=True):
    """Runs of tests since something was changed, and those that contradicted each other."""

    before: dict[str, RunSeen] = {}
    flips: dict[str, Flips] = {}

    def add(self, timeline: SessionTimeline) -> None:
        """Count the runs of the next part of a session."""
        if not self.before and not timeline.runs:
            return
        runs = {run.call.call.event_id: run for run in timeline.runs}
        pairs = {pair.call.event_id: pair for pair in timeline.calls}
        before: dict[str, RunSeen | TestRun] = {**self.before}
        for event in timeline.spoken:
            if event.kind == "user_msg":
                before.clear()  # who speaks may have changed something as well
            elif (run := runs.get(event.event_id)) is not None:
                last = before.get(run.command)
                if last is not None and last.red != run.red:
                    self._flip(run.command, last, run)
                before[run.command] = run
            elif before and event.event_id in pairs and timeline.may_change(pairs[event.event_id]):
                before.clear()
        self.before = {command: _run_seen(run) for command, run in before.items()}

    def _flip(self, command: str, last: RunSeen | TestRun, run: TestRun) -> None:
        if command in self.flips:
            self.flips[command].count += 1
        else:
            self.flips[command] = Flips(1, (_run_seen(last), _run_seen(run)))


def _run_seen(run: RunSeen | TestRun) -> RunSeen:
    if isinstance(run, RunSeen):
        return run
    event, result, runner = run.call.call, run.call.result, short(run.runner, 80)
    if not run.red:
        return RunSeen(run.red, event.event_id, event.ts, runner)
    quote = short(event_text(result), QUOTE_BYTES) if result is not None else ""
    tests = tuple(failing_tests(run))
    return RunSeen(run.red, event.event_id, event.ts, runner, quote, tests)


# -- files ----------------------------------------------------------------------------------


class EditedFile(msgspec.Struct, omit_defaults=True):
    """Rounds of editing one file. A round ends with a command or a prompt."""

    edits: Pointers = msgspec.field(default_factory=Pointers)
    last: str = ""
    """The last edit, in short."""
    again: int = 0
    """Rounds after something had failed."""
    command: int = -1
    """The command after which it was edited last."""
    turn: int = -1
    rounds: int = 0
    """In that turn."""
    most: int = 0
    """Rounds in one turn, at most."""

    @property
    def is_rework(self) -> bool:
        """Whether that is more than a fix takes."""
        return self.again >= MIN_REWORK_ROUNDS or self.most >= MIN_CHURN_EDITS


class ReworkTally(msgspec.Struct, omit_defaults=True):
    """Files of the line that were edited, commands and turns by their numbers."""

    files: dict[str, EditedFile] = {}
    commands: int = 0
    red: int = -1
    """The last command that failed, or the start of a turn that corrects."""
    turn: int = 0

    def add(self, timeline: SessionTimeline, corrected: Collection[int]) -> None:
        """Count the edits of the next part of a session; some of its turns correct the last."""
        for at, turn in enumerate(timeline.turns):
            if turn.prompt:
                self.turn += 1
                self._check(red=at in corrected)
            for pair in timeline.calls_in(turn.events):
                if pair.outcome.edited:
                    place = timeline.places[pair.call.event_id]
                    for path in dict.fromkeys(pair.outcome.edited):
                        self._edit(path, place, pair.call)
                elif pair.effect.is_script:
                    self._check(red=pair.outcome.failed and not cut_short(pair))

    def _check(self, *, red: bool) -> None:
        self.commands += 1
        if red:
            self.red = self.commands

    def _edit(self, path: str, place: Place, event: SessionEvent) -> None:
        file = self.files.setdefault(path, EditedFile())
        if file.command != self.commands:
            file.again += bool(file.edits.count) and self.red > file.command
            file.rounds = file.rounds + 1 if file.turn == self.turn else 1
            file.turn = self.turn
            file.most = max(file.most, file.rounds)
        file.command = self.commands
        file.edits.add(place, event)
        file.last = short(event.summary, QUOTE_BYTES)


class LastRun(msgspec.Struct, frozen=True):
    """The last run of the tests."""

    event: int
    ts: str | None
    runner: str
    command: str


class UntestedTally(msgspec.Struct, omit_defaults=True):
    """Edits since the tests were run last."""

    run: LastRun | None = None
    edits: Pointers = msgspec.field(default_factory=Pointers)
    last: str = ""
    edited_at: str | None = None
    """The last of them, and when."""
    files: list[str] = []
    tested_elsewhere_at: str | None = None
    """When a subagent ran tests for the last time."""

    def add(self, timeline: SessionTimeline) -> None:
        """Count the edits of the next part of a session."""
        runs = {run.call.call.event_id: run for run in timeline.runs}
        for pair in timeline.calls:
            event = pair.call
            if (run := runs.get(event.event_id)) is not None:
                command = short(run.command, 300)
                self.run = LastRun(event.event_id, event.ts, short(run.runner, 80), command)
                self.edits, self.files = Pointers(), []
            elif self.run is not None and not all(map(_is_prose, pair.outcome.edited)):
                self.edits.add(timeline.places[event.event_id], event)
                self.last, self.edited_at = event.summary, event.ts
                paths = (short(path, 300) for path in pair.outcome.edited)
                self.files = list(dict.fromkeys((*self.files, *paths)))[:MAX_POINTERS]
        for pair in timeline.all_calls:
            if pair.call.is_sidechain and pair.effect.runner is not None:
                self.tested_elsewhere_at = _later(self.tested_elsewhere_at, pair.call.ts)

    @property
    def is_tested_elsewhere(self) -> bool:
        """Whether a subagent ran tests after the last edit, as far as the log has times."""
        edited, tested = (
            derived_events.time_of(self.edited_at),
            derived_events.time_of(self.tested_elsewhere_at),
        )
        return edited is not None and tested is not None and tested >= edited


def _later(*texts: str | None) -> str | None:
    times = [(time, text) for text in texts if (time := derived_events.time_of(text)) is not None]
    return max(times)[1] if times else None


def _is_prose(path: str) -> bool:
    return path.lower().endswith(_PROSE)


# -- branches -------------------------------------------------------------------------------


class BranchSeen(msgspec.Struct, frozen=True):
    """A discarded branch."""

    place: Place
    first: int
    last: int
    ts: str | None
    events: int
    tokens: int
    ticks: int
    prompt: str
    quote: str


class BranchTally(msgspec.Struct, omit_defaults=True):
    """The branches that cost most, and how many there are."""

    count: int = 0
    dearest: list[BranchSeen] = []
    """In the order of what they cost, then of their length."""
    worth_telling: list[BranchSeen] = []

    def add(self, timeline: SessionTimeline) -> None:
        """Count the branches of the next part of a session."""
        if not timeline.branches:
            return
        seen = [_branch_seen(timeline, branch) for branch in timeline.branches]
        self.count += len(seen)
        self.dearest = best(
            (*self.dearest, *seen),
            MAX_BRANCHES,
            lambda branch: (-branch.ticks, -branch.tokens, -branch.events, branch.place),
        )
        self.worth_telling = best(
            (*self.worth_telling, *(b for b in seen if b.tokens >= BRANCH_TOKENS)),
            MAX_PER_KIND,
            lambda branch: (-branch.ticks, -branch.tokens, branch.place),
        )


def _branch_seen(timeline: SessionTimeline, branch: DeadBranch) -> BranchSeen:
    first, last = branch.events[0], branch.events[-1]
    prompt = next((prompt_text(e) for e in branch.events if e.kind == "user_msg"), "")
    replies = (event_text(e) for e in branch.events if e.kind == "assistant_msg")
    return BranchSeen(
        timeline.places[first.event_id],
        first.event_id,
        last.event_id,
        first.ts,
        len(branch.events),
        branch.tokens,
        branch.ticks,
        short(prompt, 160),
        short(prompt or next(replies, ""), QUOTE_BYTES),
    )
