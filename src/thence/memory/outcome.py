"""How a session went, and which task it was for: stated heuristics, each with its reason.

The rules stand in `RULES` in the order in which they are asked; the first that has an answer
gives it, in words a reader can check against the session. A session is judged by its last turn:
what was asked last, and what became of it. No rule looks at a clock, so a session that is still
running counts as left at the point it has reached, until it is judged again.

    success    what was asked last was done or answered, and nothing speaks against it
    fail       the agent came to rest and what was asked was not done
    abandoned  cut off: killed, interrupted, or left before an answer came
    unknown    nothing was asked, or the session does not show how it went

Pure, and no model is asked. The confidence says how often such a verdict may be wrong, roughly;
it is no probability.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Final, Literal

import msgspec

from thence.format import kinds
from thence.format.expressions import expression
from thence.format.joins import Call
from thence.format.normal import SessionEvent
from thence.format.turn import TurnState
from thence.memory.course import Course, Run, Turn, said, short, waits_for_human
from thence.memory.wording import ANNOUNCEMENTS, FAILURES, LOOKED_AT, SUCCESS, corrects, thanks

Outcome = Literal["success", "fail", "abandoned", "unknown"]


class Verdict(msgspec.Struct, frozen=True):
    """How a session went, how sure that is, and why."""

    outcome: Outcome
    confidence: float
    reasons: tuple[str, ...]


_HUMAN_REFUSED = expression(r"The user doesn't want to|User rejected|User cancelled")
_SENTENCE = expression(r"(?<=[.!?])\s|\n")


# -- the evidence ---------------------------------------------------------------------------


class Evidence:
    """What the rules look at, worked out once."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self.turn: Turn = course.turns[-1]

    @property
    def last(self) -> SessionEvent | None:
        """The last thing that was said or done."""
        return self.course.told[-1] if self.course.told else None

    @cached_property
    def calls(self) -> list[Call]:
        """The calls of the last turn."""
        return self.course.calls_in(self.turn.events)

    @cached_property
    def open(self) -> list[Call]:
        """Calls after the last reply that were never answered."""
        replies = [at for at, e in enumerate(self.turn.events) if e.kind == "assistant_msg"]
        after = self.turn.events[replies[-1] :] if replies else self.turn.events
        return [pair for pair in self.course.calls_in(after) if pair.result is None]

    @cached_property
    def reply(self) -> str:
        """The closing words: the last reply, when nothing was done after it."""
        last = self.last
        return said(last)[:LOOKED_AT] if last is not None and last.kind == "assistant_msg" else ""

    @cached_property
    def opening(self) -> str:
        """The first sentence of the closing words."""
        plain = self.reply.strip().lstrip("#*-> ").replace("\u2019", "'")
        return _SENTENCE.split(plain, maxsplit=1)[0] if plain else ""

    @cached_property
    def last_runs(self) -> dict[str, Run]:
        """The last run of each command that runs tests."""
        return {run.runner: run for run in self.course.runs}

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

    def changed_after(self, run: Run) -> bool:
        """Whether files were edited after a run of the tests."""
        calls = self.course.calls
        place = next(at for at, pair in enumerate(calls) if pair is run.call)
        return any(self.course.edits(pair) for pair in calls[place + 1 :])


Rule = Callable[[Evidence], Verdict | None]


def nothing_asked(seen: Evidence) -> Verdict | None:
    """Without a prompt, a reply or a call there is nothing to judge."""
    if seen.last is None:
        return Verdict("unknown", 0.9, ("nothing was asked on the live line",))
    return None


def died_of_error(seen: Evidence) -> Verdict | None:
    """The request itself failed and nothing followed."""
    if seen.last is not None and seen.last.kind == "error":
        why = short(said(seen.last), 100)
        return Verdict("fail", 0.85, (f"the last request ended in an error: {why}",))
    return None


def interrupted(seen: Evidence) -> Verdict | None:
    """The last turn was cut short, by the log's own word."""
    if seen.course.whole.turn().state is TurnState.INTERRUPTED and not seen.reply:
        return Verdict("abandoned", 0.9, ("the last turn was interrupted and not taken up again",))
    return None


def open_call(seen: Evidence) -> Verdict | None:
    """The log ends at a call that was never answered."""
    if not seen.open:
        return None
    what = short(seen.open[-1].call.summary, 100)
    if seen.course.whole.turn().state is TurnState.WAITING or waits_for_human(seen.open[-1]):
        return Verdict("abandoned", 0.8, (f"it ends waiting for a human: {what}",))
    return Verdict("abandoned", 0.8, (f"it ends at a call that was never answered: {what}",))


def unanswered(seen: Evidence) -> Verdict | None:
    """The log ends at a prompt."""
    if seen.last is not None and seen.last.kind == "user_msg":
        return Verdict("abandoned", 0.7, ("the last prompt was never answered",))
    return None


def no_closing_words(seen: Evidence) -> Verdict | None:
    """The log ends at a result: done, if that was the change or the proof that was wanted."""
    if seen.last is None or seen.last.kind != "tool_result" or not seen.calls:
        return None
    final = seen.calls[-1]
    well = final.outcome.succeeded
    proven = any(run.call is final and not run.red for run in seen.course.runs)
    if well and (proven or seen.course.edits(final)):
        what = "a green test run" if proven else "an edit"
        return Verdict("success", 0.5, (f"it ends with {what}; only closing words are missing",))
    return Verdict("abandoned", 0.7, ("it ends in the middle of work, without closing words",))


