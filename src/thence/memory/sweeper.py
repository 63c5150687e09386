"""Sweeping what agents write while they write it; digests are made when they rest.

One thread hears of what changes, another sweeps it: that of the server, or of `sweep --watch`. A
sweep that fails is logged and the next one tried; nothing here keeps state that a restart would
lose.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from thence.errors import DiskFull, ThenceError, is_disk_full
from thence.memory import nudges
from thence.memory.parcels import hand_back_memory
from thence.memory.sqlite_file import DAMAGE_ERRORS, damage_error
from thence.memory.store import Filter, StoreLocked
from thence.memory.stored_paths import locate
from thence.memory.watching import DIGEST_LIMIT_S, DigestPace, changes, narrow_to

if TYPE_CHECKING:
    from thence.agents import Adapter
    from thence.memory.reports import SweepReport
    from thence.memory.store import Store

GATHER_MS: Final = 120
STEP_MS: Final = 25
"""How long changes are gathered, and how long a pause hands them out earlier."""
TICK_S: Final = 1.0
"""Seconds between two checks of agent status."""
UNSEEN_STEP_MS: Final = 200
UNSEEN_TICK_S: Final = 10.0
"""The same two while no page is open: what nobody sees may come a little later."""
RETENTION_INTERVAL_S: Final = 24 * 3600.0
"""Seconds after which storage limits are applied though nothing was written."""
EMBED_LIMIT_S: Final = 0.5
"""Seconds of making vectors after which new lines are looked for again."""
EMBED_PAUSE_S: Final = 30.0
"""Seconds before missing vectors are looked for again, once there was none."""
CORE_SHARE: Final = 0.44
"""Share of a core that sweeps take at most: after each one there is a pause, of a second at most.
A sweep that waited for a busy machine took its share slowly enough."""
LOCK_TIMEOUT_S: Final = 2.0
"""Seconds that a sweep waits for the lock of another one."""

_log = logging.getLogger(__name__)


SweepHome = Callable[..., "SweepReport"]
"""Sweeps folders of a home into its store, with all that follows a sweep.

