"""How a session went, and which task it was for: stated heuristics, each with its reason.

The rules stand in `RULES` in the order in which they are asked; the first that has an answer
gives it, in words a reader can check against the session. A session is judged by its last turn:
what was asked last, and what became of it. No rule looks at a clock, so a log that stops in the
middle of a turn is unknown: whether that turn still runs, only `standing` can tell.

    success    what was asked last was done or answered, and nothing speaks against it
    fail       the agent came to rest and what was asked was not done
    abandoned  the user cut the last turn short and did not go on
    waiting    the agent asked the user something, and the log ends there
    unknown    nothing was asked, the log stops in mid-turn, or it does not show how it went
    running    the session runs now; never stored

Pure, and no model is asked. The confidence is the share of labelled sessions with the same basis
that were judged right (`CALIBRATION`), measured, not asserted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, Literal

import msgspec

from thence.format import errors
from thence.format.expressions import expression
from thence.format.joins import Call
from thence.format.nodes import Is
from thence.format.normal import Outcome as Outcome  # noqa: PLC0414 - asked for here
from thence.format.normal import SessionEvent
from thence.format.turn import TurnState
from thence.format.wording import (
    ANNOUNCEMENTS,
    FAILURES,
    LOOKED_AT,
    SUCCESS,
    asks_user,
    closes_with_offer,
    corrects,
    thanks,
)
from thence.memory.course import (
    SessionTimeline,
    TestRun,
    TimelineTurn,
    event_text,
    short,
    waits_for_human,
)

Basis = Literal[
    "nothing asked",
    "error",
    "interrupted",
    "question open",
    "cut in mid-turn",
    "refused by user",
    "refused",
    "says it failed",
    "tests red",
    "question",
    "announced",
    "advised",
    "answered",
    "answered, proven",
    "answered, in doubt",
]
"""What a verdict rests on."""

CALIBRATION: Final[Mapping[Basis, tuple[int, int]]] = {
    "nothing asked": (9, 9),
    "error": (3, 3),
    "interrupted": (11, 11),
    "question open": (4, 4),
    "cut in mid-turn": (38, 38),
    "refused by user": (2, 2),
    "refused": (10, 10),
    "says it failed": (13, 13),
    "tests red": (3, 3),
    "question": (9, 9),
    "announced": (3, 3),
    "advised": (2, 2),
    "answered": (114, 117),
    "answered, proven": (47, 47),
    "answered, in doubt": (7, 8),
}
"""Labelled sessions by the basis of their verdict: how many were judged right, and of how many.

