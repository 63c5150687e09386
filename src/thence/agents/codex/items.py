"""What Codex's model items hold: texts, calls and results as blocks, and who said them. Pure.

An item is the payload of a `response_item`, or a whole line of the bare form of 2025. Codex puts
its own texts into the user's mouth (the environment, AGENTS.md, notices of interruption); they go
to the model, but no human said them. Newer versions name the kind of every part; for the others a
list of beginnings decides. What is encrypted is never shown.
"""

from __future__ import annotations

import msgspec

from thence.agents.records import integer_of, line_of, parse_arguments
from thence.format import output
from thence.format.facts import RECORDED, Block, CallStatus
from thence.format.normal import Kind, one_line
from thence.format.records import JSON, count, text_of, word

Item = dict[str, JSON]

INJECTED = (
    "<environment_context>",
    "<turn_aborted>",
    "<subagent_notification>",
    "<user_instructions>",
    "<user_action>",
    "<user_shell_command>",
    "<INSTRUCTIONS>",
    "<skill>",
    "<goal_context>",
    "<codex_internal_context",
    "<recommended_plugins>",
    "<permissions instructions>",
    "<collaboration_mode>",
    "<model_switch>",
    "<hook_prompt",
)
"""How texts begin that Codex, not the human, puts into the user's mouth, up to a closing tag."""

AGENTS = "# AGENTS.md instructions"
_AGENTS_END = "</INSTRUCTIONS>"
SUMMED_UP = "Another language model started to solve this problem"
_EDITOR = "# Context from my IDE setup:"
_REQUEST = "## My request for Codex:"
_IMAGE = ("<image", "</image>")

CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"})
RESULTS = frozenset({
    "function_call_output",
    "custom_tool_call_output",
    "local_shell_call_output",
    "tool_search_output",
})  # fmt: skip
SERVED = frozenset({"web_search_call", "image_generation_call"})
"""Calls that the model's server runs itself: no id, no result."""


# -- who said it ----------------------------------------------------------------------------


def request(text: str) -> str | None:
    """Return what the human said in a text of role user; None when all of it is Codex's own."""
    rest = text.lstrip()
    while (after := _after_injected(rest)) is not None:
        if not after:
            return None
        rest = after
    if _REQUEST in rest and (rest is not text.lstrip() or rest.startswith(_EDITOR)):
        return rest.split(_REQUEST, 1)[1].strip()
    return rest


def _after_injected(text: str) -> str | None:
    """Return what follows Codex's own text at the start; None when there is none of it."""
    if text.startswith((SUMMED_UP, RECORDED)):
        return ""
    if text.startswith(AGENTS):
        end = _AGENTS_END
    else:
        tag = next((tag for tag in INJECTED if text.startswith(tag)), None)
        if tag is None:
            return None
        end = f"</{tag.strip('<>')}>"
        if end not in text:  # "<permissions instructions>" and the like
            end = f"</{tag.strip('<>').partition(' ')[0]}>"
    at = text.rfind(end)
    if at < 0:
        at, end = text.find(_REQUEST), ""
    return text[at + len(end) :].strip() if at >= 0 else ""


# -- blocks ---------------------------------------------------------------------------------


def parts(content: JSON) -> list[JSON]:
    """Return message content as a list, whatever shape it was written in."""
    if isinstance(content, list):
        return content
    return [content] if isinstance(content, (str, dict)) else []


def api_part(part: JSON) -> Item | None:
    """Return one part of a message or a result as the Messages API has it; None when it cannot."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        return None
    text, kind = part.get("text"), part.get("type")
    if isinstance(text, str) and kind != "encrypted_content":
        return {"type": "text", "text": text}
    return _image(part.get("image_url")) if kind == "input_image" else None


def _image(url: JSON) -> Item | None:
    if isinstance(url, dict):
        url = url.get("url")
    if not isinstance(url, str) or not url:
        return None
    head, _, data = url.partition(",")
    if not head.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    media = head[5:].partition(";")[0]
    return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}


def user_blocks(item: Item) -> tuple[tuple[Block, ...], str | None]:
    """Return the blocks of a user message, and what the human said in it, if it was a human."""
    part_kinds = _kinds(item)
    block_requests: list[tuple[Item, str | None]] = []
    for number, part in enumerate(parts(item.get("content"))):
        if (block := api_part(part)) is not None:
            block_requests.append(
                (block, _request_in(block, part_kinds[number] if number < len(part_kinds) else ""))
            )
    prompt = next((s for _, s in block_requests if s and not s.startswith(_IMAGE)), "")
    out: list[Block] = []
    human = False
    for block, words in block_requests:
        if words is None:
            out.append(Block("lifecycle", "user", one_line(word(block.get("text"))), block))
            continue
        # The first of them stands for the prompt, also where a picture precedes the words.
        short = one_line(words if human else prompt or "[image]")
        out.append(Block("user_msg", "user", short, block))
        human = True
    return tuple(out), prompt if human else None


def _kinds(item: Item) -> list[JSON]:
    """What the writer says each part is, where it does."""
    more = item.get("internal_chat_message_metadata_passthrough")
    named = more.get("content_item_kinds") if isinstance(more, dict) else None
    return named if isinstance(named, list) else []


def _request_in(block: Item, kind: JSON) -> str | None:
    """Return what a human said in one part; empty for a picture, None when it is Codex's."""
    text = block.get("text")
    if isinstance(kind, str) and "." in kind and not kind.startswith("user."):
        return None
    if not isinstance(text, str):
        return ""
    return text if kind == "user.text" and _EDITOR not in text[:200] else request(text)


