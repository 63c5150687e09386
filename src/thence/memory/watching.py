"""Waiting until files of sessions change, at next to no cost while they do not.

With watchfiles installed the system tells of changes; without it files are looked at every few
seconds. Either way changes are gathered for a moment, so that a file that grows line by line is
read once and not for every line.

The system does not tell everything: not what was written before it was listened to, nor in a folder
that was made a moment ago, nor what came when its queue was full. So files are looked at as well:
once at the beginning, those of a new folder soon, and all of them every minute. An agent that is
used for the first time makes its folder then: the system is listened to anew.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from thence.agents import Adapter, Source
from thence.agents.profiles import file_endings
from thence.agents.row_sources import sources_at
from thence.memory.notes import FOLDER

if TYPE_CHECKING:
    from watchfiles import Change

GATHER_MS = 1_500  # an agent writes several lines for one answer
"""How long changes are gathered before they are handed out."""
STEP_MS = 300
"""Quiet for so long, what was gathered is handed out early."""
LOOK_MS = 2_000
"""How often it is looked whether there are new folders; whether to stop at every step."""
POLL_MS = 300
"""How often files are looked at where the system is known not to tell of changes (WSL)."""
POLL_S = 5.0  # every look walks all folders
"""Seconds between two looks where nobody tells of changes."""
RESCAN_S = 60.0  # what the system forgot to tell is late by a minute at most
"""Seconds between two looks where the system tells of them."""
SUFFIXES = (".jsonl", ".json", ".zst", ".db", ".db-wal")
"""How names of files that sessions are made of usually end; agents may name others."""

IDLE_BEFORE_DIGEST_S: Final = 5.0
"""Seconds without a change after which digests are made."""

MAX_DIGEST_DELAY_S: Final = 60.0
"""Longest delay of digests while changes go on, in seconds."""

DIGEST_LIMIT_S: Final = 0.3
"""Seconds of digesting after which new lines are looked for again."""

DIGEST_PAUSE_RATIO: Final = 9.0
"""Pause before more digests, as a multiple of the time that the last ones took."""


class DigestPace:
    """When somebody who sweeps again and again makes digests.

    The next line makes a digest stale, and each waits for the disk: so they are made when
    nothing changes, and while changes go on once in a while.
    """

    def __init__(self) -> None:
        self._changed_at = time.monotonic()
        self._due_at = self._changed_at + MAX_DIGEST_DELAY_S

    def note_change(self) -> None:
        """Note that something was written."""
        self._changed_at = time.monotonic()

    @property
    def is_idle(self) -> bool:
        """Whether nothing was written for a while."""
        return time.monotonic() - self._changed_at > IDLE_BEFORE_DIGEST_S

    @property
    def is_due(self) -> bool:
        """Whether digests are made now."""
        return self.is_idle or time.monotonic() > self._due_at

    def note_digests(self, seconds: float, *, is_unfinished: bool) -> None:
        """Note that digests were made, in so many seconds; the next part of many comes soon."""
        pause_s = DIGEST_PAUSE_RATIO * seconds if is_unfinished else MAX_DIGEST_DELAY_S
        self._due_at = time.monotonic() + pause_s


def changes(
    folders: Sequence[Path],
    queue: Path,
    *,
    gather_ms: int = GATHER_MS,
    step_ms: int | Callable[[], int] = STEP_MS,
    stop: threading.Event | None = None,
    store: Path | None = None,
) -> Iterator[set[Path]]:
    """Yield the files that were written, again and again; a nudge in the queue counts as well.

    Everything written since this was called is given, however late it is asked for: who calls it,
    and then sweeps, misses nothing. Folders may be made later. It ends soon after `stop` is set.
    `step_ms` may be a function that is asked again and again: every step wakes the process up. The
    file of a `store` and what lies beside it under its name are left out: who sweeps writes there.
    """
    queue.mkdir(parents=True, exist_ok=True, mode=0o700)
    seen = FileStamps([*folders, queue], store)
    step = step_ms if callable(step_ms) else lambda: step_ms
    batches = _changed_paths(seen, queue, gather_ms, step, stop or threading.Event())
    # That there are nudges is all that they say.
    return (
        {Path(path) for path in paths if not path.startswith(f"{queue}/")}
        for paths in batches
        if paths
    )


def _changed_paths(
    seen: FileStamps, queue: Path, gather_ms: int, step_ms: Callable[[], int], stop: threading.Event
) -> Iterator[set[str]]:
    """Yield what changed, nudges among it; an empty set every now and then."""
    try:
        while not stop.is_set():
            yield from _watch_paths(seen, queue, gather_ms, step_ms, stop)
    except (ImportError, OSError, RuntimeError):  # not installed, or nobody tells of so many files
        while not stop.wait(POLL_S):
            yield seen.look()


def _watch_paths(
    seen: FileStamps, queue: Path, gather_ms: int, step_ms: Callable[[], int], stop: threading.Event
) -> Iterator[set[str]]:
    """Yield what the system reports, and what it does not, until a folder is there that was not."""
    from watchfiles import Change

    endings = (*SUFFIXES, *file_endings())

    def is_new_folder(change: Change, path: str) -> bool:
        return change is Change.added and not path.endswith(endings) and Path(path).is_dir()

    def telling(change: Change, path: str) -> bool:
        if seen.is_of_store(path):
            return False
        nudge = path.startswith(f"{queue}/") and not Path(path).name.startswith(".")
        return nudge or path.endswith(endings) or is_new_folder(change, path)

    there = seen.there()
    batches = _batches(there, telling, gather_ms, step_ms, stop)
    looked: float | None = None
    young: set[str] = set()
    for batch in batches:
        new = {path for change, path in batch if is_new_folder(change, path)}
        paths = {path for _, path in batch} - new
        seen.note(paths)
        # What was written in a new folder before the system listened there; its turn comes twice,
        # for it is told of before that.
        paths |= seen.look(new | young)
        young = new
        if looked is None or time.monotonic() - looked > RESCAN_S:
            paths |= seen.look()
            looked = time.monotonic()
        yield paths
        if there != seen.there():
            break


def _batches(
    folders: Sequence[str],
    telling: Callable[[Change, str], bool],
    gather_ms: int,
    step_ms: Callable[[], int],
    stop: threading.Event,
) -> Iterator[set[tuple[Change, str]]]:
    """Yield what the system tells; an empty set when it told nothing for a while.

    As `watchfiles.watch` does, but the step is asked for each time.
    """
    from watchfiles import Change
    from watchfiles._rust_notify import RustNotify
    from watchfiles.main import _default_force_polling

    polls = _default_force_polling(None)
    with RustNotify([*folders], False, polls, POLL_MS, True, True) as notify:  # noqa: FBT003
        while not stop.is_set():
            raw = notify.watch(gather_ms, step_ms(), LOOK_MS, stop)
            if raw == "signal":
                raise KeyboardInterrupt
            if isinstance(raw, str):
                yield set()
                continue
            changes = {(Change(kind), path) for kind, path in raw}
            yield {change for change in changes if telling(*change)}


class FileStamps:
    """Size and time of files when they were last looked at."""

    def __init__(self, folders: Iterable[Path], store: Path | None = None) -> None:
        self.folders = list(dict.fromkeys(str(folder) for folder in folders))
        self._store = str(store) if store is not None else None
        self._stamps = stamps(self.folders)

    def is_of_store(self, path: str) -> bool:
        """Whether a file is our store, or lies beside it under its name."""
        return self._store is not None and path.startswith(self._store)

    def there(self) -> list[str]:
        """Return the folders that are there, each once."""
        return [folder for folder in self.folders if os.path.isdir(folder)]  # noqa: PTH112 - often

    def look(self, folders: Iterable[str] | None = None) -> set[str]:
        """Return the files that are not as they were, in all folders or in some of them."""
        now = stamps(self.folders if folders is None else folders)
        changed = {
            path
            for path, stamp in now.items()
            if self._stamps.get(path) != stamp and not self.is_of_store(path)
        }
        if folders is None:
            self._stamps = now
        else:
            self._stamps.update(now)
        return changed

    def note(self, paths: Iterable[str]) -> None:
        """Remember how files are now, for somebody else has told of them."""
        for path in paths:
            try:
                self._stamps[path] = _stamp(os.stat(path, follow_symlinks=False))  # noqa: PTH116
            except OSError:
                self._stamps.pop(path, None)


def stamps(folders: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return size and time of all files below folders that may be part of a session."""
    out: dict[str, tuple[int, int]] = {}
    waiting, own_endings = list(folders), file_endings()
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:  # removed while we look
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif entry.name.endswith(own_endings) or (
                entry.name.endswith(SUFFIXES) and not entry.name.startswith(".")
            ):
                try:
                    out[entry.path] = _stamp(entry.stat(follow_symlinks=False))
                except OSError:  # removed while we look
                    continue
    return out


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


