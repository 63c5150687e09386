"""What OpenCode tells of messages and their parts, version by version, as facts.

A message is one answer of the model or one prompt; what was said stands in its parts, which are
written empty first and again when they are whole. An answer's text is told when it is finished, a
call when it runs, its result when it has ended, and the bill with the first tokens: so the same
facts are made of every version, and of the last one alone.

A fork copies messages under new ids; times, texts, calls and tokens stay, and they are what copies
are known by. An undo leaves the messages where they are until the next prompt removes them: what
goes on is linked to the place that was gone back to, and what was undone stays as a dead branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, Final

import msgspec

from thence.agents import File, Mark, Source
from thence.agents.files import clean_carry
from thence.agents.records import (
    LineReader,
    Record,
    answer,
    call,
    fields,
    image,
    injected_text,
    integer_of,
    moment,
    note,
    objects,
    prompt,
    result,
    text,
    thought,
    unindexed_note,
)
from thence.format.codec import RawRecord
from thence.format.facts import (
    TYPED,
    Block,
    CallStatus,
    Edge,
    Fact,
    answers_of,
    calls_of,
    handed_over_edges,
)
from thence.format.nodes import Is, Node, Span
from thence.format.normal import one_line
from thence.format.records import JSON, Usage, count, dollars, word

KILLED: Final = "the request ended before its tokens were written"
TITLE: Final = "the title request is not in the log"
THOUGHTS: Final = "whether the output has the thoughts in it is not in the log"

_DEFAULT_TITLE_PREFIXES: Final = ("New session - ", "Child session - ")
_MAX_KNOWN_MESSAGES: Final = 256  # messages that later records may name; older ones are forgotten
# An answer that ends with one of these is followed by another request of the same turn.
_BOOKS: Final = ("session.", "message.part.", "todo.", "permission.", "file.", "lsp.", "server.")
"""How events begin that say nothing of what was said."""
_BOOK_PARTS: Final = ("text", "reasoning", "tool", "step-start", "step-finish", "snapshot", "patch")
"""Parts that are told elsewhere, or that keep the client's books."""
_UNFINISHED_REASONS: Final = ("tool-calls", "unknown", "")
_TRANSIENT: Final = "kilocode.lifecycle"
HANDED_OVER: Final = "thence"
"""The name in a part's metadata under which the session stands that it was copied from."""


class _Message(msgspec.Struct, omit_defaults=True):
    """What is remembered of a message."""

    role: str = ""
    created: JSON = None
    before: str | None = None
    first: str | None = None
    model: str | None = None
    bill: str | None = None
    bills: int = 0
    is_done: bool = msgspec.field(name="done", default=False)
    is_summary: bool = msgspec.field(name="summary", default=False)
    failed: bool = False
    parts: dict[str, int] = {}

    def key(self, kind: str, name: str) -> str:
        """Return what copies of one of its records have in common."""
        return f"{self.created}:{kind}:{name}"


