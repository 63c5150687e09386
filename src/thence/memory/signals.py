"""Signals: typed facts worth knowing about a session, each with its evidence.

A signal points at events by their ids and quotes what they said, redacted and short, so that it
stays meaningful when the events themselves are evicted. Each kind has a tally, plain data that goes
on where it was: `add` takes the next part of a session, `signals` returns what is worth knowing so
far. Thresholds stand with their reasons. What happened on discarded branches and in subagents
counts too, where that cost something, and never copies of other sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, Literal

import msgspec

from thence.format import derived_events, output
from thence.format.derived_events import Call
from thence.format.expressions import expression
from thence.format.figures import several
from thence.format.normal import SessionEvent
from thence.format.records import JSON
from thence.format.turn import TurnState
from thence.format.wording import only_goes_on
from thence.memory.error_tally import MIN_LOOP_CALLS, QUOTE_BYTES, ErrorTally
from thence.memory.session_timeline import (
    SessionTimeline,
    TimelineTurn,
    cut_short,
    event_text,
    is_measured,
    milliseconds_between,
    short,
    waits_for_human,
)
from thence.memory.tally import MAX_POINTERS, Pointers, best, point_at
from thence.memory.work_tally import (
    BRANCH_TOKENS,
    MAX_PER_KIND,
    MIN_REWORK_ROUNDS,
    BranchTally,
    FlakyTally,
    ReworkTally,
    UntestedTally,
)

Kind = Literal[
    "repeated_error",
    "retry_loop",
    "flaky_test",
    "rework",
    "untested_edit",
    "abandoned_branch",
    "human_correction",
    "slow_tool",
    "context_blow_up",
    "permission_wait",
]
Severity = Literal["low", "medium", "high"]

MIN_REPEATS: Final = 3
"""The same error so often: twice is an error and its second try, three times is a pattern."""

SLOW_MS: Final = 120_000
"""Two minutes: the time after which clients give up on a command by default."""

CONTEXT_JUMP_TOKENS: Final = 40_000
"""Tokens that one step adds to the context: a fifth of a usual window, for one answer."""

MIN_COMPACTIONS: Final = 3
"""Compactions of one session: by then most of what was said has been summed up twice."""

WAIT_MS: Final = 60_000
"""A minute of waiting for a human: an agent that could have worked did not."""


class Signal(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fact about a session, with pointers to its evidence and a quote that outlives it."""

    kind: Kind
    severity: Severity
    text: str
    """What happened, in one sentence."""
    events: tuple[int, ...] = ()
    """Ids of the events that show it, the first and the last among them."""
    quote: str = ""
    """What was said there, redacted."""
    ts: str | None = None
    """When it was first seen."""
    data: dict[str, JSON] = {}
    """Figures, by name; each kind has its own."""


def _signal(
    kind: Kind,
    severity: Severity,
    text: str,
    shown_by: Pointers,
    quote: str = "",
    /,
    **data: JSON,
) -> Signal:
    return Signal(
        kind, severity, short(text, 300), shown_by.ids, short(quote, QUOTE_BYTES), shown_by.ts, data
    )


# -- errors ---------------------------------------------------------------------------------


def repeated_errors(tally: SignalTally, _: SessionTimeline) -> Iterator[Signal]:
    """Yield errors that came again and again; those of subagents are counted apart.

    An error that nothing names is left out.
    """
    often = [
        (name, in_subagents, entry)
        for (name, in_subagents), entry in tally.errors.entries.items()
        if ": " in name and entry.results.count >= MIN_REPEATS
    ]
    often.sort(key=lambda row: (-row[2].results.count, row[2].results.first[0]))
    for name, in_subagents, entry in often:
        count, where = entry.results.count, " in subagents" if in_subagents else ""
        yield _signal(
            "repeated_error",
            "high" if count >= 2 * MIN_REPEATS else "medium",
            f"the same error {count} times{where}: {name}",
            entry.results,
            entry.first_quote,
            fingerprint=name,
            count=count,
        )


