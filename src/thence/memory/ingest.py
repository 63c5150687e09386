"""One session into the store: read what grew, redact, pack, put together, make its rows.

Nothing leaves here that was not redacted: payloads, summaries, names, what is indexed. Payloads
are on the disk when `sync` has returned, and no row that names them is written before. What was
kept stays kept when the source is rewritten or deleted; it is marked so.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import force_setattr as set_field

from thence.agents import Batch, Cursor, Mark, Source, SourceReader
from thence.agents.files import clean_carry_with
from thence.format import fact_assembly, outcomes
from thence.format.facts import (
    COPIES_OF,
    WHOLE_OUTPUT,
    Block,
    Edge,
    Fact,
    answers_of,
    is_line_name,
    merge_statuses,
    words_of,
)
from thence.format.fold import Delta, FoldState
from thence.format.normal import SessionEvent
from thence.format.records import JSON, Skipped, text_of, word
from thence.format.sealing import all_calls
from thence.format.stored import StoredEvent
from thence.memory import storable_json
from thence.memory.derivation import fingerprint
from thence.memory.gate import Gate
from thence.memory.growth import Growing, Growth, Shares, light, rebuild, shorten_status
from thence.memory.packs import BlobStore
from thence.memory.payloads import salvage_payloads, with_payloads
from thence.memory.placeholders import distinct_secrets, secrets_in
from thence.memory.rulebook import Rulebook
from thence.memory.search import meta
from thence.memory.session_sources import size_of_first
from thence.memory.spending import spend_from_row
from thence.memory.store import (
    Filter,
    ImportedFrom,
    SessionChange,
    SessionRow,
    Spend,
    Store,
    StoredSession,
    SweepEntry,
    Words,
    call_key,
    claims,
    compress_facts,
    encode_facts,
    owner_key,
)

_INDEX_BYTES_PER_TEXT_BYTE = 0.35  # bytes of the index per byte of text
_ROW_BYTES = 170  # what an event takes: its row, its places in the indexes, its part of a page
_BASES = frozenset({"user_msg", "assistant_msg", "tool_call", "tool_result", "error"})
_MAX_NOTE_BYTES = 4096  # bytes of a note of the harness that are searched


class CarriedSpend(msgspec.Struct, frozen=True):
    """What a session took in a part that only a digest remembers, and up to when that goes."""

    spend: tuple[Spend, ...]
    until: str | None
    change: int
    """The number of the change that goes on from there."""


def carry_spend(store: Store, uid: str, change: int) -> CarriedSpend:
    """Return what a session took so far; `change` is the number of the next change."""
    wanted = Filter(uids=(uid,))
    row = next(iter(store.sessions(wanted)))
    spend = tuple(spend_from_row(fields) for fields in store.read_table("spend", wanted))
    return CarriedSpend(spend, row.session.ended_at, change)


class IngestResult(msgspec.Struct):
    """What became of one source."""

    source: Source
    change: SessionChange | None = None
    """None when there was nothing new."""
    delta: Delta | None = None
    """What was read, payloads at hand and redacted, of a session that was read from its start."""
    fold: FoldState | None = None
    """The state of its fold, where it can be continued."""
    rest: Growing | None = None
    """There is more to read, going on from here."""
    rebuilt: str | None = None
    """Why the session had to be rebuilt from all of its facts."""
    skipped: list[Skipped] = []
    lines: int = 0
    bytes: int = 0

    new_events: int = 0
    new_secrets: tuple[str, ...] = ()
    """The secrets that were taken out of it, and of nothing of the session before."""
    more_secrets: bool = False
    """There were others: more than are told apart."""

    @property
    def has_more(self) -> bool:
        """Whether there is more to read."""
        return self.rest is not None


class OutgoingPiece(NamedTuple):
    """A piece of a session for another store, and the session as it is there then."""

    change: SessionChange
    grown: Growing
    rebuilt: str | None
    """Why the session had to be rebuilt from all of its facts."""


class _PackedFacts(NamedTuple):
    """Facts as they are kept: with payloads and refs to them, and as bytes with refs alone."""

    full: list[Fact]
    body: bytes
    secrets: set[str]
    """The secrets that were taken out of them, by kind and mark."""


class _StoredCalls:
    """What was stored of a session before: its calls, whose results come now."""

    def __init__(self, grown: Growing | None, facts: Sequence[Fact] = ()) -> None:
        self._grown = grown
        self._facts = facts

    def calls_of(self, facts: Sequence[Fact], known: Mapping[str, Block]) -> dict[str, Block]:
        """Return the calls that results among these facts answer and that are not `known`."""
        # A result may come in a later read than its call.
        missing = {name for fact in facts for name in answers_of(fact.blocks)} - known.keys()
        if not missing:
            return {}
        out = _calls_in(self._facts, missing)
        if self._grown is not None:
            out = _calls_in(self._grown.last_facts, missing)
            missing = {name for name in missing - out.keys() if self._grown.has_call(name)}
            if missing:  # a result of a call long ago: rare, and then all of it is rebuilt
                out |= _calls_in(self._grown.load().facts, missing)
        return out


def _calls_in(facts: Iterable[Fact], names: Container[str]) -> dict[str, Block]:
    blocks = (block for fact in facts for block in fact.blocks if block.kind == "tool_call")
    return {block.call: block for block in blocks if block.call in names and block.call is not None}


class Ingester:
    """Turns sources into changes of the store."""

    def __init__(self, blobs: BlobStore, gate: Gate, rules: Rulebook) -> None:
        self._blobs = blobs
        self._gate = gate
        self._rules = rules
        self._fingerprint = fingerprint(gate.version, rules.toolbox, rules.prices)

    def read(
        self,
        adapter: SourceReader,
        source: Source,
        known: SweepEntry | None,
        grown: Growing | None,
        *,
        carried: CarriedSpend | None = None,
        again: bool = False,
    ) -> IngestResult:
        """Read the next piece of a source; `grown` is what was read before, if anything.

        A large session comes in several pieces, each a change of its own: memory does not grow
        with its size. `carried` is for a session that was evicted and whose source lost its
        beginning since: what it took then goes on counting.

        With `again` all is read from the start; of what is stored only that is kept which no
        file of the source holds any more.
        """
        if again and grown is not None:
            stored = grown.load()
            # Facts of a file that is gone stay: the store has the only copy.
            there = {file.key for file in source.files}
            lost = _facts_without_source(stored, there)
            batch = self._read(
                adapter, source, _restart_cursor(stored.cursor, there) if lost else None
            )
            batch.events[:0] = self._recover_facts(lost, source, batch)
            return self.ingest_batch(source, batch, known, None, carried=carried)
        batch = self._read(adapter, source, grown.tail.cursor if grown else None)
        return self.ingest_batch(source, batch, known, grown, carried=carried)

    def _read(self, adapter: SourceReader, source: Source, cursor: Cursor | None) -> Batch:
        """Read the next piece of a source; ids and names in it hold no secret."""
        # What the reader carries over is stored as well: nothing that is stored is exempt.
        with clean_carry_with(self._gate.text):
            batch = adapter.read(source, cursor)
        batch.events = self._gate.names(batch.events)
        return batch

    def _recover_facts(self, lost: Sequence[Fact], source: Source, batch: Batch) -> list[Fact]:
        """Return facts that no source has any more; texts lost with a pack become skips."""
        facts, broken = salvage_payloads(lost, self._blobs, source.path)
        batch.skipped += broken
        return facts

    def ingest_batch(
        self,
        source: Source,
        batch: Batch,
        known: SweepEntry | None,
        grown: Growing | None,
        *,
        carried: CarriedSpend | None = None,
    ) -> IngestResult:
        """Store what one read gave."""
        out = IngestResult(source, skipped=batch.skipped, lines=batch.lines, bytes=batch.bytes)
        # Nothing new: not even the row is written, so that no follower is woken.
        if grown is not None and batch.cursor == grown.tail.cursor and not batch.notices:
            out.rest = None if batch.done else grown
            return out
        # Pieces are joined first: a secret may have been cut in two.
        new = fact_assembly.join_pieces(_not_read_before(batch.events, grown))
        begun = self._begun_texts(grown, new) if grown is not None else {}
        new = [_continue_text(begun[at], f) if at in begun else f for at, f in enumerate(new)]
        stored = self._pack_facts(source.uid, new, _StoredCalls(grown))
        growth = Growth(source.uid, grown, stored.full, torn=batch.torn, prices=self._rules.prices)
        out.rebuilt = growth.rebuilt
        if growth.rebuilt is None:
            out.delta = growth.delta
        row = self._row(growth, source, batch, known)
        if carried is not None:
            row = msgspec.structs.replace(
                row,
                carried=carried.spend,
                carried_until=carried.until,
                carried_change=carried.change,
            )
        change = out.change = self._make_change(growth, stored, row, begun)
        out.fold = growth.state if change.fold else None
        change.cursor = self._gate.cursor(batch.cursor)
        before = grown.tail.row if grown is not None else None
        # A rewrite may leave fewer events than before.
        out.new_events = max(change.row.events - (before.events if before else 0), 0)
        old = frozenset(before.secrets if before else ())
        out.new_secrets = tuple([name for name in change.row.secrets if name not in old])
        out.more_secrets = not stored.secrets.issubset(change.row.secrets)
        if not batch.done:
            tail = growth.tail(change)
            grown = grown or Growing(tail, lambda: None)
            out.rest = grown.after(tail, change, stored.full)
        return out

    def _begun_texts(self, grown: Growing, new: Sequence[Fact]) -> dict[int, Fact]:
        """Return the last texts of logs that go on in what was read now, by the place of the rest.

        With their payloads, which are read from the pack.
        """
        # Only a text that is written in pieces goes on across two reads.
        if not any(fact.piece is not None for fact in new):
            return {}
        last = {(fact.file, fact.channel): fact for fact in grown.last_facts if fact.blocks}
        first: dict[tuple[str, str], int] = {}
        for at, fact in enumerate(new):
            if fact.blocks:
                first.setdefault((fact.file, fact.channel), at)
        begun = {
            at: last[log]
            for log, at in first.items()
            if log in last and fact_assembly.goes_on(last[log], new[at])
        }
        return dict(zip(begun, with_payloads(begun.values(), self._blobs), strict=True))

    def reingest(self, uid: str, earlier: StoredSession, facts: list[Fact]) -> SessionChange:
        """Keep a session once more that is in the store alone, by the rules of today."""
        stored = self._pack_facts(uid, self._gate.names(facts), _StoredCalls(None))
        shares = earlier.replayed, earlier.billed, earlier.ties
        prices = self._rules.prices
        growth = Growth(uid, None, stored.full, torn=earlier.row.torn, prices=prices, shares=shares)
        row = msgspec.structs.replace(
            self._gate.row(earlier.row),
            change=earlier.row.change + 1,
            redactor=self._fingerprint.redaction,
            reader=self._fingerprint.reader_of(uid),
            fold=self._fingerprint.fold,
            pack_bytes=0,  # payloads are packed anew
        )
        change = self._make_change(growth, stored, row)
        change.cursor = self._gate.cursor(earlier.cursor)
        change.replayed, change.billed, change.ties = earlier.replayed, earlier.billed, earlier.ties
        return change

    def import_facts(
        self,
        source: Source,
        facts: Sequence[Fact],
        known: SweepEntry | None,
        origin: ImportedFrom,
        *,
        torn: bool = False,
        shares: Shares = (frozenset(), frozenset(), ()),
    ) -> SessionChange:
        """Store a session that a file brought: no log of this machine holds it."""
        uid = source.uid
        stored = self._pack_facts(uid, self._gate.names(list(facts)), _StoredCalls(None))
        prices = self._rules.prices
        growth = Growth(uid, None, stored.full, torn=torn, prices=prices, shares=shares)
        row = self._row(growth, source, Batch([], [], Cursor(), torn=torn), known)
        # No source of this machine can give it again.
        row = msgspec.structs.replace(self._gate.row(row), gone=True, imported=origin)
        change = self._make_change(growth, stored, row)
        change.replayed, change.billed, change.ties = shares
        return change

    def rebuild(self, uid: str, stored: StoredSession) -> SessionChange:
        """Return the rows of a stored session as its facts, payloads included, give them today."""
        outcomes.add_tones(stored.facts)
        growth, row = rebuild(uid, stored, self._rules.prices)
        secrets = secrets_in(encode_facts(stored.facts))
        change = self._make_change(growth, _PackedFacts([], b"", secrets), row)
        change.cursor = stored.cursor
        return change

    def copy_to(
        self, uid: str, grown: Growing, row: SessionRow, cursor: Cursor, facts: Sequence[Fact]
    ) -> OutgoingPiece:
        """Store facts of a session in another store, after those that are there already.

        `row` and `cursor` are those of the store the facts come from, the row clean.
        """
        facts = self._gate.names(list(facts))
        stored = self._pack_facts(uid, facts, _StoredCalls(grown, facts))
        growth = Growth(uid, grown, stored.full, torn=row.torn, prices=self._rules.prices)
        change = self._make_change(growth, stored, row)
        change.cursor = self._gate.cursor(cursor)
        rest = grown.after(growth.tail(change), change, stored.full)
        return OutgoingPiece(change, rest, growth.rebuilt)

    def sync(self) -> None:
        """Return when the payloads of all changes so far are on the disk."""
        self._blobs.sync()

    # -- redaction and packs ------------------------------------------------------------

    def _pack_facts(self, uid: str, facts: Sequence[Fact], earlier: _StoredCalls) -> _PackedFacts:
        """Take secrets out of everything that records say, and put their payloads into the pack.

        What calls do and how they ended is noted with them: no reader needs payloads for that.
        """
        full, bodies = self._gate.texts(facts)
        toolbox = self._rules.toolbox.of(uid.partition(":")[0])
        calls = outcomes.add_effects(full, toolbox)
        refs = self._blobs.append(uid, bodies, sync=False) if bodies else ()
        secrets = secrets_in(*bodies)
        del bodies
        # In their place, frozen or not: the facts of a read are nobody else's, and they are many.
        filled = [block for fact in full for block in fact.blocks if block.payload is not None]
        for block, ref in zip(filled, refs, strict=True):
            set_field(block, "ref", ref)
        calls = {**earlier.calls_of(full, calls), **calls}
        outcomes.add_evidence(full, calls, merge_statuses(full), toolbox)
        try:
            encoded = _encode_without_payloads(full, filled)
        except storable_json.UNSPELLABLE:
            full = [storable_json.plain_fact(fact) for fact in full]
            encoded = encode_facts([light(fact) for fact in full])
        body = compress_facts(encoded) if full else b""
        return _PackedFacts(full, body, secrets | secrets_in(encoded))

    # -- rows ---------------------------------------------------------------------------

    def _make_change(
        self,
        growth: Growth,
        stored: _PackedFacts,
        row: SessionRow,
        begun: Mapping[int, Fact] | None = None,
    ) -> SessionChange:
        """Return the change that new records make; `begun` are texts of which more was read."""
        growth.state.wasted += _frame_bytes((begun or {}).values())
        change = growth.change(row)
        change.fresh = growth.grown is None
        known = growth.grown.tail.row.edges if growth.grown is not None else None
        # Copies without ids can be told from what is new by the log of their owner alone.
        if known != change.row.edges or COPIES_OF in growth.delta.about:
            change.claims += _ties(growth.uid, change.row.edges, growth.delta.about)
        if growth.grown is not None:
            names = (fact.node.id for fact in stored.full if fact.blocks)
            change.records = [name for name in names if not is_line_name(name)]
        # Of a session that was rebuilt the store leaves out what it has already.
        change.words = list(_words(growth.uid, growth.delta.events, change.events))
        if begun:
            self._retell(growth, change, begun)
        self._add_sizes(change, stored, growth.grown.tail.row if growth.grown else None)
        if begun:
            wasted = growth.state.wasted * _WASTED_SHARE > change.row.pack_bytes
            change.untidy = wasted or any(
                not _begins_with(stored.full[at], beginning) for at, beginning in begun.items()
            )
        if growth.grown is not None and growth.grown.tail.state is None:
            # Without a state nobody knows whether the calls of earlier records are there.
            earlier = map(call_key, all_calls(growth.stored_facts))
            change.calls = sorted({*earlier, *change.calls})
        return change

    def _retell(self, growth: Growth, change: SessionChange, begun: Mapping[int, Fact]) -> None:
        """Let texts of which more was read be indexed in place of their beginnings."""
        names = {fact.node.id for fact in begun.values()}
        longer = [event for event in growth.delta.altered if event.native_id in names]
        change.words += _words(growth.uid, longer, change.altered)
        events = (*longer, *growth.delta.events)
        change.retold = frozenset(e.event_id for e in events if e.native_id in names)

    def _add_sizes(
        self, change: SessionChange, stored: _PackedFacts, before: SessionRow | None
    ) -> SessionChange:
        """Add the facts of a change, and what it takes in the store."""
        change.facts = stored.body
        change.claims[:0] = claims(stored.full)
        change.calls = sorted(map(call_key, all_calls(stored.full)))
        text = sum(len(w.body) for w in change.words)
        if before is not None:
            new = {fact.node.id for fact in stored.full}
            added = {row.event.event_id for row in change.events if row.event.native_id in new}
            text = sum(len(w.body) for w in change.words if w.event_id in added)
            text += before.text_bytes
        packed = _frame_bytes(stored.full) + (before.pack_bytes if before else 0)
        size = packed + int(text * _INDEX_BYTES_PER_TEXT_BYTE) + _ROW_BYTES * change.row.events
        secrets = distinct_secrets({*change.row.secrets, *stored.secrets})
        change.row = msgspec.structs.replace(
            change.row, raw_bytes=size, text_bytes=text, pack_bytes=packed, secrets=secrets
        )
        return change

    def _row(
        self, growth: Growth, source: Source, batch: Batch, known: SweepEntry | None
    ) -> SessionRow:
        size = size_of_first(batch.cursor.marks)
        about = growth.delta.about
        cwd = about.get("cwd")
        repo = (
            cwd.replace("\\", "/").rstrip("/").rpartition("/")[2] if isinstance(cwd, str) else None
        )
        before = growth.grown.tail.row if growth.grown is not None else None
        session = growth.delta.session
        return SessionRow(
            msgspec.structs.replace(
                session,
                repo=repo or None,
                domain=self._rules.domains.get(repo or ""),
                source_path=self._gate.path(source.path, cwd),
                source_bytes=size,
            ),
            files=tuple(self._gate.path(file.path, cwd) for file in source.files),
            skipped=len(batch.skipped) + (before.skipped if before else 0),
            change=(before.change if before else known.change if known else 0) + 1,
            redactor=self._fingerprint.redaction,
            reader=self._fingerprint.reader_of(growth.uid),
            fold=self._fingerprint.fold,
            automated=bool(about.get("automated")),
            pull_request=word(about.get("pr")) or None,
            torn=batch.torn,
            gone=any(notice.what == "source gone" for notice in batch.notices),
            carried=before.carried if before else (),
            carried_until=before.carried_until if before else None,
            carried_change=before.carried_change if before else 0,
            secrets=before.secrets if before else (),
            project=before.project if before else None,
        )


def _ties(uid: str, edges: Iterable[Edge], about: Mapping[str, JSON]) -> list[int]:
    """Return claims on the session's own name and on those of the sessions it is a fork of.

    So a fork and its original find each other, whichever is read first.
    """
    agent, _, native = uid.partition(":")
    named = {edge.session for edge in edges if edge.link == "fork" and not edge.child}
    copied = about.get(COPIES_OF)
    if isinstance(copied, str):
        named.add(copied)
    return [owner_key("session", f"{agent}:{name}") for name in sorted({native, *named})]


def _facts_without_source(session: StoredSession, there: Container[str]) -> list[Fact]:
    """Return what no source has any more: of logs that were rewritten, and of those not `there`."""
    marks = session.cursor.marks
    return [
        fact
        for fact in session.facts
        if fact.file in marks
        and (fact.file not in there or fact.generation < marks[fact.file].generation)
    ]


def _restart_cursor(cursor: Cursor, there: Container[str]) -> Cursor:
    """Return a cursor at the start of the files that are there.

    They go on counting how often they changed.
    """
    return Cursor(
        {
            key: Mark(mark.device, mark.inode, -1, mark.mtime_ns, generation=mark.generation)
            if key in there
            else mark
            for key, mark in cursor.marks.items()
        }
    )


_WASTED_SHARE = 4
"""A session is repacked when beginnings of texts take more than one part of so many."""


def _continue_text(beginning: Fact, rest: Fact) -> Fact:
    """Return a text of which more was read, as the record that takes its beginning's place.

    All of it is redacted again: a secret in it may have been cut in two.
    """
    blocks = tuple(msgspec.structs.replace(block, ref=None) for block in beginning.blocks)
    name, repeated, _ = beginning.node.id.rpartition("~")
    node = msgspec.structs.replace(beginning.node, id=name) if repeated else beginning.node
    beginning = msgspec.structs.replace(beginning, blocks=blocks, node=node)
    (out,) = fact_assembly.join_pieces([beginning, rest])
    return out


def _begins_with(text: Fact, beginning: Fact) -> bool:
    """Return whether a text, as it is stored, begins with what was stored of it before."""
    pairs = zip(beginning.blocks, text.blocks, strict=False)
    return all(text_of([new.payload]).startswith(text_of([old.payload])) for old, new in pairs)


def _not_read_before(facts: list[Fact], grown: Growing | None) -> list[Fact]:
    """Leave out the records of last lines that were read before their LF was there.

    They are read again once it is, and are the same: the mark has recognised their bytes.
    """
    if grown is None:
        return facts
    marks = grown.tail.cursor.marks
    open_lines = {(key, m.generation, m.line) for key, m in marks.items() if m.tail}
    if not open_lines or not facts:
        return facts
    known = {
        (fact.file, fact.generation, fact.line, fact.type)
        for fact in grown.last_facts
        if (fact.file, fact.generation, fact.line) in open_lines
    }
    return [f for f in facts if (f.file, f.generation, f.line, f.type) not in known]


def _encode_without_payloads(facts: list[Fact], blocks: list[Block]) -> bytes:
    """Return facts as bytes without the payloads that blocks of them hold; they keep these."""
    payloads = [block.payload for block in blocks]
    with_statuses = [(fact, fact.told) for fact in facts if fact.told]
    try:
        for block in blocks:
            set_field(block, "payload", None)
        for fact, statuses in with_statuses:
            set_field(fact, "told", tuple([shorten_status(status) for status in statuses]))
        return encode_facts(facts)
    finally:
        for block, payload in zip(blocks, payloads, strict=True):
            set_field(block, "payload", payload)
        for fact, statuses in with_statuses:
            set_field(fact, "told", statuses)


def _frame_bytes(facts: Iterable[Fact]) -> int:
    """Add up what the frames take that refs lead to; the first payload of a frame starts at 0."""
    refs = (b.ref.split(",", 3) for fact in facts for b in fact.blocks if b.ref is not None)
    return sum(int(length) for _, length, start, _ in refs if start == "0")


def _words(
    uid: str, events: Iterable[SessionEvent], rows: Iterable[StoredEvent]
) -> Iterable[Words]:
    """Return the words of events, each with the tokens by which it can be filtered.

    What other events can be derived from has tokens without a word, too.
    """
    agent = uid.partition(":")[0]
    implied = {row.event.event_id: row.implied for row in rows if row.derived}
    for event in events:
        body = ""
        if event.payload is not None:
            # What the harness noted for itself, whole files among it, was neither said nor done.
            note = event.role == "system" and not _has_output(event.payload)
            body = words_of(event, _MAX_NOTE_BYTES) if note else words_of(event)
        bits = implied.get(event.event_id, 0)
        if body or bits or event.kind in _BASES:
            tokens = meta(agent, event.kind, event.tool, bits)
            yield Words(event.event_id, body, tokens)


def _has_output(payload: JSON) -> bool:
    return isinstance(payload, dict) and WHOLE_OUTPUT in payload
