"""A chain made valid for the Messages API, whatever a crash left of it.

`mend` takes messages in the shape of the API and gives messages the API accepts: the first is
the user's, roles alternate, no content is empty, every `tool_use` is answered directly after its
message and every `tool_result` answers one, no id twice. Orphans (calls without a result) are
treated in one of three ways, the caller's choice:

    answer  a synthetic error result stands in for the one that never came (the default)
    drop    the call is left out, as the clients do that leave it on a dead branch
    mark    the call is shown as interrupted, in words

Invariants: results are looked for in the whole list before a call is an orphan; mending what is
mended changes nothing; a real result always wins over a synthetic one; what was left out or
added is listed, never silent. Nothing is written here: `synthetic` makes the event that a
journal may append, with an id that two repairers agree on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal
from uuid import NAMESPACE_URL, uuid5

import msgspec

from thence.format.records import JSON, Event, blocks

Orphans = Literal["answer", "drop", "mark"]
Block = dict[str, JSON]
ApiMessage = dict[str, JSON]

INTERRUPTED = (
    "[interrupted: the session ended before a result of this call was recorded. "
    "It may or may not have taken effect; check before running it again.]"
)
MISSING_START = "[what came before is not part of this history]"


class Left(msgspec.Struct, frozen=True):
    """A block that could not stay, and why."""

    why: str
    id: str = ""


class Mended(msgspec.Struct):
    """Messages the API accepts, the calls that were open, and what was changed to get there."""

    messages: list[ApiMessage]
    open_calls: list[Block]
    left_out: list[Left]
    opened: bool = False
    """A message was put in front because the history began with the model's."""


class _Part(msgspec.Struct):
    """Neighbouring messages of one role, taken together."""

    role: str
    blocks: list[Block]


def mend(messages: Iterable[ApiMessage], orphans: Orphans = "answer") -> Mended:
    """Make any list of messages valid for the API."""
    out = Mended([], [], [])
    parts = _turns(messages, out)
    results = _results(parts)
    parts = _pair(parts, results, out, orphans)
    parts = _merged(parts)
    if parts and parts[0].role == "assistant":
        parts.insert(0, _Part("user", [{"type": "text", "text": MISSING_START}]))
        out.opened = True
    out.messages = [{"role": part.role, "content": part.blocks} for part in parts]
    return out


def _turns(messages: Iterable[ApiMessage], out: Mended) -> list[_Part]:
    """Sort usable blocks into alternating parts; each call id is kept once."""
    parts: list[_Part] = []
    called: set[str] = set()
    for message in messages:
        role = message.get("role")
        if role not in ("user", "assistant"):
            out.left_out.append(Left("role"))
            continue
        kept = [b for b in blocks(message.get("content")) if _usable(b, role, called, out)]
        if not kept:
            continue
        if not parts or parts[-1].role != role:
            parts.append(_Part(role, []))
        parts[-1].blocks += kept
    return parts


def _usable(block: Block, role: JSON, called: set[str], out: Mended) -> bool:
    """Whether a block may stand in a message of this role; what may not is listed."""
    kind = block.get("type")
    if kind == "text":
        text = block.get("text")
        return isinstance(text, str) and bool(text.strip())
    if kind == "tool_use":
        call = block.get("id")
        if role == "assistant" and isinstance(call, str) and call and call not in called:
            called.add(call)
            return True
        out.left_out.append(Left("call out of place or twice", str(call or "")))
        return False
    if kind == "tool_result":
        if role == "user" and isinstance(block.get("tool_use_id"), str):
            return True
        out.left_out.append(Left("result out of place"))
        return False
    return isinstance(kind, str) and bool(kind)


def _results(parts: list[_Part]) -> dict[str, Block]:
    """All results by call, wherever they stand: the first real one, else the first."""
    found: dict[str, Block] = {}
    for part in parts:
        for block in part.blocks:
            if block.get("type") != "tool_result":
                continue
            call = block["tool_use_id"]
            if call not in found or (is_synthetic(found[call]) and not is_synthetic(block)):
                found[call] = block
    return found


