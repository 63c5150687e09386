"""A session told in short: the structure of a digest, and how it is made from a timeline.

A digest is what is left when the raw session is evicted: how it went and why we say so, what it
took, which tools, tests and files it used, what went wrong, what is still open. Pointers are event
ids, quotes are redacted already. Invariants: the same facts give the same digest, in whatever
order they came; it has at most `MAX_DIGEST_BYTES`, and says what was left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from thence.format import shell
from thence.format.joins import Call
from thence.format.normal import SessionEvent
from thence.format.records import JSON
from thence.format.wording import corrects
from thence.memory import derivation
from thence.memory.course import (
    SessionTimeline,
    TestRun,
    ToolError,
    cut_short,
    event_text,
    prompt_text,
    short,
)
from thence.memory.outcome import TASKS, Outcome, TaskPattern, judge, task_of
from thence.memory.pulls import opened_pulls
from thence.memory.signals import error_line
from thence.memory.store import SessionRow

MAX_DIGEST_BYTES: Final = 64 << 10
"""Bytes a digest has at most."""

MAX_SNIPPET_BYTES: Final = 2_000
"""Bytes of quotes from what was said, together."""

_FIRST_PROMPT_BYTES: Final = 600  # bytes of the first prompt
_LAST_REPLY_BYTES: Final = 700  # bytes of the last reply
_MAX_ENTRIES: Final = {
    "tools": 40,
    "errors": 20,
    "subagent_errors": 20,
    "files": 60,
    "commands": 20,
    "todos": 20,
    "branches": 12,
    "subagents": 20,
    "interventions": 12,
    "tests": 12,
    "models": 12,
    "pulls": 12,
}
"""How many of each are kept; how many were left out stands in `left_out`."""


class Money(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens, and what they cost in ticks of 1e-10 dollars."""

    tokens: int = 0
    ticks: int = 0


