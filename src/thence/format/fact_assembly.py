"""What records of one session say together, put right before they are linked. Pure.

Some writers cut one text into many records, tell a call's result in another file than the call,
bill whole turns, and put the requests of subagents on the bill of whoever asked for them. Each
step here mends one of these: pieces are joined, results that were only told stand where their
call stands, a bill holds nothing that another session's own bill holds as well.

Invariants: the facts given are in written order, and stay so; a step that finds nothing to do
gives its facts back as they are; no count falls below 0; what cannot be put right is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from thence.format import derived_events
from thence.format.facts import Block, CallStatus, Fact, Share, merge_statuses
from thence.format.nodes import PREVIOUS, Is, Node
from thence.format.normal import SessionEvent, one_line
from thence.format.records import JSON, text_of

MADE_RESULT = "told "
"""How the id of a result begins that no record holds: another one tells what the call returned."""

_LAST = datetime.max.replace(tzinfo=UTC)


def gather_facts(
    events: list[Fact], others: Sequence[Fact], *, in_pieces: bool = True
) -> tuple[list[Fact], dict[str, int]]:
    """Put right what the facts of a session say together; `others` are those without events.

    With them comes, by the id of the bill, how many requests of other sessions it still holds.
    `in_pieces` says that some are pieces of a text or bills for a turn.
    """
    if not in_pieces:
        return _add_told_results(events, others), {}  # most logs: whole texts, bills by response
    shares = [share for fact in others for share in fact.shares]
    facts = _add_told_results(join_pieces(events), others)
    return _own(_last_words(facts), shares)


def owed_bills(facts: Iterable[Fact], before: Iterable[str] = ()) -> list[str]:
    """Return the usage keys of bills that must come and did not; `before` are earlier ones."""
    paid: set[str] = set()
    keys = dict.fromkeys(before)
    for fact in facts:
        key = fact.usage_key
        if key is None:
            continue
        keys[key] = None
        if fact.usage is not None or fact.unbilled is not None:
            paid.add(key)
    return [key for key in keys if key not in paid]


def understated_bills(facts: Iterable[Fact]) -> list[str]:
    """Return the usage keys of responses that are plainly longer than what was billed for them.

    Some clients write the usage at the start of a stream, and never the final one.
    """
    chars: dict[str, int] = {}
    billed: dict[str, int] = {}
    for fact in facts:
        key, usage = fact.usage_key, fact.usage
        if key is not None and usage is not None:
            chars[key] = chars.get(key, 0) + fact.text_chars
            billed[key] = max(billed.get(key, 0), usage.output_tokens)
    return [key for key, size in chars.items() if size > _MAX_CHARS + _TOKEN_CHARS * billed[key]]


_MAX_CHARS, _TOKEN_CHARS = 100, 10
"""Characters that a token stands for at most, on average over a text; short texts vary more."""

MAX_UNDERSTATED_TOKENS = 100
"""Bills of more tokens than this are not compared with their text."""


def overdue(
    facts: Iterable[Fact], before: Mapping[str, str] | None = None
) -> tuple[list[str], dict[str, str]]:
    """Return why bills never came before the next prompt, and why others are due, by log.

    `before` is what was due before these facts.
    """
    out: list[str] = []
    due = dict(before or {})
    for fact in facts:
        if fact.usage is not None:
            due.pop(fact.file, None)
        if fact.node.flags & Is.PROMPT and fact.file in due:
            out.append(due.pop(fact.file))
        if fact.bill_due is not None:
            due[fact.file] = fact.bill_due
    return out, due


# -- pieces ---------------------------------------------------------------------------------


def join_pieces(facts: list[Fact]) -> list[Fact]:
    """Join the pieces of one text. The first one's id stands for all of them."""
    if not any(fact.piece is not None for fact in facts):
        return facts
    out: list[Fact] = []
    run: list[Fact] = []
    for fact in facts:
        if run and not goes_on(run[-1], fact):
            out.append(_join_run(run))
            run = []
        run.append(fact)
    out.append(_join_run(run))
    return out


def latest_texts(facts: list[Fact]) -> list[Fact]:
    """Leave out texts of which a later fact of the same record has more.

    So a text is stored that was being written when it was read.
    """
    last = {text_place(fact): at for at, fact in enumerate(facts) if fact.piece is not None}
    return [f for at, f in enumerate(facts) if f.piece is None or last[text_place(f)] == at]