def retry_loops(tally: SignalTally, _: SessionTimeline) -> Iterator[Signal]:
    """The same call failed again and again."""
    for loop in tally.errors.longest_loops():
        count = loop.calls.count
        yield _signal(
            "retry_loop",
            "high" if count >= 2 * MIN_LOOP_CALLS else "medium",
            f"failed {count} times in a row: {loop.what}",
            loop.calls,
            loop.quote,
            tool=loop.tool,
            count=count,
            tokens=loop.paid_until[0] - loop.paid_before[0],
            ticks=loop.paid_until[1] - loop.paid_before[1],
        )


# -- tests and files ------------------------------------------------------------------------


def flaky_tests(tally: SignalTally, _: SessionTimeline) -> Iterator[Signal]:
    """The same tests gave another result although nothing had been changed."""
    flips = tally.flaky.flips
    for command, flipped in sorted(flips.items(), key=lambda entry: -entry[1].count):
        first, second = flipped.runs
        red = first if first.red else second
        runs = [(("", at, 0), run.event, run.ts) for at, run in enumerate(flipped.runs)]
        yield _signal(
            "flaky_test",
            "high" if flipped.count > 1 else "medium",
            f"red and green without a change in between: {command}",
            Pointers(2, runs),
            red.quote,
            runner=red.runner,
            command=short(command, 200),
            tests=list(red.tests),
            flips=flipped.count,
        )


def reworks(tally: SignalTally, _: SessionTimeline) -> Iterator[Signal]:
    """A file had to be edited again after something failed, or round after round in one turn."""
    often = [(path, file) for path, file in tally.reworks.files.items() if file.is_rework]
    for path, file in sorted(
        often, key=lambda entry: (-entry[1].again, -entry[1].edits.count, entry[0])
    ):
        again, count = file.again, file.edits.count
        yield _signal(
            "rework",
            "high" if again >= 2 * MIN_REWORK_ROUNDS else "low",
            f"edited again {again} times after something failed, {count} edits: {path}",
            file.edits,
            file.last,
            path=short(path, 300),
            again=again,
            edits=count,
        )


def untested_edits(tally: SignalTally, _: SessionTimeline) -> Iterator[Signal]:
    """Files were edited after the tests had been run for the last time."""
    untested = tally.untested
    run, edits = untested.run, untested.edits
    if run is None or not edits.count or untested.is_tested_elsewhere:
        return
    shown = [(("", 0, 0), run.event, run.ts), *edits.firsts]
    yield _signal(
        "untested_edit",
        "medium",
        f"tests were last run before the last edit: {several(edits.count, 'edit')} since"
        f" {run.command}",
        Pointers(edits.count + 1, shown[:MAX_POINTERS], edits.last),
        untested.last,
        runner=run.runner,
        edits=edits.count,
        files=list(untested.files),
    )


# -- branches and people --------------------------------------------------------------------


def abandoned_branches(tally: SignalTally, _: SessionTimeline) -> Iterator[Signal]:
    """Work that the session went back from, with what it had cost."""
    for branch in tally.branches.worth_telling:
        ends = [(branch.place, branch.first, branch.ts), (branch.place, branch.last, None)]
        yield _signal(
            "abandoned_branch",
            "high" if branch.tokens >= 100 * BRANCH_TOKENS else "medium",
            f"discarded: {several(branch.events, 'event')}, {branch.tokens:,} tokens",
            Pointers(2, ends),
            branch.quote,
            events=branch.events,
            tokens=branch.tokens,
            ticks=branch.ticks,
        )


