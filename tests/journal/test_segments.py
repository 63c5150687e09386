"""The bytes of a session as one run, whatever files they lie in and whatever became of those."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.handles import open_below
from thence.format import codec
from thence.format.records import Event
from thence.journal import segments as module
from thence.journal.cleanup import seal
from thence.journal.segments import Segments, parts_of


def write(folder: Path, *pieces: bytes, sealed: tuple[int, ...] = ()) -> list[Path]:
    """Put pieces into the segments of a session `s`, some of them sealed."""
    for number, piece in enumerate(pieces, start=1):
        name = "s.jsonl" if number == 1 else f"s.{number:04d}.jsonl"
        if number in sealed:
            packed = zstandard.ZstdCompressor().compress(piece)
            (folder / f"{name}.zst").write_bytes(packed)
        else:
            (folder / name).write_bytes(piece)
    return parts_of(folder, "s")


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in blocks of a few bytes, so that everything stands on the edge of one."""
    monkeypatch.setattr(module, "_BLOCK_BYTES", 7)


@pytest.mark.parametrize("sealed", [(), (1,), (1, 2), (2,), (1, 2, 3)])
def test_segments_read_as_one_run_of_bytes(tmp_path: Path, sealed: tuple[int, ...]) -> None:
    """Any range, across files, compressed or not."""
    pieces = [b"one\n" * 30, b"two\n" * 20, b"three\n" * 10]
    data = b"".join(pieces)
    with Segments(write(tmp_path, *pieces, sealed=sealed)) as segments:
        size = segments.size
        pieces_read = {
            (a, b): segments.read(a, b) for a in range(0, 270, 13) for b in range(0, 290, 17)
        }

    assert len(data) == size
    assert {(a, b): data[a:b] for a, b in pieces_read} == pieces_read


def test_a_segment_sealed_after_its_folder_was_listed_is_read_from_its_copy(tmp_path: Path) -> None:
    """Between listing and opening, a clean-up may put a compressed copy in a segment's place."""
    paths = write(tmp_path, b"one\n", b"two\n", b"three\n")
    for path in paths[:2]:
        seal(path)
    with Segments(paths) as segments:
        unreadable, data = segments.unreadable, segments.read(0, segments.size)
        sealed = [part.segment.sealed for part in segments.parts]

    assert [] == unreadable
    assert b"one\ntwo\nthree\n" == data
    assert [True, True, False] == sealed


def test_the_original_is_taken_before_its_sealed_copy(tmp_path: Path) -> None:
    """Sealing writes the copy first: until the original is gone, it is the one that counts."""
    write(tmp_path, b"copy\n", sealed=(1,))
    paths = write(tmp_path, b"original\n")

    assert [tmp_path / "s.jsonl"] == paths
    with Segments(paths) as segments:
        assert b"original\n" == segments.read(0, 100)


def test_parts_are_in_order_and_nobody_elses(tmp_path: Path) -> None:
    """By number, not by name; a longer id and other files are passed over."""
    for name in (
        "s.jsonl",
        "s.0002.jsonl",
        "s.0010.jsonl",
        "s.10000.jsonl",
        "s.0003.jsonl.zst",
        "s2.jsonl",
        "s.jsonl.tmp",
        "s.2.jsonl",
        "s.lock",
    ):
        (tmp_path / name).write_bytes(b"")
    expected = ["s.jsonl", "s.0002.jsonl", "s.0003.jsonl.zst", "s.0010.jsonl", "s.10000.jsonl"]

    assert expected == [path.name for path in parts_of(tmp_path, "s")]
    assert [] == parts_of(tmp_path / "nowhere", "s")
    assert [] == parts_of(tmp_path / "s.jsonl", "s")


def test_what_cannot_be_read_is_listed_and_leaves_the_rest(tmp_path: Path) -> None:
    """A link, a folder, a pipe, garbage for a sealed file: a gap, no error and no wait."""
    write(tmp_path, b"one\n")
    (tmp_path / "target").write_bytes(b"not ours\n")
    (tmp_path / "s.0002.jsonl").symlink_to(tmp_path / "target")
    (tmp_path / "s.0003.jsonl").mkdir()
    os.mkfifo(tmp_path / "s.0004.jsonl")
    (tmp_path / "s.0005.jsonl.zst").write_bytes(b"garbage")
    (tmp_path / "s.0006.jsonl").write_bytes(b"six\n")
    with Segments(parts_of(tmp_path, "s")) as segments:
        data = segments.read(0, segments.size)

    assert b"one\nsix\n" == data
    assert [2, 3, 4, 5] == [int(path.name.split(".")[1]) for path, _ in segments.unreadable]
    assert all(why for _, why in segments.unreadable)


