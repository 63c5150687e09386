"""Channel 2: every prompt given on this machine, for the Up-arrow, and nothing else.

One append-only `history.jsonl`, for the owner alone. A line, FROZEN, in this order of keys:
`{"type":"prompt","ts":RFC 3339 UTC ms,"session_id","project" or null,"prompt"}`.

Promises, each with a test: a prompt is one line, written at once and whole; reading goes from
the end backwards in blocks and stops when it has enough; at its limits the file is renamed to
`history.jsonl.1`, the former `.1` to `.2` and so on, under a lock, and whoever dies in between
leaves a gap in the numbers and loses nothing; writers in other processes notice and go on in the
new file. A prompt written in the very moment of a rollover may stand in the rolled file. The
prompts of a session that is forgotten are overwritten with blanks where they stand, so that no
line moves and whoever adds one meanwhile loses nothing.

Nothing that stands in these files raises: a bad line is passed over and counted in `skipped`, a
file that cannot be read leaves a notice in `notes`, and neither hides the rest. Bad lines are
not salvaged: their prompts may stand again, whole, behind them. A rollover that cannot be done
is put off, and `warning` says why. A prompt over `codec.LINE_LIMIT` is kept but not recalled.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import stat
import threading
import time
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime
from itertools import count, islice
from pathlib import Path

import msgspec

from thence.errors import NotAppendable, remedy
from thence.format.codec import LINE_LIMIT, RawRecord, objects
from thence.format.layout import HISTORY, rollover, rollover_of
from thence.format.records import JSON, Notice, Skipped, time_text
from thence.journal.arguments import Count, Text, checked
from thence.journal.cleanup import CleanupStep, SessionFiles
from thence.journal.log import DISK, Disk, Log, make_folder, sync_folder

BLOCK_BYTES = 1 << 16  # bytes read at once
WARN_AT_SHARE = 0.8  # the share of a limit from which `warning` speaks
NOWHERE = -1  # the offset of a prompt that is not kept: the history is switched off
DAY_S = 86_400.0
MONTH_DAYS = 31

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_REWRITE = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_GUARD = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Prompts in a row past `retain_days` that end a read: one clock gone wrong must not.
_MAX_STRAY_PROMPTS = 100
_PAUSE_S = 0.01
_MAX_LISTING_ATTEMPTS = 100  # looks at a folder whose files are being renamed all the while
_File = tuple[int, int]  # device and inode: what a name leads to

# One for all, so that a fork can wait for it: a child is born with every history at rest.
_MUTEX = threading.Lock()
os.register_at_fork(
    before=_MUTEX.acquire, after_in_parent=_MUTEX.release, after_in_child=_MUTEX.release
)


class _Line(msgspec.Struct, frozen=True, tag_field="type", tag="prompt"):
    """One line of the file. FROZEN: names and order of the fields."""

    ts: str
    session_id: str
    project: str | None
    prompt: str


class Prompt(msgspec.Struct, frozen=True):
    """One prompt, and the offset of its line within the file it stands in."""

    prompt: str
    ts: str
    session_id: str
    project: str | None
    offset: int


@checked
class History:
    """The prompts of the machine. Use from any number of threads and processes."""

    def __init__(
        self,
        folder: Path,
        *,
        limit_bytes: int = 10 << 20,
        limit_entries: int = 10_000,
        retain_days: float | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        disk: Disk = DISK,
        enabled: bool = True,
    ) -> None:
        self.folder, self._path = folder, folder / HISTORY
        self.skipped = 0  # bad lines passed over since the last read began
        self.notes: list[Notice] = []  # what the last read could not open or finish
        self._limits = (limit_bytes, limit_entries)
        self._retain_days, self._now, self._disk = retain_days, now, disk
        self._enabled, self._closed = enabled, False
        self._log: Log | None = None
        self._file: _File = (0, 0)  # what our log has open
        self._tally: tuple[_File, int, int] = ((0, 0), 0, 0)  # (file, counted so far, lines)
        self._stuck = ""  # why the last rollover could not be done

    # -- adding -------------------------------------------------------------------------

    def add(self, prompt: Text, *, session_id: Text, project: Text | None = None) -> int:
        """Keep a prompt, durable from the next `sync` on, and give its offset in its file."""
        if not self._enabled:
            return NOWHERE
        line = _line(time_text(self._now().timestamp()), session_id, project, prompt)
        with _MUTEX:
            try:
                log = self._ready()
            except OSError as error:
                raise self._error("add to", error) from error
            start = log.append(line)
            file, end, lines = self._tally if self._tally[0] == self._file else (self._file, 0, 0)
            if start == end:  # nobody else wrote in between: no need to read what we wrote
                self._tally = (file, start + len(line), lines + 1)
        return start

    def _ready(self) -> Log:
        """Return the log of the current file, after a rollover if one is due."""
        if self._closed:
            raise NotAppendable("the history is closed", hint="open it again to add to it")
        tried = False
        while True:
            here = self._look()
            if here is None or self._log is None or not self._is_ours(here):
                self._open()
            elif tried or not self._is_full(here):
                return self._log
            else:
                self._roll()
                tried = True

    def _look(self) -> os.stat_result | None:
        """Stat the current file, None when there is none; refuse what is no file of ours."""
        try:
            here = self._path.lstat()
        except FileNotFoundError:
            return None
        if stat.S_ISREG(here.st_mode):
            return here
        raise NotAppendable(
            f"{HISTORY} is {_kind(here.st_mode)}, not a regular file",
            hint=f"move it out of {self.folder}; a new file is created automatically",
        )

    def _is_ours(self, here: os.stat_result) -> bool:
        """Whether the name still leads to the file we have open, and nobody emptied it."""
        log = self._log
        return log is not None and _file(here) == self._file and here.st_size >= log.end

    def _open(self) -> None:
        """Open the current file, if we can tell which it is: others may roll it over now."""
        if self._log is not None:
            self._log.close()  # if this fails it stays, and says its lines again next time
            self._log = None
        make_folder(self.folder, disk=self._disk)
        if self._look() is None:
            with contextlib.suppress(FileExistsError):  # made here: a log refuses to, if it finds
                self._disk.close(self._disk.open(self._path, _MAKE, 0o600))  # a .zst beside it
        before = self._look()
        log = Log(self._path, disk=self._disk)
        here = self._look()
        if before is not None and here is not None and _file(before) == _file(here):
            self._log, self._file = log, _file(here)
        else:
            log.close()

    def _error(self, doing: str, error: OSError) -> NotAppendable:
        return NotAppendable(
            f"cannot {doing} the history in {self.folder}: {error.strerror or error}",
            hint=f"stored data is safe; {remedy(error)}, then try again",
        )

    def sync(self) -> None:
        """Return when every prompt added so far is on the disk."""
        log = self._log  # without the mutex: a signal may have come in the middle of `add`
        if log is not None:
            log.sync()

    def close(self) -> None:
        """Sync and close. Nothing can be added from then on; reading goes on."""
        with _MUTEX:
            self._closed = True
            if self._log is not None:
                self._log.close()  # if this fails it stays, to be closed again
                self._log = None

    # -- rolling over -------------------------------------------------------------------

    def _is_full(self, here: os.stat_result) -> bool:
        most, most_lines = self._limits
        return here.st_size > 0 and (here.st_size >= most or self._count(here) >= most_lines)

    def _count(self, here: os.stat_result) -> int:
        """Count the lines of the current file, reading only what came since the last count."""
        file, end, lines = self._tally
        if file != _file(here) or end > here.st_size:
            file, end, lines = _file(here), 0, 0
        if end < here.st_size:
            # Renamed just now, or unreadable: what is missing is counted next time.
            with contextlib.suppress(OSError), self._open_for_reading(self._path) as handle:
                if _file(os.fstat(handle)) == file:
                    for block in _forwards(self._disk, handle, end, here.st_size):
                        lines += block.count(b"\n")
                        end += len(block)
        self._tally = (file, end, lines)
        return lines

    def _roll(self) -> None:
        """Move every file up by one number, as far as the first gap, if it can be done now."""
        self._stuck = ""
        try:
            with self._guard() as ours:
                here = self._look()
                if here is None or not (ours and self._is_ours(here) and self._is_full(here)):
                    return
                free = next(n for n in count(1) if not os.path.lexists(self.folder / rollover(n)))
                for number in range(free, 0, -1):
                    (self.folder / rollover(number - 1)).rename(self.folder / rollover(number))
                sync_folder(self.folder, disk=self._disk)
        except OSError as error:
            self._stuck = error.strerror or str(error)

    @contextlib.contextmanager
    def _guard(self) -> Iterator[bool]:
        """Hold the lock of those who rename or remove files; False when another has it."""
        handle = self._disk.open(self.folder / f"{HISTORY}.lock", _GUARD, 0o600)
        ours = False
        try:
            with contextlib.suppress(BlockingIOError):  # another process tidies: once is enough
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                ours = True
            yield ours
        finally:
            if ours:  # said aloud: a forked child may have the handle, too
                fcntl.flock(handle, fcntl.LOCK_UN)
            self._disk.close(handle)

    def warning(self) -> str | None:
        """Say so when the current file is near its rollover, or could not be rolled over."""
        with _MUTEX, contextlib.suppress(NotAppendable, OSError):  # reading tells of them
            here = self._look() if self._enabled else None
            have = (here.st_size, self._count(here)) if here else (0, 0)
            share = max(h / max(most, 1) for h, most in zip(have, self._limits, strict=True))
            if share >= 1 and self._stuck:
                return f"{HISTORY} is full and cannot be rolled over: {self._stuck}"
            if share >= WARN_AT_SHARE:
                return f"{HISTORY} is {share:.0%} full and rolls over to {rollover(1)} when it is"
        return None

    def sweep(self, *, dry_run: bool = False) -> list[Path]:
        """Remove rolled files whose last prompt is over a month old; never the current one.

        `Journal.cleanup` and `thence store gc` do so; nothing does it by itself.
        """
        old = self._old() if self._enabled else []
        if old and not dry_run:
            try:
                with self._guard() as ours:
                    old = self._old() if ours else []  # the numbers stand still from here on
                    for path in old:
                        path.unlink(missing_ok=True)
                    sync_folder(self.folder, disk=self._disk)
            except OSError as error:
                raise self._error("sweep", error) from error
        return old

    def clean_up(self, *, dry_run: bool = False) -> list[CleanupStep]:
        """Sweep, and say what went and whether the current file is nearly full, as steps."""
        steps = [
            CleanupStep(
                "prune",
                SessionFiles(path.name, HISTORY, size, modified),
                f"its last prompt is over {MONTH_DAYS} days old",
            )
            for path, (size, modified) in self._sizes(self.sweep(dry_run=True)).items()
        ]
        if steps and not dry_run:
            self.sweep()
        warning = self.warning()
        if warning is not None:
            size, modified = self._sizes([self._path]).get(self._path, (0, 0.0))
            steps.append(
                CleanupStep("keep", SessionFiles(HISTORY, HISTORY, size, modified), warning)
            )
        return steps

    def _sizes(self, paths: list[Path]) -> dict[Path, tuple[int, float]]:
        """How large files are, and when they were last written; those that are gone left out."""
        out: dict[Path, tuple[int, float]] = {}
        for path in paths:
            with contextlib.suppress(OSError):  # rotated away since it was listed
                status = path.stat()
                out[path] = (status.st_size, status.st_mtime)
        return out

    def forget(self, session_id: str) -> int:
        """Overwrite the prompts of a session with blanks in all files; return how many they were.

        Files are not rolled over meanwhile. A kill leaves some of them, for the next call.
        """
        try:
            while True:
                with self._guard() as ours:
                    if ours:
                        paths = [self.folder / rollover(number) for number in self._names()]
                        return sum(self._blank(path, session_id) for path in paths)
                time.sleep(_PAUSE_S)
        except FileNotFoundError:  # no folder, no history
            return 0
        except OSError as error:
            raise self._error("remove prompts from", error) from error

    def _blank(self, path: Path, session_id: str) -> int:
        """Overwrite the lines of a session in one file; return how many they were.

        A line that is written is never moved, and others add theirs behind it: its bytes are ours.
        """
        handle = self._disk.open(path, _REWRITE)
        try:
            here = os.fstat(handle)
            if not stat.S_ISREG(here.st_mode):
                return 0
            lines = b"".join(_forwards(self._disk, handle, 0, here.st_size)).split(b"\n")
            offset = count = 0
            for line in lines:
                if _is_of(line, session_id):
                    _overwrite(handle, b" " * len(line), offset)
                    count += 1
                offset += len(line) + 1
            if count:
                self._disk.datasync(handle)
            return count
        finally:
            self._disk.close(handle)

    def _old(self) -> list[Path]:
        least = self._now().timestamp() - MONTH_DAYS * DAY_S
        old = []
        for number in sorted(self._names().keys() - {0}):
            path = self.folder / rollover(number)
            # Unreadable: kept, as its age is unknown.
            with contextlib.suppress(OSError), self._open_for_reading(path) as handle:
                times = (_seconds(p.ts) for p in self._parse(handle, reverse=True))
                last = next((time for time in times if time > -math.inf), None)
                if (os.fstat(handle).st_mtime if last is None else last) < least:
                    old.append(path)
        return old

    # -- reading ------------------------------------------------------------------------

    def recent(
        self, limit: Count = 50, *, project: Text | None = None, session_id: Text | None = None
    ) -> list[Prompt]:
        """Return the last prompts, newest first, of one project or session if asked."""
        with contextlib.closing(self._prompts()) as prompts:
            of_project = (p for p in prompts if project in (None, p.project))
            wanted = (p for p in of_project if session_id in (None, p.session_id))
            return list(islice(wanted, limit))

    def read(self, limit: Count = 50, *, reverse: bool = True) -> list[dict[str, JSON]]:
        """Return prompts as plain objects: the newest first, or from the very first on."""
        names = ("prompt", "ts", "session_id", "offset")
        with contextlib.closing(self._prompts(reverse=reverse)) as prompts:
            return [{n: getattr(p, n) for n in names} for p in islice(prompts, limit)]

    def search(self, text: Text, *, prefix: bool = False, limit: Count = 50) -> list[Prompt]:
        """Find prompts that hold, or start with, a text in whatever case; each text once."""
        matches: dict[str, Prompt] = {}
        with contextlib.closing(self._prompts()) as prompts:
            while len(matches) < limit and (p := next(prompts, None)) is not None:
                if p.prompt not in matches and _matches(p, text, prefix=prefix):
                    matches[p.prompt] = p
        return list(matches.values())

    def cursor(self, prefix: Text = "") -> HistoryCursor:
        """Go up and down through the prompts that start with a text, in whatever case."""
        return HistoryCursor(lambda: self._apart(prefix))

    def _apart(self, prefix: str) -> Generator[Prompt, None, None]:
        """Read the prompts that start with a text, without those that repeat the one before."""
        last = None
        for prompt in self._prompts():
            if prompt.prompt != last and _matches(prompt, prefix, prefix=True):
                last = prompt.prompt
                yield prompt

    def _prompts(self, *, reverse: bool = True) -> Generator[Prompt, None, None]:
        """Read as far as the caller goes on, and leave out what is past its time."""
        self.skipped, self.notes = 0, []
        days = self._retain_days
        least = -math.inf if days is None else self._now().timestamp() - days * DAY_S
        strays = 0
        for prompt in self._all_prompts(reverse=reverse):
            if days is None or _seconds(prompt.ts) >= least:
                strays = 0
                yield prompt
            elif reverse and (strays := strays + 1) >= _MAX_STRAY_PROMPTS:
                return

    def _all_prompts(self, *, reverse: bool) -> Generator[Prompt, None, None]:
        """Read the files in their order, each once, whatever is rolled over meanwhile."""
        # Their numbers move, their order does not: the next is found from where those stand now.
        seen: set[_File] = set()
        tries, step = 0, 1 if reverse else -1  # numbers grow with age
        while self._enabled and tries < _MAX_LISTING_ATTEMPTS:
            names = self._names()
            last = max((step * n for n, file in names.items() if file in seen), default=-math.inf)
            ahead = [step * n for n in names if step * n > last]
            if not ahead:
                return
            number = abs(min(ahead))
            path = self.folder / rollover(number)
            try:
                with self._open_for_reading(path) as handle:
                    if _file(os.fstat(handle)) != names[number]:
                        tries += 1
                        continue
                    seen.add(names[number])
                    yield from self._parse(handle, reverse=reverse)
            except FileNotFoundError:
                tries += 1
            except OSError as error:
                seen.add(names[number])
                self.notes.append(Notice("not readable", f"{path.name}: {error.strerror}"))

    def _parse(self, handle: int, *, reverse: bool) -> Iterator[Prompt]:
        """Parse one file, counting the lines that are no prompts."""
        size = os.fstat(handle).st_size
        chunks = [(0, _forwards(self._disk, handle, 0, size))]
        for offset, data in _backwards(self._disk, handle, size) if reverse else chunks:
            for record in objects(data, offset=offset, is_record=lambda _: False):
                if (prompt := _prompt(record)) is not None:
                    yield prompt
                else:
                    self.skipped += 1

    def _names(self) -> dict[int, _File]:
        """Which files there are, by number. Listed until two looks agree: files may be moving."""
        before: dict[int, _File] | None = None
        for _ in range(_MAX_LISTING_ATTEMPTS):
            names: dict[int, _File] = {}
            try:
                for path in self.folder.iterdir():
                    if (number := rollover_of(path.name)) is not None:
                        with contextlib.suppress(FileNotFoundError):  # renamed just now
                            names[number] = _file(path.lstat())
            except FileNotFoundError:  # no history yet
                return {}
            except OSError as error:
                self.notes.append(Notice("not readable", f"{self.folder}: {error.strerror}"))
                return {}
            if names == before:
                break
            before = names
        return before or {}

    @contextlib.contextmanager
    def _open_for_reading(self, path: Path) -> Iterator[int]:
        """Open a file for reading; OSError when it is no regular one."""
        handle = self._disk.open(path, _READ)
        try:
            mode = os.fstat(handle).st_mode
            if not stat.S_ISREG(mode):
                raise OSError(errno.EINVAL, _kind(mode))
            yield handle
        finally:
            self._disk.close(handle)


class HistoryCursor:
    """A place in the history, as in a shell: below the newest prompt is the empty line.

    Back there it forgets what it read, so that the next way up meets what was added since.
    """

    def __init__(self, prompts: Callable[[], Generator[Prompt, None, None]]) -> None:
        self._start, self._prompts = prompts, prompts()  # which reads nothing yet
        self._met: list[Prompt] = []
        self._at = -1

    def up(self) -> Prompt | None:
        """Return the next older prompt; stay at the oldest. None when there is none at all."""
        if self._at + 1 == len(self._met):
            self._met += islice(self._prompts, 1)
        self._at = min(self._at + 1, len(self._met) - 1)
        return self._met[self._at] if self._met else None

    def down(self) -> Prompt | None:
        """Return the next newer prompt; None is the empty line."""
        self._at -= 1
        if self._at >= 0:
            return self._met[self._at]
        self.close()
        return None

    def close(self) -> None:
        """Go back to the empty line and let go of the file."""
        self._prompts.close()
        self._prompts, self._met, self._at = self._start(), [], -1


def _file(info: os.stat_result) -> _File:
    return info.st_dev, info.st_ino


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a pipe"}
    return kinds.get(stat.S_IFMT(mode), "a special file")


def _line(ts: JSON, session_id: str, project: str | None, prompt: str) -> bytes:
    line = _Line(ts, session_id, project, prompt)
    try:
        return msgspec.json.encode(line) + b"\n"
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8 form; JSON has a way to spell it
        return json.dumps(msgspec.to_builtins(line), separators=(",", ":")).encode() + b"\n"


def _is_of(line: bytes, session_id: str) -> bool:
    """Whether a line is a prompt of a session; of a damaged one, whether it names the session."""
    name = msgspec.json.encode({"session_id": session_id})[1:-1]
    if name not in line:
        return False
    try:
        return msgspec.json.decode(line, type=_Line).session_id == session_id
    except (ValueError, RecursionError):
        # Not understood: as if it were, so that forgetting forgets too much.
        return True


def _overwrite(handle: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(handle, data, offset)
        data, offset = data[written:], offset + written


def _prompt(record: RawRecord | Skipped) -> Prompt | None:
    """Read a line's object back; None when it is no prompt."""
    if isinstance(record, Skipped):
        return None
    try:
        line = msgspec.convert(record.value, _Line)
    except ValueError:
        return None
    return Prompt(line.prompt, line.ts, line.session_id, line.project, record.place.offset)


