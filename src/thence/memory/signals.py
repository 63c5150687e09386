"""Signals: typed facts worth knowing about a session, each with its evidence.

A signal points at events by their ids and quotes what they said, redacted and short, so that it
stays meaningful when the events themselves are evicted. Each kind is one pure function over the
timeline of a session; its threshold stands beside it with the reason. They count what happened on
discarded branches and in subagents too, where that cost something, and never copies of other
sessions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, Literal

import msgspec

from thence.format import joins, output, tools
from thence.format.expressions import expression
from thence.format.figures import several
from thence.format.joins import Call
from thence.format.normal import SessionEvent
from thence.format.records import JSON
from thence.format.turn import TurnState
from thence.format.wording import corrects, only_goes_on
from thence.memory.course import (
    SessionTimeline,
    TestRun,
    TimelineBill,
    TimelineTurn,
    ToolError,
    cut_short,
    event_text,
    ids_of,
    is_measured,
    milliseconds_between,
    prompt_text,
    short,
    waits_for_human,
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

MIN_LOOP_CALLS: Final = 3
"""Failures of the same call in a row, nothing changed in between: trying the same again."""

MIN_STUCK_CALLS: Final = 5
"""The same with edits in between: work that does not get on. Fewer is how tests are fixed."""

MIN_REWORK_ROUNDS: Final = 3
"""Times a file was edited again after a command failed or a human corrected; two are a fix."""

MIN_CHURN_EDITS: Final = 7
"""Rounds of editing one file in one turn, with commands in between, though nothing failed."""

_PROSE: Final = (".md", ".rst", ".txt", ".adoc")
"""How files end that no test reads: edits of these alone need no run."""

BRANCH_TOKENS: Final = 1_000
"""Tokens from which a discarded branch is worth telling: less is a prompt that was worded anew."""

SLOW_MS: Final = 120_000
"""Two minutes: the time after which clients give up on a command by default."""

CONTEXT_JUMP_TOKENS: Final = 40_000
"""Tokens that one step adds to the context: a fifth of a usual window, for one answer."""

MIN_COMPACTIONS: Final = 3
"""Compactions of one session: by then most of what was said has been summed up twice."""

WAIT_MS: Final = 60_000
"""A minute of waiting for a human: an agent that could have worked did not."""

MAX_PER_KIND: Final = 5
"""Signals of one kind that are kept of a session: the weightiest."""

MAX_POINTERS: Final = 12
QUOTE_BYTES: Final = 300


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


def signals(timeline: SessionTimeline) -> list[Signal]:
    """Return what is worth knowing about a session, kind by kind, the weightiest of each first."""
    return [signal for find in FINDERS for signal in islice(find(timeline), MAX_PER_KIND)]


def _signal(
    kind: Kind,
    severity: Severity,
    text: str,
    events: Sequence[SessionEvent],
    quote: str = "",
    /,
    **data: JSON,
) -> Signal:
    ends = events if len(events) <= MAX_POINTERS else [*events[: MAX_POINTERS - 1], events[-1]]
    when = events[0].ts if events and joins.time_of(events[0].ts) is not None else None
    return Signal(
        kind, severity, short(text, 300), tuple(ids_of(ends)), short(quote, QUOTE_BYTES), when, data
    )


# -- errors ---------------------------------------------------------------------------------


def repeated_errors(timeline: SessionTimeline) -> Iterator[Signal]:
    """Yield errors that came again and again; those of subagents are counted apart.

    An error that nothing names is left out.
    """
    by_shape: dict[tuple[str, bool], list[ToolError]] = {}
    for fault in timeline.errors:
        if not fault.vague:
            key = fault.fingerprint, fault.event.is_sidechain
            by_shape.setdefault(key, []).append(fault)
    often = [(*key, faults) for key, faults in by_shape.items() if len(faults) >= MIN_REPEATS]
    for name, in_subagents, faults in sorted(often, key=lambda row: -len(row[2])):
        where = " in subagents" if in_subagents else ""
        yield _signal(
            "repeated_error",
            "high" if len(faults) >= 2 * MIN_REPEATS else "medium",
            f"the same error {len(faults)} times{where}: {name}",
            [fault.event for fault in faults],
            error_line(faults[0]),
            fingerprint=name,
            count=len(faults),
        )


def error_line(fault: ToolError) -> str:
    """Return the words of an error, without the envelope a client puts around an output."""
    text = output.plain(output.open_envelope(event_text(fault.event))[1])
    text = text.replace("<tool_use_error>", "").replace("</tool_use_error>", "")
    kind, _, shape = fault.fingerprint.partition(": ")
    words = [word for word in re.split(r"<\w+>|\s+", shape) if len(word) > 3]
    lines = output.lines(text)
    best = max(lines, key=lambda line: sum(word in line for word in words), default="")
    return best.strip() or kind


def retry_loops(timeline: SessionTimeline) -> Iterator[Signal]:
    """The same call failed again and again."""
    loops = sorted(_loops(timeline), key=lambda loop: -len(loop))
    for loop in loops:
        first, last = loop[0], loop[-1]
        paid = _paid_between(timeline, first.call, last.result or last.call)
        yield _signal(
            "retry_loop",
            "high" if len(loop) >= 2 * MIN_LOOP_CALLS else "medium",
            f"failed {len(loop)} times in a row: {first.call.summary}",
            [pair.call for pair in loop],
            event_text(last.result) if last.result is not None else "",
            tool=short(first.call.tool or "", 120),
            count=len(loop),
            tokens=sum(bill.usage.total for bill in paid),
            ticks=sum(bill.ticks for bill in paid),
        )


def _loops(timeline: SessionTimeline) -> Iterator[list[Call]]:
    """Runs of failures of one call, long enough; edits in between allow for more of them."""
    if len(timeline.errors) < MIN_LOOP_CALLS:
        return
    failed: dict[tuple[str, str, int], list[Call]] = {}
    changed: dict[tuple[str, str, int], bool] = {}
    done: list[tuple[list[Call], bool]] = []
    for pair, key in zip(timeline.session.calls, timeline.retry_keys, strict=True):
        if pair.outcome.failed:
            if not cut_short(pair):
                failed.setdefault(key, []).append(pair)
                changed.setdefault(key, False)
        elif key in failed:
            done.append((failed.pop(key), changed.pop(key)))
        if timeline.edits(pair):
            changed = dict.fromkeys(changed, True)
    done += [(run, changed[key]) for key, run in failed.items()]
    for run, edited in done:
        if len(run) >= (MIN_STUCK_CALLS if edited else MIN_LOOP_CALLS):
            yield run


def _paid_between(
    timeline: SessionTimeline, first: SessionEvent, last: SessionEvent
) -> list[TimelineBill]:
    """What was billed from one event to another, in the channel of the first."""
    order = {event.event_id: at for at, event in enumerate(timeline.session.events)}
    low, high = order.get(first.event_id, 0), order.get(last.event_id, 0)
    return [
        bill
        for bill in timeline.bills
        if bill.event.channel == first.channel and low <= order[bill.event.event_id] <= high
    ]


# -- tests and files ------------------------------------------------------------------------

# fmt: off
_NAMED = expression(r"(?:FAILED|ERROR) (\S+::\S+)|--- FAIL: (\S+)|not ok \d+ -? ?(.+)|"
                    r"test (\S+) \.\.\. FAILED|\u2715 (.+)")
# fmt: on


def failing_tests(run: TestRun) -> list[str]:
    """Name the tests that a run says have failed."""
    text = output.plain(output.text(run.call.result.payload)) if run.call.result else ""
    names = (next(filter(None, match.groups())) for match in _NAMED.finditer(text))
    return [short(name, 120) for name in dict.fromkeys(names)][:5]


def flaky_tests(timeline: SessionTimeline) -> Iterator[Signal]:
    """The same tests gave another result although nothing had been changed."""
    red_and_green = {run.command for run in timeline.runs if run.red} & {
        run.command for run in timeline.runs if not run.red
    }
    if not red_and_green:
        return
    flips: dict[str, list[tuple[TestRun, TestRun]]] = {}
    before: dict[str, TestRun] = {}
    runs = {run.call.call.event_id: run for run in timeline.runs}
    pairs = {pair.call.event_id: pair for pair in timeline.calls}
    for event in timeline.spoken:
        if event.kind == "user_msg":
            before.clear()  # who speaks may have changed something as well
        elif (run := runs.get(event.event_id)) is not None:
            last = before.get(run.command)
            if last is not None and last.red != run.red:
                flips.setdefault(run.command, []).append((last, run))
            before[run.command] = run
        elif event.event_id in pairs and timeline.may_change(pairs[event.event_id]):
            before.clear()
    for command, flipped in sorted(flips.items(), key=lambda entry: -len(entry[1])):
        red = next(run for run in flipped[0] if run.red)
        yield _signal(
            "flaky_test",
            "high" if len(flipped) > 1 else "medium",
            f"red and green without a change in between: {command}",
            [run.call.call for run in flipped[0]],
            event_text(red.call.result) if red.call.result is not None else "",
            runner=short(red.runner, 80),
            command=short(command, 200),
            tests=failing_tests(red),
            flips=len(flipped),
        )


def reworks(timeline: SessionTimeline) -> Iterator[Signal]:
    """A file had to be edited again after something failed, or round after round in one turn."""
    rounds = _Rounds()
    corrected = {id(turn) for turn, _ in corrections(timeline)}
    for turn in timeline.turns:
        rounds.begin(trouble=id(turn) in corrected)
        for pair in timeline.calls_in(turn.events):
            if pair.outcome.edited:
                rounds.note_edit(dict.fromkeys(pair.outcome.edited), pair.call)
            elif pair.effect.is_script:
                red = pair.outcome.failed and not cut_short(pair)
                rounds.note_check(red=red)
    often = [(path, *entry) for path, entry in rounds.files.items() if rounds.is_rework(path)]
    for path, again, edits in sorted(
        often, key=lambda entry: (-entry[1], -len(entry[2]), entry[0])
    ):
        yield _signal(
            "rework",
            "high" if again >= 2 * MIN_REWORK_ROUNDS else "low",
            f"edited again {again} times after something failed, {len(edits)} edits: {path}",
            edits,
            edits[-1].summary,
            path=short(path, 300),
            again=again,
            edits=len(edits),
        )


class _Rounds:
    """Rounds of editing per file. A round ends with a command or a prompt."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[int, list[SessionEvent]]] = {}
        self._most: dict[str, int] = {}  # rounds in one turn
        self._turn: dict[str, int] = {}
        self._last: dict[str, int] = {}  # the command after which it was edited last
        self._commands = 0
        self._red = -1

    def begin(self, *, trouble: bool) -> None:
        """A turn begins, perhaps because the last one went wrong."""
        self._turn.clear()
        self.note_check(red=trouble)

    def note_check(self, *, red: bool) -> None:
        """Something was run."""
        self._commands += 1
        if red:
            self._red = self._commands

    def note_edit(self, paths: Iterable[str], event: SessionEvent) -> None:
        """Files were changed."""
        for path in paths:
            last = self._last.get(path)
            again, edits = self.files.get(path, (0, []))
            if last != self._commands:
                again += last is not None and self._red > last
                self._turn[path] = self._turn.get(path, 0) + 1
                self._most[path] = max(self._most.get(path, 0), self._turn[path])
            self._last[path] = self._commands
            edits.append(event)
            self.files[path] = again, edits

    def is_rework(self, path: str) -> bool:
        """Whether that is more than a fix takes."""
        return self.files[path][0] >= MIN_REWORK_ROUNDS or self._most[path] >= MIN_CHURN_EDITS