Measured over the labelled sessions of the tests; a test measures again and compares.
"""


class Verdict(msgspec.Struct, frozen=True):
    """How a session went, what that rests on, and why."""

    outcome: Outcome
    basis: Basis
    reasons: tuple[str, ...]

    @property
    def confidence(self) -> float:
        """The share of labelled sessions with this basis that were judged right.

        By the rule of succession, so that a few right ones do not make it certain.
        """
        right, judged = CALIBRATION[self.basis]
        return round((right + 1) / (judged + 2), 2)


_SENTENCE = expression(r"(?<=[.!?])\s|\n")


# -- the evidence ---------------------------------------------------------------------------


class OutcomeEvidence:
    """What the rules look at, worked out once."""

    def __init__(self, timeline: SessionTimeline) -> None:
        self.timeline = timeline
        self.turn: TimelineTurn = timeline.turns[-1]

    @property
    def last(self) -> SessionEvent | None:
        """The last thing that was said or done."""
        return self.timeline.spoken[-1] if self.timeline.spoken else None

    @cached_property
    def calls(self) -> list[Call]:
        """The calls of the last turn."""
        return self.timeline.calls_in(self.turn.events)

    @cached_property
    def open(self) -> list[Call]:
        """Calls after the last reply that were never answered."""
        replies = [at for at, e in enumerate(self.turn.events) if e.kind == "assistant_msg"]
        after = self.turn.events[replies[-1] :] if replies else self.turn.events
        return [pair for pair in self.timeline.calls_in(after) if pair.result is None]

    @cached_property
    def reply(self) -> str:
        """The closing words: the last reply, when nothing was done after it."""
        return self.closing[:LOOKED_AT]

    @cached_property
    def closing(self) -> str:
        """The closing words to their end."""
        last = self.last
        return event_text(last) if last is not None and last.kind == "assistant_msg" else ""

    @cached_property
    def is_cut_off(self) -> bool:
        """Whether the log stops before the agent came to rest.

        A reply that was billed after it was written is complete, though nothing says that the turn
        is over: some clients leave before they write that.
        """
        timeline, last = self.timeline, self.last
        if last is None or timeline.session.turn().state is not TurnState.RUNNING:
            return False
        if last.kind != "assistant_msg":
            return True
        order = {event.event_id: at for at, event in enumerate(timeline.session.events)}
        place = order[last.event_id]
        return not self._is_end(last) and not any(
            order[bill.event.event_id] > place and bill.event.channel == last.channel
            for bill in timeline.bills
        )

    def _is_end(self, event: SessionEvent) -> bool:
        session = self.timeline.session
        place = session.graph.place(event.native_id)
        return place is not None and bool(session.records[place].node.flags & Is.ENDS)

    @cached_property
    def opening(self) -> str:
        """The first sentence of the closing words."""
        plain = self.reply.strip().lstrip("#*-> ").replace("\u2019", "'")
        return _SENTENCE.split(plain, maxsplit=1)[0] if plain else ""

    @cached_property
    def last_runs(self) -> dict[str, TestRun]:
        """The last run of each command that runs tests."""
        return {run.runner: run for run in self.timeline.runs}

    @cached_property
    def refused(self) -> list[Call]:
        """Calls of the last turn that were refused, and no later call like them went well."""
        out: dict[str, Call] = {}
        for pair in self.calls:
            if not pair.outcome.ended:
                continue
            tool = pair.call.tool or ""
            if pair.outcome.reason == "denied":
                out[tool] = pair
            elif not pair.outcome.failed:
                out.pop(tool, None)
        return list(out.values())

    def changed_after(self, run: TestRun) -> bool:
        """Whether files were edited after a run of the tests."""
        calls = self.timeline.calls
        place = next(at for at, pair in enumerate(calls) if pair is run.call)
        return any(self.timeline.edits(pair) for pair in calls[place + 1 :])


Rule = Callable[[OutcomeEvidence], Verdict | None]


def nothing_asked(seen: OutcomeEvidence) -> Verdict | None:
    """Without a prompt, a reply or a call there is nothing to judge."""
    if seen.last is None:
        return Verdict("unknown", "nothing asked", ("nothing was asked on the live line",))
    return None


def died_of_error(seen: OutcomeEvidence) -> Verdict | None:
    """The request itself failed and nothing followed."""
    if seen.last is not None and seen.last.kind == "error":
        why = short(event_text(seen.last), 100)
        return Verdict("fail", "error", (f"the last request ended in an error: {why}",))
    return None


def interrupted(seen: OutcomeEvidence) -> Verdict | None:
    """The last turn was cut short, by the log's own word."""
    now, records = seen.timeline.session.turn(), seen.timeline.session.records
    if now.state is not TurnState.INTERRUPTED or now.since is None:
        return None
    flags = records[now.since].node.flags
    if flags & Is.SYNTHETIC or (flags & Is.INTERRUPTS and not flags & Is.BY_USER):
        why = "the process ended in the middle of the last turn"
        return Verdict("unknown", "cut in mid-turn", (why,))
    why = "the last turn was interrupted and not taken up again"
    return Verdict("abandoned", "interrupted", (why,))


def question_open(seen: OutcomeEvidence) -> Verdict | None:
    """The log ends where the agent asked for permission, for a choice or for a plan's approval."""
    waits = seen.timeline.session.turn().state is TurnState.WAITING
    asks = bool(seen.open) and waits_for_human(seen.open[-1])
    if not waits and not asks:
        return None
    if seen.open:
        what = short(seen.open[-1].call.summary, 100)
    else:
        what = short(event_text(seen.last) if seen.last is not None else "", 100)
    return Verdict("waiting", "question open", (f"it waits for the user: {what}",))


def cut_in_mid_turn(seen: OutcomeEvidence) -> Verdict | None:
    """The log stops before the agent came to rest: it runs still, or its process is gone."""
    if not seen.is_cut_off or seen.last is None:
        return None
    if seen.open:
        what = short(seen.open[-1].call.summary, 100)
        why = f"the log stops at a call without a result: {what}"
    elif seen.last.kind == "user_msg":
        why = "the log stops at a prompt without an answer"
    else:
        why = "the log stops in the middle of the last turn"
    return Verdict("unknown", "cut in mid-turn", (why,))


