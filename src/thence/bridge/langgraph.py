"""`BaseCheckpointSaver` of LangGraph, kept in the journal: all eight capabilities, sync and async.

    graph = builder.compile(checkpointer=JournalSaver(thence.Journal()))

A thread is a session; its messages are messages, so that `thence show` reads it like any other.
Invariants: a checkpoint counts whole or not at all; what `delete_thread`, `delete_for_runs` and
`prune` take away stays in the log, and a `DeltaChannel` is put together through it all the same;
a list that grows costs what is added to it; several threads and processes may share a thread; the
async methods never make the event loop wait for the disk. With a serializer that encrypts, no
message is written in plain words. Needs the extra `langgraph`.
"""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import wraps
from operator import is_
from pathlib import Path
from typing import Any, TypeVar

from thence.bridge.deltas import TypedValue
from thence.bridge.sdk_records import importing, open_batches, session_name
from thence.bridge.threads import (
    BRIDGE,
    CheckpointPut,
    CheckpointRow,
    PendingWrite,
    Thread,
    ThreadMessage,
    Where,
)
from thence.bridge.worker import Worker
from thence.errors import ThenceError
from thence.format import layout
from thence.format.records import JSON
from thence.journal import Journal
from thence.journal.blobs import Blobs

with importing("langgraph-checkpoint", extra="langgraph"):
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        CheckpointTuple,
        get_checkpoint_metadata,
    )

OPEN = 32
"""Threads whose index is held at a time."""

Config = Mapping[str, Any]
T = TypeVar("T")


def _awaited(method: Callable[..., T]) -> Callable[..., Coroutine[Any, Any, T]]:
    """Return a method of the saver that does the same in its worker."""

    @wraps(method)
    async def run(saver: JournalSaver, *args: Any, **options: Any) -> T:
        return await saver._worker.run(method, saver, *args, **options)  # noqa: SLF001 - its own

    return run