def untested_edits(timeline: SessionTimeline) -> Iterator[Signal]:
    """Files were edited after the tests had been run for the last time."""
    last: TestRun | None = None
    edits: list[Call] = []
    runs = {run.call.call.event_id: run for run in timeline.runs}
    for pair in timeline.calls:
        if pair.call.event_id in runs:
            last, edits = runs[pair.call.event_id], []
        elif last is not None and not all(map(_is_prose, pair.outcome.edited)):
            edits.append(pair)
    if last is None or not edits or _is_tested_elsewhere(timeline, edits[-1]):
        return
    paths = dict.fromkeys(path for pair in edits for path in pair.outcome.edited)
    yield _signal(
        "untested_edit",
        "medium",
        f"tests were last run before the last edit: {several(len(edits), 'edit')} since"
        f" {last.command}",
        [last.call.call, *(pair.call for pair in edits)],
        edits[-1].call.summary,
        runner=short(last.runner, 80),
        edits=len(edits),
        files=[short(path, 300) for path in paths][:MAX_POINTERS],
    )


def _is_prose(path: str) -> bool:
    return path.lower().endswith(_PROSE)


def _is_tested_elsewhere(timeline: SessionTimeline, edit: Call) -> bool:
    """Whether a subagent ran tests after an edit, as far as the log has times."""
    when = joins.time_of(edit.call.ts)
    if when is None:
        return False
    times = (
        joins.time_of(pair.call.ts)
        for pair in timeline.session.calls
        if pair.call.is_sidechain and pair.effect.runner is not None
    )
    return any(time is not None and time >= when for time in times)


