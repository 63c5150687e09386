"""Waiting until files of sessions change, at next to no cost while they do not.

With watchfiles installed the system tells of changes; without it files are looked at every few
seconds. Either way changes are gathered for a moment, so that a file that grows line by line is
read once and not for every line.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from thence.adapters import Adapter, Cursor, Live, Prompt, Source
from thence.adapters import Batch as Read

GATHER_MS = 1_500
"""How long changes are gathered before they are handed out."""
STEP_MS = 300
"""Quiet for so long, what was gathered is handed out early."""
LOOK_MS = 500
"""How often it is looked whether to stop."""
POLL = 5.0
"""Seconds between two looks where nobody tells of changes."""
SUFFIXES = (".jsonl", ".json", ".zst")
"""Names of the files that sessions are made of."""


def changes(
    folders: Sequence[Path],
    queue: Path,
    *,
    gather_ms: int = GATHER_MS,
    step_ms: int = STEP_MS,
    stop: threading.Event | None = None,
) -> Iterator[set[Path]]:
    """Give the files that were written, again and again; a nudge in the queue counts as well.

    It ends soon after `stop` is set.
    """
    queue.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        yield from _told(folders, queue, gather_ms, step_ms, stop)
    except (ImportError, OSError, RuntimeError):  # not installed, or nobody tells of so many files
        yield from polled(folders, queue, stop=stop)


def _told(
    folders: Sequence[Path],
    queue: Path,
    gather_ms: int,
    step_ms: int,
    stop: threading.Event | None,
) -> Iterator[set[Path]]:
    """The same as the system tells it."""
    import watchfiles

    def telling(_change: object, path: str) -> bool:
        name = os.path.basename(path)  # noqa: PTH119 - once for every change of any file
        nudge = path.startswith(f"{queue}/") and not name.startswith(".")
        return nudge or path.endswith(SUFFIXES)

    found = watchfiles.watch(
        *dict.fromkeys([*folders, queue]),
        watch_filter=telling,
        debounce=gather_ms,
        step=step_ms,
        stop_event=stop,
        rust_timeout=LOOK_MS,
        raise_interrupt=True,
        ignore_permission_denied=True,
    )
    for batch in found:
        yield {Path(path) for _, path in batch if not path.startswith(f"{queue}/")}


def polled(
    folders: Sequence[Path],
    queue: Path,
    every: float | None = None,
    rounds: int | None = None,
    stop: threading.Event | None = None,
) -> Iterator[set[Path]]:
    """The same by looking; ends after so many `rounds` when that is asked for."""
    stop = stop or threading.Event()
    before = stamps([*folders, queue])
    while rounds is None or rounds > 0:
        rounds = None if rounds is None else rounds - 1
        if stop.wait(POLL if every is None else every):
            return
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


# -- what changed, and nothing else ---------------------------------------------------------


def narrowed(
    known: Mapping[str, Adapter], roots: Mapping[str, Sequence[Path]], paths: Iterable[Path]
) -> tuple[dict[str, Adapter], dict[str, list[Path]]]:
    """Give readers that find only the sessions that files belong to, and where these look."""
    sources: dict[str, dict[str, Source]] = {}
    for path in paths:
        for name in roots:
            source = known[name].at(path)
            if source is not None:
                sources.setdefault(name, {})[source.uid] = source
                break
    readers: dict[str, Adapter] = dict(known)
    for name, found in sources.items():
        readers[name] = Only(known[name], found.values())
    return readers, {name: list(roots[name][:1]) for name in sources}


class Only:
    """An agent's reader that finds some of its sessions only."""

    def __init__(self, adapter: Adapter, sources: Iterable[Source]) -> None:
        self.name = adapter.name
        self._adapter = adapter
        self.sources = list(sources)

    def find(self, root: Path) -> Iterator[Source]:  # noqa: ARG002 - the protocol's
        """Give these sessions."""
        return iter(self.sources)

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """As the reader says."""
        return self._adapter.roots(home, env)

    def at(self, path: Path) -> Source | None:
        """As the reader says."""
        return self._adapter.at(path)

    def read(self, source: Source, cursor: Cursor | None = None) -> Read:
        """As the reader does."""
        return self._adapter.read(source, cursor)

    def live(self, root: Path) -> Iterator[Live]:
        """As the reader says."""
        return self._adapter.live(root)

    def prompts(self, root: Path) -> Iterator[Prompt]:
        """As the reader says."""
        return self._adapter.prompts(root)

    def keeps_days(self, root: Path) -> int | None:
        """As the reader says."""
        return self._adapter.keeps_days(root)
