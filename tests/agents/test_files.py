"""Reading other people's files: only what is new, never for long, and without a trace."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.handles import HANDLES, open_below
from thence import system
from thence.agents import Batch, Cursor, File, Mark, Source, contents, files
from thence.agents.files import Limits
from thence.format import codec
from thence.format.facts import Block, Fact, line_name
from thence.format.nodes import PREVIOUS, Node
from thence.format.records import JSON
from thence.format.session_graph import REWRITTEN, SessionGraph


class Numbers:
    """A log of `{"n": 1}` records: named by their bytes, and counted over all reads."""

    def __init__(self, source: Source, file: File, mark: Mark) -> None:
        self._file = file
        self._generation = mark.generation
        self._count = mark.carry or 0

    def facts(self, record: codec.RawRecord) -> Iterator[Fact]:
        """One block per record; `ordinal` is how many came before."""
        value = record.value
        yield Fact(
            Node(line_name(self._file.key, record.raw), PREVIOUS),
            "n",
            blocks=(Block("user_msg", "user", payload=value),),
            file=self._file.key,
            generation=self._generation,
            line=record.place.line,
            offset=record.place.offset,
            ordinal=self._count,
            about={"n": value.get("n")},
        )
        self._count += 1

    def carry(self) -> JSON:
        """How many there were."""
        return self._count


class Reader:
    """A session of some files, read again and again."""

    def __init__(
        self, *paths: Path, is_document: bool = False, limits: Limits | None = None
    ) -> None:
        self.source = Source(
            "test",
            "s",
            tuple(
                File(str(path), f"log{i}", is_document=is_document) for i, path in enumerate(paths)
            ),
        )
        self.limits = limits
        self.cursor: Cursor | None = None
        self.facts: list[Fact] = []

    def read(self) -> Batch:
        """Read what is new; the cursor goes through JSON, as in a store."""
        batch = files.read(self.source, self.cursor, Numbers, limits=self.limits)
        self.cursor = msgspec_round(batch.cursor)
        self.facts += batch.events
        return batch

    @property
    def graph(self) -> SessionGraph:
        """The session as it stands."""
        return SessionGraph(self.source.uid, self.facts)

    @property
    def numbers(self) -> list[JSON]:
        """What is there now."""
        return [fact.about["n"] for fact in self.graph.facts]

    @property
    def gone(self) -> list[JSON]:
        """What was there once."""
        return [e.payload["n"] for e in self.graph.events if e.why == REWRITTEN]


def msgspec_round(cursor: Cursor) -> Cursor:
    """A cursor as a store gives it back."""
    return msgspec.json.decode(msgspec.json.encode(cursor), type=Cursor)


def line(n: JSON, **more: JSON) -> bytes:
    """One record."""
    return json.dumps({"n": n, **more}).encode() + b"\n"


def lines(*numbers: int) -> bytes:
    """Some records."""
    return b"".join(map(line, numbers))


def append(path: Path, data: bytes) -> None:
    """Go on writing."""
    with path.open("ab") as file:
        file.write(data)


def pack(data: bytes) -> bytes:
    """Compress."""
    return zstandard.ZstdCompressor().compress(data)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of three records."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(lines(1, 2, 3))
    return path


# -- growing --------------------------------------------------------------------------------


def test_an_append_costs_the_new_bytes_only(log: Path) -> None:
    """R2: what was read is not read again."""
    reader = Reader(log)
    first = reader.read()
    append(log, lines(4))
    second = reader.read()

    assert (3, len(lines(1, 2, 3))) == (first.lines, first.bytes)
    assert (1, len(lines(4))) == (second.lines, second.bytes)
    assert [1, 2, 3, 4] == reader.numbers
    assert [0, 1, 2, 3] == [fact.ordinal for fact in reader.facts]


def test_a_second_read_opens_nothing(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R2: one look at the name is all that an unchanged file costs."""
    reader = Reader(log)
    reader.read()
    monkeypatch.setattr(os, "open", None)
    again = reader.read()

    assert (0, 0, [], True) == (again.lines, again.bytes, again.events, again.done)