class OpenCodeMessages(LineReader):
    """The messages of one session."""

    carries = ("last", "title", "cwd", "parent", "undone", "left", "tail", "handed")
    """What the next record goes on from."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        super().__init__(source, file, mark)
        self._adapter = source.adapter
        saved = fields(self._carried.get("messages"))
        self._messages = {name: msgspec.convert(state, _Message) for name, state in saved.items()}
        self._last = text(self._carried.get("last"))
        self._title = text(self._carried.get("title"))
        self._cwd = text(self._carried.get("cwd"))
        self._parent = text(self._carried.get("parent"))
        self._undone = text(self._carried.get("undone"))
        self._left = text(self._carried.get("left"))
        self._tail = text(self._carried.get("tail"))
        self._handed = self._carried.get("handed") is True

    def carry(self) -> JSON:
        """Return it, and the last messages."""
        messages = msgspec.to_builtins(self._messages)
        return {**({"messages": messages} if messages else {}), **fields(super().carry())}

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return the facts of one version of a session, a message or a part."""
        kind = word(entry.value.get("type")).rstrip("0123456789").rstrip(".")
        data = fields(entry.value.get("data"))
        if kind in ("session.created", "session.updated"):
            return self._session_facts(entry, fields(data.get("info")))
        if kind == "message.updated":
            return self._message_facts(entry, fields(data.get("info")))
        if kind == "message.part.updated":
            return self._part_facts(entry, fields(data.get("part")))
        if kind == "message.removed":
            return self._removal_facts(entry, word(data.get("messageID")))
        if not kind or kind.startswith(_BOOKS):
            return ()
        node = Node(word(entry.value.get("id")) or self._name(entry), flags=Is.INTERNAL)
        return (self._fact(entry, node, kind, blocks=(note(kind, entry.value),)),)

    # -- frame --------------------------------------------------------------------------

    def _make_event(
        self, entry: RawRecord, node: Node, kind: str, when: JSON, *blocks: Block, **more: Any
    ) -> Fact:
        self._last = node.id
        if tie := _source(fields(fields(entry.value.get("data")).get("part"))):
            more["origin"] = tie[0].session  # counted where it was said
        return self._fact(entry, node, kind, ts=moment(when), blocks=blocks, **more)

    def _move_event(self, entry: RawRecord, above: str | None, summary: str) -> Fact:
        """Return a note behind the event that the session goes on from now."""
        node = Node(f"{word(entry.value.get('id'))} left", above)
        return self._make_event(entry, node, "revert", None, note(summary, None))

    # -- session ------------------------------------------------------------------------

    def _session_facts(self, entry: RawRecord, info: Record) -> Iterator[Fact]:
        about: Record = {}
        more: dict[str, Any] = {}
        title = text(info.get("title"))
        if title is not None and clean_carry(title) != self._title:
            was, self._title = self._title, clean_carry(title)
            if not title.startswith(_DEFAULT_TITLE_PREFIXES):
                about["title:ai"] = title
                if was is not None and was.startswith(_DEFAULT_TITLE_PREFIXES):
                    more["unbilled"] = TITLE
        cwd = text(info.get("directory"))
        if cwd is not None and self._cwd is None:
            self._cwd = cwd
            about |= {"cwd": cwd, "version": text(info.get("version"))}
        parent = text(info.get("parentID"))
        if parent is not None and self._parent is None:
            self._parent = parent
            more["edges"] = (Edge("subagent", parent, "parentID of the session"),)
        if about or more:
            node = Node(f"{word(entry.value.get('id'))} session", flags=Is.INTERNAL)
            when = moment(fields(info.get("time")).get("created"))
            yield self._fact(entry, node, "session", ts=when, about=about, **more)
        yield from self._revert_facts(entry, text(fields(info.get("revert")).get("messageID")))

    def _revert_facts(self, entry: RawRecord, target: str | None) -> Iterator[Fact]:
        """Yield where the session goes on after an undo, or after an undo was taken back."""
        if target == self._undone:
            return
        undone, self._undone = self._undone, target
        if target is not None and target in self._messages:
            if undone is None:
                self._left = self._last
            yield self._move_event(entry, self._messages[target].before, "undone up to here")
        elif target is None and undone in self._messages and self._left is not None:
            yield self._move_event(entry, self._left, "undo taken back")

    def _removal_facts(self, entry: RawRecord, name: str) -> Iterator[Fact]:
        """Yield where the session goes on without its last message."""
        was_last = bool(self._messages) and next(reversed(self._messages)) == name
        message = self._messages.pop(name, None)
        if message is not None and was_last and self._undone is None:
            yield self._move_event(entry, message.before, "message removed")

    # -- messages -----------------------------------------------------------------------

    def _message_facts(self, entry: RawRecord, info: Record) -> Iterator[Fact]:
        name = text(info.get("id"))
        if name is None:
            return
        message = self._messages.get(name)
        if message is None:
            message = self._messages[name] = _Message()
            message.before = self._last
            while len(self._messages) > _MAX_KNOWN_MESSAGES:
                del self._messages[next(iter(self._messages))]
        times = fields(info.get("time"))
        message.role = word(info.get("role"))
        message.created = times.get("created")
        message.model = text(info.get("modelID"))
        message.is_summary = info.get("summary") is True
        message.is_done = message.is_done or "completed" in times
        if message.role == "assistant":
            yield from self._bill_facts(entry, name, message, info)
            yield from self._error_facts(entry, name, message, info)

    def _bill_facts(
        self, entry: RawRecord, name: str, message: _Message, info: Record
    ) -> Iterator[Fact]:
        tokens = fields(info.get("tokens"))
        usage = _usage(tokens)
        times = fields(info.get("time"))
        if usage is None:
            return
        bill = ":".join(map(str, (message.created, *msgspec.structs.astuple(usage)[:4])))
        if bill == message.bill:
            return
        message.bill, message.bills = bill, message.bills + 1
        finish = word(info.get("finish"))
        ends = finish not in _UNFINISHED_REASONS and not message.is_summary
        node = Node(
            name if message.bills == 1 else f"{name} {message.bills}",
            self._last,
            Is.REPLY | (Is.ENDS if ends else 0),
        )
        yield self._make_event(
            entry,
            node,
            "model call",
            times.get("completed", times.get("created")),
            note("model call", {"finish": finish, "agent": info.get("agent")}),
            model=message.model,
            usage=usage,
            usage_key=bill,
            cost_usd=dollars(info.get("cost")) or None,
            unbilled=THOUGHTS if tokens.get("reasoning") and "total" not in tokens else None,
            copy_key=message.key("bill", str(message.bills)),
        )

    def _error_facts(
        self, entry: RawRecord, name: str, message: _Message, info: Record
    ) -> Iterator[Fact]:
        error = fields(info.get("error"))
        if not error or message.failed:
            return
        message.failed = True
        kind, data = word(error.get("name")), fields(error.get("data"))
        reason = text(data.get("message")) or kind
        is_cut = kind == "MessageAbortedError"
        flags = Is.INTERRUPTS | Is.BY_USER if is_cut else Is.REPLY | Is.ENDS
        what: Any = "lifecycle" if is_cut else "error"
        payload = {"type": "text", "text": f"{kind}: {reason}" if reason != kind else kind}
        when = fields(info.get("time")).get("completed", message.created)
        yield self._make_event(
            entry,
            Node(f"{name} error", self._last, flags),
            "error",
            when,
            Block(what, "system", one_line(reason), payload),
            copy_key=message.key("error", kind),
        )

    # -- parts --------------------------------------------------------------------------

    def _part_facts(self, entry: RawRecord, part: Record) -> Iterator[Fact]:
        name, kind = text(part.get("id")), part.get("type")
        message = self._messages.get(word(part.get("messageID")))
        if name is None or message is None:
            return
        before = self._last
        if not self._handed and (tie := _source(part)):
            self._handed = True
            node = Node(f"{name} handed over", flags=Is.INTERNAL)
            yield self._fact(entry, node, "session", edges=tie)
        if kind == "tool":
            yield from self._tool(entry, name, message, part)
        elif name not in message.parts and (made := self._part_event(entry, name, message, part)):
            message.parts[name] = 1
            yield made
            yield from self._span_facts(entry, name, message)
        if message.first is None and self._last != before:
            message.first = self._last

    def _part_event(
        self, entry: RawRecord, name: str, message: _Message, part: Record
    ) -> Fact | None:
        """Return what a part says once it is complete; None if it says nothing, or not yet."""
        kind = part.get("type")
        if kind == "compaction":
            self._tail = text(part.get("tail_start_id"))
            node = Node(name, self._last)
            block = note("compaction", {"auto": part.get("auto") is True})
            key = message.key("compaction", "")
            return self._make_event(entry, node, "compaction", message.created, block, copy_key=key)
        blocks = _blocks(message, part, is_side=self._parent is not None)
        if not blocks or not self._is_complete(message, part):
            return None
        times = fields(part.get("time"))
        summed = kind == "text" and message.is_summary
        flags = 0
        if message.role == "user":
            flags = Is.PROMPT if blocks[0].kind == "user_msg" else 0
        elif not summed:
            flags = Is.REPLY
        node = Node(name, self._last, flags)
        if summed:
            node = Node(name, None, Is.SUMMARY, logical=self._last)
        digest = blake2b(repr(blocks[0].payload).encode("utf-8", "replace"), digest_size=8)
        return self._make_event(
            entry,
            node,
            word(kind),
            times.get("start", message.created),
            *blocks,
            model=message.model,
            bill_due=self._due(message),
            copy_key=message.key(word(kind), digest.hexdigest()),
        )

    def _span_facts(self, entry: RawRecord, name: str, message: _Message) -> Iterator[Fact]:
        """Yield which messages before a compaction stay in view after its summary."""
        first = self._messages.get(self._tail or "")
        if message.is_summary and first is not None and first.first is not None:
            span = Span(name, first.first, message.before)
            node = Node(f"{name} kept", name, Is.INTERNAL, span=span)
            block = note("messages stay in view", None)
            yield self._fact(entry, node, "compaction", blocks=(block,))

    def _is_complete(self, message: _Message, part: Record) -> bool:
        times = part.get("time")
        if message.role == "user" or message.is_done or not isinstance(times, dict):
            return True
        return "end" in times

    def _due(self, message: _Message) -> str | None:
        return KILLED if message.role == "assistant" and message.bill is None else None

    # -- tools --------------------------------------------------------------------------

    def _tool(self, entry: RawRecord, name: str, message: _Message, part: Record) -> Iterator[Fact]:
        """Yield a call when it runs, and its result when it has ended."""
        state = fields(part.get("state"))
        status = state.get("status")
        if status not in ("running", "completed", "error"):
            return
        tool, call_id = word(part.get("tool")), text(part.get("callID")) or name
        times, metadata = fields(state.get("time")), fields(state.get("metadata"))
        child = text(metadata.get("sessionId")) if tool == "task" else None
        how = "sessionId of the call"
        edges = (Edge("subagent", child, how, call=call_id, child=True),) if child else ()
        stage = message.parts.get(name, 0)
        if stage == 0:
            message.parts[name] = 1
            block = call(tool, state.get("input"), call_id)
            yield self._make_event(
                entry,
                Node(name, self._last, Is.REPLY, calls=calls_of([block])),
                "tool",
                times.get("start", message.created),
                block,
                model=message.model,
                bill_due=self._due(message),
                edges=edges,
                copy_key=message.key("call", call_id),
            )
        if status == "running" or stage == 2:
            return
        message.parts[name] = 2
        blocks, statuses = _outcome(state, metadata, call_id, tool)
        yield self._make_event(
            entry,
            Node(f"{name} result", self._last, answers=answers_of(blocks)),
            "result",
            times.get("end", message.created),
            *blocks,
            told=statuses,
            edges=edges,
            copy_key=message.key("result", call_id),
        )


