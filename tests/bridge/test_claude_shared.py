"""The store of the Claude Agent SDK for many machines: in Postgres, and on any shelf of objects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.bridge.test_claude_agent_sdk import KEY, SESSION, STORY, SUB, entry
from tests.postgres import Cluster
from thence.bridge.claude_shared import SharedSessionStore
from thence.errors import NotAppendable, ThenceError

ODD = {
    "type": "user",
    "uuid": "odd\0",
    "text": "\ud800 \0 é",
    "n": 10**30,
    "deep": [[{}], 1.5, None],
}


@pytest.fixture(params=["objects", pytest.param("postgres", marks=pytest.mark.slow)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place: a folder of objects, or a database."""
    if request.param == "objects":
        return (tmp_path / "shelf").as_uri()
    cluster: Cluster = request.getfixturevalue("postgres")
    return cluster.url(cluster.database())


Opened = Callable[[str], SharedSessionStore]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Opens stores, and closes them in the end."""
    stores: list[SharedSessionStore] = []

    def opened(address: str) -> SharedSessionStore:
        stores.append(SharedSessionStore(address))
        return stores[-1]

    yield opened
    for store in stores:
        asyncio.run(store.aclose())


@pytest.mark.slow
def test_the_owners_kit_passes(
    address: str, opened: Opened, sdk: Callable[[str], ModuleType]
) -> None:
    """All fourteen contracts, each in a project of nobody else: the kit wants empty stores."""
    kit = sdk("claude_agent_sdk.testing")
    made = iter(range(1000))

    def fresh() -> SharedSessionStore:
        if address.startswith("file:"):
            return opened(f"{address}/{next(made)}")
        return opened(f"{address}&tenant=t{next(made)}")

    asyncio.run(kit.run_session_store_conformance(fresh))


def test_what_one_machine_appends_another_loads_equal(address: str, opened: Opened) -> None:
    """Odd values included, a tool's long result too."""

    async def main() -> Any:
        here, there = opened(address), opened(address)
        await here.append(KEY, STORY)
        await here.append(KEY, [ODD])
        await here.append(SUB, [entry("s")])
        listing = await there.load(KEY), await there.list_subkeys(KEY)
        await here.aclose()
        return *listing, await here.load(SUB)

    assert ([*STORY, ODD], [SUB["subpath"]], [entry("s")]) == asyncio.run(main())


def test_a_uuid_counts_once_whoever_appends_it(address: str, opened: Opened) -> None:
    """Entries without one are never left out, and each writer finds the other's."""

    async def main() -> Any:
        here, there = opened(address), opened(address)
        for store in (here, there, here):
            await store.append(KEY, [entry("u1"), entry(None), entry("u1")])
            await store.append(KEY, [])
        return await there.load(KEY)

    assert [entry("u1"), entry(None), entry(None), entry(None)] == asyncio.run(main())


def test_batches_of_many_writers_stay_whole_and_none_is_lost(address: str, opened: Opened) -> None:
    """Four stores at once, each in a thread of its own."""

    def write(writer: int) -> None:
        async def main() -> None:
            store = opened(address)
            for number in range(10):
                names = [f"{writer}-{number}-{part}" for part in "abc"]
                await store.append(KEY, [entry(name) for name in names])
            await store.aclose()

        asyncio.run(main())

    asyncio.run(opened(address).load(KEY))  # the tables are there before they begin
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    loaded = asyncio.run(opened(address).load(KEY)) or []
    names = [item["uuid"] for item in loaded]
    batches = [names[at : at + 3] for at in range(0, len(names), 3)]

    assert 120 == len(names) == len(set(names))
    assert all(
        [name[:-1] + part for part in "abc"] == batch for batch in batches for name in batch[:1]
    )
    for writer in range(4):
        own = [name for name in names if name.startswith(f"{writer}-") and name.endswith("a")]
        assert [f"{writer}-{number}-a" for number in range(10)] == own


def test_deleting_is_a_tombstone_for_everybody(address: str, opened: Opened) -> None:
    """What was deleted may come again; its subagents are gone with it."""

    async def main() -> Any:
        here, there = opened(address), opened(address)
        await here.append(KEY, [entry("u1")])
        await here.append(SUB, [entry("s1")])
        await there.list_sessions(KEY["project_key"])
        await here.delete(KEY)
        gone = await there.load(KEY), await there.list_subkeys(KEY)
        nothing = await there.list_sessions(KEY["project_key"])
        await there.append(KEY, [entry("u1")])
        listed = await here.list_sessions(KEY["project_key"])
        return gone, nothing, [row["session_id"] for row in listed], await here.load(KEY)

    assert ((None, []), [], [SESSION], [entry("u1")]) == asyncio.run(main())


def test_a_damaged_object_costs_itself(tmp_path: Path, opened: Opened) -> None:
    """The batches before and behind it come back, and the next one is appended."""
    shelf = tmp_path / "shelf"

    async def main() -> Any:
        here = opened(shelf.as_uri())
        for number in range(3):
            await here.append(KEY, [entry(f"u{number}")])
        second = next(path for path in shelf.rglob("*1") if path.name == f"{1:032x}")
        second.write_bytes(b"not ours")
        (second.parent / "stray").write_bytes(b"")
        there = opened(shelf.as_uri())
        await there.append(KEY, [entry("u3")])
        return await there.load(KEY), await here.load(KEY)

    intact = [entry("u0"), entry("u2"), entry("u3")]
    assert (intact, intact) == asyncio.run(main())


def test_no_name_comes_from_a_key(tmp_path: Path, opened: Opened) -> None:
    """However hostile a key is, files are named by hashes and numbers."""
    shelf = tmp_path / "shelf"
    key = {"project_key": "../../p", "session_id": "/etc/passwd", "subpath": "a/../\0"}

    async def main() -> Any:
        store = opened(shelf.as_uri())
        await store.append(key, [entry("u")])
        return await store.load(key)

    assert [entry("u")] == asyncio.run(main())
    names = "".join(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert set() == set(names) - set("0123456789abcdef")


def test_a_database_that_is_gone_is_told(postgres: Cluster, opened: Opened) -> None:
    """As an error of ours, and the store can be used when it is back."""
    database = postgres.database()

    async def main() -> Any:
        store = opened(postgres.url(database))
        await store.append(KEY, [entry("u1")])
        postgres.sql(f"ALTER DATABASE {database} WITH ALLOW_CONNECTIONS false")
        postgres.sql(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname='{database}'"
        )
        with pytest.raises(ThenceError) as caught:
            await store.append(KEY, [entry("u2")])
        postgres.sql(f"ALTER DATABASE {database} WITH ALLOW_CONNECTIONS true")
        await store.append(KEY, [entry("u2")])
        return caught.value.hint, await store.load(KEY)

    hint, loaded = asyncio.run(main())

    assert hint
    assert [entry("u1"), entry("u2")] == loaded


def test_a_shelf_that_refuses_is_told(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is called kept that is not."""
    from thence.team.objects import BackendError, Bucket

    store = opened((tmp_path / "shelf").as_uri())

    def refuse(*_: object) -> None:
        raise BackendError("no room")

    async def main() -> Any:
        await store.append(KEY, [entry("u1")])
        with monkeypatch.context() as patched:
            patched.setattr(Bucket, "put", refuse)
            with pytest.raises(NotAppendable, match="no room"):
                await store.append(KEY, [entry("u2")])
        return await store.load(KEY)

    assert [entry("u1")] == asyncio.run(main())