def test_a_record_without_its_lf_is_given_and_not_passed(log: Path) -> None:
    """R1: the writer may still go on with the line; the record is the same when it did not."""
    append(log, line(4)[:-1])
    reader = Reader(log)
    first = reader.read()
    append(log, b"\n")
    second = reader.read()

    assert ([1, 2, 3, 4], False) == ([f.about["n"] for f in first.events], first.torn)
    assert first.events[-1] == second.events[-1]
    assert [1, 2, 3, 4] == reader.numbers


def test_a_torn_tail_is_told_until_it_is_whole(log: Path) -> None:
    """R1, R3: half a line is no record and no error, however often it is looked at."""
    append(log, line(4)[:5])
    reader = Reader(log)
    torn = [reader.read().torn, reader.read().torn]
    append(log, line(4)[5:])
    torn.append(reader.read().torn)

    assert [True, True, False] == torn
    assert [1, 2, 3, 4] == reader.numbers


def test_a_whole_tail_is_not_torn_when_looked_at_again(log: Path) -> None:
    """R1: the second look says the same as the first."""
    append(log, line(4)[:-1])
    reader = Reader(log)

    assert [False, False] == [reader.read().torn, reader.read().torn]


def test_what_is_glued_to_a_record_leaves_its_name_alone(log: Path) -> None:
    """R1: killed before the LF, then appended to; the record that was read stays one event."""
    append(log, line(4)[:-1])
    reader = Reader(log)
    reader.read()
    append(log, line(5))
    reader.read()

    assert [1, 2, 3, 4, 5] == reader.numbers
    assert [] == reader.gone


def test_a_record_that_the_next_one_is_being_glued_to_stands(log: Path) -> None:
    """R1: at no moment of it does the record go away again."""
    append(log, line(4)[:-1])
    reader = Reader(log)
    batches = [reader.read().events]
    for i in range(len(line(5))):
        append(log, line(5)[i : i + 1])
        batches.append(reader.read().events)
        fresh = Reader(log)
        fresh.read()

        assert fresh.numbers == reader.numbers

    assert all(len(batches[0]) - 3 == sum(f.about["n"] == 4 for f in facts) for facts in batches)


def test_a_carriage_return_that_comes_late_leaves_a_name_alone(log: Path) -> None:
    """R10: CR LF is written after the record was read."""
    append(log, line(4)[:-1])
    reader = Reader(log)
    reader.read()
    append(log, b"\r\n")
    reader.read()

    assert [1, 2, 3, 4] == reader.numbers


def test_another_record_in_the_place_of_a_tail_is_a_rewrite(log: Path) -> None:
    """R2: what was read without its LF and is no more stays as a dead event."""
    append(log, line(4)[:-1])
    reader = Reader(log)
    reader.read()
    os.truncate(log, len(lines(1, 2, 3)))
    append(log, line(55))
    reader.read()

    assert [1, 2, 3, 55] == reader.numbers
    assert [4] == reader.gone


def test_a_bad_line_costs_itself_and_is_passed_once(log: Path) -> None:
    """R4: it is told with its place, and not told again."""
    append(log, b"{bad\n" + line(4))
    reader = Reader(log)
    first, second = reader.read(), reader.read()

    assert [(4, codec.BAD_JSON, str(log))] == [(s.line, s.why, s.source) for s in first.skipped]
    assert [] == second.skipped
    assert [1, 2, 3, 4] == reader.numbers