def _source(part: Record) -> tuple[Edge, ...]:
    """Return the tie to the session that a part was copied from; none for any other part."""
    source = fields(fields(part.get("metadata")).get(HANDED_OVER))
    return handed_over_edges(source.get("from"), source.get("event"))


def _usage(tokens: Record) -> Usage | None:
    """Return a usage: input stands beside the cache.

    Thoughts stand beside the output since 1.18 and are part of it before. The total tells; without
    one they are counted once.
    """
    cache, thoughts = fields(tokens.get("cache")), count(tokens.get("reasoning"))
    made = Usage(
        count(tokens.get("input")),
        count(tokens.get("output")),
        count(cache.get("write")),
        count(cache.get("read")),
    )
    if thoughts > made.output_tokens or count(tokens.get("total")) > made.total:
        made = msgspec.structs.replace(made, output_tokens=made.output_tokens + thoughts)
    return made if made.total else None


def _outcome(
    state: Record, metadata: Record, call_id: str, tool: str
) -> tuple[list[Block], tuple[CallStatus, ...]]:
    """Return the result of a call, and how it went."""
    is_error = state.get("status") == "error"
    output = state.get("error") if is_error else state.get("output")
    content: JSON = output if isinstance(output, str) else ""
    pictures = [
        picture
        for item in objects(state.get("attachments"))
        if (picture := _picture(item)) is not None
    ]
    if pictures:
        content = [{"type": "text", "text": content}, *pictures]
    times = fields(state.get("time"))
    start, end = times.get("start"), times.get("end")
    took = count(end) - count(start) if count(start) and count(end) else None
    code = integer_of(metadata.get("exit"))
    failed = True if is_error else None if code is not None else False
    blocks = [result(content, call_id, tool, failed=failed)]
    if diff := text(fields(metadata.get("filediff")).get("patch")) or text(metadata.get("diff")):
        blocks.append(note("details of the result", {"diff": diff}))
    return blocks, (CallStatus(call_id, failed, code, took if took is None else max(took, 0)),)