# -- branches and people --------------------------------------------------------------------


def abandoned_branches(timeline: SessionTimeline) -> Iterator[Signal]:
    """Work that the session went back from, with what it had cost."""
    worth = [branch for branch in timeline.branches if branch.tokens >= BRANCH_TOKENS]
    for branch in sorted(worth, key=lambda candidate: (-candidate.ticks, -candidate.tokens)):
        prompts = [event for event in branch.events if event.kind == "user_msg"]
        replies = [event for event in branch.events if event.kind == "assistant_msg"]
        said_there = next((prompt_text(event) for event in prompts), "")
        yield _signal(
            "abandoned_branch",
            "high" if branch.tokens >= 100 * BRANCH_TOKENS else "medium",
            f"discarded: {several(len(branch.events), 'event')}, {branch.tokens:,} tokens",
            [branch.events[0], branch.events[-1]],
            said_there or next((event_text(event) for event in replies), ""),
            events=len(branch.events),
            tokens=branch.tokens,
            ticks=branch.ticks,
        )


def human_corrections(timeline: SessionTimeline) -> Iterator[Signal]:
    """A human said that it was not what was wanted: in words, or by stopping the agent."""
    for turn, how in corrections(timeline):
        what = "stopped the agent and set it right" if how == STOPPED else "corrected the agent"
        yield _signal(
            "human_correction", "medium", f"the human {what}", turn.prompt, turn.text, how=how
        )


