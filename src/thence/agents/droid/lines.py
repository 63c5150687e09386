"""The lines of Droid's logs as facts, and the totals that stand beside them.

Messages are linked by their ids. The first line of a log has title and folder; the client writes it
anew, and with it the whole log. No message has a bill: a document beside the log has the total of
the session, and what it grows by from one read to the next is billed. A fork is a copy of messages
up to one that its first line names; its total starts at 0. A compaction goes on in a session that
names its parent alone: its total starts with the parent's, which is told as the parent's own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import msgspec

from thence.agents import File, Mark, Source, files
from thence.agents.documents import TotalReader
from thence.agents.records import (
    LineReader,
    Record,
    fields,
    first_records,
    injected_text,
    lines_of,
    moment,
    note,
    text,
)
from thence.format.codec import RawRecord
from thence.format.facts import Block, CallStatus, Edge, Fact, answers_of, calls_of, message_blocks
from thence.format.nodes import Is, Node
from thence.format.normal import one_line
from thence.format.records import JSON, Usage, count, text_of, word

_EXIT = re.compile(r"\[Process exited with code (-?\d{1,9})\]\s*\Z")
_CUT_SHORT = ("cancelled", "canceled", "interrupted", "aborted")
_FAILED = ("error", "failed")
_CUSTOM = "custom:"

NO_TOTAL = "the document with the session's total is missing"
TAKEN_OVER = "what the total has in it of the session before the compaction is not known"
_LOG = ".jsonl"
_HEAD_LINES, _START_BYTES = 3, 4096  # of a log, to find out what it goes on from
_MAX_SIBLINGS = 1000  # logs beside one that are looked at so
_TOKEN_KEYS = ("inputTokens", "outputTokens", "cacheCreationTokens", "cacheReadTokens")


def open_records(source: Source, file: File, mark: Mark) -> files.Records:
    """Return the reader of one file of a session."""
    return DroidTotals(source, file, mark) if file.is_document else Lines(source, file, mark)


def is_record(value: Record) -> bool:
    """Return whether an object on a damaged line is a line of a log and no part of one."""
    kind = value.get("type")
    is_own = kind in ("session_start", "compaction_state")
    return is_own or (kind == "message" and "message" in value)


MAX_WRITE_DELAY_S = 2
"""The client writes the document at most so long after the line of the log that it counts."""


class DroidTotals(TotalReader):
    """What a session took so far."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        super().__init__(source, file, mark)
        # To archive a session writes the document, too: the last line of the log is older then.
        logged, written = (
            files.measure_source(Source(source.adapter, source.session, (part,)))[1]
            for part in (source.files[0], file)
        )
        is_archived = bool(logged) and written - logged > MAX_WRITE_DELAY_S
        self._moment = moment(logged if is_archived else written)
        self._log = source.files[0].path

    def total(self, entry: RawRecord) -> tuple[Usage, str | None] | None:
        """Return the total of the session without its subagents, which have totals of their own."""
        return _total_in(entry.value), _model(entry.value.get("model"))

    def facts(self, entry: RawRecord) -> Iterator[Fact]:
        """Yield the total if it has changed; before the first one what was taken over.

        There is none before the log says whether it goes on from another session.
        """
        head = first_records(self._log)[:_HEAD_LINES] if not self._line else None
        if head is not None and not head:
            return
        parent = _continued(head[0]) if head else None
        for fact in super().facts(entry):
            if fact.running is None or head is None or parent is None:
                yield fact
                continue
            taken, is_known = self._taken_over(parent, _start_of(head), fact.running)
            yield msgspec.structs.replace(
                fact,
                node=msgspec.structs.replace(fact.node, id=f"{self._file.key}#0"),
                line=0,
                blocks=(note(f"{taken.total} tokens taken over", msgspec.to_builtins(taken)),),
                running=taken,
                origin=parent,
            )
            yield msgspec.structs.replace(fact, unbilled=None if is_known else TAKEN_OVER)

    def _taken_over(self, parent: str, start: str | None, total: Usage) -> tuple[Usage, bool]:
        """Return what a first total has of the parent's, at most, and whether just that is known.

        Nothing says what the parent's total was at that moment: it is what it is now, unless the
        parent went on.
        """
        folder, name = os.path.split(self._file.path)
        beside = {entry.name: entry.path for entry in files.walk(folder, 0)}
        path = beside.get(f"{parent}{name.removeprefix(self._session)}")
        if path is None:
            return total, False
        now = msgspec.structs.astuple(_total_in(files.document(path)))
        taken = Usage(*map(min, now, msgspec.structs.astuple(total)))
        is_same = msgspec.structs.astuple(taken) == now
        return taken, is_same and not self._went_on(parent, start, beside)

    def _went_on(self, parent: str, start: str | None, beside: Mapping[str, str]) -> bool:
        """Return whether a session was used after this one began, or may have been.

        Another compaction of it counts, too: the session that it goes on in tells of it.
        """
        log = beside.get(f"{parent}{_LOG}")
        others = [
            path for name, path in beside.items() if name.endswith(_LOG) and path != self._log
        ]
        if log is None or start is None or len(others) > _MAX_SIBLINGS:
            return True
        name = parent.encode("utf-8", "replace")
        heads = (
            first_records(path)[:_HEAD_LINES]
            for path in others
            if name in (files.start_of(path, _START_BYTES) or b"")
        )
        children = (head for head in heads if head and _continued(head[0]) == parent)
        times = (moment(line.get("timestamp")) for line in lines_of(log))
        return any(time and time > start for time in chain(times, map(_start_of, children)))


