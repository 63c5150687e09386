"""The timeline of a session: what was asked, done and answered on its live line, worked out once.

Digest, outcome and signals all look at the same things: turns, calls with how they ended, test
runs, errors, bills. A `SessionTimeline` has them, each worked out when first used, so that none of
the readers walks the session again. Pure: the same events give the same
timeline. Copies of other sessions' records are on the timeline of their owner alone.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from datetime import datetime
from functools import cached_property
from itertools import islice

import msgspec

from thence.format import output, shell, testruns, tools
from thence.format.derived_events import Call
from thence.format.facts import TYPED
from thence.format.graph import State
from thence.format.nodes import Is
from thence.format.normal import SessionEvent
from thence.format.readout import Readout
from thence.format.records import Usage
from thence.format.stored import StoredEvent
from thence.format.todos import Step, known_list
from thence.format.turn import TurnState
from thence.format.wording import corrects, without_editor_context
from thence.memory.prices import prompt_tokens
from thence.memory.tally import Place

_SHOWN = (State.LIVE, State.ORPHANED)
_GONE = (State.DEAD, State.ROLLED_BACK)
_MESSAGE_KINDS = frozenset({"user_msg", "assistant_msg", "tool_call", "tool_result", "error"})
_LONE = re.compile("[\ud800-\udfff]")  # half a character, which nothing can store
_MESSY = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")

_ANSWERED_BY_HUMAN = frozenset(
    {"askuserquestion", "exitplanmode", "exit_plan_mode", "ask_user_question", "request_user_input"}
)
"""Tools whose result is a human's word."""

_LOOKERS = (
    "ls cat head tail wc grep rg find fd nl sed awk less file stat tree pwd echo printf which type "
    "date sleep true test [ env sort uniq diff cd cut tr jq"
)
_GIT_LOOKERS = "status diff log show blame ls-files rev-parse branch remote"
_RUNNERS = (
    "make cmake ninja npm npx yarn pnpm bun deno node cargo rustc go mvn gradle gradlew docker "
    "podman pip uv poetry pytest tox nox mise just bazel terraform kubectl sleep curl wget gcc "
    "clang tsc jest vitest playwright brew apt apt-get ffmpeg rsync"
)
_SCRIPT_CHARS = 2_000  # characters of a script that are looked at
_RUNS_LONG = frozenset(_RUNNERS.split())
_LOOKS_ONLY = frozenset(_LOOKERS.split())
_GIT_LOOKS = frozenset(_GIT_LOOKERS.split())


def short(text: str, size: int) -> str:
    """Return a text as one clean line of so many bytes at most, cut where a character ends."""
    if len(text) <= size and text.isascii() and text.isprintable() and "  " not in text:
        return text.strip()  # as names are
    flat = _MESSY.sub(" ", text[: 4 * size]).strip()
    body = _LONE.sub("\ufffd", flat).encode()
    if len(body) <= size and len(text) <= 4 * size:
        return body.decode()
    return body[: size - 3].decode("utf-8", "ignore").rstrip() + "…"


def call_step(at: str, pair: Call) -> Step:
    """Return a call as a step of what is read for todos."""
    tool, arguments = known_list(pair.call.tool or "", pair.call.payload, pair.effect)
    result, failed = pair.result, not pair.outcome.succeeded
    returned = result.payload if result is not None else None
    return Step(at, "assistant", tool=tool, input=arguments, result=returned, failed=failed)


def event_text(event: SessionEvent) -> str:
    """Return the text of an event, the middle of a very long one left out."""
    payload = event.payload
    typed = payload.get(TYPED) if isinstance(payload, dict) else None
    return output.text(payload if typed is None else typed) or event.summary


def prompt_text(event: SessionEvent) -> str:
    """Return what a human asked, without what an editor's plug-in put before it."""
    return without_editor_context(event_text(event))


class TestRun(msgspec.Struct, frozen=True):
    """One run of a project's tests."""

    runner: str
    command: str
    call: Call
    red: bool
    """It failed, by its count of tests or by its exit."""
    tests: testruns.Tests | None = None


class ToolError(msgspec.Struct, frozen=True):
    """One result that failed, by the shape of its error."""

    fingerprint: str
    call: Call
    event: SessionEvent
    """The result that tells of it."""

    @property
    def vague(self) -> bool:
        """Nothing names the error: an exit code or a flag was all there was."""
        return ": " not in self.fingerprint


class TimelineTurn(msgspec.Struct):
    """A prompt and all that follows until the next one; the first may have no prompt."""

    prompt: list[SessionEvent]
    events: list[SessionEvent]

    @property
    def text(self) -> str:
        """What the human asked."""
        return "\n".join(prompt_text(event) for event in self.prompt)


class TimelineBill(msgspec.Struct, frozen=True):
    """One bill, with the event that carries it."""

    event: SessionEvent
    usage: Usage
    ticks: int
    """What it cost; 0 when nobody knows."""

    @property
    def context(self) -> int:
        """How much the model was given to read."""
        return prompt_tokens(self.usage)


