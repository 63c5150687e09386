"""The cache: what was made stays at hand, bounded, made once, and never stale."""

from __future__ import annotations

import threading

from thence.serve.cache import LruCache, SessionKey


def test_what_was_used_longest_ago_goes_first() -> None:
    """Together things take no more than the room; one that is too large stays never."""
    cache: LruCache[str] = LruCache(30)
    for name in "abac":
        cache.get(SessionKey(name, 1), lambda: "made", lambda _: 12)
    cache.get(SessionKey("large", 1), lambda: "made", lambda _: 31)

    assert [True, False, True, False] == [
        SessionKey(n, 1) in cache for n in ("a", "b", "c", "large")
    ]


def test_the_largest_may_stay_alone() -> None:
    """Where what is shown has to be at hand, whatever it takes; the next one takes its place."""
    cache: LruCache[str] = LruCache(30, largest=True)
    cached = []
    for name, size in (("a", 12), ("large", 31), ("b", 12)):
        cache.get(SessionKey(name, 1), lambda: "made", lambda _, size=size: size)  # type: ignore[misc]
        cached.append([SessionKey(n, 1) in cache for n in ("a", "large", "b")])

    assert [[True, False, False], [False, True, False], [False, False, True]] == cached


def test_what_was_made_of_an_older_state_is_dropped() -> None:
    """A session that changed or was evicted is another thing; others stay."""
    cache: LruCache[int] = LruCache(9)
    keys = [SessionKey("a", 1), SessionKey("b", 1), SessionKey("a", 2), SessionKey("a", 2, "now")]

    assert [0, 1, 2, 3] == [cache.get(key, lambda at=at: at) for at, key in enumerate(keys)]  # type: ignore[misc]
    assert [False, True, False, True] == [key in cache for key in keys]
    assert 1 == cache.get(SessionKey("b", 1), lambda: 9)


def test_nothing_is_a_thing_as_well() -> None:
    """That there is none is not asked again."""
    cache: LruCache[None] = LruCache(9)
    asked: list[int] = []
    for _ in range(2):
        cache.get(SessionKey("a", 1), lambda: asked.append(1))

    assert [1] == asked


def test_who_asks_while_it_is_made_waits_for_it() -> None:
    """Eight threads that ask for one session have it made once."""
    cache: LruCache[None] = LruCache(99)
    times: list[int] = []
    gate = threading.Barrier(8)

    def ask() -> None:
        gate.wait()
        cache.get(SessionKey("a", 1), lambda: times.append(1))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [1] == times
