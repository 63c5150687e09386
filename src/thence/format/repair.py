"""A chain made valid for the Messages API, whatever a crash left of it.

`mend` takes messages in the shape of the API and gives messages the API accepts: the first is
the user's, roles alternate, no content is empty, every `tool_use` is answered directly after its
message and every `tool_result` answers one, no id twice. Blocks of one response are one message.
Single blocks are put right in `content`. Orphans (calls without a result) are treated in one of
three ways, the caller's choice:

    answer  a synthetic error result stands in for the one that never came (the default)
    drop    the call is left out, as the clients do that leave it on a dead branch
    mark    the call is shown as interrupted, in words

Invariants: results are looked for in the whole list before a call is an orphan; a call whose id is
missing, refused or used before stays, under a new one; mending what is mended changes nothing; a
real result always wins over a synthetic one; a synthetic one says what is known of why no result
came; what was left out or added is listed, never silent. Nothing is written here: `synthetic` makes
the event that a journal may append, with an id that two repairers agree on.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Final, Literal
from uuid import NAMESPACE_URL, uuid5

import msgspec

from thence.format import content
from thence.format.records import JSON, MESSAGES, Event, blocks, word

Orphans = Literal["answer", "drop", "mark"]
Block = dict[str, JSON]
ApiMessage = dict[str, JSON]
_Turn = tuple[str, list[Block]]
_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
"""Ids of calls that the API takes."""

INTERRUPTED = (
    "[interrupted: the session ended before a result of this call was recorded. "
    "It may or may not have taken effect; check before running it again.]"
)
USER_STOPPED = (
    "[interrupted: the user stopped the turn before a result of this call was recorded. "
    "It may or may not have taken effect; check before running it again.]"
)
TURN_STOPPED = USER_STOPPED.replace("the user stopped the turn", "the turn was stopped")
NO_RESULT_YET = (
    "[no result yet: this call may still be running. "
    "It may or may not have taken effect; check before running it again.]"
)
_STAND_INS: Final = frozenset({INTERRUPTED, USER_STOPPED, TURN_STOPPED, NO_RESULT_YET})
_NOT_APPROVED: Final = re.compile(
    r"\[not run: nobody approved this call within \S{1,24} s; it was not run\.\]"
)
MISSING_START = "[what came before is not part of this history]"


class Leftover(msgspec.Struct, frozen=True):
    """A block that could not stay, and why."""

    why: str
    id: str = ""


class Mended(msgspec.Struct):
    """Messages the API accepts, the calls that were open, and what was changed to get there."""

    messages: list[ApiMessage]
    open_calls: list[Block]
    """As they were written, so that whoever wrote them can answer them."""
    left_out: list[Leftover]
    opened: bool = False
    """A message was put in front because the history began with the model's."""
    renamed: list[str] = []
    """Ids of calls that the API would refuse, or that an earlier call has: they got new ones."""
    answered: list[str] = []
    """Ids, in the messages, of calls that were given a result because they had none."""
    reworded: dict[str, int] = {}
    """What the API takes in no form and is told in words, or is a thought without signature."""


class _Call(msgspec.Struct, eq=False, gc=False):
    """A call, and the result that was found for it."""

    block: Block
    key: str
    """Its id as written; empty when it has none."""
    result: Block | None = None


class _Part(msgspec.Struct):
    """Neighbouring messages of one role, taken together."""

    role: str
    blocks: list[Block | _Call]
    response: JSON = None
    """The id of the API's response whose blocks came last, where that is known."""


def mend(
    messages: Iterable[ApiMessage],
    orphans: Orphans = "answer",
    reasons: Mapping[str, str] | None = None,
    why: str = INTERRUPTED,
) -> Mended:
    """Make any list of messages valid for the API.

    `reasons` has, by the id of a call, what is known of why no result of it came; `why` is said
    of all others.
    """
    out = Mended([], [], [])
    pairing = _Pairing(out)
    parts = _turns(messages, pairing, out)
    calls = pairing.finish()
    ids = _new_ids(calls, out)
    turns = _merge_turns(_shown(parts, ids, out, orphans, reasons=reasons or {}, why=why))
    if any(turn[1][-1].get("type") in content.THOUGHTS for turn in turns):
        # Taking a thought away may leave a turn empty, so neighbours meet: merged once more.
        turns = _merge_turns([_without_last_thought(turn, out) for turn in turns])
    if turns and turns[0][0] == "assistant":
        # The API takes no list that begins with the model.
        turns.insert(0, ("user", [{"type": "text", "text": MISSING_START}]))
        out.opened = True
    out.messages = [{"role": role, "content": content} for role, content in turns]
    return out


