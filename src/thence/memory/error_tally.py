"""Errors of a session, counted: which came how often, what fixed them, what failed in a row.

All of it is plain data that goes on where it was: `add` takes the next part of a session. Calls of
different channels have nothing to do with one another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from thence.format import derived_events, output
from thence.format.derived_events import Call
from thence.memory.session_timeline import SessionTimeline, ToolError, cut_short, event_text, short
from thence.memory.tally import Place, Pointers, best

MIN_LOOP_CALLS: Final = 3
"""Failures of the same call in a row, nothing changed in between: trying the same again."""

MIN_STUCK_CALLS: Final = 5
"""The same with edits in between: work that does not get on. Fewer is how tests are fixed."""

MAX_LOOPS: Final = 5
"""Loops that are remembered: the longest."""

QUOTE_BYTES: Final = 300

_MAX_OPEN_ERRORS: Final = 32  # errors of a channel that wait at a time: the work stays linear
_FIX_WINDOW_CALLS: Final = 50  # calls before the one that went well in which the fix is looked for

Aim = tuple[str, int]
"""What a call is for, within its channel."""


class Fix(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was done before an error did not come back."""

    event: int
    what: str


class ErrorFix(msgspec.Struct, frozen=True):
    """The call that went well after an error, and what was changed in between, the last first."""

    place: Place
    """Of the call that had failed."""
    settled_by: int
    fix: tuple[Fix, ...]


class ErrorEntry(msgspec.Struct, omit_defaults=True):
    """One error, by its fingerprint."""

    results: Pointers = msgspec.field(default_factory=Pointers)
    first_quote: str = ""
    tool: str = ""
    """Of the last one, as is the quote."""
    quote: str = ""
    fixed: ErrorFix | None = None


class RecentCall(msgspec.Struct, frozen=True, array_like=True):
    """A call that went well while an error waited for its fix."""

    number: int
    """Among the calls of its channel."""
    event: int
    what: str
    may_change: bool


class OpenError(msgspec.Struct, frozen=True):
    """An error that waits for its fix."""

    fingerprint: str
    place: Place
    number: int
    """Of the call that failed, among those of its channel."""
    is_sidechain: bool


class Loop(msgspec.Struct, omit_defaults=True):
    """Failures of one call in a row."""

    calls: Pointers = msgspec.field(default_factory=Pointers)
    what: str = ""
    tool: str = ""
    quote: str = ""
    """What the last one returned, of a loop that is long enough to be shown."""
    has_edits: bool = False
    """Something was edited in between."""
    paid_before: tuple[int, int] = (0, 0)
    paid_until: tuple[int, int] = (0, 0)
    """Tokens and ticks that its channel was billed before it and to its end."""

    @property
    def is_long(self) -> bool:
        """Whether that is more than it takes to fix something."""
        return self.calls.count >= (MIN_STUCK_CALLS if self.has_edits else MIN_LOOP_CALLS)


class ChannelTally(msgspec.Struct, omit_defaults=True):
    """What of one channel is still open."""

    calls: int = 0
    recent: list[RecentCall] = []
    waiting: dict[Aim, OpenError] = {}
    loops: dict[Aim, Loop] = {}
    paid: tuple[int, int] = (0, 0)
    """Tokens and ticks that it was billed so far."""


