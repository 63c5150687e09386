"""Ids and times of new events: unique among threads and processes, in order, in one shape."""

from __future__ import annotations

import os
import re
import threading
from unittest.mock import patch
from uuid import UUID

from thence.journal.ids import now_text, uuid7


def test_an_id_is_a_version_7_uuid() -> None:
    """Any library reads it as one: version, variant, lower case."""
    made = [UUID(uuid7()) for _ in range(300)]

    assert {7} == {uuid.version for uuid in made}
    assert {"specified in RFC 4122"} == {uuid.variant for uuid in made}


def test_ids_sort_by_time() -> None:
    """Of two ids made a millisecond apart the later one is greater."""
    with patch("time.time_ns", return_value=1_900_000_000_000_000_000):
        first = uuid7()
    with patch("time.time_ns", return_value=1_900_000_000_001_000_000):
        second = uuid7()

    assert [first, second] == sorted([second, first])


def test_threads_never_get_the_same_id() -> None:
    """Eight threads draw from one pool; nothing is given twice."""
    made: list[list[str]] = [[] for _ in range(8)]

    def draw(mine: list[str]) -> None:
        mine += [uuid7() for _ in range(2000)]

    threads = [threading.Thread(target=draw, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 16_000 == len({uuid for mine in made for uuid in mine})


def test_a_forked_child_draws_its_own_ids() -> None:
    """The pool is the parent's: parent and child would give the same ones from it."""
    uuid7()
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        with patch("time.time_ns", return_value=0):
            os.write(into, " ".join(uuid7() for _ in range(50)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    with patch("time.time_ns", return_value=0):
        ours = {uuid7() for _ in range(200)}
    theirs = set(os.read(out, 1 << 16).decode().split())
    os.close(out)
    os.close(into)

    assert 50 == len(theirs)
    assert set() == ours & theirs


def test_a_time_is_utc_with_milliseconds() -> None:
    """The text is right within a second, over its end, and back again."""
    moments = {
        1_900_000_000_999_999_999: "2030-03-17T17:46:40.999Z",
        1_900_000_001_000_000_000: "2030-03-17T17:46:41.000Z",
        1_900_000_000_007_000_000: "2030-03-17T17:46:40.007Z",
    }
    for moment, text in moments.items():
        with patch("time.time_ns", return_value=moment):
            assert text == now_text()

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", now_text())
