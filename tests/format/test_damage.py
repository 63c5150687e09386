"""Bytes go bad: what the damage did not touch is read as before, and the rest is reported.

A line is *untouched* when its bytes and the LF on either side of it are what they were. A byte
that becomes an LF, or an LF that becomes another byte, touches the lines it cuts or joins and
moves the numbers of those behind. Every round is made from a seed of its own, which a failure
names. The `whole` profile plays all rounds; the everyday one some of each.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import settings

from thence.format import codec
from thence.format.codec import Found, decode, encode, objects
from thence.format.records import Event, Skipped
from thence.format.transcript import Transcript
from thence.testing import Draft, sample

WHOLE = settings.get_current_profile_name() == "whole"
BLOCK = 512
FLIPS, ZEROS, SWAPS = (200, 50, 50) if WHOLE else (4, 1, 1)
SMALL = 100_000
BLANK = b" \t\r\n\v\f"

NATIVE = Path(__file__).resolve().parent.parent / "data" / "native"
SESSIONS = {"sample": sample()} | {p.stem: p.read_bytes() for p in sorted(NATIVE.glob("*.jsonl"))}

HEADER_DECIDES = {"v2"}
"""Sessions that cannot be told from the present version once their header is touched."""


class Damage(NamedTuple):
    """Bytes gone bad: all changes lie from `start` to before `stop`."""

    data: bytes
    start: int
    stop: int


def flip(data: bytes, chance: Random) -> Damage:
    """Change one byte."""
    at = chance.randrange(len(data))
    other = bytes([data[at] ^ chance.randrange(1, 256)])
    return Damage(data[:at] + other + data[at + 1 :], at, at + 1)


def zero(data: bytes, chance: Random) -> Damage:
    """Overwrite a block with NULs, as a file system may after a crash."""
    at = chance.randrange(len(data) // BLOCK + 1) * BLOCK
    size = min(BLOCK, len(data) - at)
    return Damage(data[:at] + bytes(size) + data[at + size :], at, at + size)


def swap(data: bytes, chance: Random) -> Damage:
    """Let two neighbouring blocks change places; the last one may be short."""
    at = chance.randrange(max(1, len(data) // BLOCK)) * BLOCK
    first, second = data[at : at + BLOCK], data[at + BLOCK : at + 2 * BLOCK]
    return Damage(data[:at] + second + first + data[at + 2 * BLOCK :], at, at + 2 * BLOCK)


KINDS: dict[str, tuple[Callable[[bytes, Random], Damage], int]] = {
    "flip": (flip, FLIPS),
    "zero": (zero, ZEROS),
    "swap": (swap, SWAPS),
}


class Item(NamedTuple):
    """One thing read from a line: a record, or why there is none."""

    line: int
    offset: int
    what: Any


class Read:
    """The items of an undamaged file, in order, and which lines they stand on."""

    def __init__(self, data: bytes, read: Callable[[bytes], list[Item]]) -> None:
        self.data, self.read = data, read
        self.items = read(data)
        self.ends = [at for at, byte in enumerate(data) if byte == 10]
        self.starts = [0, *(end + 1 for end in self.ends)]
        self._offsets = [item.offset for item in self.items]

    def check(self, damage: Damage, seed: str) -> None:
        """Hold the promise of this file for one damage."""
        # The first line that ends at or behind the damage, and the first that starts behind it
        # with an LF of its own in front.
        first = self.starts[bisect_left(self.ends, damage.start)]
        behind = bisect_right(self.starts, damage.stop)
        last = self.starts[behind] if behind < len(self.starts) else len(self.data)
        before = bisect_left(self._offsets, first)
        after = len(self.items) - bisect_left(self._offsets, last)
        items = self.read(damage.data)
        more = damage.data.count(b"\n") - len(self.ends)
        moved = [
            Item(i.line + more, i.offset, i.what) for i in self.items[len(self.items) - after :]
        ]
        touched = damage.data[first:last]
        line = 1 + damage.data.count(b"\n", 0, first)
        bad = {n for n, raw in enumerate(touched.split(b"\n"), line) if raw.strip(BLANK)}

        assert self.items[:before] == items[:before], seed
        assert moved == items[len(items) - after :], seed
        assert bad == {item.line for item in items[before : len(items) - after]}, seed


def rounds(name: str, kind: str, data: bytes) -> Iterator[tuple[str, Damage]]:
    """Make the damages of one kind, each with its seed."""
    make, number = KINDS[kind]
    for n in range(number):
        seed = f"{name} {kind} {n}"
        yield seed, make(data, Random(seed))


def by_objects(data: bytes) -> list[Item]:
    """Read any JSONL as the adapters do."""
    return [
        Item(r.place.line, r.place.offset, r.value)
        if isinstance(r, Found)
        else Item(r.line, r.offset, (r.length, r.why, r.salvaged))
        for r in objects(data)
    ]


def by_transcript(data: bytes) -> list[Item]:
    """Read one of our sessions, and work out everything that can be asked of it."""
    session = Transcript.read(data)
    for _ in session.graph, session.states, session.state, session.pending, session.header:
        pass
    session.messages()
    session.turn()
    session.report()
    placed = zip(session.places, session.events, strict=True)
    read = [Item(place.line, place.offset, event) for place, event in placed]
    read += [Item(s.line, s.offset, (s.length, s.why, s.salvaged)) for s in session.skipped]
    return sorted(read, key=lambda item: item.line)


# -- flips, zeroed and swapped blocks ---------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SESSIONS)
def test_damage_to_a_session_costs_only_what_it_touched(name: str, kind: str) -> None:
    """No view of the session raises; untouched events are equal; the rest is reported."""
    data = SESSIONS[name]
    whole = Read(data, by_transcript)
    header = len(data.partition(b"\n")[0])

    for seed, damage in rounds(name, kind, data):
        if name in HEADER_DECIDES and damage.start <= header:
            by_transcript(damage.data)
        else:
            whole.check(damage, seed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("agent", ["claude-code", "codex"])
def test_damage_to_a_foreign_log_costs_only_what_it_touched(
    agent: str, kind: str, shared: Path, record_property: Callable[[str, object], None]
) -> None:
    """The same for every small log of the real clients, read as the adapters read it."""
    played = 0
    for path in sorted((shared / "data" / agent).rglob("*.jsonl")):
        data = path.read_bytes()
        if not 0 < len(data) <= SMALL:
            continue
        whole = Read(data, by_objects)
        for seed, damage in rounds(str(path.relative_to(shared)), kind, data):
            whole.check(damage, seed)
            played += 1
    record_property("rounds", played)

    assert 0 < played


@pytest.mark.parametrize("kind", ["flip", "zero"])
@pytest.mark.parametrize("name", SESSIONS)
def test_damage_makes_no_events(name: str, kind: str) -> None:
    """Whatever becomes of a line, it never holds more records than before."""
    data = SESSIONS[name]
    number = len(decode(data).events)

    for seed, damage in rounds(name, kind, data):
        assert number >= len(decode(damage.data).events), seed


# -- the check itself -------------------------------------------------------------------------

THREE = b'{"n":1}\n{"n":2}\n{"n":3}\n'


def forgets(data: bytes) -> list[Item]:
    """Read like one who stops at the first bad line."""
    out: list[Item] = []
    for item in by_objects(data):
        if isinstance(item.what, tuple):
            break
        out.append(item)
    return out


def is_silent(data: bytes) -> list[Item]:
    """Read like one who passes over bad lines without a word."""
    return [item for item in by_objects(data) if not isinstance(item.what, tuple)]


def miscounts(data: bytes) -> list[Item]:
    """Read like one who takes other characters for line ends."""
    lines = [len(data[: item.offset].decode("latin-1").splitlines()) for item in by_objects(data)]
    return [item._replace(line=n + 1) for item, n in zip(by_objects(data), lines, strict=True)]


@pytest.mark.parametrize("reader", [forgets, is_silent, miscounts])
def test_the_check_sees_a_reader_that_breaks_the_promise(
    reader: Callable[[bytes], list[Item]],
) -> None:
    """None of the rounds above passes because it looks at nothing."""
    broken = Damage(THREE.replace(b"2", b"\x1c"), 13, 14)

    Read(THREE, by_objects).check(broken, "fine")
    with pytest.raises(AssertionError):
        Read(THREE, reader).check(broken, "not fine")


@pytest.mark.parametrize(
    ("at", "byte", "expected"),
    [
        (7, b"x", [(1, 2), (2, {"n": 3})]),
        (3, b"\n", [(1, 0), (2, 0), (3, {"n": 2}), (4, {"n": 3})]),
        (15, b"\n", [(1, {"n": 1}), (2, {"n": 2}), (3, {"n": 3})]),
        (23, b" ", [(1, {"n": 1}), (2, {"n": 2}), (3, {"n": 3})]),
    ],
    ids=["an LF lost", "an LF made", "nothing changed", "the last LF lost"],
)
def test_a_changed_lf_joins_or_cuts_lines_and_moves_the_rest(
    at: int, byte: bytes, expected: list[tuple[int, Any]]
) -> None:
    """What lies behind keeps its content and gets its new number."""
    hurt = THREE[:at] + byte + THREE[at + 1 :]
    Read(THREE, by_objects).check(Damage(hurt, at, at + 1), "by hand")
    read = [
        (i.line, i.what[2]) if isinstance(i.what, tuple) else (i.line, i.what)
        for i in by_objects(hurt)
        if at != 7 or i.line == 2 or isinstance(i.what, tuple)
    ]

    assert expected == read


# -- line ends and tails ----------------------------------------------------------------------


@pytest.mark.parametrize("name", SESSIONS)
def test_a_lost_line_end_costs_no_event(name: str) -> None:
    """Two lines that became one are told apart again, wherever it happened."""
    data = SESSIONS[name]
    events = Transcript.read(data).events
    ends = [at for at, byte in enumerate(data) if byte == 10 and at + 1 < len(data)]

    for at in ends:
        joined = Transcript.read(data[:at] + b"\x0b" + data[at + 1 :])
        assert events == joined.events, at
        assert data[:at].count(b"\n") + 1 == joined.skipped[0].line, at


def test_every_cut_can_be_written_on() -> None:
    """A log cut at any byte gives its whole lines, and the line written behind it."""
    data = sample()
    whole = decode(data).events
    ends = [at for at, byte in enumerate(data) if byte == 10]
    new = Event("user", "2026-11-15T14:00:00.000Z", "new", whole[-1].uuid, {"role": "user"})

    for cut in range(1, len(data) + 1, 1 if WHOLE else 50):
        kept = data[:cut]
        first = b"" if kept.endswith(b"\n") else b"\n"
        decoded = decode(kept + first + encode(new))
        complete = bisect_right(ends, cut)
        half = cut not in {0, len(data)} and kept[-1] != 10 and cut not in ends
        assert [*whole[:complete], new] == decoded.events, cut
        assert [complete + 1] * (half or cut == len(data)) == [
            skip.line for skip in decoded.skipped
        ], cut


def test_a_torn_tail_with_an_event_inside_is_one_bad_line() -> None:
    """Cut anywhere, a line never gives away what it quoted."""
    draft = Draft()
    draft.header()
    quoted = [{"type": "user", "ts": "", "uuid": "quoted", "prev_uuid": None, "payload": {}}] * 2
    draft.add("note", {"about": quoted, "and": {"again": quoted[0]}})
    first, second = draft.lines()

    for cut in range(1, len(second) - 1):
        for end in (b"", b"\n"):
            decoded = decode(first + second[:cut] + end)
            assert draft.events[:1] == decoded.events, cut
            assert [codec.BAD_JSON if end else codec.TORN] == [s.why for s in decoded.skipped], cut


def test_a_line_cut_in_two_gives_no_event() -> None:
    """A byte that becomes an LF costs its event; no half passes for a whole one."""
    for name, data in SESSIONS.items():
        events = Transcript.read(data).events
        for at in range(1, len(data), 1 if WHOLE else 40):
            if data[at] == 10 or 10 in (data[at - 1], data[min(at + 1, len(data) - 1)]):
                continue
            cut = decode(data[:at] + b"\n" + data[at + 1 :])
            assert len(cut.events) <= len(events), (name, at)


def test_a_skip_is_a_plain_value() -> None:
    """What was lost can be shown: line, offset, length, reason and what was saved."""
    damaged = sample().replace(b'"type":"sidechain"', b'"type"\0"sidechain"')
    line = sample()[: sample().index(b'{"type":"sidechain"')].count(b"\n") + 1
    skips = [s for s in Transcript.read(damaged).skipped if s.why != codec.TORN]

    assert [Skipped(line, skips[0].offset, skips[0].length, codec.NULS, 0)] == skips
    assert damaged[skips[0].offset :].startswith(b'{"type"\0')
