"""A session over its cap goes on in the next segment, and nobody who reads it can tell."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.journal import runs
from thence.errors import Conflict, NotReadable, SessionBusy
from thence.format import codec
from thence.format.layout import Segment, segment_of
from thence.format.records import blocks
from thence.format.transcript import Transcript
from thence.journal.cleanup import apply, inventory, plan, seal
from thence.journal.journal import Journal, Mode
from thence.journal.segmented_log import SegmentedLog
from thence.journal.segments import Segments, parts_of
from thence.journal.session import Session

SMALL = 2000
NAME = "rolled"


def prompt(text: str) -> dict[str, Any]:
    """What a human says."""
    return {"role": "user", "content": text}


def turn(session: Session, text: str) -> str:
    """One turn: a prompt and an answer; the answer's id."""
    session.record("user", prompt(f"{text}?"))
    answer = {"role": "assistant", "content": [{"type": "text", "text": f"{text}!"}]}
    receipt = session.record("assistant", answer)
    session.flush()
    return receipt.uuid


def texts(session: Session) -> list[str]:
    """What the model sees, as texts."""
    contents = [blocks(message["content"]) for message in session.messages]
    return [block["text"] for content in contents for block in content]


def turn_texts(*names: object) -> list[str]:
    """What turns of these names come to."""
    return [text for name in names for text in (f"{name}?", f"{name}!")]


def folder_of(session: Session) -> Path:
    """Where its files lie."""
    assert session.transcript_path is not None
    return session.transcript_path.parent


def numbers(session: Session) -> list[int]:
    """Which segments it has."""
    segments = [segment_of(path.name) for path in parts_of(folder_of(session), session.id)]
    return [segment.number for segment in segments if segment is not None]