def _turns(messages: Iterable[ApiMessage], pairing: _Pairing, out: Mended) -> list[_Part]:
    """Sort usable blocks into parts of one role each; results go to their calls."""
    parts: list[_Part] = []
    for message in messages:
        role = message.get("role")
        if role not in ("user", "assistant"):
            out.left_out.append(Leftover("role"))
            continue
        content = blocks(message.get("content"))
        part = _part_for(parts, role, message.get("id"))
        part.response = message.get("id")
        for block in content:
            usable = _usable(block, part, pairing, out)
            if usable is not None:
                part.blocks.append(usable)
    return parts


def _part_for(parts: list[_Part], role: str, response: JSON) -> _Part:
    """Return the part that a message belongs to.

    A response is one part, also where its client wrote results, or a prompt that had waited,
    between its blocks. These then stand after it. Some servers give all responses one id: what
    was said after an answer without calls is another response.
    """
    if role == "assistant" and isinstance(response, str) and response:
        last = parts[-2] if len(parts) > 1 and parts[-1].role == "user" else None
        is_same = last is not None and last.response == response
        if last is not None and is_same and (not parts[-1].blocks or _has_calls(last)):
            return last
    if parts and parts[-1].role == role:
        return parts[-1]
    parts.append(_Part(role, []))
    return parts[-1]


def _has_calls(part: _Part) -> bool:
    return any(isinstance(block, _Call) for block in part.blocks)


def _usable(block: Block, part: _Part, pairing: _Pairing, out: Mended) -> Block | _Call | None:
    """Return a block as it may stand in its part; what may not is listed."""
    kind = block.get("type")
    if kind == "tool_use":
        call = pairing.call(block, part) if part.role == "assistant" else None
        if call is None:
            out.left_out.append(Leftover("call out of place or twice", word(block.get("id"))))
        return call
    if kind == "tool_result":
        if part.role == "user":
            pairing.result(block)
        else:
            out.left_out.append(Leftover("result out of place"))
        return None
    return content.accept(block, part.role, out.reworded)


class _Pairing:
    """Which result answers which call, though ids may be used again, or be missing.

    A result answers the call of its id that is still open; of several those of the latest
    message, the first of them first. One that stands before any call of its id answers the first
    that gets no other.
    """

    def __init__(self, out: Mended) -> None:
        self._out = out
        self._calls: list[_Call] = []
        self._open: dict[str, list[tuple[_Part, deque[_Call]]]] = {}
        self._last: dict[str, _Call] = {}
        """The last call of each id that has a result."""
        self._early: dict[str, deque[Block]] = {}

    def call(self, block: Block, part: _Part) -> _Call | None:
        """Take up a call; None when it is the same as one that is still open."""
        key = word(block.get("id"))
        groups = self._open.setdefault(key, [])
        # Clients write a call twice when they stream; the same input is the same call.
        if key and groups and _same_call(groups[-1][1][-1].block, block):
            return None
        made = _Call(block, key)
        self._calls.append(made)
        if not groups or groups[-1][0] is not part:
            groups.append((part, deque()))
        groups[-1][1].append(made)
        return made

    def result(self, block: Block) -> None:
        """Attach a result to its call; a real one takes the place of a synthetic one."""
        key = word(block.get("tool_use_id"))
        groups = self._open.get(key)
        if groups is None:
            self._early.setdefault(key, deque()).append(block)
        elif groups:
            group = groups[-1][1]
            answered = self._last[key] = group.popleft()
            answered.result = block
            if not group:
                groups.pop()
        else:
            self._again(self._last[key], block, key)

    def _again(self, answered: _Call, block: Block, key: str) -> None:
        result = answered.result or {}
        # A crash was mended with ours, and the real one came late: it wins.
        if is_synthetic(result):
            answered.result = block
        elif not is_synthetic(block) and result.get("content") != block.get("content"):
            self._out.left_out.append(Leftover("second result of a call", key))

    def finish(self) -> list[_Call]:
        """Return all calls, with the results that stood before them; list what is left over."""
        for call in self._calls:
            if call.key in self._early and (call.result is None or is_synthetic(call.result)):
                early = self._early[call.key]
                call.result = early.popleft() if early else call.result
        for key, early in self._early.items():
            called = key in self._open
            if early and not called:
                self._out.left_out.append(Leftover("result without call", key))
            elif early:
                self._out.left_out.append(Leftover("second result of a call", key))
        return self._calls