class Lines(LineReader):
    """The lines of one log."""

    carries = ("origin", "until", "last", "moved")
    """The last message, and up to which one the log is a copy."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        super().__init__(source, file, mark)
        carried = self._carried
        self._origin, self._until = text(carried.get("origin")), text(carried.get("until"))
        self._last, self._moved = text(carried.get("last")), text(carried.get("moved"))
        self._unbilled = None if any(other.is_document for other in source.files) else NO_TOTAL
        self._makers: dict[str, Callable[[RawRecord, Record], Fact]] = {
            "session_start": self._start,
            "message": self._message,
            "agent_turn_outcome": self._outcome,
            "compaction_state": self._compaction,
        }

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return the fact of one line."""
        line = entry.value
        fact = self._makers.get(word(line.get("type")), self._other)(entry, line)
        if self._until is not None and line.get("id") == self._until:
            self._origin = self._until = None
        return [fact]

    def _event(
        self, entry: RawRecord, line: Record, node: Node, *parts: Block, **more: Any
    ) -> Fact:
        return self._fact(
            entry,
            node,
            word(line.get("type")) or "unknown",
            ts=moment(line.get("timestamp")),
            blocks=parts,
            origin=self._origin,
            **more,
        )

    def _other(self, entry: RawRecord, line: Record) -> Fact:
        node = Node(self._name(entry), None, Is.INTERNAL)
        return self._event(entry, line, node, note(word(line.get("type")) or "unknown", line))

    def _start(self, entry: RawRecord, line: Record) -> Fact:
        """Return what the first line says of the session."""
        is_named = line.get("isSessionTitleManuallySet") is True
        named = {
            "cwd": line.get("cwd"),
            "title:custom" if is_named else "title:ai": line.get("title"),
        }
        about = {name: value for name, value in named.items() if text(value)}
        edges: tuple[Edge, ...] = ()
        caller, parent = text(line.get("callingSessionId")), text(line.get("parent"))
        if caller:
            call = text(line.get("callingToolUseId"))
            edges = (Edge("subagent", caller, "callingSessionId", call=call),)
        elif parent:
            self._until = text(line.get("forkedAtMessageId"))
            edges = (Edge("fork" if self._until else "resume", parent, "parent", self._until),)
        node = Node(f"{self._file.key}#start", None, Is.INTERNAL)
        more = {"about": about, "edges": edges, "unbilled": self._unbilled}
        fact = self._event(entry, line, node, note("session", line), **more)
        self._origin = parent if self._until else None
        return fact

    def _message(self, entry: RawRecord, line: Record) -> Fact:
        message = fields(line.get("message"))
        name = text(line.get("id")) or self._name(entry)
        role = message.get("role")
        parts = message_blocks(
            message.get("content"), "assistant" if role == "assistant" else "user"
        )
        if message.get("visibility") == "user_only":  # a command that the user ran: no model saw it
            shown = [note(text_of(message.get("content")), message)]
            return self._event(entry, line, Node(name, self._above(line), Is.INTERNAL), *shown)
        more: dict[str, Any] = {}
        flags = 0
        if role == "assistant":
            flags = Is.REPLY | (0 if calls_of(parts) else Is.ENDS)
            more["model"] = _model(message.get("modelId"))
        else:
            is_hidden = message.get("visibility") == "llm_only" or name.startswith("context-")
            parts = tuple(_user_block(part, is_hidden=is_hidden) for part in parts)
            more["told"] = tuple(
                status for part in parts if (status := _status_of(part)) is not None
            )
            flags = Is.PROMPT if any(part.kind == "user_msg" for part in parts) else 0
        node = Node(
            *(name, self._above(line), flags, calls_of(parts), answers_of(parts)),
            response=name if role == "assistant" else None,
        )
        self._last, self._moved = name, None
        return self._event(entry, line, node, *(parts or [note("empty message", None)]), **more)

    def _above(self, line: Record) -> str | None:
        """Return the message before; after a compaction, the summary that stands for it."""
        parent = text(line.get("parentId"))
        return self._moved if self._moved and parent in (None, self._last) else parent

    def _outcome(self, entry: RawRecord, line: Record) -> Fact:
        """Return the end of a turn."""
        reason = word(line.get("reason"))
        block, flags, above = note(f"turn {reason}", line), Is.INTERNAL, None
        if reason in _CUT_SHORT:
            flags, above = Is.INTERRUPTS, self._last
        elif reason in _FAILED:
            flags, above = Is.REPLY | Is.ENDS, self._last
            block = Block("error", "system", one_line(f"turn {reason}"), line)
        name = f"{word(line.get('turnId')) or self._file.key}#outcome-{reason}"
        return self._event(entry, line, Node(name, above, flags), block)

    def _compaction(self, entry: RawRecord, line: Record) -> Fact:
        """Return the summary that stands for the messages before it."""
        name = text(line.get("id")) or self._name(entry)
        parts = [injected_text(word(line.get("summaryText")))]
        if anchor := text_of(fields(line.get("anchorMessage")).get("content")):
            parts.insert(0, injected_text(anchor))
        node = Node(name, None, Is.SUMMARY, logical=self._last)
        self._moved = name
        return self._event(entry, line, node, *parts)


