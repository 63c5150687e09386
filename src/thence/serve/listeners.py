"""Listens to a store that notifies of changes, and publishes them as they happen.

A store of a team is written by many machines. One thread listens and lets the hub publish what
changed. When it starts, and after a lost connection, it first publishes what changed while nobody
listened. A store that does not notify (a file on this machine) needs no listener.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from thence.errors import ThenceError

if TYPE_CHECKING:
    from thence.memory.store import Inventory

STOP_CHECK_S: Final = 0.5
"""How long a thread waits for changes before it checks whether to stop, in seconds."""
RECONNECT_DELAY_S: Final = 2.0
"""How long to wait before a lost connection is made again, in seconds."""

_log = logging.getLogger(__name__)

ChangeSource = Callable[[float], Iterable[Collection[str]]]


@runtime_checkable
class NotifyingStore(Protocol):
    """A store that notifies of its changes."""

    def listening(self) -> AbstractContextManager[ChangeSource]:
        """Listen: the function returned waits some seconds and yields the uids that changed."""

    def known(self) -> Inventory:
        """Return the sessions of the store and their changes."""


class StoreListener:
    """A thread that waits for changes of a store."""

    def __init__(self, store: object, publish: Callable[[Iterable[str]], Any]) -> None:
        """Get ready; `publish` leaves out by itself what was told before."""
        self._store = store if isinstance(store, NotifyingStore) else None
        self._publish = publish
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="thence-listen", daemon=True)

    def start(self) -> None:
        """Begin, if there is anything to listen to."""
        if self._store is not None:
            self._thread.start()

    def stop(self) -> None:
        """End, and wait for that."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                for uids in self._changes():
                    self._publish(uids)
            except ThenceError as error:
                _log.warning("live.unheard why=%s", error.message)
                self._stop.wait(RECONNECT_DELAY_S)
            except Exception:  # noqa: BLE001 - the next change must be heard of, whatever this was
                _log.exception("live.unheard")
                self._stop.wait(RECONNECT_DELAY_S)

    def _changes(self) -> Iterator[Collection[str]]:
        assert self._store is not None  # noqa: S101 - it was started
        with self._store.listening() as wait_for_changes:
            yield self._store.known().sessions.keys()
            while not self._stop.is_set():
                yield from wait_for_changes(STOP_CHECK_S)