def _same_call(call: Block, other: Block) -> bool:
    return bool(call.get("name") == other.get("name") and call.get("input") == other.get("input"))


def is_synthetic(result: Block) -> bool:
    """Whether a result is one of ours, made for a call that had none."""
    return is_synthetic_content(result.get("content"))


def is_synthetic_content(content: JSON) -> bool:
    """Whether the content of a result is a text that stands in for one that never came."""
    if not isinstance(content, str):
        return False
    return content in _STAND_INS or bool(_NOT_APPROVED.fullmatch(content))


def not_approved(seconds: float) -> str:
    """Return what a call is answered that nobody approved in time."""
    return f"[not run: nobody approved this call within {seconds:g} s; it was not run.]"


def no_result_yet(calls: Iterable[str]) -> dict[str, str]:
    """Return what to answer calls that may still run, as far as a log tells, by their ids."""
    return dict.fromkeys(calls, NO_RESULT_YET)


def ended_calls(events: Iterable[Event]) -> dict[str, str]:
    """Return the calls that are open where a session ended, by id, and what to answer them."""
    waiting: dict[str, None] = {}
    stopped = stopped_calls(events, waiting)
    return {call: stopped.get(call, INTERRUPTED) for call in waiting}


def stopped_calls(
    events: Iterable[Event], waiting: dict[str, None] | None = None
) -> dict[str, str]:
    """Return the calls that were open when a turn was stopped, by id, and what to answer them.

    `waiting` gets those that are open after all events.
    """
    waiting = {} if waiting is None else waiting
    out: dict[str, str] = {}
    for event in events:
        if event.type == "interrupted":
            by_user = event.fields.get("by", "user") == "user"
            out |= dict.fromkeys(waiting, USER_STOPPED if by_user else TURN_STOPPED)
        for block in blocks(event.fields.get("content")) if event.type in MESSAGES else ():
            if block.get("type") == "tool_use":
                waiting[word(block.get("id"))] = None
            elif block.get("type") == "tool_result":
                waiting.pop(word(block.get("tool_use_id")), None)
    return out


# -- ids ------------------------------------------------------------------------------------


def call_id(name: str, nth: int = 0) -> str:
    """Return an id that the API takes for the nth call of an id: its own, else one made of it."""
    # One that works stays: it is the id in the client's own log.
    if nth == 0 and _ID.fullmatch(name):
        return name
    text = f"{name}\0{nth}" if nth else name
    return f"call_{blake2b(_utf8(text).encode(), digest_size=12).hexdigest()}"


def _new_ids(calls: list[_Call], out: Mended) -> dict[int, str]:
    """Assign every call an id of its own; those that the API takes stay."""
    written = {call.key for call in calls}
    times: dict[str, int] = {}
    ids: dict[int, str] = {}
    used: set[str] = set()
    for call in calls:
        key = call.key
        nth = times.get(key, 0)
        made = call_id(key, nth)
        # Also not one that a later call was written with.
        while made in used or (made != key and made in written):
            nth += 1
            made = call_id(key, nth)
        times[key] = nth + 1
        used.add(made)
        ids[id(call)] = made
        if made != key:
            out.renamed.append(key)
    return ids


# -- messages -------------------------------------------------------------------------------


def _shown(
    parts: list[_Part],
    ids: dict[int, str],
    out: Mended,
    orphans: Orphans,
    *,
    reasons: Mapping[str, str],
    why: str,
) -> Iterator[_Turn]:
    """Yield parts with every result right after its call's message; treat calls without one."""
    for part in parts:
        visible: list[Block] = []
        answers: list[Block] = []
        for block in part.blocks:
            if not isinstance(block, _Call):
                visible.append(block)
                continue
            name = ids[id(block)]
            reason = reasons.get(block.key, why)
            if block.result is None:
                out.open_calls.append(block.block)
                if orphans == "mark":
                    visible.append({"type": "text", "text": _in_words(block.block, reason)})
                if orphans != "answer":
                    continue
                out.answered.append(name)
            # Results stand right behind the message of their call: the API refuses any other order.
            visible.append(_shaped_call(block.block, name))
            result = block.result or synthetic_result(name, reason)
            answers.append(_shaped_result(result, name, out.reworded))
        yield part.role, visible
        yield "user", answers


