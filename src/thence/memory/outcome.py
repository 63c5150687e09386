"""How a session went, and which task it was for: stated heuristics, each with its reason.

The rules stand in `RULES` in the order in which they are asked; the first that has an answer
gives it, in words a reader can check against the session. A session is judged by its last turn:
what was asked last, and what became of it. No rule looks at a clock, so a log that stops in the
middle of a turn is unknown: whether that turn still runs, only `session_status` can tell.

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
from thence.format.derived_events import Call
from thence.format.expressions import expression
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
    thanks,
)
from thence.memory.session_timeline import (
    SessionTimeline,
    TimelineTurn,
    event_text,
    short,
    waits_for_human,
)
from thence.memory.todo_tally import TodoTally

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


class PromptSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the last prompt says by its wording."""

    asks: bool = False
    """It ends in a question mark."""
    thanks: bool = False
    corrects: bool = False
    reports_error: bool = False


class OpenCall(msgspec.Struct, frozen=True):
    """A call that was not answered."""

    what: str
    waits_for_human: bool


class RefusedCall(msgspec.Struct, frozen=True):
    """A call that was refused."""

    what: str
    by_user: bool


class RunnerSeen(msgspec.Struct, frozen=True):
    """The last run of one runner of tests."""

    red: bool
    edited_since: bool = False


class EndingTally(msgspec.Struct, omit_defaults=True):
    """What the rules must know of the last turn, and of tests. Goes on where it was."""

    turns: int = 0
    prompt: PromptSeen = PromptSeen()
    has_calls: bool = False
    has_edited: bool = False
    has_landed: bool = False
    refused: dict[str, RefusedCall] = {}
    """Calls of the last turn by their tool, as long as no later call like them went well."""
    open: OpenCall | None = None
    """The last call after the last reply, if nothing answered it."""
    runners: dict[str, RunnerSeen] = {}

    def add(self, timeline: SessionTimeline) -> None:
        """Count the next part of a session."""
        turns = timeline.turns
        begun = sum(bool(turn.prompt) for turn in turns)
        is_first = not self.turns and bool(turns[0].events) and not turns[0].prompt
        self.turns += begun + is_first
        last = turns[-1]
        if last.prompt:
            text = last.text
            self.prompt = PromptSeen(
                text.rstrip().endswith("?"),
                thanks(text),
                timeline.correction(last) is not None,
                errors.error_shape(text[:LOOKED_AT]) is not None,
            )
            self.has_calls = self.has_edited = self.has_landed = False
            self.refused, self.open = {}, None
        self._add_calls(timeline, last)
        runs = {run.call.call.event_id: run for run in timeline.runs}
        for pair in timeline.calls if runs or self.runners else ():
            if timeline.edits(pair):
                seen = self.runners.items()
                self.runners = {name: RunnerSeen(run.red, edited_since=True) for name, run in seen}
            if (run := runs.get(pair.call.event_id)) is not None:
                self.runners[run.runner] = RunnerSeen(run.red)

    def _add_calls(self, timeline: SessionTimeline, turn: TimelineTurn) -> None:
        """Count the calls of the last turn."""
        pairs = {pair.call.event_id: pair for pair in timeline.calls_in(turn.events)}
        for event in turn.events:
            if event.kind == "assistant_msg":
                self.open = None
            elif (pair := pairs.get(event.event_id)) is not None:
                self._add_call(timeline, pair)

    def _add_call(self, timeline: SessionTimeline, pair: Call) -> None:
        tool, what = pair.call.tool or "", short(pair.call.summary, 100)
        self.has_calls = True
        self.has_edited = self.has_edited or timeline.edits(pair)
        self.has_landed = self.has_landed or has_landed(timeline, pair)
        if pair.result is None:
            self.open = OpenCall(what, waits_for_human(pair))
        if pair.outcome.ended and pair.outcome.reason == "denied":
            self.refused[tool] = RefusedCall(what, pair.outcome.is_by_user)
        elif pair.outcome.ended and not pair.outcome.failed:
            self.refused.pop(tool, None)


