"""One session as text: the live line at the left, what parted from it where it parted.

The same page for every agent, made from the stored events of its session and nothing else. The
first two lines say what it is; then come the turns; the last lines say what became of the rest.
Every text of a log is made harmless and cut or wrapped to the screen before it is put on a line.

Closed, a branch, a subagent and what a compaction summed up take one line each; opened, their
events stand a step to the right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, tzinfo
from functools import cached_property

from thence.cli.columns import agent_label, when
from thence.cli.read_notices import flow, notices, promises, skipped_line
from thence.cli.terminal import (
    TEXT_WIDTH,
    clean,
    columns,
    cut,
    format_duration,
    justify,
    several,
    short,
    size,
    style,
    wrap,
)
from thence.format import derived_events, output, testruns
from thence.format.facts import Edge, full_output, text_in
from thence.format.figures import money, short_id
from thence.format.graph import Branch, State
from thence.format.nodes import Is
from thence.format.normal import SessionEvent, one_line
from thence.format.readout import Record, count_messages
from thence.format.records import Usage, text_of
from thence.format.stored import StoredEvent
from thence.memory.ancestry import relation_of
from thence.memory.labels import Label
from thence.memory.notes import Note
from thence.memory.readouts import OpenedSession
from thence.memory.recall import event_name
from thence.memory.session_status import STOPPED, TURN_WORDS, Standing, Turn, turn_now

MAX_ROWS = 5
"""How many of a kind are named before the rest is counted."""

MAX_PROSE_LINES = 24
"""How many lines of one text are shown before the rest is only measured."""

_DIM = "bright_black"
_DISCARDED = (State.DEAD, State.ROLLED_BACK)
STATES = {
    State.REPLAYED: "copied",
    State.INTERNAL: "internal",
    State.ROLLED_BACK: "rolled back",
    State.SIDE: "subagents",
    State.DEAD: "discarded",
    State.ORPHANED: "no result",
    State.LIVE: "live",
}
"""What each state of an event is called on the screen."""

_CUT_SHORT = {"denied": "✗", "interrupted": "○", "timeout": "✗"}
_TURNS: dict[Turn, tuple[str, str]] = {
    "running": ("●", "cyan"),
    "waiting": ("◆", "yellow"),
    "interrupted": ("○", "red"),
    "stopped": ("○", "red"),
    "done": ("●", "cyan"),
}


class Page:
    """The text of one session."""

    def __init__(
        self,
        opened_session: OpenedSession,
        room: int,
        *,
        opened: bool = False,
        full: bool = False,
        to: int | None = None,
        zone: tzinfo = UTC,
        notes: Sequence[Note] = (),
        own: bool = False,
        label: Label | None = None,
        standing: Standing | None = None,
    ) -> None:
        """Lay out a session; `notes` are the decisions and notes that belong to it.

        Nobody is at it unless `standing` says so.

        The `label` is what the user calls it. With `own` what stands in the sessions that it
        continues is counted only.
        """
        self.notes = notes
        self.label = label or Label()
        self.own = own
        self.standing = standing
        self.to = to
        self.zone = zone
        self.opened_session = opened_session
        self.session = opened_session.session
        self.room = room
        self.opened = opened
        self.full = full

    def lines(self) -> list[str]:
        """Return the whole page."""
        return [*self.head(), "", *self.body(), "", *self.foot()]

    # -- what is known of the session ---------------------------------------------------

    @cached_property
    def chain(self) -> list[int]:
        """The records that stand on the page's left line."""
        return self.session.graph.chain(self.to, boundaries=not self.opened)

    @cached_property
    def line(self) -> list[int]:
        """The whole line, compacted or not: the live one, or the one to `to`."""
        return self.session.graph.chain(self.to, boundaries=False)

    @cached_property
    def turns(self) -> dict[int, int]:
        """The records with which turns begin, numbered."""
        return {place: number for number, place in enumerate(self.session.turns, 1)}

    @property
    def calls(self) -> dict[str, derived_events.Call]:
        """All calls by their id."""
        return self.session.calls_by_name

    def cost(self, places: Iterable[int]) -> tuple[int, int]:
        """Return the money for some records, and their tokens without a price."""
        return _cost(row for place in set(places) for row in self.session.records[place].rows)

    def sum_of(self, places: Sequence[int]) -> str:
        """Say how much a run of records is: prompts, events, tokens."""
        prompts = sum(self.session.records[place].is_prompt for place in places)
        usages = (self.session.records[place].usage for place in set(places))
        tokens = sum(usage.total for usage in usages if usage is not None)
        parts = [
            several(prompts, "prompt") if prompts else "",
            several(self.session.count_events(set(places)), "event"),
            f"{short(tokens)} tokens" if tokens else "",
        ]
        return ", ".join(filter(None, parts))

    # -- the first lines ----------------------------------------------------------------

    def head(self) -> Iterator[str]:
        """Say what the session is."""
        title = self.label.name or (self.session.title or "").strip() or "untitled"
        yield style(cut(clean(title.split("\n")[0]), self.room), bold=True)
        known = self.session.head.session
        where = " ".join(filter(None, (_last(known.cwd), known.git_branch)))
        parts = [
            self._day(known.started_at),
            where,
            self._cost(),
            several(known.cost.turns, "turn"),
            self._spent(),
            agent_label(known.flavor),
            known.model,
            short_id(self.session.native),
            *(f"#{clean(tag)}" for tag in self.label.tags),
        ]
        for line in flow(filter(None, parts), self.room):
            yield style(line, fg=_DIM)

    def _day(self, started: str | None) -> str:
        moment = when(started)
        return f"{moment.astimezone(self.zone):%Y-%m-%d %H:%M}" if moment is not None else ""

    def _cost(self) -> str:
        """Return what the session cost, or nothing if no response was billed."""
        priced, unknown = _cost(self.session.rows)
        if not priced and not unknown:
            return ""
        is_bound = bool(self.session.head.lower_bound)
        return money(priced, unknown, is_bound=is_bound) if priced else "cost unknown"

    def _spent(self) -> str:
        spent = self.session.head.spent
        least = "at least " if self.session.head.lower_bound else ""
        parts = [f"{least}{short(spent.own)} tokens" if spent.own or not least else "no usage data"]
        if spent.dead.total:
            parts.append(f"{short(spent.dead.total)} discarded")
        if spent.side.total:
            parts.append(f"{short(spent.side.total)} by subagents")
        return ", ".join(parts)

    # -- the turns ----------------------------------------------------------------------

    def body(self) -> Iterator[str]:
        """Yield the live line, and what parted from it in its place."""
        drawn: set[str] = set()
        yield from self._before()
        yield from self._branches(-1, drawn)
        yield from self._run(self.chain, "", drawn)
        for call, channel in self.agents.items():
            if channel not in drawn:
                yield from self._agent(channel, call, "", drawn)
        yield from self._turn()

    def _before(self) -> Iterator[str]:
        """Yield the line in the sessions that this one continues, each with its border."""
        for part in self.session.inherited(self.to, boundaries=not self.opened):
            if not self.own:
                above = OpenedSession(part.session, self.opened_session.agent, [], [])
                page = Page(above, self.room, opened=self.opened, full=self.full, zone=self.zone)
                yield from page.part(part.places)
            yield self._border(part.session.native, part.messages)

    def _border(self, name: str | None, messages: int) -> str:
        """Mark where the part of another session ends, and say how much of it there is."""
        hidden = ", not shown" if self.own else ""
        source = short_id(name) if name else "another session"
        words = f"┄┄   continued from {clean(source)}, {several(messages, 'message')}{hidden}"
        return style(cut(words, self.room), fg=_DIM)

    def part(self, places: Sequence[int]) -> Iterator[str]:
        """Return some records of a line, and nothing that parted from it."""
        return self._run(places, "", set(), parted=False)

    def _run(
        self, places: Sequence[int], step: str, drawn: set[str], *, parted: bool = True
    ) -> Iterator[str]:
        """Yield a run of records, a step to the right if it is a branch.

        Subagents that are `drawn` are not drawn again.
        """
        copies: list[int] = []
        for place in places:
            if self.session.states[place] is State.REPLAYED and not (step or self.opened):
                copies.append(place)
                continue
            yield from self._copies(copies, drawn, parted=parted)
            copies = []
            yield from self._record(place, step, drawn)
            if parted and not step:
                yield from self._branches(place, drawn)
        yield from self._copies(copies, drawn, parted=parted)

    def _copies(self, places: list[int], drawn: set[str], *, parted: bool) -> Iterator[str]:
        """Yield the part of the line that was copied from the session that owns it."""
        if places:
            for place in places:
                if not self.own:
                    yield from self._record(place, "", drawn)
                if parted:
                    yield from self._branches(place, drawn)
            records = [self.session.records[place] for place in places]
            owner = next((r.link.origin for r in records if r.link.origin), None)
            owner = owner or next((e.session for e in self.session.edges if not e.child), None)
            yield self._border(owner, count_messages(records))

    def _record(self, place: int, step: str, drawn: set[str]) -> Iterator[str]:
        record = self.session.records[place]
        if record.node.flags & Is.CLEARS:
            yield from self._clear_mark(place, step)
        if record.node.flags & Is.SUMMARY:
            yield from self._summary(place, step)
        elif record.node.flags & Is.PROMPT:
            yield from self._prompt(place, step, drawn)
        else:
            for block in record.blocks:
                yield from self._block(record, block, step, drawn)

    def _prompt(self, place: int, step: str, drawn: set[str]) -> Iterator[str]:
        record = self.session.records[place]
        number = f"{self.turns.get(place, '')}" if not step else ""
        start, name = f"{step}● {number:<2} ", f"you  {self._clock(record)}"
        took = self._took(place) if not step else ""
        gap = self._row_room - columns(start) - len(name) - len(took)
        right = " " * gap + style(took, fg=_DIM) if took and gap > 1 else ""
        yield start + style(name, fg="blue", bold=True) + right
        for block in record.blocks:
            if block.role == "user" and block.kind == "user_msg":
                yield from self._prose(text_in(block), step)
            else:
                yield from self._block(record, block, step, drawn)

    def _clock(self, record: Record) -> str:
        moment = derived_events.time_of(record.ts)
        return f"{moment.astimezone(self.zone):%H:%M}" if moment is not None else ""

    def _took(self, place: int) -> str:
        """Say what a turn took: how full the context was at its end, and what was written."""
        out, context = 0, 0
        for usage in self._turn_bills.get(place, ()):
            out += usage.output_tokens
            context = usage.total - usage.output_tokens or context
        return f"ctx {short(context)}  out {short(out)}" if out or context else ""

    @cached_property
    def _turn_bills(self) -> dict[int, list[Usage]]:
        out: dict[int, list[Usage]] = {}
        now = -1
        for place in self.line:
            record = self.session.records[place]
            now, usage = place if record.is_prompt else now, record.usage
            out.setdefault(now, []).extend([] if usage is None else [usage])
        return out

    def _prose(self, text: str, step: str) -> Iterator[str]:
        """Yield a text, its end left out when it is long."""
        text = text.strip("\n")
        rest = ""
        if not self.full:
            text, rest = _split_after(text, MAX_PROSE_LINES, MAX_PROSE_LINES * self.room)
        for line in wrap(text, self.room - 6 - len(step)):
            yield f"{step}│    {line}".rstrip()
        if rest:
            yield self._dim(
                justify(f"{step}│    … {size(len(rest))} more", "--full", self._prose_room)
            )

    def _dim(self, row: str) -> str:
        return style(row, fg=_DIM)

    @property
    def _prose_room(self) -> int:
        return min(self.room, TEXT_WIDTH + 6)

    def _summary(self, place: int, step: str) -> Iterator[str]:
        """A compaction: how much it stands for, and what it says."""
        record = self.session.records[place]
        summed = [
            p for p in self._summed_places if self.session.states[p] in (State.LIVE, State.ORPHANED)
        ]
        when = f" {clock}" if (clock := self._clock(record)) else ""
        much = f", {self.sum_of(summed)} summed up" if summed and not step else ""
        yield style(cut(f"{step}═    compacted{when}{much}", self.room), fg="cyan")
        # Some clients write the whole history that replaces the old one: what was kept, then
        # the summary, and reminders around it.
        prose = [block for block in record.blocks if not text_in(block).startswith("<")]
        for block in record.blocks:
            if block is (prose or record.blocks)[-1]:
                yield from self._prose(text_in(block), step)
            else:
                yield self._injection(block, step)
        if not step and not self.opened:
            yield from self._closed_branches(
                [b for p in self._summed_places for b in self.branches_by_place.get(p, ())]
            )

    def _clear_mark(self, place: int, step: str) -> Iterator[str]:
        """Say that the context was cleared, and how much stands before."""
        when = f" {clock}" if (clock := self._clock(self.session.records[place])) else ""
        before = [] if step or self.opened else self._summed_places  # opened, all of it is shown
        live = [p for p in before if self.session.states[p] in (State.LIVE, State.ORPHANED)]
        much = f", {self.sum_of(live)} before" if live else ""
        yield style(cut(f"{step}═    context cleared{when}{much}", self.room), fg="cyan")
        yield from self._closed_branches(
            [b for p in before for b in self.branches_by_place.get(p, ())]
        )

    @cached_property
    def _summed_places(self) -> list[int]:
        """The records of the live line that a compaction or a cleared context left out."""
        shown = set(self.chain)
        return [place for place in self.line if place not in shown]

    # -- blocks -------------------------------------------------------------------------

    def _block(
        self, record: Record, block: SessionEvent, step: str, drawn: set[str]
    ) -> Iterator[str]:
        if block.kind == "tool_call":
            yield from self._call(block, step, drawn)
        elif block.kind == "thinking":
            words = f"… {clean(block.summary) or 'thought'}"
            yield self._dim(cut(f"{step}│    {words}", self._prose_room))
        elif block.kind == "assistant_msg":
            yield from self._prose(text_in(block), step)
        elif block.kind == "error":
            yield style(cut(f"{step}▲    {clean(_first(text_in(block)))}", self.room), fg="red")
        elif block.kind == "decision":
            yield cut(f"{step}◇    decided: {clean(_first(text_in(block)))}", self.room)
        elif record.node.flags & Is.INTERRUPTS:
            words = clean(_first(text_in(block))) or "interrupted"
            yield style(cut(f"{step}○    {words}", self.room), fg="red")
        elif block.role == "user" and block.kind in ("lifecycle", "user_msg"):
            yield self._injection(block, step)
        elif self.full and (output := full_output(block)):
            yield from self._prose(output, step)

    def _injection(self, block: SessionEvent, step: str) -> str:
        """What the harness put into the user's mouth: one dim line and how long it is."""
        text = text_in(block)
        how = size(len(text)) if len(text) > 200 else ""
        left = f"{step}·    {clean(one_line(text))}"
        return style(justify(left, how, self._prose_room), fg=_DIM)

    def _call(self, block: SessionEvent, step: str, drawn: set[str]) -> Iterator[str]:
        pair = self.calls.get(block.call or "")
        words = block.summary
        words = clean(words.replace(self._here, "") if self._here else words)
        if pair is None or not pair.outcome.ended:
            is_open = block.call in self.session.running_calls
            how = "no result yet" if is_open else "interrupted, no result"
            lost = justify(f"{step}○    {words}", how, self._row_room)
            yield style(lost, fg="cyan" if is_open else "red")
        else:
            yield from self._finished_call(pair, words, step)
        channel = self.agents.get(block.call or "")
        if channel is not None and channel not in drawn:
            yield from self._agent(channel, block.call or "", step, drawn)
        for edge in self.session.children.get(block.call or "", ()):
            words = f"{step}├─▸  its session is {clean(edge.session)}"
            yield style(cut(words, self.room), fg="bright_magenta")

    @cached_property
    def _here(self) -> str:
        """The folder the session works in, as paths begin with it."""
        cwd = (self.session.head.session.cwd or "").rstrip("/")
        return f"{cwd}/" if len(cwd) > 1 else ""

    def _finished_call(self, pair: derived_events.Call, words: str, step: str) -> Iterator[str]:
        outcome = pair.outcome
        if outcome.reason in _CUT_SHORT:
            why = outcome.reason
            row = justify(f"{step}{_CUT_SHORT[why]}    {words}", why, self._row_room)
            yield style(row, fg="red")
            return
        failed, tests = outcome.is_red, outcome.tests
        mark = "✗" if failed else "✓" if outcome.is_test_run else "■" if outcome.edited else "│"
        colour = "red" if failed else {"✓": "green", "■": "yellow"}.get(mark, "")
        counts = run_of(tests) if tests else ""
        start = "│  › " if mark == "│" else f"{mark}    "
        row = f"{step}{start}{words}" + (f"   {counts}" if counts else "")
        shown = justify(row, self._figures(pair, failed=failed), self._row_room)
        yield style(shown, fg=colour) if colour else shown
        if failed and not counts:
            result = pair.result
            text = text_of(result.payload) or output.text(result.payload) if result else ""
            most = clean(telling_line(text, at_end=pair.effect.is_script))
            if most:
                yield self._dim(cut(f"{step}│      {most}", self._prose_room))

    @property
    def _row_room(self) -> int:
        return min(self.room, 100)

    def _figures(self, pair: derived_events.Call, *, failed: bool) -> str:
        code, took = pair.outcome.exit_code, pair.outcome.shown_ms
        parts = [f"exit {code}" if failed and code else "", format_duration(took) if took else ""]
        return "  ".join(filter(None, parts))

    # -- branches -----------------------------------------------------------------------

    @cached_property
    def branches_by_place(self) -> dict[int, list[Branch]]:
        """Discarded branches by the fact of the live line that they part from; -1 for no record."""
        out: dict[int, list[Branch]] = {}
        graph, home = self.session.graph, frozenset(self.line)
        branches = [
            branch for branch in graph.branches if branch.start not in home
        ]  # the rest is shown
        for branch, at in zip(branches, graph.parting_events(branches, home), strict=True):
            out.setdefault(at, []).append(branch)
        return out

    def _branches(self, place: int, drawn: set[str]) -> Iterator[str]:
        branches = self.branches_by_place.get(place, [])
        if not self.opened:
            yield from self._closed_branches(branches)
            return
        for branch in branches:
            yield style(cut(f"├─╮  {self._describe_branch(branch)}", self.room), fg=_DIM)
            rows = self._run(branch.events, "│ ", drawn)
            yield from (style(row, fg=_DIM) for row in rows)
            yield style("│ ╳", fg=_DIM)

    def _closed_branches(self, branches: Sequence[Branch]) -> Iterator[str]:
        shown = branches if len(branches) <= MAX_ROWS else branches[: MAX_ROWS - 1]
        for branch in shown:
            how = self._how_to_see(branch.start)
            yield style(
                justify(f"├─╳  {self._describe_branch(branch)}", how, self._row_room), fg=_DIM
            )
        rest = branches[len(shown) :]
        if rest:
            much = self.sum_of([place for branch in rest for place in branch.events])
            words = f"├─╳  {several(len(rest), 'more discarded branch')}, {much}"
            yield style(cut(words, self.room), fg=_DIM)

    def _describe_branch(self, branch: Branch) -> str:
        back = self.session.states[branch.start] is State.ROLLED_BACK
        return f"{'rolled back' if back else 'discarded branch'}, {self.sum_of(branch.events)}"

    def _how_to_see(self, place: int) -> str:
        """Say how to have a branch shown, where there is room for it."""
        name = event_name(self.session.event_id(place))
        return f"--branch {name}" if self.room >= 60 else ""

    # -- subagents ----------------------------------------------------------------------

    @property
    def channels(self) -> dict[str, list[int]]:
        """What each subagent that is a channel of the session wrote, in the order of the log."""
        return self.session.channels

    @cached_property
    def agents(self) -> dict[str, str]:
        """Subagents of the session by the call that started them, the others by their name."""
        started = self.session.started_by()
        return {started.get(channel) or channel: channel for channel in self.channels}

    def agent_name(self, channel: str) -> str:
        """Return the type of a subagent; empty where the log tells none."""
        return self.session.head.agents.get(channel, ("", ""))[1]

    def _agent(self, channel: str, call: str, step: str, drawn: set[str]) -> Iterator[str]:
        """A subagent: closed it is one line, opened its events stand a step to the right."""
        drawn.add(channel)
        places = self.channels[channel]
        first, last = self.session.records[places[0]], self.session.records[places[-1]]
        start, end = derived_events.time_of(first.ts), derived_events.time_of(last.ts)
        passed = round(1000 * (end - start).total_seconds()) if start and end else 0
        took = f", {format_duration(passed)}" if passed > 0 else ""
        name = self.agent_name(channel) or channel.removeprefix("agent:")
        words = f"├─▸  {clean(name)}, {self.sum_of(places)}{took}"
        yield style(cut(f"{step}{words}", self.room), fg="bright_magenta")
        if self.opened:
            yield from self._run(places, f"{step}│ ", drawn)
        pair = self.calls.get(call)
        if pair is not None and pair.result is not None:
            back = answer_of(output.text(pair.result.payload))
            yield cut(f"{step}│    returned: {clean(back)}", self._prose_room)

    # -- the end ------------------------------------------------------------------------

    def _turn(self) -> Iterator[str]:
        if self.to is not None and self.to not in self.session.graph.chain(boundaries=False):
            side = self.session.records[self.to].channel != "main"
            words = "end of the subagent" if side else "end of a discarded branch"
            yield style(f"╳    {words}; the active branch is elsewhere", fg=_DIM)
            return
        mark, words, colour = self.end()
        why = STOPPED if words == TURN_WORDS["stopped"] else ""
        torn = "its last line is cut off" if self.session.turn().torn else ""
        for line in flow([f"{mark}    {words}", why, torn], self.room):
            yield style(line, fg=colour)

    def end(self) -> tuple[str, str, str]:
        """Return where the last turn stands: a mark, words and their colour."""
        turn = turn_now(self.session.turn().state, self.standing)
        mark, colour = _TURNS[turn]
        return mark, TURN_WORDS[turn], colour

    def foot(self) -> Iterator[str]:
        """Say what became of all events, and what a reader should know besides."""
        counts = Counter(row.event.state for row in self.session.rows)
        named = [f"{STATES[state]} {counts[state]:,}" for state in reversed(State) if counts[state]]
        first, *rest = named or ["none"]
        yield from flow([f"events: {first}", *rest], self.room)
        gone = [row.event for row in self.session.rewritten]
        if gone:
            yield f"{several(len(gone), 'event')} no longer in any log, which was rewritten"
        prompts = (event.summary for event in gone if event.kind == "user_msg")
        yield from self._few((f"deleted: {line}" for line in prompts), "deleted prompt", fg=_DIM)
        open_ones = (f"open: {todo.text}" for todo in promises(self.session))
        yield from self._few(open_ones, "open to-do", fg="yellow")
        written = (f"{note.kind}, {note.author}: {_first(note.text)}" for note in self.notes)
        yield from self._few(written, "decision and note")
        edges = [e for e in self.session.edges if e.session not in self.channels]
        edges = [e for e in edges if not (e.child and e.call in self.calls)]
        yield from self._few(map(_tie, edges), "tie")
        yield from self._few(map(skipped_line, self.opened_session.skipped), "skipped line")
        yield from self._few(
            (f"note: {n.what}: {n.detail}" for n in notices(self.opened_session)), "note"
        )

    def _few(self, texts: Iterable[str], noun: str, **how: str | bool) -> Iterator[str]:
        all_texts = list(texts)
        for text in all_texts[:MAX_ROWS]:
            yield style(cut(clean(text), self.room), **how)
        if len(all_texts) > MAX_ROWS:
            yield f"and {several(len(all_texts) - MAX_ROWS, f'more {noun}')}"


