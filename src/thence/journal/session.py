"""One session, open for writing: what a harness holds while its agent works.

`record` puts one event on the disk (it survives a killed process from then on), `flush` ends a
turn (it survives a power cut from then on). What the model sees and the state of all domains are
served from memory; the transcript is read once, when the session is opened or, of a fork, when
something of it is first asked for, and again only when its tip is moved. Invariants: the log only
grows; the side file before the event that names it, the summary before the boundary, the event
before the receipt; a resumed, adopted or forked session starts with an empty permission ledger
and never finds another.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import msgspec

from thence.errors import Conflict, NotAppendable, SessionNotFound, ThenceError
from thence.format import codec, repair
from thence.format.incremental_repair import Mending
from thence.format.records import JSON, MESSAGES, Event, Notice
from thence.format.spills import Spilled
from thence.format.state import Domains, SessionState, cost_of
from thence.journal import pending_todos
from thence.journal.arguments import (
    Amount,
    Text,
    check_call,
    check_event,
    checked,
    checks_itself,
    line_of,
)
from thence.journal.branches import Branches
from thence.journal.checkpoint import Checkpoint, Checkpoints, RewindResult
from thence.journal.idle import TIMEOUT_S, Idle
from thence.journal.ids import now_text, uuid7
from thence.journal.known_events import KnownEvents, moves_tip, next_tip
from thence.journal.log import Log
from thence.journal.messages import MessageRecorder
from thence.journal.permissions import Ledger
from thence.journal.reader import ReadBack, Recovery, UnfinishedSubagent, Where, merge_ranges
from thence.journal.segmented_log import SegmentedLog
from thence.journal.sidechain import Parent, Sidechain, Sidechains
from thence.journal.spill import Spill, has_results

if TYPE_CHECKING:
    from thence.format.todos import Todo

OnStale = Literal["branch", "conflict"]
TurnText = Literal["done", "interrupted", "running", "waiting"]


class Receipt(msgspec.Struct, frozen=True):
    """An event is in the log: which, and where. The line is counted when it is asked for."""

    uuid: str
    offset: int
    run: SegmentedLog | None = None
    segment: int = 1
    branched: bool = False
    """Other writers went on meanwhile, and this event does not go on from theirs."""

    @property
    def line(self) -> int:
        """The 1-based number of the event's line."""
        return self.run.line_at(self.segment, self.offset) if self.run is not None else 0


class SessionParts(msgspec.Struct):
    """The side files of one session."""

    spill: Spill | None = None
    sidechains: Sidechains | None = None
    checkpoints: Callable[[], Checkpoints] | None = None
    saved: Callable[[], list[Checkpoint]] | None = None
    """The checkpoints that the logs of the session and its ancestors name."""
    last_prompt: Callable[[], int | None] | None = None
    """Where the session's last prompt stands in the history of the machine."""
    reread: Callable[[str, Where | None], ReadBack] | None = None
    """Reads the session up to one of its events, given where that stands if it is known."""
    above: Callable[[str], ReadBack | None] | None = None
    """Reads up to an event of those that the session goes on from."""
    line: Callable[[str], list[tuple[Event, Where]]] | None = None
    """Reads the messages that lead to an event as they were written, compacted ones too."""
    unfinished: Callable[[], list[UnfinishedSubagent]] | None = None
    """Finds the subagents that the session, or the one it goes on from, left without an end."""


