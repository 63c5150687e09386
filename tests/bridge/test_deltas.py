"""Deltas: a value that grows costs what is added to it, and is put together or not at all."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from thence.bridge.deltas import TypedValue, Values, difference
from thence.bridge.sdk_records import plain
from thence.format import codec
from thence.format.records import JSON


def together(old: bytes, new: bytes) -> bytes:
    """Apply what `difference` says."""
    parts = (
        op if isinstance(op, bytes) else old[op[0] : op[0] + op[1]] for op in difference(old, new)
    )
    return b"".join(parts)


@given(st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=99))
def test_pieces_and_new_bytes_make_the_value(old: bytes, new: bytes, common: bytes) -> None:
    """Whatever the two have in common."""
    assert new == together(old, new)
    assert common + new + old == together(old + common, common + new + old)


def new_bytes(old: bytes, new: bytes) -> int:
    """How much of a value had to be said anew."""
    return sum(len(op) for op in difference(old, new) if isinstance(op, bytes))


def test_what_a_list_does_is_seen() -> None:
    """It grows, its head grows with it, its oldest go, something is put in front."""
    made = random.Random(1)
    items = [made.randbytes(200) for _ in range(40)]
    old = b"\x9f" + b"".join(items[:20])

    assert new_bytes(old, b"\xdc\x00\x15" + b"".join(items[:21])) < 210
    assert new_bytes(old, b"\x95" + b"".join(items[15:21])) < 210
    assert new_bytes(old, b"\xdc\x00\x15" + items[30] + b"".join(items[:20])) < 210
    assert 40 * 200 == new_bytes(old, made.randbytes(40 * 200))


def grown(steps: int, *, size: int = 300) -> tuple[list[TypedValue], list[dict[str, JSON]]]:
    """A list that grows by one item per step, and how each of its versions was kept."""
    made = random.Random(7)
    values, written = Values(), []
    data, last, versions = b"", None, []
    for step in range(steps):
        data += made.randbytes(size)
        value = TypedValue("msgpack", step.to_bytes(3) + data)
        piece = plain(values.keep(value.name, value, last))
        written.append({value.name: piece})
        versions.append(value)
        last = value.name
    return versions, written


def test_a_growing_list_costs_what_is_added_to_it() -> None:
    """All versions together are a small multiple of the last, however many there are."""
    for steps in (50, 200):
        versions, written = grown(steps)

        assert len(codec.dump(written)) < 5 * len(versions[-1].data)


def test_every_version_comes_back_from_what_was_written() -> None:
    """In any order, in a process that never saw them."""
    versions, written = grown(60)
    values = Values()
    for pieces in written:
        for name, piece in pieces.items():
            values.take(name, piece)

    for value in random.Random(3).sample(versions, len(versions)):
        assert value == values.get(value.name)


def test_a_value_that_misses_a_piece_is_not_given() -> None:
    """Neither are those that build on it; the others are."""
    versions, written = grown(30, size=100)
    values = Values()
    complete = [n for n, pieces in enumerate(written) if "data" in next(iter(pieces.values()))]
    lost = complete[-1] + 1
    for number, pieces in enumerate(written):
        for name, piece in pieces.items():
            values.take(name, piece if number != lost else {"kind": "msgpack", "data": "AAAA"})

    available = [values.get(value.name) is not None for value in versions]
    assert [number != lost for number in range(lost + 1)] == available[: lost + 1]
    assert not any(available[lost:])


def test_what_makes_no_sense_is_as_good_as_missing() -> None:
    """Wrong shapes, wrong names, pieces of nothing, circles."""
    values = Values()
    pieces: list[JSON] = [
        None,
        7,
        {},
        {"kind": "x", "data": "%%%"},
        {"kind": "x", "base": "nowhere", "ops": [[0, 5]], "since": 1},
        {"kind": "x", "base": "a", "ops": [[-1, 5]], "since": 1},
        {"kind": "x", "base": "a", "ops": [[1]], "since": 1},
        {"kind": "x", "base": "circle", "ops": [[0, 1]], "since": 1},
    ]
    for number, piece in enumerate(pieces):
        values.take("circle" if number == 7 else str(number), piece)

    assert [None] * 9 == [values.get(name) for name in [*map(str, range(8)), "circle"]]


def test_a_value_of_another_kind_is_kept_whole() -> None:
    """Bytes of two serializers have nothing to do with each other."""
    values = Values()
    first = TypedValue("json", b"[" + b"1," * 500 + b"1]")
    values.keep(first.name, first, None)

    assert "data" in values.keep("other", TypedValue("msgpack", first.data + b" "), first.name)
    assert "ops" in values.keep("same", TypedValue("json", first.data + b" "), first.name)
