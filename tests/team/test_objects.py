"""Objects: refs that lead to their bytes or to an error, on any shelf, whatever is lost."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import obstore
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import MemoryStore

from tests.memory import logs
from tests.memory.stored import KEY
from tests.postgres import Cluster
from tests.rules import rules
from thence.agents import adapters
from thence.errors import BadConfig, NotAppendable
from thence.memory.gate import Gate
from thence.memory.packs import BlobStore, PackDamaged, PackMissing, pack_name
from thence.memory.sqlite import Sqlite
from thence.memory.store import Store, open_store
from thence.memory.sweep import Sweep
from thence.team import objects as module
from thence.team.objects import (
    BackendError,
    BlobBackend,
    Bucket,
    ObjectAbsent,
    ObjectRef,
    Objects,
    shelf_at,
)
from thence.team.postgres import Postgres
from thence.testing.stores import CHECKS, StoreSuite

UID = "claude:17092961"


class Loud:
    """A shelf that fails when it is told to: before it does as asked, or after."""

    parallel = True

    def __init__(self, shelf: BlobBackend, fails: Callable[[str], str]) -> None:
        self.shelf = shelf
        self._fails = fails

    def put(self, name: str, body: bytes) -> None:
        """Keep, or fail."""
        self._do("put", lambda: self.shelf.put(name, body))

    def put_all(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """Keep several, or fail."""
        self._do("put", lambda: self.shelf.put_all(objects))

    def get(self, name: str, start: int, length: int) -> bytes:
        """Return a part."""
        return self.shelf.get(name, start, length)

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the sizes."""
        return self.shelf.sizes(prefix)

    def delete(self, names: Sequence[str]) -> None:
        """Delete, or fail."""
        self._do("delete", lambda: self.shelf.delete(names))

    def _do(self, what: str, work: Callable[[], None]) -> None:
        failure = self._fails(what)
        if failure != "before":
            work()
        if failure:
            raise BackendError("the line is cut")


