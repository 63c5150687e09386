"""What only a whole session can tell: calls with results, usage counted once, derived events.

Pure functions over the normalised events of one session, the same for every agent and for every
reader (the sweep, `show PATH`, the viewer). Adapters give facts of single records and nothing
else. Invariants: a result is paired by id, wherever it stands; one bill is counted once, whole;
a derived event keeps its base event as it is, points at it with `derived_from`, and carries
neither tokens nor a payload.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from copy import copy
from datetime import datetime
from typing import Literal

import msgspec

from thence.format import errors, outcomes, testruns, tools, wording
from thence.format.facts import Block, CallStatus
from thence.format.graph import State
from thence.format.normal import (
    LAST_SEEN,
    SUMMARY_LENGTH,
    Cost,
    Kind,
    Session,
    SessionEvent,
    derive,
)
from thence.format.outcomes import CallOutcome
from thence.format.outcomes import time_of as time_of  # noqa: PLC0414 - callers may ask here, too
from thence.format.records import Usage
from thence.format.repair import is_synthetic_content

_OF_CALLS = frozenset({"tool_call", "tool_result"})
_SILENT = frozenset({"lifecycle", "thinking"})
"""Kinds of events that say nothing to the user and do nothing."""

_OFF = frozenset({State.REPLAYED, State.DEAD, State.ROLLED_BACK})


class Call(msgspec.Struct, frozen=True, gc=False):
    """A tool call and the result it got, if any did come."""

    call: SessionEvent
    result: SessionEvent | None
    effect: tools.Effect
    outcome: CallOutcome

    @property
    def ending(self) -> errors.Ending | None:
        """How it ended; None when nothing says that it did."""
        outcome = self.outcome
        if not outcome.ended:
            return None
        return errors.Ending(outcome.failed, outcome.exit_code, outcome.reason)


class Spent(msgspec.Struct, frozen=True, gc=False):
    """Tokens of a session, those of dead branches and of subagents apart."""

    live: Usage = Usage()
    dead: Usage = Usage()
    side: Usage = Usage()
    responses: int = 0

    @property
    def own(self) -> int:
        """Tokens of the session itself; its subagents' are not among them."""
        return self.live.total + self.dead.total

    @property
    def rolled_up(self) -> int:
        """Tokens of the session and its subagents, each counted once."""
        return self.own + self.side.total


# -- calls ----------------------------------------------------------------------------------


def calls(
    events: Sequence[SessionEvent],
    blocks: Mapping[int, Block] | None = None,
    statuses: Mapping[str, CallStatus] | None = None,
    *,
    copies: bool = False,
) -> list[Call]:
    """Pair every call with its result, in written order; see `match_results`.

    `blocks` are those of the facts, by the id of their event: what is stored with them decides.
    Without them payloads do. `told` is what other records tell of calls. Calls that are copies of
    another session's are left out without `copies`.
    """
    blocks, statuses = blocks or {}, statuses or {}
    results: dict[str, list[tuple[int, bool]]] = {}
    asked: list[tuple[int, str | None]] = []
    for at, event in enumerate(events):
        if event.kind not in _OF_CALLS or not (copies or _counts(event)):
            continue
        if event.kind == "tool_call":
            asked.append((at, event.call))
        elif event.call is not None:
            results.setdefault(event.call, []).append((at, _is_synthetic(event, blocks)))
    matches = outcomes.match_results(asked, results)
    return [
        _pair_call(events[at], None if answer is None else events[answer], blocks, statuses)
        for (at, _), answer in zip(asked, matches, strict=True)
    ]


def _is_synthetic(result: SessionEvent, blocks: Mapping[int, Block]) -> bool:
    block = blocks.get(result.event_id)
    return is_synthetic_content(result.payload) if block is None else outcomes.is_synthetic(block)


