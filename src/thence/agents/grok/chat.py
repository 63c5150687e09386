"""Grok's chat history: what the model is shown, row by row.

Beside a log (`updates.jsonl`) it is only a mirror that is rewritten at will: it gives no events,
but tells results that a killed process had no time to log. Older versions kept nothing else; then
it is the log. The same rows make up the history that a compaction puts in place of the old one.

Rows hold no times and none are made up. Invariants: nothing in a row raises; text that the
harness put into the user's mouth is never a prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from thence.agents import File, Mark, Source
from thence.agents.files import clean_carry
from thence.agents.records import (
    LineReader,
    Record,
    call,
    line_of,
    objects,
    parse_arguments,
    result,
    text,
    thought,
)
from thence.format.codec import RawRecord
from thence.format.facts import Block, CallStatus, Fact, answers_of, calls_of
from thence.format.nodes import PREVIOUS, Is, Node
from thence.format.normal import one_line
from thence.format.records import JSON, blocks, text_of, word

NOT_RUN = "Tool execution was cancelled by the user (tool "
"""How the client answers, at its next start, for every call that a crash left open.

It says so of calls that did run as well, so that it is no result."""

NO_BILLS = "this client version writes no usage"

_OPEN, _CLOSE = "<user_query>", "</user_query>"
_INJECTED = ("<user_info>", "<git_status>", "<system-reminder>", "<agent_skills>", "<mcp_servers>")
_MAX_IDS = 64  # backend calls come twice, never far apart


class ChatRow(NamedTuple):
    """A row: whose it is, and its blocks."""

    who: str
    blocks: tuple[Block, ...]
    prompt: bool = False
    backend: frozenset[str | None] = frozenset()
    """Calls of tools that ran at the API: some versions tell them twice."""


def row_of(value: Record) -> ChatRow:
    """Read a row of any version."""
    who = word(value.get("type")) or word(value.get("role"))
    if who == "user":
        return _user(value)
    if who == "assistant":
        ran = tuple(_raw(value.get("raw_output")))
        parts = (*_assistant(value), *ran)
        return ChatRow(who, parts, backend=frozenset(calls_of(ran)))
    if who in ("tool_result", "tool"):
        return ChatRow("tool", (_result(value),))
    if who == "reasoning":
        words = "\n".join(word(part.get("text")) for part in blocks(value.get("summary")))
        return ChatRow(who, (thought(words),))
    if who == "backend_tool_call":
        ran = tuple(_backend(value.get("kind")))
        return ChatRow(who, ran, backend=frozenset(calls_of(ran)))
    return ChatRow(who, (Block("lifecycle", "system", who or "unknown", value),))


def _user(value: Record) -> ChatRow:
    content = value.get("content")
    reason = value.get("synthetic_reason")
    injected = reason not in (None, "interjection") or is_injected(text_of(content))
    made = [picture(part) for part in blocks(content)]
    if injected:
        parts = tuple(Block("lifecycle", "user", one_line(_words(part)), part) for part in made)
    else:
        parts = tuple(_prompt_block(part) for part in made)
    return ChatRow("user", parts, prompt=not injected and bool(parts))


def is_injected(text: str) -> bool:
    """Return whether a text in the user's name is one that the client wrote."""
    return text.lstrip().startswith(_INJECTED) and _OPEN not in text


def _prompt_block(part: Record) -> Block:
    words = part.get("text")
    if isinstance(words, str) and _OPEN in words:
        words = words.partition(_OPEN)[2].partition(_CLOSE)[0].strip("\n")
        part = {"type": "text", "text": words}
    return Block("user_msg", "user", one_line(_words(part)), part)


def picture(part: Record) -> Record:
    """Return a block of content as the Messages API has it, pictures of either spelling."""
    kind = part.get("type")
    if kind == "image":
        head, _, data = word(part.get("url")).partition(";base64,")
        media = head.removeprefix("data:") if data else word(part.get("mimeType"))
        source = {"type": "base64", "media_type": media, "data": data or word(part.get("data"))}
        return {"type": "image", "source": source}
    if kind in ("resource_link", "resource", "audio"):
        inner = part.get("resource")
        resource = inner if isinstance(inner, dict) else part
        return {
            "type": "text",
            "text": word(resource.get("text")) or word(resource.get("uri")) or kind,
        }
    return part


def _words(part: Record) -> str:
    return word(part.get("text")) or word(part.get("type"))


