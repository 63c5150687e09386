"""A session told in short: the structure of a digest, and how it is made from a timeline.

A digest is what is left when the raw session is evicted: how it went and why we say so, what it
took, which tools, tests and files it used, what went wrong, what is still open. Pointers are event
ids, quotes are redacted already. Invariants: the same facts give the same digest, in whatever
order they came; it has at most `MAX_DIGEST_BYTES`, and says what was left out.
All that it counts is in a `DigestTally`, which goes on where it was when the session grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec

from thence.format import shell
from thence.format.records import JSON
from thence.format.testruns import Tests
from thence.memory import derivation
from thence.memory.error_tally import Fix
from thence.memory.outcome import (
    TASKS,
    EndingTally,
    Outcome,
    TaskPattern,
    TaskTally,
    judge,
    task_of,
)
from thence.memory.pull_requests import opened_pulls, pull_names
from thence.memory.session_timeline import SessionTimeline, cut_short, event_text, short
from thence.memory.signals import SignalTally
from thence.memory.store import SessionRow
from thence.memory.tally import Place, best
from thence.memory.todo_tally import TodoTally
from thence.memory.work_tally import MAX_BRANCHES, BranchTally

MAX_DIGEST_BYTES: Final = 64 << 10
"""Bytes a digest has at most."""

MAX_SNIPPET_BYTES: Final = 2_000
"""Bytes of quotes from what was said, together."""

_FIRST_PROMPT_BYTES: Final = 600  # bytes of the first prompt
_LAST_REPLY_BYTES: Final = 700  # bytes of the last reply
_GO_AHEAD_CHARACTERS: Final = 12
_MAX_CORRECTIONS: Final = 8
_MAX_ENTRIES: Final = {
    "tools": 40,
    "errors": 20,
    "subagent_errors": 20,
    "files": 60,
    "commands": 20,
    "todos": 20,
    "branches": MAX_BRANCHES,
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


class TestsSeen(msgspec.Struct, omit_defaults=True):
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


class Subagent(msgspec.Struct, omit_defaults=True):
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


# -- what is counted ------------------------------------------------------------------------


def _is_go_ahead(prompt: str) -> bool:
    """Return whether a prompt only says to go on: one short word, such as "yes" or "continue"."""
    return prompt.isascii() and len(prompt) <= _GO_AHEAD_CHARACTERS and len(prompt.split()) == 1


class SnippetTally(msgspec.Struct, omit_defaults=True):
    """What was said, in short, so far."""

    first_prompt: str = ""
    last_prompt: str = ""
    last_reply: str = ""
    corrections: list[str] = []

    def add(self, timeline: SessionTimeline) -> None:
        """Quote the next part of a session."""
        turns = [turn for turn in timeline.turns if turn.prompt and turn.text.strip()]
        for turn in turns:
            is_first = not self.first_prompt
            if is_first or (_is_go_ahead(self.first_prompt) and not _is_go_ahead(turn.text)):
                self.first_prompt = short(turn.text, _FIRST_PROMPT_BYTES)
            if is_first or not _is_go_ahead(turn.text):
                self.last_prompt = short(turn.text, 200)
            if is_first:
                continue
            if len(self.corrections) < _MAX_CORRECTIONS and timeline.correction(turn) is not None:
                self.corrections.append(short(turn.text, 160))
        replies = (event for event in reversed(timeline.spoken) if event.kind == "assistant_msg")
        if (reply := next(replies, None)) is not None:
            self.last_reply = short(event_text(reply), _LAST_REPLY_BYTES)


class DigestTally(msgspec.Struct, omit_defaults=True):
    """All that the digest of a session counts. Plain data; goes on where it was."""

    signals: SignalTally = msgspec.field(default_factory=SignalTally)
    ending: EndingTally = msgspec.field(default_factory=EndingTally)
    tasks: TaskTally = msgspec.field(default_factory=TaskTally)
    todos: TodoTally = msgspec.field(default_factory=TodoTally)
    snippets: SnippetTally = msgspec.field(default_factory=SnippetTally)
    models: dict[str, int] = {}
    tools: dict[str, list[int]] = {}
    retries: int = 0
    interventions: int = 0
    first_interventions: list[tuple[Place, Intervention]] = []
    tests: dict[str, TestsSeen] = {}
    files: dict[str, list[int]] = {}
    """Reads, edits and red runs after these, by path."""
    fresh: set[str] = set()
    """Files that were edited since the tests were run last."""
    commands: int = 0
    last_commands: list[Command] = []
    """The last first."""
    pulls: dict[str, Place] = {}
    subagents: dict[str, Subagent] = {}

    def add(self, timeline: SessionTimeline, tasks: Sequence[TaskPattern] = TASKS) -> None:
        """Count the next part of a session."""
        self.signals.add(timeline)
        self.ending.add(timeline)
        self.tasks.add(timeline, tasks)
        self.todos.add(timeline)
        self.snippets.add(timeline)
        self._add_rows(timeline)
        self._add_calls(timeline)
        self._add_line(timeline)
        self._add_subagents(timeline)

    def _add_rows(self, timeline: SessionTimeline) -> None:
        for bill in timeline.bills:
            if bill.event.model:
                _count(self.models, short(bill.event.model, 120))
        steps_in: list[tuple[Place, Intervention]] = []
        for row in timeline.rows:
            for derived in row.derived:
                self.retries += derived.kind == "retry"
                if derived.kind == "human_intervention":
                    event = row.event.event_id
                    entry = Intervention(event, short(derived.summary, 160))
                    steps_in.append((timeline.places[event], entry))
        if steps_in:
            self.interventions += len(steps_in)
            self.first_interventions = best(
                (*self.first_interventions, *steps_in),
                _MAX_ENTRIES["interventions"],
                lambda entry: entry[0],
            )

    def _add_calls(self, timeline: SessionTimeline) -> None:
        """Count tools, and files of the line and of subagents; a failed call touches none."""
        red = {run.call.call.event_id: run.red for run in timeline.runs}
        for pair in timeline.all_calls:
            sums = self.tools.setdefault(short(pair.call.tool or "", 120), [0, 0, 0, 0])
            sums[0] += 1
            sums[3] += pair.outcome.elapsed_ms or 0
            if cut_short(pair):
                sums[2] += 1
            elif pair.outcome.failed:
                sums[1] += 1
            if (was_red := red.get(pair.call.event_id)) is not None:
                for path in self.fresh if was_red else ():
                    self.files[path][2] += 1
                self.fresh.clear()
            for path, how in pair.effect.touches if pair.outcome.succeeded else ():
                self.files.setdefault(path, [0, 0, 0])[how != "read"] += 1
                if how != "read" and not pair.call.is_sidechain:
                    self.fresh.add(path)
        for place, name in opened_pulls(timeline):
            self.pulls[name] = min(place, self.pulls.get(name, place))

    def _add_line(self, timeline: SessionTimeline) -> None:
        """Count the runs of tests and the commands of the line."""
        for run in timeline.runs:
            new = TestsSeen(short(run.runner, 80), 0, 0, last_red=False, last=0)
            seen = self.tests.setdefault(run.runner, new)
            seen.runs += 1
            seen.red += run.red
            seen.last_red, seen.last = run.red, run.call.call.event_id
            counts = run.tests or Tests(run.runner)
            seen.passed, seen.failed, seen.skipped = counts.passed, counts.failed, counts.skipped
        commands = list(_commands(timeline))
        self.commands += len(commands)
        last = [*commands[::-1], *self.last_commands]
        self.last_commands = last[: _MAX_ENTRIES["commands"]]

    def _add_subagents(self, timeline: SessionTimeline) -> None:
        for event in timeline.events:
            if event.is_sidechain:
                new = Subagent(short(event.channel, 120))
                seen = self.subagents.setdefault(event.channel, new)
                seen.events += 1
                seen.calls += event.kind == "tool_call"
                if not seen.asked and event.kind == "user_msg":
                    seen.asked = short(event_text(event), 160)
        if self.subagents:
            for bill in timeline.bills:
                if (seen_by := self.subagents.get(bill.event.channel)) is not None:
                    seen_by.tokens += bill.usage.total
            for error in timeline.errors:
                if (seen_by := self.subagents.get(error.event.channel)) is not None:
                    seen_by.failed += 1


def _count(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1


# -- the account ----------------------------------------------------------------------------


def account(
    timeline: SessionTimeline,
    row: SessionRow,
    *,
    tasks: Sequence[TaskPattern] = TASKS,
    tally: DigestTally | None = None,
) -> Digest:
    """Return what a session was, in short. If part of it was counted, `timeline` is its end."""
    if tally is None:
        tally = DigestTally()
        tally.add(timeline, tasks)
    session = row.session
    verdict = judge(timeline, tally.ending, tally.todos)
    task = task_of(tally.tasks, branch=session.git_branch, cwd=session.cwd, patterns=tasks)
    title = short(row.title or "", 300)
    contexts, branches = tally.signals.contexts, tally.signals.branches
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
        **row_fields(row),
        context_peak=contexts.peak,
        compactions=contexts.summaries.count,
        retries=tally.retries,
        snippets=_snippets(tally.snippets),
    )
    ended_well = timeline.has_ended_well(verdict.outcome)
    _fill(out, "models", dict(sorted(tally.models.items(), key=lambda e: (-e[1], e[0]))))
    _fill(out, "tools", _tools(tally))
    _fill(out, "errors", _errors(tally, in_subagents=False))
    _fill(out, "subagent_errors", _errors(tally, in_subagents=True))
    steps_in = [entry for _, entry in tally.first_interventions]
    _fill(out, "interventions", steps_in, tally.interventions)
    tests = sorted(tally.tests.values(), key=lambda seen: (-seen.runs, seen.runner))
    _fill(out, "tests", tests)
    _fill(out, "files", _files(tally, session.cwd))
    _fill(out, "commands", tally.last_commands, tally.commands)
    _fill(out, "pulls", _pulls(tally, timeline.session.head.pull_request))
    _fill(out, "todos", _todos(tally.todos, ended_well=ended_well))
    _fill(out, "branches", _branches(branches), branches.count)
    subagents = sorted(tally.subagents.values(), key=lambda seen: (-seen.tokens, seen.channel))
    _fill(out, "subagents", subagents)
    return _shorten_lists(out)


def _maybe(text: str | None, size: int) -> str | None:
    return short(text, size) if text else None


_Some = TypeVar("_Some", list[Any], dict[str, Any])


def _fill(out: Digest, name: str, entries: _Some, count: int | None = None) -> None:
    """Keep the first of a list, and count what is left out; of some lists it was counted."""
    most = _MAX_ENTRIES[name]
    count = len(entries) if count is None else count
    if count > most:
        out.left_out = {**out.left_out, name: count - most}
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


def row_fields(row: SessionRow) -> dict[str, Any]:
    """Return the fields of an account that a session's row decides, whenever it is made."""
    session = row.session
    return {
        "started_at": session.started_at,
        "ended_at": session.ended_at,
        "seconds": session.cost.wall_clock_s,
        "turns": session.cost.turns,
        "events": row.events,
        "states": dict(sorted(row.states.items())),
        "cost": _cost(row),
    }


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