def bytes_of(session: Session) -> bytes:
    """All its bytes as one run."""
    with Segments(parts_of(folder_of(session), session.id)) as segments:
        return segments.read(0, segments.size)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A journal whose segments are small."""
    return Journal(tmp_path, max_bytes=SMALL, durability="none")


@pytest.fixture
def rolled(journal: Journal) -> Iterator[Session]:
    """A session of twelve turns over several segments, still open."""
    with journal.create(cwd="/w", session=NAME) as session:
        for n in range(12):
            turn(session, str(n))
        yield session


def test_a_session_rolls_at_the_end_of_a_turn_and_goes_on(rolled: Session) -> None:
    """Every segment but the last is over the cap, and begins with a header of its own."""
    paths = parts_of(folder_of(rolled), NAME)
    heads = [Transcript.read(path.read_bytes()).events[0] for path in paths]

    assert len(paths) > 2
    assert [True] * (len(paths) - 1) == [path.stat().st_size > SMALL for path in paths[:-1]]
    assert [("header", n + 1) for n in range(len(paths))] == [
        (head.type, head.fields.get("segment", 1)) for head in heads
    ]
    assert turn_texts(*range(12)) == texts(rolled)


def test_a_header_says_what_stands_before_its_segment(rolled: Session) -> None:
    """Base offset and base line are the bytes and lines of all earlier segments."""
    paths = parts_of(folder_of(rolled), NAME)
    with Segments(paths) as segments:
        heads = [segments.head_of(n) for n in numbers(rolled)[1:]]
    before = [b"".join(path.read_bytes() for path in paths[:n]) for n in range(1, len(paths))]

    assert [(len(data), data.count(b"\n")) for data in before] == [
        (head.base_offset, head.base_line) for head in heads if head is not None
    ]


def test_receipts_count_bytes_and_lines_of_the_whole_session(journal: Journal) -> None:
    """Offset and line of a receipt are those of the run, while open, rolled and closed."""
    receipts = []
    with journal.create(session=NAME) as session:
        for n in range(12):
            receipts.append(session.record("user", prompt(str(n) * 300)))
            session.flush()
        open_lines = [receipt.line for receipt in receipts]
    data = bytes_of(session)
    places = [(r.offset, data[: r.offset].count(b"\n") + 1) for r in receipts]

    assert len(numbers(session)) > 2
    assert places == [(r.offset, r.line) for r in receipts]
    assert [line for _, line in places] == open_lines
    assert [True] * 12 == [r.uuid.encode() in data[r.offset :].split(b"\n")[0] for r in receipts]


def test_logical_bytes_never_shrink_or_change(journal: Journal) -> None:
    """After every step the run begins with what it was before."""
    with journal.create(session=NAME) as session:
        before = bytes_of(session)
        for n in range(12):
            turn(session, str(n))
            now = bytes_of(session)

            assert now.startswith(before)
            before = now
    assert bytes_of(session).startswith(before)


@pytest.mark.parametrize("mode", ["adopt", "continue", "fork"])
def test_a_rolled_session_resumes_whole(rolled: Session, journal: Journal, mode: Any) -> None:
    """Whichever way: all that was said in all segments comes back."""
    rolled.close()
    with journal.resume(NAME, mode=mode) as session:
        turn(session, "more")

        assert turn_texts(*range(12), "more") == texts(session)
        assert [] == session.recovery.skipped
        assert [] == session.recovery.notices


def test_a_fork_takes_any_event_of_any_segment(journal: Journal) -> None:
    """Up to that event and no further, by an address that names its segment."""
    with journal.create(session=NAME) as session:
        events = [turn(session, str(n)) for n in range(12)]
    forks = [journal.fork(NAME, at=event) for event in events]
    seen = [texts(fork) for fork in forks]
    ids = [fork.id for fork in forks]
    for fork in forks:
        fork.close()
    again = [journal.resume(name) for name in ids]

    assert [turn_texts(*range(n + 1)) for n in range(12)] == seen
    assert seen == [texts(fork) for fork in again]


def test_a_compaction_keeps_events_of_several_segments(rolled: Session, journal: Journal) -> None:
    """Kept ranges lead into old segments, and resuming reads them from there."""
    keep = rolled._chain[8].uuid
    rolled.compact("so far", keep_from=keep)
    turn(rolled, "more")
    rolled.close()
    with journal.resume(NAME, mode="continue") as session:
        back = journal._load(folder_of(rolled), NAME)

        assert ["so far", *turn_texts(*range(4, 12), "more")] == texts(session)
        assert back.starts_with_summary
        assert back.snapshot is not None


def test_a_boundary_read_in_a_later_segment_saves_the_rest(journal: Journal) -> None:
    """After a compaction a resume reads its last part, not all segments."""
    with journal.create(session=NAME) as session:
        for n in range(40):
            turn(session, str(n))
        session.compact("so far")
        turn(session, "more")
        session.flush()
    back = journal._load(folder_of(session), NAME)

    assert ["so far", "more?"] == [event.fields["content"] for event in back.chain[:2]]
    assert back.bytes_read < len(bytes_of(session)) / 4


def test_addresses_hold_when_an_old_segment_grows_late(journal: Journal) -> None:
    """A late line shifts the run behind it; what was remembered still leads to the same events."""
    slow = journal.create(session=NAME)
    slow.record("user", prompt("slow"))
    quick = journal.resume(NAME, mode="continue")
    events = [turn(quick, str(n)) for n in range(12)]
    quick.compact("so far", keep_from=quick._chain[6].uuid)
    turn(quick, "more")
    fork = journal.fork(NAME, at=events[-1])
    expected, forked = texts(quick), texts(fork)
    late = slow.record("user", prompt("late " * 50))
    quick.close()
    fork.close()

    assert 1 == late.segment
    assert expected == texts(journal.resume(NAME))
    assert forked == texts(journal.resume(fork.id))
    assert journal._load(folder_of(quick), NAME).snapshot is not None


def test_a_late_line_is_never_lost_and_its_writer_follows(journal: Journal) -> None:
    """Lines that came late stay where they are, and the next turn goes to the last segment."""
    slow = journal.create(session=NAME)
    quick = journal.resume(NAME, mode="continue")
    for n in range(6):
        turn(quick, str(n))
    last = quick._run.segment if quick._run else 0
    late = slow.record("user", prompt("late"))
    slow.flush()
    after = slow.record("user", prompt("after"))
    events = [event.uuid for event in Transcript.read(bytes_of(slow)).events]

    assert (1, last) == (late.segment, after.segment)
    assert last > 1
    assert [1, 1] == [events.count(late.uuid), events.count(after.uuid)]
    assert len(events) == len(set(events))


def test_of_two_writers_that_roll_one_writes_the_header(journal: Journal) -> None:
    """Both pass the cap, one begins the next segment, the other follows."""
    first = journal.create(session=NAME)
    second = journal.resume(NAME, mode="continue")
    for n in range(30):
        turn(first if n % 2 else second, str(n) * 20)
    first.flush()
    with Segments(parts_of(folder_of(first), NAME)) as segments:
        per_file = [
            Transcript.read(segments.read(p.start, p.start + p.size)).events for p in segments.parts
        ]
    there = {e.fields.get("content") for events in per_file for e in events if e.type == "user"}

    assert len(per_file) > 3
    assert [1] * len(per_file) == [
        sum(event.type == "header" for event in events) for events in per_file
    ]
    assert {f"{str(n) * 20}?" for n in range(30)} == there


WRITER = """
import sys
from thence.errors import SessionBusy
from thence.journal.journal import Journal, Mode
journal = Journal(sys.argv[1], max_bytes=2000)
session = journal.resume("rolled", mode="continue")
for n in range(60):
    said = {"role": "user", "content": f"{sys.argv[2]} {n} " * 9}
    own = {"uuid": f"{sys.argv[2]}-{n}"} if n % 3 == 0 else {}
    receipt = session.record("user", said, **own)
    print(receipt.uuid, receipt.segment, receipt.offset)
    while n % 2 == 0:
        try:
            session.flush()
            break
        except SessionBusy:
            pass