def is_synthetic(result: Block) -> bool:
    """Whether a result is one of ours, made for a call that had none."""
    return result.get("content") == INTERRUPTED


def _pair(
    parts: list[_Part], results: dict[str, Block], out: Mended, orphans: Orphans
) -> list[_Part]:
    """Put every result right after its call's message and treat the calls that have none."""
    paired: list[_Part] = []
    used: set[str] = set()
    for part in parts:
        if part.role == "user":
            rest = [b for b in part.blocks if b.get("type") != "tool_result"]
            paired.append(_Part("user", rest))
            continue
        said, answers = _answered(part.blocks, results, out, orphans)
        paired.append(_Part("assistant", said))
        paired.append(_Part("user", answers))
        used.update(answer["tool_use_id"] for answer in answers)
    out.left_out += [Left("result without call", call) for call in results if call not in used]
    return paired


def _answered(
    said: list[Block], results: dict[str, Block], out: Mended, orphans: Orphans
) -> tuple[list[Block], list[Block]]:
    kept: list[Block] = []
    answers: list[Block] = []
    for block in said:
        result = results.get(block["id"]) if block.get("type") == "tool_use" else None
        if block.get("type") != "tool_use":
            kept.append(block)
        elif result is not None:
            kept.append(_shaped_call(block))
            answers.append(_shaped_result(result))
        else:
            out.open_calls.append(block)
            if orphans == "answer":
                kept.append(_shaped_call(block))
                answers.append(synthetic_result(block["id"]))
            elif orphans == "mark":
                kept.append({"type": "text", "text": _in_words(block)})
    return kept, answers


def _shaped_call(call: Block) -> Block:
    """A call with a name and an object for input, as the API wants it."""
    name, given = call.get("name"), call.get("input")
    if isinstance(name, str) and name and isinstance(given, dict):
        return call
    named = name if isinstance(name, str) and name else "unknown"
    return {**call, "name": named, "input": given if isinstance(given, dict) else {"input": given}}


def _shaped_result(result: Block) -> Block:
    """A result whose content is text or blocks and whose error mark is a yes or a no."""
    content, wrong = result.get("content"), result.get("is_error")
    if isinstance(content, list):
        content = [part for part in content if isinstance(part, dict)]
    if (isinstance(content, str) or content == result.get("content")) and isinstance(
        wrong, (bool, type(None))
    ):
        return result
    shaped = {"type": "tool_result", "tool_use_id": result["tool_use_id"]}
    if isinstance(content, (str, list)):
        shaped["content"] = content
    return shaped | ({"is_error": wrong} if isinstance(wrong, bool) else {})


def _in_words(call: Block) -> str:
    return f"{INTERRUPTED[:-1]} Call: {call.get('name') or 'a tool'}]"


def _merged(parts: list[_Part]) -> list[_Part]:
    """Join neighbours of one role and let go of what is empty."""
    out: list[_Part] = []
    for part in parts:
        if not part.blocks:
            continue
        if out and out[-1].role == part.role:
            out[-1].blocks += part.blocks
        else:
            out.append(_Part(part.role, list(part.blocks)))
    return out


def synthetic_result(call: str) -> Block:
    """Give the error result that stands in for one that never came."""
    return {"type": "tool_result", "tool_use_id": call, "content": INTERRUPTED, "is_error": True}


def synthetic(session: str, call: str, *, ts: str, prev_uuid: str | None) -> Event:
    """Give the event that answers an orphan. Two repairers of one session make the same one."""
    return Event(
        type="user",
        ts=ts,
        uuid=str(uuid5(NAMESPACE_URL, _utf8(f"thence:{session}:{call}"))),
        prev_uuid=prev_uuid,
        payload={"role": "user", "content": [synthetic_result(call)], "synthetic": True},
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
        given = [b.get("tool_use_id") for b in after if b.get("type") == "tool_result"]
        if role == "assistant" and sorted(given, key=str) != sorted(calls):
            out.append(f"message {at}: calls {calls}, results {given}")
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