def _cost(rows: Iterable[StoredEvent]) -> tuple[int, int]:
    """Return the money for some events, and their tokens without a price."""
    ticks = unknown = 0
    for row in rows:
        if (usage := row.usage) is not None:
            ticks += row.ticks or 0
            unknown += usage.total if row.ticks is None else 0
    return ticks, unknown


# -- words ----------------------------------------------------------------------------------


def _split_after(text: str, lines: int, length: int) -> tuple[str, str]:
    """Part a text after so many lines or characters; what is only a little longer stays whole."""
    end = -1
    for _ in range(lines):
        end = text.find("\n", end + 1)
        if end < 0 or end > length:
            break
    end = length if end < 0 or end > length else end
    return (text[:end], text[end:]) if len(text) > end + length // 8 else (text, "")


def _first(text: str) -> str:
    """The first line that holds something."""
    return next((line.strip() for line in text.split("\n") if line.strip()), "")


def _last(path: str | None) -> str:
    return (path or "").rstrip("/").rpartition("/")[2]


def _tie(edge: Edge) -> str:
    name = edge.uid(edge.agent) if edge.agent else edge.session
    return f"{relation_of(edge)} {name} ({edge.how})"


# -- what of a result is worth a line ---------------------------------------------------------


def answer_of(text: str) -> str:
    """The first line that is no mark-up of the harness."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return next((line for line in lines if not line.startswith("<")), "".join(lines[:1]))


def telling_line(text: str, *, at_end: bool) -> str:
    """The line of a failure that says most: a program's last, a tool's first."""
    lines = output.lines(output.open_envelope(text)[1].replace("<tool_use_error>", ""))
    return (lines[-1] if at_end else lines[0]).strip() if lines else ""


def run_of(tests: testruns.Tests) -> str:
    """Return how many tests failed, passed and were skipped, as text."""
    named = (("failed", tests.failed), ("passed", tests.passed), ("skipped", tests.skipped))
    return ", ".join(f"{number:,} {name}" for name, number in named if number)