def _assistant(value: Record) -> Iterator[Block]:
    if reasoning := text(value.get("reasoning_content")):
        yield thought(reasoning)
    for part in blocks(value.get("content")):
        if words := word(part.get("text")):
            yield Block("assistant_msg", "assistant", one_line(words), part)
    for request in objects(value.get("tool_calls")):
        inner = request.get("function")
        function = inner if isinstance(inner, dict) else request
        arguments = parse_arguments(function.get("arguments"))
        yield call(word(function.get("name")), arguments, text(request.get("id")))


def _raw(items: JSON) -> Iterator[Block]:
    """Tools that ran at the API, among the raw items of a reply."""
    for item in objects(items):
        if word(item.get("type")).endswith("_call") and item.get("type") != "function_call":
            yield from _backend({"tool_type": word(item.get("type"))[: -len("_call")], **item})


def _backend(item: JSON) -> Iterator[Block]:
    """A tool that ran at the API: its call and what came of it, in one row."""
    if not isinstance(item, dict):
        yield Block("lifecycle", "system", "backend_tool_call", item)
        return
    tool, action = word(item.get("tool_type")) or "backend", item.get("action")
    name, status = text(item.get("id")), word(item.get("status"))
    yield call(tool, action, name)
    if status:
        yield Block("tool_result", "tool", status, status, tool, name, status != "completed")


def result_content(text: JSON, images: list[Record]) -> JSON:
    """Return the content of a result: its text, with the images that go with it behind it."""
    if not images:
        return text
    return [*(part for part in blocks(text) if part.get("text")), *map(picture, images)]


def _images(value: Record) -> list[Record]:
    return [part for part in objects(value.get("images")) if part.get("type") == "image"]


def _result(value: Record) -> Block:
    content = result_content(value.get("content"), _images(value))
    return result(content, text(value.get("tool_call_id")), None, failed=None)


def replacement(history: JSON) -> tuple[Block, ...]:
    """The blocks of a compacted history: they go to the model and are nobody's events again."""
    out: list[Block] = []
    for value in objects(history):
        for block in row_of(value).blocks:
            payload = _api_block(block)
            if block.role != "system" and payload is not None:
                out.append(Block("lifecycle", block.role, line_of(block), payload))
    return tuple(out)


def _api_block(block: Block) -> JSON:
    if block.kind == "tool_call":
        return {"type": "tool_use", "id": block.call, "name": block.tool, "input": block.payload}
    if block.kind == "tool_result":
        return {"type": "tool_result", "tool_use_id": block.call, "content": block.payload}
    return block.payload if isinstance(block.payload, dict) else None


# -- the file -------------------------------------------------------------------------------


class Mirror(LineReader):
    """The chat history beside a log: it tells results, and nothing else."""

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Tell the result in a row, if there is one."""
        value = entry.value
        if (value.get("type") or value.get("role")) not in ("tool_result", "tool"):
            return
        name = text(value.get("tool_call_id"))
        output = result_content(value.get("content"), _images(value))
        if name is None or output is None or text_of(output).startswith(NOT_RUN):
            return
        node = Node(self._name(entry))
        yield self._fact(entry, node, "tool_result", told=(CallStatus(name, output=output),))


class ChatLog(LineReader):
    """The chat history of a session that has no other log."""

    carries = ("calls", "replied")
    """The last calls, and whether a reply came that nobody billed."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        """Go on after the rows before."""
        super().__init__(source, file, mark)
        known = self._carried.get("calls", ())
        self._calls: list[str] = [name for name in known if isinstance(name, str)]
        self._replied = self._carried.get("replied") is True

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return the events of a row."""
        row = row_of(entry.value)
        known = {name for name in row.backend if name and clean_carry(name) in self._calls}
        parts = tuple(
            block for block in row.blocks if block.call is None or block.call not in known
        )
        parts = parts or (Block("lifecycle", "system", row.who or "unknown", entry.value),)
        calls, answers = calls_of(parts), answers_of(parts)
        self._calls = [*self._calls, *map(clean_carry, calls)][-_MAX_IDS:]
        yield self._fact(
            entry,
            Node(self._name(entry), PREVIOUS, _flags(row, parts), calls, answers),
            row.who,
            blocks=parts,
            model=text(entry.value.get("model_id")),
            unbilled=NO_BILLS if row.who == "assistant" and not self._replied else None,
        )
        self._replied = self._replied or row.who == "assistant"


def _flags(row: ChatRow, parts: tuple[Block, ...]) -> int:
    if row.prompt:
        return Is.PROMPT
    if all(block.role == "system" for block in parts):
        return Is.INTERNAL
    if row.who in ("assistant", "reasoning", "backend_tool_call"):
        rests = row.who == "assistant" and not calls_of(parts)
        return Is.REPLY | (Is.ENDS if rests else 0)
    return 0
