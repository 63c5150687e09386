"""Threads: checkpoints whole or not at all, writes in their places, nothing removed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from thence.bridge.deltas import TypedValue
from thence.bridge.threads import CheckpointPut, PendingWrite, Thread, ThreadMessage
from thence.format.transcript import Transcript
from thence.journal import Journal


def value(text: str | bytes) -> TypedValue:
    """A value as a serializer wrote it."""
    return TypedValue("test", text if isinstance(text, bytes) else text.encode())


def put(
    number: int, parent: int | None = None, *, ns: str = "", **channels: bytes | str
) -> CheckpointPut:
    """A checkpoint with the channels that are new in it."""
    return CheckpointPut(
        (ns, f"{number:04d}"),
        None if parent is None else f"{parent:04d}",
        value(f"checkpoint {number}"),
        value(f"metadata {number}"),
        f"run {number % 2}",
        {name: value(text) for name, text in channels.items()},
        dict.fromkeys(channels, f"v{number}"),
        [ThreadMessage(f"m{number}", "user", {"role": "user", "content": f"said {number}"})],
    )


def opened(home: Path) -> Thread:
    """A thread, read from the disk."""
    thread = Thread("t", Journal(home).batches("thread"))
    thread.look()
    return thread


def log(home: Path) -> Path:
    """The one transcript on the disk."""
    (path,) = (home / "sessions").rglob("*.jsonl")
    return path


def values_of(thread: Thread) -> dict[str, dict[str, str] | None]:
    """The values of all checkpoints that are not gone."""
    out: dict[str, dict[str, str] | None] = {}
    for row in thread.alive():
        channels = thread.channels(row)
        out[row.at[1]] = (
            None if channels is None else {n: v.data.decode() for n, v in channels.items()}
        )
    return out


def test_checkpoints_come_back_with_their_values(tmp_path: Path) -> None:
    """In this process and in another; two channels, one of which is new each time."""
    thread = opened(tmp_path)
    thread.put([put(1, a="one")])
    thread.put([put(2, 1, a="two")])
    expected = {"0001": {"a": "one"}, "0002": {"a": "two"}}

    assert expected == values_of(thread) == values_of(opened(tmp_path))
    assert ["0002", "0001"] == [row.at[1] for row in opened(tmp_path).alive()]


def test_two_objects_keep_up_with_each_other(tmp_path: Path) -> None:
    """What one puts the other finds at its next look."""
    first, second = opened(tmp_path), opened(tmp_path)
    first.put([put(1, a="one")])
    second.put([put(2, 1, a="two")])
    first.look()

    assert values_of(first) == values_of(second) == {"0001": {"a": "one"}, "0002": {"a": "two"}}


def test_a_growing_channel_costs_what_is_added_to_it(tmp_path: Path) -> None:
    """Two hundred checkpoints of a list that grows: a few times the last, not a hundred."""
    made, data = random.Random(5), b""
    thread = opened(tmp_path)
    for number in range(200):
        data += made.randbytes(400)
        thread.put([put(number, number - 1 if number else None, a=bytes([number % 256]) + data)])
    last = opened(tmp_path)
    channels = last.channels(last.alive()[0])

    assert log(tmp_path).stat().st_size < 6 * len(data)
    assert channels is not None
    assert bytes([199]) + data == channels["a"].data


def test_a_copy_of_a_thread_costs_no_more_than_the_thread(tmp_path: Path) -> None:
    """Many checkpoints in one batch build on each other, too."""
    made, data, puts = random.Random(5), b"", []
    for number in range(100):
        data += made.randbytes(400)
        puts.append(put(number, number - 1 if number else None, a=bytes([number]) + data))
    thread = opened(tmp_path)
    thread.put(puts)

    assert log(tmp_path).stat().st_size < 6 * len(data)
    assert 100 == len(opened(tmp_path).alive())
    assert not thread.stale


def test_the_first_write_of_a_place_counts_and_special_ones_replace(tmp_path: Path) -> None:
    """In the order in which a superstep applies them: by path, by task, by place."""
    thread, at = opened(tmp_path), ("", "0001")
    thread.put([put(1, a="one")])
    thread.put_writes(
        at,
        [
            PendingWrite("t2", 0, "a", value("x"), "p1"),
            PendingWrite("t2", 1, "b", value("y"), "p1"),
        ],
    )
    thread.put_writes(at, [PendingWrite("t2", 0, "a", value("again"), "p1")])
    thread.put_writes(at, [PendingWrite("t1", 0, "a", value("z"), "p2")])
    for text in ("first error", "second error"):
        thread.put_writes(at, [PendingWrite("t3", -1, "__error__", value(text))])
    expected = [("t3", b"second error"), ("t2", b"x"), ("t2", b"y"), ("t1", b"z")]

    for reader in (thread, opened(tmp_path)):
        assert expected == [(write.task, write.value.data) for write in reader.pending_writes(at)]


def test_what_is_gone_stays_in_the_log(tmp_path: Path) -> None:
    """Dropped checkpoints and a deleted thread; what comes next begins anew."""
    thread = opened(tmp_path)
    thread.put([put(1, a="one"), put(2, 1, a="two"), put(3, 2, a="three")])
    thread.drop(thread.alive()[1:])

    assert {"0003": {"a": "three"}} == values_of(thread) == values_of(opened(tmp_path))
    assert ["0002", "0001"] == [row.at[1] for row in thread.above(thread.alive()[0])]
    thread.delete()
    assert {} == values_of(thread) == values_of(opened(tmp_path))
    thread.put([put(1, a="one")])
    assert {"0001": {"a": "one"}} == values_of(opened(tmp_path))
    assert b"said 3" in log(tmp_path).read_bytes()


def test_a_checkpoint_that_was_cut_is_not_there(tmp_path: Path) -> None:
    """Every byte of it: the one before stands, and the next can be put."""
    thread = opened(tmp_path / "a")
    thread.put([put(1, a="one")])
    start = log(tmp_path / "a").stat().st_size
    thread.put([put(2, 1, a="two")])
    data = log(tmp_path / "a").read_bytes()
    for cut in range(start, len(data) - 1, 11):
        log(tmp_path / "a").write_bytes(data[:cut])
        again = opened(tmp_path / "a")

        assert {"0001": {"a": "one"}} == values_of(again)
        again.put([put(3, 1, a="three")])
        assert {"0001": {"a": "one"}, "0003": {"a": "three"}} == values_of(opened(tmp_path / "a"))


def test_a_damaged_checkpoint_costs_itself_and_what_builds_on_it(tmp_path: Path) -> None:
    """Values that were kept whole are found all the same."""
    thread = opened(tmp_path)
    for number in range(1, 5):
        text = f"{number} " * 200 if number < 4 else "short"
        thread.put([put(number, number - 1 if number > 1 else None, a=text, b=f"b{number}")])
    lines = log(tmp_path).read_bytes().splitlines(keepends=True)
    broken = next(n for n, line in enumerate(lines) if b'"id":"0002"' in line)
    lines[broken] = lines[broken][:50] + b"\n"
    log(tmp_path).write_bytes(b"".join(lines))
    checkpoints = values_of(opened(tmp_path))

    assert {"0001", "0003", "0004"} == checkpoints.keys()
    assert "short" == (checkpoints["0004"] or {})["a"]


@pytest.mark.parametrize(
    "fields",
    [{"put": 7}, {"put": {"values": []}}, {"writes": {"ns": ""}}, {"gone": [[1]]}, {"said": None}],
)
def test_what_is_not_as_we_write_it_is_passed_over(tmp_path: Path, fields: object) -> None:
    """A log is hostile; nothing in it raises."""
    from thence.journal.batches import MARK, BatchEntry

    thread = opened(tmp_path)
    thread.put([put(1, a="one")])
    thread.batches.append([BatchEntry(MARK, {MARK: {"is": "langgraph", **dict(fields)}})])  # type: ignore[call-overload]
    thread.put([put(2, 1, a="two")])

    assert {"0001": {"a": "one"}, "0002": {"a": "two"}} == values_of(opened(tmp_path))


def test_messages_stand_in_the_session_once_and_branch_where_a_checkpoint_does(
    tmp_path: Path,
) -> None:
    """A fork goes on from the checkpoint it forked from; subgraphs do not pull the line away."""
    thread = opened(tmp_path)
    thread.put([put(1, a="one")])
    thread.put([put(2, 1, a="two")])
    thread.put([put(1, None, ns="sub", a="in a subgraph")])
    thread.put([put(3, 2, a="three")])
    thread.put([put(4, 1, a="fork")])
    read = Transcript.read(log(tmp_path).read_bytes())
    (message,) = read.messages().messages

    assert ["said 1", "said 4"] == [block["text"] for block in message["content"]]