@pytest.mark.parametrize(
    "odd", [b'\xef\xbb\xbf{"n": 0}\n', b'{"n": "\\ud800"}\n', b"\0\0\0\n", b"\n", b" \r\n"]
)
def test_odd_bytes_are_taken_as_they_come(log: Path, odd: bytes) -> None:
    """R6: marks of byte order, lone surrogates, NULs and blank lines cost at most themselves."""
    log.write_bytes(odd + lines(1, 2))
    reader = Reader(log)
    reader.read()

    assert [1, 2] == reader.numbers[-2:]


@given(st.data())
def test_growth_in_any_pieces_reads_like_the_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Appends cut anywhere, with reads in between of any budget, give the same facts."""
    content = data.draw(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=8)))
    room = data.draw(st.integers(1, 60))
    path = tmp_path_factory.mktemp("growth") / "log.jsonl"
    path.write_bytes(content)
    once = Reader(path)
    once.read()
    path.write_bytes(b"")
    grown = Reader(path, limits=Limits(bytes=room))
    for start, stop in zip([0, *cuts], [*cuts, len(content)], strict=True):
        append(path, content[start:stop])
        while not grown.read().done:
            pass

    assert {repr(f) for f in once.facts} == {repr(f) for f in grown.facts}
    assert once.graph.events == grown.graph.events
    assert once.graph.states == grown.graph.states


PIECES = (
    line(1),
    line(2),
    line(3, text="long " * 1000),
    b'{"n": 4}\r\n',
    b"\n",
    b'{"n": 5}{"n": 6}\n',
    b'{"n": 7',
    b"\xff\xfe\n",
    b"not json\n",
    b'["no object"]\n',
    b"\0\0\n",
)


def test_a_file_that_grows_byte_by_byte_reads_like_the_whole(tmp_path: Path) -> None:
    """Every state in between is read, and none of them leaves anything behind."""
    content = lines(1, 2) + b'{"n": 3}{"n": 4}\r\n{bad\n' + line(5)[:-1]
    path = tmp_path / "log.jsonl"
    path.write_bytes(content)
    once = Reader(path)
    once.read()
    path.write_bytes(b"")
    grown = Reader(path)
    for i in range(len(content)):
        append(path, content[i : i + 1])
        grown.read()

    assert once.graph.events == grown.graph.events
    assert [1, 2, 3, 4, 5] == grown.numbers


# -- rewriting ------------------------------------------------------------------------------


def rewrite(path: Path, data: bytes) -> None:
    """Write in place: the same inode, a later time."""
    before = path.stat().st_mtime_ns
    path.write_bytes(data)
    os.utime(path, ns=(before + 10**9, before + 10**9))


def replace(path: Path, data: bytes) -> None:
    """Put another file in its place."""
    other = path.with_suffix(".new")
    other.write_bytes(data)
    other.rename(path)


@pytest.mark.parametrize("change", [rewrite, replace])
@pytest.mark.parametrize(
    ("after", "gone"),
    [
        (lines(1, 2), [3]),
        (lines(1, 2, 9), [3]),
        (lines(9, 2, 3), [1]),
        (lines(1, 2, 7, 8, 9), [3]),
        (b"", [1, 2, 3]),
        (line(1)[:-1], [2, 3]),
        (lines(3, 2, 1), []),
    ],
    ids=["truncated", "same size", "new start", "rewound", "emptied", "torn", "shuffled"],
)
def test_what_a_rewritten_log_no_longer_holds_stays_dead(
    log: Path, change: Callable[[Path, bytes], None], after: bytes, gone: list[int]
) -> None:
    """R2: detected, read again from the start, and nothing that was read vanishes."""
    reader = Reader(log)
    reader.read()
    change(log, after)
    batch = reader.read()
    fresh = Reader(log)
    fresh.read()

    assert [REWRITTEN] == [notice.what for notice in batch.notices]
    assert fresh.numbers == reader.numbers
    assert gone == reader.gone
    assert {e.event_id for e in fresh.graph.events} <= {e.event_id for e in reader.graph.events}


def test_a_log_that_is_rewritten_again_and_again_keeps_all_it_ever_held(log: Path) -> None:
    """R2: each generation is told apart; an event that comes back is alive again."""
    reader = Reader(log)
    for numbers in [(1, 2, 3), (1, 4), (), (5,), (1, 2), (2, 2)]:
        rewrite(log, lines(*numbers))
        reader.read()

    assert [2, 2] == reader.numbers
    assert [1, 3, 4, 5] == sorted(reader.gone)


@given(st.lists(st.lists(st.integers(0, 5), max_size=4), min_size=1, max_size=6))
def test_whatever_is_done_to_a_log_everything_read_is_still_there(
    tmp_path_factory: pytest.TempPathFactory, states: list[list[int]]
) -> None:
    """Once read, an event is there for ever: as the same event or dead, never twice."""
    path = tmp_path_factory.mktemp("states") / "log.jsonl"
    path.write_bytes(b"")
    reader = Reader(path)
    known: set[int] = set()
    for state in states:
        rewrite(path, lines(*state))
        reader.read()
        events = reader.graph.events
        ids = [event.event_id for event in events]

        assert state == reader.numbers
        assert known <= set(ids)
        assert len(ids) == len(set(ids))
        known |= set(ids)


def test_growth_behind_a_changed_start_is_no_append(log: Path) -> None:
    """R2: growth alone does not prove an append."""
    reader = Reader(log)
    reader.read()
    rewrite(log, lines(9, 2, 3, 4))
    reader.read()

    assert [9, 2, 3, 4] == reader.numbers


LONG = line(0, text="x" * 9000)


def test_a_change_in_the_middle_of_a_long_log_is_seen_by_its_time(tmp_path: Path) -> None:
    """R2: of the same size, far from both edges, written in place."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(LONG + lines(1) + LONG)
    reader = Reader(path)
    reader.read()
    rewrite(path, LONG + lines(2) + LONG)
    reader.read()

    assert ([0, 2, 0], [1]) == (reader.numbers, reader.gone)