def text_place(fact: Fact) -> tuple[str, int, int, str | None, str]:
    """Return what a text in pieces is known by when more of it is read."""
    name, repeated, _ = fact.node.id.rpartition("~")
    return fact.file, fact.generation, fact.line, fact.piece, name if repeated else fact.node.id


def pending_shares(fact: Fact, until: str) -> Fact:
    """Return a note without what other sessions were billed up to a time: that is settled."""
    if not fact.shares or not until:
        return fact
    left = tuple(share for share in fact.shares if _moment(share.ended) > _moment(until))
    return msgspec.structs.replace(fact, shares=left)


def settled_shares(fact: Fact, until: str) -> list[Share]:
    """Return what a note says that other sessions were billed up to a time."""
    if not fact.shares or not until:
        return []
    return [share for share in fact.shares if _moment(share.ended) <= _moment(until)]


def goes_on(first: Fact, other: Fact) -> bool:
    """Whether a record is the next piece of the same text."""
    return other.piece is not None and (first.piece, first.file, first.channel) == (
        other.piece,
        other.file,
        other.channel,
    )


def _join_run(run: list[Fact]) -> Fact:
    if len(run) == 1:
        return run[0]
    blocks: list[Block] = []
    texts: list[str] = []
    for block in (block for fact in run for block in fact.blocks):
        text = _text(block)
        if text is not None and texts and _alike(blocks[-1], block):
            texts.append(text)
            continue
        _close(blocks, texts)
        blocks.append(block)
        texts = [] if text is None else [text]
    _close(blocks, texts)
    return msgspec.structs.replace(run[0], blocks=tuple(blocks))


def _close(blocks: list[Block], texts: list[str]) -> None:
    """Put the text of all pieces into the last block."""
    if len(texts) > 1:
        text = "".join(texts)
        payload = {**blocks[-1].payload, _name(blocks[-1].payload): text}
        blocks[-1] = msgspec.structs.replace(blocks[-1], summary=one_line(text), payload=payload)


def _name(payload: dict[str, JSON]) -> str:
    return "thinking" if "thinking" in payload else "text"


def _text(block: Block) -> str | None:
    if not isinstance(block.payload, dict):
        return None
    text = block.payload.get(_name(block.payload))
    return text if isinstance(text, str) else None


def _alike(first: Block, other: Block) -> bool:
    return (first.kind, first.role) == (other.kind, other.role)


# -- results that were only told ------------------------------------------------------------


def _add_told_results(facts: list[Fact], others: Sequence[Fact]) -> list[Fact]:
    """Add results that another record has to calls without one, after their response."""
    statuses = {
        call: status for call, status in merge_statuses(others).items() if status.output is not None
    }
    if not statuses:
        return facts
    facts = _with_texts(facts, statuses)
    answered = {call for fact in facts for call in fact.node.answers}
    last: dict[tuple[str, str | None], int] = {}
    for at, fact in enumerate(facts):
        if fact.node.response is not None:
            last[fact.file, fact.node.response] = at
    made: dict[int, list[Fact]] = {}
    for at, fact in enumerate(facts):
        for call in fact.node.calls:
            if call in statuses and call not in answered:
                answered.add(call)
                after = last.get((fact.file, fact.node.response), at)
                status = statuses[call]
                made.setdefault(after, []).append(_result(fact, call, status.output, status.failed))
    if not made:
        return facts
    return [status for at, fact in enumerate(facts) for status in (fact, *made.get(at, ()))]


def _with_texts(facts: list[Fact], statuses: dict[str, CallStatus]) -> list[Fact]:
    """Add the text that another record has of the same call to results of images alone."""
    out = facts
    for at, fact in enumerate(facts):
        if not fact.node.answers or not any(is_image_alone(block) for block in fact.blocks):
            continue
        made = [
            _with_text(block, statuses[block.call].output)
            if is_image_alone(block) and block.call in statuses
            else block
            for block in fact.blocks
        ]
        out = list(facts) if out is facts else out
        out[at] = msgspec.structs.replace(fact, blocks=tuple(made))
    return out


def is_image_alone(block: Block | SessionEvent) -> bool:
    """Return whether a result has images and no text: another record may tell its text."""
    is_list = block.kind == "tool_result" and isinstance(block.payload, list)
    return is_list and not text_of(block.payload)