def refused(seen: Evidence) -> Verdict | None:
    """What was needed was refused, and nothing took its place."""
    if not seen.refused:
        return None
    pair = seen.refused[-1]
    what = short(pair.call.summary, 100)
    if pair.result is not None and _HUMAN_REFUSED.match(said(pair.result)):
        return Verdict("unknown", 0.5, (f"the human refused: {what}",))
    return Verdict("fail", 0.7, (f"not allowed, and nothing took its place: {what}",))


def says_it_failed(seen: Evidence) -> Verdict | None:
    """The closing words begin with a failure."""
    for row, pattern in FAILURES.each:
        if pattern.match(seen.opening) and not SUCCESS.search(seen.opening.split(",")[0]):
            words = short(seen.opening, 120)
            return Verdict("fail", 0.65, (f"the closing words tell of it ({row.name}): {words}",))
    return None


def tests_red(seen: Evidence) -> Verdict | None:
    """The last test run of some runner failed, and nothing was edited after it."""
    red = [run for run in seen.last_runs.values() if run.red and not seen.changed_after(run)]
    green = [run for run in seen.last_runs.values() if not run.red]
    if not red or green:
        return None
    return Verdict("fail", 0.7, (f"the last run of {red[-1].runner} was red",))


def only_announced(seen: Evidence) -> Verdict | None:
    """The reply says what it is going to do, and nothing was done."""
    if seen.calls or not seen.reply or len(seen.reply) > 200:
        return None
    if any(pattern.match(seen.opening) for _, pattern in ANNOUNCEMENTS.each):
        return Verdict("unknown", 0.5, ("work is announced of which nothing is seen",))
    return None


def only_advised(seen: Evidence) -> Verdict | None:
    """The human brought an error, and got advice that nobody tried."""
    if seen.calls or not seen.reply:
        return None
    prompt = seen.turn.text[:LOOKED_AT]
    if len(seen.course.turns) > 1 and kinds.error_shape(prompt) is not None:
        return Verdict("unknown", 0.5, ("an error was brought, and the advice was not tried",))
    return None


def came_to_rest(seen: Evidence) -> Verdict | None:
    """An answer was given and nothing speaks against it."""
    reasons = ["the last prompt was answered"]
    confidence = 0.65
    green = [run for run in seen.last_runs.values() if not run.red]
    if green:
        reasons.append(f"the last run of {green[-1].runner} was green")
        confidence += 0.2
    if any(landed(seen.course, pair) for pair in seen.calls):
        reasons.append("the work was committed or pushed")
        confidence += 0.15
    if thanks(seen.turn.text):
        reasons.append("the human was content")
        confidence += 0.15
    if corrects(seen.turn.text) is not None:
        reasons.append("the last prompt was a correction, and no word came after its answer")
        confidence -= 0.1
    red = [run for run in seen.last_runs.values() if run.red]
    if red:
        reasons.append(f"the last run of {red[-1].runner} was red")
        confidence -= 0.2
    left = [todo for todo in seen.course.listed_todos if todo.origin == "tool"]
    if left:
        reasons.append(f"{len(left)} on the list of todos is left open")
        confidence -= 0.1
    return Verdict("success", round(min(max(confidence, 0.4), 0.95), 2), tuple(reasons))


RULES: Final[Sequence[Rule]] = (
    nothing_asked,
    died_of_error,
    interrupted,
    open_call,
    unanswered,
    no_closing_words,
    refused,
    says_it_failed,
    tests_red,
    only_announced,
    only_advised,
    came_to_rest,
)


def judge(course: Course) -> Verdict:
    """Say how a session went."""
    seen = Evidence(course)
    found = (verdict for rule in RULES if (verdict := rule(seen)) is not None)
    return next(found)


_LANDS = expression(r"\bgit (?:-C \S+ )?(?:commit|push|merge)\b|\bgh pr (?:create|merge)\b")


def landed(course: Course, pair: Call) -> bool:
    """Whether a call committed, pushed or merged, and went well."""
    script = course.script(pair)
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
    course: Course,
    *,
    branch: str | None,
    cwd: str | None,
    patterns: Iterable[TaskPattern] = TASKS,
) -> TaskRef | None:
    """Find out which task a session was for; the branch is asked first, commits last."""
    known = list(patterns)
    scripts = (course.script(pair) for pair in course.calls)
    commits = [script[:LOOKED_AT] for script in scripts if script and "git commit" in script]
    prompts = [said(event)[:LOOKED_AT] for event in course.prompts[:20]]
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
                if (found := re.search(pattern.pattern, text)) is not None:
                    return TaskRef(short(found.expand(pattern.ref), 80), where)
    return None


def _branch_ticket(branch: str) -> str | None:
    """A ticket in a branch's name is often written small."""
    found = _IN_BRANCH.search(branch)
    if found is None or found[1].partition("-")[0] in _PLAIN.split():
        return None
    return found[1].upper()