It takes readers and folders by agent. Without `digests` these and storage limits come later; after
`digest_limit_s` seconds the rest of them does; with `only_found` sessions that the readers do not
find are not looked at. Raises `StoreLocked` when another sweep goes on for `wait_s` seconds.
"""


class SweepListener(Protocol):
    """Receives the sessions that a sweep changed."""

    def publish_changes(self, uids: Iterable[str], *, again: bool = False) -> None:
        """Publish sessions that changed, `again` when only their digests did."""

    def publish_standing(self) -> None:
        """Publish how sessions stand."""

    @property
    def has_clients(self) -> bool:
        """Whether anybody sees now what changes."""


class Sweeper:
    """Imports what changed and publishes it; makes digests when nothing changes."""

    def __init__(
        self,
        store: Store,
        home: Path,
        known: Mapping[str, Adapter],
        roots: Mapping[str, Sequence[Path]],
        *,
        sweep_home: SweepHome,
        hub: SweepListener,
    ) -> None:
        self._store = store
        self._home = home
        self._known = known
        self._roots = roots
        self._sweep_home = sweep_home
        self._hub = hub
        self._stop = threading.Event()
        self._waiting: queue.SimpleQueue[tuple[set[Path], threading.Event]] = queue.SimpleQueue()
        self._undigested: set[str] = set()
        self._embed_at = 0.0
        """When missing vectors are looked for again."""
        self._retention_at = 0.0
        """When storage limits are applied again, though nothing was written."""
        self._reported = ""
        """Why the last sweep failed."""
        self._notes: list[str] = []
        """What the last sweep that applied storage limits had to say."""
        self._heard_at = 0.0
        """When something was written last: more will follow."""
        self._watched = threading.Event()
        """What is written from now on will be told, so what was written before can be swept."""
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin, in threads."""
        self._start(self.watch)
        self._start(self.work)

    def run(self) -> None:
        """Sweep in this thread, until it is interrupted."""
        self._start(self.watch)
        try:
            self.work()
        finally:
            self._stop.set()

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name=f"thence-{target.__name__}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """End, and wait for that."""
        self._stop.set()
        self.nudge(())
        for thread in self._threads:
            thread.join()

    def nudge(self, paths: Iterable[Path]) -> threading.Event:
        """Sweep files without waiting for the system to tell of them; set when that is done."""
        done = threading.Event()
        self._waiting.put((set(paths), done))
        return done

    def watch(self) -> None:
        """Watch for new lines of logs."""
        folders = [path for paths in self._roots.values() for path in paths]
        inbox = self._home / nudges.FOLDER
        try:
            batches = changes(
                folders,
                inbox,
                gather_ms=GATHER_MS,
                step_ms=self._step_ms,
                stop=self._stop,
                store=getattr(self._store, "path", None),
            )
        finally:
            self._watched.set()
        for paths in batches:
            self._heard_at = time.monotonic()
            self.nudge(paths)

    def _step_ms(self) -> int:
        is_quiet = time.monotonic() - self._heard_at > TICK_S
        return UNSEEN_STEP_MS if is_quiet and not self._hub.has_clients else STEP_MS

    def work(self) -> None:
        """Sweep and publish, again and again."""
        self._watched.wait()
        before = self._changes()
        while not self._catch_up(before) and not self._stop.wait(TICK_S):
            before = self._publish_since(before)  # another one sweeps, maybe for the first time
        pace = DigestPace()
        while not self._stop.is_set():
            paths, done = self._take_waiting()
            try:
                rest = 0.0
                received = nudges.take(self._home)
                paths |= set(self._nudged_paths(received.nudges))
                if paths:
                    rest = self.sweep(paths)
                    pace.note_change()
                received.done()
                for event in done:
                    event.set()
                self._stop.wait(rest)
                if pace.is_due:
                    began, had_work = time.monotonic(), bool(self._undigested)
                    is_unfinished = self._digest()
                    pace.note_digests(time.monotonic() - began, is_unfinished=is_unfinished)
                    if had_work and not is_unfinished:
                        hand_back_memory()
                if pace.is_idle:
                    self._embed()
                self._hub.publish_standing()
            except Exception as error:  # noqa: BLE001 - the next change must be heard of
                self._report(error)
                self._stop.wait(TICK_S)

    def _changes(self) -> dict[str, int]:
        """Return the number of the last change of each session."""
        return {uid: entry.change for uid, entry in self._store.known().sessions.items()}

    def _publish_since(self, before: Mapping[str, int]) -> dict[str, int]:
        """Publish the sessions that changed, and return the numbers of their changes now."""
        after = self._changes()
        changed = {uid for uid, change in after.items() if before.get(uid) != change}
        self._undigested |= changed
        self._hub.publish_changes(changed)
        return after

    def _catch_up(self, before: Mapping[str, int]) -> bool:
        """Sweep what was written while nobody watched; False when another one sweeps."""
        try:
            # The first sweep of all makes digests as it reads; later ones leave them for then.
            report = self._sweep_home(
                self._known,
                self._roots,
                wait_s=LOCK_TIMEOUT_S,
                digests=not before,
                digest_limit_s=DIGEST_LIMIT_S,
            )
            self._log_notes(report)
        except StoreLocked:  # somebody sweeps already: asked again in a moment
            return False
        except Exception as error:  # noqa: BLE001 - what changes from now on must be heard of
            self._report(error)
        self._publish_since(before)
        return True

    def _report(self, error: Exception) -> None:
        """Log why a sweep failed, once in a row; only a bug is logged with its traceback."""
        path = getattr(self._store, "path", Path())
        if isinstance(error, DAMAGE_ERRORS):
            error = damage_error(path, error)
        elif is_disk_full(error):
            error = DiskFull(f"the store {path} cannot be written")
        if not isinstance(error, ThenceError):
            _log.error("live.failed", exc_info=error)
        elif error.message != self._reported:
            _log.error("New sessions are not imported: %s\nhint: %s", error.message, error.hint)
        self._reported = error.message if isinstance(error, ThenceError) else ""

    def _take_waiting(self) -> tuple[set[Path], list[threading.Event]]:
        """Return all waiting paths and events, or nothing after a while."""
        paths: set[Path] = set()
        done: list[threading.Event] = []
        with contextlib.suppress(queue.Empty):  # nothing waits: the time for other work
            item = self._waiting.get(timeout=TICK_S if self._hub.has_clients else UNSEEN_TICK_S)
            while True:
                paths |= item[0]
                done.append(item[1])
                item = self._waiting.get_nowait()
        return paths, done

    def _nudged_paths(self, received: Iterable[nudges.Nudge]) -> Iterator[Path]:
        """Yield the files that hooks name as written; only an agent's reader opens any."""
        for nudge in received:
            if nudge.transcript_path:
                yield Path(nudge.transcript_path)
                continue
            uids = (f"{nudge.agent}:{nudge.session}",)  # not every hook is told the path
            for row in self._store.sessions(Filter(uids=uids)):
                yield from (Path(locate(file)) for file in row.files)

    def sweep(self, paths: set[Path]) -> float:
        """Import what is new in files, and publish it; return the seconds to rest then."""
        began, cpu_began = time.monotonic(), time.thread_time()
        known, roots = narrow_to(self._known, self._roots, paths)
        if not roots:
            return 0.0
        is_swept = False
        try:
            # Where a file is gone, the session of it is found among all that are stored.
            are_there = all(os.path.lexists(path) for path in paths)
            self._sweep_home(
                known, roots, wait_s=LOCK_TIMEOUT_S, digests=False, only_found=are_there
            )
            is_swept = True
        except StoreLocked:
            self.nudge(paths)  # another one sweeps, and may have passed them already
        uids = {s.uid for name in roots for s in known[name].find(roots[name][0])}
        self._undigested |= uids
        self._hub.publish_changes(uids)
        seconds, cpu_s = time.monotonic() - began, time.thread_time() - cpu_began
        return min(max(cpu_s / CORE_SHARE - seconds, 0.0), TICK_S) if is_swept else TICK_S

    def _embed(self) -> None:
        """Make some of the vectors that are missing, where semantic search is on."""
        vectors = getattr(self._store, "vectors", None)
        if vectors is None or time.monotonic() < self._embed_at:
            return
        if not vectors.build(self._store, limit_s=EMBED_LIMIT_S).done:
            self._embed_at = time.monotonic() + EMBED_PAUSE_S

    def _digest(self) -> bool:
        """Digest what rests, apply storage limits; return whether some is left to digest.

        Limits by age are kept once a day, though nothing is written.
        """
        if not self._undigested and time.monotonic() < self._retention_at:
            return False
        with contextlib.suppress(StoreLocked):  # another sweep is at it; the next turn tries again
            report = self._sweep_home(self._known, {}, digest_limit_s=DIGEST_LIMIT_S)
            self._retention_at = time.monotonic() + RETENTION_INTERVAL_S
            self._log_notes(report)
            done = self._undigested
            if not report.undigested:
                self._undigested = set()
            self._hub.publish_changes(done, again=True)
            return bool(report.undigested)
        return False

    def _log_notes(self, report: SweepReport) -> None:
        """Log what storage limits removed or could not keep, each note once in a row."""
        for note in report.notes:
            if note not in self._notes:
                _log.warning("%s", note)
        self._notes = report.notes
