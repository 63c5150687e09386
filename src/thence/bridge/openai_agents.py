"""`Session` of the OpenAI Agents SDK, kept in the journal.

    session = JournalSession("user-17", thence.Journal())
    await Runner.run(agent, "Hello", session=session)

One event per item: messages, calls and results in our own words, so that `thence show` reads the
session like any other, and the item as it was beside them. Invariants: `add_items` counts whole
or not at all; an item comes back equal to what was given; `pop_item` and `clear_session` move the
tip and remove nothing; a damaged item costs itself; several objects, threads and processes may
share a session; the event loop never waits for the disk. No permission is read or written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from itertools import dropwhile
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
from thence.format.records import JSON, Event, parse_json
from thence.journal import Journal
from thence.journal.batches import MARK, BatchEntry, Batches

BRIDGE = "openai-agents"

Item = dict[str, JSON]
Compaction = Callable[[list[Item], Mapping[str, Any]], Awaitable[list[Item] | None]]
"""Takes all items and what the SDK said; gives the items to go on with, or None to leave them."""


class JournalSession(AwaitedBatches):
    """The memory of one conversation; has the shape of `agents.memory.Session`."""

    def __init__(
        self,
        session_id: str,
        journal: Journal,
        *,
        cwd: Path | str | None = None,
        session_settings: Any = None,
        compaction: Compaction | None = None,
    ) -> None:
        """Open a session by its id. `cwd` is the project it belongs to, `compaction` a hook.

        `session_settings` are the SDK's own, or a mapping of their fields.
        """
        self.session_id = session_id
        self.session_settings = _settings(session_settings)
        self.name = session_name(BRIDGE, str(cwd or ""), session_id)
        """The id of the session in the journal: `thence show` takes it."""
        self._batches = open_batches(journal, BRIDGE, self.name, cwd, name=session_id)
        self._items = _Items(self._batches)
        self._worker = Worker()
        self._compaction = compaction

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the latest `limit` items, oldest first; all without a limit."""
        if limit is None:
            limit = getattr(self.session_settings, "limit", None)
        return await self._worker.run(self._items.get, limit)

    async def add_items(self, items: list[Any]) -> None:
        """Append items: all of them or, if anything goes wrong, none."""
        copied = plain(items)
        if copied:
            await self._worker.run(self._items.add, copied)

    async def pop_item(self) -> Any:
        """Take back the last item; it stays in the log. None when there is none."""
        return await self._worker.run(self._items.pop)

    async def clear_session(self) -> None:
        """Go back to before the first item; everything stays in the log."""
        await self._worker.run(self._items.clear)

    async def run_compaction(self, args: Mapping[str, Any] | None = None) -> None:
        """Let the hook say what to go on with; the SDK calls this after a turn.

        What the hook gives takes the place of all items in one step, unless others went on
        meanwhile: then nothing happens, and the next turn asks again.
        """
        if self._compaction is None:
            return
        line, items = await self._worker.run(self._items.latest, 0)
        instead = await self._compaction(items, args or {})
        if instead is not None:
            options = {"after": line, "expired": lambda _: False}
            await self._worker.run(self._items.put_instead, plain(instead), **options)

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[Any], bool] | None = None
    ) -> Any:
        """Let the SDK's own compaction put its output in place of the last items in one step.

        It looks for this method; without it, it clears the session and adds items again.
        """
        with importing("openai-agents", extra="agents-sdk"):
            from agents.memory.session import _CompactionSnapshot

        line, items = await self._worker.run(self._items.latest, limit)
        expired = prune_prefix or (lambda _: False)

        async def replace_suffix(start: int, output: list[Any]) -> bool:
            options = {"after": line[start:], "expired": expired}
            return await self._worker.run(self._items.put_instead, plain(output), **options)

        complete = len(line) < limit or await self._worker.run(self._items.is_first, line[0])
        return _CompactionSnapshot(items, complete, replace_suffix)


