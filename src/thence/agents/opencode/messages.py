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

from thence.agents import File, Mark, Source
from thence.agents.files import remembered
from thence.agents.records import (
    LineReader,
    Record,
    answer,
    call,
    fields,
    image,
    injected,
    moment,
    note,
    objects,
    prompt,
    result,
    text,
    thought,
    unindexed,
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
from thence.format.records import JSON, Usage, count, word

KILLED: Final = "the request ended before its tokens were written"
TITLE: Final = "the title request is not in the log"

_UNNAMED: Final = ("New session - ", "Child session - ")
_KNOWN: Final = 256  # messages that later records may name; older ones are forgotten
_GOES_ON: Final = ("tool-calls", "unknown", "")  # how an answer ends that its client goes on from
_TRANSIENT: Final = "kilocode.lifecycle"
HANDED_OVER: Final = "thence"
"""The name in a part's metadata under which the session stands that it was copied from."""


class _Message:
    """What is remembered of a message."""

    def __init__(self, saved: JSON = None) -> None:
        told = fields(saved)
        self.role = word(told.get("role"))
        self.created = told.get("created")
        self.before = text(told.get("before"))
        self.first = text(told.get("first"))
        self.model = text(told.get("model"))
        self.bill = text(told.get("bill"))
        self.bills = count(told.get("bills"))
        self.is_done = told.get("done") is True
        self.is_summary = told.get("summary") is True
        self.failed = told.get("failed") is True
        parts = told.get("parts")
        self.parts: dict[str, int] = dict(parts) if isinstance(parts, dict) else {}

    def saved(self) -> Record:
        """Return it for a later read."""
        told = {
            "role": self.role,
            "created": self.created,
            "before": self.before,
            "first": self.first,
            "model": self.model,
            "bill": self.bill,
            "bills": self.bills,
            "done": self.is_done,
            "summary": self.is_summary,
            "failed": self.failed,
            "parts": self.parts,
        }
        return {name: value for name, value in told.items() if value}

    def key(self, kind: str, name: str) -> str:
        """Return what copies of one of its records have in common."""
        return f"{self.created}:{kind}:{name}"


class Messages(LineReader):
    """The messages of one session."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        super().__init__(source, file, mark)
        self._adapter = source.adapter
        saved = fields(self._carried.get("messages"))
        self._messages = {name: _Message(told) for name, told in saved.items()}
        self._last = text(self._carried.get("last"))
        self._title = text(self._carried.get("title"))
        self._cwd = text(self._carried.get("cwd"))
        self._parent = text(self._carried.get("parent"))
        self._undone = text(self._carried.get("undone"))
        self._left = text(self._carried.get("left"))
        self._tail = text(self._carried.get("tail"))
        self._is_handed = self._carried.get("handed") is True

    def carry(self) -> JSON:
        """Return the last messages, and what the next record goes on from."""
        told = {
            "messages": {name: message.saved() for name, message in self._messages.items()},
            "last": self._last,
            "title": self._title,
            "cwd": self._cwd,
            "parent": self._parent,
            "undone": self._undone,
            "left": self._left,
            "tail": self._tail,
            "handed": self._is_handed,
        }
        return {name: value for name, value in told.items() if value}

    def facts(self, found: RawRecord) -> Iterable[Fact]:
        """Return the facts of one version of a session, a message or a part."""
        kind = word(found.value.get("type")).rstrip("0123456789").rstrip(".")
        data = fields(found.value.get("data"))
        if kind in ("session.created", "session.updated"):
            return self._session_told(found, fields(data.get("info")))
        if kind == "message.updated":
            return self._message_told(found, fields(data.get("info")))
        if kind == "message.part.updated":
            return self._part_told(found, fields(data.get("part")))
        if kind == "message.removed":
            return self._removed(found, word(data.get("messageID")))
        return ()

    # -- frame --------------------------------------------------------------------------

    def _told(
        self, found: RawRecord, node: Node, kind: str, when: JSON, *blocks: Block, **more: Any
    ) -> Fact:
        self._last = node.id
        if tie := _source(fields(fields(found.value.get("data")).get("part"))):
            more["origin"] = tie[0].session  # counted where it was said
        return self._fact(found, node, kind, ts=moment(when), blocks=blocks, **more)

    def _moved(self, found: RawRecord, above: str | None, summary: str) -> Fact:
        """Return a note behind the event that the session goes on from now."""
        node = Node(f"{word(found.value.get('id'))} left", above)
        return self._told(found, node, "revert", None, note(summary, None))

    # -- session ------------------------------------------------------------------------

    def _session_told(self, found: RawRecord, info: Record) -> Iterator[Fact]:
        about: Record = {}
        more: dict[str, Any] = {}
        title = text(info.get("title"))
        if title is not None and remembered(title) != self._title:
            was, self._title = self._title, remembered(title)
            if not title.startswith(_UNNAMED):
                about["title:ai"] = title
                if was is not None and was.startswith(_UNNAMED):
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
            node = Node(f"{word(found.value.get('id'))} session", flags=Is.INTERNAL)
            when = moment(fields(info.get("time")).get("created"))
            yield self._fact(found, node, "session", ts=when, about=about, **more)
        yield from self._reverted(found, text(fields(info.get("revert")).get("messageID")))

    def _reverted(self, found: RawRecord, target: str | None) -> Iterator[Fact]:
        """Yield where the session goes on after an undo, or after an undo was taken back."""
        if target == self._undone:
            return
        undone, self._undone = self._undone, target
        if target is not None and target in self._messages:
            if undone is None:
                self._left = self._last
            yield self._moved(found, self._messages[target].before, "undone up to here")
        elif target is None and undone in self._messages and self._left is not None:
            yield self._moved(found, self._left, "undo taken back")

    def _removed(self, found: RawRecord, name: str) -> Iterator[Fact]:
        """Yield where the session goes on without its last message."""
        was_last = bool(self._messages) and next(reversed(self._messages)) == name
        message = self._messages.pop(name, None)
        if message is not None and was_last and self._undone is None:
            yield self._moved(found, message.before, "message removed")

    # -- messages -----------------------------------------------------------------------

    def _message_told(self, found: RawRecord, info: Record) -> Iterator[Fact]:
        name = text(info.get("id"))
        if name is None:
            return
        message = self._messages.get(name)
        if message is None:
            message = self._messages[name] = _Message()
            message.before = self._last
            while len(self._messages) > _KNOWN:
                del self._messages[next(iter(self._messages))]
        times = fields(info.get("time"))
        message.role = word(info.get("role"))
        message.created = times.get("created")
        message.model = text(info.get("modelID"))
        message.is_summary = info.get("summary") is True
        message.is_done = message.is_done or "completed" in times
        if message.role == "assistant":
            yield from self._billed(found, name, message, info)
            yield from self._failed(found, name, message, info)

    def _billed(
        self, found: RawRecord, name: str, message: _Message, info: Record
    ) -> Iterator[Fact]:
        tokens = fields(info.get("tokens"))
        usage = _usage(tokens)
        times = fields(info.get("time"))
        if usage is None:
            return
        bill = ":".join(map(str, (message.created, *_counts(usage))))
        if bill == message.bill:
            return
        message.bill, message.bills = bill, message.bills + 1
        finish = word(info.get("finish"))
        ends = finish not in _GOES_ON and not message.is_summary
        node = Node(
            name if message.bills == 1 else f"{name} {message.bills}",
            self._last,
            Is.REPLY | (Is.ENDS if ends else 0),
        )
        cost = info.get("cost")
        yield self._told(
            found,
            node,
            "model call",
            times.get("completed", times.get("created")),
            note("model call", {"finish": finish, "agent": info.get("agent")}),
            model=message.model,
            usage=usage,
            usage_key=bill,
            cost_usd=float(cost) if isinstance(cost, (int, float)) and cost > 0 else None,
            copy_key=message.key("bill", str(message.bills)),
        )

    def _failed(
        self, found: RawRecord, name: str, message: _Message, info: Record
    ) -> Iterator[Fact]:
        error = fields(info.get("error"))
        if not error or message.failed:
            return
        message.failed = True
        kind, data = word(error.get("name")), fields(error.get("data"))
        said = text(data.get("message")) or kind
        is_cut = kind == "MessageAbortedError"
        flags = Is.INTERRUPTS | Is.BY_USER if is_cut else Is.REPLY | Is.ENDS
        what: Any = "lifecycle" if is_cut else "error"
        payload = {"type": "text", "text": f"{kind}: {said}" if said != kind else kind}
        when = fields(info.get("time")).get("completed", message.created)
        yield self._told(
            found,
            Node(f"{name} error", self._last, flags),
            "error",
            when,
            Block(what, "system", one_line(said), payload),
            copy_key=message.key("error", kind),
        )

    # -- parts --------------------------------------------------------------------------

    def _part_told(self, found: RawRecord, part: Record) -> Iterator[Fact]:
        name, kind = text(part.get("id")), part.get("type")
        message = self._messages.get(word(part.get("messageID")))
        if name is None or message is None:
            return
        before = self._last
        if not self._is_handed and (tie := _source(part)):
            self._is_handed = True
            node = Node(f"{name} handed over", flags=Is.INTERNAL)
            yield self._fact(found, node, "session", edges=tie)
        if kind == "tool":
            yield from self._tool(found, name, message, part)
        elif name not in message.parts and (made := self._said(found, name, message, part)):
            message.parts[name] = 1
            yield made
            yield from self._kept(found, name, message)
        if message.first is None and self._last != before:
            message.first = self._last

    def _said(self, found: RawRecord, name: str, message: _Message, part: Record) -> Fact | None:
        """Return what a part says once it is whole; None if it says nothing, or not yet."""
        kind = part.get("type")
        if kind == "compaction":
            self._tail = text(part.get("tail_start_id"))
            node = Node(name, self._last)
            block = note("compaction", {"auto": part.get("auto") is True})
            key = message.key("compaction", "")
            return self._told(found, node, "compaction", message.created, block, copy_key=key)
        blocks = _blocks(message, part, is_side=self._parent is not None)
        if not blocks or not self._is_whole(message, part):
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
        return self._told(
            found,
            node,
            word(kind),
            times.get("start", message.created),
            *blocks,
            model=message.model,
            bill_due=self._due(message),
            copy_key=message.key(word(kind), digest.hexdigest()),
        )

    def _kept(self, found: RawRecord, name: str, message: _Message) -> Iterator[Fact]:
        """Yield which messages before a compaction stay in view after its summary."""
        first = self._messages.get(self._tail or "")
        if message.is_summary and first is not None and first.first is not None:
            span = Span(name, first.first, message.before)
            node = Node(f"{name} kept", name, Is.INTERNAL, span=span)
            block = note("messages stay in view", None)
            yield self._fact(found, node, "compaction", blocks=(block,))

    def _is_whole(self, message: _Message, part: Record) -> bool:
        times = part.get("time")
        if message.role == "user" or message.is_done or not isinstance(times, dict):
            return True
        return "end" in times

    def _due(self, message: _Message) -> str | None:
        return KILLED if message.role == "assistant" and message.bill is None else None

    # -- tools --------------------------------------------------------------------------

    def _tool(self, found: RawRecord, name: str, message: _Message, part: Record) -> Iterator[Fact]:
        """Yield a call when it runs, and its result when it has ended."""
        state = fields(part.get("state"))
        status = state.get("status")
        if status not in ("running", "completed", "error"):
            return
        tool, asked = word(part.get("tool")), text(part.get("callID")) or name
        times, told = fields(state.get("time")), fields(state.get("metadata"))
        child = text(told.get("sessionId")) if tool == "task" else None
        how = "sessionId of the call"
        edges = (Edge("subagent", child, how, call=asked, child=True),) if child else ()
        stage = message.parts.get(name, 0)
        if stage == 0:
            message.parts[name] = 1
            block = call(tool, state.get("input"), asked)
            yield self._told(
                found,
                Node(name, self._last, Is.REPLY, calls=calls_of([block])),
                "tool",
                times.get("start", message.created),
                block,
                model=message.model,
                bill_due=self._due(message),
                edges=edges,
                copy_key=message.key("call", asked),
            )
        if status == "running" or stage == 2:
            return
        message.parts[name] = 2
        blocks, how_it_went = _outcome(state, told, asked, tool)
        yield self._told(
            found,
            Node(f"{name} result", self._last, answers=answers_of(blocks)),
            "result",
            times.get("end", message.created),
            *blocks,
            told=how_it_went,
            edges=edges,
            copy_key=message.key("result", asked),
        )


def _source(part: Record) -> tuple[Edge, ...]:
    """Return the tie to the session that a part was copied from; none for any other part."""
    source = fields(fields(part.get("metadata")).get(HANDED_OVER))
    return handed_over_edges(source.get("from"), source.get("event"))


def _counts(usage: Usage) -> tuple[int, int, int, int]:
    return (
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_creation_input_tokens,
        usage.cache_read_input_tokens,
    )


def _usage(tokens: Record) -> Usage | None:
    """Return a usage: input stands beside the cache, and thoughts beside the output."""
    cache = fields(tokens.get("cache"))
    output = count(tokens.get("output")) + count(tokens.get("reasoning"))
    made = Usage(
        count(tokens.get("input")), output, count(cache.get("write")), count(cache.get("read"))
    )
    return made if made.total else None


def _outcome(
    state: Record, told: Record, asked: str, tool: str
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
    code = told.get("exit")
    code = code if isinstance(code, int) and not isinstance(code, bool) else None
    failed = True if is_error else None if code is not None else False
    blocks = [result(content, asked, tool, failed=failed)]
    if diff := text(fields(told.get("filediff")).get("patch")) or text(told.get("diff")):
        blocks.append(note("details of the result", {"diff": diff}))
    return blocks, (CallStatus(asked, failed, code, took if took is None else max(took, 0)),)


def _picture(part: Record) -> Record | None:
    """Return an image whose bytes stand in the part itself; None for anything else."""
    media, url = word(part.get("mime")), word(part.get("url"))
    if not media.startswith("image/") or not url.startswith("data:"):
        return None
    return image(media, url.partition(",")[2])


def _blocks(message: _Message, part: Record, *, is_side: bool) -> list[Block]:
    """Return the blocks of a part that is no call; none for what only keeps the books."""
    kind, said = part.get("type"), text(part.get("text"))
    if kind == "text" and said:
        if fields(part.get("metadata")).get(_TRANSIENT):
            return []
        return [_text(message, part, said, is_side=is_side)]
    if kind == "reasoning" and said:
        return [thought(said)]
    if kind == "file":
        if (picture := _picture(part)) is not None:
            return [Block("user_msg", "user", "", picture)]
        return [unindexed(f"file {word(part.get('filename'))}", part.get("url"))]
    if kind == "subtask":
        return [prompt(text(part.get("prompt")) or word(part.get("description")))]
    if kind == "retry":
        error = fields(fields(part.get("error")).get("data"))
        return [Block("error", "system", one_line(word(error.get("message"))), part.get("error"))]
    if kind == "agent":
        return [note(f"agent {word(part.get('name'))}", None)]
    return []


def _text(message: _Message, part: Record, said: str, *, is_side: bool) -> Block:
    if part.get("ignored") is True:
        return note(said, said)
    if message.role != "user":
        if message.is_summary:
            return Block("lifecycle", "user", one_line(said), {"type": "text", "text": said})
        return note(said, said) if part.get("synthetic") is True else answer(said)
    if part.get("synthetic") is True or is_side:
        return injected(said)
    return _prompt(said)


def _prompt(said: str) -> Block:
    """Return a prompt. The client's command line puts what was typed in quotation marks."""
    typed = said[1:-1].replace('\\"', '"')
    if len(said) < 2 or f'"{typed.replace(chr(34), chr(92) + chr(34))}"' != said:
        return prompt(said)
    payload = {"type": "text", "text": said, TYPED: typed}
    return Block("user_msg", "user", one_line(typed), payload)
