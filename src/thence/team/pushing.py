"""What one machine keeps, sent to the store of a team: redacted, in pieces, as often as one likes.

How far a session was sent is a *mark*, which the other store writes in the transaction of the rows
themselves. So a push that is killed anywhere, or whose server is, goes on where it was: what has
its mark is there, what has none is sent again in place of whatever is there.
Of a session that grew the facts that are new are read and sent, and folded into its end there:
cost follows them, not the session. If it was rebuilt or rewritten since, all of its facts are
compared. A large one goes in pieces, and many small ones share a transaction.

Everything is gone over by the redactor once more on its way, so that today's rules hold for what
leaves the machine. Sent are rows, facts, payloads, words, spend, digests and signals. What was
evicted here after it was sent stays there, by that store's own policy; what was forgotten here is
forgotten there. Never sent: excluded projects, the key of the redactor, the list of removals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from thence.agents import Cursor
from thence.format.facts import Edge, Fact
from thence.format.fold import FoldState
from thence.memory import ownership
from thence.memory.digest import digest
from thence.memory.exclusion import Exclusion
from thence.memory.growth import Growing
from thence.memory.ingest import Ingester
from thence.memory.packs import PackDamaged, PackMissing
from thence.memory.payloads import with_payloads
from thence.memory.placeholders import count_by_rule, has_more
from thence.memory.readouts import read_for_digest
from thence.memory.rows import digests_of
from thence.memory.store import (
    DigestRecord,
    Filter,
    Inventory,
    NothingStored,
    Position,
    SessionChange,
    SessionRow,
    Store,
    StoredSession,
    SweepEntry,
    Tail,
    uid_hash,
)
from thence.memory.sweep import Progress
from thence.team.copying import plain, spend_of

if TYPE_CHECKING:
    from thence.memory.gate import Gate
    from thence.memory.rulebook import Rulebook
    from thence.team.postgres import Postgres
    from thence.team.postgres_write import PushedSession

PIECE_BYTES = 8 << 20  # a transaction of more holds locks for longer than others should wait
"""Bytes of payloads that are sent together."""

BATCH_SESSIONS = 100  # a failed transaction is sent again whole
"""Sessions in one transaction."""

FIRST_SESSIONS = 4
"""Sessions in the first transaction of a push, doubled in each: one that is cut short soon keeps
half of what it has gone through, and the next one goes on from there."""

_PAGE_SESSIONS = 500  # sessions asked for at a time


class PushMark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far a session was sent."""

    change: int
    """Of the session where it came from."""
    analysed: int | None
    pinned: bool
    gone: bool
    redactor: int
    facts: int
    check: bytes
    """A hash of these facts: only if they are still the same, more can follow them. Where the
    source has only folded since, it is not looked at."""
    events: int
    packed: int
    """Bytes that its payloads take in packs."""
    position: Position = (0, 0)
    """Where they ended in the store they came from."""
    origin: str | None = None
    """When the store that it came from first had it: one that was made anew counts from 1 again."""

    def is_of(self, row: SessionRow) -> bool:
        """Return whether it was made for a session of this very store."""
        return self.origin is not None and self.origin == row.session.discovered_at

    def covers(self, known: SweepEntry) -> bool:
        """Whether nothing has changed since."""
        versions = (known.change, known.analysed, known.pinned, known.gone, known.redactor)
        return versions == (self.change, self.analysed, self.pinned, self.gone, self.redactor)


_MARK = msgspec.msgpack.Decoder(PushMark)
Marks = Mapping[str, tuple[PushMark, bool]]
"""How far sessions were sent, and whether by this machine."""


class PushProject(msgspec.Struct):
    """What of one project waits, or does not leave the machine."""

    project: str | None
    sessions: int = 0
    events: int = 0
    bytes: int = 0


class PushPlan(msgspec.Struct):
    """What would be sent now. The names are those of `thence store push --dry-run --json`."""

    sessions: int = 0
    events: int = 0
    bytes: int = 0
    """Of payloads, compressed."""
    unchanged: int = 0
    elsewhere: int = 0
    """Sessions that another machine has sent as much of."""
    projects: list[PushProject] = []
    excluded: list[PushProject] = []