@pytest.mark.parametrize("before", [b"", LONG])
def test_a_change_while_reading_is_noticed_next_time(
    log: Path, monkeypatch: pytest.MonkeyPatch, before: bytes
) -> None:
    """R2: the mark is made of the bytes that were read, not of those that are there after."""
    real = contents.Plain.chunks
    log.write_bytes(before + lines(1, 2, 3))

    def meddling(self: contents.Plain, offset: int) -> Iterator[bytes]:
        yield from real(self, offset)
        log.write_bytes(before + lines(7, 8, 9))

    reader = Reader(log)
    with monkeypatch.context() as patch:
        patch.setattr(contents.Plain, "chunks", meddling)
        reader.read()
    append(log, lines(10))
    reader.read()

    assert [7, 8, 9, 10] == reader.numbers[-4:]
    assert [1, 2, 3] == reader.gone


# -- moving ---------------------------------------------------------------------------------


def moved(reader: Reader, path: Path) -> Batch:
    """Read the same session from another place."""
    reader.source = Source("test", "s", (File(str(path), "log0"),))
    return reader.read()


def test_a_log_that_is_moved_is_the_same(log: Path, tmp_path: Path) -> None:
    """R2: renamed it is not even opened; copied it is known by its bytes."""
    reader = Reader(log)
    reader.read()
    archive = tmp_path / "archive.jsonl"
    log.rename(archive)
    renamed = moved(reader, archive)
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(archive.read_bytes() + lines(4))
    copied = moved(reader, copy)

    assert (0, 1) == (renamed.lines, copied.lines)
    assert [1, 2, 3, 4] == reader.numbers
    assert [] == reader.gone