class DeadBranch(msgspec.Struct, frozen=True):
    """A run of events that the session went back from."""

    events: tuple[SessionEvent, ...]
    bills: tuple[TimelineBill, ...]

    @property
    def tokens(self) -> int:
        """What was billed for it."""
        return sum(bill.usage.total for bill in self.bills)

    @property
    def ticks(self) -> int:
        """What it cost."""
        return sum(bill.ticks for bill in self.bills)


class SessionTimeline:
    """What happened in a session, told in the order of its live line."""

    def __init__(self, session: Readout, only: Container[int] | None = None) -> None:
        """Follow a session whose events hold their payloads, or those of its events alone."""
        self.session = session
        self._only = only

    # -- all of it ----------------------------------------------------------------------

    @cached_property
    def rows(self) -> list[StoredEvent]:
        """All events in written order, with what was derived of them."""
        rows, only = self.session.rows, self._only
        return rows if only is None else [row for row in rows if row.event.event_id in only]

    @cached_property
    def events(self) -> list[SessionEvent]:
        """All events in written order."""
        events, only = self.session.events, self._only
        return events if only is None else [event for event in events if event.event_id in only]

    @cached_property
    def all_calls(self) -> list[Call]:
        """All calls in written order, wherever."""
        calls, only = self.session.calls, self._only
        return calls if only is None else [pair for pair in calls if pair.call.event_id in only]

    @cached_property
    def places(self) -> dict[int, Place]:
        """Where events stand, by their ids."""
        return {
            row.event.event_id: (row.file, row.line, row.event.block) for row in self.session.rows
        }

    # -- the line -----------------------------------------------------------------------

    @cached_property
    def line(self) -> list[SessionEvent]:
        """The live events of the session itself, compacted ones included, in their order."""
        records, only = self.session.records, self._only
        return [
            event
            for place in self.session.graph.chain(boundaries=False)
            for event in records[place].blocks
            if event.state in _SHOWN
            and not event.is_sidechain
            and (only is None or event.event_id in only)
        ]

    @cached_property
    def spoken(self) -> list[SessionEvent]:
        """The line without notes of the harness: what was said, called and answered."""
        return [
            event for event in self.line if event.kind in _MESSAGE_KINDS and not _is_blank(event)
        ]

    @cached_property
    def turns(self) -> list[TimelineTurn]:
        """The line, cut at the prompts."""
        session, out = self.session, [TimelineTurn([], [])]
        first = (filter(_is_asked, session.records[place].blocks) for place in session.turns)
        begins = {event.event_id for events in first for event in islice(events, 1)}
        for event in self.spoken:
            if not _is_asked(event):
                out[-1].events.append(event)
            elif event.event_id in begins:
                out.append(TimelineTurn([event], []))
            else:  # a further text or picture of the same prompt
                out[-1].prompt.append(event)
        return out if out[0].events or len(out) == 1 else out[1:]

    def correction(self, turn: TimelineTurn) -> str | None:
        """Return the wording by which the prompt of a turn corrects the agent; None if none."""
        known = self._corrections
        if id(turn) not in known:
            known[id(turn)] = corrects(turn.text)
        return known[id(turn)]

    @cached_property
    def _corrections(self) -> dict[int, str | None]:
        return {}

    @cached_property
    def prompts(self) -> list[SessionEvent]:
        """What the human said on the line, a block each."""
        return list(filter(_is_asked, self.spoken))

    # -- calls --------------------------------------------------------------------------

    @cached_property
    def pairs(self) -> dict[int, Call]:
        """All calls by their events."""
        return {pair.call.event_id: pair for pair in self.all_calls}

    @cached_property
    def calls(self) -> list[Call]:
        """The calls of the line, in its order."""
        return self.calls_in(self.line)

    def calls_in(self, events: Iterable[SessionEvent]) -> list[Call]:
        """The calls among some events."""
        pairs = self.pairs
        return [
            pairs[event.event_id]
            for event in events
            if event.kind == "tool_call" and event.event_id in pairs
        ]

    @cached_property
    def timed_calls(self) -> list[tuple[int, Call]]:
        """All calls of which is known how many milliseconds passed until their result."""
        return [(ms, p) for p in self.all_calls if (ms := p.outcome.elapsed_ms) is not None]

    @cached_property
    def _scripts(self) -> dict[int, str | None]:
        return {}

    def script(self, pair: Call) -> str | None:
        """Return the script that a call runs; None when it runs none."""
        if not pair.effect.is_script:
            return None
        name, scripts = pair.call.event_id, self._scripts
        if name not in scripts:
            scripts[name] = tools.command(pair.effect, pair.call.tool or "", pair.call.payload)
        return scripts[name] or ""

    def edits(self, call: Call) -> bool:
        """Whether a call changed a file."""
        return bool(call.outcome.edited)

    def may_change(self, call: Call) -> bool:
        """Whether a call may have changed anything that a test could see."""
        if self.edits(call):
            return True
        if not call.effect.is_script:
            return call.effect.kind not in ("read", "search", "list", "fetch", "web", "plan")
        return not call.outcome.is_test_run and not self.only_looks(call)

    def only_looks(self, call: Call) -> bool:
        """Whether a call runs nothing but programs that look at something."""
        script = self.script(call)
        return script is not None and all(map(_only_looks, shell.programs(script[:_SCRIPT_CHARS])))

    def may_run_long(self, call: Call) -> bool:
        """Whether a call runs tests, builds, installs or fetches: what takes time by itself."""
        script = self.script(call)
        if script is None:
            return call.effect.kind in ("fetch", "web")
        names = (shell.program_name(words[0]) for words in shell.programs(script[:_SCRIPT_CHARS]))
        return not _RUNS_LONG.isdisjoint(names)

    @cached_property
    def runs(self) -> list[TestRun]:
        """Test runs of the line that came to an end."""
        return list(self._runs(self.calls))

    def _runs(self, calls: Iterable[Call]) -> Iterator[TestRun]:
        for pair in calls:
            outcome, runner = pair.outcome, pair.effect.runner
            if runner is None or pair.result is None or outcome.is_cut_short:
                continue
            tests = outcome.tests
            command = " ".join((self.script(pair) or "").split())
            yield TestRun(tests.runner if tests else runner, command, pair, outcome.is_red, tests)

    @cached_property
    def errors(self) -> list[ToolError]:
        """Results that failed, wherever, in written order; what a human refused is none."""
        return [
            ToolError(short(pair.outcome.error, 240), pair, result)
            for pair in self.all_calls
            if (result := pair.result) is not None and pair.outcome.failed and not cut_short(pair)
        ]

    # -- money --------------------------------------------------------------------------

    @cached_property
    def bills(self) -> list[TimelineBill]:
        """All bills, in written order, each once."""
        return [
            TimelineBill(row.event, usage, row.ticks or 0)
            for row in self.rows
            if (usage := row.usage) is not None
        ]

    @cached_property
    def contexts(self) -> list[TimelineBill]:
        """Bills of single responses of the session itself: they tell how large its context was.

        The bill of a whole turn adds up several and tells nothing of the kind.
        """
        summed = {record.id for record in self.session.records if record.link.has_turn_bill}
        return [
            bill
            for bill in self.bills
            if not bill.event.is_sidechain and bill.event.native_id not in summed and bill.context
        ]

    @cached_property
    def branches(self) -> list[DeadBranch]:
        """Runs of events that the session went back from, in written order."""
        runs, records = self.session.graph.branches, self.session.records
        home = {records[place].id: at for at, run in enumerate(runs) for place in run.events}
        events: list[list[SessionEvent]] = [[] for _ in runs]
        bills: list[list[TimelineBill]] = [[] for _ in runs]
        for event in self.events if runs else ():
            at = home.get(event.native_id)
            if at is not None and event.state in _GONE and not event.is_sidechain:
                events[at].append(event)
        for bill in self.bills if runs else ():
            at = home.get(bill.event.native_id)
            if at is not None and bill.event.state in _GONE:
                bills[at].append(bill)
        return [
            DeadBranch(tuple(some), tuple(paid))
            for some, paid in zip(events, bills, strict=True)
            if some
        ]

    @cached_property
    def summaries(self) -> list[SessionEvent]:
        """What compactions put in the place of what was said, in written order."""
        records, only = self.session.records, self._only
        summaries = (record.blocks[0] for record in records if record.node.flags & Is.SUMMARY)
        return [
            event
            for event in summaries
            if event.state in _SHOWN and (only is None or event.event_id in only)
        ]

    # -- the end ------------------------------------------------------------------------

    def has_ended_well(self, outcome: str) -> bool:
        """Return whether the last turn is over and the session's outcome a success."""
        return outcome == "success" and self.session.turn().state is TurnState.DONE