class OutcomeEvidence:
    """What the rules look at, worked out once."""

    def __init__(
        self, timeline: SessionTimeline, tally: EndingTally, todos: TodoTally | None
    ) -> None:
        """Look at a session, or at the end of one; without `todos` these are counted if needed."""
        self.timeline = timeline
        self.tally = tally
        self._todos = todos

    @cached_property
    def listed(self) -> int:
        """How many to-dos of its tools are open."""
        if self._todos is None:
            self._todos = TodoTally()
            self._todos.add(self.timeline)
        return self._todos.open_on_lists()

    @property
    def last(self) -> SessionEvent | None:
        """The last thing that was said or done."""
        return self.timeline.spoken[-1] if self.timeline.spoken else None

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
        """Whether the log stops before the agent came to rest."""
        last = self.last
        if last is None or self.timeline.session.turn().state is not TurnState.RUNNING:
            return False
        return last.kind != "assistant_msg" or not self._is_end(last)

    def _is_end(self, event: SessionEvent) -> bool:
        session = self.timeline.session
        place = session.graph.place(event.native_id)
        return place is not None and bool(session.records[place].node.flags & Is.ENDS)

    @cached_property
    def opening(self) -> str:
        """The first sentence of the closing words."""
        plain = self.reply.strip().lstrip("#*-> ").replace("\u2019", "'")
        return _SENTENCE.split(plain, maxsplit=1)[0] if plain else ""

    def runners(self, *, red: bool) -> list[str]:
        """Return the runners of tests whose last run failed, or did not."""
        return [name for name, run in self.tally.runners.items() if run.red is red]


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
    is_open = seen.tally.open
    if not waits and not (is_open is not None and is_open.waits_for_human):
        return None
    if is_open is not None:
        what = is_open.what
    else:
        what = short(event_text(seen.last) if seen.last is not None else "", 100)
    return Verdict("waiting", "question open", (f"it waits for the user: {what}",))


def cut_in_mid_turn(seen: OutcomeEvidence) -> Verdict | None:
    """The log stops before the agent came to rest: it runs still, or its process is gone."""
    if not seen.is_cut_off or seen.last is None:
        return None
    if (is_open := seen.tally.open) is not None:
        why = f"the log stops at a call without a result: {is_open.what}"
    elif seen.last.kind == "user_msg":
        why = "the log stops at a prompt without an answer"
    else:
        why = "the log stops in the middle of the last turn"
    return Verdict("unknown", "cut in mid-turn", (why,))


def refused(seen: OutcomeEvidence) -> Verdict | None:
    """What was needed was refused, and nothing took its place."""
    if not seen.tally.refused:
        return None
    call = list(seen.tally.refused.values())[-1]
    what = call.what
    if call.by_user:
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
    runners = seen.tally.runners
    red = [name for name in seen.runners(red=True) if not runners[name].edited_since]
    if not red or seen.runners(red=False):
        return None
    return Verdict("fail", "tests red", (f"the last run of {red[-1]} failed",))


def ends_in_question(seen: OutcomeEvidence) -> Verdict | None:
    """The closing words ask the user something. An offer after finished work is no question."""
    is_open = asks_user(seen.closing) or (closes_with_offer(seen.closing) and not _did_work(seen))
    if not is_open:
        return None
    words = short(seen.closing.rstrip()[-120:], 120)
    return Verdict("waiting", "question", (f"the last answer ends in a question: {words}",))


def _did_work(seen: OutcomeEvidence) -> bool:
    """Whether the last turn changed something, says that it did, or answered a question."""
    tally = seen.tally
    did = tally.has_edited or tally.has_landed
    return did or tally.prompt.asks or SUCCESS.search(seen.reply) is not None


def only_announced(seen: OutcomeEvidence) -> Verdict | None:
    """The reply says what it is going to do, and nothing was done."""
    if seen.tally.has_calls or not seen.reply or len(seen.reply) > 200:
        return None
    if any(pattern.match(seen.opening) for _, pattern in ANNOUNCEMENTS.each):
        return Verdict("unknown", "announced", ("work is announced of which nothing is seen",))
    return None


def only_advised(seen: OutcomeEvidence) -> Verdict | None:
    """The human brought an error, and got advice that nobody tried."""
    if seen.tally.has_calls or not seen.reply:
        return None
    if seen.tally.turns > 1 and seen.tally.prompt.reports_error:
        why = "an error was reported, and the advice was not tried"
        return Verdict("unknown", "advised", (why,))
    return None