def test_a_log_that_is_compressed_is_the_same(log: Path, tmp_path: Path) -> None:
    """X2: packed and unpacked again, grown in between, nothing is read twice."""
    reader = Reader(log)
    reader.read()
    packed = tmp_path / "log.jsonl.zst"
    packed.write_bytes(pack(lines(1, 2, 3)))
    first = moved(reader, packed)
    packed.write_bytes(pack(lines(1, 2, 3, 4)) + pack(lines(5)))
    second = moved(reader, packed)
    append(log, lines(4, 5, 6))
    third = moved(reader, log)

    assert [0, 2, 1] == [first.lines, second.lines, third.lines]
    assert [1, 2, 3, 4, 5, 6] == reader.numbers
    assert [] == [*first.notices, *second.notices, *third.notices]


def test_a_log_that_is_gone_is_told_and_not_forgotten(log: Path) -> None:
    """R14: what was read stays, and so does the place in it."""
    reader = Reader(log)
    reader.read()
    data = log.read_bytes()
    log.unlink()
    gone = reader.read()
    log.write_bytes(data + lines(4))
    back = reader.read()

    assert ["source gone"] == [notice.what for notice in gone.notices]
    assert ([], 1) == (gone.skipped, back.lines)
    assert [1, 2, 3, 4] == reader.numbers


# -- compressed -----------------------------------------------------------------------------


def test_a_compressed_log_reads_like_a_plain_one(tmp_path: Path) -> None:
    """In any budget, over several frames, with lines across chunks."""
    content = b"".join(line(n, text="x" * (n % 50) * 1000) for n in range(300))
    path = tmp_path / "log.jsonl.zst"
    path.write_bytes(pack(content[:100_000]) + pack(content[100_000:]))
    reader = Reader(path, limits=Limits(bytes=1_000_000))
    while not reader.read().done:
        pass

    assert list(range(300)) == reader.numbers


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"no zstandard at all", "a damaged compressed file"),
        (pack(lines(*range(500)))[:-20], "a compressed file that is not whole"),
        (pack(lines(1)) + b"garbage", "a damaged compressed file"),
    ],
)
def test_a_damaged_compressed_log_is_told_once(tmp_path: Path, data: bytes, why: str) -> None:
    """What can be unpacked is read; the rest is a skipped piece with its reason."""
    path = tmp_path / "log.jsonl.zst"
    path.write_bytes(data)
    reader = Reader(path)
    first, second = reader.read(), reader.read()

    assert [why] == [skipped.why for skipped in first.skipped]
    assert [] == second.skipped


@pytest.mark.slow
def test_a_bomb_is_unpacked_in_pieces_and_not_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R5: a few bytes that hold gigabytes of one line cost time until the budget, no memory."""
    path = tmp_path / "log.jsonl.zst"
    packer = zstandard.ZstdCompressor(level=1).compressobj()
    zeros = bytes(1 << 20)
    path.write_bytes(b"".join(packer.compress(zeros) for _ in range(200)) + packer.flush())
    after = tmp_path / "after.jsonl"
    after.write_bytes(lines(1))
    reader = Reader(path, after, limits=Limits(seconds=0))
    while not (batch := reader.read()).done:
        pass
    monkeypatch.setattr(contents, "MAX_UNPACKED_BYTES", 1 << 20)
    capped = Reader(path)

    assert [1] == reader.numbers
    assert batch.torn
    assert [codec.TOO_LONG] == [skipped.why for skipped in capped.read().skipped]


# -- budgets --------------------------------------------------------------------------------


def test_a_read_ends_at_its_budget_of_bytes(log: Path, tmp_path: Path) -> None:
    """A line may go beyond it; what is left comes with the next read, other files last."""
    other = tmp_path / "other.jsonl"
    other.write_bytes(lines(4, 5))
    reader = Reader(log, other, limits=Limits(bytes=len(line(1)) + 1))
    read = [(batch.lines, batch.done) for batch in (reader.read() for _ in range(4))]

    assert [(2, False), (2, False), (1, True), (0, True)] == read
    assert [1, 2, 3, 4, 5] == reader.numbers


def test_a_read_ends_at_its_budget_of_time(tmp_path: Path) -> None:
    """The clock is looked at now and then, and every read gets on."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(lines(*range(1000)))
    reader = Reader(path, limits=Limits(seconds=0))
    batches: list[Batch] = []
    while not batches or not batches[-1].done:
        batches.append(reader.read())

    assert 3 < len(batches)
    assert list(range(1000)) == reader.numbers