"""


@pytest.mark.slow
def test_processes_that_write_while_old_segments_are_sealed_lose_nothing(tmp_path: Path) -> None:
    """Every event stands once in the run, at the address that its receipt told."""
    journal = Journal(tmp_path, max_bytes=SMALL)
    with journal.create(session=NAME) as session:
        folder = folder_of(session)
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [
        subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in "abc"
    ]
    while any(writer.poll() is None for writer in writers):
        with contextlib.suppress(SessionBusy):
            journal.cleanup()
    receipts = [line.split() for writer in writers for line in writer.communicate()[0].splitlines()]
    with Segments(parts_of(folder, NAME)) as segments:
        read = codec.decode(segments.read(0, segments.size))
        lost = []
        for uuid, segment, offset in receipts:
            at = segments.at(int(segment), int(offset), 1)
            line = b"" if at is None else segments.read(at, segments.line_end(at))
            if [uuid] != [event.uuid for event in codec.decode(line).events]:
                lost.append(uuid)
    uuids = [event.uuid for event in read.events]

    assert [0] * 3 == [writer.returncode for writer in writers]
    assert 180 == len(receipts)
    assert [] == lost
    assert [] == read.skipped
    assert [1] * 180 == [uuids.count(uuid) for uuid, _, _ in receipts]
    assert sum(path.suffix == ".zst" for path in folder.iterdir()) > 2


def test_the_same_event_again_is_a_no_op_across_segments(rolled: Session, journal: Journal) -> None:
    """A caller's id is known wherever it stands, and its receipt says where."""
    first = rolled.record("user", prompt("mine"), uuid="mine")
    lines = first.line
    for n in range(12, 20):
        turn(rolled, str(n))
    other = journal.resume(NAME, mode="continue")
    again = [s.record("user", prompt("mine"), uuid="mine") for s in (rolled, other)]

    assert rolled._run is not None
    assert first.segment < rolled._run.segment
    assert [(first.segment, first.offset, lines)] * 2 == [
        (receipt.segment, receipt.offset, receipt.line) for receipt in again
    ]


def test_a_stale_tip_is_seen_across_segments(journal: Journal) -> None:
    """Who looks before appending sees that others went on in the next segment."""
    slow = journal.create(session=NAME)
    tip = slow.record("user", prompt("start")).uuid
    quick = journal.resume(NAME, mode="continue")
    for n in range(6):
        turn(quick, str(n))

    with pytest.raises(Conflict):
        slow.record("user", prompt("stale"), expected_tip=tip, on_stale="conflict")
    assert quick.tip is not None
    receipt = slow.record("user", prompt("fine"), expected_tip=quick.tip, on_stale="conflict")
    assert slow._run is not None
    assert slow._run.segment == receipt.segment > 1
    assert [*turn_texts(*range(6)), "fine"] == texts(slow)[1:]


def test_a_rewind_goes_to_the_last_segment(journal: Journal) -> None:
    """What moves the tip is never late, so that the last move is the last one written."""
    slow = journal.create(session=NAME)
    start = turn(slow, "start")
    quick = journal.resume(NAME, mode="continue")
    for n in range(6):
        turn(quick, str(n))
    receipt = slow.rewind(start)

    assert receipt.segment == (quick._run.segment if quick._run else 0) > 1
    assert turn_texts("start") == texts(journal.resume(NAME))


