"""Waiting until files of sessions change, at next to no cost while they do not.

With watchfiles installed the system tells of changes; without it files are looked at every few
seconds. Either way changes are gathered for a moment, so that a file that grows line by line is
read once and not for every line.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

GATHER_MS = 1_500
"""How long changes are gathered before they are handed out."""
STEP_MS = 300
"""Quiet for so long, what was gathered is handed out early."""
POLL = 5.0
"""Seconds between two looks where nobody tells of changes."""
SUFFIXES = (".jsonl", ".json", ".zst")
"""Names of the files that sessions are made of."""


def changes(folders: Sequence[Path], queue: Path) -> Iterator[set[Path]]:
    """Give the files that were written, again and again; a nudge in the queue counts as well."""
    try:
        import watchfiles  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        yield from polled(folders, queue)
        return
    queue.mkdir(parents=True, exist_ok=True, mode=0o700)

    def telling(_change: object, path: str) -> bool:
        name = os.path.basename(path)  # noqa: PTH119 - once for every change of any file
        nudge = path.startswith(f"{queue}/") and not name.startswith(".")
        return nudge or path.endswith(SUFFIXES)

    found = watchfiles.watch(
        *dict.fromkeys([*folders, queue]),
        watch_filter=telling,
        debounce=GATHER_MS,
        step=STEP_MS,
        raise_interrupt=True,
        ignore_permission_denied=True,
    )
    for batch in found:
        yield {Path(path) for _, path in batch if not path.startswith(f"{queue}/")}


def polled(
    folders: Sequence[Path], queue: Path, every: float = POLL, rounds: int | None = None
) -> Iterator[set[Path]]:
    """The same by looking; ends after so many `rounds` when that is asked for."""
    before = stamps([*folders, queue])
    while rounds is None or rounds > 0:
        rounds = None if rounds is None else rounds - 1
        time.sleep(every)
        now = stamps([*folders, queue])
        changed = {path for path, stamp in now.items() if before.get(path) != stamp}
        before = now
        if changed:
            yield {Path(path) for path in changed if not path.startswith(f"{queue}/")}


def stamps(folders: Sequence[Path]) -> dict[str, tuple[int, int]]:
    """Give size and time of all files below folders that may be part of a session."""
    out: dict[str, tuple[int, int]] = {}
    waiting = [str(folder) for folder in folders]
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif entry.name.endswith(SUFFIXES) and not entry.name.startswith("."):
                try:
                    told = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                out[entry.path] = told.st_size, told.st_mtime_ns
    return out
