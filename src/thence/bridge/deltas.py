"""Values that change a little at a time, kept as what changed.

A list that grows by one message per step is written again whole by a store that knows only whole
values: a thousand steps cost a thousand lists. Here a value is kept as pieces of the one before
it and the bytes that are new, and whole again once the pieces since the last whole one come to
its size, so that all versions together cost about twice the last. Invariants: a value is named by
its own hash, and what is put together is checked against it, so that damage gives nothing and
never another value; the work is linear in the two values.
"""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b

import msgspec

from thence.format.records import JSON

_WINDOW = 32  # bytes that must agree before two places count as the same
_ROUNDS = 8  # pieces looked for before the rest counts as new
_AROUND = 7  # bytes by which the head of a list may grow or shrink
_CACHE = 8 << 20  # bytes of values held as they are

Op = tuple[int, int] | bytes
"""A piece of the value before, from and how much, or bytes that are new."""


class TypedValue(msgspec.Struct, frozen=True):
    """A value as its serializer wrote it: which way, and the bytes."""

    kind: str
    data: bytes

    @property
    def name(self) -> str:
        """The hash that names it."""
        return blake2b(self.data, digest_size=16, key=self.kind.encode()[:64]).hexdigest()


class StoredDelta(msgspec.Struct, frozen=True):
    """One value as it is kept."""

    kind: str
    ops: list[Op]
    base: str | None = None
    size: int = 0
    """Bytes of the whole value."""
    since: int = 0
    """New bytes since the last whole one, these included."""


class Values:
    """The values of one thread by their names."""

    def __init__(self, load: Callable[[str, int], bytes | None] | None = None) -> None:
        """`load` reads a value that lies in a file of its own."""
        self._deltas: dict[str, StoredDelta] = {}
        self._recent: OrderedDict[str, bytes] = OrderedDict()
        self._recent_bytes = 0
        self._load = load

    def __contains__(self, name: object) -> bool:
        return name in self._deltas

    def keep(self, name: str, value: TypedValue, base: str | None) -> JSON:
        """Hold a new value, given one that it may resemble, and say how it is written."""
        old = self.get(base) if base is not None else None
        known = self._deltas.get(base) if base is not None else None
        if old is not None and known is not None and old.kind == value.kind:
            ops = difference(old.data, value.data)
            new = sum(len(op) for op in ops if isinstance(op, bytes)) + 24 * len(ops)
            since = known.since + new
            if 2 * new < len(value.data) and since < len(value.data):
                encoded = [op if isinstance(op, tuple) else _text(op) for op in ops]
                self._deltas[name] = StoredDelta(value.kind, ops, base, 0, since)
                self.hold(name, value)
                return {"kind": value.kind, "base": base, "ops": encoded, "since": since}
        self._deltas[name] = StoredDelta(value.kind, [value.data], None, len(value.data))
        self.hold(name, value)
        return {"kind": value.kind, "data": _text(value.data)}

    def take(self, name: str, record: JSON) -> None:
        """Learn of a value as it was written; what makes no sense is as good as missing."""
        if name in self._deltas:
            return
        delta = self._read(record) if isinstance(record, dict) else None
        if delta is not None:
            self._deltas[name] = delta

    def _read(self, record: dict[str, JSON]) -> StoredDelta | None:
        try:
            kind = str(record["kind"])
            if "file" in record and self._load is not None:
                data = self._load(record["file"], record["size"])
                return None if data is None else StoredDelta(kind, [data], None, len(data))
            if "data" in record:
                data = _bytes(record["data"])
                return StoredDelta(kind, [data], None, len(data))
            ops = [_op(op) for op in record["ops"]]
            return StoredDelta(kind, ops, str(record["base"]), 0, int(record["since"]))
        except (KeyError, TypeError, ValueError):
            # Damaged, or written by another version: as if it were not there.
            return None

    def get(self, name: str) -> TypedValue | None:
        """Return a value whole; None when it, or one it is made of, is missing or damaged."""
        delta = self._deltas.get(name)
        if delta is None:
            return None
        if name in self._recent:
            self._recent.move_to_end(name)
            return TypedValue(delta.kind, self._recent[name])
        value = self._put_together(name, delta)
        if value is None or value.name != name:
            return None
        self.hold(name, value)
        return value

    def hold(self, name: str, value: TypedValue) -> None:
        """Have a value at hand that is known to have this name."""
        if name not in self._recent:
            self._recent[name] = value.data
            self._recent_bytes += len(value.data)
        while self._recent_bytes > _CACHE and len(self._recent) > 1:
            self._recent_bytes -= len(self._recent.popitem(last=False)[1])

    def _put_together(self, name: str, delta: StoredDelta) -> TypedValue | None:
        steps, at, seen = [delta], delta, {name}
        while at.base is not None and at.base not in self._recent:
            below = self._deltas.get(at.base)
            if below is None or at.base in seen:
                return None
            seen.add(at.base)
            steps.append(below)
            at = below
        data = bytearray(self._recent[at.base] if at.base is not None else b"")
        for step in reversed(steps):
            data = _apply(data, step.ops)
        return TypedValue(delta.kind, bytes(data))


def _apply(old: bytearray, ops: Sequence[Op]) -> bytearray:
    """Put a value together. A new head, the rest as it was, a new tail: that is done in place."""
    if len(ops) == 3 and isinstance(ops[0], bytes) and isinstance(ops[2], bytes):
        head, piece, tail = ops[0], ops[1], ops[2]
        if isinstance(piece, tuple) and piece[0] == len(head) <= len(old):
            old[: len(head)] = head
            del old[piece[0] + piece[1] :]
            old += tail
            return old
    out = bytearray()
    for op in ops:
        out += op if isinstance(op, bytes) else old[op[0] : op[0] + op[1]]
    return out


def difference(old: bytes, new: bytes) -> list[Op]:
    """Say a value in pieces of another one, as far as that is quickly seen."""
    ops: list[Op] = []
    i = j = 0
    for _ in range(_ROUNDS):
        same = _same(old, i, new, j)
        if same:
            ops.append((i, same))
            i, j = i + same, j + same
        if j == len(new):
            return ops
        match = _again(old, i, new, j)
        if match is None:
            break
        if match[1] > j:
            ops.append(new[j : match[1]])
        i, j = match
    if j < len(new):
        ops.append(new[j:])
    return ops


def _same(old: bytes, i: int, new: bytes, j: int) -> int:
    """How many bytes agree from here on."""
    done, step = 0, 1 << 12
    most = min(len(old) - i, len(new) - j)
    while done < most:
        step = min(step, most - done)
        a, b = i + done, j + done
        if old[a : a + step] == new[b : b + step]:
            done += step
            step *= 2
        elif step == 1:
            break
        else:
            step //= 2
    return done


def _again(old: bytes, i: int, new: bytes, j: int) -> tuple[int, int] | None:
    """Find where the two agree again: in both close by, or further on in either."""
    for ahead in range(_AROUND):
        window = new[j + ahead : j + ahead + _WINDOW]
        if len(window) == _WINDOW and (at := old.find(window, i)) >= 0:
            return at, j + ahead
    for ahead in range(_AROUND):
        window = old[i + ahead : i + ahead + _WINDOW]
        if len(window) == _WINDOW and (at := new.find(window, j)) >= 0:
            return i + ahead, at
    return None


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: JSON) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def _op(op: JSON) -> Op:
    if isinstance(op, str):
        return _bytes(op)
    start, size = op
    if type(start) is not int or type(size) is not int or start < 0 or size < 0:
        raise ValueError(op)
    return start, size