def test_a_half_made_segment_is_taken_over(rolled: Session, journal: Journal) -> None:
    """A crash left an empty next segment, or a torn header: the next writer heads it."""
    rolled.close()
    last = numbers(rolled)[-1] + 1
    path = folder_of(rolled) / Segment(NAME, last).name
    for torn in (b"", b'{"type":"header","ts":"20'):
        path.write_bytes(torn)
        with journal.resume(NAME, mode="continue") as session:
            turn(session, "more")

            assert session._run is not None
            assert last == session._run.segment
            assert session._run.base_offset == len(bytes_of(session)) - path.stat().st_size
        assert turn_texts(*range(12), "more") == texts(journal.resume(NAME))
        path.unlink()


def test_a_sealed_last_segment_is_not_written_again(rolled: Session, journal: Journal) -> None:
    """The session goes on in the next one; nothing hides what was sealed."""
    rolled.close()
    before = bytes_of(rolled)
    for path in parts_of(folder_of(rolled), NAME):
        seal(path)
    with journal.resume(NAME, mode="continue") as session:
        turn(session, "more")

        assert turn_texts(*range(12), "more") == texts(session)
    assert bytes_of(session).startswith(before)
    assert [NAME] == [listed.session_id for listed in journal.sessions()]


def test_a_log_that_was_sealed_is_never_made_anew(journal: Journal) -> None:
    """A handle that died let go of its lock; the file was sealed meanwhile."""
    session = journal.create(session=NAME)
    turn(session, "one")
    before = bytes_of(session)
    runs.drop(session)
    assert session.transcript_path is not None
    seal(session.transcript_path)
    run = SegmentedLog(folder_of(session), NAME, durability="none")
    run.append(b"{}\n")

    assert 2 == run.segment
    assert bytes_of(session).startswith(before)
    run.close()


def test_a_broken_sealed_segment_leaves_a_gap(rolled: Session, journal: Journal) -> None:
    """What is behind it keeps its place; the segment is listed as unreadable."""
    rolled.close()
    first, second, *_ = parts_of(folder_of(rolled), NAME)
    data = bytearray(seal(first).read_bytes())
    data[len(data) // 2] ^= 255
    seal_path = first.with_name(f"{first.name}.zst")
    seal_path.write_bytes(data)
    with Segments(parts_of(folder_of(rolled), NAME)) as segments:
        start = segments.parts[1].start
        read = segments.read(0, segments.size)

        assert second.read_bytes() == read[start : start + second.stat().st_size]
        assert [seal_path] == [path for path, _ in segments.unreadable]
    assert texts(journal.resume(NAME))


def test_a_lost_segment_after_the_end_that_was_found_is_an_error(
    rolled: Session, journal: Journal
) -> None:
    """The last one holds its header only: the end stood in the one that cannot be read."""
    rolled.close()
    *_, earlier, last = parts_of(folder_of(rolled), NAME)
    last.write_bytes(last.read_bytes().split(b"\n")[0] + b"\n")
    earlier.unlink()
    earlier.symlink_to("/nowhere")
    modes: tuple[Mode, ...] = ("adopt", "continue")
    for mode in modes:
        with pytest.raises(NotReadable, match=earlier.name):
            journal.resume(NAME, mode=mode)


def test_a_rolled_session_is_listed_by_its_last_use(rolled: Session, journal: Journal) -> None:
    """The newest is the one that was written last, whichever of its segments."""
    rolled.close()
    with journal.create(cwd="/w", session="between"):
        pass
    for path in folder_of(rolled).glob("*.jsonl"):
        os.utime(path, (1000, 1000))
    os.utime(parts_of(folder_of(rolled), NAME)[-1], (2000, 2000))

    assert [NAME, "between"] == [listed.session_id for listed in journal.sessions()]


@pytest.mark.slow
@given(script=runs.scripts, cap=st.integers(200, 4000), seals=st.booleans())
def test_any_run_over_segments_comes_back_as_it_was(
    script: runs.Script, cap: int, seals: bool
) -> None:
    """The truth kept by lists holds however a session was cut, and whatever was sealed."""
    with TemporaryDirectory() as root:
        Cut(Path(root), script, cap, seals=seals)


class Cut(runs.Run):
    """A run of the journal with a small cap that ends a turn after every step."""

    def __init__(self, root: Path, script: runs.Script, cap: int, *, seals: bool) -> None:
        self.cap = cap
        self.seals = seals
        super().__init__(root, script)

    def check(self) -> None:
        """End the turn, look, and seal what may be sealed."""
        self.journal._max_bytes = self.cap
        if self.session._run is not None:
            self.session._run.max_bytes = self.cap
            self.session.flush()
        super().check()
        if self.seals:
            apply(plan(inventory(self.root), max_bytes=self.cap, now=0.0))
            self.files = runs.snapshot(self.root)