class JournalSaver(BaseCheckpointSaver):  # type: ignore[misc] # not installed everywhere
    """Checkpoints in one journal."""

    def __init__(
        self, journal: Journal, *, cwd: Path | str | None = None, serde: Any = None
    ) -> None:
        """Keep threads in a journal; `cwd` is the project they belong to."""
        super().__init__(serde=serde)
        self._journal = journal
        self._cwd = cwd
        self._mutex = threading.RLock()
        self._open: OrderedDict[str, Thread] = OrderedDict()
        self._worker = Worker()

    def name_of(self, thread_id: str) -> str:
        """Return the id of a thread's session in the journal: `thence show` takes it."""
        return session_name(BRIDGE, str(self._cwd or ""), str(thread_id))

    # -- threads ------------------------------------------------------------------------

    def _thread(self, thread_id: str) -> Thread:
        thread = self._open.get(thread_id)
        if thread is None or thread.stale:
            thread = self._made(thread_id)
        self._open[thread_id] = thread
        self._open.move_to_end(thread_id)
        while len(self._open) > OPEN and self._journal.enabled:
            self._open.popitem(last=False)[1].batches.close()
        return thread

    def _made(self, thread_id: str) -> Thread:
        name = self.name_of(thread_id)
        batches = open_batches(self._journal, BRIDGE, name, self._cwd, name=thread_id)
        if not self._journal.enabled:
            return Thread(thread_id, batches)
        large = Blobs(self._journal.root / layout.SPILL / name, suffix=".value")

        def save(data: bytes) -> str:
            blob = large.add([data])
            large.sync()
            return blob.hash

        def load(key: str, size: int) -> bytes | None:
            try:
                return large.load(key, size)
            except ThenceError:
                # Gone or damaged: whoever asks for the value is told so.
                return None

        return Thread(thread_id, batches, load=load, save=save)

    @property
    def _project(self) -> str | None:
        return None if self._cwd is None else str(self._cwd)

    def _every(self) -> list[str]:
        """The ids of all threads."""
        headers = self._journal.read_headers(self._project)
        named = [header.get("name") for header in headers if header.get("bridge") == BRIDGE]
        return list(dict.fromkeys([n for n in named if isinstance(n, str)] + list(self._open)))

    # -- reading ------------------------------------------------------------------------

    def get_tuple(self, config: Config) -> CheckpointTuple | None:
        """Return one checkpoint, or the newest whole one of a thread."""
        asked = config["configurable"]
        ns, at = asked.get("checkpoint_ns", ""), asked.get("checkpoint_id")
        with self._mutex:
            thread = self._thread(str(asked["thread_id"]))
            thread.look()
            if at is not None:
                row = thread.row((ns, at))
                return None if row is None else self._tuple(thread, row)
            tuples = (self._tuple(thread, row) for row in thread.alive(ns))
            return next((checkpoint for checkpoint in tuples if checkpoint is not None), None)

    def _tuple(self, thread: Thread, row: CheckpointRow) -> CheckpointTuple | None:
        values = thread.channels(row)
        if values is None:
            return None
        checkpoint = self._plain(row.checkpoint)
        loose = checkpoint.pop("channel_values", {})
        channels = {channel: self._plain(value) for channel, value in values.items()}
        return CheckpointTuple(
            _config(thread.name, row.at),
            {**checkpoint, "channel_values": {**loose, **channels}},
            self._plain(row.metadata),
            None if row.parent is None else _config(thread.name, (row.at[0], row.parent)),
            self._pending_writes(thread, row.at),
        )

    def _pending_writes(self, thread: Thread, at: Where) -> list[tuple[str, str, Any]]:
        writes = thread.pending_writes(at)
        return [(write.task, write.channel, self._plain(write.value)) for write in writes]

    def _plain(self, value: TypedValue) -> Any:
        return self.serde.loads_typed((value.kind, value.data))

    def _dump_typed(self, value: Any) -> TypedValue:
        return TypedValue(*self.serde.dumps_typed(value))

    def list(
        self,
        config: Config | None,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - the SDK's word
        before: Config | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """List checkpoints, newest first."""
        asked = config["configurable"] if config is not None else {}
        until = before["configurable"].get("checkpoint_id") if before is not None else None
        with self._mutex:
            threads = [str(asked["thread_id"])] if "thread_id" in asked else self._every()
            rows = [
                (name, row)
                for name in threads
                for row in self._rows(name, asked.get("checkpoint_ns"))
                if asked.get("checkpoint_id") in (None, row.at[1])
                and (until is None or row.at[1] < until)
                and self._fits(row, filter or {})
            ]
        rows.sort(key=lambda pair: pair[1].at[1], reverse=True)
        yielded = 0
        for name, row in rows:
            if limit is not None and yielded >= limit:
                return
            checkpoint = self.get_tuple(_config(name, row.at))
            if checkpoint is not None:
                yielded += 1
                yield checkpoint

    def _rows(self, thread_id: str, ns: str | None) -> Sequence[CheckpointRow]:
        thread = self._thread(thread_id)
        thread.look()
        return thread.alive(ns)

    def _fits(self, row: CheckpointRow, wanted: Mapping[str, Any]) -> bool:
        if not wanted:
            return True
        metadata = self._plain(row.metadata)
        return all(metadata.get(name) == value for name, value in wanted.items())

    def get_delta_channel_history(
        self, *, config: Config, channels: Sequence[str]
    ) -> Mapping[str, Any]:
        """Return what was written to channels on the way to a checkpoint, back to a whole value.

        Checkpoints that were pruned or deleted count here: without them what is left would be
        put together wrongly, and nobody would be told.
        """
        asked = config["configurable"]
        with self._mutex:
            thread = self._thread(str(asked["thread_id"]))
            thread.look()
            ns, at = asked.get("checkpoint_ns", ""), asked.get("checkpoint_id")
            rows = [r for r in thread.alive(ns) if at in (None, r.at[1])]
            above = list(thread.above(rows[0])) if rows else []
            return {channel: self._history(thread, above, channel) for channel in channels}

    def _history(
        self, thread: Thread, above: Sequence[CheckpointRow], channel: str
    ) -> dict[str, Any]:
        writes: Any = []
        for row in above:
            channel_writes = [
                write for write in self._pending_writes(thread, row.at) if write[1] == channel
            ]
            writes = channel_writes + writes
            name = row.channels.get(channel)
            seed = thread.values.get(name) if name is not None else None
            if seed is not None:
                return {"writes": writes, "seed": self._plain(seed)}
        return {"writes": writes}

    # -- writing ------------------------------------------------------------------------

    def put(
        self,
        config: Config,
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any],
        new_versions: Mapping[str, Any],
    ) -> Config:
        """Keep a checkpoint."""
        thread_id, put = self._put(config, checkpoint, metadata, new_versions)
        return self._keep(thread_id, put)

    def _keep(self, thread_id: str, put: CheckpointPut) -> Config:
        with self._mutex:
            self._thread(thread_id).put([put])
        return _config(thread_id, put.at)

    def _put(
        self,
        config: Config,
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any],
        new_versions: Mapping[str, Any],
    ) -> tuple[str, CheckpointPut]:
        """Write everything out at once: the graph goes on and may change it meanwhile."""
        asked = config["configurable"]
        thread_id = str(asked["thread_id"])
        values = checkpoint["channel_values"]
        versions = checkpoint["channel_versions"]
        details = get_checkpoint_metadata(config, metadata)
        loose = {name: value for name, value in values.items() if name not in versions}
        new = {
            channel: self._dump_typed(values[channel]) if channel in values else None
            for channel in new_versions
            if channel in versions
        }
        run = details.get("run_id")
        put = CheckpointPut(
            (asked.get("checkpoint_ns", ""), checkpoint["id"]),
            asked.get("checkpoint_id"),
            self._dump_typed({**checkpoint, "channel_values": loose}),
            self._dump_typed(details),
            str(run) if run is not None else None,
            new,
            {**versions, **new_versions},
            self._new_messages(values, new, str(asked["thread_id"]))
            if not asked.get("checkpoint_ns")
            else [],
        )
        return thread_id, put

    def _new_messages(
        self, values: Mapping[str, Any], new: Mapping[str, TypedValue | None], thread_id: str
    ) -> Any:
        """The messages among new values, in our own words, unless they are to stay secret.

        Those that the thread is known to hold are passed over: a list has many, few are new.
        """
        if any("+" in value.kind for value in new.values() if value is not None):
            return []
        thread = self._open.get(thread_id)
        known = thread.message_ids if thread is not None else set[str]()
        seen = thread.seen if thread is not None else dict[str, tuple[Any, ...]]()
        messages: list[ThreadMessage | None] = []
        for name in new:
            some = values.get(name)
            if isinstance(some, (list, tuple)):
                before = seen.get(name, ())
                # The same objects as before, which is what a list that grows begins with.
                start = len(before) if all(map(is_, before, some)) else 0
                rest = (
                    message for message in some[start:] if getattr(message, "id", None) not in known
                )
                messages += map(message_of, rest)
                seen[name] = tuple(some)
        return [message for message in messages if message is not None]

    def put_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Keep what a task wrote on the way to the next checkpoint."""
        self._keep_writes(config, self._writes(writes, task_id, task_path))

    def _writes(self, writes: Sequence[tuple[str, Any]], task: str, path: str) -> Any:
        return [
            PendingWrite(
                task, WRITES_IDX_MAP.get(channel, place), channel, self._dump_typed(value), path
            )
            for place, (channel, value) in enumerate(writes)
        ]

    def _keep_writes(self, config: Config, writes: Any) -> None:
        asked = config["configurable"]
        if writes:
            at = (asked.get("checkpoint_ns", ""), asked["checkpoint_id"])
            with self._mutex:
                self._thread(str(asked["thread_id"])).put_writes(at, writes)

    def get_next_version(self, current: Any, channel: None) -> str:  # noqa: ARG002 - the SDK's
        """Return the next version of a channel; two branches never draw the same one."""
        last = 0 if current is None else int(str(current).split(".", 1)[0])
        return f"{last + 1:032}.{random.random():016}"  # noqa: S311 - apart, not secret

    # -- taking away --------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Tell that a thread is gone; its session stays."""
        with self._mutex:
            thread = self._thread(str(thread_id))
            thread.look()
            thread.delete()

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Tell that the checkpoints of runs are gone, in all threads."""
        runs = {str(run) for run in run_ids}
        with self._mutex:
            for name in self._every() if runs else ():
                rows = [row for row in self._rows(name, None) if row.run in runs]
                self._thread(name).drop(rows)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy the checkpoints and writes of a thread, as one step."""
        with self._mutex:
            source = self._thread(str(source_thread_id))
            source.look()
            rows = sorted(source.alive(), key=lambda row: row.at[1])
            puts = [put for row in rows if (put := self._again(source, row)) is not None]
            writes = [
                (row.at, some) for row in rows for some in _by_task(source.pending_writes(row.at))
            ]
            if puts:
                self._thread(str(target_thread_id)).put(puts, writes)

    def _again(self, thread: Thread, row: CheckpointRow) -> CheckpointPut | None:
        values = thread.channels(row)
        if values is None:
            return None
        versions = self._plain(row.checkpoint)["channel_versions"]
        messages = self._new_messages({n: self._plain(v) for n, v in values.items()}, values, "")
        return CheckpointPut(
            row.at,
            row.parent,
            row.checkpoint,
            row.metadata,
            row.run,
            {**dict.fromkeys(row.channels), **values},
            versions,
            messages if row.at[0] == "" else [],
        )

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Tell that all checkpoints but the newest of each namespace are gone, or all of them."""
        with self._mutex:
            for name in map(str, thread_ids):
                rows = self._rows(name, None)
                newest = {row.at[0]: row for row in reversed(rows)} if strategy != "delete" else {}
                self._thread(name).drop([row for row in rows if newest.get(row.at[0]) is not row])

    # -- the same, awaited --------------------------------------------------------------

    aget_tuple = _awaited(get_tuple)

    async def alist(
        self,
        config: Config | None,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - the SDK's word
        before: Config | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """List checkpoints, newest first."""
        checkpoints = self.list(config, filter=filter, before=before, limit=limit)
        while (checkpoint := await self._worker.run(next, checkpoints, None)) is not None:
            yield checkpoint

    async def aput(
        self,
        config: Config,
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any],
        new_versions: Mapping[str, Any],
    ) -> Config:
        """Keep a checkpoint."""
        thread_id, put = self._put(config, checkpoint, metadata, new_versions)
        return await self._worker.run(self._keep, thread_id, put)

    async def aput_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Keep what a task wrote on the way to the next checkpoint."""
        await self._worker.run(self._keep_writes, config, self._writes(writes, task_id, task_path))

    adelete_thread = _awaited(delete_thread)
    adelete_for_runs = _awaited(delete_for_runs)
    acopy_thread = _awaited(copy_thread)
    aprune = _awaited(prune)
    aget_delta_channel_history = _awaited(get_delta_channel_history)

    def flush(self) -> None:
        """Return when everything put so far is on the disk itself."""
        with self._mutex:
            for thread in self._open.values():
                thread.batches.sync()

    def close(self) -> None:
        """End cleanly; the saver can be used again."""
        with self._mutex:
            for thread in self._open.values():
                thread.batches.close()