def _pair_call(
    call: SessionEvent,
    result: SessionEvent | None,
    blocks: Mapping[int, Block],
    statuses: Mapping[str, CallStatus],
) -> Call:
    status = statuses.get(call.call or "")
    # Some agents put the time into the result, others into a record of its own.
    if status is None and result is not None and result.took_ms is not None:
        status = CallStatus(call.call or "", took_ms=result.took_ms)
    asked = blocks.get(call.event_id)
    answer = blocks.get(result.event_id) if result is not None else None
    effect, outcome = outcomes.decide(
        call,
        result,
        status,
        tool=call.tool,
        stored=(asked.effect if asked else None, answer.evidence if answer else None),
        times=(call.ts, result.ts if result is not None else None),
    )
    return Call(call, result, effect, outcome)


def _counts(event: SessionEvent) -> bool:
    return event.state is not State.REPLAYED and event.derived_from is None


# -- usage ----------------------------------------------------------------------------------


def bills(events: Iterable[SessionEvent]) -> dict[int, Usage]:
    """Count each bill once: the event that carries it -> its usage.

    Records of one response repeat its usage, and the early ones of a stream hold less: the
    record with the highest output counts, whole, never field by field. A copy inside a
    sidechain yields to the original; a tie goes to the first written.
    """
    best: dict[str, SessionEvent] = {}
    for event in events:
        if event.usage is None or not _counts(event):
            continue
        key = event.usage_key or f"{event.event_id}"  # a bill without a key is of one record only
        best_so_far = best.get(key)
        if best_so_far is None or _outbids(event, best_so_far):
            best[key] = event
    return {event.event_id: event.usage for event in best.values() if event.usage is not None}


def _outbids(new: SessionEvent, old: SessionEvent) -> bool:
    if new.is_sidechain != old.is_sidechain:
        return old.is_sidechain  # a sidechain begins with copies of what its parent said
    output = (new.usage or Usage()).output_tokens, (old.usage or Usage()).output_tokens
    return output[0] > output[1]


def spent(events: Sequence[SessionEvent], counted: Mapping[int, Usage] | None = None) -> Spent:
    """Add up what a session took, by what became of the events that were billed.

    `counted` are the bills of the same events, where they have been counted already.
    """
    counted = dict(bills(events) if counted is None else counted)
    # A search has its own price and is no response.
    responses = sum(1 for usage in counted.values() if usage.total or not usage.web_searches)
    parts: dict[str, list[Usage]] = {"live": [], "dead": [], "side": []}
    for event in events:
        usage = counted.pop(event.event_id, None)
        if usage is not None:
            parts[place_of(event)].append(usage)
    sums = {where: sum_usages(usages) for where, usages in parts.items()}
    return Spent(**sums, responses=responses)


def place_of(event: SessionEvent) -> Literal["live", "dead", "side"]:
    """Tell where what an event cost went: its branch, or a subagent."""
    return "side" if event.is_sidechain else "dead" if _gone(event) else "live"


def _gone(event: SessionEvent) -> bool:
    return event.state in (State.DEAD, State.ROLLED_BACK)


def sum_usages(usages: Iterable[Usage]) -> Usage:
    """Return the sum of some usages."""
    return Usage(*map(sum, zip(*map(msgspec.structs.astuple, usages), strict=True)))


def add_usage(usage: Usage, other: Usage) -> Usage:
    """Return the sum of two usages."""
    return sum_usages((usage, other))


def subtract_usage(usage: Usage, other: Usage) -> Usage:
    """Return what one usage has more than another, nothing below 0."""
    return Usage(*(max(getattr(usage, f) - getattr(other, f), 0) for f in Usage.__struct_fields__))


# -- derived events -------------------------------------------------------------------------


Aim = tuple[str, str, int]
"""What a call is for; see `aim`."""


