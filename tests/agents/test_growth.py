"""Every real session there is, grown in all ways: whatever the pieces and the order, one session.

Copies of the sessions in `../shared/data` grow by bytes, by lines and by what the real clients
appended; they are read through one cursor, and what was gathered must equal reading at once.
Ordinary days and `make test` take samples of the sessions, `make prove` takes all of them.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import settings

from tests.pace import by_pace
from thence.agents import Adapter, Batch, Cursor, Source, adapters, contents, files
from thence.agents.sessions import read_all
from thence.format.facts import Fact
from thence.format.session_graph import SessionGraph
from thence.memory.readouts import readout_of

ALL_TESTS = settings.get_current_profile_name() == "full"
PARTS = 4
"""Into how many tests the sessions are divided, so that they run side by side."""

SMALL = 3000
"""Bytes of a log that grows byte by byte; longer ones grow line by line."""

CUTS = 12
"""How often a log is also cut in the middle of a line."""

LOOKS = 8
"""How often what was gathered so far is compared with reading at once."""

Known = tuple[Adapter, Source]


@cache
def sessions(data: Path) -> list[Known]:
    """All sessions below the folder of real files, each once, smallest first."""
    known = adapters()
    sources: dict[tuple[str, ...], Known] = {}
    for path in sorted(data.rglob("*")):
        if path.suffix not in (".jsonl", ".json", ".zst") or not path.is_file():
            continue
        for adapter in known.values():
            source = adapter.at(path)
            if source is not None:
                sources.setdefault(tuple(file.path for file in source.files), (adapter, source))
                break
    return sorted(sources.values(), key=lambda known: (size(known[1]), known[1].path))


def size(source: Source) -> int:
    """Bytes of a session."""
    return sum(Path(file.path).stat().st_size for file in source.files)


def sample(data: Path, part: int, *, each: int, full: int) -> list[Known]:
    """The sessions of one part: every so-many-th on an ordinary day and with all tests."""
    return sessions(data)[part :: PARTS * by_pace(everyday=each, full=full, prove=1)]


def story(source: Source, facts: Iterable[Fact], *, torn: bool = False) -> tuple[Any, ...]:
    """All that a session tells."""
    session = SessionGraph(source.uid, facts, torn=torn)
    messages = readout_of(session).messages().messages
    return (
        session.events,
        session.states,
        messages,
        session.spent,
        session.turn(),
        session.about,
        session.unbilled,
    )


def at_once(adapter: Adapter, source: Source) -> tuple[Any, ...]:
    """What a session tells when it is read from its start."""
    facts, batch = read_all(adapter, source)
    return story(source, facts, torn=batch.torn)


class Grown:
    """A copy of a session that grows, and all that was read of it through one cursor."""

    def __init__(self, adapter: Adapter, source: Source, folder: Path) -> None:
        self.adapter = adapter
        self.logs: list[tuple[Path, bytes]] = []
        shutil.rmtree(folder, ignore_errors=True)
        self.source = self._copied(source, folder)
        self.facts: list[Fact] = []
        self.cursor = Cursor()
        self.torn = False

    def _copied(self, source: Source, folder: Path) -> Source:
        """Copy the files beside the logs; the logs begin empty."""
        top = Path(os.path.commonpath([Path(file.path).parent for file in source.files]))
        if source.adapter == "grok":
            shutil.copytree(top, folder)
        twins = []
        for file in source.files:
            twin = folder / Path(file.path).relative_to(top)
            twin.parent.mkdir(parents=True, exist_ok=True)
            data = Path(file.path).read_bytes()
            grows = not file.is_document and not file.path.endswith(".zst")
            twin.write_bytes(b"" if grows else data)
            if grows:
                self.logs.append((twin, data))
            twins.append(msgspec.structs.replace(file, path=str(twin)))
        return msgspec.structs.replace(source, files=tuple(twins), root=str(folder))

    def read(self) -> Batch:
        """Read what is new, all of it."""
        done = False
        while not done:
            batch = self.adapter.read(self.source, self.cursor)
            self.facts += batch.events
            self.torn = batch.torn
            done, self.cursor = batch.done, batch.cursor
        return batch

    def compare(self) -> None:
        """Tell whether what was gathered is what reading at once gives."""
        gathered = story(self.source, self.facts, torn=self.torn)

        assert at_once(self.adapter, self.source) == gathered, self.source.path

    def grow(self, cuts: Iterable[int], *, looks: int) -> None:
        """Let the logs grow, one behind the other, and look now and then."""
        for path, data in self.logs:
            ends = sorted({*cuts, len(data)} & {*range(len(data) + 1)})
            compared = {ends[at * len(ends) // looks] for at in range(looks)} | {ends[-1]}
            with path.open("ab", buffering=0) as log:
                before = 0
                for end in ends:
                    log.write(data[before:end])
                    before = end
                    self.read()
                    if end in compared:
                        self.compare()


def lines(data: bytes, chance: random.Random) -> set[int]:
    """Where a log is cut: at its lines' ends, and in the middle of some."""
    ends = [at + 1 for at, byte in enumerate(data) if byte == 10]
    few = ends if ALL_TESTS else chance.sample(ends, min(len(ends), CUTS))
    return {*few, *(chance.randrange(len(data) + 1) for _ in range(CUTS))}


@pytest.fixture(scope="module", autouse=True)
def _untouched(shared: Path) -> Iterator[None]:
    """R2: after all of it the sources are as they were: bytes, times and modes."""
    before = look(shared / "data")
    yield

    assert before == look(shared / "data")


