"""How a tool call went: decided here and nowhere else, the same for every reader.

What a call does (`Effect`, and the line that says so) and what its result says (`Evidence`) are
worked out where payloads are at hand, by the names of tools that are known there, and stored with
the facts (`add_effects`): every session that is stored passes here. Facts that did not are judged
by the names that are known without any agent. The verdict (`CallOutcome`) needs nothing more, so
the terminal, the viewer, the API, the digest and the export cannot disagree. Pure.

Never here: the tables by which tools, failures and test runs are recognised (see tools, errors and
testruns).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol, TypeVar

import msgspec

from thence.format import errors, output, testruns
from thence.format.errors import Evidence
from thence.format.facts import Block, CallStatus, Fact
from thence.format.records import JSON, text_of, word
from thence.format.repair import is_synthetic_content
from thence.format.tools import BUILT_IN, Effect, Toolbox
from thence.format.wording import SPOKEN, tone_of

CUT_SHORT = frozenset({"denied", "interrupted"})
"""Reasons of calls that a human, a rule or a crash kept from coming to their own end."""

SHOWN_FROM_MS = 1000
"""A duration read off the clock of a log is shown from here on: below, it is mostly noise."""

_DAY_MS = 86_400_000

_Place = TypeVar("_Place", int, tuple[int, int])


class Content(Protocol):
    """A block or an event: what a call was asked for, or what its result holds."""

    @property
    def payload(self) -> JSON: ...  # noqa: D102 - a field
    @property
    def summary(self) -> str: ...  # noqa: D102
    @property
    def failed(self) -> bool | None: ...  # noqa: D102


class CallOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a call went."""

    ended: bool = False
    """A result was written, or another record says that the call ended."""
    failed: bool = False
    exit_code: int | None = None
    reason: str = ""
    """Why it failed: denied, interrupted, timeout, exit code, is_error or text."""
    duration_ms: int | None = None
    """How long it took; None where that is unknown, or a human may have been asked meanwhile."""
    is_by_user: bool = False
    """The user refused it or cut it off."""
    is_measured: bool = False
    """The log itself says how long it took."""
    elapsed_ms: int | None = None
    """From the call to its result, whatever happened in between."""
    is_test_run: bool = False
    tests: testruns.Tests | None = None
    edited: tuple[str, ...] = ()
    """Files that it changed; none if it failed."""
    error: str = ""
    """The fingerprint of the error if it failed, else the reason."""

    @property
    def succeeded(self) -> bool:
        """Whether it is known to have ended without a failure."""
        return self.ended and not self.failed

    @property
    def is_cut_short(self) -> bool:
        """Whether a human, a rule or a crash kept the call from coming to its own end."""
        return self.reason in CUT_SHORT

    @property
    def is_red(self) -> bool:
        """Whether the call or one of the tests that it ran failed.

        A pipe hides the exit code of what it reads from; what the runner counted stands.
        """
        return self.failed or bool(self.tests and self.tests.failed)

    @property
    def shown_ms(self) -> int | None:
        """The duration, unless it is too short for the clock of a log to tell."""
        took = self.duration_ms
        return took if took and (self.is_measured or took >= SHOWN_FROM_MS) else None


# -- what calls and results say -------------------------------------------------------------


def call_effect(tool: str | None, call: Content, stored: Effect | None = None) -> Effect:
    """Return what a call does: as stored, else as its input says."""
    return BUILT_IN.judge(tool or "", call.payload)[0] if stored is None else stored