class Watch(msgspec.Struct, omit_defaults=True):
    """What a walk along a line remembers for the next prompt."""

    has_stepped_in: bool = False
    """The user stopped the agent, and the agent has done nothing since."""
    is_at_work: bool = False
    """The agent was calling tools."""
    has_prompt: bool = False
    is_in_prompt: bool = False
    has_asked: bool = False
    """The last answer ended in a question."""

    def reason(self, event: SessionEvent, tone: wording.Tone, *, is_lost: bool) -> str:
        """Return what an intervention is called that an event is by itself; "" if it is none."""
        if event.kind in _OF_CALLS:
            self.is_at_work = not is_lost
        if event.kind != "user_msg" or not self.has_prompt:
            return ""
        # The further blocks of a prompt that was judged already.
        if self.is_in_prompt and event.block:
            return ""
        if self.is_at_work and tone != "goes on":
            return event.summary or "prompt"
        is_answer = tone == "declines" and self.has_asked
        return event.summary if tone in ("corrects", "declines") and not is_answer else ""

    def after(self, kind: Kind, tone: wording.Tone, *, has_stopped: bool) -> None:
        """Go on to the next event."""
        if kind in ("tool_call", "assistant_msg", "user_msg"):
            self.has_stepped_in = False
        if has_stopped:
            self.has_stepped_in, self.is_at_work = True, False
        self.is_in_prompt = kind == "user_msg"
        if kind == "user_msg":
            self.has_prompt, self.is_at_work = True, False
        elif kind == "assistant_msg":
            self.has_asked, self.is_at_work = tone == "asks", False