@pytest.fixture(params=["memory:", "file:"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Bucket:
    """A shelf in memory, and one in a folder."""
    return shelf_at(request.param if request.param == "memory:" else f"file://{tmp_path}/shelf")


@given(st.lists(st.lists(st.binary(max_size=400), max_size=12), max_size=5), st.integers(0, 2**16))
def test_every_ref_gives_back_its_payload(batches: list[list[bytes]], cached: int) -> None:
    """Whatever was appended in whatever batches is read back, by this process and the next."""
    shelf = shelf_at("memory:")
    objects: BlobStore = Objects(shelf, cached=cached)
    refs = [objects.append(UID, batch, sync=False) for batch in batches]
    objects.sync()
    again = Objects(shelf, cached=cached)

    assert batches == [[objects.read(ref) for ref in batch] for batch in refs]
    assert batches == [[again.read(ref) for ref in batch] for batch in refs]


def test_batch_is_one_object_of_plain_zstd(shelf: Bucket) -> None:
    """Named after hashes and chance alone."""
    objects = Objects(shelf)
    refs = objects.append("claude:../../etc", [b"one ", b"two "])
    [name] = shelf.sizes("")

    assert {name} == {ref.partition("#")[0] for ref in refs}
    assert name.startswith(pack_name("claude:../../etc") + "/")
    body = shelf.get(name, 0, 1000)
    assert b"one two " == zstandard.ZstdDecompressor().decompress(body)


def test_large_batch_goes_on_in_another_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no object grows without bound, and every ref leads to its own."""
    monkeypatch.setattr(module, "OBJECT_BYTES", 300_000)
    shelf = shelf_at("memory:")
    payloads = [random.Random(n).randbytes(200_000) for n in range(5)]
    refs = Objects(shelf).append(UID, payloads)

    assert 5 == len(shelf.sizes(""))
    assert payloads == [Objects(shelf).read(ref) for ref in refs]


def test_nothing_is_written_over(shelf: Bucket) -> None:
    """A name that is taken by other bytes is refused; the same bytes again are a lost answer."""
    shelf.put("a/b", b"first")
    shelf.put("a/b", b"first")

    with pytest.raises(BackendError):
        shelf.put("a/b", b"other")
    assert b"first" == shelf.get("a/b", 0, 99)


def test_eviction_deletes_all_of_a_session_and_nothing_else(shelf: Bucket) -> None:
    """Also what no row names."""
    objects = Objects(shelf)
    [ref] = objects.append(UID, [b"canary" * 100])
    objects.append(UID, [b"nobody names this"])
    [other] = objects.append("claude:other", [b"stays"])
    size = objects.size(UID)

    assert size == objects.evict(UID) > 0
    assert (0, 0) == (objects.size(UID), objects.evict(UID))
    assert b"stays" == objects.read(other)
    with pytest.raises(PackMissing):
        objects.read(ref)


def test_repack_keeps_what_rows_name_and_drops_the_rest(shelf: Bucket) -> None:
    """Both sets can be read inside; afterwards the new one alone."""
    objects = Objects(shelf)
    old = objects.append(UID, [b"one", b"secret", b"two"])
    named = [old[0], old[2]]
    with objects.repack(UID, named) as renamed:
        both = [objects.read(ref) for ref in (*named, *renamed.values())]

    assert [b"one", b"two", b"one", b"two"] == both
    assert [b"one", b"two"] == [objects.read(renamed[ref]) for ref in named]
    assert {ObjectRef.parse(ref).name for ref in renamed.values()} == set(shelf.sizes(""))
    with pytest.raises(PackMissing):
        Objects(shelf).read(old[1])


def test_repack_that_fails_leaves_what_rows_name(shelf: Bucket) -> None:
    """The rows may be committed or not: nothing is deleted, and the next one clears up."""
    objects = Objects(shelf)
    refs = objects.append(UID, [b"one", b"two"])

    with pytest.raises(RuntimeError), objects.repack(UID, refs):
        raise RuntimeError
    assert [b"one", b"two"] == [objects.read(ref) for ref in refs]
    with objects.repack(UID, refs) as renamed:
        pass
    assert 1 == len(shelf.sizes(""))
    assert [b"one", b"two"] == [objects.read(renamed[ref]) for ref in refs]


def test_ref_of_another_session_is_not_repacked() -> None:
    """It would be deleted with the old ones."""
    objects = Objects(shelf_at("memory:"))
    refs = objects.append("claude:other", [b"theirs"])

    with pytest.raises(ValueError, match="another session"), objects.repack(UID, refs):
        pass


@pytest.mark.parametrize(
    "ref", ["", "a#1", "../../etc/passwd#0,1,0,1,00000000", "a" * 20 + "-0#0,1,0,1,00000000"]
)
def test_what_is_no_ref_is_refused(ref: str) -> None:
    """Nothing else is ever asked of a shelf, a ref to a pack neither."""
    with pytest.raises(PackDamaged):
        Objects(shelf_at("memory:")).read(ref)


def test_damage_is_told_and_never_read() -> None:
    """Whichever byte of the object changed, and where a ref leads beside its payload."""
    store = MemoryStore()
    objects = Objects(Bucket(store), cached=0)
    [ref] = objects.append(UID, [b"some payload " * 20])
    where = ObjectRef.parse(ref)
    body = bytes(obstore.get(store, where.name).bytes())
    for at in range(len(body)):
        broken = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        obstore.put(store, where.name, broken)
        try:
            assert b"some payload " * 20 == objects.read(ref)
        except PackDamaged:
            continue
    obstore.put(store, where.name, body[:-1])
    with pytest.raises(PackDamaged, match="shorter"):
        objects.read(ref)
    obstore.put(store, where.name, body)
    with pytest.raises(PackDamaged, match="other bytes"):
        objects.read(str(where._replace(start=1, size=where.size - 1)))


@pytest.mark.parametrize("when", ["before", "after"])
def test_upload_that_fails_is_told_by_sync(when: str) -> None:
    """So that no row names it; and what comes after is not held responsible."""
    numbers = itertools.count()
    shelf = shelf_at("memory:")
    objects = Objects(Loud(shelf, lambda _: when if next(numbers) == 1 else ""))
    refs = [objects.append(UID, [bytes([n])], sync=False) for n in range(3)]

    with pytest.raises(NotAppendable, match="the line is cut"):
        objects.sync()
    objects.sync()
    assert [b"\0", b"\2"] == [objects.read(refs[n][0]) for n in (0, 2)]


def test_eviction_that_was_cut_short_is_done_by_the_next() -> None:
    """What was deleted before does not matter."""
    failures = iter(["after", ""])
    shelf = shelf_at("memory:")
    objects = Objects(Loud(shelf, lambda what: next(failures) if what == "delete" else ""))
    objects.append(UID, [b"one"])

    with pytest.raises(NotAppendable):
        objects.evict(UID)
    assert 0 == objects.evict(UID)
    shelf.delete(["never/there"])


def test_many_threads_share_a_shelf(shelf: Bucket) -> None:
    """Each has its own objects and finds everybody's, however often they compress at once."""
    objects = Objects(shelf)
    bodies = {number: random.Random(number).randbytes(60_000).hex().encode() for number in range(8)}
    refs: dict[int, list[str]] = {}

    def work(number: int) -> None:
        refs[number] = [
            ref for _ in range(6) for ref in objects.append(f"claude:{number}", [bodies[number]])
        ]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {n: [bodies[n]] * 6 for n in range(8)} == {
        n: [objects.read(ref) for ref in blob_refs] for n, blob_refs in refs.items()
    }
    objects.close()


def test_shelf_says_what_is_absent(shelf: Bucket) -> None:
    """Which is another thing than a shelf that cannot be reached."""
    with pytest.raises(ObjectAbsent):
        shelf.get("not/there", 0, 1)


def test_unknown_address_is_refused() -> None:
    """With the ones that there are."""
    with pytest.raises(BadConfig, match="no object store found") as caught:
        shelf_at("gopher://hole")

    assert "s3://" in (caught.value.hint or "")


@pytest.fixture
def suite(tmp_path: Path) -> StoreSuite:
    """The story of all stores, payloads in a folder of objects."""
    numbers = itertools.count()

    def opened() -> Sqlite:
        place = tmp_path / f"{next(numbers)}"
        store = Sqlite(str(place / "s.db"))
        store.blobs = Objects(shelf_at(f"file://{place}/objects"))
        return store

    def files(store: object) -> list[Path]:
        return [path for path in tmp_path.rglob("*") if path.is_file()]

    return StoreSuite(opened, files=files)


@pytest.mark.few(4)
@pytest.mark.parametrize("check", CHECKS)
def test_story(suite: StoreSuite, check: str) -> None:
    """What every store must do, it does with objects too."""
    assert [] == suite.complaints(check)


def test_objects_named_without_a_tenant_go_with_their_own_tenant_alone(
    tmp_path: Path, postgres: Cluster
) -> None:
    """Older programs named them so; they are read and repacked, and go with their own tenant."""
    url = f"file://{tmp_path}/shelf"
    home = tmp_path / "home"
    logs.write(home, logs.script(1), logs.script(2))
    uids = [f"claude:{logs.name(number)}" for number in (1, 2)]
    addresses = [postgres.url(tenant=f"{name} {tmp_path}") for name in ("one", "two")]
    for address in addresses:
        store = Postgres(address)
        store.blobs = Objects(shelf_at(url))
        with store.sweeping():
            Sweep(store, adapters(), Gate(key=KEY), rules()).run({"claude": [home]})
        store.close()
    shelf = shelf_at(url)
    before = set(shelf.sizes(""))
    first, second = (open_store(f"{address}#objects={url}") for address in addresses)
    read = [_payloads(store, uid) for store in (first, second) for uid in uids]
    first.remove(uids[:1], why={}, forget=True)
    after_forget = set(shelf.sizes(""))
    stored = first.load_session(uids[1])
    assert stored is not None
    refs = [block.ref for fact in stored.facts for block in fact.blocks if block.ref]
    with first.blobs.repack(uids[1], refs) as renamed:
        pass
    others = [_payloads(second, uid) for uid in uids]
    sizes = [second.blobs.size(uid) > 0 for uid in uids]
    first.close()
    second.close()

    assert 4 == len(before)
    assert read[:2] == read[2:] == others
    assert 3 == len(after_forget & before)
    assert 2 == len(set(shelf.sizes("")) & before)
    assert {ref.partition("/")[0] for ref in renamed} == {pack_name(uids[1])}
    assert pack_name(uids[1]) not in {ref.partition("/")[0] for ref in renamed.values()}
    assert [True, True] == sizes


def _payloads(store: Store, uid: str) -> list[bytes]:
    stored = store.load_session(uid)
    assert stored is not None
    return [store.blobs.read(b.ref) for fact in stored.facts for b in fact.blocks if b.ref]
