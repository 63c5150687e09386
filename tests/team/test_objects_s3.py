"""Payloads in an S3 bucket: the same promises over a line that fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import bucket as buckets
from tests.bucket import Bucket
from thence.memory.packs import PackDamaged, PackMissing, pack_name
from thence.memory.sqlite import Sqlite
from thence.team import objects as module
from thence.team.objects import BackendError, ObjectAbsent, Objects, shelf_at
from thence.testing.stores import CHECKS, StoreSuite

UID = "claude:17092961"
URL = "s3://team/packs"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A bucket that fails when it is told to."""
    with buckets.bucket() as server:
        for name, value in buckets.environment(server.server_port).items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture(params=["ours", pytest.param("moto", marks=pytest.mark.slow)])
def anywhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of ours, and one of another maker."""
    with buckets.bucket() if request.param == "ours" else buckets.moto() as server:
        port = server.server_port if isinstance(server, Bucket) else server
        for name, value in buckets.environment(port).items():
            monkeypatch.setenv(name, value)
        yield request.param


def test_objects_are_written_once_and_read_in_parts(anywhere: str) -> None:
    """A name that is taken stays what it is; evicting deletes all of a session, and no more."""
    assert anywhere
    objects = Objects(shelf_at(URL))
    refs = objects.append(UID, [b"one" * 50, b"two"])
    more = objects.append(UID, [b"three"], sync=False)
    objects.sync()
    other = objects.append("claude:other", [b"stays"])
    again = Objects(shelf_at(URL))
    name = refs[0].partition("#")[0]
    with pytest.raises(BackendError, match="already exists"):
        again.shelf.put(name, b"something else")

    assert [b"one" * 50, b"two", b"three"] == [again.read(ref) for ref in (*refs, *more)]
    assert 2 == len(again.shelf.sizes(f"{pack_name(UID)}/"))
    assert again.size(UID) == again.evict(UID)
    assert (0, b"stays") == (again.size(UID), again.read(other[0]))
    with pytest.raises(PackMissing):
        Objects(shelf_at(URL)).read(refs[0])


@pytest.mark.slow
def test_large_object_goes_in_parts(anywhere: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is the same; whether its name is taken is asked before."""
    assert anywhere
    monkeypatch.setattr(module, "PART_BYTES", 5 << 20)  # no server takes smaller ones
    shelf, body = shelf_at(URL), os.urandom(12 << 20)
    shelf.put("pack/large", body)
    shelf.put("pack/large", body)  # the answer to the first try was lost
    with pytest.raises(BackendError):
        shelf.put("pack/large", body[::-1])

    assert body == shelf.get("pack/large", 0, len(body))
    assert body[6 << 20 : 7 << 20] == shelf.get("pack/large", 6 << 20, 1 << 20)


def test_parts_are_sent_apart(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that is refused is sent again, and not the rest."""
    monkeypatch.setattr(module, "PART_BYTES", 5 << 20)
    shelf, body = shelf_at(URL), os.urandom(12 << 20)
    bucket.faults[:] = ["", "", "refuse", "lose"]
    shelf.put("pack/large", body)
    parts = [asked for asked in bucket.asked if "partNumber" in asked]

    assert body == bucket.objects["packs/pack/large"]
    assert 5 == len(parts)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["refuse", "lose"])
def test_line_that_fails_is_tried_again(bucket: Bucket, fault: str) -> None:
    """Of writes, reads, lists and deletes; an answer that was lost is no second object."""
    objects = Objects(shelf_at(URL))
    bucket.faults[:] = [fault]
    [ref] = objects.append(UID, [b"payload"])
    written = len(bucket.objects)
    bucket.faults[:] = [fault]
    body = Objects(shelf_at(URL)).read(ref)
    bucket.faults[:] = [fault]
    size = objects.size(UID)
    bucket.faults[:] = ["", fault]
    objects.evict(UID)

    assert (1, b"payload") == (written, body)
    assert 0 < size
    assert {} == bucket.objects


def test_bytes_that_changed_on_the_way_are_noticed(bucket: Bucket) -> None:
    """By the server, which is told a hash, and by who reads."""
    objects = Objects(shelf_at(URL), cached=0)
    [ref] = objects.append(UID, [b"payload" * 20])
    [name] = bucket.objects
    bucket.objects[name] = bucket.objects[name][:-3] + b"xyz"

    with pytest.raises(PackDamaged):
        objects.read(ref)
    assert any(asked.startswith("PUT") for asked in bucket.asked)


def test_name_that_nothing_has_is_absent(bucket: Bucket) -> None:
    """Neither an error of the line nor an empty object."""
    assert {} == bucket.objects
    with pytest.raises(ObjectAbsent):
        shelf_at(URL).get("pack/none", 0, 10)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_story(bucket: Bucket, tmp_path: Path, check: str) -> None:
    """What every store must do, its payloads in a bucket."""
    made = iter(range(100))

    def opened() -> Sqlite:
        number = next(made)
        store = Sqlite(str(tmp_path / f"{number}" / "s.db"))
        store.blobs = Objects(shelf_at(f"s3://team/{number}"))
        return store

    assert [] == StoreSuite(opened).complaints(check)
    assert bucket.asked is not None
