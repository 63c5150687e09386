"""One session into the store: read what grew, redact, pack, put together, make its rows.

Nothing leaves here that was not redacted: payloads, summaries, names, what is indexed. Payloads
are on the disk when `sync` has returned, and no row that names them is written before. What was
kept stays kept when the source is rewritten or deleted; it is marked so.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import Literal, NamedTuple, cast

import msgspec
from msgspec.structs import force_setattr as set_field

from thence.adapters import Adapter, Batch, Cursor, Mark, Source
from thence.errors import ThenceError
from thence.format import gather, joins, kinds
from thence.format.facts import COPIES_OF, WHOLE_OUTPUT, Block, Edge, Fact, Told, words_of
from thence.format.lineage import SHARED
from thence.format.normal import KINDS, Session, SessionEvent, in_order, one_line
from thence.format.records import JSON, Skipped, Usage, text_of
from thence.format.whole import Whole
from thence.memory import spelling
from thence.memory.packs import Blobs, read_all
from thence.memory.prices import price, tariff
from thence.memory.redact import VERSION, Redactor
from thence.memory.search import meta
from thence.memory.store import (
    STATES,
    Change,
    EventRow,
    Held,
    Known,
    Seen,
    SessionRow,
    Spend,
    Words,
    claims,
    owner_key,
    pack_facts,
)

READER = 3
"""Version of the readers: raise it when the same bytes give other facts, and all is read again."""

_KIND = {kind: at for at, kind in enumerate(KINDS)}
_STATE = {state: at for at, state in enumerate(STATES)}
_TOLD = 2000  # characters of a call's outcome that are kept beside its record
_INDEXED = 0.35  # bytes of the index per byte of text
_ROW_BYTES = 120  # what a row of an event takes, with its place in the indexes
_TEXT = {"type", "text"}
_RECALLED = 64 << 20  # bytes of payloads that are held at once, all of them, for a digest
_END, _LEAST = 2000, 400  # characters of either end of a long result, where there are more
_NOTE = 4096  # bytes of a note of the harness that are searched, or that a digest may want
_COLUMNS = len(Usage.__struct_fields__) + 3  # numbers of a spend


class Carried(msgspec.Struct, frozen=True):
    """What a session took in a part that only a digest remembers, and up to when that goes."""

    spend: tuple[Spend, ...]
    until: str | None
    change: int
    """The number of the change that goes on from there."""


class Kept(msgspec.Struct):
    """What became of one source."""

    source: Source
    change: Change | None = None
    """None when there was nothing new."""
    whole: Whole | None = None
    """All of the session, payloads at hand and redacted, when it was read to its end."""
    more: bool = False
    """There is more to read, going on from `held`."""
    held: Held | None = None
    """All that is held of it now, when there is more to read."""
    skipped: list[Skipped] = []
    lines: int = 0
    bytes: int = 0


class Sending(NamedTuple):
    """A piece of a session for another store, what that holds of it then, and all of it."""

    change: Change
    held: Held
    whole: Whole


class _Stored(NamedTuple):
    """Facts as they are kept: with payloads and refs to them, and as bytes with refs alone."""

    full: list[Fact]
    body: bytes
    redacted: Mapping[str, int]
    """Secrets in payloads, by rule."""

    @property
    def light(self) -> list[Fact]:
        """The facts with refs alone."""
        return [_light(fact) for fact in self.full]


class Keeper:
    """Turns sources into changes of the store."""

    def __init__(
        self, blobs: Blobs, redactor: Redactor, *, domains: Mapping[str, str] | None = None
    ) -> None:
        self._blobs = blobs
        self._redactor = redactor
        self._domains = domains or {}
        self._about: tuple[dict[str, JSON], dict[str, JSON]] = ({}, {})
        self._redacted: Counter[str] = Counter()

    def keep(
        self,
        adapter: Adapter,
        source: Source,
        known: Known | None,
        held: Held | None,
        *,
        carried: Carried | None = None,
        again: bool = False,
        more: bool = False,
        recall: bool = False,
    ) -> Kept:
        """Read the next piece of a source; `held` is what the store has, if it may be added to.

        A large session comes in several pieces, each a change of its own: nothing grows with
        its size but what the graph needs. `carried` is for a session that was evicted and whose
        source lost its beginning since: what it took then goes on counting.

        With `again` all is read from the start; of what is held only that is kept which the
        source held before it was rewritten. `more` says that this goes on with the same sweep.
        `recall` asks for the whole session at its end, for whoever digests it.
        """
        if again and held is not None:
            lost = _rewritten(held)
            batch = adapter.read(source, _restarted(held.cursor) if lost else None)
            batch.events[:0] = self._recovered(lost, source, batch)
            return self.kept(source, batch, known, None, carried=carried)
        batch = adapter.read(source, held.cursor if held else None)
        if held is not None and not more and _cut(held.facts, batch.events):
            # A text was being written when it was read: it is one text, so all is read again.
            return self.keep(adapter, source, known, held, carried=carried, again=True)
        return self.kept(source, batch, known, held, carried=carried, recall=recall)

    def _recovered(self, lost: Sequence[Fact], source: Source, batch: Batch) -> list[Fact]:
        """Give facts that no source has any more; texts that went with a pack are told as skips."""
        facts, broken = salvaged(lost, self._blobs, source.path)
        batch.skipped += broken
        return facts

    def kept(
        self,
        source: Source,
        batch: Batch,
        known: Known | None,
        held: Held | None,
        *,
        carried: Carried | None = None,
        recall: bool = False,
    ) -> Kept:
        """Keep what one read gave."""
        out = Kept(source, skipped=batch.skipped, lines=batch.lines, bytes=batch.bytes)
        out.more = not batch.done
        if held is not None and batch.cursor == held.cursor and not batch.notices:
            return out
        # Pieces are joined first: a secret may have been cut in two.
        new = gather.joined(_not_read_before(batch.events, held))
        stored = self._stored(source.uid, new)
        before = held.facts if held else []
        full = held is None and batch.done
        if held is not None and batch.done and recall:
            with contextlib.suppress(ThenceError, OSError):  # kept all the same, digested later
                before, full = with_payloads(before, self._blobs, notes=False), True
                held.facts = []  # each is among these, fuller
        whole = Whole(
            source.uid,
            [*before, *stored.full],
            replayed=held.replayed if held else frozenset(),
            billed=held.billed if held else frozenset(),
            torn=batch.torn,
        )
        if full:
            out.whole = whole
            _ = whole.derived  # for row and digest alike, once
        row = self._row(whole, source, batch, known, held)
        if carried is not None:
            row = msgspec.structs.replace(
                row,
                carried=carried.spend,
                carried_until=carried.until,
                carried_change=carried.change,
            )
        change = out.change = self._change(whole, stored, held, row)
        change.cursor = _spellable(batch.cursor)
        if out.more:
            rows = (*change.events, *change.altered)
            gone = set(change.vanished)
            events = {
                **(held.events if held else {}),
                **{row.event_id: _seen(row) for row in rows},
            }
            out.held = Held(
                change.row,
                change.cursor,
                [*(held.facts if held else ()), *stored.light],
                {at: seen for at, seen in events.items() if at not in gone},
                held.replayed if held else frozenset(),
                held.billed if held else frozenset(),
                held.ties if held else (),
            )
        return out

    def again(self, uid: str, held: Held, facts: list[Fact]) -> Change:
        """Keep a session once more that is in the store alone, by the rules of today."""
        stored = self._stored(uid, facts)
        whole = Whole(
            uid, stored.full, replayed=held.replayed, billed=held.billed, torn=held.row.torn
        )
        redact = self._redactor.redact_json
        session = msgspec.convert(redact(msgspec.to_builtins(held.row.session)), Session)
        row = msgspec.structs.replace(
            held.row, session=session, change=held.row.change + 1, redactor=VERSION, pack_bytes=0
        )
        change = self._change(whole, stored, None, row)
        change.cursor = held.cursor
        change.replayed, change.billed, change.ties = held.replayed, held.billed, held.ties
        return change

    def sent(self, uid: str, there: Held | None, here: Held, facts: list[Fact]) -> Sending:
        """Keep facts of a session in another store, after those that are there already.

        `here` is the session as it stands in the store they come from, its row clean.
        """
        stored = self._stored(uid, facts)
        whole = Whole(
            uid,
            [*(there.facts if there else ()), *stored.full],
            replayed=here.replayed,
            billed=here.billed,
            torn=here.row.torn,
        )
        pack_bytes = there.row.pack_bytes if there else 0
        row = msgspec.structs.replace(here.row, pack_bytes=pack_bytes)
        change = self._change(whole, stored, there, row)
        change.cursor = here.cursor
        change.replayed, change.billed, change.ties = here.replayed, here.billed, here.ties
        events = {
            **(there.events if there else {}),
            **{one.event_id: _seen(one) for one in (*change.events, *change.altered)},
        }
        for gone in change.vanished:
            events.pop(gone, None)
        held = Held(
            change.row, here.cursor, [*(there.facts if there else ()), *stored.light], events
        )
        held.replayed, held.billed, held.ties = here.replayed, here.billed, here.ties
        return Sending(change, held, whole)

    def clean_row(self, row: SessionRow) -> SessionRow:
        """Give a row by the rules of today."""
        told = msgspec.to_builtins(row)
        clean = self._redactor.redact_json(told)
        return row if clean == told else msgspec.convert(clean, SessionRow)

    def sync(self) -> None:
        """Return when the payloads of all changes so far are on the disk."""
        self._blobs.sync()

    # -- redaction and packs ------------------------------------------------------------

    def _stored(self, uid: str, facts: Sequence[Fact]) -> _Stored:
        """Take secrets out of everything that records say, and put their payloads into the pack."""
        bodies: list[bytes] = []
        redacted = self._redacted = Counter()
        full = [self._clean(fact, bodies) for fact in facts]
        refs = self._blobs.append(uid, bodies, sync=False) if bodies else ()
        del bodies
        # In their place, frozen or not: the facts of a read are nobody else's, and they are many.
        held = [block for fact in full for block in fact.blocks if block.payload is not None]
        for block, ref in zip(held, refs, strict=True):
            set_field(block, "ref", ref)
        try:
            return _Stored(full, _packed_light(full, held), redacted)
        except spelling.UNSPELLABLE:
            full = [spelling.plain_fact(fact) for fact in full]
            return _Stored(full, pack_facts([_light(fact) for fact in full]), redacted)

    def _clean(self, fact: Fact, bodies: list[bytes]) -> Fact:
        blocks: list[Block] | None = None
        for number, block in enumerate(fact.blocks):
            if block.payload is None:
                continue
            try:
                body = spelling.encode(block.payload)
            except spelling.UNSPELLABLE:
                plain = spelling.plain(block.payload)
                block = msgspec.structs.replace(block, payload=plain)  # noqa: PLW2901 - in its place
                blocks = list(fact.blocks) if blocks is None else blocks
                blocks[number] = block
                body = spelling.encode(plain)
            # One look at all of it tells for most payloads that there is nothing to find.
            if suspects := self._redactor.doubts(body):
                clean = self._clean_block(block, suspects)
                if clean is not block:
                    blocks = list(fact.blocks) if blocks is None else blocks
                    blocks[number] = clean
                    body = spelling.encode(clean.payload)
            bodies.append(body)
        about = self._clean_about(fact.about) if fact.about else fact.about
        told = tuple(self._clean_told(one) for one in fact.told) if fact.told else fact.told
        if blocks is None and about == fact.about and told == fact.told:
            return fact
        whole = tuple(blocks) if blocks is not None else fact.blocks
        return msgspec.structs.replace(fact, blocks=whole, about=about, told=told)

    def _clean_block(self, block: Block, suspects: list[int]) -> Block:
        counts = self._redactor.counts
        before = dict(counts)
        payload = self._clean_payload(block.payload, suspects)
        if payload is block.payload:  # then nothing was counted
            return block
        self._redacted += counts - Counter(before)
        if payload == block.payload:
            return block
        # The summary may hold a secret cut in two, which no rule would know: it is made anew.
        if block.kind == "tool_call":
            summary = kinds.summary(block.tool or "", payload)
        else:
            summary = one_line(words_of(msgspec.structs.replace(block, payload=payload), 4000))
        return msgspec.structs.replace(block, payload=payload, summary=summary)

    def _clean_payload(self, payload: JSON, suspects: list[int]) -> JSON:
        """Clean a payload: a bare text, as most are, needs no walk and no second look."""
        if isinstance(payload, str):
            return self._redactor.redact(payload, suspects)
        if isinstance(payload, dict) and payload.keys() == _TEXT:
            said = payload["text"]
            if isinstance(said, str):
                clean = self._redactor.redact(said, suspects)
                return payload if clean is said else {**payload, "text": clean}
        return self._redactor.redact_json(payload, suspects)

    def _clean_about(self, about: dict[str, JSON]) -> dict[str, JSON]:
        """Clean what a record says of its session; most say the same as the one before."""
        said, clean = self._about
        if about != said:
            clean = self._redactor.redact_json(about)
            self._about = about, clean
        return clean

    def _clean_told(self, told: Told) -> Told:
        if not told.output:
            return told
        return msgspec.structs.replace(told, output=self._redactor.redact_json(told.output))

    # -- rows ---------------------------------------------------------------------------

    def _change(self, whole: Whole, stored: _Stored, held: Held | None, row: SessionRow) -> Change:
        change = restated(whole, held, row=row)
        change.facts = stored.body
        change.fresh = held is None
        change.words = list(_words(whole, change.events))
        change.claims = [*claims(stored.full), *_ties(whole)]
        text = sum(len(w.body) for w in change.words) + (held.row.text_bytes if held else 0)
        packed = _packed(stored.full) + (held.row.pack_bytes if held else 0)
        size = packed + int(text * _INDEXED) + _ROW_BYTES * len(whole.events)
        redacted = dict(Counter(change.row.redacted) + Counter(stored.redacted))
        change.row = msgspec.structs.replace(
            change.row, raw_bytes=size, text_bytes=text, pack_bytes=packed, redacted=redacted
        )
        return change

    def _row(
        self,
        whole: Whole,
        source: Source,
        batch: Batch,
        known: Known | None,
        held: Held | None,
    ) -> SessionRow:
        size = sum(mark.size for mark in batch.cursor.marks.values() if mark.size > 0)
        cwd = whole.about.get("cwd")
        repo = (
            cwd.replace("\\", "/").rstrip("/").rpartition("/")[2] if isinstance(cwd, str) else None
        )
        before = held.row if held else None
        return SessionRow(
            whole.session(
                repo=repo or None,
                domain=self._domains.get(repo or ""),
                source_path=printable(source.path),
                source_bytes=size,
            ),
            files=tuple(printable(file.path) for file in source.files),
            skipped=len(batch.skipped) + (before.skipped if before else 0),
            change=(before.change if before else known.change if known else 0) + 1,
            redactor=VERSION,
            reader=READER,
            automated=bool(whole.about.get("automated")),
            torn=batch.torn,
            gone=any(notice.what == "source gone" for notice in batch.notices),
            carried=before.carried if before else (),
            carried_until=before.carried_until if before else None,
            carried_change=before.carried_change if before else 0,
            redacted=before.redacted if before else {},
        )


def restated(whole: Whole, held: Held | None, *, row: SessionRow) -> Change:
    """Give the rows of a session as it stands now: new events, changed states, what it took."""
    before = held.events if held else {}
    rows = {event.event_id: event_row(event) for event in in_order(whole.events)}
    new, stands = list(rows.values()), list(rows)
    if before:
        new = [row for at, row in rows.items() if at not in before]
        stands = [at for at in before if at in rows] + [row.event_id for row in new]
    states = {event.event_id: _STATE[event.state] for event in whole.events if event.state}
    until = row.carried_until
    spend = _spend(whole.events, whole.bills)
    if until is not None:
        later = [event for event in whole.events if (event.ts or "") > until]
        spend = _merged(row.carried, _spend(later, joins.bills(later)))
    ticks: dict[str, int] = {}
    for one in spend:
        ticks[one.where] = ticks.get(one.where, 0) + one.ticks
    counts = {STATES[state].value: number for state, number in Counter(states.values()).items()}
    ties = held.ties if held else ()
    row = msgspec.structs.replace(
        row,
        title=whole.title,
        turn=whole.turn().state.value,
        edges=_told_once((*whole.edges, *ties)),
        spent=whole.spent if until is None else _spent(spend),
        ticks=ticks,
        unpriced=sum(one.unpriced for one in spend),
        lower_bound=tuple(dict.fromkeys(notice.detail for notice in whole.unbilled)),
        states=counts,
        events=len(states),
        shuffled=held is not None and (held.row.shuffled or stands != list(rows)),
    )
    return Change(
        row,
        held.cursor if held else Cursor(),
        events=new,
        altered=[row for at, row in rows.items() if at in before and before[at] != _seen(row)],
        vanished=[at for at in before if at not in rows],
        spend=spend,
    )


def _told_once(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Leave out ties that were found by comparing records where a record tells of them itself."""
    known: dict[tuple[str, str], Edge] = {}
    out: list[Edge] = []
    for edge in edges:
        if edge.how == SHARED and (edge.link, edge.session) in known:
            continue
        known[edge.link, edge.session] = edge
        out.append(edge)
    return tuple(out)


