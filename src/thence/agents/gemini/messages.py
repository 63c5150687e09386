"""The lines of one log of Gemini CLI as facts.

A log is a journal of a list of messages: a line adds a message, or replaces the one with its id; a
`$set` with messages replaces the list; a `$rewindTo` cuts it. A message of the model is written
twice: with its text and tokens, and again with its calls once all of them have ended. Here the
first version of a message is its event, its calls are a second one, and lists only decide what goes
on from what. When a session is resumed the list is written from memory, without tokens, calls and
times: messages that are known say nothing new there. A session that was loaded from the log of
another one begins with its messages, under their ids: they are matched as copies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from thence.agents import File, Mark, Source, files
from thence.agents.gemini_parts import (
    answer_blocks,
    calls_in,
    media,
    output_of,
    parts_of,
    responses_in,
    text_of_parts,
    usage_of_counts,
)
from thence.agents.records import (
    LineReader,
    Record,
    call,
    fields,
    injected_text,
    moment,
    note,
    objects,
    parse_arguments,
    prompt,
    result,
    text,
    thought,
    unindexed_note,
)
from thence.format.codec import RawRecord
from thence.format.codec import objects as objects_in
from thence.format.facts import Block, CallStatus, Fact, answers_of, calls_of, handed_over_edges
from thence.format.nodes import Is, Node, Span
from thence.format.normal import one_line
from thence.format.records import JSON, text_of, word
from thence.format.tools import BUILT_IN

COMPACTION = "the compaction request is not in the log"

_CONTEXT, _SNAPSHOT = "<session_context>", "<state_snapshot>"
_INJECTED = (_CONTEXT, _SNAPSHOT, "Please continue.", "<hook_context>")
_TOKEN_KEYS = ("input", "output", "cached", "thoughts", "total")
_FOLDER = re.compile(r"Workspace Directories:\*\*\n +- (/[^\n]{1,1000})")
_EXIT = re.compile(r"^Exit Code: (-?\d{1,9})$", re.MULTILINE)
_REPEATED = ("originalContent", "newContent", "recentActivity")
_RANDOM = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}.*", re.DOTALL)
_MAX_KNOWN_MESSAGES = 2048  # a later list or rewind may name them; older ones are forgotten
_MAX_ANSWERED_CALLS = 64  # calls whose results a message after them repeats
_TEXT_READ, _CALLS_READ = 1, 2  # how much of a message was read: its calls may come later


def is_record(value: Record) -> bool:
    """Return whether an object on a damaged line is a line of a log and no part of one."""
    if "$set" in value or "$rewindTo" in value or "projectHash" in value:
        return True
    return isinstance(value.get("id"), str) and value.get("type") in ("user", "gemini")


class GeminiMessages(LineReader):
    """The lines of one log."""

    carries = ("known", "live", "answered", "last")
    """The messages so far by their ids, and the one that the next goes on from."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        super().__init__(source, file, mark)
        self._others = [
            other
            for other in source.files
            if other.channel == file.channel and other.key != file.key
        ]
        known, live = self._carried.get("known"), self._carried.get("live")
        done = self._carried.get("answered")
        self._known: dict[str, int] = dict(known) if isinstance(known, dict) else {}
        self._live: list[str] = list(live) if isinstance(live, list) else []
        self._answered: list[str] = list(done) if isinstance(done, list) else []
        self._last: str | None = text(self._carried.get("last"))

    def facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return the facts of one line."""
        line = entry.value
        if isinstance(line.get("$set"), dict):
            return self._set(entry, line["$set"])
        if "$rewindTo" in line:
            return self._rewind(entry, line)
        if text(line.get("id")) and isinstance(line.get("type"), str):
            made = list(self._message(entry, line))
            return made or [self._internal_event(entry, note("repeated message", None))]
        source = fields(line.get("thenceHandoff"))
        cwd = text(source.get("cwd"))
        return [
            self._internal_event(
                entry,
                note("session" if "projectHash" in line else "unknown", line),
                # A copy is younger than its original, which may have said nothing since.
                ts=moment(line.get("startTime")),
                about={"cwd": cwd} if cwd else {},
                edges=handed_over_edges(source.get("from"), source.get("event")),
            )
        ]

    # -- frame --------------------------------------------------------------------------

    def _event(
        self, entry: RawRecord, line: Record, node: Node, *parts: Block, **more: Any
    ) -> Fact:
        kind = word(line.get("type")) or "gemini"
        when = moment(line.get("timestamp"))
        if tie := handed_over_edges(line.get("handedFrom"), None):
            more["origin"] = tie[0].session  # counted where it was said
        if not _RANDOM.fullmatch(node.id):  # messages of the client have the same in all sessions
            more["copy_key"] = self._own_key(node.id)
        return self._fact(entry, node, kind, ts=when, blocks=parts, **more)

    def _internal_event(self, entry: RawRecord, block: Block, **more: Any) -> Fact:
        """Return a line that is book-keeping."""
        node = Node(self._name(entry), None, Is.INTERNAL)
        return self._fact(entry, node, block.summary, blocks=(block,), **more)

    def _add(self, name: str, node: str, level: int) -> None:
        """Note a message, and that the next one goes on from this event."""
        if name not in self._known:
            self._live.append(name)
            del self._live[:-_MAX_KNOWN_MESSAGES]
        self._known[name] = level
        while len(self._known) > _MAX_KNOWN_MESSAGES:
            del self._known[next(iter(self._known))]
        self._last = node

    def _event_of(self, name: str) -> str:
        """Return the event that goes on from a message: its calls, if it made any."""
        return f"{name} calls" if self._known.get(name) == _CALLS_READ else name

    # -- messages -----------------------------------------------------------------------

    def _message(self, entry: RawRecord, line: Record) -> Iterator[Fact]:
        """Yield what a message says that is not known yet."""
        name = word(line.get("id"))
        if self._repeats(line):
            return
        is_model = line.get("type") == "gemini"
        if name not in self._known:
            fact = self._reply(entry, line) if is_model else self._user(entry, line)
            self._add(name, name, _TEXT_READ)
            yield fact
        calls = list(_calls(line)) if is_model else []
        if calls and self._known[name] < _CALLS_READ:
            fact = self._calls_event(entry, line, calls)
            self._add(name, fact.node.id, _CALLS_READ)
            yield fact

    def _bill(self, line: Record) -> dict[str, Any]:
        usage = usage_of_counts(fields(line.get("tokens")), _TOKEN_KEYS)
        name = word(line.get("id"))
        key = name if _RANDOM.fullmatch(name) else self._own_key(name)
        return {
            "model": text(line.get("model")),
            "usage": usage,
            "usage_key": key if usage else None,
        }

    def _own_key(self, name: str) -> str:
        return f"{self._session}:{name}"

    def _reply(self, entry: RawRecord, line: Record) -> Fact:
        parts = [
            thought(": ".join(filter(None, (word(t.get("subject")), word(t.get("description"))))))
            for t in objects(line.get("thoughts"))
        ]
        parts += answer_blocks(line.get("content"))
        says = any(part.kind == "assistant_msg" for part in parts)
        node = Node(word(line.get("id")), self._last, Is.REPLY | (Is.ENDS if says else 0))
        return self._event(
            entry, line, node, *(parts or [note("model call", None)]), **self._bill(line)
        )

    def _calls_event(self, entry: RawRecord, line: Record, calls: list[Record]) -> Fact:
        """Return the calls of a message, and their results."""
        call_blocks: list[Block] = []
        result_blocks: list[Block] = []
        details: list[Block] = []
        statuses: list[CallStatus] = []
        about: Record = {}
        for item in calls:
            name, tool = text(item.get("id")), word(item.get("name"))
            call_blocks.append(call(tool, parse_arguments(item.get("args")), name))
            if (outcome := _result(item, name, tool)) is not None:
                result_blocks.append(outcome[0])
                statuses += outcome[1]
            if name and (agent := text(item.get("agentId"))):
                about[f"agent:{agent}"] = name
                if kind := text(fields(call_blocks[-1].payload).get("agent_name")):
                    about[f"agent:{agent}:type"] = kind
            if isinstance(display := item.get("resultDisplay"), dict):
                shown = {k: v for k, v in display.items() if k not in _REPEATED}
                details.append(note("details of the result", shown))
        parts = [*call_blocks, *result_blocks, *details]
        self._answered = [*self._answered, *answers_of(parts)][-_MAX_ANSWERED_CALLS:]
        node = Node(
            f"{word(line.get('id'))} calls",
            self._last,
            Is.REPLY,
            calls=calls_of(parts),
            answers=answers_of(parts),
        )
        return self._event(
            entry, line, node, *parts, told=tuple(statuses), about=about, **self._bill(line)
        )

    def _user(self, entry: RawRecord, line: Record) -> Fact:
        name, content = word(line.get("id")), line.get("content")
        kind = line.get("type")
        if kind != "user":
            what: Any = "error" if kind == "error" else "lifecycle"
            block = Block(what, "system", one_line(text_of_parts(content)) or word(kind), content)
            return self._event(entry, line, Node(name, self._last, Is.INTERNAL), block)
        answers = [
            result(output_of(response)[0], text(response.get("id")), None, failed=None)
            for response in responses_in(content)
            if word(response.get("id")) not in self._answered
        ]
        parts = [*answers, *self._user_blocks(line)]
        if not parts:  # results that stand with their calls already
            block = note("results sent to the model", None)
            return self._event(entry, line, Node(name, self._last, Is.INTERNAL), block)
        flags = Is.PROMPT if any(part.kind == "user_msg" for part in parts) else 0
        if all(part.role == "system" for part in parts):
            flags = Is.INTERNAL
        node = Node(name, self._last, flags, answers=answers_of(parts))
        return self._event(entry, line, node, *parts)

    def _user_blocks(self, line: Record) -> Iterator[Block]:
        """Yield the parts of what was said in the user's name."""
        typed = text(text_of_parts(line.get("displayContent")))
        for part in parts_of(line.get("content")):
            content = text(part.get("text"))
            if content is None:
                if (picture := media(part)) is not None:
                    yield Block("user_msg", "user", "", picture)
            elif self._file.channel != "main" or content.lstrip().startswith(_INJECTED):
                yield injected_text(content)
            elif content.startswith(("/", "?")) and "\n" not in content:
                yield note(content, content)  # a command to the client; no model saw it
            else:
                block = prompt(content)
                short = one_line(typed) if typed else block.summary
                yield Block(block.kind, block.role, short, block.payload)

    # -- lists --------------------------------------------------------------------------

    def _rewind(self, entry: RawRecord, line: Record) -> list[Fact]:
        """Return the place that the list was cut back to; what was cut off is a dead branch."""
        target = line.get("$rewindTo")
        at = self._live.index(target) if target in self._live else 0
        del self._live[at:]
        return [self._move_event(entry, f"rewound, {at} messages left", line)]

    def _move_event(self, entry: RawRecord, summary: str, payload: JSON) -> Fact:
        """Return a note at the end of the list that now stands; the line goes on from it.

        It is named after the event that is left: a line that later ones name needs an id.
        """
        above = self._event_of(self._live[-1]) if self._live else None
        node = Node(f"{self._last or self._name(entry)} left", above)
        self._last = node.id
        return self._fact(entry, node, "list", blocks=(note(summary, payload),))

    def _set(self, entry: RawRecord, change: Record) -> list[Fact]:
        about: Record = {}
        if title := text(change.get("summary")):
            about["title:ai"] = title
        if "messages" not in change:
            return [self._internal_event(entry, note("metadata", change), about=about)]
        listed = [m for m in objects(change["messages"]) if text(m.get("id"))]
        messages = [m for m in listed if not self._repeats(m)]
        context = next((m for m in messages if _is_context(m)), None)
        if context and (folder := _FOLDER.search(text_of_parts(context.get("content")))):
            about["cwd"] = folder[1]
        messages = [m for m in messages if not _is_context(m)]
        book = self._internal_event(
            entry, unindexed_note(f"list of {len(listed)} messages", None), about=about
        )
        if context and not messages:  # a process starts; what it goes on with follows
            shown = unindexed_note("session context", context.get("content"))
            return [self._internal_event(entry, shown, about=about)]
        return [book, *self._replace_list(entry, messages)]

    def _repeats(self, message: Record) -> bool:
        """Return whether a message only repeats results of another one."""
        name = word(message.get("id"))
        return name.endswith("_response") and name.removesuffix("_response") in self._known

    def _replace_list(self, entry: RawRecord, messages: list[Record]) -> Iterator[Fact]:
        """Yield what a new list changes: messages that are not known, or that it is shorter."""
        unknown = [m for m in messages if word(m.get("id")) not in self._known]
        if unknown and self._others:
            self._know(unknown)
            unknown = [m for m in messages if word(m.get("id")) not in self._known]
        before, ended = self._live, self._last
        names = [word(m.get("id")) for m in messages]
        if not unknown:
            self._live = names
            if before and names[-1:] != before[-1:]:
                yield self._move_event(entry, f"list cut to {len(names)} messages", None)
            elif not before and names:
                self._last = self._event_of(names[-1])
            for message in messages:  # a later version may know calls that were not written
                yield from self._message(entry, message)
            return
        if any(text_of_parts(m.get("content")).startswith(_SNAPSHOT) for m in unknown):
            yield from self._compaction(entry, messages, ended)
            return
        self._live = []
        for message in messages:
            name = word(message.get("id"))
            if name in self._known:
                self._live.append(name)
                self._last = self._event_of(name)
            yield from self._message(entry, message)

    def _compaction(
        self, entry: RawRecord, messages: list[Record], ended: str | None
    ) -> Iterator[Fact]:
        """Yield the summary that stands for the list before it, and what of it stays in view."""
        in_view = [name for m in messages if (name := word(m.get("id"))) in self._known]
        fresh = [m for m in messages if word(m.get("id")) not in self._known]
        self._live = []
        for nth, message in enumerate(fresh):
            name = word(message.get("id"))
            content = text_of_parts(message.get("content"))
            role = "assistant" if message.get("type") == "gemini" else "user"
            block = Block("lifecycle", role, one_line(content), {"type": "text", "text": content})
            node = Node(name, self._last)
            if not nth:
                node = Node(name, None, Is.SUMMARY, logical=ended)
            reason = None if nth else COMPACTION
            self._add(name, name, _TEXT_READ)
            yield self._event(entry, message, node, block, unbilled=reason)
        anchor = self._last
        if in_view and anchor is not None:
            span = Span(anchor, in_view[0], self._event_of(in_view[-1]))
            node = Node(f"{anchor} kept", anchor, Is.INTERNAL, span=span)
            block = note(f"{len(in_view)} messages stay in view", None)
            yield self._fact(entry, node, "list", blocks=(block,))
        self._live += in_view

    def _know(self, unknown: list[Record]) -> None:
        """Note which messages stand in other logs of the session already."""
        wanted = {word(m.get("id")) for m in unknown}
        for other in self._others:
            for line in objects_in(files.chunks_of(other.path)):
                name = word(line.value.get("id")) if isinstance(line, RawRecord) else ""
                if not isinstance(line, RawRecord) or name not in wanted:
                    continue
                called = bool(line.value.get("toolCalls"))
                self._known[name] = max(
                    self._known.get(name, 0), _CALLS_READ if called else _TEXT_READ
                )


def _is_context(message: Record) -> bool:
    return text_of_parts(message.get("content")).lstrip().startswith(_CONTEXT)


def _calls(line: Record) -> Iterator[Record]:
    """Yield the calls of a message: ended ones, or in a list from memory what was asked for."""
    ended_calls = objects(line.get("toolCalls"))
    yield from ended_calls or calls_in(line.get("content"))


def _result(item: Record, name: str | None, tool: str) -> tuple[Block, list[CallStatus]] | None:
    """Return the result of a call and how it went; None if it has none."""
    response = next(responses_in(item.get("result")), None)
    status = item.get("status")
    if response is None and status not in ("success", "error", "cancelled"):
        return None
    content, is_error = output_of(response) if response else ("", False)
    failed: bool | None = is_error or status in ("error", "cancelled")
    code = None
    if BUILT_IN.kind(tool) == "shell" and not failed:
        shown = _EXIT.search(text_of(content)[-400:])
        code = int(shown[1]) if shown else 0
        failed = None
    statuses = [CallStatus(name, failed, code)] if name and code is not None else []
    return result(content, name, tool, failed=failed), statuses