class PushReport(msgspec.Struct):
    """What a push did. The names are those of `thence store push --json`."""

    sessions: int = 0
    """That were sent, whole or in part."""
    unchanged: int = 0
    elsewhere: int = 0
    excluded: int = 0
    events: int = 0
    payload_bytes: int = 0
    digests: int = 0
    forgotten: int = 0
    settled: int = 0
    """Sessions that have something in common with those of other machines."""
    waiting: int = 0
    """That changed while they were read; the next push takes them."""
    rebuilt: int = 0
    """Sent before, and now by comparing or rebuilding all of their records, not the new alone."""
    redactions: dict[str, int] = {}
    """What today's rules found in what was kept."""
    more_redacted: bool = False
    """There may be more: of one session at most 1,000 are told apart."""


def marks_in(packed: Mapping[str, tuple[bytes, bool]]) -> dict[str, tuple[PushMark, bool]]:
    """Read marks; one of another form counts as none, so that its session is sent again."""
    out: dict[str, tuple[PushMark, bool]] = {}
    for uid, (body, mine) in packed.items():
        try:
            out[uid] = _MARK.decode(body), mine
        except msgspec.DecodeError:  # of another version: pushed again, which changes nothing there
            continue
    return out


class Due:
    """Which sessions have to be sent, as the marks tell."""

    def __init__(self, source: Store, marks: Marks, exclude: Exclusion) -> None:
        self.known = source.known()
        self.marks = marks
        self.plan = PushPlan()
        self.rows: list[SessionRow] = []
        """The oldest first."""
        self._excluded: dict[str | None, PushProject] = {}
        self._projects: dict[str | None, PushProject] = {}
        wanted = [
            uid for uid, entry in self.known.sessions.items() if not self._is_sent(uid, entry)
        ]
        self.plan.unchanged = len(self.known.sessions) - len(wanted)
        for at in range(0, len(wanted), _PAGE_SESSIONS):
            some = tuple(wanted[at : at + _PAGE_SESSIONS])
            for row in source.sessions(Filter(uids=some, order="oldest")):
                self._take(row, exclude)
        self.rows.sort(key=lambda row: row.session.ended_at or "")
        self.plan.projects = list(self._projects.values())
        self.plan.excluded = list(self._excluded.values())

    def _is_sent(self, uid: str, known: SweepEntry) -> bool:
        mark, mine = self.marks.get(uid, (None, True))
        # A mark of another machine says how far that one came, not we.
        return mark is not None and mine and mark.covers(known)

    def _take(self, row: SessionRow, exclude: Exclusion) -> None:
        uid, project = row.session.session_uid, row.session.cwd
        mark, mine = self.marks.get(uid, (None, True))
        if exclude.means(project):
            _count(self._excluded, row, None)
        elif mark is not None and not mine and mark.events >= row.events:
            # Another machine sent as much of it: sending ours would change nothing.
            self.plan.elsewhere += 1
        else:
            counts = _count(self._projects, row, mark if mine else None)
            self.plan.sessions += 1
            self.plan.events += counts.events
            self.plan.bytes += counts.bytes
            self.rows.append(row)


def _count(
    projects: dict[str | None, PushProject], row: SessionRow, mark: PushMark | None
) -> PushProject:
    """Add a session to its project; what is new of it."""
    events = max(row.events - (mark.events if mark else 0), 0)
    new = max(row.pack_bytes - (mark.packed if mark else 0), 0)
    at = projects.setdefault(row.session.cwd, PushProject(row.session.cwd))
    at.sessions += 1
    at.events += events
    at.bytes += new
    return PushProject(row.session.cwd, 1, events, new)


_Shares = tuple[frozenset[str], frozenset[str], tuple[Edge, ...]]
"""What other sessions own of a session's records and bills, and the edges found with it."""


