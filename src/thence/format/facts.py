"""Facts: what one record of a log says by itself, whoever wrote it.

Adapters turn records into these and do nothing else. What only the whole session can tell (who
answers whom, what is live, what was counted before) is worked out from them in `whole`, so that
the sweep and `show PATH` cannot disagree. Facts are plain values: they can be stored, sorted,
sent to another process, and put together again in any order.

A role says where a block goes: `user`, `assistant` and `tool` blocks are what the model sees,
`system` ones it never saw. A human's prompt is a `user_msg`; text that the harness put into the
user's mouth is a `lifecycle` block with the role `user`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from hashlib import blake2b
from math import isfinite
from typing import Any, Literal

import msgspec

from thence.format import errors, tools, wording
from thence.format.graph import State
from thence.format.nodes import Node
from thence.format.normal import Kind, SessionEvent, event_ids, one_line
from thence.format.records import (
    JSON,
    MAX_NUMBER,
    MESSAGES,
    Event,
    Usage,
    blocks,
    dollars,
    text_of,
    usage_of,
    word,
)
from thence.format.transcript import node_of

COPIES_OF = "copies_of"
"""In `about`: the session whose records this one begins with; where they end, it cannot say."""

HANDED = "thence handed it over"
"""How a tie is known that a handoff wrote down."""

RECORDED = "[Recorded by "
"""How a text begins that a handoff took along and that its user never wrote."""

MIRRORED = "mirrored/"
"""How the type of a record begins that a parent's log repeats of its subagent's."""

TYPED = "typed"
"""In the payload of a prompt: what was typed, where the model was sent something else."""

WHOLE_OUTPUT = "whole_output"
"""In the payload of a note beside a result: all that the call gave, where the result is a part."""

Link = Literal["resume", "fork", "subagent", "adopt"]


class Block(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One block of a record: a text, a thought, a call, a result, or a note of the harness."""

    kind: Kind
    role: str
    summary: str = ""
    payload: JSON = None
    """Text and thinking: the block itself; a call: its input; a result: its content."""
    tool: str | None = None
    call: str | None = None
    failed: bool | None = None
    ref: str | None = None
    """Where the payload lies, once a store has taken it out."""
    effect: tools.Effect | None = None
    """What a call does, or a record of a file says was done; noted when the payload was stored."""
    evidence: errors.Evidence | None = None
    """What a result says of how its call ended; noted when the payload was stored."""
    tone: wording.Tone = ""
    """What a prompt or an answer says by its wording; noted when the payload was stored."""


