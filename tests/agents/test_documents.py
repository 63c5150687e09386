"""Documents with a list, written anew at every step, and documents with a total."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.agents.agents import write_document
from thence.agents import Batch, Cursor, File, Mark, Source, files
from thence.agents.documents import ListReader, TotalReader, list_items
from thence.agents.records import Record, prompt
from thence.format.codec import RawRecord
from thence.format.facts import Fact
from thence.format.nodes import PREVIOUS, Is, Node
from thence.format.records import Usage, count
from thence.format.session_graph import REWRITTEN, SessionGraph


class Lines(ListReader):
    """A document with a list of texts."""

    def items(self, record: RawRecord) -> Sequence[Record]:
        """Return the texts."""
        return list_items(record.value.get("list"))

    def about(self, document: Record) -> dict[str, Any]:
        """Return the title."""
        title = document.get("title")
        return {"about": {"title:ai": title}} if title else {}

    def begin(self, carried: Record) -> None:
        """Go on counting."""
        self._number = count(carried.get("number"))

    def remember(self) -> Record:
        """Return how many were counted."""
        return {"number": self._number}

    def item_facts(self, record: RawRecord) -> Iterable[Fact]:
        """Return a text with its number."""
        self._number += 1
        text = f"{self._number}: {record.value.get('said')}"
        node = Node(self._name(record), PREVIOUS, Is.PROMPT)
        yield self._fact(record, node, "line", blocks=(prompt(text),))


class Plain(Lines):
    """The same, without numbers."""

    def item_facts(self, record: RawRecord) -> Iterable[Fact]:
        """Return a text."""
        node = Node(self._name(record), PREVIOUS, Is.PROMPT)
        yield self._fact(record, node, "line", blocks=(prompt(f"{record.value.get('said')}"),))


class Totals(TotalReader):
    """A document with a total."""

    def total(self, record: RawRecord) -> tuple[Usage, str | None] | None:
        """Return the total."""
        return Usage(count(record.value.get("total"))), "m"


class Reader:
    """Reads a document again and again, and keeps what it said."""

    def __init__(self, path: Path, beside: tuple[str, ...] = (), kind: Any = Lines) -> None:
        self.path = path
        file = File(str(path), "main", is_document=True, beside=beside)
        self.source = Source("test", "s", (file,))
        self.cursor: Cursor | None = None
        self.facts: list[Fact] = []
        self._kind = kind

    def read(self) -> Batch:
        """Read what is new; the cursor goes through JSON, as in a store."""
        import msgspec

        batch = files.read(self.source, self.cursor, self._kind)
        self.cursor = msgspec.json.decode(msgspec.json.encode(batch.cursor), type=Cursor)
        self.facts += batch.events
        return batch

    def put(self, *texts: str, **more: Any) -> Batch:
        """Write a list, and read it."""
        write_document(self.path, {"list": [{"said": line} for line in texts], **more})
        return self.read()

    @property
    def graph(self) -> SessionGraph:
        """All that was read."""
        return SessionGraph("test:s", self.facts)

    @property
    def texts(self) -> list[tuple[str, str]]:
        """What was said, and its state."""
        return [(event.summary, str(event.state)) for event in self.graph.events]


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """A reader of a document that is not there yet."""
    return Reader(tmp_path / "list.json")


def test_a_list_that_grows_is_read_from_where_it_ended(reader: Reader) -> None:
    """Items that were read are passed over; what they said is remembered."""
    lines = [[fact.line for fact in reader.put(*"abc"[:n]).events] for n in (1, 2, 3, 3)]

    assert [[1], [2], [3], []] == lines
    assert [("1: a", "live"), ("2: b", "live"), ("3: c", "live")] == reader.texts
    assert {0} == {fact.generation for fact in reader.facts}


@pytest.mark.parametrize(
    ("later", "states"),
    [
        ("ab", [("1: a", "live"), ("2: b", "live"), ("3: c", "dead")]),
        ("axc", [("1: a", "live"), ("2: x", "live"), ("3: c", "live"), ("2: b", "dead")]),
        ("", [("1: a", "dead"), ("2: b", "dead"), ("3: c", "dead")]),
    ],
)
def test_what_a_list_no_longer_holds_stays_dead(
    reader: Reader, later: str, states: list[tuple[str, str]]
) -> None:
    """Whether it was cut, changed or emptied."""
    reader.put(*"abc")
    batch = reader.put(*later)

    assert states == reader.texts
    assert [REWRITTEN] == [notice.what for notice in batch.notices]
    assert {None, REWRITTEN} >= {event.why for event in reader.graph.events}


def test_what_comes_back_is_alive_again(reader: Reader) -> None:
    """A list may be cut and restored any number of times."""
    for letters in ("abc", "a", "abc", "ab", "abc"):
        reader.put(*letters)

    assert [("1: a", "live"), ("2: b", "live"), ("3: c", "live")] == reader.texts


@pytest.mark.parametrize(
    ("content", "is_torn"),
    [
        (b"", True),
        (b'{"list": [{"said": "a"}, {"sa', True),
        (b"not json", False),
        (b"[]", False),
        (b"{}", False),
        (b'{"list": 7}', False),
        (b'{"list": {"said": "a"}}', False),
        (b"[" * 200_000, False),
        (b'{"list": ' + b"[" * 200_000, False),
        (b"\xff\xfe\0", False),
    ],
)
def test_a_document_that_makes_no_sense_leaves_what_was_read(
    reader: Reader, content: bytes, is_torn: bool
) -> None:
    """One that is cut short is being written: it is no damage, and is read when it is whole."""
    reader.put("a", "b")
    reader.path.write_bytes(content)
    bad = reader.read()
    idle = reader.read()
    good = reader.put("a", "b", "c")

    assert ([], is_torn, not is_torn) == (bad.events, bad.torn, bool(bad.skipped))
    assert ([], 0, is_torn) == (idle.events, idle.bytes, idle.torn)
    assert ([3], False, []) == ([fact.line for fact in good.events], good.torn, good.notices)


def test_a_first_read_of_a_half_written_document_costs_nothing(reader: Reader) -> None:
    """It is no rewriting when the document is whole for the first time."""
    reader.path.write_bytes(b'{"list": [')
    reader.read()
    batch = reader.put("a")

    assert ([], [("1: a", "live")]) == (batch.notices, reader.texts)


def test_odd_texts_and_numbers_cost_nothing(reader: Reader) -> None:
    """Lone surrogates, numbers out of range, and items that are no objects."""
    reader.path.write_text('{"list": [{"said": "\\ud83d"}, {"n": 1e999}, 7, null, [[]]]}')
    first = reader.read()
    os.utime(reader.path)
    again = reader.read()

    assert (5, [], []) == (len(first.events), first.skipped, again.events)


def test_a_document_that_is_too_large_is_told(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not read; what was read stays."""
    reader.put("a")
    monkeypatch.setattr(files, "MAX_LIST_BYTES", 10)
    batch = reader.put("a", "b")

    assert ([], 0, ["too long"]) == (
        *(batch.events, batch.bytes),
        [skip.why for skip in batch.skipped],
    )