def refused(seen: OutcomeEvidence) -> Verdict | None:
    """What was needed was refused, and nothing took its place."""
    if not seen.refused:
        return None
    pair = seen.refused[-1]
    what = short(pair.call.summary, 100)
    if pair.outcome.is_by_user:
        if (question := ends_in_question(seen)) is not None:
            return question
        return Verdict("unknown", "refused by user", (f"the user refused: {what}",))
    return Verdict("fail", "refused", (f"not allowed, and nothing took its place: {what}",))


def says_it_failed(seen: OutcomeEvidence) -> Verdict | None:
    """The closing words begin with a failure."""
    for row, pattern in FAILURES.each:
        if pattern.match(seen.opening) and not SUCCESS.search(seen.opening.split(",")[0]):
            words = short(seen.opening, 120)
            why = f"the closing words tell of a failure ({row.name}): {words}"
            return Verdict("fail", "says it failed", (why,))
    return None


def tests_red(seen: OutcomeEvidence) -> Verdict | None:
    """The last test run of some runner failed, and nothing was edited after it."""
    red = [run for run in seen.last_runs.values() if run.red and not seen.changed_after(run)]
    green = [run for run in seen.last_runs.values() if not run.red]
    if not red or green:
        return None
    return Verdict("fail", "tests red", (f"the last run of {red[-1].runner} failed",))


def ends_in_question(seen: OutcomeEvidence) -> Verdict | None:
    """The closing words ask the user something. An offer after finished work is no question."""
    is_open = asks_user(seen.closing) or (closes_with_offer(seen.closing) and not _did_work(seen))
    if not is_open:
        return None
    words = short(seen.closing.rstrip()[-120:], 120)
    return Verdict("waiting", "question", (f"the last answer ends in a question: {words}",))


def _did_work(seen: OutcomeEvidence) -> bool:
    """Whether the last turn changed something, says that it did, or answered a question."""
    did = any(seen.timeline.edits(pair) or has_landed(seen.timeline, pair) for pair in seen.calls)
    answered = seen.turn.text.rstrip().endswith("?")
    return did or answered or SUCCESS.search(seen.reply) is not None


def only_announced(seen: OutcomeEvidence) -> Verdict | None:
    """The reply says what it is going to do, and nothing was done."""
    if seen.calls or not seen.reply or len(seen.reply) > 200:
        return None
    if any(pattern.match(seen.opening) for _, pattern in ANNOUNCEMENTS.each):
        return Verdict("unknown", "announced", ("work is announced of which nothing is seen",))
    return None


def only_advised(seen: OutcomeEvidence) -> Verdict | None:
    """The human brought an error, and got advice that nobody tried."""
    if seen.calls or not seen.reply:
        return None
    prompt = seen.turn.text[:LOOKED_AT]
    if len(seen.timeline.turns) > 1 and errors.error_shape(prompt) is not None:
        why = "an error was reported, and the advice was not tried"
        return Verdict("unknown", "advised", (why,))
    return None


def came_to_rest(seen: OutcomeEvidence) -> Verdict | None:
    """An answer was given and nothing speaks against it."""
    proofs, doubts = list(_proofs(seen)), list(_doubts(seen))
    basis: Basis = "answered, in doubt" if doubts else "answered, proven" if proofs else "answered"
    return Verdict("success", basis, ("the last prompt was answered", *proofs, *doubts))


def _proofs(seen: OutcomeEvidence) -> Iterable[str]:
    green = [run for run in seen.last_runs.values() if not run.red]
    if green:
        yield f"the last run of {green[-1].runner} passed"
    if any(has_landed(seen.timeline, pair) for pair in seen.calls):
        yield "the work was committed or pushed"
    if thanks(seen.turn.text):
        yield "the user was content"


def _doubts(seen: OutcomeEvidence) -> Iterable[str]:
    if corrects(seen.turn.text) is not None:
        yield "the last prompt was a correction, and no word came after its answer"
    red = [run for run in seen.last_runs.values() if run.red]
    if red:
        yield f"the last run of {red[-1].runner} failed"
    left = [todo for todo in seen.timeline.listed_todos if todo.origin == "tool"]
    if left:
        yield f"{len(left)} on the to-do list left open"


RULES: Final[Sequence[Rule]] = (
    nothing_asked,
    died_of_error,
    interrupted,
    question_open,
    cut_in_mid_turn,
    refused,
    says_it_failed,
    tests_red,
    ends_in_question,
    only_announced,
    only_advised,
    came_to_rest,
)


