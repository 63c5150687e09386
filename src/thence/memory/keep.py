"""One session into the store: read what grew, redact, pack, put together, make its rows.

Nothing leaves here that was not redacted: payloads, summaries, names, what is indexed. Payloads
are on the disk when `sync` has returned, and no row that names them is written before. What was
kept stays kept when the source is rewritten or deleted; it is marked so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from thence.adapters import Adapter, Batch, Cursor, Source
from thence.format import codec, joins, kinds
from thence.format.facts import Block, Fact, Told, words_of
from thence.format.lineage import key_of
from thence.format.normal import KINDS, SessionEvent, one_line
from thence.format.records import Skipped, Usage
from thence.format.whole import Whole
from thence.memory.packs import Blobs
from thence.memory.prices import price
from thence.memory.redact import VERSION, Redactor
from thence.memory.search import meta
from thence.memory.store import (
    STATES,
    Change,
    EventRow,
    Held,
    Known,
    SessionRow,
    Spend,
    Words,
    owner_key,
    pack_facts,
)

READER = 1
"""Version of the readers: raise it when the same bytes give other facts, and all is read again."""

_KIND = {kind: at for at, kind in enumerate(KINDS)}
_STATE = {state: at for at, state in enumerate(STATES)}
_TOLD = 2000  # characters of a call's outcome that are kept beside its record
_INDEXED = 0.35  # bytes of the index per byte of text
_ROW_BYTES = 120  # what a row of an event takes, with its place in the indexes


class Kept(msgspec.Struct):
    """What became of one source."""

    source: Source
    change: Change | None = None
    """None when there was nothing new."""
    facts: list[Fact] = []
    """All facts with their payloads, redacted, when the whole session was read at once."""
    more: bool = False
    """There is more to read, going on from `held`."""
    held: Held | None = None
    skipped: list[Skipped] = []
    lines: int = 0
    bytes: int = 0


class Keeper:
    """Turns sources into changes of the store."""

    def __init__(
        self, blobs: Blobs, redactor: Redactor, *, domains: Mapping[str, str] | None = None
    ) -> None:
        self._blobs = blobs
        self._redactor = redactor
        self._domains = domains or {}

    def keep(
        self, adapter: Adapter, source: Source, known: Known | None, held: Held | None
    ) -> Kept:
        """Read the next piece of a source; `held` is what the store has, if it may be added to.

        A large session comes in several pieces, each a change of its own: nothing grows with
        its size but what the graph needs.
        """
        batch = adapter.read(source, held.cursor if held else None)
        out = Kept(source, skipped=batch.skipped, lines=batch.lines, bytes=batch.bytes)
        out.more = not batch.done
        if held is not None and batch.cursor == held.cursor and not batch.notices:
            return out
        clean = [self._clean(fact) for fact in batch.events]
        light = self._pack(source.uid, clean)
        if held is None and batch.done:
            out.facts = clean
        change = out.change = self._change(source, batch, light, clean, known, held)
        if out.more:
            states = {e.event_id: e.state for e in change.events}
            out.held = Held(
                change.row,
                change.cursor,
                [*(held.facts if held else ()), *light],
                {**(held.states if held else {}), **states, **dict(change.states)},
                held.replayed if held else frozenset(),
                held.billed if held else frozenset(),
            )
        return out

    def sync(self) -> None:
        """Return when the payloads of all changes so far are on the disk."""
        self._blobs.sync()

    # -- redaction ----------------------------------------------------------------------

    def _clean(self, fact: Fact) -> Fact:
        """Take secrets out of everything a record says."""
        redact = self._redactor.redact_json
        blocks = tuple(self._clean_block(block) for block in fact.blocks)
        about = redact(fact.about) if fact.about else fact.about
        told = tuple(
            msgspec.structs.replace(one, output=redact(one.output)) if one.output else one
            for one in fact.told
        )
        if blocks == fact.blocks and about == fact.about and told == fact.told:
            return fact
        return msgspec.structs.replace(fact, blocks=blocks, about=about, told=told)

    def _clean_block(self, block: Block) -> Block:
        payload = self._redactor.redact_json(block.payload)
        if payload == block.payload:
            return block
        # The summary may hold a secret cut in two, which no rule would know: it is made anew.
        if block.kind == "tool_call":
            summary = kinds.summary(block.tool or "", payload)
        else:
            summary = one_line(words_of(msgspec.structs.replace(block, payload=payload), 4000))
        return msgspec.structs.replace(block, payload=payload, summary=summary)

    # -- packs --------------------------------------------------------------------------

    def _pack(self, uid: str, facts: Sequence[Fact]) -> list[Fact]:
        """Move payloads into the session's pack; facts with refs in their place."""
        bodies = [
            codec.dump(block.payload)
            for fact in facts
            for block in fact.blocks
            if block.payload is not None
        ]
        refs = iter(self._blobs.append(uid, bodies, sync=False) if bodies else ())
        return [_light(fact, refs) for fact in facts]

    # -- rows ---------------------------------------------------------------------------

    def _change(  # noqa: PLR0917
        self,
        source: Source,
        batch: Batch,
        light: list[Fact],
        clean: list[Fact],
        known: Known | None,
        held: Held | None,
    ) -> Change:
        whole = Whole(
            source.uid,
            [*(held.facts if held else ()), *light],
            replayed=held.replayed if held else frozenset(),
            billed=held.billed if held else frozenset(),
            torn=batch.torn,
        )
        change = restated(whole, held, row=self._row(whole, source, batch, known, held))
        change.cursor = batch.cursor
        change.facts = pack_facts(light) if light else b""
        change.fresh = held is None
        change.words = list(_words(clean, whole, {row.event_id for row in change.events}))
        change.claims = claims(light)
        text = sum(len(w.body) for w in change.words) + (held.row.text_bytes if held else 0)
        size = self._blobs.size(source.uid) + int(text * _INDEXED) + _ROW_BYTES * len(whole.events)
        change.row = msgspec.structs.replace(change.row, raw_bytes=size, text_bytes=text)
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
        return SessionRow(
            whole.session(
                repo=repo or None,
                domain=self._domains.get(repo or ""),
                source_path=printable(source.path),
                source_bytes=size,
            ),
            files=tuple(printable(file.path) for file in source.files),
            skipped=len(batch.skipped) + (held.row.skipped if held else 0),
            change=(held.row.change if held else known.change if known else 0) + 1,
            redactor=VERSION,
            reader=READER,
            automated=bool(whole.about.get("automated")),
            torn=batch.torn,
            gone=any(notice.what == "source gone" for notice in batch.notices),
        )