def _ties(whole: Whole) -> Iterable[int]:
    """Claim the session's own name, and those of the sessions that it is a fork of.

    So a fork and what it was forked from find each other, whichever is read first.
    """
    agent = whole.uid.partition(":")[0]
    named = {edge.session for edge in whole.edges if edge.link == "fork" and not edge.child}
    copied = whole.about.get(COPIES_OF)
    if isinstance(copied, str):
        named.add(copied)
    return [owner_key("session", f"{agent}:{name}") for name in sorted({whole.native, *named})]


def with_payloads(facts: Iterable[Fact], blobs: Blobs, *, notes: bool = True) -> list[Fact]:
    """Give facts as they were read: payloads in their place.

    Without `notes` those stay away that are long and that no model ever saw: a session that was
    too large to be read at once is digested without them. Of one that holds more than memory
    should, long results then come by their beginning and end, where outcomes stand.
    """
    facts = list(facts)
    refs = [b.ref or "" for f in facts for b in f.blocks if _recalls(b, notes=notes)]
    bodies = read_all(blobs, refs)
    end = None
    if not notes and sum(map(_size, refs)) > _RECALLED:
        end = min(_END, max(_RECALLED // (2 * len(refs)), _LEAST))
    for at, fact in enumerate(facts):
        blocks: list[Block] = []
        recalls = False
        for block in fact.blocks:
            if _recalls(block, notes=notes):
                recalls = True
                blocks.append(_with_payload(block, spelling.load(next(bodies)), end))
            else:
                blocks.append(block)
        if recalls:
            facts[at] = msgspec.structs.replace(fact, blocks=tuple(blocks))
    return facts


def salvaged(facts: Sequence[Fact], blobs: Blobs, path: str) -> tuple[list[Fact], list[Skipped]]:
    """Give facts with all payloads that can be read, and say of which records some cannot."""
    with contextlib.suppress(ThenceError):
        return with_payloads(facts, blobs), []
    out: list[Fact] = []
    broken: list[Skipped] = []
    for fact in facts:
        try:
            out += with_payloads([fact], blobs)
        except ThenceError as error:
            why = f"its text is lost: {error.message}"
            broken.append(Skipped(fact.line, fact.offset, 0, why, source=path))
            blocks = tuple(msgspec.structs.replace(block, ref=None) for block in fact.blocks)
            out.append(msgspec.structs.replace(fact, blocks=blocks))
    return out, broken


def _recalls(block: Block, *, notes: bool) -> bool:
    ref = block.ref
    return ref is not None and (notes or block.role != "system" or _size(ref) <= _NOTE)


def _size(ref: str) -> int:
    return int(ref.rsplit(",", 2)[1])


def _with_payload(b: Block, payload: JSON, end: int | None) -> Block:
    if end is not None and b.kind == "tool_result":
        payload = _ends(payload, end)
    return Block(b.kind, b.role, b.summary, payload, b.tool, b.call, b.failed, b.ref)


def _ends(payload: JSON, end: int) -> JSON:
    """Give a payload with its long texts cut in their middle."""
    if isinstance(payload, str):
        short = len(payload) <= 2 * end
        return payload if short else f"{payload[:end]}\n…\n{payload[-end:]}"
    if isinstance(payload, list):
        return [_ends(one, end) for one in payload]
    if isinstance(payload, dict):
        return {name: _ends(value, end) for name, value in payload.items()}
    return payload


def _rewritten(held: Held) -> list[Fact]:
    """Give what logs held before they were rewritten: no source has it any more."""
    marks = held.cursor.marks
    return [f for f in held.facts if f.file in marks and f.generation < marks[f.file].generation]


def _restarted(cursor: Cursor) -> Cursor:
    """Give a cursor at the start of the same files, which go on counting how often they changed."""
    return Cursor(
        {
            key: Mark(mark.device, mark.inode, -1, mark.mtime_ns, generation=mark.generation)
            for key, mark in cursor.marks.items()
        }
    )


def _cut(held: Sequence[Fact], new: Sequence[Fact]) -> bool:
    """Whether the last text of a log goes on in what was read now."""
    if not any(fact.piece is not None for fact in new):
        return False
    last = {(fact.file, fact.channel): fact for fact in held if fact.blocks}
    first: dict[tuple[str, str], Fact] = {}
    for fact in new:
        if fact.blocks:
            first.setdefault((fact.file, fact.channel), fact)
    return any(log in last and gather.goes_on(last[log], fact) for log, fact in first.items())


def _not_read_before(facts: list[Fact], held: Held | None) -> list[Fact]:
    """Leave out the records of last lines that were read before their LF was there.

    They are given again once it is, and are the same: the mark has recognised their bytes.
    """
    if held is None:
        return facts
    marks = held.cursor.marks
    open_lines = {(key, m.generation, m.line) for key, m in marks.items() if m.tail}
    if not open_lines:
        return facts
    known = {
        (fact.file, fact.generation, fact.line, fact.node.id, fact.type)
        for fact in held.facts
        if (fact.file, fact.generation, fact.line) in open_lines
    }
    return [
        fact
        for fact in facts
        if (fact.file, fact.generation, fact.line, fact.node.id, fact.type) not in known
    ]


def _spellable(cursor: Cursor) -> Cursor:
    """Give a cursor that can be stored, whatever the adapter remembers of the log in it."""
    try:
        msgspec.msgpack.encode(cursor)
    except spelling.UNSPELLABLE:
        return spelling.plain_cursor(cursor)
    return cursor


def printable(path: str) -> str:
    """Give a path that can be stored as text, whatever bytes it is made of."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _packed_light(facts: list[Fact], held: list[Block]) -> bytes:
    """Give facts as bytes without the payloads that blocks of them hold; they keep these."""
    if not facts:
        return b""
    payloads = [block.payload for block in held]
    told = [(fact, fact.told) for fact in facts if fact.told]
    try:
        for block in held:
            set_field(block, "payload", None)
        for fact, said in told:
            set_field(fact, "told", tuple([_short(one) for one in said]))
        return pack_facts(facts)
    finally:
        for block, payload in zip(held, payloads, strict=True):
            set_field(block, "payload", payload)
        for fact, said in told:
            set_field(fact, "told", said)


def _light(fact: Fact) -> Fact:
    """Give a fact as it is stored: refs in the place of payloads."""
    if not fact.blocks and not fact.told:
        return fact
    blocks = [
        Block(b.kind, b.role, b.summary, None, b.tool, b.call, b.failed, b.ref) for b in fact.blocks
    ]
    told = tuple([_short(one) for one in fact.told]) if fact.told else fact.told
    return msgspec.structs.replace(fact, blocks=tuple(blocks), told=told)


def _packed(facts: Iterable[Fact]) -> int:
    """Add up what the frames take that refs lead to; the first payload of a frame starts at 0."""
    refs = (b.ref.split(",", 3) for fact in facts for b in fact.blocks if b.ref is not None)
    return sum(int(length) for _, length, start, _ in refs if start == "0")


def _short(told: Told) -> Told:
    """The record itself keeps all of it; here is as much as a list shows."""
    text = text_of(told.output) if isinstance(told.output, list) else told.output
    if not isinstance(text, str) or (text is told.output and len(text) <= _TOLD):
        return told
    return msgspec.structs.replace(told, output=text[:_TOLD])


def _seen(row: EventRow) -> Seen:
    return Seen(row.ts, row.kind, row.state, row.tool, row.tokens)


def event_row(event: SessionEvent) -> EventRow:
    """Give an event as thin as the store keeps it."""
    moment = joins.time_of(event.ts)
    return EventRow(
        event.event_id,
        int(moment.timestamp() * 1000) if moment else 0,
        _KIND[event.kind],
        _STATE[event.state] if event.state else 0,
        event.tool,
        event.tokens,
        event.payload_ref,
    )


def _words(whole: Whole, new: Sequence[EventRow]) -> Iterable[Words]:
    """Give the words of new events, each with the tokens by which it can be filtered."""
    wanted = {row.event_id for row in new}
    agent = whole.uid.partition(":")[0]
    for event in whole.events:
        if event.payload is None or event.event_id not in wanted:
            continue
        # What the harness noted for itself, whole files among it, was neither said nor done.
        note = event.role == "system" and not _has_output(event.payload)
        body = words_of(event, _NOTE) if note else words_of(event)
        if body:
            yield Words(event.event_id, body, meta(agent, event.kind, event.tool))


def _has_output(payload: JSON) -> bool:
    return isinstance(payload, dict) and WHOLE_OUTPUT in payload


# -- money ----------------------------------------------------------------------------------


def _spend(events: Sequence[SessionEvent], counted: Mapping[int, Usage]) -> list[Spend]:
    """Add up bills by day, model and what became of them; each is priced for itself."""
    sums: dict[tuple[str, str, str], list[int]] = {}
    for event in events:
        usage = counted.get(event.event_id)
        if usage is None:
            continue
        key = ((event.ts or "")[:10], event.model or "", joins.place_of(event))
        ticks = ticks_of(event, usage)
        held = sums.get(key)
        if held is None:
            held = sums[key] = [0] * _COLUMNS
        more = (
            *msgspec.structs.astuple(usage),
            1,
            ticks or 0,
            usage.total if ticks is None else 0,
        )
        held[:] = map(add, held, more)
    return [_summed(key, numbers) for key, numbers in sums.items()]


def _summed(key: tuple[str, str, str], numbers: Sequence[int]) -> Spend:
    day, model, where = key
    *counts, responses, ticks, unpriced = numbers
    place = cast("Literal['live', 'dead', 'side']", where)
    return Spend(day, model, place, Usage(*counts), responses, ticks, unpriced)


def _merged(carried: Sequence[Spend], spend: list[Spend]) -> list[Spend]:
    """Add what was carried over from an evicted part of a session."""
    if not carried:
        return spend
    sums: dict[tuple[str, str, str], list[int]] = {}
    for one in (*carried, *spend):
        numbers = (*msgspec.structs.astuple(one.usage), one.responses, one.ticks, one.unpriced)
        held = sums.setdefault((one.day, one.model, one.where), [0] * _COLUMNS)
        for at, number in enumerate(numbers):
            held[at] += number
    return [_summed(key, numbers) for key, numbers in sums.items()]


def _spent(spend: Sequence[Spend]) -> joins.Spent:
    sums = {"live": Usage(), "dead": Usage(), "side": Usage()}
    for one in spend:
        sums[one.where] = joins.added(sums[one.where], one.usage)
    return joins.Spent(**sums, responses=sum(one.responses for one in spend))


def ticks_of(event: SessionEvent, usage: Usage) -> int | None:
    """Say what a bill cost, in ticks; None when nobody knows."""
    day = (event.ts or "")[:10]
    if event.cost_usd is not None:
        found = price(
            event.model or "",
            usage,
            at=joins.time_of(f"{day}T12:00:00Z"),
            cache_1h=usage.cache_1h_input_tokens,
            web_searches=usage.web_searches,
            service_tier=event.tier,
            recorded=event.cost_usd,
        )
        return None if found is None else found.ticks
    rates = tariff(event.model or "", day, event.tier)
    return None if rates is None else rates.ticks(usage)