class DigestCost(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a session took: on its line, on discarded branches, in its subagents."""

    live: Money = Money()
    dead: Money = Money()
    side: Money = Money()
    responses: int = 0
    unpriced: int = 0
    """Tokens whose price nobody knows: the money is a lower bound."""
    lower_bound: tuple[str, ...] = ()
    """Why the tokens are a lower bound."""


class ToolUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """How often a tool was called, how often in vain, and how long it took together."""

    tool: str
    calls: int = 0
    failed: int = 0
    refused: int = 0
    """Denied or interrupted; not among the failed ones."""
    took_ms: int = 0


class Fix(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was done before an error did not come back."""

    event: int
    what: str


class ErrorSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """One error, by its fingerprint."""

    fingerprint: str
    count: int
    first: int
    last: int
    tool: str = ""
    quote: str = ""
    settled_by: int | None = None
    """The call that went well after it, where the same thing was tried again."""
    fix: tuple[Fix, ...] = ()
    """What was changed in between, the last first."""


class Intervention(msgspec.Struct, frozen=True, omit_defaults=True):
    """A human stepped in: refused a call, stopped a turn, corrected, or reported a fault."""

    event: int
    what: str


class TestsSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one runner was asked for, and what its last run said."""

    runner: str
    runs: int
    red: int
    """How many of them failed."""
    last_red: bool
    last: int
    """The call of the last run."""
    passed: int | None = None
    failed: int | None = None
    skipped: int | None = None


class FileTouched(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file: how often it was read and changed, and how often tests were red after that."""

    path: str
    reads: int = 0
    edits: int = 0
    broke: int = 0
    """Red test runs that followed an edit of it, before the next run."""


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command that did more than look: a commit, a push, a release, a deletion."""

    what: str
    event: int
    line: str
    failed: bool = False


class Snippets(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was said, in short."""

    first_prompt: str = ""
    last_prompt: str = ""
    last_reply: str = ""
    corrections: tuple[str, ...] = ()


class OpenItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that was to be done and is not."""

    text: str
    status: str
    origin: str
    event: int | None = None


class BranchCost(msgspec.Struct, frozen=True, omit_defaults=True):
    """A discarded branch."""

    first: int
    last: int
    events: int
    cost: Money
    prompt: str = ""


class Subagent(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a subagent of this session did. Those that are sessions of their own are edges."""

    channel: str
    events: int = 0
    calls: int = 0
    failed: int = 0
    tokens: int = 0
    asked: str = ""


class Digest(msgspec.Struct, omit_defaults=True):
    """The account of one session."""

    version: int
    agent: str
    outcome: Outcome
    confidence: float
    reasons: tuple[str, ...]
    title: str | None = None
    task_ref: str | None = None
    task_from: str | None = None
    """Where the task was found: branch, prompt, cwd or commit."""
    repo: str | None = None
    cwd: str | None = None
    git_branch: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    seconds: float = 0.0
    turns: int = 0
    events: int = 0
    states: dict[str, int] = {}
    cost: DigestCost = DigestCost()
    models: dict[str, int] = {}
    """Responses by model, subagents included."""
    context_peak: int = 0
    """Tokens that the model was given at once, at most; 0 when no log tells."""
    compactions: int = 0
    tools: list[ToolUse] = []
    errors: list[ErrorSeen] = []
    """Of the session itself."""
    subagent_errors: list[ErrorSeen] = []
    retries: int = 0
    interventions: list[Intervention] = []
    tests: list[TestsSeen] = []
    files: list[FileTouched] = []
    commands: list[Command] = []
    pulls: list[str] = []
    """Pull requests that it opened, as `owner/repository#7`."""
    snippets: Snippets = Snippets()
    todos: list[OpenItem] = []
    branches: list[BranchCost] = []
    subagents: list[Subagent] = []
    left_out: dict[str, int] = {}
    """How many of a list did not fit."""
    more: dict[str, JSON] = {}
    """What other digesters say, by their names."""


# -- the account ----------------------------------------------------------------------------


def account(
    timeline: SessionTimeline, row: SessionRow, *, tasks: Iterable[TaskPattern] = TASKS
) -> Digest:
    """Tell a session in short."""
    session = row.session
    verdict = judge(timeline)
    task = task_of(timeline, branch=session.git_branch, cwd=session.cwd, patterns=tasks)
    title = short(row.title or "", 300)
    out = Digest(
        derivation.DIGEST_VERSION,
        session.flavor,
        verdict.outcome,
        verdict.confidence,
        tuple(short(reason, 300) for reason in verdict.reasons),
        title=title or None,
        task_ref=task.ref if task else None,
        task_from=task.found_in if task else None,
        repo=_maybe(session.repo, 200),
        cwd=_maybe(session.cwd, 300),
        git_branch=_maybe(session.git_branch, 200),
        started_at=session.started_at,
        ended_at=session.ended_at,
        seconds=session.cost.wall_clock_s,
        turns=session.cost.turns,
        events=row.events,
        states=dict(sorted(row.states.items())),
        cost=_cost(row),
        context_peak=max((bill.context for bill in timeline.contexts), default=0),
        compactions=len(timeline.summaries),
        retries=len(timeline.retries),
        snippets=_snippets(timeline),
    )
    _fill(out, "models", _models(timeline))
    _fill(out, "tools", _tools(timeline))
    _fill(out, "errors", _errors(timeline, timeline.own_errors))
    _fill(out, "subagent_errors", _errors(timeline, timeline.subagent_errors))
    _fill(out, "interventions", _interventions(timeline))
    _fill(out, "tests", _tests(timeline))
    _fill(out, "files", _files(timeline, session.cwd))
    _fill(out, "commands", _commands(timeline))
    _fill(out, "pulls", opened_pulls(timeline))
    _fill(out, "todos", _todos(timeline, verdict.outcome))
    _fill(out, "branches", _branches(timeline))
    _fill(out, "subagents", _subagents(timeline))
    return _shorten_lists(out)


def _maybe(text: str | None, size: int) -> str | None:
    return short(text, size) if text else None


_Some = TypeVar("_Some", list[Any], dict[str, Any])


def _fill(out: Digest, name: str, entries: _Some) -> None:
    """Keep the first of a list, and count what is left out."""
    most = _MAX_ENTRIES[name]
    if len(entries) > most:
        out.left_out = {**out.left_out, name: len(entries) - most}
    shortened = dict(list(entries.items())[:most]) if isinstance(entries, dict) else entries[:most]
    setattr(out, name, shortened)


def _shorten_lists(out: Digest) -> Digest:
    """Shorten the longest lists until the digest is small enough."""
    while len(msgspec.json.encode(out)) > MAX_DIGEST_BYTES:
        sizes = {name: len(msgspec.json.encode(getattr(out, name))) for name in _MAX_ENTRIES}
        name = max(sizes, key=lambda field: sizes[field])
        entries = getattr(out, name)
        half = len(entries) // 2
        out.left_out = {**out.left_out, name: out.left_out.get(name, 0) + len(entries) - half}
        setattr(
            out,
            name,
            dict(list(entries.items())[:half]) if isinstance(entries, dict) else entries[:half],
        )
    return out


def _cost(row: SessionRow) -> DigestCost:
    spent, ticks = row.spent, row.ticks
    return DigestCost(
        Money(spent.live.total, ticks.get("live", 0)),
        Money(spent.dead.total, ticks.get("dead", 0)),
        Money(spent.side.total, ticks.get("side", 0)),
        spent.responses,
        row.unpriced,
        tuple(short(why, 200) for why in row.lower_bound[:5]),
    )


def _models(timeline: SessionTimeline) -> dict[str, int]:
    counts = Counter(short(bill.event.model, 120) for bill in timeline.bills if bill.event.model)
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


# -- calls ----------------------------------------------------------------------------------


def _tools(timeline: SessionTimeline) -> list[ToolUse]:
    counts: dict[str, list[int]] = {}
    for pair in timeline.session.calls:
        sums = counts.setdefault(short(pair.call.tool or "", 120), [0, 0, 0, 0])
        sums[0] += 1
        sums[3] += pair.outcome.elapsed_ms or 0
        if cut_short(pair):
            sums[2] += 1
        elif pair.outcome.failed:
            sums[1] += 1
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1][0], entry[0]))
    return [ToolUse(tool, *sums) for tool, sums in ordered]