def _matches(prompt: Prompt, text: str, *, prefix: bool) -> bool:
    prompted, text = prompt.prompt.casefold(), text.casefold()
    return prompted.startswith(text) if prefix else text in prompted


def _seconds(ts: str) -> float:
    """Seconds since 1970 of a time in a line; before all time when it is none."""
    try:
        moment = datetime.fromisoformat(ts)
    except ValueError:  # older than all that have a time
        return -math.inf
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _forwards(disk: Disk, handle: int, start: int, stop: int) -> Iterator[bytes]:
    while start < stop and (some := disk.pread(handle, min(BLOCK_BYTES, stop - start), start)):
        yield some
        start += len(some)


def _backwards(disk: Disk, handle: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Lines from the end to the start, each with its offset."""
    rest: list[bytes] = []  # of the line whose start was not met yet, last piece first
    pending_bytes = 0  # its bytes, counted also when they are no longer kept
    while end > 0:
        block = b"".join(_forwards(disk, handle, max(0, end - BLOCK_BYTES), end))
        if len(block) < min(BLOCK_BYTES, end):
            return  # somebody cut the file off under us
        pieces = block.split(b"\n")
        for at in range(len(pieces) - 1, -1, -1):
            rest.append(pieces[at])
            pending_bytes += len(pieces[at])
            end -= len(pieces[at])
            if pending_bytes > LINE_LIMIT:
                rest = [b"\0"]  # too long: a bad line as good as any
            if at or not end:
                yield end, b"".join(reversed(rest))
                rest, pending_bytes = [], 0
                end -= 1