def result_evidence(
    effect: Effect,
    result: Content,
    status: CallStatus | None = None,
    stored: Evidence | None = None,
) -> Evidence:
    """Return what a result says of its call: as stored, else as its payload says.

    What a stored one lacks, because other records told of it later, is added if the payload
    is at hand.
    """
    evidence = errors.evidence_of(effect.kind, result.payload) if stored is None else stored
    payload = result.payload
    if stored is None and is_synthetic_content(payload):
        evidence = msgspec.structs.replace(evidence, is_synthetic=True)
    if payload is None:
        return evidence
    if evidence.cause in CUT_SHORT and not evidence.is_by_user:
        is_by_user = errors.evidence_of(effect.kind, payload).is_by_user
        evidence = msgspec.structs.replace(evidence, is_by_user=is_by_user)
    if effect.runner is not None and evidence.tests is None:
        text = text_of(payload) or output.text(payload)
        tests = testruns.count_tests(effect.runner, text)
        evidence = msgspec.structs.replace(evidence, tests=tests)
    if evidence.shape is None and _how_it_ended(evidence, result, status).failed:
        shape = errors.error_shape(text_of(payload))
        evidence = msgspec.structs.replace(evidence, shape=shape)
    return evidence


def is_synthetic(result: Block) -> bool:
    """Whether a result was made for a call that never got one."""
    if result.evidence is not None:
        return result.evidence.is_synthetic
    return is_synthetic_content(result.payload)


def file_effect(payload: JSON) -> Effect:
    """Return what a record of our own harnesses says was done to a file."""
    fields = payload if isinstance(payload, dict) else {}
    path, how = word(fields.get("path")), word(fields.get("how"))
    return Effect(touches=((path, how or "edit"),))


def add_effects(facts: Iterable[Fact], toolbox: Toolbox) -> dict[str, Block]:
    """Note in the blocks of facts what calls do and what texts say by their wording, in place.

    `toolbox` has the names that count for their session. Returns the calls by their id.
    """
    calls: dict[str, Block] = {}
    for fact in facts:
        for block in fact.blocks:
            if block.kind == "tool_call":
                if block.payload is not None or block.effect is None:
                    tool, known = block.tool or "", block.effect
                    effect, line = toolbox.judge(tool, block.payload, known)
                    msgspec.structs.force_setattr(block, "effect", effect)
                    msgspec.structs.force_setattr(block, "summary", line)
                if block.call is not None:
                    calls.setdefault(block.call, block)
            elif block.payload is None:
                continue
            elif fact.type == "file":
                msgspec.structs.force_setattr(block, "effect", file_effect(block.payload))
            elif block.kind in SPOKEN:
                _add_tone(block)
    return calls


def add_tones(facts: Iterable[Fact]) -> None:
    """Note in the blocks of facts what texts say by their wording today, in place."""
    for fact in facts:
        for block in fact.blocks:
            if block.kind in SPOKEN and block.payload is not None and fact.type != "file":
                _add_tone(block)


def _add_tone(block: Block) -> None:
    tone = tone_of(block.kind, block.payload)
    if tone != block.tone:
        msgspec.structs.force_setattr(block, "tone", tone)


def add_evidence(
    facts: Iterable[Fact],
    calls: Mapping[str, Block],
    statuses: Mapping[str, CallStatus],
    toolbox: Toolbox,
) -> None:
    """Note in the results of facts what they say of their calls, in place."""
    for fact in facts:
        for block in fact.blocks:
            if block.kind != "tool_result" or (block.payload is None and block.evidence):
                continue
            name = block.call or ""
            call = calls.get(name)
            effect = (call.effect if call else None) or Effect(toolbox.kind(block.tool))
            evidence = result_evidence(effect, block, statuses.get(name))
            msgspec.structs.force_setattr(block, "evidence", evidence)


# -- the verdict ----------------------------------------------------------------------------


def decide(
    call: Content,
    result: Content | None,
    status: CallStatus | None,
    *,
    tool: str | None,
    stored: tuple[Effect | None, Evidence | None],
    times: tuple[str | None, str | None],
) -> tuple[Effect, CallOutcome]:
    """Return what a call does and how it went.

    `stored` is what was noted of call and result when their payloads were at hand, `times` when
    both were written, `status` what other records tell of the call.
    """
    effect = call_effect(tool, call, stored[0])
    evidence = None
    if result is not None:
        evidence = result_evidence(effect, result, status, stored[1])
    outcome = judge_call(
        effect,
        result=result,
        evidence=evidence,
        status=status,
        started=times[0],
        finished=times[1],
    )
    return effect, outcome