def _errors(timeline: SessionTimeline, some: Iterable[ToolError]) -> list[ErrorSeen]:
    by_fingerprint: dict[str, list[ToolError]] = {}
    for fault in some:
        by_fingerprint.setdefault(fault.fingerprint, []).append(fault)
    settled = _find_fixes(timeline)
    out = []
    for name, faults in by_fingerprint.items():
        last = faults[-1]
        ends = (settled.get(fault.call.call.event_id) for fault in reversed(faults))
        by, fix = next((end for end in ends if end is not None), (None, ()))
        out.append(
            ErrorSeen(
                name,
                len(faults),
                faults[0].event.event_id,
                last.event.event_id,
                short(last.call.call.tool or "", 120),
                "" if last.vague else short(error_line(last), 200),
                by,
                fix,
            )
        )
    return sorted(out, key=lambda error: (-error.count, error.first))


def _find_fixes(timeline: SessionTimeline) -> dict[int, tuple[int, tuple[Fix, ...]]]:
    """For each call that failed: the next one like it that went well, and what lay between.

    That is the fix that followed: edits, or commands that may have changed something. Where there
    was none, what was looked at in between is named (a file has to be read before it is edited).
    """
    if not timeline.errors:
        return {}
    waiting: dict[tuple[str, str, int], Call] = {}
    since: dict[tuple[str, str, int], list[Call]] = {}
    out: dict[int, tuple[int, tuple[Fix, ...]]] = {}
    for pair, key in zip(timeline.session.calls, timeline.retry_keys, strict=True):
        if pair.outcome.succeeded and key in waiting:
            failed = waiting.pop(key)
            out[failed.call.event_id] = (pair.call.event_id, _fixes(timeline, since.pop(key), pair))
        for other, between in since.items():
            if other != key and other[0] == pair.call.channel:
                between.append(pair)
        if pair.outcome.failed and not cut_short(pair):
            waiting[key] = pair
            since[key] = []
            while len(waiting) > _MAX_OPEN_ERRORS:
                oldest = next(iter(waiting))
                del waiting[oldest], since[oldest]
    return out


