"""The suite for adapters: ours pass it, and each kind of bad one is found out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.pace import SUITE_BYTES, SUITE_ROUNDS
from tests.testing import samples
from thence.agents import Adapter, Batch, Cursor, File, Mark, Source, files
from thence.agents.profiles import agents
from thence.format import codec
from thence.format.facts import Block, Fact, line_name
from thence.format.nodes import PREVIOUS, Is, Node
from thence.format.records import JSON
from thence.testing import AgentSuite
from thence.testing.readers import CHECKS


@pytest.mark.few(4)
@pytest.mark.sampled
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", samples.WRITERS)
def test_built_in_agents_pass(tmp_path: Path, name: str, check: str) -> None:
    """They come through the same door and stand the same checks as other people's."""
    suite = AgentSuite(
        agents()[name],
        samples.WRITERS[name],
        folder=tmp_path,
        rounds=SUITE_ROUNDS,
        bytewise=SUITE_BYTES,
        mirrors=["chat_history.jsonl"],
    )

    assert [] == suite.complaints(check)


def test_every_check_is_a_method_that_says_what_it_checks() -> None:
    """The list and the class agree."""
    assert all((getattr(AgentSuite, name).__doc__ or "").strip() for name in CHECKS)


# -- bad ones -------------------------------------------------------------------------------


def write_notes(root: Path) -> None:
    """Two sessions of a made-up agent."""
    for name in ("one", "two"):
        lines = [{"n": n, "said": f"{name} {n % 3}"} for n in range(6)]
        data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        (root / f"{name}.notes").write_bytes(data)


class Notes:
    """A sound adapter for it, with places to go wrong in."""

    name = "notes"

    def roots(self, home: Path, env: object) -> list[Path]:
        """One."""
        return [home / ".notes"]

    def find(self, root: Path) -> Iterator[Source]:
        """A file, a session."""
        for entry in files.walk(str(root)):
            if entry.name.endswith(".notes"):
                yield self.source(Path(entry.path))

    def source(self, path: Path) -> Source:
        """One file."""
        return Source(self.name, path.stem, (File(str(path), path.stem),), str(path.parent))

    def at(self, path: Path) -> Source | None:
        """By its name."""
        return self.source(path) if path.suffix == ".notes" and path.is_file() else None

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """As all do."""
        return files.read(source, cursor, self.records)

    def records(self, source: Source, file: File, mark: Mark) -> files.Records:
        """What turns records into facts."""
        return Records(file, mark)

    def live(self, root: Path) -> Iterator[JSON]:
        """None."""
        return iter(())

    def prompts(self, root: Path) -> Iterator[JSON]:
        """None."""
        return iter(())

    def keeps_days(self, root: Path) -> int | None:
        """For ever."""
        return None


class Records:
    """One block per record, with the sum of all numbers before it."""

    def __init__(self, file: File, mark: Mark) -> None:
        self.file, self.mark = file, mark
        self.sum = mark.carry if isinstance(mark.carry, int) else 0

    def facts(self, record: codec.RawRecord) -> list[Fact]:
        """Trust nothing."""
        number = record.value.get("n")
        fact = Fact(
            Node(self.name(record), PREVIOUS, Is.PROMPT),
            "note",
            blocks=(Block("user_msg", "user", str(self.sum), record.value.get("said")),),
            file=self.file.key,
            generation=self.mark.generation,
            line=record.place.line,
            offset=record.place.offset,
        )
        self.sum += number if type(number) is int and abs(number) < 100 else 0
        return [fact]

    def name(self, record: codec.RawRecord) -> str:
        """By its bytes."""
        return line_name(self.file.key, record.raw)

    def carry(self) -> JSON:
        """The sum."""
        return self.sum


def complaints(adapter: Adapter, *checks: str) -> set[str]:
    """The checks that an adapter does not stand."""
    problems = AgentSuite(adapter, write_notes, rounds=20, bytewise=100).complaints(*checks)
    return {complaint.partition(":")[0] for complaint in problems}


def test_a_sound_adapter_passes() -> None:
    """Nothing is found where nothing is wrong."""
    assert set() == complaints(Notes())