def _config(thread_id: str, at: Where) -> Config:
    return {
        "configurable": {"thread_id": thread_id, "checkpoint_ns": at[0], "checkpoint_id": at[1]}
    }


def _by_task(writes: Sequence[PendingWrite]) -> Iterator[Any]:
    """Writes in lots of one task and path each, as they were put."""
    lots: dict[tuple[str, str], Any] = {}
    for write in writes:
        lots.setdefault((write.task, write.path), []).append(write)
    return iter(lots.values())


# -- messages -------------------------------------------------------------------------------

_ROLES = {"human": "user", "ai": "assistant", "tool": "user"}


def message_of(message: Any) -> ThreadMessage | None:
    """Say a message of LangChain in our own words; None for anything else."""
    kind, content = getattr(message, "type", None), getattr(message, "content", None)
    role = _ROLES.get(kind) if isinstance(kind, str) else None
    if role is None or not isinstance(content, (str, list)):
        return None
    texts = [content] if isinstance(content, str) else [_text(part) for part in content]
    blocks: list[dict[str, JSON]] = [{"type": "text", "text": t} for t in texts if t.strip()]
    if kind == "tool":
        call = str(getattr(message, "tool_call_id", ""))
        result = {"type": "tool_result", "tool_use_id": call, "content": "\n".join(texts)}
        blocks = [result | ({"is_error": True} if message.status == "error" else {})]
    for call in getattr(message, "tool_calls", None) or ():
        arguments = {"id": call.get("id") or "", "name": call["name"], "input": call["args"]}
        blocks.append({"type": "tool_use", **arguments})
    payload: dict[str, JSON] = {"role": role, "content": blocks, **_bill(message)}
    key = getattr(message, "id", None) or TypedValue("said", repr((kind, texts)).encode()).name
    return ThreadMessage(str(key), role, payload) if blocks else None


def _text(part: Any) -> str:
    if isinstance(part, str):
        return part
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
    return text if isinstance(text, str) else ""


def _bill(message: Any) -> dict[str, JSON]:
    """What a reply took, as far as the message tells."""
    used = getattr(message, "usage_metadata", None)
    usage: dict[str, JSON] = {}
    if isinstance(used, dict):
        details = used.get("input_token_details") or {}
        cached = int(details.get("cache_read", 0) or 0)
        usage["usage"] = {
            "input_tokens": max(int(used.get("input_tokens", 0)) - cached, 0),
            "output_tokens": int(used.get("output_tokens", 0)),
            "cache_read_input_tokens": cached,
        }
    meta = getattr(message, "response_metadata", None)
    model = meta.get("model_name") if isinstance(meta, dict) else None
    return usage | ({"model": model} if isinstance(model, str) else {})