def look(folder: Path) -> dict[str, tuple[int, int, int, str]]:
    """What can be seen of all files below a folder."""
    return {
        str(path): (
            (status := path.lstat()).st_mode,
            status.st_size,
            status.st_mtime_ns,
            blake2b(path.read_bytes(), digest_size=16).hexdigest() if path.is_file() else "",
        )
        for path in sorted(folder.rglob("*"))
    }


# -- growth ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_series_of_snapshots_are_one_session(shared: Path, tmp_path: Path) -> None:
    """R2: what a client appended between two snapshots, and all before it, equals the last one."""
    series = sorted((shared / "data" / "public").rglob("growth/*"))
    for folder in series:
        last = max(folder.rglob("*.jsonl"))
        adapter, source = next(known for known in sessions(folder) if known[1].path == str(last))
        grown = Grown(adapter, source, tmp_path / "copy")
        cuts = [path.stat().st_size for path in sorted(folder.rglob("*.jsonl"))]
        grown.grow(cuts, looks=len(cuts))

    assert 2 <= len(series)


@pytest.mark.slow
def test_sessions_that_were_resumed_go_on_from_what_was_read(shared: Path, tmp_path: Path) -> None:
    """R2: the folder as it was at a crash or before a rewind, and as the next process left it."""
    pairs = 0
    for before in sorted((shared / "data" / "claude-code").rglob("before_*")):
        for adapter, source in sessions(before):
            path = Path(source.path).relative_to(before)
            if not (before.parent / "claude" / path).is_file():
                continue
            copy = tmp_path / f"{pairs}"
            shutil.copytree(before, copy)
            first = adapter.read(adapter.at(copy / path) or source)
            become(copy, before.parent / "claude")
            now = adapter.at(copy / path) or source
            second = adapter.read(now, first.cursor)
            gathered = story(now, first.events + second.events, torn=second.torn)
            pairs += 1

            assert [] == second.notices
            assert at_once(adapter, now) == gathered, source.path

    assert 6 <= pairs


def become(folder: Path, other: Path) -> None:
    """Change a folder into what another one holds, in place, as a writer does."""
    for changed in sorted(other.rglob("*")):
        twin = folder / changed.relative_to(other)
        if changed.is_dir():
            twin.mkdir(exist_ok=True)
        elif not twin.exists() or twin.read_bytes() != changed.read_bytes():
            twin.write_bytes(changed.read_bytes())


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("part", range(PARTS))
def test_small_sessions_grow_byte_by_byte(shared: Path, tmp_path: Path, part: int) -> None:
    """R1, R3: at no byte does a record come twice, go, or change what the session tells."""
    for adapter, source in sample(shared / "data", part, each=30, full=30):
        if size(source) < SMALL:
            grown = Grown(adapter, source, tmp_path / "copy")
            grown.grow(range(SMALL), looks=LOOKS)


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("part", range(PARTS))
def test_sessions_grow_line_by_line_and_within_lines(
    shared: Path, tmp_path: Path, part: int
) -> None:
    """R1, R3: cut at every line's end and in the middle of some."""
    chance = random.Random(part)
    for adapter, source in sample(shared / "data", part, each=16, full=16):
        if size(source) >= SMALL:
            grown = Grown(adapter, source, tmp_path / "copy")
            cuts = {cut for _, data in grown.logs for cut in lines(data, chance)}
            grown.grow(cuts, looks=2)


# -- reading again --------------------------------------------------------------------------


@pytest.mark.slow
def test_second_read_opens_nothing(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R2: no line is parsed twice; a look at the names is all that unchanged files cost."""
    read = [
        (known, read_all(*known)[1])
        for known in sessions(shared / "data")[:: 1 if ALL_TESTS else 4]
    ]

    def opened(path: str, *_flags: int) -> int:
        raise AssertionError(path)

    monkeypatch.setattr(os, "open", opened)
    again = [known[0].read(known[1], batch.cursor) for known, batch in read]
    monkeypatch.undo()

    assert 0 == sum(batch.lines for batch in again)
    assert [] == [event for batch in again for event in batch.events]
    assert [batch.cursor for _, batch in read] == [batch.cursor for batch in again]
    assert [batch.torn for _, batch in read] == [batch.torn for batch in again]


# -- pieces and order -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("part", range(PARTS))
def test_chunks_and_order_change_nothing(
    shared: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    """R2, R10: small chunks, a read of a line or two at a time, files and facts in any order."""
    chance = random.Random(part)
    for adapter, source in sample(shared / "data", part, each=16, full=16):
        facts, batch = read_all(adapter, source)
        expected = story(source, facts, torn=batch.torn)
        with monkeypatch.context() as patch:
            few = files.Limits(bytes=chance.choice((1, 999, 70_000)))
            patch.setattr(files, "Limits", lambda few=few: few)
            patch.setattr(contents, "_CHUNK_BYTES", chance.choice((61, 4099)))
            pieces = read_all(adapter, source)[0]
        mixed = list(source.files)
        chance.shuffle(mixed)
        other = read_all(adapter, msgspec.structs.replace(source, files=tuple(mixed)))[0]

        assert expected == story(source, pieces, torn=batch.torn), source.path
        assert expected == story(source, other, torn=batch.torn), source.path
        assert expected == story(source, shuffled(facts, chance), torn=batch.torn), source.path


def shuffled(facts: list[Fact], chance: random.Random) -> list[Fact]:
    """Put facts in any order, and read some of them twice; those of one line stay together."""
    lines: dict[tuple[str, int, int], list[Fact]] = {}
    for fact in facts:
        lines.setdefault((fact.file, fact.generation, fact.line), []).append(fact)
    groups = [*lines.values(), *chance.sample([*lines.values()], len(lines) // 5)]
    chance.shuffle(groups)
    return [fact for group in groups for fact in group]