class _Items:
    """The items of one session, for one thread at a time."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches
        self._own: set[str] = set()

    def _look(self) -> list[str]:
        """The ids of the items on the line."""
        self._own.update(e.uuid for e in self.batches.look() if _mark(e) is not None)
        return [uuid for uuid in self.batches.line() if uuid in self._own]

    def get(self, limit: int | None) -> list[Item]:
        line = self._look()
        if limit is None or limit < 0:
            return self._read(line)
        items: list[Item] = []
        while line and len(items) < limit:  # damaged items do not count
            wanted = limit - len(items)
            items = self._read(line[-wanted:]) + items
            line = line[:-wanted]
        return items

    def _read(self, line: list[str]) -> list[Item]:
        items = [original(event) for event in self.batches.read(line)]
        return [item for item in items if item is not None]

    def add(self, items: list[Item]) -> None:
        self.batches.append([entry_of(item) for item in items])

    def pop(self) -> Item | None:
        if self.batches.tip is None and not self._look():
            return None
        with self.batches.exclusive():
            for uuid in reversed(self._look()):
                items = self._read([uuid])
                if items:
                    self.batches.rewind(self.batches.links[uuid])
                    return items[0]
            return None

    def clear(self) -> None:
        if self._look():
            self.batches.rewind(None)

    def latest(self, limit: int) -> tuple[list[str], list[Item]]:
        """The last items, with their ids."""
        events = self.batches.read(self._look()[-limit:])
        items = [(event.uuid, item) for event in events if (item := original(event)) is not None]
        return [uuid for uuid, _ in items], [item for _, item in items]

    def is_first(self, uuid: str) -> bool:
        return self._look()[:1] == [uuid]

    def put_instead(
        self, items: list[Item], after: list[str], expired: Callable[[Any], bool]
    ) -> bool:
        """Put items in place of the last ones in one step; not if these are no longer the last.

        The first ones go with them, as far as they are expired.
        """
        with self.batches.exclusive():
            line = self._look()
            if not after or line[-len(after) :] != after:
                return False
            before = self._read(line[: -len(after)])
            remaining = list(dropwhile(expired, before))
            if len(remaining) < len(before):
                self._restart([*remaining, *items], None)
            else:
                self._restart(items, self.batches.links[after[0]])
            return True

    def _restart(self, items: list[Item], parent: str | None) -> None:
        """Go on with items from an earlier event, or from the very beginning."""
        entries = [entry_of(item) for item in items]
        if not entries:
            self.batches.rewind(parent)
            return
        first = msgspec.structs.replace(entries[0], parent=parent or self.batches.root)
        self.batches.append([first, *entries[1:]])


def _settings(settings: Any) -> Any:
    """The SDK's settings, made of a mapping if need be; None where the SDK is not installed."""
    try:
        from agents.memory.session_settings import coerce_session_settings
    except ImportError:  # before the SDK had settings of a session
        return settings
    return coerce_session_settings({} if settings is None else settings)


# -- items as events ------------------------------------------------------------------------


def entry_of(item: Item) -> BatchEntry:
    """Return the event of an item: in our own words if they say it, and as it was."""
    shown = _shown(item) if isinstance(item, dict) else None
    kind, payload = shown if shown is not None else (MARK, {})
    if payload == item:  # a plain message: nothing has to be kept twice
        return BatchEntry(kind, {**payload, MARK: {"is": BRIDGE}})
    return BatchEntry(kind, {**payload, MARK: {"is": BRIDGE, "item": fold(item, payload)}})


def original(event: Event) -> Item | None:
    """Return the item of an event; None when it has none."""
    mark = _mark(event)
    if mark is None:
        return None
    shown = shown_in(event)
    item = unfold(mark["item"], shown) if "item" in mark else shown
    return item if isinstance(item, dict) else None


def _mark(event: Event) -> dict[str, JSON] | None:
    return mark_of(event, BRIDGE)


def _shown(item: Item) -> tuple[str, dict[str, JSON]] | None:
    """Say an item as the Messages API would: role and payload; None if it has no words for it."""
    kind, role = item.get("type", "message"), item.get("role")
    if kind == "message" and role in ("user", "assistant"):
        content = _content(item.get("content"))
        return (str(role), {"role": role, "content": content}) if content else None
    call = item.get("call_id")
    if not isinstance(call, str):
        return None
    if kind == "function_call" and isinstance(item.get("name"), str):
        arguments = _arguments(item.get("arguments"))
        block = {"type": "tool_use", "id": call, "name": item["name"], "input": arguments}
        return "assistant", {"role": "assistant", "content": [block]}
    if kind == "function_call_output":
        result = {"type": "tool_result", "tool_use_id": call, "content": _output(item)}
        return "user", {"role": "user", "content": [result]}
    return None


def _content(content: JSON) -> str | list[dict[str, JSON]]:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return [block for part in parts if isinstance(part, dict) and (block := _block(part))]


def _block(part: dict[str, JSON]) -> dict[str, JSON] | None:
    """A text is a text; a refusal is what was said; anything else is named."""
    text = part.get("text", part.get("refusal"))
    if not isinstance(text, str):
        text = f"[{str(part.get('type', 'part'))[:40]}]"
    return {"type": "text", "text": text} if text.strip() else None


def _arguments(text: JSON) -> dict[str, JSON]:
    arguments = parse_json(text) if isinstance(text, str) else text
    return arguments if isinstance(arguments, dict) else {"arguments": text}


def _output(item: Item) -> str:
    output = item.get("output")
    if isinstance(output, list):
        content = _content(output)
        return "\n".join(block["text"] for block in content if isinstance(block, dict))
    return output if isinstance(output, str) else msgspec.json.encode(output).decode()
