"""Progress of a sweep on a terminal: two lines that rewrite themselves, ten times a second.

Nothing of it stays: when the sweep is over, the lines are wiped and the answer is printed in
their place.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TextIO

import click

from thence.cli.screen import unicode
from thence.cli.terminal import cut, format_duration, several, size

if TYPE_CHECKING:
    from thence.analytics.parquet import Progress as ExportProgress
    from thence.memory.sweep import Progress

REDRAW_EVERY_S: Final = 0.1
_UP = "\x1b[1A"
_WIPE = "\r\x1b[2K"
_NAMES = {"find": "looking", "read": "sweeping", "digest": "digesting", "evict": "evicting"}
_NAMES |= {"push": "pushing", "reprocess": "redoing", "embed": "embedding"}
_MEASURED = {"read": "read", "push": "done"}


class ProgressBar:
    """One sweep's progress, as lines on a terminal."""

    def __init__(
        self, stream: TextIO, room: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._room = room
        self._clock = clock
        self._began = clock()
        self._last = float("-inf")
        self._shown = False

    def __call__(self, progress: Progress) -> None:
        """Show how far the sweep is, unless that was just done."""
        now = self._clock()
        if progress.stage == "done" or now - self._last < REDRAW_EVERY_S:
            return
        self._last = now
        room = self._room() - 1  # a full line would wrap on some terminals
        self.wipe()
        self._stream.write("\n".join(lines(progress, room, now - self._began)))
        self._stream.flush()
        self._shown = True

    def wipe(self) -> None:
        """Take the lines away."""
        if self._shown:
            self._stream.write(f"{_WIPE}{_UP}{_WIPE}")
            self._stream.flush()
            self._shown = False


def lines(progress: Progress, room: int, passed: float) -> list[str]:
    """Return the two lines of one moment."""
    name = f"{_NAMES.get(progress.stage, progress.stage):<10}"
    if progress.stage == "find":
        return [cut(f"{name}{several(progress.all_sources, 'session')} found", room), ""]
    if progress.stage in _MEASURED:
        done, of = progress.bytes, progress.all_bytes
    else:
        done, of = progress.sources, progress.all_sources
    share = min(done / of, 1.0) if of else 0.0
    right = f"{int(100 * share)} %"
    if progress.stage in _MEASURED:
        right += f"  {size(done)} of {size(of)}"
        if passed > 0.5 and done:
            left = (of - done) / (done / passed)
            right += f"  {size(round(done / passed))}/s  {format_duration(round(left) * 1000)} left"
    bar = _draw(share, min(max(room - len(name) - len(right) - 2, 0), 60))
    counts = f"{' ' * 10}{progress.sources:,} of {several(progress.all_sources, 'session')}"
    counts += f" {_MEASURED.get(progress.stage, 'read')}, {progress.sessions:,}"
    counts += " sent" if progress.stage == "push" else " imported"
    return [cut(f"{name}{bar}  {right}", room), cut(counts, room)]


def _draw(share: float, room: int) -> str:
    if room < 4:
        return ""
    full = round(share * room)
    if not unicode():
        return "=" * full + "-" * (room - full)
    return "━" * (full - 1) + ("╸" if 0 < full < room else "━" * bool(full)) + "─" * (room - full)


@contextlib.contextmanager
def export_progress(*, shown: bool) -> Iterator[ExportProgress]:
    """Show on a terminal how far an export is; nothing of it stays."""
    last = 0.0
    wiped = True

    def show(what: str, done: int, of: int) -> None:
        nonlocal last, wiped
        if time.monotonic() - last >= 0.1:
            last, wiped = time.monotonic(), False
            click.echo(f"\r\x1b[2Kexporting: {done:,} of {of:,} {what}", nl=False, err=True)

    try:
        yield show if shown and sys.stderr.isatty() else lambda _what, _done, _of: None
    finally:
        if not wiped:
            click.echo("\r\x1b[2K", nl=False, err=True)
