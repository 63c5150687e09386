"""What the parts of a record say: blocks of either side, how calls went, and bills.

Pure functions over the values of one record, of any shape; nothing raises.
"""

from __future__ import annotations

from collections.abc import Iterable

from thence.agents.claude import text as texts
from thence.format.facts import TYPED, Block, CallStatus, message_blocks, result_block
from thence.format.nodes import Is
from thence.format.normal import one_line
from thence.format.records import JSON, Usage, blocks, count, text_of, word

Record = dict[str, JSON]

Bill = tuple[Usage | None, str | None, float | None, str | None]
"""Usage, the key that all records of the bill share, cost, and a rate that is not the usual."""

_TOKEN_KEYS = (
    *("input_tokens", "output_tokens"),
    *("cache_creation_input_tokens", "cache_read_input_tokens"),
)
_NO_BILL: Bill = (None, None, None, None)
_DURATION_KEYS = (("durationMs", 1), ("totalDurationMs", 1), ("durationSeconds", 1000))
_STATUS_KEYS = frozenset({"durationMs", "totalDurationMs", "durationSeconds", "exitCode"})


def has_results(content: list[JSON]) -> bool:
    """Whether a part of a message answers a call."""
    return any(isinstance(part, dict) and part.get("type") == "tool_result" for part in content)


def is_by_human(record: Record) -> bool:
    """Whether the record itself does not say that its words come from somebody else."""
    if record.get("isMeta") is True or record.get("promptSource") == "system":
        return False
    if record.get("commandMode") == "task-notification":
        return False
    origin = record.get("origin")
    return not isinstance(origin, dict) or origin.get("kind", "human") == "human"


def assistant_blocks(content: JSON) -> tuple[Block, ...]:
    """Return the blocks of the model's side; a record nearly always holds one."""
    if type(content) is list and len(content) == 1 and type(block := content[0]) is dict:
        kind = block.get("type")
        if kind == "text":
            return (Block("assistant_msg", "assistant", one_line(word(block.get("text"))), block),)
        if kind == "thinking":
            return (Block("thinking", "assistant", one_line(word(block.get("thinking"))), block),)
        if kind == "tool_use":
            tool, asked, call = word(block.get("name")), block.get("input"), block.get("id")
            call = call if isinstance(call, str) else None
            return (Block("tool_call", "assistant", "", asked, tool, call),)
    return message_blocks(content, "assistant")


def as_client_text(block: Block) -> Block:
    """Return a text that the client wrote in the model's name as the client's own."""
    if block.kind != "assistant_msg":
        return block
    return Block("lifecycle", block.role, block.summary, block.payload)


def user_blocks(content: JSON, *, human: bool) -> tuple[tuple[Block, ...], int]:
    """Return the blocks of the user's side and what they are: a prompt, an interruption."""
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        block, flags = _part(content[0], human=human)  # as nearly always
        return (block,), flags
    out: list[Block] = []
    flags = 0
    for part in blocks(content):
        block, more = _part(part, human=human)
        out.append(block)
        flags |= more
    return tuple(out) or (Block("lifecycle", "user"),), flags


def _part(block: Record, *, human: bool) -> tuple[Block, int]:
    kind = block.get("type")
    if kind == "tool_result":
        return result_block(block), 0
    if kind != "text":
        if human:
            return Block("user_msg", "user", "", block), Is.PROMPT
        return Block("lifecycle", "user", word(kind), block), 0
    text = word(block.get("text"))
    if human and (typed := texts.slash_prompt(text)) is not None:
        return Block("user_msg", "user", one_line(typed), {**block, TYPED: typed}), Is.PROMPT
    prompt = texts.prompt(text) if human else None
    if prompt is not None:
        return Block("user_msg", "user", one_line(prompt), block), Is.PROMPT
    flags = Is.INTERRUPTS | Is.BY_USER if text.startswith(texts.INTERRUPTS) else 0
    return Block("lifecycle", "user", texts.note(text), block), flags


def is_repair(result: Block) -> bool:
    """Whether a result was written by a client that found a call without one."""
    return text_of(result.payload).startswith(texts.REPAIRED)


def call_statuses(parts: tuple[Block, ...], result: JSON) -> tuple[CallStatus, ...]:
    """How the calls went: a result that does not speak of an error was none."""
    took = code = None
    wrong = isinstance(result, str) and result.startswith("Error: ")
    if isinstance(result, dict) and not _STATUS_KEYS.isdisjoint(result):
        for name, unit in _DURATION_KEYS:
            value = result.get(name)
            if value is not None and isinstance(value, (int, float)) and 0 < value < 2**40:
                took = round(value * unit)
        exit_code = result.get("exitCode")
        code = exit_code if type(exit_code) is int else None
    if len(parts) == 1 and (call := parts[0].call) is not None:  # as nearly always
        failed = parts[0].failed
        return (CallStatus(call, wrong if failed is None else failed, code, took),)
    out: list[CallStatus] = []
    for block in parts:
        if block.kind == "tool_result" and block.call is not None:
            failed = wrong if block.failed is None else block.failed
            out.append(CallStatus(block.call, failed, code, took))
    return tuple(out)


def search_bill(fields: Record, call: str | None) -> Record:
    """What a web search costs: its count is told here, the tokens of its request nowhere."""
    return {
        "usage": Usage(web_searches=count(fields.get("searchCount"))),
        "usage_key": f"search:{call}",
        "unbilled": "the web search request is not in the log",
    }


def bill(record: Record, message: Record) -> Bill:
    """The bill of an answer, which all records of one response repeat."""
    usage = message.get("usage")
    if not isinstance(usage, dict):
        return _NO_BILL
    message_id, request_id = word(message.get("id")), word(record.get("requestId"))
    key = (
        f"{message_id}:{request_id}" if message_id and request_id else message_id or request_id
    ) or None
    speed, tier, cost = usage.get("speed"), usage.get("service_tier"), record.get("costUSD")
    if speed == "fast":
        tier = speed
    if cost is not None:
        real = isinstance(cost, (int, float)) and not isinstance(cost, bool)
        cost = float(cost) if real else None
    return _usage(usage), key, cost, tier if tier != "standard" and isinstance(tier, str) else None


def _usage(usage: Record) -> Usage:
    cached, server = usage.get("cache_creation"), usage.get("server_tool_use")
    long = cached.get("ephemeral_1h_input_tokens") if isinstance(cached, dict) else 0
    searches = server.get("web_search_requests") if isinstance(server, dict) else 0
    input_tokens, output_tokens, written, read = map(count, map(usage.get, _TOKEN_KEYS))
    return Usage(
        input_tokens,
        output_tokens,
        written,
        read,
        count(long) if long else 0,
        count(searches) if searches else 0,
    )


def text_chars(answer: Iterable[Block]) -> int:
    """Return how many characters of an answer the model wrote, runs of white space as one.

    Thoughts are left out: clients shorten and sign them.
    """
    return sum(map(_written_chars, answer))


def _written_chars(block: Block) -> int:
    payload = block.payload
    if block.kind == "assistant_msg" and isinstance(payload, dict):
        return len(" ".join(word(payload.get("text")).split()))
    if block.kind == "tool_call" and isinstance(payload, dict):
        return sum(len(" ".join(value.split())) for value in payload.values() if type(value) is str)
    return 0