class CorrectionTally(msgspec.Struct, omit_defaults=True):
    """The first corrections of a human, and how the last turn ended so far."""

    signals: list[Signal] = []
    has_turn: bool = False
    asks: bool = False
    """It ends in a question."""
    is_stopped: bool = False
    """It ends in a call that a human refused or cut off."""

    def add(self, timeline: SessionTimeline) -> set[int]:
        """Count the corrections of the next part of a session; return its turns that are such."""
        corrected: set[int] = set()
        for at, turn in enumerate(timeline.turns):
            if turn.prompt:
                if self.has_turn and (how := self._how(timeline, turn)) is not None:
                    corrected.add(at)
                    self._note(turn, how)
                self.asks = self.is_stopped = False
            if turn.events:
                self.asks = _asks(turn)
                self.is_stopped = _is_stopped(timeline, turn)
            self.has_turn = self.has_turn or bool(turn.prompt or turn.events)
        return corrected

    def _how(self, timeline: SessionTimeline, turn: TimelineTurn) -> str | None:
        """Return how a turn corrects the one before it; None if it does not."""
        how = timeline.correction(turn)
        if how == "no" and self.asks:
            return None  # that is an answer
        if how is None and self.is_stopped and not only_goes_on(turn.text):
            return STOPPED
        return how

    def _note(self, turn: TimelineTurn, how: str) -> None:
        if len(self.signals) < MAX_PER_KIND:
            what = "stopped the agent and set it right" if how == STOPPED else "corrected the agent"
            text, shown_by = f"the human {what}", point_at(*turn.prompt)
            self.signals.append(
                _signal("human_correction", "medium", text, shown_by, turn.text, how=how)
            )


def human_corrections(tally: SignalTally, _: SessionTimeline) -> Iterator[Signal]:
    """A human said that it was not what was wanted: in words, or by stopping the agent."""
    yield from tally.corrections.signals


STOPPED: Final = "stopped"
_BY_HAND = expression(
    r"\[Request interrupted by user|The user doesn't want|User (?:rejected|cance)"
)


def _asks(turn: TimelineTurn) -> bool:
    """Whether a turn came to its rest with a question."""
    last = turn.events[-1]
    return last.kind == "assistant_msg" and event_text(last).rstrip().endswith("?")


def _is_stopped(timeline: SessionTimeline, turn: TimelineTurn) -> bool:
    """Whether the last thing in a turn is a call that a human refused or cut off."""
    if turn.events[-1].kind not in ("tool_result", "error"):
        return False
    calls = timeline.calls_in(turn.events)
    result = calls[-1].result if calls else None
    if result is None or result is not turn.events[-1] or not cut_short(calls[-1]):
        return False
    return _BY_HAND.match(output.open_envelope(event_text(result))[1]) is not None


# -- time and room --------------------------------------------------------------------------


def slow_tools(timeline: SessionTimeline) -> Iterator[Signal]:
    """Calls that took long, questions to humans and the work of subagents apart."""
    for took, pair in timeline.timed_calls:
        if took >= SLOW_MS and _own(timeline, pair):
            yield _signal(
                "slow_tool",
                "high" if took >= 5 * SLOW_MS else "low",
                f"took {took // 1000} s: {pair.call.summary}",
                point_at(pair.call, *([pair.result] if pair.result else [])),
                pair.call.summary,
                tool=short(pair.call.tool or "", 120),
                took_ms=took,
            )


def _by_time(slow: Signal) -> tuple[int, int]:
    return -slow.data["took_ms"], slow.events[0]


def slowest_tools(tally: SignalTally, _: SessionTimeline) -> Iterator[Signal]:
    """The calls that took longest."""
    yield from tally.slow


def _own(timeline: SessionTimeline, pair: Call) -> bool:
    """Whether the time of a call was its own.

    Between the times of a call and its result a human may have been asked. Where the log does not
    measure the call, only commands that are known to run long are believed.
    """
    if pair.effect.kind == "agent" or waits_for_human(pair) or cut_short(pair):
        return False
    return is_measured(pair) or timeline.may_run_long(pair)


class ContextSeen(msgspec.Struct, frozen=True):
    """How much a model was given to read, with what decides whether two can be compared."""

    tokens: int
    state: str
    model: str | None


class HeavyEvent(msgspec.Struct, frozen=True):
    """The largest event since the last response."""

    size: int
    event: int
    ts: str | None
    what: str