class ErrorTally(msgspec.Struct, omit_defaults=True):
    """All errors of a session so far."""

    entries: dict[tuple[str, bool], ErrorEntry] = {}
    """By fingerprint, those of subagents apart."""
    channels: dict[str, ChannelTally] = {}
    loops: list[Loop] = []
    """Those that are over."""

    def add(self, timeline: SessionTimeline) -> None:
        """Count the errors of the next part of a session."""
        self._count(timeline)
        paid = self._add_bills(timeline)
        by_channel: dict[str, list[tuple[Aim, Call]]] = {}
        for pair in timeline.all_calls:
            name, where, key = derived_events.aim(pair)
            by_channel.setdefault(name, []).append(((where, key), pair))
        for name, calls in by_channel.items():
            channel = self.channels.setdefault(name, ChannelTally())
            if channel.waiting or channel.loops or any(pair.outcome.failed for _, pair in calls):
                self._fix(timeline, channel, calls)
                self._loop(timeline, channel, calls, paid)
            else:
                channel.calls += len(calls)

    def _count(self, timeline: SessionTimeline) -> None:
        latest: dict[tuple[str, bool], ToolError] = {}
        for error in timeline.errors:
            key = error.fingerprint, error.event.is_sidechain
            entry = self.entries.setdefault(key, ErrorEntry())
            place = timeline.places[error.call.call.event_id]
            entry.results.add(place, error.event)
            if entry.results.first[0] == place and not error.vague:
                entry.first_quote = short(error_line(error), QUOTE_BYTES)
            if entry.results.last is not None and entry.results.last[0] == place:
                latest[key] = error
        for key, error in latest.items():
            entry = self.entries[key]
            entry.tool = short(error.call.call.tool or "", 120)
            entry.quote = "" if error.vague else short(error_line(error), 200)

    def _fix(
        self, timeline: SessionTimeline, channel: ChannelTally, calls: Iterable[tuple[Aim, Call]]
    ) -> None:
        """Find, for each call that failed, the next one like it that went well.

        What lay between is the fix that followed: edits, or commands that may have changed
        something. Where there was none, what was looked at in between is named (a file has to be
        read before it is edited).
        """
        recent: list[RecentCall | tuple[int, Call]] = [*channel.recent]
        waiting = channel.waiting
        for key, pair in calls:
            channel.calls += 1
            if pair.outcome.succeeded:
                if (error := waiting.pop(key, None)) is not None:
                    first = max(error.number, channel.calls - 1 - _FIX_WINDOW_CALLS)
                    self._note_fix(error, pair, _recent_calls(timeline, recent, first))
                if waiting:
                    recent.append((channel.calls, pair))
            elif pair.outcome.failed and not cut_short(pair):
                waiting[key] = OpenError(
                    short(pair.outcome.error, 240),
                    timeline.places[pair.call.event_id],
                    channel.calls,
                    pair.call.is_sidechain,
                )
                while len(waiting) > _MAX_OPEN_ERRORS:
                    del waiting[next(iter(waiting))]
            if not waiting:
                recent = []
        last = channel.calls - _FIX_WINDOW_CALLS
        channel.recent = _recent_calls(timeline, recent, last) if waiting else []

    def _note_fix(self, error: OpenError, healed: Call, between: list[RecentCall]) -> None:
        entry = self.entries.get((error.fingerprint, error.is_sidechain))
        if entry is None or (entry.fixed is not None and entry.fixed.place > error.place):
            return
        did = [call for call in between if call.may_change] or between
        fix = tuple(Fix(call.event, call.what) for call in did[-3:][::-1])
        by = healed.call
        fix = fix or (Fix(by.event_id, short(by.summary, 160)),)
        entry.fixed = ErrorFix(error.place, by.event_id, fix)

    def _loop(
        self,
        timeline: SessionTimeline,
        channel: ChannelTally,
        calls: Iterable[tuple[Aim, Call]],
        paid: dict[int, tuple[tuple[int, int], tuple[int, int]]],
    ) -> None:
        """Follow failures of one call in a row; edits in between allow for more of them."""
        loops, lasts, over = channel.loops, dict[int, Call](), list[Loop]()
        for key, pair in calls:
            if pair.outcome.failed and not cut_short(pair):
                loop = loops.setdefault(key, Loop())
                if not loop.calls.count:
                    loop.what = pair.call.summary
                    loop.tool = short(pair.call.tool or "", 120)
                    loop.paid_before = paid[pair.call.event_id][0]
                loop.calls.add(timeline.places[pair.call.event_id], pair.call)
                loop.paid_until = paid[(pair.result or pair.call).event_id][1]
                lasts[id(loop)] = pair
                if len(loops) > _MAX_OPEN_ERRORS:
                    over.append(loops.pop(next(iter(loops))))
            elif not pair.outcome.failed and key in loops:
                over.append(loops.pop(key))
            if timeline.edits(pair):
                for loop in loops.values():
                    loop.has_edits = True
        for loop in (*loops.values(), *over):
            last = lasts.get(id(loop))
            if last is not None and loop.calls.count >= MIN_LOOP_CALLS:
                result = last.result
                loop.quote = short(event_text(result), QUOTE_BYTES) if result is not None else ""
        self.loops = _longest((*self.loops, *over))

    def _add_bills(
        self, timeline: SessionTimeline
    ) -> dict[int, tuple[tuple[int, int], tuple[int, int]]]:
        """Add up bills by channel; return the sums before and after each call that failed."""
        wanted = {
            event.event_id
            for pair in timeline.all_calls
            if pair.outcome.failed
            for event in (pair.call, pair.result)
            if event is not None
        }
        bills = {bill.event.event_id: bill for bill in timeline.bills}
        out: dict[int, tuple[tuple[int, int], tuple[int, int]]] = {}
        billed = (bill.event for bill in bills.values())
        for event in timeline.events if wanted else billed:
            name = event.event_id
            bill = bills.get(name)
            if bill is None and name not in wanted:
                continue
            channel = self.channels.setdefault(event.channel, ChannelTally())
            before = channel.paid
            if bill is not None:
                channel.paid = before[0] + bill.usage.total, before[1] + bill.ticks
            if name in wanted:
                out[name] = before, channel.paid
        return out

    def longest_loops(self) -> list[Loop]:
        """Return the longest loops, those that go on among them."""
        going_on = (loop for channel in self.channels.values() for loop in channel.loops.values())
        return _longest((*self.loops, *going_on))


def _longest(loops: Iterable[Loop]) -> list[Loop]:
    long = (loop for loop in loops if loop.is_long)
    return best(long, MAX_LOOPS, lambda loop: (-loop.calls.count, loop.calls.first[0]))


def _recent_calls(
    timeline: SessionTimeline, recent: Iterable[RecentCall | tuple[int, Call]], after: int
) -> list[RecentCall]:
    """Return the calls after a number; whether one may change something is asked only of them."""
    out: list[RecentCall] = []
    for entry in recent:
        if isinstance(entry, RecentCall):
            call = entry
        elif entry[0] > after:
            number, pair = entry
            what, changes = short(pair.call.summary, 160), timeline.may_change(pair)
            call = RecentCall(number, pair.call.event_id, what, changes)
        else:
            continue
        if call.number > after:
            out.append(call)
    return out


def error_line(fault: ToolError) -> str:
    """Return the words of an error, without the envelope a client puts around an output."""
    text = output.plain(output.open_envelope(event_text(fault.event))[1])
    text = text.replace("<tool_use_error>", "").replace("</tool_use_error>", "")
    kind, _, shape = fault.fingerprint.partition(": ")
    words = [word for word in re.split(r"<\w+>|\s+", shape) if len(word) > 3]
    lines = output.lines(text)
    best_line = max(lines, key=lambda line: sum(word in line for word in words), default="")
    return best_line.strip() or kind