@pytest.mark.slow
def test_a_line_over_the_limit_costs_itself_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R5: lines of 64 MB and more are passed over, wherever they stand, and known again after."""
    path = tmp_path / "log.jsonl"
    huge = b'{"n": "' + b"x" * codec.LINE_LIMIT + b'"}\n'
    path.write_bytes(huge + line(1, text="y" * 9000) + huge)
    reader = Reader(path, limits=Limits(bytes=1 << 40))
    first = reader.read()
    append(path, lines(2))
    second = reader.read()

    assert [codec.TOO_LONG] * 2 == [skipped.why for skipped in first.skipped]
    assert ([], 1) == (second.skipped, second.lines)
    assert [1, 2] == reader.numbers


def test_a_read_that_is_out_of_time_goes_on_with_no_further_file(log: Path, tmp_path: Path) -> None:
    """One file was read, so it got on; the others come next time."""
    other = tmp_path / "other.jsonl"
    other.write_bytes(lines(4))
    reader = Reader(log, other, limits=Limits(seconds=-1))
    read = [(batch.lines, batch.done) for batch in (reader.read() for _ in range(2))]

    assert [(3, False), (1, True)] == read


def test_tails_that_are_read_in_vain_count_as_well(tmp_path: Path) -> None:
    """Many files with long torn tails do not make a read endless."""
    paths = [tmp_path / f"{n}.jsonl" for n in range(3)]
    for path in paths:
        path.write_bytes(b'{"n": "' + b"x" * 1000)
    reader = Reader(*paths, limits=Limits(bytes=500))
    read = [(len(batch.cursor.marks), batch.done) for batch in (reader.read() for _ in range(3))]

    assert [(1, False), (2, False), (3, True)] == read


def test_long_lines_are_no_endless_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of time, a log of ordinary lines is not given up however many bytes it has."""
    monkeypatch.setattr(codec, "LINE_LIMIT", 1 << 20)
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(line(n, text="x" * 100_000) for n in range(30)))
    reader = Reader(path, limits=Limits(seconds=0))

    assert ([], 30) == ((batch := reader.read()).skipped, batch.lines)


@pytest.mark.slow
def test_a_line_that_never_ends_does_not_starve_the_rest(tmp_path: Path) -> None:
    """R5: a sparse file of a terabyte is given up when the time is over, and told."""
    endless, after = tmp_path / "endless.jsonl", tmp_path / "after.jsonl"
    endless.write_bytes(lines(1))
    os.truncate(endless, 1 << 40)
    after.write_bytes(lines(2))
    reader = Reader(endless, after, limits=Limits(bytes=1 << 50, seconds=0.05))
    skipped = []
    for _ in range(3):
        skipped += reader.read().skipped

    assert [(2, codec.TOO_LONG)] == [(s.line, s.why) for s in skipped]
    assert [1, 2] == reader.numbers


# -- things that are no logs ----------------------------------------------------------------


def fifo(path: Path) -> None:
    """A pipe that nobody writes to."""
    os.mkfifo(path)


def endless_link(path: Path) -> None:
    """A link to a device that never ends."""
    path.symlink_to("/dev/zero")


def link(path: Path) -> None:
    """A link to a good log."""
    target = path.with_suffix(".target")
    target.write_bytes(lines(1))
    path.symlink_to(target)