# -- calls ----------------------------------------------------------------------------------


def _tools(tally: DigestTally) -> list[ToolUse]:
    ordered = sorted(tally.tools.items(), key=lambda entry: (-entry[1][0], entry[0]))
    return [ToolUse(tool, *sums) for tool, sums in ordered]


def _errors(tally: DigestTally, *, in_subagents: bool) -> list[ErrorSeen]:
    out = [
        ErrorSeen(
            name,
            entry.results.count,
            entry.results.first[1],
            entry.results.last[1] if entry.results.last else entry.results.first[1],
            entry.tool,
            entry.quote,
            entry.fixed.settled_by if entry.fixed else None,
            entry.fixed.fix if entry.fixed else (),
        )
        for (name, is_apart), entry in tally.signals.errors.entries.items()
        if is_apart is in_subagents
    ]
    return sorted(out, key=lambda error: (-error.count, error.first))


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


def _commands(timeline: SessionTimeline) -> Iterator[Command]:
    """Yield the commands of the line that are worth remembering, in its order."""
    for pair in timeline.calls:
        script = timeline.script(pair) if pair.result is not None else None
        what = noteworthy(script[:_SCRIPT_CHARS]) if script is not None else None
        if what is not None:
            line = short(pair.call.summary.removeprefix("ran "), 160)
            yield Command(what, pair.call.event_id, line, pair.outcome.failed)


