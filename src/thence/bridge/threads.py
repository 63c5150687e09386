"""Threads of LangGraph as sessions: checkpoints, the writes between them, what is gone.

Knows nothing of the SDK: values come and go as bytes of its serializer. One event per checkpoint
holds all that is new in it, so that it counts whole or not at all; messages that came with it
stand before it as messages, for whoever reads the session. Invariants: nothing is removed, what
is deleted is told to be gone; the first of two writes with the same place counts, but for the
kinds that replace each other; a checkpoint of which anything is missing or damaged is not
offered, and costs no other that does not build on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import msgspec

from thence.bridge.deltas import TypedValue, Values
from thence.bridge.sdk_records import mark_of
from thence.format.records import JSON, Event
from thence.journal.batches import MARK, BatchEntry, Batches
from thence.journal.ids import uuid7

BRIDGE = "langgraph"

LARGE = 8 << 20
"""Bytes of a value from which it gets a file of its own: a line has a longest length."""

Version = str | int | float
Where = tuple[str, str]
"""A checkpoint of a thread: its namespace and its id."""


class ThreadMessage(msgspec.Struct, frozen=True):
    """A message in our own words, and what it is known by."""

    key: str
    kind: str
    payload: dict[str, JSON]


class CheckpointPut(msgspec.Struct, frozen=True):
    """A checkpoint to be kept."""

    at: Where
    parent: str | None
    checkpoint: TypedValue
    metadata: TypedValue
    run: str | None
    values: dict[str, TypedValue | None]
    """What is new, by channel; None for a channel that is empty now."""
    versions: dict[str, Version]
    messages: list[ThreadMessage] = []


class PendingWrite(msgspec.Struct, frozen=True):
    """One value that a task wrote on the way to the next checkpoint."""

    task: str
    place: int
    channel: str
    value: TypedValue
    path: str = ""


class CheckpointRow(msgspec.Struct):
    """A checkpoint as it is kept."""

    at: Where
    parent: str | None
    checkpoint: TypedValue
    metadata: TypedValue
    run: str | None
    event: str
    channels: dict[str, str | None]
    """The name of each channel's value."""
    gone: bool = False