_MAX_OPEN_ERRORS: Final = 32  # errors that wait for their fix at a time: the work stays linear


_FIX_WINDOW_CALLS: Final = (
    50  # calls before the one that went well among which the fix is looked for
)


def _fixes(timeline: SessionTimeline, between: Sequence[Call], healed: Call) -> tuple[Fix, ...]:
    near = between[-_FIX_WINDOW_CALLS:]
    well = [pair for pair in near if pair.outcome.succeeded]
    did = [pair for pair in well if timeline.may_change(pair)] or well
    steps = did[-3:][::-1] or [healed]
    return tuple(Fix(pair.call.event_id, short(pair.call.summary, 160)) for pair in steps)


# fmt: off
_NOTEWORTHY: Final = (
    ("commit", ("git", "commit")), ("push", ("git", "push")), ("merge", ("git", "merge")),
    ("rebase", ("git", "rebase")), ("reset", ("git", "reset")), ("revert", ("git", "revert")),
    ("tag", ("git", "tag")), ("stash", ("git", "stash")), ("pull request", ("gh", "pr")),
    ("release", ("gh", "release")), ("publish", ("npm", "publish")),
    ("publish", ("twine", "upload")), ("publish", ("cargo", "publish")),
    ("install", ("npm", "install")), ("install", ("pip", "install")), ("install", ("uv", "add")),
    ("install", ("cargo", "add")), ("install", ("brew", "install")),
    ("install", ("apt", "install")), ("install", ("apt-get", "install")),
    ("deploy", ("kubectl", "apply")), ("deploy", ("terraform", "apply")),
    ("deploy", ("docker", "push")), ("delete", ("rm",)),
)
"""Commands that do more than look, by the words they begin with."""
# fmt: on

_SCRIPT_CHARS: Final = 2_000  # characters of a script that are looked at
_MAY_NOTE: Final = tuple(
    " ".join(words) if len(words) > 1 else f"{words[0]} " for _, words in _NOTEWORTHY
)
"""What a script holds that does so; most hold none of it, and need not be cut up."""


def _commands(timeline: SessionTimeline) -> list[Command]:
    """The last ones are kept: what a session came to stands at its end."""
    out: list[Command] = []
    for pair in timeline.calls:
        script = timeline.script(pair)
        what = noteworthy(script[:_SCRIPT_CHARS]) if script is not None else None
        if what is not None and pair.result is not None:
            failed = pair.outcome.failed
            line = short(pair.call.summary.removeprefix("ran "), 160)
            out.append(Command(what, pair.call.event_id, line, failed))
    return out[::-1]


def noteworthy(script: str) -> str | None:
    """Name what a script does that is worth remembering; None when it only looks."""
    if not any(name in script for name in _MAY_NOTE):
        return None
    for program in shell.programs(script):
        for what, words in _NOTEWORTHY:
            if tuple(program[: len(words)]) == words:
                return what
    return None


def _interventions(timeline: SessionTimeline) -> list[Intervention]:
    return [
        Intervention(row.event.event_id, short(derived.summary, 160))
        for row in timeline.session.rows
        for derived in row.derived
        if derived.kind == "human_intervention"
    ]


# -- tests and files ------------------------------------------------------------------------


def _tests(timeline: SessionTimeline) -> list[TestsSeen]:
    runs: dict[str, list[TestRun]] = {}
    for run in timeline.runs:
        runs.setdefault(run.runner, []).append(run)
    out = []
    for runner, some in runs.items():
        last = some[-1]
        counted = last.tests
        out.append(
            TestsSeen(
                short(runner, 80),
                len(some),
                sum(run.red for run in some),
                last.red,
                last.call.call.event_id,
                counted.passed if counted else None,
                counted.failed if counted else None,
                counted.skipped if counted else None,
            )
        )
    return sorted(out, key=lambda seen: (-seen.runs, seen.runner))