def judge(timeline: SessionTimeline) -> Verdict:
    """Return how a session went."""
    seen = OutcomeEvidence(timeline)
    return next(verdict for rule in RULES if (verdict := rule(seen)) is not None)


_LANDS = expression(r"\bgit (?:-C \S+ )?(?:commit|push|merge)\b|\bgh pr (?:create|merge)\b")


def has_landed(timeline: SessionTimeline, pair: Call) -> bool:
    """Whether a call committed, pushed or merged, and went well."""
    script = timeline.script(pair)
    well = pair.outcome.succeeded
    return well and script is not None and _LANDS.search(script) is not None


# -- the task -------------------------------------------------------------------------------


class TaskPattern(msgspec.Struct, frozen=True):
    """How a task is named, and how its name is written down; `ref` as `re.Match.expand` has it."""

    name: str
    pattern: str
    ref: str = r"\g<0>"


class TaskRef(msgspec.Struct, frozen=True):
    """Which task a session was for, and where that was found."""

    ref: str
    found_in: Literal["branch", "prompt", "cwd", "commit"]


_NO_PROJECT: Final = (
    "AES|ASCII|BASE|CP|CVE|CWE|ECMA|EUC|GB|GMT|GPT|HTTP|IEC|IEEE|IPV|ISO|KOI|LATIN|MD|MP|OPUS|PEP|"
    "RFC|RSA|SHA|SOC|TLS|TS|UCS|UTC|UTF|WCAG|WIN|X"
)
"""Standards and the like that are written as tasks are."""

TASKS: Final = (
    TaskPattern(
        "work package", r"\b[A-Z][A-Z0-9]{1,15}(?:-[A-Z]{2,8})+-\d{1,6}(?:-[A-Z]\d{1,4})?\b"
    ),
    TaskPattern("ticket", rf"\b(?!(?:{_NO_PROJECT})-)[A-Z][A-Z0-9]{{1,9}}-\d{{1,6}}\b(?![-.]\d)"),
    TaskPattern(
        "issue",
        r"(?i:(?<![a-z])(?:issues?|gh|bug|ticket|pull|pr)[-_/ ]#?(\d{1,6}))(?![\w.])",
        r"#\1",
    ),
    TaskPattern("number", r"(?<![\w&#/.])(?<!Image )#(\d{1,5})(?![\w.]*\w)", r"#\1"),
)
"""The patterns that are tried when the user names none, in this order."""

_IN_BRANCH = expression(r"(?:^|/)(?=[a-z]{2,10}-\d)([a-z]{2,10}-\d{1,6})(?=$|[-_/])")
_PLAIN: Final = (
    "add build bug bump chore ci day dev docs feat feature fix gh hotfix issue issues main node "
    "part patch phase pr pull python rc release spike step sprint task test ticket update v "
    "version week wip"
)
"""Words that stand before a number in a branch's name without being a project."""


def task_of(
    timeline: SessionTimeline,
    *,
    branch: str | None,
    cwd: str | None,
    patterns: Iterable[TaskPattern] = TASKS,
) -> TaskRef | None:
    """Find out which task a session was for; the branch is asked first, commits last."""
    known = list(patterns)
    scripts = (timeline.script(pair) for pair in timeline.calls)
    commits = [script[:LOOKED_AT] for script in scripts if script and "git commit" in script]
    prompts = [event_text(event)[:LOOKED_AT] for event in timeline.prompts[:20]]
    if branch and known == list(TASKS) and (ticket := _branch_ticket(branch)) is not None:
        return TaskRef(ticket, "branch")
    places: tuple[tuple[Literal["branch", "prompt", "cwd", "commit"], list[str]], ...] = (
        ("branch", [branch or ""]),
        ("prompt", prompts),
        ("cwd", [cwd or ""]),
        ("commit", commits[-20:]),
    )
    for where, texts in places:
        for pattern in known:
            for text in texts:
                if (match := re.search(pattern.pattern, text)) is not None:
                    return TaskRef(short(match.expand(pattern.ref), 80), where)
    return None


def _branch_ticket(branch: str) -> str | None:
    """A ticket in a branch's name is often written small."""
    match = _IN_BRANCH.search(branch)
    if match is None or match[1].partition("-")[0] in _PLAIN.split():
        return None
    return match[1].upper()
