"""The documents of Cline as facts.

A conversation is a list of messages in the shape of the Messages API. Each answer has its bill. A
compaction leaves the list as it is: what stands for its first messages is in a document of its own,
which is read with the conversation. Nothing names the call that started a subagent: the task it was
given does, in the order of the calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from thence.agents import File, Mark, Source, files
from thence.agents.cline.names import COMPACTION, MESSAGES
from thence.agents.documents import ListReader, list_items, version_name
from thence.agents.gemini_parts import summary_blocks
from thence.agents.records import (
    Record,
    fields,
    injected_text,
    moment,
    note,
    objects,
    parse_arguments,
    result,
    text,
    usage_with_cache,
)
from thence.format.codec import RawRecord
from thence.format.facts import (
    TYPED,
    Block,
    CallStatus,
    Fact,
    message_blocks,
)
from thence.format.nodes import PREVIOUS, Is, Node
from thence.format.normal import one_line
from thence.format.records import JSON, blocks, count, text_of, word

NOT_BILLED = "the compaction request is not in the log"

_INPUT = re.compile(r'<user_input(?: mode="(\w{1,20})")?>(.*)</user_input>\s*', re.DOTALL)
_NOTICE = re.compile(r"<mode_notice>.*?</mode_notice>\s*", re.DOTALL)
_EXIT = re.compile(r"Command exited with code (-?\d{1,9})\b")
_ENDED = ("completed", "failed", "cancelled")
_SPAWN = "spawn_agent"
_MAX_COST_USD = 10_000.0  # more than one answer costs


def open_records(source: Source, file: File, mark: Mark) -> files.Records:
    """Return the reader of one document of a session."""
    make = ClineCard if file.key == "state" else ClineMessages
    return make(source, file, mark)


class ClineCard(ListReader):
    """What the card of a session says; its end is an event."""

    def items(self, entry: RawRecord) -> Sequence[Record]:
        """Return the end of the session, if it has ended."""
        document = entry.value
        status = document.get("status")
        if status not in _ENDED:
            return ()
        names = ("status", "ended_at", "exit_code")
        ended = {name: document[name] for name in names if name in document}
        marker = text(fields(document.get("metadata")).get("terminal_marker"))
        return [{**ended, "marker": marker} if marker else ended]

    def item_facts(self, entry: RawRecord) -> Iterable[Fact]:
        """Return the end of a session."""
        ended = entry.value
        line = f"session {ended['status']}" + (f": {ended['marker']}" if "marker" in ended else "")
        node = Node(self._name(entry), None, Is.INTERNAL | Is.CLOSES)
        when = moment(ended.get("ended_at"))
        yield self._fact(entry, node, "session", ts=when, blocks=(note(line, ended),))

    def about(self, document: Record) -> dict[str, Any]:
        """Return folder, branch, model and title."""
        details = fields(document.get("metadata"))
        title = text(details.get("title"))
        named = {
            "cwd": document.get("cwd") or document.get("workspace_root"),
            "git_branch": fields(details.get("git")).get("branch"),
            "model": document.get("model"),
            "title:ai": title if title != document.get("prompt") else None,
        }
        about = {name: value for name, value in named.items() if text(value)}
        return {"about": about} if about else {}


class ClineMessages(ListReader):
    """The conversation of one agent."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        super().__init__(source, file, mark)
        self._folder = Path(file.path).parent
        self._is_main = file.channel == "main"
        self._calls: dict[str, str] | None = None

    def items(self, entry: RawRecord) -> Sequence[Record]:
        """Return the messages, and the summary where a compaction put it."""
        messages = list_items(entry.value.get("messages"))
        if self._is_main:
            summary = files.document(str(self._folder / f"{self._session}{COMPACTION}"))
            replaced = count(summary.get("source_message_count"))
            if 0 < replaced <= len(messages) and objects(summary.get("messages")):
                messages.insert(replaced, {"compaction": summary["messages"]})
        return messages

    def about(self, document: Record) -> dict[str, Any]:
        """Return the version of the client; of a subagent the call that started it."""
        about: Record = {}
        if self._is_main:
            if version := text(fields(document.get("origin")).get("version")):
                about["version"] = version
        else:
            about |= self._starting_calls({self._file.channel.removeprefix("agent:")})
        return {"about": about, "channel": "main"} if about else {}

    def item_facts(self, entry: RawRecord) -> Iterator[Fact]:
        """Yield the facts of one message."""
        message = entry.value
        role = message.get("role")
        make: Callable[[RawRecord, Record], Fact] = self._other
        if "compaction" in message:
            make = self._compaction
        elif role == "assistant":
            make = self._reply
        elif role == "user":
            make = self._user
        yield make(entry, message)

    def _event(self, entry: RawRecord, message: Record, parts: list[Block], **more: Any) -> Fact:
        name = text(message.get("id"))
        return self._message_fact(
            entry,
            word(message.get("role")) or "message",
            version_name(name, message.get("content"), self._name(entry)),
            parts,
            ts=moment(message.get("ts")),
            copy_key=name,
            **more,
        )

    def _other(self, entry: RawRecord, message: Record) -> Fact:
        return self._event(entry, message, [note("unknown message", message)], flags=Is.INTERNAL)

    def _reply(self, entry: RawRecord, message: Record) -> Fact:
        parts = list(message_blocks(message.get("content"), "assistant"))
        is_last = not any(part.kind == "tool_call" for part in parts)
        name = text(message.get("id"))
        return self._event(
            entry,
            message,
            parts,
            flags=Is.REPLY | (Is.ENDS if is_last else 0),
            response=name,
            model=text(fields(message.get("modelInfo")).get("id")),
            **_bill(fields(message.get("metrics")), name),
        )

    def _user(self, entry: RawRecord, message: Record) -> Fact:
        """Return what was said in the user's name: results, or a prompt."""
        parts: list[Block] = []
        statuses: list[CallStatus] = []
        about: Record = {}
        for part in blocks(message.get("content")):
            if part.get("type") == "tool_result":
                block, outcome = _result(part)
                parts.append(block)
                statuses += outcome
                if part.get("name") == _SPAWN and self._is_main:
                    about |= self._starting_calls(None)
            else:
                parts.append(self._user_block(part))
        flags = Is.PROMPT if any(part.kind == "user_msg" for part in parts) else 0
        return self._event(entry, message, parts, flags=flags, told=tuple(statuses), about=about)

    def _user_block(self, part: Record) -> Block:
        content = part.get("text")
        if not isinstance(content, str):
            return Block("user_msg" if self._is_main else "lifecycle", "user", "", part)
        typed = _INPUT.fullmatch(_NOTICE.sub("", content))
        if not self._is_main or not content.strip() or (typed is None and content.startswith("<")):
            return injected_text(content)
        line = typed[2] if typed else content
        payload = {"type": "text", "text": content, **({TYPED: line} if typed else {})}
        return Block("user_msg", "user", one_line(line), payload)

    def _compaction(self, entry: RawRecord, message: Record) -> Fact:
        """Return what stands for the messages before it."""
        parts = summary_blocks(message["compaction"]) or (injected_text(""),)
        node = Node(self._name(entry), PREVIOUS, Is.SUMMARY)
        return self._fact(entry, node, "compaction", blocks=parts, unbilled=NOT_BILLED)

    def _starting_calls(self, agents: set[str] | None) -> Record:
        """Return which calls started subagents; all of them if none are named."""
        if self._calls is None:
            self._calls = _callers(self._folder, self._session)
        return {
            f"agent:{agent}": call
            for agent, call in self._calls.items()
            if agents is None or agent in agents
        }