def _shaped_call(call: Block, name: str) -> Block:
    """Return a call with a name and an input as the API takes them."""
    tool, arguments = content.tool_name(call.get("name")), content.tool_input(call.get("input"))
    is_same = tool is call.get("name") and arguments is call.get("input") and call.get("id") == name
    if is_same and len(call) == 4:  # type, id, name, input: nothing that would have to go
        return call
    return {"type": "tool_use", "id": name, "name": tool, "input": arguments}


def _shaped_result(result: Block, name: str, reworded: dict[str, int]) -> Block:
    """Return a result whose content is text or blocks and whose error mark is a yes or a no."""
    wrong = result.get("is_error")
    made = content.result_content(result.get("content"), reworded, failed=wrong is True)
    is_same = made is result.get("content") and result.get("tool_use_id") == name
    if is_same and len(result) == 3:  # type, tool_use_id, content: nothing that would have to go
        return result
    shaped = {"type": "tool_result", "tool_use_id": name, "content": made}
    return {**shaped, "is_error": wrong} if isinstance(wrong, bool) else shaped


def _without_last_thought(turn: _Turn, out: Mended) -> _Turn:
    """Return a turn that does not end with a thought, which the API refuses."""
    role, turn_blocks = turn
    while turn_blocks and turn_blocks[-1].get("type") in content.THOUGHTS:
        turn_blocks = turn_blocks[:-1]
        out.reworded[content.UNSIGNED] = out.reworded.get(content.UNSIGNED, 0) + 1
    return role, turn_blocks


def _in_words(call: Block, why: str) -> str:
    return f"{why[:-1]} Call: {call.get('name') or 'a tool'}]"


def _merge_turns(turns: Iterable[_Turn]) -> list[_Turn]:
    """Join neighbours of one role and let go of what is empty."""
    out: list[_Turn] = []
    for role, turn_blocks in turns:
        if not turn_blocks:
            continue
        if out and out[-1][0] == role:
            out[-1][1].extend(turn_blocks)
        else:
            out.append((role, list(turn_blocks)))
    return out


def synthetic_result(call: str, why: str = INTERRUPTED) -> Block:
    """Return the error result that stands in for one that never came."""
    return {"type": "tool_result", "tool_use_id": call, "content": why, "is_error": True}


def synthetic(
    session: str, call: str, *, ts: str, prev_uuid: str | None, why: str = INTERRUPTED
) -> Event:
    """Return the event that answers an orphan. Two repairers of one session make the same one."""
    # Its id is made of session and call, so that two resumers of a crash write one event.
    return Event(
        type="user",
        ts=ts,
        uuid=str(uuid5(NAMESPACE_URL, _utf8(f"thence:{session}:{call}"))),
        prev_uuid=prev_uuid,
        payload={"role": "user", "content": [synthetic_result(call, why)], "synthetic": True},
    )


def _utf8(text: str) -> str:
    """Spell out lone surrogates, which have no UTF-8 form and so no hash."""
    return text.encode("utf-8", "backslashreplace").decode()


def problems(messages: list[ApiMessage]) -> list[str]:
    """Say why the Messages API would refuse a list; empty when it would not.

    Written apart from `mend`, from the API's rules, so that one checks the other.
    """
    out: list[str] = []
    seen: set[str] = set()
    for at, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        wanted = ("user", "assistant")[at % 2]
        if role != wanted:
            out.append(f"message {at}: role {role}, not {wanted}")
        if not content:
            out.append(f"message {at}: empty")
        calls = [b["id"] for b in blocks(content) if b.get("type") == "tool_use"]
        out += [f"message {at}: call {call} twice" for call in calls if call in seen]
        seen.update(calls)
        after = blocks(messages[at + 1].get("content")) if at + 1 < len(messages) else []
        answered = [b.get("tool_use_id") for b in after if b.get("type") == "tool_result"]
        # Sorted, as parallel calls may be answered in any order.
        if role == "assistant" and sorted(answered, key=str) != sorted(calls):
            out.append(f"message {at}: calls {calls}, results {answered}")
        out += [f"message {at}: {why}" for why in _bad_blocks(message, first=at == 0)]
    return out


def _bad_blocks(message: ApiMessage, *, first: bool) -> Iterable[str]:
    prose = False
    for block in blocks(message.get("content")):
        kind = block.get("type")
        if kind == "text" and not str(block.get("text") or "").strip():
            yield "empty text"
        if kind == "tool_result":
            if first or message.get("role") != "user":
                yield "result out of place"
            if prose:
                yield "result after prose"
        else:
            prose = True
        if kind == "tool_use" and message.get("role") != "assistant":
            yield "call out of place"