def _with_text(block: Block, output: JSON) -> Block:
    text = text_of(output)
    if not text:
        return block
    payload = add_text(block.payload, output)
    return msgspec.structs.replace(block, summary=one_line(text), payload=payload)


def add_text(images: JSON, output: JSON) -> JSON:
    """Return a result of images alone with the text that another record tells of it."""
    text = text_of(output)
    return [{"type": "text", "text": text}, *images] if text else images


def _result(asked: Fact, call: str, output: JSON, failed: bool | None) -> Fact:  # noqa: FBT001 - as told
    linked = asked.node.parent != PREVIOUS
    return Fact(
        Node(f"{MADE_RESULT}{call}", asked.node.id if linked else PREVIOUS, answers=(call,)),
        "told",
        None,  # nobody says when
        (Block("tool_result", "tool", one_line(text_of(output)), output, None, call, failed),),
        asked.file,
        asked.channel,
        asked.generation,
        asked.line,
        asked.offset,
        origin=asked.origin,
    )


# -- bills of whole turns -------------------------------------------------------------------


def _last_words(facts: list[Fact]) -> list[Fact]:
    """Strike the bills of turns that were written again later."""
    last: dict[str, int] = {}
    twice = False
    for at, fact in enumerate(facts):
        if fact.turn_bill is not None and fact.usage is not None and fact.usage_key is not None:
            twice = twice or fact.usage_key in last
            last[fact.usage_key] = at
    if not twice:
        return facts
    return [
        msgspec.structs.replace(fact, usage=None, cost_usd=None)
        if fact.turn_bill is not None and last.get(fact.usage_key or "", at) != at
        else fact
        for at, fact in enumerate(facts)
    ]


def _own(facts: list[Fact], shares: list[Share]) -> tuple[list[Fact], dict[str, int]]:
    """Take from each bill what other sessions were billed for in it.

    A bill says how many requests of others it holds; which ones, the bills of the others tell:
    those that ended since the bill before. Whatever else ended by then stands on no bill here.
    """
    if not any(fact.turn_bill is not None and fact.turn_bill.others for fact in facts):
        return facts, {}
    out = list(facts)
    left: dict[str, int] = {}
    waiting = sorted(shares, key=lambda s: (_moment(s.ended), s.session, s.model or ""))
    asked = {(f.usage_key, e.session) for f in facts for e in f.edges if e.child}
    for places in _bills(facts):
        bill = facts[places[0]]
        until = _moment(bill.ts) if bill.ts else _LAST
        ended = [share for share in waiting if _moment(share.ended) <= until]
        waiting = waiting[len(ended) :]
        others = bill.turn_bill.others if bill.turn_bill else 0
        taken = _pick_shares(ended, others, asked, bill.usage_key)
        for share in taken:
            at = next((i for i in places if out[i].model == share.model), places[0])
            out[at] = _less(out[at], share)
        if (missing := others - sum(share.calls for share in taken)) > 0:
            left[bill.node.id] = missing
    return out, left


def _bills(facts: list[Fact]) -> Iterator[list[int]]:
    """The places of each bill's parts: a record may bill several models."""
    run: list[int] = []
    for at, fact in enumerate(facts):
        if fact.turn_bill is None or fact.usage is None:
            continue
        if run and (facts[run[0]].file, facts[run[0]].line) != (fact.file, fact.line):
            yield run
            run = []
        run.append(at)
    if run:
        yield run


def _pick_shares(
    ended: list[Share], others: int, asked: set[tuple[str | None, str]], key: str | None
) -> list[Share]:
    """The shares that make up so many requests: those asked for in this turn before any other."""
    if sum(share.calls for share in ended) <= others:
        return ended if others else []
    taken: list[Share] = []
    for share in sorted(ended, key=lambda s: (key, s.session) not in asked):
        if share.calls <= others:
            others -= share.calls
            taken.append(share)
    return taken


def _less(fact: Fact, share: Share) -> Fact:
    if fact.usage is None:
        return fact
    cost = fact.cost_usd
    if cost is not None and share.cost_usd is not None:
        cost = max(cost - share.cost_usd, 0.0)
    return msgspec.structs.replace(
        fact, usage=derived_events.subtract_usage(fact.usage, share.usage), cost_usd=cost
    )


def _moment(text: str | None) -> datetime:
    return derived_events.time_of(text) or datetime.min.replace(tzinfo=UTC)