def corrections(timeline: SessionTimeline) -> Iterator[tuple[TimelineTurn, str]]:
    """Yield the turns that begin with a correction, and how it was made."""
    for before, turn in zip(timeline.turns, timeline.turns[1:], strict=False):
        how = corrects(turn.text)
        if how == "no" and _asks(before):
            continue  # that is an answer
        if how is None and _is_stopped(timeline, before) and not only_goes_on(turn.text):
            how = STOPPED
        if how is not None:
            yield turn, how


STOPPED: Final = "stopped"
_BY_HAND = expression(
    r"\[Request interrupted by user|The user doesn't want|User (?:rejected|cance)"
)


def _asks(turn: TimelineTurn) -> bool:
    """Whether a turn came to its rest with a question."""
    last = turn.events[-1] if turn.events else None
    return (
        last is not None
        and last.kind == "assistant_msg"
        and event_text(last).rstrip().endswith("?")
    )


def _is_stopped(timeline: SessionTimeline, turn: TimelineTurn) -> bool:
    """Whether the last thing in a turn is a call that a human refused or cut off."""
    calls = timeline.calls_in(turn.events)
    result = calls[-1].result if calls else None
    if result is None or result is not turn.events[-1] or not cut_short(calls[-1]):
        return False
    return _BY_HAND.match(output.open_envelope(event_text(result))[1]) is not None


# -- time and room --------------------------------------------------------------------------


def slow_tools(timeline: SessionTimeline) -> Iterator[Signal]:
    """Calls that took long, questions to humans and the work of subagents apart."""
    timed = [
        (took, pair)
        for took, pair in timeline.timed_calls
        if took >= SLOW_MS and _own(timeline, pair)
    ]
    for took, pair in sorted(timed, key=lambda entry: (-entry[0], entry[1].call.event_id)):
        yield _signal(
            "slow_tool",
            "high" if took >= 5 * SLOW_MS else "low",
            f"took {took // 1000} s: {pair.call.summary}",
            [pair.call, *([pair.result] if pair.result else [])],
            pair.call.summary,
            tool=short(pair.call.tool or "", 120),
            took_ms=took,
        )


def _own(timeline: SessionTimeline, pair: Call) -> bool:
    """Whether the time of a call was its own.

    Between the times of a call and its result a human may have been asked. Where the log does not
    measure the call, only commands that are known to run long are believed.
    """
    if tools.tool_kind(pair.call.tool or "") == "agent" or waits_for_human(pair) or cut_short(pair):
        return False
    return is_measured(pair) or timeline.may_run_long(pair)


