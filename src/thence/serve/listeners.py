"""What others write into a store that tells of its changes, heard as it happens.

A store of a team is written by many machines. One thread listens, and lets the hub publish what it
hears; whenever it begins to, also after the connection was lost, it first publishes what changed
while nobody listened. A store that does not tell (a file on this machine) is not listened to.
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
"""Seconds after which a thread that hears nothing looks whether it is to end."""
RECONNECT_DELAY_S: Final = 2.0
"""Seconds after which a connection that was lost is made again."""

_log = logging.getLogger(__name__)

ChangeSource = Callable[[float], Iterable[Collection[str]]]


@runtime_checkable
class NotifyingStore(Protocol):
    """A store that tells of its changes."""

    def listening(self) -> AbstractContextManager[ChangeSource]:
        """Listen: gives what tells, for so many seconds, which sessions changed."""
        ...

    def known(self) -> Inventory:
        """Give what is there."""
        ...


class StoreListener:
    """One thread that hears of changes."""

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
                for uids in self._heard():
                    self._publish(uids)
            except ThenceError as error:
                _log.warning("live.unheard why=%s", error.message)
                self._stop.wait(RECONNECT_DELAY_S)
            except Exception:  # noqa: BLE001 - the next change must be heard of, whatever this was
                _log.exception("live.unheard")
                self._stop.wait(RECONNECT_DELAY_S)

    def _heard(self) -> Iterator[Collection[str]]:
        assert self._store is not None  # noqa: S101 - it was started
        with self._store.listening() as heard:
            yield self._store.known().sessions.keys()
            while not self._stop.is_set():
                yield from heard(STOP_CHECK_S)
