"""`thence show --tree`: one session drawn, with its branches where they begin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

import click

from thence.cli import options, wiring
from thence.cli.columns import DIM, TICKS, TextCell, money, present, short_id, when
from thence.cli.terminal import answer, clean, columns, cut, several, short, style, width
from thence.format.facts import text_in
from thence.format.graph import Branch, State
from thence.format.nodes import Is
from thence.format.normal import one_line
from thence.memory.ancestry import relation_of
from thence.memory.readouts import OpenedSession
from thence.memory.session_status import turn_now

if TYPE_CHECKING:
    from thence.cli.session_text import Page
    from thence.format.facts import Edge
    from thence.format.readout import ReadoutPart, Record
    from thence.format.records import JSON
    from thence.memory.session_status import Standing

_DISCARDED = (State.DEAD, State.ROLLED_BACK)
MAX_PROMPTS = 4
"""Prompts of one discarded branch that are shown before the rest is counted."""


@click.command("tree")
@click.argument("session")
@click.option("--all", "everything", is_flag=True, help="Every event, not only the prompts.")
@options.own
@options.utc
@options.as_json
def command(session: str, *, everything: bool, own: bool, utc: bool, json: bool) -> int:
    """Draw a session that is kept, or one that lies in a file."""
    from thence.cli.lookup import open_named

    opened = open_named(session)
    standing = wiring.standing(opened.session)
    tree = Tree(opened, present(utc=utc), everything=everything, own=own, standing=standing)
    return answer(tree.object, tree.lines(width()), json=json)


class Tree:
    """The drawing of one session."""

    def __init__(
        self,
        opened: OpenedSession,
        at: datetime,
        *,
        everything: bool = False,
        own: bool = False,
        standing: Standing | None = None,
    ) -> None:
        from thence.cli.session_text import Page

        self.session = opened.session
        self._opened = opened
        self._own = own
        self._page: Page = Page(opened, 80, zone=at.tzinfo or UTC, standing=standing)
        self._at = at
        self._zone = at.tzinfo
        self._everything = everything

    @cached_property
    def _turns(self) -> dict[int, list[int]]:
        """The records of each turn of the line, by its prompt; -1 holds what came before."""
        out: dict[int, list[int]] = {}
        now = -1
        for place in self._page.line:
            if self.session.records[place].is_prompt or self._is_summary(place):
                now = place
            out.setdefault(now, []).append(place)
        return out

    def _is_summary(self, place: int) -> bool:
        return bool(self.session.records[place].node.flags & Is.SUMMARY)

    # -- as an object -------------------------------------------------------------------

    def object(self) -> JSON:
        """Return the branches and ties with the events they are made of."""
        records = self.session.records
        return {
            "session_uid": self.session.uid,
            "title": self.session.title,
            "turn": turn_now(self.session.turn().state, self._page.standing),
            "turns": [
                {
                    **self._prompt_object(records[place]),
                    "number": number,
                    **self._money(self._turns.get(place, ())),
                }
                for place, number in self._page.turns.items()
            ],
            "copied_prompts": [
                self._prompt_object(records[place])
                for place in self._page.line
                if records[place].is_prompt and place not in self._page.turns
            ],
            "branches": [
                {
                    "from": records[at].node.id if at >= 0 else None,
                    "state": self.session.states[branch.start].value,
                    "events": [records[place].node.id for place in branch.events],
                    **self._money(branch.events),
                }
                for at, branches in self._page.branches_by_place.items()
                for branch in branches
            ],
            "boundaries": [
                records[place].node.id for place in self._page.line if self._is_summary(place)
            ],
            "cleared": [
                records[place].node.id
                for place in self._page.line
                if records[place].node.flags & Is.CLEARS
            ],
            "subagents": [
                {"channel": channel, "events": len(places), **self._money(places)}
                for channel, places in self._page.channels.items()
            ],
            "edges": self.session.edges,
            "continued_from": [
                {
                    "session_uid": part.session.uid,
                    "messages": part.messages,
                    "prompts": [
                        self._prompt_object(record)
                        for record in map(part.session.records.__getitem__, part.places)
                        if record.is_prompt
                    ],
                }
                for part in self._inherited_parts
            ],
        }

    def _prompt_object(self, record: Record) -> dict[str, JSON]:
        return {"event": record.id, "ts": record.ts, "prompt": self._text_of(record)}

    @cached_property
    def _inherited_parts(self) -> list[ReadoutPart]:
        """What stands on the line in the sessions that this one continues."""
        return [] if self._own else self.session.inherited(boundaries=False)

    def _money(self, places: Iterable[int]) -> dict[str, JSON]:
        ticks, unknown = self._page.cost(places)
        return {"usd": ticks / TICKS, "unpriced_tokens": unknown}

    # -- as text ------------------------------------------------------------------------

    def lines(self, room: int) -> Iterator[str]:
        """Yield the drawing."""
        self._page.room = room
        yield from self._page.head()
        yield ""
        yield from self._before(room)
        yield from self._branches_at(-1, room)
        for place in self._page.line:
            yield from self._place(place, room)
        yield from self._loose(room)
        yield self._end(room)
        yield ""
        yield cut(self._sums(), room)

    def _before(self, room: int) -> Iterator[str]:
        for part in self._inherited_parts:
            opened = OpenedSession(part.session, self._opened.agent, [], [])
            above = Tree(opened, self._at, everything=self._everything, own=True)
            for place in part.places:
                yield from above._place(place, room, parted=False)
            name = short_id(part.session.native)
            words = f"continued from {name}, {several(part.messages, 'message')}"
            yield self._row("┄┄", words, room, colour=DIM)
        if self._inherited_parts:
            return
        for edge in self.session.edges:
            if not edge.child:
                whose = f"{clean(edge.agent)} " if edge.agent else ""
                origin = f"{relation_of(edge)} {whose}{short_id(edge.session)}"
                yield self._row("┊", origin, room, colour=DIM)

    def _place(self, place: int, room: int, *, parted: bool = True) -> Iterator[str]:
        record = self.session.records[place]
        if record.node.flags & Is.CLEARS:
            yield self._row("═", "context cleared", room, record, colour="cyan")
        if record.is_prompt:
            yield self._prompt(place, room)
        elif self._is_summary(place):
            much = self._page.sum_of(self._summed_places(place))
            cost = _amount(*self._page.cost(self._turns.get(place, ())))
            yield self._row("═", f"compacted, {much}", room, record, cost=cost, colour="cyan")
        elif self._everything and record.blocks and not record.node.flags & Is.INTERNAL:
            yield self._row("│", self._text_of(record), room, record, colour=DIM)
        for call in record.node.calls:
            yield from self._call(call, room)
        if self.session.states[place] is State.ORPHANED and record.node.calls:
            lost = [call for call in record.node.calls if self._is_open(call)]
            for call in lost:
                words = f"○ {self._call_text(record, call)}"
                yield self._row("│", words, room, record, name="orphaned", colour="red")
        if parted:
            yield from self._branches_at(place, room)

    def _prompt(self, place: int, room: int) -> str:
        record = self.session.records[place]
        corrects = place in self._corrections
        cost = _amount(*self._page.cost(self._turns.get(place, ())))
        number = f"{self._page.turns.get(place, ''):>2}"
        mark, colour = ("◆", "magenta") if corrects else ("●", "blue")
        return self._row(
            mark, self._text_of(record), room, record, number=number, cost=cost, colour=colour
        )

    @cached_property
    def _corrections(self) -> set[int]:
        """Prompts by which a human stepped in."""
        records = self.session.records
        return {
            place
            for place in self._page.turns
            if any(d.kind == "human_intervention" for r in records[place].rows for d in r.derived)
        }

    def _summed_places(self, place: int) -> list[int]:
        """The records of the line that a summary stands for: those since the one before."""
        out: list[int] = []
        for other in self._page.line:
            if other == place:
                break
            if self._is_summary(other):
                out.clear()
            else:
                out.append(other)
        return out

    # -- what parted --------------------------------------------------------------------

    def _branches_at(self, place: int, room: int) -> Iterator[str]:
        for branch in self._page.branches_by_place.get(place, ()):
            yield from self._branch(branch, room)
        if place < 0:
            return
        event = self.session.records[place].node.id
        for edge in self._forks.get(event, ()):
            yield self._tie(edge, room)

    def _branch(self, branch: Branch, room: int) -> Iterator[str]:
        yield style("  ├─╮", fg=DIM)
        records, state = self.session.records, self.session.states[branch.start]
        prompts = [p for p in branch.events if records[p].is_prompt]
        prompts = prompts or [p for p in branch.events if records[p].blocks][:1] or [branch.start]
        cost = _amount(*self._page.cost(branch.events))
        for place in prompts[:MAX_PROMPTS]:
            last = place == prompts[:MAX_PROMPTS][-1]
            mark = "│ ╳" if last else "│ ○"
            name = "rolled back" if state is State.ROLLED_BACK else "discarded"
            words = self._text_of(records[place]) or records[place].type
            if last and len(prompts) > MAX_PROMPTS:
                words = f"{words} … {several(len(prompts) - MAX_PROMPTS, 'more prompt')}"
            right = name if last else ""
            row = self._row(
                mark, words, room, records[place], name=right, cost=cost if last else ""
            )
            yield style(row, fg=DIM)

    @cached_property
    def _forks(self) -> dict[str, list[Edge]]:
        out: dict[str, list[Edge]] = {}
        for edge in self.session.edges:
            if edge.child and edge.event is not None and edge.session not in self._page.channels:
                out.setdefault(edge.event, []).append(edge)
        return out

    def _tie(self, edge: Edge, room: int) -> str:
        words = f"{short_id(edge.session)}  {edge.link}, a separate session"
        return self._row("├─▸", words, room, colour="bright_magenta")

    # -- subagents ----------------------------------------------------------------------

    def _call(self, call: str, room: int) -> Iterator[str]:
        channel = self._page.agents.get(call)
        if channel is not None:
            yield self._agent(channel, room)
        for edge in self.session.edges:
            if edge.child and edge.call == call and edge.session not in self._page.channels:
                yield self._tie(edge, room)

    def _agent(self, channel: str, room: int) -> str:
        places = self._page.channels[channel]
        first = self.session.records[places[0]]
        name = self._page.agent_name(channel)
        named = clean(name) if name else short_id(channel.removeprefix("agent:"))
        words = f"{named}  {self._text_of(first)}"
        cost = _amount(*self._page.cost(places))
        return self._row(
            "├─▸", words, room, first, name="subagent", cost=cost, colour="bright_magenta"
        )

    def _loose(self, room: int) -> Iterator[str]:
        """Draw what no event of the line tells of: subagents and ties without a place."""
        on_line = (self.session.records[place].node.calls for place in self._page.line)
        drawn = {self._page.agents.get(call) for some in on_line for call in some}
        for channel in self._page.channels:
            if channel not in drawn:
                yield self._agent(channel, room)
        calls = {call for record in self.session.records for call in record.node.calls}
        events = {record.node.id for record in self.session.records}
        for edge in self.session.edges:
            placed = edge.call in calls or edge.event in events
            if edge.child and not placed and edge.session not in self._page.channels:
                yield self._tie(edge, room)

    # -- words --------------------------------------------------------------------------

    def _text_of(self, record: Record) -> str:
        texts = (text_in(block) or block.summary for block in record.blocks)
        return self._at_home(next((text for text in texts if text.strip()), ""))

    def _call_text(self, record: Record, call: str) -> str:
        summaries = (block.summary for block in record.blocks if block.call == call)
        return self._at_home(next(summaries, call))

    def _at_home(self, text: str) -> str:
        """Return a text on one line, without the folder that everything lies in."""
        here = self._page._here  # noqa: SLF001 - one drawing of two
        return clean(one_line(text.replace(here, "") if here else text, 200))

    def _is_open(self, call: str) -> bool:
        pair = self._page.calls.get(call)
        return pair is None or not pair.outcome.ended

    def _row(
        self,
        mark: str,
        words: str,
        room: int,
        record: Record | None = None,
        *,
        number: str = "",
        name: str = "",
        cost: str = "",
        colour: str = "",
    ) -> str:
        """Set one row: mark, number, words, and at the right what it is, when, how much."""
        left = f"  {mark:<3}{number:<2} " if len(mark) < 3 else f"  {mark:<5} "
        moment = when(record.ts) if record is not None else None
        clock = f"{moment.astimezone(self._zone):%H:%M}" if moment is not None else ""
        right = f"{name:<11}  {clock:<5}  {cost:>7}" if room >= 70 else cost
        words = cut(words, max(room - columns(left) - columns(right) - 2, 8))
        pad = " " * max(room - columns(left) - columns(words) - columns(right), 1)
        shown = TextCell(left, colour or None).paint(left)
        return f"{shown}{words}{pad}{right}".rstrip()

    def _end(self, room: int) -> str:
        end = self._page.line[-1] if self._page.line else None
        record = self.session.records[end] if end is not None else None
        mark, words, colour = self._page.end()
        return self._row(mark, words, room, record, colour=colour)

    def _sums(self) -> str:
        """Say what became of all events, and what each part cost."""
        states = self.session.states
        parts: list[str] = []
        for name, wanted in (
            ("live", (State.LIVE, State.ORPHANED)),
            ("discarded", _DISCARDED),
            ("subagents", (State.SIDE,)),
            ("copied", (State.REPLAYED,)),
        ):
            places = [place for place, state in enumerate(states) if state in wanted]
            number = self.session.count_events(places)
            if number:
                ticks, unknown = self._page.cost(places)
                cost = f" {money(ticks, unknown)}" if ticks or unknown else ""
                parts.append(f"{name} {several(number, 'event')}{cost}")
        internal = sum(1 for state in states if state is State.INTERNAL)
        return " · ".join([*parts, *([f"{short(internal)} internal"] if internal else [])])


def _amount(ticks: int, unknown: int) -> str:
    return money(ticks, unknown) if ticks or unknown else ""
