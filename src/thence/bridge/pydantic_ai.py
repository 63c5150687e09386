"""Message history of Pydantic AI, kept in the journal and mended on the way out.

    history = JournalHistory("user-17", thence.Journal())
    result = await agent.run(prompt, message_history=await history.load())
    await history.save(result.all_messages())

Messages go in and out through the SDK's own type adapter. Invariants: `save` counts whole or not
at all and adds only what is new; a history that was edited or shortened becomes a branch, and
what was there before stays in the log; what comes out is what went in, but for calls that a crash
left without an answer: these are answered, dropped or told, as `orphans` says, so that the next
run is not refused; a damaged message costs itself. Needs `pydantic-ai`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from thence.bridge.sdk_records import (
    AwaitedBatches,
    fold,
    importing,
    mark_of,
    open_batches,
    plain,
    session_name,
    shown_in,
    unfold,
)
from thence.bridge.worker import Worker
from thence.format import repair
from thence.format.records import JSON, Event, count, parse_json
from thence.journal import Journal
from thence.journal.batches import MARK, BatchEntry, Batches

BRIDGE = "pydantic-ai"

Message = dict[str, JSON]
Part = dict[str, JSON]

_CALLS = ("tool-call",)
_ANSWERS = ("tool-return", "retry-prompt")


class JournalHistory(AwaitedBatches):
    """The messages of one conversation."""

    def __init__(
        self,
        session_id: str,
        journal: Journal,
        *,
        cwd: Path | str | None = None,
        orphans: repair.Orphans = "answer",
    ) -> None:
        """Open a history by its id. `cwd` is the project it belongs to."""
        self.session_id = session_id
        self.name = session_name(BRIDGE, str(cwd or ""), session_id)
        """The id of the session in the journal: `thence show` takes it."""
        self.orphans = orphans
        self._batches = open_batches(journal, BRIDGE, self.name, cwd, name=session_id)
        self._messages = _Messages(self._batches)
        self._worker = Worker()

    async def load(self) -> list[Any]:
        """Return all messages, valid for the next run."""
        return await self._worker.run(self.load_now)

    def load_now(self) -> list[Any]:
        """The same for code without an event loop."""
        return _validate(repair_messages(self._messages.load(), self.orphans))

    async def save(self, messages: Sequence[Any]) -> None:
        """Keep a whole history, as `result.all_messages()` gives it; only what is new is added."""
        await self._worker.run(self._messages.save, _dump(messages))

    def save_now(self, messages: Sequence[Any]) -> None:
        """The same for code without an event loop."""
        self._messages.save(_dump(messages))

    async def add(self, messages: Sequence[Any]) -> None:
        """Add messages, as `result.new_messages()` gives them."""
        await self._worker.run(self._messages.add, _dump(messages))

    async def clear(self) -> None:
        """Go back to before the first message; everything stays in the log."""
        await self._worker.run(self._messages.save, [])


class _Messages:
    """The messages of one history as plain data, for one thread at a time."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches
        self._own: set[str] = set()

    def _read(self) -> list[tuple[str, Message]]:
        """The messages on the line, with the ids of their events."""
        self._own.update(e.uuid for e in self.batches.look() if _mark(e) is not None)
        events = self.batches.read([u for u in self.batches.line() if u in self._own])
        messages = [(event.uuid, original(event)) for event in events]
        return [(uuid, message) for uuid, message in messages if message is not None]

    def load(self) -> list[Message]:
        return [message for _, message in self._read()]

    def add(self, messages: list[Message]) -> None:
        if messages:
            self.batches.append([entry_of(message) for message in messages])

    def save(self, messages: list[Message]) -> None:
        if not messages and not self._read():
            return
        with self.batches.exclusive():
            stored = self._read()
            same = 0
            while same < min(len(stored), len(messages)) and stored[same][1] == messages[same]:
                same += 1
            entries = [entry_of(message) for message in messages[same:]]
            if same < len(stored):  # not what was kept: on from where the two part
                parent = stored[same - 1][0] if same else self.batches.root
                if not entries:
                    self.batches.rewind(parent)
                    return
                entries[0] = msgspec.structs.replace(entries[0], parent=parent)
            if entries:
                self.batches.append(entries)


# -- through the SDK ------------------------------------------------------------------------


def _dump(messages: Sequence[Any]) -> list[Message]:
    with importing("pydantic-ai-slim", extra="pydantic-ai"):
        from pydantic_ai.messages import ModelMessagesTypeAdapter

    dumped: list[Message] = plain(ModelMessagesTypeAdapter.dump_python(list(messages), mode="json"))
    return dumped


def _validate(messages: Iterable[Message]) -> list[Any]:
    """Return the SDK's own messages; one that it does not know is left out."""
    with importing("pydantic-ai-slim", extra="pydantic-ai"):
        from pydantic_ai.messages import ModelMessagesTypeAdapter

    try:
        models: list[Any] = ModelMessagesTypeAdapter.validate_python(list(messages))
    except ValueError:
        models = []
        for message in messages:
            try:
                models += ModelMessagesTypeAdapter.validate_python([message])
            except ValueError:  # it costs itself
                continue
    return models


# -- mending --------------------------------------------------------------------------------