class ContextTally(msgspec.Struct, omit_defaults=True):
    """How the context grew, and what was added to it since the last response."""

    last: ContextSeen | None = None
    heavy: HeavyEvent | None = None
    jumps: list[Signal] = []
    """The largest ones."""
    peak: int = 0
    summaries: Pointers = msgspec.field(default_factory=Pointers)

    def add(self, timeline: SessionTimeline) -> None:
        """Count the responses of the next part of a session."""
        for event in timeline.summaries:
            self.summaries.add(timeline.places[event.event_id], event)
        contexts = timeline.contexts
        if not contexts and self.last is None:
            return
        order = {event.event_id: at for at, event in enumerate(timeline.events)}
        start = 0
        for bill in contexts:
            end = order[bill.event.event_id] + 1
            state = "" if bill.event.state is None else bill.event.state.value
            now = ContextSeen(bill.context, state, bill.event.model)
            self.peak = max(self.peak, now.tokens)
            self._compare(now, bill.event, timeline.events[start:end])
            self.last, self.heavy, start = now, None, end
        self.heavy = self._heaviest(timeline.events[start:])

    def _compare(self, now: ContextSeen, event: SessionEvent, span: list[SessionEvent]) -> None:
        last = self.last
        if last is None or (now.state, now.model) != (last.state, last.model):
            return
        added = now.tokens - last.tokens
        heavy = self._heaviest(span) if added >= CONTEXT_JUMP_TOKENS else None
        if heavy is None:
            return
        shown_by = [(("", 0, 0), heavy.event, heavy.ts), (("", 1, 0), event.event_id, event.ts)]
        jump = _signal(
            "context_blow_up",
            "high" if added >= 2 * CONTEXT_JUMP_TOKENS else "medium",
            f"one step added {added:,} tokens to the context, now {now.tokens:,}",
            Pointers(2, shown_by),
            heavy.what,
            added=added,
            context=now.tokens,
        )
        self.jumps = best((*self.jumps, jump), MAX_PER_KIND, _by_growth)

    def _heaviest(self, span: Iterable[SessionEvent]) -> HeavyEvent | None:
        """Return the largest event since the last response, with some that follow."""
        heavy = self.heavy
        for event in span:
            size = _weight(event)
            if heavy is None or size > heavy.size:
                what = short(event.summary, QUOTE_BYTES)
                heavy = HeavyEvent(size, event.event_id, event.ts, what)
        return heavy


def _by_growth(jump: Signal) -> int:
    return -int(jump.data["added"])


def _weight(event: SessionEvent) -> int:
    if event.is_sidechain or event.role == "system":  # the model never saw those
        return -1
    if event.kind not in ("tool_result", "user_msg", "lifecycle"):
        return -1
    return len(output.text(event.payload))


def context_blow_ups(tally: SignalTally, _: SessionTimeline) -> Iterator[Signal]:
    """One step filled much of the context, or it had to be compacted again and again."""
    yield from tally.contexts.jumps
    sums = tally.contexts.summaries
    if sums.count >= MIN_COMPACTIONS:
        text = f"the context was compacted {sums.count} times"
        yield _signal("context_blow_up", "medium", text, sums, count=sums.count)


class OpenWait(msgspec.Struct, frozen=True):
    """A wait that has not ended."""

    event: int
    ts: str | None
    what: str


class WaitTally(msgspec.Struct, omit_defaults=True):
    """The longest waits for a human, by the log's own notes or as questions of the agent."""

    noted: list[Signal] = []
    asked: list[Signal] = []
    since: OpenWait | None = None

    def add(self, timeline: SessionTimeline) -> None:
        """Count the waits of the next part of a session."""
        noted = list(self._noted(timeline))
        self.noted = best((*self.noted, *noted), MAX_PER_KIND, _by_wait)
        asked = [
            _wait(took, pair.call.summary, point_at(pair.call, pair.result or pair.call))
            for took, pair in timeline.timed_calls
            # A look takes no time: what passed until it was done was a question to a human.
            if took >= WAIT_MS
            and not pair.call.is_sidechain
            and (waits_for_human(pair) or _was_held_up(timeline, pair))
        ]
        self.asked = best((*self.asked, *asked), MAX_PER_KIND, _by_wait)

    def _noted(self, timeline: SessionTimeline) -> Iterator[Signal]:
        for event in timeline.events:
            if event.native_type in ("permission_requested", "waiting"):
                self.since = OpenWait(event.event_id, event.ts, short(event.summary, QUOTE_BYTES))
            elif (since := self.since) is not None and _ends_wait(event):
                begin, end = derived_events.time_of(since.ts), derived_events.time_of(event.ts)
                self.since = None
                took = milliseconds_between(begin, end) if begin and end else 0
                if took >= WAIT_MS:
                    ends = [(("", 0, 0), since.event, since.ts), (("", 1, 0), event.event_id, None)]
                    yield _wait(took, since.what, Pointers(2, ends))