class Thread:
    """One thread: an index over its session, kept up with what any process adds."""

    def __init__(
        self,
        name: str,
        batches: Batches,
        *,
        load: Callable[[str, int], bytes | None] | None = None,
        save: Callable[[bytes], str] | None = None,
    ) -> None:
        """`save` and `load` keep large values in files of their own."""
        self.name = name
        self.batches = batches
        self.stale = False
        self._load = load
        self._save = save
        self._clear()

    def _clear(self) -> None:
        self.rows: dict[Where, CheckpointRow] = {}
        self.writes: dict[Where, dict[tuple[str, int], PendingWrite]] = {}
        self.values = Values(self._load)
        self._table: dict[tuple[str, str, str], str | None] = {}
        self.message_ids: set[str] = set()
        """What the messages that stand in the session are known by."""
        self.seen: dict[str, tuple[object, ...]] = {}
        """The lists that were last looked through for messages, by channel."""
        self._last: str | None = None

    # -- reading ------------------------------------------------------------------------

    def look(self) -> None:
        """Take in what was added since the last look."""
        for event in self.batches.look():
            self._take(event)

    def _take(self, event: Event) -> None:
        if event.type == "tip":
            if event.fields.get("deleted") is True:
                self._clear()
            return
        # Not ours, or damaged: it costs itself.
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            self._read(event, mark_of(event, BRIDGE) or {})

    def _read(self, event: Event, mark: dict[str, JSON]) -> None:
        if "put" in mark:
            self._read_put(event.uuid, mark["put"])
        elif "writes" in mark:
            record = mark["writes"]
            writes = self.writes.setdefault((record["ns"], record["id"]), {})
            for place, channel, name in record["writes"]:
                self.values.take(name, record["values"].get(name))
                value = self.values.get(name)
                if value is not None and (place < 0 or (record["task"], place) not in writes):
                    write = PendingWrite(record["task"], place, channel, value, record["path"])
                    writes[write.task, write.place] = write
        elif "gone" in mark:
            for ns, checkpoint in mark["gone"]:
                if (ns, checkpoint) in self.rows:
                    self.rows[ns, checkpoint].gone = True
        elif "said" in mark:
            self.message_ids.add(str(mark["said"]))

    def _read_put(self, event: str, record: dict[str, JSON]) -> None:
        for name, value in record["values"].items():
            self.values.take(name, value)
        ns = record["ns"]
        for channel, (version, name) in record["new"].items():
            self._table[ns, channel, repr(version)] = name
        known = {
            channel: self._table[ns, channel, repr(version)]
            for channel, version in record["versions"].items()
            if (ns, channel, repr(version)) in self._table
        }
        checkpoint = self.values.get(record["checkpoint"])
        metadata = self.values.get(record["metadata"])
        if checkpoint is None or metadata is None:
            return
        at = (ns, record["id"])
        self.rows[at] = CheckpointRow(
            at, record["parent"], checkpoint, metadata, record["run"], event, known
        )
        if ns == "":
            self._last = event

    def alive(self, ns: str | None = None) -> list[CheckpointRow]:
        """The checkpoints that are not gone, newest first."""
        rows = [row for row in self.rows.values() if not row.gone and ns in (None, row.at[0])]
        return sorted(rows, key=lambda row: row.at[1], reverse=True)

    def row(self, at: Where) -> CheckpointRow | None:
        """One checkpoint; None when it is not there, or gone."""
        row = self.rows.get(at)
        return None if row is None or row.gone else row

    def channels(self, row: CheckpointRow) -> dict[str, TypedValue] | None:
        """All values of a checkpoint; None when one is missing or damaged."""
        out: dict[str, TypedValue] = {}
        for channel, name in row.channels.items():
            if name is not None:
                value = self.values.get(name)
                if value is None:
                    return None
                out[channel] = value
        return out

    def pending_writes(self, at: Where) -> list[PendingWrite]:
        """What was written on the way from a checkpoint, in the order it is applied in."""
        writes = self.writes.get(at, {}).values()
        return sorted(writes, key=lambda write: (write.path, write.task, write.place))

    def above(self, row: CheckpointRow) -> Iterator[CheckpointRow]:
        """The checkpoints that lead to one, nearest first, those that are gone included."""
        seen = {row.at}
        while row.parent is not None:
            parent = self.rows.get((row.at[0], row.parent))
            if parent is None or parent.at in seen:
                return
            seen.add(parent.at)
            yield parent
            row = parent

    # -- writing ------------------------------------------------------------------------

    def put(
        self, puts: Iterable[CheckpointPut], writes: Iterable[tuple[Where, list[PendingWrite]]] = ()
    ) -> None:
        """Keep checkpoints, and writes that come with them, as one batch.

        Each builds on the one before it, which the index knows before the log does: if the
        batch cannot be written, the index is `stale` and a new one has to be made.
        """
        with self.batches.exclusive():
            self.look()
            self.stale = True
            entries: list[BatchEntry] = []
            for put in puts:
                entries += self._entries(put)
            entries += [self._writes_entry(at, some) for at, some in writes]
            self.batches.append(entries)
            self.look()
            self.stale = False

    def _entries(self, put: CheckpointPut) -> Iterator[BatchEntry]:
        """The events of a checkpoint: messages that were not said yet, then itself."""
        parent = self.rows.get((put.at[0], put.parent)) if put.parent is not None else None
        above = parent.event if parent is not None and put.at[0] == "" else None
        on = None if above == self._last else above  # a fork goes on from where it forked
        for message in put.messages:
            if message.key not in self.message_ids:
                self.message_ids.add(message.key)
                yield BatchEntry(
                    message.kind, {**message.payload, MARK: _mark(said=message.key)}, None, on
                )
                on = None
        values: dict[str, JSON] = {}
        record = {
            "ns": put.at[0],
            "id": put.at[1],
            "parent": put.parent,
            "run": put.run,
            "checkpoint": self._keep(put.checkpoint, None, values),
            "metadata": self._keep(put.metadata, None, values),
            "versions": put.versions,
            "new": {
                channel: [
                    put.versions.get(channel),
                    self._keep(value, self._base(put, parent, channel), values),
                ]
                for channel, value in put.values.items()
            },
            "values": values,
        }
        entry = BatchEntry(MARK, {MARK: _mark(put=record)}, uuid7(), on)
        self._read_put(str(entry.uuid), record)
        yield entry

    def _base(self, put: CheckpointPut, parent: CheckpointRow | None, channel: str) -> str | None:
        """The value that a channel's new one most likely resembles: its parent's."""
        row = parent
        if row is None:
            same = [r for r in self.rows.values() if r.at[0] == put.at[0]]
            row = same[-1] if same else None
        return row.channels.get(channel) if row is not None else None

    def _keep(
        self, value: TypedValue | None, base: str | None, into: dict[str, JSON]
    ) -> str | None:
        """Name a value, and say how it is kept unless it is kept already."""
        if value is None:
            return None
        name = value.name
        if name not in self.values and name not in into:
            if len(value.data) >= LARGE and self._save is not None:
                into[name] = {
                    "kind": value.kind,
                    "file": self._save(value.data),
                    "size": len(value.data),
                }
            else:
                into[name] = self.values.keep(name, value, base)
        return name

    def put_writes(self, at: Where, writes: list[PendingWrite]) -> None:
        """Keep what a task wrote."""
        with self.batches.exclusive():
            self.look()
            earlier = self.writes.get(at, {})
            new = [w for w in writes if w.place < 0 or (w.task, w.place) not in earlier]
            if new:
                self.stale = True
                self.batches.append([self._writes_entry(at, new)])
                self.look()
                self.stale = False

    def _writes_entry(self, at: Where, writes: list[PendingWrite]) -> BatchEntry:
        values: dict[str, JSON] = {}
        named = [[w.place, w.channel, self._keep(w.value, None, values)] for w in writes]
        record = {
            "ns": at[0],
            "id": at[1],
            "task": writes[0].task,
            "path": writes[0].path,
            "writes": named,
            "values": values,
        }
        return BatchEntry(MARK, {MARK: _mark(writes=record)})

    def drop(self, rows: Iterable[CheckpointRow]) -> None:
        """Tell that checkpoints are gone."""
        gone = [list(row.at) for row in rows]
        if gone:
            self.batches.append([BatchEntry(MARK, {MARK: _mark(gone=gone)})])
            self.look()

    def delete(self) -> None:
        """Tell that the whole thread is gone."""
        if self.rows or self.writes:
            self.batches.rewind(None, deleted=True)
            self.look()


def _mark(**fields: JSON) -> dict[str, JSON]:
    return {"is": BRIDGE, **fields}