class Base(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Where a log goes on from: all of that log before the offset (or before the ordinal).

    Or, where the log says so, one event of another session and the line that leads to it.
    """

    file: str
    offset: int | None = None
    ordinal: int | None = None
    session: str | None = None
    event: str | None = None


class Edge(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A tie to another session, as this one tells it.

    `child` says that the other one is below this one. `how` says in words where it was found.
    `agent` is whose session the other one is, where that is not the same agent's.
    """

    link: Link
    session: str
    how: str
    event: str | None = None
    call: str | None = None
    child: bool = False
    agent: str | None = None

    def uid(self, agent: str) -> str:
        """Return the full id of the other session, as a session of this agent tells it."""
        return f"{self.agent or agent}:{self.session}"


def full_output(block: Block | SessionEvent) -> str:
    """Return all that a call gave, where a note beside its result has it; else an empty text."""
    payload = block.payload if block.kind == "lifecycle" else None
    return word(payload.get(WHOLE_OUTPUT)) if isinstance(payload, dict) else ""


def recorder_name(text: str, agent: str) -> str:
    """Mark a text that an agent put into the user's mouth: output, a file, a notice."""
    return f"{RECORDED}{agent}, not written by the user:]\n{text}"


def handed_over_edges(uid: JSON, event: JSON) -> tuple[Edge, ...]:
    """Return the tie to the session that was handed over, by its full id, to become this one."""
    agent, _, session = word(uid).partition(":")
    if not agent or not session:
        return ()
    return (Edge("adopt", session, HANDED, word(event) or None, agent=agent),)


class CallStatus(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How a call went, told by another record than its result."""

    call: str
    failed: bool | None = None
    exit_code: int | None = None
    took_ms: int | None = None
    ended: bool = True
    output: JSON = None
    """What it gave, where no result says so."""


class TurnBill(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Marks a bill for a whole turn: it takes the place of an earlier one with its key.

    `others` of the requests in it were made by other sessions, whose own bills say the same.
    """

    others: int = 0


class Share(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What another session was billed for one of its turns: a bill here may have it in it."""

    session: str
    usage: Usage
    calls: int = 0
    ended: str | None = None
    model: str | None = None
    cost_usd: float | None = None


class Fact(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What one record says. `node.id` is its own id, or made by `line_name` of its bytes."""

    node: Node
    type: str = ""
    ts: str | None = None
    blocks: tuple[Block, ...] = ()
    """Each becomes an event; without any the record only tells something of the session."""
    file: str = ""
    """Which log of the session: a name that stays when the file is moved; sorts by age."""
    channel: str = "main"
    generation: int = 0
    """How often that log had been rewritten when this was read."""
    line: int = 0
    offset: int = 0
    ordinal: int | None = None
    model: str | None = None
    usage: Usage | None = None
    usage_key: str | None = None
    """Records of one bill share it; one without a usage says that a bill of this key must come."""
    turn_bill: TurnBill | None = None
    shares: tuple[Share, ...] = ()
    cost_usd: float | None = None
    """What the writer itself says it cost."""
    running: Usage | None = None
    """A total of the whole session so far, where single bills are not told."""
    tier: str | None = None
    """The rate it is billed at, where that is not the usual one."""
    unbilled: str | None = None
    """Why a bill that should be here was never written."""
    text_chars: int = 0
    """Characters of the response in this record; counted only where its bill is small."""
    bill_due: str | None = None
    """Why its bill is missing, unless one follows in its log before the next prompt."""
    origin: str | None = None
    """The session that owns this record, when the record itself names another one."""
    copy_key: str | None = None
    """What copies of this record in other sessions have in common with it; its id by default."""
    piece: str | None = None
    """Records of a log that follow one another with the same piece are pieces of one text."""
    base: Base | None = None
    edges: tuple[Edge, ...] = ()
    told: tuple[CallStatus, ...] = ()
    about: dict[str, JSON] = {}
    """What it says of the session: cwd, git_branch, version, title:custom, title:ai, …"""


def check_values(value: object, besides: type | tuple[()] = ()) -> None:
    """Raise a ValueError where something that was not read here has what no log can give.

    These are numbers that nobody can add up, and the `ref` of a block, which only a store sets.
    Payloads may hold anything; what is of the type `besides` is not looked at.
    """
    todo = [value]
    while todo:
        box = todo.pop()
        if isinstance(box, (tuple, list)):
            todo += box
        elif isinstance(box, msgspec.Struct) and not isinstance(box, besides):
            if isinstance(box, Block) and box.ref is not None:
                raise ValueError("a block has a ref, which only a store sets")
            least = 0 if isinstance(box, Usage) else 1 - MAX_NUMBER
            for name in _typed_fields(type(box)):
                inner = getattr(box, name)
                if isinstance(inner, int) and not least <= inner < MAX_NUMBER:
                    raise ValueError(f"{name} is {inner:.3g}")
                if isinstance(inner, float) and not isfinite(inner):
                    raise ValueError(f"{name} is {inner}")
                if isinstance(inner, (tuple, list, msgspec.Struct)):
                    todo.append(inner)


@cache
def _typed_fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the fields of a type that may not hold just any JSON."""
    return tuple(field.name for field in msgspec.structs.fields(kind) if field.type is not Any)


def line_name(file: str, raw: bytes) -> str:
    """Name a record that has no id of its own: by its log and a hash of its bytes.

    The same bytes again in the same log are told apart by `whole`, which sees all of them.
    """
    # Without the white space around it: a record is read before its CR LF is written, and after.
    return f"{file}#{blake2b(raw.strip(), digest_size=12).hexdigest()}"


def is_line_name(name: str) -> bool:
    """Whether an id was made by `line_name`."""
    return "#" in name


# -- blocks of the Messages API -------------------------------------------------------------


def message_blocks(content: JSON, role: str) -> tuple[Block, ...]:
    """Turn message content in the shape of the Messages API into blocks."""
    return tuple(_block(block, role) for block in blocks(content))


def _block(block: dict[str, JSON], role: str) -> Block:
    kind = block.get("type")
    if kind == "text":
        text = block.get("text")
        short = one_line(text) if isinstance(text, str) else ""
        return Block("assistant_msg" if role == "assistant" else "user_msg", role, short, block)
    if kind == "tool_use":
        tool, arguments = word(block.get("name")), block.get("input")
        call = block.get("id")
        name = call if isinstance(call, str) else None
        return Block("tool_call", "assistant", "", arguments, tool, name)
    if kind == "tool_result":
        return result_block(block)
    if kind in ("thinking", "redacted_thinking"):
        return Block("thinking", role, one_line(word(block.get("thinking"))), block)
    return Block("assistant_msg" if role == "assistant" else "user_msg", role, "", block)


def result_block(block: dict[str, JSON]) -> Block:
    """A result says of itself no more than `is_error`; `derived_events` pairs it with its call."""
    content, wrong, call = block.get("content"), block.get("is_error"), block.get("tool_use_id")
    return Block(
        "tool_result",
        "tool",
        one_line(text_of(content)),
        content,
        None,
        call if isinstance(call, str) else None,
        wrong if isinstance(wrong, bool) else None,
    )


def text_in(block: Block | SessionEvent) -> str:
    """Return the text of a block for the eye; what is no text is named."""
    payload = block.payload
    if isinstance(payload, dict):
        if isinstance(text := payload.get(TYPED, payload.get("text")), str):
            return text
        if isinstance(payload.get("type"), str):
            return text_of(payload.get("content")) or block.summary or f"[{payload['type']}]"
    return text_of(payload) or block.summary


def words_of(block: Block | SessionEvent, limit: int = 1 << 20) -> str:
    """Return the text of a block that is worth finding again; images and the like have none."""
    payload = block.payload
    if isinstance(payload, str):
        return payload[:limit]
    if isinstance(payload, dict) and payload.get("type") == "text":  # most are this
        text = payload.get(TYPED, payload.get("text"))
        if isinstance(text, str):
            return text[:limit]
    out: list[str] = []
    room = limit
    todo: list[Iterator[JSON]] = [iter((payload,))]  # of each list or object that is being read
    while todo and room > 0:
        for value in todo[-1]:
            kind = type(value)
            if kind is str:
                out.append(value[:room])
                room -= len(value) + 1
                if room <= 0:
                    break
            elif kind is list:
                todo.append(iter(value))
                break
            elif kind is dict:
                todo.append(iter(_searched_values(value)))
                break
        else:
            todo.pop()
    return "\n".join(out)


def _searched_values(value: dict[str, JSON]) -> Iterable[JSON]:
    """Return the values of an object that are worth finding again."""
    named = value.get("type")
    if type(named) is not str or named not in _NOT_SEARCHED:
        return value.values()
    return () if named in _UNREADABLE else (value.get(named),)


_UNREADABLE = frozenset({"image", "document", "redacted_thinking"})
_NOT_SEARCHED = _UNREADABLE | {"text", "thinking"}
"""Types of objects of which not every value is searched."""


# -- our own events -------------------------------------------------------------------------


def fact_of(event: Event, *, channel: str = "main", node: Node | None = None, **more: JSON) -> Fact:
    """Return what one of our own events says; `more` is what its reader knows besides."""
    fields = event.fields
    usage = usage_of(fields.get("usage")) if event.type == "assistant" else None
    key = (fields.get("id") if isinstance(fields.get("id"), str) else event.uuid) if usage else None
    model, cost = fields.get("model"), fields.get("cost_usd")
    return Fact(
        node or node_of(event),
        event.type,
        event.ts or None,
        _event_blocks(event),
        channel=channel,
        model=model if isinstance(model, str) and event.type in MESSAGES else None,
        usage=usage,
        usage_key=key,
        cost_usd=dollars(cost) if usage else None,
        **more,
    )


def _event_blocks(event: Event) -> tuple[Block, ...]:
    if event.type not in MESSAGES:
        kind: Kind = "decision" if event.type == "decision" else "lifecycle"
        return (Block(kind, "system", event.type, event.payload),)
    content = event.fields.get("content")
    if event.type == "summary":  # nobody's words: it stands for what a compaction left out
        return (Block("lifecycle", "user", one_line(text_of(content)), content),)
    role = "assistant" if event.type == "assistant" else "user"
    kind = "assistant_msg" if role == "assistant" else "user_msg"
    return message_blocks(content, role) or (Block(kind, role, payload=content),)


# -- events ---------------------------------------------------------------------------------


def merge_statuses(facts: Iterable[Fact]) -> dict[str, CallStatus]:
    """Put together what several records tell of the same call: a failure stands, else the first."""
    out: dict[str, CallStatus] = {}
    for fact in facts:
        for status in fact.told:
            earlier = out.get(status.call)
            out[status.call] = status if earlier is None else _merge_status(earlier, status)
    return out


def _merge_status(earlier: CallStatus, more: CallStatus) -> CallStatus:
    return CallStatus(
        earlier.call,
        more.failed if earlier.failed is None else earlier.failed or bool(more.failed),
        more.exit_code if earlier.exit_code is None else earlier.exit_code,
        more.took_ms if earlier.took_ms is None else earlier.took_ms,
        earlier.ended and more.ended,
        more.output if earlier.output is None else earlier.output,
    )


def events_of(
    facts: Sequence[Fact],
    states: Sequence[State],
    uid: str,
    times: Sequence[int | None] | None = None,
) -> list[SessionEvent]:
    """Turn facts into normalised events, one per block, in written order, not yet numbered.

    A record that was written twice is one; one that repeats an id with other content is another
    event, told apart by its occurrence: `times`, where they were counted before.
    """
    times = occurrences(facts) if times is None else times
    name = event_ids(uid)
    last: dict[str, int] = {}  # native id -> the id of its last block, which children hang off
    tools: dict[str, str | None] = {}
    for fact, nth in zip(facts, times, strict=True):
        blocks = fact.blocks
        if nth == 0:
            native = fact.node.id
            last[native] = name(native, len(blocks) - 1 if blocks else 0, 0)
        for block in blocks:
            if block.kind == "tool_call" and block.call is not None:
                tools[block.call] = block.tool
    return list(_events(facts, states, times, uid, name, last, tools, merge_statuses(facts)))


def event_blocks(facts: Sequence[Fact], times: Sequence[int | None] | None = None) -> list[Block]:
    """Return the block of each event that `events_of` makes of the same facts."""
    times = occurrences(facts) if times is None else times
    return [b for f, nth in zip(facts, times, strict=True) if nth is not None for b in f.blocks]


def occurrences(facts: Sequence[Fact]) -> list[int | None]:
    """Return which version of its id each fact is: 0 for the first, None for a repetition."""
    if len({fact.node.id for fact in facts}) == len(facts):
        return [0] * len(facts)
    first: dict[str, Fact] = {}
    versions: dict[str, list[Fact]] = {}
    out: list[int | None] = []
    for fact in facts:
        known = first.setdefault(fact.node.id, fact)
        if known is fact:
            out.append(0)
            continue
        facts_of_id = versions.setdefault(fact.node.id, [known])
        if any(_same(fact, known_fact) for known_fact in facts_of_id):
            out.append(None)
        else:
            out.append(len(facts_of_id))
            facts_of_id.append(fact)
    return out


def _same(fact: Fact, other: Fact) -> bool:
    return (
        (fact.type, fact.ts, fact.node) == (other.type, other.ts, other.node)
        and len(fact.blocks) == len(other.blocks)
        and all(map(_is_same_block, fact.blocks, other.blocks))
    )


def _is_same_block(block: Block, other: Block) -> bool:
    """Return whether two blocks say the same, wherever a store keeps what they say."""
    names = (block.kind, block.role, block.summary, block.tool, block.call, block.failed)
    if names != (other.kind, other.role, other.summary, other.tool, other.call, other.failed):
        return False
    if block.ref is None or other.ref is None:
        return bool(block.payload == other.payload)
    return _sum_of(block.ref) == _sum_of(other.ref)


def _sum_of(ref: str) -> list[str]:
    """Return length and checksum of the payload that a ref leads to."""
    return ref.rsplit(",", 2)[1:]


def _events(  # noqa: PLR0917 - the second pass of `events_of`
    facts: Sequence[Fact],
    states: Sequence[State],
    times: Sequence[int | None],
    uid: str,
    name: Callable[[str, int, int], int],
    last: dict[str, int],
    tools: dict[str, str | None],
    statuses: dict[str, CallStatus],
) -> Iterator[SessionEvent]:
    """Yield the events of each fact. The bill hangs on the first block."""
    for fact, state, nth in zip(facts, states, times, strict=True):
        if nth is None:
            continue
        node, channel, blocks = fact.node, fact.channel, fact.blocks
        native, parent, usage = node.id, node.parent, fact.usage
        above = last.get(node.logical if parent is None else parent)  # type: ignore[arg-type] # None is nobody
        final = -1 if nth else len(blocks) - 1  # the block whose id is known
        number = 0
        for block in blocks:
            made = last[native] if number == final else name(native, number, nth)
            call, tool, failed, took = block.call, block.tool, block.failed, None
            if call is not None:
                if tool is None:
                    tool = tools.get(call)
                if (other := statuses.get(call)) is not None and block.kind == "tool_result":
                    took = other.took_ms
                    failed = other.failed if failed is None else failed
            # By place: a name for each of so many fields costs more than all the rest here.
            yield SessionEvent(
                uid,
                made,
                block.kind,
                above,
                None,
                None,
                fact.ts,
                block.role,
                tool,
                block.summary,
                block.ref,
                block.payload,
                0 if usage is None else usage.total,
                channel != "main",
                channel,
                state,
                None,
                native,
                fact.type,
                number,
                call,
                failed,
                fact.model,
                usage,
                fact.usage_key if number == 0 else None,
                fact.cost_usd if number == 0 else None,
                fact.tier,
                took,
            )
            above, usage = made, None
            number += 1  # noqa: SIM113 - enumerate makes a tuple each


def calls_of(blocks: Sequence[Block]) -> tuple[str, ...]:
    """The calls that blocks make, for their node."""
    return _block_names(blocks, "tool_call")


def answers_of(blocks: Sequence[Block]) -> tuple[str, ...]:
    """The calls that blocks answer, for their node."""
    return _block_names(blocks, "tool_result")


def _block_names(blocks: Sequence[Block], kind: Kind) -> tuple[str, ...]:
    if len(blocks) == 1:  # as in nearly every log
        block = blocks[0]
        return (block.call,) if block.kind == kind and block.call is not None else ()
    return tuple(b.call for b in blocks if b.kind == kind and b.call is not None)
