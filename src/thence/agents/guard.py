"""The agent of another package, guarded: it costs its own sessions, never a command.

Its code runs in a process of its own (`package_process`), with a time limit for each question. An
answer is made of plain values, and everything in it is checked here, once, before anybody else
sees it. A method that fails gives what a machine without that agent would, and the package is
noted with the reason (`packages.problems`). Only `read` and the parts raise, a NotReadable.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from thence.agents import unread
from thence.agents.package_protocol import Question, encode_question
from thence.agents.packages import ForeignFailure, NoAnswer, note_problem, package_of, reason_of
from thence.errors import NotReadable
from thence.format.facts import check_values
from thence.format.records import JSON

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from thence.agents import AgentPrompt, Batch, Cursor, Live, Source
    from thence.agents.handoffs import HandoffWriter

START_LIMIT_S = 10.0
"""How long a package may take to be imported."""

ANSWER_LIMIT_S = 60.0
"""How long one answer may take."""

MAX_ANSWER_BYTES = 256 << 20
MAX_ENDS = 3
"""How often its process may end by itself before it is left alone."""

PAUSE_S = 600.0
"""How long a package that hangs, or ends its process again and again, is not asked."""

MAX_READS = 10_000
"""Reads in a row that may say of one session that there is more to read."""

DAYS = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
_RUN = """
import sys
sys.path[:] = sys.argv[1:]
from thence.agents.package_process import run
run()
"""


class PackageProcess:
    """The process of one package: started when it is asked something, again after it ended."""

    def __init__(self, point: EntryPoint) -> None:
        self._point = point
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._close: Callable[[], object] = int  # nothing is open yet
        self._ends = 0
        self._pause: tuple[float, str] | None = None

    def ask(self, what: str, *arguments: Any, is_many: bool = False) -> tuple[Any, str | None]:
        """Return an answer, and why it is not whole; ForeignFailure where there is none."""
        with self._lock:
            if self._pause is not None and time.monotonic() < self._pause[0]:
                raise ForeignFailure(self._pause[1])
            self._pause = None
            if self._process is None or self._owner != os.getpid():  # a fork has its own
                self.start()
            return self._exchange((what, is_many, arguments), ANSWER_LIMIT_S)

    def start(self, what: str = "load") -> dict[str, Any]:
        """Start the process and import the package; return what it says of itself."""
        # As `cli.processes` starts Python: what lies in the current folder is not imported.
        command = [sys.executable, "-E", "-P", "-c", _RUN, *filter(None, sys.path)]
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing)  # noqa: S603
        except OSError as error:
            raise ForeignFailure(f"its process cannot be started: {error.strerror}") from error
        self._owner = os.getpid()
        self._close = weakref.finalize(self, _close, self._process, self._owner)
        names = self._point.name, self._point.value, self._point.group
        answer, why = self._exchange((what, False, names), START_LIMIT_S)
        if why is not None:
            self._end()
            raise ForeignFailure(why)
        loaded: dict[str, Any] = answer
        return loaded

    def _exchange(self, question: Question, limit: float) -> tuple[Any, str | None]:
        process = self._process
        assert process is not None  # noqa: S101 - it was started
        is_late = threading.Event()

        def stop() -> None:
            is_late.set()
            process.kill()

        timer = threading.Timer(limit, stop)
        timer.start()
        try:
            body = _talk(process, encode_question(question))
        except (OSError, EOFError):
            body = None
        except BaseException:  # what is answered now would be taken for the next answer
            self._end()
            raise
        finally:
            timer.cancel()
            timer.join()  # only a process with one thread may fork
        if is_late.is_set():
            raise NoAnswer(self._note_end(process, limit))
        if body is None:
            raise ForeignFailure(self._note_end(process, None))
        try:
            value, why, noted = json.loads(body)
        except (ValueError, TypeError, RecursionError) as error:  # its code wrote among our answers
            process.kill()
            raise ForeignFailure(self._note_end(process, None)) from error
        for item in check(noted, list[unread.Unread]):
            unread.note(msgspec.structs.replace(item, agent=""))  # it speaks for its own agent only
        return value, why

    def _note_end(self, process: subprocess.Popen[bytes], limit: float | None) -> str:
        """Return why there is no answer; a package that goes on like this is left alone."""
        code = process.wait()
        self._end()
        self._ends += 1
        if limit is not None:
            why = f"it gave no answer within {limit:.0f} s"
        elif code < 0:
            why = f"its process was ended by signal {-code}"
        else:
            why = f"it ended the process with {code}"
        if limit is not None or self._ends >= MAX_ENDS:
            self._ends, self._pause = 0, (time.monotonic() + PAUSE_S, why)
        return why

    def _end(self) -> None:
        self._process = None
        self._close()


def try_import(point: EntryPoint) -> None:
    """Raise a ForeignFailure where the import of a package fails, does not end or ends all."""
    PackageProcess(point).start("imports")


def _close(process: subprocess.Popen[bytes], owner: int) -> None:
    """End a process, unless another one started it: a fork knows those of its parent."""
    if os.getpid() == owner:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # what it did not read
                pipe.close() if pipe is not None else None


def _talk(process: subprocess.Popen[bytes], question: bytes) -> bytes:
    """Ask a process; return its answer. EOFError where it ended before."""
    into, out = process.stdin, process.stdout
    assert into is not None and out is not None  # noqa: S101, PT018 - it was started with pipes
    into.write(len(question).to_bytes(8, "little") + question)
    into.flush()
    head = out.read(8)
    size = int.from_bytes(head, "little")
    if len(head) == 8 and size > MAX_ANSWER_BYTES:
        raise ForeignFailure(f"it gives {size >> 20:,} MB at once")
    body = out.read(size)
    if len(head) < 8 or len(body) < size:
        raise EOFError
    return body


class GuardedAdapter:
    """What an `Adapter` is, whatever the adapter behind it does."""

    def __init__(self, point: EntryPoint) -> None:
        """Start the package's process; ForeignFailure where it cannot be used."""
        self._point = point
        self._process = PackageProcess(point)
        answer = self._process.start()
        self.name: str = answer["name"]
        if not self.name or ":" in self.name:  # it stands before the colon of a session's uid
            raise ForeignFailure(f"{self.name!r} is no name of an agent")
        self.profile: dict[str, JSON] | None = answer["profile"]
        """Its profile as it came, if it has one."""
        self.looks_for: str | None = answer["looks_for"]
        """What the adapter takes for a session, in words."""
        self._reads = ("", 0)

    def roots(self, home: Path, env: Mapping[str, str]) -> list[Path]:
        """Return the folders that the adapter names; none where it fails."""
        return [Path(path) for path in self._ask_items("roots", str, home, dict(env))]

    def find(self, root: Path) -> Iterator[Source]:
        """Yield the sessions that the adapter finds, as far as it comes."""
        from thence.agents import Source

        return self._ask_items("find", Source, root)

    def at(self, path: Path) -> Source | None:
        """Return the session that a path belongs to; None where the adapter fails."""
        from thence.agents import Source

        source: Source | None = self._ask_once("at", Source | None, path)
        return source

    def sources_at(self, path: Path) -> list[Source]:
        """Return all sessions that a path belongs to; none where the adapter fails."""
        from thence.agents import Source

        return list(self._ask_items("sources_at", Source, path))

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:
        """Return what the adapter reads; NotReadable where it fails."""
        from thence.agents import Batch

        with self._naming_package():
            batch: Batch = self._answer("read", Batch, source, cursor)
            before, times = self._reads
            times = times + 1 if before == source.uid else 1
            if not batch.done and (batch.cursor == cursor or times > MAX_READS):
                raise ForeignFailure("read says that there is more to read, again and again")
            self._reads = ("" if batch.done else source.uid, times)
        return batch

    def live(self, root: Path) -> Iterator[Live]:
        """Yield the sessions that the adapter calls running, as far as it comes."""
        from thence.agents import Live

        return self._ask_items("live", Live, root)

    def prompts(self, root: Path) -> Iterator[AgentPrompt]:
        """Yield the prompts that the adapter knows, as far as it comes."""
        from thence.agents import AgentPrompt

        return self._ask_items("prompts", AgentPrompt, root)

    def keeps_days(self, root: Path) -> int | None:
        """Return after how many days the agent deletes a session; None where the adapter fails."""
        days: int | None = self._ask_once("keeps_days", DAYS | None, root)
        return days

    # -- parts ----------------------------------------------------------------------------

    def writer(self, place: str) -> HandoffWriter | None:
        """Return the writer of handoffs at a place; None where something else is there."""
        from thence.agents.handoffs import HandoffSettings, HandoffWriter

        with self._naming_package():
            answer, why = self._process.ask("describe", place)
            if why is not None:
                raise ForeignFailure(why)
            if answer is None:
                return None
            plain, called = answer
            gives = {
                "files": dict[str, list[JSON]],
                "settings": HandoffSettings,
                "session_id": str,
                "accept": list[str],
            }
            fields: dict[str, Any] = {
                field.name: check(plain[field.name], field.type)
                for field in msgspec.structs.fields(HandoffWriter)
                if field.name not in gives
            }
            fields |= {name: self.part(place, gives[name], name) for name in called}
            return HandoffWriter(**fields)

    def part(self, place: str, gives: Any, field: str = "") -> Callable[..., Any]:
        """Return what calls a part of the agent, or a field of one, and checks what it gives."""

        def call(*arguments: Any) -> Any:
            with self._naming_package():
                value, why = self._process.ask("call", place, field, *arguments)
                if why is not None:
                    raise ForeignFailure(why)
                return check(value, gives)

        return call

    # -- questions ------------------------------------------------------------------------

    @contextlib.contextmanager
    def _naming_package(self) -> Iterator[None]:
        """Raise a NotReadable that names the package and the reason where something fails."""
        try:
            yield
        except ForeignFailure as error:
            note_problem(self._point, str(error))  # of one session: others may be read in time
            raise NotReadable(
                f"the reader of {self.name}, of {package_of(self._point)}, failed: {error}",
                hint="update or uninstall its package",
            ) from error

    def _answer(self, method: str, kind: Any, *arguments: Any) -> Any:
        value, why = self._process.ask("ask", method, *arguments)
        if why is not None:
            raise ForeignFailure(why)
        return self._checked(value, kind)

    def _ask_once(self, method: str, kind: Any, *arguments: Any) -> Any:
        try:
            return self._answer(method, kind, *arguments)
        except ForeignFailure as error:
            note_problem(self._point, error)
            return None

    def _ask_items(self, method: str, kind: Any, *arguments: Any) -> Iterator[Any]:
        """Yield the items of an answer, each checked, until it ends or fails."""
        try:
            values, why = self._process.ask("ask", method, *arguments, is_many=True)
            for value in values:
                yield self._checked(value, kind)
            if why is not None:
                raise ForeignFailure(why)
        except ForeignFailure as error:
            note_problem(self._point, error)

    def _checked(self, value: Any, kind: Any) -> Any:
        from thence.agents import Source

        made = check(value, kind)
        if isinstance(made, Source) and made.adapter != self.name:
            raise ForeignFailure(f"a session of its own is given as one of {made.adapter}")
        return made


# -- what is checked --------------------------------------------------------------------------


def check(value: Any, kind: Any) -> Any:
    """Return an object made of plain values; ForeignFailure where one cannot be what it says."""
    from thence.agents import Cursor, Source

    try:
        made = msgspec.convert(value, kind)
        check_values(made, besides=Cursor)  # what the system says of files: inodes have 64 bits
    except (ValueError, OverflowError, RecursionError) as error:
        raise ForeignFailure(reason_of(error)) from error
    if isinstance(made, Source):
        _check_names(made)
    return made


def _check_names(source: Source) -> None:
    """Raise a ForeignFailure for a session without an id, and for names that no file has."""
    paths = [path for file in source.files for path in (file.path, file.key, *file.beside)]
    for name in (source.session, source.root, *paths):
        try:
            is_name = "\0" not in os.fsdecode(os.fsencode(name))
        except UnicodeEncodeError:
            is_name = False
        if not is_name:
            raise ForeignFailure(f"no file has the name {name!r}")
    if not source.session:
        raise ForeignFailure(f"the session in {source.path} has no id")