def _total_in(document: Record) -> Usage:
    usage = fields(document.get("tokenUsage"))
    return Usage(*(count(usage.get(name)) for name in _TOKEN_KEYS))


def _continued(line: Record) -> str | None:
    """Return the session that a first line goes on from after a compaction, if it does."""
    is_other = text(line.get("callingSessionId")) or text(line.get("forkedAtMessageId"))
    return None if is_other else text(line.get("parent"))


def _start_of(head: Iterable[Record]) -> str | None:
    """Return the first time that a log tells."""
    return next(filter(None, (moment(line.get("timestamp")) for line in head)), None)


def _user_block(part: Block, *, is_hidden: bool) -> Block:
    """Return a block of the user's side: what the client added is no prompt."""
    content = fields(part.payload).get("text")
    if part.kind != "user_msg" or not isinstance(content, str):
        return part
    is_injected = is_hidden or content.lstrip().startswith("<system-reminder>")
    return injected_text(content) if is_injected else part


def _status_of(part: Block) -> CallStatus | None:
    """Return the exit code of a command, which stands at the end of its output."""
    if part.kind != "tool_result" or part.call is None:
        return None
    code = _EXIT.search(text_of(part.payload)[-100:])
    return CallStatus(part.call, part.failed, int(code[1])) if code else None


def _model(value: JSON) -> str | None:
    """Return the name of a model; that of a custom one is what its user calls it."""
    return text(word(value).removeprefix(_CUSTOM))