def test_what_a_document_says_of_itself_is_told_when_it_changes(reader: Reader) -> None:
    """The last title counts, with or without new items."""
    titles = [
        [fact.about for fact in reader.put(*letters, title=title).events if fact.about]
        for letters, title in (("a", "Old"), ("ab", "Old"), ("ab", "New"), ("abc", "New"))
    ]

    assert [[{"title:ai": "Old"}], [], [{"title:ai": "New"}], []] == titles
    assert "New" == reader.graph.title


def test_a_file_beside_a_document_is_part_of_it(tmp_path: Path) -> None:
    """When it comes, changes or goes, the document is read again; else it is not."""
    beside = tmp_path / "beside"
    reader = Reader(tmp_path / "list.json", (str(beside),))
    reader.put("a")
    changes: list[Any] = [
        lambda: None,
        lambda: beside.write_text("1"),
        lambda: beside.write_text("22"),
        lambda: None,
        beside.unlink,
    ]

    def reads() -> Iterator[bool]:
        for change in changes:
            change()
            yield bool(reader.read().bytes)

    assert [False, True, True, False, True] == list(reads())


def test_a_total_is_billed_by_what_it_adds(tmp_path: Path) -> None:
    """One that stays the same says nothing; one that falls began anew."""
    reader = Reader(tmp_path / "total.json", kind=Totals)
    for total in (0, 100, 100, 250, 30):
        write_document(reader.path, {"total": total, "at": len(reader.facts)})
        reader.read()

    bills = [usage.total for usage in reader.graph.bills.values()]
    assert ([100, 150, 30], 280) == (bills, reader.graph.spent.own)


def test_a_total_with_odd_values_is_none(tmp_path: Path) -> None:
    """Nothing raises, and nothing is billed."""
    reader = Reader(tmp_path / "total.json", kind=Totals)
    odd: tuple[Any, ...] = (-1, "x", None, [], {}, 2**70, True)
    for total in odd:
        reader.path.write_text(json.dumps({"total": total}))
        assert [] == reader.read().skipped

    assert 0 == reader.graph.spent.own


@pytest.mark.parametrize(("lists", "generation"), [(("ab",), 0), (("abc", "ab"), 1)])
def test_reading_starts_over_in_the_same_generation(
    reader: Reader, lists: tuple[str, ...], generation: int
) -> None:
    """As a store does when it derives anew: what the document lost before stays dead."""
    for letters in lists:
        reader.put(*letters)
    assert reader.cursor is not None
    mark = reader.cursor.marks["main"]
    restarted = Mark(mark.device, mark.inode, -1, mark.mtime_ns, generation=mark.generation)
    reader.cursor = Cursor({"main": restarted})
    reader.facts = [fact for fact in reader.facts if fact.generation < mark.generation]
    batch = reader.read()

    assert ([1, 2], []) == ([fact.line for fact in batch.events], batch.notices)
    assert {generation} == {fact.generation for fact in batch.events}
    expected = [("1: a", "live"), ("2: b", "live"), ("3: c", "dead")]
    assert expected[: 2 + generation] == reader.texts


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_to_a_list_nothing_is_lost_or_told_twice(
    tmp_path: Path, seed: int
) -> None:
    """Items are added, cut off and changed, and the document is half written now and then."""
    chance = random.Random(seed)
    reader = Reader(tmp_path / "list.json", kind=Plain)
    names, now, every = iter(range(1000)), list[str](), set[str]()
    for _ in range(30):
        step = chance.random()
        if step < 0.6 or not now:
            now += [f"item {next(names)}" for _ in range(chance.randint(1, 3))]
        elif step < 0.8:
            del now[chance.randrange(len(now)) :]
        elif step < 0.9:
            now[chance.randrange(len(now))] = f"item {next(names)}"
        else:
            reader.path.write_bytes(b'{"list": [')
            reader.read()
        every |= set(now)
        reader.put(*now)

    states = dict(reader.texts)
    assert len(states) == len(reader.texts)
    assert every == states.keys()
    assert now == [line for line, state in reader.texts if state == "live"]