def noteworthy(script: str) -> str | None:
    """Name what a script does that is worth remembering; None when it only looks."""
    if not any(name in script for name in _MAY_NOTE):
        return None
    for program in shell.programs(script):
        for what, words in _NOTEWORTHY:
            if tuple(program[: len(words)]) == words:
                return what
    return None


# -- files ----------------------------------------------------------------------------------


def _files(tally: DigestTally, cwd: str | None) -> list[FileTouched]:
    """Return files as seen from the session's folder, the most edited first."""
    counts: dict[str, list[int]] = {}
    for touched, added in tally.files.items():
        sums = counts.setdefault(short(relative(touched, cwd), 300), [0, 0, 0])
        sums[:] = map(sum, zip(sums, added, strict=True))
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1][1], -entry[1][0], entry[0]))
    return [FileTouched(path, *sums) for path, sums in ordered]


def relative(path: str, cwd: str | None) -> str:
    """Return a path as seen from the session's folder, so that other checkouts of it agree."""
    base = (cwd or "").rstrip("/")
    if base and path.startswith(f"{base}/"):
        return path[len(base) + 1 :]
    return path.removeprefix("./")


# -- what was said --------------------------------------------------------------------------


def _snippets(tally: SnippetTally) -> Snippets:
    is_same = tally.first_prompt.startswith(tally.last_prompt.removesuffix("…"))
    again = "" if is_same else tally.last_prompt
    quotes = (tally.first_prompt, tally.last_reply, again)
    room = MAX_SNIPPET_BYTES - sum(len(text.encode()) for text in quotes)
    snippets: list[str] = []
    for snippet in tally.corrections:
        room -= len(snippet.encode())
        if room < 0:
            break
        snippets.append(snippet)
    return Snippets(tally.first_prompt, again, tally.last_reply, tuple(snippets))


def _pulls(tally: DigestTally, noted: str | None) -> list[str]:
    """Return pull requests: the one that the client noted, then those that calls opened."""
    opened = sorted(tally.pulls, key=lambda name: tally.pulls[name])
    return list(dict.fromkeys((*pull_names(noted or ""), *opened)))


def _todos(todos: TodoTally, *, ended_well: bool) -> list[OpenItem]:
    return [
        OpenItem(short(todo.text, 200), todo.status, todo.origin, _pointer(todo.opened_by))
        for todo in todos.pending(ended_well=ended_well)
    ]


def _pointer(name: str) -> int | None:
    return int(name) if name.isdigit() else None


def _branches(branches: BranchTally) -> list[BranchCost]:
    return [
        BranchCost(
            branch.first,
            branch.last,
            branch.events,
            Money(branch.tokens, branch.ticks),
            branch.prompt,
        )
        for branch in branches.dearest
    ]
