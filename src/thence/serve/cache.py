"""A cache of what was made of sessions: the least recently used is dropped first.

An entry was made of the session as the store has it now: when it changes, what was made
before is dropped. Threads may share a cache. Two that ask for one session wait for each other, so
that it is made once; two that ask for two do not.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from thence.memory.recall import ancestor_states
from thence.memory.store import SessionRow, Store

T = TypeVar("T")

_STRIPES: Final = 16  # so that two requests seldom wait for one lock


class SessionKey(NamedTuple):
    """A session as it is now."""

    uid: str
    change: int
    evicted: str | None = None
    redactor: int = 0
    ancestors: tuple[tuple[str, str | None, int], ...] = ()
    """The sessions that it continues, as they are now."""


def session_key(row: SessionRow, store: Store | None = None) -> SessionKey:
    """Return the cache key of a session; with a store, it includes the sessions it continues."""
    states = ancestor_states(store, row) if store is not None else ()
    return SessionKey(
        row.session.session_uid, row.change, row.session.evicted_at, row.redactor, states
    )


class LruCache(Generic[T]):
    """A cache of values with sizes, together at most `room`; a session has one entry."""

    def __init__(self, room: int, *, largest: bool = False) -> None:
        """Hold values up to a total size of `room`; with `largest` a single larger one too."""
        self._room = room
        self._largest = largest
        self._mutex = threading.Lock()
        self._entries: OrderedDict[SessionKey, tuple[int, T]] = OrderedDict()
        self._used = 0
        self._making = [threading.Lock() for _ in range(_STRIPES)]

    def __contains__(self, key: SessionKey) -> bool:
        with self._mutex:
            return key in self._entries

    def get(
        self, key: SessionKey, make: Callable[[], T], size: Callable[[T], int] = lambda _: 1
    ) -> T:
        """Return the value of a session; it is made if it is not in the cache."""
        with self._making[hash(key.uid) % _STRIPES]:
            with self._mutex:
                entry = self._entries.get(key)
                if entry is not None:
                    self._entries.move_to_end(key)
                    return entry[1]
            made = make()
            self._put(key, size(made), made)
            return made

    def _put(self, key: SessionKey, size: int, made: T) -> None:
        with self._mutex:
            for old in [other for other in self._entries if other.uid == key.uid]:
                self._used -= self._entries.pop(old)[0]
            if size > self._room and not self._largest:
                return
            self._entries[key] = size, made
            self._used += size
            while self._used > self._room and len(self._entries) > 1:
                _, (gone, _) = self._entries.popitem(last=False)
                self._used -= gone