def context_blow_ups(timeline: SessionTimeline) -> Iterator[Signal]:
    """One step filled much of the context, or it had to be compacted again and again."""
    grown = [
        (after.context - before.context, before, after)
        for before, after in zip(timeline.contexts, timeline.contexts[1:], strict=False)
        if after.context - before.context >= CONTEXT_JUMP_TOKENS
        and after.event.state is before.event.state
        and after.event.model == before.event.model
    ]
    order = {event.event_id: at for at, event in enumerate(timeline.session.events)}
    for more, before, after in sorted(grown, key=lambda entry: -entry[0]):
        span = timeline.session.events[
            order[before.event.event_id] + 1 : order[after.event.event_id] + 1
        ]
        heavy = max(span, key=partial(_weight, channel=after.event.channel))
        yield _signal(
            "context_blow_up",
            "high" if more >= 2 * CONTEXT_JUMP_TOKENS else "medium",
            f"one step added {more:,} tokens to the context, now {after.context:,}",
            [heavy, after.event],
            heavy.summary,
            added=more,
            context=after.context,
        )
    sums = timeline.summaries
    if len(sums) >= MIN_COMPACTIONS:
        text = f"the context was compacted {len(sums)} times"
        yield _signal("context_blow_up", "medium", text, sums, count=len(sums))


def _weight(event: SessionEvent, *, channel: str) -> int:
    if event.channel != channel or event.role == "system":  # the model never saw those
        return -1
    if event.kind not in ("tool_result", "user_msg", "lifecycle"):
        return -1
    return len(output.text(event.payload))


def permission_waits(timeline: SessionTimeline) -> Iterator[Signal]:
    """The agent waited for a human's leave or answer, for long or for ever."""
    waits = sorted(_waits(timeline), key=lambda wait: -wait[0])
    for took, what, events in waits:
        if took >= WAIT_MS:
            yield _signal(
                "permission_wait",
                "high" if took >= 10 * WAIT_MS else "low",
                f"waited {took // 1000} s for a human: {what}",
                events,
                what,
                waited_ms=took,
            )
    now = timeline.session.turn()
    if now.state is TurnState.WAITING and timeline.spoken:
        last = timeline.spoken[-1]
        text = f"it ends waiting for a human: {last.summary}"
        yield _signal("permission_wait", "medium", text, [last], last.summary, for_ever=True)


def _waits(timeline: SessionTimeline) -> Iterator[tuple[int, str, list[SessionEvent]]]:
    """Waits that the log tells: by its own notes, or as questions whose answer is a result."""
    open_since: SessionEvent | None = None
    for event in timeline.session.events:
        if event.native_type in ("permission_requested", "waiting"):
            open_since = event
        elif open_since is not None and _ends_wait(event):
            begin, end = joins.time_of(open_since.ts), joins.time_of(event.ts)
            if begin is not None and end is not None:
                yield milliseconds_between(begin, end), open_since.summary, [open_since, event]
            open_since = None
    for took, pair in timeline.timed_calls:
        # A look takes no time: what passed until it was done was a question to a human.
        long = took >= WAIT_MS and not pair.call.is_sidechain
        if long and (waits_for_human(pair) or _was_held_up(timeline, pair)):
            yield took, pair.call.summary, [pair.call, pair.result or pair.call]


def _was_held_up(timeline: SessionTimeline, pair: Call) -> bool:
    look = not is_measured(pair) and timeline.only_looks(pair)
    return look and not timeline.may_run_long(pair)


def _ends_wait(event: SessionEvent) -> bool:
    if event.native_type in ("permission_resolved", "turn_started", "turn_ended"):
        return True
    return event.kind in ("user_msg", "tool_result") and not event.is_sidechain


Finder = Callable[[SessionTimeline], Iterable[Signal]]
FINDERS: Final[Sequence[Finder]] = (
    repeated_errors,
    retry_loops,
    flaky_tests,
    reworks,
    untested_edits,
    abandoned_branches,
    human_corrections,
    slow_tools,
    context_blow_ups,
    permission_waits,
)
"""One for each kind, in the order of `Kind`."""
