"""The document of a session of Continue as facts.

It holds a list without ids and times. A message is known by what it says, and its time is when the
document with it was written. Results of calls stand with the message that made them, and are
records of their own here, once they have ended. A compaction leaves nothing but its summary: the
messages before it stay here, dead. A fork is a copy without a link: it is known by messages that
are the same from the start on, and long enough not to be so by chance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from thence.agents import File, Mark, Source, files
from thence.agents.continue_.names import LIST
from thence.agents.documents import ListReader, list_items
from thence.agents.records import (
    Record,
    answer,
    call,
    fields,
    injected_text,
    linked_image,
    moment,
    note,
    objects,
    parse_arguments,
    prompt,
    result,
    text,
    thought,
    unindexed_note,
    usage_with_cache,
)
from thence.format import codec
from thence.format.codec import RawRecord
from thence.format.facts import Block, CallStatus, Fact, calls_of
from thence.format.nodes import Is
from thence.format.records import blocks, count, parse_json, text_of, word

NOT_BILLED = "the compaction request is not in the log"

_ENDED = ("done", "errored", "canceled", "cancelled")
_NO_TITLE = "Untitled Session"
_EXIT = re.compile(r"\(exit code (-?\d{1,9})\)")
_DISTINCT_CHARS = 80  # texts of this length are not the same by chance


class ContinueHistory(ListReader):
    """The messages of one session."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        super().__init__(source, file, mark)
        self._moment = moment(mark.mtime_ns / 10**9)
        self._folder = Path(file.path).parent
        self._copy_keys: list[str | None] = []
        self._makers: dict[str, Callable[[RawRecord, Record], Fact]] = {
            "user": self._user,
            "assistant": self._reply,
            "thinking": self._thought,
            "tool": self._answer,
        }

    def items(self, entry: RawRecord) -> Sequence[Record]:
        """Return messages, results that have ended, and summaries, each an item of its own."""
        out: list[Record] = []
        for history_entry in list_items(entry.value.get("history")):
            message = fields(history_entry.get("message"))
            summary = text(history_entry.get("conversationSummary"))
            if summary is None or text_of(message.get("content")) not in ("", summary):
                context = objects(history_entry.get("contextItems"))
                out.append({"message": message, **({"context": context} if context else {})})
            states = objects(history_entry.get("toolCallStates"))
            out += [{"result": state} for state in states if state.get("status") in _ENDED]
            if summary is not None:
                out.append({"summary": summary})
        self._copy_keys = _copy_keys(out)
        return out

    def about(self, document: Record) -> dict[str, Any]:
        """Return folder, title and model."""
        title = text(document.get("title"))
        named = {
            "cwd": text(word(document.get("workspaceDirectory")).removeprefix("file://")),
            "title:ai": title if title != _NO_TITLE else None,
            "model": document.get("chatModelTitle"),
        }
        about = {name: value for name, value in named.items() if text(value)}
        return {"about": about} if about else {}

    def item_facts(self, entry: RawRecord) -> Iterator[Fact]:
        """Yield the fact of a message, a result or a summary."""
        item = entry.value
        if "summary" in item:
            yield self._summary(entry, word(item["summary"]))
        elif "result" in item:
            yield self._result(entry, fields(item["result"]))
        else:
            message = fields(item.get("message"))
            yield self._makers.get(word(message.get("role")), self._other)(entry, message)

    def _event(self, entry: RawRecord, kind: str, parts: list[Block], **more: Any) -> Fact:
        key = self._copy_keys[entry.place.line - 1]
        when = self._time(entry.place.line)
        bill = key if more.get("usage") else None
        name = self._name(entry)
        return self._message_fact(
            entry, kind, name, parts, ts=when, copy_key=key, usage_key=bill, **more
        )

    def _time(self, line: int) -> str | None:
        """Return when an item was written; the list of sessions says when the first one was."""
        began = _began(str(self._folder / LIST)).get(self._session) if line == 1 else None
        return min(filter(None, (began, self._moment)), default=None)

    def _user(self, entry: RawRecord, message: Record) -> Fact:
        parts: list[Block] = []
        for part in blocks(message.get("content")):
            is_text = isinstance(part.get("text"), str)
            picture = Block("user_msg", "user", "", linked_image(part))
            parts.append(prompt(word(part["text"])) if is_text else picture)
        attached = objects(entry.value.get("context"))
        shown = (f"{word(item.get('name'))}\n{word(item.get('content'))}" for item in attached)
        parts += map(injected_text, shown)
        return self._event(entry, "user", parts or [prompt("")], flags=Is.PROMPT)

    def _reply(self, entry: RawRecord, message: Record) -> Fact:
        texts = [word(part.get("text")) for part in blocks(message.get("content"))]
        parts = [answer(line) for line in texts if line]
        for item in objects(message.get("toolCalls")):
            function = fields(item.get("function"))
            arguments = parse_arguments(function.get("arguments"))
            parts.append(call(word(function.get("name")), arguments, text(item.get("id"))))
        usage = fields(message.get("usage"))
        bill = usage_with_cache(
            usage.get("prompt_tokens"),
            count(usage.get("completion_tokens")),
            read=fields(usage.get("prompt_tokens_details")).get("cached_tokens"),
            written=fields(usage.get("prompt_tokens_details")).get("cache_write_tokens"),
        )
        return self._event(
            entry,
            "assistant",
            parts,
            flags=Is.REPLY | (0 if calls_of(parts) else Is.ENDS),
            response=self._name(entry),
            model=text(usage.get("model")),
            usage=bill if usage else None,
        )

    def _thought(self, entry: RawRecord, message: Record) -> Fact:
        content = text_of(message.get("content"))
        return self._event(entry, "thinking", [thought(content)], flags=Is.REPLY)

    def _answer(self, entry: RawRecord, message: Record) -> Fact:
        """Return the result of a call that stands as a message of its own."""
        content = message.get("content")
        output = content if isinstance(content, (str, list)) else ""
        block = result(output, text(message.get("toolCallId")), None, failed=None)
        return self._event(entry, "tool", [block])

    def _other(self, entry: RawRecord, message: Record) -> Fact:
        is_system = message.get("role") == "system"
        block = (
            unindexed_note("system prompt", message) if is_system else note("unknown", entry.value)
        )
        return self._event(entry, word(message.get("role")), [block], flags=Is.INTERNAL)

    def _result(self, entry: RawRecord, state: Record) -> Fact:
        """Return how a call ended."""
        name, status = text(state.get("toolCallId")), word(state.get("status"))
        outputs = [word(item.get("content")) for item in objects(state.get("output"))]
        content = [{"type": "text", "text": line} for line in outputs]
        failed = status != "done"
        code = _EXIT.search("\n".join(outputs)[:200]) if failed else None
        statuses = (CallStatus(name, failed, int(code[1])),) if name and code else ()
        tool = text(fields(fields(state.get("toolCall")).get("function")).get("name"))
        block = result(content, name, tool, failed=failed)
        return self._event(entry, "result", [block], told=statuses)

    def _summary(self, entry: RawRecord, summary: str) -> Fact:
        """Return what stands for the messages before it."""
        return self._event(
            entry, "summary", [injected_text(summary)], flags=Is.SUMMARY, unbilled=NOT_BILLED
        )


def _copy_keys(items: Sequence[Record]) -> list[str | None]:
    """Return what each item has in common with its copy in a fork; None for what is too common."""
    total, chars = blake2b(digest_size=12), 0
    out: list[str | None] = []
    for item in items:
        total.update(codec.dump(item))
        message = fields(item.get("message"))
        if message.get("role") == "assistant":
            calls = objects(message.get("toolCalls"))
            chars += len(text_of(message.get("content"))) + (len(codec.dump(calls)) if calls else 0)
        out.append(total.hexdigest() if chars >= _DISTINCT_CHARS else None)
    first = next((at for at, key in enumerate(out) if key is not None), 0)
    return [f"{out[first]}:{at}" if at < first else key for at, key in enumerate(out)]


def _began(path: str) -> dict[str, str]:
    """Return when sessions began, as their list says."""
    try:
        written = Path(path).stat().st_mtime_ns
    except OSError:
        return {}
    return _listed_times(path, written)


@lru_cache(maxsize=2)
def _listed_times(path: str, _written: int) -> dict[str, str]:
    rows = objects(parse_json(files.read_small(path)))
    times = ((word(row.get("sessionId")), count(row.get("dateCreated"))) for row in rows)
    return {name: word(moment(since)) for name, since in times if name and since}