def test_one_that_lacks_a_method_is_found_out() -> None:
    """The protocol is looked at first."""

    class Lacking:
        name = "notes"

    assert {"protocol"} == complaints(Lacking(), "protocol")  # type: ignore[arg-type]


def test_one_that_finds_everything_twice_is_found_out() -> None:
    """A session is one source."""

    class Doubling(Notes):
        def find(self, root: Path) -> Iterator[Source]:
            yield from [*super().find(root)] * 2

    assert "finding" in complaints(Doubling(), "finding")


def test_one_whose_paths_lead_nowhere_is_found_out() -> None:
    """`at` and `find` must agree."""

    class Lost(Notes):
        def at(self, path: Path) -> Source | None:
            return None

    assert {"finding"} == complaints(Lost(), "finding")


def test_one_that_reads_all_again_is_found_out() -> None:
    """A cursor is there to be used."""

    class Forgetful(Notes):
        def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
            return super().read(source)

    assert {"reading_twice"} == complaints(Forgetful(), "reading_twice")


def test_one_that_carries_nothing_is_found_out() -> None:
    """What a record needs of those before it must outlive the read."""

    class Careless(Records):
        def carry(self) -> JSON:
            return None

    class Cut(Notes):
        def records(self, source: Source, file: File, mark: Mark) -> files.Records:
            return Careless(file, mark)

    assert {"growing_by_lines", "growing_by_bytes"} == complaints(
        Cut(), "growing_by_lines", "growing_by_bytes"
    )


def test_one_that_loses_lines_is_found_out() -> None:
    """What it does not know it must tell all the same."""

    class Picky(Records):
        def facts(self, record: codec.RawRecord) -> list[Fact]:
            return super().facts(record) if "said" in record.value else []

    class Silent(Notes):
        def records(self, source: Source, file: File, mark: Mark) -> files.Records:
            return Picky(file, mark)

    assert {"every_line"} == complaints(Silent(), "every_line")


def test_one_that_names_records_by_their_place_is_found_out() -> None:
    """An id must hold when lines before it go."""

    class Placed(Records):
        def name(self, record: codec.RawRecord) -> str:
            return f"{self.file.key}-{record.place.offset}"

    class Counting(Notes):
        def records(self, source: Source, file: File, mark: Mark) -> files.Records:
            return Placed(file, mark)

    assert {"rewriting", "hostile_lines"} == complaints(Counting(), "rewriting", "hostile_lines")


def test_one_that_forgets_what_was_rewritten_is_found_out() -> None:
    """A generation tells what a log held before from what it holds now."""

    class Timeless(Notes):
        def records(self, source: Source, file: File, mark: Mark) -> files.Records:
            return Records(file, msgspec.structs.replace(mark, generation=0))

    assert {"rewriting"} == complaints(Timeless(), "rewriting")


def test_one_that_knows_files_by_their_paths_is_found_out() -> None:
    """A session is the same wherever it lies."""

    class Rooted(Notes):
        def source(self, path: Path) -> Source:
            return Source(self.name, path.stem, (File(str(path), str(path)),))

    assert {"moving"} == complaints(Rooted(), "moving")


def test_one_that_trusts_a_type_is_found_out() -> None:
    """The error is a complaint, which tells where."""

    class Trusting(Records):
        def facts(self, record: codec.RawRecord) -> list[Fact]:
            record.value["said"].upper()
            return super().facts(record)

    class Brittle(Notes):
        def records(self, source: Source, file: File, mark: Mark) -> files.Records:
            return Trusting(file, mark)

    assert {"hostile_values"} == complaints(Brittle(), "hostile_values")


def test_one_that_touches_its_sources_is_found_out() -> None:
    """Not even a time may change."""

    class Clumsy(Notes):
        def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
            os.utime(source.path)
            return super().read(source, cursor)

    assert {"no_trace"} == complaints(Clumsy(), "no_trace")


def test_all_of_ours_are_among_them() -> None:
    """What is proven here is what is installed."""
    built_in = set(agents())

    tested = {name for name in built_in if "Suite(" in own_tests(name)}

    assert built_in == tested | set(samples.WRITERS)


def own_tests(name: str) -> str:
    """Return the tests of one reader, where they stand in a file of their own."""
    path = Path(__file__).parents[1] / "agents" / f"test_{name}.py"
    return path.read_text() if path.exists() else ""