def came_to_rest(seen: OutcomeEvidence) -> Verdict | None:
    """An answer was given and nothing speaks against it."""
    proofs, doubts = list(_proofs(seen)), list(_doubts(seen))
    basis: Basis = "answered, in doubt" if doubts else "answered, proven" if proofs else "answered"
    return Verdict("success", basis, ("the last prompt was answered", *proofs, *doubts))


def _proofs(seen: OutcomeEvidence) -> Iterable[str]:
    if green := seen.runners(red=False):
        yield f"the last run of {green[-1]} passed"
    if seen.tally.has_landed:
        yield "the work was committed or pushed"
    if seen.tally.prompt.thanks:
        yield "the user was content"


def _doubts(seen: OutcomeEvidence) -> Iterable[str]:
    if seen.tally.prompt.corrects:
        yield "the last prompt was a correction, and no word came after its answer"
    if red := seen.runners(red=True):
        yield f"the last run of {red[-1]} failed"
    if seen.listed:
        yield f"{seen.listed} on the to-do list left open"


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


def judge(
    timeline: SessionTimeline,
    tally: EndingTally | None = None,
    todos: TodoTally | None = None,
) -> Verdict:
    """Return how a session went. Of one that was counted before, `timeline` is its end."""
    if tally is None:
        tally = EndingTally()
        tally.add(timeline)
    seen = OutcomeEvidence(timeline, tally, todos)
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


_TASK_TEXTS: Final = 20
"""Prompts at the start and commits at the end that are searched for a task."""


class TaskTally(msgspec.Struct, omit_defaults=True):
    """Tasks that prompts and commits name, by the number of the pattern."""

    prompts: int = 0
    in_prompts: dict[int, str] = {}
    commits: list[dict[int, str]] = []
    """Of the last ones."""

    def add(self, timeline: SessionTimeline, patterns: Sequence[TaskPattern]) -> None:
        """Look for tasks in the next part of a session."""
        for event in timeline.prompts[: max(_TASK_TEXTS - self.prompts, 0)]:
            self.prompts += 1
            for at, ref in _tasks_in(event_text(event)[:LOOKED_AT], patterns).items():
                self.in_prompts.setdefault(at, ref)
        scripts = (timeline.script(pair) for pair in timeline.calls)
        commits = [script[:LOOKED_AT] for script in scripts if script and "git commit" in script]
        self.commits += [_tasks_in(script, patterns) for script in commits[-_TASK_TEXTS:]]
        self.commits = self.commits[-_TASK_TEXTS:]


def _tasks_in(text: str, patterns: Sequence[TaskPattern]) -> dict[int, str]:
    """Return the first task that each pattern finds in a text."""
    return {
        at: short(match.expand(pattern.ref), 80)
        for at, pattern in enumerate(patterns)
        if (match := re.search(pattern.pattern, text)) is not None
    }


def task_of(
    tally: TaskTally,
    *,
    branch: str | None,
    cwd: str | None,
    patterns: Iterable[TaskPattern] = TASKS,
) -> TaskRef | None:
    """Find out which task a session was for; the branch is asked first, commits last."""
    known = list(patterns)
    if branch and known == list(TASKS) and (ticket := _branch_ticket(branch)) is not None:
        return TaskRef(ticket, "branch")
    places: tuple[tuple[Literal["branch", "prompt", "cwd", "commit"], list[dict[int, str]]], ...]
    places = (
        ("branch", [_tasks_in(branch or "", known)]),
        ("prompt", [tally.in_prompts]),
        ("cwd", [_tasks_in(cwd or "", known)]),
        ("commit", tally.commits),
    )
    for where, texts in places:
        for at in range(len(known)):
            for refs in texts:
                if at in refs:
                    return TaskRef(refs[at], where)
    return None


def _branch_ticket(branch: str) -> str | None:
    """A ticket in a branch's name is often written small."""
    match = _IN_BRANCH.search(branch)
    if match is None or match[1].partition("-")[0] in _PLAIN.split():
        return None
    return match[1].upper()