@pytest.mark.parametrize("make", [fifo, endless_link, link, Path.mkdir])
@pytest.mark.parametrize("is_document", [False, True])
def test_what_is_no_file_of_ours_is_told_and_passed(
    tmp_path: Path, make: Callable[[Path], None], is_document: bool
) -> None:
    """R11, R15: pipes, devices, links and folders are not opened; the rest is read."""
    odd, good = tmp_path / "odd", tmp_path / "good"
    make(odd)
    good.write_bytes(b'{"n": 1}' if is_document else lines(1))
    reader = Reader(odd, good, is_document=is_document)
    batch = reader.read()

    assert [str(odd)] == [skipped.source for skipped in batch.skipped]
    assert [1] == [fact.about["n"] for fact in batch.events]


def test_a_file_of_somebody_else_is_told(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R13: it moves no mark, and is read once its owner lets us."""

    def refused(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    reader = Reader(log)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        batch = reader.read()
    reader.read()

    assert (["Permission denied"], {}) == ([s.why for s in batch.skipped], batch.cursor.marks)
    assert [1, 2, 3] == reader.numbers


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    """Of what was never read there is nothing to keep."""
    assert ["no such file"] == [s.why for s in Reader(tmp_path / "no").read().skipped]


@pytest.mark.parametrize("path", ["a\0b", "x" * 300])
def test_a_name_that_cannot_be_is_told(path: str) -> None:
    """No name raises."""
    assert 1 == len(Reader(Path(path)).read().skipped)


def test_an_empty_log_is_read_and_empty(tmp_path: Path) -> None:
    """R12: no bytes are no error."""
    path = tmp_path / "log.jsonl"
    path.touch()
    batch = Reader(path).read()

    assert ([], [], True, False) == (batch.events, batch.skipped, batch.done, batch.torn)


def test_a_file_that_cannot_be_read_to_its_end_is_told(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R13: an error of the disk moves no mark; the next read tries again."""

    def broken(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    reader = Reader(log)
    with monkeypatch.context() as patch:
        patch.setattr(system, "read_at", broken)
        batch = reader.read()
    reader.read()

    assert (["Input/output error"], {}) == ([s.why for s in batch.skipped], batch.cursor.marks)
    assert [1, 2, 3] == reader.numbers


# -- documents ------------------------------------------------------------------------------


def test_a_document_is_read_anew_when_it_changed(tmp_path: Path) -> None:
    """The newest state counts, and an unchanged one is not opened."""
    path = tmp_path / "summary.json"
    reader = Reader(path, is_document=True)
    batches = []
    for text in ('{"n": 1}', '{"n": 2}'):
        rewrite_document(path, text)
        batches += [reader.read().events, reader.read().events]

    assert [1, 0, 1, 0] == [len(events) for events in batches]
    assert [2] == reader.numbers


@pytest.mark.parametrize("bad", ["", "{", "[1]", "null", '{"n": 1'])
def test_a_document_that_makes_no_sense_leaves_the_last_one_standing(
    tmp_path: Path, bad: str
) -> None:
    """R13: caught in the middle of a write it is told once, and read when it is whole."""
    path = tmp_path / "summary.json"
    reader = Reader(path, is_document=True)
    skipped = []
    for text in ('{"n": 1}', bad, bad):
        rewrite_document(path, text)
        skipped.append(len(reader.read().skipped))
    before = reader.numbers
    rewrite_document(path, '{"n": 2}')
    reader.read()

    assert [0, 1, 1] == skipped
    assert ([1], [2]) == (before, reader.numbers)


def test_a_document_over_the_limit_is_not_read(tmp_path: Path) -> None:
    """A summary of gigabytes is none."""
    path = tmp_path / "summary.json"
    path.write_bytes(b"{}")
    os.truncate(path, files.MAX_DOCUMENT_BYTES + 1)
    batch = Reader(path, is_document=True).read()

    assert ([codec.TOO_LONG], 0) == ([s.why for s in batch.skipped], batch.bytes)


def rewrite_document(path: Path, text: str) -> None:
    """Replace a document as its writer does."""
    replace(path, text.encode())


# -- no trace -------------------------------------------------------------------------------


def test_sources_are_left_as_they_were(log: Path, tmp_path: Path) -> None:
    """Bytes, times and modes are the same after any number of reads."""
    packed, document = tmp_path / "log.zst", tmp_path / "doc.json"
    packed.write_bytes(pack(lines(1)))
    document.write_bytes(b"{}")
    log.chmod(0o400)
    paths = [log, packed, document]
    before = [(p.read_bytes(), p.stat().st_mtime_ns, p.stat().st_mode) for p in paths]
    for path in paths:
        reader = Reader(path, is_document=path is document)
        reader.read()
        reader.read()
        files.read_small(str(path))
        files.start_of(str(path), 10)

    assert before == [(p.read_bytes(), p.stat().st_mtime_ns, p.stat().st_mode) for p in paths]
    assert {log, packed, document} == set(tmp_path.iterdir())


def test_no_handle_stays_open(tmp_path: Path, log: Path) -> None:
    """Whatever is met, everything is closed again."""
    endless_link(tmp_path / "link")
    (tmp_path / "packed.zst").write_bytes(pack(lines(1)) + b"broken")
    if not HANDLES.is_dir():
        pytest.skip("this system does not list handles")
    for path in tmp_path.iterdir():
        Reader(path).read()
        Reader(path, is_document=True).read()
        files.read_small(str(path))
        files.start_of(str(path), 10)
        list(files.chunks_of(str(path)))

    assert [] == open_below(tmp_path)


# -- finding --------------------------------------------------------------------------------


def test_a_walk_follows_no_link_and_goes_no_deeper_than_it_may(tmp_path: Path) -> None:
    """R11: a folder that links to itself ends, and so does one that is a thousand deep."""
    (tmp_path / "b" / "c").mkdir(parents=True)
    (tmp_path / "b" / "c" / "deep").touch()
    (tmp_path / "a").touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")

    assert ["a", "deep"] == [entry.name for entry in files.walk(str(tmp_path))]
    assert ["a"] == [entry.name for entry in files.walk(str(tmp_path), 1)]
    assert [] == list(files.walk(str(tmp_path / "nowhere")))


@pytest.mark.parametrize(
    ("text", "value"),
    [("{}", {}), ('{"a": 1}', {"a": 1}), ("[1]", {}), ("{", {}), ("[" * 9999, {})],
)
def test_a_small_document_is_an_object_or_empty(
    tmp_path: Path, text: str, value: dict[str, JSON]
) -> None:
    """Whatever it holds, nothing raises."""
    path = tmp_path / "doc.json"
    path.write_text(text)

    assert value == files.document(str(path))
    assert {} == files.document(str(tmp_path / "no"))
    assert None is files.read_small(str(path), limit=0)


@pytest.mark.slow
def test_random_changes_of_every_kind_lose_nothing(tmp_path: Path) -> None:
    """A long story of appends, cuts, moves, rewrites and reads of any budget."""
    for seed in range(50):
        chance = random.Random(seed)
        path = tmp_path / f"{seed}.jsonl"
        path.write_bytes(b"")
        reader = Reader(path, limits=Limits(bytes=chance.randrange(1, 200)))
        known: set[int] = set()
        for step in range(60):
            data = path.read_bytes()
            match chance.randrange(6):
                case 0:
                    rewrite(path, data[: chance.randrange(len(data) + 1)])
                case 1:
                    replace(path, data + lines(step))
                case 2:
                    rewrite(path, lines(step) + data[len(line(step)) :])
                case _:
                    append(path, lines(step)[: chance.randrange(12)] or b"\n")
            if chance.randrange(2):
                while not reader.read().done:
                    pass
                ids = {event.event_id for event in reader.graph.events}
                fresh = Reader(path)
                fresh.read()

                assert known <= ids
                assert fresh.numbers == reader.numbers
                known = ids