class Ongoing(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the first part of a session leaves for the rest: all that derived events depend on."""

    failed: frozenset[Aim] = frozenset()
    """What was tried, failed, and did not succeed since."""
    watch: Watch = msgspec.field(default_factory=Watch)
    """What decides whether the next prompt is an intervention."""
    rests: bool | None = None
    """Whether the part ends with an answer that a turn came to rest with; None: with no answer."""


def derive_events(
    events: Sequence[SessionEvent],
    pairs: Sequence[Call] | None = None,
    blocks: Mapping[int, Block] | None = None,
    before: Ongoing | None = None,
    stops: Container[str] = frozenset(),
) -> list[SessionEvent]:
    """Return the further events that a session's own events imply, in written order.

    `pairs` are the calls of the same events, where somebody has found them already; `blocks` as
    for `calls`. `before` is what an earlier part of the session leaves; then where the log began
    and ended is not among the events. `stops` are the native ids of records that say that the user
    cut a turn short.
    """
    pairs = calls(events, blocks) if pairs is None else pairs
    line = _line(events)
    start = before or Ongoing()
    out = [
        *_from_calls(pairs),
        *_from_files(events, blocks or {}),
        *_retries(pairs, set(start.failed)),
        # A copy: the walk changes it, and the state before must stay.
        *_interventions(line, pairs, blocks or {}, stops, copy(start.watch)),
        *_rests(line),
        *(log_ends(line) if before is None else ()),
    ]
    order = {event.event_id: at for at, event in enumerate(events)}
    # Behind what they come from, and the same order at every derivation.
    return sorted(out, key=lambda e: (order.get(e.derived_from or 0, 0), e.kind, e.event_id))


def _line(events: Iterable[SessionEvent]) -> list[SessionEvent]:
    """The session's own events, those of no branch that was left."""
    return [
        event
        for event in events
        if not event.is_sidechain and event.state not in _OFF and event.derived_from is None
    ]


def _from_calls(pairs: Sequence[Call]) -> Iterable[SessionEvent]:
    """Test runs and edits hang off their call, errors off the result that tells of them."""
    for pair in pairs:
        call, result, outcome = pair.call, pair.result, pair.outcome
        if pair.effect.runner is not None:
            line = _tests_line(pair.effect.runner, outcome.tests)
            # A run that never ended neither passed nor failed.
            yield derive(call, "test_run", line, failed=outcome.is_red if outcome.ended else None)
        if outcome.edited:
            yield derive(call, "edit", call.summary)
        if result is not None and outcome.failed:  # without a result nobody knows whether it failed
            yield derive(result, "error", outcome.error[:240], failed=True)


def _from_files(
    events: Sequence[SessionEvent], blocks: Mapping[int, Block]
) -> Iterable[SessionEvent]:
    """Our own harnesses say of a file themselves that it was changed."""
    for event in events:
        if event.native_type == "file" and _counts(event):
            block = blocks.get(event.event_id)
            stored = block.effect if block is not None else None
            effect = outcomes.file_effect(event.payload) if stored is None else stored
            for path in effect.edited:
                yield derive(event, "edit", f"edited {path}"[:SUMMARY_LENGTH])


def _tests_line(runner: str, counts: testruns.Tests | None) -> str:
    parts = [runner]
    if counts is not None:
        named = (("passed", counts.passed), ("failed", counts.failed), ("skipped", counts.skipped))
        parts += [f"{number} {name}" for name, number in named if number]
    return ", ".join(parts)


def _retries(pairs: Iterable[Call], failed: set[Aim]) -> Iterable[SessionEvent]:
    """A call is a retry when the last call for the same thing, in its channel, failed.

    `failed` is what had failed before these calls, and what has after them.
    """
    for pair in pairs:
        call, what = pair.call, aim(pair)
        if what in failed:
            yield derive(call, "retry", f"again: {call.summary}")
        # Only a success ends it: a call that was cut short proves nothing.
        if pair.outcome.ended and not pair.outcome.failed:
            failed.discard(what)
        elif pair.effect.retry_key is not None:
            failed.add(what)


def aim(pair: Call) -> Aim:
    """Return what a call is for, by channel: the same tests, files, or the very same arguments.

    What a rewritten log no longer holds is apart: nobody knows what it came after.
    """
    call, effect = pair.call, pair.effect
    # A command is the same through whichever tool it was run.
    where = "shell" if effect.is_script else call.tool or ""
    channel = call.channel if call.why is None else f"{call.channel}, {call.why}"
    return channel, where, call.event_id if effect.retry_key is None else effect.retry_key


def count_retries(pairs: Iterable[Call]) -> int:
    """Return how many calls of the session itself try again what had failed."""
    return sum(1 for _ in _retries((pair for pair in pairs if not pair.call.is_sidechain), set()))


def _interventions(
    line: Sequence[SessionEvent],
    pairs: Sequence[Call],
    blocks: Mapping[int, Block],
    stops: Container[str],
    watch: Watch,
) -> Iterable[SessionEvent]:
    """Return where a human stepped in; `watch` goes on to the end of the line.

    That is a call that the user refused or cut off, a turn that the user cut short, a prompt while
    the agent was at work, a correction or the report of a fault. A refusal, the stop that follows
    from it and the next prompt are one. What a killed process left open is none.
    """
    refused = {p.result.event_id: p for p in pairs if p.result and p.outcome.is_by_user}
    lost = {p.call.event_id for p in pairs if _is_lost(p)}
    lost |= {p.result.event_id for p in pairs if p.result and _is_lost(p)}
    for event in line:
        kind = event.kind
        if kind in _SILENT and event.native_id not in stops:
            watch.is_in_prompt = False
            continue
        tone = _tone(event, blocks) if kind in wording.SPOKEN else ""
        if event.event_id in refused:
            reason = refused[event.event_id].outcome.reason
        elif kind == "lifecycle" and event.native_id in stops:
            reason = "interrupted"
        else:
            reason = watch.reason(event, tone, is_lost=event.event_id in lost)
        # A stop and the prompt after it are one intervention.
        if reason and not watch.has_stepped_in:
            yield derive(event, "human_intervention", reason)
        has_stopped = kind != "user_msg" and bool(reason)
        watch.after(kind, tone, has_stopped=has_stopped)


def _tone(event: SessionEvent, blocks: Mapping[int, Block]) -> wording.Tone:
    """Return what a text says by its wording, as it was noted when the text was stored."""
    if event.payload_ref is None:
        return wording.tone_of(event.kind, event.payload or event.summary)
    block = blocks.get(event.event_id)
    return block.tone if block is not None else ""


def _is_lost(pair: Call) -> bool:
    """Whether the process ended before a call did."""
    outcome = pair.outcome
    cut = outcome.reason == "interrupted" and not outcome.is_by_user
    return pair.result is None or cut


def _rests(line: Iterable[SessionEvent]) -> Iterable[SessionEvent]:
    """Where turns came to rest."""
    spoken = [event for event in line if event.kind != "lifecycle"]
    for event, after in zip(spoken, [*spoken[1:], None], strict=False):
        if event.kind == "assistant_msg" and _is_rest(after):
            yield derive(event, "completion", event.summary)


def _is_rest(after: SessionEvent | None) -> bool:
    """Return whether a turn came to rest with an answer, by what was said next."""
    return after is None or after.kind == "user_msg"


def log_ends(events: Iterable[SessionEvent]) -> Iterator[SessionEvent]:
    """Yield where a session began and ended whose log says nothing of it."""
    line = _line(events)
    if line and all(event.kind != "lifecycle" for event in line):
        yield derive(line[0], "lifecycle", "started")
        yield derive(line[-1], "lifecycle", LAST_SEEN, nth=1)


def go_on(
    before: Ongoing,
    events: Iterable[SessionEvent],
    pairs: Sequence[Call],
    rest: Iterable[SessionEvent],
    *,
    blocks: Mapping[int, Block],
    stops: Container[str],
) -> Ongoing:
    """Return what a part of a session leaves for the rest of its events, `before` included."""
    failed, watch, line = set(before.failed), copy(before.watch), _line(events)
    for _ in (*_retries(pairs, failed), *_interventions(line, pairs, blocks, stops, watch)):
        pass
    answers = before.rests is not None
    for event in line:
        answers = event.kind == "assistant_msg" if event.kind != "lifecycle" else answers
    return Ongoing(frozenset(failed), watch, is_at_rest(rest) if answers else None)


def is_at_rest(rest: Iterable[SessionEvent]) -> bool:
    """Return whether a turn came to rest with an answer, by all events that follow it."""
    return _is_rest(next((event for event in _line(rest) if event.kind != "lifecycle"), None))


# -- the session ----------------------------------------------------------------------------


def session_of(
    events: Sequence[SessionEvent],
    *,
    uid: str,
    took: Spent | None = None,
    turns: int = 0,
    retries: int | None = None,
    **known: str | int | None,
) -> Session:
    """Tell what the events of a session say of it as a whole; `known` is what its source says.

    `took` and `retries` are what the same events tell, where that has been worked out already;
    `turns` only their graph tells. The clock runs from the first to the last readable time.
    """
    main = [e for e in events if not e.is_sidechain and _counts(e)]
    moments = bounds({event.ts for event in main if event.ts})
    models = [e.model for e in main if e.model is not None and not _gone(e)]
    return session_from(
        uid,
        spent=spent(events) if took is None else took,
        first=moments[0] if moments else None,
        last=moments[-1] if moments else None,
        turns=turns,
        model=models[-1] if models else None,
        retries=count_retries(calls(main)) if retries is None else retries,
        known=known,
    )


def session_from(
    uid: str,
    *,
    spent: Spent,
    first: datetime | None,
    last: datetime | None,
    turns: int,
    model: str | None,
    retries: int = 0,
    known: Mapping[str, str | int | None],
) -> Session:
    """Return a session from the sums of its events; `known` is what its source says.

    A source names the model that it began with: `model`, that of the last event, comes before it.
    """
    flavor, _, native = uid.partition(":")
    words = {name: value for name, value in known.items() if value is not None}
    first_model = words.pop("model", None)
    own = add_usage(spent.live, spent.dead)
    return msgspec.convert(
        {
            "session_uid": uid,
            "flavor": flavor,
            "native_session_id": native,
            "cost": Cost(
                input_tokens=own.input_tokens,
                output_tokens=own.output_tokens,
                cache_tokens=own.cache_creation_input_tokens + own.cache_read_input_tokens,
                wall_clock_s=(last - first).total_seconds() if first and last else 0.0,
                turns=turns,
                retries=retries,
            ),
            "started_at": _moment(first) if first else None,
            "ended_at": _moment(last) if last else None,
            **words,
            "model": model or first_model,
        },
        Session,
    )


def bounds(texts: Iterable[str]) -> list[datetime]:
    """Return the first and last of some times; those spelled the usual way sort as texts do."""
    plain: list[str] = []
    odd: list[str] = []
    for text in texts:
        usual = len(text) == _USUAL and text[-1] == "Z" and text[10] == "T" and text[19] == "."
        (plain if usual and text.isascii() else odd).append(text)
    # One that only looks usual may stand at an end: then all of them are read.
    ends = [time_of(text) for text in ((min(plain), max(plain)) if plain else ())]
    rest = [*plain, *odd] if None in ends else odd
    moments = [m for m in (*ends, *map(time_of, rest)) if m is not None]
    return [min(moments), max(moments)] if moments else []


_USUAL = len("2026-01-01T00:00:00.000Z")


def _moment(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
