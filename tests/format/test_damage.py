"""Bytes go bad: what the damage did not touch is read as before, and the rest is reported.

A line is *untouched* when its bytes and the LF on either side of it are what they were. A byte
that becomes an LF, or an LF that becomes another byte, touches the lines it cuts or joins and
moves the numbers of those behind. Every round is made from a seed of its own, which a failure
names. `make prove` plays all rounds; `make test` and the everyday tests some of each.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.pace import by_pace
from thence.format import codec, schema
from thence.format.codec import RawRecord, decode, encode, objects
from thence.format.records import JSON, Event, Skipped
from thence.format.transcript import Transcript
from thence.testing import Draft, sample

BLOCK = 512
# make prove counts its damages here; a few of them show in make test that none does harm.
FLIPS, ZEROS, SWAPS = by_pace(everyday=(4, 1, 1), full=(8, 2, 2), prove=(200, 50, 50))
EACH_BYTE = by_pace(everyday=50, full=13, prove=1)
"""Where a file is cut at each byte: at every byte of so many."""
EACH_FILE = by_pace(everyday=8, full=4, prove=1)
"""Of so many real logs is one damaged."""
SMALL = 100_000
BLANK = b" \t\r\n\v\f"

NATIVE = Path(__file__).resolve().parent.parent / "data" / "native"
SESSIONS = {"sample": sample()} | {p.stem: p.read_bytes() for p in sorted(NATIVE.glob("*.jsonl"))}


class Damage(NamedTuple):
    """Bytes gone bad: all changes lie from `start` to before `stop`."""

    data: bytes
    start: int
    stop: int
    moves: bool = False
    """Bytes were not lost but stand elsewhere."""


def flip(data: bytes, chance: Random) -> Damage:
    """Change one byte."""
    at = chance.randrange(len(data))
    other = bytes([data[at] ^ chance.randrange(1, 256)])
    return Damage(data[:at] + other + data[at + 1 :], at, at + 1)


def zero(data: bytes, chance: Random) -> Damage:
    """Overwrite a block with NULs, as a file system may after a crash."""
    at = chance.randrange(len(data))
    stop = min(at + BLOCK, len(data))
    return Damage(data[:at] + bytes(stop - at) + data[stop:], at, stop)


def swap(data: bytes, chance: Random) -> Damage:
    """Let two neighbouring blocks change places; the second one may be short."""
    at = chance.randrange(len(data))
    first, second = data[at : at + BLOCK], data[at + BLOCK : at + 2 * BLOCK]
    behind = data[at + 2 * BLOCK :]
    return Damage(data[:at] + second + first + behind, at, len(data) - len(behind), moves=True)


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
        """Hold the promise of this file for one damage: nothing lost, unsaid or invented."""
        # The first line that ends at or behind the damage, and the first that starts behind it
        # with an LF of its own in front.
        first = self.starts[bisect_left(self.ends, damage.start)]
        behind = bisect_right(self.starts, damage.stop)
        last = self.starts[behind] if behind < len(self.starts) else len(self.data)
        before = bisect_left(self._offsets, first)
        after = bisect_left(self._offsets, last)
        items = self.read(damage.data)
        rest = len(items) - (len(self.items) - after)
        more = damage.data.count(b"\n") - len(self.ends)
        moved = [item._replace(line=item.line + more) for item in self.items[after:]]
        line = 1 + damage.data.count(b"\n", 0, first)
        touched = damage.data[first:last].split(b"\n")
        lines = {n for n, raw in enumerate(touched, line) if raw.strip(BLANK)}

        assert self.items[:before] == items[:before], seed
        assert moved == items[rest:], seed
        assert lines == {item.line for item in items[before:rest]}, seed
        if not damage.moves:
            assert records(self.items[before:after]) >= records(items[before:rest]), seed


def records(items: list[Item]) -> int:
    """Count what is no report."""
    return sum(not isinstance(item.what, tuple) for item in items)


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
        if isinstance(r, RawRecord)
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
def test_damage_to_a_session_costs_only_what_it_touched(
    name: str, kind: str, record_property: Callable[[str, object], None]
) -> None:
    """No view of the session raises; untouched events are equal; the rest is reported."""
    data = SESSIONS[name]
    undamaged = Read(data, by_transcript)
    played = 0
    for seed, damage in rounds(name, kind, data):
        undamaged.check(damage, seed)
        played += 1
    record_property("rounds", played)


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("agent", ["claude-code", "codex"])
def test_damage_to_a_foreign_log_costs_only_what_it_touched(
    agent: str, kind: str, shared: Path, record_property: Callable[[str, object], None]
) -> None:
    """The same for every small log of the real clients, read as the adapters read it."""
    played = 0
    for path in sorted((shared / "data" / agent).rglob("*.jsonl"))[::EACH_FILE]:
        data = path.read_bytes()
        if not 0 < len(data) <= SMALL:
            continue
        undamaged = Read(data, by_objects)
        for seed, damage in rounds(str(path.relative_to(shared)), kind, data):
            undamaged.check(damage, seed)
            played += 1
    record_property("rounds", played)

    assert 0 < played


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


def invents(data: bytes) -> list[Item]:
    """Read like one who takes the pieces of a bad line for records."""
    pieces: list[dict[str, JSON]] = [{}, {}]
    return [
        item
        for i in by_objects(data)
        for item in (i, *(i._replace(what=p) for p in pieces if isinstance(i.what, tuple)))
    ]


@pytest.mark.parametrize("reader", [forgets, is_silent, miscounts, invents])
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
        (7, b"x", [(1, {"n": 1}), (1, {"n": 2}), (1, "2 saved"), (2, {"n": 3})]),
        (3, b"\n", [(1, "0 saved"), (2, "0 saved"), (3, {"n": 2}), (4, {"n": 3})]),
        (23, b" ", [(1, {"n": 1}), (2, {"n": 2}), (3, {"n": 3})]),
    ],
    ids=["an LF lost", "an LF made", "the last LF lost"],
)
def test_a_changed_lf_joins_or_cuts_lines_and_moves_the_rest(
    at: int, byte: bytes, expected: list[tuple[int, Any]]
) -> None:
    """What lies behind keeps its content and gets its new number."""
    hurt = THREE[:at] + byte + THREE[at + 1 :]
    Read(THREE, by_objects).check(Damage(hurt, at, at + 1), "by hand")
    read = [
        (i.line, f"{i.what[2]} saved" if isinstance(i.what, tuple) else i.what)
        for i in by_objects(hurt)
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
    events = decode(data).events
    ends = [at for at, byte in enumerate(data) if byte == 10]
    new = Event("user", "2026-11-15T14:00:00.000Z", "new", events[-1].uuid, {"role": "user"})

    for cut in range(1, len(data) + 1, EACH_BYTE):
        prefix = data[:cut]
        first = b"" if prefix.endswith(b"\n") else b"\n"
        decoded = decode(prefix + first + encode(new))
        complete = bisect_right(ends, cut)
        torn = [] if prefix.endswith(b"\n") or cut in ends else [complete + 1]

        assert [*events[:complete], new] == decoded.events, cut
        assert torn == [skip.line for skip in decoded.skipped], cut


def test_a_torn_tail_with_an_event_inside_is_one_bad_line() -> None:
    """Cut anywhere, a line never gives away what it quoted."""
    draft = Draft()
    draft.header()
    quoted: list[JSON] = [
        {"type": "user", "ts": "", "uuid": "quoted", "prev_uuid": None, "payload": {}}
    ] * 2
    draft.add("note", {"about": quoted, "and": {"again": quoted[0]}})
    first, second = draft.lines()

    for cut in range(1, len(second) - 1):
        for end in (b"", b"\n"):
            decoded = decode(first + second[:cut] + end)

            assert draft.events[:1] == decoded.events, cut
            assert [codec.BAD_JSON if end else codec.TORN] == [s.why for s in decoded.skipped], cut


@pytest.mark.few(5)
@pytest.mark.parametrize("name", SESSIONS)
def test_a_line_cut_in_two_costs_its_event_and_gives_no_other(name: str) -> None:
    """Where a byte became an LF neither half passes for a whole line."""
    data = SESSIONS[name]
    upcast = schema.upcaster(Transcript.read(data).version)
    undamaged = decode(data, upcast=upcast)

    for at in range(0, len(data), EACH_BYTE):
        if data[at] == 10:
            continue
        line = 1 + data.count(b"\n", 0, at)
        cut = decode(data[:at] + b"\n" + data[at + 1 :], upcast=upcast)
        others = zip(undamaged.events, undamaged.places, strict=True)

        assert [event for event, place in others if place.line != line] == cut.events, at


def test_a_skip_is_a_plain_value() -> None:
    """What was lost can be shown: line, offset, length, reason and what was saved."""
    damaged = sample().replace(b'"type":"sidechain"', b'"type"\0"sidechain"')
    line = sample()[: sample().index(b'{"type":"sidechain"')].count(b"\n") + 1
    skips = [s for s in Transcript.read(damaged).skipped if s.why != codec.TORN]

    assert [Skipped(line, skips[0].offset, skips[0].length, codec.NULS, 0)] == skips
    assert damaged[skips[0].offset :].startswith(b'{"type"\0')
