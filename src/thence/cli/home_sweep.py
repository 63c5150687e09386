"""A sweep of this home with all that follows it, however it was begun.

`thence sweep`, `sweep --watch`, the server and the hooks' sweeps all do the same: storage limits,
exports that let go of what the store let go of, notes of what was lost, the hub, and the briefs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from thence.cli import processes, wiring
from thence.memory.store import Filter, Store, StoreLocked
from thence.memory.unread import remember_unread

if TYPE_CHECKING:
    import subprocess

    from thence.agents import Adapter
    from thence.memory.reports import Progress, SweepReport

MIN_FIRST_SWEEP_BYTES: Final = 8 << 20
"""Bytes of logs from which a first sweep is begun where other processes can read them."""


def is_large_first(
    store: Store, known: Mapping[str, Adapter], roots: Mapping[str, Sequence[Path]]
) -> bool:
    """Return whether nothing is stored yet and there is much to read."""
    from thence.agents.files import measure_source

    if next(iter(store.sessions(Filter(limit=1))), None) is not None:
        return False
    left = MIN_FIRST_SWEEP_BYTES
    for name, folders in roots.items():
        for source in (source for folder in folders for source in known[name].find(folder)):
            left -= measure_source(source)[0]
            if left < 0:
                return True
    return False


class HomeSweep:
    """Sweeps folders of this home into its store."""

    def __init__(
        self, store: Store, progress: Callable[[Progress], None] = lambda _progress: None
    ) -> None:
        self._store = store
        self._progress = progress
        self.report: SweepReport | None = None
        """Of the sweep that goes on, or of the last one."""
        self.empty_roots: list[tuple[str, Path]] = []
        """Agents and folders of theirs in which the last sweep found no session."""

    def __call__(
        self,
        known: Mapping[str, Adapter],
        roots: Mapping[str, Sequence[Path]],
        *,
        wait_s: float = 0.0,
        digests: bool = True,
        digest_limit_s: float | None = None,
        only_found: bool = False,
    ) -> SweepReport:
        """Sweep, and return what was done.

        Without `digests` these and the storage limits are left to a later sweep; with `only_found`
        so is what concerns sessions that the readers do not find. Raises `StoreLocked` when
        another sweep goes on for `wait_s` seconds.
        """
        store = self._store
        with store.sweeping(wait_s):
            limits = wiring.policy() if digests else None
            sweep = wiring.sweep_of(
                store, known, evicts=limits, progress=self._progress, digests=digests
            )
            self.report = sweep.report
            report = sweep.run(roots, digest_limit_s, only_found=only_found)
            self.empty_roots = sweep.empty_roots
            remember_unread(wiring.home(), sweep.report.not_read, sweep.looked)
            if report.sessions_new:
                wiring.refresh_folders(store)
            if report.evicted or sweep.redacted_again:
                wiring.purge_exports(store, sweep.redacted_again)
        if report.losses or sweep.digested:
            from thence.cli.notes import post_digests, write_losses

            report.notes += write_losses(report.losses)
            if problem := post_digests(store, sweep.digested):
                report.notes.append(problem)
        if sweep.digested:
            wiring.refresh_briefs(store, sweep.digested)
        return report


class ServerSweep(HomeSweep):
    """Sweeps for a server, whose first sweep runs in a process of its own.

    A first sweep may read years of logs. The server has threads, so it could not fork readers for
    them: it would take twice as long, make pages wait, and hold its memory ever after.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._first: subprocess.Popen[bytes] | None = None
        self._is_begun = False
        self._first_progress: Progress | None = None

    def __call__(
        self, known: Mapping[str, Adapter], roots: Mapping[str, Sequence[Path]], **options: Any
    ) -> SweepReport:
        """Sweep, and return what was done; `StoreLocked` while the first sweep goes on."""
        if not self._is_begun:
            self._is_begun = True
            if is_large_first(self._store, known, roots):
                import subprocess

                # What it fails at, the next sweep of this process meets as well, and reports.
                self._first = subprocess.Popen(  # noqa: S603 - our own command
                    processes.thence("sweep", "--progress", "json"),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                )
                threading.Thread(target=self._follow, args=(self._first,), daemon=True).start()
        if self._first is not None and self._first.poll() is None:
            raise StoreLocked("the first sweep goes on", hint="it runs in a process of its own")
        return super().__call__(known, roots, **options)

    def progress(self) -> Progress | None:
        """Return how far the first sweep has read, or None while none reads."""
        return self._first_progress

    def _follow(self, first: subprocess.Popen[bytes]) -> None:
        """Read the progress of the first sweep, until it ends."""
        from thence.memory.reports import Progress

        with first.stderr or nullcontext(()) as lines:
            for line in lines:
                # A line that is no progress is a warning: the next sweep has it, too.
                with suppress(msgspec.DecodeError):
                    progress = msgspec.json.decode(line, type=Progress)
                    self._first_progress = progress if progress.stage == "read" else None
        self._first_progress = None

    def stop(self) -> None:
        """End the first sweep if it goes on; the next one continues it."""
        if self._first is not None:
            self._first.terminate()
            self._first.wait()