def _wait(took: int, what: str, shown_by: Pointers) -> Signal:
    return _signal(
        "permission_wait",
        "high" if took >= 10 * WAIT_MS else "low",
        f"waited {took // 1000} s for a human: {what}",
        shown_by,
        what,
        waited_ms=took,
    )


def _by_wait(wait: Signal) -> int:
    return -int(wait.data["waited_ms"])


def permission_waits(tally: SignalTally, timeline: SessionTimeline) -> Iterator[Signal]:
    """The agent waited for a human's leave or answer, for long or for ever."""
    yield from sorted((*tally.waits.noted, *tally.waits.asked), key=_by_wait)
    now = timeline.session.turn()
    if now.state is TurnState.WAITING and timeline.spoken:
        last = timeline.spoken[-1]
        text = f"it ends waiting for a human: {last.summary}"
        shown_by = point_at(last)
        yield _signal("permission_wait", "medium", text, shown_by, last.summary, for_ever=True)


def _was_held_up(timeline: SessionTimeline, pair: Call) -> bool:
    look = not is_measured(pair) and timeline.only_looks(pair)
    return look and not timeline.may_run_long(pair)


def _ends_wait(event: SessionEvent) -> bool:
    if event.native_type in ("permission_resolved", "turn_started", "turn_ended"):
        return True
    return event.kind in ("user_msg", "tool_result") and not event.is_sidechain


# -- all of them ----------------------------------------------------------------------------


class SignalTally(msgspec.Struct, omit_defaults=True):
    """What the signals of a session rest on: a tally for each kind."""

    errors: ErrorTally = msgspec.field(default_factory=ErrorTally)
    flaky: FlakyTally = msgspec.field(default_factory=FlakyTally)
    reworks: ReworkTally = msgspec.field(default_factory=ReworkTally)
    untested: UntestedTally = msgspec.field(default_factory=UntestedTally)
    branches: BranchTally = msgspec.field(default_factory=BranchTally)
    corrections: CorrectionTally = msgspec.field(default_factory=CorrectionTally)
    slow: list[Signal] = []
    contexts: ContextTally = msgspec.field(default_factory=ContextTally)
    waits: WaitTally = msgspec.field(default_factory=WaitTally)

    def add(self, timeline: SessionTimeline) -> None:
        """Count the next part of a session."""
        self.errors.add(timeline)
        self.flaky.add(timeline)
        self.reworks.add(timeline, self.corrections.add(timeline))
        self.untested.add(timeline)
        self.branches.add(timeline)
        self.slow = best((*self.slow, *slow_tools(timeline)), MAX_PER_KIND, _by_time)
        self.contexts.add(timeline)
        self.waits.add(timeline)


Finder = Callable[[SignalTally, SessionTimeline], Iterable[Signal]]
FINDERS: Final[tuple[Finder, ...]] = (
    repeated_errors,
    retry_loops,
    flaky_tests,
    reworks,
    untested_edits,
    abandoned_branches,
    human_corrections,
    slowest_tools,
    context_blow_ups,
    permission_waits,
)
"""One for each kind, in the order of `Kind`."""


def signals(timeline: SessionTimeline, tally: SignalTally | None = None) -> list[Signal]:
    """Return what is worth knowing about a session, kind by kind, the weightiest of each first.

    Of one that `tally` has counted, `timeline` is its end.
    """
    if tally is None:
        tally = SignalTally()
        tally.add(timeline)
    return [signal for find in FINDERS for signal in islice(find(tally, timeline), MAX_PER_KIND)]