def restated(whole: Whole, held: Held | None, *, row: SessionRow) -> Change:
    """Give the rows of a session as it stands now: new events, changed states, what it took."""
    before = held.states if held else {}
    states = {event.event_id: _STATE[event.state] for event in whole.events if event.state}
    spend = list(_spend(whole.events))
    ticks: dict[str, int] = {}
    for one in spend:
        ticks[one.where] = ticks.get(one.where, 0) + one.ticks
    counts: dict[str, int] = {}
    for state in states.values():
        counts[STATES[state].value] = counts.get(STATES[state].value, 0) + 1
    row = msgspec.structs.replace(
        row,
        title=whole.title,
        turn=whole.turn().state.value,
        edges=tuple(whole.edges),
        spent=whole.spent,
        ticks=ticks,
        unpriced=sum(one.unpriced for one in spend),
        lower_bound=tuple(dict.fromkeys(notice.detail for notice in whole.unbilled)),
        states=counts,
        events=len(states),
    )
    return Change(
        row,
        held.cursor if held else Cursor(),
        events=[event_row(e) for e in whole.events if e.event_id not in before],
        states=[(e, s) for e, s in states.items() if e in before and before[e] != s],
        spend=spend,
    )


def claims(facts: Iterable[Fact]) -> list[int]:
    """Give what a session claims: its bills, and the records that a copy of it would begin with."""
    keys: dict[int, None] = {}
    for fact in facts:
        if fact.usage_key is not None:
            keys[owner_key("bill", fact.usage_key)] = None
        if fact.node.parent is None and (key := key_of(fact)) is not None:
            keys[owner_key("copy", key)] = None
    return list(keys)


def printable(path: str) -> str:
    """Give a path that can be stored as text, whatever bytes it is made of."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _light(fact: Fact, refs: Iterable[str]) -> Fact:
    blocks = tuple(
        msgspec.structs.replace(block, payload=None, ref=next(iter(refs)))
        if block.payload is not None
        else block
        for block in fact.blocks
    )
    told = tuple(_short(one) for one in fact.told)
    return msgspec.structs.replace(fact, blocks=blocks, told=told)


def _short(told: Told) -> Told:
    """The record itself keeps all of it; here is as much as a list shows."""
    if not isinstance(told.output, str) or len(told.output) <= _TOLD:
        return told
    return msgspec.structs.replace(told, output=told.output[:_TOLD])


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


def _words(facts: Sequence[Fact], whole: Whole, new: set[int]) -> Iterable[Words]:
    """Give the words of new events, each with the tokens by which it can be filtered."""
    bodies = {
        (fact.node.id, number): block
        for fact in facts
        for number, block in enumerate(fact.blocks)
        if block.payload is not None
    }
    agent = whole.uid.partition(":")[0]
    for event in whole.events:
        block = bodies.get((event.native_id, event.block))
        if block is None or event.event_id not in new:
            continue
        if body := words_of(block):
            yield Words(event.event_id, body, meta(agent, event.kind, event.tool))


# -- money ----------------------------------------------------------------------------------


def _spend(events: Sequence[SessionEvent]) -> Iterable[Spend]:
    """Add up bills by day, model and what became of them; each is priced for itself."""
    counted = joins.bills(events)
    sums: dict[tuple[str, str, str], Spend] = {}
    for event in events:
        usage = counted.get(event.event_id)
        if usage is None:
            continue
        where = joins.place_of(event)
        key = ((event.ts or "")[:10], event.model or "", where)
        ticks = ticks_of(event, usage)
        one = Spend(*key, usage, 1, ticks or 0, usage.total if ticks is None else 0)
        held = sums.get(key)
        sums[key] = one if held is None else _together(held, one)
    return sums.values()


def _together(one: Spend, other: Spend) -> Spend:
    return Spend(
        one.day,
        one.model,
        one.where,
        joins.added(one.usage, other.usage),
        one.responses + other.responses,
        one.ticks + other.ticks,
        one.unpriced + other.unpriced,
    )


def ticks_of(event: SessionEvent, usage: Usage) -> int | None:
    """Say what a bill cost, in ticks; None when nobody knows."""
    day = (event.ts or "")[:10]
    return _ticks(event.model or "", usage, day, event.tier, event.cost_usd)


@lru_cache(maxsize=4096)
def _ticks(
    model: str, usage: Usage, day: str, tier: str | None, recorded: float | None
) -> int | None:
    found = price(
        model,
        usage,
        at=joins.time_of(f"{day}T12:00:00Z"),
        cache_1h=usage.cache_1h_input_tokens,
        web_searches=usage.web_searches,
        service_tier=tier,
        recorded=recorded,
    )
    return None if found is None else found.ticks