def judge_call(
    effect: Effect,
    *,
    result: Content | None,
    evidence: Evidence | None,
    status: CallStatus | None,
    started: str | None,
    finished: str | None,
) -> CallOutcome:
    """Return how a call went, by its result and by what other records tell of it."""
    is_test_run = effect.runner is not None
    if result is None and (status is None or not status.ended):
        return CallOutcome(is_test_run=is_test_run)
    evidence = evidence or Evidence()
    ending = _how_it_ended(evidence, result, status)
    own, is_measured, elapsed = _durations(effect, status, started, finished)
    return CallOutcome(
        ended=True,
        failed=ending.failed,
        exit_code=ending.exit_code,
        reason=ending.why,
        is_by_user=evidence.is_by_user and ending.why in CUT_SHORT,
        duration_ms=own,
        is_measured=is_measured,
        elapsed_ms=elapsed if result is not None else None,
        is_test_run=is_test_run,
        tests=evidence.tests if is_test_run else None,
        edited=() if ending.failed or result is None else effect.edited,
        error=(evidence.shape or ending.why) if ending.failed else "",
    )


def _how_it_ended(
    evidence: Evidence, result: Content | None, status: CallStatus | None
) -> errors.Ending:
    """Return how a call ended: a failure that any record tells stands."""
    is_error = result.failed if result is not None else None
    code = None
    if status is not None:
        code = status.exit_code
        if is_error is not True and status.failed is not None:
            is_error = status.failed
    if code == 0 and is_error:
        ending = errors.judge(evidence, is_error=True)
        return msgspec.structs.replace(ending, exit_code=code)
    return errors.judge(evidence, is_error=is_error, exit_code=code)


def _durations(
    effect: Effect,
    status: CallStatus | None,
    started: str | None,
    finished: str | None,
) -> tuple[int | None, bool, int | None]:
    """Return a call's own milliseconds, whether they were measured, and all until its result."""
    if status is not None and status.took_ms is not None:
        return status.took_ms, True, status.took_ms
    start, end = time_of(started), time_of(finished)
    if start is None or end is None:
        return None, False, None
    elapsed = max(round(1000 * (end - start).total_seconds()), 0)
    # A file tool is done at once; what passed is the time somebody took to allow it.
    at_once = bool(effect.touches) and not effect.is_script
    is_own = not at_once and effect.kind not in _AT_ONCE and elapsed < _DAY_MS
    return elapsed if is_own else None, False, elapsed


_AT_ONCE = frozenset({"read", "write", "edit"})


def time_of(text: str | None) -> datetime | None:
    """Read a time; None when it is none, has no zone, or lies where no session can."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    if moment.tzinfo is None or not 2000 <= moment.year < 2100:
        return None
    return moment.astimezone(UTC)


# -- pairs ----------------------------------------------------------------------------------


def match_results(
    calls: Iterable[tuple[_Place, str | None]],
    results: Mapping[str, Sequence[tuple[_Place, bool]]],
) -> list[_Place | None]:
    """Return where the result of each call stands; results come with whether they are synthetic.

    By id alone: results stand before their call in some logs. Of several a real one is taken
    before a synthetic one, then the first that follows the call, else the first. A second call
    of the same id gets none.
    """
    out: list[_Place | None] = []
    taken: set[str] = set()
    for place, name in calls:
        if name is None or name in taken:
            out.append(None)
            continue
        taken.add(name)
        answers = results.get(name, ())
        if len(answers) > 1:
            # The first of the best, whatever their number.
            best = min((is_synthetic, at < place) for at, is_synthetic in answers)
            answers = [(at, fake) for at, fake in answers if (fake, at < place) == best]
        out.append(answers[0][0] if answers else None)
    return out
