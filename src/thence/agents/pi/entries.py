"""The entries of one log of pi's as facts.

Entries form a tree; the last one is where the session stands. Logs of the first version have no
ids: their lines follow one another. Opening an old log rewrites all of it with new ids, so bills
are known by the moment and the response they belong to. A fork begins with copies that have the
same ids and times. Ids have 8 digits and repeat by chance: copies are known by id and time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Any

from thence.agents import File, Mark, Source
from thence.agents.pi.names import session_in
from thence.agents.records import (
    LineReader,
    Record,
    answer,
    call,
    fields,
    image,
    injected_text,
    moment,
    note,
    prompt,
    result,
    text,
    thought,
    usage_beside_cache,
)
from thence.format.codec import RawRecord
from thence.format.facts import (
    Block,
    CallStatus,
    Edge,
    Fact,
    answers_of,
    calls_of,
    handed_over_edges,
)
from thence.format.nodes import PREVIOUS, Is, Node, Span
from thence.format.normal import one_line
from thence.format.records import JSON, blocks, count, dollars, text_of, word

COMPACTION = "the compaction request is not in the log"
CUT_OFF = "a response was cut off before its usage was written"

_COUNTS = ("input", "output", "cacheWrite", "cacheRead")
_EXIT = re.compile(r"Command exited with code (-?\d{1,9})\s*\Z")

_STOPS = {"stop": Is.ENDS, "length": Is.ENDS, "error": Is.ENDS, "aborted": Is.INTERRUPTS}


def is_record(value: Record) -> bool:
    """Return whether an object on a damaged line is an entry and no part of one."""
    return isinstance(value.get("type"), str) and isinstance(value.get("timestamp"), str)


class PiEntries(LineReader):
    """The entries of one log."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        super().__init__(source, file, mark)
        self._parent: str | None = text(self._carried.get("parent"))
        self._created = word(self._carried.get("created"))
        self._makers: dict[str, Callable[[RawRecord, Record], tuple[Fact, ...]]] = {
            "session": self._header,
            "message": self._message,
            "compaction": self._compaction,
            "branch_summary": self._branch_summary,
            "custom_message": self._custom_message,
        }

    def carry(self) -> JSON:
        """Return the parent that the header names, until the first entry tells what it is."""
        return {"parent": self._parent, "created": self._created} if self._parent else None

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return the facts of one entry."""
        record = entry.value
        ties = () if record.get("type") == "session" else self._tie(entry, record)
        return (*self._makers.get(word(record.get("type")), self._other)(entry, record), *ties)

    # -- frame --------------------------------------------------------------------------

    def _node(self, entry: RawRecord, record: Record, flags: int = 0, **more: Any) -> Node:
        own = text(record.get("id"))
        if own is None:
            return Node(self._name(entry), PREVIOUS, flags, **more)
        return Node(own, text(record.get("parentId")), flags, **more)

    def _event(
        self, entry: RawRecord, record: Record, node: Node, *parts: Block, **more: Any
    ) -> Fact:
        message = fields(record.get("message"))
        when = message.get("timestamp") or record.get("timestamp")
        own = text(record.get("id"))
        key = f"{own}:{when}" if own else blake2b(entry.raw.strip(), digest_size=12).hexdigest()
        if tie := handed_over_edges(record.get("handedFrom"), None):
            more["origin"] = tie[0].session  # counted where it was said
        return self._fact(
            entry,
            node,
            word(record.get("type")),
            ts=moment(record.get("timestamp")),
            blocks=parts,
            copy_key=key,
            **more,
        )

    def _tie(self, entry: RawRecord, record: Record) -> tuple[Fact, ...]:
        """Return the tie to the parent: a fork begins with entries older than itself.

        It is a fact of its own, as the entry belongs to the parent.
        """
        parent, self._parent = self._parent, None
        if parent is None:
            return ()
        is_copy = word(record.get("timestamp")) < self._created
        edge = Edge("fork" if is_copy else "resume", parent, "parentSession")
        node = Node(f"{self._file.key}#parent", flags=Is.INTERNAL)
        return (self._fact(entry, node, "parentSession", edges=(edge,)),)

    # -- entries ------------------------------------------------------------------------

    def _header(self, entry: RawRecord, record: Record) -> tuple[Fact, ...]:
        """Return what the first line says; forks copy all lines but this."""
        parent = PurePosixPath(word(record.get("parentSession")).replace("\\", "/")).name
        self._parent = session_in(parent)
        self._created = word(record.get("timestamp"))
        about = {"cwd": text(record.get("cwd")), "model": text(record.get("modelId"))}
        source = fields(record.get("thenceHandoff"))
        node = Node(self._name(entry), None, Is.INTERNAL)
        return (
            self._fact(
                entry,
                node,
                "session",
                ts=moment(record.get("timestamp")),
                blocks=(note("session", record),),
                about={name: value for name, value in about.items() if value},
                edges=handed_over_edges(source.get("from"), source.get("event")),
            ),
        )

    def _message(self, entry: RawRecord, record: Record) -> tuple[Fact, ...]:
        message = fields(record.get("message"))
        role = message.get("role")
        if role == "user":
            parts = _prompt_blocks(message.get("content"))
            return (self._event(entry, record, self._node(entry, record, Is.PROMPT), *parts),)
        if role == "assistant":
            return (self._reply(entry, record, message),)
        if role == "toolResult":
            return (self._result(entry, record, message),)
        if role == "bashExecution":
            return (self._event(entry, record, self._node(entry, record), _bash(message)),)
        if role in ("custom", "hookMessage"):
            return self._injected_event(entry, record, message)
        block = note(word(role) or "message", record)
        return (self._event(entry, record, self._node(entry, record, Is.INTERNAL), block),)

    def _reply(self, entry: RawRecord, record: Record, message: Record) -> Fact:
        stop = word(message.get("stopReason"))
        parts = [part for block in blocks(message.get("content")) if (part := _answer_block(block))]
        if stop == "error":
            line = word(message.get("errorMessage")) or "the request failed"
            parts.append(Block("error", "system", one_line(line), message))
        node = self._node(
            entry,
            record,
            Is.REPLY | _STOPS.get(stop, 0),
            calls=calls_of(parts),
            response=text(message.get("responseId")),
        )
        usage = usage_beside_cache(message.get("usage"), _COUNTS)
        # Zeros stand for a usage that was never told, as of an answer that was cut off.
        if usage is not None and not usage.total:
            usage = None
        when = message.get("timestamp")
        key = f"{word(message.get('responseId'))}:{when}" if when else text(record.get("id"))
        return self._event(
            entry,
            record,
            node,
            *(parts or [note("empty answer", message)]),
            model=text(message.get("model")),
            usage=usage,
            usage_key=key if usage else None,
            cost_usd=_cost(message.get("usage")) if usage else None,
            unbilled=CUT_OFF if usage is None and stop == "aborted" else None,
        )

    def _result(self, entry: RawRecord, record: Record, message: Record) -> Fact:
        name, tool = text(message.get("toolCallId")), text(message.get("toolName"))
        wrong = message.get("isError")
        failed = wrong if isinstance(wrong, bool) else None
        content = [_picture(part) for part in blocks(message.get("content"))]
        block = result(content, name, tool, failed=failed)
        statuses: tuple[CallStatus, ...] = ()
        tail = text_of(content)[-200:]
        if name and tool == "bash" and (code := _EXIT.search(tail)):
            statuses = (CallStatus(name, failed, int(code[1])),)
        parts = [block]
        if fields(message.get("details")):
            parts.append(note("details of the result", message["details"]))
        node = self._node(entry, record, answers=answers_of([block]))
        return self._event(entry, record, node, *parts, told=statuses)

    def _compaction(self, entry: RawRecord, record: Record) -> tuple[Fact, ...]:
        """Return the summary, and which of the entries before it stay in view."""
        own, above = text(record.get("id")), text(record.get("parentId"))
        summary = injected_text(word(record.get("summary")))
        reason = None if record.get("fromHook") is True else COMPACTION
        if own is None or above is None:
            node = self._node(entry, record, Is.SUMMARY)
            return (self._event(entry, record, node, summary, unbilled=reason),)
        node = Node(own, None, Is.SUMMARY, logical=above)
        out = [self._event(entry, record, node, summary, unbilled=reason)]
        if first := text(record.get("firstKeptEntryId")):
            span_node = Node(f"{own} kept", own, Is.INTERNAL, span=Span(own, first, above))
            line = f"compacted, {count(record.get('tokensBefore'))} tokens"
            out.append(
                self._fact(entry, span_node, "compaction/kept", blocks=(note(line, record),))
            )
        return tuple(out)

    def _branch_summary(self, entry: RawRecord, record: Record) -> tuple[Fact, ...]:
        block = injected_text(word(record.get("summary")))
        reason = None if record.get("fromHook") is True else COMPACTION
        return (self._event(entry, record, self._node(entry, record), block, unbilled=reason),)

    def _custom_message(self, entry: RawRecord, record: Record) -> tuple[Fact, ...]:
        return self._injected_event(entry, record, record)

    def _injected_event(
        self, entry: RawRecord, record: Record, message: Record
    ) -> tuple[Fact, ...]:
        """Return text that an extension put into the conversation."""
        content = text_of(message.get("content"))
        block = Block("lifecycle", "user", one_line(content), message.get("content"))
        parts = [_part(part) for part in blocks(message.get("content"))] or [block]
        return (self._event(entry, record, self._node(entry, record), *parts),)

    def _other(self, entry: RawRecord, record: Record) -> tuple[Fact, ...]:
        kind = word(record.get("type"))
        node = self._node(entry, record, Is.INTERNAL)
        about: Record = {}
        line = kind or "unknown"
        if kind == "session_info" and (name := text(record.get("name"))):
            about["title:custom"] = line = name
        elif kind == "model_change" and (model := text(record.get("modelId"))):
            line = f"model {model}"
        return (self._event(entry, record, node, note(line, record), about=about),)


# -- content --------------------------------------------------------------------------------


def _picture(part: Record) -> Record:
    if part.get("type") == "image" and "source" not in part:
        return image(part.get("mimeType"), part.get("data"))
    return part


def _part(part: Record) -> Block:
    content = word(part.get("text"))
    return injected_text(content) if content else Block("lifecycle", "user", "", _picture(part))


def _prompt_blocks(content: JSON) -> list[Block]:
    """Return the blocks of a prompt."""
    out = [
        prompt(word(part.get("text")))
        if part.get("type") == "text"
        else Block("user_msg", "user", "", _picture(part))
        for part in blocks(content)
    ]
    return out or [prompt("")]


def _answer_block(part: Record) -> Block | None:
    """Return a block of an answer."""
    kind = part.get("type")
    if kind == "text":
        return answer(word(part.get("text")))
    if kind == "thinking":
        return thought(word(part.get("thinking")))
    if kind == "toolCall":
        return call(word(part.get("name")), part.get("arguments"), text(part.get("id")))
    return Block("assistant_msg", "assistant", "", _picture(part)) if kind == "image" else None


def _bash(message: Record) -> Block:
    """Return a command that the user ran; the model sees it unless it was left out."""
    command, output = word(message.get("command")), word(message.get("output"))
    content = f"$ {command}\n{output}"
    if message.get("excludeFromContext") is True:
        return note(f"! {command}", message)
    block = injected_text(content)
    return Block(block.kind, block.role, one_line(f"! {command}"), block.payload)


def _cost(value: JSON) -> float | None:
    """Return what pi says an answer cost; it says 0 where it knows no price."""
    return dollars(fields(fields(value).get("cost")).get("total")) or None