def cut_short(pair: Call) -> bool:
    """Whether a human, a rule or a crash kept a call from coming to its own end."""
    return pair.outcome.is_cut_short


def waits_for_human(pair: Call) -> bool:
    """Whether a call is a question whose answer a human gives."""
    return (pair.call.tool or "").rsplit("__", 1)[-1].lower() in _ANSWERED_BY_HUMAN


def is_measured(pair: Call) -> bool:
    """Whether the log itself says how long a call took."""
    return pair.outcome.is_measured


def milliseconds_between(begin: datetime, end: datetime) -> int:
    """Milliseconds from one time to another."""
    return round(1000 * (end - begin).total_seconds())


def _is_asked(event: SessionEvent) -> bool:
    """Whether it is a part of a prompt."""
    return event.kind == "user_msg"


def _is_blank(event: SessionEvent) -> bool:
    """Whether it is a text that holds nothing."""
    return event.kind == "assistant_msg" and not event_text(event).strip()


def _only_looks(words: list[str]) -> bool:
    name = shell.program_name(words[0]) if words else ""
    if name == "git":
        verb = words[3:4] if words[1:2] == ["-C"] else words[1:2]
        return not _GIT_LOOKS.isdisjoint(verb)
    if name == "sed":
        return not any(word.startswith(("-i", "--in-place")) for word in words)
    return name in _LOOKS_ONLY
