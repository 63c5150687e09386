"""A sweep of this home with all that follows it, however it was begun.

`thence sweep`, `sweep --watch`, the server and the hooks' sweeps all do the same: storage limits,
exports that let go of what the store let go of, notes of what was lost, the hub, and the briefs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from thence.cli import wiring

if TYPE_CHECKING:
    from thence.agents import Adapter
    from thence.memory.reports import Progress, SweepReport
    from thence.memory.store import Store


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