def _bill(metrics: Record, name: str | None) -> dict[str, Any]:
    """Return the bill of an answer; its input includes what the cache gave and took."""
    if not metrics:
        return {}
    usage = usage_with_cache(
        metrics.get("inputTokens"),
        count(metrics.get("outputTokens")),
        read=metrics.get("cacheReadTokens"),
        written=metrics.get("cacheWriteTokens"),
    )
    cost = metrics.get("cost")
    is_price = isinstance(cost, float) and 0 < cost < _MAX_COST_USD
    return {"usage": usage, "usage_key": name, "cost_usd": cost if is_price else None}


def _result(part: Record) -> tuple[Block, list[CallStatus]]:
    """Return the result of a call; one call may run several commands, each with its own."""
    name, content = text(part.get("tool_use_id")), part.get("content")
    single = fields(parse_arguments(content)) if isinstance(content, str) else {}
    answers = [single] if single else objects(content)
    answers = [answer for answer in answers if "query" in answer and "success" in answer]
    if "finishReason" in single:  # of a subagent: the rest stands in its own conversation
        content = word(single.get("text"))
    failed = part.get("is_error") is True or any(a["success"] is False for a in answers)
    codes = [int(code[1]) for a in answers if (code := _EXIT.match(word(a.get("error"))))]
    if answers:
        content = [
            {"type": "text", "text": _show_answer(answer, len(answers))} for answer in answers
        ]
    elif not isinstance(content, (str, list)):
        content = text_of(content)
    statuses = [CallStatus(name, failed, codes[0])] if name and codes else []
    return result(content, name, text(part.get("name")), failed=failed), statuses


def _show_answer(answer: Record, number: int) -> str:
    """Return what one of several commands gave, below the command itself."""
    output = word(answer.get("result")) or word(answer.get("error"))
    return output if number == 1 else f"$ {word(answer.get('query'))}\n{output}"


def _callers(folder: Path, session: str) -> dict[str, str]:
    """Return the calls that started subagents: those with the same task, in the same order."""
    waiting: dict[str, list[str]] = {}
    for message in objects(_messages(folder / f"{session}{MESSAGES}")):
        for part in blocks(message.get("content")):
            if part.get("type") == "tool_use" and part.get("name") == _SPAWN:
                task = word(fields(part.get("input")).get("task")).strip()
                waiting.setdefault(task, []).append(word(part.get("id")))
    out: dict[str, str] = {}
    for entry in files.walk(str(folder), 0):
        agent = entry.name.removesuffix(MESSAGES)
        if agent in (entry.name, session):
            continue
        first = next(iter(objects(_messages(Path(entry.path)))), {})
        calls = waiting.get(text_of(first.get("content")).strip())
        if calls:
            out[agent] = calls.pop(0)
    return out


def _messages(path: Path) -> JSON:
    return files.document(str(path), files.MAX_LIST_BYTES).get("messages")