class _Part(NamedTuple):
    """Records of a session that are to be sent, and what comes before them."""

    row: SessionRow
    known: SweepEntry
    cursor: Cursor
    position: Position
    """Where the facts of the session end in the store they come from, or earlier."""
    facts: Sequence[Fact]
    sent: int = 0
    check: bytes = b""
    """Number and hash of the facts that were sent before."""
    fresh: bool = False
    """These are all: they take the place of what is there."""


class _Differs(Exception):
    """A session that was continued in the other store is not what it is here."""


class Pusher:
    """One push. The other store should be held (`target.sweeping()`) while it runs."""

    def __init__(
        self,
        source: Store,
        target: Postgres,
        gate: Gate,
        rules: Rulebook,
        *,
        exclude: Iterable[str] = (),
        progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self._source = source
        self._target = target
        self._gate = gate
        self._rules = rules
        self._ingester = Ingester(target.blobs, gate, rules)
        self._exclude = Exclusion(exclude)
        self._progress = progress
        self._batch: list[PushedSession] = []
        self._size = 0
        self._room = min(FIRST_SESSIONS, BATCH_SESSIONS)
        self._kin: dict[str, set[str]] = {}
        self._plan = PushPlan()
        self._done = 0
        self.report = PushReport()
        self.marks: dict[str, PushMark] = {}
        """How far each session has been sent by now; for who wants to know without a server."""

    def run(self) -> PushReport:
        """Send what is new, and say what was done."""
        marks = marks_in(self._target.push_marks())
        due = Due(self._source, marks, self._exclude)
        report, self._plan = self.report, due.plan
        self.marks = {uid: mark for uid, (mark, mine) in marks.items() if mine}
        report.unchanged, report.elsewhere = due.plan.unchanged, due.plan.elsewhere
        report.excluded = sum(project.sessions for project in due.plan.excluded)
        there = self._target.known()
        self._kin = dict(there.unsettled)
        self._forget(due.known.forgotten, there)
        for row in due.rows:
            uid = row.session.session_uid
            mark, mine = marks.get(uid, (None, True))
            self._send(row, due.known.sessions[uid], mark if mine else None)
            self._done += 1
            self._tell()
        self._flush()
        self._settle(due.known.sessions.keys())
        self._progress(Progress("done", sessions=report.sessions))
        return report

    def _tell(self) -> None:
        plan, report = self._plan, self.report
        done = min(report.payload_bytes, plan.bytes)
        self._progress(
            Progress("push", done, plan.bytes, self._done, plan.sessions, report.sessions)
        )

    def _forget(self, forgotten: frozenset[bytes], there: Inventory) -> None:
        """Forget there what was forgotten here; of other machines' nothing."""
        mine = [uid for uid in there.sessions if uid_hash(uid) in forgotten] if forgotten else []
        if mine:
            self._target.remove(mine, why=dict.fromkeys(mine, "forgotten"), forget=True)
            self.report.forgotten = len(mine)

    # -- one session --------------------------------------------------------------------

    def _send(self, row: SessionRow, known: SweepEntry, mark: PushMark | None) -> None:
        """Send what is new of a session; one that changes meanwhile is left to the next push."""
        try:
            if mark is not None and mark.change == known.change and mark.is_of(row):
                self._restate(row, known, mark)
            elif mark is None or not self._send_new(row, known, mark):
                self._send_compared(row, known, mark)
        except (PackMissing, PackDamaged):  # evicted or repacked since its rows were read
            self.report.waiting += 1

    def _restate(self, row: SessionRow, known: SweepEntry, mark: PushMark) -> None:
        """Send what is said of a session whose events are there already."""
        clean = self._gate.row(plain(row))
        change = SessionChange(msgspec.structs.replace(clean, change=row.change), known.cursor)
        now = msgspec.structs.replace(
            mark,
            analysed=known.analysed,
            pinned=known.pinned,
            gone=known.gone,
            redactor=known.redactor,
            origin=row.session.discovered_at,
        )
        # A digest is sent again only when it was made again.
        made = self._digest(row) if known.analysed != mark.analysed else None
        self._put(change, now, made, restates=True)

    def _send_new(self, row: SessionRow, known: SweepEntry, mark: PushMark) -> bool:
        """Send the records after those that are there; False when all must be compared.

        Neither store reads or rebuilds the rest of the session.
        """
        uid = row.session.session_uid
        here = self._source.tail(uid)
        there = self._target.tail(uid) if here is not None and mark.is_of(row) else None
        if here is None or there is None or there.state is None:
            return False
        if not _continues(here, there, mark):
            return False
        facts = self._source.facts_after(uid, mark.position, there.state.lines)
        after = self._source.tail(uid)
        if after is None or after.row.change != here.row.change:
            return False  # it grew while it was read
        # It grew between the list and the read: the younger row is the true one.
        ours = row if row.change == here.row.change else here.row
        part = _Part(ours, known, here.cursor, here.position, facts, mark.facts, mark.check)
        try:
            self._send_facts(part, self._make_growing(there, facts))
        except _Differs:  # it is sent from the start, in place of what is there
            self.report.rebuilt += 1
            self._send_compared(row, known, None)
        return True

    def _send_compared(self, row: SessionRow, known: SweepEntry, mark: PushMark | None) -> None:
        """Send what is new of a session, going by all of its records; or all of it."""
        uid = row.session.session_uid
        here = self._source.tail(uid)
        position = here.position if here is not None else (0, 0)
        stored = self._source.load_session(uid)
        if mark is not None and mark.change == known.change and _same(mark, stored):
            self._restate(row, known, mark)
            return
        if stored is None:
            self._send_digest(row, known)
            return
        # Only of the same change: columns beside it are of the row that was listed.
        if stored.row.change == row.change:
            stored.row = row  # with what the store notes beside it
        self.report.rebuilt += mark is not None and mark.change != 0
        there = self._there(stored, mark)
        if there is None or mark is None:
            grown = Growing(_start(stored), lambda: None)
            part = _Part(stored.row, known, stored.cursor, position, stored.facts, fresh=True)
        else:
            facts = stored.facts[mark.facts :]
            grown = self._make_growing(there, facts)
            before = mark.facts, mark.check
            part = _Part(stored.row, known, stored.cursor, position, facts, *before)
        self._send_facts(part, grown, (stored.replayed, stored.billed, stored.ties))

    def _there(self, stored: StoredSession, mark: PushMark | None) -> Tail | None:
        """Return the end of what the other store has of a session, if more can follow it."""
        if mark is None or not 0 < mark.facts <= len(stored.facts):
            return None
        # What is there was cleaned by other rules: it must go, not be added to.
        if mark.redactor != stored.row.redactor:
            return None
        # What was sent is not what is stored here any more.
        if mark.check != _check(stored.facts[: mark.facts]):
            return None
        uid = stored.row.session.session_uid
        there = self._target.tail(uid)
        if there is None or there.row.reader != stored.row.reader:
            return None  # nothing is there, or it was indexed by another reader
        if there.state is not None:
            has_as_sent = there.state.lines == _lines(stored.facts[: mark.facts])
        else:
            all_there = self._target.load_session(uid)
            has_as_sent = all_there is not None and len(all_there.facts) == mark.facts
        if not has_as_sent:
            return None  # somebody else wrote to it
        shares = stored.replayed, stored.billed, stored.ties
        if shares != (there.replayed, there.billed, there.ties):
            there.replayed, there.billed, there.ties = shares
            there.state = None  # others own other parts of it now
        return there

    def _make_growing(self, there: Tail, facts: Sequence[Fact]) -> Growing:
        """Return a session of the other store, to be continued with facts."""
        uid = there.row.session.session_uid
        if there.state is not None:
            there.index = self._target.index_for(uid, facts)
        return Growing(there, partial(self._target.load_session, uid))

    def _send_facts(self, part: _Part, grown: Growing, shares: _Shares | None = None) -> None:
        """Send facts in pieces, the last with the session's own row, its mark and its digest."""
        row, known = part.row, part.known
        uid = row.session.session_uid
        clean = self._gate.row(plain(row))
        count, check, rebuilt = part.sent, part.check, False
        pieces = list(_pieces(part.facts))
        for number, (start, end) in enumerate(pieces):
            some = part.facts[start:end]
            check, count = _check(some, check), count + len(some)
            change, grown, why = self._ingester.copy_to(
                uid, grown, clean, part.cursor, with_payloads(some, self._source.blobs)
            )
            rebuilt = rebuilt or why is not None
            # Only the first takes the place of what is there; the others follow it.
            change.fresh = part.fresh and not number
            if shares is not None:
                change.replayed, change.billed, change.ties = shares
            mark = _mark(known, row, count, check, part.position)
            if number + 1 < len(pieces):
                # Not all of it: no mark says that it is, and more follows what is there.
                self._put(change, msgspec.structs.replace(mark, change=0, analysed=None))
                self._flush()
                continue
            # What the end alone gives may differ from what all records give.
            if shares is None and _sums(change.row) != _sums(row):
                raise _Differs
            sizes = {name: getattr(change.row, name) for name in _OF_ITSELF}
            change.row = msgspec.structs.replace(clean, **sizes)
            new_counts = count_by_rule({*change.row.secrets} - {*row.secrets})
            for rule, number_found in new_counts.items():
                self.report.redactions[rule] = self.report.redactions.get(rule, 0) + number_found
            self.report.more_redacted |= bool(new_counts) and has_more(change.row.secrets)
            self._put(change, mark, self._digest(row) if known.analysed is not None else None)
        self.report.rebuilt += rebuilt and shares is None

    def _send_digest(self, row: SessionRow, known: SweepEntry) -> None:
        """Send what is left of an evicted session."""
        clean = self._gate.row(plain(row))
        spend = list(spend_of(self._source, row.session.session_uid))
        change = SessionChange(clean, known.cursor, spend=spend, fresh=True)
        self._put(change, _mark(known, row), self._digest(row), evicted=True)

    def _digest(self, row: SessionRow) -> DigestRecord | None:
        """Return the digest of a session as it is stored, by the rules of today."""
        return next(map(self._gate.digest, digests_of(self._source, row)), None)

    # -- sending ------------------------------------------------------------------------

    def _put(
        self, change: SessionChange, mark: PushMark, made: DigestRecord | None = None, **how: bool
    ) -> None:
        from thence.team.postgres_write import PushedSession

        self._batch.append(PushedSession(change, msgspec.msgpack.encode(mark), made, **how))
        self._size += sum(len(words.body) for words in change.words) + len(change.facts)
        if self._size >= PIECE_BYTES or len(self._batch) >= self._room:
            self._room = min(2 * self._room, BATCH_SESSIONS)
            self._flush()

    def _flush(self) -> None:
        """Send what was gathered, in one transaction."""
        batch, self._batch, self._size = self._batch, [], 0
        if not batch:
            return
        kin, left_out = self._target.push(batch)
        for uid, others in kin.items():
            self._kin.setdefault(uid, set()).update(others)
        report = self.report
        report.elsewhere += len(left_out)
        for sent in batch:
            uid = sent.change.row.session.session_uid
            if uid in left_out:
                continue
            mark = _MARK.decode(sent.mark)
            before = self.marks.get(uid)
            report.sessions += mark.change != 0
            new = len(sent.change.events)
            if sent.change.rebuilt:
                new = max(mark.events - (before.events if before else 0), 0)
            report.events += new
            report.payload_bytes += max(mark.packed - (before.packed if before else 0), 0)
            report.digests += sent.digested is not None
            self.marks[uid] = mark
        self._tell()

    # -- kin of other machines ----------------------------------------------------------

    def _settle(self, ours: Iterable[str]) -> None:
        """Compare what several machines hold: each bill is counted once. Ours is settled."""
        mine = set(ours)
        foreign = {uid: kin for uid, kin in self._kin.items() if not kin <= mine}
        self._target.mark_settled(self._kin.keys() - foreign.keys())
        for changes in ownership.resolve_ownership(self._target, foreign, self._rules.prices):
            self._target.write(changes)
            stale = [
                change.row.session.session_uid for change in changes if change.replayed is not None
            ]
            made = [made for uid in stale for made in self._digested_there(uid)]
            self._target.write(digests=made)
            self.report.settled += len(changes)

    def _digested_there(self, uid: str) -> Iterator[DigestRecord]:
        row = next(iter(self._target.sessions(Filter(uids=(uid,)))), None)
        if row is not None and row.session.evicted_at is None:
            tasks, others = self._rules.tasks, self._rules.digesters
            session = read_for_digest(self._target, row)
            yield digest(session, row, tasks=tasks, others=others)


_OF_ITSELF = ("raw_bytes", "text_bytes", "pack_bytes", "secrets")


def _mark(
    known: SweepEntry,
    row: SessionRow,
    facts: int = 0,
    check: bytes = b"",
    position: Position = (0, 0),
) -> PushMark:
    return PushMark(
        change=row.change,
        analysed=known.analysed if known.change == row.change else None,
        pinned=known.pinned,
        gone=known.gone,
        redactor=row.redactor,
        facts=facts,
        check=check,
        events=row.events,
        packed=row.pack_bytes,
        position=position,
        origin=row.session.discovered_at,
    )


def _continues(here: Tail, there: Tail, mark: PushMark) -> bool:
    """Return whether a session only got records at its end since it was sent, by both states."""
    if here.state is None or there.state is None or here.row.carried_until is not None:
        return False
    shares = here.replayed, here.billed, here.ties
    lines = here.state.lines
    return (
        here.state.since <= mark.change <= here.row.change
        and here.row.redactor == mark.redactor
        and shares == (there.replayed, there.billed, there.ties)
        and all(lines.get(file, (-1, -1)) >= last for file, last in there.state.lines.items())
    )


def _sums(row: SessionRow) -> tuple[object, ...]:
    """Return what the events of a session add up to."""
    return row.events, row.states, row.spent


def _lines(facts: Iterable[Fact]) -> dict[str, tuple[int, int]]:
    """Return generation and line of the last fact of each log."""
    out: dict[str, tuple[int, int]] = {}
    for fact in facts:
        out[fact.file] = max(out.get(fact.file, (0, 0)), (fact.generation, fact.line))
    return out


def _start(stored: StoredSession) -> Tail:
    """Return the end of a session of which nothing was sent yet."""
    none = dict.fromkeys(("raw_bytes", "text_bytes", "pack_bytes"), 0)
    row = msgspec.structs.replace(stored.row, edges=(), **none)
    shares = stored.replayed, stored.billed, stored.ties
    state = FoldState(since=row.change)
    return Tail(row, stored.cursor, state, (), *shares, NothingStored())


def _same(mark: PushMark, stored: StoredSession | None) -> bool:
    """Whether a session is what was sent; a store that was made anew counts from 1 again."""
    if stored is None:
        return True
    return len(stored.facts) == mark.facts and _check(stored.facts) == mark.check


def _check(facts: Iterable[Fact], before: bytes = b"") -> bytes:
    """Return a hash of facts, wherever their payloads lie, that goes on from one of those before.

    It is the same in however many pieces they come.
    """
    encode = msgspec.msgpack.Encoder().encode
    for fact in facts:
        blocks = tuple(msgspec.structs.replace(block, ref=None) for block in fact.blocks)
        body = encode(msgspec.structs.replace(fact, blocks=blocks))
        before = blake2b(before + body, digest_size=16).digest()
    return before


def _pieces(facts: Sequence[Fact]) -> Iterator[tuple[int, int]]:
    """Cut facts into runs whose payloads are of a bounded size; one run at least."""
    size, first = 0, 0
    for at, fact in enumerate(facts):
        size += sum(_size(block.ref) for block in fact.blocks if block.ref is not None)
        if size >= PIECE_BYTES and at + 1 < len(facts):
            yield first, at + 1
            size, first = 0, at + 1
    yield first, len(facts)


def _size(ref: str) -> int:
    """Bytes of the payload that a ref leads to."""
    return int(ref.rsplit(",", 2)[1])