# -- what changed, and nothing else ---------------------------------------------------------


def narrow_to(
    known: Mapping[str, Adapter], roots: Mapping[str, Sequence[Path]], paths: Iterable[Path]
) -> tuple[dict[str, Adapter], dict[str, list[Path]]]:
    """Return readers that find only the sessions that files belong to, and where these look."""
    sources: dict[str, dict[str, Source]] = {}
    notes = {root / FOLDER for places in roots.values() for root in places}
    prefixes = [(f"{root}/", name) for name, places in roots.items() for root in places]
    for path in paths:
        if path.parent in notes:
            continue
        # Who owns the folder is asked first: others may have to look into the file.
        owners = (name for prefix, name in prefixes if str(path).startswith(prefix))
        for name in dict.fromkeys((*owners, *roots)):
            found_sources = sources_at(known[name], path)
            if found_sources:
                sources.setdefault(name, {}).update(
                    (source.uid, source) for source in found_sources
                )
                break
    readers: dict[str, Adapter] = dict(known)
    for name, by_uid in sources.items():
        readers[name] = cast("Adapter", NarrowedReader(known[name], by_uid.values()))
    return readers, {name: list(roots[name][:1]) for name in sources}


class NarrowedReader:
    """An agent's reader that finds some of its sessions only; all else is as the reader has it."""

    finds_some = True

    def __init__(self, adapter: Adapter, sources: Iterable[Source]) -> None:
        self._adapter = adapter
        self.sources = list(sources)

    def find(self, root: Path) -> Iterator[Source]:  # noqa: ARG002 - the protocol's
        """Return these sessions."""
        return iter(self.sources)

    def __getattr__(self, name: str) -> Any:
        """Return what the reader has."""
        return getattr(self._adapter, name)