def repair_messages(messages: list[Message], orphans: repair.Orphans) -> list[Message]:
    """Answer, drop or tell calls that have no answer; leave out answers that have no call."""
    calls = {part["tool_call_id"]: part for part in _parts(messages, _CALLS)}
    answers = {part["tool_call_id"] for part in _parts(messages, _ANSWERS) if _answers(part)}
    open_calls = [call for call in calls if call not in answers]
    stray = answers - calls.keys()
    if not open_calls and not stray:
        return messages
    out: list[Message] = []
    waiting: list[Part] = []
    for message in messages:
        if message.get("kind") == "request":
            parts = waiting + [part for part in _own(message) if not _is_stray(part, stray)]
            waiting = []
        else:
            if waiting:
                out.append(_request(waiting))
            parts, waiting = _treat_orphans(message, open_calls, orphans)
        if parts:
            out.append({**message, "parts": parts})
    return [*out, _request(waiting)] if waiting else out


def _treat_orphans(
    message: Message, open_calls: list[str], orphans: repair.Orphans
) -> tuple[list[Part], list[Part]]:
    """Return the parts of a reply as `orphans` says, and the answers of the next request."""
    treated = (_treat_orphan(part, open_calls, orphans) for part in _own(message))
    parts = [part for part in treated if part is not None]
    unanswered = [part for part in parts if part.get("tool_call_id") in open_calls]
    return parts, [_answer(part) for part in unanswered] if orphans == "answer" else []


def _is_stray(part: Part, stray: set[str]) -> bool:
    """Return whether a part answers a call that is not there."""
    return _answers(part) and part["tool_call_id"] in stray


def _own(message: Message) -> list[Part]:
    parts = message.get("parts")
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _parts(messages: list[Message], kinds: tuple[str, ...]) -> list[Part]:
    every = [part for message in messages for part in _own(message)]
    return [
        part
        for part in every
        if part.get("part_kind") in kinds and isinstance(part.get("tool_call_id"), str)
    ]


def _answers(part: Part) -> bool:
    """Whether a part answers a call; a retry without a tool answers none."""
    return part.get("part_kind") in _ANSWERS and bool(part.get("tool_name"))


def _treat_orphan(part: Part, open_calls: list[str], orphans: repair.Orphans) -> Part | None:
    if part.get("part_kind") not in _CALLS or part.get("tool_call_id") not in open_calls:
        return part
    if orphans == "mark":
        text = f"{repair.INTERRUPTED[:-1]} Call: {part.get('tool_name') or 'a tool'}]"
        return {"part_kind": "text", "content": text}
    return part if orphans == "answer" else None


def _answer(call: Part) -> Part:
    return {
        "part_kind": "tool-return",
        "tool_name": call.get("tool_name"),
        "tool_call_id": call["tool_call_id"],
        "content": repair.INTERRUPTED,
        "outcome": "failed",
    }


def _request(parts: list[Part]) -> Message:
    return {"kind": "request", "parts": parts}


# -- messages as events ---------------------------------------------------------------------


def entry_of(message: Message) -> BatchEntry:
    """Return the event of a message: in our own words if they say it, and as it was."""
    shown = _shown(message)
    kind = str(shown["role"]) if shown else MARK
    return BatchEntry(kind, {**shown, MARK: {"is": BRIDGE, "message": fold(message, shown)}})


def original(event: Event) -> Message | None:
    """Return the message of an event; None when it has none."""
    mark = _mark(event)
    message = unfold(mark["message"], shown_in(event)) if mark is not None else None
    return message if isinstance(message, dict) else None


def _mark(event: Event) -> dict[str, JSON] | None:
    mark = mark_of(event, BRIDGE)
    return mark if mark is not None and "message" in mark else None


def _shown(message: Message) -> dict[str, JSON]:
    role = "assistant" if message.get("kind") == "response" else "user"
    content = [block for part in _own(message) for block in _blocks(part)]
    if not content:
        return {}
    used, model = message.get("usage"), message.get("model_name")
    shown: dict[str, JSON] = {"role": role, "content": content}
    if isinstance(model, str):
        shown["model"] = model
    if isinstance(used, dict):
        shown["usage"] = _usage(used)
    return shown


def _usage(used: dict[str, JSON]) -> dict[str, JSON]:
    """Tokens as we count them: what was read from the cache is no input."""
    read, written = count(used.get("cache_read_tokens")), count(used.get("cache_write_tokens"))
    return {
        "input_tokens": max(count(used.get("input_tokens")) - read - written, 0),
        "output_tokens": count(used.get("output_tokens")),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
    }


def _blocks(part: Part) -> list[dict[str, JSON]]:
    kind, content, call = part.get("part_kind"), part.get("content"), part.get("tool_call_id")
    if kind in ("user-prompt", "text"):
        return [{"type": "text", "text": text} for text in _texts(content) if text.strip()]
    if kind in _CALLS and isinstance(call, str):
        named = {"id": call, "name": part.get("tool_name"), "input": _arguments(part.get("args"))}
        return [{"type": "tool_use", **named}]
    if _answers(part) and isinstance(call, str):
        text = content if isinstance(content, str) else msgspec.json.encode(content).decode()
        result = {"type": "tool_result", "tool_use_id": call, "content": text}
        failed = kind == "retry-prompt" or part.get("outcome") in ("failed", "denied", "retried")
        return [result | ({"is_error": True} if failed else {})]
    return []


def _texts(content: JSON) -> list[str]:
    """The words of a prompt; what is no text is named by its kind."""
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    named = (p if isinstance(p, str) else p.get("content", f"[{p.get('kind')}]") for p in parts)
    return [text if isinstance(text, str) else "[part]" for text in named]


def _arguments(arguments: JSON) -> dict[str, JSON]:
    value = parse_json(arguments) if isinstance(arguments, str) else arguments
    if isinstance(value, dict):
        return value
    return {} if value is None and arguments in (None, "") else {"arguments": arguments}