def assistant_blocks(item: Item, *, compacts: bool) -> tuple[Block, ...]:
    """Return the blocks of the model's message; one that sums up for a compaction is no answer."""
    return _content_blocks(item, "lifecycle" if compacts else "assistant_msg", "assistant")


def _content_blocks(item: Item, kind: Kind, role: str) -> tuple[Block, ...]:
    """Return the parts of a message that the Messages API takes, as blocks of one kind."""
    return tuple(
        Block(kind, role, one_line(word(block.get("text"))), block)
        for part in parts(item.get("content"))
        if (block := api_part(part)) is not None
    )


def thought(item: Item) -> Block:
    """Return the readable part of a thought. One that is all encrypted shows nothing."""
    text = "\n\n".join(
        word(part.get("text"))
        for name in ("summary", "content")
        for part in parts(item.get(name))
        if isinstance(part, dict)
    )
    payload = {"type": "thinking", "thinking": text}
    return Block("thinking", "assistant" if text else "system", one_line(text), payload)


def call_block(item: Item) -> Block:
    """Return a call. Arguments that are no JSON stay the text the model wrote."""
    kind, tool = word(item.get("type")), word(item.get("name"))
    space = item.get("namespace")
    if isinstance(space, str) and space.startswith("mcp__"):
        tool = f"{space}__{tool}"
    if kind == "custom_tool_call":
        arguments = item.get("input")
    elif kind == "local_shell_call":
        tool, arguments = tool or "local_shell", item.get("action")
    elif kind in SERVED:
        tool, arguments = kind.removesuffix("_call"), item.get("action")
    else:
        tool = tool or kind.removesuffix("_call")
        arguments = parse_arguments(item.get("arguments"))
    call = call_id(item) if kind not in SERVED else None
    # Without an id no result can answer it: shown, but not sent as a call.
    role = "system" if call is None else "assistant"
    return Block("tool_call", role, "", arguments, tool, call)


def call_id(item: Item) -> str | None:
    """Return the id that a call and its result share."""
    return word(item.get("call_id")) or word(item.get("id")) or None


def result_block(item: Item) -> Block:
    """Return a result: the text as it was written, lists as blocks of the Messages API."""
    content, failed = item.get("output"), None
    if item.get("type") == "tool_search_output":
        content = encode_json(item.get("tools"))
    if isinstance(content, dict):
        done = content.get("success")
        failed = not done if isinstance(done, bool) else None
        content = content.get("content", [content])
    if isinstance(content, list):
        content = [block for part in content if (block := api_part(part)) is not None]
    return Block(
        "tool_result", "tool", one_line(text_of(content)), content, None, call_id(item), failed
    )


def decoded_result(block: Block) -> Block:
    """Return a result whose text is what the program printed, not JSON that holds it."""
    text = block.payload
    if not isinstance(text, str) or (plain := output.decode_output(text)) is text:
        return block
    return msgspec.structs.replace(block, summary=one_line(plain), payload=plain)


def encode_json(value: JSON) -> str:
    """Write any value as JSON text."""
    try:
        return msgspec.json.encode(value).decode("utf-8", "replace")
    except (ValueError, TypeError, RecursionError):  # lone surrogates, or too deep
        return repr(value) if not isinstance(value, (dict, list)) else ""


def mail(item: Item) -> tuple[Block, ...]:
    """Return a message between agents. Its task may be encrypted, and is then not shown."""
    who = {"author": item.get("author"), "recipient": item.get("recipient")}
    own = _content_blocks(item, "lifecycle", "user")
    return own or (Block("lifecycle", "system", "agent_message", who),)


def replacement(record: Item) -> tuple[Block, ...]:
    """Return the history that a compaction leaves; no block of it is an event again."""
    history = [
        block
        for item in parts(record.get("replacement_history"))
        for block in _history_blocks(item)
    ]
    message = record.get("message")
    if not history and isinstance(message, str) and message.strip():
        history = [Block("lifecycle", "user", one_line(message), {"type": "text", "text": message})]
    return tuple(history)


def _history_blocks(item: JSON) -> list[Block]:
    if not isinstance(item, dict):
        return []
    kind, role = word(item.get("type")), word(item.get("role"))
    if kind in CALLS:
        call = call_block(item)
        payload = {"type": "tool_use", "id": call.call, "name": call.tool, "input": call.payload}
        return [Block("lifecycle", call.role, line_of(call), payload)]
    if kind in RESULTS:
        result = decoded_result(result_block(item))
        payload = {
            "type": "tool_result",
            "tool_use_id": result.call,
            "content": result.payload,
        }
        return [Block("lifecycle", "user", result.summary, payload)]
    if role not in ("user", "assistant"):
        return []
    return list(_content_blocks(item, "lifecycle", role))


# -- how calls went -------------------------------------------------------------------------


def call_statuses(record: Item) -> tuple[CallStatus, ...]:
    """Return what a finished item, or an old `…_end` event, says of its call."""
    call = word(record.get("call_id")) or word(record.get("id"))
    if not call:
        return ()
    code = integer_of(record.get("exit_code"))
    failed = code != 0 if code is not None else _has_failed(record)
    return (CallStatus(call, failed, code, _duration_ms(record.get("duration"))),)


def _has_failed(record: Item) -> bool | None:
    result, done, status = record.get("result"), record.get("success"), record.get("status")
    if isinstance(result, dict):
        inner = result.get("Ok", result)
        wrong = inner.get("isError") if isinstance(inner, dict) else None
        if "Err" in result or wrong is True:
            return True
    if isinstance(done, bool):
        return not done
    return {"failed": True, "declined": True, "completed": False}.get(word(status))


def _duration_ms(duration: JSON) -> int | None:
    if not isinstance(duration, dict):
        return None
    return count(duration.get("secs")) * 1000 + count(duration.get("nanos")) // 1_000_000
