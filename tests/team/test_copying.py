"""A copy of a store is the store, either way, and says so when it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.memory import logs
from tests.memory.stored import KEY
from tests.postgres import Cluster
from tests.rules import rules
from thence.agents import adapters
from thence.memory.gate import Gate
from thence.memory.search import parse
from thence.memory.sqlite import Sqlite
from thence.memory.store import DigestRecord, Filter, SessionChange, Store
from thence.memory.sweep import Sweep
from thence.team.copying import copy, hash_of
from thence.team.postgres import Postgres

Open = Callable[[str], Store]


@pytest.fixture
def stores(tmp_path: Path, postgres: Cluster) -> Iterator[dict[str, Open]]:
    """Both kinds, by name."""
    opened: list[Store] = []

    def file(name: str) -> Store:
        opened.append(Sqlite(f"{tmp_path}/{name}/s.db"))
        return opened[-1]

    def database(name: str) -> Store:
        opened.append(Postgres(postgres.url(tenant=f"{tmp_path}/{name}", machine="here")))
        return opened[-1]

    yield {"file": file, "database": database}
    for store in opened:
        store.close()


def filled(store: Store, home: Path) -> Store:
    """A store with a family, a session that was evicted, one pinned and one forgotten."""
    first = logs.script(1)
    logs.write(home, first, logs.script(2), logs.script(3, turns=6), logs.script(6))
    logs.write(home, logs.fork(4, first, 6), logs.fork(5, first, 9))
    with store.sweeping():
        Sweep(store, adapters(), Gate(key=KEY), rules()).run({"claude": [home]})
    [row] = store.sessions(Filter(uid=logs.name(3)))
    cursor = store.known().sessions[row.session.session_uid].cursor
    store.write([SessionChange(msgspec.structs.replace(row, pinned=True), cursor)])
    store.remove([f"claude:{logs.name(2)}"], why={})
    store.remove([f"claude:{logs.name(6)}"], why={}, forget=True)
    return store


def hashes(store: Store) -> dict[str, str]:
    """All that a store holds, session by session."""
    return {row.session.session_uid: hash_of(store, row) for row in store.sessions()}


def hits(store: Store, text: str) -> list[tuple[str, int | None, int | None]]:
    """What a search finds."""
    return [
        (hit.session_uid, hit.event_id, hit.seq)
        for hit in store.search(parse(text), limit=1000).matches
    ]


@pytest.mark.parametrize("way", [("file", "database"), ("database", "file")])
def test_copy_is_the_store(tmp_path: Path, stores: dict[str, Open], way: tuple[str, str]) -> None:
    """Sessions, payloads, money, digests, words; what was evicted, kept or forgotten too."""
    source, target = filled(stores[way[0]]("one"), tmp_path / "home"), stores[way[1]]("two")
    report = copy(source, target, rules())
    inventory = target.known()

    assert (5, 5, 0, 1, 1, []) == (
        *(report.sessions, report.copied, report.unchanged),
        *(report.evicted, report.forgotten, report.different),
    )
    assert hashes(source) == hashes(target)
    assert source.totals(["day", "model"]) == target.totals(["day", "model"])
    assert hits(source, "harbour") == hits(target, "harbour") != []
    assert inventory.is_forgotten(f"claude:{logs.name(6)}")
    assert {
        uid: (entry.cursor, entry.pinned) for uid, entry in source.known().sessions.items()
    } == {uid: (entry.cursor, entry.pinned) for uid, entry in inventory.sessions.items()}
    with target.sweeping():
        again = Sweep(target, adapters(), Gate(key=KEY), rules()).run(
            {"claude": [tmp_path / "home"]}
        )
    assert (0, 0) == (again.lines, again.sessions_new)


def test_second_copy_brings_what_changed(tmp_path: Path, stores: dict[str, Open]) -> None:
    """And leaves the rest alone."""
    source, target = filled(stores["file"]("one"), tmp_path / "home"), stores["database"]("two")
    copy(source, target, rules())
    logs.write(tmp_path / "home", logs.script(3, turns=8), logs.script(7))
    with source.sweeping():
        Sweep(source, adapters(), Gate(key=KEY), rules()).run({"claude": [tmp_path / "home"]})
    report = copy(source, target, rules())

    assert (6, 2, 4, []) == (report.sessions, report.copied, report.unchanged, report.different)
    assert hashes(source) == hashes(target)
    assert (0, []) == (
        copy(source, target, rules()).copied,
        copy(source, target, rules()).different,
    )


def test_copy_that_was_cut_short_goes_on(tmp_path: Path, stores: dict[str, Open]) -> None:
    """Wherever that was."""
    source, target = filled(stores["database"]("one"), tmp_path / "home"), stores["file"]("two")
    write = Sqlite.write
    for fails in range(1, 4):
        with pytest.MonkeyPatch.context() as patched:
            left = [fails]

            def breaks(
                self: Sqlite,
                changes: Sequence[SessionChange] = (),
                digests: Sequence[DigestRecord] = (),
                left: list[int] = left,
            ) -> dict[str, set[str]]:
                left[0] -= bool(digests)
                if not left[0]:
                    raise KeyboardInterrupt
                return write(self, changes, digests)

            patched.setattr(Sqlite, "write", breaks)
            with pytest.raises(KeyboardInterrupt):
                copy(source, target, rules())
    report = copy(source, target, rules())

    assert (5, []) == (report.sessions, report.different)
    assert report.unchanged >= 2
    assert hashes(source) == hashes(target)


def test_what_did_not_arrive_is_told(
    tmp_path: Path, stores: dict[str, Open], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the session: here one payload is another."""
    source, target = filled(stores["file"]("one"), tmp_path / "home"), stores["file"]("two")
    read = target.blobs.read
    bad: list[str] = []

    def reads(ref: str) -> bytes:
        bad[:] = bad or [ref]
        return b'"other"' if ref == bad[0] else read(ref)

    monkeypatch.setattr(target.blobs, "read", reads)
    report = copy(source, target, rules())

    assert 1 == len(report.different)
