"""While the server runs, what agents write is swept: at once, and digested when it rests.

One thread hears of what changes, another sweeps it and tells the hub. A sweep that fails is logged
and the next one tried; nothing here keeps state that a restart would lose.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from thence.errors import DiskFull, ThenceError, is_disk_full
from thence.memory import nudges
from thence.memory.fields import locate
from thence.memory.sqlite import DAMAGE_ERRORS, damage_error
from thence.memory.store import Filter, StoreLocked
from thence.memory.watching import changes, narrow_to

if TYPE_CHECKING:
    from thence.serve.desk import Desk

GATHER_MS: Final = 120
STEP_MS: Final = 40
"""How long changes are gathered, and how long a pause hands them out earlier."""
TICK: Final = 1.0
"""Seconds between two looks at what agents say of themselves."""
UNSEEN_STEP_MS: Final = 500
UNSEEN_TICK: Final = 3.0
"""The same two while no page is open: what nobody sees may come a little later."""
QUIET: Final = 5.0
"""Seconds without a change after which what was swept is digested."""
LATEST: Final = 60.0
"""Seconds after which that is done though there is no quiet."""
DIGEST_LIMIT_S: Final = 0.3
"""Seconds of digesting after which new lines are looked for again."""
EMBED_LIMIT_S: Final = 0.5
"""Seconds of making vectors after which new lines are looked for again."""
SHARE: Final = 9.0
"""How much longer than digesting took the rest of it waits, while lines are being written."""
REST: Final = 0.5
"""How long the sweeps rest, for each second that one took; at most a second."""
PATIENCE: Final = 2.0
"""Seconds that a sweep waits for another one to end."""

_log = logging.getLogger(__name__)


class Told(Protocol):
    """Who is told of what was swept."""

    def changed(self, uids: Iterable[str], *, again: bool = False) -> None:
        """Hear of sessions that went on, `again` when only their digests did."""

    def stand(self) -> None:
        """Look how sessions stand."""

    @property
    def has_clients(self) -> bool:
        """Whether anybody sees now what changes."""
        ...


class Sweeper:
    """Sweeps what changed, and tells the hub; digests it when it rests."""

    def __init__(self, desk: Desk, hub: Told) -> None:
        self._desk = desk
        self._hub = hub
        self._stop = threading.Event()
        self._told: queue.SimpleQueue[tuple[set[Path], threading.Event]] = queue.SimpleQueue()
        self._undigested: set[str] = set()
        self._reported = ""
        """Why the last sweep failed."""
        self._watched = threading.Event()
        """What is written from now on will be told, so what was written before can be swept."""
        self._threads = [
            threading.Thread(target=run, name=f"thence-{run.__name__}", daemon=True)
            for run in (self.watch, self.work)
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End, and wait for that."""
        self._stop.set()
        self.nudge(())
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def nudge(self, paths: Iterable[Path]) -> threading.Event:
        """Sweep files without waiting for the system to tell of them; set when that is done."""
        done = threading.Event()
        self._told.put((set(paths), done))
        return done

    def watch(self) -> None:
        """Hear of what is written."""
        folders = [path for paths in self._desk.roots.values() for path in paths]
        inbox = self._desk.home / nudges.FOLDER
        try:
            told = changes(
                folders, inbox, gather_ms=GATHER_MS, step_ms=self._step_ms, stop=self._stop
            )
        finally:
            self._watched.set()
        for paths in told:
            self.nudge(paths)

    def _step_ms(self) -> int:
        return STEP_MS if self._hub.has_clients else UNSEEN_STEP_MS

    def work(self) -> None:
        """Sweep and publish, again and again."""
        self._watched.wait()
        while not self._caught_up() and not self._stop.wait(TICK):
            pass  # another one sweeps, maybe for the first time
        last = digested = time.monotonic()
        while not self._stop.is_set():
            paths, done = self._taken()
            try:
                rest = 0.0
                heard = nudges.take(self._desk.home)
                paths |= set(self._named(heard.nudges))
                if paths:
                    rest = self.sweep(paths)
                    last = time.monotonic()
                heard.done()
                for one in done:
                    one.set()
                self._stop.wait(rest)
                now = time.monotonic()
                if now - last > QUIET or now - digested > LATEST:
                    digested = now
                    if self._digest():  # the next part soon, and new lines before it
                        digested += SHARE * (time.monotonic() - now) - LATEST
                if now - last > QUIET:
                    self._embed()
                self._hub.stand()
            except Exception as error:  # noqa: BLE001 - the next change must be heard of
                self._report(error)
                self._stop.wait(TICK)

    def _caught_up(self) -> bool:
        """Sweep what was written while nobody watched; False when another one sweeps."""
        assert self._desk.sweeps is not None  # noqa: S101 - it was started
        before = {uid: one.change for uid, one in self._desk.store.known().sessions.items()}
        try:
            with self._desk.store.sweeping(PATIENCE):
                # The first sweep of all makes digests as it reads; later ones leave them for then.
                self._desk.sweeps(self._desk.known, digests=not before).run(self._desk.roots)
        except StoreLocked:
            return False
        except Exception as error:  # noqa: BLE001 - what changes from now on must be heard of
            self._report(error)
        after = self._desk.store.known().sessions
        changed = {uid for uid, one in after.items() if before.get(uid) != one.change}
        self._undigested |= changed
        self._hub.changed(changed)
        return True

    def _report(self, error: Exception) -> None:
        """Say why a sweep failed, once in a row; only a bug needs the places in the code."""
        if isinstance(error, DAMAGE_ERRORS):
            error = damage_error(getattr(self._desk.store, "path", Path()), error)
        elif is_disk_full(error):
            error = DiskFull(f"the store {getattr(self._desk.store, 'path', '')} cannot be written")
        if not isinstance(error, ThenceError):
            _log.error("live.failed", exc_info=error)
        elif error.message != self._reported:
            _log.error("New sessions are not imported: %s\nhint: %s", error.message, error.hint)
        self._reported = error.message if isinstance(error, ThenceError) else ""

    def _taken(self) -> tuple[set[Path], list[threading.Event]]:
        """Take all that waits, or nothing after a while."""
        paths: set[Path] = set()
        done: list[threading.Event] = []
        with contextlib.suppress(queue.Empty):
            told = self._told.get(timeout=TICK if self._hub.has_clients else UNSEEN_TICK)
            while True:
                paths |= told[0]
                done.append(told[1])
                told = self._told.get_nowait()
        return paths, done

    def _named(self, heard: Iterable[nudges.Nudge]) -> Iterator[Path]:
        """Give the files that hooks say were written; only an agent's reader opens any."""
        for one in heard:
            if one.transcript_path:
                yield Path(one.transcript_path)
                continue
            uids = (f"{one.agent}:{one.session}",)  # not every hook is told the path
            for row in self._desk.store.sessions(Filter(uids=uids)):
                yield from (Path(locate(file)) for file in row.files)

    def sweep(self, paths: set[Path]) -> float:
        """Keep what is new in files, and publish it; the seconds to rest then."""
        assert self._desk.sweeps is not None  # noqa: S101 - it was started
        known, roots = narrow_to(self._desk.known, self._desk.roots, paths)
        if not roots:
            return 0.0
        rest = TICK
        try:
            with self._desk.store.sweeping(PATIENCE):
                report = self._desk.sweeps(known, digests=False).run(roots)
            rest = min(REST * report.seconds, TICK)
        except StoreLocked:
            self.nudge(paths)  # another one sweeps, and may have passed them already
        uids = {s.uid for name in roots for s in known[name].find(roots[name][0])}
        self._undigested |= uids
        self._hub.changed(uids)
        return rest

    def _embed(self) -> None:
        """Make some of the vectors that are missing, where semantic search is on."""
        vectors = getattr(self._desk.store, "vectors", None)
        if vectors is not None:
            vectors.build(self._desk.store, limit_s=EMBED_LIMIT_S)

    def _digest(self) -> bool:
        """Digest what has come to rest; return whether some of it is left to digest."""
        assert self._desk.sweeps is not None  # noqa: S101 - it was started
        if not self._undigested:
            return False
        with contextlib.suppress(StoreLocked):
            sweep = self._desk.sweeps(self._desk.known, digests=True)
            with self._desk.store.sweeping():
                report = sweep.run({}, DIGEST_LIMIT_S)
            done = self._undigested
            if not report.undigested:
                self._undigested = set()
            self._hub.changed(done, again=True)
            return bool(report.undigested)
        return False