def test_a_sealed_segment_that_was_cut_harms_no_other(tmp_path: Path) -> None:
    """Its bytes are gone, not its neighbours', and it is listed."""
    noise = os.urandom(50_000).hex().encode() + b"\n"
    paths = write(tmp_path, b"one\n", noise, b"three\n", sealed=(2,))
    packed = paths[1].read_bytes()
    paths[1].write_bytes(packed[: len(packed) // 2])
    with Segments(paths) as segments:
        data = segments.read(0, segments.size)

    assert data.startswith(b"one\n")
    assert data.endswith(b"three\n")
    assert [paths[1]] == [path for path, _ in segments.unreadable]


def test_no_handle_is_left_open(tmp_path: Path) -> None:
    """Good files, sealed ones and broken ones: none is left open."""
    paths = write(tmp_path, b"one\n", b"two\n", b"three\n", sealed=(2,))
    (tmp_path / "s.0004.jsonl.zst").write_bytes(b"garbage")
    (tmp_path / "s.0005.jsonl").mkdir()
    for _ in range(3):
        with Segments(parts_of(tmp_path, "s")) as segments:
            segments.read(0, segments.size)

    assert 3 == len(paths)
    assert [] == open_below(tmp_path)


@given(data=st.text("ab\n", max_size=80).map(str.encode), stop=st.integers(0, 90))
def test_looking_back_finds_what_stands_last(data: bytes, stop: int) -> None:
    """The same as searching all of it, though it is read block by block."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK_BYTES", 7)
        third = len(data) // 3
        pieces = (data[:third], data[third : 2 * third], data[2 * third :])
        with Segments(write(Path(folder), *pieces)) as segments:
            for needle in (b"a", b"\na", b"ab\na", b"\n\n"):
                starts = [k for k in range(min(stop, len(data))) if data[k:].startswith(needle)]

                assert max(starts, default=-1) == segments.find_back(needle, min(stop, len(data)))


@pytest.mark.usefixtures("small_blocks")
def test_a_line_is_found_from_any_of_its_bytes(tmp_path: Path) -> None:
    """Also one longer than a block, across files, and the last one without its LF."""
    data = b"short\n" + b"x" * 50 + b"\n\nend"
    with Segments(write(tmp_path, data[:20], data[20:])) as segments:
        bounds = {(segments.line_start(k), segments.line_end(k)) for k in range(len(data))}

    assert {(0, 5), (6, 56), (57, 57), (58, 61)} == bounds


def test_a_session_that_shrank_under_us_reads_short(tmp_path: Path) -> None:
    """Somebody cut the file after it was opened: fewer bytes, no error and no endless loop."""
    paths = write(tmp_path, b"x" * 1000)
    with Segments(paths) as segments:
        os.truncate(paths[0], 10)

        assert b"x" * 10 == segments.read(0, 1000)
        assert segments.find_back(b"y", 1000) == -1
        assert 1000 == segments.line_end(0)


def test_an_address_leads_back_to_its_bytes(tmp_path: Path) -> None:
    """Segment and base + offset: stable when an earlier segment gets late lines or is lost."""
    first = b"one\n" * 10
    fields = {"session_id": "s", "segment": 2, "base_offset": len(first), "base_line": 10}
    second = codec.encode(Event("header", "", "h2", None, fields)) + b"two\ntwo\n"
    paths = write(tmp_path, first, second)
    with Segments(paths) as segments:
        address = segments.address(segments.size - 4)
    paths[0].write_bytes(first + b"late\n")
    with Segments(paths) as segments:
        late = segments.at(*address, 4)
        assert late is not None
        assert b"two\n" == segments.read(late, late + 4)
    with Segments(paths[1:]) as segments:
        alone = segments.at(*address, 4)
        assert alone is not None
        assert b"two\n" == segments.read(alone, alone + 4)

        assert segments.at(1, 0, 4) is None
        assert segments.at(2, 1 << 60, 4) is None