def _picture(part: Record) -> Record | None:
    """Return an image whose bytes stand in the part itself; None for anything else."""
    media, url = word(part.get("mime")), word(part.get("url"))
    if not media.startswith("image/") or not url.startswith("data:"):
        return None
    return image(media, url.partition(",")[2])


def _blocks(message: _Message, part: Record, *, is_side: bool) -> list[Block]:
    """Return the blocks of a part that is no call; none for what only keeps the books."""
    kind, content = part.get("type"), text(part.get("text"))
    if kind == "text" and content:
        if fields(part.get("metadata")).get(_TRANSIENT):
            return []
        return [_text(message, part, content, is_side=is_side)]
    if kind == "reasoning" and content:
        return [thought(content)]
    if kind == "file":
        if (picture := _picture(part)) is not None:
            return [Block("user_msg", "user", "", picture)]
        return [unindexed_note(f"file {word(part.get('filename'))}", part.get("url"))]
    if kind == "subtask":
        return [prompt(text(part.get("prompt")) or word(part.get("description")))]
    if kind == "retry":
        error = fields(fields(part.get("error")).get("data"))
        return [Block("error", "system", one_line(word(error.get("message"))), part.get("error"))]
    if kind == "agent":
        return [note(f"agent {word(part.get('name'))}", None)]
    if kind in _BOOK_PARTS or not isinstance(kind, str):
        return []
    return [note(kind, part)]


def _text(message: _Message, part: Record, content: str, *, is_side: bool) -> Block:
    if part.get("ignored") is True:
        return note(content, content)
    if message.role != "user":
        if message.is_summary:
            return Block("lifecycle", "user", one_line(content), {"type": "text", "text": content})
        return note(content, content) if part.get("synthetic") is True else answer(content)
    if part.get("synthetic") is True or is_side:
        return injected_text(content)
    return _prompt(content)


def _prompt(content: str) -> Block:
    """Return a prompt. The client's command line puts what was typed in quotation marks."""
    typed = content[1:-1].replace('\\"', '"')
    if len(content) < 2 or f'"{typed.replace(chr(34), chr(92) + chr(34))}"' != content:
        return prompt(content)
    payload = {"type": "text", "text": content, TYPED: typed}
    return Block("user_msg", "user", one_line(typed), payload)