def _files(timeline: SessionTimeline, cwd: str | None) -> list[FileTouched]:
    """Files of the line and of subagents, the most edited first; a failed call touches none."""
    counts: dict[str, list[int]] = {}
    red = {run.call.call.event_id: run.red for run in timeline.runs}
    fresh: set[str] = set()
    for pair in timeline.session.calls:
        if (was := red.get(pair.call.event_id)) is not None:
            for path in fresh if was else ():
                counts[path][2] += 1
            fresh.clear()
        if not pair.outcome.succeeded:
            continue
        for touched, how in pair.effect.touches:
            path = short(relative(touched, cwd), 300)
            sums = counts.setdefault(path, [0, 0, 0])
            sums[how != "read"] += 1
            if how != "read":
                fresh.add(path)
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1][1], -entry[1][0], entry[0]))
    return [FileTouched(path, *sums) for path, sums in ordered]


def relative(path: str, cwd: str | None) -> str:
    """Return a path as seen from the session's folder, so that other checkouts of it agree."""
    base = (cwd or "").rstrip("/")
    if base and path.startswith(f"{base}/"):
        return path[len(base) + 1 :]
    return path.removeprefix("./")


# -- what was said --------------------------------------------------------------------------


def _snippets(timeline: SessionTimeline) -> Snippets:
    prompts = [turn.text for turn in timeline.turns if turn.prompt and turn.text.strip()]
    replies = [event for event in timeline.spoken if event.kind == "assistant_msg"]
    wrong = [text for text in prompts[1:] if corrects(text) is not None]
    first = short(prompts[0], _FIRST_PROMPT_BYTES) if prompts else ""
    last = short(event_text(replies[-1]), _LAST_REPLY_BYTES) if replies else ""
    again = short(prompts[-1], 200) if len(prompts) > 1 else ""
    room = MAX_SNIPPET_BYTES - sum(len(text.encode()) for text in (first, last, again))
    snippets: list[str] = []
    for text in wrong[:8]:
        snippet = short(text, 160)
        room -= len(snippet.encode())
        if room < 0:
            break
        snippets.append(snippet)
    return Snippets(first, again, last, tuple(snippets))


def _todos(timeline: SessionTimeline, outcome: str) -> list[OpenItem]:
    return [
        OpenItem(short(todo.text, 200), todo.status, todo.origin, _pointer(todo.opened_by))
        for todo in timeline.todos(outcome)
    ]


def _pointer(name: str) -> int | None:
    return int(name) if name.isdigit() else None


def _branches(timeline: SessionTimeline) -> list[BranchCost]:
    branches = [
        BranchCost(
            branch.events[0].event_id,
            branch.events[-1].event_id,
            len(branch.events),
            Money(branch.tokens, branch.ticks),
            next((short(prompt_text(e), 160) for e in branch.events if e.kind == "user_msg"), ""),
        )
        for branch in timeline.branches
    ]
    return sorted(
        branches,
        key=lambda branch_cost: (
            -branch_cost.cost.ticks,
            -branch_cost.cost.tokens,
            -branch_cost.events,
        ),
    )


def _subagents(timeline: SessionTimeline) -> list[Subagent]:
    channels: dict[str, list[SessionEvent]] = {}
    for event in timeline.session.events:
        if event.is_sidechain:
            channels.setdefault(event.channel, []).append(event)
    if not channels:
        return []
    tokens: Counter[str] = Counter()
    for bill in timeline.bills:
        tokens[bill.event.channel] += bill.usage.total
    failed = Counter(fault.event.channel for fault in timeline.errors)
    out = [
        Subagent(
            short(channel, 120),
            len(events),
            sum(event.kind == "tool_call" for event in events),
            failed[channel],
            tokens[channel],
            next((short(event_text(e), 160) for e in events if e.kind == "user_msg"), ""),
        )
        for channel, events in channels.items()
    ]
    return sorted(out, key=lambda subagent: (-subagent.tokens, subagent.channel))