@checked
class Session(MessageRecorder[Receipt]):
    """A session of ours, open for appending. Threads may share it.

    Without a log (persistence is switched off) everything works in memory and nothing is kept.
    """

    def __init__(
        self,
        session_id: str,
        run: SegmentedLog | None,
        *,
        back: ReadBack,
        parts: SessionParts,
        later: Callable[[Session], None] | None = None,
        domains: Domains | None = None,
        orphans: repair.Orphans = "answer",
        title: str | None = None,
        timeouts: tuple[float, float] = (TIMEOUT_S, TIMEOUT_S),
        clock: Callable[[], str] = now_text,
    ) -> None:
        """Stand where `back` tells; `later` takes over from an ancestor when that is needed."""
        self.id = session_id
        self.permissions = Ledger()
        self.title = title
        self._timeouts = timeouts
        self._run = run
        self._parts = parts
        self._later = later
        self._branches: Branches | None = None
        self._domains = domains or Domains()
        self._orphans = orphans
        self._clock = clock
        self._mutex = threading.RLock()
        self._known: KnownEvents | None = None
        self._closed = False
        self._children: weakref.WeakSet[Sidechain] = weakref.WeakSet()
        self._flushed = 0
        self._appended = 0
        self._segment, self._end = back.stop
        """The address where our own last line ends, or what others wrote as far as we know."""
        self._others_tip: str | None = None
        """What others last went on to, since our own last event."""
        self._checkpoints: list[Checkpoint] | None = None  # read when first asked for
        self.take(back)
        self._cost: dict[str, JSON] = cost_of(())
        self._cost_before: dict[str, JSON] = back.cost or {}
        self._unbilled: list[Event] = []
        self.inherited_cost = back.inherited_cost

    @checks_itself
    def take(self, back: ReadBack) -> None:
        """Stand where the reader stopped, with all that it found."""
        self._recovery = back.recovery
        self._opened: ReadBack | None = back  # until what it tells was worked out
        self._root = back.root
        # Calls that were left open before we came have ended; those of ours may still run.
        is_known = back.settled or back.recovery.writer
        self._opened_chain: list[Event] = [] if is_known else back.chain
        self._ended: dict[str, str] = {}
        self._stand(back)

    def _ready(self) -> None:
        """Take over from an ancestor now, if that was put off."""
        with self._mutex:
            later, self._later = self._later, None
            if later is not None:
                try:
                    later(self)
                except BaseException:  # it can be tried again
                    self._later = later
                    raise

    def _stand(self, back: ReadBack) -> None:
        self._tip = back.end
        self._moved = back.moved
        self._see(list(back.chain))
        was_stopped = any(event.type == "interrupted" for event in back.since)
        self._stopped = repair.stopped_calls(back.since) if was_stopped else {}
        self._where: dict[str, Where] = {}
        self._where_before = back.where
        self._boundary = back.boundary
        self._since = list(back.since)
        self._snapshot = back.snapshot
        self._folded: SessionState | None = None  # as of the first so many of `_since`
        self._fold_at = 0

    def _see(self, chain: list[Event]) -> None:
        """Take another chain for what the model sees."""
        self._chain = chain
        self._mending = Mending(self._orphans)
        self._counted = False  # whether its results are in the spill's budget

    # -- writing ------------------------------------------------------------------------

    @checks_itself
    def record(
        self,
        kind: str,
        payload: JSON,
        *,
        uuid: str | None = None,
        parent: str | None = None,
        expected_tip: str | None = None,
        on_stale: OnStale = "branch",
        any_parent: bool = False,
    ) -> Receipt:
        """Append one event and give its receipt. It survives a killed process from now on.

        What would not come back as it was meant raises `BadArgument`, which shows the right form.

        With a `uuid` of the caller's the same event again is a no-op that gives the first
        receipt, across reopening and across processes. With `expected_tip`, what somebody else
        added meanwhile makes this event a branch, or a `Conflict`, as `on_stale` says. A parent
        that nobody knows is an error; with `any_parent` it is written down as it is, and the
        event goes on from the tip. If the receipt says `branched`, others went on meanwhile.
        """
        check_event(kind, payload)
        if uuid is None and parent is None and expected_tip is None and on_stale == "branch":
            return self._write(kind, payload)
        return self._record_carefully(
            kind,
            payload,
            uuid=uuid,
            parent=parent,
            expected_tip=expected_tip,
            on_stale=on_stale,
            any_parent=any_parent,
        )

    def _write(self, kind: str, payload: JSON) -> Receipt:
        """Append one event that was checked, or that is the library's own."""
        if self._later is not None:
            self._ready()
        with self._mutex:
            payload = self._spill_results(kind, payload)
            return self._append(Event(kind, self._clock(), uuid7(), self._tip, payload))

    def _parent(self, parent: str | None, *, any_parent: bool) -> str | None:
        """Go to the event that the next one goes on from, and give what that one shall name."""
        if parent is not None and parent != self._tip:
            try:
                self._leave(parent)
            except SessionNotFound:
                if not any_parent:
                    raise
                return parent
        return self._tip

    def _append(self, event: Event) -> Receipt:
        line = line_of(event)
        run = self._run
        offset = segment = 0
        if run is not None:
            offset, segment = run.append(line), run.segment
            is_full = run.log.end > run.max_bytes  # others may have gone on in the next segment
            if offset != self._end or (is_full and run.is_left()):
                self._look_around(event)
            if run.segment == segment:
                self._segment, self._end = segment, offset + len(line)
        self._appended += 1
        is_branched = False
        if moves_tip(event):
            if self._others_tip is not None:
                is_branched = self._others_tip != event.prev_uuid
                self._others_tip = None
            self._tip = event.uuid
            self._since.append(event)
            if event.type in MESSAGES:
                self._chain.append(event)
                self._where[event.uuid] = Where(self.id, segment, offset, len(line))
                if event.type == "assistant":
                    self._unbilled.append(event)
            elif event.type == "interrupted":
                self._stopped |= repair.stopped_calls([*self._chain, event])
        return Receipt(event.uuid, offset, run, segment, is_branched)

    def _look_around(self, event: Event) -> None:
        """Find out where others went before our event, which stands in the log already."""
        with contextlib.suppress(OSError, ThenceError):  # it is recorded; the next look sees them
            if self._run is not None:
                self._run.follow(self._tip)
            for other in self._others(event.uuid):
                self._others_tip = next_tip(other, self._others_tip)

    def _others(self, own: str | None = None) -> list[Event]:
        """Read what was appended since our last line, and add up what it took.

        Of the segment that holds an event of our own up to that: what came later goes on from an
        older tip, and the next look sees it.
        """
        run = self._run
        if run is None:
            return []
        seen = run.seen_before(self._segment, self._end)
        events: list[Event] = []
        for grown in run.grown(seen):
            events += takewhile(lambda event: event.uuid != own, codec.decode(grown.data).events)
        self._segment = run.segment
        self._end = run.base_offset + seen.get(run.segment, 0)
        spent = cost_of(events)
        before = self._cost_before
        self._cost_before = {n: v + before.get(n, 0) for n, v in spent.items() if n != "last"}
        return events

    def refresh(self) -> bool:
        """Read what other writers appended, and go to the newest event of this branch.

        If one of them moved the tip, go where it was moved to. Returns whether the tip is another
        one now. Messages and state are then those of the new tip; nothing is written.
        """
        self._ready()
        with self._mutex:
            if self._run is None or self._closed:
                return False
            self._run.follow(self._tip)
            here, newest, last = {self._tip}, self._tip, self._others_tip
            for event in self._others():
                last = next_tip(event, last)
                if event.type == "tip" and last is not None:
                    here, newest = {last}, last
                elif event.prev_uuid in here:
                    here.add(event.uuid)
                    newest = next_tip(event, newest)
            self._others_tip = last if last != newest else None
            self._checkpoints = None
            if newest is None or newest == self._tip:
                return False
            self._branches = None
            self._go(newest)
            return True

    def _record_carefully(
        self,
        kind: str,
        payload: JSON,
        *,
        uuid: str | None,
        parent: str | None,
        expected_tip: str | None,
        on_stale: OnStale,
        any_parent: bool,
    ) -> Receipt:
        """Look before appending: at what others added, and at nothing else."""
        self._ready()
        if uuid is None and expected_tip is None:
            with self._mutex:
                before = self._parent(parent, any_parent=any_parent)
                payload = self._spill_results(kind, payload)
                return self._append(Event(kind, self._clock(), uuid7(), before, payload))
        run = self._run
        locked = contextlib.nullcontext() if run is None else run.exclusive(self._tip)
        with self._mutex, locked:
            known = self._known = self._known or KnownEvents(run)
            known.catch_up(self._tip)
            if uuid is not None and uuid in known.places:
                segment, offset = known.places[uuid]
                return Receipt(uuid, offset, run, segment)
            if expected_tip is not None and expected_tip != known.tip and on_stale == "conflict":
                raise Conflict(
                    f"the session has new events: its tip is {known.tip}, not {expected_tip}",
                    hint="read the new events, then record again, or ask for a branch",
                )
            before = self._parent(parent or expected_tip, any_parent=any_parent)
            payload = self._spill_results(kind, payload)
            event = Event(kind, self._clock(), uuid or uuid7(), before, payload)
            receipt = self._append(event)
            known.places.setdefault(receipt.uuid, (receipt.segment, receipt.offset))
            return receipt

    def _leave(self, to: str) -> None:
        """Go on from another event. Once a log holds a moved tip, only moving it again counts."""
        if self._go(to) is None and self._moved:
            self._move(to)

    def _move(self, to: str) -> Receipt:
        self._moved = True
        return self._append(Event("tip", self._clock(), uuid7(), to, {"to": to}))

    def _go(self, to: str) -> Receipt | None:
        """Make what the model sees, and the state, those of an earlier event.

        If it is an ancestor's the tip was moved as well: the receipt of what was written for it.
        """
        moved, run = self._moved, self._run
        if run is None or self._parts.reread is None:
            self._cut(to)
            return None
        self._branches = self._branches or Branches(run, self._parts.reread, self._boundary)
        back = self._branches.back(to)
        if back.end is None:
            return self._go_above(to)
        self._stand(back)
        # After reading: what goes on from an event never stands in an older segment.
        run.follow(to)
        self._tip, self._moved = to, moved or self._moved
        return None

    def _go_above(self, to: str) -> Receipt:
        """Go on from an event of an ancestor, where our own log cannot move the tip to.

        The tip goes back to our first event; a boundary after it keeps, by their ranges, what
        the model saw at that event. A crash between the two leaves the session as it began.
        """
        back = self._parts.above(to) if self._parts.above is not None else None
        if back is None or self._root is None:
            raise SessionNotFound(
                f"no event {to[:64]} in this session or those it goes on from",
                hint="`thence show PATH` shows events",
            )
        if self._run is not None:
            self._run.follow(self._tip)
        self._stand(back)
        self._tip = self._root
        self._move(self._root)
        return self.compact("", keep_from=back.chain[0].uuid if back.chain else None)

    def _cut(self, to: str) -> None:
        """The same where nothing is kept but in memory."""
        places = [k for k, event in enumerate(self._since) if event.uuid == to]
        if not places:
            raise SessionNotFound(
                f"no event {to[:64]} on this line",
                hint="nothing is kept: only what came after the last compaction is known",
            )
        gone = {event.uuid for event in self._since[places[0] + 1 :]}
        del self._since[places[0] + 1 :]
        self._see([event for event in self._chain if event.uuid not in gone])
        self._folded, self._fold_at = None, 0
        self._tip = to

    def _spill_results(self, kind: str, payload: JSON) -> JSON:
        """Move results over the budget to side files, which are durable before we go on.

        The budget is that of what the model sees now: a resumed session decides as the one
        before it would have, and a compaction gives room back.
        """
        spill = self._parts.spill
        if spill is None or not has_results(kind, payload):
            return payload
        if not self._counted:
            spill.recount(self._chain)
            self._counted = True
        return spill.record(kind, payload)

    # -- the line -----------------------------------------------------------------------

    def rewind(self, to: str) -> Receipt:
        """Move the tip back. Files stay as they are: `rewind_files` is the other verb.

        To any event of this session, or of one that it goes on from.
        """
        self._ready()
        with self._mutex:
            return self._go(to) or self._move(to)

    def compact(self, summary: JSON, *, keep_from: str | None = None) -> Receipt:
        """Put a summary in place of what was said, but for what is kept from an event on.

        Nothing is rewritten: the summary is appended, then the boundary that commits it, which
        carries the state and the places of what is kept. `keep_from` may name an event that an
        earlier compaction took out of view: then the originals from there on come back.
        """
        payload = _summary_payload(summary)
        check_event("user", payload)
        self._ready()
        with self._mutex:
            self._work_out_recovery()
            visible, older = self._visible_from(keep_from)
            if self._run is not None:
                self._run.follow(self._tip)
            state = pending_todos.with_calls(
                self._domains.snapshot(self._advance_state()),
                self._chain,
                self._since,
                self._snapshot,
                visible,
            )
            anchor = Event("summary", self._clock(), uuid7(), self._tip, payload)
            before = self._where_before() | older
            ranges = [self._where.get(e.uuid) or before[e.uuid] for e in visible]
            passed = self._append(anchor)
            _, _, offset, length = self._where[anchor.uuid]
            payload = {
                "head_uuid": visible[0].uuid if visible else None,
                "anchor_uuid": anchor.uuid,
                "tail_uuid": visible[-1].uuid if visible else None,
                "summary_event_uuid": anchor.uuid,
                "kept": merge_ranges(ranges, self.id),
                "summary": [offset, length],
                "state": state,
                "totals": self._totals(),
            }
            receipt = self._append(Event("boundary", self._clock(), uuid7(), anchor.uuid, payload))
            self._boundary = (receipt.segment, receipt.offset)
            self._see([anchor, *visible])
            self._since, self._snapshot = [], state
            self._folded, self._fold_at = None, 0
            self._branches = None  # what comes next goes on from here, most likely
            if self._run is not None:
                self._run.sync()
            return msgspec.structs.replace(receipt, branched=passed.branched or receipt.branched)

    def _visible_from(self, keep_from: str | None) -> tuple[list[Event], dict[str, Where]]:
        """Return the messages from an event on, and where those stand that are not in view now."""
        if keep_from is None:
            return [], {}
        for place, event in enumerate(self._chain):
            if event.uuid == keep_from:
                return self._chain[place:], {}
        line = self._parts.line(self._tip or "") if self._parts.line is not None else []
        for place, (event, _) in enumerate(line):
            if event.uuid == keep_from:
                visible = line[place:]
                return [event for event, _ in visible], {event.uuid: at for event, at in visible}
        raise SessionNotFound(
            f"no event {keep_from[:64]} on the line of this session",
            hint="keep_from names a message event",
        )

    # -- turns --------------------------------------------------------------------------

    def flush(self, *, state: TurnText = "done") -> None:
        """End a turn: write its totals and bring everything to the disk itself."""
        with self._mutex:
            if self._appended != self._flushed:
                values = self._advance_state().values
                worktree = values.get("worktree") or {}
                payload = {
                    "state": state,
                    "totals": self._totals(),
                    "model": (values.get("model") or {}).get("model"),
                    "branch": str(worktree.get("branch") or "")[:200] or None,
                    "title": (self._title or "")[:200] or None,
                    "boundary": self._boundary[1] if self._boundary else None,
                }
                self._append(Event("turn", self._clock(), uuid7(), self._tip, payload))
                self._flushed = self._appended
            if self._run is not None:
                self._run.sync()
                self._run.roll(self._tip)

    def close(self, reason: str = "closed") -> None:
        """End cleanly: a terminator, everything on the disk, the handle let go."""
        with self._mutex:
            if self._closed:
                return
            self.flush()
            end = {"end_ts": self._clock(), "reason": reason}
            self._append(Event("terminator", self._clock(), uuid7(), self._tip, end))
            if self._run is not None:
                self._run.close()
            self._closed = True  # not before: closing that failed can be tried again

    def idle(
        self,
        timeout: Amount | None = None,
        approval_timeout: Amount | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        on_idle: Callable[[], object] | None = None,
    ) -> Idle:
        """Return the timers of this session, to be told of turns and polled.

        When it rested long enough it is closed with the reason `idle`, then `on_idle` is called.
        A call that nobody approved in time gets a synthetic result, so that the turn goes on.
        Timeouts that are left out are those of the journal.
        """
        rest_s, approval_s = self._timeouts
        rest_s = rest_s if timeout is None else timeout
        approval_s = approval_s if approval_timeout is None else approval_timeout

        def rested() -> None:
            self.close("idle")
            if on_idle is not None:
                on_idle()

        def unanswered(call: str) -> None:
            why = repair.not_approved(approval_s)
            made = repair.synthetic(self.id, call, ts=self._clock(), prev_uuid=None, why=why)
            self.record("user", made.payload, uuid=made.uuid)

        return Idle(rest_s, approval_s, clock, rested, unanswered)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close("closed" if kind is None else "error")

    # -- side files ---------------------------------------------------------------------

    def sidechain(
        self, agent: str, *, tool_use_id: str | None = None, agent_id: str | None = None
    ) -> Sidechain:
        """Open the channel of a subagent. The parent learns its id, its end and its summary.

        With an `agent_id` of the caller's, such as the task's, that is the name of its log.
        """
        if self._closed:  # a log that was begun would be a subagent that never ended
            raise NotAppendable(f"session {self.id} is closed", hint="resume the session")
        parent = Parent(self.id, self._write)
        if self._parts.sidechains is None:
            return Sidechain(parent, agent, None, tool_use_id=tool_use_id, agent_id=agent_id)
        child = self._parts.sidechains.open(
            parent, agent, tool_use_id=tool_use_id, agent_id=agent_id
        )
        self._children.add(child)
        return child

    @property
    def open_sidechains(self) -> list[Sidechain]:
        """Channels of subagents that have not ended yet."""
        return [c for c in list(self._children) if c.completion_status == "running"]

    def checkpoint(self, paths: Iterable[Path | str]) -> Checkpoint:
        """Save files as they are before an edit; durable before the event that names it."""
        made = self._store().save(paths, parent=self.checkpoint_hash)
        self._name(made)
        return made

    def _name(self, made: Checkpoint) -> None:
        """Write the event that names a checkpoint, whose bytes are durable already."""
        self._ready()
        with self._mutex:
            known = self.checkpoints
            self._append(Event("checkpoint", self._clock(), uuid7(), self._tip, made.payload))
            self._checkpoints = [*known, made]

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """All checkpoints of this session and those it goes on from, oldest first.

        Of dead branches too: what was edited there was edited all the same.
        """
        if self._checkpoints is None:
            self._checkpoints = self._parts.saved() if self._parts.saved else []
        return self._checkpoints

    def rewind_files(self, to: Checkpoint, *, dry_run: bool = False) -> RewindResult:
        """Return files to a checkpoint. The conversation stays where it is."""
        made = self.checkpoints
        later = made[made.index(to) + 1 :] if to in made else []
        return self._store().rewind(to, later, dry_run=dry_run, record=self._name)

    def full_result(self, spilled: Spilled | str) -> bytes:
        """Return a result that was spilled, whole and verified."""
        if self._parts.spill is None:
            raise ThenceError("nothing was spilled", hint="persistence is switched off")
        return self._parts.spill.load(spilled)

    def _store(self) -> Checkpoints:
        if self._parts.checkpoints is None:
            raise ThenceError(
                "checkpoints need a workspace and a place on the disk",
                hint="create the session with cwd=…, and with persistence switched on",
            )
        return self._parts.checkpoints()

    # -- what is there ------------------------------------------------------------------

    @property
    def recovery(self) -> Recovery:
        """What was found when the session was opened, and what was done about it."""
        self._ready()
        with self._mutex:
            self._work_out_recovery()
        return self._recovery

    def _work_out_recovery(self) -> None:
        """Add what takes a look at more than the reader did: once, as of when it was opened."""
        back, self._opened = self._opened, None
        if back is None:
            return
        recovery = self._recovery
        if recovery.writer:
            recovery.notices.append(Notice("another writer", recovery.writer))
        lost = self._advance_state().failed
        recovery.notices += [Notice("state lost", f"{name}: {why}") for name, why in lost.items()]
        if self._parts.unfinished is not None:
            recovery.subagents += self._parts.unfinished()
        recovery.notices += [
            Notice("subagent never ended", str(subagent)) for subagent in recovery.subagents
        ]
        if back.chain:
            recovery.pending += pending_todos.pending(back.chain, back.since, back.snapshot)

    @property
    def pending(self) -> list[Todo]:
        """What the agent still has to do: open entries of its lists, then what it said last.

        Lists are those of any agent's to-do tools, `todos` events and check lists in answers.
        """
        self._ready()
        with self._mutex:
            return pending_todos.pending(self._chain, self._since, self._snapshot)

    @property
    def title(self) -> str | None:
        """What the session is called in lists; written down when a turn ends."""
        return self._title

    @title.setter
    @check_call
    def title(self, title: Text | None) -> None:
        self._title = title

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def tip(self) -> str | None:
        """The event that the next one goes on from."""
        self._ready()
        return self._tip

    @property
    def messages(self) -> list[repair.ApiMessage]:
        """What goes to the model: valid for the Messages API."""
        return self.mended().messages

    def mended(self) -> repair.Mended:
        """Return `messages`, with the calls that are open and what was left out."""
        self._ready()
        with self._mutex:
            new = self._chain[len(self._mending) :]
            self._mending.add(
                {name: e.fields.get(name) for name in ("role", "content", "id")} for e in new
            )
            opened, self._opened_chain = self._opened_chain, []
            self._ended |= repair.ended_calls(opened)
            why = repair.INTERRUPTED if self._closed else repair.NO_RESULT_YET
            return self._mending.mend({**self._ended, **self._stopped}, why)

    @property
    def state(self) -> SessionState:
        """All domains as of the tip, `messages` excepted: those are `session.messages`."""
        self._ready()
        with self._mutex:
            snapshot = self._domains.snapshot(self._advance_state())
            if not self._domains.covers(snapshot):
                return self._fold(self._since, self._snapshot)
            return self._fold([], snapshot)  # a copy: what the caller does to it is not ours

    def _advance_state(self) -> SessionState:
        """Fold what was recorded since the last look, and no more, if the domains allow that.

        One that failed, or whose value a snapshot could not hold, has to see the whole line.
        """
        if self._folded is not None and self._fold_at == len(self._since):
            return self._folded
        snapshot = self._domains.snapshot(self._folded) if self._folded is not None else None
        if snapshot is not None and self._domains.covers(snapshot):
            self._folded = self._fold(self._since[self._fold_at :], snapshot)
        else:
            self._folded = self._fold(self._since, self._snapshot)
        self._fold_at = len(self._since)
        return self._folded

    def _fold(self, events: list[Event], snapshot: JSON) -> SessionState:
        state = self._domains.fold(events, [], snapshot=snapshot)
        state.values.pop("messages", None)
        return state

    @property
    def cost(self) -> float:
        """Dollars spent since it was opened, dead branches included. It starts at nothing."""
        self._totals()
        return float(self._cost["usd"])

    @property
    def cumulative_cost(self) -> float:
        """Dollars spent in this session, before it was opened too, and those it goes on from."""
        return float(self._totals()["usd"]) + self.inherited_cost

    def _totals(self) -> dict[str, JSON]:
        """What the whole session took, the part before it was opened included."""
        with self._mutex:
            self._cost = cost_of(self._unbilled, self._cost)
            self._unbilled = []
            before = self._cost_before
            return {n: v + before.get(n, 0) for n, v in self._cost.items() if n != "last"}

    # -- the contract's outputs ---------------------------------------------------------

    @property
    def transcript_path(self) -> Path | None:
        """Where the session is written; None when nothing is."""
        return self._run.path if self._run is not None else None

    @property
    def _log(self) -> Log | None:
        """The file that is written now."""
        return self._run.log if self._run is not None else None

    @property
    def history_offset(self) -> int | None:
        """Where this session's last prompt stands in the machine's history; None when nowhere."""
        return self._parts.last_prompt() if self._parts.last_prompt else None

    @property
    def history_appended(self) -> bool:
        """Whether the history holds a prompt of this session."""
        return self.history_offset is not None

    @property
    def transcript_flushed(self) -> bool:
        """Whether everything recorded so far was flushed."""
        return self._closed or self._appended == self._flushed

    @property
    def checkpoint_hash(self) -> str | None:
        """The last checkpoint's id."""
        return self.checkpoints[-1].id if self.checkpoints else None


def _summary_payload(summary: JSON) -> JSON:
    if isinstance(summary, dict):
        return summary
    return {"role": "user", "content": summary}
